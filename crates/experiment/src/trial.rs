//! Runs one trial of an experiment: makes its scenario, starts its programs, warms up, and has weir
//! or another program drive the load. It observes the machine meanwhile, and returns a record.
//!
//! Not for comparisons with other trials, nor for storage.

mod covariates;
pub mod driver;
mod external_run;
mod fleet;
pub mod metrics;
pub mod port;
mod program_output;
mod ready;
mod stage;
mod start;
pub mod steady;
mod trial_view;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;

use record::file::format_wall_clock;
use record::run::{Run, WeirVersion};
use record::trial::{ExperimentTrial, SCHEMA, TrialDriver};
use record::validity::{Validity, ValidityReason, ValidityVerdict};

use crate::scenario::plan::Node;
use crate::scenario::setup::{LabSetup, LoadTool};
use crate::scenario::testbed::TestbedContext;
use stage::{LoadOutcome, TrialStage};
use trial_view::TrialView;

pub use external_run::load_record;
pub use fleet::{FleetTrial, FleetTrials};
use watch::LoadObservations;

/// Parameters of a run besides its setup.
#[derive(Clone, Copy)]
pub struct TrialTools<'a> {
    /// Path of the running weir, which is a load generator too.
    pub weir: &'a Path,
    /// Version and commit of this weir, for the record.
    pub build: &'a WeirVersion,
    /// Context of scenarios; its clock measures all times.
    pub context: &'a TestbedContext,
    /// Returns the wall clock time in ns since 1970 ([`record::file::wall_clock_ns`]). It gives the
    /// start of a trial, and shows whether the clock was set meanwhile.
    pub wall_ns: fn() -> u64,
    /// Length of the load where an experiment uses `{duration}`, in nanoseconds.
    pub duration_ns: u64,
    /// True if the output of `weir load` is shown.
    pub shows_output: bool,
    /// Returns whether to stop early; called often.
    pub should_stop: &'a dyn Fn() -> bool,
    /// Fleet that runs the trials of setups with machines; `None`: they cannot be run.
    pub fleet: Option<&'a dyn FleetTrials>,
}

impl std::fmt::Debug for TrialTools<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrialTools").field("weir", &self.weir).finish_non_exhaustive()
    }
}

/// Reason for a missing record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialError {
    /// It was stopped from outside.
    Stopped,
    /// The scenario could not be made, because of this machine or a missing permission.
    Scenario(String),
    /// A program of the experiment failed.
    Program(String),
    /// The load did not run, or its driver's output cannot be parsed.
    Load(String),
}

impl std::fmt::Display for TrialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Scenario(why) => write!(f, "cannot set up the scenario: {why}"),
            Self::Program(why) => write!(f, "a program of the experiment: {why}"),
            Self::Load(why) => write!(f, "the load: {why}"),
        }
    }
}

impl std::error::Error for TrialError {}

/// Result of a trial.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// Record of the trial. Its position in an experiment is unknown here: `position` is empty, and so
    /// is `folded`, the name of the file for [`TrialResult::folded`].
    pub trial: ExperimentTrial,
    /// Exit code of the driver.
    pub exit_code: i32,
    /// Descriptions of things that could not be removed; they stay in the journal.
    pub leftovers: Vec<String>,
    /// Folded stacks of the subject, if they were requested and could be sampled.
    pub folded: Option<String>,
    /// Reason for an incomplete load; always `None` from [`run`].
    pub error: Option<TrialError>,
}

/// Runs one trial. Everything that it made has been removed on return.
///
/// # Errors
/// Reason for the missing record.
pub fn run(setup: &LabSetup, tools: TrialTools<'_>) -> Result<TrialResult, TrialError> {
    run_once(setup, tools, false)
}

/// Runs one trial and keeps partial results: a load of weir's that was stopped, or during which a
/// program ended, still leaves its measurements. [`TrialResult::error`] and the record have the reason.
///
/// # Errors
/// Reason for the missing record.
pub fn run_keeping_partial(setup: &LabSetup, tools: TrialTools<'_>) -> Result<TrialResult, TrialError> {
    run_once(setup, tools, true)
}

