//! Properties of decoders that hold for any bytes, for tests and fuzz targets only. Nothing in a product
//! calls them.

use std::fmt::Write as _;

use toml::de::{DeTable, DeValue};

use crate::document::{TomlDocument, format_toml};
use crate::file;
use crate::histogram::LatencyHistogram;

/// Checks the text form of a histogram: it is the same after being written and read again. `true`: it was one.
///
/// # Panics
/// The property does not hold.
pub fn histogram(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(latencies) = LatencyHistogram::decode(text) else { return false };
    let again = LatencyHistogram::decode(&latencies.encode());
    assert!(again.is_ok_and(|again| again.count() == latencies.count()), "written and read again");
    true
}

/// Decodes the text form of a histogram, for measurements of its cost.
pub fn decode_histogram(bytes: &[u8]) {
    let _ = std::str::from_utf8(bytes).map(LatencyHistogram::decode);
}

/// Reads the record of a run, as an agent or a file has it: nothing panics. `true`: it was one.
pub fn run_record(bytes: &[u8]) -> bool {
    let is_named = file::parse_schema(bytes).is_ok_and(|schema| schema == crate::run::SCHEMA);
    file::parse_run(bytes).is_ok() && is_named
}

/// Formats a file in TOML: the meaning stays, and formatting again changes nothing. `true`: it was valid.
///
/// # Panics
/// The property does not hold.
pub fn toml_format(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(formatted) = format_toml("fuzz", text) else { return false };
    let (before, after) = (TomlDocument::parse(text), TomlDocument::parse(&formatted));
    assert!(after.is_valid(), "valid: {formatted}");
    let meaning = |document: &TomlDocument<'_>| {
        let mut out = String::new();
        describe_table(document.table(), &mut out);
        out
    };
    assert_eq!(meaning(&before), meaning(&after), "{formatted}");
    assert_eq!(format_toml("fuzz", &formatted).ok().as_deref(), Some(&*formatted), "formatted again");
    let comments = |text: &str| text.bytes().filter(|byte| *byte == b'#').count();
    assert_eq!(comments(text), comments(&formatted), "comments");
    true
}

/// Appends keys and values, without their places.
fn describe_table(table: &DeTable<'_>, out: &mut String) {
    for (key, value) in table {
        let _ = write!(out, "{:?} = ", key.get_ref());
        describe_value(value.get_ref(), out);
    }
}

fn describe_value(value: &DeValue<'_>, out: &mut String) {
    match value {
        DeValue::Array(entries) => {
            out.push('[');
            entries.iter().for_each(|entry| describe_value(entry.get_ref(), out));
            out.push(']');
        }
        DeValue::Table(table) => {
            out.push('{');
            describe_table(table, out);
            out.push('}');
        }
        scalar => {
            let _ = write!(out, "{scalar:?};");
        }
    }
}

/// Formats a file in TOML, for measurements of the cost.
pub fn only_format_toml(bytes: &[u8]) {
    let _ = std::str::from_utf8(bytes).map(|text| format_toml("fuzz", text));
}

#[cfg(test)]
mod cost_tests;
