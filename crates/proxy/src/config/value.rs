//! From TOML to checked values: each key is known, of its kind, in its range, or a problem. What
//! the values mean together is for the builders (`listeners`, `routes`, `pools`).

use std::collections::BTreeMap;

use record::units::{
    DurationUnit, parse_count, parse_duration_ns, parse_rate, parse_share, parse_size,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::directives::{Directive, Fallback, Kind, directive, of_table};
use super::source::{At, Problems, suggestion};
use super::words::{article, unknown_key, wrong_kind};

/// The longest time that can be asked for: a year.
pub(super) const TIME_MAX_NS: u64 = 365 * 24 * 3_600_000_000_000;

/// A value that is of its kind.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bool(bool),
    /// A number, nanoseconds or bytes, by its kind.
    Whole(u64),
    Number(f64),
    Text(Box<str>),
    Texts(Vec<At<Box<str>>>),
    Pairs(Vec<Pair>),
    Table(Section),
    Tables(Vec<Section>),
}

/// A name with what stands behind it, as in `header = { NAME = … }`.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) name: At<Box<str>>,
    pub(super) wanted: At<Wanted>,
}

/// What is wanted of a field or a parameter.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Text(Box<str>),
    Present(bool),
    Regex(Box<str>),
}

/// The values of one table. What is not there, or was wrong, has its default.
#[derive(Clone, Debug)]
pub(super) struct Section {
    path: &'static str,
    /// Its name, when its kind is [`Kind::Named`].
    pub(super) name: Box<str>,
    /// Where it stands.
    pub(super) at: usize,
    values: BTreeMap<&'static str, At<Value>>,
    /// Every known key that was given, right or wrong.
    given: Vec<(&'static str, usize)>,
}

impl Section {
    /// A table in which nothing is said.
    pub(super) fn empty(path: &'static str) -> Self {
        Self { path, name: "".into(), at: 0, values: BTreeMap::new(), given: Vec::new() }
    }

    /// The same table by another name.
    pub(super) fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Where `key` is given, right or wrong.
    pub(super) fn place(&self, key: &str) -> Option<usize> {
        self.given.iter().find(|(given, _)| *given == key).map(|(_, at)| *at)
    }

    /// Where the value of `key` stands, or else the table.
    pub(super) fn value_place(&self, key: &str) -> usize {
        self.values.get(key).map_or(self.at, |value| value.at)
    }

    fn value(&self, key: &str) -> Option<At<Value>> {
        debug_assert!(directive(self.path, key).is_some(), "no row for {} {key}", self.path);
        self.values.get(key).cloned().or_else(|| {
            let row = directive(self.path, key)?;
            fallback(row).map(|value| At::new(value, self.at))
        })
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.value(key), Some(At { value: Value::Bool(true), .. }))
    }

    /// A number, nanoseconds or bytes.
    pub(super) fn whole(&self, key: &str) -> Option<u64> {
        match self.value(key)?.value {
            Value::Whole(number) => Some(number),
            _ => None,
        }
    }

    /// The same where there is a default.
    pub(super) fn number(&self, key: &str) -> u64 {
        self.whole(key).unwrap_or_default()
    }

    pub(super) fn size(&self, key: &str) -> usize {
        usize::try_from(self.number(key)).unwrap_or(usize::MAX)
    }

