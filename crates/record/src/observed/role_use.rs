//! Use of a machine by a role and by its threads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::CgroupUse;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleUse {
    pub processes: u32,
    /// Number of its processes that started since the last sample and still live.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub processes_started: u32,
    /// CPUs used in user space.
    pub user_cpus: f64,
    /// CPUs used in the kernel; the kernel may charge softirqs here that it ran meanwhile. The sum
    /// of both is from the process clocks (nanoseconds) if they can be read; the split is by the
    /// ticks of `/proc/PID/stat`.
    pub system_cpus: f64,
    /// Threads that used or wanted a CPU, the busiest first, at most 64.
    pub threads: Vec<ThreadCpuUse>,
    pub threads_total: u32,
    /// Number of threads in uninterruptible sleep (state D), mostly for a disk: the mean of the
    /// polls in the interval.
    pub threads_in_disk_sleep: f64,
    /// Mean number of its working threads that sleep in a kernel function, by that function
    /// (`/proc/PID/task/TID/wchan` at the polls): at most 64 threads and 16 functions. A thread works if it has used at
    /// least a tenth of the mean CPU time of the threads that ran. Absent if this process may not read the functions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threads_asleep: Option<BTreeMap<String, f64>>,
    pub voluntary_switches_per_s: f64,
    pub involuntary_switches_per_s: f64,
    /// Open descriptors of the process with the fewest free ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub descriptors: Option<u64>,
    /// Soft limit of that process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub descriptors_max: Option<u64>,
    /// Resident memory of all its processes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resident_bytes: Option<u64>,
    /// Proportional set size: a page shared by `n` processes counts as an `n`th for each. Only for
    /// roles with several processes, and sampled every few seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub proportional_bytes: Option<u64>,
    /// Page faults without disk access, per second.
    pub minor_faults_per_s: f64,
    /// Page faults with disk access, per second.
    pub major_faults_per_s: f64,
    /// Bytes written through system calls, per second, including to sockets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub written_bytes_per_s: Option<f64>,
    /// Bytes to be written to a disk, per second (`/proc/PID/io` `write_bytes`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk_write_bytes_per_s: Option<f64>,
    /// Use of its control group.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cgroup: Option<CgroupUse>,
}

impl RoleUse {
    /// Returns the CPUs that it used.
    pub fn cpus(&self) -> f64 {
        self.user_cpus + self.system_cpus
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadCpuUse {
    pub tid: i32,
    pub name: String,
    /// CPU that it ran on last.
    pub cpu: u32,
    /// Fraction of the time on a CPU.
    pub busy: f64,
    /// Fraction of the time ready and waiting for a CPU (`schedstat`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<f64>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
