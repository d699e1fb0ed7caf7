//! The combined format of Apache and nginx. Its time is that of the request's end, as nginx has it.

use super::escape::Escape;
use super::line::{
    Entry, FIELD_BYTES_MAX, METHOD_BYTES_MAX, TARGET_BYTES_MAX, push_address, push_text, push_url,
    version,
};
use super::sink::Sink;
use crate::outcome::End;

/// Writes the line.
pub(super) fn push(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let outcome = entry.outcome;
    match outcome.client {
        Some(address) => push_address(out, address),
        None => out.fixed(b"unix:"),
    }
    out.fixed(b" - - [");
    out.fixed(entry.end.log());
    out.fixed(b" +0000] \"");
    match &outcome.request {
        None => out.byte(b'-'),
        Some(asked) => {
            push_text(out, Escape::Nginx, asked.method, METHOD_BYTES_MAX);
            out.byte(b' ');
            push_url(out, Escape::Nginx, asked.target, TARGET_BYTES_MAX);
            out.byte(b' ');
            out.fixed(version(asked.version));
        }
    }
    out.fixed(b"\" ");
    match (outcome.status, outcome.end) {
        // nginx's own status for a client that left before it was answered.
        (0, End::ClientGone) => out.fixed(b"499"),
        (0, _) => out.fixed(b"000"),
        (status, _) => out.number(u64::from(status)),
    }
    out.byte(b' ');
    out.number(outcome.content_bytes_out);
    out.fixed(b" \"");
    match outcome.request.as_ref().map_or(&b""[..], |asked| asked.referer) {
        [] => out.byte(b'-'),
        referer => push_url(out, Escape::Nginx, referer, FIELD_BYTES_MAX),
    }
    out.fixed(b"\" \"");
    match outcome.request.as_ref().map_or(&b""[..], |asked| asked.user_agent) {
        [] => out.byte(b'-'),
        agent => push_text(out, Escape::Nginx, agent, FIELD_BYTES_MAX),
    }
    out.fixed(b"\"\n");
}
