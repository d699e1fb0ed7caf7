//! The threads of the disk, and what they do.

#![expect(
    clippy::disallowed_types,
    reason = "the lock of the directory, which only threads of the disk hold"
)]

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use super::directory::{self, TEMPORARY};
use super::entry::DiskEntry;
use super::file::{self, FileError, OpenFile};
use super::format::BLOCK_BYTES;
use super::queue::{Job, JobQueue};
use super::reading::{DiskBody, OpenState};
use super::scan::{self, LatePurges};
use super::{DiskIndex, DiskPlan};
use crate::body::Body;
use crate::file_body::BodyError;
use crate::memory::MemoryBudget;
use crate::object::Object;
use crate::stats::DiskStats;

/// Length up to which a body is read into memory as a whole.
pub(crate) const PROMOTED_BYTES_MAX: u64 = 4 * BLOCK_BYTES;

#[derive(Debug, Default)]
pub(crate) struct DiskCounters {
    pub(crate) written: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) no_space: AtomicU64,
    pub(crate) damaged: AtomicU64,
}

/// A failed call, for the operator.
#[derive(Debug, Default)]
struct DiskFault {
    /// No further one is reported until a file is written.
    is_noted: bool,
    text: Option<String>,
}

/// The disk of a cache.
#[derive(Debug)]
pub(crate) struct DiskPool {
    pub(crate) plan: DiskPlan,
    pub(crate) queue: JobQueue,
    pub(crate) counters: DiskCounters,
    /// Memory of what is read.
    memory: Arc<MemoryBudget>,
    /// Sizes of the files of the index.
    pub(crate) bytes: AtomicU64,
    pub(crate) files: AtomicU64,
    /// This process has the lock of the directory.
    is_active: AtomicBool,
    pub(crate) is_scanning: AtomicBool,
    pub(crate) late_purges: LatePurges,
    lock: Mutex<Option<File>>,
    threads_left: AtomicUsize,
    fault: Mutex<DiskFault>,
    /// Distinguishes the temporary files of this process.
    pub(crate) token: u64,
    temporaries: AtomicU64,
}

impl DiskPool {
    /// Checks the directory.
    pub(crate) fn new(
        plan: DiskPlan,
        queued_bytes_max: u64,
        memory: &Arc<MemoryBudget>,
    ) -> io::Result<Arc<Self>> {
        directory::prepare(&plan.directory)?;
        Ok(Arc::new(Self {
            queue: JobQueue::new(plan.queue_max, queued_bytes_max),
            counters: DiskCounters::default(),
            memory: Arc::clone(memory),
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            is_active: AtomicBool::new(false),
            is_scanning: AtomicBool::new(true),
            late_purges: LatePurges::default(),
            lock: Mutex::default(),
            threads_left: AtomicUsize::new(plan.threads),
            fault: Mutex::default(),
            token: fastrand::u64(..),
            temporaries: AtomicU64::new(0),
            plan,
        }))
    }

    /// Starts the threads.
    pub(crate) fn start(self: &Arc<Self>, cache: &Weak<dyn DiskIndex>) -> io::Result<()> {
        for _ in 0..self.plan.threads {
            let (pool, cache) = (Arc::clone(self), Weak::clone(cache));
            thread::Builder::new().name("cache-disk".to_owned()).spawn(move || run(&pool, &cache))?;
        }
        let (pool, cache) = (Arc::clone(self), Weak::clone(cache));
        thread::Builder::new().name("cache-scan".to_owned()).spawn(move || scan::run(&pool, &cache))?;
        Ok(())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    pub(crate) fn activate(&self, lock: File) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        self.is_active.store(true, Ordering::Release);
    }

    /// Writes nothing from now on, and gives the directory to another process once the queued jobs are done.
    pub(crate) fn release(&self) {
        self.is_active.store(false, Ordering::Release);
        self.unlock_if_released();
    }

