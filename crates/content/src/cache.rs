//! Cache of the open files of a core, by their paths: bounded, valid for a while, with failures.

use std::collections::HashMap;

use crate::open_file::Lookup;

/// Cached lookups of one core.
#[derive(Debug)]
pub(crate) struct FileCache {
    by_path: HashMap<Box<[u8]>, usize>,
    entries: Vec<CacheEntry>,
    entries_max: usize,
    valid_ns: u64,
    rng: fastrand::Rng,
}

/// A lookup and its times.
#[derive(Debug)]
struct CacheEntry {
    path: Box<[u8]>,
    lookup: Lookup,
    checked_ns: u64,
    used_ns: u64,
}

/// Number of entries of which the one that was unused for the longest time is evicted.
const EVICTION_SAMPLES: usize = 8;

#[derive(Debug)]
pub(crate) enum Cached<'c> {
    Fresh(&'c Lookup),
    /// To be checked again.
    Stale(&'c Lookup),
    Missing,
}

impl FileCache {
    /// Creates a cache of at most `entries_max` lookups; 0: none.
    pub(crate) fn new(entries_max: usize, valid_ns: u64) -> Self {
        Self {
            by_path: HashMap::new(),
            entries: Vec::new(),
            entries_max,
            valid_ns,
            rng: fastrand::Rng::with_seed(0),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.entries_max > 0
    }

    pub(crate) fn find(&mut self, path: &[u8], now_ns: u64) -> Cached<'_> {
        let Some(&index) = self.by_path.get(path) else { return Cached::Missing };
        let entry = &mut self.entries[index];
        entry.used_ns = now_ns;
        match now_ns.saturating_sub(entry.checked_ns) < self.valid_ns {
            true => Cached::Fresh(&entry.lookup),
            false => Cached::Stale(&entry.lookup),
        }
    }

    /// Stores the lookup of a path, and evicts another one if the cache is full.
    pub(crate) fn store(&mut self, path: &[u8], lookup: Lookup, now_ns: u64) {
        if self.entries_max == 0 {
            return;
        }
        if let Some(&index) = self.by_path.get(path) {
            let entry = &mut self.entries[index];
            (entry.lookup, entry.checked_ns) = (lookup, now_ns);
            return;
        }
        let entry = CacheEntry { path: path.into(), lookup, checked_ns: now_ns, used_ns: now_ns };
        let index = if self.entries.len() < self.entries_max {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let index = self.choose_victim();
            let evicted = std::mem::replace(&mut self.entries[index], entry);
            self.by_path.remove(&evicted.path);
            index
        };
        self.by_path.insert(path.into(), index);
    }

    pub(crate) fn clear(&mut self) {
        self.by_path.clear();
        self.entries.clear();
    }

    /// Returns the index of the entry that was unused for the longest time, of a few random ones.
    fn choose_victim(&mut self) -> usize {
        let samples = (0..EVICTION_SAMPLES).map(|_| self.rng.usize(0..self.entries.len()));
        let samples: Vec<usize> = samples.collect();
        samples.into_iter().min_by_key(|&index| self.entries[index].used_ns).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(cached: Cached<'_>) -> Option<(u16, bool)> {
        match cached {
            Cached::Fresh(Lookup::Failed(status)) => Some((*status, true)),
            Cached::Stale(Lookup::Failed(status)) => Some((*status, false)),
            _ => None,
        }
    }

    #[test]
    fn entries_are_valid_for_a_while() {
        let mut cache = FileCache::new(10, 100);
        cache.store(b"a", Lookup::Failed(404), 1000);
        assert_eq!(status(cache.find(b"a", 1099)), Some((404, true)));
        assert_eq!(status(cache.find(b"a", 1100)), Some((404, false)));
        cache.store(b"a", Lookup::Failed(403), 1100);
        assert_eq!(status(cache.find(b"a", 1101)), Some((403, true)));
        assert_eq!(status(cache.find(b"b", 1101)), None);
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut cache = FileCache::new(16, 100);
        for number in 0..1000u64 {
            cache.store(format!("{number}").as_bytes(), Lookup::Failed(404), number);
            cache.find(b"0", number);
        }
        assert_eq!((cache.entries.len(), cache.by_path.len()), (16, 16));
        assert!(status(cache.find(b"0", 1000)).is_some(), "it was used all the time");
        assert!(cache.by_path.iter().all(|(path, &index)| cache.entries[index].path == *path));
    }

    #[test]
    fn a_cache_without_entries_keeps_nothing() {
        let mut cache = FileCache::new(0, 100);
        cache.store(b"a", Lookup::Failed(404), 0);
        assert_eq!(status(cache.find(b"a", 0)), None);
    }
}
