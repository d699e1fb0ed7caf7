//! The life of a process: signals, unix sockets, source addresses, ramps, second starts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc;

use rustix::process::Signal;

use crate::support::client::Client;
use crate::support::peers::ScriptedServer;
use crate::support::timing::assert_timing;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, Process, RunningProcess, pause_ms, run_load, run_weir, shared_machine,
    start_load, temp_dir, within,
};

/// Returns the number of requests that an origin has received.
fn requests(origin: &OriginProcess) -> u64 {
    origin.stats()["requests"].as_u64().unwrap()
}

/// Waits until an origin has received more requests than `before`.
fn wait_for_load(origin: &OriginProcess, before: u64) {
    let loaded = within(EVENT_TIMEOUT, || requests(origin) > before + 20);
    assert!(loaded, "the load did not begin");
}

#[test]
fn an_interrupted_load_writes_what_it_had_measured() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for (pace, target) in [(&["-c", "4"][..], "/?t=1"), (&["-c", "4", "-R", "200"], "/")] {
        for signal in [Signal::INT, Signal::TERM] {
            let before = requests(&origin);
            let run = start_load(&[&["-d", "40s"], pace, &[&origin.url(target)]].concat());
            wait_for_load(&origin, before);
            pause_ms(1200);
            run.process.signal(signal);
            let output = run.finish();
            output.assert_sums();
            assert!([0, 4].contains(&output.code), "{output:?}");
            assert_eq!(output.record["partial"], true);
            assert!(output.reasons().contains(&"partial"));
            assert!(output.total("responses") > 10, "{output:?}");
            assert_eq!(output.errors(), 0, "what was in flight is drained: {output:?}");
            assert!(output.number("duration_s") < 40.0);
            assert!(output.stdout.contains("validity"));
        }
    }
}

#[test]
fn a_load_that_is_interrupted_in_its_ramp_has_the_rates_of_the_time_that_it_had() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for pace in [&["-c", "4"][..], &["-c", "4", "-R", "500"]] {
        let before = requests(&origin);
        let flags = ["-v", "-d", "60s", "-s", "50s"];
        let run = start_load(&[&flags[..], pace, &[&origin.url("/?t=5")]].concat());
        wait_for_load(&origin, before);
        run.process.signal(Signal::INT);
        let output = run.finish();
        let (responses, length_s) = (output.total("responses"), output.number("duration_s"));
        let per_s = output.number("rates.responses_per_s");
        assert!(per_s * length_s <= 1.5 * responses as f64 + 1.0, "{output:?}");
        // Without a complete second after the ramp, all of the run is the window.
        assert!(output.number("window.from_s") == 0.0 && output.number("window.to_s") >= length_s);
        let intervals = output.record["intervals"].as_array().unwrap();
        assert!(intervals.iter().all(|interval| interval["measured"] == true), "{output:?}");
        assert!(output.stdout.lines().any(|line| line.starts_with("window ")), "{}", output.stdout);
    }
}

/// Repeats a signal until the process ends: two signals that arrive before the first was seen count
/// as one. Returns the exit code.
fn signal_until_it_ends(process: &mut Process, signal: Signal) -> i32 {
    let ended = within(EVENT_TIMEOUT, || {
        pause_ms(300);
        let ended = process.has_ended();
        if !ended {
            process.signal(signal);
        }
        ended
    });
    assert!(ended, "it goes on after many signals");
    process.wait(EVENT_TIMEOUT)
}

#[test]
fn a_second_interrupt_does_not_wait_for_what_is_in_flight() {
    let _shared = shared_machine();
    let (sender, received) = mpsc::channel();
    let server = ScriptedServer::start(move |peer| {
        while peer.request()?.is_some() {
            let _ = sender.send(());
        }
        Ok(())
    });
    let mut run: RunningProcess = start_load(&["-c", "2", "-d", "50s", "-w", "50s", &server.url()]);
    for _ in 0..2 {
        received.recv_timeout(EVENT_TIMEOUT).unwrap();
    }
    run.process.signal(Signal::INT);
    assert_eq!(signal_until_it_ends(&mut run.process, Signal::INT), 4);
    let output = run.finish();
    output.assert_sums();
    assert_eq!(output.total("errors.unfinished"), 2, "{output:?}");
    assert!(output.count("totals.unfinished_age_ns_max") > 200_000_000);
    assert!(output.stderr.contains("50.0 s"), "{}", output.stderr);
}

