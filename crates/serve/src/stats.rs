//! What an origin counts: each core for itself in plain cells, summed when somebody asks.
//!
//! The counts are exact, not sampled: a request is counted where it was parsed, an answer where it
//! was made, bytes where the kernel took or gave them. `/stats` itself is counted apart, so that
//! a client's own counts can be held against these.

use std::cell::Cell;
use std::collections::BTreeMap;

use rt::board::Row;
use serde::Serialize;
use wire::RefusalKind;

macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// One core's counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(#[doc = $meaning] pub(crate) $name: Cell<u64>,)*
            pub(crate) by_kind: Kinds,
        }

        /// The same as sums, at one moment. The fields' names are those of the JSON.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Totals {
            $(#[doc = $meaning] pub $name: u64,)*
        }

        /// Every counter's name and meaning.
        pub(crate) const MEANINGS: &[(&str, &str)] = &[$((stringify!($name), $meaning),)*];

        impl Counters {
            fn totals(&self) -> Totals {
                Totals { $($name: self.$name.get(),)* }
            }
        }

        impl Totals {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    requests: "Requests whose head was parsed; without those for `/stats`.",
    responses: "Answers made, refusals included; without those for `/stats`.",
    responses_lost: "Of those, how many may not have left whole, because the connection broke.",
    requests_abandoned: "Requests that got no answer, because their body did not arrive or was refused.",
    in_flight: "Requests that are waited for or being answered now.",
    bytes_in: "Bytes received; without the requests for `/stats`.",
    bytes_out: "Bytes sent; without the answers to `/stats`.",
    unknown_option: "Requests whose target had something that is no option.",
    stats_requests: "Requests for `/stats`.",
    accept_paused: "How often accepting paused because all connections that were allowed were open.",
    accept_failed: "How often accepting failed for want of descriptors or memory.",
    log_lines: "Lines handed to the access log.",
    log_dropped: "Lines that the access log lost, because its file was slower than the requests or failed.",
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The peer closed it between two requests.
    Peer,
    /// The peer closed it within a request.
    PeerMidRequest,
    /// The kernel reported an error, nearly always a reset.
    Broken,
    /// An answer was the last: the client or the target wanted it so.
    Asked,
    /// No request came for too long.
    IdleTimeout,
    /// A head took too long.
    HeadTimeout,
    /// A body made no progress.
    BodyTimeout,
    /// The peer did not read its answer.
    WriteStall,
    /// What it sent was refused.
    Refused,
    /// No buffer was left for what it sent or did not read.
    NoBuffer,
    /// The origin drains.
    Drained,
    /// The origin stopped before it was done.
    Dropped,
}

/// Every reason with its name in the JSON, in the order of [`Closed`].
pub(crate) const CLOSED: [(Closed, &str); 12] = [
    (Closed::Peer, "peer"),
    (Closed::PeerMidRequest, "peer_mid_request"),
    (Closed::Broken, "broken"),
    (Closed::Asked, "asked"),
    (Closed::IdleTimeout, "idle_timeout"),
    (Closed::HeadTimeout, "head_timeout"),
    (Closed::BodyTimeout, "body_timeout"),
    (Closed::WriteStall, "write_stall"),
    (Closed::Refused, "refused"),
    (Closed::NoBuffer, "no_buffer"),
    (Closed::Drained, "drained"),
    (Closed::Dropped, "dropped"),
];

/// Counters by a small number.
#[derive(Debug)]
pub(crate) struct Kinds {
    status: Box<[Cell<u64>]>,
    refused: Box<[Cell<u64>]>,
    closed: [Cell<u64>; CLOSED.len()],
}

impl Default for Kinds {
    fn default() -> Self {
        Self {
            status: vec![Cell::new(0); 1000].into(),
            refused: vec![Cell::new(0); RefusalKind::ALL.len()].into(),
            closed: Default::default(),
        }
    }
}

/// Adds to a cell.
#[inline]
pub(crate) fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get().wrapping_add(more));
}

impl Counters {
    /// Counts an answer.
    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        add(&self.responses, 1);
        add(&self.by_kind.status[usize::from(status)], 1);
    }

    /// Counts a refusal, whose answer is counted apart.
    pub(crate) fn refused(&self, kind: RefusalKind) {
        add(&self.by_kind.refused[kind as usize], 1);
    }

    /// Counts the end of a connection.
    pub(crate) fn closed(&self, reason: Closed) {
        add(&self.by_kind.closed[reason as usize], 1);
    }
}

