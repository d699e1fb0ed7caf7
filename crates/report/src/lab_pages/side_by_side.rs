//! Two experiments side by side, as a page.

use crate::text::comparison::{cells, value_or_nothing};
use experiment::comparison::{ComparisonReport, ComparisonRow, Difference};
use maud::{Markup, html};
use record::units::format_plural;

use super::html::{link, link_to_index, page, table};

/// Number of differences above the fold.
const DIFFERENCES_SHOWN: usize = 12;

pub fn comparison_page(compared: &ComparisonReport) -> String {
    let (shown, folded) = compared.differences.split_at(compared.differences.len().min(DIFFERENCES_SHOWN));
    let body = html! {
        (link_to_index("All experiments"))
        ul {
            @for (letter, side) in [("A", &compared.a), ("B", &compared.b)] {
                li {
                    (letter) ": " a href=(link(&side.path)) { (side.path) } ", " (side.started_at) ": "
                    (side.title)
                }
            }
        }
        @for sentence in &compared.summary { p { (sentence) } }
        @for note in &compared.notes { p.note { (note) } }
        @if !compared.rows.is_empty() { (figure_table(&compared.rows)) }
        h2 { "Differences" }
        @if compared.differences.is_empty() { p { "None recorded." } } @else { (difference_table(shown)) }
        @if !folded.is_empty() {
            details {
                summary { (format_plural(folded.len() as u64, "more difference")) }
                (difference_table(folded))
            }
        }
    };
    page("A and B", None, &body)
}

fn difference_table(differences: &[Difference]) -> Markup {
    let rows = html! {
        @for difference in differences {
            tr {
                td { (difference.path) }
                td data-label="A" { (value_or_nothing(&difference.a)) }
                td data-label="B" { (value_or_nothing(&difference.b)) }
            }
        }
    };
    table(&[("Setting or fact", false), ("A", false), ("B", false)], &rows)
}

/// Columns of the figures: the name of the cell's row, and whether it is a figure.
const COLUMNS: [(&str, bool); 10] = [
    ("Load", false),
    ("Arm", false),
    ("Figure", false),
    ("A", true),
    ("B", true),
    ("B/A", true),
    ("Interval", true),
    ("p", true),
    ("P(B better)", true),
    ("B is", false),
];

fn figure_table(rows: &[ComparisonRow]) -> Markup {
    let rows = html! {
        @for row in rows {
            @let texts = [row.load.clone(), row.arm.clone()].into_iter().chain(cells(row));
            tr {
                @for ((name, is_figure), text) in COLUMNS.iter().zip(texts) {
                    @let outcome = row.outcome.filter(|_| *name == "B is").map(|outcome| outcome.as_str());
                    td class=[outcome.or_else(|| is_figure.then_some("n"))] data-label=(name) { (text) }
                }
            }
        }
    };
    table(&COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::comparison::{ComparisonSide, SCHEMA};

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
