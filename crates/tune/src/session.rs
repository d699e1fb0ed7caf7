//! Execution of an apply and of a revert: journal, writes, read-back. The decisions are those of
//! [`crate::journal`].

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use host::journal::{JournalFile, LockedJournal, ProcessIdentity, boot_id, list};
use host::sandbox::namespace::{netns_path, run_in_netns};
use host::tuning::{ObservedValue, read_choice, write_value};

use crate::apply::ApplyPlan;
use crate::journal::{
    EXTENSION, EndsWith, JournalAction, JournalHeader, JournaledChange, RevertStep, SCHEMA, Target,
    TuneJournal,
};
use crate::judge::same_value;

/// Point of an apply, for tests that interrupt it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyStep {
    /// Nothing was written.
    Start,
    /// The journal is on the disk, and no setting was written.
    Journaled,
    /// The setting at this position was written, and not read back.
    Written(usize),
    /// All settings were read back; the journal does not confirm it yet.
    Verified,
    /// The journal confirms all values.
    Confirmed,
}

/// Step of an apply that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyFault {
    /// The journal cannot be written.
    #[error("{0}")]
    Journal(#[from] io::Error),
    /// Another process changed the setting after the plan was made.
    #[error("{0}: changed by somebody else meanwhile")]
    ChangedMeanwhile(String),
    /// The kernel refused the value.
    #[error("{name}: {source}")]
    Write {
        /// Name of the setting.
        name: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel keeps another value than the written one.
    #[error("{name}: {written} was written, and {value} is in force")]
    NotInForce {
        /// Name of the setting.
        name: String,
        /// Written value.
        written: String,
        /// Value that was read back.
        value: String,
    },
}

/// Reason why an apply failed. Settings that were written have their old values again, unless `not_restored`
/// names them.
#[derive(Debug)]
pub struct ApplyError {
    /// Reason.
    pub reason: ApplyFault,
    /// Settings that could not be restored; the journal keeps them.
    pub not_restored: Vec<String>,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if self.not_restored.is_empty() {
            return Ok(());
        }
        write!(f, "; not restored: {}", self.not_restored.join(", "))
    }
}

impl std::error::Error for ApplyError {}

/// Options of an apply.
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    /// Directory of the journals.
    pub directory: PathBuf,
    /// Changed system.
    pub target: Target,
    /// Event that ends the apply.
    pub ends_with: EndsWith,
    /// Requested profiles and settings.
    pub requested: Vec<String>,
    /// Time of the start, RFC 3339.
    pub started_at: String,
    /// File of `--persist`.
    pub persisted: Option<crate::journal::PersistedFile>,
}

/// Returns the directory of journals: `/run/weir/tune` for root, otherwise below `$XDG_RUNTIME_DIR`
/// (`runtime`). It is empty after a boot, as the settings have their old values then.
#[must_use]
pub fn journal_directory(runtime: Option<&Path>, is_root: bool) -> PathBuf {
    let root = Path::new("/run");
    let base = if is_root { root } else { runtime.unwrap_or(root) };
    base.join("weir/tune")
}

/// Returns the target for a namespace of `ip netns`.
///
/// # Errors
/// There is no such namespace.
pub fn namespace_target(name: &str) -> io::Result<Target> {
    let path = netns_path(name);
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let inode = fs::metadata(&path).map_err(explain)?.ino();
    Ok(Target::Namespace { name: name.to_owned(), inode })
}

/// Runs `body` where the settings of a target are.
///
/// # Errors
/// The namespace cannot be entered; then `body` did not run.
pub fn run_in_target<T: Send>(target: &Target, body: impl FnOnce() -> T + Send) -> io::Result<T> {
    match target {
        Target::Host => Ok(body()),
        Target::Namespace { name, .. } => run_in_netns(&netns_path(name), body),
    }
}

