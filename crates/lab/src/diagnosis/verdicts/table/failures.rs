//! Failures: something ran out, and requests or connections fail.

use super::super::shared::{VERDICT, at_least, at_most};
use super::super::{Answer, Perturbation, Verdict};
use crate::diagnosis::signals as s;

pub(super) const PORT_EXHAUSTION: Verdict = Verdict {
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
};

pub(super) const FD_LIMIT: Verdict = Verdict {
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
};

pub(super) const CONNTRACK_FULL: Verdict = Verdict {
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
};

pub(super) const ACCEPT_BACKLOG_OVERFLOW: Verdict = Verdict {
    code: "accept_backlog_overflow",
    claim: "connections come faster than the subject accepts them: its accept queue is full",
    // K:networking/snmp_counter: counted for the whole namespace, so the listener has to be full.
    proofs: &[at_least(&s::LISTEN_OVERFLOWS, 0.1)],
    any: &[at_least(&s::LISTENER_FULL, 0.2), at_least(&s::OVERFLOWS_OVER_COOKIES, 1.0)],
    signs_min: 0,
    signs: &[at_least(&s::CONNECT_RETRIES, 0.001), at_least(&s::CONNECT_FAILURES, 0.001)],
    confusions: "loss of SYN packets; no descriptors (fd_limit), which stops accepting too",
    remedy: "accept in batches and on more threads; a larger backlog and somaxconn together; \
             kept connections",
    counter_test: (
        Perturbation::KeptConnections,
        Answer::Rises,
        "with connections that are kept nobody waits to be accepted",
    ),
    ..VERDICT
};

pub(super) const SYN_BACKLOG_OVERFLOW: Verdict = Verdict {
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
};

pub(super) const RUN_INVALID: Verdict = Verdict {
    code: "run_invalid",
    claim: "so many requests failed that the figures mean nothing",
    proofs: &[at_least(&s::ERRORS_OVER_BOUND, 1.0)],
    counted: true,
    circumstantial: true,
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
};
