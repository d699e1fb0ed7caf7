//! Order of the trials: in each block every arm under every load once, in random Latin squares. Pure: the order
//! depends only on the seed and the block.
//!
//! Not for the difference between planned and finished trials: see [`super::next_step`].
//!
//! The arms under one load run one after another, because they are compared: slow changes of the
//! machine affect them alike. Each block draws a new order of the loads. The arms under a load have a random Latin
//! square: as many consecutive blocks as there are arms have each arm once in each position. With independent
//! shuffles a slow first trial of each block gives false differences (docs/judgement.md). A block that runs again has
//! its order again, which keeps the square.
//!
//! Source: Latin squares, R. A. Fisher, *The Design of Experiments* (1935), chapter 5.

use record::experiment::ExperimentPlan;
use record::trial::TrialKind;

/// Maximum number of cells of an experiment: an hour's block with trials of ten seconds.
pub const CELLS_MAX: usize = 360;

/// Arm under a load.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArmLoad {
    pub arm: String,
    pub load: String,
}

/// Key for which an order is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderDraw {
    pub kind: TrialKind,
    /// Number of the block; 0 for pilots and probes.
    pub block: u32,
}

impl OrderDraw {
    #[must_use]
    pub fn for_block(block: u32) -> Self {
        Self { kind: TrialKind::Judged, block }
    }

    /// Returns the key of the trials before the first block.
    #[must_use]
    pub fn before_blocks(kind: TrialKind) -> Self {
        Self { kind, block: 0 }
    }
}

/// Returns the trials of a draw, in their order. Probes skip the arm that repeats the baseline: its
/// calls are those of the baseline.
pub fn trial_order(plan: &ExperimentPlan, draw: OrderDraw) -> Vec<ArmLoad> {
    let mut random = seeded_rng(plan.seed, draw, 0);
    let arms = plan.arms.iter().filter(|arm| draw.kind != TrialKind::Probe || arm.repeats.is_none());
    let arms: Vec<&str> = arms.map(|arm| arm.name.as_str()).collect();
    let mut loads: Vec<&str> = plan.loads.iter().map(|load| load.name.as_str()).collect();
    random.shuffle(&mut loads);
    let mut order = Vec::with_capacity(arms.len() * loads.len());
    for load in loads {
        let arms = latin_row(plan, draw, load, &arms);
        let arm_load = |arm: &str| ArmLoad { arm: arm.to_owned(), load: load.to_owned() };
        order.extend(arms.into_iter().map(arm_load));
    }
    order
}

/// Returns the arms in the row of a block, from the Latin square of its load and its group of blocks: a cyclic square
/// with shuffled rows and arms.
fn latin_row<'a>(plan: &ExperimentPlan, draw: OrderDraw, load: &str, arms: &[&'a str]) -> Vec<&'a str> {
    let size = arms.len().max(1) as u32;
    let (group, row) = (draw.block.saturating_sub(1) / size, draw.block.saturating_sub(1) % size);
    let load = plan.loads.iter().position(|load_plan| load_plan.name == load).map_or(0, |at| at as u64 + 1);
    let mut random = seeded_rng(plan.seed, OrderDraw { block: group, ..draw }, load);
    let mut rows: Vec<usize> = (0..arms.len()).collect();
    random.shuffle(&mut rows);
    let mut arms = arms.to_vec();
    random.shuffle(&mut arms);
    arms.rotate_left(rows.get(row as usize).copied().unwrap_or(0));
    arms
}

/// Creates a separate generator for each draw, so that no order depends on earlier ones. `load` is 0 for the order of
/// the loads.
fn seeded_rng(seed: u64, draw: OrderDraw, load: u64) -> fastrand::Rng {
    let kind = match draw.kind {
        TrialKind::Judged => 0,
        TrialKind::Pilot => 1,
        TrialKind::Probe => 2,
    };
    let words = [seed, u64::from(draw.block), load, kind];
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
    use std::collections::BTreeSet;

    use super::super::simulated::plan;
    use super::*;

    #[test]
    fn every_block_has_each_cell_once_whatever_the_seed() {
        for seed in 0..200 {
            let plan = ExperimentPlan { seed, ..plan(&["a", "b", "c"], &["x", "y"]) };
            for draw in (1..=5).map(OrderDraw::for_block) {
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
    fn orders_differ_by_seed_block_and_kind() {
        let first = plan(&["a", "b", "c", "d", "e", "f"], &["x"]);
        let second = ExperimentPlan { seed: first.seed + 1, ..first.clone() };
        let orders = [
            trial_order(&first, OrderDraw::for_block(1)),
            trial_order(&first, OrderDraw::for_block(2)),
            trial_order(&second, OrderDraw::for_block(1)),
            trial_order(&first, OrderDraw::before_blocks(TrialKind::Pilot)),
        ];
        for (at, order) in orders.iter().enumerate() {
            assert!(orders[..at].iter().all(|other| other != order), "{at}");
        }
        let probes = trial_order(&first, OrderDraw::before_blocks(TrialKind::Probe));
        assert_eq!(probes.len(), 6);
        assert!(probes.iter().all(|arm_load| arm_load.arm != "a-repeat"));
    }

    #[test]
    fn in_each_group_of_blocks_each_arm_has_every_position_once() {
        let plan = plan(&["a", "b", "c"], &["x", "y"]);
        let mut squares = BTreeSet::new();
        for group in 0..50 {
            for load in ["x", "y"] {
                let rows: Vec<Vec<String>> = (1..=4)
                    .map(|row| trial_order(&plan, OrderDraw::for_block(4 * group + row)))
                    .map(|order| {
                        order
                            .into_iter()
                            .filter(|arm_load| arm_load.load == load)
                            .map(|arm_load| arm_load.arm)
                            .collect()
                    })
                    .collect();
                for position in 0..4 {
                    let arms: BTreeSet<&String> = rows.iter().map(|row| &row[position]).collect();
                    assert_eq!(arms.len(), 4, "{rows:?}");
                }
                squares.insert(rows);
            }
        }
        assert!(squares.len() > 60, "{} squares", squares.len());
    }
}
