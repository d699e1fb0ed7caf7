//! HTTP/2 (RFC 9113), both ends, sans-I/O: frames, HPACK (RFC 7541), streams and flow control of one
//! connection.
//!
//! ```text
//! bytes received -> Connection::next_event -> Event (heads, data, trailers, resets)
//! send_headers, send_data, reset, ... -> Connection::output -> bytes to write
//! ```
//! The caller owns the socket. It reads into a buffer of at least [`INPUT_BYTES_MIN`] bytes, calls
//! [`Connection::next_event`] until it returns no event, keeps the unused bytes, and writes
//! [`Connection::output`] when it has handled all events of a read: one write for many streams.
//!
//! Everything that RFC 9113 requires of one connection is checked here: the states of streams, the
//! validity of heads (§8.2, §8.3), the agreement of `content-length` and data, windows, limits, and
//! the abuse of control frames (§10.5). A fault of a stream resets the stream and is reported as an
//! event. A fault of the connection is an error: the caller writes the output (which ends in
//! `GOAWAY`) and closes.

/// Role of this end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends requests.
    Client,
    /// Receives requests.
    Server,
}

/// Minimum size of the caller's input buffer: a frame of the default maximum size with its header
/// (RFC 9113 §4.2). `DATA` frames are handled in pieces, all others when they are complete.
pub const INPUT_BYTES_MIN: usize = 16_384 + 9;

/// First bytes of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream of one connection: its identifier (RFC 9113 §5.1.1), and its slot among the open
/// streams, a small number that the caller can use as an index of its own table. A slot is used
/// again after its stream; the identifier is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Slot.
    pub slot: u32,
    /// Stream identifier.
    pub id: u32,
}

/// Settings and limits of this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum concurrent streams that the peer may open: 100 (server only).
    pub concurrent_streams_max: u32,
    /// Initial receive window of a stream in bytes: 65,535.
    pub stream_window_bytes: u32,
    /// Maximum receive window of a stream: the window grows up to it while the peer fills it: 1 MiB.
    pub stream_window_bytes_max: u32,
    /// Initial receive window of the connection: 1 MiB.
    pub connection_window_bytes: u32,
    /// Maximum receive window of the connection: 16 MiB.
    pub connection_window_bytes_max: u32,
    /// Maximum frame payload that this end accepts: 16,384.
    pub frame_bytes_max: u32,
    /// Maximum size of the HPACK table that the peer's encoder may use: 4,096.
    pub header_table_bytes: u32,
    /// Maximum bytes of a decoded head, counted as in RFC 9113 §6.5.2 (32 per field added): 16,384 +
    /// 32 * 100.
    pub head_bytes_max: usize,
    /// Maximum fields of a head: 100.
    pub headers_max: usize,
    /// Announces extended CONNECT (RFC 8441).
    pub enables_connect_protocol: bool,
    /// Maximum balance of abusive frames, see [`FaultKind::EnhanceYourCalm`]: 200.
    pub abuse_max: u32,
}

/// An error code (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

/// Something that the peer sent, or that happened to a stream.
#[derive(Debug)]
pub enum Event<'e> {
    /// A head of a request, at a server.
    Request {
        /// Its new stream.
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
        /// Its new stream.
        stream: StreamKey,
        /// Reason, with its status.
        refusal: crate::Refusal,
    },
    /// A head of a response, interim or final, at a client.
    Response {
        /// Stream.
        stream: StreamKey,
        /// Head; valid by RFC 9113 §8.
        head: ResponseHead<'e>,
        /// True if there is no body and no trailer section.
        is_end: bool,
    },
    /// A part of a body. The caller returns the bytes to the peer's window with
    /// [`Connection::consume`] when it has passed them on; padding is returned without it.
    Data {
        /// Stream.
        stream: StreamKey,
        /// Content.
        bytes: &'e [u8],
        /// True if this is the end of the message.
        is_end: bool,
    },
    /// A trailer section, which ends the message.
    Trailers {
        /// Stream.
        stream: StreamKey,
        /// Fields; valid by RFC 9113 §8.1.
        fields: Fields<'e>,
    },
    /// The stream is over before its end: reset by the peer, or by this end because of the peer's
    /// fault. Its key is invalid from now on.
    Reset {
        /// Stream.
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
        /// Its reason.
        code: ErrorCode,
    },
    /// The peer changed its settings, for example the number of streams that it accepts.
    SettingsChanged,
    /// The peer acknowledged a [`Connection::ping`] with this payload.
    Pong(u64),
}

