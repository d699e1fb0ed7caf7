//! Equal requests at the same time: one of them goes to the server, and the others get its response as it arrives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{RESULTS, WAITING, cache_status, config, get, response, start, text};
use crate::support::faulty_origins::{field, respond_to_each};
use crate::support::hostile_client::connect;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

const CLIENTS: usize = 100;
const GET: &[u8] = b"GET /cold HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// A server that responds once the test opens it, and counts its requests.
struct GatedOrigin {
    server: ScriptedServer,
    requests: Arc<AtomicUsize>,
    is_open: Arc<AtomicBool>,
}

impl GatedOrigin {
    fn start(respond: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        let (requests, is_open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, gate) = (Arc::clone(&requests), Arc::clone(&is_open));
        let server = respond_to_each(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            within(EVENT_TIMEOUT, || gate.load(Ordering::Relaxed)).then(&respond)
        });
        Self { server, requests, is_open }
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn send_all(proxy: &ProxyUnderTest, count: usize) -> Vec<TcpStream> {
    let clients = (0..count).map(|_| {
        let mut client = connect(proxy.authority());
        client.write_all(GET).unwrap();
        client
    });
    clients.collect()
}

fn wait_for_waiting(proxy: &ProxyUnderTest, count: usize) {
    proxy.metrics_until("requests wait", |metrics| metrics.sum(WAITING, &[]) == count as f64);
}

fn read_all(mut client: TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let body = bytes.split_off(end);
    (String::from_utf8(bytes).unwrap(), body)
}

#[test]
fn many_clients_of_a_cold_response_are_one_request() {
    let _shared = shared_machine();
    let content: Arc<[u8]> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let sent = Arc::clone(&content);
    let origin = GatedOrigin::start(move || {
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\n\r\n",
            sent.len()
        );
        [head.as_bytes(), &sent].concat()
    });
    let proxy = start(&origin.server, ", coalesce = \"30s\"", "");
    let clients = send_all(&proxy, CLIENTS);
    wait_for_waiting(&proxy, CLIENTS - 1);
    origin.open();
    for client in clients {
        let (head, body) = read_all(client);
        assert!(head.starts_with("HTTP/1.1 200 ") && body == *content, "{head} {}", body.len());
    }
    assert_eq!(origin.requests(), 1);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(RESULTS, &[("result", "coalesced")]), CLIENTS as f64 - 1.0);
    assert_eq!(metrics.sum_known(RESULTS, &[("result", "miss")]), 1.0);
    proxy.assert_all_returned();
}

