//! Counters of an origin: each core counts in plain cells, which are summed on request.
//!
//! The counts are exact, not sampled: a request is counted where it was parsed, a response where it
//! was created, bytes where the kernel accepted or delivered them. `/stats` itself is counted
//! separately, so that a client can compare its own counts with these.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;

use record::sorted::CollectSorted;
use rt::conn_balancer::CoreConnectionCounts;
use serde::Serialize;
use wire::RefusalKind;
use wire::h2::FaultKind;

macro_rules! counters {
    ($($name:ident: $description:literal,)*) => {
        /// One core's counters.
        #[derive(Debug, Default)]
        pub(crate) struct CoreCounters {
            $(#[doc = $description] pub(crate) $name: Cell<u64>,)*
            pub(crate) by_reason: ReasonCounters,
        }

        /// Sums of the counters at one moment. The names of the fields are those of the JSON.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct CounterTotals {
            $(#[doc = $description] pub $name: u64,)*
        }

        /// Name and description of every counter.
        pub(crate) const COUNTER_DESCRIPTIONS: &[(&str, &str)] = &[$((stringify!($name), $description),)*];

        impl CoreCounters {
            fn totals(&self) -> CounterTotals {
                CounterTotals { $($name: self.$name.get(),)* }
            }
        }

        impl CounterTotals {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    requests: "Requests with a parsed head, except those for `/stats`.",
    responses: "Responses, including rejections, except those to `/stats`.",
    responses_lost: "Responses that may not have been sent completely, because the connection broke, or the client reset the stream.",
    requests_abandoned: "Requests without a response, because their body did not arrive or was rejected, or the client reset the stream.",
    in_flight: "Requests being received, delayed or responded to now.",
    bytes_in: "Bytes received, except requests for `/stats`.",
    bytes_out: "Bytes sent, except responses to `/stats`.",
    unknown_option: "Requests with an unknown option in their target.",
    stats_requests: "Requests for `/stats`.",
    accept_paused: "Times that accepting paused because the maximum number of connections was open.",
    accept_failed: "Times that accepting failed because no descriptor or memory was free.",
    tls_handshakes: "Complete TLS handshakes.",
    tls_resumed: "Complete TLS handshakes that resumed an earlier session.",
    tls_failed: "Connections that ended before their TLS handshake was complete.",
    h2_connections: "Connections with HTTP/2.",
    h2_streams: "Streams that clients opened with a complete head, including rejected ones.",
    h2_resets_received: "Streams that clients reset.",
    h2_resets_sent: "Streams that this origin reset: faults of clients, timeouts, responses that end before their request.",
    h2_streams_timed_out: "Streams that this origin reset because their request or the window for their response made no progress.",
    h2_goaways_received: "GOAWAY frames of clients.",
    h2_goaways_sent: "Connections on which this origin announced their end with GOAWAY.",
    h2_rapid_resets: "Streams that clients reset, or broke so that they were reset, before their response began.",
    h2_refused_streams: "Streams beyond the maximum number of concurrent ones.",
    h2_pings: "PING frames, without acknowledgements.",
    h2_settings: "SETTINGS frames, with acknowledgements.",
    h2_priorities: "PRIORITY frames.",
    h2_empty_frames: "DATA, CONTINUATION and unknown frames without content.",
    h2_tiny_window_updates: "WINDOW_UPDATE frames of less than 128 bytes.",
    h2_late_frames: "Frames of streams that were over.",
    log_lines: "Lines passed to the access log.",
    proxy_headers_rejected: "Connections that ended because they did not start with a header of the PROXY protocol.",
    files_failed: "Responses whose file could not be read to its end, so that their connection or stream ended.",
    files_compressing: "Encoders of responses that are compressed on the fly now.",
    files_uncompressed: "Responses that were not compressed because the encoders of their thread used the memory of --compress-memory.",
    files_lists_rejected: "Lists of directories that were 503, because clients of their thread have not read 32 MiB of others.",
    files_roots_replaced: "Times that a thread found another directory at the path of the files, and opened it.",
    files_roots_removed: "Times that a thread found no directory at the path of the files.",
    log_dropped: "Lines that the access log dropped, because its file was too slow or failed.",
}

/// Reason why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The peer closed it between two requests.
    Peer,
    PeerMidRequest,
    /// The kernel reported an error, nearly always a reset.
    Broken,
    /// The peer violated TLS, or sent something else.
    TlsError,
    /// A response was the last: the client or the target requested it.
    Requested,
    /// No request arrived for too long.
    IdleTimeout,
    /// A head took too long.
    HeadTimeout,
    /// A body made no progress.
    BodyTimeout,
    /// The peer did not read its response.
    WriteStall,
    /// The peer's request was rejected.
    Rejected,
    /// The peer violated HTTP/2, or abused it.
    Http2Fault,
    /// No buffer was left for bytes that it sent or did not read.
    NoBuffer,
    /// A file could not be read to its end.
    FileFailed,
    Drained,
    /// The origin stopped before it was done.
    Dropped,
}

/// Every reason with its name in the JSON, in the order of [`CloseReason`].
pub(crate) const CLOSE_REASONS: [(CloseReason, &str); 15] = [
    (CloseReason::Peer, "peer"),
    (CloseReason::PeerMidRequest, "peer_mid_request"),
    (CloseReason::Broken, "broken"),
    (CloseReason::TlsError, "tls_error"),
    (CloseReason::Requested, "requested"),
    (CloseReason::IdleTimeout, "idle_timeout"),
    (CloseReason::HeadTimeout, "head_timeout"),
    (CloseReason::BodyTimeout, "body_timeout"),
    (CloseReason::WriteStall, "write_stall"),
    (CloseReason::Rejected, "rejected"),
    (CloseReason::Http2Fault, "http2_fault"),
    (CloseReason::NoBuffer, "no_buffer"),
    (CloseReason::FileFailed, "file_failed"),
    (CloseReason::Drained, "drained"),
    (CloseReason::Dropped, "dropped"),
];

impl CloseReason {
    pub(crate) fn from_io_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::TlsError,
            io::ErrorKind::UnexpectedEof => Self::Peer,
            _ => Self::Broken,
        }
    }
}

