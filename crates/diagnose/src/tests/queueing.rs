//! Tests on synthetic records in which nothing is full, or not what it seems: the latency without
//! load and the subject's own traffic distinguish them.

use super::*;
use record::observed::{UnixEnd, UnixQueues, UnixSocketRoles, UnwatchedSockets};
use record::run::{Baseline, ObjectiveResult};

/// Adds a baseline of `unloaded_ns` to the run.
pub(super) fn with_baseline(mut run: Run, unloaded_ns: u64) -> Run {
    run.baseline = Some(Baseline {
        requests: 20,
        good: 20,
        min_ns: unloaded_ns,
        p50_ns: unloaded_ns,
        mean_ns: unloaded_ns as f64,
        ..Baseline::default()
    });
    run
}

/// Adds an origin port with its connections, a number of which await a reply.
pub(super) fn origin(run: &mut Run, port: u16, connections: u64, awaiting_response: u64, bytes_per_s: f64) {
    let observed = &mut run.observed[0];
    observed.ports.push(PortRoles { port, served_by: None, used_by: Some("subject".to_owned()) });
    for snapshot in &mut observed.queues {
        snapshot.ends.push(EndQueues {
            port,
            end: ConnectionEnd::Client,
            states: [("established".to_owned(), connections)].into(),
            awaiting_response,
            active: if bytes_per_s > 0.0 { connections } else { 0 },
            bytes_received_per_s: Some(bytes_per_s),
            bytes_acked_per_s: Some(bytes_per_s),
            ..EndQueues::default()
        });
    }
}

#[test]
fn a_latency_that_does_not_depend_on_the_load_is_a_delay_and_one_that_does_is_a_limit() {
    assert_first(&with_baseline(run(40, 75 * MS), 74 * MS), "latency_bound");
    // Eight at a time: 15 ms alone, 75 ms under load.
    let limited = with_baseline(run(40, 75 * MS), 15 * MS);
    assert_first(&limited, "subject_limited");
    let diagnosis = diagnose(&limited);
    assert!((diagnosis.queueing_fraction.unwrap() - 0.8).abs() < 1e-3);
    assert!(diagnosis.evidence.iter().any(|line| line.contains(": 8.0")), "{diagnosis:#?}");
}

#[test]
fn without_a_baseline_a_delay_is_only_possible() {
    let diagnosis = diagnose(&run(40, 20 * MS));
    assert_eq!(diagnosis.verdict, "latency_bound");
    assert_eq!(diagnosis.confidence, Confidence::Possible, "{diagnosis:#?}");
    assert!(diagnosis.evidence.iter().any(|text| text.contains("latency without load")), "{diagnosis:#?}");
    assert_eq!(diagnosis.queueing_fraction, None);
}

#[test]
fn without_a_baseline_a_delay_that_grew_with_the_load_is_no_delay() {
    let with_fastest = |fastest_ns: u64| {
        let mut run = run(40, 20 * MS);
        let mut latencies = LatencyHistogram::new();
        (0..2_000).for_each(|_| latencies.record(20 * MS));
        latencies.record(fastest_ns);
        run.latency.last_byte.service = latencies.summary();
        run
    };
    assert_ne!(diagnose(&with_fastest(2 * MS)).verdict, "latency_bound");
    assert_first(&with_fastest(15 * MS), "latency_bound");
    // Beside a baseline, one fast response proves nothing.
    assert_first(&with_baseline(with_fastest(2 * MS), 18 * MS), "latency_bound");
}

#[test]
fn four_origins_are_one_pool() {
    let mut run = with_baseline(run(40, 20 * MS), 20 * MS);
    (9_001..9_005).for_each(|port| origin(&mut run, port, 10, 10, 1e5));
    assert_first(&run, "latency_bound");
}

