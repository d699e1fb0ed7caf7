//! Work in the network namespace of another process: on a thread of its own, which enters the
//! namespace, does what it was given, and ends. The rest of the program never moves.
//!
//! Not for making namespaces. Source: setns(2), which needs `CAP_SYS_ADMIN`; namespaces(7).

use crate::netlink::Namespace;
use crate::source::NotObservable;
use std::fs;
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
}
