//! A token bucket that all cores share: one number, the time at which it will be full again (the
//! generic cell rate algorithm). Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::Rate;

/// A bucket; new, it is full.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    full_at_ns: AtomicU64,
}

impl Bucket {
    /// Takes a token.
    ///
    /// # Errors
    /// When there is none, in how many nanoseconds there will be one; nothing is taken then.
    #[inline]
    pub(super) fn take(&self, rate: &Rate, now_ns: u64) -> Result<(), u64> {
        // Float to integer saturates: a rate of nearly nothing is a token in 584 years.
        let token_ns = (1e9 / rate.rate_per_s) as u64;
        let room_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let over_ns = |full_at_ns: u64| full_at_ns.saturating_sub(now_ns).saturating_sub(room_ns);
        let more = |full_at_ns: u64| {
            let next_ns = full_at_ns.max(now_ns).saturating_add(token_ns);
            (over_ns(next_ns) == 0).then_some(next_ns)
        };
        let taken = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken
            .map(|_| ())
            .map_err(|full_at_ns| over_ns(full_at_ns.max(now_ns).saturating_add(token_ns)))
    }

    /// In how many nanoseconds there will be a token.
    pub(super) fn wait_ns(&self, rate: &Rate, now_ns: u64) -> u64 {
        let token_ns = (1e9 / rate.rate_per_s) as u64;
        let room_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let next_ns = self.full_at_ns().max(now_ns).saturating_add(token_ns);
        next_ns.saturating_sub(now_ns).saturating_sub(room_ns)
    }

    /// When it will be full.
    pub(super) fn full_at_ns(&self) -> u64 {
        self.full_at_ns.load(Ordering::Relaxed)
    }

    /// Fills it.
    pub(super) fn fill(&self) {
        self.full_at_ns.store(0, Ordering::Relaxed);
    }
}
