//! Directories with instructions: journals that a later process obeys. Only this user and root may be able to
//! change such a directory, every directory above it, and the files in it.
//!
//! The path is walked once, one name at a time, without following symbolic links, and each directory is
//! checked through its descriptor. Everything else happens relative to the last descriptor, so that nothing
//! can be replaced between a check and a use. A file is checked after it was opened. The format of the files
//! is their user's.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, fsync, mkdirat, open, openat, statat, unlinkat,
};
use rustix::io::Errno;

/// Directory of root's state. No service user owns it: a service manager hands its runtime directory
/// (`/run/weir`) with all files in it to the user of the service.
const ROOT_DIRECTORY: &str = "/run/weir-root";
/// Parent of the directory of another user without a runtime directory of the session.
const SHARED_DIRECTORY: &str = "/tmp";
const DIRECTORY_MODE: u32 = 0o700;
const TOP_DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o600;
/// Mode bits with which the group or everybody may write. The mask of an access control list is in them too.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit of a directory whose entries only their owners can rename and remove.
const STICKY: u32 = 0o1000;
/// Maximum size of a file with instructions.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of entries that are listed.
const ENTRIES_MAX: usize = 10_000;
/// Maximum depth of a removed tree, and number of attempts to empty a directory that a process still fills.
const DEPTH_MAX: u32 = 256;
const EMPTY_ATTEMPTS: u32 = 8;

/// Reason why a directory or a file is not trusted, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("{path}: {source}", path = .path.display())]
    System {
        /// Directory or file.
        path: PathBuf,
        source: io::Error,
    },
    /// Its path has `..`, or it is no plain name.
    #[error("{path}: '..' and '/' are not allowed here: name the directory itself", path = .0.display())]
    Name(PathBuf),
    #[error("{path} is a symbolic link, which is not followed: name the directory itself", path = .0.display())]
    Link(PathBuf),
    /// It is a pipe, a device, or a directory instead of a file, or the reverse.
    #[error("{path} is not a {expected}", path = .path.display())]
    Kind {
        /// Directory or file.
        path: PathBuf,
        expected: &'static str,
    },
    #[error("{path} belongs to user {owner}, who could change it: only those of user {user} are trusted",
        path = .path.display())]
    Owner {
        /// Directory or file.
        path: PathBuf,
        owner: u32,
        user: u32,
    },
    /// Its mode lets others write.
    #[error("{path} can be changed by other users (mode {mode:04o}): chmod go-w {path} if nobody has changed it",
        path = .path.display())]
    Writable {
        /// Directory or file.
        path: PathBuf,
        mode: u32,
    },
    /// It has other names, which may be in directories of others.
    #[error("{path} has other names (hard links): only files with one name are trusted", path = .0.display())]
    Linked(PathBuf),
    #[error("{path} is larger than {FILE_BYTES_MAX} bytes", path = .0.display())]
    TooLarge(PathBuf),
}

impl TrustError {
    fn system(path: &Path) -> impl Fn(Errno) -> Self + '_ {
        |errno| Self::System { path: path.to_owned(), source: errno.into() }
    }

    fn is_not_found(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl From<TrustError> for io::Error {
    fn from(error: TrustError) -> Self {
        let kind = match &error {
            TrustError::System { source, .. } => source.kind(),
            _ => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, error.to_string())
    }
}

/// Returns the directory of the state of commands: `/run/weir-root` for root; for other users
/// `$XDG_RUNTIME_DIR/weir`, or `/tmp/weir-UID` without it. Each is empty after a boot, or its files name theirs.
pub fn state_directory() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    state_directory_of(user, std::env::var_os("XDG_RUNTIME_DIR").as_deref())
}

fn state_directory_of(user: u32, runtime: Option<&OsStr>) -> PathBuf {
    match runtime.map(Path::new).filter(|runtime| runtime.is_absolute()) {
        // Root may have the environment of another user (sudo).
        _ if user == 0 => PathBuf::from(ROOT_DIRECTORY),
        Some(runtime) => runtime.join("weir"),
        None => Path::new(SHARED_DIRECTORY).join(format!("weir-{user}")),
    }
}

