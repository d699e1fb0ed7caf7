//! `weir lab try FILE`: one experiment, run once.

use lab::scenario::setup::LabSetup;
use lab::trial::{TrialError, TrialResult, TrialTools};
use record::problem::InputProblem;
use record::units::{DurationUnit, parse_duration_ns};
use rt::drain::{Drain, DrainStage, SignalHandlers, SignalSet, block_signals};

use super::{build_info, context, own_path};
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::file::write_json;
use crate::output::print;

/// Default length of the load.
pub(super) const DURATION_DEFAULT: &str = "8s";

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let files = args.values();
    let [file] = files.as_slice() else {
        return Err(vec![InputProblem::new("FILE", "name one experiment file")].into());
    };
    let text = std::fs::read_to_string(file).map_err(|error| Failure::cannot(file, error))?;
    let duration = args.text("duration").unwrap_or_else(|| DURATION_DEFAULT.to_owned());
    let duration_ns = parse_duration_ns(&duration, DurationUnit::Seconds)
        .and_then(|ns| match ns {
            0 => Err("a duration of 0 measures nothing (for example: 1s)".to_owned()),
            ns => Ok(ns),
        })
        .map_err(|why| vec![InputProblem::new("--duration", why)]);
    let parsed = LabSetup::parse(file, &text);
    let (experiment, duration_ns) = both_or_problems(parsed, duration_ns)?;
    if args.is_set("check") {
        print(&format!("{file}: right\n"));
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
    let build = build_info();
    let tools = TrialTools {
        weir: &weir,
        build: &build,
        context: &context,
        wall_ns: record::file::wall_clock_ns,
        duration_ns,
        shows_output: json.as_deref() != Some("-"),
        should_stop: &stopped,
    };
    let done = match lab::trial::run_keeping_partial(&experiment, tools) {
        Ok(done) => done,
        Err(TrialError::Stopped) => {
            warn!("weir: stopped; no results");
            return Ok(Exit::Invalid);
        }
        Err(error) => return Err(Failure::CannotRun(error.to_string())),
    };
    finish(done, json.as_deref())
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
            warn!("weir: stopped; the results so far are stored, marked as partial");
            Ok(Exit::Invalid)
        }
        Some(error) => Err(Failure::CannotRun(error.to_string())),
    }
}

/// Returns both values, or the problems of both.
fn both_or_problems<A, B>(
    one: Result<A, Vec<InputProblem>>,
    other: Result<B, Vec<InputProblem>>,
) -> Result<(A, B), Vec<InputProblem>> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (one, other) => {
            let mut problems = one.err().unwrap_or_default();
            problems.extend(other.err().unwrap_or_default());
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
