//! Tests on synthetic records: each has the symptoms of one cause, as measured with the cause
//! induced, and must get its verdict. A healthy record must get none.

mod answers;
mod carried_load;
mod contention;
mod headroom;
mod http2;
mod ports;
mod queueing;
mod rejections;
mod remote_subject;
mod scenes;
mod signal_values;
mod tls;
mod user_tcp;

use crate::run_view::RunView;
use crate::verdicts::{self, Perturbation};
use crate::{diagnose, headroom};
use record::facts::{HostFacts, HostLimits};
use record::histogram::LatencyHistogram;
use record::observed::{
    CgroupUse, ConnectionEnd, CpuUse, EndQueues, ExitedProcess, FunctionUse, KernelProcess, LinkUse,
    ListenerQueue, MachineObservation, MachineSample, NamespaceUse, PortRoles, Pressure, QdiscUse,
    QueueSnapshot, Role, RoleUse, ThreadCpuUse,
};
use record::run::{
    Confidence, GeneratorStats, Interval, LatencyPair, MeasuredWindow, PhaseLatencies, Rates, Run, RunTotals,
    WeirVersion,
};
use record::validity::Validity;

const PORT: u16 = 8_000;
const MS: u64 = 1_000_000;

/// Returns a closed loop over `connections`, each request `latency_ns` long, on two CPUs.
fn run(connections: u64, latency_ns: u64) -> Run {
    let rate = connections as f64 * 1e9 / latency_ns as f64;
    let count = (rate * 10.0) as u64;
    let mut latencies = LatencyHistogram::new();
    (0..2_000).for_each(|_| latencies.record(latency_ns));
    let pair = || LatencyPair { service: latencies.summary(), response: latencies.summary() };
    let none = || LatencyPair {
        service: LatencyHistogram::new().summary(),
        response: LatencyHistogram::new().summary(),
    };
    let mut totals = RunTotals { requests: count, responses: count, sent: count, ..RunTotals::default() };
    totals.connections.requested = connections;
    totals.connections.max_open = connections;
    totals.status.insert(200, count);
    Run {
        schema: record::run::SCHEMA.to_owned(),
        weir: WeirVersion { version: "0".to_owned(), commit: "0".to_owned() },
        command: vec![],
        started_at: String::new(),
        identities: Vec::new(),
        duration_s: 10.0,
        partial: false,
        check_samples: Vec::new(),
        rate_changes: Vec::new(),
        stages: Vec::new(),
        requests: Vec::new(),
        host: HostFacts {
            limits: HostLimits { port_range: Some((32_768, 60_999)), ..HostLimits::default() },
            ..HostFacts::default()
        },
        plan: serde_json::json!({"pace": {"loop": "closed", "think_ns": 0}, "spin": false}),
        validity: Validity::from_reasons(vec![]),
        objectives: vec![],
        totals,
        rates: Rates { responses_per_s: rate, bytes_in_per_s: rate * 200.0, ..Rates::default() },
        window: MeasuredWindow { from_s: 0.0, to_s: 10.0, ..MeasuredWindow::default() },
        latency: PhaseLatencies {
            connect: none(),
            tls_handshake: None,
            tls_full: None,
            tls_resumed: None,
            first_byte: pair(),
            last_byte: pair(),
            last_byte_bad: None,
        },
        tls: None,
        http2: None,
        websocket: None,
        event_stream: None,
        transport: None,
        generator: GeneratorStats {
            threads: 1,
            busiest_thread_fraction: Some(0.2),
            run_queue_wait_fraction: Some(0.0),
            in_flight_mean: connections as f64,
            in_flight_by_littles_law: connections as f64,
            ..GeneratorStats::default()
        },
        baseline: None,
        cpu: record::run::GeneratorCpu::default(),
        intervals: (1..=10).map(|second| interval(f64::from(second), rate)).collect(),
        observed: vec![observed(connections)],
        answer: None,
        comparison: None,
        diagnosis: None,
        fleet: None,
    }
}

