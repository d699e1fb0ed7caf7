//! Requests, checks, replay, stages and scenario files of `weir load`, against what a server received.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a server of its own, on threads, with the time of arrival"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::timing::assert_timing;
use crate::support::{OriginProcess, RunOutput, run_load, run_weir, shared_machine, temp_dir};

/// One request as it arrived: its time and its head.
type Received = (Instant, String);

/// Server that keeps every request, and answers with a cookie and a token.
struct RecordingServer {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl RecordingServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::default();
        let shared = Arc::clone(&received);
        // The threads end with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { url, received }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    fn lines(&self) -> Vec<String> {
        self.received().iter().map(|(_, head)| head.lines().next().unwrap().to_owned()).collect()
    }
}

fn serve(mut stream: TcpStream, received: &Mutex<Vec<Received>>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let now = Instant::now();
        bytes.extend_from_slice(&buffer[..count]);
        while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
            let total = end + 4 + length.unwrap_or(0);
            if bytes.len() < total {
                break;
            }
            let body = String::from_utf8_lossy(&bytes[end + 4..total]).into_owned();
            bytes.drain(..total);
            let mut all = received.lock().unwrap();
            let number = all.len();
            all.push((now, format!("{head}\n{body}")));
            drop(all);
            let response = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nSet-Cookie: sid=s{number}; Path=/\r\nX-Token: t{number}\r\n\r\n\
                 k={number:<4}"
            );
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn assert_all_good(output: &RunOutput) {
    assert!(!output.record.is_null(), "{output:?}");
    assert_eq!(output.errors(), 0, "{:#}", output.record["totals"]);
    assert_eq!(output.total("good"), output.total("requests"), "{:#}", output.record["totals"]);
}

#[test]
fn templates_cookies_and_captures_reach_the_server() {
    let _shared = shared_machine();
    let server = RecordingServer::start();
    let directory = temp_dir();
    let csv = directory.path().join("v.csv").display().to_string();
    fs::write(&csv, "user,path\nann,/a\nbob,/b c\n").unwrap();
    let output = run_load(&[
        "-c",
        "1",
        "-n",
        "4",
        "--no-watch",
        "--cookies",
        "--values",
        &csv,
        "--capture",
        "token=header:X-Token",
        "--capture",
        "k=body:k=([0-9]+)",
        "-H",
        "X-Echo: {{value:token}}-{{value:k}}",
        "--body",
        "{\"n\":{{counter:10}},\"u\":\"{{csv:user}}\"}",
        &format!("{}{}", server.url, "{{csv:path}}?c={{connection}}"),
    ]);
    assert_all_good(&output);
    let received = server.received();
    let lines = server.lines();
    assert_eq!(&lines[..2], ["POST /a?c=0 HTTP/1.1", "POST /b%20c?c=0 HTTP/1.1"]);
    let third = &received[2].1;
    for part in ["X-Echo: t1-1", "Cookie: sid=s1", "{\"n\":12,\"u\":\"ann\"}"] {
        assert!(third.contains(part), "{part}: {third}");
    }
    assert!(received[0].1.contains("X-Echo: -\r\n") && !received[0].1.contains("Cookie:"));
}

#[test]
fn clients_begin_at_different_places_of_a_long_list() {
    let _shared = shared_machine();
    let server = RecordingServer::start();
    let directory = temp_dir();
    let scenario = directory.path().join("urls.toml");
    let urls: Vec<String> = (0..400).map(|number| format!("\"{}/{number}\"", server.url)).collect();
    fs::write(&scenario, format!("urls = [{}]\n", urls.join(", "))).unwrap();
    let scenario = scenario.display().to_string();
    let output = run_load(&["-c", "4", "-n", "40", "--no-watch", "--file", &scenario]);
    assert_all_good(&output);
    let lines = server.lines();
    let distinct: std::collections::BTreeSet<&String> = lines.iter().collect();
    assert_eq!((lines.len(), distinct.len()), (40, 40));
    for place in [0, 100, 200, 300] {
        assert!(lines.contains(&format!("GET /{place} HTTP/1.1")), "{lines:#?}");
    }
}

