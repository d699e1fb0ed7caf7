//! CPU time, memory and disks of the subject and the generator.

use super::super::shared::{
    CARRIED, HARDLY_BUSY, NO_QUEUEING, NOTHING_VALID, QUEUEING_MIN, QUEUES, SATURATED, VERDICT,
    at_least, at_most,
};
use super::super::{Answer, Class, Perturbation, Verdict};
use crate::diagnosis::signals as s;

pub(super) const CPU_THROTTLED: Verdict = Verdict {
    code: "cpu_throttled",
    claim: "a processor quota stops the subject for part of each period",
    class: Class::Cpu,
    // K:scheduler/sched-bwc.
    proofs: &[at_least(&s::SUBJECT_QUOTA, 0.05), at_least(&s::SUBJECT_THROTTLED, 0.02)],
    signs: &[at_least(&s::SUBJECT_OF_QUOTA, 0.85), at_least(&s::QUOTA_MODE, 0.01)],
    unless: &[NOTHING_VALID],
    confusions: "steal and noisy neighbours, which show no throttled periods",
    remedy: "a larger quota (cpu.max, cfs_quota_us); no more threads than the quota has \
             processors; a burst (cpu.max.burst)",
    counter_test: (
        Perturbation::LessProcessorTime,
        Answer::Falls,
        "with three quarters of the quota the throughput falls by a quarter",
    ),
    ..VERDICT
};

pub(super) const CPU_STEAL: Verdict = Verdict {
    code: "cpu_steal",
    claim: "others run on the processors that the subject needs",
    class: Class::Cpu,
    // Who hardly needs a processor loses little by waiting for one.
    // A subject with more threads than CPUs waits for its own threads, whoever else is there.
    proofs: &[
        at_least(&s::SUBJECT_WAIT, 0.2),
        at_least(&s::SUBJECT_DEMAND, 0.5),
        at_least(&s::TAKEN_BY_OTHERS, 0.5),
    ],
    signs: &[at_least(&s::FOREIGN, 0.35), at_least(&s::STEAL, 0.05)],
    // Threads that get their pages back one after the other wait for a processor too.
    unless: &[at_least(&s::GENERATOR_QUOTA, 0.05), at_least(&s::MEMORY_LIMIT, 1.0), NOTHING_VALID],
    confusions: "a quota (cpu_throttled); the generator's own threads on the same processors",
    remedy: "repeat the run on a quiet machine; pin or isolate; the figures of this one count \
             for little",
    counter_test: (
        Perturbation::Nothing,
        Answer::Stays,
        "without the others the throughput rises and its spread falls",
    ),
    ..VERDICT
};

pub(super) const CLIENT_BOUND: Verdict = Verdict {
    code: "client_bound",
    claim: "the generator is at its own limit: its rate is a lower bound of the subject's",
    class: Class::Generator,
    proofs: &[],
    signs_min: 2,
    signs: &[
        at_least(&s::GENERATOR_THREAD, SATURATED),
        at_least(&s::GENERATOR_QUOTA, 0.1),
        at_least(&s::UNREAD_AT_GENERATOR, 1.5),
        at_least(&s::GENERATOR_UNREAD_ALONE, 0.3),
        at_least(&s::GENERATOR_LAG, 10_000_000.0),
        at_most(&s::SUBJECT_SATURATION, 0.85),
    ],
    unless: &[
        // It waits for nothing of its own.
        at_most(&s::GENERATOR_THREAD, 0.8),
        at_most(&s::UNREAD_AT_GENERATOR, 0.67),
        NOTHING_VALID,
    ],
    confusions: "both at their limit on a small machine; the kernel charges the subject's \
                 softirqs to the generator on loopback",
    remedy: "more generator threads or machines; pin the roles apart; a cheaper request; do not \
             use this result",
    counter_test: (
        Perturbation::SecondGenerator,
        Answer::Rises,
        "a second generator raises the total",
    ),
    ..VERDICT
};

pub(super) const LOG_WRITE_BOUND: Verdict = Verdict {
    code: "log_write_bound",
    claim: "the subject waits for its writes to a disk",
    class: Class::Limit,
    proofs: &[at_least(&s::DISK_SLEEP, 0.3), at_least(&s::DISK_WRITES, 1_000.0)],
    signs: &[at_least(&s::DISK_PRESSURE, 0.1), at_least(&s::IDLE_CPUS, 0.5)],
    unless: &[at_least(&s::SUBJECT_SATURATION, 0.9), CARRIED, NOTHING_VALID],
    confusions: "iowait of others; writes that the page cache takes, and that stall later",
    remedy: "a thread of its own for the log behind a bounded queue; larger writes; no O_SYNC; \
             sampling; a faster disk",
    counter_test: (
        Perturbation::TwiceTheConnections,
        Answer::Stays,
        "twice the connections write no more",
    ),
    ..VERDICT
};

