//! Files of an experiment's directory. New files never replace another one. Broken files are set
//! aside when trials are read back. Not for the meaning of the records.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use host::observe::SUBJECT;
use record::experiment::{ExperimentPlan, TrialSummary};
use record::file::ReadError;
use record::observed::UnobservableMetric;
use record::run::Run;
use record::sorted::sort_by_key;
use record::trial::{ExperimentTrial, SCHEMA, TrialPosition};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::records::ExperimentDirError;

/// Maximum number of bytes of a record: ten times that of an hour's trial with all observations.
pub(super) const RECORD_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of entries in the trials directory: 360 cells in a hundred blocks, with their
/// profiles.
const ENTRIES_MAX: usize = 100_000;
/// Suffix of files that are set aside.
const BROKEN_SUFFIX: &str = "broken";
/// Maximum number of attempts to find a free name.
const NAME_ATTEMPTS_MAX: u32 = 1_000;

/// File that was set aside, because its content does not match its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenFile {
    /// Former name in the trials directory.
    pub file: String,
    pub problem: String,
}

/// Facts about a trial that a judgement needs and its line lacks: records are large and are not
/// kept in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TrialDetails {
    /// Mean number of requests begun, that is due and without their response, if the driver reports it.
    pub(super) begun_mean: Option<f64>,
    /// True if the subject's functions were sampled.
    pub(super) is_profiled: bool,
    /// Fraction of the subject's CPU time that counting its calls took, if calls were counted.
    pub(super) counting_fraction: Option<f64>,
    /// True if the requested calls were counted.
    pub(super) has_calls: bool,
    /// Requested observations that were not possible.
    pub(super) not_observable: Vec<UnobservableMetric>,
}

impl TrialDetails {
    pub(super) fn from_trial(trial: &ExperimentTrial) -> Self {
        Self {
            begun_mean: trial.run.as_ref().map(begun_mean),
            is_profiled: trial.folded.is_some(),
            counting_fraction: counting_fraction(trial),
            has_calls: trial.calls.is_some(),
            not_observable: trial.not_observable.clone(),
        }
    }
}

/// Returns the mean number of requests between their due time and their last byte. Requests in flight
/// count from their first sent byte, so those between the due time and the send come on top, by Little's
/// law for that time: in a closed loop they wait for a connection and its handshakes.
fn begun_mean(run: &Run) -> f64 {
    let latency = &run.latency.last_byte;
    let until_sent_s = (latency.response.mean_ns - latency.service.mean_ns).max(0.0) / 1e9;
    run.generator.in_flight_mean + run.rates.responses_per_s * until_sent_s
}

fn counting_fraction(trial: &ExperimentTrial) -> Option<f64> {
    let run_observations = trial.run.iter().flat_map(|run| &run.observed);
    let calls = run_observations.chain(&trial.observed).flat_map(|observed| &observed.calls);
    let spent = calls.filter(|call| call.role == SUBJECT);
    let spent_s = spent.map(|call| call.cost_cpus * call.length_s).reduce(|sum, s| sum + s)?;
    let used_s = trial.metrics.get("subject_cpus")? * trial.duration_s;
    (used_s > 0.0).then(|| spent_s / used_s)
}

#[derive(Debug, Default)]
pub(super) struct StoredTrials {
    /// Trials in the order of their numbers.
    pub(super) trials: Vec<TrialSummary>,
    /// Further facts about the trials, by number.
    pub(super) details: BTreeMap<u32, TrialDetails>,
    pub(super) broken_files: Vec<BrokenFile>,
    /// Highest number in a file name, broken files included: no number is used twice.
    pub(super) last_number: u32,
}

/// Returns the file name of a trial: `0001-b01-jemalloc-c10.json`.
pub fn file_name(position: &TrialPosition) -> String {
    format!("{:04}-b{:02}-{}-{}.json", position.number, position.block, position.arm, position.load)
}

/// Writes a new file atomically and durably: it survives a power failure.
///
/// # Errors
/// Those of the file system; [`io::ErrorKind::AlreadyExists`] if the name is taken.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let (part, mut file) = record::file::create_temporary(path).map_err(with_path)?;
    let mut write = || {
        file.write_all(bytes)?;
        file.sync_all()?;
        rename_without_replacing(&part, path)?;
        sync_parent_directory(path)
    };
    write().map_err(|error| {
        // The partial file is useless. If its removal fails too, the next start sets it aside.
        let _ = fs::remove_file(&part);
        with_path(error)
    })
}

