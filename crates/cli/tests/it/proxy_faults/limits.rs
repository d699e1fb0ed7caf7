//! Many clients at once: idle connections, the connection limits, the queue of a busy server.
//! `clients` tests the misbehaviour of single clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{CONFIG_HEAD, HeldResources, end_in_json_log, haproxy_line_for};
use crate::support::client::Client;
use crate::support::faulty_origins::scripts::endless;
use crate::support::faulty_origins::{GatedServer, ok_response, reset_on_close, respond_to_each};
use crate::support::hostile_client::{BackgroundClients, ReceivedResponse, connect, read_response};
use crate::support::metrics::{BUFFERS_LENT, CONNECTIONS_OPEN, QUEUED, REFUSED, REQUESTS_IN_FLIGHT};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, pause_ms, shared_machine, within};

/// User-space bytes of a response that its client does not read, as documented in docs/config.md,
/// including the connection and its request.
const UNREAD_BYTES_MAX: u64 = (64 + 16) * 1024;

#[test]
fn clients_that_read_nothing_hold_a_bounded_part_of_their_responses() {
    let _shared = shared_machine();
    const READERS: u64 = 200;
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let until_close = "HTTP/1.1 200 OK\r\n\r\n";
    for (start, again) in [
        (length, "0123456789abcdef"),
        (chunked, "400\r\n{1024}\r\n"),
        (chunked, "1\r\nx\r\n"),
        (until_close, "0123456789abcdef"),
    ] {
        let again: &'static [u8] = again.replace("{1024}", &"y".repeat(1024)).leak().as_bytes();
        let origin = ScriptedServer::start(endless(start.as_bytes(), again));
        let proxy = ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\n",
            origin.authority
        ));
        let before = proxy.resident_bytes();
        let readers = (0..READERS).map(|_| {
            let mut stream = connect(proxy.authority());
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            stream
        });
        let readers: Vec<TcpStream> = readers.collect();
        proxy.metrics_until("all are in flight", |metrics| {
            metrics.sum_known(REQUESTS_IN_FLIGHT, &[]) == READERS as f64
        });
        // Until no more bytes are accepted.
        let mut resident = 0;
        let settled = within(EVENT_TIMEOUT, || {
            pause_ms(200);
            std::mem::replace(&mut resident, proxy.resident_bytes()) == resident
        });
        let each = resident.saturating_sub(before) / READERS;
        assert!(settled && each <= UNREAD_BYTES_MAX, "{each} bytes each of {start:?}");
        proxy.metrics_until("no buffer is in use", |metrics| metrics.sum_known(BUFFERS_LENT, &[]) == 0.0);
        drop(readers);
    }
}

#[test]
fn ten_thousand_idle_connections_hold_up_nobody() {
    let _shared = shared_machine();
    rt::limits::raise_descriptor_limit();
    // The descriptors of other tests in this process must fit too.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    // Each client of the proxy may need a server connection, so it accepts half as many as it has
    // descriptors.
    let size = hard.map_or(10_000, |hard| (hard / 2).saturating_sub(400).min(10_000));
    let origin = respond_to_each(|_, _| Some(ok_response(b"small")));
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         timeouts = {{ keep-alive = \"1h\" }}\n\
         [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
        origin.authority
    ));
    let baseline = HeldResources::measure(&proxy);
    let before = proxy.resident_bytes();
    let mut idle: Vec<TcpStream> =
        (0..size).map(|_| TcpStream::connect(proxy.authority()).unwrap()).collect();
    proxy.metrics_until("all are accepted", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) >= size as f64
    });
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    background.wait_for(500);
    let each = (proxy.resident_bytes() - before) / size;
    assert!(each < 4096, "an idle connection costs {each} bytes");
    // The first and the last are alive.
    for at in [0, idle.len() - 1] {
        idle[at].write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(read_response(&mut idle[at]).status, Some(200));
    }
    background.finish();
    if size < 10_000 {
        eprintln!("{size} connections instead of 10000: descriptors are limited to {hard:?}");
    }
    drop(idle);
    baseline.wait_until_returned(&proxy);
}

