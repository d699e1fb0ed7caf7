//! Requests of the engine on their way to an HTTP/2 server: heads of HTTP/1.1 as pseudo-header
//! fields and fields (RFC 9113 §8.3.1).
//!
//! The engine has parsed and written these heads itself, so they are only split here, not validated
//! again.

use memchr::memchr;
use wire::h2::FieldEncoder;
use wire::{Framing, RequestKind};

/// A request's head as the engine writes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineHead<'a> {
    method: &'a str,
    target: &'a str,
    lines: &'a [u8],
    host: &'a [u8],
    sends_te: bool,
    /// Key of a WebSocket handshake; `None`: the request is none.
    websocket_key: Option<&'a [u8]>,
    pub(super) framing: Framing,
    pub(super) bytes: usize,
}

/// Meaning of a request for its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Exchange,
    /// CONNECT (RFC 9113 §8.5).
    Connect,
    /// A WebSocket handshake (RFC 8441 §5).
    WebSocket,
}

/// Treatment of a field on its way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldClass {
    /// A field of HTTP/1.1 connections (RFC 9113 §8.2.2), or one that became a pseudo-header field.
    Dropped,
    /// `Sec-WebSocket-Key`, which an extended CONNECT does not have.
    WebSocketKey,
    /// A value that is secret, or nearly always another one: it would only evict others from the
    /// server's table (RFC 7541 §7.1.3).
    Unindexed,
    Indexed,
}

/// Returns the class of a field. Lengths are compared first: most fields match none of these.
#[inline]
fn class_of(name: &str) -> FieldClass {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let (is_dropped, is_unindexed) = match name.len() {
        2 => (is("te"), false),
        4 => (is("host"), false),
        5 => (false, is("range")),
        6 => (false, is("cookie")),
        7 => (is("upgrade"), false),
        9 => (false, is("forwarded")),
        10 => (is("connection") || is("keep-alive"), false),
        11 => (false, is("traceparent")),
        12 => (false, is("x-request-id") || is("grpc-timeout")),
        13 => (false, is("authorization") || is("if-none-match")),
        14 => (false, is("content-length")),
        15 => (false, is("x-forwarded-for")),
        16 => (is("proxy-connection"), false),
        17 if is("sec-websocket-key") => return FieldClass::WebSocketKey,
        17 => (is("transfer-encoding"), is("if-modified-since")),
        19 => (false, is("proxy-authorization")),
        _ => (false, false),
    };
    match (is_dropped, is_unindexed) {
        (true, _) => FieldClass::Dropped,
        (false, true) => FieldClass::Unindexed,
        (false, false) => FieldClass::Indexed,
    }
}

impl<'a> EngineHead<'a> {
    /// Splits the head at the start of `bytes`. Returns `None` if it is incomplete.
    ///
    /// # Errors
    /// The bytes are no head, which would be a fault of the engine.
    pub(super) fn split(bytes: &'a [u8]) -> Result<Option<Self>, ()> {
        let Some(line_end) = memchr(b'\n', bytes) else { return Ok(None) };
        let line = std::str::from_utf8(&bytes[..line_end]).map_err(|_| ())?;
        let (method, rest) = line.split_once(' ').ok_or(())?;
        let (target, _version) = rest.split_once(' ').ok_or(())?;
        let mut split = Self {
            method,
            target,
            lines: b"",
            host: b"",
            sends_te: false,
            websocket_key: None,
            framing: Framing::None,
            bytes: 0,
        };
        let (start, mut at) = (line_end + 1, line_end + 1);
        let (mut is_websocket, mut key) = (false, None);
        while let Some(length) = memchr(b'\n', &bytes[at..]) {
            let line = &bytes[at..at + length];
            at += length + 1;
            if line.len() <= 1 {
                split.lines = &bytes[start..at - length - 1];
                split.bytes = at;
                // A handshake has no body: that of a denied one would be read as the next request.
                split.websocket_key = key.filter(|_| is_websocket && !split.has_body());
                return Ok(Some(split));
            }
            let Some((name, value)) = split_field(line) else { continue };
            let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
            match name.len() {
                2 if is(b"te") => split.sends_te = true,
                4 if is(b"host") => split.host = value,
                7 if is(b"upgrade") => is_websocket = value.eq_ignore_ascii_case(b"websocket"),
                14 if is(b"content-length") => {
                    let digits = std::str::from_utf8(value).map_err(|_| ())?;
                    split.framing = Framing::Length(digits.parse().map_err(|_| ())?);
                }
                17 if is(b"transfer-encoding") => split.framing = Framing::Chunked,
                17 if is(b"sec-websocket-key") => key = Some(value),
                _ => {}
            }
        }
        Ok(None)
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
        self.purpose() == Purpose::Exchange && !self.has_body()
    }

    fn has_body(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

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
        encode_fields(self.lines, |name, value| match class_of(name) {
            FieldClass::Dropped => {}
            FieldClass::WebSocketKey if purpose == Purpose::WebSocket => {}
            FieldClass::Indexed => encoder.field(name, value),
            FieldClass::Unindexed | FieldClass::WebSocketKey => encoder.field_without_index(name, value),
        });
        if self.sends_te {
            // The only value that HTTP/2 allows, and that the engine writes.
            encoder.field("te", b"trailers");
        }
    }
}

/// Writes the trailer section of a request: `lines` are those of a [`wire::BodyDecoder`].
pub(super) fn encode_trailers(lines: &[u8], encoder: &mut FieldEncoder<'_>) {
    encode_fields(lines, |name, value| encoder.field(name, value));
}

/// Calls `encode` with the fields of `lines` in their order.
#[inline]
fn encode_fields(mut lines: &[u8], mut encode: impl FnMut(&str, &[u8])) {
    while let Some(length) = memchr(b'\n', lines) {
        if let Some((name, value)) = split_field(&lines[..length])
            && let Ok(name) = std::str::from_utf8(name)
        {
            encode(name, value);
        }
        lines = &lines[length + 1..];
    }
}

/// Splits a field line, with or without its line end, into the name and the value.
#[inline]
fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr(b':', line)?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
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
        let mut fields = Vec::new();
        encode_fields(head.lines, |name, value| fields.push(format!("{name}={}", value.escape_ascii())));
        assert_eq!(fields, ["Host=h:1", "X-A=b", "Content-Length=3"]);
        assert!(!head.is_end());
        for end in 0..head.bytes {
            assert!(EngineHead::split(&text.as_bytes()[..end]).unwrap().is_none(), "{end}");
        }
        assert!(EngineHead::split(b"x\r\n\r\n").is_err());
    }

    #[test]
    fn fields_are_classified_without_case() {
        for (name, class) in [
            ("Host", FieldClass::Dropped),
            ("keep-alive", FieldClass::Dropped),
            ("Transfer-Encoding", FieldClass::Dropped),
            ("If-Modified-Since", FieldClass::Unindexed),
            ("Authorization", FieldClass::Unindexed),
            ("sec-websocket-key", FieldClass::WebSocketKey),
            ("user-agent", FieldClass::Indexed),
        ] {
            assert_eq!(class_of(name), class, "{name}");
        }
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
        for framing in ["Content-Length: 3", "Transfer-Encoding: chunked"] {
            let text = websocket.replace("Host: h", &format!("Host: h\r\n{framing}"));
            assert_eq!(
                (split(&text).purpose(), split(&text).is_end()),
                (Purpose::Exchange, false),
                "{framing}"
            );
        }
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
