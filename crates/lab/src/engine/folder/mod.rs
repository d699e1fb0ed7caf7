//! The folder of an experiment: what was planned, its trials, and what came of them. Whatever is killed
//! when, what was measured stays: trials are written whole and never over another, what is broken is set
//! aside under another name, and nothing is deleted.
//!
//! Not for deciding what runs, nor for what a report looks like.

mod files;
mod list;
mod lock;
mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use record::experiment::{Experiment, Plan, TrialLine};
use record::file::ReadError;
use record::observed::Missing;
use record::trial::{Place, Trial};
use serde::Serialize;

use super::blocks::Changed;
use super::warm_up::{self, WarmUp};
use files::{Beside, read_record, read_trials, write_new};
use lock::{Lock, NotTaken};
use parts::{Sessions, differences};

pub use files::{SetAside, file_name};
pub use list::{ENTRIES_MAX, Listed, Listing, list};
pub use parts::{FolderError, Session, Start};

/// The file that the plan was made of.
pub const FILE: &str = "experiment.toml";
/// What was fixed before the first trial.
pub const PLAN: &str = "plan.json";
/// The folder of the trials.
pub const TRIALS: &str = "trials";
/// What came of it, [`Experiment`].
pub const EXPERIMENT: &str = "experiment.json";
/// The warm-up that pilots found.
pub const WARM_UP: &str = "warm-up.json";
/// When it was run, and how often it was taken up again.
pub const SESSIONS: &str = "sessions.json";
/// The schema of [`Start`].
pub const PLAN_SCHEMA: &str = "weir.plan/1";
const SESSIONS_SCHEMA: &str = "weir.sessions/1";
/// The most experiments that begin in one second and have the same name.
const SAME_NAME_MAX: u32 = 100;
/// The most bytes of a profile's folded stacks that are read.
const FOLDED_BYTES_MAX: u64 = 64 << 20;

/// The folder of an experiment, with what stands in it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    start: Start,
    lines: Vec<TrialLine>,
    beside: BTreeMap<u32, Beside>,
    set_aside: Vec<SetAside>,
    number_last: u32,
    sessions: Vec<Session>,
    warm_up: Option<WarmUp>,
    /// Absent: it is only read.
    lock: Option<Lock>,
}

/// The name of an experiment's folder: `allocator-20261122-064700`, of its name and an RFC 3339 time in
/// UTC.
#[must_use]
pub fn name_for(name: &str, started_at: &str) -> String {
    let mut stamp: String = started_at.chars().filter(char::is_ascii_digit).take(14).collect();
    if stamp.len() > 8 {
        stamp.insert(8, '-');
    }
    format!("{name}-{stamp}")
}

