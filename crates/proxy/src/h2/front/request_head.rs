//! The head of a request as HTTP/1.1, for the engine (RFC 9113 §8.3.1).

use wire::encode;
use wire::h2::RequestHead;

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
        out.extend_from_slice(b"cookie: ");
        head.fields.join_cookies(out);
        out.extend_from_slice(b"\r\n");
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
