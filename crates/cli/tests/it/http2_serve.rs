//! Tests of `weir serve` with clients of HTTP/2 that are not weir: h2spec, curl, nghttp, h2load, httpx,
//! Node, Go. The counts of the origin are those of its clients.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::proxies::{is_installed, succeeds};
use crate::support::tls_peers::{curl, tls_stats_of};
use crate::support::{EVENT_TIMEOUT, OriginProcess, command, shared_machine, stats_of, temp_dir, within};

/// Time for all cases of h2spec, and for Go to compile its client, on the slowest machine.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs a client; returns its exit code, and its output with its errors behind.
fn run_client(program: &str, arguments: &[&str]) -> (i32, String) {
    let directory = temp_dir();
    let output_path = directory.path().join("output");
    let output = fs::File::create(&output_path).unwrap();
    let mut client = command(program, directory.path());
    client.args(arguments).stdin(Stdio::null()).stderr(output.try_clone().unwrap()).stdout(output);
    let code = crate::support::Process::spawn(&mut client).wait(CLIENT_TIMEOUT);
    (code, fs::read_to_string(output_path).unwrap())
}

/// Runs a client that must succeed; returns its output.
pub(crate) fn run_successfully(program: &str, arguments: &[&str]) -> String {
    let (code, output) = run_client(program, arguments);
    assert_eq!(code, 0, "{program} {arguments:?}: {output}");
    output
}

fn count(stats: &Value, name: &str) -> u64 {
    stats[name].as_u64().unwrap_or_else(|| panic!("no {name}: {stats:#}"))
}

/// Waits until the origin has no request in flight and no other connection; returns its counters.
fn final_stats(origin: &OriginProcess, is_tls: bool) -> Value {
    let mut stats = Value::Null;
    let done = within(EVENT_TIMEOUT, || {
        stats = if is_tls { tls_stats_of(&origin.authority) } else { stats_of(&origin.authority) };
        count(&stats, "in_flight") == 0 && count(&stats, "connections_open") <= 1
    });
    assert!(done, "{stats:#}");
    stats
}

#[test]
fn h2spec_finds_no_fault() {
    let _shared = shared_machine();
    if !is_installed("h2spec", &["--version"]) {
        return;
    }
    for flags in [&["--http", "2"][..], &["--http", "auto"], &["--tls-self-signed"]] {
        let origin = OriginProcess::start(&[&["-t", "1"], flags].concat());
        let (host, port) = origin.authority.rsplit_once(':').unwrap();
        let is_tls = flags[0] == "--tls-self-signed";
        let mut arguments = vec!["-h", host, "-p", port, "-o", "10", "--strict"];
        if is_tls {
            arguments.extend(["-t", "-k"]);
        }
        let (code, output) = run_client("h2spec", &arguments);
        let summary = output.lines().last().unwrap_or_default();
        assert!(code == 0 && summary.contains(" 0 failed"), "{flags:?}: {output}");
        let cases: u32 = summary.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        assert!(cases >= 146, "{output}");
    }
}

#[test]
fn curl_gets_any_body_and_sends_one() {
    let _shared = shared_machine();
    let plain = OriginProcess::start(&["-t", "2"]);
    let tls = OriginProcess::start(&["-t", "2", "--tls-self-signed"]);
    let format = ["-k", "--http2-prior-knowledge", "-o", "/dev/null", "-w"];
    for (target, status, size) in [
        ("/?s=0", 200, 0),
        ("/?s=100", 200, 100),
        ("/?s=20m", 200, 20 << 20),
        ("/?s=100k&t=5", 200, 100 << 10),
        ("/?s=100k&k=1000", 200, 100 << 10),
        ("/?s=1m&p=3000", 200, 1 << 20),
        ("/?s=1m&R=1", 200, 1 << 20),
        ("/?s=7&r=404", 404, 7),
        ("/?s=5&C=1", 200, 5),
        ("/?r=103", 200, 0),
    ] {
        for url in [plain.url(target), tls.https_url(target)] {
            let variables = "%{http_version} %{http_code} %{size_download}";
            let (code, stdout) = curl(&[&format[..], &[variables, &url]].concat());
            let expected = format!("2 {status} {size}");
            assert_eq!((code, String::from_utf8(stdout).unwrap()), (0, expected), "{url}");
        }
    }
    let directory = temp_dir();
    let path = directory.path().join("body");
    fs::write(&path, vec![b'x'; 3_000_000]).unwrap();
    let data = format!("@{}", path.display());
    for url in [plain.url("/?s=5"), tls.https_url("/?s=5")] {
        let variables = "%{http_version} %{http_code} %{size_upload}";
        let (code, stdout) = curl(&[&format[..], &[variables, "--data-binary", &data, &url]].concat());
        let text = String::from_utf8(stdout).unwrap();
        assert!(code == 0 && text.starts_with("2 200 "), "{url}: {code} {text}");
    }
}

