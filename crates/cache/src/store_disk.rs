//! The part of the store that knows the disk: entries of the index, their removal and their bounds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::disk::DiskIndex;
use crate::disk::directory::FileName;
use crate::disk::entry::DiskEntry;
use crate::disk::format::file_bytes;
use crate::disk::pool::DiskPool;
use crate::disk::scan::LatePurge;
use crate::fill::FillOwner;
use crate::key::Key;
use crate::object::Object;
use crate::shard::EvictedFile;
use crate::store::{Cache, KEPT_MAX, lock};

impl Cache {
    /// Returns the disk, if this process uses it.
    pub(crate) fn active_disk(&self) -> Option<&Arc<DiskPool>> {
        self.disk.as_ref().filter(|disk| disk.is_active())
    }

    /// Gives the directory to another process, as at the end of an upgrade: nothing is written any more.
    pub fn release_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.release();
        }
    }

    /// Returns the reason of the first failed call since the last file that was written, once.
    pub fn take_disk_fault(&self) -> Option<String> {
        self.disk.as_ref().and_then(|disk| disk.take_fault())
    }

    /// Waits until everything that was given to the disk is done. Not for a core.
    pub fn wait_for_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.queue.wait_until_idle();
        }
    }

    /// Writes a stored object; an older file of its variant is removed in any case.
    pub(crate) fn write_to_disk(&self, object: &Arc<Object>) {
        let Some(disk) = self.active_disk() else { return };
        let name = FileName::of(object.key.text(), &object.storable.vary, &object.variant);
        let entry = Arc::new(DiskEntry::new(
            object.key.clone(),
            object.variant.clone(),
            &object.storable,
            name,
            fastrand::u64(..),
            file_bytes(object),
        ));
        entry.set_opened(object);
        let is_too_large = entry.file_bytes > disk.plan.bytes_max;
        self.note_file(disk, &entry, 1);
        let replaced = self.shard(&object.key).add_file(&entry);
        for old in &replaced {
            self.note_file(disk, old, -1);
            // Before the new one is written: the order of jobs of a key stays.
            disk.queue.push_removal(old);
        }
        if object.is_outdated() {
            // A purge that came meanwhile did not see the entry.
            self.remove_from_disk(&entry);
            return;
        }
        if is_too_large || !disk.queue.push_write(&entry, object) {
            let counter = &disk.counters.queue_full;
            counter.fetch_add(u64::from(!is_too_large), Ordering::Relaxed);
            self.add_late_purge(|| LatePurge::Key(object.key.text().into()));
            self.remove_from_disk(&entry);
        }
    }

    /// Writes the changed head of a validated object.
    pub(crate) fn update_on_disk(&self, object: &Arc<Object>) {
        let Some(disk) = self.active_disk() else { return };
        let files = self.shard(&object.key).files(object.key.hash()).cloned();
        let Some(entry) = files.iter().flat_map(|files| files.iter()).find(|entry| entry.is_of(object))
        else {
            return;
        };
        entry.date_s.store(object.storable.date_s, Ordering::Relaxed);
        entry.set_opened(object);
        if entry.tags != object.storable.tags || !disk.queue.push_update(entry, object) {
            self.remove_from_disk(entry);
        }
    }

    /// Removes an entry from the index, and its file.
    pub(crate) fn remove_from_disk(&self, entry: &Arc<DiskEntry>) -> bool {
        let Some(disk) = &self.disk else { return false };
        let is_removed = self.shard(&entry.key).remove_file(entry);
        if is_removed {
            self.note_file(disk, entry, -1);
            disk.queue.push_removal(entry);
        }
        is_removed
    }

    fn has_file_of(&self, entry: &DiskEntry) -> bool {
        let files = self.shard(&entry.key).files(entry.key.hash()).cloned();
        files.iter().flat_map(|files| files.iter()).any(|other| other.name == entry.name)
    }

    /// Remembers a purge for the files that a scan has not read yet.
    pub(crate) fn add_late_purge(&self, purge: impl FnOnce() -> LatePurge) {
        if let Some(disk) = &self.disk
            && disk.is_scanning.load(Ordering::Acquire)
        {
            disk.late_purges.add(purge());
        }
    }

    fn evict_files_while(&self, disk: &Arc<DiskPool>, goes_on: impl Fn(u64) -> bool) {
        let (mut empty_shards, mut kept, mut evicted_bytes) = (0, 0, 0);
        while goes_on(evicted_bytes) && empty_shards < self.shards().len() {
            let evicted = lock(self.next_shard()).evict_file(kept >= KEPT_MAX);
            match evicted {
                EvictedFile::Entry(entry) => {
                    (empty_shards, kept) = (0, 0);
                    evicted_bytes += entry.file_bytes;
                    self.note_file(disk, &entry, -1);
                    disk.counters.evicted.fetch_add(1, Ordering::Relaxed);
                    disk.queue.push_removal(&entry);
                }
                EvictedFile::Kept => (empty_shards, kept) = (0, kept + 1),
                EvictedFile::Nothing => empty_shards += 1,
            }
        }
    }

    /// Adds or removes a file in the sums.
    fn note_file(&self, disk: &DiskPool, entry: &DiskEntry, count: i64) {
        let bytes = entry.file_bytes;
        match count {
            1.. => {
                disk.files.fetch_add(1, Ordering::Relaxed);
                disk.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            _ => {
                disk.files.fetch_sub(1, Ordering::Relaxed);
                disk.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }
}

impl DiskIndex for Cache {
    fn key(&self, text: &[u8]) -> Key {
        Self::key(self, text)
    }

    fn remove_entry(&self, entry: &Arc<DiskEntry>) {
        self.remove_from_disk(entry);
    }

    fn promote(&self, object: &Arc<Object>, entry: &DiskEntry) {
        let replaced = {
            let mut shard = self.shard(&object.key);
            let is_there = shard
                .get(object.key.hash())
                .is_some_and(|set| set.iter().any(|other| other.key == object.key && entry.is_of(other)));
            if is_there || entry.is_removed() {
                return;
            }
            shard.insert(object)
        };
        drop(replaced);
        self.make_room();
    }

    fn add_scanned(&self, entry: &Arc<DiskEntry>) -> bool {
        let Some(disk) = &self.disk else { return false };
        {
            let mut shard = self.shard(&entry.key);
            let hash = entry.key.hash();
            let is_in_memory =
                shard.get(hash).is_some_and(|set| set.iter().any(|object| entry.is_of(object)));
            let is_indexed =
                shard.files(hash).is_some_and(|files| files.iter().any(|other| other.name == entry.name));
            if is_in_memory || is_indexed {
                return false;
            }
            self.note_file(disk, entry, 1);
            let replaced = shard.add_file(entry);
            drop(shard);
            for old in &replaced {
                self.note_file(disk, old, -1);
                disk.queue.push_removal(old);
            }
        }
        self.make_room_on_disk();
        true
    }

    fn remove_file_unless_used(&self, entry: &Arc<DiskEntry>) {
        if let Some(disk) = &self.disk
            && !self.has_file_of(entry)
        {
            disk.queue.push_removal(entry);
        }
    }

    fn has_written_file(&self, entry: &DiskEntry) -> bool {
        let files = self.shard(&entry.key).files(entry.key.hash()).cloned();
        let mut others = files.iter().flat_map(|files| files.iter());
        others.any(|other| other.name == entry.name && other.nonce != entry.nonce && other.is_written())
    }

    fn make_room_on_disk(&self) {
        let Some(disk) = &self.disk else { return };
        let is_beyond = || {
            disk.bytes.load(Ordering::Relaxed) > disk.plan.bytes_max
                || disk.files.load(Ordering::Relaxed) > disk.plan.files_max
        };
        self.evict_files_while(disk, |_| is_beyond());
    }

    fn evict_from_disk(&self, bytes: u64) {
        if let Some(disk) = &self.disk {
            self.evict_files_while(disk, |evicted_bytes| evicted_bytes < bytes);
        }
    }
}
