//! Comparison of two searches, and of a run with a baseline: the change of each figure with the interval that separates it from noise,
//! and the conditions that make a regression of it (`--fail-if`).
//!
//! A figure is that of the complete run, from its merged histogram. The interval comes from the seconds of both
//! runs: percentiles of seconds are compared by their medians and never averaged. It covers the noise within the
//! runs; a difference between runs that has other reasons (the placement of threads, another build of the kernel)
//! needs repetitions (`weir lab run`).

mod condition;

use experiment::format;
use record::capacity_search::{CapacitySearch, ComparedLevel, Estimate, SearchComparison};
use record::comparison::{self, BaselineComparison, ComparedCondition, ConditionDecision};
use record::run::{Interval, Run};
use record::sorted::CollectSorted;
use record::units::{format_duration_ns, format_rate};
use record::validity::ValidityLevel;
use stats::block_bootstrap::difference_interval;
use stats::bootstrap::Resampling;
use stats::effect::{LimitPosition, compare_with_limit};

pub use condition::RegressionCondition;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedFigure {
    /// Good responses per second.
    Rate,
    P50,
    /// 99th percentile of the response latency.
    P99,
    /// Fraction of the requests without a good response.
    Errors,
}

impl ComparedFigure {
    /// All figures, in the order of the output.
    pub const ALL: [Self; 4] = [Self::Rate, Self::P50, Self::P99, Self::Errors];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Errors => "errors",
        }
    }

    pub const fn is_worse_if_higher(self) -> bool {
        !matches!(self, Self::Rate)
    }

    pub fn value(self, run: &Run) -> f64 {
        match self {
            // Without a request for each of them events are what the server carries.
            Self::Rate => diagnose::pushed_rate(run).map_or_else(|| run.goodput_per_s(), |(_, per_s)| per_s),
            Self::P50 => run.latency.last_byte.response.p50_ns as f64,
            Self::P99 => run.latency.last_byte.response.p99_ns as f64,
            Self::Errors => run.totals.error_fraction(),
        }
    }

    pub fn format(self, value: f64) -> String {
        match self {
            Self::Rate => format_rate(value),
            // Without a good response there is no latency.
            Self::P50 | Self::P99 if value == 0.0 => "-".to_owned(),
            Self::P50 | Self::P99 => format_duration_ns(value as u64),
            Self::Errors => format::percent(value),
        }
    }

    /// Formats a change: a ratio minus 1, or a difference of fractions.
    pub fn format_change(self, change: f64) -> String {
        match self {
            Self::Errors => format!("{:+.2} percentage points", change * 100.0),
            _ => format::signed_change(1.0 + change),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunComparison {
    pub changes: Vec<FigureChange>,
    pub results: Vec<ConditionResult>,
    pub plan_differences: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureChange {
    pub figure: ComparedFigure,
    pub before: f64,
    pub after: f64,
    /// Ratio minus 1; for errors the difference. `None` if the baseline is 0.
    pub change: Option<f64>,
    /// Interval of the change (95 %), from the seconds of both runs.
    pub interval: Option<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConditionResult {
    pub condition: RegressionCondition,
    pub outcome: RegressionOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegressionOutcome {
    /// The change exceeds the limit, and so does its interval.
    Regression,
    /// The interval is within the limit.
    Within,
    /// The seconds of the runs cannot decide it.
    Undecided(Undecided),
}

/// Reason why a condition is not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The reason, with what to do.
    pub reason: String,
    /// Length of both loads that would decide it.
    pub needed_s: Option<u64>,
    /// True if the records are long enough, and the limit lies within their noise.
    pub is_noise: bool,
}

impl Undecided {
    /// Creates a reason for which the records decide nothing.
    fn unusable(reason: impl Into<String>, needed_s: Option<u64>) -> RegressionOutcome {
        RegressionOutcome::Undecided(Self { reason: reason.into(), needed_s, is_noise: false })
    }
}

impl RunComparison {
    #[must_use]
    pub fn new(baseline: &Run, run: &Run, conditions: &[RegressionCondition]) -> Self {
        let changes: Vec<FigureChange> =
            ComparedFigure::ALL.into_iter().map(|figure| compare_figure(figure, baseline, run)).collect();
        let judge = |condition: &RegressionCondition| {
            let change = changes.iter().find(|change| change.figure == condition.figure);
            let outcome = match (unusable(baseline, run), change) {
                (None, Some(change)) => judge(condition, change, [baseline, run]),
                (reason, _) => Undecided::unusable(reason.unwrap_or_default(), None),
            };
            ConditionResult { condition: condition.clone(), outcome }
        };
        let results = conditions.iter().map(judge).collect();
        Self { results, plan_differences: differing_keys(&baseline.plan, &run.plan), changes }
    }

    /// Returns true if a condition shows a regression.
    pub fn has_regression(&self) -> bool {
        self.results.iter().any(|result| result.outcome == RegressionOutcome::Regression)
    }

    /// Returns the conditions that the records cannot decide at all: too short, not valid, or without a figure.
    pub fn unusable(&self) -> impl Iterator<Item = &ConditionResult> {
        self.undecided().filter(|result| {
            !matches!(&result.outcome, RegressionOutcome::Undecided(undecided) if undecided.is_noise)
        })
    }

    /// Returns the conditions without a decision.
    pub fn undecided(&self) -> impl Iterator<Item = &ConditionResult> {
        self.results.iter().filter(|result| matches!(result.outcome, RegressionOutcome::Undecided(_)))
    }

    /// Returns the comparison for a record. `baseline` is the file of the earlier run.
    pub fn record(&self, baseline: &str) -> BaselineComparison {
        let figure = |change: &FigureChange| comparison::ComparedFigure {
            figure: change.figure.name().to_owned(),
            before: change.before,
            after: change.after,
            difference: change.change,
            interval: change.interval,
        };
        let condition = |result: &ConditionResult| {
            let (decision, undecided) = match &result.outcome {
                RegressionOutcome::Regression => (ConditionDecision::Regression, None),
                RegressionOutcome::Within => (ConditionDecision::None, None),
                RegressionOutcome::Undecided(why) => (ConditionDecision::Undecided, Some(why)),
            };
            ComparedCondition {
                text: result.condition.text().to_owned(),
                figure: result.condition.figure.name().to_owned(),
                limit: result.condition.limit,
                decision,
                reason: undecided.map(|why| why.reason.clone()),
                needed_s: undecided.and_then(|why| why.needed_s),
            }
        };
        BaselineComparison {
            baseline: baseline.to_owned(),
            figures: self.changes.iter().map(figure).collect(),
            conditions: self.results.iter().map(condition).collect(),
            plan_differences: self.plan_differences.clone(),
            exit_code: match (self.has_regression(), self.unusable().next()) {
                (true, _) => 3,
                (false, Some(_)) => 4,
                (false, None) => 0,
            },
        }
    }

    /// Formats the comparison: a line for each figure, then the results of the conditions.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |label: &str, words: &str| text.push_str(&format!("{label:<12} {words}\n"));
        for (index, change) in self.changes.iter().enumerate() {
            line(if index == 0 { "compared" } else { "" }, &change.text());
        }
        if !self.plan_differences.is_empty() {
            line("plans", &format!("differ in: {}", self.plan_differences.join(", ")));
        }
        for result in &self.results {
            line("regression", &result.text());
        }
        text
    }
}

impl FigureChange {
    /// Formats the change with its interval: `p99 27.0 ms -> 35.1 ms: +30.0 % (+27.0 % to +33.1 %)`.
    pub fn text(&self) -> String {
        format!("{} {}: {}", self.figure.name(), self.values_text(), self.change_text())
    }

    pub fn values_text(&self) -> String {
        let [before, after] = [self.before, self.after].map(|value| self.figure.format(value));
        format!("{before} -> {after}")
    }

    /// Formats the change with its interval, or the reason why it has none.
    pub fn change_text(&self) -> String {
        let Some(change) = self.change else {
            let is_latency = matches!(self.figure, ComparedFigure::P50 | ComparedFigure::P99);
            return if is_latency { "a run has no good response" } else { "no ratio to 0" }.to_owned();
        };
        if self.figure == ComparedFigure::Errors && self.before == 0.0 && self.after == 0.0 {
            return "none in either".to_owned();
        }
        let change = self.figure.format_change(change);
        match self.interval {
            Some((low, high)) if self.is_wide((low, high)) => {
                let nearest = if low > 0.0 { low } else { high };
                match low > 0.0 || high < 0.0 {
                    true => format!("at least {} (95 %)", self.figure.format_change(nearest)),
                    false => {
                        "not clear: the seconds of the runs differ by more than a factor of two".to_owned()
                    }
                }
            }
            Some((low, high)) => {
                let [low, high] = [low, high].map(|end| self.figure.format_change(end));
                format!("{change} (95 % interval {low} to {high})")
            }
            None => format!("{change} (no interval: fewer than {SECONDS_MIN} complete seconds in a run)"),
        }
    }

    /// Returns true if an interval of a ratio is wider than a factor of two, which is no figure.
    fn is_wide(&self, (low, high): (f64, f64)) -> bool {
        self.figure != ComparedFigure::Errors && 1.0 + high > WIDE_FROM * (1.0 + low)
    }

    /// Returns true if the interval shows a change of either direction.
    pub fn is_change(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

impl ConditionResult {
    /// Formats the result: the outcome first.
    pub fn text(&self) -> String {
        format!("{}: {}", self.condition.text(), self.outcome_text())
    }

    pub fn outcome_text(&self) -> String {
        match &self.outcome {
            RegressionOutcome::Regression => "YES, the interval is beyond the limit".to_owned(),
            RegressionOutcome::Within => "no, the interval is within the limit".to_owned(),
            RegressionOutcome::Undecided(why) => format!("UNDECIDED, {}", why.reason),
        }
    }
}

fn figure_named(name: &str) -> Option<ComparedFigure> {
    ComparedFigure::ALL.into_iter().find(|figure| figure.name() == name)
}

/// Formats a figure of a record with its change.
pub(crate) fn figure_text(stored: &comparison::ComparedFigure) -> String {
    let Some(figure) = figure_named(&stored.figure) else { return String::new() };
    let comparison::ComparedFigure { before, after, difference: change, interval, .. } = *stored;
    let change = FigureChange { figure, before, after, change, interval };
    format!("{}: {}", change.values_text(), change.change_text())
}

/// Formats the decision about a condition of a record, with its figure.
pub(crate) fn condition_text(comparison: &BaselineComparison, condition: &ComparedCondition) -> String {
    let figure = comparison.figures.iter().find(|figure| figure.figure == condition.figure);
    let change = figure.map_or_else(String::new, figure_text);
    match (condition.decision, &condition.reason) {
        (ConditionDecision::Regression, _) => format!("regression: {change}"),
        (ConditionDecision::None, _) => format!("no regression: {change}"),
        (ConditionDecision::Undecided, reason) => {
            format!("undecided, {}: {change}", reason.as_deref().unwrap_or("for no known reason"))
        }
    }
}

/// Ratio of the ends of an interval from which it is no figure.
const WIDE_FROM: f64 = 2.0;
/// Minimum number of complete seconds in a run for an interval.
const SECONDS_MIN: usize = 8;
/// Length of a load that has them.
const LOAD_S_MIN: u64 = 10;
/// Longest load that is worth a try, and the reserve of the estimate.
const NEEDED_S_MAX: f64 = 600.0;
const NEEDED_RESERVE: f64 = 1.2;
/// Parameters of the intervals. The seed is fixed: the same records give the same result.
const RESAMPLING: Resampling = Resampling { draws: 2_000, seed: 1, confidence: 0.95 };
/// Shortest interval of a record that counts as a complete second.
const COMPLETE_S: f64 = 0.9;

fn compare_figure(figure: ComparedFigure, baseline: &Run, run: &Run) -> FigureChange {
    let (before, after) = (figure.value(baseline), figure.value(run));
    let (change, interval) = match figure {
        ComparedFigure::P50 | ComparedFigure::P99 if before == 0.0 || after == 0.0 => (None, None),
        ComparedFigure::Errors => (Some(after - before), errors_interval(baseline, run)),
        _ => ((before > 0.0).then(|| after / before - 1.0), ratio_interval(figure, baseline, run)),
    };
    FigureChange { figure, before, after, change, interval }
}

fn seconds(run: &Run) -> impl Iterator<Item = &Interval> {
    run.intervals.iter().filter(|interval| interval.measured && interval.length_s >= COMPLETE_S)
}

/// Returns the interval of a ratio minus 1: of the medians of the seconds' percentiles, or of the mean rates.
fn ratio_interval(figure: ComparedFigure, baseline: &Run, run: &Run) -> Option<(f64, f64)> {
    let value = |second: &Interval| match figure {
        ComparedFigure::P50 => second.p50_ns.map(|ns| ns as f64),
        ComparedFigure::P99 => second.p99_ns.map(|ns| ns as f64),
        _ => Some(second.events.or(second.good).unwrap_or(second.responses) as f64 / second.length_s),
    };
    let has_latency = |second: &&Interval| figure == ComparedFigure::Rate || second.responses > 0;
    let values = |run| seconds(run).filter(has_latency).filter_map(value).collect::<Vec<f64>>();
    let (before, after) = (values(baseline), values(run));
    if before.len().min(after.len()) < SECONDS_MIN {
        return None;
    }
    let statistic = |values: &mut [f64]| match figure {
        ComparedFigure::Rate => stats::mean(values).unwrap_or(f64::NAN),
        _ => stats::median(values).unwrap_or(f64::NAN),
    };
    let log_ratio = |before: f64, after: f64| (after / before).ln();
    let (low, high) = difference_interval(&before, &after, statistic, log_ratio, RESAMPLING)?;
    Some((low.exp() - 1.0, high.exp() - 1.0))
}

/// Returns the interval of the difference of the fractions of requests without a good response.
fn errors_interval(baseline: &Run, run: &Run) -> Option<(f64, f64)> {
    let counts = |second: &Interval| {
        // A record may have any counts.
        let errors = second.errors.values().map(|count| *count as f64).sum::<f64>();
        let (failed, responses) = (errors + second.dropped as f64, second.responses as f64);
        let bad = responses - second.good.unwrap_or(second.responses).min(second.responses) as f64;
        (failed + bad, responses + failed)
    };
    let values = |run| seconds(run).map(counts).collect::<Vec<(f64, f64)>>();
    let (before, after) = (values(baseline), values(run));
    if before.len().min(after.len()) < SECONDS_MIN {
        return None;
    }
    // Without a request it is NaN, which is no figure.
    let fraction = |values: &mut [(f64, f64)]| {
        let (bad, all) = values.iter().fold((0.0, 0.0), |sum, second| (sum.0 + second.0, sum.1 + second.1));
        bad / all
    };
    difference_interval(&before, &after, fraction, |before, after| after - before, RESAMPLING)
}

/// Returns the reason why the runs cannot be compared at all.
fn unusable(baseline: &Run, run: &Run) -> Option<String> {
    let invalid = |run: &Run| run.validity.verdict == ValidityLevel::Invalid;
    match (invalid(baseline), invalid(run)) {
        (false, false) => None,
        (true, _) => Some("the baseline is not valid: record another one".to_owned()),
        (false, true) => Some("this run is not valid (its reasons are above)".to_owned()),
    }
}

fn judge(condition: &RegressionCondition, compared: &FigureChange, runs: [&Run; 2]) -> RegressionOutcome {
    let Some(change) = compared.change else {
        return Undecided::unusable(
            "there is no ratio: the baseline is 0, or a run has no good response",
            None,
        );
    };
    let [before_s, after_s] = runs.map(|run| seconds(run).count());
    let Some((low, high)) = compared.interval else {
        let reason = match before_s.min(after_s) < SECONDS_MIN {
            true => format!(
                "a decision needs {SECONDS_MIN} complete seconds of each run, and the baseline has {before_s}, this run \
                 {after_s}: load for {LOAD_S_MIN}s or longer (-d {LOAD_S_MIN}s)"
            ),
            false => "too few seconds have a response".to_owned(),
        };
        return Undecided::unusable(reason, Some(LOAD_S_MIN));
    };
    // Worse is positive from here on.
    let (limit, change, low, high) = match compared.figure.is_worse_if_higher() {
        true => (condition.limit, change, low, high),
        false => (condition.limit, -change, -high, -low),
    };
    match compare_with_limit(change, (low, high), limit) {
        LimitPosition::Beyond => RegressionOutcome::Regression,
        LimitPosition::Within => RegressionOutcome::Within,
        LimitPosition::Open => {
            let needed_s = needed_s(before_s.min(after_s), (low, high), (change - limit).abs());
            let remedy = match needed_s {
                Some(needed_s) => format!("load for about {needed_s}s both times (-d {needed_s}s)"),
                None => "repeat both runs alternately (`weir lab compare`)".to_owned(),
            };
            let reason = format!("the limit lies within the noise of the seconds: {remedy}");
            RegressionOutcome::Undecided(Undecided { reason, needed_s, is_noise: true })
        }
    }
}

/// Returns the length of both loads whose interval would no longer reach the limit, if the change stays; `None` if
/// that is too long to be of use. The width of an interval is the inverse of the root of the seconds.
fn needed_s(measured_s: usize, (low, high): (f64, f64), distance: f64) -> Option<u64> {
    let half = (high - low) / 2.0;
    let needed = measured_s as f64 * (half / distance.max(1e-9)).powi(2) * NEEDED_RESERVE;
    let rounded = (needed / 10.0).ceil() * 10.0;
    (rounded <= NEEDED_S_MAX).then_some((rounded as u64).max(LOAD_S_MIN))
}

/// Returns the names of the settings in which the plans differ.
pub(crate) fn differing_keys(first: &serde_json::Value, second: &serde_json::Value) -> Vec<String> {
    let (Some(first), Some(second)) = (first.as_object(), second.as_object()) else {
        return Vec::new();
    };
    let keys: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect_set();
    keys.into_iter().filter(|key| first.get(*key) != second.get(*key)).cloned().collect()
}

pub fn compare_searches(name: &str, earlier: &CapacitySearch, search: &CapacitySearch) -> SearchComparison {
    let level = |search: &CapacitySearch| {
        let conclusion = &search.conclusion;
        let value = conclusion.level.or(conclusion.lower)?;
        let high = conclusion.upper.unwrap_or(value).max(value);
        Some(Estimate { value, low: value, high })
    };
    let is_finite = |estimate: &Estimate| {
        [estimate.value, estimate.low, estimate.high].iter().all(|figure| figure.is_finite())
    };
    let compare = |before: Option<Estimate>, after: Option<Estimate>| {
        let (before, after) = before.zip(after).filter(|(before, _)| before.low > 0.0)?;
        let factor = Estimate {
            value: after.value / before.value,
            low: after.low / before.high,
            high: after.high / before.low,
        };
        is_finite(&factor).then_some(ComparedLevel { before: before.value, after: after.value, factor })
    };
    let expected = earlier.decision.as_ref().and_then(|decision| decision.change.expected.as_ref());
    let predicted_factor = expected.filter(|gain| gain.before_per_s > 0.0).map(|gain| Estimate {
        value: gain.after_per_s.value / gain.before_per_s,
        low: gain.after_per_s.low / gain.before_per_s,
        high: gain.after_per_s.high / gain.before_per_s,
    });
    let predicted_factor = predicted_factor.filter(is_finite);
    let is_same_quantity = earlier.quantity == search.quantity;
    let levels = is_same_quantity.then(|| compare(level(earlier), level(search))).flatten();
    SearchComparison {
        baseline: name.to_owned(),
        level: levels,
        ceiling: compare(earlier.ceiling_per_s, search.ceiling_per_s),
        predicted_factor,
        plan_differences: differing_keys(&earlier.plan, &search.plan),
    }
}

#[cfg(test)]
mod tests;
