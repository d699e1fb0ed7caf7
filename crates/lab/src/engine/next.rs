//! What comes next in an experiment, from its plan and what is on the disk, and nothing else: one that was
//! killed goes on as if it had not been. Pure.
//!
//! Not for running it.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Plan, Stopped, TrialLine};
use record::trial::Kind;

use super::blocks::{Blocks, Group};
use super::schedule::{Draw, Spot, order};
use crate::words::{count, times};

/// How often an arm under a load may fail in a row.
const FAILURES_MAX: usize = 2;
/// How often a probe is tried: what it tells is not worth more.
const PROBE_TRIES_MAX: usize = 2;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A trial.
    Run(Slot),
    /// The pilots have run: the warm-up is to be chosen.
    WarmUp,
    /// Nothing: why.
    End(Stopped),
}

/// A trial to run: its place without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What it is for.
    pub kind: Kind,
    /// Its block; 0 for pilots and probes.
    pub block: u32,
    /// Which try.
    pub attempt: u32,
    /// Its arm and load.
    pub spot: Spot,
}

/// What decides besides the trials.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Whether it is known how long the warm-up is.
    pub warm_up: bool,
    /// The number of the last trial before somebody tried again what had failed: failures up to it are
    /// forgiven.
    pub forgiven: u32,
    /// The stopping rule: whether what counts so far is precise enough.
    pub settled: &'a dyn Fn(&Plan, &[TrialLine]) -> bool,
}

impl std::fmt::Debug for Given<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given").field("warm_up", &self.warm_up).finish_non_exhaustive()
    }
}

/// What comes next after `lines`, in the order of their numbers and marked ([`super::blocks::mark`]).
#[must_use]
pub fn next(given: Given<'_>, lines: &[TrialLine]) -> Step {
    if let Some(stopped) = failing(given, lines) {
        return Step::End(stopped);
    }
    if !given.warm_up {
        return pilot(given.plan, lines).map_or(Step::WarmUp, Step::Run);
    }
    if given.plan.calls.is_some()
        && let Some(slot) = probe(given.plan, lines)
    {
        return Step::Run(slot);
    }
    of_blocks(given, lines)
}

/// The cell that failed twice in a row.
fn failing(given: Given<'_>, lines: &[TrialLine]) -> Option<Stopped> {
    let mut in_a_row: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let told = lines.iter().filter(|line| line.place.number > given.forgiven);
    for line in told.filter(|line| line.place.kind != Kind::Probe) {
        let failures = in_a_row.entry((&line.place.arm, &line.place.load)).or_default();
        let Some(why) = &line.failed else {
            *failures = 0;
            continue;
        };
        *failures += 1;
        if *failures >= FAILURES_MAX {
            let (arm, load) = (&line.place.arm, &line.place.load);
            let text = format!("{arm} under {load} failed {failures} times in a row: {why}");
            return Some(Stopped { code: "failed".to_owned(), text });
        }
    }
    None
}

fn pilot(plan: &Plan, lines: &[TrialLine]) -> Option<Slot> {
    before(plan, lines, Kind::Pilot, usize::MAX)
}

fn probe(plan: &Plan, lines: &[TrialLine]) -> Option<Slot> {
    before(plan, lines, Kind::Probe, PROBE_TRIES_MAX)
}

/// The next trial of those before the first block: one for each cell that did not fail.
fn before(plan: &Plan, lines: &[TrialLine], kind: Kind, tries_max: usize) -> Option<Slot> {
    order(plan, Draw::before(kind)).into_iter().find_map(|spot| {
        let of_spot = |line: &&TrialLine| {
            let place = &line.place;
            place.kind == kind && place.arm == spot.arm && place.load == spot.load
        };
        let tries: Vec<&TrialLine> = lines.iter().filter(of_spot).collect();
        let done = tries.len() >= tries_max || tries.iter().any(|line| line.failed.is_none());
        let attempt = tries.iter().map(|line| line.place.attempt).max().unwrap_or(0) + 1;
        (!done).then_some(Slot { kind, block: 0, attempt, spot })
    })
}

