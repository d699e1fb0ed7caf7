//! Made-up records in which nothing, or something else than it seems, is full: the latency without load
//! and the subject's own traffic tell them apart.

use super::*;
use record::observed::Strangers;
use record::run::{Baseline, Objective};

/// The same with a baseline of `alone_ns`.
fn with_baseline(mut run: Run, alone_ns: u64) -> Run {
    run.baseline = Some(Baseline {
        requests: 20,
        good: 20,
        min_ns: alone_ns,
        p50_ns: alone_ns,
        mean_ns: alone_ns as f64,
        ..Baseline::default()
    });
    run
}

/// Adds an origin port with its connections, a number of which await a reply.
fn origin(run: &mut Run, port: u16, connections: u64, awaiting: u64, bytes_per_s: f64) {
    let seen = &mut run.observed[0];
    seen.ports.push(PortUse { port, served_by: None, used_by: Some("subject".to_owned()) });
    for snapshot in &mut seen.queues {
        snapshot.ends.push(EndQueues {
            port,
            end: End::Client,
            states: [("established".to_owned(), connections)].into(),
            awaiting_reply: awaiting,
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
    let found = diagnose(&limited);
    assert!((found.queueing_share.unwrap() - 0.8).abs() < 1e-3);
    let parallel = "requests that are served at a time, by the latency without load: 8.0";
    assert!(found.evidence.iter().any(|line| line.starts_with(parallel)), "{found:#?}");
}

#[test]
fn without_a_baseline_a_delay_is_never_sure() {
    let found = diagnose(&run(40, 20 * MS));
    assert_eq!(found.verdict, "latency_bound");
    assert!(found.confidence < Confidence::Sure, "{found:#?}");
    assert_eq!(found.queueing_share, None);
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
    let seen = &mut run.observed[0];
    seen.roles.push(Role { name: "origin".to_owned(), cpus_allowed: 2, ..Role::default() });
    samples(&mut run, |sample| sample.roles.push(role_use(0.9, 0.08)));
    assert_first(&run, "origin_bound");
    // An origin that is not busy, and takes longer the more it gets, has a bound of its own.
    samples(&mut run, |sample| sample.roles[2] = role_use(0.01, 0.01));
    assert_first(&run, "origin_bound");
}

#[test]
fn losses_of_strangers_are_not_the_subject_s() {
    let mut run = with_baseline(run(32, 300 * MS), 300 * MS);
    count(&mut run, "Tcp.RetransSegs", 200.0);
    count(&mut run, "TcpExt.TCPTimeouts", 200.0);
    ends(&mut run, End::Server, |place, ends| ends.segments_sent = place as u64 * 20);
    samples(&mut run, |sample| {
        sample.namespaces[0].strangers = Some(Strangers { half_open: 3, ..Strangers::default() });
    });
    assert_first(&run, "latency_bound");
}

#[test]
fn a_full_thread_under_clients_that_think_is_the_limit() {
    let mut run = with_baseline(run(100, 100 * MS), 2 * MS);
    run.plan = serde_json::json!({"pace": {"loop": "closed", "think_ns": 100_000_000}});
    run.generator.in_flight_mean = 50.0;
    busy(&mut run, 0.95, 0.04, 1);
    assert_first(&run, "single_thread_bound");
    // With few clients it hardly waits, and nothing is full.
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
    run.objectives = vec![Objective { text: "p99<5ms".to_owned(), met: false, value: 3e8 }];
    assert_first(&run, "latency_bound");
}

#[test]
fn two_busy_cpus_are_full_before_they_are_at_a_hundred_percent() {
    let mut run = with_baseline(run(32, 4 * MS), MS);
    busy(&mut run, 0.3, 1.45, 2);
    samples(&mut run, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.1));
    assert_first(&run, "kernel_cpu_bound");
}

#[test]
fn explanations_that_stand_beside_each_other_say_what_tells_them_apart() {
    let mut run = with_baseline(run(100, 200 * MS), 20 * MS);
    origin(&mut run, 9_001, 10, 10, 1e5);
    let found = diagnose(&run);
    assert!(found.also.iter().any(|other| other.verdict == "subject_limited"), "{found:#?}");
    assert!(found.told_apart_by.starts_with("no change from outside"), "{found:#?}");
}

#[test]
fn a_shaped_loopback_is_a_link() {
    let mut run = with_baseline(run(32, 50 * MS), 2 * MS);
    let queue =
        QdiscUse { rate_bits_per_s: Some(50e6), overlimits_per_s: 900.0, ..QdiscUse::default() };
    let link = LinkUse {
        name: "lo".to_owned(),
        tx_bytes_per_s: 6.1e6,
        tx_packets_per_s: 4_100.0,
        ..LinkUse::default()
    };
    // Without a rate it is none.
    samples(&mut run, |sample| sample.links = vec![link.clone()]);
    assert_first(&run, "subject_limited");
    samples(&mut run, |sample| sample.links[0].queues = vec![queue.clone()]);
    assert_first(&run, "link_bound");
}

#[test]
fn circumstances_alone_are_never_sure() {
    let mut errors = with_baseline(run(20, 2 * MS), 2 * MS);
    errors.totals.status.insert(500, errors.totals.requests / 2);
    let found = diagnose(&errors);
    assert_eq!((found.verdict.as_str(), found.confidence), ("run_invalid", Confidence::Likely));
}
