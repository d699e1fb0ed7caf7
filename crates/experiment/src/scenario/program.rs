//! Program of a trial, with its readiness conditions, as a file has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use record::document::Problems;
use record::document::table::TableValues;
use record::shell::split_words;

use super::placeholders::fill;

pub const READY_TIMEOUT_DEFAULT_NS: u64 = 15_000_000_000;
const READY_TIMEOUT_NS_MAX: u64 = 600_000_000_000;

/// Program, with its readiness conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramSetup {
    pub command: Vec<String>,
    /// Address that accepts connections once the program is ready, with placeholders.
    pub ready: String,
    /// Additional HTTP path that has to succeed, with placeholders; empty: none.
    pub ready_path: String,
    /// Words of an additional command that has to succeed, with placeholders; empty: none.
    pub ready_command: Vec<String>,
    /// Timeout for readiness; `None`: [`READY_TIMEOUT_DEFAULT_NS`].
    pub ready_timeout_ns: Option<u64>,
    /// Variables added to its environment, with placeholders in the values.
    pub env: BTreeMap<String, String>,
    /// Words of a command that runs to its end before any program starts, with placeholders; empty:
    /// none.
    pub build: Vec<String>,
}

pub(super) fn read_program(values: &TableValues, problems: &mut Problems) -> ProgramSetup {
    let env = values.texts("env").cloned().unwrap_or_default();
    for name in env.keys().filter(|name| !is_variable(name)) {
        let text = format!("'{name}' is not a valid variable name: letters, digits and '_'");
        problems.add_error(values.text_offset("env", name), text);
    }
    let ready_path = values.text("ready-path").unwrap_or_default().to_owned();
    if values.text("ready-path").is_some() && !is_path(&ready_path) {
        let text = "'ready-path' is a path: it starts with '/' and contains no spaces";
        problems.add_error(values.offset_of("ready-path"), text);
    }
    let ready_within_ns = values.integer("ready-timeout");
    if ready_within_ns.is_some_and(|ns| !(1..=READY_TIMEOUT_NS_MAX).contains(&ns)) {
        let text = "'ready-timeout' is above 0 and at most 10 minutes (600s)";
        problems.add_error(values.offset_of("ready-timeout"), text);
    }
    let ready = values.text("ready").unwrap_or_default().to_owned();
    if values.text("ready").is_some() && !is_address(&ready) {
        let text = format!("'ready' must be an address with a port ('{{subject}}:8000'), not '{ready}'");
        problems.add_error(values.offset_of("ready"), text);
    }
    ProgramSetup {
        command: split_command(values, "command", problems),
        ready,
        ready_path,
        ready_command: split_command(values, "ready-command", problems),
        ready_timeout_ns: ready_within_ns,
        env,
        build: split_command(values, "build", problems),
    }
}

/// Returns whether a text is an address once a trial has filled it in. A text with other
/// placeholders is accepted.
fn is_address(text: &str) -> bool {
    let value = |name: &str| match name {
        "port" => Some("80"),
        "subject" | "origin" | "client" => Some("127.0.0.1"),
        _ => None,
    };
    let filled = fill(text, value);
    filled.contains('{') || authority(&filled).parse::<SocketAddr>().is_ok()
}

/// Returns the authority, `127.0.0.1:80`, of a URL or of an authority itself.
pub(crate) fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

/// Returns whether a text can be the path in a request line.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.chars().all(|character| character.is_ascii_graphic())
}

fn is_variable(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || character == '_';
    name.chars().all(fits)
        && !name.starts_with(|character: char| character.is_ascii_digit())
        && !name.is_empty()
}

/// Splits a command line into words, or reports why it has none.
pub(super) fn split_command(values: &TableValues, key: &str, problems: &mut Problems) -> Vec<String> {
    let Some(text) = values.text(key) else { return Vec::new() };
    match split_words(text) {
        Ok(words) if !words.is_empty() => words,
        Ok(_) => {
            problems.add_error(values.offset_of(key), format!("'{key}' is empty"));
            Vec::new()
        }
        Err(why) => {
            problems.add_error(values.offset_of(key), format!("'{key}': {why}"));
            Vec::new()
        }
    }
}
