//! How many connections each core has, seen by all, and the way to hand one over.
//!
//! `SO_REUSEPORT` spreads connections by a hash of their addresses: with few of them, some cores
//! stay idle while others carry two or three. So the core that accepted a connection hands it to
//! the core with the fewest when it has clearly more itself. The counts are the only memory that
//! cores share, and are touched once at the start and once at the end of a connection.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;

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
    inboxes: Vec<mpsc::Sender<Handover>>,
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

/// How many handed-over connections may wait for a core; beyond, the acceptor keeps them itself.
const INBOX_MAX: usize = 1024;

impl Board {
    /// A board for `cores` cores, and the inbox of each.
    #[must_use]
    pub fn new(cores: usize) -> (Self, Vec<mpsc::Receiver<Handover>>) {
        let (inboxes, receivers) = (0..cores).map(|_| mpsc::channel(INBOX_MAX)).unzip();
        let counts = (0..cores).map(|_| Count::default()).collect();
        (Self { counts, inboxes }, receivers)
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
        let Err(refused) = self.inboxes[target].try_send(connection) else {
            own.handed_over.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.counts[target].open.fetch_sub(1, Ordering::Relaxed);
        own.open.fetch_add(1, Ordering::Relaxed);
        Some(refused.into_inner())
    }

    /// Notes that a connection that `core` served has ended.
    pub fn closed(&self, core: usize) {
        self.counts[core].open.fetch_sub(1, Ordering::Relaxed);
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
        let (board, inboxes) = Board::new(4);
        let mut kept = 0;
        for _ in 0..8 {
            let fd = std::fs::File::open("/dev/null").unwrap().into();
            let connection = Handover { fd, family: Family::Tcp, listener: 0 };
            kept += usize::from(board.place(0, connection).is_some());
        }
        assert_eq!(kept, 2);
        let mut waiting: Vec<_> = inboxes.iter().map(mpsc::Receiver::len).collect();
        waiting.sort_unstable();
        assert_eq!(waiting, [0, 2, 2, 2]);
        assert_eq!(board.rows()[0], Row { open: 2, accepted: 8, handed_over: 6 });
        board.closed(0);
        assert_eq!(board.open(), 7);
    }
}
