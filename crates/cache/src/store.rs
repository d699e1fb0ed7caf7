//! The store that all cores share: look-ups, fills, purges and counters.

#![expect(
    clippy::disallowed_types,
    reason = "shards of a store that all cores share; a lock is held for a look-up in a table"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rt::file_memory::FileMemory;
use wire::Header;

use crate::disk::entry::DiskEntry;
use crate::disk::pool::DiskPool;
use crate::disk::reading::DiskOpen;
use crate::disk::scan::LatePurge;
use crate::disk::{DiskIndex, DiskPlan};
use crate::fill::{Fill, FillOwner, FillShared, FillWaiter};
use crate::key::{Key, KeyHasher};
use crate::memory::MemoryBudget;
use crate::object::Object;
use crate::policy::{NotStored, ResponseTimes, decide_revalidated};
use crate::request::RequestPolicy;
use crate::rules::CacheRules;
use crate::shard::{Evicted, Shard, ShardParts, VariantSet};
use crate::stats::{CacheStats, Counters, ObjectSummary};
use crate::time::UnixTime;
use crate::variant::{Selection, secondary_key};

/// Maximum number of shards; a small store has fewer, so that each can hold some objects.
const SHARDS_MAX: u64 = 64;
/// Memory of a store for each shard.
const SHARD_BYTES_MIN: u64 = 1024 * 1024;
/// Objects that are kept in a row because they were used; the next one is evicted in any case, so that the work for a
/// stored object is bounded.
pub(crate) const KEPT_MAX: u32 = 64;
/// Maximum number of fills of one key at a time, for different variants.
const FILLS_PER_KEY_MAX: usize = 8;
/// Time for which requests do not wait for a key whose response was not stored.
const UNCACHEABLE_S: u64 = 120;
/// Part of the memory that objects may occupy while they wait to be written to disk: a quarter.
const QUEUED_FRACTION: u64 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePlan {
    pub name: String,
    pub memory_bytes_max: u64,
    /// Maximum size of the body of a stored response.
    pub object_bytes_max: u64,
    /// Maximum number of requests that wait for one response.
    pub waiters_max: usize,
    /// Maximum number of responses that arrive and may be stored, at a time.
    pub fills_max: usize,
    pub disk: Option<DiskPlan>,
}

/// A cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{}: {source}", directory.display())]
    Directory { directory: PathBuf, source: std::io::Error },
    #[error("cannot start the threads of the disk: {0}")]
    Threads(std::io::Error),
}

/// Result of a look-up.
#[derive(Debug)]
pub enum Lookup {
    /// A stored response, fresh or not.
    Hit(Arc<Object>),
    /// A stored response whose head has to be read first.
    OnDisk(DiskOpen),
    /// No stored response. With `may_coalesce`, an earlier response of the key was not known to be unfit to be
    /// stored: the request may wait for another one.
    Miss { may_coalesce: bool },
}

/// Result of the wish to fill.
#[derive(Debug)]
pub enum BeginFill {
    /// The request is the leader: it goes to the server.
    Leader(Fill),
    /// Another request went to the server already.
    Filling(FillWaiter),
    /// A bound is reached: the request goes to the server, and its response is not stored.
    Busy,
}

/// A cache, shared by all cores.
pub struct Cache {
    plan: CachePlan,
    hasher: KeyHasher,
    shards: Box<[Mutex<Shard>]>,
    memory: Arc<MemoryBudget>,
    file_memory: Option<Arc<FileMemory>>,
    next_shard: AtomicUsize,
    fills: AtomicUsize,
    counters: Counters,
    pub(crate) disk: Option<Arc<DiskPool>>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Cache({})", self.plan.name)
    }
}

impl Cache {
    /// Creates a cache, and starts the threads of its disk.
    ///
    /// # Errors
    /// The directory cannot be used, or a thread cannot be started.
    pub fn new(plan: CachePlan) -> Result<Arc<Self>, CacheError> {
        Self::with_file_memory(plan, None)
    }

