//! Counters of a cache, and summaries of its objects.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::object::Object;
use crate::policy::NotStored;
use crate::time::UnixTime;

/// Counters that the cores and the threads of the disk share. Look-ups are counted by their core.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) stored: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) purged: AtomicU64,
    pub(crate) waiters: AtomicU64,
    not_stored: [AtomicU64; NotStored::ALL.len()],
}

impl Counters {
    pub(crate) fn note_not_stored(&self, reason: NotStored) {
        let index = NotStored::ALL.iter().position(|known| *known == reason).unwrap_or(0);
        self.not_stored[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(
        &self,
        objects: u64,
        memory_bytes: u64,
        fills: u64,
        disk: Option<DiskStats>,
    ) -> CacheStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            objects,
            memory_bytes,
            fills,
            waiters: load(&self.waiters),
            stored: load(&self.stored),
            evicted: load(&self.evicted),
            purged: load(&self.purged),
            not_stored: std::array::from_fn(|index| (NotStored::ALL[index], load(&self.not_stored[index]))),
            disk,
        }
    }
}

/// Counters and gauges of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// Objects in memory.
    pub objects: u64,
    /// Memory of the objects, and of bodies that arrive.
    pub memory_bytes: u64,
    /// Responses that arrive and may be stored.
    pub fills: u64,
    /// Requests that wait for the head of a fill.
    pub waiters: u64,
    pub stored: u64,
    /// Objects that were removed from memory for others.
    pub evicted: u64,
    pub purged: u64,
    pub not_stored: [(NotStored, u64); NotStored::ALL.len()],
    pub disk: Option<DiskStats>,
}

/// Counters and gauges of the disk of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    pub objects: u64,
    pub bytes: u64,
    /// Jobs that wait for a thread.
    pub queued: u64,
    pub written: u64,
    pub read: u64,
    /// Files that were removed for others.
    pub evicted: u64,
    /// Objects that were not written because the queue was full.
    pub queue_full: u64,
    /// Failed calls, without those for lack of space.
    pub errors: u64,
    /// Objects that were not written for lack of space.
    pub no_space: u64,
    /// Files that were torn or foreign, and were removed.
    pub damaged: u64,
    /// This process uses the directory; false while another one does.
    pub is_active: bool,
    /// The files of earlier processes are still being read.
    pub is_scanning: bool,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSummary {
    pub key: String,
    pub status: u16,
    /// Memory of the object.
    pub bytes: u64,
    pub age_s: u64,
    /// Remaining lifetime; negative if it is stale.
    pub ttl_s: i64,
}

impl ObjectSummary {
    pub(crate) fn of(object: &Object, now: UnixTime) -> Self {
        Self {
            key: String::from_utf8_lossy(object.key.text()).into_owned(),
            status: object.head.status(),
            bytes: object.memory_bytes(),
            age_s: object.storable.age_s(now),
            ttl_s: object.storable.ttl_s(now),
        }
    }
}
