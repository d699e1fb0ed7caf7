//! Mount points of this machine's control groups, v1 and v2, and their members
//! (`Documentation/admin-guide/cgroup-v1/`, `Documentation/admin-guide/cgroup-v2.rst`).
//!
//! [`crate::cgroup`] reads their figures; callers name the groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{Membership, parse_memberships, parse_mounts};
use crate::kernel_file::{NotObservable, read_once};

const MOUNTS: &str = "/proc/self/mountinfo";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupHierarchies {
    /// The v2 hierarchy, which any current kernel can have besides v1.
    pub unified: Option<PathBuf>,
    /// Controllers that v2 enables for its first level (`cgroup.subtree_control`).
    pub unified_controllers: Vec<String>,
    /// The v1 hierarchies, by the controllers mounted there.
    pub v1: Vec<(Vec<String>, PathBuf)>,
}

impl CgroupHierarchies {
    /// Returns the mount point of a v1 controller.
    pub fn v1_mount(&self, name: &str) -> Option<&Path> {
        let has = |(names, _): &&(Vec<String>, PathBuf)| names.iter().any(|controller| controller == name);
        self.v1.iter().find(has).map(|(_, path)| path.as_path())
    }

    /// Returns true if the v2 hierarchy enables a controller for groups on its first level.
    pub fn has_unified_controller(&self, name: &str) -> bool {
        self.unified_controllers.iter().any(|controller| controller == name)
    }
}

/// Reads the mounted hierarchies.
///
/// # Errors
/// `/proc` is missing.
pub fn read_hierarchies() -> Result<CgroupHierarchies, NotObservable> {
    let mut hierarchies = parse_hierarchies(&read_once("control groups", MOUNTS)?);
    if let Some(unified) = &hierarchies.unified {
        let path = unified.join("cgroup.subtree_control");
        let text = fs::read_to_string(path).unwrap_or_default();
        hierarchies.unified_controllers = text.split_whitespace().map(str::to_owned).collect();
    }
    Ok(hierarchies)
}

/// Parses the hierarchies in `/proc/self/mountinfo`.
pub fn parse_hierarchies(text: &str) -> CgroupHierarchies {
    let mut hierarchies = CgroupHierarchies::default();
    for mount in parse_mounts(text) {
        let path = PathBuf::from(mount.directory);
        match mount.controllers {
            None => hierarchies.unified = hierarchies.unified.or(Some(path)),
            Some(names) => {
                let names = names.split(',').map(str::to_owned).collect();
                hierarchies.v1.push((names, path));
            }
        }
    }
    hierarchies
}

/// Returns the directory of the group of process `pid` in the hierarchy with `controller`.
///
/// # Errors
/// The process has ended, or there is no such hierarchy.
pub fn group_directory(
    hierarchies: &CgroupHierarchies,
    controller: &str,
    pid: i32,
) -> Result<PathBuf, NotObservable> {
    let path = format!("/proc/{pid}/cgroup");
    let text = read_once("cgroup of a process", &path)?;
    let (root, is_v1) = match (hierarchies.v1_mount(controller), &hierarchies.unified) {
        (Some(root), _) => (root, true),
        (None, Some(root)) => (root.as_path(), false),
        (None, None) => {
            let why = format!("no cgroup hierarchy has the controller '{controller}'");
            return Err(NotObservable::new("cgroup of a process", why));
        }
    };
    let is_in_hierarchy = |membership: &Membership<'_>| match is_v1 {
        true => membership.controllers.split(',').any(|name| name == controller),
        false => membership.controllers.is_empty(),
    };
    let member = parse_memberships(&text).find(is_in_hierarchy);
    let member = member.ok_or_else(|| NotObservable::bad_format("cgroup of a process", &path))?;
    Ok(root.join(member.group.trim_start_matches('/')))
}

/// Moves a process into a group, by its directory.
///
/// # Errors
/// Those of the kernel: the process has ended, the group is missing, or permission is denied.
pub fn move_process(pid: i32, group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

/// Returns the processes of a group, from its own list; empty if the group is missing.
pub fn list_processes(group: &Path) -> Vec<i32> {
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
        let hierarchies = parse_hierarchies(MIXED);
        assert_eq!(hierarchies.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(hierarchies.v1_mount("cpuacct"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(hierarchies.v1_mount("memory"), None);
        assert_eq!(parse_hierarchies("x\n\n"), CgroupHierarchies::default());
    }

    #[test]
    fn the_live_ones_are_read_and_a_missing_group_is_empty() {
        assert!(read_hierarchies().is_ok());
        assert!(list_processes(Path::new("/no/such")).is_empty());
    }
}
