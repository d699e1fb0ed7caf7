//! Converts TOML to checked values: each key must be known, and its value of the right kind and in
//! range. The builders (`listeners`, `routes`, `pools`) check how values relate to each other.

use std::collections::BTreeMap;

use record::document::{Located, Problems};
use record::problem::suggestion;
use record::sorted::sort_by_key;
use record::units::{DurationUnit, parse_count, parse_duration_ns, parse_fraction, parse_rate, parse_size};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::directives::{DefaultValue, Directive, ValueKind, directives_of_table, find_directive};
use super::errors::ValueError;
use super::messages::{describe_value, unknown_key_message, wrong_kind};
use super::variables::ExpandedTexts;
use crate::split::SPLIT_WEIGHT_MAX;

/// Maximum time in nanoseconds that a config can set: one year.
const TIME_MAX_NS: u64 = 365 * 24 * 3_600_000_000_000;

/// Range of rates in bytes per second: 1 KiB/s to 1 TiB/s.
pub(super) const BYTE_RATE_MIN: u64 = 1 << 10;
pub(super) const BYTE_RATE_MAX: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Bool(bool),
    /// A number, nanoseconds or bytes, depending on the kind.
    Integer(u64),
    Float(f64),
    Text(Box<str>),
    Texts(Vec<Located<Box<str>>>),
    Pairs(Vec<Pair>),
    Table(Section),
    Tables(Vec<Section>),
}

/// A name and its matcher or value, as in `header = { NAME = … }`.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) name: Located<Box<str>>,
    pub(super) matcher: Located<Matcher>,
}

/// Matcher for a field or a parameter.
#[derive(Clone, Debug)]
pub(super) enum Matcher {
    Text(Box<str>),
    Present(bool),
    Regex(Box<str>),
}

/// Values of one table. Keys that are missing or invalid have their default.
#[derive(Clone, Debug)]
pub(super) struct Section {
    path: &'static str,
    /// Name of the table, if its kind is [`ValueKind::Named`].
    pub(super) name: Box<str>,
    pub(super) offset: usize,
    values: BTreeMap<&'static str, Located<Value>>,
    /// All known keys that were given, valid or not, with their byte offsets.
    given_keys: Vec<(&'static str, usize)>,
    /// Number of keys in the table, known or not.
    key_count: usize,
}

impl Section {
    pub(super) fn empty(path: &'static str) -> Self {
        Self {
            path,
            name: "".into(),
            offset: 0,
            values: BTreeMap::new(),
            given_keys: Vec::new(),
            key_count: 0,
        }
    }

    pub(super) fn with_name(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns the byte offset of `key`, if it was given, valid or not.
    pub(super) fn key_offset(&self, key: &str) -> Option<usize> {
        self.given_keys.iter().find(|(given_key, _)| *given_key == key).map(|(_, offset)| *offset)
    }

    /// Returns whether the table has no key at all, known or not.
    pub(super) fn is_empty_table(&self) -> bool {
        self.key_count == 0
    }

    /// Returns the byte offset of the value of `key`, or else of the table.
    pub(super) fn value_offset(&self, key: &str) -> usize {
        self.values.get(key).map_or(self.offset, |value| value.offset)
    }

    fn value_or_default(&self, key: &str) -> Option<Located<Value>> {
        debug_assert!(find_directive(self.path, key).is_some(), "no row for {} {key}", self.path);
        self.values.get(key).cloned().or_else(|| {
            let row = find_directive(self.path, key)?;
            default_value(row).map(|value| Located::new(value, self.offset))
        })
    }

    /// Returns whether a key of the kind [`ValueKind::TableOrBool`] is `false`.
    pub(super) fn is_switched_off(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Located { value: Value::Bool(false), .. }))
    }

    // Hundreds of calls, once at a start: they stay calls.
    #[inline(never)]
    pub(super) fn flag(&self, key: &str) -> bool {
        matches!(self.value_or_default(key), Some(Located { value: Value::Bool(true), .. }))
    }

