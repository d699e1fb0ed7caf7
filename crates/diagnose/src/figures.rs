//! Table of the figures of a machine: each of one place (the machine, a CPU, a role, a link, the sockets of a
//! port) in one sample or snapshot, with its name, unit and source. The signals of verdicts, alerts, metrics
//! of trials and covariates take their figures from here, each with the statistic of [`crate::window`] that
//! it needs. `None` is "not observable".
//!
//! Thresholds are elsewhere.

use record::observed::{
    CpuUse, EndQueues, LinkUse, ListenerQueue, MachineSample, Pressure, QdiscUse, RoleUse, WakeupLag,
};

use crate::sleeps::{threads_at_disk, threads_at_full_pipe};
use crate::unit::Unit;

pub struct Figure<P: 'static> {
    pub name: &'static str,
    pub unit: Unit,
    pub source: &'static str,
    pub read: fn(&P) -> Option<f64>,
}

impl<P> std::fmt::Debug for Figure<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FigureRow {
    pub place: &'static str,
    pub name: &'static str,
    pub unit: Unit,
    pub source: &'static str,
}

macro_rules! figures {
    ($(of $place:ty, $title:literal: {
        $($id:ident: $unit:ident, $name:literal, $source:literal, $read:expr;)*
    })*) => {
        $($(
            #[doc = concat!("Figure \"", $name, "\".")]
            pub const $id: Figure<$place> =
                Figure { name: $name, unit: Unit::$unit, source: $source, read: $read };
        )*)*

        /// All figures, in the order of their places.
        pub const FIGURES: &[FigureRow] = &[$($(
            FigureRow { place: $title, name: $name, unit: Unit::$unit, source: $source },
        )*)*];
    };
}

