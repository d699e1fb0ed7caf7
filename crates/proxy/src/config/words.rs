//! What is said of a key or a value that is not as the table of keys has it.

use toml::de::DeValue;

use super::directives::{DIRECTIVES, Directive, Kind, of_table};
use super::source::suggestion;

pub(super) fn wrong_kind(row: &Directive, value: &DeValue<'_>) -> String {
    format!("'{}' is {}: {}", row.key, article(value), row.kind.wish())
}

/// What a value is, as it is said in a sentence.
pub(super) fn article(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Array(_) => "a list".into(),
        other => format!("a {}", other.type_str()),
    }
}

pub(super) fn unknown_key(path: &str, key: &str) -> String {
    let here = match path {
        "" => "at the top".to_owned(),
        _ => format!("in {}", heading(path)),
    };
    let near = suggestion(key, of_table(path).map(|row| row.key));
    let elsewhere = DIRECTIVES.iter().find(|row| row.key == key).filter(|_| near.is_empty());
    match elsewhere {
        Some(row) if row.table.is_empty() => {
            format!("there is no key '{key}' {here}: it belongs at the top, before any [table]")
        }
        Some(row) => {
            format!("there is no key '{key}' {here}: it belongs in {}", heading(row.table))
        }
        None => format!("there is no key '{key}' {here}{near}"),
    }
}

/// A table's path as it is written in a file.
pub(super) fn heading(path: &str) -> String {
    let path = path.replace(".*", ".NAME");
    match path.strip_suffix("[]") {
        Some(list) => format!("[[{list}]]"),
        None => format!("[{}]", path.replace("[]", "")),
    }
}

impl Kind {
    /// What to write instead of a value of another kind.
    pub(super) fn wish(self) -> String {
        match self {
            Self::Bool => "write true or false".into(),
            Self::True => "write true, or leave it out".into(),
            Self::Whole(low, high) | Self::Status(low, high) => {
                format!("write a number from {low} to {high}")
            }
            Self::Count(..) => "write a count (100, \"10k\" or \"2M\")".into(),
            Self::Size(..) => "write a size (100, \"64k\", \"1m\" or \"2g\")".into(),
            Self::Time => "write a time (\"10s\", \"250ms\" or \"1.5m\")".into(),
            Self::Share => "write a share (0.01 or \"1%\")".into(),
            Self::Ratio(low, high) => format!("write a number from {low} to {high}"),
            Self::Secret => "write a secret in quotes".into(),
            Self::Rate => "write a rate a second (100 or \"10k/s\")".into(),
            Self::Choice(choices) => format!("write one of {}", choices.join(", ")),
            Self::StatusOrTrue => "write true or a status from 400 to 599".into(),
            Self::Text(what) => format!("write {what} in quotes"),
            Self::TextOrFalse(what) => format!("write {what} in quotes, or false"),
            Self::Texts(what) | Self::TextsOrNone(what) => {
                format!("write {what} in quotes, or a list of such")
            }
            Self::Table(_) => "write a table, { KEY = VALUE }".into(),
            Self::Entries(path, None) => format!("write tables, {}", heading(path)),
            Self::Entries(_, Some(_)) => "write a list of addresses or of tables".into(),
            Self::Named(path) => format!("write tables with names, {}", heading(path)),
            Self::Fields => "write { NAME = \"VALUE\" }".into(),
            Self::Wanted => {
                "write \"VALUE\", true (present), false (absent) or { regex = \"…\" }".into()
            }
        }
    }
}
