//! Table of the signals of verdicts: a figure of a record with its name, unit and source. A signal
//! gives a value and never its meaning; `None` is "not observable".
//!
//! Two signals are independent if their families differ: a verdict needs two families.

macro_rules! signals {
    ($($id:ident: $family:ident, $unit:ident, $name:literal, $source:literal, $read:expr;)*) => {
        $(
            #[doc = $name]
            pub static $id: Signal = Signal {
                name: $name,
                family: SignalFamily::$family,
                unit: SignalUnit::$unit,
                source: $source,
                read: $read,
            };
        )*
    };
}

mod compute;
mod crypto;
mod http2;
mod link;
mod loss;
mod network;
mod queueing;
mod unit;

use record::observed::ConnectionEnd;

use super::fingerprints;
use super::run_view::{GENERATOR, ORIGIN, RunView, SUBJECT, fraction as part_of, median};
use compute::*;
pub(super) use compute::{
    CARRIED_MIN, HARDLY_BUSY_CPUS, carried_fraction, cpus_by_affinity, is_single_threaded, machine_cpus,
};
use crypto::{bulk_crypto_fraction, handshake_fraction};
pub use network::*;
pub(super) use queueing::unloaded_latency_ns;
pub use unit::SignalUnit;
pub(super) use unit::format_value;

/// Minimum number of CPUs that a 10 ms clock resolves in a run of a second.
const CPUS_RESOLVED_MIN: f64 = 0.01;

/// Minimum used fraction of the subject's CPUs for contention. A subject below it waits because its
/// threads wake all at once, as those that pass on a lock do, and not because it has too few CPUs.
const CONTENTION_USED_MIN: f64 = 0.8;

/// Use of the CPUs from which a subject is full, whatever its threads do.
const FULL_WITHOUT_THREADS: f64 = 0.85;

/// Source of a signal; signals of one family may be wrong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignalFamily {
    /// Latencies, and the requests in flight.
    Latency,
    /// Failed requests.
    Errors,
    /// Figures of the generator about itself.
    Generator,
    /// CPU time.
    Cpu,
    /// Waiting for a CPU, context switches, wake-ups.
    Scheduler,
    /// Unread bytes in sockets.
    Queue,
    /// TCP counters of the whole namespace.
    Counters,
    /// TCP figures of each connection.
    Connections,
    /// Network interfaces and their queues.
    Link,
    /// Memory.
    Memory,
    /// Control groups.
    Quota,
    /// Functions on CPUs.
    Functions,
    /// Counted calls.
    Calls,
    /// Disks.
    Disk,
    /// Descriptors and ports.
    Tables,
}

