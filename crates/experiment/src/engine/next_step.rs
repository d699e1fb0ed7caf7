//! Chooses the next step of an experiment, from its plan and its stored trials only. A killed
//! experiment therefore continues as if it had not been killed. No I/O.
//!
//! Not for running the step.

use record::units::format_plural;
use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{ExperimentPlan, StopReason, TrialSummary};
use record::trial::TrialKind;

use super::blocks::{GroupAttempts, TrialGroup};
use super::schedule::{ArmLoad, OrderDraw, trial_order};
use crate::format::{bound_percent, count, frequency};
use crate::scenario::keys::bound_key;
use crate::trial::metrics::{longer_trials, requests_needed};

/// Maximum number of failures in a row of an arm under a load.
const FAILURES_IN_A_ROW_MAX: usize = 2;
/// Maximum number of attempts of a probe: its result is not worth more.
const PROBE_ATTEMPTS_MAX: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    Run(TrialSlot),
    /// Choose the warm-up: the pilots have run.
    WarmUp,
    End(StopReason),
}

/// Trial to run: its place without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialSlot {
    pub kind: TrialKind,
    /// Number of the block; 0 for pilots and probes.
    pub block: u32,
    pub attempt: u32,
    pub arm_load: ArmLoad,
}

/// Input of the decision besides the trials.
#[derive(Clone, Copy)]
pub struct StepInput<'a> {
    pub plan: &'a ExperimentPlan,
    /// True if the length of the warm-up is known.
    pub has_warm_up: bool,
    /// Number of the last trial before the user went on after failures or too many reruns. Those up to it
    /// are ignored.
    pub forgiven_until: u32,
    /// Stopping rule: returns whether the trials that count conclude every claim.
    pub is_concluded: &'a dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool,
}

impl std::fmt::Debug for StepInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepInput").field("warm_up", &self.has_warm_up).finish_non_exhaustive()
    }
}

/// Returns the step after `lines`, which are in the order of their numbers and marked
/// ([`super::blocks::mark_discarded`]).
pub fn next_step(input: StepInput<'_>, lines: &[TrialSummary]) -> NextStep {
    if let Some(stopped) = repeated_failure(input, lines) {
        return NextStep::End(stopped);
    }
    if !input.has_warm_up {
        return next_pilot(input.plan, lines).map_or(NextStep::WarmUp, NextStep::Run);
    }
    if input.plan.calls.is_some()
        && let Some(slot) = next_probe(input.plan, lines)
    {
        return NextStep::Run(slot);
    }
    next_in_blocks(input, lines)
}

/// Returns the end of the experiment if a cell failed twice in a row.
fn repeated_failure(input: StepInput<'_>, lines: &[TrialSummary]) -> Option<StopReason> {
    let mut in_a_row: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let recent = lines.iter().filter(|line| line.position.number > input.forgiven_until);
    for line in recent.filter(|line| line.position.kind != TrialKind::Probe) {
        let failures = in_a_row.entry((&line.position.arm, &line.position.load)).or_default();
        let Some(reason) = &line.failed else {
            *failures = 0;
            continue;
        };
        *failures += 1;
        if *failures >= FAILURES_IN_A_ROW_MAX {
            let (arm, load) = (&line.position.arm, &line.position.load);
            let text = format!(
                "{arm} under {load} failed {} in a row: {reason}",
                format_plural(*failures as u64, "time")
            );
            return Some(StopReason { code: "failed".to_owned(), text });
        }
    }
    None
}

fn next_pilot(plan: &ExperimentPlan, lines: &[TrialSummary]) -> Option<TrialSlot> {
    next_before_blocks(plan, lines, TrialKind::Pilot, usize::MAX)
}

fn next_probe(plan: &ExperimentPlan, lines: &[TrialSummary]) -> Option<TrialSlot> {
    next_before_blocks(plan, lines, TrialKind::Probe, PROBE_ATTEMPTS_MAX)
}

