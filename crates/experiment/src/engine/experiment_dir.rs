//! Directory of an experiment: its plan, its trials and its conclusions. Measurements survive a
//! kill at any time: trials are written atomically and never replace another file, broken files are
//! renamed, and nothing is deleted.
//!
//! Not for deciding what runs, nor for the layout of a report.

mod files;
mod list;
mod lock;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use record::experiment::{Experiment, ExperimentPlan, TrialSummary};
use record::file::ReadError;
use record::observed::UnobservableMetric;
use record::sorted::{CollectSorted, sort_by_key};
use record::trial::{ExperimentTrial, TrialPosition};
use serde::Serialize;

use super::blocks::EnvironmentChange;
use super::warm_up::{self, WarmUp};
use files::{TrialDetails, read_record, read_trials, write_new};
use lock::{DirLock, LockError};
use records::{SessionsRecord, plan_differences};

pub use files::{BrokenFile, file_name};
pub use list::{ENTRIES_MAX, ExperimentEntry, ExperimentListing, find_directories, list_experiments};
pub use records::{
    CONCLUSIONS_FILE, ChangedSettings, ExperimentDirError, ExperimentStart, PLAN_FILE, PLAN_SCHEMA,
    RunSession,
};

/// Name of the file that the plan was made from.
pub const EXPERIMENT_FILE: &str = "experiment.toml";
pub const TRIALS_DIR: &str = "trials";
/// Name of the file with the warm-up that the pilots determined.
pub const WARM_UP_FILE: &str = "warm-up.json";
/// Name of the file with the sessions: the start, and each resume.
pub const SESSIONS_FILE: &str = "sessions.json";
const SESSIONS_SCHEMA: &str = "weir.sessions/1";
/// Maximum number of experiments with the same name that begin in one second.
const SAME_NAME_MAX: u32 = 100;
/// Maximum number of bytes of a profile's folded stacks to read.
const FOLDED_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub struct ExperimentDir {
    path: PathBuf,
    start: ExperimentStart,
    trials: Vec<TrialSummary>,
    details: BTreeMap<u32, TrialDetails>,
    broken_files: Vec<BrokenFile>,
    last_number: u32,
    sessions: Vec<RunSession>,
    warm_up: Option<WarmUp>,
    next_settings: Option<ChangedSettings>,
    /// `None` if the directory was opened for reading only.
    lock: Option<DirLock>,
}

/// Returns the directory name of an experiment, from its name and an RFC 3339 time in UTC:
/// `allocator-20261122-064700`.
pub fn directory_name(name: &str, started_at: &str) -> String {
    let mut stamp: String = started_at.chars().filter(char::is_ascii_digit).take(14).collect();
    if stamp.len() > 8 {
        stamp.insert(8, '-');
    }
    format!("{name}-{stamp}")
}

