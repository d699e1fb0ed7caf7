//! Reads TOML to values by the table of keys. It reports all problems at once, each with its line
//! and column.
//!
//! Not for the meaning of the values together: see [`super::setup`].

use std::collections::BTreeMap;

use record::document::{TomlDocument, text_or_number};
use record::problem::{InvalidValue, suggestion};
use record::units::{DurationUnit, parse_duration_ns, parse_fraction, parse_fraction_up_to, parse_size};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use record::document::Problems;
use record::sorted::{CollectSorted, sort_by_key};

use super::experiment_keys::EXPERIMENT;
use super::key_spec::{KeySpec, ValueForm, describe};
use super::plan::{NODES, Node};

/// Maximum number of entries of a list: each of them causes a run.
const ENTRIES_MAX: usize = 64;

/// Value that fits its form.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Word or text.
    Text(String),
    /// Count, time in nanoseconds, size in bytes, or rate in bits per second.
    Integer(u64),
    /// Number or fraction.
    Decimal(f64),
    Bool(bool),
    Cpus(Vec<u32>),
    Texts(NamedTexts),
    List(Vec<(usize, String)>),
    Table(TableValues),
    /// Tables by any name, in the order of the file.
    Tables(Vec<NamedTable>),
}

/// Texts by name, with the byte offset of each name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTexts {
    texts: BTreeMap<String, String>,
    offsets: BTreeMap<String, usize>,
}

/// Table with a name that the file chooses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTable {
    pub name: String,
    pub offset: usize,
    pub values: TableValues,
}

/// Values of a table, each with its byte offset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableValues {
    pub offset: usize,
    values: BTreeMap<&'static str, (usize, Value)>,
}

impl TableValues {
    pub(super) fn by_node<T>(&self, key: &str, read: impl Fn(&Self, &str) -> Option<T>) -> BTreeMap<Node, T> {
        let Some(table) = self.table(key) else { return BTreeMap::new() };
        NODES.into_iter().filter_map(|node| Some((node, read(table, node.name())?))).collect_map()
    }

    /// Returns the byte offset of a key's value, or else of the table.
    pub fn offset_of(&self, name: &str) -> usize {
        self.values.get(name).map_or(self.offset, |(at, _)| *at)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(_, value)| value)
    }

    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Self> {
        match self.value(name) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// Returns the text or word of a key.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub fn integer(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn decimal(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Decimal(number)) => Some(*number),
            _ => None,
        }
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.value(name) == Some(&Value::Bool(true))
    }

    /// Returns the CPUs of a key.
    pub fn cpus(&self, name: &str) -> Option<&[u32]> {
        match self.value(name) {
            Some(Value::Cpus(cpus)) => Some(cpus),
            _ => None,
        }
    }

    pub fn list(&self, name: &str) -> Option<&[(usize, String)]> {
        match self.value(name) {
            Some(Value::List(entries)) => Some(entries),
            _ => None,
        }
    }

    /// Returns the named tables of a key, in the order of the file.
    pub fn tables(&self, name: &str) -> &[NamedTable] {
        match self.value(name) {
            Some(Value::Tables(entries)) => entries,
            _ => &[],
        }
    }

    pub fn texts(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        match self.value(name) {
            Some(Value::Texts(texts)) => Some(&texts.texts),
            _ => None,
        }
    }

    /// Returns the byte offset of a name among the texts of a key, or else of the key.
    pub fn text_offset(&self, key: &str, name: &str) -> usize {
        match self.value(key) {
            Some(Value::Texts(texts)) => texts.offsets.get(name).copied(),
            _ => None,
        }
        .unwrap_or_else(|| self.offset_of(key))
    }
}

/// Reads a complete file by its keys.
pub fn read_file(text: &str, keys: &'static [KeySpec], problems: &mut Problems) -> TableValues {
    let (document, is_valid) = parse_document(text, problems);
    let mut key_problems = Problems::default();
    let values = read_table(&document, keys, &mut key_problems);
    if is_valid {
        problems.append(key_problems);
    }
    values
}

/// Parses the tables of a text, and returns whether it is valid TOML. If not, missing keys mean
/// nothing.
pub(crate) fn parse_document<'t>(text: &'t str, problems: &mut Problems) -> (DeTable<'t>, bool) {
    let document = TomlDocument::parse(text);
    document.report_syntax_errors(problems);
    let is_valid = document.is_valid();
    (document.into_table(), is_valid)
}

