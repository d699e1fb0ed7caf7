//! Combined log format of Apache and nginx. The time is that of the request's end, as in nginx.

use super::escape::EscapeRule;
use super::line::{
    FIELD_BYTES_MAX, LogEntry, METHOD_BYTES_MAX, SHORT_BYTES_MAX, TARGET_BYTES_MAX, push_address, push_text,
    push_url,
};
use super::sink::LineBuffer;
use crate::outcome::EndReason;

pub(super) fn push_line(line: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let outcome = entry.outcome;
    match outcome.client {
        Some(address) => push_address(line, address),
        None => line.fixed(b"unix:"),
    }
    match outcome.user {
        "" => line.fixed(b" - - ["),
        user => {
            line.fixed(b" - ");
            push_user(line, user);
            line.fixed(b" [");
        }
    }
    line.fixed(entry.end.clf());
    line.fixed(b" +0000] \"");
    match &outcome.request {
        None => line.byte(b'-'),
        Some(request) => {
            push_text(line, EscapeRule::Nginx, request.method, METHOD_BYTES_MAX);
            line.byte(b' ');
            push_url(line, EscapeRule::Nginx, request.target, TARGET_BYTES_MAX);
            line.byte(b' ');
            line.fixed(request.protocol.name());
        }
    }
    line.fixed(b"\" ");
    match (outcome.status, outcome.end) {
        // nginx's own status for a client that left before the response.
        (0, EndReason::ClientGone) => line.fixed(b"499"),
        (0, _) => line.fixed(b"000"),
        (status, _) => line.number(u64::from(status)),
    }
    line.byte(b' ');
    line.number(outcome.content_bytes_out);
    line.fixed(b" \"");
    match outcome.request.as_ref().map_or(&b""[..], |request| request.referer) {
        [] => line.byte(b'-'),
        referer => push_url(line, EscapeRule::Nginx, referer, FIELD_BYTES_MAX),
    }
    line.fixed(b"\" \"");
    match outcome.request.as_ref().map_or(&b""[..], |request| request.user_agent) {
        [] => line.byte(b'-'),
        agent => push_text(line, EscapeRule::Nginx, agent, FIELD_BYTES_MAX),
    }
    line.fixed(b"\"\n");
}

/// Writes the name of a user. A blank is escaped, so that the fields stay apart, and so is a name that means "none".
#[cold]
fn push_user(line: &mut LineBuffer<'_>, user: &str) {
    if user == "-" {
        return line.fixed(b"\\x2D");
    }
    let user = &user.as_bytes()[..user.len().min(SHORT_BYTES_MAX)];
    for (index, part) in user.split(|&byte| byte == b' ').enumerate() {
        if index > 0 {
            line.fixed(b"\\x20");
        }
        EscapeRule::Nginx.push_escaped(line, part);
    }
}
