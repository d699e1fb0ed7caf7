//! Self-test of the analyser: known faults, injected in random order, and the first verdict
//! reported each time.
//!
//! The verdict comes with each load's record and is not computed here.

pub mod case_part;
pub mod cases;
pub mod foreign;
pub mod markdown;
pub mod matrix;
pub mod order;
pub mod reliability;

use std::path::PathBuf;

use record::run::Run;

use crate::scenario::setup::LabSetup;
use crate::trial::{TrialError, TrialTools};
use case_part::{CasePart, SPLIT_SEED};
use cases::{CaseSet, TestCase};
use matrix::CaseOutcome;

/// Verdict of a record without a diagnosis.
pub const NO_DIAGNOSIS: &str = "no_diagnosis";

/// Runs cases in the order of `order`, and passes each outcome with its record to `on_outcome`. Ends
/// early if it is stopped; then it returns the outcomes so far.
pub fn run(
    order: &[(&'static TestCase, u32)],
    tools: TrialTools<'_>,
    on_outcome: &mut dyn FnMut(&CaseOutcome, Option<&Run>),
) -> Vec<CaseOutcome> {
    let mut outcomes = Vec::new();
    for &(case, repetition) in order {
        let begin_ns = (tools.context.clock)();
        let result = run_case(case, tools);
        if result.as_ref().is_err_and(|error| *error == TrialError::Stopped) {
            break;
        }
        let length_s = ((tools.context.clock)() - begin_ns) as f64 / 1e9;
        let outcome = case_outcome(case, repetition, &result, length_s);
        on_outcome(&outcome, result.as_ref().ok());
        outcomes.push(outcome);
    }
    outcomes
}

fn run_case(case: &TestCase, tools: TrialTools<'_>) -> Result<Run, TrialError> {
    if (tools.should_stop)() {
        return Err(TrialError::Stopped);
    }
    let experiment = case.experiment().map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        TrialError::Scenario(texts.join("; "))
    })?;
    let done = crate::trial::run(&experiment, tools)?;
    match (done.leftovers.is_empty(), done.trial.run) {
        (true, Some(run)) => Ok(run),
        (true, None) => Err(TrialError::Load("no record was written".to_owned())),
        (false, _) => Err(TrialError::Scenario(format!("not removed: {}", done.leftovers.join("; ")))),
    }
}

fn case_outcome(
    case: &TestCase,
    repetition: u32,
    result: &Result<Run, TrialError>,
    length_s: f64,
) -> CaseOutcome {
    let diagnosis = result.as_ref().ok().and_then(|run| run.diagnosis.as_ref());
    let reported = match (result, diagnosis) {
        (Ok(_), Some(diagnosis)) => Some(diagnosis.verdict.clone()),
        (Ok(_), None) => Some(NO_DIAGNOSIS.to_owned()),
        (Err(_), _) => None,
    };
    CaseOutcome {
        case: case.name.to_owned(),
        induced: case.verdict.to_owned(),
        right: case.right_verdicts(),
        kind: case.kind.name().to_owned(),
        set: case.set().name().to_owned(),
        part: case.part(),
        repetition,
        reported,
        confidence: diagnosis.map(|diagnosis| diagnosis.confidence.to_string()),
        also: diagnosis
            .map(|diagnosis| {
                diagnosis.alternatives.iter().map(|alternative| alternative.verdict.clone()).collect()
            })
            .unwrap_or_default(),
        error: result.as_ref().err().map(ToString::to_string),
        length_s,
    }
}

impl TestCase {
    /// Returns the experiment of the case.
    ///
    /// # Errors
    /// Its file is wrong, which a test excludes.
    pub fn experiment(&self) -> Result<LabSetup, Vec<record::problem::InputProblem>> {
        LabSetup::parse(self.name, case_part::experiment_text(self.file))
    }

    pub fn set(&self) -> CaseSet {
        let is_foreign = CaseSet::Foreign.cases().iter().any(|case| case.name == self.name);
        if is_foreign { CaseSet::Foreign } else { CaseSet::Induced }
    }

    /// Returns its part of the proving ground; `None` for an induced case.
    pub fn part(&self) -> Option<CasePart> {
        (self.set() == CaseSet::Foreign).then(|| CasePart::for_case(SPLIT_SEED, self.name, self.is_examined))
    }

    pub fn record_name(name: &str, repetition: u32) -> PathBuf {
        PathBuf::from(format!("{name}-{repetition}.json"))
    }
}