figures! {
    of MachineSample, "machine": {
        // Stolen time is neither busy nor available.
        BUSY_CPUS: Cpus, "busy CPUs", "/proc/stat",
            |sample| sum_over_cpus(sample, |cpu| (1.0 - cpu.steal - cpu.idle).max(0.0));
        AVAILABLE_CPUS: Cpus, "CPUs without stolen time", "/proc/stat",
            |sample| sum_over_cpus(sample, |cpu| 1.0 - cpu.steal);
        ALL_CPUS: Fraction, "busy CPUs, of the CPUs without stolen time", "/proc/stat",
            |sample| Some((BUSY_CPUS.read)(sample)? / (AVAILABLE_CPUS.read)(sample)?.max(1e-9));
        IDLE_CPUS: Cpus, "idle CPUs", "/proc/stat", |sample| sum_over_cpus(sample, |cpu| cpu.idle);
        BUSIEST_CPU: Fraction, "busiest CPU", "/proc/stat",
            |sample| sample.cpus.iter().filter_map(CPU_USED.read).reduce(f64::max);
        STEAL: Fraction, "time that the hypervisor gave to other virtual machines", "/proc/stat steal",
            |sample| Some(sum_over_cpus(sample, |cpu| cpu.steal)? / sample.cpus.len() as f64);
        CONNTRACK_USED: Fraction, "connection tracking entries, of the limit",
            "nf_conntrack_count / max",
            |sample| sample.conntrack.map(|table| table.entries as f64 / table.entries_max.max(1) as f64);
        CONNTRACK_DROPS: PerSecond, "packets dropped by connection tracking",
            "/proc/net/stat/nf_conntrack drop, early_drop, insert_failed",
            |sample| sample.conntrack.map(|table| {
                table.drops_per_s + table.early_drops_per_s + table.insert_failures_per_s
            });
        MEMORY_PRESSURE: Fraction, "time in which a task waited for memory", "/proc/pressure/memory some",
            |sample| pressure(sample, |pressure| pressure.memory_some);
        DISK_PRESSURE: Fraction, "time in which a task waited for a disk", "/proc/pressure/io some",
            |sample| pressure(sample, |pressure| pressure.io_some);
        DISK_PRESSURE_FULL: Fraction, "time in which all tasks waited for a disk", "/proc/pressure/io full",
            |sample| pressure(sample, |pressure| pressure.io_full);
    }
    of CpuUse, "CPU": {
        CPU_USED: Fraction, "time of a CPU that was not idle", "/proc/stat", |cpu| Some(1.0 - cpu.idle);
        CPU_STEAL: Fraction, "time of a CPU that was stolen", "/proc/stat steal", |cpu| Some(cpu.steal);
        SOFTIRQ: Fraction, "softirq time of a CPU", "/proc/stat", |cpu| Some(cpu.softirq);
        TIME_SQUEEZES: PerSecond, "softirq runs that used up their budget", "softnet_stat column 3",
            |cpu| Some(cpu.time_squeezes_per_s);
        BACKLOG_DROPS: PerSecond, "packets dropped from a CPU's backlog", "softnet_stat column 2",
            |cpu| Some(cpu.backlog_drops_per_s);
    }
    of WakeupLag, "CPU": {
        WAKE_UP_LAG: Nanoseconds, "wake-up lag of a thread that sleeps for 1 ms, 99 %", "timers of the observation",
            |probe| Some(probe.lag_p99_ns as f64);
    }
    of RoleUse, "role": {
        CPUS: Cpus, "CPUs used", "PID/stat utime + stime", |role| Some(role.cpus());
        USER_CPUS: Cpus, "CPUs used in user space", "PID/stat utime", |role| Some(role.user_cpus);
        SYSTEM_CPUS: Cpus, "CPUs used in the kernel", "PID/stat stime", |role| Some(role.system_cpus);
        USER_FRACTION: Fraction, "user space, of the CPU time", "PID/stat",
            |role| part_of(role.user_cpus, role.cpus());
        SYSTEM_FRACTION: Fraction, "kernel, of the CPU time", "PID/stat",
            |role| part_of(role.system_cpus, role.cpus());
        BUSIEST_THREAD: Fraction, "busiest thread, of a core", "schedstat of its threads",
            |role| role.threads.iter().map(|thread| thread.busy).reduce(f64::max);
        RUNNING: Cpus, "running time of all threads", "schedstat run time",
            |role| Some(role.threads.iter().map(|thread| thread.busy).sum());
        WAITING: Cpus, "time that threads waited for a CPU", "schedstat run_delay",
            |role| role.threads.iter().map(|thread| thread.waiting).sum();
        WAIT_RATIO: Ratio, "time that threads waited for a CPU over their running time",
            "schedstat run_delay / run time", |role| part_of((WAITING.read)(role)?, (RUNNING.read)(role)?);
        CPU_DEMAND: Cpus, "CPUs used or waited for", "schedstat of its threads",
            |role| Some((RUNNING.read)(role)? + (WAITING.read)(role)?);
        BUSY_THREADS: Count, "threads that used CPU time", "PID/task",
            |role| Some(role.threads.iter().filter(|thread| thread.busy > 0.02).count() as f64);
        DISK_SLEEP: Count, "threads that wait for a disk", "PID/task state D, mean of the polls",
            |role| Some(role.threads_in_disk_sleep);
        DISK_WAIT: Count, "threads that wait for a disk, or for the lock of a file that such a one holds",
            "PID/task/wchan, mean of the polls", threads_at_disk;
        PIPE_SLEEP: Count, "threads that wait for the reader of a full pipe", "PID/task/wchan, mean of the polls",
            threads_at_full_pipe;
        VOLUNTARY_SWITCHES: PerSecond, "voluntary context switches", "PID/task/*/status",
            |role| Some(role.voluntary_switches_per_s);
        MAJOR_FAULTS: PerSecond, "major page faults", "PID/stat majflt",
            |role| Some(role.major_faults_per_s);
        DESCRIPTORS: Fraction, "descriptors, of the limit", "PID/fd, PID/limits",
            // The kernel counts one that is being opened, too.
            |role| Some((role.descriptors? as f64 / (role.descriptors_max? as f64).max(1.0)).min(1.0));
        RESIDENT: Bytes, "resident memory", "PID/statm", |role| Some(role.resident_bytes? as f64);
        QUOTA: Cpus, "CPUs that the quota allows", "cpu.max", |role| role.cgroup.as_ref()?.quota_cpus;
        QUOTA_USED: Fraction, "CPU time, of the quota", "PID/stat, cpu.max",
            |role| part_of((CPUS.read)(role)?, (QUOTA.read)(role)?);
        THROTTLED_PERIODS: Fraction, "quota periods in which the group was throttled",
            "cpu.stat nr_throttled / nr_periods", |role| role.cgroup.as_ref()?.throttled_periods;
        THROTTLED: Cpus, "CPUs that the quota withheld", "cpu.stat throttled_time",
            |role| role.cgroup.as_ref()?.throttled_cpus;
        MEMORY_USED: Fraction, "resident memory, of the group's limit",
            "smaps_rollup or stat of its processes, memory.max", memory_used;
        MEMORY_LIMIT_HITS: PerSecond, "hits of the memory limit of the group",
            "memory.events max, memory.failcnt", |role| role.cgroup.as_ref()?.memory_max_hits_per_s;
        GROUP_MEMORY_PRESSURE: Fraction, "time in which a task of the group waited for memory",
            "memory.pressure of the cgroup", |role| Some(role.cgroup.as_ref()?.pressure?.memory_some);
        GROUP_DISK_PRESSURE: Fraction, "time in which a task of the group waited for a disk",
            "io.pressure of the cgroup", |role| Some(role.cgroup.as_ref()?.pressure?.io_some);
        DISK_WRITES: PerSecond, "bytes written to a disk", "PID/io write_bytes",
            |role| role.disk_write_bytes_per_s;
        DISK_USED: Fraction, "bytes written to a disk, of the group's limit",
            "PID/io write_bytes, io.max or blkio.throttle",
            |role| part_of(role.disk_write_bytes_per_s?, role.cgroup.as_ref()?.disk_write_max_bytes_per_s?.max(1.0));
    }
    of LinkUse, "link": {
        LINK_USED: Fraction, "traffic of the fuller direction, of the rate",
            "interface bytes; tbf rate or speed", |link| {
                let (sent, received) = (link_use_sent(link), link_use_received(link));
                let uses = [sent, received].into_iter().flatten();
                uses.map(|direction| direction.used_fraction()).reduce(f64::max)
            };
        LINK_PACKETS: PerSecond, "packets of both directions", "interface counters",
            |link| Some(link.rx_packets_per_s + link.tx_packets_per_s);
        LINK_DROPS: PerSecond, "packets dropped by the interface and its queues", "interface and qdisc drops",
            |link| Some(link.rx_drops_per_s + sent_drops_per_s(link));
        OVERLIMITS: PerSecond, "packets that waited for the link", "qdisc overlimits",
            |link| link.queues.iter().map(|queue| queue.overlimits_per_s).reduce(f64::max);
    }
    of QdiscUse, "queue": {
        QUEUE_DELAY: Nanoseconds, "time to drain the link's queue", "qdisc backlog / rate", |queue| {
            let rate = queue.rate_bits_per_s.filter(|rate| *rate > 0.0)?;
            Some(queue.backlog_bytes as f64 * 8e9 / rate)
        };
    }
    of ListenerQueue, "listening sockets": {
        ACCEPT_QUEUE: Fraction, "accept queue length, of the backlog", "sock_diag of the listening sockets",
            |listener| part_of(f64::from(listener.waiting), accept_capacity(listener));
    }
    of EndQueues, "connections": {
        UNREAD: Fraction, "sockets with unread bytes", "sock_diag rqueue > 0", |ends| {
            part_of(ends.with_unread as f64, ends.count_in_state("established") as f64)
        };
        LOCAL_PORTS: Count, "local ports used to one destination", "sock_diag in any state",
            |ends| Some(ends.local_ports_max.unwrap_or_else(|| ends.states.values().sum()) as f64);
        ROUND_TRIP: Ratio, "round-trip time over its minimum", "TCP_INFO rtt / min_rtt",
            |ends| part_of(ends.rtt_us, ends.rtt_min_us);
        NOT_SENT: Bytes, "bytes that could not be sent yet", "TCP_INFO notsent_bytes",
            |ends| Some(ends.not_sent_bytes as f64);
    }
}

