//! Settings that a client sends to its server.

use wire::h2::Config;

use crate::plan::RunPlan;

pub(super) fn h2_config(plan: &RunPlan) -> Config {
    // A server under test may behave badly: that is measured, and ends no connection.
    let defaults = Config { abuse_max: u32::MAX, ..Config::default() };
    let Some(http2) = &plan.http2 else { return defaults };
    Config {
        stream_window_bytes: http2.window_bytes,
        stream_window_bytes_max: http2.window_bytes,
        connection_window_bytes: http2.connection_window_bytes,
        connection_window_bytes_max: http2.connection_window_bytes,
        ..defaults
    }
}
