//! Journal of the things that a run makes. Each is written down before it is made, so that a later
//! process can undo it if the run is killed.
//!
//! A journal is a file of JSON lines: first the owning process, then the created resources. It is removed
//! when everything in it is undone. Only files that no other user can change are obeyed
//! ([`host::trusted_dir`]), and only if each line names a thing that this run could have made
//! ([`allow_list`]). Not for deciding what to make.

pub mod allow_list;
mod undo;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use host::journal::{JournalFile, LockedJournal, ProcessIdentity, boot_id, pid_namespace};
use host::trusted_dir::{TrustError, TrustedDir, state_directory};
use serde::{Deserialize, Serialize};

use self::allow_list::{AllowList, EntryError};

pub const PREFIX: &str = "weir-";
/// Variable in the environment of the processes of a run, with its name: it tells them from other processes.
pub(super) const RUN_VARIABLE: &str = "WEIR_RUN";
/// Parent of the run directories: on a disk, which `/tmp` may not be.
pub(super) const RUN_DIRECTORIES: &str = "/var/tmp";
/// Subdirectory of the journals in the state directory of a user.
pub const SUBDIRECTORY: &str = "lab";
const EXTENSION: &str = "journal";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum CreatedResource {
    /// Network namespace, with everything in it.
    Namespace {
        /// Name for `ip netns`.
        name: String,
    },
    Cgroup {
        path: PathBuf,
    },
    /// Control group with processes that existed before it, and return to their own groups.
    MovedProcesses {
        path: PathBuf,
        processes: Vec<MovedProcess>,
    },
    Process(ProcessIdentity),
    Setting {
        path: PathBuf,
        previous: String,
    },
    Directory {
        path: PathBuf,
    },
}

/// Process in a control group other than its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MovedProcess {
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Directory of its own group.
    pub cgroup: PathBuf,
}

/// First line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JournalOwner {
    #[serde(flatten)]
    process: ProcessIdentity,
    /// ID of the machine's boot. After another boot only directories are left. Journals of older versions have none.
    #[serde(default)]
    boot_id: Option<String>,
    /// PID namespace of the process; journals of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid_namespace: Option<String>,
}

/// Reason why a journal is not obeyed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another user could have written it.
    #[error(transparent)]
    NotTrusted(#[from] TrustError),
    /// It has a line that no run writes.
    #[error(
        "{path}:{line}: {reason}; nothing in this journal is obeyed (read it, undo by hand what is left, then rm {path})",
        path = .path.display()
    )]
    Line {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        reason: EntryError,
    },
}

/// Parses the owner from the name of a run ([`run_name`]).
fn owner_from_run_name(run: &str) -> Option<ProcessIdentity> {
    let (stem, number) = run.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    ProcessIdentity::from_file_stem(stem).filter(|_| is_number)
}

/// Returns a name that is unique on this machine since its boot. It contains the owner, for a
/// process that finds the journal before its first line is written.
pub fn run_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let owner = ProcessIdentity::from_current_process().file_stem();
    format!("{PREFIX}{owner}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[derive(Debug)]
pub struct Journal {
    file: JournalFile,
    allow_list: AllowList,
    resources: Vec<CreatedResource>,
}

pub fn journal_directory() -> PathBuf {
    state_directory().join(SUBDIRECTORY)
}

pub(super) fn journal_name(run: &str) -> String {
    format!("{run}.{EXTENSION}")
}

impl Journal {
    /// Creates the journal of run `run` ([`run_name`]) in `directory`, owned by this process.
    ///
    /// # Errors
    /// The directory or the file cannot be created, or another user could change it.
    pub fn create(directory: &Path, run: &str) -> io::Result<Self> {
        Self::create_with(directory, AllowList::from_this_machine(run))
    }

    fn create_with(directory: &Path, allow_list: AllowList) -> io::Result<Self> {
        let explain = |error: TrustError| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("the journal cannot be written: {error}"))
        };
        let directory = TrustedDir::open_or_create(directory).map_err(explain)?;
        let file = JournalFile::create(directory, &journal_name(allow_list.run())).map_err(explain)?;
        let mut journal = Self { file, allow_list, resources: Vec::new() };
        let process = ProcessIdentity::from_current_process();
        journal.write_line(&JournalOwner {
            process,
            boot_id: Some(boot_id()),
            pid_namespace: pid_namespace(),
        })?;
        Ok(journal)
    }

    /// Writes down something that is about to be made. It is on the disk on return.
    ///
    /// # Errors
    /// It cannot be written, or no later process would undo it: then the thing must not be made.
    pub fn record(&mut self, made: CreatedResource) -> io::Result<()> {
        self.allow_list.check(&made).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.write_line(&made)?;
        self.resources.push(made);
        Ok(())
    }

    fn write_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(value).map_err(io::Error::other)?;
        text.push('\n');
        self.file.append(&text)
    }

    /// Allows control groups below another directory, for a test without any.
    #[cfg(test)]
    pub(super) fn allow_cgroups_in(&mut self, mount: &Path) {
        self.allow_list.cgroup_mounts.push(mount.to_owned());
    }

    /// Undoes everything, the last first. Things that could not be undone stay in the file for the
    /// next start, and are returned as text.
    pub fn undo(&mut self) -> Vec<String> {
        let (remaining, problems) = undo::undo_all(std::mem::take(&mut self.resources), &self.allow_list);
        if remaining.is_empty() {
            // If the file stays, the next start finds nothing to undo.
            let _ = self.file.remove();
        }
        self.resources = remaining;
        problems
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    pub undone_runs: Vec<String>,
    /// Descriptions of the things that could not be undone.
    pub problems: Vec<String>,
    /// Journals that are not obeyed, with the reason.
    pub refused: Vec<String>,
}

