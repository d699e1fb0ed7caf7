//! The experiments below a directory, each summarised in a line. Does not run or judge them.

use std::fs;
use std::path::{Path, PathBuf};

use record::experiment::{ComparisonOutcome, Experiment, ExperimentPlan, ONLY_LOAD, SCHEMA};
use serde::Serialize;

use crate::engine::experiment_dir::{
    CONCLUSIONS_FILE, ExperimentEntry, ExperimentStart, PLAN_FILE, PLAN_SCHEMA, TRIALS_DIR, list_experiments,
};

/// Maximum depth of experiments below a directory, the same as in `list`.
const DEPTH_MAX: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExperimentState {
    /// Ended by its stopping rule.
    Done,
    /// Stopped by the user, and judged.
    Partial,
    Running,
    /// Ended without a judgement: killed.
    #[default]
    Unfinished,
}

impl ExperimentState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Running => "running",
            Self::Unfinished => "unfinished",
        }
    }
}

/// One experiment, summarised in a line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ExperimentRow {
    pub directory: String,
    pub name: String,
    pub title: String,
    pub started_at: String,
    /// Arms, except the one that shows the noise.
    pub arms: Vec<String>,
    pub loads: usize,
    /// Number of counted blocks; while it runs, the current block.
    pub blocks: u32,
    pub blocks_min: u32,
    pub blocks_max: u32,
    pub trials: usize,
    pub state: ExperimentState,
    /// First sentence of the result.
    pub conclusion: String,
    /// Outcome of each arm in the primary metric.
    pub outcomes: Vec<ArmOutcome>,
}

/// Outcome of one arm under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmOutcome {
    /// Name of the arm, and of the load where there are several.
    pub label: String,
    /// Trial outcome compared with the baseline.
    pub outcome: ComparisonOutcome,
    pub word: &'static str,
    pub ratio: Option<f64>,
}

/// Returns the experiments below a directory, newest first, and whether the listing was truncated.
pub fn experiment_rows(root: &Path) -> (Vec<ExperimentRow>, bool) {
    let listing = list_experiments(root);
    let rows = listing.experiments.iter().map(|listed| experiment_row(root, listed));
    (rows.collect(), listing.is_truncated)
}

fn experiment_row(root: &Path, listed: &ExperimentEntry) -> ExperimentRow {
    let relative = listed.path.strip_prefix(root).unwrap_or(&listed.path);
    let is_running = listed.running_pid.is_some();
    let mut row = ExperimentRow {
        directory: relative.to_string_lossy().into_owned(),
        name: listed.name.clone(),
        title: listed.title.clone(),
        started_at: listed.started_at.clone(),
        blocks: listed.blocks,
        state: match (is_running, listed.is_complete, listed.summary.is_empty()) {
            (true, ..) => ExperimentState::Running,
            (false, true, _) => ExperimentState::Done,
            (false, false, false) => ExperimentState::Partial,
            (false, false, true) => ExperimentState::Unfinished,
        },
        conclusion: listed.problem.clone().unwrap_or_else(|| listed.summary.clone()),
        ..ExperimentRow::default()
    };
    if let Ok(directory) =
        record::file::read_record::<Experiment>(&listed.path.join(CONCLUSIONS_FILE), SCHEMA)
    {
        fill_plan(&mut row, &directory.plan);
        row.trials = directory.trials.len();
        row.outcomes = arm_outcomes(&directory);
    } else if let Ok(row_of_plan) = read_unfinished(&listed.path) {
        row = ExperimentRow {
            directory: row.directory,
            state: row.state,
            conclusion: row.conclusion,
            ..row_of_plan
        };
    }
    if is_running {
        // A visible intermediate result would tempt the user to stop the experiment at it.
        row.conclusion = String::new();
        row.outcomes = Vec::new();
    }
    row
}

