//! `[scenario.fault]`: weir's own server with fault injection (`weir lab faulty-server`) in place of a
//! program. Faults inside a process (a lock, allocations, a slow log, split writes) cannot be
//! injected from outside, so they need a separate program.
//!
//! Not for the faults themselves: `weir lab faulty-server` injects them. Each key has the name of its flag.

use record::document::Problems;
use record::document::table::{KeySpec, TableValues, ValueForm, key};

use super::plan::{Network, Node};
use super::program::ProgramSetup;

/// Maximum body size of the server, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 20;
const U32: ValueForm = ValueForm::Count(1, u32::MAX as u64);

pub(super) const KEYS: &[KeySpec] = &[
    key(
        "at",
        ValueForm::Word(&["subject", "origin"]),
        "Program that the faulty server replaces; the default is the subject",
    ),
    key(
        "threads",
        ValueForm::Count(1, 1024),
        "Worker threads, each with many connections; the default is one thread per connection",
    ),
    key("burn", ValueForm::Time, "CPU time in user space per response"),
    key("syscalls", U32, "System calls per response"),
    key("lock", ValueForm::Time, "CPU time per response under one global lock"),
    key("allocations", U32, "Allocations per response"),
    key("data-bytes", ValueForm::Size, "Size of a file that is created at the start, `{dir}/data`"),
    key("pages", U32, "Pages of 4 KiB that each response reads from the data file, at random"),
    key("log", ValueForm::Flag, "Log line per response, in `{dir}/access.log`"),
    key("log-dsync", ValueForm::Flag, "Log line per response, on the disk before the response is sent"),
    key(
        "log-pipe",
        ValueForm::Size,
        "Log line per response, into a pipe that is read at this rate in bytes per second",
    ),
    key("split-write", ValueForm::Flag, "Head and body in two writes, with Nagle's algorithm enabled"),
    key("backlog", ValueForm::Count(1, i32::MAX as u64), "Length of the accept queue; the default is 1024"),
    key("accept-delay", ValueForm::Time, "Pause before each accept"),
    key("delay", ValueForm::Time, "Pause before each response"),
    key("error-fraction", ValueForm::Fraction, "Fraction of requests that get a 500 response"),
    key(
        "drop-fraction",
        ValueForm::Fraction,
        "Fraction of requests whose connection is closed without a response",
    ),
    key("body", ValueForm::Size, "Size of a response body, max 64m; the default is 100 bytes"),
    key("close-after-response", ValueForm::Flag, "Close the connection after each response"),
    key("ignore-close", ValueForm::Flag, "Never close a connection, even if the client asks for it"),
];

/// Returns the program of the table, and the node that it replaces. On loopback it takes a free
/// port: another run may use the fixed one.
pub(super) fn faulty_program(
    values: &TableValues,
    network: Network,
    problems: &mut Problems,
) -> (Node, ProgramSetup) {
    let at = values.text("at").and_then(Node::from_name).unwrap_or(Node::Subject);
    if values.integer("body").is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
        problems.add_error(values.offset_of("body"), "'scenario.fault.body' is at most 64m");
    }
    if values.integer("pages").is_some() && values.integer("data-bytes").is_none() {
        let text = "'scenario.fault.pages' needs 'data-bytes', the size of the data file";
        problems.add_error(values.offset_of("pages"), text);
    }
    let port = if network == Network::Loopback { "{port}" } else { "8000" };
    let listen = format!("{{{at}}}:{port}");
    let mut command: Vec<String> =
        ["{weir}", "lab", "faulty-server", "--listen", &listen].map(str::to_owned).to_vec();
    for key in KEYS {
        command.extend(flag_words(key, values));
    }
    let has_log = values.is_set("log") || values.is_set("log-dsync");
    if has_log || values.integer("log-pipe").is_some() {
        command.extend(["--log".to_owned(), "{dir}/access.log".to_owned()]);
    }
    (at, ProgramSetup { command, ready: listen, ..ProgramSetup::default() })
}

