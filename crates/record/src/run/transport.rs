//! Transport of a load whose TCP is not that of the kernel.

use serde::{Deserialize, Serialize};

/// TCP in user space (`--xdp`). Absent in records of loads over the kernel's TCP. `ss`, `nstat` and the like see nothing of
/// such connections, so that these are all the figures there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserTransport {
    /// `xdp`.
    pub kind: String,
    pub interface: String,
    /// Its driver, or the kind of a virtual interface; empty: unknown.
    pub driver: String,
    /// `zero-copy`, `copy` or `generic`.
    pub mode: String,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u32,
    /// Receiving queues, each with a thread.
    #[serde(default)]
    pub queues: u32,
    /// True if checksums of received segments were verified; a peer on a veth pair sends none.
    pub verifies_checksums: bool,
    /// Received frames.
    pub received: u64,
    /// Sent segments.
    pub sent: u64,
    /// Sent segments whose content was sent before.
    pub retransmitted: u64,
    /// Received frames that were no usable segments, or of no connection.
    pub unusable: u64,
    /// Frames that the kernel dropped because the receive ring was full.
    pub receive_ring_full: u64,
    /// Frames that the kernel dropped because the fill ring was empty.
    pub fill_ring_empty: u64,
    /// Frames that the kernel dropped for other reasons.
    pub dropped: u64,
    /// Segments that were not sent because no frame was free.
    pub transmit_ring_full: u64,
    /// Received segments with a receive window of 0.
    #[serde(default)]
    pub zero_windows: u64,
    /// Times from the SYN to its answer, those below 1 s.
    #[serde(default)]
    pub handshakes: RoundTripTimes,
    /// Times from content to its acknowledgement: of one segment of a connection at a time, and of none that was sent
    /// again (RFC 6298 3). A peer that acknowledges with its response adds its own time, as in the kernel's `tcp_info`.
    #[serde(default)]
    pub round_trips: RoundTripTimes,
    /// Receive windows of peers other than 0.
    #[serde(default)]
    pub windows: PeerWindows,
    /// Handshakes and closes that took too long.
    #[serde(default)]
    pub expired: u64,
    /// Frames with an address or a length that is none of ours, and those that the kernel refused to send.
    #[serde(default)]
    pub invalid: u64,
    /// Frames that arrived at the queue of another thread than that of their connection.
    #[serde(default)]
    pub handed_over: u64,
    /// Connections whose SYN met an old connection in TIME-WAIT and was sent again at once.
    #[serde(default)]
    pub restarted: u64,
    /// Maximum number of connections at a time, the sum of all threads.
    #[serde(default)]
    pub connections_peak: u64,
    /// Bound of their memory, in bytes.
    #[serde(default)]
    pub connections_memory_bytes_max: u64,
}

/// Times from a segment to the one that acknowledges it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTripTimes {
    /// Number of measured segments.
    pub count: u64,
    /// Their mean; 0 without any, as the others.
    pub mean_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Receive windows, in bytes; 0 without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerWindows {
    /// The smallest.
    pub min_bytes: u64,
    /// The largest.
    pub max_bytes: u64,
}

impl PeerWindows {
    fn add(&mut self, other: &Self) {
        self.min_bytes = match (self.min_bytes, other.min_bytes) {
            (0, only) | (only, 0) => only,
            (own, others) => own.min(others),
        };
        self.max_bytes = self.max_bytes.max(other.max_bytes);
    }
}

