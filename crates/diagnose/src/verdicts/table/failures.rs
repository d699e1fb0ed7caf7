//! Failures: a resource ran out, and requests or connections fail.

use super::super::rule::{Perturbation, ThroughputChange, VerdictRule};
use super::super::shared::{DEFAULT_RULE, at_least, at_most};
use crate::sentences::failures;
use crate::signals as s;

pub(super) const PORT_EXHAUSTION: VerdictRule = VerdictRule {
    code: "port_exhaustion",
    answer: failures::port_exhaustion,
    claim: "no local port is left for new connections",
    // EADDRNOTAVAIL is the proof: other programs may hold the ports, or only for a part of the load.
    required: &[at_least(&s::NO_PORT, 0.000_1)],
    is_counted: true,
    supporting_min: 0,
    supporting: &[at_least(&s::PORTS, 0.9), at_least(&s::CONNECT_FAILURES, 0.001)],
    confusions: "TIME_WAIT on the server, which is harmless; no descriptors (fd_limit)",
    remedy: "keep connections open; more source addresses ('source' in HAProxy and in a pool of weir proxy, \
             'proxy_bind' in nginx) with IP_BIND_ADDRESS_NO_PORT; \
             `weir tune apply --host net.ipv4.tcp_tw_reuse=1` (needs timestamps); `weir tune apply --host 'net.ipv4.ip_local_port_range=1024 65023'`; \
             `weir plan run.json --servers 1 --maxconn 100 --server-requests 1` computes `ports-per-server` (run.json: \
             the record of this load; your own servers)",
    counter_test: (
        Perturbation::ToggleKeepAlive,
        ThroughputChange::Rises,
        "with keep-alive connections, the errors end and the throughput rises",
    ),
    ..DEFAULT_RULE
};

pub(super) const FD_LIMIT: VerdictRule = VerdictRule {
    code: "fd_limit",
    answer: failures::fd_limit,
    claim: "the subject has no descriptors left for new connections",
    // Few free descriptors may also mean that there are just enough: requests must fail as well.
    required: &[at_least(&s::DESCRIPTORS, 0.95)],
    supporting: &[
        at_least(&s::NO_DESCRIPTOR, 0.000_1),
        at_least(&s::CONNECT_FAILURES, 0.001),
        at_least(&s::UNSERVED, 0.02),
        at_least(&s::BROKEN, 0.001),
        at_least(&s::ERROR_RESPONSES, 0.001),
    ],
    confusions: "a full accept queue (accept_backlog_overflow), which is a consequence",
    remedy: "raise RLIMIT_NOFILE (LimitNOFILE of systemd) to `descriptors` of `weir plan run.json --servers 1 --maxconn 100` \
             (run.json: the record of this load; your own servers), or limit the connections to its \
             `maxconn-global`",
    counter_test: (
        Perturbation::HalveConnections,
        ThroughputChange::Stays,
        "with half the connections, the waiting and the errors end, and the throughput stays",
    ),
    ..DEFAULT_RULE
};

pub(super) const CONNTRACK_FULL: VerdictRule = VerdictRule {
    code: "conntrack_full",
    answer: failures::conntrack_full,
    claim: "the connection tracking table is full: packets of new connections are dropped",
    required: &[at_least(&s::CONNTRACK, 0.95), at_least(&s::CONNTRACK_DROPS, 0.1)],
    supporting_min: 0,
    supporting: &[at_least(&s::CONNECT_RETRIES, 0.001), at_least(&s::CONNECT_FAILURES, 0.001)],
    confusions: "packet loss (the same retries), a full accept queue",
    remedy: "notrack for the ports of the service (raw prerouting); \
             `weir tune apply --host net.netfilter.nf_conntrack_max=1048576`; \
             `weir tune apply --host net.netfilter.nf_conntrack_tcp_timeout_time_wait=30`; entries = \
             `new-connections` of `weir plan run.json --requests-per-connection 1` × their timeout",
    counter_test: (
        Perturbation::ToggleKeepAlive,
        ThroughputChange::Rises,
        "with keep-alive connections, the drops end",
    ),
    ..DEFAULT_RULE
};

pub(super) const ACCEPT_BACKLOG_OVERFLOW: VerdictRule = VerdictRule {
    code: "accept_backlog_overflow",
    answer: failures::accept_backlog_overflow,
    claim: "connections arrive faster than the subject accepts them: its accept queue is full",
    // K:networking/snmp_counter: counted for the whole namespace, so the listener has to be full.
    required: &[at_least(&s::LISTEN_OVERFLOWS, 0.1)],
    any_of: &[at_least(&s::LISTENER_FULL, 0.2), at_least(&s::OVERFLOWS_OVER_COOKIES, 1.0)],
    supporting_min: 0,
    supporting: &[at_least(&s::CONNECT_RETRIES, 0.001), at_least(&s::CONNECT_FAILURES, 0.001)],
    confusions: "loss of SYN packets; no descriptors (fd_limit), which also stops accepting",
    remedy: "accept in batches and on more threads; a larger backlog together with \
             `weir tune apply --host net.core.somaxconn=16384`; keep-alive",
    counter_test: (
        Perturbation::ToggleKeepAlive,
        ThroughputChange::Rises,
        "with keep-alive connections, no connection waits to be accepted",
    ),
    ..DEFAULT_RULE
};

pub(super) const SYN_BACKLOG_OVERFLOW: VerdictRule = VerdictRule {
    code: "syn_backlog_overflow",
    answer: failures::syn_backlog_overflow,
    claim: "half-open connections fill the SYN queue of the listener",
    required: &[at_least(&s::SYN_QUEUE, 0.5)],
    supporting: &[at_least(&s::SYN_RECEIVED, 0.5), at_least(&s::CONNECT_RETRIES, 0.001)],
    // Connections that wait for a retry do not matter while a subject has more requests than it reads.
    excluding: &[at_least(&s::LISTENER_FULL, 0.8), at_least(&s::SUBJECT_UNREAD, 0.6)],
    confusions: "a SYN flood; with syncookies on, the limit is the listen backlog, not \
                 tcp_max_syn_backlog",
    remedy: "a larger listen backlog with `weir tune apply --host net.core.somaxconn=16384`; find the \
             clients that do not complete handshakes; SYN cookies only protect against floods",
    counter_test: (
        Perturbation::ToggleKeepAlive,
        ThroughputChange::Rises,
        "with keep-alive connections, nothing waits for a handshake",
    ),
    ..DEFAULT_RULE
};

pub(super) const RUN_INVALID: VerdictRule = VerdictRule {
    code: "run_invalid",
    answer: failures::run_invalid,
    claim: "too many requests got no good response: the figures are invalid",
    required: &[at_least(&s::ERRORS_OVER_BOUND, 1.0)],
    is_counted: true,
    is_circumstantial: true,
    supporting_min: 0,
    supporting: &[
        at_least(&s::ERRORS, 0.0),
        at_most(&s::VALID_RESPONSES, 0.05),
        at_least(&s::ERROR_RESPONSES, 0.001),
        at_least(&s::BROKEN, 0.001),
        at_least(&s::RESETS, 1.0),
    ],
    confusions: "the causes above also cause errors, and take precedence",
    remedy: "read the errors by kind and the subject's log; fix them, then measure again",
    counter_test: (Perturbation::NotPossible, ThroughputChange::Stays, "no test: fix the errors first"),
    ..DEFAULT_RULE
};
