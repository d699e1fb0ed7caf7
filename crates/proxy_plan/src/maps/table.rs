//! Tables of keys with values: one hash for names, sorted keys for prefixes, sorted networks for addresses.
//! Immutable and pure. Keys and values lie in one buffer, so that an entry costs no allocation of its own.
//!
//! Prefixes and networks share one idea: the keys that begin a text are all before it in sorted order, and each
//! of them begins the next longer one. So a binary search finds one candidate, and each key knows the longest
//! other key that begins it. Expressions are tried in their order.

mod expressions;
mod hash;
mod networks;
mod sorted;

use std::borrow::Cow;
use std::net::IpAddr;

pub(super) use expressions::EXPRESSIONS_MAX;
use expressions::ExpressionIndex;
pub use expressions::REGEX_BYTES_MAX;
use hash::HashIndex;
use networks::NetworkIndex;
use sorted::SortedIndex;

/// Maximum number of entries of a table. Their numbers take 20 bits.
pub(super) const ENTRIES_MAX: usize = 1_000_000;
/// Maximum length of a key, and of a value.
pub const TEXT_BYTES_MAX: usize = 4_096;

code_table! {
    /// Rule by which a key of a table matches a text.
    #[derive(Default)]
    pub enum MatchKind:
    #[default]
    Exact, "exact", "The text is the key.";
    Domain, "domain", "The text is a host below the key, or the key itself.";
    Prefix, "prefix", "The text begins with the key.";
    PathPrefix, "path-prefix", "The text is a path below the key, or the key itself.";
    Suffix, "suffix", "The text ends with the key.";
    Network, "network", "The text is an address in the network of the key.";
    Regex, "regex", "The key is a regular expression that matches a part of the text.";
}

impl MatchKind {
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.code() == name)
    }

    #[must_use]
    pub fn is_network(self) -> bool {
        self == Self::Network
    }

    /// Returns whether the entries have an order: the first one that matches decides.
    pub fn is_ordered(self) -> bool {
        self == Self::Regex
    }
}

/// Form of a table: the same keys in another form are another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableForm {
    pub kind: MatchKind,
    /// True if ASCII letters are compared without case.
    pub ignores_case: bool,
}

/// Text, or address, for which a table is searched.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    Text(&'a [u8]),
    Address(IpAddr),
}

/// An entry that matches, the more specific the higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match<'t> {
    pub specificity: u32,
    /// `None`: the entry is deleted.
    pub value: Option<&'t [u8]>,
}

/// Fault of a key or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    #[error("the key is empty")]
    EmptyKey,
    #[error("the key has more than {TEXT_BYTES_MAX} bytes")]
    LongKey,
    #[error("the value has more than {TEXT_BYTES_MAX} bytes")]
    LongValue,
    #[error("'{0}' is not a network (write 10.0.0.0/8, ::1 or 2001:db8::/32)")]
    Network(Box<str>),
    #[error("'{text}' has bits set after its prefix: write {first}/{prefix}")]
    NetworkBits { text: Box<str>, first: IpAddr, prefix: u8 },
    #[error("'{0}' is an IPv4-mapped IPv6 address: write it as IPv4")]
    MappedNetwork(Box<str>),
    #[error("'{0}' is not a name (write example.org, or *.example.org for the names below it)")]
    Domain(Box<str>),
    #[error("more than {ENTRIES_MAX} entries")]
    TooMany,
    #[error("'{text}' is not a regular expression: {reason}")]
    Expression { text: Box<str>, reason: Box<str> },
    #[error("the regular expression '{text}' compiles to more than {kib_max} KiB")]
    LargeExpression { text: Box<str>, kib_max: usize },
    #[error("more than {EXPRESSIONS_MAX} regular expressions: a request would be compared with each of them")]
    TooManyExpressions,
}

/// Two entries with the same key and different values, by their positions in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub earlier: u32,
    pub later: u32,
}

/// Keys with values. Each entry is a record in `records`.
pub(super) struct Table {
    form: TableForm,
    records: Records,
    index: Index,
    /// Length of the longest key.
    key_bytes_max: usize,
}

