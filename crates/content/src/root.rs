//! The root directory: opens files below it and nowhere else.
//!
//! `openat2` with `RESOLVE_BENEATH` leaves the decision to the kernel, which has no race. Where the
//! kernel does not have it (before 5.6, or a seccomp filter), each segment of a path is opened on its
//! own, and symbolic links are refused altogether.
//!
//! The kernel refuses absolute links and those that leave the root on their way, also if they end in it. Their
//! path is resolved by name, and if it ends in the root, the kernel opens the resolved path without links.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, open, openat, openat2, stat};
use rustix::io::Errno;

/// Root directory of one core.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    directory: OwnedFd,
    identity: DirectoryIdentity,
    confinement: Confinement,
    follows_symlinks: bool,
}

/// Device and inode of a directory. An open directory keeps its inode, so that another one never gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryIdentity {
    device: u64,
    inode: u64,
}

impl DirectoryIdentity {
    /// Returns the identity of the directory that a path names now.
    pub(crate) fn from_path(path: &Path) -> Result<Self, Errno> {
        stat(path).map(|stat| Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// Method that keeps paths below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
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
    pub fn open(path: &Path, follows_symlinks: bool) -> io::Result<Self> {
        Self::open_path(path, follows_symlinks)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    pub(crate) fn open_path(path: &Path, follows_symlinks: bool) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let opened = fstat(&directory)?;
        let identity = DirectoryIdentity { device: opened.st_dev, inode: opened.st_ino };
        let probed = openat2(&directory, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
        let confinement = match probed {
            Ok(_) => Confinement::Kernel,
            // The system call is there, and this root must not lose its links for ever.
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(error),
            Err(_) => Confinement::Walk,
        };
        Ok(Self { path: path.to_owned(), directory, identity, confinement, follows_symlinks })
    }

    pub(crate) fn identity(&self) -> DirectoryIdentity {
        self.identity
    }

    /// Returns the method that keeps paths below the root.
    pub fn confinement(&self) -> Confinement {
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
        match self.open_beneath_with(path, flags, links) {
            Err(Errno::XDEV) if self.follows_symlinks => {
                let resolved = self.resolve_by_name(path).ok_or(Errno::XDEV)?;
                self.open_beneath_with(resolved.as_os_str().as_bytes(), flags, ResolveFlags::NO_SYMLINKS)
            }
            opened => opened,
        }
    }

    /// Resolves all links of a path by their names; `None`: it ends out of the root, or nowhere.
    fn resolve_by_name(&self, path: &[u8]) -> Option<PathBuf> {
        let root = std::fs::canonicalize(&self.path).ok()?;
        let target = std::fs::canonicalize(root.join(OsStr::from_bytes(path))).ok()?;
        match target.strip_prefix(&root).ok()? {
            inside if inside.as_os_str().is_empty() => Some(PathBuf::from(".")),
            inside => Some(inside.to_owned()),
        }
    }

    fn open_beneath_with(&self, path: &[u8], flags: OFlags, links: ResolveFlags) -> Result<OwnedFd, Errno> {
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

    #[test]
    fn a_root_without_a_free_descriptor_is_an_error_and_loses_no_links() {
        const CHILD_PROCESS_ENV: &str = "WEIR_TEST_ROOT_ALONE";
        const NAME: &str = "root::tests::a_root_without_a_free_descriptor_is_an_error_and_loses_no_links";
        if std::env::var_os(CHILD_PROCESS_ENV).is_none() {
            // The limit is that of the process.
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let output = command.args([NAME, "--exact"]).env(CHILD_PROCESS_ENV, "1").output().unwrap();
            let stdout = String::from_utf8_lossy(&output.stdout);
            return assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
        }
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let tree = tree();
        let path = tree.path().join("root");
        let before = getrlimit(Resource::Nofile);
        let next = std::os::fd::AsRawFd::as_raw_fd(&fs::File::open("/dev/null").unwrap()) as u64;
        let open_with = |free: u64| {
            setrlimit(Resource::Nofile, Rlimit { current: Some(next + free), ..before }).unwrap();
            let opened =
                Root::open_path(&path, true).map(|root| (root.confinement, is_open(&root, "inside")));
            setrlimit(Resource::Nofile, before).unwrap();
            opened
        };
        assert_eq!(open_with(0), Err(Errno::MFILE));
        // One for the directory, none for the probe: the root must not be one without links for ever.
        assert_eq!(open_with(1), Err(Errno::MFILE));
        assert_eq!(open_with(10), Ok((Confinement::Kernel, true)));
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
    fn links_by_another_way_end_in_the_root_or_are_refused() {
        let directory = tree();
        let path = |name: &str| directory.path().join(name);
        let root_path = path("root");
        symlink(&root_path, path("alias")).unwrap();
        let absolute = |name: &str| format!("{}/{name}", directory.path().display());
        for (target, link, is_inside) in [
            (absolute("root/a/b/file"), "to-file", true),
            (absolute("root/a"), "to-directory", true),
            (absolute("alias/a/b/file"), "by-an-alias", true),
            (absolute("root"), "to-the-root", true),
            ("../root/a/b/file".to_owned(), "out-and-in", true),
            (absolute("root/to-file"), "to-a-link", true),
            (absolute("secret"), "to-the-secret", false),
            (absolute("root/../secret"), "in-and-out", false),
            (absolute("root-other/file"), "like-the-root", false),
            (absolute("alias/outside"), "to-a-link-out", false),
            (absolute("root/missing"), "dangling", false),
            ("/".to_owned(), "to-all", false),
            ("/proc/self/root".to_owned(), "magic", false),
            (absolute("root/endless"), "endless", false),
        ] {
            symlink(target, root_path.join(link)).unwrap();
            for follows in [true, false] {
                let root = Root::open(&root_path, follows).unwrap();
                if root.confinement() == Confinement::Kernel {
                    assert_eq!(is_open(&root, link), is_inside && follows, "{link}");
                }
            }
        }
        fs::create_dir(path("root-other")).unwrap();
        fs::write(path("root-other/file"), "").unwrap();
        for root_path in [root_path, path("alias")] {
            let root = Root::open(&root_path, true).unwrap();
            if root.confinement() == Confinement::Kernel {
                for path in ["to-directory/b/file", "to-the-root/a/b/file", "to-the-root"] {
                    assert!(is_open(&root, path), "{path}");
                }
                for path in ["like-the-root", "to-all/etc/passwd", "to-directory/up/../../../secret"] {
                    assert!(!is_open(&root, path), "{path}");
                }
            }
        }
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
