//! CPU time, memory and disks of the subject and the generator.

use super::super::rule::{Criterion, LimitClass, Perturbation, ThroughputChange, VerdictRule};
use super::super::shared::{
    DEFAULT_RULE, HARDLY_BUSY, LOAD_CARRIED, NO_QUEUEING, NOTHING_VALID, QUEUEING_MIN, REQUESTS_QUEUE,
    SATURATED, at_least, at_most,
};
use crate::sentences::cpu;
use crate::signals as s;

pub(super) const CPU_THROTTLED: VerdictRule = VerdictRule {
    code: "cpu_throttled",
    answer: cpu::cpu_throttled,
    claim: "a CPU quota stops the subject for part of each period",
    class: LimitClass::Cpu,
    // K:scheduler/sched-bwc.
    required: &[at_least(&s::SUBJECT_QUOTA, 0.05), at_least(&s::SUBJECT_THROTTLED, 0.02)],
    supporting: &[at_least(&s::SUBJECT_OVER_QUOTA, 0.85), at_least(&s::QUOTA_MODE, 0.01)],
    excluding: &[NOTHING_VALID],
    confusions: "steal and noisy neighbours, which have no throttled periods",
    remedy: "a larger quota (cpu.max, cfs_quota_us); at most as many threads as the quota has \
             CPUs; a burst (cpu.max.burst)",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with three quarters of the quota, the throughput falls by a quarter",
    ),
    ..DEFAULT_RULE
};

pub(super) const CPU_STEAL: VerdictRule = VerdictRule {
    code: "cpu_steal",
    answer: cpu::cpu_steal,
    claim: "the hypervisor gives other virtual machines the CPU time that the subject needs",
    required: &[
        WAITS_FOR_CPU,
        NEEDS_CPU,
        OTHERS_HAVE_IT,
        at_least(&s::STOLEN_OF_TAKEN, 0.5),
        at_least(&s::STEAL, 0.05),
    ],
    supporting_min: 0,
    excluding: &[HARDLY_WAITS, GENERATOR_THROTTLED, PAGES_RETURN, LOAD_CARRIED, NOTHING_VALID],
    yielding: &[LESSER_PART],
    confusions: "programs on this kernel (cpu_contended); a quota (cpu_throttled)",
    remedy: "repeat the run later, or on a machine with CPUs of its own; do not rely on the figures of this run",
    counter_test: (
        Perturbation::NotPossible,
        ThroughputChange::Stays,
        "without the other virtual machines, the throughput rises and its spread falls",
    ),
    ..CPU_CONTENDED
};

pub(super) const CPU_CONTENDED: VerdictRule = VerdictRule {
    code: "cpu_contended",
    answer: cpu::cpu_contended,
    claim: "other processes on this kernel use the CPUs that the subject needs",
    class: LimitClass::Cpu,
    required: &[WAITS_FOR_CPU, NEEDS_CPU, OTHERS_HAVE_IT, at_least(&s::FOREIGN_CPUS, 0.35)],
    supporting_min: 0,
    excluding: &[
        at_least(&s::STOLEN_OF_TAKEN, 0.5),
        HARDLY_WAITS,
        GENERATOR_THROTTLED,
        PAGES_RETURN,
        LOAD_CARRIED,
        NOTHING_VALID,
    ],
    yielding: &[LESSER_PART],
    confusions: "steal by the hypervisor (cpu_steal); a quota (cpu_throttled); the generator's own threads on the same \
                 CPUs",
    remedy: "repeat the run on an idle machine; pin or isolate the CPUs; do not rely on the \
             figures of this run",
    counter_test: (
        Perturbation::NotPossible,
        ThroughputChange::Stays,
        "without the other processes, the throughput rises and its spread falls",
    ),
    ..DEFAULT_RULE
};

