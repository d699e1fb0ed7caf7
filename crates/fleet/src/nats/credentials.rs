//! Credentials: user and password, nkeys (an Ed25519 key in base 32), and a JWT with the nkey of its user.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Credentials of a client. The server takes the ones that it asks for.
#[derive(Default)]
pub(crate) struct Credentials {
    pub(crate) user: Option<(String, String)>,
    pub(crate) token: Option<String>,
    /// Key of a user that the server knows.
    pub(crate) nkey: Option<SigningKey>,
    pub(crate) jwt: Option<(String, SigningKey)>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Fault of a file with credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error("no JWT of a user between lines of dashes: is it a .creds file of NATS?")]
    NoJwt,
    #[error("no seed of an nkey between lines of dashes, after the JWT")]
    NoSeed,
    #[error("the seed of the nkey is damaged: it starts with S, and has 58 letters and digits")]
    DamagedSeed,
}

/// Private nkey.
pub(crate) struct SigningKey {
    pair: Ed25519KeyPair,
    public: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// First five bits of a seed.
const SEED_PREFIX: u8 = 18 << 3;
const SEED_BYTES: usize = 32;

impl SigningKey {
    /// Reads a seed: five bits for "seed", eight for the kind of the key, the key and a checksum.
    ///
    /// # Errors
    /// It is not one.
    pub(crate) fn from_seed(text: &str) -> Result<Self, CredentialsError> {
        let bytes = decode_base32(text.trim()).ok_or(CredentialsError::DamagedSeed)?;
        if bytes.len() != 2 + SEED_BYTES + 2 || bytes[0] & 0xf8 != SEED_PREFIX {
            return Err(CredentialsError::DamagedSeed);
        }
        let (content, checksum) = bytes.split_at(2 + SEED_BYTES);
        if crc16(content).to_le_bytes() != checksum {
            return Err(CredentialsError::DamagedSeed);
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(&content[2..]);
        let pair = pair.map_err(|_| CredentialsError::DamagedSeed)?;
        let kind = ((content[0] & 7) << 5) | (content[1] >> 3);
        let mut public = vec![kind];
        public.extend_from_slice(pair.public_key().as_ref());
        public.extend_from_slice(&crc16(&public).to_le_bytes());
        Ok(Self { pair, public: encode_base32(&public) })
    }

    /// Returns the public key, by which the server knows its user.
    pub(crate) fn public(&self) -> &str {
        &self.public
    }

    /// Returns the signature of the server's nonce, in base 64.
    pub(crate) fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

/// Reads a `.creds` file: a JWT and a seed, each on a line between lines of dashes.
///
/// # Errors
/// One of them is missing, or the seed is damaged.
pub(crate) fn parse_credentials(text: &str) -> Result<(String, SigningKey), CredentialsError> {
    let is_dashes = |line: &&str| line.starts_with("---") && line.ends_with("---");
    let is_content = |line: &str| {
        !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte))
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut values = lines.windows(3).filter_map(|lines| match lines {
        [before, line, after] if is_dashes(before) && is_dashes(after) && is_content(line) => Some(*line),
        _ => None,
    });
    let jwt = values.next().ok_or(CredentialsError::NoJwt)?;
    let seed = values.next().ok_or(CredentialsError::NoSeed)?;
    Ok((jwt.to_owned(), SigningKey::from_seed(seed)?))
}

/// Alphabet of RFC 4648 §6.
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Returns bytes in base 32, without padding.
fn encode_base32(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut value) = (String::new(), 0, 0_u32);
    for byte in bytes {
        value = (value << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(BASE32[((value >> bits) & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(BASE32[((value << (5 - bits)) & 31) as usize]));
    }
    text
}

/// Decodes base 32 without padding. Bits that are left must be zero.
fn decode_base32(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut value) = (Vec::new(), 0, 0_u32);
    for letter in text.bytes() {
        let digit = BASE32.iter().position(|known| *known == letter)?;
        value = (value << 5) | digit as u32;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((value >> bits) as u8);
        }
    }
    (value & ((1 << bits) - 1) == 0).then_some(bytes)
}

/// Returns the checksum of nkeys: CRC-16 with the polynomial 0x1021, from zero.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |mut crc: u16, byte| {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_signatures_are_those_of_the_reference_library() {
        for reference in
            [nkeys::KeyPair::new_user(), nkeys::KeyPair::new_account(), nkeys::KeyPair::new_server()]
        {
            let seed = reference.seed().unwrap();
            let key = SigningKey::from_seed(&format!("  {seed}\n")).unwrap();
            assert_eq!(key.public(), reference.public_key());
            let signature = URL_SAFE_NO_PAD.decode(key.sign("a nonce")).unwrap();
            reference.verify(b"a nonce", &signature).unwrap();
            // Any other letter is found by the checksum.
            for at in [0, 1, 5, 57] {
                let mut damaged = seed.clone().into_bytes();
                damaged[at] = if damaged[at] == b'Q' { b'R' } else { b'Q' };
                let damaged = String::from_utf8(damaged).unwrap();
                assert_eq!(SigningKey::from_seed(&damaged).unwrap_err(), CredentialsError::DamagedSeed);
            }
            assert!(SigningKey::from_seed(&reference.public_key()).is_err());
            assert!(!format!("{key:?}").contains(&seed));
        }
    }

    #[test]
    fn files_with_credentials_have_a_jwt_and_a_seed() {
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        let file = |jwt: &str, seed: &str| {
            format!(
                "-----BEGIN NATS USER JWT-----\r\n{jwt}\r\n------END NATS USER JWT------\r\n\r\n\
                 *** IMPORTANT ***\nNKEY Seed printed below\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n\
                 ------END USER NKEY SEED------\n"
            )
        };
        let (jwt, key) = parse_credentials(&file("eyJ0.eyJq_-.x=", &seed)).unwrap();
        assert_eq!((jwt.as_str(), key.public().len()), ("eyJ0.eyJq_-.x=", 56));
        for (text, fault) in [
            (String::new(), CredentialsError::NoJwt),
            ("no token".to_owned(), CredentialsError::NoJwt),
            (file("a b", ""), CredentialsError::NoJwt),
            (file("a.b.c", ""), CredentialsError::NoSeed),
            (file("a.b.c", "SUAIO3"), CredentialsError::DamagedSeed),
        ] {
            assert_eq!(parse_credentials(&text).unwrap_err(), fault, "{text}");
        }
    }

    #[test]
    fn base_32_is_that_of_the_rfc() {
        for (bytes, text) in [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foobar", "MZXW6YTBOI")] {
            assert_eq!(encode_base32(bytes.as_bytes()), text);
            assert_eq!(decode_base32(text).unwrap(), bytes.as_bytes());
        }
        // CRC-16/XMODEM of its catalogue.
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
