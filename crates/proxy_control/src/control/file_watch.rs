//! Detection of changes to the files of a config. It polls their states: a mounted ConfigMap or
//! Secret changes by a new target of a symbolic link, an editor writes in place or renames.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rt::clock::{MILLISECOND_NS, MonotonicTime};

use crate::plan::{ListenerTls, Plan, PoolTls};

/// Interval between two polls. A change is reported at the second poll that finds the same states.
const POLL_INTERVAL_NS: u64 = 500 * MILLISECOND_NS;

/// State of a path, with symbolic links followed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathState {
    /// Missing, or not accessible.
    Missing,
    File {
        device: u64,
        inode: u64,
        bytes: u64,
        /// Time of the last change of the content or the inode, in seconds and nanoseconds.
        changed: (i64, i64),
    },
    /// Files of a directory, sorted by name.
    Directory(Vec<(OsString, Self)>),
}

/// States of the watched paths at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathStates(Vec<(PathBuf, PathState)>);

#[derive(Debug)]
pub struct FileWatch {
    /// The config; `None`: only the files with servers and with revoked certificates are watched.
    config: Option<PathBuf>,
    /// States before the files were last read.
    loaded: PathStates,
    detector: ChangeDetector,
    next_poll: MonotonicTime,
}

/// Decides from the states of successive polls whether to read the files again.
#[derive(Debug, Default)]
struct ChangeDetector {
    /// States of the last poll that differ from the loaded ones.
    pending: Option<PathStates>,
}

impl ChangeDetector {
    /// Returns true at the second poll in a row with the same states that differ from `loaded`: a
    /// file that is being written is not complete.
    fn observe(&mut self, loaded: &PathStates, current: PathStates) -> bool {
        if current == *loaded {
            self.pending = None;
            return false;
        }
        let is_stable = self.pending.as_ref() == Some(&current);
        self.pending = Some(current);
        is_stable
    }
}

impl FileWatch {
    /// Watches the config file. Must be called before the file is read.
    #[must_use]
    pub fn new(config: &Path) -> Self {
        let loaded = PathStates(vec![(config.to_owned(), PathState::read(config))]);
        Self { config: Some(config.to_owned()), ..Self::from_server_files(loaded) }
    }

    /// Watches only the files with servers of pools, and those with revoked certificates.
    #[must_use]
    pub(super) fn from_server_files(loaded: PathStates) -> Self {
        Self { config: None, loaded, detector: ChangeDetector::default(), next_poll: MonotonicTime::ZERO }
    }

    /// Returns whether the files have changed since they were read. Polls at most every 500 ms, so it
    /// may be called at any time.
    pub fn has_changed(&mut self, now: MonotonicTime) -> bool {
        if now < self.next_poll {
            return false;
        }
        self.next_poll = now + POLL_INTERVAL_NS;
        let current = self.current();
        self.detector.observe(&self.loaded, current)
    }

    /// Returns the current states of the watched files. To be called before they are read again.
    pub fn current(&self) -> PathStates {
        let states = self.loaded.0.iter().map(|(path, _)| (path.clone(), PathState::read(path)));
        PathStates(states.collect())
    }

    /// Records the states before the last read, and watches the files of the plan in force.
    pub(super) fn set_loaded(&mut self, before: Option<PathStates>, plan: &Plan) {
        let known = before.unwrap_or_else(|| self.loaded.clone());
        let paths: Vec<PathBuf> = match &self.config {
            Some(config) => [config.clone()].into_iter().chain(plan_files(plan)).collect(),
            None => plan.followed_files().map(Path::to_owned).collect(),
        };
        let state = |path: &PathBuf| {
            known.0.iter().find(|(known_path, _)| known_path == path).map(|(_, state)| state.clone())
        };
        // A file that is watched for the first time has just been read.
        let with_state = |path: PathBuf| {
            let state = state(&path).unwrap_or_else(|| PathState::read(&path));
            (path, state)
        };
        self.loaded = PathStates(paths.into_iter().map(with_state).collect());
        self.detector = ChangeDetector::default();
    }
}

impl PathState {
    fn read(path: &Path) -> Self {
        let Ok(metadata) = fs::metadata(path) else { return Self::Missing };
        if !metadata.is_dir() {
            return Self::from_metadata(&metadata);
        }
        let Ok(entries) = fs::read_dir(path) else { return Self::Missing };
        let mut files: Vec<(OsString, Self)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let metadata = fs::metadata(entry.path()).ok()?;
                metadata.is_file().then(|| (entry.file_name(), Self::from_metadata(&metadata)))
            })
            .collect();
        files.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        Self::Directory(files)
    }

    fn from_metadata(metadata: &Metadata) -> Self {
        Self::File {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Returns the files besides the config that a reload reads again.
fn plan_files(plan: &Plan) -> Vec<PathBuf> {
    let listeners = plan.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let pools = plan.pools.iter().filter_map(|pool| pool.tls.as_ref());
    let directories = listeners.clone().filter_map(|tls| tls.directory.as_deref());
    let files = listeners.flat_map(ListenerTls::files).chain(pools.flat_map(PoolTls::files));
    let mut paths: Vec<PathBuf> =
        files.chain(directories).chain(plan.read_again()).map(Path::to_owned).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_time::at;

    fn states(inode: u64) -> PathStates {
        let state = PathState::File { device: 1, inode, bytes: 3, changed: (7, inode as i64) };
        PathStates(vec![("/etc/weir/weir.toml".into(), state)])
    }

    #[test]
    fn a_change_is_reported_once_it_is_stable() {
        let (loaded, mut detector) = (states(1), ChangeDetector::default());
        assert!(!detector.observe(&loaded, states(1)));
        // Written in two steps: two polls differ.
        assert!(!detector.observe(&loaded, states(2)));
        assert!(!detector.observe(&loaded, states(3)));
        assert!(detector.observe(&loaded, states(3)));
        // Back to the loaded content before the second poll.
        let mut detector = ChangeDetector::default();
        assert!(!detector.observe(&loaded, states(2)));
        assert!(!detector.observe(&loaded, states(1)));
        assert!(!detector.observe(&loaded, states(2)));
    }

    #[test]
    fn states_follow_links_and_list_the_files_of_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("weir.toml"), "same").unwrap();
        }
        // As the kubelet updates a volume: the files are links through `..data`, which is replaced.
        std::os::unix::fs::symlink("v1", path("..data")).unwrap();
        std::os::unix::fs::symlink("..data/weir.toml", path("weir.toml")).unwrap();
        let mut watch = FileWatch::new(&path("weir.toml"));
        assert!(!watch.has_changed(at(0)));
        std::os::unix::fs::symlink("v2", path("..data_tmp")).unwrap();
        fs::rename(path("..data_tmp"), path("..data")).unwrap();
        assert!(!watch.has_changed(at(POLL_INTERVAL_NS)));
        assert!(!watch.has_changed(at(POLL_INTERVAL_NS + 1)), "polled twice within the interval");
        assert!(watch.has_changed(at(2 * POLL_INTERVAL_NS)));

        let before = PathState::read(directory.path());
        fs::write(path("new.pem"), "").unwrap();
        assert_ne!(PathState::read(directory.path()), before);
        assert_eq!(PathState::read(&path("missing")), PathState::Missing);
    }
}
