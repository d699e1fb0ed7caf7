//! Malicious or broken clients: others are served meanwhile.

use std::io::Write;

use crate::client::{TestOrigin, get};

#[test]
fn bytes_that_are_no_http_do_no_harm() {
    let origin = TestOrigin::start_default();
    let mut rng: u64 = 42;
    for _ in 0..200 {
        let mut client = origin.client();
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (rng >> 33) as u8
            })
            .collect();
        let _ = client.stream.write_all(&bytes);
    }
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!((stats.sum.buffers_in_use, stats.sum.totals.requests), (0, 0));
    assert_eq!(origin.client().get("/?s=10").body.len(), 10);
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let origin = TestOrigin::start_default();
    for part in [
        "GET / HT".to_owned(),
        get("/?s=1g"),
        get("/?s=5&t=50"),
        get("/?s=1m&k=1"),
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx".to_owned(),
        get("/?s=5&P=50"),
    ] {
        for _ in 0..5 {
            origin.client().send(&part);
        }
    }
    let stats = origin.stats_when(|stats| stats.sum.connections_open == 0);
    assert_eq!((stats.sum.buffers_in_use, stats.sum.totals.in_flight), (0, 0));
}

#[test]
fn a_greedy_client_does_not_delay_others() {
    let origin = TestOrigin::start_default();
    let mut greedy = origin.client();
    greedy.send(get("/?s=4g"));
    let reading = std::thread::spawn(move || {
        greedy.read_exact(200_000_000);
    });
    let mut client = origin.client();
    for _ in 0..50 {
        assert_eq!(client.get("/?s=10").body.len(), 10);
    }
    reading.join().unwrap();
}
