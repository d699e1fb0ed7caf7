//! The three formats, each read by a foreign parser: Python's `json` and `re`, HAProxy's `halog`;
//! and content that no client may inject into a line.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::LoggedProxy;
use crate::support::faulty_origins::{ok_response, respond_to_each};
use crate::support::haproxy_log::HaproxyLogLine;
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

const JSON_LOG: &str = "to = \"file:HOME/json\"\nformat = \"json\"";
const COMBINED_LOG: &str = "to = \"file:HOME/combined\"\nformat = \"combined\"";
const HAPROXY_LOG: &str = "to = \"file:HOME/haproxy\"\nformat = \"haproxy\"";

/// Names of a JSON line that scripts rely on.
const JSON_FIELDS: &[&str] = &[
    "time",
    "client",
    "client_port",
    "listener",
    "route",
    "pool",
    "server",
    "method",
    "target",
    "version",
    "host",
    "status",
    "end",
    "termination",
    "refusal",
    "bytes_in",
    "bytes_out",
    "content_bytes",
    "tq_us",
    "tw_us",
    "tc_us",
    "tr_us",
    "td_us",
    "total_us",
    "retries",
    "reused",
    "wasted",
    "request_id",
    "user_agent",
    "referer",
];

#[test]
fn a_json_line_is_an_object_that_says_everything() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[JSON_LOG]);
    let mut client = setup.proxy.client();
    let port = client.stream.local_addr().unwrap().port();
    let response = client.get("/big");
    let lines = setup.proxy.wait_for_lines_with("json", "\"/big\"", 1);
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    let missing: Vec<&&str> = JSON_FIELDS.iter().filter(|name| line.get(**name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?} of {line:#}");
    for (name, expected) in [
        ("client", Value::from("127.0.0.1")),
        ("client_port", port.into()),
        ("listener", "web".into()),
        ("route", "main".into()),
        ("pool", "app".into()),
        ("server", "one".into()),
        ("method", "GET".into()),
        ("status", 200.into()),
        ("end", "done".into()),
        ("retries", 0.into()),
        ("bytes_out", ((response.head.len() + response.body.len()) as u64).into()),
    ] {
        assert_eq!(line[name], expected, "{name} of {line:#}");
    }
    assert!(line["total_us"].as_u64() > Some(0), "{line:#}");
}

/// Parses a file with a Python script, which stops at the first unreadable line; returns the number
/// of parsed lines.
fn read_with_python(script: &str, path: &Path) -> usize {
    let output = Command::new("python3").args(["-c", script]).arg(path).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    stdout.trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
}

const JSON_READER: &str = "
import json, sys
print(sum(1 for line in open(sys.argv[1]) if isinstance(json.loads(line), dict)))";

const COMBINED_READER: &str = r#"
import re, sys
form = re.compile(r'(\S+) (\S+) (\S+) \[(\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4})\] '
                  r'"((?:[^"\\]|\\.)*)" (\d{3}|-) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"$')
count = 0
for line in open(sys.argv[1]):
    if not form.match(line.rstrip("\n")):
        sys.exit("not a combined line: " + line)
    count += 1
print(count)"#;

#[test]
fn python_reads_json_and_combined_lines() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[JSON_LOG, COMBINED_LOG]);
    let count = setup.send_all_requests();
    for (name, script) in [("json", JSON_READER), ("combined", COMBINED_READER)] {
        assert_eq!(setup.proxy.wait_for_lines(name, count).len(), count);
        assert_eq!(read_with_python(script, &setup.proxy.file(name)), count, "{name}");
    }
    // The size in a combined line is that of the content.
    let big = setup.proxy.wait_for_lines_with("combined", "GET /big", 5);
    assert!(big[0].contains(" 200 100000 "), "{}", big[0]);
}

