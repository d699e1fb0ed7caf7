//! `weir lab try FILE`: one experiment, run once.

use lab::scenario::setup::Setup;
use lab::trial::{Done, Tools, TrialError};
use record::problem::Problem;
use record::units::{DurationUnit, parse_duration_ns};
use rt::drain::{Drain, Held, Signals, Stage, hold_signals};

use super::{build, context, own_path};
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::file::write_json;
use crate::output::print;

/// The length of a load, if nothing else is said.
pub(super) const DURATION: &str = "8s";

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let files = typed.values();
    let [file] = files.as_slice() else {
        return Err(vec![Problem::new("FILE", "give one file: the experiment")].into());
    };
    let text = std::fs::read_to_string(file).map_err(|error| Failure::cannot(file, error))?;
    let duration = typed.text("duration").unwrap_or_else(|| DURATION.to_owned());
    let duration_ns = parse_duration_ns(&duration, DurationUnit::Seconds)
        .and_then(|ns| match ns {
            0 => Err("a load of no length shows nothing: give 1s, for instance".to_owned()),
            ns => Ok(ns),
        })
        .map_err(|why| vec![Problem::new("--duration", why)]);
    let parsed = Setup::parse(file, &text);
    let (experiment, duration_ns) = both(parsed, duration_ns)?;
    if typed.is_set("check") {
        print(&format!("{file}: right\n"));
        return Ok(Exit::Done);
    }
    crate::preflight::outputs(typed, &["json"], &[])?;
    let json = typed.text("json");
    let drain = Drain::default();
    let stop = drain.watch();
    let said = Signals::drained(|| {
        note!("weir: stopping; waits up to 12 s for what the load has measured");
    });
    hold_signals(Held::Stop)?.follow(drain, Some(said))?;
    let context = context(typed);
    let weir = own_path()?;
    let stopped = || stop.stage() > Stage::Running;
    let build = build();
    let tools = Tools {
        weir: &weir,
        build: &build,
        context: &context,
        wall_ns: record::file::wall_clock_ns,
        duration_ns,
        show: true,
        stop: &stopped,
    };
    let done = match lab::trial::run_to_keep(&experiment, tools) {
        Ok(done) => done,
        Err(TrialError::Stopped) => {
            note!("weir: stopped; nothing was measured");
            return Ok(Exit::Invalid);
        }
        Err(error) => return Err(Failure::CannotRun(error.to_string())),
    };
    end(done, json.as_deref())
}

/// Shows and keeps what a trial left; its exit code.
fn end(done: Done, json: Option<&str>) -> Result<Exit, Failure> {
    for problem in &done.left {
        note!("weir: could not be removed, and is tried again at the next start: {problem}");
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
    match done.wrong {
        None => Ok(exit_of(done.exit)),
        Some(TrialError::Stopped) => {
            note!("weir: stopped; what was measured until then is kept, marked as partial");
            Ok(Exit::Invalid)
        }
        Some(error) => Err(Failure::CannotRun(error.to_string())),
    }
}

/// Both values, or the problems of both.
fn both<A, B>(
    one: Result<A, Vec<Problem>>,
    other: Result<B, Vec<Problem>>,
) -> Result<(A, B), Vec<Problem>> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (one, other) => {
            let mut problems = one.err().unwrap_or_default();
            problems.extend(other.err().unwrap_or_default());
            Err(problems)
        }
    }
}

/// The exit code of `weir load`, which is ours.
fn exit_of(code: i32) -> Exit {
    match code {
        3 => Exit::ObjectiveMissed,
        4 => Exit::Invalid,
        _ => Exit::Done,
    }
}
