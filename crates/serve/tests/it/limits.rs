//! Time-outs and limits.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use rt::clock::{SECOND_NS, now_ns};

use crate::client::{Client, TestOrigin, get};

/// Waits for the counter, because a client may see the end of its connection before it is counted.
fn wait_until_closed(origin: &TestOrigin, reason: &str, count: u64) {
    origin.stats_when(|stats| stats.sum.closed_by_reason[reason] == count);
}

#[test]
fn an_idle_connection_ends_in_time_and_a_target_may_choose_the_time() {
    let give_up_ns = now_ns() + 30 * SECOND_NS;
    let (origin, [mut silent, mut keep_alive, mut long_timeout]) = loop {
        let start_ns = now_ns();
        let origin = TestOrigin::start(|text| text.idle_timeout = "3s".to_owned());
        let mut clients = [origin.client(), origin.client(), origin.client()];
        clients[1].send(get("/?s=1"));
        clients[2].send(get("/?s=1&w=60s"));
        // If the machine delays this test, connections may end before their first request.
        if now_ns() - start_ns < 2 * SECOND_NS {
            break (origin, clients);
        }
        assert!(now_ns() < give_up_ns, "held up each time");
    };
    assert_eq!((keep_alive.read_response().status(), long_timeout.read_response().status()), (200, 200));
    assert!(silent.read_to_end().is_empty() && keep_alive.read_to_end().is_empty());
    wait_until_closed(&origin, "idle_timeout", 2);
    assert_eq!(long_timeout.get("/?s=1").status(), 200);
    assert!(long_timeout.read_to_end().is_empty());
    let origin = TestOrigin::start_default();
    let mut short = origin.client();
    short.get("/?w=50");
    assert!(short.read_to_end().is_empty());
    let mut slow = origin.client();
    slow.get("/?w=50&t=1");
    assert!(slow.read_to_end().is_empty());
    wait_until_closed(&origin, "idle_timeout", 2);
}

#[test]
fn a_head_must_be_complete_in_time_even_if_it_drips() {
    let origin = TestOrigin::start(|text| text.head_timeout = "400ms".to_owned());
    let mut client = origin.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n");
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut response = Vec::new();
    let deadline_ns = now_ns() + 30 * SECOND_NS;
    while now_ns() < deadline_ns {
        // It may be closed already, which this loop waits for.
        let _ = std::io::Write::write_all(&mut client.stream, b"X: y\r\n");
        let mut buffer = [0; 1000];
        if let Ok(read) = client.stream.read(&mut buffer) {
            response.extend_from_slice(&buffer[..read]);
            break;
        }
    }
    assert!(response.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&response));
    wait_until_closed(&origin, "head_timeout", 1);
    origin.stats_when(|stats| stats.sum.buffers_in_use == 0);
}

#[test]
fn a_body_that_stops_ends_the_connection() {
    let origin = TestOrigin::start(|text| text.body_timeout = "300ms".to_owned());
    let mut client = origin.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
    assert!(client.read_to_end().is_empty());
    wait_until_closed(&origin, "body_timeout", 1);
    origin.stats_when(|stats| stats.sum.totals.requests_abandoned == 1);
}

#[test]
fn a_reader_that_stops_costs_nothing_and_ends_in_time() {
    let origin = TestOrigin::start(|text| text.write_timeout = "1s".to_owned());
    let mut stuck: Vec<_> = (0..20).map(|_| origin.client()).collect();
    for client in &mut stuck {
        client.send(get("/?s=1g"));
    }
    let stats = origin.stats_when(|stats| stats.sum.totals.requests == 20);
    assert_eq!(stats.sum.buffers_in_use, 0);
    assert_eq!(origin.client().get("/?s=10").body.len(), 10);
    let stats = origin.stats_when(|stats| stats.sum.closed_by_reason["write_stall"] == 20);
    assert_eq!(stats.sum.totals.responses_lost, 20);
}

#[test]
fn a_pipeline_that_nobody_reads_is_held_back() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    let writing = client.stream.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        let mut writing = writing;
        for _ in 0..200 {
            let batch = get("/?s=3000").repeat(100);
            if std::io::Write::write_all(&mut writing, batch.as_bytes()).is_err() {
                return;
            }
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    let stats = origin.stats();
    assert!(stats.sum.totals.requests < 20_000, "{}", stats.to_json());
    assert!(stats.sum.buffers_in_use <= 2, "{}", stats.to_json());
    assert_eq!(origin.client().get("/?s=10").body.len(), 10);
    for _ in 0..20_000 {
        assert_eq!(client.read_response().body.len(), 3000);
    }
    flood.join().unwrap();
    origin.stats_when(|stats| stats.sum.buffers_in_use == 0);
}

#[test]
fn beyond_the_allowed_connections_others_wait() {
    let origin = TestOrigin::start(|text| text.connections_max = "3".to_owned());
    let mut served: Vec<_> = (0..3).map(|_| origin.client()).collect();
    for client in &mut served {
        client.get("/?s=1");
    }
    let mut waiting: Vec<_> = (0..5).map(|_| origin.client()).collect();
    for client in &mut waiting {
        client.send(get("/?s=1"));
        client.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(client.stream.read(&mut [0]).is_err());
    }
    let stats = origin.stats_when(|stats| stats.sum.totals.accept_paused == 1);
    assert_eq!((stats.sum.totals.requests, stats.sum.totals.accept_paused), (3, 1));
    for mut client in waiting {
        drop(served.remove(0));
        client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(client.read_response().status(), 200);
        served.push(client);
    }
}

#[test]
fn a_thousand_idle_connections_hold_no_buffer() {
    // Both ends of each connection are in this process, and other tests beside them.
    let descriptors = rt::limits::raise_descriptor_limit().current;
    if descriptors < 3000 {
        let reason = format!("this process may have no more than {descriptors} descriptors open");
        return test_needs::skip(test_needs::DESCRIPTORS, reason);
    }
    let origin = TestOrigin::start(|text| text.threads = "2".to_owned());
    let mut clients: Vec<Client<TcpStream>> = (0..1000).map(|_| origin.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/?s=10").body.len(), 10);
    }
    let stats = origin.stats();
    assert_eq!(stats.sum.connections_open, 1000);
    assert_eq!((stats.sum.buffers_in_use, stats.sum.totals.requests), (0, 1000));
    assert!(stats.cores.iter().all(|core| core.connections_open > 350), "{}", stats.to_json());
    for client in &mut clients {
        client.get("/?s=10");
    }
    drop(clients);
    origin.stats_when(|stats| stats.sum.connections_open == 0);
}
