//! From what a target asks for to what is sent: an [`Answer`] is decided once for a request, and
//! its head is written from it. No sockets, and no clock.

use std::io::Write;

use wire::{Version, encode};

use crate::language::{Name, Options};

/// What one request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Bytes of the body that are really sent to a GET.
    pub(crate) size: u64,
    /// Data bytes a chunk; 0: not chunked.
    pub(crate) chunk: u64,
    /// From the random block instead of the pattern.
    pub(crate) random: bool,
    /// At most so many bytes a write; 0: as many as possible.
    pub(crate) piece: u64,
    pub(crate) length: Length,
    pub(crate) persist: Persist,
    pub(crate) no_cache: bool,
    pub(crate) etag: Option<u32>,
    pub(crate) timing: bool,
    pub(crate) delay_ns: u64,
    pub(crate) pause_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) allocations: u64,
    /// Bytes of the request's body to read before answering; `None`: all.
    pub(crate) read_max: Option<u64>,
    /// How long to wait for the next request; `None`: as planned.
    pub(crate) wait_ns: Option<u64>,
}

/// Which length the head tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    True,
    /// None: the body ends with the connection.
    Untold,
    /// This one, whatever is sent.
    Told(u64),
}

/// Who decides whether the connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persist {
    AsClient,
    Close,
    Keep,
}

/// What of a request matters to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    pub(crate) keep_alive: bool,
}

impl Answer {
    /// Decides, drawing what is left to chance.
    pub(crate) fn decide(options: &Options, target: &[u8], rng: &mut fastrand::Rng) -> Self {
        let mut draw = |name| options.draw(name, rng);
        let status = match draw(Name::Status) {
            status @ 100..=999 => status as u16,
            _ => 200,
        };
        let size = if has_body(status) { at_least_0(draw(Name::Size)) } else { 0 };
        let length = match draw(Name::Advertised) {
            ..0 => Length::True,
            0 => Length::Untold,
            told => Length::Told(told as u64),
        };
        let (close, keep) = (draw(Name::Close), draw(Name::Keep));
        let etag = draw(Name::Etag);
        Self {
            status,
            size,
            chunk: at_least_0(draw(Name::Chunk)),
            random: draw(Name::Random) > 0,
            piece: at_least_0(draw(Name::Piece)),
            length,
            persist: persist(close, keep, length, size),
            no_cache: draw(Name::Cache) < 1,
            etag: (etag > 0).then(|| hash(target, etag as u64)),
            timing: draw(Name::Timing) != 0,
            delay_ns: at_least_0(draw(Name::Delay)),
            pause_ns: at_least_0(draw(Name::Pause)),
            cpu_ns: at_least_0(draw(Name::Cpu)),
            allocations: at_least_0(draw(Name::Allocations)),
            read_max: u64::try_from(draw(Name::ReadMax)).ok(),
            wait_ns: u64::try_from(draw(Name::Wait)).ok(),
        }
    }

    /// A body of this size and nothing else out of the ordinary.
    pub(crate) fn plain(status: u16, size: u64) -> Self {
        let none = Self::decide(&Options::default(), b"", &mut fastrand::Rng::with_seed(0));
        Self { status, size, ..none }
    }

    /// Whether it needs nothing but its bytes: no time, no chance, no work.
    pub(crate) fn is_immediate(&self) -> bool {
        self.delay_ns == 0
            && self.pause_ns == 0
            && self.cpu_ns == 0
            && self.allocations == 0
            && self.piece == 0
            && self.read_max.is_none()
            && !self.timing
            && !self.random
    }

    /// How its body is framed for this request.
    pub(crate) fn is_chunked(&self, asked: Asked) -> bool {
        self.chunk > 0 && asked.version == Version::Http11 && has_body(self.status)
    }

    /// Bytes of content to send for this request.
    pub(crate) fn content_bytes(&self, asked: Asked) -> u64 {
        if asked.is_head { 0 } else { self.size }
    }

    /// Whether the connection stays after it.
    pub(crate) fn keeps(&self, asked: Asked) -> bool {
        match self.persist {
            Persist::AsClient => asked.keep_alive,
            Persist::Close => false,
            Persist::Keep => true,
        }
    }

