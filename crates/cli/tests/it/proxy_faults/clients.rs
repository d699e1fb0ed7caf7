//! Clients that vanish, stall or send malformed requests: each gets its proper response and log
//! line, and costs only its own connection. `origins` tests slow servers, `limits` numbers of
//! clients.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use rt::clock::now_ns;

use super::{CONFIG_HEAD, HeldResources, end_in_json_log, haproxy_line_for, is_one_of};
use crate::support::faulty_origins::{
    GatedServer, ok_response, reset_on_close, respond_to_each, send_ignoring_errors,
};
use crate::support::hostile_client::{BackgroundClients, connect, exchange_raw, read_response};
use crate::support::metrics::BUFFERS_LENT;
use crate::support::peers::ScriptedServer;
use crate::support::proxies::ProxyKind;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, pause_ms, shared_machine, within};

/// Timeouts of the listener for its clients: short, but longer than the delays of a busy machine
/// of these tests.
const CLIENT_TIMEOUTS: &str = "timeouts = { head = \"2s\", body-idle = \"2s\", \
     body-progress = \"2500ms\", body-progress-bytes = \"4k\", write = \"2s\", \
     keep-alive = \"2s\" }";
/// Interval between the bytes of a slow client.
const BYTE_INTERVAL_MS: u64 = 50;
/// Number of bytes for three times the longest timeout.
const SLOW_BYTES: usize = 150;

/// A proxy in front of a server that responds, one with a large response at `/big`, and one with a
/// gate at `/gate`.
struct ClientFaultSetup {
    proxy: ProxyUnderTest,
    gated: GatedServer,
    origin: ScriptedServer,
}

const BIG_BYTES: usize = 32 << 20;

impl ClientFaultSetup {
    fn start() -> Self {
        let big = vec![b'x'; BIG_BYTES];
        let origin = respond_to_each(move |request, _| {
            Some(ok_response(if request.target().starts_with("/big") { &big } else { b"small" }))
        });
        let gated = GatedServer::start();
        let proxy = ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{CLIENT_TIMEOUTS}\n\
             [listener.patient]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
             [[route]]\npath-prefix = \"/gate\"\npool = \"gate\"\n\
             [pool.app]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n\
             [pool.gate]\nservers = [\"{}\"]\nidle-timeout = \"300ms\"\n",
            origin.authority, gated.server.authority
        ));
        Self { proxy, gated, origin }
    }

    /// Starts well-behaved clients on a listener without short timeouts: they may pause as long as
    /// the machine delays them.
    fn background_clients(&self) -> BackgroundClients {
        BackgroundClients::start(&self.proxy.addresses("patient")[0], "/", 4)
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = connect(self.proxy.authority());
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn assert_logged(&self, part: &str, codes: &str, ends: &str) {
        let (code, end) = (haproxy_line_for(&self.proxy, part).code, end_in_json_log(&self.proxy, part));
        assert!(is_one_of(&code, codes) && is_one_of(&end, ends), "{part}: {code}, {end}");
    }
}

fn get_request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

#[test]
fn a_client_that_resets_while_it_waits_is_gone_at_once() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    let background = setup.background_clients();
    let client = setup.send(&get_request("/gate/reset"));
    assert_eq!(setup.gated.next_target(), "/gate/reset");
    reset_on_close(&client);
    drop(client);
    // The log line appears while the server still has the request.
    setup.assert_logged("/gate/reset", "CH", "client_gone");
    setup.gated.admit_one();
    background.finish();
    baseline.wait_until_returned(&setup.proxy);
}

#[test]
fn a_client_that_closes_while_it_waits_leaves_nothing_behind() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    let client = setup.send(&get_request("/gate/close"));
    assert_eq!(setup.gated.next_target(), "/gate/close");
    drop(client);
    setup.assert_logged("/gate/close", "CH", "client_gone");
    setup.gated.admit_one();
    baseline.wait_until_returned(&setup.proxy);
}

#[test]
fn a_client_that_vanishes_during_its_response_is_logged() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    let background = setup.background_clients();
    for reset in [true, false] {
        let target = format!("/big/{reset}");
        let mut client = connect(&setup.proxy.addresses("patient")[0]);
        client.write_all(get_request(&target).as_bytes()).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        if reset {
            reset_on_close(&client);
        }
        drop(client);
        setup.assert_logged(&target, "CD", "client_gone");
        let line = haproxy_line_for(&setup.proxy, &target);
        assert!(line.status == Some(200) && (line.bytes as usize) < BIG_BYTES, "{line:?}");
    }
    background.finish();
    baseline.wait_until_returned(&setup.proxy);
}

/// Sends a start and then byte after byte until the peer stops reading; returns the number of sent
/// bytes.
fn send_slowly(mut writer: TcpStream, start: &[u8]) -> usize {
    let bytes = start.iter().chain(std::iter::repeat(&b'x')).take(SLOW_BYTES);
    bytes.take_while(|byte| writer.write_all(&[**byte]).is_ok()).map(|_| pause_ms(BYTE_INTERVAL_MS)).count()
}

