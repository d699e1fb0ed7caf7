//! The pages over real sockets: what is answered, what is refused, and that everything is bounded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rt::drain::Drain;

use super::*;

/// Serves while `client` runs in a thread of its own, and returns what it brought.
fn with_pages<T: Send + 'static>(client: impl FnOnce(SocketAddr) -> T + Send + 'static) -> T {
    let drain = Drain::default();
    let stop = drain.watch();
    let routes = vec![
        Route::new("/", |_| Page::html("<script>1</script>".to_owned())),
        Route::new("/below/", |request| {
            Page::text(200, format!("{:?}", request.below("/below/").unwrap()))
        }),
        Route::new("/large", |_| Page::text(200, "x".repeat(1 << 20))),
    ];
    let (sender, started) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = client(started.recv().unwrap());
        drain.advance(Stage::Draining);
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

/// The whole answer to `request`.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

#[test]
fn the_routes_are_there_and_nothing_else() {
    with_pages(|address| {
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
            let answer = get(request);
            assert_eq!(status(&answer), expected, "{request}: {answer}");
        }
        assert!(get("POST /").contains("\r\nAllow: GET, HEAD\r\n"));
    });
}

#[test]
fn a_foreign_name_is_refused() {
    with_pages(|address| {
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
        // Without a name nobody can say that it is ours.
        assert_eq!(status(&exchange(address, b"GET / HTTP/1.0\r\n\r\n")), "421");
        let absolute = b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        assert_eq!(status(&exchange(address, absolute)), "421");
    });
}

#[test]
fn hostile_requests_get_an_answer_and_an_end() {
    with_pages(|address| {
        let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(9_000));
        let body = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
        for (request, expected) in [
            (&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], "400"),
            (b"GET / HTTP/1.1\r\n\r\n", "400"),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
            (long.as_bytes(), "431"),
            (&[&body[..], &[b'x'; 100_000]].concat(), "200"),
        ] {
            assert_eq!(status(&exchange(address, request)), expected);
        }
    });
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let answer = with_pages(|address| {
        let mut answer = String::new();
        connect(address).read_to_string(&mut answer).unwrap();
        answer
    });
    assert_eq!(status(&answer), "408");
}
