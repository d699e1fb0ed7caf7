//! One shard of the store in memory: its table, and the queues of S3-FIFO that decide what is evicted. Pure.
//!
//! ```text
//! new -> small (10 %) -> used meanwhile? main : evicted, remembered in ghost
//! new, in ghost -> main -> used meanwhile? main again : evicted
//! ```
//! An object that is read once passes through the small queue only, so that a scan evicts no popular object.
//! (Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023.)

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::disk::entry::DiskEntry;
use crate::fill::FillShared;
use crate::object::Object;
use crate::time::UnixTime;

/// Share of the bytes that the small queue keeps, in percent.
const SMALL_PERCENT: u64 = 10;
/// Maximum number of variants of one key; a further one replaces the oldest.
pub(crate) const VARIANTS_MAX: usize = 32;
/// Maximum number of keys that are known not to be stored.
const UNCACHEABLE_MAX: usize = 1024;
/// Least capacity of the memory of evicted objects.
const GHOSTS_MIN: usize = 64;

/// Hasher of keys that are hashes already.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_ne_bytes(word);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(crate) type HashTable<K, V> = HashMap<K, V, BuildHasherDefault<IdentityHasher>>;

/// The responses of one key: readers take the set and select outside of the lock.
pub(crate) type VariantSet = Arc<Vec<Arc<Object>>>;

/// Copies of parts of a shard.
pub(crate) struct ShardParts {
    pub(crate) sets: Vec<VariantSet>,
    pub(crate) files: Vec<Arc<Vec<Arc<DiskEntry>>>>,
}

/// Result of one step of an eviction.
pub(crate) enum Evicted {
    Object(Arc<Object>),
    /// An object was kept for another round.
    Kept,
    /// There is no object.
    Nothing,
}

#[derive(Default)]
pub(crate) struct Shard {
    table: HashTable<u128, VariantSet>,
    /// Objects and their sizes. They belong to the table: a removed one is freed at once.
    small: VecDeque<(Weak<Object>, u64)>,
    main: VecDeque<(Weak<Object>, u64)>,
    small_bytes: u64,
    main_bytes: u64,
    ghosts: HashTable<u64, u64>,
    ghost_order: VecDeque<(u64, u64)>,
    ghost_number: u64,
    /// Entries of the queues whose object was removed otherwise.
    removed: usize,
    objects: usize,
    fills: HashTable<u128, Vec<Arc<FillShared>>>,
    uncacheable: HashTable<u128, UnixTime>,
    uncacheable_order: VecDeque<u128>,
    files: HashTable<u128, Arc<Vec<Arc<DiskEntry>>>>,
    file_order: VecDeque<Arc<DiskEntry>>,
    removed_files: usize,
}

impl Shard {
    pub(crate) fn get(&self, hash: u128) -> Option<&VariantSet> {
        self.table.get(&hash)
    }

    pub(crate) fn objects(&self) -> usize {
        self.objects
    }

    /// Copies the sets, to look at them outside of the lock.
    pub(crate) fn sets(&self) -> Vec<VariantSet> {
        self.table.values().cloned().collect()
    }

    /// Copies all that a purge looks at, which it does outside of the lock. The fills are marked here: one that
    /// ends becomes an object under the same lock.
    pub(crate) fn all_parts(&self, fill_fits: impl Fn(&FillShared) -> bool) -> ShardParts {
        self.fills.values().flatten().filter(|fill| fill_fits(fill)).for_each(|fill| fill.set_purged());
        ShardParts { sets: self.sets(), files: self.files.values().cloned().collect() }
    }

    /// Copies the parts of one hash, and marks its fills.
    pub(crate) fn parts_of(&self, hash: u128, fill_fits: impl Fn(&FillShared) -> bool) -> ShardParts {
        self.fills(hash).iter().filter(|fill| fill_fits(fill)).for_each(|fill| fill.set_purged());
        ShardParts {
            sets: self.get(hash).into_iter().cloned().collect(),
            files: self.files(hash).into_iter().cloned().collect(),
        }
    }