#[test]
fn a_failed_check_is_an_error_of_its_own_kind_with_samples() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for http in [["--http", "1.1"], ["--http", "2"], ["--pipeline", "8"]] {
        let load = |flags: &[&str]| {
            let common = ["-c", "2", "-n", "200", "--no-watch", http[0], http[1]];
            run_load(&[&common, flags, &[&origin.url("/?s=100")]].concat())
        };
        let good =
            ["--expect-hash", "same", "--expect-header", "content-length: 100", "--expect-length", "100"];
        assert_all_good(&load(&good));
        for (flags, check) in [
            (["--expect-body", "surely absent"], "body"),
            (["--expect-header", "X-Absent"], "header"),
            (["--expect-hash", "crc32:00000000"], "hash"),
            (["--expect-length", "99"], "length"),
            (["--expect-status", "404"], "status"),
        ] {
            let output = load(&flags);
            let totals = &output.record["totals"];
            assert_eq!(output.total("errors.check"), 200, "{http:?} {flags:?}: {totals:#}");
            assert_eq!(output.total(&format!("failed_checks.{check}")), 200, "{totals:#}");
            assert_eq!(output.total("good"), 0, "{totals:#}");
            let sample = &output.record["check_samples"][0];
            assert!(sample["check"] == check && sample["status"] == 200, "{sample:#}");
            assert!(output.stdout.contains(&format!("failed: {check} 200")), "{}", output.stdout);
        }
        let flags = ["-c", "2", "-n", "100", "--no-watch", http[0], http[1], "--expect-length", "100"];
        let urls = [origin.url("/?s=100"), origin.url("/?s=99")];
        let output = run_load(&[&flags[..], &[&urls[0], &urls[1]]].concat());
        let of = |index: usize| output.record["requests"][index].clone();
        assert_eq!(of(0)["good"].as_u64().zip(of(0)["bad"].as_u64()), Some((50, 0)), "{}", of(0));
        assert_eq!(of(1)["failed_checks"]["length"], 50, "{}", of(1));
    }
}

#[test]
fn a_replay_keeps_order_targets_and_times() {
    let _shared = shared_machine();
    let server = RecordingServer::start();
    let directory = temp_dir();
    let log = directory.path().join("access.log").display().to_string();
    // Out of order, as logs are written at the end of a request.
    let offsets_ms = [0u64, 400, 30, 310, 120, 200, 55, 90, 91, 350];
    let text: String = offsets_ms
        .iter()
        .map(|ms| format!("1.2.3.4:5 [06/Feb/2009:12:14:14.{ms:03}] in b/s 1/0/1/1/3 200 5 - - ---- 1/1/1/1/0 0/0 \"GET /{ms} HTTP/1.1\"\n"))
        .collect();
    fs::write(&log, text).unwrap();
    let output = run_load(&["-c", "1", "--no-watch", "--replay", &log, "--speed", "0.5x", &server.url]);
    assert_all_good(&output);
    let mut sorted = offsets_ms;
    sorted.sort_unstable();
    let expected: Vec<String> = sorted.iter().map(|ms| format!("GET /{ms} HTTP/1.1")).collect();
    assert_eq!(server.lines(), expected);
    let received = server.received();
    let last = received[9].0.duration_since(received[0].0);
    assert!(last >= Duration::from_millis(790), "{last:?}");
    let errors: Vec<_> = received
        .iter()
        .zip(sorted)
        .map(|((at, _), ms)| at.duration_since(received[0].0).abs_diff(Duration::from_millis(2 * ms)))
        .collect();
    let is_exact = errors.iter().all(|error| *error < Duration::from_millis(20));
    assert_timing(is_exact, "each request within 20 ms of its time", errors);
}

