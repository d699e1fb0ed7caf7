//! Logs, HARs, rates and addresses of `weir load`, against what a server received.

#![expect(
    clippy::disallowed_methods,
    reason = "a server of its own, on threads, with the times of its responses"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::support::{OriginProcess, RunOutput, WEIR, run_load, run_weir, shared_machine, start, temp_dir};

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
    assert!(crate::support::within(Duration::from_secs(20), || directory.path().join("body").exists()));
    let output = run_load(&["-n", "4", "-c", "1", "--no-watch", "-D", &pipe, &origin.url("/")]);
    assert_eq!(output.count("totals.responses"), 4, "{output:?}");
}
