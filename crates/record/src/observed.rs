//! Observations of one machine during a run: users of its CPUs, waiting bytes, drops, sample by
//! sample. Verdicts are computed from them and from the run's own figures, so a stored record is
//! enough to reproduce them.
//!
//! Every rate is the difference between two samples divided by the time between them. A figure that
//! a machine does not report is absent, never zero, and `not_observable` has the reason.

mod cgroup;
mod queues;
mod role_use;
mod shared_kernel;
mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use cgroup::{CgroupUse, DiskUse, Pressure};
pub use queues::{ConnectionEnd, EndQueues, ListenerQueue, QueueSnapshot, UnixEnd, UnixQueues};
pub use role_use::{RoleUse, ThreadCpuUse};
pub use shared_kernel::KernelProcess;
pub use traffic::{InFlightByLocation, LocalPorts, OriginAddress, UnixSocketRoles, UnwatchedSockets};

/// Role of the load generator.
pub const GENERATOR: &str = "generator";
/// Role of the process under test.
pub const SUBJECT: &str = "subject";
/// Role of servers behind the subject.
pub const ORIGIN: &str = "origin";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineObservation {
    /// Host name (`hostname`).
    pub host: String,
    /// Running kernel (its boot ID). Observations with the same kernel share its CPUs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernel: Option<String>,
    /// Number of online CPUs.
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Zero of the times below, RFC 3339: the start of the load, or of monitoring.
    pub started_at: String,
    /// CPU time of all monitoring threads during monitoring, as a fraction of one core. The cost of
    /// counted calls for the role itself is in `calls`.
    pub cost_cpus: f64,
    /// CPU time in seconds of the work after monitoring: resolving function names.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_after_s: Option<f64>,
    pub roles: Vec<Role>,
    /// Named processes that ended meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ended: Vec<ExitedProcess>,
    pub ports: Vec<PortRoles>,
    /// Addresses behind the subject, each once; those with one port share a [`PortRoles`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub origins: Vec<OriginAddress>,
    /// Number of addresses behind the subject that are not followed, because there are too many.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub origins_omitted: u64,
    /// Listening unix sockets between the roles.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unix: Vec<UnixSocketRoles>,
    /// Settings in force in the subject's network namespace, and of the machine, by sysctl name.
    pub settings: BTreeMap<String, String>,
    /// Programs that belong to no role, with the most CPU time, at most three.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub neighbours: Vec<Neighbour>,
    /// Busiest threads of the subject before the load, when requests were sent one at a time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub baseline_threads: Vec<ThreadCpuUse>,
    /// Samples, about one per second.
    pub samples: Vec<MachineSample>,
    /// Snapshots of the sockets, up to five per second.
    pub queues: Vec<QueueSnapshot>,
    /// Functions on CPUs, by role, the largest fractions first; empty if none were sampled.
    pub functions: Vec<FunctionUse>,
    /// Base of the fractions in `functions`, by role: `all samples` (user space and kernel), `user
    /// space samples` (the kernel could not be sampled), or `thread times` (nothing could be
    /// sampled; then `functions` has no entry of that role).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub function_bases: BTreeMap<String, String>,
    /// Calls that were counted for a short time, with the cost of counting.
    pub calls: Vec<CallCount>,
    /// Figures that this machine does not report.
    pub not_observable: Vec<UnobservableMetric>,
}

/// Program beside a run: all processes of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name as the kernel keeps it (at most 15 bytes), or `children of NAME` for processes that ended too soon.
    pub name: String,
    /// CPUs that it used, on average.
    pub cpus: f64,
}

