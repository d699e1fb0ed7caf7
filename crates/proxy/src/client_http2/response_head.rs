//! The head of a response as the engine writes it, and the last one of a connection, which is not encoded
//! again.
//!
//! The engine has parsed and written these heads itself, so they are only split here, not validated again.

use memchr::memchr;
use wire::h2::{Connection, FieldEncoder, RepeatableHead, StreamKey};
use wire::{Framing, RequestKind};

/// Maximum length of a head that is kept to be compared with the next one.
const REPEATED_BYTES_MAX: usize = 1024;

/// A response's head as the engine writes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineHead<'a> {
    pub(super) status: u16,
    lines: &'a [u8],
    pub(super) framing: Framing,
    /// True if the engine's connection can carry another request after the response.
    pub(super) keeps_engine: bool,
    pub(super) bytes: usize,
}

impl<'a> EngineHead<'a> {
    /// Splits the head at the start of `bytes`, of the response to a request of `kind`. Returns `None` if it
    /// is incomplete.
    ///
    /// # Errors
    /// The bytes are no head, which would be a fault of the engine.
    #[inline]
    pub(super) fn split(bytes: &'a [u8], kind: RequestKind) -> Result<Option<Self>, ()> {
        let Some(line_end) = memchr(b'\n', bytes) else { return Ok(None) };
        let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', digits @ .., _] = &bytes[..line_end]
        else {
            return Err(());
        };
        let status = digits.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let status: u16 = status.ok_or(())?;
        let (mut length, mut is_chunked, mut closes) = (None, false, false);
        let mut at = line_end + 1;
        while let Some(line_len) = memchr(b'\n', &bytes[at..]) {
            let line = &bytes[at..at + line_len];
            if line.len() <= 1 {
                let framing = framing_of(status, kind, length, is_chunked);
                let keeps_engine = status < 200 || framing != Framing::UntilClose && !closes;
                let (lines, bytes) = (&bytes[line_end + 1..at], at + line_len + 1);
                return Ok(Some(Self { status, lines, framing, keeps_engine, bytes }));
            }
            at += line_len + 1;
            let (name, value) = split_field(line).ok_or(())?;
            match name.len() {
                10 if name.eq_ignore_ascii_case(b"connection") => closes |= has_close(value),
                14 if name.eq_ignore_ascii_case(b"content-length") => {
                    length =
                        Some(std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(())?);
                }
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => is_chunked = true,
                _ => {}
            }
        }
        Ok(None)
    }

