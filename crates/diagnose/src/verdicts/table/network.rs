//! Links, queues and packets between the generator and the subject.

use super::super::rule::{LimitClass, Perturbation, ThroughputChange, VerdictRule};
use super::super::shared::{DEFAULT_RULE, LOAD_CARRIED, NOTHING_VALID, SATURATED, at_least, at_most};
use crate::sentences::network;
use crate::signals as s;

pub(super) const BUFFERBLOAT: VerdictRule = VerdictRule {
    code: "bufferbloat",
    answer: network::bufferbloat,
    claim: "a deep queue before a link delays all packets",
    class: LimitClass::Limit,
    required: &[at_least(&s::ROUND_TRIP, 5.0), at_least(&s::ROUND_TRIP_EXCESS, 100_000_000.0)],
    supporting: &[
        at_least(&s::LINK_QUEUE, 100_000_000.0),
        at_least(&s::OVERLIMITS, 1.0),
        at_least(&s::LINK, 0.9),
        at_least(&s::NOT_SENT, 100_000.0),
    ],
    excluding: &[at_least(&s::RETRANSMITTED, 0.01)],
    confusions: "the same link at its limit (link_bound); bufferbloat is its effect on latency",
    remedy: "fq_codel or fq at the queue; `weir tune apply --host net.ipv4.tcp_notsent_lowat=131072`; BBR; \
             smaller buffers",
    counter_test: (
        Perturbation::HalveConnections,
        ThroughputChange::Stays,
        "with half the connections, the latency falls and the throughput stays",
    ),
    ..DEFAULT_RULE
};

pub(super) const LINK_BOUND: VerdictRule = VerdictRule {
    code: "link_bound",
    answer: network::link_bound,
    claim: "a link is at its byte rate",
    class: LimitClass::Limit,
    required: &[at_least(&s::LINK, 0.9)],
    supporting: &[
        at_least(&s::OVERLIMITS, 1.0),
        at_least(&s::ROUND_TRIP, 3.0),
        at_most(&s::LINK_SPREAD, 0.03),
        at_most(&s::SUBJECT_SATURATION, 0.8),
        at_most(&s::GENERATOR_THREAD_WITHOUT_SUBJECT, 0.8),
    ],
    excluding: &[LOAD_CARRIED, NOTHING_VALID],
    confusions: "a full receive window (bytes are flat, round trips are short); a policer \
                 (loss without a queue); a device that does not report its speed",
    remedy: "compression; smaller responses; a faster link or more links: `link-needed` of \
             `weir plan run.json --link 10G` (run.json: the record of this load)",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "twice the connections transfer no more bytes",
    ),
    second_test: Some((
        Perturbation::ThinkTime,
        ThroughputChange::Stays,
        "with a pause before each request, waiting requests take its place",
    )),
    ..DEFAULT_RULE
};

pub(super) const PACKET_RATE_BOUND: VerdictRule = VerdictRule {
    code: "packet_rate_bound",
    answer: network::packet_rate_bound,
    claim: "the number of packets is the limit, not their bytes",
    class: LimitClass::Limit,
    required: &[at_most(&s::PACKET_BYTES, 300.0), at_least(&s::PACKETS_DELAYED, 50.0)],
    supporting: &[
        at_most(&s::PACKET_SPREAD, 0.02),
        at_least(&s::ROUND_TRIP, 3.0),
        at_least(&s::SOFTIRQ_MAX, 0.9),
    ],
    excluding: &[at_least(&s::LINK, 0.7), LOAD_CARRIED, NOTHING_VALID],
    confusions: "softirqs on one CPU (softirq_imbalance)",
    remedy: "GRO and TSO on; fewer and larger writes; interrupt coalescing; more queues; a \
             larger ring (`weir tune check --all` lists them for this host)",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Stays,
        "twice the connections send no more packets",
    ),
    ..DEFAULT_RULE
};

pub(super) const RECEIVE_WINDOW_BOUND: VerdictRule = VerdictRule {
    code: "receive_window_bound",
    answer: network::receive_window_bound,
    claim: "the receiver reads more slowly than the sender could send: the receive window is full",
    class: LimitClass::Delay,
    required: &[at_least(&s::RECEIVE_WINDOW, 0.2), at_least(&s::SEND_BUSY, 0.05)],
    supporting: &[
        at_least(&s::NOT_SENT, 1.0),
        at_least(&s::GENERATOR_UNREAD, 0.2),
        at_most(&s::SUBJECT_SATURATION, 0.7),
    ],
    // A receiver that is full reads late.
    excluding: &[at_least(&s::LINK, 0.9), at_least(&s::SUBJECT_AT_LIMIT, SATURATED)],
    confusions: "a full link; the HTTP/2 window (h2_window_bound)",
    remedy: "read faster; if the reader is idle, a larger window (bandwidth × round trip): \
             `weir tune apply --host 'net.ipv4.tcp_rmem=4096 131072 33554432'`, without SO_RCVBUF in the program",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Rises,
        "twice the connections have twice the windows",
    ),
    ..DEFAULT_RULE
};