/// Undoes killed runs: the journals in `directory` whose process has ended.
pub fn sweep(directory: &TrustedDir) -> SweepReport {
    sweep_with(directory, AllowList::from_this_machine)
}

fn sweep_with(directory: &TrustedDir, allow_list: impl Fn(&str) -> AllowList) -> SweepReport {
    let mut swept = SweepReport::default();
    let names = match directory.names(EXTENSION) {
        Ok(names) => names,
        Err(error) => {
            swept.refused.push(error.to_string());
            return swept;
        }
    };
    for name in names {
        let run = name.strip_suffix(&format!(".{EXTENSION}")).unwrap_or(&name);
        if let Err(error) = sweep_journal(directory, &name, &allow_list(run), &mut swept) {
            swept.refused.push(error.to_string());
        }
    }
    swept
}

/// Undoes one journal, unless its process is alive or another process undoes it.
fn sweep_journal(
    directory: &TrustedDir,
    name: &str,
    allow_list: &AllowList,
    swept: &mut SweepReport,
) -> Result<(), JournalError> {
    let Some(journal) = LockedJournal::open(directory, name)? else { return Ok(()) };
    let in_line = |(line, reason)| JournalError::Line { path: directory.path().join(name), line, reason };
    let (owner, mut made) = parse(&journal.text, allow_list).map_err(in_line)?;
    let is_this_boot = owner.boot_id.as_ref().is_none_or(|boot| *boot == boot_id());
    if is_this_boot && owner.process.may_be_alive(owner.pid_namespace.as_deref()) {
        return Ok(());
    }
    if !is_this_boot {
        made.retain(|made| matches!(made, CreatedResource::Directory { .. }));
    }
    let (remaining, problems) = undo::undo_all(made, allow_list);
    swept.problems.extend(problems);
    if remaining.is_empty() {
        let _ = journal.remove();
        swept.undone_runs.push(allow_list.run().to_owned());
    }
    Ok(())
}

/// Parses the owner and the created resources, all of which are allowed. An incomplete last line is ignored: its
/// thing had not been made yet.
fn parse(
    text: &str,
    allow_list: &AllowList,
) -> Result<(JournalOwner, Vec<CreatedResource>), (usize, EntryError)> {
    let named = owner_from_run_name(allow_list.run()).ok_or((1, EntryError::Name))?;
    let complete = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let mut owner = JournalOwner { process: named, boot_id: None, pid_namespace: None };
    let mut made = Vec::new();
    for (index, line) in complete.lines().enumerate() {
        let at = |reason| (index + 1, reason);
        let syntax = |error: serde_json::Error| at(EntryError::Syntax(error.to_string()));
        if index == 0 {
            owner = serde_json::from_str(line).map_err(syntax)?;
            if owner.process != named {
                return Err(at(EntryError::OtherOwner));
            }
            continue;
        }
        let entry: CreatedResource = serde_json::from_str(line).map_err(syntax)?;
        allow_list.check(&entry).map_err(at)?;
        made.push(entry);
    }
    Ok((owner, made))
}

#[cfg(test)]
mod tests;
