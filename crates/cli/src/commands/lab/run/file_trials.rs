//! Adapter from the engine's [`Runner`] to `experiment::trial`: runs the trials of an experiment's file. Does not
//! choose trials or judge them.

use experiment::definition::ExperimentFile;
use experiment::engine::{Runner, TrialOutput, TrialParams, TrialRunError};
use experiment::scenario::setup::LabSetup;
use experiment::trial::{TrialError, TrialTools};
use record::trial::TrialPosition;

#[derive(Debug)]
pub(super) struct FileTrials<'a> {
    pub(super) file: &'a ExperimentFile,
    /// Parameters of every trial; the engine replaces `duration_ns`.
    pub(super) tools: TrialTools<'a>,
}

impl Runner for FileTrials<'_> {
    fn run(&mut self, position: &TrialPosition, spec: &TrialParams) -> Result<TrialOutput, TrialRunError> {
        let setup = self.file.setup(&position.arm, &position.load).ok_or_else(|| {
            TrialRunError::Failed(format!("the file has no {} under {}", position.arm, position.load))
        })?;
        let setup = LabSetup {
            warm_up_ns: spec.warm_up_ns,
            profile: spec.is_profiled,
            calls: spec.calls.clone(),
            ..setup.clone()
        };
        let tools = TrialTools { duration_ns: spec.duration_ns, ..self.tools };
        match experiment::trial::run(&setup, tools) {
            Ok(done) => Ok(TrialOutput { trial: done.trial, folded: done.folded, leftovers: done.leftovers }),
            Err(TrialError::Stopped) => Err(TrialRunError::Stopped),
            Err(error) => Err(TrialRunError::Failed(error.to_string())),
        }
    }
}
