//! A token bucket that all cores share. Its state is one number: the time at which it will be full
//! again (the generic cell rate algorithm). The time is passed as an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use rt::clock::MonotonicTime;

use crate::plan::TokenRate;

/// A token bucket. A new one is full.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    full_at_ns: AtomicU64,
}

impl TokenBucket {
    /// Takes a token.
    ///
    /// # Errors
    /// The bucket is empty: the nanoseconds until the next token. Nothing is taken then.
    #[inline]
    pub(crate) fn try_take(&self, rate: &TokenRate, now: MonotonicTime) -> Result<(), u64> {
        let token_ns = token_ns(rate);
        let burst_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let now_ns = now.as_ns();
        let excess_ns = |full_at_ns: u64| full_at_ns.saturating_sub(now_ns).saturating_sub(burst_ns);
        let with_one_taken = |full_at_ns: u64| {
            let next_ns = full_at_ns.max(now_ns).saturating_add(token_ns);
            (excess_ns(next_ns) == 0).then_some(next_ns)
        };
        let taken = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_one_taken);
        taken.map(|_| ()).map_err(|full_at_ns| excess_ns(full_at_ns.max(now_ns).saturating_add(token_ns)))
    }

    /// Takes at least one and at most `tokens` tokens. Returns their number, and the time at which
    /// the bucket will be full.
    ///
    /// # Errors
    /// As [`TokenBucket::try_take`].
    pub(crate) fn try_take_up_to(
        &self,
        rate: &TokenRate,
        tokens: u32,
        now: MonotonicTime,
    ) -> Result<(u32, MonotonicTime), u64> {
        let token_ns = token_ns(rate).max(1);
        let burst_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let mut full_at = self.full_at();
        loop {
            let start = full_at.max(now);
            let available_ns = now.saturating_add(burst_ns).since(start);
            if available_ns < token_ns {
                return Err(token_ns - available_ns);
            }
            // At most `tokens`, which is a u32.
            let taken = (available_ns / token_ns).min(tokens.max(1).into());
            let next = start.saturating_add(taken.saturating_mul(token_ns));
            let (expected_ns, relaxed) = (full_at.as_ns(), Ordering::Relaxed);
            match self.full_at_ns.compare_exchange_weak(expected_ns, next.as_ns(), relaxed, relaxed) {
                Ok(_) => return Ok((taken as u32, next)),
                Err(actual_ns) => full_at = MonotonicTime::from_ns(actual_ns),
            }
        }
    }

    /// Returns tokens that were taken and not used. Only valid while the bucket is not full again:
    /// the tokens would exceed the burst otherwise.
    pub(crate) fn return_unused(&self, rate: &TokenRate, tokens: u32) {
        let returned_ns = token_ns(rate).max(1).saturating_mul(tokens.into());
        let with_returned = |full_at_ns: u64| Some(full_at_ns.saturating_sub(returned_ns));
        // The closure always returns a new value.
        let _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_returned);
    }

    /// Returns the nanoseconds until there is a token.
    pub(crate) fn wait_ns(&self, rate: &TokenRate, now: MonotonicTime) -> u64 {
        let token_ns = token_ns(rate);
        let burst_ns = token_ns.saturating_mul(rate.burst.max(1).into());
        let next = self.full_at().max(now).saturating_add(token_ns);
        next.since(now).saturating_sub(burst_ns)
    }

    pub(crate) fn full_at(&self) -> MonotonicTime {
        MonotonicTime::from_ns(self.full_at_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn refill(&self) {
        self.full_at_ns.store(0, Ordering::Relaxed);
    }
}

/// Returns the time between two tokens.
fn token_ns(rate: &TokenRate) -> u64 {
    // Float to integer saturates: a rate near 0 is one token in 584 years.
    (1e9 / rate.rate_per_s) as u64
}
