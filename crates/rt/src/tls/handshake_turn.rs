//! Fairness between handshakes and everything else on a core: an RSA signature takes a millisecond,
//! and a burst of clients brings hundreds of them at once. Servers compute handshakes for at most
//! [`BUDGET_NS`] in one turn of the core's loop, but at least one; the others wait in order.
//!
//! ```text
//! first in the queue, budget left -----------------------> computes, wakes the next one
//!                     `- no budget -> yields the turn ---> budget is full again, computes
//! behind others -> waits until it is woken
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::clock::now_ns;
use crate::cores::yield_turn;

/// CPU time for handshakes in one turn of a core's loop, in nanoseconds. The one that exceeds it is
/// completed.
const BUDGET_NS: u64 = 500_000;

thread_local! {
    static QUEUE: RefCell<HandshakeQueue> = RefCell::default();
}

/// Handshakes of one core that wait.
#[derive(Debug, Default)]
struct HandshakeQueue {
    spent_ns: u64,
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
    /// True if the first one has yielded a turn since it is the first.
    has_first_yielded: bool,
}

#[derive(Debug, Default)]
pub(super) struct HandshakeTurn {
    ticket: Option<u64>,
}

/// Measures one computation, from its creation to its drop.
#[derive(Debug)]
pub(super) struct ComputationGuard {
    start_ns: u64,
}

impl HandshakeTurn {
    pub(super) fn poll_acquire(&mut self, cx: &mut Context<'_>) -> Poll<ComputationGuard> {
        QUEUE.with_borrow_mut(|queue| {
            if !queue.admits(self.ticket) {
                queue.enqueue(&mut self.ticket, cx);
                return Poll::Pending;
            }
            queue.leave(&mut self.ticket);
            Poll::Ready(ComputationGuard { start_ns: now_ns() })
        })
    }
}

impl Drop for HandshakeTurn {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            // The queue of a thread that ends is gone.
            let _ = QUEUE.try_with(|queue| {
                let mut queue = queue.borrow_mut();
                queue.leave(&mut self.ticket);
                queue.wake_first();
            });
        }
    }
}

impl Drop for ComputationGuard {
    fn drop(&mut self) {
        let spent_ns = now_ns().saturating_sub(self.start_ns);
        let _ = QUEUE.try_with(|queue| {
            let mut queue = queue.borrow_mut();
            queue.spent_ns += spent_ns;
            queue.wake_first();
        });
    }
}

impl HandshakeQueue {
    /// Returns true if a handshake may be computed now: it is the first one, and the budget is not
    /// spent, or a turn is over.
    fn admits(&mut self, ticket: Option<u64>) -> bool {
        let is_first = self.waiting.front().is_none_or(|(first, _)| ticket == Some(*first));
        if is_first && self.has_first_yielded {
            self.spent_ns = 0;
        }
        is_first && self.spent_ns < BUDGET_NS
    }

    fn enqueue(&mut self, ticket: &mut Option<u64>, cx: &mut Context<'_>) {
        match self.waiting.iter_mut().find(|(other, _)| Some(*other) == *ticket) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                self.next_ticket += 1;
                *ticket = Some(self.next_ticket);
                self.waiting.push_back((self.next_ticket, cx.waker().clone()));
            }
        }
        let is_first = self.waiting.front().is_some_and(|(first, _)| *ticket == Some(*first));
        if is_first && !self.has_first_yielded {
            self.has_first_yielded = true;
            yield_turn(cx);
        }
    }

    fn leave(&mut self, ticket: &mut Option<u64>) {
        let Some(own) = ticket.take() else { return };
        if self.waiting.front().is_some_and(|(first, _)| *first == own) {
            self.has_first_yielded = false;
        }
        self.waiting.retain(|(other, _)| *other != own);
    }

    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.front() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    /// Spends the time of an RSA signature.
    fn compute() {
        QUEUE.with_borrow_mut(|queue| queue.spent_ns += 2 * BUDGET_NS);
    }

    fn local<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }

    async fn handshake(order: Rc<RefCell<Vec<usize>>>, number: usize) {
        let mut turn = HandshakeTurn::default();
        let guard = poll_fn(|cx| turn.poll_acquire(cx)).await;
        compute();
        drop(guard);
        order.borrow_mut().push(number);
    }

    #[test]
    fn other_tasks_run_between_handshakes_which_keep_their_order() {
        local(async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let handshakes: Vec<_> = (0..50)
                .map(|number| tokio::task::spawn_local(handshake(Rc::clone(&order), number)))
                .collect();
            let turns = Rc::new(RefCell::new(0));
            let counter = Rc::clone(&turns);
            let other = tokio::task::spawn_local(async move {
                loop {
                    tokio::task::yield_now().await;
                    *counter.borrow_mut() += 1;
                }
            });
            for task in handshakes {
                task.await.unwrap();
            }
            other.abort();
            assert_eq!(*order.borrow(), (0..50).collect::<Vec<_>>());
            assert!(*turns.borrow() >= 40, "{}", turns.borrow());
            QUEUE.with_borrow(|queue| assert!(queue.waiting.is_empty()));
        });
    }

    #[test]
    fn a_handshake_that_is_given_up_keeps_no_other_waiting() {
        local(async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let all: Vec<_> =
                (0..6).map(|number| tokio::task::spawn_local(handshake(Rc::clone(&order), number))).collect();
            tokio::task::yield_now().await;
            // The first one has computed, and the second one waits for the next turn.
            for given_up in [1, 2, 4] {
                all[given_up].abort();
            }
            for task in all {
                let _ = task.await;
            }
            let order = order.borrow();
            assert!(order.contains(&0) && order.contains(&3) && order.contains(&5), "{order:?}");
        });
    }
}