/// Applies a plan. To be called in the target ([`run_in_target`]). Returns the path of the journal, which is in
/// force from then on.
///
/// # Errors
/// A value cannot be written, or differs when it is read back. Everything is restored then.
pub fn apply(
    plan: &ApplyPlan,
    options: &ApplyOptions,
    on_step: &mut dyn FnMut(ApplyStep),
) -> Result<PathBuf, ApplyError> {
    on_step(ApplyStep::Start);
    let failed = |error: io::Error| ApplyError { reason: error.into(), not_restored: Vec::new() };
    let owner = ProcessIdentity::of_this_process();
    let header = JournalHeader {
        schema: SCHEMA.to_owned(),
        owner,
        boot_id: boot_id(),
        started_at: options.started_at.clone(),
        requested: options.requested.clone(),
        target: options.target.clone(),
        ends_with: options.ends_with.clone(),
        persisted: options.persisted.clone(),
    };
    let change = |change: &crate::apply::PlannedChange| JournaledChange {
        name: change.requested.name.clone(),
        path: change.requested.path.clone(),
        old: change.old.clone(),
        new: change.requested.value.clone(),
    };
    let journal = TuneJournal::new(header, plan.changes.iter().map(change).collect());
    let name = format!("{}.{EXTENSION}", owner.file_stem());
    let mut file = JournalFile::create(&options.directory.join(name)).map_err(failed)?;
    file.append(&journal.initial_text()).map_err(failed)?;
    on_step(ApplyStep::Journaled);
    match write_all(&journal.changes, on_step) {
        Ok(values) => {
            on_step(ApplyStep::Verified);
            let confirmed = file.append(&TuneJournal::applied_text(&values));
            confirmed.map_err(|error| undo(&journal, file.path(), error.into()))?;
            on_step(ApplyStep::Confirmed);
            Ok(file.path().to_owned())
        }
        Err(reason) => Err(undo(&journal, file.path(), reason)),
    }
}

/// Writes all values, and returns the values that are then in force.
fn write_all(
    changes: &[JournaledChange],
    on_step: &mut dyn FnMut(ApplyStep),
) -> Result<Vec<String>, ApplyFault> {
    for (at, change) in changes.iter().enumerate() {
        let now = read_choice(&change.path);
        let name = || change.name.clone();
        if !now.text().is_some_and(|now| same_value(now, &change.old)) {
            return Err(ApplyFault::ChangedMeanwhile(name()));
        }
        write_value(&change.path, &change.new)
            .map_err(|source| ApplyFault::Write { name: name(), source })?;
        on_step(ApplyStep::Written(at));
    }
    let read_back = |change: &JournaledChange| match read_choice(&change.path) {
        ObservedValue::Value(value) if same_value(&value, &change.new) => Ok(value),
        other => {
            let value = other.text().unwrap_or("not readable").to_owned();
            let (name, written) = (change.name.clone(), change.new.clone());
            Err(ApplyFault::NotInForce { name, written, value })
        }
    };
    changes.iter().map(read_back).collect()
}

/// Restores everything after a failed apply. The journal is removed if nothing is left to restore.
fn undo(journal: &TuneJournal, path: &Path, reason: ApplyFault) -> ApplyError {
    let report = restore(journal, true);
    if report.is_complete() {
        // A journal that stays is found by the next start, which has nothing to restore.
        let _ = fs::remove_file(path);
    }
    let failures = report.failures.into_iter().map(|(name, _)| name).collect();
    ApplyError { reason, not_restored: failures }
}

/// Result of a revert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevertReport {
    /// Settings that have their old values again: name, old value.
    pub restored: Vec<(String, String)>,
    /// Settings that had their old values already.
    pub unchanged: Vec<String>,
    /// Settings that somebody else changed: name, value, value of weir.
    pub changed_by_other: Vec<(String, String, String)>,
    /// Settings that could not be restored, with the reason.
    pub failures: Vec<(String, String)>,
}

impl RevertReport {
    /// Returns whether nothing is left to restore.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.changed_by_other.is_empty() && self.failures.is_empty()
    }
}

/// Restores the old values of a journal, the last first, and reads them back.
fn restore(journal: &TuneJournal, force: bool) -> RevertReport {
    let mut report = RevertReport::default();
    for (at, change) in journal.changes.iter().enumerate().rev() {
        let now = read_choice(&change.path);
        let name = change.name.clone();
        match journal.revert_step(at, now.text(), force) {
            RevertStep::AlreadyReverted => report.unchanged.push(name),
            RevertStep::Missing => report.failures.push((name, "the setting is gone".to_owned())),
            RevertStep::ChangedByOther => {
                let now = now.text().unwrap_or_default().to_owned();
                report.changed_by_other.push((name, now, change.new.clone()));
            }
            RevertStep::Write => match write_back(change) {
                Ok(()) => report.restored.push((name, change.old.clone())),
                Err(error) => report.failures.push((name, error.to_string())),
            },
        }
    }
    report
}

fn write_back(change: &JournaledChange) -> io::Result<()> {
    write_value(&change.path, &change.old)?;
    match read_choice(&change.path) {
        ObservedValue::Value(value) if same_value(&value, &change.old) => Ok(()),
        other => {
            let value = other.text().unwrap_or("an unreadable value");
            Err(io::Error::other(format!("{value} is in force")))
        }
    }
}

/// Journal on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJournal {
    /// Path.
    pub path: PathBuf,
    /// Contents.
    pub journal: TuneJournal,
    /// Decision about it.
    pub action: JournalAction,
}

