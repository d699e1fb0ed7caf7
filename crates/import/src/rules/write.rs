//! The condition of a route as its keys: tests of one kind become lists, the rest becomes `when`.

use super::{Condition, PathTest, Test, ValueTest};
use crate::document::{Section, Value};
use crate::text::escape_regex;

/// Maximum depth of conditions inside each other, as in weir.
pub(super) const DEPTH_MAX: usize = 8;

/// Keys of a table, in their order.
type Keys = Vec<(String, Value)>;

/// Writes a condition whose parts are all known. With `prefix`, the route has exactly this `path-prefix`.
pub(crate) fn write_condition(condition: &Condition, prefix: Option<&str>, section: &mut Section) {
    if let Some(prefix) = prefix {
        section.set("path-prefix", Value::text(prefix), &[]);
    }
    let parts = match condition {
        Condition::All(parts) => &parts[..],
        Condition::Always => &[],
        part => std::slice::from_ref(part),
    };
    let mut rest = Vec::new();
    for part in parts {
        match plain_keys(part) {
            Some(keys) if prefix.is_some_and(|prefix| is_prefix(&keys, prefix)) => {}
            Some(keys) if keys.iter().all(|(key, value)| has_room(section, key, value)) => {
                for (key, value) in keys {
                    match value {
                        Value::Table(entries) => {
                            entries
                                .into_iter()
                                .for_each(|(name, value)| section.set_in(&key, &name, value, &[]));
                        }
                        value => section.set(&key, value, &[]),
                    }
                }
            }
            _ => rest.push(part.clone()),
        }
    }
    let rest = Condition::all(rest);
    if rest != Condition::Always {
        section.set("when", Value::Table(table(&rest)), &[]);
    }
}

fn is_prefix(keys: &[(String, Value)], prefix: &str) -> bool {
    matches!(keys, [(key, Value::Text(text))] if key == "path-prefix" && text == prefix)
}

/// Returns whether a section can take a key: it has one test of each field, and one list of paths.
fn has_room(section: &Section, key: &str, value: &Value) -> bool {
    match value {
        Value::Table(entries) => entries.iter().all(|(name, _)| !section.has_in(key, name)),
        _ if key.starts_with("path") => {
            !["path", "path-prefix", "path-regex"].iter().any(|key| section.has(key))
        }
        _ => !section.has(key),
    }
}

/// Returns the keys of a test, or of alternatives of one kind, that a route and a condition have; `None`: they are of
/// several kinds, or keys of conditions only.
fn plain_keys(condition: &Condition) -> Option<Keys> {
    let parts = match condition {
        Condition::Any(parts) => &parts[..],
        part => std::slice::from_ref(part),
    };
    let mut keys: Keys = Vec::new();
    for part in parts {
        let Condition::Test(test) = part else { return None };
        let (key, value) = match &**test {
            Test::Host(text) => ("host", text.clone()),
            Test::Method(text) => ("method", text.clone()),
            Test::Source(text) => ("source", text.clone()),
            Test::Path(PathTest::Exact(text)) => ("path", text.clone()),
            Test::Path(PathTest::Prefix(text)) => ("path-prefix", text.clone()),
            // Nothing is between such a prefix and what is below it.
            Test::Path(PathTest::Begins(text)) if text.ends_with('/') => ("path-prefix", text.clone()),
            Test::Path(PathTest::Begins(text)) => ("path-regex", format!("^{}", escape_regex(text))),
            Test::Path(PathTest::Regex(text)) => ("path-regex", text.clone()),
            Test::Header(name, value) if parts.len() == 1 => {
                return Some(vec![matcher("header", name, value)]);
            }
            Test::Query(name, value) if parts.len() == 1 => return Some(vec![matcher("query", name, value)]),
            Test::Header(..)
            | Test::Query(..)
            | Test::Cookie(..)
            | Test::ServerName(_)
            | Test::SourceFile(_)
            | Test::Map(_)
            | Test::Percent(..)
            | Test::Marked(_) => return None,
        };
        let is_same_kind = keys
            .iter()
            .all(|(other, _)| other == key || (other.starts_with("path") && key.starts_with("path")));
        if !is_same_kind {
            return None;
        }
        match keys.iter_mut().find(|(other, _)| other == key) {
            Some((_, Value::List(texts))) => texts.push(Value::text(value)),
            Some((_, first)) => *first = Value::List(vec![first.clone(), Value::text(value)]),
            None => keys.push((key.to_owned(), Value::text(value))),
        }
    }
    (!keys.is_empty()).then_some(keys)
}

fn matcher(key: &str, name: &str, test: &ValueTest) -> (String, Value) {
    let value = match test {
        ValueTest::Equals(text) => Value::text(text),
        ValueTest::Present => Value::Bool(true),
        ValueTest::Absent => Value::Bool(false),
        ValueTest::Regex(text) => Value::table([("regex", Value::text(text))]),
        ValueTest::Item { text, ignores_case } => {
            let case = if *ignores_case { "(?i)" } else { "" };
            let regex = format!("{case}(?:^|,)[\\t ]*{}[\\t ]*(?:,|$)", escape_regex(text));
            Value::table([("regex", Value::text(regex))])
        }
    };
    (key.to_owned(), Value::Table(vec![(name.to_owned(), value)]))
}

fn table(condition: &Condition) -> Keys {
    if let Some(keys) = plain_keys(condition) {
        return keys;
    }
    match condition {
        Condition::Test(test) => match &**test {
            Test::Cookie(name, value) => vec![matcher("cookie", name, value)],
            Test::ServerName(name) => vec![("sni".to_owned(), Value::text(name))],
            Test::SourceFile(file) => vec![("source-file".to_owned(), Value::text(file))],
            Test::Map(map) => vec![matcher("map", &map.name, &map.value)],
            Test::Percent(hundredths, key) => vec![
                ("percent".to_owned(), Value::Hundredths(*hundredths)),
                ("key".to_owned(), Value::text(key)),
            ],
            // The others have plain keys.
            _ => Vec::new(),
        },
        Condition::Not(inner) => vec![("not".to_owned(), Value::Table(table(inner)))],
        Condition::Any(parts) => {
            let tables = parts.iter().map(|part| Value::Table(table(part)));
            vec![("any".to_owned(), Value::List(tables.collect()))]
        }
        Condition::All(parts) => {
            let (mut keys, mut all): (Keys, Vec<Value>) = (Vec::new(), Vec::new());
            for part in parts.iter() {
                let part = table(part);
                let is_path = |key: &str| key.starts_with("path");
                let is_free = part.iter().all(|(key, _)| {
                    !keys.iter().any(|(other, _)| other == key || (is_path(other) && is_path(key)))
                });
                match is_free {
                    true => keys.extend(part),
                    false => all.push(Value::Table(part)),
                }
            }
            if !all.is_empty() {
                keys.push(("all".to_owned(), Value::List(all)));
            }
            keys
        }
        Condition::Tls => vec![("tls".to_owned(), Value::Bool(true))],
        // Invariant: bounds have no other part; a constant is the whole condition.
        Condition::Always | Condition::Never | Condition::Unknown => Vec::new(),
    }
}

/// Returns how deep the conditions of a route's `when` are inside each other, at most.
pub(super) fn depth(condition: &Condition) -> usize {
    1 + match condition {
        Condition::Not(inner) => depth(inner),
        Condition::All(parts) | Condition::Any(parts) => parts.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}
