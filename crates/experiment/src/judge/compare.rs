//! Comparisons of every arm with the baseline after each block ([`stats::sequential`]).
//!
//! [`super::decide`] has the reasons of outcomes and [`super::sentence`] the sentences.

use record::experiment::{
    BetterDirection, BlockPair, Comparison, ComparisonOutcome, ExperimentCell, ExperimentMetric,
};
use stats::effect::larger_fraction;
use stats::sequential::{BLOCKS_MIN, ClaimJudgement, Question, judge_claims};
use stats::signed_rank;

use super::decide::{effect_log, outcome_of_claim};
use super::judged_trials::{BlockSeries, JudgedTrials};
use super::{bottleneck, sentence};

/// Computes the comparisons in these metrics: by load, then metric, then arm. `block_s` is the duration of a block, if
/// known.
pub(super) fn compare_all(
    blocks: &JudgedTrials<'_>,
    metrics: &[ExperimentMetric],
    cells: &[ExperimentCell],
    block_s: Option<f64>,
) -> Vec<Comparison> {
    let plan = blocks.plan;
    let mut compared: Vec<ComparedSeries<'_>> = Vec::new();
    for load in &plan.loads {
        for (at, metric) in metrics.iter().enumerate() {
            for arm in blocks.arms() {
                let series = blocks.series(arm, &load.name, &metric.name);
                let mut comparison = Comparison {
                    arm: arm.name.clone(),
                    baseline: plan.baseline.clone(),
                    load: load.name.clone(),
                    metric: metric.name.clone(),
                    primary: at == 0,
                    noise: arm.repeats.is_some(),
                    pairs: series.pairs.clone(),
                    ..Comparison::default()
                };
                count_better(&mut comparison, metric, &series.baseline);
                compared.push((comparison, metric, series));
            }
        }
    }
    let question = Question { effect: effect_log(plan.effect), confidence: plan.confidence };
    let judgements = judge_families(&compared, question);
    let concluded = compared.into_iter().zip(judgements).map(|((mut comparison, metric, _), judgement)| {
        match judgement {
            Some(judgement) => {
                fill_figures(&mut comparison, &judgement);
                let (outcome, reason) = outcome_of_claim(&judgement, question.effect, metric.better);
                comparison.outcome = outcome;
                let look = &judgement.look;
                comparison.text =
                    sentence::comparison_text(&comparison, metric, (reason, look), blocks, block_s);
                if !comparison.noise {
                    bottleneck::adjust_for_limits(&mut comparison, metric, cells);
                }
            }
            None => conclude_without_ratio(&mut comparison, metric, blocks),
        }
        comparison
    });
    concluded.collect()
}

type ComparedSeries<'a> = (Comparison, &'a ExperimentMetric, BlockSeries);

/// Judges the claims in four families: the primary metric and the others, each over arms and loads, and their A/A
/// comparisons, which are no claims. Comparisons without logarithms have no judgement.
fn judge_families(compared: &[ComparedSeries<'_>], question: Question) -> Vec<Option<ClaimJudgement>> {
    let mut judgements: Vec<Option<ClaimJudgement>> = vec![None; compared.len()];
    for (primary, noise) in [(true, false), (false, false), (true, true), (false, true)] {
        let is_member = |(comparison, _, series): &ComparedSeries<'_>| {
            comparison.primary == primary && comparison.noise == noise && !series.logs.is_empty()
        };
        let family: Vec<usize> = (0..compared.len()).filter(|&at| is_member(&compared[at])).collect();
        let claims: Vec<_> = family.iter().map(|&at| compared[at].2.logs.clone()).collect();
        for (at, judgement) in family.into_iter().zip(judge_claims(&claims, question)) {
            judgements[at] = Some(judgement);
        }
    }
    judgements
}

fn count_better(comparison: &mut Comparison, metric: &ExperimentMetric, baseline: &[f64]) {
    let arm: Vec<f64> = comparison.pairs.iter().map(|pair| pair.arm).collect();
    comparison.better_fraction = match metric.better {
        BetterDirection::Higher => larger_fraction(&arm, baseline),
        BetterDirection::Lower => larger_fraction(baseline, &arm),
    };
    comparison.cliffs_delta = comparison.better_fraction.map(|fraction| 2.0 * fraction - 1.0);
}

fn fill_figures(comparison: &mut Comparison, judgement: &ClaimJudgement) {
    let look = &judgement.look;
    comparison.ratio = Some(look.mean.exp());
    comparison.interval = judgement.interval.map(|(low, high)| (low.exp(), high.exp()));
    comparison.p = judgement.p;
    comparison.p_adjusted = judgement.p_adjusted;
    comparison.beyond = (look.above as u32, look.below as u32);
    comparison.set_aside.clone_from(&look.set_aside);
    comparison.concluded_after = judgement.concluded_after.map(|blocks| blocks as u32);
    comparison.blocks_needed = judgement.blocks_needed.map(|blocks| blocks as u32);
}

/// Concludes pairs without a ratio, because a value is not above zero: equivalent if both sides are equal in every pair
/// (no errors in any trial). A test of the differences can still show that they lean to one side.
fn conclude_without_ratio(comparison: &mut Comparison, metric: &ExperimentMetric, blocks: &JudgedTrials<'_>) {
    let differences: Vec<f64> = comparison.pairs.iter().map(|pair| pair.arm - pair.baseline).collect();
    comparison.p = signed_rank::p_value(&differences);
    let is_same = |pair: &BlockPair| pair.arm == pair.baseline;
    if comparison.pairs.len() >= BLOCKS_MIN && comparison.pairs.iter().all(is_same) {
        comparison.outcome = ComparisonOutcome::Equivalent;
        comparison.concluded_after = Some(comparison.pairs.len() as u32);
    }
    comparison.text = sentence::text_without_ratio(comparison, metric, blocks);
}
