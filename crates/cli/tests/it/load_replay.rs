//! Logs, HARs, rates and addresses of `weir load`, against what a server received.

#![expect(
    clippy::disallowed_methods,
    reason = "a server of its own, on threads, with the times of its responses"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::support::{
    OriginProcess, RunOutput, WEIR, run_load, run_weir, shared_machine, start, temp_dir, within,
};

/// Server of one request at a time and connection, which sends the time of each response, and the request line.
fn start_server(address: &str, delay: Duration) -> (String, mpsc::Receiver<(Instant, String)>) {
    let listener = TcpListener::bind(address).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    // The threads end with the process of the test.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || serve(stream, delay, &sender));
        }
    });
    (url, received)
}

fn serve(mut stream: TcpStream, delay: Duration, sender: &mpsc::Sender<(Instant, String)>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
        while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let line = String::from_utf8_lossy(&bytes[..end]).lines().next().unwrap_or_default().to_owned();
            bytes.drain(..end + 4);
            std::thread::sleep(delay);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
            let _ = sender.send((Instant::now(), line));
        }
    }
}

/// Returns the number in a line of the output, behind `label`.
fn figure(output: &RunOutput, label: &str) -> f64 {
    let rest = output.stdout.split_once(label).unwrap_or_else(|| panic!("no {label}: {}", output.stdout)).1;
    let digits: String =
        rest.trim_start().chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    digits.parse().unwrap()
}

#[test]
fn every_form_has_the_rate_that_the_server_saw() {
    let _shared = shared_machine();
    // Four connections with 700 ms each, and an open loop with three times what the server carries: in both,
    // responses arrive after the end of the load.
    for (rate, label, form) in [
        (None, "Requests/sec:", "wrk"),
        (Some("20"), "Requests per second:", "ab"),
        (Some("20"), "s, ", "h2load"),
        (Some("20"), "Requests/sec:", "wrk"),
    ] {
        let (url, received) = start_server("127.0.0.1:0", Duration::from_millis(700));
        let mut arguments =
            vec!["-c", "4", "-d", "3", "-w", "5s", "--no-watch", "--max-error-rate", "1", "--format", form];
        arguments.extend(rate.into_iter().flat_map(|rate| ["-R", rate]));
        arguments.push(&url);
        let output = run_load(&arguments);
        let times: Vec<Instant> = received.try_iter().map(|(at, _)| at).collect();
        // The first response comes 0.7 s after the start of the load.
        let start = times[0] - Duration::from_millis(700);
        let within = times.iter().filter(|at| at.duration_since(start) < Duration::from_secs(3)).count();
        let rate_per_s = figure(&output, label);
        assert_eq!(rate_per_s, (output.number("rates.responses_per_s") * 100.0).round() / 100.0, "{form}");
        // At a border of the window one response of each connection may count on the other side.
        assert!((rate_per_s * 3.0 - within as f64).abs() <= 4.1, "{form}: {rate_per_s}, server {within}");
        assert!(times.len() > within, "{form}: nothing arrived in the drain");
        assert!(output.stderr.contains("# weir: "), "{form}: {}", output.stderr);
    }
}

