//! Finds experiments below a folder, with what is worth a line of each. Bounded, and only read: an
//! experiment that runs is not disturbed.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use record::experiment::SCHEMA;
use record::trial::Discarded;
use serde::Deserialize;

use super::files::read_record;
use super::{EXPERIMENT, PLAN, PLAN_SCHEMA, lock};

/// The most entries of folders that are looked at.
pub const ENTRIES_MAX: usize = 10_000;
/// How deep it is looked: the folder itself, and two below, for experiments sorted by project.
const DEPTH_MAX: u32 = 3;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The experiments, the newest first.
    pub experiments: Vec<Listed>,
    /// Whether there were more entries than are looked at.
    pub cut: bool,
}

/// One experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its folder.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// What is asked, in a line.
    pub title: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Blocks that count.
    pub blocks: u32,
    /// The first sentence of what came of it; empty: nothing yet.
    pub sentence: String,
    /// Whether it came to its end.
    pub whole: bool,
    /// The process that runs it now.
    pub running: Option<i32>,
    /// Why nothing is known of it, where that is so.
    pub problem: Option<String>,
}

#[derive(Deserialize)]
struct Head {
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
    discarded: Option<Discarded>,
    #[serde(default)]
    failed: Option<String>,
}

/// The experiments below `root`, itself among them. What cannot be looked into is passed over.
#[must_use]
pub fn list(root: &Path) -> Listing {
    let mut listing = Listing::default();
    let mut looked = 0;
    let mut folders = VecDeque::from([(root.to_owned(), 0)]);
    while let Some((folder, depth)) = folders.pop_front() {
        if folder.join(PLAN).is_file() {
            listing.experiments.push(of(folder));
            continue;
        }
        if depth == DEPTH_MAX {
            continue;
        }
        let mut below: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            looked += 1;
            if looked > ENTRIES_MAX {
                listing.cut = true;
                break;
            }
            // Links are not followed: they may lead round in a circle.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below.push(entry.path());
            }
        }
        below.sort_unstable();
        folders.extend(below.into_iter().map(|path| (path, depth + 1)));
    }
    let newest = |one: &Listed, other: &Listed| {
        other.started_at.cmp(&one.started_at).then_with(|| one.path.cmp(&other.path))
    };
    listing.experiments.sort_by(newest);
    listing
}

fn of(path: PathBuf) -> Listed {
    let running = lock::holder(&path);
    let start = match read_record::<StartHead>(&path.join(PLAN), PLAN_SCHEMA) {
        Ok(start) => start,
        Err(error) => {
            let problem = Some(error.to_string());
            return Listed { path, running, problem, ..Listed::default() };
        }
    };
    let StartHead { started_at, plan: PlanHead { name, title } } = start;
    let listed = Listed { running, name, title, started_at, ..Listed::default() };
    let concluded = path.join(EXPERIMENT);
    if !concluded.exists() {
        return Listed { path, ..listed };
    }
    match read_record::<Head>(&concluded, SCHEMA) {
        Ok(head) => Listed {
            blocks: blocks(&head.trials),
            sentence: head.summary.into_iter().next().unwrap_or_default(),
            whole: !head.partial,
            name: head.plan.name,
            title: head.plan.title,
            path,
            ..listed
        },
        Err(error) => Listed { path, problem: Some(error.to_string()), ..listed },
    }
}

fn blocks(trials: &[TrialHead]) -> u32 {
    let counts = |it: &&TrialHead| it.block > 0 && it.discarded.is_none() && it.failed.is_none();
    let mut blocks: Vec<u32> = trials.iter().filter(counts).map(|it| it.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.len() as u32
}

#[cfg(test)]
mod tests {
    use super::super::super::simulated::{plan, start};
    use super::super::Folder;
    use super::*;

    #[test]
    fn experiments_are_found_newest_first_and_broken_ones_too() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, at: &str| {
            let mut start = start(plan(&["a", "b"], &["x"]));
            start.started_at = at.to_owned();
            Folder::create(&root.path().join(name), start).unwrap()
        };
        drop(make("old", "2026-01-01T00:00:00Z"));
        let held = make("project/new", "2026-01-02T00:00:00Z");
        drop(make("broken", "2026-01-03T00:00:00Z"));
        fs::write(root.path().join("broken/plan.json"), "{").unwrap();
        fs::create_dir_all(root.path().join("else/where/deep")).unwrap();
        let listing = list(root.path());
        assert!(!listing.cut);
        let found: Vec<(&str, &str)> = listing
            .experiments
            .iter()
            .map(|it| (it.path.strip_prefix(root.path()).unwrap().to_str().unwrap(), &*it.title))
            .collect();
        assert_eq!(found, [("project/new", "a try"), ("old", "a try"), ("broken", "")]);
        let [new, old, broken] = &listing.experiments[..] else { panic!("three") };
        assert_eq!(new.running, Some(std::process::id() as i32));
        assert_eq!((old.running, old.whole, old.blocks), (None, false, 0));
        assert!(broken.problem.as_ref().unwrap().contains("plan.json"));
        drop(held);
        // A folder that is one itself.
        assert_eq!(list(&root.path().join("old")).experiments.len(), 1);
        assert_eq!(list(Path::new("/no/such/folder")), Listing::default());
    }

    #[test]
    fn it_stops_looking() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=ENTRIES_MAX {
            fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        assert!(list(root.path()).cut);
    }

    #[test]
    fn blocks_with_trials_that_count_are_counted() {
        let trial = |block, failed: bool| TrialHead {
            block,
            discarded: None,
            failed: failed.then(String::new),
        };
        assert_eq!(blocks(&[trial(0, false), trial(1, false), trial(1, false), trial(2, true)]), 1);
    }
}
