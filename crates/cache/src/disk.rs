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
