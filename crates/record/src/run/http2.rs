//! HTTP/2 of a run: the streams that servers allowed, reset and refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts of a run's connections with HTTP/2. Absent in records of runs without HTTP/2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http2Totals {
    /// Concurrent streams that were asked for on each connection (`-m`).
    pub streams: u64,
    /// Lowest limit of concurrent streams that a server set for a connection
    /// (`SETTINGS_MAX_CONCURRENT_STREAMS`); absent if no server set one below `streams`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub streams_allowed: Option<u64>,
    /// Number of streams that servers reset (`RST_STREAM`), by error code.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub resets: BTreeMap<String, u64>,
    /// Number of `GOAWAY` frames of servers, by error code.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub goaways: BTreeMap<String, u64>,
    /// Number of requests that were sent again because a `GOAWAY` left them unprocessed. They count
    /// once in `totals`.
    #[serde(default)]
    pub retried: u64,
    /// Number of streams that the generator reset because of a timeout.
    #[serde(default)]
    pub cancelled: u64,
    /// Lowest initial window of a stream that a server set for bodies of requests
    /// (`SETTINGS_INITIAL_WINDOW_SIZE`); absent without such bodies.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_window_bytes: Option<u64>,
    /// Largest window of a connection that a server opened for bodies of requests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_connection_window_bytes: Option<u64>,
    /// Total time that bodies of requests waited for a window of the server.
    #[serde(default)]
    pub window_wait_ns: u64,
    /// Number of connections that were given up because they did not respond to a PING.
    #[serde(default)]
    pub pings_lost: u64,
    /// Number of finished gRPC calls by status; `missing` if the response had none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub grpc_status: BTreeMap<String, u64>,
}

impl Http2Totals {
    /// Adds the counts of another generator.
    pub(crate) fn add(&mut self, other: &Self) {
        let add_each = |sum: &mut BTreeMap<String, u64>, other: &BTreeMap<String, u64>| {
            for (key, count) in other {
                *sum.entry(key.clone()).or_default() += count;
            }
        };
        self.streams = self.streams.max(other.streams);
        self.streams_allowed = self.streams_allowed.into_iter().chain(other.streams_allowed).min();
        add_each(&mut self.resets, &other.resets);
        add_each(&mut self.goaways, &other.goaways);
        add_each(&mut self.grpc_status, &other.grpc_status);
        self.retried += other.retried;
        self.cancelled += other.cancelled;
        self.server_window_bytes =
            self.server_window_bytes.into_iter().chain(other.server_window_bytes).min();
        self.server_connection_window_bytes =
            self.server_connection_window_bytes.max(other.server_connection_window_bytes);
        self.window_wait_ns += other.window_wait_ns;
        self.pings_lost += other.pings_lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_and_the_lowest_limit_stays() {
        let totals = |allowed, cancel| Http2Totals {
            streams: 32,
            streams_allowed: allowed,
            resets: [("CANCEL".to_owned(), cancel)].into(),
            retried: 1,
            ..Http2Totals::default()
        };
        let mut sum = totals(None, 1);
        sum.add(&totals(Some(10), 2));
        sum.add(&totals(Some(5), 3));
        assert_eq!((sum.streams, sum.streams_allowed, sum.retried), (32, Some(5), 3));
        assert_eq!(sum.resets["CANCEL"], 6);
    }
}