fn interval(time_s: f64, rate: f64) -> Interval {
    Interval { time_s, length_s: 1.0, responses: rate as u64, measured: true, ..Interval::default() }
}

fn observed(connections: u64) -> MachineObservation {
    let role = |name: &str| Role { name: name.to_owned(), cpus_allowed: 2, ..Role::default() };
    let port = PortRoles {
        port: PORT,
        served_by: Some("subject".to_owned()),
        used_by: Some("generator".to_owned()),
    };
    MachineObservation {
        cpus: 2,
        roles: vec![role("generator"), role("subject")],
        ports: vec![port],
        samples: (1..=10).map(|second| sample(f64::from(second))).collect(),
        queues: (1..50).map(|at| snapshot(f64::from(at) * 0.2, connections)).collect(),
        ..MachineObservation::default()
    }
}

fn sample(time_s: f64) -> MachineSample {
    let cpu = |cpu| CpuUse { cpu, user: 0.1, system: 0.1, idle: 0.8, ..CpuUse::default() };
    let counters = [("Tcp.OutSegs".to_owned(), 10_000.0)].into();
    let roles = vec!["generator".to_owned(), "subject".to_owned()];
    MachineSample {
        time_s,
        length_s: 1.0,
        cpus: vec![cpu(0), cpu(1)],
        foreign_cpus: Some(0.02),
        roles: vec![role_use(0.1, 0.1), role_use(0.1, 0.1)],
        namespaces: vec![NamespaceUse { roles, counters, ..NamespaceUse::default() }],
        ..MachineSample::default()
    }
}

fn role_use(user_cpus: f64, system_cpus: f64) -> RoleUse {
    let busy = user_cpus + system_cpus;
    let thread = ThreadCpuUse { busy, waiting: Some(0.01), ..ThreadCpuUse::default() };
    RoleUse {
        processes: 1,
        user_cpus,
        system_cpus,
        threads: vec![thread],
        descriptors: Some(50),
        descriptors_max: Some(1_000),
        ..RoleUse::default()
    }
}

fn snapshot(time_s: f64, connections: u64) -> QueueSnapshot {
    let ends = |end| EndQueues {
        port: PORT,
        end,
        states: [("established".to_owned(), connections)].into(),
        rtt_us: 50.0,
        rtt_min_us: 20.0,
        ..EndQueues::default()
    };
    let listener = ListenerQueue { port: PORT, backlog: 128, sockets: 1, ..ListenerQueue::default() };
    QueueSnapshot {
        time_s,
        listeners: vec![listener],
        ends: vec![ends(ConnectionEnd::Client), ends(ConnectionEnd::Server)],
        ..QueueSnapshot::default()
    }
}

/// Changes every sample.
fn change_samples(run: &mut Run, change: impl Fn(&mut MachineSample)) {
    run.observed[0].samples.iter_mut().for_each(change);
}

/// Changes one end of every snapshot; `index` is that of the snapshot.
fn change_ends(run: &mut Run, end: ConnectionEnd, change: impl Fn(usize, &mut EndQueues)) {
    for (index, snapshot) in run.observed[0].queues.iter_mut().enumerate() {
        snapshot.ends.iter_mut().filter(|ends| ends.end == end).for_each(|ends| change(index, ends));
    }
}

fn set_counter(run: &mut Run, name: &str, per_s: f64) {
    change_samples(run, |sample| {
        sample.namespaces[0].counters.insert(name.to_owned(), per_s);
    });
}

/// Makes the subject use this many CPUs, which reduces the idle time of the machine.
fn set_subject_cpus(run: &mut Run, user: f64, system: f64, threads: usize) {
    change_samples(run, |sample| {
        sample.roles[1] = role_use(user, system);
        let busy_per_thread = (user + system) / threads as f64;
        let thread = ThreadCpuUse { busy: busy_per_thread, waiting: Some(0.02), ..ThreadCpuUse::default() };
        sample.roles[1].threads = vec![thread; threads];
        let idle = (2.0 - user - system - 0.2).max(0.02) / 2.0;
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = idle);
    });
    change_ends(run, ConnectionEnd::Server, |_, ends| ends.with_unread = ends.states["established"] * 9 / 10);
}

