//! What was seen of one machine while something ran: who used its processors, where bytes wait, what
//! was dropped, sample by sample. Verdicts are worked out from this and from a run's own figures, so
//! that a stored record is enough to reproduce them.
//!
//! Every rate is a difference between two samples divided by the time between them. A figure that a
//! machine does not tell is absent, and `not_observable` says why; it is never a zero.

mod cgroup;
mod queues;
mod traffic;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use cgroup::{CgroupUse, DiskUse, Pressure};
pub use queues::{End, EndQueues, ListenerQueue, QueueSnapshot, UnixEnd, UnixQueues};
pub use traffic::{EndSums, InFlight, LocalPorts, Origin, Strangers, UnixUse};

/// One machine, watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Its name (`hostname`).
    pub host: String,
    /// Processors online.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// What the times below count from, RFC 3339: the start of the load, or of the watching.
    pub started_at: String,
    /// Processor time of all threads that watched, as a share of one core: what they used while what is
    /// watched ran. What counting calls cost the role itself stands with the `calls`.
    pub cost_cpus: f64,
    /// Processor time in seconds of what was done when it had ended: looking up the names of functions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_after_s: Option<f64>,
    /// The programs that were watched.
    pub roles: Vec<Role>,
    /// Processes that were named, and ended meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ended: Vec<Ended>,
    /// Ports on which they meet.
    pub ports: Vec<PortUse>,
    /// Addresses behind the subject, each once; those of one port share a [`PortUse`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub origins: Vec<Origin>,
    /// Addresses behind the subject that are not followed, because there are too many.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub origins_left_out: u64,
    /// Listening unix sockets on which the programs meet.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unix: Vec<UnixUse>,
    /// Settings in force in the subject's network namespace, and of the machine, by their sysctl names.
    pub settings: BTreeMap<String, String>,
    /// About one a second.
    pub samples: Vec<Sample>,
    /// Snapshots of the sockets, up to five a second.
    pub queues: Vec<QueueSnapshot>,
    /// Functions on processors, by role, the largest shares first; empty where none were sampled.
    pub functions: Vec<FunctionShare>,
    /// What the shares of `functions` are shares of, by role: `all samples` (user space and kernel),
    /// `user space samples` (the kernel could not be sampled), or `thread times` (nothing could be
    /// sampled; `functions` has no entry of that role then).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub functions_of: BTreeMap<String, String>,
    /// Calls that were counted for a short time, with what the counting cost.
    pub calls: Vec<CallCount>,
    /// What this machine does not tell.
    pub not_observable: Vec<Missing>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Samples are taken when the machine lets us: one that ends this much outside a time still counts.
const SLACK_S: f64 = 0.25;

impl Observed {
    /// The place of a role in the samples.
    #[must_use]
    pub fn role_at(&self, name: &str) -> Option<usize> {
        self.roles.iter().position(|role| role.name == name)
    }

    /// The samples that lie within a time, give or take a quarter of a second. Of a time that is too short
    /// for a whole one, all there are since the zero of the clock.
    #[must_use]
    pub fn samples_within(&self, from_s: f64, to_s: f64) -> Vec<&Sample> {
        let within = |sample: &&Sample| {
            sample.time_s - sample.length_s >= from_s - SLACK_S && sample.time_s <= to_s + SLACK_S
        };
        let inner: Vec<&Sample> = self.samples.iter().filter(within).collect();
        match inner.is_empty() {
            true => self.samples.iter().filter(|sample| sample.time_s > 0.0).collect(),
            false => inner,
        }
    }

    /// From when to when there are samples, by the zero of its clock; `None` without any.
    #[must_use]
    pub fn span_s(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        Some((first.time_s - first.length_s, last.time_s))
    }

    /// Makes all times count from another moment (RFC 3339), as those of a run on another machine do.
    /// The clocks of both are taken to agree. A time that cannot be read changes nothing; says whether they
    /// could be.
    pub fn count_from(&mut self, started_at: &str) -> bool {
        let moment = |text: &str| text.parse::<jiff::Timestamp>().ok();
        let (Some(own), Some(other)) = (moment(&self.started_at), moment(started_at)) else {
            return false;
        };
        let later_s = own.duration_since(other).as_secs_f64();
        self.samples.iter_mut().for_each(|sample| sample.time_s += later_s);
        self.queues.iter_mut().for_each(|snapshot| snapshot.time_s += later_s);
        self.calls.iter_mut().for_each(|call| call.from_s += later_s);
        self.ended.iter_mut().for_each(|ended| ended.time_s += later_s);
        started_at.clone_into(&mut self.started_at);
        true
    }
}

