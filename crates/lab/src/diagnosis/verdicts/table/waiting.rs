//! Requests that wait while nothing of the subject is full; and verdicts that are not observable yet.

use super::super::shared::{
    CARRIED, NO_QUEUEING, NOTHING_VALID, ORIGIN_FULL, QUEUEING_MIN, QUEUES, SATURATED,
    SUBJECT_NOT_FULL, VERDICT, at_least, at_most,
};
use super::super::{Answer, Class, Perturbation, Verdict};
use crate::diagnosis::signals as s;

pub(super) const ORIGIN_BOUND: Verdict = Verdict {
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
};

pub(super) const CONNECTION_LIMITED: Verdict = Verdict {
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
};

pub(super) const LATENCY_BOUND: Verdict = Verdict {
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
};

pub(super) const SUBJECT_LIMITED: Verdict = Verdict {
    code: "subject_limited",
    claim: "a bound inside the subject (a semaphore, a pool, a rate limiter, one worker that \
            sleeps) admits no more requests at a time, while nothing that it uses is full",
    class: Class::Limit,
    proofs: &[
        at_least(&s::QUEUEING, QUEUEING_MIN),
        at_most(&s::SUBJECT_AT_LIMIT, SUBJECT_NOT_FULL),
    ],
    any: &[at_least(&s::IN_FLIGHT_SHARE, 0.6), at_least(&s::OFFERED_MISSED, 0.02)],
    signs: &[at_least(&s::PARALLELISM, 0.0), at_least(&s::IDLE_CPUS, 0.3)],
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
};

pub(super) const MEMORY_BANDWIDTH_BOUND: Verdict = Verdict {
    code: "memory_bandwidth_bound",
    claim: "the memory is the limit, and not the instructions",
    remedy: "valgrind --tool=callgrind --cache-sim=yes on a replay",
    not_observable: "hardware counters are not read by this version",
    ..VERDICT
};

pub(super) const NUMA_REMOTE: Verdict = Verdict {
    code: "numa_remote",
    claim: "threads use memory of another node",
    remedy: "numactl; interrupts and workers on the card's node",
    not_observable: "memory by node is not read by this version; machines with one node have none",
    ..VERDICT
};

pub(super) const H2_WINDOW_BOUND: Verdict = Verdict {
    code: "h2_window_bound",
    claim: "HTTP/2's window is full while the connection could carry more",
    remedy: "larger initial windows; earlier WINDOW_UPDATE; more connections",
    not_observable: "the load generator does not speak HTTP/2 yet",
    ..VERDICT
};