/// Returns the next trial before the first block. Each cell needs one that succeeds, within
/// `tries_max` attempts.
fn next_before_blocks(
    plan: &ExperimentPlan,
    lines: &[TrialSummary],
    kind: TrialKind,
    tries_max: usize,
) -> Option<TrialSlot> {
    trial_order(plan, OrderDraw::before_blocks(kind)).into_iter().find_map(|arm_load| {
        let is_try = |line: &&TrialSummary| {
            let position = &line.position;
            position.kind == kind && position.arm == arm_load.arm && position.load == arm_load.load
        };
        let tries: Vec<&TrialSummary> = lines.iter().filter(is_try).collect();
        let done = tries.len() >= tries_max || tries.iter().any(|line| line.failed.is_none());
        let attempt = tries.iter().map(|line| line.position.attempt).max().unwrap_or(0) + 1;
        (!done).then_some(TrialSlot { kind, block: 0, attempt, arm_load })
    })
}

fn next_in_blocks(input: StepInput<'_>, lines: &[TrialSummary]) -> NextStep {
    let plan = input.plan;
    let blocks = collect_attempts(plan, lines);
    // An open attempt is completed before anything else: trials that are compared belong together
    // in time.
    if let Some((group, number, attempt)) = blocks.open_attempt()
        && let Some(step) = continue_attempt(plan, group, number, &attempt.arms_run)
    {
        return step;
    }
    let block = (1..).find(|block| !blocks.is_complete(*block)).unwrap_or(1);
    let complete = block - 1;
    if !blocks.is_started(block) {
        let concluded = complete >= plan.blocks_min && (input.is_concluded)(plan, lines);
        if concluded || complete >= plan.blocks_max {
            return NextStep::End(enough_blocks(complete, concluded));
        }
        if complete > 0
            && let Some(stopped) = too_few_requests(plan, lines)
        {
            return NextStep::End(stopped);
        }
    }
    // The order of a block's loads is that of its first attempt, whichever of them run again.
    let loads = trial_order(plan, OrderDraw::for_block(block)).into_iter().map(|arm_load| arm_load.load);
    let mut groups = loads.map(|load| TrialGroup { block, load });
    let group = groups.find(|group| blocks.counted_attempt(group).is_none());
    group.and_then(|group| next_in_group(input, lines, &blocks, &group)).unwrap_or_else(no_cells)
}

/// Returns the next step of a group that does not count yet.
fn next_in_group(
    input: StepInput<'_>,
    lines: &[TrialSummary],
    blocks: &GroupAttempts,
    group: &TrialGroup,
) -> Option<NextStep> {
    let plan = input.plan;
    match blocks.last_attempt(group) {
        None => continue_attempt(plan, group, 1, &BTreeSet::new()),
        Some((number, attempt)) if blocks.is_open(attempt) => {
            continue_attempt(plan, group, number, &attempt.arms_run)
        }
        Some((number, _)) => rerun_group(input, lines, blocks, group, number + 1),
    }
}

fn enough_blocks(complete: u32, concluded: bool) -> StopReason {
    let blocks = count(complete as usize, "block");
    let (code, text) = match concluded {
        true => {
            ("concluded", format!("after {blocks} every comparison in the primary metric has its conclusion"))
        }
        false => ("max_blocks", format!("the plan allows {blocks}")),
    };
    StopReason { code: code.to_owned(), text }
}

/// Returns the end of an experiment that compares a percentile of which no trial has enough requests: more trials of that
/// length would have too few, too.
fn too_few_requests(plan: &ExperimentPlan, lines: &[TrialSummary]) -> Option<StopReason> {
    let primary = plan.primary()?;
    let needed = requests_needed(&primary.name)?;
    let counts = |line: &&TrialSummary| {
        line.position.kind == TrialKind::Judged && line.failed.is_none() && line.discarded.is_none()
    };
    let counted: Vec<&TrialSummary> = lines.iter().filter(counts).collect();
    let rates = counted.iter().filter_map(|line| line.metrics.get("responses_per_s"));
    let requests = rates.copied().reduce(f64::max)? * plan.duration_s;
    if requests >= needed || counted.iter().any(|line| line.metrics.contains_key(&primary.name)) {
        return None;
    }
    let text = format!(
        "{} decides and needs {needed:.0} requests in each trial; there were at most {requests:.0}: {}",
        primary.name,
        longer_trials(needed, requests, plan.duration_s)
    );
    Some(StopReason { code: "failed".to_owned(), text })
}

