//! One trial of an experiment: makes its scenario, starts its programs, warms up, has the load driven by
//! weir or by another program, watches meanwhile, and gives back a record of it.
//!
//! Not for judging it against other trials, nor for where it is kept.

mod covariates;
mod driven;
pub mod driver;
pub mod metrics;
mod port;
mod ready;
mod said;
mod stage;
mod start;
pub mod steady;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::path::Path;

use record::file::wall_clock_text;
use record::run::{Run, Weir};
use record::trial::{Driver, SCHEMA, Trial};
use record::validity::{Reason, Validity, Verdict};

use crate::scenario::kit::Context;
use crate::scenario::plan::Node;
use crate::scenario::setup::{Setup, Tool};
use stage::{Driven, Stage};
use view::View;

pub(crate) use driven::record_of;
use watch::Seen;

/// How a trial is run.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// This program, which is a load generator too.
    pub weir: &'a Path,
    /// Which weir it is, for the record.
    pub build: &'a Weir,
    /// What makes scenarios; its clock is the one that times are measured with.
    pub context: &'a Context,
    /// The wall clock, in ns since 1970 ([`record::file::wall_clock_ns`]): says when a trial began, and
    /// whether it was set meanwhile.
    pub wall_ns: fn() -> u64,
    /// Length of the load where an experiment says `{duration}`, in nanoseconds.
    pub duration_ns: u64,
    /// Whether the own output of `weir load` is shown.
    pub show: bool,
    /// Whether to stop early: asked often.
    pub stop: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("weir", &self.weir).finish_non_exhaustive()
    }
}

/// Why there is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialError {
    /// It was stopped from outside.
    Stopped,
    /// The scenario could not be made: this machine's fault, or a missing right.
    Scenario(String),
    /// A program of the experiment did not do what it should: its fault.
    Program(String),
    /// The load did not run, or what drove it told nothing that can be read.
    Load(String),
}

impl std::fmt::Display for TrialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Scenario(why) => write!(f, "the scenario cannot be made: {why}"),
            Self::Program(why) => write!(f, "a program of the experiment: {why}"),
            Self::Load(why) => write!(f, "the load: {why}"),
        }
    }
}

impl std::error::Error for TrialError {}

/// What a trial gave.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its record. Where it stands in an experiment is not known here: `place` is empty, and so is
    /// `folded`, the name of the file that [`Done::folded`] may be written to.
    pub trial: Trial,
    /// The exit code of what drove the load.
    pub exit: i32,
    /// What could not be removed again; it stays in the journal.
    pub left: Vec<String>,
    /// The stacks that the subject was seen in, folded, where they were asked for and could be seen.
    pub folded: Option<String>,
    /// Why it is not of a whole load: never there of [`run`].
    pub wrong: Option<TrialError>,
}

/// Runs one trial. Everything that it made is gone when it returns.
///
/// # Errors
/// Why there is no record.
pub fn run(setup: &Setup, tools: Tools<'_>) -> Result<Done, TrialError> {
    once(setup, tools, false)
}

/// The same for somebody who wants what there is: a load of weir's that was stopped, or one under which a
/// program ended, leaves what was measured until then. [`Done::wrong`] says so, and the record too.
///
/// # Errors
/// Why there is no record.
pub fn run_to_keep(setup: &Setup, tools: Tools<'_>) -> Result<Done, TrialError> {
    once(setup, tools, true)
}

