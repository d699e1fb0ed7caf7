//! Due times of requests, as a pure function of the number of earlier ones: no clock, no socket.
//!
//! A load that ramps up has the rate `R·t/T` until `T` and `R` from then on, so the expected number
//! of requests until `t` is `Λ(t) = R·t²/2T`, then `R·(t − T/2)`. Stages are several such ramps. The
//! request at position `p` is due at `Λ⁻¹(p)`. Constant arrivals have the positions 0, 1, 2…; Poisson arrivals are a Poisson
//! process of rate 1 in the positions, which makes them one of rate `R(t)` in time.

use serde::Serialize;

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

/// Distribution of an open loop's requests over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At even intervals.
    Constant,
    /// As a Poisson process: like many independent users.
    Poisson,
}

/// Rate over time: linear parts, and then a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct RateProfile {
    parts: Vec<RatePart>,
}

/// Part of a profile in which the rate changes evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RatePart {
    start_s: f64,
    length_s: f64,
    from_per_s: f64,
    to_per_s: f64,
    /// Expected number of requests before it.
    position: f64,
}

impl RatePart {
    /// Returns the expected number of requests until `at_s` after the start of the profile.
    #[inline]
    fn requests_until(&self, at_s: f64) -> f64 {
        let t = (at_s - self.start_s).clamp(0.0, self.length_s);
        let slope = if self.length_s.is_finite() && self.length_s > 0.0 {
            (self.to_per_s - self.from_per_s) / self.length_s
        } else {
            0.0
        };
        self.position + self.from_per_s * t + slope * t * t / 2.0
    }

    /// Returns the time at which the expected number of requests is `position`.
    #[inline]
    fn due_s(&self, position: f64) -> f64 {
        let wanted = position - self.position;
        let slope =
            if self.length_s.is_finite() { (self.to_per_s - self.from_per_s) / self.length_s } else { 0.0 };
        // The stable form of the quadratic's root, also for a slope of 0.
        let root = (self.from_per_s * self.from_per_s + 2.0 * slope * wanted).max(0.0).sqrt();
        let t = if wanted <= 0.0 { 0.0 } else { 2.0 * wanted / (self.from_per_s + root) };
        self.start_s + t.min(self.length_s)
    }
}

impl RateProfile {
    /// Returns the profile of a constant rate with a ramp before it.
    #[must_use]
    pub fn constant(rate_per_s: f64, ramp_ns: u64) -> Self {
        let mut profile = Self { parts: Vec::new() };
        if ramp_ns > 0 {
            profile.push(ramp_ns as f64 / 1e9, 0.0, rate_per_s);
        }
        profile.push(f64::INFINITY, rate_per_s, rate_per_s);
        profile
    }

    /// Returns the profile that rises and falls to each target within its time, in s and 1/s. It begins
    /// with the first target if that has no time, and with 0 otherwise.
    #[must_use]
    pub fn stages(stages: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut profile, mut rate_per_s) = (Self { parts: Vec::new() }, 0.0);
        for (length_s, target_per_s) in stages {
            if length_s > 0.0 {
                profile.push(length_s, rate_per_s, target_per_s);
            }
            rate_per_s = target_per_s;
        }
        profile.push(f64::INFINITY, rate_per_s, rate_per_s);
        profile
    }

    fn push(&mut self, length_s: f64, from_per_s: f64, to_per_s: f64) {
        let (start_s, position) = self.parts.last().map_or((0.0, 0.0), |last| {
            let end_s = last.start_s + last.length_s;
            (end_s, last.requests_until(end_s))
        });
        self.parts.push(RatePart { start_s, length_s, from_per_s, to_per_s, position });
    }

    /// Returns the expected number of requests until `at_s`.
    #[inline]
    fn requests_until(&self, at_s: f64) -> f64 {
        let part = self.parts.iter().rev().find(|part| part.start_s <= at_s).or_else(|| self.parts.first());
        part.map_or(0.0, |part| part.requests_until(at_s))
    }

    /// Returns the rate at `at_s`, or the value of a profile of another quantity.
    #[inline]
    pub fn value_at(&self, at_s: f64) -> f64 {
        let part = self.parts.iter().rev().find(|part| part.start_s <= at_s).or_else(|| self.parts.first());
        part.map_or(0.0, |part| match part.length_s.is_finite() {
            true => {
                let fraction = ((at_s - part.start_s) / part.length_s).clamp(0.0, 1.0);
                part.from_per_s + (part.to_per_s - part.from_per_s) * fraction
            }
            false => part.to_per_s,
        })
    }

    /// Returns the first time from `at_s` at which the value is above `level`; `None` if it never is.
    #[inline]
    pub fn next_above(&self, level: f64, at_s: f64) -> Option<f64> {
        if self.value_at(at_s) > level {
            return Some(at_s);
        }
        let parts = self.parts.iter().filter(|part| part.start_s + part.length_s > at_s);
        let mut times = parts.filter_map(|part| {
            if part.from_per_s > level && part.start_s >= at_s {
                return Some(part.start_s);
            }
            let rises = part.length_s.is_finite() && part.to_per_s > level && part.to_per_s > part.from_per_s;
            let fraction = (level - part.from_per_s) / (part.to_per_s - part.from_per_s);
            // A little later, so that the value is above the level despite rounding.
            rises.then(|| (part.start_s + part.length_s * fraction).max(at_s) + 1e-6)
        });
        times.next()
    }
}

