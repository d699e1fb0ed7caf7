//! Messages for unknown keys and for values of the wrong kind.

use record::problem::suggestion;
use toml::de::DeValue;

use super::directives::{DIRECTIVES, Directive, ValueKind, directives_of_table};
use super::errors::ValueError;

pub(super) fn wrong_kind(row: &Directive, value: &DeValue<'_>) -> ValueError {
    ValueError::Kind { key: row.key, found: describe_value(value), hint: row.kind.hint() }
}

pub(super) fn describe_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Array(_) => "a list".into(),
        other => format!("a {}", other.type_str()),
    }
}

/// Maximum number of keys of a table that a message lists.
const KEYS_SHOWN_MAX: usize = 12;

/// Describes an unknown key; `names` are the names of the named tables around it, from outside in.
pub(super) fn unknown_key_message(path: &str, names: &[String], key: &str) -> String {
    let location = match path {
        "" => "at the top level".to_owned(),
        _ => format!("in {}", named_heading(path, names)),
    };
    let hint = suggestion(key, directives_of_table(path).map(|row| row.key));
    let other_table = DIRECTIVES.iter().find(|row| row.key == key).filter(|_| hint.is_empty());
    match other_table {
        Some(row) if row.table.is_empty() => {
            format!("unknown key '{key}' {location}: it belongs at the top level, before any [table]")
        }
        Some(row) => {
            format!("unknown key '{key}' {location}: it belongs in {}", table_heading(row.table))
        }
        None if hint.is_empty() => format!("unknown key '{key}' {location}{}", known_keys(path)),
        None => format!("unknown key '{key}' {location}{hint}"),
    }
}

/// Lists the keys of a small table, or where those of a large one are listed.
fn known_keys(path: &str) -> String {
    let keys: Vec<&str> = directives_of_table(path).map(|row| row.key).collect();
    match (1..=KEYS_SHOWN_MAX).contains(&keys.len()) {
        true => format!("; there are: {}", keys.join(", ")),
        false => "; its keys: weir reference config".to_owned(),
    }
}

/// Returns a table's path as it is written in this file, with the names of its named tables.
fn named_heading(path: &str, names: &[String]) -> String {
    let insert = |path: String, name: &String| path.replacen(".*", &format!(".{name}"), 1);
    table_heading(&names.iter().fold(path.to_owned(), insert))
}

pub(super) fn table_heading(path: &str) -> String {
    let path = path.replace(".*", ".NAME");
    match path.strip_suffix("[]") {
        Some(list) => format!("[[{list}]]"),
        None => format!("[{}]", path.replace("[]", "")),
    }
}

/// Returns the word for the plain texts of a list whose tables have this key.
pub(super) fn plural(short_key: &str) -> &'static str {
    match short_key {
        "address" => "addresses",
        _ => "files",
    }
}

impl ValueKind {
    pub(super) fn hint(self) -> String {
        match self {
            Self::Bool => "write true or false".into(),
            Self::True => "write true, or remove the key".into(),
            Self::Integer(min, max) | Self::Status(min, max) => {
                format!("write a number from {min} to {max}")
            }
            Self::Count(..) => "write a count (100, \"10k\" or \"2M\")".into(),
            Self::Size(..) => "write a size (100, \"64k\", \"1m\" or \"2g\")".into(),
            Self::Time => "write a time (\"10s\", \"250ms\" or \"1.5m\")".into(),
            Self::Fraction => "write a fraction (0.01 or \"1%\")".into(),
            Self::Ratio(min, max) => format!("write a number from {min} to {max}"),
            Self::Secret => "write a secret in quotes".into(),
            Self::ByteRate => "write bytes per second from 1024 (1000000, \"64k/s\" or \"1MiB/s\")".into(),
            Self::Rate => "write a rate (100, \"10k/s\", \"100/m\" or \"1k/h\")".into(),
            Self::Choice(choices) => format!("write one of {}", choices.join(", ")),
            Self::ChoiceOrText(choices, form) => format!("write one of {}, or {form}", choices.join(", ")),
            Self::StatusOrTrue(min, max) => format!("write true or a status from {min} to {max}"),
            Self::Text(form) => format!("write {form} in quotes"),
            Self::TextOrFalse(form) => format!("write {form} in quotes, or false"),
            Self::Texts(form) | Self::TextsOrNone(form) => {
                format!("write {form} in quotes, or a list of them")
            }
            Self::Table(_) => "write a table, { KEY = VALUE }".into(),
            Self::TableOrBool(_) => "write true, false or a table, { KEY = VALUE }".into(),
            Self::TableOrTables(_) => "write a table, { KEY = VALUE }, or a list of them".into(),
            Self::Entries(path, None) => format!("write tables, {}", table_heading(path)),
            Self::Entries(_, Some(key)) => format!("write a list of {} or tables", plural(key)),
            Self::Named(path) => format!("write named tables, {}", table_heading(path)),
            Self::Weights => "write { POOL = WEIGHT }, with weights from 0 to 1000000".into(),
            Self::Fields => "write { NAME = \"VALUE\" }".into(),
            Self::Matchers => "write \"VALUE\", true (present), false (absent) or { regex = \"…\" }".into(),
        }
    }
}
