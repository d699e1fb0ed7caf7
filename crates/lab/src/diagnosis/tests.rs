//! Made-up records: each has the symptoms of one cause, as they were measured with it induced, and
//! has to get its verdict; and a healthy one has to get none.

mod carried;
mod elsewhere;
mod figures;
mod queueing;

use super::*;
use record::facts::{HostFacts, HostLimits};
use record::histogram::Latencies;
use record::observed::{
    CgroupUse, CpuUse, End, EndQueues, Ended, FunctionShare, LinkUse, ListenerQueue, NamespaceUse,
    Observed, PortUse, Pressure, QdiscUse, QueueSnapshot, Role, RoleUse, Sample, ThreadUse,
};
use record::run::{Generator, Interval, Latency, Pair, Rates, Totals, Weir, Window};
use record::validity::Validity;

const PORT: u16 = 8_000;
const MS: u64 = 1_000_000;

/// A closed loop over `connections`, each request `latency_ns` long, on two processors.
fn run(connections: u64, latency_ns: u64) -> Run {
    let rate = connections as f64 * 1e9 / latency_ns as f64;
    let count = (rate * 10.0) as u64;
    let mut latencies = Latencies::new();
    (0..2_000).for_each(|_| latencies.record(latency_ns));
    let pair = || Pair { service: latencies.summary(), response: latencies.summary() };
    let none =
        || Pair { service: Latencies::new().summary(), response: Latencies::new().summary() };
    let mut totals = Totals { requests: count, responses: count, sent: count, ..Totals::default() };
    totals.connections.wanted = connections;
    totals.connections.obtained = connections;
    totals.status.insert(200, count);
    Run {
        schema: record::run::SCHEMA.to_owned(),
        weir: Weir { version: "0".to_owned(), commit: "0".to_owned() },
        command: vec![],
        started_at: String::new(),
        identities: Vec::new(),
        duration_s: 10.0,
        partial: false,
        host: HostFacts {
            limits: HostLimits { port_range: Some((32_768, 60_999)), ..HostLimits::default() },
            ..HostFacts::default()
        },
        plan: serde_json::json!({"pace": {"loop": "closed", "think_ns": 0}, "spin": false}),
        validity: Validity::from_reasons(vec![]),
        objectives: vec![],
        totals,
        rates: Rates { responses_per_s: rate, bytes_in_per_s: rate * 200.0, ..Rates::default() },
        window: Window { from_s: 0.0, to_s: 10.0, ..Window::default() },
        latency: Latency {
            connect: none(),
            first_byte: pair(),
            last_byte: pair(),
            last_byte_bad: None,
        },
        generator: Generator {
            threads: 1,
            busiest_thread_share: Some(0.2),
            run_queue_wait_share: Some(0.01),
            in_flight_mean: connections as f64,
            in_flight_by_littles_law: connections as f64,
            ..Generator::default()
        },
        baseline: None,
        cpu: record::run::Cpu::default(),
        intervals: (1..=10).map(|second| interval(f64::from(second), rate)).collect(),
        observed: vec![observed(connections)],
        diagnosis: None,
    }
}

fn interval(time_s: f64, rate: f64) -> Interval {
    Interval {
        time_s,
        length_s: 1.0,
        responses: rate as u64,
        measured: true,
        ..Interval::default()
    }
}

fn observed(connections: u64) -> Observed {
    let role = |name: &str| Role { name: name.to_owned(), cpus_allowed: 2, ..Role::default() };
    let port = PortUse {
        port: PORT,
        served_by: Some("subject".to_owned()),
        used_by: Some("generator".to_owned()),
    };
    Observed {
        cpus: 2,
        roles: vec![role("generator"), role("subject")],
        ports: vec![port],
        samples: (1..=10).map(|second| sample(f64::from(second))).collect(),
        queues: (1..50).map(|at| snapshot(f64::from(at) * 0.2, connections)).collect(),
        ..Observed::default()
    }
}

