//! One JSON object a line. The fields are always all there, in the order of [`FIELDS`].

use super::date::milliseconds;
use super::escape::Escape;
use super::line::{
    Entry, FIELD_BYTES_MAX, METHOD_BYTES_MAX, SHORT_BYTES_MAX, TARGET_BYTES_MAX, push_address,
    push_text, push_url, version,
};
use super::sink::Sink;

/// Every field and what it means, in their order.
pub(crate) const FIELDS: &[(&str, &str)] = &[
    ("time", "when the request's first byte was there, RFC 3339 in UTC, with milliseconds"),
    ("client", "the client's address; `unix` on a unix socket"),
    ("client_port", "its port; 0 on a unix socket"),
    ("listener", "the listener's name"),
    ("route", "the route's name; null: none was taken"),
    ("pool", "the pool's name; null: it went to none"),
    ("server", "the server's name; null: it went to none"),
    ("method", "the method; null for TCP and for a head that could not be read, as the next three"),
    ("target", "the target as it was sent; values of parameters named like secrets are `***`"),
    ("host", "whom the request was for"),
    ("version", "`HTTP/1.0` or `HTTP/1.1`"),
    ("status", "the status that the client was sent; 0: none"),
    ("end", "how it ended; `done` and `answered` are regular"),
    ("termination", "HAProxy's two letters for who ended it, and in which phase"),
    ("refusal", "what was wrong with the bytes; null: nothing"),
    ("bytes_in", "bytes received from the client, head included"),
    ("bytes_out", "bytes sent to the client, head included"),
    ("content_bytes", "of those, content"),
    ("tq_us", "microseconds for receiving the head; these are null where it never came to it"),
    ("tw_us", "microseconds in the queue"),
    ("tc_us", "microseconds for connecting"),
    ("tr_us", "microseconds until the response's head"),
    ("td_us", "microseconds for passing the response on"),
    ("total_us", "microseconds from the first byte to the end"),
    ("retries", "how often it was sent again"),
    ("reused", "whether the connection to the server had carried a request before"),
    ("wasted", "whether the server finished an answer that nobody was there to take"),
    ("request_id", "the request's id; null: none"),
    ("user_agent", "the field `User-Agent`; null: none"),
    ("referer", "the field `Referer`, secrets hidden; null: none"),
];

/// Writes the line.
pub(super) fn push(out: &mut Sink<'_>, entry: &Entry<'_>) {
    push_who(out, entry);
    push_what(out, entry);
    push_how(out, entry);
    push_times(out, entry);
    let asked = entry.outcome.request.as_ref();
    out.fixed(b",\"request_id\":");
    push_string(out, asked.map(|asked| asked.request_id), SHORT_BYTES_MAX);
    out.fixed(b",\"user_agent\":");
    push_string(out, asked.map(|asked| asked.user_agent), FIELD_BYTES_MAX);
    out.fixed(b",\"referer\":");
    push_quoted_url(out, asked.map(|asked| asked.referer), FIELD_BYTES_MAX);
    out.fixed(b"}\n");
}

#[inline]
fn push_who(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let outcome = entry.outcome;
    let mut time = *b"{\"time\":\"2026-11-21T08:30:40.123Z\",\"client\":\"";
    time[9..28].copy_from_slice(entry.start.iso());
    time[28..32].copy_from_slice(&milliseconds(entry.start_wall_ns));
    out.fixed(&time);
    match outcome.client {
        Some(address) => push_address(out, address),
        None => out.fixed(b"unix"),
    }
    out.number_after(b"\",\"client_port\":", u64::from(outcome.client_port));
    let names = entry.names;
    match names.listeners.get(outcome.listener) {
        Some(listener) => out.slice(&listener.name.json),
        None => out.fixed(b",\"listener\":null"),
    }
    match outcome.route.and_then(|route| names.routes.get(route)) {
        Some(route) => out.slice(&route.json),
        None => out.fixed(b",\"route\":null"),
    }
    match (names.pool(outcome.pool), names.server(outcome.pool, outcome.server)) {
        (_, Some(server)) => out.slice(&server.json),
        (Some(pool), None) => out.slice(&pool.json),
        (None, None) => out.fixed(b",\"pool\":null,\"server\":null"),
    }
}