#[test]
fn without_a_choice_of_the_client_tls_chooses_http2_and_cleartext_http1() {
    let _shared = shared_machine();
    let version = |flags: &[&str], url: &str| {
        let (code, stdout) =
            curl(&[&["-k", "-o", "/dev/null", "-w", "%{http_version}"], flags, &[url]].concat());
        (code, String::from_utf8(stdout).unwrap())
    };
    let tls = OriginProcess::start(&["-t", "1", "--tls-self-signed"]);
    assert_eq!(version(&[], &tls.https_url("/")), (0, "2".to_owned()));
    assert_eq!(version(&["--http1.1"], &tls.https_url("/")), (0, "1.1".to_owned()));
    let plain = OriginProcess::start(&["-t", "1"]);
    assert_eq!(version(&[], &plain.url("/")), (0, "1.1".to_owned()));
    // An upgrade is offered, and ignored.
    assert_eq!(version(&["--http2"], &plain.url("/")), (0, "1.1".to_owned()));
    let only1 = OriginProcess::start(&["-t", "1", "--tls-self-signed", "--http", "1.1"]);
    assert_eq!(version(&[], &only1.https_url("/")), (0, "1.1".to_owned()));
}

#[test]
fn h2load_and_the_origin_count_the_same() {
    let _shared = shared_machine();
    if !is_installed("h2load", &["--version"]) {
        return;
    }
    for is_tls in [false, true] {
        let flags = if is_tls { &["-t", "2", "--tls-self-signed"][..] } else { &["-t", "2"] };
        let origin = OriginProcess::start(flags);
        let mut served = 0;
        for (target, flags) in [
            ("/?s=100", &["-n", "5000", "-c", "4", "-m", "32"][..]),
            ("/?s=100&t=1", &["-n", "1000", "-c", "4", "-m", "100"]),
            ("/?s=30k", &["-n", "1000", "-c", "3", "-m", "20"]),
            ("/?s=1k~2k", &["-n", "500", "-c", "2", "-m", "1"]),
        ] {
            let url = if is_tls { origin.https_url(target) } else { origin.url(target) };
            let output = run_successfully("h2load", &[flags, &[&url]].concat());
            let requests: u64 = flags[1].parse().unwrap();
            let expected = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
            assert!(output.contains(&expected), "{target}: {output}");
            served += requests;
        }
        let stats = final_stats(&origin, is_tls);
        assert_eq!((count(&stats, "requests"), count(&stats, "responses")), (served, served), "{stats:#}");
        assert!(count(&stats, "h2_streams") >= served, "{stats:#}");
        assert_eq!(stats["h2_faults_by_kind"], serde_json::json!({}));
        assert_eq!((count(&stats, "responses_lost"), count(&stats, "requests_abandoned")), (0, 0));
    }
}

#[test]
fn nghttp_gets_many_bodies_on_one_connection() {
    let _shared = shared_machine();
    if !is_installed("nghttp", &["--version"]) {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let urls: Vec<String> = (0..20).map(|n| origin.url(&format!("/?s={}", n * 10_000))).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let output = run_successfully("nghttp", &[&["-n", "-s", "-t", "60"], &urls[..]].concat());
    assert!(!output.contains("error"), "{output}");
    let stats = final_stats(&origin, false);
    assert_eq!((count(&stats, "h2_connections"), count(&stats, "h2_streams")), (1, 20), "{stats:#}");
    assert_eq!(count(&stats, "responses"), 20);
}

/// Returns a Python with httpx and h2: that of the path, or Debian's.
pub(crate) fn python_with_httpx() -> Option<&'static str> {
    let found = ["python3", "/usr/bin/python3"]
        .into_iter()
        .find(|python| succeeds(python, &["-c", "import httpx, h2"]));
    if found.is_none() {
        test_needs::skip("httpx", "no Python with httpx and h2 here");
    }
    found
}

