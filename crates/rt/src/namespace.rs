//! Network namespaces (network_namespaces(7)): a socket belongs for ever to the namespace that its
//! thread was in when it was made, so a thread goes there, makes it, and comes back.
//!
//! Not for making namespaces, nor for running anything in one: what runs in one must not wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns add NAME` leaves a namespace's file (ip-netns(8)).
const NAMED: &str = "/var/run/netns";
/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace to make sockets in. Cheap to clone, and open for as long as it lives: what
/// becomes of its name, of our user and of our file access later does not matter for the file. But
/// each use needs `CAP_SYS_ADMIN` (setns(2)), which a process gives up together with root.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: PathBuf,
    there: Arc<OwnedFd>,
    /// Where [`Namespace::run`] comes back to: the namespace that the opening thread was in.
    home: Arc<OwnedFd>,
}

impl Namespace {
    /// Opens a namespace by its name, as `ip netns` knows it, or by its path if there is a `/` in it.
    ///
    /// # Errors
    /// There is none of that name, or it may not be opened; both with the path in the message.
    pub fn open(name: &Path) -> io::Result<Self> {
        let path = if name.as_os_str().as_encoded_bytes().contains(&b'/') {
            name.to_owned()
        } else {
            Path::new(NAMED).join(name)
        };
        Ok(Self {
            name: name.to_owned(),
            there: Arc::new(open_file(&path)?),
            home: Arc::new(open_file(Path::new(OWN))?),
        })
    }

    /// The numbers of its descriptors, to be kept by cores with a table of their own.
    #[must_use]
    pub fn numbers(&self) -> [RawFd; 2] {
        [self.there.as_raw_fd(), self.home.as_raw_fd()]
    }

    /// Its name, or its path, as it was given.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Runs `body` with the calling thread in this namespace. The thread is back when this returns,
    /// however `body` ended, a panic included.
    ///
    /// # Errors
    /// The thread may not change its namespace; `body` did not run then. Or it could not come back,
    /// which only happens when `body` gave up our privileges: the thread must not go on.
    pub fn run<T>(&self, body: impl FnOnce() -> T) -> io::Result<T> {
        self.enter(&self.there).map_err(|error| self.explain(&error))?;
        let back = ComeBack { namespace: self, done: false };
        let result = body();
        back.now()?;
        Ok(result)
    }

    fn enter(&self, fd: &OwnedFd) -> io::Result<()> {
        Ok(move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    fn explain(&self, error: &io::Error) -> io::Error {
        let name = self.name.display();
        let why = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "not permitted (it takes CAP_SYS_ADMIN, which only root has)".to_owned()
            }
            io::ErrorKind::InvalidInput => "this is not a network namespace".to_owned(),
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("namespace '{name}': {why}"))
    }
}

fn open_file(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("namespace {}: {error}", path.display()))
    })
}

/// Brings the thread back when `body` panics.
struct ComeBack<'a> {
    namespace: &'a Namespace,
    done: bool,
}

impl ComeBack<'_> {
    fn now(mut self) -> io::Result<()> {
        self.done = true;
        self.namespace.enter(&self.namespace.home).map_err(|error| {
            let name = self.namespace.name.display();
            io::Error::other(format!("cannot come back from the namespace '{name}': {error}"))
        })
    }
}

impl Drop for ComeBack<'_> {
    fn drop(&mut self) {
        if !self.done {
            // A panic is on its way already; there is nobody to tell.
            let _ = self.namespace.enter(&self.namespace.home);
        }
    }
}

/// A namespace of a test's own, gone when it is dropped.
#[cfg(test)]
pub(crate) mod testing {
    use std::net::Shutdown;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Ends a socket and closes it. A close alone may not end it at once: until its program runs, the
    /// child that another test starts has a copy of each of our descriptors.
    pub(crate) fn end(socket: impl AsFd) {
        socket2::SockRef::from(&socket).shutdown(Shutdown::Both).unwrap();
    }

    pub(crate) struct Made(pub(crate) String);

    /// `None`, with the reason printed: this machine does not let us.
    pub(crate) fn make() -> Option<(Made, Namespace)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-rt-{}-{next}", std::process::id());
        let ip = |arguments: &[&str]| match Command::new("ip").args(arguments).output() {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                println!("skipped: ip: {}", String::from_utf8_lossy(&output.stderr).trim());
                false
            }
            Err(error) => {
                println!("skipped: ip: {error}");
                false
            }
        };
        if !ip(&["netns", "add", &name]) {
            return None;
        }
        let made = Made(name);
        if !ip(&["-n", &made.0, "link", "set", "lo", "up"]) {
            return None;
        }
        let namespace = Namespace::open(Path::new(&made.0)).unwrap();
        Some((made, namespace))
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> PathBuf {
        std::fs::read_link(OWN).unwrap()
    }

    #[test]
    fn the_thread_is_there_within_and_back_afterwards() {
        let Some((made, namespace)) = testing::make() else { return };
        let before = own();
        let within = namespace.run(own).unwrap();
        assert_ne!(within, before);
        assert_eq!(own(), before);
        let by_path = Namespace::open(&Path::new(NAMED).join(&made.0)).unwrap();
        assert_eq!(by_path.run(own).unwrap(), within);
        let failed = namespace.run(|| Err::<(), _>(io::Error::other("on purpose"))).unwrap();
        assert!(failed.is_err());
        assert_eq!(own(), before);
    }

    #[test]
    fn a_panic_brings_the_thread_back_too() {
        let Some((_made, namespace)) = testing::make() else { return };
        let before = own();
        let panicking = std::panic::AssertUnwindSafe(|| namespace.run(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert_eq!(own(), before);
    }

    #[test]
    fn what_is_no_namespace_is_said() {
        let why = |name: &str| Namespace::open(Path::new(name)).unwrap_err().to_string();
        assert!(why("weir-no-such").contains("/var/run/netns/weir-no-such"));
        assert!(why("/no/such").starts_with("namespace /no/such: "));
        let file = Namespace::open(Path::new("/dev/null")).unwrap();
        let error = file.run(|| ()).unwrap_err().to_string();
        assert!(error.starts_with("namespace '/dev/null': "), "{error}");
    }
}
