//! Reason why a run, or a command around it, did not finish.

use std::fmt;

use record::problem::InputProblem;

/// Reason why a command did not finish.
#[derive(Debug)]
pub enum Failure {
    /// All problems of the command line or the config.
    Usage(Vec<InputProblem>),
    /// The command could not run.
    CannotRun(String),
}

impl Failure {
    /// Returns the lines to print.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Usage(problems) => problems.iter().map(ToString::to_string).collect(),
            Self::CannotRun(text) => vec![text.clone()],
        }
    }

    /// Creates a [`Self::CannotRun`] from an error that says all.
    pub fn cannot_run(error: impl fmt::Display) -> Self {
        Self::CannotRun(error.to_string())
    }

    /// Creates a [`Self::CannotRun`] from the flag, file or task that failed, and the reason.
    pub fn cannot(subject: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::CannotRun(format!("{subject}: {reason}"))
    }
}

impl From<Vec<InputProblem>> for Failure {
    fn from(problems: Vec<InputProblem>) -> Self {
        Self::Usage(problems)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::CannotRun(error.to_string())
    }
}
