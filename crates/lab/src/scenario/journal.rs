//! What a run makes, written down before it is made, so that it can be undone by whoever comes next
//! when the run is killed.
//!
//! A journal is a file of lines of JSON: the process that owns it, then what was made. It is gone
//! when everything in it is undone. Not for deciding what to make.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::process::ProcessReader;
use host::setup::group;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::programs;

/// What every name begins with.
pub const PREFIX: &str = "weir-";
const ENDING: &str = "journal";
/// How often, and how long apart, it is tried to be rid of something that still is in use.
const TRIES: u32 = 150;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Something that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// A network namespace, with everything in it.
    Namespace {
        /// As `ip netns` knows it.
        name: String,
    },
    /// A control group, with the processes in it.
    Group {
        /// Its folder.
        path: PathBuf,
    },
    /// A control group with processes that were there before it, and go back to theirs.
    Guests {
        /// Its folder.
        path: PathBuf,
        /// The processes.
        guests: Vec<Guest>,
    },
    /// A process.
    Process {
        /// Its number.
        pid: i32,
        /// When it started, in ticks after boot: with the number it names a process for good.
        start_ticks: u64,
    },
    /// A setting of the whole machine.
    Setting {
        /// Its file.
        path: PathBuf,
        /// What it was before.
        before: String,
    },
    /// A folder with files of the run.
    Folder {
        /// Where.
        path: PathBuf,
    },
}

/// A process in a control group that is not its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Guest {
    /// Its number.
    pub pid: i32,
    /// When it started, in ticks after boot.
    pub start_ticks: u64,
    /// The folder of its own group.
    pub home: PathBuf,
}

/// The process that a journal belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    pid: i32,
    start_ticks: u64,
}

impl Owner {
    fn this_process() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0) }
    }

    /// The one in the name of a run ([`run_name`]).
    fn of_run(run: &str) -> Option<Self> {
        let (pid, rest) = run.strip_prefix(PREFIX)?.split_once('-')?;
        let (ticks, _) = rest.split_once('-')?;
        let start_ticks = u64::from_str_radix(ticks, 16).ok()?;
        Some(Self { pid: pid.parse().ok()?, start_ticks })
    }
}

/// A name that no other run has, on this machine, since it was started. It says whose the run is, for whoever
/// finds its journal before the first line is in it.
#[must_use]
pub fn run_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Owner { pid, start_ticks } = Owner::this_process();
    format!("{PREFIX}{pid}-{start_ticks:x}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The journal of a run.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    made: Vec<Made>,
}

/// Where journals are: `/run/weir/lab` for root, else below `$XDG_RUNTIME_DIR` (`runtime`).
#[must_use]
pub fn folder(runtime: Option<&Path>) -> PathBuf {
    let root = Path::new("/run");
    let base = if rustix::process::geteuid().is_root() { root } else { runtime.unwrap_or(root) };
    base.join("weir/lab")
}

/// When process `pid` started, in ticks after boot; none when there is no such process. One that has ended
/// and that nobody has waited for (a zombie) is none: nothing of it is left but its number.
#[must_use]
pub fn start_ticks(pid: i32) -> Option<u64> {
    if is_zombie(pid) {
        return None;
    }
    Some(ProcessReader::open(pid).ok()?.sample().ok()?.start_ticks)
}

/// The file of a run's journal.
pub(super) fn path_of(folder: &Path, run: &str) -> PathBuf {
    folder.join(format!("{run}.{ENDING}"))
}

impl Journal {
    /// Begins the journal of run `run` ([`run_name`]) in `folder`, owned by this process.
    ///
    /// # Errors
    /// The folder or the file cannot be made.
    pub fn begin(folder: &Path, run: &str) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("journal in {}: {error}", folder.display()))
        };
        fs::create_dir_all(folder).map_err(explain)?;
        let path = path_of(folder, run);
        let file = File::options().create_new(true).append(true).open(&path).map_err(explain)?;
        let mut journal = Self { path, file, made: Vec::new() };
        journal.line(&Owner::this_process()).map_err(explain)?;
        // The name in its folder has to last as well.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(explain)?;
        Ok(journal)
    }

    /// Writes down what is about to be made. It is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written: then it must not be made.
    pub fn note(&mut self, made: Made) -> io::Result<()> {
        self.line(&made)?;
        self.made.push(made);
        Ok(())
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(value).map_err(io::Error::other)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()
    }

    /// Undoes everything, the last first. What could not be undone stays in the file, for the next
    /// start, and is returned in words.
    pub fn undo(&mut self) -> Vec<String> {
        let (left, problems) = undo_all(std::mem::take(&mut self.made));
        if left.is_empty() {
            // The next start finds nothing to undo in it.
            let _ = fs::remove_file(&self.path);
        }
        self.made = left;
        problems
    }
}

fn undo_all(made: Vec<Made>) -> (Vec<Made>, Vec<String>) {
    let mut left = Vec::new();
    let mut problems = Vec::new();
    for made in made.into_iter().rev() {
        if let Err(problem) = undo(&made) {
            problems.push(problem);
            left.insert(0, made);
        }
    }
    (left, problems)
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Runs that were undone.
    pub runs: Vec<String>,
    /// What could not be undone, in words.
    pub problems: Vec<String>,
}

/// Undoes what killed runs left: the journals in `folder` whose process is gone.
#[must_use]
pub fn sweep(folder: &Path) -> Swept {
    let mut swept = Swept::default();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if path.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        // One that another start swept meanwhile is no problem.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (owner, made) = parse(&text);
        let owner = owner.or_else(|| Owner::of_run(&run));
        if owner.is_some_and(|owner| start_ticks(owner.pid) == Some(owner.start_ticks)) {
            continue;
        }
        let (left, problems) = undo_all(made);
        swept.problems.extend(problems);
        if left.is_empty() {
            let _ = fs::remove_file(&path);
            swept.runs.push(run);
        }
    }
    swept
}

