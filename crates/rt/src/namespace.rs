//! Network namespaces (network_namespaces(7)). A socket belongs forever to the namespace that its
//! thread was in when it was created. So a thread enters the namespace, creates the socket, and
//! returns.
//!
//! This module creates no namespaces and runs nothing else in one: code in a namespace must not
//! block.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Directory of the files that `ip netns add NAME` creates (ip-netns(8)).
const NETNS_DIRECTORY: &str = "/var/run/netns";
/// Namespace of the calling thread.
const OWN_NETNS: &str = "/proc/thread-self/ns/net";

/// Network namespace in which sockets are created. Cheap to clone, and open for as long as it
/// lives: later changes of its name, of our user and of our file access do not affect the file. But
/// each use requires `CAP_SYS_ADMIN` (setns(2)), which a process gives up together with root.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: PathBuf,
    target: Arc<OwnedFd>,
    /// Namespace of the opening thread, to which [`Namespace::run`] returns.
    original: Arc<OwnedFd>,
}

impl Namespace {
    /// Opens a namespace by its name, as `ip netns` knows it, or by its path if it contains a `/`.
    ///
    /// # Errors
    /// The name does not exist, or may not be opened; both with the path in the message.
    pub fn open(name: &Path) -> io::Result<Self> {
        let path = if name.as_os_str().as_encoded_bytes().contains(&b'/') {
            name.to_owned()
        } else {
            Path::new(NETNS_DIRECTORY).join(name)
        };
        Ok(Self {
            name: name.to_owned(),
            target: Arc::new(open_file(&path)?),
            original: Arc::new(open_file(Path::new(OWN_NETNS))?),
        })
    }

    /// Returns its descriptor numbers, for cores with their own table to keep.
    pub fn raw_fds(&self) -> [RawFd; 2] {
        [self.target.as_raw_fd(), self.original.as_raw_fd()]
    }

    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Runs `body` with the calling thread in this namespace. The thread has returned to its own
    /// namespace afterwards, even after a panic of `body`.
    ///
    /// # Errors
    /// The thread may not change its namespace; then `body` did not run. Or it could not return,
    /// which only happens if `body` gave up our privileges: then the thread must not continue.
    pub fn run<T>(&self, body: impl FnOnce() -> T) -> io::Result<T> {
        self.enter(&self.target).map_err(|error| self.with_name(&error))?;
        let guard = RestoreGuard { namespace: self, restored: false };
        let result = body();
        guard.restore()?;
        Ok(result)
    }

    fn enter(&self, fd: &OwnedFd) -> io::Result<()> {
        Ok(move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    fn with_name(&self, error: &io::Error) -> io::Error {
        let name = self.name.display();
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "not permitted (start as root, or with CAP_SYS_ADMIN)".to_owned()
            }
            io::ErrorKind::InvalidInput => "not a network namespace".to_owned(),
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("namespace '{name}': {reason}"))
    }
}

fn open_file(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("namespace {}: {error}", path.display()))
    })
}

/// Guard that returns the thread to its namespace when `body` panics.
struct RestoreGuard<'a> {
    namespace: &'a Namespace,
    restored: bool,
}

impl RestoreGuard<'_> {
    fn restore(mut self) -> io::Result<()> {
        self.restored = true;
        self.namespace.enter(&self.namespace.original).map_err(|error| {
            let name = self.namespace.name.display();
            io::Error::other(format!("cannot return from the namespace '{name}': {error}"))
        })
    }
}

impl Drop for RestoreGuard<'_> {
    fn drop(&mut self) {
        if !self.restored {
            // A panic is in progress; there is nowhere to report an error.
            let _ = self.namespace.enter(&self.namespace.original);
        }
    }
}

/// Namespace of one test, removed when it is dropped.
#[cfg(test)]
pub(crate) mod testing {
    use std::net::Shutdown;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Shuts a socket down and closes it. A close alone may not end it at once: a child process
    /// that another test starts has a copy of each of our descriptors until it executes its
    /// program.
    pub(crate) fn shut_down_socket(socket: impl AsFd) {
        socket2::SockRef::from(&socket).shutdown(Shutdown::Both).unwrap();
    }

    pub(crate) struct TempNamespace(pub(crate) String);

    /// Creates a namespace; `None`, with the reason printed, if this machine does not allow it.
    pub(crate) fn create_namespace() -> Option<(TempNamespace, Namespace)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-rt-{}-{next}", std::process::id());
        let ip = |arguments: &[&str]| match Command::new("ip").args(arguments).output() {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                test_needs::skip(test_needs::ROOT, String::from_utf8_lossy(&output.stderr).trim());
                false
            }
            Err(error) => {
                test_needs::skip("ip", error);
                false
            }
        };
        if !ip(&["netns", "add", &name]) {
            return None;
        }
        let temp_namespace = TempNamespace(name);
        if !ip(&["-n", &temp_namespace.0, "link", "set", "lo", "up"]) {
            return None;
        }
        let namespace = Namespace::open(Path::new(&temp_namespace.0)).unwrap();
        Some((temp_namespace, namespace))
    }

    impl Drop for TempNamespace {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_namespace() -> PathBuf {
        std::fs::read_link(OWN_NETNS).unwrap()
    }

    #[test]
    fn the_thread_is_there_within_and_back_afterwards() {
        let Some((temp_namespace, namespace)) = testing::create_namespace() else { return };
        let before = own_namespace();
        let inside = namespace.run(own_namespace).unwrap();
        assert_ne!(inside, before);
        assert_eq!(own_namespace(), before);
        let by_path = Namespace::open(&Path::new(NETNS_DIRECTORY).join(&temp_namespace.0)).unwrap();
        assert_eq!(by_path.run(own_namespace).unwrap(), inside);
        let failed = namespace.run(|| Err::<(), _>(io::Error::other("on purpose"))).unwrap();
        assert!(failed.is_err());
        assert_eq!(own_namespace(), before);
    }

    #[test]
    fn a_panic_brings_the_thread_back_too() {
        let Some((_temp_namespace, namespace)) = testing::create_namespace() else { return };
        let before = own_namespace();
        let panicking = std::panic::AssertUnwindSafe(|| namespace.run(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert_eq!(own_namespace(), before);
    }

    #[test]
    fn errors_name_the_namespace() {
        let error_text = |name: &str| Namespace::open(Path::new(name)).unwrap_err().to_string();
        assert!(error_text("weir-no-such").contains("/var/run/netns/weir-no-such"));
        assert!(error_text("/no/such").starts_with("namespace /no/such: "));
        let file = Namespace::open(Path::new("/dev/null")).unwrap();
        let error = file.run(|| ()).unwrap_err().to_string();
        assert!(error.starts_with("namespace '/dev/null': "), "{error}");
    }
}
