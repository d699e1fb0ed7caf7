//! Made-up records of a subject on another machine than the generator: watched there too, or not.

use super::*;
use crate::diagnosis::signals as s;
use crate::diagnosis::signals::Signal;

/// The record without what only the subject's machine sees, as `weir load` writes it where nobody of its
/// machine listens at the port.
fn apart(mut run: Run) -> Run {
    let seen = &mut run.observed[0];
    seen.roles.truncate(1);
    seen.ports[0].served_by = None;
    for sample in &mut seen.samples {
        sample.roles.truncate(1);
        sample.namespaces[0].roles.truncate(1);
    }
    for snapshot in &mut seen.queues {
        snapshot.listeners.clear();
        snapshot.ends.retain(|ends| ends.end == End::Client);
    }
    run
}

/// What `weir watch` says of the subject's machine.
fn watched(connections: u64) -> Observed {
    let mut seen = observed(connections);
    seen.roles.remove(0);
    seen.ports[0].used_by = None;
    for sample in &mut seen.samples {
        sample.roles.remove(0);
        sample.namespaces[0].roles.remove(0);
    }
    for snapshot in &mut seen.queues {
        snapshot.ends.retain(|ends| ends.end == End::Server);
    }
    seen
}

fn value(signal: &Signal, run: &Run) -> Option<f64> {
    (signal.read)(&View::new(run))
}

/// An open loop of which the half is answered.
fn too_much(run: &mut Run) {
    run.plan = serde_json::json!({"pace": {"loop": "open", "rate_per_s": 10_000.0}});
    run.rates.offered_per_s = Some(run.rates.responses_per_s * 2.0);
}

#[test]
fn a_generator_that_is_late_is_seen_without_the_subject() {
    let mut run = apart(run(32, MS));
    too_much(&mut run);
    run.generator.busiest_thread_share = Some(1.0);
    run.generator.lag_p99_ns = 50 * MS;
    ends(&mut run, End::Client, |_, ends| ends.with_unread = 30);
    assert_first(&run, "client_bound");
    // Who has read all has time: that its thread is busy and late is one source, and no proof.
    ends(&mut run, End::Client, |_, ends| ends.with_unread = 0);
    assert_first(&run, "unknown");
}

#[test]
fn both_ends_are_held_against_each_other_over_two_machines() {
    let mut run = apart(run(32, MS));
    run.observed.push(watched(32));
    run.generator.busiest_thread_share = Some(0.99);
    ends(&mut run, End::Client, |_, ends| ends.with_unread = 30);
    assert_eq!(value(&s::SUBJECT_UNREAD, &run), Some(0.0));
    assert!(value(&s::UNREAD_AT_GENERATOR, &run) > Some(10.0));
    assert_eq!(value(&s::GENERATOR_UNREAD_ALONE, &run), None);
    assert_first(&run, "client_bound");
    // The processors are the subject's machine's.
    run.observed[1].samples.iter_mut().for_each(|sample| sample.foreign_cpus = Some(0.5));
    assert_eq!(value(&s::FOREIGN, &run), Some(0.5));
}

#[test]
fn the_worst_of_merged_generators_counts() {
    let mut run = apart(run(32, MS));
    let mut other = run.observed[0].clone();
    other.host = "other".to_owned();
    for ends in other.queues.iter_mut().flat_map(|snapshot| &mut snapshot.ends) {
        ends.with_unread = 30;
    }
    run.observed.extend([watched(32), other]);
    assert!(value(&s::GENERATOR_UNREAD, &run) > Some(0.9));
    run.generator.busiest_thread_share = Some(0.99);
    assert_first(&run, "client_bound");
    // Segments of all three namespaces are added up.
    count(&mut run, "Tcp.RetransSegs", 300.0);
    assert!((value(&s::RETRANSMITTED, &run).unwrap() - 0.01).abs() < 1e-9);
}

#[test]
fn ports_that_ran_out_are_seen_without_the_subject() {
    let mut ports = apart(run(40, MS));
    ports.totals.errors.insert("no_port".to_owned(), 20_000);
    ports.totals.connections.failed = 20_000;
    assert_eq!(value(&s::PORTS, &ports), Some(40.0 / 28_232.0));
    ends(&mut ports, End::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_000);
    });
    assert_first(&ports, "port_exhaustion");
}

#[test]
fn a_full_link_is_seen_from_either_machine() {
    let link = |bytes_per_s: f64| LinkUse {
        name: "eth0".to_owned(),
        rx_bytes_per_s: bytes_per_s,
        rx_packets_per_s: bytes_per_s / 1_400.0,
        speed_bits_per_s: Some(1e9),
        ..LinkUse::default()
    };
    let fill = |seen: &mut Observed, bytes_per_s: f64| {
        seen.samples.iter_mut().for_each(|sample| sample.links = vec![link(bytes_per_s)]);
    };
    let mut alone = apart(run(32, 50 * MS));
    fill(&mut alone.observed[0], 122e6);
    assert_first(&alone, "link_bound");
    // A generator that is busy itself may be the limit as well.
    alone.generator.busiest_thread_share = Some(0.95);
    assert_ne!(diagnose(&alone).verdict, "link_bound");

    let mut both = apart(run(32, 50 * MS));
    both.observed.push(watched(32));
    fill(&mut both.observed[0], 122e6);
    fill(&mut both.observed[1], 1e6);
    assert!((value(&s::LINK, &both).unwrap() - 0.976).abs() < 1e-9);
    assert_first(&both, "link_bound");
    fill(&mut both.observed[0], 1e6);
    fill(&mut both.observed[1], 122e6);
    assert!((value(&s::LINK, &both).unwrap() - 0.976).abs() < 1e-9);
}

#[test]
fn what_nobody_watched_is_not_observable_and_no_zero() {
    let run = apart(run(20, 44 * MS));
    for signal in
        [&s::SUBJECT_UNREAD, &s::SUBJECT_THREAD, &s::HELD_BACK, &s::ROUND_TRIP, &s::FOREIGN]
    {
        assert_eq!(value(signal, &run), None, "{signal:?}");
    }
    let told = diagnose(&run).not_observable;
    for code in ["user_cpu_bound", "latency_bound", "delayed_ack_stall", "fd_limit"] {
        assert!(told.iter().any(|line| line.starts_with(code)), "{code}: {told:?}");
    }
}

#[test]
fn connections_to_an_origin_elsewhere_are_the_subjects() {
    let mut run = run(100, 200 * MS);
    let seen = &mut run.observed[0];
    seen.ports.push(PortUse { port: 9_000, served_by: None, used_by: Some("subject".to_owned()) });
    for snapshot in &mut seen.queues {
        let states = [("established".to_owned(), 10)].into();
        let origin = EndQueues {
            port: 9_000,
            end: End::Client,
            states,
            awaiting_reply: 10,
            ..EndQueues::default()
        };
        snapshot.ends.push(origin);
    }
    assert_first(&run, "connection_limited");
}
