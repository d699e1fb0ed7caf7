//! Scene of each verdict, and the examples of the documentation, which are its sentences.

use super::*;
use crate::answer_examples::{EXAMPLES, example};
use crate::facts::Facts;
use crate::verdicts::VERDICTS;
use record::observed::{CallCount, ConntrackUse};

/// File of the examples, which a test writes and compares.
const FILE: &str = "src/answer_examples.tsv";

/// Returns a run with the symptoms of each verdict that can be observed.
fn scenes() -> Vec<(&'static str, Run)> {
    let mut all = failures();
    all.extend(network());
    all.extend(cpus());
    all.extend(waiting());
    all
}

fn failures() -> Vec<(&'static str, Run)> {
    let mut ports = run(40, MS);
    ports.totals.errors.insert("no_port".to_owned(), 20_000);
    change_ends(&mut ports, ConnectionEnd::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_000);
    });
    ports.totals.connections.opened = 280_000;
    let mut accept = run(40, 20 * MS);
    accept.totals.connections.opened = accept.totals.requests;
    set_counter(&mut accept, "TcpExt.ListenOverflows", 37.0);
    set_counter(&mut accept, "Tcp.RetransSegs", 62.0);
    accept.observed[0].queues.iter_mut().for_each(|queue| queue.listeners[0].full = 1);
    let mut descriptors = accept.clone();
    descriptors.totals.connections.failed = 1_000;
    change_samples(&mut descriptors, |sample| sample.roles[1].descriptors = Some(1_000));
    let mut tracked = run(40, 20 * MS);
    change_samples(&mut tracked, |sample| {
        let (entries, entries_max) = (65_500, 65_536);
        sample.conntrack =
            Some(ConntrackUse { entries, entries_max, drops_per_s: 120.0, ..ConntrackUse::default() });
    });
    let mut cookies = run(40, 20 * MS);
    cookies.totals.connections.opened = cookies.totals.requests;
    set_counter(&mut cookies, "TcpExt.SyncookiesSent", 100.0);
    change_ends(&mut cookies, ConnectionEnd::Server, |_, ends| {
        ends.states.insert("syn-recv".to_owned(), 129);
    });
    let mut invalid = run(20, 2 * MS);
    invalid.totals.status.insert(500, invalid.totals.requests / 20);
    invalid.totals.errors.insert("reset".to_owned(), invalid.totals.requests / 20);
    let limited = rejections::rejecting(503, &[316, 300, 300, 300, 300, 300], (500, 112, 0.044, 54_000));
    vec![
        ("port_exhaustion", ports),
        ("fd_limit", descriptors),
        ("conntrack_full", tracked),
        ("accept_backlog_overflow", accept),
        ("syn_backlog_overflow", cookies),
        ("run_invalid", invalid),
        ("rate_limited", limited),
    ]
}

/// Returns a run over a shaped link with a queue of so many bytes, and this round trip.
fn shaped(backlog_bytes: u64, round_trip_us: f64) -> Run {
    let mut run = run(32, 50 * MS);
    run.rates.bytes_in_per_s = 6e6;
    change_samples(&mut run, |sample| {
        let queue = QdiscUse {
            kind: "tbf".to_owned(),
            rate_bits_per_s: Some(50e6),
            backlog_bytes,
            overlimits_per_s: 900.0,
            ..QdiscUse::default()
        };
        let (tx_bytes_per_s, tx_packets_per_s) = (6.1e6, 4_100.0);
        let name = "eth0".to_owned();
        sample.links = vec![LinkUse {
            name,
            tx_bytes_per_s,
            tx_packets_per_s,
            queues: vec![queue],
            ..LinkUse::default()
        }];
    });
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.rtt_us = round_trip_us);
    run
}

