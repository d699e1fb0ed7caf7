//! Decides which attempt at a group counts, and marks trials that do not count because of their
//! group. A group is the arms of a block under one load. No I/O.
//!
//! The attempt that counts is the last one with every arm, none of them failed or discarded. Arms
//! are compared under one load, so a disturbance of one load's trials does not invalidate those of
//! other loads.
//!
//! Not for choosing the next trial: see [`super::next_step`].

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{ExperimentPlan, TrialSummary};
use record::sorted::CollectSorted;
use record::trial::{
    BLOCK_INCOMPLETE, BLOCK_RERUN, BLOCK_RESTARTED, DiscardReason, TrialKind, TrialPosition,
};

use super::discard;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupAttempt {
    /// Arms that have run, including failed and discarded ones.
    pub(super) arms_run: BTreeSet<String>,
    /// True if one of its trials failed or was discarded: the attempt does not count.
    is_spoiled: bool,
    /// True if the environment changed during the attempt. Repeating it does not count toward the
    /// limit on reruns.
    is_changed: bool,
    last_trial: u32,
}

/// The arms of a block under one load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TrialGroup {
    pub(super) block: u32,
    pub(super) load: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct GroupAttempts {
    attempts: BTreeMap<TrialGroup, BTreeMap<u32, GroupAttempt>>,
    arms: usize,
    loads: usize,
}

impl GroupAttempts {
    /// Collects the attempts from `lines`. `discarded` has one entry for each line
    /// ([`discard::discard_reasons`]).
    pub(super) fn collect(
        plan: &ExperimentPlan,
        lines: &[TrialSummary],
        discarded: &[Option<DiscardReason>],
    ) -> Self {
        let mut blocks = Self { arms: plan.arms.len(), loads: plan.loads.len(), ..Self::default() };
        let judged = lines.iter().zip(discarded).filter(|(line, _)| is_block_trial(line));
        for (line, discarded) in judged {
            let position = &line.position;
            let attempts = blocks.attempts.entry(TrialGroup::from_position(position)).or_default();
            let attempt = attempts.entry(position.attempt).or_default();
            attempt.arms_run.insert(position.arm.clone());
            attempt.is_spoiled |= discarded.is_some() || line.failed.is_some();
            attempt.is_changed |= discarded.as_ref().is_some_and(|why| why.code == BLOCK_RESTARTED);
            attempt.last_trial = attempt.last_trial.max(position.number);
        }
        blocks
    }

    pub(super) fn counted_attempt(&self, group: &TrialGroup) -> Option<u32> {
        let attempts = self.attempts.get(group)?;
        let counts = |attempt: &GroupAttempt| !attempt.is_spoiled && attempt.arms_run.len() == self.arms;
        attempts.iter().rev().find(|(_, attempt)| counts(attempt)).map(|(number, _)| *number)
    }

    pub(super) fn last_attempt(&self, group: &TrialGroup) -> Option<(u32, &GroupAttempt)> {
        let (number, attempt) = self.attempts.get(group)?.last_key_value()?;
        Some((*number, attempt))
    }

    /// Returns the group of the last trial if its attempt is open and the group has none that
    /// counts. The result also has the attempt's number and the attempt.
    pub(super) fn open_attempt(&self) -> Option<(&TrialGroup, u32, &GroupAttempt)> {
        let tries = self.attempts.iter().flat_map(|(group, attempts)| {
            attempts.iter().map(move |(number, attempt)| (group, *number, attempt))
        });
        let (group, number, attempt) = tries.max_by_key(|(_, _, attempt)| attempt.last_trial)?;
        let is_open = self.is_open(attempt) && self.counted_attempt(group).is_none();
        is_open.then_some((group, number, attempt))
    }

    /// Returns whether an attempt is open: trials are missing, and none of those that ran spoiled
    /// it.
    pub(super) fn is_open(&self, attempt: &GroupAttempt) -> bool {
        !attempt.is_spoiled && attempt.arms_run.len() < self.arms
    }

    pub(super) fn is_complete(&self, block: u32) -> bool {
        self.groups_of_block(block).filter(|group| self.counted_attempt(group).is_some()).count()
            == self.loads
    }

    pub(super) fn is_started(&self, block: u32) -> bool {
        self.groups_of_block(block).next().is_some()
    }

    fn groups_of_block(&self, block: u32) -> impl Iterator<Item = &TrialGroup> {
        self.attempts.keys().filter(move |group| group.block == block)
    }

