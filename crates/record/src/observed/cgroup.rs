//! What a control group used of CPU time, memory and disks, and how long its tasks stalled.
//!
//! Not for reading the files of a group.

use serde::{Deserialize, Serialize};

/// A control group, v1 or v2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupUse {
    /// Processors that its quota allows; absent: no quota.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quota_cpus: Option<f64>,
    /// The quota's period, in seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub period_s: Option<f64>,
    /// CPU time that its processes used, as CPUs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_cpus: Option<f64>,
    /// Share of the periods in which it was throttled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_periods: Option<f64>,
    /// Time throttled (of all its processors) per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_cpus: Option<f64>,
    /// Memory that is charged to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
    /// Its bound of memory; absent: none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_max_bytes: Option<u64>,
    /// Times it hit that bound, per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_max_hits_per_s: Option<f64>,
    /// Bound of bytes written to disks, per second; absent: none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk_write_max_bytes_per_s: Option<f64>,
    /// What the group did with disks; absent where it has no such counters.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk: Option<DiskUse>,
    /// Its own pressure; absent where the kernel keeps none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<Pressure>,
}

/// Disks, as a control group is charged for them. With version 1 what goes through the page cache is
/// nobody's, and new kernels count only where a disk has a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Bytes read, per second.
    pub read_bytes_per_s: f64,
    /// Bytes written, per second.
    pub written_bytes_per_s: f64,
    /// Reads, per second.
    pub reads_per_s: f64,
    /// Writes, per second.
    pub writes_per_s: f64,
}

/// Pressure stall information, as shares of the time (K:accounting/psi): some task, or all, waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some waited for a processor.
    pub cpu_some: f64,
    /// Some waited for memory.
    pub memory_some: f64,
    /// All waited for memory.
    pub memory_full: f64,
    /// Some waited for a disk.
    pub io_some: f64,
    /// All waited for a disk.
    pub io_full: f64,
}
