//! docs/config.md: every key of the config, every metric, every field of a log line and every way in
//! which a request ends, from the tables that the code works by. Nothing is said here that does not
//! stand there.

use std::fmt::Write as _;

use crate::log::FIELDS;
use crate::outcome::{End, Phase};
use crate::{config, ctl, metrics};

/// What holds for every request's head, whatever the config says of it.
const HEADS: &str = "
## Paths

With `path = \"normalise\"` a path is routed and forwarded in its normal form (RFC 3986 §6.2.2): \
percent-encoded unreserved characters (letters, digits, `-._~`) are decoded, the digits of other \
triplets are in upper case, a `%` that starts no triplet is `%25`, and dot segments are removed. Empty \
segments stay, and are segments: `/a//../b` is `/a/b`. The query is never changed.

A path is 400 when servers read it in different ways even then: a backslash; an encoded slash, \
backslash or NUL (`%2F`, `%5C`, `%00`); one of these or a dot encoded twice (`%252E`) or in too many \
bytes (`%C0%AE`); parameters of an empty or a dot segment (`/;/`, `/..;/`).

The conditions of a route, and the prefix that `rewrite-prefix` replaces, ignore empty segments and \
parameters (`;…`): `//admin` and `/admin;a=b` are both below `/admin`. A regular expression sees the \
path with its parameters as well as without.

## Fields

`set-request-header` replaces every field of that name, those that the proxy itself writes and the \
`Host` among them; `add-request-header` adds a line; `remove-request-header` removes them, in the \
trailer section too. The same holds for the fields of the proxy's own responses; the cookie of `sticky` \
is always sent.

A trailer section forwards no field that belongs to one hop, that a route sets or removes, or that only \
trusted peers may send in the head.

A `Content-Length` with leading zeros is 400 in a request, and written without them in a response. Up \
to eight empty lines before a request line are ignored. The connection of a CONNECT that gets no tunnel \
is closed. `Max-Forwards` counts for OPTIONS and TRACE: at 0 the proxy answers OPTIONS itself, and TRACE \
with 405.
";

/// The reference of the proxy, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = config::reference();
    text += HEADS;
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
