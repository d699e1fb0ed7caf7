//! Files that the proxy writes for itself, and replaces in one step.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rt::unix_socket::effective_uid;

/// Mode of the files: only their owner reads and writes them.
pub const MODE: u32 = 0o600;

/// Replaces the content of a file: readers see the previous or the new one, also after a crash.
///
/// # Errors
/// The directory cannot be written.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // A file of a process that was killed meanwhile.
    let _ = std::fs::remove_file(&new);
    let write = || {
        write_new(&new, content)?;
        std::fs::rename(&new, path)
    };
    write().map_err(|error| with_path(path, &error))
}

/// Replaces the content of a file that other hosts may replace at the same time: `writer` is a name that no
/// other writer has.
///
/// # Errors
/// The directory cannot be written.
pub fn replace_among_others(path: &Path, content: &[u8], writer: &str) -> io::Result<()> {
    let new = path.with_extension(format!("{writer}.new"));
    let write = || {
        write_new(&new, content)?;
        std::fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(std::fs::remove_file(&new))).map_err(|error| with_path(path, &error))
}

/// Writes a file that does not exist yet.
///
/// # Errors
/// It exists, or the directory cannot be written.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create_new(true).write(true).mode(MODE).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Checks that nobody but root and the user of this process can change a file.
///
/// # Errors
/// Others can write it, or own it.
pub fn check_unchangeable(metadata: &Metadata) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    match [0, effective_uid()].contains(&metadata.uid()) && metadata.mode() & OTHERS_WRITE == 0 {
        true => Ok(()),
        false => Err(io::Error::other(
            "others can write it: give it to root or to the user of the proxy, and run chmod go-w",
        )),
    }
}

/// Adds the path of a file to an error.
pub fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
