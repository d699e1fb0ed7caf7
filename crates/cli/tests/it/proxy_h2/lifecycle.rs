//! The life of a connection: cancelled streams, limits, drain, reload, the list of connections.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;

use super::*;
use crate::support::faulty_origins::{GatedServer, take_pipes};
use crate::support::metrics::{Metrics, REQUESTS, REQUESTS_IN_FLIGHT};
use crate::support::{EVENT_TIMEOUT, OriginProcess, run_weir, shared_machine};

#[test]
fn a_reset_aborts_only_its_request() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let gated = GatedServer::start();
    let proxy = start_proxy("", &gated.server.authority, "");
    let mut client = start_client(&proxy, "cancel", &[]);
    let mut targets = [gated.next_target(), gated.next_target()];
    targets.sort();
    assert_eq!(targets, ["/fast", "/wait"]);
    // Both are let through, in the order of their arrival; the client has cancelled one of them.
    let (stdin, mut stdout) = take_pipes(&mut client);
    drop(stdin);
    let cancelled = [("listener", "web"), ("end", "client_gone")];
    proxy.metrics_until("one was aborted", |metrics| metrics.sum_known(REQUESTS, &cancelled) == 1.0);
    (0..3).for_each(|_| gated.admit_one());
    let mut output = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut output).unwrap();
    assert_eq!(output, "second 200 7 end\nthird 200 7 end\n");
    let received = [("from", "client"), ("code", "cancel")];
    assert_eq!(proxy.metrics().sum_known(RESETS, &received), 1.0);
    proxy.assert_all_returned();
}

#[test]
fn a_drain_announces_the_end_and_completes_streams() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let gated = GatedServer::start();
    let mut proxy = start_proxy("", &gated.server.authority, "");
    let mut client = start_client(&proxy, "goaway", &[]);
    let (_stdin, stdout) = take_pipes(&mut client);
    let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("started"));
    assert_eq!(gated.next_target(), "/wait");
    proxy.process.signal(Signal::TERM);
    assert_eq!(lines.next().as_deref(), Some("goaway"));
    (0..2).for_each(|_| gated.admit_one());
    assert_eq!(lines.next().as_deref(), Some("200 7 end"));
    let rest: Vec<String> = lines.collect();
    assert_eq!(rest.last().map(String::as_str), Some("closed ['NO_ERROR', 'NO_ERROR']"), "{rest:?}");
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
}

#[test]
fn an_idle_connection_ends_after_its_timeout_and_in_a_drain() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let proxy = start_proxy("timeouts = { keep-alive = '500ms' }", &origin.authority, "");
    assert_eq!(run_client(&proxy, "idle", &[]), "200 1 end\nclosed ['NO_ERROR', 'NO_ERROR']\n");
    let mut proxy = start_proxy("", &origin.authority, "");
    let mut client = start_client(&proxy, "idle", &[]);
    let (_stdin, stdout) = take_pipes(&mut client);
    let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("200 1 end"));
    proxy.process.signal(Signal::TERM);
    assert_eq!(lines.next().as_deref(), Some("closed ['NO_ERROR', 'NO_ERROR']"));
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
}

#[test]
fn a_dead_client_is_found_by_pings_and_one_that_responds_stays() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let gated = GatedServer::start();
    let pings = "http2 = { ping-interval = '100ms', ping-timeout = '300ms' }";
    let proxy = start_proxy(pings, &gated.server.authority, "");
    // This client waits for its stdin, and reads nothing.
    let mut client = start_client(&proxy, "hold", &["1"]);
    gated.next_target();
    let is_lost = |metrics: &Metrics| metrics.sum_known(PINGS_LOST, &[("listener", "web")]) == 1.0;
    proxy.metrics_until("a lost PING", is_lost);
    gated.admit_one();
    assert_eq!(json_lines(&proxy, "\"end\":\"client_gone\"", 1).len(), 1);
    client.close_stdin();
    client.wait(EVENT_TIMEOUT);
    proxy.assert_all_returned();
    // PING frames do not prolong the life of an idle connection.
    let origin = OriginProcess::start(&["-t", "1"]);
    let listener = "http2 = { ping-interval = '100ms' }\ntimeouts = { keep-alive = '1s' }";
    let proxy = start_proxy(listener, &origin.authority, "");
    assert_eq!(run_client(&proxy, "idle", &[]), "200 1 end\nclosed ['NO_ERROR', 'NO_ERROR']\n");
    assert_eq!(proxy.metrics().sum_known(PINGS_LOST, &[("listener", "web")]), 0.0);
}

#[test]
fn requests_max_ends_a_connection_without_losing_requests() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let proxy = start_proxy("requests-max = 5", &origin.authority, "");
    let text = run_client(&proxy, "requests_max", &["100"]);
    assert!(text.starts_with("served 5 goaway True\n") && text.ends_with("closed True\n"), "{text}");
}

#[test]
fn a_connection_over_a_limit_gets_an_answer() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let gated = GatedServer::start();
    let listener = "connections-max = 1\non-limit = 'reject'";
    let proxy = start_proxy(listener, &gated.server.authority, "");
    let mut client = start_client(&proxy, "hold", &["1"]);
    gated.next_target();
    let text = run_client(&proxy, "rejected", &[]);
    assert!(text.starts_with("503 ") && text.contains("NO_ERROR"), "{text}");
    gated.admit_one();
    client.close_stdin();
    assert_eq!(client.wait(EVENT_TIMEOUT), 0);
    let source = "per-source = { requests-rate = 1, requests-burst = 2 }";
    let proxy = start_proxy(source, &gated.server.authority, "");
    (0..2).for_each(|_| gated.admit_one());
    let text = run_client(&proxy, "statuses", &["4"]);
    assert_eq!(text, "200\n200\n429\n429\n");
}

#[test]
fn a_connection_is_listed_and_killed_once_and_a_reload_keeps_it() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let gated = GatedServer::start();
    let proxy = start_proxy("", &gated.server.authority, "");
    let mut client = start_client(&proxy, "hold", &["3"]);
    (0..3).for_each(|_| drop(gated.next_target()));
    let socket = proxy.file("weir.sock");
    let ctl = |words: &[&str]| {
        let output = run_weir(&[&["ctl", "--socket", socket.to_str().unwrap()], words].concat());
        assert_eq!(output.code, 0, "{words:?}: {output:?}");
        output.stdout
    };
    let list: Value = serde_json::from_str(&ctl(&["show", "connections", "--json"])).unwrap();
    let rows = list["connections"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((&rows[0]["state"], &rows[0]["requests"]), (&"http2".into(), &3.into()), "{rows:#?}");
    assert_eq!(proxy.metrics().sum_known(STREAMS_OPEN, &[]), 3.0);
    assert_eq!(proxy.metrics().sum_known(REQUESTS_IN_FLIGHT, &[]), 3.0);
    // A reload without the listener's name would end it; this one changes another key.
    proxy.reload(&config("requests-max = 1000", &gated.server.authority, ""));
    let list: Value = serde_json::from_str(&ctl(&["show", "connections", "--json"])).unwrap();
    assert_eq!(list["connections"].as_array().unwrap().len(), 1, "{list:#}");
    ctl(&["kill", rows[0]["id"].as_str().unwrap()]);
    let killed = [("listener", "web"), ("end", "killed")];
    proxy.metrics_until("all were killed", |metrics| metrics.sum_known(REQUESTS, &killed) == 3.0);
    client.close_stdin();
    client.wait(EVENT_TIMEOUT);
    proxy.assert_all_returned();
}
