//! Adaptive request limit of a server, derived from its latency. The limit grows as long as more
//! requests do not slow the server down, and shrinks when requests only wait inside it. The
//! algorithm is TCP Vegas (Brakmo and Peterson 1995), as in Netflix's concurrency-limits. Pure:
//! samples in, a limit out.
//!
//! The latency without a queue is the minimum mean of the last [`BASE_WINDOWS`] windows. It is a
//! mean and not a single sample, because the fastest of many different requests says nothing about
//! a queue.

use crate::plan::{AdaptivePlan, PoolPlan, ServerPlan};

/// Returns the bounds of a server's adaptive limit, capped by its own `maxconn`.
pub(super) fn adaptive_plan(pool: &PoolPlan, server: &ServerPlan) -> Option<AdaptivePlan> {
    let AdaptivePlan { min, max } = pool.overload_limits.adaptive?;
    let maxconn = server.maxconn.unwrap_or(usize::MAX);
    Some(AdaptivePlan { min: min.min(maxconn), max: max.min(maxconn) })
}

pub(super) fn initial_limit(pool: &PoolPlan, server: &ServerPlan) -> Option<usize> {
    adaptive_plan(pool, server).map(|plan| AdaptiveLimit::new(plan).get()).or(server.maxconn)
}

/// Samples of a server from all cores in one time step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatencyWindow {
    /// Number of responses that have begun.
    pub(crate) samples: u64,
    /// Sum of the times from the dispatch to the first byte.
    pub(crate) sum_ns: u64,
    /// Number of requests that timed out, or whose connection failed.
    pub(crate) failed: u64,
    /// Requests in flight at the end of the step.
    pub in_flight: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct AdaptiveLimit {
    plan: AdaptivePlan,
    limit: f64,
    /// Minimum mean of this epoch and of the previous one; 0: none yet.
    min_mean_ns: [u64; 2],
    windows: u32,
    /// Samples collected so far, too few for a window.
    pending: LatencyWindow,
}

/// Minimum samples of a window; smaller windows are merged with the next.
const SAMPLES_MIN: u64 = 10;
/// Number of windows in an epoch, which is half of the windows for the base latency.
const BASE_WINDOWS: u32 = 300;
/// Divisor of the samples: more failures than this part of them (a tenth) lower the limit.
const FAILED_DIVISOR: u64 = 10;
/// Factor of the limit after too many failures.
const FAILURE_FACTOR: f64 = 0.9;

impl AdaptiveLimit {
    /// Starts low, but above the minimum.
    pub(super) fn new(plan: AdaptivePlan) -> Self {
        let limit = plan.max.min(plan.min.saturating_mul(4)) as f64;
        Self { plan, limit, min_mean_ns: [0; 2], windows: 0, pending: LatencyWindow::default() }
    }

    pub(super) fn plan(&self) -> AdaptivePlan {
        self.plan
    }

    pub(crate) fn get(&self) -> usize {
        // The value is within the plan's bounds, which are integers.
        (self.limit as usize).clamp(self.plan.min, self.plan.max.max(self.plan.min))
    }

    pub(crate) fn update(&mut self, window: LatencyWindow) -> usize {
        self.pending.samples += window.samples;
        self.pending.sum_ns += window.sum_ns;
        self.pending.failed += window.failed;
        self.pending.in_flight = self.pending.in_flight.max(window.in_flight);
        if self.pending.samples + self.pending.failed < SAMPLES_MIN {
            return self.get();
        }
        let window = std::mem::take(&mut self.pending);
        if window.failed * FAILED_DIVISOR > window.samples {
            self.set(self.limit * FAILURE_FACTOR);
        } else {
            let mean_ns = (window.sum_ns / window.samples.max(1)).max(1);
            let base_ns = self.update_base_ns(mean_ns);
            self.adjust(base_ns as f64 / mean_ns as f64, window.in_flight);
        }
        self.get()
    }

    /// Follows the latency. `unqueued_fraction` is the fraction of the time without waiting.
    fn adjust(&mut self, unqueued_fraction: f64, in_flight: usize) {
        let queued = self.limit * (1.0 - unqueued_fraction);
        let step = self.limit.log10().max(1.0);
        let (alpha, beta) = (3.0 * step, 6.0 * step);
        // While few requests are in flight, good latency does not show that the limit could grow.
        let is_utilised = in_flight as f64 * 2.0 >= self.limit;
        if queued > beta {
            self.set(self.limit - step.max(self.limit * 0.05));
        } else if queued < alpha && is_utilised {
            self.set(self.limit + step);
        }
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(self.plan.min as f64, self.plan.max.max(self.plan.min) as f64);
    }

