//! One connection: its socket of smoltcp and what the stack knows of it.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};

use super::measures::TimedSegment;
use super::{BUFFER_BYTES, StackCounters};
use crate::packet::{FourTuple, MacAddress, Segment};
use crate::timers::NOT_ARMED;

/// Id of a connection; one that is over is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl ConnectionId {
    /// Id of no connection: a stack has far fewer.
    pub const NONE: Self = Self { slot: u32::MAX, generation: 0 };
}

/// Place of a connection.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) connection: Option<Box<Connection>>,
}

/// Owner of a connection: the peer alone, a user of this stack, or nobody any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer has sent a SYN, and nobody here has the connection.
    HalfOpen,
    /// Its user waits for the handshake.
    Connecting,
    /// Its user has it, or will accept it.
    Open,
    /// Its user is gone.
    Orphan,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tuple: FourTuple,
    pub(super) peer_mac: MacAddress,
    pub(super) sockets: SocketSet<'static>,
    handle: SocketHandle,
    pub(super) phase: Phase,
    /// True if it is in the list of the stack.
    pub(super) is_dirty: bool,
    pub(super) resets_on_close: bool,
    /// True if its user reads nothing more.
    pub(super) is_read_shut: bool,
    /// Number of times that it was started again.
    pub(super) restarts: u8,
    /// True if the peer has sent anything.
    pub(super) has_answer: bool,
    /// Due time of its entry in the heap.
    pub(super) armed_ns: u64,
    /// Time at which it is given up.
    pub(super) expiry_ns: u64,
    /// End of the content sent so far, as a sequence number.
    pub(super) sent_end: Option<u32>,
    pub(super) timed: Option<TimedSegment>,
    /// Bits by which the windows of the peer are shifted, from its SYN.
    window_shift: u8,
    /// Bytes that its user has read and written.
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
}

impl Connection {
    pub(super) fn new(tuple: FourTuple, sockets: SocketSet<'static>, phase: Phase, expiry_ns: u64) -> Self {
        // Invariant: `new_sockets` puts exactly one socket into each set.
        let handle = sockets.iter().next().map(|(handle, _)| handle).expect("a set has one socket");
        Self {
            tuple,
            peer_mac: [0; 6],
            sockets,
            handle,
            phase,
            is_dirty: false,
            resets_on_close: false,
            is_read_shut: false,
            restarts: 0,
            has_answer: false,
            armed_ns: NOT_ARMED,
            expiry_ns,
            sent_end: None,
            timed: None,
            window_shift: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Counts the window of a received segment and the time to its acknowledgement.
    #[inline]
    pub(super) fn measure(&mut self, segment: &Segment<'_>, now_ns: u64, counters: &mut StackCounters) {
        if segment.is_synchronizing() {
            self.window_shift = segment.window_shift();
            return;
        }
        let Some(acknowledgement) = segment.acknowledgement() else { return };
        counters.windows.record(u64::from(segment.window()) << self.window_shift);
        if let Some(elapsed_ns) = self.timed.and_then(|timed| timed.elapsed_ns(acknowledgement, now_ns)) {
            self.timed = None;
            counters.round_trips.record(elapsed_ns);
        }
    }

    #[inline]
    pub(super) fn socket(&self) -> &Socket<'static> {
        self.sockets.get(self.handle)
    }

    #[inline]
    pub(super) fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }
}

/// Creates a socket in a set of its own: smoltcp offers each packet to all sockets of a set.
pub(super) fn new_sockets() -> SocketSet<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    // Responses are complete when they are written, so that waiting for more only delays them.
    socket.set_nagle_enabled(false);
    let mut sockets = SocketSet::new(Vec::with_capacity(1));
    sockets.add(socket);
    sockets
}
