//! Records in an experiment's directory besides its trials, and reasons why a directory
//! cannot be used. Not for reading or writing it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use record::experiment::ExperimentPlan;
use record::facts::HostFacts;
use record::file::ReadError;
use record::run::WeirVersion;
use serde::{Deserialize, Serialize};

use crate::engine::blocks::EnvironmentChange;
use crate::scenario::keys::bound_key;

/// Name of the file with everything that was fixed before the first trial ([`ExperimentStart`]).
pub const PLAN_FILE: &str = "plan.json";
pub const CONCLUSIONS_FILE: &str = "experiment.json";
/// Schema of [`ExperimentStart`].
pub const PLAN_SCHEMA: &str = "weir.plan/1";

/// Everything that was fixed before the first trial: `plan.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentStart {
    /// Schema, [`PLAN_SCHEMA`].
    pub schema: String,
    pub weir: WeirVersion,
    pub command: Vec<String>,
    /// Time of the start, RFC 3339.
    pub started_at: String,
    pub host: HostFacts,
    /// Further facts about the machine and the programs ([`crate::engine::environment`]).
    pub environment: BTreeMap<String, String>,
    pub plan: ExperimentPlan,
}

/// One session of an experiment: from a start or resume to its end or interruption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSession {
    /// Time at which its first trial began, RFC 3339.
    pub started_at: String,
    pub weir: WeirVersion,
    /// Number of the last trial before the session.
    pub after_trial: u32,
    /// True if it goes on after failed trials, or after too many reruns.
    pub retries_failed: bool,
    /// Duration of the session's trials, with everything around them.
    pub duration_s: f64,
    /// Differences of the machine and the programs from the experiment's start.
    pub differences: Vec<String>,
    /// Differences that existed from the session's beginning on. They restarted the block that was
    /// open then.
    #[serde(default)]
    pub changed_at_start: Vec<String>,
    /// Settings of the plan that the user changed for this session and the later ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settings: Option<ChangedSettings>,
}

/// Settings of a plan that a resume may change. Absent ones stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangedSettings {
    /// Minimum and maximum number of blocks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocks: Option<(u32, u32)>,
    /// Maximum number of reruns, as a fraction of the blocks' groups.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reruns_max_fraction: Option<f64>,
    /// Bounds of covariates; `None` removes a bound.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub discard: BTreeMap<String, Option<f64>>,
}

impl ChangedSettings {
    pub fn apply(&self, plan: &mut ExperimentPlan) {
        (plan.blocks_min, plan.blocks_max) = self.blocks.unwrap_or((plan.blocks_min, plan.blocks_max));
        plan.reruns_max_fraction = self.reruns_max_fraction.unwrap_or(plan.reruns_max_fraction);
        for (covariate, bound) in &self.discard {
            match bound {
                Some(bound) => plan.discard.insert(covariate.clone(), *bound),
                None => plan.discard.remove(covariate),
            };
        }
    }

    /// Describes the settings as flags: `--blocks 4..60 --discard steal=off`.
    pub fn flags(&self) -> String {
        let mut flags = Vec::new();
        flags.extend(self.blocks.map(|(min, max)| format!("--blocks {min}..{max}")));
        flags.extend(self.reruns_max_fraction.map(|fraction| format!("--reruns {}%", fraction * 100.0)));
        for (covariate, bound) in &self.discard {
            let bound = bound.map_or_else(|| "off".to_owned(), |bound| bound.to_string());
            flags.push(format!("--discard {}={bound}", bound_key(covariate)));
        }
        flags.join(" ")
    }
}

impl RunSession {
    pub(in crate::engine) fn environment_change(&self) -> Option<EnvironmentChange> {
        (!self.changed_at_start.is_empty()).then(|| EnvironmentChange {
            after_trial: self.after_trial,
            description: self.changed_at_start.join("; "),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct SessionsRecord {
    pub(super) schema: String,
    pub(super) sessions: Vec<RunSession>,
}

/// Reason why a directory cannot be used. The text states a remedy.
#[derive(Debug)]
pub enum ExperimentDirError {
    /// A file or directory with this name exists.
    Exists(PathBuf),
    NotAnExperiment(PathBuf, String),
    /// A process runs it; its PID, if known.
    InUse(PathBuf, Option<i32>),
    /// The stored plan was changed; the fields that differ.
    PlanChanged(PathBuf, Vec<String>),
    Invalid(ReadError),
    /// A file cannot be read.
    Read(ReadError),
    Io(String),
}

impl std::fmt::Display for ExperimentDirError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(path) => write!(
                f,
                "{path} already exists: continue the experiment with --resume, or choose another \
                 directory",
                path = path.display()
            ),
            Self::NotAnExperiment(path, why) => {
                write!(f, "{} is not an experiment directory: {why}", path.display())
            }
            Self::InUse(path, pid) => {
                let owner = pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
                write!(f, "{}: {owner} runs this experiment; wait for its end, or stop it", path.display())
            }
            Self::PlanChanged(path, what) => write!(
                f,
                "{}: the plan no longer matches the file ({}); restore the file, or start a new \
                 experiment",
                path.display(),
                what.join(", ")
            ),
            Self::Invalid(error) => write!(f, "{error}; {}", remedy(error)),
            Self::Read(error) => write!(f, "{error}"),
            Self::Io(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ExperimentDirError {}

impl From<ReadError> for ExperimentDirError {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Io { .. } => Self::Read(error),
            _ => Self::Invalid(error),
        }
    }
}

/// Returns the remedy for a file with invalid contents.
fn remedy(error: &ReadError) -> &'static str {
    let (ReadError::Io { path, .. }
    | ReadError::Syntax { path, .. }
    | ReadError::Foreign { path, .. }
    | ReadError::Schema { path, .. }) = error;
    match path.file_name().is_some_and(|name| name == CONCLUSIONS_FILE) {
        true => "remove it: it is generated again from the records of the trials",
        false => "restore it from a copy, or start a new experiment: the records of its trials are unchanged",
    }
}

/// Returns the fields in which two plans differ. Rounding errors of numbers in text form are no
/// difference.
pub(super) fn plan_differences(left: &ExperimentPlan, right: &ExperimentPlan) -> Vec<String> {
    let fields = |plan: &ExperimentPlan| match serde_json::to_value(plan) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (left, right) = (fields(left), fields(right));
    let names = left.keys().chain(right.keys().filter(|name| !left.contains_key(*name)));
    names
        .filter(|name| match (left.get(*name), right.get(*name)) {
            (Some(left), Some(right)) => !is_same_value(left, right),
            _ => true,
        })
        .cloned()
        .collect()
}

fn is_same_value(left: &serde_json::Value, right: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (left, right) {
        (Number(left), Number(right)) => match (left.as_f64(), right.as_f64()) {
            _ if left == right => true,
            (Some(left), Some(right)) if left.fract() != 0.0 || right.fract() != 0.0 => {
                (left - right).abs() <= 4.0 * f64::EPSILON * left.abs().max(right.abs())
            }
            _ => false,
        },
        (Array(left), Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| is_same_value(left, right))
        }
        (Object(left), Object(right)) => {
            let is_same =
                |(name, value): (&String, _)| right.get(name).is_some_and(|it| is_same_value(value, it));
            left.len() == right.len() && left.iter().all(is_same)
        }
        _ => left == right,
    }
}