/// A subject with more threads than CPUs waits for its own threads, whatever else runs.
const WAITS_FOR_CPU: Criterion = at_least(&s::SUBJECT_WAIT, 0.2);
/// A subject that hardly needs a CPU loses little by waiting for one.
const NEEDS_CPU: Criterion = at_least(&s::SUBJECT_DEMAND, 0.5);
/// Workers that sleep most of a request's time lose little of it to a CPU that they wait for.
const HARDLY_WAITS: Criterion = at_most(&s::CPU_WAIT_OF_REQUEST, 0.1);
/// Without the others the throughput would rise by two thirds at most: a limit of the subject's own that shows beside
/// them would stop it soon.
const LESSER_PART: Criterion = at_most(&s::LOST_TO_OTHERS, 0.4);
const OTHERS_HAVE_IT: Criterion = at_least(&s::TAKEN_BY_OTHERS, 0.5);
const GENERATOR_THROTTLED: Criterion = at_least(&s::GENERATOR_QUOTA, 0.05);
/// Threads that get their pages back one after the other also wait for a CPU.
const PAGES_RETURN: Criterion = at_least(&s::MEMORY_LIMIT, 1.0);

pub(super) const CLIENT_BOUND: VerdictRule = VerdictRule {
    code: "client_bound",
    answer: cpu::client_bound,
    claim: "the generator is at its own limit: its rate is a lower bound of the subject's limit",
    class: LimitClass::Generator,
    required: &[],
    supporting_min: 2,
    supporting: &[
        at_least(&s::GENERATOR_THREAD, SATURATED),
        at_least(&s::GENERATOR_QUOTA, 0.1),
        at_least(&s::UNREAD_RESPONSES_OVER_REQUESTS, 1.5),
        at_least(&s::GENERATOR_UNREAD_WITHOUT_SUBJECT, 0.3),
        at_least(&s::GENERATOR_LAG, 10_000_000.0),
        at_most(&s::SUBJECT_SATURATION, 0.85),
    ],
    excluding: &[
        // The generator waits for nothing of its own.
        at_most(&s::GENERATOR_THREAD, 0.8),
        at_most(&s::UNREAD_RESPONSES_OVER_REQUESTS, 0.67),
        // A fuller thread of the subject is the limit.
        at_least(&s::SUBJECT_OVER_GENERATOR, 1.0),
        NOTHING_VALID,
    ],
    confusions: "generator and subject at their limit on a small machine; softirqs of the subject, \
                 which the kernel charges to the generator on loopback",
    remedy: "more generator threads or machines: `load-clients` of `weir plan run.json calibration.json` (records of this \
             load and of weir calibrate); separate CPUs for generator and subject; a cheaper request; do not use this \
             result",
    counter_test: (
        Perturbation::SecondGenerator,
        ThroughputChange::Rises,
        "a second generator raises the total throughput",
    ),
    ..DEFAULT_RULE
};

pub(super) const LOG_WRITE_BOUND: VerdictRule = VerdictRule {
    code: "log_write_bound",
    answer: cpu::log_write_bound,
    claim: "the subject waits for its writes to a disk or to a pipe, such as those of a log",
    class: LimitClass::Limit,
    required: &[at_least(&s::WRITES, 0.3)],
    any_of: &[at_least(&s::DISK_WRITES, 1_000.0), at_least(&s::PIPE_SLEEP, 0.3)],
    supporting: &[at_least(&s::DISK_PRESSURE, 0.1), at_least(&s::IDLE_CPUS, 0.5)],
    excluding: &[at_least(&s::SUBJECT_SATURATION, 0.9), LOAD_CARRIED, NOTHING_VALID],
    confusions: "iowait of other processes; writes that the page cache takes, and that stall later",
    remedy: "a separate log thread with a bounded queue; larger writes; no O_SYNC; \
             sampling; a faster disk, or a faster reader of the pipe",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "twice the connections write no more",
    ),
    ..DEFAULT_RULE
};

