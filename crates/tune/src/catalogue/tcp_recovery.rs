//! Rows about congestion, loss and timers of TCP.

use super::{ACCEPTING, IP, advise, depends, harmful, v};
use crate::kernel::ANY;
use crate::setting::Assessment::{Conditional, Obsolete, Recommend};
use crate::setting::Certainty::{Documented, Judgement, Measured};
use crate::setting::RuleCondition::{Below, Is};
use crate::setting::WantedValue::Exactly;
use crate::setting::{Setting, ValueRule, netns};

pub(super) const ROWS: &[Setting] = &[
    netns("net.ipv4.tcp_congestion_control", IP)
        .rules(&[ValueRule {
            when: Is("bbr"),
            verdict: Conditional,
            certainty: Measured,
            reason: "with 2 % loss: 3.42 Gbit/s instead of 571 Mbit/s with cubic; unfair to cubic on \
            a shared link",
        }])
        .effect("congestion control of new connections; bbr helps on lossy and long paths")
        .risk("bbr is unfair to cubic; TCP_CONGESTION sets it for one socket"),
    netns("net.ipv4.tcp_available_congestion_control", IP)
        .effect("congestion controls that are loaded; read-only")
        .risk("none"),
    netns("net.ipv4.tcp_allowed_congestion_control", IP)
        .effect("congestion controls that unprivileged programs may choose (TCP_CONGESTION)")
        .risk("none"),
    netns("net.ipv4.tcp_slow_start_after_idle", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Recommend)
        .advice(&[advise(ACCEPTING, Exactly("0"), Documented)])
        .rules(&[depends(Is("1"), "a reused connection starts again with a small window: the default")])
        .effect(
            "0 keeps the congestion window of a connection that was idle: large bodies on \
            reused connections",
        )
        .risk("a burst after an idle time"),
    netns("net.ipv4.tcp_sack", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Obsolete)
        .rules(&[harmful(Is("0"), Documented, "a loss then costs a retransmission of everything behind it")])
        .effect("selective acknowledgements")
        .risk("none at 1"),
    netns("net.ipv4.tcp_dsack", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Obsolete)
        .rules(&[harmful(Is("0"), Documented, "spurious retransmissions are no longer detected")])
        .effect("duplicate selective acknowledgements")
        .risk("none at 1"),
    netns("net.ipv4.tcp_ecn", IP)
        .defaults(&[(ANY, "2")])
        .effect("explicit congestion notification: 1 also asks for it, 2 accepts it")
        .risk("middleboxes that drop it"),
    netns("net.ipv4.tcp_mtu_probing", IP)
        .defaults(&[(ANY, "0")])
        .rules(&[depends(
            Is("1"),
            "probes only after a path MTU black hole: safe with jumbo frames and tunnels",
        )])
        .effect("finds the path MTU without ICMP")
        .risk("none at 1"),
    netns("net.ipv4.tcp_rto_min_us", IP)
        .unit("µs")
        .defaults(&[(ANY, "200000")])
        .added(v(6, 11))
        .rules(&[harmful(
            Below(5_000),
            Judgement,
            "below the delayed ACK of peers: spurious retransmissions",
        )])
        .effect("min retransmission timeout; lower only where every path is short and controlled")
        .risk("spurious retransmissions"),
    netns("net.ipv4.tcp_rto_max_ms", IP)
        .unit("ms")
        .defaults(&[(ANY, "120000")])
        .added(v(6, 15))
        .effect("max retransmission timeout")
        .risk("more packets to dead peers"),
    netns("net.ipv4.tcp_retries1", IP)
        .unit("retries")
        .defaults(&[(ANY, "3")])
        .effect("retransmissions before the route is checked")
        .risk("none known"),
    netns("net.ipv4.tcp_retries2", IP)
        .unit("retries")
        .defaults(&[(ANY, "15")])
        .rules(&[
            harmful(
                Below(8),
                Documented,
                "RFC 1122 asks for at least 100 s, which takes 8 retransmissions: established \
            connections break in short outages; TCP_USER_TIMEOUT is for one program",
            ),
            depends(
                Below(15),
                "dead peers are dropped earlier: 8 is about 100 s; TCP_USER_TIMEOUT does it for one",
            ),
        ])
        .effect("retransmissions before a connection is dropped: 924 s at 15")
        .risk("cuts connections in short outages"),
    netns("net.ipv4.tcp_early_retrans", IP)
        .defaults(&[(ANY, "3")])
        .rules(&[harmful(
            Is("0"),
            Documented,
            "turns off tail loss probes: a lost last segment costs a timeout of 200 ms",
        )])
        .effect("tail loss probes")
        .risk("none at 3"),
    netns("net.ipv4.tcp_recovery", IP)
        .defaults(&[(ANY, "1")])
        .rules(&[harmful(Is("0"), Documented, "turns off RACK, which detects lost retransmissions")])
        .effect("loss detection by time (RACK)")
        .risk("none at 1"),
    netns("net.ipv4.tcp_frto", IP)
        .defaults(&[(ANY, "2")])
        .effect("detects spurious timeouts")
        .risk("none at 2"),
    netns("net.ipv4.tcp_reordering", IP)
        .unit("segments")
        .defaults(&[(ANY, "3")])
        .effect("initial reordering that is not taken for a loss")
        .risk("later detection of losses"),
    netns("net.ipv4.tcp_thin_linear_timeouts", IP)
        .defaults(&[(ANY, "0")])
        .effect("linear timeouts for connections with few segments in flight")
        .risk("more retransmissions on a congested path"),
    netns("net.ipv4.tcp_comp_sack_delay_ns", IP)
        .unit("ns")
        .defaults(&[(ANY, "1000000")])
        .added(v(4, 18))
        .effect("max delay of compressed selective acknowledgements")
        .risk("lower: more packets"),
    netns("net.ipv4.tcp_comp_sack_nr", IP)
        .unit("acknowledgements")
        .defaults(&[(ANY, "44")])
        .added(v(4, 18))
        .effect("max number of compressed selective acknowledgements")
        .risk("lower: more packets"),
    netns("net.ipv4.tcp_pacing_ss_ratio", IP)
        .unit("%")
        .defaults(&[(ANY, "200")])
        .effect("pacing rate in slow start, relative to the window per round trip")
        .risk("bursts"),
    netns("net.ipv4.tcp_pacing_ca_ratio", IP)
        .unit("%")
        .defaults(&[(ANY, "120")])
        .effect("pacing rate in congestion avoidance, relative to the window per round trip")
        .risk("bursts"),
    netns("net.ipv4.tcp_challenge_ack_limit", IP)
        .unit("1/s")
        .defaults(&[(ANY, "1000"), (v(6, 0), "2147483647")])
        .effect("max challenge ACKs per second")
        .risk("a low limit is a side channel"),
    netns("net.ipv4.tcp_plb_enabled", IP)
        .defaults(&[(ANY, "0")])
        .added(v(6, 2))
        .effect("moves connections to another path on congestion; needs ECN and DCTCP-like control")
        .risk("reordering"),
];
