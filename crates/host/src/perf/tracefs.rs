//! The numbers of tracepoints, from tracefs (`Documentation/trace/ftrace.rst`). It need not be
//! mounted: an instance that only this process sees is made for the question.
//!
//! Not for tracing.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where it is mounted, on machines where it is.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The folder of tracefs.
#[derive(Debug)]
pub(super) struct Tracefs(OwnedFd);

impl Tracefs {
    /// Opens it.
    ///
    /// # Errors
    /// It is neither mounted nor may it be (CAP_SYS_ADMIN), in words.
    pub(super) fn open() -> Result<Self, String> {
        let private = private();
        let folder = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mounted = || {
            let mut opened =
                MOUNTED.iter().filter_map(|path| openat(CWD, *path, folder, Mode::empty()).ok());
            // An empty folder is there also where nothing is mounted.
            opened.find(|folder| openat(folder, "events", OFlags::PATH, Mode::empty()).is_ok())
        };
        match private {
            Ok(folder) => Ok(Self(folder)),
            Err(error) => mounted().map(Self).ok_or_else(|| {
                format!("tracefs is not mounted, and may not be ({error}): run as root")
            }),
        }
    }

    /// The number of a tracepoint.
    ///
    /// # Errors
    /// There is no such one, or it may not be read.
    pub(super) fn id(&self, group: &str, name: &str) -> io::Result<u64> {
        let path = format!("events/{group}/{name}/id");
        let file = openat(&self.0, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        text.trim().parse().map_err(io::Error::other)
    }
}

/// An instance without a place in the file system; it goes with its descriptor.
fn private() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoint_has_a_number() {
        match Tracefs::open() {
            Ok(tracefs) => {
                assert!(tracefs.id("no_such_group", "x").is_err());
                match tracefs.id("raw_syscalls", "sys_enter") {
                    Ok(id) => assert!(id > 0),
                    Err(error) => println!("skipped: {error}"),
                }
            }
            Err(why) => println!("skipped: {why}"),
        }
    }
}
