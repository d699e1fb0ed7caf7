//! Waiting for room at a pool, and what is learnt from those that had it: the queue of this core
//! with its tickets, how long answers take, and bounds that follow servers. The decisions are those
//! of [`super::queue`] and [`super::adaptive`].

use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;

use super::adaptive::Limit;
use super::queue::{Late, Offer, Place, retry_after_s};
use super::shared::adaptive_of;
use super::{Pool, Want};
use crate::plan::{PoolPlan, Priority, RetryBudgetPlan};

/// What a request asks for that has to wait.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) want: Want,
    pub(crate) waker: &'a Waker,
    pub(crate) priority: Priority,
    pub(crate) now_ns: u64,
    /// When its client leaves; [`super::NEVER`]: it does not say.
    pub(crate) deadline_ns: u64,
}

/// Why there is no place to wait at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All of them are taken.
    Full,
    /// Its client would leave before the answer.
    Deadline,
}

/// A request's place in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Cell<TicketState>,
    want: Want,
    waker: Waker,
    place: Cell<Option<Place>>,
    deadline_ns: u64,
}

/// What became of a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketState {
    /// Not yet its turn.
    Waiting,
    /// This server has room, which is taken for it.
    Granted(usize),
    /// It has waited for too long.
    Expired,
    /// Its client would leave before the answer.
    Missed,
    /// Another one has its place.
    Shed,
}

/// The bounds that follow servers, on the core that works them out: those that go on as they were,
/// and new ones.
pub(super) fn limits(own: &PoolPlan, before: Option<&Pool>) -> Vec<Limit> {
    let limit = |server: &crate::plan::ServerPlan| {
        let plan = adaptive_of(own, server)?;
        let kept = before.and_then(|before| {
            let at = before.plan().servers.iter().position(|old| old.name == server.name)?;
            before.limits.borrow().get(at).filter(|old| old.plan() == plan).cloned()
        });
        Some(kept.unwrap_or_else(|| Limit::new(plan)))
    };
    own.servers.iter().filter_map(limit).collect()
}

impl Pool {
    /// Waits for room.
    ///
    /// # Errors
    /// There is no place to wait at, or no use in it.
    pub(crate) fn enqueue(
        &self,
        ask: &Ask<'_>,
        rng: &mut fastrand::Rng,
    ) -> Result<Rc<Ticket>, NoPlace> {
        let now_ns = ask.now_ns;
        self.now_ns.set(now_ns);
        if ask.deadline_ns < now_ns.saturating_add(self.service_ns.get()) {
            return Err(NoPlace::Deadline);
        }
        if !self.shared.join_queue(self.core, self.plan().queue.limit) {
            // The place of the one that goes is the newcomer's, so that the count stays.
            let out = self.queue.borrow_mut().evict_for(ask.priority, now_ns);
            out.ok_or(NoPlace::Full)?.settle(TicketState::Shed);
        }
        let ticket = Rc::new(Ticket {
            state: Cell::new(TicketState::Waiting),
            want: ask.want,
            waker: ask.waker.clone(),
            place: Cell::new(None),
            deadline_ns: ask.deadline_ns,
        });
        let place =
            self.queue.borrow_mut().push(ask.priority, now_ns, ask.deadline_ns, Rc::clone(&ticket));
        ticket.place.set(Some(place));
        // Room may have come up on another core before it could see that we wait.
        self.serve_queue(rng);
        Ok(ticket)
    }

    /// Grants what room there is. Who waits for one server only lets those behind it by that do not.
    pub(crate) fn serve_queue(&self, rng: &mut fastrand::Rng) {
        let mut is_full = false;
        loop {
            let mut offer = |ticket: &Rc<Ticket>| {
                let is_pinned = self.pinned(ticket.want).is_some();
                if is_full && !is_pinned {
                    return Offer::NotThis;
                }
                match self.try_acquire(ticket.want, rng) {
                    Some(server) => Offer::Room(server),
                    None if is_pinned => Offer::NotThis,
                    None => {
                        is_full = true;
                        if self.tokens().is_none() { Offer::Nobody } else { Offer::NotThis }
                    }
                }
            };
            let next = self.queue.borrow_mut().take_with(self.now_ns.get(), &mut offer);
            let Some((ticket, server)) = next else {
                return;
            };
            self.shared.leave_queue(self.core);
            ticket.settle(TicketState::Granted(server));
        }
    }

