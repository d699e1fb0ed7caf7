//! Exit codes, the same for every command.

use std::process::ExitCode;

use load::plan::Objective;
use load::validity;
use record::problem::InputProblem;
use record::run::{ObjectiveOutcome, ObjectiveResult, Run};
use record::validity::ValidityLevel;

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
        "the result is invalid, so that its other objectives prove nothing, or an objective was missed inside of a \
         disturbance (not proven); the reasons are printed and in the record",
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

    /// Returns the exit code of one run: the worst of what was asked. A result or an objective that proves nothing takes
    /// precedence over a missed objective. An invalid result proves nothing about objectives, except about one of errors
    /// if the errors of the subject are why it is invalid.
    pub(crate) fn from_run(run: &Run, on_invalid: OnInvalid) -> Self {
        let missed = || run.objectives.iter().filter(|objective| !objective.met);
        let objectives_exit = if missed().next().is_some() { Self::ObjectiveMissed } else { Self::Done };
        if on_invalid == OnInvalid::Warn {
            return objectives_exit;
        }
        let mut outcomes = run.objectives.iter().map(ObjectiveResult::outcome);
        if outcomes.any(|outcome| outcome == ObjectiveOutcome::NotProven) {
            return Self::Invalid;
        }
        if run.validity.verdict != ValidityLevel::Invalid {
            return objectives_exit;
        }
        let is_about_errors = missed().any(|objective| limits_errors(&objective.text));
        let proves_errors =
            is_about_errors && !run.validity.reasons.iter().any(validity::invalidates_measurement);
        if proves_errors { Self::ObjectiveMissed } else { Self::Invalid }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ValidityLevel::{Invalid, Suspect, Valid};
    use record::validity::{Validity, ValidityReason};

    fn run(objectives: &[(&str, bool, Option<ValidityLevel>)], reasons: &[(&str, ValidityLevel)]) -> Run {
        let empty = record::histogram::LatencyHistogram::new().summary();
        let pair = serde_json::json!({ "service": empty, "response": empty });
        let objective = |(text, met, validity): &(&str, bool, Option<ValidityLevel>)| ObjectiveResult {
            text: (*text).to_owned(),
            met: *met,
            value: 1.0,
            validity: *validity,
        };
        let reason = |(code, verdict): &(&str, ValidityLevel)| ValidityReason {
            code: (*code).to_owned(),
            verdict: *verdict,
            text: String::new(),
        };
        let mut run: Run = serde_json::from_value(serde_json::json!({
            "schema": "weir.run/1", "weir": { "version": "0", "commit": "0" }, "command": [],
            "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
            "validity": { "verdict": "valid", "reasons": [] },
            "host": record::facts::HostFacts::default(),
            "totals": record::run::RunTotals::default(),
            "rates": record::run::Rates::default(),
            "window": record::run::MeasuredWindow::default(),
            "latency": { "connect": pair, "first_byte": pair, "last_byte": pair },
            "generator": record::run::GeneratorStats::default(),
            "cpu": record::run::GeneratorCpu::default()
        }))
        .unwrap();
        run.objectives = objectives.iter().map(objective).collect();
        run.validity = Validity::from_reasons(reasons.iter().map(reason).collect());
        run
    }

    #[test]
    fn the_exit_code_is_the_worst_of_what_was_asked() {
        let (met, missed, errors) = (("p99<5ms", true), ("p99<1ms", false), ("errors<1%", false));
        let one_objective = |(text, met): (&'static str, bool), validity| vec![(text, met, validity)];
        let both = |a: ValidityLevel, b: ValidityLevel| {
            vec![(missed.0, false, Some(a)), ("p50<1ms", false, Some(b))]
        };
        type Reasons = &'static [(&'static str, ValidityLevel)];
        let contended: Reasons = &[("cpu_contended", Suspect)];
        let stalled: Reasons = &[("generator_stalled", Invalid)];
        let note: Reasons = &[("cpu_contended", Valid)];
        let failed: Reasons = &[("errors", Invalid)];
        for (objectives, reasons, fail, warn) in [
            (vec![], &[][..], 0, 0),
            (vec![], note, 0, 0),
            (vec![], contended, 0, 0),
            (vec![], stalled, 4, 0),
            (one_objective(met, Some(Valid)), &[], 0, 0),
            (one_objective(met, Some(Valid)), note, 0, 0),
            (one_objective(met, Some(Suspect)), contended, 0, 0),
            (one_objective(met, Some(Invalid)), stalled, 4, 0),
            (one_objective(missed, Some(Valid)), &[], 3, 3),
            (one_objective(missed, Some(Valid)), note, 3, 3),
            (one_objective(missed, Some(Suspect)), contended, 4, 3),
            (one_objective(missed, Some(Invalid)), stalled, 4, 3),
            (both(Valid, Valid), note, 3, 3),
            (both(Valid, Suspect), contended, 4, 3),
            // Errors of the server prove that an objective of errors was missed, and nothing about others.
            (one_objective(errors, Some(Valid)), failed, 3, 3),
            (one_objective(missed, Some(Valid)), failed, 4, 3),
            // Records from older versions have no validity of an objective.
            (one_objective(missed, None), &[], 3, 3),
            (one_objective(missed, None), contended, 3, 3),
            (one_objective(missed, None), stalled, 4, 3),
        ] {
            let run = run(&objectives, reasons);
            let codes = [OnInvalid::Fail, OnInvalid::Warn].map(|on| Exit::from_run(&run, on).code());
            assert_eq!(codes, [fail, warn], "{objectives:?} {reasons:?}");
        }
    }
}
