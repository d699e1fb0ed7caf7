//! Runs in a bucket of the NATS server: the merged record and those of the agents under the name of the run and the time
//! of its storage. A run with the name of another one replaces it once all its records are stored, so that a failure
//! leaves the old one. The oldest runs make way when the limits are reached.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use record::sorted::{CollectSorted, sort_by};
use tokio::runtime::Runtime;

use crate::message::{AgentName, RECORD_BYTES_MAX, RunId};
use crate::transport::objects::{BucketError, ObjectBucket, ObjectEntry};
use crate::transport::{NatsLink, NatsOptions, TransportError};

/// Name of the bucket without another one.
pub const BUCKET_DEFAULT: &str = "weir-runs";
pub const RUNS_MAX: usize = 1_000;
pub const BUCKET_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Size of all runs together, in bytes, after which the oldest ones are deleted: chunks have headers, too.
const RUNS_BYTES_MAX: u64 = BUCKET_BYTES_MAX / 10 * 9;
/// Maximum number of objects that are listed.
const OBJECTS_MAX: usize = 200_000;
/// Age after which an incomplete run is one whose storage has failed, in ns.
const INCOMPLETE_NS_MAX: u64 = 3_600_000_000_000;
pub const MERGED: &str = "merged";
/// Prefix of the records of agents.
pub const AGENTS: &str = "agents/";
/// Metadata: the number of records of the run, and its description.
const RECORDS: &str = "weir-records";
const LOAD: &str = "weir-load";
const RESULT: &str = "weir-result";
const VERDICT: &str = "weir-verdict";

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
    /// The run does not fit beside the one that it replaces.
    #[error(
        "the run and the one of the same name that it replaces have {0} bytes; a bucket has up to {BUCKET_BYTES_MAX} \
         (use another --run-name)"
    )]
    ReplacedTooLarge(u64),
    #[error("no run {0} in the bucket (weir fleet runs lists them)")]
    NoRun(RunId),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunDescription {
    pub load: String,
    /// Agents and main figures in one line.
    pub result: String,
    pub verdict: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    pub name: RunId,
    /// Time of storage, in ns since 1970.
    pub stored_unix_ns: u64,
    pub bytes: u64,
    /// Names of the records: [`MERGED`], and `agents/NAME`.
    pub records: Vec<String>,
    pub description: RunDescription,
    /// Number of its records when it was stored.
    records_total: usize,
}

impl RunEntry {
    fn is_complete(&self) -> bool {
        self.records.len() == self.records_total && self.records.iter().any(|record| record == MERGED)
    }

    fn object_names(&self) -> impl Iterator<Item = String> {
        self.records.iter().map(|record| object_name(&self.name, self.stored_unix_ns, record))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RunRecords<'a> {
    pub name: &'a RunId,
    pub description: &'a RunDescription,
    pub merged: &'a [u8],
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
        self.runtime.block_on(async {
            let plan = plan_put(self.bucket.list(OBJECTS_MAX).await?, records, now_unix_ns)?;
            for name in &plan.before {
                self.bucket.delete(name).await?;
            }
            let RunDescription { load, result, verdict } = records.description;
            let metadata = [
                (RECORDS, plan.objects.len().to_string()),
                (LOAD, load.clone()),
                (RESULT, result.clone()),
                (VERDICT, verdict.clone()),
            ];
            let metadata: HashMap<String, String> =
                metadata.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
            for (name, record) in &plan.objects {
                self.bucket.put(name, metadata.clone(), record).await?;
            }
            for name in &plan.after {
                // The run is stored. An object that is left is not listed, and the next run deletes it.
                if self.bucket.delete(name).await.is_err() {
                    break;
                }
            }
            Ok(plan.made_way)
        })
    }

    /// Returns the complete runs, the newest first.
    ///
    /// # Errors
    /// The server does not respond.
    pub fn list(&self) -> Result<Vec<RunEntry>, StoreError> {
        let (mut runs, _) = current(group(self.runtime.block_on(self.bucket.list(OBJECTS_MAX))?));
        runs.reverse();
        Ok(runs)
    }