    /// Adds an object. Returns those that it replaces, with the same variant or beyond the maximum of variants, or
    /// with another key of the same hash.
    pub(crate) fn insert(&mut self, object: &Arc<Object>) -> Vec<Arc<Object>> {
        let hash = object.key.hash();
        let mut replaced = Vec::new();
        let mut set: Vec<Arc<Object>> = Vec::new();
        for old in self.table.get(&hash).into_iter().flat_map(|set| set.iter()) {
            let is_replaced = old.key.text() != object.key.text()
                || (old.variant == object.variant && old.storable.vary == object.storable.vary);
            if is_replaced { replaced.push(Arc::clone(old)) } else { set.push(Arc::clone(old)) }
        }
        if set.len() >= VARIANTS_MAX {
            replaced.push(set.remove(0));
        }
        set.push(Arc::clone(object));
        self.table.insert(hash, Arc::new(set));
        for old in &replaced {
            old.state.is_removed.store(true, Ordering::Release);
            old.state.is_outdated.store(true, Ordering::Release);
            object.state.uses.fetch_max(old.state.uses.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.objects = self.objects + 1 - replaced.len();
        self.removed += replaced.len();
        let bytes = object.memory_bytes();
        let is_known = !replaced.is_empty() || self.ghosts.remove(&fingerprint(object)).is_some();
        match is_known {
            true => {
                self.main.push_back((Arc::downgrade(object), bytes));
                self.main_bytes += bytes;
            }
            false => {
                self.small.push_back((Arc::downgrade(object), bytes));
                self.small_bytes += bytes;
            }
        }
        self.compact();
        replaced
    }

    /// Removes an object, unless it was removed already.
    pub(crate) fn remove(&mut self, object: &Arc<Object>) -> bool {
        object.state.is_outdated.store(true, Ordering::Release);
        if object.state.is_removed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.removed += 1;
        self.unlink(object);
        self.compact();
        true
    }

    fn unlink(&mut self, object: &Arc<Object>) {
        let hash = object.key.hash();
        let Some(set) = self.table.get_mut(&hash) else { return };
        let rest: Vec<_> = set.iter().filter(|other| !Arc::ptr_eq(other, object)).cloned().collect();
        match rest.is_empty() {
            true => drop(self.table.remove(&hash)),
            false => *set = Arc::new(rest),
        }
        self.objects -= 1;
    }

    /// Takes one step of S3-FIFO. With `is_forced`, no use keeps an object.
    pub(crate) fn evict(&mut self, is_forced: bool) -> Evicted {
        let all_bytes = self.small_bytes + self.main_bytes;
        let takes_small = self.small_bytes * 100 >= all_bytes * SMALL_PERCENT && !self.small.is_empty();
        let Some((object, bytes)) = (match takes_small || self.main.is_empty() {
            true => self.small.pop_front().inspect(|(_, bytes)| self.small_bytes -= bytes),
            false => self.main.pop_front().inspect(|(_, bytes)| self.main_bytes -= bytes),
        }) else {
            return Evicted::Nothing;
        };
        let stored = object.upgrade().filter(|object| !object.state.is_removed.load(Ordering::Acquire));
        let Some(object) = stored else {
            self.removed -= 1;
            return Evicted::Kept;
        };
        let uses = object.state.uses.load(Ordering::Relaxed);
        if uses > 0 && !is_forced {
            let left = if takes_small { 0 } else { uses - 1 };
            object.state.uses.store(left, Ordering::Relaxed);
            self.main.push_back((Arc::downgrade(&object), bytes));
            self.main_bytes += bytes;
            return Evicted::Kept;
        }
        if takes_small {
            self.remember(&object);
        }
        object.state.is_removed.store(true, Ordering::Release);
        self.unlink(&object);
        Evicted::Object(object)
    }

    /// Remembers an evicted object, as many as there are objects.
    fn remember(&mut self, object: &Object) {
        self.ghost_number += 1;
        let entry = (fingerprint(object), self.ghost_number);
        self.ghosts.insert(entry.0, entry.1);
        self.ghost_order.push_back(entry);
        while self.ghost_order.len() > self.objects.max(GHOSTS_MIN) {
            let Some((oldest, number)) = self.ghost_order.pop_front() else { break };
            if self.ghosts.get(&oldest) == Some(&number) {
                self.ghosts.remove(&oldest);
            }
        }
    }

    /// Drops the entries of removed objects, once they are half of the queues.
    fn compact(&mut self) {
        const REMOVED_MIN: usize = 16;
        if self.removed < REMOVED_MIN.max(self.objects) {
            return;
        }
        let is_there = |object: &Weak<Object>| {
            object.upgrade().is_some_and(|object| !object.state.is_removed.load(Ordering::Acquire))
        };
        self.small.retain(|(object, _)| is_there(object));
        self.main.retain(|(object, _)| is_there(object));
        self.small_bytes = self.small.iter().map(|(_, bytes)| bytes).sum();
        self.main_bytes = self.main.iter().map(|(_, bytes)| bytes).sum();
        self.removed = 0;
    }

    pub(crate) fn fills(&self, hash: u128) -> &[Arc<FillShared>] {
        self.fills.get(&hash).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn add_fill(&mut self, fill: &Arc<FillShared>) {
        self.fills.entry(fill.key.hash()).or_default().push(Arc::clone(fill));
    }

    pub(crate) fn remove_fill(&mut self, fill: &Arc<FillShared>) {
        let hash = fill.key.hash();
        if let Some(fills) = self.fills.get_mut(&hash) {
            fills.retain(|other| !Arc::ptr_eq(other, fill));
            if fills.is_empty() {
                self.fills.remove(&hash);
            }
        }
    }

    pub(crate) fn is_uncacheable(&self, hash: u128, now: UnixTime) -> bool {
        self.uncacheable.get(&hash).is_some_and(|until| now < *until)
    }

    pub(crate) fn set_uncacheable(&mut self, hash: u128, until: UnixTime) {
        if self.uncacheable.insert(hash, until).is_none() {
            self.uncacheable_order.push_back(hash);
        }
        if self.uncacheable_order.len() > UNCACHEABLE_MAX
            && let Some(oldest) = self.uncacheable_order.pop_front()
        {
            self.uncacheable.remove(&oldest);
        }
    }
}

/// Result of one step of an eviction from the disk.
pub(crate) enum EvictedFile {
    Entry(Arc<DiskEntry>),
    /// A file was kept for another round, or was removed already.
    Kept,
    /// There is no file.
    Nothing,
}

/// The index of the disk.
impl Shard {
    pub(crate) fn files(&self, hash: u128) -> Option<&Arc<Vec<Arc<DiskEntry>>>> {
        self.files.get(&hash)
    }

    /// Adds an entry. Those with its name are replaced; they are returned.
    pub(crate) fn add_file(&mut self, entry: &Arc<DiskEntry>) -> Vec<Arc<DiskEntry>> {
        let hash = entry.key.hash();
        let old: Vec<_> = self.files.get(&hash).map(|files| files.to_vec()).unwrap_or_default();
        let (mut replaced, mut files): (Vec<_>, Vec<_>) =
            old.into_iter().partition(|other| other.name == entry.name);
        if files.len() >= VARIANTS_MAX {
            replaced.push(files.remove(0));
        }
        files.push(Arc::clone(entry));
        self.files.insert(hash, Arc::new(files));
        self.file_order.push_back(Arc::clone(entry));
        replaced.iter().for_each(|old| old.is_removed.store(true, Ordering::Release));
        self.removed_files += replaced.len();
        self.compact_files();
        replaced
    }

    /// Removes an entry, unless it was removed already.
    pub(crate) fn remove_file(&mut self, entry: &Arc<DiskEntry>) -> bool {
        if entry.is_removed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.removed_files += 1;
        self.unlink_file(entry);
        self.compact_files();
        true
    }

    fn unlink_file(&mut self, entry: &Arc<DiskEntry>) {
        let hash = entry.key.hash();
        let Some(files) = self.files.get_mut(&hash) else { return };
        let rest: Vec<_> = files.iter().filter(|other| !Arc::ptr_eq(other, entry)).cloned().collect();
        match rest.is_empty() {
            true => drop(self.files.remove(&hash)),
            false => *files = Arc::new(rest),
        }
    }

    /// Takes the file that was added first, unless it was read since its last turn. With `is_forced`, that does not
    /// keep it.
    pub(crate) fn evict_file(&mut self, is_forced: bool) -> EvictedFile {
        let Some(entry) = self.file_order.pop_front() else { return EvictedFile::Nothing };
        if entry.is_removed() {
            self.removed_files -= 1;
            return EvictedFile::Kept;
        }
        if entry.was_used.swap(false, Ordering::Relaxed) && !is_forced {
            self.file_order.push_back(entry);
            return EvictedFile::Kept;
        }
        entry.is_removed.store(true, Ordering::Release);
        self.unlink_file(&entry);
        EvictedFile::Entry(entry)
    }

    /// Drops the removed entries, once they are half of the queue.
    fn compact_files(&mut self) {
        const REMOVED_MIN: usize = 64;
        if self.removed_files >= REMOVED_MIN && self.removed_files * 2 >= self.file_order.len() {
            self.file_order.retain(|entry| !entry.is_removed());
            self.removed_files = 0;
        }
    }
}

/// Returns the number by which an evicted object is remembered.
fn fingerprint(object: &Object) -> u64 {
    let variant = object
        .variant
        .iter()
        .fold(0_u64, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (object.key.hash() >> 64) as u64 ^ variant
}
