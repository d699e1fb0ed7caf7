//! Waits of a core for the disk: the head of a file, and the pieces of a large body.

#![expect(
    clippy::disallowed_types,
    reason = "a core and a thread of the disk share a result; held to set or take it"
)]

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::DiskIndex;
use super::entry::DiskEntry;
use super::format::{BLOCK_BYTES, Preamble};
use super::pool::DiskPool;
use super::queue::Job;
use crate::file_body::{FileBody, ReadState};
use crate::object::Object;

/// Blocks of one read: 256 KiB.
const READ_BLOCKS: u64 = 4;

/// The reading of a head, which several requests may wait for.
#[derive(Debug, Default)]
pub(crate) struct OpenState(Mutex<Opening>);

#[derive(Debug, Default)]
struct Opening {
    result: Option<Option<Arc<Object>>>,
    number: u64,
    wakers: HashMap<u64, Waker>,
}

impl OpenState {
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.0).result.is_some()
    }

    pub(crate) fn set(&self, result: Option<Arc<Object>>) {
        let wakers = {
            let mut opening = lock(&self.0);
            opening.result = Some(result);
            std::mem::take(&mut opening.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }
}

/// A stored object whose head is being read from the disk.
#[derive(Debug)]
pub struct DiskOpen {
    state: Arc<OpenState>,
    number: u64,
}

impl DiskOpen {
    pub(crate) fn new(state: Arc<OpenState>) -> Self {
        let number = {
            let mut opening = lock(&state.0);
            opening.number += 1;
            opening.number
        };
        Self { state, number }
    }

    /// Returns the object; `None`: it cannot be read, and the request goes on as with a miss. Wakes the task when
    /// there is a result.
    pub fn poll_object(&mut self, context: &mut Context<'_>) -> Poll<Option<Arc<Object>>> {
        let mut opening = lock(&self.state.0);
        match &opening.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                opening.wakers.insert(self.number, context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for DiskOpen {
    fn drop(&mut self) {
        lock(&self.state.0).wakers.remove(&self.number);
    }
}

/// A body in an open file.
#[derive(Debug)]
pub(crate) struct DiskBody {
    /// Only the drop takes it.
    file: Option<File>,
    pub(crate) preamble: Preamble,
    pub(crate) entry: Arc<DiskEntry>,
    pub(crate) pool: Arc<DiskPool>,
    /// The threads of the disk live as long as the cache, and the cache as long as somebody reads.
    _index: Arc<dyn DiskIndex>,
}

impl DiskBody {
    pub(crate) fn new(
        file: File,
        preamble: Preamble,
        entry: Arc<DiskEntry>,
        pool: Arc<DiskPool>,
        index: Arc<dyn DiskIndex>,
    ) -> Self {
        Self { file: Some(file), preamble, entry, pool, _index: index }
    }

    /// Returns the file, for a thread of the disk.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}

impl FileBody for DiskBody {
    fn length(&self) -> u64 {
        self.preamble.body_bytes
    }

    fn start_read(self: Arc<Self>, position: u64) -> (Arc<ReadState>, u64) {
        let state = Arc::new(ReadState::default());
        let first_block = position / BLOCK_BYTES;
        let (blocks, done) = (READ_BLOCKS, Arc::clone(&state));
        let job = Job::Read { body: Arc::clone(&self), first_block, blocks, state: done };
        self.pool.queue.push_read(job);
        (state, first_block * BLOCK_BYTES)
    }
}

impl Drop for DiskBody {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.pool.queue.push_close(file);
        }
    }
}

/// Locks a result; each statement under the lock leaves it valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
