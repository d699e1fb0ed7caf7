//! Metrics of the use of caches by routes, and of the caches.

use cache::{CacheStats, NotStored};

use super::snapshot::Snapshot;
use super::table::Metric;
use super::{CounterCell, Metrics, new_counters};
use crate::outcome::CacheResult;

code_table! {
    /// Begin of a validation in the background.
    pub(crate) enum CacheRefresh:
    Started, "started";
    Refused, "refused";
}

/// Metrics of a route with a cache.
#[derive(Debug)]
pub(super) struct CacheCounters {
    cache: Box<str>,
    /// By [`CacheResult`].
    results: Vec<CounterCell>,
    /// By [`NotStored`].
    not_stored: Vec<CounterCell>,
    /// By [`CacheRefresh`].
    refreshes: Vec<CounterCell>,
}

impl CacheCounters {
    pub(super) fn new(cache: &str) -> Self {
        Self {
            cache: cache.into(),
            results: new_counters(CacheResult::ALL.len()),
            not_stored: new_counters(NotStored::ALL.len()),
            refreshes: new_counters(CacheRefresh::ALL.len()),
        }
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot, route: &str) {
        let cache = &*self.cache;
        for (result, count) in CacheResult::ALL.iter().zip(&self.results) {
            snapshot.add(Metric::CacheRequests, &[cache, route, result.code()], count.0.get());
        }
        for (reason, count) in NotStored::ALL.iter().zip(&self.not_stored) {
            snapshot.add(Metric::CacheNotStored, &[cache, route, reason.name()], count.0.get());
        }
        for (result, count) in CacheRefresh::ALL.iter().zip(&self.refreshes) {
            snapshot.add(Metric::CacheRefreshes, &[cache, route, result.code()], count.0.get());
        }
    }
}

impl Snapshot {
    pub fn add_cache(&mut self, name: &str, stats: &CacheStats) {
        let memory = &[name, "memory"];
        self.add(Metric::CacheResponses, memory, stats.objects);
        self.add(Metric::CacheBytes, memory, stats.memory_bytes);
        self.add(Metric::CacheEvicted, memory, stats.evicted);
        self.add(Metric::CacheStored, &[name], stats.stored);
        self.add(Metric::CachePurged, &[name], stats.purged);
        self.add(Metric::CacheFills, &[name], stats.fills);
        self.add(Metric::CacheWaiters, &[name], stats.waiters);
        let Some(disk) = stats.disk else { return };
        let on_disk = &[name, "disk"];
        self.add(Metric::CacheResponses, on_disk, disk.objects);
        self.add(Metric::CacheBytes, on_disk, disk.bytes);
        self.add(Metric::CacheEvicted, on_disk, disk.evicted);
        self.add(Metric::CacheDiskQueue, &[name], disk.queued);
        self.add(Metric::CacheDiskReady, &[name], (disk.is_active && !disk.is_scanning).into());
        for (result, count) in [
            ("written", disk.written),
            ("read", disk.read),
            ("queue_full", disk.queue_full),
            ("no_space", disk.no_space),
            ("error", disk.errors),
            ("damaged", disk.damaged),
        ] {
            self.add(Metric::CacheDiskJobs, &[name, result], count);
        }
    }
}

impl Metrics {
    fn cache_counters(&self, route: usize) -> Option<&CacheCounters> {
        self.common.routes.get(route)?.traffic.as_ref()?.cache.as_ref()
    }

    pub(crate) fn count_cache_result(&self, route: usize, result: CacheResult) {
        self.cache_counters(route).inspect(|counters| counters.results[result as usize].add(1));
    }

    pub(crate) fn count_not_stored(&self, route: usize, reason: NotStored) {
        let index = NotStored::ALL.iter().position(|known| *known == reason);
        let count = self.cache_counters(route).zip(index);
        count.and_then(|(counters, index)| counters.not_stored.get(index)).inspect(|count| count.add(1));
    }

    pub(crate) fn count_cache_refresh(&self, route: usize, result: CacheRefresh) {
        self.cache_counters(route).inspect(|counters| counters.refreshes[result as usize].add(1));
    }
}
