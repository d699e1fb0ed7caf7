//! The experiments that lie in a folder, and what each of them says in a line. Not for running or judging
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use lab::engine::folder::{EXPERIMENT, Folder, FolderError, Listed, PLAN, TRIALS, list};
use record::experiment::{Experiment, ONLY_LOAD, Outcome, Plan, SCHEMA};
use record::problem::Problem;
use serde::Serialize;

use crate::exit::Failure;
use crate::flags::Typed;

/// Where experiments are, if nothing else is said.
pub(crate) const FOLDER: &str = "weir-lab";
/// How deep below a folder experiments are, at the most: as [`list`] looks for them.
const DEPTH_MAX: usize = 3;

/// How far an experiment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Its rule ended it.
    Done,
    /// Ended by hand, and judged.
    Partial,
    /// A process is at it.
    Running,
    /// Ended without a judgement: killed.
    #[default]
    Begun,
}

impl State {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Running => "running",
            Self::Begun => "begun",
        }
    }
}

/// One experiment in a line.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    /// The name of its folder.
    pub(crate) folder: String,
    /// Its own name.
    pub(crate) name: String,
    /// What is asked.
    pub(crate) title: String,
    /// When it began.
    pub(crate) started_at: String,
    /// Its arms, the one that shows the noise left out.
    pub(crate) arms: Vec<String>,
    /// How many loads.
    pub(crate) loads: usize,
    /// Blocks that count; of one that runs, the block that it is at.
    pub(crate) blocks: u32,
    /// Fewest and most blocks.
    pub(crate) blocks_min: u32,
    /// See there.
    pub(crate) blocks_max: u32,
    /// Trials that were run.
    pub(crate) trials: usize,
    /// How far it is.
    pub(crate) state: State,
    /// What came of it: its first sentence.
    pub(crate) answer: String,
    /// What each arm is in the metric that decides.
    pub(crate) outcomes: Vec<Said>,
}

/// What is said of one arm under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Said {
    /// The arm, and the load where there are several.
    pub(crate) label: String,
    /// What it is.
    pub(crate) outcome: Outcome,
    /// The same in the words of its metric.
    pub(crate) word: &'static str,
    /// Its ratio to the baseline.
    pub(crate) ratio: Option<f64>,
}

/// The folder that was named, or where experiments are if none was.
pub(super) fn folder(typed: Typed<'_>) -> Result<PathBuf, Vec<Problem>> {
    let named = typed.values();
    let folder = match named.as_slice() {
        [] => return Ok(PathBuf::from(FOLDER)),
        [one] => PathBuf::from(one),
        _ => return Err(vec![Problem::new("FOLDER", "give one folder")]),
    };
    if folder.is_dir() {
        return Ok(folder);
    }
    Err(vec![Problem::new("FOLDER", format!("{} is no folder", folder.display()))])
}

/// Why a folder cannot be used: the fault of who named it, or not.
pub(super) fn failure(error: FolderError) -> Failure {
    match error {
        FolderError::Exists(_) => vec![Problem::new("--folder", error.to_string())].into(),
        FolderError::NotOne(..) | FolderError::Edited(..) | FolderError::Broken(..) => {
            vec![Problem::new("FOLDER", error.to_string())].into()
        }
        FolderError::Held(..) | FolderError::Read(_) | FolderError::Io(_) => {
            Failure::CannotRun(error.to_string())
        }
    }
}

/// The experiments below a folder, the newest first; and whether there are more than are looked at.
pub(super) fn rows(root: &Path) -> (Vec<Row>, bool) {
    let listing = list(root);
    let rows = listing.experiments.iter().map(|listed| row(root, listed));
    (rows.collect(), listing.cut)
}

fn row(root: &Path, listed: &Listed) -> Row {
    let below = listed.path.strip_prefix(root).unwrap_or(&listed.path);
    let is_running = listed.running.is_some();
    let mut row = Row {
        folder: below.to_string_lossy().into_owned(),
        name: listed.name.clone(),
        title: listed.title.clone(),
        started_at: listed.started_at.clone(),
        blocks: listed.blocks,
        state: match (is_running, listed.whole, listed.sentence.is_empty()) {
            (true, ..) => State::Running,
            (false, true, _) => State::Done,
            (false, false, false) => State::Partial,
            (false, false, true) => State::Begun,
        },
        answer: listed.problem.clone().unwrap_or_else(|| listed.sentence.clone()),
        ..Row::default()
    };
    if let Ok(folder) = record::file::read::<Experiment>(&listed.path.join(EXPERIMENT), SCHEMA) {
        planned(&mut row, &folder.plan);
        row.trials = folder.trials.len();
        row.outcomes = said(&folder);
    } else if let Ok(row_of_plan) = begun(&listed.path) {
        row = Row { folder: row.folder, state: row.state, answer: row.answer, ..row_of_plan };
    }
    if is_running {
        // Who sees a result before the end is tempted to stop at it.
        row.answer = String::new();
        row.outcomes = Vec::new();
    }
    row
}