pub(super) const MEMORY_PRESSURE: Verdict = Verdict {
    code: "memory_pressure",
    claim: "memory runs short",
    class: Class::Limit,
    proofs: &[],
    signs_min: 2,
    signs: &[
        at_least(&s::MEMORY_LIMIT, 1.0),
        at_least(&s::MEMORY_PRESSURE, 0.02),
        at_least(&s::MAJOR_FAULTS, 10.0),
        at_least(&s::MEMORY_EVENTS, 1.0),
    ],
    confusions: "a full receiver's window, which prunes too",
    remedy: "a larger bound of memory; smaller buffers for each connection; fewer connections",
    counter_test: (
        Perturbation::HalfTheConnections,
        Answer::Rises,
        "with half the connections the faults end",
    ),
    ..VERDICT
};

pub(super) const HANDSHAKE_BOUND: Verdict = Verdict {
    code: "handshake_bound",
    claim: "TLS handshakes take the processor time",
    class: Class::Cpu,
    proofs: &[at_least(&s::HANDSHAKE, 0.3), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
    signs_min: 0,
    signs: &[at_least(&s::SUBJECT_USER, 0.6), at_least(&s::SUBJECT_UNREAD, 0.3)],
    unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID],
    confusions: "bulk encryption (bulk_crypto_bound)",
    remedy: "kept connections, tickets, an ECDSA certificate",
    counter_test: (
        Perturbation::KeptConnections,
        Answer::Rises,
        "with kept connections the throughput rises many times",
    ),
    ..VERDICT
};

pub(super) const BULK_CRYPTO_BOUND: Verdict = Verdict {
    code: "bulk_crypto_bound",
    claim: "encryption of bodies takes the processor time",
    class: Class::Cpu,
    proofs: &[at_least(&s::CRYPTO, 0.3), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
    signs_min: 0,
    signs: &[at_least(&s::SUBJECT_USER, 0.6)],
    unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID],
    confusions: "handshakes (handshake_bound)",
    remedy: "AES instructions, kTLS, larger records",
    counter_test: (
        Perturbation::LessProcessorTime,
        Answer::Falls,
        "with less processor time fewer bytes go out",
    ),
    ..VERDICT
};

pub(super) const LOCK_CONTENTION: Verdict = Verdict {
    code: "lock_contention",
    claim: "the subject's threads wait for one another",
    class: Class::Limit,
    circumstantial: true,
    proofs: &[
        at_least(&s::FUTEXES, 0.5),
        at_least(&s::SUBJECT_THREADS, 2.0),
        at_most(&s::SUBJECT_THREAD, 0.9),
        at_least(&s::SUBJECT_CPUS, 0.5),
        at_least(&s::IN_FLIGHT_SHARE, 0.6),
        // Runtimes park their threads on futexes as well: where a CPU or two are idle and requests
        // wait all the same, the threads wait for one another.
        at_least(&s::IDLE_CPUS, 0.3),
        at_most(&s::SUBJECT_SATURATION, SATURATED),
    ],
    signs: &[QUEUES, at_least(&s::VOLUNTARY, 0.5), at_least(&s::LOCKING, 0.03)],
    unless: &[CARRIED, NOTHING_VALID, at_most(&s::QUEUEING, QUEUEING_MIN)],
    confusions: "a pool of threads that parks and wakes them without contention",
    remedy: "shard by thread; shorter sections; lock-free structures; fewer threads",
    counter_test: (
        Perturbation::TwiceTheConnections,
        Answer::Stays,
        "twice the connections bring nothing, or less",
    ),
    ..VERDICT
};

pub(super) const ALLOCATOR_BOUND: Verdict = Verdict {
    code: "allocator_bound",
    claim: "a good part of the subject's processor time is memory allocation",
    class: Class::Cpu,
    // Any program allocates; less than a third of its time is a hint, and not its limit.
    proofs: &[at_least(&s::ALLOCATION, 0.3), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
    signs: &[at_least(&s::SUBJECT_USER, 0.5)],
    unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID],
    confusions: "page faults of new memory, which are the kernel's time (kernel_cpu_bound)",
    remedy: "weir lab profile --calls malloc; pools and arenas; another allocator as an arm of an \
             experiment (jemalloc, mimalloc)",
    counter_test: (
        Perturbation::LessProcessorTime,
        Answer::Falls,
        "with less processor time the throughput falls with it",
    ),
    ..VERDICT
};

