//! Execution of an apply and of a revert: journal, writes, read-back. The decisions are those of
//! [`crate::journal`].

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use host::journal::{self, JournalFile, LockedJournal, ProcessIdentity, boot_id, pid_namespace};
use host::sandbox::namespace::{netns_path, run_in_netns};
use host::trusted_dir::{TrustError, TrustedDir, state_directory};
use host::tuning::{ObservedValue, read_choice, write_value};

use crate::apply::ApplyPlan;
use crate::journal::{
    EXTENSION, EndsWith, JournalAction, JournalHeader, JournaledChange, LineError, PersistedFile, RevertStep,
    SCHEMA, Target, TuneJournal, owner_from_name,
};
use crate::judge::same_value;

/// Point of an apply, for tests that interrupt it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyStep {
    Start,
    /// The journal is on the disk, and no setting was written.
    Journaled,
    /// The setting at this position was written, and not read back.
    Written(usize),
    /// All settings were read back; the journal does not confirm it yet.
    Verified,
    Confirmed,
}

/// Step of an apply that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyFault {
    /// The journal cannot be written.
    #[error("the journal cannot be written: {0}")]
    Journal(#[from] io::Error),
    /// The journal cannot be created, or another user could change it.
    #[error("the journal cannot be written: {0}")]
    NotTrusted(#[from] TrustError),
    /// Another process changed the setting after the plan was made.
    #[error("{0}: changed by somebody else meanwhile")]
    ChangedMeanwhile(String),
    #[error("{name}: {source}")]
    Write { name: String, source: io::Error },
    /// The kernel keeps another value than the written one.
    #[error("{name}: {written} was written, and {value} is in force")]
    NotInForce {
        name: String,
        written: String,
        /// Value that was read back.
        value: String,
    },
}

/// Reason why an apply failed. Settings that were written have their old values again, unless `not_restored`
/// names them.
#[derive(Debug)]
pub struct ApplyError {
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

#[derive(Clone, Debug)]
pub struct ApplyOptions {
    pub target: Target,
    pub ends_with: EndsWith,
    pub requested: Vec<String>,
    /// Time of the start, RFC 3339.
    pub started_at: String,
    pub persisted: Option<PersistedFile>,
}

/// Reason why a journal is not obeyed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another user could have written it.
    #[error(transparent)]
    NotTrusted(#[from] TrustError),
    #[error("{path}: no name of a journal (PID-START.journal); it is not obeyed", path = .0.display())]
    Name(PathBuf),
    /// It has a line that no apply writes.
    #[error(
        "{path}:{line}: {reason}; nothing in this journal is obeyed (read it, restore by hand what is left, then rm \
         {path})",
        path = .path.display()
    )]
    Line {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        reason: LineError,
    },
    /// The target cannot be entered.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Subdirectory of the journals in the state directory of a user.
pub const SUBDIRECTORY: &str = "tune";

/// Returns the directory of journals of this user. It is empty after a boot, as the settings have their old values
/// then.
pub fn journal_directory() -> PathBuf {
    state_directory().join(SUBDIRECTORY)
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

/// Applies a plan, with a journal in `directory`. To be called in the target ([`run_in_target`]). Returns the name of
/// the journal, which is in force from then on.
///
/// # Errors
/// A value cannot be written, or differs when it is read back. Everything is restored then.
pub fn apply(
    plan: &ApplyPlan,
    options: &ApplyOptions,
    directory: TrustedDir,
    on_step: &mut dyn FnMut(ApplyStep),
) -> Result<String, ApplyError> {
    on_step(ApplyStep::Start);
    let failed = |reason: ApplyFault| ApplyError { reason, not_restored: Vec::new() };
    let owner = ProcessIdentity::from_current_process();
    let header = JournalHeader {
        schema: SCHEMA.to_owned(),
        owner,
        pid_namespace: pid_namespace(),
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
        follows: change.follows,
    };
    let journal = TuneJournal::new(header, plan.changes.iter().map(change).collect());
    let name = format!("{}.{EXTENSION}", owner.file_stem());
    let mut file = JournalFile::create(directory, &name).map_err(|error| failed(error.into()))?;
    file.append(&journal.initial_text()).map_err(|error| failed(error.into()))?;
    on_step(ApplyStep::Journaled);
    match write_all(&KernelFiles, &journal.changes, on_step) {
        Ok(values) => {
            on_step(ApplyStep::Verified);
            let confirmed = file.append(&TuneJournal::applied_text(&values));
            confirmed.map_err(|error| undo(&journal, &file, error.into()))?;
            on_step(ApplyStep::Confirmed);
            Ok(name)
        }
        Err(reason) => Err(undo(&journal, &file, reason)),
    }
}

trait SettingFiles {
    fn read(&self, path: &Path) -> ObservedValue;
    fn write(&self, path: &Path, value: &str) -> io::Result<()>;
}

struct KernelFiles;

impl SettingFiles for KernelFiles {
    fn read(&self, path: &Path) -> ObservedValue {
        read_choice(path)
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        write_value(path, value)
    }
}

/// Writes all values, and returns the values that are then in force.
fn write_all(
    files: &impl SettingFiles,
    changes: &[JournaledChange],
    on_step: &mut dyn FnMut(ApplyStep),
) -> Result<Vec<String>, ApplyFault> {
    for (at, change) in changes.iter().enumerate().filter(|(_, change)| !change.follows) {
        let name = || change.name.clone();
        // A change that follows is made by the same write.
        let followers = changes[at + 1..].iter().take_while(|other| other.follows);
        for changed in std::iter::once(change).chain(followers) {
            let now = files.read(&changed.path);
            if !now.text().is_some_and(|now| same_value(now, &changed.old)) {
                return Err(ApplyFault::ChangedMeanwhile(changed.name.clone()));
            }
        }
        files
            .write(&change.path, &change.new)
            .map_err(|source| ApplyFault::Write { name: name(), source })?;
        on_step(ApplyStep::Written(at));
    }
    let read_back = |change: &JournaledChange| match files.read(&change.path) {
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
fn undo(journal: &TuneJournal, file: &JournalFile, reason: ApplyFault) -> ApplyError {
    let report = restore(&KernelFiles, journal, true);
    if report.is_complete() {
        // A journal that stays is found by the next start, which has nothing to restore.
        let _ = file.remove();
    }
    let failures = report.failures.into_iter().map(|(name, _)| name).collect();
    ApplyError { reason, not_restored: failures }
}

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
    pub fn is_complete(&self) -> bool {
        self.changed_by_other.is_empty() && self.failures.is_empty()
    }
}

/// Restores the old values of a journal, the last first, and reads them back.
fn restore(files: &impl SettingFiles, journal: &TuneJournal, force: bool) -> RevertReport {
    let mut report = RevertReport::default();
    for (at, change) in journal.changes.iter().enumerate().rev() {
        let now = files.read(&change.path);
        let name = change.name.clone();
        // The old value of a change that follows would undo what somebody else did to the one before it.
        let is_leader_theirs = change.follows && at > 0 && {
            let leader = files.read(&journal.changes[at - 1].path);
            journal.revert_step(at - 1, leader.text(), force) == RevertStep::ChangedByOther
        };
        if is_leader_theirs {
            continue;
        }
        match journal.revert_step(at, now.text(), force) {
            RevertStep::AlreadyReverted => report.unchanged.push(name),
            RevertStep::Missing => report.failures.push((name, "the setting is gone".to_owned())),
            RevertStep::ChangedByOther => {
                let now = now.text().unwrap_or_default().to_owned();
                report.changed_by_other.push((name, now, change.new.clone()));
            }
            RevertStep::Write => match write_back(files, change) {
                Ok(()) => report.restored.push((name, change.old.clone())),
                Err(error) => report.failures.push((name, error.to_string())),
            },
        }
    }
    report
}

fn write_back(files: &impl SettingFiles, change: &JournaledChange) -> io::Result<()> {
    files.write(&change.path, &change.old)?;
    match files.read(&change.path) {
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
    pub name: String,
    pub journal: TuneJournal,
    pub action: JournalAction,
}

#[derive(Debug, Default)]
pub struct StoredJournals {
    /// Journals that are obeyed.
    pub journals: Vec<StoredJournal>,
    /// Reasons why others are not.
    pub refused: Vec<JournalError>,
}

/// Returns all journals, with the decision about each.
pub fn stored_journals(directory: &TrustedDir) -> StoredJournals {
    let mut stored = StoredJournals::default();
    let names = directory.names(EXTENSION).map_err(|error| stored.refused.push(error.into()));
    for name in names.unwrap_or_default() {
        let text = journal::read(directory, &name).map_err(JournalError::from);
        match text.and_then(|text| parse(directory, &name, &text.unwrap_or_default())) {
            Ok(Some(journal)) => {
                stored.journals.push(StoredJournal { action: decide(&journal), name, journal });
            }
            // Without a complete header nothing was written.
            Ok(None) => {}
            Err(error) => stored.refused.push(error),
        }
    }
    stored
}

fn parse(directory: &TrustedDir, name: &str, text: &str) -> Result<Option<TuneJournal>, JournalError> {
    let path = || directory.path().join(name);
    let owner = owner_from_name(name).ok_or_else(|| JournalError::Name(path()))?;
    TuneJournal::parse(text, owner).map_err(|(line, reason)| JournalError::Line {
        path: path(),
        line,
        reason,
    })
}

fn decide(journal: &TuneJournal) -> JournalAction {
    let target_exists = match &journal.header.target {
        Target::Host => true,
        Target::Namespace { name, .. } => {
            namespace_target(name).is_ok_and(|target| target == journal.header.target)
        }
    };
    let header = &journal.header;
    let is_alive = header.owner.may_be_alive(header.pid_namespace.as_deref());
    journal.action(is_alive, &boot_id(), target_exists)
}

/// Reverts one journal, and removes it if nothing is left. `None` if another process reverts it, or has done so.
///
/// # Errors
/// The journal is not obeyed or cannot be removed, or the target cannot be entered.
pub fn revert(directory: &TrustedDir, name: &str, force: bool) -> Result<Option<RevertReport>, JournalError> {
    let Some(locked) = LockedJournal::open(directory, name)? else { return Ok(None) };
    let Some(journal) = parse(directory, name, &locked.text)? else {
        // Without a complete header nothing was written.
        locked.remove()?;
        return Ok(None);
    };
    if decide(&journal) == JournalAction::Discard {
        locked.remove()?;
        return Ok(Some(RevertReport::default()));
    }
    let report = run_in_target(&journal.header.target, || restore(&KernelFiles, &journal, force))?;
    if report.is_complete() {
        if let Some(persisted) = &journal.header.persisted {
            remove_persisted(persisted);
        }
        locked.remove()?;
    }
    Ok(Some(report))
}

/// Removes the file of `--persist` if nobody changed it.
pub fn remove_persisted(persisted: &PersistedFile) {
    let (Some(parent), Some(name)) = (persisted.path.parent(), persisted.path.file_name()) else { return };
    // A file that stays is reported by `weir tune check --file`.
    let (Ok(Some(directory)), Some(name)) = (TrustedDir::open(parent), name.to_str()) else { return };
    if journal::read(&directory, name).is_ok_and(|text| text.as_ref() == Some(&persisted.text)) {
        let _ = directory.remove_file(name);
    }
}

#[derive(Debug, Default)]
pub struct Recovery {
    pub reverted: Vec<(StoredJournal, Result<Option<RevertReport>, JournalError>)>,
    /// Reasons why other journals are not obeyed.
    pub refused: Vec<JournalError>,
}

/// Reverts the journals of killed processes, and removes those that are void.
pub fn recover(directory: &TrustedDir) -> Recovery {
    for name in directory.names(EXTENSION).unwrap_or_default() {
        // Another process may be about to write its header, so only its owner's end makes it void.
        let Some(owner) = owner_from_name(&name).filter(|owner| !owner.is_alive()) else { continue };
        let is_void = |text: &String| matches!(TuneJournal::parse(text, owner), Ok(None));
        // Its owner in another PID namespace, which has locked it, is not seen here.
        if let Ok(Some(locked)) = LockedJournal::open(directory, &name)
            && is_void(&locked.text)
        {
            let _ = locked.remove();
        }
    }
    let StoredJournals { journals, refused } = stored_journals(directory);
    let due = journals.into_iter().filter(|stored_journal| stored_journal.action != JournalAction::Keep);
    let reverted = due.map(|stored_journal| {
        let result = revert(directory, &stored_journal.name, false);
        (stored_journal, result)
    });
    Recovery { reverted: reverted.collect(), refused }
}

/// Returns a text for each planned setting that another apply manages on the same target.
pub fn conflicts(plan: &ApplyPlan, target: &Target, stored: &[StoredJournal]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for change in &plan.changes {
        let name = &change.requested.name;
        let manages = |stored_journal: &&StoredJournal| {
            stored_journal.journal.header.target == *target
                && stored_journal.journal.changes.iter().any(|other| other.name == *name)
        };
        if let Some(other) = stored.iter().find(manages) {
            let by = other.journal.header.requested.join(" ");
            found.push((name.clone(), format!("'weir tune apply {by}' manages it; revert that first")));
        }
    }
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedState {
    InForce,
    Reverted,
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

#[cfg(test)]
mod tests;
