//! Tests of the options of targets, on the wire.

use std::time::{Duration, Instant};

use crate::client::{TestOrigin, get, pattern};

#[allow(clippy::disallowed_methods)] // A client's own clock is the point of these tests.
fn now() -> Instant {
    Instant::now()
}

#[test]
fn bodies_of_every_size_are_the_pattern() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    // Twice each, because the second response may come from the cache.
    for size in [0, 1, 100, 4096, 4097, 16_384, 16_385, 65_000, 65_001, 1 << 20, 5_000_000] {
        for _ in 0..2 {
            let response = client.get(&format!("/?s={size}"));
            assert_eq!((response.status(), response.body.len()), (200, size));
            assert!(response.body == pattern(size), "{size}");
        }
    }
}

#[test]
fn a_delay_is_not_shorter_and_not_much_longer_than_asked() {
    let origin = TestOrigin::start_default();
    let mut clients: Vec<_> = (0..4).map(|_| origin.client()).collect();
    for (option, min_us) in [("t=1", 1000), ("t=5", 5000), ("t=300us", 300)] {
        let started = now();
        for client in &mut clients {
            client.send(get(&format!("/?{option}")));
        }
        for client in &mut clients {
            client.read_response();
        }
        let elapsed = started.elapsed();
        assert!(elapsed >= Duration::from_micros(min_us), "{option}: {elapsed:?}");
        // The maximum depends on the machine: asserted on an idle one only (CONTRIBUTING.md).
        if std::env::var("WEIR_TEST_TIMES").is_err() {
            assert!(elapsed < Duration::from_millis(500), "{option}: {elapsed:?}");
        } else {
            let line = format!("times: demanded: {option} within 500 ms; seen: {elapsed:?}\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    }
}

#[test]
fn chunks_have_the_size_that_was_asked_for() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    for (size, chunk) in [(0, 1), (7, 1), (100, 30), (50_000, 1), (300_000, 70_000)] {
        client.send(get(&format!("/?s={size}&k={chunk}")));
        let head = client.read_exact(17);
        assert_eq!(head, b"HTTP/1.1 200 OK\r\n");
        let head_end = client.read_exact(b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len());
        assert!(head_end.starts_with(b"Date: "));
        assert_eq!(client.read_exact(30), b"Transfer-Encoding: chunked\r\n\r\n");
        let chunks = client.read_chunks();
        assert!(chunks.iter().rev().skip(1).all(|data| data.len() == chunk), "{size} {chunk}");
        assert!(chunks.concat() == pattern(size), "{size} {chunk}");
    }
}

#[test]
fn a_wrong_length_is_sent_and_the_connection_ends() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    client.send(get("/?s=5&b=100"));
    let response = String::from_utf8(client.read_to_end()).unwrap();
    assert!(response.contains("Content-Length: 100\r\n") && response.ends_with("\r\n\r\n.1234"));
    let mut client = origin.client();
    client.send(get("/?s=5&b=0"));
    let response = client.read_response();
    assert_eq!((response.field("Content-Length"), &response.body), (None, &b".1234".to_vec()));
}

#[test]
fn pieces_pauses_and_random_bodies_arrive_complete() {
    let origin = TestOrigin::start_default();
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
    let origin = TestOrigin::start_default();
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
    let origin = TestOrigin::start_default();
    let response = origin.client().get("/?s=10&t=3&v=1");
    assert!(response.field("X-req").unwrap().starts_with("size=43, time="), "{}", response.head);
    assert!(response.field("X-rsp").unwrap().contains("size=10, time=3 ms ("), "{}", response.head);
}

#[test]
fn the_root_explains_and_other_paths_are_empty() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    for _ in 0..2 {
        let page = client.get("/");
        assert_eq!(page.field("Content-Type"), Some("text/plain; charset=utf-8"));
        assert!(String::from_utf8(page.body).unwrap().contains("s=10k"));
    }
    let empty = client.get("/index.html");
    assert_eq!((empty.status(), empty.body.len()), (200, 0));
}