/// Due times of one core's part of an open loop, in ns after the start, without an end.
#[derive(Clone, Debug)]
pub struct DueTimes {
    profile: RateProfile,
    part: usize,
    arrivals: Arrivals,
    /// Number of cores of the load: this core has every `step`-th position.
    step: f64,
    position: f64,
    random: fastrand::Rng,
    /// Factor of the rate, from `base` on.
    factor: f64,
    /// Position, and expected number of requests of the profile, of the last change of the factor.
    base: (f64, f64),
}

impl DueTimes {
    /// Returns the part of core `core` of `cores`. The same seed gives the same times.
    #[must_use]
    pub fn new(profile: RateProfile, arrivals: Arrivals, (core, cores): (usize, usize), seed: u64) -> Self {
        let mut times = Self {
            profile,
            part: 0,
            arrivals,
            step: cores as f64,
            position: core as f64,
            random: fastrand::Rng::with_seed(seed.wrapping_add(core as u64)),
            factor: 1.0,
            base: (0.0, 0.0),
        };
        if arrivals == Arrivals::Poisson {
            // Each core has its own process with 1/cores of the rate; their sum has the full rate.
            times.position = times.exponential();
        }
        times
    }

    /// Shifts constant arrivals by a fraction of the time between two requests of all cores.
    #[must_use]
    pub fn shifted(mut self, phase: f64) -> Self {
        if self.arrivals == Arrivals::Constant {
            self.position += phase;
        }
        self
    }

    #[inline]
    fn exponential(&mut self) -> f64 {
        // f64() is in [0, 1), so the logarithm is of (0, 1] and finite.
        -(1.0 - self.random.f64()).ln() * self.step
    }

    /// Changes the rate to `factor` times that of the profile, from `now_ns` after the start on.
    #[inline]
    pub fn set_factor(&mut self, factor: f64, now_ns: u64) {
        let profile_position = self.profile.requests_until(now_ns as f64 / 1e9);
        let (base, base_profile) = self.base;
        self.base = (base + (profile_position - base_profile) * self.factor, profile_position);
        self.factor = factor;
        self.part = 0;
    }

    /// Returns the due time of the next request; `u64::MAX` if none is due with the current rate.
    #[inline]
    pub fn peek(&mut self) -> u64 {
        let (base, base_profile) = self.base;
        let position = base_profile + (self.position - base) / self.factor;
        if !position.is_finite() {
            return u64::MAX;
        }
        while self.profile.parts.get(self.part + 1).is_some_and(|next| next.position <= position) {
            self.part += 1;
        }
        let due_s = self.profile.parts.get(self.part).map_or(f64::INFINITY, |part| part.due_s(position));
        // A rate of 0 gives an infinite time, which saturates.
        (due_s * 1e9) as u64
    }

