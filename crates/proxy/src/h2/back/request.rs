//! Requests of the engine on their way to an HTTP/2 server: heads of HTTP/1.1 as pseudo-header
//! fields and fields (RFC 9113 §8.3.1).
//!
//! The engine has parsed and written these heads itself, so they are only split here, not validated
//! again.

use memchr::memmem;
use wire::h2::FieldEncoder;
use wire::{Framing, RequestKind};

/// A request's head as the engine writes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineHead<'a> {
    method: &'a str,
    target: &'a str,
    /// Field lines, each with its line end.
    lines: &'a [u8],
    /// Value of `Host`.
    host: &'a [u8],
    sends_te: bool,
    /// Key of a WebSocket handshake; `None`: the request is none.
    websocket_key: Option<&'a [u8]>,
    /// Framing of the body.
    pub(super) framing: Framing,
    /// Length of the head in bytes.
    pub(super) bytes: usize,
}

/// Meaning of a request for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request with a response.
    Exchange,
    /// CONNECT (RFC 9113 §8.5).
    Connect,
    /// A WebSocket handshake (RFC 8441 §5).
    WebSocket,
}

/// Fields of HTTP/1.1 connections, and those that became pseudo-header fields (RFC 9113 §8.2.2).
const CONNECTION_FIELDS: [&str; 7] =
    ["host", "connection", "transfer-encoding", "upgrade", "te", "keep-alive", "proxy-connection"];
/// Fields whose values are secret, or nearly always different ones: they would only evict others from
/// the server's table (RFC 7541 §7.1.3).
const UNINDEXED_FIELDS: [&str; 12] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "content-length",
    "x-request-id",
    "x-forwarded-for",
    "forwarded",
    "traceparent",
    "grpc-timeout",
    "if-none-match",
    "if-modified-since",
    "range",
];

impl<'a> EngineHead<'a> {
    /// Splits the head at the start of `bytes`. Returns `None` if it is incomplete.
    ///
    /// # Errors
    /// The bytes are no head, which would be a fault of the engine.
    pub(super) fn split(bytes: &'a [u8]) -> Result<Option<Self>, ()> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
        let head = &bytes[..end + 2];
        let line_end = memchr::memchr(b'\n', head).ok_or(())?;
        let line = std::str::from_utf8(&head[..line_end]).map_err(|_| ())?;
        let (method, rest) = line.split_once(' ').ok_or(())?;
        let (target, _version) = rest.split_once(' ').ok_or(())?;
        let mut split = Self {
            method,
            target,
            lines: &head[line_end + 1..],
            host: b"",
            sends_te: false,
            websocket_key: None,
            framing: Framing::None,
            bytes: end + 4,
        };
        split.scan()?;
        Ok(Some(split))
    }

    /// Reads the fields that decide how the request is sent.
    fn scan(&mut self) -> Result<(), ()> {
        let (mut is_websocket, mut key) = (false, None);
        for (name, value) in self.fields() {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            match name.len() {
                2 if is("te") => self.sends_te = true,
                4 if is("host") => self.host = value,
                7 if is("upgrade") => is_websocket = value.eq_ignore_ascii_case(b"websocket"),
                14 if is("content-length") => {
                    let digits = std::str::from_utf8(value).map_err(|_| ())?;
                    self.framing = Framing::Length(digits.parse().map_err(|_| ())?);
                }
                17 if is("transfer-encoding") => self.framing = Framing::Chunked,
                17 if is("sec-websocket-key") => key = Some(value),
                _ => {}
            }
        }
        self.websocket_key = key.filter(|_| is_websocket);
        Ok(())
    }

