//! Rows about options of servers, sockets and builds. They are reported, never set: `weir lab run` measures them.

use crate::setting::Assessment::{Conditional, Harmful, Recommend};
use crate::setting::{Probe, Scope, Setting, setting};

/// Row of an option that only the program itself can set.
const fn option(name: &'static str, source: &'static str) -> Setting {
    setting(name, source).scope(Scope::Application).probe(Probe::None)
}

pub(super) const ROWS: &[Setting] = &[
    option("app.listen_backlog", "man 2 listen")
        .verdict(Recommend)
        .effect(
            "backlog of listen(): must rise together with somaxconn (nginx: backlog=, \
            HAProxy: backlog)",
        )
        .risk("a long queue hides overload"),
    option("app.maxconn", "HAProxy configuration manual, maxconn")
        .verdict(Recommend)
        .effect(
            "max connections and queue timeout of a proxy: back-pressure; the sum of the \
            servers' slots and of the queue",
        )
        .risk("too low: errors"),
    option("app.tcp_nodelay", "man 7 tcp, TCP_NODELAY")
        .verdict(Recommend)
        .effect("sends small writes at once: avoids stalls of 40 ms (Nagle and delayed ACK)")
        .risk("more packets, if a response is many writes"),
    option("app.tcp_nopush", "man 7 tcp, TCP_CORK")
        .effect("fills segments (TCP_CORK): with sendfile and a head before it")
        .risk("200 ms of delay if it is not taken off"),
    option("app.sendfile", "man 2 sendfile")
        .verdict(Recommend)
        .effect("sends files without copies")
        .risk("none for static files"),
    option("app.so_reuseport", "man 7 socket, SO_REUSEPORT")
        .effect("one accept queue for each worker")
        .risk("connections of a closing listener are reset (tcp_migrate_req); unequal queues"),
    option("app.so_incoming_cpu", "man 7 socket, SO_INCOMING_CPU")
        .effect("accepts on the CPU that handles the packets")
        .risk("unequal queues"),
    option("app.so_busy_poll", "man 7 socket, SO_BUSY_POLL")
        .effect("busy_read for one socket")
        .risk("CPU time"),
    option("app.ip_bind_address_no_port", "man 7 ip, IP_BIND_ADDRESS_NO_PORT")
        .verdict(Recommend)
        .effect(
            "chooses the source port at connect(): bind() with a source address no longer \
            takes a port for all destinations",
        )
        .risk("none"),
    option("app.tcp_defer_accept", "man 7 tcp, TCP_DEFER_ACCEPT")
        .effect("accepts when the request is there: one wake-up less")
        .risk("idle connections (HTTP/2, pre-connects) wait in the queue"),
    option("app.tcp_quickack", "man 7 tcp, TCP_QUICKACK")
        .effect("acknowledges at once: breaks stalls with peers that have Nagle on")
        .risk("more packets; must be set again after each read"),
    option("app.tcp_congestion", "man 7 tcp, TCP_CONGESTION")
        .effect("congestion control of one socket: bbr for distant clients only")
        .risk("none for others"),
    option("app.ktls", "networking/tls")
        .effect("TLS records in the kernel: sendfile with TLS")
        .risk("few ciphers; slower for small responses"),
    option("app.zerocopy", "networking/msg_zerocopy")
        .effect("MSG_ZEROCOPY: no copy of large bodies; from about 10 kB on a NIC, never on loopback")
        .risk("completion events; locked memory"),
    option("app.io_uring", "man 7 io_uring")
        .effect("fewer system calls with many connections")
        .risk("attack surface; process.memlock on old kernels"),
    option("app.workers", "nginx manual, worker_processes")
        .verdict(Recommend)
        .effect("one worker for each CPU that it may use")
        .risk("more workers than CPUs: context switches (10 workers pinned to one CPU)"),
    option("app.worker_connections", "nginx manual, worker_connections")
        .effect("connections of an nginx worker: two for each proxied request")
        .risk("too low: errors"),
    option("app.open_file_cache", "nginx manual, open_file_cache")
        .effect("keeps descriptors of static files open")
        .risk("changed files are seen late"),
    option("app.access_log", "nginx manual, access_log")
        .effect(
            "off makes a server faster, and is another product; use a buffer instead, and \
            test with the log on",
        )
        .risk("no log"),
    option("app.gzip", "nginx manual, gzip_comp_level")
        .effect("trades CPU time for bytes: only if the link is the limit")
        .risk("CPU time"),
    option("app.tls_offload", "weir lab run tls")
        .effect("handshakes or bulk encryption elsewhere: find out which of them is the limit first")
        .risk("plain text behind it"),
    option("app.allocator", "weir lab run allocator")
        .effect("jemalloc or mimalloc by LD_PRELOAD: if the allocator is the limit")
        .risk("memory"),
    option("app.build_flags", "weir lab run build-flags")
        .verdict(Recommend)
        .effect("flags for this CPU (-march, LSE atomics), LTO: code with locks gains")
        .risk("does not run on older CPUs"),
    option("app.threads_or_processes", "weir lab run threads")
        .effect("processes share no locks: shows lock contention")
        .risk("no shared state: limits and pools by process"),
    option("app.pinned_workers", "man 8 numactl")
        .verdict(Harmful)
        .effect("many workers on one CPU (numactl -C)")
        .risk("they share one CPU"),
    option("app.other_services", "weir watch")
        .verdict(Conditional)
        .effect("stop services that use the CPU during a measurement, and record it")
        .risk("the result is that of another system"),
];