#[test]
fn a_log_is_read_from_a_pipe_and_compressed_and_its_bad_lines_are_counted() {
    let _shared = shared_machine();
    let (url, received) = start_server("127.0.0.1:0", Duration::ZERO);
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let line = |target: &str| {
        format!("192.0.2.1 - - [10/Oct/2020:13:55:36 +0000] \"GET {target} HTTP/1.1\" 200 5\n")
    };
    let text = ["/a", "/b c", "/d\u{fc}", "/e"].map(line).concat();
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    bytes.extend_from_slice(text.as_bytes());
    // Latin-1.
    bytes.extend_from_slice(b"192.0.2.1 - - [10/Oct/2020:13:55:36 +0000] \"GET /\xe9 HTTP/1.1\" 200 5\n");
    fs::write(path("log"), bytes).unwrap();
    for command in ["gzip -k log", "mkfifo pipe", "cp log.gz pipe &"] {
        let status =
            std::process::Command::new("sh").args(["-c", command]).current_dir(directory.path()).status();
        assert!(status.unwrap().success(), "{command}");
    }
    for name in ["log", "log.gz", "pipe"] {
        let output = run_load(&["-c", "1", "--no-watch", "--replay", &path(name), &url]);
        let lines: Vec<String> = received.try_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["GET /a HTTP/1.1", "GET /e HTTP/1.1"], "{name}");
        assert!(
            output.stdout.contains("5 read, 2 sent, 3 skipped (unsendable 3)"),
            "{name}: {}",
            output.stdout
        );
        let warning =
            format!("{}: 5 lines read, 3 skipped: 3 that HTTP cannot carry ({}:2:1:", path(name), path(name));
        assert!(output.stderr.contains(&warning), "{name}: {}", output.stderr);
    }
    let strict = run_weir(&["load", "--strict", "--replay", &path("log"), &url]);
    assert_eq!(strict.code, 2, "{strict:?}");
    assert!(strict.stderr.contains("log:3:1: 'GET /d"), "{}", strict.stderr);
}

/// Runs weir where `localhost` has the addresses ::1 and 127.0.0.1, in this order, in a mount namespace of its own.
/// `None` without the privilege.
fn run_with_two_addresses(arguments: &[&str]) -> Option<RunOutput> {
    let directory = temp_dir();
    let hosts = directory.path().join("hosts").display().to_string();
    fs::write(&hosts, "::1 localhost\n127.0.0.1 localhost\n").unwrap();
    let script = format!("mount --bind {hosts} /etc/hosts || exit 99; exec \"$@\"");
    let mut all = vec![
        "-m",
        "sh",
        "-c",
        &script,
        "sh",
        WEIR,
        "load",
        "--no-baseline",
        "--no-watch",
        "--json",
        "RECORD",
    ];
    all.extend(arguments);
    let output = start("unshare", &all).finish();
    if output.stdout.is_empty() && [1, 99].contains(&output.code) && !output.stderr.contains("weir:") {
        test_needs::skip("root", &output.stderr);
        return None;
    }
    Some(output)
}

#[test]
fn a_name_with_several_addresses_uses_one_that_accepts() {
    let _shared = shared_machine();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (url, received) = start_server(address, Duration::ZERO);
        let (_, port) = url.rsplit_once(':').unwrap();
        let target = format!("http://localhost:{port}/");
        let Some(output) = run_with_two_addresses(&["-n", "20", "-c", "2", &target]) else { return };
        assert_eq!(output.count("totals.responses"), 20, "{output:?}");
        assert_eq!(received.try_iter().count(), 20);
        let used = url.strip_prefix("http://").unwrap();
        assert_eq!(output.record["plan"]["addresses"][0]["used"], serde_json::json!([used]));
        assert!(output.stdout.contains(&format!("{used} for localhost:{port} (which has 2)")), "{output:?}");
        let all = run_with_two_addresses(&["-n", "20", "-c", "2", "--addresses", "all", &target]).unwrap();
        assert!(all.count("totals.connections.failed") > 0, "{all:?}");
    }
    let none = run_with_two_addresses(&["-n", "1", "-c", "1", "http://localhost:1/"]).unwrap();
    let is_named = |address: &str| none.stderr.contains(&format!("{address}:1: connection refused"));
    assert!(none.code == 1 && is_named("[::1]") && is_named("127.0.0.1"), "{none:?}");
}

#[test]
fn a_second_host_field_is_rejected() {
    let origin = OriginProcess::start(&["-t", "1"]);
    let two = run_weir(&["load", "-n", "1", "-H", "Host: a", "-H", "host: b", &origin.url("/")]);
    assert!(two.code == 2 && two.stderr.contains("one Host field"), "{two:?}");
}

#[test]
fn a_body_comes_from_a_pipe() {
    let origin = OriginProcess::start(&["-t", "1"]);
    let directory = temp_dir();
    let pipe = directory.path().join("body").display().to_string();
    let made = std::process::Command::new("sh")
        .args(["-c", "mkfifo body && echo hello > body &"])
        .current_dir(directory.path())
        .status();
    assert!(made.unwrap().success());
    assert!(within(Duration::from_secs(20), || directory.path().join("body").exists()));
    let output = run_load(&["-n", "4", "-c", "1", "--no-watch", "-D", &pipe, &origin.url("/")]);
    assert_eq!(output.count("totals.responses"), 4, "{output:?}");
}

