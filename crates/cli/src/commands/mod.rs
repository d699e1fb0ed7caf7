//! One function a command: texts → plan → run → record → output.

mod calibrate;
mod load;
mod report;
mod serve;
mod tools;

use clap::ArgMatches;

use crate::exit::{Exit, Failure};
use crate::flags::Typed;

/// Runs the command that was typed.
pub(crate) fn run(matches: &ArgMatches, arguments: &[String]) -> Result<Exit, Failure> {
    let Some((name, typed)) = matches.subcommand() else {
        return Ok(Exit::Usage);
    };
    match (name, typed.subcommand()) {
        ("serve", _) => serve::run(Typed(typed)),
        ("load", Some(("report", typed))) => report::run(Typed(typed)),
        ("load", _) => load::run(Typed(typed), arguments),
        ("calibrate", _) => calibrate::run(Typed(typed)),
        ("completions", _) => tools::completions(Typed(typed)),
        ("man", _) => tools::man(Typed(typed)),
        ("reference", _) => tools::reference(),
        // clap knows no other names.
        _ => Ok(Exit::Usage),
    }
}

/// Everything that is wrong with the flags of `weir calibrate`, for the test of the flag tables.
#[cfg(test)]
pub(crate) fn check_calibrate(
    typed: Typed<'_>,
    url: String,
) -> Result<(), Vec<record::problem::Problem>> {
    calibrate::check(typed, url).map(|_| ())
}