    /// Returns a number, nanoseconds or bytes.
    #[inline(never)]
    pub(super) fn integer(&self, key: &str) -> Option<u64> {
        match self.value_or_default(key)?.value {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the same for a key that has a default.
    pub(super) fn integer_or_zero(&self, key: &str) -> u64 {
        self.integer(key).unwrap_or_default()
    }

    pub(super) fn size(&self, key: &str) -> usize {
        usize::try_from(self.integer_or_zero(key)).unwrap_or(usize::MAX)
    }

    /// Returns a number that has no default.
    pub(super) fn optional_size(&self, key: &str) -> Option<usize> {
        self.integer(key).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    }

    #[inline(never)]
    pub(super) fn float(&self, key: &str) -> Option<f64> {
        match self.value_or_default(key)?.value {
            Value::Float(number) => Some(number),
            _ => None,
        }
    }

    #[inline(never)]
    pub(super) fn text(&self, key: &str) -> Option<Located<Box<str>>> {
        let Located { value, offset } = self.value_or_default(key)?;
        match value {
            Value::Text(text) => Some(Located::new(text, offset)),
            _ => None,
        }
    }

    #[inline(never)]
    pub(super) fn texts(&self, key: &str) -> Vec<Located<Box<str>>> {
        match self.value_or_default(key) {
            Some(Located { value: Value::Texts(texts), .. }) => texts,
            _ => Vec::new(),
        }
    }

    #[inline(never)]
    pub(super) fn pairs(&self, key: &str) -> Vec<Pair> {
        match self.value_or_default(key) {
            Some(Located { value: Value::Pairs(pairs), .. }) => pairs,
            _ => Vec::new(),
        }
    }

    /// Returns whether a key has names with matchers, but none.
    pub(super) fn has_no_pairs(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Located { value: Value::Pairs(pairs), .. }) if pairs.is_empty())
    }

    /// Returns a subtable, or an empty one if it was not given.
    pub(super) fn table(&self, key: &str) -> Self {
        let kind = find_directive(self.path, key).map(|row| row.kind);
        match (self.value_or_default(key), kind) {
            (Some(Located { value: Value::Table(section), .. }), _) => section,
            (_, Some(ValueKind::Table(path) | ValueKind::TableOrBool(path))) => {
                Self { offset: self.offset, ..Self::empty(path) }
            }
            _ => Self::empty(""),
        }
    }

    #[inline(never)]
    pub(super) fn tables(&self, key: &str) -> Vec<Self> {
        match self.value_or_default(key) {
            Some(Located { value: Value::Tables(sections), .. }) => sections,
            _ => Vec::new(),
        }
    }
}

/// Returns the value of a row's default.
fn default_value(row: &Directive) -> Option<Value> {
    let DefaultValue::Literal(text) = row.default else {
        return None;
    };
    let parsed = DeValue::parse(text).ok()?;
    TableReader::new(&mut Problems::default(), true).read_value(row, &parsed)
}

