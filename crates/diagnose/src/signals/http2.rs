//! Flow control of HTTP/2 (RFC 9113 §5.2): the bytes that a receiver's windows admit per round trip.
//! Thresholds are elsewhere.

use record::observed::ConnectionEnd;

use crate::run_view::RunView;
use crate::window::{GENERATOR, SUBJECT};

/// Returns the bytes that arrived per round trip and connection, as a fraction of the windows of the receiver: of
/// responses at the generator, or of the bodies of requests at the server. `None` without HTTP/2.
pub(super) fn window_used_fraction(view: &RunView<'_>) -> Option<f64> {
    let settings = Http2Settings::read(view).filter(|settings| settings.connections > 0.0)?;
    if view.run.rates.responses_per_s <= 0.0 {
        return None;
    }
    let round_trip_s = round_trip_ns(view)? / 1e9;
    let response_fraction = response_window_fraction(view, &settings, round_trip_s);
    Some(request_window_fraction(view, &settings, round_trip_s).unwrap_or(0.0).max(response_fraction))
}

/// Returns the windows of the generator that arrive per round trip; 0 if they have room for all requested
/// responses.
///
/// A sender that always has content delivers one window per round trip: what arrives is credited again,
/// and the credit takes the other half of the round trip.
fn response_window_fraction(view: &RunView<'_>, settings: &Http2Settings, round_trip_s: f64) -> f64 {
    let response_bytes = view.run.rates.bytes_in_per_s / view.run.rates.responses_per_s;
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
    bytes_per_s * round_trip_s / streams_window.min(connection_window)
}

/// Minimum fraction of the latency that the bodies of requests wait for the windows of the server if those are the
/// limit.
const WINDOW_WAIT_MIN: f64 = 0.4;

/// Returns the windows of the server that arrive per round trip; 0 if requests hardly waited for them. `None` for
/// requests without a body. A server that reads slowly also closes its windows, but delivers less of them per
/// round trip.
fn request_window_fraction(view: &RunView<'_>, settings: &Http2Settings, round_trip_s: f64) -> Option<f64> {
    let totals = view.run.http2.as_ref()?;
    let (stream, connection) = (totals.server_window_bytes?, totals.server_connection_window_bytes?);
    let latency_ns = view.run.latency.last_byte.service.mean_ns * view.run.totals.responses as f64;
    if (totals.window_wait_ns as f64) < WINDOW_WAIT_MIN * latency_ns {
        return Some(0.0);
    }
    let streams = view.run.generator.in_flight_mean / settings.connections;
    let window = (stream as f64 * streams.max(1.0)).min(connection as f64).max(1.0);
    let bytes_per_s = view.run.totals.bytes_out as f64 / view.run.duration_s.max(1e-3) / settings.connections;
    Some(bytes_per_s * round_trip_s / window)
}

/// Returns the minimum round trip of the subject's connections from the generator: without queues. The client's end
/// measures it, too, if the subject's is not observable.
pub(super) fn round_trip_ns(view: &RunView<'_>) -> Option<f64> {
    let of = |role, end| {
        view.ends_median(role, end, |ends| (ends.rtt_min_us > 0.0).then_some(ends.rtt_min_us * 1e3))
    };
    of(SUBJECT, ConnectionEnd::Server).or_else(|| of(GENERATOR, ConnectionEnd::Client))
}

/// Settings of the generator's connections with HTTP/2.
struct Http2Settings {
    connections: f64,
    /// Concurrent streams of each, as the server admits them.
    streams: f64,
    /// Initial window of a stream (SETTINGS_INITIAL_WINDOW_SIZE).
    window_bytes: f64,
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
