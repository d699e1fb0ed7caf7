//! Keys of an experiment's file: one row each, with its form and its doc. The parser and the
//! reference come from these rows.

use record::document::table::{KeySpec, ValueForm, key, required};

use super::common_keys::{BUILD, NODE};
pub use super::experiment_keys::{
    BOUND_COVARIATES, CPUS_MAX, DISCARD, EXPERIMENT, NEEDS_CPUS, RERUNS_FRACTION_MAX, bound_key,
};

const COUNT: ValueForm = ValueForm::Count(1, 1 << 40);

/// Tables of one trial's file.
pub const FILE: &[KeySpec] = &[
    key("title", ValueForm::Text, "Purpose of the experiment, in one line"),
    key("scenario", ValueForm::Table(SCENARIO), "Network, faults and limits around the processes"),
    key(
        "subject",
        ValueForm::Table(PROGRAM),
        "The program under test; required unless `scenario.fault` replaces it",
    ),
    key("origin", ValueForm::Table(PROGRAM), "Server behind the subject, started before it"),
    key(
        "programs",
        ValueForm::ShortTables(super::extra::KEYS),
        "Additional programs with any name, started in file order before [origin] and [subject]: \
         further origins, databases, neighbours on the same network",
    ),
    key(
        "machine",
        ValueForm::ShortTables(super::machines::KEYS),
        "Programs on machines of a fleet (docs/fleet.md), by any name; they replace all programs and the scenario of \
         this machine. Only `weir lab run` runs them",
    ),
    required("load", ValueForm::Table(LOAD), "Load on the subject"),
    key("files", ValueForm::Texts, "Files to write into the run's directory, `{dir}`, by name"),
];

const HOST_SETTINGS_DOC: &str =
    "Settings of the complete machine: sysctls, or files below `/sys`; requires --allow-global";

pub const SCENARIO: &[KeySpec] = &[
    key(
        "network",
        ValueForm::Word(&["loopback", "pair", "chain"]),
        "`pair` (default): client and subject in separate network namespaces; `chain`: also an \
         origin; `loopback`: all in the host's namespace",
    ),
    key("bandwidth", ValueForm::Table(BANDWIDTH), "A link with a rate (a token bucket, tc-tbf(8))"),
    key("loss", ValueForm::Table(LOSS), "Random packet loss on arrival (nft)"),
    key(
        "delay",
        ValueForm::Table(DELAY),
        "Additional delay: a process between two TUN devices holds the packets",
    ),
    key("packets", ValueForm::Table(PACKETS), "Limit of packets per second"),
    key("cpu-quota", ValueForm::Table(QUOTA), "CPU quota of each node (cgroup)"),
    key(
        "disk-quota",
        ValueForm::Size,
        "Maximum bytes per second that the subject writes to the disk of `{dir}`; cgroup v1 limits only synchronous writes",
    ),
    key("memory-max", ValueForm::Size, "Maximum memory of the subject, including its page cache (cgroup)"),
    key("pin", ValueForm::Table(CPUS_BY_NODE), "CPU affinity of each node"),
    key("noise", ValueForm::Table(NOISE), "Processes that only use CPU time"),
    key(
        "descriptors",
        ValueForm::Table(COUNT_BY_NODE),
        "Maximum open descriptors of each node (RLIMIT_NOFILE)",
    ),
    key("ports", ValueForm::Table(PORTS), "Ports of the client's connections (ip_local_port_range)"),
    key("sysctl", ValueForm::Table(SYSCTLS), "Settings below `net` in a node's namespace"),
    key(
        "interface",
        ValueForm::Table(INTERFACES),
        "Settings of a node's virtual links, without effect on the host",
    ),
    key("rps", ValueForm::Table(STEERING), "Receive packet steering of a node's interface"),
    key("slow-reader", ValueForm::Table(SLOW_READER), "Client with small receive buffers"),
    key(
        "drop-syn-ack",
        ValueForm::Table(HALF_OPEN),
        "Half-open connections from a second address, whose handshake is never completed",
    ),
    key(
        "fault",
        ValueForm::Table(super::fault_injection::KEYS),
        "Weir's own server with fault injection (`weir lab faulty-server`), which replaces `[subject]` or `[origin]`. It listens on port 8000, or on `{port}` if the network is `loopback`",
    ),
    key("host-settings", ValueForm::Texts, HOST_SETTINGS_DOC),
    key("conntrack-max", COUNT, "Maximum tracked connections of the machine; requires --allow-global"),
];