impl Section {
    /// Moves all offsets behind `base` bytes of other files.
    pub(super) fn shift(&mut self, base: usize) {
        self.offset += base;
        self.given_keys.iter_mut().for_each(|(_, offset)| *offset += base);
        for located in self.values.values_mut() {
            located.offset += base;
            match &mut located.value {
                Value::Texts(texts) => texts.iter_mut().for_each(|text| text.offset += base),
                Value::Pairs(pairs) => pairs.iter_mut().for_each(|pair| {
                    pair.name.offset += base;
                    pair.matcher.offset += base;
                }),
                Value::Table(section) => section.shift(base),
                Value::Tables(sections) => sections.iter_mut().for_each(|section| section.shift(base)),
                Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) => {}
            }
        }
    }

    /// Adds the keys of another file: tables of lists and with names are added, other keys must be new.
    pub(super) fn merge(&mut self, other: Self, problems: &mut Problems) {
        self.key_count += other.key_count;
        for (key, offset) in other.given_keys {
            let is_list = matches!(
                find_directive(self.path, key).map(|row| row.kind),
                Some(ValueKind::Named(_) | ValueKind::Entries(..))
            );
            match self.key_offset(key) {
                None => self.given_keys.push((key, offset)),
                Some(_) if is_list || key == INCLUDE => {}
                Some(_) => {
                    problems.add_error(offset, format!("'{key}' is in another file, too: remove one of them"))
                }
            }
        }
        for (key, value) in other.values {
            match (self.values.get_mut(key).map(|located| &mut located.value), value.value) {
                (Some(Value::Tables(own)), Value::Tables(sections)) => {
                    for section in sections {
                        let is_duplicate = own.iter().any(|own_section| {
                            !own_section.name.is_empty() && own_section.name == section.name
                        });
                        if is_duplicate {
                            let text =
                                format!("'{}' is in another file, too: rename one of them", section.name);
                            problems.add_error(section.offset, text);
                        }
                        own.push(section);
                    }
                }
                (Some(_), _) => {}
                (None, inner) => {
                    self.values.insert(key, Located::new(inner, value.offset));
                }
            }
        }
    }

    /// Reports the required keys that no file has.
    pub(super) fn report_missing_keys(&self, problems: &mut Problems) {
        let required_rows =
            directives_of_table(self.path).filter(|row| row.default == DefaultValue::Required);
        for row in required_rows.filter(|row| self.key_offset(row.key).is_none()) {
            let text = match row.kind {
                ValueKind::Named(_) => "no listener: add [listener.NAME] with bind".into(),
                _ => format!("'{}' is missing: write {} = {}", row.key, row.key, row.valid_example),
            };
            problems.add_error(self.offset, text);
        }
    }
}

/// Key with the files that a file includes.
pub(super) const INCLUDE: &str = "include";

pub(super) struct TableReader<'p> {
    problems: &'p mut Problems,
    /// True if required keys may be missing. After a syntax error they may be in the part that
    /// could not be parsed.
    is_lenient: bool,
    /// Names of the named tables that are being read, from outside in.
    names: Vec<String>,
    /// Texts in which variables were replaced; `None` for defaults.
    variables: Option<&'p ExpandedTexts>,
}

impl<'p> TableReader<'p> {
    pub(super) fn new(problems: &'p mut Problems, is_lenient: bool) -> Self {
        Self { problems, is_lenient, names: Vec::new(), variables: None }
    }

    /// Accepts the values of variables where numbers and booleans are expected.
    pub(super) fn with_variables(self, variables: &'p ExpandedTexts) -> Self {
        Self { variables: Some(variables), ..self }
    }

    /// Reads the values of `table`, with the keys of `path`, which starts at byte `offset`.
    pub(super) fn read_section(&mut self, path: &'static str, table: &DeTable<'_>, offset: usize) -> Section {
        let mut section = Section { offset, key_count: table.len(), ..Section::empty(path) };
        for (key, value) in table {
            let key_offset = key.span().start;
            let Some(row) = find_directive(path, key.get_ref()) else {
                let text = unknown_key_message(path, &self.names, key.get_ref());
                self.problems.add_error(key_offset, text);
                continue;
            };
            section.given_keys.push((row.key, key_offset));
            if let Some(parsed_value) = self.read_value(row, value) {
                section.values.insert(row.key, Located::new(parsed_value, value.span().start));
            }
        }
        sort_by_key(&mut section.given_keys, |(_, offset)| *offset);
        // A required table at the top level may be in another file.
        if !self.is_lenient && !path.is_empty() {
            section.report_missing_keys(self.problems);
        }
        section
    }

