//! Transport of a load whose TCP is not that of the kernel.

use serde::{Deserialize, Serialize};

/// TCP in user space (`--xdp`). Absent in records of loads over the kernel's TCP. `ss`, `nstat` and the like see nothing of
/// such connections, so that these are all the figures there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserTransport {
    /// `xdp`.
    pub kind: String,
    /// Interface.
    pub interface: String,
    /// Its driver, or the kind of a virtual interface; empty: unknown.
    pub driver: String,
    /// `zero-copy`, `copy` or `generic`.
    pub mode: String,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u32,
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
}

impl UserTransport {
    /// Returns the number of frames that were lost on this machine.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.receive_ring_full + self.fill_ring_empty + self.dropped + self.transmit_ring_full
    }
}
