//! The table of keys written down: as a JSON schema for editors, as Markdown for people. Nothing is
//! said here that does not stand in the table.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::directives::{DIRECTIVES, Directive, Fallback, Kind, of_table};
use super::words::heading;

/// Texts of the units, as `record::units` reads them.
const COUNT: &str = r"^[0-9.]+[kKmMgG]?(/s)?$";
const SIZE: &str = r"^[0-9.]+[kKmMgG]?$";
const TIME: &str = r"^[0-9.]+(ns|us|µs|ms|s|m|min|h)$";
const SHARE: &str = r"^[0-9.]+ ?%?$";

/// The JSON schema (draft 2020-12) of a config. It holds keys, types and ranges; what the values
/// mean together only [`super::parse`] knows.
#[must_use]
pub fn schema() -> Json {
    let mut definitions = Map::new();
    for path in tables().into_iter().filter(|path| !path.is_empty()) {
        definitions.insert(definition_name(path), table_schema(path));
    }
    let mut schema = table_schema("");
    if let Json::Object(fields) = &mut schema {
        fields.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        fields.insert("title".into(), "The config of weir proxy".into());
        fields.insert("$defs".into(), definitions.into());
    }
    schema
}

/// Every table's path, in the order of the rows.
fn tables() -> Vec<&'static str> {
    let mut paths: Vec<&str> = Vec::new();
    for row in DIRECTIVES {
        if !paths.contains(&row.table) {
            paths.push(row.table);
        }
    }
    paths
}

fn definition_name(path: &str) -> String {
    path.replace(".*", "").replace("[]", "").replace('.', "-")
}

fn table_schema(path: &str) -> Json {
    let mut properties = Map::new();
    let mut needed = Vec::new();
    for row in of_table(path) {
        let mut property = row.kind.schema();
        if let Json::Object(fields) = &mut property {
            fields.insert("description".into(), row.doc.into());
            if let Fallback::Is(text) = row.fallback {
                fields.insert("default".into(), to_json(text));
            }
            fields.insert("examples".into(), json!([to_json(row.right)]));
        }
        properties.insert(row.key.into(), property);
        if row.fallback == Fallback::Needed {
            needed.push(row.key);
        }
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}

impl Kind {
    fn schema(self) -> Json {
        let text = || json!({ "type": "string" });
        let reference = |path| json!({ "$ref": format!("#/$defs/{}", definition_name(path)) });
        let number_or = |low: u64, high: u64, pattern: &str| {
            json!({ "anyOf": [
                { "type": "integer", "minimum": low, "maximum": high },
                { "type": "string", "pattern": pattern },
            ] })
        };
        match self {
            Self::Bool => json!({ "type": "boolean" }),
            Self::True => json!({ "const": true }),
            Self::Whole(low, high) | Self::Status(low, high) => {
                json!({ "type": "integer", "minimum": low, "maximum": high })
            }
            Self::Count(low, high) => number_or(low, high, COUNT),
            Self::Size(low, high) => number_or(low, high, SIZE),
            Self::Time => json!({ "type": "string", "pattern": TIME }),
            Self::Share => json!({ "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "string", "pattern": SHARE },
            ] }),
            Self::Ratio(low, high) => {
                json!({ "type": "number", "minimum": low, "maximum": high })
            }
            Self::Secret => text(),
            Self::Rate => json!({ "anyOf": [
                { "type": "number", "exclusiveMinimum": 0, "maximum": 1e9 },
                { "type": "string", "pattern": COUNT },
            ] }),
            Self::Choice(choices) => json!({ "enum": choices }),
            Self::StatusOrTrue => json!({ "anyOf": [
                { "const": true },
                { "type": "integer", "minimum": 400, "maximum": 599 },
            ] }),
            Self::Text(_) => text(),
            Self::TextOrFalse(_) => json!({ "anyOf": [text(), { "const": false }] }),
            Self::Texts(_) => json!({ "anyOf": [
                text(),
                { "type": "array", "items": text(), "minItems": 1 },
            ] }),
            Self::TextsOrNone(_) => json!({ "anyOf": [
                text(),
                { "type": "array", "items": text() },
            ] }),
            Self::Table(path) => json!({ "allOf": [reference(path)] }),
            Self::Entries(path, None) => json!({ "type": "array", "items": reference(path) }),
            Self::Entries(path, Some(_)) => json!({
                "type": "array",
                "items": { "anyOf": [text(), reference(path)] },
                "minItems": 1,
            }),
            Self::Named(path) => {
                json!({ "type": "object", "additionalProperties": reference(path) })
            }
            Self::Fields => json!({ "type": "object", "additionalProperties": text() }),
            Self::Wanted => json!({ "type": "object", "additionalProperties": wanted_schema() }),
        }
    }

    /// What a value is, in the reference.
    fn words(self) -> String {
        match self {
            Self::Bool => "true or false".into(),
            Self::True => "true".into(),
            Self::Whole(low, high) | Self::Status(low, high) => {
                format!("number, {low} to {high}")
            }
            Self::Count(low, high) => format!("count, {low} to {high}"),
            Self::Size(low, _) => format!("size, from {low}"),
            Self::Time => "time".into(),
            Self::Share => "share".into(),
            Self::Ratio(low, high) => format!("number, {low} to {high}"),
            Self::Secret => "secret".into(),
            Self::Rate => "rate".into(),
            Self::Choice(choices) => {
                let choices: Vec<String> =
                    choices.iter().map(|choice| format!("`{choice}`")).collect();
                choices.join(", ")
            }
            Self::StatusOrTrue => "`true` or a status".into(),
            Self::Text(what) => what.into(),
            Self::TextOrFalse(what) => format!("{what}, or `false`"),
            Self::Texts(what) | Self::TextsOrNone(what) => format!("{what}, or a list"),
            Self::Table(_) => "table".into(),
            Self::Entries(_, None) => "tables".into(),
            Self::Entries(_, Some(_)) => "list of addresses or tables".into(),
            Self::Named(_) => "named tables".into(),
            Self::Fields => "names with texts".into(),
            Self::Wanted => "names with what is wanted".into(),
        }
    }
}

