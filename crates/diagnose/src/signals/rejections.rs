//! Signals of a server that rejects requests: which ones, how regularly it admits the others, and if it follows
//! the offered rate. A rate limit admits the same number in each second, whatever is offered; failures at random,
//! and half of the servers, fail a fixed fraction of it. Thresholds are elsewhere.

use record::run::Interval;

use super::queueing;
use super::signal::{Signal, SignalFamily};
use crate::run_view::RunView;
use crate::unit::Unit;
use crate::window::{ORIGIN, SUBJECT, fraction};

/// Status of a client that sent too many requests in a given time (RFC 6585 §4).
const TOO_MANY_REQUESTS: u16 = 429;
/// Status of a server that cannot handle a request now (RFC 9110 §15.6.4); the default of nginx for its limits.
const UNAVAILABLE: u16 = 503;
/// Minimum number of seconds of a spread.
const SECONDS_MIN: usize = 3;
/// Number of seconds from which the highest and the lowest are left out: one pause of the machine moves requests
/// from a second to the next.
const SECONDS_TRIMMED: usize = 5;
/// Requests at the borders of a second, which are no spread.
const BORDER_REQUESTS: f64 = 2.0;
/// Factor by which an offered rate differs enough from another one.
const OTHER_RATE: f64 = 1.25;
/// Requests served at a time below which requests wait for time, and not for each other.
const AT_A_TIME_MIN: f64 = 0.6;
/// Fraction of waiting from which admitted requests queue.
const QUEUEING_MIN: f64 = 0.4;
/// Factor by which the first second exceeds the others if a bucket was not empty before it.
const INITIAL_BURST: f64 = 1.03;
/// Deviation of the admitted rate from a round number that a setting has.
const ROUND_DEVIATION_MAX: f64 = 0.001_5;

signals! {
    REJECTED: Errors, Fraction, "rejections (status 429 or 503), of the requests without a good response", "generator",
        |view| rejected_fraction(view, &[TOO_MANY_REQUESTS, UNAVAILABLE]);
    TOO_MANY: Errors, Fraction, "responses with status 429, of the requests without a good response", "generator",
        |view| rejected_fraction(view, &[TOO_MANY_REQUESTS]);
    ADMITTED_SPREAD: Errors, Fraction, "spread of the good responses per second",
        "highest less lowest second of the window, of their median", |view| admitted(view).map(|seconds| seconds.spread());
    REJECTION_DEVIATION: Errors, Ratio,
        "deviation of the good fraction at another rate, over its standard error",
        "requests before the load, and seconds at another rate", rejection_deviation;
    FIXED_FRACTION: Errors, Fraction, "good responses are a simple fraction of the requests, and of more before the load",
        "1 if they are 1/2, 1/3, 2/3, 1/4 or 3/4", fixed_fraction;
    SERVERS_ENDED: Tables, Count, "processes that serve, and ended under the load", "pidfd of each process", servers_ended;
    SLOTS_FIT: Latency, Fraction, "fit of a limited number of requests at a time",
        "rate × latency of the fastest single request; spread of the seconds, and of the latencies", slots_fit;
}

/// Returns the number of processes of the subject, or of the servers behind it, that ended under the load.
fn servers_ended(view: &RunView<'_>) -> Option<f64> {
    let all = view.run.observed.iter().flat_map(|observed| &observed.ended);
    let served = all.filter(|ended| [SUBJECT, ORIGIN].contains(&ended.role.as_str()));
    Some(served.filter(|ended| (0.0..=view.run.duration_s).contains(&ended.time_s)).count() as f64)
}

fn rejected_fraction(view: &RunView<'_>, statuses: &[u16]) -> Option<f64> {
    let totals = &view.run.totals;
    let not_good = totals.requests.saturating_sub(totals.good());
    let rejected: u64 = statuses.iter().filter_map(|status| totals.status.get(status)).sum();
    (not_good > 0).then(|| fraction(rejected as f64, not_good as f64).min(1.0))
}