    /// Returns the fields in their order.
    fn fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let lines = self.lines.split_inclusive(|&byte| byte == b'\n');
        lines.filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            // The engine wrote only names that are tokens.
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            Some((name, line[colon + 1..].trim_ascii()))
        })
    }

    /// Returns the meaning of the request.
    pub(super) fn purpose(&self) -> Purpose {
        match self.method {
            "CONNECT" => Purpose::Connect,
            _ if self.websocket_key.is_some() => Purpose::WebSocket,
            _ => Purpose::Exchange,
        }
    }

    /// Returns the kind of the request, which decides how its response is framed.
    pub(super) fn kind(&self) -> RequestKind {
        RequestKind::from_method(self.method)
    }

    /// Returns the key of the WebSocket handshake.
    pub(super) fn websocket_key(&self) -> Option<&'a [u8]> {
        self.websocket_key
    }

    /// Returns whether nothing follows the head.
    pub(super) fn is_end(&self) -> bool {
        self.purpose() == Purpose::Exchange && matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// Writes the head of the stream.
    pub(super) fn encode(&self, scheme: &str, encoder: &mut FieldEncoder<'_>) {
        let host = std::str::from_utf8(self.host).ok().filter(|host| !host.is_empty());
        let purpose = self.purpose();
        match purpose {
            Purpose::Exchange => encoder.request(self.method, Some(scheme), host, Some(self.target)),
            Purpose::Connect => encoder.request("CONNECT", None, Some(self.target), None),
            Purpose::WebSocket => {
                encoder.request("CONNECT", Some(scheme), host, Some(self.target));
                encoder.protocol("websocket");
            }
        }
        for (name, value) in self.fields() {
            let is = |other: &&str| name.eq_ignore_ascii_case(other);
            if CONNECTION_FIELDS.iter().any(is) || purpose == Purpose::WebSocket && is(&"sec-websocket-key") {
                continue;
            }
            match UNINDEXED_FIELDS.iter().any(is) {
                true => encoder.field_without_index(name, value),
                false => encoder.field(name, value),
            }
        }
        if self.sends_te {
            // The only value that HTTP/2 allows, and that the engine writes.
            encoder.field("te", b"trailers");
        }
    }
}

/// Writes the trailer section of a request: `lines` are those of a [`wire::BodyDecoder`].
pub(super) fn encode_trailers(lines: &[u8], encoder: &mut FieldEncoder<'_>) {
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        if let Ok(name) = std::str::from_utf8(&line[..colon]) {
            encoder.field(name, line[colon + 1..].trim_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> EngineHead<'_> {
        EngineHead::split(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_head_is_split_where_it_ends() {
        let text = "POST /a?b HTTP/1.1\r\nHost: h:1\r\nX-A:  b \r\nContent-Length: 3\r\n\r\nabc";
        let head = split(text);
        assert_eq!((head.method, head.target, head.host), ("POST", "/a?b", &b"h:1"[..]));
        assert_eq!((head.framing, &text[head.bytes..]), (Framing::Length(3), "abc"));
        let fields: Vec<_> = head.fields().collect();
        assert_eq!(fields, [("Host", &b"h:1"[..]), ("X-A", b"b"), ("Content-Length", b"3")]);
        assert!(!head.is_end());
        for end in 0..head.bytes {
            assert!(EngineHead::split(&text.as_bytes()[..end]).unwrap().is_none(), "{end}");
        }
        assert!(EngineHead::split(b"x\r\n\r\n").is_err());
    }

    #[test]
    fn the_fields_decide_the_purpose_and_the_framing() {
        let websocket = "GET /c HTTP/1.1\r\nHost: h\r\nSec-WebSocket-Key: k\r\nConnection: upgrade\r\n\
                         Upgrade: WebSocket\r\n\r\n";
        assert_eq!(
            (split(websocket).purpose(), split(websocket).websocket_key()),
            (Purpose::WebSocket, Some(&b"k"[..]))
        );
        assert!(!split(websocket).is_end());
        let other = "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n";
        assert_eq!((split(other).purpose(), split(other).is_end()), (Purpose::Exchange, true));
        let connect = "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n";
        assert_eq!((split(connect).purpose(), split(connect).is_end()), (Purpose::Connect, false));
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n";
        assert_eq!((split(chunked).framing, split(chunked).sends_te), (Framing::Chunked, true));
        let empty = "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
        assert_eq!((split(empty).framing, split(empty).is_end()), (Framing::Length(0), true));
    }
}
