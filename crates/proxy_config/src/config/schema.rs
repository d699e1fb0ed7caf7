//! Renders the table of keys: as a JSON schema for editors, and as Markdown for people. All content
//! comes from the table.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::directives::{DIRECTIVES, DefaultValue, Directive, ValueKind, directives_of_table};
use super::messages::{plural, table_heading};
use super::value::{BYTE_RATE_MAX, BYTE_RATE_MIN};
use crate::split::SPLIT_WEIGHT_MAX;

/// Patterns of texts with units, as `record::units` parses them.
const COUNT_PATTERN: &str = r"^[0-9.]+[kKmMgG]?(/s)?$";
const RATE_PATTERN: &str = r"^[0-9.]+[kKmMgG]?(/[smh])?$";
const SIZE_PATTERN: &str = r"^[0-9.]+[kKmMgG]?$";
const TIME_PATTERN: &str = r"^[0-9.]+(ns|us|µs|ms|s|m|min|h)$";
const FRACTION_PATTERN: &str = r"^[0-9.]+ ?%?$";

/// Returns the JSON schema (draft 2020-12) of a config. It covers keys, types and ranges. Only
/// [`super::parse`] checks how values relate to each other.
pub fn schema() -> Json {
    let mut definitions = Map::new();
    for path in table_paths().into_iter().filter(|path| !path.is_empty()) {
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

/// Returns the paths of all tables, in the order of the rows.
fn table_paths() -> Vec<&'static str> {
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
    let mut required = Vec::new();
    for row in directives_of_table(path) {
        let mut property = row.kind.schema();
        if let Json::Object(fields) = &mut property {
            fields.insert("description".into(), row.doc.into());
            if let DefaultValue::Literal(text) = row.default {
                fields.insert("default".into(), example_to_json(text));
            }
            fields.insert("examples".into(), json!([example_to_json(row.valid_example)]));
        }
        properties.insert(row.key.into(), property);
        if row.default == DefaultValue::Required {
            required.push(row.key);
        }
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

impl ValueKind {
    fn schema(self) -> Json {
        let text = || json!({ "type": "string" });
        let list = |items: Json| json!({ "type": "array", "items": items, "minItems": 1 });
        let reference = |path| json!({ "$ref": format!("#/$defs/{}", definition_name(path)) });
        let number_or = |min: u64, max: u64, pattern: &str| {
            json!({ "anyOf": [
                { "type": "integer", "minimum": min, "maximum": max },
                { "type": "string", "pattern": pattern },
            ] })
        };
        match self {
            Self::Bool => json!({ "type": "boolean" }),
            Self::True => json!({ "const": true }),
            Self::Integer(min, max) | Self::Status(min, max) => {
                json!({ "type": "integer", "minimum": min, "maximum": max })
            }
            Self::Count(min, max) => number_or(min, max, COUNT_PATTERN),
            Self::Size(min, max) => number_or(min, max, SIZE_PATTERN),
            Self::Time => json!({ "type": "string", "pattern": TIME_PATTERN }),
            Self::Fraction => json!({ "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 1 },
                { "type": "string", "pattern": FRACTION_PATTERN },
            ] }),
            Self::Ratio(min, max) => {
                json!({ "type": "number", "minimum": min, "maximum": max })
            }
            Self::Secret => text(),
            Self::Rate => json!({ "anyOf": [
                { "type": "number", "exclusiveMinimum": 0, "maximum": 1e9 },
                { "type": "string", "pattern": RATE_PATTERN },
            ] }),
            Self::Choice(choices) => json!({ "enum": choices }),
            Self::ChoiceOrText(choices, _) => choice_or_text_schema(choices),
            Self::StatusOrTrue(min, max) => json!({ "anyOf": [
                { "const": true },
                { "type": "integer", "minimum": min, "maximum": max },
            ] }),
            Self::Text(_) => text(),
            Self::TextOrFalse(_) => json!({ "anyOf": [text(), { "const": false }] }),
            Self::Texts(_) => json!({ "anyOf": [text(), list(text())] }),
            Self::TextsOrNone(_) => json!({ "anyOf": [
                text(),
                { "type": "array", "items": text() },
            ] }),
            Self::Table(path) => json!({ "allOf": [reference(path)] }),
            Self::TableOrBool(path) => json!({ "anyOf": [reference(path), { "type": "boolean" }] }),
            Self::TableOrTables(path) => json!({ "anyOf": [reference(path), list(reference(path))] }),
            Self::Entries(path, None) => json!({ "type": "array", "items": reference(path) }),
            Self::Entries(path, Some(_)) => json!({
                "type": "array",
                "items": { "anyOf": [text(), reference(path)] },
                "minItems": 1,
            }),
            Self::Named(path) => json!({ "type": "object", "additionalProperties": reference(path) }),
            Self::ByteRate => byte_rate_schema(),
            Self::Weights => weights_schema(),
            Self::Fields => json!({ "type": "object", "additionalProperties": text() }),
            Self::Matchers => json!({ "type": "object", "additionalProperties": matcher_schema() }),
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Bool => "true or false".into(),
            Self::True => "true".into(),
            Self::Integer(min, max) | Self::Status(min, max) => {
                format!("number, {min} to {max}")
            }
            Self::Count(min, max) => format!("count, {min} to {max}"),
            Self::Size(min, _) => format!("size, from {min}"),
            Self::Time => "time".into(),
            Self::Fraction => "fraction".into(),
            Self::Ratio(min, max) => format!("number, {min} to {max}"),
            Self::Secret => "secret".into(),
            Self::ByteRate => "bytes per second, from 1024".into(),
            Self::Rate => "rate".into(),
            Self::Choice(choices) => {
                let choices: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
                choices.join(", ")
            }
            Self::ChoiceOrText(choices, form) => format!("{}, or {form}", Self::Choice(choices).describe()),
            Self::StatusOrTrue(..) => "`true` or a status".into(),
            Self::Text(form) => form.into(),
            Self::TextOrFalse(form) => format!("{form}, or `false`"),
            Self::Texts(form) | Self::TextsOrNone(form) => format!("{form}, or a list"),
            Self::Table(_) => "table".into(),
            Self::TableOrBool(_) => "table, `true` or `false`".into(),
            Self::TableOrTables(_) => "table, or a list of tables".into(),
            Self::Entries(_, None) => "tables".into(),
            Self::Entries(_, Some(key)) => format!("list of {} or tables", plural(key)),
            Self::Named(_) => "named tables".into(),
            Self::Weights => "names with weights".into(),
            Self::Fields => "names with texts".into(),
            Self::Matchers => "names with matchers".into(),
        }
    }
}

fn byte_rate_schema() -> Json {
    json!({ "anyOf": [
        { "type": "integer", "minimum": BYTE_RATE_MIN, "maximum": BYTE_RATE_MAX },
        { "type": "string", "pattern": "^[0-9.]+[kKmMgG]?(i?B)?(/s)?$" },
    ] })
}

fn weights_schema() -> Json {
    let weight = json!({ "type": "integer", "minimum": 0, "maximum": SPLIT_WEIGHT_MAX });
    json!({ "type": "object", "additionalProperties": weight })
}

/// Returns the schema of one of a few words, or a text with values.
fn choice_or_text_schema(choices: &[&str]) -> Json {
    json!({ "anyOf": [{ "enum": choices }, { "type": "string", "pattern": "[{}]" }] })
}

/// Returns the schema of a matcher for a field or a parameter.
fn matcher_schema() -> Json {
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

/// Converts an example or a default, which is TOML, to JSON.
fn example_to_json(text: &str) -> Json {
    DeValue::parse(text).map_or(Json::Null, |value| toml_to_json(value.get_ref()))
}

fn toml_to_json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).unwrap_or_default().into()
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().unwrap_or_default().into(),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(array) => array.iter().map(|entry| toml_to_json(entry.get_ref())).collect(),
        DeValue::Table(table) => table_json(table),
    }
}

