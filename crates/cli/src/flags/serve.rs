//! The flags of `weir serve`.

use serve::plan::PlanText;

use super::{CommandRow, FLAG, Flag, Typed};

pub(crate) const SERVE: CommandRow = CommandRow {
    name: "serve",
    about: "Serve answers that are made to order: an origin for tests",
    doc: "The URL says what the answer is: size, delay, status, chunks, processor time; GET / \
          explains the language, which is httpterm's and more. GET /stats tells as JSON what was \
          served, so that a client's own count can be checked against it.",
    values: None,
    flags: &[
        Flag {
            long: "listen",
            short: Some('l'),
            value: "ADDRESS",
            many: true,
            default: "127.0.0.1:8000",
            doc: "Where to listen: 127.0.0.1:8000, [::1]:8000, :8000 or unix:/path; port 0 lets \
                  the kernel choose; may be given several times",
            right: &["127.0.0.1:0", "unix:/tmp/weir.sock", ":8001"],
            wrong: &["8000", "127.0.0.1:99999", "unix:"],
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
            long: "spin",
            doc: "Never sleep: threads look for work without a pause, so that a delay (t=) is not \
                  lengthened by the time that a sleeping processor takes to wake up; each uses a \
                  whole core",
            ..FLAG
        },
        Flag {
            long: "connections-max",
            value: "N",
            default: "the descriptor limit less 64",
            doc: "Connections that may be open; at the limit no more are accepted until one closes",
            right: &["1k"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "idle-timeout",
            value: "TIME",
            default: "60s",
            doc: "How long a connection may wait for its next request; bare: s",
            right: &["5", "500ms"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "head-timeout",
            value: "TIME",
            default: "10s",
            doc: "How long a request's head may take, from its first byte to its last; bare: s",
            right: &["5"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "body-timeout",
            value: "TIME",
            default: "30s",
            doc: "How long a request's body may make no progress; bare: s",
            right: &["5"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "write-timeout",
            value: "TIME",
            default: "30s",
            doc: "How long a client may take nothing of its answer; bare: s",
            right: &["5"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "drain-timeout",
            value: "TIME",
            default: "30s",
            doc: "How long answers in flight may go on after SIGTERM; bare: s",
            right: &["5"],
            wrong: &["0", "x"],
            ..FLAG
        },
        Flag {
            long: "head-bytes-max",
            value: "SIZE",
            default: "16k",
            doc: "The longest request head; a longer one is answered with 431",
            right: &["8k"],
            wrong: &["10", "x"],
            ..FLAG
        },
        Flag {
            long: "access-log",
            value: "FILE|-",
            default: "off",
            doc: "Log a line per request in combined format; lines that the disk is too slow for \
                  are dropped and counted",
            right: &["-"],
            ..FLAG
        },
        Flag {
            long: "until-stdin-closes",
            doc: "Stop as on SIGTERM when stdin ends, for whoever starts an origin as a child",
            ..FLAG
        },
    ],
    examples: &[
        ("weir serve", "listen on 127.0.0.1:8000"),
        (
            "weir serve --listen 127.0.0.1:0 --listen unix:weir.sock -t 1",
            "one thread, two listeners, a port that the kernel chooses",
        ),
    ],
};

/// The texts of an origin's flags.
pub(crate) fn serve_text(typed: Typed<'_>) -> PlanText {
    let text = |long| typed.text(long).unwrap_or_default();
    PlanText {
        listen: typed.texts("listen"),
        threads: text("threads"),
        pin: text("pin"),
        spin: typed.is_set("spin"),
        access_log: text("access-log"),
        idle_timeout: text("idle-timeout"),
        head_timeout: text("head-timeout"),
        body_timeout: text("body-timeout"),
        write_timeout: text("write-timeout"),
        drain_timeout: text("drain-timeout"),
        connections_max: text("connections-max"),
        head_bytes_max: text("head-bytes-max"),
    }
}
