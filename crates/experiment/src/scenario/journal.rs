//! Journal of the things that a run makes. Each is written down before it is made, so that a later
//! process can undo it if the run is killed.
//!
//! A journal is a file of JSON lines: first the owning process, then the created resources. It is removed
//! when everything in it is undone. Not for deciding what to make.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::journal::{JournalFile, LockedJournal, ProcessIdentity, list};
use host::sandbox::cgroup;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::errors::ResourceError;
use super::system_commands;

/// Prefix of every name.
pub const PREFIX: &str = "weir-";
const EXTENSION: &str = "journal";
/// Number of attempts to remove something that is still in use, and the interval between them.
const REMOVE_ATTEMPTS: u32 = 150;
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Resource that a run created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CreatedResource {
    /// Network namespace, with everything in it.
    Namespace {
        /// Name for `ip netns`.
        name: String,
    },
    /// Control group, with the processes in it.
    Cgroup {
        /// Directory of the group.
        path: PathBuf,
    },
    /// Control group with processes that existed before it, and return to their own groups.
    MovedProcesses {
        /// Directory of the group.
        path: PathBuf,
        /// Processes in the group.
        processes: Vec<MovedProcess>,
    },
    /// Process.
    Process(ProcessIdentity),
    /// Setting of the complete machine.
    Setting {
        /// File of the setting.
        path: PathBuf,
        /// Former value.
        previous: String,
    },
    /// Directory with files of the run.
    Directory {
        /// Path of the directory.
        path: PathBuf,
    },
}

/// Process in a control group other than its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MovedProcess {
    /// Process.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Directory of its own group.
    pub cgroup: PathBuf,
}

/// Parses the owner from the name of a run ([`run_name`]).
fn owner_from_run_name(run: &str) -> Option<ProcessIdentity> {
    let (stem, _) = run.strip_prefix(PREFIX)?.rsplit_once('-')?;
    ProcessIdentity::from_file_stem(stem)
}

/// Returns a name that is unique on this machine since its boot. It contains the owner, for a
/// process that finds the journal before its first line is written.
#[must_use]
pub fn run_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let owner = ProcessIdentity::of_this_process().file_stem();
    format!("{PREFIX}{owner}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Journal of a run.
#[derive(Debug)]
pub struct Journal {
    file: JournalFile,
    resources: Vec<CreatedResource>,
}

/// Returns the directory of journals: `/run/weir/lab` for root, otherwise below `$XDG_RUNTIME_DIR`
/// (`runtime`).
#[must_use]
pub fn journal_directory(runtime: Option<&Path>) -> PathBuf {
    let root = Path::new("/run");
    let base = if rustix::process::geteuid().is_root() { root } else { runtime.unwrap_or(root) };
    base.join("weir/lab")
}

/// Returns the path of a run's journal.
pub(super) fn journal_path(directory: &Path, run: &str) -> PathBuf {
    directory.join(format!("{run}.{EXTENSION}"))
}

impl Journal {
    /// Creates the journal of run `run` ([`run_name`]) in `directory`, owned by this process.
    ///
    /// # Errors
    /// The directory or the file cannot be created.
    pub fn create(directory: &Path, run: &str) -> io::Result<Self> {
        let file = JournalFile::create(&journal_path(directory, run))?;
        let mut journal = Self { file, resources: Vec::new() };
        journal.write_line(&ProcessIdentity::of_this_process())?;
        Ok(journal)
    }

    /// Writes down something that is about to be made. It is on the disk on return.
    ///
    /// # Errors
    /// It cannot be written: then the thing must not be made.
    pub fn record(&mut self, made: CreatedResource) -> io::Result<()> {
        self.write_line(&made)?;
        self.resources.push(made);
        Ok(())
    }

    fn write_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(value).map_err(io::Error::other)?;
        text.push('\n');
        self.file.append(&text)
    }

    /// Undoes everything, the last first. Things that could not be undone stay in the file for the
    /// next start, and are returned as text.
    pub fn undo(&mut self) -> Vec<String> {
        let (remaining, problems) = undo_all(std::mem::take(&mut self.resources));
        if remaining.is_empty() {
            // If the file stays, the next start finds nothing to undo.
            let _ = fs::remove_file(self.file.path());
        }
        self.resources = remaining;
        problems
    }
}