    /// Creates a cache whose long bodies are in memory that the kernel can send from, if it is given. Several caches may
    /// share it; `memory_bytes_max` holds for all of the memory of this one.
    ///
    /// # Errors
    /// Those of [`Cache::new`].
    pub fn with_file_memory(
        plan: CachePlan,
        file_memory: Option<Arc<FileMemory>>,
    ) -> Result<Arc<Self>, CacheError> {
        let shards = (plan.memory_bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // Objects that wait to be written stay in memory, if they are evicted meanwhile.
        let queued_bytes_max = plan.memory_bytes_max / QUEUED_FRACTION;
        let memory = Arc::new(MemoryBudget::default());
        let open = |disk: &DiskPlan| {
            DiskPool::new(disk.clone(), queued_bytes_max, &memory)
                .map_err(|source| CacheError::Directory { directory: disk.directory.clone(), source })
        };
        let disk = plan.disk.as_ref().map(open).transpose()?;
        let cache = Arc::new(Self {
            hasher: KeyHasher::default(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            memory,
            file_memory,
            next_shard: AtomicUsize::new(0),
            fills: AtomicUsize::new(0),
            counters: Counters::default(),
            disk,
            plan,
        });
        if let Some(disk) = &cache.disk {
            let index: Weak<Self> = Arc::downgrade(&cache);
            let index: Weak<dyn DiskIndex> = index;
            disk.start(&index).map_err(CacheError::Threads)?;
        }
        Ok(cache)
    }

    pub fn plan(&self) -> &CachePlan {
        &self.plan
    }

    pub fn key(&self, text: &[u8]) -> Key {
        self.hasher.key(text)
    }

    /// Searches the stored response that a request selects (RFC 9111 §4.1), fresh or not.
    pub fn look_up(&self, key: &Key, headers: &[Header<'_>], now: UnixTime) -> Lookup {
        let hash = key.hash();
        let (set, files, may_coalesce) = {
            let shard = self.shard(key);
            match (shard.get(hash), shard.files(hash)) {
                (None, None) => (None, None, !shard.is_uncacheable(hash, now)),
                (set, files) => (set.cloned(), files.cloned(), true),
            }
        };
        if let Some(object) = set.as_ref().and_then(|set| select(set, key, headers)) {
            object.note_use();
            return Lookup::Hit(Arc::clone(object));
        }
        let entry = files.as_ref().and_then(|files| select_file(files, key, headers));
        entry.and_then(|entry| self.open_file(entry)).unwrap_or(Lookup::Miss { may_coalesce })
    }

    /// Starts to read the head of a file, unless it is open or being opened already. `None`: the queue is full.
    fn open_file(&self, entry: &Arc<DiskEntry>) -> Option<Lookup> {
        let disk = self.active_disk()?;
        entry.was_used.store(true, Ordering::Relaxed);
        if let Some(object) = entry.opened() {
            return Some(Lookup::Hit(object));
        }
        if !entry.is_written() {
            return None;
        }
        let (state, is_new) = entry.opening();
        if is_new && !disk.queue.push_open(entry, &state) {
            state.set(None);
            return None;
        }
        Some(Lookup::OnDisk(DiskOpen::new(state)))
    }

    /// Begins to fill a key, for a miss or a validation. With `coalesces`, the request waits if another one with the
    /// same variant goes to the server already.
    pub fn begin_fill(self: &Arc<Self>, key: &Key, headers: &[Header<'_>], coalesces: bool) -> BeginFill {
        let shared = {
            let mut shard = self.shard(key);
            let set = shard.get(key.hash()).map(Arc::clone);
            let fills = shard.fills(key.hash());
            let running =
                fills.iter().find(|fill| coalesces && fill.key == *key && fill.fits(headers)).map(Arc::clone);
            match running {
                Some(shared) => Err(shared),
                None if fills.len() >= FILLS_PER_KEY_MAX => return BeginFill::Busy,
                None => {
                    if self.fills.fetch_add(1, Ordering::Relaxed) >= self.plan.fills_max {
                        self.fills.fetch_sub(1, Ordering::Relaxed);
                        return BeginFill::Busy;
                    }
                    let newest = set.as_ref().and_then(|set| set.last());
                    let expected = newest.map(|object| Selection::new(&object.storable.vary, headers));
                    let shared = Arc::new(FillShared::new(key.clone(), expected));
                    shard.add_fill(&shared);
                    Ok(shared)
                }
            }
        };
        match shared {
            Ok(shared) => BeginFill::Leader(Fill::new(self.owner(), shared)),
            Err(shared) => match FillWaiter::new(self.owner(), shared, self.plan.waiters_max) {
                Some(waiter) => BeginFill::Filling(waiter),
                None => BeginFill::Busy,
            },
        }
    }

    fn owner(self: &Arc<Self>) -> Arc<dyn FillOwner> {
        Arc::<Self>::clone(self)
    }

    /// Replaces a stored response by one with the fields of a 304 (RFC 9111 §4.3.4), and returns that. Its body is
    /// the same. If the fields of the 304 forbid to store it, the result is not stored and answers this request only.
    pub fn refresh(
        &self,
        object: &Arc<Object>,
        request: &RequestPolicy,
        headers: &[Header<'_>],
        times: ResponseTimes,
        rules: &CacheRules,
    ) -> Arc<Object> {
        let head = object.head.update_by_304(headers);
        let decision = decide_revalidated(request, &head, headers, times, rules).and_then(|storable| {
            // The object was selected by its own Vary: another one is for the next complete response.
            if storable.vary == object.storable.vary { Ok(storable) } else { Err(NotStored::VaryAny) }
        });
        let refused = decision.as_ref().err().copied();
        let storable = decision.unwrap_or_else(|_| object.storable.clone());
        let updated = Arc::new(Object::new(
            &self.memory,
            object.key.clone(),
            object.variant.clone(),
            head,
            storable,
            Arc::clone(&object.body),
        ));
        match refused {
            None if updated.body.is_on_disk() || self.replace_in_memory(object, &updated) => {
                self.update_on_disk(&updated);
            }
            // The old one was purged or replaced meanwhile, and is not to come back.
            None => {}
            // The stored response stays as it is for other requests.
            Some(reason) if reason.is_of_request() => {}
            Some(_) => _ = self.purge_object(object),
        }
        updated
    }

    /// Removes one response, in memory and on disk.
    fn purge_object(&self, object: &Arc<Object>) -> bool {
        let mut is_removed = self.remove(object);
        // After that, so that an entry that is being added is seen, or sees that the object is outdated.
        let files = self.shard(&object.key).files(object.key.hash()).cloned();
        for entry in files.iter().flat_map(|files| files.iter()).filter(|entry| entry.is_of(object)) {
            is_removed |= self.remove_from_disk(entry);
        }
        is_removed
    }

    /// Removes the responses of a key. Returns their number.
    pub fn purge(&self, key: &Key) -> u64 {
        self.add_late_purge(|| LatePurge::Key(key.text().into()));
        let parts = self.shard(key).parts_of(key.hash(), |fill| fill.key == *key);
        self.purge_parts(&parts, |object| object.key == *key, |entry| entry.key == *key)
    }

    /// Removes the responses whose keys begin with a text. Returns their number.
    pub fn purge_prefix(&self, prefix: &[u8]) -> u64 {
        self.add_late_purge(|| LatePurge::Prefix(prefix.into()));
        let fits = |key: &Key| key.text().starts_with(prefix);
        self.purge_all_parts(|fill| fits(&fill.key), |object| fits(&object.key), |entry| fits(&entry.key))
    }

    /// Removes the responses with a tag. Returns their number.
    pub fn purge_tag(&self, tag: &[u8]) -> u64 {
        self.add_late_purge(|| LatePurge::Tag(tag.into()));
        let fits = |tags: &[Box<[u8]>]| tags.iter().any(|own| **own == *tag);
        // A response whose head is unknown may have the tag.
        self.purge_all_parts(
            |fill| fill.head_or_unknown(|object| fits(&object.storable.tags)),
            |object| fits(&object.storable.tags),
            |entry| fits(&entry.tags),
        )
    }

    /// Removes all responses. Returns their number.
    pub fn purge_all(&self) -> u64 {
        self.add_late_purge(|| LatePurge::All);
        self.purge_all_parts(|_| true, |_| true, |_| true)
    }

    fn purge_all_parts(
        &self,
        fill_fits: impl Fn(&FillShared) -> bool,
        object_fits: impl Fn(&Object) -> bool,
        entry_fits: impl Fn(&DiskEntry) -> bool,
    ) -> u64 {
        let purge = |shard: &Mutex<Shard>| {
            let parts = lock(shard).all_parts(&fill_fits);
            self.purge_parts(&parts, &object_fits, &entry_fits)
        };
        self.shards.iter().map(purge).sum()
    }

    /// Removes what fits of the copied parts of a shard. A response in memory and on disk counts once.
    fn purge_parts(
        &self,
        parts: &ShardParts,
        object_fits: impl Fn(&Object) -> bool,
        entry_fits: impl Fn(&DiskEntry) -> bool,
    ) -> u64 {
        let mut purged = 0;
        for object in parts.sets.iter().flat_map(|set| set.iter()).filter(|object| object_fits(object)) {
            purged += u64::from(self.purge_object(object));
        }
        for entry in parts.files.iter().flat_map(|files| files.iter()).filter(|entry| entry_fits(entry)) {
            purged += u64::from(self.remove_from_disk(entry));
        }
        self.counters.purged.fetch_add(purged, Ordering::Relaxed);
        purged
    }

    /// Returns the counters.
    pub fn stats(&self) -> CacheStats {
        let objects = self.shards.iter().map(|shard| lock(shard).objects() as u64).sum();
        self.counters.snapshot(
            objects,
            self.memory.used(),
            self.fills.load(Ordering::Relaxed) as u64,
            self.disk.as_ref().map(|disk| disk.stats()),
        )
    }

    /// Returns the largest objects in memory, at most `count`.
    pub fn largest(&self, count: usize, now: UnixTime) -> Vec<ObjectSummary> {
        let mut summaries: Vec<ObjectSummary> = Vec::new();
        for shard in &self.shards {
            let sets = lock(shard).sets();
            summaries
                .extend(sets.iter().flat_map(|set| set.iter()).map(|object| ObjectSummary::of(object, now)));
            summaries.sort_unstable_by_key(|summary| std::cmp::Reverse(summary.bytes));
            summaries.truncate(count);
        }
        summaries
    }

    fn store_in_memory(&self, object: &Arc<Object>, fill: &Arc<FillShared>) {
        let replaced = {
            let mut shard = self.shard(&object.key);
            shard.remove_fill(fill);
            // A purge that comes later sees the object, and one that came before has marked the fill.
            shard.insert(object)
        };
        // Outside of the lock.
        drop(replaced);
    }

    /// Stores the validated form of an object. False: the object was purged or replaced meanwhile.
    fn replace_in_memory(&self, object: &Arc<Object>, updated: &Arc<Object>) -> bool {
        let replaced = {
            let mut shard = self.shard(&object.key);
            // A purge marks the object, and the fill of the validation if the object was evicted.
            let mut fills = shard.fills(object.key.hash()).iter();
            if object.is_outdated() || fills.any(|fill| fill.key == object.key && fill.is_purged()) {
                return false;
            }
            shard.insert(updated)
        };
        drop(replaced);
        self.make_room();
        true
    }

    /// Remembers that the responses of a key are not stored, so that requests do not wait for each other.
    pub fn mark_uncacheable(&self, key: &Key, now: UnixTime) {
        self.shard(key).set_uncacheable(key.hash(), now.plus_seconds(UNCACHEABLE_S));
    }

    fn remove(&self, object: &Arc<Object>) -> bool {
        self.shard(&object.key).remove(object)
    }

    pub(crate) fn shards(&self) -> &[Mutex<Shard>] {
        &self.shards
    }

    /// Returns the shards in turn.
    pub(crate) fn next_shard(&self) -> &Mutex<Shard> {
        &self.shards[self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len()]
    }

    pub(crate) fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        // Other bits than those of the table.
        let index = (key.hash() >> 64) as u64 % self.shards.len() as u64;
        lock(&self.shards[index as usize])
    }
}

impl FillOwner for Cache {
    fn object_bytes_max(&self) -> u64 {
        self.plan.object_bytes_max
    }

    fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    fn file_memory(&self) -> Option<&Arc<FileMemory>> {
        self.file_memory.as_ref()
    }

    fn store(&self, object: &Arc<Object>, fill: &Arc<FillShared>) {
        self.store_in_memory(object, fill);
        self.fills.fetch_sub(1, Ordering::Relaxed);
        self.counters.stored.fetch_add(1, Ordering::Relaxed);
        if fill.is_purged() {
            self.purge_object(object);
        } else {
            self.write_to_disk(object);
        }
        self.make_room();
    }

    fn remove_fill(&self, fill: &Arc<FillShared>, reason: Option<NotStored>) {
        {
            let mut shard = self.shard(&fill.key);
            shard.remove_fill(fill);
        }
        self.fills.fetch_sub(1, Ordering::Relaxed);
        if let Some(reason) = reason {
            self.counters.note_not_stored(reason);
        }
    }

    fn add_waiters(&self, count: u64) {
        self.counters.waiters.fetch_add(count, Ordering::Relaxed);
    }

    fn remove_waiters(&self, count: u64) {
        self.counters.waiters.fetch_sub(count, Ordering::Relaxed);
    }

    fn make_room(&self) -> bool {
        let (mut empty_shards, mut kept) = (0, 0);
        while self.memory.used() > self.plan.memory_bytes_max {
            if empty_shards >= self.shards.len() {
                return false;
            }
            let evicted = lock(self.next_shard()).evict(kept >= KEPT_MAX);
            match evicted {
                Evicted::Object(object) => {
                    (empty_shards, kept) = (0, 0);
                    drop(object);
                    self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                }
                Evicted::Kept => (empty_shards, kept) = (0, kept + 1),
                Evicted::Nothing => empty_shards += 1,
            }
        }
        true
    }
}

/// Selects the newest response whose secondary key is that of the request (RFC 9111 §4.1).
fn select<'s>(set: &'s VariantSet, key: &Key, headers: &[Header<'_>]) -> Option<&'s Arc<Object>> {
    set.iter()
        .filter(|object| {
            object.key == *key && secondary_key(&object.storable.vary, headers) == object.variant
        })
        .max_by_key(|object| (object.storable.date_s, object.storable.received_at))
}

/// Selects the newest file, as [`select`] does.
fn select_file<'f>(
    files: &'f [Arc<DiskEntry>],
    key: &Key,
    headers: &[Header<'_>],
) -> Option<&'f Arc<DiskEntry>> {
    files
        .iter()
        .filter(|entry| entry.key == *key && secondary_key(&entry.vary, headers) == entry.variant)
        .max_by_key(|entry| entry.date_s.load(Ordering::Relaxed))
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.queue.close();
        }
    }
}

/// Locks a shard; each method of a shard leaves it valid.
pub(crate) fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
