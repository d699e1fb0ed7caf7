//! Timeouts that a peer cannot hold off by doing nearly nothing, over real sockets. The decisions have their
//! tests, with many more peers, in `server_shell`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rt::clock::now_ns;

use crate::proxy_faults::{CONFIG_HEAD, end_in_json_log};
use crate::support::faulty_origins::{ok_response, respond_to_each};
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, OriginProcess, pause_ms, shared_machine, within};

/// Interval between two pieces of a hostile peer.
const PIECE_INTERVAL: Duration = Duration::from_millis(50);
/// Requests: GET, http, :authority "a", and a :path. The first response fits between the proxy's tasks.
const GET: &[u8] = b"\x82\x86\x41\x01a\x44\x09/?s=60000";
const GET_LONG: &[u8] = b"\x82\x86\x41\x01a\x44\x09/?s=99999";

pub(crate) fn elapsed_since(begun_ns: u64) -> Duration {
    Duration::from_nanos(now_ns() - begun_ns)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Begins HTTP/2 with an initial window, and requests.
fn connect_h2(authority: &str, window: u32, (streams, request): (u32, &[u8])) -> TcpStream {
    let settings = frame(4, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat());
    let mut bytes =
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &frame(4, 1, 0, b"")].concat();
    for number in 0..streams {
        bytes.extend(frame(1, 5, 2 * number + 1, request));
    }
    let mut stream = TcpStream::connect(authority).unwrap();
    stream.write_all(&bytes).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    stream
}

/// Frames that a client received, as far as they matter here.
#[derive(Debug, Default)]
struct Received {
    bytes: Vec<u8>,
    resets: u32,
    has_goaway: bool,
    is_closed: bool,
}

impl Received {
    /// Reads what has arrived.
    fn read(&mut self, stream: &mut TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while !self.is_closed {
            match stream.read(&mut buffer) {
                Ok(0) => self.is_closed = true,
                Ok(bytes) => self.bytes.extend_from_slice(&buffer[..bytes]),
                Err(error) if is_timeout(&error) => break,
                Err(_) => self.is_closed = true,
            }
        }
        while let Some(header) = self.bytes.get(..9) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let kind = header[3];
            if self.bytes.len() < 9 + length {
                break;
            }
            self.resets += u32::from(kind == 3);
            self.has_goaway |= kind == 7;
            self.bytes.drain(..9 + length);
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Sends the same bytes in two pieces again and again, so that a part of a frame is always missing, until
/// `is_over` or the connection ends. Returns what was received.
fn send_pieces(stream: &mut TcpStream, unit: &[u8], is_over: impl Fn(&Received) -> bool) -> Received {
    let (begun, mut received) = (now_ns(), Received::default());
    let middle = unit.len() / 2;
    let mut bytes = unit[..middle].to_vec();
    while elapsed_since(begun) < EVENT_TIMEOUT {
        received.is_closed = stream.write_all(&bytes).is_err();
        received.read(stream);
        if received.is_closed || is_over(&received) {
            break;
        }
        bytes = [&unit[middle..], &unit[..middle]].concat();
        std::thread::sleep(PIECE_INTERVAL);
    }
    received
}

/// Frames that prolong nothing.
fn useless_frames() -> Vec<(&'static str, Vec<u8>)> {
    let increment = 1_u32.to_be_bytes();
    vec![
        ("ping", frame(6, 0, 0, b"12345678")),
        ("settings", frame(4, 0, 0, b"")),
        ("priority", frame(2, 0, 1, &[0, 0, 0, 0, 9])),
        ("unknown", frame(200, 0, 0, b"unknown frame")),
        ("window of the connection", frame(8, 0, 0, &increment)),
        ("window of a stream", frame(8, 0, 1, &increment)),
        ("window of another stream", frame(8, 0, 3, &increment)),
    ]
}

fn start_proxy(origin: &str, timeouts: &str, pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\ntimeouts = {{ {timeouts} }}\n\
         [pool.app]\nservers = [\"{origin}\"]\n{pool}"
    ))
}

const SHORT_TIMEOUTS: &str = "head = '1s', write = '1s', keep-alive = '1s', body-idle = '1s'";

/// Asserts that each client with blocked streams, and each idle one, is released while it sends.
fn assert_released(authority: &str, name: &str) {
    let streams = 20;
    std::thread::scope(|scope| {
        for (unit_name, unit) in useless_frames() {
            let unit = std::sync::Arc::new(unit);
            let for_idle = std::sync::Arc::clone(&unit);
            scope.spawn(move || {
                let mut client = connect_h2(authority, 0, (streams, GET));
                let is_over = |received: &Received| received.resets >= streams;
                let received = send_pieces(&mut client, &unit, is_over);
                // The connection has a time of its own.
                assert_eq!(received.resets, streams, "{name}: {unit_name} holds streams: {received:?}");
            });
            scope.spawn(move || {
                let mut client = connect_h2(authority, 100_000, (1, GET));
                let is_over = |received: &Received| received.has_goaway;
                let received = send_pieces(&mut client, &for_idle, is_over);
                assert!(received.has_goaway || received.is_closed, "{name}: {unit_name} holds a connection");
            });
        }
    });
}

#[test]
fn no_frame_holds_streams_or_idle_connections_of_the_origin() {
    let _shared = shared_machine();
    let flags = ["-t", "1", "--write-timeout", "1s", "--idle-timeout", "1s", "--head-timeout", "10s"];
    let origin = OriginProcess::start(&flags);
    assert_released(&origin.authority, "serve");
    let is_released = || {
        let stats = origin.stats();
        stats["in_flight"] == 0 && stats["buffers_in_use"] == 0
    };
    assert!(within(EVENT_TIMEOUT, is_released), "{:#}", origin.stats());
}

#[test]
fn no_frame_holds_streams_or_idle_connections_of_the_proxy() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let proxy = start_proxy(&origin.authority, SHORT_TIMEOUTS, "");
    assert_released(proxy.authority(), "proxy");
    proxy.assert_all_returned();
}