#[test]
fn a_pool_of_ten_that_is_always_busy_is_the_limit() {
    let mut run = with_baseline(run(100, 200 * MS), 20 * MS);
    origin(&mut run, 9_001, 10, 10, 1e5);
    assert_first(&run, "connection_limited");
}

#[test]
fn idle_connections_to_another_service_are_on_no_request_s_way() {
    let mut run = with_baseline(run(40, 20 * MS), 20 * MS);
    origin(&mut run, 9_001, 4, 0, 0.0);
    assert_first(&run, "latency_bound");
    let mut limited = with_baseline(super::run(40, 75 * MS), 15 * MS);
    origin(&mut limited, 9_001, 4, 0, 10.0);
    assert_first(&limited, "subject_limited");
}

#[test]
fn a_busy_origin_is_named_before_the_subject_that_waits_for_it() {
    let mut run = with_baseline(run(40, 200 * MS), 5 * MS);
    origin(&mut run, 9_001, 40, 39, 1e5);
    let observed = &mut run.observed[0];
    observed.roles.push(Role { name: "origin".to_owned(), cpus_allowed: 2, ..Role::default() });
    change_samples(&mut run, |sample| sample.roles.push(role_use(0.9, 0.08)));
    assert_first(&run, "origin_bound");
    assert!(!crate::answer(&run).why.contains("at a time"), "its CPU is the limit");
    // An idle origin that takes longer under more load has a limit of its own: 200/s of 5 ms each.
    change_samples(&mut run, |sample| sample.roles[2] = role_use(0.01, 0.01));
    assert_first(&run, "origin_bound");
    let answer = crate::answer(&run);
    assert!(answer.why.contains("they work on 1 request at a time, 5.00 ms each"), "{}", answer.why);
    assert!(answer.next.contains("semaphore (each slot is worth 200/s)"), "{}", answer.next);
}

#[test]
fn requests_in_an_origin_s_accept_queue_wait_for_the_origin() {
    let mut run = with_baseline(run(40, 160 * MS), 20 * MS);
    let path = "/run/app.sock".to_owned();
    let observed = &mut run.observed[0];
    observed.unix.push(UnixSocketRoles {
        path: path.clone(),
        served_by: Some("origin".to_owned()),
        used_by: Some("subject".to_owned()),
    });
    observed.roles.push(Role { name: "origin".to_owned(), cpus_allowed: 2, ..Role::default() });
    for snapshot in &mut observed.queues {
        let end = |established| UnixEnd { established, ..UnixEnd::default() };
        snapshot.unix.push(UnixQueues {
            path: path.clone(),
            client: end(5),
            server: end(5),
            ..UnixQueues::default()
        });
    }
    change_samples(&mut run, |sample| sample.roles.push(role_use(0.01, 0.01)));
    // The subject has five connections and no more: the bound is its own.
    assert_first(&run, "connection_limited");
    for snapshot in &mut run.observed[0].queues {
        snapshot.unix[0].waiting = 35;
    }
    assert_first(&run, "origin_bound");
}

#[test]
fn losses_of_unwatched_sockets_are_not_the_subject_s() {
    let mut run = with_baseline(run(32, 300 * MS), 300 * MS);
    set_counter(&mut run, "Tcp.RetransSegs", 200.0);
    set_counter(&mut run, "TcpExt.TCPTimeouts", 200.0);
    change_ends(&mut run, ConnectionEnd::Server, |index, ends| ends.segments_sent = index as u64 * 20);
    change_samples(&mut run, |sample| {
        sample.namespaces[0].unwatched_sockets =
            Some(UnwatchedSockets { half_open: 3, ..UnwatchedSockets::default() });
    });
    assert_first(&run, "latency_bound");
}

