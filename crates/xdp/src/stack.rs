//! The connections of one queue: demultiplexing, opening and closing, timers and bounds. The protocol itself is smoltcp's:
//! each connection has a socket of its own, so that a packet costs the same with one connection and with many.
//!
//! ```text
//! passive: SYN -> half-open -> open -> orphan (its user is gone) -> removed
//! active:  connect -> connecting --^            reset, evicted, expired: removed at once
//! ```
//! Pure: time is an argument, packets come from a [`Link`]. TIME-WAIT is not kept: late packets of a removed connection
//! get a reset, and own ports are used in turns.

mod connection;
mod device;
mod handover;
mod measures;
mod user;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpEndpoint};

use self::connection::{Connection, Phase, Slot, new_sockets};
use self::device::PacketDevice;
use self::handover::Handover;
use self::measures::TimedSegment;
use crate::packet::{FourTuple, MacAddress, Segment};
use crate::steering::Steering;
use crate::timers::{NOT_ARMED, TimerHeap};

pub use self::connection::ConnectionId;
pub use self::handover::HandedFrame;
pub use self::measures::{PeerWindows, RoundTrips};

/// Default maximum number of connections of a queue.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Maximum number of connections whose handshake is not complete. A further one evicts the oldest, so that a flood of SYNs
/// delays handshakes and does not prevent them.
pub const HALF_OPEN_MAX: usize = 1_024;
/// Bytes that a connection can receive and send before its user and its peer take them; all of its memory but about a
/// kilobyte.
pub const BUFFER_BYTES: usize = 16 * 1024;
/// Maximum bytes of a connection: its buffers, its socket of smoltcp and its entries in the tables of the stack.
pub const CONNECTION_BYTES: usize = 2 * BUFFER_BYTES + 1024;
/// Maximum time of a handshake, from its first SYN.
pub const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;
/// Maximum time in which the peer of a closed connection takes the rest and closes, too.
pub const ORPHAN_NS_MAX: u64 = 10_000_000_000;
/// Maximum number of times that a connection is started again because the peer had an old one in TIME-WAIT.
const RESTARTS_MAX: u8 = 4;
/// Time after which a SYN is sent again, that of smoltcp.
const SYN_RETRY_NS: u64 = 1_000_000_000;
/// Maximum number of resets for packets of no connection, in each [`RESET_INTERVAL_NS`].
const RESETS_MAX: u32 = 64;
const RESET_INTERVAL_NS: u64 = 10_000_000;
/// Maximum number of unused sockets that are kept for the next connections.
const SPARE_MAX: usize = 1_024;
/// Maximum number of connections that send in one turn. Received frames come in between, so that the end of 64,000
/// connections at once does not fill the rings of both ends.
const TURN_CONNECTIONS_MAX: usize = 256;
/// Maximum number of segments that a connection sends in one turn.
const TURN_SEGMENTS_MAX: u32 = 64;
/// Minimum time until a timer is due, so that no timer is due again at once.
const TIMER_NS_MIN: u64 = 1_000_000;
/// Bytes of the largest frame.
const FRAME_BYTES_MAX: usize = 4_096;

/// Sends and receives frames.
pub trait Link {
    /// Copies the next received frame into `buffer`, and returns its length: 0 for one that is not usable. `None`: there is
    /// none.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize>;

    /// Returns the memory of the frames that were received.
    fn end_receive(&mut self);

    /// Returns whether a frame can be queued now.
    fn has_space(&mut self) -> bool;

    /// Queues a frame of `length` bytes, which `fill` writes. Without space it is lost.
    fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Sends what is queued.
    fn flush(&mut self);
}

/// Settings of a [`Stack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackConfig {
    /// MAC address of the interface.
    pub mac: MacAddress,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: usize,
    /// Own addresses, whose packets are accepted.
    pub addresses: Vec<IpAddr>,
    /// Addresses and ports that accept connections.
    pub listen: Vec<SocketAddr>,
    /// Own ports of connections to others.
    pub ports: RangeInclusive<u16>,
    /// True if checksums of received TCP segments are verified. A peer on a veth pair leaves them to a device that
    /// does not exist.
    pub verifies_checksums: bool,
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`HALF_OPEN_MAX`].
    pub half_open_max: usize,
    /// Random number, from which sequence numbers are made.
    pub seed: u64,
    /// Number of queues of the interface, each with a stack.
    pub queues: u32,
    /// Number of the own queue.
    pub queue: u32,
    /// Way in which the device chooses a queue, if it is known.
    pub steering: Option<Steering>,
}

