//! The keys of an experiment's file: one row each, with its form and its doc. The parser and the
//! reference come from these rows.

/// What a value looks like.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// A decimal number above 0.
    Number,
    /// `2%` or `0.02`.
    Share,
    /// `20ms`.
    Time,
    /// `64k`, in bytes.
    Size,
    /// `50mbit`, in bits per second.
    Rate,
    /// Processors: `0,2-3`.
    Cpus,
    /// `true` or `false`.
    Flag,
    /// A table of texts by any name.
    Texts,
    /// A table of these keys.
    Table(&'static [Key]),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value looks like.
    pub form: Form,
    /// Whether its table is nothing without it.
    pub needed: bool,
    /// What it does.
    pub doc: &'static str,
}

const fn key(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, form, needed: false, doc }
}

const fn needed(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, form, needed: true, doc }
}

const NODE: Form = Form::Word(&["client", "subject", "origin"]);
const COUNT: Form = Form::Count(1, 1 << 40);

/// The tables of a file.
pub const FILE: &[Key] = &[
    key("title", Form::Text, "What the experiment shows, in a line"),
    key("scenario", Form::Table(SCENARIO), "What is made around the programs"),
    needed("subject", Form::Table(PROGRAM), "The program under test"),
    key("origin", Form::Table(PROGRAM), "A server behind it, started before"),
    needed("load", Form::Table(LOAD), "What is asked of the subject"),
    key("files", Form::Texts, "Files to write into the run's folder, `{dir}`, by their names"),
];

/// The keys of `[scenario]`.
pub const SCENARIO: &[Key] = &[
    key(
        "network",
        Form::Word(&["loopback", "pair", "chain"]),
        "`pair` (default): client and subject in a network namespace each; `chain`: and an origin; \
         `loopback`: all on the host's",
    ),
    key("bandwidth", Form::Table(BANDWIDTH), "A link with a rate (a token bucket, tc-tbf(8))"),
    key("loss", Form::Table(LOSS), "Packets lost at random where they arrive (nft)"),
    key(
        "delay",
        Form::Table(DELAY),
        "A longer way: packets are held by a forwarder between two TUN devices",
    ),
    key("packets", Form::Table(PACKETS), "A bound of packets per second"),
    key("cpu-quota", Form::Table(QUOTA), "Processors that each may use (a control group's quota)"),
    key(
        "disk-quota",
        Form::Size,
        "Bytes per second that the subject may write to the disk of `{dir}`; only synchronous writes are bounded by groups of version 1",
    ),
    key(
        "memory-max",
        Form::Size,
        "Bytes of memory that the subject may use, with what it has in the page cache (a control group's bound)",
    ),
    key("pin", Form::Table(CPUS_BY_NODE), "Processors that each may run on"),
    key("noise", Form::Table(NOISE), "Programs that only use processors"),
    key(
        "descriptors",
        Form::Table(COUNT_BY_NODE),
        "Descriptors that each may have open (RLIMIT_NOFILE)",
    ),
    key("ports", Form::Table(PORTS), "Ports of the client's connections (ip_local_port_range)"),
    key("sysctl", Form::Table(SYSCTLS), "Settings below `net` in a node's namespace"),
    key("rps", Form::Table(STEERING), "Receive packet steering of a node's interface"),
    key("slow-reader", Form::Table(SLOW_READER), "A client whose connections hold little unread"),
    key(
        "drop-syn-ack",
        Form::Table(HALF_OPEN),
        "Connections that are begun from a second address and never completed",
    ),
    key(
        "conntrack-max",
        COUNT,
        "Connections that the whole machine may track; only with --allow-global",
    ),
];

const BANDWIDTH: &[Key] = &[
    needed("rate", Form::Rate, "Bits per second"),
    key("burst", Form::Size, "Bytes that may go at once; 64k if not given"),
    key(
        "latency",
        Form::Time,
        "For how long packets may wait; 50ms if neither this nor `limit` is given",
    ),
    key("limit", Form::Size, "Bytes that may wait"),
    key("at", NODE, "Whose sending is bounded; the subject's if not given"),
];

const LOSS: &[Key] = &[
    needed("share", Form::Share, "Share of the packets"),
    key("at", NODE, "Where they would have arrived; the client if not given"),
];

const DELAY: &[Key] = &[
    needed("round-trip", Form::Time, "Time added to a round trip, half of it each way"),
    key("jitter", Form::Time, "Up to so much more each way, at random; packets stay in order"),
    key(
        "at",
        Form::Word(&["subject", "origin"]),
        "The link towards the client of this node; the subject's if not given",
    ),
];

