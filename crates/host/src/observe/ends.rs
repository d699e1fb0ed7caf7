//! When processes that were named end. The kernel marks the descriptor of one that has (pidfd_open(2)),
//! also where nobody has waited for it yet.
//!
//! Not for their children: those of a server may come and go.

use std::fs;
use std::os::fd::OwnedFd;

use record::observed::Ended;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The most that are followed: each takes a descriptor.
const FOLLOWED_MAX: usize = 16;

#[derive(Debug)]
struct Followed {
    end: OwnedFd,
    ended: Ended,
}

/// Processes that are followed to their end, and those that came to it.
#[derive(Debug, Default)]
pub(super) struct Ends {
    followed: Vec<Followed>,
    seen: Vec<Ended>,
}

impl Ends {
    /// Follows a process from now on. One that is not there, or a kernel without the call, is not.
    pub(super) fn follow(&mut self, role: &str, pid: i32) {
        if self.followed.len() >= FOLLOWED_MAX || pid <= 0 {
            return;
        }
        let opened = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(end) = opened else { return };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let (role, name) = (role.to_owned(), name.trim().to_owned());
        self.followed.push(Followed { end, ended: Ended { role, pid, name, time_s: 0.0 } });
    }

    /// Notes those that have ended since the last look.
    pub(super) fn look(&mut self, time_s: f64) {
        let gone = self.followed.extract_if(.., |one| has_ended(&one.end));
        self.seen.extend(gone.map(|one| Ended { time_s, ..one.ended }));
    }

    /// Those that have ended, in the order in which it was seen.
    pub(super) fn seen(&self) -> Vec<Ended> {
        self.seen.clone()
    }
}

fn has_ended(end: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(end, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_end_is_seen_before_anybody_waits_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut ends = Ends::default();
        ends.follow("subject", pid);
        ends.follow("subject", i32::MAX);
        ends.look(1.0);
        assert_eq!(ends.seen(), []);
        drop(child.stdin.take());
        let until = std::time::Duration::from_millis(10);
        for _ in 0..3_000 {
            ends.look(2.5);
            if !ends.seen().is_empty() {
                break;
            }
            std::thread::sleep(until);
        }
        let seen = ends.seen();
        assert_eq!(seen[0].role, "subject");
        assert!(seen[0].to_string().ends_with(" ended at 2.5 s"), "{}", seen[0]);
        assert!(seen[0].to_string().starts_with(&format!("process {pid} (")), "{}", seen[0]);
        // Once is enough.
        ends.look(3.0);
        assert_eq!(ends.seen(), seen);
        child.wait().unwrap();
    }
}