/// Counts of a [`Stack`] since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounters {
    /// Received frames.
    pub frames: u64,
    /// Frames that are no usable TCP segments, damaged ones among them.
    pub malformed: u64,
    /// Segments of no connection.
    pub unknown: u64,
    /// SYNs that were dropped because there were [`StackConfig::connections_max`].
    pub refused: u64,
    /// Half-open connections that were removed for others.
    pub evicted: u64,
    /// Handshakes and closes that took too long.
    pub expired: u64,
    /// Accepted connections.
    pub accepted: u64,
    /// Started connections to others.
    pub started: u64,
    /// SYNs that were sent again because the peer had an old connection with these addresses and ports in TIME-WAIT.
    pub restarted: u64,
    /// Segments whose content was sent before.
    pub retransmitted: u64,
    /// Sent segments.
    pub sent: u64,
    /// Received segments of peers that could receive nothing.
    pub zero_windows: u64,
    /// Receive windows of peers.
    pub windows: PeerWindows,
    /// Times from the SYN to its answer. Those from 1 s on are left out: the SYN may have been sent again.
    pub handshakes: RoundTrips,
    /// Times from content to its acknowledgement, of one segment of a connection at a time, and of none that was sent
    /// again (RFC 6298 3). They include the time in which the peer waits with its acknowledgement for its response.
    pub round_trips: RoundTrips,
    /// Frames that were given to the stack of another queue.
    pub handed_over: u64,
    /// Frames that were lost because too many waited for another queue.
    pub handover_full: u64,
}

/// TCP of one queue.
pub struct Stack<L> {
    link: L,
    config: StackConfig,
    interface: Interface,
    checksums: ChecksumCapabilities,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots by connection. The map has a random key, so that peers cannot choose collisions.
    by_tuple: HashMap<FourTuple, u32>,
    accepted: VecDeque<ConnectionId>,
    half_open: VecDeque<ConnectionId>,
    half_open_count: usize,
    /// Slots of the connections that may have something to send.
    dirty: Vec<u32>,
    timers: TimerHeap,
    spare: Vec<SocketSet<'static>>,
    handover: Handover,
    /// No socket: for segments of no connection.
    nobody: SocketSet<'static>,
    buffer: Box<[u8]>,
    next_port: u16,
    /// Start of the current interval of resets, and the number sent in it.
    resets: (u64, u32),
    counters: StackCounters,
}

impl<L: Link> Stack<L> {
    /// Creates a stack without connections.
    #[must_use]
    pub fn new(mut link: L, config: StackConfig, now_ns: u64) -> Self {
        // Received ones are verified before smoltcp sees the packet.
        let mut checksums = ChecksumCapabilities::default();
        (checksums.ipv4, checksums.tcp) = (Checksum::Tx, Checksum::Tx);
        let mut interface_config = Config::new(HardwareAddress::Ip);
        interface_config.random_seed = config.seed;
        let mut device = PacketDevice::new(&mut link, &config, &checksums, [0; 6]);
        let mut interface = Interface::new(interface_config, &mut device, instant(now_ns));
        // smoltcp has room for a few addresses only. It has none, and sees only packets to those that `process` knows; each
        // socket has the own address of its connection.
        interface.set_any_ip(true);
        let ports = u64::from(config.ports.end().saturating_sub(*config.ports.start())) + 1;
        Self {
            next_port: config.ports.start().saturating_add((config.seed % ports) as u16),
            link,
            config,
            interface,
            checksums,
            slots: Vec::new(),
            free: Vec::new(),
            by_tuple: HashMap::new(),
            accepted: VecDeque::new(),
            half_open: VecDeque::new(),
            half_open_count: 0,
            dirty: Vec::new(),
            timers: TimerHeap::default(),
            spare: Vec::new(),
            handover: Handover::default(),
            nobody: SocketSet::new(Vec::new()),
            buffer: vec![0; FRAME_BYTES_MAX].into(),
            resets: (0, 0),
            counters: StackCounters::default(),
        }
    }