/// Reads the top-level table by its keys.
pub(crate) fn read_table(
    document: &DeTable<'_>,
    keys: &'static [KeySpec],
    problems: &mut Problems,
) -> TableValues {
    read_table_at(document, 0, "", keys, problems)
}

fn read_table_at(
    table: &DeTable<'_>,
    at: usize,
    path: &str,
    keys: &'static [KeySpec],
    problems: &mut Problems,
) -> TableValues {
    let mut values = TableValues { offset: at, values: BTreeMap::new() };
    for (name, value) in table {
        let offset = name.span().start;
        let Some(key) = keys.iter().find(|key| key.name == &**name.get_ref()) else {
            problems.add_error(offset, unknown_key_text(path, name.get_ref(), keys));
            continue;
        };
        let name = format!("{path}{}", key.name);
        if let Some(value) = read_value(key.form, value, &name, problems) {
            values.values.insert(key.name, (offset, value));
        }
    }
    for key in keys.iter().filter(|key| key.is_required) {
        if !table.iter().any(|(name, _)| &**name.get_ref() == key.name) {
            problems.add_error(at, format!("missing key '{path}{}' ({})", key.name, describe(key.form)));
        }
    }
    values
}

fn unknown_key_text(path: &str, name: &str, keys: &[KeySpec]) -> String {
    if path.is_empty() && EXPERIMENT.iter().any(|key| key.name == name) {
        return format!("'{name}' is a key of experiments, which `weir lab run` runs");
    }
    let hint = suggestion(name, keys.iter().map(|key| key.name));
    let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
    format!("unknown key '{path}{name}'{hint}; there are: {}", names.join(", "))
}

fn read_value(
    form: ValueForm,
    value: &Spanned<DeValue<'_>>,
    name: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let at = value.span().start;
    match (form, value.get_ref()) {
        (ValueForm::Table(keys), DeValue::Table(inner)) => {
            Some(Value::Table(read_table_at(inner, at, &format!("{name}."), keys, problems)))
        }
        (ValueForm::Tables(keys), DeValue::Table(inner)) => {
            Some(Value::Tables(read_named_tables(inner, name, keys, problems)))
        }
        // Their values are read when they are merged with a file.
        (ValueForm::Patches(_), DeValue::Table(_)) => None,
        (ValueForm::List, DeValue::Array(inner)) => read_list(inner, at, name, problems).map(Value::List),
        (ValueForm::Texts, DeValue::Table(inner)) => {
            let mut texts = NamedTexts::default();
            collect_texts(inner, "", name, &mut texts, problems);
            Some(Value::Texts(texts))
        }
        (form, value) => match read_scalar(form, value) {
            Ok(value) => Some(value),
            Err(reason) => {
                let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                problems.add_error(at, format!("'{name}' takes {}{reason}", describe(form)));
                None
            }
        },
    }
}

/// Reads tables by any name. A value other than a table is the value of their first key.
fn read_named_tables(
    table: &DeTable<'_>,
    path: &str,
    keys: &'static [KeySpec],
    problems: &mut Problems,
) -> Vec<NamedTable> {
    let mut entries = Vec::new();
    for (name, inner) in table {
        let (at, name) = (name.span().start, name.get_ref().to_string());
        let path = format!("{path}.{name}");
        let values = match inner.get_ref() {
            DeValue::Table(inner) => read_table_at(inner, at, &format!("{path}."), keys, problems),
            _ => {
                let first = read_value(keys[0].form, inner, &path, problems);
                let first_value = first.map(|value| (keys[0].name, (at, value)));
                TableValues { offset: at, values: first_value.into_iter().collect() }
            }
        };
        entries.push(NamedTable { name, offset: at, values });
    }
    sort_by_key(&mut entries, |entry| entry.offset);
    entries
}