/// Runs `halog` on a file of lines without a prefix; returns the fields of each row.
fn run_halog(flag: &str, path: &Path) -> Vec<Vec<String>> {
    // `halog` expects the prefix of a syslog daemon before a line: four fields that are missing
    // here.
    let output = Command::new("halog")
        .args(["-q", "-s", "-4", flag])
        .stdin(File::open(path).unwrap())
        .output()
        .unwrap_or_else(|error| panic!("halog: {error}; it comes with haproxy: install that"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Asserts that the counts of halog match the requests: by status, by code, by server.
fn assert_halog_agrees(proxy: &ProxyUnderTest, lines: &[String], count: usize) {
    let bare = lines.iter().map(|line| {
        let start = line[..line.find(" [").unwrap()].rfind(' ').map_or(0, |at| at + 1);
        format!("{}\n", &line[start..])
    });
    let path = proxy.file("bare");
    std::fs::write(&path, bare.collect::<String>()).unwrap();
    let totals = |flag: &str| {
        let rows = run_halog(flag, &path).into_iter();
        rows.map(|row| (row[0].clone(), row[1].parse::<usize>().unwrap())).collect::<Vec<_>>()
    };
    let mut statuses = totals("-st");
    statuses.sort_unstable();
    let expected = [("200", 25), ("403", 3), ("500", 7)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(statuses, expected);
    assert_eq!(totals("-tc").iter().map(|(_, n)| n).sum::<usize>(), count);
    // By server: status classes 1xx to 5xx, others, and the total of requests.
    let servers = run_halog("-srv", &path);
    let server = servers.iter().find(|row| row[0].ends_with("/one")).expect("the server");
    let total = server.iter().skip(1).filter_map(|text| text.parse::<usize>().ok());
    assert!(total.clone().any(|n| n == 32), "25 + 7 requests of {servers:?}");
    assert!(total.clone().any(|n| n == 7), "7 of them 5xx: {servers:?}");
}

fn assert_lines(lines: &[String]) {
    for text in lines {
        let line = HaproxyLogLine::http(text);
        let [request, wait, connect, response, total] = line.timers[..] else { panic!("{text}") };
        let parts: i64 = [request, wait, connect, response].iter().filter(|part| **part > 0).sum();
        assert!(total >= 0 && parts <= total + 4, "the parts are longer than the whole: {text}");
        if line.server == "one" {
            assert!([request, wait, connect, response].iter().all(|part| *part >= 0), "{text}");
            assert_eq!((line.code.as_str(), line.backend.as_str()), ("--", "app"), "{text}");
        } else {
            assert_eq!((line.code.as_str(), line.server.as_str()), ("PR", "<NOSRV>"), "{text}");
            assert!(connect == -1 && response == -1, "{text}");
        }
        assert!(line.client.starts_with("127.0.0.1:"));
        assert_eq!(line.frontend, "web");
        assert!(line.request.starts_with("GET /") && line.request.ends_with(" HTTP/1.1"));
    }
}

#[test]
fn halog_reads_haproxy_lines_and_counts_what_was_asked() {
    let _shared = shared_machine();
    if !is_installed("halog", &["-h"]) {
        return;
    }
    let setup = LoggedProxy::start(&[HAPROXY_LOG]);
    let count = setup.send_all_requests();
    let lines = setup.proxy.wait_for_lines("haproxy", count);
    assert_eq!(lines.len(), count);
    assert_lines(&lines);
    let big = lines.iter().map(|line| HaproxyLogLine::http(line));
    assert!(big.clone().filter(|line| line.request.contains("/big")).all(|line| line.bytes > 100_000));
    assert_halog_agrees(&setup.proxy, &lines, count);
}

#[test]
fn the_readers_of_these_tests_read_the_lines_of_haproxy_itself() {
    let _shared = shared_machine();
    if !is_installed("haproxy", &["-v"]) || !is_installed("halog", &["-h"]) {
        return;
    }
    let origin = respond_to_each(|request, _| {
        Some(match request.target() {
            "/fail" => b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh".to_vec(),
            "/big" => ok_response(&[b'x'; 100_000]),
            _ => ok_response(b"here"),
        })
    });
    let proxy = ProxyUnderTest::haproxy(&format!(
        "global\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  \
         option httplog\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n\
         frontend web\n  bind 127.0.0.1:PORT\n  http-request deny if {{ path /deny }}\n  \
         default_backend app\nbackend app\n  server one {}\n",
        origin.authority
    ));
    let setup = LoggedProxy { proxy, _origin: origin };
    let count = setup.send_all_requests();
    let lines = setup.proxy.wait_for_lines("stdout", count);
    assert_eq!(lines.len(), count);
    assert_lines(&lines);
    assert_halog_agrees(&setup.proxy, &lines, count);
}

#[test]
fn nobody_can_forge_a_line() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[JSON_LOG, COMBINED_LOG, HAPROXY_LOG]);
    let fields = "Referer: a\" 200 \"b\\\r\nUser-Agent: \u{1b}[31mred\u{7f}\u{85}\r\nHost: h\"\\\r\n";
    let mut request_count = 0;
    for target in ["/a\"b", "/a\\\"b", "/%0d%0aforged", "/\u{2028}x", "/a\tb", "/\u{1b}[2J"] {
        let mut client = setup.proxy.client();
        client.send(format!("GET {target} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n").as_bytes());
        let _ = client.read_response();
        request_count += 1;
    }
    // A line break within a field or a target stays in the head and never breaks a log line.
    let mut client = setup.proxy.client();
    client.send(b"GET /x\rforged HTTP/1.1\r\nHost: t\r\n\r\n");
    let _ = client.read_response();
    request_count += 1;
    for name in ["json", "combined", "haproxy"] {
        let lines = setup.proxy.wait_for_lines(name, request_count);
        assert_eq!(lines.len(), request_count, "{name}: {lines:#?}");
        let clean =
            |line: &String| !line.chars().any(|character| character.is_control() || character == '\u{2028}');
        assert!(lines.iter().all(clean), "{name}: {lines:#?}");
    }
    assert_eq!(read_with_python(JSON_READER, &setup.proxy.file("json")), request_count);
    assert_eq!(read_with_python(COMBINED_READER, &setup.proxy.file("combined")), request_count);
    for line in setup.proxy.lines("haproxy") {
        HaproxyLogLine::http(&line);
    }
}

#[test]
fn secrets_of_a_query_are_in_no_log() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[JSON_LOG, COMBINED_LOG, HAPROXY_LOG]);
    let mut client = setup.proxy.client();
    let names = ["token", "access_token", "password", "secret", "api_key", "signature", "code"];
    for name in names {
        client.get(&format!("/x?a=1&{name}=hunter2&b=2"));
    }
    for file in ["json", "combined", "haproxy"] {
        for line in setup.proxy.wait_for_lines(file, names.len()) {
            assert!(line.contains("/x") && !line.contains("hunter2"), "{file}: {line}");
        }
    }
    let metrics = setup.proxy.metrics();
    assert!(
        !metrics.samples.iter().any(|sample| sample.labels.values().any(|text| text.contains("hunter2")))
    );
}

