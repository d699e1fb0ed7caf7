//! List of experiments, with a filter and the choice of two for a comparison.

use experiment::list::{ExperimentRow, ExperimentState};
use maud::{Markup, html};
use record::experiment::ComparisonOutcome;

use super::html::{link, page, table};

/// Returns the page. `filter` keeps the rows that contain each of its words. `is_truncated` is true if
/// the directory has more entries than were listed. `runs` has the sections of the stored runs.
pub fn index(
    directory: &str,
    rows: &[ExperimentRow],
    filter: &str,
    is_truncated: bool,
    runs: &Markup,
) -> String {
    let matching: Vec<&ExperimentRow> = rows.iter().filter(|row| matches_filter(row, filter)).collect();
    let message = if rows.is_empty() { "is no experiment yet" } else { "is no match" };
    let body = html! {
        form method="get" action="/" {
            input name="filter" value=(filter) placeholder="words" aria-label="filter by words"; " "
            button { "Filter" }
        }
        @if is_truncated { p.note { "The directory has more entries than are listed." } }
        @if matching.is_empty() {
            p { "In " (directory) " there " (message) "." }
        } @else {
            form method="get" action="/compare" {
                (table(HEADS, &html! { @for (at, row) in matching.iter().enumerate() { (row_html(row, at)) } }))
                p { button { "Compare A and B" } }
            }
        }
        (runs)
    };
    page("Experiments", None, &body)
}

/// Heads of the list, and whether their column has figures.
const HEADS: &[(&str, bool)] = &[
    ("A", false),
    ("B", false),
    ("When", false),
    ("Experiment", false),
    ("Arms", true),
    ("Loads", true),
    ("Blocks", true),
    ("Conclusion", false),
];

fn row_html(row: &ExperimentRow, at: usize) -> Markup {
    let choice = |name: &str, chosen: usize| {
        html! {
            td.choice data-label=(name.to_uppercase()) {
                input type="radio" name=(name) value=(row.directory) checked[at == chosen]
                    aria-label={ (name) ": " (row.directory) };
            }
        }
    };
    html! {
        tr {
            // The older one is A, so that the comparison shows the later changes.
            (choice("a", 1)) (choice("b", 0))
            td data-label="When" { (minute(&row.started_at)) }
            td { a href=(link(&row.directory)) { (row.name) } (file_links(row)) br; (row.title) }
            td.n data-label="Arms" { (row.arms.len()) }
            td.n data-label="Loads" { (row.loads) }
            td.n data-label="Blocks" { (row.blocks) }
            td { (outcome_badges(row)) (row.conclusion) }
        }
    }
}

/// Returns the date and the minute of a time of RFC 3339, which can wrap between them.
pub fn minute(time: &str) -> String {
    time.get(..16).map_or_else(|| time.to_owned(), |minute| minute.replacen('T', " ", 1))
}

/// Maximum number of outcomes in the list.
const OUTCOMES_SHOWN: usize = 6;

fn file_links(row: &ExperimentRow) -> Markup {
    let directory = link(&row.directory);
    html! {
        @if matches!(row.state, ExperimentState::Done | ExperimentState::Partial) {
            @for (file, name) in [("experiment.json", "JSON"), ("report.md", "Markdown")] {
                " " a href={ (directory) (file) } { (name) }
            }
        }
    }
}

/// Returns the outcome of each arm in the primary metric, and the state of an unfinished
/// experiment.
fn outcome_badges(row: &ExperimentRow) -> Markup {
    let is_done = row.state == ExperimentState::Done;
    let more = row.outcomes.len().saturating_sub(OUTCOMES_SHOWN);
    html! {
        @if !is_done { span.badge.state { (row.state.as_str()) } }
        @for outcome in row.outcomes.iter().take(OUTCOMES_SHOWN) {
            span.badge.(ComparisonOutcome::as_str(outcome.outcome)) {
                (outcome.label) " " (outcome.word)
                @if let Some(ratio) = outcome.ratio { " " (format!("{ratio:.3}")) }
            }
        }
        @if more > 0 { span.note { "and " (more) " more" } }
        @if !is_done || !row.outcomes.is_empty() { br; }
    }
}

/// Returns whether a row contains each word of the filter, ignoring case.
fn matches_filter(row: &ExperimentRow, filter: &str) -> bool {
    let arms = row.arms.join(" ");
    matches_words(&[&row.directory, &row.name, &row.title, &row.started_at, &row.conclusion, &arms], filter)
}

/// Returns whether the texts of a row contain each word of the filter, ignoring case.
pub fn matches_words(texts: &[&str], filter: &str) -> bool {
    let all = texts.join("\n").to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| all.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::list::ArmOutcome;

    fn row(name: &str) -> ExperimentRow {
        ExperimentRow {
            directory: format!("{name}-1"),
            name: name.to_owned(),
            title: "<b>Is it?</b>".to_owned(),
            conclusion: "Je ne sais pas".to_owned(),
            outcomes: vec![ArmOutcome {
                label: "x".to_owned(),
                outcome: ComparisonOutcome::Faster,
                word: "better",
                ratio: Some(1.25),
            }],
            state: ExperimentState::Done,
            ..ExperimentRow::default()
        }
    }

    #[test]
    fn rows_are_filtered_and_escaped() {
        let rows = [row("one"), row("two")];
        let all = index("f", &rows, "", false, &html! {});
        assert!(all.contains("/x/one-1/") && all.contains("/x/two-1/"), "{all}");
        assert!(!all.contains("<b>") && all.contains("x better 1.250"), "{all}");
        let filtered = index("f", &rows, "TWO sais", false, &html! {});
        assert!(!filtered.contains("/x/one-1/") && filtered.contains("/x/two-1/"), "{filtered}");
        assert!(index("f", &rows, "three", true, &html! {}).contains("no match"));
        let evil = index("f", &rows, "\"><script>", false, &html! {});
        assert!(!evil.contains("<script>"), "{evil}");
    }

    #[test]
    fn a_running_experiment_is_marked() {
        let mut rows = [row("one")];
        rows[0].state = ExperimentState::Running;
        assert!(index("f", &rows, "", false, &html! {}).contains(">running<"));
    }
}