#[test]
fn a_head_that_drips_in_is_408_at_the_deadline_of_all_of_it() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let background = setup.background_clients();
    let start_ns = now_ns();
    let mut client = connect(setup.proxy.authority());
    let writer = client.try_clone().unwrap();
    let dripping = std::thread::spawn(move || send_slowly(writer, b"GET /drip?"));
    let response = read_response(&mut client);
    let took_ms = (now_ns() - start_ns) / 1_000_000;
    assert_eq!(response.status, Some(408), "{}", response.head);
    assert!(took_ms >= 1990, "{took_ms} ms");
    // No byte of the slow client restarted the timeout.
    assert!(dripping.join().unwrap() < SLOW_BYTES, "all of it was waited for");
    let lines = setup.proxy.wait_for_lines_with("access.json", "head_timeout", 1);
    assert_eq!(lines.len(), 1);
    setup.proxy.wait_for_lines_with("access.haproxy", " cR", 1);
    background.finish();
}

#[test]
fn a_body_that_stops_or_drips_is_408() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    let head =
        |target: &str| format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nabc");
    let mut stopped = setup.send(&head("/body/stops"));
    let mut drips = setup.send(&head("/body/drips"));
    let writer = drips.try_clone().unwrap();
    // A byte each 50 ms is never idle, and never 4 KiB within the timeout for so many bytes.
    let dripping = std::thread::spawn(move || send_slowly(writer, b""));
    assert_eq!(read_response(&mut stopped).status, Some(408));
    let response = read_response(&mut drips);
    assert_eq!(response.status, Some(408), "{}", response.head);
    dripping.join().unwrap();
    for target in ["/body/stops", "/body/drips"] {
        setup.assert_logged(target, "cR", "body_timeout");
    }
    drop((stopped, drips));
    baseline.wait_until_returned(&setup.proxy);
}

#[test]
fn a_body_that_makes_progress_may_take_longer_than_any_of_its_timeouts() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let length = 20 * 8192;
    let mut client = setup.send(&format!(
        "POST /steady HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    ));
    for _ in 0..20 {
        client.write_all(&[b'x'; 8192]).unwrap();
        pause_ms(150);
    }
    assert_eq!(read_response(&mut client).status, Some(200));
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_request_is_logged_so() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    let part = "POST /left HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nabc";
    let client = setup.send(part);
    reset_on_close(&client);
    drop(client);
    setup.assert_logged("/left", "CR|CH|CD", "client_gone");
    drop(setup.send("GET /half-a-he"));
    setup.proxy.wait_for_lines_with("access.haproxy", " CR", 1);
    baseline.wait_until_returned(&setup.proxy);
}

#[test]
fn clients_that_never_read_are_given_up_and_cost_little_memory() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    // The first large response has already allocated its memory.
    assert_eq!(setup.proxy.get("/big/first").body.len(), BIG_BYTES);
    let before = setup.proxy.resident_bytes();
    let clients: Vec<TcpStream> =
        (0..50).map(|number| setup.send(&get_request(&format!("/big/unread/{number}")))).collect();
    let max_resident = std::cell::Cell::new(before);
    let given_up = within(EVENT_TIMEOUT, || {
        max_resident.set(max_resident.get().max(setup.proxy.resident_bytes()));
        let lines = setup.proxy.lines("access.json");
        lines.iter().filter(|line| line.contains("write_timeout")).count() == 50
    });
    assert!(given_up, "{:#?}", setup.proxy.lines("access.json"));
    let grown = max_resident.get() - before;
    assert!(grown < 8 << 20, "50 clients that take nothing cost {grown} bytes");
    let codes = setup.proxy.wait_for_lines("access.haproxy", 51);
    let right = codes.iter().filter(|line| line.contains(" cD") || line.contains(" cL")).count();
    assert_eq!(right, 50, "{codes:#?}");
    drop(clients);
    baseline.wait_until_returned(&setup.proxy);
}

#[test]
fn nonsense_is_refused_and_logged_with_its_status() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let background = setup.background_clients();
    let long = "x".repeat(64 * 1024);
    let cases = [
        ("\x16\x03\x01\x02\r\n\r\n".to_owned(), 400),
        ("GET\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost t\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/7.3\r\nHost: t\r\n\r\n".to_owned(), 505),
        (format!("GET / HTTP/1.1\r\nHost: t\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: t\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: t\r\n{}\r\n", "A: b\r\n".repeat(1000)), 431),
        ("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n".to_owned(), 405),
    ];
    let mut wrong = Vec::new();
    for (number, (request, status)) in cases.iter().enumerate() {
        let mut client = connect(setup.proxy.authority());
        send_ignoring_errors(&mut client, request.as_bytes());
        // A client that sends malformed bytes may also end its sending.
        let _ = client.shutdown(Shutdown::Write);
        let response = read_response(&mut client);
        if response.status != Some(*status) {
            wrong.push(format!("case {number}: {status} wanted, seen {:?}", response.status));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let lines = setup.proxy.wait_for_lines_with("access.haproxy", " PR", cases.len());
    assert_eq!(lines.len(), cases.len(), "{lines:#?}");
    background.finish();
}

#[test]
fn idle_connections_are_closed_in_time_and_without_a_word() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let baseline = HeldResources::measure(&setup.proxy);
    let mut used = setup.proxy.client();
    assert_eq!(used.get("/").status, 200);
    let mut silent = connect(setup.proxy.authority());
    assert!(used.read_to_end().is_empty());
    let response = read_response(&mut silent);
    assert!(response.status.is_none() && response.body.is_empty(), "{response:?}");
    baseline.wait_until_returned(&setup.proxy);
}

