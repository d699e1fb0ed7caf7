//! Comparison of two sets of results that were not measured in turn: two stored runs, before and
//! after.
//!
//! The blocks of an experiment allow pairs, which show far more. Nothing is known here of the time
//! between the runs.

use record::experiment::{BetterDirection, ComparisonOutcome, ExperimentMetric};

use super::decide::{OutcomeReason, SetFigures, effect_log, outcome_of_sets};
use super::phrases;
use crate::format::{bound_percent, p_value};
use stats::effect::{hodges_lehmann_shift, larger_fraction, welch_interval};
use stats::multiple_comparisons::holm;
use stats::{median, rank_sum};

/// Minimum number of values of each set: with three, p cannot be below 0.1.
const VALUES_MIN: usize = 4;

/// Comparison of two sets that were not measured in turn. Ratios are b / a, where a came first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnpairedComparison {
    /// Median of the first set.
    pub a_median: Option<f64>,
    pub b_median: Option<f64>,
    /// Ratio of the second set to the first: Hodges and Lehmann's shift of the logarithms. `None`
    /// if a value is not above zero.
    pub ratio: Option<f64>,
    /// Interval of the ratio, Welch's for the logarithms; `None` with fewer than four values in a
    /// set.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p of the Mann-Whitney U test.
    pub p: Option<f64>,
    /// p after Holm's correction for the number of compared sets; it decides.
    pub p_adjusted: Option<f64>,
    /// Probability that a value of the second set is better than one of the first; ties count half.
    pub better_fraction: Option<f64>,
    /// Outcome. It holds for the two sets and does not name the cause of the difference.
    pub outcome: ComparisonOutcome,
    pub text: String,
}

/// Two sets of results in one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct UnpairedSets<'a> {
    /// Values before.
    pub a: Vec<f64>,
    /// Values after.
    pub b: Vec<f64>,
    pub metric: &'a ExperimentMetric,
    pub is_primary: bool,
}

/// Compares sets of results. `effect` is the smallest fraction that matters (0.02), `confidence`
/// the interval's (0.95). Values that are not finite are left out. As in an experiment, the primary
/// metric is a family of its own, and all others are another.
pub fn compare_unpaired(sets: &[UnpairedSets<'_>], effect: f64, confidence: f64) -> Vec<UnpairedComparison> {
    let mut results: Vec<UnpairedComparison> = sets.iter().map(|set| measure_sets(set, confidence)).collect();
    for primary in [true, false] {
        let mut family: Vec<&mut UnpairedComparison> = results
            .iter_mut()
            .zip(sets)
            .filter(|(comparison, set)| set.is_primary == primary && comparison.p.is_some())
            .map(|(comparison, _)| comparison)
            .collect();
        let ps: Vec<f64> = family.iter().filter_map(|comparison| comparison.p).collect();
        for (comparison, p) in family.iter_mut().zip(holm(&ps)) {
            comparison.p_adjusted = Some(p);
        }
    }
    for (comparison, set) in results.iter_mut().zip(sets) {
        conclude(comparison, set, effect, confidence);
    }
    results
}

fn measure_sets(set: &UnpairedSets<'_>, confidence: f64) -> UnpairedComparison {
    let finite =
        |values: &[f64]| -> Vec<f64> { values.iter().copied().filter(|value| value.is_finite()).collect() };
    let (a, b) = (finite(&set.a), finite(&set.b));
    let mut result = UnpairedComparison {
        a_median: median(&a),
        b_median: median(&b),
        p: rank_sum::p_value(&b, &a),
        ..UnpairedComparison::default()
    };
    result.better_fraction = match set.metric.better {
        BetterDirection::Higher => larger_fraction(&b, &a),
        BetterDirection::Lower => larger_fraction(&a, &b),
    };
    let log = |values: &[f64]| -> Option<Vec<f64>> {
        let positive = !values.is_empty() && values.iter().all(|value| *value > 0.0);
        positive.then(|| values.iter().map(|value| value.ln()).collect())
    };
    let (Some(log_a), Some(log_b)) = (log(&a), log(&b)) else {
        return result;
    };
    let shift = hodges_lehmann_shift(&log_b, &log_a).unwrap_or(0.0);
    result.ratio = Some(shift.exp());
    let few = a.len().min(b.len()) < VALUES_MIN;
    let interval = if few { None } else { welch_interval_with_shift(&log_a, &log_b, shift, confidence) };
    result.interval = interval.map(|(low, high)| (low.exp(), high.exp()));
    result
}

fn conclude(result: &mut UnpairedComparison, set: &UnpairedSets<'_>, effect: f64, confidence: f64) {
    let Some(ratio) = result.ratio else {
        result.text = "There is no ratio: a set is empty, or a value is not above zero.".to_owned();
        return;
    };
    let figures = SetFigures {
        ratio: ratio.ln(),
        interval: result.interval.map(|(low, high)| (low.ln(), high.ln())),
        p_adjusted: result.p_adjusted,
        effect: effect_log(effect),
        alpha: 1.0 - confidence,
    };
    let (outcome, reason) = outcome_of_sets(&figures, set.metric.better);
    result.outcome = outcome;
    result.text = text(result, reason, set.metric, effect, (set.a.len(), set.b.len()));
}

/// Returns Welch's interval, extended to contain the shift. The shift is a median and may lie
/// outside the interval of the means.
fn welch_interval_with_shift(a: &[f64], b: &[f64], shift: f64, confidence: f64) -> Option<(f64, f64)> {
    let (low, high) = welch_interval(b, a, confidence).unwrap_or((shift, shift));
    Some((low.min(shift), high.max(shift)))
}

fn text(
    result: &UnpairedComparison,
    reason: OutcomeReason,
    metric: &ExperimentMetric,
    effect: f64,
    (count_a, count_b): (usize, usize),
) -> String {
    let ratio = result.ratio.unwrap_or(1.0);
    let differs = format!("the second {} the first", phrases::difference_phrase(metric, ratio));
    let range = result.interval.map(phrases::interval_text).unwrap_or_default();
    let p = result.p_adjusted.map(p_value).unwrap_or_default();
    let basis = format!("{range}, {count_a} and {count_b} results, {p}");
    let matters = bound_percent(effect);
    match reason {
        OutcomeReason::TooFewValues => format!(
            "No conclusion from {count_a} and {count_b} results: {VALUES_MIN} of each are required. So far \
             {differs}."
        ),
        OutcomeReason::NoRelevantDifference | OutcomeReason::BelowRelevantEffect => format!(
            "The two are equivalent in {}: the difference is smaller than the {matters} that matters \
             ({basis}).",
            phrases::noun(metric)
        ),
        OutcomeReason::RelevantEffect | OutcomeReason::MaybeRelevant => {
            format!("Significant: {differs} ({basis}).")
        }
        OutcomeReason::Open => {
            format!("No conclusion: {differs}, but this may be chance ({basis}).")
        }
    }
}
