//! One function a command: texts → plan → run → record → output.

mod calibrate;
mod ctl;
mod edge;
mod lab;
mod load;
mod proxy;
mod report;
mod serve;
mod tools;
mod watch;

use std::io::Read;

use clap::ArgMatches;
use rt::drain::{Drain, Stage};

use crate::exit::{Exit, Failure};
use crate::flags::Typed;

/// Runs the command that was typed.
pub(crate) fn run(matches: &ArgMatches, arguments: &[String]) -> Result<Exit, Failure> {
    let Some((name, typed)) = matches.subcommand() else {
        return Ok(Exit::Usage);
    };
    match (name, typed.subcommand()) {
        ("serve", _) => serve::run(Typed(typed)),
        ("proxy", _) => proxy::run(Typed(typed)),
        ("ctl", _) => ctl::run(Typed(typed)),
        ("lab", _) => lab::run(Typed(typed), arguments),
        ("load", Some(("report", typed))) => report::run(Typed(typed)),
        ("load", _) => load::run(Typed(typed), arguments),
        ("calibrate", _) => calibrate::run(Typed(typed)),
        ("edge", _) => edge::run(Typed(typed), arguments),
        ("watch", _) => watch::run(Typed(typed), arguments),
        ("completions", _) => tools::completions(Typed(typed)),
        ("man", _) => tools::man(Typed(typed)),
        ("reference", _) => tools::reference(Typed(typed)),
        // clap knows no other names.
        _ => Ok(Exit::Usage),
    }
}

/// Drains when stdin ends: whoever started us holds the other end, and it closes even when that
/// process is killed.
fn end_with_stdin(drain: Drain) {
    std::thread::spawn(move || {
        let mut ignored = [0; 256];
        while std::io::stdin().read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        drain.advance(Stage::Draining);
    });
}

/// Everything that is wrong with the flags of `weir calibrate`, for the test of the flag tables.
#[cfg(test)]
pub(crate) fn check_calibrate(
    typed: Typed<'_>,
    url: String,
) -> Result<(), Vec<record::problem::Problem>> {
    calibrate::check(typed, url).map(|_| ())
}

/// As [`check_calibrate`], of `weir edge`.
#[cfg(test)]
pub(crate) fn check_edge(
    typed: Typed<'_>,
    url: String,
) -> Result<(), Vec<record::problem::Problem>> {
    edge::check(typed, vec![url]).map(|_| ())
}

/// The same of `weir lab profile`.
#[cfg(test)]
pub(crate) fn check_lab_profile(typed: Typed<'_>) -> Result<(), Vec<record::problem::Problem>> {
    lab::check_profile(typed)
}

/// What `weir lab sick` makes of its flags, for the test of what a scenario gives it.
#[cfg(test)]
pub(crate) fn check_lab_sick(
    typed: Typed<'_>,
) -> Result<::lab::sick::Illness, Vec<record::problem::Problem>> {
    lab::check_sick(typed)
}

/// The same of the commands about experiments that read values of flags.
#[cfg(test)]
pub(crate) fn check_lab_experiment(
    command: &str,
    typed: Typed<'_>,
) -> Result<(), Vec<record::problem::Problem>> {
    lab::check_experiment(command, typed)
}

/// Everything that is wrong with the flags of `weir watch`, for the test of the flag tables.
#[cfg(test)]
pub(crate) fn check_watch(typed: Typed<'_>) -> Result<(), Vec<record::problem::Problem>> {
    watch::check(typed)
}