fn assert_first(run: &Run, code: &str) {
    let diagnosis = diagnose(run);
    assert_eq!(diagnosis.verdict, code, "{diagnosis:#?}");
    if let Some(rule) = verdicts::find_rule(code) {
        assert!(diagnosis.confidence > Confidence::None && diagnosis.evidence.len() >= 2, "{diagnosis:#?}");
        assert_eq!(diagnosis.claim, rule.claim);
        answers::assert_shows_evidence(run, rule, &crate::answer(run));
    }
    answers::assert_whole(&crate::answer(run));
}

#[test]
fn a_healthy_open_loop_has_no_bottleneck() {
    let mut run = run(20, 2 * MS);
    run.plan = serde_json::json!({"pace": {"loop": "open", "rate_per_s": 1000.0}});
    run.generator.in_flight_mean = 1.0;
    run.generator.in_flight_by_littles_law = 1.0;
    run.rates = Rates { responses_per_s: 1_000.0, offered_per_s: Some(1_000.0), ..run.rates };
    assert_first(&run, "none");
    assert!(diagnose(&run).next_limits[0].contains("used"));
    run.rates.responses_per_s = 900.0;
    assert_first(&run, "unknown");
}

#[test]
fn a_run_without_observations_is_unknown() {
    let mut run = run(20, MS);
    run.observed.clear();
    let diagnosis = diagnose(&run);
    assert_eq!(diagnosis.verdict, "unknown");
    assert!(diagnosis.not_observable.iter().any(|line| line.starts_with("user_cpu_bound")));
}

#[test]
fn the_same_record_from_a_file_gets_the_same_verdict() {
    let mut run = run(40, 20 * MS);
    run.diagnosis = Some(diagnose(&run));
    let stored: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(Some(diagnose(&stored)), stored.diagnosis);
}

#[test]
fn waiting_without_work_is_latency() {
    assert_first(&run(40, 20 * MS), "latency_bound");
}

#[test]
fn all_cpu_time_used_is_cpu_bound() {
    let mut user = run(32, 4 * MS);
    set_subject_cpus(&mut user, 1.7, 0.1, 4);
    assert_first(&user, "user_cpu_bound");
    let mut kernel = run(32, 4 * MS);
    set_subject_cpus(&mut kernel, 0.3, 1.5, 4);
    assert_first(&kernel, "kernel_cpu_bound");
    let mut single = run(32, 4 * MS);
    set_subject_cpus(&mut single, 0.95, 0.04, 1);
    assert_first(&single, "single_thread_bound");
    single.observed[0].functions = vec![FunctionUse {
        role: "subject".to_owned(),
        function: "_int_malloc".to_owned(),
        self_fraction: 0.3,
        ..FunctionUse::default()
    }];
    assert_first(&single, "allocator_bound");
}

#[test]
fn a_generator_at_its_limit_comes_before_a_busy_subject() {
    let mut run = run(32, MS);
    set_subject_cpus(&mut run, 0.3, 0.6, 2);
    run.generator.busiest_thread_fraction = Some(0.99);
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 30);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 1);
    assert_first(&run, "client_bound");
}

#[test]
fn other_processes_matter_only_to_a_subject_that_needs_a_cpu() {
    let mut run = run(32, 4 * MS);
    set_subject_cpus(&mut run, 0.6, 0.1, 1);
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(1.2);
        sample.roles[1].threads[0].waiting = Some(0.3);
    });
    assert_first(&run, "cpu_contended");
    change_samples(&mut run, |sample| {
        sample.roles[1] = role_use(0.01, 0.01);
        sample.roles[1].threads[0].waiting = Some(0.02);
    });
    assert_ne!(diagnose(&run).verdict, "cpu_contended");
}