/// A program that was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// `generator`, `subject`, `origin` (a server behind the subject), or a name that was given.
    pub name: String,
    /// Its processes.
    pub pids: Vec<i32>,
    /// The command of the first of them, shortened.
    pub command: String,
    /// Processors that it may run on (affinity); the quota of its control group stands in the samples.
    pub cpus_allowed: u32,
}

/// A process that ended while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The role that it belonged to.
    pub role: String,
    /// Its number.
    pub pid: i32,
    /// Its name (`PID/comm`).
    pub name: String,
    /// When it was seen to have ended: a fifth of a second late at the most, where sockets are looked at.
    pub time_s: f64,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({}) ended at {:.1} s", self.pid, self.name, self.time_s)
    }
}

/// Who serves a port and who connects to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortUse {
    /// The port that is listened on.
    pub port: u16,
    /// The role that listens; none when it is not on this machine.
    pub served_by: Option<String>,
    /// The role that connects.
    pub used_by: Option<String>,
}

/// Something that a machine does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What passed between two looks at the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its end.
    pub time_s: f64,
    /// Its length.
    pub length_s: f64,
    /// Each processor.
    pub cpus: Vec<CpuUse>,
    /// Context switches of the machine, per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context_switches_per_s: Option<f64>,
    /// Tasks that run or want to, at its end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runnable: Option<u64>,
    /// Busy processors that are neither of a role nor interrupts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub foreign_cpus: Option<f64>,
    /// What each role used, in the order of `Observed::roles`. A role that was found later is not in
    /// the samples before.
    pub roles: Vec<RoleUse>,
    /// Counters of each network namespace that a role is in, once each.
    pub namespaces: Vec<NamespaceUse>,
    /// Network interfaces, of those namespaces.
    pub links: Vec<LinkUse>,
    /// The machine's pressure stall information, as shares of the time (`/proc/pressure`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<Pressure>,
    /// Connection tracking; absent where it is not loaded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conntrack: Option<ConntrackUse>,
    /// How late a thread that sleeps for some milliseconds wakes up, on each processor.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub canaries: Vec<CanaryUse>,
}

/// One processor; shares of the time, 0 to 1, and events per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Its number.
    pub cpu: u32,
    /// User space, at any priority.
    pub user: f64,
    /// Kernel, for a process.
    pub system: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Software interrupts: most of the network's receive path.
    pub softirq: f64,
    /// Taken by the hypervisor for others.
    pub steal: f64,
    /// Nothing to do (waiting for a disk counts as this).
    pub idle: f64,
    /// `NET_RX` softirqs.
    pub net_rx_per_s: f64,
    /// `NET_TX` softirqs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub net_tx_per_s: Option<f64>,
    /// Packets taken from the backlog queue (softnet_stat, column 1).
    pub packets_per_s: f64,
    /// Packets dropped because that queue was full (column 2).
    pub backlog_drops_per_s: f64,
    /// Times its share of time or packets ran out (column 3).
    pub time_squeezes_per_s: f64,
    /// Packets that another processor steered to it (RPS, column 10).
    pub received_rps_per_s: f64,
    /// Packets of large flows among the dropped ones (the flow limit, column 11).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flow_limit_drops_per_s: Option<f64>,
    /// Packets in that queue at the sample's end (column 12).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backlog_packets: Option<u32>,
    /// Hardware interrupts of any kind.
    pub interrupts_per_s: f64,
}

/// What a role used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleUse {
    /// Its processes that are there.
    pub processes: u32,
    /// Processors used in user space.
    pub user_cpus: f64,
    /// Processors used in the kernel; the kernel may charge softirqs here that it ran meanwhile.
    /// The sum of both is from the process clocks (nanoseconds) where they can be read; the split
    /// is by the ticks of `/proc/PID/stat`.
    pub system_cpus: f64,
    /// Its threads that used or wanted a processor, the busiest first, at most 64.
    pub threads: Vec<ThreadUse>,
    /// All its threads.
    pub threads_total: u32,
    /// Threads that sleep uninterruptibly (state D), which is mostly for a disk, at its end.
    pub threads_in_disk_sleep: u32,
    /// Voluntary context switches, per second.
    pub voluntary_switches_per_s: f64,
    /// Involuntary ones.
    pub involuntary_switches_per_s: f64,
    /// Open descriptors of the process with the least room.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub descriptors: Option<u64>,
    /// The soft limit of that process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub descriptors_max: Option<u64>,
    /// Resident memory of all its processes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resident_bytes: Option<u64>,
    /// The same with a page that `n` processes share counted as an `n`th for each; only of roles with
    /// several processes, and looked at every few seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub proportional_bytes: Option<u64>,
    /// Page faults without a disk, per second.
    pub minor_faults_per_s: f64,
    /// Page faults with one.
    pub major_faults_per_s: f64,
    /// Bytes written through system calls, per second; sockets count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub written_bytes_per_s: Option<f64>,
    /// Bytes sent to a disk, per second (`/proc/PID/io` `write_bytes`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub disk_write_bytes_per_s: Option<f64>,
    /// Its control group.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cgroup: Option<CgroupUse>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// The processor it ran on last.
    pub cpu: u32,
    /// Time on a processor, as a share of the time.
    pub busy: f64,
    /// Time it was ready and waited for one (`schedstat`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting: Option<f64>,
}

