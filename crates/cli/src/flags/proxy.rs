//! The flags of `weir proxy`.

use proxy_config::config::ProxyFlags;
use proxy_plan::plan::Balance;

use super::server::{
    ACCESS_LOG, CONNECTIONS_MAX, DRAIN_TIMEOUT, LISTEN, PIN, THREADS, TLS_CERT, TLS_KEY, TLS_SELF_SIGNED,
    UNTIL_STDIN_CLOSES,
};
use super::{CommandArgs, CommandInfo, Flag, flag, switch};

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
        flag("to", "ADDRESS[,ADDRESS]")
            .values(&["127.0.0.1:8000", "127.0.0.1:8000,127.0.0.1:8001"], &["8000", "127.0.0.1:8000,,"])
            .doc("Servers to forward to (one pool)"),
        flag("config", "FILE").values(&["weir.toml"], &[]).doc(
            "Config file in TOML, excludes --listen and --to; also excludes the other flags that are \
             keys of the file",
        ),
        switch("reload-on-change").doc(
            "Reload when the config file, a certificate or a key changes, as SIGHUP does; also \
             in mounted ConfigMaps and Secrets; polls twice a second",
        ),
        switch("check").doc("Validate the config and exit"),
        flag("explain", "'[METHOD] URL'")
            .values(&["http://example.org/a?b", "POST /a"], &[])
            .doc("Print which route and pool a request would use, and exit; includes the reason"),
        flag("header", "'NAME: VALUE'")
            .short('H')
            .repeatable()
            .values(&["X-Debug: 1"], &[])
            .doc("Header field of the request for --explain; repeatable"),
        flag("source", "IP").values(&["192.0.2.1"], &[]).doc("Client address for --explain"),
        flag("certificate", "SUBJECT")
            .values(&["CN=client1"], &[])
            .doc("Subject of the client's certificate for --explain (RFC 4514)"),
        switch("schema").doc("Print the JSON schema of the config, for editors, and exit"),
        flag("mode", "http|tcp").default("http").values(&["tcp"], &["udp"]).doc("Protocol"),
        TLS_CERT,
        TLS_KEY,
        TLS_SELF_SIGNED,
        THREADS,
        PIN,
        flag("admin", "ADDRESS").default("off").values(&["127.0.0.1:0"], &["x"]).doc(
            "Address of the status page, /metrics and /health; metrics are in Prometheus \
             format",
        ),
        flag("control", "PATH")
            .default("none")
            .values(&["/tmp/weir-ctl.sock"], &["/tmp/"])
            .doc("Unix socket for weir ctl; root and the proxy's own user may use it"),
        flag("upgrade-from", "PATH").values(&["/run/weir.sock"], &[]).doc(
            "Control socket of the proxy to replace; takes over its listening sockets, and \
             the old process drains and exits. If nothing listens there, this is a normal \
             start",
        ),
        ACCESS_LOG,
        flag("log-format", "json|combined|haproxy")
            .default("json")
            .values(&[], &["xml"])
            .doc("Format of the access log; needs --access-log"),
        flag("balance", Balance::FLAG_CHOICE)
            .default(Balance::NAMES[0])
            .values(&["round-robin", "latency", "consistent-hash"], &["x"])
            .doc("Load balancing algorithm; consistent-hash uses the client's address"),
        flag("reuse", "never|safe|always").default("safe").values(&["always"], &["x"]).doc(
            "Reuse of server connections. never: each client has its own; safe: any idle one, \
             but a client's first request only if it may be retried; always: any",
        ),
        flag("to-http", "1.1|2|auto")
            .default("1.1")
            .values(&["2"], &["3"])
            .doc("HTTP version of the connections to the servers; 2: with prior knowledge"),
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
