//! CPU time of the subject by function in an arm and in the baseline, and its counted calls.

use std::collections::BTreeMap;

use record::experiment::Experiment;
use record::sorted::{CollectSorted, sort_by};
use record::trial::ExperimentTrial;

use super::stacks::{US_PER_RESPONSE, arm_stacks};
use super::typical::TypicalTrial;
use crate::TrialRecords;

/// Metric of the calls that the experiment counts, per response.
const CALLS_METRIC: &str = "calls_per_response";
/// Maximum number of unjudged trials that are searched for counted calls: pilots and probes are
/// few.
const PROBES_MAX: usize = 60;

/// Profile of an arm: fractions of the time with a function on top of the stack, and anywhere in
/// it.
#[derive(Debug, Default)]
pub(crate) struct ArmProfile {
    /// CPU time of a response, in µs.
    pub(crate) us: Option<f64>,
    pub(crate) functions: BTreeMap<String, (f64, f64)>,
}

impl ArmProfile {
    /// Reads the stacks of all counting trials, or else the table of the typical one.
    pub(crate) fn read(
        experiment: &Experiment,
        raw: &dyn TrialRecords,
        arm: &str,
        all: &[&TypicalTrial<'_>],
    ) -> Option<Self> {
        if let Some(stacks) = arm_stacks(experiment, raw, arm) {
            let fraction = |samples| stacks.weight(samples, false);
            let functions = stacks.functions().into_iter();
            let functions =
                functions.map(|(name, (own, total))| (name.to_owned(), (fraction(own), fraction(total))));
            return Some(Self { us: stacks.us_per_response, functions: functions.collect() });
        }
        let typical = all.iter().find(|trial| trial.arm() == arm)?;
        let observed = typical.observed().flat_map(|machine| &machine.functions);
        let own = observed.filter(|function| {
            let is_finite = function.self_fraction.is_finite() && function.total_fraction.is_finite();
            function.role == "subject" && is_finite
        });
        let functions = own.map(|function| {
            let suffix = if function.module == "[kernel]" { "_[k]" } else { "" };
            let name = format!("{}{suffix}", function.function);
            (name, (function.self_fraction, function.total_fraction))
        });
        let functions: BTreeMap<String, (f64, f64)> = functions.collect_map();
        let us = typical.line.metrics.get(US_PER_RESPONSE).copied();
        let us = us.filter(|us| us.is_finite() && *us > 0.0);
        (!functions.is_empty()).then_some(Self { us, functions })
    }
}

/// A function in both arms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionRow<'a> {
    pub(crate) name: &'a str,
    pub(crate) before: (f64, f64),
    pub(crate) after: (f64, f64),
    /// Time of a response with the function on top, in µs, in both arms.
    pub(crate) us: Option<(f64, f64)>,
}

impl FunctionRow<'_> {
    /// Returns the fractions of both arms: on top of the stack, then anywhere.
    pub(crate) fn fractions(&self) -> [f64; 4] {
        [self.before.0, self.after.0, self.before.1, self.after.1]
    }

    /// Returns the growth of the function's own time: in µs, or as a fraction.
    pub(crate) fn change(&self) -> f64 {
        let (was, is) = self.us.unwrap_or((self.before.0, self.after.0));
        is - was
    }
}

/// Returns every function of either arm, the largest change first.
pub(crate) fn function_rows<'a>(before: &'a ArmProfile, after: &'a ArmProfile) -> Vec<FunctionRow<'a>> {
    let us = before.us.zip(after.us);
    let names = before.functions.keys().chain(after.functions.keys());
    let names: std::collections::BTreeSet<&str> = names.map(String::as_str).collect_set();
    let fractions = |profile: &ArmProfile, name| profile.functions.get(name).copied().unwrap_or_default();
    let row = |name| {
        let (before, after) = (fractions(before, name), fractions(after, name));
        let us = us.map(|(was, is)| (was * before.0, is * after.0));
        FunctionRow { name, before, after, us }
    };
    let mut rows: Vec<FunctionRow<'_>> = names.into_iter().map(row).collect();
    sort_by(&mut rows, |a, b| {
        let by_change = b.change().abs().total_cmp(&a.change().abs());
        by_change.then_with(|| b.before.0.total_cmp(&a.before.0)).then_with(|| a.name.cmp(b.name))
    });
    rows
}

/// Calls per response of each trial that counted them, by call and arm.
pub(crate) type CountedCalls = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// Returns the counted calls of the typical trials and of the probes.
pub(crate) fn counted_calls(
    experiment: &Experiment,
    raw: &dyn TrialRecords,
    typical: &[&TypicalTrial<'_>],
) -> CountedCalls {
    let mut calls = CountedCalls::new();
    typical.iter().for_each(|trial| add_calls(&trial.trial, &mut calls));
    if experiment.plan.calls.is_some() {
        let probes = experiment.trials.iter().filter(|line| line.position.block == 0);
        let probes = probes.filter(|line| line.failed.is_none()).take(PROBES_MAX);
        probes.filter_map(|line| raw.trial(&line.file)).for_each(|trial| add_calls(&trial, &mut calls));
    }
    calls
}

/// Adds the subject's counted calls of a trial, for each response.
fn add_calls(trial: &ExperimentTrial, calls: &mut CountedCalls) {
    let mut add = |call: &str, per_response: f64| {
        let values_by_arm = calls.entry(call.to_owned()).or_default();
        values_by_arm.entry(trial.position.arm.clone()).or_default().push(per_response);
    };
    if let (Some(counted), Some(each)) = (&trial.calls, trial.metrics.get(CALLS_METRIC)) {
        add(&counted.count.call, *each);
    }
    let run_responses_per_s = trial.run.as_ref().map(|run| run.rates.responses_per_s);
    let Some(rate) = run_responses_per_s.or_else(|| trial.metrics.get("responses_per_s").copied()) else {
        return;
    };
    let machines = trial.run.iter().flat_map(|run| &run.observed).chain(&trial.observed);
    for call in machines.flat_map(|observed| &observed.calls).filter(|call| call.role == "subject") {
        let per_response = call.count as f64 / call.length_s / rate;
        if per_response.is_finite() {
            add(&call.call, per_response);
        }
    }
}
