//! HTTP/1: framing of requests, persistence, and rejected requests.

use std::io::Write;
use std::net::Shutdown;
use std::thread::sleep;
use std::time::Duration;

use crate::client::{Client, TestOrigin, get, pattern};

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    let targets = ["/?s=1", "/?s=2&t=2", "/?s=20k", "/?s=3&k=1", "/?s=100k", "/?s=4"];
    client.send(targets.map(get).concat());
    for size in [1, 2, 20_480, 3, 102_400, 4] {
        assert!(client.read_response().body == pattern(size), "{size}");
    }
}

#[test]
fn a_head_may_come_byte_by_byte() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    for byte in (get("/?s=5") + &get("/?s=6")).bytes() {
        client.send([byte]);
        sleep(Duration::from_micros(200));
    }
    assert_eq!(client.read_response().body.len(), 5);
    assert_eq!(client.read_response().body.len(), 6);
    let stats = origin.stats();
    assert_eq!((stats.sum.totals.requests, stats.sum.buffers_in_use), (2, 0));
}

#[test]
fn a_head_request_has_the_head_of_a_get_and_no_body() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    for target in ["/?s=50", "/?s=100k", "/", "/?s=5&t=1"] {
        let length = client.get(target).body.len();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let head = client.read_response_to(true);
        assert_eq!(head.field("Content-Length"), Some(length.to_string().as_str()));
    }
    client.send("HEAD /?s=5&k=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.read_response_to(true).field("Transfer-Encoding"), Some("chunked"));
    assert_eq!(client.get("/?s=1").body, b".");
}

#[test]
fn bodies_of_requests_are_read_and_passed_over() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    let post = |rest: &str| format!("POST /?s=3 HTTP/1.1\r\nHost: h\r\n{rest}");
    client.send(post("Content-Length: 5\r\n\r\nhello") + &get("/?s=1"));
    assert_eq!((client.read_response().body.len(), client.read_response().body.len()), (3, 1));
    client.send(post("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n") + &get("/?s=2"));
    assert_eq!((client.read_response().body.len(), client.read_response().body.len()), (3, 2));
    client.send(post("Content-Length: 3000000\r\n\r\n"));
    client.send(vec![b'x'; 3_000_000]);
    client.send(get("/?s=4"));
    assert_eq!((client.read_response().body.len(), client.read_response().body.len()), (3, 4));
    client.send(post("Transfer-Encoding: chunked\r\n\r\n"));
    for part in ["5\r\nhel", "lo\r\n", "0\r\n", "\r\n"] {
        sleep(Duration::from_millis(5));
        client.send(part);
    }
    assert_eq!(client.read_response().body.len(), 3);
}

#[test]
fn an_expect_100_continue_gets_a_100_response() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    let head = "Host: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    client.send(format!("POST /?s=3 HTTP/1.1\r\n{head}"));
    assert_eq!(client.read_response().status(), 100);
    client.send("hello");
    assert_eq!(client.read_response().body.len(), 3);
    // B=0 responds without the body, so it requests no body, and the connection cannot continue.
    client.send(format!("POST /?s=3&B=0 HTTP/1.1\r\n{head}"));
    let response = client.read_response();
    assert_eq!((response.status(), response.field("Connection")), (200, Some("close")));
    assert!(client.read_to_end().is_empty());
}

#[test]
fn a_response_may_come_before_the_complete_body() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    client.send("POST /?s=3&B=10 HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    client.send([b'x'; 20]);
    assert_eq!(client.read_response().body.len(), 3);
    client.send([b'x'; 99_980]);
    assert_eq!(client.get("/?s=7").body.len(), 7);
}

#[test]
fn connections_stay_and_end_as_client_and_target_want() {
    let origin = TestOrigin::start_default();
    let exchange = |request: &str, must_close: bool| {
        let mut client = origin.client();
        client.send(request);
        let connection = client.read_response().field("Connection").map(str::to_owned);
        // The test waits for a connection that must end; one that must stay might end soon.
        let timeout = Duration::from_millis(if must_close { 20_000 } else { 100 });
        client.stream.set_read_timeout(Some(timeout)).unwrap();
        let mut byte = [0];
        let ended = std::io::Read::read(&mut client.stream, &mut byte).is_ok();
        (ended, connection.unwrap_or_default())
    };
    let close = "Host: h\r\nConnection: close\r\n\r\n";
    for (request, must_close, connection_field) in [
        (get("/?s=5"), false, ""),
        (format!("GET /?s=5 HTTP/1.1\r\n{close}"), true, "close"),
        (format!("GET /?s=5&K=1 HTTP/1.1\r\n{close}"), false, "keep-alive"),
        (get("/?s=5&C=1"), true, "close"),
        (get("/?s=5&C=1&t=1"), true, "close"),
        ("GET /?s=5 HTTP/1.0\r\n\r\n".to_owned(), true, "close"),
        ("GET /?s=5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(), false, "keep-alive"),
        ("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n".to_owned(), true, "close"),
    ] {
        assert_eq!(exchange(&request, must_close), (must_close, connection_field.to_owned()), "{request}");
    }
}

#[test]
fn a_half_closed_client_still_gets_its_responses() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    client.send(get("/?s=100&t=20") + &get("/?s=200k"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_response().body.len(), 100);
    assert_eq!(client.read_response().body.len(), 204_800);
    assert!(client.read_to_end().is_empty());
}

#[test]
fn rejected_requests_get_an_error_are_counted_and_end_the_connection() {
    let origin = TestOrigin::start_default();
    for (request, status, kind) in [
        ("GET /x HTTP/1.1\r\n\r\n".to_owned(), 400, "host_missing"),
        ("GET /x HTTP/2.0\r\nHost: h\r\n\r\n".to_owned(), 505, "unsupported_version"),
        (get(&format!("/{}", "x".repeat(9000))), 414, "target_too_long"),
        (format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(200_000)), 431, "head_too_large"),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(),
            501,
            "transfer_encoding_unsupported",
        ),
        (
            "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
            400,
            "chunk_size_invalid",
        ),
        (
            "POST /?t=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n".to_owned(),
            400,
            "chunk_size_invalid",
        ),
    ] {
        let before = origin.stats().sum.rejected_by_kind.get(kind).copied().unwrap_or(0);
        let mut client = origin.client();
        // The origin may stop reading before the end.
        let _ = client.stream.write_all(request.as_bytes());
        let response = client.read_response();
        assert_eq!((response.status(), response.field("Connection")), (status, Some("close")));
        assert!(client.read_to_end().is_empty());
        assert_eq!(origin.stats().sum.rejected_by_kind.get(kind), Some(&(before + 1)), "{kind}");
    }
}

#[test]
fn good_requests_before_a_bad_one_are_answered() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    client.send(get("/?s=1") + &get("/?s=2") + "BAD\r\n\r\n");
    assert_eq!((client.read_response().body.len(), client.read_response().body.len()), (1, 2));
    assert_eq!(client.read_response().status(), 400);
}

#[test]
fn unix_sockets_serve_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("origin.sock");
    let origin = TestOrigin::start(|text| {
        text.listen = vec![format!("unix:{}", path.display())];
        text.threads = "2".to_owned();
    });
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut client = Client { stream, received: Vec::new() };
    assert_eq!(client.get("/?s=300k").body, pattern(307_200));
    drop(origin);
    assert!(!path.exists());
}
