//! The root directory: opens files below it and nowhere else.
//!
//! `openat2` with `RESOLVE_BENEATH` leaves the decision to the kernel, which has no race. Where the
//! kernel does not have it (before 5.6, or a seccomp filter), each segment of a path is opened on its
//! own, and symbolic links are refused altogether.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;

/// Root directory of one core.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    confinement: Confinement,
    follows_symlinks: bool,
}

/// Method that keeps paths below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// `openat2` with `RESOLVE_BENEATH`.
    Kernel,
    /// Each segment on its own, without symbolic links.
    Walk,
}

/// Flags of a file that is read. `O_NONBLOCK`: a FIFO without a writer does not block.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// Number of attempts if a name changes during the resolution (openat2(2)).
const ATTEMPTS_MAX: usize = 8;

impl Root {
    /// Opens the root directory.
    pub(crate) fn open(path: &Path, follows_symlinks: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let probed = openat2(&directory, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
        let confinement = match probed {
            Ok(_) => Confinement::Kernel,
            Err(_) => Confinement::Walk,
        };
        Ok(Self { directory, confinement, follows_symlinks })
    }

    /// Returns the method that keeps paths below the root.
    pub(crate) fn confinement(&self) -> Confinement {
        self.confinement
    }

    /// Opens a file or a directory for reading by its path from the root; an empty path is the root.
    /// A path that leads out of the root is `EXDEV`, a refused symbolic link `ELOOP`.
    pub(crate) fn open_beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_with(path, READ)
    }

    /// Opens only the name: for its properties, not for its content.
    pub(crate) fn open_name(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_with(path, OFlags::PATH | OFlags::CLOEXEC)
    }

    fn open_with(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        match self.confinement {
            Confinement::Kernel => self.open_by_kernel(path, flags),
            Confinement::Walk => self.open_by_walk(path, flags),
        }
    }

    fn open_by_kernel(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let links = if self.follows_symlinks { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links;
        let open_once = || openat2(&self.directory, OsStr::from_bytes(path), flags, Mode::empty(), resolve);
        let mut opened = open_once();
        for _ in 1..ATTEMPTS_MAX {
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
            opened = open_once();
        }
        opened
    }

    fn open_by_walk(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut segments = path.split(|&byte| byte == b'/').peekable();
        let mut parent: Option<OwnedFd> = None;
        while let Some(segment) = segments.next() {
            if segment == b".." {
                return Err(Errno::XDEV);
            }
            let is_last = segments.peek().is_none();
            let flags = match is_last {
                true => flags | OFlags::NOFOLLOW,
                false => OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            };
            let at = parent.as_ref().unwrap_or(&self.directory);
            let opened = openat(at, OsStr::from_bytes(segment), flags, Mode::empty())?;
            if is_last {
                return Ok(opened);
            }
            parent = Some(opened);
        }
        Err(Errno::NOENT)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes `root/` with files and links, and a secret beside it.
    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("root/a/b")).unwrap();
        fs::write(path("secret"), "secret").unwrap();
        fs::write(path("root/a/b/file"), "file").unwrap();
        for (target, link) in [
            ("a/b/file", "root/inside"),
            ("../a", "root/a/up"),
            ("../secret", "root/outside"),
            ("/etc/passwd", "root/absolute"),
            ("..", "root/parent"),
            ("loop", "root/loop"),
        ] {
            symlink(target, path(link)).unwrap();
        }
        directory
    }

    fn is_open(root: &Root, path: &str) -> bool {
        root.open_beneath(path.as_bytes()).is_ok()
    }

    const ESCAPES: [&str; 9] = [
        "..",
        "../secret",
        "a/../../secret",
        "outside",
        "absolute",
        "parent/secret",
        "loop",
        "/etc/passwd",
        "a/up/../../secret",
    ];

    #[test]
    fn the_kernel_confines_paths_to_the_root() {
        let directory = tree();
        let root = Root::open(&directory.path().join("root"), true).unwrap();
        if root.confinement() != Confinement::Kernel {
            println!("openat2 is not available here");
            return;
        }
        for path in ["", "a/b/file", "inside", "a/up/b/file"] {
            assert!(is_open(&root, path), "{path}");
        }
        for path in ESCAPES {
            assert!(!is_open(&root, path), "{path}");
        }
        let without_links = Root::open(&directory.path().join("root"), false).unwrap();
        assert!(is_open(&without_links, "a/b/file") && !is_open(&without_links, "inside"));
    }

    #[test]
    fn the_walk_confines_paths_to_the_root_and_follows_no_link() {
        let directory = tree();
        let opened = Root::open(&directory.path().join("root"), true).unwrap();
        let root = Root { confinement: Confinement::Walk, ..opened };
        for path in ["", "a", "a/b/file"] {
            assert!(is_open(&root, path), "{path}");
        }
        for path in ESCAPES.into_iter().chain(["inside", "a/up/b/file", "a//b/file", "a/b/file/"]) {
            assert!(!is_open(&root, path), "{path}");
        }
    }

    #[test]
    fn a_root_that_is_missing_is_named() {
        let error = Root::open(Path::new("/no/such/root"), true).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/root: "), "{error}");
    }
}
