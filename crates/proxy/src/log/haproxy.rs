//! HAProxy's formats: `option httplog` for requests, `option tcplog` for TCP connections
//! (configuration manual, §8.2.2 and §8.2.3), for use with existing tools. Times are in
//! milliseconds, and -1 for phases that were not reached. There are no cookies; their letters are
//! `--`. The name of a listener with TLS ends in `~`.

use server_shell::date::milliseconds;

use super::escape::EscapeRule;
use super::line::{LogEntry, METHOD_BYTES_MAX, TARGET_BYTES_MAX, push_address, push_text, push_url};
use super::names::NO_SERVER_NAME;
use super::sink::LineBuffer;

/// Writes the line, without the `process[pid]: ` prefix.
pub(super) fn push_line(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let outcome = entry.outcome;
    let is_tcp =
        entry.names.listeners.get(outcome.listener).is_some_and(|listener_name| listener_name.is_tcp);
    push_prefix(out, entry);
    let timers = &entry.timers;
    if is_tcp {
        push_times(out, &[timers.tw_ns, timers.tc_ns, Some(timers.total_ns)]);
    } else {
        let total_ns = Some(timers.total_ns);
        push_times(out, &[timers.tq_ns, timers.tw_ns, timers.tc_ns, timers.tr_ns, total_ns]);
        match outcome.status {
            0 => out.fixed(b" -1"),
            status => out.number_after(b" ", u64::from(status)),
        }
    }
    out.number_after(b" ", outcome.bytes_out);
    let (end, phase) = (outcome.end.letter(), outcome.phase.letter());
    if is_tcp {
        out.fixed(&[b' ', end, phase, b' ']);
    } else {
        out.fixed(&[b' ', b'-', b' ', b'-', b' ', end, phase, b'-', b'-', b' ']);
    }
    push_load(out, entry);
    if !is_tcp {
        push_request(out, entry);
    }
    out.byte(b'\n');
}

/// Writes `10.0.0.1:5000 [21/Nov/2026:08:30:40.123] web app/b `.
#[inline]
fn push_prefix(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let (outcome, names) = (entry.outcome, entry.names);
    match outcome.client {
        Some(address) => push_address(out, address),
        None => out.fixed(b"unix"),
    }
    out.number_after(b":", u64::from(outcome.client_port));
    // A single store for all of ` [21/Nov/2026:08:30:40.123] `.
    let mut time = *b" [                        ] ";
    time[2..22].copy_from_slice(entry.start.clf());
    time[22..26].copy_from_slice(&milliseconds(entry.start_wall_ns));
    out.fixed(&time);
    let listener_name = names.listeners.get(outcome.listener);
    let listener = listener_name.map_or(&b"-"[..], |listener_name| &listener_name.name.haproxy_text);
    out.slice(listener);
    if listener_name.is_some_and(|listener_name| listener_name.has_tls) {
        out.byte(b'~');
    }
    out.byte(b' ');
    match names.server(outcome.pool, outcome.server).or_else(|| names.pool(outcome.pool)) {
        Some(name) => out.slice(&name.haproxy_text),
        None => {
            // Without a backend, HAProxy writes the frontend's name in its place.
            out.slice(listener);
            out.byte(b'/');
            out.slice(NO_SERVER_NAME);
            out.byte(b' ');
        }
    }
}

#[inline]
fn push_times<const N: usize>(out: &mut LineBuffer<'_>, times: &[Option<u64>; N]) {
    // In most lines each time is a single digit.
    if let Some(text) = single_digit_times(times) {
        out.fixed_prefix(&text, 2 * N - 1);
        return;
    }
    for (index, time) in times.iter().enumerate() {
        if index > 0 {
            out.byte(b'/');
        }
        match time {
            Some(time_ns) => out.number(time_ns / 1_000_000),
            None => out.fixed(b"-1"),
        }
    }
}

/// Returns the times separated by `/`, if each is present and less than 10 ms.
#[inline]
fn single_digit_times<const N: usize>(times: &[Option<u64>; N]) -> Option<[u8; 10]> {
    let mut text = [b'/'; 10];
    for (time, digit) in times.iter().zip(text.iter_mut().step_by(2)) {
        let time_ns = time.filter(|&time_ns| time_ns < 10_000_000)?;
        *digit = b'0' + (time_ns / 1_000_000) as u8;
    }
    Some(text)
}

/// Writes `actconn/feconn/beconn/srv_conn/retries srv_queue/backend_queue`.
#[inline]
fn push_load(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let load = entry.load;
    out.number(u64::from(load.actconn));
    for number in [load.feconn, load.beconn, load.srv_conn] {
        out.number_after(b"/", u64::from(number));
    }
    let retries = entry.outcome.retries;
    if (retries, load.srv_queue, load.backend_queue) == (0, 0, 0) {
        out.fixed(b"/0 0/0");
        return;
    }
    out.number_after(b"/", u64::from(retries));
    out.number_after(b" ", u64::from(load.srv_queue));
    out.number_after(b"/", u64::from(load.backend_queue));
}

#[inline]
fn push_request(out: &mut LineBuffer<'_>, entry: &LogEntry<'_>) {
    let Some(request) = &entry.outcome.request else {
        out.fixed(b" \"<BADREQ>\"");
        return;
    };
    out.fixed(b" \"");
    push_text(out, EscapeRule::Haproxy, request.method, METHOD_BYTES_MAX);
    out.byte(b' ');
    push_url(out, EscapeRule::Haproxy, request.target, TARGET_BYTES_MAX);
    let mut quoted_version = *b" HTTP/1.1\"";
    quoted_version[1..9].copy_from_slice(request.protocol.name());
    out.fixed(&quoted_version);
}