#[test]
fn whoever_takes_more_of_the_cpu_time_gives_its_name() {
    let verdict_beside = |foreign_cpus: f64, steal: f64| {
        let mut run = run(32, 4 * MS);
        set_subject_cpus(&mut run, 0.6, 0.1, 1);
        change_samples(&mut run, |sample| {
            sample.foreign_cpus = Some(foreign_cpus);
            sample.roles[1].threads[0].waiting = Some(0.3);
            sample.cpus.iter_mut().for_each(|cpu| cpu.steal = steal);
        });
        let diagnosis = diagnose(&run);
        run.diagnosis = Some(diagnosis.clone());
        (diagnosis.verdict, crate::answer(&run).what)
    };
    let (verdict, what) = verdict_beside(1.2, 0.04);
    assert!(verdict == "cpu_contended" && what.starts_with("Other programs"), "{verdict}: {what}");
    let (verdict, what) = verdict_beside(0.1, 0.3);
    assert!(verdict == "cpu_steal" && what.starts_with("Other virtual machines"), "{verdict}: {what}");
    let (verdict, _) = verdict_beside(0.05, 0.01);
    assert!(!verdict.starts_with("cpu_"), "{verdict}");
}

#[test]
fn a_quota_shows_its_throttled_periods() {
    let mut run = run(32, 4 * MS);
    set_subject_cpus(&mut run, 0.2, 0.1, 2);
    change_samples(&mut run, |sample| {
        sample.roles[1].cgroup = Some(CgroupUse {
            quota_cpus: Some(0.3),
            period_s: Some(0.1),
            throttled_periods: Some(1.0),
            throttled_cpus: Some(0.7),
            ..CgroupUse::default()
        });
    });
    assert_first(&run, "cpu_throttled");
}

#[test]
fn links_queues_and_losses_are_distinguished() {
    let shaped = |backlog_bytes: u64| {
        let mut run = run(32, 50 * MS);
        change_samples(&mut run, |sample| {
            let queue = QdiscUse {
                kind: "tbf".to_owned(),
                rate_bits_per_s: Some(50e6),
                backlog_bytes,
                overlimits_per_s: 900.0,
                ..QdiscUse::default()
            };
            sample.links = vec![LinkUse {
                name: "v0".to_owned(),
                tx_bytes_per_s: 6.1e6,
                tx_packets_per_s: 4_100.0,
                queues: vec![queue],
                ..LinkUse::default()
            }];
        });
        run
    };
    let mut link = shaped(200_000);
    change_ends(&mut link, ConnectionEnd::Server, |_, ends| ends.rtt_us = 40_000.0);
    assert_first(&link, "link_bound");
    let mut deep = shaped(3_000_000);
    change_ends(&mut deep, ConnectionEnd::Server, |_, ends| ends.rtt_us = 400_000.0);
    assert_first(&deep, "bufferbloat");
    // Small packets without a delay are no limit, however steady.
    let mut small = run(32, 5 * MS);
    let link = |queues| LinkUse {
        name: "v0".to_owned(),
        tx_bytes_per_s: 1e6,
        tx_packets_per_s: 10_000.0,
        queues,
        ..LinkUse::default()
    };
    change_samples(&mut small, |sample| sample.links = vec![link(vec![])]);
    change_ends(&mut small, ConnectionEnd::Server, |_, ends| ends.rtt_us = 5_000.0);
    assert_first(&small, "latency_bound");
    let queue = QdiscUse { overlimits_per_s: 5_000.0, ..QdiscUse::default() };
    change_samples(&mut small, |sample| sample.links = vec![link(vec![queue.clone()])]);
    assert_first(&small, "packet_rate_bound");
    // A retransmitted segment per response costs a round trip of 10 ms in 50 ms.
    let mut lossy = run(32, 50 * MS);
    set_counter(&mut lossy, "Tcp.RetransSegs", 640.0);
    set_counter(&mut lossy, "TcpExt.TCPSackRecovery", 20.0);
    change_ends(&mut lossy, ConnectionEnd::Server, |index, ends| {
        ends.retransmitted = index as u64 * 40;
        ends.rtt_us = 10_000.0;
    });
    assert_first(&lossy, "packet_loss");
    let mut slow = run(32, 50 * MS);
    change_ends(&mut slow, ConnectionEnd::Server, |index, ends| {
        ends.busy_us = index as u64 * 6_000_000;
        ends.receive_window_limited_us = index as u64 * 5_500_000;
        ends.not_sent_bytes = 100_000;
    });
    assert_first(&slow, "receive_window_bound");
}

