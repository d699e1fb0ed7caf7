//! Links, queues and packets between the generator and the subject.

use super::super::shared::{CARRIED, NOTHING_VALID, VERDICT, at_least, at_most};
use super::super::{Answer, Class, Perturbation, Verdict};
use crate::diagnosis::signals as s;

pub(super) const BUFFERBLOAT: Verdict = Verdict {
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
};

pub(super) const LINK_BOUND: Verdict = Verdict {
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
};

pub(super) const PACKET_RATE_BOUND: Verdict = Verdict {
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
};

pub(super) const RECEIVE_WINDOW_BOUND: Verdict = Verdict {
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
};

pub(super) const PACKET_LOSS: Verdict = Verdict {
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
};

pub(super) const DELAYED_ACK_STALL: Verdict = Verdict {
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
};
