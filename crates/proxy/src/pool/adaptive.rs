//! How many requests a server may have at a time, found by how long it takes: more as long as more
//! make it no slower, fewer when they only wait inside it. TCP Vegas's way (Brakmo and Peterson 1995),
//! as in Netflix's concurrency-limits. Pure: windows of samples in, a bound out.
//!
//! What a server takes without a queue is the least mean of the windows of the last
//! [`BASE_WINDOWS`]: a mean and no single sample, because the quickest of many different requests
//! says nothing about a queue.

use crate::plan::AdaptivePlan;

/// What all cores saw of a server in one step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Answers that have begun.
    pub(crate) samples: u64,
    /// From the dispatch to the first byte, all together.
    pub(crate) sum_ns: u64,
    /// Requests that timed out, or whose connection failed.
    pub(crate) failed: u64,
    /// Requests that it has at the end.
    pub(crate) in_flight: usize,
}

/// A bound on its way.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    plan: AdaptivePlan,
    limit: f64,
    /// The least mean of this epoch and of the one before; 0: none yet.
    least_ns: [u64; 2],
    /// Windows in this epoch.
    windows: u32,
    /// What was not enough for a window yet.
    pending: Window,
}

/// A window with fewer samples waits for the next.
const SAMPLES_MIN: u64 = 10;
/// Half of the windows that the base is the least of.
const BASE_WINDOWS: u32 = 300;
/// More than this part of failures is too much.
const FAILED_PART: u64 = 10;
/// What is left of a bound then.
const AFTER_FAILURES: f64 = 0.9;

impl Limit {
    /// Begins low, and not at the least.
    pub(crate) fn new(plan: AdaptivePlan) -> Self {
        let limit = plan.max.min(plan.min.saturating_mul(4)) as f64;
        Self { plan, limit, least_ns: [0; 2], windows: 0, pending: Window::default() }
    }

    pub(crate) fn plan(&self) -> AdaptivePlan {
        self.plan
    }

    /// The bound.
    pub(crate) fn get(&self) -> usize {
        // It is within the plan's bounds, which are integers.
        (self.limit as usize).clamp(self.plan.min, self.plan.max.max(self.plan.min))
    }

    /// What becomes of it after one more window.
    pub(crate) fn update(&mut self, window: Window) -> usize {
        self.pending.samples += window.samples;
        self.pending.sum_ns += window.sum_ns;
        self.pending.failed += window.failed;
        self.pending.in_flight = self.pending.in_flight.max(window.in_flight);
        if self.pending.samples + self.pending.failed < SAMPLES_MIN {
            return self.get();
        }
        let window = std::mem::take(&mut self.pending);
        if window.failed * FAILED_PART > window.samples {
            self.set(self.limit * AFTER_FAILURES);
        } else {
            let mean_ns = (window.sum_ns / window.samples.max(1)).max(1);
            let base_ns = self.base_ns(mean_ns);
            self.follow(base_ns as f64 / mean_ns as f64, window.in_flight);
        }
        self.get()
    }

    /// `idle_part` is the part of the time that is no waiting.
    fn follow(&mut self, idle_part: f64, in_flight: usize) {
        let waiting = self.limit * (1.0 - idle_part);
        let step = self.limit.log10().max(1.0);
        let (few, many) = (3.0 * step, 6.0 * step);
        // A bound that nobody comes near to says nothing by not being felt.
        let is_felt = in_flight as f64 * 2.0 >= self.limit;
        if waiting > many {
            self.set(self.limit - step.max(self.limit * 0.05));
        } else if waiting < few && is_felt {
            self.set(self.limit + step);
        }
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(self.plan.min as f64, self.plan.max.max(self.plan.min) as f64);
    }