#[test]
fn full_tables_and_queues_come_before_their_consequences() {
    let mut accept = run(40, 20 * MS);
    set_counter(&mut accept, "TcpExt.ListenOverflows", 37.0);
    set_counter(&mut accept, "Tcp.RetransSegs", 62.0);
    accept.observed[0].queues.iter_mut().for_each(|queue| queue.listeners[0].full = 1);
    assert_first(&accept, "accept_backlog_overflow");
    let mut descriptors = accept.clone();
    descriptors.totals.connections.failed = 1_000;
    change_samples(&mut descriptors, |sample| sample.roles[1].descriptors = Some(1_000));
    assert_first(&descriptors, "fd_limit");
    let mut cookies = run(40, 20 * MS);
    set_counter(&mut cookies, "TcpExt.SyncookiesSent", 100.0);
    change_ends(&mut cookies, ConnectionEnd::Server, |_, ends| {
        ends.states.insert("syn-recv".to_owned(), 129);
    });
    assert_first(&cookies, "syn_backlog_overflow");
    let mut ports = run(40, MS);
    ports.totals.errors.insert("no_port".to_owned(), 20_000);
    change_ends(&mut ports, ConnectionEnd::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_000);
    });
    assert_first(&ports, "port_exhaustion");
    // Connections of one request are gone before a snapshot sees their bytes.
    change_ends(&mut ports, ConnectionEnd::Client, |_, ends| {
        ends.states = [("time-wait".to_owned(), 28_000)].into();
        (ends.bytes_received_per_s, ends.bytes_acked_per_s, ends.active) = (Some(0.0), Some(0.0), 0);
    });
    assert_first(&ports, "port_exhaustion");
}

#[test]
fn disk_waits_are_distinguished_from_lack_of_memory() {
    let mut log = run(16, 100 * MS);
    change_samples(&mut log, |sample| {
        sample.roles[1].threads_in_disk_sleep = 15.0;
        sample.roles[1].disk_write_bytes_per_s = Some(500_000.0);
        sample.pressure = Some(Pressure { io_some: 0.7, ..Pressure::default() });
    });
    assert_first(&log, "log_write_bound");
    let mut pipe = run(16, 100 * MS);
    change_samples(&mut pipe, |sample| {
        let sleeps = [("anon_pipe_write".to_owned(), 15.0), ("do_epoll_wait".to_owned(), 2.0)];
        sample.roles[1].threads_asleep = Some(sleeps.into());
    });
    assert_first(&pipe, "log_write_bound");
    let evidence = diagnose(&pipe).evidence;
    let asleep =
        "asleep: 15.0 for the reader of a full pipe (anon_pipe_write), 2.0 for events (do_epoll_wait)";
    assert!(evidence.iter().any(|line| line.contains(asleep)), "{evidence:?}");
    // A log thread of its own at a full pipe, while the others sleep.
    let mut workers = run(16, 100 * MS);
    change_samples(&mut workers, |sample| {
        let sleeps = [("anon_pipe_write".to_owned(), 1.0), ("hrtimer_nanosleep".to_owned(), 15.0)];
        sample.roles[1].threads_asleep = Some(sleeps.into());
    });
    assert!(
        !diagnose(&workers).alternatives.iter().any(|alternative| alternative.verdict == "log_write_bound")
    );
    let mut memory = run(16, 100 * MS);
    change_samples(&mut memory, |sample| {
        sample.roles[1].threads_in_disk_sleep = 15.0;
        sample.roles[1].disk_write_bytes_per_s = Some(0.0);
        sample.pressure = Some(Pressure { io_some: 0.7, memory_some: 0.5, ..Pressure::default() });
        let hits = Some(3_000.0);
        let group = CgroupUse { memory_max_hits_per_s: hits, ..CgroupUse::default() };
        sample.roles[1].cgroup = Some(group);
    });
    assert_first(&memory, "memory_pressure");
}

