//! A token bucket that all cores share: one number, the time at which it will be full again (the
//! generic cell rate algorithm). Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::Rate;

/// A bucket; new, it is full.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    full_at_ns: AtomicU64,
}

impl Bucket {
    /// Takes a token.
    ///
    /// # Errors
    /// When there is none, in how many nanoseconds there will be one; nothing is taken then.
    #[inline]
    pub(crate) fn take(&self, rate: &Rate, now_ns: u64) -> Result<(), u64> {
        let token_ns = token_ns(rate);
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

    /// Takes up to `tokens` tokens, and at least one: how many, and when the bucket will be full.
    ///
    /// # Errors
    /// As [`Bucket::take`].
    pub(crate) fn take_up_to(
        &self,
        rate: &Rate,
        tokens: u32,
        now_ns: u64,
    ) -> Result<(u32, u64), u64> {
        let token_ns = token_ns(rate).max(1);
        let room_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let mut full_at_ns = self.full_at_ns();
        loop {
            let start_ns = full_at_ns.max(now_ns);
            let left_ns = now_ns.saturating_add(room_ns).saturating_sub(start_ns);
            if left_ns < token_ns {
                return Err(token_ns - left_ns);
            }
            // At most `tokens`, which is a u32.
            let taken = (left_ns / token_ns).min(tokens.max(1).into());
            let next_ns = start_ns.saturating_add(taken.saturating_mul(token_ns));
            let (before, relaxed) = (full_at_ns, Ordering::Relaxed);
            match self.full_at_ns.compare_exchange_weak(before, next_ns, relaxed, relaxed) {
                Ok(_) => return Ok((taken as u32, next_ns)),
                Err(other) => full_at_ns = other,
            }
        }
    }

    /// Returns tokens that were taken and not used. Only while the bucket is not full again: tokens
    /// beyond that would be more than the burst.
    pub(crate) fn give_back(&self, rate: &Rate, tokens: u32) {
        let back_ns = token_ns(rate).max(1).saturating_mul(tokens.into());
        let less = |full_at_ns: u64| Some(full_at_ns.saturating_sub(back_ns));
        // It always has a new value.
        let _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// In how many nanoseconds there will be a token.
    pub(crate) fn wait_ns(&self, rate: &Rate, now_ns: u64) -> u64 {
        let token_ns = token_ns(rate);
        let room_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let next_ns = self.full_at_ns().max(now_ns).saturating_add(token_ns);
        next_ns.saturating_sub(now_ns).saturating_sub(room_ns)
    }

    /// When it will be full.
    pub(crate) fn full_at_ns(&self) -> u64 {
        self.full_at_ns.load(Ordering::Relaxed)
    }

    /// Fills it.
    pub(crate) fn fill(&self) {
        self.full_at_ns.store(0, Ordering::Relaxed);
    }
}

/// The time in which a token comes.
fn token_ns(rate: &Rate) -> u64 {
    // Float to integer saturates: a rate of nearly nothing is a token in 584 years.
    (1e9 / rate.rate_per_s) as u64
}