fn of_blocks(given: Given<'_>, lines: &[TrialLine]) -> Step {
    let plan = given.plan;
    let blocks = blocks(plan, lines);
    // A try that was begun is run to its end before anything else, because what is held against each other
    // belongs together in time.
    if let Some((group, number, attempt)) = blocks.open()
        && let Some(step) = go_on(plan, group, number, &attempt.run)
    {
        return step;
    }
    let block = (1..).find(|block| !blocks.is_whole(*block)).unwrap_or(1);
    let whole = block - 1;
    if !blocks.is_begun(block) {
        let precise = whole >= plan.blocks_min && (given.settled)(plan, lines);
        if precise || whole >= plan.blocks_max {
            return Step::End(enough(whole, precise));
        }
    }
    // The order of a block's loads is that of its first try, whichever of them are run again.
    let loads = order(plan, Draw::block(block, 1)).into_iter().map(|spot| spot.load);
    let mut groups = loads.map(|load| Group { block, load });
    let group = groups.find(|group| blocks.counting(group).is_none());
    group.and_then(|group| missing(plan, lines, &blocks, &group)).unwrap_or_else(nothing)
}

/// What a group that does not count yet needs next.
fn missing(plan: &Plan, lines: &[TrialLine], blocks: &Blocks, group: &Group) -> Option<Step> {
    match blocks.last(group) {
        None => go_on(plan, group, 1, &BTreeSet::new()),
        Some((number, attempt)) if blocks.is_open(attempt) => {
            go_on(plan, group, number, &attempt.run)
        }
        Some((number, _)) => run_again(plan, lines, blocks, group, number + 1),
    }
}

fn enough(whole: u32, precise: bool) -> Stopped {
    let blocks = count(whole as usize, "block");
    let (code, text) = match precise {
        true => ("precise", format!("after {blocks} every primary interval was narrow enough")),
        false => ("most_blocks", format!("the plan allows {blocks}")),
    };
    Stopped { code: code.to_owned(), text }
}

/// Without cells there is nothing to run.
fn nothing() -> Step {
    let text = "the plan has no arm or no load".to_owned();
    Step::End(Stopped { code: "failed".to_owned(), text })
}

/// The blocks as their trials are marked.
pub(super) fn blocks(plan: &Plan, lines: &[TrialLine]) -> Blocks {
    let own = |line: &TrialLine| line.discarded.clone().filter(|why| !why.is_of_its_block());
    let discarded: Vec<_> = lines.iter().map(own).collect();
    Blocks::of(plan, lines, &discarded)
}

/// The first trial of a try that has not run.
fn go_on(plan: &Plan, group: &Group, attempt: u32, run: &BTreeSet<String>) -> Option<Step> {
    let order = order(plan, Draw::block(group.block, attempt)).into_iter();
    let mut to_run = order.filter(|spot| spot.load == group.load && !run.contains(&spot.arm));
    let slot = |spot| Slot { kind: Kind::Judged, block: group.block, attempt, spot };
    to_run.next().map(|spot| Step::Run(slot(spot)))
}

/// Runs a group again, unless that has been done too often.
fn run_again(
    plan: &Plan,
    lines: &[TrialLine],
    blocks: &Blocks,
    group: &Group,
    attempt: u32,
) -> Option<Step> {
    let most = reruns_max(plan, blocks.begun_count());
    if blocks.reruns() >= most {
        let text = rerun_for(lines, most);
        return Some(Step::End(Stopped { code: "reruns".to_owned(), text }));
    }
    go_on(plan, group, attempt, &BTreeSet::new())
}

/// How often the arms of a block under a load may be run again when `begun` blocks were begun: the plan's share
/// of all of these groups, or of those of the fewest blocks when these are more, so that one disturbance
/// at the start does not end it.
#[must_use]
pub fn reruns_max(plan: &Plan, begun: u32) -> u32 {
    let groups = f64::from(begun.max(plan.blocks_min)) * plan.loads.len() as f64;
    (groups * plan.reruns_max_share).ceil() as u32
}