    /// Returns the blocks with at least one trial.
    fn started(&self) -> BTreeSet<u32> {
        self.attempts.keys().map(|group| group.block).collect_set()
    }

    /// Returns the number of blocks with at least one trial.
    pub(super) fn started_count(&self) -> u32 {
        self.started().len() as u32
    }

    pub(super) fn complete_count(&self) -> u32 {
        self.started().into_iter().filter(|block| self.is_complete(*block)).count() as u32
    }

    /// Returns the number of block trials that need no further run.
    pub(super) fn done_trials(&self) -> u32 {
        let group_done_trials = |group: &TrialGroup| {
            let open = self.last_attempt(group).filter(|(_, attempt)| self.is_open(attempt));
            match self.counted_attempt(group) {
                Some(_) => self.arms,
                None => open.map_or(0, |(_, attempt)| attempt.arms_run.len()),
            }
        };
        self.attempts.keys().map(group_done_trials).sum::<usize>() as u32
    }

    /// Returns the number of group reruns that disturbances caused after a trial with this number.
    pub(super) fn reruns(&self, after: u32) -> u32 {
        let is_later = |attempt: &&GroupAttempt| attempt.last_trial > after;
        let reruns = self.attempts.values().flat_map(|attempts| attempts.values().skip(1));
        let changed = self.attempts.values().flat_map(BTreeMap::values).filter(|it| it.is_changed);
        let [all, changed] = [reruns.filter(is_later).count(), changed.filter(is_later).count()];
        all.saturating_sub(changed) as u32
    }
}

impl TrialGroup {
    pub(super) fn from_position(position: &TrialPosition) -> Self {
        Self { block: position.block, load: position.load.clone() }
    }
}

fn is_block_trial(line: &TrialSummary) -> bool {
    line.position.kind == TrialKind::Judged && line.position.block > 0
}

/// Change of the machine, of weir or of a program between two sessions of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentChange {
    /// Number of the last trial before the change.
    pub after_trial: u32,
    pub description: String,
}

/// Sets the discard mark of every line again: by a covariate of the trial first, then by its group.
/// `lines` are in the order of their numbers.
///
/// An attempt that was open when something changed is discarded: its arms would not have been
/// measured under equal conditions.
pub fn mark_discarded(plan: &ExperimentPlan, lines: &mut [TrialSummary], changed: &[EnvironmentChange]) {
    let mut discarded = discard::discard_reasons(&plan.discard, lines);
    for change in changed {
        let before = lines.partition_point(|line| line.position.number <= change.after_trial);
        let blocks = GroupAttempts::collect(plan, &lines[..before], &discarded[..before]);
        let Some((group, number, _)) = blocks.open_attempt() else { continue };
        let is_of_it = |line: &TrialSummary| {
            is_block_trial(line)
                && line.position.attempt == number
                && TrialGroup::from_position(&line.position) == *group
        };
        let attempt_trials = lines[..before].iter().zip(&mut discarded).filter(|(line, _)| is_of_it(line));
        for (_, discarded) in attempt_trials {
            let text = format!(
                "the environment changed during its block, which started again: {}",
                change.description
            );
            *discarded = Some(DiscardReason { code: BLOCK_RESTARTED.to_owned(), text });
        }
    }
    let blocks = GroupAttempts::collect(plan, lines, &discarded);
    for (line, own) in lines.iter_mut().zip(discarded) {
        line.discarded = own.or_else(|| group_discard_reason(&blocks, line));
    }
}