#[test]
fn httpx_sends_a_hundred_requests_at_once() {
    let _shared = shared_machine();
    let Some(python) = python_with_httpx() else { return };
    let origin = OriginProcess::start(&["-t", "1", "--tls-self-signed"]);
    let script = include_str!("http2_serve/client.py");
    let output = run_successfully(python, &["-c", script, &origin.https_url("")]);
    assert_eq!(output.trim(), "5 200 404 77");
    assert_eq!(count(&final_stats(&origin, true), "requests"), 104);
}

#[test]
fn node_sends_requests_on_one_session_and_resets_a_stream() {
    let _shared = shared_machine();
    if !is_installed("node", &["--version"]) {
        return;
    }
    let script = include_str!("http2_serve/client.js");
    for is_tls in [false, true] {
        let flags = if is_tls { &["-t", "1", "--tls-self-signed"][..] } else { &["-t", "1"] };
        let origin = OriginProcess::start(flags);
        let url = if is_tls { origin.https_url("") } else { origin.url("") };
        let output = run_successfully("node", &["-e", script, "--", &url]);
        assert_eq!(output.trim(), "5 8 503");
        let stats = final_stats(&origin, is_tls);
        assert_eq!((count(&stats, "requests"), count(&stats, "requests_abandoned")), (203, 1), "{stats:#}");
        assert_eq!(count(&stats, "h2_resets_received"), 1);
    }
}

#[test]
fn go_sends_requests_in_parallel_over_tls() {
    let _shared = shared_machine();
    if !is_installed("go", &["version"]) {
        return;
    }
    let directory = temp_dir();
    let source = directory.path().join("client.go");
    let program = directory.path().join("client");
    fs::write(&source, include_str!("http2_serve/client.go")).unwrap();
    let mut build = Command::new("go");
    build.arg("build").arg("-o").arg(&program).arg(&source).current_dir(directory.path());
    // Only the standard library is used: nothing is downloaded.
    let output = build.env("GOFLAGS", "").env("GOPROXY", "off").env("GO111MODULE", "off").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let origin = OriginProcess::start(&["-t", "1", "--tls-self-signed"]);
    let output = run_successfully(&program.display().to_string(), &[&origin.https_url("")]);
    assert_eq!(output.trim(), "5 200 HTTP/2.0 <nil>");
    assert_eq!(count(&final_stats(&origin, true), "requests"), 201);
}

#[test]
fn an_idle_connection_is_small() {
    let _shared = shared_machine();
    const CONNECTIONS: u64 = 2_000;
    /// Bytes of user space of an idle connection after a request.
    const BYTES_MAX: u64 = 6_000;
    if !crate::support::can_open_descriptors(2 * CONNECTIONS + 200) {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // GET /?s=9 with :authority a, without indexing.
    let request = b"\0\0\x0c\x01\x05\0\0\0\x01\x82\x86\x04\x05/?s=9\x01\x01a";
    let connect = || {
        let mut client = crate::support::client::Client::connect(&origin.authority);
        client.send(preface);
        client.send(request);
        client
    };
    let served = |requests: u64| within(EVENT_TIMEOUT, || count(&origin.stats(), "responses") == requests);
    let mut clients: Vec<_> = (0..100).map(|_| connect()).collect();
    assert!(served(100));
    let released = || within(EVENT_TIMEOUT, || count(&origin.stats(), "buffers_in_use") == 0);
    assert!(released());
    let before = crate::support::anonymous_bytes(origin.process.id());
    clients.extend((0..CONNECTIONS).map(|_| connect()));
    assert!(served(100 + CONNECTIONS) && released());
    let mut bytes = 0;
    // The memory of messages is released after a while without them.
    let is_small = within(EVENT_TIMEOUT, || {
        bytes = crate::support::anonymous_bytes(origin.process.id()).saturating_sub(before) / CONNECTIONS;
        bytes <= BYTES_MAX
    });
    println!("{bytes} B for each idle connection");
    assert!(is_small, "{bytes} B for each idle connection");
}
