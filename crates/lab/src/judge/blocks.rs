//! Which trials are judged, and which of them stand against each other.
//!
//! Not for what comes of it.

use std::collections::BTreeMap;

use record::experiment::{Arm, Pair, Plan, TrialLine, blocks_counting};

/// The trials that are judged: of each block one attempt under each load.
pub(super) struct Blocks<'a> {
    pub(super) plan: &'a Plan,
    /// All trials, those that do not count too.
    pub(super) all: &'a [TrialLine],
    /// Those that do, in the order of running.
    pub(super) judged: Vec<&'a TrialLine>,
}

/// A block and a load: what is held against each other.
fn group(trial: &TrialLine) -> (u32, &str) {
    (trial.place.block, &trial.place.load)
}

/// What is known of one attempt at a block under a load.
#[derive(Default)]
struct Attempt {
    counting: u32,
    discarded: bool,
}

impl<'a> Blocks<'a> {
    /// Picks of each block under each load the attempt that has no discarded trial; of several the one with
    /// most trials (one that a kill cut short has fewer), then the latest. What was measured plays no part.
    pub(super) fn of(plan: &'a Plan, all: &'a [TrialLine]) -> Self {
        let mut attempts: BTreeMap<(u32, &str), BTreeMap<u32, Attempt>> = BTreeMap::new();
        for trial in all.iter().filter(|trial| trial.place.block > 0) {
            let of_group = attempts.entry(group(trial)).or_default();
            let attempt = of_group.entry(trial.place.attempt).or_default();
            attempt.counting += u32::from(trial.counts());
            attempt.discarded |= trial.discarded.is_some();
        }
        let picked: BTreeMap<(u32, &str), u32> = attempts
            .into_iter()
            .filter_map(|(group, tries)| {
                let whole = tries.into_iter().filter(|(_, attempt)| !attempt.discarded);
                let best = whole.max_by_key(|(number, attempt)| (attempt.counting, *number));
                best.map(|(number, _)| (group, number))
            })
            .collect();
        let is_judged = |trial: &&TrialLine| {
            trial.counts() && picked.get(&group(trial)) == Some(&trial.place.attempt)
        };
        let mut judged: Vec<&TrialLine> = all.iter().filter(is_judged).collect();
        judged.sort_by_key(|trial| trial.place.number);
        Self { plan, all, judged }
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
