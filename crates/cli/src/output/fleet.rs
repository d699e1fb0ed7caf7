//! Fleets as text: the known agents, and the agents of a run.

use fleet::coordinator::service::KnownAgent;
use fleet::message::{AgentStatus, RunState};
use fleet::run_store::RunDescription;
use record::fleet::{AgentOutcome, AgentRow, Fleet};
use record::run::Run;
use record::units::{format_bytes, format_count, format_duration_ns, format_plural, format_rate};

use super::summary::{format_plan, format_target};
use super::table::table;
use crate::text::fit;

/// Formats the known agents, one a line.
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

/// Formats the fleet of a run in one line.
pub(crate) fn format_fleet(fleet: &Fleet) -> String {
    let complete = fleet.agents.iter().filter(|agent| agent.outcome != AgentOutcome::Lost).count();
    format!(
        "{complete} of {} agents, started within {} (± {})",
        fleet.agents.len(),
        format_duration_ns(fleet.start_skew_ns),
        format_duration_ns(fleet.start_skew_error_ns)
    )
}

/// Columns of the agents of a run.
pub(crate) const AGENT_COLUMNS: [&str; 10] =
    ["agent", "load", "good rate", "p50", "p99", "failed", "CPU", "start", "wall clock", "verdict"];

/// Formats the agents of a run, one a line.
pub(crate) fn format_fleet_agents(fleet: &Fleet) -> String {
    let mut rows = vec![AGENT_COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(fleet.agents.iter().map(agent_row));
    table(&rows)
}

/// Maximum length of the description of a load.
const LOAD_WIDTH: usize = 200;

/// Describes a run for lists.
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

/// Returns the cells of an agent, in the order of [`AGENT_COLUMNS`].
pub(crate) fn agent_row(agent: &AgentRow) -> Vec<String> {
    let unknown = || "-".to_owned();
    let figures = agent.figures.as_ref();
    let figure =
        |format: &dyn Fn(&record::fleet::AgentFigures) -> String| figures.map_or_else(unknown, format);
    let verdict = match agent.outcome {
        AgentOutcome::Lost => "lost".to_owned(),
        AgentOutcome::Returned => {
            format!("{} (was lost)", figure(&|one| one.validity.verdict.as_str().to_owned()))
        }
        AgentOutcome::Complete => figure(&|one| one.validity.verdict.as_str().to_owned()),
    };
    let wall_ns = agent.clock.wall_offset_ns;
    let sign = if wall_ns < 0 { "-" } else { "+" };
    vec![
        agent.name.clone(),
        format!("{:.0} %", agent.load_fraction * 100.0),
        figure(&|one| format_rate(one.responses_per_s)),
        figure(&|one| format_duration_ns(one.p50_ns)),
        figure(&|one| format_duration_ns(one.p99_ns)),
        figure(&|one| one.failed.to_string()),
        figure(&|one| {
            one.busiest_thread_fraction.map_or_else(unknown, |busy| format!("{:.0} %", busy * 100.0))
        }),
        agent.start_after_ns.map_or_else(unknown, |ns| format!("+{}", format_duration_ns(ns))),
        format!("{sign}{}", format_duration_ns(wall_ns.unsigned_abs())),
        verdict,
    ]
}
