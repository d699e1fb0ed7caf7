//! Waiting for a slot at a pool, and feedback from requests that had one: this core's queue with
//! its tickets, the latency of responses, and adaptive limits. The algorithms are in
//! [`super::queue`] and [`super::adaptive`].

use std::cell::Cell;
use std::rc::Rc;
use std::task::Waker;

use rt::clock::MonotonicTime;

use super::adaptive::{AdaptiveLimit, adaptive_plan};
use super::queue::{ExpiryReason, Offer, QueuePosition, retry_after_s};
use super::{Pool, ServerRequirements};
use crate::plan::{IdVec, PoolPlan, Priority, RetryBudgetPlan, ServerId, ServerPlan};

#[derive(Debug)]
pub(crate) struct EnqueueRequest<'a> {
    pub(crate) requirements: ServerRequirements,
    pub(crate) waker: &'a Waker,
    pub(crate) priority: Priority,
    pub(crate) now: MonotonicTime,
    /// Time when its client leaves; [`super::NO_DEADLINE`]: not given.
    pub(crate) deadline: MonotonicTime,
}

/// Reason for not queueing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueError {
    Full,
    /// The client would leave before the response.
    Deadline,
}

/// A request's entry in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Cell<TicketState>,
    requirements: ServerRequirements,
    waker: Waker,
    position: Cell<Option<QueuePosition>>,
    deadline: MonotonicTime,
}

/// State of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketState {
    Waiting,
    /// A slot at this server was taken for the request.
    Granted(ServerId),
    /// The request has waited too long.
    Expired,
    /// The client would leave before the response.
    DeadlineExceeded,
    /// Another request has taken its position.
    Shed,
}

/// Returns the adaptive limits, for the core that computes them. Unchanged ones keep their state;
/// others are new.
pub(super) fn adaptive_limits(own: &PoolPlan, previous: Option<&Pool>) -> IdVec<ServerId, AdaptiveLimit> {
    let limit = |server: &ServerPlan| {
        let plan = adaptive_plan(own, server)?;
        let unchanged = previous.and_then(|before| {
            let id = before.plan().servers.position(|old| old.name == server.name)?;
            before.adaptive_limits.borrow().get(id).filter(|old| old.plan() == plan).cloned()
        });
        Some(unchanged.unwrap_or_else(|| AdaptiveLimit::new(plan)))
    };
    own.servers.iter().filter_map(limit).collect()
}

impl Pool {
    /// Queues a request for a slot.
    ///
    /// # Errors
    /// Fails if the queue is full, or if waiting would be useless.
    pub(crate) fn enqueue(
        &self,
        request: &EnqueueRequest<'_>,
        rng: &mut fastrand::Rng,
    ) -> Result<Rc<Ticket>, EnqueueError> {
        let now = request.now;
        self.now.set(now);
        if request.deadline < now.saturating_add(self.service_ns.get()) {
            return Err(EnqueueError::Deadline);
        }
        if !self.shared.join_queue(self.core, self.plan().queue.limit) {
            // The newcomer takes the position of the evicted request, so the count stays.
            let evicted = self.queue.borrow_mut().evict_for(request.priority, now);
            evicted.ok_or(EnqueueError::Full)?.complete(TicketState::Shed);
        }
        let ticket = Rc::new(Ticket {
            state: Cell::new(TicketState::Waiting),
            requirements: request.requirements,
            waker: request.waker.clone(),
            position: Cell::new(None),
            deadline: request.deadline,
        });
        let position =
            self.queue.borrow_mut().push(request.priority, now, request.deadline, Rc::clone(&ticket));
        ticket.position.set(Some(position));
        // Another core may have freed a slot before it could see this request.
        self.serve_queue(rng);
        Ok(ticket)
    }

    /// Grants the free slots. A request that waits for one server only lets requests behind it pass
    /// if they do not.
    pub(crate) fn serve_queue(&self, rng: &mut fastrand::Rng) {
        let mut is_full = false;
        let (now, service_ns) = (self.now.get(), self.service_ns.get());
        loop {
            let mut offer = |ticket: &Rc<Ticket>| {
                let is_pinned = self.effective_pin(ticket.requirements).is_some();
                if is_full && !is_pinned {
                    return Offer::Skip;
                }
                match self.try_acquire(ticket.requirements, rng) {
                    Some(server) => Offer::Slot(server),
                    None if is_pinned => Offer::Skip,
                    None => {
                        is_full = true;
                        if self.tokens().is_none() { Offer::Stop } else { Offer::Skip }
                    }
                }
            };
            let next = self.queue.borrow_mut().offer_slots(now, service_ns, &mut offer);
            let Some((ticket, server)) = next else {
                return;
            };
            self.shared.leave_queue(self.core);
            ticket.complete(TicketState::Granted(server));
        }
    }