fn network() -> Vec<(&'static str, Run)> {
    let mut small = run(32, 5 * MS);
    change_samples(&mut small, |sample| {
        let queue = QdiscUse { overlimits_per_s: 5_000.0, ..QdiscUse::default() };
        sample.links = vec![LinkUse {
            name: "eth0".to_owned(),
            tx_bytes_per_s: 1e6,
            tx_packets_per_s: 10_000.0,
            queues: vec![queue],
            ..LinkUse::default()
        }];
    });
    change_ends(&mut small, ConnectionEnd::Server, |_, ends| ends.rtt_us = 5_000.0);
    let mut lossy = run(32, 50 * MS);
    set_counter(&mut lossy, "Tcp.RetransSegs", 640.0);
    set_counter(&mut lossy, "TcpExt.TCPSackRecovery", 20.0);
    change_ends(&mut lossy, ConnectionEnd::Server, |index, ends| {
        ends.retransmitted = index as u64 * 40;
        ends.rtt_us = 10_000.0;
    });
    let mut slow = run(32, 50 * MS);
    change_ends(&mut slow, ConnectionEnd::Server, |index, ends| {
        ends.busy_us = index as u64 * 6_000_000;
        ends.receive_window_limited_us = index as u64 * 5_500_000;
        ends.not_sent_bytes = 100_000;
    });
    let mut delayed = run(20, 44 * MS);
    let rate = delayed.rates.responses_per_s;
    set_counter(&mut delayed, "TcpExt.DelayedACKs", rate * 0.98);
    change_ends(&mut delayed, ConnectionEnd::Server, |_, ends| ends.not_sent_bytes = 800);
    vec![
        ("bufferbloat", shaped(3_000_000, 400_000.0)),
        ("link_bound", shaped(200_000, 40_000.0)),
        ("packet_rate_bound", small),
        ("receive_window_bound", slow),
        ("h2_window_bound", http2::http2_run(10, 1e6, 340, (http2::SMALL, http2::LARGE))),
        ("packet_loss", lossy),
        ("delayed_ack_stall", delayed),
    ]
}

/// Returns a subject that other programs, or other virtual machines, keep from its CPU.
fn contended(foreign_cpus: f64, steal: f64) -> Run {
    let mut run = run(32, 4 * MS);
    set_subject_cpus(&mut run, 0.6, 0.1, 1);
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(foreign_cpus);
        sample.roles[1].threads[0].waiting = Some(0.3);
        sample.cpus.iter_mut().for_each(|cpu| cpu.steal = steal);
    });
    run
}

/// Returns a run whose subject spends its CPU time so, in so many threads, with this function at the top.
fn computing((user, system, threads): (f64, f64, usize), function: &str) -> Run {
    let mut run = run(32, 4 * MS);
    set_subject_cpus(&mut run, user, system, threads);
    run.observed[0].functions = vec![FunctionUse {
        role: "subject".to_owned(),
        function: function.to_owned(),
        self_fraction: 0.3,
        ..FunctionUse::default()
    }];
    run
}

fn cpus() -> Vec<(&'static str, Run)> {
    let mut quota = run(32, 4 * MS);
    set_subject_cpus(&mut quota, 0.2, 0.1, 2);
    change_samples(&mut quota, |sample| {
        sample.roles[1].cgroup = Some(CgroupUse {
            quota_cpus: Some(0.3),
            period_s: Some(0.1),
            throttled_periods: Some(1.0),
            throttled_cpus: Some(0.7),
            ..CgroupUse::default()
        });
    });
    let mut client = run(32, MS);
    set_subject_cpus(&mut client, 0.3, 0.6, 2);
    client.generator.busiest_thread_fraction = Some(0.99);
    change_ends(&mut client, ConnectionEnd::Client, |_, ends| ends.with_unread = 30);
    change_ends(&mut client, ConnectionEnd::Server, |_, ends| ends.with_unread = 1);
    let mut imbalance = run(32, 4 * MS);
    change_samples(&mut imbalance, |sample| {
        for (cpu, softirq) in sample.cpus.iter_mut().zip([0.9, 0.05]) {
            (cpu.softirq, cpu.idle, cpu.net_rx_per_s) = (softirq, 0.95 - softirq, softirq * 1e5);
        }
    });
    vec![
        ("cpu_throttled", quota),
        ("cpu_steal", contended(0.1, 0.3)),
        ("cpu_contended", contended(1.2, 0.04)),
        ("client_bound", client),
        ("handshake_bound", computing((1.7, 0.1, 4), "bn_mul_mont")),
        ("bulk_crypto_bound", computing((1.7, 0.1, 4), "aesni_gcm_encrypt")),
        ("port_search_bound", ports::connecting_run()),
        ("allocator_bound", computing((0.95, 0.04, 1), "_int_malloc")),
        ("softirq_imbalance", imbalance),
        ("single_thread_bound", computing((0.95, 0.04, 1), "parse_json")),
        ("kernel_cpu_bound", computing((0.3, 1.5, 4), "tcp_sendmsg")),
        ("user_cpu_bound", computing((1.7, 0.1, 4), "parse_json")),
    ]
}

