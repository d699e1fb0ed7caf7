//! Use of CPU time, memory and disks by a control group, and the stalls of its tasks.
//!
//! The files of a group are read elsewhere.

use serde::{Deserialize, Serialize};

/// A control group, v1 or v2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupUse {
    /// CPUs that its quota allows; absent: no quota.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quota_cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub period_s: Option<f64>,
    /// CPU time used by its processes, as CPUs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_periods: Option<f64>,
    /// Throttled time (of all its CPUs) per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throttled_cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
    /// Memory limit; absent: none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_max_bytes: Option<u64>,
    /// Number of times that usage reached the limit, per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_max_hits_per_s: Option<f64>,
    /// Limit of bytes written to disks, per second; absent: none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk_write_max_bytes_per_s: Option<f64>,
    /// Disk use of the group; absent if it has no such counters.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk: Option<DiskUse>,
    /// Pressure of the group; absent if the kernel does not record it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<Pressure>,
}

/// Disk use charged to a control group. With version 1, I/O through the page cache is charged to no
/// group, and new kernels count only if a disk has a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
}

/// Pressure stall information, as fractions of the time (K:accounting/psi): some task, or all,
/// waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task waited for a CPU.
    pub cpu_some: f64,
    /// Some task waited for memory.
    pub memory_some: f64,
    /// All tasks waited for memory.
    pub memory_full: f64,
    /// Some task waited for a disk.
    pub io_some: f64,
    /// All tasks waited for a disk.
    pub io_full: f64,
}