fn rerun_for(lines: &[TrialLine], most: u32) -> String {
    let mut causes: BTreeMap<&str, u32> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.place.kind == Kind::Judged) {
        let code = match (&line.failed, &line.discarded) {
            (Some(_), _) => "failed",
            (None, Some(why)) if !why.is_of_its_block() => &why.code,
            _ => continue,
        };
        *causes.entry(code).or_default() += 1;
    }
    let causes: Vec<String> =
        causes.into_iter().map(|(code, of)| format!("{code} {}", times(of))).collect();
    format!(
        "a block's arms under a load were run again {}, and no more may be (reruns-max); what trials did not \
         count for: {}. Bounds are set before a run: [discard] in the file, or --discard",
        times(most),
        causes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::blocks::mark;
    use super::super::simulated::{line, plan};
    use super::*;

    const NEVER: &dyn Fn(&Plan, &[TrialLine]) -> bool = &|_, _| false;

    fn given(plan: &Plan) -> Given<'_> {
        Given { plan, warm_up: true, forgiven: 0, settled: NEVER }
    }

    fn step(plan: &Plan, lines: &mut [TrialLine]) -> Step {
        mark(plan, lines, &[]);
        next(given(plan), lines)
    }

    fn slot(step: Step) -> Slot {
        match step {
            Step::Run(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    fn code(step: Step) -> String {
        match step {
            Step::End(stopped) => stopped.code,
            other => panic!("{other:?}"),
        }
    }

    /// Runs until it ends, each trial as `outcome` changes it.
    fn all(given: Given<'_>, outcome: &dyn Fn(&mut TrialLine)) -> (Vec<TrialLine>, Stopped) {
        let mut lines: Vec<TrialLine> = Vec::new();
        loop {
            mark(given.plan, &mut lines, &[]);
            match next(given, &lines) {
                Step::Run(slot) => {
                    let number = lines.len() as u32 + 1;
                    let spot = slot.spot;
                    let mut one = line(number, slot.block, slot.attempt, &spot.arm, &spot.load);
                    one.place.kind = slot.kind;
                    outcome(&mut one);
                    lines.push(one);
                }
                Step::WarmUp => panic!("not asked for"),
                Step::End(stopped) => return (lines, stopped),
            }
            assert!(lines.len() < 10_000, "it has to end");
        }
    }

    #[test]
    fn it_stops_when_settled_but_not_before_the_fewest_blocks_nor_after_the_most() {
        let plan = Plan { blocks_min: 3, blocks_max: 5, ..plan(&["a", "b"], &["x", "y"]) };
        let always: &dyn Fn(&Plan, &[TrialLine]) -> bool = &|_, _| true;
        let (lines, stopped) = all(Given { settled: always, ..given(&plan) }, &|_| {});
        assert_eq!((lines.len(), stopped.code.as_str()), (3 * 6, "precise"));
        let fourth: &dyn Fn(&Plan, &[TrialLine]) -> bool =
            &|_, lines| lines.iter().filter(|line| line.counts()).count() == 4 * 6;
        let (lines, _) = all(Given { settled: fourth, ..given(&plan) }, &|_| {});
        assert_eq!(lines.len(), 4 * 6);
        let (lines, stopped) = all(given(&plan), &|_| {});
        assert_eq!((lines.len(), stopped.code.as_str()), (5 * 6, "most_blocks"));
    }

    #[test]
    fn the_rule_is_looked_at_after_whole_blocks_only() {
        let plan = Plan { blocks_min: 2, blocks_max: 4, ..plan(&["a", "b"], &["x"]) };
        let whole: &dyn Fn(&Plan, &[TrialLine]) -> bool = &|_, lines| {
            assert!(lines.iter().all(TrialLine::counts) && lines.len() % 3 == 0);
            assert!(lines.len() >= 6);
            false
        };
        all(Given { settled: whole, ..given(&plan) }, &|_| {});
    }

    #[test]
    fn a_discarded_trial_ends_its_try_and_the_arms_run_again_under_that_load_only() {
        let plan = Plan { blocks_min: 2, blocks_max: 2, ..plan(&["a", "b"], &["x", "y"]) };
        let first = order(&plan, Draw::block(1, 1));
        // The second trial of the load that stands second in the order.
        let disturbed = first[4].clone();
        let mut lines: Vec<TrialLine> = (1..=5)
            .zip(&first)
            .map(|(number, spot)| line(number, 1, 1, &spot.arm, &spot.load))
            .collect();
        lines[4].covariates.steal_share = Some(0.5);
        let again = slot(step(&plan, &mut lines));
        assert_eq!((again.block, again.attempt, &again.spot.load), (1, 2, &disturbed.load));
        let of_load = |spot: &&Spot| spot.load == disturbed.load;
        assert_eq!(Some(&again.spot), order(&plan, Draw::block(1, 2)).iter().find(of_load));
        assert!(lines[..3].iter().all(TrialLine::counts), "the other load's trials stand");
        let steal = |line: &mut TrialLine| {
            let place = &line.place;
            let at = (place.block, place.attempt, &place.load, &place.arm);
            let is_it = at == (1, 1, &disturbed.load, &disturbed.arm);
            line.covariates.steal_share = Some(if is_it { 0.5 } else { 0.0 });
        };
        let (lines, stopped) = all(given(&plan), &steal);
        assert_eq!((lines.len(), stopped.code.as_str()), (2 * 6 + 2, "most_blocks"));
        assert_eq!(lines.iter().filter(|line| line.counts()).count(), 2 * 6);
    }

    #[test]
    fn reruns_are_bounded() {
        let plan = Plan { blocks_min: 10, blocks_max: 30, ..plan(&["a", "b"], &["x"]) };
        let stolen = |line: &mut TrialLine| line.covariates.steal_share = Some(0.5);
        let (lines, stopped) = all(given(&plan), &stolen);
        assert_eq!((lines.len(), stopped.code.as_str()), (6, "reruns"));
        assert!(stopped.text.contains("steal_share 6 times"), "{}", stopped.text);
        // One in three blocks is disturbed: it goes on.
        let some = |line: &mut TrialLine| {
            let first = line.place.block.is_multiple_of(3) && line.place.attempt == 1;
            line.covariates.steal_share = Some(if first { 0.5 } else { 0.0 });
        };
        assert_eq!(all(given(&plan), &some).1.code, "most_blocks");
        let none = Plan { reruns_max_share: 0.0, ..plan };
        assert_eq!(all(given(&none), &stolen).0.len(), 1);
    }

    #[test]
    fn a_cell_that_fails_twice_in_a_row_ends_it_and_another_try_may_be_asked_for() {
        let plan = plan(&["a", "b"], &["x"]);
        let fails = |line: &mut TrialLine| {
            if line.place.arm == "b" {
                line.failed = Some("'nginx' ended (exit status: 1): no such library".to_owned());
            }
        };
        let (lines, stopped) = all(given(&plan), &fails);
        assert_eq!(stopped.code, "failed");
        assert!(stopped.text.starts_with("b under x failed 2 times in a row: 'nginx' ended"));
        let forgiven = lines.last().unwrap().place.number;
        assert!(matches!(next(Given { forgiven, ..given(&plan) }, &lines), Step::Run(_)));
        // Once is not enough.
        let once = |line: &mut TrialLine| {
            if line.place.number == 2 {
                line.failed = Some("no".to_owned());
            }
        };
        let (lines, stopped) = all(given(&plan), &once);
        assert_eq!(stopped.code, "most_blocks");
        assert!(lines.iter().any(|line| line.place.block == 1 && line.place.attempt == 2));
    }

    #[test]
    fn a_hole_in_an_old_block_is_filled_after_the_block_that_is_open() {
        let plan = Plan { blocks_min: 2, blocks_max: 2, ..plan(&["a", "b"], &["x"]) };
        let (mut lines, _) = all(given(&plan), &|_| {});
        // As when files of both blocks turned out to be broken.
        let hole = lines.remove(1);
        let last = lines.pop().unwrap();
        let slot_of =
            |line: &TrialLine| (line.place.block, line.place.attempt, line.place.arm.clone());
        let found = slot(step(&plan, &mut lines));
        assert_eq!((found.block, found.attempt, found.spot.arm), slot_of(&last));
        lines.push(last);
        let found = slot(step(&plan, &mut lines));
        assert_eq!((found.block, found.attempt, found.spot.arm), slot_of(&hole));
        lines.push(TrialLine { place: record::trial::Place { number: 7, ..hole.place }, ..hole });
        assert_eq!(code(step(&plan, &mut lines)), "most_blocks");
    }

    #[test]
    fn pilots_come_first_and_probes_before_the_blocks() {
        let plan = Plan { calls: Some("malloc".to_owned()), ..plan(&["a", "b"], &["x"]) };
        let mut lines = Vec::new();
        let unknown = Given { warm_up: false, ..given(&plan) };
        for number in 1..=3 {
            let slot = slot(next(unknown, &lines));
            assert_eq!((slot.kind, slot.block), (Kind::Pilot, 0));
            let mut one = line(number, 0, slot.attempt, &slot.spot.arm, &slot.spot.load);
            one.place.kind = Kind::Pilot;
            lines.push(one);
        }
        assert_eq!(next(unknown, &lines), Step::WarmUp);
        // Probes that fail are tried twice each, and do not stop it.
        for number in 4..=7 {
            let slot = slot(next(given(&plan), &lines));
            assert_eq!(slot.kind, Kind::Probe);
            let mut one = line(number, 0, slot.attempt, &slot.spot.arm, &slot.spot.load);
            one.place.kind = Kind::Probe;
            one.failed = Some("no".to_owned());
            lines.push(one);
        }
        assert_eq!(slot(next(given(&plan), &lines)).block, 1);
    }

    #[test]
    fn the_reruns_allowed_grow_with_the_blocks() {
        let one = Plan { blocks_min: 10, reruns_max_share: 0.5, ..plan(&["a"], &["x"]) };
        assert_eq!([1, 10, 11, 30].map(|begun| reruns_max(&one, begun)), [5, 5, 6, 15]);
        let two = Plan { loads: plan(&["a"], &["x", "y"]).loads, ..one };
        assert_eq!(reruns_max(&two, 11), 11);
    }
}
