//! What stands in an experiment's folder besides its trials, and why a folder cannot be used. Not for reading
//! or writing it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use record::experiment::Plan;
use record::facts::HostFacts;
use record::file::ReadError;
use record::run::Weir;
use serde::{Deserialize, Serialize};

use crate::engine::blocks::Changed;

/// What was fixed before the first trial, and where: `plan.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`super::PLAN_SCHEMA`].
    pub schema: String,
    /// Which weir began it.
    pub weir: Weir,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// The machine.
    pub host: HostFacts,
    /// What else is known of the machine and the programs ([`crate::engine::environment`]).
    pub environment: BTreeMap<String, String>,
    /// The plan.
    pub plan: Plan,
}

/// One time that an experiment was run, up to its end or until it was ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// When its first trial began, RFC 3339.
    pub started_at: String,
    /// Which weir ran it.
    pub weir: Weir,
    /// The number of the last trial before it.
    pub after: u32,
    /// Whether it tries again what had failed before.
    pub afresh: bool,
    /// How long its trials took, with everything around them.
    pub took_s: f64,
    /// What of the machine and the programs was other than when the experiment began, in words.
    pub differs: Vec<String>,
    /// What of it was so from the session's beginning on: the block that was open then began anew.
    #[serde(default)]
    pub anew: Vec<String>,
}

impl Session {
    /// What was other from its beginning on, if anything.
    pub(in crate::engine) fn changed(&self) -> Option<Changed> {
        (!self.anew.is_empty()).then(|| Changed { after: self.after, what: self.anew.join("; ") })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Sessions {
    pub(super) schema: String,
    pub(super) sessions: Vec<Session>,
}

/// Why a folder cannot be used. The text says what to do.
#[derive(Debug)]
pub enum FolderError {
    /// Something of this name is there.
    Exists(PathBuf),
    /// It is no experiment's folder.
    NotOne(PathBuf, String),
    /// A process runs it; its number, where it can be told.
    Held(PathBuf, Option<i32>),
    /// What was fixed before the first trial is not what it was: where it differs.
    Edited(PathBuf, Vec<String>),
    /// A file is not what it should be.
    Broken(ReadError),
    /// A file cannot be read.
    Read(ReadError),
    /// The file system refuses.
    Io(String),
}

impl std::fmt::Display for FolderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists(path) => write!(
                f,
                "{path} is there already, and nothing is written over: go on with it by --resume, or \
                 name another folder",
                path = path.display()
            ),
            Self::NotOne(path, why) => {
                write!(f, "{} is no experiment's folder: {why}", path.display())
            }
            Self::Held(path, pid) => {
                let who =
                    pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
                write!(f, "{}: {who} runs this experiment; wait for it, or end it", path.display())
            }
            Self::Edited(path, what) => write!(
                f,
                "{}: the plan is not that of the file any more ({}); put it back, or begin a new \
                 experiment",
                path.display(),
                what.join(", ")
            ),
            Self::Broken(error) => write!(f, "{error}; {}", remedy(error)),
            Self::Read(error) => write!(f, "{error}"),
            Self::Io(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for FolderError {}

impl From<ReadError> for FolderError {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::Io { .. } => Self::Read(error),
            _ => Self::Broken(error),
        }
    }
}

/// What can be done where a file is not what it should be.
fn remedy(error: &ReadError) -> &'static str {
    let (ReadError::Io { path, .. }
    | ReadError::Syntax { path, .. }
    | ReadError::Schema { path, .. }) = error;
    match path.file_name().is_some_and(|name| name == super::EXPERIMENT) {
        true => "remove it: it is made anew of the records of the trials",
        false => {
            "put it back from a copy, or begin a new experiment: the records of its trials are as they were"
        }
    }
}

/// The fields in which two plans differ. Figures that differ by what writing them as text costs are
/// the same.
pub(super) fn differences(one: &Plan, other: &Plan) -> Vec<String> {
    let fields = |plan: &Plan| match serde_json::to_value(plan) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (one, other) = (fields(one), fields(other));
    let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
    names
        .filter(|name| match (one.get(*name), other.get(*name)) {
            (Some(one), Some(other)) => !same(one, other),
            _ => true,
        })
        .cloned()
        .collect()
}

fn same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Number(one), Number(other)) => match (one.as_f64(), other.as_f64()) {
            _ if one == other => true,
            (Some(one), Some(other)) if one.fract() != 0.0 || other.fract() != 0.0 => {
                (one - other).abs() <= 4.0 * f64::EPSILON * one.abs().max(other.abs())
            }
            _ => false,
        },
        (Array(one), Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Object(one), Object(other)) => {
            let known = |(name, one): (&String, _)| other.get(name).is_some_and(|it| same(one, it));
            one.len() == other.len() && one.iter().all(known)
        }
        _ => one == other,
    }
}
