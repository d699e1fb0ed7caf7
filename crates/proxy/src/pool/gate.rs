//! How many requests a server, or a pool, has and may have, on all cores; and what all cores see of
//! a server whose bound follows it. Atomics, and no decision but the comparison of two numbers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::adaptive::Window;

/// A bound that holds over all cores. Without one it counts nothing.
#[derive(Debug)]
pub(super) struct Gate {
    max: AtomicUsize,
    /// What an operator set while running; 0: nothing, so that the plan's holds.
    set: AtomicUsize,
    /// The bound that the server's agent asks for; 0: none.
    advised: AtomicUsize,
    /// The bound of the plan, or of the adaptation to the server.
    planned: AtomicUsize,
    in_flight: AtomicUsize,
}

/// What came of asking for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// There is none.
    Full,
    /// There is no bound, so nobody counts.
    Uncounted,
    /// There was some, and it is taken: it has to be given back.
    Counted,
}

/// The bound where there is none.
const UNBOUNDED: usize = usize::MAX;

impl Gate {
    /// Without a bound.
    pub(super) fn new() -> Self {
        Self {
            max: UNBOUNDED.into(),
            set: 0.into(),
            advised: 0.into(),
            planned: UNBOUNDED.into(),
            in_flight: 0.into(),
        }
    }

    /// Sets the planned bound; `None`: no bound. The bound of the operator holds, else that of the
    /// agent, else the planned one.
    pub(super) fn follow(&self, planned: Option<usize>) {
        // The greatest number stands for none.
        let planned = planned.map_or(UNBOUNDED, |max| max.min(UNBOUNDED - 1));
        self.planned.store(planned, Ordering::SeqCst);
        self.recompute();
    }

    fn recompute(&self) {
        let advised = Some(self.advised.load(Ordering::SeqCst)).filter(|&advised| advised > 0);
        let planned = self.planned.load(Ordering::SeqCst);
        let bound = self.set().or(advised).unwrap_or(planned);
        self.max.store(bound, Ordering::SeqCst);
    }

    /// Sets the bound that the server's agent asks for; `None`: it asks for none.
    pub(super) fn set_by_agent(&self, advised: Option<usize>) {
        self.advised.store(advised.unwrap_or(0), Ordering::SeqCst);
        self.recompute();
    }

    /// What an operator wants from now on. Takes effect with [`Gate::follow`].
    pub(super) fn set_by_operator(&self, set: Option<usize>) {
        self.set.store(set.unwrap_or(0), Ordering::SeqCst);
    }

    /// What an operator set.
    pub(super) fn set(&self) -> Option<usize> {
        Some(self.set.load(Ordering::SeqCst)).filter(|&set| set > 0)
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
    pub(super) fn try_enter(&self) -> Entry {
        let max = self.max.load(Ordering::Relaxed);
        if max == UNBOUNDED {
            return Entry::Uncounted;
        }
        let entered = self
            .in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < max).then_some(now + 1));
        if entered.is_ok() { Entry::Counted } else { Entry::Full }
    }

    /// Gives back room that was counted.
    #[inline]
    pub(super) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts requests that were there before there was a bound.
    pub(super) fn count_late(&self, requests: usize) {
        self.in_flight.fetch_add(requests, Ordering::SeqCst);
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