/// Starts a server that answers each request with the same bytes, and closes the connection.
fn start_scripted(response: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(response).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[test]
fn a_malformed_response_is_counted_by_its_defect() {
    let _shared = shared_machine();
    let large: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(300_000)).into_boxed_str());
    for (response, reason, text) in [
        ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare_lf", "LF without CR"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "content_length_repeated",
            "more than one Content-Length",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "framing_conflict",
            "both a Transfer-Encoding and a Content-Length",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "content_length_invalid", "decimal"),
        (large, "head_too_large", "longer than allowed"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "invalid_version", "no HTTP response"),
        ("HTTP/1.1 2x0 OK\r\n\r\n", "invalid_status_line", "status line"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk_size_invalid", "hexadecimal"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "transfer_encoding_invalid", "chunked"),
        ("HTTP/1.1 200 OK\r\na(b: c\r\nContent-Length: 0\r\n\r\n", "invalid_field_name", "token"),
        (
            "HTTP/1.1 200 OK\r\na: \x01\r\nContent-Length: 0\r\n\r\n",
            "invalid_field_value",
            "control character",
        ),
        ("HTTP/1.1 200 OK\r\na : b\r\nContent-Length: 0\r\n\r\n", "space_in_field_name", "whitespace"),
    ] {
        let url = start_scripted(response.as_bytes());
        let output = run_load(&["-c", "1", "-n", "3", "--no-watch", "-v", &url]);
        let errors = output.number("totals.errors.parse");
        assert_eq!(errors, 3.0, "{reason}: {}", output.stdout);
        let counted = output.number(&format!("totals.parse_errors.{reason}.count"));
        assert_eq!(counted, errors, "{reason}: {}", output.stdout);
        assert!(output.stdout.contains(&format!("parse: {reason} 3, ")), "{reason}: {}", output.stdout);
        assert!(output.stdout.contains(text), "{reason}: {}", output.stdout);
    }
    // Decoys: an empty reason phrase, a chunk extension with a trailer section, and a status without content.
    for response in [
        "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nt: u\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let url = start_scripted(response.as_bytes());
        let output = run_load(&["-c", "1", "-n", "3", "--no-watch", &url]);
        assert_eq!(output.number("totals.good"), 3.0, "{}", output.stdout);
        assert!(!output.stdout.contains("parse"), "{}", output.stdout);
    }
}

#[test]
fn every_output_has_the_defects() {
    let _shared = shared_machine();
    let url = start_scripted(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n");
    let answer = run_load(&["-c", "1", "-n", "3", "--no-watch", &url]);
    assert!(answer.stdout.contains("malformed: a line ends with LF"), "{}", answer.stdout);
    assert!(answer.stdout.contains("bare_lf 3"), "{}", answer.stdout);
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let outputs = [path("csv"), path("markdown"), path("openmetrics")];
    let mut arguments = vec!["-c", "1", "-n", "3", "--no-watch", &url];
    for (flag, output) in ["--csv", "--markdown", "--openmetrics"].iter().zip(&outputs) {
        arguments.extend([*flag, output.as_str()]);
    }
    run_load(&arguments);
    let [csv, markdown, openmetrics] = outputs.map(|output| fs::read_to_string(output).unwrap());
    assert!(csv.lines().next().unwrap().ends_with(",parse_errors,events"), "{csv}");
    assert!(csv.lines().any(|line| line.ends_with(",bare_lf:3,")), "{csv}");
    assert!(markdown.contains("| Parse error `bare_lf` | 3: a line ends with LF"), "{markdown}");
    assert!(openmetrics.contains("weir_load_parse_errors_total{reason=\"bare_lf\"} 3"), "{openmetrics}");
}

/// Starts a server that counts a request before it responds.
fn start_counting() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let counter = Arc::clone(&counter);
            std::thread::spawn(move || {
                let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    bytes.extend_from_slice(&buffer[..length]);
                    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                        bytes.drain(..end + 4);
                        counter.fetch_add(1, Ordering::SeqCst);
                        // A client that gave up is counted all the same.
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    }
                }
            });
        }
    });
    (url, count)
}