/// Asserts that each client with an incomplete frame or head, and each that takes nothing, gets GOAWAY before the end.
fn assert_goaway(authority: &str, name: &str) {
    let fragment = &GET[..3];
    let shapes: [(&str, Vec<u8>); 5] = [
        ("a part of a frame header", vec![0, 0]),
        ("a frame header", frame(1, 5, 3, GET)[..9].to_vec()),
        ("a part of HEADERS", frame(1, 5, 3, GET)[..12].to_vec()),
        ("HEADERS without CONTINUATION", frame(1, 1, 3, fragment)),
        (
            "a part of CONTINUATION",
            [frame(1, 1, 3, fragment), frame(9, 4, 3, &GET[3..])[..10].to_vec()].concat(),
        ),
    ];
    for (shape, rest) in shapes {
        for requests in [0, 1] {
            let mut client = connect_h2(authority, 100_000, (requests, GET));
            client.write_all(&rest).unwrap();
            let mut received = Received::default();
            within(EVENT_TIMEOUT, || {
                received.read(&mut client);
                received.is_closed
            });
            assert!(received.has_goaway && received.is_closed, "{name}: {shape}: {received:?}");
        }
    }
    // The window of the connection stays closed.
    let mut client = connect_h2(authority, 1 << 20, (1, GET_LONG));
    let mut received = Received::default();
    within(EVENT_TIMEOUT, || {
        received.read(&mut client);
        received.is_closed
    });
    assert!(received.has_goaway && received.is_closed, "{name}: closed window: {received:?}");
}

#[test]
fn a_timeout_of_an_http2_connection_ends_it_with_goaway() {
    let _shared = shared_machine();
    let flags = ["-t", "1", "--write-timeout", "1s", "--idle-timeout", "30s", "--head-timeout", "500ms"];
    let origin = OriginProcess::start(&flags);
    assert_goaway(&origin.authority, "serve");
    let patient = OriginProcess::start(&["-t", "1"]);
    let proxy = start_proxy(&patient.authority, "head = '500ms', write = '1s', keep-alive = '30s'", "");
    assert_goaway(proxy.authority(), "proxy");
    let is_gone = |metrics: &crate::support::metrics::Metrics| {
        metrics.sum_known("weir_http2_goaways_total", &[("from", "proxy")]) == 11.0
    };
    proxy.metrics_until("a GOAWAY for each connection", is_gone);
    proxy.assert_all_returned();
}

