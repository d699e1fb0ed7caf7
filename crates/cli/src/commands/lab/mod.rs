//! `weir lab`: one function a command below it.

mod diagnose;

use clap::ArgMatches;

use crate::exit::{Exit, Failure};
use crate::flags::Typed;

/// Runs the command that was typed behind `lab`.
pub(super) fn run(name: &str, typed: &ArgMatches) -> Result<Exit, Failure> {
    match name {
        "diagnose" => diagnose::run(Typed(typed)),
        // clap knows no other names.
        _ => Ok(Exit::Usage),
    }
}
