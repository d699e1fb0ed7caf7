//! The pages over real sockets: responses, rejections, and limits on every resource.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rt::drain::Drain;

use super::*;

/// Serves while `client` runs in its own thread, and returns the client's result.
fn with_web_ui<T: Send + 'static>(client: impl FnOnce(SocketAddr) -> T + Send + 'static) -> T {
    let drain = Drain::default();
    let stop = drain.watch();
    let routes = vec![
        WebRoute::new("/", |_| WebPage::html("<script>1</script>".to_owned())),
        WebRoute::new("/below/", |request| {
            WebPage::text(200, format!("{:?}", request.segments_below("/below/").unwrap()))
        }),
        WebRoute::new("/large", |_| WebPage::text(200, "x".repeat(1 << 20))),
    ];
    let (sender, started) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = client(started.recv().unwrap());
        drain.advance(DrainStage::Draining);
        result
    });
    run("127.0.0.1:0".parse().unwrap(), routes, stop, move |address| {
        sender.send(address).unwrap();
    })
    .unwrap();
    thread.join().unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Returns the complete response to `request`.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn status(response: &str) -> &str {
    response.get(9..12).unwrap_or(response)
}

#[test]
fn the_routes_are_there_and_nothing_else() {
    with_web_ui(|address| {
        let get = |request: &str| {
            exchange(address, format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        };
        let index = get("GET /?a=b");
        assert!(index.starts_with("HTTP/1.1 200 OK\r\n"), "{index}");
        assert!(index.ends_with("\r\n\r\n<script>1</script>"), "{index}");
        assert!(index.contains("Content-Security-Policy: default-src 'none'; "), "{index}");
        assert!(index.contains("script-src 'sha256-") && index.contains("nosniff"), "{index}");
        let head = get("HEAD /");
        assert!(head.contains("Content-Length: 18\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(get("GET /below/a/b%20c").ends_with("[\"a\", \"b c\"]"));
        assert_eq!(get("GET /large").len() >> 20, 1);
        for (request, expected) in [
            ("GET /x", "404"),
            ("GET /below", "404"),
            ("GET /below/../", "400"),
            ("GET /below/%2e%2e/x", "400"),
            ("GET /%", "400"),
            ("DELETE /", "405"),
            ("OPTIONS *", "405"),
        ] {
            let response = get(request);
            assert_eq!(status(&response), expected, "{request}: {response}");
        }
        assert!(get("POST /").contains("\r\nAllow: GET, HEAD\r\n"));
    });
}

#[test]
fn a_foreign_name_is_refused() {
    with_web_ui(|address| {
        for (host, expected) in [
            ("localhost", "200"),
            ("127.0.0.1:1", "200"),
            ("[::1]:1", "200"),
            ("evil.example", "421"),
            ("localhost.evil.example", "421"),
            ("10.1.2.3", "421"),
        ] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(status(&exchange(address, request.as_bytes())), expected, "{host}");
        }
        // Without a host name, the request cannot be recognised as one for this machine.
        assert_eq!(status(&exchange(address, b"GET / HTTP/1.0\r\n\r\n")), "421");
        let absolute = b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        assert_eq!(status(&exchange(address, absolute)), "421");
    });
}

#[test]
fn hostile_requests_get_a_response_and_a_close() {
    with_web_ui(|address| {
        let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(9_000));
        let body = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
        for (request, expected) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], "400"),
            (b"GET / HTTP/1.1\r\n\r\n", "400"),
            (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", "505"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
            (long.as_bytes(), "431"),
            (&[&body[..], &[b'x'; 100_000]].concat(), "200"),
        ] {
            assert_eq!(status(&exchange(address, request)), expected);
        }
    });
}

#[test]
fn a_silent_client_times_out() {
    let response = with_web_ui(|address| {
        let mut response = String::new();
        connect(address).read_to_string(&mut response).unwrap();
        response
    });
    assert_eq!(status(&response), "408");
}

#[test]
fn a_response_that_has_begun_is_sent_although_the_server_drains() {
    let drain = Drain::default();
    let stop = drain.watch();
    // Larger than the socket buffers, so that it is not sent at once.
    let page = move |_: &WebRequest| {
        drain.advance(DrainStage::Draining);
        WebPage::text(200, "x".repeat(32 << 20))
    };
    let (sender, started) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let address: SocketAddr = started.recv().unwrap();
        exchange(address, b"GET /last HTTP/1.1\r\nHost: localhost\r\n\r\n")
    });
    run("127.0.0.1:0".parse().unwrap(), vec![WebRoute::new("/last", page)], stop, move |address| {
        sender.send(address).unwrap();
    })
    .unwrap();
    let response = client.join().unwrap();
    assert!(response.ends_with(&"x".repeat(32 << 20)), "{} bytes", response.len());
}