impl ExperimentDir {
    /// Creates the directory of a new experiment and locks it. The directory must not exist.
    ///
    /// # Errors
    /// It exists, or the file system reports an error.
    pub fn create(path: &Path, start: ExperimentStart) -> Result<Self, ExperimentDirError> {
        let explain = |error: io::Error| ExperimentDirError::Io(format!("{}: {error}", path.display()));
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            fs::create_dir_all(above)
                .map_err(|error| ExperimentDirError::Io(format!("{}: {error}", above.display())))?;
        }
        // If two processes try at once, one succeeds.
        fs::create_dir(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ExperimentDirError::Exists(path.to_owned()),
            _ => explain(error),
        })?;
        let lock = lock_directory(path)?;
        fs::create_dir(path.join(TRIALS_DIR)).map_err(explain)?;
        let written = |error: io::Error| ExperimentDirError::Io(error.to_string());
        write_new(&path.join(EXPERIMENT_FILE), start.plan.file.as_bytes()).map_err(written)?;
        let start = ExperimentStart { schema: PLAN_SCHEMA.to_owned(), ..start };
        // The plan is written last: a directory with a plan is an experiment.
        write_new(&path.join(PLAN_FILE), &to_json(&start).map_err(written)?).map_err(written)?;
        Self::load(path, Some(lock))
    }

    /// Creates the directory of a new experiment below `root`, named after the experiment and its
    /// time. If the name is taken, a number is added.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn create_below(root: &Path, start: &ExperimentStart) -> Result<Self, ExperimentDirError> {
        let name = directory_name(&start.plan.name, &start.started_at);
        let mut path = root.join(&name);
        for number in 2..=SAME_NAME_MAX {
            match Self::create(&path, start.clone()) {
                Err(ExperimentDirError::Exists(_)) => path = root.join(format!("{name}-{number}")),
                done => return done,
            }
        }
        Err(ExperimentDirError::Exists(path))
    }

    /// Opens an experiment to resume it, and locks it. Broken trials are set aside.
    ///
    /// # Errors
    /// It does not exist, another process runs it, its files were edited, or the file system
    /// reports an error.
    pub fn open(path: &Path) -> Result<Self, ExperimentDirError> {
        check_is_experiment(path)?;
        let lock = lock_directory(path)?;
        Self::load(path, Some(lock))
    }

    /// Opens an experiment for reading only. It may be running. Nothing is changed.
    ///
    /// # Errors
    /// It does not exist, or it cannot be read.
    pub fn read(path: &Path) -> Result<Self, ExperimentDirError> {
        check_is_experiment(path)?;
        Self::load(path, None)
    }

    fn load(path: &Path, lock: Option<DirLock>) -> Result<Self, ExperimentDirError> {
        let start: ExperimentStart = read_record(&path.join(PLAN_FILE), PLAN_SCHEMA)?;
        let file = fs::read(path.join(EXPERIMENT_FILE)).map_err(|error| {
            ExperimentDirError::Io(format!("{}: {error}", path.join(EXPERIMENT_FILE).display()))
        })?;
        if file != start.plan.file.as_bytes() {
            let changed_fields = vec![format!("{EXPERIMENT_FILE} is not the text in {PLAN_FILE}")];
            return Err(ExperimentDirError::PlanChanged(path.to_owned(), changed_fields));
        }
        let trials = path.join(TRIALS_DIR);
        let stored = read_trials(&trials, TRIALS_DIR, &start.plan)?;
        let mut directory = Self {
            path: path.to_owned(),
            start,
            trials: stored.trials,
            details: stored.details,
            broken_files: stored.broken_files,
            last_number: stored.last_number,
            sessions: Vec::new(),
            warm_up: None,
            next_settings: None,
            lock,
        };
        if directory.lock.is_some() {
            for broken in &directory.broken_files {
                files::rename_broken_file(&trials, &broken.file)
                    .map_err(|error| ExperimentDirError::Io(format!("{}: {error}", broken.file)))?;
            }
        }
        directory.warm_up = directory.read_optional(WARM_UP_FILE, warm_up::SCHEMA)?;
        let sessions: Option<SessionsRecord> = directory.read_optional(SESSIONS_FILE, SESSIONS_SCHEMA)?;
        directory.sessions = sessions.map(|it| it.sessions).unwrap_or_default();
        let plan = &mut directory.start.plan;
        directory
            .sessions
            .iter()
            .filter_map(|session| session.settings.as_ref())
            .for_each(|it| it.apply(plan));
        Ok(directory)
    }

    /// Changes settings of the plan from the next session on. The plan's file keeps those of the start.
    pub fn change_settings(&mut self, settings: ChangedSettings) {
        settings.apply(&mut self.start.plan);
        self.next_settings = Some(settings).filter(|settings| *settings != ChangedSettings::default());
    }

    /// Returns the settings for the next session, which were not stored yet.
    pub(in crate::engine) fn take_next_settings(&mut self) -> Option<ChangedSettings> {
        self.next_settings.take()
    }

    /// Describes the settings that resumes changed, each with the number of the last trial before it.
    pub fn settings_changes(&self) -> Vec<String> {
        let changed = self.sessions.iter().filter_map(|session| Some((session, session.settings.as_ref()?)));
        changed
            .map(|(session, settings)| format!("{} after trial {}", settings.flags(), session.after_trial))
            .collect()
    }

    /// Reads an optional record beside the trials. A broken one is set aside, because it can be
    /// made again.
    fn read_optional<T: serde::de::DeserializeOwned>(
        &mut self,
        name: &str,
        schema: &'static str,
    ) -> Result<Option<T>, ExperimentDirError> {
        let path = self.path.join(name);
        if !path.exists() {
            return Ok(None);
        }
        match read_record(&path, schema) {
            Ok(value) => Ok(Some(value)),
            Err(error @ ReadError::Schema { .. }) => Err(error.into()),
            Err(error) => {
                if self.lock.is_some() {
                    files::rename_broken_file(&self.path, name)
                        .map_err(|error| ExperimentDirError::Io(format!("{name}: {error}")))?;
                }
                self.broken_files.push(BrokenFile { file: name.to_owned(), problem: error.to_string() });
                Ok(None)
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns everything that was fixed before the first trial.
    pub fn start(&self) -> &ExperimentStart {
        &self.start
    }

    /// Returns the trials in the order of running. Those that do not count are included and not
    /// marked yet ([`super::blocks::mark_discarded`]).
    pub fn trials(&self) -> &[TrialSummary] {
        &self.trials
    }

    /// Returns the files that were found to be broken on opening.
    pub fn broken_files(&self) -> &[BrokenFile] {
        &self.broken_files
    }

    /// Returns the mean number of requests begun by trial number, for drivers that report it.
    pub fn begun_means(&self) -> BTreeMap<u32, f64> {
        let details = self.details.iter();
        details.filter_map(|(number, it)| Some((*number, it.begun_mean?))).collect_map()
    }

    /// Returns the numbers of the trials in which functions were sampled.
    pub fn profiled_trials(&self) -> BTreeSet<u32> {
        let profiled = self.details.iter().filter(|(_, it)| it.is_profiled);
        profiled.map(|(number, _)| *number).collect_set()
    }

    /// Returns the fraction of the subject's CPU time that counting its calls took, by trial
    /// number. Trials without counted calls are absent.
    pub fn counting_fractions(&self) -> BTreeMap<u32, f64> {
        let details = self.details.iter();
        details.filter_map(|(number, it)| Some((*number, it.counting_fraction?))).collect_map()
    }

    /// Returns whether the requested calls were counted in the trial with this number.
    pub fn has_calls(&self, number: u32) -> bool {
        self.details.get(&number).is_some_and(|it| it.has_calls)
    }

    /// Returns the requested observations that were not possible in the trial with this number.
    pub fn not_observable(&self, number: u32) -> &[UnobservableMetric] {
        self.details.get(&number).map_or(&[], |it| &it.not_observable)
    }

    pub fn sessions(&self) -> &[RunSession] {
        &self.sessions
    }

    /// Describes the differences of all sessions from the experiment's start, without duplicates.
    pub fn change_descriptions(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for change in self.sessions.iter().flat_map(|session| &session.differences) {
            if !all.contains(change) {
                all.push(change.clone());
            }
        }
        all
    }

    /// Returns the changes between sessions, each with the number of the last trial before it.
    pub fn environment_changes(&self) -> Vec<EnvironmentChange> {
        self.sessions.iter().filter_map(RunSession::environment_change).collect()
    }

    /// Returns the warm-up that the pilots determined.
    pub fn warm_up(&self) -> Option<&WarmUp> {
        self.warm_up.as_ref()
    }

    pub fn next_number(&self) -> u32 {
        self.last_number + 1
    }

    /// Checks that the stored plan equals `read`, the plan that its file gives now.
    ///
    /// # Errors
    /// [`ExperimentDirError::PlanChanged`], with the differences.
    pub fn check_plan(&self, read: &ExperimentPlan) -> Result<(), ExperimentDirError> {
        let fields = plan_differences(&self.start.plan, read);
        if fields.is_empty() {
            return Ok(());
        }
        Err(ExperimentDirError::PlanChanged(self.path.join(PLAN_FILE), fields))
    }

    /// Reads one trial, by the file name in its line.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn trial(&self, file: &str) -> Result<ExperimentTrial, ReadError> {
        let path = self.trial_path(file)?;
        read_record(&path, record::trial::SCHEMA)
    }

    /// Reads the folded stacks of a trial's profile, by the name of its record. `None` if it has
    /// none.
    pub fn folded(&self, trial_file: &str) -> Option<String> {
        let path = self.trial_path(trial_file).ok()?.with_extension("folded");
        let is_small = fs::metadata(&path).ok()?.len() <= FOLDED_BYTES_MAX;
        is_small.then(|| fs::read_to_string(&path).ok())?
    }

    /// Reads the last conclusions.
    ///
    /// # Errors
    /// There are none yet, or they cannot be read.
    pub fn experiment(&self) -> Result<Experiment, ReadError> {
        read_record(&self.path.join(CONCLUSIONS_FILE), record::experiment::SCHEMA)
    }

    /// Converts the file name of a trial to a path. A name that leads outside the directory is
    /// rejected, because it may come from a browser.
    fn trial_path(&self, file: &str) -> Result<PathBuf, ReadError> {
        let name = file.strip_prefix(TRIALS_DIR).and_then(|rest| rest.strip_prefix('/'));
        match name {
            Some(name) if !name.contains('/') && !name.starts_with('.') => {
                Ok(self.path.join(TRIALS_DIR).join(name))
            }
            _ => Err(ReadError::Io {
                path: PathBuf::from(file),
                error: io::Error::new(io::ErrorKind::InvalidInput, "not the name of a trial"),
            }),
        }
    }

    /// Stores a trial and its folded stacks. The line in memory is read back from the written
    /// bytes, so that a resumed experiment has the same figures.
    ///
    /// # Errors
    /// Those of the file system, or the directory was opened for reading only.
    pub fn store(&mut self, trial: ExperimentTrial, folded: Option<&str>) -> io::Result<TrialSummary> {
        self.check_locked()?;
        let name = file_name(&trial.position);
        let path = self.path.join(TRIALS_DIR).join(&name);
        let mut trial = trial;
        if let Some(folded) = folded {
            // The stacks are written before the record that refers to them.
            let beside = path.with_extension("folded");
            write_new(&beside, folded.as_bytes())?;
            trial.folded = beside.file_name().map(|name| name.to_string_lossy().into_owned());
        }
        let bytes = to_json(&trial)?;
        write_new(&path, &bytes)?;
        let stored: ExperimentTrial = serde_json::from_slice(&bytes)?;
        let line = files::summarize(&stored, format!("{TRIALS_DIR}/{name}"));
        self.last_number = self.last_number.max(line.position.number);
        self.details.insert(line.position.number, TrialDetails::from_trial(&stored));
        self.trials.push(line.clone());
        sort_by_key(&mut self.trials, |line| line.position.number);
        Ok(line)
    }

    /// Stores the warm-up.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store_warm_up(&mut self, warm_up: &WarmUp) -> io::Result<()> {
        self.check_locked()?;
        let bytes = to_json(warm_up)?;
        write_new(&self.path.join(WARM_UP_FILE), &bytes)?;
        self.warm_up = Some(serde_json::from_slice(&bytes)?);
        Ok(())
    }

    /// Stores the sessions. The last one may be replaced.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store_sessions(&mut self, sessions: Vec<RunSession>) -> io::Result<()> {
        self.check_locked()?;
        let all = SessionsRecord { schema: SESSIONS_SCHEMA.to_owned(), sessions };
        files::replace(&self.path.join(SESSIONS_FILE), &to_json(&all)?)?;
        self.sessions = all.sessions;
        Ok(())
    }

    /// Writes the conclusions, and replaces earlier ones.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store_experiment(&self, experiment: &Experiment) -> io::Result<()> {
        self.check_locked()?;
        files::replace(&self.path.join(CONCLUSIONS_FILE), &to_json(experiment)?)
    }

    fn check_locked(&self) -> io::Result<()> {
        let refused = || io::Error::new(io::ErrorKind::PermissionDenied, "the directory is read-only");
        self.lock.as_ref().map(|_| ()).ok_or_else(refused)
    }

    pub fn position(&self, slot: &super::next_step::TrialSlot) -> TrialPosition {
        TrialPosition {
            number: self.next_number(),
            block: slot.block,
            attempt: slot.attempt,
            arm: slot.arm_load.arm.clone(),
            load: slot.arm_load.load.clone(),
            kind: slot.kind,
        }
    }
}

fn to_json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn lock_directory(path: &Path) -> Result<DirLock, ExperimentDirError> {
    DirLock::acquire(path).map_err(|lock_error| match lock_error {
        LockError::InUse(pid) => ExperimentDirError::InUse(path.to_owned(), pid),
        LockError::Io(error) => ExperimentDirError::Io(format!("{}: {error}", path.display())),
    })
}

/// Checks that there is an experiment at `path`, before anything there is changed.
fn check_is_experiment(path: &Path) -> Result<(), ExperimentDirError> {
    let reason = if !path.exists() {
        "no such directory"
    } else if !path.is_dir() {
        "it is a file"
    } else if !path.join(PLAN_FILE).exists() {
        "no plan.json; an experiment killed before its first trial cannot be resumed: start it again under another name"
    } else {
        return Ok(());
    };
    Err(ExperimentDirError::NotAnExperiment(path.to_owned(), reason.to_owned()))
}

#[cfg(test)]
mod tests;