/// Good responses of the seconds of the window, in ascending order, without the outermost ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdmittedSeconds(Vec<f64>);

impl AdmittedSeconds {
    /// Returns the lowest and the highest number.
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.0.first().copied().unwrap_or(0.0), self.0.last().copied().unwrap_or(0.0))
    }

    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(0.0)
    }

    /// Returns the range beyond the requests at the borders, as a fraction of the median.
    fn spread(&self) -> f64 {
        let (low, high) = self.range();
        (high - low - BORDER_REQUESTS).max(0.0) / self.median().max(1.0)
    }
}

/// Returns the good responses of the seconds; `None` for too few seconds, or none that is good.
pub(crate) fn admitted(view: &RunView<'_>) -> Option<AdmittedSeconds> {
    let seconds = view.run.intervals.iter().filter(|second| second.measured && second.length_s > 0.0);
    let rates: Option<Vec<f64>> = seconds.map(|second| Some(second.good? as f64 / second.length_s)).collect();
    let mut rates = rates.filter(|rates| rates.len() >= SECONDS_MIN)?;
    rates.sort_by(f64::total_cmp);
    if rates.len() >= SECONDS_TRIMMED {
        rates.pop();
        rates.remove(0);
    }
    let seconds = AdmittedSeconds(rates);
    (seconds.median() >= 1.0).then_some(seconds)
}

/// Requests at one offered rate.
#[derive(Clone, Copy)]
struct RatePoint {
    responses: f64,
    good: f64,
    length_s: f64,
}

impl RatePoint {
    fn from_second(second: &Interval) -> Option<Self> {
        let (responses, length_s) = (second.responses as f64, second.length_s);
        let good = second.good? as f64;
        (length_s >= 0.5 && responses > 0.0).then_some(Self { responses, good, length_s })
    }

    fn per_s(self) -> f64 {
        self.responses / self.length_s.max(1e-9)
    }

    fn good_fraction(self) -> f64 {
        self.good / self.responses.max(1.0)
    }

    fn has_other_rate(self, other: Self) -> bool {
        let ratio = self.per_s() / other.per_s().max(1e-9);
        !(1.0 / OTHER_RATE..=OTHER_RATE).contains(&ratio)
    }
}

/// Returns the window as one point, the baseline if its rate is another one, and all seconds.
fn rate_points(view: &RunView<'_>) -> Option<(RatePoint, Option<RatePoint>, Vec<RatePoint>)> {
    let run = view.run;
    let seconds = |is_measured: bool| {
        let chosen = run.intervals.iter().filter(move |second| second.measured || !is_measured);
        chosen.filter_map(RatePoint::from_second)
    };
    let window = seconds(true).reduce(|sum, second| RatePoint {
        responses: sum.responses + second.responses,
        good: sum.good + second.good,
        length_s: sum.length_s + second.length_s,
    })?;
    let baseline =
        run.baseline.as_ref().filter(|baseline| baseline.requests > 0 && baseline.duration_s > 0.0);
    let baseline = baseline.map(|baseline| RatePoint {
        responses: baseline.requests as f64,
        good: baseline.good as f64,
        length_s: baseline.duration_s,
    });
    Some((window, baseline.filter(|point| point.has_other_rate(window)), seconds(false).collect()))
}

/// Returns how far good responses deviate from a fixed fraction of the requests, in standard errors: those of the
/// baseline, or of all seconds together if their rates differ. A baseline without rejections counts only if the first
/// second shows the rest of a full bucket.
fn rejection_deviation(view: &RunView<'_>) -> Option<f64> {
    let (window, baseline, seconds) = rate_points(view)?;
    let good = window.good_fraction();
    // The squared deviation of a point, of which the mean is 1 if failures are random.
    let squared = |point: &RatePoint, rest: f64| {
        let variance = good * (1.0 - good) * (1.0 / point.responses + 1.0 / rest);
        (point.good_fraction() - good).powi(2) / variance.max(1e-12)
    };
    let took_bucket = |point: &RatePoint| point.good_fraction() < 0.999 || has_initial_burst(view);
    let before = baseline.filter(took_bucket).map(|point| squared(&point, window.responses).sqrt());
    let count = seconds.len() as f64;
    let has_rates = seconds.iter().any(|second| second.has_other_rate(window));
    let sum: f64 = seconds.iter().map(|second| squared(second, f64::INFINITY)).sum();
    let between = has_rates.then(|| (sum - count) / (2.0 * count).sqrt());
    before.into_iter().chain(between).reduce(f64::max)
}

