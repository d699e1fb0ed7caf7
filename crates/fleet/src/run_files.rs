//! Files of a run of a fleet in a directory: `merged.json`, and the record of each agent in `agents`.

use std::collections::BTreeMap;
use std::path::Path;

use record::fleet::MERGED_FILE;
use record::run::Run;
use runner::failure::Failure;

use crate::message::AgentName;
use crate::run_store::agent_record;

/// Writes the records of the agents.
///
/// # Errors
/// A file cannot be written.
pub fn write_agents(directory: &Path, records: &BTreeMap<AgentName, Vec<u8>>) -> Result<(), Failure> {
    records.iter().try_for_each(|(agent, record)| write_record(directory, &agent_record(agent), record))
}

/// Writes the merged record. It is the last one: a directory without it has no complete run.
///
/// # Errors
/// A file cannot be written.
pub fn write_merged(directory: &Path, run: &Run) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::cannot(directory.display(), error))?;
    Ok(record::file::write_json(&directory.join(MERGED_FILE), run)?)
}

/// Writes a record of a run; its name may have a directory.
///
/// # Errors
/// A file cannot be written.
pub fn write_record(directory: &Path, name: &str, record: &[u8]) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.json"));
    let parent = path.parent().unwrap_or(directory);
    std::fs::create_dir_all(parent).map_err(|error| Failure::cannot(parent.display(), error))?;
    Ok(record::file::write_atomically(&path, record)?)
}
