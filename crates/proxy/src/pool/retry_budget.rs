//! How many requests may be sent again: a share of those of the last seconds, on all cores. Without
//! such a bound, retries multiply the load just when there is too much of it.
//!
//! Each core counts its own requests, in a place that only it writes; retries, which are rare, are
//! counted together. Time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::RetryBudgetPlan;

/// In so many parts the window slides on.
const PARTS: usize = 8;
/// A part is its number in time, and a count.
const COUNT_BITS: u32 = 32;

/// Counts of the parts of a window. On a line of the cache of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts([AtomicU64; PARTS]);

/// The budget of one pool.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    plan: RetryBudgetPlan,
    part_ns: u64,
    requests: Box<[Counts]>,
    retries: Counts,
}

impl Counts {
    /// What stands in a part, if it is still the one of that number.
    fn read(word: u64, number: u64) -> u64 {
        if word >> COUNT_BITS == number & u64::from(u32::MAX) {
            word & u64::from(u32::MAX)
        } else {
            0
        }
    }

    fn pack(number: u64, count: u64) -> u64 {
        number << COUNT_BITS | count.min(u64::from(u32::MAX))
    }

    fn part(&self, number: u64) -> &AtomicU64 {
        // Less than PARTS.
        &self.0[(number % PARTS as u64) as usize]
    }

    /// Counts one more; to be called by one thread only.
    #[inline]
    fn add_alone(&self, number: u64) {
        let part = self.part(number);
        let count = Self::read(part.load(Ordering::Relaxed), number) + 1;
        part.store(Self::pack(number, count), Ordering::Relaxed);
    }

    fn add(&self, number: u64) {
        let more = |word| Some(Self::pack(number, Self::read(word, number) + 1));
        // It always has something to store.
        let _ = self.part(number).fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }

    /// All of the window that ends with the part of this number.
    fn sum(&self, number: u64) -> u64 {
        let first = number.saturating_sub(PARTS as u64 - 1);
        (first..=number)
            .map(|number| Self::read(self.part(number).load(Ordering::SeqCst), number))
            .sum()
    }
}

impl RetryBudget {
    pub(crate) fn new(plan: RetryBudgetPlan, cores: usize) -> Self {
        let requests = std::iter::repeat_with(Counts::default).take(cores).collect();
        let part_ns = (plan.window_ns / PARTS as u64).max(1);
        Self { plan, part_ns, requests, retries: Counts::default() }
    }

    pub(crate) fn plan(&self) -> RetryBudgetPlan {
        self.plan
    }

    /// Counts a request of this core.
    #[inline]
    pub(crate) fn note_request(&self, core: usize, now_ns: u64) {
        if let Some(counts) = self.requests.get(core) {
            counts.add_alone(now_ns / self.part_ns);
        }
    }

    /// Takes one retry, if there is one left.
    pub(crate) fn try_take(&self, now_ns: u64) -> bool {
        let number = now_ns / self.part_ns;
        let requests: u64 = self.requests.iter().map(|counts| counts.sum(number)).sum();
        let allowed = ((requests as f64 * self.plan.share) as u64).max(self.plan.min.into());
        // Two cores may take the last one together: the bound is of load, and not of money.
        let left = self.retries.sum(number) < allowed;
        if left {
            self.retries.add(number);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn budget(share: f64, min: u32) -> RetryBudget {
        RetryBudget::new(RetryBudgetPlan { share, min, window_ns: 8 * SECOND_NS }, 2)
    }

    #[test]
    fn a_few_are_always_allowed_and_no_more_without_requests() {
        let budget = budget(0.2, 3);
        assert_eq!((0..10).filter(|_| budget.try_take(SECOND_NS)).count(), 3);
        // The window has passed.
        assert_eq!((0..10).filter(|_| budget.try_take(9 * SECOND_NS)).count(), 3);
        assert!(!self::budget(0.2, 0).try_take(0));
    }

    #[test]
    fn the_share_is_of_the_requests_of_all_cores() {
        let budget = budget(0.2, 3);
        for number in 0..100 {
            budget.note_request(number % 2, SECOND_NS);
        }
        assert_eq!((0..100).filter(|_| budget.try_take(SECOND_NS)).count(), 20);
        // Nobody has such a core: it counts nowhere.
        budget.note_request(7, SECOND_NS);
    }

    /// Whatever comes when: in no window are there more than its share and the few.
    #[test]
    fn no_window_has_more_than_its_share() {
        for seed in 0..256 {
            let mut random = fastrand::Rng::with_seed(seed);
            let budget = budget(0.1, 2);
            let (mut now, mut requests, mut taken) = (0, Vec::new(), Vec::new());
            for _ in 0..2_000 {
                now += random.u64(..SECOND_NS / 4);
                if random.u32(..3) > 0 {
                    budget.note_request(random.usize(..2), now);
                    requests.push(now);
                } else if budget.try_take(now) {
                    taken.push(now);
                    let recent = |times: &[u64]| {
                        times.iter().filter(|&&at| at + 8 * SECOND_NS > now).count() as f64
                    };
                    // The window's first part is whole or not there.
                    let most = (recent(&requests) * 0.1).max(2.0);
                    let exact = taken.iter().filter(|&&at| at + 7 * SECOND_NS > now).count();
                    assert!(exact as f64 <= most, "seed {seed}: {exact} of {most}");
                }
            }
            assert!(!taken.is_empty());
        }
    }
}