/// Head of a request (RFC 9113 §8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'e> {
    /// Method.
    pub method: &'e str,
    /// Scheme; `None` only with CONNECT.
    pub scheme: Option<&'e str>,
    /// Authority, or the `host` field if there is none.
    pub authority: Option<&'e str>,
    /// Path with query, or `*`; `None` only with CONNECT.
    pub path: Option<&'e str>,
    /// Protocol of an extended CONNECT (RFC 8441).
    pub protocol: Option<&'e str>,
    /// Value of `content-length`.
    pub content_length: Option<u64>,
    /// All other fields, without `host` if it equals the authority.
    pub fields: Fields<'e>,
}

/// Head of a response (RFC 9113 §8.3.2).
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'e> {
    /// Status, 100 to 999, not 101 (RFC 9113 §8.6).
    pub status: u16,
    /// Value of `content-length`.
    pub content_length: Option<u64>,
    /// Fields.
    pub fields: Fields<'e>,
}

/// Decoded field lines in their order, with lower-case names and valid values.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'e> {
    // implementation: the connection's scratch bytes and their ranges
    pub(crate) bytes: &'e [u8],
    pub(crate) ranges: &'e [FieldRange],
}

impl<'e> Fields<'e> {
    /// Returns the fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'e str, &'e [u8])> + '_ {
        self.ranges.iter().map(|_| ("", &self.bytes[..0]))
    }
}

/// Position of one field in the scratch bytes.
#[derive(Clone, Copy, Debug)]
pub struct FieldRange {
    pub(crate) start: u32,
    pub(crate) name_end: u32,
    pub(crate) value_end: u32,
}

/// Fault of the peer that ends the connection, or a stream in [`Event::Reset`]. One table like
/// [`crate::RefusalKind`]: code, error code of RFC 9113, section, description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// Example row; the table has all of them (frame size, stream state, window overflow, HPACK,
    /// malformed head, CONTINUATION flood, ...).
    EnhanceYourCalm,
}

/// Writes the fields of one head into the output, HPACK-encoded.
#[derive(Debug)]
pub struct FieldEncoder<'c> {
    pub(crate) connection: &'c mut Connection,
}

impl FieldEncoder<'_> {
    /// Writes `:status`.
    pub fn status(&mut self, status: u16) {
        let _ = status;
        todo!()
    }

    /// Writes the pseudo-header fields of a request, in the order of RFC 9113 §8.3.1.
    pub fn request(&mut self, method: &str, scheme: Option<&str>, authority: Option<&str>, path: Option<&str>) {
        let _ = (method, scheme, authority, path);
        todo!()
    }

    /// Writes `:protocol` of an extended CONNECT (RFC 8441); after [`FieldEncoder::request`].
    pub fn protocol(&mut self, protocol: &str) {
        let _ = protocol;
        todo!()
    }

    /// Writes a field; the name is made lower case. Fields that HTTP/2 forbids (`connection`,
    /// `transfer-encoding`, ...: §8.2.2) are left out.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        let _ = (name, value);
        todo!()
    }

    /// Same as [`FieldEncoder::field`], never put into the table of the peer (RFC 7541 §7.1.3): for
    /// values that are secret, or different each time.
    pub fn field_without_index(&mut self, name: &str, value: &[u8]) {
        let _ = (name, value);
        todo!()
    }
}

/// State of one connection.
#[derive(Debug)]
pub struct Connection {}