/// Figure of a record.
pub struct Signal {
    /// Name of the figure.
    pub name: &'static str,
    /// Family of the signal.
    pub family: SignalFamily,
    /// Unit for formatting.
    pub unit: SignalUnit,
    /// Source of the figure.
    pub source: &'static str,
    pub(super) read: fn(&RunView<'_>) -> Option<f64>,
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

signals! {
    // The generator.
    GENERATOR_THREAD: Generator, Fraction, "busiest generator thread, of a core",
        "schedstat of its threads; relative to its quota, if any", generator_thread;
    GENERATOR_THREAD_WITHOUT_SUBJECT: Generator, Fraction,
        "busiest generator thread, if the subject's CPU time is not observable",
        "schedstat of its threads; relative to its quota, if any", |view| {
            match subject_saturation(view) { None => generator_thread(view), Some(_) => None }
        };
    GENERATOR_QUOTA: Quota, Fraction, "quota periods in which the generator was throttled",
        "cpu.stat nr_throttled / nr_periods",
        |view| view.role_median(GENERATOR, throttled_fraction);
    GENERATOR_LAG: Generator, Nanoseconds, "generator lag, 99 %",
        "the generator's own clock: send (or wake-up) after due",
        |view| Some(view.run.generator.lag_p99_ns as f64);
    // Positions of waiting requests.
    GENERATOR_UNREAD: Queue, Fraction, "generator sockets with unread responses",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread_fraction(view, GENERATOR, ConnectionEnd::Client);
    GENERATOR_UNREAD_WITHOUT_SUBJECT: Queue, Fraction,
        "generator sockets with unread responses, if the subject's are not observable",
        "sock_diag rqueue > 0, median of the snapshots", unread_without_subject;
    SUBJECT_UNREAD: Queue, Fraction, "subject sockets with unread requests",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread_fraction(view, SUBJECT, ConnectionEnd::Server);
    ORIGIN_UNREAD: Queue, Fraction, "origin sockets with unread requests",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread_fraction(view, ORIGIN, ConnectionEnd::Server);
    UNREAD_RESPONSES_OVER_REQUESTS: Queue, Ratio, "unread responses over unread requests",
        "sock_diag, sockets of both ends", |view| {
            let (client, server) =
                (unread_fraction(view, GENERATOR, ConnectionEnd::Client)?, unread_fraction(view, SUBJECT, ConnectionEnd::Server)?);
            Some((client + QUEUE_FLOOR) / (server + QUEUE_FLOOR))
        };
    IN_FLIGHT_FRACTION: Latency, Fraction, "requests in flight, of the connections, or their streams",
        "counted by the generator", |view| {
            Some(part_of(view.run.generator.in_flight_mean, view.run.request_slots()))
        };
    LITTLE_ERROR: Latency, Fraction, "difference of rate × latency from the requests in flight",
        "Little's law", |view| {
            let generator = &view.run.generator;
            let in_flight = generator.in_flight_mean;
            (in_flight > 0.0).then(|| (generator.in_flight_by_littles_law - in_flight).abs() / in_flight)
        };
    LATENCY_SPREAD: Latency, Ratio, "p90 over p50 of the latency", "the latency histogram",
        |view| {
            let latency = &view.run.latency.last_byte.service;
            (latency.p50_ns > 0).then(|| latency.p90_ns as f64 / latency.p50_ns as f64)
        };
    LATENCY_OVER_CPU_TIME: Latency, Ratio, "latency of a request over its CPU time",
        "latency p50 / (subject and origin CPU time per response)", |view| {
            let used = cpus(view, SUBJECT)? + cpus(view, ORIGIN).unwrap_or(0.0);
            let each_ns = used * 1e9 / responses_per_s(view)?;
            // CPU time below the clock's resolution gives no ratio.
            (used > 0.0).then(|| view.run.latency.last_byte.service.p50_ns as f64 / each_ns.max(1_000.0))
        };
    QUEUEING: Latency, Fraction, "waiting time, of the latency under load",
        "1 - R(1) / R(N): latency of single requests before the load, and under load",
        queueing::queueing_fraction;
    PARALLELISM: Latency, Count, "requests served at a time, from the latency without load",
        "rate × R(1)", queueing::parallelism;
    PARALLELISM_OVER_POOL: Latency, Ratio, "requests served at a time over connections to the origin",
        "rate × R(1), sock_diag", |view| {
            Some(queueing::parallelism(view)? / queueing::pool_size(view)?)
        };
    POOL_BUSY: Queue, Fraction, "connections to the origin that wait for a response",
        "TCP_INFO last_data_sent, last_data_recv; median of the snapshots", queueing::busy_pool_fraction;
    AT_ORIGIN: Queue, Fraction, "requests in flight that wait for an origin's response",
        "TCP_INFO of the subject's connections to its origins", queueing::at_origin_fraction;
    ORIGIN_QUEUEING: Queue, Fraction, "waiting time at the origins beyond R(1), of the latency",
        "requests at the origins by Little's law, R(1)", queueing::origin_queueing;
    ORIGIN_ACCEPT_QUEUE: Queue, Fraction,
        "requests in flight whose connection an origin has not accepted",
        "sock_diag and unix_diag, accept queues of the origins' listening sockets",
        queueing::origin_accept_queue;
    OFFERED_MISSED: Latency, Fraction, "offered requests without a good response", "count of the open loop",
        |view| Some(1.0 - good_response_fraction(view)?);
    CARRIED: Latency, Fraction, "load that was served in time",
        "count of the open loop, or R(1) of a loop with think time; 0 if requests queue up, or an \
         objective is missed",
        carried_fraction;
    OBJECTIVES_MISSED: Latency, Count, "missed objectives", "generator", |view| {
        Some(view.run.objectives.iter().filter(|objective| !objective.met).count() as f64)
    };
    CARRIED_LATE: Latency, Fraction,
        "requests delayed by a retransmission, of an offered load that was served in time",
        "count of the open loop, the latency histogram", |view| {
            carried_fraction(view).filter(|fraction| *fraction >= CARRIED_MIN)?;
            retransmission_mode(view)
        };
    // CPUs.
    SUBJECT_CPUS: Cpu, Cpus, "CPUs used by the subject", "PID/stat utime + stime",
        |view| cpus(view, SUBJECT);
    SUBJECT_SATURATION: Cpu, Fraction, "subject's CPU time, of the available CPU time",
        "PID/stat, its affinity and quota, idle time of the machine", subject_saturation;
    SUBJECT_OVER_ALLOWED: Cpu, Fraction, "subject's CPU time, of the CPUs it may use",
        "PID/stat, its affinity", |view| Some(cpus(view, SUBJECT)? / cpus_by_affinity(view)?);
    ALL_CPUS: Cpu, Fraction, "all CPUs, without stolen time", "/proc/stat",
        |view| view.sample_median(SUBJECT, |sample| {
            let (busy, all) = busy_and_available_cpus(sample);
            Some(busy / all)
        });
    SUBJECT_THREAD: Cpu, Fraction, "busiest subject thread, of a core", "schedstat of its threads",
        subject_thread;
    SUBJECT_AT_LIMIT: Cpu, Fraction, "subject's CPU time or busiest thread, of the maximum",
        "PID/stat, schedstat", |view| {
            let all = subject_saturation(view)?;
            match subject_thread(view) {
                Some(thread) => Some(all.max(thread)),
                // A full thread may be among those that were not observed.
                None => Some(all).filter(|all| *all >= FULL_WITHOUT_THREADS),
            }
        };
    SUBJECT_USER: Cpu, Fraction, "user space, of the subject's CPU time", "PID/stat",
        |view| view.role_median(SUBJECT, |role| {
            let all = role.user_cpus + role.system_cpus;
            (all > 0.0).then(|| role.user_cpus / all)
        });
    SUBJECT_SYSTEM: Cpu, Fraction, "kernel, of the subject's CPU time", "PID/stat",
        |view| view.role_median(SUBJECT, |role| {
            let all = role.user_cpus + role.system_cpus;
            (all > 0.0).then(|| role.system_cpus / all)
        });
    SUBJECT_IMBALANCE: Cpu, Ratio, "busiest subject thread over the mean use of the CPUs",
        "schedstat of its threads, its affinity", |view| {
            let mean = cpus(view, SUBJECT)? / allowed_cpus(view)?.max(1.0);
            // CPU time below the clock's resolution gives no ratio.
            (mean >= CPUS_RESOLVED_MIN).then_some(subject_thread(view)? / mean)
        };
    ORIGIN_THREAD: Cpu, Fraction, "busiest origin thread, of a core", "schedstat",
        |view| view.role_median(ORIGIN, busiest_thread);
    ORIGIN_AT_LIMIT: Cpu, Fraction, "CPU time of the origins or their busiest thread, of the maximum",
        "PID/stat, schedstat, quota", queueing::origin_utilization;
    ORIGIN_OVER_SUBJECT: Cpu, Ratio, "CPU time of the origins over the subject's", "PID/stat",
        |view| Some(cpus(view, ORIGIN)? / cpus(view, SUBJECT)?.max(1e-3));
    SINGLE_THREAD_FRACTION: Cpu, Fraction, "busiest subject thread, of the subject's CPU time", "schedstat",
        |view| {
            let all = cpus(view, SUBJECT).filter(|all| *all > 0.05)?;
            Some((subject_thread(view)? / all).min(1.0))
        };
    IDLE_CPUS: Cpu, Cpus, "idle CPUs", "/proc/stat",
        |view| view.sample_median(SUBJECT, |sample| Some(idle_cpus(sample)));
    BUSIEST_CPU: Cpu, Fraction, "busiest CPU", "/proc/stat",
        |view| view.sample_median(SUBJECT, |sample| {
            sample.cpus.iter().map(|cpu| 1.0 - cpu.idle).reduce(f64::max)
        });
    SOFTIRQ_MAX: Cpu, Fraction, "softirq time on the CPU with the most of it",
        "/proc/stat", |view| view.sample_median(SUBJECT, |sample| softirq_max_and_next(sample).map(|two| two.0));
    SOFTIRQ_OTHERS_MAX: Cpu, Fraction, "maximum softirq time on the other CPUs",
        "/proc/stat", |view| view.sample_median(SUBJECT, |sample| softirq_max_and_next(sample).map(|two| two.1));
    NET_RX_RATIO: Counters, Ratio, "NET_RX softirqs of one CPU over the next CPU's", "/proc/softirqs",
        |view| view.sample_median(SUBJECT, |sample| {
            let mut rates: Vec<f64> = sample.cpus.iter().map(|cpu| cpu.net_rx_per_s).collect();
            rates.sort_by(f64::total_cmp);
            let (max, others) = rates.split_last()?;
            Some(max / others.last()?.max(1.0))
        });
    STEERED: Counters, PerSecond, "packets steered to another CPU",
        "softnet_stat column 10",
        |view| view.sample_median(SUBJECT, |sample| sum_over_cpus(sample, |cpu| cpu.received_rps_per_s));
    TIME_SQUEEZES: Counters, PerSecond, "softirq runs that used up their budget", "softnet_stat column 3",
        |view| view.sample_median(SUBJECT, |sample| sum_over_cpus(sample, |cpu| cpu.time_squeezes_per_s));
    BACKLOG_DROPS: Counters, PerSecond, "packets dropped from a CPU's backlog", "softnet_stat column 2",
        |view| view.sample_median(SUBJECT, |sample| sum_over_cpus(sample, |cpu| cpu.backlog_drops_per_s));
    FOREIGN_CPUS: Cpu, Cpus, "CPUs used by other processes",
        "/proc/stat minus all roles of the run on the same kernel",
        |view| view.foreign_median(SUBJECT, |_, foreign| foreign);
    STEAL: Cpu, Fraction, "time that the hypervisor gave to other virtual machines", "/proc/stat steal",
        |view| view.sample_median(SUBJECT, |sample| {
            let count = sample.cpus.len().max(1) as f64;
            Some(sample.cpus.iter().map(|cpu| cpu.steal).sum::<f64>() / count)
        });
    SUBJECT_WAIT: Scheduler, Ratio, "time that the subject waited for a CPU over its running time",
        "schedstat run_delay / run time", |view| view.role_median(SUBJECT, wait_ratio);
    TAKEN_BY_OTHERS: Cpu, Ratio, "CPUs used by others over the CPUs that the subject lacked",
        "/proc/stat minus all roles of the run on the same kernel; steal; schedstat run_delay", |view| {
            let waited = view.role_median(SUBJECT, |role| {
                role.threads.iter().map(|thread| thread.waiting).sum::<Option<f64>>()
            })?;
            let count = view.sample_median(SUBJECT, |sample| Some(sample.cpus.len() as f64))?;
            let stolen = (STEAL.read)(view).unwrap_or(0.0) * count;
            // Threads that wait for one another's CPU lack no more than the subject does not get.
            let missing_cpus = (allowed_cpus(view)? - cpus(view, SUBJECT)?).clamp(0.0, waited);
            (waited > 0.0).then_some(((FOREIGN_CPUS.read)(view)? + stolen) / missing_cpus.max(0.05))
        };
    SUBJECT_DEMAND: Cpu, Cpus, "CPUs that the subject used or waited for",
        "schedstat of its threads", |view| view.role_median(SUBJECT, |role| {
            role.threads.iter().map(|thread| Some(thread.busy + thread.waiting?)).sum()
        });
    VOLUNTARY_SWITCHES: Scheduler, PerResponse, "voluntary context switches of the subject per response",
        "PID/task/*/status", |view| {
            let switches = view.role_median(SUBJECT, |role| Some(role.voluntary_switches_per_s))?;
            Some(switches / responses_per_s(view)?)
        };
    SUBJECT_THREADS: Scheduler, Count, "subject threads that used CPU time", "PID/task",
        |view| view.role_median(SUBJECT, |role| {
            Some(role.threads.iter().filter(|thread| thread.busy > 0.02).count() as f64)
        });
    SUBJECT_CONTENTION: Scheduler, Ratio,
        "CPUs that the subject used or waited for over its allowed CPUs",
        "schedstat of its threads, affinity and quota; only if it used at least 80 % of the available CPU time",
        |view| {
            subject_saturation(view).filter(|fraction| *fraction >= CONTENTION_USED_MIN)?;
            Some((SUBJECT_DEMAND.read)(view)? / allowed_cpus(view)?.max(1e-9))
        };
    // Quotas.
    SUBJECT_QUOTA: Quota, Fraction, "quota periods in which the subject was throttled",
        "cpu.stat nr_throttled / nr_periods", |view| view.role_median(SUBJECT, throttled_fraction);
    SUBJECT_THROTTLED: Quota, Cpus, "CPUs that the quota withheld from the subject",
        "cpu.stat throttled_time",
        |view| view.role_median(SUBJECT, |role| role.cgroup.as_ref()?.throttled_cpus);
    SUBJECT_OVER_QUOTA: Cpu, Fraction, "subject's CPU time, of its quota", "PID/stat",
        |view| {
            let quota = view.role_median(SUBJECT, |role| role.cgroup.as_ref()?.quota_cpus)?;
            Some(cpus(view, SUBJECT)? / quota.max(1e-9))
        };
    QUOTA_MODE: Latency, Fraction, "requests that waited for the rest of a quota's period",
        "the latency histogram", |view| {
            let (from_ns, to_ns) = fingerprints::quota_pause_range_ns(view)?;
            Some(fingerprints::fraction_between(&view.last_byte, from_ns, to_ns))
        };
    // Connections, ports, descriptors.
    ORIGIN_CONNECTIONS: Tables, Ratio, "requests in flight over connections to the origin",
        "generator, sock_diag, unix_diag", |view| {
            Some(view.run.generator.in_flight_mean / queueing::pool_size(view)?)
        };
    ORIGIN_PINNED: Queue, Fraction, "snapshots in which all connections to the origin were open",
        "sock_diag: established within 5 % of the median", |view| {
            let counts = queueing::pool_sizes(view);
            // Not of the maximum: connections from before the load may still be open.
            let median_count = median(counts.clone()).filter(|typical| *typical > 0.0)?;
            let is_near = |count: &&f64| (**count / median_count - 1.0).abs() <= 0.05;
            Some(counts.iter().filter(is_near).count() as f64 / counts.len() as f64)
        };
    NO_PORT: Errors, Fraction, "requests without a local port",
        "connect(2): EADDRNOTAVAIL; for a proxy: 5xx responses while its local ports are in use",
        |view| {
            let client_fraction = view.error_fraction(&["no_port"]);
            let upstream = subject_ports_used_fraction(view).unwrap_or(0.0) >= UPSTREAM_PORTS_USED_MIN;
            let failed: u64 = view.run.totals.status.range(500..).map(|(_, count)| count).sum();
            let upstream_fraction = part_of(failed as f64, view.run.totals.requests as f64);
            Some(if upstream { client_fraction.max(upstream_fraction) } else { client_fraction })
        };
    PORTS: Tables, Fraction, "used local ports towards the subject or its origin",
        "sock_diag in any state / (ip_local_port_range × source addresses)", ports_used_fraction;
    NO_DESCRIPTOR: Errors, Fraction, "requests without a descriptor", "EMFILE, ENFILE",
        |view| Some(view.error_fraction(&["no_descriptor"]));
    DESCRIPTORS: Tables, Fraction, "descriptors of the subject, of its limit", "PID/fd, PID/limits",
        |view| view.role_median(SUBJECT, |role| {
            Some(role.descriptors? as f64 / (role.descriptors_max? as f64).max(1.0))
        });
    CONNECT_FAILURES: Errors, Fraction, "connections or requests that failed or waited to connect",
        "generator: failed connects, connect timeouts, missing connections", |view| {
            let totals = &view.run.totals;
            let timeouts = totals.timeouts_by_phase.get("connect").copied().unwrap_or(0);
            // Requests that were too late to be sent had waited as long.
            let too_late = totals.errors.get("too_late").copied().unwrap_or(0);
            let queued = totals.timeouts_by_phase.get("queue").copied().unwrap_or(0) + too_late;
            let missing = totals.connections.requested.saturating_sub(totals.connections.max_open);
            let bad = totals.connections.failed + timeouts + queued + missing;
            Some(part_of(bad as f64, (totals.requests + missing) as f64))
        };
    UNSERVED: Queue, Fraction, "connections without a response, of the requested connections",
        "generator, sock_diag: accepted or waiting, with unread requests", |view| {
            let waiting = listeners(view).iter().map(|listener| f64::from(listener.waiting)).collect();
            Some(part_of(median(waiting)?, view.run.totals.connections.requested as f64))
        };
    ACCEPT_QUEUE: Queue, Fraction, "maximum accept queue length, of the backlog",
        "sock_diag of the listening sockets", accept_queue_fill_max;
    CONNTRACK: Tables, Fraction, "connection tracking entries, of the limit", "nf_conntrack_count / max",
        |view| view.sample_median(SUBJECT, |sample| {
            let table = sample.conntrack?;
            Some(part_of(table.entries as f64, table.entries_max as f64))
        });
    CONNTRACK_DROPS: Counters, PerSecond, "packets dropped by connection tracking",
        "/proc/net/stat/nf_conntrack drop, early_drop, insert_failed",
        |view| {
            let drops = view.machine(SUBJECT)?.samples().into_iter().filter_map(|sample| {
                let table = sample.conntrack?;
                Some(table.drops_per_s + table.early_drops_per_s + table.insert_failures_per_s)
            }).collect::<Vec<_>>();
            (!drops.is_empty()).then(|| drops.iter().sum::<f64>() / drops.len() as f64)
        };
    // Memory.
    MEMORY_EVENTS: Counters, PerSecond, "TCP memory shortages",
        "TcpExt TCPMemoryPressures, PruneCalled, RcvPruned, TCPAbortOnMemory, TCPRcvQDrop",
        |view| view.counter(SUBJECT, &[
            "TcpExt.TCPMemoryPressures", "TcpExt.PruneCalled", "TcpExt.RcvPruned",
            "TcpExt.TCPAbortOnMemory", "TcpExt.TCPRcvQDrop",
        ]);
    MEMORY_LIMIT: Quota, PerSecond, "hits of the memory limit of the subject's cgroup",
        "memory.events max, memory.failcnt",
        |view| view.role_median(SUBJECT, |role| role.cgroup.as_ref()?.memory_max_hits_per_s);
    MEMORY_PRESSURE: Memory, Fraction, "time in which a task waited for memory",
        "memory.pressure of the cgroup, or /proc/pressure/memory", |view| {
            let group = view.role_median(SUBJECT, |role| {
                Some(role.cgroup.as_ref()?.pressure?.memory_some)
            });
            let host = view.sample_median(SUBJECT, |sample| Some(sample.pressure?.memory_some));
            group.into_iter().chain(host).reduce(f64::max)
        };
    MAJOR_FAULTS: Memory, PerSecond, "major page faults of the subject", "PID/stat majflt",
        |view| view.role_median(SUBJECT, |role| Some(role.major_faults_per_s));
    MEMORY_USED: Memory, Fraction, "subject's resident memory, of its cgroup's limit",
        "smaps_rollup or stat of its processes, memory.max", |view| view.role_median(SUBJECT, memory_used_fraction);
    // Disks.
    DISK_SLEEP: Scheduler, Count, "subject threads that wait for a disk", "PID/task state D, mean of the polls", |view| {
        let uses = view.machine(SUBJECT)?.role_uses(SUBJECT);
        let asleep: f64 = uses.iter().map(|role| role.threads_in_disk_sleep).sum();
        (!uses.is_empty()).then(|| asleep / uses.len() as f64)
    };
    DISK_WRITES: Disk, PerSecond, "bytes that the subject wrote to a disk", "PID/io write_bytes",
        |view| view.role_median(SUBJECT, |role| role.disk_write_bytes_per_s);
    DISK_USED: Disk, Fraction, "bytes that the subject wrote to a disk, of its cgroup's limit",
        "PID/io write_bytes, io.max or blkio.throttle", |view| view.role_median(SUBJECT, disk_used_fraction);
    DISK_PRESSURE: Disk, Fraction, "time in which a task waited for a disk",
        "io.pressure of the cgroup, or /proc/pressure/io", |view| {
            let group = view.role_median(SUBJECT, |role| Some(role.cgroup.as_ref()?.pressure?.io_some));
            group.or_else(|| view.sample_median(SUBJECT, |sample| Some(sample.pressure?.io_some)))
        };
    // Functions and calls.
    ALLOCATION: Functions, Fraction, "memory allocation, of the subject's samples",
        "top functions of its stacks", |view| view.function_fraction(SUBJECT, is_allocation);
    CRYPTO: Functions, Fraction, "bulk encryption, of the subject's samples",
        "top functions of its stacks; those of a stripped library of TLS by the bytes per handshake",
        bulk_crypto_fraction;
    HANDSHAKE: Functions, Fraction, "signatures and key exchange, of the subject's samples",
        "top functions of its stacks; those of a stripped library of TLS by the bytes per handshake",
        handshake_fraction;
    LOCKING: Functions, Fraction, "locks, of the subject's samples", "top functions of its stacks",
        |view| view.function_fraction(SUBJECT, is_lock);
    FUTEXES: Calls, PerResponse, "futex calls of the subject per response", "tracepoint sys_enter_futex",
        |view| Some(view.calls_per_s(SUBJECT, "futex")? / responses_per_s(view)?);
    SYSTEM_CALLS: Calls, PerResponse, "system calls of the subject per response",
        "tracepoint raw_syscalls:sys_enter",
        |view| Some(view.calls_per_s(SUBJECT, "system calls")? / responses_per_s(view)?);
    // Errors.
    VALID_RESPONSES: Errors, Fraction, "requests with a valid response", "generator", |view| {
        let totals = &view.run.totals;
        let requests = totals.requests as f64;
        (requests > 0.0).then(|| 1.0 - part_of(totals.failed() as f64, requests))
    };
    ERRORS_OVER_BOUND: Errors, Ratio, "failed requests above the limit of --max-error-rate", "generator",
        |view| {
            let error_fraction_max = view.run.plan["max_error_rate"].as_f64().unwrap_or(0.001);
            Some((ERRORS.read)(view)? / error_fraction_max.max(1e-9))
        };
    ERRORS: Errors, Fraction, "requests without a good response", "generator",
        |view| Some(view.run.totals.error_fraction());
    ERROR_RESPONSES: Errors, Fraction, "bad responses (status 400 or above, or unexpected)", "generator", |view| {
        let totals = &view.run.totals;
        Some(part_of(totals.bad() as f64, totals.requests as f64))
    };
    BROKEN: Errors, Fraction,
        "refused, reset or truncated connections, failed TLS sessions, and malformed responses",
        "generator", |view| {
            Some(view.error_fraction(&["reset", "closed", "parse", "refused", "check", "tls", "stream_reset", "refused_stream"]))
        };
    RESETS: Counters, PerSecond, "resets", "Tcp EstabResets, OutRsts",
        |view| counter_of_both_ends(view, &["Tcp.EstabResets", "Tcp.OutRsts"]);
}