#[test]
fn a_slow_client_with_http2_keeps_its_streams() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--write-timeout", "5s", "--idle-timeout", "5s"]);
    let proxy = start_proxy(&origin.authority, "head = '5s', write = '5s', keep-alive = '5s'", "");
    std::thread::scope(|scope| {
        for authority in [origin.authority.as_str(), proxy.authority()] {
            scope.spawn(move || {
                // 200 B of window and a PING in two pieces every 50 ms, for three times the timeout.
                let mut client = connect_h2(authority, 1_000, (1, GET_LONG));
                let unit = [frame(8, 0, 1, &200_u32.to_be_bytes()), frame(6, 0, 0, b"12345678")].concat();
                let begun = now_ns();
                let is_over = |received: &Received| {
                    received.resets > 0
                        || received.has_goaway
                        || elapsed_since(begun) > Duration::from_secs(15)
                };
                send_pieces(&mut client, &unit, is_over);
                assert!(elapsed_since(begun) > Duration::from_secs(15), "{authority}: cut off");
            });
        }
    });
}

/// Sends the pieces of `body` behind a head, until the server closes. Returns what it sent.
fn dribble(authority: &str, head: &str, mut next: impl FnMut() -> Vec<u8>, reads: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(authority).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(PIECE_INTERVAL)).unwrap();
    let (begun, mut received) = (now_ns(), Vec::new());
    while elapsed_since(begun) < EVENT_TIMEOUT {
        if stream.write_all(&next()).is_err() {
            return received;
        }
        if !reads {
            std::thread::sleep(PIECE_INTERVAL);
            continue;
        }
        let mut buffer = [0; 4_096];
        match stream.read(&mut buffer) {
            Ok(0) => return received,
            Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            Err(error) if is_timeout(&error) => {}
            Err(_) => return received,
        }
    }
    panic!("{authority}: held by {head}");
}

/// Sends a request, and returns all that follows.
fn get_to_end(proxy: &ProxyUnderTest, target: &str) -> String {
    let mut client = proxy.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes());
    String::from_utf8(client.read_to_end()).unwrap()
}

const POST: &str = "POST /trickle HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n";
const POST_CHUNKED: &str = "POST /chunks HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_body_byte_by_byte_ends_in_time() {
    let _shared = shared_machine();
    // The timer of the proxy ends first.
    let origin = OriginProcess::start(&["-t", "1", "--body-timeout", "4s"]);
    let timeouts = "body-idle = '1s', body-progress = '1s', body-progress-bytes = '1k'";
    let proxy = start_proxy(&origin.authority, timeouts, "");
    for authority in [origin.authority.as_str(), proxy.authority()] {
        dribble(authority, POST, || b"x".to_vec(), true);
        dribble(authority, POST_CHUNKED, || b"1\r\nx\r\n".to_vec(), true);
        // Only framing: a chunk size with an extension that does not end.
        let mut is_first = true;
        let extension = || if std::mem::take(&mut is_first) { b"1;a=".to_vec() } else { b"b".to_vec() };
        dribble(authority, POST_CHUNKED, extension, true);
    }
    assert_eq!(end_in_json_log(&proxy, "/trickle"), "body_timeout");
    let closed = || origin.stats()["closed_by_reason"]["body_timeout"].as_u64() >= Some(3);
    assert!(within(EVENT_TIMEOUT, closed), "{:#}", origin.stats());
}

#[test]
fn bytes_of_a_request_hold_no_unread_response() {
    let _shared = shared_machine();
    // Responds at once, and reads the request to its end.
    let origin = ScriptedServer::start(|peer: &mut ScriptPeer| {
        peer.request()?;
        let mut reader = peer.stream.try_clone()?;
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while reader.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        });
        peer.send(&ok_response(&vec![b'x'; 64 << 20]))
    });
    let timeouts = "write = '1s', body-progress-bytes = 0";
    let proxy = start_proxy(&origin.authority, timeouts, "timeouts = { idle = '1h' }\n");
    dribble(proxy.authority(), POST, || b"x".to_vec(), false);
    assert_eq!(end_in_json_log(&proxy, "/trickle"), "write_timeout");
    proxy.assert_all_returned();
}

