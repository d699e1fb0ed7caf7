//! Concurrency limit of a server or a pool, shared by all cores, and the samples of all cores about
//! a server with an adaptive limit. Atomics only; the one decision is a comparison of two numbers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::adaptive::LatencyWindow;

/// Concurrency limit over all cores. An unlimited one counts nothing.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    max: AtomicUsize,
    /// Limit that an operator set at run time; 0: none, so the configured one applies.
    operator_max: AtomicUsize,
    /// Limit that the server's agent requests; 0: none.
    agent_max: AtomicUsize,
    /// Limit of the plan, or of the adaptive limit.
    configured_max: AtomicUsize,
    in_flight: AtomicUsize,
}

/// Result of an attempt to take a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireResult {
    /// No slot is free.
    Full,
    /// There is no limit, so the request is not counted.
    Uncounted,
    /// A slot was taken and must be released.
    Counted,
}

/// Value of an unset limit.
const UNBOUNDED: usize = usize::MAX;

impl ConcurrencyLimit {
    pub(super) fn new() -> Self {
        Self {
            max: UNBOUNDED.into(),
            operator_max: 0.into(),
            agent_max: 0.into(),
            configured_max: UNBOUNDED.into(),
            in_flight: 0.into(),
        }
    }

    /// Sets the configured limit; `None`: no limit. The operator's limit has precedence, then the
    /// agent's, then the configured one.
    pub(super) fn set_configured(&self, configured: Option<usize>) {
        // The maximum value means that there is no limit.
        let configured = configured.map_or(UNBOUNDED, |max| max.min(UNBOUNDED - 1));
        self.configured_max.store(configured, Ordering::SeqCst);
        self.recompute();
    }

    fn recompute(&self) {
        let agent_max = Some(self.agent_max.load(Ordering::SeqCst)).filter(|&max| max > 0);
        let configured = self.configured_max.load(Ordering::SeqCst);
        let max = self.operator_max().or(agent_max).unwrap_or(configured);
        self.max.store(max, Ordering::SeqCst);
    }

    /// Sets the limit that the server's agent requests; `None`: none.
    pub(super) fn set_agent_max(&self, max: Option<usize>) {
        self.agent_max.store(max.unwrap_or(0), Ordering::SeqCst);
        self.recompute();
    }

    /// Sets the limit of the operator. Takes effect with [`ConcurrencyLimit::set_configured`].
    pub(super) fn set_operator_max(&self, max: Option<usize>) {
        self.operator_max.store(max.unwrap_or(0), Ordering::SeqCst);
    }

    pub(super) fn operator_max(&self) -> Option<usize> {
        Some(self.operator_max.load(Ordering::SeqCst)).filter(|&max| max > 0)
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

    #[inline]
    pub(super) fn has_free_slot(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        max == UNBOUNDED || self.in_flight.load(Ordering::Relaxed) < max
    }

    /// Takes a slot, if one is free.
    #[inline]
    pub(super) fn try_acquire(&self) -> AcquireResult {
        let max = self.max.load(Ordering::Relaxed);
        if max == UNBOUNDED {
            return AcquireResult::Uncounted;
        }
        let acquired = self
            .in_flight
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| (now < max).then_some(now + 1));
        if acquired.is_ok() { AcquireResult::Counted } else { AcquireResult::Full }
    }

    #[inline]
    pub(super) fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts requests that were in flight before there was a limit.
    pub(super) fn add_in_flight(&self, requests: usize) {
        self.in_flight.fetch_add(requests, Ordering::SeqCst);
    }
}

/// Samples of all cores about a server since the last window.
#[derive(Debug, Default)]
pub(super) struct LatencySamples {
    count: AtomicU64,
    sum_ns: AtomicU64,
    failed: AtomicU64,
}

impl LatencySamples {
    pub(super) fn add(&self, service_ns: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(service_ns, Ordering::Relaxed);
    }

    pub(super) fn add_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the samples so far, and resets them.
    pub(super) fn take(&self, in_flight: usize) -> LatencyWindow {
        LatencyWindow {
            samples: self.count.swap(0, Ordering::Relaxed),
            sum_ns: self.sum_ns.swap(0, Ordering::Relaxed),
            failed: self.failed.swap(0, Ordering::Relaxed),
            in_flight,
        }
    }
}
