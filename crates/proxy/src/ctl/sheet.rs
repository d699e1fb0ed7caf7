//! Answers as tables: columns for people, JSON for programs, from the same cells.

use record::units::{format_bytes, format_count, format_duration_ns};
use serde_json::{Map, Value, json};

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Sheet {
    pub(super) name: &'static str,
    /// Units last, as the members in JSON; people see them without.
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<Cell>>,
    /// Whether its only row is shown as lines.
    pub(super) upright: bool,
    /// What people are told below it.
    pub(super) note: String,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Nothing,
    Text(String),
    Count(u64),
    /// With up to three digits that count.
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
    /// A time, if there is one.
    pub(super) fn time(ns: Option<u64>) -> Self {
        ns.map_or(Self::Nothing, Self::TimeNs)
    }

    fn shown(&self) -> String {
        match self {
            Self::Nothing => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) => format_count(*number),
            Self::TimeNs(ns) => format_duration_ns(*ns),
            Self::Bytes(bytes) => format_bytes(*bytes),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Number(number) | Self::Bytes(number) => json!(number),
            Self::TimeNs(ns) => json!(ns),
        }
    }
}

impl Sheet {
    pub(super) fn new(name: &'static str, columns: &'static [&'static str]) -> Self {
        Self { name, columns, rows: Vec::new(), upright: false, note: String::new() }
    }

    fn shown(&self) -> String {
        let heads = self.columns.iter().map(|column| head(column));
        let mut text = if self.upright {
            let row = self.rows.first().map_or(&[][..], |row| row);
            let lines = heads.zip(row).map(|(head, cell)| vec![head, cell.shown()]);
            aligned(&lines.collect::<Vec<_>>(), &[true, true])
        } else {
            let cells = |row: &Vec<Cell>| row.iter().map(Cell::shown).collect();
            let mut lines: Vec<Vec<String>> = vec![heads.collect()];
            lines.extend(self.rows.iter().map(cells));
            aligned(&lines, &self.lefts())
        };
        if !self.note.is_empty() {
            text.push_str(&self.note);
            text.push('\n');
        }
        text
    }

    /// Texts stand to the left, numbers to the right.
    fn lefts(&self) -> Vec<bool> {
        let is_text = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let mut known = cells.filter(|cell| **cell != Cell::Nothing);
            known.next().is_none_or(|cell| matches!(cell, Cell::Text(_)))
        };
        (0..self.columns.len()).map(is_text).collect()
    }

    fn json(&self) -> Value {
        let object = |row: &Vec<Cell>| {
            let members = self.columns.iter().zip(row);
            let members = members.map(|(column, cell)| ((*column).to_owned(), cell.json()));
            Value::Object(members.collect::<Map<_, _>>())
        };
        match self.upright {
            true => self.rows.first().map_or(Value::Null, object),
            false => self.rows.iter().map(object).collect(),
        }
    }
}

/// A column's name without the unit, which people see with each value.
fn head(column: &str) -> String {
    let bare = ["_ns", "_bytes", "_bytes_per_s"].iter().find_map(|unit| column.strip_suffix(unit));
    bare.unwrap_or(column).replace("_per_s", "/s")
}

fn aligned(lines: &[Vec<String>], lefts: &[bool]) -> String {
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..lefts.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).zip(lefts).map(|((cell, &width), left)| match left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// All of them, as the client wants it.
pub(super) fn render(sheets: &[Sheet], json: bool) -> String {
    if json {
        let members = sheets.iter().map(|sheet| (sheet.name.to_owned(), sheet.json()));
        return format!("{:#}\n", Value::Object(members.collect()));
    }
    sheets.iter().map(Sheet::shown).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_programs_see_the_same_cells() {
        let mut sheet = Sheet::new("servers", &["server", "p99_ns", "requests_per_s"]);
        sheet.rows = vec![
            vec!["app/a".into(), Cell::time(Some(1_500_000)), Cell::Number(2.0)],
            vec!["app/long".into(), Cell::Nothing, Cell::Number(0.5)],
        ];
        sheet.note = "two".to_owned();
        let mut info = Sheet::new("info", &["version", "uptime_ns"]);
        info.upright = true;
        info.rows = vec![vec!["1.0".into(), Cell::TimeNs(2_000_000_000)]];
        let text = render(&[info.clone(), sheet.clone()], false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("version  1.0") && lines[1].starts_with("uptime "), "{text}");
        assert!(lines[2].is_empty() && lines[3].starts_with("server "), "{text}");
        assert!(lines[3].ends_with("  requests/s") && lines[3].contains(" p99 "), "{text}");
        assert!(lines[5].starts_with("app/long ") && lines[5].contains(" - "), "{text}");
        assert_eq!(lines[6], "two");
        let json: Value = serde_json::from_str(&render(&[info, sheet], true)).unwrap();
        assert_eq!(json["info"]["uptime_ns"], 2_000_000_000u64);
        assert_eq!(json["servers"][0]["p99_ns"], 1_500_000);
        assert_eq!(json["servers"][1]["p99_ns"], Value::Null);
    }
}