fn read_list(
    array: &[Spanned<DeValue<'_>>],
    at: usize,
    name: &str,
    problems: &mut Problems,
) -> Option<Vec<(usize, String)>> {
    if array.is_empty() || array.len() > ENTRIES_MAX {
        problems.add_error(at, format!("'{name}' takes 1 to {ENTRIES_MAX} entries"));
        return None;
    }
    let texts = array.iter().map(|entry| {
        let at = entry.span().start;
        let text = text_or_number(entry.get_ref());
        if text.is_none() {
            problems.add_error(at, format!("'{name}' takes {} here", describe(ValueForm::Plain)));
        }
        Some((at, text?))
    });
    texts.collect()
}

impl NamedTexts {
    fn add(&mut self, name: String, at: usize, text: String) {
        self.offsets.insert(name.clone(), at);
        self.texts.insert(name, text);
    }
}

/// Collects texts by name. `net.ipv4.x = "…"` without quotes is nested tables, whose names are
/// joined again.
fn collect_texts(
    table: &DeTable<'_>,
    prefix: &str,
    name: &str,
    texts: &mut NamedTexts,
    problems: &mut Problems,
) {
    for (key, value) in table {
        let full = format!("{prefix}{}", key.get_ref());
        match value.get_ref() {
            DeValue::String(text) => texts.add(full, key.span().start, text.to_string()),
            DeValue::Integer(number) => texts.add(full, key.span().start, number.to_string()),
            DeValue::Table(inner) => {
                collect_texts(inner, &format!("{full}."), name, texts, problems);
            }
            _ => problems.add_error(
                value.span().start,
                format!("'{name}.{full}' takes {}", describe(ValueForm::Text)),
            ),
        }
    }
}

/// Reads a value. An error has a reason only if the expected form does not explain it.
fn read_scalar(form: ValueForm, value: &DeValue<'_>) -> Result<Value, Option<InvalidValue>> {
    let text = value.as_str();
    // A number may be written as a text, because a parameter may replace it.
    let number = text_or_number(value);
    match form {
        ValueForm::Word(words) => {
            let text = text.filter(|text| words.contains(text)).ok_or(None)?;
            Ok(Value::Text(text.to_owned()))
        }
        ValueForm::Text => Ok(Value::Text(text.ok_or(None)?.to_owned())),
        ValueForm::Count(low, high) => {
            let count = number.and_then(|number| number.replace('_', "").parse().ok());
            let count = count.filter(|count| (low..=high).contains(count));
            Ok(Value::Integer(count.ok_or(None)?))
        }
        ValueForm::Number => {
            let number: Option<f64> = number.and_then(|number| number.parse().ok());
            let number = number.filter(|number| *number > 0.0 && number.is_finite());
            Ok(Value::Decimal(number.ok_or(None)?))
        }
        ValueForm::Plain => Ok(Value::Text(number.ok_or(None)?)),
        ValueForm::Fraction => Ok(Value::Decimal(parse_fraction(&number.ok_or(None)?)?)),
        ValueForm::FractionTo(max) => Ok(Value::Decimal(parse_fraction_up_to(&number.ok_or(None)?, max)?)),
        ValueForm::TimeOr(word) if text == Some(word) => Ok(Value::Text(word.to_owned())),
        ValueForm::Time | ValueForm::TimeOr(_) => {
            let text = text.ok_or(None)?;
            Ok(Value::Integer(parse_duration_ns(text, DurationUnit::Seconds)?))
        }
        ValueForm::Size => Ok(Value::Integer(parse_size(&number.ok_or(None)?)?)),
        ValueForm::Rate => Ok(Value::Integer(text.and_then(parse_rate).ok_or(None)?)),
        ValueForm::Cpus => {
            let text = number.ok_or(None)?;
            Ok(Value::Cpus(parse_cpus(&text).ok_or(None)?))
        }
        ValueForm::Flag => Ok(Value::Bool(value.as_bool().ok_or(None)?)),
        ValueForm::Texts
        | ValueForm::List
        | ValueForm::Table(_)
        | ValueForm::Tables(_)
        | ValueForm::Patches(_) => Err(None),
    }
}

/// Parses `50mbit` to bits per second. The prefixes are powers of a thousand, as in tc(8).
fn parse_rate(text: &str) -> Option<u64> {
    let text = text.strip_suffix("bit")?;
    let (number, scale) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'm' => (&text[..text.len() - 1], 1e6),
        b'g' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok()? * scale;
    (8.0..1e12).contains(&rate).then_some(rate as u64)
}

/// Parses a list of CPUs: `0,2-3`. There are at most 1024.
pub(crate) fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    const CPU_MAX: u32 = 1023;
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_cpus_are_parsed() {
        assert_eq!(parse_rate("50mbit"), Some(50_000_000));
        assert_eq!(parse_rate("1.5gbit"), Some(1_500_000_000));
        assert_eq!((parse_rate("50"), parse_rate("bit"), parse_rate("1xbit")), (None, None, None));
        assert_eq!(parse_cpus("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!((parse_cpus("3-2"), parse_cpus(""), parse_cpus("0-4294967295")), (None, None, None));
    }
}
