//! Journal of an apply: its lines, and the decisions about them. Pure: files are read and written through
//! `host::journal`, and values through `host::tuning`.
//!
//! A journal is complete before the first setting is written: a header, and one line with the old and the new
//! value of each setting. A last line confirms that all values were written and read back. So whoever finds a
//! journal later knows every value to restore, wherever the apply was interrupted.

use std::path::{Path, PathBuf};

use host::journal::ProcessIdentity;
use serde::{Deserialize, Serialize};

use crate::apply::{find_file, is_persistent_text};
use crate::judge::same_value;

pub const SCHEMA: &str = "weir.tune-journal/1";
/// Ending of the name of a journal.
pub const EXTENSION: &str = "journal";
const VALUE_BYTES_MAX: usize = 4096;

/// System whose settings were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Host,
    /// A network namespace of `ip netns`.
    Namespace {
        name: String,
        /// Its inode: another namespace of the same name is not the target.
        inode: u64,
    },
}

impl Target {
    pub fn description(&self) -> String {
        match self {
            Self::Host => "this host".to_owned(),
            Self::Namespace { name, .. } => format!("network namespace {name}"),
        }
    }
}

/// Event that ends an apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndsWith {
    /// `weir tune revert`.
    Revert,
    /// A time, RFC 3339, or the end of the process before it.
    Time {
        at: String,
    },
    Command {
        command: Vec<String>,
    },
}

/// First line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    pub schema: String,
    pub owner: ProcessIdentity,
    /// PID namespace of the owner; journals of older versions have none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid_namespace: Option<String>,
    /// Boot of the machine; after another boot there is nothing to revert.
    pub boot_id: String,
    /// Time of the apply, RFC 3339.
    pub started_at: String,
    pub requested: Vec<String>,
    pub target: Target,
    pub ends_with: EndsWith,
    /// File of `--persist`, if it was written; a revert removes it if it has this text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub persisted: Option<PersistedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistedFile {
    pub path: PathBuf,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledChange {
    pub name: String,
    pub path: PathBuf,
    pub old: String,
    pub new: String,
    /// True if the kernel makes this change with the one before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows: bool,
}

/// Line after the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum JournalLine {
    /// Change, before it is made.
    Change(JournaledChange),
    /// Confirmation, with the values read back.
    Applied { values: Vec<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TuneJournal {
    pub header: JournalHeader,
    /// Changes, in the order of writing.
    pub changes: Vec<JournaledChange>,
    /// Values read back after the last write; `None` if the apply was interrupted.
    pub applied: Option<Vec<String>>,
}

/// Decision about a journal that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalAction {
    /// The apply is in force, or its process is at it.
    Keep,
    /// Restore the old values.
    Revert,
    /// Nothing is left of it: another boot, or a removed namespace.
    Discard,
}

/// Decision about one setting of a revert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevertStep {
    Write,
    AlreadyReverted,
    /// Somebody changed it meanwhile: leave it.
    ChangedByOther,
    Missing,
}

impl TuneJournal {
    /// Creates a journal for an apply that is about to start.
    #[must_use]
    pub fn new(header: JournalHeader, changes: Vec<JournaledChange>) -> Self {
        Self { header, changes, applied: None }
    }

    /// Returns the text to store before the first write.
    pub fn initial_text(&self) -> String {
        let mut text = to_line(&self.header);
        for change in &self.changes {
            text.push_str(&to_line(&JournalLine::Change(change.clone())));
        }
        text
    }

    /// Returns the line to store after the last write.
    pub fn applied_text(values: &[String]) -> String {
        to_line(&JournalLine::Applied { values: values.to_vec() })
    }

    /// Parses the journal of `owner`. An incomplete last line is ignored: nothing was written for it. `None` if
    /// there is no complete header.
    ///
    /// # Errors
    /// Line, from 1, that no apply of this owner writes, and the reason.
    pub fn parse(text: &str, owner: ProcessIdentity) -> Result<Option<Self>, (usize, LineError)> {
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let Some(first) = lines.next() else { return Ok(None) };
        let syntax = |error: serde_json::Error| LineError::Syntax(error.to_string());
        let header: JournalHeader = serde_json::from_str(first).map_err(|error| (1, syntax(error)))?;
        check_header(&header, owner).map_err(|reason| (1, reason))?;
        let mut journal = Self::new(header, Vec::new());
        for (index, line) in lines.enumerate() {
            let at = |reason| (index + 2, reason);
            match serde_json::from_str(line).map_err(syntax).map_err(at)? {
                JournalLine::Change(change) => {
                    check_change(&change).map_err(at)?;
                    journal.changes.push(change);
                }
                JournalLine::Applied { values } => journal.applied = Some(values),
            }
        }
        Ok(Some(journal))
    }

