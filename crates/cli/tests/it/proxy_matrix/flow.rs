//! Behaviour between messages: order, reuse, early responses, tunnels, premature ends.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::proxy_matrix::{against_subject, chunked, content};
use crate::support::pause_ms;
use crate::support::peers::ScriptedServer;
use crate::support::proxies::{OriginReply, ProxyKind, ProxySetup, RecordingOrigin};
use crate::support::strict_parser::{Framing, ReadError, StrictReader};

against_subject!(
    pipelined_requests_are_answered_in_order,
    a_connection_stays_or_ends_as_both_sides_say,
    an_early_413_reaches_the_client,
    an_early_200_does_not_end_the_request,
    an_upgrade_is_a_tunnel_that_may_be_half_closed,
    connect_is_refused,
    an_answer_that_is_cut_off_is_never_whole,
);

fn echo_origin() -> RecordingOrigin {
    RecordingOrigin::start(|request| {
        let text = format!("{} {}", request.target(), request.body.len());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        OriginReply::KeepOpen(vec![(head + &text).into_bytes()])
    })
}

fn pipelined_requests_are_answered_in_order(subject: ProxyKind) {
    let origin = echo_origin();
    let proxy = subject.start(origin.authority(), ProxySetup::default());
    let mut bytes = Vec::new();
    for number in 0..60 {
        let head = format!("/{number} HTTP/1.1\r\nHost: a.example\r\n");
        match number % 3 {
            0 => bytes.extend(format!("GET {head}\r\n").into_bytes()),
            1 => bytes.extend(format!("POST {head}Content-Length: 5\r\n\r\nhello").into_bytes()),
            _ => {
                bytes.extend(format!("PUT {head}Transfer-Encoding: chunked\r\n\r\n").into_bytes());
                bytes.extend(chunked(&content(40), 7, ""));
            }
        }
    }
    let mut caller = proxy.connect();
    caller.send(&bytes).unwrap();
    for number in 0..60 {
        let response = caller.reader.read_response("GET").unwrap().1;
        let expected = format!("/{number} {}", [0, 5, 40][number % 3]);
        assert_eq!(String::from_utf8_lossy(&response.body), expected);
        assert_eq!(origin.valid_request().target(), format!("/{number}"));
    }
    assert!(origin.connections() <= 3, "{} connections to the origin", origin.connections());
}

fn a_connection_stays_or_ends_as_both_sides_say(subject: ProxyKind) {
    let origin = echo_origin();
    let proxy = subject.start(origin.authority(), ProxySetup::default());
    for (version, field, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: CLOSE, x\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: close\r\n", false),
    ] {
        let mut caller = proxy.connect();
        let request = format!("GET /a HTTP/{version}\r\nHost: a.example\r\n{field}\r\n");
        let response = caller.exchange(request.as_bytes()).unwrap();
        assert_eq!(response.body, b"/a 0");
        if stays {
            assert!(!response.list_contains("connection", "close"), "{version} {field:?}: {response:?}");
            assert_eq!(caller.exchange(request.as_bytes()).unwrap().body, b"/a 0");
        } else {
            assert!(!response.list_contains("connection", "keep-alive"), "{version} {field:?}: {response:?}");
            assert!(matches!(caller.reader.read_response("GET"), Err(ReadError::Closed)), "{field:?} stays");
        }
    }
}

