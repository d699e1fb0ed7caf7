//! The flags of `weir serve`.

use serve::plan::{OriginPlanText, OriginTlsText};

use super::tls::{TLS_CIPHERS, TLS_GROUPS};
use super::{CommandArgs, CommandInfo, FLAG_DEFAULTS, Flag};

pub(crate) const SERVE: CommandInfo = CommandInfo {
    name: "serve",
    about: "Serve generated responses: an origin for tests",
    doc: "The URL sets the response: size, delay, status, chunks, CPU time. GET / documents the \
          URL options, a superset of httpterm's. GET /stats returns counters as JSON, so that a \
          client's counters can be checked against them.",
    values: None,
    flags: &[
        Flag {
            long: "listen",
            short: Some('l'),
            value: "ADDRESS",
            repeatable: true,
            default: "127.0.0.1:8000",
            doc: "Address to listen on, repeatable: 127.0.0.1:8080, [::1]:8080, :8080 or \
                  unix:/path; port 0: chosen by the kernel",
            valid: &["127.0.0.1:0", "unix:/tmp/weir.sock", ":8001"],
            invalid: &["8000", "127.0.0.1:99999", "unix:"],
        },
        Flag {
            long: "threads",
            short: Some('t'),
            value: "N",
            default: "one per CPU",
            doc: "Worker threads",
            valid: &["1"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "pin",
            value: "CPUS",
            default: "not pinned",
            doc: "CPUs to pin threads to, round-robin: 0,2 or 0-3, or all",
            valid: &["0", "all"],
            invalid: &["x", "3-1"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "spin",
            doc: "Busy-poll instead of sleeping; delays (t=) then exclude the wake-up latency of \
                  an idle CPU; each thread uses a complete core",
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "connections-max",
            value: "N",
            default: "descriptor limit minus 64",
            doc: "Max open connections; at the limit weir stops accepting until one closes",
            valid: &["1k"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "idle-timeout",
            value: "TIME",
            default: "60s",
            doc: "Max time between requests on a connection; default unit: s",
            valid: &["5", "500ms"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "head-timeout",
            value: "TIME",
            default: "10s",
            doc: "Max time for a request head, first to last byte; default unit: s",
            valid: &["5"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "body-timeout",
            value: "TIME",
            default: "30s",
            doc: "Max time without progress of a request body; default unit: s",
            valid: &["5"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "write-timeout",
            value: "TIME",
            default: "30s",
            doc: "Max time in which a client reads no response bytes; default unit: s",
            valid: &["5"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "drain-timeout",
            value: "TIME",
            default: "30s",
            doc: "Max time for responses in flight after SIGTERM; default unit: s",
            valid: &["5"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "head-bytes-max",
            value: "SIZE",
            default: "16k",
            doc: "Max size of a request head; longer ones get status 431",
            valid: &["8k"],
            invalid: &["10", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "http",
            value: "1.1|2|auto",
            default: "auto",
            doc: "HTTP versions; auto: both, by ALPN with TLS, and by the first bytes of a connection \
                  without it (prior knowledge; Upgrade: h2c is ignored)",
            valid: &["1.1", "2", "auto"],
            invalid: &["1", "h2"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "h2-streams-max",
            value: "N",
            default: "100",
            doc: "HTTP/2: max concurrent streams of a connection, 1 to 10,000; more are refused",
            valid: &["1", "1k"],
            invalid: &["0", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "h2-stream-window",
            value: "SIZE",
            default: "1m",
            doc: "HTTP/2: max receive window of a stream; it grows from 65,535 bytes while the client \
                  fills it",
            valid: &["64k"],
            invalid: &["1k", "4g", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "h2-connection-window",
            value: "SIZE",
            default: "16m",
            doc: "HTTP/2: max receive window of a connection; it grows from 1 MiB, or this if it is less",
            valid: &["1m"],
            invalid: &["1k", "4g", "x"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "access-log",
            value: "FILE|-",
            default: "off",
            doc: "Access log in combined format, one line per request; if the disk is too slow, \
                  lines are dropped and counted",
            valid: &["-"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "tls-cert",
            value: "FILE",
            repeatable: true,
            default: "none",
            doc: "Speak TLS on all listeners, with this certificate chain (PEM); the client's server \
                  name selects one of several; may contain its key; repeatable",
            invalid: &["/no/such/file"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "tls-key",
            value: "FILE",
            repeatable: true,
            default: "the files of --tls-cert",
            doc: "Private keys of the certificates, in the order of --tls-cert",
            invalid: &["/no/such/file"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "tls-self-signed",
            doc: "Speak TLS on all listeners, with a new self-signed certificate for localhost, \
                  127.0.0.1 and ::1",
            ..FLAG_DEFAULTS
        },
        TLS_CIPHERS,
        TLS_GROUPS,
        Flag {
            long: "until-stdin-closes",
            doc: "Stop as on SIGTERM when stdin closes; for parent processes",
            ..FLAG_DEFAULTS
        },
    ],
    examples: &[
        ("weir serve", "listen on 127.0.0.1:8000"),
        (
            "weir serve --listen 127.0.0.1:0 --listen unix:weir.sock -t 1",
            "one thread, two listeners, a port that the kernel chooses",
        ),
        ("weir serve --listen 127.0.0.1:0 --tls-self-signed", "HTTPS for clients that verify nothing"),
        ("weir serve --listen 127.0.0.1:0 --http 2", "HTTP/2 with prior knowledge only"),
    ],
};

/// Returns the texts of an origin's flags.
pub(crate) fn serve_flags(args: CommandArgs<'_>) -> OriginPlanText {
    let text = |long| args.text(long).unwrap_or_default();
    OriginPlanText {
        listen: args.texts("listen"),
        threads: text("threads"),
        pin: text("pin"),
        spin: args.is_set("spin"),
        access_log: text("access-log"),
        tls: OriginTlsText {
            certificates: args.texts("tls-cert"),
            keys: args.texts("tls-key"),
            self_signed: args.is_set("tls-self-signed"),
            ciphers: args.text("tls-ciphers"),
            groups: args.text("tls-groups"),
        },
        idle_timeout: text("idle-timeout"),
        head_timeout: text("head-timeout"),
        body_timeout: text("body-timeout"),
        write_timeout: text("write-timeout"),
        drain_timeout: text("drain-timeout"),
        connections_max: text("connections-max"),
        head_bytes_max: text("head-bytes-max"),
        http: text("http"),
        h2_streams_max: text("h2-streams-max"),
        h2_stream_window: text("h2-stream-window"),
        h2_connection_window: text("h2-connection-window"),
    }
}