/// TCP counters of one event; they count it at several places.
pub(crate) const SYN_QUEUE_COUNTERS: [&str; 3] =
    ["TcpExt.SyncookiesSent", "TcpExt.TCPReqQFullDoCookies", "TcpExt.TCPReqQFullDrop"];

/// TCP counters of missing memory of the machine (`tcp_mem`).
pub(crate) const TCP_MEMORY_COUNTERS: [&str; 2] = ["TcpExt.TCPMemoryPressures", "TcpExt.TCPAbortOnMemory"];
/// TCP counters of a full receive buffer of one socket: its process reads too slowly, whatever memory there is.
pub(crate) const RECEIVE_BUFFER_COUNTERS: [&str; 3] =
    ["TcpExt.PruneCalled", "TcpExt.RcvPruned", "TcpExt.TCPRcvQDrop"];

fn part_of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Returns a sum over the CPUs of a machine.
pub(crate) fn sum_over_cpus(sample: &MachineSample, figure: impl Fn(&CpuUse) -> f64) -> Option<f64> {
    (!sample.cpus.is_empty()).then(|| sample.cpus.iter().map(figure).sum())
}

fn pressure(sample: &MachineSample, figure: fn(&Pressure) -> f64) -> Option<f64> {
    sample.pressure.as_ref().map(figure)
}

