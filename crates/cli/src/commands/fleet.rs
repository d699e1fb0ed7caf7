//! `weir fleet`: agents and coordinators of a load on many machines.

mod agent;
mod agent_facts;
mod edge;
mod job;
mod load;
mod load_options;
mod ls;
mod role;
mod run;
mod runs;
mod serve;
mod trial;

use fleet::coordinator::service::CoordinatorSession;
use fleet::session;
use fleet::transport::NatsOptions;
use rt::drain::{SignalSet, block_signals};
use rt::tokio::sync::watch;

pub(super) use agent_facts::ExperimentAgents;
pub(super) use runs::parse_bucket;
pub(super) use trial::{FleetRunner, fleet_load_problems, machine_problems};

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_problems, short_help_of};
use crate::output::print;
use crate::streams::notice;

pub(super) fn run(args: CommandArgs<'_>, arguments: &[String]) -> Result<Exit, Failure> {
    match args.0.subcommand() {
        Some(("serve", args)) => serve::run(CommandArgs(args)),
        Some(("agent", args)) => agent::run(CommandArgs(args)),
        Some(("ls", args)) => ls::run(CommandArgs(args)),
        Some(("load", args)) => load::run(CommandArgs(args)),
        Some(("edge", args)) => edge::run(CommandArgs(args), arguments),
        Some(("runs", args)) => runs::run(CommandArgs(args)),
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

/// Connects a coordinator, which prints its notices.
fn connect(
    nats: &NatsOptions,
    signals: Option<&watch::Receiver<u32>>,
) -> Result<CoordinatorSession, Failure> {
    session::connect(nats, signals, notice)
}

fn check_nats(args: CommandArgs<'_>) -> Result<(), Failure> {
    let problems = nats_problems(args);
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Returns whether the flags of `weir fleet serve` and `weir fleet agent` are right, for the test of the flag
/// tables.
#[cfg(test)]
pub(crate) fn check(command: &str, args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    match command {
        "fleet serve" => serve::parse(args).map(|_| ()),
        "fleet agent" => agent::parse(args).map(|_| ()),
        "fleet runs" => runs::parse(args).map(|_| ()),
        "fleet role" => role::parse_role(args).map(|_| ()),
        _ => load_options::parse_fleet_flags(args).map(|_| ()),
    }
}
