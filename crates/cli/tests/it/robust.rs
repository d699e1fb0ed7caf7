//! `weir serve` with slow, hostile or many peers: other clients are served meanwhile, every limit
//! holds, and no resources leak.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, can_open_descriptors, pause_ms, run_load, shared_machine, within,
};

/// Asserts that a well-behaved client gets responses.
fn assert_others_are_served(origin: &OriginProcess) {
    for _ in 0..10 {
        assert_eq!(Client::connect(&origin.authority).get("/?s=100").body.len(), 100);
    }
}

/// Asserts that all resources have been returned, and that only the querying connection is open.
fn assert_resources_returned(origin: &OriginProcess) -> Value {
    let mut stats = Value::Null;
    let settled = within(EVENT_TIMEOUT, || {
        stats = origin.stats();
        let is = |name: &str, value: u64| stats[name].as_u64() == Some(value);
        is("buffers_in_use", 0) && is("in_flight", 0) && is("connections_open", 1)
    });
    assert!(settled, "{stats:#}");
    stats
}

/// Returns the status of a response, or `None` for a connection that ends without one.
fn status_of(bytes: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(bytes);
    text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[test]
fn slow_readers_hold_up_nobody_else() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--write-timeout", "5m"]);
    let target = b"GET /?s=10m HTTP/1.1\r\nHost: test\r\n\r\n";
    let mut readers: Vec<Client> = (0..20).map(|_| Client::connect(&origin.authority)).collect();
    for reader in &mut readers {
        reader.send(target);
    }
    pause_ms(200);
    assert_others_are_served(&origin);
    let output = run_load(&["-c", "4", "-n", "1000", &origin.url("/?s=100")]);
    assert_eq!((output.total("responses"), output.errors()), (1000, 0));
    // Half of them finally read the complete response; the others leave.
    for reader in readers.iter_mut().step_by(2) {
        let response = reader.read_response().unwrap();
        assert_eq!(response.body.len(), 10 * 1024 * 1024);
    }
    drop(readers);
    assert_resources_returned(&origin);
}

#[test]
fn a_reader_that_takes_nothing_is_given_up() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--write-timeout", "1s"]);
    let mut reader = Client::connect(&origin.authority);
    reader.send(b"GET /?s=100m HTTP/1.1\r\nHost: test\r\n\r\n");
    let given_up = within(EVENT_TIMEOUT, || origin.stats()["closed_by_reason"]["write_stall"] == 1);
    assert!(given_up, "{:#}", origin.stats());
    let stats = assert_resources_returned(&origin);
    assert_eq!(stats["responses_lost"], 1);
    assert!(reader.read_to_end().len() < 100 * 1024 * 1024);
}

#[test]
fn slow_senders_of_a_head_are_closed() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--head-timeout", "1s"]);
    let mut senders: Vec<Client> = (0..10).map(|_| Client::connect(&origin.authority)).collect();
    let head = b"GET / HTTP/1.1\r\nHost: test\r\nX: ";
    // A byte each 250 ms is progress, but too slow.
    for byte in &head[..8] {
        for sender in &mut senders {
            // It may be closed already, when this machine itself is slow.
            let _ = sender.stream.write_all(&[*byte]);
        }
        pause_ms(250);
        assert_others_are_served(&origin);
    }
    for sender in &mut senders {
        assert!([None, Some(408)].contains(&status_of(&sender.read_to_end())));
    }
    let stats = assert_resources_returned(&origin);
    assert_eq!(stats["closed_by_reason"]["head_timeout"], 10, "{stats:#}");
}

#[test]
fn slow_senders_of_a_body_and_idle_clients_are_closed() {
    let _shared = shared_machine();
    let flags = ["-t", "1", "--body-timeout", "10s", "--idle-timeout", "10s"];
    let origin = OriginProcess::start(&flags);
    let mut sender = Client::connect(&origin.authority);
    sender.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhello");
    let mut idle = Client::connect(&origin.authority);
    assert_eq!(idle.get("/").status, 200);
    let mut silent = Client::connect(&origin.authority);
    assert!([None, Some(408)].contains(&status_of(&sender.read_to_end())));
    assert!(idle.read_to_end().is_empty() && silent.read_to_end().is_empty());
    let closed = assert_resources_returned(&origin)["closed_by_reason"].clone();
    assert_eq!(closed["body_timeout"], 1, "{closed:#}");
    assert_eq!(closed["idle_timeout"], 2, "{closed:#}");
}

#[test]
fn half_open_clients_get_their_response() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for target in ["/?s=1000", "/?s=1000&t=100", "/?s=1m"] {
        let mut client = Client::connect(&origin.authority);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes());
        client.stream.shutdown(Shutdown::Write).unwrap();
        let response = client.read_response().unwrap_or_else(|| panic!("{target}: no answer"));
        assert_eq!(response.status, 200);
        assert!(client.read_to_end().is_empty());
    }
    // A client that ends in the middle of its head gets nothing.
    let mut client = Client::connect(&origin.authority);
    client.send(b"GET / HT");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_ne!(status_of(&client.read_to_end()), Some(200));
    assert_resources_returned(&origin);
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let long = "x".repeat(64 * 1024);
    for head in [
        format!("GET / HTTP/1.1\r\nHost: test\r\nX: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: test\r\n{}\r\n", "A: b\r\n".repeat(10_000)),
    ] {
        let mut client = Client::connect(&origin.authority);
        // The response may arrive before all bytes have been sent.
        let _ = client.stream.write_all(head.as_bytes());
        assert_eq!(status_of(&client.read_to_end()), Some(431));
    }
    let mut client = Client::connect(&origin.authority);
    let target = format!("GET /{long} HTTP/1.1\r\nHost: test\r\n\r\n");
    let _ = client.stream.write_all(target.as_bytes());
    assert!([Some(414), Some(431)].contains(&status_of(&client.read_to_end())));
    assert_resources_returned(&origin);
}