fn undo_all(made: Vec<CreatedResource>) -> (Vec<CreatedResource>, Vec<String>) {
    let mut remaining = Vec::new();
    let mut problems = Vec::new();
    for made in made.into_iter().rev() {
        if let Err(problem) = undo(&made) {
            problems.push(problem.to_string());
            remaining.insert(0, made);
        }
    }
    (remaining, problems)
}

/// Result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Names of the undone runs.
    pub undone_runs: Vec<String>,
    /// Descriptions of the things that could not be undone.
    pub problems: Vec<String>,
}

/// Undoes killed runs: the journals in `directory` whose process has ended.
#[must_use]
pub fn sweep(directory: &Path) -> SweepReport {
    let mut swept = SweepReport::default();
    for path in list(directory, EXTENSION) {
        let Some(journal) = LockedJournal::open(&path) else { continue };
        let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (owner, made) = parse(&journal.text);
        let owner = owner.or_else(|| owner_from_run_name(&run));
        if owner.is_some_and(ProcessIdentity::is_alive) {
            continue;
        }
        let (remaining, problems) = undo_all(made);
        swept.problems.extend(problems);
        if remaining.is_empty() {
            let _ = journal.remove();
            swept.undone_runs.push(run);
        }
    }
    swept
}

/// Parses the owner and the created resources. An incomplete last line is ignored: its thing had not been
/// made yet.
fn parse(text: &str) -> (Option<ProcessIdentity>, Vec<CreatedResource>) {
    let mut lines = text.lines();
    let owner = lines.next().and_then(|line| serde_json::from_str(line).ok());
    (owner, lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Undoes one thing. A thing that no longer exists counts as undone.
fn undo(made: &CreatedResource) -> Result<(), ResourceError> {
    match made {
        CreatedResource::Namespace { name } => {
            if !host::sandbox::namespace::netns_path(name).exists() {
                return Ok(());
            }
            let line = ["ip", "netns", "del", name].map(str::to_owned);
            Ok(system_commands::run_command(&line, None, None)?)
        }
        CreatedResource::Cgroup { path } => remove_cgroup(path),
        CreatedResource::MovedProcesses { path, processes: guests } => return_processes(path, guests),
        CreatedResource::Process(process) => kill_and_wait(*process),
        CreatedResource::Setting { path, previous: before } => {
            fs::write(path, before).map_err(ResourceError::in_file(path))
        }
        CreatedResource::Directory { path } => match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ResourceError::in_file(path)(error)),
            _ => Ok(()),
        },
    }
}

/// Kills the processes of a group, by the group's own list, and removes it.
fn remove_cgroup(path: &Path) -> Result<(), ResourceError> {
    if !path.exists() {
        // Where groups cannot be made, the error would be that they cannot be removed.
        return Ok(());
    }
    remove_after(path, || {
        for pid in cgroup::list_processes(path).into_iter().filter_map(Pid::from_raw) {
            // An error means that the process has ended, which is the goal.
            let _ = kill_process(pid, Signal::KILL);
        }
    })
}

/// Moves the guests of a group to their own groups, and removes the group. Processes that they
/// started meanwhile go to the group of the first guest.
fn return_processes(path: &Path, processes: &[MovedProcess]) -> Result<(), ResourceError> {
    remove_after(path, || {
        for pid in cgroup::list_processes(path) {
            let is_own = |moved: &&MovedProcess| moved.process.pid == pid && moved.process.is_alive();
            if let Some(moved) = processes.iter().find(is_own).or_else(|| processes.first()) {
                // A process that cannot be moved keeps the group alive, which is then reported.
                let _ = cgroup::move_process(pid, &moved.cgroup);
            }
        }
    })
}

