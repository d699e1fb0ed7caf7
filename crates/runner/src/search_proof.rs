//! Test of the limit that a capacity search found: a closed loop with all connections brings the subject to full
//! throughput, and the counter-test of its diagnosis changes one thing of that load.
//!
//! Only the load is changed; the CPU time of the subject is limited only if the user allowed it.

use std::sync::Arc;

use diagnose::counter_test::PAIRS_PER_TEST;
use diagnose::verdicts::{UNKNOWN, find_rule};
use load::capacity_search::{
    SearchOptions, SearchQuantity, TrialPurpose, TrialSpec, closed_loop_plan, judge, trial_record,
};
use record::capacity_search::{CapacitySearch, Estimate, LevelOutcome, SearchEnd, SearchTrial, TestedChange};
use record::run::{Diagnosis, Run};
use record::units::{SECOND_NS, format_plural, format_rate};
use rt::drain::{DrainStage, DrainWatch};

use crate::confirm::{ConfirmContext, TestedPairs, test_diagnosis};
use crate::failure::Failure;
use crate::load_run::PreparedLoad;
use crate::preflight;
use crate::run_record::{CommandIdentity, LoadJob};
use crate::subjects::find_subjects;

/// Length of the load at full throughput. A shorter one counts no calls.
const FULL_LOAD_NS: u64 = 4 * SECOND_NS;
/// Length of each load of the test.
pub const TEST_LOAD_NS: u64 = 2 * SECOND_NS;
/// Largest number of changes of a test.
const CHANGES_MAX: u64 = 2;

/// Throughput at full load, as a fraction of the expected one, below which something disturbed it.
const FULL_OVER_EXPECTED_MIN: f64 = 0.95;
/// Minimum length of a trial whose throughput is expected again.
const EXPECTED_TRIAL_S_MIN: f64 = 0.9;
/// Purpose of the load in the record.
const FULL: &str = "full";

/// Returns the usual and the maximum duration of the test, in ns.
pub const fn duration_ns() -> (u64, u64) {
    let change_ns = PAIRS_PER_TEST as u64 * 2 * TEST_LOAD_NS;
    (FULL_LOAD_NS + change_ns, FULL_LOAD_NS + CHANGES_MAX * change_ns)
}

/// Returns the reason why the limit of a search cannot be tested, before it starts.
pub fn reason_without_test(options: &SearchOptions, is_quick: bool) -> Option<&'static str> {
    if options.quantity != SearchQuantity::Rate && options.quantity != SearchQuantity::Bandwidth {
        return Some("the test needs a search for a rate or a bandwidth");
    }
    if options.has_max_level {
        return Some("--to limits the rate, and the test is a closed loop, which has no rate");
    }
    if options.search_only {
        return Some("--search-only makes no test");
    }
    is_quick.then_some("--quick makes no test")
}

/// Tests the limit of a search, and puts the load at full throughput and the outcome into its record. Returns the
/// effect of each change.
pub fn prove(
    search: &mut CapacitySearch,
    options: &SearchOptions,
    identity: &CommandIdentity,
    context: ConfirmContext,
    stop: &DrainWatch,
) -> Vec<TestedChange> {
    let tested = match reason_of_result(search) {
        Some(reason) => Err(reason.to_owned()),
        None => {
            measure(search, options, identity, context, stop).map_err(|failure| failure.lines().join("; "))
        }
    };
    match tested {
        Ok(tests) => tests,
        Err(reason) => {
            set_untested(search, &reason);
            Vec::new()
        }
    }
}

/// Sets the reason why the limit of a search was not tested.
pub fn set_untested(search: &mut CapacitySearch, reason: &str) {
    let diagnosis = match &mut search.stopped_by {
        Some(diagnosis) => Some(diagnosis),
        None => search.at_edge.as_mut().and_then(|run| run.diagnosis.as_mut()),
    };
    let untested = diagnosis.filter(|diagnosis| diagnosis.confirmation.is_none());
    untested.into_iter().for_each(|diagnosis| diagnosis.untested_reason = Some(reason.to_owned()));
    if let (Some(run), Some(diagnosis)) = (&mut search.stopped_run, &search.stopped_by) {
        run.diagnosis = Some(diagnosis.clone());
    }
}

/// Returns the reason why the result of a search has nothing to test.
fn reason_of_result(search: &CapacitySearch) -> Option<&'static str> {
    match search.conclusion.end {
        SearchEnd::GeneratorLimit => {
            Some("the generator was the limit, so more load cannot be sent from here")
        }
        SearchEnd::BelowLowest if search.at_edge.as_ref().is_some_and(|run| run.totals.good() == 0) => {
            Some("no request got a good response, so there is no limit to test")
        }
        SearchEnd::Stopped if search.trials.iter().all(|trial| trial.outcome != LevelOutcome::Held) => {
            Some("the search was stopped before a level held")
        }
        _ => None,
    }
}

