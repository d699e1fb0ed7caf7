//! Environment variables in the texts of a config: `${NAME}`, `${NAME:-default}`, and `$${` for a literal `${`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::document::Problems;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum length of the value of a variable in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Fault of a reference to a variable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum VariableFault {
    #[error(
        "environment variable '{0}' is not set: set it, write ${{{0}:-DEFAULT}}, or $${{{0}}} for literal text"
    )]
    Missing(Box<str>),
    #[error("'{0}' is not the name of an environment variable; for a literal '${{', write '$${{'")]
    Name(Box<str>),
    #[error("'${{' has no '}}'; for a literal '${{', write '$${{'")]
    Unclosed,
    #[error("environment variable '{0}' is not UTF-8, or longer than 64 KiB")]
    Value(Box<str>),
}

/// Value of a variable; `None`: not set. An error: no text.
pub(super) type Lookup<'l> = &'l dyn Fn(&str) -> Option<Result<String, ()>>;

pub(super) fn process_variable(name: &str) -> Option<Result<String, ()>> {
    std::env::var_os(name).map(|value| value.into_string().map_err(drop))
}

/// The texts with variables of a file: by their byte offsets, the names of the variables.
#[derive(Debug, Default)]
pub(super) struct ExpandedTexts(BTreeMap<usize, String>);

impl ExpandedTexts {
    /// Returns the names of the variables in the text at an offset: `${A}, ${B}`.
    pub(super) fn names_at(&self, offset: usize) -> Option<&str> {
        self.0.get(&offset).map(String::as_str)
    }

    /// Returns the number or the boolean that the text at an offset has become by its variables; `None` for any other
    /// value.
    pub(super) fn number_or_bool<'v>(&self, value: &'v Spanned<DeValue<'_>>) -> Option<Spanned<DeValue<'v>>> {
        let text = value.get_ref().as_str()?.trim();
        self.names_at(value.span().start)?;
        let parsed = DeValue::parse(text).ok()?.into_inner();
        if !matches!(parsed, DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) {
            return None;
        }
        Some(Spanned::new(value.span(), parsed))
    }
}

/// Replaces the variables in all texts of a table. Keys have none.
pub(super) fn expand_table(
    table: &mut DeTable<'_>,
    lookup: Lookup<'_>,
    problems: &mut Problems,
) -> ExpandedTexts {
    let mut texts = ExpandedTexts::default();
    expand_entries(table, lookup, problems, &mut texts);
    texts
}

fn expand_entries(
    table: &mut DeTable<'_>,
    lookup: Lookup<'_>,
    problems: &mut Problems,
    texts: &mut ExpandedTexts,
) {
    for (_, value) in table.iter_mut() {
        expand_value(value, lookup, problems, texts);
    }
}

fn expand_value(
    value: &mut Spanned<DeValue<'_>>,
    lookup: Lookup<'_>,
    problems: &mut Problems,
    texts: &mut ExpandedTexts,
) {
    let offset = value.span().start;
    match value.get_mut() {
        DeValue::String(text) if text.contains("${") => {
            let mut names = Vec::new();
            let expanded = expand(text, lookup, &mut names, |at, fault| {
                // Behind the quote with which the text starts.
                problems.add_error(offset + 1 + at, fault);
            });
            *text = Cow::Owned(expanded);
            if !names.is_empty() {
                texts.0.insert(offset, names.join(", "));
            }
        }
        DeValue::Array(entries) => {
            entries.iter_mut().for_each(|entry| expand_value(entry, lookup, problems, texts));
        }
        DeValue::Table(table) => expand_entries(table, lookup, problems, texts),
        _ => {}
    }
}

