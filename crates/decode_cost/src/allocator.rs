//! Allocator that counts the memory of each thread.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by its interface; it only counts and calls the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Allocator of the system that counts what each thread holds. Memory that another thread frees counts
/// as held, so a decoder is measured in one thread.
#[derive(Debug)]
pub struct CountingAllocator;

/// Counts of a thread, in bytes.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Allocated minus freed memory; negative in a thread that frees memory of others.
    live: i64,
    /// Maximum of `live` since the last call of [`start`].
    peak: i64,
    allocated: u64,
}

thread_local! {
    // Constant and without a destructor: it needs no allocation itself.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { live: 0, peak: 0, allocated: 0 }) };
}

/// State at the start of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start(Counts);

/// Memory of a measurement, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) peak_bytes: u64,
    pub(crate) kept_bytes: u64,
    pub(crate) allocated_bytes: u64,
}

pub(crate) fn start() -> Start {
    COUNTS.with(|counts| {
        let now = counts.get();
        counts.set(Counts { peak: now.live, ..now });
        Start(now)
    })
}

pub(crate) fn since(Start(start): Start) -> Memory {
    let now = COUNTS.with(Cell::get);
    let above = |bytes: i64| u64::try_from(bytes - start.live).unwrap_or(0);
    Memory {
        peak_bytes: above(now.peak),
        kept_bytes: above(now.live),
        allocated_bytes: now.allocated - start.allocated,
    }
}

/// Returns the memory of an allocation: with the header and the alignment of common allocators, so that
/// many small ones are not free.
fn footprint(size: usize) -> i64 {
    (size + 8).next_multiple_of(16).max(32) as i64
}

fn count(freed: i64, allocated: i64) {
    // A thread that ends may free memory after its counts are gone.
    let _ = COUNTS.try_with(|counts| {
        let Counts { live, peak, allocated: sum } = counts.get();
        let live = live + allocated - freed;
        counts.set(Counts { live, peak: peak.max(live), allocated: sum + allocated as u64 });
    });
}

// SAFETY: each function passes its arguments on to the allocator of the system, whose contract is the
// same; the counts neither allocate nor panic.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, footprint(layout.size()));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(0, footprint(layout.size()));
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(footprint(layout.size()), 0);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // The old and the new memory may exist at the same time.
        count(0, footprint(new_size));
        count(footprint(layout.size()), 0);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
