//! HAProxy's own formats: `option httplog` for requests, `option tcplog` for TCP connections
//! (configuration manual, §8.2.2 and §8.2.3), so that tools which read those read ours. Times are in
//! milliseconds and -1 where it never came to it. There are no cookies here: their letters are `--`.

use super::date::milliseconds;
use super::escape::Escape;
use super::line::{
    Entry, METHOD_BYTES_MAX, TARGET_BYTES_MAX, push_address, push_text, push_url, version,
};
use super::names::NO_SERVER;
use super::sink::Sink;

/// Writes the line, without the `process[pid]: ` in front.
pub(super) fn push(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let outcome = entry.outcome;
    let is_tcp = entry.names.listeners.get(outcome.listener).is_some_and(|known| known.is_tcp);
    push_who(out, entry);
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

/// `10.0.0.1:5000 [21/Nov/2026:08:30:40.123] web app/b `
#[inline]
fn push_who(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let (outcome, names) = (entry.outcome, entry.names);
    match outcome.client {
        Some(address) => push_address(out, address),
        None => out.fixed(b"unix"),
    }
    out.number_after(b":", u64::from(outcome.client_port));
    // One store for all of ` [21/Nov/2026:08:30:40.123] `.
    let mut time = *b" [                        ] ";
    time[2..22].copy_from_slice(entry.start.log());
    time[22..26].copy_from_slice(&milliseconds(entry.start_wall_ns));
    out.fixed(&time);
    let listener = names.listeners.get(outcome.listener);
    let listener = listener.map_or(&b"-"[..], |known| &known.name.haproxy);
    out.slice(listener);
    out.byte(b' ');
    match names.server(outcome.pool, outcome.server).or_else(|| names.pool(outcome.pool)) {
        Some(name) => out.slice(&name.haproxy),
        None => {
            // Without a backend, HAProxy gives the frontend's name in its place.
            out.slice(listener);
            out.byte(b'/');
            out.slice(NO_SERVER);
            out.byte(b' ');
        }
    }
}

#[inline]
fn push_times<const N: usize>(out: &mut Sink<'_>, times: &[Option<u64>; N]) {
    // Mostly each is a digit.
    if let Some(text) = digits(times) {
        out.part_of(&text, 2 * N - 1);
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

/// The times with a `/` between them, if each is there and less than 10 ms.
#[inline]
fn digits<const N: usize>(times: &[Option<u64>; N]) -> Option<[u8; 10]> {
    let mut text = [b'/'; 10];
    for (time, digit) in times.iter().zip(text.iter_mut().step_by(2)) {
        let time_ns = time.filter(|&time_ns| time_ns < 10_000_000)?;
        *digit = b'0' + (time_ns / 1_000_000) as u8;
    }
    Some(text)
}

/// `actconn/feconn/beconn/srv_conn/retries srv_queue/backend_queue`
#[inline]
fn push_load(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let load = entry.load;
    out.number(u64::from(load.process));
    for number in [load.listener, load.pool, load.server] {
        out.number_after(b"/", u64::from(number));
    }
    let retries = entry.outcome.retries;
    if (retries, load.server_queue, load.pool_queue) == (0, 0, 0) {
        out.fixed(b"/0 0/0");
        return;
    }
    out.number_after(b"/", u64::from(retries));
    out.number_after(b" ", u64::from(load.server_queue));
    out.number_after(b"/", u64::from(load.pool_queue));
}

#[inline]
fn push_request(out: &mut Sink<'_>, entry: &Entry<'_>) {
    let Some(asked) = &entry.outcome.request else {
        out.fixed(b" \"<BADREQ>\"");
        return;
    };
    out.fixed(b" \"");
    push_text(out, Escape::Haproxy, asked.method, METHOD_BYTES_MAX);
    out.byte(b' ');
    push_url(out, Escape::Haproxy, asked.target, TARGET_BYTES_MAX);
    let mut end = *b" HTTP/1.1\"";
    end[1..9].copy_from_slice(version(asked.version));
    out.fixed(&end);
}
