//! Connection balancer: counts of connections per core, visible to all cores, and the transfer of
//! connections.
//!
//! `SO_REUSEPORT` spreads connections by a hash of their addresses: with few of them, some cores
//! stay idle while others carry two or three. So the core that accepted a connection hands it to
//! the core with the fewest if it clearly has more itself. The counts are the only memory that
//! cores share. They are touched once at the start and once at the end of a connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::fd_channel::{self, AsyncFdReceiver, FD_MESSAGE_BYTES, FdReceiver, FdSender};
use crate::listen::{BoundAddress, Listener};
use crate::socket::SocketFamily;

/// Connection on its way from the core that accepted it to the core that serves it.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The accepted descriptor, non-blocking.
    pub fd: OwnedFd,
    /// TCP or unix.
    pub family: SocketFamily,
    /// Index of the engine's listener that accepted it.
    pub listener_index: usize,
    /// Address of the peer; `None` on a unix socket.
    pub peer: Option<SocketAddr>,
}

impl AcceptedConnection {
    /// Closes the connection with a reset, at once.
    pub fn reset(self) {
        // The connection may already be gone, which is fine.
        let _ = crate::socket::reset_on_close(self.fd.as_fd());
    }
}

/// Counts of one core, with a cache line each, so that cores do not slow each other down.
#[repr(align(128))]
#[derive(Debug, Default)]
struct AtomicCoreCounts {
    open: AtomicUsize,
    accepted: AtomicU64,
    rebalanced: AtomicU64,
}

/// Counts of all cores and a sender to each. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionBalancer {
    counts: Arc<[AtomicCoreCounts]>,
    senders: Arc<[FdSender]>,
}

/// Receiver of a core for messages from other cores.
#[derive(Debug)]
pub struct Inbox {
    receiver: FdReceiver,
}

/// Receiver of a core, registered with its runtime.
#[derive(Debug)]
pub struct AsyncInbox {
    receiver: AsyncFdReceiver,
}

#[derive(Debug)]
pub enum CoreMessage {
    Connection(AcceptedConnection),
    Listener(Listener),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreConnectionCounts {
    /// Connections open now.
    pub open: usize,
    /// Connections accepted from the kernel by this core.
    pub accepted: u64,
    /// Number of accepted connections that went to another core.
    pub rebalanced: u64,
}

impl ConnectionBalancer {
    /// Creates a balancer for `cores` cores, and the inbox of each.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(cores: usize) -> io::Result<(Self, Vec<Inbox>)> {
        let (mut senders, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..cores {
            let (sender, receiver) = fd_channel::channel()?;
            senders.push(sender);
            inboxes.push(Inbox { receiver });
        }
        let counts = (0..cores).map(|_| AtomicCoreCounts::default()).collect();
        Ok((Self { counts, senders: senders.into() }, inboxes))
    }

    /// Returns its descriptor numbers, for cores with their own descriptor table to keep.
    pub fn raw_fds(&self) -> Vec<RawFd> {
        self.senders.iter().map(FdSender::raw_fd).collect()
    }

    /// Sends a copy of a listening socket to its core.
    fn send_listener(&self, core: usize, listener: &Listener) -> io::Result<()> {
        let message = FdMessage {
            payload: FdPayload::Listener,
            family: listener.family(),
            listener_index: listener.index(),
            peer: None,
        };
        self.senders[core].send(listener.as_fd(), &message.encode())
    }

    /// Sends the sockets of an address to their cores, because cores may have their own descriptor
    /// tables. Returns the copies of this thread.
    ///
    /// # Errors
    /// As [`FdSender::send`](crate::fd_channel::FdSender::send).
    pub fn send_listeners(&self, bound: &mut BoundAddress, index: usize) -> io::Result<Vec<Listener>> {
        let mut copies = Vec::new();
        for core in 0..self.senders.len() {
            while let Some(listener) = bound.take_listener(core, index) {
                self.send_listener(core, &listener)?;
                copies.push(listener);
            }
        }
        Ok(copies)
    }

