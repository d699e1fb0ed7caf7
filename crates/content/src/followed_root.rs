//! A root that follows its path: after a deployment the path may name another directory, by a link that points
//! elsewhere, a directory that was removed and made again, or a mount. It is compared at most once a second.

use std::io;
use std::path::{Path, PathBuf};

use rt::clock::SECOND_NS;
use rustix::io::Errno;

use crate::open_file::status_of;
use crate::root::{DirectoryIdentity, Root};

/// Root of one core, at the path that was given.
#[derive(Debug)]
pub(crate) struct FollowedRoot {
    /// Path of the directory, or of the file that is served alone.
    path: PathBuf,
    is_file: bool,
    follows_symlinks: bool,
    state: RootState,
    checked_ns: u64,
}

/// Directory that is open now.
#[derive(Debug)]
struct OpenRoot {
    root: Root,
    /// Name of the file that is served alone, after all links.
    file_name: Option<Vec<u8>>,
}

#[derive(Debug)]
enum RootState {
    Open(OpenRoot),
    /// The path names no directory; responses have this status.
    Missing(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootChange {
    /// None, or the check is not due.
    Unchanged,
    /// The path names another directory, which is open now.
    Replaced,
    /// The path names no directory any more.
    Removed,
}

/// Time between two checks.
const CHECK_INTERVAL_NS: u64 = SECOND_NS;

impl FollowedRoot {
    /// Opens a directory, or the directory of a file that is served alone.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(path: &Path, is_file: bool, follows_symlinks: bool) -> io::Result<Self> {
        let state = open_now(path, is_file, follows_symlinks)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let state = RootState::Open(state);
        Ok(Self { path: path.to_owned(), is_file, follows_symlinks, state, checked_ns: 0 })
    }

    /// Returns the root.
    ///
    /// # Errors
    /// The status of a response without it.
    pub(crate) fn root(&self) -> Result<&Root, u16> {
        match &self.state {
            RootState::Open(open) => Ok(&open.root),
            RootState::Missing(status) => Err(*status),
        }
    }

    /// Returns the name of the file that is served alone.
    pub(crate) fn file_name(&self) -> Option<&[u8]> {
        match &self.state {
            RootState::Open(open) => open.file_name.as_deref(),
            RootState::Missing(_) => None,
        }
    }

    /// Compares the path with the open directory, at most once a second, and opens the new one.
    pub(crate) fn check(&mut self, now_ns: u64) -> RootChange {
        if now_ns.saturating_sub(self.checked_ns) < CHECK_INTERVAL_NS && self.checked_ns != 0 {
            return RootChange::Unchanged;
        }
        self.checked_ns = now_ns;
        if let RootState::Open(open) = &self.state
            && self.names_now().is_ok_and(|named| named == (open.root.identity(), open.file_name.clone()))
        {
            return RootChange::Unchanged;
        }
        match open_now(&self.path, self.is_file, self.follows_symlinks) {
            Ok(open) => {
                self.state = RootState::Open(open);
                RootChange::Replaced
            }
            // Exhaustion and faults of a disk pass: the open directory is better than none.
            Err(error) if status_of(error) >= 500 => RootChange::Unchanged,
            Err(error) => {
                let status = status_of(error);
                match std::mem::replace(&mut self.state, RootState::Missing(status)) {
                    RootState::Open(_) => RootChange::Removed,
                    RootState::Missing(_) => RootChange::Unchanged,
                }
            }
        }
    }

    /// Returns the directory that the path names now, and the name of a single file.
    fn names_now(&self) -> Result<(DirectoryIdentity, Option<Vec<u8>>), Errno> {
        if !self.is_file {
            return Ok((DirectoryIdentity::from_path(&self.path)?, None));
        }
        let (directory, name) = resolve_file(&self.path)?;
        Ok((DirectoryIdentity::from_path(&directory)?, Some(name)))
    }
}

fn open_now(path: &Path, is_file: bool, follows_symlinks: bool) -> Result<OpenRoot, Errno> {
    if !is_file {
        return Ok(OpenRoot { root: Root::open_path(path, follows_symlinks)?, file_name: None });
    }
    let (directory, name) = resolve_file(path)?;
    Ok(OpenRoot { root: Root::open_path(&directory, follows_symlinks)?, file_name: Some(name) })
}

/// Returns the directory and the name of a file, after all links.
fn resolve_file(path: &Path) -> Result<(PathBuf, Vec<u8>), Errno> {
    use std::os::unix::ffi::OsStrExt;
    let resolved =
        std::fs::canonicalize(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
    match (resolved.parent(), resolved.file_name()) {
        (Some(directory), Some(name)) => Ok((directory.to_owned(), name.as_bytes().to_vec())),
        _ => Err(Errno::ISDIR),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Reads `name` through the root.
    fn read(followed: &FollowedRoot, name: &str) -> Option<String> {
        let fd = followed.root().ok()?.open_beneath(name.as_bytes()).ok()?;
        io::read_to_string(fs::File::from(fd)).ok()
    }

    /// Calls `check` a second after the last time, and returns also the content of the file `version`.
    fn check(followed: &mut FollowedRoot, now_ns: &mut u64) -> (RootChange, Option<String>) {
        *now_ns += SECOND_NS;
        let change = followed.check(*now_ns);
        (change, read(followed, "version"))
    }

    fn make(path: &Path, version: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("version"), version).unwrap();
    }

    #[test]
    fn a_directory_is_followed_through_removal_renaming_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        make(&path("r1"), "1");
        make(&path("r2"), "2");
        symlink("r1", path("current")).unwrap();
        let mut now_ns = SECOND_NS;
        let mut followed = FollowedRoot::open(&path("current"), false, true).unwrap();
        let seen = |version: &str| Some(version.to_owned());
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Unchanged, seen("1")));
        symlink("r2", path("next")).unwrap();
        fs::rename(path("next"), path("current")).unwrap();
        assert_eq!(followed.check(now_ns + SECOND_NS - 1), RootChange::Unchanged, "not due");
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Replaced, seen("2")));
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Unchanged, seen("2")));
        fs::remove_dir_all(path("r2")).unwrap();
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Removed, None));
        assert_eq!(followed.root().err(), Some(404));
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Unchanged, None));
        make(&path("r2"), "3");
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Replaced, seen("3")));
        fs::rename(path("r2"), path("old")).unwrap();
        make(&path("r2"), "4");
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Replaced, seen("4")));
        // A changed file in the same directory is not the root's concern.
        fs::write(path("r2/version"), "5").unwrap();
        assert_eq!(check(&mut followed, &mut now_ns), (RootChange::Unchanged, seen("5")));
        fs::remove_dir_all(path("r2")).unwrap();
        fs::write(path("r2"), "a file").unwrap();
        assert_eq!(check(&mut followed, &mut now_ns).0, RootChange::Removed);
    }

    #[test]
    fn a_single_file_is_followed_through_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        make(&path("r1"), "1");
        fs::create_dir(path("r2")).unwrap();
        fs::write(path("r2/other"), "2").unwrap();
        symlink("r1/version", path("link")).unwrap();
        let mut followed = FollowedRoot::open(&path("link"), true, true).unwrap();
        let content = |followed: &FollowedRoot| {
            let name = String::from_utf8(followed.file_name()?.to_vec()).ok()?;
            read(followed, &name)
        };
        assert_eq!(content(&followed).as_deref(), Some("1"));
        fs::remove_file(path("link")).unwrap();
        symlink("r2/other", path("link")).unwrap();
        assert_eq!(followed.check(SECOND_NS), RootChange::Replaced);
        assert_eq!(content(&followed).as_deref(), Some("2"));
        fs::remove_file(path("link")).unwrap();
        assert_eq!(followed.check(2 * SECOND_NS), RootChange::Removed);
        assert_eq!(content(&followed), None);
    }

    #[test]
    fn a_root_that_is_missing_is_named() {
        let error = FollowedRoot::open(Path::new("/no/such/root"), false, true).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/root: "), "{error}");
    }
}
