//! `weir fleet`: agents and coordinators of a load on many machines.

mod agent;
mod agent_facts;
mod edge;
mod fleet_load;
mod job;
mod load;
mod ls;
mod role;
mod run;
mod run_files;
mod runs;
mod serve;
mod trial;

use std::time::Duration;

use fleet::coordinator::service::{CoordinatorSession, FleetObserver};
use fleet::transport::{NatsOptions, TransportError};
use rt::drain::{SignalSet, block_signals};
use rt::tokio::sync::watch;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_problems, short_help_of};
use crate::output::print;

pub(super) use agent_facts::ExperimentAgents;
pub(super) use runs::parse_bucket;
pub(super) use trial::{FleetRunner, fleet_load_problems, machine_problems};

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

/// Maximum wait of a coordinator for a server that is not reachable.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Connects a coordinator. `signals` are the requests of the user to end; `None`: a signal ends the process.
fn connect(
    nats: &NatsOptions,
    signals: Option<&watch::Receiver<u32>>,
) -> Result<CoordinatorSession, Failure> {
    let stop = signals.cloned().unwrap_or_else(|| watch::channel(0).1);
    let connected = CoordinatorSession::connect_within(nats, clocks, CONNECT_WAIT, stop, notice);
    let session = connected.map_err(|error| {
        Failure::CannotRun(match error {
            TransportError::Unreachable { .. } => format!(
                "{error} (waited {} s; name the server with --nats, or start one with weir fleet serve --embedded)",
                CONNECT_WAIT.as_secs()
            ),
            error => error.to_string(),
        })
    })?;
    session.ok_or_else(|| Failure::CannotRun("stopped before the NATS server was reachable".to_owned()))
}

/// Checks the flags of the server.
fn check_nats(args: CommandArgs<'_>) -> Result<(), Failure> {
    let problems = nats_problems(args);
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Returns `CLOCK_MONOTONIC` and the wall clock, in ns.
fn clocks() -> (u64, u64) {
    (rt::clock::now_ns(), rt::clock::unix_ns())
}

/// Prints a change.
fn notice(text: &str) {
    warn!("weir: {text}");
}

/// Observer of a load without a live view.
struct Notices;

impl FleetObserver for Notices {
    fn on_notice(&mut self, text: &str) {
        notice(text);
    }
}

/// Returns whether the flags of `weir fleet serve` and `weir fleet agent` are right, for the test of the flag
/// tables.
#[cfg(test)]
pub(crate) fn check(command: &str, args: CommandArgs<'_>) -> Result<(), Vec<record::problem::InputProblem>> {
    match command {
        "fleet serve" => serve::parse(args).map(|_| ()),
        "fleet agent" => agent::parse(args).map(|_| ()),
        "fleet runs" => runs::parse(args).map(|_| ()),
        "fleet role" => role::RolePlan::parse(args).map(|_| ()),
        _ => fleet_load::FleetFlags::parse(args).map(|_| ()),
    }
}
