//! `[scenario.illness]`: weir's own server with a known illness (`weir lab sick`) in the place of a
//! program. What goes on inside of a program (a lock, allocations, a slow log, split writes) cannot be
//! brought upon one from outside, so it comes with a program of its own.
//!
//! Not for being ill: that is [`crate::sick`]'s. Each key has the name of the flag that it becomes.

use super::keys::{Form, Key};
use super::plan::{Network, Node};
use super::read::{Problems, Values};
use super::setup::Program;

/// Bytes of a body that the server has.
const BODY_BYTES_MAX: u64 = 64 << 20;
const U32: Form = Form::Count(1, u32::MAX as u64);

const fn key(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, form, needed: false, doc }
}

/// The keys of the table.
pub(super) const KEYS: &[Key] = &[
    key(
        "at",
        Form::Word(&["subject", "origin"]),
        "Whose place it takes; the subject's if not given",
    ),
    key(
        "threads",
        Form::Count(1, 1024),
        "Threads that serve many connections each; one a connection if not given",
    ),
    key("burn", Form::Time, "Processor time in user space for each answer"),
    key("syscalls", U32, "System calls for each answer"),
    key("lock", Form::Time, "Processor time for each answer under one lock for all"),
    key("allocations", U32, "Allocations for each answer"),
    key("data-bytes", Form::Size, "Bytes of a file that is made at the start, `{dir}/data`"),
    key("pages", U32, "Pages of 4 KiB that each answer reads of it, at random"),
    key("log", Form::Flag, "A line for each answer, in `{dir}/access.log`"),
    key("log-dsync", Form::Flag, "Such a line, which is on the disk before the answer goes"),
    key(
        "log-pipe",
        Form::Size,
        "Such a line, into a pipe that is read at so many bytes per second",
    ),
    key("split-write", Form::Flag, "Head and body are written apart, with Nagle's algorithm on"),
    key(
        "backlog",
        Form::Count(1, i32::MAX as u64),
        "Connections that may wait to be accepted; 1024 if not given",
    ),
    key("accept-delay", Form::Time, "A pause before each accept"),
    key("delay", Form::Time, "A pause before each answer"),
    key("fail-share", Form::Share, "Share of the requests that get a 500"),
    key(
        "drop-share",
        Form::Share,
        "Share of the requests that get no answer, and their connection closed",
    ),
    key("body", Form::Size, "Bytes of a body, at most 64m; 100 if not given"),
    key("close-each", Form::Flag, "The connection is closed after each answer"),
    key("ignore-close", Form::Flag, "Closing is left to the client, also when it asks for it"),
];

/// The program that the table stands for, and in whose place. On loopback it takes a free port: another
/// run may be there.
pub(super) fn program(
    values: &Values,
    network: Network,
    problems: &mut Problems,
) -> (Node, Program) {
    let at = values.text("at").and_then(Node::named).unwrap_or(Node::Subject);
    if values.whole("body").is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
        problems.add(values.place("body"), "'scenario.illness.body' is at most 64m");
    }
    if values.whole("pages").is_some() && values.whole("data-bytes").is_none() {
        let text = "'scenario.illness.pages' are read of a file: say its length with 'data-bytes'";
        problems.add(values.place("pages"), text);
    }
    let port = if network == Network::Loopback { "{port}" } else { "8000" };
    let listen = format!("{{{at}}}:{port}");
    let mut command: Vec<String> =
        ["{weir}", "lab", "sick", "--listen", &listen].map(str::to_owned).to_vec();
    for key in KEYS {
        command.extend(words(key, values));
    }
    let has_log = values.is_set("log") || values.is_set("log-dsync");
    if has_log || values.whole("log-pipe").is_some() {
        command.extend(["--log".to_owned(), "{dir}/access.log".to_owned()]);
    }
    (at, Program { command, ready: listen, ..Program::default() })
}

