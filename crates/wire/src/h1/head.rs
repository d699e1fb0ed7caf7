//! Parsed heads: borrowed from the caller's bytes, with the framing of the body already determined.
//!
//! This module has the types and two helpers for the caller's read loop; `request` and `response`
//! do the parsing.

use arrayvec::ArrayVec;
use memchr::memchr_iter;

/// Maximum number of field lines in one head, whatever [`Limits::headers_max`](super::Limits) is.
pub const HEADERS_CAP: usize = 128;

/// A field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'b> {
    /// Name as it was sent: a token (RFC 9110 §5.1).
    pub name: &'b str,
    /// Value without surrounding whitespace. Bytes from 0x80 have no meaning of their own (RFC 9110 §5.5).
    pub value: &'b [u8],
}

/// Slots for the field lines of one head, on the caller's stack (4 KiB). A parse clears them first.
pub type HeaderSlots<'b> = ArrayVec<Header<'b>, HEADERS_CAP>;

/// Returns slots for the field lines of one head. They are uninitialised, so they cost nothing.
#[inline]
pub fn header_slots<'b>() -> HeaderSlots<'b> {
    ArrayVec::new()
}

/// Protocol version of a message (RFC 9112 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// Framing of a message body: the rule for its length (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body: the next byte belongs to the next message, or to the tunnel.
    None,
    /// `Content-Length`: exactly this many bytes. 0 is distinguished from [`Framing::None`], so that a
    /// proxy can forward the field.
    Length(u64),
    /// Chunked transfer coding, up to the end of the trailer section.
    Chunked,
    /// Close-delimited: all bytes up to the end of the connection. Responses only.
    UntilClose,
}

/// Result of parsing the bytes received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<T> {
    Complete {
        head: T,
        /// Number of bytes up to the end of the head, including empty lines before a request line: the
        /// body starts there.
        bytes: usize,
    },
    /// There is no error so far; call again with more bytes, from the same start. See
    /// [`head_may_be_complete`].
    Incomplete,
}

/// Head of a request that passed every check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead<'h, 'b> {
    /// Method, case-sensitive (RFC 9110 §9.1).
    pub method: &'b str,
    /// Request target as it was sent: visible ASCII without `#`, in a form that fits the method
    /// (RFC 9112 §3.2).
    pub target: &'b str,
    pub version: Version,
    /// Field lines in their order; values without surrounding whitespace.
    pub headers: &'h [Header<'b>],
    /// Host of the request: the authority of an absolute-form target, or else the `Host` field.
    /// Always present on HTTP/1.1, and empty only with `OPTIONS *`.
    pub host: Option<&'b str>,
    /// Framing of the body: never [`Framing::UntilClose`].
    pub framing: Framing,
    /// True if the client wants the connection to persist after the response (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// True if the client waits for `100 Continue` before its body: HTTP/1.1 with a body only (RFC
    /// 9110 §10.1.1).
    pub expect_continue: bool,
    /// First `Upgrade` field, if `Connection` has the `upgrade` option on HTTP/1.1 (RFC 9110 §7.8).
    pub upgrade: Option<&'b str>,
    /// True if a `Connection` field has an option besides `close` and `keep-alive`.
    pub has_connection_options: bool,
    /// Bytes of the head as it was received; empty if it was not. A field may be one that they do not have.
    pub received: &'b [u8],
}

/// Head of a response that passed every check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'h, 'b> {
    pub version: Version,
    /// Status code, 100 to 999.
    pub status: u16,
    /// Reason phrase; empty if it is missing or not ASCII. It has no meaning (RFC 9112 §4).
    pub reason: &'b str,
    /// Field lines in their order; values without surrounding whitespace.
    pub headers: &'h [Header<'b>],
    /// Framing of the body, which depends on the request.
    pub framing: Framing,
    /// True if the connection can carry another request after this response. Always true for 1xx.
    pub keep_alive: bool,
    /// First `Upgrade` field, if `Connection` has the `upgrade` option on HTTP/1.1.
    pub upgrade: Option<&'b str>,
    /// True if a `Connection` field has an option besides `close` and `keep-alive`.
    pub has_connection_options: bool,
    /// Bytes of the head as it was received; empty if it was not. A field may be one that they do not have.
    pub received: &'b [u8],
}

impl ResponseHead<'_, '_> {
    /// Returns true if a further response follows for the same request: 1xx, except 101, after
    /// which the connection is no longer HTTP/1.1 (RFC 9110 §15.2).
    pub fn is_informational(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Returns true if the bytes after this head belong to another protocol: 101 (RFC 9110
    /// §15.2.2).
    pub fn is_switching_protocols(&self) -> bool {
        self.status == 101
    }
}

/// Kind of a request, as far as the framing of its response depends on it (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// `HEAD`: the response has no body.
    Head,
    /// `CONNECT`: a 2xx has no body, the tunnel starts right after it.
    Connect,
    Other,
}

impl RequestKind {
    #[must_use]
    pub fn from_method(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// Returns whether newly received bytes can have completed a head: `false` is certain, `true`
/// requires a parse.
///
/// It keeps a slow sender from causing a parse of the same head for each byte. Use it like this:
/// 1. parse after the first read of a head, whatever it contains;
/// 2. after each further read, call this **with only the bytes of that read**, and parse if it
///    returns `true`;
/// 3. also parse whenever the head so far is at least [`Limits::head_bytes_max`](super::Limits)
///    long, or else an endless line is never rejected.
///
/// An empty line is a LF right after a LF or a CR LF. The bytes before `new_bytes` are unknown, so
/// a LF among the first two counts as one. A sender of single bytes therefore causes one parse per
/// line, of at most `headers_max` lines. A bad byte is found at the next parse, not at once.
#[inline]
pub fn head_may_be_complete(new_bytes: &[u8]) -> bool {
    memchr_iter(b'\n', new_bytes)
        .any(|position| matches!(&new_bytes[..position], [] | [b'\r'] | [.., b'\n'] | [.., b'\n', b'\r']))
}
