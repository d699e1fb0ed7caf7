//! What targets ask for, on the wire.

use std::time::{Duration, Instant};

use crate::client::{Origin, get, pattern};

#[allow(clippy::disallowed_methods)] // A client's own clock is the point of these tests.
fn now() -> Instant {
    Instant::now()
}

#[test]
fn bodies_of_every_size_are_the_pattern() {
    let origin = Origin::plain();
    let mut client = origin.client();
    // Twice each, because the second answer may be one that was kept.
    for size in [0, 1, 100, 4096, 4097, 16_384, 16_385, 65_000, 65_001, 1 << 20, 5_000_000] {
        for _ in 0..2 {
            let answer = client.get(&format!("/?s={size}"));
            assert_eq!((answer.status(), answer.body.len()), (200, size));
            assert!(answer.body == pattern(size), "{size}");
        }
    }
}

#[test]
fn a_delay_is_not_shorter_and_not_much_longer_than_asked() {
    let origin = Origin::plain();
    let mut clients: Vec<_> = (0..4).map(|_| origin.client()).collect();
    for (option, least) in [("t=1", 1000), ("t=5", 5000), ("t=300us", 300)] {
        let started = now();
        for client in &mut clients {
            client.send(get(&format!("/?{option}")));
        }
        for client in &mut clients {
            client.answer();
        }
        let took = started.elapsed();
        assert!(took >= Duration::from_micros(least), "{option}: {took:?}");
        // How much longer is the machine's affair: asserted at a quiet one only (ARCHITECTURE.md).
        if std::env::var("WEIR_TEST_TIMES").is_err() {
            assert!(took < Duration::from_millis(500), "{option}: {took:?}");
        } else {
            let line = format!("times: demanded: {option} within 500 ms; seen: {took:?}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    }
}

#[test]
fn chunks_have_the_size_that_was_asked_for() {
    let origin = Origin::plain();
    let mut client = origin.client();
    for (size, chunk) in [(0, 1), (7, 1), (100, 30), (50_000, 1), (300_000, 70_000)] {
        client.send(get(&format!("/?s={size}&k={chunk}")));
        let head = client.take(17);
        assert_eq!(head, b"HTTP/1.1 200 OK\r\n");
        let head_end = client.take(b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len());
        assert!(head_end.starts_with(b"Date: "));
        assert_eq!(client.take(30), b"Transfer-Encoding: chunked\r\n\r\n");
        let chunks = client.chunks();
        assert!(chunks.iter().rev().skip(1).all(|data| data.len() == chunk), "{size} {chunk}");
        assert!(chunks.concat() == pattern(size), "{size} {chunk}");
    }
}

#[test]
fn a_length_that_lies_is_said_and_the_connection_ends() {
    let origin = Origin::plain();
    let mut client = origin.client();
    client.send(get("/?s=5&b=100"));
    let answer = String::from_utf8(client.rest()).unwrap();
    assert!(answer.contains("Content-Length: 100\r\n") && answer.ends_with("\r\n\r\n.1234"));
    let mut client = origin.client();
    client.send(get("/?s=5&b=0"));
    let answer = client.answer();
    assert_eq!((answer.field("Content-Length"), &answer.body), (None, &b".1234".to_vec()));
}

#[test]
fn pieces_pauses_and_random_bodies_arrive_whole() {
    let origin = Origin::plain();
    let mut client = origin.client();
    assert_eq!(client.get("/?s=10k&p=1k").body, pattern(10_240));
    let started = now();
    client.get("/?P=30");
    client.get("/?s=0");
    assert!(started.elapsed() >= Duration::from_millis(30));
    // Each is a part of one block, and two may be the same part of it.
    let bodies = [(); 5].map(|()| client.get("/?s=1000&R=1").body);
    assert!(bodies.iter().all(|body| body.len() == 1000));
    assert!(bodies.iter().any(|body| *body != bodies[0]));
    assert_eq!(client.get("/?s=3&cpu=100&alloc=10").body, b".12");
}

#[test]
fn statuses_follow_their_weights() {
    let origin = Origin::plain();
    let mut client = origin.client();
    let mut failed = 0;
    for _ in 0..400 {
        match client.get("/?r=200:75,503:25").status() {
            503 => failed += 1,
            status => assert_eq!(status, 200),
        }
    }
    assert!((50..150).contains(&failed), "{failed}");
}

#[test]
fn timing_fields_are_sent_when_asked_for() {
    let origin = Origin::plain();
    let answer = origin.client().get("/?s=10&t=3&v=1");
    assert!(answer.field("X-req").unwrap().starts_with("size=43, time="), "{}", answer.head);
    assert!(answer.field("X-rsp").unwrap().contains("size=10, time=3 ms ("), "{}", answer.head);
}

#[test]
fn the_root_explains_and_other_paths_are_empty() {
    let origin = Origin::plain();
    let mut client = origin.client();
    for _ in 0..2 {
        let page = client.get("/");
        assert_eq!(page.field("Content-Type"), Some("text/plain; charset=utf-8"));
        assert!(String::from_utf8(page.body).unwrap().contains("s=10k"));
    }
    let empty = client.get("/index.html");
    assert_eq!((empty.status(), empty.body.len()), (200, 0));
}
