//! Counters of one core's HTTP/2 connections to one server. They outlive configurations, and are
//! moved to the metrics of the one in force.

use std::cell::Cell;

use wire::h2::{ErrorCode, FaultKind};

use super::HandshakeResult;

/// Number of error codes with a counter of their own (RFC 9113 §7), and one for all others.
const CODES: usize = 15;

/// Counters since they were taken last.
#[derive(Debug)]
pub(crate) struct ServerHttp2Counters {
    /// Connections that began HTTP/2.
    pub(crate) opened: Cell<u64>,
    pub(crate) goaways: Cell<u64>,
    /// Requests that the server did not process (RFC 9113 §8.7).
    pub(crate) unprocessed: Cell<u64>,
    /// PING frames without a response.
    pub(crate) pings_lost: Cell<u64>,
    pub(crate) handshakes: [Cell<u64>; HandshakeResult::ALL.len()],
    /// Streams that the server reset, by error code.
    pub(crate) resets_received: [Cell<u64>; CODES],
    /// Streams that the proxy reset, by error code.
    pub(crate) resets_sent: [Cell<u64>; CODES],
    /// Violations of HTTP/2 by the server, by [`FaultKind`].
    pub(crate) faults: [Cell<u64>; FaultKind::ALL.len()],
}

impl Default for ServerHttp2Counters {
    fn default() -> Self {
        Self {
            opened: Cell::default(),
            goaways: Cell::default(),
            unprocessed: Cell::default(),
            pings_lost: Cell::default(),
            handshakes: Default::default(),
            resets_received: Default::default(),
            resets_sent: Default::default(),
            faults: std::array::from_fn(|_| Cell::default()),
        }
    }
}

/// Adds 1.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

pub(crate) fn code_index(code: ErrorCode) -> usize {
    (code.0 as usize).min(CODES - 1)
}
