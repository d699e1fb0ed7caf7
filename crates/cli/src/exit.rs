//! Exit codes, the same for every command, and the failures that lead to them.

use std::fmt;
use std::process::ExitCode;

use record::problem::Problem;
use record::run::Run;
use record::validity::Verdict;

/// How weir ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, and valid.
    Done = 0,
    /// It could not run: cannot bind, cannot connect at all, not enough descriptors.
    CannotRun = 1,
    /// Wrong usage or config.
    Usage = 2,
    /// An objective was missed.
    ObjectiveMissed = 3,
    /// The result is not valid.
    Invalid = 4,
}

/// The codes with their meaning, for the help and the manual.
pub(crate) const EXIT_CODES: &[(Exit, &str)] = &[
    (Exit::Done, "done and valid (or suspect: the reasons are printed)"),
    (
        Exit::CannotRun,
        "could not run: cannot bind, cannot connect at all, limits too small; or its output could not \
         be written",
    ),
    (Exit::Usage, "wrong usage or config"),
    (
        Exit::ObjectiveMissed,
        "an objective (--slo) was missed, by a result that is valid or suspect",
    ),
    (
        Exit::Invalid,
        "the result is not valid, whether its objectives were met or missed; the reasons are printed and \
         in the record",
    ),
];

impl Exit {
    /// The exit code of one run. A result that is not valid comes first: it says nothing of an objective.
    pub(crate) fn of_run(run: &Run) -> Self {
        if run.validity.verdict == Verdict::Invalid {
            Self::Invalid
        } else if run.objectives.iter().any(|objective| !objective.met) {
            Self::ObjectiveMissed
        } else {
            Self::Done
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for is wrong; everything that is wrong with it.
    Usage(Vec<Problem>),
    /// It could not run.
    CannotRun(String),
}

impl Failure {
    /// What to print, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Usage(problems) => problems.iter().map(ToString::to_string).collect(),
            Self::CannotRun(text) => vec![text.clone()],
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::CannotRun(_) => Exit::CannotRun,
        }
    }

    /// Something that could not be done, with what and why.
    pub(crate) fn cannot(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::CannotRun(format!("{what}: {why}"))
    }
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Usage(problems)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::CannotRun(error.to_string())
    }
}
