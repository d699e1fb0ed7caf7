//! How many connections each core has, seen by all, and the way to hand one over.
//!
//! `SO_REUSEPORT` spreads connections by a hash of their addresses: with few of them, some cores
//! stay idle while others carry two or three. So the core that accepted a connection hands it to
//! the core with the fewest when it has clearly more itself. The counts are the only memory that
//! cores share, and are touched once at the start and once at the end of a connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::listen::Listener;
use crate::mail::{self, LETTER_BYTES, Mailbox, OpenMailbox, Post};
use crate::stream::Family;

/// A connection on its way from the core that accepted it to the core that serves it.
#[derive(Debug)]
pub struct Handover {
    /// The accepted descriptor, non-blocking.
    pub fd: OwnedFd,
    /// TCP or unix.
    pub family: Family,
    /// Which of the engine's listeners took it.
    pub listener: usize,
    /// Who connected; `None` on a unix socket.
    pub peer: Option<SocketAddr>,
}

impl Handover {
    /// Closes it with a reset, at once.
    pub fn reset(self) {
        // It may be gone already, which is as well.
        let _ = crate::stream::reset_on_close(self.fd.as_fd());
    }
}

/// A cache line each, so that cores do not slow each other down.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Count {
    open: AtomicUsize,
    accepted: AtomicU64,
    handed_over: AtomicU64,
}

/// The counts of all cores and a way into each. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Board {
    counts: Arc<[Count]>,
    posts: Arc<[Post]>,
}

/// Where a core gets what others have for it.
#[derive(Debug)]
pub struct Inbox {
    mailbox: Mailbox,
}

/// The same, in its core.
#[derive(Debug)]
pub struct OpenInbox {
    mailbox: OpenMailbox,
}

/// What comes to a core.
#[derive(Debug)]
pub enum Parcel {
    /// A connection that another core accepted.
    Connection(Handover),
    /// A listening socket of its own.
    Listener(Listener),
}

/// What one core's row of the board says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Connections open now.
    pub open: usize,
    /// Connections accepted from the kernel by this core.
    pub accepted: u64,
    /// Of those, how many went to another core.
    pub handed_over: u64,
}

impl Board {
    /// A board for `cores` cores, and the inbox of each.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new(cores: usize) -> io::Result<(Self, Vec<Inbox>)> {
        let (mut posts, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..cores {
            let (post, mailbox) = mail::pair()?;
            posts.push(post);
            inboxes.push(Inbox { mailbox });
        }
        let counts = (0..cores).map(|_| Count::default()).collect();
        Ok((Self { counts, posts: posts.into() }, inboxes))
    }

    /// The numbers of its descriptors, to be kept by cores with a table of their own.
    #[must_use]
    pub fn numbers(&self) -> Vec<RawFd> {
        self.posts.iter().map(Post::number).collect()
    }

    /// Sends a copy of a listening socket to its core.
    ///
    /// # Errors
    /// As [`Post::send`].
    pub fn send_listener(&self, core: usize, listener: &Listener) -> io::Result<()> {
        let letter = Letter {
            kind: Kind::Listener,
            family: listener.family(),
            index: listener.index(),
            peer: None,
        };
        self.posts[core].send(listener.as_fd(), &letter.encode())
    }

    /// Places a connection that `core` accepted: gives it back to be served there, or hands it to
    /// another core and returns `None`. The count of the core that serves it is raised here.
    #[must_use]
    pub fn place(&self, core: usize, connection: Handover) -> Option<Handover> {
        let own = &self.counts[core];
        own.accepted.fetch_add(1, Ordering::Relaxed);
        let target = choose(core, self.counts.iter().map(|c| c.open.load(Ordering::Relaxed)));
        if target == core {
            own.open.fetch_add(1, Ordering::Relaxed);
            return Some(connection);
        }
        self.counts[target].open.fetch_add(1, Ordering::Relaxed);
        let letter = Letter {
            kind: Kind::Connection,
            family: connection.family,
            index: connection.listener,
            peer: connection.peer,
        };
        // When its inbox is full, it is no worse off here.
        if self.posts[target].send(connection.fd.as_fd(), &letter.encode()).is_ok() {
            own.handed_over.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.counts[target].open.fetch_sub(1, Ordering::Relaxed);
        own.open.fetch_add(1, Ordering::Relaxed);
        Some(connection)
    }

    /// Notes that a connection that `core` served has ended.
    pub fn closed(&self, core: usize) {
        self.counts[core].open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections that one core has, those on their way to it included.
    #[must_use]
    pub fn open_on(&self, core: usize) -> usize {
        self.counts[core].open.load(Ordering::Relaxed)
    }

    /// Connections open on all cores.
    #[must_use]
    pub fn open(&self) -> usize {
        self.counts.iter().map(|count| count.open.load(Ordering::Relaxed)).sum()
    }

    /// Each core's row.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let row = |count: &Count| Row {
            open: count.open.load(Ordering::Relaxed),
            accepted: count.accepted.load(Ordering::Relaxed),
            handed_over: count.handed_over.load(Ordering::Relaxed),
        };
        self.counts.iter().map(row).collect()
    }
}

