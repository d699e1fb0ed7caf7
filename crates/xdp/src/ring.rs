//! One ring that is shared with the kernel: a producer and a consumer index, and entries between them.
//!
//! Invariant: each index is written by one side only. The entries from the consumer's index to the producer's belong to
//! the consumer, the others to the producer.

use std::sync::atomic::{AtomicU32, Ordering};

/// Flag of a ring whose other side sleeps and has to be woken (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// Pointers of a ring in memory that is shared with the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPointers<T> {
    pub(crate) producer: *const AtomicU32,
    pub(crate) consumer: *const AtomicU32,
    pub(crate) flags: *const AtomicU32,
    pub(crate) entries: *mut T,
    /// Number of entries, a power of two.
    pub(crate) size: u32,
}

/// The side of a ring that produces entries: fill and transmit.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: RingPointers<T>,
    /// Own index, ahead of the published one until [`Producer::publish`].
    index: u32,
    /// Last known index of the kernel.
    consumed: u32,
}

/// The side of a ring that consumes entries: receive and completion.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: RingPointers<T>,
    index: u32,
    produced: u32,
}

#[allow(unsafe_code)]
impl<T: Copy> Producer<T> {
    /// Wraps a ring.
    ///
    /// # Safety
    /// The pointers are valid and aligned for as long as the value is used, `entries` for `size` entries, a power of
    /// two; and nobody else in this process uses the ring.
    pub(crate) unsafe fn new(ring: RingPointers<T>) -> Self {
        Self { ring, index: 0, consumed: 0 }
    }

    #[inline]
    pub(crate) fn free(&mut self) -> u32 {
        // SAFETY: the pointer is valid (`new`).
        self.consumed = unsafe { &*self.ring.consumer }.load(Ordering::Acquire);
        self.ring.size.saturating_sub(self.index.wrapping_sub(self.consumed))
    }

    /// Adds an entry; `false` if there is no space. The other side sees it after [`Producer::publish`].
    #[inline]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.index.wrapping_sub(self.consumed) >= self.ring.size && self.free() == 0 {
            return false;
        }
        let at = self.index & (self.ring.size - 1);
        // SAFETY: `at` is below `size`, and the entry belongs to this side (invariant of the module).
        unsafe { self.ring.entries.add(at as usize).write(entry) };
        self.index = self.index.wrapping_add(1);
        true
    }

    /// Makes all added entries visible.
    #[inline]
    pub(crate) fn publish(&self) {
        // SAFETY: the pointer is valid (`new`).
        unsafe { &*self.ring.producer }.store(self.index, Ordering::Release);
    }

    /// Returns the number of published entries that the kernel has not taken.
    pub(crate) fn pending(&mut self) -> u32 {
        self.ring.size - self.free().min(self.ring.size)
    }

    /// Returns whether the kernel has to be woken to look at the ring.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // SAFETY: the pointer is valid (`new`).
        unsafe { &*self.ring.flags }.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

#[allow(unsafe_code)]
impl<T: Copy> Consumer<T> {
    /// Wraps a ring.
    ///
    /// # Safety
    /// The same as for a producer ([`Producer::new`]).
    pub(crate) unsafe fn new(ring: RingPointers<T>) -> Self {
        Self { ring, index: 0, produced: 0 }
    }

    /// Returns the next entry. It belongs to the kernel again after [`Consumer::release`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.index == self.produced {
            // SAFETY: the pointer is valid (`new`).
            self.produced = unsafe { &*self.ring.producer }.load(Ordering::Acquire);
            if self.index == self.produced {
                return None;
            }
        }
        let at = self.index & (self.ring.size - 1);
        // SAFETY: `at` is below `size`, and the entry belongs to this side (invariant of the module).
        let entry = unsafe { self.ring.entries.add(at as usize).read() };
        self.index = self.index.wrapping_add(1);
        Some(entry)
    }

    /// Returns all entries that were read to the kernel.
    #[inline]
    pub(crate) fn release(&self) {
        // SAFETY: the pointer is valid (`new`).
        unsafe { &*self.ring.consumer }.store(self.index, Ordering::Release);
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    #[test]
    fn entries_arrive_in_order_over_many_wraps_of_the_ring_and_of_its_indices() {
        let (producer, consumer, flags) =
            (AtomicU32::new(u32::MAX - 5), AtomicU32::new(u32::MAX - 5), AtomicU32::new(1));
        let entries = UnsafeCell::new([0_u64; 8]);
        let ring = RingPointers {
            producer: &raw const producer,
            consumer: &raw const consumer,
            flags: &raw const flags,
            entries: entries.get().cast(),
            size: 8,
        };
        // SAFETY: the memory outlives both sides, and each side is used by this test only.
        let (mut from, mut to) = unsafe { (Producer::new(ring), Consumer::new(ring)) };
        (from.index, from.consumed) = (u32::MAX - 5, u32::MAX - 5);
        (to.index, to.produced) = (u32::MAX - 5, u32::MAX - 5);
        assert!(from.needs_wakeup() && to.pop().is_none());
        let (mut sent, mut received) = (0, 0);
        for _ in 0..20 {
            while from.push(sent) {
                sent += 1;
            }
            assert!(to.pop().is_none());
            from.publish();
            assert_eq!(from.pending(), 8);
            for _ in 0..8 {
                assert_eq!(to.pop(), Some(received));
                received += 1;
            }
            assert!(to.pop().is_none() && !from.push(0));
            to.release();
            assert_eq!(from.free(), 8);
        }
        assert_eq!((sent, received), (160, 160));
    }
}