    /// The least mean of the last windows, this one included.
    fn base_ns(&mut self, mean_ns: u64) -> u64 {
        self.windows += 1;
        if self.windows > BASE_WINDOWS {
            self.windows = 1;
            self.least_ns = [0, self.least_ns[0]];
        }
        let least = |one: u64, other: u64| {
            if one == 0 || other == 0 { one.max(other) } else { one.min(other) }
        };
        self.least_ns[0] = least(self.least_ns[0], mean_ns);
        least(self.least_ns[0], self.least_ns[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A server of so many workers, each of which takes so long, with as many requests as allowed.
    struct Server {
        workers: usize,
        service_ns: u64,
        random: fastrand::Rng,
    }

    impl Server {
        fn window(&mut self, limit: usize) -> Window {
            // What does not fit waits inside it; times differ by a quarter.
            let stretch = (limit as f64 / self.workers as f64).max(1.0);
            let noise = 0.75 + 0.5 * self.random.f64();
            let samples = (self.workers.min(limit) * 5) as u64;
            let each_ns = self.service_ns as f64 * stretch * noise.mul_add(0.2, 0.8);
            Window { samples, sum_ns: samples * each_ns as u64, failed: 0, in_flight: limit }
        }

        fn settle(&mut self, limit: &mut Limit, windows: usize) -> usize {
            (0..windows).map(|_| limit.update(self.window(limit.get()))).last().unwrap()
        }
    }

    fn plan(min: usize, max: usize) -> AdaptivePlan {
        AdaptivePlan { min, max }
    }

    #[test]
    fn it_finds_what_a_server_can_do_and_follows_it() {
        for seed in 0..64 {
            let random = fastrand::Rng::with_seed(seed);
            let mut server = Server { workers: 50, service_ns: 20 * MS, random };
            let mut limit = Limit::new(plan(4, 1_000));
            let found = server.settle(&mut limit, 500);
            assert!((45..=80).contains(&found), "seed {seed}: {found}");
            server.workers = 10;
            let fewer = server.settle(&mut limit, 500);
            assert!((8..=35).contains(&fewer), "seed {seed}: {fewer}");
            server.workers = 100;
            let more = server.settle(&mut limit, 1_500);
            assert!((80..=150).contains(&more), "seed {seed}: {more}");
        }
    }

    #[test]
    fn a_server_that_became_slower_for_good_gets_its_load_again() {
        let random = fastrand::Rng::with_seed(1);
        let mut server = Server { workers: 50, service_ns: 20 * MS, random };
        let mut limit = Limit::new(plan(4, 1_000));
        server.settle(&mut limit, 500);
        server.service_ns = 60 * MS;
        assert!(server.settle(&mut limit, 250) <= 10);
        let found = server.settle(&mut limit, 1_500);
        assert!((45..=85).contains(&found), "{found}");
    }

    #[test]
    fn failures_lower_it_down_to_the_least() {
        let mut limit = Limit::new(plan(4, 100));
        assert_eq!(limit.get(), 16);
        let failing = Window { samples: 10, sum_ns: MS, failed: 10, in_flight: 16 };
        assert_eq!(limit.update(failing), 14);
        assert_eq!((0..50).map(|_| limit.update(failing)).last(), Some(4));
    }

    #[test]
    fn what_nobody_comes_near_to_does_not_grow() {
        let mut limit = Limit::new(plan(4, 100));
        let idle = Window { samples: 20, sum_ns: 20 * MS, failed: 0, in_flight: 2 };
        assert_eq!((0..500).map(|_| limit.update(idle)).last(), Some(16));
        // Too little to be sure of anything.
        let busy = Window { samples: 1, sum_ns: 90 * MS, failed: 0, in_flight: 16 };
        assert_eq!(limit.update(busy), 16);
    }

    #[test]
    fn it_stays_within_its_bounds_whatever_it_is_told() {
        for seed in 0..256 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (min, more) = (random.usize(1..20), random.usize(0..200));
            let mut limit = Limit::new(plan(min, min + more));
            for _ in 0..300 {
                let window = Window {
                    samples: random.u64(..50),
                    sum_ns: random.u64(..u64::from(u32::MAX)),
                    failed: random.u64(..5),
                    in_flight: random.usize(..300),
                };
                assert!((min..=min + more).contains(&limit.update(window)), "seed {seed}");
            }
        }
    }
}