/// Directory that only this user and root can change.
#[derive(Debug)]
pub struct TrustedDir {
    directory: OwnedFd,
    path: PathBuf,
    /// Only this user, besides root, may own its files.
    user: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Requirement {
    /// Others may not create entries in it.
    Private,
    /// Others may create entries, but not replace those of this user: an ancestor, or `/var/tmp`.
    Shared,
}

impl TrustedDir {
    /// Opens a directory. `None` if it does not exist.
    ///
    /// # Errors
    /// Another user could change it, or a directory above it.
    pub fn open(path: &Path) -> Result<Option<Self>, TrustError> {
        match walk(path, Requirement::Private, false) {
            Err(error) if error.is_not_found() => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Opens a directory, and creates it with mode 0700 if it is missing.
    ///
    /// # Errors
    /// It cannot be created, or another user could change it.
    pub fn open_or_create(path: &Path) -> Result<Self, TrustError> {
        walk(path, Requirement::Private, true)
    }

    /// Opens a directory in which others may create entries, but may not replace those of this user (`/var/tmp`).
    ///
    /// # Errors
    /// It is missing, or another user could replace the entries of this user.
    pub fn open_shared(path: &Path) -> Result<Self, TrustError> {
        walk(path, Requirement::Shared, false)
    }

    /// Returns another handle of the same open directory.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { directory: self.directory.try_clone()?, path: self.path.clone(), user: self.user })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of its entries with an extension, sorted. Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self, extension: &str) -> Result<Vec<String>, TrustError> {
        let failed = TrustError::system(&self.path);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(&failed)?.take(ENTRIES_MAX) {
            let entry = entry.map_err(&failed)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if Path::new(name).extension().is_some_and(|ending| ending == extension) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens a file for reading. `None` if it does not exist.
    ///
    /// # Errors
    /// It is no regular file, or another user could change it.
    pub fn open_file(&self, name: &str) -> Result<Option<File>, TrustError> {
        let path = self.entry_path(name)?;
        // Opening a pipe must not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(TrustError::Link(path)),
            Err(errno) => return Err(TrustError::system(&path)(errno)),
        };
        let stat = fstat(&file).map_err(TrustError::system(&path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(TrustError::Kind { path, expected: "regular file" });
        }
        check_owner(&path, &stat, self.user)?;
        check_mode(&path, &stat, Requirement::Private)?;
        if stat.st_nlink > 1 {
            return Err(TrustError::Linked(path));
        }
        Ok(Some(file.into()))
    }

    /// Reads a complete file that [`TrustedDir::open_file`] opened.
    ///
    /// # Errors
    /// It cannot be read, is too large, or is not UTF-8.
    pub fn read(&self, name: &str, file: &File) -> Result<String, TrustError> {
        let path = self.path.join(name);
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|source| TrustError::System { path: path.clone(), source })?;
        if text.len() as u64 > FILE_BYTES_MAX { Err(TrustError::TooLarge(path)) } else { Ok(text) }
    }

    /// Creates a file with mode 0600, for appending.
    ///
    /// # Errors
    /// It exists, also as a link, or cannot be created.
    pub fn create_file(&self, name: &str) -> Result<File, TrustError> {
        let path = self.entry_path(name)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::from_raw_mode(FILE_MODE));
        file.map(File::from).map_err(TrustError::system(&path))
    }

    /// Makes its entries durable (fsync(2)).
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.directory)?)
    }

    /// Removes a file. A missing one is no error.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_file(&self, name: &str) -> Result<(), TrustError> {
        let path = self.entry_path(name)?;
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(TrustError::system(&path)(errno)),
        }
    }

    /// Creates a directory in it, with this mode.
    ///
    /// # Errors
    /// It exists, or cannot be created.
    pub fn create_directory(&self, name: &str, mode: u32) -> Result<Self, TrustError> {
        let path = self.entry_path(name)?;
        mkdirat(&self.directory, name, Mode::from_raw_mode(mode)).map_err(TrustError::system(&path))?;
        let directory = self.open_directory(name)?;
        directory.ok_or_else(|| TrustError::system(&path)(Errno::NOENT))
    }

    /// Opens a directory in it. `None` if it does not exist.
    ///
    /// # Errors
    /// It is no directory, or another user could change it.
    pub fn open_directory(&self, name: &str) -> Result<Option<Self>, TrustError> {
        let path = self.entry_path(name)?;
        match open_checked(self.directory.as_fd(), OsStr::new(name), &path, self.user, Requirement::Private) {
            Ok(directory) => Ok(Some(Self { directory, path, user: self.user })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a directory of this user with everything in it. Links in it are removed and not followed; other
    /// file systems that are mounted in it are left alone. A missing directory is no error.
    ///
    /// # Errors
    /// It belongs to another user, or something in it cannot be removed.
    pub fn remove_tree(&self, name: &str) -> Result<(), TrustError> {
        let path = self.entry_path(name)?;
        let stat = match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(TrustError::system(&path)(errno)),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(TrustError::Kind { path, expected: "directory" });
        }
        check_owner(&path, &stat, self.user)?;
        let name = std::ffi::CString::new(name).map_err(|_| TrustError::Name(path.clone()))?;
        remove_entry(self.directory.as_fd(), &name, stat.st_dev, DEPTH_MAX).map_err(TrustError::system(&path))
    }

    fn entry_path(&self, name: &str) -> Result<PathBuf, TrustError> {
        let path = self.path.join(name);
        match name.contains(['/', '\0']) || matches!(name, "" | "." | "..") {
            true => Err(TrustError::Name(path)),
            false => Ok(path),
        }
    }
}

/// Opens the directory at `path`, and checks all directories on the way.
fn walk(path: &Path, requirement: Requirement, creates: bool) -> Result<TrustedDir, TrustError> {
    let user = rustix::process::geteuid().as_raw();
    let path =
        std::path::absolute(path).map_err(|source| TrustError::System { path: path.to_owned(), source })?;
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(TrustError::Name(path)),
        }
    }
    let mut current = PathBuf::from("/");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = open("/", flags, Mode::empty()).map_err(TrustError::system(&current))?;
    check_directory(&directory, &current, user, Requirement::Shared)?;
    for (index, name) in names.iter().enumerate() {
        current.push(name);
        let is_last = index + 1 == names.len();
        let requirement = if is_last { requirement } else { Requirement::Shared };
        let open = || open_checked(directory.as_fd(), name, &current, user, requirement);
        let opened = match open() {
            Err(error) if creates && error.is_not_found() => {
                // Directories like /run, which a minimal container may not have, are for all users.
                let mode = if index == 0 { TOP_DIRECTORY_MODE } else { DIRECTORY_MODE };
                match mkdirat(&directory, *name, Mode::from_raw_mode(mode)) {
                    Ok(()) | Err(Errno::EXIST) => open(),
                    Err(errno) => Err(TrustError::system(&current)(errno)),
                }
            }
            opened => opened,
        };
        directory = opened?;
    }
    Ok(TrustedDir { directory, path, user })
}