enum Index {
    Hash(HashIndex),
    Sorted(SortedIndex),
    Networks(NetworkIndex),
    Expressions(ExpressionIndex),
}

/// Collects the entries of a table.
pub(super) struct TableBuilder {
    form: TableForm,
    records: Vec<u8>,
    /// Record of each entry; networks are in `networks`.
    offsets: Vec<u32>,
    networks: networks::NetworkBuilder,
    /// Compiled keys, one for each of `offsets`, if the keys are expressions.
    expressions: Vec<regex::Regex>,
    last_value: Option<u32>,
}

/// Records: two lengths, and the key and the value.
#[derive(Default)]
struct Records(Box<[u8]>);

/// Length of the value of a deleted entry.
const DELETED: u16 = u16::MAX;

fn push_record(records: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) -> u32 {
    let offset = records.len() as u32;
    // Both lengths are at most TEXT_BYTES_MAX.
    let value_length = value.map_or(DELETED, |value| value.len() as u16);
    records.extend_from_slice(&(key.len() as u16).to_le_bytes());
    records.extend_from_slice(&value_length.to_le_bytes());
    records.extend_from_slice(key);
    records.extend_from_slice(value.unwrap_or_default());
    offset
}

impl Records {
    /// Returns the key and the value of a record.
    fn get(&self, offset: u32) -> (&[u8], Option<&[u8]>) {
        read_record(&self.0, offset)
    }

    fn key(&self, offset: u32) -> &[u8] {
        self.get(offset).0
    }
}

fn read_record(records: &[u8], offset: u32) -> (&[u8], Option<&[u8]>) {
    let record = records.get(offset as usize..).unwrap_or_default();
    // An index has only offsets of records, so both parts are complete.
    let Some(([key_0, key_1, value_0, value_1], rest)) = record.split_first_chunk() else {
        return (&[], None);
    };
    let (key_length, value_length) =
        (u16::from_le_bytes([*key_0, *key_1]), u16::from_le_bytes([*value_0, *value_1]));
    let (key, rest) = rest.split_at_checked(key_length.into()).unwrap_or_default();
    match value_length {
        DELETED => (key, None),
        length => (key, rest.get(..length.into())),
    }
}

