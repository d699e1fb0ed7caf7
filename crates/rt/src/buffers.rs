//! A core's pool of byte buffers. A connection takes one only while bytes are in flight and gives
//! it back empty, so that an idle connection holds none. Bounded: past the limit there is none, and
//! that is counted.

use std::cell::{Cell, RefCell};

/// The buffers of one core; not `Send`.
#[derive(Debug)]
pub struct Buffers {
    free: RefCell<Vec<Vec<u8>>>,
    buffer_bytes: usize,
    lent: Cell<usize>,
    lent_max: usize,
    refused: Cell<u64>,
}

/// How many unused buffers a pool keeps; more than that goes back to the allocator.
const FREE_MAX: usize = 64;
/// A buffer that grew past this many times its first size is not kept.
const GROWTH_MAX: usize = 4;

impl Buffers {
    /// A pool of buffers of `buffer_bytes`, of which `lent_max` may be out at a time.
    #[must_use]
    pub fn new(buffer_bytes: usize, lent_max: usize) -> Self {
        Self {
            free: RefCell::new(Vec::new()),
            buffer_bytes,
            lent: Cell::new(0),
            lent_max,
            refused: Cell::new(0),
        }
    }

    /// An empty buffer, or `None` (counted) at the limit.
    #[must_use]
    pub fn take(&self) -> Option<Vec<u8>> {
        if self.lent.get() >= self.lent_max {
            self.refused.set(self.refused.get() + 1);
            return None;
        }
        self.lent.set(self.lent.get() + 1);
        let kept = self.free.borrow_mut().pop();
        Some(kept.unwrap_or_else(|| Vec::with_capacity(self.buffer_bytes)))
    }

    /// Gives a buffer back that [`Buffers::take`] lent.
    pub fn give(&self, mut buffer: Vec<u8>) {
        self.lent.set(self.lent.get().saturating_sub(1));
        let mut free = self.free.borrow_mut();
        if free.len() < FREE_MAX && buffer.capacity() <= GROWTH_MAX * self.buffer_bytes {
            buffer.clear();
            free.push(buffer);
        }
    }

    /// How many buffers are out.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.lent.get()
    }

    /// How often the limit was met.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_is_counted() {
        let pool = Buffers::new(16, 2);
        let (first, _second) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        assert_eq!((pool.lent(), pool.refused()), (2, 1));
        pool.give(first);
        assert!(pool.take().unwrap().is_empty());
    }

    #[test]
    fn a_buffer_that_grew_is_not_kept() {
        let pool = Buffers::new(16, 2);
        let mut grown = pool.take().unwrap();
        grown.resize(1000, 0);
        pool.give(grown);
        assert!(pool.take().unwrap().capacity() < 1000);
    }
}