/// Counters by status, rejection and close reason.
#[derive(Debug)]
pub(crate) struct ReasonCounters {
    statuses: Box<[Cell<u64>]>,
    rejections: Box<[Cell<u64>]>,
    faults: Box<[Cell<u64>]>,
    closes: [Cell<u64>; CLOSE_REASONS.len()],
}

impl Default for ReasonCounters {
    fn default() -> Self {
        Self {
            statuses: vec![Cell::new(0); 1000].into(),
            rejections: vec![Cell::new(0); RefusalKind::ALL.len()].into(),
            faults: vec![Cell::new(0); FaultKind::ALL.len()].into(),
            closes: Default::default(),
        }
    }
}

#[inline]
pub(crate) fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get().wrapping_add(more));
}

impl CoreCounters {
    #[inline]
    pub(crate) fn count_response(&self, status: u16) {
        add(&self.responses, 1);
        add(&self.by_reason.statuses[usize::from(status)], 1);
    }

    /// Counts a rejection; its response is counted separately.
    pub(crate) fn count_rejection(&self, kind: RefusalKind) {
        add(&self.by_reason.rejections[kind as usize], 1);
    }

    /// Counts a fault of a client that ended its stream or its connection.
    pub(crate) fn count_fault(&self, kind: FaultKind) {
        add(&self.by_reason.faults[kind as usize], 1);
    }

