//! docs/config.md: every key of the config, every metric, every field of a log line and every way in
//! which a request ends, from the tables that the code works by. Nothing is said here that does not
//! stand there.

use std::fmt::Write as _;

use crate::log::FIELDS;
use crate::outcome::{End, Phase};
use crate::{config, ctl, metrics};

/// The reference of the proxy, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = config::reference();
    // Writing to a String cannot fail.
    let _ = write!(text, "\n## Metrics\n\n`/metrics` of `admin`, as Prometheus reads them.\n\n");
    text += &metrics::reference();
    text += "\n## Fields of a JSON log line\n\n| Field | Meaning |\n| --- | --- |\n";
    for (name, doc) in FIELDS {
        let _ = writeln!(text, "| `{name}` | {doc} |");
    }
    text += "\n## How a request ends\n\n`end` in metrics and JSON logs, the first letter of the \
             termination code, and the status that the client is told when there is still a way to \
             tell it; a route may have another.\n\n\
             | End | Letter | Status | Meaning |\n| --- | --- | --- | --- |\n";
    for end in End::ALL {
        let status = match end.status() {
            0 => "-".to_owned(),
            status => status.to_string(),
        };
        let (code, letter) = (end.code(), char::from(end.letter()));
        let _ = writeln!(text, "| `{code}` | `{letter}` | {status} | {} |", end.doc());
    }
    text += "\nThe second letter says in what it ended.\n\n| Letter | Meaning |\n| --- | --- |\n";
    for phase in Phase::ALL {
        let _ = writeln!(text, "| `{}` | {} |", char::from(phase.letter()), phase.doc());
    }
    text += &ctl::protocol();
    text
}
