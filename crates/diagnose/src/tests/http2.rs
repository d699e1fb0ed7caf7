//! Flow control of HTTP/2.

use super::*;
use crate::signals as s;
use record::run::Http2Totals;

/// Returns a load over 8 connections with `streams` each: responses of `response_bytes` that take
/// `latency_ms`, a round trip of 20 ms, and these windows of the generator.
pub(super) fn http2_run(streams: u64, response_bytes: f64, latency_ms: u64, windows: (u64, u64)) -> Run {
    let mut run = run(8 * streams, latency_ms * MS);
    run.totals.connections.max_open = 8;
    run.totals.connections.requested = 8;
    run.rates.bytes_in_per_s = run.rates.responses_per_s * response_bytes;
    run.http2 = Some(Http2Totals { streams, ..Http2Totals::default() });
    run.plan["http2"] = serde_json::json!({
        "fraction": 1.0, "streams": streams, "window_bytes": windows.0, "connection_window_bytes": windows.1,
    });
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| {
        (ends.rtt_us, ends.rtt_min_us) = (20_300.0, 20_000.0);
    });
    run
}

pub(super) const SMALL: u64 = 65_535;
pub(super) const LARGE: u64 = 1 << 30;

#[test]
fn a_window_per_round_trip_is_the_limit() {
    // 1 MB in 16 round trips: in windows of a stream, and of a connection.
    assert_first(&http2_run(1, 1e6, 340, (SMALL, LARGE)), "h2_window_bound");
    assert_first(&http2_run(10, 1e6, 340, (SMALL, LARGE)), "h2_window_bound");
    assert_first(&http2_run(10, 1e6, 3_400, (LARGE, SMALL)), "h2_window_bound");
}

#[test]
fn a_delay_with_room_in_the_window_is_another_limit() {
    // The slow start of TCP, with large windows.
    assert_first(&http2_run(1, 1e6, 120, (LARGE, LARGE)), "latency_bound");
    // A server that takes a second.
    assert_first(&http2_run(1, 1e6, 1_000, (SMALL, LARGE)), "latency_bound");
    // A response that fits into the window, which it nearly fills.
    assert_first(&http2_run(1, 60e3, 21, (SMALL, SMALL)), "latency_bound");
    assert_first(&http2_run(10, 6e3, 21, (SMALL, SMALL)), "latency_bound");
}

#[test]
fn a_full_receive_window_is_not_that_of_http2() {
    let mut slow = http2_run(1, 1e6, 340, (SMALL, LARGE));
    change_ends(&mut slow, ConnectionEnd::Server, |index, ends| {
        ends.busy_us = index as u64 * 1_600_000;
        ends.receive_window_limited_us = index as u64 * 1_500_000;
        ends.not_sent_bytes = 100_000;
    });
    assert_first(&slow, "receive_window_bound");
}

#[test]
fn streams_are_the_slots_of_requests() {
    let run = http2_run(10, 1e6, 340, (SMALL, LARGE));
    let value = (s::IN_FLIGHT_FRACTION.read)(&RunView::new(&run));
    assert_eq!(value, Some(1.0));
    assert_eq!((s::HTTP2_WINDOW.read)(&RunView::new(&super::run(8, MS))), None);
}

/// Returns uploads of 1 MB over 8 connections, which wait this fraction of their latency for a window of the server.
fn uploads(latency_ms: u64, waiting: f64, window: u64) -> Run {
    let mut run = http2_run(1, 100.0, latency_ms, (LARGE, LARGE));
    run.totals.bytes_out = run.totals.responses * 1_000_000;
    run.http2 = Some(Http2Totals {
        streams: 1,
        server_window_bytes: Some(window),
        server_connection_window_bytes: Some(window),
        window_wait_ns: (latency_ms as f64 * 1e6 * waiting * run.totals.responses as f64) as u64,
        ..Http2Totals::default()
    });
    run
}

#[test]
fn uploads_wait_for_the_windows_of_the_server() {
    assert_first(&uploads(340, 0.9, SMALL), "h2_window_bound");
    // A server that reads slowly, and one whose window has room.
    assert_first(&uploads(3_400, 0.9, SMALL), "latency_bound");
    assert_first(&uploads(340, 0.1, SMALL), "latency_bound");
    assert_first(&uploads(340, 0.0, LARGE), "latency_bound");
}
