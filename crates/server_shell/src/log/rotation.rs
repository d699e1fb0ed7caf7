//! Rotation of log files by their size: `log` becomes `log.1`, `log.1` becomes `log.2`, and the oldest goes. Several
//! processes may have the file open, as during an upgrade: the first to find it full renames it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Limits of a log file and of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Size in bytes from which the file is renamed, at the end of a batch of lines.
    pub size_bytes: u64,
    /// Number of renamed files that are kept; at least 1.
    pub files_kept: u32,
}

/// Fate of a full file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RotationResult {
    /// The path leads to another file now, which is to be opened.
    Moved { by_us: bool },
    /// Another process is about to rename the file.
    Busy,
}

impl Rotation {
    pub(super) fn is_due(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() >= self.size_bytes)
    }

    /// Renames the file that is open as `file`, if it is still the one at `path`.
    ///
    /// # Errors
    /// The directory cannot be written, or another user than root could lead root to other files.
    pub(super) fn rotate(&self, file: &File, path: &Path) -> io::Result<RotationResult> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(RotationResult::Busy),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let open = file.metadata()?;
        match fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (open.dev(), open.ino()) => {}
            Ok(_) => return Ok(RotationResult::Moved { by_us: false }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(RotationResult::Moved { by_us: false });
            }
            Err(error) => return Err(error),
        }
        rt::append_file::may_rename(path)?;
        // The files stay together where a link leads to.
        let path = fs::canonicalize(path)?;
        for number in (1..self.files_kept).rev() {
            rename_if_there(&numbered(&path, number), &numbered(&path, number + 1))?;
        }
        fs::rename(&path, numbered(&path, 1))?;
        Ok(RotationResult::Moved { by_us: true })
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the path of a renamed file, with 1 for the newest.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rt::append_file::open_append;

    use super::*;

    const ROTATION: Rotation = Rotation { size_bytes: 4, files_kept: 2 };

    fn content(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn files_move_up_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for text in ["a\n", "bbb\n", "ccc\n", "ddd\n"] {
            let mut file = open_append(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            if ROTATION.is_due(&file) {
                let result = ROTATION.rotate(&file, &path).unwrap();
                assert_eq!(result, RotationResult::Moved { by_us: true });
            }
        }
        let contents = ["log", "log.1", "log.2", "log.3"].map(|name| content(&directory.path().join(name)));
        assert_eq!(contents, [None, Some("ddd\n".to_owned()), Some("ccc\n".to_owned()), None]);
    }

    #[test]
    fn of_two_processes_one_renames() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (mut first, second) = (open_append(&path).unwrap(), open_append(&path).unwrap());
        first.write_all(b"full\n").unwrap();
        assert!(ROTATION.is_due(&second));
        assert_eq!(ROTATION.rotate(&first, &path).unwrap(), RotationResult::Moved { by_us: true });
        assert_eq!(ROTATION.rotate(&second, &path).unwrap(), RotationResult::Busy);
        drop(first);
        let _new = open_append(&path).unwrap();
        assert_eq!(ROTATION.rotate(&second, &path).unwrap(), RotationResult::Moved { by_us: false });
        assert_eq!(content(&directory.path().join("log.1")).unwrap(), "full\n");
    }

    #[test]
    fn a_link_stays_and_its_file_is_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let (link, target) = (directory.path().join("log"), directory.path().join("data"));
        std::os::unix::fs::symlink("data", &link).unwrap();
        let mut file = open_append(&link).unwrap();
        file.write_all(b"full\n").unwrap();
        assert_eq!(ROTATION.rotate(&file, &link).unwrap(), RotationResult::Moved { by_us: true });
        assert!(link.is_symlink() && !target.exists());
        assert_eq!(content(&directory.path().join("data.1")).unwrap(), "full\n");
    }
}
