//! Content of a map: a table as it was read, and a small table of the changes since. Immutable; a change makes
//! another content, which shares the large table.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use super::file::{self, FILE_BYTES_MAX, check_text};
use super::table::{ENTRIES_MAX, EntryFault, Key, Match, Table, TableBuilder, TableForm};

/// Maximum number of changes beside the table; then a new table is made. Each change copies those before it, so
/// that many of them cost more than a new table now and then.
const CHANGES_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Content {
    table: Arc<Table>,
    /// Entries that were set or deleted since.
    changes: Option<Table>,
    len: usize,
}

/// A change of an entry. `None`: it is deleted.
#[derive(Clone, Copy, Debug)]
pub struct EntryChange<'a> {
    pub key: &'a str,
    pub value: Option<&'a str>,
}

/// Reason for refusing a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapChangeError {
    #[error(transparent)]
    Entry(#[from] EntryFault),
    #[error("the map has no entry '{0}'")]
    NoEntry(Box<str>),
    #[error("an entry cannot have control characters")]
    Control,
    #[error("the map would have more than 64 MiB of keys and values")]
    Large,
}

impl Content {
    pub(super) fn empty(form: TableForm) -> Self {
        Self::new(TableBuilder::new(form)).unwrap_or_else(|_| unreachable!("an empty table has no conflict"))
    }

    fn new(builder: TableBuilder) -> Result<Self, Vec<super::table::Conflict>> {
        let table = builder.build()?;
        Ok(Self { len: table.len(), table: Arc::new(table), changes: None })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Returns its faults, each with its place.
    pub(super) fn read(path: &Path, form: TableForm, has_comments: bool) -> Result<Self, Vec<String>> {
        let name = path.display();
        let content = read_file(path).map_err(|error| vec![format!("{name}: {error}")])?;
        let table = file::parse(&content, form, has_comments).map_err(|faults| faults.texts(&name))?;
        Ok(Self { len: table.len(), table: Arc::new(table), changes: None })
    }

    /// Creates the content of entries.
    ///
    /// # Errors
    /// Returns the positions of invalid entries, and their faults.
    pub(super) fn from_entries<'e>(
        form: TableForm,
        entries: impl Iterator<Item = (&'e str, &'e str)>,
    ) -> Result<Self, Vec<(usize, String)>> {
        let mut builder = TableBuilder::new(form);
        let mut faults = Vec::new();
        for (position, (key, value)) in entries.enumerate() {
            if check_text(key.as_bytes()).is_err() || check_text(value.as_bytes()).is_err() {
                faults.push((position, MapChangeError::Control.to_string()));
            } else if let Err(fault) = builder.add(key, Some(value.as_bytes())) {
                faults.push((position, fault.to_string()));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let text = "the key is another one's, in the form in which keys are compared: remove one of them";
        let conflict = |conflict: &super::table::Conflict| (conflict.later as usize, text.to_owned());
        Self::new(builder).map_err(|conflicts| conflicts.iter().map(conflict).collect())
    }

    /// Returns the value of the most specific entry that matches.
    #[inline]
    pub(super) fn find(&self, key: Key<'_>) -> Option<&[u8]> {
        match &self.changes {
            None => self.table.find(key, u32::MAX)?.value,
            Some(changes) => self.find_changed(changes, key),
        }
    }

    #[cold]
    fn find_changed<'t>(&'t self, changes: &'t Table, key: Key<'_>) -> Option<&'t [u8]> {
        let mut below = u32::MAX;
        loop {
            match (self.table.find(key, below), changes.find(key, below)) {
                // The same specificity is the same key.
                (own, Some(changed)) if own.is_none_or(|own| own.specificity <= changed.specificity) => {
                    let Match { specificity, value: None } = changed else { return changed.value };
                    below = specificity;
                }
                (own, _) => return own?.value,
            }
        }
    }

