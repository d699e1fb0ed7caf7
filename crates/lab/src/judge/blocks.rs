//! The trials that are judged, and which of them stand against each other.
//!
//! Not for which count: the engine decides that before anything is judged. Nor for what comes of it.

use std::collections::BTreeMap;

use record::experiment::{Arm, Pair, Plan, TrialLine, blocks_counting};

/// The trials that are judged.
pub(super) struct Blocks<'a> {
    pub(super) plan: &'a Plan,
    /// All trials in the order of running, those that do not count too.
    pub(super) all: &'a [TrialLine],
    /// Those that do, in the order of running.
    pub(super) judged: Vec<&'a TrialLine>,
}

impl<'a> Blocks<'a> {
    /// Takes the trials that count, as the engine marked them ([`crate::engine::blocks::mark`]): of each block
    /// one try under each load.
    pub(super) fn of(plan: &'a Plan, all: &'a [TrialLine]) -> Self {
        Self { plan, all, judged: all.iter().filter(|trial| trial.counts()).collect() }
    }

    /// How many blocks are judged.
    pub(super) fn count(&self) -> usize {
        blocks_counting(self.judged.iter().copied())
    }

    /// The arms that are held against the baseline, in the plan's order; the A/A arm is one.
    pub(super) fn arms(&self) -> impl Iterator<Item = &'a Arm> + use<'a> {
        let plan = self.plan;
        plan.arms.iter().filter(|arm| arm.name != plan.baseline)
    }

    /// The judged trials of an arm under a load.
    pub(super) fn cell(&self, arm: &str, load: &str) -> impl Iterator<Item = &'a TrialLine> {
        let is_of = move |trial: &&&TrialLine| trial.place.arm == arm && trial.place.load == load;
        self.judged.iter().filter(is_of).copied()
    }

    /// The metric of an arm under a load, by block.
    pub(super) fn figures(&self, arm: &str, load: &str, metric: &str) -> BTreeMap<u32, f64> {
        let figure = |trial: &TrialLine| Some((trial.place.block, *trial.metrics.get(metric)?));
        let figures = self.cell(arm, load).filter_map(figure);
        figures.filter(|(_, value)| value.is_finite()).collect()
    }

    /// The blocks in which both the arm and the baseline have the metric, in order.
    pub(super) fn pairs(&self, arm: &str, load: &str, metric: &str) -> Vec<Pair> {
        paired(&self.figures(&self.plan.baseline, load, metric), &self.figures(arm, load, metric))
    }
}

/// The blocks that both sides have, in order.
pub(super) fn paired(baseline: &BTreeMap<u32, f64>, arm: &BTreeMap<u32, f64>) -> Vec<Pair> {
    let pair = |(&block, &arm): (&u32, &f64)| {
        baseline.get(&block).map(|&baseline| Pair { block, baseline, arm })
    };
    arm.iter().filter_map(pair).collect()
}