    /// Expires requests that have waited too long. Returns whether any still wait.
    pub(crate) fn expire_queue(&self, now: MonotonicTime) -> bool {
        self.now.set(now);
        let mut queue = self.queue.borrow_mut();
        if queue.is_empty() {
            return false;
        }
        queue.expire(now, self.service_ns.get(), |ticket, reason| {
            self.shared.leave_queue(self.core);
            ticket.complete(match reason {
                ExpiryReason::Timeout => TicketState::Expired,
                ExpiryReason::Deadline => TicketState::DeadlineExceeded,
            });
        });
        !queue.is_empty()
    }

    /// Removes a request from the queue, or releases the slot that it was granted.
    pub(crate) fn cancel(&self, ticket: &Rc<Ticket>, rng: &mut fastrand::Rng) {
        match ticket.state() {
            TicketState::Granted(server) => self.release(server, rng),
            TicketState::Expired | TicketState::DeadlineExceeded | TicketState::Shed => {}
            TicketState::Waiting => {
                let position = ticket.position.take();
                let removed =
                    position.and_then(|position| self.queue.borrow_mut().remove(position, self.now.get()));
                if removed.is_some() {
                    self.shared.leave_queue(self.core);
                }
            }
        }
    }

    /// Returns whether a request that was granted a slot would miss its deadline anyway.
    pub(crate) fn misses_deadline(&self, ticket: &Ticket, now: MonotonicTime) -> bool {
        ticket.deadline < now.saturating_add(self.service_ns.get())
    }

    /// Returns the time in seconds after which a rejected request may find a slot.
    pub(crate) fn retry_after_s(&self) -> u64 {
        let slots = self.shared.slots_max().unwrap_or(1);
        let standing_ns = self.queue.borrow().standing_ns(self.now.get());
        retry_after_s(self.shared.queued_count(), self.service_ns.get(), slots, standing_ns)
    }

    /// Records the time from a request's dispatch to the start of its response.
    #[inline]
    pub(crate) fn record_service_time(&self, server: ServerId, service_ns: u64) {
        let previous = self.service_ns.get();
        let next = if previous == 0 { service_ns } else { previous - previous / 8 + service_ns / 8 };
        self.service_ns.set(next);
        if self.plan().overload_limits.adaptive.is_some() {
            self.shared.samples(server).add(service_ns);
        }
    }

    /// Records a server's failure to respond.
    pub(crate) fn record_failure_sample(&self, server: ServerId) {
        if self.plan().overload_limits.adaptive.is_some() {
            self.shared.samples(server).add_failure();
        }
    }

    /// Updates the adaptive limits from the samples since the last update. Called on one core only.
    pub(super) fn update_adaptive_limits(&self) {
        for (server, limit) in self.adaptive_limits.borrow_mut().enumerate_mut() {
            let max = limit.update(self.shared.take_window(server));
            let previous = self.shared.requests_max(server);
            self.shared.set_adaptive_max(server, max);
            if previous < Some(max) && self.shared.has_queued() {
                self.shared.wake_other(self.core, false);
            }
        }
    }

    /// Counts a request for the retry budget.
    #[inline]
    pub(crate) fn count_request(&self, now: MonotonicTime) {
        if self.plan().retries_max > 0 {
            self.shared.retry_budget().note_request(self.core, now);
        }
    }

    /// Counts a request that may be sent to a second server, for the retry budget of a pool without retries.
    pub(crate) fn count_hedgeable(&self, now: MonotonicTime) {
        if self.plan().retries_max == 0 {
            self.shared.retry_budget().note_request(self.core, now);
        }
    }

    /// Takes a retry from the budget. Returns whether there was one.
    pub(crate) fn take_retry(&self, now: MonotonicTime) -> bool {
        let RetryBudgetPlan { fraction, .. } = self.plan().overload_limits.retry_budget;
        fraction >= 1.0 || self.shared.retry_budget().try_take(now)
    }

    /// Returns whether a request to this server takes a slot that others may wait for.
    pub(crate) fn has_limit(&self, server: ServerId) -> bool {
        self.shared.has_limit(server)
    }

    /// Returns the maximum number of requests of a server; `None`: unlimited.
    pub(crate) fn requests_max(&self, server: ServerId) -> Option<usize> {
        self.shared.requests_max(server)
    }

    /// Returns whether the pool or any of its servers has a limit.
    pub(crate) fn has_limits(&self) -> bool {
        self.plan().servers.ids().any(|server| self.shared.has_limit(server))
    }

    /// Returns the number of requests that count toward a server's limit, on all cores.
    pub(crate) fn slots_in_use(&self, server: ServerId) -> usize {
        self.shared.slots_in_use(server)
    }

    /// Returns the number of requests that wait on this core.
    pub(crate) fn queued(&self) -> usize {
        self.queue.borrow().len()
    }
}

impl Ticket {
    pub(crate) fn state(&self) -> TicketState {
        self.state.get()
    }

    pub(super) fn requirements(&self) -> ServerRequirements {
        self.requirements
    }

    fn complete(&self, state: TicketState) {
        self.state.set(state);
        self.waker.wake_by_ref();
    }
}