pub(super) const MEMORY_PRESSURE: VerdictRule = VerdictRule {
    code: "memory_pressure",
    answer: cpu::memory_pressure,
    claim: "the subject runs short of memory",
    class: LimitClass::Limit,
    required: &[],
    supporting_min: 2,
    supporting: &[
        at_least(&s::MEMORY_LIMIT, 1.0),
        at_least(&s::MEMORY_PRESSURE, 0.02),
        at_least(&s::MAJOR_FAULTS, 10.0),
        at_least(&s::MEMORY_EVENTS, 1.0),
    ],
    confusions: "a process that reads too slowly (PruneCalled, RcvPruned)",
    remedy: "a larger memory limit: `memory-needed` of `weir plan run.json --servers 1 --maxconn 100` (run.json: the record \
             of this load; your own servers); smaller buffers per connection; fewer connections",
    counter_test: (
        Perturbation::HalveConnections,
        ThroughputChange::Rises,
        "with half the connections, the page faults end",
    ),
    ..DEFAULT_RULE
};

pub(super) const HANDSHAKE_BOUND: VerdictRule = VerdictRule {
    code: "handshake_bound",
    answer: cpu::handshake_bound,
    claim: "TLS handshakes use the CPU time",
    class: LimitClass::Cpu,
    required: &[at_least(&s::HANDSHAKE, 0.3), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
    supporting_min: 0,
    supporting: &[at_least(&s::SUBJECT_USER, 0.6), at_least(&s::SUBJECT_UNREAD, 0.3)],
    excluding: &[HARDLY_BUSY, LOAD_CARRIED, NOTHING_VALID],
    confusions: "bulk encryption (bulk_crypto_bound)",
    remedy: "keep-alive, session tickets, an ECDSA certificate; more cores: `handshake-cores` of \
             `weir plan run.json --requests-per-connection 1 --tls 100%` (run.json: the record of this load)",
    counter_test: (
        Perturbation::ToggleKeepAlive,
        ThroughputChange::Rises,
        "with keep-alive connections, the throughput rises many times",
    ),
    ..DEFAULT_RULE
};

pub(super) const BULK_CRYPTO_BOUND: VerdictRule = VerdictRule {
    code: "bulk_crypto_bound",
    answer: cpu::bulk_crypto_bound,
    claim: "encryption of bodies uses the CPU time",
    class: LimitClass::Cpu,
    required: &[at_least(&s::CRYPTO, 0.3), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
    supporting_min: 0,
    supporting: &[at_least(&s::SUBJECT_USER, 0.6)],
    excluding: &[HARDLY_BUSY, LOAD_CARRIED, NOTHING_VALID],
    confusions: "handshakes (handshake_bound)",
    remedy: "AES instructions, kTLS, larger records",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with less CPU time, fewer bytes are sent",
    ),
    ..DEFAULT_RULE
};

pub(super) const PORT_SEARCH_BOUND: VerdictRule = VerdictRule {
    code: "port_search_bound",
    answer: cpu::port_search_bound,
    claim: "the search for free local ports uses the CPU time: each new connection tries thousands of ports in use",
    class: LimitClass::Cpu,
    required: &[at_least(&s::SUBJECT_SYSTEM, 0.5), at_least(&s::SUBJECT_AT_LIMIT, SATURATED)],
    // A CPU that only searches tries three to four million ports per second, measured with cold caches.
    any_of: &[at_least(&s::PORT_SEARCH, 0.3), at_least(&s::PORTS_TRIED, 1e6)],
    supporting: &[at_least(&s::SUBJECT_PORTS_HELD, 0.5), at_least(&s::OUTGOING_CONNECTIONS, 10.0)],
    excluding: &[
        at_most(&s::PORT_SEARCH, 0.15),
        at_most(&s::OUTGOING_CONNECTIONS, 2.0),
        HARDLY_BUSY,
        LOAD_CARRIED,
        NOTHING_VALID,
        NO_QUEUEING,
    ],
    confusions: "other work of the kernel for each connection (kernel_cpu_bound); TIME_WAIT of connections that the \
                 clients opened, which hold no local port",
    remedy: "keep connections to the origin open; `weir tune apply --host net.ipv4.tcp_tw_reuse=1` (needs timestamps); more \
             addresses of the origin or source addresses ('source' in HAProxy and in a pool of weir proxy, \
             'proxy_bind' in nginx); \
             `weir tune apply --host 'net.ipv4.ip_local_port_range=1024 65023'`, if half of that range is more than the \
             connections opened in 60 s",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with three quarters of the CPU time, the throughput falls by a quarter",
    ),
    ..DEFAULT_RULE
};

