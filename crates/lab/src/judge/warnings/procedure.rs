//! Warnings about how the trials were run.

use std::collections::{BTreeMap, BTreeSet};

use record::trial::Kind;

use super::{Case, Found, NAMED_MAX};
use crate::judge::said::some;
use crate::judge::words::list;
use crate::tally::Fate;
use crate::words::count;

/// An imbalance of positions that chance gives more often than this is let pass.
const POSITION_P_MAX: f64 = 0.01;
/// From so many blocks on the same order in all of them is no chance: of two trials it happens in 1 of 16.
const SAME_ORDER_BLOCKS_MIN: usize = 5;

pub(super) fn failed(case: &Case<'_>) -> Vec<Found> {
    let mut why: BTreeMap<&str, (u32, &str, &str)> = BTreeMap::new();
    for trial in case.blocks.all.iter().filter(|trial| trial.place.kind != Kind::Probe) {
        if let Some(text) = &trial.failed {
            let entry = why.entry(&trial.place.arm).or_insert((0, text, &trial.file));
            entry.0 += 1;
        }
    }
    let found = why.into_iter().map(|(arm, (trials, text, file))| {
        let text = format!(
            "{} of {arm} gave no figures; the first ({file}): {text}",
            count(trials as usize, "trial")
        );
        (Some(arm.to_owned()), text)
    });
    found.collect()
}

pub(super) fn position(case: &Case<'_>) -> Vec<Found> {
    let mut found = Vec::new();
    for arm in case.arms() {
        let (mut before, mut all) = (0, 0);
        for load in case.loads() {
            let of = |name: &str| -> BTreeMap<u32, u32> {
                let trials = case.blocks.cell(name, load);
                trials.map(|trial| (trial.place.block, trial.place.number)).collect()
            };
            let baseline = of(case.baseline());
            for (block, number) in of(&arm.name) {
                let Some(of_baseline) = baseline.get(&block) else { continue };
                all += 1;
                before += u32::from(number < *of_baseline);
            }
        }
        if coin_p(before, all) < POSITION_P_MAX {
            let text = format!(
                "{} ran before {} in {before} of {all} pairs of trials: what warms up, or drifts, within a \
                 block is in their difference.",
                arm.name,
                case.baseline()
            );
            found.push((Some(arm.name.clone()), text));
        }
    }
    found
}

/// Two-sided: how often so many tosses of a coin are as far from half heads as this.
fn coin_p(heads: u32, tosses: u32) -> f64 {
    let fewer = heads.min(tosses - heads);
    // Ways to have so many heads, each from the one before, as a share of all, 2^-tosses: by logarithms,
    // because that is below what can be written from 1,075 on.
    let mut share_log = -f64::from(tosses) * std::f64::consts::LN_2;
    let mut sum = share_log.exp();
    for k in 0..fewer {
        share_log += (f64::from(tosses - k) / f64::from(k + 1)).ln();
        sum += share_log.exp();
    }
    (2.0 * sum).min(1.0)
}

pub(super) fn order(case: &Case<'_>) -> Vec<Found> {
    let mut orders: BTreeMap<u32, Vec<(&str, &str)>> = BTreeMap::new();
    for trial in &case.blocks.judged {
        let place = &trial.place;
        orders.entry(place.block).or_default().push((&place.arm, &place.load));
    }
    // A block that was not run to its end is shorter and has no order of its own.
    let longest = orders.values().map(Vec::len).max().unwrap_or(0);
    orders.retain(|_, order| order.len() == longest);
    let blocks = orders.len();
    let different: BTreeSet<Vec<(&str, &str)>> = orders.into_values().collect();
    if blocks < SAME_ORDER_BLOCKS_MIN || longest < 2 || different.len() > 1 {
        return Vec::new();
    }
    let text = format!(
        "all {blocks} blocks ran their trials in the same order: what warms up, or drifts, within a block \
         is in every difference. A random order in each takes it out."
    );
    vec![(None, text)]
}

pub(super) fn discards(case: &Case<'_>) -> Vec<Found> {
    let mut by_covariate: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut trials, mut attempts) = (0, BTreeSet::new());
    for trial in case.blocks.all.iter().filter(|trial| Fate::of(trial) == Fate::Discarded) {
        if let Some(discarded) = &trial.discarded {
            trials += 1;
            let place = &trial.place;
            attempts.insert((place.block, &place.load, place.attempt));
            *by_covariate.entry(&discarded.code).or_insert(0) += 1;
        }
    }
    if trials == 0 {
        return Vec::new();
    }
    let by: Vec<String> =
        by_covariate.into_iter().map(|(code, count)| format!("{count} for {code}")).collect();
    let text = format!(
        "{} discarded ({}), and with {} the {} of a block under one load that had them. What decided it \
         was a bound that was fixed before the first trial.",
        if trials == 1 { "1 trial was".to_owned() } else { format!("{trials} trials were") },
        list(&by),
        if trials == 1 { "it" } else { "them" },
        count(attempts.len(), "run")
    );
    vec![(None, text)]
}

pub(super) fn environment_changed(case: &Case<'_>) -> Vec<Found> {
    let changes = &case.extras.environment_changes;
    if changes.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "while it ran, this changed: {}. Blocks before and after were not measured by the same means; \
         within each, arms were.",
        some(changes, NAMED_MAX)
    );
    vec![(None, text)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coin_is_suspected_when_it_should_be() {
        // Of 10 tosses: 11 of 1,024 have at most one head, 56 at most two.
        assert!((coin_p(1, 10) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((coin_p(8, 10) - 112.0 / 1024.0).abs() < 1e-12);
        assert!((coin_p(5, 10) - 1.0).abs() < 1e-12);
        assert!((coin_p(0, 0) - 1.0).abs() < 1e-12);
    }
}