    /// Reads a record of a run.
    ///
    /// # Errors
    /// It is missing, or the server does not respond.
    pub fn get(&self, run: &RunEntry, record: &str) -> Result<Vec<u8>, StoreError> {
        let name = object_name(&run.name, run.stored_unix_ns, record);
        Ok(self.runtime.block_on(self.bucket.get(&name, RECORD_BYTES_MAX))?)
    }
}

/// Changes of a bucket that store a run, in their order.
#[derive(Debug)]
struct PutPlan<'a> {
    /// Objects to delete before: of failed storages, and of the runs for whose records there is no room.
    before: Vec<String>,
    /// Objects to store; the merged record is the last.
    objects: Vec<(String, &'a [u8])>,
    /// Objects to delete after: of the run that is replaced, and of the oldest runs.
    after: Vec<String>,
    made_way: Vec<RunId>,
}

fn plan_put(
    objects: Vec<ObjectEntry>,
    records: RunRecords<'_>,
    now_unix_ns: u64,
) -> Result<PutPlan<'_>, StoreError> {
    let agents_bytes: usize = records.agents.values().map(Vec::len).sum();
    let bytes = (records.merged.len() + agents_bytes) as u64;
    if bytes > RUNS_BYTES_MAX {
        return Err(StoreError::TooLarge(bytes));
    }
    let known = group(objects);
    let same_name_runs = known.iter().filter(|run| run.name == *records.name);
    // A clock that was set back gives no older run.
    let stored_unix_ns =
        same_name_runs.map(|run| run.stored_unix_ns.saturating_add(1)).fold(now_unix_ns, u64::max);
    let (runs, others) = current(known);
    let is_stale = |run: &RunEntry| {
        run.is_complete()
            || run.name == *records.name
            || run.stored_unix_ns.saturating_add(INCOMPLETE_NS_MAX) < now_unix_ns
    };
    let (stale, in_progress): (Vec<_>, Vec<_>) = others.into_iter().partition(is_stale);
    let in_progress_bytes: u64 = in_progress.iter().map(|run| run.bytes).sum();
    let (too_large, too_many) = surplus(&runs, records.name, bytes, in_progress_bytes)?;
    let agents = records.agents.iter().map(|(agent, record)| (agent_record(agent), record.as_slice()));
    let named = agents.chain([(MERGED.to_owned(), records.merged)]);
    let replaced = runs.iter().filter(|run| run.name == *records.name);
    Ok(PutPlan {
        before: stale.iter().chain(too_large.iter().copied()).flat_map(RunEntry::object_names).collect(),
        objects: named
            .map(|(record, content)| (object_name(records.name, stored_unix_ns, &record), content))
            .collect(),
        after: replaced.chain(too_many.iter().copied()).flat_map(RunEntry::object_names).collect(),
        made_way: too_large.iter().chain(&too_many).map(|run| run.name.clone()).collect(),
    })
}

pub fn agent_record(agent: &AgentName) -> String {
    format!("{AGENTS}{agent}")
}

fn object_name(run: &RunId, stored_unix_ns: u64, record: &str) -> String {
    format!("{run}/{stored_unix_ns}/{record}")
}

