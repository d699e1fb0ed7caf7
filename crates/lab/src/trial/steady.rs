//! When a rate became steady, and how long a warm-up has to be: from rates by the second. Pure.
//!
//! The rule: the rate is steady from the first second on after which (a) the median of the next
//! [`NEXT`] seconds is within [`TOLERANCE`] of the median of the tail, (b) that second itself is none
//! of the start's, and (c) the slope from there to the end (Theil and Sen) is not told from 0. The
//! tolerance is widened by the series' own noise, as its median absolute deviation tells it: a noisy
//! rate is not called unsteady for its noise. A rate that never gets there is said to be never steady
//! (Barrett et al., OOPSLA 2017, arXiv 1602.00602: that is common).
//!
//! Not for discarding anything.

use record::trial::{Steady, Trial};

use super::view::{GENERATOR, View};
use crate::statistics::median;

/// Seconds of which the median is taken.
pub const NEXT: usize = 5;
/// How far that median may be from the tail's.
pub const TOLERANCE: f64 = 0.02;
/// Fewest seconds that say anything: more than the tail has.
pub const SECONDS_MIN: usize = NEXT + 1;
/// The tail is the last of so many parts, and at least [`NEXT`] seconds.
const TAIL_PART: usize = 3;
/// How many standard deviations of a median of [`NEXT`] the widened tolerance is.
const WIDER: f64 = 2.0;
/// How many of a single second's.
const WIDER_SECOND: f64 = 3.5;
/// Of a normal distribution: its standard deviation over its median absolute deviation.
const DEVIATION_OVER_MAD: f64 = 1.4826;
/// Of a normal distribution: standard deviation of a median of many over that of a mean of as many.
const MEDIAN_OVER_MEAN: f64 = 1.2533;
/// Two-sided 95 % of a normal distribution, for the slope's interval.
const SLOPE_Z: f64 = 1.96;
/// The shortest second that counts as one.
const SECOND_S_MIN: f64 = 0.9;

/// Rates by the second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Of what; empty where there are none.
    pub of: &'static str,
    /// One entry a second, from the load's beginning.
    pub rates: Vec<f64>,
}

/// The rates of a trial: of responses, where the driver tells them, or else of the bytes that reached
/// the generator, which follow them where all answers are about as long.
#[must_use]
pub fn series(trial: &Trial) -> Series {
    let view = View::new(trial);
    if let Some(run) = view.run() {
        let whole = run.intervals.iter().filter(|second| second.length_s >= SECOND_S_MIN);
        let rates = whole.map(|second| second.responses as f64 / second.length_s).collect();
        return Series { of: "responses", rates };
    }
    if let Some(reading) = view.reading.as_ref().filter(|reading| !reading.rates.is_empty()) {
        return Series { of: "responses", rates: reading.rates.clone() };
    }
    let there = |roles: &[String]| roles.iter().any(|role| role == GENERATOR);
    match view.counter("IpExt.InOctets", there) {
        rates if rates.is_empty() => Series::default(),
        rates => Series { of: "bytes received by the generator", rates },
    }
}

/// When a trial became steady.
#[must_use]
pub fn of(trial: &Trial) -> Steady {
    let series = series(trial);
    let rates = &series.rates;
    if rates.is_empty() {
        let text = "not told: there are no rates by the second".to_owned();
        return Steady { from_s: None, text };
    }
    if rates.len() < SECONDS_MIN {
        let text = format!("not told: {} seconds are too few, it takes {SECONDS_MIN}", rates.len());
        return Steady { from_s: None, text };
    }
    match from_second(rates) {
        Some(second) => Steady {
            from_s: Some(second as f64),
            text: format!("steady from second {second} on ({})", series.of),
        },
        None => Steady {
            from_s: None,
            text: format!("never steady in {} seconds ({})", rates.len(), series.of),
        },
    }
}

/// The second, from 0, from which on a rate is steady; `None` when it never is, or there are fewer than
/// [`SECONDS_MIN`] seconds.
#[must_use]
pub fn from_second(rates: &[f64]) -> Option<usize> {
    if rates.len() < SECONDS_MIN || rates.iter().any(|rate| !rate.is_finite()) {
        return None;
    }
    let tail_length = (rates.len() / TAIL_PART).max(NEXT);
    let tail = &rates[rates.len() - tail_length..];
    let level = middle(tail);
    if level <= 0.0 {
        return None;
    }
    let far: Vec<f64> = tail.iter().map(|rate| (rate - level).abs()).collect();
    let deviation = middle(&far) * DEVIATION_OVER_MAD;
    let of_median = deviation * MEDIAN_OVER_MEAN / (NEXT as f64).sqrt();
    let bound = (level * TOLERANCE).max(of_median * WIDER);
    let bound_of_second = bound.max(deviation * WIDER_SECOND);
    (0..=rates.len() - tail_length).find(|&second| {
        let next = &rates[second..second + NEXT];
        (middle(next) - level).abs() <= bound
            && (rates[second] - level).abs() <= bound_of_second
            && is_flat(&rates[second..], bound)
    })
}