fn run_once(setup: &LabSetup, tools: TrialTools<'_>, keeps: bool) -> Result<TrialResult, TrialError> {
    if !setup.machines.is_empty() {
        return fleet::run(setup, tools);
    }
    let mut stage = TrialStage::create(setup, tools, keeps)?;
    stage.write_files(setup)?;
    stage.run_build_steps(setup)?;
    stage.start_extras(&setup.programs)?;
    if let Some(origin) = &setup.origin {
        stage.start(Node::Origin, origin)?;
    }
    stage.start(Node::Subject, &setup.subject)?;
    let driver = driver::driver_spec(setup.tool);
    let version_output = stage.driver_version_output(driver)?;
    let warm_up_ns = match setup.warm_up_ns {
        0 => 0,
        wanted_ns => stage.warm_up(driver, setup, &version_output, wanted_ns)?,
    };
    let clock = tools.context.clock;
    let (wall_ns, began_ns) = ((tools.wall_ns)(), clock());
    let (mut driven, observations) = stage.run_load(driver, setup, &version_output)?;
    let clock_step_s = clock_step_s(&tools, wall_ns, began_ns);
    let exit = driven.exit_code;
    let wrong = driven.error.take().map(|wrong| with_exited_processes(wrong, driven.run.as_ref()));
    let commands = std::mem::take(&mut stage.commands);
    let leftovers = stage.testbed.undo();
    let mut trial = ExperimentTrial {
        schema: SCHEMA.to_owned(),
        weir: tools.build.clone(),
        started_at: format_wall_clock(wall_ns),
        warm_up_s: warm_up_ns as f64 / 1e9,
        commands,
        ..ExperimentTrial::default()
    };
    let folded = fill_trial(&mut trial, driver, &version_output, driven, observations);
    derive_results(&mut trial, setup, clock_step_s);
    if let Some(wrong) = &wrong {
        mark_incomplete(&mut trial, wrong);
    }
    Ok(TrialResult { trial, exit_code: exit, leftovers, folded, error: wrong })
}

/// Returns by how much the wall clock was set since both clocks had these values.
fn clock_step_s(tools: &TrialTools<'_>, wall_ns: u64, began_ns: u64) -> f64 {
    let passed_ns = (tools.context.clock)().saturating_sub(began_ns);
    let wall_passed_ns = i128::from((tools.wall_ns)()) - i128::from(wall_ns);
    (wall_passed_ns - i128::from(passed_ns)).unsigned_abs() as f64 / 1e9
}

/// Adds the processes that ended during the load to an error.
fn with_exited_processes(wrong: TrialError, run: Option<&Run>) -> TrialError {
    let TrialError::Program(reason) = wrong else { return wrong };
    let ended = run.into_iter().flat_map(|run| &run.observed).flat_map(|observed| &observed.ended);
    let all: Vec<String> = std::iter::once(reason).chain(ended.map(ToString::to_string)).collect();
    TrialError::Program(all.join("; "))
}

/// Adds the reason for an incomplete load to the record. The record of a stopped load has it
/// already.
fn mark_incomplete(trial: &mut ExperimentTrial, wrong: &TrialError) {
    trial.failed = Some(wrong.to_string());
    let ended = matches!(wrong, TrialError::Program(_));
    let Some(run) = trial.run.as_mut().filter(|_| ended) else { return };
    let mut reasons = std::mem::take(&mut run.validity.reasons);
    reasons.push(ValidityReason {
        code: "subject_ended".to_owned(),
        verdict: ValidityVerdict::Invalid,
        text: wrong.to_string(),
    });
    run.validity = Validity::from_reasons(reasons);
}

/// Fills the measurements into a trial. Returns the folded stacks.
fn fill_trial(
    trial: &mut ExperimentTrial,
    driver: &driver::DriverSpec,
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
fn derive_results(trial: &mut ExperimentTrial, setup: &LabSetup, clock_step_s: f64) {
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

/// Returns whether a tool is weir itself: its load writes a record, and observes the machine
/// itself.
fn is_weir(tool: LoadTool) -> bool {
    tool == LoadTool::Weir
}

/// Formats words as a shell command line, with the variables that were added to the environment.
fn shell_command_line(env: &BTreeMap<String, String>, words: &[String]) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "-_./:=,@%+".contains(one);
    let quoted = |text: &str| match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    let env = env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    env.chain(words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
