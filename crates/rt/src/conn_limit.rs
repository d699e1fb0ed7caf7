//! Connection limit of a core, and the connections that wait for a free slot. It counts and wakes;
//! the engine accepts and serves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use crate::conn_balancer::AcceptedConnection;

/// Connection limit of a core, and the connections that wait for a free slot.
#[derive(Debug)]
pub struct ConnectionLimit {
    max: usize,
    active: Cell<usize>,
    ended: Cell<u64>,
    /// Connections that the kernel accepted before accepting could be paused; nothing reads from
    /// them yet.
    deferred: RefCell<VecDeque<AcceptedConnection>>,
    wakers: RefCell<Vec<Waker>>,
}

impl ConnectionLimit {
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            active: Cell::new(0),
            ended: Cell::new(0),
            deferred: RefCell::default(),
            wakers: RefCell::default(),
        }
    }

    /// Returns the number of connections that are served now.
    pub fn active_count(&self) -> usize {
        self.active.get()
    }

    pub fn ended_count(&self) -> u64 {
        self.ended.get()
    }

    /// Returns true if no more connections may be served.
    pub fn is_full(&self) -> bool {
        self.active.get() >= self.max
    }

    pub fn acquire(&self) {
        self.active.set(self.active.get() + 1);
    }

    /// Frees a slot, and wakes the waiting tasks.
    pub fn release(&self) {
        self.active.set(self.active.get() - 1);
        self.ended.set(self.ended.get() + 1);
        self.wake_waiters();
    }

    /// Wakes the waiting tasks: they may wait for other conditions than a free slot here.
    pub fn wake_waiters(&self) {
        for waker in self.wakers.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Wakes `waker` at the next [`ConnectionLimit::release`] or [`ConnectionLimit::wake_waiters`].
    pub fn register_waker(&self, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// Keeps a connection until there is a free slot.
    pub fn defer(&self, connection: AcceptedConnection) {
        self.deferred.borrow_mut().push_back(connection);
    }

    /// Returns the connection that has waited longest, if there is a free slot.
    pub fn take_deferred(&self) -> Option<AcceptedConnection> {
        self.take_deferred_where(|_| true)
    }

    /// Does the same as [`ConnectionLimit::take_deferred`], among connections that satisfy
    /// `predicate`.
    pub fn take_deferred_where(
        &self,
        predicate: impl FnMut(&AcceptedConnection) -> bool,
    ) -> Option<AcceptedConnection> {
        if self.is_full() {
            return None;
        }
        let mut deferred = self.deferred.borrow_mut();
        let position = deferred.iter().position(predicate)?;
        deferred.remove(position)
    }

    /// Drops the waiting connections, and returns their number.
    pub fn clear_deferred(&self) -> usize {
        std::mem::take(&mut *self.deferred.borrow_mut()).len()
    }
}