fn waiting() -> Vec<(&'static str, Run)> {
    let mut log = run(16, 100 * MS);
    change_samples(&mut log, |sample| {
        sample.roles[1].threads_in_disk_sleep = 15.0;
        sample.roles[1].disk_write_bytes_per_s = Some(500_000.0);
        sample.pressure = Some(Pressure { io_some: 0.7, ..Pressure::default() });
    });
    let mut memory = run(16, 100 * MS);
    change_samples(&mut memory, |sample| {
        sample.roles[1].threads_in_disk_sleep = 15.0;
        sample.roles[1].disk_write_bytes_per_s = Some(0.0);
        sample.pressure = Some(Pressure { io_some: 0.7, memory_some: 0.5, ..Pressure::default() });
        let group = CgroupUse { memory_max_hits_per_s: Some(3_000.0), ..CgroupUse::default() };
        sample.roles[1].cgroup = Some(group);
    });
    let mut pool = queueing::with_baseline(run(100, 200 * MS), 20 * MS);
    queueing::origin(&mut pool, 9_001, 10, 10, 1e5);
    let mut origin = queueing::with_baseline(run(40, 200 * MS), 5 * MS);
    queueing::origin(&mut origin, 9_001, 40, 39, 1e5);
    let observed = &mut origin.observed[0];
    observed.roles.push(Role { name: "origin".to_owned(), cpus_allowed: 2, ..Role::default() });
    change_samples(&mut origin, |sample| sample.roles.push(role_use(0.9, 0.08)));
    let mut locks = queueing::with_baseline(run(32, 4 * MS), MS);
    set_subject_cpus(&mut locks, 0.6, 0.3, 8);
    locks.observed[0].calls = vec![CallCount {
        role: "subject".to_owned(),
        call: "futex".to_owned(),
        length_s: 10.0,
        count: 160_000,
        ..CallCount::default()
    }];
    vec![
        ("log_write_bound", log),
        ("memory_pressure", memory),
        ("lock_contention", locks),
        ("origin_bound", origin),
        ("connection_limited", pool),
        ("latency_bound", queueing::with_baseline(run(40, 75 * MS), 74 * MS)),
        ("subject_limited", answers::semaphore()),
    ]
}

/// Returns the lines of the file of examples: code, limit, reason, next step.
fn lines() -> String {
    let mut text = String::new();
    for rule in VERDICTS.iter().filter(|rule| rule.not_observable.is_empty()) {
        let all = scenes();
        let (_, run) = all.into_iter().find(|(code, _)| *code == rule.code).expect(rule.code);
        let answer = (rule.answer)(&Facts { view: &RunView::new(&run) });
        answers::assert_whole(&answer);
        text += &format!("{}\t{}\t{}\t{}\n", rule.code, answer.what, answer.why, answer.next);
    }
    text
}

#[test]
fn each_scene_has_its_verdict() {
    for (code, run) in scenes() {
        let diagnosis = diagnose(&run);
        assert_eq!(diagnosis.verdict, code, "{diagnosis:#?}");
    }
}

#[test]
fn a_limit_of_descriptors_is_raised_and_never_lowered() {
    let (_, run) = failures().into_iter().find(|(code, _)| *code == "fd_limit").unwrap();
    let next = crate::answer(&run).next;
    assert!(next.starts_with("Raise the limit to 2000 or more"), "{next}");
}

/// `WEIR_WRITE_EXAMPLES=1 cargo test -p diagnose examples_of_the_documentation` writes the file.
#[test]
fn the_examples_of_the_documentation_are_the_sentences_of_the_scenes() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("WEIR_WRITE_EXAMPLES").is_some() {
        std::fs::write(&path, lines()).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    for (stored, current) in stored.lines().zip(lines().lines()) {
        assert_eq!(stored, current, "run this test with WEIR_WRITE_EXAMPLES=1");
    }
    assert_eq!(stored, lines());
    if EXAMPLES == stored {
        for rule in VERDICTS.iter().filter(|rule| rule.not_observable.is_empty()) {
            assert!(example(rule.code).is_some(), "{}", rule.code);
        }
    }
}
