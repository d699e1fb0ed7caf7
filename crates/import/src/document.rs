//! A config of weir as a document: sections of keys, each with the source lines that it comes from. It becomes text;
//! it knows nothing of the meaning of a key.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::rc::Rc;

/// A line of a source file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: Rc<str>,
    pub(crate) line: usize,
    /// The directive in one line.
    pub(crate) text: String,
}

/// Source lines that a key or a section comes from.
pub(crate) type Origins = Vec<Rc<Origin>>;

/// Maximum length of a comment with a source line.
const COMMENT_BYTES_MAX: usize = 200;

/// A value of TOML.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Bool(bool),
    Number(u64),
    /// A number of hundredths.
    Hundredths(u32),
    List(Vec<Self>),
    Table(Vec<(String, Self)>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Returns one text as it is, and several as a list.
    pub(crate) fn texts<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Self {
        let mut texts: Vec<Self> = texts.into_iter().map(Self::text).collect();
        match texts.len() {
            1 => texts.swap_remove(0),
            _ => Self::List(texts),
        }
    }

    pub(crate) fn table<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Returns a measure of its text, in bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bool(_) | Self::Number(_) | Self::Hundredths(_) => 0,
            Self::List(values) => values.iter().map(|value| 4 + value.weight()).sum(),
            Self::Table(entries) => entries.iter().map(|(_, value)| 16 + value.weight()).sum(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            // `${` begins a variable of the environment.
            Self::Text(text) => write_text(&text.replace("${", "$${"), out),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            // Writing to a String cannot fail.
            Self::Number(number) => drop(write!(out, "{number}")),
            Self::Hundredths(number) if number % 100 == 0 => drop(write!(out, "{}", number / 100)),
            Self::Hundredths(number) => drop(write!(out, "{}.{:02}", number / 100, number % 100)),
            Self::List(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    value.write(out);
                }
                out.push(']');
            }
            Self::Table(entries) => {
                out.push_str("{ ");
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    write_key(key, out);
                    out.push_str(" = ");
                    value.write(out);
                }
                out.push_str(" }");
            }
        }
    }
}

