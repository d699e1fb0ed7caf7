//! A histogram of times with fixed bounds, as Prometheus has them: cheap to record, exact to add up,
//! and the same in every process, so that many can be added up there as well.

use std::cell::Cell;

/// How many bounds there are.
pub(crate) const BOUNDS: usize = 20;
/// How many buckets: one a bound, and one for what is longer.
pub(super) const BUCKETS: usize = BOUNDS + 1;

/// The upper bounds, inclusive, in nanoseconds: 1, 2, 5 steps from 50 µs to 50 s, and 60 s, which is
/// the default of the longest time-out that a request has.
pub(crate) const BOUNDS_NS: [u64; BOUNDS] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    50_000_000_000,
    60_000_000_000,
];

/// For each number of leading zeros of a time, the first bucket that it can be in: at most two
/// comparisons are left then.
const FIRST: [u8; 65] = {
    let mut first = [0; 65];
    let mut zeros = 0;
    while zeros <= 64 {
        let least_ns = if zeros == 64 { 0 } else { 1u64 << (63 - zeros) };
        let mut bucket = 0;
        while bucket < BOUNDS && BOUNDS_NS[bucket] < least_ns {
            bucket += 1;
        }
        first[zeros] = bucket as u8;
        zeros += 1;
    }
    first
};

/// One core's histogram.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [Cell<u64>; BUCKETS],
    sum_ns: Cell<u64>,
}

impl Histogram {
    #[inline]
    pub(super) fn record(&self, time_ns: u64) {
        let bucket = &self.buckets[bucket_of(time_ns)];
        bucket.set(bucket.get() + 1);
        self.sum_ns.set(self.sum_ns.get().wrapping_add(time_ns));
    }

    pub(super) fn copy(&self) -> Distribution {
        let buckets = self.buckets.each_ref().map(Cell::get);
        Distribution { buckets, sum_ns: self.sum_ns.get() }
    }
}

#[inline]
fn bucket_of(time_ns: u64) -> usize {
    let mut bucket = usize::from(FIRST[time_ns.leading_zeros() as usize]);
    while bucket < BOUNDS && time_ns > BOUNDS_NS[bucket] {
        bucket += 1;
    }
    bucket
}

/// What a histogram held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// Each bucket alone; they are added up when they are shown.
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum_ns: u64,
}

impl Distribution {
    pub(super) fn add(&mut self, other: &Self) {
        for (own, other) in self.buckets.iter_mut().zip(other.buckets) {
            *own += other;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// What was recorded since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let mut new = self.clone();
        for (own, before) in new.buckets.iter_mut().zip(before.buckets) {
            *own = own.saturating_sub(before);
        }
        new.sum_ns = self.sum_ns.wrapping_sub(before.sum_ns);
        new
    }

    /// The time that a share `q` of all did not exceed, as far as buckets tell: within one, times
    /// are taken to be spread evenly. `None`: there are none.
    pub(crate) fn quantile_ns(&self, q: f64) -> Option<u64> {
        let count = self.count();
        let rank = (q * count as f64).ceil().max(1.0);
        let mut below = 0;
        for (index, &here) in self.buckets.iter().enumerate() {
            if here > 0 && (below + here) as f64 >= rank {
                let low_ns = if index == 0 { 0 } else { BOUNDS_NS[index - 1] };
                let high_ns = BOUNDS_NS.get(index).copied().unwrap_or(low_ns);
                let part = (rank - below as f64) / here as f64;
                return Some(low_ns + ((high_ns - low_ns) as f64 * part) as u64);
            }
            below += here;
        }
        None
    }

    /// How many times were recorded.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let slowly = |time_ns: u64| BOUNDS_NS.iter().filter(|&&bound| bound < time_ns).count();
        let mut times = vec![0, 1, u64::MAX];
        for bound in BOUNDS_NS {
            times.extend([bound - 1, bound, bound + 1]);
        }
        times.extend((0..64).map(|bit| 1u64 << bit));
        for time_ns in times {
            assert_eq!(bucket_of(time_ns), slowly(time_ns), "{time_ns}");
        }
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS_NS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn what_two_recorded_is_the_sum() {
        let (first, second) = (Histogram::default(), Histogram::default());
        first.record(10);
        second.record(100_001);
        second.record(u64::MAX >> 1);
        let mut all = first.copy();
        all.add(&second.copy());
        assert_eq!(all.count(), 3);
        assert_eq!((all.buckets[0], all.buckets[2], all.buckets[BOUNDS]), (1, 1, 1));
        assert_eq!(all.sum_ns, 10 + 100_001 + (u64::MAX >> 1));
    }
}
