//! Work in the network namespace of another process: on a thread of its own, which enters the
//! namespace, does what it was given, and ends. The rest of the program never moves.
//!
//! Not for making namespaces. Source: setns(2), which needs `CAP_SYS_ADMIN`; namespaces(7).

use crate::source::NotObservable;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

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
    if network_id(pid)? == network_id(std::process::id().cast_signed())? {
        return Ok(work());
    }
    let path = format!("/proc/{pid}/ns/net");
    let namespace = File::open(&path).map_err(|error| NotObservable::io(what, &path, &error))?;
    let enter = || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).map(|()| work())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("observe-enter".to_owned());
        let thread = thread.spawn_scoped(scope, enter).map_err(|error| {
            NotObservable::new(what, format!("no thread could be made: {error}"))
        })?;
        match thread.join() {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                let why =
                    format!("{path}: {error}: entering a network namespace needs CAP_SYS_ADMIN");
                Err(NotObservable::new(what, why))
            }
            Err(_) => Err(NotObservable::new(what, "the thread in that namespace failed")),
        }
    })
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
}
