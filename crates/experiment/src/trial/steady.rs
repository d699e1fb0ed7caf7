//! Detects when a rate became steady, and thereby the length of a warm-up, from rates by the
//! second. No I/O.
//!
//! The rate is steady from the first second on for which three conditions hold: (a) the median of
//! the next [`MEDIAN_SECONDS`] seconds is within [`TOLERANCE`] of the median of the tail, (b) that second
//! itself is within a bound of it too, and (c) the slope from there to the end (Theil and Sen) is
//! not distinguishable from 0. The noise of the series, as median absolute deviation, widens the
//! tolerance: noise alone does not make a rate unsteady. A rate that never meets the conditions is
//! reported as never steady, which is common (Barrett et al., OOPSLA 2017, arXiv 1602.00602).
//!
//! Not for discarding anything.

use diagnose::window::{GENERATOR, namespace};
use record::trial::{ExperimentTrial, SteadyState};

use super::trial_view::TrialView;
use stats::median;

pub const MEDIAN_SECONDS: usize = 5;
/// Maximum relative distance of that median from the tail's.
pub const TOLERANCE: f64 = 0.02;
/// Minimum number of seconds for a result: more than the tail has.
pub const SECONDS_MIN: usize = MEDIAN_SECONDS + 1;
/// Divisor for the length of the tail, which has at least [`MEDIAN_SECONDS`] seconds.
const TAIL_DIVISOR: usize = 3;
/// Widened tolerance, in standard deviations of a median of [`MEDIAN_SECONDS`] seconds.
const TOLERANCE_DEVIATIONS: f64 = 2.0;
/// Widened tolerance of a single second, in its standard deviations.
const SECOND_TOLERANCE_DEVIATIONS: f64 = 3.5;
/// Standard deviation over median absolute deviation of a normal distribution.
const DEVIATION_OVER_MAD: f64 = 1.4826;
/// Standard deviation of a median over that of a mean of equally many values, for a normal
/// distribution.
const MEDIAN_OVER_MEAN: f64 = 1.2533;
/// Two-sided 95 % of a normal distribution, for the slope's interval.
const SLOPE_Z: f64 = 1.96;
/// Minimum length of an interval that counts as a second.
const SECOND_S_MIN: f64 = 0.9;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateSeries {
    /// Counted quantity; empty if there are no rates.
    pub quantity: &'static str,
    /// One entry a second, from the load's beginning.
    pub rates: Vec<f64>,
}

/// Returns the rates of a trial: of responses, if the driver prints them, or else of the bytes that
/// the generator received. These are proportional if all responses are about equally long.
pub fn rate_series(trial: &ExperimentTrial) -> RateSeries {
    let view = TrialView::new(trial);
    if let Some(run) = view.run() {
        let full_seconds = run.intervals.iter().filter(|second| second.length_s >= SECOND_S_MIN);
        let rates = full_seconds.map(|second| second.responses as f64 / second.length_s).collect();
        return RateSeries { quantity: "responses", rates };
    }
    if let Some(reading) = view.reading.as_ref().filter(|reading| !reading.rates.is_empty()) {
        return RateSeries { quantity: "responses", rates: reading.rates.clone() };
    }
    let samples = view.machines.machine(GENERATOR).map_or_else(Vec::new, |machine| machine.samples());
    let spaces = samples.into_iter().filter_map(|sample| namespace(sample, GENERATOR));
    let bytes = spaces.map(|space| space.counters.get("IpExt.InOctets").copied().unwrap_or(0.0));
    match bytes.collect::<Vec<f64>>() {
        rates if rates.is_empty() => RateSeries::default(),
        rates => RateSeries { quantity: "bytes received by the generator", rates },
    }
}