#[test]
fn many_clients_get_a_body_as_it_trickles_in() {
    let _shared = shared_machine();
    const PARTS: usize = 5;
    let part = |number: usize| format!("part {number};");
    let (received, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (gate, count) = (Arc::clone(&received), Arc::clone(&requests));
    let server = ScriptedServer::start(move |peer| {
        while peer.request()?.is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            assert!(within(EVENT_TIMEOUT, || gate.load(Ordering::Relaxed) > 0));
            let length = PARTS * part(0).len();
            let head =
                format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {length}\r\n\r\n");
            peer.send(head.as_bytes())?;
            for number in 0..PARTS {
                // The next part is not sent before all clients have this one.
                peer.send(part(number).as_bytes())?;
                assert!(within(EVENT_TIMEOUT, || gate.load(Ordering::Relaxed) > 1 + number));
            }
        }
        Ok(())
    });
    let proxy = start(&server, ", coalesce = \"30s\"", "");
    let mut clients = send_all(&proxy, CLIENTS);
    wait_for_waiting(&proxy, CLIENTS - 1);
    received.fetch_add(1, Ordering::Relaxed);
    let mut texts = vec![Vec::new(); CLIENTS];
    for number in 0..PARTS {
        for (client, text) in clients.iter_mut().zip(&mut texts) {
            let mut bytes = [0; 4096];
            while !text.ends_with(part(number).as_bytes()) {
                let length = client.read(&mut bytes).unwrap();
                assert!(length > 0, "part {number} does not wait for the next one");
                text.extend_from_slice(&bytes[..length]);
            }
        }
        received.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    proxy.assert_all_returned();
}

#[test]
fn those_who_wait_for_a_response_that_is_not_stored_go_on_by_themselves() {
    let _shared = shared_machine();
    let origin = GatedOrigin::start(|| response("Cache-Control: private\r\n", "own"));
    let proxy = start(&origin.server, ", coalesce = \"30s\"", "");
    let clients = send_all(&proxy, 10);
    wait_for_waiting(&proxy, 9);
    origin.open();
    for client in clients {
        assert_eq!(read_all(client).1, b"own");
    }
    assert_eq!(origin.requests(), 10);
    // The next ones do not wait for each other.
    origin.is_open.store(false, Ordering::Relaxed);
    let clients = send_all(&proxy, 5);
    assert!(within(EVENT_TIMEOUT, || origin.requests() == 15), "{}", origin.requests());
    origin.open();
    clients.into_iter().for_each(|client| assert_eq!(read_all(client).1, b"own"));
}

#[test]
fn nobody_waits_longer_than_the_limit_or_without_one() {
    let _shared = shared_machine();
    for (in_use, waiting) in [(", coalesce = \"10ms\"", 0), (", coalesce = false", 0)] {
        let origin = GatedOrigin::start(|| response("Cache-Control: max-age=600\r\n", "late"));
        let proxy = start(&origin.server, in_use, "");
        let clients = send_all(&proxy, 5);
        assert!(within(EVENT_TIMEOUT, || origin.requests() == 5), "{in_use}: {}", origin.requests());
        wait_for_waiting(&proxy, waiting);
        origin.open();
        clients.into_iter().for_each(|client| assert_eq!(read_all(client).1, b"late"));
        proxy.assert_all_returned();
    }
}

#[test]
fn the_number_of_waiting_requests_is_bounded() {
    let _shared = shared_machine();
    let origin = GatedOrigin::start(|| response("Cache-Control: max-age=600\r\n", "bounded"));
    let proxy = ProxyUnderTest::weir(&config(
        &origin.server.authority,
        "waiters-max = 3",
        ", coalesce = \"30s\"",
        "",
    ));
    let clients = send_all(&proxy, 8);
    assert!(within(EVENT_TIMEOUT, || origin.requests() == 5), "{}", origin.requests());
    wait_for_waiting(&proxy, 3);
    origin.open();
    clients.into_iter().for_each(|client| assert_eq!(read_all(client).1, b"bounded"));
}

#[test]
fn a_client_that_leaves_first_takes_nothing_from_the_others() {
    let _shared = shared_machine();
    let (is_open, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (gate, count) = (Arc::clone(&is_open), Arc::clone(&requests));
    let server = ScriptedServer::start(move |peer| {
        while peer.request()?.is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            peer.send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 10\r\n\r\n01234")?;
            assert!(within(EVENT_TIMEOUT, || gate.load(Ordering::Relaxed)));
            peer.send(b"56789")?;
        }
        Ok(())
    });
    let proxy = start(&server, "", "");
    let mut first = connect(proxy.authority());
    first.write_all(GET).unwrap();
    let mut start_of_body = Vec::new();
    let mut bytes = [0; 4096];
    while !start_of_body.ends_with(b"01234") {
        let length = first.read(&mut bytes).unwrap();
        assert!(length > 0, "the body is sent as it arrives");
        start_of_body.extend_from_slice(&bytes[..length]);
    }
    let second = send_all(&proxy, 1).remove(0);
    proxy.metrics_until("the second one has joined", |metrics| {
        metrics.sum("weir_requests_in_flight", &[]) == 2.0
    });
    drop(first);
    proxy.metrics_until("the first one has left", |metrics| {
        metrics.sum("weir_requests_total", &[("end", "client_gone")]) == 1.0
    });
    is_open.store(true, Ordering::Relaxed);
    let (head, body) = read_all(second);
    assert_eq!(body, b"0123456789", "{head}");
    assert_eq!(text(&get(&proxy, "/cold", "")), "0123456789");
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    proxy.assert_all_returned();
}

#[test]
fn a_response_that_ends_early_is_not_stored() {
    let _shared = shared_machine();
    let count = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |peer| {
        peer.request()?;
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        let fields = "Cache-Control: max-age=600\r\nContent-Length: 10\r\n\r\n";
        peer.send(
            format!("HTTP/1.1 200 OK\r\n{fields}{}", if is_first { "012" } else { "0123456789" }).as_bytes(),
        )
    });
    let proxy = start(&server, "", "");
    let mut client = connect(proxy.authority());
    client.write_all(GET).unwrap();
    let mut bytes = Vec::new();
    // The client learns that bytes are missing: by the length, or by a reset.
    let _ = client.read_to_end(&mut bytes);
    assert!(bytes.ends_with(b"\r\n\r\n012") || bytes.is_empty(), "{}", String::from_utf8_lossy(&bytes));
    let second = get(&proxy, "/cold", "");
    assert_eq!(text(&second), "0123456789");
    assert!(cache_status(&second).contains("fwd=uri-miss"), "{}", second.head);
    assert!(field(&get(&proxy, "/cold", "").head, "age").is_some());
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known("weir_cache_not_stored_total", &[("reason", "incomplete")]), 1.0);
    proxy.assert_all_returned();
}

#[test]
fn equal_requests_wait_for_one_validation() {
    let _shared = shared_machine();
    let requests = Arc::new(AtomicUsize::new(0));
    let is_open = Arc::new(AtomicBool::new(false));
    let (count, gate) = (Arc::clone(&requests), Arc::clone(&is_open));
    let server = respond_to_each(move |request, _| {
        count.fetch_add(1, Ordering::Relaxed);
        if request.field("if-none-match").is_none() {
            return Some(response("Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"v\"\r\n", "kept"));
        }
        assert!(within(EVENT_TIMEOUT, || gate.load(Ordering::Relaxed)));
        Some(b"HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nETag: \"v\"\r\n\r\n".to_vec())
    });
    let proxy = start(&server, ", coalesce = \"30s\"", "");
    assert_eq!(text(&get(&proxy, "/cold", "")), "kept");
    let clients = send_all(&proxy, 10);
    wait_for_waiting(&proxy, 9);
    is_open.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| assert_eq!(read_all(client).1, b"kept"));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
}
