//! Maps and lists of a config: keys with values, from a file or from the config itself, shared by all cores.
//! A lookup takes no lock and allocates nothing. The file is read again when it changes, without a reload of
//! the config, and operators can change entries in memory; both replace the content as a whole.
//!
//! `table` has the keys and values, `file` the text of a file. A process opens each file once, so that its
//! content outlives reloads of the config.

#![expect(
    clippy::disallowed_types,
    reason = "for reads of files, changes and statistics; lookups of the cores take no lock"
)]

mod content;
mod file;
mod file_state;
#[cfg(any(test, fuzzing, feature = "fixtures"))]
mod fuzzing;
mod table;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use rt::clock::unix_ns;

use content::Content;
pub use content::{EntryChange, MapChangeError};
pub use file_state::{FileState, POLL_INTERVAL_NS};
#[cfg(any(test, fuzzing, feature = "fixtures"))]
pub use fuzzing::check_file;
pub use table::{EntryFault, MatchKind, REGEX_BYTES_MAX};
pub use table::{Key, TEXT_BYTES_MAX, TableForm};

/// A map, or a list, which is a map without values.
pub struct MapStore {
    /// `None`: the entries are in the config.
    path: Option<PathBuf>,
    form: TableForm,
    /// True if `#` starts a comment anywhere in a line.
    has_comments: bool,
    content: ArcSwap<Content>,
    status: Mutex<Status>,
}

/// State of a map beside its content. The lock is held while the content is replaced.
#[derive(Debug, Default)]
struct Status {
    /// State of the file before it was last read.
    loaded_state: Option<FileState>,
    /// State at the last check, if it differs.
    pending_state: Option<FileState>,
    statistics: MapStatistics,
}

/// Counters of a map, and the result of its last load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapStatistics {
    pub loads: u64,
    pub failures: u64,
    /// Time of the last load that succeeded, since 1970.
    pub loaded_unix_ns: u64,
    /// Changes by operators since then.
    pub changes: u64,
    /// Reason why the last load failed; empty: it did not.
    pub last_error: Box<str>,
    pub entries: usize,
    pub memory_bytes: usize,
}

/// Files that the process has open as maps. A map is dropped with the last plan that has it.
static OPEN: Mutex<Vec<Weak<MapStore>>> = Mutex::new(Vec::new());

impl MapStore {
    /// Opens the map in a file: that of the process, read again if the file has changed since.
    ///
    /// # Errors
    /// Returns the faults of the file, each with its place. The content of an open map stays.
    pub fn open(path: &Path, form: TableForm, has_comments: bool) -> Result<Arc<Self>, Vec<String>> {
        let mut open = lock(&OPEN);
        open.retain(|store| store.strong_count() > 0);
        let is_same = |store: &Arc<Self>| {
            store.path.as_deref() == Some(path) && store.form == form && store.has_comments == has_comments
        };
        if let Some(store) = open.iter().filter_map(Weak::upgrade).find(is_same) {
            store.load_if_changed()?;
            return Ok(store);
        }
        let content = ArcSwap::from_pointee(Content::empty(form));
        let (path, status) = (Some(path.to_owned()), Mutex::default());
        let store = Arc::new(Self { path, form, has_comments, content, status });
        store.load()?;
        open.push(Arc::downgrade(&store));
        Ok(store)
    }

    /// Creates a map of entries in a config.
    ///
    /// # Errors
    /// Returns the positions of invalid entries, and their faults.
    pub fn from_entries<'e>(
        form: TableForm,
        entries: impl Iterator<Item = (&'e str, &'e str)>,
    ) -> Result<Arc<Self>, Vec<(usize, String)>> {
        let content = Content::from_entries(form, entries)?;
        let store = Self {
            path: None,
            form,
            has_comments: false,
            content: ArcSwap::from_pointee(content),
            status: Mutex::default(),
        };
        store.publish(&mut store.lock_status(), None);
        Ok(Arc::new(store))
    }

    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub fn kind(&self) -> MatchKind {
        self.form.kind
    }

    /// Calls `read` with the value of the most specific entry that matches, or of the first expression, and returns its
    /// result.
    pub fn find<R>(&self, key: Key<'_>, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.content.load().find(key).map(read)
    }

    /// Reads the file, and replaces the content.
    ///
    /// # Errors
    /// Returns the faults of the file. The content stays.
    pub fn load(&self) -> Result<(), Vec<String>> {
        self.load_locked(&mut self.lock_status())
    }

    fn load_if_changed(&self) -> Result<(), Vec<String>> {
        let mut status = self.lock_status();
        let state = self.path.as_deref().map(FileState::read);
        if state == status.loaded_state && status.statistics.last_error.is_empty() {
            return Ok(());
        }
        self.load_locked(&mut status)
    }

    fn load_locked(&self, status: &mut Status) -> Result<(), Vec<String>> {
        let Some(path) = &self.path else { return Ok(()) };
        // Before the content, so that a later change is noticed.
        status.loaded_state = Some(FileState::read(path));
        status.pending_state = None;
        match Content::read(path, self.form, self.has_comments) {
            Ok(content) => {
                self.publish(status, Some(content));
                let statistics = &mut status.statistics;
                statistics.loads += 1;
                statistics.loaded_unix_ns = unix_ns();
                statistics.changes = 0;
                statistics.last_error = "".into();
                Ok(())
            }
            Err(faults) => {
                status.statistics.failures += 1;
                status.statistics.last_error = faults.first().map_or("", |fault| fault).into();
                Err(faults)
            }
        }
    }

    /// Returns whether the file has changed since it was read, and is complete: two checks in a row found the
    /// same state.
    pub fn has_changed(&self) -> bool {
        let Some(path) = &self.path else { return false };
        // A map that is being loaded is checked again later.
        let Ok(mut status) = self.status.try_lock() else { return false };
        let state = Some(FileState::read(path));
        if state == status.loaded_state {
            status.pending_state = None;
            return false;
        }
        let is_stable = status.pending_state == state;
        status.pending_state = state;
        is_stable
    }

    /// Changes an entry in memory, until the file is read again.
    ///
    /// # Errors
    /// The entry is invalid, or there is none to delete.
    pub fn change(&self, change: &EntryChange<'_>) -> Result<(), MapChangeError> {
        let mut status = self.lock_status();
        let content = self.content.load().with_change(change)?;
        self.publish(&mut status, Some(content));
        status.statistics.changes += 1;
        Ok(())
    }

    /// Calls `visit` with each entry.
    pub fn visit(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        self.content.load_full().visit(visit);
    }

    pub fn statistics(&self) -> MapStatistics {
        self.lock_status().statistics.clone()
    }

    fn publish(&self, status: &mut Status, content: Option<Content>) {
        if let Some(content) = content {
            self.content.store(Arc::new(content));
        }
        let content = self.content.load();
        status.statistics.entries = content.len();
        status.statistics.memory_bytes = content.memory_bytes();
    }

    fn lock_status(&self) -> MutexGuard<'_, Status> {
        lock(&self.status)
    }
}

/// Locks a value that is valid after every statement, so also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for MapStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapStore").field("path", &self.path).field("form", &self.form).finish_non_exhaustive()
    }
}

impl PartialEq for MapStore {
    /// Returns whether both are the same map, or have the same entries in a config.
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.form == other.form && self.path == other.path;
        is_same && (self.path.is_some() || self.content.load().has_entries_of(&other.content.load()))
    }
}

impl Eq for MapStore {}

#[cfg(test)]
mod tests;