impl Folder {
    /// Makes the folder of a new experiment, which must not be there, and holds it.
    ///
    /// # Errors
    /// It is there, or the file system refuses.
    pub fn create(path: &Path, start: Start) -> Result<Self, FolderError> {
        let explain = |error: io::Error| FolderError::Io(format!("{}: {error}", path.display()));
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above)
                .map_err(|error| FolderError::Io(format!("{}: {error}", above.display())))?;
        }
        // Of two that try at once, one succeeds.
        fs::create_dir(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FolderError::Exists(path.to_owned()),
            _ => explain(error),
        })?;
        let lock = hold(path)?;
        fs::create_dir(path.join(TRIALS)).map_err(explain)?;
        let written = |error: io::Error| FolderError::Io(error.to_string());
        write_new(&path.join(FILE), start.plan.file.as_bytes()).map_err(written)?;
        let start = Start { schema: PLAN_SCHEMA.to_owned(), ..start };
        // The plan is the last: a folder that has one is an experiment.
        write_new(&path.join(PLAN), &json(&start).map_err(written)?).map_err(written)?;
        Self::begin(path, Some(lock))
    }

    /// Makes the folder of a new experiment below `root`, named by the experiment and its time, or with
    /// a number added where that is taken.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn create_below(root: &Path, start: &Start) -> Result<Self, FolderError> {
        let name = name_for(&start.plan.name, &start.started_at);
        let mut path = root.join(&name);
        for number in 2..=SAME_NAME_MAX {
            match Self::create(&path, start.clone()) {
                Err(FolderError::Exists(_)) => path = root.join(format!("{name}-{number}")),
                done => return done,
            }
        }
        Err(FolderError::Exists(path))
    }

    /// Opens an experiment to go on with it, and holds it. What is no whole trial is set aside.
    ///
    /// # Errors
    /// There is none, another process runs it, what is in it was edited, or the file system refuses.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        is_one(path)?;
        let lock = hold(path)?;
        Self::begin(path, Some(lock))
    }

    /// Opens an experiment to look at it; it may run meanwhile. Nothing is changed.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        is_one(path)?;
        Self::begin(path, None)
    }

    fn begin(path: &Path, lock: Option<Lock>) -> Result<Self, FolderError> {
        let start: Start = read_record(&path.join(PLAN), PLAN_SCHEMA)?;
        let file = fs::read(path.join(FILE))
            .map_err(|error| FolderError::Io(format!("{}: {error}", path.join(FILE).display())))?;
        if file != start.plan.file.as_bytes() {
            let what = vec![format!("{FILE} is not the text in {PLAN}")];
            return Err(FolderError::Edited(path.to_owned(), what));
        }
        let trials = path.join(TRIALS);
        let found = read_trials(&trials, TRIALS, &start.plan).map_err(FolderError::Io)?;
        let mut folder = Self {
            path: path.to_owned(),
            start,
            lines: found.lines,
            beside: found.beside,
            set_aside: found.broken,
            number_last: found.number_last,
            sessions: Vec::new(),
            warm_up: None,
            lock,
        };
        if folder.lock.is_some() {
            for broken in &folder.set_aside {
                files::set_aside(&trials, &broken.file)
                    .map_err(|error| FolderError::Io(format!("{}: {error}", broken.file)))?;
            }
        }
        folder.warm_up = folder.small(WARM_UP, warm_up::SCHEMA)?;
        let sessions: Option<Sessions> = folder.small(SESSIONS, SESSIONS_SCHEMA)?;
        folder.sessions = sessions.map(|it| it.sessions).unwrap_or_default();
        Ok(folder)
    }

    /// A record beside the trials that may be missing; one that is broken is set aside, because it can be
    /// made again.
    fn small<T: serde::de::DeserializeOwned>(
        &mut self,
        name: &str,
        schema: &'static str,
    ) -> Result<Option<T>, FolderError> {
        let path = self.path.join(name);
        if !path.exists() {
            return Ok(None);
        }
        match read_record(&path, schema) {
            Ok(value) => Ok(Some(value)),
            Err(error @ ReadError::Schema { .. }) => Err(error.into()),
            Err(error) => {
                if self.lock.is_some() {
                    files::set_aside(&self.path, name)
                        .map_err(|error| FolderError::Io(format!("{name}: {error}")))?;
                }
                self.set_aside.push(SetAside { file: name.to_owned(), why: error.to_string() });
                Ok(None)
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was fixed before the first trial.
    #[must_use]
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// Its trials in the order of running, those that do not count among them and not marked
    /// ([`super::blocks::mark`]).
    #[must_use]
    pub fn lines(&self) -> &[TrialLine] {
        &self.lines
    }

    /// What was found to be broken when it was opened.
    #[must_use]
    pub fn set_aside(&self) -> &[SetAside] {
        &self.set_aside
    }

    /// How many requests were in flight on average, by the trial's number, where its driver tells.
    #[must_use]
    pub fn in_flight(&self) -> BTreeMap<u32, f64> {
        let told = self.beside.iter();
        told.filter_map(|(number, it)| Some((*number, it.in_flight_mean?))).collect()
    }

    /// Numbers of the trials during which functions were sampled.
    #[must_use]
    pub fn profiled(&self) -> BTreeSet<u32> {
        let profiled = self.beside.iter().filter(|(_, it)| it.profiled);
        profiled.map(|(number, _)| *number).collect()
    }

    /// Share of the subject's processor time that counting its calls took, by the trial's number, where any
    /// were counted.
    #[must_use]
    pub fn counting_shares(&self) -> BTreeMap<u32, f64> {
        let told = self.beside.iter();
        told.filter_map(|(number, it)| Some((*number, it.counting_share?))).collect()
    }

    /// Whether the calls that the experiment asks for were counted in the trial of this number.
    #[must_use]
    pub fn has_calls(&self, number: u32) -> bool {
        self.beside.get(&number).is_some_and(|it| it.has_calls)
    }

    /// What could not be looked at in the trial of this number, though it was asked for.
    #[must_use]
    pub fn not_observable(&self, number: u32) -> &[Missing] {
        self.beside.get(&number).map_or(&[], |it| &it.not_observable)
    }

    /// When it was run.
    #[must_use]
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// What of the machine and the programs was other in a session than when the experiment began, each
    /// once.
    #[must_use]
    pub fn changes(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for change in self.sessions.iter().flat_map(|session| &session.differs) {
            if !all.contains(change) {
                all.push(change.clone());
            }
        }
        all
    }

    /// After which trials it was gone on with while something was other than before, and what.
    #[must_use]
    pub fn changed_after(&self) -> Vec<Changed> {
        self.sessions.iter().filter_map(Session::changed).collect()
    }

    /// The warm-up that its pilots found.
    #[must_use]
    pub fn warm_up(&self) -> Option<&WarmUp> {
        self.warm_up.as_ref()
    }

    /// The number of the next trial.
    #[must_use]
    pub fn number_next(&self) -> u32 {
        self.number_last + 1
    }

    /// Whether the plan that is stored is the one that its file gives, read again.
    ///
    /// # Errors
    /// [`FolderError::Edited`], with what is other.
    pub fn check_plan(&self, read: &Plan) -> Result<(), FolderError> {
        let what = differences(&self.start.plan, read);
        if what.is_empty() {
            return Ok(());
        }
        Err(FolderError::Edited(self.path.join(PLAN), what))
    }

    /// One trial, by the name that its line gives.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn trial(&self, file: &str) -> Result<Trial, ReadError> {
        let path = self.below(file)?;
        read_record(&path, record::trial::SCHEMA)
    }

    /// The folded stacks of a trial's profile, by the name of its record; absent: it has none.
    #[must_use]
    pub fn folded(&self, trial_file: &str) -> Option<String> {
        let path = self.below(trial_file).ok()?.with_extension("folded");
        let is_small = fs::metadata(&path).ok()?.len() <= FOLDED_BYTES_MAX;
        is_small.then(|| fs::read_to_string(&path).ok())?
    }

    /// What was concluded last.
    ///
    /// # Errors
    /// There is nothing yet, or it cannot be read.
    pub fn experiment(&self) -> Result<Experiment, ReadError> {
        read_record(&self.path.join(EXPERIMENT), record::experiment::SCHEMA)
    }

    /// A name of a trial as a path; a name that leads elsewhere is refused, because it may come from a
    /// browser.
    fn below(&self, file: &str) -> Result<PathBuf, ReadError> {
        let name = file.strip_prefix(TRIALS).and_then(|rest| rest.strip_prefix('/'));
        match name {
            Some(name) if !name.contains('/') && !name.starts_with('.') => {
                Ok(self.path.join(TRIALS).join(name))
            }
            _ => Err(ReadError::Io {
                path: PathBuf::from(file),
                error: io::Error::new(io::ErrorKind::InvalidInput, "no name of a trial"),
            }),
        }
    }

    /// Stores a trial that ran, and its folded stacks beside it. What is read from now on is what stands
    /// on the disk, so that an experiment that is resumed sees the same figures.
    ///
    /// # Errors
    /// As of the file system; the folder is only read.
    pub fn store(&mut self, trial: Trial, folded: Option<&str>) -> io::Result<TrialLine> {
        self.check_held()?;
        let name = file_name(&trial.place);
        let path = self.path.join(TRIALS).join(&name);
        let mut trial = trial;
        if let Some(folded) = folded {
            // Before its record, which says that it is there.
            let beside = path.with_extension("folded");
            write_new(&beside, folded.as_bytes())?;
            trial.folded = beside.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        let bytes = json(&trial)?;
        write_new(&path, &bytes)?;
        let stored: Trial = serde_json::from_slice(&bytes)?;
        let line = files::line_of(&stored, format!("{TRIALS}/{name}"));
        self.number_last = self.number_last.max(line.place.number);
        self.beside.insert(line.place.number, Beside::of(&stored));
        self.lines.push(line.clone());
        self.lines.sort_by_key(|line| line.place.number);
        Ok(line)
    }

    /// Stores the warm-up that was found.
    ///
    /// # Errors
    /// As of the file system.
    pub fn store_warm_up(&mut self, warm_up: &WarmUp) -> io::Result<()> {
        self.check_held()?;
        let bytes = json(warm_up)?;
        write_new(&self.path.join(WARM_UP), &bytes)?;
        self.warm_up = Some(serde_json::from_slice(&bytes)?);
        Ok(())
    }

    /// Stores when it was run; the last session may be written anew.
    ///
    /// # Errors
    /// As of the file system.
    pub fn store_sessions(&mut self, sessions: Vec<Session>) -> io::Result<()> {
        self.check_held()?;
        let all = Sessions { schema: SESSIONS_SCHEMA.to_owned(), sessions };
        files::replace(&self.path.join(SESSIONS), &json(&all)?)?;
        self.sessions = all.sessions;
        Ok(())
    }

    /// Writes what was concluded anew.
    ///
    /// # Errors
    /// As of the file system.
    pub fn store_experiment(&self, experiment: &Experiment) -> io::Result<()> {
        self.check_held()?;
        files::replace(&self.path.join(EXPERIMENT), &json(experiment)?)
    }

    fn check_held(&self) -> io::Result<()> {
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "the folder is only read");
        self.lock.as_ref().map(|_| ()).ok_or_else(refused)
    }

    /// A place for the next trial.
    #[must_use]
    pub fn place(&self, slot: &super::next::Slot) -> Place {
        Place {
            number: self.number_next(),
            block: slot.block,
            attempt: slot.attempt,
            arm: slot.spot.arm.clone(),
            load: slot.spot.load.clone(),
            kind: slot.kind,
        }
    }
}

fn json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn hold(path: &Path) -> Result<Lock, FolderError> {
    Lock::take(path).map_err(|why| match why {
        NotTaken::Held(pid) => FolderError::Held(path.to_owned(), pid),
        NotTaken::Io(error) => FolderError::Io(format!("{}: {error}", path.display())),
    })
}

/// Whether there is an experiment at `path`, before anything there is touched.
fn is_one(path: &Path) -> Result<(), FolderError> {
    let why = if !path.exists() {
        "it is not there"
    } else if !path.is_dir() {
        "it is a file"
    } else if !path.join(PLAN).exists() {
        "it has no plan.json; what was killed before its first trial is begun anew, under another name"
    } else {
        return Ok(());
    };
    Err(FolderError::NotOne(path.to_owned(), why.to_owned()))
}

#[cfg(test)]
mod tests;
