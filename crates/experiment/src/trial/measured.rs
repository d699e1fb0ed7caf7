//! Record of a trial from what was measured: its metrics, covariates, steadiness and diagnosis.

use record::run::Run;
use record::trial::{ExperimentTrial, TrialDriver};
use record::validity::{Validity, ValidityLevel, ValidityReason};

use super::driver::DriverSpec;
use super::stage::LoadOutcome;
use super::tools::{TrialError, TrialTools};
use super::trial_view::TrialView;
use super::watch::LoadObservations;
use super::{covariates, external_run, metrics, steady};
use crate::scenario::setup::LabSetup;

/// Returns by how much the wall clock was set since both clocks had these values.
pub(super) fn clock_step_s(tools: &TrialTools<'_>, wall_ns: u64, began_ns: u64) -> f64 {
    let passed_ns = (tools.context.clock)().saturating_sub(began_ns);
    let wall_passed_ns = i128::from((tools.wall_ns)()) - i128::from(wall_ns);
    (wall_passed_ns - i128::from(passed_ns)).unsigned_abs() as f64 / 1e9
}

/// Adds the processes that ended during the load to an error.
pub(super) fn with_exited_processes(wrong: TrialError, run: Option<&Run>) -> TrialError {
    let TrialError::Program(reason) = wrong else { return wrong };
    let ended = run.into_iter().flat_map(|run| &run.observed).flat_map(|observed| &observed.ended);
    let all: Vec<String> = std::iter::once(reason).chain(ended.map(ToString::to_string)).collect();
    TrialError::Program(all.join("; "))
}

/// Adds the reason for an incomplete load to the record. The record of a stopped load has it
/// already.
pub(super) fn mark_incomplete(trial: &mut ExperimentTrial, wrong: &TrialError) {
    trial.failed = Some(wrong.to_string());
    let ended = matches!(wrong, TrialError::Program(_));
    let Some(run) = trial.run.as_mut().filter(|_| ended) else { return };
    let mut reasons = std::mem::take(&mut run.validity.reasons);
    reasons.push(ValidityReason {
        code: "subject_ended".to_owned(),
        verdict: ValidityLevel::Invalid,
        text: wrong.to_string(),
    });
    run.validity = Validity::from_reasons(reasons);
}

/// Fills the measurements into a trial. Returns the folded stacks.
pub(super) fn fill_trial(
    trial: &mut ExperimentTrial,
    driver: &DriverSpec,
    version_output: &str,
    driven: LoadOutcome,
    observations: LoadObservations,
) -> Option<String> {
    let mut notes: Vec<String> = driver.notes.iter().map(|&note| note.to_owned()).collect();
    notes.extend(driven.notes);
    trial.duration_s = driven.duration_s;
    trial.driver = TrialDriver {
        program: driver.program.to_owned(),
        version: match &driven.run {
            Some(run) => format!("{} ({})", run.weir.version, run.weir.commit),
            None => driver.version_text(version_output),
        },
        output: driven.output,
        notes,
    };
    trial.diagnosis = driven.run.as_ref().and_then(|run| run.diagnosis.clone());
    trial.run = driven.run;
    trial.observed = observations.observed.map(|mut observed| {
        trial.started_at.clone_into(&mut observed.started_at);
        observed
    });
    trial.calls = observations.calls;
    trial.not_observable = observations.unobservable;
    observations.folded
}

/// Derives metrics, covariates, steadiness and diagnosis from the measurements.
pub(super) fn derive_results(trial: &mut ExperimentTrial, setup: &LabSetup, clock_step_s: f64) {
    trial.metrics = metrics::read_metrics(trial);
    let view = TrialView::new(trial);
    let covariates = covariates::read_covariates(&view, &setup.scenario, clock_step_s);
    let steady = steady::steady_state(trial);
    trial.covariates = covariates;
    trial.steady = steady;
    if trial.run.is_none() {
        trial.diagnosis = external_run::diagnose_load(trial, setup.has_rate());
    }
}
