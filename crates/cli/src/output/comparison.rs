//! What two experiments, or two lists of runs, say of each other: the form in which it is kept, and how
//! people read it. Not for working it out.

use lab::words::{better_share, probability, value};
use record::experiment::Outcome;
use serde::Serialize;

use super::table::table;

/// The name of this schema.
pub(crate) const SCHEMA: &str = "weir.comparison/1";
/// The heads of the table: which arm under which load, and [`cells`].
const HEADS: [&str; 9] = ["", "", "A", "B", "B/A", "interval", "p", "P(B better)", "B is"];
/// Differences that are printed; all are in the JSON.
const DIFFERENCES_SHOWN: usize = 20;

/// A comparison of two sides that were not run in turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compared {
    /// [`SCHEMA`].
    pub(crate) schema: &'static str,
    /// The side that ratios are held against.
    pub(crate) a: Side,
    /// The other.
    pub(crate) b: Side,
    /// What the deciding metric says, in words, of each arm under each load; nothing of single runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) summary: Vec<String>,
    /// The figures. Ratios are b / a.
    pub(crate) rows: Vec<Row>,
    /// What is not the same in plans, programs and machines.
    pub(crate) differences: Vec<Difference>,
    /// What has to be known before it is believed.
    pub(crate) notes: Vec<String>,
}

/// One side.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Side {
    /// Where its records are.
    pub(crate) path: String,
    /// What it is.
    pub(crate) title: String,
    /// When it began; of several runs the first and the last.
    pub(crate) started_at: String,
}

/// One figure of both sides.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    /// The arm; empty for runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) arm: String,
    /// The load; empty for runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) load: String,
    /// The metric.
    pub(crate) metric: String,
    /// It in words.
    pub(crate) title: String,
    /// Its unit.
    pub(crate) unit: String,
    /// Trials or runs of each side.
    pub(crate) counts: (usize, usize),
    /// The medians.
    pub(crate) medians: (f64, f64),
    /// b / a.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    /// Its interval, where there are enough to have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<(f64, f64)>,
    /// Two-sided, of the test of Mann and Whitney.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p: Option<f64>,
    /// The same after Holm's correction for how many figures are compared: what decides, and what is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p_adjusted: Option<f64>,
    /// How often one of b is better than one of a, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) better_share: Option<f64>,
    /// What b is, held against a; absent where nothing was tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
}

/// Something that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// What.
    pub(crate) what: String,
    /// With the first side; absent when it has no such thing.
    pub(crate) a: Option<String>,
    /// With the second.
    pub(crate) b: Option<String>,
}

/// The whole of it.
pub(crate) fn text(compared: &Compared) -> String {
    let mut text = String::new();
    if compared.rows.is_empty() {
        // That there is nothing is to be known first.
        text.push_str(&format!("{}\n\n", compared.summary.join("\n")));
    }
    for (letter, side) in [("A", &compared.a), ("B", &compared.b)] {
        text.push_str(&format!("{letter}: {}, {}: {}\n", side.path, side.started_at, side.title));
    }
    if !compared.summary.is_empty() && !compared.rows.is_empty() {
        text.push_str(&format!("\n{}\n", compared.summary.join("\n")));
    }
    let mut rows = vec![HEADS.map(str::to_owned).to_vec()];
    let mut before = String::new();
    for row in &compared.rows {
        let what = [&row.load, &row.arm].map(String::as_str);
        let label = what.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let shown = if label == before { String::new() } else { label.clone() };
        before = label;
        let mut line = vec![shown];
        line.extend(cells(row));
        rows.push(line);
    }
    if !compared.rows.is_empty() {
        text.push_str(&format!("\n{}", table(&rows)));
    }
    if !compared.differences.is_empty() {
        text.push_str("\nWhat is not the same:\n");
    }
    for one in compared.differences.iter().take(DIFFERENCES_SHOWN) {
        text.push_str(&format!("  {}: {} | {}\n", one.what, shown(&one.a), shown(&one.b)));
    }
    let more = compared.differences.len().saturating_sub(DIFFERENCES_SHOWN);
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

/// Metric, both medians, ratio, interval, p, how often B is the better one, and what is said, in words.
pub(crate) fn cells(row: &Row) -> [String; 8] {
    let none = || "-".to_owned();
    let (first, second) = row.medians;
    [
        row.title.clone(),
        value(first, &row.unit),
        value(second, &row.unit),
        row.ratio.map_or_else(none, |ratio| format!("{ratio:.3}")),
        row.interval.map_or_else(none, |(low, high)| format!("{low:.3} to {high:.3}")),
        row.p_adjusted.map_or_else(none, probability),
        row.better_share.map_or_else(none, better_share),
        row.outcome.map_or_else(|| "not tested".to_owned(), |one| one.of(&row.unit).to_owned()),
    ]
}

/// One side of a difference.
pub(crate) fn shown(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("(nothing)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_and_what_differs_are_shown() {
        let row = Row {
            arm: "x".to_owned(),
            title: "responses".to_owned(),
            unit: "1/s".to_owned(),
            medians: (100.0, 110.0),
            ratio: Some(1.1),
            p: Some(0.004),
            p_adjusted: Some(0.012),
            better_share: Some(0.875),
            ..Row::default()
        };
        let difference =
            |n: usize| Difference { what: format!("plan.{n}"), a: Some("1".to_owned()), b: None };
        let compared = Compared {
            schema: SCHEMA,
            a: Side { path: "one".to_owned(), ..Side::default() },
            b: Side { path: "two".to_owned(), ..Side::default() },
            summary: vec!["It was found.".to_owned()],
            rows: vec![row],
            differences: (0..22).map(difference).collect(),
            notes: vec!["Time is in it.".to_owned()],
        };
        let text = text(&compared);
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
        let apart = Compared {
            summary: vec!["Nothing can be compared: x.".to_owned()],
            rows: Vec::new(),
            ..compared
        };
        let text = super::text(&apart);
        assert!(text.starts_with("Nothing can be compared: x.\n\nA: one"), "{text}");
        assert!(!text.contains("P(B better)"), "no table: {text}");
        assert_eq!(text.matches("Nothing can be compared").count(), 1, "{text}");
    }
}