    /// Tells those that have waited for too long; whether any still wait.
    pub(crate) fn expire_queue(&self, now_ns: u64) -> bool {
        self.now_ns.set(now_ns);
        let mut queue = self.queue.borrow_mut();
        if queue.is_empty() {
            return false;
        }
        queue.expire(now_ns, self.service_ns.get(), |ticket, late| {
            self.shared.leave_queue(self.core);
            ticket.settle(match late {
                Late::Waited => TicketState::Expired,
                Late::Deadline => TicketState::Missed,
            });
        });
        !queue.is_empty()
    }

    /// Leaves the queue before its turn, or gives back what it was granted.
    pub(crate) fn forget(&self, ticket: &Rc<Ticket>, rng: &mut fastrand::Rng) {
        match ticket.state() {
            TicketState::Granted(server) => self.release(server, rng),
            TicketState::Expired | TicketState::Missed | TicketState::Shed => {}
            TicketState::Waiting => {
                let place = ticket.place.take();
                let left = place.and_then(|place| self.queue.borrow_mut().remove(place));
                if left.is_some() {
                    self.shared.leave_queue(self.core);
                }
            }
        }
    }

    /// Whether one that was granted room would come too late all the same.
    pub(crate) fn is_too_late(&self, ticket: &Ticket, now_ns: u64) -> bool {
        ticket.deadline_ns < now_ns.saturating_add(self.service_ns.get())
    }

    /// In how many seconds one that was refused may find room.
    pub(crate) fn retry_after_s(&self) -> u64 {
        let places = self.shared.places().unwrap_or(1);
        let stood_ns = self.queue.borrow().stood_ns(self.now_ns.get());
        retry_after_s(self.shared.waiting(), self.service_ns.get(), places, stood_ns)
    }

    /// An answer has begun, so long after its request was dispatched.
    #[inline]
    pub(crate) fn note_service(&self, server: usize, service_ns: u64) {
        let before = self.service_ns.get();
        let next = if before == 0 { service_ns } else { before - before / 8 + service_ns / 8 };
        self.service_ns.set(next);
        if self.plan().bounds.adaptive.is_some() {
            self.shared.samples(server).add(service_ns);
        }
    }

    /// A server failed to answer.
    pub(crate) fn observe_failure(&self, server: usize) {
        if self.plan().bounds.adaptive.is_some() {
            self.shared.samples(server).add_failure();
        }
    }

    /// Lets bounds follow what servers did since the last time. On one core only.
    pub(super) fn adapt(&self) {
        for (server, limit) in self.limits.borrow_mut().iter_mut().enumerate() {
            let max = limit.update(self.shared.take_window(server));
            let before = self.shared.bound(server);
            self.shared.limit(server, max);
            if before < Some(max) && self.shared.is_waited_for() {
                self.shared.ring_other(self.core, false);
            }
        }
    }

    /// Counts a request that may be sent again later.
    #[inline]
    pub(crate) fn note_request(&self, now_ns: u64) {
        if self.plan().retries_max > 0 {
            self.shared.retries().note_request(self.core, now_ns);
        }
    }

    /// Whether a request may be sent once more, by the budget; takes one of it.
    pub(crate) fn may_retry(&self, now_ns: u64) -> bool {
        let RetryBudgetPlan { share, .. } = self.plan().bounds.retry_budget;
        share >= 1.0 || self.shared.retries().try_take(now_ns)
    }

    /// Whether a request there takes room that others may wait for.
    pub(crate) fn is_bounded(&self, server: usize) -> bool {
        self.shared.is_bounded(server)
    }

    /// How many requests a server may have; `None`: any number.
    pub(crate) fn bound(&self, server: usize) -> Option<usize> {
        self.shared.bound(server)
    }

    /// Whether the pool or any of its servers has a bound.
    pub(crate) fn has_bounds(&self) -> bool {
        (0..self.plan().servers.len()).any(|server| self.shared.is_bounded(server))
    }

    /// How many requests count toward a server's bound, on all cores.
    pub(crate) fn slots(&self, server: usize) -> usize {
        self.shared.slots(server)
    }

    /// How many requests wait on this core.
    pub(crate) fn queued(&self) -> usize {
        self.queue.borrow().len()
    }
}

impl Ticket {
    pub(crate) fn state(&self) -> TicketState {
        self.state.get()
    }

    pub(super) fn want(&self) -> Want {
        self.want
    }

    fn settle(&self, state: TicketState) {
        self.state.set(state);
        self.waker.wake_by_ref();
    }
}