fn sample(time_s: f64) -> Sample {
    let cpu = |cpu| CpuUse { cpu, user: 0.1, system: 0.1, idle: 0.8, ..CpuUse::default() };
    let counters = [("Tcp.OutSegs".to_owned(), 10_000.0)].into();
    let both = vec!["generator".to_owned(), "subject".to_owned()];
    Sample {
        time_s,
        length_s: 1.0,
        cpus: vec![cpu(0), cpu(1)],
        foreign_cpus: Some(0.02),
        roles: vec![role_use(0.1, 0.1), role_use(0.1, 0.1)],
        namespaces: vec![NamespaceUse { roles: both, counters, ..NamespaceUse::default() }],
        ..Sample::default()
    }
}

fn role_use(user_cpus: f64, system_cpus: f64) -> RoleUse {
    let busy = user_cpus + system_cpus;
    let thread = ThreadUse { busy, waiting: Some(0.01), ..ThreadUse::default() };
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
    let listener =
        ListenerQueue { port: PORT, backlog: 128, sockets: 1, ..ListenerQueue::default() };
    QueueSnapshot {
        time_s,
        listeners: vec![listener],
        ends: vec![ends(End::Client), ends(End::Server)],
        ..QueueSnapshot::default()
    }
}

/// Changes every sample.
fn samples(run: &mut Run, change: impl Fn(&mut Sample)) {
    run.observed[0].samples.iter_mut().for_each(change);
}

/// Changes one end of every snapshot; the place is the number of the snapshot.
fn ends(run: &mut Run, end: End, change: impl Fn(usize, &mut EndQueues)) {
    for (place, snapshot) in run.observed[0].queues.iter_mut().enumerate() {
        snapshot
            .ends
            .iter_mut()
            .filter(|ends| ends.end == end)
            .for_each(|ends| change(place, ends));
    }
}

fn count(run: &mut Run, name: &str, per_s: f64) {
    samples(run, |sample| {
        sample.namespaces[0].counters.insert(name.to_owned(), per_s);
    });
}

/// The subject is busy with so many processors, which the machine then has not.
fn busy(run: &mut Run, user: f64, system: f64, threads: usize) {
    samples(run, |sample| {
        sample.roles[1] = role_use(user, system);
        let each = (user + system) / threads as f64;
        let thread = ThreadUse { busy: each, waiting: Some(0.02), ..ThreadUse::default() };
        sample.roles[1].threads = vec![thread; threads];
        let idle = (2.0 - user - system - 0.2).max(0.02) / 2.0;
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = idle);
    });
    ends(run, End::Server, |_, ends| ends.with_unread = ends.states["established"] * 9 / 10);
}

