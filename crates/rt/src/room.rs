//! How many connections a core may serve, and those that wait for one of them to end. It counts and
//! wakes; who accepts and serves is the engine's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

use crate::board::Handover;

/// How many connections a core may serve, and those that wait for one of them to end.
#[derive(Debug)]
pub struct Room {
    max: usize,
    served: Cell<usize>,
    /// Accepted by the kernel before accepting could be paused; nobody reads from them yet.
    parked: RefCell<VecDeque<Handover>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Room {
    /// Room for `max` connections.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, served: Cell::new(0), parked: RefCell::default(), waiting: RefCell::default() }
    }

    /// Connections that are served now.
    #[must_use]
    pub fn served(&self) -> usize {
        self.served.get()
    }

    /// Whether no more may be served.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.served.get() >= self.max
    }

    /// Takes the place of one connection.
    pub fn enter(&self) {
        self.served.set(self.served.get() + 1);
    }

    /// Gives it back, and tells those who wait for one.
    pub fn leave(&self) {
        self.served.set(self.served.get() - 1);
        self.wake();
    }

    /// Tells those who wait to look again: what they wait for is not only room here.
    pub fn wake(&self) {
        for waker in self.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Wakes `waker` at the next [`Room::leave`] or [`Room::wake`].
    pub fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Keeps a connection until there is room for it.
    pub fn park(&self, connection: Handover) {
        self.parked.borrow_mut().push_back(connection);
    }

    /// The connection that has waited longest, if there is room for it.
    #[must_use]
    pub fn admit(&self) -> Option<Handover> {
        self.admit_where(|_| true)
    }

    /// As [`Room::admit`], of those that may be served now for other reasons as well.
    #[must_use]
    pub fn admit_where(&self, may: impl FnMut(&Handover) -> bool) -> Option<Handover> {
        if self.is_full() {
            return None;
        }
        let mut parked = self.parked.borrow_mut();
        let at = parked.iter().position(may)?;
        parked.remove(at)
    }

    /// Forgets those that wait, and says how many they were.
    #[must_use]
    pub fn clear_parked(&self) -> usize {
        std::mem::take(&mut *self.parked.borrow_mut()).len()
    }
}
