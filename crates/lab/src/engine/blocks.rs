//! Which try at a group counts, a group being the arms of a block under one load; and what is marked as not
//! counting because of its group. Pure.
//!
//! Of a group, the last try counts that has every arm, none of them failed or discarded: arms are held against
//! each other under one load, so what disturbed one load's trials costs those of the others nothing.
//! Not for what runs next: that is [`super::next`]'s.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Plan, TrialLine};
use record::trial::{BEGUN_ANEW, BLOCK_NOT_WHOLE, BLOCK_RERUN, Discarded, Kind, Place};

use super::discard;

/// One try at a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    /// The arms that have run, whatever came of it.
    pub(super) run: BTreeSet<String>,
    /// Whether a trial of it failed or was discarded: it will not count.
    spoiled: bool,
    /// Whether something changed while it was open: running it again is none of the plan's reruns.
    is_changed: bool,
    /// The number of its last trial.
    last: u32,
}

/// The arms of a block under one load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    /// The block.
    pub(super) block: u32,
    /// The load.
    pub(super) load: String,
}

/// The blocks of an experiment.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// By group and try.
    attempts: BTreeMap<Group, BTreeMap<u32, Attempt>>,
    arms: usize,
    loads: usize,
}

impl Blocks {
    /// What `lines` are of blocks; `discarded` is of each line ([`discard::decide`]).
    pub(super) fn of(plan: &Plan, lines: &[TrialLine], discarded: &[Option<Discarded>]) -> Self {
        let mut blocks = Self { arms: plan.arms.len(), loads: plan.loads.len(), ..Self::default() };
        let judged = lines.iter().zip(discarded).filter(|(line, _)| is_of_a_block(line));
        for (line, discarded) in judged {
            let place = &line.place;
            let attempts = blocks.attempts.entry(Group::of(place)).or_default();
            let attempt = attempts.entry(place.attempt).or_default();
            attempt.run.insert(place.arm.clone());
            attempt.spoiled |= discarded.is_some() || line.failed.is_some();
            attempt.is_changed |= discarded.as_ref().is_some_and(|why| why.code == BEGUN_ANEW);
            attempt.last = attempt.last.max(place.number);
        }
        blocks
    }

    /// The try at a group that counts.
    pub(super) fn counting(&self, group: &Group) -> Option<u32> {
        let attempts = self.attempts.get(group)?;
        let counts = |attempt: &Attempt| !attempt.spoiled && attempt.run.len() == self.arms;
        attempts.iter().rev().find(|(_, attempt)| counts(attempt)).map(|(number, _)| *number)
    }

    /// The last try at a group.
    pub(super) fn last(&self, group: &Group) -> Option<(u32, &Attempt)> {
        let (number, attempt) = self.attempts.get(group)?.last_key_value()?;
        Some((*number, attempt))
    }

    /// The group whose trial ran last, if it has more to run that is worth it: the try, and what has run.
    pub(super) fn open(&self) -> Option<(&Group, u32, &Attempt)> {
        let tries = self.attempts.iter().flat_map(|(group, attempts)| {
            attempts.iter().map(move |(number, attempt)| (group, *number, attempt))
        });
        let (group, number, attempt) = tries.max_by_key(|(_, _, attempt)| attempt.last)?;
        let is_open = self.is_open(attempt) && self.counting(group).is_none();
        is_open.then_some((group, number, attempt))
    }

    /// Whether a try has trials still to run that are worth it.
    pub(super) fn is_open(&self, attempt: &Attempt) -> bool {
        !attempt.spoiled && attempt.run.len() < self.arms
    }

    /// Whether a try counts at each group of a block.
    pub(super) fn is_whole(&self, block: u32) -> bool {
        self.of_block(block).filter(|group| self.counting(group).is_some()).count() == self.loads
    }

    /// Whether anything of a block has run.
    pub(super) fn is_begun(&self, block: u32) -> bool {
        self.of_block(block).next().is_some()
    }

    fn of_block(&self, block: u32) -> impl Iterator<Item = &Group> {
        self.attempts.keys().filter(move |group| group.block == block)
    }

    /// Every block of which something has run.
    fn begun(&self) -> BTreeSet<u32> {
        self.attempts.keys().map(|group| group.block).collect()
    }

    /// How many blocks were begun.
    pub(super) fn begun_count(&self) -> u32 {
        self.begun().len() as u32
    }

    /// How many blocks are whole.
    pub(super) fn whole(&self) -> u32 {
        self.begun().into_iter().filter(|block| self.is_whole(*block)).count() as u32
    }

    /// How many trials of blocks need not run any more.
    pub(super) fn done(&self) -> u32 {
        let of_group = |group: &Group| {
            let open = self.last(group).filter(|(_, attempt)| self.is_open(attempt));
            match self.counting(group) {
                Some(_) => self.arms,
                None => open.map_or(0, |(_, attempt)| attempt.run.len()),
            }
        };
        self.attempts.keys().map(of_group).sum::<usize>() as u32
    }

    /// How often a group was run again for what disturbed it.
    pub(super) fn reruns(&self) -> u32 {
        let all = self.attempts.values().map(|attempts| attempts.len() as u32 - 1).sum::<u32>();
        let changed = self.attempts.values().flat_map(BTreeMap::values).filter(|it| it.is_changed);
        all.saturating_sub(changed.count() as u32)
    }
}

