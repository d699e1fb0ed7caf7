//! Warnings of the engine about the run of an experiment: unsuitable warm-ups, trials that were
//! discarded for errors, requested observations that were not possible. Their input is the plan and
//! the files on the disk.
//!
//! Not for warnings about comparisons: the judge has those.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Arm, ExperimentPlan, TrialSummary, Warning};
use record::observed::UnobservableMetric;
use record::sorted::CollectSorted;
use record::trial::TrialKind;

use super::experiment_dir::ExperimentDir;
use super::warm_up::{WARM_UP_S_MAX, WarmUp};

/// Name of the error covariate in [`super::discard::RULES`].
const ERROR_COVARIATE: &str = "error_fraction";
/// Maximum number of cells that a text names.
const NAMED_MAX: usize = 6;

/// Returns all warnings. `lines` are marked ([`super::blocks::mark_discarded`]).
pub fn warnings(directory: &ExperimentDir, plan: &ExperimentPlan, lines: &[TrialSummary]) -> Vec<Warning> {
    let mut all = directory.warm_up().map(|it| warm_up_warnings(plan, it)).unwrap_or_default();
    all.extend(error_warnings(plan, lines));
    all.extend(not_observed_warnings(directory, plan, lines));
    all.extend(settings_warning(directory));
    all
}

/// Returns the warning about settings that a resume changed: after a look at the results, they are a choice.
fn settings_warning(directory: &ExperimentDir) -> Option<Warning> {
    let changes = directory.settings_changes();
    let text = format!(
        "a resume changed the settings: {}. More blocks keep the error of the conclusions; other bounds of \
         disturbances, chosen after a look at the results, may not.",
        changes.join("; ")
    );
    (!changes.is_empty()).then(|| warning("changed_settings", None, text))
}

fn warning(code: &str, arm: Option<&str>, text: String) -> Warning {
    Warning { code: code.to_owned(), arm: arm.map(str::to_owned), text }
}

fn warm_up_warnings(plan: &ExperimentPlan, warm_up: &WarmUp) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !warm_up.unsteady.is_empty() {
        let text = format!("{} ({})", warm_up.text, warm_up.unsteady.join("; "));
        warnings.push(warning("warm_up", None, text));
    }
    let taken_s = warm_up.warm_up_s;
    for late in &warm_up.late {
        let from_s = late.from_s;
        // The maximum warm-up is as long as a trial, up to a bound.
        let longer = match from_s <= WARM_UP_S_MAX && from_s > plan.duration_s {
            true => format!(", or trials that are as long (--duration {from_s}s)"),
            false => String::new(),
        };
        let text = format!(
            "{} under {} was steady from second {from_s} only, and the warm-up that was found is cut to \
             {taken_s} s: up to {} s of warming up are in each of its trials. Give it a warm-up that is \
             long enough (load.warm-up = \"{from_s}s\"){longer}.",
            late.arm,
            late.load,
            ((from_s - taken_s) * 10.0).round() / 10.0
        );
        warnings.push(warning("warm_up", Some(&late.arm), text));
    }
    warnings
}

/// Returns the warnings about errors. The load itself measures this covariate: an arm with errors
/// in some of its trials is judged by the others.
fn error_warnings(plan: &ExperimentPlan, lines: &[TrialSummary]) -> Vec<Warning> {
    let bound = plan.discard.get(ERROR_COVARIATE).copied().unwrap_or(0.0) * 100.0;
    let mut warnings = Vec::new();
    for (arm, load) in cells(plan) {
        let judged =
            || trials_of_cell(lines, TrialKind::Judged, &arm.name, load).filter(|it| it.failed.is_none());
        let for_errors =
            |it: &&TrialSummary| it.discarded.as_ref().is_some_and(|it| it.code == ERROR_COVARIATE);
        let discarded = judged().filter(for_errors).count();
        if discarded == 0 {
            continue;
        }
        let text = format!(
            "{discarded} of {} trials of {} under {load} were discarded because more than {bound:.2} % of \
             the requests failed or had a status of 400 or above. Only trials without errors were compared, \
             which are not representative. Fix the errors; if they are part of the workload, set their bound \
             before the run (errors in [discard], or --discard errors=5%).",
            judged().count(),
            arm.name
        );
        warnings.push(warning("errors_discarded", Some(&arm.name), text));
    }
    warnings
}