    fn unlock_if_released(&self) {
        if !self.is_active() && self.queue.has_no_changes() {
            self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    fn has_lock(&self) -> bool {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Gives the directory to others with the end of the last thread.
    fn end_thread(&self) {
        if self.threads_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    pub(crate) fn stats(&self) -> DiskStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskStats {
            objects: load(&self.files),
            bytes: load(&self.bytes),
            queued: self.queue.len(),
            written: load(&self.counters.written),
            read: load(&self.counters.read),
            evicted: load(&self.counters.evicted),
            queue_full: load(&self.counters.queue_full),
            errors: load(&self.counters.errors),
            no_space: load(&self.counters.no_space),
            damaged: load(&self.counters.damaged),
            is_active: self.is_active(),
            is_scanning: self.is_scanning.load(Ordering::Relaxed),
        }
    }

    /// Counts a failure, and returns whether the disk or the quota is full.
    pub(crate) fn note_error(&self, error: &FileError) -> bool {
        let is_full = match error {
            FileError::Io(error) => {
                matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            FileError::Format(_) => false,
        };
        let counter = match error {
            _ if is_full => &self.counters.no_space,
            FileError::Io(_) => &self.counters.errors,
            FileError::Format(_) => &self.counters.damaged,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let FileError::Io(error) = error {
            let mut fault = self.lock_fault();
            if !fault.is_noted {
                *fault = DiskFault { is_noted: true, text: Some(error.to_string()) };
            }
        }
        is_full
    }

    /// Returns the reason of the first failed call since the last file that was written, once.
    pub(crate) fn take_fault(&self) -> Option<String> {
        self.lock_fault().text.take()
    }

    fn note_success(&self) {
        self.counters.written.fetch_add(1, Ordering::Relaxed);
        self.lock_fault().is_noted = false;
    }

    fn lock_fault(&self) -> MutexGuard<'_, DiskFault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, entry: &DiskEntry) -> PathBuf {
        entry.name.path(&self.plan.directory)
    }

    fn temporary_path(&self, entry: &DiskEntry) -> PathBuf {
        let number = self.temporaries.fetch_add(1, Ordering::Relaxed);
        self.path(entry).with_extension(format!("{:016x}-{number}{TEMPORARY}", self.token))
    }
}

impl Drop for DiskPool {
    fn drop(&mut self) {
        // On a core, which must not close it: its threads have done so, unless they could not be started.
        let lock = self.lock.get_mut().unwrap_or_else(PoisonError::into_inner);
        lock.take().into_iter().for_each(std::mem::forget);
    }
}

fn run(pool: &Arc<DiskPool>, cache: &Weak<dyn DiskIndex>) {
    const NICE: i32 = 10;
    // On Linux the priority is that of the thread. Without it, the thread only competes.
    let _ = rustix::process::setpriority_process(None, NICE);
    while let Some((job, taken)) = pool.queue.take() {
        match job {
            Job::Open { entry, state } => open(pool, cache, &entry, &state),
            Job::Read { body, first_block, blocks, state } => {
                let chunk = match body.file() {
                    Some(file) => file::read_blocks(file, &body.preamble, first_block, blocks, &pool.memory),
                    None => Err(io::Error::from(io::ErrorKind::NotFound).into()),
                };
                pool.counters.read.fetch_add(1, Ordering::Relaxed);
                state.set(chunk.map_err(|error| {
                    drop_unreadable(pool, cache, &body.entry, &error);
                    BodyError::Disk
                }));
            }
            Job::Write { entry, object } => write(pool, cache, &entry, &object),
            Job::UpdateHead { entry, object } => update_head(pool, cache, &entry, &object),
            Job::Remove { entry } => remove(pool, cache, &entry),
            Job::Close { file } => drop(file),
        }
        drop(taken);
        pool.unlock_if_released();
    }
    pool.end_thread();
}

/// Reads a head. A small body becomes an object in memory again.
fn open(pool: &Arc<DiskPool>, cache: &Weak<dyn DiskIndex>, entry: &Arc<DiskEntry>, state: &OpenState) {
    let Some(cache) = cache.upgrade() else { return state.set(None) };
    let object = read_object(pool, &cache, entry);
    pool.counters.read.fetch_add(1, Ordering::Relaxed);
    let object = match object {
        _ if entry.is_removed() => None,
        Ok(object) => {
            let object = Arc::new(object);
            entry.set_opened(&object);
            if object.body.chunks().is_some() {
                cache.promote(&object, entry);
            }
            Some(object)
        }
        Err(error) => {
            drop_unreadable(pool, &Arc::downgrade(&cache), entry, &error);
            None
        }
    };
    state.set(object);
}

fn read_object(
    pool: &Arc<DiskPool>,
    cache: &Arc<dyn DiskIndex>,
    entry: &Arc<DiskEntry>,
) -> Result<Object, FileError> {
    let OpenFile { file, preamble, slots } = file::open(&pool.path(entry))?;
    let head = slots.head;
    let is_expected = preamble.nonce == entry.nonce
        && *head.key == *entry.key.text()
        && head.variant == entry.variant
        && head.storable.vary == entry.vary;
    if !is_expected {
        return Err(super::format::FormatError::Foreign.into());
    }
    let body = match preamble.body_bytes {
        0 => Body::memory(Vec::new()),
        1..=PROMOTED_BYTES_MAX => {
            let blocks = preamble.body_bytes.div_ceil(BLOCK_BYTES);
            Body::memory(vec![file::read_blocks(&file, &preamble, 0, blocks, &pool.memory)?])
        }
        _ => {
            let (entry, pool, index) = (Arc::clone(entry), Arc::clone(pool), Arc::clone(cache));
            Body::in_file(Arc::new(DiskBody::new(file, preamble, entry, pool, index)))
        }
    };
    let (key, body) = (entry.key.clone(), Arc::new(body));
    Ok(Object::new(&pool.memory, key, head.variant, head.head, head.storable, body))
}

/// Removes the entry of a file that cannot be read, or is not what was written.
fn drop_unreadable(pool: &DiskPool, cache: &Weak<dyn DiskIndex>, entry: &Arc<DiskEntry>, error: &FileError) {
    if entry.is_removed() {
        return;
    }
    pool.note_error(error);
    if let Some(cache) = cache.upgrade() {
        cache.remove_entry(entry);
    }
}

/// Writes an object to a temporary name, and renames it. An entry that was removed meanwhile leaves no file.
fn write(pool: &DiskPool, cache: &Weak<dyn DiskIndex>, entry: &Arc<DiskEntry>, object: &Arc<Object>) {
    let Some(cache) = cache.upgrade() else { return };
    if entry.is_removed() {
        return;
    }
    cache.make_room_on_disk();
    let (path, temporary) = (pool.path(entry), pool.temporary_path(entry));
    let written =
        file::write(&temporary, object, entry.nonce).and_then(|()| Ok(std::fs::rename(&temporary, &path)?));
    match written {
        Ok(()) => {
            pool.note_success();
            entry.set_written();
            if entry.is_removed() {
                remove(pool, &Arc::downgrade(&cache), entry);
            }
        }
        Err(error) => {
            // Fails if it was not created.
            let _ = file::remove(&temporary);
            cache.remove_entry(entry);
            if pool.note_error(&error) {
                cache.evict_from_disk(2 * entry.file_bytes);
            }
        }
    }
}

fn update_head(pool: &DiskPool, cache: &Weak<dyn DiskIndex>, entry: &Arc<DiskEntry>, object: &Arc<Object>) {
    if entry.is_removed() || !entry.is_written() {
        return;
    }
    match file::update_head(&pool.path(entry), object, entry.nonce) {
        Ok(true) => {}
        Ok(false) => {
            if let Some(cache) = cache.upgrade() {
                cache.remove_entry(entry);
            }
        }
        Err(error) => drop_unreadable(pool, cache, entry, &error),
    }
}

/// Removes the file of a removed entry, unless a newer one has its name already.
fn remove(pool: &DiskPool, cache: &Weak<dyn DiskIndex>, entry: &Arc<DiskEntry>) {
    let path = pool.path(entry);
    let is_others = match cache.upgrade() {
        Some(cache) => cache.has_written_file(entry),
        // Without the index, the file tells.
        None => file::open(&path).is_ok_and(|opened| opened.preamble.nonce != entry.nonce),
    };
    // Another process has the directory, and may have written the file.
    if is_others || !pool.has_lock() {
        return;
    }
    if let Err(error) = file::remove(&path) {
        pool.note_error(&error.into());
    }
}