/// What one core reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreStats {
    /// The counters.
    #[serde(flatten)]
    pub totals: Totals,
    /// Answers by status, those that there were.
    pub responses_by_status: BTreeMap<u16, u64>,
    /// Refusals by the code of their kind, those that there were.
    pub refused_by_kind: BTreeMap<&'static str, u64>,
    /// Connections that ended, by reason, all reasons.
    pub closed_by_reason: BTreeMap<&'static str, u64>,
    /// Connections open on this core.
    pub connections_open: u64,
    /// Connections that this core accepted from the kernel.
    pub connections_accepted: u64,
    /// Of those, how many another core got.
    pub connections_handed_over: u64,
    /// Buffers that connections hold now.
    pub buffers_lent: u64,
    /// How often a connection ended because no buffer was left.
    pub buffers_refused: u64,
}

impl CoreStats {
    /// Reads one core's counters.
    pub(crate) fn read(counters: &Counters, row: Row, lent: usize, refused: u64) -> Self {
        let kinds = &counters.by_kind;
        let met =
            |(index, cell): (usize, &Cell<u64>)| (cell.get() > 0).then(|| (index, cell.get()));
        let statuses = kinds.status.iter().enumerate().filter_map(met);
        let refusals = kinds.refused.iter().enumerate().filter_map(met);
        let closed =
            CLOSED.iter().map(|(reason, name)| (*name, kinds.closed[*reason as usize].get()));
        Self {
            totals: counters.totals(),
            responses_by_status: statuses.map(|(status, n)| (status as u16, n)).collect(),
            refused_by_kind: refusals.map(|(kind, n)| (RefusalKind::ALL[kind].code(), n)).collect(),
            closed_by_reason: closed.collect(),
            connections_open: row.open as u64,
            connections_accepted: row.accepted,
            connections_handed_over: row.handed_over,
            buffers_lent: lent as u64,
            buffers_refused: refused,
        }
    }

    fn add(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        add_each(&mut self.responses_by_status, &other.responses_by_status);
        add_each(&mut self.refused_by_kind, &other.refused_by_kind);
        add_each(&mut self.closed_by_reason, &other.closed_by_reason);
        self.connections_open += other.connections_open;
        self.connections_accepted += other.connections_accepted;
        self.connections_handed_over += other.connections_handed_over;
        self.buffers_lent += other.buffers_lent;
        self.buffers_refused += other.buffers_refused;
    }
}

fn add_each<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, value) in more {
        *sums.entry(*key).or_default() += value;
    }
}

/// The name and version of the JSON form.
pub const SCHEMA: &str = "weir.stats/1";

/// What all cores report together, as `/stats` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Whether it drains.
    pub draining: bool,
    /// The sums over all cores.
    #[serde(flatten)]
    pub sum: CoreStats,
    /// Each core's own.
    pub cores: Vec<CoreStats>,
}

impl Stats {
    /// Sums up.
    pub(crate) fn of(cores: Vec<CoreStats>, uptime_ns: u64, draining: bool) -> Self {
        let mut sum = CoreStats::default();
        for core in &cores {
            sum.add(core);
        }
        Self { schema: SCHEMA, uptime_s: uptime_ns as f64 / 1e9, draining, sum, cores }
    }

    /// As `/stats` sends it.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Only a map with keys that are no strings or numbers can fail, and there is none.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_where_their_names_say() {
        for (index, (reason, _)) in CLOSED.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }

    #[test]
    fn sums_are_those_of_the_cores() {
        let core = |status: u16| {
            let counters = Counters::default();
            add(&counters.requests, 3);
            counters.answered(status);
            counters.answered(200);
            counters.refused(RefusalKind::HeadTooLarge);
            counters.closed(Closed::Peer);
            CoreStats::read(&counters, Row { open: 2, accepted: 4, handed_over: 1 }, 5, 0)
        };
        let stats = Stats::of(vec![core(200), core(404)], 1_500_000_000, false);
        assert_eq!((stats.sum.totals.requests, stats.sum.totals.responses), (6, 4));
        assert_eq!(stats.sum.responses_by_status, BTreeMap::from([(200, 3), (404, 1)]));
        let json: serde_json::Value = serde_json::from_str(&stats.to_json()).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["requests"], 6);
        assert_eq!(json["responses_by_status"]["404"], 1);
        assert_eq!(json["refused_by_kind"]["head_too_large"], 2);
        assert_eq!(json["closed_by_reason"]["peer"], 2);
        assert_eq!(json["connections_open"], 4);
        assert_eq!(json["cores"][1]["requests"], 3);
    }
}
