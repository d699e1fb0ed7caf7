//! The rows of the catalogue.

use super::shared::{CARRIED, HARDLY_BUSY, NOTHING_VALID, SATURATED, at_least, at_most};
use super::{Answer, Perturbation, Verdict};
use crate::diagnosis::signals as s;

const VERDICT: Verdict = Verdict {
    code: "",
    claim: "",
    proofs: &[],
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
        proofs: &[at_least(&s::RETRANSMITTED, 0.001)],
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
        code: "handshake_bound",
        claim: "TLS handshakes take the processor time",
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
        proofs: &[
            at_least(&s::FUTEXES, 0.5),
            at_least(&s::SUBJECT_THREADS, 2.0),
            at_most(&s::SUBJECT_THREAD, 0.9),
            at_least(&s::SUBJECT_CPUS, 0.5),
            at_least(&s::IN_FLIGHT_SHARE, 0.6),
        ],
        signs: &[
            at_least(&s::VOLUNTARY, 0.5),
            at_least(&s::LOCKING, 0.03),
            at_least(&s::IDLE_CPUS, 0.3),
        ],
        unless: &[CARRIED, NOTHING_VALID],
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
        proofs: &[at_least(&s::ALLOCATION, 0.1), at_least(&s::SUBJECT_AT_LIMIT, 0.8)],
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
        proofs: &[
            at_least(&s::SUBJECT_THREAD, SATURATED),
            at_least(&s::IDLE_CPUS, 0.3),
            at_least(&s::SUBJECT_IMBALANCE, 1.5),
        ],
        signs: &[
            at_least(&s::SUBJECT_UNREAD, 0.3),
            at_least(&s::IN_FLIGHT_SHARE, 0.8),
            at_least(&s::OFFERED_MISSED, 0.02),
        ],
        unless: &[CARRIED, NOTHING_VALID],
        confusions: "a lock that only one thread gets (lock_contention); a quota of one processor",
        remedy: "more workers; SO_REUSEPORT; spread long-lived connections anew",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Stays,
            "twice the connections bring nothing",
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
        proofs: &[at_least(&s::SUBJECT_SATURATION, SATURATED), at_least(&s::SUBJECT_SYSTEM, 0.5)],
        signs: &[
            at_least(&s::SUBJECT_UNREAD, 0.3),
            at_least(&s::SYSTEM_CALLS, 20.0),
            at_least(&s::IN_FLIGHT_SHARE, 0.8),
            at_least(&s::OFFERED_MISSED, 0.02),
        ],
        unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID],
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
        proofs: &[at_least(&s::SUBJECT_SATURATION, SATURATED), at_least(&s::SUBJECT_USER, 0.5)],
        signs: &[
            at_least(&s::SUBJECT_UNREAD, 0.3),
            at_least(&s::IN_FLIGHT_SHARE, 0.8),
            at_least(&s::OFFERED_MISSED, 0.02),
        ],
        unless: &[HARDLY_BUSY, CARRIED, NOTHING_VALID],
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
        proofs: &[at_least(&s::ORIGIN_CONNECTIONS, 1.5), at_least(&s::ORIGIN_PINNED, 0.9)],
        signs: &[
            at_most(&s::ORIGIN_SATURATION, 0.6),
            at_most(&s::SUBJECT_SATURATION, 0.7),
            at_most(&s::ORIGIN_UNREAD, 0.2),
        ],
        unless: &[at_least(&s::ORIGIN_SATURATION, 0.9), CARRIED, NOTHING_VALID],
        confusions: "an accept queue; the generator's own connections",
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
        proofs: &[at_least(&s::ERRORS, 0.001)],
        counted: true,
        signs_min: 0,
        signs: &[
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
        claim: "every connection waits for the subject (or its origin), which is not busy: more \
                connections would carry more",
        proofs: &[
            at_least(&s::IN_FLIGHT_SHARE, 0.85),
            at_least(&s::WAIT_WITHOUT_PROCESSOR, 3.0),
            at_most(&s::SUBJECT_THREAD, 0.7),
        ],
        signs: &[
            at_most(&s::SUBJECT_UNREAD, 0.25),
            at_most(&s::LITTLE_ERROR, 0.05),
            at_most(&s::LATENCY_SPREAD, 1.5),
            at_least(&s::IDLE_CPUS, 0.5),
        ],
        unless: &[
            at_least(&s::LINK, 0.9),
            at_least(&s::ORIGIN_SATURATION, 0.9),
            // Who is idle and leaves requests unread has too few workers, or waits for something that
            // holds up all of them (a log behind a full pipe): more connections would wait as well.
            at_least(&s::SUBJECT_UNREAD, 0.7),
            CARRIED,
            NOTHING_VALID,
        ],
        confusions: "a queue in the proxy (connection_limited), stalls of 40 ms (delayed_ack_stall)",
        remedy: "connections = target rate × latency; a faster origin; HTTP/2",
        counter_test: (
            Perturbation::TwiceTheConnections,
            Answer::Rises,
            "twice the connections carry nearly twice as much",
        ),
        second_test: Some((
            Perturbation::Pause,
            Answer::Falls,
            "with a pause of half an answer's time before each request it falls by a third",
        )),
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