/// Returns the second from which on a trial was steady, with a description.
pub fn steady_state(trial: &ExperimentTrial) -> SteadyState {
    let series = rate_series(trial);
    let rates = &series.rates;
    if rates.is_empty() {
        let text = "undecided: no rates per second".to_owned();
        return SteadyState { from_s: None, text };
    }
    if rates.len() < SECONDS_MIN {
        let text = format!("undecided: {} s are too short, {SECONDS_MIN} s are required", rates.len());
        return SteadyState { from_s: None, text };
    }
    match steady_from_second(rates) {
        Some(second) => SteadyState {
            from_s: Some(second as f64),
            text: format!("steady from second {second} on ({})", series.quantity),
        },
        None => SteadyState {
            from_s: None,
            text: format!(
                "never steady in {} ({})",
                crate::format::count(rates.len(), "second"),
                series.quantity
            ),
        },
    }
}

/// Returns the second, from 0, from which on a rate is steady. `None` if it never is, or with fewer
/// than [`SECONDS_MIN`] seconds.
pub fn steady_from_second(rates: &[f64]) -> Option<usize> {
    if rates.len() < SECONDS_MIN || rates.iter().any(|rate| !rate.is_finite()) {
        return None;
    }
    let tail_length = (rates.len() / TAIL_DIVISOR).max(MEDIAN_SECONDS);
    let tail = &rates[rates.len() - tail_length..];
    let level = median_or_zero(tail);
    if level <= 0.0 {
        return None;
    }
    let far: Vec<f64> = tail.iter().map(|rate| (rate - level).abs()).collect();
    let deviation = median_or_zero(&far) * DEVIATION_OVER_MAD;
    let deviation_of_median = deviation * MEDIAN_OVER_MEAN / (MEDIAN_SECONDS as f64).sqrt();
    let bound = (level * TOLERANCE).max(deviation_of_median * TOLERANCE_DEVIATIONS);
    let bound_of_second = bound.max(deviation * SECOND_TOLERANCE_DEVIATIONS);
    (0..=rates.len() - tail_length).find(|&second| {
        let next = &rates[second..second + MEDIAN_SECONDS];
        (median_or_zero(next) - level).abs() <= bound
            && (rates[second] - level).abs() <= bound_of_second
            && is_flat(&rates[second..], bound)
    })
}

/// Returns whether the slope is indistinguishable from 0, or moves the rate by no more than the
/// bound.
fn is_flat(rates: &[f64], bound: f64) -> bool {
    let (low, slope, high) = theil_sen_slope(rates);
    let drift = slope.abs() * (rates.len() - 1) as f64;
    (low <= 0.0 && high >= 0.0) || drift <= bound
}

/// Computes the slope per second by Theil and Sen: the median of the slopes of all pairs, with its
/// 95 % interval from Kendall's variance (Sen, JASA 1968, doi 10.1080/01621459.1968.10480934).
fn theil_sen_slope(rates: &[f64]) -> (f64, f64, f64) {
    let mut slopes = Vec::new();
    for (at, rate) in rates.iter().enumerate() {
        let later = rates.iter().enumerate().skip(at + 1);
        slopes.extend(later.map(|(later_index, other)| (other - rate) / (later_index - at) as f64));
    }
    slopes.sort_by(f64::total_cmp);
    let (n, pairs) = (rates.len() as f64, slopes.len() as f64);
    let spread = SLOPE_Z * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    // Ranks are from 1; a rank outside the range has no bound.
    let low = ((pairs - spread) / 2.0).floor();
    let high = ((pairs + spread) / 2.0).ceil() + 1.0;
    let at = |rank: f64, beyond: f64| match rank >= 1.0 && rank <= pairs {
        true => slopes[rank as usize - 1],
        false => beyond,
    };
    (at(low, f64::NEG_INFINITY), median_or_zero(&slopes), at(high, f64::INFINITY))
}

