//! WebSocket and event streams of a run: what servers sent, lost, duplicated and altered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::{HistogramDecodeError, LatencyHistogram, LatencySummary};

/// Counts of a load over WebSocket. Absent in records of other loads. In the modes `echo` and `reply` each message is a
/// request of `totals`, and its echo or reply the response; in the mode `push` a request is a connection, and its
/// response the first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebSocketTotals {
    /// Mode: `echo`, `reply` or `push`.
    pub mode: String,
    pub messages_received: u64,
    /// Messages received per second of the load.
    pub messages_per_s: f64,
    /// Echoes that did not come, though a later one did.
    pub lost: u64,
    /// Echoes that came again.
    pub duplicated: u64,
    /// Echoes that came behind a later one.
    pub reordered: u64,
    /// Echoes with other content or another type; each is an error `altered`.
    pub altered: u64,
    /// Echoes that came after the timeout.
    pub late: u64,
    /// Messages that are no echo of this connection.
    pub unknown: u64,
    pub pings: u64,
    /// Close frames of servers during the load, by code; 1005 has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub close_codes: BTreeMap<u16, u64>,
    /// Connections that ended without a close frame during the load (1006).
    pub abnormal_closes: u64,
    /// Connections that the load closed, and whose servers completed the close handshake.
    pub clean_closes: u64,
    /// Connections that the load closed, and whose servers did not complete the close handshake.
    pub unclean_closes: u64,
    /// Handshakes that failed, and violations of the protocol or of a limit, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub faults: BTreeMap<String, u64>,
    /// Latency of the handshake, without connect and TLS.
    pub handshake: LatencySummary,
    /// Time between two messages of a connection in the mode `push`.
    pub gap: LatencySummary,
}

/// Counts of a load of event streams (`--sse`). Absent in records of other loads. A request of `totals` is a
/// subscription, and its response the first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventStreamTotals {
    pub events: u64,
    /// Events received per second of the load.
    pub events_per_s: f64,
    /// Events with an ID that is a number.
    pub numbered: u64,
    /// Numbers that were left out between two events of a subscription, also across its reconnects.
    pub lost: u64,
    /// Events with the number of the event before.
    pub duplicated: u64,
    /// Events with a lower number than the event before.
    pub reordered: u64,
    /// Streams that the server ended, or that broke, after their first event.
    pub ended: u64,
    /// Reconnects with `Last-Event-ID`.
    pub resumed: u64,
    /// Last reconnection time that a server set (`retry:`), in ms.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_ms: Option<u64>,
    /// Responses that are no event stream, and violations of HTTP or of a limit, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub faults: BTreeMap<String, u64>,
    /// Time between two events of a subscription.
    pub gap: LatencySummary,
}

impl WebSocketTotals {
    /// Adds the counts of another generator.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), HistogramDecodeError> {
        self.messages_received = self.messages_received.saturating_add(other.messages_received);
        self.messages_per_s += other.messages_per_s;
        self.lost = self.lost.saturating_add(other.lost);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
        self.reordered = self.reordered.saturating_add(other.reordered);
        self.altered = self.altered.saturating_add(other.altered);
        self.late = self.late.saturating_add(other.late);
        self.unknown = self.unknown.saturating_add(other.unknown);
        self.pings = self.pings.saturating_add(other.pings);
        add_counts(&mut self.close_codes, &other.close_codes);
        self.abnormal_closes = self.abnormal_closes.saturating_add(other.abnormal_closes);
        self.clean_closes = self.clean_closes.saturating_add(other.clean_closes);
        self.unclean_closes = self.unclean_closes.saturating_add(other.unclean_closes);
        add_counts(&mut self.faults, &other.faults);
        self.handshake = sum(&self.handshake, &other.handshake)?;
        self.gap = sum(&self.gap, &other.gap)?;
        Ok(())
    }
}

impl EventStreamTotals {
    /// Adds the counts of another generator.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), HistogramDecodeError> {
        self.events = self.events.saturating_add(other.events);
        self.events_per_s += other.events_per_s;
        self.numbered = self.numbered.saturating_add(other.numbered);
        self.lost = self.lost.saturating_add(other.lost);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
        self.reordered = self.reordered.saturating_add(other.reordered);
        self.ended = self.ended.saturating_add(other.ended);
        self.resumed = self.resumed.saturating_add(other.resumed);
        self.retry_ms = self.retry_ms.max(other.retry_ms);
        add_counts(&mut self.faults, &other.faults);
        self.gap = sum(&self.gap, &other.gap)?;
        Ok(())
    }
}

/// Adds the counts of `other` to those of `sum`. Counts of agents and of files may be anything, so sums saturate.
pub(crate) fn add_counts<K: Clone + Ord>(sum: &mut BTreeMap<K, u64>, other: &BTreeMap<K, u64>) {
    for (key, count) in other {
        let sum = sum.entry(key.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

fn sum(a: &LatencySummary, b: &LatencySummary) -> Result<LatencySummary, HistogramDecodeError> {
    let mut all = LatencyHistogram::decode(&a.hdr)?;
    all.add(&LatencyHistogram::decode(&b.hdr)?);
    Ok(all.summary())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(latencies_ns: &[u64]) -> LatencySummary {
        let mut all = LatencyHistogram::new();
        latencies_ns.iter().for_each(|latency_ns| all.record(*latency_ns));
        all.summary()
    }

    #[test]
    fn counts_and_gaps_of_two_generators_are_added() {
        let part = |events: u64, gaps: &[u64]| EventStreamTotals {
            events,
            events_per_s: events as f64 / 10.0,
            numbered: events,
            lost: 1,
            duplicated: 2,
            reordered: 3,
            ended: 0,
            resumed: 0,
            retry_ms: None,
            faults: [("parse".to_owned(), 1)].into(),
            gap: summary(gaps),
        };
        let mut huge = EventStreamTotals { lost: u64::MAX - 1, ..part(1, &[1]) };
        huge.add(&huge.clone()).unwrap();
        assert_eq!(huge.lost, u64::MAX);
        let mut all = part(10, &[1_000, 1_000, 1_000]);
        all.add(&part(30, &[9_000])).unwrap();
        assert_eq!((all.events, all.lost, all.duplicated, all.reordered), (40, 2, 4, 6));
        assert_eq!((all.gap.count, all.gap.p50_ns / 1_000, all.gap.max_ns / 1_000), (4, 1, 9));
        assert_eq!((all.faults["parse"], all.events_per_s), (2, 4.0));
    }
}