#[test]
fn a_body_over_the_bound_is_413_with_and_without_a_length() {
    let _shared = shared_machine();
    let origin = respond_to_each(|_, _| Some(ok_response(b"taken")));
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\nbody-max = \"1k\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let body = "x".repeat(1025);
    let ask = |target: &str, framing: &str, body: &str| {
        let head = format!("POST {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{framing}\r\n");
        exchange_raw(proxy.authority(), format!("{head}\r\n{body}").as_bytes()).status
    };
    assert_eq!(ask("/length", "Content-Length: 1025", &body), Some(413));
    let chunk = format!("401\r\n{body}\r\n0\r\n\r\n");
    assert_eq!(ask("/chunked", "Transfer-Encoding: chunked", &chunk), Some(413));
    assert_eq!(ask("/fits", "Content-Length: 1024", &body[1..]), Some(200));
    let chunk = format!("400\r\n{}\r\n0\r\n\r\n", &body[1..]);
    assert_eq!(ask("/fits-too", "Transfer-Encoding: chunked", &chunk), Some(200));
    assert_eq!(end_in_json_log(&proxy, "/length"), "body_too_large");
    assert_eq!(end_in_json_log(&proxy, "/chunked"), "body_too_large");
    proxy.metrics_until("buffers come back", |metrics| metrics.sum_known(BUFFERS_LENT, &[]) == 0.0);
}

/// Starts HAProxy with the timeouts of [`CLIENT_TIMEOUTS`].
fn start_haproxy(origin: &ScriptedServer, gated: &GatedServer) -> ProxyUnderTest {
    ProxyUnderTest::haproxy(&format!(
        "global\n  log stdout format raw local0\ndefaults\n  mode http\n  log global\n  \
         option httplog\n  option abortonclose\n  timeout connect 5s\n  timeout server 20s\n  \
         timeout client 2s\n  timeout http-request 2s\n  timeout http-keep-alive 2s\n\
         frontend web\n  bind 127.0.0.1:PORT\n  use_backend gate if {{ path_beg /gate }}\n  \
         default_backend app\nbackend app\n  server one {}\nbackend gate\n  server one {}\n",
        origin.authority, gated.server.authority
    ))
}

#[test]
fn faulty_clients_are_logged_with_the_codes_of_haproxy() {
    let _shared = shared_machine();
    let setup = ClientFaultSetup::start();
    let is_haproxy = ProxyKind::subject() == ProxyKind::Haproxy;
    let haproxy = is_haproxy.then(|| start_haproxy(&setup.origin, &setup.gated));
    let (proxy, log) = match &haproxy {
        Some(haproxy) => (haproxy, "stdout"),
        None => (&setup.proxy, "access.haproxy"),
    };
    let ask = |target: &str| {
        let mut stream = connect(proxy.authority());
        stream.write_all(get_request(target).as_bytes()).unwrap();
        stream
    };
    let reset = ask("/gate/reset");
    setup.gated.next_target();
    reset_on_close(&reset);
    drop(reset);
    let mut vanished = ask("/big/vanished");
    vanished.read_exact(&mut [0; 1000]).unwrap();
    reset_on_close(&vanished);
    drop(vanished);
    let unread = ask("/big/unread");
    let mut dripping = connect(proxy.authority());
    let writer = dripping.try_clone().unwrap();
    let drips = std::thread::spawn(move || send_slowly(writer, b"GET /drip?"));
    assert_eq!(read_response(&mut dripping).status, Some(408));
    drips.join().unwrap();
    assert_eq!(exchange_raw(proxy.authority(), b"nonsense\r\n\r\n").status, Some(400));
    for (part, code) in [
        // HAProxy has no letter of its own for this end: it reports the phase in which data was
        // due.
        ("/gate/reset", if is_haproxy { " CD-- " } else { " CH-- " }),
        ("/big/vanished", " CD-- "),
        ("/big/unread", " cD-- "),
        (" 408 ", " cR-- "),
        (" 400 ", " PR-- "),
    ] {
        let lines = proxy.wait_for_lines_with(log, part, 1);
        assert!(lines.len() == 1 && lines[0].contains(code), "{part}: {lines:#?}");
    }
    drop(unread);
    setup.gated.admit_one();
}
