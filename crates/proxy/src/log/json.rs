//! JSON format: one object per line. All fields are always present, in the order of [`FIELDS`].

use server_shell::date::milliseconds;

use super::escape::EscapeRule;
use super::line::{
    FIELD_BYTES_MAX, LogEntry, METHOD_BYTES_MAX, SHORT_BYTES_MAX, TARGET_BYTES_MAX, push_address, push_text,
    push_url,
};
use super::sink::LineBuffer;

/// All fields and their meanings, in order.
pub const FIELDS: &[(&str, &str)] = &[
    ("time", "time of the request's first byte, RFC 3339 in UTC, with milliseconds"),
    ("client", "the client's address; `unix` on a unix socket"),
    ("client_port", "client port; 0 on a unix socket"),
    ("listener", "the listener's name"),
    ("route", "the route's name; null: no route"),
    ("pool", "the pool's name; null: no pool"),
    ("server", "the server's name; null: no server"),
    ("method", "the method; like `target`, `host` and `version` null for TCP and for an invalid head"),
    ("target", "the target as received; values of parameters with names of secrets are `***`"),
    ("host", "the host of the request"),
    ("version", "`HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`"),
    ("status", "the status sent to the client; 0: none"),
    ("end", "end code; `done` and `local_response` are successes"),
    ("termination", "HAProxy's termination code: cause and phase of the end"),
    ("refusal", "reason for rejecting a message; null: none"),
    ("bytes_in", "bytes received from the client, including the head"),
    ("bytes_out", "bytes sent to the client, including the head"),
    ("content_bytes", "content bytes sent to the client"),
    ("tq_us", "microseconds to receive the head; a time is null if its phase was not reached"),
    ("tw_us", "microseconds in the queue"),
    ("tc_us", "microseconds to connect"),
    ("tr_us", "microseconds to the response head"),
    ("td_us", "microseconds to forward the response"),
    ("total_us", "microseconds from the first byte to the end"),
    ("retries", "number of retries"),
    ("reused", "true if the server connection was reused"),
    ("wasted", "true if the server completed a response after the client had left"),
    (
        "hedge",
        "end of the attempt at a second server (`hedge` of a route): won (its response was forwarded), lost or failed; \
         null: none was sent",
    ),
    (
        "cache",
        "use of a cache (`cache` of a route): hit, stale, stale_if_error, revalidated, coalesced, miss, bypass or \
         unsatisfied (see \"Caching\" of the config); null: the route has none",
    ),
    ("user", "name of the user that `auth` found, or refused (status 401, 403 or 429); null: none"),
    ("request_id", "the request's id; null: none"),
    ("user_agent", "the field `User-Agent`; null: none"),
    ("referer", "the field `Referer`, without secrets; null: none"),
    (
        "tls_version",
        "version of the client's TLS session, `TLSv1.2` or `TLSv1.3` (HAProxy's %sslv); null: none",
    ),
    ("tls_cipher", "its cipher suite by IANA name (HAProxy's %sslc); null: none"),
    ("sni", "server name that the client asked for, with TLS or in a listener with `sni`; null: none"),
    (
        "tls_error",
        "reason that a TLS handshake, with the client or the server, ended the request; null: none",
    ),
    ("trace_id", "id of the request's trace; the member is missing without `[tracing]`"),
];

pub(super) fn push_line(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    push_origin(out, entry);
    push_request(out, entry);
    push_result(out, entry);
    push_times(out, entry);
    let request = entry.outcome.request.as_ref();
    match entry.outcome.user {
        "" => out.fixed(b",\"user\":null,\"request_id\":"),
        user => {
            out.fixed(b",\"user\":");
            push_string(out, Some(user.as_bytes()), SHORT_BYTES_MAX);
            out.fixed(b",\"request_id\":");
        }
    }
    push_string(out, request.map(|request| request.request_id), SHORT_BYTES_MAX);
    out.fixed(b",\"user_agent\":");
    push_string(out, request.map(|request| request.user_agent), FIELD_BYTES_MAX);
    out.fixed(b",\"referer\":");
    push_quoted_url(out, request.map(|request| request.referer), FIELD_BYTES_MAX);
    push_tls(out, entry);
    if let Some(trace) = entry.outcome.trace {
        out.fixed(b",\"trace_id\":\"");
        out.fixed(&trace.context.trace_id_text());
        out.byte(b'"');
    }
    out.fixed(b"}\n");
}

