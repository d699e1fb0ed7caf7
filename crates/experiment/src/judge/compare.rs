//! Comparisons of every arm with the baseline, corrected for the number of comparisons.
//!
//! [`super::decide`] has the rule for outcomes and [`super::sentence`] the sentences.

use record::experiment::{
    BetterDirection, BlockPair, Comparison, ComparisonOutcome, ExperimentCell, ExperimentMetric,
    ExperimentPlan,
};

use super::decide::{ComparisonFigures, decide, effect_log};
use super::judged_trials::{JudgedTrials, log_ratios};
use super::{bottleneck, sentence};
use stats::bootstrap::{Resampling, bca_interval};
use stats::effect::{larger_fraction, t_half_width};
use stats::signed_rank::{self, PAIRS_MIN};
use stats::{mean, multiple_comparisons};

/// Computes all comparisons: by load, then metric, then arm.
pub(super) fn compare_all(
    blocks: &JudgedTrials<'_>,
    cells: &[ExperimentCell],
    draws: u32,
) -> Vec<Comparison> {
    let plan = blocks.plan;
    let mut comparisons = Vec::new();
    for load in &plan.loads {
        for (at, metric) in plan.metrics.iter().enumerate() {
            for arm in blocks.arms() {
                let mut comparison = Comparison {
                    arm: arm.name.clone(),
                    baseline: plan.baseline.clone(),
                    load: load.name.clone(),
                    metric: metric.name.clone(),
                    primary: at == 0,
                    noise: arm.repeats.is_some(),
                    pairs: blocks.pairs(&arm.name, &load.name, &metric.name),
                    ..Comparison::default()
                };
                measure_comparison(&mut comparison, metric, plan, draws);
                comparisons.push(comparison);
            }
        }
    }
    correct_for_multiple_comparisons(&mut comparisons);
    let noises: Vec<(String, String, f64)> = comparisons.iter().filter_map(baseline_noise).collect();
    for comparison in &mut comparisons {
        let Some(metric) = plan.metrics.iter().find(|metric| metric.name == comparison.metric) else {
            continue;
        };
        let of_same =
            |(load, name, _): &&(String, String, f64)| *load == comparison.load && *name == comparison.metric;
        let noise = noises.iter().find(of_same).map(|(_, _, noise)| *noise);
        conclude(comparison, metric, blocks, cells, noise.filter(|_| !comparison.noise));
    }
    comparisons
}

/// Returns the interval of the mean of logarithms: at each end the wider of BCa's and Student's.
pub(super) fn log_interval(logs: &[f64], resampling: Resampling) -> Option<(f64, f64)> {
    if logs.len() < PAIRS_MIN {
        return None;
    }
    let (mean_log, half) = (mean(logs)?, t_half_width(logs, resampling.confidence)?);
    let of_draw = |values: &mut [f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (low, high) = bca_interval(logs, of_draw, resampling)?;
    Some((low.min(mean_log - half), high.max(mean_log + half)))
}

/// Returns the resampling parameters for the comparisons of a plan.
pub(super) fn resampling(plan: &ExperimentPlan, draws: u32) -> Resampling {
    Resampling { draws, seed: plan.seed, confidence: plan.confidence }
}

/// Returns whether half the width of the interval is below a bound. Student's interval is quick to
/// compute and often suffices to say no.
pub(super) fn is_narrow(logs: &[f64], plan: &ExperimentPlan, draws: u32, half_width_max: f64) -> bool {
    t_half_width(logs, plan.confidence).is_some_and(|half| half < half_width_max)
        && log_interval(logs, resampling(plan, draws))
            .is_some_and(|(low, high)| (high - low) / 2.0 < half_width_max)
}

fn measure_comparison(
    comparison: &mut Comparison,
    metric: &ExperimentMetric,
    plan: &ExperimentPlan,
    draws: u32,
) {
    let arm: Vec<f64> = comparison.pairs.iter().map(|pair| pair.arm).collect();
    let baseline: Vec<f64> = comparison.pairs.iter().map(|pair| pair.baseline).collect();
    comparison.better_fraction = match metric.better {
        BetterDirection::Higher => larger_fraction(&arm, &baseline),
        BetterDirection::Lower => larger_fraction(&baseline, &arm),
    };
    comparison.cliffs_delta = comparison.better_fraction.map(|fraction| 2.0 * fraction - 1.0);
    let Some(logs) = log_ratios(&comparison.pairs) else {
        // A zero has no ratio, but a test of the differences can still show that they lean to one
        // side.
        let differences: Vec<f64> = arm.iter().zip(&baseline).map(|(a, b)| a - b).collect();
        comparison.p = signed_rank::p_value(&differences);
        return;
    };
    comparison.ratio = mean(&logs).map(f64::exp);
    let interval = log_interval(&logs, resampling(plan, draws));
    comparison.interval = interval.map(|(low, high)| (low.exp(), high.exp()));
    // All values are the same, so nothing leans to any side.
    comparison.p = signed_rank::p_value(&logs).or(Some(1.0));
}

/// Applies Holm's correction in four families. The primary metric and the others are separate, each
/// over arms and loads, and so are their A/A comparisons, which are no claims.
fn correct_for_multiple_comparisons(comparisons: &mut [Comparison]) {
    for (primary, noise) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut family: Vec<&mut Comparison> = comparisons
            .iter_mut()
            .filter(|one| one.primary == primary && one.noise == noise && one.p.is_some())
            .collect();
        let ps: Vec<f64> = family.iter().filter_map(|one| one.p).collect();
        for (one, p) in family.iter_mut().zip(multiple_comparisons::holm(&ps)) {
            one.p_adjusted = Some(p);
        }
    }
}

/// Returns the load, the metric and the baseline's difference from itself, for an A/A comparison.
fn baseline_noise(comparison: &Comparison) -> Option<(String, String, f64)> {
    let ratio = comparison.ratio.filter(|_| comparison.noise)?;
    Some((comparison.load.clone(), comparison.metric.clone(), ratio.ln()))
}

fn conclude(
    comparison: &mut Comparison,
    metric: &ExperimentMetric,
    blocks: &JudgedTrials<'_>,
    cells: &[ExperimentCell],
    noise: Option<f64>,
) {
    let plan = blocks.plan;
    let Some(ratio) = comparison.ratio else {
        comparison.outcome = outcome_without_ratio(&comparison.pairs);
        comparison.text = sentence::text_without_ratio(comparison, metric, blocks);
        return;
    };
    let numbers = ComparisonFigures {
        pairs: comparison.pairs.len(),
        ratio: ratio.ln(),
        interval: comparison.interval.map(|(low, high)| (low.ln(), high.ln())),
        p_adjusted: comparison.p_adjusted,
        noise,
        effect: effect_log(plan.effect),
        alpha: 1.0 - plan.confidence,
    };
    let (outcome, reason) = decide(&numbers, metric.better);
    comparison.outcome = outcome;
    comparison.text = sentence::comparison_text(comparison, metric, &numbers, reason, blocks);
    if !comparison.noise {
        bottleneck::adjust_for_limits(comparison, metric, cells);
    }
}

/// Returns the outcome of pairs without a ratio: equivalent if both sides are equal in every pair
/// (no errors in any trial), else inconclusive.
fn outcome_without_ratio(pairs: &[BlockPair]) -> ComparisonOutcome {
    let same = |pair: &BlockPair| pair.arm == pair.baseline;
    let enough = pairs.len() >= PAIRS_MIN;
    if enough && pairs.iter().all(same) {
        ComparisonOutcome::Equivalent
    } else {
        ComparisonOutcome::Inconclusive
    }
}