#[test]
fn garbage_is_refused_and_the_connection_closed() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let garbage: &[&[u8]] = &[
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in garbage {
        let mut client = Client::connect(&origin.authority);
        client.send(bytes);
        let rest = client.read_to_end();
        assert_eq!(status_of(&rest), Some(400), "{}", String::from_utf8_lossy(bytes));
        assert_others_are_served(&origin);
    }
    let stats = assert_resources_returned(&origin);
    let refused = garbage.len() as u64;
    assert_eq!(stats["closed_by_reason"]["rejected"], refused, "{stats:#}");
}

#[test]
fn two_thousand_idle_connections_cost_no_buffer() {
    let _shared = shared_machine();
    if !can_open_descriptors(5000) {
        return;
    }
    let origin = OriginProcess::start(&["-t", "2"]);
    let mut idle: Vec<Client> = (0..2000).map(|_| Client::connect(&origin.authority)).collect();
    for client in idle.iter_mut().step_by(10) {
        assert_eq!(client.get("/?s=10").status, 200);
    }
    assert_others_are_served(&origin);
    let mut stats = Value::Null;
    let accepted = within(EVENT_TIMEOUT, || {
        stats = origin.stats();
        stats["connections_open"].as_u64() >= Some(2001)
    });
    assert!(accepted, "{stats:#}");
    assert_eq!(stats["buffers_in_use"], 0, "{stats:#}");
    let output = run_load(&["-c", "4", "-n", "1000", &origin.url("/")]);
    assert_eq!((output.total("responses"), output.errors()), (1000, 0));
    assert_eq!(idle[1999].get("/").status, 200);
    drop(idle);
    assert_resources_returned(&origin);
}

#[test]
fn a_flood_of_pipelined_requests_gets_responses_in_order() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let requests: String =
        (0..5000).map(|number| format!("GET /?s={} HTTP/1.1\r\nHost: test\r\n\r\n", number % 100)).collect();
    let mut client = Client::connect(&origin.authority);
    let mut writer = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
    assert_others_are_served(&origin);
    for number in 0..5000 {
        let response = client.read_response().expect("a response");
        assert_eq!((response.status, response.body.len()), (200, number % 100), "{number}");
        assert!(response.head.ends_with("\r\n\r\n"));
    }
    sending.join().unwrap().unwrap();
    drop(client);
    // A client that sends and never reads must not exhaust the memory or the time of the origin.
    let mut rude = TcpStream::connect(&origin.authority).unwrap();
    let timeout = Some(Duration::from_millis(300));
    rude.set_write_timeout(timeout).unwrap();
    let many = "GET /?s=1000 HTTP/1.1\r\nHost: test\r\n\r\n".repeat(1000);
    let stuck = (0..2000).any(|_| rude.write_all(many.as_bytes()).is_err());
    assert!(stuck, "two million requests were taken without one answer read");
    assert_others_are_served(&origin);
    drop(rude);
    assert_resources_returned(&origin);
}

#[test]
fn the_limit_of_connections_holds_and_ends() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--connections-max", "10"]);
    let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(&origin.authority)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let mut waiting = Client::connect(&origin.authority);
    waiting.send(b"GET /stats HTTP/1.1\r\nHost: test\r\n\r\n");
    let short = Some(Duration::from_millis(300));
    waiting.stream.set_read_timeout(short).unwrap();
    assert!(waiting.stream.read(&mut [0; 1]).is_err(), "an eleventh was accepted");
    clients.pop();
    let long = Some(EVENT_TIMEOUT);
    waiting.stream.set_read_timeout(long).unwrap();
    let stats: Value = serde_json::from_slice(&waiting.read_response().unwrap().body).unwrap();
    assert!(stats["accept_paused"].as_u64() > Some(0), "{stats:#}");
    drop((clients, waiting));
    assert_resources_returned(&origin);
}

#[test]
fn after_all_of_it_nothing_is_left() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "2"]);
    for round in 0..5_u8 {
        let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(&origin.authority)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let bytes: &[u8] = match (number + usize::from(round)) % 6 {
                0 => b"GET /?s=5m HTTP/1.1\r\nHost: t\r\n\r\n",
                1 => b"GET /?t=20&s=100k&p=1k HTTP/1.1\r\nHost: t\r\n\r\n",
                2 => b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nabc",
                3 => b"GET / HTTP/1.1\r\nHo",
                4 => b"nonsense\r\n\r\n",
                _ => b"GET /?k=1&s=50k HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
            };
            client.send(bytes);
        }
        pause_ms(u64::from(round) * 10);
        let output = run_load(&["-c", "2", "-n", "200", "-r", "3", &origin.url("/?s=1k")]);
        assert_eq!((output.total("responses"), output.errors()), (200, 0));
    }
    let stats = assert_resources_returned(&origin);
    assert_eq!(stats["buffers_exhausted"], 0, "{stats:#}");
    assert_others_are_served(&origin);
}
