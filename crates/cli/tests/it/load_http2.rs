//! Loads over HTTP/2 against `weir serve`, nginx and nghttpd, compared with their own counts.

use std::process::{Command, Stdio};

use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxies::is_installed;
use crate::support::tls_peers::{Certificates, PythonTlsServer, tls_stats_of};
use crate::support::{OriginProcess, Process, RunOutput, run_load, run_weir, shared_machine};
use crate::truth::{assert_stop_is_visible, load_and_stop};

const HTTP2: [&str; 4] = ["--http", "2", "-w", "30s"];

fn load(flags: &[&str], url: &str) -> RunOutput {
    run_load(&[&HTTP2, flags, &[url]].concat())
}

fn assert_all_good(output: &RunOutput) {
    assert!(!output.record.is_null(), "{output:?}");
    assert_eq!(output.errors(), 0, "{:#}", output.record["totals"]);
    assert_eq!(output.total("good"), output.total("requests"), "{:#}", output.record["totals"]);
    assert!(output.total("requests") > 0);
}

#[test]
fn an_origin_counts_what_a_load_counted() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "2"]);
    let mut sent = 0;
    for flags in [
        &["-c", "2", "-m", "32", "-n", "5001"][..],
        &["-c", "4", "-m", "10", "-d", "500ms", "-t", "2"],
        &["-c", "2", "-m", "8", "-n", "300", "-r", "30"],
        &["-c", "2", "-n", "50", "-r", "1"],
        &["-c", "2", "-m", "16", "-d", "1s", "-R", "1000"],
        &["-c", "3", "-m", "5", "-n", "300", "--data", "hello"],
        &["-c", "1", "-m", "4", "-n", "100", "--method", "HEAD"],
    ] {
        let output = load(flags, &origin.url("/?s=100"));
        assert_all_good(&output);
        assert_eq!(output.total("sent"), output.total("requests"), "{flags:?}");
        sent += output.total("sent");
        assert_eq!(origin.stats()["requests"].as_u64(), Some(sent), "{flags:?}");
    }
}

#[test]
fn the_record_and_the_summary_name_the_streams() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let output = load(&["-c", "2", "-m", "8", "-n", "2000"], &origin.url("/"));
    assert_all_good(&output);
    assert!(output.stdout.contains("2 connections x 8 streams (HTTP/2)"), "{}", output.stdout);
    let plan = &output.record["plan"]["http2"];
    assert_eq!((plan["streams"].as_u64(), plan["fraction"].as_f64()), (Some(8), Some(1.0)));
    assert_eq!(output.count("http2.streams"), 8);
    assert_eq!(output.count("http2.retried"), 0);
    let mixed = run_load(&["--mix", "1.1=50,2=50", "-m", "4", "-c", "4", "-n", "2000", &origin.url("/")]);
    assert_all_good(&mixed);
    assert!(mixed.stdout.contains("4 connections x 4 streams (50 % HTTP/2)"), "{}", mixed.stdout);
}

#[test]
fn a_large_body_passes_small_windows() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let windows = ["--window", "4k", "--connection-window", "65535", "--expect-bytes", "1m"];
    let output = load(&[&["-c", "1", "-m", "4", "-n", "8"], &windows[..]].concat(), &origin.url("/?s=1m"));
    assert_all_good(&output);
    assert_eq!(output.total("responses"), 8);
}

#[test]
fn a_stopped_origin_shows_in_the_response_latency() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let connections = ["--http", "2", "-c", "2", "-m", "3"];
    let output = load_and_stop(&connections, &origin.url("/?s=10"), &[origin.process.id()], || {
        origin.stats()["requests"].as_u64() > Some(100)
    });
    assert_stop_is_visible(&output);
}

#[test]
fn tls_negotiates_http2() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--tls-self-signed"]);
    let url = origin.https_url("/?s=100");
    let output = load(&["-k", "-c", "2", "-m", "16", "-n", "2000"], &url);
    assert_all_good(&output);
    assert_eq!(output.count("tls.full") + output.count("tls.resumed"), 2);
    let short = load(&["-k", "-c", "2", "-n", "100", "-r", "1", "--tls-new", "20%"], &url);
    assert_all_good(&short);
    // The first connections have no session to resume.
    assert!((20..=24).contains(&short.count("tls.full")), "{:#}", short.record["tls"]);
    let handshake_count = |kind: &str| short.count(&format!("latency.tls_{kind}.count"));
    assert!(handshake_count("full") > 0 && handshake_count("resumed") > 0, "{:#}", short.record["tls"]);
    assert!(tls_stats_of(&origin.authority)["requests"].as_u64() == Some(2100));
}

