//! `weir fleet serve`: a NATS server and agents on this machine.

use std::process::Command;
use std::time::Duration;

use fleet::agent::service::{AgentConfig, run as run_agent};
use fleet::embedded::EmbeddedServer;
use fleet::local_agent::{AgentOptions, facts, stored_capacity};
use fleet::message::AgentName;
use fleet::transport::NatsOptions;
use host::sandbox::launch::Launch;
use record::problem::InputProblem;
use record::units::parse_count;

use super::agent::{config, state_directory};
use super::count_signals;
use crate::exit::{Exit, Failure};
use crate::flags::CommandArgs;
use crate::output::print;

#[derive(Clone, Copy, Debug)]
pub(super) struct ServeOptions {
    agents: u64,
    port: u16,
}

const AGENTS_MAX: u64 = 64;
/// Maximum time for the start of the server.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Parses the flags; reports every problem at once.
pub(super) fn parse(args: CommandArgs<'_>) -> Result<ServeOptions, Vec<InputProblem>> {
    let mut problems = Vec::new();
    let mut count = |flag: &str, default: u64, max: u64| {
        let Some(text) = args.text(flag) else { return default };
        match parse_count(&text) {
            Ok(count) if count <= max => count,
            _ => {
                problems.push(InputProblem::new(
                    format!("--{flag}"),
                    format!("'{text}' is not within 0 to {max}"),
                ));
                default
            }
        }
    };
    let (agents, port) = (count("agents", 0, AGENTS_MAX), count("port", 4222, u16::MAX.into()));
    match problems.is_empty() {
        // Invariant: the count is within the range of a port.
        true => Ok(ServeOptions { agents, port: u16::try_from(port).unwrap_or(0) }),
        false => Err(problems),
    }
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let options = parse(args)?;
    if !args.is_set("embedded") {
        let text = "add --embedded: it starts the program nats-server; weir has no server of its own";
        return Err(vec![InputProblem::new("weir fleet serve", text)].into());
    }
    let signals = count_signals(|_| ())?;
    let directory = state_directory(args, &AgentName::from_host("nats"))?;
    let search = host::sandbox::programs::search_directories();
    let cannot = |error: fleet::embedded::EmbeddedError| Failure::cannot_run(error);
    let token = rt::machine::random_bytes().map_err(|error| Failure::cannot("random numbers", error))?;
    // This thread lives until the end; if it is killed, the kernel kills the server.
    let spawn = |command: &mut Command| Launch::default().spawn(command);
    let mut server =
        EmbeddedServer::start(&directory, &search, options.port, token, spawn).map_err(cannot)?;
    wait_for(&mut server)?;
    let url = server.url();
    print(&format!("listening on {url} (process {}; data in {})\n", server.pid(), directory.display()));
    let agents = start_agents(args, options.agents, &server, &signals)?;
    let mut nats = if options.port == 4222 { String::new() } else { format!(" --nats {url}") };
    // Other commands find the default one.
    if args.text("state").is_some() {
        nats.push_str(&format!(" --nats-token {}", server.token_file().display()));
    }
    if options.agents == 0 {
        print(&format!("next: weir fleet agent{nats}\n"));
    }
    print(&format!("next: weir fleet load{nats} -d 10s http://HOST/\n"));
    while *signals.borrow() == 0 {
        std::thread::sleep(POLL_INTERVAL);
        server.check().map_err(cannot)?;
    }
    for agent in agents {
        // The message of an agent that failed was printed by its thread.
        let _ = agent.join();
    }
    Ok(Exit::Done)
}

fn wait_for(server: &mut EmbeddedServer) -> Result<(), Failure> {
    let until_ns = rt::clock::now_ns() + START_TIMEOUT.as_nanos() as u64;
    while !server.poll_ready().map_err(Failure::cannot_run)? {
        if rt::clock::now_ns() > until_ns {
            return Err(Failure::CannotRun("nats-server accepts no connections".to_owned()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn start_agents(
    args: CommandArgs<'_>,
    count: u64,
    server: &EmbeddedServer,
    signals: &rt::tokio::sync::watch::Receiver<u32>,
) -> Result<Vec<std::thread::JoinHandle<()>>, Failure> {
    let host = host::facts::read();
    let capacity_per_s = stored_capacity(&host);
    let mut agents = Vec::new();
    for number in 1..=count {
        let name = AgentName::from_host(&format!("local-{number}"));
        let nats = NatsOptions {
            url: server.url(),
            token: Some(server.token_file().to_owned()),
            name: format!("weir agent {name}"),
            ..NatsOptions::default()
        };
        let directory = state_directory(args, &name)?;
        let facts = facts(
            name.clone(),
            &AgentOptions::for_load(),
            host.clone(),
            (env!("WEIR_VERSION"), capacity_per_s),
        );
        let signals = signals.clone();
        let thread = std::thread::Builder::new().name(format!("agent-{number}"));
        // The check of a job belongs to its thread.
        agents.push(thread.spawn(move || {
            let run = || {
                let config = config(facts)?;
                let config = AgentConfig { nats, state_directory: directory, ..config };
                run_agent(config, signals).map_err(Failure::cannot_run)
            };
            if let Err(failure) = run() {
                warn!("weir: agent {name}: {}", failure.lines().join("; "));
            }
        })?);
        print(&format!("agent local-{number}\n"));
    }
    Ok(agents)
}
