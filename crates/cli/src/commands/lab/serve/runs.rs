//! Stored runs of a fleet: their list, and the page of one.

use maud::{Markup, html};
use record::fleet::Fleet;
use record::run::Run;
use report::lab_pages::html::{link_below, link_to_index, page, table};
use report::lab_pages::{matches_words, minute};
use report::text::fleet::{AGENT_COLUMNS, agent_row, format_fleet};
use report::text::summary::{Detail, summary};

use crate::commands::lab::stored_runs::{RunListing, RunRow};
use crate::output::fleet::run_description;

/// Returns the section of the list; empty without a run. `route` has the pages of the runs.
pub(super) fn section(title: &str, route: &str, listing: &RunListing, filter: &str) -> Markup {
    if listing.rows.is_empty() {
        return html! {};
    }
    let rows: Vec<&RunRow> = listing.rows.iter().filter(|row| matches_filter(row, filter)).collect();
    let heads = ["When", "Run", "Load", "Result"].map(|head| (head, false));
    html! {
        h2 { (title) }
        @if listing.is_truncated { p.note { "There are more runs than are listed." } }
        @if rows.is_empty() {
            p { "There is no match." }
        } @else {
            (table(&heads, &html! { @for row in rows { (run_row(route, row)) } }))
        }
    }
}

fn run_row(route: &str, row: &RunRow) -> Markup {
    let base = link_below(route, &row.path);
    html! {
        tr {
            td data-label="When" { (minute(&row.time)) }
            td { a href=(base) { (row.path) } " " a href={ (base) "merged.json" } { "JSON" } }
            td data-label="Load" { (row.description.load) }
            td {
                (badge(&row.description.verdict))
                (row.problem.as_deref().unwrap_or(&row.description.result))
            }
        }
    }
}

/// Returns the page of a run. `route` has its records, and `agents` are those whose records are stored.
pub(super) fn run_page(route: &str, name: &str, run: &Run, agents: &[String]) -> String {
    let base = link_below(route, name);
    let description = run_description(run);
    let body = html! {
        (link_to_index("All experiments and runs"))
        p { (description.load) ", since " (run.started_at) }
        p {
            (badge(&description.verdict))
            @if let Some(diagnosis) = &run.diagnosis { (badge(&diagnosis.verdict)) }
        }
        p { @if let Some(fleet) = &run.fleet { (format_fleet(fleet)) } }
        p { a href={ (base) "merged.json" } { "JSON" } }
        @if let Some(fleet) = &run.fleet {
            h2 { "Agents" }
            (agent_table(&base, fleet, agents))
        }
        h2 { "Result" }
        pre { (summary(run, Detail::Verbose, false)) }
    };
    page(name, None, &body)
}

fn agent_table(base: &str, fleet: &Fleet, stored: &[String]) -> Markup {
    let rows = html! {
        @for agent in &fleet.agents {
            tr {
                @for (cell, column) in agent_row(agent).into_iter().zip(AGENT_COLUMNS) {
                    td data-label=(column) {
                        @if column == AGENT_COLUMNS[0] && stored.contains(&agent.name) {
                            // The name of an agent has no other characters than those of a path.
                            a href={ (base) "agents/" (agent.name) ".json" } { (agent.name) }
                        } @else {
                            (cell)
                        }
                    }
                }
            }
            @if !agent.problem.is_empty() {
                tr { td.note colspan=(AGENT_COLUMNS.len()) { (agent.problem) } }
            }
        }
    };
    table(&AGENT_COLUMNS.map(|column| (column, false)), &rows)
}

fn badge(text: &str) -> Markup {
    html! { @if !text.is_empty() { span.badge.(text) { (text) } } }
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
    use record::fleet::{AgentClock, AgentOutcome, AgentRow};

    use super::*;
    use crate::commands::lab::stored_runs::tests::stored_run;

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
        let text = section("Runs", "run", &listing, "").into_string();
        for part in ["/run/a/one/", "/run/two/merged.json", "badge valid", "2026-01-02 03:04"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("<b>"), "{text}");
        let text = section("Runs", "run", &listing, "TWO agents").into_string();
        assert!(!text.contains("/run/a/one/") && text.contains("/run/two/"), "{text}");
        assert_eq!(section("Runs", "run", &RunListing::default(), "").into_string(), "");
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
        let run = Run { fleet: Some(fleet), started_at: "<script>".to_owned(), ..stored_run() };
        let text = run_page("run", "<script>", &run, &["a".to_owned()]);
        assert!(
            text.contains("/run/%3Cscript%3E/agents/a.json") && !text.contains("agents/b.json"),
            "{text}"
        );
        assert!(text.contains("&lt;script&gt;") && !text.contains("<script>"), "{text}");
        assert!(text.contains("0 of 2 agents"), "{text}");
    }
}