pub(super) const LOCK_CONTENTION: VerdictRule = VerdictRule {
    code: "lock_contention",
    is_general: true,
    answer: cpu::lock_contention,
    claim: "the subject's threads wait for one another",
    class: LimitClass::Limit,
    is_circumstantial: true,
    required: &[
        at_least(&s::FUTEXES, 0.5),
        at_least(&s::SUBJECT_THREADS, 2.0),
        at_least(&s::SUBJECT_CPUS, 0.5),
        at_least(&s::IN_FLIGHT_FRACTION, 0.6),
        // Runtimes also park their threads on futexes. If a CPU or two are idle and requests still
        // wait, the threads wait for one another.
        at_least(&s::IDLE_CPUS, 0.3),
        at_most(&s::SUBJECT_SATURATION, SATURATED),
    ],
    supporting: &[REQUESTS_QUEUE, at_least(&s::VOLUNTARY_SWITCHES, 0.5), at_least(&s::LOCKING, 0.03)],
    // Threads that wait for a CPU do not wait for one another.
    excluding: &[
        at_least(&s::SUBJECT_THREAD, 0.9),
        at_least(&s::SUBJECT_CONTENTION, 1.0),
        // One that holds a lock while it waits for a disk makes the others wait for the disk.
        at_least(&s::DISK_WAIT, 0.2),
        LOAD_CARRIED,
        NOTHING_VALID,
        at_most(&s::QUEUEING, QUEUEING_MIN),
    ],
    confusions: "a thread pool that parks and wakes its threads without contention",
    remedy: "shard by thread; shorter critical sections; lock-free structures; fewer threads",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "twice the connections do not raise the throughput, or lower it",
    ),
    ..DEFAULT_RULE
};

pub(super) const ALLOCATOR_BOUND: VerdictRule = VerdictRule {
    code: "allocator_bound",
    answer: cpu::allocator_bound,
    claim: "a good part of the subject's CPU time is memory allocation",
    class: LimitClass::Cpu,
    // Any program allocates; less than a third of its time is a hint, and not its limit.
    required: &[at_least(&s::ALLOCATION, 0.3), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
    supporting: &[at_least(&s::SUBJECT_USER, 0.5)],
    excluding: &[HARDLY_BUSY, LOAD_CARRIED, NOTHING_VALID],
    confusions: "page faults of new memory, which are the kernel's time (kernel_cpu_bound)",
    remedy: "`weir lab profile --calls malloc`; pools and arenas; another allocator as an arm of \
             an experiment (jemalloc, mimalloc)",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with less CPU time, the throughput falls in proportion",
    ),
    ..DEFAULT_RULE
};

pub(super) const SOFTIRQ_IMBALANCE: VerdictRule = VerdictRule {
    code: "softirq_imbalance",
    answer: cpu::softirq_imbalance,
    claim: "one CPU does the network processing for all CPUs",
    class: LimitClass::Cpu,
    required: &[at_least(&s::SOFTIRQ_MAX, 0.5), at_most(&s::SOFTIRQ_OTHERS_MAX, 0.38)],
    supporting: &[
        at_least(&s::NET_RX_RATIO, 4.0),
        at_least(&s::STEERED, 1_000.0),
        at_least(&s::TIME_SQUEEZES, 1.0),
        at_least(&s::BACKLOG_DROPS, 1.0),
    ],
    excluding: &[LOAD_CARRIED, NOTHING_VALID],
    confusions: "a single flow, which no network card can split",
    remedy: "more receive queues with their interrupts spread over CPUs; RPS: \
             `weir tune apply --host nic.rps_cpus@eth0=3` (your own interface and mask of CPUs); threaded NAPI: \
             `weir tune apply --host nic.threaded_napi@eth0=1`",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "twice the connections go through the same CPU",
    ),
    ..DEFAULT_RULE
};