const BANDWIDTH: &[KeySpec] = &[
    required("rate", ValueForm::Rate, "Bits per second"),
    key("burst", ValueForm::Size, "Burst size; the default is 64k"),
    key(
        "latency",
        ValueForm::Time,
        "Maximum waiting time of packets; the default is 50ms unless `limit` is given",
    ),
    key("limit", ValueForm::Size, "Maximum queue length in bytes"),
    key("at", NODE, "Sending node; the default is the subject"),
];

const LOSS: &[KeySpec] = &[
    required("fraction", ValueForm::Fraction, "Fraction of the packets"),
    key("at", NODE, "Receiving node; the default is the client"),
];

const DELAY: &[KeySpec] = &[
    required("round-trip", ValueForm::Time, "Time added to a round trip, half in each direction"),
    key("jitter", ValueForm::Time, "Maximum random extra time in each direction; packets stay in order"),
    key(
        "at",
        ValueForm::Word(&["subject", "origin"]),
        "Node whose link towards the client is delayed; the default is the subject",
    ),
];

const PACKETS: &[KeySpec] = &[
    required("per-second", COUNT, "Packets per second"),
    key(
        "drop",
        ValueForm::Flag,
        "Drop excess packets at the receiver instead of queueing them at the sender",
    ),
    key("at", NODE, "Sending node, or the receiving node with `drop`; the default is the subject"),
];

const QUOTA: &[KeySpec] = &[
    key("client", ValueForm::Number, "Quota of the client"),
    key("subject", ValueForm::Number, "Quota of the subject"),
    key("origin", ValueForm::Number, "Quota of the origin"),
    key(
        "workers",
        ValueForm::Number,
        "All child processes of the subject together, set when it is ready; the subject keeps its own quota",
    ),
    key("period", ValueForm::Time, "Quota period; the default is 100ms"),
];

const CPUS_BY_NODE: &[KeySpec] = &[
    key("client", ValueForm::Cpus, "CPUs of the client"),
    key("subject", ValueForm::Cpus, "CPUs of the subject"),
    key("origin", ValueForm::Cpus, "CPUs of the origin"),
];

const COUNT_BY_NODE: &[KeySpec] = &[
    key("client", COUNT, "Limit of the client"),
    key("subject", COUNT, "Limit of the subject"),
    key("origin", COUNT, "Limit of the origin"),
];

const NOISE: &[KeySpec] = &[
    required("processes", ValueForm::Count(1, 64), "Number of processes"),
    key("cpus", ValueForm::Cpus, "CPUs to run on; the default is all"),
];

const PORTS: &[KeySpec] = &[
    required("first", ValueForm::Count(1024, 65535), "First port"),
    required("last", ValueForm::Count(1024, 65535), "Last port"),
];

const SYSCTLS: &[KeySpec] = &[
    key("client", ValueForm::Texts, "Settings of the client"),
    key("subject", ValueForm::Texts, "Settings of the subject"),
    key("origin", ValueForm::Texts, "Settings of the origin"),
];

const INTERFACES: &[KeySpec] = &[
    key(
        "client",
        ValueForm::Texts,
        "Settings of the client's link: `gro`, `gso`, `tso`, `tx_checksum` and others",
    ),
    key("subject", ValueForm::Texts, "Settings of the subject's links"),
    key("origin", ValueForm::Texts, "Settings of the origin's link"),
];

const STEERING: &[KeySpec] = &[
    required("cpus", ValueForm::Cpus, "CPUs that process the packets"),
    key("at", NODE, "Node of the interface; the default is the subject"),
];

const SLOW_READER: &[KeySpec] =
    &[required("receive-buffer", ValueForm::Size, "Maximum unread bytes of a connection")];

