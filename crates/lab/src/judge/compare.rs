//! Every arm against the baseline: the figures of a comparison, corrected for how many there are.
//!
//! Not for what they say: [`super::decide`] has the rule and [`super::said`] the words.

use record::experiment::{Better, Cell, Comparison, Metric, Outcome, Pair, Plan};

use super::blocks::Blocks;
use super::decide::{Numbers, decide, effect_log};
use super::{bottleneck, said};
use crate::statistics::bootstrap::{Resampling, bca};
use crate::statistics::effect::{larger_share, t_half_width};
use crate::statistics::signed_rank::{self, PAIRS_MIN};
use crate::statistics::{many, mean};

/// All comparisons: by load, then metric, then arm.
pub(super) fn compare(blocks: &Blocks<'_>, cells: &[Cell], draws: u32) -> Vec<Comparison> {
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
                    noise: arm.again.is_some(),
                    pairs: blocks.pairs(&arm.name, &load.name, &metric.name),
                    ..Comparison::default()
                };
                measure(&mut comparison, metric, plan, draws);
                comparisons.push(comparison);
            }
        }
    }
    correct(&mut comparisons);
    let noises: Vec<(String, String, f64)> = comparisons.iter().filter_map(noise).collect();
    for comparison in &mut comparisons {
        let Some(metric) = plan.metrics.iter().find(|metric| metric.name == comparison.metric)
        else {
            continue;
        };
        let of_same = |(load, name, _): &&(String, String, f64)| {
            *load == comparison.load && *name == comparison.metric
        };
        let noise = noises.iter().find(of_same).map(|(_, _, noise)| *noise);
        conclude(comparison, metric, blocks, cells, noise.filter(|_| !comparison.noise));
    }
    comparisons
}

/// The logarithms of the ratios; `None` where one is not of two positive values, or there are none.
pub(super) fn logs(pairs: &[Pair]) -> Option<Vec<f64>> {
    let positive = |pair: &Pair| pair.baseline > 0.0 && pair.arm > 0.0;
    (!pairs.is_empty() && pairs.iter().all(positive))
        .then(|| pairs.iter().map(|pair| (pair.arm / pair.baseline).ln()).collect())
}

/// The interval of the mean of logarithms: at each end the wider of BCa's and Student's.
pub(super) fn interval(logs: &[f64], resampling: Resampling) -> Option<(f64, f64)> {
    if logs.len() < PAIRS_MIN {
        return None;
    }
    let (middle, half) = (mean(logs)?, t_half_width(logs, resampling.confidence)?);
    let of_draw = |values: &mut [f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (low, high) = bca(logs, of_draw, resampling)?;
    Some((low.min(middle - half), high.max(middle + half)))
}

/// How intervals of a plan's comparisons are drawn.
pub(super) fn resampling(plan: &Plan, draws: u32) -> Resampling {
    Resampling { draws, seed: plan.seed, confidence: plan.confidence }
}

/// Whether half the width of the interval is below a bound. Student's alone, which is quick, often says
/// that it is not.
pub(super) fn is_narrow(logs: &[f64], plan: &Plan, draws: u32, half_width_max: f64) -> bool {
    t_half_width(logs, plan.confidence).is_some_and(|half| half < half_width_max)
        && interval(logs, resampling(plan, draws))
            .is_some_and(|(low, high)| (high - low) / 2.0 < half_width_max)
}

fn measure(comparison: &mut Comparison, metric: &Metric, plan: &Plan, draws: u32) {
    let arm: Vec<f64> = comparison.pairs.iter().map(|pair| pair.arm).collect();
    let baseline: Vec<f64> = comparison.pairs.iter().map(|pair| pair.baseline).collect();
    comparison.better_share = match metric.better {
        Better::Higher => larger_share(&arm, &baseline),
        Better::Lower => larger_share(&baseline, &arm),
    };
    comparison.cliffs_delta = comparison.better_share.map(|share| 2.0 * share - 1.0);
    let Some(logs) = logs(&comparison.pairs) else {
        // A zero has no ratio; of the differences can still be said whether they lean to one side.
        let differences: Vec<f64> = arm.iter().zip(&baseline).map(|(a, b)| a - b).collect();
        comparison.p = signed_rank::p(&differences);
        return;
    };
    comparison.ratio = mean(&logs).map(f64::exp);
    let interval = interval(&logs, resampling(plan, draws));
    comparison.interval = interval.map(|(low, high)| (low.exp(), high.exp()));
    // All the same: nothing leans to any side.
    comparison.p = signed_rank::p(&logs).or(Some(1.0));
}

/// Holm's correction, in four families: the primary metric and the others, each over arms and loads; the
/// A/A comparisons apart, which are no claims.
fn correct(comparisons: &mut [Comparison]) {
    for (primary, noise) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut family: Vec<&mut Comparison> = comparisons
            .iter_mut()
            .filter(|one| one.primary == primary && one.noise == noise && one.p.is_some())
            .collect();
        let ps: Vec<f64> = family.iter().filter_map(|one| one.p).collect();
        for (one, p) in family.iter_mut().zip(many::holm(&ps)) {
            one.p_adjusted = Some(p);
        }
    }
}

/// Of an A/A comparison: its load, its metric, and how far the baseline is from itself.
fn noise(comparison: &Comparison) -> Option<(String, String, f64)> {
    let ratio = comparison.ratio.filter(|_| comparison.noise)?;
    Some((comparison.load.clone(), comparison.metric.clone(), ratio.ln()))
}

fn conclude(
    comparison: &mut Comparison,
    metric: &Metric,
    blocks: &Blocks<'_>,
    cells: &[Cell],
    noise: Option<f64>,
) {
    let plan = blocks.plan;
    let Some(ratio) = comparison.ratio else {
        comparison.outcome = without_ratio(&comparison.pairs);
        comparison.text = said::without_ratio(comparison, metric, blocks);
        return;
    };
    let numbers = Numbers {
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
    comparison.text = said::text(comparison, metric, &numbers, reason, blocks);
    if !comparison.noise {
        bottleneck::weigh(comparison, metric, cells);
    }
}

/// Where every value is the same (no errors in any trial), both are; else nothing follows.
fn without_ratio(pairs: &[Pair]) -> Outcome {
    let same = |pair: &Pair| pair.arm == pair.baseline;
    let enough = pairs.len() >= PAIRS_MIN;
    if enough && pairs.iter().all(same) { Outcome::Equivalent } else { Outcome::Inconclusive }
}