    fn read_value(&mut self, row: &Directive, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let offset = value.span().start;
        let variable_value = self
            .variables
            .filter(|_| row.kind.takes_number_or_bool())
            .and_then(|texts| texts.number_or_bool(value));
        let value = variable_value.as_ref().unwrap_or(value);
        let inner = value.get_ref();
        match row.kind {
            ValueKind::TableOrBool(_) if inner.as_bool().is_some() => inner.as_bool().map(Value::Bool),
            ValueKind::Table(path) | ValueKind::TableOrBool(path) => {
                let table = self.as_table(row, value)?;
                Some(Value::Table(self.read_section(path, table, offset)))
            }
            ValueKind::Named(path) => {
                let named = self.as_table(row, value)?;
                let sections =
                    named.iter().filter_map(|(name, value)| self.read_named(path, row, name, value));
                let mut sections: Vec<Section> = sections.collect();
                // The parser returns tables sorted by name; people expect the file's order.
                sort_by_key(&mut sections, |section| section.offset);
                Some(Value::Tables(sections))
            }
            ValueKind::Entries(path, short_key) => self.read_entries(row, value, path, short_key),
            ValueKind::TableOrTables(path) => match inner.as_array() {
                Some(array) if !array.is_empty() => self.read_entries(row, value, path, None),
                _ => {
                    let table = self.as_table(row, value)?;
                    Some(Value::Tables(vec![self.read_section(path, table, offset)]))
                }
            },
            ValueKind::Texts(_) | ValueKind::TextsOrNone(_) => self.read_texts(row, value),
            ValueKind::Fields | ValueKind::Weights | ValueKind::Matchers => self.read_pairs(row, value),
            _ => {
                let parsed = parse_scalar(row, inner).map_err(|error| self.with_variables_at(offset, &error));
                self.problems.ok_or_report(offset, parsed)
            }
        }
    }

