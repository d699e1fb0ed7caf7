//! Tests on synthetic records of loads over TCP in user space: what the kernel counts there is of others, and its own
//! counts take their place.

use super::*;
use crate::signals as s;
use crate::signals::Signal;
use record::run::UserTransport;

fn value(signal: &Signal, run: &Run) -> Option<f64> {
    signal.value(&RunView::new(run))
}

/// Returns the counts of a transport that sent this many segments in 10 s, some of them again.
fn transport(sent: u64, retransmitted: u64) -> UserTransport {
    let counts = serde_json::json!({
        "kind": "xdp", "interface": "eth1", "driver": "ice", "mode": "zero-copy", "mtu": 1_500, "queues": 1,
        "verifies_checksums": true, "received": sent, "sent": sent, "retransmitted": retransmitted, "unusable": 0,
        "receive_ring_full": 0, "fill_ring_empty": 0, "dropped": 0, "transmit_ring_full": 0,
    });
    serde_json::from_value(counts).unwrap()
}

/// End of the connections of a run that a socket of the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelEnd {
    Both,
    Server,
    Neither,
}

/// Moves the connections of a run to user space, but for those of an end: the kernel sees no socket of the others.
fn with_kernel_end(mut run: Run, end: KernelEnd, counts: UserTransport) -> Run {
    if end == KernelEnd::Both {
        return run;
    }
    run.transport = Some(counts);
    for snapshot in &mut run.observed[0].queues {
        let is_left = |queues: &EndQueues| end == KernelEnd::Server && queues.end == ConnectionEnd::Server;
        snapshot.ends.retain(is_left);
        if end == KernelEnd::Neither {
            snapshot.listeners.clear();
        }
    }
    run
}

/// Scenes of verdicts that need a counter of the kernel's TCP.
fn scenes_of_counters() -> Vec<(&'static str, &'static Signal, Run)> {
    let mut accept = run(40, 20 * MS);
    set_counter(&mut accept, "TcpExt.ListenOverflows", 37.0);
    accept.observed[0].queues.iter_mut().for_each(|queue| queue.listeners[0].full = 1);
    let mut cookies = run(40, 20 * MS);
    set_counter(&mut cookies, "TcpExt.SyncookiesSent", 100.0);
    change_ends(&mut cookies, ConnectionEnd::Server, |_, ends| {
        ends.states.insert("syn-recv".to_owned(), 129);
    });
    vec![
        ("accept_backlog_overflow", &s::LISTEN_OVERFLOWS, accept),
        ("syn_backlog_overflow", &s::SYN_QUEUE, cookies),
    ]
}

#[test]
fn verdicts_by_counters_of_the_kernel_are_not_observable_where_it_has_no_socket_of_the_run() {
    for (code, signal, run) in scenes_of_counters() {
        let in_kernel = |end| with_kernel_end(run.clone(), end, transport(10_000, 0));
        // A load over the kernel's sockets has no transport, whatever the server has, and needs none.
        for end in [KernelEnd::Both, KernelEnd::Server] {
            assert_first(&in_kernel(end), code);
            assert!(value(signal, &in_kernel(end)).is_some(), "{code} {end:?}");
        }
        let hidden = in_kernel(KernelEnd::Neither);
        assert_eq!(value(signal, &hidden), None, "{code}");
        let diagnosis = diagnose(&hidden);
        let line = format!("{code}: {} is not observable", signal.name);
        assert!(diagnosis.not_observable.contains(&line), "{diagnosis:#?}");
        assert_ne!(diagnosis.verdict, code);
        let others = diagnosis.alternatives.iter().map(|alternative| &alternative.verdict);
        assert!(others.clone().all(|other| other != code), "{diagnosis:#?}");
        // A server whose sockets are not watched has them all the same, for a load with sockets.
        let mut unwatched = hidden.clone();
        unwatched.transport = None;
        assert!(value(signal, &unwatched).is_some(), "{code}");
    }
}

#[test]
fn all_counters_of_the_kernels_tcp_are_hidden_and_nothing_else() {
    let hidden: [&Signal; 8] = [
        &s::LISTEN_OVERFLOWS,
        &s::SYN_QUEUE,
        &s::OVERFLOWS_OVER_COOKIES,
        &s::LOSS_RECOVERY,
        &s::DELAYED_ACKS,
        &s::RESETS,
        &s::OUTGOING_CONNECTIONS,
        &s::MEMORY_EVENTS,
    ];
    let seen: [&Signal; 6] =
        [&s::RETRANSMITTED, &s::LOSS_COST, &s::RETRANSMISSION_MODE, &s::BROKEN, &s::SUBJECT_CPUS, &s::PORTS];
    let mut run = run(40, 20 * MS);
    for name in ["TcpExt.ListenOverflows", "TcpExt.DelayedACKs", "Tcp.RetransSegs", "TcpExt.TCPTimeouts"] {
        set_counter(&mut run, name, 3.0);
    }
    let run = |end| with_kernel_end(run.clone(), end, transport(10_000, 10));
    for signal in hidden {
        assert!(value(signal, &run(KernelEnd::Both)).is_some(), "{signal:?}");
        assert!(value(signal, &run(KernelEnd::Server)).is_some(), "{signal:?}");
        assert_eq!(value(signal, &run(KernelEnd::Neither)), None, "{signal:?}");
        assert!(signal.counts_kernel_tcp(), "{signal:?}");
    }
    for signal in seen {
        assert!(!signal.counts_kernel_tcp(), "{signal:?}");
        let read = (signal.read)(&RunView::new(&run(KernelEnd::Neither)));
        assert_eq!(value(signal, &run(KernelEnd::Neither)), read, "{signal:?}");
    }
    // The tables of resources show no such counter either.
    let names = |run: &Run| -> Vec<&str> {
        let rows = crate::resource_grid(run);
        let figures = rows.iter().flat_map(|row| [&row.utilisation, &row.saturation, &row.errors]);
        figures.flatten().map(|figure| figure.name).collect()
    };
    let overflows = s::LISTEN_OVERFLOWS.name;
    assert!(names(&run(KernelEnd::Both)).contains(&overflows));
    assert!(!names(&run(KernelEnd::Neither)).contains(&overflows));
}

