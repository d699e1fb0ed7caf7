//! The head of a request as HTTP/1.1, for the engine (RFC 9113 §8.3.1).

use wire::encode;
use wire::h2::{Fields, RequestHead};

/// Writes the head of a request. `is_end`: there is no body.
///
/// An extended CONNECT (RFC 8441) becomes a GET with `Upgrade`; that of WebSocket gets the key that
/// HTTP/2 does not have.
pub(super) fn write_head(head: &RequestHead<'_>, is_end: bool, rng: &mut fastrand::Rng, out: &mut Vec<u8>) {
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
        write_cookies(head.fields, out);
    }
    match (head.protocol, head.content_length) {
        (Some(protocol), _) => {
            out.extend_from_slice(b"connection: upgrade\r\n");
            encode::field(out, "upgrade", protocol.as_bytes());
            if protocol.eq_ignore_ascii_case("websocket") && head.fields.get("sec-websocket-key").is_none() {
                encode::field(out, "sec-websocket-key", &websocket_key(rng));
            }
        }
        _ if head.method == "CONNECT" => {}
        (None, Some(length)) => encode::field_u64(out, "content-length", length),
        (None, None) if !is_end => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (None, None) => {}
    }
    encode::end_of_head(out);
}

/// Writes all `cookie` fields as one (RFC 9113 §8.2.3).
fn write_cookies(fields: Fields<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(b"cookie: ");
    if fields.join_cookies(out) {
        out.extend_from_slice(b"\r\n");
    } else {
        out.truncate(start);
    }
}

/// Returns 16 random bytes in Base64 (RFC 6455 §4.1).
fn websocket_key(rng: &mut fastrand::Rng) -> [u8; 24] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = rng.u128(..);
    std::array::from_fn(|at| match at {
        0..21 => ALPHABET[(bits >> (122 - 6 * at)) as usize & 0x3f],
        // The last two bits.
        21 => ALPHABET[(bits as usize & 3) << 4],
        _ => b'=',
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of a head.
    fn written(head: RequestHead<'_>, is_end: bool) -> String {
        let mut out = Vec::new();
        write_head(&head, is_end, &mut fastrand::Rng::with_seed(7), &mut out);
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
        let extended = RequestHead { method: "CONNECT", protocol: Some("websocket"), ..GET };
        let text = written(extended, false);
        assert!(
            text.starts_with("GET /a?b HTTP/1.1\r\nhost: example.org\r\nconnection: upgrade\r\n"),
            "{text}"
        );
        assert!(text.contains("\r\nupgrade: websocket\r\nsec-websocket-key: "), "{text}");
    }

    #[test]
    fn a_key_is_sixteen_bytes_in_base64() {
        let key = websocket_key(&mut fastrand::Rng::with_seed(7));
        assert!(
            key.ends_with(b"==")
                && key[..22].iter().all(|&byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
        );
        assert!(b"AQgw".contains(&key[21]));
        assert_ne!(key, websocket_key(&mut fastrand::Rng::with_seed(8)));
    }
}
