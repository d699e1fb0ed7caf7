//! The head of a request of HTTP/2 as HTTP/1.1, for a proxy (RFC 9113 §8.3.1).
//!
//! The head was validated: the text has the same meaning for [`crate::parse_request`]. Policy
//! (forwarded-for fields, rewriting) is the proxy's task.

use super::event::{Fields, RequestHead};
use crate::h1::encode;

/// Writes a request as the head of an HTTP/1.1 message. `is_end`: there is no body.
///
/// Without `content-length` a body becomes `transfer-encoding: chunked`: the caller writes chunks.
/// `cookie` fields are joined (RFC 9113 §8.2.3), and the authority becomes `Host`. An extended CONNECT
/// (RFC 8441 §5) becomes a GET with `Upgrade`. That of WebSocket gets a `websocket_key`, 16 random bytes
/// in Base64, which HTTP/2 does not have.
pub fn write_h1_request<K: AsRef<[u8]>>(
    head: &RequestHead<'_>,
    is_end: bool,
    websocket_key: impl FnOnce() -> K,
    out: &mut Vec<u8>,
) {
    let authority = head.authority.unwrap_or_default();
    let method = if head.protocol.is_some() { "GET" } else { head.method };
    encode::request_line(out, method, head.path.unwrap_or(authority));
    if head.authority.is_some() {
        encode::field(out, "host", authority.as_bytes());
    }
    let is_websocket = head.protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
    write_fields(head.fields, is_websocket, out);
    match (head.protocol, head.content_length) {
        (Some(protocol), _) => {
            out.extend_from_slice(b"connection: upgrade\r\n");
            encode::field(out, "upgrade", protocol.as_bytes());
            if is_websocket {
                encode::field(out, "sec-websocket-key", websocket_key().as_ref());
            }
        }
        _ if head.method == "CONNECT" => {}
        (None, Some(length)) => encode::field_u64(out, "content-length", length),
        (None, None) if !is_end => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (None, None) => {}
    }
    encode::end_of_head(out);
}

/// Writes fields, with all cookies in the position of the first one.
fn write_fields(fields: Fields<'_>, is_websocket: bool, out: &mut Vec<u8>) {
    let mut has_cookies = false;
    for (name, value) in fields.iter() {
        match name {
            "cookie" if has_cookies => {}
            "cookie" => {
                has_cookies = true;
                out.extend_from_slice(b"cookie: ");
                fields.join_cookies(out);
                out.extend_from_slice(b"\r\n");
            }
            "sec-websocket-key" if is_websocket => {}
            _ => encode::field(out, name, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of a head.
    fn written(head: RequestHead<'_>, is_end: bool) -> String {
        let mut out = Vec::new();
        write_h1_request(&head, is_end, || "key", &mut out);
        String::from_utf8(out).unwrap()
    }

    const GET: RequestHead<'_> = RequestHead {
        method: "GET",
        scheme: Some("https"),
        authority: Some("example.org"),
        path: Some("/a?b"),
        protocol: None,
        content_length: None,
        fields: Fields::EMPTY,
    };

    #[test]
    fn a_head_has_one_framing_and_its_authority_as_host() {
        let text = |framing: &str| format!("GET /a?b HTTP/1.1\r\nhost: example.org\r\n{framing}\r\n");
        assert_eq!(written(GET, true), text(""));
        assert_eq!(written(GET, false), text("transfer-encoding: chunked\r\n"));
        let head = RequestHead { content_length: Some(5), ..GET };
        assert_eq!(written(head, false), text("content-length: 5\r\n"));
    }

    #[test]
    fn a_connect_has_its_authority_as_target_and_an_extended_one_is_an_upgrade() {
        let connect = RequestHead { method: "CONNECT", path: None, scheme: None, ..GET };
        let expected = "CONNECT example.org HTTP/1.1\r\nhost: example.org\r\n\r\n";
        assert_eq!(written(connect, false), expected);
        let extended = |protocol| RequestHead { method: "CONNECT", protocol: Some(protocol), ..GET };
        let start = "GET /a?b HTTP/1.1\r\nhost: example.org\r\nconnection: upgrade\r\nupgrade: ";
        let expected = format!("{start}websocket\r\nsec-websocket-key: key\r\n\r\n");
        assert_eq!(written(extended("websocket"), false), expected);
        assert_eq!(written(extended("other"), false), format!("{start}other\r\n\r\n"));
    }
}