/// Replaces a file durably: it survives a power failure.
///
/// # Errors
/// Those of the file system.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    record::file::write_atomically(path, bytes)?;
    sync_parent_directory(path)
}

fn sync_parent_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    File::open(directory)?.sync_all()
}

fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system has no RENAME_NOREPLACE. No other process writes here: the directory is
        // locked.
        Err(Errno::INVAL | Errno::NOSYS) if to.exists() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        done => Ok(done?),
    }
}

/// Reads a record, unless it exceeds the size limit.
///
/// # Errors
/// Those of [`record::file::read`].
pub(super) fn read_record<T: DeserializeOwned>(path: &Path, schema: &'static str) -> Result<T, ReadError> {
    let io = |error| ReadError::Io { path: path.to_owned(), error };
    let bytes = fs::metadata(path).map_err(io)?.len();
    if bytes > RECORD_BYTES_MAX {
        let text = format!("{bytes} bytes; a record has at most {RECORD_BYTES_MAX}");
        return Err(io(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    record::file::read_record(path, schema)
}

/// Converts a trial to its line in the report.
pub(super) fn summarize(trial: &ExperimentTrial, file: String) -> TrialSummary {
    let diagnosis = trial.diagnosis.as_ref();
    let diagnosis = diagnosis.or_else(|| trial.run.as_ref().and_then(|run| run.diagnosis.as_ref()));
    TrialSummary {
        position: trial.position.clone(),
        started_at: trial.started_at.clone(),
        file,
        metrics: trial.metrics.clone(),
        covariates: trial.covariates.clone(),
        steady: trial.steady.clone(),
        verdict: diagnosis.map(|diagnosis| diagnosis.verdict.clone()),
        discarded: None,
        failed: trial.failed.clone(),
    }
}

/// Reads all trials of `plan` in a directory.
///
/// # Errors
/// The directory cannot be read or has too many entries, or its trials are from another version of
/// weir.
pub(super) fn read_trials(
    directory: &Path,
    name: &str,
    plan: &ExperimentPlan,
) -> Result<StoredTrials, ExperimentDirError> {
    let mut stored = StoredTrials::default();
    let names = file_names(directory).map_err(|error| ExperimentDirError::Io(error.to_string()))?;
    for file in &names {
        stored.last_number = stored.last_number.max(leading_number(file).unwrap_or(0));
        let problem = match extension(file) {
            "json" => match read_record::<ExperimentTrial>(&directory.join(file), SCHEMA) {
                Ok(trial) => match position_problem(&trial.position, file, plan, &stored.trials) {
                    None => {
                        stored.details.insert(trial.position.number, TrialDetails::from_trial(&trial));
                        stored.trials.push(summarize(&trial, format!("{name}/{file}")));
                        continue;
                    }
                    Some(problem) => problem,
                },
                Err(error @ ReadError::Schema { .. }) if is_other_trial_schema(&error) => {
                    return Err(ExperimentDirError::Io(error.to_string()));
                }
                Err(error) => error.to_string(),
            },
            "part" => "incomplete".to_owned(),
            "folded" if !names.contains(&file.replace(".folded", ".json")) => "it has no trial".to_owned(),
            _ => continue,
        };
        stored.broken_files.push(BrokenFile { file: file.clone(), problem });
    }
    sort_by_key(&mut stored.trials, |line| line.position.number);
    Ok(stored)
}

fn is_other_trial_schema(error: &ReadError) -> bool {
    matches!(error, ReadError::Schema { actual, .. } if actual.starts_with("weir.trial/"))
}

/// Returns the reason why a record cannot be the trial that its file name states.
fn position_problem(
    position: &TrialPosition,
    file: &str,
    plan: &ExperimentPlan,
    before: &[TrialSummary],
) -> Option<String> {
    if file_name(position) != file {
        return Some(format!("its position belongs to {}", file_name(position)));
    }
    let is_known =
        plan.arm(&position.arm).is_some() && plan.loads.iter().any(|load| load.name == position.load);
    if !is_known {
        return Some("its arm or load is not in the plan".to_owned());
    }
    let same = |line: &&TrialSummary| {
        let other = &line.position;
        TrialPosition { number: position.number, ..other.clone() } == *position
            || other.number == position.number
    };
    let other = before.iter().find(same)?;
    Some(format!("it exists twice: {}", other.file))
}

/// Returns the file names in a directory, sorted.
fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    let explain =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(explain)? {
        names.push(entry.map_err(explain)?.file_name().to_string_lossy().into_owned());
        if names.len() > ENTRIES_MAX {
            return Err(explain(io::Error::other(format!("more than {ENTRIES_MAX} files"))));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

fn leading_number(name: &str) -> Option<u32> {
    name.trim_start_matches('.').split_once('-')?.0.parse().ok()
}

/// Renames an unusable file to a free name: nothing is deleted.
///
/// # Errors
/// Those of the file system.
pub(super) fn rename_broken_file(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let plain = name.trim_start_matches('.');
    for number in 1..=NAME_ATTEMPTS_MAX {
        let ending = if number == 1 { BROKEN_SUFFIX.to_owned() } else { format!("{number}.{BROKEN_SUFFIX}") };
        let path = directory.join(format!("{plain}.{ending}"));
        match rename_without_replacing(&directory.join(name), &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::super::super::simulated::plan;
    use super::*;

    fn names_in(directory: &Path) -> Vec<String> {
        file_names(directory).unwrap()
    }

    #[test]
    fn no_file_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0001-b01-a-x.json");
        write_new(&path, b"first").unwrap();
        let error = write_new(&path, b"second").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("0001-b01-a-x.json"));
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names_in(directory.path()).len(), 1, "no part is left");
        replace(&path, b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
    }

    #[test]
    fn broken_files_keep_all_names() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["1", "2", "3"] {
            fs::write(directory.path().join("0001-x.json"), text).unwrap();
            rename_broken_file(directory.path(), "0001-x.json").unwrap();
        }
        let expected = ["0001-x.json.2.broken", "0001-x.json.3.broken", "0001-x.json.broken"];
        assert_eq!(names_in(directory.path()), expected);
        assert!(rename_broken_file(directory.path(), "not there").is_err());
    }

    #[test]
    fn invalid_trials_are_reported_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let plan = plan(&["a", "b"], &["x"]);
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        let trial = |number: u32, arm: &str| ExperimentTrial {
            schema: SCHEMA.to_owned(),
            position: TrialPosition {
                number,
                block: 1,
                attempt: 1,
                arm: arm.to_owned(),
                load: "x".to_owned(),
                ..TrialPosition::default()
            },
            ..ExperimentTrial::default()
        };
        let record = |number, arm| serde_json::to_string(&trial(number, arm)).unwrap();
        write("0001-b01-a-x.json", &record(1, "a"));
        write("0001-b01-a-x.folded", "a;b 1");
        write("0002-b01-b-x.json", &record(2, "b")[..40]);
        write("0003-b01-c-x.json", &record(3, "c"));
        write("0004-b01-b-x.json", &record(5, "b"));
        write("0006-b01-a-x.json", &record(6, "a"));
        write(".0007-b01-b-x.json.99.part", "{");
        write("0008-b01-b-x.folded", "a;b 1");
        write("0012-b01-b-x.json.broken", "{");
        write("notes.txt", "mine");
        let stored = read_trials(directory.path(), "trials", &plan).unwrap();
        assert_eq!(stored.trials.len(), 1);
        assert_eq!(stored.trials[0].file, "trials/0001-b01-a-x.json");
        assert_eq!(stored.last_number, 12);
        let reported: Vec<(&str, &str)> =
            stored.broken_files.iter().map(|it| (it.file.as_str(), it.problem.as_str())).collect();
        assert_eq!(reported.len(), 6, "{reported:?}");
        let problem_of = |name: &str| reported.iter().find(|(file, _)| *file == name).unwrap().1;
        assert!(problem_of("0002-b01-b-x.json").contains("0002-b01-b-x.json:1:"));
        // Its arm is not in the plan.
        let mut with_arm = plan.clone();
        "c".clone_into(&mut with_arm.arms[1].name);
        let (position, file) = (trial(3, "c").position, "0003-b01-c-x.json");
        let unknown_arm = position_problem(&position, file, &plan, &[]);
        assert_eq!(Some(problem_of(file)), unknown_arm.as_deref());
        assert_eq!(position_problem(&position, file, &with_arm, &[]), None);
        assert!(problem_of("0004-b01-b-x.json").contains("0005-b01-b-x.json"));
        assert!(problem_of("0006-b01-a-x.json").contains("0001-b01-a-x.json"));
        assert!(problem_of(".0007-b01-b-x.json.99.part").contains("incomplete"));
        assert!(problem_of("0008-b01-b-x.folded").contains("no trial"));
        // Trials of another version of weir are not broken.
        write("0009-b01-b-x.json", "{\"schema\":\"weir.trial/2\"}");
        assert!(
            read_trials(directory.path(), "trials", &plan).unwrap_err().to_string().contains("weir.trial/2")
        );
    }
}
