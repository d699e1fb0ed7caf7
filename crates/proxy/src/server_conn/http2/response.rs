//! Responses of an HTTP/2 server on their way to the engine, as text of HTTP/1.1.

use wire::h2::{Fields, ResponseHead};
use wire::{RequestKind, Version, encode};

use super::request::Purpose;
use wire::websocket::accept_value;

/// Framing of a response's content for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    /// No content: the head ends the response.
    None,
    /// As many bytes as the head says.
    Length,
    /// Chunks, for a length that is not known.
    Chunked,
    /// Bytes of another protocol.
    Tunnel,
}

/// The request that a response belongs to.
#[derive(Debug)]
pub(super) struct ResponseContext<'a> {
    pub(super) kind: RequestKind,
    pub(super) purpose: Purpose,
    pub(super) websocket_key: Option<&'a [u8]>,
}

/// Maximum size of the framing around one piece of content: 16 hexadecimal digits and two line ends.
pub(super) const CHUNK_OVERHEAD: usize = 20;

/// Writes the head of a final response. Returns the framing of its content. `is_end`: none follows.
pub(super) fn write_head(
    head: &ResponseHead<'_>,
    is_end: bool,
    context: &ResponseContext<'_>,
    out: &mut Vec<u8>,
) -> ResponseFraming {
    let is_accepted = (200..300).contains(&head.status);
    if is_accepted && context.purpose == Purpose::WebSocket {
        encode::status_line(out, Version::Http11, 101);
        out.extend_from_slice(b"Connection: upgrade\r\nUpgrade: websocket\r\n");
        let key = context.websocket_key.unwrap_or_default();
        encode::field(out, "Sec-WebSocket-Accept", accept_value(key).as_bytes());
        write_fields(head.fields, out);
        encode::end_of_head(out);
        return ResponseFraming::Tunnel;
    }
    encode::status_line(out, Version::Http11, head.status);
    write_fields(head.fields, out);
    if is_accepted && context.purpose == Purpose::Connect {
        encode::end_of_head(out);
        return ResponseFraming::Tunnel;
    }
    let has_content = context.kind != RequestKind::Head && !matches!(head.status, 204 | 304);
    let framing = match (has_content, head.content_length, is_end) {
        (false, Some(length), _) => {
            if head.status != 204 {
                encode::field_u64(out, "content-length", length);
            }
            ResponseFraming::None
        }
        (false, None, _) => ResponseFraming::None,
        (true, Some(length), _) => {
            encode::field_u64(out, "content-length", length);
            ResponseFraming::Length
        }
        (true, None, true) => {
            encode::field_u64(out, "content-length", 0);
            ResponseFraming::Length
        }
        (true, None, false) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            ResponseFraming::Chunked
        }
    };
    encode::end_of_head(out);
    framing
}

pub(super) fn write_interim(head: &ResponseHead<'_>, out: &mut Vec<u8>) {
    encode::status_line(out, Version::Http11, head.status);
    write_fields(head.fields, out);
    encode::end_of_head(out);
}

/// Writes a piece of content, and the end of the content if it is the last one.
#[inline]
pub(super) fn write_content(framing: ResponseFraming, bytes: &[u8], is_end: bool, out: &mut Vec<u8>) {
    match framing {
        ResponseFraming::None => {}
        ResponseFraming::Length | ResponseFraming::Tunnel => out.extend_from_slice(bytes),
        ResponseFraming::Chunked => {
            if !bytes.is_empty() {
                encode::chunk_head(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
                encode::chunk_end(out);
            }
            if is_end {
                encode::last_chunk(out);
            }
        }
    }
}

/// Writes the end of the content with a trailer section. HTTP/1.1 has none behind content of a given
/// length.
pub(super) fn write_trailers(framing: ResponseFraming, fields: Fields<'_>, out: &mut Vec<u8>) {
    if framing == ResponseFraming::Chunked {
        out.extend_from_slice(b"0\r\n");
        // Names that a trailer section must not have end the response at the engine.
        write_fields(fields, out);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_fields(fields: Fields<'_>, out: &mut Vec<u8>) {
    for (name, value) in fields.iter() {
        encode::field(out, name, value);
    }
}