/// The owner and what was made. A last line that was cut short stands for nothing: what it was to
/// say had not been made yet.
fn parse(text: &str) -> (Option<Owner>, Vec<Made>) {
    let mut lines = text.lines();
    let owner = lines.next().and_then(|line| serde_json::from_str(line).ok());
    (owner, lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Undoes one thing; what is not there any more is undone.
fn undo(made: &Made) -> Result<(), String> {
    match made {
        Made::Namespace { name } => {
            if !host::setup::namespace::path_of(name).exists() {
                return Ok(());
            }
            let line = ["ip", "netns", "del", name].map(str::to_owned);
            programs::run(&line, None, None)
        }
        Made::Group { path } => end_group(path),
        Made::Guests { path, guests } => send_home(path, guests),
        Made::Process { pid, start_ticks } => end_process(*pid, *start_ticks),
        Made::Setting { path, before } => {
            fs::write(path, before).map_err(|error| format!("{}: {error}", path.display()))
        }
        Made::Folder { path } => match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", path.display()))
            }
            _ => Ok(()),
        },
    }
}

/// Kills what is in a group, by the group's own list, and removes it.
fn end_group(path: &Path) -> Result<(), String> {
    if !path.exists() {
        // Where groups cannot be made, the error would be that they cannot be removed.
        return Ok(());
    }
    let mut last = None;
    for _ in 0..TRIES {
        for pid in group::processes(path).into_iter().filter_map(Pid::from_raw) {
            // One that is gone by now is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    let why = last.map(|error| error.to_string()).unwrap_or_default();
    Err(format!("control group {}: {why}", path.display()))
}

/// Sends the guests of a group to their own groups (and whom they started meanwhile to the first
/// one's), and removes it.
fn send_home(path: &Path, guests: &[Guest]) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..TRIES {
        for pid in group::processes(path) {
            let own = guests
                .iter()
                .find(|guest| guest.pid == pid && start_ticks(pid) == Some(guest.start_ticks));
            if let Some(guest) = own.or_else(|| guests.first()) {
                // One that cannot be moved keeps the group, and that is said.
                let _ = group::move_to(pid, &guest.home);
            }
        }
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Err(format!("control group {}: {last}", path.display()))
}

fn end_process(pid: i32, started: u64) -> Result<(), String> {
    for _ in 0..TRIES {
        if start_ticks(pid) != Some(started) {
            return Ok(());
        }
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    Err(format!("process {pid} does not end"))
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_dead_owner_left_is_undone_and_what_a_living_one_has_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        fs::create_dir(&made).unwrap();
        let setting = folder.path().join("setting");
        fs::write(&setting, "changed").unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id() as i32;
        let mut journal = Journal::begin(folder.path(), "weir-test").unwrap();
        journal.note(Made::Folder { path: made.clone() }).unwrap();
        journal.note(Made::Setting { path: setting.clone(), before: "before".to_owned() }).unwrap();
        journal.note(Made::Process { pid, start_ticks: start_ticks(pid).unwrap() }).unwrap();
        // Its owner is this process, which lives.
        assert_eq!(sweep(folder.path()), Swept::default());
        assert!(made.exists());
        // As if the owner had been killed in the middle of a line.
        let text = fs::read_to_string(&journal.path).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        let dead = format!("{{\"pid\":{pid},\"start_ticks\":1}}\n{rest}{{\"folder\":{{\"pa");
        fs::write(&journal.path, dead).unwrap();
        let swept = sweep(folder.path());
        assert_eq!((swept.runs, swept.problems), (vec!["weir-test".to_owned()], vec![]));
        assert!(!made.exists() && !journal.path.exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "before");
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_journal_that_is_just_begun_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let (living, cut) = (run_name(), run_name());
        assert_ne!(living, cut);
        // As a sweep of another process may find them: the first line is not there yet, or not all of it.
        fs::write(path_of(folder.path(), &living), "").unwrap();
        fs::write(path_of(folder.path(), &cut), "{\"pid\":").unwrap();
        let Owner { pid, start_ticks } = Owner::this_process();
        let dead = format!("{PREFIX}{pid}-{:x}-0", start_ticks + 1);
        for run in [&dead, "weir-", "weir-x-1-0", "weir-1-x-0", "weir-1-1"] {
            fs::write(path_of(folder.path(), run), "").unwrap();
        }
        assert_eq!(Owner::of_run(&living), Some(Owner::this_process()));
        assert_eq!(sweep(folder.path()).runs.len(), 5, "those of the dead, and nobody's");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!([&living, &cut].iter().all(|run| path_of(folder.path(), run).exists()));
    }

    #[test]
    fn a_process_of_another_start_is_let_be() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(end_process(pid, start_ticks(pid).unwrap() + 1), Ok(()));
        assert_eq!(child.try_wait().unwrap(), None);
        assert_eq!(end_process(pid, start_ticks(pid).unwrap()), Ok(()));
        child.wait().unwrap();
    }

    #[test]
    fn what_cannot_be_undone_stays_in_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(folder.path(), "weir-left").unwrap();
        let path = PathBuf::from("/no/such/folder/setting");
        journal.note(Made::Setting { path, before: String::new() }).unwrap();
        assert_eq!(journal.undo().len(), 1);
        assert!(journal.path.exists());
        assert!(Journal::begin(folder.path(), "weir-left").is_err());
    }
}