/// What is known of an experiment without reading its trials: how far it is by their names. It is asked
/// often while the experiment runs, and must not disturb it.
pub(super) fn begun(path: &Path) -> Result<Row, record::file::ReadError> {
    let schema = lab::engine::folder::PLAN_SCHEMA;
    let start: lab::engine::folder::Start = record::file::read(&path.join(PLAN), schema)?;
    let mut row = Row {
        name: start.plan.name.clone(),
        title: start.plan.title.clone(),
        started_at: start.started_at,
        ..Row::default()
    };
    planned(&mut row, &start.plan);
    for entry in fs::read_dir(path.join(TRIALS)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") && !name.starts_with('.') {
            row.trials += 1;
            row.blocks = row.blocks.max(block_of(&name).unwrap_or(0));
        }
    }
    Ok(row)
}

/// The block of a trial, by its file's name: `0007-b02-…`.
fn block_of(name: &str) -> Option<u32> {
    name.split('-').nth(1)?.strip_prefix('b')?.parse().ok()
}

fn planned(row: &mut Row, plan: &Plan) {
    let own = plan.arms.iter().filter(|arm| arm.again.is_none());
    row.arms = own.map(|arm| arm.name.clone()).collect();
    row.loads = plan.loads.len();
    (row.blocks_min, row.blocks_max) = (plan.blocks_min, plan.blocks_max);
}

/// What is said of each arm in the metric that decides.
fn said(experiment: &Experiment) -> Vec<Said> {
    let compared = experiment.comparisons.iter().filter(|one| one.primary && !one.noise);
    let unit = experiment.plan.primary().map_or("", |metric| metric.unit.as_str());
    let said = compared.map(|one| Said {
        label: match one.load == ONLY_LOAD {
            true => one.arm.clone(),
            false => format!("{} under {}", one.arm, one.load),
        },
        outcome: one.outcome,
        word: one.outcome.of(unit),
        ratio: one.ratio,
    });
    said.collect()
}

/// The experiment below `root` that the first of `parts` name, and how many of them do: a folder with a
/// plan, and no link out of the root.
pub(super) fn find(root: &Path, parts: &[&str]) -> Option<(PathBuf, usize)> {
    let is_name = |part: &&str| {
        !part.is_empty() && !part.starts_with('.') && !part.contains(['/', '\\', '\0'])
    };
    let names = parts.iter().take_while(|part| is_name(part)).count().min(DEPTH_MAX);
    let canonical = root.canonicalize().ok()?;
    let mut path = root.to_owned();
    for (at, part) in parts[..names].iter().enumerate() {
        path.push(part);
        if path.join(PLAN).is_file() {
            let inside = path.canonicalize().is_ok_and(|path| path.starts_with(&canonical));
            return inside.then_some((path, at + 1));
        }
    }
    None
}

/// Opens an experiment's folder to look at it.
pub(super) fn open(path: &Path) -> Result<Folder, Failure> {
    Folder::read(path).map_err(failure)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_experiment_is_found_by_names_alone() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        for name in ["root/a", "root/b/c", "elsewhere"] {
            fs::create_dir_all(outer.path().join(name)).unwrap();
            fs::write(outer.path().join(name).join(PLAN), "{}").unwrap();
        }
        symlink(outer.path().join("elsewhere"), root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        let found = |parts: &[&str]| find(&root, parts).map(|(_, names)| names);
        assert_eq!(found(&["a", ""]), Some(1));
        assert_eq!(found(&["a", "trials", "x.json"]), Some(1));
        assert_eq!(found(&["b", "c", ""]), Some(2));
        for parts in
            [&["b"][..], &[""], &[], &["..", "elsewhere"], &["link"], &["up", "elsewhere"], &["."]]
        {
            assert_eq!(found(parts), None, "{parts:?}");
        }
    }

    #[test]
    fn a_block_is_known_by_its_file() {
        assert_eq!(block_of("0007-b02-a-load.json"), Some(2));
        assert_eq!((block_of("x"), block_of("0001-x-a")), (None, None));
    }
}
