//! Sending of large stored bodies: to clients of all speeds, in parts, and without memory for those that do not read.

use std::io::{Read, Write};
use std::sync::Arc;

use super::{RESULTS, RecordingServer, config, ctl, get, response};
use crate::support::hostile_client::connect;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

/// More than the sockets of both ends hold, so that most writes are partial.
const BODY_BYTES: usize = 12 << 20;

fn content() -> Arc<[u8]> {
    (0..BODY_BYTES as u32).map(|at| (at % 251) as u8).collect()
}

/// Starts a proxy that has the content at `/large`.
fn start(content: &Arc<[u8]>, route: &str) -> ProxyUnderTest {
    let sent = Arc::clone(content);
    let server = RecordingServer::start(move |_, _| {
        let head =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        [head.as_bytes(), &sent].concat()
    });
    let text = config(&server.server.authority, "memory = \"64m\"\nobject-max = \"16m\"", "", route);
    let bind = "bind = \"127.0.0.1:0\"\n";
    let proxy =
        ProxyUnderTest::weir(&text.replace(bind, &format!("{bind}timeouts = {{ write = \"2s\" }}\n")));
    assert!(get(&proxy, "/large", "").body == content[..], "while it arrives");
    assert_eq!(server.requests(), 1);
    proxy
}

#[test]
fn large_stored_bodies_are_complete_for_all_clients() {
    let _shared = shared_machine();
    let content = content();
    let proxy = start(&content, "");
    assert!(get(&proxy, "/large", "").body == content[..]);
    // Ranges that begin and end within pieces, and are shorter than one.
    for range in [1..BODY_BYTES, 65_535..65_537, 100_000..5_000_001, 1_000_000..1_000_900] {
        let response = get(&proxy, "/large", &format!("Range: bytes={}-{}\r\n", range.start, range.end - 1));
        assert!(response.status == 206 && response.body == content[range.clone()], "{range:?}");
    }
    // Two requests at once, of a client that reads little at a time.
    let mut client = connect(proxy.authority());
    let get_large = "GET /large HTTP/1.1\r\nHost: h\r\n";
    client.write_all(format!("{get_large}\r\n{get_large}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 10_000];
    loop {
        match client.read(&mut buffer).unwrap() {
            0 => break,
            length => bytes.extend_from_slice(&buffer[..length]),
        }
    }
    for number in 0..2 {
        let start = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        assert!(bytes[start..].starts_with(&content), "response {number}");
        bytes.drain(..start + BODY_BYTES);
    }
    assert!(bytes.is_empty());
    // A client that knows no length.
    let mut client = connect(proxy.authority());
    client.write_all(b"GET /large HTTP/1.0\r\nHost: h\r\n\r\n").unwrap();
    client.read_to_end(&mut bytes).unwrap();
    assert!(bytes.ends_with(&content));
    proxy.assert_all_returned();
}

#[test]
fn a_limited_rate_holds_for_large_stored_bodies() {
    let _shared = shared_machine();
    let content = content();
    let proxy = start(&content, "limit-rate = \"20m\"");
    let response = get(&proxy, "/large", "Range: bytes=7-2000000\r\n");
    assert!(response.body == content[7..=2_000_000]);
    let waits = proxy.metrics().sum_known("weir_limit_rate_waits_total", &[]);
    assert!(waits > 0.0, "{waits}");
    proxy.assert_all_returned();
}

#[test]
fn clients_that_do_not_read_a_stored_body_are_given_up_and_cost_no_copy() {
    const CLIENTS: usize = 50;
    let _shared = shared_machine();
    let content = content();
    let proxy = start(&content, "");
    let before = proxy.resident_bytes();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(proxy.authority());
            client.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            client
        })
        .collect();
    let mut max_resident = before;
    let are_given_up = within(EVENT_TIMEOUT, || {
        max_resident = max_resident.max(proxy.resident_bytes());
        let lines = proxy.lines("access.json");
        lines.iter().filter(|line| line.contains("write_timeout")).count() == CLIENTS
    });
    assert!(are_given_up, "{:#?}", proxy.lines("access.json"));
    let grown = max_resident - before;
    assert!(grown < 2 << 20, "{CLIENTS} clients that take nothing cost {grown} bytes");
    drop(clients);
    proxy.assert_all_returned();
}

/// Bytes of a body that both ends of a connection hold, so that the proxy has done with it before its client reads.
const HELD_BYTES: usize = 200_000;

/// Starts a proxy whose server responds to `/a` with this many `a`, and so on. Returns its config, too.
fn start_letters() -> (RecordingServer, ProxyUnderTest, String) {
    let server = RecordingServer::start(|request, _| {
        let letter = request.target().trim_start_matches('/').to_owned();
        response("Cache-Control: max-age=600\r\n", &letter.repeat(HELD_BYTES))
    });
    let text = config(&server.server.authority, "memory = \"8m\"\nobject-max = \"300k\"", "", "");
    let proxy = ProxyUnderTest::weir(&text);
    (server, proxy, text)
}

fn has_letters(body: &[u8], letter: &str) -> bool {
    body.len() == HELD_BYTES && body.iter().all(|byte| [*byte] == letter.as_bytes())
}

#[test]
fn a_slow_client_gets_the_bytes_of_a_body_that_was_removed_meanwhile() {
    let _shared = shared_machine();
    let (_server, proxy, _) = start_letters();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", proxy.process_id())).unwrap();
    assert!(maps.contains("memfd:weir-cache"), "large bodies are in a file in memory");
    assert!(has_letters(&get(&proxy, "/a", "").body, "a"));
    // Hits whose bytes stay in the queues of the sockets.
    let slow: Vec<_> = (0..20)
        .map(|_| {
            let mut client = connect(proxy.authority());
            client.write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
            client
        })
        .collect();
    proxy.metrics_until("all are sent", |metrics| metrics.sum(RESULTS, &[("result", "hit")]) == 20.0);
    ctl(&proxy, &["cache", "purge", "main", "all"]);
    // Their bodies get its part of the file.
    for letter in "bcdefghijklm".chars().map(String::from) {
        assert!(has_letters(&get(&proxy, &format!("/{letter}"), "").body, &letter));
    }
    for mut client in slow {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        let start = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        assert!(has_letters(&bytes[start..], "a"));
    }
    proxy.assert_all_returned();
}

#[test]
fn a_reload_that_changes_the_memory_keeps_large_bodies_right() {
    let _shared = shared_machine();
    let (_server, proxy, text) = start_letters();
    for (memory, count) in [("9m", 1), ("10m", 2), ("8m", 3)] {
        proxy.reload(&text.replace("\"8m\"", &format!("\"{memory}\"")));
        proxy.metrics_until("the reload", |metrics| {
            metrics.sum("weir_reloads_total", &[("result", "applied")]) == f64::from(count)
        });
        for _ in 0..2 {
            for letter in ["a", "b", "c"] {
                assert!(has_letters(&get(&proxy, &format!("/{letter}"), "").body, letter), "{memory}");
            }
        }
    }
    let hits = proxy.metrics().sum_known(RESULTS, &[("result", "hit")]);
    assert!(hits >= 9.0, "{hits}");
    proxy.assert_all_returned();
}