/// Counters of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NamespaceUse {
    /// The roles in it.
    pub roles: Vec<String>,
    /// Events per second by their names in `/proc/net/snmp` and `netstat` (`Tcp.RetransSegs`,
    /// `TcpExt.ListenOverflows`, `IpExt.InOctets`); those that did not change are absent.
    pub counters: BTreeMap<String, f64>,
    /// Connections in TIME_WAIT at its end.
    pub time_wait: u64,
    /// Sockets that nobody holds any more.
    pub orphans: u64,
    /// TCP sockets in use, without TIME_WAIT.
    pub tcp_in_use: u64,
    /// Memory of all TCP sockets of the machine, in pages.
    pub tcp_memory_pages: u64,
    /// TCP sockets of other programs in it; absent where they were not counted in this sample.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub strangers: Option<Strangers>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// Its name.
    pub name: String,
    /// The first role that lives in its namespace.
    pub of_role: String,
    /// Bytes received per second.
    pub rx_bytes_per_s: f64,
    /// Bytes sent per second.
    pub tx_bytes_per_s: f64,
    /// Packets received per second.
    pub rx_packets_per_s: f64,
    /// Packets sent per second.
    pub tx_packets_per_s: f64,
    /// Received packets dropped per second, with those that the device missed.
    pub rx_drops_per_s: f64,
    /// Packets to be sent that were dropped, per second.
    pub tx_drops_per_s: f64,
    /// Its speed in bits per second; absent when it has none or does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_bits_per_s: Option<f64>,
    /// Its queueing disciplines that did something.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub queues: Vec<QdiscUse>,
    /// Counters of the driver that changed, per second (`ethtool -S`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub driver: BTreeMap<String, f64>,
}

/// A queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QdiscUse {
    /// Its kind: `tbf`, `fq_codel`, …
    pub kind: String,
    /// Bits per second that it lets through, where it has such a bound.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_bits_per_s: Option<f64>,
    /// Bytes that wait in it, at the sample's end.
    pub backlog_bytes: u64,
    /// Packets dropped per second.
    pub drops_per_s: f64,
    /// Times a packet had to wait, per second.
    pub overlimits_per_s: f64,
}

/// Connection tracking (`nf_conntrack`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConntrackUse {
    /// Connections in the table.
    pub entries: u64,
    /// The most that it takes.
    pub entries_max: u64,
    /// Packets dropped per second because it was full.
    pub drops_per_s: f64,
    /// Entries thrown out per second to make room.
    pub early_drops_per_s: f64,
    /// Insertions that failed, per second.
    pub insert_failures_per_s: f64,
}

/// How late sleeping threads woke up on one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CanaryUse {
    /// The processor.
    pub cpu: u32,
    /// Median lag.
    pub lag_p50_ns: u64,
    /// 99 % were no later.
    pub lag_p99_ns: u64,
    /// The latest.
    pub lag_max_ns: u64,
}

/// A function on processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionShare {
    /// The role.
    pub role: String,
    /// Its name, demangled.
    pub function: String,
    /// The file it is in; `[kernel]` for the kernel.
    pub module: String,
    /// Share of the role's samples with it on top.
    pub share_self: f64,
    /// Share of the role's samples with it anywhere in the stack.
    pub share_total: f64,
}

/// A kind of call that was counted for a while.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallCount {
    /// The role.
    pub role: String,
    /// What: `system calls`, `futex`, `allocations`, `malloc`, `write`, …
    pub call: String,
    /// When the counting began.
    pub from_s: f64,
    /// For how long.
    pub length_s: f64,
    /// Calls.
    pub count: u64,
    /// Processor time that the counting cost the role, as a share of one core meanwhile.
    pub cost_cpus: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_can_count_from_another_moment() {
        let sample = Sample { time_s: 1.0, ..Sample::default() };
        let mut seen = Observed {
            started_at: "2026-01-01T00:00:10.500Z".to_owned(),
            samples: vec![sample],
            ..Observed::default()
        };
        seen.count_from("2026-01-01T00:00:12Z");
        assert!((seen.samples[0].time_s - -0.5).abs() < 1e-9);
        seen.count_from("never");
        assert_eq!(seen.started_at, "2026-01-01T00:00:12Z");
    }
}