/// Whether the slope is not told from 0, or moves the rate by no more than the bound.
fn is_flat(rates: &[f64], bound: f64) -> bool {
    let (low, slope, high) = slope(rates);
    let drift = slope.abs() * (rates.len() - 1) as f64;
    (low <= 0.0 && high >= 0.0) || drift <= bound
}

/// Slope per second by Theil and Sen: the median of the slopes of all pairs, with its 95 % interval by
/// Kendall's variance (Sen, JASA 1968, doi 10.1080/01621459.1968.10480934).
fn slope(rates: &[f64]) -> (f64, f64, f64) {
    let mut slopes = Vec::new();
    for (at, rate) in rates.iter().enumerate() {
        let later = rates.iter().enumerate().skip(at + 1);
        slopes.extend(later.map(|(place, other)| (other - rate) / (place - at) as f64));
    }
    slopes.sort_by(f64::total_cmp);
    let (n, pairs) = (rates.len() as f64, slopes.len() as f64);
    let spread = SLOPE_Z * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    // Ranks from 1; beyond the ends there is no bound.
    let low = ((pairs - spread) / 2.0).floor();
    let high = ((pairs + spread) / 2.0).ceil() + 1.0;
    let at = |rank: f64, beyond: f64| match rank >= 1.0 && rank <= pairs {
        true => slopes[rank as usize - 1],
        false => beyond,
    };
    (at(low, f64::NEG_INFINITY), middle(&slopes), at(high, f64::INFINITY))
}

/// The median; 0 of nothing.
fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::trial::Driver;

    /// Rates around a level, with so much noise on both sides.
    fn noisy(level: impl Fn(usize) -> f64, noise: f64, seconds: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..seconds).map(|at| level(at) * (1.0 + noise * (random.f64() * 2.0 - 1.0))).collect()
    }

    #[test]
    fn a_rate_that_is_level_is_steady_at_once() {
        assert_eq!(from_second(&[100.0; 8]), Some(0));
        assert_eq!(from_second(&[100.0; 60]), Some(0));
        for seed in 0..20 {
            let second = from_second(&noisy(|_| 1000.0, 0.01, 30, seed));
            assert!(second.is_some_and(|second| second <= 5), "{seed}: {second:?}");
        }
    }

    #[test]
    fn a_step_is_waited_for() {
        let mut rates = vec![0.0, 10.0, 60.0];
        rates.extend([100.0; 17]);
        assert_eq!(from_second(&rates), Some(3));
        let rates = noisy(|at| if at < 6 { 500.0 } else { 1000.0 }, 0.005, 40, 1);
        let second = from_second(&rates).unwrap();
        assert!((6..=8).contains(&second), "{second}");
    }

    #[test]
    fn a_curve_that_flattens_is_steady_once_it_is_flat() {
        let rates = noisy(|at| 1000.0 * (1.0 - (-(at as f64) / 3.0).exp()), 0.002, 40, 2);
        let second = from_second(&rates).unwrap();
        assert!((6..=16).contains(&second), "{second}");
    }

    #[test]
    fn a_ramp_is_never_steady() {
        let ramp: Vec<f64> = (0..20).map(|at| 100.0 + 10.0 * f64::from(at)).collect();
        assert_eq!(from_second(&ramp), None);
        let fall: Vec<f64> = ramp.iter().rev().copied().collect();
        assert_eq!(from_second(&fall), None);
    }

    #[test]
    fn noise_alone_is_not_called_unsteady() {
        for seed in 0..20 {
            let rates = noisy(|_| 1000.0, 0.15, 30, seed);
            assert!(from_second(&rates).is_some(), "{seed}: {rates:?}");
        }
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(from_second(&[]), None);
        assert_eq!(from_second(&[100.0; 5]), None);
        assert_eq!(from_second(&[0.0; 20]), None);
        assert_eq!(from_second(&[f64::NAN; 20]), None);
    }

    #[test]
    fn the_slope_has_its_interval() {
        let line: Vec<f64> = (0..10).map(|at| 3.0 * f64::from(at)).collect();
        assert_eq!(slope(&line), (3.0, 3.0, 3.0));
        let (low, middle, high) = slope(&noisy(|_| 100.0, 0.05, 20, 3));
        assert!(low < 0.0 && high > 0.0 && middle.abs() < 0.5, "{low} {middle} {high}");
        assert!(slope(&[1.0, 2.0]).0.is_infinite());
    }

    #[test]
    fn a_trial_says_what_it_was_told_from() {
        let silent = of(&Trial::default());
        assert!(silent.from_s.is_none() && silent.text.starts_with("not told"), "{silent:?}");
        let line = |second: u32| {
            format!("{second} 1 1 {} 0 0 100 0 100.0 0 0 1.0 1.0\n", (second + 1) * 100)
        };
        let told = |seconds: u32| {
            let driver = Driver {
                program: "h1load".to_owned(),
                output: Some((0..seconds).map(line).collect()),
                ..Driver::default()
            };
            of(&Trial { driver, ..Trial::default() })
        };
        let steady = told(8);
        assert_eq!(
            (steady.from_s, &*steady.text),
            (Some(0.0), "steady from second 0 on (responses)")
        );
        assert!(told(3).text.contains("3 seconds are too few"));
    }
}
