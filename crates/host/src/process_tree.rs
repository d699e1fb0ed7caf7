//! Process trees: the named root processes, and all their present and later children.
//!
//! This module does not sample processes. The own process and its children belong to a role only if
//! they were named: weir may also start the processes that it watches, or the disturbances.

use crate::kernel_file::read_once;
use crate::process::parse_stat;
use std::collections::HashMap;

/// Maximum number of watched processes, all roles together.
pub(crate) const MAX_PROCESSES: usize = 1000;
/// Maximum number of processes on the machine that are scanned for children.
const MAX_SCANNED: usize = 65_536;

/// Returns processes with all their current descendants: the named ones first, each once.
pub fn with_descendants(pids: &[i32]) -> Vec<i32> {
    let mut tree = ProcessTree::new();
    let mut all: Vec<i32> = pids.iter().copied().filter(|pid| tree.claim(*pid, 0)).collect();
    if !all.is_empty() {
        all.extend(tree.scan().into_iter().map(|(pid, _)| pid));
    }
    all
}

/// A process as it was first seen.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessBaseline {
    parent: i32,
    /// CPU time in ticks that it had used; 0 if it began while the machine was watched.
    cpu_ticks: u64,
}

/// Known processes of the machine, and the role that owns each claimed process.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    own_pid: i32,
    owners: HashMap<i32, usize>,
    known: HashMap<i32, ProcessBaseline>,
    /// Processes of the current scan; kept to reuse its memory.
    scanned: HashMap<i32, ProcessBaseline>,
    scans: u64,
    /// True if there were more than [`MAX_PROCESSES`].
    pub(crate) overflowed: bool,
}

impl ProcessTree {
    pub(crate) fn new() -> Self {
        Self {
            own_pid: std::process::id().cast_signed(),
            owners: HashMap::new(),
            known: HashMap::new(),
            scanned: HashMap::new(),
            scans: 0,
            overflowed: false,
        }
    }

    /// Assigns a process to a role; returns false if it already has an owner.
    pub(crate) fn claim(&mut self, pid: i32, role: usize) -> bool {
        let free = !self.owners.contains_key(&pid);
        if free {
            self.owners.insert(pid, role);
        }
        free
    }

    pub(crate) fn is_claimed(&self, pid: i32) -> bool {
        self.owners.contains_key(&pid)
    }

    pub(crate) fn is_own(&self, pid: i32) -> bool {
        pid == self.own_pid
    }

    /// Returns true if no process belongs to a role.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Removes an ended process, whose number may be reused soon.
    pub(crate) fn remove(&mut self, pid: i32) {
        self.owners.remove(&pid);
    }

    /// Scans for new processes, and assigns those whose parents belong to a role to that role:
    /// (process, role).
    pub(crate) fn scan(&mut self) -> Vec<(i32, usize)> {
        self.scanned.clear();
        let mut new_processes = Vec::new();
        let entries = std::fs::read_dir("/proc").into_iter().flatten();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.take(MAX_SCANNED) {
            if let Some(baseline) = self.known.get(&pid) {
                self.scanned.insert(pid, *baseline);
            } else if let Ok(text) = read_once("parent of a process", &format!("/proc/{pid}/stat"))
                && let Some(line) = parse_stat(&text)
            {
                new_processes.push((pid, line.parent));
                let used = line.user_ticks + line.system_ticks;
                let cpu_ticks = if self.scans == 0 { used } else { 0 };
                self.scanned.insert(pid, ProcessBaseline { parent: line.parent, cpu_ticks });
            }
        }
        self.scans += 1;
        std::mem::swap(&mut self.known, &mut self.scanned);
        self.assign_descendants(&new_processes)
    }

    /// Assigns the descendants of processes that were claimed after their scan to their roles.
    pub(crate) fn assign_known_descendants(&mut self) -> Vec<(i32, usize)> {
        let known: Vec<(i32, i32)> =
            self.known.iter().map(|(pid, baseline)| (*pid, baseline.parent)).collect();
        self.assign_descendants(&known)
    }

    /// Returns the CPU time in ticks that a process had used at the first scan; 0 if it began
    /// later.
    pub(crate) fn baseline_ticks(&self, pid: i32) -> u64 {
        self.known.get(&pid).map_or(0, |baseline| baseline.cpu_ticks)
    }

    /// Assigns (process, parent) pairs to the parent's roles, including children of children.
    fn assign_descendants(&mut self, processes: &[(i32, i32)]) -> Vec<(i32, usize)> {
        let mut assigned = Vec::new();
        loop {
            let before = assigned.len();
            for &(pid, parent) in processes {
                if pid == self.own_pid || parent == self.own_pid {
                    continue;
                }
                let Some(&role) = self.owners.get(&parent) else { continue };
                if self.owners.len() >= MAX_PROCESSES {
                    self.overflowed = true;
                    return assigned;
                }
                if self.claim(pid, role) {
                    assigned.push((pid, role));
                }
            }
            if assigned.len() == before {
                return assigned;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_with(owners: &[(i32, usize)]) -> ProcessTree {
        ProcessTree { own_pid: 1000, owners: owners.iter().copied().collect(), ..ProcessTree::new() }
    }

    #[test]
    fn children_and_their_children_go_to_the_role_in_any_order() {
        let mut tree = tree_with(&[(10, 0), (20, 1)]);
        let assigned = tree.assign_descendants(&[(12, 11), (11, 10), (21, 20), (30, 2), (20, 10)]);
        assert_eq!(assigned, [(11, 0), (21, 1), (12, 0)]);
        // A named process stays in the role that named it.
        assert_eq!(tree.owners[&20], 1);
        tree.remove(11);
        assert_eq!(tree.assign_descendants(&[(13, 11)]), []);
    }

    #[test]
    fn the_watcher_and_its_own_children_are_nobodys() {
        let mut tree = tree_with(&[(1000, 0), (1001, 1)]);
        assert_eq!(tree.assign_descendants(&[(1002, 1000), (1003, 1001)]), [(1003, 1)]);
        // The watched shell has the watcher for a child.
        let mut shell_tree = tree_with(&[(900, 0)]);
        assert_eq!(shell_tree.assign_descendants(&[(1000, 900), (1002, 1000)]), []);
    }

    #[test]
    fn there_is_a_bound() {
        let mut tree = tree_with(&[(10, 0)]);
        let many: Vec<(i32, i32)> = (5000..5000 + 2 * MAX_PROCESSES as i32).map(|pid| (pid, 10)).collect();
        assert_eq!(tree.assign_descendants(&many).len(), MAX_PROCESSES - 1);
        assert!(tree.overflowed);
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
        let mut tree = ProcessTree::new();
        tree.claim(named, 3);
        let assigned = tree.scan();
        assert_eq!(assigned.len(), 1, "{assigned:?}");
        assert_eq!(assigned[0].1, 3);
        assert_eq!(tree.scan(), []);
        assert_eq!(with_descendants(&[named, named]), [named, assigned[0].0]);
        assert!(with_descendants(&[]).is_empty());
        let sleep = rustix::process::Pid::from_raw(assigned[0].0).unwrap();
        rustix::process::kill_process(sleep, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
