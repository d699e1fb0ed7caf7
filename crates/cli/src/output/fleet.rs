//! Known agents of a fleet as text, and the description of a run in lists.

use fleet::coordinator::service::KnownAgent;
use fleet::message::{AgentStatus, RunState};
use fleet::run_store::RunDescription;
use record::run::Run;
use record::units::{format_bytes, format_count, format_duration_ns, format_plural, format_rate};
use report::text::layout::fit;
use report::text::summary::{format_plan, format_target};
use report::text::table::table;

pub(crate) fn format_agents(agents: &[KnownAgent]) -> String {
    let titles =
        ["agent", "state", "stored", "roles", "CPUs", "memory", "capacity", "fastest link", "NTP", "labels"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for KnownAgent { facts, status } in agents {
        let roles: Vec<&str> = facts.roles.iter().map(|role| role.name()).collect();
        let speed = facts.links.iter().filter_map(|(_, speed)| *speed).reduce(f64::max);
        let labels: Vec<String> = facts.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let unknown = || "-".to_owned();
        rows.push(vec![
            facts.name.to_string(),
            state_text(status.as_ref()).to_owned(),
            status.as_ref().map_or_else(unknown, |status| status.stored.len().to_string()),
            roles.join(","),
            facts.host.cpus.to_string(),
            format_bytes(facts.host.memory_bytes as f64),
            facts.capacity_per_s.map_or_else(unknown, format_rate),
            speed.map_or_else(unknown, |bits| format!("{} bit/s", format_count(bits))),
            facts.clock_synchronized.map_or_else(unknown, |is_synchronized| {
                (if is_synchronized { "yes" } else { "no" }).to_owned()
            }),
            if labels.is_empty() { unknown() } else { labels.join(",") },
        ]);
    }
    table(&rows)
}

fn state_text(status: Option<&AgentStatus>) -> &'static str {
    match status {
        None => "unknown",
        Some(status) if status.draining => "draining",
        Some(status) => match status.run.as_ref().map(|run| &run.state) {
            None | Some(RunState::Failed { .. }) => "idle",
            Some(RunState::Preparing) => "preparing",
            Some(RunState::Ready { .. }) => "ready",
            Some(RunState::Running { .. }) => "running",
        },
    }
}

/// Maximum length of the description of a load.
const LOAD_WIDTH: usize = 200;

pub(crate) fn run_description(run: &Run) -> RunDescription {
    let agents = run.fleet.as_ref().map_or(0, |fleet| fleet.agents.len());
    RunDescription {
        load: fit(&format!("{}: {}", format_target(run), format_plan(run)), LOAD_WIDTH),
        result: format!(
            "{}, {}, p99 {}",
            format_plural(agents as u64, "agent"),
            format_rate(run.rates.responses_per_s),
            format_duration_ns(run.latency.last_byte.response.p99_ns),
        ),
        verdict: run.validity.verdict.as_str().to_owned(),
    }
}
