//! Runs of a self-test: the cases in an order, and the first verdict of each run. The verdict comes with each load's record
//! and is not computed here.

use experiment::trial::{TrialError, TrialTools};
use record::run::Run;

use crate::cases::TestCase;
use crate::outcome::{CaseOutcome, NO_DIAGNOSIS};

/// Runs cases in the order of `order`, and passes each outcome with its record to `on_outcome`. Ends
/// early if it is stopped; then it returns the outcomes so far.
pub fn run(
    order: &[(&TestCase, u32)],
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
    let done = experiment::trial::run(&experiment, tools)?;
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
        case: case.name.clone(),
        induced: case.verdict.clone(),
        right: case.right_verdicts(),
        kind: case.kind.name().to_owned(),
        set: case.set.name().to_owned(),
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
