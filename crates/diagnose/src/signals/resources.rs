//! Signals of the tables, memory, disks, functions and calls of the subject. Thresholds of verdicts are
//! elsewhere.

use super::compute::*;
use super::crypto::{bulk_crypto_fraction, handshake_fraction};
use super::functions::{KERNEL, is_allocation, is_lock, is_port_search};
use super::ports::*;
use super::queueing;
use super::signal::{Signal, SignalFamily};
use crate::figures as f;
use crate::unit::Unit;
use crate::window::{SUBJECT, fraction as part_of, median};

medians! {
    DESCRIPTORS: Tables, "descriptors of the subject, of its limit", role_median(SUBJECT, f::DESCRIPTORS);
    CONNTRACK: Tables, "connection tracking entries, of the limit", sample_median(SUBJECT, f::CONNTRACK_USED);
    CONNTRACK_DROPS: Counters, "packets dropped by connection tracking", sample_mean(SUBJECT, f::CONNTRACK_DROPS);
    DISK_SLEEP: Scheduler, "subject threads that wait for a disk", role_mean(SUBJECT, f::DISK_SLEEP);
    DISK_WAIT: Scheduler, "subject threads that wait for a disk, or for the lock of a file that such a one holds",
        role_mean(SUBJECT, f::DISK_WAIT);
    PIPE_SLEEP: Scheduler, "subject threads that wait for the reader of a full pipe",
        role_mean(SUBJECT, f::PIPE_SLEEP);
    MEMORY_LIMIT: Quota, "hits of the memory limit of the subject's cgroup", role_median(SUBJECT, f::MEMORY_LIMIT_HITS);
    MAJOR_FAULTS: Memory, "major page faults of the subject", role_median(SUBJECT, f::MAJOR_FAULTS);
    MEMORY_USED: Memory, "subject's resident memory, of its cgroup's limit", role_median(SUBJECT, f::MEMORY_USED);
    DISK_WRITES: Disk, "bytes that the subject wrote to a disk", role_median(SUBJECT, f::DISK_WRITES);
    DISK_USED: Disk, "bytes that the subject wrote to a disk, of its cgroup's limit", role_median(SUBJECT, f::DISK_USED);
}

signals! {
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
    SUBJECT_PORTS_HELD: Tables, Fraction, "local ports that a new connection of the subject to its origin cannot take",
        "sock_diag in any state, Tcp ActiveOpens, tcp_tw_reuse / ip_local_port_range", subject_ports_held_fraction;
    PORTS_TRIED: Tables, PerSecond, "local ports that new connections of the subject tried, per second of its CPU time",
        "half of ip_local_port_range × Tcp ActiveOpens / PID/stat, while half of the ports are held",
        ports_tried_per_cpu_s;
    OUTGOING_CONNECTIONS: Counters, PerSecond, "connections that the subject opened",
        "Tcp ActiveOpens of its namespace, without the generator's", |view| {
            view.sample_median(SUBJECT, |sample| outgoing_per_s(view, sample))
        };
    NO_DESCRIPTOR: Errors, Fraction, "requests without a descriptor", "EMFILE, ENFILE",
        |view| Some(view.error_fraction(&["no_descriptor"]));
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
    // Memory.
    MEMORY_EVENTS: Counters, PerSecond, "TCP memory shortages",
        "TcpExt TCPMemoryPressures, TCPAbortOnMemory", |view| view.counter(SUBJECT, &f::TCP_MEMORY_COUNTERS);
    MEMORY_PRESSURE: Memory, Fraction, "time in which a task waited for memory",
        "memory.pressure of the cgroup, or /proc/pressure/memory", |view| {
            let group = view.role_median(SUBJECT, f::GROUP_MEMORY_PRESSURE.read);
            let host = view.sample_median(SUBJECT, f::MEMORY_PRESSURE.read);
            group.into_iter().chain(host).reduce(f64::max)
        };
    // Disks.
    DISK_PRESSURE: Disk, Fraction, "time in which a task waited for a disk",
        "io.pressure of the cgroup, or /proc/pressure/io", |view| {
            let group = view.role_median(SUBJECT, f::GROUP_DISK_PRESSURE.read);
            group.or_else(|| view.sample_median(SUBJECT, f::DISK_PRESSURE.read))
        };
    WRITES: Scheduler, Count, "subject threads that force data to a disk, or wait for the reader of a full pipe",
        "PID/task state D, PID/task/wchan, mean of the polls; CPU time below fsync and its kind",
        threads_in_writes;
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
    PORT_SEARCH: Functions, Fraction, "search for a free local port, of the subject's samples",
        "top functions of its stacks, in the kernel", |view| {
            // Without privilege, only functions of user space are sampled.
            let kernel = view.function_fraction(SUBJECT, |function| function.module == KERNEL)?;
            (kernel > 0.0).then(|| view.function_fraction(SUBJECT, is_port_search))?
        };
    FUTEXES: Calls, PerResponse, "futex calls of the subject per response", "tracepoint sys_enter_futex",
        |view| Some(view.calls_per_s(SUBJECT, "futex")? / responses_per_s(view)?);
    SYSTEM_CALLS: Calls, PerResponse, "system calls of the subject per response",
        "tracepoint raw_syscalls:sys_enter",
        |view| Some(view.calls_per_s(SUBJECT, "system calls")? / responses_per_s(view)?);
}
