//! `weir lab try FILE`: one scenario, run once.

use experiment::scenario::setup::LabSetup;
use experiment::trial::{TrialError, TrialResult, TrialTools};
use record::invalid_value;
use record::problem::InputProblem;
use record::units::{DurationUnit, parse_duration_ns};
use rt::drain::{Drain, DrainStage, SignalHandlers, SignalSet, block_signals};

use super::run::environment_checks::with_environment_checks;
use super::{context, own_path};
use crate::commands::text_file::read_text_file;
use crate::commands::weir_version;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::write_json;
use crate::output::{print, print_valid};

/// Default length of the load.
pub(super) const DURATION_DEFAULT: &str = "8s";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let (setup, duration_ns) = both_or_problems(read_scenario(args), parse_duration(args))?;
    if args.is_set("check") {
        print_valid(&args.values().join(" "));
        return Ok(Exit::Done);
    }
    crate::preflight::outputs(args, &["json"], &[])?;
    let json = args.text("json");
    let drain = Drain::default();
    let stop = drain.watch();
    let signals = SignalHandlers::with_on_drain(|| {
        warn!("weir: stopping; waiting up to 12 s for the results of the load");
    });
    block_signals(SignalSet::Termination)?.spawn_handler(drain, Some(signals))?;
    let context = context(args);
    let weir = own_path()?;
    let stopped = || stop.stage() > DrainStage::Running;
    let build = weir_version();
    let tools = TrialTools {
        load_prefix: &[],
        weir: &weir,
        build: &build,
        context: &context,
        wall_ns: record::file::wall_clock_ns,
        duration_ns,
        shows_output: json.as_deref() != Some("-"),
        should_stop: &stopped,
        fleet: None,
    };
    let done = match experiment::trial::run_keeping_partial(&setup, tools) {
        Ok(done) => done,
        Err(TrialError::Stopped) => {
            warn!("weir: stopped; no results");
            return Ok(Exit::Invalid);
        }
        Err(error) => return Err(Failure::cannot_run(error)),
    };
    finish(done, json.as_deref())
}

/// Reads the scenario file, and checks it against this machine and the flags of `weir load`.
fn read_scenario(args: CommandArgs<'_>) -> Result<LabSetup, Vec<InputProblem>> {
    let files = args.values();
    let [file] = files.as_slice() else {
        return Err(vec![InputProblem::new("FILE", "name one scenario file")]);
    };
    let text = read_text_file(file).map_err(|problem| vec![problem])?;
    with_environment_checks(|checks| checks.parse_scenario(file, &text))
}

/// Parses the length of the load, in nanoseconds.
fn parse_duration(args: CommandArgs<'_>) -> Result<u64, Vec<InputProblem>> {
    let duration = args.text("duration").unwrap_or_else(|| DURATION_DEFAULT.to_owned());
    let parsed = parse_duration_ns(&duration, DurationUnit::Seconds).and_then(|ns| match ns {
        0 => Err(invalid_value!("a duration of 0 measures nothing (for example: 1s)")),
        ns => Ok(ns),
    });
    parsed.map_err(|why| vec![InputProblem::new("--duration", why)])
}

/// Shows and keeps the results of a trial; returns its exit code.
fn finish(done: TrialResult, json: Option<&str>) -> Result<Exit, Failure> {
    for problem in &done.leftovers {
        warn!("weir: cleanup failed, will be retried at the next start: {problem}");
    }
    if let Some(output) = &done.trial.driver.output
        && json != Some("-")
    {
        print(output);
    }
    match &done.trial.run {
        Some(run) => write_json(run, json)?,
        None => write_json(&done.trial, json)?,
    }
    match done.error {
        None => Ok(exit_code(done.exit_code)),
        Some(TrialError::Stopped) => {
            warn!("weir: stopped; the results so far are {}", describe_output(json));
            Ok(Exit::Invalid)
        }
        Some(error) => Err(Failure::cannot_run(error)),
    }
}

/// Describes where the results of a stopped load are.
fn describe_output(json: Option<&str>) -> String {
    match json {
        None => "not stored (--json FILE stores them)".to_owned(),
        Some("-") => "on stdout, marked as partial".to_owned(),
        Some(path) => format!("in {path}, marked as partial"),
    }
}

fn both_or_problems<A, B>(
    first: Result<A, Vec<InputProblem>>,
    second: Result<B, Vec<InputProblem>>,
) -> Result<(A, B), Vec<InputProblem>> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => {
            let mut problems = first.err().unwrap_or_default();
            problems.extend(second.err().unwrap_or_default());
            Err(problems)
        }
    }
}

/// Converts the exit code of `weir load`, which becomes ours.
fn exit_code(code: i32) -> Exit {
    match code {
        3 => Exit::ObjectiveMissed,
        4 => Exit::Invalid,
        _ => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_load_reports_where_its_results_are() {
        assert!(describe_output(None).starts_with("not stored"));
        assert!(describe_output(Some("-")).contains("stdout"));
        assert!(describe_output(Some("run.json")).contains("run.json"));
    }
}