fn flag_words(key: &KeySpec, values: &TableValues) -> Vec<String> {
    let text = match key.form {
        ValueForm::Time => values.integer(key.name).map(|ns| format!("{ns}ns")),
        ValueForm::Fraction => values.decimal(key.name).map(|fraction| fraction.to_string()),
        ValueForm::Flag | ValueForm::Word(_) => None,
        _ => values.integer(key.name).map(|integer| integer.to_string()),
    };
    let flag = format!("--{}", key.name);
    match (key.name, text) {
        // The flag of the log file is added once, for all keys with a log.
        ("log", _) => Vec::new(),
        ("data-bytes", Some(text)) => {
            vec!["--data".to_owned(), "{dir}/data".to_owned(), flag, text]
        }
        (_, Some(text)) => vec![flag, text],
        (_, None) if values.is_set(key.name) => vec![flag],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::setup::LabSetup;

    fn setup(text: &str) -> Result<LabSetup, String> {
        let text = format!("{text}\n[load]\nflags = \"-c 1 http://{{subject}}:8000/\"\n");
        let problem_texts = |problems: Vec<record::problem::InputProblem>| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        LabSetup::parse("a", &text).map_err(problem_texts)
    }

    #[test]
    fn a_faulty_server_replaces_the_subject() {
        let config = setup(
            "scenario.fault = { lock = \"50us\", allocations = 7, split-write = true, \
             error-fraction = \"5%\", close-after-response = false }",
        );
        let subject = config.unwrap().subject;
        let flags = "--lock 50000ns --allocations 7 --split-write --error-fraction 0.05";
        let command = format!("{{weir}} lab faulty-server --listen {{subject}}:8000 {flags}");
        assert_eq!(subject.command.join(" "), command);
        assert_eq!(subject.ready, "{subject}:8000");
        let words = |text: &str| setup(text).unwrap().subject.command[5..].join(" ");
        assert_eq!(words("scenario.fault = {}"), "");
        let loopback = "scenario = { network = \"loopback\", fault.threads = 1 }";
        assert_eq!(setup(loopback).unwrap().subject.ready, "{subject}:{port}");
        assert_eq!(words("scenario.fault.log = true"), "--log {dir}/access.log");
        let slow = "scenario.fault = { log-dsync = true, log-pipe = \"20k\" }";
        assert_eq!(words(slow), "--log-dsync --log-pipe 20480 --log {dir}/access.log");
        let pages = "scenario.fault = { data-bytes = \"1m\", pages = 3 }";
        assert_eq!(words(pages), "--data {dir}/data --data-bytes 1048576 --pages 3");
    }

    #[test]
    fn a_faulty_server_may_replace_the_origin() {
        let subject = "[subject]\ncommand = \"a\"\nready = \"{subject}:1\"\n";
        let scenario = "[scenario]\nnetwork = \"chain\"\nfault = { at = \"origin\", delay = \"20ms\" }\n";
        let setup = setup(&format!("{scenario}{subject}")).unwrap();
        assert_eq!(setup.subject.command, ["a"]);
        let origin = setup.origin.unwrap();
        assert_eq!(origin.command[3..], ["--listen", "{origin}:8000", "--delay", "20000000ns"]);
    }

    #[test]
    fn a_faulty_server_without_a_node_is_refused() {
        let subject = "[subject]\ncommand = \"a\"\nready = \"{subject}:1\"\n";
        let problems_of = |text: &str| setup(text).unwrap_err();
        let neither = problems_of("");
        assert!(neither.starts_with("a:1:1: ") && neither.contains("'subject'"), "{neither}");
        let both = problems_of(&format!("[scenario]\nfault.lock = \"1us\"\n{subject}"));
        assert!(both.starts_with("a:2:1: 'scenario.fault'") && both.contains("[subject]"), "{both}");
        let origin = "scenario.fault.at = \"origin\"";
        let pair = problems_of(&format!("{origin}\n{subject}"));
        assert!(pair.contains("`network = \"chain\"`"), "{pair}");
        assert!(problems_of(origin).contains("'subject'"));
        assert!(problems_of("scenario.fault.pages = 3").contains("'data-bytes'"));
        assert!(problems_of("scenario.fault.body = \"65m\"").contains("64m"));
        assert!(problems_of("scenario.fault.burn = 5").contains("'scenario.fault.burn'"));
    }
}
