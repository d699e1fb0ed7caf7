//! The desk of one core: which client takes which due request.
//!
//! In a closed loop a client asks for its next request when it has finished the last. In an open
//! loop the pacer brings requests as they become due: to the client that has been idle for the
//! longest, else into a bounded line. Pure: no clock, no socket; wakers are only stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::usual_latency::UsualLatency;

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

/// What became of a request that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// An idle client takes it.
    Assigned,
    /// It waits for a connection.
    Queued,
    /// The line was full.
    Dropped,
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
    /// This request was due then and is older than its time-out.
    Expired { due_ns: u64 },
    /// This request was due then and has less time left than a response usually takes.
    TooLate { due_ns: u64 },
    /// Wait to be woken.
    Wait,
    /// There is no more work.
    End,
}

/// When a request that has waited in line is not sent any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Its time-out counts from the due time: beyond it, or so near to it that a response would come
    /// too late. Sending that one would only take a connection from a request that can be answered.
    FromDue { timeout_ns: u64 },
    /// Its time-out counts from the send, so it is always sent.
    FromSend,
}

impl Patience {
    /// What becomes of a request from the line at `now_ns`, when a response usually takes `needed_ns`.
    fn decide(self, due_ns: u64, now_ns: u64, needed_ns: u64) -> Next {
        let age_ns = now_ns.saturating_sub(due_ns);
        match self {
            Self::FromDue { timeout_ns } if age_ns >= timeout_ns => Next::Expired { due_ns },
            // A server that takes longer than half of the time-out is still asked, or nobody would
            // notice when it gets faster.
            Self::FromDue { timeout_ns } if age_ns + needed_ns.min(timeout_ns / 2) > timeout_ns => {
                Next::TooLate { due_ns }
            }
            _ => Next::Due { due_ns, waited: true },
        }
    }
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
    /// How long responses take, of an open loop.
    pub(crate) usual: UsualLatency,
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
            usual: UsualLatency::default(),
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

    /// A request became due (open loop); what became of it.
    pub(crate) fn arrive(&mut self, due_ns: u64) -> Arrival {
        if let Some(client) = self.idle.pop_front() {
            let client = &mut self.clients[client];
            client.idle = false;
            client.assigned_ns = Some(due_ns);
            if let Some(waker) = &client.waker {
                waker.wake_by_ref();
            }
            return Arrival::Assigned;
        }
        if self.line.len() as u64 >= self.line_max {
            return Arrival::Dropped;
        }
        self.line.push_back(due_ns);
        Arrival::Queued
    }

