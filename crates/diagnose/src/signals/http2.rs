//! Flow control of HTTP/2 (RFC 9113 §5.2): the bytes that a receiver's windows admit per round trip.
//! Thresholds are elsewhere.

use record::observed::ConnectionEnd;

use crate::run_view::RunView;
use crate::window::SUBJECT;

/// Returns the bytes of responses that arrived per round trip and connection, as a fraction of the
/// windows of the generator; 0 if the windows have room for all requested responses. `None` without
/// HTTP/2.
///
/// A sender that always has content delivers one window per round trip: what arrives is credited again,
/// and the credit takes the other half of the round trip.
pub(super) fn window_used_fraction(view: &RunView<'_>) -> Option<f64> {
    let settings = Http2Settings::read(view).filter(|settings| settings.connections > 0.0)?;
    let responses_per_s = view.run.rates.responses_per_s;
    let round_trip_s = round_trip_ns(view)? / 1e9;
    if responses_per_s <= 0.0 {
        return None;
    }
    let response_bytes = view.run.rates.bytes_in_per_s / responses_per_s;
    let slots = view.run.request_slots().max(1.0);
    // Mixed connections have the same share of the requests in flight as of the slots.
    let streams = view.run.generator.in_flight_mean / slots * settings.streams;
    let streams_window = if response_bytes > settings.window_bytes {
        settings.window_bytes * streams.max(1.0)
    } else {
        f64::INFINITY
    };
    let connection_window = if response_bytes * streams > settings.connection_window_bytes {
        settings.connection_window_bytes
    } else {
        f64::INFINITY
    };
    let http2_fraction = settings.connections * settings.streams / slots;
    let bytes_per_s = view.run.rates.bytes_in_per_s * http2_fraction / settings.connections;
    Some(bytes_per_s * round_trip_s / streams_window.min(connection_window))
}

/// Returns the minimum round trip of the subject's connections from the generator: without queues.
pub(super) fn round_trip_ns(view: &RunView<'_>) -> Option<f64> {
    view.ends_median(SUBJECT, ConnectionEnd::Server, |ends| {
        (ends.rtt_min_us > 0.0).then_some(ends.rtt_min_us * 1e3)
    })
}

/// Settings of the generator's connections with HTTP/2.
struct Http2Settings {
    /// Number of connections.
    connections: f64,
    /// Concurrent streams of each, as the server admits them.
    streams: f64,
    /// Initial window of a stream (SETTINGS_INITIAL_WINDOW_SIZE).
    window_bytes: f64,
    /// Window of a connection.
    connection_window_bytes: f64,
}

impl Http2Settings {
    fn read(view: &RunView<'_>) -> Option<Self> {
        let plan = view.run.plan.get("http2")?;
        let number = |key: &str| plan[key].as_f64();
        let fraction = number("fraction").unwrap_or(1.0);
        let streams = number("streams")?;
        Some(Self {
            connections: view.run.totals.connections.max_open as f64 * fraction,
            streams,
            window_bytes: number("window_bytes")?,
            connection_window_bytes: number("connection_window_bytes")?,
        })
    }
}