const HALF_OPEN: &[KeySpec] = &[required(
    "per-second",
    ValueForm::Count(1, 100_000),
    "Connection attempts per second, to port 8000 of the subject",
)];

pub(super) const PROGRAM: &[KeySpec] = &[
    required(
        "command",
        ValueForm::Text,
        "Command, with `'…'` and `\"…\"` as in a shell; `{weir}` is this program, `{dir}` the run's directory, `{subject}` and `{origin}` are addresses, `{port}` is a free port",
    ),
    required(
        "ready",
        ValueForm::Text,
        "Address and port on which it accepts connections when ready: `{subject}:8000`",
    ),
    key(
        "ready-path",
        ValueForm::Text,
        "HTTP path at this address that must respond with a status of 200 to 399 before it is ready: \
         `/health`",
    ),
    key(
        "ready-command",
        ValueForm::Text,
        "Command that must succeed (exit 0) before it is ready. It runs repeatedly at the node of the \
         program, in `{dir}`",
    ),
    key("ready-timeout", ValueForm::Time, "Timeout until it is ready, max 10 minutes; the default is 15s"),
    key("env", ValueForm::Texts, "Additional environment variables"),
    BUILD,
];

const LOAD: &[KeySpec] = &[
    key(
        "tool",
        ValueForm::Word(&["weir", "wrk", "ab", "h2load", "h1load", "oha"]),
        "Program that drives the load; the default is `weir load`",
    ),
    required("flags", ValueForm::Text, "Arguments of the tool; `{duration}` is the length of the load"),
    key(
        "warm-up",
        ValueForm::TimeOr("auto"),
        "Duration of the same load before the measurement. With `auto`, the default, an experiment \
         determines it with pilots, and a single trial uses 1s",
    ),
    key(
        "agents",
        ValueForm::Text,
        "Agents of a fleet that drive the load, with [machine.NAME]: a number, `all` (default), or labels, as in \
         --agents of `weir fleet load`",
    ),
];

pub fn markdown() -> String {
    let table = |keys| {
        let mut text = String::new();
        write_rows("", keys, &mut text);
        format!("| Key | Value | Meaning |\n| --- | --- | --- |\n{text}")
    };
    let (trial, experiment) = (table(FILE), table(EXPERIMENT));
    format!("{trial}\nThe file of an experiment has these additional tables:\n\n{experiment}")
}

fn write_rows(before: &str, keys: &[KeySpec], text: &mut String) {
    for key in keys {
        let name = format!("{before}{}", key.name);
        let needed = if key.is_required { ", required" } else { "" };
        let doc = key.doc.replace('|', "\\|");
        text.push_str(&format!("| `{name}` | {}{needed} | {doc} |\n", key.form.describe()));
        match key.form {
            ValueForm::Table(below) => write_rows(&format!("{name}."), below, text),
            ValueForm::ShortTables(below) | ValueForm::Patches(below) => {
                write_rows(&format!("{name}.NAME."), below, text);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_documented(keys: &[KeySpec]) {
        for (at, key) in keys.iter().enumerate() {
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.name);
            assert!(keys[..at].iter().all(|other| other.name != key.name), "{} twice", key.name);
            if let ValueForm::Table(below) | ValueForm::ShortTables(below) | ValueForm::Patches(below) =
                key.form
            {
                assert_documented(below);
            }
        }
    }

    #[test]
    fn every_key_has_a_doc_and_occurs_once() {
        assert_documented(FILE);
        assert_documented(EXPERIMENT);
        assert!(EXPERIMENT.iter().all(|key| FILE.iter().all(|other| other.name != key.name)));
        let markdown = markdown();
        let form_of = |key: &str| {
            let row = markdown.lines().find_map(|line| line.strip_prefix(&format!("| `{key}` | ")));
            row.unwrap_or_else(|| panic!("{key}: {markdown}"))
        };
        let round_trip = form_of("scenario.delay.round-trip");
        assert!(round_trip.contains("\"20ms\"") && round_trip.contains("required"), "{round_trip}");
        assert!(form_of("arms.NAME.title").contains("string"));
        assert!(form_of("measure.blocks.min").contains("1 to 1000"));
    }
}