/// Computes the median; 0 without values.
fn median_or_zero(values: &[f64]) -> f64 {
    median(values).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::trial::TrialDriver;

    /// Generates rates around a level, with noise of this amplitude.
    fn noisy(level: impl Fn(usize) -> f64, noise: f64, seconds: usize, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..seconds).map(|at| level(at) * (1.0 + noise * (random.f64() * 2.0 - 1.0))).collect()
    }

    #[test]
    fn a_rate_that_is_level_is_steady_at_once() {
        assert_eq!(steady_from_second(&[100.0; 8]), Some(0));
        assert_eq!(steady_from_second(&[100.0; 60]), Some(0));
        for seed in 0..20 {
            let second = steady_from_second(&noisy(|_| 1000.0, 0.01, 30, seed));
            assert!(second.is_some_and(|second| second <= 5), "{seed}: {second:?}");
        }
    }

    #[test]
    fn rates_are_steady_only_after_a_step() {
        let mut rates = vec![0.0, 10.0, 60.0];
        rates.extend([100.0; 17]);
        assert_eq!(steady_from_second(&rates), Some(3));
        let rates = noisy(|at| if at < 6 { 500.0 } else { 1000.0 }, 0.005, 40, 1);
        let second = steady_from_second(&rates).unwrap();
        assert!((6..=8).contains(&second), "{second}");
    }

    #[test]
    fn a_curve_that_flattens_is_steady_once_it_is_flat() {
        let rates = noisy(|at| 1000.0 * (1.0 - (-(at as f64) / 3.0).exp()), 0.002, 40, 2);
        let second = steady_from_second(&rates).unwrap();
        assert!((6..=16).contains(&second), "{second}");
    }

    #[test]
    fn a_ramp_is_never_steady() {
        let ramp: Vec<f64> = (0..20).map(|at| 100.0 + 10.0 * f64::from(at)).collect();
        assert_eq!(steady_from_second(&ramp), None);
        let fall: Vec<f64> = ramp.iter().rev().copied().collect();
        assert_eq!(steady_from_second(&fall), None);
    }

    #[test]
    fn noise_alone_is_not_called_unsteady() {
        for seed in 0..20 {
            let rates = noisy(|_| 1000.0, 0.15, 30, seed);
            assert!(steady_from_second(&rates).is_some(), "{seed}: {rates:?}");
        }
    }

    #[test]
    fn too_few_seconds_give_no_result() {
        assert_eq!(steady_from_second(&[]), None);
        assert_eq!(steady_from_second(&[100.0; 5]), None);
        assert_eq!(steady_from_second(&[0.0; 20]), None);
        assert_eq!(steady_from_second(&[f64::NAN; 20]), None);
    }

    #[test]
    fn the_slope_has_its_interval() {
        let line: Vec<f64> = (0..10).map(|at| 3.0 * f64::from(at)).collect();
        assert_eq!(theil_sen_slope(&line), (3.0, 3.0, 3.0));
        let (low, middle, high) = theil_sen_slope(&noisy(|_| 100.0, 0.05, 20, 3));
        assert!(low < 0.0 && high > 0.0 && middle.abs() < 0.5, "{low} {middle} {high}");
        assert!(theil_sen_slope(&[1.0, 2.0]).0.is_infinite());
    }

    #[test]
    fn a_trial_reports_the_source_of_its_steadiness() {
        let silent = steady_state(&ExperimentTrial::default());
        assert!(silent.from_s.is_none() && silent.text.starts_with("undecided"), "{silent:?}");
        let line = |second: u32| format!("{second} 1 1 {} 0 0 100 0 100.0 0 0 1.0 1.0\n", (second + 1) * 100);
        let text_for = |seconds: u32| {
            let driver = TrialDriver {
                program: "h1load".to_owned(),
                output: Some((0..seconds).map(line).collect()),
                ..TrialDriver::default()
            };
            steady_state(&ExperimentTrial { driver, ..ExperimentTrial::default() })
        };
        let steady = text_for(8);
        assert_eq!(steady.from_s, Some(0.0));
        assert!(steady.text.ends_with("(responses)"), "{steady:?}");
        let short = text_for(3);
        assert!(short.from_s.is_none() && short.text.contains(" 3 s "), "{short:?}");
    }
}
