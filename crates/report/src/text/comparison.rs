//! `weir lab compare A B`: the comparison of two experiments or of two lists of runs, as text. Does
//! not compute it.

use experiment::comparison::{ComparisonReport, ComparisonRow};
use experiment::format::{better_fraction, factor_interval, is_wide, probability, value};

use super::table::table;

/// Heads of the table: the arm and load of the row, and [`cells`].
const COLUMN_HEADS: [&str; 9] = ["", "", "A", "B", "B/A", "interval", "p", "P(B better)", "B is"];
/// Maximum number of differences that are printed; the JSON contains all.
const DIFFERENCES_SHOWN_MAX: usize = 20;

pub fn format_comparison(compared: &ComparisonReport) -> String {
    let mut text = String::new();
    if compared.rows.is_empty() {
        // An empty comparison is reported first.
        text.push_str(&format!("{}\n\n", compared.summary.join("\n")));
    }
    for (letter, side) in [("A", &compared.a), ("B", &compared.b)] {
        text.push_str(&format!("{letter}: {}, {}: {}\n", side.path, side.started_at, side.title));
    }
    if !compared.summary.is_empty() && !compared.rows.is_empty() {
        text.push_str(&format!("\n{}\n", compared.summary.join("\n")));
    }
    let mut rows = vec![COLUMN_HEADS.map(str::to_owned).to_vec()];
    let mut previous_label = String::new();
    for row in &compared.rows {
        let parts = [&row.load, &row.arm].map(String::as_str);
        let label = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let shown = if label == previous_label { String::new() } else { label.clone() };
        previous_label = label;
        let mut line = vec![shown];
        line.extend(cells(row));
        rows.push(line);
    }
    if !compared.rows.is_empty() {
        text.push_str(&format!("\n{}", table(&rows)));
    }
    if !compared.differences.is_empty() {
        text.push_str("\nDifferences:\n");
    }
    for difference in compared.differences.iter().take(DIFFERENCES_SHOWN_MAX) {
        text.push_str(&format!(
            "  {}: {} | {}\n",
            difference.path,
            value_or_nothing(&difference.a),
            value_or_nothing(&difference.b)
        ));
    }
    let more = compared.differences.len().saturating_sub(DIFFERENCES_SHOWN_MAX);
    if more > 0 {
        text.push_str(&format!("  and {more} more, in --json\n"));
    }
    if !compared.notes.is_empty() {
        text.push('\n');
    }
    for note in &compared.notes {
        text.push_str(&format!("{note}\n"));
    }
    text
}

/// Formats metric, both medians, ratio, interval, p, the fraction in which B is better, and the
/// outcome.
pub fn cells(row: &ComparisonRow) -> [String; 8] {
    let none = || "-".to_owned();
    let (first, second) = row.medians;
    [
        row.title.clone(),
        value(first, &row.unit),
        value(second, &row.unit),
        row.ratio
            .filter(|_| !row.interval.is_some_and(is_wide))
            .map_or_else(none, |ratio| format!("{ratio:.3}")),
        row.interval.map_or_else(none, factor_interval),
        row.p_adjusted.map_or_else(none, probability),
        row.better_fraction.map_or_else(none, better_fraction),
        row.outcome
            .map_or_else(|| "not tested".to_owned(), |outcome| outcome.as_str_for_unit(&row.unit).to_owned()),
    ]
}

/// Formats one side of a difference.
pub fn value_or_nothing(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("(nothing)")
}

#[cfg(test)]
mod tests {
    use experiment::comparison::{ComparisonSide, Difference, SCHEMA};

    use super::*;

    #[test]
    fn both_sides_and_what_differs_are_shown() {
        let row = ComparisonRow {
            arm: "x".to_owned(),
            title: "responses".to_owned(),
            unit: "1/s".to_owned(),
            medians: (100.0, 110.0),
            ratio: Some(1.1),
            p: Some(0.004),
            p_adjusted: Some(0.012),
            better_fraction: Some(0.875),
            ..ComparisonRow::default()
        };
        let difference =
            |n: usize| Difference { path: format!("plan.{n}"), a: Some("1".to_owned()), b: None };
        let compared = ComparisonReport {
            schema: SCHEMA,
            a: ComparisonSide { path: "one".to_owned(), ..ComparisonSide::default() },
            b: ComparisonSide { path: "two".to_owned(), ..ComparisonSide::default() },
            summary: vec!["It was found.".to_owned()],
            rows: vec![row],
            differences: (0..22).map(difference).collect(),
            notes: vec!["Time is in it.".to_owned()],
        };
        let text = format_comparison(&compared);
        for part in [
            "A: one",
            "\nIt was found.\n",
            "1.100",
            "0.012         88 %",
            "not tested",
            "plan.0: 1 | (nothing)",
            "and 2 more",
            "Time",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let apart = ComparisonReport {
            summary: vec!["Nothing to compare: x.".to_owned()],
            rows: Vec::new(),
            ..compared
        };
        let text = format_comparison(&apart);
        assert!(text.starts_with("Nothing to compare: x.\n\nA: one"), "{text}");
        assert!(!text.contains("P(B better)"), "no table: {text}");
        assert_eq!(text.matches("Nothing to compare").count(), 1, "{text}");
    }
}