#[test]
fn a_full_receive_buffer_of_a_socket_is_no_lack_of_memory() {
    let with_counter = |name: &str| {
        let mut run = run(16, 100 * MS);
        change_samples(&mut run, |sample| {
            sample.pressure = Some(Pressure { memory_some: 0.05, ..Pressure::default() });
        });
        set_counter(&mut run, name, 50.0);
        diagnose(&run).verdict
    };
    for counter in ["TcpExt.PruneCalled", "TcpExt.RcvPruned", "TcpExt.TCPRcvQDrop"] {
        assert_ne!(with_counter(counter), "memory_pressure", "{counter}");
    }
    for counter in ["TcpExt.TCPMemoryPressures", "TcpExt.TCPAbortOnMemory"] {
        assert_eq!(with_counter(counter), "memory_pressure", "{counter}");
    }
}

#[test]
fn stalls_of_40_ms_are_recognised() {
    let mut run = run(20, 44 * MS);
    let rate = run.rates.responses_per_s;
    set_counter(&mut run, "TcpExt.DelayedACKs", rate * 0.98);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.not_sent_bytes = 800);
    assert_first(&run, "delayed_ack_stall");
    // All of them take that long, so it is no tail.
    assert!(diagnose(&run).fingerprints.is_empty());
    // An origin that takes 40 ms has nothing to send meanwhile, even with delayed acknowledgements.
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.not_sent_bytes = 0);
    assert_first(&run, "latency_bound");
}

#[test]
fn a_stall_after_work_is_recognised_by_the_time_between_the_bytes() {
    let with_work = |first_byte_ns: u64, last_byte_ns: u64, not_sent_bytes: u64| {
        let mut run = run(20, last_byte_ns);
        let mut first = LatencyHistogram::new();
        (0..2_000).for_each(|_| first.record(first_byte_ns));
        run.latency.first_byte.service = first.summary();
        change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.not_sent_bytes = not_sent_bytes);
        run
    };
    let rate = |mut run: Run| {
        let rate = run.rates.responses_per_s;
        set_counter(&mut run, "TcpExt.DelayedACKs", rate * 0.98);
        run
    };
    assert_first(&rate(with_work(19 * MS, 61 * MS, 300)), "delayed_ack_stall");
    // Nothing to send, another time between the bytes, and a stall that is a small part of the latency.
    assert_first(&rate(with_work(19 * MS, 61 * MS, 0)), "latency_bound");
    assert_first(&rate(with_work(19 * MS, 79 * MS, 300)), "latency_bound");
    assert_first(&rate(with_work(90 * MS, 133 * MS, 300)), "latency_bound");
}

#[test]
fn a_tail_has_its_fingerprint() {
    let mut run = run(20, 2 * MS);
    let mut latencies = LatencyHistogram::new();
    (0..1_000).for_each(|at| latencies.record(if at % 50 == 0 { 205 * MS } else { 2 * MS }));
    run.latency.last_byte.service = latencies.summary();
    let fingerprints = diagnose(&run).fingerprints;
    assert!(fingerprints[0].starts_with("retransmission: 2.0 %"), "{fingerprints:?}");
}

#[test]
fn errors_that_nothing_explains_void_the_run() {
    let mut run = run(20, 2 * MS);
    run.totals.status.insert(500, run.totals.requests / 20);
    run.totals.errors.insert("reset".to_owned(), run.totals.requests / 20);
    assert_first(&run, "run_invalid");
}

/// Returns a run of a subject that breaks every response and does nothing else.
fn broken_run(kind: &str) -> Run {
    let mut run = run(4, MS);
    set_subject_cpus(&mut run, 0.3, 1.5, 4);
    run.totals.errors.insert(kind.to_owned(), run.totals.requests);
    run.totals.responses = 0;
    run.totals.status.clear();
    run.rates.responses_per_s = 0.0;
    run
}