fn once(setup: &Setup, tools: Tools<'_>, keeps: bool) -> Result<Done, TrialError> {
    let mut stage = Stage::make(setup, tools, keeps)?;
    stage.write_files(setup)?;
    stage.build(setup)?;
    stage.start_extras(&setup.programs)?;
    if let Some(origin) = &setup.origin {
        stage.start(Node::Origin, origin)?;
    }
    stage.start(Node::Subject, &setup.subject)?;
    let row = driver::row(setup.tool);
    let said = stage.ask(row)?;
    let warm_up_ns = match setup.warm_up_ns {
        0 => 0,
        wanted_ns => stage.warm_up(row, setup, &said, wanted_ns)?,
    };
    let clock = tools.context.clock;
    let (wall_ns, began_ns) = ((tools.wall_ns)(), clock());
    let (mut driven, seen) = stage.load(row, setup, &said)?;
    let passed_ns = clock().saturating_sub(began_ns);
    let wall_passed_ns = i128::from((tools.wall_ns)()) - i128::from(wall_ns);
    let clock_step_s = (wall_passed_ns - i128::from(passed_ns)).unsigned_abs() as f64 / 1e9;
    let exit = driven.exit;
    let wrong = driven.wrong.take().map(|wrong| with_ends(wrong, driven.run.as_ref()));
    let commands = std::mem::take(&mut stage.commands);
    let left = stage.kit.undo();
    let mut trial = Trial {
        schema: SCHEMA.to_owned(),
        weir: tools.build.clone(),
        started_at: wall_clock_text(wall_ns),
        warm_up_s: warm_up_ns as f64 / 1e9,
        commands,
        ..Trial::default()
    };
    let folded = fill(&mut trial, row, &said, driven, seen);
    finish(&mut trial, setup, clock_step_s);
    if let Some(wrong) = &wrong {
        mark(&mut trial, wrong);
    }
    Ok(Done { trial, exit, left, folded, wrong })
}

/// What went wrong under load, with who was seen to end.
fn with_ends(wrong: TrialError, run: Option<&Run>) -> TrialError {
    let TrialError::Program(why) = wrong else { return wrong };
    let ended = run.into_iter().flat_map(|run| &run.observed).flat_map(|seen| &seen.ended);
    let all: Vec<String> = std::iter::once(why).chain(ended.map(ToString::to_string)).collect();
    TrialError::Program(all.join("; "))
}

/// Says in the record why it is not of a whole load. One that was stopped says so itself.
fn mark(trial: &mut Trial, wrong: &TrialError) {
    trial.failed = Some(wrong.to_string());
    let ended = matches!(wrong, TrialError::Program(_));
    let Some(run) = trial.run.as_mut().filter(|_| ended) else { return };
    let mut reasons = std::mem::take(&mut run.validity.reasons);
    reasons.push(Reason {
        code: "subject_ended".to_owned(),
        verdict: Verdict::Invalid,
        text: wrong.to_string(),
    });
    run.validity = Validity::from_reasons(reasons);
}

/// Puts what was measured into a trial; the folded stacks are given back.
fn fill(
    trial: &mut Trial,
    row: &driver::Row,
    said: &str,
    driven: Driven,
    seen: Seen,
) -> Option<String> {
    let mut notes: Vec<String> = row.notes.iter().map(|&note| note.to_owned()).collect();
    notes.extend(driven.notes);
    trial.duration_s = driven.length_s;
    trial.driver = Driver {
        program: row.program.to_owned(),
        version: match &driven.run {
            Some(run) => format!("{} ({})", run.weir.version, run.weir.commit),
            None => row.version_in(said),
        },
        output: driven.output,
        notes,
    };
    trial.diagnosis = driven.run.as_ref().and_then(|run| run.diagnosis.clone());
    trial.run = driven.run;
    trial.observed = seen.observed.map(|mut observed| {
        trial.started_at.clone_into(&mut observed.started_at);
        observed
    });
    trial.calls = seen.calls;
    trial.not_observable = seen.missing;
    seen.folded
}

/// Works out what follows from what was measured.
fn finish(trial: &mut Trial, setup: &Setup, clock_step_s: f64) {
    trial.metrics = metrics::read(trial);
    let view = View::new(trial);
    let covariates = covariates::read(&view, &setup.scenario, clock_step_s);
    let steady = steady::of(trial);
    trial.covariates = covariates;
    trial.steady = steady;
    if trial.run.is_none() {
        trial.diagnosis = driven::diagnosis(trial, setup.has_rate());
    }
}

/// Whether a tool is weir itself: its load leaves a record, and watches by itself.
fn is_weir(tool: Tool) -> bool {
    tool == Tool::Weir
}

/// Words as a shell reads them, with the variables that were added to the environment.
fn line_of(env: &BTreeMap<String, String>, words: &[String]) -> String {
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