/// Asserts a limit with one more connection: the last one waits, is not rejected, and is served
/// when another ends.
fn assert_limit_holds(proxy: &ProxyUnderTest, limit: usize) {
    let mut clients: Vec<Client> = (0..limit).map(|_| proxy.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    let mut waiting = proxy.client();
    waiting.send(b"GET /waited HTTP/1.1\r\nHost: t\r\n\r\n");
    waiting.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let early = waiting.stream.read(&mut [0; 1]);
    assert!(early.is_err(), "one over the limit was served, or closed: {early:?}");
    // Connections within the limit are served meanwhile.
    assert_eq!(clients[0].get("/").status, 200);
    clients.pop();
    waiting.stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    assert_eq!(waiting.read_response().expect("a response").status, 200);
    assert!(proxy.metrics().sum_known(REFUSED, &[]) >= 1.0);
}

#[test]
fn over_the_limit_of_a_listener_or_of_all_connections_wait_and_are_served() {
    let _shared = shared_machine();
    for (global, own) in [("", "connections-max = 8"), ("connections-max = 8", "")] {
        let proxy = ProxyUnderTest::weir(&format!(
            "{global}\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{own}\n\
             [[route]]\nreturn = {{ status = 200, body = \"here\" }}\n"
        ));
        let baseline = HeldResources::measure(&proxy);
        assert_limit_holds(&proxy, 8);
        baseline.wait_until_returned(&proxy);
    }
}

#[test]
fn the_last_response_of_a_connection_has_connection_close() {
    let _shared = shared_machine();
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nrequests-max = 3\n\
         [[route]]\nreturn = {{ status = 200, body = \"here\" }}\n"
    ));
    let mut client = proxy.client();
    for number in 1..=3 {
        let head = client.get("/").head.to_ascii_lowercase();
        assert_eq!(head.contains("connection: close"), number == 3, "{number}: {head}");
    }
    assert!(client.read_to_end().is_empty());
}

/// A proxy in front of a server that may have one request at a time.
struct QueueSetup {
    proxy: ProxyUnderTest,
    gated: GatedServer,
}

impl QueueSetup {
    fn start(queue: &str) -> Self {
        let gated = GatedServer::start();
        let proxy = ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [pool.app]\nservers = [{{ address = \"{}\", maxconn = 1 }}]\nqueue = {queue}\n\
             idle-timeout = \"300ms\"\n",
            gated.server.authority
        ));
        Self { proxy, gated }
    }

    /// Sends a request and does not wait for its response.
    fn send(&self, target: &str) -> TcpStream {
        let mut client = connect(self.proxy.authority());
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    /// Waits until so many requests are in the queue.
    fn wait_for_queued(&self, length: usize) {
        self.proxy.metrics_until(&format!("{length} are queued"), |metrics| {
            metrics.sum_known(QUEUED, &[("pool", "app")]) == length as f64
        });
    }
}

fn assert_retryable_rejection(response: &ReceivedResponse) {
    assert_eq!(response.status, Some(503), "{}", response.head);
    let after = response.field("retry-after").expect("Retry-After");
    assert!(after.parse::<u64>().is_ok(), "{after}");
}

#[test]
fn a_queue_is_served_in_its_order() {
    let _shared = shared_machine();
    let queue = QueueSetup::start("{ limit = 100, timeout = \"100s\", order = \"oldest-first\" }");
    let baseline = HeldResources::measure(&queue.proxy);
    let mut clients = vec![queue.send("/0")];
    assert_eq!(queue.gated.next_target(), "/0");
    for number in 1..=9 {
        clients.push(queue.send(&format!("/{number}")));
        queue.wait_for_queued(number);
    }
    assert!(queue.gated.arrivals.try_recv().is_err(), "two at a time, and maxconn is 1");
    for (number, client) in clients.iter_mut().enumerate() {
        queue.gated.admit_one();
        assert_eq!(read_response(client).status, Some(200));
        if number < 9 {
            assert_eq!(queue.gated.next_target(), format!("/{}", number + 1));
        }
    }
    // A queued request has its waiting time in the second timer.
    let waited = haproxy_line_for(&queue.proxy, "GET /9 ").timers;
    assert!(waited[1] > 0, "{waited:?}");
    baseline.wait_until_returned(&queue.proxy);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let _shared = shared_machine();
    let queue = QueueSetup::start("{ limit = 2, timeout = \"100s\", order = \"oldest-first\" }");
    let mut clients = vec![queue.send("/0")];
    assert_eq!(queue.gated.next_target(), "/0");
    for number in 1..=2 {
        clients.push(queue.send(&format!("/{number}")));
        queue.wait_for_queued(number);
    }
    assert_retryable_rejection(&read_response(&mut queue.send("/one-too-many")));
    assert_eq!(haproxy_line_for(&queue.proxy, "/one-too-many").code, "PQ");
    assert_eq!(end_in_json_log(&queue.proxy, "/one-too-many"), "queue_full");
    for client in &mut clients {
        queue.gated.admit_one();
        assert_eq!(read_response(client).status, Some(200));
    }
}

#[test]
fn one_that_waits_too_long_is_refused_and_never_sent() {
    let _shared = shared_machine();
    let queue = QueueSetup::start("{ limit = 10, timeout = \"200ms\" }");
    let mut first = queue.send("/0");
    assert_eq!(queue.gated.next_target(), "/0");
    assert_retryable_rejection(&read_response(&mut queue.send("/too-long")));
    assert_eq!(haproxy_line_for(&queue.proxy, "/too-long").code, "sQ");
    assert_eq!(end_in_json_log(&queue.proxy, "/too-long"), "queue_timeout");
    queue.gated.admit_one();
    assert_eq!(read_response(&mut first).status, Some(200));
    let mut last = queue.send("/last");
    assert_eq!(queue.gated.next_target(), "/last", "what was refused is not sent");
    queue.gated.admit_one();
    assert_eq!(read_response(&mut last).status, Some(200));
}

#[test]
fn one_that_leaves_the_queue_is_never_sent() {
    let _shared = shared_machine();
    let queue = QueueSetup::start("{ limit = 10, timeout = \"100s\" }");
    let baseline = HeldResources::measure(&queue.proxy);
    let mut first = queue.send("/0");
    assert_eq!(queue.gated.next_target(), "/0");
    for (number, reset) in [true, false].into_iter().enumerate() {
        let target = format!("/left-{number}");
        let client = queue.send(&target);
        queue.wait_for_queued(1);
        if reset {
            reset_on_close(&client);
        }
        // By default, a client in a queue that ends its sending counts as gone.
        drop(client);
        queue.wait_for_queued(0);
        assert_eq!(haproxy_line_for(&queue.proxy, &target).code, "CQ");
        assert_eq!(end_in_json_log(&queue.proxy, &target), "client_gone");
    }
    let mut last = queue.send("/last");
    queue.wait_for_queued(1);
    queue.gated.admit_one();
    assert_eq!(read_response(&mut first).status, Some(200));
    assert_eq!(queue.gated.next_target(), "/last");
    queue.gated.admit_one();
    assert_eq!(read_response(&mut last).status, Some(200));
    baseline.wait_until_returned(&queue.proxy);
}
