//! Exit codes, the same for every command.

use std::process::ExitCode;

use load::plan::Objective;
use load::validity;
use record::problem::InputProblem;
use record::run::Run;
use record::validity::ValidityVerdict;

pub(crate) use runner::failure::Failure;

/// Exit code of weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Finished; the result, if there is one, is valid or suspect.
    Done,
    /// Could not run: cannot bind or connect, limits too low, or the output cannot be written.
    CannotRun,
    /// Wrong usage or config.
    Usage,
    ObjectiveMissed,
    Invalid,
    /// A command ran in between, and its exit code is returned.
    Command(u8),
}

/// Exit codes with their meaning, for the help and the manual.
pub(crate) const EXIT_CODES: &[(Exit, &str)] = &[
    (Exit::Done, "done; the result is valid, or suspect with the reasons printed"),
    (
        Exit::CannotRun,
        "cannot run: cannot bind or connect, limits too low, or the output cannot \
         be written; or weir proxy fmt --check found a file that is not formatted",
    ),
    (Exit::Usage, "invalid usage or config"),
    (
        Exit::ObjectiveMissed,
        "an objective (--slo) was missed, weir tune check found settings to change, or weir proxy import left \
         directives; the result is valid or \
         suspect, or invalid only for errors of the server, when the missed objective is one of errors",
    ),
    (
        Exit::Invalid,
        "the result is invalid, so that its other objectives prove nothing; the reasons are printed and in the \
         record",
    ),
];

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::CannotRun => 1,
            Self::Usage => 2,
            Self::ObjectiveMissed => 3,
            Self::Invalid => 4,
            Self::Command(code) => code,
        }
    }

    /// Returns the exit code of one run. An invalid result takes precedence over a missed objective,
    /// because it proves nothing about objectives, except about one of errors if the errors of the
    /// subject are why it is invalid.
    pub(crate) fn from_run(run: &Run, on_invalid: OnInvalid) -> Self {
        let missed = run.objectives.iter().filter(|objective| !objective.met);
        if run.validity.verdict == ValidityVerdict::Invalid && on_invalid == OnInvalid::Fail {
            let is_about_errors = missed.clone().any(|objective| limits_errors(&objective.text));
            let reasons = &run.validity.reasons;
            let proves_errors = is_about_errors && !reasons.iter().any(validity::invalidates_measurement);
            return if proves_errors { Self::ObjectiveMissed } else { Self::Invalid };
        }
        if missed.count() > 0 { Self::ObjectiveMissed } else { Self::Done }
    }
}

/// Effect of a result that is not valid on the exit code (`--on-invalid`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnInvalid {
    /// It decides the exit code.
    #[default]
    Fail,
    /// The exit code is that of the objectives.
    Warn,
}

impl OnInvalid {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Vec<InputProblem>> {
        match text {
            None | Some("fail") => Ok(Self::Fail),
            Some("warn") => Ok(Self::Warn),
            Some(other) => {
                Err(vec![InputProblem::new("--on-invalid", format!("'{other}': write fail or warn"))])
            }
        }
    }
}

fn limits_errors(text: &str) -> bool {
    let (objectives, _) = Objective::parse_list(text);
    objectives.iter().any(|objective| objective.error_rate_limit().is_some())
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<&Failure> for Exit {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Usage(_) => Self::Usage,
            Failure::CannotRun(_) => Self::CannotRun,
        }
    }
}