#[inline]
fn push_tls(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let outcome = entry.outcome;
    match outcome.tls_names {
        None => out.fixed(b",\"tls_version\":null,\"tls_cipher\":null,\"sni\":"),
        Some((version, cipher)) => {
            out.fixed(b",\"tls_version\":\"");
            out.slice(version.as_bytes());
            out.fixed(b"\",\"tls_cipher\":\"");
            out.slice(cipher.as_bytes());
            out.fixed(b"\",\"sni\":");
        }
    }
    push_string(out, outcome.server_name.map(str::as_bytes), SHORT_BYTES_MAX);
    out.fixed(b",\"tls_error\":");
    push_string(out, outcome.tls_error.map(str::as_bytes), SHORT_BYTES_MAX);
}

#[inline]
fn push_origin(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
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
        Some(listener) => out.slice(&listener.name.json_member),
        None => out.fixed(b",\"listener\":null"),
    }
    match outcome.route.and_then(|route| names.routes.get(route)) {
        Some(route) => out.slice(&route.json_member),
        None => out.fixed(b",\"route\":null"),
    }
    match (names.pool(outcome.pool), names.server(outcome.pool, outcome.server)) {
        (_, Some(server)) => out.slice(&server.json_member),
        (Some(pool), None) => out.slice(&pool.json_member),
        (None, None) => out.fixed(b",\"pool\":null,\"server\":null"),
    }
}

#[inline]
fn push_request(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let Some(request) = &entry.outcome.request else {
        out.fixed(b",\"method\":null,\"target\":null,\"host\":null,\"version\":null");
        return;
    };
    out.fixed(b",\"method\":");
    push_string(out, Some(request.method), METHOD_BYTES_MAX);
    out.fixed(b",\"target\":");
    push_quoted_url(out, Some(request.target), TARGET_BYTES_MAX);
    out.fixed(b",\"host\":");
    push_string(out, Some(request.host), SHORT_BYTES_MAX);
    out.fixed(b",\"version\":\"");
    out.fixed(request.protocol.name());
    out.byte(b'"');
}

#[inline]
fn push_result(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
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
fn push_times(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
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
    match entry.outcome.hedge {
        None => out.fixed(b",\"hedge\":null"),
        Some(end) => {
            out.fixed(b",\"hedge\":\"");
            out.slice(end.code().as_bytes());
            out.fixed(b"\"");
        }
    }
    match entry.outcome.cache {
        None => out.fixed(b",\"cache\":null"),
        Some(result) => {
            out.fixed(b",\"cache\":\"");
            out.slice(result.code().as_bytes());
            out.fixed(b"\"");
        }
    }
}

#[inline]
fn push_us<const N: usize>(out: &mut LineBuffer<'_>, label: &[u8; N], time_ns: Option<u64>) {
    match time_ns {
        Some(time_ns) => out.number_after(label, time_ns / 1_000),
        None => {
            out.fixed(label);
            out.fixed(b"null");
        }
    }
}

#[inline]
fn push_string(out: &mut LineBuffer<'_>, text: Option<&[u8]>, bytes_max: usize) {
    match text {
        None | Some([]) => out.fixed(b"null"),
        Some(text) => {
            out.byte(b'"');
            push_text(out, EscapeRule::Json, text, bytes_max);
            out.byte(b'"');
        }
    }
}

#[inline]
fn push_quoted_url(out: &mut LineBuffer<'_>, url: Option<&[u8]>, bytes_max: usize) {
    match url {
        None | Some([]) => out.fixed(b"null"),
        Some(url) => {
            out.byte(b'"');
            push_url(out, EscapeRule::Json, url, bytes_max);
            out.byte(b'"');
        }
    }
}