    /// A number that has no default.
    pub(super) fn bound(&self, key: &str) -> Option<usize> {
        self.whole(key).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    pub(super) fn fraction(&self, key: &str) -> Option<f64> {
        match self.value(key)?.value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<At<Box<str>>> {
        let At { value, at } = self.value(key)?;
        match value {
            Value::Text(text) => Some(At::new(text, at)),
            _ => None,
        }
    }

    pub(super) fn texts(&self, key: &str) -> Vec<At<Box<str>>> {
        match self.value(key) {
            Some(At { value: Value::Texts(texts), .. }) => texts,
            _ => Vec::new(),
        }
    }

    pub(super) fn pairs(&self, key: &str) -> Vec<Pair> {
        match self.value(key) {
            Some(At { value: Value::Pairs(pairs), .. }) => pairs,
            _ => Vec::new(),
        }
    }

    /// A table of its own, or one in which nothing is said.
    pub(super) fn table(&self, key: &str) -> Self {
        let kind = directive(self.path, key).map(|row| row.kind);
        match (self.value(key), kind) {
            (Some(At { value: Value::Table(section), .. }), _) => section,
            (_, Some(Kind::Table(path))) => Self { at: self.at, ..Self::empty(path) },
            _ => Self::empty(""),
        }
    }

    pub(super) fn tables(&self, key: &str) -> Vec<Self> {
        match self.value(key) {
            Some(At { value: Value::Tables(sections), .. }) => sections,
            _ => Vec::new(),
        }
    }
}

/// The value that a row's default stands for.
fn fallback(row: &Directive) -> Option<Value> {
    let Fallback::Is(text) = row.fallback else {
        return None;
    };
    let parsed = DeValue::parse(text).ok()?;
    Reader::new(&mut Problems::default(), true).value(row, &parsed)
}

/// Reads tables, and notes what is wrong.
pub(super) struct Reader<'p> {
    problems: &'p mut Problems,
    /// Whether a key that is needed may be missing: after an error of syntax it may be in the part
    /// that was not understood.
    lenient: bool,
}

impl<'p> Reader<'p> {
    pub(super) fn new(problems: &'p mut Problems, lenient: bool) -> Self {
        Self { problems, lenient }
    }

    /// The values of `table`, which is of the form `path` and stands `at`.
    pub(super) fn section(
        &mut self,
        path: &'static str,
        table: &DeTable<'_>,
        at: usize,
    ) -> Section {
        let mut section = Section { at, ..Section::empty(path) };
        for (key, value) in table {
            let key_at = key.span().start;
            let Some(row) = directive(path, key.get_ref()) else {
                self.problems.add(key_at, unknown_key(path, key.get_ref()));
                continue;
            };
            section.given.push((row.key, key_at));
            if let Some(read) = self.value(row, value) {
                section.values.insert(row.key, At::new(read, value.span().start));
            }
        }
        section.given.sort_by_key(|(_, at)| *at);
        let needed = of_table(path).filter(|row| row.fallback == Fallback::Needed);
        for row in needed.filter(|_| !self.lenient) {
            if section.place(row.key).is_none() {
                let text = match row.kind {
                    Kind::Named(_) => "there is no listener: add [listener.NAME] with bind".into(),
                    _ => format!("'{}' is missing: write {} = {}", row.key, row.key, row.right),
                };
                self.problems.add(at, text);
            }
        }
        section
    }

    fn value(&mut self, row: &Directive, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let at = value.span().start;
        let inner = value.get_ref();
        match row.kind {
            Kind::Table(path) => {
                let table = self.as_table(row, value)?;
                Some(Value::Table(self.section(path, table, at)))
            }
            Kind::Named(path) => {
                let named = self.as_table(row, value)?;
                let sections =
                    named.iter().filter_map(|(name, value)| self.named(path, row, name, value));
                let mut sections: Vec<Section> = sections.collect();
                // TOML's tables come by name here; people think in the file's order.
                sections.sort_by_key(|section| section.at);
                Some(Value::Tables(sections))
            }
            Kind::Entries(path, short) => self.entries(row, value, path, short),
            Kind::Texts(_) | Kind::TextsOrNone(_) => self.texts(row, value),
            Kind::Fields | Kind::Wanted => self.pairs(row, value),
            _ => match scalar(row, inner) {
                Ok(value) => Some(value),
                Err(text) => {
                    self.problems.add(at, text);
                    None
                }
            },
        }
    }

    fn as_table<'a, 'i>(
        &mut self,
        row: &Directive,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Option<&'a DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.problems.add(value.span().start, wrong_kind(row, value.get_ref()));
        }
        table
    }

