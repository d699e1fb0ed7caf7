//! Lists the experiments below a directory, with a one-line summary of each. Bounded and read-only:
//! it does not disturb a running experiment.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use record::experiment::SCHEMA;
use record::fleet::MERGED_FILE;
use record::sorted::sort_by;
use record::trial::DiscardReason;
use serde::Deserialize;

use super::files::read_record;
use super::lock;
use super::records::{CONCLUSIONS_FILE, PLAN_FILE, PLAN_SCHEMA};

/// Maximum number of directory entries to visit.
pub const ENTRIES_MAX: usize = 10_000;
/// Maximum depth: the directory itself and two levels below, for experiments sorted by project.
const DEPTH_MAX: u32 = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExperimentListing {
    /// Experiments, the newest first.
    pub experiments: Vec<ExperimentEntry>,
    /// True if the limit on entries cut the listing short.
    pub is_truncated: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExperimentEntry {
    pub path: PathBuf,
    pub name: String,
    pub title: String,
    /// Time of the start, RFC 3339.
    pub started_at: String,
    pub blocks: u32,
    /// First sentence of the conclusions; empty if there are none yet.
    pub summary: String,
    /// True if the experiment ran to its end.
    pub is_complete: bool,
    /// PID of the process that runs it now.
    pub running_pid: Option<i32>,
    /// Reason for missing facts, if the records cannot be read.
    pub problem: Option<String>,
}

#[derive(Deserialize)]
struct ExperimentHead {
    plan: PlanHead,
    partial: bool,
    #[serde(default)]
    summary: Vec<String>,
    trials: Vec<TrialHead>,
}

#[derive(Deserialize)]
struct PlanHead {
    name: String,
    title: String,
}

#[derive(Deserialize)]
struct StartHead {
    started_at: String,
    plan: PlanHead,
}

#[derive(Deserialize)]
struct TrialHead {
    block: u32,
    #[serde(default)]
    discarded: Option<DiscardReason>,
    #[serde(default)]
    failed: Option<String>,
}

/// Lists the experiments at and below `root`. Directories that cannot be read are skipped.
pub fn list_experiments(root: &Path) -> ExperimentListing {
    let (directories, is_truncated) = find_directories(root);
    let experiments = directories.into_iter().filter(|(_, marker)| *marker == PLAN_FILE);
    let mut experiments: Vec<ExperimentEntry> = experiments.map(|(path, _)| read_entry(path)).collect();
    let newest = |left: &ExperimentEntry, right: &ExperimentEntry| {
        right.started_at.cmp(&left.started_at).then_with(|| left.path.cmp(&right.path))
    };
    sort_by(&mut experiments, newest);
    ExperimentListing { experiments, is_truncated }
}

/// Finds the experiments and the stored runs of a fleet at and below `root`, each with the file that marks it:
/// [`PLAN_FILE`] or [`MERGED_FILE`]. Returns true if the limit on entries cut the search short.
pub fn find_directories(root: &Path) -> (Vec<(PathBuf, &'static str)>, bool) {
    let (mut found, mut is_truncated) = (Vec::new(), false);
    let mut visited = 0;
    let mut directories = VecDeque::from([(root.to_owned(), 0)]);
    while let Some((directory, depth)) = directories.pop_front() {
        let mut markers = [PLAN_FILE, MERGED_FILE].into_iter();
        if let Some(marker) = markers.find(|marker| directory.join(marker).is_file()) {
            found.push((directory, marker));
            continue;
        }
        if depth == DEPTH_MAX {
            continue;
        }
        let mut below: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            visited += 1;
            if visited > ENTRIES_MAX {
                is_truncated = true;
                break;
            }
            // Links are not followed: they may form a cycle.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below.push(entry.path());
            }
        }
        below.sort_unstable();
        directories.extend(below.into_iter().map(|path| (path, depth + 1)));
    }
    (found, is_truncated)
}