/// Starts a server that begins its response at once, and goes on with it as the content of the request arrives.
fn early_server(content_type: &'static str, reply_bytes: usize) -> ScriptedServer {
    ScriptedServer::start(move |peer: &mut ScriptPeer| {
        peer.request()?;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
        peer.send(head.as_bytes())?;
        let mut buffer = [0; 64 * 1_024];
        loop {
            let bytes = peer.stream.read(&mut buffer)?;
            if bytes == 0 || buffer[..bytes].ends_with(b"0\r\n\r\n") {
                return peer.send(b"0\r\n\r\n");
            }
            peer.send(format!("{reply_bytes:x}\r\n{}\r\n", "y".repeat(reply_bytes)).as_bytes())?;
        }
    })
}

#[test]
fn a_body_byte_by_byte_holds_no_response_that_has_begun() {
    let _shared = shared_machine();
    let pool = "maxconn = 1\ntimeouts = { idle = '1h' }\n";
    // Each piece brings a byte of the request and ten of the response, 20 times a second.
    let origin = early_server("text/plain", 10);
    let proxy = start_proxy(&origin.authority, "body-progress = '1s', body-progress-bytes = '4k'", pool);
    for (target, head) in [("/trickle", POST), ("/chunks", POST_CHUNKED)] {
        let piece = if target == "/chunks" { &b"1\r\nx\r\n"[..] } else { b"x" };
        dribble(proxy.authority(), head, || piece.to_vec(), true);
        assert_eq!(end_in_json_log(&proxy, target), "body_timeout");
        proxy.assert_all_returned();
    }
    // A response that flows, an upload that is fast enough, and an event stream go on.
    let (flowing, events) = (early_server("text/plain", 10_000), early_server("text/event-stream", 10));
    let cases = [(&flowing, 1), (&origin, 20_000), (&events, 1)];
    std::thread::scope(|scope| {
        for (server, bytes) in cases {
            scope.spawn(move || {
                let timeouts = "body-progress = '4s', body-progress-bytes = '4k'";
                let proxy = start_proxy(&server.authority, timeouts, pool);
                let mut client = proxy.client();
                client.send(POST_CHUNKED.as_bytes());
                let begun = now_ns();
                while elapsed_since(begun) < Duration::from_secs(8) {
                    client.send(format!("{bytes:x}\r\n{}\r\n", "x".repeat(bytes)).as_bytes());
                    pause_ms(50);
                }
                client.send(b"0\r\n\r\n");
                assert_eq!(client.read_response().unwrap().status, 200);
                assert_eq!(end_in_json_log(&proxy, "/chunks"), "done");
            });
        }
    });
}

#[test]
fn a_content_type_of_grpc_holds_no_slot_of_a_server_over_http1() {
    let _shared = shared_machine();
    let origin = ScriptedServer::start(|peer: &mut ScriptPeer| {
        peer.request()?;
        let mut buffer = [0; 4_096];
        while peer.stream.read(&mut buffer)? > 0 {}
        Ok(())
    });
    let timeouts = "body-idle = '1s', body-progress = '1s', body-progress-bytes = '1k'";
    let pool = "maxconn = 1\ntimeouts = { first-byte = '1s' }\n";
    let proxy = start_proxy(&origin.authority, timeouts, pool);
    let head = |target: &str, content_type: &str| {
        format!(
            "POST {target} HTTP/1.1\r\nHost: t\r\nContent-Type: {content_type}\r\n\
             Transfer-Encoding: chunked\r\n\r\n"
        )
    };
    for (number, content_type) in [
        "application/grpc",
        "application/grpc+proto",
        "APPLICATION/GRPC; a=b",
        "application/grpc-web",
        "text/plain",
    ]
    .into_iter()
    .enumerate()
    {
        // A body that does not end, and a complete one without a response.
        let target = format!("/body{number}");
        dribble(proxy.authority(), &head(&target, content_type), || b"1\r\nx\r\n".to_vec(), true);
        assert_eq!(end_in_json_log(&proxy, &target), "body_timeout", "{content_type}");
        let target = format!("/wait{number}");
        let mut client = proxy.client();
        client.send(format!("{}0\r\n\r\n", head(&target, content_type)).as_bytes());
        client.read_response().unwrap();
        assert_eq!(end_in_json_log(&proxy, &target), "server_timeout", "{content_type}");
    }
    proxy.assert_all_returned();
}