pub(super) const SINGLE_THREAD_BOUND: VerdictRule = VerdictRule {
    code: "single_thread_bound",
    is_general: true,
    answer: cpu::single_thread_bound,
    claim: "one thread of the subject is at its limit while CPUs are idle",
    class: LimitClass::Cpu,
    required: &[at_least(&s::SUBJECT_THREAD, SATURATED), at_least(&s::SUBJECT_IMBALANCE, 1.5)],
    any_of: &[at_least(&s::IDLE_CPUS, 0.3), at_least(&s::SINGLE_THREAD_FRACTION, 0.9)],
    supporting: &[
        REQUESTS_QUEUE,
        at_least(&s::SUBJECT_UNREAD, 0.3),
        at_least(&s::IN_FLIGHT_FRACTION, 0.8),
        at_least(&s::OFFERED_MISSED, 0.02),
    ],
    excluding: &[LOAD_CARRIED, NOTHING_VALID, NO_QUEUEING],
    confusions: "a lock that one thread at a time holds (lock_contention); a quota of one CPU",
    remedy: "more workers; SO_REUSEPORT; rebalance long-lived connections",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with three quarters of the CPU time, the throughput falls by a quarter",
    ),
    second_test: Some((
        Perturbation::ThinkTime,
        ThroughputChange::Stays,
        "with a pause before each request, waiting requests take its place",
    )),
    ..DEFAULT_RULE
};

/// The subject's CPUs are full, or its threads queue for them while a part of their time goes to
/// wake-ups.
const CPUS_FULL: &[Criterion] =
    &[at_least(&s::SUBJECT_SATURATION, SATURATED), at_least(&s::SUBJECT_CONTENTION, 1.0)];

pub(super) const KERNEL_CPU_BOUND: VerdictRule = VerdictRule {
    code: "kernel_cpu_bound",
    is_general: true,
    answer: cpu::kernel_cpu_bound,
    claim: "the subject uses all its CPU time, most of it in the kernel",
    class: LimitClass::Cpu,
    required: &[at_least(&s::SUBJECT_SYSTEM, 0.5)],
    any_of: CPUS_FULL,
    supporting: &[
        REQUESTS_QUEUE,
        at_least(&s::SUBJECT_UNREAD, 0.3),
        at_least(&s::SYSTEM_CALLS, 20.0),
        at_least(&s::IN_FLIGHT_FRACTION, 0.8),
        at_least(&s::OFFERED_MISSED, 0.02),
    ],
    excluding: &[HARDLY_BUSY, LOAD_CARRIED, NOTHING_VALID, NO_QUEUEING],
    confusions: "softirqs of the other end on loopback, which the kernel charges to the running thread",
    remedy: "keep-alive; fewer and larger system calls (writev, splice, sendfile, \
             io_uring); GRO and TSO",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with three quarters of the CPU time, the throughput falls by a quarter",
    ),
    ..DEFAULT_RULE
};

pub(super) const USER_CPU_BOUND: VerdictRule = VerdictRule {
    code: "user_cpu_bound",
    is_general: true,
    answer: cpu::user_cpu_bound,
    claim: "the subject uses all its CPU time, most of it in its own code",
    class: LimitClass::Cpu,
    required: &[at_least(&s::SUBJECT_USER, 0.5)],
    any_of: CPUS_FULL,
    supporting: &[
        REQUESTS_QUEUE,
        at_least(&s::SUBJECT_UNREAD, 0.3),
        at_least(&s::IN_FLIGHT_FRACTION, 0.8),
        at_least(&s::OFFERED_MISSED, 0.02),
    ],
    excluding: &[HARDLY_BUSY, LOAD_CARRIED, NOTHING_VALID, NO_QUEUEING],
    confusions: "a quota (cpu_throttled), other processes or virtual machines (cpu_contended, cpu_steal), spinning on a lock (lock_contention)",
    remedy: "`weir lab profile`: the top functions; build flags, the allocator; more threads or CPUs: `cores-needed` of \
             `weir plan run.json` (run.json: the record of this load)",
    counter_test: (
        Perturbation::LessCpuTime,
        ThroughputChange::Falls,
        "with three quarters of the CPU time, the throughput falls by a quarter",
    ),
    ..DEFAULT_RULE
};
