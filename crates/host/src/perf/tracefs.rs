//! Numbers of tracepoints, from tracefs (`Documentation/trace/ftrace.rst`). It need not be mounted:
//! a private instance is created if necessary.
//!
//! This module does not trace.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::kernel_file::NotObservable;

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Root directory of tracefs.
#[derive(Debug)]
pub(super) struct Tracefs(OwnedFd);

impl Tracefs {
    /// Opens tracefs.
    ///
    /// # Errors
    /// It is not mounted, and may not be (CAP_SYS_ADMIN).
    pub(super) fn open() -> Result<Self, NotObservable> {
        let private_mount = mount_private();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mounted = || {
            let mut opened =
                MOUNT_POINTS.iter().filter_map(|path| openat(CWD, *path, flags, Mode::empty()).ok());
            // The directory exists, empty, even if nothing is mounted.
            opened.find(|directory| openat(directory, "events", OFlags::PATH, Mode::empty()).is_ok())
        };
        match private_mount {
            Ok(directory) => Ok(Self(directory)),
            Err(error) => mounted().map(Self).ok_or_else(|| {
                NotObservable::new("tracepoints", format!("cannot mount tracefs ({error}): run as root"))
            }),
        }
    }

    /// Returns the number of a tracepoint.
    ///
    /// # Errors
    /// The tracepoint does not exist, or may not be read.
    pub(super) fn tracepoint_id(&self, group: &str, name: &str) -> io::Result<u64> {
        let path = format!("events/{group}/{name}/id");
        let file = openat(&self.0, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        text.trim().parse().map_err(io::Error::other)
    }
}

/// Creates an instance without a mount point; it ends with its descriptor.
fn mount_private() -> io::Result<OwnedFd> {
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
                assert!(tracefs.tracepoint_id("no_such_group", "x").is_err());
                match tracefs.tracepoint_id("raw_syscalls", "sys_enter") {
                    Ok(id) => assert!(id > 0),
                    Err(error) => test_needs::skip(test_needs::PERF, error),
                }
            }
            Err(why) => test_needs::skip(test_needs::PERF, why),
        }
    }
}