impl Group {
    /// The group that a trial is of.
    pub(super) fn of(place: &Place) -> Self {
        Self { block: place.block, load: place.load.clone() }
    }
}

fn is_of_a_block(line: &TrialLine) -> bool {
    line.place.kind == Kind::Judged && line.place.block > 0
}

/// That an experiment was gone on with while the machine, weir or a program was other than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The number of the last trial before.
    pub after: u32,
    /// What, in words.
    pub what: String,
}

/// Marks what does not count, whatever was marked before: discarded trials by their covariate, and the
/// others of their group. A try that was open when something changed is discarded: its arms would not have been
/// measured by the same means. `lines` are in the order of their numbers.
pub fn mark(plan: &Plan, lines: &mut [TrialLine], changed: &[Changed]) {
    let mut discarded = discard::decide(&plan.discard, lines);
    for change in changed {
        let before = lines.partition_point(|line| line.place.number <= change.after);
        let blocks = Blocks::of(plan, &lines[..before], &discarded[..before]);
        let Some((group, number, _)) = blocks.open() else { continue };
        let is_of_it = |line: &TrialLine| {
            is_of_a_block(line) && line.place.attempt == number && Group::of(&line.place) == *group
        };
        let of_it = lines[..before].iter().zip(&mut discarded).filter(|(line, _)| is_of_it(line));
        for (_, discarded) in of_it {
            let text = format!(
                "its block was open when something changed, and began anew: {}",
                change.what
            );
            *discarded = Some(Discarded { code: BEGUN_ANEW.to_owned(), text });
        }
    }
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
    let group = Group::of(place);
    let counting = blocks.counting(&group);
    if counting == Some(place.attempt) {
        return None;
    }
    let (last, attempt) = blocks.last(&group)?;
    let at = format!("block {} under {}", group.block, group.load);
    let (code, text) = match counting {
        Some(attempt) => (BLOCK_RERUN, format!("{at}: try {attempt} counts")),
        None if last == place.attempt && blocks.is_open(attempt) => {
            (BLOCK_NOT_WHOLE, format!("{at} was not run to its end"))
        }
        None => (BLOCK_RERUN, format!("{at}: a trial of this try does not count")),
    };
    Some(Discarded { code: code.to_owned(), text })
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
        mark(&plan, &mut lines, &[]);
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
        mark(&plan, &mut lines, &[]);
        assert!(lines[5..].iter().all(TrialLine::counts));
        assert_eq!(codes(&lines)[..5], expected[..5]);
    }

    #[test]
    fn what_was_open_when_something_changed_begins_anew() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![
            line(1, 1, 1, "a", "x"),
            line(2, 1, 1, "b", "x"),
            line(3, 1, 1, "a-again", "x"),
            line(4, 2, 1, "b", "x"),
            line(5, 2, 1, "a", "x"),
        ];
        let change = |after| Changed { after, what: "program nginx: 2, was 1".to_owned() };
        mark(&plan, &mut lines, &[change(5)]);
        assert!(lines[..3].iter().all(TrialLine::counts), "a whole block stands");
        for line in &lines[3..] {
            let why = line.discarded.as_ref().unwrap();
            assert!(why.code == BEGUN_ANEW && why.text.ends_with("nginx: 2, was 1"), "{why:?}");
        }
        let decided: Vec<_> = lines.iter().map(|line| line.discarded.clone()).collect();
        let blocks = Blocks::of(&plan, &lines, &decided);
        assert_eq!((blocks.open().is_none(), blocks.reruns()), (true, 0));
        // The same try is never gone on with, also not by an older weir's trials.
        let anew = [(6, "b"), (7, "a-again"), (8, "a")];
        lines.extend(anew.map(|(number, arm)| line(number, 2, 2, arm, "x")));
        mark(&plan, &mut lines, &[change(5)]);
        assert!(lines[5..].iter().all(TrialLine::counts) && !lines[3].counts());
        let blocks = Blocks::of(
            &plan,
            &lines,
            &decided.into_iter().chain([None, None, None]).collect::<Vec<_>>(),
        );
        assert_eq!((blocks.whole(), blocks.reruns()), (2, 0));
        // Between blocks nothing is open.
        mark(&plan, &mut lines, &[change(3), change(8)]);
        assert!(
            lines
                .iter()
                .all(|line| line.counts() || line.place.number < 6 && line.place.block == 2)
        );
    }

    #[test]
    fn a_failed_trial_spoils_its_try() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines = vec![line(1, 1, 1, "a", "x"), line(2, 1, 1, "b", "x")];
        lines[1].failed = Some("no".to_owned());
        mark(&plan, &mut lines, &[]);
        assert_eq!(lines[0].discarded.as_ref().unwrap().code, BLOCK_RERUN);
        assert_eq!(lines[1].discarded, None, "it says itself why it has no figures");
        let decided = vec![None; lines.len()];
        let blocks = Blocks::of(&plan, &lines, &decided);
        assert_eq!((blocks.whole(), blocks.reruns()), (0, 0));
    }
}