impl RoundTripTimes {
    fn add(&mut self, other: &Self) {
        let count = self.count + other.count;
        let sum = u128::from(self.mean_ns) * u128::from(self.count)
            + u128::from(other.mean_ns) * u128::from(other.count);
        self.min_ns = match (self.count, other.count) {
            (0, _) => other.min_ns,
            (_, 0) => self.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.mean_ns = u64::try_from(sum / u128::from(count.max(1))).unwrap_or(u64::MAX);
        self.count = count;
    }
}

impl UserTransport {
    /// Adds the counts of another thread, or of another machine: names that differ are all listed.
    pub fn add(&mut self, other: &Self) {
        for (own, others) in [
            (&mut self.interface, &other.interface),
            (&mut self.driver, &other.driver),
            (&mut self.mode, &other.mode),
        ] {
            if own.split(", ").all(|name| name != others) {
                *own = format!("{own}, {others}");
            }
        }
        self.verifies_checksums &= other.verifies_checksums;
        self.zero_windows += other.zero_windows;
        self.handshakes.add(&other.handshakes);
        self.round_trips.add(&other.round_trips);
        self.windows.add(&other.windows);
        self.expired += other.expired;
        self.invalid += other.invalid;
        self.received += other.received;
        self.sent += other.sent;
        self.retransmitted += other.retransmitted;
        self.unusable += other.unusable;
        self.receive_ring_full += other.receive_ring_full;
        self.fill_ring_empty += other.fill_ring_empty;
        self.dropped += other.dropped;
        self.transmit_ring_full += other.transmit_ring_full;
        self.handed_over += other.handed_over;
        self.restarted += other.restarted;
        self.connections_peak += other.connections_peak;
        self.connections_memory_bytes_max += other.connections_memory_bytes_max;
    }

    /// Returns whether all packets were received without a copy.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.mode == "zero-copy"
    }

    /// Returns the number of frames that were lost on this machine.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.receive_ring_full + self.fill_ring_empty + self.dropped + self.transmit_ring_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_and_names_that_differ_are_listed() {
        let transport = UserTransport {
            kind: "xdp".into(),
            interface: "eth1".into(),
            driver: "ena".into(),
            mode: "zero-copy".into(),
            mtu: 1_500,
            queues: 1,
            verifies_checksums: true,
            received: 10,
            sent: 9,
            retransmitted: 1,
            unusable: 0,
            receive_ring_full: 2,
            fill_ring_empty: 3,
            dropped: 4,
            transmit_ring_full: 5,
            zero_windows: 6,
            handshakes: RoundTripTimes { count: 2, mean_ns: 10, min_ns: 5, max_ns: 15 },
            round_trips: RoundTripTimes { count: 1, mean_ns: 4, min_ns: 4, max_ns: 4 },
            windows: PeerWindows { min_bytes: 700, max_bytes: 900 },
            expired: 3,
            invalid: 2,
            handed_over: 7,
            restarted: 8,
            connections_peak: 64,
            connections_memory_bytes_max: 64 * 33_792,
        };
        let (mut sum, none) = (transport.clone(), RoundTripTimes::default());
        sum.add(&UserTransport { handshakes: none, ..transport.clone() });
        assert_eq!((&sum.interface[..], sum.received, sum.lost(), sum.handed_over), ("eth1", 20, 28, 14));
        let connections = (sum.restarted, sum.connections_peak, sum.connections_memory_bytes_max);
        assert_eq!(connections, (16, 128, 128 * 33_792));
        assert_eq!(sum.handshakes, transport.handshakes);
        assert_eq!((sum.round_trips.count, sum.expired, sum.invalid), (2, 6, 4));
        for (other, expected) in
            [((0, 0), (700, 900)), ((500, 600), (500, 900)), ((800, 9_000), (500, 9_000))]
        {
            sum.windows.add(&PeerWindows { min_bytes: other.0, max_bytes: other.1 });
            assert_eq!((sum.windows.min_bytes, sum.windows.max_bytes), expected);
        }
        let times = RoundTripTimes { count: 1, mean_ns: 40, min_ns: 40, max_ns: 40 };
        let other = UserTransport { mode: "copy".into(), handshakes: times, ..transport.clone() };
        sum.add(&other);
        sum.add(&other);
        assert_eq!((&sum.mode[..], sum.is_zero_copy()), ("zero-copy, copy", false));
        assert_eq!(sum.handshakes, RoundTripTimes { count: 4, mean_ns: 25, min_ns: 5, max_ns: 40 });
    }
}