#[test]
fn a_full_thread_under_clients_that_think_is_the_limit() {
    let mut run = with_baseline(run(100, 100 * MS), 2 * MS);
    run.plan = serde_json::json!({"pace": {"loop": "closed", "think_ns": 100_000_000}});
    run.generator.in_flight_mean = 50.0;
    set_subject_cpus(&mut run, 0.95, 0.04, 1);
    assert_first(&run, "single_thread_bound");
    // With few clients the latency hardly includes waiting, and nothing is full.
    let mut light = with_baseline(super::run(4, 2 * MS), 2 * MS);
    light.plan = run.plan.clone();
    light.generator.in_flight_mean = 0.1;
    assert_first(&light, "none");
}

#[test]
fn a_missed_objective_is_never_nothing() {
    let mut run = with_baseline(run(20, 300 * MS), 300 * MS);
    run.plan = serde_json::json!({"pace": {"loop": "open", "rate_per_s": 50.0}});
    run.generator.in_flight_mean = 15.0;
    run.rates = Rates { responses_per_s: 50.0, offered_per_s: Some(50.0), ..run.rates };
    assert_first(&run, "none");
    run.objectives =
        vec![ObjectiveResult { text: "p99<5ms".to_owned(), met: false, value: 3e8, validity: None }];
    assert_first(&run, "latency_bound");
}

#[test]
fn two_busy_cpus_are_full_before_they_are_at_a_hundred_percent() {
    let mut run = with_baseline(run(32, 4 * MS), MS);
    set_subject_cpus(&mut run, 0.3, 1.45, 2);
    change_samples(&mut run, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.1));
    assert_first(&run, "kernel_cpu_bound");
}

#[test]
fn rival_explanations_state_the_distinguishing_change() {
    let mut run = with_baseline(run(100, 200 * MS), 20 * MS);
    origin(&mut run, 9_001, 10, 10, 1e5);
    let diagnosis = diagnose(&run);
    assert!(
        diagnosis.alternatives.iter().any(|alternative| alternative.verdict == "subject_limited"),
        "{diagnosis:#?}"
    );
    // No change from outside distinguishes them.
    let text = &diagnosis.distinguishing_change;
    assert!(text.contains(&diagnosis.verdict) && text.contains("subject_limited"), "{diagnosis:#?}");
    assert!(!Perturbation::ALL.iter().any(|change| text.contains(change.description())), "{text}");
}

#[test]
fn a_shaped_loopback_is_a_link() {
    let mut run = with_baseline(run(32, 50 * MS), 2 * MS);
    let queue = QdiscUse { rate_bits_per_s: Some(50e6), overlimits_per_s: 900.0, ..QdiscUse::default() };
    let link = LinkUse {
        name: "lo".to_owned(),
        tx_bytes_per_s: 6.1e6,
        tx_packets_per_s: 4_100.0,
        ..LinkUse::default()
    };
    // Without a rate loopback is not a link.
    change_samples(&mut run, |sample| sample.links = vec![link.clone()]);
    assert_first(&run, "subject_limited");
    change_samples(&mut run, |sample| sample.links[0].queues = vec![queue.clone()]);
    assert_first(&run, "link_bound");
}

#[test]
fn circumstances_alone_are_never_sure() {
    let mut errors = with_baseline(run(20, 2 * MS), 2 * MS);
    errors.totals.status.insert(500, errors.totals.requests / 2);
    let diagnosis = diagnose(&errors);
    assert_eq!((diagnosis.verdict.as_str(), diagnosis.confidence), ("run_invalid", Confidence::Likely));
}

#[test]
fn a_pool_is_as_large_as_the_connections_that_it_uses() {
    let answer_of = |used: u64, alone_ms: u64| {
        let mut run = with_baseline(run(48, 63 * MS), alone_ms * MS);
        origin(&mut run, 9_001, 7, used, 1e5);
        assert_first(&run, "connection_limited");
        crate::answer(&run).what
    };
    // HAProxy keeps a connection beyond its maxconn of 6, which carries nothing: 762/s of 8 ms each.
    assert!(answer_of(6, 8).contains("through only 6 connections"));
    assert!(answer_of(7, 9).contains("through only 7 connections"));
}
