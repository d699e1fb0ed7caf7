//! The network namespace of a process, to open sockets in (network_namespaces(7), setns(2)).
//!
//! A socket stays in the namespace that its thread was in when it was made. So a thread of its own
//! goes there, makes it and ends: the calling thread never leaves home.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The calling thread's own.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace, held open: it outlives the process that it was named by.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// `None`: the one that this process is in.
    there: Option<OwnedFd>,
}

impl Namespace {
    /// That of a process; `None` is our own.
    ///
    /// # Errors
    /// There is no such process, or we may not look at it (it belongs to somebody else); the file
    /// is named.
    pub(crate) fn of(pid: Option<i32>) -> io::Result<Self> {
        let Some(pid) = pid else { return Ok(Self { there: None }) };
        let path = format!("/proc/{pid}/ns/net");
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
        // The text of the link is the namespace's number: "net:[4026531840]".
        let theirs = fs::read_link(&path).map_err(named)?;
        if fs::read_link(OWN).is_ok_and(|own| own == theirs) {
            return Ok(Self { there: None });
        }
        let file = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { there: Some(file.map_err(|error| named(error.into()))?) })
    }

    /// Runs `body` there: in a thread that goes there first, or in this one where it is our own.
    ///
    /// # Errors
    /// The thread cannot be started, or may not go there; `body` did not run then.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
