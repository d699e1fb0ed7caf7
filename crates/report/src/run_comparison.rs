//! Comparison of a run with a baseline: the change of each figure with the interval that separates it from noise,
//! and the conditions that make a regression of it (`--fail-if`).
//!
//! A figure is that of the complete run, from its merged histogram. The interval comes from the seconds of both
//! runs: percentiles of seconds are compared by their medians and never averaged. It covers the noise within the
//! runs; a difference between runs that has other reasons (the placement of threads, another build of the kernel)
//! needs repetitions (`weir lab run`).

mod condition;

use experiment::format;
use record::run::{Interval, Run};
use record::units::{format_duration_ns, format_rate};
use record::validity::ValidityVerdict;
use stats::block_bootstrap::difference_interval;
use stats::bootstrap::Resampling;
use stats::effect::{LimitPosition, compare_with_limit};

pub use condition::RegressionCondition;

/// Figure of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedFigure {
    /// Good responses per second.
    Rate,
    /// Median of the response latency.
    P50,
    /// 99th percentile of the response latency.
    P99,
    /// Fraction of the requests without a good response.
    Errors,
}

impl ComparedFigure {
    /// All figures, in the order of the output.
    pub const ALL: [Self; 4] = [Self::Rate, Self::P50, Self::P99, Self::Errors];

    /// Returns the name in a condition.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Errors => "errors",
        }
    }

    /// Returns true if a higher value is worse.
    #[must_use]
    pub const fn is_worse_if_higher(self) -> bool {
        !matches!(self, Self::Rate)
    }

    /// Returns the value of a run.
    #[must_use]
    pub fn value(self, run: &Run) -> f64 {
        match self {
            Self::Rate => run.goodput_per_s(),
            Self::P50 => run.latency.last_byte.response.p50_ns as f64,
            Self::P99 => run.latency.last_byte.response.p99_ns as f64,
            Self::Errors => run.totals.error_fraction(),
        }
    }

    /// Formats a value.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Rate => format_rate(value),
            Self::P50 | Self::P99 => format_duration_ns(value as u64),
            Self::Errors => format::percent(value),
        }
    }

    /// Formats a change: a ratio minus 1, or a difference of fractions.
    #[must_use]
    pub fn format_change(self, change: f64) -> String {
        match self {
            Self::Errors => format!("{:+.2} percentage points", change * 100.0),
            _ => format::signed_change(1.0 + change),
        }
    }
}

/// Comparison of a run with a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct RunComparison {
    /// Changes of all figures.
    pub changes: Vec<FigureChange>,
    /// Results of the conditions.
    pub results: Vec<ConditionResult>,
    /// Settings in which the plans differ.
    pub plan_differences: Vec<String>,
}

/// Change of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureChange {
    /// Figure that is compared.
    pub figure: ComparedFigure,
    /// Value of the baseline.
    pub before: f64,
    /// Value of the run.
    pub after: f64,
    /// Ratio minus 1; for errors the difference. `None` if the baseline is 0.
    pub change: Option<f64>,
    /// Interval of the change (95 %), from the seconds of both runs.
    pub interval: Option<(f64, f64)>,
}

/// Result of a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionResult {
    /// Condition as given.
    pub condition: RegressionCondition,
    /// Outcome of the comparison.
    pub outcome: RegressionOutcome,
}

/// Outcome of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegressionOutcome {
    /// The change exceeds the limit, and so does its interval.
    Regression,
    /// The interval is within the limit.
    Within,
    /// The seconds of the runs cannot decide it, with the reason.
    Undecided(String),
}

impl RunComparison {
    /// Compares a run with a baseline.
    #[must_use]
    pub fn new(baseline: &Run, run: &Run, conditions: &[RegressionCondition]) -> Self {
        let changes: Vec<FigureChange> =
            ComparedFigure::ALL.into_iter().map(|figure| compare_figure(figure, baseline, run)).collect();
        let judge = |condition: &RegressionCondition| {
            let change = changes.iter().find(|change| change.figure == condition.figure);
            let outcome = match (unusable(baseline, run), change) {
                (None, Some(change)) => judge(condition, change),
                (reason, _) => RegressionOutcome::Undecided(reason.unwrap_or_default()),
            };
            ConditionResult { condition: condition.clone(), outcome }
        };
        let results = conditions.iter().map(judge).collect();
        Self { results, plan_differences: plan_differences(baseline, run), changes }
    }

    /// Returns true if a condition shows a regression.
    #[must_use]
    pub fn has_regression(&self) -> bool {
        self.results.iter().any(|result| result.outcome == RegressionOutcome::Regression)
    }

    /// Formats the comparison: a line for each figure, then the results of the conditions.
    #[must_use]
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
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} {}: {}", self.figure.name(), self.values_text(), self.change_text())
    }

    /// Formats both values.
    #[must_use]
    pub fn values_text(&self) -> String {
        let [before, after] = [self.before, self.after].map(|value| self.figure.format(value));
        format!("{before} -> {after}")
    }

    /// Formats the change with its interval, or the reason why it has none.
    #[must_use]
    pub fn change_text(&self) -> String {
        let Some(change) = self.change else { return "no ratio to 0".to_owned() };
        let change = self.figure.format_change(change);
        match self.interval {
            Some((low, high)) => {
                let [low, high] = [low, high].map(|end| self.figure.format_change(end));
                format!("{change} (95 % interval {low} to {high})")
            }
            None => format!("{change} (no interval: fewer than {SECONDS_MIN} complete seconds in a run)"),
        }
    }

    /// Returns true if the interval shows a change of either direction.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

