//! The flags of `weir proxy`.

use proxy::config::FlagsText;

use super::{CommandRow, FLAG, Flag, Typed};

pub(crate) const PROXY: CommandRow = CommandRow {
    name: "proxy",
    about: "Carry requests to servers: a reverse proxy and load balancer for HTTP/1.1 and TCP",
    doc: "Either --listen and --to say all there is, or --config names a file with listeners, \
          routes and pools; docs/config.md has every key. SIGHUP reads the file again and applies \
          it without losing a request, SIGUSR1 opens the logs again, SIGTERM finishes what is in \
          flight and stops; a new process with --upgrade-from replaces it.",
    values: None,
    flags: &[
        Flag {
            long: "listen",
            short: Some('l'),
            value: "ADDRESS",
            many: true,
            default: "127.0.0.1:8080",
            doc: "Where to listen: 127.0.0.1:8080, [::1]:8080, :8080 or unix:/path; port 0 lets \
                  the kernel choose; may be given several times",
            right: &["127.0.0.1:0", "unix:/tmp/weir.sock"],
            wrong: &["8080", "127.0.0.1:99999", "unix:"],
        },
        Flag {
            long: "to",
            value: "ADDRESS[,ADDRESS]",
            doc: "The servers",
            right: &["127.0.0.1:8000", "127.0.0.1:8000,127.0.0.1:8001"],
            wrong: &["8000", "127.0.0.1:8000,,"],
            ..FLAG
        },
        Flag {
            long: "config",
            value: "FILE",
            doc: "A config in TOML, instead of the other flags",
            right: &["weir.toml"],
            ..FLAG
        },
        Flag {
            long: "check",
            doc: "Say what is wrong with the config, or that nothing is, and stop",
            ..FLAG
        },
        Flag {
            long: "explain",
            value: "[METHOD ]URL",
            doc: "Say which route and pool a request would take, and why, and stop",
            right: &["http://example.org/a?b", "POST /a"],
            ..FLAG
        },
        Flag {
            long: "header",
            short: Some('H'),
            value: "'NAME: VALUE'",
            many: true,
            default: "",
            doc: "With --explain: a field of the request; may be given several times",
            right: &["X-Debug: 1"],
            wrong: &[],
        },
        Flag {
            long: "source",
            value: "IP",
            doc: "With --explain: the client's address",
            right: &["192.0.2.1"],
            ..FLAG
        },
        Flag {
            long: "schema",
            doc: "Print the JSON schema of the config, for editors, and stop",
            ..FLAG
        },
        Flag {
            long: "mode",
            value: "http|tcp",
            default: "http",
            doc: "What is spoken",
            right: &["tcp"],
            wrong: &["udp"],
            ..FLAG
        },
        Flag {
            long: "threads",
            short: Some('t'),
            value: "N",
            default: "one for each processor",
            doc: "Threads, a core each",
            right: &["1"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "pin",
            value: "CPUS",
            default: "not pinned",
            doc: "Processors to pin the threads to, in turn: 0,2 or 0-3",
            right: &["0", "all"],
            wrong: &["x", "3-1"],
            ..FLAG
        },
        Flag {
            long: "admin",
            value: "ADDRESS",
            default: "nowhere",
            doc: "Where the status page, /metrics (for Prometheus) and /health are served",
            right: &["127.0.0.1:0"],
            wrong: &["x"],
            ..FLAG
        },
        Flag {
            long: "control",
            value: "PATH",
            default: "none",
            doc: "The unix socket that weir ctl operates the proxy through; for root and the \
                  proxy's own user only",
            right: &["/tmp/weir-ctl.sock"],
            wrong: &["/tmp/"],
            ..FLAG
        },
        Flag {
            long: "upgrade-from",
            value: "PATH",
            doc: "Take over the listening sockets of the proxy whose control socket this is; it \
                  finishes what it has and ends. If nobody is there, this is a plain start",
            right: &["/run/weir.sock"],
            ..FLAG
        },
        Flag {
            long: "access-log",
            value: "FILE|-",
            default: "off",
            doc: "Log a line per request; lines that the disk is too slow for are dropped and \
                  counted",
            right: &["-"],
            ..FLAG
        },
        Flag {
            long: "log-format",
            value: "json|combined|haproxy",
            default: "json",
            doc: "What a log line looks like; needs --access-log",
            right: &[],
            wrong: &["xml"],
            ..FLAG
        },
        Flag {
            long: "balance",
            value: "random-of-two|latency|round-robin|least-connections|consistent-hash|first",
            default: "random-of-two",
            doc: "How a server is chosen; consistent-hash goes by the client's address",
            right: &["round-robin", "latency", "consistent-hash"],
            wrong: &["x"],
            ..FLAG
        },
        Flag {
            long: "reuse",
            value: "never|safe|always",
            default: "safe",
            doc: "Which connections to servers a request may go over: only its client's own; any \
                  idle one, but a client's first request only if it may be sent again; any",
            right: &["always"],
            wrong: &["x"],
            ..FLAG
        },
        Flag {
            long: "connections-max",
            value: "N",
            default: "half of the descriptor limit",
            doc: "Connections of clients that may be open; at the limit no more are accepted until \
                  one closes",
            right: &["1k"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "drain-timeout",
            value: "TIME",
            default: "30s",
            doc: "How long requests in flight may go on after SIGTERM; bare: s",
            right: &["5"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "until-stdin-closes",
            doc: "Stop as on SIGTERM when stdin ends, for whoever starts a proxy as a child",
            ..FLAG
        },
    ],
    examples: &[
        (
            "weir proxy --listen 127.0.0.1:0 --to 127.0.0.1:8000,127.0.0.1:8001 -t 1",
            "one thread, two servers",
        ),
        (
            "weir proxy --listen 127.0.0.1:0 --to 127.0.0.1:8000 --explain http://example.org/a",
            "which way a request would take",
        ),
    ],
};

/// The texts of a proxy's flags.
pub(crate) fn proxy_text(typed: Typed<'_>) -> FlagsText {
    let text = |long| typed.text(long).unwrap_or_default();
    FlagsText {
        listen: typed.texts("listen"),
        to: text("to"),
        mode: text("mode"),
        threads: text("threads"),
        pin: text("pin"),
        admin: text("admin"),
        control: text("control"),
        access_log: text("access-log"),
        log_format: text("log-format"),
        balance: text("balance"),
        reuse: text("reuse"),
        connections_max: text("connections-max"),
        drain_timeout: text("drain-timeout"),
    }
}
