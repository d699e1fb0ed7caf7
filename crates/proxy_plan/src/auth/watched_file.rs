//! A file that is read again when it changes: users, or keys. Cores read its content without a lock; a file with
//! faults changes nothing.

#![expect(clippy::disallowed_types, reason = "for reads of files; lookups of the cores take no lock")]

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;

use crate::maps::FileState;

/// Parser of a file; each fault begins with its line, or says what is wrong with the file.
type Parse<T> = fn(&[u8]) -> Result<T, Vec<String>>;

pub struct WatchedFile<T> {
    path: PathBuf,
    bytes_max: usize,
    parse: Parse<T>,
    content: ArcSwap<T>,
    status: Mutex<FileStatus>,
    failures: AtomicU64,
}

#[derive(Default)]
struct FileStatus {
    /// State of the file before it was last read, and at the last check if it differs.
    loaded: Option<FileState>,
    pending: Option<FileState>,
}

impl<T> WatchedFile<T> {
    pub fn content(&self) -> Arc<T> {
        self.content.load_full()
    }
}

/// Files that the process has open, each with the address of its parser. A file is dropped with the last plan that has it.
static OPEN: Mutex<Vec<OpenFile>> = Mutex::new(Vec::new());

/// Path of a file, address of its parser, and its content.
type OpenFile = (PathBuf, usize, Weak<dyn Any + Send + Sync>);

impl<T: Send + Sync + 'static> WatchedFile<T> {
    /// Opens a file: that of the process, read again if it has changed since.
    ///
    /// # Errors
    /// Returns all of its faults as `FILE:LINE: FAULT`. The content of an open file stays.
    pub fn open(path: &Path, bytes_max: usize, parse: Parse<T>) -> Result<Arc<Self>, Vec<String>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(.., file)| file.strong_count() > 0);
        let is_same = |known: &&OpenFile| known.0 == path && known.1 == parse as usize;
        let known = open.iter().find(is_same).and_then(|(.., file)| file.upgrade()?.downcast::<Self>().ok());
        if let Some(file) = known {
            if file.status.lock().unwrap_or_else(PoisonError::into_inner).loaded
                != Some(FileState::read(path))
            {
                file.load()?;
            }
            return Ok(file);
        }
        let file = Self::read(path, bytes_max, parse)?;
        let shared: Arc<dyn Any + Send + Sync> = Arc::clone(&file) as _;
        open.push((path.to_owned(), parse as usize, Arc::downgrade(&shared)));
        Ok(file)
    }

    fn read(path: &Path, bytes_max: usize, parse: Parse<T>) -> Result<Arc<Self>, Vec<String>> {
        let loaded = Some(FileState::read(path));
        let content = read(path, bytes_max, parse)?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            bytes_max,
            parse,
            content: ArcSwap::from_pointee(content),
            status: Mutex::new(FileStatus { loaded, pending: None }),
            failures: AtomicU64::new(0),
        }))
    }
}

/// A file whatever its content is.
pub trait Watched: Send + Sync {
    fn path(&self) -> &Path;

    /// Returns the number of reads that failed.
    fn failures(&self) -> u64;

    /// Returns whether the file has changed since it was read, and is complete: two checks in a row found the same
    /// state.
    fn has_changed(&self) -> bool;

    /// Reads the file again.
    ///
    /// # Errors
    /// Returns the faults of the file. The content stays.
    fn load(&self) -> Result<(), Vec<String>>;
}

impl<T: Send + Sync + 'static> Watched for WatchedFile<T> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn has_changed(&self) -> bool {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let state = Some(FileState::read(&self.path));
        if state == status.loaded {
            status.pending = None;
            return false;
        }
        let is_stable = status.pending == state;
        status.pending = state;
        is_stable
    }

    fn load(&self) -> Result<(), Vec<String>> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the content, so that a later change is noticed.
        *status = FileStatus { loaded: Some(FileState::read(&self.path)), pending: None };
        match read(&self.path, self.bytes_max, self.parse) {
            Ok(content) => {
                self.content.store(Arc::new(content));
                Ok(())
            }
            Err(faults) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(faults)
            }
        }
    }
}

fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }
    if metadata.len() > bytes_max as u64 {
        return Err(io::Error::other(format!("more than {bytes_max} bytes")));
    }
    std::fs::read(path)
}

fn read<T>(path: &Path, bytes_max: usize, parse: Parse<T>) -> Result<T, Vec<String>> {
    let name = path.display();
    let content = read_bounded(path, bytes_max).map_err(|error| vec![format!("{name}: {error}")])?;
    parse(&content).map_err(|faults| faults.iter().map(|fault| format!("{name}:{fault}")).collect())
}

impl<T> fmt::Debug for WatchedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<T> PartialEq for WatchedFile<T> {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}
