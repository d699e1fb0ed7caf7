//! What verdicts look at, as a table: a figure of a record with its name, its unit and where it comes
//! from. A signal says what was seen and never what it means; `None` is "not observable".
//!
//! Two signals are independent when their families differ: a verdict needs two families.

macro_rules! signals {
    ($($id:ident: $family:ident, $unit:ident, $name:literal, $source:literal, $read:expr;)*) => {
        $(
            #[doc = $name]
            pub static $id: Signal = Signal {
                name: $name,
                family: Family::$family,
                unit: Unit::$unit,
                source: $source,
                read: $read,
            };
        )*
    };
}

mod link;
mod loss;
mod network;
mod queueing;
mod read;
mod unit;

use record::observed::End;

use super::fingerprints;
use super::view::{GENERATOR, ORIGIN, SUBJECT, View, median, share as part_of};
pub use network::*;
use read::*;
pub(super) use read::{CARRIED_MIN, by_affinity, carried};
pub use unit::Unit;
pub(super) use unit::written;

/// Fewer CPUs than this are below what a clock of 10 ms tells of a run of a second.
const CPU_SHARE_MIN: f64 = 0.01;

/// Where a signal comes from; signals of one family may be wrong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Latencies, and the requests in flight.
    Latency,
    /// Failed requests.
    Errors,
    /// What the generator says of itself.
    Generator,
    /// Processor time.
    Processor,
    /// Waiting for a processor, switches, wake-ups.
    Scheduler,
    /// Which sockets hold bytes that nobody has read.
    Queue,
    /// What TCP counts of the whole namespace.
    Counters,
    /// What TCP knows of each connection.
    Connections,
    /// Network interfaces and their queues.
    Link,
    /// Memory.
    Memory,
    /// Control groups.
    Quota,
    /// Functions on processors.
    Functions,
    /// Calls that were counted.
    Calls,
    /// Disks.
    Disk,
    /// Descriptors and ports.
    Tables,
}

