//! TOML to values by the table of keys: every problem at once, each with its line and column.
//!
//! Not for what the values mean together: that is [`super::setup`]'s.

use std::collections::BTreeMap;

use record::problem::{Problem, suggestion};
use record::units::{DurationUnit, parse_duration_ns, parse_share, parse_share_to, parse_size};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{EXPERIMENT, Form, Key, describe};

/// Entries of a list: what is made of each is run.
const ENTRIES_MAX: usize = 64;

/// A value that fits its form.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A word or a text.
    Text(String),
    /// A count, a time in nanoseconds, a size in bytes, a rate in bits per second.
    Whole(u64),
    /// A number or a share.
    Decimal(f64),
    /// `true` or `false`.
    Flag(bool),
    /// Processors.
    Cpus(Vec<u32>),
    /// Texts by name.
    Texts(Texts),
    /// Texts, each with the byte at which it stands.
    List(Vec<(usize, String)>),
    /// A table.
    Table(Values),
    /// Tables by any name, in the order of the file.
    Each(Vec<Entry>),
}

/// Texts by name, and where each name stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts {
    texts: BTreeMap<String, String>,
    places: BTreeMap<String, usize>,
}

/// A table by a name of the file's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Where the name stands.
    pub at: usize,
    /// What is in it.
    pub values: Values,
}

/// The values of a table, each with the byte at which it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Where the table stands.
    pub at: usize,
    found: BTreeMap<&'static str, (usize, Value)>,
}

impl Values {
    /// Where the value of a key stands, or else the table.
    #[must_use]
    pub fn place(&self, name: &str) -> usize {
        self.found.get(name).map_or(self.at, |(at, _)| *at)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.found.get(name).map(|(_, value)| value)
    }

    /// The table of a key.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Self> {
        match self.value(name) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// The text or word of a key.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The whole number of a key.
    #[must_use]
    pub fn whole(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Whole(number)) => Some(*number),
            _ => None,
        }
    }

    /// The decimal number of a key.
    #[must_use]
    pub fn decimal(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Decimal(number)) => Some(*number),
            _ => None,
        }
    }

    /// Whether a key is true.
    #[must_use]
    pub fn is_set(&self, name: &str) -> bool {
        self.value(name) == Some(&Value::Flag(true))
    }

    /// The processors of a key.
    #[must_use]
    pub fn cpus(&self, name: &str) -> Option<&[u32]> {
        match self.value(name) {
            Some(Value::Cpus(cpus)) => Some(cpus),
            _ => None,
        }
    }

    /// The list of a key.
    #[must_use]
    pub fn list(&self, name: &str) -> Option<&[(usize, String)]> {
        match self.value(name) {
            Some(Value::List(entries)) => Some(entries),
            _ => None,
        }
    }

    /// The tables of a key that stand there by names, in the order of the file.
    #[must_use]
    pub fn each(&self, name: &str) -> &[Entry] {
        match self.value(name) {
            Some(Value::Each(entries)) => entries,
            _ => &[],
        }
    }

    /// The texts of a key.
    #[must_use]
    pub fn texts(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        match self.value(name) {
            Some(Value::Texts(texts)) => Some(&texts.texts),
            _ => None,
        }
    }

    /// Where a name among the texts of a key stands, or else the key.
    #[must_use]
    pub fn place_of(&self, key: &str, name: &str) -> usize {
        match self.value(key) {
            Some(Value::Texts(texts)) => texts.places.get(name).copied(),
            _ => None,
        }
        .unwrap_or_else(|| self.place(key))
    }
}

/// Problems so far, with the byte at which each stands.
#[derive(Clone, Debug, Default)]
pub struct Problems(Vec<(usize, String)>);

impl Problems {
    /// Notes one.
    pub fn add(&mut self, at: usize, text: impl Into<String>) {
        self.0.push((at, text.into()));
    }

    /// Each with the byte at which it stands.
    pub(crate) fn into_found(self) -> Vec<(usize, String)> {
        self.0
    }

    /// All of them in the order of the file, with file, line and column.
    #[must_use]
    pub fn placed(mut self, file: &str, text: &str) -> Vec<Problem> {
        self.0.sort();
        self.0.dedup();
        let place = |(at, what): (usize, String)| {
            let (line, column) = position(text, at);
            Problem::new(format!("{file}:{line}:{column}"), what)
        };
        self.0.into_iter().map(place).collect()
    }
}