/// Names programs with their CPUs: `cc1 1.10, make 0.05`. Empty without any.
pub fn format_neighbours(all: &[Neighbour]) -> String {
    all.iter()
        .map(|neighbour| format!("{} {:.2}", neighbour.name, neighbour.cpus))
        .collect::<Vec<_>>()
        .join(", ")
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Tolerance of sample times: a sample that ends this much outside a time range still counts.
const SAMPLE_TOLERANCE_S: f64 = 0.25;

impl MachineObservation {
    pub fn role_index(&self, name: &str) -> Option<usize> {
        self.roles.iter().position(|role| role.name == name)
    }

    /// Returns the samples within a time range, with a tolerance of a quarter of a second. If the
    /// range is too short for a complete sample, returns all samples since the zero of the clock.
    pub fn samples_in_range(&self, from_s: f64, to_s: f64) -> Vec<&MachineSample> {
        let is_in_range = |sample: &&MachineSample| {
            sample.time_s - sample.length_s >= from_s - SAMPLE_TOLERANCE_S
                && sample.time_s <= to_s + SAMPLE_TOLERANCE_S
        };
        let inner: Vec<&MachineSample> = self.samples.iter().filter(is_in_range).collect();
        match inner.is_empty() {
            true => self.samples.iter().filter(|sample| sample.time_s > 0.0).collect(),
            false => inner,
        }
    }

    /// Returns the time range of the samples, from the zero of the clock; `None` without any.
    pub fn time_range_s(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        Some((first.time_s - first.length_s, last.time_s))
    }

    /// Shifts all times to another zero (RFC 3339), such as that of a run on another machine. The
    /// clocks of both are assumed to agree. Returns false, without changes, if a time cannot be
    /// parsed.
    pub fn rebase_times(&mut self, started_at: &str) -> bool {
        let parse_time = |text: &str| text.parse::<jiff::Timestamp>().ok();
        let (Some(own), Some(other)) = (parse_time(&self.started_at), parse_time(started_at)) else {
            return false;
        };
        self.shift_times(own.duration_since(other).as_secs_f64());
        started_at.clone_into(&mut self.started_at);
        true
    }

    /// Adds an offset to all times, such as the difference between two starts by one clock.
    pub fn shift_times(&mut self, offset_s: f64) {
        self.samples.iter_mut().for_each(|sample| sample.time_s += offset_s);
        self.queues.iter_mut().for_each(|snapshot| snapshot.time_s += offset_s);
        self.calls.iter_mut().for_each(|call| call.from_s += offset_s);
        self.ended.iter_mut().for_each(|ended| ended.time_s += offset_s);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// `generator`, `subject`, `origin` (a server behind the subject), or a given name.
    pub name: String,
    /// Process IDs.
    pub pids: Vec<i32>,
    /// The same processes for observations of the same kernel in other PID namespaces; without those that
    /// cannot be identified.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub processes: Vec<KernelProcess>,
    /// Command of the first process, shortened.
    pub command: String,
    /// Number of CPUs in its affinity mask; the quota of its control group is in the samples.
    pub cpus_allowed: u32,
}

/// A process that ended while it was monitored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitedProcess {
    pub role: String,
    pub pid: i32,
    /// Process name (`PID/comm`).
    pub name: String,
    /// Time at which its end was detected: at most a fifth of a second late, if sockets are
    /// sampled.
    pub time_s: f64,
}

impl std::fmt::Display for ExitedProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({}) ended at {:.1} s", self.pid, self.name, self.time_s)
    }
}

/// Roles at both ends of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRoles {
    pub port: u16,
    /// Role that listens; `None` if it is not on this machine.
    pub served_by: Option<String>,
    pub used_by: Option<String>,
}

/// A metric that cannot be observed, with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnobservableMetric {
    pub figure: String,
    pub reason: String,
}

/// Use between two samples of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineSample {
    pub time_s: f64,
    pub length_s: f64,
    pub cpus: Vec<CpuUse>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context_switches_per_s: Option<f64>,
    /// Tasks (processes and threads) that the machine started, per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forks_per_s: Option<f64>,
    /// Tasks that run or are ready to run, at its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runnable: Option<u64>,
    /// Busy CPUs that belong neither to a role of this observation nor to interrupts. Roles of others on the same
    /// kernel: [`MachineSample::foreign_cpus_among`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_cpus: Option<f64>,
    /// Use by each role, in the order of [`MachineObservation::roles`]. Samples before the discovery of a role
    /// lack it.
    pub roles: Vec<RoleUse>,
    /// Counters of each network namespace of a role, once each.
    pub namespaces: Vec<NamespaceUse>,
    /// Network interfaces of those namespaces.
    pub links: Vec<LinkUse>,
    /// Machine's pressure stall information, as fractions of the time (`/proc/pressure`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<Pressure>,
    /// Connection tracking; absent if it is not loaded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conntrack: Option<ConntrackUse>,
    /// Wake-up lag of a thread that sleeps for some milliseconds, on each CPU.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub wakeup_lags: Vec<WakeupLag>,
}