impl ConditionResult {
    /// Formats the result: the outcome first.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}: {}", self.condition.text(), self.outcome_text())
    }

    /// Formats the outcome with its reason.
    #[must_use]
    pub fn outcome_text(&self) -> String {
        match &self.outcome {
            RegressionOutcome::Regression => "YES, the interval is beyond the limit".to_owned(),
            RegressionOutcome::Within => "no, the interval is within the limit".to_owned(),
            RegressionOutcome::Undecided(reason) => format!("undecided, {reason}"),
        }
    }
}

/// Minimum number of complete seconds in a run for an interval.
const SECONDS_MIN: usize = 8;
/// Parameters of the intervals. The seed is fixed: the same records give the same result.
const RESAMPLING: Resampling = Resampling { draws: 2_000, seed: 1, confidence: 0.95 };
/// Shortest interval of a record that counts as a complete second.
const COMPLETE_S: f64 = 0.9;

fn compare_figure(figure: ComparedFigure, baseline: &Run, run: &Run) -> FigureChange {
    let (before, after) = (figure.value(baseline), figure.value(run));
    let (change, interval) = match figure {
        ComparedFigure::Errors => (Some(after - before), errors_interval(baseline, run)),
        _ => ((before > 0.0).then(|| after / before - 1.0), ratio_interval(figure, baseline, run)),
    };
    FigureChange { figure, before, after, change, interval }
}

/// Returns the complete seconds of the measured window.
fn seconds(run: &Run) -> impl Iterator<Item = &Interval> {
    run.intervals.iter().filter(|interval| interval.measured && interval.length_s >= COMPLETE_S)
}

/// Returns the interval of a ratio minus 1: of the medians of the seconds' percentiles, or of the mean rates.
fn ratio_interval(figure: ComparedFigure, baseline: &Run, run: &Run) -> Option<(f64, f64)> {
    let value = |second: &Interval| match figure {
        ComparedFigure::P50 => second.p50_ns.map(|ns| ns as f64),
        ComparedFigure::P99 => second.p99_ns.map(|ns| ns as f64),
        _ => Some(second.good.unwrap_or(second.responses) as f64 / second.length_s),
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
        let failed = second.errors.values().sum::<u64>() + second.dropped;
        let bad = second.responses - second.good.unwrap_or(second.responses).min(second.responses);
        (failed + bad, second.responses + failed)
    };
    let values = |run| seconds(run).map(counts).collect::<Vec<(u64, u64)>>();
    let (before, after) = (values(baseline), values(run));
    if before.len().min(after.len()) < SECONDS_MIN {
        return None;
    }
    let fraction = |values: &mut [(u64, u64)]| {
        let (bad, all) = values.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if all == 0 { f64::NAN } else { bad as f64 / all as f64 }
    };
    difference_interval(&before, &after, fraction, |before, after| after - before, RESAMPLING)
}

/// Returns the reason why the runs cannot be compared at all.
fn unusable(baseline: &Run, run: &Run) -> Option<String> {
    let invalid = |run: &Run| run.validity.verdict == ValidityVerdict::Invalid;
    match (invalid(baseline), invalid(run)) {
        (false, false) => None,
        (true, _) => Some("the baseline is not valid: record another one".to_owned()),
        (false, true) => Some("this run is not valid (its reasons are above)".to_owned()),
    }
}

fn judge(condition: &RegressionCondition, compared: &FigureChange) -> RegressionOutcome {
    let Some(change) = compared.change else {
        return RegressionOutcome::Undecided("the baseline is 0".to_owned());
    };
    let Some((low, high)) = compared.interval else {
        let reason =
            format!("fewer than {SECONDS_MIN} complete seconds in a run: load for 10s or longer (-d)");
        return RegressionOutcome::Undecided(reason);
    };
    // Worse is positive from here on.
    let (limit, change, low, high) = match compared.figure.is_worse_if_higher() {
        true => (condition.limit, change, low, high),
        false => (condition.limit, -change, -high, -low),
    };
    match compare_with_limit(change, (low, high), limit) {
        LimitPosition::Beyond => RegressionOutcome::Regression,
        LimitPosition::Within => RegressionOutcome::Within,
        LimitPosition::Open => RegressionOutcome::Undecided(
            "the limit lies within the noise of the seconds: load for longer, or repeat both runs".to_owned(),
        ),
    }
}

/// Returns the names of the settings in which the plans differ.
fn plan_differences(baseline: &Run, run: &Run) -> Vec<String> {
    let (Some(first), Some(second)) = (baseline.plan.as_object(), run.plan.as_object()) else {
        return Vec::new();
    };
    let keys: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    keys.into_iter().filter(|key| first.get(*key) != second.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests;