#[test]
fn framing_of_a_server_holds_no_request() {
    let _shared = shared_machine();
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let cases: [(&str, String, &str); 4] = [
        ("trailers", format!("{chunked}0\r\nX-A: "), "server_timeout"),
        ("extension", format!("{chunked}3;a="), "server_timeout"),
        ("head", "HTTP/1.1 200 OK\r\nX-A: ".to_owned(), "server_timeout"),
        ("interim", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early".to_owned(), "server_timeout"),
    ];
    for (name, start, end) in cases {
        let origin = ScriptedServer::start(move |peer: &mut ScriptPeer| {
            peer.request()?;
            peer.send(start.as_bytes())?;
            let begun = now_ns();
            while elapsed_since(begun) < EVENT_TIMEOUT {
                peer.send(b"b")?;
                std::thread::sleep(PIECE_INTERVAL);
            }
            Ok(())
        });
        let pool = "timeouts = { idle = '1s', first-byte = '1s' }\n";
        let proxy = start_proxy(&origin.authority, "write = '1m'", pool);
        let begun = now_ns();
        get_to_end(&proxy, &format!("/{name}"));
        assert!(elapsed_since(begun) < EVENT_TIMEOUT, "{name}");
        assert_eq!(end_in_json_log(&proxy, &format!("/{name}")), end, "{name}");
        proxy.assert_all_returned();
    }
}

#[test]
fn a_server_that_sends_an_event_now_and_then_is_no_slow_one() {
    let _shared = shared_machine();
    let origin = ScriptedServer::start(|peer: &mut ScriptPeer| {
        peer.request()?;
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for _ in 0..40 {
            peer.send(b"1\r\n:\r\n")?;
            std::thread::sleep(Duration::from_millis(200));
        }
        peer.send(b"0\r\n\r\n")
    });
    let proxy = start_proxy(&origin.authority, "write = '1s'", "timeouts = { idle = '3s' }\n");
    let received = get_to_end(&proxy, "/events");
    assert_eq!(received.matches("\r\n:\r\n").count(), 40, "{received}");
    assert_eq!(end_in_json_log(&proxy, "/events"), "done");
}

#[test]
fn a_tunnel_is_not_held_by_one_direction() {
    let _shared = shared_machine();
    // Sends bytes now and then, and reads nothing.
    let origin = ScriptedServer::start(|peer: &mut ScriptPeer| {
        let begun = now_ns();
        while elapsed_since(begun) < EVENT_TIMEOUT {
            peer.send(b"b")?;
            std::thread::sleep(PIECE_INTERVAL);
        }
        Ok(())
    });
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\ntimeouts = {{ tunnel = '1s' }}\n",
        origin.authority
    ));
    let mut client = TcpStream::connect(proxy.authority()).unwrap();
    client.set_write_timeout(Some(PIECE_INTERVAL)).unwrap();
    client.set_read_timeout(Some(PIECE_INTERVAL)).unwrap();
    let (begun, block, mut buffer) = (now_ns(), vec![0; 64 * 1024], [0; 64]);
    let mut is_ended = false;
    while !is_ended && elapsed_since(begun) < EVENT_TIMEOUT {
        is_ended = client.write(&block).is_err_and(|error| !is_timeout(&error))
            || client.read(&mut buffer).map_or_else(|error| !is_timeout(&error), |bytes| bytes == 0);
    }
    assert!(is_ended, "the tunnel is held");
    proxy.assert_all_returned();
}

#[test]
fn a_connection_that_always_begins_its_next_head_is_served() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--head-timeout", "3s"]);
    let backend = respond_to_each(|_, _| Some(ok_response(b"small")));
    let proxy = start_proxy(&backend.authority, "head = '3s'", "");
    for authority in [origin.authority.as_str(), proxy.authority()] {
        let mut client = TcpStream::connect(authority).unwrap();
        client.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
        let request = b"GET /?s=5 HTTP/1.1\r\nHost: t\r\n\r\n";
        client.write_all(&request[..5]).unwrap();
        let begun = now_ns();
        while elapsed_since(begun) < Duration::from_secs(8) {
            client.write_all(&[&request[5..], &request[..5]].concat()).unwrap();
            let mut response = [0; 1_024];
            let bytes = client.read(&mut response).unwrap();
            assert!(response[..bytes].starts_with(b"HTTP/1.1 200"), "{authority}");
            pause_ms(100);
        }
    }
}
