//! Rows about memory, buffers and segments of TCP and UDP.

use super::{ACCEPTING, IP, NET, advise, consider, depends, harmful, no_effect, v};
use crate::kernel::ANY;
use crate::setting::Assessment::{Harmful, Obsolete, Recommend};
use crate::setting::Certainty::{Documented, Judgement};
use crate::setting::RuleCondition::{
    Above, Always, FieldAboveDefault, FieldBelowDefault, Is, PagesAboveMemory,
};
use crate::setting::WantedValue::{AtMost, Exactly};
use crate::setting::{Setting, netns, setting};

pub(super) const ROWS: &[Setting] = &[
    netns("net.ipv4.tcp_rmem", IP)
        .unit("B")
        .defaults(&[
            (ANY, "4096 87380 6291456"),
            (v(5, 0), "4096 131072 6291456"),
            (v(6, 16), "4096 131072 33554432"),
        ])
        .rules(&[
            harmful(
                FieldBelowDefault(2),
                Documented,
                "lowers the default max: a smaller window on long paths",
            ),
            harmful(
                FieldBelowDefault(1),
                Documented,
                "lowers the default initial buffer: a smaller first window",
            ),
            depends(FieldAboveDefault(1), "memory for each connection, also for those that need little"),
            depends(FieldAboveDefault(2), "a larger window on paths with a high bandwidth-delay product"),
        ])
        .effect("min, initial and max receive buffer of a connection; the kernel grows it as needed")
        .risk("memory at many connections"),
    netns("net.ipv4.tcp_wmem", IP)
        .unit("B")
        .defaults(&[(ANY, "4096 16384 4194304")])
        .rules(&[
            harmful(
                FieldBelowDefault(2),
                Documented,
                "lowers the default max: less data in flight on long paths",
            ),
            depends(
                FieldAboveDefault(1),
                "the initial buffer of every connection grows: memory at 100 k connections, and \
            more unsent data",
            ),
            depends(FieldAboveDefault(2), "more data in flight on paths with a high bandwidth-delay product"),
        ])
        .effect("min, initial and max send buffer of a connection; the kernel grows it as needed")
        .risk("memory at many connections, bufferbloat"),
    netns("net.ipv4.tcp_mem", IP)
        .scope(crate::setting::Scope::Global)
        .unit("pages")
        .verdict(Harmful)
        .rules(&[
            harmful(
                PagesAboveMemory,
                Documented,
                "the max is more than this machine's memory: the protection never acts, and the \
            machine runs out of memory",
            ),
            harmful(FieldBelowDefault(2), Documented, "lowers the memory of all connections together"),
        ])
        .effect("memory of all TCP sockets: low, pressure, max; sized at boot")
        .risk("too high turns off the protection"),
    netns("net.ipv4.udp_mem", IP)
        .scope(crate::setting::Scope::Global)
        .unit("pages")
        .rules(&[harmful(PagesAboveMemory, Documented, "the max is more than this machine's memory")])
        .effect("memory of all UDP sockets (HTTP/3, DNS)")
        .risk("too high turns off the protection"),
    netns("net.ipv4.udp_rmem_min", IP)
        .unit("B")
        .defaults(&[(ANY, "4096")])
        .effect("min receive buffer of UDP sockets under memory pressure")
        .risk("memory"),
    setting("net.core.rmem_default", NET)
        .unit("B")
        .defaults(&[(ANY, "212992")])
        .verdict(Obsolete)
        .rules(&[no_effect(
            Always,
            Documented,
            "TCP ignores it: tcp_rmem[1] applies; it only affects UDP and the like",
        )])
        .effect("initial receive buffer of sockets other than TCP")
        .risk("memory of UDP and Unix sockets"),
    setting("net.core.wmem_default", NET)
        .unit("B")
        .defaults(&[(ANY, "212992")])
        .verdict(Obsolete)
        .rules(&[no_effect(
            Always,
            Documented,
            "TCP ignores it: tcp_wmem[1] applies; it only affects UDP and the like",
        )])
        .effect("initial send buffer of sockets other than TCP")
        .risk("memory of UDP and Unix sockets"),
    setting("net.core.rmem_max", NET)
        .unit("B")
        .defaults(&[(ANY, "212992"), (v(6, 18), "4194304")])
        .rules(&[harmful(FieldBelowDefault(0), Documented, "lowers the default")])
        .effect("max that SO_RCVBUF may ask for; the automatic size of TCP is not limited by it")
        .risk("memory, if programs ask for it"),
    setting("net.core.wmem_max", NET)
        .unit("B")
        .defaults(&[(ANY, "212992"), (v(6, 18), "4194304")])
        .rules(&[harmful(FieldBelowDefault(0), Documented, "lowers the default")])
        .effect("max that SO_SNDBUF may ask for; the automatic size of TCP is not limited by it")
        .risk("memory, if programs ask for it"),
    setting("net.core.optmem_max", NET)
        .scope(crate::setting::Scope::NetworkNamespace)
        .unit("B")
        .defaults(&[(ANY, "20480"), (v(6, 8), "131072")])
        .rules(&[harmful(FieldBelowDefault(0), Documented, "lowers the default")])
        .effect("ancillary memory of a socket; limits MSG_ZEROCOPY sends in flight")
        .risk("memory"),
    netns("net.ipv4.tcp_moderate_rcvbuf", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Obsolete)
        .rules(&[harmful(Is("0"), Documented, "turns off the automatic receive buffer")])
        .effect("grows receive buffers as needed")
        .risk("none at 1"),
    netns("net.ipv4.tcp_notsent_lowat", IP)
        .unit("B")
        .defaults(&[(ANY, "4294967295")])
        .added(v(3, 12))
        .verdict(Recommend)
        .advice(&[advise(ACCEPTING, AtMost("131072"), Documented)])
        .rules(&[depends(super::RuleCondition::Below(16_384), "many wake-ups for large responses")])
        .effect(
            "a socket is writable only while fewer unsent bytes wait: less kernel memory, \
            less bufferbloat, and HTTP/2 priorities that work",
        )
        .risk("more wake-ups for each megabyte"),
    netns("net.ipv4.tcp_limit_output_bytes", IP)
        .unit("B")
        .defaults(&[(ANY, "262144"), (v(4, 20), "1048576"), (v(6, 16), "4194304")])
        .rules(&[harmful(
            FieldBelowDefault(0),
            Documented,
            "lowers the default: less data for wireless drivers and hosts with a slow NIC",
        )])
        .effect("bytes of a connection in the queues of the host below TCP")
        .risk("higher: bufferbloat in the host; lower: less throughput"),
    netns("net.ipv4.tcp_autocorking", IP)
        .defaults(&[(ANY, "1")])
        .effect("joins small writes while a segment waits in the host; 0 sends each at once")
        .risk("0: more packets"),
    netns("net.ipv4.tcp_window_scaling", IP)
        .defaults(&[(ANY, "1")])
        .verdict(Obsolete)
        .rules(&[harmful(Is("0"), Documented, "limits the window to 64 KiB")])
        .effect("windows above 64 KiB")
        .risk("none at 1"),
    netns("net.ipv4.tcp_app_win", IP)
        .unit("bits")
        .defaults(&[(ANY, "31")])
        .effect("window kept for the application's buffer")
        .risk("none known"),
    netns("net.ipv4.tcp_min_tso_segs", IP)
        .unit("segments")
        .defaults(&[(ANY, "2")])
        .effect("min segments of a TSO packet at low rates")
        .risk("bursts"),
    netns("net.ipv4.tcp_tso_win_divisor", IP)
        .defaults(&[(ANY, "3")])
        .effect("fraction of the window that one TSO packet may take")
        .risk("bursts"),
    netns("net.ipv4.tcp_shrink_window", IP)
        .defaults(&[(ANY, "0")])
        .added(v(6, 6))
        .effect(
            "allows the receiver to shrink a window that it has offered: saves memory with \
            many connections",
        )
        .risk("senders with bugs"),
    setting("net.core.high_order_alloc_disable", NET)
        .defaults(&[(ANY, "0")])
        .added(v(5, 14))
        .rules(&[harmful(
            Is("1"),
            Documented,
            "page fragments are one page: more allocations for each packet",
        )])
        .effect("turns off large page fragments of sockets: for tests of fragmentation")
        .risk("CPU time"),
    setting("net.unix.max_dgram_qlen", NET)
        .scope(crate::setting::Scope::NetworkNamespace)
        .unit("datagrams")
        .defaults(&[(ANY, "10")])
        .advice(&[consider(ACCEPTING, crate::setting::WantedValue::AtLeast("512"))])
        .rules(&[crate::setting::ValueRule {
            when: Above(4096),
            verdict: crate::setting::Assessment::Conditional,
            certainty: Judgement,
            reason: "memory of each syslog socket",
        }])
        .effect(
            "datagrams in the queue of a Unix socket: syslog drops or blocks log lines when \
            it is full",
        )
        .risk("memory"),
    netns("net.ipv4.tcp_no_metrics_save", IP)
        .defaults(&[(ANY, "0")])
        .advice(&[consider(&[crate::setting::Role::Client], Exactly("1"))])
        .effect("does not keep path metrics of closed connections: repeated measurements start equal")
        .risk("new connections start without what earlier ones learned"),
];
