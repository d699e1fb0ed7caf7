//! Converts the options of a target to a response: a [`ResponseSpec`] is decided once per request, and
//! its head is written from it. Uses no sockets and no clock.

use std::io::Write;

use wire::h2::FieldEncoder;
use wire::{Version, encode};

use crate::url_options::{OptionName, UrlOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseSpec {
    pub(crate) status: u16,
    /// Number of body bytes that are actually sent to a GET.
    pub(crate) size: u64,
    /// Number of data bytes per chunk; 0: not chunked.
    pub(crate) chunk_bytes: u64,
    /// True if the body comes from the random block instead of the pattern.
    pub(crate) random_body: bool,
    /// Maximum number of bytes per write; 0: unlimited.
    pub(crate) write_bytes_max: u64,
    pub(crate) content_length: ContentLength,
    pub(crate) persistence: Persistence,
    pub(crate) no_cache: bool,
    pub(crate) etag: Option<u32>,
    pub(crate) timing_fields: bool,
    pub(crate) delay_ns: u64,
    pub(crate) pause_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) allocations: u64,
    /// Number of bytes of the request's body to read before the response; `None`: all.
    pub(crate) read_max: Option<u64>,
    /// Time to wait for the next request, in ns; `None`: the time of the plan.
    pub(crate) idle_timeout_ns: Option<u64>,
}

/// Length that the head announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentLength {
    Actual,
    /// None: the body ends with the connection.
    Omitted,
    /// This length, whatever is sent.
    Override(u64),
}

/// Rule that decides whether the connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    AsClient,
    Close,
    /// Close only where the end of the body depends on it: HTTP/1.1 with an omitted or wrong length.
    CloseForFraming,
    KeepAlive,
}

/// Properties of a request that affect its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestProperties {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    pub(crate) keep_alive: bool,
}

impl Default for ResponseSpec {
    /// Returns a response without content.
    fn default() -> Self {
        Self::with_size(200, 0)
    }
}

impl ResponseSpec {
    pub(crate) fn decide(options: &UrlOptions, target: &[u8], rng: &mut fastrand::Rng) -> Self {
        let mut draw = |name| options.draw(name, rng);
        let status = match draw(OptionName::Status) {
            status @ 100..=999 => status as u16,
            _ => 200,
        };
        let size = if has_body(status) { non_negative(draw(OptionName::Size)) } else { 0 };
        let length = match draw(OptionName::ContentLength) {
            ..0 => ContentLength::Actual,
            0 => ContentLength::Omitted,
            length => ContentLength::Override(length as u64),
        };
        let (close, keep_alive) = (draw(OptionName::Close), draw(OptionName::KeepAlive));
        let etag = draw(OptionName::Etag);
        Self {
            status,
            size,
            chunk_bytes: non_negative(draw(OptionName::Chunk)),
            random_body: draw(OptionName::Random) > 0,
            write_bytes_max: non_negative(draw(OptionName::WriteSize)),
            content_length: length,
            persistence: decide_persistence(close, keep_alive, length, size),
            no_cache: draw(OptionName::Cache) < 1,
            etag: (etag > 0).then(|| hash(target, etag as u64)),
            timing_fields: draw(OptionName::Timing) != 0,
            delay_ns: non_negative(draw(OptionName::Delay)),
            pause_ns: non_negative(draw(OptionName::Pause)),
            cpu_ns: non_negative(draw(OptionName::Cpu)),
            allocations: non_negative(draw(OptionName::Allocations)),
            read_max: u64::try_from(draw(OptionName::ReadMax)).ok(),
            idle_timeout_ns: u64::try_from(draw(OptionName::IdleTimeout)).ok(),
        }
    }

    /// Returns a response with a body of this size and no other options.
    pub(crate) fn with_size(status: u16, size: u64) -> Self {
        Self {
            status,
            size,
            chunk_bytes: 0,
            random_body: false,
            write_bytes_max: 0,
            content_length: ContentLength::Actual,
            persistence: Persistence::AsClient,
            no_cache: false,
            etag: None,
            timing_fields: false,
            delay_ns: 0,
            pause_ns: 0,
            cpu_ns: 0,
            allocations: 0,
            read_max: None,
            idle_timeout_ns: None,
        }
    }

    /// Returns a response with content from files. Without a length the content is chunked, or ends with
    /// the connection.
    pub(crate) fn for_file(status: u16, content_length: Option<u64>, version: Version) -> Self {
        let spec = Self::with_size(status, content_length.unwrap_or(0));
        match (content_length, version) {
            (Some(_), _) => spec,
            (None, Version::Http11) => Self { chunk_bytes: 1, ..spec },
            (None, Version::Http10) => Self {
                content_length: ContentLength::Omitted,
                persistence: Persistence::CloseForFraming,
                ..spec
            },
        }
    }

    /// Returns whether it needs only its bytes: no delay, no randomness, no work.
    pub(crate) fn is_immediate(&self) -> bool {
        self.delay_ns == 0
            && self.pause_ns == 0
            && self.cpu_ns == 0
            && self.allocations == 0
            && self.write_bytes_max == 0
            && self.read_max.is_none()
            && !self.timing_fields
            && !self.random_body
    }

    pub(crate) fn is_chunked(&self, request: RequestProperties) -> bool {
        self.chunk_bytes > 0 && request.version == Version::Http11 && has_body(self.status)
    }

    pub(crate) fn content_bytes(&self, request: RequestProperties) -> u64 {
        if request.is_head { 0 } else { self.size }
    }