const PACKETS: &[Key] = &[
    needed("per-second", COUNT, "Packets per second"),
    key(
        "drop",
        Form::Flag,
        "Drop those beyond where they arrive, instead of holding them where they are sent",
    ),
    key(
        "at",
        NODE,
        "Whose sending is bounded, the subject's if not given; with `drop`, where they arrive",
    ),
];

const QUOTA: &[Key] = &[
    key("client", Form::Number, "The client's"),
    key("subject", Form::Number, "The subject's"),
    key("origin", Form::Number, "The origin's"),
    key("period", Form::Time, "The period in which they are counted; 100ms if not given"),
];

const CPUS_BY_NODE: &[Key] = &[
    key("client", Form::Cpus, "The client's"),
    key("subject", Form::Cpus, "The subject's"),
    key("origin", Form::Cpus, "The origin's"),
];

const COUNT_BY_NODE: &[Key] = &[
    key("client", COUNT, "The client's"),
    key("subject", COUNT, "The subject's"),
    key("origin", COUNT, "The origin's"),
];

const NOISE: &[Key] = &[
    needed("processes", Form::Count(1, 64), "How many"),
    key("cpus", Form::Cpus, "Where they run; anywhere if not given"),
];

const PORTS: &[Key] = &[
    needed("first", Form::Count(1024, 65535), "The first"),
    needed("last", Form::Count(1024, 65535), "The last"),
];

const SYSCTLS: &[Key] = &[
    key("client", Form::Texts, "The client's"),
    key("subject", Form::Texts, "The subject's"),
    key("origin", Form::Texts, "The origin's"),
];

const STEERING: &[Key] = &[
    needed("cpus", Form::Cpus, "The processors that packets go to"),
    key("at", NODE, "Whose interface; the subject's if not given"),
];

const SLOW_READER: &[Key] =
    &[needed("receive-buffer", Form::Size, "Bytes that a connection may hold unread")];

const HALF_OPEN: &[Key] = &[needed(
    "per-second",
    Form::Count(1, 100_000),
    "How many are begun, to the subject's port 8000",
)];

const PROGRAM: &[Key] = &[
    needed(
        "command",
        Form::Text,
        "The command, with `'…'` and `\"…\"` as in a shell; `{weir}` is this program, `{dir}` the run's folder, `{subject}` and `{origin}` are addresses, `{port}` is a free port",
    ),
    needed(
        "ready",
        Form::Text,
        "Address and port that it listens on once it is ready: `{subject}:8000`",
    ),
];

const LOAD: &[Key] = &[
    needed(
        "flags",
        Form::Text,
        "What stands behind `weir load`; `{duration}` is the length that was asked for",
    ),
    key("warm-up", Form::Time, "How long the same load runs before, unrecorded; 1s if not given"),
];

/// The reference of the keys, as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::new();
    lines("", FILE, &mut text);
    format!("| Key | Value | Meaning |\n| --- | --- | --- |\n{text}")
}

fn lines(before: &str, keys: &[Key], text: &mut String) {
    for key in keys {
        let name = format!("{before}{}", key.name);
        let needed = if key.needed { ", needed" } else { "" };
        let doc = key.doc.replace('|', "\\|");
        text.push_str(&format!("| `{name}` | {}{needed} | {doc} |\n", describe(key.form)));
        if let Form::Table(below) = key.form {
            lines(&format!("{name}."), below, text);
        }
    }
}

/// A form in words.
pub(super) fn describe(form: Form) -> String {
    match form {
        Form::Word(words) => words.join(", ").replace(", ", " or "),
        Form::Text => "a text".to_owned(),
        Form::Count(low, high) if high >= 1 << 40 => format!("a whole number from {low}"),
        Form::Count(low, high) => format!("a whole number from {low} to {high}"),
        Form::Number => "a number above 0".to_owned(),
        Form::Share => "a share: \"2%\"".to_owned(),
        Form::Time => "a time: \"20ms\"".to_owned(),
        Form::Size => "a size: \"64k\"".to_owned(),
        Form::Rate => "a rate: \"50mbit\"".to_owned(),
        Form::Cpus => "processors: \"0,2-3\"".to_owned(),
        Form::Flag => "true or false".to_owned(),
        Form::Texts => "a table of texts".to_owned(),
        Form::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[Key]) {
        for (at, key) in keys.iter().enumerate() {
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.name);
            assert!(keys[..at].iter().all(|other| other.name != key.name), "{} twice", key.name);
            if let Form::Table(below) = key.form {
                check(below);
            }
        }
    }

    #[test]
    fn every_key_has_a_doc_and_stands_once() {
        check(FILE);
        assert!(markdown().contains("| `scenario.delay.round-trip` | a time: \"20ms\", needed |"));
    }
}
