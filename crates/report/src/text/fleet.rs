//! Fleet of a run as text, and its agents.

use record::fleet::{AgentOutcome, AgentRow, Fleet};
use record::units::{format_duration_ns, format_rate};

use super::table::table;

pub fn format_fleet(fleet: &Fleet) -> String {
    let complete = fleet.agents.iter().filter(|agent| agent.outcome != AgentOutcome::Lost).count();
    format!(
        "{complete} of {} agents, started within {} (± {})",
        fleet.agents.len(),
        format_duration_ns(fleet.start_skew_ns),
        format_duration_ns(fleet.start_skew_error_ns)
    )
}

pub const AGENT_COLUMNS: [&str; 10] =
    ["agent", "load", "good rate", "p50", "p99", "failed", "CPU", "start", "wall clock", "validity"];

pub fn format_fleet_agents(fleet: &Fleet) -> String {
    let mut rows = vec![AGENT_COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(fleet.agents.iter().map(agent_row));
    table(&rows)
}

/// Returns the cells of an agent, in the order of [`AGENT_COLUMNS`].
pub fn agent_row(agent: &AgentRow) -> Vec<String> {
    let unknown = || "-".to_owned();
    let figures = agent.figures.as_ref();
    let figure =
        |format: &dyn Fn(&record::fleet::AgentFigures) -> String| figures.map_or_else(unknown, format);
    let verdict = match agent.outcome {
        AgentOutcome::Lost => "lost".to_owned(),
        AgentOutcome::Returned => {
            format!(
                "{} (was lost)",
                figure(&|agent_figures| agent_figures.validity.verdict.as_str().to_owned())
            )
        }
        AgentOutcome::Complete => figure(&|agent_figures| agent_figures.validity.verdict.as_str().to_owned()),
    };
    let wall_ns = agent.clock.wall_offset_ns;
    let sign = if wall_ns < 0 { "-" } else { "+" };
    vec![
        agent.name.clone(),
        format!("{:.0} %", agent.load_fraction * 100.0),
        figure(&|agent_figures| format_rate(agent_figures.responses_per_s)),
        figure(&|agent_figures| format_duration_ns(agent_figures.p50_ns)),
        figure(&|agent_figures| format_duration_ns(agent_figures.p99_ns)),
        figure(&|agent_figures| agent_figures.failed.to_string()),
        figure(&|agent_figures| {
            agent_figures
                .busiest_thread_fraction
                .map_or_else(unknown, |busy| format!("{:.0} %", busy * 100.0))
        }),
        agent.start_after_ns.map_or_else(unknown, |ns| format!("+{}", format_duration_ns(ns))),
        format!("{sign}{}", format_duration_ns(wall_ns.unsigned_abs())),
        verdict,
    ]
}
