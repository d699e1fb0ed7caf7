//! Interface between an experiment and its environment, runner and statistics. It allows tests with
//! a simulated runner. Not for calling any of it.

use std::io;

use record::experiment::{
    Comparison, ExperimentCell, ExperimentPlan, FinishStep, ScalingSummary, StopReason, TrialSummary, Warning,
};
use record::run::Answer;
use record::trial::{ExperimentTrial, TrialPosition};

use super::environment::EnvironmentFacts;
use super::events::Event;
use super::experiment_dir::ExperimentDir;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialParams {
    /// Time that the load runs unrecorded before the trial, in ns.
    pub warm_up_ns: u64,
    pub duration_ns: u64,
    /// True if the subject's functions are sampled.
    pub is_profiled: bool,
    /// Function whose calls are counted.
    pub calls: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct TrialOutput {
    /// Record of the trial. The engine fills its place in.
    pub trial: ExperimentTrial,
    /// Folded stacks of its profile.
    pub folded: Option<String>,
    /// Descriptions of things that it created and could not remove.
    pub leftovers: Vec<String>,
}

/// Reason why a trial has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialRunError {
    /// It was interrupted from outside.
    Stopped,
    /// It failed; the text names the program and its last output.
    Failed(String),
}

/// Runner of single trials.
pub trait Runner {
    /// Runs the trial at `position`, with newly started programs.
    ///
    /// # Errors
    /// It was interrupted from outside, or it failed.
    fn run(&mut self, position: &TrialPosition, params: &TrialParams) -> Result<TrialOutput, TrialRunError>;
}

#[derive(Clone, Copy, Debug)]
pub struct JudgeInput<'a> {
    /// Plan, with the warm-up that the pilots determined.
    pub plan: &'a ExperimentPlan,
    /// All trials, in the order of running. Those that do not count are marked.
    pub trials: &'a [TrialSummary],
    pub directory: &'a ExperimentDir,
    /// Descriptions of changes of the machine, the programs or weir since the experiment's start.
    pub changes: &'a [String],
    /// Reason why there are not more blocks.
    pub stopped: &'a StopReason,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conclusions {
    /// Results of every arm under every load.
    pub cells: Vec<ExperimentCell>,
    /// Comparisons of every arm with the baseline.
    pub comparisons: Vec<Comparison>,
    pub warnings: Vec<Warning>,
    /// Growth of throughput along a factor.
    pub scalings: Vec<ScalingSummary>,
    /// Sentences; the first one answers the experiment's question.
    pub summary: Vec<String>,
    /// Result in three sentences.
    pub answer: Option<Answer>,
    pub finish: Option<FinishStep>,
}

/// Environment and statistics that an experiment uses.
pub struct EngineContext<'a> {
    /// Returns monotonic time, in ns.
    pub clock: &'a dyn Fn() -> u64,
    /// Returns the current time, RFC 3339.
    pub wall_clock: &'a dyn Fn() -> String,
    /// Returns whether to end early. Called before each trial; the runner itself ends a running
    /// trial.
    pub should_stop: &'a dyn Fn() -> bool,
    /// Sleeps for this time, in ns, or until an early end is requested.
    pub pause: &'a dyn Fn(u64),
    /// Returns the current state of the machine, weir and the programs. Called before the first
    /// trial and at the end.
    pub read_environment: &'a dyn Fn() -> EnvironmentFacts,
    /// True if the experiment may continue although this state differs from that at its start.
    pub allow_changed_environment: bool,
    /// Stopping rule: returns whether the trials that count conclude every claim.
    pub is_concluded: &'a dyn Fn(&ExperimentPlan, &[TrialSummary]) -> bool,
    /// Draws conclusions from the trials so far.
    pub judge: &'a dyn Fn(JudgeInput<'_>) -> Conclusions,
    pub on_event: &'a mut dyn FnMut(&Event),
}

impl std::fmt::Debug for EngineContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineContext")
            .field("allow_other", &self.allow_changed_environment)
            .finish_non_exhaustive()
    }
}

/// Reason why an experiment cannot run. Earlier measurements are on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The plan cannot be run: all of its problems.
    Plan(Vec<String>),
    /// It cannot continue here: the differences from the environment at its start.
    EnvironmentDiffers(Vec<String>),
    /// The directory cannot be written.
    Io(String),
}

impl std::fmt::Display for EngineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(what) => write!(f, "the plan cannot be run: {}", what.join("; ")),
            Self::EnvironmentDiffers(what) => write!(
                f,
                "the environment has changed since the start of the experiment: {}. Blocks before and after would not be \
                 comparable: revert the change, start a new experiment, or pass --allow-changed-environment",
                what.join("; ")
            ),
            Self::Io(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}
