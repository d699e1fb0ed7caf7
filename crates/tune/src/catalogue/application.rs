//! Rows about options of servers, sockets and builds. They are reported, never set: `weir lab run` measures them.

use crate::setting::Verdict::{Conditional, Harmful, Recommend};
use crate::setting::{Probe, SETTING, Scope, Setting};

/// Row of an option that only the program itself can set.
const OPTION: Setting = Setting { scope: Scope::Application, probe: Probe::None, ..SETTING };

pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "app.listen_backlog",
        effect: "backlog of listen(): must rise together with somaxconn (nginx: backlog=, HAProxy: backlog)",
        risk: "a long queue hides overload",
        verdict: Recommend,
        source: "man 2 listen",
        ..OPTION
    },
    Setting {
        name: "app.maxconn",
        effect: "max connections and queue timeout of a proxy: back-pressure; the sum of the servers' slots and of the \
                 queue",
        risk: "too low: errors",
        verdict: Recommend,
        source: "HAProxy configuration manual, maxconn",
        ..OPTION
    },
    Setting {
        name: "app.tcp_nodelay",
        effect: "sends small writes at once: avoids stalls of 40 ms (Nagle and delayed ACK)",
        risk: "more packets, if a response is many writes",
        verdict: Recommend,
        source: "man 7 tcp, TCP_NODELAY",
        ..OPTION
    },
    Setting {
        name: "app.tcp_nopush",
        effect: "fills segments (TCP_CORK): with sendfile and a head before it",
        risk: "200 ms of delay if it is not taken off",
        source: "man 7 tcp, TCP_CORK",
        ..OPTION
    },
    Setting {
        name: "app.sendfile",
        effect: "sends files without copies",
        risk: "none for static files",
        verdict: Recommend,
        source: "man 2 sendfile",
        ..OPTION
    },
    Setting {
        name: "app.so_reuseport",
        effect: "one accept queue for each worker",
        risk: "connections of a closing listener are reset (tcp_migrate_req); unequal queues",
        source: "man 7 socket, SO_REUSEPORT",
        ..OPTION
    },
    Setting {
        name: "app.so_incoming_cpu",
        effect: "accepts on the CPU that handles the packets",
        risk: "unequal queues",
        source: "man 7 socket, SO_INCOMING_CPU",
        ..OPTION
    },
    Setting {
        name: "app.so_busy_poll",
        effect: "busy_read for one socket",
        risk: "CPU time",
        source: "man 7 socket, SO_BUSY_POLL",
        ..OPTION
    },
    Setting {
        name: "app.ip_bind_address_no_port",
        effect: "chooses the source port at connect(): bind() with a source address no longer takes a port for all \
                 destinations",
        risk: "none",
        verdict: Recommend,
        source: "man 7 ip, IP_BIND_ADDRESS_NO_PORT",
        ..OPTION
    },
    Setting {
        name: "app.tcp_defer_accept",
        effect: "accepts when the request is there: one wake-up less",
        risk: "idle connections (HTTP/2, pre-connects) wait in the queue",
        source: "man 7 tcp, TCP_DEFER_ACCEPT",
        ..OPTION
    },
    Setting {
        name: "app.tcp_quickack",
        effect: "acknowledges at once: breaks stalls with peers that have Nagle on",
        risk: "more packets; must be set again after each read",
        source: "man 7 tcp, TCP_QUICKACK",
        ..OPTION
    },
    Setting {
        name: "app.tcp_congestion",
        effect: "congestion control of one socket: bbr for distant clients only",
        risk: "none for others",
        source: "man 7 tcp, TCP_CONGESTION",
        ..OPTION
    },
    Setting {
        name: "app.ktls",
        effect: "TLS records in the kernel: sendfile with TLS",
        risk: "few ciphers; slower for small responses",
        source: "networking/tls",
        ..OPTION
    },
    Setting {
        name: "app.zerocopy",
        effect: "MSG_ZEROCOPY: no copy of large bodies; from about 10 kB on a NIC, never on loopback",
        risk: "completion events; locked memory",
        source: "networking/msg_zerocopy",
        ..OPTION
    },
    Setting {
        name: "app.io_uring",
        effect: "fewer system calls with many connections",
        risk: "attack surface; process.memlock on old kernels",
        source: "man 7 io_uring",
        ..OPTION
    },
    Setting {
        name: "app.workers",
        effect: "one worker for each CPU that it may use",
        risk: "more workers than CPUs: context switches (10 workers pinned to one CPU)",
        verdict: Recommend,
        source: "nginx manual, worker_processes",
        ..OPTION
    },
    Setting {
        name: "app.worker_connections",
        effect: "connections of an nginx worker: two for each proxied request",
        risk: "too low: errors",
        source: "nginx manual, worker_connections",
        ..OPTION
    },
    Setting {
        name: "app.open_file_cache",
        effect: "keeps descriptors of static files open",
        risk: "changed files are seen late",
        source: "nginx manual, open_file_cache",
        ..OPTION
    },
    Setting {
        name: "app.access_log",
        effect: "off makes a server faster, and is another product; use a buffer instead, and test with the log on",
        risk: "no log",
        source: "nginx manual, access_log",
        ..OPTION
    },
    Setting {
        name: "app.gzip",
        effect: "trades CPU time for bytes: only if the link is the limit",
        risk: "CPU time",
        source: "nginx manual, gzip_comp_level",
        ..OPTION
    },
    Setting {
        name: "app.tls_offload",
        effect: "handshakes or bulk encryption elsewhere: find out which of them is the limit first",
        risk: "plain text behind it",
        source: "weir lab run tls",
        ..OPTION
    },
    Setting {
        name: "app.allocator",
        effect: "jemalloc or mimalloc by LD_PRELOAD: if the allocator is the limit",
        risk: "memory",
        source: "weir lab run allocator",
        ..OPTION
    },
    Setting {
        name: "app.build_flags",
        effect: "flags for this CPU (-march, LSE atomics), LTO: code with locks gains",
        risk: "does not run on older CPUs",
        verdict: Recommend,
        source: "weir lab run build-flags",
        ..OPTION
    },
    Setting {
        name: "app.threads_or_processes",
        effect: "processes share no locks: shows lock contention",
        risk: "no shared state: limits and pools by process",
        source: "weir lab run threads",
        ..OPTION
    },
    Setting {
        name: "app.pinned_workers",
        effect: "many workers on one CPU (numactl -C)",
        risk: "they share one CPU",
        verdict: Harmful,
        source: "man 8 numactl",
        ..OPTION
    },
    Setting {
        name: "app.other_services",
        effect: "stop services that use the CPU during a measurement, and record it",
        risk: "the result is that of another system",
        verdict: Conditional,
        source: "weir watch",
        ..OPTION
    },
];
