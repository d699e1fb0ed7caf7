//! Files of an experiment's folder: new ones that never replace another, and trials read back with what is
//! broken set aside. Not for what they mean.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use host::observe::SUBJECT;
use record::experiment::{Plan, TrialLine};
use record::file::ReadError;
use record::observed::Missing;
use record::trial::{Place, SCHEMA, Trial};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

/// The most bytes of a record that are read: an hour's trial with all that was observed has a tenth of it.
pub(super) const RECORD_BYTES_MAX: u64 = 256 << 20;
/// The most entries of a folder of trials: 360 cells in a hundred blocks, with their profiles.
const ENTRIES_MAX: usize = 100_000;
/// What is set aside ends so.
const BROKEN: &str = "broken";
/// The most tries at a free name.
const NAMES_MAX: u32 = 1_000;

/// A file that was set aside, because it cannot be what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its name in the folder of trials before.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

/// What a judgement needs of a trial and its line does not have: records are large and are not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// Mean number of requests in flight, counted, where the driver tells.
    pub(super) in_flight_mean: Option<f64>,
    /// Whether the subject's functions were sampled.
    pub(super) profiled: bool,
    /// Share of the subject's processor time that counting its calls took, where any were counted.
    pub(super) counting_share: Option<f64>,
    /// Whether the calls that were asked for were counted.
    pub(super) has_calls: bool,
    /// What was asked for and could not be looked at.
    pub(super) not_observable: Vec<Missing>,
}

impl Beside {
    pub(super) fn of(trial: &Trial) -> Self {
        Self {
            in_flight_mean: trial.run.as_ref().map(|run| run.generator.in_flight_mean),
            profiled: trial.folded.is_some(),
            counting_share: counting_share(trial),
            has_calls: trial.calls.is_some(),
            not_observable: trial.not_observable.clone(),
        }
    }
}

fn counting_share(trial: &Trial) -> Option<f64> {
    let of_run = trial.run.iter().flat_map(|run| &run.observed);
    let calls = of_run.chain(&trial.observed).flat_map(|seen| &seen.calls);
    let spent = calls.filter(|call| call.role == SUBJECT);
    let spent_s = spent.map(|call| call.cost_cpus * call.length_s).reduce(|sum, s| sum + s)?;
    let used_s = trial.metrics.get("subject_cpus")? * trial.duration_s;
    (used_s > 0.0).then(|| spent_s / used_s)
}

/// The trials of a folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order of their numbers.
    pub(super) lines: Vec<TrialLine>,
    /// What else is kept of them, by number.
    pub(super) beside: BTreeMap<u32, Beside>,
    /// What is no trial.
    pub(super) broken: Vec<SetAside>,
    /// The highest number that a name has, of broken ones too: none is used twice.
    pub(super) number_last: u32,
}

/// The name of a trial's file: `0001-b01-jemalloc-c10.json`.
#[must_use]
pub fn file_name(place: &Place) -> String {
    format!("{:04}-b{:02}-{}-{}.json", place.number, place.block, place.arm, place.load)
}

/// Writes a file whose name is not taken, whole or not at all, so that it is still there after the machine
/// lost its power.
///
/// # Errors
/// As of the file system; [`io::ErrorKind::AlreadyExists`] when the name is taken.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let part = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        rename_new(&part, path)?;
        sync_folder_of(path)
    });
    written.map_err(|error| {
        // The part is ours and of no use; if even this fails, it is set aside at the next start.
        let _ = fs::remove_file(&part);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })
}

/// Writes a file anew, so that it is still there after the machine lost its power.
///
/// # Errors
/// As of the file system.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    record::file::write_whole(path, bytes)?;
    sync_folder_of(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    File::open(folder)?.sync_all()
}

fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that cannot do it at once: nobody else writes here, the folder is locked.
        Err(Errno::INVAL | Errno::NOSYS) if to.exists() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        done => Ok(done?),
    }
}

/// Reads a record, unless it is larger than any can be.
///
/// # Errors
/// As [`record::file::read`].
pub(super) fn read_record<T: DeserializeOwned>(
    path: &Path,
    schema: &'static str,
) -> Result<T, ReadError> {
    let io = |error| ReadError::Io { path: path.to_owned(), error };
    let bytes = fs::metadata(path).map_err(io)?.len();
    if bytes > RECORD_BYTES_MAX {
        let text = format!("{bytes} bytes; a record has at most {RECORD_BYTES_MAX}");
        return Err(io(io::Error::new(io::ErrorKind::FileTooLarge, text)));
    }
    record::file::read(path, schema)
}

