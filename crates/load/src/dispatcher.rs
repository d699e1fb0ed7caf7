//! Dispatcher of one core: assigns due requests to clients.
//!
//! In a closed loop a client asks for its next request when it has finished the last. In an open
//! loop the pacer brings requests as they become due. They go to the client that has been idle for
//! the longest, or else into a bounded queue. A client has one slot for a request, or with HTTP/2
//! one for each stream of its connection. Clients with several free slots take turns, so that
//! requests spread over the connections. Pure: no clock, no socket; wakers are only stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::latency_estimator::LatencyEstimator;
use crate::pace::slice_end_ns;

/// Number of requests that all cores draw from, in small lots so that they end together.
#[derive(Debug)]
pub(crate) struct RequestQuota {
    remaining: AtomicU64,
    batch: u64,
}

impl RequestQuota {
    pub(crate) fn new(requests: u64, cores: usize) -> Self {
        // A lot is small relative to a core's part, and large relative to the cost of the shared
        // counter.
        let batch = (requests / (cores as u64 * 100)).clamp(1, 64);
        Self { remaining: AtomicU64::new(requests), batch }
    }

    fn take_batch(&self) -> u64 {
        self.take(self.batch)
    }

    fn take(&self, count: u64) -> u64 {
        let taken = self.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left - left.min(count))
        });
        taken.map_or(0, |remaining| remaining.min(count))
    }
}

/// Outcome of a request that became due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Assigned,
    Queued,
    Dropped,
}

/// Work for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Send the request that was due at this time.
    Due {
        due_ns: u64,
        /// True if it waited for a connection; if not, a late send is the generator's fault.
        queued: bool,
    },
    /// Number of requests, the first of them due at this time, that are older than their timeout.
    Expired {
        due_ns: u64,
        count: u64,
    },
    /// Number of requests, the first of them due at this time, that have less time left than a response usually
    /// takes.
    TooLate {
        due_ns: u64,
        count: u64,
    },
    Wait,
    /// There is no more work.
    End,
}

/// Rule for dropping a queued request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueTimeout {
    /// The timeout counts from the due time. A request is dropped if it is past the timeout, or so
    /// near that its response would come too late. Sending it would only take a connection from a
    /// request that can still be answered.
    FromDue { timeout_ns: u64 },
    /// The timeout counts from the send, so the request is always sent.
    FromSend,
}

impl QueueTimeout {
    /// Decides about a queued request at `now_ns`, if a response usually takes `estimate_ns`.
    fn decide(self, due_ns: u64, now_ns: u64, estimate_ns: u64) -> NextAction {
        let age_ns = now_ns.saturating_sub(due_ns);
        match self {
            Self::FromDue { timeout_ns } if age_ns >= timeout_ns => NextAction::Expired { due_ns, count: 1 },
            // A server that takes longer than half of the timeout still gets requests. Otherwise an
            // improvement would go unnoticed.
            Self::FromDue { timeout_ns } if age_ns + estimate_ns.min(timeout_ns / 2) > timeout_ns => {
                NextAction::TooLate { due_ns, count: 1 }
            }
            _ => NextAction::Due { due_ns, queued: true },
        }
    }
}

#[derive(Debug, Default)]
struct ClientEntry {
    /// Due times of the requests that it has not taken yet.
    assigned: VecDeque<u64>,
    /// Number of further requests that it would take now.
    free_slots: usize,
    /// True if it is in the queue of idle clients.
    is_listed: bool,
    waker: Option<Waker>,
}

/// Distributes the work of one core.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    clients: Vec<ClientEntry>,
    idle: VecDeque<usize>,
    pending: VecDeque<u64>,
    max_pending: u64,
    /// Usual latency of responses in an open loop.
    pub(crate) latency_estimator: LatencyEstimator,
    quota: Option<Arc<RequestQuota>>,
    batch_left: u64,
    /// True if no request becomes due any more; queued requests are still served.
    closed: bool,
    /// Start of the load, from which slices of time count.
    pub(crate) start_ns: u64,
}

impl Dispatcher {
    pub(crate) fn new(clients: usize, max_pending: u64, quota: Option<Arc<RequestQuota>>) -> Self {
        Self {
            clients: (0..clients).map(|_| ClientEntry::default()).collect(),
            idle: VecDeque::with_capacity(clients),
            pending: VecDeque::new(),
            max_pending,
            latency_estimator: LatencyEstimator::default(),
            quota,
            batch_left: 0,
            closed: false,
            start_ns: 0,
        }
    }

    /// Stores the waker of a client, for when there is work.
    pub(crate) fn register(&mut self, client: usize, waker: &Waker) {
        self.clients[client].waker = Some(waker.clone());
    }

