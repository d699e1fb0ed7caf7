//! Counters of HTTP/2 connections to a server.

use std::cell::Cell;

use wire::h2::{ErrorCode, FaultKind};

use super::server_http2_counters::ServerHttp2Counters;
use super::table::Metric;
use super::{CounterCell, Metrics, Snapshot, new_counters};
use crate::plan::{PoolId, ServerId};

/// Number of error codes of RFC 9113 §7; another one counts as the last one.
const CODES: usize = 15;
/// Codes that have a series from the start.
const COMMON_CODES: [ErrorCode; 3] =
    [ErrorCode::INTERNAL_ERROR, ErrorCode::REFUSED_STREAM, ErrorCode::CANCEL];

/// HTTP/2 connections of one core to a server, and the streams in progress on them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Http2Load {
    pub(crate) connections: usize,
    pub(crate) streams: usize,
}

#[derive(Debug)]
pub(super) struct ServerH2Counters {
    connections: CounterCell,
    connections_open: CounterCell,
    streams_open: CounterCell,
    unprocessed: CounterCell,
    goaways: CounterCell,
    pings_lost: CounterCell,
    resets_received: [CounterCell; CODES],
    resets_sent: [CounterCell; CODES],
    faults: Vec<CounterCell>,
}

impl ServerH2Counters {
    pub(super) fn new() -> Self {
        Self {
            connections: CounterCell::default(),
            connections_open: CounterCell::default(),
            streams_open: CounterCell::default(),
            unprocessed: CounterCell::default(),
            goaways: CounterCell::default(),
            pings_lost: CounterCell::default(),
            resets_received: Default::default(),
            resets_sent: Default::default(),
            faults: new_counters(FaultKind::ALL.len()),
        }
    }

    fn add(&self, counters: &ServerHttp2Counters) {
        self.connections.add(counters.opened.get());
        self.unprocessed.add(counters.unprocessed.get());
        self.goaways.add(counters.goaways.get());
        self.pings_lost.add(counters.pings_lost.get());
        let add_all = |totals: &[CounterCell], counts: &[Cell<u64>]| {
            for (total, count) in totals.iter().zip(counts) {
                total.add(count.get());
            }
        };
        add_all(&self.resets_received, &counters.resets_received);
        add_all(&self.resets_sent, &counters.resets_sent);
        add_all(&self.faults, &counters.faults);
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot, labels: [&str; 2]) {
        for (metric, count) in [
            (Metric::ServerH2Connections, &self.connections),
            (Metric::ServerH2ConnectionsOpen, &self.connections_open),
            (Metric::ServerH2StreamsOpen, &self.streams_open),
            (Metric::ServerH2Unprocessed, &self.unprocessed),
            (Metric::ServerH2GoAways, &self.goaways),
            (Metric::ServerH2PingsLost, &self.pings_lost),
        ] {
            snapshot.add(metric, &labels, count.0.get());
        }
        let [pool, server] = labels;
        for (from, counters) in [("server", &self.resets_received), ("proxy", &self.resets_sent)] {
            for (code, count) in (0..).map(ErrorCode).zip(counters) {
                if count.0.get() > 0 || COMMON_CODES.contains(&code) {
                    let name = code.name().to_ascii_lowercase();
                    snapshot.add(Metric::ServerH2Resets, &[pool, server, from, &name], count.0.get());
                }
            }
        }
        for (kind, count) in FaultKind::ALL.iter().zip(&self.faults) {
            // One kind has a series from the start.
            if count.0.get() > 0 || *kind == FaultKind::PrefaceInvalid {
                snapshot.add(Metric::ServerH2Faults, &[pool, server, kind.code()], count.0.get());
            }
        }
    }
}

impl Metrics {
    /// Adds counters of HTTP/2 connections to a server.
    pub(crate) fn add_http2(&self, pool: PoolId, server: ServerId, counters: &ServerHttp2Counters) {
        let Some(server) = self.pools.get(pool).and_then(|pool| pool.servers.get(server)) else { return };
        if let Some(handshakes) = &server.tls_handshakes {
            handshakes.add(&counters.handshakes);
        }
        if let Some(h2) = &server.h2 {
            h2.add(counters);
        }
    }

    /// Sets the HTTP/2 connections of this core to a server.
    pub(crate) fn set_http2_load(&self, pool: PoolId, server: ServerId, load: Http2Load) {
        let server = self.pools.get(pool).and_then(|pool| pool.servers.get(server));
        if let Some(h2) = server.and_then(|server| server.h2.as_ref()) {
            h2.connections_open.0.set(load.connections as u64);
            h2.streams_open.0.set(load.streams as u64);
        }
    }
}
