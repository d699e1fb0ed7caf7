//! What the engine itself has to say of how an experiment ran: warm-ups that did not fit, errors that
//! trials were discarded for, what was asked for and could not be seen. From the plan and what is on the disk
//! only.
//!
//! Not for what has to be known of comparisons: that is the judge's.

use std::collections::{BTreeMap, BTreeSet};

use record::experiment::{Arm, Plan, TrialLine, Warning};
use record::observed::Missing;
use record::trial::Kind;

use super::folder::Folder;
use super::warm_up::{WARM_UP_S_MAX, WarmUp};

/// The covariate of errors, as [`super::discard::RULES`] has it.
const ERRORS: &str = "error_share";
/// How many cells a text names.
const NAMED_MAX: usize = 6;

/// All of them, of trials that are marked ([`super::blocks::mark`]).
#[must_use]
pub fn warnings(folder: &Folder, plan: &Plan, lines: &[TrialLine]) -> Vec<Warning> {
    let mut all = folder.warm_up().map(|it| of_warm_up(plan, it)).unwrap_or_default();
    all.extend(of_errors(plan, lines));
    all.extend(not_seen(folder, plan, lines));
    all
}

fn warning(code: &str, arm: Option<&str>, text: String) -> Warning {
    Warning { code: code.to_owned(), arm: arm.map(str::to_owned), text }
}

fn of_warm_up(plan: &Plan, warm_up: &WarmUp) -> Vec<Warning> {
    let mut found = Vec::new();
    if !warm_up.unsteady.is_empty() {
        let text = format!("{} ({})", warm_up.text, warm_up.unsteady.join("; "));
        found.push(warning("warm_up", None, text));
    }
    let taken_s = warm_up.warm_up_s;
    for late in &warm_up.late {
        let from_s = late.from_s;
        // The longest warm-up is as long as a trial, up to a bound.
        let longer = match from_s <= WARM_UP_S_MAX && from_s > plan.duration_s {
            true => format!(", or trials that are as long (--duration {from_s}s)"),
            false => String::new(),
        };
        let text = format!(
            "{} under {} was steady from second {from_s} only, and the warm-up that was found is cut to \
             {taken_s} s: up to {:.0} s of warming up are in each of its trials. Give it a warm-up that is \
             long enough (load.warm-up = \"{from_s}s\"){longer}.",
            late.arm,
            late.load,
            from_s - taken_s
        );
        found.push(warning("warm_up", Some(&late.arm), text));
    }
    found
}

/// Errors are the one covariate that the load itself measures: an arm that has them in some of its trials
/// is judged by the others.
fn of_errors(plan: &Plan, lines: &[TrialLine]) -> Vec<Warning> {
    let bound = plan.discard.get(ERRORS).copied().unwrap_or(0.0) * 100.0;
    let mut found = Vec::new();
    for (arm, load) in cells(plan) {
        let judged =
            || of_cell(lines, Kind::Judged, &arm.name, load).filter(|it| it.failed.is_none());
        let for_errors =
            |it: &&TrialLine| it.discarded.as_ref().is_some_and(|it| it.code == ERRORS);
        let discarded = judged().filter(for_errors).count();
        if discarded == 0 {
            continue;
        }
        let text = format!(
            "{discarded} of {} trials of {} under {load} were discarded because more than {bound:.2} % of \
             the requests failed or were answered with 400 and above: a trial with errors says nothing of \
             the work, and what counts are the trials without, which are not all that it does. See to the \
             errors; where they belong to the work, set their bound before the run (errors in [discard], or \
             --discard errors=5%).",
            judged().count(),
            arm.name
        );
        found.push(warning("errors_discarded", Some(&arm.name), text));
    }
    found
}

/// Calls and functions that the file asks for, of cells of which nothing was seen.
fn not_seen(folder: &Folder, plan: &Plan, lines: &[TrialLine]) -> Vec<Warning> {
    let mut found = Vec::new();
    let own = |(arm, _): &(&Arm, &str)| arm.again.is_none();
    if let Some(calls) = &plan.calls {
        let of = |(arm, load): (&Arm, &str)| {
            let tries: Vec<&TrialLine> = of_cell(lines, Kind::Probe, &arm.name, load).collect();
            let counted = tries.iter().any(|line| folder.has_calls(line.place.number));
            let last = tries.last().filter(|_| !counted)?;
            // System calls are looked at beside what is asked for.
            let is_of_it = |what: &str| {
                what.starts_with("calls")
                    && (calls == "syscalls" || !what.ends_with("system calls"))
            };
            Some(why(last, folder.not_observable(last.place.number), is_of_it))
        };
        let what = format!("calls ({calls}) were asked for and are not counted");
        found.extend(told(&what, cells(plan).filter(own), of));
    }
    if plan.profile {
        let profiled = folder.profiled();
        let of = |(arm, load): (&Arm, &str)| {
            let ran: Vec<&TrialLine> = of_cell(lines, Kind::Judged, &arm.name, load)
                .filter(|line| line.failed.is_none())
                .collect();
            let seen = ran.iter().any(|line| profiled.contains(&line.place.number));
            let last = ran.last().filter(|_| !seen)?;
            let is_of_it = |what: &str| what.starts_with("functions");
            Some(why(last, folder.not_observable(last.place.number), is_of_it))
        };
        found.extend(told("a profile was asked for and there is none", cells(plan), of));
    }
    found
}

