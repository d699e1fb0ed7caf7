//! The experiments that lie in a folder, and what each of them says in a line. Not for running or judging
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use record::experiment::{Experiment, Outcome, Plan, SCHEMA};
use serde::Serialize;

use crate::output::experiment::blocks;

/// Where experiments are, if nothing else is said.
pub(crate) const FOLDER: &str = "weir-lab";
/// What is listed of one folder: the newest.
const LISTED_MAX: usize = 1000;

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
    /// Blocks that count.
    pub(crate) blocks: usize,
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
    /// Its ratio to the baseline.
    pub(crate) ratio: Option<f64>,
}
