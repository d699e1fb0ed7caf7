//! Runs in a bucket of the NATS server: the merged record and those of the agents under the name of the run. The
//! oldest runs make way when the limits are reached.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::message::{AgentName, RECORD_BYTES_MAX, RunId};
use crate::transport::objects::{BucketError, ObjectBucket, ObjectEntry};
use crate::transport::{NatsLink, NatsOptions, TransportError};

/// Name of the bucket without another one.
pub const BUCKET_DEFAULT: &str = "weir-runs";
/// Maximum number of runs in a bucket.
pub const RUNS_MAX: usize = 1_000;
/// Maximum size of a bucket, in bytes.
pub const BUCKET_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Size of all runs together, in bytes, after which the oldest ones are deleted: chunks have headers, too.
const RUNS_BYTES_MAX: u64 = BUCKET_BYTES_MAX / 10 * 9;
/// Maximum number of objects that are listed.
const OBJECTS_MAX: usize = 200_000;
/// Name of the object with the merged record.
pub const MERGED: &str = "merged";
/// Prefix of the records of agents.
const AGENTS: &str = "agents/";
/// Metadata: the time of storage in ns since 1970, and the description of the run.
const STORED_AT: &str = "weir-stored-unix-ns";
const SUMMARY: &str = "weir-summary";

/// Reason why runs cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server cannot be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The bucket cannot be used.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The run does not fit.
    #[error("the run has {0} bytes; a bucket has up to {BUCKET_BYTES_MAX}")]
    TooLarge(u64),
    /// There is no such run.
    #[error("no run {0} in the bucket (weir fleet runs lists them)")]
    NoRun(RunId),
}

/// Stored run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    /// Name.
    pub name: RunId,
    /// Time of storage, in ns since 1970.
    pub stored_unix_ns: u64,
    /// Size of all records, in bytes.
    pub bytes: u64,
    /// Names of the records: [`MERGED`], and `agents/NAME`.
    pub records: Vec<String>,
    /// Description in one line.
    pub summary: String,
}

/// Records of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunRecords<'a> {
    /// Name of the run.
    pub name: &'a RunId,
    /// Description in one line.
    pub summary: &'a str,
    /// Merged record.
    pub merged: &'a [u8],
    /// Record of each agent.
    pub agents: &'a BTreeMap<AgentName, Vec<u8>>,
}

/// Connection to the bucket of the runs. The calling thread drives it.
#[derive(Debug)]
pub struct RunStore {
    runtime: Runtime,
    bucket: ObjectBucket,
}

impl RunStore {
    /// Opens a bucket; creates it if `create` is set.
    ///
    /// # Errors
    /// The server is not reachable within `limit`, has no JetStream, or there is no such bucket.
    pub fn open(
        options: &NatsOptions,
        bucket: &str,
        create: bool,
        limit: Duration,
        notice: fn(&str),
    ) -> Result<Self, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TransportError::Closed(error.to_string()))?;
        let bucket = runtime.block_on(async {
            let (link, ..) = NatsLink::connect_with_retry(options, Some(limit), notice).await?;
            let create_bytes = create.then_some(BUCKET_BYTES_MAX);
            Ok::<_, StoreError>(ObjectBucket::open(&link, bucket, create_bytes).await?)
        })?;
        Ok(Self { runtime, bucket })
    }

    /// Stores a run, and deletes the oldest ones that do not fit beside it. Returns their names.
    ///
    /// # Errors
    /// The run is too large, or the server does not respond.
    pub fn put(&self, records: RunRecords<'_>, now_unix_ns: u64) -> Result<Vec<RunId>, StoreError> {
        let agents_bytes: usize = records.agents.values().map(Vec::len).sum();
        let bytes = (records.merged.len() + agents_bytes) as u64;
        if bytes > RUNS_BYTES_MAX {
            return Err(StoreError::TooLarge(bytes));
        }
        self.runtime.block_on(async {
            let known = group(self.bucket.list(OBJECTS_MAX).await?);
            let surplus = surplus(&known, records.name, bytes);
            for run in known.iter().filter(|run| surplus.contains(&run.name) || run.name == *records.name) {
                for record in &run.records {
                    self.bucket.delete(&object_name(&run.name, record)).await?;
                }
            }
            let metadata = HashMap::from([
                (STORED_AT.to_owned(), now_unix_ns.to_string()),
                (SUMMARY.to_owned(), records.summary.to_owned()),
            ]);
            for (agent, record) in records.agents {
                let name = object_name(records.name, &format!("{AGENTS}{agent}"));
                self.bucket.put(&name, metadata.clone(), record).await?;
            }
            // The merged record is last: a run without it is incomplete.
            self.bucket.put(&object_name(records.name, MERGED), metadata, records.merged).await?;
            Ok(surplus)
        })
    }

    /// Returns the complete runs, the newest first.
    ///
    /// # Errors
    /// The server does not respond.
    pub fn list(&self) -> Result<Vec<RunEntry>, StoreError> {
        let mut runs = group(self.runtime.block_on(self.bucket.list(OBJECTS_MAX))?);
        runs.retain(|run| run.records.iter().any(|record| record == MERGED));
        runs.reverse();
        Ok(runs)
    }

    /// Reads a record of a run.
    ///
    /// # Errors
    /// It is missing, or the server does not respond.
    pub fn get(&self, run: &RunId, record: &str) -> Result<Vec<u8>, StoreError> {
        Ok(self.runtime.block_on(self.bucket.get(&object_name(run, record), RECORD_BYTES_MAX))?)
    }
}