    /// Returns the content with a change.
    ///
    /// # Errors
    /// The entry is invalid, or there is none to delete.
    pub(super) fn with_change(&self, change: &EntryChange<'_>) -> Result<Self, MapChangeError> {
        let EntryChange { key, value } = *change;
        if [key, value.unwrap_or_default()].iter().any(|text| check_text(text.as_bytes()).is_err()) {
            return Err(MapChangeError::Control);
        }
        let had_entry = self.has_own(key)?;
        if value.is_none() && !had_entry {
            return Err(MapChangeError::NoEntry(key.into()));
        }
        let len = self.len + usize::from(value.is_some()) - usize::from(had_entry);
        if len > ENTRIES_MAX {
            return Err(EntryFault::TooMany.into());
        }
        if self.memory_bytes() > FILE_BYTES_MAX + 16 * ENTRIES_MAX {
            return Err(MapChangeError::Large);
        }
        if self.table.form().kind.is_ordered() {
            return self.with_ordered_change(change);
        }
        let mut builder = TableBuilder::new(self.table.form());
        // The new entry first, so that its own older change can be told.
        builder.add(key, value.map(str::as_bytes))?;
        let added = builder.last_key();
        let mut fault = None;
        if let Some(changes) = &self.changes {
            changes.visit(&mut |other, value| {
                if *other != *added {
                    fault = fault.take().or_else(|| builder.add(&other, value).err());
                }
            });
        }
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        // Each key is added once.
        let changes = builder.build().map_err(|_| MapChangeError::NoEntry(key.into()))?;
        let changed = Self { table: Arc::clone(&self.table), changes: Some(changes), len };
        Ok(if changed.changes.as_ref().is_some_and(|changes| changes.len() > CHANGES_MAX) {
            changed.merged()?
        } else {
            changed
        })
    }

    /// Returns the content of ordered entries with a change: a known key keeps its place, a new one is the last.
    fn with_ordered_change(&self, change: &EntryChange<'_>) -> Result<Self, MapChangeError> {
        let mut entries: Vec<(String, Vec<u8>)> = Vec::with_capacity(self.len + 1);
        self.visit(&mut |key, value| entries.push((key.to_owned(), value.to_owned())));
        let known = entries.iter().position(|(key, _)| key == change.key);
        match (change.value, known) {
            (Some(value), Some(at)) => entries[at].1 = value.as_bytes().to_owned(),
            (Some(value), None) => entries.push((change.key.to_owned(), value.as_bytes().to_owned())),
            (None, Some(at)) => drop(entries.remove(at)),
            (None, None) => return Err(MapChangeError::NoEntry(change.key.into())),
        }
        let mut builder = TableBuilder::new(self.table.form());
        for (key, value) in &entries {
            builder.add(key, Some(value))?;
        }
        // Each key is added once.
        Self::new(builder).map_err(|_| MapChangeError::Large)
    }

    /// Returns the same content without changes beside the table.
    fn merged(&self) -> Result<Self, MapChangeError> {
        let mut builder = TableBuilder::new(self.table.form());
        let mut fault = None;
        self.visit(&mut |key, value| fault = fault.take().or_else(|| builder.add(key, Some(value)).err()));
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        // A content has no two entries with one key.
        Self::new(builder).map_err(|_| MapChangeError::Large)
    }

    fn has_own(&self, key: &str) -> Result<bool, EntryFault> {
        let changed = self.changes.as_ref().map(|changes| changes.own_value(key)).transpose()?.flatten();
        Ok(match changed {
            Some(value) => value.is_some(),
            None => self.table.own_value(key)?.is_some(),
        })
    }

    /// Calls `visit` with each entry.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        self.table.visit(&mut |key, value| {
            let is_changed = self.changes.as_ref().is_some_and(|changes| {
                // A key of the table is valid in the same form.
                changes.own_value(&key).is_ok_and(|value| value.is_some())
            });
            if let Some(value) = value.filter(|_| !is_changed) {
                visit(&key, value);
            }
        });
        if let Some(changes) = &self.changes {
            changes.visit(&mut |key, value| {
                if let Some(value) = value {
                    visit(&key, value);
                }
            });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.changes.as_ref().map_or(0, Table::memory_bytes)
    }

    pub(super) fn has_entries_of(&self, other: &Self) -> bool {
        let entries = |content: &Self| {
            let mut entries = Vec::with_capacity(content.len);
            content.visit(&mut |key, value| entries.push((key.to_owned(), value.to_owned())));
            if !content.table.form().kind.is_ordered() {
                entries.sort_unstable();
            }
            entries
        };
        self.len == other.len && entries(self) == entries(other)
    }
}

/// Reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a file")]
    NotAFile,
    #[error("more than {} MiB", FILE_BYTES_MAX >> 20)]
    Large,
}

/// Reads a file up to its maximum size.
fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::NotAFile);
    }
    let mut content = Vec::with_capacity((metadata.len() as usize).min(FILE_BYTES_MAX) + 1);
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    match content.len() {
        0..=FILE_BYTES_MAX => Ok(content),
        _ => Err(ReadError::Large),
    }
}
