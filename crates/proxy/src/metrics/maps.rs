//! Metrics of maps and lists, by name.

use super::snapshot::Snapshot;
use super::table::Metric;
use crate::maps::MapStatistics;

impl Snapshot {
    pub fn add_map(&mut self, name: &str, statistics: &MapStatistics) {
        let labels = &[name];
        self.add(Metric::MapEntries, labels, statistics.entries as u64);
        self.add(Metric::MapMemory, labels, statistics.memory_bytes as u64);
        self.add(Metric::MapChanges, labels, statistics.changes);
        self.add(Metric::MapLoads, &[name, "loaded"], statistics.loads);
        self.add(Metric::MapLoads, &[name, "failed"], statistics.failures);
        self.add(Metric::MapLoadTime, labels, statistics.loaded_unix_ns);
        self.add(Metric::MapLoadSucceeded, labels, statistics.last_error.is_empty().into());
    }
}
