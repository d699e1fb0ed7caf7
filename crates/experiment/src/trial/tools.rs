//! Inputs of a trial from its caller, and its result.

use std::path::Path;

use record::run::{Run, WeirVersion};
use record::trial::ExperimentTrial;

use crate::scenario::machines::MachineSetup;
use crate::scenario::testbed::TestbedContext;

/// Parameters of a run besides its setup.
#[derive(Clone, Copy)]
pub struct TrialTools<'a> {
    /// Path of the running weir, which is a load generator too.
    pub weir: &'a Path,
    /// Command that starts `weir load`: its words come before the path of weir. Empty: weir is started itself.
    pub load_prefix: &'a [String],
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
    Stopped,
    /// The scenario could not be made, because of this machine or a missing permission.
    Scenario(String),
    Program(String),
    /// The load did not run, or its driver's output cannot be parsed.
    Load(String),
}

impl TrialError {
    pub(super) fn scenario(error: impl std::fmt::Display) -> Self {
        Self::Scenario(error.to_string())
    }

    pub(super) fn program(error: impl std::fmt::Display) -> Self {
        Self::Program(error.to_string())
    }

    pub(super) fn load(error: impl std::fmt::Display) -> Self {
        Self::Load(error.to_string())
    }
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

#[derive(Clone, Debug)]
pub struct TrialResult {
    /// Record of the trial. Its position in an experiment is unknown here: `position` is empty, and so
    /// is `folded`, the name of the file for [`TrialResult::folded`].
    pub trial: ExperimentTrial,
    pub exit_code: i32,
    /// Descriptions of things that could not be removed; they stay in the journal.
    pub leftovers: Vec<String>,
    /// Folded stacks of the subject, if they were requested and could be sampled.
    pub folded: Option<String>,
    /// Reason for an incomplete load; always `None` from a trial that ran.
    pub error: Option<TrialError>,
}

#[derive(Clone, Debug)]
pub struct FleetTrial {
    /// Programs on their machines, with their final arguments.
    pub machines: Vec<MachineSetup>,
    /// Agents that drive the load, in the form of `--agents`.
    pub agents: String,
    /// Arguments of `weir load` for the same load before the measurement; `None` without a warm-up.
    pub warm_up: Option<Vec<String>>,
    /// Arguments of `weir load`.
    pub load: Vec<String>,
}

pub trait FleetTrials {
    /// Starts the programs, drives the load, ends the programs, and returns the merged record of the load with the
    /// observations of all machines and its diagnosis. Nothing of a trial runs on return.
    ///
    /// # Errors
    /// Reason for the missing record.
    fn run(&self, trial: &FleetTrial) -> Result<Run, TrialError>;
}
