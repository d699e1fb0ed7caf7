//! Files of automatic certificates as listeners read them: whether they can be used, and whether another
//! process has replaced them since.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
#[expect(
    clippy::disallowed_types,
    reason = "changed by reloads, read by the thread of automatic certificates"
)]
use std::sync::Mutex;

use rt::tls::{CertificateFiles, ServerTls, ServerTlsOptions, TlsConfigError};

/// State of a file by which a change is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    /// Returns the state; `None`: there is no file.
    fn read(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { inode: metadata.ino(), bytes: metadata.len(), modified })
    }
}

/// States of the stored certificates when they were last read for a listener.
#[expect(clippy::disallowed_types, reason = "see the import")]
static LOADED: Mutex<BTreeMap<PathBuf, Option<FileState>>> = Mutex::new(BTreeMap::new());

/// Notes the state of a file before it is read for a listener.
pub fn note_loaded(path: &Path) {
    let state = FileState::read(path);
    let mut all = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.insert(path.to_owned(), state);
}

/// Returns whether a file has changed since it was last read for a listener. A file that is gone has not: the
/// certificate in use stays.
pub fn has_changed(path: &Path) -> bool {
    let current = FileState::read(path);
    let all = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    current.is_some() && all.get(path).is_some_and(|loaded| *loaded != current)
}

/// Checks that a file has a certificate and its key.
///
/// # Errors
/// It cannot be read, is incomplete, or the two do not belong together.
pub fn check_certificate(path: &Path) -> Result<(), TlsConfigError> {
    let files = CertificateFiles { certificate: path.into(), key: path.into(), ocsp: None };
    let options = ServerTlsOptions { certificates: vec![files], ..ServerTlsOptions::default() };
    // At least one fault is reported.
    ServerTls::new(&options).map(drop).map_err(|mut faults| faults.remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_certificate_is_noticed_once_it_was_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.pem");
        assert!(!has_changed(&path), "never read");
        note_loaded(&path);
        assert!(!has_changed(&path));
        fs::write(&path, "a").unwrap();
        assert!(has_changed(&path));
        note_loaded(&path);
        assert!(!has_changed(&path));
        fs::remove_file(&path).unwrap();
        assert!(!has_changed(&path));
    }
}
