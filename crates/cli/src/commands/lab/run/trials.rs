//! The trials of an experiment: what the engine asks for as what `lab::trial` runs. Not for which of them
//! run, nor for what they say.

use lab::engine::{Ask, NotRun, Ran, Runner};
use lab::experiment::File;
use lab::scenario::setup::Setup;
use lab::trial::{Tools, TrialError};
use record::trial::Place;

/// Runs trials of a file.
#[derive(Debug)]
pub(super) struct Trials<'a> {
    /// What was read.
    pub(super) file: &'a File,
    /// How they are run; the length of the load is the engine's to say.
    pub(super) tools: Tools<'a>,
}

impl Runner for Trials<'_> {
    fn run(&mut self, place: &Place, ask: &Ask) -> Result<Ran, NotRun> {
        let setup = self.file.setup(&place.arm, &place.load).ok_or_else(|| {
            NotRun::Failed(format!("the file has no {} under {}", place.arm, place.load))
        })?;
        let setup = Setup {
            warm_up_ns: ask.warm_up_ns,
            profile: ask.profile,
            calls: ask.calls.clone(),
            ..setup.clone()
        };
        let tools = Tools { duration_ns: ask.duration_ns, ..self.tools };
        match lab::trial::run(&setup, tools) {
            Ok(done) => Ok(Ran { trial: done.trial, folded: done.folded, left: done.left }),
            Err(TrialError::Stopped) => Err(NotRun::Stopped),
            Err(error) => Err(NotRun::Failed(error.to_string())),
        }
    }
}
