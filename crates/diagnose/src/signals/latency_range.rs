//! Ranges of latencies, and the requests in them. Thresholds of verdicts are elsewhere.

use record::histogram::LatencyHistogram;
use record::observed::RoleUse;

use crate::figures as f;
use crate::run_view::RunView;
use crate::window::SUBJECT;

/// Minimum fraction of the requests in a cluster.
const FRACTION_MIN: f64 = 0.002;
/// Minimum number of requests in a cluster.
const REQUESTS_MIN: f64 = 5.0;
/// Minimum ratio of its density to that of its surroundings.
const DENSITY_RATIO_MIN: f64 = 3.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyRange {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl LatencyRange {
    pub(crate) fn fraction_of(self, latencies: &LatencyHistogram) -> f64 {
        if latencies.is_empty() {
            return 0.0;
        }
        (latencies.fraction_within(self.to_ns) - latencies.fraction_within(self.from_ns)).max(0.0)
    }

    /// Returns the fraction of the requests that cluster in the range, if they do, compared with as much
    /// time on either side.
    pub(crate) fn clustered_fraction_of(self, latencies: &LatencyHistogram) -> Option<f64> {
        let width = self.to_ns - self.from_ns;
        let above = Self { from_ns: self.to_ns, to_ns: self.to_ns + width };
        let fraction = self.starting_fraction_of(latencies)?;
        (fraction >= above.fraction_of(latencies) * DENSITY_RATIO_MIN).then_some(fraction)
    }

    /// Returns the same compared with as much time below it only: what takes this time at least, and some more for
    /// other work.
    pub(crate) fn starting_fraction_of(self, latencies: &LatencyHistogram) -> Option<f64> {
        let fraction = self.fraction_of(latencies);
        let width = self.to_ns - self.from_ns;
        let below = Self { from_ns: self.from_ns.saturating_sub(width), to_ns: self.from_ns };
        let is_enough = fraction >= FRACTION_MIN && fraction * latencies.count() as f64 >= REQUESTS_MIN;
        (is_enough && fraction >= below.fraction_of(latencies) * DENSITY_RATIO_MIN).then_some(fraction)
    }
}

/// Returns the number of threads that work in parallel; less busy threads count as a fraction of
/// the busiest.
fn parallel_threads(role: &RoleUse) -> Option<f64> {
    let busiest = (f::BUSIEST_THREAD.read)(role).filter(|busiest| *busiest > 0.0)?;
    Some((f::RUNNING.read)(role)? / busiest)
}

/// Returns the latency range of a quota's pause, a fifth to either side: the rest of its period
/// after the parallel threads have used up the quota.
pub(crate) fn quota_pause(view: &RunView<'_>) -> Option<LatencyRange> {
    const SHORTEST_NS: f64 = 1e6;
    let quota = view.role_median(SUBJECT, f::QUOTA.read)?;
    let period_s = view.role_median(SUBJECT, |role| role.cgroup.as_ref()?.period_s)?;
    let allowed = view.machine(SUBJECT)?.cpus_by_affinity(SUBJECT)?;
    let threads = view.role_median(SUBJECT, parallel_threads)?.min(allowed);
    let pause_ns = period_s * (1.0 - quota / threads).max(0.0) * 1e9;
    let range = LatencyRange { from_ns: (pause_ns * 0.8) as u64, to_ns: (pause_ns * 1.2) as u64 };
    (pause_ns >= SHORTEST_NS).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn latencies(counts: &[(u64, usize)]) -> LatencyHistogram {
        let mut latencies = LatencyHistogram::new();
        for &(ns, count) in counts {
            (0..count).for_each(|_| latencies.record(ns));
        }
        latencies
    }

    #[test]
    fn clustered_requests_are_a_fingerprint_and_a_slope_is_not() {
        let range = LatencyRange { from_ns: 39 * MS, to_ns: 48 * MS };
        let stalled = latencies(&[(MS, 900), (44 * MS, 100)]);
        assert!((range.clustered_fraction_of(&stalled).unwrap() - 0.1).abs() < 1e-6);
        let slope = latencies(&(20..80).map(|ms| (ms * MS, 20)).collect::<Vec<_>>());
        assert_eq!(range.clustered_fraction_of(&slope), None);
        let few = latencies(&[(MS, 1_000), (44 * MS, 4)]);
        assert_eq!(range.clustered_fraction_of(&few), None);
        assert_eq!(range.clustered_fraction_of(&LatencyHistogram::new()), None);
        // A stall of 40 ms and up to 16 ms of work.
        let with_work = latencies(&(40..56).map(|ms| (ms * MS, 50)).collect::<Vec<_>>());
        assert_eq!(range.clustered_fraction_of(&with_work), None);
        assert!(range.starting_fraction_of(&with_work).is_some_and(|fraction| fraction > 0.5));
        assert_eq!(range.starting_fraction_of(&slope), None);
    }
}
