//! End times of the named processes. The kernel marks the pidfd of an ended process
//! (pidfd_open(2)), even before its parent waits for it.
//!
//! Children are not followed: those of a server may come and go.

use std::fs;
use std::os::fd::OwnedFd;

use record::observed::ExitedProcess;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process::printable;

/// Maximum number of followed processes: each takes a descriptor.
const WATCHED_MAX: usize = 16;

#[derive(Debug)]
struct WatchedProcess {
    pidfd: OwnedFd,
    exit: ExitedProcess,
}

/// Followed processes, and those that have ended.
#[derive(Debug, Default)]
pub(super) struct ExitWatch {
    watched: Vec<WatchedProcess>,
    exited: Vec<ExitedProcess>,
}

impl ExitWatch {
    /// Follows a process from now on. Skips a process that does not exist, and a kernel without the
    /// call.
    pub(super) fn watch(&mut self, role: &str, pid: i32) {
        if self.watched.len() >= WATCHED_MAX || pid <= 0 {
            return;
        }
        let opened = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(pidfd) = opened else { return };
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let (role, name) = (role.to_owned(), printable(String::from_utf8_lossy(&name).trim()));
        self.watched.push(WatchedProcess { pidfd, exit: ExitedProcess { role, pid, name, time_s: 0.0 } });
    }

    /// Records processes that have ended since the last check.
    pub(super) fn poll_exits(&mut self, time_s: f64) {
        let exited = self.watched.extract_if(.., |process| has_exited(&process.pidfd));
        self.exited.extend(exited.map(|process| ExitedProcess { time_s, ..process.exit }));
    }

    /// Returns the ended processes, in the order of detection.
    pub(super) fn exited(&self) -> Vec<ExitedProcess> {
        self.exited.clone()
    }
}

fn has_exited(pidfd: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_exit_is_reported_before_anybody_waits_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut exits = ExitWatch::default();
        exits.watch("subject", pid);
        exits.watch("subject", i32::MAX);
        exits.poll_exits(1.0);
        assert_eq!(exits.exited(), []);
        drop(child.stdin.take());
        let pause = std::time::Duration::from_millis(10);
        for _ in 0..3_000 {
            exits.poll_exits(2.5);
            if !exits.exited().is_empty() {
                break;
            }
            std::thread::sleep(pause);
        }
        let exited = exits.exited();
        assert_eq!(exited[0].role, "subject");
        assert!(exited[0].to_string().ends_with(" ended at 2.5 s"), "{}", exited[0]);
        assert!(exited[0].to_string().starts_with(&format!("process {pid} (")), "{}", exited[0]);
        // Each end is reported once.
        exits.poll_exits(3.0);
        assert_eq!(exits.exited(), exited);
        child.wait().unwrap();
    }
}
