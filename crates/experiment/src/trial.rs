//! Runs one trial of an experiment: makes its scenario, starts its programs, warms up, and has weir
//! or another program drive the load. It observes the machine meanwhile, and returns a record.
//!
//! Not for comparisons with other trials, nor for storage.

mod covariates;
pub mod driver;
mod external_run;
mod fleet;
mod measured;
pub mod metrics;
mod program_output;
mod ready;
mod stage;
mod start;
pub mod steady;
mod tools;
mod trial_view;
mod watch;

use record::file::format_wall_clock;
use record::trial::{ExperimentTrial, SCHEMA};

use crate::scenario::plan::Node;
use crate::scenario::setup::LabSetup;
use measured::{clock_step_s, derive_results, fill_trial, mark_incomplete, with_exited_processes};
use stage::TrialStage;

pub use external_run::load_record;
pub use tools::{FleetTrial, FleetTrials, TrialError, TrialResult, TrialTools};

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

#[cfg(test)]
mod tests;
