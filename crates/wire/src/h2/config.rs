//! Roles, settings and limits of a connection.

/// Role of this end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
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
    pub slot: u32,
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
    /// Maximum balance of abusive frames, see [`FaultKind::EnhanceYourCalm`](super::FaultKind::EnhanceYourCalm): 200.
    pub abuse_max: u32,
    /// Maximum bytes of `:path`: 8,192. More is 414.
    pub target_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrent_streams_max: 100,
            stream_window_bytes: 65_535,
            stream_window_bytes_max: 1 << 20,
            connection_window_bytes: 1 << 20,
            connection_window_bytes_max: 16 << 20,
            frame_bytes_max: 16_384,
            header_table_bytes: 4_096,
            head_bytes_max: 16_384 + 32 * 100,
            headers_max: 100,
            enables_connect_protocol: false,
            abuse_max: 200,
            target_bytes_max: 8_192,
        }
    }
}

/// Request line of [`PREFACE`], which no request of HTTP/1.1 has.
const PREFACE_LINE: &[u8; 16] = b"PRI * HTTP/2.0\r\n";

/// Methods of HTTP/1.1 (RFC 9110 §9, RFC 5789): a line that begins with one is a request, valid or not.
const METHODS: [&[u8]; 9] =
    [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"PATCH", b"TRACE"];

/// Agreement of received bytes with the preface of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefaceMatch {
    /// The bytes are a part of the preface's first line: more are needed.
    Partial,
    /// The bytes are the preface, or an invalid one: they begin with the preface's first line, or with a
    /// line that has the form of a request line, but neither a method nor a version of HTTP/1.1. If they
    /// are invalid, [`Connection`](super::Connection) ends with GOAWAY (RFC 9113 §3.4).
    Full,
    /// The bytes are something else, for example a request of HTTP/1.1.
    No,
}

/// Compares the first bytes of a connection with the first line of [`PREFACE`], to detect a client that
/// uses HTTP/2 with prior knowledge (RFC 9113 §3.3).
pub fn preface_match(bytes: &[u8]) -> PrefaceMatch {
    if bytes.starts_with(PREFACE_LINE) {
        PrefaceMatch::Full
    } else if PREFACE_LINE.starts_with(bytes) {
        PrefaceMatch::Partial
    } else if is_foreign_line(bytes) {
        PrefaceMatch::Full
    } else {
        PrefaceMatch::No
    }
}

/// Returns whether the bytes begin with a line of three words of which neither the first is a method nor
/// the last a version of HTTP/1.1. So the line does not appear to be a request (RFC 9112 §2.2).
fn is_foreign_line(bytes: &[u8]) -> bool {
    let mut words = bytes.split(|&byte| byte == b' ');
    let method = words.next().unwrap_or_default();
    if METHODS.iter().any(|known| method.eq_ignore_ascii_case(known)) {
        return false;
    }
    let line_end = memchr::memchr(b'\n', bytes).unwrap_or_default();
    let mut words = bytes[..line_end].trim_ascii_end().split(|&byte| byte == b' ');
    let (Some(_), Some(_), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    !version.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"))
}