    pub(crate) fn count_close(&self, reason: CloseReason) {
        add(&self.by_reason.closes[reason as usize], 1);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreStats {
    #[serde(flatten)]
    pub totals: CounterTotals,
    pub responses_by_status: BTreeMap<u16, u64>,
    /// Rejections by the code of their kind, only those that occurred.
    pub rejected_by_kind: BTreeMap<&'static str, u64>,
    /// Faults of clients in HTTP/2 by the code of their kind, only those that occurred. Each ended a
    /// stream or a connection.
    pub h2_faults_by_kind: BTreeMap<&'static str, u64>,
    /// Ended connections by reason, all reasons.
    pub closed_by_reason: BTreeMap<&'static str, u64>,
    pub connections_open: u64,
    pub connections_accepted: u64,
    /// Number of accepted connections that it passed to another core.
    pub connections_rebalanced: u64,
    /// Number of buffers that connections hold now.
    pub buffers_in_use: u64,
    /// Number of connections that ended because no buffer was left.
    pub buffers_exhausted: u64,
    /// Counts of TCP in user space (`--xdp`): frames, segments, and losses of each ring.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub user_tcp: BTreeMap<&'static str, u64>,
}

impl CoreStats {
    pub(crate) fn read(
        counters: &CoreCounters,
        connections: CoreConnectionCounts,
        buffers_in_use: usize,
        buffers_exhausted: u64,
    ) -> Self {
        let kinds = &counters.by_reason;
        let nonzero = |(index, cell): (usize, &Cell<u64>)| (cell.get() > 0).then(|| (index, cell.get()));
        let statuses = kinds.statuses.iter().enumerate().filter_map(nonzero);
        let rejections = kinds.rejections.iter().enumerate().filter_map(nonzero);
        let faults = kinds.faults.iter().enumerate().filter_map(nonzero);
        let closes = CLOSE_REASONS.iter().map(|(reason, name)| (*name, kinds.closes[*reason as usize].get()));
        Self {
            totals: counters.totals(),
            responses_by_status: statuses.map(|(status, n)| (status as u16, n)).collect_map(),
            rejected_by_kind: rejections.map(|(kind, n)| (RefusalKind::ALL[kind].code(), n)).collect_map(),
            h2_faults_by_kind: faults.map(|(kind, n)| (FaultKind::ALL[kind].code(), n)).collect_map(),
            closed_by_reason: closes.collect_map(),
            connections_open: connections.open as u64,
            connections_accepted: connections.accepted,
            connections_rebalanced: connections.rebalanced,
            buffers_in_use: buffers_in_use as u64,
            buffers_exhausted,
            user_tcp: BTreeMap::new(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        add_map(&mut self.responses_by_status, &other.responses_by_status);
        add_map(&mut self.rejected_by_kind, &other.rejected_by_kind);
        add_map(&mut self.h2_faults_by_kind, &other.h2_faults_by_kind);
        add_map(&mut self.closed_by_reason, &other.closed_by_reason);
        self.connections_open += other.connections_open;
        self.connections_accepted += other.connections_accepted;
        self.connections_rebalanced += other.connections_rebalanced;
        self.buffers_in_use += other.buffers_in_use;
        self.buffers_exhausted += other.buffers_exhausted;
        add_map(&mut self.user_tcp, &other.user_tcp);
    }
}

fn add_map<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, value) in more {
        *sums.entry(*key).or_default() += value;
    }
}

/// Name and version of the JSON form.
pub const SCHEMA: &str = "weir.stats/1";

/// Report of all cores together, as `/stats` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OriginStats {
    pub schema: &'static str,
    pub uptime_s: f64,
    pub draining: bool,
    #[serde(flatten)]
    pub sum: CoreStats,
    pub cores: Vec<CoreStats>,
}

impl OriginStats {
    pub(crate) fn from_cores(cores: Vec<CoreStats>, uptime_ns: u64, draining: bool) -> Self {
        let mut sum = CoreStats::default();
        for core in &cores {
            sum.add(core);
        }
        Self { schema: SCHEMA, uptime_s: uptime_ns as f64 / 1e9, draining, sum, cores }
    }

    /// Returns the JSON text that `/stats` sends.
    pub fn to_json(&self) -> String {
        // Only a map with keys that are no strings or numbers can fail, and there is none.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_reasons_are_in_the_order_of_their_enum() {
        for (index, (reason, _)) in CLOSE_REASONS.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }

    #[test]
    fn sums_are_those_of_the_cores() {
        let core = |status: u16| {
            let counters = CoreCounters::default();
            add(&counters.requests, 3);
            counters.count_response(status);
            counters.count_response(200);
            counters.count_rejection(RefusalKind::HeadTooLarge);
            counters.count_fault(FaultKind::EnhanceYourCalm);
            counters.count_close(CloseReason::Peer);
            CoreStats::read(&counters, CoreConnectionCounts { open: 2, accepted: 4, rebalanced: 1 }, 5, 0)
        };
        let stats = OriginStats::from_cores(vec![core(200), core(404)], 1_500_000_000, false);
        assert_eq!((stats.sum.totals.requests, stats.sum.totals.responses), (6, 4));
        assert_eq!(stats.sum.responses_by_status, BTreeMap::from([(200, 3), (404, 1)]));
        let json: serde_json::Value = serde_json::from_str(&stats.to_json()).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["requests"], 6);
        assert_eq!(json["responses_by_status"]["404"], 1);
        assert_eq!(json["rejected_by_kind"]["head_too_large"], 2);
        assert_eq!(json["h2_faults_by_kind"]["enhance_your_calm"], 2);
        assert_eq!(json["closed_by_reason"]["peer"], 2);
        assert_eq!(json["connections_open"], 4);
        assert_eq!(json["cores"][1]["requests"], 3);
    }
}
