//! Jobs of the threads of the disk: reads first, and writes of one key one after the other.

#![expect(
    clippy::disallowed_types,
    reason = "the queue between cores and threads of the disk; held to add or take a job"
)]

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::entry::DiskEntry;
use super::reading::{DiskBody, OpenState};
use crate::file_body::ReadState;
use crate::object::Object;

/// Reads in a row, after which a write has its turn.
const READS_IN_A_ROW_MAX: u32 = 16;

/// Work for a thread of the disk.
pub(crate) enum Job {
    /// Reads the head of a file, and the body of a small one.
    Open { entry: Arc<DiskEntry>, state: Arc<OpenState> },
    /// Reads a piece of a large body.
    Read { body: Arc<DiskBody>, first_block: u64, blocks: u64, state: Arc<ReadState> },
    /// Writes an object.
    Write { entry: Arc<DiskEntry>, object: Arc<Object> },
    /// Writes the head of an object whose validation changed it.
    UpdateHead { entry: Arc<DiskEntry>, object: Arc<Object> },
    /// Removes the file of a removed entry.
    Remove { entry: Arc<DiskEntry> },
    /// Closes a file: a core has a table of descriptors of its own, in which the number of this one may be another's.
    Close { file: File },
}

impl Job {
    /// Returns the key that no other job may change at the same time.
    fn changed_key(&self) -> Option<u128> {
        match self {
            Self::Open { .. } | Self::Read { .. } | Self::Close { .. } => None,
            Self::Write { entry, .. } | Self::UpdateHead { entry, .. } | Self::Remove { entry } => {
                Some(entry.key.hash())
            }
        }
    }

    fn written_bytes(&self) -> u64 {
        match self {
            Self::Write { object, .. } => object.memory_bytes(),
            _ => 0,
        }
    }
}

/// A taken job; its key is free again when the guard is dropped.
pub(crate) struct Taken<'q> {
    queue: &'q JobQueue,
    key: Option<u128>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.running -= 1;
        if let Some(key) = self.key {
            state.busy_keys.remove(&key);
        }
        let is_idle = state.is_idle();
        drop(state);
        // A job of the same key may wait.
        self.queue.changed.notify_all();
        if is_idle {
            self.queue.idle.notify_all();
        }
    }
}

#[derive(Default)]
struct QueueState {
    reads: VecDeque<Job>,
    changes: VecDeque<Job>,
    busy_keys: HashSet<u128>,
    queued_writes: usize,
    queued_opens: usize,
    queued_updates: usize,
    /// Memory of the objects that wait to be written.
    queued_bytes: u64,
    running: usize,
    reads_in_a_row: u32,
    is_closed: bool,
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.changes.is_empty() && self.running == 0
    }

    fn take(&mut self) -> Option<Job> {
        if self.reads_in_a_row >= READS_IN_A_ROW_MAX
            && let Some(job) = self.take_change()
        {
            self.reads_in_a_row = 0;
            return Some(job);
        }
        if let Some(job) = self.reads.pop_front() {
            self.reads_in_a_row += 1;
            self.queued_opens -= usize::from(matches!(job, Job::Open { .. }));
            return Some(job);
        }
        self.take_change()
    }

    /// Takes the first change of a key that no thread changes.
    fn take_change(&mut self) -> Option<Job> {
        let is_free = |job: &Job| job.changed_key().is_none_or(|key| !self.busy_keys.contains(&key));
        let index = self.changes.iter().position(is_free)?;
        let job = self.changes.remove(index)?;
        self.busy_keys.extend(job.changed_key());
        match job {
            Job::Write { .. } => {
                self.queued_writes -= 1;
                self.queued_bytes -= job.written_bytes();
            }
            Job::UpdateHead { .. } => self.queued_updates -= 1,
            Job::Open { .. } | Job::Read { .. } | Job::Remove { .. } | Job::Close { .. } => {}
        }
        Some(job)
    }
}

pub(crate) struct JobQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    idle: Condvar,
    jobs_max: usize,
    bytes_max: u64,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JobQueue")
    }
}

impl JobQueue {
    pub(crate) fn new(jobs_max: usize, bytes_max: u64) -> Self {
        let (changed, idle) = (Condvar::new(), Condvar::new());
        Self { state: Mutex::default(), changed, idle, jobs_max, bytes_max }
    }

    /// Adds the writing of an object. False: the queue is full.
    pub(crate) fn push_write(&self, entry: &Arc<DiskEntry>, object: &Arc<Object>) -> bool {
        let job = Job::Write { entry: Arc::clone(entry), object: Arc::clone(object) };
        let mut state = self.lock();
        let bytes = job.written_bytes();
        // One object may be larger than the bound.
        let has_room = state.queued_bytes == 0 || state.queued_bytes + bytes <= self.bytes_max;
        let is_full = state.queued_writes >= self.jobs_max || !has_room;
        if is_full || state.is_closed {
            return false;
        }
        state.queued_writes += 1;
        state.queued_bytes += bytes;
        self.add_change(state, job);
        true
    }

    /// Adds the removal of a file: each entry has one.
    pub(crate) fn push_removal(&self, entry: &Arc<DiskEntry>) {
        let state = self.lock();
        if !state.is_closed {
            self.add_change(state, Job::Remove { entry: Arc::clone(entry) });
        }
    }

    /// Adds the change of a head. False: the queue is full.
    pub(crate) fn push_update(&self, entry: &Arc<DiskEntry>, object: &Arc<Object>) -> bool {
        let mut state = self.lock();
        if state.queued_updates >= self.jobs_max || state.is_closed {
            return false;
        }
        state.queued_updates += 1;
        let job = Job::UpdateHead { entry: Arc::clone(entry), object: Arc::clone(object) };
        self.add_change(state, job);
        true
    }

    /// Adds the reading of a head. False: the queue is full.
    pub(crate) fn push_open(&self, entry: &Arc<DiskEntry>, state: &Arc<OpenState>) -> bool {
        let mut queue = self.lock();
        if queue.queued_opens >= self.jobs_max || queue.is_closed {
            return false;
        }
        queue.queued_opens += 1;
        queue.reads.push_back(Job::Open { entry: Arc::clone(entry), state: Arc::clone(state) });
        drop(queue);
        self.changed.notify_one();
        true
    }

    /// Adds the reading of a piece: each response has at most one at a time.
    pub(crate) fn push_read(&self, job: Job) {
        self.lock().reads.push_back(job);
        self.changed.notify_one();
    }

    /// Adds the closing of a file. Once the threads end, nothing but the end of the process closes it.
    pub(crate) fn push_close(&self, file: File) {
        let mut state = self.lock();
        if state.is_closed {
            std::mem::forget(file);
            return;
        }
        state.reads.push_back(Job::Close { file });
        drop(state);
        self.changed.notify_one();
    }

    fn add_change(&self, mut state: MutexGuard<'_, QueueState>, job: Job) {
        state.changes.push_back(job);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for a job. `None`: the queue is closed.
    pub(crate) fn take(&self) -> Option<(Job, Taken<'_>)> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.take() {
                state.running += 1;
                let key = job.changed_key();
                return Some((job, Taken { queue: self, key }));
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until all jobs are done.
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.lock();
        while !state.is_idle() {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads once the queued jobs are done.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn has_no_changes(&self) -> bool {
        let state = self.lock();
        state.changes.is_empty() && state.busy_keys.is_empty()
    }

    pub(crate) fn len(&self) -> u64 {
        let state = self.lock();
        (state.reads.len() + state.changes.len()) as u64
    }

    /// Locks the queue; each method leaves it valid.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