#[test]
fn weights_stages_and_a_proxy_header_are_those_of_the_plan() {
    let _shared = shared_machine();
    let server = RecordingServer::start();
    let (heavy, light) = (format!("{}/heavy", server.url), format!("{}/light", server.url));
    let output = run_load(&["-c", "1", "-n", "40", "--no-watch", "--weights", "3,1", &heavy, &light]);
    assert_all_good(&output);
    assert_eq!(server.lines().iter().filter(|line| line.contains("heavy")).count(), 30);
    let output = run_load(&["-c", "4", "--no-watch", "--stages", "500ms@400,500ms@400,500ms@0", &server.url]);
    assert_all_good(&output);
    // The area under the stages: 100 + 200 + 100.
    assert!((398..=401).contains(&output.total("requests")), "{:#}", output.record["totals"]);
    let stages = output.record["stages"].as_array().unwrap();
    let good: u64 = stages.iter().map(|stage| stage["good"].as_u64().unwrap()).sum();
    assert_eq!((stages.len(), good), (3, output.total("good")), "{stages:#?}");
    let counted: u64 =
        stages.iter().map(|stage| stage["last_byte"]["response"]["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, good);
    assert!(output.stdout.contains("2: 0.5-1.0 s, 400/s "), "{}", output.stdout);
    let connections = run_load(&["--no-watch", "-T", "20ms", "--stages", "300ms@3c,300ms@1c", &server.url]);
    assert_all_good(&connections);
    assert_eq!(connections.total("connections.opened"), 3, "no connection is opened again");
    let connect_to = server.url.trim_start_matches("http://");
    let header =
        ["-c", "1", "-n", "1", "--no-watch", "--proxy-protocol", "v1", "--proxy-source", "192.0.2.7"];
    let before = server.received().len();
    run_load(&[&header[..], &["--connect-to", connect_to, "http://name.invalid:81/x"]].concat());
    let head = &server.received()[before].1;
    assert!(head.starts_with("PROXY TCP4 192.0.2.7 127.0.0.1 1024 "), "{head}");
    assert!(head.contains("\r\nGET /x HTTP/1.1\r\nHost: name.invalid:81"), "{head}");
}

#[test]
fn a_scenario_file_and_variables_set_defaults_with_positions_in_problems() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("p.toml").display().to_string();
    let text = "urls = [\"http://127.0.0.1:1/a\"]\nrate = \"2k\"\nduration = \"1m30s\"\nexpect-body = \"ok\"\n\
        [[request]]\nurl = \"http://127.0.0.1:1/b\"\nmethod = \"PUT\"\ndata = \"x\"\nweight = 3\n";
    fs::write(&path, text).unwrap();
    let output = run_weir(&["load", "--check", "-f", &path, "-R", "3k"]);
    assert_eq!(output.code, 0, "{output:?}");
    for part in [
        "GET http://127.0.0.1:1/a (25.0 % of the requests)",
        "PUT http://127.0.0.1:1/b, 1 B body (75.0 %",
        "open loop, 3.00 k/s at even intervals",
        "after 90",
        "body with 'ok'",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    fs::write(&path, format!("{text}weigth = 1\n").replace("\"2k\"", "\"fast\"")).unwrap();
    let output = run_weir(&["load", "--check", "-f", &path, "-c", "0"]);
    assert_eq!(output.code, 2, "{output:?}");
    for part in [
        ":2:8: rate: 'fast'",
        ":10:1: unknown key 'request.weigth' (did you mean 'weight'?)",
        "--connections: 0",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}

#[test]
fn a_result_has_the_form_of_other_load_generators() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for (form, line) in [
        ("ab", "Complete requests:      300"),
        ("wrk", "  300 requests in"),
        ("h2load", "300 done, 300 succeeded"),
    ] {
        let output = run_weir(&[
            "load",
            "-n",
            "300",
            "-c",
            "3",
            "--no-watch",
            "--format",
            form,
            &origin.url("/?s=10"),
        ]);
        assert!(output.stdout.contains(line), "{form}: {}", output.stdout);
    }
}
