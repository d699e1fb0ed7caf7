//! Named network namespaces made by `ip netns` (ip-netns(8)).
//!
//! This module makes no named one; `ip netns add` does.

use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::namespace::Namespace;

/// Directory of the files that `ip netns add NAME` creates (ip-netns(8)).
const NETNS_DIRECTORY: &str = "/run/netns";

/// Returns the file of the namespace that `ip netns` knows by `name`.
pub fn netns_path(name: &str) -> PathBuf {
    Path::new(NETNS_DIRECTORY).join(name)
}

/// Runs `body` in the network namespace at `path`, on a thread that ends with it.
///
/// # Errors
/// The file cannot be opened, is no network namespace, or may not be entered (that requires
/// `CAP_SYS_ADMIN`); then `body` did not run. Or `body` panicked.
pub fn run_in_netns<T: Send>(path: &Path, body: impl FnOnce() -> T + Send) -> io::Result<T> {
    Namespace::open_path(path).and_then(|namespace| namespace.run(body)).map_err(|error| {
        io::Error::new(error.kind(), format!("network namespace {}: {error}", path.display()))
    })
}

/// Runs `body` in a new network namespace, with the default settings of the kernel, on a thread that ends with
/// it. The namespace has no name and is gone afterwards, also after a crash.
///
/// # Errors
/// The thread may not make a namespace (that requires `CAP_SYS_ADMIN`); then `body` did not run. Or `body`
/// panicked.
#[allow(unsafe_code)]
pub fn run_in_new_netns<T: Send>(body: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("new namespace".to_owned());
        let running = thread.spawn_scoped(scope, || {
            // SAFETY: only the network namespace of this thread changes; its table of descriptors stays the
            // one that all threads share.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| {
                let error = io::Error::from(errno);
                io::Error::new(error.kind(), format!("a new network namespace: {error} (run as root)"))
            })?;
            Ok(body())
        })?;
        running.join().unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
    })
}

/// Does the same as [`run_in_netns`], with the interfaces of that namespace below `/sys/class/net`.
///
/// # Errors
/// As for [`run_in_netns`], or `/sys` cannot be mounted; then `body` did not run.
pub fn run_with_sysfs_in_netns<T: Send>(path: &Path, body: impl FnOnce() -> T + Send) -> io::Result<T> {
    run_in_netns(path, || mount_sysfs().map(|()| body()))?
}

/// Does the same as [`run_in_new_netns`], with the interfaces of that namespace below `/sys/class/net`.
///
/// # Errors
/// As for [`run_in_new_netns`], or `/sys` cannot be mounted; then `body` did not run.
pub fn run_with_sysfs_in_new_netns<T: Send>(body: impl FnOnce() -> T + Send) -> io::Result<T> {
    run_in_new_netns(|| mount_sysfs().map(|()| body()))?
}

/// Gives this thread mounts of its own, and mounts the `/sys` of its network namespace there, as `ip netns exec`
/// does (ip-netns(8)). The mounts end with the thread.
#[allow(unsafe_code)]
fn mount_sysfs() -> io::Result<()> {
    let explain = |errno: rustix::io::Errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("/sys of a network namespace: {error} (run as root)"))
    };
    // SAFETY: only mounts, the root and the working directory of this thread become its own; its table of
    // descriptors stays the one that all threads share.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(explain)?;
    // Without it the new mount would appear in the host's mounts.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).map_err(explain)?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None::<&std::ffi::CStr>).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_namespace_can_be_entered_by_root_only() {
        let own = Path::new("/proc/self/ns/net");
        match run_in_netns(own, || std::fs::read_link("/proc/thread-self/ns/net")) {
            Ok(there) => assert_eq!(there.unwrap(), std::fs::read_link(own).unwrap()),
            Err(error) => assert!(error.to_string().contains("/proc/self/ns/net"), "{error}"),
        }
    }

    #[test]
    fn a_file_that_is_no_namespace_is_reported() {
        let why = |path: &str| run_in_netns(Path::new(path), || ()).unwrap_err().to_string();
        assert!(why("/no/such").starts_with("network namespace /no/such: "));
        assert!(why("/dev/null").starts_with("network namespace /dev/null: "));
        assert_eq!(netns_path("a"), Path::new("/run/netns/a"));
    }
}