    pub fn link(&self) -> &L {
        &self.link
    }

    #[must_use]
    pub fn counters(&self) -> StackCounters {
        self.counters
    }

    /// Returns the maximum number of connections in every phase that there were at a time.
    #[must_use]
    pub fn connections_peak(&self) -> usize {
        // A further slot is added only if all are used, and none is ever removed.
        self.slots.len()
    }

    /// Returns the number of connections in every phase.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Processes up to `frames_max` received frames; returns their number.
    pub fn receive(&mut self, now_ns: u64, frames_max: usize) -> usize {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut frames = 0;
        while frames < frames_max
            && let Some(length) = self.link.receive(&mut buffer)
        {
            frames += 1;
            self.process_frame(&buffer[..length], now_ns);
        }
        self.buffer = buffer;
        if frames > 0 {
            self.link.end_receive();
        }
        frames
    }

    /// Processes one frame.
    pub fn process_frame(&mut self, frame: &[u8], now_ns: u64) {
        self.counters.frames += 1;
        self.process(frame, 0, now_ns);
    }

    /// Processes a frame that another queue received ([`Stack::take_handed`]).
    pub fn process_handed(&mut self, frame: HandedFrame, now_ns: u64) {
        self.process(&frame.bytes, frame.seen, now_ns);
        self.handover.recycle(frame);
    }

    /// Counts a frame that could not be given to the next queue.
    pub fn count_lost_handover(&mut self) {
        self.counters.handover_full += 1;
    }

    /// Returns the next frame for the stack of the next queue.
    pub fn take_handed(&mut self) -> Option<HandedFrame> {
        self.handover.pop()
    }

    /// Processes a frame whose connection `seen` other queues do not know.
    fn process(&mut self, frame: &[u8], seen: u32, now_ns: u64) {
        let segment = Segment::parse(frame).filter(|segment| {
            segment.has_usable_peer()
                && self.config.addresses.contains(&segment.tuple.local.ip())
                // The first queue has verified a frame that was handed over.
                && (seen > 0 || self.is_undamaged(segment))
        });
        let Some(segment) = segment else {
            self.counters.malformed += 1;
            return;
        };
        let slot = match self.by_tuple.get(&segment.tuple) {
            Some(slot) => Some(*slot),
            None if segment.is_opening() && self.config.listen.contains(&segment.tuple.local) => {
                self.open_passive(segment.tuple, now_ns)
            }
            None if seen + 1 < self.config.queues => return self.hand_over(frame, seen + 1),
            None => return self.answer_unknown(&segment, now_ns),
        };
        if let Some(slot) = slot {
            self.deliver(slot, &segment, now_ns);
        }
    }

    fn is_undamaged(&self, segment: &Segment<'_>) -> bool {
        segment.has_valid_header() && (!self.config.verifies_checksums || segment.has_valid_checksum())
    }

    fn deliver(&mut self, slot: u32, segment: &Segment<'_>, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        connection.peer_mac = segment.source_mac;
        connection.has_answer = true;
        self.counters.zero_windows += u64::from(segment.closes_window());
        connection.measure(segment, now_ns, &mut self.counters);
        let mut device = PacketDevice::new(&mut self.link, &self.config, &self.checksums, segment.source_mac);
        device.received = Some(segment.ip_packet);
        self.interface.poll_ingress_single(instant(now_ns), &mut device, &mut connection.sockets);
        self.counters.sent += device.sent;
        let state = connection.socket().state();
        match connection.phase {
            Phase::HalfOpen => match state {
                State::SynReceived => {}
                State::Listen | State::Closed => return self.remove(slot),
                _ => {
                    connection.phase = Phase::Open;
                    connection.expiry_ns = NOT_ARMED;
                    let id = ConnectionId { slot, generation: self.slots[slot as usize].generation };
                    self.half_open_count -= 1;
                    self.counters.accepted += 1;
                    self.accepted.push_back(id);
                }
            },
            Phase::Connecting if state == State::SynSent && segment.is_plain_ack() => self.restart(slot),
            Phase::Orphan if connection.socket().can_recv() => connection.socket_mut().abort(),
            Phase::Connecting if state != State::SynSent && connection.expiry_ns != NOT_ARMED => {
                let started_ns = connection.expiry_ns.saturating_sub(HANDSHAKE_NS_MAX);
                connection.expiry_ns = NOT_ARMED;
                let time_ns = now_ns.saturating_sub(started_ns);
                if time_ns < SYN_RETRY_NS {
                    self.counters.handshakes.record(time_ns);
                }
            }
            Phase::Connecting | Phase::Open | Phase::Orphan => {}
        }
        self.mark_dirty(slot);
    }