    /// Returns whether the connection stays open after it.
    pub(crate) fn keeps_alive(&self, request: RequestProperties) -> bool {
        match self.persistence {
            Persistence::AsClient => request.keep_alive,
            Persistence::Close | Persistence::CloseForFraming => false,
            Persistence::KeepAlive => true,
        }
    }

    /// Returns whether a connection of HTTP/2, whose frames delimit each body, ends after it.
    pub(crate) fn closes_http2(&self) -> bool {
        self.persistence == Persistence::Close
    }

    /// Writes the head of HTTP/2. Values that differ each time stay out of the client's table if
    /// `is_fixed` is false.
    pub(crate) fn write_fields(
        &self,
        fields: &mut FieldEncoder<'_>,
        request: RequestProperties,
        date: &[u8],
        is_fixed: bool,
    ) {
        fields.status(self.status);
        fields.field("date", date);
        let length = match self.content_length {
            _ if self.is_chunked(request) => None,
            ContentLength::Actual => has_body(self.status).then_some(self.size),
            ContentLength::Override(length) => Some(length),
            ContentLength::Omitted => None,
        };
        if let Some(length) = length {
            let mut digits = [0; 20];
            let digits = decimal(length, &mut digits);
            if is_fixed {
                fields.field("content-length", digits);
            } else {
                fields.field_without_index("content-length", digits);
            }
        }
        if self.no_cache {
            fields.field("cache-control", b"no-cache");
        }
        if let Some(etag) = self.etag {
            let mut text = *b"\"00000000\"";
            for (position, digit) in text[1..9].iter_mut().enumerate() {
                *digit = b"0123456789abcdef"[(etag >> (28 - 4 * position)) as usize & 15];
            }
            fields.field("etag", &text);
        }
    }

    /// Writes the head with its empty line; returns the position of the date in `out`.
    pub(crate) fn write_head(
        &self,
        out: &mut Vec<u8>,
        request: RequestProperties,
        keep_alive: bool,
        date: &[u8],
        extra: &[u8],
    ) -> usize {
        encode::status_line(out, Version::Http11, self.status);
        out.extend_from_slice(b"Date: ");
        let date_offset = out.len();
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        if self.is_chunked(request) {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else {
            match self.content_length {
                ContentLength::Actual if has_body(self.status) => {
                    encode::field_u64(out, "Content-Length", self.size);
                }
                ContentLength::Override(length) => encode::field_u64(out, "Content-Length", length),
                ContentLength::Actual | ContentLength::Omitted => {}
            }
        }
        if !keep_alive {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if request.version == Version::Http10 || !request.keep_alive {
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
        date_offset
    }
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

/// Returns whether a response with this status can have content (RFC 9110 §6.4.1).
fn has_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// Decides whether the connection stays open. A wrong length breaks the framing of the next
/// response, so the connection then ends unless the target keeps it open.
fn decide_persistence(close: i64, keep_alive: i64, length: ContentLength, size: u64) -> Persistence {
    match (close, keep_alive) {
        (1.., _) | (_, 0) => Persistence::Close,
        _ if length == ContentLength::Omitted => Persistence::CloseForFraming,
        (0, _) | (_, 1..) => Persistence::KeepAlive,
        _ if matches!(length, ContentLength::Override(length) if length != size) => {
            Persistence::CloseForFraming
        }
        _ => Persistence::AsClient,
    }
}

fn non_negative(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Returns a 32-bit FNV-1a hash, which is enough for a seed and a target to distinguish responses.
fn hash(target: &[u8], seed: u64) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let seeded = seed.to_le_bytes().iter().fold(0x811c_9dc5, step);
    target.iter().fold(seeded, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url_options::{TargetKind, parse_target};

    const GET: RequestProperties =
        RequestProperties { version: Version::Http11, is_head: false, keep_alive: true };

    fn head(target: &str, request: RequestProperties) -> String {
        let TargetKind::Response(options) = parse_target(target.as_bytes()) else { panic!("{target}") };
        let mut rng = fastrand::Rng::with_seed(1);
        let spec = ResponseSpec::decide(&options, target.as_bytes(), &mut rng);
        let mut out = Vec::new();
        let date_offset = spec.write_head(&mut out, request, spec.keeps_alive(request), b"DATE", b"");
        assert_eq!(&out[date_offset..date_offset + 4], b"DATE");
        String::from_utf8(out).unwrap().replace("\r\n", "|").replace("Date: DATE|", "")
    }

    #[test]
    fn heads_follow_the_url_options() {
        let head10 = RequestProperties { version: Version::Http10, ..GET };
        let closing = RequestProperties { keep_alive: false, ..GET };
        for (target, request, expected) in [
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
            assert_eq!(head(target, request), expected, "{target}");
        }
    }

    #[test]
    fn a_response_with_a_size_has_no_other_options() {
        let none = ResponseSpec::decide(&UrlOptions::default(), b"", &mut fastrand::Rng::with_seed(0));
        assert_eq!(ResponseSpec::with_size(200, 0), none);
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
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
    fn responses_that_need_time_or_work_are_not_immediate() {
        let immediate = |target: &str| {
            let TargetKind::Response(options) = parse_target(target.as_bytes()) else { panic!() };
            ResponseSpec::decide(&options, b"", &mut fastrand::Rng::with_seed(1)).is_immediate()
        };
        assert!(immediate("/?s=1m&k=1&e=1&c=0&b=5&C=1&w=1"));
        for target in ["/?t=1", "/?P=1", "/?p=1", "/?R=1", "/?v=1", "/?cpu=1", "/?alloc=1", "/?B=1"] {
            assert!(!immediate(target), "{target}");
        }
    }
}