#[test]
fn retransmissions_are_those_that_the_transport_counts() {
    // The kernel sends 10,000 segments per second, 640 of them again: those of others, if it has no socket of the run.
    let mut lossy = run(32, 50 * MS);
    set_counter(&mut lossy, "Tcp.RetransSegs", 640.0);
    let mut quiet = run(32, 50 * MS);
    set_counter(&mut quiet, "Tcp.RetransSegs", 0.0);
    for (run, end, counts, expected) in [
        (&lossy, KernelEnd::Both, transport(0, 0), Some(0.064)),
        (&lossy, KernelEnd::Neither, transport(100_000, 500), Some(0.005)),
        (&lossy, KernelEnd::Neither, transport(100_000, 0), Some(0.0)),
        (&lossy, KernelEnd::Neither, transport(0, 0), None),
        (&lossy, KernelEnd::Server, transport(100_000, 500), Some((640.0 + 50.0) / 20_000.0)),
        (&lossy, KernelEnd::Server, transport(100_000, 0), Some(640.0 / 20_000.0)),
        (&quiet, KernelEnd::Both, transport(0, 0), Some(0.0)),
        (&quiet, KernelEnd::Neither, transport(100_000, 500), Some(0.005)),
        (&quiet, KernelEnd::Server, transport(100_000, 500), Some(50.0 / 20_000.0)),
    ] {
        let found = value(&s::RETRANSMITTED, &with_kernel_end(run.clone(), end, counts));
        let is_expected = match (found, expected) {
            (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{end:?}: {found:?}, not {expected:?}");
    }
}

/// Returns a run of 640 requests per second, of which one in 20 waits for a retransmission after `timeout_ms`.
fn delayed_run(timeout_ms: u64) -> Run {
    let mut run = run(32, 50 * MS);
    let mut latencies = LatencyHistogram::new();
    (0..2_000).for_each(|at| latencies.record(if at % 20 == 0 { (50 + timeout_ms) * MS } else { 50 * MS }));
    run.latency.last_byte.service = latencies.summary();
    run
}

#[test]
fn losses_in_user_space_cost_its_timeouts_of_a_second() {
    // 320 segments for 6,400 requests.
    let hidden = |timeout_ms, retransmitted| {
        with_kernel_end(delayed_run(timeout_ms), KernelEnd::Neither, transport(13_000, retransmitted))
    };
    let cost = |run: &Run| value(&s::LOSS_COST, run).unwrap();
    // 5 % of the requests took 1 s more, of 100 ms on average.
    assert!((cost(&hidden(1_000, 320)) - 0.5).abs() < 0.02, "{}", cost(&hidden(1_000, 320)));
    // The kernel at the other end has timeouts of 200 ms: 10 of 60 ms.
    assert!((cost(&hidden(200, 320)) - 10.0 / 60.0).abs() < 0.02, "{}", cost(&hidden(200, 320)));
    assert_eq!(cost(&hidden(1_000, 0)), 0.0, "nothing was sent again, so something else took a second");
    assert_first(&hidden(1_000, 320), "packet_loss");
    assert_ne!(diagnose(&hidden(1_000, 0)).verdict, "packet_loss");
    // A second is no timeout of the kernel's TCP.
    let mut in_kernel = delayed_run(1_000);
    set_counter(&mut in_kernel, "Tcp.RetransSegs", 32.0);
    assert_eq!(value(&s::RETRANSMISSION_MODE, &in_kernel), Some(0.0));
}

#[test]
fn connections_of_the_generator_in_user_space_are_not_taken_from_the_kernels() {
    // Both ends in one namespace, in which 300 connections per second are opened.
    let mut run = run(40, 20 * MS);
    set_counter(&mut run, "Tcp.ActiveOpens", 300.0);
    run.totals.connections.opened = 1_000;
    assert_eq!(value(&s::OUTGOING_CONNECTIONS, &run), Some(200.0));
    let run = with_kernel_end(run, KernelEnd::Server, transport(10_000, 0));
    assert_eq!(value(&s::OUTGOING_CONNECTIONS, &run), Some(300.0));
}
