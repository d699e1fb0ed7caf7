//! `weir fleet`: agents and coordinators of a load on many machines.

mod agent;
mod edge;
mod job;
mod load;
mod ls;
mod role;
mod run;
mod serve;
mod trial;

use rt::drain::{SignalSet, block_signals};
use rt::tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, short_help_of};
use crate::output::print;

pub(super) use trial::{FleetRunner, fleet_load_problems, machine_problems};

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    match args.0.subcommand() {
        Some(("serve", args)) => serve::run(CommandArgs(args)),
        Some(("agent", args)) => agent::run(CommandArgs(args)),
        Some(("ls", args)) => ls::run(CommandArgs(args)),
        Some(("load", args)) => load::run(CommandArgs(args)),
        Some(("edge", args)) => edge::run(CommandArgs(args), arguments),
        Some(("run", args)) => run::run(CommandArgs(args)),
        Some(("role", args)) => role::run(CommandArgs(args), arguments),
        _ => {
            print(&(short_help_of("fleet") + "\n"));
            Ok(Exit::Usage)
        }
    }
}

/// Returns the number of SIGTERM and SIGINT so far. Called before any other thread is started.
fn count_signals(on_signal: impl Fn(u32) + Send + 'static) -> Result<watch::Receiver<u32>, Failure> {
    let (sender, receiver) = watch::channel(0);
    block_signals(SignalSet::Termination)?.spawn_listener(move |_| {
        sender.send_modify(|count| *count += 1);
        on_signal(*sender.borrow());
        true
    })?;
    Ok(receiver)
}

/// Returns `CLOCK_MONOTONIC` and the wall clock, in ns.
fn clocks() -> (u64, u64) {
    (rt::clock::now_ns(), rt::clock::unix_ns())
}

/// Prints a change.
fn notice(text: &str) {
    warn!("weir: {text}");
}

/// Returns whether the flags of `weir fleet serve` and `weir fleet agent` are right, for the test of the flag
/// tables.
#[cfg(test)]
pub(crate) fn check(command: &str, args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    match command {
        "fleet serve" => serve::parse(args).map(|_| ()),
        "fleet agent" => agent::parse(args).map(|_| ()),
        "fleet role" => role::RolePlan::parse(args).map(|_| ()),
        _ => load::parse_own_flags(args).map(|_| ()),
    }
}