#[test]
fn a_rate_far_above_the_machine_ends_in_time_and_counts_truthfully() {
    let _shared = shared_machine();
    let cases: [&[&str]; 5] = [
        &["-R", "1e9", "-c", "1"],
        &["-R", "1e9", "-c", "4", "-t", "2", "--arrivals", "poisson"],
        &["-R", "300M", "-c", "2", "-n", "20M"],
        &["-R", "1e9", "-c", "2", "-w", "300ms", "--timeout-from", "send"],
        &["-R", "0.001", "-c", "1"],
    ];
    for case in cases {
        let (url, received) = start_counting();
        let arguments = [&["-d", "1", "--no-watch", "-w", "1s"], case].concat();
        // A flag counts once.
        let arguments = match case.contains(&"-w") {
            true => [&["-d", "1", "--no-watch"], case].concat(),
            false => arguments,
        };
        let began = Instant::now();
        let output = run_load(&[&arguments[..], &[&url]].concat());
        let took = began.elapsed();
        let number = |path: &str| output.number(path);
        let sent = number("totals.sent");
        let is_same = || received.load(Ordering::SeqCst) as f64 == sent;
        assert!(
            within(Duration::from_secs(20), is_same),
            "{case:?}: {received:?} received, {}",
            output.stdout
        );
        // 1 s, the timeout of 1 s, and the start of a debug binary on a busy machine.
        assert!(took < Duration::from_secs(20), "{case:?} took {took:?}");
        if case[1] == "0.001" {
            assert_eq!((sent, number("totals.requests")), (1.0, 1.0), "{}", output.stdout);
            continue;
        }
        let due = number("totals.requests") + number("totals.dropped");
        let expected = if case.contains(&"-n") {
            20e6
        } else if case[1] == "300M" {
            300e6
        } else {
            1e9
        };
        // Constant arrivals are exact except for the rounding of the last due time.
        let tolerance = if case.contains(&"poisson") {
            1e6
        } else if case.contains(&"-n") {
            0.0
        } else {
            1.0
        };
        assert!((due - expected).abs() <= tolerance, "{case:?}: {due} due, {}", output.stdout);
        assert_eq!(output.code, 4, "{case:?}: {}", output.stdout);
    }
}

/// Runs weir with the bytes of a file on its standard input.
fn run_with_stdin(input: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(WEIR)
        .args(arguments)
        .stdin(fs::File::open(input).unwrap())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn logs_and_bodies_come_from_the_standard_input() {
    let _shared = shared_machine();
    let (url, received) = start_server("127.0.0.1:0", Duration::ZERO);
    let directory = temp_dir();
    let line = |target: &str| {
        format!("192.0.2.1 - - [10/Oct/2020:13:55:36 +0000] \"GET {target} HTTP/1.1\" 200 5\n")
    };
    fs::write(directory.path().join("log"), ["/a", "/b"].map(line).concat()).unwrap();
    let command = "gzip -k log; if command -v zstd >/dev/null; then zstd -q log; fi";
    let status =
        std::process::Command::new("sh").args(["-c", command]).current_dir(directory.path()).status();
    assert!(status.unwrap().success());
    for name in ["log", "log.gz", "log.zst"] {
        let path = directory.path().join(name);
        if !path.exists() {
            continue;
        }
        let (code, text) = run_with_stdin(&path, &["load", "-c", "1", "--no-watch", "--replay", "-", &url]);
        let lines: Vec<String> = received.try_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["GET /a HTTP/1.1", "GET /b HTTP/1.1"], "{name}: {code:?} {text}");
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let body = directory.path().join("body");
    fs::write(&body, "12345").unwrap();
    let (code, text) =
        run_with_stdin(&body, &["load", "-c", "1", "-n", "2", "--no-watch", "-D", "-", &origin.url("/")]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("POST "), "{text}");
}
