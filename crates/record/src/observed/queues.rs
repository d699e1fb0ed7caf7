//! Sockets of the watched ports: connections to accept, bytes to read or send.
//!
//! All figures are sums; single sockets are not recorded.

use std::collections::BTreeMap;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Sockets of the watched ports at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    pub time_s: f64,
    /// Listening sockets, one entry per port (sums, if there are several).
    pub listeners: Vec<ListenerQueue>,
    /// Both ends of the connections of each port.
    pub ends: Vec<EndQueues>,
    /// Unix sockets, one entry per path.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unix: Vec<UnixQueues>,
}

/// Sockets of one listening unix socket and of its connections. Unix sockets have no `TCP_INFO`:
/// unread bytes are visible, but not outstanding requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixQueues {
    /// Listening path; `@name` for an abstract one.
    pub path: String,
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// Maximum number of waiting connections.
    pub backlog: u32,
    /// Number of listening sockets with that path.
    pub sockets: u32,
    pub server: UnixEnd,
    pub client: UnixEnd,
}

/// One end of the connections of a unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixEnd {
    /// Number of connected sockets.
    pub established: u64,
    /// Number of sockets with bytes that their process has not read.
    pub with_unread: u64,
    pub unread_bytes: u64,
    pub unread_bytes_max: u64,
}

/// Connections that wait to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerQueue {
    pub port: u16,
    /// Number of waiting connections, of all listening sockets.
    pub waiting: u32,
    /// Maximum number of waiting connections in one of them.
    pub backlog: u32,
    /// Number of full sockets among them.
    pub full: u32,
    pub sockets: u32,
    /// Connections that they dropped since they were opened (`SK_MEMINFO_DROPS`). This shows to
    /// which listener the namespace's `TcpExt.ListenDrops` belongs.
    #[serde(default)]
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionEnd {
    Client,
    #[default]
    Server,
}

/// All sockets at one end of the connections of one port. Times and bytes of TCP_INFO are sums or
/// medians over the established ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndQueues {
    /// Port that the server listens on.
    pub port: u16,
    pub end: ConnectionEnd,
    /// Number of sockets by state, with the names of `ss`: `established`, `syn-sent`, `time-wait`,
    /// …
    pub states: BTreeMap<String, u64>,
    /// Number of established sockets with bytes that their process has not read.
    pub with_unread: u64,
    pub unread_bytes: u64,
    /// Number of established sockets with bytes that the other end has not acknowledged.
    pub with_unsent: u64,
    pub unsent_bytes: u64,
    pub unread_bytes_max: u64,
    /// Bytes not yet sent (`tcpi_notsent_bytes`).
    pub not_sent_bytes: u64,
    /// Median round-trip time, in microseconds.
    pub rtt_us: f64,
    /// Median of the minimum round-trip time of each socket.
    pub rtt_min_us: f64,
    /// Time with data to send, of all sockets since they were opened.
    pub busy_us: u64,
    /// Part of it with a full receive window.
    pub receive_window_limited_us: u64,
    /// Part of it with a full send buffer.
    pub send_buffer_limited_us: u64,
    /// Segments retransmitted, of all sockets since they were opened.
    pub retransmitted: u64,
    /// Bytes retransmitted (`tcpi_bytes_retrans`); this and the next two are absent before Linux
    /// 4.19.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmitted_bytes: Option<u64>,
    /// Duplicate segments at the other end: unnecessary retransmissions (`tcpi_dsack_dups`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicates: Option<u64>,
    /// Number of detected reorderings, without loss (`tcpi_reord_seen`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reorderings: Option<u64>,
    /// Sum of the latest delivery rates, bytes per second.
    pub delivery_bytes_per_s: f64,
    /// Number of sockets whose latest delivery rate was limited by the application.
    pub application_limited: u64,
    /// Kernel memory of all of them, in any state: both queues including overhead, and reserved
    /// memory (`SK_MEMINFO_*`).
    #[serde(default)]
    pub memory_bytes: u64,
    /// Number of sockets with data in the last second, in either direction; 0 for a pool of idle
    /// connections. This and the next six are absent in records of older versions (read as 0).
    #[serde(default)]
    pub active: u64,
    /// Client end: number of established sockets that sent after they last received, with nothing
    /// unread. A request is outstanding and the server has not responded. One connection counts
    /// once, however many HTTP/2 streams it has.
    #[serde(default)]
    pub awaiting_response: u64,
    /// Median time since they sent, in milliseconds (kernel ticks: 1 to 10 ms).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub awaiting_response_ms: Option<f64>,
    /// Server end: number of established sockets that received after they last sent, with nothing
    /// unread. The process has read a request and has not responded.
    #[serde(default)]
    pub pending_response: u64,
    /// Median time since they received, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pending_response_ms: Option<f64>,
    /// Number of established sockets with nothing unread that sent and received within one kernel
    /// tick, so that the order is unknown; in neither count.
    #[serde(default)]
    pub order_unknown: u64,
    /// Data segments sent, of all sockets since they were opened, including retransmissions.
    #[serde(default)]
    pub segments_sent: u64,
    /// Seconds since the snapshot before, which the rates below refer to. The rates lack the last
    /// traffic of a socket before it closed, and any socket that lived only in between: see
    /// `opened` and `closed`. This and the rates are absent in the first snapshot of a port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since_s: Option<f64>,
    /// Number of sockets that are new since the snapshot before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub opened: Option<u64>,
    /// Number of sockets that have gone since the snapshot before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub closed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_received_per_s: Option<f64>,
    /// Payload bytes sent and acknowledged per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_acked_per_s: Option<f64>,
    /// Data segments sent per second, including retransmissions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub segments_sent_per_s: Option<f64>,
    /// Segments retransmitted per second: divided by `segments_sent_per_s` it is the loss rate of
    /// this end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmitted_per_s: Option<f64>,
    /// Client end: maximum number of local ports in use to one destination address, in any state
    /// including TIME_WAIT. Such a port remains usable for every other destination.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_ports_max: Option<u64>,
    /// Age of the number in TIME_WAIT, in seconds, if it is that of an earlier snapshot: very many are
    /// counted rarely.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time_wait_age_s: Option<f64>,
    /// Client end: number of destination addresses with this port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub destinations: Option<u64>,
}

