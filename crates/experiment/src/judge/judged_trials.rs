//! Judged trials, and their pairs within blocks.
//!
//! The engine decides before that which trials count. Conclusions are drawn elsewhere.

use std::collections::BTreeMap;

use record::experiment::{Arm, BlockPair, ExperimentPlan, TrialSummary, counted_blocks};

/// The trials that are judged.
pub(super) struct JudgedTrials<'a> {
    pub(super) plan: &'a ExperimentPlan,
    /// All trials in the order of running, also those that do not count.
    pub(super) all: &'a [TrialSummary],
    /// Trials that count, in the order of running.
    pub(super) judged: Vec<&'a TrialSummary>,
}

impl<'a> JudgedTrials<'a> {
    /// Takes the trials that count, as the engine marked them ([`crate::engine::blocks::mark_discarded`]):
    /// one try of each block under each load.
    pub(super) fn new(plan: &'a ExperimentPlan, all: &'a [TrialSummary]) -> Self {
        Self { plan, all, judged: all.iter().filter(|trial| trial.is_counted()).collect() }
    }

    /// Returns the number of judged blocks.
    pub(super) fn block_count(&self) -> usize {
        counted_blocks(self.judged.iter().copied())
    }

    /// Returns the arms that are compared with the baseline, in the plan's order, including the A/A
    /// arm.
    pub(super) fn arms(&self) -> impl Iterator<Item = &'a Arm> + use<'a> {
        let plan = self.plan;
        plan.arms.iter().filter(|arm| arm.name != plan.baseline)
    }

    /// Returns the judged trials of an arm under a load.
    pub(super) fn cell(&self, arm: &str, load: &str) -> impl Iterator<Item = &'a TrialSummary> {
        let is_of = move |trial: &&&TrialSummary| trial.position.arm == arm && trial.position.load == load;
        self.judged.iter().filter(is_of).copied()
    }

    /// Returns the metric of an arm under a load, by block.
    pub(super) fn values_by_block(&self, arm: &str, load: &str, metric: &str) -> BTreeMap<u32, f64> {
        let figure = |trial: &TrialSummary| Some((trial.position.block, *trial.metrics.get(metric)?));
        let figures = self.cell(arm, load).filter_map(figure);
        figures.filter(|(_, value)| value.is_finite()).collect()
    }

    /// Returns the blocks in which both the arm and the baseline have the metric, in order.
    pub(super) fn pairs(&self, arm: &str, load: &str, metric: &str) -> Vec<BlockPair> {
        pair_blocks(
            &self.values_by_block(&self.plan.baseline, load, metric),
            &self.values_by_block(arm, load, metric),
        )
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