/// Writes a text: literal if that is possible and needs fewer characters, else with escapes.
fn write_text(text: &str, out: &mut String) {
    let is_plain = !text.chars().any(char::is_control);
    if is_plain && text.contains(['\\', '"']) && !text.contains('\'') {
        out.push('\'');
        out.push_str(text);
        out.push('\'');
        return;
    }
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            letter if letter.is_control() => drop(write!(out, "\\u{:04X}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

fn write_key(key: &str, out: &mut String) {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if !key.is_empty() && key.bytes().all(is_bare) {
        out.push_str(key);
    } else {
        write_text(key, out);
    }
}

/// One key of a section.
#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Value,
    origins: Origins,
}

/// A section of the config.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// Kind, such as `listener`, and name; both empty: the top level. A kind without a name is an array.
    kind: &'static str,
    name: String,
    origins: Origins,
    /// Comments of the converter itself.
    notes: Vec<String>,
    entries: Vec<Entry>,
    /// Arrays of tables inside of it, which are behind its keys.
    tables: Vec<Self>,
}

impl Section {
    pub(crate) fn named(kind: &'static str, name: &str, origins: Origins) -> Self {
        Self { kind, name: name.to_owned(), origins, ..Self::default() }
    }

    pub(crate) fn new_array(kind: &'static str, origins: Origins) -> Self {
        Self { kind, origins, ..Self::default() }
    }

    /// Sets a key; a later value replaces an earlier one.
    pub(crate) fn set(&mut self, key: &str, value: Value, origins: &[Rc<Origin>]) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                entry.value = value;
                entry.origins = origins.to_vec();
            }
            None => self.entries.push(Entry { key: key.to_owned(), value, origins: origins.to_vec() }),
        }
    }

    /// Sets a key of an inline table.
    pub(crate) fn set_in(&mut self, table: &str, key: &str, value: Value, origins: &[Rc<Origin>]) {
        if !self.has(table) {
            self.set(table, Value::Table(Vec::new()), &[]);
        }
        let entry = self.entries.iter_mut().find(|entry| entry.key == table);
        let Some(Entry { value: Value::Table(entries), origins: all, .. }) = entry else { return };
        entries.retain(|(other, _)| other != key);
        entries.push((key.to_owned(), value));
        for origin in origins {
            add_origin(all, origin);
        }
    }

    /// Adds a text to a list.
    pub(crate) fn append(&mut self, key: &str, text: &str, origins: &[Rc<Origin>]) {
        if !self.has(key) {
            self.set(key, Value::List(Vec::new()), &[]);
        }
        let entry = self.entries.iter_mut().find(|entry| entry.key == key);
        let Some(Entry { value: Value::List(values), origins: all, .. }) = entry else { return };
        let value = Value::text(text);
        if !values.contains(&value) {
            values.push(value);
        }
        origins.iter().for_each(|origin| add_origin(all, origin));
    }

    pub(crate) fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Returns whether an inline table has a key.
    pub(crate) fn has_in(&self, table: &str, key: &str) -> bool {
        let entry = self.entries.iter().find(|entry| entry.key == table);
        let Some(Entry { value: Value::Table(entries), .. }) = entry else { return false };
        entries.iter().any(|(other, _)| other == key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Returns whether two sections have the same keys and values.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.key == b.key && a.value == b.value)
            && self.tables.len() == other.tables.len()
            && self.tables.iter().zip(&other.tables).all(|(a, b)| a.equals(b))
    }

    /// Returns the tables of its arrays of tables.
    pub(crate) fn tables_mut(&mut self) -> &mut [Self] {
        &mut self.tables
    }

    /// Returns whether it is a table of an array with these entries at its start.
    pub(crate) fn is_of(&self, kind: &str, key: &str, text: &str) -> bool {
        let has_text = |entry: &Entry| entry.key == key && entry.value == Value::text(text);
        self.kind == kind && self.entries.first().is_some_and(has_text)
    }

    /// Adds a table to an array of tables inside of this section.
    pub(crate) fn push_table(&mut self, table: Self) {
        self.tables.push(table);
    }

    fn write(&self, out: &mut String) {
        self.write_keys(out);
        for table in &self.tables {
            table.write_keys(out);
        }
        out.push('\n');
    }

    fn write_keys(&self, out: &mut String) {
        write_origins(&self.origins, out);
        for note in &self.notes {
            write_comment(note, out);
        }
        if !self.kind.is_empty() {
            match self.name.is_empty() {
                true => drop(writeln!(out, "[[{}]]", self.kind)),
                false => {
                    let _ = write!(out, "[{}.", self.kind);
                    write_key(&self.name, out);
                    out.push_str("]\n");
                }
            }
        }
        for entry in &self.entries {
            write_origins(&entry.origins, out);
            write_key(&entry.key, out);
            out.push_str(" = ");
            entry.value.write(out);
            out.push('\n');
        }
    }
}

/// Adds an origin once.
pub(crate) fn add_origin(origins: &mut Origins, origin: &Rc<Origin>) {
    if !origins.iter().any(|other| Rc::ptr_eq(other, origin)) {
        origins.push(Rc::clone(origin));
    }
}

fn write_origins(origins: &[Rc<Origin>], out: &mut String) {
    for origin in origins {
        if origin.line == 0 {
            // Nobody wrote it.
            write_comment(&origin.text, out);
            continue;
        }
        let file = record::problem::printable(&origin.file, COMMENT_BYTES_MAX);
        let _ = write!(out, "# {file}:{}: ", origin.line);
        write_comment_text(&origin.text, out);
        out.push('\n');
    }
}