/// Empties a group and removes it, several times if processes are still ending.
fn remove_after(path: &Path, empty: impl Fn()) -> Result<(), ResourceError> {
    let mut attempts = 0;
    loop {
        empty();
        attempts += 1;
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) if attempts == REMOVE_ATTEMPTS => {
                return Err(ResourceError::Refused {
                    object: format!("control group {}", path.display()),
                    source,
                });
            }
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
    }
}

fn kill_and_wait(process: ProcessIdentity) -> Result<(), ResourceError> {
    for _ in 0..REMOVE_ATTEMPTS {
        if !process.is_alive() {
            return Ok(());
        }
        if let Some(pid) = Pid::from_raw(process.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    Err(ResourceError::StillAlive(process.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Command, Stdio};

    #[test]
    fn resources_of_a_dead_owner_are_undone_and_those_of_a_living_one_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("made");
        fs::create_dir(&made).unwrap();
        let setting = directory.path().join("setting");
        fs::write(&setting, "changed").unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id() as i32;
        let mut journal = Journal::create(directory.path(), "weir-test").unwrap();
        journal.record(CreatedResource::Directory { path: made.clone() }).unwrap();
        journal
            .record(CreatedResource::Setting { path: setting.clone(), previous: "before".to_owned() })
            .unwrap();
        journal.record(CreatedResource::Process(ProcessIdentity::of(pid).unwrap())).unwrap();
        // Its owner is this process, which is alive.
        assert_eq!(sweep(directory.path()), SweepReport::default());
        assert!(made.exists());
        // A kill of the owner in the middle of a line.
        let text = fs::read_to_string(journal.file.path()).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        let dead = format!("{{\"pid\":{pid},\"start_ticks\":1}}\n{rest}{{\"directory\":{{\"pa");
        fs::write(journal.file.path(), dead).unwrap();
        // While another process undoes it, this one leaves it alone.
        let lock = File::open(journal.file.path()).unwrap();
        lock.lock().unwrap();
        assert_eq!(sweep(directory.path()), SweepReport::default());
        drop(lock);
        let swept = sweep(directory.path());
        assert_eq!((swept.undone_runs, swept.problems), (vec!["weir-test".to_owned()], vec![]));
        assert!(!made.exists() && !journal.file.path().exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "before");
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_new_journal_belongs_to_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let (living, cut) = (run_name(), run_name());
        assert_ne!(living, cut);
        // A sweep of another process may find an empty or incomplete first line.
        fs::write(journal_path(directory.path(), &living), "").unwrap();
        fs::write(journal_path(directory.path(), &cut), "{\"pid\":").unwrap();
        let ProcessIdentity { pid, start_ticks } = ProcessIdentity::of_this_process();
        let dead = format!("{PREFIX}{pid}-{:x}-0", start_ticks + 1);
        for run in [&dead, "weir-", "weir-x-1-0", "weir-1-x-0", "weir-1-1"] {
            fs::write(journal_path(directory.path(), run), "").unwrap();
        }
        assert_eq!(owner_from_run_name(&living), Some(ProcessIdentity::of_this_process()));
        assert_eq!(sweep(directory.path()).undone_runs.len(), 5, "those of the dead, and nobody's");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!([&living, &cut].iter().all(|run| journal_path(directory.path(), run).exists()));
    }

    #[test]
    fn a_process_with_another_start_time_is_not_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessIdentity::of(child.id() as i32).unwrap();
        let other = ProcessIdentity { start_ticks: process.start_ticks + 1, ..process };
        kill_and_wait(other).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        kill_and_wait(process).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn resources_that_cannot_be_undone_stay_in_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(directory.path(), "weir-left").unwrap();
        let path = PathBuf::from("/no/such/directory/setting");
        journal.record(CreatedResource::Setting { path, previous: String::new() }).unwrap();
        assert_eq!(journal.undo().len(), 1);
        assert!(journal.file.path().exists());
        assert!(Journal::create(directory.path(), "weir-left").is_err());
    }
}
