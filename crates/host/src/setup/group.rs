//! Where this machine's control groups are, v1 and v2, and what is in one
//! (`Documentation/admin-guide/cgroup-v1/`, `Documentation/admin-guide/cgroup-v2.rst`).
//!
//! Not for their figures (what a group used) nor for naming groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{Membership, parse_memberships, parse_mounts};
use crate::source::{NotObservable, read_once};

const MOUNTS: &str = "/proc/self/mountinfo";

/// The hierarchies that are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The second version's, which every kernel of today can have beside the first.
    pub unified: Option<PathBuf>,
    /// Controllers that the unified one gives to its first level (`cgroup.subtree_control`).
    pub unified_controllers: Vec<String>,
    /// The first version's, by the controllers mounted there.
    pub first_version: Vec<(Vec<String>, PathBuf)>,
}

impl Hierarchies {
    /// Where a controller of the first version is mounted.
    #[must_use]
    pub fn controller(&self, name: &str) -> Option<&Path> {
        let has = |(names, _): &&(Vec<String>, PathBuf)| names.iter().any(|one| one == name);
        self.first_version.iter().find(has).map(|(_, path)| path.as_path())
    }

    /// Whether the unified hierarchy gives a controller to groups on its first level.
    #[must_use]
    pub fn is_unified(&self, name: &str) -> bool {
        self.unified_controllers.iter().any(|one| one == name)
    }
}

/// Reads which hierarchies there are.
///
/// # Errors
/// `/proc` is not there.
pub fn hierarchies() -> Result<Hierarchies, NotObservable> {
    let mut found = parse_hierarchies(&read_once("control groups", MOUNTS)?);
    if let Some(unified) = &found.unified {
        let path = unified.join("cgroup.subtree_control");
        let text = fs::read_to_string(path).unwrap_or_default();
        found.unified_controllers = text.split_whitespace().map(str::to_owned).collect();
    }
    Ok(found)
}

/// The hierarchies out of `/proc/self/mountinfo`.
#[must_use]
pub fn parse_hierarchies(text: &str) -> Hierarchies {
    let mut found = Hierarchies::default();
    for mount in parse_mounts(text) {
        let place = PathBuf::from(mount.folder);
        match mount.controllers {
            None => found.unified = found.unified.or(Some(place)),
            Some(names) => {
                let names = names.split(',').map(str::to_owned).collect();
                found.first_version.push((names, place));
            }
        }
    }
    found
}

/// The group that process `pid` is in, in the hierarchy that has `controller`: its folder.
///
/// # Errors
/// The process is gone, or there is no such hierarchy.
pub fn home(found: &Hierarchies, controller: &str, pid: i32) -> Result<PathBuf, NotObservable> {
    let path = format!("/proc/{pid}/cgroup");
    let text = read_once("the control group of a process", &path)?;
    let (root, first_version) = match (found.controller(controller), &found.unified) {
        (Some(root), _) => (root, true),
        (None, Some(root)) => (root.as_path(), false),
        (None, None) => {
            let why = format!("no hierarchy has the controller '{controller}'");
            return Err(NotObservable::new("the control group of a process", why));
        }
    };
    let of_hierarchy = |one: &Membership<'_>| match first_version {
        true => one.controllers.split(',').any(|name| name == controller),
        false => one.controllers.is_empty(),
    };
    let member = parse_memberships(&text).find(of_hierarchy);
    let member =
        member.ok_or_else(|| NotObservable::form("the control group of a process", &path))?;
    Ok(root.join(member.group.trim_start_matches('/')))
}

/// Moves a process into a group, by its folder.
///
/// # Errors
/// As of the kernel: it is gone, the group is not there, there is no right to.
pub fn move_to(pid: i32, group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

/// The processes in a group, by its own list; none when the group is not there.
#[must_use]
pub fn processes(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "31 23 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:29 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
        34 31 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn both_versions_are_found() {
        let found = parse_hierarchies(MIXED);
        assert_eq!(found.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(found.controller("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(found.controller("memory"), None);
        assert_eq!(parse_hierarchies("x\n\n"), Hierarchies::default());
    }

    #[test]
    fn the_live_ones_are_read_and_a_missing_group_is_empty() {
        assert!(hierarchies().is_ok());
        assert!(processes(Path::new("/no/such")).is_empty());
    }
}
