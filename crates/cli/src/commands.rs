//! One function per command: texts → plan → run → record → output.

mod calibrate;
mod ctl;
mod edge;
mod fleet;
mod lab;
mod load;
mod pages;
mod plan;
mod proxy;
mod proxy_fmt;
mod proxy_import;
mod report;
mod serve;
mod text_file;
mod tools;
mod tune;
mod watch;

use std::io::Read;

use clap::ArgMatches;
use record::run::WeirVersion;
use rt::drain::{Drain, DrainStage};
use runner::run_record::CommandIdentity;

use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;

pub(crate) fn run(matches: &ArgMatches, arguments: &[String]) -> Result<Exit, Failure> {
    let Some((name, args)) = matches.subcommand() else {
        return Ok(Exit::Usage);
    };
    match (name, args.subcommand()) {
        ("serve", _) => serve::run(CommandArgs(args)),
        ("proxy", Some(("fmt", args))) => proxy_fmt::run(CommandArgs(args)),
        ("proxy", Some(("import", args))) => proxy_import::run(CommandArgs(args)),
        ("proxy", _) => proxy::run(CommandArgs(args)),
        ("ctl", _) => ctl::run(CommandArgs(args)),
        ("lab", _) => lab::run(CommandArgs(args), arguments),
        ("load", Some(("report", args))) => report::run(CommandArgs(args)),
        ("load", _) => load::run(CommandArgs(args), arguments),
        ("calibrate", _) => calibrate::run(CommandArgs(args)),
        ("edge", _) => edge::run(CommandArgs(args), arguments),
        ("tune", _) => tune::run(CommandArgs(args), arguments),
        ("fleet", _) => fleet::run(CommandArgs(args), arguments),
        ("plan", _) => plan::run(CommandArgs(args)),
        ("watch", _) => watch::run(CommandArgs(args), arguments),
        ("completions", _) => tools::completions(CommandArgs(args)),
        ("man", _) => tools::man(CommandArgs(args)),
        ("reference", _) => tools::reference(CommandArgs(args)),
        // clap knows no other names.
        _ => Ok(Exit::Usage),
    }
}

fn weir_version() -> WeirVersion {
    WeirVersion { version: env!("CARGO_PKG_VERSION").to_owned(), commit: env!("WEIR_COMMIT").to_owned() }
}

/// Returns the version of this build and the command line, for records.
fn command_identity(arguments: &[String]) -> CommandIdentity {
    CommandIdentity { weir: weir_version(), command: arguments.to_vec() }
}

/// Drains when stdin ends. The parent process holds the other end, which closes even when that
/// process is killed.
fn drain_on_stdin_close(drain: Drain) {
    // A stopped process would not notice the end of its parent; without the signal it only notices later.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT));
    std::thread::spawn(move || {
        let mut ignored = [0; 256];
        while std::io::stdin().read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        drain.advance(DrainStage::Draining);
    });
}

/// Returns everything that is wrong with the regressions of `weir load`, for the test of the flag tables.
#[cfg(test)]
pub(crate) fn check_regressions(args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    pages::conditions(args)?;
    crate::exit::OnInvalid::parse(args.text("on-invalid").as_deref()).map(|_| ())
}

/// Returns everything that is wrong with the flags of `weir calibrate`, for the test of the flag
/// tables.
#[cfg(test)]
pub(crate) fn check_calibrate(
    args: CommandArgs<'_>,
    url: String,
) -> Result<(), Vec<record::problem::InputProblem>> {
    calibrate::parse_flags(args, |_| url).map(|_| ())
}

/// Does the same as [`check_calibrate`] for `weir tune`.
#[cfg(test)]
pub(crate) fn check_tune(
    command: &str,
    args: CommandArgs<'_>,
) -> Result<(), Vec<record::problem::InputProblem>> {
    tune::check_flags(command, args)
}

/// Does the same as [`check_calibrate`] for `weir edge`.
#[cfg(test)]
pub(crate) fn check_edge(
    args: CommandArgs<'_>,
    url: String,
) -> Result<(), Vec<record::problem::InputProblem>> {
    edge::parse_flags(args, vec![url]).map(|_| ())
}

/// Does the same for `weir lab profile`.
#[cfg(test)]
pub(crate) fn check_lab_profile(args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    lab::check_profile_flags(args)
}

/// Parses the flags of `weir lab faulty-server`, for the test of the flags that a scenario passes to it.
#[cfg(test)]
pub(crate) fn check_lab_faulty_server(
    args: CommandArgs<'_>,
) -> Result<proving_ground::faulty_server::FaultConfig, Vec<record::problem::InputProblem>> {
    lab::check_faulty_server(args)
}

/// Does the same for the commands about experiments that read values of flags.
#[cfg(test)]
pub(crate) fn check_lab_experiment(
    command: &str,
    args: CommandArgs<'_>,
) -> Result<(), Vec<record::problem::InputProblem>> {
    lab::check_experiment(command, args)
}

/// Does the same for the commands of `weir fleet` that read values of flags.
#[cfg(test)]
pub(crate) fn check_fleet(
    command: &str,
    args: CommandArgs<'_>,
) -> Result<(), Vec<record::problem::InputProblem>> {
    fleet::check(command, args)
}

/// Does the same for `weir plan`.
#[cfg(test)]
pub(crate) fn check_plan(args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    plan::read_request(args).map(|_| ())
}

/// Returns everything that is wrong with the flags of `weir watch`, for the test of the flag
/// tables.
#[cfg(test)]
pub(crate) fn check_watch(args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    watch::check(args)
}
