//! The index after a start: one thread reads the heads of all files at a bounded rate.

#![expect(clippy::disallowed_types, reason = "purges that a scan has to repeat; held to add or read them")]

use std::fs::{self, DirEntry};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::DiskIndex;
use super::directory::{self, FileName, TEMPORARY};
use super::entry::DiskEntry;
use super::file::{self, FileError};
use super::format::FormatError;
use super::pool::DiskPool;

/// Interval at which a directory that another process uses is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(250);
/// Files that are read before a pause: at most 12,800 files a second.
const FILES_BEFORE_PAUSE: u32 = 64;
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of purges that are remembered for the rest of a scan; after more, the rest is dropped.
const LATE_PURGES_MAX: usize = 10_000;

/// A purge that came before all files were in the index.
#[derive(Clone, Debug)]
pub(crate) enum LatePurge {
    Key(Box<[u8]>),
    Prefix(Box<[u8]>),
    Tag(Box<[u8]>),
    All,
}

/// Purges that the scan repeats for the files that it finds later.
#[derive(Debug, Default)]
pub(crate) struct LatePurges(Mutex<Vec<LatePurge>>);

impl LatePurges {
    pub(crate) fn add(&self, purge: LatePurge) {
        let mut purges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match purges.len() {
            ..LATE_PURGES_MAX => purges.push(purge),
            _ => *purges = vec![LatePurge::All],
        }
    }

    fn cover(&self, entry: &DiskEntry) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|purge| match purge {
            LatePurge::Key(key) => **key == *entry.key.text(),
            LatePurge::Prefix(prefix) => entry.key.text().starts_with(prefix),
            LatePurge::Tag(tag) => entry.tags.contains(tag),
            LatePurge::All => true,
        })
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Waits for the lock of the directory, and reads its files.
pub(crate) fn run(pool: &Arc<DiskPool>, cache: &Weak<dyn DiskIndex>) {
    loop {
        match directory::try_lock(&pool.plan.directory) {
            Ok(Some(lock)) => {
                pool.activate(lock);
                break;
            }
            Ok(None) => {}
            Err(error) => drop(pool.note_error(&error.into())),
        }
        thread::sleep(LOCK_INTERVAL);
        if cache.strong_count() == 0 {
            return;
        }
    }
    let mut files = 0;
    for byte in 0..=u8::MAX {
        let subdirectory = pool.plan.directory.join(format!("{byte:02x}"));
        for found in fs::read_dir(&subdirectory).into_iter().flatten().flatten() {
            let Some(cache) = cache.upgrade() else { return };
            if !pool.is_active() {
                return;
            }
            read_file(pool, &*cache, byte, &found);
            files += 1;
            if files % FILES_BEFORE_PAUSE == 0 {
                thread::sleep(PAUSE);
            }
        }
    }
    pool.is_scanning.store(false, Ordering::Release);
    pool.late_purges.clear();
}

fn read_file(pool: &DiskPool, cache: &dyn DiskIndex, byte: u8, found: &DirEntry) {
    let path = found.path();
    let name = found.file_name();
    let name = name.to_string_lossy();
    if name.ends_with(TEMPORARY) {
        // One of a process that ended in the middle.
        if !name.contains(&format!("{:016x}", pool.token)) {
            remove(pool, &path);
        }
        return;
    }
    let Some(name) = parse_name(byte, &name) else { return };
    match read_entry(cache, &path, name) {
        Ok(entry) => {
            let entry = Arc::new(entry);
            if pool.late_purges.cover(&entry) || !cache.add_scanned(&entry) {
                cache.remove_file_unless_used(&entry);
            } else if pool.late_purges.cover(&entry) {
                // A purge that came in between did not see the entry.
                cache.remove_entry(&entry);
            }
        }
        Err(error) => {
            pool.note_error(&error);
            // A file that this process writes at the same time is complete.
            if matches!(error, FileError::Format(_)) {
                remove(pool, &path);
            }
        }
    }
}

fn read_entry(cache: &dyn DiskIndex, path: &Path, name: FileName) -> Result<DiskEntry, FileError> {
    let opened = file::open(path)?;
    let head = opened.slots.head;
    if FileName::of(&head.key, &head.storable.vary, &head.variant) != name {
        return Err(FormatError::Foreign.into());
    }
    let key = cache.key(&head.key);
    let (nonce, file_bytes) = (opened.preamble.nonce, opened.preamble.file_bytes());
    let entry = DiskEntry::new(key, head.variant, &head.storable, name, nonce, file_bytes);
    entry.set_written();
    Ok(entry)
}

fn remove(pool: &DiskPool, path: &Path) {
    if let Err(error) = file::remove(path) {
        pool.note_error(&error.into());
    }
}

/// Parses the name of a file in the subdirectory of a byte. `None`: it is not one of a cache, and stays.
fn parse_name(byte: u8, name: &str) -> Option<FileName> {
    if name.len() != 30 || !name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [byte; 16];
    for (index, byte) in bytes.iter_mut().enumerate().skip(1) {
        *byte = u8::from_str_radix(name.get(2 * index - 2..2 * index)?, 16).ok()?;
    }
    Some(FileName(bytes))
}
