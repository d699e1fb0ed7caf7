//! Values of a table after its keys were read, each with its place in the file.

use std::collections::BTreeMap;

use crate::document::Located;

/// Value that fits its form.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Word or text.
    Text(String),
    /// Count, time in nanoseconds, size in bytes, or rate in bits per second.
    Integer(u64),
    /// Number or fraction.
    Decimal(f64),
    Bool(bool),
    Cpus(Vec<u32>),
    Texts(NamedTexts),
    List(Vec<Located<String>>),
    Table(TableValues),
    /// Tables of an array, in the order of the file.
    TableList(Vec<TableValues>),
    /// Tables by any name, in the order of the file.
    Tables(Vec<NamedTable>),
}

/// Texts by name, with the byte offset of each name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NamedTexts {
    texts: BTreeMap<String, String>,
    offsets: BTreeMap<String, usize>,
}

impl NamedTexts {
    pub(super) fn add(&mut self, name: String, offset: usize, text: String) {
        self.offsets.insert(name.clone(), offset);
        self.texts.insert(name, text);
    }
}

/// Table with a name that the file chooses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTable {
    pub name: String,
    pub offset: usize,
    pub values: TableValues,
}

/// Key that is in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GivenKey {
    pub(super) key_offset: usize,
    pub(super) value_offset: usize,
    /// Value; `None` if it does not fit its form.
    pub(super) value: Option<Value>,
}

/// Values of a table, each with its byte offsets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableValues {
    pub offset: usize,
    given: BTreeMap<&'static str, GivenKey>,
}

impl TableValues {
    pub(super) fn new(offset: usize) -> Self {
        Self { offset, given: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, name: &'static str, key: GivenKey) {
        self.given.insert(name, key);
    }

    /// Returns whether a key is in the file, also with a wrong value.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns the byte offset of a key, or else of the table.
    pub fn offset_of(&self, name: &str) -> usize {
        self.given.get(name).map_or(self.offset, |key| key.key_offset)
    }

    /// Returns the byte offset of a key's value, or else of the table.
    pub fn value_offset(&self, name: &str) -> usize {
        self.given.get(name).map_or(self.offset, |key| key.value_offset)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.given.get(name)?.value.as_ref()
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

    pub fn list(&self, name: &str) -> Option<&[Located<String>]> {
        match self.value(name) {
            Some(Value::List(entries)) => Some(entries),
            _ => None,
        }
    }

    /// Returns the text of a key, or those of its list.
    pub fn text_or_list(&self, name: &str) -> Option<Vec<String>> {
        match self.value(name)? {
            Value::Text(text) => Some(vec![text.clone()]),
            Value::List(entries) => Some(entries.iter().map(|entry| entry.value.clone()).collect()),
            _ => None,
        }
    }

    /// Returns the tables of a key's array, in the order of the file.
    pub fn table_list(&self, name: &str) -> &[Self] {
        match self.value(name) {
            Some(Value::TableList(tables)) => tables,
            _ => &[],
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
