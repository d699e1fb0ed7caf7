//! Time-outs of one core: many, nearly never reached, checked by a sweep every few milliseconds
//! instead of a timer each. Setting one is a store to memory.
//!
//! A deadline that passes is marked and its task is woken; what to do then is the task's business.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use crate::slots::{Key, Slots};

/// The deadlines of one core. Cheap to clone; not `Send`.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug)]
struct Inner {
    entries: Slots<Entry>,
}

impl Default for Inner {
    fn default() -> Self {
        Self { entries: Slots::new() }
    }
}

impl Inner {
    #[inline]
    fn set(&mut self, key: Key, deadline_ns: u64) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.deadline_ns = deadline_ns;
            entry.passed = false;
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// `u64::MAX`: none is set.
    deadline_ns: u64,
    /// When its task registered, in whatever unit that counts. Fits where there was nothing.
    since: u32,
    passed: bool,
    /// Somebody asked all tasks something, and this one has not looked yet.
    asked: bool,
    waker: Waker,
}

/// One task's place among the deadlines, without the way there: 8 bytes, also when optional. For
/// tasks that are many and small; others have a [`Deadline`].
#[derive(Debug)]
pub struct Place(Key);

impl Place {
    /// Its number: no other place of the same deadlines has it, before or after.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number()
    }
}

/// One task's deadline; forgotten when dropped.
#[derive(Debug)]
pub struct Deadline {
    all: Rc<RefCell<Inner>>,
    key: Key,
}

impl Deadlines {
    /// Registers the task behind `waker`, with no deadline set.
    #[must_use]
    pub fn register(&self, waker: &Waker) -> Deadline {
        let Place(key) = self.take_place(waker);
        Deadline { all: Rc::clone(&self.inner), key }
    }

    /// As [`Deadlines::register`], for who keeps only the place; it is to be given back with
    /// [`Deadlines::leave`].
    #[must_use]
    pub fn take_place(&self, waker: &Waker) -> Place {
        self.take_place_since(waker, 0)
    }

    /// As [`Deadlines::take_place`], with a time that [`Deadlines::since`] tells whoever asks.
    #[must_use]
    pub fn take_place_since(&self, waker: &Waker, since: u32) -> Place {
        let waker = waker.clone();
        let entry = Entry { deadline_ns: u64::MAX, since, passed: false, asked: false, waker };
        Place(self.inner.borrow_mut().entries.insert(entry))
    }

    /// What a place was taken with.
    #[must_use]
    pub fn since(&self, place: &Place) -> u32 {
        self.inner.borrow().entries.get(place.0).map_or(0, |entry| entry.since)
    }

    /// Wakes every registered task and marks it as asked; how many they are. What is asked is
    /// between the tasks and whoever asks.
    pub fn ask_all(&self) -> usize {
        let mut inner = self.inner.borrow_mut();
        for entry in inner.entries.values_mut() {
            entry.asked = true;
            entry.waker.wake_by_ref();
        }
        inner.entries.len()
    }

    /// Whether a task was asked and has not looked since; it is not asked any more then.
    #[must_use]
    pub fn take_asked(&self, place: &Place) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.entries.get_mut(place.0).is_some_and(|entry| std::mem::take(&mut entry.asked))
    }

    /// As [`Deadline::set`].
    #[inline]
    pub fn set(&self, place: &Place, deadline_ns: u64) {
        self.inner.borrow_mut().set(place.0, deadline_ns);
    }

    /// As [`Deadline::passed`].
    #[inline]
    #[must_use]
    pub fn passed(&self, place: &Place) -> bool {
        self.inner.borrow().entries.get(place.0).is_some_and(|entry| entry.passed)
    }

    /// Forgets a deadline.
    pub fn leave(&self, place: Place) {
        self.inner.borrow_mut().entries.remove(place.0);
    }

    /// Marks what has passed at `now_ns` and wakes its task; returns how many.
    pub fn sweep(&self, now_ns: u64) -> usize {
        let mut passed = 0;
        for entry in self.inner.borrow_mut().entries.values_mut() {
            if entry.deadline_ns <= now_ns && !entry.passed {
                entry.passed = true;
                entry.waker.wake_by_ref();
                passed += 1;
            }
        }
        passed
    }

    /// Wakes every registered task, for instance to tell it to stop.
    pub fn wake_all(&self) {
        for entry in self.inner.borrow_mut().entries.values_mut() {
            entry.waker.wake_by_ref();
        }
    }

    /// How many tasks are registered.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.inner.borrow().entries.len()
    }
}

impl Deadline {
    /// Sets when the task is to be woken, and forgets that an earlier deadline passed.
    #[inline]
    pub fn set(&self, deadline_ns: u64) {
        self.all.borrow_mut().set(self.key, deadline_ns);
    }

    /// Unsets it.
    #[inline]
    pub fn clear(&self) {
        self.set(u64::MAX);
    }

    /// Whether a sweep found that the deadline had passed.
    #[inline]
    #[must_use]
    pub fn passed(&self) -> bool {
        self.all.borrow().entries.get(self.key).is_some_and(|entry| entry.passed)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.all.borrow_mut().entries.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_passed_is_marked_and_once() {
        let all = Deadlines::default();
        let (early, late) = (all.register(Waker::noop()), all.register(Waker::noop()));
        early.set(10);
        late.set(20);
        assert_eq!(all.sweep(9), 0);
        assert_eq!(all.sweep(10), 1);
        assert_eq!(all.sweep(11), 0);
        assert!(early.passed() && !late.passed());
        early.set(30);
        assert!(!early.passed());
        late.clear();
        assert_eq!(all.sweep(100), 1);
        drop((early, late));
        assert_eq!(all.registered(), 0);
    }

    #[test]
    fn each_task_is_asked_once() {
        let all = Deadlines::default();
        let first = all.take_place_since(Waker::noop(), 7);
        assert!(!all.take_asked(&first));
        assert_eq!((all.ask_all(), all.since(&first)), (1, 7));
        let second = all.take_place(Waker::noop());
        assert!(all.take_asked(&first) && !all.take_asked(&first));
        assert!(!all.take_asked(&second));
        let numbers = [first.number(), second.number()];
        all.leave(first);
        let third = all.take_place(Waker::noop());
        assert!(!numbers.contains(&third.number()), "{numbers:?}");
    }

    #[test]
    fn a_place_takes_no_more_memory_for_being_asked() {
        assert!(size_of::<Entry>() <= 32, "{}", size_of::<Entry>());
    }
}