#[test]
fn an_origin_finishes_what_is_in_flight_before_it_ends() {
    let _shared = shared_machine();
    let mut origin = OriginProcess::start(&["-t", "2"]);
    let mut idle = Client::connect(&origin.authority);
    assert_eq!(idle.get("/").status, 200);
    let mut busy = Client::connect(&origin.authority);
    // Its body is held back, so that it stays in flight as long as this test needs.
    busy.send(b"POST /?s=10 HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\n");
    let in_flight = within(EVENT_TIMEOUT, || origin.stats()["in_flight"].as_u64() == Some(1));
    assert!(in_flight);
    origin.process.signal(Signal::TERM);
    assert!(idle.read_to_end().is_empty());
    busy.send(b"x");
    let response = busy.read_response().expect("the response to the request in flight");
    assert_eq!((response.status, response.body.len()), (200, 10));
    assert!(busy.read_to_end().is_empty());
    assert_eq!(origin.process.wait(EVENT_TIMEOUT), 0);
    assert!(origin.stderr().contains("served 2 "), "{}", origin.stderr());
}

#[test]
fn a_drain_has_its_limit_and_a_second_signal_ends_it() {
    let _shared = shared_machine();
    for (flags, signals) in [(&["--drain-timeout", "500ms"][..], 1), (&[], 2)] {
        let mut origin = OriginProcess::start(flags);
        let mut busy = Client::connect(&origin.authority);
        busy.send(b"GET /?t=60s HTTP/1.1\r\nHost: test\r\n\r\n");
        assert!(within(EVENT_TIMEOUT, || origin.stats()["in_flight"].as_u64() == Some(1)));
        origin.process.signal(Signal::TERM);
        let code = match signals {
            1 => origin.process.wait(EVENT_TIMEOUT),
            _ => signal_until_it_ends(&mut origin.process, Signal::TERM),
        };
        assert_eq!(code, 0);
    }
}

#[test]
fn an_origin_ends_with_its_stdin() {
    let _shared = shared_machine();
    let mut origin = OriginProcess::start(&[]);
    origin.process.close_stdin();
    assert_eq!(origin.process.wait(EVENT_TIMEOUT), 0);
}

#[test]
fn a_port_in_use_is_reported() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    for address in [&origin.authority, &taken] {
        let output = run_weir(&["serve", "--listen", address]);
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.stderr.contains(address.as_str()), "{}", output.stderr);
    }
}

#[test]
fn a_unix_socket_from_end_to_end() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("weir.sock");
    let path = path.to_str().unwrap();
    let listen = format!("unix:{path}");
    let mut origin = OriginProcess::start_at(&["--listen", &listen, "-t", "2"]);
    assert_eq!(origin.authority, listen);
    let flags = ["-c", "4", "-n", "500", "-r", "50", "--unix", path];
    let output = run_load(&[&flags[..], &["http://localhost/?s=10"]].concat());
    assert_eq!((output.total("responses"), output.errors()), (500, 0));
    assert_eq!(output.total("status.200"), 500);
    let open = run_load(&["-c", "2", "-R", "100", "-d", "1s", "--unix", path, "http://localhost/"]);
    assert_eq!(open.errors(), 0);
    origin.process.signal(Signal::TERM);
    assert_eq!(origin.process.wait(EVENT_TIMEOUT), 0);
    let none = run_load(&["-c", "2", "-n", "5", "--unix", path, "http://localhost/"]);
    assert_eq!(none.code, 1, "{none:?}");
}