    /// Goes on to the first request that is due after `until_ns`. Returns the number of those before it. The
    /// time that it takes does not depend on their number.
    #[inline]
    pub fn skip_until(&mut self, until_ns: u64) -> u64 {
        let (base, base_profile) = self.base;
        let profile_position = self.profile.requests_until(until_ns as f64 / 1e9);
        let last = base + (profile_position - base_profile) * self.factor;
        if self.position.is_nan() || self.position > last {
            return 0;
        }
        match self.arrivals {
            Arrivals::Constant => {
                let count = ((last - self.position) / self.step).floor() + 1.0;
                self.position += count * self.step;
                count as u64
            }
            Arrivals::Poisson => {
                let count = 1 + poisson((last - self.position) / self.step, &mut self.random);
                // The process has no memory, so the time from here to the next request is exponential again.
                self.position = last + self.exponential();
                count
            }
        }
    }

    /// Goes on to the request after the next.
    #[inline]
    pub fn advance(&mut self) {
        self.position += match self.arrivals {
            Arrivals::Constant => self.step,
            Arrivals::Poisson => self.exponential(),
        };
    }
}

impl Iterator for DueTimes {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let due_ns = self.peek();
        self.advance();
        Some(due_ns)
    }
}

/// Mean from which a Poisson distribution is taken for a normal one.
const POISSON_NORMAL_MIN: f64 = 500.0;

#[inline]
fn poisson(mean: f64, random: &mut fastrand::Rng) -> u64 {
    if mean >= POISSON_NORMAL_MIN {
        // Box and Muller; the logarithm is of (0, 1].
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
        return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
    }
    let (mut count, mut position) = (0, 0.0);
    loop {
        position -= (1.0 - random.f64()).ln();
        if position > mean {
            return count;
        }
        count += 1;
    }
}

/// Length of the slices of time whose requests without a response are counted together. Seconds of the run are
/// a multiple of it.
const SLICE_NS: u64 = 1_000_000;

/// Returns the last time of the slice with `at_ns`, in a load that starts at `start_ns`.
#[inline]
pub fn slice_end_ns(start_ns: u64, at_ns: u64) -> u64 {
    let slices = at_ns.saturating_sub(start_ns) / SLICE_NS + 1;
    start_ns.saturating_add(slices * SLICE_NS) - 1
}

