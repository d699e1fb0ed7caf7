//! The flags of `weir watch`.

use super::load::JSON;
use super::{CommandRow, FLAG, Flag};

pub(crate) const WATCH: CommandRow = CommandRow {
    name: "watch",
    about: "Show what the machine, its programs and their sockets are doing",
    doc: "Processors, threads, quotas, descriptors, links, TCP counters, listen queues and sockets \
          of the programs that are named, with the lines that matter now on top, each explained in \
          a sentence. Without a program it shows the machine and its busiest programs. On a \
          terminal it is a full screen (? explains it); in a pipe a block of text for each \
          interval. What the machine does not tell is listed with the reason, and so is what the \
          watching itself costs.\n\nPrograms are called `subject`, and by their command and number \
          where there are several, unless they are given a name as in --port origin=9000. The \
          children of a program belong to it.",
    values: None,
    flags: WATCH_FLAGS,
    examples: &[
        ("weir watch --once", "one second of the machine and its busiest programs"),
        (
            "weir watch --once --port 8000 -d 2s",
            "two seconds of whoever listens on a port, and of the servers behind it",
        ),
        (
            "weir watch --url http://127.0.0.1:8000/ -d 2s --json watch.json",
            "keep what was seen, for a verdict later",
        ),
    ],
};

const WATCH_FLAGS: &[Flag] = &[
    Flag {
        long: "pid",
        value: "[NAME=]PID",
        many: true,
        doc: "Watch this process and its children; may be given several times",
        right: &["1", "origin=1"],
        wrong: &["0", "nginx", "=1", "4294967296"],
        ..FLAG
    },
    Flag {
        long: "port",
        value: "[NAME=]PORT",
        many: true,
        doc: "Watch who listens on this TCP port, and the servers behind it on this machine; may \
              be given several times",
        right: &["8000", "origin=9000"],
        wrong: &["0", "65536", "http", "=1"],
        ..FLAG
    },
    Flag {
        long: "url",
        value: "URL",
        many: true,
        doc: "Watch who serves this URL on this machine, and the servers behind it",
        right: &["http://127.0.0.1:8000/"],
        wrong: &["127.0.0.1", "https://x/", ""],
        ..FLAG
    },
    Flag {
        long: "duration",
        short: Some('d'),
        value: "TIME",
        default: "until Ctrl-C, or 1s with --once",
        doc: "End after this time, 100ms at the least; bare: s",
        right: &["10", "1m"],
        wrong: &["0", "10ms", "1d", "long"],
        ..FLAG
    },
    Flag {
        long: "every",
        value: "TIME",
        default: "1s",
        doc: "Length of an interval, 100ms to 1m; bare: s",
        right: &["2", "500ms"],
        wrong: &["0", "10ms", "2m", "often"],
        ..FLAG
    },
    Flag { long: "once", doc: "One look, as text, and the end", ..FLAG },
    JSON,
];