    fn as_table<'a, 'i>(
        &mut self,
        row: &Directive,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Option<&'a DeTable<'i>> {
        let (offset, table) = (value.span().start, value.get_ref().as_table());
        if table.is_none() {
            let text = self.with_variables_at(offset, &wrong_kind(row, value.get_ref()));
            self.problems.add_error(offset, text);
        }
        table
    }

    /// Returns the text of an error, with the variables of the value at an offset.
    fn with_variables_at(&self, offset: usize, error: &ValueError) -> String {
        match self.variables.and_then(|texts| texts.names_at(offset)) {
            Some(names) => format!("{error} (value of {names})"),
            None => error.to_string(),
        }
    }

    fn read_named(
        &mut self,
        path: &'static str,
        row: &Directive,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Section> {
        let offset = name.span().start;
        self.problems.ok_or_report(offset, super::validate::check_name(name.get_ref()));
        let Some(table) = value.get_ref().as_table() else {
            let text = format!(
                "'{name}' is {}: write [{}.NAME] for a table with a name",
                describe_value(value.get_ref()),
                row.key,
                name = name.get_ref(),
            );
            self.problems.add_error(offset, text);
            return None;
        };
        self.names.push(name.get_ref().to_string());
        let section = self.read_section(path, table, offset).with_name(name.get_ref());
        self.names.pop();
        Some(section)
    }

    fn read_entries(
        &mut self,
        row: &Directive,
        value: &Spanned<DeValue<'_>>,
        path: &'static str,
        short_key: Option<&'static str>,
    ) -> Option<Value> {
        let Some(array) = value.get_ref().as_array() else {
            self.problems.add_error(value.span().start, wrong_kind(row, value.get_ref()).to_string());
            return None;
        };
        let mut sections = Vec::new();
        for entry in array {
            let offset = entry.span().start;
            match (entry.get_ref(), short_key) {
                (DeValue::Table(table), _) => sections.push(self.read_section(path, table, offset)),
                (DeValue::String(text), Some(key)) => {
                    let mut section = Section { offset, ..Section::empty(path) };
                    section.given_keys.push((key, offset));
                    section.values.insert(key, Located::new(Value::Text(text.as_ref().into()), offset));
                    sections.push(section);
                }
                (other, _) => {
                    let text = format!("an entry of '{}' is {}", row.key, describe_value(other));
                    self.problems.add_error(offset, format!("{text}: {}", row.kind.hint()));
                }
            }
        }
        Some(Value::Tables(sections))
    }

    fn read_texts(&mut self, row: &Directive, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let offset = value.span().start;
        let texts = match value.get_ref() {
            DeValue::String(text) => vec![Located::new(text.as_ref().into(), offset)],
            DeValue::Array(array) => {
                if array.is_empty() && matches!(row.kind, ValueKind::Texts(_)) {
                    let text = format!("'{}' is empty: add a value, or remove the key", row.key);
                    self.problems.add_error(offset, text);
                }
                let mut texts = Vec::new();
                for entry in array {
                    let offset = entry.span().start;
                    match entry.get_ref() {
                        DeValue::String(text) => texts.push(Located::new(text.as_ref().into(), offset)),
                        other => self.problems.add_error(offset, wrong_kind(row, other).to_string()),
                    }
                }
                texts
            }
            other => {
                self.problems.add_error(offset, wrong_kind(row, other).to_string());
                return None;
            }
        };
        Some(Value::Texts(texts))
    }

    fn read_pairs(&mut self, row: &Directive, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let table = self.as_table(row, value)?;
        let mut pairs = Vec::new();
        for (name, value) in table {
            let offset = value.span().start;
            let regex = value.get_ref().as_table().filter(|table| table.len() == 1);
            let regex = regex.and_then(|table| table.get("regex"));
            let regex = regex.and_then(|text| Some((text.get_ref().as_str()?, text.span().start)));
            let matcher = match (value.get_ref(), row.kind, regex) {
                (weight, ValueKind::Weights, _) if parse_weight_value(weight).is_some() => {
                    let weight = parse_weight_value(weight).unwrap_or_default();
                    Located::new(Matcher::Text(weight.to_string().into()), offset)
                }
                (DeValue::String(text), ValueKind::Fields | ValueKind::Matchers, _) => {
                    Located::new(Matcher::Text(text.as_ref().into()), offset)
                }
                (DeValue::Boolean(present), ValueKind::Matchers, _) => {
                    Located::new(Matcher::Present(*present), offset)
                }
                (_, ValueKind::Matchers, Some((text, offset))) => {
                    Located::new(Matcher::Regex(text.into()), offset)
                }
                (other, ..) => {
                    let name = name.get_ref();
                    let text = format!("'{name}' is {}: {}", describe_value(other), row.kind.hint());
                    self.problems.add_error(offset, text);
                    continue;
                }
            };
            let name = Located::new(name.get_ref().as_ref().into(), name.span().start);
            pairs.push(Pair { name, matcher });
        }
        sort_by_key(&mut pairs, |pair| pair.name.offset);
        Some(Value::Pairs(pairs))
    }
}

/// Converts a value that is neither a list nor a table.
fn parse_scalar(row: &Directive, value: &DeValue<'_>) -> Result<Value, ValueError> {
    let wrong_kind_error = || wrong_kind(row, value);
    let key = row.key;
    let integer_in_range = |number: Option<u64>, min, max| match number {
        Some(number) if (min..=max).contains(&number) => Ok(Value::Integer(number)),
        Some(_) | None => Err(ValueError::Range { key, min, max }),
    };
    match (row.kind, value) {
        (ValueKind::Bool | ValueKind::TextOrFalse(_), DeValue::Boolean(false)) => Ok(Value::Bool(false)),
        (ValueKind::Bool | ValueKind::True | ValueKind::StatusOrTrue(..), DeValue::Boolean(true)) => {
            Ok(Value::Bool(true))
        }
        (
            ValueKind::Integer(min, max)
            | ValueKind::Count(min, max)
            | ValueKind::Size(min, max)
            | ValueKind::Status(min, max)
            | ValueKind::StatusOrTrue(min, max),
            DeValue::Integer(_),
        ) => integer_in_range(parse_integer(value), min, max),
        (ValueKind::Count(min, max) | ValueKind::Size(min, max), DeValue::String(text)) => {
            let is_count = matches!(row.kind, ValueKind::Count(..));
            integer_in_range(Some(if is_count { parse_count(text)? } else { parse_size(text)? }), min, max)
        }
        (ValueKind::Time, DeValue::String(text)) => parse_time(text),
        (ValueKind::Time, DeValue::Integer(number)) => {
            Err(ValueError::NumberWithoutUnit(number.to_string().into()))
        }
        (ValueKind::Fraction, DeValue::String(text)) => Ok(parse_fraction(text).map(Value::Float)?),
        (ValueKind::Fraction, _) => match parse_float(value).ok_or_else(wrong_kind_error)? {
            fraction if (0.0..=1.0).contains(&fraction) => Ok(Value::Float(fraction)),
            _ => Err(ValueError::Range { key, min: 0, max: 1 }),
        },
        (ValueKind::Ratio(min, max), _) => match parse_float(value).ok_or_else(wrong_kind_error)? {
            ratio if (min..=max).contains(&ratio) => Ok(Value::Float(ratio)),
            _ => Err(ValueError::Ratio { key, min, max }),
        },
        (ValueKind::Secret, DeValue::String(text)) => Ok(Value::Text(text.as_ref().into())),
        (ValueKind::Secret, _) => Err(ValueError::Secret { key, hint: row.kind.hint() }),
        (ValueKind::ByteRate, _) => match parse_byte_rate(value) {
            None => Err(wrong_kind_error()),
            rate => integer_in_range(rate, BYTE_RATE_MIN, BYTE_RATE_MAX),
        },
        (ValueKind::Rate, _) => match parse_rate_value(value).ok_or_else(wrong_kind_error)?? {
            rate if rate > 0.0 && rate <= 1e9 => Ok(Value::Float(rate)),
            _ => Err(ValueError::Rate(key)),
        },
        (ValueKind::ChoiceOrText(..), DeValue::String(text)) if text.contains(['{', '}']) => {
            Ok(Value::Text(text.as_ref().into()))
        }
        (ValueKind::Choice(choices) | ValueKind::ChoiceOrText(choices, _), DeValue::String(text)) => {
            check_choice(text, choices)?;
            Ok(Value::Text(text.as_ref().into()))
        }
        (ValueKind::Text(_) | ValueKind::TextOrFalse(_), DeValue::String(text)) => {
            Ok(Value::Text(text.as_ref().into()))
        }
        _ => Err(wrong_kind_error()),
    }
}

fn parse_time(text: &str) -> Result<Value, ValueError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(ValueError::NoUnit(text.into()));
    }
    parse_time_in_seconds(text).map(Value::Integer)
}

