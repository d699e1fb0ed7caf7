//! Which try at a block counts, and what is marked as not counting because of its block. Pure.
//!
//! Of a block, the last try counts that has every arm under every load, none of them failed or discarded.
//! Not for what runs next: that is [`super::next`]'s.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Plan, TrialLine};
use record::trial::{BLOCK_NOT_WHOLE, BLOCK_RERUN, Discarded, Kind};

use super::discard;
use super::schedule::Spot;

/// One try at a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    /// What has run, whatever came of it.
    pub(super) run: BTreeSet<Spot>,
    /// Whether a trial of it failed or was discarded: it will not count.
    pub(super) spoiled: bool,
    /// The number of its last trial.
    pub(super) last: u32,
}

impl Attempt {
    fn counts(&self, cells: usize) -> bool {
        !self.spoiled && self.run.len() == cells
    }
}

/// The blocks of an experiment.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// By block and try.
    pub(super) attempts: BTreeMap<u32, BTreeMap<u32, Attempt>>,
    cells: usize,
}

impl Blocks {
    /// What `lines` are of blocks; `discarded` is of each line ([`discard::decide`]).
    pub(super) fn of(plan: &Plan, lines: &[TrialLine], discarded: &[Option<Discarded>]) -> Self {
        let mut blocks = Self { cells: plan.arms.len() * plan.loads.len(), ..Self::default() };
        let judged = lines.iter().zip(discarded).filter(|(line, _)| is_of_a_block(line));
        for (line, discarded) in judged {
            let place = &line.place;
            let attempts = blocks.attempts.entry(place.block).or_default();
            let attempt = attempts.entry(place.attempt).or_default();
            attempt.run.insert(Spot { arm: place.arm.clone(), load: place.load.clone() });
            attempt.spoiled |= discarded.is_some() || line.failed.is_some();
            attempt.last = attempt.last.max(place.number);
        }
        blocks
    }

    /// The try of a block that counts.
    pub(super) fn counting(&self, block: u32) -> Option<u32> {
        let attempts = self.attempts.get(&block)?;
        let mut counting = attempts.iter().rev().filter(|(_, it)| it.counts(self.cells));
        counting.next().map(|(number, _)| *number)
    }

    /// The last try at a block.
    pub(super) fn last(&self, block: u32) -> Option<(u32, &Attempt)> {
        let (number, attempt) = self.attempts.get(&block)?.last_key_value()?;
        Some((*number, attempt))
    }

    /// The block and try that ran last.
    pub(super) fn latest(&self) -> Option<(u32, u32, &Attempt)> {
        let tries = self.attempts.iter().flat_map(|(block, attempts)| {
            attempts.iter().map(|(number, attempt)| (*block, *number, attempt))
        });
        tries.max_by_key(|(_, _, attempt)| attempt.last)
    }

    /// Whether a try has trials still to run that are worth it.
    pub(super) fn is_open(&self, attempt: &Attempt) -> bool {
        !attempt.spoiled && attempt.run.len() < self.cells
    }

    /// Blocks in which a try counts.
    pub(super) fn whole(&self) -> u32 {
        let blocks = self.attempts.keys().filter(|block| self.counting(**block).is_some());
        blocks.count() as u32
    }

    /// How often a block was run again.
    pub(super) fn reruns(&self) -> u32 {
        self.attempts.values().map(|attempts| attempts.len() as u32 - 1).sum()
    }
}

fn is_of_a_block(line: &TrialLine) -> bool {
    line.place.kind == Kind::Judged && line.place.block > 0
}

/// Marks what does not count, whatever was marked before: discarded trials by their covariate, and the
/// others of their block.
pub fn mark(plan: &Plan, lines: &mut [TrialLine]) {
    let discarded = discard::decide(&plan.discard, lines);
    let blocks = Blocks::of(plan, lines, &discarded);
    for (line, own) in lines.iter_mut().zip(discarded) {
        line.discarded = own.or_else(|| of_its_block(&blocks, line));
    }
}

fn of_its_block(blocks: &Blocks, line: &TrialLine) -> Option<Discarded> {
    let place = &line.place;
    if !is_of_a_block(line) || line.failed.is_some() {
        return None;
    }
    let because = |code: &str, text: String| Some(Discarded { code: code.to_owned(), text });
    let counting = blocks.counting(place.block);
    match counting {
        Some(attempt) if attempt == place.attempt => None,
        Some(attempt) => {
            because(BLOCK_RERUN, format!("block {}: try {attempt} counts", place.block))
        }
        None => {
            let attempts = blocks.attempts.get(&place.block)?;
            let own = attempts.get(&place.attempt)?;
            if own.spoiled || attempts.keys().any(|other| *other > place.attempt) {
                let text = format!("block {}: a trial of this try does not count", place.block);
                because(BLOCK_RERUN, text)
            } else {
                let text = format!("block {} was not run to its end", place.block);
                because(BLOCK_NOT_WHOLE, text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{line, plan};
    use super::*;

    #[test]
    fn the_last_whole_try_counts_and_its_elders_are_marked() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![
            line(1, 1, 1, "a", "x"),
            line(2, 1, 1, "b", "x"),
            line(3, 1, 2, "b", "x"),
            line(4, 1, 2, "a", "x"),
            line(5, 1, 2, "a-again", "x"),
            line(6, 2, 1, "a", "x"),
        ];
        lines[1].covariates.steal_share = Some(0.5);
        mark(&plan, &mut lines);
        let codes = |lines: &[TrialLine]| -> Vec<Option<String>> {
            lines.iter().map(|line| line.discarded.as_ref().map(|why| why.code.clone())).collect()
        };
        let some = |code: &str| Some(code.to_owned());
        let expected =
            [some(BLOCK_RERUN), some("steal_share"), None, None, None, some(BLOCK_NOT_WHOLE)];
        assert_eq!(codes(&lines), expected);
        // Marking again changes nothing, and a block that becomes whole counts.
        lines.push(line(7, 2, 1, "b", "x"));
        lines.push(line(8, 2, 1, "a-again", "x"));
        mark(&plan, &mut lines);
        assert!(lines[5..].iter().all(TrialLine::counts));
        assert_eq!(codes(&lines)[..5], expected[..5]);
    }

    #[test]
    fn a_failed_trial_spoils_its_try() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![line(1, 1, 1, "a", "x"), line(2, 1, 1, "b", "x")];
        lines[1].failed = Some("no".to_owned());
        mark(&plan, &mut lines);
        assert_eq!(lines[0].discarded.as_ref().unwrap().code, BLOCK_RERUN);
        assert_eq!(lines[1].discarded, None, "it says itself why it has no figures");
        let decided = vec![None; lines.len()];
        let blocks = Blocks::of(&plan, &lines, &decided);
        assert_eq!((blocks.whole(), blocks.reruns()), (0, 0));
    }
}
