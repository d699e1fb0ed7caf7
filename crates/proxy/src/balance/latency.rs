//! How long a server takes to answer, as far as it is remembered, and the choice by that: the peak
//! of its response times, which fades (peak EWMA, as Finagle has it).
//!
//! A slower answer than is remembered counts at once and in full, a faster one little by little. What
//! is remembered fades while there are no answers, so that a server that was slow is tried again, by
//! one request at a time: what nothing is known of is as good as can be while it has nothing to do,
//! and worse than anything else while its first answer is awaited.

use super::Candidate;

/// In this time what is remembered fades to 37 %.
const FADE_NS: f64 = 10e9;
/// How long a request that a server failed counts to have taken, if it did not take longer: a server
/// that is quick to fail is not quick.
pub(crate) const FAILED_NS: u64 = 1_000_000_000;
/// What an answer that is awaited from a server that nothing is known of counts as: an hour.
const UNKNOWN_NS: u128 = 3_600_000_000_000;

/// What is remembered of a server's response times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    /// 0: nothing.
    peak_ns: u64,
    at_ns: u64,
}

impl Latency {
    /// With one more response time.
    pub(crate) fn with(self, sample_ns: u64, now_ns: u64) -> Self {
        let peak_ns = if sample_ns >= self.peak_ns {
            sample_ns
        } else {
            let kept = self.kept(now_ns);
            (self.peak_ns as f64 * kept + sample_ns as f64 * (1.0 - kept)) as u64
        };
        // An answer that was measured before the last one does not make that one older.
        Self { peak_ns: peak_ns.max(1), at_ns: self.at_ns.max(now_ns) }
    }

    /// What is left of it; 0: nothing is known, or not any more.
    pub(crate) fn at(self, now_ns: u64) -> u64 {
        match self.peak_ns {
            0 => 0,
            peak_ns => (peak_ns as f64 * self.kept(now_ns)) as u64,
        }
    }

    fn kept(self, now_ns: u64) -> f64 {
        (-(now_ns.saturating_sub(self.at_ns) as f64) / FADE_NS).exp()
    }
}

impl Candidate {
    /// How long one more request would take, as far as can be known.
    fn cost(&self, now_ns: u64) -> u128 {
        let in_flight = self.in_flight as u128;
        match self.latency.at(now_ns) {
            0 => UNKNOWN_NS * in_flight,
            peak_ns => u128::from(peak_ns) * (in_flight + 1),
        }
    }
}

/// Two are drawn, each as likely; a server of twice the weight is taken to be twice as fast.
pub(super) fn choose(
    now_ns: u64,
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<usize> {
    let usable = |index: &usize| candidate(*index).is_usable();
    let nth = |n: usize| (0..servers).filter(usable).nth(n);
    let count = (0..servers).filter(usable).count();
    if count < 2 {
        return nth(0);
    }
    let first = rng.usize(..count);
    // One of the others, each as likely.
    let second = (first + 1 + rng.usize(..count - 1)) % count;
    let (Some(first), Some(second)) = (nth(first), nth(second)) else {
        return nth(0);
    };
    let (one, other) = (candidate(first), candidate(second));
    let is_better =
        other.cost(now_ns) * u128::from(one.weight) < one.cost(now_ns) * u128::from(other.weight);
    Some(if is_better { second } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    #[test]
    fn a_slower_answer_counts_at_once_and_a_faster_one_little_by_little() {
        let known = Latency::default().with(5 * MS, SECOND);
        assert_eq!(known.at(SECOND), 5 * MS);
        let slow = known.with(500 * MS, SECOND);
        assert_eq!(slow.at(SECOND), 500 * MS);
        let mut faster = slow;
        let mut before = slow.at(SECOND);
        for step in 1..=100 {
            let now = SECOND + step * SECOND / 2;
            faster = faster.with(5 * MS, now);
            assert!(faster.at(now) < before, "step {step}");
            before = faster.at(now);
        }
        assert!((5 * MS..10 * MS).contains(&before), "{before}");
    }

    #[test]
    fn it_fades_to_nothing() {
        let known = Latency::default().with(100 * MS, 0);
        let after_ten = known.at(10 * SECOND);
        assert!((36 * MS..37 * MS).contains(&after_ten), "{after_ten}");
        assert_eq!(known.at(400 * SECOND), 0);
        assert_eq!(Latency::default().at(SECOND), 0);
    }

    #[test]
    fn times_that_run_backwards_change_nothing() {
        let known = Latency::default().with(10 * MS, 10 * SECOND);
        assert_eq!(known.at(SECOND), 10 * MS);
        assert_eq!(known.with(5 * MS, SECOND), known);
        assert_eq!(known.with(20 * MS, SECOND).at(10 * SECOND), 20 * MS);
    }
}