impl EndQueues {
    /// Returns the number of sockets in a state, by its name in `ss`.
    pub fn count_in_state(&self, state: &str) -> u64 {
        self.states.get(state).copied().unwrap_or(0)
    }

    /// Returns the sum of two ends. Medians (round trips) are those of the end with more
    /// connections; a figure that one of them lacks is the other's.
    #[must_use]
    pub fn merged_with(self, other: &Self) -> Self {
        let sum = self;
        let established = |ends: &Self| ends.count_in_state("established");
        let typical = if established(other) > established(&sum) { other.clone() } else { sum.clone() };
        let mut states = sum.states;
        for (state, count) in &other.states {
            *states.entry(state.clone()).or_default() += count;
        }
        Self {
            states,
            with_unread: sum.with_unread + other.with_unread,
            unread_bytes: sum.unread_bytes + other.unread_bytes,
            with_unsent: sum.with_unsent + other.with_unsent,
            unsent_bytes: sum.unsent_bytes + other.unsent_bytes,
            unread_bytes_max: sum.unread_bytes_max.max(other.unread_bytes_max),
            not_sent_bytes: sum.not_sent_bytes + other.not_sent_bytes,
            busy_us: sum.busy_us + other.busy_us,
            receive_window_limited_us: sum.receive_window_limited_us + other.receive_window_limited_us,
            send_buffer_limited_us: sum.send_buffer_limited_us + other.send_buffer_limited_us,
            retransmitted: sum.retransmitted + other.retransmitted,
            delivery_bytes_per_s: sum.delivery_bytes_per_s + other.delivery_bytes_per_s,
            application_limited: sum.application_limited + other.application_limited,
            memory_bytes: sum.memory_bytes + other.memory_bytes,
            active: sum.active + other.active,
            awaiting_response: sum.awaiting_response + other.awaiting_response,
            pending_response: sum.pending_response + other.pending_response,
            order_unknown: sum.order_unknown + other.order_unknown,
            segments_sent: sum.segments_sent + other.segments_sent,
            bytes_received_per_s: sum_of_known(sum.bytes_received_per_s, other.bytes_received_per_s),
            bytes_acked_per_s: sum_of_known(sum.bytes_acked_per_s, other.bytes_acked_per_s),
            segments_sent_per_s: sum_of_known(sum.segments_sent_per_s, other.segments_sent_per_s),
            retransmitted_per_s: sum_of_known(sum.retransmitted_per_s, other.retransmitted_per_s),
            opened: sum_of_known(sum.opened, other.opened),
            closed: sum_of_known(sum.closed, other.closed),
            destinations: sum_of_known(sum.destinations, other.destinations),
            local_ports_max: sum.local_ports_max.max(other.local_ports_max),
            time_wait_age_s: sum.time_wait_age_s.into_iter().chain(other.time_wait_age_s).reduce(f64::max),
            ..typical
        }
    }
}

/// Returns the sum of two figures; if one is absent, the other.
fn sum_of_known<T: Add<Output = T>>(left: Option<T>, right: Option<T>) -> Option<T> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left + right),
        (left, right) => left.or(right),
    }
}
