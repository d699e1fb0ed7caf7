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
    /// A share that may be more than all of it, up to this many times: `150%` or `1.5`.
    ShareTo(f64),
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
    /// A time, or this word.
    TimeOr(&'static str),
    /// A text, or a number as it is written.
    Plain,
    /// Texts or numbers: `["1", "2"]`.
    List,
    /// A table of texts by any name.
    Texts,
    /// A table of these keys.
    Table(&'static [Key]),
    /// A table of tables of these keys, by any name. What is no table stands for the first of the keys.
    Each(&'static [Key]),
    /// A table of tables by any name, each of which has these keys and any key of [`FILE`]. What they
    /// change there is read where they are laid over a file.
    Patches(&'static [Key]),
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

pub(super) const fn key(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, form, needed: false, doc }
}

pub(super) const fn needed(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, form, needed: true, doc }
}

pub(super) const NODE: Form = Form::Word(&["client", "subject", "origin"]);
const COUNT: Form = Form::Count(1, 1 << 40);
/// More would take days.
const BLOCK_COUNT: Form = Form::Count(1, 1000);

/// The tables of one trial's file.
pub const FILE: &[Key] = &[
    key("title", Form::Text, "What the experiment shows, in a line"),
    key("scenario", Form::Table(SCENARIO), "What is made around the programs"),
    key(
        "subject",
        Form::Table(PROGRAM),
        "The program under test; needed where no `scenario.illness` takes its place",
    ),
    key("origin", Form::Table(PROGRAM), "A server behind it, started before"),
    key(
        "programs",
        Form::Each(super::extra::KEYS),
        "More programs, by any name, started in the order of the file before [origin] and [subject]: \
         further origins, databases, neighbours that use the same network",
    ),
    needed("load", Form::Table(LOAD), "What is asked of the subject"),
    key("files", Form::Texts, "Files to write into the run's folder, `{dir}`, by their names"),
];

/// What an experiment's file has besides.
pub const EXPERIMENT: &[Key] = &[
    key("name", Form::Text, "A short name: letters, digits and `-`; the file's name if not given"),
    key(
        "parameters",
        Form::Each(PARAMETER),
        "Texts that stand for `{NAME}` in every text of the tables above; `--set NAME=TEXT` gives \
         another one. `{{NAME}}` stands for `{NAME}` itself, and `${NAME}` is left as it is",
    ),
    key(
        "arms",
        Form::Patches(TITLED),
        "What is compared: each arm is the file with these keys changed, for instance \
         `subject.env.LD_PRELOAD` or `parameters.threads`",
    ),
    key(
        "loads",
        Form::Patches(TITLED),
        "Under what it is compared: each load is the file with these keys changed too; every arm \
         runs under every load",
    ),
    key(
        "factors",
        Form::Each(FACTOR),
        "Parameters with their levels; the arms, or the loads, are all combinations of them",
    ),
    key("measure", Form::Table(MEASURE), "What is measured, how often, and how sure it has to be"),
    key(
        "discard",
        Form::Table(DISCARD),
        "Bounds of what could have disturbed a trial. Beyond one of them it does not count, and its \
         block's arms are run again under that load, whatever was measured",
    ),
];

const PARAMETER: &[Key] = &[
    key(
        "value",
        Form::Plain,
        "The text; without one it has to be given with `--set`. `NAME = \"text\"` is short for it",
    ),
    key("doc", Form::Text, "What it is"),
];

const TITLED: &[Key] = &[key("title", Form::Text, "What it is, in a line")];

const FACTOR: &[Key] = &[
    needed("levels", Form::List, "Its levels; `NAME = [\"1\", \"2\"]` is short for it"),
    key("of", Form::Word(&["arms", "loads"]), "Which it makes; arms if not given"),
];

const MEASURE: &[Key] = &[
    key(
        "primary",
        Form::Text,
        "The metric that decides, fixed before the run; `responses_per_s` if not given, and \
         `subject_us_per_response` where a load has a rate of its own (`-R`)",
    ),
    key(
        "also",
        Form::List,
        "Further metrics; `responses_per_s`, `p50_ns`, `p99_ns`, `subject_us_per_response`, \
         `subject_cpus`, `generator_cpus` and `error_share` if not given",
    ),
    key("effect", Form::Share, "The smallest effect that matters; 2% if not given"),
    key("baseline", Form::Text, "The arm that others are held against; the first if not given"),
    key("duration", Form::Time, "Length of each load, `{duration}`; 8s if not given"),
    key(
        "blocks",
        Form::Table(BLOCKS),
        "Blocks: each is every arm under every load, in random order",
    ),
    key("confidence", Form::Share, "Of the intervals; 95% if not given"),
    key("profile", Form::Flag, "Sample the subject's functions, and keep the folded stacks"),
    key(
        "calls",
        Form::Text,
        "Count calls of the subject in trials of their own that are not judged: `allocations` \
         (whatever gives new memory), `malloc`, `calloc`, `realloc`, `free`, `syscalls`, or a system \
         call by its name",
    ),
];

/// The largest share of groups that may be run again.
pub const RERUNS_SHARE_MAX: f64 = 10.0;

const BLOCKS: &[Key] = &[
    key("min", BLOCK_COUNT, "How many there are at least; 10 if not given"),
    key("max", BLOCK_COUNT, "How many there are at most; 30 if not given"),
    key(
        "reruns-max",
        Form::ShareTo(RERUNS_SHARE_MAX),
        "How often the arms of a block under a load may be run again because something disturbed \
         one of them, as a share of all of them; 50% if not given",
    ),
];

/// The keys of `[discard]`.
pub const DISCARD: &[Key] = &[
    key(
        "steal",
        Form::Share,
        "Share of the machine's time that the hypervisor gave to others; 2% if not given",
    ),
    key(
        "foreign-cpus",
        Form::Number,
        "Processors used by programs that are not the experiment's; 0.05 if not given",
    ),
    key(
        "wake-up-ratio",
        Form::Number,
        "How late sleeping threads wake up (99 % of it), over the median of the first \
         five trials of its arm and load; 2 if not given",
    ),
    key(
        "generator-lag",
        Form::Time,
        "How late the generator sends (99 % of it), where the load has a rate; 1ms if not given",
    ),
    key(
        "generator-busiest",
        Form::Share,
        "Share of a processor that the generator's busiest thread used; no bound if not given",
    ),
    key(
        "errors",
        Form::Share,
        "Share of the requests that failed or were answered with 400 and above; 0.1% if not given. It is \
         the one bound of something that the load itself measures: a trial with errors says nothing of the \
         work. Which arm's trials it took is a warning",
    ),
    key(
        "throttled",
        Form::Share,
        "Share of the periods in which a quota stopped the subject that the experiment did not \
         give it; 0 if not given",
    ),
    key("clock-step", Form::Time, "By how much the wall clock was set; 100ms if not given"),
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
        "illness",
        Form::Table(super::illness::KEYS),
        "Weir's own server with what makes it ill (`weir lab sick`), in the place of `[subject]` or `[origin]`. It is at port 8000; at `{port}` where the network is `loopback`",
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
    key(
        "workers",
        Form::Number,
        "Of the subject's child processes together, set once it is ready; the subject itself keeps its own",
    ),
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

pub(super) const PROGRAM: &[Key] = &[
    needed(
        "command",
        Form::Text,
        "The command, with `'…'` and `\"…\"` as in a shell; `{weir}` is this program, `{dir}` the run's folder, `{subject}` and `{origin}` are addresses, `{port}` is a free port",
    ),
    needed(
        "ready",
        Form::Text,
        "Address and port that it takes connections on once it is ready: `{subject}:8000`",
    ),
    key(
        "ready-path",
        Form::Text,
        "What has to be answered with 200 to 399 besides before it is ready, by HTTP at that address: \
         `/health`",
    ),
    key(
        "ready-command",
        Form::Text,
        "A command that has to succeed (exit 0) besides before it is ready. It runs where the program \
         does, in `{dir}`, again and again",
    ),
    key(
        "ready-within",
        Form::Time,
        "How long it may take until it is ready, at most 10 minutes; 15s if not given",
    ),
    key("env", Form::Texts, "Variables of its environment, besides those that it has anyway"),
    BUILD,
];

/// The step that makes a program out of its source.
pub(super) const BUILD: Key = key(
    "build",
    Form::Text,
    "A command that runs to its end in `{dir}` before any program starts, for instance a compiler; it has \
     none of the scenario's limits, and at most 3 minutes",
);

const LOAD: &[Key] = &[
    key(
        "tool",
        Form::Word(&["weir", "wrk", "ab", "h2load", "h1load", "oha"]),
        "Which program drives the load: `weir load` if not given",
    ),
    needed(
        "flags",
        Form::Text,
        "What stands behind its name (`weir load`); `{duration}` is the length that was asked for",
    ),
    key(
        "warm-up",
        Form::TimeOr("auto"),
        "How long the same load runs before, unrecorded. `auto`, which is the default: an experiment \
         finds it out with pilots, and a single trial takes 1s",
    ),
];

/// The reference of the keys, as Markdown.
#[must_use]
pub fn markdown() -> String {
    let table = |keys| {
        let mut text = String::new();
        lines("", keys, &mut text);
        format!("| Key | Value | Meaning |\n| --- | --- | --- |\n{text}")
    };
    let (trial, experiment) = (table(FILE), table(EXPERIMENT));
    format!("{trial}\nThe file of an experiment has these besides:\n\n{experiment}")
}

fn lines(before: &str, keys: &[Key], text: &mut String) {
    for key in keys {
        let name = format!("{before}{}", key.name);
        let needed = if key.needed { ", needed" } else { "" };
        let doc = key.doc.replace('|', "\\|");
        text.push_str(&format!("| `{name}` | {}{needed} | {doc} |\n", describe(key.form)));
        match key.form {
            Form::Table(below) => lines(&format!("{name}."), below, text),
            Form::Each(below) | Form::Patches(below) => {
                lines(&format!("{name}.NAME."), below, text);
            }
            _ => {}
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
        Form::ShareTo(most) => format!("a share, up to {:.0}%: \"150%\"", most * 100.0),
        Form::Time => "a time: \"20ms\"".to_owned(),
        Form::Size => "a size: \"64k\"".to_owned(),
        Form::Rate => "a rate: \"50mbit\"".to_owned(),
        Form::Cpus => "processors: \"0,2-3\"".to_owned(),
        Form::Flag => "true or false".to_owned(),
        Form::TimeOr(word) => format!("a time: \"20ms\", or \"{word}\""),
        Form::Plain => "a text or a number".to_owned(),
        Form::List => "a list of texts: [\"1\", \"2\"]".to_owned(),
        Form::Texts => "a table of texts".to_owned(),
        Form::Table(_) => "a table".to_owned(),
        Form::Each(_) | Form::Patches(_) => "a table by names".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[Key]) {
        for (at, key) in keys.iter().enumerate() {
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.name);
            assert!(keys[..at].iter().all(|other| other.name != key.name), "{} twice", key.name);
            if let Form::Table(below) | Form::Each(below) | Form::Patches(below) = key.form {
                check(below);
            }
        }
    }

    #[test]
    fn every_key_has_a_doc_and_stands_once() {
        check(FILE);
        check(EXPERIMENT);
        assert!(EXPERIMENT.iter().all(|key| FILE.iter().all(|other| other.name != key.name)));
        let markdown = markdown();
        assert!(markdown.contains("| `scenario.delay.round-trip` | a time: \"20ms\", needed |"));
        assert!(markdown.contains("| `arms.NAME.title` | a text |"));
        assert!(markdown.contains("| `measure.blocks.min` | a whole number from 1 to 1000 |"));
    }
}
