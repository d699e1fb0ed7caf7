//! `weir lab`: experiments. Each command below it is a file here.

mod compare;
mod diagnose;
mod experiments;
mod judging;
mod list;
mod profile;
mod run;
mod selftest;
mod selftest_results;
mod serve;
mod show;
mod sick;
mod subject;
mod try_;

use std::path::PathBuf;

use lab::scenario::journal::folder;
use lab::scenario::kit::{self, Context};
use record::run::Weir;

use crate::exit::{Exit, Failure};
use crate::flags::Typed;

/// Runs the command that was typed below `weir lab`.
pub(super) fn run(typed: Typed<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    match typed.0.subcommand() {
        Some(("diagnose", typed)) => diagnose::run(Typed(typed)),
        Some(("profile", typed)) => profile::run(Typed(typed)),
        Some(("run", typed)) => run::run(Typed(typed), arguments),
        Some(("list", typed)) => list::run(Typed(typed)),
        Some(("show", typed)) => show::run(Typed(typed)),
        Some(("compare", typed)) => compare::run(Typed(typed)),
        Some(("serve", typed)) => serve::run(Typed(typed)),
        Some(("try", typed)) => try_::run(Typed(typed)),
        Some(("selftest", typed)) => selftest::run(Typed(typed)),
        Some(("sick", typed)) => sick::run(Typed(typed)),
        _ => {
            note!("weir: give a command: weir lab diagnose, for instance; --help lists them");
            Ok(Exit::Usage)
        }
    }
}

/// What scenarios are made with; what killed runs left is removed first.
fn context(typed: Typed<'_>) -> Context {
    sweep();
    let (allow_global, clock) = (typed.is_set("allow-global"), rt::clock::now_ns);
    Context { journals: journals(), allow_global, clock }
}

fn journals() -> PathBuf {
    folder(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).as_deref())
}

/// Removes what killed runs left, and says so.
pub(super) fn sweep() {
    let swept = kit::sweep(&journals());
    for run in &swept.runs {
        note!("weir: removed what the killed run {run} had left");
    }
    for problem in &swept.problems {
        note!("weir: left by a killed run, and still there: {problem}");
    }
}

/// This program, which is the load generator and the sick server of experiments too.
fn own_path() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::cannot("the path of this program", error))
}

/// Which weir this is, for records.
fn build() -> Weir {
    Weir { version: env!("CARGO_PKG_VERSION").to_owned(), commit: env!("WEIR_COMMIT").to_owned() }
}

/// Everything that is wrong with the flags of `weir lab profile`, for the test of the flag tables.
#[cfg(test)]
pub(super) fn check_profile(typed: Typed<'_>) -> Result<(), Vec<record::problem::Problem>> {
    profile::check(typed).map(|_| ())
}

#[cfg(test)]
pub(super) use sick::illness as check_sick;

/// The same of `weir lab run`, `compare` and `serve`.
#[cfg(test)]
pub(super) fn check_experiment(
    command: &str,
    typed: Typed<'_>,
) -> Result<(), Vec<record::problem::Problem>> {
    match command {
        "lab run" => run::check(typed),
        "lab compare" => compare::check(typed),
        _ => serve::check(typed),
    }
}