/// Returns the end of an experiment without cells.
fn no_cells() -> NextStep {
    let text = "the plan has no arm or no load".to_owned();
    NextStep::End(StopReason { code: "failed".to_owned(), text })
}

/// Collects the blocks from the marks of their trials.
pub(super) fn collect_attempts(plan: &ExperimentPlan, lines: &[TrialSummary]) -> GroupAttempts {
    let own = |line: &TrialSummary| line.discarded.clone().filter(|reason| !reason.is_block_only());
    let discarded: Vec<_> = lines.iter().map(own).collect();
    GroupAttempts::collect(plan, lines, &discarded)
}

/// Returns the first trial of an attempt that has not run.
fn continue_attempt(
    plan: &ExperimentPlan,
    group: &TrialGroup,
    attempt: u32,
    run: &BTreeSet<String>,
) -> Option<NextStep> {
    let order = trial_order(plan, OrderDraw::for_block(group.block)).into_iter();
    let mut to_run = order.filter(|arm_load| arm_load.load == group.load && !run.contains(&arm_load.arm));
    let slot = |arm_load| TrialSlot { kind: TrialKind::Judged, block: group.block, attempt, arm_load };
    to_run.next().map(|arm_load| NextStep::Run(slot(arm_load)))
}

/// Repeats a group, unless the limit on reruns is reached.
fn rerun_group(
    input: StepInput<'_>,
    lines: &[TrialSummary],
    blocks: &GroupAttempts,
    group: &TrialGroup,
    attempt: u32,
) -> Option<NextStep> {
    let plan = input.plan;
    let max = reruns_max(plan, blocks.started_count());
    if blocks.reruns(input.forgiven_until) >= max {
        let text = rerun_reasons(lines, max, plan);
        return Some(NextStep::End(StopReason { code: "reruns".to_owned(), text }));
    }
    continue_attempt(plan, group, attempt, &BTreeSet::new())
}

/// Returns the maximum number of group reruns after `begun` blocks: the plan's fraction of all
/// their groups. With fewer blocks than the plan's minimum, the minimum counts, so that one
/// disturbance at the start does not end the experiment.
pub fn reruns_max(plan: &ExperimentPlan, begun: u32) -> u32 {
    let groups = f64::from(begun.max(plan.blocks_min)) * plan.loads.len() as f64;
    (groups * plan.reruns_max_fraction).ceil() as u32
}

