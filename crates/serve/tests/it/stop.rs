//! Stopping: in order, and at once.

use std::net::TcpStream;
use std::time::Duration;

use rt::drain::DrainStage;

use crate::client::{TestOrigin, get};

#[test]
fn a_drain_ends_idle_connections_and_finishes_the_others() {
    let origin = TestOrigin::start(|text| text.threads = "2".to_owned());
    let address = origin.address();
    let mut idle: Vec<_> = (0..10).map(|_| origin.client()).collect();
    for client in &mut idle {
        client.get("/?s=1");
    }
    let mut busy: Vec<_> = (0..10).map(|_| origin.client()).collect();
    // Their bodies are held back, so that they stay in flight as long as this test needs.
    for client in &mut busy {
        client.send("POST /?s=10&t=100 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n");
    }
    origin.stats_when(|stats| stats.sum.totals.in_flight == 10);
    origin.drain.advance(DrainStage::Draining);
    for client in &mut idle {
        assert!(client.read_to_end().is_empty());
    }
    assert!(TcpStream::connect(address).is_err());
    for client in &mut busy {
        client.send("x");
    }
    for client in &mut busy {
        let response = client.read_response();
        assert_eq!((response.body.len(), response.field("Connection")), (10, Some("close")));
    }
    let stats = origin.join();
    assert_eq!((stats.sum.totals.requests, stats.sum.totals.responses), (20, 20));
    assert_eq!(stats.sum.closed_by_reason["drained"], 10);
    assert_eq!(stats.sum.closed_by_reason["dropped"], 0);
}

#[test]
fn a_drain_waits_no_longer_than_it_may() {
    let origin = TestOrigin::start(|text| text.drain_timeout = "200ms".to_owned());
    let mut client = origin.client();
    client.send(get("/?t=30s"));
    origin.stats_when(|stats| stats.sum.totals.in_flight == 1);
    origin.drain.advance(DrainStage::Draining);
    let stats = origin.join();
    assert_eq!((stats.sum.closed_by_reason["dropped"], stats.sum.totals.in_flight), (1, 1));
    assert!(client.read_to_end().is_empty());
}

#[test]
fn abort_stops_at_once() {
    let origin = TestOrigin::start_default();
    let mut client = origin.client();
    client.send(get("/?t=30s"));
    origin.stats_when(|stats| stats.sum.totals.in_flight == 1);
    origin.drain.advance(DrainStage::Draining);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!origin.running().is_finished());
    origin.drain.advance(DrainStage::Abort);
    assert_eq!(origin.join().sum.closed_by_reason["dropped"], 1);
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let origin = TestOrigin::start_default();
    let text = serve::OriginPlanText {
        listen: vec![origin.address().to_string()],
        ..serve::OriginPlanText::default()
    };
    let plan = serve::OriginPlan::parse(&text).unwrap();
    let error = serve::start(plan, rt::drain::Drain::default()).unwrap_err().to_string();
    assert!(error.contains(&origin.address().to_string()), "{error}");
}