    /// Decides about a journal that a start of weir finds.
    pub fn action(&self, owner_is_alive: bool, boot_id: &str, target_exists: bool) -> JournalAction {
        if self.header.boot_id != boot_id || !target_exists {
            return JournalAction::Discard;
        }
        match (&self.header.ends_with, &self.applied) {
            _ if owner_is_alive => JournalAction::Keep,
            (EndsWith::Revert, Some(_)) => JournalAction::Keep,
            _ => JournalAction::Revert,
        }
    }

    /// Decides about the setting at `index`. `current` is its value; `force` overrides other people's changes.
    pub fn revert_step(&self, index: usize, current: Option<&str>, force: bool) -> RevertStep {
        let (Some(change), Some(current)) = (self.changes.get(index), current) else {
            return RevertStep::Missing;
        };
        if same_value(current, &change.old) {
            return RevertStep::AlreadyReverted;
        }
        // Between the write and the read-back the kernel may have adjusted the value.
        let is_interrupted = self.applied.is_none();
        let applied = self.applied.as_ref().and_then(|values| values.get(index));
        let is_ours = applied.is_some_and(|applied| same_value(applied, current));
        if is_ours || is_interrupted || force { RevertStep::Write } else { RevertStep::ChangedByOther }
    }
}

/// Reason why a line of a journal is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is not JSON, or not of this form.
    #[error("not a line of a journal: {0}")]
    Syntax(String),
    #[error("the schema is '{0}', and this weir reads {SCHEMA}")]
    Schema(String),
    /// The header names another process than the file.
    #[error("the header names another process than the name of the file")]
    OtherOwner,
    /// The namespace has no name of `ip netns`.
    #[error("'{0}' is no name of a network namespace")]
    Namespace(String),
    /// The file of `--persist` is not written by weir.
    #[error("{path} has no text of weir tune apply --persist", path = .0.display())]
    Persisted(PathBuf),
    /// Weir does not write the setting.
    #[error("{name} is no setting that weir writes: {reason}")]
    Setting { name: String, reason: String },
    /// The file is not that of the setting.
    #[error("{path} is not the file of {name}", path = .path.display())]
    OtherFile { name: String, path: PathBuf },
    /// A value has several lines, or is too long.
    #[error("a value of {0} is not one line of text")]
    Value(String),
}

/// Returns whether a text can be a name of `ip netns`.
pub fn is_namespace_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with(['.', '-'])
}

fn check_header(header: &JournalHeader, owner: ProcessIdentity) -> Result<(), LineError> {
    if header.schema != SCHEMA {
        return Err(LineError::Schema(header.schema.clone()));
    }
    if header.owner != owner {
        return Err(LineError::OtherOwner);
    }
    if let Target::Namespace { name, .. } = &header.target
        && !is_namespace_name(name)
    {
        return Err(LineError::Namespace(name.clone()));
    }
    match &header.persisted {
        Some(file) if !file.path.is_absolute() || !is_persistent_text(&file.text) => {
            Err(LineError::Persisted(file.path.clone()))
        }
        _ => Ok(()),
    }
}

fn check_change(change: &JournaledChange) -> Result<(), LineError> {
    let name = || change.name.clone();
    let (_, file) = find_file(&change.name)
        .map_err(|reason| LineError::Setting { name: name(), reason: reason.to_string() })?;
    if file != change.path {
        return Err(LineError::OtherFile { name: name(), path: change.path.clone() });
    }
    let is_line = |value: &String| value.len() <= VALUE_BYTES_MAX && !value.contains(['\n', '\0']);
    match is_line(&change.old) && is_line(&change.new) {
        true => Ok(()),
        false => Err(LineError::Value(name())),
    }
}

pub fn owner_from_name(name: &str) -> Option<ProcessIdentity> {
    ProcessIdentity::from_file_stem(Path::new(name).file_stem()?.to_str()?)
}

fn to_line(value: &impl Serialize) -> String {
    // Strings, numbers and enums only: serialization has no error.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
