//! What happens between messages: order, reuse, early answers, tunnels, ends that come too soon.

use std::io::{Read, Write};
use std::net::Shutdown;

use crate::proxy_matrix::{against_both, chunked, content};
use crate::support::pause_ms;
use crate::support::peers::Scripted;
use crate::support::proxies::{Recorder, Reply, Setup, Subject};
use crate::support::strict::{Framing, Reader, Wrong};

against_both!(
    pipelined_requests_are_answered_in_order,
    a_connection_stays_or_ends_as_both_sides_say,
    an_early_413_reaches_the_client,
    an_early_200_does_not_end_the_request,
    an_upgrade_is_a_tunnel_that_may_be_half_closed,
    connect_is_refused,
    an_answer_that_is_cut_off_is_never_whole,
);

fn echo() -> Recorder {
    Recorder::start(|request| {
        let text = format!("{} {}", request.target(), request.body.len());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        Reply::Stay(vec![(head + &text).into_bytes()])
    })
}

fn pipelined_requests_are_answered_in_order(subject: Subject) {
    let origin = echo();
    let proxy = subject.start(origin.authority(), Setup::default());
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
        let answer = caller.reader.answer("GET").unwrap().1;
        let wanted = format!("/{number} {}", [0, 5, 40][number % 3]);
        assert_eq!(String::from_utf8_lossy(&answer.body), wanted);
        assert_eq!(origin.request().target(), format!("/{number}"));
    }
    assert!(origin.connections() <= 3, "{} connections to the origin", origin.connections());
}

fn a_connection_stays_or_ends_as_both_sides_say(subject: Subject) {
    let origin = echo();
    let proxy = subject.start(origin.authority(), Setup::default());
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
        let answer = caller.ask(request.as_bytes()).unwrap();
        assert_eq!(answer.body, b"/a 0");
        if stays {
            assert!(!answer.lists("connection", "close"), "{version} {field:?}: {answer:?}");
            assert_eq!(caller.ask(request.as_bytes()).unwrap().body, b"/a 0");
        } else {
            assert!(!answer.lists("connection", "keep-alive"), "{version} {field:?}: {answer:?}");
            assert!(matches!(caller.reader.answer("GET"), Err(Wrong::Over)), "{field:?} stays");
        }
    }
}

fn an_early_413_reaches_the_client(subject: Subject) {
    let origin = Scripted::start(|peer| {
        Reader::new(&peer.stream).request_head().unwrap();
        peer.send(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")?;
        peer.stream.shutdown(Shutdown::Write)?;
        // What is still under way would turn the close into a reset.
        let mut bytes = [0; 65_536];
        while peer.stream.read(&mut bytes)? > 0 {}
        Ok(())
    });
    let proxy = subject.start(&origin.authority, Setup::default());
    let mut caller = proxy.connect();
    let head = "POST /v HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2000000\r\n\r\n";
    caller.send(head.as_bytes()).unwrap();
    for _ in 0..20 {
        if caller.send(&content(50_000)).is_err() {
            break;
        }
        pause_ms(5);
    }
    let answer = caller.reader.answer("POST").unwrap().1;
    assert_eq!((answer.status(), &answer.body[..]), (413, &b"big"[..]));
}

fn an_early_200_does_not_end_the_request(subject: Subject) {
    let (sender, received) = std::sync::mpsc::channel();
    let origin = Scripted::start(move |peer| {
        let mut reader = Reader::new(&peer.stream);
        let mut request = reader.request_head().unwrap();
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n")?;
        let whole = reader.body(&mut request).is_ok();
        sender.send((whole, request.body)).unwrap();
        peer.send(b"4\r\nlate\r\n0\r\n\r\n")
    });
    let proxy = subject.start(&origin.authority, Setup::default());
    let mut caller = proxy.connect();
    let head = "POST /v HTTP/1.1\r\nHost: a.example\r\nContent-Length: 300000\r\n\r\n";
    let body = content(300_000);
    caller.send(head.as_bytes()).unwrap();
    caller.send(&body[..100_000]).unwrap();
    let mut answer = caller.reader.response_head("POST").unwrap();
    assert_eq!((answer.status(), answer.framing), (200, Framing::Chunked));
    caller.send(&body[100_000..]).unwrap();
    caller.reader.body(&mut answer).unwrap();
    assert_eq!(answer.body, b"earlylate");
    let (whole, seen) = received.recv().unwrap();
    assert!(whole && seen == body, "{} bytes", seen.len());
}

fn an_upgrade_is_a_tunnel_that_may_be_half_closed(subject: Subject) {
    let origin = Scripted::start(|peer| {
        let mut reader = Reader::new(&peer.stream);
        let head = reader.request_head().unwrap();
        assert!(head.lists("connection", "upgrade") && head.one("upgrade") == Some("echo"));
        // The first bytes of the tunnel come in one piece with the head.
        peer.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi ",
        )?;
        let mut all = reader.take_buffered();
        peer.stream.read_to_end(&mut all)?;
        peer.send(&all)?;
        peer.send(b" bye")
    });
    let proxy = subject.start(&origin.authority, Setup::default());
    let mut caller = proxy.connect();
    let head = "GET /t HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    caller.send(head.as_bytes()).unwrap();
    let answer = caller.reader.answer("GET").unwrap().1;
    assert_eq!((answer.status(), answer.one("upgrade")), (101, Some("echo")));
    assert!(answer.lists("connection", "upgrade"), "{answer:?}");
    let through = content(200_000);
    caller.stream.write_all(&through).unwrap();
    caller.stream.shutdown(Shutdown::Write).unwrap();
    let back = caller.reader.rest();
    assert!(back == [b"hi ", &through[..], b" bye"].concat(), "{} bytes back", back.len());
}

fn connect_is_refused(subject: Subject) {
    let origin = echo();
    let proxy = subject.start(origin.authority(), Setup::default());
    let request = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n";
    assert_eq!(proxy.connect().ask(request).unwrap().status(), 405);
    assert!(origin.so_far().is_empty() && origin.connections() == 0);
}

fn an_answer_that_is_cut_off_is_never_whole(subject: Subject) {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
    ] {
        let origin = Scripted::answering_once(answer);
        let proxy = subject.start(&origin.authority, Setup::default());
        let request = b"GET /v HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let got = proxy.connect().ask(request);
        assert!(matches!(got, Err(Wrong::Truncated(_))), "{got:?}");
    }
    // Without even a head it is the proxy's to answer.
    let origin = Scripted::answering_once(b"");
    let proxy = subject.start(&origin.authority, Setup::default());
    let answer = proxy.connect().ask(b"POST /v HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(answer.unwrap().status(), 502);
}