    /// Takes one request off the remaining number; `false` if there is none.
    #[inline]
    pub(crate) fn take_request(&mut self) -> bool {
        let Some(quota) = &self.quota else {
            return !self.closed;
        };
        if self.batch_left == 0 && !self.closed {
            self.batch_left = quota.take_batch();
        }
        if self.batch_left == 0 {
            self.close();
            return false;
        }
        self.batch_left -= 1;
        true
    }

    /// Takes up to `count` requests off the remaining number. Returns how many there were.
    pub(crate) fn take_requests(&mut self, count: u64) -> u64 {
        let Some(quota) = &self.quota else {
            return if self.closed { 0 } else { count };
        };
        let batch_taken = self.batch_left.min(count);
        self.batch_left -= batch_taken;
        let taken = if self.closed { batch_taken } else { batch_taken + quota.take(count - batch_taken) };
        if taken < count {
            self.close();
        }
        taken
    }

    /// Handles a request of an open loop that became due. Returns its outcome.
    pub(crate) fn dispatch(&mut self, due_ns: u64) -> Arrival {
        while let Some(index) = self.idle.pop_front() {
            let client = &mut self.clients[index];
            client.is_listed = false;
            if client.free_slots == 0 {
                continue;
            }
            client.free_slots -= 1;
            client.assigned.push_back(due_ns);
            if client.free_slots > 0 {
                client.is_listed = true;
                self.idle.push_back(index);
            }
            if let Some(waker) = &self.clients[index].waker {
                waker.wake_by_ref();
            }
            return Arrival::Assigned;
        }
        if self.pending.len() as u64 >= self.max_pending {
            return Arrival::Dropped;
        }
        self.pending.push_back(due_ns);
        Arrival::Queued
    }

    /// Returns the next work for a client of an open loop that has `free_slots`. If there is none,
    /// the client is idle with that many slots.
    pub(crate) fn next_action(
        &mut self,
        client: usize,
        free_slots: usize,
        now_ns: u64,
        queue_timeout: QueueTimeout,
    ) -> NextAction {
        let entry = &mut self.clients[client];
        if let Some(due_ns) = entry.assigned.pop_front() {
            return NextAction::Due { due_ns, queued: false };
        }
        if let Some(due_ns) = self.pending.pop_front() {
            return match queue_timeout.decide(due_ns, now_ns, self.latency_estimator.estimate_ns()) {
                NextAction::Expired { .. } | NextAction::TooLate { .. } => {
                    self.give_up_slice(due_ns, now_ns, queue_timeout)
                }
                action => action,
            };
        }
        if self.closed {
            return NextAction::End;
        }
        entry.free_slots = free_slots;
        if !entry.is_listed {
            entry.is_listed = true;
            self.idle.push_back(client);
        }
        NextAction::Wait
    }

    /// Removes all requests of the slice of `due_ns`, which is not sent any more, as far as they share its fate.
    #[cold]
    fn give_up_slice(&mut self, due_ns: u64, now_ns: u64, queue_timeout: QueueTimeout) -> NextAction {
        let estimate_ns = self.latency_estimator.estimate_ns();
        let fate = |due_ns| std::mem::discriminant(&queue_timeout.decide(due_ns, now_ns, estimate_ns));
        let slice = due_ns..=slice_end_ns(self.start_ns, due_ns);
        let mut given_up = 1;
        while self.pending.front().is_some_and(|next| slice.contains(next) && fate(*next) == fate(due_ns)) {
            self.pending.pop_front();
            given_up += 1;
        }
        match queue_timeout.decide(due_ns, now_ns, estimate_ns) {
            NextAction::TooLate { due_ns, .. } => NextAction::TooLate { due_ns, count: given_up },
            _ => NextAction::Expired { due_ns, count: given_up },
        }
    }

    /// Takes back all that was offered to a client that cannot send now: its requests wait in the
    /// queue again, before all others.
    pub(crate) fn withdraw(&mut self, client: usize) {
        let entry = &mut self.clients[client];
        entry.free_slots = 0;
        while let Some(due_ns) = entry.assigned.pop_back() {
            self.pending.push_front(due_ns);
        }
    }

