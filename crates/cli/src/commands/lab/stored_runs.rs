//! Stored runs of a fleet: those below a directory, and those in a bucket of a NATS server. Each has a line for lists,
//! its merged record, and the records of its agents.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use experiment::engine::experiment_dir::find_directories;
use experiment::list::find_directory;
use fleet::message::RunId;
use fleet::run_store::{MERGED, RunDescription, RunEntry, RunStore, StoreError};
use fleet::transport::NatsOptions;
use record::fleet::MERGED_FILE;
use record::run::Run;
use record::sorted::sort_by;

use crate::output::fleet::run_description;

/// Maximum number of runs of a directory in a list: reading a record takes time.
pub(super) const RUNS_LISTED_MAX: usize = 500;
/// Maximum size of a merged record in a list.
const LISTED_BYTES_MAX: u64 = 64 << 20;
/// Maximum wait for the NATS server: a page waits for it.
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Stored run, summarised in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunRow {
    /// Path below the directory, or name in the bucket.
    pub(super) path: String,
    /// Time of its start, or of its storage in the bucket.
    pub(super) time: String,
    pub(super) description: RunDescription,
    /// Reason for missing facts, if the record cannot be read.
    pub(super) problem: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RunListing {
    /// Runs, the newest first.
    pub(super) rows: Vec<RunRow>,
    /// True if there are more.
    pub(super) is_truncated: bool,
}

/// State of a file, by which a change of it is noticed.
type FileState = (SystemTime, u64);

#[derive(Debug)]
pub(super) struct RunDirectory {
    root: PathBuf,
    /// Rows of the last list.
    known: RefCell<HashMap<PathBuf, (FileState, RunRow)>>,
}

impl RunDirectory {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: RefCell::default() }
    }

    /// Lists the runs. Records that have not changed are not read again.
    pub(super) fn list(&self) -> RunListing {
        let (directories, mut is_truncated) = find_directories(&self.root);
        let mut files: Vec<(FileState, PathBuf)> = directories
            .into_iter()
            .filter(|(_, marker)| *marker == MERGED_FILE)
            .filter_map(|(directory, _)| {
                let metadata = directory.join(MERGED_FILE).metadata().ok()?;
                Some(((metadata.modified().ok()?, metadata.len()), directory))
            })
            .collect();
        files.sort_unstable_by(|a, b| b.cmp(a));
        is_truncated |= files.len() > RUNS_LISTED_MAX;
        files.truncate(RUNS_LISTED_MAX);
        let mut known = self.known.borrow_mut();
        let before = std::mem::take(&mut *known);
        let mut rows = Vec::new();
        for (state, directory) in files {
            let unchanged = before.get(&directory).filter(|(then, _)| *then == state);
            let row = unchanged.map_or_else(|| self.read_row(&directory, state.1), |(_, row)| row.clone());
            known.insert(directory, (state, row.clone()));
            rows.push(row);
        }
        sort_by(&mut rows, |a, b| (&b.time, &a.path).cmp(&(&a.time, &b.path)));
        RunListing { rows, is_truncated }
    }

    fn read_row(&self, directory: &Path, bytes: u64) -> RunRow {
        let path = directory.strip_prefix(&self.root).unwrap_or(directory).to_string_lossy().into_owned();
        let problem = |text: String| RunRow { path: path.clone(), problem: Some(text), ..RunRow::default() };
        if bytes > LISTED_BYTES_MAX {
            return problem(format!("{MERGED_FILE} is larger than {} MiB", LISTED_BYTES_MAX >> 20));
        }
        match record::file::read_run(&directory.join(MERGED_FILE)) {
            Ok(run) => RunRow {
                path: path.clone(),
                time: run.started_at.clone(),
                description: run_description(&run),
                problem: None,
            },
            Err(error) => problem(error.to_string()),
        }
    }

    /// Returns the directory of the run that the first of `segments` name, and the number of those segments.
    pub(super) fn find(&self, segments: &[&str]) -> Option<(PathBuf, usize)> {
        find_directory(&self.root, segments, MERGED_FILE)
    }
}

/// Returns the names of the agents whose records are in the directory of a run.
pub(super) fn agents_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory.join("agents")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
}