impl Inbox {
    /// The number of its descriptor, to be kept by its core if that has a table of its own.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.mailbox.number()
    }

    /// Makes it ready to receive. Must be called inside the core's runtime.
    ///
    /// # Errors
    /// epoll refused it.
    pub fn open(self) -> io::Result<OpenInbox> {
        Ok(OpenInbox { mailbox: self.mailbox.open()? })
    }
}

impl OpenInbox {
    /// What comes next; `None` when nothing can come any more.
    ///
    /// # Errors
    /// Something could not be received, for want of a descriptor. What comes next may be all right.
    pub async fn receive(&mut self) -> io::Result<Option<Parcel>> {
        let Some((fd, letter)) = self.mailbox.receive().await? else {
            return Ok(None);
        };
        let Letter { kind, family, index, peer } = Letter::decode(&letter);
        Ok(Some(match kind {
            Kind::Connection => Parcel::Connection(Handover { fd, family, listener: index, peer }),
            Kind::Listener => Parcel::Listener(Listener::new(fd, family, index)),
        }))
    }
}

/// What a descriptor that changes cores is.
struct Letter {
    kind: Kind,
    family: Family,
    index: usize,
    peer: Option<SocketAddr>,
}

enum Kind {
    Connection,
    Listener,
}

impl Letter {
    /// Kind, family, which kind of peer, port, index, address. Read by the same process only.
    fn encode(&self) -> [u8; LETTER_BYTES] {
        let mut bytes = [0; LETTER_BYTES];
        bytes[0] = matches!(self.kind, Kind::Listener).into();
        bytes[1] = matches!(self.family, Family::Unix).into();
        bytes[4..8].copy_from_slice(&(self.index as u32).to_ne_bytes());
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

    fn decode(bytes: &[u8; LETTER_BYTES]) -> Self {
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
            kind: if bytes[0] == 1 { Kind::Listener } else { Kind::Connection },
            family: if bytes[1] == 1 { Family::Unix } else { Family::Tcp },
            index: index as usize,
            peer: address.map(|address| SocketAddr::new(address, port)),
        }
    }
}

/// Which core is to serve a connection accepted by `core`: itself, unless it has more than the
/// least loaded one by over an eighth. A hand-over costs a wake-up, so small differences stay.
fn choose(core: usize, open: impl Iterator<Item = usize>) -> usize {
    let (mut own, mut least, mut least_open) = (0, core, usize::MAX);
    for (index, open) in open.enumerate() {
        if index == core {
            own = open;
        }
        if open < least_open {
            (least, least_open) = (index, open);
        }
    }
    if own > least_open + least_open / 8 { least } else { core }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_are_spread_evenly_and_many_stay_where_they_came() {
        assert_eq!(choose(0, [0, 0].into_iter()), 0);
        assert_eq!(choose(0, [1, 0].into_iter()), 1);
        assert_eq!(choose(1, [1, 1, 2].into_iter()), 1);
        assert_eq!(choose(0, [105, 100].into_iter()), 0);
        assert_eq!(choose(0, [113, 100].into_iter()), 1);
    }

    #[test]
    fn all_connections_on_one_listener_end_up_even() {
        let (board, inboxes) = Board::new(4).unwrap();
        let peer = Some("[2001:db8::1]:5000".parse().unwrap());
        let mut kept = 0;
        for _ in 0..8 {
            let fd = std::fs::File::open("/dev/null").unwrap().into();
            let connection = Handover { fd, family: Family::Tcp, listener: 7, peer };
            kept += usize::from(board.place(0, connection).is_some());
        }
        assert_eq!(kept, 2);
        assert_eq!(board.rows()[0], Row { open: 2, accepted: 8, handed_over: 6 });
        board.closed(0);
        assert_eq!(board.open(), 7);
        drop(board);
        for (core, inbox) in inboxes.into_iter().enumerate() {
            let came = crate::cores::block_on(async {
                let mut inbox = inbox.open().unwrap();
                let mut came = 0;
                while let Some(parcel) = inbox.receive().await.unwrap() {
                    let Parcel::Connection(connection) = parcel else { panic!("{parcel:?}") };
                    assert_eq!((connection.listener, connection.peer), (7, peer));
                    came += 1;
                }
                came
            });
            assert_eq!(came, if core == 0 { 0 } else { 2 });
        }
    }
}