#[test]
fn a_calibration_drives_an_origin_with_http2() {
    let _shared = shared_machine();
    let flags = ["calibrate", "--http", "2", "-m", "8", "-c", "2", "--trials", "1", "--trial-time", "1s"];
    let output = run_weir(&[&flags[..], &["--json", "RECORD"]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.record["profile"]["http2"].is_object(), "{:#}", output.record["profile"]);
}

#[test]
fn a_server_that_does_not_choose_http2_is_reported() {
    let _shared = shared_machine();
    let plain = ScriptedServer::responding(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let output = run_weir(&["load", "--http", "2", "-d", "1s", &plain.url()]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("responded with HTTP/1.1 (use --http 1.1)"), "{}", output.stderr);
    let Some(certificates) = Certificates::create() else { return };
    let tls = PythonTlsServer::start(&certificates.file("both.pem"));
    let output = run_weir(&["load", "--http", "2", "-k", "-d", "1s", &tls.url("/")]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("did not choose HTTP/2"), "{}", output.stderr);
}

#[test]
fn nginx_logs_what_a_load_counted_and_closes_connections() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let plain = Nginx::start_with("http2", "keepalive_requests 100;");
    let output = load(&["-c", "2", "-m", "8", "-n", "2000"], &plain.url("/"));
    assert_all_good(&output);
    assert_eq!(plain.wait_for_log_lines(2000), 2000);
    // Each connection ends in a GOAWAY after a hundred requests.
    assert!(output.count("http2.goaways.NO_ERROR") >= 18, "{:#}", output.record["http2"]);
    assert_eq!(output.total("connections.lost"), 0);
    let Some(certificates) = Certificates::create() else { return };
    let (certificate, key) = (certificates.file("leaf.pem"), certificates.file("leaf.key"));
    let directives = format!("ssl_certificate {certificate}; ssl_certificate_key {key};");
    let tls = Nginx::start_with("ssl http2", &directives);
    let url = tls.url("/file").replacen("http://", "https://", 1);
    let output = load(&["-k", "-c", "2", "-m", "8", "-n", "1000", "--expect-bytes", "10000"], &url);
    assert_all_good(&output);
    assert_eq!(tls.wait_for_log_lines(1000), 1000);
    let without_http2 = Nginx::start_with("ssl", &directives);
    let url = without_http2.url("/").replacen("http://", "https://", 1);
    let output = run_weir(&["load", "--http", "2", "-k", "-d", "1s", &url]);
    assert!(output.stderr.contains("did not choose HTTP/2"), "{output:?}");
}

#[test]
fn nghttpd_serves_a_load() {
    let _shared = shared_machine();
    if !is_installed("nghttpd", &["--version"]) {
        return;
    }
    let directory = crate::support::temp_dir();
    std::fs::write(directory.path().join("file"), [b'x'; 5_000]).unwrap();
    let port = crate::support::peers::free_port();
    let mut command = Command::new("nghttpd");
    command.args(["--no-tls", "-a", "127.0.0.1", "-m", "10", "-d"]).arg(directory.path());
    command.arg(port.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Process::spawn(&mut command);
    let listens = || crate::support::listens_on(server.id(), port);
    assert!(crate::support::within(crate::support::EVENT_TIMEOUT, listens));
    let url = format!("http://127.0.0.1:{port}/file");
    let output = load(&["-c", "2", "-m", "32", "-n", "2000", "--expect-bytes", "5000"], &url);
    assert_all_good(&output);
    assert_eq!(output.count("http2.streams_allowed"), 10);
    assert!(output.reasons().contains(&"streams_limited"), "{output:?}");
    assert!(output.stdout.contains("server allows 10 streams per connection"), "{}", output.stdout);
}

#[test]
fn a_search_finds_streams_and_handshakes() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--tls-self-signed"]);
    let url = origin.https_url("/?s=10");
    let quick = [
        "edge",
        "--quick",
        "--trial",
        "200ms",
        "--http",
        "2",
        "-k",
        "-c",
        "2",
        "--no-baseline",
        "--search-only",
    ];
    for (find, from, to) in [("streams", "2", "4"), ("handshakes", "200", "400")] {
        let search =
            ["--find", find, "--from", from, "--to", to, "--slo", "p99<10s,errors<5%", "--json", "-"];
        let output = run_weir(&[&quick[..], &search, &[&url]].concat());
        let record: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(record["quantity"], find, "{output:?}");
        let trials = record["trials"].as_array().unwrap();
        assert!(trials.iter().all(|trial| trial["level"].as_f64() <= to.parse().ok()), "{output:?}");
    }
    let plain = run_weir(&["edge", "--find", "handshakes", "http://127.0.0.1:1/"]);
    assert!(plain.code == 2 && plain.stderr.contains("--find"), "{plain:?}");
    let http1 = run_weir(&["edge", "--find", "streams", "http://127.0.0.1:1/"]);
    assert!(http1.code == 2 && http1.stderr.contains("add --http 2"), "{http1:?}");
}