/// Returns the text with its variables, whose names it adds to `names`. Calls `report` for each fault, with its place.
fn expand(
    text: &str,
    lookup: Lookup<'_>,
    names: &mut Vec<String>,
    mut report: impl FnMut(usize, VariableFault),
) -> String {
    let (mut expanded, mut at) = (String::new(), 0);
    while let Some(start) = text[at..].find("${").map(|found| at + found) {
        // The `$` before it makes it literal.
        if text[at..start].ends_with('$') {
            expanded.push_str(&text[at..start - 1]);
            expanded.push_str("${");
            at = start + 2;
            continue;
        }
        expanded.push_str(&text[at..start]);
        let Some(length) = text[start..].find('}') else {
            report(start, VariableFault::Unclosed);
            return expanded;
        };
        let reference = &text[start + 2..start + length];
        match value_of(reference, lookup) {
            Ok(value) => {
                let name = reference.split(":-").next().unwrap_or(reference);
                names.push(format!("${{{name}}}"));
                expanded.push_str(&value);
            }
            Err(fault) => report(start, fault),
        }
        at = start + length + 1;
    }
    expanded.push_str(&text[at..]);
    expanded
}

/// Returns the value of `NAME` or `NAME:-default`. As in a shell, an empty variable has the default, too.
fn value_of(reference: &str, lookup: Lookup<'_>) -> Result<String, VariableFault> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if !is_name {
        return Err(VariableFault::Name(name.into()));
    }
    match (lookup(name), default) {
        (Some(Ok(value)), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(Ok(value)), _) if value.len() <= VALUE_BYTES_MAX => Ok(value),
        (Some(_), _) => Err(VariableFault::Value(name.into())),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(VariableFault::Missing(name.into())),
    }
}

/// Checks the properties of variables for a text: faults have places in it, and an escaped text is literal. For
/// fuzzing.
///
/// # Panics
/// A property does not hold.
#[cfg(any(test, fuzzing, feature = "fixtures"))]
pub fn check_variables(text: &str) {
    let lookup = |name: &str| name.len().is_multiple_of(2).then(|| Ok(name.to_owned()));
    let mut names = Vec::new();
    let _ = expand(text, &lookup, &mut names, |at, _| assert!(text[at..].starts_with("${")));
    names.clear();
    let mut faults = 0;
    let literal = expand(&text.replace("${", "$${"), &lookup, &mut names, |_, _| faults += 1);
    assert_eq!((&*literal, faults, names.len()), (text, 0, 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<Result<String, ()>> {
        match name {
            "A" => Some(Ok("x".to_owned())),
            "EMPTY" => Some(Ok(String::new())),
            "LONG" => Some(Ok("x".repeat(VALUE_BYTES_MAX + 1))),
            "BYTES" => Some(Err(())),
            _ => None,
        }
    }

    fn expanded(text: &str) -> (String, Vec<(usize, VariableFault)>) {
        let mut faults = Vec::new();
        let text = expand(text, &lookup, &mut Vec::new(), |at, fault| faults.push((at, fault)));
        (text, faults)
    }

    #[test]
    fn variables_have_values_and_defaults() {
        for (text, expected) in [
            ("${A}", "x"),
            ("a${A}b${A}", "axbx"),
            ("${EMPTY}|${EMPTY:-d}|${NONE:-}|${NONE:-a b:-c}", "|d||a b:-c"),
            ("$A {A} $ {A}", "$A {A} $ {A}"),
            ("$${A}$$${A}", "${A}$${A}"),
            ("^a$", "^a$"),
            // A value is not expanded again.
            ("${NONE:-$}{A}", "${A}"),
        ] {
            assert_eq!(expanded(text), (expected.to_owned(), Vec::new()), "{text}");
        }
    }

    #[test]
    fn all_faults_have_a_place() {
        let (_, faults) = expanded("${NONE} ${} ${1A} ${LONG} ${BYTES} ${A");
        let places: Vec<usize> = faults.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [0, 8, 12, 18, 26, 35]);
        assert!(faults[0].1.to_string().contains("${NONE:-DEFAULT}, or $${NONE}"), "{}", faults[0].1);
        assert_eq!(faults[5].1, VariableFault::Unclosed);
    }
}
