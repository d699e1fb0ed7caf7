//! Retry budget: retries are limited to a fraction of the requests of the last seconds, on all
//! cores. Without this limit, retries would multiply the load just when it is too high.
//!
//! Each core counts its own requests in memory that only it writes. Retries are rare and are
//! counted in one place. Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use rt::clock::MonotonicTime;

use super::cross_core_wakeup::CoreIndex;
use crate::plan::RetryBudgetPlan;

/// Number of buckets in which the window slides on.
const BUCKETS: usize = 8;
/// Bits of a count. The upper bits of a word are the bucket's number in time.
const COUNT_BITS: u32 = 32;

/// Counts of the buckets of a window, on their own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WindowCounts([AtomicU64; BUCKETS]);

#[derive(Debug)]
pub(crate) struct RetryBudget {
    plan: RetryBudgetPlan,
    bucket_ns: u64,
    requests: Box<[WindowCounts]>,
    retries: WindowCounts,
}

impl WindowCounts {
    /// Returns the count of a word, or 0 if it belongs to another bucket than `bucket_number`.
    fn read(word: u64, bucket_number: u64) -> u64 {
        if word >> COUNT_BITS == bucket_number & u64::from(u32::MAX) { word & u64::from(u32::MAX) } else { 0 }
    }

    fn pack(bucket_number: u64, count: u64) -> u64 {
        bucket_number << COUNT_BITS | count.min(u64::from(u32::MAX))
    }

    fn bucket(&self, bucket_number: u64) -> &AtomicU64 {
        // The index is less than BUCKETS.
        &self.0[(bucket_number % BUCKETS as u64) as usize]
    }

    /// Adds one; must be called by one thread only.
    #[inline]
    fn add_single_writer(&self, bucket_number: u64) {
        let bucket = self.bucket(bucket_number);
        let count = Self::read(bucket.load(Ordering::Relaxed), bucket_number) + 1;
        bucket.store(Self::pack(bucket_number, count), Ordering::Relaxed);
    }

    fn add(&self, bucket_number: u64) {
        let increment = |word| Some(Self::pack(bucket_number, Self::read(word, bucket_number) + 1));
        // The closure always returns a value, so the update cannot fail.
        let _ = self.bucket(bucket_number).fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment);
    }

    fn sum(&self, bucket_number: u64) -> u64 {
        let first = bucket_number.saturating_sub(BUCKETS as u64 - 1);
        (first..=bucket_number)
            .map(|bucket_number| Self::read(self.bucket(bucket_number).load(Ordering::SeqCst), bucket_number))
            .sum()
    }
}

impl RetryBudget {
    pub(crate) fn new(plan: RetryBudgetPlan, cores: usize) -> Self {
        let requests = std::iter::repeat_with(WindowCounts::default).take(cores).collect();
        let bucket_ns = (plan.window_ns / BUCKETS as u64).max(1);
        Self { plan, bucket_ns, requests, retries: WindowCounts::default() }
    }

    pub(crate) fn plan(&self) -> RetryBudgetPlan {
        self.plan
    }

    #[inline]
    fn bucket_number(&self, now: MonotonicTime) -> u64 {
        now.as_ns() / self.bucket_ns
    }

    #[inline]
    pub(crate) fn note_request(&self, core: CoreIndex, now: MonotonicTime) {
        if let Some(counts) = self.requests.get(core.0) {
            counts.add_single_writer(self.bucket_number(now));
        }
    }

    /// Takes one retry, if there is one left.
    pub(crate) fn try_take(&self, now: MonotonicTime) -> bool {
        let bucket_number = self.bucket_number(now);
        let requests: u64 = self.requests.iter().map(|counts| counts.sum(bucket_number)).sum();
        let allowed = ((requests as f64 * self.plan.fraction) as u64).max(self.plan.min.into());
        // Two cores may take the last retry together; an approximate limit is sufficient.
        let has_left = self.retries.sum(bucket_number) < allowed;
        if has_left {
            self.retries.add(bucket_number);
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const SECOND_NS: u64 = 1_000_000_000;

    fn budget(fraction: f64, min: u32) -> RetryBudget {
        RetryBudget::new(RetryBudgetPlan { fraction, min, window_ns: 8 * SECOND_NS }, 2)
    }

    #[test]
    fn a_few_are_always_allowed_and_no_more_without_requests() {
        let budget = budget(0.2, 3);
        assert_eq!((0..10).filter(|_| budget.try_take(at(SECOND_NS))).count(), 3);
        // The window has passed.
        assert_eq!((0..10).filter(|_| budget.try_take(at(9 * SECOND_NS))).count(), 3);
        assert!(!self::budget(0.2, 0).try_take(at(0)));
    }

    #[test]
    fn the_fraction_is_of_the_requests_of_all_cores() {
        let budget = budget(0.2, 3);
        for number in 0..100 {
            budget.note_request(CoreIndex(number % 2), at(SECOND_NS));
        }
        assert_eq!((0..100).filter(|_| budget.try_take(at(SECOND_NS))).count(), 20);
        // There is no such core, so nothing is counted.
        budget.note_request(CoreIndex(7), at(SECOND_NS));
    }

    /// For any sequence of events, no window has more retries than the fraction and the minimum
    /// allow.
    #[test]
    fn no_window_has_more_than_its_fraction() {
        for seed in 0..256 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let budget = budget(0.1, 2);
            let (mut now, mut requests, mut taken) = (at(0), Vec::new(), Vec::new());
            for _ in 0..2_000 {
                now += rng.u64(..SECOND_NS / 4);
                if rng.u32(..3) > 0 {
                    budget.note_request(CoreIndex(rng.usize(..2)), now);
                    requests.push(now);
                } else if budget.try_take(now) {
                    taken.push(now);
                    let recent = |times: &[MonotonicTime]| {
                        times.iter().filter(|&&at| at + 8 * SECOND_NS > now).count() as f64
                    };
                    // The window's first part is counted completely or not at all.
                    let max = (recent(&requests) * 0.1).max(2.0);
                    let exact = taken.iter().filter(|&&at| at + 7 * SECOND_NS > now).count();
                    assert!(exact as f64 <= max, "seed {seed}: {exact} of {max}");
                }
            }
            assert!(!taken.is_empty());
        }
    }
}
