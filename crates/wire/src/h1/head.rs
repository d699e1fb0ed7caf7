//! What a head is once it is read: borrowed from the caller's bytes, with its framing already
//! decided.
//!
//! Types and two helpers for the caller's read loop; the reading itself is in `request` and
//! `response`.

use std::mem::MaybeUninit;

use memchr::memchr_iter;

pub use httparse::Header;

/// The most field lines that one head can have, whatever [`Limits::headers_max`](super::Limits)
/// says.
pub const HEADERS_CAP: usize = 128;

/// Room for the field lines of one head, on the caller's stack (4 KiB). It holds nothing between
/// two parses.
pub type HeaderSlots<'b> = [MaybeUninit<Header<'b>>; HEADERS_CAP];

/// Room for the field lines of one head. Uninitialised, so it costs nothing.
#[inline]
#[must_use]
pub fn header_slots<'b>() -> HeaderSlots<'b> {
    [const { MaybeUninit::uninit() }; HEADERS_CAP]
}

/// The protocol version of a message (RFC 9112 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    /// The version of a start line that httparse accepted: it knows 0 and 1.
    #[inline]
    pub(super) fn of_minor(minor: u8) -> Self {
        if minor == 1 { Self::Http11 } else { Self::Http10 }
    }
}

/// Where the body of a message ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body: the next byte belongs to the next message, or to the tunnel.
    None,
    /// Exactly so many bytes; 0 is kept apart from [`Framing::None`], so that a proxy can pass it
    /// on.
    Length(u64),
    /// Chunks, up to the one of size 0 and its trailer section.
    Chunked,
    /// All bytes up to the end of the connection. Responses only.
    UntilClose,
}

/// What a head parser found in the bytes that there are so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole head.
    Complete {
        /// The head.
        head: T,
        /// The bytes that the head took, with its empty line: the body starts there.
        bytes: usize,
    },
    /// All is well so far; call again with more bytes, from the same start. See
    /// [`head_may_be_complete`].
    Incomplete,
}

/// The head of a request that passed every check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead<'h, 'b> {
    /// The method, case-sensitive (RFC 9110 §9.1).
    pub method: &'b str,
    /// The request target as it was sent: visible ASCII without `#`, in a form that fits the method
    /// (RFC 9112 §3.2).
    pub target: &'b str,
    /// The version of the request line.
    pub version: Version,
    /// The field lines in their order; values without surrounding whitespace.
    pub headers: &'h [Header<'b>],
    /// Whom the request is for: the authority of an absolute-form target, or else the `Host` field.
    /// Always there on HTTP/1.1, and empty only with `OPTIONS *`.
    pub host: Option<&'b str>,
    /// Where the body ends: never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client wants the connection to stay after the answer (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before its body: HTTP/1.1 with a body only (RFC
    /// 9110 §10.1.1).
    pub expect_continue: bool,
    /// The first `Upgrade` field, when `Connection` has the `upgrade` option on HTTP/1.1 (RFC 9110
    /// §7.8).
    pub upgrade: Option<&'b str>,
}

/// The head of a response that passed every check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'h, 'b> {
    /// The version of the status line.
    pub version: Version,
    /// The status, 100 to 999.
    pub status: u16,
    /// The reason phrase; empty when it is missing or not ASCII. It means nothing (RFC 9112 §4).
    pub reason: &'b str,
    /// The field lines in their order; values without surrounding whitespace.
    pub headers: &'h [Header<'b>],
    /// Where the body ends, given what was asked.
    pub framing: Framing,
    /// Whether the connection can carry another request after this response. Always true for 1xx.
    pub keep_alive: bool,
    /// The first `Upgrade` field, when `Connection` has the `upgrade` option on HTTP/1.1.
    pub upgrade: Option<&'b str>,
}

impl ResponseHead<'_, '_> {
    /// Whether a further response follows for the same request: 1xx, except 101, after which there
    /// is no HTTP/1.1 (RFC 9110 §15.2).
    #[must_use]
    pub fn informational(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Whether the bytes after this head belong to another protocol: 101 (RFC 9110 §15.2.2).
    #[must_use]
    pub fn switching(&self) -> bool {
        self.status == 101
    }
}

/// What a response answers, as far as its framing needs to know (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// `HEAD`: no response has a body.
    Head,
    /// `CONNECT`: a 2xx has no body, the tunnel starts right after it.
    Connect,
    /// Any other method.
    Other,
}

impl RequestKind {
    /// The kind of a request with this method.
    #[must_use]
    pub fn of(method: &str) -> Self {
        match method {
            "HEAD" => Self::Head,
            "CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// Whether bytes that were just received can have completed a head: `false` is certain, `true` is
/// worth a parse.
///
/// It keeps a slow sender from making us parse the same head again for each byte that it drips. Use
/// it so:
/// 1. parse after the first read of a head, whatever it holds;
/// 2. after each further read, call this **with only the bytes of that read**, and parse when it
///    says `true`;
/// 3. parse as well whenever the head so far is at least [`Limits::head_bytes_max`](super::Limits)
///    long, or else an endless line is never refused.
///
/// An empty line is a LF right after a LF or a CR LF. What came before `new_bytes` is unknown, so a
/// LF among the first two counts as one; a sender of single bytes therefore gets one parse a line,
/// of at most `headers_max` lines. A bad byte is found at the next parse, not at once.
#[inline]
#[must_use]
pub fn head_may_be_complete(new_bytes: &[u8]) -> bool {
    memchr_iter(b'\n', new_bytes)
        .any(|at| matches!(&new_bytes[..at], [] | [b'\r'] | [.., b'\n'] | [.., b'\n', b'\r']))
}