/// What may stand behind the name of a field or a parameter.
fn wanted_schema() -> Json {
    json!({ "anyOf": [
        { "type": "string" },
        { "type": "boolean" },
        {
            "type": "object",
            "properties": { "regex": { "type": "string" } },
            "required": ["regex"],
            "additionalProperties": false,
        },
    ] })
}

/// Examples and defaults are TOML.
fn to_json(text: &str) -> Json {
    DeValue::parse(text).map_or(Json::Null, |value| json_of(value.get_ref()))
}

fn json_of(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).unwrap_or_default().into()
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().unwrap_or_default().into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(array) => array.iter().map(|entry| json_of(entry.get_ref())).collect(),
        DeValue::Table(table) => table_json(table),
    }
}

/// What an editor holds against the schema.
pub(super) fn table_json(table: &DeTable<'_>) -> Json {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref()))).collect()
}

const INTRODUCTION: &str = "\
# The config of weir proxy

A config is TOML. An unknown key, a wrong unit or a name that is not there is an error with its file,
line and column, and all errors of a file are told at once. Times need a unit (`10s`, `250ms`,
`1.5m`, `1h`); sizes may have one, binary (`64k` is 65,536); counts may, decimal (`10k` is 10,000).

Requests take the first route that matches. Paths are compared normalised: percent-encoded
unreserved characters decoded, empty segments merged, dot segments removed; `%2F` and `%5C` stay as
they are. Hosts are compared without case, port and final dot; names and values of parameters
decoded; methods and values of fields as they are.
";

/// The reference of the config, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for path in tables() {
        let title = if path.is_empty() { "At the top".to_owned() } else { heading(path) };
        let title = if path.is_empty() { title } else { format!("`{title}`") };
        let _ = write!(text, "\n## {title}\n\n");
        text += "| Key | Value | Default | Example | Meaning |\n| --- | --- | --- | --- | --- |\n";
        for row in of_table(path) {
            text += &reference_row(row);
        }
    }
    text
}

fn reference_row(row: &Directive) -> String {
    let default = match row.fallback {
        Fallback::Needed => "needed".to_owned(),
        Fallback::Is(value) => format!("`{}`", cell(value)),
        Fallback::Not(words) => words.to_owned(),
    };
    let (kind, right, doc) = (row.kind.words(), cell(row.right), row.doc);
    format!("| `{}` | {kind} | {default} | `{right}` | {doc} |\n", row.key)
}

/// With the quotes that most people write.
fn cell(toml: &str) -> String {
    toml.replace('\'', "\"")
}