/// Line and column of a byte, both from 1; columns are characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Reads a whole file by its keys.
pub fn read(text: &str, keys: &'static [Key], problems: &mut Problems) -> Values {
    let (document, is_whole) = document(text, problems);
    let mut found = Problems::default();
    let values = table(&document, keys, &mut found);
    if is_whole {
        problems.0.append(&mut found.0);
    }
    values
}

/// The tables of a text, and whether it is right as TOML; if not, what is missing in them says nothing.
pub(crate) fn document<'t>(text: &'t str, problems: &mut Problems) -> (DeTable<'t>, bool) {
    let (document, errors) = DeTable::parse_recoverable(text);
    let is_whole = errors.is_empty();
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        problems.add(at, error.message().to_owned());
    }
    (document.into_inner(), is_whole)
}

/// Reads the table at the top by its keys.
pub(crate) fn table(
    document: &DeTable<'_>,
    keys: &'static [Key],
    problems: &mut Problems,
) -> Values {
    table_at(document, 0, "", keys, problems)
}

fn table_at(
    table: &DeTable<'_>,
    at: usize,
    path: &str,
    keys: &'static [Key],
    problems: &mut Problems,
) -> Values {
    let mut values = Values { at, found: BTreeMap::new() };
    for (name, value) in table {
        let place = name.span().start;
        let Some(key) = keys.iter().find(|key| key.name == &**name.get_ref()) else {
            problems.add(place, no_key(path, name.get_ref(), keys));
            continue;
        };
        let name = format!("{path}{}", key.name);
        if let Some(value) = self::value(key.form, value, &name, problems) {
            values.found.insert(key.name, (place, value));
        }
    }
    for key in keys.iter().filter(|key| key.needed) {
        if !table.iter().any(|(name, _)| &**name.get_ref() == key.name) {
            problems.add(at, format!("'{path}{}' is missing: {}", key.name, describe(key.form)));
        }
    }
    values
}

/// What there is instead of a key that is none.
fn no_key(path: &str, name: &str, keys: &[Key]) -> String {
    if path.is_empty() && EXPERIMENT.iter().any(|key| key.name == name) {
        return format!("'{name}' is a key of experiments, which `weir lab run` runs");
    }
    let near = suggestion(name, keys.iter().map(|key| key.name));
    let known: Vec<&str> = keys.iter().map(|key| key.name).collect();
    format!("there is no key '{path}{name}'{near}; there are: {}", known.join(", "))
}

fn value(
    form: Form,
    value: &Spanned<DeValue<'_>>,
    name: &str,
    problems: &mut Problems,
) -> Option<Value> {
    let at = value.span().start;
    match (form, value.get_ref()) {
        (Form::Table(keys), DeValue::Table(inner)) => {
            Some(Value::Table(table_at(inner, at, &format!("{name}."), keys, problems)))
        }
        (Form::Each(keys), DeValue::Table(inner)) => {
            Some(Value::Each(entries(inner, name, keys, problems)))
        }
        // What is in them is read where they are laid over a file.
        (Form::Patches(_), DeValue::Table(_)) => None,
        (Form::List, DeValue::Array(inner)) => list(inner, at, name, problems).map(Value::List),
        (Form::Texts, DeValue::Table(inner)) => {
            let mut texts = Texts::default();
            collect_texts(inner, "", name, &mut texts, problems);
            Some(Value::Texts(texts))
        }
        (form, value) => match scalar(form, value) {
            Ok(value) => Some(value),
            Err(why) => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                problems.add(at, format!("'{name}' takes {}{why}", describe(form)));
                None
            }
        },
    }
}

