//! Journal files: lines that are on the disk before the change that they announce, with the process that owns
//! them. The meaning of the lines is their user's.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::ProcessReader;

/// Process, identified across reuse of its PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// PID.
    pub pid: i32,
    /// Start time, in ticks since boot.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// Returns the identity of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0) }
    }

    /// Returns the identity of process `pid`. `None` if there is no such process ([`start_ticks`]).
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start_ticks: start_ticks(pid)? })
    }

    /// Returns a file name that identifies the process: PID, and start time in hexadecimal.
    #[must_use]
    pub fn file_stem(self) -> String {
        format!("{}-{:x}", self.pid, self.start_ticks)
    }

    /// Parses [`ProcessIdentity::file_stem`].
    #[must_use]
    pub fn from_file_stem(stem: &str) -> Option<Self> {
        let (pid, ticks) = stem.split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, start_ticks: u64::from_str_radix(ticks, 16).ok()? })
    }

    /// Returns whether the process is alive.
    #[must_use]
    pub fn is_alive(self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// Returns the start time of process `pid`, in ticks since boot. `None` if there is no such
/// process, or if it is a zombie: only its PID is left of it.
#[must_use]
pub fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
        return None;
    }
    Some(ProcessReader::open(pid).ok()?.sample().ok()?.start_ticks)
}

/// Returns the ID of this boot of the machine.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Open journal.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
}

impl JournalFile {
    /// Creates a journal with its directory.
    ///
    /// # Errors
    /// The directory or the file cannot be created, or the file exists.
    pub fn create(path: &Path) -> io::Result<Self> {
        let explain = |error: io::Error| {
            let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
            let hint = if is_denied { " (run as root)" } else { "" };
            io::Error::new(error.kind(), format!("journal {}: {error}{hint}", path.display()))
        };
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(directory).map_err(explain)?;
        let file = File::options().create_new(true).append(true).open(path).map_err(explain)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends text. It is on the disk on return.
    ///
    /// # Errors
    /// It cannot be written: then the announced change must not be made.
    pub fn append(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()?;
        // The directory entry must survive a power failure as well.
        let directory = self.path.parent().unwrap_or_else(|| Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all())
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Journal that this process has locked, so that only one process undoes it.
#[derive(Debug)]
pub struct LockedJournal {
    _lock: File,
    /// Path.
    pub path: PathBuf,
    /// Text.
    pub text: String,
}

impl LockedJournal {
    /// Locks a journal and reads it. `None` if another process has locked it, or has removed it.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        file.try_lock().ok()?;
        let is_removed = file.metadata().ok()?.nlink() == 0;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        (!is_removed).then(|| Self { _lock: file, path: path.to_owned(), text })
    }

    /// Removes the journal.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Returns the journals in a directory, by name.
#[must_use]
pub fn list(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == extension)).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_locked_by_one_reader_and_removed_once() {
        let directory = std::env::temp_dir().join(format!("host-journal-{}", std::process::id()));
        let path = directory.join("a.journal");
        let mut journal = JournalFile::create(&path).unwrap();
        journal.append("one\n").unwrap();
        journal.append("two\n").unwrap();
        assert!(JournalFile::create(&path).is_err());
        assert_eq!(list(&directory, "journal"), std::slice::from_ref(&path));
        let locked = LockedJournal::open(&path).unwrap();
        assert_eq!(locked.text, "one\ntwo\n");
        assert!(LockedJournal::open(&path).is_none());
        locked.remove().unwrap();
        assert!(LockedJournal::open(&path).is_none() && list(&directory, "journal").is_empty());
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn processes_are_told_apart_by_their_start() {
        let own = ProcessIdentity::of_this_process();
        assert!(own.is_alive());
        assert_eq!(ProcessIdentity::from_file_stem(&own.file_stem()), Some(own));
        assert_eq!(ProcessIdentity::from_file_stem("7-x"), None);
        assert!(!ProcessIdentity { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        assert!(!ProcessIdentity { pid: i32::MAX, start_ticks: 1 }.is_alive());
        assert!(!boot_id().is_empty());
    }
}