impl TableBuilder {
    pub(super) fn new(form: TableForm) -> Self {
        Self {
            form,
            records: Vec::new(),
            offsets: Vec::new(),
            networks: networks::NetworkBuilder::default(),
            expressions: Vec::new(),
            last_value: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len() + self.networks.len()
    }

    /// Adds an entry. `None`: a deleted one.
    ///
    /// # Errors
    /// The key or the value is invalid, or there are too many entries.
    pub(super) fn add(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), EntryFault> {
        if self.len() == ENTRIES_MAX {
            return Err(EntryFault::TooMany);
        }
        if value.is_some_and(|value| value.len() > TEXT_BYTES_MAX) {
            return Err(EntryFault::LongValue);
        }
        match key.len() {
            0 => return Err(EntryFault::EmptyKey),
            1..=TEXT_BYTES_MAX => {}
            _ => return Err(EntryFault::LongKey),
        }
        if self.form.kind == MatchKind::Network {
            let (address, prefix) = networks::parse(key)?;
            let offset = self.value_record(value);
            self.networks.add(address, prefix, offset);
            return Ok(());
        }
        if self.form.kind.is_ordered() {
            if self.len() == EXPRESSIONS_MAX {
                return Err(EntryFault::TooManyExpressions);
            }
            self.expressions.push(expressions::compile(key, self.form.ignores_case)?);
        }
        let key = canonical_key(self.form, key)?;
        let offset = push_record(&mut self.records, key.as_bytes(), value);
        self.offsets.push(offset);
        Ok(())
    }

    /// Returns the key of the entry that was added last, as [`Table::visit`] returns it.
    pub(super) fn last_key(&self) -> String {
        let Some(&offset) = self.offsets.last() else { return self.networks.last().unwrap_or_default() };
        shown_key(self.form, read_record(&self.records, offset).0).into_owned()
    }

    /// Returns the record of a network's value: that of the network before it, if it is the same.
    fn value_record(&mut self, value: Option<&[u8]>) -> u32 {
        match self.last_value {
            Some(offset) if read_record(&self.records, offset).1 == value => offset,
            _ => {
                let offset = push_record(&mut self.records, &[], value);
                self.last_value = Some(offset);
                offset
            }
        }
    }

    /// Returns the table. Entries with the same key and value count once.
    ///
    /// # Errors
    /// Returns the entries with the same key and other values, each with the first one of its key.
    pub(super) fn build(self) -> Result<Table, Vec<Conflict>> {
        let records = Records(self.records.into());
        let mut conflicts = Vec::new();
        let key_bytes_max = self.offsets.iter().map(|&offset| records.key(offset).len()).max().unwrap_or(0);
        let index = match self.form.kind {
            MatchKind::Exact | MatchKind::Domain => {
                Index::Hash(HashIndex::build(&records, &self.offsets, self.form.ignores_case, &mut conflicts))
            }
            MatchKind::Prefix | MatchKind::PathPrefix | MatchKind::Suffix => {
                Index::Sorted(SortedIndex::build(&records, &self.offsets, self.form, &mut conflicts))
            }
            MatchKind::Network => Index::Networks(self.networks.build(&records, &mut conflicts)),
            MatchKind::Regex => {
                let expressions = self.offsets.into_iter().zip(self.expressions).collect();
                Index::Expressions(ExpressionIndex::build(&records, expressions, &mut conflicts))
            }
        };
        match conflicts.is_empty() {
            true => Ok(Table { form: self.form, records, index, key_bytes_max }),
            false => Err(conflicts),
        }
    }
}

/// Returns a key as tables compare it.
fn canonical_key(form: TableForm, key: &str) -> Result<Cow<'_, str>, EntryFault> {
    let mut key = Cow::Borrowed(key);
    if form.kind.is_ordered() {
        // `\D` is not `\d`.
        return Ok(key);
    }
    if form.ignores_case && key.bytes().any(|byte| byte.is_ascii_uppercase()) {
        key = Cow::Owned(key.to_ascii_lowercase());
    }
    if form.kind == MatchKind::Domain {
        // `.example.org` stands for the names below it.
        let name = key.strip_suffix('.').unwrap_or(&key);
        let below = name.strip_prefix("*.");
        let own = below.unwrap_or(name);
        if own.is_empty()
            || own.starts_with('.')
            || own.ends_with('.')
            || own.contains(['*', '/'])
            || own.contains("..")
        {
            return Err(EntryFault::Domain(key.into()));
        }
        let stored = below.map_or_else(|| own.to_owned(), |below| format!(".{below}"));
        key = Cow::Owned(stored);
    }
    Ok(key)
}

/// Returns a stored key as it is written in a file.
fn shown_key(form: TableForm, key: &[u8]) -> Cow<'_, str> {
    // Keys were text.
    let key = String::from_utf8_lossy(key);
    match key.strip_prefix('.').filter(|_| form.kind == MatchKind::Domain) {
        Some(above) => format!("*.{above}").into(),
        None => key,
    }
}

impl Table {
    pub(super) fn form(&self) -> TableForm {
        self.form
    }