fn group_discard_reason(blocks: &GroupAttempts, line: &TrialSummary) -> Option<DiscardReason> {
    let position = &line.position;
    if !is_block_trial(line) || line.failed.is_some() {
        return None;
    }
    let group = TrialGroup::from_position(position);
    let counting = blocks.counted_attempt(&group);
    if counting == Some(position.attempt) {
        return None;
    }
    let (last, attempt) = blocks.last_attempt(&group)?;
    let at = format!("block {} under {}", group.block, group.load);
    let (code, text) = match counting {
        Some(attempt) => (BLOCK_RERUN, format!("{at}: attempt {attempt} counts")),
        None if last == position.attempt && blocks.is_open(attempt) => {
            (BLOCK_INCOMPLETE, format!("{at} is incomplete"))
        }
        None => (BLOCK_RERUN, format!("{at}: a trial of this attempt does not count")),
    };
    Some(DiscardReason { code: code.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{plan, trial_line};
    use super::*;

    #[test]
    fn the_last_complete_attempt_counts_and_earlier_ones_are_marked() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![
            trial_line(1, 1, 1, "a", "x"),
            trial_line(2, 1, 1, "b", "x"),
            trial_line(3, 1, 2, "b", "x"),
            trial_line(4, 1, 2, "a", "x"),
            trial_line(5, 1, 2, "a-repeat", "x"),
            trial_line(6, 2, 1, "a", "x"),
        ];
        lines[1].covariates.steal_fraction = Some(0.5);
        mark_discarded(&plan, &mut lines, &[]);
        let codes = |lines: &[TrialSummary]| -> Vec<Option<String>> {
            lines.iter().map(|line| line.discarded.as_ref().map(|reason| reason.code.clone())).collect()
        };
        let some = |code: &str| Some(code.to_owned());
        let expected = [some(BLOCK_RERUN), some("steal_fraction"), None, None, None, some(BLOCK_INCOMPLETE)];
        assert_eq!(codes(&lines), expected);
        // A second run of `mark` changes nothing. A block that becomes complete counts.
        lines.push(trial_line(7, 2, 1, "b", "x"));
        lines.push(trial_line(8, 2, 1, "a-repeat", "x"));
        mark_discarded(&plan, &mut lines, &[]);
        assert!(lines[5..].iter().all(TrialSummary::is_counted));
        assert_eq!(codes(&lines)[..5], expected[..5]);
    }

    #[test]
    fn an_attempt_that_was_open_at_a_change_restarts() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![
            trial_line(1, 1, 1, "a", "x"),
            trial_line(2, 1, 1, "b", "x"),
            trial_line(3, 1, 1, "a-repeat", "x"),
            trial_line(4, 2, 1, "b", "x"),
            trial_line(5, 2, 1, "a", "x"),
        ];
        let change = |after| EnvironmentChange {
            after_trial: after,
            description: "program nginx: 2, was 1".to_owned(),
        };
        mark_discarded(&plan, &mut lines, &[change(5)]);
        assert!(lines[..3].iter().all(TrialSummary::is_counted), "a complete block counts");
        for line in &lines[3..] {
            let reason = line.discarded.as_ref().unwrap();
            assert!(reason.code == BLOCK_RESTARTED && reason.text.ends_with("nginx: 2, was 1"), "{reason:?}");
        }
        let decided: Vec<_> = lines.iter().map(|line| line.discarded.clone()).collect();
        let blocks = GroupAttempts::collect(&plan, &lines, &decided);
        assert_eq!((blocks.open_attempt().is_none(), blocks.reruns(0)), (true, 0));
        // The same attempt is never continued, not even with trials of an older weir.
        let restarted = [(6, "b"), (7, "a-repeat"), (8, "a")];
        lines.extend(restarted.map(|(number, arm)| trial_line(number, 2, 2, arm, "x")));
        mark_discarded(&plan, &mut lines, &[change(5)]);
        assert!(lines[5..].iter().all(TrialSummary::is_counted) && !lines[3].is_counted());
        let blocks = GroupAttempts::collect(
            &plan,
            &lines,
            &decided.into_iter().chain([None, None, None]).collect::<Vec<_>>(),
        );
        assert_eq!((blocks.complete_count(), blocks.reruns(0)), (2, 0));
        // No attempt is open between blocks.
        mark_discarded(&plan, &mut lines, &[change(3), change(8)]);
        assert!(
            lines
                .iter()
                .all(|line| line.is_counted() || line.position.number < 6 && line.position.block == 2)
        );
    }

    #[test]
    fn a_failed_trial_spoils_its_attempt() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![trial_line(1, 1, 1, "a", "x"), trial_line(2, 1, 1, "b", "x")];
        lines[1].failed = Some("no".to_owned());
        mark_discarded(&plan, &mut lines, &[]);
        assert_eq!(lines[0].discarded.as_ref().unwrap().code, BLOCK_RERUN);
        assert_eq!(lines[1].discarded, None, "it says itself why it has no figures");
        let decided = vec![None; lines.len()];
        let blocks = GroupAttempts::collect(&plan, &lines, &decided);
        assert_eq!((blocks.complete_count(), blocks.reruns(0)), (0, 0));
    }
}
