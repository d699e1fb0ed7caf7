//! Counters of HTTP/2, of a listener.

use wire::h2::{ErrorCode, FaultKind};

use super::table::Metric;
use super::{CounterCell, Metrics, Snapshot, new_counters};

/// Something that is counted without a label of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum H2Count {
    /// Connections that began HTTP/2.
    Connections,
    Streams,
    /// Connections that did not respond to a PING.
    PingsLost,
}

/// Number of error codes of RFC 9113 §7; another one counts as the last one.
const CODES: usize = 15;

#[derive(Debug)]
struct CodeCounters([CounterCell; CODES]);

impl CodeCounters {
    fn new() -> Self {
        Self(std::array::from_fn(|_| CounterCell::default()))
    }

    fn count(&self, code: ErrorCode) {
        self.0[(code.0 as usize).min(CODES - 1)].add(1);
    }

    fn add_to(&self, snapshot: &mut Snapshot, metric: Metric, labels: [&str; 2]) {
        let [listener, from] = labels;
        for (code, count) in (0..).zip(&self.0) {
            let name = ErrorCode(code).name().to_ascii_lowercase();
            snapshot.add(metric, &[listener, from, &name], count.0.get());
        }
    }
}

/// Counters of the HTTP/2 connections of a listener.
#[derive(Debug)]
pub(crate) struct H2Counters {
    counts: [CounterCell; 3],
    resets_received: CodeCounters,
    resets_sent: CodeCounters,
    goaways_received: CodeCounters,
    goaways_sent: CodeCounters,
    faults: Vec<CounterCell>,
}

impl H2Counters {
    pub(crate) fn new() -> Self {
        Self {
            counts: Default::default(),
            resets_received: CodeCounters::new(),
            resets_sent: CodeCounters::new(),
            goaways_received: CodeCounters::new(),
            goaways_sent: CodeCounters::new(),
            faults: new_counters(FaultKind::ALL.len()),
        }
    }

    pub(crate) fn count(&self, what: H2Count, number: u64) {
        self.counts[what as usize].add(number);
    }

    /// Counts a stream that the client reset.
    pub(crate) fn count_reset_received(&self, code: ErrorCode) {
        self.resets_received.count(code);
    }

    /// Counts a stream that the proxy reset.
    pub(crate) fn count_reset_sent(&self, code: ErrorCode) {
        self.resets_sent.count(code);
    }

    pub(crate) fn count_goaway_received(&self, code: ErrorCode) {
        self.goaways_received.count(code);
    }

    /// Counts a connection whose end the proxy announced.
    pub(crate) fn count_goaway_sent(&self, code: ErrorCode) {
        self.goaways_sent.count(code);
    }

    /// Counts a fault of the client, which ended a stream or the connection.
    pub(crate) fn count_fault(&self, fault: FaultKind) {
        self.faults[fault as usize].add(1);
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot, listener: &str) {
        let [connections, streams, pings_lost] = &self.counts;
        snapshot.add(Metric::H2Connections, &[listener], connections.0.get());
        snapshot.add(Metric::H2Streams, &[listener], streams.0.get());
        snapshot.add(Metric::H2PingsLost, &[listener], pings_lost.0.get());
        for (metric, from, counters) in [
            (Metric::H2Resets, "client", &self.resets_received),
            (Metric::H2Resets, "proxy", &self.resets_sent),
            (Metric::H2GoAways, "client", &self.goaways_received),
            (Metric::H2GoAways, "proxy", &self.goaways_sent),
        ] {
            counters.add_to(snapshot, metric, [listener, from]);
        }
        for (kind, count) in FaultKind::ALL.iter().zip(&self.faults) {
            snapshot.add(Metric::H2Faults, &[listener, kind.code()], count.0.get());
        }
    }
}

impl Metrics {
    /// Returns the counters of HTTP/2 of a listener, if it supports it.
    pub(crate) fn h2(&self, listener: usize) -> Option<&H2Counters> {
        self.common.listeners.get(listener)?.h2.as_ref()
    }

    pub(crate) fn set_h2_streams(&self, streams: u64) {
        self.common.h2_streams.0.set(streams);
    }
}
