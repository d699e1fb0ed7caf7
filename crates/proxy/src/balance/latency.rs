//! Remembered response times of a server, and the choice by them: the peak of the response times
//! with exponential decay (peak EWMA, as in Finagle).
//!
//! A response slower than the remembered value counts at once and in full, a faster one gradually.
//! The value decays while there are no responses, so that a server that was slow is tried again, by
//! one request at a time. An unknown server counts as the best while it is idle, and as the worst
//! while its first response is pending.

use rt::clock::MonotonicTime;

use super::Candidate;
use crate::plan::ServerId;

/// Time constant: the remembered value decays to 37 % in this time.
const DECAY_NS: f64 = 10e9;
/// Minimum duration that a failed request counts as. A server that fails fast is not a fast server.
pub(crate) const FAILED_LATENCY_MIN_NS: u64 = 1_000_000_000;
/// Duration that a pending response of an unknown server counts as: an hour.
const UNKNOWN_LATENCY_NS: u128 = 3_600_000_000_000;

/// Remembered response time of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeakEwma {
    /// Peak at `at`; 0: no sample yet.
    peak_ns: u64,
    at: MonotonicTime,
}

impl PeakEwma {
    pub(crate) fn with_sample(self, sample_ns: u64, now: MonotonicTime) -> Self {
        let peak_ns = if sample_ns >= self.peak_ns {
            sample_ns
        } else {
            let remaining = self.remaining_fraction(now);
            (self.peak_ns as f64 * remaining + sample_ns as f64 * (1.0 - remaining)) as u64
        };
        // A response that was measured before the last one must not move the time back.
        Self { peak_ns: peak_ns.max(1), at: self.at.max(now) }
    }

    /// Returns the decayed value. 0: no sample yet, or everything has decayed.
    pub(crate) fn decayed_ns(self, now: MonotonicTime) -> u64 {
        match self.peak_ns {
            0 => 0,
            peak_ns => (peak_ns as f64 * self.remaining_fraction(now)) as u64,
        }
    }

    fn remaining_fraction(self, now: MonotonicTime) -> f64 {
        (-(now.since(self.at) as f64) / DECAY_NS).exp()
    }
}

impl Candidate {
    fn estimated_cost(&self, now: MonotonicTime) -> u128 {
        let in_flight = self.in_flight as u128;
        match self.latency.decayed_ns(now) {
            0 => UNKNOWN_LATENCY_NS * in_flight,
            peak_ns => u128::from(peak_ns) * (in_flight + 1),
        }
    }
}

/// Draws two servers with equal probability and takes the one with the lower cost. A server of
/// twice the weight is assumed to be twice as fast.
pub(super) fn choose(
    now: MonotonicTime,
    servers: usize,
    candidate: impl Fn(ServerId) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<ServerId> {
    let usable = |id: &ServerId| candidate(*id).is_usable();
    let nth = |n: usize| ServerId::first(servers).filter(usable).nth(n);
    let count = ServerId::first(servers).filter(usable).count();
    if count < 2 {
        return nth(0);
    }
    let first = rng.usize(..count);
    // One of the others, with equal probability.
    let second = (first + 1 + rng.usize(..count - 1)) % count;
    let (Some(first), Some(second)) = (nth(first), nth(second)) else {
        return nth(0);
    };
    let (first_candidate, second_candidate) = (candidate(first), candidate(second));
    let is_better = second_candidate.estimated_cost(now) * u128::from(first_candidate.weight)
        < first_candidate.estimated_cost(now) * u128::from(second_candidate.weight);
    Some(if is_better { second } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    #[test]
    fn a_slower_response_counts_at_once_and_a_faster_one_gradually() {
        let known = PeakEwma::default().with_sample(5 * MS, at(SECOND));
        assert_eq!(known.decayed_ns(at(SECOND)), 5 * MS);
        let slow = known.with_sample(500 * MS, at(SECOND));
        assert_eq!(slow.decayed_ns(at(SECOND)), 500 * MS);
        let mut faster = slow;
        let mut previous = slow.decayed_ns(at(SECOND));
        for step in 1..=100 {
            let now = at(SECOND + step * SECOND / 2);
            faster = faster.with_sample(5 * MS, now);
            assert!(faster.decayed_ns(now) < previous, "step {step}");
            previous = faster.decayed_ns(now);
        }
        assert!((5 * MS..10 * MS).contains(&previous), "{previous}");
    }

    #[test]
    fn it_decays_to_zero() {
        let known = PeakEwma::default().with_sample(100 * MS, at(0));
        let after_ten = known.decayed_ns(at(10 * SECOND));
        assert!((36 * MS..37 * MS).contains(&after_ten), "{after_ten}");
        assert_eq!(known.decayed_ns(at(400 * SECOND)), 0);
        assert_eq!(PeakEwma::default().decayed_ns(at(SECOND)), 0);
    }

    #[test]
    fn times_that_run_backwards_change_nothing() {
        let known = PeakEwma::default().with_sample(10 * MS, at(10 * SECOND));
        assert_eq!(known.decayed_ns(at(SECOND)), 10 * MS);
        assert_eq!(known.with_sample(5 * MS, at(SECOND)), known);
        assert_eq!(known.with_sample(20 * MS, at(SECOND)).decayed_ns(at(10 * SECOND)), 20 * MS);
    }
}
