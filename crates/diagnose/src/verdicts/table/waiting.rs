//! Requests that wait although no resource of the subject is full; and verdicts that are not yet
//! observable.

use super::super::rule::{Criterion, LimitClass, Perturbation, ThroughputChange, VerdictRule};
use super::super::shared::{
    DEFAULT_RULE, LOAD_CARRIED, NO_QUEUEING, NOTHING_VALID, ORIGIN_FULL, QUEUEING_MIN, REQUESTS_QUEUE,
    SATURATED, SUBJECT_NOT_FULL, at_least, at_most,
};
use crate::sentences::waiting;
use crate::signals as s;

/// The origins leave the subject's connections in their accept queues: the limit is theirs.
const WAITS_FOR_ORIGINS: Criterion = at_least(&s::ORIGIN_ACCEPT_QUEUE, 0.5);

pub(super) const ORIGIN_BOUND: VerdictRule = VerdictRule {
    code: "origin_bound",
    answer: waiting::origin_bound,
    claim: "the servers behind the subject are full",
    class: LimitClass::Limit,
    any_of: &[
        ORIGIN_FULL,
        at_least(&s::ORIGIN_QUEUEING, 0.5),
        // Also if the subject queues the most: more connections to such an origin wait there instead.
        at_least(&s::ORIGIN_SLOWDOWN, 2.0),
        WAITS_FOR_ORIGINS,
    ],
    supporting_min: 2,
    supporting: &[
        REQUESTS_QUEUE,
        at_least(&s::ORIGIN_OVER_SUBJECT, 1.5),
        at_least(&s::AT_ORIGIN, 0.5),
        at_least(&s::ORIGIN_UNREAD, 0.3),
        at_least(&s::ORIGIN_ACCEPT_QUEUE, 0.3),
    ],
    excluding: &[at_least(&s::SUBJECT_THREAD, 0.92), NO_QUEUEING, LOAD_CARRIED, NOTHING_VALID],
    confusions: "a subject that limits its connections to the origin (connection_limited); \
                 origins that take as long without load (latency_bound)",
    remedy: "measure the limit of the origin alone with weir edge; more or faster origins: `servers-needed` of \
             `weir plan run.json --servers 1 --maxconn 100` (run.json: the record of this load); caching in the subject",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "with twice the connections, requests wait twice as long at the origins",
    ),
    ..DEFAULT_RULE
};

pub(super) const CONNECTION_LIMITED: VerdictRule = VerdictRule {
    code: "connection_limited",
    answer: waiting::connection_limited,
    claim: "requests queue: the subject limits its connections to the origin",
    class: LimitClass::Limit,
    required: &[at_least(&s::ORIGIN_CONNECTIONS, 1.5), at_least(&s::ORIGIN_PINNED, 0.9)],
    any_of: &[
        // All connections of the pool are busy, and it serves as many requests as it has
        // connections.
        at_least(&s::POOL_BUSY, 0.7),
        at_least(&s::PARALLELISM_OVER_POOL, 0.6),
    ],
    supporting: &[
        REQUESTS_QUEUE,
        at_most(&s::ORIGIN_THREAD, 0.6),
        at_most(&s::SUBJECT_SATURATION, 0.7),
        at_most(&s::ORIGIN_UNREAD, 0.2),
    ],
    excluding: &[
        ORIGIN_FULL,
        WAITS_FOR_ORIGINS,
        at_most(&s::POOL_BUSY, 0.4),
        at_most(&s::QUEUEING, QUEUEING_MIN),
        LOAD_CARRIED,
        NOTHING_VALID,
    ],
    confusions: "an accept queue; the generator's own connections; idle connections to another \
                 service; an origin that is full (origin_bound)",
    remedy: "raise maxconn to that of `weir plan run.json --servers 1 --slo 'p99<200ms'` (run.json: the record of this \
             load; your own servers and objective), or keep the queue to protect the origin, bounded by its \
             `queue-timeout` and `queue-limit`",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "with twice the connections, requests wait twice as long",
    ),
    ..DEFAULT_RULE
};

