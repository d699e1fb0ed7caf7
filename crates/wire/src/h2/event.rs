//! Events of a connection, and the heads in them, which borrow from the connection.

use std::fmt;

use super::config::StreamKey;
use super::fault::{ErrorCode, FaultKind};
use super::table::{FieldRef, Texts};

/// Something that the peer sent, or that happened to a stream.
#[derive(Debug)]
pub enum Event<'e> {
    Request {
        stream: StreamKey,
        /// Head; valid by RFC 9113 §8.
        head: RequestHead<'e>,
        /// True if there is no body and no trailer section.
        is_end: bool,
    },
    /// A request that cannot be served but may be answered: its head is over a limit (431), or not
    /// valid as an HTTP message although the frames are (400). The peer's further frames of the
    /// stream are discarded. The caller may send a response, or reset the stream.
    RejectedRequest {
        stream: StreamKey,
        refusal: crate::Refusal,
        /// Method and target with a space between them, as far as they were decoded, for
        /// [`crate::salvage_request_line`].
        request_line: &'e [u8],
    },
    /// A head of a response, interim or final, at a client.
    Response {
        stream: StreamKey,
        /// Head; valid by RFC 9113 §8.
        head: ResponseHead<'e>,
        /// True if there is no body and no trailer section.
        is_end: bool,
    },
    /// A part of a body. The caller returns the bytes to the peer's window with
    /// [`Connection::consume`](super::Connection::consume) when it has passed them on; padding is returned
    /// without it.
    /// Content must be consumed also after the end of the stream, or be given up with
    /// [`Connection::reset`](super::Connection::reset).
    Data { stream: StreamKey, bytes: &'e [u8], is_end: bool },
    /// A trailer section, which ends the message.
    Trailers {
        stream: StreamKey,
        /// Fields; valid by RFC 9113 §8.1.
        fields: Fields<'e>,
    },
    /// The stream is over before its end: reset by the peer, or by this end because of the peer's
    /// fault. Its key is invalid from now on; its content that was not consumed is returned to the
    /// window of the connection.
    ///
    /// At a server it may be a stream that was not reported before: its request was malformed.
    Reset {
        stream: StreamKey,
        /// Code of the `RST_STREAM` frame.
        code: ErrorCode,
        /// Fault of the peer that this end reset the stream for; `None`: the peer reset it.
        fault: Option<FaultKind>,
        /// True if the peer certainly did not process the request (RFC 9113 §8.7): it may be sent
        /// again elsewhere.
        is_unprocessed: bool,
    },
    /// A stream that could not send has a window again.
    StreamWritable(StreamKey),
    /// All streams that could not send because of the connection's window may try again.
    ConnectionWritable,
    /// The peer accepts no further streams. Each stream that it will not process was reported as
    /// [`Event::Reset`] before.
    GoAway {
        /// Last stream that the peer may process.
        last_stream: u32,
        code: ErrorCode,
    },
    /// The peer changed its settings, for example the number of streams that it accepts.
    SettingsChanged,
    /// The peer acknowledged a [`Connection::ping`](super::Connection::ping) with this payload.
    Pong(u64),
}

/// Head of a request (RFC 9113 §8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'e> {
    pub method: &'e str,
    /// Scheme; `None` only with CONNECT.
    pub scheme: Option<&'e str>,
    /// Authority, or the `host` field if there is none.
    pub authority: Option<&'e str>,
    /// Path with query, or `*`; `None` only with CONNECT.
    pub path: Option<&'e str>,
    /// Protocol of an extended CONNECT (RFC 8441).
    pub protocol: Option<&'e str>,
    pub content_length: Option<u64>,
    /// All other fields: without `host`, which equals the authority, and without `content-length`.
    pub fields: Fields<'e>,
}

/// Head of a response (RFC 9113 §8.3.2).
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'e> {
    /// Status, 100 to 999, not 101 (RFC 9113 §8.6).
    pub status: u16,
    pub content_length: Option<u64>,
    /// All other fields: without `content-length`.
    pub fields: Fields<'e>,
}

/// Decoded field lines in their order, with lower-case names and valid values.
#[derive(Clone, Copy)]
pub struct Fields<'e> {
    pub(super) texts: Texts<'e>,
    pub(super) refs: &'e [FieldRef],
}

impl<'e> Fields<'e> {
    /// Fields of a head without any.
    pub const EMPTY: Fields<'static> = Fields { texts: Texts { table: &[], literals: &[] }, refs: &[] };

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'e str, &'e [u8])> + use<'e> {
        let texts = self.texts;
        self.refs.iter().map(move |field| (texts.token(field.name), texts.value(field.value)))
    }

    pub fn len(&self) -> usize {
        self.refs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// Returns the value of the first field with a lower-case name.
    pub fn get(&self, name: &str) -> Option<&'e [u8]> {
        self.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// Joins the values of all `cookie` fields with `; ` (RFC 9113 §8.2.3), for a recipient that is
    /// not HTTP/2; empty ones are left out. Returns false, and appends nothing, if there is none.
    pub fn join_cookies(&self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut has_cookie = false;
        for (_, value) in self.iter().filter(|(name, _)| *name == "cookie") {
            has_cookie = true;
            if out.len() > start && !value.is_empty() {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(value);
        }
        has_cookie
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, value.escape_ascii().to_string())))
            .finish()
    }
}