/// Returns whether the first second admitted more than the others.
fn has_initial_burst(view: &RunView<'_>) -> bool {
    let first = view.run.intervals.first().and_then(|first| first.good);
    let usual = admitted(view).map(|seconds| seconds.median());
    first.zip(usual).is_some_and(|(first, usual)| first as f64 > INITIAL_BURST * usual)
}

/// Returns 1 if the good fraction is simple, and only a baseline without rejections deviates from it: then servers that
/// fail since, or those of other connections, explain it as well.
fn fixed_fraction(view: &RunView<'_>) -> Option<f64> {
    const SIMPLE: [f64; 5] = [1.0 / 2.0, 1.0 / 3.0, 2.0 / 3.0, 1.0 / 4.0, 3.0 / 4.0];
    const DEVIATION_MAX: f64 = 0.01;
    (TOO_MANY.read)(view).filter(|fraction| *fraction < 0.5)?;
    let (window, baseline, seconds) = rate_points(view)?;
    let has_rates = seconds.iter().any(|second| second.has_other_rate(window));
    let is_clean_before = baseline.is_some_and(|point| point.good_fraction() > 0.999) && !has_rates;
    // A first second of other servers is no part of it.
    let good = admitted(view)?.median() / window.per_s().max(1e-9);
    let is_simple = SIMPLE.iter().any(|simple| (good - simple).abs() < DEVIATION_MAX);
    Some(f64::from(u8::from(is_clean_before && is_simple)))
}

/// Returns how well a limited number of requests at a time explains the admitted rate: 0 if fewer than one at a time
/// would carry it, or if its seconds are more regular than latencies of that spread allow; below 0.5 for a round rate,
/// which is rather a setting.
fn slots_fit(view: &RunView<'_>) -> Option<f64> {
    let baseline = view.run.baseline.as_ref().filter(|baseline| baseline.good > 0)?;
    let at_a_time = view.goodput() * baseline.min_ns as f64 / 1e9;
    if at_a_time < AT_A_TIME_MIN {
        return Some(0.0);
    }
    if queueing::queueing_fraction(view).is_some_and(|waiting| waiting >= QUEUEING_MIN) {
        return Some(1.0);
    }
    let seconds = admitted(view)?;
    // Renewals of slots: the variance of a count is its mean times the squared coefficient of variation.
    let latency = &view.run.latency.last_byte.service;
    let variation = (latency.p90_ns as f64 - latency.p50_ns as f64) / 1.28 / (latency.p50_ns as f64).max(1.0);
    let expected = seconds.median().sqrt() * variation;
    let (low, high) = seconds.range();
    if expected >= BORDER_REQUESTS && high - low < expected {
        return Some(0.0);
    }
    Some(if is_round(view.goodput()) { 0.45 } else { 1.0 })
}

/// Returns whether a rate is a number of which people make settings: two digits, the second 0 or 5.
fn is_round(per_s: f64) -> bool {
    let step = 10_f64.powf(per_s.max(1.0).log10().floor()) / 2.0;
    let nearest = (per_s / step).round() * step;
    (per_s - nearest).abs() <= ROUND_DEVIATION_MAX * per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_rate_has_two_digits() {
        assert!([300.0, 299.7, 45.0, 1_500.0, 5.0].into_iter().all(is_round));
        assert!(![394.1, 297.0, 1_040.0, 1_530.0].into_iter().any(is_round));
    }
}