    /// Assigns a connection that `core` accepted: returns it to be served there, or sends it to
    /// another core and returns `None`. Increments the count of the core that serves it.
    pub fn assign(&self, core: usize, connection: AcceptedConnection) -> Option<AcceptedConnection> {
        let own_counts = &self.counts[core];
        own_counts.accepted.fetch_add(1, Ordering::Relaxed);
        let target = choose_core(core, self.counts.iter().map(|c| c.open.load(Ordering::Relaxed)));
        if target == core {
            own_counts.open.fetch_add(1, Ordering::Relaxed);
            return Some(connection);
        }
        self.counts[target].open.fetch_add(1, Ordering::Relaxed);
        let message = FdMessage {
            payload: FdPayload::Connection,
            family: connection.family,
            listener_index: connection.listener_index,
            peer: connection.peer,
        };
        // If the inbox of the target is full, the connection is served here.
        if self.senders[target].send(connection.fd.as_fd(), &message.encode()).is_ok() {
            own_counts.rebalanced.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.counts[target].open.fetch_sub(1, Ordering::Relaxed);
        own_counts.open.fetch_add(1, Ordering::Relaxed);
        Some(connection)
    }

    /// Counts a connection that `core` accepted and serves itself.
    pub fn count_accepted(&self, core: usize) {
        self.counts[core].accepted.fetch_add(1, Ordering::Relaxed);
        self.counts[core].open.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of a connection that `core` served.
    pub fn release(&self, core: usize) {
        self.counts[core].open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of connections of one core, including those on their way to it.
    pub fn open_connections_on(&self, core: usize) -> usize {
        self.counts[core].open.load(Ordering::Relaxed)
    }

    pub fn open_connections(&self) -> usize {
        self.counts.iter().map(|count| count.open.load(Ordering::Relaxed)).sum()
    }

    pub fn core_counts(&self) -> Vec<CoreConnectionCounts> {
        let load_counts = |count: &AtomicCoreCounts| CoreConnectionCounts {
            open: count.open.load(Ordering::Relaxed),
            accepted: count.accepted.load(Ordering::Relaxed),
            rebalanced: count.rebalanced.load(Ordering::Relaxed),
        };
        self.counts.iter().map(load_counts).collect()
    }
}

impl Inbox {
    /// Returns its descriptor number, for its core to keep if that has its own descriptor table.
    pub fn raw_fd(&self) -> RawFd {
        self.receiver.raw_fd()
    }

    /// Registers the inbox with the runtime. Must be called inside the core's runtime.
    ///
    /// # Errors
    /// epoll rejected it.
    pub fn register(self) -> io::Result<AsyncInbox> {
        Ok(AsyncInbox { receiver: self.receiver.register()? })
    }
}

impl AsyncInbox {
    /// Receives the next message; `None` if all senders are gone.
    ///
    /// # Errors
    /// A message could not be received for lack of a descriptor. The next one may succeed.
    pub async fn receive(&mut self) -> io::Result<Option<CoreMessage>> {
        let Some((fd, message)) = self.receiver.receive().await? else {
            return Ok(None);
        };
        let FdMessage { payload, family, listener_index, peer } = FdMessage::decode(&message);
        Ok(Some(match payload {
            FdPayload::Connection => {
                CoreMessage::Connection(AcceptedConnection { fd, family, listener_index, peer })
            }
            FdPayload::Listener => CoreMessage::Listener(Listener::new(fd, family, listener_index)),
        }))
    }
}

/// Description of a descriptor that moves to another core.
struct FdMessage {
    payload: FdPayload,
    family: SocketFamily,
    listener_index: usize,
    peer: Option<SocketAddr>,
}

enum FdPayload {
    Connection,
    Listener,
}

impl FdMessage {
    /// Encodes kind, family, kind of peer, port, index, address. Only the same process decodes it.
    fn encode(&self) -> [u8; FD_MESSAGE_BYTES] {
        let mut bytes = [0; FD_MESSAGE_BYTES];
        bytes[0] = matches!(self.payload, FdPayload::Listener).into();
        bytes[1] = matches!(self.family, SocketFamily::Unix).into();
        bytes[4..8].copy_from_slice(&(self.listener_index as u32).to_ne_bytes());
        if let Some(peer) = self.peer {
            bytes[8..10].copy_from_slice(&peer.port().to_ne_bytes());
            match peer.ip() {
                IpAddr::V4(address) => {
                    bytes[2] = 4;
                    bytes[16..20].copy_from_slice(&address.octets());
                }
                IpAddr::V6(address) => {
                    bytes[2] = 6;
                    bytes[16..32].copy_from_slice(&address.octets());
                }
            }
        }
        bytes
    }

    fn decode(bytes: &[u8; FD_MESSAGE_BYTES]) -> Self {
        let mut octets = [0; 16];
        octets.copy_from_slice(&bytes[16..]);
        let [a, b, c, d, ..] = octets;
        let address = match bytes[2] {
            4 => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(octets))),
            _ => None,
        };
        let port = u16::from_ne_bytes([bytes[8], bytes[9]]);
        let index = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Self {
            payload: if bytes[0] == 1 { FdPayload::Listener } else { FdPayload::Connection },
            family: if bytes[1] == 1 { SocketFamily::Unix } else { SocketFamily::Tcp },
            listener_index: index as usize,
            peer: address.map(|address| SocketAddr::new(address, port)),
        }
    }
}

/// Chooses the core to serve a connection accepted by `core`: itself, unless it has over an eighth
/// more than the least loaded one. A transfer costs a wake-up, so small differences remain.
fn choose_core(core: usize, open: impl Iterator<Item = usize>) -> usize {
    let (mut own_open, mut min_core, mut min_open) = (0, core, usize::MAX);
    for (index, open) in open.enumerate() {
        if index == core {
            own_open = open;
        }
        if open < min_open {
            (min_core, min_open) = (index, open);
        }
    }
    if own_open > min_open + min_open / 8 { min_core } else { core }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_are_spread_evenly_and_many_stay_where_they_came() {
        assert_eq!(choose_core(0, [0, 0].into_iter()), 0);
        assert_eq!(choose_core(0, [1, 0].into_iter()), 1);
        assert_eq!(choose_core(1, [1, 1, 2].into_iter()), 1);
        assert_eq!(choose_core(0, [105, 100].into_iter()), 0);
        assert_eq!(choose_core(0, [113, 100].into_iter()), 1);
    }

    #[test]
    fn all_connections_on_one_listener_end_up_even() {
        let (balancer, inboxes) = ConnectionBalancer::new(4).unwrap();
        let peer = Some("[2001:db8::1]:5000".parse().unwrap());
        let mut kept_count = 0;
        for _ in 0..8 {
            let fd = std::fs::File::open("/dev/null").unwrap().into();
            let connection = AcceptedConnection { fd, family: SocketFamily::Tcp, listener_index: 7, peer };
            kept_count += usize::from(balancer.assign(0, connection).is_some());
        }
        assert_eq!(kept_count, 2);
        assert_eq!(balancer.core_counts()[0], CoreConnectionCounts { open: 2, accepted: 8, rebalanced: 6 });
        balancer.release(0);
        assert_eq!(balancer.open_connections(), 7);
        drop(balancer);
        for (core, inbox) in inboxes.into_iter().enumerate() {
            let received = crate::cores::block_on(async {
                let mut inbox = inbox.register().unwrap();
                let mut received = 0;
                while let Some(message) = inbox.receive().await.unwrap() {
                    let CoreMessage::Connection(connection) = message else { panic!("{message:?}") };
                    assert_eq!((connection.listener_index, connection.peer), (7, peer));
                    received += 1;
                }
                received
            });
            assert_eq!(received, if core == 0 { 0 } else { 2 });
        }
    }
}
