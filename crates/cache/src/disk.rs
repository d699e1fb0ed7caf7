//! The store on disk: one file for each object, read and written by threads of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::object::Object;

/// Plan of the disk of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Directory that belongs to this cache alone.
    pub directory: PathBuf,
    pub bytes_max: u64,
    pub threads: usize,
    /// Maximum number of jobs that wait for a thread.
    pub queue_max: usize,
}

/// A stored object whose head is being read from the disk.
#[derive(Debug)]
pub struct DiskOpen {
    object: Option<Arc<Object>>,
}

impl DiskOpen {
    /// Returns the object; `None`: it cannot be read, and the request goes on as with a miss. Wakes the task when there
    /// is a result.
    pub fn poll_object(&mut self, _context: &mut Context<'_>) -> Poll<Option<Arc<Object>>> {
        Poll::Ready(self.object.take())
    }
}