/// Summarises an experiment without reading its trials: their file names show its progress. This is
/// called often while the experiment runs, and must not disturb it.
///
/// # Errors
/// Its plan cannot be read.
pub fn read_unfinished(path: &Path) -> Result<ExperimentRow, record::file::ReadError> {
    let start: ExperimentStart = record::file::read_record(&path.join(PLAN_FILE), PLAN_SCHEMA)?;
    let mut row = ExperimentRow {
        name: start.plan.name.clone(),
        title: start.plan.title.clone(),
        started_at: start.started_at,
        ..ExperimentRow::default()
    };
    fill_plan(&mut row, &start.plan);
    for entry in fs::read_dir(path.join(TRIALS_DIR)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") && !name.starts_with('.') {
            row.trials += 1;
            row.blocks = row.blocks.max(block_of(&name).unwrap_or(0));
        }
    }
    Ok(row)
}

/// Returns the block of a trial from its file name: `0007-b02-…`.
fn block_of(name: &str) -> Option<u32> {
    name.split('-').nth(1)?.strip_prefix('b')?.parse().ok()
}

fn fill_plan(row: &mut ExperimentRow, plan: &ExperimentPlan) {
    let arms = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    row.arms = arms.map(|arm| arm.name.clone()).collect();
    row.loads = plan.loads.len();
    (row.blocks_min, row.blocks_max) = (plan.blocks_min, plan.blocks_max);
}

/// Returns the outcome of each arm in the primary metric.
fn arm_outcomes(experiment: &Experiment) -> Vec<ArmOutcome> {
    let comparisons =
        experiment.comparisons.iter().filter(|comparison| comparison.primary && !comparison.noise);
    let unit = experiment.plan.primary().map_or("", |metric| metric.unit.as_str());
    let outcomes = comparisons.map(|comparison| ArmOutcome {
        label: match comparison.load == ONLY_LOAD {
            true => comparison.arm.clone(),
            false => format!("{} under {}", comparison.arm, comparison.load),
        },
        outcome: comparison.outcome,
        word: comparison.outcome.as_str_for_unit(unit),
        ratio: comparison.ratio,
    });
    outcomes.collect()
}

/// Returns the experiment below `root` that the first of `segments` name, and the number of those
/// segments.
pub fn find_experiment(root: &Path, segments: &[&str]) -> Option<(PathBuf, usize)> {
    find_directory(root, segments, PLAN_FILE)
}

/// Returns the directory below `root` that the first of `segments` name, and the number of those
/// segments. It must have the file `marker`, and be no link out of the root.
pub fn find_directory(root: &Path, segments: &[&str], marker: &str) -> Option<(PathBuf, usize)> {
    let is_name = |segment: &&str| {
        !segment.is_empty() && !segment.starts_with('.') && !segment.contains(['/', '\\', '\0'])
    };
    let names = segments.iter().take_while(|segment| is_name(segment)).count().min(DEPTH_MAX);
    let canonical = root.canonicalize().ok()?;
    let mut path = root.to_owned();
    for (at, segment) in segments[..names].iter().enumerate() {
        path.push(segment);
        if path.join(marker).is_file() {
            let inside = path.canonicalize().is_ok_and(|path| path.starts_with(&canonical));
            return inside.then_some((path, at + 1));
        }
    }
    None
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
            fs::write(outer.path().join(name).join(PLAN_FILE), "{}").unwrap();
        }
        symlink(outer.path().join("elsewhere"), root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        let matched_parts = |parts: &[&str]| find_experiment(&root, parts).map(|(_, names)| names);
        assert_eq!(matched_parts(&["a", ""]), Some(1));
        assert_eq!(matched_parts(&["a", "trials", "x.json"]), Some(1));
        assert_eq!(matched_parts(&["b", "c", ""]), Some(2));
        for parts in [&["b"][..], &[""], &[], &["..", "elsewhere"], &["link"], &["up", "elsewhere"], &["."]] {
            assert_eq!(matched_parts(parts), None, "{parts:?}");
        }
    }

    #[test]
    fn a_block_is_known_by_its_file() {
        assert_eq!(block_of("0007-b02-a-load.json"), Some(2));
        assert_eq!((block_of("x"), block_of("0001-x-a")), (None, None));
    }
}