    #[cold]
    fn hand_over(&mut self, frame: &[u8], seen: u32) {
        match self.handover.push(frame, seen) {
            true => self.counters.handed_over += 1,
            false => self.counters.handover_full += 1,
        }
    }

    /// Sends a reset for a segment of no connection, unless there are too many.
    fn answer_unknown(&mut self, segment: &Segment<'_>, now_ns: u64) {
        self.counters.unknown += 1;
        if now_ns.saturating_sub(self.resets.0) >= RESET_INTERVAL_NS {
            self.resets = (now_ns, 0);
        }
        if segment.is_reset() || self.resets.1 >= RESETS_MAX {
            return;
        }
        self.resets.1 += 1;
        let mut device = PacketDevice::new(&mut self.link, &self.config, &self.checksums, segment.source_mac);
        device.received = Some(segment.ip_packet);
        self.interface.poll_ingress_single(instant(now_ns), &mut device, &mut self.nobody);
        self.counters.sent += device.sent;
    }

    /// Creates a connection for a SYN; `None` if there are too many.
    fn open_passive(&mut self, tuple: FourTuple, now_ns: u64) -> Option<u32> {
        if self.half_open_count >= self.config.half_open_max {
            self.evict_half_open();
        }
        let slot = self.insert(tuple, Phase::HalfOpen, now_ns.saturating_add(HANDSHAKE_NS_MAX))?;
        let Slot { generation, connection } = &mut self.slots[slot as usize];
        let endpoint = IpEndpoint::from(tuple.local);
        let listens =
            connection.as_mut().is_some_and(|connection| connection.socket_mut().listen(endpoint).is_ok());
        let id = ConnectionId { slot, generation: *generation };
        self.half_open_count += 1;
        self.half_open.push_back(id);
        if !listens {
            self.remove(slot);
            return None;
        }
        Some(slot)
    }

    /// Removes the oldest half-open connection, without a reset.
    fn evict_half_open(&mut self) {
        while let Some(id) = self.half_open.pop_front() {
            if self.connection(id).is_some_and(|connection| connection.phase == Phase::HalfOpen) {
                self.counters.evicted += 1;
                return self.remove(id.slot);
            }
        }
    }