#[inline]
fn push_what(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let Some(asked) = &entry.outcome.request else {
        out.fixed(b",\"method\":null,\"target\":null,\"host\":null,\"version\":null");
        return;
    };
    out.fixed(b",\"method\":");
    push_string(out, Some(asked.method), METHOD_BYTES_MAX);
    out.fixed(b",\"target\":");
    push_quoted_url(out, Some(asked.target), TARGET_BYTES_MAX);
    out.fixed(b",\"host\":");
    push_string(out, Some(asked.host), SHORT_BYTES_MAX);
    out.fixed(b",\"version\":\"");
    out.fixed(version(asked.version));
    out.byte(b'"');
}

#[inline]
fn push_how(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let outcome = entry.outcome;
    out.number_after(b",\"status\":", u64::from(outcome.status));
    out.fixed(b",\"end\":\"");
    out.slice(outcome.end.code().as_bytes());
    let mut termination = *b"\",\"termination\":\"--\",\"refusal\":";
    termination[17] = outcome.end.letter();
    termination[18] = outcome.phase.letter();
    out.fixed(&termination);
    match outcome.refusal {
        None => out.fixed(b"null"),
        Some(kind) => {
            out.byte(b'"');
            out.slice(kind.code().as_bytes());
            out.byte(b'"');
        }
    }
    out.number_after(b",\"bytes_in\":", outcome.bytes_in);
    out.number_after(b",\"bytes_out\":", outcome.bytes_out);
    out.number_after(b",\"content_bytes\":", outcome.content_bytes_out);
}

#[inline]
fn push_times(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let timers = &entry.timers;
    push_us(out, b",\"tq_us\":", timers.tq_ns);
    push_us(out, b",\"tw_us\":", timers.tw_ns);
    push_us(out, b",\"tc_us\":", timers.tc_ns);
    push_us(out, b",\"tr_us\":", timers.tr_ns);
    push_us(out, b",\"td_us\":", timers.td_ns);
    push_us(out, b",\"total_us\":", Some(timers.total_ns));
    out.number_after(b",\"retries\":", u64::from(entry.outcome.retries));
    match (entry.outcome.reused, entry.outcome.wasted) {
        (false, false) => out.fixed(b",\"reused\":false,\"wasted\":false"),
        (true, false) => out.fixed(b",\"reused\":true,\"wasted\":false"),
        (false, true) => out.fixed(b",\"reused\":false,\"wasted\":true"),
        (true, true) => out.fixed(b",\"reused\":true,\"wasted\":true"),
    }
}

#[inline]
fn push_us<const N: usize>(out: &mut Sink<'_>, label: &[u8; N], time_ns: Option<u64>) {
    match time_ns {
        Some(time_ns) => out.number_after(label, time_ns / 1_000),
        None => {
            out.fixed(label);
            out.fixed(b"null");
        }
    }
}

#[inline]
fn push_string(out: &mut Sink<'_>, text: Option<&[u8]>, bytes_max: usize) {
    match text {
        None | Some([]) => out.fixed(b"null"),
        Some(text) => {
            out.byte(b'"');
            push_text(out, Escape::Json, text, bytes_max);
            out.byte(b'"');
        }
    }
}

#[inline]
fn push_quoted_url(out: &mut Sink<'_>, url: Option<&[u8]>, bytes_max: usize) {
    match url {
        None | Some([]) => out.fixed(b"null"),
        Some(url) => {
            out.byte(b'"');
            push_url(out, Escape::Json, url, bytes_max);
            out.byte(b'"');
        }
    }
}