/// Why a trial gave nothing of something.
fn why(line: &TrialLine, missing: &[Missing], is_of_it: impl Fn(&str) -> bool) -> String {
    let found = missing.iter().find(|one| is_of_it(&one.what)).map(|one| one.why.clone());
    line.failed.clone().or(found).unwrap_or_else(|| "the trial does not say why".to_owned())
}

/// A warning for each reason, with the cells that it holds for.
fn told<'a>(
    what: &str,
    cells: impl Iterator<Item = (&'a Arm, &'a str)>,
    why: impl Fn((&'a Arm, &'a str)) -> Option<String>,
) -> Vec<Warning> {
    let mut reasons: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (arm, load) in cells {
        if let Some(why) = why((arm, load)) {
            reasons.entry(why).or_default().push((&arm.name, load));
        }
    }
    let of_reason = |(why, cells): (String, Vec<(&str, &str)>)| {
        let arms: BTreeSet<&str> = cells.iter().map(|(arm, _)| *arm).collect();
        let named: Vec<String> =
            cells.iter().take(NAMED_MAX).map(|(arm, load)| format!("{arm} under {load}")).collect();
        let more = match cells.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{what} of {}{more}: {why}", named.join(", "));
        let arm = arms.first().copied().filter(|_| arms.len() == 1);
        warning("not_observable", arm, text)
    };
    reasons.into_iter().map(of_reason).collect()
}

fn cells(plan: &Plan) -> impl Iterator<Item = (&Arm, &str)> {
    let of_arm = |arm| plan.loads.iter().map(move |load| (arm, load.name.as_str()));
    plan.arms.iter().flat_map(of_arm)
}

fn of_cell<'a>(
    lines: &'a [TrialLine],
    kind: Kind,
    arm: &str,
    load: &str,
) -> impl Iterator<Item = &'a TrialLine> {
    lines.iter().filter(move |line| {
        line.place.kind == kind && line.place.arm == arm && line.place.load == load
    })
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{line, plan};
    use super::super::warm_up::Late;
    use super::*;
    use record::trial::Discarded;

    #[test]
    fn a_warm_up_that_was_cut_is_said_with_what_to_set() {
        let late = |from_s| Late { arm: "b".to_owned(), load: "x".to_owned(), from_s };
        let of = |from_s| {
            let warm_up = WarmUp { warm_up_s: 8.0, late: vec![late(from_s)], ..WarmUp::default() };
            of_warm_up(&plan(&["a", "b"], &["x"]), &warm_up)
        };
        let found = of(14.0);
        assert_eq!((found.len(), found[0].arm.as_deref()), (1, Some("b")));
        for part in ["b under x", "second 14 ", "8 s", "up to 6 s", "\"14s\"", "--duration 14s"] {
            assert!(found[0].text.contains(part), "{part}: {found:?}");
        }
        // Longer trials would not do: the warm-up that is found ends at 30 s.
        assert!(!of(40.0)[0].text.contains("--duration"), "{:?}", of(40.0));
        assert!(of_warm_up(&plan(&["a"], &["x"]), &WarmUp::default()).is_empty());
    }

    #[test]
    fn trials_that_were_discarded_for_errors_are_said_of_their_arm() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut lines =
            vec![line(1, 1, 1, "a", "x"), line(2, 1, 1, "b", "x"), line(3, 1, 2, "b", "x")];
        assert!(of_errors(&plan, &lines).is_empty());
        let why = Discarded { code: ERRORS.to_owned(), text: String::new() };
        lines[1].discarded = Some(why);
        let found = of_errors(&plan, &lines);
        assert_eq!((found.len(), found[0].arm.as_deref()), (1, Some("b")));
        assert!(
            found[0].text.starts_with("1 of 2 trials of b under x were discarded"),
            "{found:?}"
        );
        assert!(super::super::discard::RULES.iter().any(|rule| rule.name == ERRORS));
    }
}