fn an_early_413_reaches_the_client(subject: ProxyKind) {
    let origin = ScriptedServer::start(|peer| {
        StrictReader::new(&peer.stream).read_request_head().unwrap();
        peer.send(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")?;
        peer.stream.shutdown(Shutdown::Write)?;
        // Bytes still in flight would turn the close into a reset.
        let mut bytes = [0; 65_536];
        while peer.stream.read(&mut bytes)? > 0 {}
        Ok(())
    });
    let proxy = subject.start(&origin.authority, ProxySetup::default());
    let mut caller = proxy.connect();
    let head = "POST /v HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2000000\r\n\r\n";
    caller.send(head.as_bytes()).unwrap();
    for _ in 0..20 {
        if caller.send(&content(50_000)).is_err() {
            break;
        }
        pause_ms(5);
    }
    let response = caller.reader.read_response("POST").unwrap().1;
    assert_eq!((response.status(), &response.body[..]), (413, &b"big"[..]));
}

fn an_early_200_does_not_end_the_request(subject: ProxyKind) {
    let (sender, received) = std::sync::mpsc::channel();
    let origin = ScriptedServer::start(move |peer| {
        let mut reader = StrictReader::new(&peer.stream);
        let mut request = reader.read_request_head().unwrap();
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n")?;
        let is_complete = reader.read_body(&mut request).is_ok();
        sender.send((is_complete, request.body)).unwrap();
        peer.send(b"4\r\nlate\r\n0\r\n\r\n")
    });
    let proxy = subject.start(&origin.authority, ProxySetup::default());
    let mut caller = proxy.connect();
    let head = "POST /v HTTP/1.1\r\nHost: a.example\r\nContent-Length: 300000\r\n\r\n";
    let body = content(300_000);
    caller.send(head.as_bytes()).unwrap();
    caller.send(&body[..100_000]).unwrap();
    let mut response = caller.reader.read_response_head("POST").unwrap();
    assert_eq!((response.status(), response.framing), (200, Framing::Chunked));
    caller.send(&body[100_000..]).unwrap();
    caller.reader.read_body(&mut response).unwrap();
    assert_eq!(response.body, b"earlylate");
    let (is_complete, received_bytes) = received.recv().unwrap();
    assert!(is_complete && received_bytes == body, "{} bytes", received_bytes.len());
}

fn an_upgrade_is_a_tunnel_that_may_be_half_closed(subject: ProxyKind) {
    let origin = ScriptedServer::start(|peer| {
        let mut reader = StrictReader::new(&peer.stream);
        let head = reader.read_request_head().unwrap();
        assert!(head.list_contains("connection", "upgrade") && head.single_value("upgrade") == Some("echo"));
        // The first bytes of the tunnel arrive together with the head.
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi ")?;
        let mut all = reader.take_buffered();
        peer.stream.read_to_end(&mut all)?;
        peer.send(&all)?;
        peer.send(b" bye")
    });
    let proxy = subject.start(&origin.authority, ProxySetup::default());
    let mut caller = proxy.connect();
    let head = "GET /t HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    caller.send(head.as_bytes()).unwrap();
    let response = caller.reader.read_response("GET").unwrap().1;
    assert_eq!((response.status(), response.single_value("upgrade")), (101, Some("echo")));
    assert!(response.list_contains("connection", "upgrade"), "{response:?}");
    let through = content(200_000);
    caller.stream.write_all(&through).unwrap();
    caller.stream.shutdown(Shutdown::Write).unwrap();
    let from_server = caller.reader.read_to_end();
    assert!(from_server == [b"hi ", &through[..], b" bye"].concat(), "{} bytes back", from_server.len());
}

fn connect_is_refused(subject: ProxyKind) {
    let origin = echo_origin();
    let proxy = subject.start(origin.authority(), ProxySetup::default());
    let request = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n";
    assert_eq!(proxy.connect().exchange(request).unwrap().status(), 405);
    assert!(origin.take_requests().is_empty() && origin.connections() == 0);
}

fn an_answer_that_is_cut_off_is_never_whole(subject: ProxyKind) {
    for response in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
    ] {
        let origin = ScriptedServer::responding_once(response);
        let proxy = subject.start(&origin.authority, ProxySetup::default());
        let request = b"GET /v HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let got = proxy.connect().exchange(request);
        assert!(matches!(got, Err(ReadError::Truncated(_))), "{got:?}");
    }
    // Without a head from the server, the proxy itself responds.
    let origin = ScriptedServer::responding_once(b"");
    let proxy = subject.start(&origin.authority, ProxySetup::default());
    let response = proxy.connect().exchange(b"POST /v HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(response.unwrap().status(), 502);
}
