//! Warnings about the procedure of the trials.

use std::collections::{BTreeMap, BTreeSet};

use record::trial::TrialKind;

use super::{NAMED_MAX, WarningFinding, WarningInput};
use crate::format::count;
use crate::judge::phrases::join_list;
use crate::judge::sentence::list_up_to;
use crate::scenario::keys::bound_key;
use crate::trial_counts::TrialStatus;

/// Probability above which an imbalance of positions is accepted as chance.
const POSITION_P_MAX: f64 = 0.01;
/// Number of blocks from which the same order in all of them is not chance: for two trials it
/// happens in 1 of 16.
const SAME_ORDER_BLOCKS_MIN: usize = 5;

pub(super) fn failed_trials(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut failures: BTreeMap<&str, (u32, &str, &str)> = BTreeMap::new();
    for trial in input.blocks.all.iter().filter(|trial| trial.position.kind != TrialKind::Probe) {
        if let Some(text) = &trial.failed {
            let entry = failures.entry(&trial.position.arm).or_insert((0, text, &trial.file));
            entry.0 += 1;
        }
    }
    let findings = failures.into_iter().map(|(arm, (trials, text, file))| {
        let text = format!(
            "{} of {arm} gave no figures; the first ({file}): {text}",
            count(trials as usize, "trial")
        );
        (Some(arm.to_owned()), text)
    });
    findings.collect()
}

pub(super) fn position_imbalance(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut findings = Vec::new();
    for arm in input.arms() {
        let (mut before, mut all) = (0, 0);
        for load in input.loads() {
            let positions_of = |name: &str| -> BTreeMap<u32, u32> {
                let trials = input.blocks.cell(name, load);
                trials.map(|trial| (trial.position.block, trial.position.number)).collect()
            };
            let baseline = positions_of(input.baseline());
            for (block, number) in positions_of(&arm.name) {
                let Some(baseline_number) = baseline.get(&block) else { continue };
                all += 1;
                before += u32::from(number < *baseline_number);
            }
        }
        if coin_toss_p(before, all) < POSITION_P_MAX {
            let text = format!(
                "{} ran before {} in {before} of {all} pairs of trials: their difference includes any drift \
                 or warm-up within a block.",
                arm.name,
                input.baseline()
            );
            findings.push((Some(arm.name.clone()), text));
        }
    }
    findings
}

/// Returns the two-sided probability that a number of coin tosses is this far from half heads.
fn coin_toss_p(heads: u32, tosses: u32) -> f64 {
    let fewer = heads.min(tosses - heads);
    // Probability of this many heads, each from the one before, from that of none, 2^-tosses.
    // Logarithms are needed because an f64 cannot hold it from 1,075 tosses on.
    let mut log_probability = -f64::from(tosses) * std::f64::consts::LN_2;
    let mut sum = log_probability.exp();
    for k in 0..fewer {
        log_probability += (f64::from(tosses - k) / f64::from(k + 1)).ln();
        sum += log_probability.exp();
    }
    (2.0 * sum).min(1.0)
}

pub(super) fn same_order(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut orders: BTreeMap<u32, Vec<(&str, &str)>> = BTreeMap::new();
    for trial in &input.blocks.judged {
        let position = &trial.position;
        orders.entry(position.block).or_default().push((&position.arm, &position.load));
    }
    // An incomplete block is shorter and has no order of its own.
    let longest = orders.values().map(Vec::len).max().unwrap_or(0);
    orders.retain(|_, order| order.len() == longest);
    let blocks = orders.len();
    let different: BTreeSet<Vec<(&str, &str)>> = orders.into_values().collect();
    if blocks < SAME_ORDER_BLOCKS_MIN || longest < 2 || different.len() > 1 {
        return Vec::new();
    }
    let text = format!(
        "all {blocks} blocks ran their trials in the same order: every difference includes any drift or \
         warm-up within a block. A random order per block removes it."
    );
    vec![(None, text)]
}

pub(super) fn discards(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let mut by_covariate: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut trials, mut attempts) = (0, BTreeSet::new());
    for trial in
        input.blocks.all.iter().filter(|trial| TrialStatus::from_line(trial) == TrialStatus::Discarded)
    {
        if let Some(discarded) = &trial.discarded {
            trials += 1;
            let position = &trial.position;
            attempts.insert((position.block, &position.load, position.attempt));
            *by_covariate.entry(&discarded.code).or_insert(0) += 1;
        }
    }
    if trials == 0 {
        return Vec::new();
    }
    let by: Vec<String> =
        by_covariate.into_iter().map(|(code, count)| format!("{count} for {}", bound_key(code))).collect();
    let text = format!(
        "{} {} discarded ({}), and with {} the {} of a block under one load that contained them.",
        count(trials, "trial"),
        if trials == 1 { "was" } else { "were" },
        join_list(&by),
        if trials == 1 { "it" } else { "them" },
        count(attempts.len(), "run")
    );
    vec![(None, text)]
}

pub(super) fn environment_changed(input: &WarningInput<'_>) -> Vec<WarningFinding> {
    let changes = &input.extras.environment_changes;
    if changes.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "changed during the experiment: {}. Blocks before and after the change are not comparable; the \
         arms within a block are.",
        list_up_to(changes, NAMED_MAX)
    );
    vec![(None, text)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coin_is_suspected_when_it_should_be() {
        // Of 10 tosses: 11 of 1,024 have at most one head, 56 at most two.
        assert!((coin_toss_p(1, 10) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((coin_toss_p(8, 10) - 112.0 / 1024.0).abs() < 1e-12);
        assert!((coin_toss_p(5, 10) - 1.0).abs() < 1e-12);
        assert!((coin_toss_p(0, 0) - 1.0).abs() < 1e-12);
    }
}
