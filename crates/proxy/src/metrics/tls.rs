//! Counters of TLS handshakes, of a listener or a server.

use std::cell::Cell;

use rt::stream::Stream;
use rt::tls::HandshakeKind;

use super::table::Metric;
use super::{CounterCell, Metrics, Snapshot};
use crate::plan::{PoolId, ServerId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeResult {
    /// Completed with certificates and signatures.
    Full,
    /// Completed from a ticket of an earlier connection.
    Resumed,
    Failed,
}

impl HandshakeResult {
    pub(crate) const ALL: [(Self, &'static str); 3] =
        [(Self::Full, "full"), (Self::Resumed, "resumed"), (Self::Failed, "failed")];

    /// Returns the result of a completed handshake; `None`: the stream is plain.
    pub(crate) fn of(stream: &Stream) -> Option<Self> {
        stream.tls_info().map(|info| match info.handshake {
            HandshakeKind::Full => Self::Full,
            HandshakeKind::Resumed => Self::Resumed,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct HandshakeCounters([CounterCell; HandshakeResult::ALL.len()]);

impl HandshakeCounters {
    fn count(&self, result: HandshakeResult) {
        self.0[result as usize].add(1);
    }

    pub(super) fn add(&self, counts: &[Cell<u64>; HandshakeResult::ALL.len()]) {
        for (counter, count) in self.0.iter().zip(counts) {
            counter.add(count.get());
        }
    }

    /// Adds a series for each result, with `labels` before it.
    pub(super) fn add_to(&self, snapshot: &mut Snapshot, metric: Metric, labels: &[&str]) {
        for ((_, code), count) in HandshakeResult::ALL.iter().zip(&self.0) {
            let labels: Vec<&str> = labels.iter().chain([code]).copied().collect();
            snapshot.add(metric, &labels, count.0.get());
        }
    }
}

/// Result of reading a ClientHello on a listener with `sni`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloResult {
    Matched,
    /// No entry matched; the default pool is used.
    Default,
    /// No entry matched, and there is no default pool.
    Unknown,
    /// No valid ClientHello in time.
    Invalid,
}

impl HelloResult {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Matched, "matched"),
        (Self::Default, "default"),
        (Self::Unknown, "unknown"),
        (Self::Invalid, "invalid"),
    ];
}

#[derive(Debug, Default)]
pub(super) struct HelloCounters([CounterCell; HelloResult::ALL.len()]);

impl HelloCounters {
    pub(super) fn add_to(&self, snapshot: &mut Snapshot, listener: &str) {
        for ((_, code), count) in HelloResult::ALL.iter().zip(&self.0) {
            snapshot.add(Metric::ClientHellos, &[listener, code], count.0.get());
        }
    }
}

impl Metrics {
    pub(crate) fn client_hello(&self, listener: usize, result: HelloResult) {
        let listener = self.common.listeners.get(listener);
        if let Some(hellos) = listener.and_then(|listener| listener.client_hellos.as_ref()) {
            hellos.0[result as usize].add(1);
        }
    }

    pub(crate) fn tls_handshake(&self, listener: usize, result: HandshakeResult) {
        let listener = self.common.listeners.get(listener);
        if let Some(handshakes) = listener.and_then(|listener| listener.tls_handshakes.as_ref()) {
            handshakes.count(result);
        }
    }

    pub(crate) fn server_tls_handshake(&self, pool: PoolId, server: ServerId, result: HandshakeResult) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(handshakes) = server.and_then(|server| server.tls_handshakes.as_ref()) {
            handshakes.count(result);
        }
    }
}