pub(super) const LATENCY_BOUND: VerdictRule = VerdictRule {
    code: "latency_bound",
    is_by_exclusion: true,
    answer: waiting::latency_bound,
    claim: "each request takes a time that does not depend on the load, and no resource is full: \
            more connections would raise the throughput",
    class: LimitClass::Delay,
    required: &[
        at_least(&s::LATENCY_OVER_CPU_TIME, 1.0),
        at_most(&s::SUBJECT_THREAD, 0.7),
        at_most(&s::SUBJECT_SATURATION, SATURATED),
    ],
    // A server that makes no request wait for another one is not full, whatever it does (utilization law). A stall of
    // the transport, or a window of each connection, takes its time without load as well.
    required_of_client: &[
        at_most(&s::QUEUEING, 0.15),
        at_most(&s::LATENCY_SPREAD, 1.5),
        at_most(&s::TRANSFER_STALL, 0.2),
        at_most(&s::DELAYED_ACK_MODE, 0.2),
        at_most(&s::TRANSFER_PART, 0.5),
        at_most(&s::RETRANSMISSION_MODE, 0.001),
        at_most(&s::GENERATOR_THREAD, 0.7),
    ],
    any_of: &[
        at_least(&s::IN_FLIGHT_FRACTION, 0.85),
        // A rate that is carried, but slower than an objective requires.
        at_least(&s::OBJECTIVES_MISSED, 1.0),
    ],
    supporting: &[
        at_most(&s::QUEUEING, QUEUEING_MIN),
        at_most(&s::SUBJECT_UNREAD, 0.25),
        at_most(&s::LITTLE_ERROR, 0.05),
        at_most(&s::LATENCY_SPREAD, 1.5),
        at_least(&s::IDLE_CPUS, 0.5),
    ],
    excluding: &[
        at_least(&s::LINK, 0.9),
        ORIGIN_FULL,
        REQUESTS_QUEUE,
        // Requests that an idle subject leaves unread wait for a worker, or for something that
        // blocks all of them: more connections would wait as well.
        at_least(&s::SUBJECT_UNREAD, 0.7),
        // The fastest responses may not have waited for others.
        at_least(&s::LATENCY_OVER_FASTEST, 1.0 / (1.0 - QUEUEING_MIN)),
        // A window that takes a round trip for each of its fillings.
        at_least(&s::HTTP2_WINDOW, 0.5),
        LOAD_CARRIED,
        NOTHING_VALID,
    ],
    confusions: "a queue in the proxy (connection_limited); a limit in the subject \
                 (subject_limited); stalls of 40 ms (delayed_ack_stall)",
    remedy: "connections = target rate × latency: `busy-slots` of `weir plan run.json --rate 1k --servers 1 --maxconn 100` \
             (run.json: the record of this load; your own target rate); a faster origin; HTTP/2",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Rises,
        "twice the connections nearly double the throughput",
    ),
    second_test: Some((
        Perturbation::ThinkTime,
        ThroughputChange::Falls,
        "with a pause of half a response time before each request, the throughput falls by a third",
    )),
    ..DEFAULT_RULE
};

pub(super) const SUBJECT_LIMITED: VerdictRule = VerdictRule {
    code: "subject_limited",
    is_by_exclusion: true,
    answer: waiting::subject_limited,
    claim: "a limit inside the subject (a semaphore, a pool, a rate limiter, a sleeping worker) \
            admits no more requests at a time, although none of its resources is full",
    class: LimitClass::Limit,
    required: &[at_least(&s::QUEUEING, QUEUEING_MIN), at_most(&s::SUBJECT_AT_LIMIT, SUBJECT_NOT_FULL)],
    any_of: &[at_least(&s::IN_FLIGHT_FRACTION, 0.6), at_least(&s::OFFERED_MISSED, 0.02)],
    supporting: &[at_least(&s::PARALLELISM, 0.0), at_least(&s::IDLE_CPUS, 0.3)],
    excluding: &[
        at_least(&s::LINK, 0.9),
        ORIGIN_FULL,
        WAITS_FOR_ORIGINS,
        at_least(&s::AT_ORIGIN, 0.7),
        at_least(&s::GENERATOR_THREAD, 0.92),
        LOAD_CARRIED,
        NOTHING_VALID,
    ],
    confusions: "a delay that does not depend on the load (latency_bound); a limit of the servers \
                 behind it (origin_bound) or of the connections to them (connection_limited)",
    remedy: "find the limit: workers, semaphores, pools, rate limits; rate × latency without load is \
             the number of requests served at a time (`busy-slots` of \
             `weir plan run.json --servers 1 --maxconn 100`); raise it to that, or bound the queue before it",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "with twice the connections, requests wait twice as long",
    ),
    ..DEFAULT_RULE
};

pub(super) const MEMORY_BANDWIDTH_BOUND: VerdictRule = VerdictRule {
    code: "memory_bandwidth_bound",
    claim: "memory bandwidth is the limit, not the instructions",
    remedy: "valgrind --tool=callgrind --cache-sim=yes on a replay",
    not_observable: "this version does not read hardware counters",
    ..DEFAULT_RULE
};

pub(super) const NUMA_REMOTE: VerdictRule = VerdictRule {
    code: "numa_remote",
    claim: "threads use memory of another node",
    remedy: "numactl; interrupts and workers on the node of the network card",
    not_observable: "this version does not read memory by node; machines with one node have no remote memory",
    ..DEFAULT_RULE
};
