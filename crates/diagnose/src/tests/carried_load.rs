//! Tests on synthetic records of runs without a problem, however full a resource was; and of
//! problems that still count.

use super::*;
use record::run::ObjectiveResult;

/// Returns an open loop of 1,000 requests per second, all of them served.
fn carried_run() -> Run {
    let mut run = run(20, 2 * MS);
    run.plan = serde_json::json!({"pace": {"loop": "open", "rate_per_s": 1000.0}});
    run.generator.in_flight_mean = 2.0;
    run.generator.in_flight_by_littles_law = 2.0;
    run.rates = Rates { responses_per_s: 999.0, offered_per_s: Some(1_000.0), ..run.rates };
    run
}

fn full_link(run: &mut Run) {
    let link = LinkUse {
        name: "eth0".to_owned(),
        tx_bytes_per_s: 114e6,
        tx_packets_per_s: 80_000.0,
        speed_bits_per_s: Some(1e9),
        ..LinkUse::default()
    };
    change_samples(run, |sample| sample.links = vec![link.clone()]);
}

#[test]
fn an_open_loop_that_got_all_in_time_met_no_bound() {
    let mut link = carried_run();
    full_link(&mut link);
    assert_first(&link, "none");
    let diagnosis = diagnose(&link);
    assert!(diagnosis.next_limits[0].starts_with("busiest link: 91 % used"), "{diagnosis:#?}");
    let reason = diagnosis.ruled_out.iter().find(|line| line.starts_with("link_bound: ")).unwrap();
    assert!(reason.contains(": 100 % (") && reason.contains("99 %"), "{reason}");
    let mut single = carried_run();
    set_subject_cpus(&mut single, 0.93, 0.03, 1);
    assert_first(&single, "none");
}

#[test]
fn late_or_deferred_load_was_not_carried() {
    type Change = fn(&mut Run);
    let changes: [(&str, Change); 5] = [
        ("responses are missing", |run| run.rates.responses_per_s = 985.0),
        ("requests were dropped", |run| run.totals.dropped = 1),
        ("an objective was missed", |run| {
            run.objectives =
                vec![ObjectiveResult { text: "p99<1ms".to_owned(), met: false, value: 2e6, validity: None }];
        }),
        ("a line stands", |run| run.intervals.iter_mut().for_each(|second| second.pending = 5)),
        ("ever more are in flight", |run| {
            for (at, second) in run.intervals.iter_mut().enumerate() {
                second.in_flight = at as u64 * 2;
                second.last_byte_mean_ns = 2e6 * at as f64;
            }
        }),
    ];
    for (case, change) in changes {
        let mut run = carried_run();
        full_link(&mut run);
        change(&mut run);
        assert_eq!(diagnose(&run).verdict, "link_bound", "{case}");
    }
    // A closed loop offers no fixed load that could be carried.
    let mut closed = run(20, 2 * MS);
    full_link(&mut closed);
    assert_first(&closed, "link_bound");
}

#[test]
fn harmless_losses_are_no_verdict() {
    let mut lossy = carried_run();
    set_counter(&mut lossy, "Tcp.RetransSegs", 15.0);
    set_counter(&mut lossy, "TcpExt.TCPSackRecovery", 15.0);
    assert_first(&lossy, "none");
    let mut latencies = LatencyHistogram::new();
    (0..1_000).for_each(|at| latencies.record(if at % 200 == 0 { 205 * MS } else { 2 * MS }));
    lossy.latency.last_byte.service = latencies.summary();
    assert_first(&lossy, "packet_loss");
}

#[test]
fn errors_and_pauses_of_a_load_that_was_carried_still_count() {
    let mut errors = carried_run();
    errors.totals.status.insert(500, errors.totals.requests / 20);
    errors.totals.errors.insert("reset".to_owned(), errors.totals.requests / 20);
    assert_first(&errors, "run_invalid");
    let mut quota = carried_run();
    set_subject_cpus(&mut quota, 0.2, 0.08, 1);
    change_samples(&mut quota, |sample| {
        sample.roles[1].cgroup = Some(CgroupUse {
            quota_cpus: Some(0.3),
            period_s: Some(0.1),
            throttled_periods: Some(0.5),
            throttled_cpus: Some(0.2),
            ..CgroupUse::default()
        });
    });
    assert_first(&quota, "cpu_throttled");
}

#[test]
fn few_descriptors_left_are_no_limit_until_something_fails() {
    let mut run = carried_run();
    change_samples(&mut run, |sample| {
        sample.roles[1].descriptors = Some(990);
        sample.roles[1].descriptors_max = Some(1_024);
    });
    assert_first(&run, "none");
    let limits = diagnose(&run).next_limits;
    assert!(limits[0].starts_with("subject's descriptors: 97 % used"), "{limits:?}");
    for queue in &mut run.observed[0].queues {
        queue.listeners[0].waiting = 10;
    }
    assert_first(&run, "fd_limit");
}

#[test]
fn a_subject_with_unread_requests_does_not_wait_for_more_connections() {
    // One worker that a full pipe blocks: it uses no CPU, and the others' requests wait.
    let mut run = run(16, 20 * MS);
    assert_first(&run, "latency_bound");
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 15);
    assert_first(&run, "unknown");
}

#[test]
fn a_pause_at_the_end_is_no_standing_queue() {
    let mut run = carried_run();
    run.intervals.iter_mut().for_each(|second| second.last_byte_mean_ns = 2e6);
    run.intervals.iter_mut().rev().take(3).for_each(|second| second.in_flight = 5);
    assert_first(&run, "none");
}