/// Groups objects by their run and the time of its storage. Objects of another form are not of weir.
fn group(objects: Vec<ObjectEntry>) -> Vec<RunEntry> {
    let mut runs: BTreeMap<(RunId, u64), RunEntry> = BTreeMap::new();
    for object in objects {
        let mut parts = object.name.splitn(3, '/');
        let (Some(run), Some(stored), Some(record)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let agent = record.strip_prefix(AGENTS).map(AgentName::parse);
        let is_record = record == MERGED || matches!(agent, Some(Ok(_)));
        let (Ok(name), Ok(stored_unix_ns), true) = (RunId::parse(run), stored.parse(), is_record) else {
            continue;
        };
        let text = |key: &str| object.metadata.get(key).cloned().unwrap_or_default();
        let entry = runs.entry((name.clone(), stored_unix_ns)).or_insert_with(|| RunEntry {
            name,
            stored_unix_ns,
            bytes: 0,
            records: Vec::new(),
            description: RunDescription { load: text(LOAD), result: text(RESULT), verdict: text(VERDICT) },
            records_total: text(RECORDS).parse().unwrap_or(0),
        });
        entry.bytes += object.bytes;
        entry.records.push(record.to_owned());
    }
    runs.into_values().collect()
}

/// Separates the newest complete run of each name, the oldest first, from those that are replaced or incomplete.
fn current(mut runs: Vec<RunEntry>) -> (Vec<RunEntry>, Vec<RunEntry>) {
    sort_by(&mut runs, |a, b| (a.stored_unix_ns, &a.name).cmp(&(b.stored_unix_ns, &b.name)));
    let complete = runs.iter().filter(|run| run.is_complete());
    let newest: BTreeMap<RunId, u64> =
        complete.map(|run| (run.name.clone(), run.stored_unix_ns)).collect_map();
    runs.into_iter().partition(|run| run.is_complete() && newest.get(&run.name) == Some(&run.stored_unix_ns))
}

/// Returns the runs that make way for another one of `bytes`: those without which there is no room for its records,
/// and those beyond the maximum number. `runs` has the oldest first, and `other_bytes` are in use besides.
fn surplus<'a>(
    runs: &'a [RunEntry],
    new: &RunId,
    bytes: u64,
    other_bytes: u64,
) -> Result<(Vec<&'a RunEntry>, Vec<&'a RunEntry>), StoreError> {
    let (replaced, others): (Vec<_>, Vec<_>) = runs.iter().partition(|run| run.name == *new);
    // The replaced run is there until the new one is complete.
    let needed = replaced.iter().map(|run| run.bytes).sum::<u64>() + bytes;
    if needed > RUNS_BYTES_MAX {
        return Err(StoreError::ReplacedTooLarge(needed));
    }
    let mut total = needed + other_bytes + others.iter().map(|run| run.bytes).sum::<u64>();
    let mut others = others.into_iter().peekable();
    let mut too_large = Vec::new();
    while let Some(oldest) = others.next_if(|_| total > RUNS_BYTES_MAX) {
        total -= oldest.bytes;
        too_large.push(oldest);
    }
    let rest: Vec<&RunEntry> = others.collect();
    let too_many = (rest.len() + 1).saturating_sub(RUNS_MAX);
    Ok((too_large, rest.into_iter().take(too_many).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, bytes: u64) -> ObjectEntry {
        let metadata = HashMap::from([(RECORDS.to_owned(), "2".to_owned())]);
        ObjectEntry { name: name.to_owned(), bytes, metadata }
    }

    fn run(name: &str, stored_unix_ns: u64, bytes: u64) -> RunEntry {
        RunEntry {
            name: RunId::parse(name).unwrap(),
            stored_unix_ns,
            bytes,
            records: vec![MERGED.to_owned()],
            description: RunDescription::default(),
            records_total: 1,
        }
    }

    fn names<'a>(runs: impl IntoIterator<Item = &'a RunEntry>) -> Vec<&'a str> {
        runs.into_iter().map(|run| run.name.as_str()).collect()
    }

    #[test]
    fn objects_are_grouped_by_run_and_foreign_ones_ignored() {
        let objects = [
            "new/2/agents/a",
            "new/2/merged",
            "new/2/agents/../x",
            "foreign",
            "old/merged",
            "old/1/merged",
            "old/1/agents/a",
            "a b/1/merged",
        ];
        let (runs, others) = current(group(objects.iter().map(|name| object(name, 10)).collect()));
        assert_eq!((names(&runs), others.len()), (vec!["old", "new"], 0));
        assert_eq!((runs[1].bytes, runs[1].records.len()), (20, 2));
    }

    #[test]
    fn the_oldest_runs_make_way_by_number_and_by_size() {
        let new = RunId::parse("new").unwrap();
        let made_way = |runs: &[RunEntry], new: &RunId, bytes: u64| {
            let (too_large, too_many) = surplus(runs, new, bytes, 0).unwrap();
            (too_large.len(), too_many.len())
        };
        let many: Vec<RunEntry> =
            (0..RUNS_MAX).map(|number| run(&format!("r{number}"), number as u64, 1)).collect();
        assert_eq!(made_way(&many, &new, 1), (0, 1));
        assert_eq!(made_way(&many, &many[7].name, 1), (0, 0), "a run replaces one with its name");
        let large = [run("a", 0, RUNS_BYTES_MAX / 2), run("b", 1, RUNS_BYTES_MAX / 4), run("c", 2, 1)];
        assert_eq!(made_way(&large, &new, RUNS_BYTES_MAX / 2), (1, 0));
        assert_eq!(made_way(&large, &new, RUNS_BYTES_MAX), (3, 0));
        assert_eq!(made_way(&large, &new, 5), (0, 0));
        // The old run is kept until the new one is complete, so that both need room.
        assert_eq!(made_way(&large, &large[1].name, RUNS_BYTES_MAX / 2), (1, 0));
        assert!(matches!(
            surplus(&large, &large[0].name, RUNS_BYTES_MAX, 0),
            Err(StoreError::ReplacedTooLarge(_))
        ));
        let (too_large, _) = surplus(&large, &new, 5, RUNS_BYTES_MAX / 4).unwrap();
        assert_eq!(names(too_large), ["a"], "records that are being stored need room, too");
    }

    /// Applies the first steps of a plan to the objects of a bucket.
    fn apply(objects: &[ObjectEntry], plan: &PutPlan<'_>, steps: usize) -> Vec<ObjectEntry> {
        let mut objects: BTreeMap<String, ObjectEntry> =
            objects.iter().map(|object| (object.name.clone(), object.clone())).collect();
        let delete = |name: &String| (name.clone(), None);
        let all = plan.before.iter().map(delete);
        let all = all.chain(plan.objects.iter().map(|(name, content)| (name.clone(), Some(content.len()))));
        for (name, content) in all.chain(plan.after.iter().map(delete)).take(steps) {
            match content {
                Some(bytes) => objects.insert(name.clone(), object(&name, bytes as u64)),
                None => objects.remove(&name),
            };
        }
        objects.into_values().collect()
    }

    #[test]
    fn a_storage_that_fails_at_any_step_leaves_the_old_run_or_the_new_one() {
        let name = RunId::parse("nightly").unwrap();
        let agents = BTreeMap::from([(AgentName::parse("a").unwrap(), vec![0; 30])]);
        let description = RunDescription::default();
        let records =
            RunRecords { name: &name, description: &description, merged: &[0; 30], agents: &agents };
        let bucket: Vec<ObjectEntry> =
            ["nightly/5/agents/b", "nightly/5/merged", "other/1/agents/b", "other/1/merged"]
                .iter()
                .map(|name| object(name, 10))
                .collect();
        // The clock of this coordinator is behind.
        let plan = plan_put(bucket.clone(), records, 3).unwrap();
        let steps = plan.before.len() + plan.objects.len() + plan.after.len();
        assert_eq!(steps, 4);
        for done in 0..=steps {
            let left = apply(&bucket, &plan, done);
            let (runs, _) = current(group(left.clone()));
            assert_eq!(runs.len(), 2, "after {done} steps");
            let nightly = runs.iter().find(|run| run.name == name).unwrap();
            let (bytes, stored) = if done < 2 { (20, 5) } else { (60, 6) };
            assert_eq!((nightly.bytes, nightly.stored_unix_ns), (bytes, stored), "after {done} steps");
            // The next try deletes what is left of this one.
            let next = plan_put(left, records, 4).unwrap();
            let bucket = apply(&bucket, &plan, done);
            let after = apply(&bucket, &next, usize::MAX);
            assert_eq!(after.len(), 4, "two runs of two records after {done} steps");
        }
    }

    #[test]
    fn records_of_another_run_that_is_being_stored_are_kept_for_an_hour() {
        let name = RunId::parse("new").unwrap();
        let (agents, description) = (BTreeMap::new(), RunDescription::default());
        let records = RunRecords { name: &name, description: &description, merged: &[0; 3], agents: &agents };
        let bucket = vec![object("other/7/agents/b", 10)];
        assert!(plan_put(bucket.clone(), records, 8).unwrap().before.is_empty());
        let later = plan_put(bucket, records, 8 + INCOMPLETE_NS_MAX).unwrap();
        assert_eq!(later.before, ["other/7/agents/b"]);
    }
}
