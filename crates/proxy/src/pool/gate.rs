//! How many requests a server, or a pool, has and may have, on all cores; and what all cores see of
//! a server whose bound follows it. Atomics, and no decision but the comparison of two numbers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::adaptive::Window;

/// A bound that holds over all cores. Without one it counts nothing.
#[derive(Debug)]
pub(super) struct Gate {
    max: AtomicUsize,
    in_flight: AtomicUsize,
}

/// The bound where there is none.
const UNBOUNDED: usize = usize::MAX;

impl Gate {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self { max: max.unwrap_or(UNBOUNDED).into(), in_flight: 0.into() }
    }

    /// A gate that counts goes on counting, and one that does not never does.
    pub(super) fn set_max(&self, max: Option<usize>) {
        self.max.store(max.unwrap_or(UNBOUNDED), Ordering::SeqCst);
    }

    pub(super) fn max(&self) -> Option<usize> {
        Some(self.max.load(Ordering::Relaxed)).filter(|&max| max != UNBOUNDED)
    }

    #[inline]
    pub(super) fn is_bounded(&self) -> bool {
        self.max.load(Ordering::Relaxed) != UNBOUNDED
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether there is room just now.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        max == UNBOUNDED || self.in_flight.load(Ordering::Relaxed) < max
    }

    /// Takes room, if there is any.
    #[inline]
    pub(super) fn try_enter(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        if max == UNBOUNDED {
            return true;
        }
        self.in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < max).then_some(now + 1))
            .is_ok()
    }

    /// Gives it back; whether there is a bound.
    #[inline]
    pub(super) fn leave(&self) -> bool {
        if !self.is_bounded() {
            return false;
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

/// What all cores have seen of a server since the last look.
#[derive(Debug, Default)]
pub(super) struct Samples {
    count: AtomicU64,
    sum_ns: AtomicU64,
    failed: AtomicU64,
}

impl Samples {
    pub(super) fn add(&self, service_ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(service_ns, Ordering::Relaxed);
    }

    pub(super) fn add_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// What there is, and nothing from then on.
    pub(super) fn take(&self, in_flight: usize) -> Window {
        Window {
            samples: self.count.swap(0, Ordering::Relaxed),
            sum_ns: self.sum_ns.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
            in_flight,
        }
    }
}
