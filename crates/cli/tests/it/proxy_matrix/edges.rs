//! One side stops reading before the other has stopped sending, and fields without meaning in their
//! message: bytes that could later be taken for the next message.

use std::io::Read;
use std::net::Shutdown;

use crate::proxy_matrix::{against_subject, run_if_installed};
use crate::support::peers::ScriptedServer;
use crate::support::proxies::{OriginReply, ProxyKind, ProxySetup, RecordingOrigin, StrictClient};
use crate::support::strict_parser::{ReadError, StrictMessage, StrictReader};

against_subject!(the_rest_of_a_body_after_an_early_end_is_no_request);

const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: inner\r\n\r\n";

/// Starts an origin that responds to each head at once, whatever body was announced, and reports
/// the targets.
fn hasty_origin(response: &'static [u8]) -> (ScriptedServer, std::sync::mpsc::Receiver<String>) {
    let (sender, targets) = std::sync::mpsc::channel();
    let origin = ScriptedServer::start(move |peer| {
        let mut reader = StrictReader::new(&peer.stream);
        while let Ok(head) = reader.read_request_head() {
            let _ = sender.send(head.target().to_owned());
            peer.send(response)?;
            if response.windows(5).any(|five| five == b"close") {
                break;
            }
        }
        // Bytes still in flight would turn the close into a reset.
        peer.stream.shutdown(Shutdown::Write)?;
        while peer.stream.read(&mut [0; 65_536])? > 0 {}
        Ok(())
    });
    (origin, targets)
}

/// Returns all further bytes of a client.
fn read_rest(caller: &mut StrictClient) -> Vec<u8> {
    let mut bytes = caller.reader.take_buffered();
    let _ = caller.stream.read_to_end(&mut bytes);
    bytes
}

fn the_rest_of_a_body_after_an_early_end_is_no_request(subject: ProxyKind) {
    let (origin, targets) =
        hasty_origin(b"HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig");
    let proxy = subject.start(&origin.authority, ProxySetup::default());
    let mut caller = proxy.connect();
    caller.send(b"POST /v HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n").unwrap();
    assert_eq!(caller.reader.read_response("POST").unwrap().1.status(), 413);
    // As the next bytes of the body.
    let _ = caller.send(SMUGGLED);
    let timeout = std::time::Duration::from_millis(500);
    caller.stream.set_read_timeout(Some(timeout)).unwrap();
    let more = read_rest(&mut caller);
    assert!(more.is_empty(), "{}", more.escape_ascii());
    assert_eq!(targets.try_iter().collect::<Vec<_>>(), ["/v"]);
}

/// A client without `100 Continue` may still send its body. No other peer can distinguish that body
/// from the next request.
#[test]
fn an_expectation_without_100_ends_both_connections() {
    run_if_installed(ProxyKind::Weir, |subject| {
        let (origin, targets) = hasty_origin(b"HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\nno");
        let proxy = subject.start(&origin.authority, ProxySetup::default());
        let mut caller = proxy.connect();
        let head = "POST /v HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 40\r\n\r\n";
        caller.send(head.as_bytes()).unwrap();
        let response = caller.reader.read_response("POST").unwrap().1;
        assert!(response.status() == 401 && response.list_contains("connection", "close"), "{response:?}");
        let _ = caller.send(SMUGGLED);
        assert!(matches!(
            caller.reader.read_response("GET"),
            Err(ReadError::Closed | ReadError::Truncated(_))
        ));
        let next = proxy.connect().exchange(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(next.status(), 401);
        assert_eq!(targets.try_iter().collect::<Vec<_>>(), ["/v", "/next"]);
        assert_eq!(origin.connections(), 2);
        // A body that is sent without waiting is a normal body.
        let (origin, _) = hasty_origin(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let proxy = subject.start(&origin.authority, ProxySetup::default());
        let message_bytes = [head.replace(": 40", ": 0").as_bytes(), SMUGGLED].concat();
        let mut caller = proxy.connect();
        caller.send(&message_bytes).unwrap();
        for _ in 0..2 {
            assert_eq!(caller.reader.read_response("POST").unwrap().1.body, b"ok");
        }
    });
}

#[test]
fn a_length_that_frames_nothing_ends_here() {
    run_if_installed(ProxyKind::Weir, |subject| {
        let origin = RecordingOrigin::start(|_| {
            let bytes = b"HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\nLink: </a>\r\n\r\n\
                HTTP/1.1 204 No Content\r\nContent-Length: 9\r\nX-Last: 1\r\n\r\n";
            OriginReply::KeepOpen(vec![bytes.to_vec()])
        });
        let proxy = subject.start(origin.authority(), ProxySetup::default());
        let mut caller = proxy.connect();
        for _ in 0..2 {
            caller.send(b"GET /v HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let (interim, last) = caller.reader.read_response("GET").unwrap();
            assert_eq!((interim.len(), last.status()), (1, 204));
            assert_eq!(
                (interim[0].single_value("link"), last.single_value("x-last")),
                (Some("</a>"), Some("1"))
            );
            for message in interim.iter().chain([&last]) {
                assert!(message.values("content-length").is_empty(), "{message:?}");
            }
        }
    });
}

#[test]
fn a_refused_connect_has_a_body_and_an_accepted_one_is_a_tunnel() {
    run_if_installed(ProxyKind::Weir, |subject| {
        let origin = ScriptedServer::start(|peer| {
            let mut reader = StrictReader::new(&peer.stream);
            while let Ok(head) = reader.read_request_head() {
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
        let setup = ProxySetup { listener: "connect = true", pool: "" };
        let proxy = subject.start(&origin.authority, setup);
        // Bytes after a CONNECT are no request, so a denied one ends its connection.
        for _ in 0..2 {
            let mut caller = proxy.connect();
            caller.send(b"CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n").unwrap();
            let response = caller.reader.read_response("CONNECT").unwrap().1;
            assert_eq!((response.status(), &response.body[..]), (403, &b"nope"[..]));
            assert!(!response.persists() && caller.reader.read_to_end().is_empty());
        }
        let mut caller = proxy.connect();
        caller.send(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").unwrap();
        // Read as a response to HEAD: the bytes after the head belong to the tunnel.
        let response = caller.reader.read_response("HEAD").unwrap().1;
        assert!(response.status() == 200 && response.values("content-length").is_empty(), "{response:?}");
        caller.send(b" there").unwrap();
        caller.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(caller.reader.read_to_end(), b"hi there");
    });
}

#[test]
fn what_would_change_the_protocol_or_wait_for_nothing_ends_here() {
    run_if_installed(ProxyKind::Weir, |subject| {
        let origin = RecordingOrigin::start(|_| {
            OriginReply::KeepOpen(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()])
        });
        let proxy = subject.start(origin.authority(), ProxySetup::default());
        let forwarded_request = |lines: &str| -> StrictMessage {
            let request = format!("{lines}\r\n");
            assert_eq!(proxy.connect().exchange(request.as_bytes()).unwrap().status(), 200, "{lines}");
            origin.valid_request()
        };
        for protocol in ["h2c", "H2C", "websocket, H2c", "h2"] {
            let lines =
                format!("GET /v HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n");
            let request_seen = forwarded_request(&lines);
            assert!(request_seen.values("upgrade").is_empty(), "{request_seen:?}");
            assert!(!request_seen.list_contains("connection", "upgrade"), "{request_seen:?}");
        }
        for lines in [
            "GET /v HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n",
            "POST /v HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n",
        ] {
            let request_seen = forwarded_request(lines);
            assert!(request_seen.values("expect").is_empty(), "{request_seen:?}");
        }
    });
}