    pub(super) fn len(&self) -> usize {
        match &self.index {
            Index::Hash(index) => index.len(),
            Index::Sorted(index) => index.len(),
            Index::Networks(index) => index.len(),
            Index::Expressions(index) => index.len(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let index = match &self.index {
            Index::Hash(index) => index.memory_bytes(),
            Index::Sorted(index) => index.memory_bytes(),
            Index::Networks(index) => index.memory_bytes(),
            Index::Expressions(index) => index.memory_bytes(),
        };
        size_of::<Self>() + self.records.0.len() + index
    }

    /// Returns the most specific match whose specificity is below `below`.
    pub(super) fn find(&self, key: Key<'_>, below: u32) -> Option<Match<'_>> {
        match (&self.index, key) {
            (Index::Networks(index), Key::Address(address)) => index.find(address, below, &self.records),
            (Index::Networks(index), Key::Text(text)) => {
                let address = std::str::from_utf8(text).ok()?.parse().ok()?;
                index.find(address, below, &self.records)
            }
            (_, Key::Address(_)) => None,
            (Index::Expressions(index), Key::Text(text)) => index.find(text, below, &self.records),
            (Index::Sorted(index), Key::Text(text)) => index.find(text, below, self.form, &self.records),
            (Index::Hash(index), Key::Text(text)) if self.form.kind == MatchKind::Domain => {
                self.find_domain(index, text, below)
            }
            (Index::Hash(index), Key::Text(text)) => {
                let is_candidate = below > 1 && text.len() <= self.key_bytes_max;
                let offset = is_candidate.then(|| index.find(text, &self.records)).flatten()?;
                Some(Match { specificity: 1, value: self.records.get(offset).1 })
            }
        }
    }

    /// Searches the name, and then each name above it, of which `.NAME` is more specific.
    fn find_domain(&self, index: &HashIndex, text: &[u8], below: u32) -> Option<Match<'_>> {
        let name = text.strip_suffix(b".").unwrap_or(text);
        let found = |key: &[u8], specificity: usize| {
            let specificity = specificity as u32;
            let is_candidate = specificity < below && key.len() <= self.key_bytes_max && !key.is_empty();
            let offset = is_candidate.then(|| index.find(key, &self.records)).flatten()?;
            Some(Match { specificity, value: self.records.get(offset).1 })
        };
        // A name of DNS is shorter. Longer ones would cost time that is quadratic in their length.
        if name.len() > DOMAIN_BYTES_MAX {
            return None;
        }
        found(name, 2 * name.len()).or_else(|| {
            let mut dots = memchr::memchr_iter(b'.', name).filter(|&dot| dot > 0);
            dots.find_map(|dot| {
                let above = name.len() - dot - 1;
                found(&name[dot..], 2 * above + 1).or_else(|| found(&name[dot + 1..], 2 * above))
            })
        })
    }

    /// Calls `visit` with each entry, expressions in their order, names in no particular one. `None`: the entry is deleted.
    pub(super) fn visit<'t>(&'t self, visit: &mut dyn FnMut(Cow<'t, str>, Option<&'t [u8]>)) {
        let offsets: &mut dyn Iterator<Item = u32> = match &self.index {
            Index::Hash(index) => &mut index.offsets(),
            Index::Sorted(index) => &mut index.offsets(),
            Index::Expressions(index) => &mut index.offsets(),
            Index::Networks(index) => {
                return index.visit(&mut |network, offset| visit(network.into(), self.records.get(offset).1));
            }
        };
        for offset in offsets {
            let (key, value) = self.records.get(offset);
            visit(shown_key(self.form, key), value);
        }
    }

    /// Returns the value of an entry by its own key, not by what it matches. `Some(None)`: it is deleted.
    pub(super) fn own_value(&self, key: &str) -> Result<Option<Option<&[u8]>>, EntryFault> {
        Ok(match &self.index {
            Index::Networks(index) => {
                let (address, prefix) = networks::parse(key)?;
                index.own_record(address, prefix).map(|offset| self.records.get(offset).1)
            }
            Index::Hash(index) => {
                let key = canonical_key(self.form, key)?;
                index.find(key.as_bytes(), &self.records).map(|offset| self.records.get(offset).1)
            }
            Index::Expressions(index) => {
                let offset = index.own_record(key.as_bytes(), &self.records);
                offset.map(|offset| self.records.get(offset).1)
            }
            Index::Sorted(index) => {
                let key = canonical_key(self.form, key)?;
                let offset = index.own_record(key.as_bytes(), self.form, &self.records);
                offset.map(|offset| self.records.get(offset).1)
            }
        })
    }
}

/// Maximum length of a name that is searched in a table of domains.
const DOMAIN_BYTES_MAX: usize = 255;

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("form", &self.form).field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