fn assert_first(run: &Run, code: &str) {
    let diagnosis = diagnose(run);
    assert_eq!(diagnosis.verdict, code, "{diagnosis:#?}");
    if let Some(row) = verdicts::verdict(code) {
        assert!(
            diagnosis.confidence > Confidence::None && diagnosis.evidence.len() >= 2,
            "{diagnosis:#?}"
        );
        assert_eq!(diagnosis.claim, row.claim);
    }
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
fn nothing_observed_is_unknown_and_says_so() {
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
fn all_processor_time_used_is_the_processor() {
    let mut user = run(32, 4 * MS);
    busy(&mut user, 1.7, 0.1, 4);
    assert_first(&user, "user_cpu_bound");
    let mut kernel = run(32, 4 * MS);
    busy(&mut kernel, 0.3, 1.5, 4);
    assert_first(&kernel, "kernel_cpu_bound");
    let mut single = run(32, 4 * MS);
    busy(&mut single, 0.95, 0.04, 1);
    assert_first(&single, "single_thread_bound");
    single.observed[0].functions = vec![FunctionShare {
        role: "subject".to_owned(),
        function: "_int_malloc".to_owned(),
        share_self: 0.3,
        ..FunctionShare::default()
    }];
    assert_first(&single, "allocator_bound");
}

#[test]
fn a_generator_at_its_limit_comes_before_a_busy_subject() {
    let mut run = run(32, MS);
    busy(&mut run, 0.3, 0.6, 2);
    run.generator.busiest_thread_share = Some(0.99);
    ends(&mut run, End::Client, |_, ends| ends.with_unread = 30);
    ends(&mut run, End::Server, |_, ends| ends.with_unread = 1);
    assert_first(&run, "client_bound");
}

#[test]
fn others_on_the_machine_matter_to_who_needs_a_processor() {
    let mut run = run(32, 4 * MS);
    busy(&mut run, 0.6, 0.1, 1);
    samples(&mut run, |sample| {
        sample.foreign_cpus = Some(1.2);
        sample.roles[1].threads[0].waiting = Some(0.3);
    });
    assert_first(&run, "cpu_steal");
    samples(&mut run, |sample| {
        sample.roles[1] = role_use(0.01, 0.01);
        sample.roles[1].threads[0].waiting = Some(0.02);
    });
    assert_ne!(diagnose(&run).verdict, "cpu_steal");
}

#[test]
fn a_quota_shows_its_throttled_periods() {
    let mut run = run(32, 4 * MS);
    busy(&mut run, 0.2, 0.1, 2);
    samples(&mut run, |sample| {
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
fn links_queues_and_losses_are_told_apart() {
    let shaped = |backlog_bytes: u64| {
        let mut run = run(32, 50 * MS);
        samples(&mut run, |sample| {
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
    ends(&mut link, End::Server, |_, ends| ends.rtt_us = 40_000.0);
    assert_first(&link, "link_bound");
    let mut deep = shaped(3_000_000);
    ends(&mut deep, End::Server, |_, ends| ends.rtt_us = 400_000.0);
    assert_first(&deep, "bufferbloat");
    // Small packets that nothing holds up are no bound, however steady.
    let mut small = run(32, 5 * MS);
    let link = |queues| LinkUse {
        name: "v0".to_owned(),
        tx_bytes_per_s: 1e6,
        tx_packets_per_s: 10_000.0,
        queues,
        ..LinkUse::default()
    };
    samples(&mut small, |sample| sample.links = vec![link(vec![])]);
    ends(&mut small, End::Server, |_, ends| ends.rtt_us = 5_000.0);
    assert_first(&small, "latency_bound");
    let queue = QdiscUse { overlimits_per_s: 5_000.0, ..QdiscUse::default() };
    samples(&mut small, |sample| sample.links = vec![link(vec![queue.clone()])]);
    assert_first(&small, "packet_rate_bound");
    // A segment sent again for each response costs a round trip of 10 ms in 50 ms.
    let mut lossy = run(32, 50 * MS);
    count(&mut lossy, "Tcp.RetransSegs", 640.0);
    count(&mut lossy, "TcpExt.TCPSackRecovery", 20.0);
    ends(&mut lossy, End::Server, |place, ends| {
        ends.retransmitted = place as u64 * 40;
        ends.rtt_us = 10_000.0;
    });
    assert_first(&lossy, "packet_loss");
    let mut slow = run(32, 50 * MS);
    ends(&mut slow, End::Server, |place, ends| {
        ends.busy_us = place as u64 * 6_000_000;
        ends.receive_window_limited_us = place as u64 * 5_500_000;
        ends.not_sent_bytes = 100_000;
    });
    assert_first(&slow, "receive_window_bound");
}

#[test]
fn full_tables_and_queues_come_before_their_consequences() {
    let mut accept = run(40, 20 * MS);
    count(&mut accept, "TcpExt.ListenOverflows", 37.0);
    count(&mut accept, "Tcp.RetransSegs", 62.0);
    accept.observed[0].queues.iter_mut().for_each(|queue| queue.listeners[0].full = 1);
    assert_first(&accept, "accept_backlog_overflow");
    let mut descriptors = accept.clone();
    descriptors.totals.connections.failed = 1_000;
    samples(&mut descriptors, |sample| sample.roles[1].descriptors = Some(1_000));
    assert_first(&descriptors, "fd_limit");
    let mut cookies = run(40, 20 * MS);
    count(&mut cookies, "TcpExt.SyncookiesSent", 100.0);
    ends(&mut cookies, End::Server, |_, ends| {
        ends.states.insert("syn-recv".to_owned(), 129);
    });
    assert_first(&cookies, "syn_backlog_overflow");
    let mut ports = run(40, MS);
    ports.totals.errors.insert("no_port".to_owned(), 20_000);
    ends(&mut ports, End::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_000);
    });
    assert_first(&ports, "port_exhaustion");
}

#[test]
fn who_waits_for_a_disk_is_told_from_who_has_no_memory() {
    let mut log = run(16, 100 * MS);
    samples(&mut log, |sample| {
        sample.roles[1].threads_in_disk_sleep = 15;
        sample.roles[1].disk_write_bytes_per_s = Some(500_000.0);
        sample.pressure = Some(Pressure { io_some: 0.7, ..Pressure::default() });
    });
    assert_first(&log, "log_write_bound");
    let mut memory = run(16, 100 * MS);
    samples(&mut memory, |sample| {
        sample.roles[1].threads_in_disk_sleep = 15;
        sample.roles[1].disk_write_bytes_per_s = Some(0.0);
        sample.pressure = Some(Pressure { io_some: 0.7, memory_some: 0.5, ..Pressure::default() });
        let hits = Some(3_000.0);
        let group = CgroupUse { memory_max_hits_per_s: hits, ..CgroupUse::default() };
        sample.roles[1].cgroup = Some(group);
    });
    assert_first(&memory, "memory_pressure");
}

#[test]
fn stalls_of_40_ms_are_recognised() {
    let mut run = run(20, 44 * MS);
    let rate = run.rates.responses_per_s;
    count(&mut run, "TcpExt.DelayedACKs", rate * 0.98);
    ends(&mut run, End::Server, |_, ends| ends.not_sent_bytes = 800);
    assert_first(&run, "delayed_ack_stall");
    // All of them take that long, so it is no tail.
    assert!(diagnose(&run).fingerprints.is_empty());
    // An origin that takes 40 ms has nothing to send meanwhile, though acknowledgements are delayed.
    ends(&mut run, End::Server, |_, ends| ends.not_sent_bytes = 0);
    assert_first(&run, "latency_bound");
}

#[test]
fn a_tail_has_its_fingerprint() {
    let mut run = run(20, 2 * MS);
    let mut latencies = Latencies::new();
    (0..1_000).for_each(|at| latencies.record(if at % 50 == 0 { 205 * MS } else { 2 * MS }));
    run.latency.last_byte.service = latencies.summary();
    let fingerprints = diagnose(&run).fingerprints;
    assert!(
        fingerprints[0].starts_with("retransmission: 2.0 % of the requests"),
        "{fingerprints:?}"
    );
}

#[test]
fn errors_that_nothing_explains_void_the_run() {
    let mut run = run(20, 2 * MS);
    run.totals.status.insert(500, run.totals.requests / 20);
    run.totals.errors.insert("reset".to_owned(), run.totals.requests / 20);
    assert_first(&run, "run_invalid");
}

/// Nothing but broken answers of a subject that does nothing but break them.
fn broken(kind: &str) -> Run {
    let mut run = run(4, MS);
    busy(&mut run, 0.3, 1.5, 4);
    run.totals.errors.insert(kind.to_owned(), run.totals.requests);
    run.totals.responses = 0;
    run.totals.status.clear();
    run.rates.responses_per_s = 0.0;
    run
}

#[test]
fn a_run_without_a_valid_answer_is_void_before_anything_is_full() {
    for kind in ["parse", "closed", "reset", "refused"] {
        let mut run = broken(kind);
        run.generator.busiest_thread_share = Some(0.99);
        ends(&mut run, End::Client, |_, ends| ends.with_unread = 4);
        assert_first(&run, "run_invalid");
        let found = diagnose(&run);
        let none = "requests that got a valid answer: 0 %";
        assert!(found.evidence.iter().any(|line| line.starts_with(none)), "{found:#?}");
        let why = "kernel_cpu_bound: connections that were refused";
        assert!(found.ruled_out.iter().any(|line| line.starts_with(why)), "{found:#?}");
        assert!(found.next_limits.iter().all(|line| !line.contains("full at")), "{found:#?}");
    }
    // What breaks requests is named before what it breaks.
    let mut descriptors = broken("reset");
    samples(&mut descriptors, |sample| sample.roles[1].descriptors = Some(1_000));
    assert_first(&descriptors, "fd_limit");
    let mut accept = broken("reset");
    count(&mut accept, "TcpExt.ListenOverflows", 37.0);
    accept.observed[0].queues.iter_mut().for_each(|queue| queue.listeners[0].full = 1);
    assert_first(&accept, "accept_backlog_overflow");
    // And where a part is answered, what bounds that is.
    let mut part = broken("closed");
    part.rates.responses_per_s = 1_000.0;
    part.totals.errors.insert("closed".to_owned(), part.totals.requests / 2);
    assert_first(&part, "kernel_cpu_bound");
}

#[test]
fn who_ended_under_load_is_said_first() {
    let mut run = run(40, 20 * MS);
    let ended = |role: &str, time_s| Ended {
        role: role.to_owned(),
        pid: 12,
        name: "nginx".to_owned(),
        time_s,
    };
    // The generator's own end, and one before the load, say nothing of it.
    run.observed[0].ended =
        vec![ended("generator", 2.0), ended("subject", -1.0), ended("subject", 1.52)];
    let found = diagnose(&run);
    assert_eq!(found.verdict, "latency_bound");
    assert_eq!(found.evidence[0], "process 12 (nginx) ended at 1.5 s");
    assert!(!found.evidence[1].starts_with("process"), "{found:#?}");
}

#[test]
fn who_uses_hardly_a_processor_is_not_bound_by_what_it_spends_that_on() {
    let functions = ["_int_malloc", "aesni_gcm_encrypt", "bn_mul_mont"];
    let codes = ["allocator_bound", "bulk_crypto_bound", "handshake_bound"];
    for (function, code) in functions.into_iter().zip(codes) {
        let mut run = run(32, 4 * MS);
        run.observed[0].functions = vec![FunctionShare {
            role: "subject".to_owned(),
            function: function.to_owned(),
            share_self: 0.5,
            ..FunctionShare::default()
        }];
        busy(&mut run, 1.7, 0.1, 4);
        assert_first(&run, code);
        // Others have the machine, so that the little is all that there is.
        busy(&mut run, 0.02, 0.0, 1);
        samples(&mut run, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0));
        let found = diagnose(&run);
        assert!(found.also.iter().all(|also| also.verdict != code), "{found:#?}");
        let why = format!("{code}: processors that the subject used: 0.02");
        assert!(found.ruled_out.iter().any(|line| line.starts_with(&why)), "{found:#?}");
    }
}

#[test]
fn next_limits_are_in_order_and_say_where_they_end() {
    let mut run = run(40, 20 * MS);
    samples(&mut run, |sample| sample.roles[1].descriptors = Some(500));
    let limits = diagnose(&run).next_limits;
    assert!(
        limits[0].starts_with("generator's connections: 100 % used, full at 2.00k/s"),
        "{limits:?}"
    );
    assert!(
        limits.contains(&"subject's descriptors: 50 % used, full at 4.00k/s".to_owned()),
        "{limits:?}"
    );
}