pub(super) const SOFTIRQ_IMBALANCE: Verdict = Verdict {
    code: "softirq_imbalance",
    claim: "one processor does the network's work for all",
    class: Class::Cpu,
    proofs: &[at_least(&s::SOFTIRQ_MAX, 0.5), at_most(&s::SOFTIRQ_REST, 0.38)],
    signs: &[
        at_least(&s::NET_RX_RATIO, 4.0),
        at_least(&s::STEERED, 1_000.0),
        at_least(&s::SQUEEZES, 1.0),
        at_least(&s::BACKLOG_DROPS, 1.0),
    ],
    unless: &[CARRIED, NOTHING_VALID],
    confusions: "a single flow, which no card can split",
    remedy: "more receive queues with their interrupts spread; RPS; threaded NAPI",
    counter_test: (
        Perturbation::TwiceTheConnections,
        Answer::Stays,
        "twice the connections go through the same processor",
    ),
    ..VERDICT
};

pub(super) const SINGLE_THREAD_BOUND: Verdict = Verdict {
    code: "single_thread_bound",
    claim: "one thread of the subject is at its limit while processors are idle",
    class: Class::Cpu,
    proofs: &[at_least(&s::SUBJECT_THREAD, SATURATED), at_least(&s::SUBJECT_IMBALANCE, 1.5)],
    any: &[at_least(&s::IDLE_CPUS, 0.3), at_least(&s::ONE_THREAD, 0.9)],
    signs: &[
        QUEUES,
        at_least(&s::SUBJECT_UNREAD, 0.3),
        at_least(&s::IN_FLIGHT_SHARE, 0.8),
        at_least(&s::OFFERED_MISSED, 0.02),
    ],
    unless: &[CARRIED, NOTHING_VALID, NO_QUEUEING],
    confusions: "a lock that only one thread gets (lock_contention); a quota of one processor",
    remedy: "more workers; SO_REUSEPORT; spread long-lived connections anew",
    counter_test: (
        Perturbation::LessProcessorTime,
        Answer::Falls,
        "with three quarters of the CPU time the throughput falls by a quarter",
    ),
    second_test: Some((
        Perturbation::Pause,
        Answer::Stays,
        "a pause before each request is made up for by others that wait",
    )),
    ..VERDICT
};

pub(super) const KERNEL_CPU_BOUND: Verdict = Verdict {
    code: "kernel_cpu_bound",
    claim: "the subject uses all its processor time, most of it in the kernel",
    class: Class::Cpu,
    proofs: &[at_least(&s::SUBJECT_SATURATION, SATURATED), at_least(&s::SUBJECT_SYSTEM, 0.5)],
    signs: &[
        QUEUES,
        at_least(&s::SUBJECT_UNREAD, 0.3),
        at_least(&s::SYSTEM_CALLS, 20.0),
        at_least(&s::IN_FLIGHT_SHARE, 0.8),
        at_least(&s::OFFERED_MISSED, 0.02),
    ],
    unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID, NO_QUEUEING],
    confusions: "softirqs of the other side on loopback, which the kernel charges to whoever runs",
    remedy: "kept connections; fewer and larger system calls (writev, splice, sendfile, \
             io_uring); GRO and TSO",
    counter_test: (
        Perturbation::LessProcessorTime,
        Answer::Falls,
        "with three quarters of the processor time the throughput falls by a quarter",
    ),
    ..VERDICT
};

pub(super) const USER_CPU_BOUND: Verdict = Verdict {
    code: "user_cpu_bound",
    claim: "the subject uses all its processor time, most of it in its own code",
    class: Class::Cpu,
    proofs: &[at_least(&s::SUBJECT_SATURATION, SATURATED), at_least(&s::SUBJECT_USER, 0.5)],
    signs: &[
        QUEUES,
        at_least(&s::SUBJECT_UNREAD, 0.3),
        at_least(&s::IN_FLIGHT_SHARE, 0.8),
        at_least(&s::OFFERED_MISSED, 0.02),
    ],
    unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID, NO_QUEUEING],
    confusions: "a quota (cpu_throttled), steal (cpu_steal), spinning on a lock (lock_contention)",
    remedy: "weir lab profile: the functions on top; build flags, the allocator; more threads or \
             processors",
    counter_test: (
        Perturbation::LessProcessorTime,
        Answer::Falls,
        "with three quarters of the processor time the throughput falls by a quarter",
    ),
    ..VERDICT
};
