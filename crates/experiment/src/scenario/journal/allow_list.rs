//! Things that a run may have made, by its name: a journal that names anything else is not obeyed. Pure.

use std::path::{Component, Path, PathBuf};

use host::sandbox::cgroup::read_hierarchies;
use host::tuning::is_host_setting;

use super::{CreatedResource, RUN_DIRECTORIES};
use crate::scenario::plan::{NODES, NOISE_GROUP, WORKERS_GROUP};

/// File of the quota of a control group of version 2.
const CPU_MAX: &str = "cpu.max";
/// Maximum length of the former value of a setting.
const VALUE_BYTES_MAX: usize = 4096;

/// Reason why a line of a journal is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The name of the file is not that of a run.
    #[error("the file has no name of a run (weir-PID-START-NUMBER.journal)")]
    Name,
    /// The first line names another process than the file.
    #[error("the first line names another process than the name of the file")]
    OtherOwner,
    /// It is not JSON, or no resource.
    #[error("not a line of a journal: {0}")]
    Syntax(String),
    /// The namespace is not of this run.
    #[error("network namespace '{0}' is not of this run")]
    Namespace(String),
    /// The control group is not of this run.
    #[error("control group {path} is not of this run", path = .0.display())]
    Cgroup(PathBuf),
    /// The directory is not of this run.
    #[error("directory {path} is not of this run", path = .0.display())]
    Directory(PathBuf),
    /// The file is no setting that a run may change.
    #[error("{path} is no setting that a run changes", path = .0.display())]
    Setting(PathBuf),
    /// The former value has several lines, or is too long.
    #[error("the former value of {path} is not one line of text", path = .0.display())]
    Value(PathBuf),
}

/// Things that one run may have made.
#[derive(Clone, Debug)]
pub(super) struct AllowList {
    pub(super) run: String,
    pub(super) run_directories: PathBuf,
    /// Mount points of control groups.
    pub(super) cgroup_mounts: Vec<PathBuf>,
    pub(super) is_setting: fn(&Path) -> bool,
}

impl AllowList {
    pub(super) fn from_this_machine(run: &str) -> Self {
        // Without control groups, no run has made one.
        let hierarchies = read_hierarchies().unwrap_or_default();
        let v1 = hierarchies.v1.into_iter().map(|(_, path)| path);
        Self {
            run: run.to_owned(),
            run_directories: RUN_DIRECTORIES.into(),
            cgroup_mounts: v1.chain(hierarchies.unified).collect(),
            is_setting: is_host_setting,
        }
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Checks that the run may have made a resource.
    pub(super) fn check(&self, made: &CreatedResource) -> Result<(), EntryError> {
        match made {
            CreatedResource::Namespace { name } => {
                let is_own = self.node_of(name).is_some();
                is_own.then_some(()).ok_or_else(|| EntryError::Namespace(name.clone()))
            }
            CreatedResource::Cgroup { path } => {
                let name = path.file_name().and_then(|name| name.to_str());
                let is_top = path.parent().is_some_and(|parent| self.is_mount(parent));
                let is_own = is_top && name.is_some_and(|name| self.node_of(name).is_some());
                is_own.then_some(()).ok_or_else(|| EntryError::Cgroup(path.clone()))
            }
            CreatedResource::MovedProcesses { path, processes } => {
                let is_own =
                    self.is_in_cgroups(path) && path.file_name().is_some_and(|name| *name == *self.run);
                if !is_own {
                    return Err(EntryError::Cgroup(path.clone()));
                }
                // The child group was made in the group of the processes.
                match processes.iter().find(|moved| Some(&*moved.cgroup) != path.parent()) {
                    Some(other) => Err(EntryError::Cgroup(other.cgroup.clone())),
                    None => Ok(()),
                }
            }
            // Its identity shows whether it is of this run, when it is killed.
            CreatedResource::Process(_) => Ok(()),
            CreatedResource::Setting { path, previous } => self.check_setting(path, previous),
            CreatedResource::Directory { path } => {
                let is_own = *path == self.run_directories.join(&self.run);
                is_own.then_some(()).ok_or_else(|| EntryError::Directory(path.clone()))
            }
        }
    }

    fn check_setting(&self, path: &Path, previous: &str) -> Result<(), EntryError> {
        let is_quota = self.is_in_cgroups(path) && path.file_name().is_some_and(|name| name == CPU_MAX);
        if !(is_quota || is_plain(path) && (self.is_setting)(path)) {
            return Err(EntryError::Setting(path.to_owned()));
        }
        match previous.len() <= VALUE_BYTES_MAX && !previous.contains(['\n', '\0']) {
            true => Ok(()),
            false => Err(EntryError::Value(path.to_owned())),
        }
    }

    /// Returns the part behind the run's name, if it is that of a node or a group.
    fn node_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        let node = name.strip_prefix(&*self.run)?.strip_prefix('-')?;
        let mut names = NODES.iter().map(|node| node.name()).chain([NOISE_GROUP, WORKERS_GROUP]);
        names.any(|name| name == node).then_some(node)
    }

    fn is_mount(&self, path: &Path) -> bool {
        self.cgroup_mounts.iter().any(|mount| mount == path)
    }

    fn is_in_cgroups(&self, path: &Path) -> bool {
        is_plain(path) && self.cgroup_mounts.iter().any(|mount| path.starts_with(mount))
    }
}

/// Returns whether a path is absolute, without `..`.
fn is_plain(path: &Path) -> bool {
    let is_name = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::RootDir);
    path.is_absolute() && path.components().all(is_name)
}