    fn named(
        &mut self,
        path: &'static str,
        row: &Directive,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Section> {
        let at = name.span().start;
        if let Err(text) = super::forms::name(name.get_ref()) {
            self.problems.add(at, text);
        }
        let Some(table) = value.get_ref().as_table() else {
            let text = format!(
                "'{name}' is {}: write [{}.NAME] for a table with a name",
                article(value.get_ref()),
                row.key,
                name = name.get_ref(),
            );
            self.problems.add(at, text);
            return None;
        };
        Some(self.section(path, table, at).named(name.get_ref()))
    }

    fn entries(
        &mut self,
        row: &Directive,
        value: &Spanned<DeValue<'_>>,
        path: &'static str,
        short: Option<&'static str>,
    ) -> Option<Value> {
        let Some(array) = value.get_ref().as_array() else {
            self.problems.add(value.span().start, wrong_kind(row, value.get_ref()));
            return None;
        };
        let mut sections = Vec::new();
        for entry in array {
            let at = entry.span().start;
            match (entry.get_ref(), short) {
                (DeValue::Table(table), _) => sections.push(self.section(path, table, at)),
                (DeValue::String(text), Some(key)) => {
                    let mut section = Section { at, ..Section::empty(path) };
                    section.given.push((key, at));
                    section.values.insert(key, At::new(Value::Text(text.as_ref().into()), at));
                    sections.push(section);
                }
                (other, _) => {
                    let text = format!("an entry of '{}' is {}", row.key, article(other));
                    self.problems.add(at, format!("{text}: {}", row.kind.wish()));
                }
            }
        }
        Some(Value::Tables(sections))
    }

    fn texts(&mut self, row: &Directive, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let at = value.span().start;
        let texts = match value.get_ref() {
            DeValue::String(text) => vec![At::new(text.as_ref().into(), at)],
            DeValue::Array(array) => {
                if array.is_empty() && matches!(row.kind, Kind::Texts(_)) {
                    let text = format!("'{}' is empty: name one, or leave it out", row.key);
                    self.problems.add(at, text);
                }
                let mut texts = Vec::new();
                for entry in array {
                    let at = entry.span().start;
                    match entry.get_ref() {
                        DeValue::String(text) => texts.push(At::new(text.as_ref().into(), at)),
                        other => self.problems.add(at, wrong_kind(row, other)),
                    }
                }
                texts
            }
            other => {
                self.problems.add(at, wrong_kind(row, other));
                return None;
            }
        };
        Some(Value::Texts(texts))
    }

    fn pairs(&mut self, row: &Directive, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let table = self.as_table(row, value)?;
        let mut pairs = Vec::new();
        for (name, value) in table {
            let at = value.span().start;
            let regex = value.get_ref().as_table().filter(|table| table.len() == 1);
            let regex = regex.and_then(|table| table.get("regex"));
            let regex = regex.and_then(|text| Some((text.get_ref().as_str()?, text.span().start)));
            let wanted = match (value.get_ref(), row.kind, regex) {
                (DeValue::String(text), ..) => At::new(Wanted::Text(text.as_ref().into()), at),
                (DeValue::Boolean(present), Kind::Wanted, _) => {
                    At::new(Wanted::Present(*present), at)
                }
                (_, Kind::Wanted, Some((text, at))) => At::new(Wanted::Regex(text.into()), at),
                (other, ..) => {
                    let name = name.get_ref();
                    let text = format!("'{name}' is {}: {}", article(other), row.kind.wish());
                    self.problems.add(at, text);
                    continue;
                }
            };
            let name = At::new(name.get_ref().as_ref().into(), name.span().start);
            pairs.push(Pair { name, wanted });
        }
        pairs.sort_by_key(|pair| pair.name.at);
        Some(Value::Pairs(pairs))
    }
}

/// A value that is not made of others.
fn scalar(row: &Directive, value: &DeValue<'_>) -> Result<Value, String> {
    let wrong = || wrong_kind(row, value);
    let whole = |number: Option<u64>, low, high| match number {
        Some(number) if (low..=high).contains(&number) => Ok(Value::Whole(number)),
        Some(_) | None => Err(format!("'{}' is not from {low} to {high}", row.key)),
    };
    match (row.kind, value) {
        (Kind::Bool | Kind::TextOrFalse(_), DeValue::Boolean(false)) => Ok(Value::Bool(false)),
        (Kind::Bool | Kind::True | Kind::StatusOrTrue, DeValue::Boolean(true)) => {
            Ok(Value::Bool(true))
        }
        (
            Kind::Whole(low, high)
            | Kind::Count(low, high)
            | Kind::Size(low, high)
            | Kind::Status(low, high),
            DeValue::Integer(_),
        ) => whole(integer(value), low, high),
        (Kind::StatusOrTrue, DeValue::Integer(_)) => whole(integer(value), 400, 599),
        (Kind::Count(low, high), DeValue::String(text)) => {
            whole(Some(parse_count(text)?), low, high)
        }
        (Kind::Size(low, high), DeValue::String(text)) => whole(Some(parse_size(text)?), low, high),
        (Kind::Time, DeValue::String(text)) => time(text),
        (Kind::Time, DeValue::Integer(number)) => {
            Err(format!("{number} has no unit: write \"{number}s\" or \"{number}ms\""))
        }
        (Kind::Share, DeValue::String(text)) => Ok(Value::Number(parse_share(text)?)),
        (Kind::Share, _) => match float(value).ok_or_else(wrong)? {
            share if (0.0..=1.0).contains(&share) => Ok(Value::Number(share)),
            _ => Err(format!("'{}' is not from 0 to 1", row.key)),
        },
        (Kind::Ratio(low, high), _) => match float(value).ok_or_else(wrong)? {
            ratio if (low..=high).contains(&ratio) => Ok(Value::Number(ratio)),
            _ => Err(format!("'{}' is not from {low} to {high}", row.key)),
        },
        (Kind::Secret, DeValue::String(text)) => Ok(Value::Text(text.as_ref().into())),
        (Kind::Secret, _) => Err(format!("'{}' is no text: {}", row.key, row.kind.wish())),
        (Kind::Rate, _) => match rate(value).ok_or_else(wrong)?? {
            rate if rate > 0.0 && rate <= 1e9 => Ok(Value::Number(rate)),
            _ => Err(format!("'{}' is not more than 0 and at most 1G a second", row.key)),
        },
        (Kind::Choice(choices), DeValue::String(text)) => {
            if choices.contains(&text.as_ref()) {
                return Ok(Value::Text(text.as_ref().into()));
            }
            let near = suggestion(text, choices.iter().copied());
            Err(format!("'{text}' is not one of {}{near}", choices.join(", ")))
        }
        (Kind::Text(_) | Kind::TextOrFalse(_), DeValue::String(text)) => {
            Ok(Value::Text(text.as_ref().into()))
        }
        _ => Err(wrong()),
    }
}

fn time(text: &str) -> Result<Value, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("'{text}' has no unit: write \"{text}s\" or \"{text}ms\""));
    }
    match parse_duration_ns(text, DurationUnit::Seconds)? {
        0 => Err("0 would end everything at once: give a time".into()),
        ns if ns > TIME_MAX_NS => Err(format!("'{text}' is longer than a year (8760h)")),
        ns => Ok(Value::Whole(ns)),
    }
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str().trim_start_matches('+'), integer.radix()).ok()
}

fn float(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(_) => integer(value).map(|number| number as f64),
        _ => None,
    }
}

fn rate(value: &DeValue<'_>) -> Option<Result<f64, String>> {
    match value {
        DeValue::String(text) => Some(parse_rate(text)),
        _ => float(value).map(Ok),
    }
}