#[test]
fn invalid_heads_are_logged_with_what_could_be_read() {
    let _shared = shared_machine();
    let setup =
        LoggedProxy::start(&["to = \"file:HOME/json\"", "to = \"file:HOME/haproxy\"\nformat = \"haproxy\""]);
    let send = |bytes: &[u8]| {
        let mut stream = crate::support::hostile_client::connect(setup.proxy.authority());
        std::io::Write::write_all(&mut stream, bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut received);
    };
    let long = format!("GET /long HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let table: [(&[u8], Option<&str>, Option<&str>); 9] = [
        (b"GET /space in it HTTP/1.1\r\nHost: a\r\n\r\n", Some("GET"), Some("/space in it")),
        (b"GET /no-host HTTP/1.1\r\n\r\n", Some("GET"), Some("/no-host")),
        (b"POST /framing HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", Some("POST"), Some("/framing")),
        (b"\r\nPUT /version HTTP/3.0\r\nHost: a\r\n\r\n", Some("PUT"), Some("/version")),
        (b"DELETE /raw\xc3\xa4\x01 HTTP/1.1\r\nHost: a\r\n\r\n", Some("DELETE"), Some("/raw")),
        (b"GET /half?token=secret", Some("GET"), Some("/half?token=***")),
        (long.as_bytes(), Some("GET"), Some("/long")),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", None, None),
        (b"G@T /method HTTP/1.1\r\nHost: a\r\n\r\n", None, None),
    ];
    for (at, (bytes, method, target)) in table.into_iter().enumerate() {
        send(bytes);
        let line: Value = serde_json::from_str(&setup.proxy.wait_for_lines("json", at + 1)[at]).unwrap();
        assert_eq!(line["method"].as_str(), method, "{line}");
        let logged = line["target"].as_str();
        assert_eq!(logged.is_some(), target.is_some(), "{line}");
        assert!(logged.unwrap_or_default().starts_with(target.unwrap_or_default()), "{line}");
    }
    let haproxy = setup.proxy.wait_for_lines("haproxy", 9);
    assert!(
        haproxy[1].ends_with("\"GET /no-host HTTP/1.1\"") && haproxy[7].ends_with("\"<BADREQ>\""),
        "{haproxy:#?}"
    );
}
