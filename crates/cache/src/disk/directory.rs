//! The directory of a cache: who may write it, its lock, and the names of its files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Name of the file whose lock keeps two processes from using one directory.
const LOCK: &str = "lock";
/// Mode of directories: only their owner reads and writes them.
const DIRECTORY_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
/// End of the names of files that are being written.
pub(crate) const TEMPORARY: &str = ".new";

/// Digest of a key and a variant: the name of a file, the same in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileName(pub(crate) [u8; 16]);

impl FileName {
    pub(crate) fn of(key: &[u8], vary: &[Box<str>], variant: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update((key.len() as u64).to_le_bytes());
        digest.update(key);
        for name in vary {
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name.as_bytes());
        }
        digest.update(variant);
        let mut name = [0; 16];
        name.copy_from_slice(&digest.finalize()[..16]);
        Self(name)
    }

    /// Returns the path of the file: `DIRECTORY/1f/0123…`.
    pub(crate) fn path(self, directory: &Path) -> PathBuf {
        let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        directory.join(&hex[..2]).join(&hex[2..])
    }
}

/// Creates the directory if it is missing, and checks that nobody else can write it.
pub(crate) fn prepare(directory: &Path) -> io::Result<()> {
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(directory)?,
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    check(directory)
}

/// Checks that a directory is one of this user, which nobody else can write.
fn check(directory: &Path) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    let metadata = fs::metadata(directory)?;
    if !metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "not a directory"));
    }
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    match is_own && metadata.mode() & OTHERS_WRITE == 0 {
        true => Ok(()),
        false => {
            Err(io::Error::other("others can write it: give it to the user of the proxy, and run chmod go-w"))
        }
    }
}

pub(crate) fn create(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Takes the lock of the directory, which ends with the file. `None`: another process has it.
pub(crate) fn try_lock(directory: &Path) -> io::Result<Option<File>> {
    const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(FILE_MODE)
        .custom_flags(NOFOLLOW)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}
