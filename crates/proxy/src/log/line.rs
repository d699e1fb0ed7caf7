//! Shared parts of all formats: one outcome with its times, and helpers that write parts of a line.

use std::fmt::Write;
use std::net::IpAddr;

use rt::clock::MonotonicTime;

use server_shell::date::{RenderedSecond, WallClock};

use super::escape::EscapeRule;
use super::names::LogNames;
use super::secret::redact;
use super::sink::LineBuffer;
use crate::ipv4_fmt::Ipv4Text;
use crate::outcome::{EndPhase, Outcome};

/// Load when a request ended, for HAProxy's formats. It includes this request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadCounts {
    /// `actconn`: client connections in the process.
    pub(crate) actconn: u32,
    /// `feconn`: connections on the listener.
    pub(crate) feconn: u32,
    /// `beconn`: requests at the pool.
    pub(crate) beconn: u32,
    /// `srv_conn`: requests at the server.
    pub(crate) srv_conn: u32,
    /// `srv_queue`: requests that waited for the server before this one.
    pub(crate) srv_queue: u32,
    /// `backend_queue`: requests that waited in the pool's queue before this one.
    pub(crate) backend_queue: u32,
}

/// Maximum length of a target in bytes. Longer texts are cut and end in `...`. So a line can never
/// be longer than [`LINE_BYTES_MAX`], whatever a client sends.
pub(super) const TARGET_BYTES_MAX: usize = 2_048;
/// Maximum length of a referrer and of a user agent.
pub(super) const FIELD_BYTES_MAX: usize = 1_024;
/// Maximum length of a host, of a request id and of the fault of a TLS handshake.
pub(super) const SHORT_BYTES_MAX: usize = 255;
pub(super) const METHOD_BYTES_MAX: usize = 32;
/// Maximum length of a line. An escaped byte takes six, and the parts that clients do not control
/// have 3,072 bytes.
pub(super) const LINE_BYTES_MAX: usize =
    6 * (TARGET_BYTES_MAX + 2 * FIELD_BYTES_MAX + 5 * SHORT_BYTES_MAX + METHOD_BYTES_MAX) + 3_072;

/// Times that a request spent in each phase; `None` for phases that were not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// Receiving the head (HAProxy's TR).
    pub(crate) tq_ns: Option<u64>,
    /// Waiting for a server with a free slot, until the end if the request ended in the queue.
    pub(crate) tw_ns: Option<u64>,
    /// Connecting; close to 0 on a reused connection.
    pub(crate) tc_ns: Option<u64>,
    /// Waiting for the response's head.
    pub(crate) tr_ns: Option<u64>,
    /// Forwarding the response.
    pub(crate) td_ns: Option<u64>,
    pub(crate) total_ns: u64,
}

impl Timers {
    #[inline]
    pub(crate) fn from_outcome(outcome: &Outcome<'_>) -> Self {
        let times = &outcome.times;
        let is_reached = |time: MonotonicTime| time != MonotonicTime::ZERO;
        let between = |from, to: MonotonicTime| (is_reached(from) && is_reached(to)).then(|| to.since(from));
        // A connection without requests has no head; its waiting starts with the connection.
        let request = if is_reached(times.head) { times.head } else { times.start };
        let left_queue = match outcome.phase {
            EndPhase::Queue if !is_reached(times.dispatched) => times.end,
            _ => times.dispatched,
        };
        Self {
            tq_ns: between(times.start, times.head),
            tw_ns: between(request, left_queue),
            tc_ns: between(times.dispatched, times.connected),
            tr_ns: between(times.connected, times.first_byte),
            td_ns: between(times.first_byte, times.end),
            total_ns: times.end.since(times.start),
        }
    }
}

#[derive(Debug)]
pub(super) struct LogEntry<'a> {
    pub(super) outcome: &'a Outcome<'a>,
    pub(super) names: &'a LogNames,
    pub(super) load: &'a LoadCounts,
    pub(super) timers: Timers,
    pub(super) start_wall_ns: u64,
    pub(super) start: &'a RenderedSecond,
    pub(super) end: &'a RenderedSecond,
}

/// Rendered seconds of the last line. Most requests start and end in the same second as the one
/// before.
#[derive(Debug, Default)]
pub(super) struct SecondCache {
    start: RenderedSecond,
    end: RenderedSecond,
}

impl SecondCache {
    #[inline]
    pub(super) fn entry<'a>(
        &'a mut self,
        outcome: &'a Outcome<'a>,
        names: &'a LogNames,
        load: &'a LoadCounts,
        clock: WallClock,
    ) -> LogEntry<'a> {
        let start_wall_ns = clock.to_unix_ns(outcome.times.start.as_ns());
        self.start.set(start_wall_ns);
        self.end.set(clock.to_unix_ns(outcome.times.end.as_ns()));
        let timers = Timers::from_outcome(outcome);
        LogEntry { outcome, names, load, timers, start_wall_ns, start: &self.start, end: &self.end }
    }
}

#[inline]
pub(super) fn push_address(out: &mut LineBuffer<'_>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let text = Ipv4Text::new(address);
            out.fixed_prefix(&text.bytes, text.length);
        }
        // A sink takes as much as fits and does not fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Writes `text`, cut to `bytes_max`.
#[inline]
pub(super) fn push_text(out: &mut LineBuffer<'_>, escape: EscapeRule, text: &[u8], bytes_max: usize) {
    if text.len() <= bytes_max {
        escape.push_escaped(out, text);
    } else {
        escape.push_escaped(out, &text[..bytes_max]);
        out.fixed(b"...");
    }
}

/// Writes a URL without its secrets, cut to `bytes_max`.
#[inline]
pub(super) fn push_url(out: &mut LineBuffer<'_>, escape: EscapeRule, url: &[u8], bytes_max: usize) {
    let (visible, end) = match url.get(..bytes_max) {
        Some(start) if url.len() > bytes_max => (start, &b"..."[..]),
        _ => (url, &b""[..]),
    };
    redact(visible, |piece| escape.push_escaped(out, piece));
    out.slice(end);
}

#[cfg(test)]
mod tests {
    use super::super::sink::render_to_vec;
    use super::*;

    fn rendered(address: &str) -> String {
        let address = address.parse().unwrap();
        String::from_utf8(render_to_vec(60, |out| push_address(out, address))).unwrap()
    }

    #[test]
    fn addresses_are_written_as_everywhere() {
        for octet in 0..=255u8 {
            assert_eq!(rendered(&format!("{octet}.1.2.{octet}")), format!("{octet}.1.2.{octet}"));
        }
        for text in ["0.0.0.0", "127.0.0.1", "10.20.103.9", "255.255.255.255", "::1", "2001:db8::a"] {
            assert_eq!(rendered(text), text);
        }
        assert_eq!(rendered("::ffff:10.0.0.1"), "10.0.0.1");
    }

    #[test]
    fn a_long_text_is_truncated_with_an_ellipsis() {
        let text = render_to_vec(100, |out| {
            push_text(out, EscapeRule::Json, b"12345", 4);
            push_text(out, EscapeRule::Json, b"1234", 4);
            push_url(out, EscapeRule::Json, b"/?token=secret", 10);
        });
        assert_eq!(String::from_utf8(text).unwrap(), "1234...1234/?token=***...");
    }
}