/// Drives the subject at full throughput, and makes the counter-test.
fn measure(
    search: &mut CapacitySearch,
    options: &SearchOptions,
    identity: &CommandIdentity,
    context: ConfirmContext,
    stop: &DrainWatch,
) -> Result<Vec<TestedChange>, Failure> {
    if stop.stage() != DrainStage::Running {
        return Err(Failure::cannot_run("stopped by the user"));
    }
    let base = &options.base;
    let plan = closed_loop_plan(base, base.connections, FULL_LOAD_NS);
    let scarce_ports = preflight::check(&plan)?;
    let subjects = find_subjects(&plan);
    let job = LoadJob { identity, plan, subjects, scarce_ports, calibration: None, control: Arc::default() };
    let prepared = PreparedLoad::with_baseline(&job, search.baseline.clone());
    let mut run = prepared.run(Vec::new(), None, stop).map_err(Failure::cannot_run)?.record().run;
    add_trial(search, &run);
    let held = search.conclusion.level.or(search.conclusion.lower);
    let expected = expected_full_per_s(held_goodput_per_s(held, &search.trials), &search.trials);
    if let Some(reason) = reason_below_expected(expected, run.goodput_per_s()) {
        return Err(Failure::cannot_run(reason));
    }
    search.ceiling_per_s = range([run.goodput_per_s()]);
    let full = run.diagnosis.clone().unwrap_or_default();
    if let Some(reason) = reason_to_keep(search.stopped_by.as_ref(), &full) {
        return Err(Failure::cannot_run(reason));
    }
    let outcome = test_diagnosis(&job, &mut run, context, stop);
    let tested = outcome.unwrap_or_default();
    let bases = tested.iter().flat_map(|test| test.pairs.iter().map(|pair| pair.0));
    // The value is that of the longest load, which the record has whole; the range is that of all.
    search.ceiling_per_s = range(std::iter::once(run.goodput_per_s()).chain(bases))
        .map(|all| Estimate { value: run.goodput_per_s(), ..all });
    search.notes.push(format!(
        "the limit is that of {} at full throughput (closed loop)",
        format_plural(base.connections, "connection")
    ));
    search.stopped_by.clone_from(&run.diagnosis);
    search.stopped_run = Some(Box::new(run));
    Ok(tested.iter().filter_map(tested_change).collect())
}

/// Returns the reason why the diagnosis of the search is kept instead of that at full throughput.
fn reason_to_keep(stopped: Option<&Diagnosis>, full: &Diagnosis) -> Option<String> {
    let is_limit = |diagnosis: &Diagnosis| find_rule(&diagnosis.verdict).is_some();
    let stopped = stopped.filter(|diagnosis| is_limit(diagnosis) && diagnosis.verdict != full.verdict)?;
    Some(match full.verdict.as_str() {
        UNKNOWN => {
            format!("at full throughput nothing proves `{}`, so no change would test it", stopped.verdict)
        }
        other => format!("at full throughput the limit is another one (`{other}`)"),
    })
}

/// Returns the good responses per second at the level that held: with lost requests allowed, fewer than were offered.
fn held_goodput_per_s(held_per_s: Option<f64>, trials: &[SearchTrial]) -> Option<f64> {
    let level = held_per_s?;
    let at_level = |trial: &&SearchTrial| trial.level == level && trial.outcome == LevelOutcome::Held;
    let rates: Vec<f64> = trials.iter().filter(at_level).map(SearchTrial::goodput_per_s).collect();
    stats::median(&rates)
}

/// Returns the throughput that the load at full throughput is to repeat: that of the held level, or less if the trials
/// with more load carried less, as many servers do that are overloaded.
fn expected_full_per_s(held_per_s: Option<f64>, trials: &[SearchTrial]) -> Option<f64> {
    let overloaded = |trial: &&SearchTrial| {
        trial.outcome == LevelOutcome::Missed && held_per_s.is_some_and(|held| trial.level > held)
    };
    let rates = |trials: &mut dyn Iterator<Item = &SearchTrial>| {
        let long = trials.filter(|trial| trial.length_s >= EXPECTED_TRIAL_S_MIN);
        stats::median(&long.map(SearchTrial::goodput_per_s).collect::<Vec<_>>())
    };
    let scaling = trials.iter().filter(|trial| trial.purpose == "scaling");
    let most = rates(&mut scaling.max_by_key(|trial| trial.connections).into_iter());
    [held_per_s, rates(&mut trials.iter().filter(overloaded)), most].into_iter().flatten().reduce(f64::min)
}

/// Returns the reason why the load at full throughput is no evidence: it carried less than the trials before.
fn reason_below_expected(expected_per_s: Option<f64>, full_per_s: f64) -> Option<String> {
    let expected_per_s = expected_per_s.filter(|expected| full_per_s < FULL_OVER_EXPECTED_MIN * expected)?;
    Some(format!(
        "at full throughput it carried {}, less than the {} that it carried before: repeat the search on an idle \
         machine",
        format_rate(full_per_s),
        format_rate(expected_per_s)
    ))
}