fn rerun_reasons(lines: &[TrialSummary], max: u32, plan: &ExperimentPlan) -> String {
    let mut causes: BTreeMap<&str, u32> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.position.kind == TrialKind::Judged) {
        let code = match (&line.failed, &line.discarded) {
            (Some(_), _) => "failed",
            (None, Some(why)) if !why.is_block_only() => bound_key(&why.code),
            _ => continue,
        };
        *causes.entry(code).or_default() += 1;
    }
    let bounds = causes.keys().filter(|code| **code != "failed").map(|code| format!("--discard {code}=off"));
    let bounds: Vec<String> = bounds.collect();
    let remedy = match bounds.is_empty() {
        true => String::new(),
        false => format!("; {} judges them with that disturbance", bounds.join(" ")),
    };
    let causes: Vec<String> =
        causes.into_iter().map(|(code, number)| format!("{code} {}", frequency(number))).collect();
    format!(
        "the maximum number of reruns (--reruns {}) is reached: a block's arms under a load were run again {}; \
         reasons for discarded trials: {}. --resume goes on with as many reruns again{remedy}",
        bound_percent(plan.reruns_max_fraction).replace(' ', ""),
        frequency(max),
        causes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::super::blocks::mark_discarded;
    use super::super::simulated::{plan, trial_line};
    use super::*;

    const NEVER: &dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool = &|_, _| false;

    fn step_input(plan: &ExperimentPlan) -> StepInput<'_> {
        StepInput { plan, has_warm_up: true, forgiven_until: 0, is_concluded: NEVER }
    }

    fn step(plan: &ExperimentPlan, lines: &mut [TrialSummary]) -> NextStep {
        mark_discarded(plan, lines, &[]);
        next_step(step_input(plan), lines)
    }

    #[test]
    fn a_percentile_of_too_few_requests_ends_after_a_block() {
        let mut plan = plan(&["base", "a"], &["c=8"]);
        plan.duration_s = 2.0;
        plan.metrics[0].name = "p99_ns".to_owned();
        let rate = |rate: f64| {
            move |line: &mut TrialSummary| {
                line.metrics.insert("responses_per_s".to_owned(), rate);
            }
        };
        let (lines, stopped) = all(step_input(&plan), &rate(400.0));
        assert_eq!((lines.last().unwrap().position.block, stopped.code.as_str()), (1, "failed"));
        assert!(
            stopped.text.ends_with("at most 800: use trials of 28 s (-d 28s) or a higher rate"),
            "{stopped:?}"
        );
        // With enough of them, a trial without the figure is another matter.
        assert_eq!(all(step_input(&plan), &rate(6_000.0)).1.code, "max_blocks");
    }

    fn slot(step: NextStep) -> TrialSlot {
        match step {
            NextStep::Run(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    fn code(step: NextStep) -> String {
        match step {
            NextStep::End(stopped) => stopped.code,
            other => panic!("{other:?}"),
        }
    }

    /// Runs to the end, and applies `outcome` to each trial.
    fn all(input: StepInput<'_>, outcome: &dyn Fn(&mut TrialSummary)) -> (Vec<TrialSummary>, StopReason) {
        let mut lines: Vec<TrialSummary> = Vec::new();
        loop {
            mark_discarded(input.plan, &mut lines, &[]);
            match next_step(input, &lines) {
                NextStep::Run(slot) => {
                    let number = lines.len() as u32 + 1;
                    let arm_load = slot.arm_load;
                    let mut line =
                        trial_line(number, slot.block, slot.attempt, &arm_load.arm, &arm_load.load);
                    line.position.kind = slot.kind;
                    outcome(&mut line);
                    lines.push(line);
                }
                NextStep::WarmUp => panic!("not requested"),
                NextStep::End(stopped) => return (lines, stopped),
            }
            assert!(lines.len() < 10_000, "it has to end");
        }
    }

    #[test]
    fn it_stops_when_concluded_but_not_before_the_min_nor_after_the_max_of_blocks() {
        let plan = ExperimentPlan { blocks_min: 3, blocks_max: 5, ..plan(&["a", "b"], &["x", "y"]) };
        let always: &dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool = &|_, _| true;
        let (lines, stopped) = all(StepInput { is_concluded: always, ..step_input(&plan) }, &|_| {});
        assert_eq!((lines.len(), stopped.code.as_str()), (3 * 6, "concluded"));
        let fourth: &dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool =
            &|_, lines| lines.iter().filter(|line| line.is_counted()).count() == 4 * 6;
        let (lines, _) = all(StepInput { is_concluded: fourth, ..step_input(&plan) }, &|_| {});
        assert_eq!(lines.len(), 4 * 6);
        let (lines, stopped) = all(step_input(&plan), &|_| {});
        assert_eq!((lines.len(), stopped.code.as_str()), (5 * 6, "max_blocks"));
    }

    #[test]
    fn the_rule_is_checked_after_complete_blocks_only() {
        let plan = ExperimentPlan { blocks_min: 2, blocks_max: 4, ..plan(&["a", "b"], &["x"]) };
        let rule: &dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool = &|_, lines| {
            assert!(lines.iter().all(TrialSummary::is_counted) && lines.len() % 3 == 0);
            assert!(lines.len() >= 6);
            false
        };
        all(StepInput { is_concluded: rule, ..step_input(&plan) }, &|_| {});
    }

    #[test]
    fn a_discarded_trial_ends_its_attempt_and_the_arms_rerun_under_that_load_only() {
        let plan = ExperimentPlan { blocks_min: 2, blocks_max: 2, ..plan(&["a", "b"], &["x", "y"]) };
        let first = trial_order(&plan, OrderDraw::for_block(1));
        // The second trial of the second load in the order.
        let disturbed = first[4].clone();
        let mut lines: Vec<TrialSummary> = (1..=5)
            .zip(&first)
            .map(|(number, arm_load)| trial_line(number, 1, 1, &arm_load.arm, &arm_load.load))
            .collect();
        lines[4].covariates.steal_fraction = Some(0.5);
        let rerun = slot(step(&plan, &mut lines));
        assert_eq!((rerun.block, rerun.attempt, &rerun.arm_load.load), (1, 2, &disturbed.load));
        let has_disturbed_load = |arm_load: &&ArmLoad| arm_load.load == disturbed.load;
        assert_eq!(
            Some(&rerun.arm_load),
            trial_order(&plan, OrderDraw::for_block(1)).iter().find(has_disturbed_load)
        );
        assert!(lines[..3].iter().all(TrialSummary::is_counted), "the other load's trials stand");
        let steal = |line: &mut TrialSummary| {
            let position = &line.position;
            let at = (position.block, position.attempt, &position.load, &position.arm);
            let is_it = at == (1, 1, &disturbed.load, &disturbed.arm);
            line.covariates.steal_fraction = Some(if is_it { 0.5 } else { 0.0 });
        };
        let (lines, stopped) = all(step_input(&plan), &steal);
        assert_eq!((lines.len(), stopped.code.as_str()), (2 * 6 + 2, "max_blocks"));
        assert_eq!(lines.iter().filter(|line| line.is_counted()).count(), 2 * 6);
    }

    #[test]
    fn reruns_are_bounded() {
        let plan = ExperimentPlan { blocks_min: 10, blocks_max: 30, ..plan(&["a", "b"], &["x"]) };
        let stolen = |line: &mut TrialSummary| line.covariates.steal_fraction = Some(0.5);
        let (lines, stopped) = all(step_input(&plan), &stolen);
        assert_eq!((lines.len(), stopped.code.as_str()), (6, "reruns"));
        for part in ["steal 6 times", "--discard steal=off", "--reruns 50%"] {
            assert!(stopped.text.contains(part), "{part}: {}", stopped.text);
        }
        // A resume goes on.
        let forgiven_until = lines.last().unwrap().position.number;
        let resumed = StepInput { forgiven_until, ..step_input(&plan) };
        assert!(matches!(next_step(resumed, &lines), NextStep::Run(_)));
        // A disturbance of one in three blocks does not end it.
        let some = |line: &mut TrialSummary| {
            let first = line.position.block.is_multiple_of(3) && line.position.attempt == 1;
            line.covariates.steal_fraction = Some(if first { 0.5 } else { 0.0 });
        };
        assert_eq!(all(step_input(&plan), &some).1.code, "max_blocks");
        let none = ExperimentPlan { reruns_max_fraction: 0.0, ..plan };
        assert_eq!(all(step_input(&none), &stolen).0.len(), 1);
    }

    #[test]
    fn a_cell_that_fails_twice_in_a_row_ends_it_and_may_be_retried_on_request() {
        let plan = plan(&["a", "b"], &["x"]);
        let fails = |line: &mut TrialSummary| {
            if line.position.arm == "b" {
                line.failed = Some("'nginx' ended (exit status: 1): no such library".to_owned());
            }
        };
        let (lines, stopped) = all(step_input(&plan), &fails);
        assert_eq!(stopped.code, "failed");
        for part in ["b under x", " 2 ", "'nginx' ended"] {
            assert!(stopped.text.contains(part), "{part}: {stopped:?}");
        }
        let forgiven_until = lines.last().unwrap().position.number;
        assert!(matches!(
            next_step(StepInput { forgiven_until, ..step_input(&plan) }, &lines),
            NextStep::Run(_)
        ));
        // One failure is not enough.
        let once = |line: &mut TrialSummary| {
            if line.position.number == 2 {
                line.failed = Some("no".to_owned());
            }
        };
        let (lines, stopped) = all(step_input(&plan), &once);
        assert_eq!(stopped.code, "max_blocks");
        assert!(lines.iter().any(|line| line.position.block == 1 && line.position.attempt == 2));
    }

    #[test]
    fn a_hole_in_an_old_block_is_filled_after_the_block_that_is_open() {
        let plan = ExperimentPlan { blocks_min: 2, blocks_max: 2, ..plan(&["a", "b"], &["x"]) };
        let (mut lines, _) = all(step_input(&plan), &|_| {});
        // Files of both blocks were found to be broken.
        let hole = lines.remove(1);
        let last = lines.pop().unwrap();
        let slot_of =
            |line: &TrialSummary| (line.position.block, line.position.attempt, line.position.arm.clone());
        let refill = slot(step(&plan, &mut lines));
        assert_eq!((refill.block, refill.attempt, refill.arm_load.arm), slot_of(&last));
        lines.push(last);
        let refill = slot(step(&plan, &mut lines));
        assert_eq!((refill.block, refill.attempt, refill.arm_load.arm), slot_of(&hole));
        lines.push(TrialSummary {
            position: record::trial::TrialPosition { number: 7, ..hole.position },
            ..hole
        });
        assert_eq!(code(step(&plan, &mut lines)), "max_blocks");
    }

    #[test]
    fn pilots_come_first_and_probes_before_the_blocks() {
        let plan = ExperimentPlan { calls: Some("malloc".to_owned()), ..plan(&["a", "b"], &["x"]) };
        let mut lines = Vec::new();
        let unknown = StepInput { has_warm_up: false, ..step_input(&plan) };
        for number in 1..=3 {
            let slot = slot(next_step(unknown, &lines));
            assert_eq!((slot.kind, slot.block), (TrialKind::Pilot, 0));
            let mut line = trial_line(number, 0, slot.attempt, &slot.arm_load.arm, &slot.arm_load.load);
            line.position.kind = TrialKind::Pilot;
            lines.push(line);
        }
        assert_eq!(next_step(unknown, &lines), NextStep::WarmUp);
        // Failed probes get two attempts each, and do not stop the experiment.
        for number in 4..=7 {
            let slot = slot(next_step(step_input(&plan), &lines));
            assert_eq!(slot.kind, TrialKind::Probe);
            let mut line = trial_line(number, 0, slot.attempt, &slot.arm_load.arm, &slot.arm_load.load);
            line.position.kind = TrialKind::Probe;
            line.failed = Some("no".to_owned());
            lines.push(line);
        }
        assert_eq!(slot(next_step(step_input(&plan), &lines)).block, 1);
    }

    #[test]
    fn the_reruns_allowed_grow_with_the_blocks() {
        let one_load = ExperimentPlan { blocks_min: 10, reruns_max_fraction: 0.5, ..plan(&["a"], &["x"]) };
        assert_eq!([1, 10, 11, 30].map(|begun| reruns_max(&one_load, begun)), [5, 5, 6, 15]);
        let two_loads = ExperimentPlan { loads: plan(&["a"], &["x", "y"]).loads, ..one_load };
        assert_eq!(reruns_max(&two_loads, 11), 11);
    }
}
