//! `weir lab`: experiments. Each subcommand has its own file here.

mod compare;
mod diagnose;
mod experiments;
mod faulty_server;
mod list;
mod profile;
mod profile_target;
pub(super) mod report_files;
pub(super) mod run;
mod run_once;
mod selftest;
mod selftest_results;
mod serve;
mod show;
mod stored_runs;

use std::path::PathBuf;

use experiment::scenario::journal::{SUBDIRECTORY, journal_directory};
use experiment::scenario::testbed::{self, TestbedContext};

use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;

/// Maximum number of journals of older weirs that are listed.
const OLD_JOURNALS_SHOWN: usize = 5;

/// Runs the subcommand of `weir lab`.
pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    match args.0.subcommand() {
        Some(("diagnose", args)) => diagnose::run(CommandArgs(args)),
        Some(("profile", args)) => profile::run(CommandArgs(args)),
        Some(("run", args)) => run::run(CommandArgs(args), arguments),
        Some(("list", args)) => list::run(CommandArgs(args)),
        Some(("show", args)) => show::run(CommandArgs(args)),
        Some(("compare", args)) => compare::run(CommandArgs(args)),
        Some(("serve", args)) => serve::run(CommandArgs(args)),
        Some(("try", args)) => run_once::run(CommandArgs(args)),
        Some(("selftest", args)) => selftest::run(CommandArgs(args)),
        Some(("faulty-server", args)) => faulty_server::run(CommandArgs(args)),
        _ => {
            warn!("{}", crate::flags::short_help_of("lab"));
            Ok(Exit::Usage)
        }
    }
}

/// Returns the context for scenarios. Removes the remains of killed runs first.
fn context(args: CommandArgs<'_>) -> TestbedContext {
    remove_leftovers();
    let (allow_global, clock) = (args.is_set("allow-global"), rt::clock::now_ns);
    TestbedContext { journals: journal_directory(), allow_global, clock }
}

/// Removes the remains of killed runs, and reports it.
pub(super) fn remove_leftovers() {
    let removed = testbed::sweep(&journal_directory());
    for run in &removed.undone_runs {
        warn!("weir: removed leftovers of the killed run {run}");
    }
    for problem in &removed.problems {
        warn!("weir: leftover of a killed run cannot be removed: {problem}");
    }
    for reason in &removed.refused {
        warn!("weir: not obeyed: {reason}");
    }
    list_old_journals(SUBDIRECTORY, "weir tune status");
}

/// Reports the journals of older weirs, with the command that makes this weir obey them: `then` follows it.
pub(super) fn list_old_journals(kind: &str, then: &str) {
    let old = host::journal::old_journals(kind);
    for journal in old.iter().take(OLD_JOURNALS_SHOWN) {
        let (path, new) = (journal.path.display(), journal.new_path.display());
        let directory = journal.new_path.parent().unwrap_or(&journal.new_path).display();
        warn!(
            "weir: not obeyed: {path} is in a directory that a service user can change; type: install -d -m 700 \
             {directory} && install -m 600 {path} {new}.copy, read the copy, which nobody else can change, and if \
             weir wrote it, type: mv {new}.copy {new} && rm {path} && {then}"
        );
    }
    if let Some(more) = old.len().checked_sub(OLD_JOURNALS_SHOWN).filter(|more| *more > 0) {
        warn!("weir: not obeyed: {more} more in the same directory");
    }
}

/// Returns the path of this program, which is also the load generator and the faulty server of
/// experiments.
fn own_path() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::cannot("the path of this program", error))
}

/// Returns everything that is wrong with the flags of `weir lab profile`, for the test of the flag
/// tables.
#[cfg(test)]
pub(super) fn check_profile_flags(args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    profile::parse_flags(args).map(|_| ())
}

#[cfg(test)]
pub(super) use faulty_server::parse_fault as check_faulty_server;

/// Does the same for `weir lab run`, `compare` and `serve`.
#[cfg(test)]
pub(super) fn check_experiment(
    command: &str,
    args: CommandArgs<'_>,
) -> Result<(), Vec<record::problem::InputProblem>> {
    match command {
        "lab run" => run::check(args),
        "lab compare" => compare::check(args),
        _ => serve::check(args),
    }
}