pub(super) const H2_WINDOW_BOUND: VerdictRule = VerdictRule {
    code: "h2_window_bound",
    answer: network::h2_window_bound,
    claim: "the HTTP/2 window is full while the connection could carry more: each round trip transfers one window",
    class: LimitClass::Delay,
    // Without delay a window is credited again as soon as its bytes are read.
    required: &[at_least(&s::HTTP2_WINDOW, 0.5), at_least(&s::ROUND_TRIP_MIN, 1_000_000.0)],
    // The sender's socket has no bytes to send: the server keeps them back.
    supporting: &[
        at_most(&s::NOT_SENT, 1_000.0),
        at_most(&s::SUBJECT_SATURATION, 0.7),
        at_most(&s::GENERATOR_THREAD, 0.7),
        at_most(&s::RECEIVE_WINDOW, 0.05),
    ],
    excluding: &[
        at_least(&s::LINK, 0.9),
        at_least(&s::SUBJECT_AT_LIMIT, SATURATED),
        at_least(&s::RECEIVE_WINDOW, 0.2),
        LOAD_CARRIED,
        NOTHING_VALID,
    ],
    confusions: "the TCP window (receive_window_bound); a delay of the server (latency_bound)",
    remedy: "a larger initial window (SETTINGS_INITIAL_WINDOW_SIZE) and connection window at the receiver: \
             bandwidth × round trip; earlier WINDOW_UPDATE frames; more connections",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Rises,
        "twice the connections have twice the windows",
    ),
    ..DEFAULT_RULE
};

pub(super) const PACKET_LOSS: VerdictRule = VerdictRule {
    code: "packet_loss",
    answer: network::packet_loss,
    claim: "segments are lost and retransmitted",
    class: LimitClass::Delay,
    required: &[at_least(&s::RETRANSMITTED, 0.001), at_least(&s::LOSS_COST, 0.1)],
    supporting: &[
        at_least(&s::LOSS_RECOVERY, 1.0),
        at_least(&s::RETRANSMISSION_MODE, 0.001),
        at_least(&s::RETRANSMITTED_BY_CONNECTIONS, 1.0),
    ],
    excluding: &[
        at_least(&s::LINK, 0.9),
        at_least(&s::LISTEN_OVERFLOWS, 0.1),
        // Every network loses segments; a load that was served in time was not affected.
        at_most(&s::CARRIED_LATE, 0.001),
    ],
    confusions: "drops in this machine's own queues (softnet column 2, qdisc drops); SYN retries",
    remedy: "find where packets are dropped (interfaces, queues, conntrack), and fix it; BBR \
             tolerates random loss better",
    counter_test: (
        Perturbation::NotPossible,
        ThroughputChange::Stays,
        "without the loss, the latency tail disappears",
    ),
    ..DEFAULT_RULE
};

pub(super) const DELAYED_ACK_STALL: VerdictRule = VerdictRule {
    code: "delayed_ack_stall",
    answer: network::delayed_ack_stall,
    claim: "small writes wait for delayed acknowledgements (Nagle's algorithm)",
    class: LimitClass::Delay,
    // A subject without data to send waits for something else that takes as long.
    required: &[at_least(&s::UNSENT_WITH_OPEN_WINDOW, 1.0)],
    // Work before the first byte moves the latency, but not the time from there to the last.
    any_of: &[at_least(&s::DELAYED_ACK_MODE, 0.01), at_least(&s::TRANSFER_STALL, 0.5)],
    supporting: &[at_least(&s::DELAYED_ACKS, 0.01)],
    // Requests that queue before the first byte wait as long without the stall: it is a delay, and not the limit.
    excluding: &[at_least(&s::QUEUEING_BEFORE_STALL, 0.5)],
    confusions: "an origin that really takes 40 ms; a full pool whose responses stall as well (subject_limited)",
    remedy: "TCP_NODELAY; head and body in one write; TCP_QUICKACK",
    counter_test: (
        Perturbation::DoubleConnections,
        ThroughputChange::Rises,
        "with twice the connections, twice as many stall at the same time",
    ),
    ..DEFAULT_RULE
};
