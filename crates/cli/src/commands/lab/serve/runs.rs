//! Stored runs of a fleet: their list, and the page of one.

use record::run::Run;

use super::html::{escape, link_below, page};
use super::index::{matches_words, minute};
use crate::commands::lab::stored_runs::{RunListing, RunRow};
use crate::output::fleet::{AGENT_COLUMNS, agent_row, format_fleet, run_description};
use crate::output::summary::summary;

/// Returns the section of the list; empty without a run. `route` has the pages of the runs.
pub(super) fn section(title: &str, route: &str, listing: &RunListing, filter: &str) -> String {
    if listing.rows.is_empty() {
        return String::new();
    }
    let mut text = format!("<h2>{}</h2>\n", escape(title));
    if listing.is_truncated {
        text.push_str("<p class=\"note\">There are more runs than are listed.</p>\n");
    }
    let rows: Vec<&RunRow> = listing.rows.iter().filter(|row| matches_filter(row, filter)).collect();
    if rows.is_empty() {
        return text + "<p>There is no match.</p>\n";
    }
    text.push_str(
        "<table class=\"cards\"><thead><tr><th>When</th><th>Run</th><th>Load</th><th>Result</th></tr></thead><tbody>\n",
    );
    for row in rows {
        let base = link_below(route, &row.path);
        text.push_str(&format!(
            "<tr><td data-label=\"When\">{}</td><td><a href=\"{base}\">{}</a> <a href=\"{base}merged.json\">JSON</a></td>\
             <td data-label=\"Load\">{}</td><td>{}{}</td></tr>\n",
            escape(&minute(&row.time)),
            escape(&row.path),
            escape(&row.description.load),
            badge(&row.description.verdict),
            escape(row.problem.as_deref().unwrap_or(&row.description.result)),
        ));
    }
    text + "</tbody></table>\n"
}

/// Returns the page of a run. `route` has its records, and `agents` are those whose records are stored.
pub(super) fn run_page(route: &str, name: &str, run: &Run, agents: &[String]) -> String {
    let base = link_below(route, name);
    let description = run_description(run);
    let mut body = format!(
        "<p><a href=\"/\">All experiments and runs</a></p>\n<p>{}, since {}</p>\n<p>{}{}</p>\n<p>{}</p>\n\
         <p><a href=\"{base}merged.json\">JSON</a></p>\n",
        escape(&description.load),
        escape(&run.started_at),
        badge(&description.verdict),
        run.diagnosis.as_ref().map_or_else(String::new, |diagnosis| badge(&diagnosis.verdict)),
        escape(&run.fleet.as_ref().map_or_else(String::new, format_fleet)),
    );
    body.push_str(&agent_table(&base, run, agents));
    body.push_str(&format!("<h2>Result</h2>\n<pre>{}</pre>\n", escape(&summary(run, true, false))));
    page(name, None, &body)
}

/// Returns a row for each agent; empty without a fleet.
fn agent_table(base: &str, run: &Run, stored: &[String]) -> String {
    let Some(fleet) = &run.fleet else { return String::new() };
    let heads: Vec<String> = AGENT_COLUMNS.iter().map(|column| format!("<th>{column}</th>")).collect();
    let mut text = format!(
        "<h2>Agents</h2>\n<table class=\"cards\"><thead><tr>{}</tr></thead><tbody>\n",
        heads.concat()
    );
    for agent in &fleet.agents {
        let cells = agent_row(agent).into_iter().zip(AGENT_COLUMNS).map(|(cell, column)| {
            let content = match column == AGENT_COLUMNS[0] && stored.contains(&agent.name) {
                // The name of an agent has no other characters than those of a path.
                true => format!("<a href=\"{base}agents/{0}.json\">{0}</a>", escape(&agent.name)),
                false => escape(&cell),
            };
            format!("<td data-label=\"{column}\">{content}</td>")
        });
        text.push_str(&format!("<tr>{}</tr>\n", cells.collect::<String>()));
        if !agent.problem.is_empty() {
            text.push_str(&format!(
                "<tr><td class=\"note\" colspan=\"{}\">{}</td></tr>\n",
                AGENT_COLUMNS.len(),
                escape(&agent.problem)
            ));
        }
    }
    text + "</tbody></table>\n"
}

fn badge(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("<span class=\"badge {0}\">{0}</span>", escape(text)),
    }
}

fn matches_filter(row: &RunRow, filter: &str) -> bool {
    let RunRow { path, time, description, problem } = row;
    let problem = problem.as_deref().unwrap_or_default();
    matches_words(
        &[path, time, &description.load, &description.result, &description.verdict, problem],
        filter,
    )
}

#[cfg(test)]
mod tests {
    use fleet::run_store::RunDescription;
    use record::fleet::{AgentClock, AgentOutcome, AgentRow, Fleet};

    use super::*;
    use crate::output::summary::tests::run_with_everything;

    #[test]
    fn runs_are_filtered_linked_and_escaped() {
        let row = |path: &str| RunRow {
            path: path.to_owned(),
            time: "2026-01-02T03:04:05Z".to_owned(),
            description: RunDescription {
                load: "<b>GET</b>".to_owned(),
                result: "2 agents".to_owned(),
                verdict: "valid".to_owned(),
            },
            problem: None,
        };
        let listing = RunListing { rows: vec![row("a/one"), row("two")], is_truncated: false };
        let text = section("Runs", "run", &listing, "");
        for part in ["/run/a/one/", "/run/two/merged.json", "badge valid", "2026-01-02 03:04"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("<b>"), "{text}");
        let text = section("Runs", "run", &listing, "TWO agents");
        assert!(!text.contains("/run/a/one/") && text.contains("/run/two/"), "{text}");
        assert_eq!(section("Runs", "run", &RunListing::default(), ""), "");
    }

    #[test]
    fn a_page_has_a_row_for_each_agent_and_no_markup_of_the_record() {
        let agent = |name: &str, problem: &str| AgentRow {
            name: name.to_owned(),
            outcome: AgentOutcome::Lost,
            problem: problem.to_owned(),
            load_fraction: 0.5,
            clock: AgentClock::default(),
            start_after_ns: None,
            figures: None,
        };
        let fleet = Fleet { agents: vec![agent("a", ""), agent("b", "<script>")], ..Fleet::default() };
        let run = Run { fleet: Some(fleet), started_at: "<script>".to_owned(), ..run_with_everything() };
        let text = run_page("run", "<script>", &run, &["a".to_owned()]);
        assert!(
            text.contains("/run/%3Cscript%3E/agents/a.json") && !text.contains("agents/b.json"),
            "{text}"
        );
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"), "{text}");
        assert!(text.contains("0 of 2 agents"), "{text}");
    }
}
