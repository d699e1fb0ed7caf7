//! The desk of one core: which client takes which due request.
//!
//! In a closed loop a client asks for its next request when it has finished the last. In an open
//! loop the pacer brings requests as they become due: to the client that has been idle for the
//! longest, else into a bounded line. Pure: no clock, no socket; wakers are only stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// A number of requests that all cores share, taken in small lots so that they end together.
#[derive(Debug)]
pub(crate) struct Quota {
    left: AtomicU64,
    lot: u64,
}

impl Quota {
    pub(crate) fn new(requests: u64, cores: usize) -> Self {
        // A lot is small against a core's share, and large against the cost of sharing.
        let lot = (requests / (cores as u64 * 100)).clamp(1, 64);
        Self { left: AtomicU64::new(requests), lot }
    }

    fn take_lot(&self) -> u64 {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left - left.min(self.lot))
        });
        taken.map_or(0, |left| left.min(self.lot))
    }
}

/// What the desk says to a client that asks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send the request that was due then.
    Due {
        due_ns: u64,
        /// Whether it was waiting for a connection; if not, a late send is the generator's fault.
        waited: bool,
    },
    /// This request was due then and is too old to be sent.
    Expired { due_ns: u64 },
    /// Wait to be woken.
    Wait,
    /// There is no more work.
    End,
}

#[derive(Debug, Default)]
struct Client {
    assigned_ns: Option<u64>,
    idle: bool,
    waker: Option<Waker>,
}

/// Hands out the work of one core.
#[derive(Debug)]
pub(crate) struct Desk {
    clients: Vec<Client>,
    idle: VecDeque<usize>,
    line: VecDeque<u64>,
    line_max: u64,
    quota: Option<Arc<Quota>>,
    lot_left: u64,
    /// No request becomes due any more; what is in line is still served.
    closed: bool,
}

impl Desk {
    pub(crate) fn new(clients: usize, line_max: u64, quota: Option<Arc<Quota>>) -> Self {
        Self {
            clients: (0..clients).map(|_| Client::default()).collect(),
            idle: VecDeque::with_capacity(clients),
            line: VecDeque::new(),
            line_max,
            quota,
            lot_left: 0,
            closed: false,
        }
    }

    /// Keeps the waker of a client, for when there is work.
    pub(crate) fn register(&mut self, client: usize, waker: &Waker) {
        self.clients[client].waker = Some(waker.clone());
    }

    /// Takes one request off the number that is left; `false` when there is none.
    #[inline]
    pub(crate) fn take_one(&mut self) -> bool {
        let Some(quota) = &self.quota else {
            return !self.closed;
        };
        if self.lot_left == 0 && !self.closed {
            self.lot_left = quota.take_lot();
        }
        if self.lot_left == 0 {
            self.close();
            return false;
        }
        self.lot_left -= 1;
        true
    }

    /// A request became due (open loop); `false` when the line was full and it was dropped.
    pub(crate) fn arrive(&mut self, due_ns: u64) -> bool {
        if let Some(client) = self.idle.pop_front() {
            let client = &mut self.clients[client];
            client.idle = false;
            client.assigned_ns = Some(due_ns);
            if let Some(waker) = &client.waker {
                waker.wake_by_ref();
            }
            return true;
        }
        let room = (self.line.len() as u64) < self.line_max;
        if room {
            self.line.push_back(due_ns);
        }
        room
    }

    /// A client of an open loop asks for work; `timeout_ns` after its due time a request is dead.
    pub(crate) fn next(&mut self, client: usize, now_ns: u64, timeout_ns: u64) -> Next {
        if let Some(due_ns) = self.clients[client].assigned_ns.take() {
            return Next::Due { due_ns, waited: false };
        }
        if let Some(due_ns) = self.line.pop_front() {
            return match now_ns.saturating_sub(due_ns) < timeout_ns {
                true => Next::Due { due_ns, waited: true },
                false => Next::Expired { due_ns },
            };
        }
        if self.closed {
            return Next::End;
        }
        if !self.clients[client].idle {
            self.clients[client].idle = true;
            self.idle.push_back(client);
        }
        Next::Wait
    }

    /// No request becomes due from now on; idle clients are woken to hear it.
    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            for client in self.idle.drain(..) {
                self.clients[client].idle = false;
                if let Some(waker) = &self.clients[client].waker {
                    waker.wake_by_ref();
                }
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Requests in line.
    pub(crate) fn waiting(&self) -> u64 {
        self.line.len() as u64
    }

    /// Empties the line, when nobody is left to serve it; the due times of what was in it.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = u64> {
        self.close();
        std::mem::take(&mut self.line).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_client_gets_the_next_request() {
        let mut desk = Desk::new(3, 10, None);
        assert_eq!(desk.next(2, 0, 100), Next::Wait);
        assert_eq!(desk.next(0, 0, 100), Next::Wait);
        assert_eq!(desk.next(2, 0, 100), Next::Wait, "asking twice does not list it twice");
        assert!(desk.arrive(5) && desk.arrive(6));
        assert_eq!(desk.next(0, 7, 100), Next::Due { due_ns: 6, waited: false });
        assert_eq!(desk.next(2, 7, 100), Next::Due { due_ns: 5, waited: false });
    }

    #[test]
    fn the_line_is_bounded_first_in_first_out_and_drops_the_dead() {
        let mut desk = Desk::new(1, 2, None);
        assert!(desk.arrive(1) && desk.arrive(50));
        assert!(!desk.arrive(60));
        assert_eq!(desk.waiting(), 2);
        assert_eq!(desk.next(0, 101, 100), Next::Expired { due_ns: 1 });
        assert_eq!(desk.next(0, 101, 100), Next::Due { due_ns: 50, waited: true });
        desk.close();
        assert_eq!(desk.next(0, 101, 100), Next::End);
    }

    #[test]
    fn the_line_is_served_after_the_close() {
        let mut desk = Desk::new(1, 2, None);
        assert!(desk.arrive(1));
        desk.close();
        assert_eq!(desk.next(0, 2, 100), Next::Due { due_ns: 1, waited: true });
        assert_eq!(desk.next(0, 2, 100), Next::End);
    }

    #[test]
    fn two_cores_take_exactly_the_number_asked_for() {
        let quota = Arc::new(Quota::new(1001, 2));
        let mut desks = [0, 1].map(|_| Desk::new(1, 0, Some(Arc::clone(&quota))));
        let mut taken = 0;
        while !desks.iter().all(Desk::is_closed) {
            taken += desks.iter_mut().map(|desk| u64::from(desk.take_one())).sum::<u64>();
        }
        assert_eq!(taken, 1001);
    }
}
