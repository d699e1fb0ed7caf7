//! Rows about opening, accepting and ending TCP connections.

use super::{ACCEPTING, ALL, IP, OPENING, advise, consider, depends, harmful, no_effect, v};
use crate::kernel::ANY;
use crate::setting::Assessment::{Conditional, Harmful, Obsolete, Recommend};
use crate::setting::Certainty::{Documented, Judgement, Measured};
use crate::setting::RuleCondition::{Above, Below, BytesEachAboveMemory, FieldBelowDefault, Is, OtherIs};
use crate::setting::WantedValue::{AtLeast, Exactly, PortCount};
use crate::setting::{Setting, ValueRule, netns};

pub(super) const ROWS: &[Setting] = &[
    netns("net.ipv4.ip_local_port_range", IP)
        .unit("ports")
        .defaults(&[(ANY, "32768 61000"), (v(4, 2), "32768 60999")])
        .verdict(Recommend)
        .advice(&[advise(OPENING, PortCount(60_000, "1024 65023"), Measured)])
        .effect(
            "source ports of outgoing connections: 28 k by default; 470 new connections/s for \
            each destination while TIME_WAIT (60 s) holds them",
        )
        .risk(
            "may take the port of a server that starts later: list it in \
            ip_local_reserved_ports; start and end of different parity are preferred",
        ),
    netns("net.ipv4.ip_local_reserved_ports", IP)
        .unit("ports")
        .defaults(&[(ANY, "")])
        .effect("keeps the ports of servers out of the range of source ports")
        .risk("none; fewer source ports"),
    netns("net.ipv4.ip_autobind_reuse", IP)
        .defaults(&[(ANY, "0")])
        .added(v(5, 7))
        .effect(
            "bind() without a port may reuse ports of sockets with SO_REUSEADDR; helps only \
            with a source address and no IP_BIND_ADDRESS_NO_PORT",
        )
        .risk("connections may conflict: the kernel advises against it"),
    netns("net.ipv4.tcp_tw_reuse", IP)
        .defaults(&[(ANY, "0"), (v(4, 19), "2")])
        .verdict(Recommend)
        .advice(&[advise(OPENING, Exactly("1"), Measured)])
        .rules(&[
            no_effect(
                OtherIs("net.ipv4.tcp_timestamps", "0"),
                Measured,
                "needs tcp_timestamps, which is off: 50 of 50 connections failed",
            ),
            depends(Is("2"), "reuses ports on loopback only: the default"),
            depends(Is("0"), "no port is reused"),
        ])
        .effect(
            "a new outgoing connection may take the port of one in TIME_WAIT after \
            tcp_tw_reuse_delay; needs tcp_timestamps",
        )
        .risk("a NAT that rewrites timestamps"),
    netns("net.ipv4.tcp_tw_reuse_delay", IP)
        .unit("ms")
        .defaults(&[(ANY, "1000")])
        .added(v(6, 14))
        .effect(
            "time in TIME_WAIT after which tcp_tw_reuse may take a port; shorter gives more \
            connections/s",
        )
        .risk("old segments of the former connection"),
    netns("net.ipv4.tcp_max_tw_buckets", IP)
        .unit("sockets")
        .rules(&[harmful(
            FieldBelowDefault(0),
            Documented,
            "lowers the max number of TIME_WAIT sockets: the kernel then ends them early, and \
            old segments can reach a new connection; the document says it must not be \
            lowered",
        )])
        .effect("max number of TIME_WAIT sockets")
        .risk("memory: 256 B each"),
    netns("net.ipv4.tcp_fin_timeout", IP)
        .unit("s")
        .defaults(&[(ANY, "60")])
        .rules(&[
            harmful(
                Below(25),
                Judgement,
                "cuts peers that close slowly, and does not shorten TIME_WAIT: 100 of 100 sockets \
            stayed with 1 s",
            ),
            depends(Below(60), "frees orphaned FIN_WAIT_2 sockets earlier; does not shorten TIME_WAIT"),
        ])
        .effect("time that orphaned sockets stay in FIN_WAIT_2; not TIME_WAIT, which is always 60 s")
        .risk("resets to peers that close slowly"),
    netns("net.ipv4.tcp_max_orphans", IP)
        .scope(crate::setting::Scope::Global)
        .unit("sockets")
        .rules(&[
            harmful(
                BytesEachAboveMemory(65_536),
                Documented,
                "each orphan may hold 64 KiB that cannot be swapped: together more than this \
            machine's memory",
            ),
            depends(
                FieldBelowDefault(0),
                "the kernel resets orphans beyond it: a defence against simple attacks",
            ),
        ])
        .effect("max number of closed sockets that still have data to send")
        .risk("64 KiB of unswappable memory each"),
    netns("net.ipv4.tcp_orphan_retries", IP)
        .defaults(&[(ANY, "0")])
        .effect("retries before a closed socket is dropped; 0 means 8")
        .risk("data at the end of a response is lost on a bad path"),
    netns("net.ipv4.tcp_max_syn_backlog", IP)
        .unit("connections")
        .verdict(Obsolete)
        .rules(&[no_effect(
            OtherIs("net.ipv4.tcp_syncookies", "1"),
            Measured,
            "with tcp_syncookies=1 the limit of half-open connections is the listen backlog \
            (64 with a backlog of 64, whatever this says)",
        )])
        .effect("max number of half-open connections of a listener, only with tcp_syncookies=0")
        .risk("gives a false sense of room: raise somaxconn and the listen backlog"),
    netns("net.core.somaxconn", IP)
        .unit("connections")
        .defaults(&[(ANY, "128"), (v(5, 4), "4096")])
        .advice(&[advise(ACCEPTING, AtLeast("4096"), Documented)])
        .rules(&[
            harmful(
                FieldBelowDefault(0),
                Documented,
                "lowers the default: bursts of connections are dropped",
            ),
            depends(
                Above(16_384),
                "only has an effect if the server's listen backlog rises too; a long queue hides \
            overload: keep it below accept rate × client timeout",
            ),
        ])
        .effect("max length of an accept queue; the listen() backlog of the server must be as high")
        .risk("a long queue hides overload"),
    netns("net.ipv4.tcp_abort_on_overflow", IP)
        .defaults(&[(ANY, "0")])
        .verdict(Harmful)
        .advice(&[advise(ACCEPTING, Exactly("0"), Documented)])
        .rules(&[harmful(Is("1"), Documented, "resets clients that a short burst would only delay")])
        .effect("a full accept queue resets the connection instead of dropping the last ACK")
        .risk("clients see resets in bursts"),
    netns("net.ipv4.tcp_syncookies", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Recommend)
        .advice(&[advise(ACCEPTING, Exactly("1"), Documented)])
        .rules(&[
            harmful(Is("0"), Documented, "a flood of SYNs then fills the queue of half-open connections"),
            harmful(Is("2"), Documented, "always sends cookies: for tests; connections lose TCP options"),
        ])
        .effect("answers a SYN flood without keeping state; a fallback, no remedy for a high load")
        .risk("none at 1"),
    netns("net.ipv4.tcp_synack_retries", IP)
        .unit("retries")
        .defaults(&[(ANY, "5")])
        .rules(&[
            harmful(Below(2), Judgement, "clients on a lossy path cannot connect"),
            depends(Below(5), "halves the amplification of a SYN flood"),
        ])
        .effect("retransmissions of a SYN-ACK")
        .risk("too few lose clients on lossy paths"),
    netns("net.ipv4.tcp_syn_retries", IP)
        .unit("retries")
        .defaults(&[(ANY, "5"), (v(3, 7), "6")])
        .rules(&[
            harmful(Below(3), Judgement, "every program of the machine gives up after two lost SYNs"),
            depends(
                Below(6),
                "shortens failed connects; a connect timeout of the client does it for one program",
            ),
        ])
        .effect("retransmissions of a SYN: 127 s at 6")
        .risk("affects every program; set the connect timeout of the client instead"),
    netns("net.ipv4.tcp_syn_linear_timeouts", IP)
        .unit("retries")
        .defaults(&[(ANY, "4")])
        .added(v(6, 5))
        .effect("first SYN retransmissions come after 1 s each, before the timeout doubles")
        .risk("none"),
    netns("net.ipv4.tcp_timestamps", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Harmful)
        .advice(&[advise(ALL, Exactly("1"), Measured)])
        .rules(&[harmful(
            Is("0"),
            Measured,
            "turns off PAWS and round-trip measurement, and tcp_tw_reuse with them: 50 of 50 \
            connections failed; saves 12 bytes a segment",
        )])
        .effect("round-trip measurement, protection against old segments; tcp_tw_reuse needs it")
        .risk("none at 1"),
    netns("net.ipv4.tcp_fastopen", IP)
        .unit("bits")
        .defaults(&[(ANY, "0"), (v(3, 13), "1")])
        .effect(
            "bit 1 clients, bit 2 servers: data in the SYN; the listener must set \
            TCP_FASTOPEN (or bit 0x400)",
        )
        .risk("middleboxes drop it; no gain with keep-alive; a replayed SYN repeats its request"),
    netns("net.ipv4.tcp_migrate_req", IP)
        .defaults(&[(ANY, "0")])
        .added(v(5, 14))
        .advice(&[consider(ACCEPTING, Exactly("1"))])
        .effect(
            "connections in the queue of a closing SO_REUSEPORT listener move to another one: \
            no resets at a reload",
        )
        .risk("all listeners need the same options"),
    netns("net.ipv4.tcp_keepalive_time", IP)
        .unit("s")
        .defaults(&[(ANY, "7200")])
        .rules(&[depends(
            Below(60),
            "wakes every idle connection often; only sockets with SO_KEEPALIVE have it, and \
            TCP_KEEPIDLE sets it for one",
        )])
        .effect("idle time before a keep-alive probe, for sockets with SO_KEEPALIVE")
        .risk("wake-ups × idle connections"),
    netns("net.ipv4.tcp_keepalive_intvl", IP)
        .unit("s")
        .defaults(&[(ANY, "75")])
        .effect("interval of keep-alive probes, for sockets with SO_KEEPALIVE")
        .risk("too short cuts peers on bad paths"),
    netns("net.ipv4.tcp_keepalive_probes", IP)
        .unit("probes")
        .defaults(&[(ANY, "9")])
        .effect("unanswered keep-alive probes before a connection is dropped")
        .risk("too few cut peers on bad paths"),
    netns("net.ipv4.tcp_rfc1337", IP)
        .defaults(&[(ANY, "0")])
        .effect("ignores resets in TIME_WAIT")
        .risk("none known"),
    netns("net.ipv4.tcp_child_ehash_entries", IP)
        .unit("entries")
        .defaults(&[(ANY, "0")])
        .added(v(6, 1))
        .effect(
            "size of the connection table of the next network namespace; 0 shares the \
            machine's table",
        )
        .risk("memory"),
    netns("net.ipv4.ip_nonlocal_bind", IP)
        .defaults(&[(ANY, "0")])
        .effect("bind() to addresses that the machine does not have: for VRRP")
        .risk("hides a wrong address"),
    netns("net.ipv4.ip_unprivileged_port_start", IP)
        .unit("port")
        .defaults(&[(ANY, "1024")])
        .added(v(4, 11))
        .rules(&[ValueRule {
            when: Below(1024),
            verdict: Conditional,
            certainty: Judgement,
            reason: "any user may then take port 80 or 443; CAP_NET_BIND_SERVICE allows one program",
        }])
        .effect("first port that needs no privilege")
        .risk("any user may bind low ports; it must not be above the first local port"),
];
