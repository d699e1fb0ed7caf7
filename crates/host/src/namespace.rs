//! Network namespaces (network_namespaces(7)), of a process or by their file. Work in another
//! namespace runs on a separate thread that enters it and ends (setns(2)). The calling thread never
//! changes its namespace.
//!
//! Sockets and devices made in a namespace belong to it for as long as they live, and
//! `/proc/sys/net` is that namespace's. This module makes no namespaces; `ip netns add` does.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::kernel_file::NotObservable;

/// Namespace of the calling thread.
const OWN_NETNS: &str = "/proc/thread-self/ns/net";

/// A network namespace, held open: it outlives the process that named it.
#[derive(Debug)]
pub struct Namespace {
    /// `None`: the namespace of this process.
    fd: Option<OwnedFd>,
}

impl Namespace {
    /// Opens the namespace of a process; `None` is the own one.
    ///
    /// # Errors
    /// There is no such process, or access is denied (it belongs to another user). The error names
    /// the file.
    pub fn open_pid(pid: Option<i32>) -> io::Result<Self> {
        let Some(pid) = pid else { return Ok(Self { fd: None }) };
        let path = format!("/proc/{pid}/ns/net");
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
        // The text of the link is the namespace's number: "net:[4026531840]".
        let theirs = fs::read_link(&path).map_err(named)?;
        if fs::read_link(OWN_NETNS).is_ok_and(|own| own == theirs) {
            return Ok(Self { fd: None });
        }
        Self::open_path(Path::new(&path))
    }

    /// Opens the namespace of a file: `/run/netns/NAME`.
    ///
    /// # Errors
    /// The file cannot be opened; the error names it. A file that is no namespace fails only in
    /// [`run`](Self::run).
    pub fn open_path(path: &Path) -> io::Result<Self> {
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self { fd: Some(file) })
    }

    /// Runs `body` in the namespace: on a thread that enters it first, or on this thread if it is
    /// our own.
    ///
    /// # Errors
    /// The thread cannot be started, or may not enter the namespace; then `body` did not run.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        let Some(fd) = &self.fd else { return Ok(body()) };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("namespace".to_owned());
            let running = thread.spawn_scoped(scope, || {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(fd.as_fd(), kind).map_err(setns_error)?;
                Ok(body())
            })?;
            running.join().unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
        })
    }
}

fn setns_error(errno: rustix::io::Errno) -> io::Error {
    let error = io::Error::from(errno);
    if error.kind() == io::ErrorKind::PermissionDenied {
        let why = "entering another network namespace needs CAP_SYS_ADMIN (run as root)";
        return io::Error::new(error.kind(), why);
    }
    io::Error::new(error.kind(), format!("setns: {error}"))
}

/// Returns the ID of the network namespace of process `pid`: equal for two processes in the same
/// one.
pub fn netns_id(pid: i32) -> Result<u64, NotObservable> {
    let path = format!("/proc/{pid}/ns/net");
    let failed = |error| NotObservable::io("network namespace of a process", &path, &error);
    Ok(fs::metadata(&path).map_err(failed)?.ino())
}

/// Runs `work` in the network namespace of process `pid`; on this thread if it is the same
/// namespace.
pub(crate) fn run_in_netns_of<T: Send>(
    pid: i32,
    figure: &'static str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NotObservable> {
    let result = Namespace::open_pid(Some(pid)).and_then(|namespace| namespace.run(work));
    result.map_err(|error| NotObservable::new(figure, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_namespace_is_named_and_needs_no_thread() {
        let own = std::process::id() as i32;
        assert!(netns_id(own).unwrap() > 0);
        let here = std::thread::current().id();
        let thread_id = run_in_netns_of(own, "a thing", || std::thread::current().id()).unwrap();
        assert_eq!(here, thread_id);
    }

    #[test]
    fn a_missing_process_is_reported() {
        let error = run_in_netns_of(i32::MAX, "a thing", || ()).unwrap_err();
        assert!(error.reason.contains("/proc/2147483647/ns/net"), "{error}");
    }

    /// A process in a namespace of its own, which lives until it is killed.
    fn unshared() -> io::Result<std::process::Child> {
        use std::process::{Command, Stdio};
        let mut command = Command::new("unshare");
        command.args(["-n", "cat"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn()
    }

    #[test]
    fn our_own_namespace_takes_no_privilege_however_it_is_named() {
        let before = fs::read_link(OWN_NETNS).unwrap();
        for pid in [None, Some(std::process::id() as i32)] {
            let link = Namespace::open_pid(pid).unwrap().run(|| fs::read_link(OWN_NETNS)).unwrap();
            assert_eq!(link.unwrap(), before);
        }
    }

    #[test]
    fn another_process_s_namespace_is_entered_and_left_live() {
        let mut child = match unshared() {
            Ok(child) => child,
            Err(error) => return test_needs::skip(test_needs::ROOT, format!("unshare: {error}")),
        };
        let before = fs::read_link(OWN_NETNS).unwrap();
        let namespace = loop {
            let namespace = Namespace::open_pid(Some(child.id() as i32));
            match (namespace, child.try_wait().unwrap()) {
                (Ok(namespace), None) if namespace.fd.is_some() => break namespace,
                (_, Some(_)) => return test_needs::skip(test_needs::ROOT, "unshare -n takes root"),
                _ => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        let within = namespace.run(|| fs::read_link(OWN_NETNS).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        match within {
            Ok(within) => assert_ne!(within, before),
            Err(error) => test_needs::skip(test_needs::ROOT, error),
        }
        assert_eq!(fs::read_link(OWN_NETNS).unwrap(), before);
    }

    #[test]
    fn a_missing_process_is_named() {
        let error = Namespace::open_pid(Some(i32::MAX)).unwrap_err();
        assert!(error.to_string().starts_with("/proc/2147483647/ns/net: "), "{error}");
    }
}
