//! Files that an observed process names: mapped files, its perf map, its sockets. The process chooses them, so they
//! are opened as the process itself would, below its own root: a link cannot lead into the file system of this
//! process, whose user may read more. Only regular files are opened, and opening one never waits.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

/// Maximum number of bytes that are read of one file with symbols, in all reads together.
const READ_BYTES_MAX: u64 = 1 << 30;

/// Opens a file for reading by its path in this process.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(openat(CWD, path, read_flags(), Mode::empty())?)
}

/// Opens a file for reading by its path in process `pid`.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub(super) fn open_of_process(pid: i32, path: &str) -> io::Result<File> {
    check_regular(resolve_of_process(pid, path, read_flags())?)
}

/// Opens the file at a path in process `pid`, without reading it ([`OFlags::PATH`]).
///
/// # Errors
/// There is no such file.
pub(super) fn locate_in_process(pid: i32, path: &str) -> io::Result<OwnedFd> {
    resolve_of_process(pid, path, OFlags::PATH | OFlags::CLOEXEC)
}

fn read_flags() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
}

fn resolve_of_process(pid: i32, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let root = format!("/proc/{pid}/root");
    let directory = open(&*root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match openat2(&directory, path, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes that do not know the call. There the links are followed as far as the
        // last name.
        Err(Errno::NOSYS | Errno::PERM) => {
            let relative = path.trim_start_matches('/');
            Ok(openat(&directory, relative, flags | OFlags::NOFOLLOW, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

fn check_regular(file: OwnedFd) -> io::Result<File> {
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Returns whether root or the user of process `pid` owns a file.
pub(super) fn is_owned_by_process(pid: i32, file: &File) -> bool {
    let Ok(file) = file.metadata() else { return false };
    let process = std::fs::metadata(format!("/proc/{pid}"));
    file.uid() == 0 || process.is_ok_and(|process| process.uid() == file.uid())
}

/// File with symbols, with a limit of all bytes that are read: a hostile file can name the same bytes many times.
#[derive(Debug)]
pub(super) struct BoundedFile {
    file: File,
    left: u64,
}

impl BoundedFile {
    /// Limits the reads of a file.
    ///
    /// # Errors
    /// The file is larger than the limit.
    pub(super) fn new(file: File) -> io::Result<Self> {
        // A section is read into memory at once, and may be as long as the file.
        match file.metadata()?.len() <= READ_BYTES_MAX {
            true => Ok(Self { file, left: READ_BYTES_MAX }),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }
}

impl Read for BoundedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(buffer.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.read(buffer)
    }
}

impl Seek for BoundedFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_no_open_waits() {
        let directory = std::env::temp_dir().join(format!("host-process-file-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        let own = std::process::id() as i32;
        fs::write(path("file"), "x").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("/proc/self/fd/0", path("magic")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        for name in ["file", "link"] {
            let in_process = open_of_process(own, path(name).to_str().unwrap()).unwrap();
            assert!(open_regular(&path(name)).is_ok() && is_owned_by_process(own, &in_process), "{name}");
        }
        for name in ["pipe", "", "magic", "missing"] {
            assert!(open_of_process(own, path(name).to_str().unwrap()).is_err(), "{name}");
        }
        assert!(open_regular(&path("pipe")).is_err() && open_regular(&directory).is_err());
        assert!(open_of_process(i32::MAX, "/etc/hostname").is_err());
        assert!(locate_in_process(own, path("pipe").to_str().unwrap()).is_ok());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn reads_have_a_limit() {
        let path = std::env::temp_dir().join(format!("host-bounded-file-{}", std::process::id()));
        let sparse = File::create(&path).unwrap();
        sparse.set_len(READ_BYTES_MAX).unwrap();
        let mut file = BoundedFile::new(File::open(&path).unwrap()).unwrap();
        file.left = 10;
        let mut buffer = [0; 6];
        assert!(file.read(&mut buffer).is_ok() && file.read(&mut buffer).is_err());
        sparse.set_len(READ_BYTES_MAX + 1).unwrap();
        assert!(BoundedFile::new(File::open(&path).unwrap()).is_err());
        fs::remove_file(&path).unwrap();
    }
}