/// Returns all journals, with the decision about each.
#[must_use]
pub fn stored_journals(directory: &Path) -> Vec<StoredJournal> {
    let mut stored = Vec::new();
    for path in list(directory, EXTENSION) {
        let Some(journal) = fs::read_to_string(&path).ok().and_then(|text| TuneJournal::parse(&text)) else {
            continue;
        };
        stored.push(StoredJournal { action: decide(&journal), path, journal });
    }
    stored
}

fn decide(journal: &TuneJournal) -> JournalAction {
    let target_exists = match &journal.header.target {
        Target::Host => true,
        Target::Namespace { name, .. } => {
            namespace_target(name).is_ok_and(|target| target == journal.header.target)
        }
    };
    journal.action(journal.header.owner.is_alive(), &boot_id(), target_exists)
}

/// Reverts one journal, and removes it if nothing is left. `None` if another process reverts it, or has done so.
///
/// # Errors
/// The target cannot be entered, or the journal cannot be removed.
pub fn revert(path: &Path, force: bool) -> io::Result<Option<RevertReport>> {
    let Some(locked) = LockedJournal::open(path) else { return Ok(None) };
    let Some(journal) = TuneJournal::parse(&locked.text) else {
        // Without a complete header nothing was written.
        return locked.remove().map(|()| None);
    };
    if decide(&journal) == JournalAction::Discard {
        locked.remove()?;
        return Ok(Some(RevertReport::default()));
    }
    let report = run_in_target(&journal.header.target, || restore(&journal, force))?;
    if report.is_complete() {
        remove_persisted(&journal);
        locked.remove()?;
    }
    Ok(Some(report))
}

/// Removes the file of `--persist` if nobody changed it.
fn remove_persisted(journal: &TuneJournal) {
    let Some(persisted) = &journal.header.persisted else { return };
    if fs::read_to_string(&persisted.path).is_ok_and(|text| text == persisted.text) {
        // A file that stays is reported by `weir tune check --file`.
        let _ = fs::remove_file(&persisted.path);
    }
}

/// Reverts the journals of killed processes, and removes those that are void. Returns the path and the result
/// of each.
#[must_use]
pub fn recover(directory: &Path) -> Vec<(StoredJournal, io::Result<Option<RevertReport>>)> {
    for path in list(directory, EXTENSION) {
        let is_empty = fs::read_to_string(&path).is_ok_and(|text| TuneJournal::parse(&text).is_none());
        // Another process may be about to write its header, so only its owner's end makes it void.
        let owner = path.file_stem().and_then(|stem| stem.to_str()).and_then(ProcessIdentity::from_file_stem);
        if is_empty && !owner.is_some_and(ProcessIdentity::is_alive) {
            let _ = fs::remove_file(&path);
        }
    }
    let due = stored_journals(directory).into_iter().filter(|one| one.action != JournalAction::Keep);
    due.map(|one| {
        let result = revert(&one.path, false);
        (one, result)
    })
    .collect()
}

/// Returns a text for each planned setting that another apply manages on the same target.
#[must_use]
pub fn conflicts(plan: &ApplyPlan, target: &Target, stored: &[StoredJournal]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for change in &plan.changes {
        let name = &change.requested.name;
        let manages = |one: &&StoredJournal| {
            one.journal.header.target == *target
                && one.journal.changes.iter().any(|other| other.name == *name)
        };
        if let Some(other) = stored.iter().find(manages) {
            let by = other.journal.header.requested.join(" ");
            found.push((name.clone(), format!("'weir tune apply {by}' manages it; revert that first")));
        }
    }
    found
}

/// State of a managed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedState {
    /// The value of weir is in force.
    InForce,
    /// The old value is in force.
    Reverted,
    /// Another value is in force.
    ChangedByOther,
    /// The setting cannot be read.
    NotReadable,
}

/// Returns the value and the state of each setting of a journal.
///
/// # Errors
/// The target cannot be entered.
pub fn managed_states(journal: &TuneJournal) -> io::Result<Vec<(Option<String>, ManagedState)>> {
    let state = |change: &JournaledChange| {
        let now = read_choice(&change.path).text().map(str::to_owned);
        let state = match &now {
            Some(value) if same_value(value, &change.new) => ManagedState::InForce,
            Some(value) if same_value(value, &change.old) => ManagedState::Reverted,
            Some(_) => ManagedState::ChangedByOther,
            None => ManagedState::NotReadable,
        };
        (now, state)
    };
    run_in_target(&journal.header.target, || journal.changes.iter().map(state).collect())
}
