//! What an experiment needs of the world and of the statistics, and what it gives back: so that it can be
//! tried with a simulated runner. Not for using any of it.

use std::io;

use record::experiment::{Cell, Comparison, Plan, ScalingLine, TrialLine, Warning};
use record::trial::{Place, Trial};

use super::environment::Here;
use super::events::Event;
use super::folder::Folder;

/// How a trial is to be run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// How long the load runs before, unrecorded, in ns.
    pub warm_up_ns: u64,
    /// How long it runs, in ns.
    pub duration_ns: u64,
    /// Whether the subject's functions are sampled.
    pub profile: bool,
    /// The function of which calls are counted.
    pub calls: Option<String>,
}

/// What a trial gave.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Its record. Its place is filled in by the engine.
    pub trial: Trial,
    /// Folded stacks of its profile.
    pub folded: Option<String>,
    /// What it made and could not remove, in words.
    pub left: Vec<String>,
}

/// Why a trial has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRun {
    /// It was ended from outside.
    Stopped,
    /// Something does not work: which program, and its last words.
    Failed(String),
}

/// Runs one trial.
pub trait Runner {
    /// Runs the trial at `place`, with fresh programs.
    ///
    /// # Errors
    /// It was ended from outside, or failed.
    fn run(&mut self, place: &Place, ask: &Ask) -> Result<Ran, NotRun>;
}

/// What a judgement is made of.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The plan, with the warm-up that was found.
    pub plan: &'a Plan,
    /// Every trial, in the order of running; those that do not count are marked.
    pub lines: &'a [TrialLine],
    /// Where their records are.
    pub folder: &'a Folder,
    /// What of the machine, the programs or weir changed since it began, in words.
    pub changes: &'a [String],
}

/// What the trials say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Every arm under every load.
    pub cells: Vec<Cell>,
    /// Every arm against the baseline.
    pub comparisons: Vec<Comparison>,
    /// What has to be known before they are believed.
    pub warnings: Vec<Warning>,
    /// How throughput grows along a factor.
    pub scalings: Vec<ScalingLine>,
    /// In words: the first sentence is the answer.
    pub summary: Vec<String>,
}

/// What an experiment needs of the world, and of the statistics.
pub struct Hooks<'a> {
    /// Monotonic time, in ns.
    pub clock: &'a dyn Fn() -> u64,
    /// Now, RFC 3339.
    pub wall: &'a dyn Fn() -> String,
    /// Whether to end early; asked before each trial. A trial that runs is ended by its runner.
    pub stop: &'a dyn Fn() -> bool,
    /// Waits so long, in ns, or until it is to end early.
    pub rest: &'a dyn Fn(u64),
    /// The machine, weir and the programs as they are; asked before the first trial and at
    /// the end.
    pub here: &'a dyn Fn() -> Here,
    /// Whether to go on where these are other than when it began.
    pub allow_other: bool,
    /// The stopping rule: whether what counts so far is precise enough.
    pub settled: &'a dyn Fn(&Plan, &[TrialLine]) -> bool,
    /// What the trials so far say.
    pub judge: &'a dyn Fn(Case<'_>) -> Judged,
    /// Is told what happens.
    pub told: &'a mut dyn FnMut(&Event),
}

impl std::fmt::Debug for Hooks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").field("allow_other", &self.allow_other).finish_non_exhaustive()
    }
}

/// Why an experiment cannot run. What was measured is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The plan cannot be run: everything that is wrong with it.
    Plan(Vec<String>),
    /// It cannot go on here: what is other than when it began.
    Differs(Vec<String>),
    /// The folder cannot be written.
    Io(String),
}

impl std::fmt::Display for EngineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(what) => write!(f, "the plan cannot be run: {}", what.join("; ")),
            Self::Differs(what) => write!(
                f,
                "this is other than when the experiment began: {}. Its blocks would not be measured by the same \
                 means: put it back, or begin a new one, or allow it",
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