/// The flag that a key becomes, with what it is given.
fn words(key: &Key, values: &Values) -> Vec<String> {
    let text = match key.form {
        Form::Time => values.whole(key.name).map(|ns| format!("{ns}ns")),
        Form::Share => values.decimal(key.name).map(|share| share.to_string()),
        Form::Flag | Form::Word(_) => None,
        _ => values.whole(key.name).map(|whole| whole.to_string()),
    };
    let flag = format!("--{}", key.name);
    match (key.name, text) {
        // Its file is said once, for whichever of the keys asks for a log.
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
    use crate::scenario::setup::Setup;

    fn setup(text: &str) -> Result<Setup, String> {
        let text = format!("{text}\n[load]\nflags = \"-c 1 http://{{subject}}:8000/\"\n");
        let told = |problems: Vec<record::problem::Problem>| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        Setup::parse("a", &text).map_err(told)
    }

    #[test]
    fn an_illness_is_a_program_in_the_subjects_place() {
        let found = setup(
            "scenario.illness = { lock = \"50us\", allocations = 7, split-write = true, \
             fail-share = \"5%\", close-each = false }",
        );
        let subject = found.unwrap().subject;
        let flags = "--lock 50000ns --allocations 7 --split-write --fail-share 0.05";
        let command = format!("{{weir}} lab sick --listen {{subject}}:8000 {flags}");
        assert_eq!(subject.command.join(" "), command);
        assert_eq!(subject.ready, "{subject}:8000");
        let words = |text: &str| setup(text).unwrap().subject.command[5..].join(" ");
        assert_eq!(words("scenario.illness = {}"), "");
        let loopback = "scenario = { network = \"loopback\", illness.threads = 1 }";
        assert_eq!(setup(loopback).unwrap().subject.ready, "{subject}:{port}");
        assert_eq!(words("scenario.illness.log = true"), "--log {dir}/access.log");
        let slow = "scenario.illness = { log-dsync = true, log-pipe = \"20k\" }";
        assert_eq!(words(slow), "--log-dsync --log-pipe 20480 --log {dir}/access.log");
        let pages = "scenario.illness = { data-bytes = \"1m\", pages = 3 }";
        assert_eq!(words(pages), "--data {dir}/data --data-bytes 1048576 --pages 3");
    }

    #[test]
    fn an_illness_may_be_the_origins() {
        let subject = "[subject]\ncommand = \"a\"\nready = \"{subject}:1\"\n";
        let scenario =
            "[scenario]\nnetwork = \"chain\"\nillness = { at = \"origin\", delay = \"20ms\" }\n";
        let setup = setup(&format!("{scenario}{subject}")).unwrap();
        assert_eq!(setup.subject.command, ["a"]);
        let origin = setup.origin.unwrap();
        assert_eq!(origin.command[3..], ["--listen", "{origin}:8000", "--delay", "20000000ns"]);
    }

    #[test]
    fn an_illness_that_has_no_place_is_refused() {
        let subject = "[subject]\ncommand = \"a\"\nready = \"{subject}:1\"\n";
        let told = |text: &str| setup(text).unwrap_err();
        assert!(told("").starts_with("a:1:1: 'subject' is missing"), "{}", told(""));
        let both = told(&format!("[scenario]\nillness.lock = \"1us\"\n{subject}"));
        assert!(
            both.starts_with("a:2:1: 'scenario.illness' takes the place of [subject]"),
            "{both}"
        );
        let origin = "scenario.illness.at = \"origin\"";
        let pair = told(&format!("{origin}\n{subject}"));
        assert!(pair.contains("an origin needs `network = \"chain\"`"), "{pair}");
        assert!(told(origin).contains("'subject' is missing"));
        assert!(told("scenario.illness.pages = 3").contains("say its length"));
        assert!(told("scenario.illness.body = \"65m\"").contains("at most 64m"));
        assert!(told("scenario.illness.burn = 5").contains("takes a time"));
    }
}