/// Use of one CPU; fractions of the time, 0 to 1, and events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    pub cpu: u32,
    /// User space, at any priority.
    pub user: f64,
    /// Kernel, for a process.
    pub system: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Software interrupts: most of the network's receive path.
    pub softirq: f64,
    /// Stolen by the hypervisor for other guests.
    pub steal: f64,
    /// Idle (including waiting for a disk).
    pub idle: f64,
    pub net_rx_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub net_tx_per_s: Option<f64>,
    /// Packets taken from the backlog queue (softnet_stat, column 1).
    pub packets_per_s: f64,
    /// Packets dropped because that queue was full (column 2).
    pub backlog_drops_per_s: f64,
    /// Times that its budget of time or packets ran out (column 3).
    pub time_squeezes_per_s: f64,
    /// Packets that another CPU steered to it (RPS, column 10).
    pub received_rps_per_s: f64,
    /// Packets of large flows among the dropped ones (the flow limit, column 11).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flow_limit_drops_per_s: Option<f64>,
    /// Packets in that queue at the sample's end (column 12).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backlog_packets: Option<u32>,
    pub interrupts_per_s: f64,
}

/// Counters of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamespaceUse {
    pub roles: Vec<String>,
    /// Events per second by their names in `/proc/net/snmp` and `netstat` (`Tcp.RetransSegs`,
    /// `TcpExt.ListenOverflows`, `IpExt.InOctets`); those that did not change are absent.
    pub counters: BTreeMap<String, f64>,
    /// Connections in TIME_WAIT at its end.
    pub time_wait: u64,
    /// Number of sockets that no process holds any more.
    pub orphans: u64,
    /// TCP sockets in use, without TIME_WAIT.
    pub tcp_in_use: u64,
    /// Memory of all TCP sockets of the machine, in pages.
    pub tcp_memory_pages: u64,
    /// TCP sockets of unwatched processes in the namespace; absent if they were not counted in this
    /// sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unwatched_sockets: Option<UnwatchedSockets>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    pub name: String,
    /// First role in its namespace.
    pub role: String,
    pub rx_bytes_per_s: f64,
    pub tx_bytes_per_s: f64,
    pub rx_packets_per_s: f64,
    pub tx_packets_per_s: f64,
    /// Received packets dropped per second, including those that the device missed.
    pub rx_drops_per_s: f64,
    /// Outgoing packets dropped per second.
    pub tx_drops_per_s: f64,
    /// Speed in bits per second; absent if it has none or does not report it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_bits_per_s: Option<f64>,
    /// Its active queueing disciplines.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub queues: Vec<QdiscUse>,
    /// Counters of the driver that changed, per second (`ethtool -S`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub driver: BTreeMap<String, f64>,
}

/// A queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QdiscUse {
    /// Kind: `tbf`, `fq_codel`, …
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_bits_per_s: Option<f64>,
    /// Bytes waiting in it, at the sample's end.
    pub backlog_bytes: u64,
    pub drops_per_s: f64,
    /// Number of delayed packets, per second.
    pub overlimits_per_s: f64,
}

/// Connection tracking (`nf_conntrack`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConntrackUse {
    /// Connections in the table.
    pub entries: u64,
    pub entries_max: u64,
    /// Packets dropped per second because the table was full.
    pub drops_per_s: f64,
    /// Entries evicted per second to make room.
    pub early_drops_per_s: f64,
    /// Failed insertions per second.
    pub insert_failures_per_s: f64,
}

/// Wake-up lag of sleeping threads on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeupLag {
    pub cpu: u32,
    pub lag_p50_ns: u64,
    /// 99th percentile of the lag.
    pub lag_p99_ns: u64,
    pub lag_max_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionUse {
    pub role: String,
    /// Function name, demangled.
    pub function: String,
    /// File of the function; `[kernel]` for the kernel.
    pub module: String,
    /// Fraction of the role's samples with it on top of the stack.
    pub self_fraction: f64,
    /// Fraction of the role's samples with it anywhere in the stack.
    pub total_fraction: f64,
}

/// Count of one kind of call over some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallCount {
    pub role: String,
    /// Kind: `system calls`, `futex`, `allocations`, `malloc`, `write`, …
    pub call: String,
    pub from_s: f64,
    pub length_s: f64,
    pub count: u64,
    /// CPU time that counting cost the role, as a fraction of one core meanwhile.
    pub cost_cpus: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_can_count_from_another_moment() {
        let sample = MachineSample { time_s: 1.0, ..MachineSample::default() };
        let mut observation = MachineObservation {
            started_at: "2026-01-01T00:00:10.500Z".to_owned(),
            samples: vec![sample],
            ..MachineObservation::default()
        };
        observation.rebase_times("2026-01-01T00:00:12Z");
        assert!((observation.samples[0].time_s - -0.5).abs() < 1e-9);
        observation.rebase_times("never");
        assert_eq!(observation.started_at, "2026-01-01T00:00:12Z");
    }
}
