//! Files that a process appends to, such as logs. A process that is still root must not write through a link that the
//! owner of the directory has put there. The lines are their caller's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Mode bit with which everybody may create entries in a directory.
const EVERYBODY_WRITES: u32 = 0o002;
/// Mode bit of a directory whose entries only their owners can rename and remove.
const STICKY: u32 = 0o1000;
/// Mode of a new file, minus the umask.
const FILE_MODE: u32 = 0o666;

/// Opens a file for appending, and creates it if it is missing. A FIFO without a reader is an error (`ENXIO`)
/// instead of a wait, and writes to a FIFO or a device do not block.
///
/// # Errors
/// Those of open(2). For root: in a directory of another user, or below one, the file or a directory on the way is a
/// link, or the file has another name elsewhere.
pub fn open_append(path: &Path) -> io::Result<File> {
    let path = std::path::absolute(path)?;
    let is_checked = rustix::process::geteuid().is_root() && is_foreign(&path);
    let file = match is_checked {
        true => open_without_links(&path),
        false => open_following(&path, OFlags::empty()),
    };
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(code) if is_checked && code == Errno::LOOP.raw_os_error() => refused("behind a symbolic link"),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if is_checked && metadata.is_file() && metadata.nlink() > 1 {
        return Err(refused("a file with several names"));
    }
    Ok(file)
}

/// Checks that the caller may rename a file and those beside it.
///
/// # Errors
/// For root: another user can change the directory, and so lead root to other files.
pub fn may_rename(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() && is_foreign(&std::path::absolute(path)?) {
        let text = "another user can change its directory: root renames nothing there";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn open_following(path: &Path, links: OFlags) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | links;
    let mut options = OpenOptions::new();
    // The bits of open flags fit: the kernel takes an `int`.
    options.append(true).create(true).mode(FILE_MODE).custom_flags(flags.bits() as i32);
    options.open(path)
}

fn open_without_links(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::from_raw_mode(FILE_MODE), ResolveFlags::NO_SYMLINKS) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_following(path, OFlags::NOFOLLOW),
        opened => Ok(opened?.into()),
    }
}

/// Returns whether another user can change the directory of a file, or put another directory in its place.
fn is_foreign(path: &Path) -> bool {
    path.ancestors().skip(1).enumerate().any(|(depth, directory)| {
        let (Ok(name), Ok(target)) = (fs::symlink_metadata(directory), fs::metadata(directory)) else {
            return true;
        };
        // In a directory like `/tmp`, others cannot replace a directory of root.
        let is_open = target.mode() & EVERYBODY_WRITES != 0 && (depth == 0 || target.mode() & STICKY == 0);
        name.uid() != 0 || target.uid() != 0 || is_open
    })
}

fn refused(what: &str) -> io::Error {
    let text =
        format!("it is {what}, in a directory that another user can change: root does not write there");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn root_appends_through_no_link_of_another_user() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("victim"), "kept").unwrap();
        symlink("victim", path("link")).unwrap();
        // In a directory of one's own, links are followed, as for every log.
        assert!(open_append(&path("link")).is_ok());
        if chown(directory.path(), Some(65_534), None).is_err() {
            return;
        }
        fs::hard_link(path("victim"), path("hard")).unwrap();
        symlink("new", path("dangling")).unwrap();
        for name in ["link", "hard", "dangling"] {
            let error = open_append(&path(name)).unwrap_err();
            assert!(error.to_string().contains("another user can change"), "{name}: {error}");
        }
        assert!(!path("new").exists());
        fs::remove_file(path("hard")).unwrap();
        open_append(&path("log")).unwrap().write_all(b"one\n").unwrap();
        open_append(&path("log")).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(path("log")).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "kept");
        // The other user leads a directory on the way to one of root.
        fs::create_dir(path("roots")).unwrap();
        symlink("roots", path("way")).unwrap();
        let error = open_append(&path("way/log")).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(!path("roots/log").exists());
    }
}