/// Reason why a bucket cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BucketReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the record of run {run} cannot be read: {source}")]
    Record { run: RunId, source: serde_json::Error },
    #[error("the reader of the bucket has failed")]
    Panicked,
}

#[derive(Clone, Debug)]
pub(super) struct RunBucket {
    pub(super) nats: NatsOptions,
    pub(super) name: String,
}

impl RunBucket {
    /// Lists the runs, or returns the reason why it cannot.
    pub(super) fn list(&self) -> Result<RunListing, BucketReadError> {
        let runs = self.with_store(|store| Ok(store.list()?))?;
        let rows = runs.into_iter().map(|run| RunRow {
            path: run.name.to_string(),
            time: record::file::format_wall_clock(run.stored_unix_ns),
            description: run.description,
            problem: None,
        });
        Ok(RunListing { rows: rows.collect(), is_truncated: false })
    }

    /// Returns a run with its merged record; `None` if there is no such run.
    pub(super) fn read(&self, name: &RunId) -> Result<Option<(RunEntry, Run)>, BucketReadError> {
        let Some((run, bytes)) = self.read_record(name, MERGED)? else { return Ok(None) };
        let record = serde_json::from_slice(&bytes)
            .map_err(|source| BucketReadError::Record { run: name.clone(), source })?;
        Ok(Some((run, record)))
    }

    /// Returns a run with one of its records; `None` if there is none.
    pub(super) fn read_record(
        &self,
        name: &RunId,
        record: &str,
    ) -> Result<Option<(RunEntry, Vec<u8>)>, BucketReadError> {
        self.with_store(|store| {
            let runs = store.list()?;
            let has_it = |run: &RunEntry| {
                run.name == *name && run.records.iter().any(|record_name| record_name == record)
            };
            let Some(run) = runs.into_iter().find(has_it) else { return Ok(None) };
            let bytes = store.get(&run, record)?;
            Ok(Some((run, bytes)))
        })
    }

    /// Calls `read` with a connection of its own, on a thread of its own: the pages have a runtime already.
    fn with_store<T: Send>(
        &self,
        read: impl FnOnce(&RunStore) -> Result<T, BucketReadError> + Send,
    ) -> Result<T, BucketReadError> {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let store = RunStore::open(&self.nats, &self.name, false, CONNECT_WAIT, |_| {});
                read(&store?)
            });
            reader.join().unwrap_or_else(|_| Err(BucketReadError::Panicked))
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::commands::lab) fn stored_run() -> Run {
        let bytes = include_bytes!("../../../../../fuzz/corpus/run_record/run.json");
        record::file::parse_run(bytes).unwrap()
    }

    #[test]
    fn runs_are_listed_newest_first_and_broken_ones_too() {
        let root = tempfile::tempdir().unwrap();
        let store = |name: &str, started_at: &str| {
            let directory = root.path().join(name);
            fs::create_dir_all(directory.join("agents")).unwrap();
            fs::write(directory.join("agents/a.json"), "{}").unwrap();
            let run = Run { started_at: started_at.to_owned(), ..stored_run() };
            fs::write(directory.join(MERGED_FILE), serde_json::to_vec(&run).unwrap()).unwrap();
        };
        store("old", "2026-01-01T00:00:00Z");
        store("nightly/new", "2026-01-02T00:00:00Z");
        store("broken", "");
        fs::write(root.path().join("broken").join(MERGED_FILE), "{").unwrap();
        let runs = RunDirectory::new(root.path());
        let paths = || runs.list().rows.into_iter().map(|row| row.path).collect::<Vec<_>>();
        assert_eq!(paths(), ["nightly/new", "old", "broken"]);
        assert!(runs.list().rows[2].problem.as_ref().unwrap().contains("merged.json"));
        assert_eq!(runs.list().rows[0].description.verdict, stored_run().validity.verdict.as_str());
        let found = runs.find(&["nightly", "new", "agents", "a.json"]);
        assert_eq!(found, Some((root.path().join("nightly/new"), 2)));
        assert_eq!(agents_in(&root.path().join("old")), ["a"]);
        // A changed record is read again.
        store("broken", "2026-01-03T00:00:00Z");
        assert_eq!(paths(), ["broken", "nightly/new", "old"]);
    }
}