fn object_name(run: &RunId, record: &str) -> String {
    format!("{run}/{record}")
}

/// Groups objects by their run, the oldest first. Objects of another form are not of weir.
fn group(objects: Vec<ObjectEntry>) -> Vec<RunEntry> {
    let mut runs: BTreeMap<RunId, RunEntry> = BTreeMap::new();
    for object in objects {
        let Some((run, record)) = object.name.split_once('/') else { continue };
        let agent = record.strip_prefix(AGENTS).map(AgentName::parse);
        let (Ok(name), true) = (RunId::parse(run), record == MERGED || matches!(agent, Some(Ok(_)))) else {
            continue;
        };
        let text = |key: &str| object.metadata.get(key).cloned().unwrap_or_default();
        let entry = runs.entry(name.clone()).or_insert_with(|| RunEntry {
            name,
            stored_unix_ns: text(STORED_AT).parse().unwrap_or(0),
            bytes: 0,
            records: Vec::new(),
            summary: text(SUMMARY),
        });
        entry.bytes += object.bytes;
        entry.records.push(record.to_owned());
    }
    let mut runs: Vec<RunEntry> = runs.into_values().collect();
    runs.sort_by(|a, b| (a.stored_unix_ns, &a.name).cmp(&(b.stored_unix_ns, &b.name)));
    runs
}

/// Returns the runs that make way for another one of `bytes`; `runs` has the oldest first.
fn surplus(runs: &[RunEntry], new: &RunId, bytes: u64) -> Vec<RunId> {
    let others = || runs.iter().filter(|run| run.name != *new);
    let (mut count, mut total) = (others().count() + 1, bytes + others().map(|run| run.bytes).sum::<u64>());
    let mut surplus = Vec::new();
    for run in others() {
        if count <= RUNS_MAX && total <= RUNS_BYTES_MAX {
            break;
        }
        (count, total) = (count - 1, total - run.bytes);
        surplus.push(run.name.clone());
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, bytes: u64, stored: u64) -> ObjectEntry {
        let metadata = HashMap::from([(STORED_AT.to_owned(), stored.to_string())]);
        ObjectEntry { name: name.to_owned(), bytes, metadata }
    }

    #[test]
    fn objects_are_grouped_by_run_and_foreign_ones_ignored() {
        let objects =
            ["new/agents/a", "new/merged", "new/agents/../x", "foreign", "old/merged", "a b/merged"];
        let stored = |name: &str| if name.starts_with("old") { 1 } else { 2 };
        let runs = group(objects.iter().map(|name| object(name, 10, stored(name))).collect());
        let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["old", "new"]);
        assert_eq!((runs[1].bytes, runs[1].records.len()), (20, 2));
    }

    #[test]
    fn the_oldest_runs_make_way_by_number_and_by_size() {
        let run = |number: usize, bytes| RunEntry {
            name: RunId::parse(&format!("r{number}")).unwrap(),
            stored_unix_ns: number as u64,
            bytes,
            records: Vec::new(),
            summary: String::new(),
        };
        let new = RunId::parse("new").unwrap();
        let many: Vec<RunEntry> = (0..RUNS_MAX).map(|number| run(number, 1)).collect();
        assert_eq!(surplus(&many, &new, 1), [run(0, 1).name]);
        assert!(surplus(&many, &many[7].name, 1).is_empty(), "a run replaces one with its name");
        let large = [run(0, RUNS_BYTES_MAX / 2), run(1, RUNS_BYTES_MAX / 4), run(2, 1)];
        assert_eq!(surplus(&large, &new, RUNS_BYTES_MAX / 2), [run(0, 0).name]);
        assert_eq!(surplus(&large, &new, RUNS_BYTES_MAX).len(), 3);
        assert!(surplus(&large, &new, 5).is_empty());
    }
}
