//! The handshake of a client, over HTTP/1.1 (RFC 6455 §4.1) and HTTP/2 (RFC 8441): the key, and the checks of the
//! response.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::ResponseHead;

/// Text behind the key in the hashed bytes.
pub const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Reason why a response does not accept a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandshakeFault {
    /// The status is not 101 or, over HTTP/2, not 2xx.
    Status(u16),
    /// `Upgrade` is not `websocket`, or `Connection` has no `upgrade`.
    NoUpgrade,
    /// `Sec-WebSocket-Accept` is missing or does not belong to the key.
    WrongAccept,
    /// The server uses an extension that was not offered.
    Extension,
    /// The server chose a subprotocol that was not offered, or two.
    Subprotocol,
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status_{status}"),
            Self::NoUpgrade => f.write_str("no_upgrade"),
            Self::WrongAccept => f.write_str("wrong_accept"),
            Self::Extension => f.write_str("extension"),
            Self::Subprotocol => f.write_str("subprotocol"),
        }
    }
}

/// Returns the value of `Sec-WebSocket-Key` for random bytes.
pub fn key_value(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// Checks that a response accepts the handshake with `key`. `offered` are the subprotocols of the request, as a list
/// with commas.
///
/// # Errors
/// The first fault.
pub fn check_response(head: &ResponseHead<'_, '_>, key: &str, offered: &str) -> Result<(), HandshakeFault> {
    if head.status != 101 {
        return Err(HandshakeFault::Status(head.status));
    }
    let values = |name: &'static str| {
        let fields = head.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        fields.map(|field| field.value.trim_ascii())
    };
    let has_token = |name, token: &str| {
        let items = values(name).flat_map(|value| value.split(|byte| *byte == b','));
        items.into_iter().any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    };
    if !has_token("upgrade", "websocket") || !has_token("connection", "upgrade") {
        return Err(HandshakeFault::NoUpgrade);
    }
    if !values("sec-websocket-accept").eq([accept_value(key.as_bytes()).as_bytes()]) {
        return Err(HandshakeFault::WrongAccept);
    }
    check_choices(values("sec-websocket-extensions"), values("sec-websocket-protocol"), offered)
}

/// Checks that a response over HTTP/2 accepts an extended CONNECT, which has no key (RFC 8441 §5). `fields` returns its
/// fields.
///
/// # Errors
/// The first fault.
pub fn check_connect_response<'a, F: Iterator<Item = (&'a str, &'a [u8])>>(
    status: u16,
    fields: impl Fn() -> F,
    offered: &str,
) -> Result<(), HandshakeFault> {
    if !(200..300).contains(&status) {
        return Err(HandshakeFault::Status(status));
    }
    let values = |name: &'static str| {
        let fields = fields().filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.trim_ascii())
    };
    check_choices(values("sec-websocket-extensions"), values("sec-websocket-protocol"), offered)
}

/// Checks the extensions and the subprotocols that a server chose.
fn check_choices<'a>(
    mut extensions: impl Iterator<Item = &'a [u8]>,
    mut chosen: impl Iterator<Item = &'a [u8]>,
    offered: &str,
) -> Result<(), HandshakeFault> {
    if extensions.any(|value| !value.is_empty()) {
        return Err(HandshakeFault::Extension);
    }
    let is_offered = |value: &[u8]| offered.split(',').any(|item| item.trim().as_bytes() == value);
    match (chosen.next(), chosen.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if is_offered(value) => Ok(()),
        _ => Err(HandshakeFault::Subprotocol),
    }
}

/// Returns the value of `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
pub fn accept_value(key: &[u8]) -> String {
    STANDARD.encode(sha1(&[key, GUID].concat()))
}

/// Returns the SHA-1 digest (FIPS 180-4 §6.1). It proves nothing here: the handshake only shows that
/// the server has read the key.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(8 * message.len() as u64).to_be_bytes());
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        hash_block(&mut state, block);
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn hash_block(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, &word) in words.iter().enumerate() {
        let (mix, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(mix).wrapping_add(e).wrapping_add(constant).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, added) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_connect_needs_a_2xx_and_no_other_choices() {
        let check = |status, fields: &[(&'static str, &'static [u8])], offered| {
            let fields = fields.to_vec();
            check_connect_response(status, || fields.clone().into_iter(), offered)
        };
        assert_eq!(check(200, &[("server", b"x")], ""), Ok(()));
        assert_eq!(check(200, &[("sec-websocket-protocol", b"b")], "a, b"), Ok(()));
        assert_eq!(check(101, &[], ""), Err(HandshakeFault::Status(101)));
        assert_eq!(check(404, &[], ""), Err(HandshakeFault::Status(404)));
        assert_eq!(check(200, &[("sec-websocket-protocol", b"c")], "a"), Err(HandshakeFault::Subprotocol));
        let extension = [("sec-websocket-extensions", &b"permessage-deflate"[..])];
        assert_eq!(check(200, &extension, ""), Err(HandshakeFault::Extension));
    }

    #[test]
    fn the_key_of_the_standard_has_its_value() {
        // RFC 6455 §1.3.
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        let hex = |message: &[u8]| sha1(message).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000]), "291e9a6c66994949b57ba5e650361e98fc36b1ba");
    }
}
