//! The key of a WebSocket handshake, which HTTP/2 does not have and HTTP/1.1 requires.

/// Returns 16 random bytes in Base64 (RFC 6455 §4.1).
pub(super) fn websocket_key(rng: &mut fastrand::Rng) -> [u8; 24] {
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