    fn insert(&mut self, tuple: FourTuple, phase: Phase, expiry_ns: u64) -> Option<u32> {
        if self.connections() >= self.config.connections_max {
            self.counters.refused += 1;
            return None;
        }
        if self.half_open.len() > 2 * self.config.half_open_max + 64 {
            let slots = &self.slots;
            self.half_open.retain(|id| {
                let slot = &slots[id.slot as usize];
                slot.generation == id.generation
                    && slot.connection.as_ref().is_some_and(|connection| connection.phase == Phase::HalfOpen)
            });
        }
        let sockets = self.spare.pop().unwrap_or_else(new_sockets);
        let connection = Box::new(Connection::new(tuple, sockets, phase, expiry_ns));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // At most `connections_max`, which is far below 2^32.
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].connection = Some(connection);
        self.by_tuple.insert(tuple, slot);
        Some(slot)
    }

    /// Removes a connection. A user that still has its id sees a closed connection.
    fn remove(&mut self, slot: u32) {
        self.unmap(slot);
        let entry = &mut self.slots[slot as usize];
        let Some(mut connection) = entry.connection.take() else { return };
        entry.generation = entry.generation.wrapping_add(1);
        self.half_open_count -= usize::from(connection.phase == Phase::HalfOpen);
        self.free.push(slot);
        connection.socket_mut().abort();
        if self.spare.len() < SPARE_MAX {
            self.spare.push(connection.sockets);
        }
    }

    /// Frees the addresses and ports of a connection for another one.
    fn unmap(&mut self, slot: u32) {
        if let Some(connection) = &self.slots[slot as usize].connection
            && self.by_tuple.get(&connection.tuple) == Some(&slot)
        {
            self.by_tuple.remove(&connection.tuple);
        }
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.connection.as_deref().filter(|_| slot.generation == id.generation)
    }

    fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.connection.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    fn mark_dirty(&mut self, slot: u32) {
        if let Some(connection) = &mut self.slots[slot as usize].connection
            && !std::mem::replace(&mut connection.is_dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    /// Returns whether [`Stack::flush`] has something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns the time at which [`Stack::handle_timers`] is due.
    #[must_use]
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// Handles the timers that are due; [`Stack::flush`] sends the results.
    pub fn handle_timers(&mut self, now_ns: u64) {
        while let Some((due_ns, slot)) = self.timers.pop_due(now_ns) {
            let entry = self.slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut());
            let Some(connection) = entry.filter(|connection| connection.armed_ns == due_ns) else { continue };
            connection.armed_ns = NOT_ARMED;
            if connection.expiry_ns <= now_ns {
                self.counters.expired += 1;
                if connection.phase == Phase::HalfOpen {
                    self.remove(slot);
                    continue;
                }
                connection.expiry_ns = NOT_ARMED;
                connection.socket_mut().abort();
            }
            self.mark_dirty(slot);
        }
    }

    /// Sends what connections have to send. Those that have more than a turn allows stay in the list
    /// ([`Stack::has_work`]).
    pub fn flush(&mut self, now_ns: u64) {
        let mut turn = std::mem::take(&mut self.dirty);
        self.dirty = turn.split_off(turn.len().min(TURN_CONNECTIONS_MAX));
        for slot in turn.drain(..) {
            self.flush_connection(slot, now_ns);
        }
        if self.dirty.is_empty() {
            self.dirty = turn;
        }
        self.link.flush();
        let (slots, connections) = (&self.slots, self.slots.len() - self.free.len());
        self.timers.compact(connections, |slot, due_ns| {
            let entry = slots[slot as usize].connection.as_ref();
            entry.is_some_and(|connection| connection.armed_ns == due_ns)
        });
    }

    fn flush_connection(&mut self, slot: u32, now_ns: u64) {
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        connection.is_dirty = false;
        let mut device =
            PacketDevice::new(&mut self.link, &self.config, &self.checksums, connection.peer_mac);
        device.sent_end = connection.sent_end;
        let (now, mut segments) = (instant(now_ns), 0);
        // To ask whether something is due costs less than to try, and most turns have nothing or one segment to send.
        let due = loop {
            let due = self.interface.poll_at(now, &connection.sockets);
            if segments == TURN_SEGMENTS_MAX
                || due.is_none_or(|due| due > now)
                || self.interface.poll_egress(now, &mut device, &mut connection.sockets)
                    != PollResult::SocketStateChanged
            {
                break due;
            }
            segments += 1;
        };
        // An acknowledgement of what was sent twice has no known start.
        if device.retransmitted > 0 {
            connection.timed = None;
        } else if connection.timed.is_none()
            && device.sent_end != connection.sent_end
            && let Some(end) = device.sent_end
        {
            connection.timed = Some(TimedSegment { end, sent_ns: now_ns });
        }
        connection.sent_end = device.sent_end;
        self.counters.retransmitted += device.retransmitted;
        self.counters.sent += device.sent;
        let has_more = segments == TURN_SEGMENTS_MAX || !device.link.has_space();
        let state = connection.socket().state();
        let is_over = matches!(state, State::Closed | State::TimeWait);
        if is_over && connection.phase == Phase::Orphan {
            return self.remove(slot);
        }
        let due_ns = due.map_or(NOT_ARMED, |due| due.total_micros().unsigned_abs() * 1_000);
        let due_ns = due_ns.min(connection.expiry_ns).max(now_ns.saturating_add(TIMER_NS_MIN));
        self.timers.arm(slot, due_ns, &mut connection.armed_ns);
        if state == State::Closed {
            self.unmap(slot);
        }
        if has_more {
            self.mark_dirty(slot);
        }
    }
}

impl<L> fmt::Debug for Stack<L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.slots.len() - self.free.len();
        formatter.debug_struct("Stack").field("connections", &connections).finish_non_exhaustive()
    }
}

fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1_000) as i64)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
