//! Counters and latencies of loads over WebSocket and of event streams.

use std::collections::BTreeMap;

use record::histogram::LatencyHistogram;

/// Counters since the start of the run. Those of event streams count events instead of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveCounters {
    /// Messages or events that were received.
    pub received: u64,
    /// Messages that have no echo though a later one has; or numbers that were left out.
    pub lost: u64,
    /// Echoes or events that came again.
    pub duplicated: u64,
    /// Echoes or events that came behind a later one.
    pub reordered: u64,
    /// Echoes with other content.
    pub altered: u64,
    /// Echoes that came after the timeout.
    pub late: u64,
    /// Messages that are no echo of the connection.
    pub unknown: u64,
    /// Pings that were answered.
    pub pings: u64,
    /// Close frames of servers during the load, by code.
    pub close_codes: BTreeMap<u16, u64>,
    /// Connections without a close frame at their end; or event streams that ended.
    pub ended: u64,
    /// Close handshakes that both ends completed.
    pub clean_closes: u64,
    /// Close handshakes that the server did not complete.
    pub unclean_closes: u64,
    /// Failed handshakes and violations of a protocol, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Events with a number.
    pub numbered: u64,
    /// Reconnects with the ID of the last event.
    pub resumed: u64,
    /// Reconnection time that a server set, in ms.
    pub retry_ms: Option<u64>,
}

/// Latencies over the complete run.
#[derive(Clone, Debug, Default)]
pub struct LiveHistograms {
    /// Latency of the handshake of WebSocket.
    pub handshake: LatencyHistogram,
    /// Time between two messages or events of a connection.
    pub gap: LatencyHistogram,
}

impl LiveCounters {
    /// Counts a fault; the kinds are those of the readers and of statuses, so their number is bounded.
    pub(crate) fn count_fault(&mut self, kind: impl ToString) {
        *self.faults.entry(kind.to_string()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.lost = self.lost.saturating_add(other.lost);
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.altered += other.altered;
        self.late += other.late;
        self.unknown += other.unknown;
        self.pings += other.pings;
        other
            .close_codes
            .iter()
            .for_each(|(code, count)| *self.close_codes.entry(*code).or_default() += count);
        self.ended += other.ended;
        self.clean_closes += other.clean_closes;
        self.unclean_closes += other.unclean_closes;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        self.numbered += other.numbered;
        self.resumed += other.resumed;
        self.retry_ms = other.retry_ms.or(self.retry_ms);
    }
}

impl LiveHistograms {
    /// Adds the latencies of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.handshake.add(&other.handshake);
        self.gap.add(&other.gap);
    }
}