    /// Stops new requests and wakes idle clients.
    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            for client in self.idle.drain(..) {
                self.clients[client].is_listed = false;
                self.clients[client].free_slots = 0;
                if let Some(waker) = &self.clients[client].waker {
                    waker.wake_by_ref();
                }
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn pending_count(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Empties the queue if no client is left to serve it. Returns the due times of its requests.
    pub(crate) fn close_and_drain(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.close();
        // A client that gives up leaves what it was assigned.
        (0..self.clients.len()).for_each(|client| self.withdraw(client));
        std::mem::take(&mut self.pending).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: QueueTimeout = QueueTimeout::FromDue { timeout_ns: 100 };

    #[test]
    fn the_longest_idle_client_gets_the_next_request() {
        let mut dispatcher = Dispatcher::new(3, 10, None);
        assert_eq!(dispatcher.next_action(2, 1, 0, TIMEOUT), NextAction::Wait);
        assert_eq!(dispatcher.next_action(0, 1, 0, TIMEOUT), NextAction::Wait);
        assert_eq!(
            dispatcher.next_action(2, 1, 0, TIMEOUT),
            NextAction::Wait,
            "asking twice does not list it twice"
        );
        assert_eq!([5, 6].map(|due_ns| dispatcher.dispatch(due_ns)), [Arrival::Assigned; 2]);
        assert_eq!(dispatcher.next_action(0, 1, 7, TIMEOUT), NextAction::Due { due_ns: 6, queued: false });
        assert_eq!(dispatcher.next_action(2, 1, 7, TIMEOUT), NextAction::Due { due_ns: 5, queued: false });
    }

    #[test]
    fn clients_with_several_slots_take_turns() {
        let mut dispatcher = Dispatcher::new(2, 10, None);
        for client in [0, 1] {
            assert_eq!(dispatcher.next_action(client, 2, 0, TIMEOUT), NextAction::Wait);
        }
        let arrivals = [1, 2, 3, 4, 5].map(|due_ns| dispatcher.dispatch(due_ns));
        assert_eq!(arrivals[..4], [Arrival::Assigned; 4]);
        assert_eq!(arrivals[4], Arrival::Queued);
        let mut next = |client| match dispatcher.next_action(client, 1, 0, TIMEOUT) {
            NextAction::Due { due_ns, queued } => (due_ns, queued),
            other => panic!("{other:?}"),
        };
        assert_eq!([next(0), next(0), next(1)], [(1, false), (3, false), (2, false)]);
        assert_eq!([next(1), next(1)], [(4, false), (5, true)]);
    }

    #[test]
    fn requests_of_a_client_that_cannot_send_go_back_to_the_queue() {
        let mut dispatcher = Dispatcher::new(2, 10, None);
        assert_eq!(dispatcher.next_action(0, 3, 0, TIMEOUT), NextAction::Wait);
        assert_eq!([1, 2, 3, 4].map(|due_ns| dispatcher.dispatch(due_ns))[3], Arrival::Queued);
        dispatcher.withdraw(0);
        assert_eq!(dispatcher.pending_count(), 4);
        let order = [(); 4].map(|()| dispatcher.next_action(1, 4, 0, TIMEOUT));
        assert_eq!(order, [1, 2, 3, 4].map(|due_ns| NextAction::Due { due_ns, queued: true }));
        assert_eq!(dispatcher.dispatch(5), Arrival::Queued, "a withdrawn client is not idle");
    }

    #[test]
    fn the_pending_queue_is_a_bounded_fifo_and_drops_expired_requests() {
        let mut dispatcher = Dispatcher::new(1, 2, None);
        let arrivals = [1, 50, 60].map(|due_ns| dispatcher.dispatch(due_ns));
        assert_eq!(arrivals, [Arrival::Queued, Arrival::Queued, Arrival::Dropped]);
        assert_eq!(dispatcher.pending_count(), 2);
        assert_eq!(dispatcher.next_action(0, 1, 101, TIMEOUT), NextAction::Expired { due_ns: 1, count: 1 });
        assert_eq!(dispatcher.next_action(0, 1, 101, TIMEOUT), NextAction::Due { due_ns: 50, queued: true });
        dispatcher.close();
        assert_eq!(dispatcher.next_action(0, 1, 101, TIMEOUT), NextAction::End);
    }

    #[test]
    fn requests_of_a_slice_expire_together_and_only_with_their_kind() {
        let mut dispatcher = Dispatcher::new(1, 10, None);
        let timeout = QueueTimeout::FromDue { timeout_ns: 5_000_000 };
        for due_ns in [10, 20, 999_999, 1_000_000, 1_000_001] {
            assert_eq!(dispatcher.dispatch(due_ns), Arrival::Queued);
        }
        let mut next = |now_ns| dispatcher.next_action(0, 1, now_ns, timeout);
        assert_eq!(next(5_000_015), NextAction::Expired { due_ns: 10, count: 1 });
        assert_eq!(next(6_000_000), NextAction::Expired { due_ns: 20, count: 2 });
        assert_eq!(next(6_000_000), NextAction::Expired { due_ns: 1_000_000, count: 1 });
        assert_eq!(next(6_000_000), NextAction::Due { due_ns: 1_000_001, queued: true });
    }

    #[test]
    fn a_request_that_its_client_did_not_take_is_drained() {
        let mut dispatcher = Dispatcher::new(2, 10, None);
        assert_eq!([0, 1].map(|client| dispatcher.next_action(client, 1, 0, TIMEOUT)), [NextAction::Wait; 2]);
        for due_ns in 1..=3 {
            dispatcher.dispatch(due_ns);
        }
        let mut drained: Vec<u64> = dispatcher.close_and_drain().collect();
        drained.sort_unstable();
        assert_eq!(drained, [1, 2, 3]);
    }

    #[test]
    fn many_requests_are_taken_off_the_quota_at_once() {
        let quota = Arc::new(RequestQuota::new(1_000, 2));
        let mut dispatchers = [(); 2].map(|()| Dispatcher::new(1, 10, Some(Arc::clone(&quota))));
        assert!(dispatchers[0].take_request());
        assert_eq!([600, 600].map(|count| dispatchers[0].take_requests(count)), [600, 399]);
        assert!(!dispatchers[0].take_request() && !dispatchers[1].take_request());
        assert_eq!(Dispatcher::new(1, 10, None).take_requests(1 << 40), 1 << 40);
    }

    #[test]
    fn the_pending_queue_is_served_after_the_close() {
        let mut dispatcher = Dispatcher::new(1, 2, None);
        assert_eq!(dispatcher.dispatch(1), Arrival::Queued);
        dispatcher.close();
        assert_eq!(dispatcher.next_action(0, 1, 2, TIMEOUT), NextAction::Due { due_ns: 1, queued: true });
        assert_eq!(dispatcher.next_action(0, 1, 2, TIMEOUT), NextAction::End);
    }

    #[test]
    fn what_cannot_be_answered_in_time_is_not_sent() {
        let mut dispatcher = Dispatcher::new(1, 10, None);
        assert_eq!([0, 20, 45].map(|due_ns| dispatcher.dispatch(due_ns)), [Arrival::Queued; 3]);
        (0..100).for_each(|_| dispatcher.latency_estimator.record_response(20));
        assert_eq!(dispatcher.next_action(0, 1, 80, TIMEOUT), NextAction::TooLate { due_ns: 0, count: 1 });
        assert_eq!(dispatcher.next_action(0, 1, 95, TIMEOUT), NextAction::Due { due_ns: 20, queued: true });
        // However slow a server was, half of the timeout is enough to send it a request again.
        (0..100).for_each(|_| dispatcher.latency_estimator.record_response(90));
        assert_eq!(dispatcher.next_action(0, 1, 95, TIMEOUT), NextAction::Due { due_ns: 45, queued: true });
        dispatcher.dispatch(0);
        assert_eq!(
            dispatcher.next_action(0, 1, 1_000, QueueTimeout::FromSend),
            NextAction::Due { due_ns: 0, queued: true }
        );
    }

    /// Simulates twice the load that ten connections of 50 ms can carry, with a timeout of 1 s, for
    /// 20 s of virtual time. Returns the responses in time, and the requests that were given up. A
    /// connection whose request timed out is busy until its server has finished.
    fn answered_beyond_capacity(latency_ms: impl Fn(u64) -> u64) -> (u64, u64) {
        let queue_timeout = QueueTimeout::FromDue { timeout_ns: 1_000 };
        let mut dispatcher = Dispatcher::new(10, 10_000, None);
        let (mut free_at, mut answered, mut given_up) = ([0_u64; 10], 0, 0);
        let mut number = 0;
        for now_ms in 0..20_000_u64 {
            (0..u64::from(now_ms % 5 < 2)).for_each(|_| {
                dispatcher.dispatch(now_ms);
            });
            for (client, free_ms) in free_at.iter_mut().enumerate() {
                while *free_ms <= now_ms {
                    let due_ms = match dispatcher.next_action(client, 1, now_ms, queue_timeout) {
                        NextAction::Due { due_ns, .. } => due_ns,
                        NextAction::Wait | NextAction::End => break,
                        NextAction::Expired { .. } | NextAction::TooLate { .. } => continue,
                    };
                    number += 1;
                    let takes_ms = latency_ms(number);
                    *free_ms = now_ms + takes_ms;
                    if *free_ms <= due_ms + 1_000 {
                        answered += 1;
                        dispatcher.latency_estimator.record_response(takes_ms);
                    } else {
                        given_up += 1;
                        dispatcher.latency_estimator.record_given_up(due_ms + 1_000 - now_ms);
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
    fn two_cores_take_exactly_the_requested_number() {
        let quota = Arc::new(RequestQuota::new(1001, 2));
        let mut dispatchers = [0, 1].map(|_| Dispatcher::new(1, 0, Some(Arc::clone(&quota))));
        let mut taken = 0;
        while !dispatchers.iter().all(Dispatcher::is_closed) {
            taken +=
                dispatchers.iter_mut().map(|dispatcher| u64::from(dispatcher.take_request())).sum::<u64>();
        }
        assert_eq!(taken, 1001);
    }
}
