//! The test of the analyser: illnesses that are known, induced in random order, and what the
//! analyser names first each time.
//!
//! Not for judging: the verdict comes with each load's record.

pub mod cases;
pub mod foreign;
pub mod markdown;
pub mod matrix;
pub mod order;
pub mod reliability;
pub mod split;

use std::path::PathBuf;

use record::run::Run;

use crate::scenario::setup::Setup;
use crate::trial::{Tools, TrialError};
use cases::{Case, Set};
use matrix::Outcome;
use split::{Part, SPLIT_SEED};

/// What a record without a diagnosis counts as.
pub const NO_DIAGNOSIS: &str = "no_diagnosis";

/// Runs cases in the order of `order`, and tells `told` each outcome with its record. Ends early
/// when it is stopped; what was found by then is returned.
pub fn run(
    order: &[(&'static Case, u32)],
    tools: Tools<'_>,
    told: &mut dyn FnMut(&Outcome, Option<&Run>),
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for &(case, repetition) in order {
        let begin_ns = (tools.context.clock)();
        let result = one(case, tools);
        if result.as_ref().is_err_and(|error| *error == TrialError::Stopped) {
            break;
        }
        let length_s = ((tools.context.clock)() - begin_ns) as f64 / 1e9;
        let outcome = outcome(case, repetition, &result, length_s);
        told(&outcome, result.as_ref().ok());
        outcomes.push(outcome);
    }
    outcomes
}

fn one(case: &Case, tools: Tools<'_>) -> Result<Run, TrialError> {
    if (tools.stop)() {
        return Err(TrialError::Stopped);
    }
    let experiment = case.experiment().map_err(|problems| {
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        TrialError::Scenario(told.join("; "))
    })?;
    let done = crate::trial::run(&experiment, tools)?;
    match (done.left.is_empty(), done.trial.run) {
        (true, Some(run)) => Ok(run),
        (true, None) => Err(TrialError::Load("it left no record".to_owned())),
        (false, _) => Err(TrialError::Scenario(format!("not removed: {}", done.left.join("; ")))),
    }
}

fn outcome(
    case: &Case,
    repetition: u32,
    result: &Result<Run, TrialError>,
    length_s: f64,
) -> Outcome {
    let diagnosis = result.as_ref().ok().and_then(|run| run.diagnosis.as_ref());
    let reported = match (result, diagnosis) {
        (Ok(_), Some(diagnosis)) => Some(diagnosis.verdict.clone()),
        (Ok(_), None) => Some(NO_DIAGNOSIS.to_owned()),
        (Err(_), _) => None,
    };
    Outcome {
        case: case.name.to_owned(),
        induced: case.verdict.to_owned(),
        right: case.right(),
        kind: case.kind.name().to_owned(),
        set: case.set().name().to_owned(),
        part: case.part(),
        repetition,
        reported,
        confidence: diagnosis.map(|diagnosis| diagnosis.confidence.to_string()),
        also: diagnosis
            .map(|diagnosis| diagnosis.also.iter().map(|one| one.verdict.clone()).collect())
            .unwrap_or_default(),
        error: result.as_ref().err().map(ToString::to_string),
        length_s,
    }
}

impl Case {
    /// The experiment of the case.
    ///
    /// # Errors
    /// Its file is wrong, which a test excludes.
    pub fn experiment(&self) -> Result<Setup, Vec<record::problem::Problem>> {
        Setup::parse(self.name, self.file)
    }

    /// Its set.
    #[must_use]
    pub fn set(&self) -> Set {
        let is_foreign = Set::Foreign.cases().iter().any(|case| case.name == self.name);
        if is_foreign { Set::Foreign } else { Set::Induced }
    }

    /// Its part of the proving ground; none of an induced case.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        (self.set() == Set::Foreign).then(|| Part::of(SPLIT_SEED, self.name))
    }

    /// The name of the file that a repetition's record is kept under.
    #[must_use]
    pub fn record_name(name: &str, repetition: u32) -> PathBuf {
        PathBuf::from(format!("{name}-{repetition}.json"))
    }
}
