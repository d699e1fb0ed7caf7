//! Which processes belong to a program: those that were named, and the children that they have now
//! or get later.
//!
//! Not for reading them. This very process and its children belong to a program only where they were
//! named: whoever watches may also start what it watches, or what disturbs it.

use crate::process::parse_stat;
use crate::source::read_once;
use std::collections::HashMap;

/// Processes of all roles together that are watched.
pub(crate) const MAX_PROCESSES: usize = 1000;
/// Processes of the machine that are looked at for children.
const MAX_SCANNED: usize = 65_536;

/// Some processes with all their descendants of this moment: the named ones first, each once.
#[must_use]
pub fn with_descendants(pids: &[i32]) -> Vec<i32> {
    let mut family = Family::new();
    let mut all: Vec<i32> = pids.iter().copied().filter(|pid| family.claim(*pid, 0)).collect();
    if !all.is_empty() {
        all.extend(family.scan().into_iter().map(|(pid, _)| pid));
    }
    all
}

/// A process when it was seen first.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    parent: i32,
    /// CPU time that it had used; 0 for one that began while the machine was watched.
    ticks: u64,
}

/// The processes of the machine that were seen, and who owns those that belong to a role.
#[derive(Debug)]
pub(crate) struct Family {
    own: i32,
    owners: HashMap<i32, usize>,
    seen: HashMap<i32, First>,
    /// Those of the scan under way; kept for its memory.
    present: HashMap<i32, First>,
    scans: u64,
    /// There were more than [`MAX_PROCESSES`].
    pub(crate) overflowed: bool,
}

impl Family {
    pub(crate) fn new() -> Self {
        Self {
            own: std::process::id().cast_signed(),
            owners: HashMap::new(),
            seen: HashMap::new(),
            present: HashMap::new(),
            scans: 0,
            overflowed: false,
        }
    }

    /// Gives a process to a role; false when it has an owner already.
    pub(crate) fn claim(&mut self, pid: i32, role: usize) -> bool {
        let free = !self.owners.contains_key(&pid);
        if free {
            self.owners.insert(pid, role);
        }
        free
    }

    /// Whether a process belongs to a role.
    pub(crate) fn is_claimed(&self, pid: i32) -> bool {
        self.owners.contains_key(&pid)
    }

    /// Whether nobody belongs to anybody.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// A process has ended, and its number may be another's soon.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.owners.remove(&pid);
    }

    /// Looks for processes that were not there before, and gives those whose parents belong to a role
    /// to that role: (process, role).
    pub(crate) fn scan(&mut self) -> Vec<(i32, usize)> {
        self.present.clear();
        let mut strangers = Vec::new();
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        let pids =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.take(MAX_SCANNED) {
            if let Some(first) = self.seen.get(&pid) {
                self.present.insert(pid, *first);
            } else if let Ok(text) = read_once("parent of a process", &format!("/proc/{pid}/stat"))
                && let Some(line) = parse_stat(&text)
            {
                strangers.push((pid, line.parent));
                let used = line.user_ticks + line.system_ticks;
                let ticks = if self.scans == 0 { used } else { 0 };
                self.present.insert(pid, First { parent: line.parent, ticks });
            }
        }
        self.scans += 1;
        std::mem::swap(&mut self.seen, &mut self.present);
        self.adopt(&strangers)
    }

    /// Gives the descendants of processes that were claimed after they were scanned to their roles.
    pub(crate) fn adopt_seen(&mut self) -> Vec<(i32, usize)> {
        let seen: Vec<(i32, i32)> =
            self.seen.iter().map(|(pid, first)| (*pid, first.parent)).collect();
        self.adopt(&seen)
    }

    /// CPU time in ticks that a process had used when the first scan saw it; 0 where it began later.
    pub(crate) fn ticks_before(&self, pid: i32) -> u64 {
        self.seen.get(&pid).map_or(0, |first| first.ticks)
    }

    /// Gives (process, parent) pairs to the parent's roles, children of children too.
    fn adopt(&mut self, strangers: &[(i32, i32)]) -> Vec<(i32, usize)> {
        let mut adopted = Vec::new();
        loop {
            let before = adopted.len();
            for &(pid, parent) in strangers {
                if pid == self.own || parent == self.own {
                    continue;
                }
                let Some(&role) = self.owners.get(&parent) else { continue };
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
        Family { own: 1000, owners: owners.iter().copied().collect(), ..Family::new() }
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
    fn the_watcher_and_its_own_children_are_nobodys() {
        let mut family = family(&[(1000, 0), (1001, 1)]);
        assert_eq!(family.adopt(&[(1002, 1000), (1003, 1001)]), [(1003, 1)]);
        // A shell that is watched has the watcher for a child.
        let mut of_a_shell = self::family(&[(900, 0)]);
        assert_eq!(of_a_shell.adopt(&[(1000, 900), (1002, 1000)]), []);
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
            .args(["-c", "sleep 600 & echo ready; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let named = shell.id() as i32;
        let mut family = Family::new();
        family.claim(named, 3);
        let adopted = family.scan();
        assert_eq!(adopted.len(), 1, "{adopted:?}");
        assert_eq!(adopted[0].1, 3);
        assert_eq!(family.scan(), []);
        assert_eq!(with_descendants(&[named, named]), [named, adopted[0].0]);
        assert!(with_descendants(&[]).is_empty());
        let sleep = rustix::process::Pid::from_raw(adopted[0].0).unwrap();
        rustix::process::kill_process(sleep, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