/// Converts a TOML table to the JSON that an editor validates against the schema.
pub(super) fn table_json(table: &DeTable<'_>) -> Json {
    let mut members = Map::new();
    for (key, value) in table {
        members.insert(key.get_ref().to_string(), toml_to_json(value.get_ref()));
    }
    members.into()
}

const INTRODUCTION: &str = "\
# The config of weir proxy

A config is a TOML file. Unknown keys, wrong units and unknown names are errors with file, line and
column; all errors of a file are reported together. Times need a unit (`10s`, `250ms`, `1.5m`, `1h`).
Sizes may have a binary unit (`64k` is 65,536), counts a decimal one (`10k` is 10,000).

A request takes the first route that matches. Paths are compared in normal form: percent-encoded
unreserved characters are decoded, empty segments merged, dot segments removed; `%2F` and `%5C` are
unchanged. Hosts are compared without case, port and final dot. Names and values of parameters are
compared decoded, methods and field values unchanged.
";

pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for path in table_paths() {
        let title = if path.is_empty() { "Top level".to_owned() } else { table_heading(path) };
        let title = if path.is_empty() { title } else { format!("`{title}`") };
        let _ = write!(text, "\n## {title}\n\n");
        text += "| Key | Value | Default | Example | Meaning |\n| --- | --- | --- | --- | --- |\n";
        for row in directives_of_table(path) {
            text += &reference_row(row);
        }
    }
    text
}

fn reference_row(row: &Directive) -> String {
    let default = match row.default {
        DefaultValue::Required => "required".to_owned(),
        DefaultValue::Literal(value) => format!("`{}`", table_cell(value)),
        DefaultValue::Unset(description) => description.to_owned(),
    };
    let (kind, example, doc) = (row.kind.describe(), table_cell(row.valid_example), row.doc);
    format!("| `{}` | {kind} | {default} | `{example}` | {doc} |\n", row.key)
}

/// Escapes TOML for a table cell, with double quotes, which are more common.
fn table_cell(toml: &str) -> String {
    toml.replace('\'', "\"")
}
