//! Files that a process appends to, such as logs. A process that is still root must not write through a link that the
//! owner of the directory has put there. The lines are their caller's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Mode bit with which everybody may create entries in a directory.
const EVERYBODY_WRITES: u32 = 0o002;

/// Opens a file for appending, and creates it if it is missing. A FIFO without a reader is an error (`ENXIO`)
/// instead of a wait, and writes to a FIFO or a device do not block.
///
/// # Errors
/// Those of open(2). For root: in a directory of another user, the file is a link, or has another name elsewhere.
pub fn open_append(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::metadata(parent.unwrap_or_else(|| Path::new(".")))?;
    let is_foreign = directory.uid() != 0 || directory.mode() & EVERYBODY_WRITES != 0;
    let is_checked = is_foreign && rustix::process::geteuid().is_root();
    let links = if is_checked { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | links;
    let mut options = OpenOptions::new();
    // The bits of open flags fit: the kernel takes an `int`.
    options.append(true).create(true).custom_flags(flags.bits() as i32);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if is_checked && code == rustix::io::Errno::LOOP.raw_os_error() => {
            refused("a symbolic link")
        }
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if is_checked && metadata.is_file() && metadata.nlink() > 1 {
        return Err(refused("a file with several names"));
    }
    Ok(file)
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
    }
}