/// Returns the warnings about requested calls and functions of cells that have no observation of
/// them.
fn not_observed_warnings(
    directory: &ExperimentDir,
    plan: &ExperimentPlan,
    lines: &[TrialSummary],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let own = |(arm, _): &(&Arm, &str)| arm.repeats.is_none();
    if let Some(calls) = &plan.calls {
        let missing_calls = |(arm, load): (&Arm, &str)| {
            let tries: Vec<&TrialSummary> =
                trials_of_cell(lines, TrialKind::Probe, &arm.name, load).collect();
            let is_counted = tries.iter().any(|line| directory.has_calls(line.position.number));
            let last = tries.last().filter(|_| !is_counted)?;
            // System calls are observed in addition to the requested calls.
            let is_of_it = |figure: &str| {
                figure.starts_with("calls") && (calls == "syscalls" || !figure.ends_with("system calls"))
            };
            Some(missing_reason(last, directory.not_observable(last.position.number), is_of_it))
        };
        let description = format!("calls ({calls}) were requested and are not counted");
        warnings.extend(warnings_by_reason(&description, cells(plan).filter(own), missing_calls));
    }
    if plan.profile {
        let profiled = directory.profiled_trials();
        let missing_profile = |(arm, load): (&Arm, &str)| {
            let ran: Vec<&TrialSummary> = trials_of_cell(lines, TrialKind::Judged, &arm.name, load)
                .filter(|line| line.failed.is_none())
                .collect();
            let is_profiled = ran.iter().any(|line| profiled.contains(&line.position.number));
            let last = ran.last().filter(|_| !is_profiled)?;
            let is_of_it = |figure: &str| figure.contains("functions");
            Some(missing_reason(last, directory.not_observable(last.position.number), is_of_it))
        };
        warnings.extend(warnings_by_reason(
            "a profile was requested and is missing",
            cells(plan),
            missing_profile,
        ));
    }
    warnings
}

/// Returns the reason why a trial has no observation of something.
fn missing_reason(
    line: &TrialSummary,
    missing: &[UnobservableMetric],
    is_of_it: impl Fn(&str) -> bool,
) -> String {
    let recorded_reason =
        missing.iter().find(|metric| is_of_it(&metric.figure)).map(|metric| metric.reason.clone());
    line.failed.clone().or(recorded_reason).unwrap_or_else(|| "the trial reports no reason".to_owned())
}

/// Returns a warning for each reason, with the affected cells.
fn warnings_by_reason<'a>(
    description: &str,
    cells: impl Iterator<Item = (&'a Arm, &'a str)>,
    reason_of: impl Fn((&'a Arm, &'a str)) -> Option<String>,
) -> Vec<Warning> {
    let mut reasons: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (arm, load) in cells {
        if let Some(reason) = reason_of((arm, load)) {
            reasons.entry(reason).or_default().push((&arm.name, load));
        }
    }
    let reason_warning = |(reason, cells): (String, Vec<(&str, &str)>)| {
        let arms: BTreeSet<&str> = cells.iter().map(|(arm, _)| *arm).collect_set();
        let named: Vec<String> =
            cells.iter().take(NAMED_MAX).map(|(arm, load)| format!("{arm} under {load}")).collect();
        let more = match cells.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{description} of {}{more}: {reason}", named.join(", "));
        let arm = arms.first().copied().filter(|_| arms.len() == 1);
        warning("not_observable", arm, text)
    };
    reasons.into_iter().map(reason_warning).collect()
}

fn cells(plan: &ExperimentPlan) -> impl Iterator<Item = (&Arm, &str)> {
    let cells_of_arm = |arm| plan.loads.iter().map(move |load| (arm, load.name.as_str()));
    plan.arms.iter().flat_map(cells_of_arm)
}

fn trials_of_cell<'a>(
    lines: &'a [TrialSummary],
    kind: TrialKind,
    arm: &str,
    load: &str,
) -> impl Iterator<Item = &'a TrialSummary> {
    lines.iter().filter(move |line| {
        line.position.kind == kind && line.position.arm == arm && line.position.load == load
    })
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{plan, trial_line};
    use super::super::warm_up::LateCell;
    use super::*;
    use record::trial::DiscardReason;

    #[test]
    fn a_cut_warm_up_is_reported_with_a_remedy() {
        let late = |from_s| LateCell { arm: "b".to_owned(), load: "x".to_owned(), from_s };
        let warnings_for = |from_s| {
            let warm_up = WarmUp { warm_up_s: 8.0, late: vec![late(from_s)], ..WarmUp::default() };
            warm_up_warnings(&plan(&["a", "b"], &["x"]), &warm_up)
        };
        let warnings = warnings_for(14.0);
        assert_eq!((warnings.len(), warnings[0].arm.as_deref()), (1, Some("b")));
        for part in ["b under x", "second 14 ", "8 s", "up to 6 s", "\"14s\"", "--duration 14s"] {
            assert!(warnings[0].text.contains(part), "{part}: {warnings:?}");
        }
        // Longer trials would not help: the warm-up has a maximum of 30 s.
        assert!(!warnings_for(40.0)[0].text.contains("--duration"), "{:?}", warnings_for(40.0));
        assert!(warm_up_warnings(&plan(&["a"], &["x"]), &WarmUp::default()).is_empty());
    }

    #[test]
    fn trials_discarded_for_errors_are_reported_for_their_arm() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines =
            vec![trial_line(1, 1, 1, "a", "x"), trial_line(2, 1, 1, "b", "x"), trial_line(3, 1, 2, "b", "x")];
        assert!(error_warnings(&plan, &lines).is_empty());
        let reason = DiscardReason { code: ERROR_COVARIATE.to_owned(), text: String::new() };
        lines[1].discarded = Some(reason);
        let warnings = error_warnings(&plan, &lines);
        assert_eq!((warnings.len(), warnings[0].arm.as_deref()), (1, Some("b")));
        let text = &warnings[0].text;
        assert!(text.contains("1 of 2 ") && text.contains("b under x"), "{warnings:?}");
        assert!(super::super::discard::RULES.iter().any(|rule| rule.name == ERROR_COVARIATE));
    }
}
