//! Two experiments side by side, as a page.

use record::units::format_plural;

use super::html::{escape, link, page};
use crate::output::compare::{ComparisonReport, Difference, cells, value_or_nothing};

/// Returns the page.
pub(super) fn comparison_page(compared: &ComparisonReport) -> String {
    let mut body = String::from("<p><a href=\"/\">All experiments</a></p>\n<ul>\n");
    for (letter, side) in [("A", &compared.a), ("B", &compared.b)] {
        body.push_str(&format!(
            "<li>{letter}: <a href=\"{}\">{}</a>, {}: {}</li>\n",
            link(&side.path),
            escape(&side.path),
            escape(&side.started_at),
            escape(&side.title)
        ));
    }
    body.push_str("</ul>\n");
    for sentence in &compared.summary {
        body.push_str(&format!("<p>{}</p>\n", escape(sentence)));
    }
    for note in &compared.notes {
        body.push_str(&format!("<p class=\"note\">{}</p>\n", escape(note)));
    }
    if !compared.rows.is_empty() {
        body.push_str(&figure_rows(compared));
    }
    body.push_str("<h2>Differences</h2>\n");
    if compared.differences.is_empty() {
        body.push_str("<p>None recorded.</p>\n");
    }
    let (shown, folded) = compared.differences.split_at(compared.differences.len().min(DIFFERENCES_SHOWN));
    body.push_str(&difference_rows(shown));
    if !folded.is_empty() {
        let more = format_plural(folded.len() as u64, "more difference");
        body.push_str(&format!(
            "<details><summary>{more}</summary>\n{}</details>\n",
            difference_rows(folded)
        ));
    }
    page("A and B", None, &body)
}

/// Number of differences above the fold.
const DIFFERENCES_SHOWN: usize = 12;

/// Returns a row for each difference; empty without any.
fn difference_rows(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return String::new();
    }
    let mut body = String::from(
        "<table class=\"cards\"><thead><tr><th>Setting or fact</th><th>A</th><th>B</th></tr></thead><tbody>\n",
    );
    for one in differences {
        body.push_str(&format!(
            "<tr><td>{}</td><td data-label=\"A\">{}</td><td data-label=\"B\">{}</td></tr>\n",
            escape(&one.path),
            escape(value_or_nothing(&one.a)),
            escape(value_or_nothing(&one.b))
        ));
    }
    body + "</tbody></table>\n"
}

/// Returns a row for each figure.
fn figure_rows(compared: &ComparisonReport) -> String {
    let mut body = String::from(
        "<table class=\"cards\"><thead><tr><th>Load</th><th>Arm</th><th>Figure</th><th class=\"n\">A</th><th class=\"n\">B\
         </th><th class=\"n\">B/A</th><th class=\"n\">Interval</th><th class=\"n\">p</th><th class=\"n\">\
         P(B better)</th><th>B is</th></tr></thead><tbody>\n",
    );
    for row in &compared.rows {
        let [figure, a, b, ratio, interval, p, better, outcome] = cells(row).map(|cell| escape(&cell));
        let class = row.outcome.map(|outcome| outcome.as_str()).unwrap_or_default();
        body.push_str(&format!(
            "<tr><td data-label=\"Load\">{}</td><td data-label=\"Arm\">{}</td>\
             <td data-label=\"Figure\">{figure}</td><td class=\"n\" data-label=\"A\">{a}</td>\
             <td class=\"n\" data-label=\"B\">{b}</td><td class=\"n\" data-label=\"B/A\">{ratio}</td>\
             <td class=\"n\" data-label=\"Interval\">{interval}</td><td class=\"n\" data-label=\"p\">{p}</td>\
             <td class=\"n\" data-label=\"P(B better)\">{better}</td>\
             <td class=\"{class}\" data-label=\"B is\">{outcome}</td></tr>\n",
            escape(&row.load),
            escape(&row.arm),
        ));
    }
    body.push_str("</tbody></table>\n");
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::compare::{ComparisonRow, ComparisonSide, SCHEMA};

    #[test]
    fn nothing_of_a_record_is_markup() {
        let evil = "<script>".to_owned();
        let compared = ComparisonReport {
            schema: SCHEMA,
            a: ComparisonSide { path: evil.clone(), title: evil.clone(), started_at: evil.clone() },
            b: ComparisonSide::default(),
            summary: vec![evil.clone()],
            rows: vec![ComparisonRow {
                arm: evil.clone(),
                load: evil.clone(),
                title: evil.clone(),
                ..ComparisonRow::default()
            }],
            differences: vec![Difference { path: evil.clone(), a: Some(evil.clone()), b: None }],
            notes: vec![evil],
        };
        let page = comparison_page(&compared);
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("(nothing)"), "{page}");
    }
}
