//! Responses as tables: columns for people, JSON for programs, from the same cells.

use record::units::{format_bytes, format_count, format_duration_ns};
use serde_json::{Map, Value, json};

#[derive(Clone, Debug)]
pub(super) struct OutputTable {
    pub(super) name: &'static str,
    /// Column names with units as suffixes, as in JSON; the text output omits the units.
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<Cell>>,
    /// True if the only row is printed as lines.
    pub(super) is_vertical: bool,
    /// Note that is printed below the table.
    pub(super) note: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Empty,
    Text(String),
    Count(u64),
    /// Printed with up to three significant digits.
    Number(f64),
    TimeNs(u64),
    Bytes(f64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl Cell {
    /// Returns a duration cell, or an empty one.
    pub(super) fn time(ns: Option<u64>) -> Self {
        ns.map_or(Self::Empty, Self::TimeNs)
    }

    fn to_text(&self) -> String {
        match self {
            Self::Empty => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) => format_count(*number),
            Self::TimeNs(ns) => format_duration_ns(*ns),
            Self::Bytes(bytes) => format_bytes(*bytes),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Empty => Value::Null,
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Number(number) | Self::Bytes(number) => json!(number),
            Self::TimeNs(ns) => json!(ns),
        }
    }
}

impl OutputTable {
    pub(super) fn new(name: &'static str, columns: &'static [&'static str]) -> Self {
        Self { name, columns, rows: Vec::new(), is_vertical: false, note: String::new() }
    }

    fn to_text(&self) -> String {
        let headings = self.columns.iter().map(|column| column_heading(column));
        let mut text = if self.is_vertical {
            let row = self.rows.first().map_or(&[][..], |row| row);
            let lines = headings.zip(row).map(|(heading, cell)| vec![heading, cell.to_text()]);
            align_columns(&lines.collect::<Vec<_>>(), &[true, true])
        } else {
            let cells = |row: &Vec<Cell>| row.iter().map(Cell::to_text).collect();
            let mut lines: Vec<Vec<String>> = vec![headings.collect()];
            lines.extend(self.rows.iter().map(cells));
            align_columns(&lines, &self.left_aligned())
        };
        if !self.note.is_empty() {
            text.push_str(&self.note);
            text.push('\n');
        }
        text
    }

    /// Returns the alignment of each column: text to the left, numbers to the right.
    fn left_aligned(&self) -> Vec<bool> {
        let is_text = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let mut values = cells.filter(|cell| **cell != Cell::Empty);
            values.next().is_none_or(|cell| matches!(cell, Cell::Text(_)))
        };
        (0..self.columns.len()).map(is_text).collect()
    }

    fn to_json(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let members = self.columns.iter().zip(row);
            object_of(&mut members.map(|(column, cell)| ((*column).to_owned(), cell.to_json())))
        };
        match self.is_vertical {
            true => self.rows.first().map_or(Value::Null, object),
            false => self.rows.iter().map(object).collect(),
        }
    }
}

/// Returns a JSON object; a `collect` would be compiled with a sort for each kind of iterator.
fn object_of(members: &mut dyn Iterator<Item = (String, Value)>) -> Value {
    let mut object = Map::new();
    object.extend(members);
    Value::Object(object)
}

/// Returns a column's name without the unit, which the text output prints with each value.
fn column_heading(column: &str) -> String {
    let stem = ["_ns", "_bytes", "_bytes_per_s"].iter().find_map(|unit| column.strip_suffix(unit));
    stem.unwrap_or(column).replace("_per_s", "/s")
}

fn align_columns(lines: &[Vec<String>], left_aligned: &[bool]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..left_aligned.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells =
            line.iter().zip(&widths).zip(left_aligned).map(|((cell, &width), is_left)| match is_left {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Renders all tables, as text or JSON.
pub(super) fn render(tables: &[OutputTable], wants_json: bool) -> String {
    if wants_json {
        let mut members = tables.iter().map(|table| (table.name.to_owned(), table.to_json()));
        return format!("{:#}\n", object_of(&mut members));
    }
    tables.iter().map(OutputTable::to_text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_programs_see_the_same_cells() {
        let mut table = OutputTable::new("servers", &["server", "p99_ns", "requests_per_s"]);
        table.rows = vec![
            vec!["app/a".into(), Cell::time(Some(1_500_000)), Cell::Number(2.0)],
            vec!["app/long".into(), Cell::Empty, Cell::Number(0.5)],
        ];
        table.note = "two".to_owned();
        let mut info = OutputTable::new("info", &["version", "uptime_ns"]);
        info.is_vertical = true;
        info.rows = vec![vec!["1.0".into(), Cell::TimeNs(2_000_000_000)]];
        let text = render(&[info.clone(), table.clone()], false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("version  1.0") && lines[1].starts_with("uptime "), "{text}");
        assert!(lines[2].is_empty() && lines[3].starts_with("server "), "{text}");
        assert!(lines[3].ends_with("  requests/s") && lines[3].contains(" p99 "), "{text}");
        assert!(lines[5].starts_with("app/long ") && lines[5].contains(" - "), "{text}");
        assert_eq!(lines[6], "two");
        let json: Value = serde_json::from_str(&render(&[info, table], true)).unwrap();
        assert_eq!(json["info"]["uptime_ns"], 2_000_000_000u64);
        assert_eq!(json["servers"][0]["p99_ns"], 1_500_000);
        assert_eq!(json["servers"][1]["p99_ns"], Value::Null);
    }
}
