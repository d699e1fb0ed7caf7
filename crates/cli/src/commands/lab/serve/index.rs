//! List of experiments, with a filter and the choice of two for a comparison.

use record::experiment::ComparisonOutcome;

use super::html::{escape, link, page};
use crate::commands::lab::experiments::{ExperimentRow, ExperimentState};

/// Returns the page. `filter` keeps the rows that contain each of its words. `is_truncated` is true if
/// the directory has more entries than were listed. `runs` has the sections of the stored runs.
pub(super) fn index(
    directory: &str,
    rows: &[ExperimentRow],
    filter: &str,
    is_truncated: bool,
    runs: &str,
) -> String {
    let matching: Vec<&ExperimentRow> = rows.iter().filter(|row| matches_filter(row, filter)).collect();
    let mut body = format!(
        "<form method=\"get\" action=\"/\"><input name=\"filter\" value=\"{}\" placeholder=\"words\" \
         aria-label=\"filter by words\"> <button>Filter</button></form>\n",
        escape(filter)
    );
    if is_truncated {
        body.push_str("<p class=\"note\">The directory has more entries than are listed.</p>\n");
    }
    if matching.is_empty() {
        let message = if rows.is_empty() { "is no experiment yet" } else { "is no match" };
        body.push_str(&format!("<p>In {} there {message}.</p>\n{runs}", escape(directory)));
        return page("Experiments", None, &body);
    }
    body.push_str(
        "<form method=\"get\" action=\"/compare\"><table class=\"cards\"><thead><tr><th>A</th><th>B</th><th>When</th>\
         <th>Experiment</th><th class=\"n\">Arms</th><th class=\"n\">Loads</th><th class=\"n\">Blocks</th>\
         <th>Conclusion</th></tr></thead><tbody>\n",
    );
    for (at, row) in matching.iter().enumerate() {
        body.push_str(&row_html(row, at));
    }
    body.push_str("</tbody></table><p><button>Compare A and B</button></p></form>\n");
    body.push_str(runs);
    page("Experiments", None, &body)
}

fn row_html(row: &ExperimentRow, at: usize) -> String {
    let choice = |name: &str, chosen: usize| {
        format!(
            "<td class=\"choice\" data-label=\"{}\"><input type=\"radio\" name=\"{name}\" value=\"{}\" aria-label=\"{name}: {}\"{}></td>",
            name.to_uppercase(),
            escape(&row.directory),
            escape(&row.directory),
            if at == chosen { " checked" } else { "" }
        )
    };
    // The older one is A, so that the comparison shows the later changes.
    format!(
        "<tr>{}{}<td data-label=\"When\">{}</td><td><a href=\"{}\">{}</a>{}<br>{}</td>\
         <td class=\"n\" data-label=\"Arms\">{}</td><td class=\"n\" data-label=\"Loads\">{}</td>\
         <td class=\"n\" data-label=\"Blocks\">{}</td><td>{}{}</td></tr>\n",
        choice("a", 1),
        choice("b", 0),
        escape(&minute(&row.started_at)),
        link(&row.directory),
        escape(&row.name),
        file_links(row),
        escape(&row.title),
        row.arms.len(),
        row.loads,
        row.blocks,
        outcome_badges(row),
        escape(&row.conclusion),
    )
}

/// Returns the date and the minute of a time of RFC 3339, which can wrap between them.
pub(super) fn minute(time: &str) -> String {
    time.get(..16).map_or_else(|| time.to_owned(), |minute| minute.replacen('T', " ", 1))
}

/// Maximum number of outcomes in the list.
const OUTCOMES_SHOWN: usize = 6;

/// Returns links to the files for other readers.
fn file_links(row: &ExperimentRow) -> String {
    if !matches!(row.state, ExperimentState::Done | ExperimentState::Partial) {
        return String::new();
    }
    let directory = link(&row.directory);
    let names = [("experiment.json", "JSON"), ("report.md", "Markdown")];
    let links = names.map(|(file, name)| format!(" <a href=\"{directory}{file}\">{name}</a>"));
    links.concat()
}

/// Returns the outcome of each arm in the primary metric, and the state of an unfinished
/// experiment.
fn outcome_badges(row: &ExperimentRow) -> String {
    let mut text = String::new();
    if row.state != ExperimentState::Done {
        text.push_str(&format!("<span class=\"badge state\">{}</span>", row.state.as_str()));
    }
    for one in row.outcomes.iter().take(OUTCOMES_SHOWN) {
        let ratio = one.ratio.map(|ratio| format!(" {ratio:.3}")).unwrap_or_default();
        let class = ComparisonOutcome::as_str(one.outcome);
        text.push_str(&format!(
            "<span class=\"badge {class}\">{} {}{ratio}</span>",
            escape(&one.label),
            one.word
        ));
    }
    let more = row.outcomes.len().saturating_sub(OUTCOMES_SHOWN);
    if more > 0 {
        text.push_str(&format!("<span class=\"note\">and {more} more</span>"));
    }
    if !text.is_empty() {
        text.push_str("<br>");
    }
    text
}

/// Returns whether a row contains each word of the filter, ignoring case.
fn matches_filter(row: &ExperimentRow, filter: &str) -> bool {
    let arms = row.arms.join(" ");
    matches_words(&[&row.directory, &row.name, &row.title, &row.started_at, &row.conclusion, &arms], filter)
}

/// Returns whether the texts of a row contain each word of the filter, ignoring case.
pub(super) fn matches_words(texts: &[&str], filter: &str) -> bool {
    let all = texts.join("\n").to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| all.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::experiments::ArmOutcome;

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
        let all = index("f", &rows, "", false, "");
        assert!(all.contains("/x/one-1/") && all.contains("/x/two-1/"), "{all}");
        assert!(!all.contains("<b>") && all.contains("x better 1.250"), "{all}");
        let one = index("f", &rows, "TWO sais", false, "");
        assert!(!one.contains("/x/one-1/") && one.contains("/x/two-1/"), "{one}");
        assert!(index("f", &rows, "three", true, "").contains("no match"));
        let evil = index("f", &rows, "\"><script>", false, "");
        assert!(!evil.contains("<script>"), "{evil}");
    }

    #[test]
    fn a_running_experiment_is_marked() {
        let mut rows = [row("one")];
        rows[0].state = ExperimentState::Running;
        assert!(index("f", &rows, "", false, "").contains(">running<"));
    }
}