fn add_trial(search: &mut CapacitySearch, run: &Run) {
    let connections = run.totals.connections.requested;
    let spec =
        TrialSpec { level: connections as f64, length_ns: FULL_LOAD_NS, purpose: TrialPurpose::Confirm };
    let judgement = judge(run, SearchQuantity::Rate, run.latency.last_byte.response.p50_ns);
    let mut trial = trial_record(&spec, FULL, run, judgement);
    trial.number = search.trials.len() as u32 + 1;
    trial.begin_s = search.duration_s;
    search.trials.push(trial);
}

fn tested_change(test: &TestedPairs) -> Option<TestedChange> {
    let factors = test.pairs.iter().filter(|(base, _)| *base > 0.0).map(|(base, changed)| changed / base);
    Some(TestedChange { change: test.perturbation.description().to_owned(), factor: range(factors)? })
}

fn range(figures: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let figures: Vec<f64> =
        figures.into_iter().filter(|figure| figure.is_finite() && *figure > 0.0).collect();
    let value = stats::median(&figures)?;
    Some(Estimate {
        value,
        low: figures.iter().copied().fold(f64::INFINITY, f64::min),
        high: figures.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(verdict: &str) -> Diagnosis {
        Diagnosis { verdict: verdict.to_owned(), ..Diagnosis::default() }
    }

    #[test]
    fn the_load_at_full_throughput_replaces_a_diagnosis_that_names_no_other_limit() {
        let kept = |stopped: Option<&str>, full: &str| {
            reason_to_keep(stopped.map(diagnosis).as_ref(), &diagnosis(full))
        };
        assert_eq!(kept(None, "subject_limited"), None);
        assert_eq!(kept(Some("unknown"), "subject_limited"), None);
        assert_eq!(kept(Some("subject_limited"), "subject_limited"), None);
        assert_eq!(kept(Some("unknown"), "unknown"), None);
        assert!(kept(Some("subject_limited"), "client_bound").unwrap().contains("client_bound"));
        assert!(kept(Some("latency_bound"), "unknown").unwrap().contains("latency_bound"));
    }

    #[test]
    fn a_ceiling_is_not_below_a_level_that_held() {
        assert_eq!(reason_below_expected(Some(488.0), 480.0), None);
        assert_eq!(reason_below_expected(None, 1.0), None);
        let reason = reason_below_expected(Some(488.0), 456.0).unwrap();
        assert!(reason.contains("456/s") && reason.contains("488/s"), "{reason}");
    }

    #[test]
    fn a_server_that_loses_some_throughput_in_overload_is_not_disturbed() {
        let trial = |purpose: &str, level: f64, connections, outcome, goodput_per_s: f64| SearchTrial {
            purpose: purpose.to_owned(),
            length_s: 1.0,
            level,
            connections,
            outcome,
            goodput_per_s: Some(goodput_per_s),
            ..SearchTrial::default()
        };
        // A pool of 7 workers that held 621/s in three verifications.
        let trials = [
            trial("grow", 800.0, 64, LevelOutcome::Missed, 606.0),
            trial("narrow", 700.0, 64, LevelOutcome::Missed, 602.0),
            trial("verify", 625.0, 64, LevelOutcome::Held, 621.0),
            trial("scaling", 1.0, 1, LevelOutcome::Held, 85.0),
            trial("scaling", 64.0, 64, LevelOutcome::Held, 588.0),
        ];
        let reason = |trials: &[SearchTrial], full_per_s| {
            reason_below_expected(expected_full_per_s(Some(621.0), trials), full_per_s)
        };
        assert_eq!(reason(&trials, 591.0), None);
        assert!(reason(&trials, 550.0).is_some(), "7 % less than the same load before");
        assert!(reason(&trials[2..3], 580.0).is_some(), "no trial had more load");
        // A level below the held one was missed for another reason.
        let below = [trials[2].clone(), trial("narrow", 500.0, 64, LevelOutcome::Missed, 300.0)];
        assert!(reason(&below, 500.0).is_some());
    }

    #[test]
    fn a_level_that_held_counts_with_its_good_responses() {
        let trial = |level: f64, outcome, goodput_per_s: f64| SearchTrial {
            level,
            outcome,
            goodput_per_s: Some(goodput_per_s),
            ..SearchTrial::default()
        };
        let trials = [
            trial(378.0, LevelOutcome::Held, 362.0),
            trial(378.0, LevelOutcome::Held, 358.0),
            trial(378.0, LevelOutcome::Missed, 300.0),
            trial(360.0, LevelOutcome::Held, 359.0),
        ];
        assert_eq!(held_goodput_per_s(None, &trials), None);
        assert_eq!(held_goodput_per_s(Some(360.0), &trials), Some(359.0));
        assert_eq!(held_goodput_per_s(Some(378.0), &trials), Some(360.0));
    }

    #[test]
    fn a_search_takes_two_minutes_with_its_test() {
        assert!(duration_ns().1 <= 30 * SECOND_NS);
    }

    #[test]
    fn figures_have_a_median_and_a_range() {
        let found = range([3.0, 1.0, 2.0, 0.0]).unwrap();
        assert_eq!((found.value, found.low, found.high), (2.0, 1.0, 3.0));
        assert_eq!(range([]), None);
    }
}
