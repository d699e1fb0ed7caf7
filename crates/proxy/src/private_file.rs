//! Files that the proxy writes for itself, and replaces in one step.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Mode of the files: only their owner reads and writes them.
pub(crate) const MODE: u32 = 0o600;

/// Replaces the content of a file: readers see the previous or the new one, also after a crash.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // A file of a process that was killed meanwhile.
    let _ = std::fs::remove_file(&new);
    let write = || {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(MODE).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    write().map_err(|error| with_path(path, &error))
}

/// Adds the path of a file to an error.
pub(crate) fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