/// Opens a directory by its name in another one, and checks it.
fn open_checked(
    at: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
    user: u32,
    requirement: Requirement,
) -> Result<OwnedFd, TrustError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(at, name, flags, Mode::empty()).or_else(|errno| match errno {
        // A directory that may be entered and not listed, as one above.
        Errno::ACCESS => openat(at, name, flags | OFlags::PATH, Mode::empty()),
        errno => Err(errno),
    });
    let directory = opened.map_err(|errno| {
        let stat = statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
        match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Symlink) => TrustError::Link(path.to_owned()),
            Ok(kind) if kind != FileType::Directory => {
                TrustError::Kind { path: path.to_owned(), expected: "directory" }
            }
            _ => TrustError::system(path)(errno),
        }
    })?;
    check_directory(&directory, path, user, requirement)?;
    Ok(directory)
}

fn check_directory(
    directory: &OwnedFd,
    path: &Path,
    user: u32,
    requirement: Requirement,
) -> Result<(), TrustError> {
    let stat = fstat(directory).map_err(TrustError::system(path))?;
    check_owner(path, &stat, user)?;
    check_mode(path, &stat, requirement)
}

fn check_owner(path: &Path, stat: &Stat, user: u32) -> Result<(), TrustError> {
    match stat.st_uid == 0 || stat.st_uid == user {
        true => Ok(()),
        false => Err(TrustError::Owner { path: path.to_owned(), owner: stat.st_uid, user }),
    }
}

fn check_mode(path: &Path, stat: &Stat, requirement: Requirement) -> Result<(), TrustError> {
    let mode = stat.st_mode & 0o7777;
    let is_sticky = requirement == Requirement::Shared && mode & STICKY != 0;
    match mode & OTHERS_WRITE == 0 || is_sticky {
        true => Ok(()),
        false => Err(TrustError::Writable { path: path.to_owned(), mode }),
    }
}

/// Removes a file, a link, or a directory with everything in it.
fn remove_entry(at: BorrowedFd<'_>, name: &CStr, device: u64, depth: u32) -> rustix::io::Result<()> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // unlink(2) of a directory; some file systems report PERM.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let Some(depth) = depth.checked_sub(1) else { return Err(Errno::NAMETOOLONG) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(at, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    if fstat(&directory)?.st_dev != device {
        return Err(Errno::XDEV);
    }
    let mut attempts = 0;
    loop {
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                remove_entry(directory.as_fd(), entry.file_name(), device, depth)?;
            }
        }
        attempts += 1;
        match unlinkat(at, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // A process created a file in it meanwhile.
            Err(Errno::NOTEMPTY | Errno::EXIST) if attempts < EMPTY_ATTEMPTS => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests;
