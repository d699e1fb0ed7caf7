//! The order of trials: in each block every arm under every load once, shuffled. Pure: what the seed,
//! the block and the try decide, whatever ran before.
//!
//! Not for what has run already and what is missing: that is [`super::next`]'s.
//!
//! The arms under one load stand side by side, because they are held against each other: what changes
//! slowly on the machine strikes them alike. The order of the loads, and the order of the arms under each,
//! is drawn anew for each block, so that no arm profits from its place. Where chance was unfair in a few
//! blocks, the judge says so.
//!
//! Source: randomised complete blocks, R. A. Fisher, *The Design of Experiments* (1935), chapter 4.

use record::experiment::Plan;
use record::trial::Kind;

/// The most cells that an experiment may have: an hour's block with trials of ten seconds.
pub const CELLS_MAX: usize = 360;

/// An arm under a load.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The arm.
    pub arm: String,
    /// The load.
    pub load: String,
}

/// What an order is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// What the trials are for.
    pub kind: Kind,
    /// The block; 0 for pilots and probes.
    pub block: u32,
    /// Which try at it, from 1.
    pub attempt: u32,
}

impl Draw {
    /// A try at a block.
    #[must_use]
    pub fn block(block: u32, attempt: u32) -> Self {
        Self { kind: Kind::Judged, block, attempt }
    }

    /// The trials before the first block.
    #[must_use]
    pub fn before(kind: Kind) -> Self {
        Self { kind, block: 0, attempt: 1 }
    }
}

/// The trials of a draw, in their order. Probes leave out the arm that only repeats the baseline: its
/// calls are the baseline's.
#[must_use]
pub fn order(plan: &Plan, draw: Draw) -> Vec<Spot> {
    let mut random = random(plan.seed, draw);
    let arms = plan.arms.iter().filter(|arm| draw.kind != Kind::Probe || arm.again.is_none());
    let arms: Vec<&str> = arms.map(|arm| arm.name.as_str()).collect();
    let mut loads: Vec<&str> = plan.loads.iter().map(|load| load.name.as_str()).collect();
    random.shuffle(&mut loads);
    let mut order = Vec::with_capacity(arms.len() * loads.len());
    for load in loads {
        let mut arms = arms.clone();
        random.shuffle(&mut arms);
        let spot = |arm: &str| Spot { arm: arm.to_owned(), load: load.to_owned() };
        order.extend(arms.into_iter().map(spot));
    }
    order
}

/// A generator of its own for each draw, so that no order depends on those before it.
fn random(seed: u64, draw: Draw) -> fastrand::Rng {
    let kind = match draw.kind {
        Kind::Judged => 0,
        Kind::Pilot => 1,
        Kind::Probe => 2,
    };
    let words = [seed, u64::from(draw.block), u64::from(draw.attempt), kind];
    fastrand::Rng::with_seed(words.into_iter().fold(0, |state, word| mixed(state ^ word)))
}

/// SplitMix64's step: neighbouring seeds have to give orders that have nothing to do with each other.
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use record::experiment::TrialLine;
    use record::trial::Place;

    use super::super::simulated::plan;
    use super::*;

    /// How often each arm stood where among the arms of its load, over the trials that count: for each arm a
    /// count by position, the first one's first.
    fn positions(plan: &Plan, lines: &[TrialLine]) -> BTreeMap<String, Vec<u32>> {
        let mut groups: BTreeMap<(u32, &str), Vec<(u32, &str)>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.counts()) {
            let place = &line.place;
            let group = groups.entry((place.block, &place.load)).or_default();
            group.push((place.number, &place.arm));
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
            let plan = Plan { seed, ..plan(&["a", "b", "c"], &["x", "y"]) };
            for draw in (1..=5).flat_map(|block| (1..=2).map(move |n| Draw::block(block, n))) {
                let order = order(&plan, draw);
                assert_eq!(order, super::order(&plan, draw), "reproducible");
                let mut sorted = order.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), 8, "4 arms, the baseline again among them, and 2 loads");
                assert_eq!(order.len(), 8);
                for group in order.chunks(4) {
                    assert!(group.iter().all(|spot| spot.load == group[0].load), "{order:?}");
                }
            }
        }
    }

    #[test]
    fn orders_differ_by_seed_block_attempt_and_kind() {
        let first = plan(&["a", "b", "c", "d", "e", "f"], &["x"]);
        let second = Plan { seed: first.seed + 1, ..first.clone() };
        let orders = [
            order(&first, Draw::block(1, 1)),
            order(&first, Draw::block(1, 2)),
            order(&first, Draw::block(2, 1)),
            order(&second, Draw::block(1, 1)),
            order(&first, Draw::before(Kind::Pilot)),
        ];
        for (at, one) in orders.iter().enumerate() {
            assert!(orders[..at].iter().all(|other| other != one), "{at}");
        }
        let probes = order(&first, Draw::before(Kind::Probe));
        assert_eq!(probes.len(), 6);
        assert!(probes.iter().all(|spot| spot.arm != "a-again"));
    }

    #[test]
    fn over_many_blocks_each_arm_stands_everywhere_alike() {
        let plan = plan(&["a", "b", "c"], &["x"]);
        let mut lines = Vec::new();
        for block in 1..=1_000 {
            for (at, spot) in order(&plan, Draw::block(block, 1)).into_iter().enumerate() {
                let number = block * 10 + at as u32;
                let place = Place {
                    number,
                    block,
                    arm: spot.arm,
                    load: spot.load,
                    attempt: 1,
                    ..Place::default()
                };
                lines.push(TrialLine { place, ..TrialLine::default() });
            }
        }
        let counts = positions(&plan, &lines);
        assert!(counts.values().flatten().all(|count| (200..=300).contains(count)), "{counts:?}");
    }
}