fn read_entry(path: PathBuf) -> ExperimentEntry {
    let running = lock::holder_pid(&path);
    let start = match read_record::<StartHead>(&path.join(PLAN_FILE), PLAN_SCHEMA) {
        Ok(start) => start,
        Err(error) => {
            let problem = Some(error.to_string());
            return ExperimentEntry { path, running_pid: running, problem, ..ExperimentEntry::default() };
        }
    };
    let StartHead { started_at, plan: PlanHead { name, title } } = start;
    let listed =
        ExperimentEntry { running_pid: running, name, title, started_at, ..ExperimentEntry::default() };
    let concluded = path.join(CONCLUSIONS_FILE);
    if !concluded.exists() {
        return ExperimentEntry { path, ..listed };
    }
    match read_record::<ExperimentHead>(&concluded, SCHEMA) {
        Ok(head) => ExperimentEntry {
            blocks: count_blocks(&head.trials),
            summary: head.summary.into_iter().next().unwrap_or_default(),
            is_complete: !head.partial,
            name: head.plan.name,
            title: head.plan.title,
            path,
            ..listed
        },
        Err(error) => ExperimentEntry { path, problem: Some(error.to_string()), ..listed },
    }
}

fn count_blocks(trials: &[TrialHead]) -> u32 {
    let counts = |it: &&TrialHead| it.block > 0 && it.discarded.is_none() && it.failed.is_none();
    let mut blocks: Vec<u32> = trials.iter().filter(counts).map(|it| it.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.len() as u32
}

#[cfg(test)]
mod tests {
    use super::super::super::simulated::{plan, start};
    use super::super::ExperimentDir;
    use super::*;

    #[test]
    fn experiments_are_found_newest_first_and_broken_ones_too() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, at: &str| {
            let mut start = start(plan(&["a", "b"], &["x"]));
            start.started_at = at.to_owned();
            ExperimentDir::create(&root.path().join(name), start).unwrap()
        };
        drop(make("old", "2026-01-01T00:00:00Z"));
        let locked = make("project/new", "2026-01-02T00:00:00Z");
        drop(make("broken", "2026-01-03T00:00:00Z"));
        // What is below a stored run is its own.
        fs::create_dir_all(root.path().join("run/agents")).unwrap();
        fs::write(root.path().join("run").join(MERGED_FILE), "{}").unwrap();
        fs::write(root.path().join("run/agents").join(PLAN_FILE), "{}").unwrap();
        fs::write(root.path().join("broken/plan.json"), "{").unwrap();
        fs::create_dir_all(root.path().join("else/where/deep")).unwrap();
        let listing = list_experiments(root.path());
        assert!(!listing.is_truncated);
        let entries: Vec<(&str, &str)> = listing
            .experiments
            .iter()
            .map(|it| (it.path.strip_prefix(root.path()).unwrap().to_str().unwrap(), &*it.title))
            .collect();
        assert_eq!(entries, [("project/new", "a try"), ("old", "a try"), ("broken", "")]);
        let [new, old, broken] = &listing.experiments[..] else { panic!("three") };
        assert_eq!(new.running_pid, Some(std::process::id() as i32));
        assert_eq!((old.running_pid, old.is_complete, old.blocks), (None, false, 0));
        assert!(broken.problem.as_ref().unwrap().contains("plan.json"));
        let runs = find_directories(root.path()).0.into_iter().filter(|(_, marker)| *marker == MERGED_FILE);
        assert_eq!(runs.map(|(path, _)| path).collect::<Vec<_>>(), [root.path().join("run")]);
        drop(locked);
        // A directory that is an experiment itself.
        assert_eq!(list_experiments(&root.path().join("old")).experiments.len(), 1);
        assert_eq!(list_experiments(Path::new("/no/such/directory")), ExperimentListing::default());
    }

    #[test]
    fn it_stops_at_the_entry_limit() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=ENTRIES_MAX {
            fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        assert!(list_experiments(root.path()).is_truncated);
    }

    #[test]
    fn blocks_with_trials_that_count_are_counted() {
        let trial =
            |block, failed: bool| TrialHead { block, discarded: None, failed: failed.then(String::new) };
        assert_eq!(count_blocks(&[trial(0, false), trial(1, false), trial(1, false), trial(2, true)]), 1);
    }
}
