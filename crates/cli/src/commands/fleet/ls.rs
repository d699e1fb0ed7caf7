//! `weir fleet ls`.

use std::time::Duration;

use fleet::coordinator::service::KnownAgent;
use fleet::message::{AgentFacts, AgentStatus};
use serde::Serialize;

use super::{check_nats, connect};
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, nats_options};
use crate::output::file::write_json;
use crate::output::fleet::format_agents;
use crate::output::print;
use crate::preflight;

/// Time for the answers: agents answer at once.
const WAIT: Duration = Duration::from_millis(1200);

#[derive(Debug, Serialize)]
struct AgentList {
    schema: &'static str,
    agents: Vec<ListedAgent>,
}

#[derive(Debug, Serialize)]
struct ListedAgent {
    #[serde(flatten)]
    facts: AgentFacts,
    status: Option<AgentStatus>,
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    preflight::outputs(args, &["json"], &[])?;
    check_nats(args)?;
    let nats = nats_options(args, "weir fleet ls");
    let mut session = connect(&nats, None)?;
    let agents = session.find_agents(WAIT, &|_| false);
    if args.text("json").as_deref() != Some("-") {
        match agents.is_empty() {
            true => print("no agent (start one with weir fleet agent)\n"),
            false => print(&format_agents(&agents)),
        }
    }
    let listed = agents.into_iter().map(|KnownAgent { facts, status }| ListedAgent { facts, status });
    let list = AgentList { schema: "weir.fleet/1", agents: listed.collect() };
    write_json(&list, args.text("json").as_deref())?;
    Ok(Exit::Done)
}