/// One figure.
pub struct Signal {
    /// Its name, in words.
    pub name: &'static str,
    /// Its family.
    pub family: Family,
    /// How it is written.
    pub unit: Unit,
    /// Where it comes from.
    pub source: &'static str,
    pub(super) read: fn(&View<'_>) -> Option<f64>,
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

signals! {
    // The generator.
    GENERATOR_THREAD: Generator, Share, "busiest generator thread, of a core",
        "schedstat of its threads; of its quota where it has one", generator_thread;
    GENERATOR_THREAD_ALONE: Generator, Share,
        "busiest generator thread, where the subject's processor time is not seen",
        "schedstat of its threads; of its quota where it has one", |view| {
            match subject_saturation(view) { None => generator_thread(view), Some(_) => None }
        };
    GENERATOR_QUOTA: Quota, Share, "quota periods in which the generator was throttled",
        "cpu.stat nr_throttled / nr_periods",
        |view| view.of_role(GENERATOR, throttled);
    GENERATOR_LAG: Generator, Nanoseconds, "99 % of the generator's lags were within",
        "the generator's own clock: send (or wake-up) after due",
        |view| Some(view.run.generator.lag_p99_ns as f64);
    // Where requests wait.
    GENERATOR_UNREAD: Queue, Share, "generator sockets with unread answers",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread(view, GENERATOR, End::Client);
    GENERATOR_UNREAD_ALONE: Queue, Share,
        "generator sockets with unread answers, where the subject's are not seen",
        "sock_diag rqueue > 0, median of the snapshots", unread_alone;
    SUBJECT_UNREAD: Queue, Share, "subject sockets with unread requests",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread(view, SUBJECT, End::Server);
    ORIGIN_UNREAD: Queue, Share, "origin sockets with unread requests",
        "sock_diag rqueue > 0, median of the snapshots", |view| unread(view, ORIGIN, End::Server);
    UNREAD_AT_GENERATOR: Queue, Times, "unread answers over unread requests",
        "sock_diag, sockets of both ends", |view| {
            let (client, server) =
                (unread(view, GENERATOR, End::Client)?, unread(view, SUBJECT, End::Server)?);
            Some((client + QUEUE_FLOOR) / (server + QUEUE_FLOOR))
        };
    IN_FLIGHT_SHARE: Latency, Share, "requests in flight, of all connections",
        "counted by the generator", |view| {
            let connections = view.run.totals.connections.obtained as f64;
            Some(part_of(view.run.generator.in_flight_mean, connections))
        };
    LITTLE_ERROR: Latency, Share, "rate times latency, off from what was in flight",
        "Little's law", |view| {
            let generator = &view.run.generator;
            let counted = generator.in_flight_mean;
            (counted > 0.0).then(|| (generator.in_flight_by_littles_law - counted).abs() / counted)
        };
    LATENCY_SPREAD: Latency, Times, "p90 over p50 of the latency", "the latency histogram",
        |view| {
            let latency = &view.run.latency.last_byte.service;
            (latency.p50_ns > 0).then(|| latency.p90_ns as f64 / latency.p50_ns as f64)
        };
    WAIT_WITHOUT_PROCESSOR: Latency, Times, "time of a request over its processor time",
        "latency p50 over (subject and origin processor time per response)", |view| {
            let used = cpus(view, SUBJECT)? + cpus(view, ORIGIN).unwrap_or(0.0);
            let each_ns = used * 1e9 / responses(view)?;
            // Less CPU time than the clock resolves gives no ratio.
            (used > 0.0).then(|| view.run.latency.last_byte.service.p50_ns as f64 / each_ns.max(1_000.0))
        };
    QUEUEING: Latency, Share, "waiting, of the latency under load",
        "1 - R(1) / R(N): latency of requests one at a time before the load, and under it",
        queueing::queueing_share;
    PARALLELISM: Latency, Count, "requests that are served at a time, by the latency without load",
        "rate times R(1)", queueing::parallelism;
    POOL_BY_LAW: Latency, Times, "requests served at a time over connections to the origin",
        "rate times R(1), sock_diag", |view| {
            Some(queueing::parallelism(view)? / queueing::pool(view)?)
        };
    POOL_BUSY: Queue, Share, "connections to the origin that await a reply",
        "TCP_INFO last_data_sent, last_data_recv; median of the snapshots", queueing::pool_busy;
    AT_ORIGIN: Queue, Share, "requests in flight that wait for an origin's reply",
        "TCP_INFO of the subject's connections to its origins", queueing::at_origin;
    ORIGIN_QUEUEING: Queue, Share, "latency that requests wait at the origins beyond R(1)",
        "requests at the origins by Little's law, R(1)", queueing::origin_queueing;
    OFFERED_MISSED: Latency, Share, "offered load that got no good response", "an open loop's own count",
        |view| Some(1.0 - answered_well(view)?);
    CARRIED: Latency, Share, "load that was answered in time",
        "count of the open loop, or R(1) of a loop with think time; 0 where requests queue up, or an \
         objective is missed",
        carried;
    OBJECTIVES_MISSED: Latency, Count, "objectives that were missed", "generator", |view| {
        Some(view.run.objectives.iter().filter(|objective| !objective.met).count() as f64)
    };
    CARRIED_LATE: Latency, Share,
        "requests that took a retransmission's time, of an offered load that was answered in time",
        "an open loop's own count, the latency histogram", |view| {
            carried(view).filter(|share| *share >= CARRIED_MIN)?;
            retransmission_mode(view)
        };
    // Processors.
    SUBJECT_CPUS: Processor, Cpus, "processors that the subject used", "PID/stat utime + stime",
        |view| cpus(view, SUBJECT);
    SUBJECT_SATURATION: Processor, Share, "subject's processor time, of what it could have had",
        "PID/stat, its affinity and quota, and what the machine left idle", subject_saturation;
    SUBJECT_THREAD: Processor, Share, "busiest subject thread, of a core", "schedstat of its threads",
        |view| view.of_role(SUBJECT, busiest);
    SUBJECT_AT_LIMIT: Processor, Share, "subject's processor time or busiest thread, of what it can have",
        "PID/stat, schedstat", |view| {
            let thread = view.of_role(SUBJECT, busiest);
            subject_saturation(view).into_iter().chain(thread).reduce(f64::max)
        };
    SUBJECT_USER: Processor, Share, "user space, of the subject's processor time", "PID/stat",
        |view| view.of_role(SUBJECT, |role| {
            let all = role.user_cpus + role.system_cpus;
            (all > 0.0).then(|| role.user_cpus / all)
        });
    SUBJECT_SYSTEM: Processor, Share, "kernel, of the subject's processor time", "PID/stat",
        |view| view.of_role(SUBJECT, |role| {
            let all = role.user_cpus + role.system_cpus;
            (all > 0.0).then(|| role.system_cpus / all)
        });
    SUBJECT_IMBALANCE: Processor, Times, "busiest subject thread over the mean of the processors",
        "schedstat of its threads, processors that it may use", |view| {
            let mean = cpus(view, SUBJECT)? / allowed(view)?.max(1.0);
            // Less CPU time than the clock resolves gives no ratio.
            (mean >= CPU_SHARE_MIN).then_some(view.of_role(SUBJECT, busiest)? / mean)
        };
    ORIGIN_SATURATION: Processor, Share, "busiest origin thread, of a core", "schedstat",
        |view| view.of_role(ORIGIN, busiest);
    ORIGIN_AT_LIMIT: Processor, Share, "CPU time of the origins or their busiest thread, of the possible",
        "PID/stat, schedstat, quota", queueing::origin_at_limit;
    ORIGIN_OVER_SUBJECT: Processor, Times, "CPU time of the origins over the subject's", "PID/stat",
        |view| Some(cpus(view, ORIGIN)? / cpus(view, SUBJECT)?.max(1e-3));
    ONE_THREAD: Processor, Share, "busiest subject thread, of the subject's CPU time", "schedstat",
        |view| {
            let all = cpus(view, SUBJECT).filter(|all| *all > 0.05)?;
            Some((view.of_role(SUBJECT, busiest)? / all).min(1.0))
        };
    IDLE_CPUS: Processor, Cpus, "idle processors", "/proc/stat",
        |view| view.of_samples(SUBJECT, |sample| Some(idle(sample)));
    BUSIEST_CPU: Processor, Share, "busiest processor", "/proc/stat",
        |view| view.of_samples(SUBJECT, |sample| {
            sample.cpus.iter().map(|cpu| 1.0 - cpu.idle).reduce(f64::max)
        });
    SOFTIRQ_MAX: Processor, Share, "software interrupts on the processor with most of them",
        "/proc/stat", |view| view.of_samples(SUBJECT, |sample| softirqs(sample).map(|two| two.0));
    SOFTIRQ_REST: Processor, Share, "software interrupts on each of the others, at the most",
        "/proc/stat", |view| view.of_samples(SUBJECT, |sample| softirqs(sample).map(|two| two.1));
    NET_RX_RATIO: Counters, Times, "NET_RX of one processor over the others'", "/proc/softirqs",
        |view| view.of_samples(SUBJECT, |sample| {
            let mut rates: Vec<f64> = sample.cpus.iter().map(|cpu| cpu.net_rx_per_s).collect();
            rates.sort_by(f64::total_cmp);
            let (most, rest) = rates.split_last()?;
            Some(most / rest.last()?.max(1.0))
        });
    STEERED: Counters, PerSecond, "packets that were steered to another processor",
        "softnet_stat column 10",
        |view| view.of_samples(SUBJECT, |sample| of_cpus(sample, |cpu| cpu.received_rps_per_s));
    SQUEEZES: Counters, PerSecond, "times a softirq ran out of its share", "softnet_stat column 3",
        |view| view.of_samples(SUBJECT, |sample| of_cpus(sample, |cpu| cpu.time_squeezes_per_s));
    BACKLOG_DROPS: Counters, PerSecond, "packets dropped before a processor", "softnet_stat column 2",
        |view| view.of_samples(SUBJECT, |sample| of_cpus(sample, |cpu| cpu.backlog_drops_per_s));
    FOREIGN: Processor, Cpus, "processors that other programs used",
        "/proc/stat without the roles", |view| {
            view.of_samples(SUBJECT, |sample| sample.foreign_cpus)
        };
    STEAL: Processor, Share, "time that the hypervisor gave to others", "/proc/stat steal",
        |view| view.of_samples(SUBJECT, |sample| {
            let count = sample.cpus.len().max(1) as f64;
            Some(sample.cpus.iter().map(|cpu| cpu.steal).sum::<f64>() / count)
        });
    SUBJECT_WAIT: Scheduler, Times, "time that the subject waited for a processor, over its running",
        "schedstat run_delay / run time", |view| view.of_role(SUBJECT, wait_ratio);
    TAKEN_BY_OTHERS: Processor, Times, "CPUs that others used over those that the subject waited for",
        "/proc/stat without the roles, steal; schedstat run_delay", |view| {
            let waited = view.of_role(SUBJECT, |role| {
                role.threads.iter().map(|thread| thread.waiting).sum::<Option<f64>>()
            })?;
            let count = view.of_samples(SUBJECT, |sample| Some(sample.cpus.len() as f64))?;
            let stolen = (STEAL.read)(view).unwrap_or(0.0) * count;
            (waited > 0.0).then_some(((FOREIGN.read)(view)? + stolen) / waited.max(0.05))
        };
    SUBJECT_DEMAND: Processor, Cpus, "processors that the subject used or waited for",
        "schedstat of its threads", |view| view.of_role(SUBJECT, |role| {
            role.threads.iter().map(|thread| Some(thread.busy + thread.waiting?)).sum()
        });
    VOLUNTARY: Scheduler, PerResponse, "voluntary switches of the subject per response",
        "PID/task/*/status", |view| {
            let switches = view.of_role(SUBJECT, |role| Some(role.voluntary_switches_per_s))?;
            Some(switches / responses(view)?)
        };
    SUBJECT_THREADS: Scheduler, Count, "subject threads that worked", "PID/task",
        |view| view.of_role(SUBJECT, |role| {
            Some(role.threads.iter().filter(|thread| thread.busy > 0.02).count() as f64)
        });
    // Quotas.
    SUBJECT_QUOTA: Quota, Share, "quota periods in which the subject was throttled",
        "cpu.stat nr_throttled / nr_periods", |view| view.of_role(SUBJECT, throttled);
    SUBJECT_THROTTLED: Quota, Cpus, "processors that the quota kept from the subject",
        "cpu.stat throttled_time",
        |view| view.of_role(SUBJECT, |role| role.cgroup.as_ref()?.throttled_cpus);
    SUBJECT_OF_QUOTA: Processor, Share, "subject's processor time, of its quota", "PID/stat",
        |view| {
            let quota = view.of_role(SUBJECT, |role| role.cgroup.as_ref()?.quota_cpus)?;
            Some(cpus(view, SUBJECT)? / quota.max(1e-9))
        };
    QUOTA_MODE: Latency, Share, "requests that waited for the rest of a quota's period",
        "the latency histogram", |view| {
            let (from_ns, to_ns) = fingerprints::quota_pause(view)?;
            Some(fingerprints::share_between(&view.last_byte, from_ns, to_ns))
        };
    // Connections, ports, descriptors.
    ORIGIN_CONNECTIONS: Tables, Times, "requests in flight over connections to the origin",
        "generator, sock_diag, unix_diag", |view| {
            Some(view.run.generator.in_flight_mean / queueing::pool(view)?)
        };
    ORIGIN_PINNED: Queue, Share, "snapshots in which all connections to the origin were there",
        "sock_diag: established within 5 % of the most", |view| {
            let counts = queueing::pool_sizes(view);
            let most = counts.iter().copied().reduce(f64::max)?;
            let near = counts.iter().filter(|count| **count >= most * 0.95).count();
            (most > 0.0).then(|| near as f64 / counts.len() as f64)
        };
    NO_PORT: Errors, Share, "requests without a local port",
        "connect(2): EADDRNOTAVAIL; of a proxy: 5xx while its local ports are taken",
        |view| {
            let own = view.error_share(&["no_port"]);
            let upstream = subject_ports_taken(view).unwrap_or(0.0) >= UPSTREAM_PORTS_TAKEN;
            let failed: u64 = view.run.totals.status.range(500..).map(|(_, count)| count).sum();
            let share = part_of(failed as f64, view.run.totals.requests as f64);
            Some(if upstream { own.max(share) } else { own })
        };
    PORTS: Tables, Share, "local ports towards the subject or its origin that are taken",
        "sock_diag in any state / (ip_local_port_range times source addresses)", ports_taken;
    NO_DESCRIPTOR: Errors, Share, "requests without a descriptor", "EMFILE, ENFILE",
        |view| Some(view.error_share(&["no_descriptor"]));
    DESCRIPTORS: Tables, Share, "descriptors of the subject, of its limit", "PID/fd, PID/limits",
        |view| view.of_role(SUBJECT, |role| {
            Some(role.descriptors? as f64 / (role.descriptors_max? as f64).max(1.0))
        });
    CONNECT_FAILURES: Errors, Share, "connections or requests that failed or waited to connect",
        "generator: failed connects, time-outs while connecting, connections missing", |view| {
            let totals = &view.run.totals;
            let timeouts = totals.timeouts_by_phase.get("connect").copied().unwrap_or(0);
            // Those that were not sent any more had waited as long.
            let too_late = totals.errors.get("too_late").copied().unwrap_or(0);
            let queued = totals.timeouts_by_phase.get("queue").copied().unwrap_or(0) + too_late;
            let missing = totals.connections.wanted.saturating_sub(totals.connections.obtained);
            let bad = totals.connections.failed + timeouts + queued + missing;
            Some(part_of(bad as f64, (totals.requests + missing) as f64))
        };
    UNSERVED: Queue, Share, "connections that nobody answers, of those that were wanted",
        "generator, sock_diag: accepted or waiting without a request being read", |view| {
            let waiting = listeners(view).iter().map(|of| f64::from(of.waiting)).collect();
            Some(part_of(median(waiting)?, view.run.totals.connections.wanted as f64))
        };
    ACCEPT_QUEUE: Queue, Share, "connections that wait to be accepted, at the most, of the backlog",
        "sock_diag of the listening sockets", accept_queue;
    CONNTRACK: Tables, Share, "connection tracking, of its limit", "nf_conntrack_count / max",
        |view| view.of_samples(SUBJECT, |sample| {
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
    MEMORY_EVENTS: Counters, PerSecond, "times TCP ran short of memory",
        "TcpExt TCPMemoryPressures, PruneCalled, RcvPruned, TCPAbortOnMemory, TCPRcvQDrop",
        |view| view.counter(SUBJECT, &[
            "TcpExt.TCPMemoryPressures", "TcpExt.PruneCalled", "TcpExt.RcvPruned",
            "TcpExt.TCPAbortOnMemory", "TcpExt.TCPRcvQDrop",
        ]);
    MEMORY_LIMIT: Quota, PerSecond, "times the subject hit its group's bound of memory",
        "memory.events max, memory.failcnt",
        |view| view.of_role(SUBJECT, |role| role.cgroup.as_ref()?.memory_max_hits_per_s);
    MEMORY_PRESSURE: Memory, Share, "time in which some task waited for memory",
        "memory.pressure of the group, or /proc/pressure/memory", |view| {
            let group = view.of_role(SUBJECT, |role| {
                Some(role.cgroup.as_ref()?.pressure?.memory_some)
            });
            let host = view.of_samples(SUBJECT, |sample| Some(sample.pressure?.memory_some));
            group.into_iter().chain(host).reduce(f64::max)
        };
    MAJOR_FAULTS: Memory, PerSecond, "page faults of the subject that needed a disk", "PID/stat majflt",
        |view| view.of_role(SUBJECT, |role| Some(role.major_faults_per_s));
    MEMORY_USED: Memory, Share, "subject's resident memory, of its group's bound",
        "smaps_rollup or stat of its processes, memory.max", |view| view.of_role(SUBJECT, memory_used);
    // Disks.
    DISK_SLEEP: Scheduler, Count, "subject threads that wait for a disk", "PID/task state D, mean", |view| {
        let uses = view.machine(SUBJECT)?.uses(SUBJECT);
        let asleep: f64 = uses.iter().map(|role| f64::from(role.threads_in_disk_sleep)).sum();
        (!uses.is_empty()).then(|| asleep / uses.len() as f64)
    };
    DISK_WRITES: Disk, PerSecond, "bytes that the subject wrote to a disk", "PID/io write_bytes",
        |view| view.of_role(SUBJECT, |role| role.disk_write_bytes_per_s);
    DISK_USED: Disk, Share, "bytes that the subject wrote to a disk, of its group's bound",
        "PID/io write_bytes, io.max or blkio.throttle", |view| view.of_role(SUBJECT, disk_used);
    DISK_PRESSURE: Disk, Share, "time in which some task waited for a disk",
        "io.pressure of the group, or /proc/pressure/io", |view| {
            let group = view.of_role(SUBJECT, |role| Some(role.cgroup.as_ref()?.pressure?.io_some));
            group.or_else(|| view.of_samples(SUBJECT, |sample| Some(sample.pressure?.io_some)))
        };
    // Functions and calls.
    ALLOCATION: Functions, Share, "memory allocation, of the subject's samples",
        "functions on top of its stacks", |view| view.function_share(SUBJECT, is_allocation);
    CRYPTO: Functions, Share, "bulk encryption, of the subject's samples",
        "functions on top of its stacks", |view| view.function_share(SUBJECT, is_bulk_crypto);
    HANDSHAKE: Functions, Share, "signatures and key exchange, of the subject's samples",
        "functions on top of its stacks", |view| view.function_share(SUBJECT, is_handshake);
    LOCKING: Functions, Share, "locks, of the subject's samples", "functions on top of its stacks",
        |view| view.function_share(SUBJECT, is_lock);
    FUTEXES: Calls, PerResponse, "futex calls of the subject per response", "tracepoint sys_enter_futex",
        |view| Some(view.calls_per_s(SUBJECT, "futex")? / responses(view)?);
    SYSTEM_CALLS: Calls, PerResponse, "system calls of the subject per response",
        "tracepoint raw_syscalls:sys_enter",
        |view| Some(view.calls_per_s(SUBJECT, "system calls")? / responses(view)?);
    // Errors.
    ANSWERED: Errors, Share, "requests that got a valid answer", "generator", |view| {
        let totals = &view.run.totals;
        let requests = totals.requests as f64;
        (requests > 0.0).then(|| 1.0 - part_of(totals.failed() as f64, requests))
    };
    ERRORS_OVER_BOUND: Errors, Times, "bad requests over the bound of --error-share-max", "generator",
        |view| {
            let bound = view.run.plan["error_share_max"].as_f64().unwrap_or(0.001);
            Some((ERRORS.read)(view)? / bound.max(1e-9))
        };
    ERRORS: Errors, Share, "requests that had no good response", "generator",
        |view| Some(view.run.totals.error_share());
    ERROR_ANSWERS: Errors, Share, "bad responses (400 and above, or not as expected)", "generator", |view| {
        let totals = &view.run.totals;
        Some(part_of(totals.bad() as f64, totals.requests as f64))
    };
    BROKEN: Errors, Share, "connections that were refused, reset or ended early, and answers that broke",
        "generator", |view| {
            Some(view.error_share(&["reset", "closed", "parse", "refused", "check"]))
        };
    RESETS: Counters, PerSecond, "resets", "Tcp EstabResets, OutRsts",
        |view| both(view, &["Tcp.EstabResets", "Tcp.OutRsts"]);
}
