//! Judged trials, and their values within blocks.
//!
//! The engine decides before that which trials count. Conclusions are drawn elsewhere.

use std::collections::BTreeMap;

use record::experiment::{Arm, BlockPair, ExperimentPlan, TrialSummary, counted_blocks};
use record::sorted::CollectSorted;
use stats::sequential::BlockValues;

pub(super) struct JudgedTrials<'a> {
    pub(super) plan: &'a ExperimentPlan,
    /// All trials in the order of running, also those that do not count.
    pub(super) all: &'a [TrialSummary],
    /// Trials that count, in the order of running.
    pub(super) judged: Vec<&'a TrialSummary>,
    /// Number of the machine's CPUs; 0 if unknown.
    cpus: f64,
}

/// Values of an arm and its baseline by block.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BlockSeries {
    pub(super) pairs: Vec<BlockPair>,
    /// Logarithms; empty if a value is not above zero.
    pub(super) logs: Vec<BlockValues>,
    pub(super) baseline: Vec<f64>,
}

impl<'a> JudgedTrials<'a> {
    /// Takes the trials that count, as the engine marked them ([`crate::engine::blocks::mark_discarded`]):
    /// one try of each block under each load.
    pub(super) fn new(plan: &'a ExperimentPlan, all: &'a [TrialSummary], cpus: f64) -> Self {
        Self { plan, all, judged: all.iter().filter(|trial| trial.is_counted()).collect(), cpus }
    }

    pub(super) fn block_count(&self) -> usize {
        counted_blocks(self.judged.iter().copied())
    }

    /// Returns the arms that are compared with the baseline, in the plan's order, including the A/A
    /// arm.
    pub(super) fn arms(&self) -> impl Iterator<Item = &'a Arm> + use<'a> {
        let plan = self.plan;
        plan.arms.iter().filter(|arm| arm.name != plan.baseline)
    }

    pub(super) fn cell(&self, arm: &str, load: &str) -> impl Iterator<Item = &'a TrialSummary> {
        let is_of = move |trial: &&&TrialSummary| trial.position.arm == arm && trial.position.load == load;
        self.judged.iter().filter(is_of).copied()
    }

    /// Returns the metric of an arm under a load, by block.
    pub(super) fn values_by_block(&self, arm: &str, load: &str, metric: &str) -> BTreeMap<u32, f64> {
        let figure = |trial: &TrialSummary| Some((trial.position.block, *trial.metrics.get(metric)?));
        let figures = self.cell(arm, load).filter_map(figure);
        figures.filter(|(_, value)| value.is_finite()).collect_map()
    }

    /// Returns the fraction of the CPUs that others took during the trials of an arm under a load, by block.
    fn taken_by_block(&self, arm: &str, load: &str) -> BTreeMap<u32, f64> {
        let taken = |trial: &TrialSummary| {
            let foreign = trial.covariates.foreign_cpus.filter(|_| self.cpus > 0.0).unwrap_or(0.0);
            foreign / self.cpus.max(1.0) + trial.covariates.steal_fraction.unwrap_or(0.0)
        };
        self.cell(arm, load).map(|trial| (trial.position.block, taken(trial))).collect_map()
    }

    /// Returns the blocks in which both the arm and the baseline have the metric, in order. Both runs of the baseline
    /// are compared with the arm, unless the arm is the second of them.
    pub(super) fn series(&self, arm: &Arm, load: &str, metric: &str) -> BlockSeries {
        let plan = self.plan;
        let is_repeat =
            |other: &&Arm| arm.repeats.is_none() && other.repeats.as_ref() == Some(&plan.baseline);
        let repeat = plan.arms.iter().find(is_repeat).map_or("", |repeat| repeat.name.as_str());
        let names = [arm.name.as_str(), plan.baseline.as_str(), repeat];
        let [own, first, second] = names.map(|name| self.values_by_block(name, load, metric));
        let taken = names.map(|name| self.taken_by_block(name, load));
        let mut series = BlockSeries::default();
        let mut is_positive = true;
        for (&block, &arm) in &own {
            let Some(&baseline) = first.get(&block) else { continue };
            let repeat = second.get(&block).copied();
            series.baseline.extend([Some(baseline), repeat].into_iter().flatten());
            series.pairs.push(BlockPair { block, baseline: mean_of_runs(baseline, repeat), arm });
            is_positive &= [Some(arm), Some(baseline), repeat].into_iter().flatten().all(|value| value > 0.0);
            series.logs.push(BlockValues {
                block,
                arm: arm.ln(),
                baseline: baseline.ln(),
                repeat: repeat.map(f64::ln),
                taken: [0, 1, 2].map(|run: usize| taken[run].get(&block).copied().unwrap_or(0.0)),
            });
        }
        if !is_positive {
            series.logs.clear();
        }
        series
    }
}

/// Returns the geometric mean of the baseline's runs, or the mean if one is not above zero.
fn mean_of_runs(first: f64, second: Option<f64>) -> f64 {
    match second {
        Some(second) if first > 0.0 && second > 0.0 => (first * second).sqrt(),
        Some(second) => f64::midpoint(first, second),
        None => first,
    }
}

/// Returns the blocks that both sides have, in order.
pub(super) fn pair_blocks(baseline: &BTreeMap<u32, f64>, arm: &BTreeMap<u32, f64>) -> Vec<BlockPair> {
    let pair = |(&block, &arm): (&u32, &f64)| {
        baseline.get(&block).map(|&baseline| BlockPair { block, baseline, arm })
    };
    arm.iter().filter_map(pair).collect()
}

/// Returns the logarithms of the ratios. `None` if there are no pairs, or if a value is not
/// positive.
pub(super) fn log_ratios(pairs: &[BlockPair]) -> Option<Vec<f64>> {
    let positive = |pair: &BlockPair| pair.baseline > 0.0 && pair.arm > 0.0;
    (!pairs.is_empty() && pairs.iter().all(positive))
        .then(|| pairs.iter().map(|pair| (pair.arm / pair.baseline).ln()).collect())
}