#[test]
fn a_run_without_a_valid_response_is_void_before_anything_is_full() {
    for kind in ["parse", "closed", "reset", "refused", "tls"] {
        let mut run = broken_run(kind);
        run.generator.busiest_thread_fraction = Some(0.99);
        change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 4);
        assert_first(&run, "run_invalid");
        let diagnosis = diagnose(&run);
        let none = "valid response: 0 %";
        assert!(diagnosis.evidence.iter().any(|line| line.contains(none)), "{diagnosis:#?}");
        let code = "kernel_cpu_bound: ";
        assert!(diagnosis.ruled_out.iter().any(|line| line.starts_with(code)), "{diagnosis:#?}");
        assert!(diagnosis.next_limits.iter().all(|line| !line.contains("full at")), "{diagnosis:#?}");
    }
    // The cause of broken requests precedes its consequences.
    let mut descriptors = broken_run("reset");
    change_samples(&mut descriptors, |sample| sample.roles[1].descriptors = Some(1_000));
    assert_first(&descriptors, "fd_limit");
    let mut accept = broken_run("reset");
    set_counter(&mut accept, "TcpExt.ListenOverflows", 37.0);
    accept.observed[0].queues.iter_mut().for_each(|queue| queue.listeners[0].full = 1);
    assert_first(&accept, "accept_backlog_overflow");
    // If a part of the requests is served, the limit of that part counts.
    let mut part = broken_run("closed");
    part.rates.responses_per_s = 1_000.0;
    let half = part.totals.requests / 2;
    part.totals.errors.insert("closed".to_owned(), half);
    part.totals.responses = part.totals.requests - half;
    part.totals.status.insert(200, part.totals.responses);
    assert_first(&part, "kernel_cpu_bound");
    // A proxy without its origin answers quickly, and uses the CPUs.
    let mut refused = run(4, MS);
    set_subject_cpus(&mut refused, 0.3, 1.5, 4);
    refused.totals.status = [(503, refused.totals.requests)].into();
    assert_first(&refused, "run_invalid");
}

#[test]
fn processes_that_ended_under_load_are_reported_first() {
    let mut run = run(40, 20 * MS);
    let ended = |role: &str, time_s| ExitedProcess {
        role: role.to_owned(),
        pid: 12,
        name: "nginx".to_owned(),
        time_s,
    };
    // The generator's own end, and an end before the load, are no evidence.
    run.observed[0].ended = vec![ended("generator", 2.0), ended("subject", -1.0), ended("subject", 1.52)];
    let diagnosis = diagnose(&run);
    assert_eq!(diagnosis.verdict, "latency_bound");
    assert_eq!(diagnosis.evidence[0], "process 12 (nginx) ended at 1.5 s");
    assert!(!diagnosis.evidence[1].starts_with("process"), "{diagnosis:#?}");
}

#[test]
fn a_nearly_idle_subject_is_not_bound_by_its_functions() {
    let functions = ["_int_malloc", "aesni_gcm_encrypt", "bn_mul_mont"];
    let codes = ["allocator_bound", "bulk_crypto_bound", "handshake_bound"];
    for (function, code) in functions.into_iter().zip(codes) {
        let mut run = run(32, 4 * MS);
        run.observed[0].functions = vec![FunctionUse {
            role: "subject".to_owned(),
            function: function.to_owned(),
            self_fraction: 0.5,
            ..FunctionUse::default()
        }];
        set_subject_cpus(&mut run, 1.7, 0.1, 4);
        assert_first(&run, code);
        // Other processes use the machine, so that the small use is all that is available.
        set_subject_cpus(&mut run, 0.02, 0.0, 1);
        change_samples(&mut run, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0));
        let diagnosis = diagnose(&run);
        assert!(
            diagnosis.alternatives.iter().all(|alternative| alternative.verdict != code),
            "{diagnosis:#?}"
        );
        let reason = format!("{code}: ");
        assert!(diagnosis.ruled_out.iter().any(|line| line.starts_with(&reason)), "{diagnosis:#?}");
    }
}