/// What a report says of a trial.
pub(super) fn line_of(trial: &Trial, file: String) -> TrialLine {
    let diagnosis = trial.diagnosis.as_ref();
    let diagnosis = diagnosis.or_else(|| trial.run.as_ref().and_then(|run| run.diagnosis.as_ref()));
    TrialLine {
        place: trial.place.clone(),
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

/// Reads all trials of `plan` in a folder.
///
/// # Errors
/// The folder cannot be read or has too many entries, or its trials are of another version of weir.
pub(super) fn read_trials(folder: &Path, name: &str, plan: &Plan) -> Result<Found, String> {
    let mut found = Found::default();
    let names = names(folder)?;
    for file in &names {
        found.number_last = found.number_last.max(number_of(file).unwrap_or(0));
        let why = match ending(file) {
            "json" => match read_record::<Trial>(&folder.join(file), SCHEMA) {
                Ok(trial) => match misplaced(&trial.place, file, plan, &found.lines) {
                    None => {
                        found.beside.insert(trial.place.number, Beside::of(&trial));
                        found.lines.push(line_of(&trial, format!("{name}/{file}")));
                        continue;
                    }
                    Some(why) => why,
                },
                Err(error @ ReadError::Schema { .. }) if is_of_a_trial(&error) => {
                    return Err(error.to_string());
                }
                Err(error) => error.to_string(),
            },
            "part" => "it was not written to its end".to_owned(),
            "folded" if !names.contains(&file.replace(".folded", ".json")) => {
                "it has no trial".to_owned()
            }
            _ => continue,
        };
        found.broken.push(SetAside { file: file.clone(), why });
    }
    found.lines.sort_by_key(|line| line.place.number);
    Ok(found)
}

fn is_of_a_trial(error: &ReadError) -> bool {
    matches!(error, ReadError::Schema { found, .. } if found.starts_with("weir.trial/"))
}

/// Why a record cannot be the trial that its name says.
fn misplaced(place: &Place, file: &str, plan: &Plan, before: &[TrialLine]) -> Option<String> {
    if file_name(place) != file {
        return Some(format!("its place is that of {}", file_name(place)));
    }
    let known =
        plan.arm(&place.arm).is_some() && plan.loads.iter().any(|load| load.name == place.load);
    if !known {
        return Some("its arm or its load is none of the plan's".to_owned());
    }
    let same = |line: &&TrialLine| {
        let other = &line.place;
        Place { number: place.number, ..other.clone() } == *place || other.number == place.number
    };
    let other = before.iter().find(same)?;
    Some(format!("it is there twice: {}", other.file))
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let explain = |error: io::Error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(explain)? {
        names.push(entry.map_err(explain)?.file_name().to_string_lossy().into_owned());
        if names.len() > ENTRIES_MAX {
            return Err(format!("{}: more than {ENTRIES_MAX} files", folder.display()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// The number that a name begins with.
fn number_of(name: &str) -> Option<u32> {
    name.trim_start_matches('.').split_once('-')?.0.parse().ok()
}

/// Renames a file that cannot be used, to a name that is free: nothing is deleted.
///
/// # Errors
/// As of the file system.
pub(super) fn set_aside(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let plain = name.trim_start_matches('.');
    for number in 1..=NAMES_MAX {
        let ending = if number == 1 { BROKEN.to_owned() } else { format!("{number}.{BROKEN}") };
        let path = folder.join(format!("{plain}.{ending}"));
        match rename_new(&folder.join(name), &path) {
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

    fn names_in(folder: &Path) -> Vec<String> {
        names(folder).unwrap()
    }

    #[test]
    fn nothing_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0001-b01-a-x.json");
        write_new(&path, b"first").unwrap();
        let error = write_new(&path, b"second").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("0001-b01-a-x.json"));
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names_in(folder.path()).len(), 1, "no part is left");
        replace(&path, b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
    }

    #[test]
    fn what_is_set_aside_keeps_all_names() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["1", "2", "3"] {
            fs::write(folder.path().join("0001-x.json"), text).unwrap();
            set_aside(folder.path(), "0001-x.json").unwrap();
        }
        let expected = ["0001-x.json.2.broken", "0001-x.json.3.broken", "0001-x.json.broken"];
        assert_eq!(names_in(folder.path()), expected);
        assert!(set_aside(folder.path(), "not there").is_err());
    }

    #[test]
    fn what_is_no_trial_is_found_with_why() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(&["a", "b"], &["x"]);
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let trial = |number: u32, arm: &str| Trial {
            schema: SCHEMA.to_owned(),
            place: Place {
                number,
                block: 1,
                attempt: 1,
                arm: arm.to_owned(),
                load: "x".to_owned(),
                ..Place::default()
            },
            ..Trial::default()
        };
        let whole = |number, arm| serde_json::to_string(&trial(number, arm)).unwrap();
        write("0001-b01-a-x.json", &whole(1, "a"));
        write("0001-b01-a-x.folded", "a;b 1");
        write("0002-b01-b-x.json", &whole(2, "b")[..40]);
        write("0003-b01-c-x.json", &whole(3, "c"));
        write("0004-b01-b-x.json", &whole(5, "b"));
        write("0006-b01-a-x.json", &whole(6, "a"));
        write(".0007-b01-b-x.json.99.part", "{");
        write("0008-b01-b-x.folded", "a;b 1");
        write("0012-b01-b-x.json.broken", "{");
        write("notes.txt", "mine");
        let found = read_trials(folder.path(), "trials", &plan).unwrap();
        assert_eq!(found.lines.len(), 1);
        assert_eq!(found.lines[0].file, "trials/0001-b01-a-x.json");
        assert_eq!(found.number_last, 12);
        let told: Vec<(&str, &str)> =
            found.broken.iter().map(|it| (it.file.as_str(), it.why.as_str())).collect();
        assert_eq!(told.len(), 6, "{told:?}");
        let of = |name: &str| told.iter().find(|(file, _)| *file == name).unwrap().1;
        assert!(of("0002-b01-b-x.json").contains("0002-b01-b-x.json:1:"));
        assert!(of("0003-b01-c-x.json").contains("none of the plan's"));
        assert!(of("0004-b01-b-x.json").contains("0005-b01-b-x.json"));
        assert!(of("0006-b01-a-x.json").contains("twice"));
        assert!(of(".0007-b01-b-x.json.99.part").contains("to its end"));
        assert!(of("0008-b01-b-x.folded").contains("no trial"));
        // Another weir's trials are no broken ones.
        write("0009-b01-b-x.json", "{\"schema\":\"weir.trial/2\"}");
        assert!(read_trials(folder.path(), "trials", &plan).unwrap_err().contains("weir.trial/2"));
    }
}