/// Reason that no stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The peer's limit of concurrent streams is reached; wait for the end of a stream, or
    /// [`Event::SettingsChanged`].
    Full,
    /// The connection takes no further streams: GOAWAY was received or sent, or the identifiers are
    /// used up.
    Closed,
}

impl Connection {
    /// Begins a connection: the output has the preface (client) and the settings.
    #[must_use]
    pub fn new(role: Role, config: &Config) -> Self {
        let _ = (role, config);
        todo!()
    }

    /// Handles received bytes up to the next event. Returns the number of bytes used, which may be
    /// some although there is no event, and the event. No event: all complete frames are used; call
    /// again with the rest and more bytes.
    ///
    /// # Errors
    /// A fault of the peer that ends the connection; the output ends in `GOAWAY`.
    pub fn next_event<'e>(&'e mut self, input: &'e [u8]) -> Result<(usize, Option<Event<'e>>), FaultKind> {
        let _ = input;
        todo!()
    }

    /// Bytes to write to the peer. The caller removes those that it wrote. While they are more than
    /// [`Connection::is_output_full`] allows, it must not read.
    pub fn output(&mut self) -> &mut Vec<u8> {
        todo!()
    }

    /// Returns whether the output has more bytes than a peer that reads would leave there: the
    /// caller stops to read until it has written them, so that floods of PING and SETTINGS only
    /// stop their sender.
    #[must_use]
    pub fn is_output_full(&self) -> bool {
        todo!()
    }

    /// Opens a stream (client).
    ///
    /// # Errors
    /// There is no room for it.
    pub fn open_stream(&mut self) -> Result<StreamKey, OpenError> {
        todo!()
    }

    /// Sends a head or a trailer section: a request, an interim or final response, trailers.
    /// Does nothing if the stream is over.
    pub fn send_headers(&mut self, stream: StreamKey, is_end: bool, write: impl FnOnce(&mut FieldEncoder<'_>)) {
        let _ = (stream, is_end, write);
        todo!()
    }

    /// Returns the number of bytes that [`Connection::send_data`] would take now. If it is 0, an
    /// event reports when the stream may send again.
    pub fn sendable_bytes(&mut self, stream: StreamKey) -> usize {
        let _ = stream;
        todo!()
    }

    /// Sends a part of a body, in frames of the peer's size, as far as the windows allow. Returns the
    /// number of bytes taken. `is_end` counts only if all bytes are taken.
    pub fn send_data(&mut self, stream: StreamKey, bytes: &[u8], is_end: bool) -> usize {
        let _ = (stream, bytes, is_end);
        todo!()
    }

    /// Returns received content to the peer's windows. Updates are sent when they are worth a frame.
    pub fn consume(&mut self, stream: StreamKey, bytes: usize) {
        let _ = (stream, bytes);
        todo!()
    }

    /// Resets a stream that is not over. No event follows.
    pub fn reset(&mut self, stream: StreamKey, code: ErrorCode) {
        let _ = (stream, code);
        todo!()
    }

    /// Announces that no further streams of the peer are processed; those in progress go on. With
    /// `is_final` false (server) streams that are on their way are still accepted (RFC 9113 §6.8):
    /// call again with true a round trip later, for example after the [`Event::Pong`] of a ping.
    pub fn go_away(&mut self, code: ErrorCode, is_final: bool) {
        let _ = (code, is_final);
        todo!()
    }

    /// Sends a PING, which the peer acknowledges with [`Event::Pong`].
    pub fn ping(&mut self, payload: u64) {
        let _ = payload;
        todo!()
    }

    /// Number of streams that are not over.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        todo!()
    }

    /// Number of streams that may be opened now (client).
    #[must_use]
    pub fn free_streams(&self) -> usize {
        todo!()
    }

    /// Returns whether the peer supports extended CONNECT (RFC 8441).
    #[must_use]
    pub fn peer_enables_connect_protocol(&self) -> bool {
        todo!()
    }
}