    /// Writes the head with its empty line; returns where in `out` the date stands.
    pub(crate) fn write_head(
        &self,
        out: &mut Vec<u8>,
        asked: Asked,
        keeps: bool,
        date: &[u8],
        extra: &[u8],
    ) -> usize {
        encode::status_line(out, Version::Http11, self.status);
        out.extend_from_slice(b"Date: ");
        let date_at = out.len();
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        if self.is_chunked(asked) {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else {
            match self.length {
                Length::True if has_body(self.status) => {
                    encode::field_u64(out, "Content-Length", self.size);
                }
                Length::Told(told) => encode::field_u64(out, "Content-Length", told),
                Length::True | Length::Untold => {}
            }
        }
        if !keeps {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if asked.version == Version::Http10 || !asked.keep_alive {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        if self.no_cache {
            out.extend_from_slice(b"Cache-Control: no-cache\r\n");
        }
        if let Some(etag) = self.etag {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "ETag: \"{etag:08x}\"\r\n");
        }
        out.extend_from_slice(extra);
        encode::end_of_head(out);
        date_at
    }
}

/// Whether an answer with this status can have content (RFC 9110 §6.4.1).
fn has_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// A length that is not the true one takes the framing away from under the next answer, so then
/// the connection ends unless it is asked to stay.
fn persist(close: i64, keep: i64, length: Length, size: u64) -> Persist {
    match (close, keep) {
        _ if length == Length::Untold => Persist::Close,
        (1.., _) | (_, 0) => Persist::Close,
        (0, _) | (_, 1..) => Persist::Keep,
        _ if matches!(length, Length::Told(told) if told != size) => Persist::Close,
        _ => Persist::AsClient,
    }
}

fn at_least_0(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// FNV-1a of 32 bits, which is all that a seed and a target need to tell answers apart.
fn hash(target: &[u8], seed: u64) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let seeded = seed.to_le_bytes().iter().fold(0x811c_9dc5, step);
    target.iter().fold(seeded, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Purpose, parse_target};

    const GET: Asked = Asked { version: Version::Http11, is_head: false, keep_alive: true };

    fn head(target: &str, asked: Asked) -> String {
        let Purpose::Answer(options) = parse_target(target.as_bytes()) else { panic!("{target}") };
        let mut rng = fastrand::Rng::with_seed(1);
        let answer = Answer::decide(&options, target.as_bytes(), &mut rng);
        let mut out = Vec::new();
        let at = answer.write_head(&mut out, asked, answer.keeps(asked), b"DATE", b"");
        assert_eq!(&out[at..at + 4], b"DATE");
        String::from_utf8(out).unwrap().replace("\r\n", "|").replace("Date: DATE|", "")
    }

    #[test]
    fn heads_say_what_was_asked_for() {
        let head10 = Asked { version: Version::Http10, ..GET };
        let closing = Asked { keep_alive: false, ..GET };
        for (target, asked, wanted) in [
            ("/?s=5", GET, "HTTP/1.1 200 OK|Content-Length: 5||"),
            ("/?r=404", GET, "HTTP/1.1 404 Not Found|Content-Length: 0||"),
            ("/?r=999", GET, "HTTP/1.1 999 |Content-Length: 0||"),
            ("/?r=7", GET, "HTTP/1.1 200 OK|Content-Length: 0||"),
            ("/?r=204&s=5", GET, "HTTP/1.1 204 No Content||"),
            ("/?r=304&s=5", GET, "HTTP/1.1 304 Not Modified||"),
            ("/?k=1", GET, "HTTP/1.1 200 OK|Transfer-Encoding: chunked||"),
            ("/?k=1&s=5", head10, "HTTP/1.1 200 OK|Content-Length: 5|Connection: keep-alive||"),
            ("/?b=100k&s=5", GET, "HTTP/1.1 200 OK|Content-Length: 102400|Connection: close||"),
            ("/?b=9&s=5&K=1", GET, "HTTP/1.1 200 OK|Content-Length: 9||"),
            ("/?b=0&s=5", GET, "HTTP/1.1 200 OK|Connection: close||"),
            ("/?C=1", GET, "HTTP/1.1 200 OK|Content-Length: 0|Connection: close||"),
            ("/?K=0", GET, "HTTP/1.1 200 OK|Content-Length: 0|Connection: close||"),
            ("/?K=1", closing, "HTTP/1.1 200 OK|Content-Length: 0|Connection: keep-alive||"),
            ("/?C=0", closing, "HTTP/1.1 200 OK|Content-Length: 0|Connection: keep-alive||"),
            ("/?c=0", GET, "HTTP/1.1 200 OK|Content-Length: 0|Cache-Control: no-cache||"),
        ] {
            assert_eq!(head(target, asked), wanted, "{target}");
        }
    }

    #[test]
    fn etags_differ_by_target_and_by_seed_and_stay_the_same() {
        let tags = ["/a?e=1", "/b?e=1", "/a?e=2"].map(|target| head(target, GET));
        assert_eq!(tags[0], head("/a?e=1", GET));
        assert!(tags[0] != tags[1] && tags[0] != tags[2] && tags[1] != tags[2]);
        assert!(tags[0].contains("ETag: \""));
    }

    #[test]
    fn what_needs_time_or_work_is_not_immediate() {
        let immediate = |target: &str| {
            let Purpose::Answer(options) = parse_target(target.as_bytes()) else { panic!() };
            Answer::decide(&options, b"", &mut fastrand::Rng::with_seed(1)).is_immediate()
        };
        assert!(immediate("/?s=1m&k=1&e=1&c=0&b=5&C=1&w=1"));
        for target in ["/?t=1", "/?P=1", "/?p=1", "/?R=1", "/?v=1", "/?cpu=1", "/?alloc=1", "/?B=1"]
        {
            assert!(!immediate(target), "{target}");
        }
    }
}
