//! Storage of a run in a bucket of the server, or in files if that fails.

use std::path::Path;

use record::run::Run;
use record::units::format_plural;
use runner::failure::Failure;

use crate::message::RunId;
use crate::result::MergedLoad;
use crate::run_files;
use crate::run_store::{RunDescription, RunRecords, RunStore};
use crate::session::CONNECT_WAIT;
use crate::transport::NatsOptions;

/// Storage of a run.
#[derive(Clone, Debug)]
pub struct StorePlan {
    pub bucket: String,
    /// Name of the run; `None`: from its time.
    pub name: Option<RunId>,
}

impl StorePlan {
    /// Reports before a long load that its run cannot be stored.
    pub fn check(&self, nats: &NatsOptions, notice: fn(&str)) {
        if let Err(error) = RunStore::open(nats, &self.bucket, true, CONNECT_WAIT, notice) {
            notice(&format!("warning: the run cannot be stored and will be kept in files: {error}"));
        }
    }

    /// Stores a run. Returns a line about it. A run that cannot be stored is kept in files in `output`, or in the
    /// working directory.
    ///
    /// # Errors
    /// The run is not stored; the message names the files.
    pub fn put(
        &self,
        (nats, notice): (&NatsOptions, fn(&str)),
        (MergedLoad { id, run, records }, description): (&MergedLoad, &RunDescription),
        output: Option<&Path>,
    ) -> Result<String, Failure> {
        let name = self.name.clone().unwrap_or_else(|| default_name(id, run));
        let merged = serde_json::to_vec(run).map_err(|error| Failure::cannot("store the run", error))?;
        let contents = RunRecords { name: &name, description, merged: &merged, agents: records };
        let stored = RunStore::open(nats, &self.bucket, true, CONNECT_WAIT, notice)
            .and_then(|store| store.put(contents, rt::clock::unix_ns()));
        match stored {
            Ok(deleted) => {
                let made_way = match deleted.len() {
                    0 => String::new(),
                    count => format!("; {} made way", format_plural(count as u64, "old run")),
                };
                Ok(format!("stored       {name} in the bucket {}{made_way}\n", self.bucket))
            }
            Err(error) => {
                let directory = output.unwrap_or_else(|| Path::new("")).join(format!("weir-run-{name}"));
                run_files::write_agents(&directory, records)?;
                run_files::write_merged(&directory, run)?;
                let directory = directory.display();
                Err(Failure::CannotRun(format!(
                    "the run is not stored: {error}; its records are in {directory}"
                )))
            }
        }
    }
}

fn default_name(id: &RunId, run: &Run) -> RunId {
    let seconds = run.started_at.split('.').next().unwrap_or_default();
    let time: String = seconds.chars().filter(char::is_ascii_alphanumeric).collect();
    RunId::from_host(&format!("{time}-{}", id.as_str().get(..8).unwrap_or_default()))
}
