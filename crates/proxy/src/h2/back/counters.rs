//! Counters of one core's HTTP/2 connections to one server. They outlive configurations, and are
//! moved to the metrics of the one in force.

use std::cell::Cell;

use wire::h2::ErrorCode;

use crate::metrics::HandshakeResult;

/// Number of error codes with a counter of their own (RFC 9113 §7), and one for all others.
const CODES: usize = 15;

/// Counters since they were taken last.
#[derive(Debug, Default)]
pub(crate) struct BackCounters {
    /// Connections that began HTTP/2.
    pub(crate) opened: Cell<u64>,
    /// GOAWAY frames of the server.
    pub(crate) goaways: Cell<u64>,
    /// Requests that the server did not process (RFC 9113 §8.7).
    pub(crate) unprocessed: Cell<u64>,
    /// PING frames without a response.
    pub(crate) pings_lost: Cell<u64>,
    /// TLS handshakes, by [`HandshakeResult`].
    pub(crate) handshakes: [Cell<u64>; HandshakeResult::ALL.len()],
    /// Streams that the server reset, by error code.
    pub(crate) resets_received: [Cell<u64>; CODES],
    /// Streams that the proxy reset, by error code.
    pub(crate) resets_sent: [Cell<u64>; CODES],
}

impl BackCounters {
    /// Returns the counters, which are 0 afterwards.
    pub(super) fn take(&self) -> Self {
        let all = |counters: &[Cell<u64>; CODES]| std::array::from_fn(|index| counters[index].take().into());
        Self {
            opened: self.opened.take().into(),
            goaways: self.goaways.take().into(),
            unprocessed: self.unprocessed.take().into(),
            pings_lost: self.pings_lost.take().into(),
            handshakes: std::array::from_fn(|index| self.handshakes[index].take().into()),
            resets_received: all(&self.resets_received),
            resets_sent: all(&self.resets_sent),
        }
    }
}

/// Adds 1.
pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// Returns the index of an error code's counter.
pub(super) fn code_index(code: ErrorCode) -> usize {
    (code.0 as usize).min(CODES - 1)
}
