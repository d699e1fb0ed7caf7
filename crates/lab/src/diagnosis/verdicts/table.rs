//! The rows of the catalogue.

use super::shared::{
    CARRIED, HARDLY_BUSY, NO_QUEUEING, NOTHING_VALID, ORIGIN_FULL, QUEUEING_MIN, QUEUES, SATURATED,
    SUBJECT_NOT_FULL, at_least, at_most,
};
use super::{Answer, Class, Perturbation, Verdict};
use crate::diagnosis::signals as s;

const VERDICT: Verdict = Verdict {
    code: "",
    claim: "",
    class: Class::Failure,
    proofs: &[],
    any: &[],
    signs_min: 1,
    signs: &[],
    counted: false,
    unless: &[],
    confusions: "",
    remedy: "",
    counter_test: (Perturbation::Nothing, Answer::Stays, ""),
    second_test: None,
    not_observable: "",
};

/// All verdicts but `unknown` and `none`, causes before what they cause: where two hold, the earlier
/// one explains the later.
pub static VERDICTS: &[Verdict] = &[
    Verdict {
        code: "port_exhaustion",
        claim: "there are no local ports left for new connections",
        proofs: &[at_least(&s::NO_PORT, 0.000_1)],
        signs: &[at_least(&s::PORTS, 0.9), at_least(&s::CONNECT_FAILURES, 0.001)],
        confusions: "TIME_WAIT on the server's side is harmless; no descriptors (fd_limit)",
        remedy: "keep connections open; more source addresses; a wider ip_local_port_range with \
                 ip_local_reserved_ports; tcp_tw_reuse=1 (needs timestamps); IP_BIND_ADDRESS_NO_PORT",
        counter_test: (
            Perturbation::KeptConnections,
            Answer::Rises,
            "with connections that are kept the errors end and the throughput rises",
        ),
        ..VERDICT
    },
    Verdict {
        code: "fd_limit",
        claim: "the subject has no descriptors left for new connections",
        // Few are left to whoever has as many connections as it needs, too: something has to fail.
        proofs: &[at_least(&s::DESCRIPTORS, 0.95)],
        signs: &[
            at_least(&s::NO_DESCRIPTOR, 0.000_1),
            at_least(&s::CONNECT_FAILURES, 0.001),
            at_least(&s::UNSERVED, 0.02),
            at_least(&s::BROKEN, 0.001),
            at_least(&s::ERROR_ANSWERS, 0.001),
        ],
        confusions: "a full accept queue (accept_backlog_overflow), which follows from it",
        remedy: "raise RLIMIT_NOFILE (a proxy needs two a request in flight): front + back + 64; \
                 bound the connections (maxconn) below it",
        counter_test: (
            Perturbation::HalfTheConnections,
            Answer::Stays,
            "with half the connections the waiting and the errors end, and the throughput stays",
        ),
        ..VERDICT
    },
    Verdict {
        code: "conntrack_full",
        claim: "the table of connection tracking is full and drops packets of new connections",
        proofs: &[at_least(&s::CONNTRACK, 0.95), at_least(&s::CONNTRACK_DROPS, 0.1)],
        signs_min: 0,
        signs: &[at_least(&s::CONNECT_RETRIES, 0.001), at_least(&s::CONNECT_FAILURES, 0.001)],
        confusions: "packet loss (the same retries), a full accept queue",
        remedy: "notrack for the ports of the service (raw prerouting); a larger nf_conntrack_max \
                 with buckets; a shorter time_wait time-out",
        counter_test: (
            Perturbation::KeptConnections,
            Answer::Rises,
            "with connections that are kept the drops end",
        ),
        ..VERDICT
    },
    Verdict {
        code: "syn_backlog_overflow",
        claim: "half-open connections fill the listener's queue of connection requests",
        proofs: &[at_least(&s::SYN_QUEUE, 0.5)],
        signs: &[at_least(&s::SYN_RECEIVED, 0.5), at_least(&s::CONNECT_RETRIES, 0.001)],
        unless: &[at_least(&s::LISTENER_FULL, 0.8)],
        confusions: "a real flood; with syncookies on the bound is the listen backlog, not \
                     tcp_max_syn_backlog",
        remedy: "a larger listen backlog and somaxconn; find who does not finish handshakes; cookies \
                 are no remedy for load (K:networking/ip-sysctl)",
        counter_test: (
            Perturbation::KeptConnections,
            Answer::Rises,
            "with connections that are kept nothing waits for a handshake",
        ),
        ..VERDICT
    },
    Verdict {
        code: "accept_backlog_overflow",
        claim: "connections come faster than the subject accepts them: its accept queue is full",
        // K:networking/snmp_counter: counted for the whole namespace, so the listener has to be full.
        proofs: &[at_least(&s::LISTEN_OVERFLOWS, 0.1)],
        signs: &[
            at_least(&s::LISTENER_FULL, 0.2),
            at_least(&s::CONNECT_RETRIES, 0.001),
            at_least(&s::CONNECT_FAILURES, 0.001),
        ],
        confusions: "loss of SYN packets; no descriptors (fd_limit), which stops accepting too",
        remedy: "accept in batches and on more threads; a larger backlog and somaxconn together; \
                 kept connections",
        counter_test: (
            Perturbation::KeptConnections,
            Answer::Rises,
            "with connections that are kept nobody waits to be accepted",
        ),
        ..VERDICT
    },
    Verdict {
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
    },
    Verdict {
        code: "cpu_steal",
        claim: "others run on the processors that the subject needs",
        class: Class::Cpu,
        // Who hardly needs a processor loses little by waiting for one.
        proofs: &[at_least(&s::SUBJECT_WAIT, 0.2), at_least(&s::SUBJECT_DEMAND, 0.5)],
        signs: &[at_least(&s::FOREIGN, 0.35), at_least(&s::STEAL, 0.05)],
        // Threads that get their pages back one after the other wait for a processor too.
        unless: &[
            at_least(&s::GENERATOR_QUOTA, 0.05),
            at_least(&s::MEMORY_LIMIT, 1.0),
            NOTHING_VALID,
        ],
        confusions: "a quota (cpu_throttled); the generator's own threads on the same processors",
        remedy: "repeat the run on a quiet machine; pin or isolate; the figures of this one count \
                 for little",
        counter_test: (
            Perturbation::Nothing,
            Answer::Stays,
            "without the others the throughput rises and its spread falls",
        ),
        ..VERDICT
    },
    Verdict {
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
    },
    Verdict {
        code: "bufferbloat",
        claim: "a deep queue before the link delays everything that goes through it",
        class: Class::Limit,
        proofs: &[at_least(&s::ROUND_TRIP, 5.0), at_least(&s::ROUND_TRIP_EXCESS, 100_000_000.0)],
        signs: &[
            at_least(&s::LINK_QUEUE, 100_000_000.0),
            at_least(&s::OVERLIMITS, 1.0),
            at_least(&s::LINK, 0.9),
            at_least(&s::NOT_SENT, 100_000.0),
        ],
        unless: &[at_least(&s::RETRANSMITTED, 0.01)],
        confusions: "the same link at its limit (link_bound): this is what it does to latency",
        remedy: "fq_codel or fq at the queue; tcp_notsent_lowat=131072; BBR; smaller buffers",
        counter_test: (
            Perturbation::HalfTheConnections,
            Answer::Stays,
            "with half the connections latency falls and throughput stays",
        ),
        ..VERDICT
    },
    Verdict {
        code: "link_bound",
        claim: "a link carries as many bytes as it can",
        class: Class::Limit,
        proofs: &[at_least(&s::LINK, 0.9)],
        signs: &[
            at_least(&s::OVERLIMITS, 1.0),
            at_least(&s::ROUND_TRIP, 3.0),
            at_most(&s::LINK_SPREAD, 0.03),
            at_most(&s::SUBJECT_SATURATION, 0.8),
            at_most(&s::GENERATOR_THREAD_ALONE, 0.8),
        ],
        unless: &[CARRIED, NOTHING_VALID],
        confusions: "a full receiver's window (bytes are flat, round trips are short); a policer \
                     (loss without a queue); a device that does not tell its speed",
        remedy: "compression, smaller answers, a wider link or more of them; the most is the link's \
                 rate over the bytes of a request",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Stays,
            "twice the connections carry no more bytes",
        ),
        second_test: Some((
            Perturbation::Pause,
            Answer::Stays,
            "a pause before each request is made up for by others that wait",
        )),
        ..VERDICT
    },
    Verdict {
        code: "packet_rate_bound",
        claim: "the number of packets is the limit, and not their bytes",
        class: Class::Limit,
        proofs: &[at_most(&s::PACKET_BYTES, 300.0), at_least(&s::PACKETS_HELD, 50.0)],
        signs: &[
            at_most(&s::PACKET_SPREAD, 0.02),
            at_least(&s::ROUND_TRIP, 3.0),
            at_least(&s::SOFTIRQ_MAX, 0.9),
        ],
        unless: &[at_least(&s::LINK, 0.7), CARRIED, NOTHING_VALID],
        confusions: "softirqs on one processor (softirq_imbalance)",
        remedy: "GRO and TSO on; fewer and larger writes; interrupt coalescing; more queues; a \
                 larger ring",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Stays,
            "twice the connections make no more packets",
        ),
        ..VERDICT
    },
    Verdict {
        code: "receive_window_bound",
        claim: "the receiver takes bytes more slowly than they could come: its window is full",
        class: Class::Delay,
        proofs: &[at_least(&s::RECEIVE_WINDOW, 0.2), at_least(&s::SEND_BUSY, 0.05)],
        signs: &[
            at_least(&s::NOT_SENT, 1.0),
            at_least(&s::GENERATOR_UNREAD, 0.2),
            at_most(&s::SUBJECT_SATURATION, 0.7),
        ],
        unless: &[at_least(&s::LINK, 0.9)],
        confusions: "a full link; HTTP/2's own window (h2_window_bound)",
        remedy: "read faster; where the reader is idle, a larger tcp_rmem or SO_RCVBUF (bandwidth \
                 times round trip)",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Rises,
            "twice the connections have twice the windows",
        ),
        ..VERDICT
    },
    Verdict {
        code: "packet_loss",
        claim: "segments are lost and have to be sent again",
        class: Class::Delay,
        proofs: &[at_least(&s::RETRANSMITTED, 0.001), at_least(&s::LOSS_COST, 0.1)],
        signs: &[
            at_least(&s::LOSS_RECOVERY, 1.0),
            at_least(&s::RETRANSMISSION_MODE, 0.001),
            at_least(&s::RETRANSMITTED_BY_CONNECTIONS, 1.0),
        ],
        unless: &[
            at_least(&s::LINK, 0.9),
            at_least(&s::LISTEN_OVERFLOWS, 0.1),
            // Segments are lost in every network; who got all in time was not hurt by it.
            at_most(&s::CARRIED_LATE, 0.001),
        ],
        confusions: "drops of this machine's own queues (softnet column 2, qdisc drops); retries of \
                     connection requests",
        remedy: "find where it drops (interfaces, queues, conntrack) and mend that; BBR bears random \
                 loss better",
        counter_test: (Perturbation::Nothing, Answer::Stays, "without the loss the tail is gone"),
        ..VERDICT
    },
    Verdict {
        code: "delayed_ack_stall",
        claim: "small writes wait for delayed acknowledgements (Nagle's algorithm)",
        class: Class::Delay,
        // Who has nothing to send waits for something else that takes as long.
        proofs: &[at_least(&s::DELAYED_ACK_MODE, 0.01), at_least(&s::HELD_BACK, 1.0)],
        signs: &[at_least(&s::DELAYED_ACKS, 0.01)],
        confusions: "an origin that really takes 40 ms",
        remedy: "TCP_NODELAY; head and body in one write; TCP_QUICKACK",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Rises,
            "twice the connections stall side by side",
        ),
        ..VERDICT
    },
    Verdict {
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
    },
    Verdict {
        code: "memory_pressure",
        claim: "memory runs short",
        class: Class::Limit,
        proofs: &[],
        signs_min: 2,
        signs: &[
            at_least(&s::MEMORY_LIMIT, 1.0),
            at_least(&s::MEMORY_PRESSURE, 0.05),
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
    },
    Verdict {
        code: "origin_bound",
        claim: "the servers behind the subject are full",
        class: Class::Limit,
        any: &[ORIGIN_FULL, at_least(&s::ORIGIN_QUEUEING, 0.5)],
        signs_min: 2,
        signs: &[
            QUEUES,
            at_least(&s::ORIGIN_OVER_SUBJECT, 1.5),
            at_least(&s::AT_ORIGIN, 0.5),
            at_least(&s::ORIGIN_UNREAD, 0.3),
        ],
        unless: &[at_least(&s::SUBJECT_THREAD, 0.92), NO_QUEUEING, CARRIED, NOTHING_VALID],
        confusions: "a subject that lets too few requests through (connection_limited); origins that \
                     take as long without load (latency_bound)",
        remedy: "load the origin alone with weir load to see its own limit; more or faster origins; \
                 caching in the subject",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Stays,
            "twice the connections wait twice as long, at the origins",
        ),
        ..VERDICT
    },
    Verdict {
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
    },
    Verdict {
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
    },
    Verdict {
        code: "lock_contention",
        claim: "the subject's threads wait for one another",
        class: Class::Limit,
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
    },
    Verdict {
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
    },
    Verdict {
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
    },
    Verdict {
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
    },
    Verdict {
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
    },
    Verdict {
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
    },
    Verdict {
        code: "connection_limited",
        claim: "requests queue before the subject's bound of connections to its origin",
        class: Class::Limit,
        proofs: &[at_least(&s::ORIGIN_CONNECTIONS, 1.5), at_least(&s::ORIGIN_PINNED, 0.9)],
        any: &[
            // All of the pool is at work, and as many requests as it has connections are served.
            at_least(&s::POOL_BUSY, 0.7),
            at_least(&s::POOL_BY_LAW, 0.6),
        ],
        signs: &[
            QUEUES,
            at_most(&s::ORIGIN_SATURATION, 0.6),
            at_most(&s::SUBJECT_SATURATION, 0.7),
            at_most(&s::ORIGIN_UNREAD, 0.2),
        ],
        unless: &[
            ORIGIN_FULL,
            at_most(&s::POOL_BUSY, 0.4),
            at_most(&s::QUEUEING, QUEUEING_MIN),
            CARRIED,
            NOTHING_VALID,
        ],
        confusions: "an accept queue; the generator's own connections; idle connections to another \
                     service; an origin that is full (origin_bound)",
        remedy: "raise maxconn towards rate × origin latency × 1.2, or keep the queue on purpose \
                 because it protects the origin",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Stays,
            "twice the connections wait twice as long",
        ),
        ..VERDICT
    },
    Verdict {
        code: "run_invalid",
        claim: "so many requests failed that the figures mean nothing",
        proofs: &[at_least(&s::ERRORS_OVER_BOUND, 1.0)],
        counted: true,
        signs_min: 0,
        signs: &[
            at_least(&s::ERRORS, 0.0),
            at_most(&s::ANSWERED, 0.05),
            at_least(&s::ERROR_ANSWERS, 0.001),
            at_least(&s::BROKEN, 0.001),
            at_least(&s::RESETS, 1.0),
        ],
        confusions: "every cause above makes errors too, and comes first",
        remedy: "read the errors by kind and the subject's log; mend them, then measure",
        counter_test: (
            Perturbation::Nothing,
            Answer::Stays,
            "without the errors the run can be judged",
        ),
        ..VERDICT
    },
    Verdict {
        code: "latency_bound",
        claim: "each request takes a time that does not depend on the load, and nothing is full: more \
                connections would carry more",
        class: Class::Delay,
        proofs: &[
            at_least(&s::WAIT_WITHOUT_PROCESSOR, 3.0),
            at_most(&s::SUBJECT_THREAD, 0.7),
            at_most(&s::SUBJECT_SATURATION, SATURATED),
        ],
        any: &[
            at_least(&s::IN_FLIGHT_SHARE, 0.85),
            // A rate that is carried, but slower than an objective asks for.
            at_least(&s::OBJECTIVES_MISSED, 1.0),
        ],
        signs: &[
            at_most(&s::QUEUEING, QUEUEING_MIN),
            at_most(&s::SUBJECT_UNREAD, 0.25),
            at_most(&s::LITTLE_ERROR, 0.05),
            at_most(&s::LATENCY_SPREAD, 1.5),
            at_least(&s::IDLE_CPUS, 0.5),
        ],
        unless: &[
            at_least(&s::LINK, 0.9),
            ORIGIN_FULL,
            QUEUES,
            // Requests that an idle subject leaves unread wait for a worker, or for something that holds
            // up all of them: more connections would wait as well.
            at_least(&s::SUBJECT_UNREAD, 0.7),
            CARRIED,
            NOTHING_VALID,
        ],
        confusions: "a queue in the proxy (connection_limited), a bound in the subject \
                     (subject_limited), stalls of 40 ms (delayed_ack_stall)",
        remedy: "connections = target rate × latency; a faster origin; HTTP/2",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Rises,
            "twice the connections carry nearly twice as much",
        ),
        second_test: Some((
            Perturbation::Pause,
            Answer::Falls,
            "with a pause of half a response's time before each request it falls by a third",
        )),
        ..VERDICT
    },
    Verdict {
        code: "subject_limited",
        claim: "a bound inside the subject (a semaphore, a pool, a rate limiter, one worker that \
                sleeps) admits no more requests at a time, while nothing that it uses is full",
        class: Class::Limit,
        proofs: &[
            at_least(&s::QUEUEING, QUEUEING_MIN),
            at_most(&s::SUBJECT_AT_LIMIT, SUBJECT_NOT_FULL),
        ],
        signs: &[
            at_least(&s::PARALLELISM, 0.0),
            at_least(&s::IDLE_CPUS, 0.3),
            at_least(&s::IN_FLIGHT_SHARE, 0.6),
            at_least(&s::OFFERED_MISSED, 0.02),
        ],
        unless: &[
            at_least(&s::LINK, 0.9),
            ORIGIN_FULL,
            at_least(&s::AT_ORIGIN, 0.7),
            at_least(&s::GENERATOR_THREAD, 0.92),
            CARRIED,
            NOTHING_VALID,
        ],
        confusions: "a delay that does not depend on the load (latency_bound); a bound of the servers \
                     behind it (origin_bound) or of the connections to them (connection_limited)",
        remedy: "find the bound: workers, semaphores, pools, rate limits; with the latency without load, \
                 the rate says how many requests are served at a time",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Stays,
            "twice the connections wait twice as long",
        ),
        ..VERDICT
    },
    Verdict {
        code: "memory_bandwidth_bound",
        claim: "the memory is the limit, and not the instructions",
        remedy: "valgrind --tool=callgrind --cache-sim=yes on a replay",
        not_observable: "hardware counters are not read by this version",
        ..VERDICT
    },
    Verdict {
        code: "numa_remote",
        claim: "threads use memory of another node",
        remedy: "numactl; interrupts and workers on the card's node",
        not_observable: "memory by node is not read by this version; machines with one node have none",
        ..VERDICT
    },
    Verdict {
        code: "h2_window_bound",
        claim: "HTTP/2's window is full while the connection could carry more",
        remedy: "larger initial windows; earlier WINDOW_UPDATE; more connections",
        not_observable: "the load generator does not speak HTTP/2 yet",
        ..VERDICT
    },
];
