//! Timeouts of one core: many, rarely reached, checked by a sweep every few milliseconds instead of
//! one timer each. Setting one is a store to memory.
//!
//! An expired deadline is marked and its task is woken; the task decides what to do.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use crate::slab::{Slab, SlabKey};

/// Deadlines of one core. Cheap to clone; not `Send`.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    table: Rc<RefCell<DeadlineTable>>,
}

#[derive(Debug)]
struct DeadlineTable {
    entries: Slab<DeadlineEntry>,
}

impl Default for DeadlineTable {
    fn default() -> Self {
        Self { entries: Slab::new() }
    }
}

impl DeadlineTable {
    #[inline]
    fn set(&mut self, key: SlabKey, deadline_ns: u64) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.deadline_ns = deadline_ns;
            entry.expired = false;
        }
    }
}

#[derive(Debug)]
struct DeadlineEntry {
    /// Deadline; `u64::MAX` if none is set.
    deadline_ns: u64,
    /// Registration time of the task, in the caller's unit. It fits into padding.
    registered_at: u32,
    expired: bool,
    /// True if [`Deadlines::notify_all`] was called and this task has not checked yet.
    notified: bool,
    waker: Waker,
}

/// Registration of one task without a reference to its deadlines: 8 bytes, also if optional. For
/// many small tasks; others have a [`Deadline`].
#[derive(Debug)]
pub struct DeadlineRegistration(SlabKey);

impl DeadlineRegistration {
    /// Returns its number, which is unique among all registrations of the same deadlines.
    pub fn id(&self) -> u64 {
        self.0.as_u64()
    }
}

/// Deadline of one task; removed when dropped.
#[derive(Debug)]
pub struct Deadline {
    table: Rc<RefCell<DeadlineTable>>,
    key: SlabKey,
}

impl Deadlines {
    /// Registers the task of `waker`, with no deadline set.
    pub fn register(&self, waker: &Waker) -> Deadline {
        let DeadlineRegistration(key) = self.register_detached(waker);
        Deadline { table: Rc::clone(&self.table), key }
    }

    /// Registers like [`Deadlines::register`], for callers that keep only the registration. The caller
    /// must return it with [`Deadlines::deregister`].
    pub fn register_detached(&self, waker: &Waker) -> DeadlineRegistration {
        self.register_detached_at(waker, 0)
    }

    /// Registers like [`Deadlines::register_detached`], with a time that [`Deadlines::registered_at`] returns.
    pub fn register_detached_at(&self, waker: &Waker, registered_at: u32) -> DeadlineRegistration {
        let waker = waker.clone();
        let entry =
            DeadlineEntry { deadline_ns: u64::MAX, registered_at, expired: false, notified: false, waker };
        DeadlineRegistration(self.table.borrow_mut().entries.insert(entry))
    }

    pub fn registered_at(&self, registration: &DeadlineRegistration) -> u32 {
        self.table.borrow().entries.get(registration.0).map_or(0, |entry| entry.registered_at)
    }

    /// Wakes every registered task and marks it as notified; returns their number. The meaning of
    /// the notification is up to the caller and the tasks.
    pub fn notify_all(&self) -> usize {
        let mut table = self.table.borrow_mut();
        for entry in table.entries.values_mut() {
            entry.notified = true;
            entry.waker.wake_by_ref();
        }
        table.entries.len()
    }

    /// Returns true if the task was notified and has not checked since; clears the mark.
    pub fn take_notified(&self, registration: &DeadlineRegistration) -> bool {
        let mut table = self.table.borrow_mut();
        table.entries.get_mut(registration.0).is_some_and(|entry| std::mem::take(&mut entry.notified))
    }

    /// Does the same as [`Deadline::set`].
    #[inline]
    pub fn set(&self, registration: &DeadlineRegistration, deadline_ns: u64) {
        self.table.borrow_mut().set(registration.0, deadline_ns);
    }

    /// Does the same as `Deadline::passed`.
    #[inline]
    pub fn is_expired(&self, registration: &DeadlineRegistration) -> bool {
        self.table.borrow().entries.get(registration.0).is_some_and(|entry| entry.expired)
    }

    pub fn deregister(&self, registration: DeadlineRegistration) {
        self.table.borrow_mut().entries.remove(registration.0);
    }

    /// Marks the deadlines that have passed at `now_ns` and wakes their tasks; returns their
    /// number.
    pub fn sweep(&self, now_ns: u64) -> usize {
        let mut expired_count = 0;
        for entry in self.table.borrow_mut().entries.values_mut() {
            if entry.deadline_ns <= now_ns && !entry.expired {
                entry.expired = true;
                entry.waker.wake_by_ref();
                expired_count += 1;
            }
        }
        expired_count
    }

    /// Wakes every registered task, for instance to stop it.
    pub fn wake_all(&self) {
        for entry in self.table.borrow_mut().entries.values_mut() {
            entry.waker.wake_by_ref();
        }
    }

    pub fn registered_count(&self) -> usize {
        self.table.borrow().entries.len()
    }
}

impl Deadline {
    /// Sets the time at which the task is woken, and clears the mark of an earlier deadline.
    #[inline]
    pub fn set(&self, deadline_ns: u64) {
        self.table.borrow_mut().set(self.key, deadline_ns);
    }

    #[inline]
    pub fn clear(&self) {
        self.set(u64::MAX);
    }

    /// Returns true if a sweep found that the deadline had passed.
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.table.borrow().entries.get(self.key).is_some_and(|entry| entry.expired)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.table.borrow_mut().entries.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_expired_deadlines_are_marked_and_once() {
        let deadlines = Deadlines::default();
        let (early, late) = (deadlines.register(Waker::noop()), deadlines.register(Waker::noop()));
        early.set(10);
        late.set(20);
        assert_eq!(deadlines.sweep(9), 0);
        assert_eq!(deadlines.sweep(10), 1);
        assert_eq!(deadlines.sweep(11), 0);
        assert!(early.is_expired() && !late.is_expired());
        early.set(30);
        assert!(!early.is_expired());
        late.clear();
        assert_eq!(deadlines.sweep(100), 1);
        drop((early, late));
        assert_eq!(deadlines.registered_count(), 0);
    }

    #[test]
    fn each_task_is_notified_once() {
        let deadlines = Deadlines::default();
        let first = deadlines.register_detached_at(Waker::noop(), 7);
        assert!(!deadlines.take_notified(&first));
        assert_eq!((deadlines.notify_all(), deadlines.registered_at(&first)), (1, 7));
        let second = deadlines.register_detached(Waker::noop());
        assert!(deadlines.take_notified(&first) && !deadlines.take_notified(&first));
        assert!(!deadlines.take_notified(&second));
        let numbers = [first.id(), second.id()];
        deadlines.deregister(first);
        let third = deadlines.register_detached(Waker::noop());
        assert!(!numbers.contains(&third.id()), "{numbers:?}");
    }

    #[test]
    fn the_notified_flag_takes_no_more_memory() {
        assert!(size_of::<DeadlineEntry>() <= 32, "{}", size_of::<DeadlineEntry>());
    }
}
