//! Which processes belong to which role: those that were named, and the children that they have now
//! or get later.
//!
//! Not for reading them. The children of this very process are not its role's, unless they were
//! named: whoever watches may also start what it watches, or what disturbs it.

use crate::process::parse_stat;
use crate::source::read_once;
use std::collections::{HashMap, HashSet};

/// Processes of all roles together that are watched.
pub(super) const MAX_PROCESSES: usize = 1000;
/// Processes of the machine that are looked at for children.
const MAX_SCANNED: usize = 65_536;

/// The processes of the machine that were seen, and who owns those that belong to a role.
#[derive(Debug)]
pub(super) struct Family {
    own: i32,
    owners: HashMap<i32, usize>,
    seen: HashSet<i32>,
    /// There were more than [`MAX_PROCESSES`].
    pub(super) overflowed: bool,
}

impl Family {
    pub(super) fn new() -> Self {
        let own = std::process::id().cast_signed();
        Self { own, owners: HashMap::new(), seen: HashSet::new(), overflowed: false }
    }

    /// Gives a process to a role; false when it has an owner already.
    pub(super) fn claim(&mut self, pid: i32, role: usize) -> bool {
        let free = !self.owners.contains_key(&pid);
        if free {
            self.owners.insert(pid, role);
        }
        free
    }

    /// A process has ended, and its number may be another's soon.
    pub(super) fn forget(&mut self, pid: i32) {
        self.owners.remove(&pid);
    }

    /// Looks for processes that were not there before, and gives those whose parents belong to a role
    /// to that role: (process, role).
    pub(super) fn scan(&mut self) -> Vec<(i32, usize)> {
        let mut present = HashSet::with_capacity(self.seen.len());
        let mut strangers = Vec::new();
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        let pids =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.take(MAX_SCANNED) {
            present.insert(pid);
            if !self.seen.contains(&pid)
                && let Ok(text) = read_once("parent of a process", &format!("/proc/{pid}/stat"))
                && let Some(line) = parse_stat(&text)
            {
                strangers.push((pid, line.parent));
            }
        }
        self.seen = present;
        self.adopt(&strangers)
    }

    /// Gives (process, parent) pairs to the parent's roles, children of children too.
    fn adopt(&mut self, strangers: &[(i32, i32)]) -> Vec<(i32, usize)> {
        let mut adopted = Vec::new();
        loop {
            let before = adopted.len();
            for &(pid, parent) in strangers {
                let Some(&role) = self.owners.get(&parent).filter(|_| parent != self.own) else {
                    continue;
                };
                if self.owners.len() >= MAX_PROCESSES {
                    self.overflowed = true;
                    return adopted;
                }
                if self.claim(pid, role) {
                    adopted.push((pid, role));
                }
            }
            if adopted.len() == before {
                return adopted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(owners: &[(i32, usize)]) -> Family {
        Family {
            own: 1000,
            owners: owners.iter().copied().collect(),
            seen: HashSet::new(),
            overflowed: false,
        }
    }

    #[test]
    fn children_and_their_children_go_to_the_role_in_any_order() {
        let mut family = family(&[(10, 0), (20, 1)]);
        let adopted = family.adopt(&[(12, 11), (11, 10), (21, 20), (30, 2), (20, 10)]);
        assert_eq!(adopted, [(11, 0), (21, 1), (12, 0)]);
        // What was named stays where it was named.
        assert_eq!(family.owners[&20], 1);
        family.forget(11);
        assert_eq!(family.adopt(&[(13, 11)]), []);
    }

    #[test]
    fn the_watchers_own_children_are_nobodys() {
        let mut family = family(&[(1000, 0), (1001, 1)]);
        assert_eq!(family.adopt(&[(1002, 1000), (1003, 1001)]), [(1003, 1)]);
    }

    #[test]
    fn there_is_a_bound() {
        let mut family = family(&[(10, 0)]);
        let many: Vec<(i32, i32)> =
            (5000..5000 + 2 * MAX_PROCESSES as i32).map(|pid| (pid, 10)).collect();
        assert_eq!(family.adopt(&many).len(), MAX_PROCESSES - 1);
        assert!(family.overflowed);
    }

    #[test]
    fn a_live_child_of_a_child_is_found() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 20 & echo ready; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let mut family = Family::new();
        family.claim(shell.id() as i32, 3);
        let adopted = family.scan();
        assert_eq!(adopted.len(), 1, "{adopted:?}");
        assert_eq!(adopted[0].1, 3);
        assert_eq!(family.scan(), []);
        let sleep = rustix::process::Pid::from_raw(adopted[0].0).unwrap();
        rustix::process::kill_process(sleep, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
