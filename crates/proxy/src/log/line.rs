//! What all formats share: one outcome with its times, and the small writers of a line's parts.

use std::fmt::Write;
use std::net::IpAddr;

use super::date::{Second, Wall};
use super::escape::Escape;
use super::names::Names;
use super::secret::redact;
use super::sink::Sink;
use crate::dotted::Dotted;
use crate::outcome::{Outcome, Phase};

/// How much was going on when a request ended, for HAProxy's formats: this request is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// `actconn`: connections of clients in the process.
    pub(crate) process: u32,
    /// `feconn`: connections on its listener.
    pub(crate) listener: u32,
    /// `beconn`: requests with its pool.
    pub(crate) pool: u32,
    /// `srv_conn`: requests with its server.
    pub(crate) server: u32,
    /// `srv_queue`: requests that waited for its server before it.
    pub(crate) server_queue: u32,
    /// `backend_queue`: requests that waited in its pool's queue before it.
    pub(crate) pool_queue: u32,
}

/// Bytes of each text of a line at most; the rest is cut off and shows as `...`. A line can so never
/// be longer than [`LINE_BYTES_MAX`], whatever a client sends.
pub(super) const TARGET_BYTES_MAX: usize = 2_048;
/// Of a referrer and of a user agent.
pub(super) const FIELD_BYTES_MAX: usize = 1_024;
/// Of a host and of a request id.
pub(super) const SHORT_BYTES_MAX: usize = 255;
/// Of a method.
pub(super) const METHOD_BYTES_MAX: usize = 32;
/// What a line can have at most (an escaped byte takes six), with 3,072 bytes for all that is ours.
pub(super) const LINE_BYTES_MAX: usize =
    6 * (TARGET_BYTES_MAX + 2 * FIELD_BYTES_MAX + 2 * SHORT_BYTES_MAX + METHOD_BYTES_MAX) + 3_072;

/// The parts of a request's time; `None`: it never came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// Receiving the head (HAProxy's TR).
    pub(crate) tq_ns: Option<u64>,
    /// Waiting for a server to have room, to the end if it ended while it waited.
    pub(crate) tw_ns: Option<u64>,
    /// Connecting; next to nothing on a connection that stood.
    pub(crate) tc_ns: Option<u64>,
    /// Waiting for the response's head.
    pub(crate) tr_ns: Option<u64>,
    /// Passing the response on.
    pub(crate) td_ns: Option<u64>,
    /// All of it.
    pub(crate) total_ns: u64,
}

impl Timers {
    #[inline]
    pub(crate) fn of(outcome: &Outcome<'_>) -> Self {
        let times = &outcome.times;
        let between = |from: u64, to: u64| (from != 0 && to != 0).then(|| to.saturating_sub(from));
        // A connection without requests has no head; its waiting starts with it.
        let asked_ns = if times.head_ns == 0 { times.start_ns } else { times.head_ns };
        let left_queue_ns = match outcome.phase {
            Phase::Queue if times.dispatched_ns == 0 => times.end_ns,
            _ => times.dispatched_ns,
        };
        Self {
            tq_ns: between(times.start_ns, times.head_ns),
            tw_ns: between(asked_ns, left_queue_ns),
            tc_ns: between(times.dispatched_ns, times.connected_ns),
            tr_ns: between(times.connected_ns, times.first_byte_ns),
            td_ns: between(times.first_byte_ns, times.end_ns),
            total_ns: times.end_ns.saturating_sub(times.start_ns),
        }
    }
}

/// One line's matter.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) outcome: &'a Outcome<'a>,
    pub(super) names: &'a Names,
    pub(super) load: &'a Load,
    pub(super) timers: Timers,
    pub(super) start_wall_ns: u64,
    pub(super) start: &'a Second,
    pub(super) end: &'a Second,
}

/// The seconds that lines are about: most requests start and end in the one of the line before.
#[derive(Debug)]
pub(super) struct Seconds {
    start: Second,
    end: Second,
}

impl Seconds {
    pub(super) fn new() -> Self {
        Self { start: Second::new(), end: Second::new() }
    }

    #[inline]
    pub(super) fn entry<'a>(
        &'a mut self,
        outcome: &'a Outcome<'a>,
        names: &'a Names,
        load: &'a Load,
        wall: Wall,
    ) -> Entry<'a> {
        let start_wall_ns = wall.at(outcome.times.start_ns);
        self.start.set(start_wall_ns);
        self.end.set(wall.at(outcome.times.end_ns));
        let timers = Timers::of(outcome);
        Entry { outcome, names, load, timers, start_wall_ns, start: &self.start, end: &self.end }
    }
}

/// Writes an address.
#[inline]
pub(super) fn push_address(out: &mut Sink<'_>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let text = Dotted::of(address);
            out.part_of(&text.bytes, text.length);
        }
        // A sink takes what fits and does not fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Writes `text`, cut to `bytes_max`.
#[inline]
pub(super) fn push_text(out: &mut Sink<'_>, escape: Escape, text: &[u8], bytes_max: usize) {
    if text.len() <= bytes_max {
        escape.push(out, text);
    } else {
        escape.push(out, &text[..bytes_max]);
        out.fixed(b"...");
    }
}

/// Writes a URL without its secrets, cut to `bytes_max`.
#[inline]
pub(super) fn push_url(out: &mut Sink<'_>, escape: Escape, url: &[u8], bytes_max: usize) {
    let (shown, end) = match url.get(..bytes_max) {
        Some(start) if url.len() > bytes_max => (start, &b"..."[..]),
        _ => (url, &b""[..]),
    };
    redact(shown, |piece| escape.push(out, piece));
    out.slice(end);
}

pub(super) fn version(version: wire::Version) -> &'static [u8; 8] {
    match version {
        wire::Version::Http10 => b"HTTP/1.0",
        wire::Version::Http11 => b"HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::written;
    use super::*;

    fn shown(address: &str) -> String {
        let address = address.parse().unwrap();
        String::from_utf8(written(60, |out| push_address(out, address))).unwrap()
    }

    #[test]
    fn addresses_are_written_as_everywhere() {
        for octet in 0..=255u8 {
            assert_eq!(shown(&format!("{octet}.1.2.{octet}")), format!("{octet}.1.2.{octet}"));
        }
        for text in ["0.0.0.0", "127.0.0.1", "10.20.103.9", "255.255.255.255", "::1", "2001:db8::a"]
        {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("::ffff:10.0.0.1"), "10.0.0.1");
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let text = written(100, |out| {
            push_text(out, Escape::Json, b"12345", 4);
            push_text(out, Escape::Json, b"1234", 4);
            push_url(out, Escape::Json, b"/?token=secret", 10);
        });
        assert_eq!(String::from_utf8(text).unwrap(), "1234...1234/?token=***...");
    }
}
