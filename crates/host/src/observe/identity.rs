//! Identity of a process on its kernel, the same from every PID namespace.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use record::observed::KernelProcess;

/// Returns the identity of process `pid`; `None` if it has ended, or belongs to another PID namespace and to a user
/// whose processes cannot be read.
pub(super) fn read(pid: i32) -> Option<KernelProcess> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let (inner_pid, is_in_own_namespace) = parse_namespace_pids(&status)?;
    let inode = |path: &str| fs::metadata(path).ok().map(|metadata| metadata.ino());
    let namespace = inode(&format!("/proc/{pid}/ns/pid"));
    let own = || inode("/proc/self/ns/pid").filter(|_| is_in_own_namespace);
    Some(KernelProcess { namespace: namespace.or_else(own)?, pid: inner_pid })
}

/// Parses the line `NSpid` of `/proc/PID/status`: the process IDs from the reader's PID namespace to the innermost
/// one. Returns the last, and true if it is the only one.
fn parse_namespace_pids(status: &str) -> Option<(i32, bool)> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut pids = line.split_whitespace().map(str::parse);
    let first: i32 = pids.next()?.ok()?;
    Some(match pids.next_back() {
        Some(last) => (last.ok()?, false),
        None => (first, true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_process_id_identifies_a_process() {
        assert_eq!(parse_namespace_pids("Name:\ta\nNSpid:\t120\nNSpgid:\t1\n"), Some((120, true)));
        assert_eq!(parse_namespace_pids("NSpid:\t120\t12\t3\n"), Some((3, false)));
        assert_eq!(parse_namespace_pids("Name:\ta\n"), None);
        let pid = i32::try_from(std::process::id()).unwrap();
        let own = read(pid).unwrap();
        assert!(own.namespace > 0 && own.pid > 0);
        assert_eq!(read(pid), Some(own));
        assert_eq!(read(i32::MAX), None);
    }
}
