//! Truthfulness of a load against foreign servers: nginx and Python's, compared with their own
//! logs.

use rustix::process::Signal;

use crate::support::peers::{Nginx, PythonServer};
use crate::support::proxies::is_installed;
use crate::support::{pause_ms, run_load, shared_machine, start_load};
use crate::truth::{assert_stop_is_visible, load_with_stopped_processes};

#[test]
fn nginx_logs_what_a_load_counted() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let nginx = Nginx::start();
    let mut logged = 0;
    for flags in [
        &["-n", "2001"][..],
        &["-d", "500ms"],
        &["-n", "700", "-r", "7"],
        &["-n", "301", "-r", "1"],
        &["-d", "1s", "-R", "500"],
    ] {
        let output = run_load(&[&["-c", "5", "-w", "30s"], flags, &[&nginx.url("/")]].concat());
        assert_eq!(output.errors(), 0, "{flags:?}: {output:?}");
        assert_eq!(output.total("status.200"), output.total("sent"));
        logged += output.total("sent");
        assert_eq!(nginx.wait_for_log_lines(logged), logged, "{flags:?}");
    }
}

#[test]
fn nginx_serves_a_file_and_a_load_counts_its_bytes() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let nginx = Nginx::start();
    let url = nginx.url("/file");
    let output = run_load(&["-c", "3", "-n", "300", "--expect-bytes", "10000", &url]);
    assert_eq!((output.total("responses"), output.errors()), (300, 0));
    assert!(output.total("bytes_in") > 300 * 10_000);
    let head = run_load(&["-c", "3", "-n", "300", "--method", "HEAD", &url]);
    assert_eq!((head.total("responses"), head.errors()), (300, 0));
    assert!(head.total("bytes_in") < 300 * 1000);
    assert_eq!(nginx.wait_for_log_lines(600), 600);
}

#[test]
fn nginx_not_finding_a_file_is_visible() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let nginx = Nginx::start();
    let output = run_load(&["-c", "2", "-n", "200", &nginx.url("/missing")]);
    assert_eq!(output.code, 4, "{output:?}");
    assert_eq!(output.total("status.404"), 200);
    assert!(output.stdout.contains("404: 200"), "{}", output.stdout);
    assert_eq!(nginx.wait_for_log_lines(200), 200);
}

#[test]
fn nginx_closing_after_some_requests_costs_no_request() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let nginx = Nginx::start();
    let output = run_load(&["-c", "2", "-n", "1000", &nginx.url("/few")]);
    assert_eq!((output.total("responses"), output.errors()), (1000, 0));
    // Ten requests per connection; the last of each may have fewer.
    let opened = output.total("connections.opened");
    assert!((100..=104).contains(&opened), "{opened}");
    assert_eq!(nginx.wait_for_log_lines(1000), 1000);
}

#[test]
fn a_stopped_nginx_shows_in_the_response_latency() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let nginx = Nginx::start();
    let processes = nginx.processes();
    assert_eq!(processes.len(), 2, "a master and a worker");
    let output =
        load_with_stopped_processes(&nginx.url("/"), &processes, || nginx.wait_for_log_lines(100) >= 100);
    assert_stop_is_visible(&output);
    let sent = output.total("sent");
    assert_eq!(nginx.wait_for_log_lines(sent), sent);
}

#[test]
fn python_logs_what_a_load_counted() {
    let _shared = shared_machine();
    let server = PythonServer::start();
    let mut logged = 0;
    for flags in [&["-n", "200"][..], &["-n", "101", "-r", "3"], &["-d", "500ms"]] {
        let output = run_load(&[&["-c", "3", "-w", "30s"], flags, &[&server.url("/")]].concat());
        assert_eq!(output.errors(), 0, "{flags:?}: {output:?}");
        assert_eq!(output.total("status.200"), output.total("sent"));
        logged += output.total("sent");
        assert_eq!(server.wait_for_log_lines(logged), logged, "{flags:?}");
    }
    let output = run_load(&["-c", "3", "-n", "50", &server.url("/missing")]);
    assert_eq!(output.total("status.404"), 50);
}

#[test]
fn a_stopped_python_shows_in_the_longest_response() {
    let _shared = shared_machine();
    let server = PythonServer::start();
    let run = start_load(&["-c", "4", "-R", "50", "-d", "6s", "-w", "30s", &server.url("/")]);
    // Only a load that has begun can be delayed.
    assert!(server.wait_for_log_lines(20) >= 20);
    server.process.signal(Signal::STOP);
    pause_ms(2000);
    server.process.signal(Signal::CONT);
    let output = run.finish();
    output.assert_sums();
    assert_eq!(output.errors(), 0, "{output:?}");
    let longest_ns = output.number("latency.last_byte.response.max_ns");
    assert!(longest_ns > 1.9e9, "{longest_ns}");
    // A third of the requests were due in these two seconds, and most of those waited so long.
    let p90_ns = output.number("latency.last_byte.response.p90_ns");
    assert!(p90_ns > 0.4e9, "{p90_ns}");
    let sent = output.total("sent");
    assert_eq!(server.wait_for_log_lines(sent), sent);
}