/// Parses a time of at most a year; bare numbers are seconds.
pub(super) fn parse_time_in_seconds(text: &str) -> Result<u64, ValueError> {
    match parse_duration_ns(text, DurationUnit::Seconds)? {
        0 => Err(ValueError::ZeroTime),
        ns if ns > TIME_MAX_NS => Err(ValueError::LongTime(text.into())),
        ns => Ok(ns),
    }
}

pub(super) fn check_choice(text: &str, choices: &[&str]) -> Result<(), ValueError> {
    if choices.contains(&text) {
        return Ok(());
    }
    let hint = suggestion(text, choices.iter().copied());
    Err(ValueError::Choice { text: text.into(), choices: choices.join(", "), hint })
}

fn parse_integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str().trim_start_matches('+'), integer.radix()).ok()
}

fn parse_byte_rate(value: &DeValue<'_>) -> Option<u64> {
    let DeValue::String(text) = value else { return parse_integer(value) };
    let size = text.strip_suffix("/s").unwrap_or(text);
    let size = size.strip_suffix("iB").or_else(|| size.strip_suffix('B')).unwrap_or(size);
    parse_size(size).ok()
}

fn parse_weight_value(value: &DeValue<'_>) -> Option<u64> {
    parse_integer(value).filter(|weight| *weight <= SPLIT_WEIGHT_MAX.into())
}

fn parse_float(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(_) => parse_integer(value).map(|number| number as f64),
        _ => None,
    }
}

fn parse_rate_value(value: &DeValue<'_>) -> Option<Result<f64, ValueError>> {
    match value {
        DeValue::String(text) => {
            let periods = [("/m", 60.0), ("/h", 3600.0)];
            let per = |(unit, seconds)| Some((text.strip_suffix(unit)?, seconds));
            let (number, seconds) = periods.into_iter().find_map(per).unwrap_or((text, 1.0));
            Some(parse_rate(number).map(|rate| rate / seconds).map_err(ValueError::from))
        }
        _ => parse_float(value).map(Ok),
    }
}