fn write_comment(text: &str, out: &mut String) {
    out.push_str("# ");
    write_comment_text(text, out);
    out.push('\n');
}

fn write_comment_text(text: &str, out: &mut String) {
    out.push_str(&record::problem::printable(text, COMMENT_BYTES_MAX));
    if text.len() > COMMENT_BYTES_MAX {
        out.push('…');
    }
}

/// A complete config.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) head: Vec<String>,
    pub(crate) top: Section,
    pub(crate) privileges: Section,
    pub(crate) logs: Vec<Section>,
    pub(crate) error_pages: Vec<Section>,
    pub(crate) maps: Vec<Section>,
    pub(crate) listeners: Vec<Section>,
    pub(crate) routes: Vec<Section>,
    pub(crate) pools: Vec<Section>,
    pub(crate) tail: Vec<String>,
}

impl Document {
    /// Writes the config.
    pub(crate) fn into_text(mut self) -> String {
        let mut out = String::new();
        for line in &self.head {
            write_comment(line, &mut out);
        }
        out.push('\n');
        self.privileges.kind = "";
        if !self.top.is_empty() {
            self.top.write(&mut out);
        }
        if !self.privileges.is_empty() {
            out.push_str("[privileges]\n");
            self.privileges.write(&mut out);
        }
        let arrays = [&self.logs, &self.error_pages, &self.maps, &self.listeners, &self.routes, &self.pools];
        for section in arrays.into_iter().flatten() {
            section.write(&mut out);
        }
        for line in &self.tail {
            write_comment(line, &mut out);
        }
        while out.ends_with("\n\n") {
            out.pop();
        }
        out
    }
}

/// Names that are in use.
#[derive(Debug, Default)]
pub(crate) struct Names {
    used: HashSet<String>,
    /// Numbers to try next, by name.
    next: HashMap<String, usize>,
}

impl Names {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    /// Returns a new name that weir accepts.
    pub(crate) fn add(&mut self, wanted: &str) -> String {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let clean: String =
            wanted.chars().take(56).map(|letter| if is_allowed(letter) { letter } else { '-' }).collect();
        let clean = clean.trim_matches('-');
        let clean = if clean.is_empty() { "unnamed" } else { clean };
        let mut name = clean.to_owned();
        let number = self.next.entry(clean.to_owned()).or_insert(2);
        while self.used.contains(&name) {
            name = format!("{clean}-{number}");
            *number += 1;
        }
        self.used.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_valid_toml() {
        let shown = |text: &str| {
            let mut out = String::new();
            write_text(text, &mut out);
            out
        };
        assert_eq!(shown("a b"), "\"a b\"");
        assert_eq!(shown("^/a\\.b"), "'^/a\\.b'");
        assert_eq!(shown("it's \"x\""), "\"it's \\\"x\\\"\"");
        assert_eq!(shown("a\nb\u{7}"), "\"a\\nb\\u0007\"");
    }

    #[test]
    fn no_name_or_text_ends_a_comment() {
        let origin =
            Origin { file: "a\ndeny = false\r#".into(), line: 1, text: "x\n[listener.y]\u{2028}".into() };
        let mut section = Section::named("pool", "a\nb", vec![Rc::new(origin)]);
        section.note("n\n[[route]]");
        section.set("k\ny", Value::text("v\nz = 1"), &[]);
        let mut out = String::new();
        section.write(&mut out);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[2..], ["[pool.\"a\\nb\"]", "\"k\\ny\" = \"v\\nz = 1\"", ""], "{out}");
        assert!(lines[..2].iter().all(|line| line.starts_with("# ")), "{out}");
    }

    #[test]
    fn names_are_clean_and_distinct() {
        let mut names = Names::default();
        let added = ["my app!", "my app", "my-app", "///"].map(|name| names.add(name));
        assert_eq!(added, ["my-app", "my-app-2", "my-app-3", "unnamed"]);
    }
}