    pub(super) fn is_informational(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// Writes the head. Fields of a connection are left out. A changed protocol is 200, and has no key to
    /// confirm (RFC 8441 §5).
    fn encode(&self, fields: &mut FieldEncoder<'_>) {
        let is_switching = self.status == 101;
        fields.status(if is_switching { 200 } else { self.status });
        write_lines(fields, self.lines, |name| {
            is_switching && name.eq_ignore_ascii_case("sec-websocket-accept")
        });
    }

    pub(super) fn send(&self, connection: &mut Connection, stream: StreamKey, is_end: bool) {
        connection.send_headers(stream, is_end, |fields| self.encode(fields));
    }
}

fn has_close(options: &[u8]) -> bool {
    options.split(|&byte| byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// Determines the framing (RFC 9112 §6.3).
fn framing_of(status: u16, kind: RequestKind, length: Option<u64>, is_chunked: bool) -> Framing {
    let has_no_body = matches!(status, 100..=199 | 204 | 304)
        || kind == RequestKind::Head
        || kind == RequestKind::Connect && status < 300;
    match length {
        _ if has_no_body => Framing::None,
        _ if is_chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    }
}

/// Writes field lines of HTTP/1.1, which were checked.
pub(super) fn write_lines(fields: &mut FieldEncoder<'_>, lines: &[u8], is_dropped: impl Fn(&str) -> bool) {
    let mut rest = lines;
    while let Some(end) = memchr(b'\n', rest) {
        if let Some((name, value)) = split_field(&rest[..end])
            && let Ok(name) = std::str::from_utf8(name)
            && !is_dropped(name)
        {
            fields.field(name, value);
        }
        rest = &rest[end + 1..];
    }
}

#[inline]
fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr(b':', line)?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// The last response head of a connection that consists of references to the table: the next one with the
/// same text needs no encoding.
#[derive(Debug, Default)]
pub(super) struct LastHead {
    text: Vec<u8>,
    encoded: Option<EncodedHead>,
}

#[derive(Clone, Copy, Debug)]
struct EncodedHead {
    kind: RequestKind,
    head: RepeatableHead,
    framing: Framing,
    keeps_engine: bool,
}

/// Properties of a head that was sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepeatedHead {
    pub(super) framing: Framing,
    pub(super) keeps_engine: bool,
    pub(super) bytes: usize,
}

impl LastHead {
    #[inline]
    pub(super) fn send_again(
        &self,
        connection: &mut Connection,
        stream: StreamKey,
        (received, kind): (&[u8], RequestKind),
    ) -> Option<RepeatedHead> {
        let EncodedHead { head, framing, keeps_engine, .. } =
            self.encoded.as_ref().filter(|encoded| encoded.kind == kind)?;
        if !received.starts_with(&self.text) || !connection.repeat_headers(stream, is_empty(*framing), head) {
            return None;
        }
        Some(RepeatedHead { framing: *framing, keeps_engine: *keeps_engine, bytes: self.text.len() })
    }

    /// Sends a final head, whose text is at the start of `received`, and keeps it.
    pub(super) fn send_and_keep(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        head: &EngineHead<'_>,
        (received, kind): (&[u8], RequestKind),
    ) {
        let is_end = is_empty(head.framing);
        if head.bytes > REPEATED_BYTES_MAX {
            return head.send(connection, stream, is_end);
        }
        let repeatable = connection.send_repeatable_headers(stream, is_end, |fields| head.encode(fields));
        let EngineHead { framing, keeps_engine, .. } = *head;
        self.encoded = repeatable.map(|head| EncodedHead { kind, head, framing, keeps_engine });
        if self.encoded.is_some() {
            self.text.clear();
            self.text.extend_from_slice(&received[..head.bytes]);
        }
    }

    /// Frees the memory.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Returns whether a message ends with its head.
pub(super) fn is_empty(framing: Framing) -> bool {
    matches!(framing, Framing::None | Framing::Length(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, kind: RequestKind) -> Option<(u16, Framing, bool, usize)> {
        let head = EngineHead::split(text.as_bytes(), kind).unwrap()?;
        Some((head.status, head.framing, head.keeps_engine, head.bytes))
    }

    /// A head is split as the parser for other peers' heads understands it.
    #[test]
    fn a_head_of_the_engine_is_split_as_it_would_be_parsed() {
        let heads = [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: now\r\n\r\n",
            "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 426 X\r\nConnection: upgrade, close\r\nUpgrade: a\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 426 X\r\nConnection: upgrade\r\nUpgrade: close\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ];
        for text in heads {
            for kind in [RequestKind::Other, RequestKind::Head, RequestKind::Connect] {
                let mut slots = wire::header_slots();
                let limits = wire::Limits::default();
                let parsed = wire::parse_response(text.as_bytes(), &limits, kind, &mut slots).unwrap();
                let wire::Parsed::Complete { head, bytes } = parsed else { panic!("{text}") };
                let expected = (head.status, head.framing, head.keep_alive, bytes);
                assert_eq!(split(text, kind), Some(expected), "{text} {kind:?}");
            }
            for end in 0..text.len() {
                assert_eq!(split(&text[..end], RequestKind::Other), None, "{}", &text[..end]);
            }
        }
        assert!(EngineHead::split(b"SPDY/1.1 200 OK\r\n\r\n", RequestKind::Other).is_err());
    }
}