/// Returns the memory that is not reclaimable file cache, as a fraction of the group's limit.
fn memory_used(role: &RoleUse) -> Option<f64> {
    let group = role.cgroup.as_ref()?;
    Some(charged_bytes(role)? as f64 / (group.memory_max_bytes? as f64).max(1.0))
}

/// Returns the resident memory of a role; shared pages are charged once.
pub(crate) fn charged_bytes(role: &RoleUse) -> Option<u64> {
    let resident = role.proportional_bytes.or(role.resident_bytes)?;
    let charged = role.cgroup.as_ref().and_then(|group| group.memory_bytes);
    Some(charged.map_or(resident, |charged| resident.min(charged)))
}

/// Traffic of one direction of a link, and its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectionUse {
    pub(crate) bits_per_s: f64,
    pub(crate) max_bits_per_s: f64,
}

impl DirectionUse {
    pub(crate) fn used_fraction(self) -> f64 {
        self.bits_per_s / self.max_bits_per_s
    }
}

/// Returns the rate that limits what a link sends: its own or that of its slowest shaper.
pub(crate) fn link_rate(link: &LinkUse) -> Option<f64> {
    let shapers = link.queues.iter().filter_map(|queue| queue.rate_bits_per_s);
    shapers.chain(link.speed_bits_per_s).reduce(f64::min).filter(|rate| *rate > 0.0)
}

pub(crate) fn link_use_sent(link: &LinkUse) -> Option<DirectionUse> {
    Some(DirectionUse { bits_per_s: link.tx_bytes_per_s * 8.0, max_bits_per_s: link_rate(link)? })
}

/// Returns the received traffic. A shaper limits sent data only.
pub(crate) fn link_use_received(link: &LinkUse) -> Option<DirectionUse> {
    let speed = link.speed_bits_per_s.filter(|speed| *speed > 0.0)?;
    Some(DirectionUse { bits_per_s: link.rx_bytes_per_s * 8.0, max_bits_per_s: speed })
}

/// Returns the dropped packets that a link should have sent: the device may also count the drops of its
/// queues.
pub(crate) fn sent_drops_per_s(link: &LinkUse) -> f64 {
    link.tx_drops_per_s.max(link.queues.iter().map(|queue| queue.drops_per_s).sum())
}

/// Returns the number of connections that all accept queues of a port can hold.
pub(crate) fn accept_capacity(listener: &ListenerQueue) -> f64 {
    f64::from(listener.backlog) * f64::from(listener.sockets.max(1))
}
