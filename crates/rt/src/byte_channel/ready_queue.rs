//! Queue of the ends with news, for a task that serves many.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

/// Ends with news, for a task that serves many: each is listed once until it is taken, in the order
/// of the news. The task is woken when the first one is listed.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    waker: RefCell<Option<Waker>>,
    ready: RefCell<VecDeque<u32>>,
    is_listed: RefCell<Vec<bool>>,
}

impl ReadyQueue {
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    pub fn register_waker(&self, waker: &Waker) {
        let mut registered = self.waker.borrow_mut();
        match &mut *registered {
            Some(known) => known.clone_from(waker),
            None => *registered = Some(waker.clone()),
        }
    }

    /// Lists an end. The task can also do this itself, to come back to an end later.
    pub fn push(&self, number: u32) {
        let index = number as usize;
        let mut is_listed = self.is_listed.borrow_mut();
        if is_listed.len() <= index {
            is_listed.resize(index + 1, false);
        }
        if std::mem::replace(&mut is_listed[index], true) {
            return;
        }
        let mut ready = self.ready.borrow_mut();
        ready.push_back(number);
        if ready.len() == 1
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Takes the end that was listed first.
    pub fn pop(&self) -> Option<u32> {
        let number = self.ready.borrow_mut().pop_front()?;
        self.is_listed.borrow_mut()[number as usize] = false;
        Some(number)
    }

    pub fn len(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Returns true if no end is listed.
    pub fn is_empty(&self) -> bool {
        self.ready.borrow().is_empty()
    }

    /// Frees the memory that the numbers of many ends have left, if no end is listed.
    pub fn shrink(&self) {
        if self.is_empty() {
            *self.ready.borrow_mut() = VecDeque::new();
            *self.is_listed.borrow_mut() = Vec::new();
        }
    }
}
