//! Where one side stops listening before the other has stopped talking, and fields that mean nothing
//! in the message that they are in: what could be taken for the next message later.

use std::io::Read;
use std::net::Shutdown;

use crate::proxy_matrix::{against_both, run};
use crate::support::peers::Scripted;
use crate::support::proxies::{Caller, Recorder, Reply, Setup, Subject};
use crate::support::strict::{Message, Reader, Wrong};

against_both!(the_rest_of_a_body_after_an_early_end_is_no_request);

const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: inner\r\n\r\n";

/// An origin that answers each head at once, whatever body was announced, and tells the targets.
fn hasty(answer: &'static [u8]) -> (Scripted, std::sync::mpsc::Receiver<String>) {
    let (sender, targets) = std::sync::mpsc::channel();
    let origin = Scripted::start(move |peer| {
        let mut reader = Reader::new(&peer.stream);
        while let Ok(head) = reader.request_head() {
            let _ = sender.send(head.target().to_owned());
            peer.send(answer)?;
            if answer.windows(5).any(|five| five == b"close") {
                break;
            }
        }
        // What is still under way would turn the close into a reset.
        peer.stream.shutdown(Shutdown::Write)?;
        while peer.stream.read(&mut [0; 65_536])? > 0 {}
        Ok(())
    });
    (origin, targets)
}

/// Everything that a client still gets.
fn rest(caller: &mut Caller) -> Vec<u8> {
    let mut bytes = caller.reader.take_buffered();
    let _ = caller.stream.read_to_end(&mut bytes);
    bytes
}

fn the_rest_of_a_body_after_an_early_end_is_no_request(subject: Subject) {
    let (origin, targets) =
        hasty(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig");
    let proxy = subject.start(&origin.authority, Setup::default());
    let mut caller = proxy.connect();
    caller.send(b"POST /v HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n").unwrap();
    assert_eq!(caller.reader.answer("POST").unwrap().1.status(), 413);
    // As the body's next bytes.
    let _ = caller.send(SMUGGLED);
    let patience = std::time::Duration::from_millis(500);
    caller.stream.set_read_timeout(Some(patience)).unwrap();
    let more = rest(&mut caller);
    assert!(more.is_empty(), "{}", more.escape_ascii());
    assert_eq!(targets.try_iter().collect::<Vec<_>>(), ["/v"]);
}

/// Whether a client that got no `100 Continue` still sends its body is its choice: nobody else can
/// tell that body from the next request.
#[test]
fn an_expectation_without_100_ends_both_connections() {
    run(Subject::Weir, |subject| {
        let (origin, targets) = hasty(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno");
        let proxy = subject.start(&origin.authority, Setup::default());
        let mut caller = proxy.connect();
        let head =
            "POST /v HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n";
        caller.send(head.as_bytes()).unwrap();
        let answer = caller.reader.answer("POST").unwrap().1;
        assert!(answer.status() == 401 && answer.lists("connection", "close"), "{answer:?}");
        let _ = caller.send(SMUGGLED);
        assert!(matches!(caller.reader.answer("GET"), Err(Wrong::Over | Wrong::Truncated(_))));
        let next = proxy.connect().ask(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(next.status(), 401);
        assert_eq!(targets.try_iter().collect::<Vec<_>>(), ["/v", "/next"]);
        assert_eq!(origin.connections(), 2);
        // Who sends its body without waiting has a body like any other.
        let (origin, _) = hasty(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let proxy = subject.start(&origin.authority, Setup::default());
        let whole = [head.replace(": 40", ": 0").as_bytes(), SMUGGLED].concat();
        let mut caller = proxy.connect();
        caller.send(&whole).unwrap();
        for _ in 0..2 {
            assert_eq!(caller.reader.answer("POST").unwrap().1.body, b"ok");
        }
    });
}

#[test]
fn a_length_that_frames_nothing_ends_here() {
    run(Subject::Weir, |subject| {
        let origin = Recorder::start(|_| {
            let bytes = b"HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\nLink: </a>\r\n\r\n\
                HTTP/1.1 204 No Content\r\nContent-Length: 9\r\nX-Last: 1\r\n\r\n";
            Reply::Stay(vec![bytes.to_vec()])
        });
        let proxy = subject.start(origin.authority(), Setup::default());
        let mut caller = proxy.connect();
        for _ in 0..2 {
            caller.send(b"GET /v HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let (interim, last) = caller.reader.answer("GET").unwrap();
            assert_eq!((interim.len(), last.status()), (1, 204));
            assert_eq!((interim[0].one("link"), last.one("x-last")), (Some("</a>"), Some("1")));
            for message in interim.iter().chain([&last]) {
                assert!(message.all("content-length").is_empty(), "{message:?}");
            }
        }
    });
}

#[test]
fn a_refused_connect_has_a_body_and_an_accepted_one_is_a_tunnel() {
    run(Subject::Weir, |subject| {
        let origin = Scripted::start(|peer| {
            let mut reader = Reader::new(&peer.stream);
            while let Ok(head) = reader.request_head() {
                if head.target() == "a.example:443" {
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")?;
                    let mut all = reader.take_buffered();
                    peer.stream.read_to_end(&mut all)?;
                    return peer.send(&all);
                }
                peer.send(b"HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nnope")?;
            }
            Ok(())
        });
        let setup = Setup { listener: "connect = true", pool: "" };
        let proxy = subject.start(&origin.authority, setup);
        // What comes behind a CONNECT is no request, so a refused one ends its connection.
        for _ in 0..2 {
            let mut caller = proxy.connect();
            caller.send(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n").unwrap();
            let answer = caller.reader.answer("CONNECT").unwrap().1;
            assert_eq!((answer.status(), &answer.body[..]), (403, &b"nope"[..]));
            assert!(!answer.persists() && caller.reader.rest().is_empty());
        }
        let mut caller = proxy.connect();
        caller.send(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").unwrap();
        // Read as a HEAD: what follows the head is the tunnel's.
        let answer = caller.reader.answer("HEAD").unwrap().1;
        assert!(answer.status() == 200 && answer.all("content-length").is_empty(), "{answer:?}");
        caller.send(b" there").unwrap();
        caller.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(caller.reader.rest(), b"hi there");
    });
}

#[test]
fn what_would_change_the_protocol_or_wait_for_nothing_ends_here() {
    run(Subject::Weir, |subject| {
        let origin = Recorder::start(|_| {
            Reply::Stay(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()])
        });
        let proxy = subject.start(origin.authority(), Setup::default());
        let seen = |lines: &str| -> Message {
            let request = format!("{lines}\r\n");
            assert_eq!(proxy.connect().ask(request.as_bytes()).unwrap().status(), 200, "{lines}");
            origin.request()
        };
        for protocol in ["h2c", "H2C", "websocket, H2c", "h2"] {
            let lines = format!(
                "GET /v HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
            );
            let seen = seen(&lines);
            assert!(seen.all("upgrade").is_empty(), "{seen:?}");
            assert!(!seen.lists("connection", "upgrade"), "{seen:?}");
        }
        for lines in [
            "GET /v HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n",
            "POST /v HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n",
        ] {
            let seen = seen(lines);
            assert!(seen.all("expect").is_empty(), "{seen:?}");
        }
    });
}
