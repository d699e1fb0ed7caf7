//! The flags of `weir proxy`.

use proxy::config::ProxyFlags;

use super::server::{
    ACCESS_LOG, CONNECTIONS_MAX, DRAIN_TIMEOUT, LISTEN, PIN, THREADS, TLS_CERT, TLS_KEY, TLS_SELF_SIGNED,
    UNTIL_STDIN_CLOSES,
};
use super::{CommandArgs, CommandInfo, FLAG_DEFAULTS, Flag};

pub(crate) const PROXY: CommandInfo = CommandInfo {
    name: "proxy",
    about: "Reverse proxy and load balancer for HTTP/1.1, HTTP/2, TLS and TCP",
    doc: "Configured by --listen and --to, or by --config FILE with listeners, routes and pools; \
          docs/config.md documents every key. SIGHUP reloads the file without losing a request, \
          SIGUSR1 reopens the logs, SIGTERM drains and stops. A new process with --upgrade-from \
          takes over its listening sockets.",
    values: None,
    flags: &[
        Flag { default: "127.0.0.1:8080", ..LISTEN },
        Flag {
            long: "to",
            value: "ADDRESS[,ADDRESS]",
            doc: "Servers to forward to (one pool)",
            valid: &["127.0.0.1:8000", "127.0.0.1:8000,127.0.0.1:8001"],
            invalid: &["8000", "127.0.0.1:8000,,"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "config",
            value: "FILE",
            doc: "Config file in TOML, excludes --listen and --to; also excludes the other flags that are \
                  keys of the file",
            valid: &["weir.toml"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "reload-on-change",
            doc: "Reload when the config file, a certificate or a key changes, as SIGHUP does; also \
                  in mounted ConfigMaps and Secrets; polls twice a second",
            ..FLAG_DEFAULTS
        },
        Flag { long: "check", doc: "Validate the config and exit", ..FLAG_DEFAULTS },
        Flag {
            long: "explain",
            value: "'[METHOD] URL'",
            doc: "Print which route and pool a request would use, and exit; includes the reason",
            valid: &["http://example.org/a?b", "POST /a"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "header",
            short: Some('H'),
            value: "'NAME: VALUE'",
            repeatable: true,
            doc: "Header field of the request for --explain; repeatable",
            valid: &["X-Debug: 1"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "source",
            value: "IP",
            doc: "Client address for --explain",
            valid: &["192.0.2.1"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "certificate",
            value: "SUBJECT",
            doc: "Subject of the client's certificate for --explain (RFC 4514)",
            valid: &["CN=client1"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "schema",
            doc: "Print the JSON schema of the config, for editors, and exit",
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "mode",
            value: "http|tcp",
            default: "http",
            doc: "Protocol",
            valid: &["tcp"],
            invalid: &["udp"],
            ..FLAG_DEFAULTS
        },
        TLS_CERT,
        TLS_KEY,
        TLS_SELF_SIGNED,
        THREADS,
        PIN,
        Flag {
            long: "admin",
            value: "ADDRESS",
            default: "off",
            doc: "Address of the status page, /metrics and /health; metrics are in Prometheus \
                  format",
            valid: &["127.0.0.1:0"],
            invalid: &["x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "control",
            value: "PATH",
            default: "none",
            doc: "Unix socket for weir ctl; root and the proxy's own user may use it",
            valid: &["/tmp/weir-ctl.sock"],
            invalid: &["/tmp/"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "upgrade-from",
            value: "PATH",
            doc: "Control socket of the proxy to replace; takes over its listening sockets, and \
                  the old process drains and exits. If nothing listens there, this is a normal \
                  start",
            valid: &["/run/weir.sock"],
            ..FLAG_DEFAULTS
        },
        ACCESS_LOG,
        Flag {
            long: "log-format",
            value: "json|combined|haproxy",
            default: "json",
            doc: "Format of the access log; needs --access-log",
            valid: &[],
            invalid: &["xml"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "balance",
            value: "random-of-two|latency|round-robin|least-connections|consistent-hash|first",
            default: "random-of-two",
            doc: "Load balancing algorithm; consistent-hash uses the client's address",
            valid: &["round-robin", "latency", "consistent-hash"],
            invalid: &["x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "reuse",
            value: "never|safe|always",
            default: "safe",
            doc: "Reuse of server connections. never: each client has its own; safe: any idle one, \
                  but a client's first request only if it may be retried; always: any",
            valid: &["always"],
            invalid: &["x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "to-http",
            value: "1.1|2|auto",
            default: "1.1",
            doc: "HTTP version of the connections to the servers; 2: with prior knowledge",
            valid: &["2"],
            invalid: &["3"],
            ..FLAG_DEFAULTS
        },
        Flag { default: "half of the descriptor limit", ..CONNECTIONS_MAX },
        DRAIN_TIMEOUT,
        UNTIL_STDIN_CLOSES,
    ],
    examples: &[
        (
            "weir proxy --listen 127.0.0.1:8080 --to 127.0.0.1:8000,127.0.0.1:8001",
            "balance the load between two servers",
        ),
        ("weir proxy --to 127.0.0.1:8000 --explain 'GET http://example.org/a'", "route of a request"),
    ],
};

/// Returns the texts of a proxy's flags.
pub(crate) fn proxy_flags(args: CommandArgs<'_>) -> ProxyFlags {
    let text = |long| args.text(long).unwrap_or_default();
    ProxyFlags {
        listen: args.texts("listen"),
        to: text("to"),
        mode: text("mode"),
        tls_certs: args.texts("tls-cert"),
        tls_keys: args.texts("tls-key"),
        tls_self_signed: args.is_set("tls-self-signed"),
        threads: text("threads"),
        pin: text("pin"),
        admin: text("admin"),
        control: text("control"),
        access_log: text("access-log"),
        log_format: text("log-format"),
        balance: text("balance"),
        reuse: text("reuse"),
        to_http: text("to-http"),
        connections_max: text("connections-max"),
        drain_timeout: text("drain-timeout"),
    }
}