    /// Returns the minimum mean of the last windows, including this one.
    fn update_base_ns(&mut self, mean_ns: u64) -> u64 {
        self.windows += 1;
        if self.windows > BASE_WINDOWS {
            self.windows = 1;
            self.min_mean_ns = [0, self.min_mean_ns[0]];
        }
        let min_known = |left: u64, right: u64| {
            if left == 0 || right == 0 { left.max(right) } else { left.min(right) }
        };
        self.min_mean_ns[0] = min_known(self.min_mean_ns[0], mean_ns);
        min_known(self.min_mean_ns[0], self.min_mean_ns[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A server with this many workers and this time per request, under as many requests as
    /// allowed.
    struct SimulatedServer {
        workers: usize,
        service_ns: u64,
        random: fastrand::Rng,
    }

    impl SimulatedServer {
        fn window(&mut self, limit: usize) -> LatencyWindow {
            // Requests beyond the workers wait inside the server; times differ by a quarter.
            let stretch = (limit as f64 / self.workers as f64).max(1.0);
            let noise = 0.75 + 0.5 * self.random.f64();
            let samples = (self.workers.min(limit) * 5) as u64;
            let each_ns = self.service_ns as f64 * stretch * noise.mul_add(0.2, 0.8);
            LatencyWindow { samples, sum_ns: samples * each_ns as u64, failed: 0, in_flight: limit }
        }

        fn run_windows(&mut self, limit: &mut AdaptiveLimit, windows: usize) -> usize {
            (0..windows).map(|_| limit.update(self.window(limit.get()))).last().unwrap()
        }
    }

    fn plan(min: usize, max: usize) -> AdaptivePlan {
        AdaptivePlan { min, max }
    }

    #[test]
    fn it_reaches_the_capacity_of_a_server_and_adjusts_to_changes() {
        for seed in 0..64 {
            let random = fastrand::Rng::with_seed(seed);
            let mut server = SimulatedServer { workers: 50, service_ns: 20 * MS, random };
            let mut limit = AdaptiveLimit::new(plan(4, 1_000));
            let reached = server.run_windows(&mut limit, 500);
            assert!((45..=80).contains(&reached), "seed {seed}: {reached}");
            server.workers = 10;
            let fewer = server.run_windows(&mut limit, 500);
            assert!((8..=35).contains(&fewer), "seed {seed}: {fewer}");
            server.workers = 100;
            let more = server.run_windows(&mut limit, 1_500);
            assert!((80..=150).contains(&more), "seed {seed}: {more}");
        }
    }

    #[test]
    fn a_server_that_became_slower_for_good_gets_its_load_again() {
        let random = fastrand::Rng::with_seed(1);
        let mut server = SimulatedServer { workers: 50, service_ns: 20 * MS, random };
        let mut limit = AdaptiveLimit::new(plan(4, 1_000));
        server.run_windows(&mut limit, 500);
        server.service_ns = 60 * MS;
        assert!(server.run_windows(&mut limit, 250) <= 10);
        let reached = server.run_windows(&mut limit, 1_500);
        assert!((45..=85).contains(&reached), "{reached}");
    }

    #[test]
    fn failures_lower_it_down_to_the_minimum() {
        let mut limit = AdaptiveLimit::new(plan(4, 100));
        assert_eq!(limit.get(), 16);
        let failing = LatencyWindow { samples: 10, sum_ns: MS, failed: 10, in_flight: 16 };
        assert_eq!(limit.update(failing), 14);
        assert_eq!((0..50).map(|_| limit.update(failing)).last(), Some(4));
    }

    #[test]
    fn an_unused_limit_does_not_grow() {
        let mut limit = AdaptiveLimit::new(plan(4, 100));
        let idle = LatencyWindow { samples: 20, sum_ns: 20 * MS, failed: 0, in_flight: 2 };
        assert_eq!((0..500).map(|_| limit.update(idle)).last(), Some(16));
        // Too few samples for any conclusion.
        let busy = LatencyWindow { samples: 1, sum_ns: 90 * MS, failed: 0, in_flight: 16 };
        assert_eq!(limit.update(busy), 16);
    }

    #[test]
    fn it_stays_within_its_bounds_for_any_samples() {
        for seed in 0..256 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (min, span) = (random.usize(1..20), random.usize(0..200));
            let mut limit = AdaptiveLimit::new(plan(min, min + span));
            for _ in 0..300 {
                let window = LatencyWindow {
                    samples: random.u64(..50),
                    sum_ns: random.u64(..u64::from(u32::MAX)),
                    failed: random.u64(..5),
                    in_flight: random.usize(..300),
                };
                assert!((min..=min + span).contains(&limit.update(window)), "seed {seed}");
            }
        }
    }
}