#[test]
fn source_addresses_are_taken_in_turn() {
    let _shared = shared_machine();
    let (sender, peers) = mpsc::channel();
    let server = ScriptedServer::start(move |peer| {
        let _ = sender.send(peer.address().ip());
        while peer.request()?.is_some() {
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    let flags = ["-c", "8", "-n", "200", "-t", "2", "--source", "127.0.0.2-127.0.0.5"];
    let output = run_load(&[&flags[..], &[&server.url()]].concat());
    assert_eq!(output.errors(), 0, "{output:?}");
    let mut by_source: BTreeMap<IpAddr, usize> = BTreeMap::new();
    // The server may see a connection without a request only after the load.
    let first_eight = (0..8).map(|_| peers.recv_timeout(EVENT_TIMEOUT).expect("a connection"));
    for peer in first_eight.chain(peers.try_iter()) {
        *by_source.entry(peer).or_default() += 1;
    }
    let expected = (2..=5).map(|last| (IpAddr::from([127, 0, 0, last]), 2));
    assert_eq!(by_source, expected.collect());
}

#[test]
fn a_thousand_connections_come_up_in_a_ramp() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&[]);
    for pace in [&["-T", "200ms"][..], &["-R", "1k"]] {
        let flags = ["-c", "1000", "-s", "1s", "-d", "3s", "-w", "30s"];
        let output = run_load(&[&flags[..], pace, &[&origin.url("/")]].concat());
        assert_eq!(output.errors(), 0, "{:#}", output.record["totals"]);
        let connections = &output.record["totals"]["connections"];
        for name in ["requested", "max_open", "opened"] {
            assert_eq!(connections[name], 1000, "{connections:#}");
        }
        assert_eq!(connections["failed"], 0);
        assert!(!output.reasons().contains(&"connections_failed"));
        assert!((output.number("window.from_s") - 1.0).abs() < 1e-9);
        assert_eq!(output.record["intervals"][0]["measured"], false);
        let first = output.count("intervals.0.connections");
        assert_timing(first > 100, "more than 100 connections after the ramp", first);
    }
}

#[test]
fn urls_are_taken_in_turn_and_hosts_share_the_connections() {
    let _shared = shared_machine();
    let [first_origin, second_origin] = [0, 1].map(|_| OriginProcess::start(&["-t", "1"]));
    let urls = [first_origin.url("/?r=200"), first_origin.url("/?r=201"), second_origin.url("/?r=202")];
    let flags = ["-c", "4", "-n", "400", "-t", "1"];
    let output = run_load(&[&flags[..], &[&urls[0], &urls[1], &urls[2]]].concat());
    let [first, second, third] = ["200", "201", "202"].map(|s| output.total(&format!("status.{s}")));
    assert_eq!(first + second + third, 400);
    assert!(first.abs_diff(second) <= 2, "{first} and {second}");
    assert!(third > 0, "{third}");
    assert_timing(third > 50, "a fair share of 400 for the other host", third);
    assert_eq!(first_origin.stats()["requests"], first + second);
    assert_eq!(second_origin.stats()["requests"], third);
    assert_eq!(second_origin.stats()["connections_accepted"], 4, "two, and two asked for counts");
}

#[test]
fn a_full_queue_drops_and_reports_it() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let flags = ["-c", "1", "-R", "200", "-d", "1s", "--max-pending", "5", "-t", "1"];
    let output = run_load(&[&flags[..], &[&origin.url("/?t=50")]].concat());
    let (requests, dropped) = (output.total("requests"), output.total("dropped"));
    assert!(dropped > 100, "{:#}", output.record["totals"]);
    assert_eq!(output.errors(), 0);
    // Each due request was sent or dropped.
    assert!((199..=201).contains(&(requests + dropped)), "{requests} + {dropped}");
    assert!(output.reasons().contains(&"dropped"));
    let mut lines = output.stdout.lines().filter(|line| line.starts_with("dropped "));
    assert!(lines.any(|line| line.contains(&dropped.to_string())), "{}", output.stdout);
    assert_eq!(output.code, 4);
}

#[test]
fn a_timeout_counts_from_the_due_time() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    // One connection, 100 ms per response, 50 requests per second: soon all wait for too long.
    let flags = ["-c", "1", "-R", "50", "-d", "2s", "-w", "300ms", "-t", "1"];
    let output = run_load(&[&flags[..], &[&origin.url("/?t=100")]].concat());
    assert_eq!(output.total("requests") + output.total("dropped"), 100);
    let late = output.total("errors.timeout") + output.total("errors.too_late");
    assert!(late > 50, "{:#}", output.record["totals"]);
    let longest_ns = output.count("latency.last_byte.response.max_ns");
    assert_timing(longest_ns < 330_000_000, "no response past the timeout of 300 ms, in ns", longest_ns);
}

#[test]
fn an_open_loop_lasts_as_long_as_was_asked_for() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for (rate, seconds, due) in [("1000", 2, 2000), ("1", 3, 3)] {
        let duration = format!("{seconds}s");
        let flags = ["-c", "2", "-R", rate, "-d", &duration, "-w", "30s"];
        let output = run_load(&[&flags[..], &[&origin.url("/")]].concat());
        let window = ["window.from_s", "window.to_s"].map(|name| output.number(name));
        assert_eq!(window, [0.0, f64::from(seconds)], "{output:?}");
        assert_eq!(output.total("requests") + output.total("dropped"), due, "{output:?}");
        let excluded = ["window.excluded_ramp", "window.excluded_tail"].map(|name| output.count(name));
        assert_eq!(excluded, [0, 0]);
        let offered_per_s = output.number("rates.offered_per_s");
        assert!((offered_per_s - due as f64 / f64::from(seconds)).abs() < 1e-6, "{offered_per_s}");
        assert!(output.record["window"]["text"].is_string());
    }
}

#[test]
fn a_load_that_is_ended_by_hand_leaves_its_last_partial_second_out() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let flags = ["-c", "2", "-R", "200", "-d", "60s", "-w", "30s"];
    let run = start_load(&[&flags[..], &[&origin.url("/")]].concat());
    assert!(within(EVENT_TIMEOUT, origin.has_served_more(250)), "the load did not begin");
    run.process.signal(Signal::INT);
    let output = run.finish();
    output.assert_sums();
    let (to_s, length_s) = (output.number("window.to_s"), output.number("duration_s"));
    assert!(to_s.fract() == 0.0 && to_s >= 1.0 && to_s <= length_s, "{to_s} of {length_s}");
    assert!(length_s < 60.0, "{length_s}");
    // The run may have ended just after the end of a second.
    let left_out = output.count("window.excluded_tail") > 0;
    assert!(left_out || length_s - to_s < 0.05, "{output:?}");
    assert!(output.reasons().contains(&"partial"), "{output:?}");
}
