//! Network namespaces (network_namespaces(7)): of a process, or by their file; and work in one, on a
//! thread of its own which goes there and ends (setns(2)). The calling thread never leaves home.
//!
//! Sockets and devices that were made in one belong to it for as long as they live, and
//! `/proc/sys/net` is that namespace's. Not for making namespaces: `ip netns add` does.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::source::NotObservable;

/// The calling thread's own.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace, held open: it outlives the process that it was named by.
#[derive(Debug)]
pub struct Namespace {
    /// `None`: the one that this process is in.
    there: Option<OwnedFd>,
}

impl Namespace {
    /// That of a process; `None` is our own.
    ///
    /// # Errors
    /// There is no such process, or we may not look at it (it belongs to somebody else); the file
    /// is named.
    pub fn of(pid: Option<i32>) -> io::Result<Self> {
        let Some(pid) = pid else { return Ok(Self { there: None }) };
        let path = format!("/proc/{pid}/ns/net");
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
        // The text of the link is the namespace's number: "net:[4026531840]".
        let theirs = fs::read_link(&path).map_err(named)?;
        if fs::read_link(OWN).is_ok_and(|own| own == theirs) {
            return Ok(Self { there: None });
        }
        Self::at(Path::new(&path))
    }

    /// That of a file: `/run/netns/NAME`.
    ///
    /// # Errors
    /// It cannot be opened; the file is named. Whether it is a namespace shows when it is entered.
    pub fn at(path: &Path) -> io::Result<Self> {
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self { there: Some(file) })
    }

    /// Runs `body` there: in a thread that goes there first, or in this one where it is our own.
    ///
    /// # Errors
    /// The thread cannot be started, or may not go there; `body` did not run then.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        let Some(there) = &self.there else { return Ok(body()) };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("namespace".to_owned());
            let running = thread.spawn_scoped(scope, || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(there.as_fd(), kind).map_err(explain)?;
                Ok(body())
            })?;
            running.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
        })
    }
}

fn explain(errno: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(errno);
    if error.kind() == io::ErrorKind::PermissionDenied {
        let why = "another network namespace may only be entered with CAP_SYS_ADMIN (run as root)";
        return io::Error::new(error.kind(), why);
    }
    io::Error::new(error.kind(), format!("setns: {error}"))
}

/// What names the network namespace of process `pid`: equal for two processes in the same one.
pub fn network_id(pid: i32) -> Result<u64, NotObservable> {
    let path = format!("/proc/{pid}/ns/net");
    let failed = |error| NotObservable::io("network namespace of a process", &path, &error);
    Ok(fs::metadata(&path).map_err(failed)?.ino())
}

/// Does `work` in the network namespace of process `pid`; here, when that is this one.
pub(crate) fn in_network_of<T: Send>(
    pid: i32,
    what: &'static str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NotObservable> {
    let done = Namespace::of(Some(pid)).and_then(|there| there.run(work));
    done.map_err(|error| NotObservable::new(what, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_namespace_is_named_and_needs_no_thread() {
        let own = std::process::id() as i32;
        assert!(network_id(own).unwrap() > 0);
        let here = std::thread::current().id();
        let there = in_network_of(own, "a thing", || std::thread::current().id()).unwrap();
        assert_eq!(here, there);
    }

    #[test]
    fn a_process_that_is_not_there_is_said() {
        let error = in_network_of(i32::MAX, "a thing", || ()).unwrap_err();
        assert!(error.why.contains("/proc/2147483647/ns/net"), "{error}");
    }

    /// A process in a namespace of its own, which lives until it is killed.
    fn unshared() -> io::Result<std::process::Child> {
        use std::process::{Command, Stdio};
        let mut command = Command::new("unshare");
        command.args(["-n", "cat"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn()
    }

    #[test]
    fn our_own_namespace_takes_no_privilege_however_it_is_named() {
        let before = fs::read_link(OWN).unwrap();
        for pid in [None, Some(std::process::id() as i32)] {
            let there = Namespace::of(pid).unwrap().run(|| fs::read_link(OWN)).unwrap();
            assert_eq!(there.unwrap(), before);
        }
    }

    #[test]
    fn another_process_s_namespace_is_entered_and_left_live() {
        let mut child = match unshared() {
            Ok(child) => child,
            Err(error) => return println!("skipped: unshare: {error}"),
        };
        let before = fs::read_link(OWN).unwrap();
        let there = loop {
            let namespace = Namespace::of(Some(child.id() as i32));
            match (namespace, child.try_wait().unwrap()) {
                (Ok(namespace), None) if namespace.there.is_some() => break namespace,
                (_, Some(_)) => return println!("skipped: unshare -n takes root"),
                _ => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        let within = there.run(|| fs::read_link(OWN).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        match within {
            Ok(within) => assert_ne!(within, before),
            Err(error) => println!("skipped: {error}"),
        }
        assert_eq!(fs::read_link(OWN).unwrap(), before);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = Namespace::of(Some(i32::MAX)).unwrap_err();
        assert!(error.to_string().starts_with("/proc/2147483647/ns/net: "), "{error}");
    }
}
