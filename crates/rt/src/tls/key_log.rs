//! File with the secrets of sessions (`SSLKEYLOGFILE` format), with which Wireshark decrypts captured
//! connections: only if a flag or a key names it. The environment is never read.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::TlsConfigError;
use crate::unix_socket::effective_uid;

const MODE: u32 = 0o600;
const GROUP_AND_OTHERS: u32 = 0o077;

/// Writer of secrets. The file is created with the first one, so that a check of a config creates
/// nothing.
#[derive(Debug)]
pub(super) struct KeyLogFile {
    path: PathBuf,
    #[allow(clippy::disallowed_types, reason = "lines of all cores, in a file for the search for faults")]
    file: std::sync::Mutex<Option<File>>,
}

impl KeyLogFile {
    /// Checks the file, or the directory of a new one.
    ///
    /// # Errors
    /// The directory is missing, or others may read the file.
    pub(super) fn new(path: &Path) -> Result<Self, TlsConfigError> {
        let in_file = |reason: &dyn std::fmt::Display| TlsConfigError::in_file(path, reason);
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Err(in_file(&"it is not a regular file")),
            Ok(metadata) if metadata.mode() & GROUP_AND_OTHERS != 0 => {
                return Err(in_file(&"others may read this file of secrets: run chmod 600"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or_else(|| Path::new("."));
                if !parent.is_dir() {
                    return Err(in_file(&format_args!("missing directory: {}", parent.display())));
                }
            }
            Err(error) => return Err(in_file(&error)),
        }
        Ok(Self { path: path.to_owned(), file: Default::default() })
    }

    fn open(&self) -> Option<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(MODE);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open(&self.path).ok()?;
        // Another user may have made it after the check, or may be its owner.
        let metadata = file.metadata().ok()?;
        let is_private = metadata.is_file()
            && metadata.uid() == effective_uid()
            && metadata.mode() & GROUP_AND_OTHERS == 0
            && metadata.nlink() == 1;
        is_private.then_some(file)
    }
}

impl rustls::KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if file.is_none() {
            *file = self.open();
        }
        // A full disk must not end connections.
        if let Some(file) = &mut *file {
            let _ = file.write_all(line.as_bytes());
        }
    }
}
