//! The sockets of the watched ports: what waits to be accepted, what waits to be read or sent.
//!
//! Not for the rest of what is observed, nor for a socket of its own: these are sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The sockets of the watched ports at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    /// When.
    pub time_s: f64,
    /// Listening sockets, one entry a port (sums, where there are several).
    pub listeners: Vec<ListenerQueue>,
    /// Both ends of the connections of each port.
    pub ends: Vec<EndQueues>,
    /// Unix sockets, one entry a path.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unix: Vec<UnixQueues>,
}

/// The sockets of one listening unix socket and of its connections. Unix sockets have no `TCP_INFO`:
/// whether a request is out cannot be seen, only what is unread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixQueues {
    /// The path that is listened on; `@name` for an abstract one.
    pub path: String,
    /// Connections that wait to be accepted.
    pub waiting: u32,
    /// The most that may wait.
    pub backlog: u32,
    /// Listening sockets of that path.
    pub sockets: u32,
    /// The end that accepted.
    pub server: UnixEnd,
    /// The end that connected.
    pub client: UnixEnd,
}

/// One end of the connections of a unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixEnd {
    /// Connected sockets.
    pub established: u64,
    /// Those that hold bytes which their program has not read.
    pub with_unread: u64,
    /// Those bytes.
    pub unread_bytes: u64,
    /// The most unread bytes of one socket.
    pub unread_bytes_max: u64,
}

/// Connections that wait to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerQueue {
    /// The port.
    pub port: u16,
    /// Connections that wait, of all listening sockets.
    pub waiting: u32,
    /// The most that may wait in one of them.
    pub backlog: u32,
    /// How many of these sockets are full.
    pub full: u32,
    /// How many there are.
    pub sockets: u32,
    /// Connections that they dropped since they were opened (`SK_MEMINFO_DROPS`): which listener the
    /// namespace's `TcpExt.ListenDrops` is of.
    #[serde(default)]
    pub dropped: u64,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// It connected.
    Client,
    /// It accepted.
    #[default]
    Server,
}

/// All sockets at one end of the connections of one port. Times and bytes of TCP_INFO are sums or
/// medians over the established ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndQueues {
    /// The port that the server listens on.
    pub port: u16,
    /// Which end.
    pub end: End,
    /// Sockets by state, named as `ss` names them: `established`, `syn-sent`, `time-wait`, …
    pub states: BTreeMap<String, u64>,
    /// Established sockets that hold bytes which their program has not read.
    pub with_unread: u64,
    /// Those bytes.
    pub unread_bytes: u64,
    /// Established sockets with bytes that the other end has not acknowledged.
    pub with_unsent: u64,
    /// Those bytes.
    pub unsent_bytes: u64,
    /// The most unread bytes of one socket.
    pub unread_bytes_max: u64,
    /// Bytes that were not even sent yet (`tcpi_notsent_bytes`).
    pub not_sent_bytes: u64,
    /// Median round-trip time, in microseconds.
    pub rtt_us: f64,
    /// Median of the least round-trip time of each.
    pub rtt_min_us: f64,
    /// Time in which there was something to send, of all sockets since they were opened.
    pub busy_us: u64,
    /// The part of it in which the receiver's window was full.
    pub receive_window_limited_us: u64,
    /// The part of it in which the send buffer was full.
    pub send_buffer_limited_us: u64,
    /// Segments sent again, of all sockets since they were opened.
    pub retransmitted: u64,
    /// Their bytes (`tcpi_bytes_retrans`); this and the next two are absent before Linux 4.19.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmitted_bytes: Option<u64>,
    /// Segments that the other end had twice: sent again for nothing (`tcpi_dsack_dups`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicates: Option<u64>,
    /// Times that segments turned out to be out of order and not lost (`tcpi_reord_seen`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reorderings: Option<u64>,
    /// Sum of the latest delivery rates, bytes per second.
    pub delivery_bytes_per_s: f64,
    /// Sockets whose latest delivery rate was bounded by what the program gave.
    pub application_limited: u64,
    /// Memory of all of them in the kernel, whatever their state: both queues with what is around the
    /// bytes, and what is set aside (`SK_MEMINFO_*`).
    #[serde(default)]
    pub memory_bytes: u64,
    /// Sockets on which data moved in the last second, either way: a pool of idle connections has
    /// none. This and the next six are absent in records of older versions (read as 0).
    #[serde(default)]
    pub active: u64,
    /// Client end: established sockets that sent after they last received, with nothing unread. A
    /// request is out and the server has not replied. One connection counts once, however many HTTP/2
    /// streams it has.
    #[serde(default)]
    pub awaiting_reply: u64,
    /// Median time since those sent, in milliseconds (kernel ticks: 1 to 10 ms).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub awaiting_reply_ms: Option<f64>,
    /// Server end: established sockets that received after they last sent, with nothing unread. The
    /// program has read a request and has not replied.
    #[serde(default)]
    pub owed_reply: u64,
    /// Median time since those received, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owed_reply_ms: Option<f64>,
    /// Established sockets with nothing unread that sent and received within one kernel tick, where
    /// the order cannot be seen; in neither count.
    #[serde(default)]
    pub tied: u64,
    /// Data segments sent, of all sockets since they were opened, with those sent again.
    #[serde(default)]
    pub segments_sent: u64,
    /// Seconds since the snapshot before, which the rates below are differences to. The last part of
    /// what a socket moved before it closed is not in them, nor a socket that lived in between: see
    /// `opened` and `closed`. Absent in the first snapshot of a port, and so are they.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since_s: Option<f64>,
    /// Sockets that were not there in the snapshot before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub opened: Option<u64>,
    /// Sockets that have gone since the snapshot before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub closed: Option<u64>,
    /// Payload bytes received per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_received_per_s: Option<f64>,
    /// Payload bytes sent and acknowledged per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_acked_per_s: Option<f64>,
    /// Data segments sent per second, with those sent again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub segments_sent_per_s: Option<f64>,
    /// Segments sent again per second: over `segments_sent_per_s` it is the loss rate of this end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmitted_per_s: Option<f64>,
    /// Client end: the most local ports that are taken towards one destination address, in any state
    /// with TIME_WAIT. A port is free again for every other destination.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_ports_max: Option<u64>,
    /// Client end: destination addresses with this port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub destinations: Option<u64>,
}
