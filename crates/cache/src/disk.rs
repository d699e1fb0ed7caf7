//! The store on disk: one file for each object, read and written by threads of its own.
//!
//! ```text
//! store -> job of the queue -> temporary file -> renamed -> entry of the index (in the shard of the key)
//! look-up -> entry -> job: head, and a small body -> object -> jobs: pieces of a large body
//! ```
//! [`format`] has the bytes of a file, [`file`] its reading and writing, [`queue`] the jobs, [`entry`] the index,
//! [`scan`] the rebuilding of the index after a start. No core calls a function of [`file`].

pub(crate) mod directory;
pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod format;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod reading;
pub(crate) mod scan;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use crate::key::Key;
use crate::object::Object;
use entry::DiskEntry;

/// Plan of the disk of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Directory that belongs to this cache alone.
    pub directory: PathBuf,
    pub bytes_max: u64,
    /// Maximum number of files: each has an entry in memory, of some 400 bytes and the length of its key.
    pub files_max: u64,
    pub threads: usize,
    /// Maximum number of objects that wait to be written.
    pub queue_max: usize,
}

/// The index, and the store in memory, as the threads of the disk see them.
pub(crate) trait DiskIndex: Send + Sync + std::fmt::Debug {
    fn key(&self, text: &[u8]) -> Key;

    /// Adds an object that was read from its file to the memory.
    fn promote(&self, object: &Arc<Object>, entry: &DiskEntry);

    /// Adds an entry that a scan found. False: its file is older than what the cache has.
    fn add_scanned(&self, entry: &Arc<DiskEntry>) -> bool;

    /// Removes an entry from the index, and its file.
    fn remove_entry(&self, entry: &Arc<DiskEntry>);

    /// Removes the file of an entry that is in no index, unless another entry has its name.
    fn remove_file_unless_used(&self, entry: &Arc<DiskEntry>);

    /// Returns whether a newer entry with the name of this one has its file already.
    fn has_written_file(&self, entry: &DiskEntry) -> bool;

    /// Evicts files until they are within their bounds.
    fn make_room_on_disk(&self);

    /// Evicts files of this size: the file system is full.
    fn evict_from_disk(&self, bytes: u64);
}