    /// A client of an open loop asks for work.
    pub(crate) fn next(&mut self, client: usize, now_ns: u64, patience: Patience) -> Next {
        if let Some(due_ns) = self.clients[client].assigned_ns.take() {
            return Next::Due { due_ns, waited: false };
        }
        if let Some(due_ns) = self.line.pop_front() {
            return patience.decide(due_ns, now_ns, self.usual.needed_ns());
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

    const PATIENCE: Patience = Patience::FromDue { timeout_ns: 100 };

    #[test]
    fn the_longest_idle_client_gets_the_next_request() {
        let mut desk = Desk::new(3, 10, None);
        assert_eq!(desk.next(2, 0, PATIENCE), Next::Wait);
        assert_eq!(desk.next(0, 0, PATIENCE), Next::Wait);
        assert_eq!(desk.next(2, 0, PATIENCE), Next::Wait, "asking twice does not list it twice");
        assert_eq!([5, 6].map(|due_ns| desk.arrive(due_ns)), [Arrival::Assigned; 2]);
        assert_eq!(desk.next(0, 7, PATIENCE), Next::Due { due_ns: 6, waited: false });
        assert_eq!(desk.next(2, 7, PATIENCE), Next::Due { due_ns: 5, waited: false });
    }

    #[test]
    fn the_line_is_bounded_first_in_first_out_and_drops_the_dead() {
        let mut desk = Desk::new(1, 2, None);
        let arrivals = [1, 50, 60].map(|due_ns| desk.arrive(due_ns));
        assert_eq!(arrivals, [Arrival::Queued, Arrival::Queued, Arrival::Dropped]);
        assert_eq!(desk.waiting(), 2);
        assert_eq!(desk.next(0, 101, PATIENCE), Next::Expired { due_ns: 1 });
        assert_eq!(desk.next(0, 101, PATIENCE), Next::Due { due_ns: 50, waited: true });
        desk.close();
        assert_eq!(desk.next(0, 101, PATIENCE), Next::End);
    }

    #[test]
    fn the_line_is_served_after_the_close() {
        let mut desk = Desk::new(1, 2, None);
        assert_eq!(desk.arrive(1), Arrival::Queued);
        desk.close();
        assert_eq!(desk.next(0, 2, PATIENCE), Next::Due { due_ns: 1, waited: true });
        assert_eq!(desk.next(0, 2, PATIENCE), Next::End);
    }

    #[test]
    fn what_cannot_be_answered_in_time_is_not_sent() {
        let mut desk = Desk::new(1, 10, None);
        assert_eq!([0, 20, 45].map(|due_ns| desk.arrive(due_ns)), [Arrival::Queued; 3]);
        (0..100).for_each(|_| desk.usual.answered(20));
        assert_eq!(desk.next(0, 80, PATIENCE), Next::TooLate { due_ns: 0 });
        assert_eq!(desk.next(0, 95, PATIENCE), Next::Due { due_ns: 20, waited: true });
        // However slow a server was, half of the time-out is enough to ask it again.
        (0..100).for_each(|_| desk.usual.answered(90));
        assert_eq!(desk.next(0, 95, PATIENCE), Next::Due { due_ns: 45, waited: true });
        desk.arrive(0);
        assert_eq!(desk.next(0, 1_000, Patience::FromSend), Next::Due { due_ns: 0, waited: true });
    }

    /// Twice the load that ten connections of 50 ms can carry, with a time-out of 1 s, for 20 s of virtual
    /// time; responses that came in time, and those given up. A connection whose request timed out is
    /// busy until its server has finished.
    fn answered_beyond_capacity(latency_ms: impl Fn(u64) -> u64) -> (u64, u64) {
        let patience = Patience::FromDue { timeout_ns: 1_000 };
        let mut desk = Desk::new(10, 10_000, None);
        let (mut free_at, mut answered, mut given_up) = ([0_u64; 10], 0, 0);
        let mut number = 0;
        for now_ms in 0..20_000_u64 {
            (0..u64::from(now_ms % 5 < 2)).for_each(|_| {
                desk.arrive(now_ms);
            });
            for (client, free_ms) in free_at.iter_mut().enumerate() {
                while *free_ms <= now_ms {
                    let due_ms = match desk.next(client, now_ms, patience) {
                        Next::Due { due_ns, .. } => due_ns,
                        Next::Wait | Next::End => break,
                        Next::Expired { .. } | Next::TooLate { .. } => continue,
                    };
                    number += 1;
                    let takes_ms = latency_ms(number);
                    *free_ms = now_ms + takes_ms;
                    if *free_ms <= due_ms + 1_000 {
                        answered += 1;
                        desk.usual.answered(takes_ms);
                    } else {
                        given_up += 1;
                        desk.usual.given_up(due_ms + 1_000 - now_ms);
                    }
                }
            }
        }
        (answered, given_up)
    }

    #[test]
    fn beyond_its_capacity_a_server_still_answers_nine_tenths_of_it() {
        let (answered, given_up) = answered_beyond_capacity(|_| 50);
        assert!(answered >= 3_900 && given_up == 0, "{answered} {given_up}");
        let mut random = fastrand::Rng::with_seed(1);
        let varied: Vec<u64> = (0..10_000).map(|_| random.u64(10..=90)).collect();
        let (answered, given_up) = answered_beyond_capacity(|number| varied[number as usize]);
        assert!(answered >= 3_600 && given_up < 40, "{answered} {given_up}");
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