/// Tables by any name. What is no table stands for the first of their keys.
fn entries(
    table: &DeTable<'_>,
    path: &str,
    keys: &'static [Key],
    problems: &mut Problems,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, inner) in table {
        let (at, name) = (name.span().start, name.get_ref().to_string());
        let path = format!("{path}.{name}");
        let values = match inner.get_ref() {
            DeValue::Table(inner) => table_at(inner, at, &format!("{path}."), keys, problems),
            _ => {
                let first = value(keys[0].form, inner, &path, problems);
                let found = first.map(|value| (keys[0].name, (at, value)));
                Values { at, found: found.into_iter().collect() }
            }
        };
        entries.push(Entry { name, at, values });
    }
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn list(
    array: &[Spanned<DeValue<'_>>],
    at: usize,
    name: &str,
    problems: &mut Problems,
) -> Option<Vec<(usize, String)>> {
    if array.is_empty() || array.len() > ENTRIES_MAX {
        problems.add(at, format!("'{name}' takes 1 to {ENTRIES_MAX} entries"));
        return None;
    }
    let texts = array.iter().map(|entry| {
        let at = entry.span().start;
        let text = plain(entry.get_ref());
        if text.is_none() {
            problems.add(at, format!("'{name}' takes {} here", describe(Form::Plain)));
        }
        Some((at, text?))
    });
    texts.collect()
}

/// A text, or a number as it is written.
pub(crate) fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

impl Texts {
    fn add(&mut self, name: String, at: usize, text: String) {
        self.places.insert(name.clone(), at);
        self.texts.insert(name, text);
    }
}

/// Texts by name. `net.ipv4.x = "…"` without quotes is tables in tables, which is put together again.
fn collect_texts(
    table: &DeTable<'_>,
    before: &str,
    name: &str,
    texts: &mut Texts,
    problems: &mut Problems,
) {
    for (key, value) in table {
        let full = format!("{before}{}", key.get_ref());
        match value.get_ref() {
            DeValue::String(text) => texts.add(full, key.span().start, text.to_string()),
            DeValue::Integer(number) => texts.add(full, key.span().start, number.to_string()),
            DeValue::Table(inner) => {
                collect_texts(inner, &format!("{full}."), name, texts, problems);
            }
            _ => problems.add(value.span().start, format!("'{name}.{full}' takes a text")),
        }
    }
}

fn scalar(form: Form, value: &DeValue<'_>) -> Result<Value, String> {
    let text = value.as_str();
    // A number may be written as a text, because a parameter may stand for it.
    let number = plain(value);
    let nothing = String::new;
    match form {
        Form::Word(words) => {
            let text = text.filter(|text| words.contains(text)).ok_or_else(nothing)?;
            Ok(Value::Text(text.to_owned()))
        }
        Form::Text => Ok(Value::Text(text.ok_or_else(nothing)?.to_owned())),
        Form::Count(low, high) => {
            let count = number.and_then(|number| number.replace('_', "").parse().ok());
            let count = count.filter(|count| (low..=high).contains(count));
            Ok(Value::Whole(count.ok_or_else(nothing)?))
        }
        Form::Number => {
            let number: Option<f64> = number.and_then(|number| number.parse().ok());
            let number = number.filter(|number| *number > 0.0 && number.is_finite());
            Ok(Value::Decimal(number.ok_or_else(nothing)?))
        }
        Form::Plain => Ok(Value::Text(number.ok_or_else(nothing)?)),
        Form::Share => Ok(Value::Decimal(parse_share(&number.ok_or_else(nothing)?)?)),
        Form::ShareTo(most) => {
            Ok(Value::Decimal(parse_share_to(&number.ok_or_else(nothing)?, most)?))
        }
        Form::TimeOr(word) if text == Some(word) => Ok(Value::Text(word.to_owned())),
        Form::Time | Form::TimeOr(_) => {
            let text = text.ok_or_else(nothing)?;
            Ok(Value::Whole(parse_duration_ns(text, DurationUnit::Seconds)?))
        }
        Form::Size => Ok(Value::Whole(parse_size(&number.ok_or_else(nothing)?)?)),
        Form::Rate => Ok(Value::Whole(text.and_then(parse_rate).ok_or_else(nothing)?)),
        Form::Cpus => {
            let text = number.ok_or_else(nothing)?;
            Ok(Value::Cpus(parse_cpus(&text).ok_or_else(nothing)?))
        }
        Form::Flag => Ok(Value::Flag(value.as_bool().ok_or_else(nothing)?)),
        Form::Texts | Form::List | Form::Table(_) | Form::Each(_) | Form::Patches(_) => {
            Err(nothing())
        }
    }
}

/// `50mbit` in bits per second; a thousand to a step, as tc(8) has it.
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

/// `0,2-3`: at most 1024 processors.
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
    fn rates_and_processors_are_parsed() {
        assert_eq!(parse_rate("50mbit"), Some(50_000_000));
        assert_eq!(parse_rate("1.5gbit"), Some(1_500_000_000));
        assert_eq!((parse_rate("50"), parse_rate("bit"), parse_rate("1xbit")), (None, None, None));
        assert_eq!(parse_cpus("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!(
            (parse_cpus("3-2"), parse_cpus(""), parse_cpus("0-4294967295")),
            (None, None, None)
        );
    }
}