/// Returns the start of connection `index` of `count` in a ramp, in ns after the start of the run.
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
                DueTimes::new(RateProfile::constant(rate, ramp_ns), arrivals, (core, cores), 7)
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
    fn skipped_requests_are_those_that_single_steps_find() {
        for (rate, ramp_ns, cores) in [(1_000.0, 0, 3), (977.0, 2 * SECOND_NS, 2), (0.001, 0, 1)] {
            for until_ns in [0, 1, SECOND_NS / 3, SECOND_NS, 5 * SECOND_NS + 7] {
                let profile = || RateProfile::constant(rate, ramp_ns);
                let mut single = DueTimes::new(profile(), Arrivals::Constant, (1 % cores, cores), 7);
                let mut skipped = single.clone();
                let mut count = 0;
                while single.peek() <= until_ns {
                    single.advance();
                    count += 1;
                }
                assert_eq!((skipped.skip_until(until_ns), skipped.peek()), (count, single.peek()));
                assert_eq!(skipped.skip_until(until_ns), 0);
            }
        }
    }

    #[test]
    fn skipped_requests_of_any_rate_are_counted() {
        for (arrivals, deviation) in [(Arrivals::Constant, 0.0), (Arrivals::Poisson, 6.0)] {
            for rate in [10.0, 400.0, 1e5, 1e9] {
                let mut times = DueTimes::new(RateProfile::constant(rate, 0), arrivals, (0, 1), 3);
                let mut count = 0;
                for second in 1..=10 {
                    count += times.skip_until(second * SECOND_NS - 1);
                    assert!(times.peek() + 1 >= second * SECOND_NS);
                }
                let expected = rate * 10.0;
                assert!(
                    (count as f64 - expected).abs() <= deviation * expected.sqrt() + 1.0,
                    "{rate}: {count}"
                );
            }
        }
        // Times of 1,000 periods of 1 ms each, with a mean of 2: the variance is that of the distribution.
        let mut times = DueTimes::new(RateProfile::constant(2_000.0, 0), Arrivals::Poisson, (0, 1), 5);
        let counts: Vec<f64> = (1..=1_000).map(|ms| times.skip_until(ms * 1_000_000) as f64).collect();
        let mean = counts.iter().sum::<f64>() / 1_000.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 1_000.0;
        assert!((mean - 2.0).abs() < 0.3 && (variance - 2.0).abs() < 0.5, "{mean} {variance}");
    }

    #[test]
    fn a_slice_ends_before_the_next_millisecond_of_the_run() {
        assert_eq!(slice_end_ns(7, 7), 1_000_006);
        assert_eq!(slice_end_ns(7, 1_000_006), 1_000_006);
        assert_eq!(slice_end_ns(7, 1_000_007), 2_000_006);
    }

    #[test]
    fn shifted_slices_are_even_together() {
        let slice = |phase| {
            DueTimes::new(RateProfile::constant(250.0, 0), Arrivals::Constant, (0, 1), 1).shifted(phase)
        };
        let mut times: Vec<u64> =
            [0.0, 0.25, 0.5, 0.75].into_iter().flat_map(|at| slice(at).take(100)).collect();
        times.sort_unstable();
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
    #[inline]
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
    fn stages_offer_the_area_under_their_lines() {
        let stages = [(2.0, 100.0), (1.0, 100.0), (0.0, 400.0), (1.0, 400.0), (2.0, 0.0)];
        let profile = RateProfile::stages(stages.into_iter());
        let times: Vec<u64> = DueTimes::new(profile.clone(), Arrivals::Constant, (0, 1), 1)
            .take_while(|at| *at < u64::MAX)
            .collect();
        let count = |from: f64, to: f64| {
            times.iter().filter(|at| (from..to).contains(&(**at as f64 / 1e9))).count() as f64
        };
        for (from, to, expected) in
            [(0.0, 2.0, 100.0), (2.0, 3.0, 100.0), (3.0, 4.0, 400.0), (4.0, 6.1, 400.0)]
        {
            assert!((count(from, to) - expected).abs() <= 2.0, "{from} to {to}: {}", count(from, to));
        }
        assert_eq!((profile.value_at(1.0), profile.value_at(3.5), profile.value_at(7.0)), (50.0, 400.0, 0.0));
        let above = profile.next_above(200.0, 0.0).unwrap();
        assert!((3.0..3.001).contains(&above), "{above}");
        assert_eq!(profile.next_above(200.0, 5.5), None);
        let half = profile.next_above(50.0, 0.0).unwrap();
        assert!((half - 1.0).abs() < 1e-3 && profile.value_at(half) > 50.0);
    }

    #[test]
    fn a_factor_changes_the_rate_from_its_time_on() {
        let mut times = DueTimes::new(RateProfile::constant(1000.0, 0), Arrivals::Constant, (0, 1), 1);
        let mut counts = [0; 3];
        for (second, factor) in [(1, 1.0), (2, 3.0), (3, 0.5)] {
            times.set_factor(factor, (second - 1) * SECOND_NS);
            while times.peek() < second * SECOND_NS {
                assert!(times.peek() + 3_000_000 >= (second - 1) * SECOND_NS);
                counts[second as usize - 1] += 1;
                times.advance();
            }
        }
        assert!((999..=1001).contains(&counts[0]) && (2998..=3002).contains(&counts[1]), "{counts:?}");
        assert!((498..=502).contains(&counts[2]), "{counts:?}");
        times.set_factor(0.0, 3 * SECOND_NS);
        assert_eq!(times.peek(), u64::MAX);
    }

    #[test]
    fn connections_start_evenly_over_the_ramp() {
        let slots: Vec<_> = (0..4).map(|index| ramp_slot_ns(index, 4, 1000)).collect();
        assert_eq!(slots, [0, 250, 500, 750]);
        assert_eq!(ramp_slot_ns(0, 0, 1000), 0);
    }
}
