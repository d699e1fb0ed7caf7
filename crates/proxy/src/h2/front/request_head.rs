//! The head of a request as HTTP/1.1, for the engine (RFC 9113 §8.3.1).

use wire::encode;
use wire::h2::RequestHead;

/// Key of the handshake of WebSocket, which HTTP/2 does not have (RFC 8441 §5). It has to be there, and
/// proves only that the server has read it.
const WEBSOCKET_KEY: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAA==";

/// Writes the head of a request. `is_end`: there is no body.
pub(super) fn write_head(head: &RequestHead<'_>, is_end: bool, out: &mut Vec<u8>) {
    let authority = head.authority.unwrap_or_default();
    let method = if head.protocol.is_some() { "GET" } else { head.method };
    for part in [method, " ", head.path.unwrap_or(authority), " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    if head.authority.is_some() {
        encode::field(out, "host", authority.as_bytes());
    }
    let mut has_cookie = false;
    for (name, value) in head.fields.iter() {
        match name {
            "cookie" => has_cookie = true,
            _ => encode::field(out, name, value),
        }
    }
    if has_cookie {
        out.extend_from_slice(b"cookie: ");
        head.fields.join_cookies(out);
        out.extend_from_slice(b"\r\n");
    }
    match (head.protocol, head.content_length) {
        (Some(protocol), _) => {
            out.extend_from_slice(b"connection: upgrade\r\n");
            encode::field(out, "upgrade", protocol.as_bytes());
            if protocol.eq_ignore_ascii_case("websocket") && head.fields.get("sec-websocket-key").is_none() {
                encode::field(out, "sec-websocket-key", WEBSOCKET_KEY);
            }
        }
        _ if head.method == "CONNECT" => {}
        (None, Some(length)) => encode::field_u64(out, "content-length", length),
        (None, None) if !is_end => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (None, None) => {}
    }
    encode::end_of_head(out);
}
