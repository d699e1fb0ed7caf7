//! The list of experiments, with a filter, and two of them to be chosen for a comparison.

use record::experiment::Outcome;

use super::html::{escape, link, page};
use crate::commands::lab::experiments::{Row, State};

/// The page; `filter` keeps those in which each of its words stands somewhere. `cut`: there are more than
/// were looked at.
pub(super) fn index(folder: &str, rows: &[Row], filter: &str, cut: bool) -> String {
    let kept: Vec<&Row> = rows.iter().filter(|row| fits(row, filter)).collect();
    let mut body = format!(
        "<form method=\"get\" action=\"/\"><input name=\"filter\" value=\"{}\" placeholder=\"words\" \
         aria-label=\"words that must stand in it\"> <button>Filter</button></form>\n",
        escape(filter)
    );
    if cut {
        body.push_str("<p class=\"note\">There is more in the folder than is looked at.</p>\n");
    }
    if kept.is_empty() {
        let what =
            if rows.is_empty() { "is no experiment yet" } else { "is none with these words" };
        body.push_str(&format!("<p>In {} there {what}.</p>\n", escape(folder)));
        return page("Experiments", None, &body);
    }
    body.push_str(
        "<form method=\"get\" action=\"/compare\"><table><thead><tr><th>A</th><th>B</th><th>When</th>\
         <th>Experiment</th><th class=\"n\">Arms</th><th class=\"n\">Loads</th><th class=\"n\">Blocks</th>\
         <th>Answer</th></tr></thead><tbody>\n",
    );
    for (at, row) in kept.iter().enumerate() {
        body.push_str(&line(row, at));
    }
    body.push_str("</tbody></table><p><button>Compare A and B</button></p></form>\n");
    page("Experiments", None, &body)
}

fn line(row: &Row, at: usize) -> String {
    let choice = |name: &str, chosen: usize| {
        format!(
            "<td><input type=\"radio\" name=\"{name}\" value=\"{}\" aria-label=\"{name}: {}\"{}></td>",
            escape(&row.folder),
            escape(&row.folder),
            if at == chosen { " checked" } else { "" }
        )
    };
    // The older one is A, so that the comparison says what has changed since.
    format!(
        "<tr>{}{}<td>{}</td><td><a href=\"{}\">{}</a>{}<br>{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}{}</td></tr>\n",
        choice("a", 1),
        choice("b", 0),
        escape(&row.started_at),
        link(&row.folder),
        escape(&row.name),
        files(row),
        escape(&row.title),
        row.arms.len(),
        row.loads,
        row.blocks,
        badges(row),
        escape(&row.answer),
    )
}

/// Links to what others read.
fn files(row: &Row) -> String {
    if !matches!(row.state, State::Done | State::Partial) {
        return String::new();
    }
    let folder = link(&row.folder);
    let names = [("experiment.json", "JSON"), ("report.md", "Markdown")];
    let links = names.map(|(file, name)| format!(" <a href=\"{folder}{file}\">{name}</a>"));
    links.concat()
}

/// What each arm is in the metric that decides, and what is not finished.
fn badges(row: &Row) -> String {
    let mut text = String::new();
    if row.state != State::Done {
        text.push_str(&format!("<span class=\"badge state\">{}</span>", row.state.word()));
    }
    for one in &row.outcomes {
        let ratio = one.ratio.map(|ratio| format!(" {ratio:.3}")).unwrap_or_default();
        let class = Outcome::word(one.outcome);
        text.push_str(&format!(
            "<span class=\"badge {class}\">{} {}{ratio}</span>",
            escape(&one.label),
            one.word
        ));
    }
    if !text.is_empty() {
        text.push_str("<br>");
    }
    text
}

/// Whether each word stands somewhere in a row, in upper or lower case.
fn fits(row: &Row, filter: &str) -> bool {
    let arms = row.arms.join(" ");
    let all = [&row.folder, &row.name, &row.title, &row.started_at, &row.answer, &arms];
    let all = all.map(|text| text.to_lowercase()).join("\n");
    filter.to_lowercase().split_whitespace().all(|word| all.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::experiments::Said;

    fn row(name: &str) -> Row {
        Row {
            folder: format!("{name}-1"),
            name: name.to_owned(),
            title: "<b>Is it?</b>".to_owned(),
            answer: "Je ne sais pas".to_owned(),
            outcomes: vec![Said {
                label: "x".to_owned(),
                outcome: Outcome::Faster,
                word: "better",
                ratio: Some(1.25),
            }],
            state: State::Done,
            ..Row::default()
        }
    }

    #[test]
    fn rows_are_filtered_and_escaped() {
        let rows = [row("one"), row("two")];
        let all = index("f", &rows, "", false);
        assert!(all.contains("/x/one-1/") && all.contains("/x/two-1/"), "{all}");
        assert!(!all.contains("<b>") && all.contains("x better 1.250"), "{all}");
        let one = index("f", &rows, "TWO sais", false);
        assert!(!one.contains("/x/one-1/") && one.contains("/x/two-1/"), "{one}");
        assert!(index("f", &rows, "three", true).contains("none with these words"));
        let evil = index("f", &rows, "\"><script>", false);
        assert!(!evil.contains("<script>"), "{evil}");
    }

    #[test]
    fn what_is_under_way_is_marked() {
        let mut rows = [row("one")];
        rows[0].state = State::Running;
        assert!(index("f", &rows, "", false).contains(">running<"));
    }
}
