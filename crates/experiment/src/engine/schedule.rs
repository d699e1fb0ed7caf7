//! Order of the trials: in each block every arm under every load once, shuffled. Pure: the order
//! depends only on the seed, the block and the attempt.
//!
//! Not for the difference between planned and finished trials: see [`super::next_step`].
//!
//! The arms under one load run one after another, because they are compared: slow changes of the
//! machine affect them alike. Each block draws a new order of the loads, and of the arms under
//! each, so that no arm profits from its position. If the order was unbalanced over few blocks, the
//! judge reports it.
//!
//! Source: randomised complete blocks, R. A. Fisher, *The Design of Experiments* (1935), chapter 4.

use record::experiment::ExperimentPlan;
use record::trial::TrialKind;

/// Maximum number of cells of an experiment: an hour's block with trials of ten seconds.
pub const CELLS_MAX: usize = 360;

/// Arm under a load.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArmLoad {
    /// Name of the arm.
    pub arm: String,
    /// Name of the load.
    pub load: String,
}

/// Key for which an order is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderDraw {
    /// Purpose of the trials.
    pub kind: TrialKind,
    /// Number of the block; 0 for pilots and probes.
    pub block: u32,
    /// Number of the attempt at the block, from 1.
    pub attempt: u32,
}

impl OrderDraw {
    /// Returns the key of an attempt at a block.
    #[must_use]
    pub fn for_block(block: u32, attempt: u32) -> Self {
        Self { kind: TrialKind::Judged, block, attempt }
    }

    /// Returns the key of the trials before the first block.
    #[must_use]
    pub fn before_blocks(kind: TrialKind) -> Self {
        Self { kind, block: 0, attempt: 1 }
    }
}

/// Returns the trials of a draw, in their order. Probes skip the arm that repeats the baseline: its
/// calls are those of the baseline.
#[must_use]
pub fn trial_order(plan: &ExperimentPlan, draw: OrderDraw) -> Vec<ArmLoad> {
    let mut random = seeded_rng(plan.seed, draw);
    let arms = plan.arms.iter().filter(|arm| draw.kind != TrialKind::Probe || arm.repeats.is_none());
    let arms: Vec<&str> = arms.map(|arm| arm.name.as_str()).collect();
    let mut loads: Vec<&str> = plan.loads.iter().map(|load| load.name.as_str()).collect();
    random.shuffle(&mut loads);
    let mut order = Vec::with_capacity(arms.len() * loads.len());
    for load in loads {
        let mut arms = arms.clone();
        random.shuffle(&mut arms);
        let arm_load = |arm: &str| ArmLoad { arm: arm.to_owned(), load: load.to_owned() };
        order.extend(arms.into_iter().map(arm_load));
    }
    order
}

/// Creates a separate generator for each draw, so that no order depends on earlier ones.
fn seeded_rng(seed: u64, draw: OrderDraw) -> fastrand::Rng {
    let kind = match draw.kind {
        TrialKind::Judged => 0,
        TrialKind::Pilot => 1,
        TrialKind::Probe => 2,
    };
    let words = [seed, u64::from(draw.block), u64::from(draw.attempt), kind];
    fastrand::Rng::with_seed(words.into_iter().fold(0, |state, word| splitmix64(state ^ word)))
}

/// Computes the step of SplitMix64: neighbouring seeds have to give unrelated orders. Source:
/// Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
fn splitmix64(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use record::experiment::TrialSummary;
    use record::trial::TrialPosition;

    use super::super::simulated::plan;
    use super::*;

    /// Counts the positions of each arm among the arms of its load, over the trials that count. The
    /// result has, for each arm, one count for each position from the first on.
    fn positions(plan: &ExperimentPlan, lines: &[TrialSummary]) -> BTreeMap<String, Vec<u32>> {
        let mut groups: BTreeMap<(u32, &str), Vec<(u32, &str)>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.is_counted()) {
            let trial_position = &line.position;
            let group = groups.entry((trial_position.block, &trial_position.load)).or_default();
            group.push((trial_position.number, &trial_position.arm));
        }
        let mut counts: BTreeMap<String, Vec<u32>> =
            plan.arms.iter().map(|arm| (arm.name.clone(), vec![0; plan.arms.len()])).collect();
        for mut group in groups.into_values() {
            group.sort_unstable();
            for (position, (_, arm)) in group.into_iter().enumerate() {
                let count = counts.get_mut(arm).and_then(|counts| counts.get_mut(position));
                if let Some(count) = count {
                    *count += 1;
                }
            }
        }
        counts
    }

    #[test]
    fn every_block_has_each_cell_once_whatever_the_seed() {
        for seed in 0..200 {
            let plan = ExperimentPlan { seed, ..plan(&["a", "b", "c"], &["x", "y"]) };
            for draw in (1..=5).flat_map(|block| (1..=2).map(move |n| OrderDraw::for_block(block, n))) {
                let order = trial_order(&plan, draw);
                assert_eq!(order, trial_order(&plan, draw), "reproducible");
                let mut sorted = order.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), 8, "4 arms, the baseline again among them, and 2 loads");
                assert_eq!(order.len(), 8);
                for group in order.chunks(4) {
                    assert!(group.iter().all(|arm_load| arm_load.load == group[0].load), "{order:?}");
                }
            }
        }
    }

    #[test]
    fn orders_differ_by_seed_block_attempt_and_kind() {
        let first = plan(&["a", "b", "c", "d", "e", "f"], &["x"]);
        let second = ExperimentPlan { seed: first.seed + 1, ..first.clone() };
        let orders = [
            trial_order(&first, OrderDraw::for_block(1, 1)),
            trial_order(&first, OrderDraw::for_block(1, 2)),
            trial_order(&first, OrderDraw::for_block(2, 1)),
            trial_order(&second, OrderDraw::for_block(1, 1)),
            trial_order(&first, OrderDraw::before_blocks(TrialKind::Pilot)),
        ];
        for (at, one) in orders.iter().enumerate() {
            assert!(orders[..at].iter().all(|other| other != one), "{at}");
        }
        let probes = trial_order(&first, OrderDraw::before_blocks(TrialKind::Probe));
        assert_eq!(probes.len(), 6);
        assert!(probes.iter().all(|arm_load| arm_load.arm != "a-repeat"));
    }

    #[test]
    fn over_many_blocks_each_arm_has_every_position_equally_often() {
        let plan = plan(&["a", "b", "c"], &["x"]);
        let mut lines = Vec::new();
        for block in 1..=1_000 {
            for (at, arm_load) in trial_order(&plan, OrderDraw::for_block(block, 1)).into_iter().enumerate() {
                let number = block * 10 + at as u32;
                let position = TrialPosition {
                    number,
                    block,
                    arm: arm_load.arm,
                    load: arm_load.load,
                    attempt: 1,
                    ..TrialPosition::default()
                };
                lines.push(TrialSummary { position, ..TrialSummary::default() });
            }
        }
        let counts = positions(&plan, &lines);
        assert!(counts.values().flatten().all(|count| (200..=300).contains(count)), "{counts:?}");
    }
}
