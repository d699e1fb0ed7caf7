//! Due times of requests, as a pure function of the number of earlier ones: no clock, no socket.
//!
//! A load that ramps up has the rate `R·t/T` until `T` and `R` from then on, so the expected number
//! of requests until `t` is `Λ(t) = R·t²/2T`, then `R·(t − T/2)`. The request at position `p` is
//! due at `Λ⁻¹(p)`. Constant arrivals have the positions 0, 1, 2…; Poisson arrivals are a Poisson
//! process of rate 1 in the positions, which makes them one of rate `R(t)` in time.

use serde::Serialize;

use crate::plan::Arrivals;

/// Source of the pace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "loop", rename_all = "snake_case")]
pub enum Pace {
    /// A connection sends its next request when the previous one ended, after the think time.
    Closed {
        /// Time between the end of a request and the next, in ns.
        think_ns: u64,
    },
    /// Requests are due by the clock, independently of the subject.
    Open {
        /// Requests per second, over all cores.
        rate_per_s: f64,
        /// Distribution over time.
        arrivals: Arrivals,
    },
}

/// Due times of one core's part of an open loop, in ns after the start, without an end.
#[derive(Clone, Debug)]
pub struct DueTimes {
    rate_per_s: f64,
    ramp_s: f64,
    arrivals: Arrivals,
    /// Number of cores of the load: this core has every `step`-th position.
    step: f64,
    position: f64,
    random: fastrand::Rng,
}

impl DueTimes {
    /// Returns the part of core `core` of `cores`. The same seed gives the same times.
    #[must_use]
    pub fn new(
        rate_per_s: f64,
        arrivals: Arrivals,
        ramp_ns: u64,
        (core, cores): (usize, usize),
        seed: u64,
    ) -> Self {
        let mut times = Self {
            rate_per_s,
            ramp_s: ramp_ns as f64 / 1e9,
            arrivals,
            step: cores as f64,
            position: core as f64,
            random: fastrand::Rng::with_seed(seed.wrapping_add(core as u64)),
        };
        if arrivals == Arrivals::Poisson {
            // Each core has its own process with 1/cores of the rate; their sum has the full rate.
            times.position = times.exponential();
        }
        times
    }

    fn exponential(&mut self) -> f64 {
        // f64() is in [0, 1), so the logarithm is of (0, 1] and finite.
        -(1.0 - self.random.f64()).ln() * self.step
    }

    /// Returns the due time of the request at the expected position `position`, in seconds.
    fn due_s(&self, position: f64) -> f64 {
        let in_ramp = self.rate_per_s * self.ramp_s / 2.0;
        if position < in_ramp {
            (2.0 * self.ramp_s * position / self.rate_per_s).sqrt()
        } else {
            self.ramp_s / 2.0 + position / self.rate_per_s
        }
    }
}

impl Iterator for DueTimes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let due_ns = (self.due_s(self.position) * 1e9) as u64;
        self.position += match self.arrivals {
            Arrivals::Constant => self.step,
            Arrivals::Poisson => self.exponential(),
        };
        Some(due_ns)
    }
}

/// Returns the start of connection `index` of `count` in a ramp, in ns after the start of the run.
#[must_use]
pub fn ramp_slot_ns(index: u64, count: u64, ramp_ns: u64) -> u64 {
    (u128::from(ramp_ns) * u128::from(index) / u128::from(count.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn merged(arrivals: Arrivals, rate: f64, ramp_ns: u64, cores: usize, until_s: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..cores)
            .flat_map(|core| {
                DueTimes::new(rate, arrivals, ramp_ns, (core, cores), 7)
                    .take_while(move |&due_ns| due_ns < until_s * SECOND_NS)
            })
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn constant_arrivals_are_even_over_all_cores() {
        let times = merged(Arrivals::Constant, 1000.0, 0, 3, 2);
        assert_eq!(times.len(), 2000);
        assert!(times.windows(2).all(|pair| (999_999..=1_000_001).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn a_ramp_offers_half_of_the_rate_over_its_time() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let times = merged(arrivals, 10_000.0, 4 * SECOND_NS, 2, 6);
            let count = |from, to| {
                let within = |t: &&u64| (from * SECOND_NS..to * SECOND_NS).contains(*t);
                times.iter().filter(within).count() as f64
            };
            assert!((count(0, 4) / 20_000.0 - 1.0).abs() < 0.02);
            assert!((count(0, 2) / 5_000.0 - 1.0).abs() < 0.05);
            assert!((count(4, 6) / 20_000.0 - 1.0).abs() < 0.02);
        }
    }

    /// Kolmogorov–Smirnov test against the exponential distribution; the bound is the 0.1 % point
    /// (Massey 1951, asymptotic form).
    #[test]
    fn poisson_gaps_are_exponential_and_independent() {
        for cores in [1, 4] {
            let times = merged(Arrivals::Poisson, 5_000.0, 0, cores, 10);
            let mut gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect();
            let n = gaps.len() as f64;
            assert!((n / 50_000.0 - 1.0).abs() < 0.02, "{n}");
            let mean = gaps.iter().sum::<f64>() / n;
            let lagged: f64 = gaps.windows(2).map(|g| (g[0] - mean) * (g[1] - mean)).sum();
            let variance: f64 = gaps.iter().map(|g| (g - mean).powi(2)).sum();
            assert!((lagged / variance).abs() < 3.3 / n.sqrt());
            gaps.sort_by(f64::total_cmp);
            let distance = gaps.iter().enumerate().map(|(index, gap)| {
                let expected = 1.0 - (-gap * 5_000.0).exp();
                (expected - index as f64 / n).abs().max((expected - (index + 1) as f64 / n).abs())
            });
            let distance = distance.fold(0.0, f64::max);
            assert!(distance < 1.95 / n.sqrt(), "{distance}");
        }
    }

    #[test]
    fn connections_start_evenly_over_the_ramp() {
        let slots: Vec<_> = (0..4).map(|index| ramp_slot_ns(index, 4, 1000)).collect();
        assert_eq!(slots, [0, 250, 500, 750]);
        assert_eq!(ramp_slot_ns(0, 0, 1000), 0);
    }
}
