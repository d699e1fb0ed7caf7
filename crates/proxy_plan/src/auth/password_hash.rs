//! Hashes of passwords: bcrypt and argon2id. Their cost is bounded when a file is read, so that no check takes
//! seconds or all memory. Pure.

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::alphabet::BCRYPT;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Maximum cost of bcrypt: about a second.
const BCRYPT_COST_MAX: u32 = 14;
/// Bytes of a password that bcrypt uses.
const BCRYPT_PASSWORD_BYTES: usize = 72;
/// Maximum memory of argon2id in KiB.
const ARGON2_KIB_MAX: u32 = 256 << 10;
/// Maximum memory times passes of argon2id in KiB: about a second.
const ARGON2_KIB_PASSES_MAX: u64 = 1 << 20;
const ARGON2_LANES_MAX: u32 = 16;
/// Lengths of the salt and of the hash of argon2id.
const ARGON2_SALT_BYTES: std::ops::RangeInclusive<usize> = 8..=64;
const ARGON2_HASH_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// Base64 of bcrypt: another alphabet, and bits at the end that count for nothing.
const BCRYPT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &BCRYPT,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Hash of a password, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordHash {
    Bcrypt { cost: u32, salt: [u8; 16], hash: [u8; 23] },
    Argon2id { params: Argon2Params, salt: Box<[u8]>, hash: Box<[u8]> },
}

/// Parameters of argon2id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Params {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// Reason why a hash is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashFault {
    #[error("{0}, which is quickly guessed: make a hash with `htpasswd -B` or `argon2`")]
    Weak(&'static str),
    #[error("an unknown hash: make one with `htpasswd -B` (bcrypt) or `argon2` (argon2id)")]
    Unknown,
    #[error("a malformed hash of bcrypt: it is $2y$, the cost in two digits, $, and 53 characters")]
    Bcrypt,
    #[error("a hash of bcrypt with the cost {0}, which is not from 4 to {BCRYPT_COST_MAX}")]
    BcryptCost(u32),
    #[error("a malformed hash of argon2id: it is $argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH in base64")]
    Argon2,
    #[error(
        "a hash of argon2id that costs too much: at most m={ARGON2_KIB_MAX}, m times t={ARGON2_KIB_PASSES_MAX}, p={ARGON2_LANES_MAX}"
    )]
    Argon2Cost,
}

impl PasswordHash {
    /// Parses a hash as `htpasswd` and `argon2` write it.
    ///
    /// # Errors
    /// It is of another kind, malformed, or too expensive to check.
    pub fn parse(text: &str) -> Result<Self, HashFault> {
        let is_bcrypt = ["$2a$", "$2b$", "$2y$"].iter().any(|start| text.starts_with(start));
        match text {
            _ if is_bcrypt => parse_bcrypt(&text[4..]),
            _ if text.starts_with("$argon2id$") => parse_argon2(&text["$argon2id$".len()..]),
            _ => Err(other_kind(text)),
        }
    }

    /// Returns whether a password has this hash, in a time that depends on the parameters only.
    pub fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt { cost, salt, hash } => {
                let used = password.len().min(BCRYPT_PASSWORD_BYTES);
                let mut terminated = [0; BCRYPT_PASSWORD_BYTES];
                terminated[..used].copy_from_slice(&password[..used]);
                let length = (used + 1).min(BCRYPT_PASSWORD_BYTES);
                let computed = bcrypt::bcrypt(*cost, *salt, &terminated[..length]);
                terminated.fill(0);
                verify_slices_are_equal(&computed[..hash.len()], hash).is_ok()
            }
            Self::Argon2id { params, salt, hash } => {
                let mut computed = vec![0; hash.len()];
                let is_computed = params
                    .argon2(hash.len())
                    .is_some_and(|argon2| argon2.hash_password_into(password, salt, &mut computed).is_ok());
                verify_slices_are_equal(&computed, hash).is_ok() && is_computed
            }
        }
    }

    /// Returns a hash of the same cost that no password has.
    pub fn decoy(&self) -> Self {
        let mut decoy = self.clone();
        match &mut decoy {
            Self::Bcrypt { salt, hash, .. } => {
                let _ = aws_lc_rs::rand::fill(salt);
                let _ = aws_lc_rs::rand::fill(hash);
            }
            Self::Argon2id { salt, hash, .. } => {
                let _ = aws_lc_rs::rand::fill(salt);
                let _ = aws_lc_rs::rand::fill(hash);
            }
        }
        decoy
    }

    /// Returns a number that is the same for hashes of the same cost.
    pub fn cost(&self) -> (u8, u64) {
        match self {
            Self::Bcrypt { cost, .. } => (0, u64::from(*cost)),
            Self::Argon2id { params, .. } => {
                let Argon2Params { memory_kib, passes, lanes } = *params;
                (1, u64::from(memory_kib) << 32 | u64::from(passes) << 8 | u64::from(lanes))
            }
        }
    }

    /// Returns the bytes that distinguish the hash from any other.
    pub fn fingerprint(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Bcrypt { salt, hash, .. } => (salt, hash),
            Self::Argon2id { salt, hash, .. } => (salt, hash),
        }
    }
}

impl Argon2Params {
    fn argon2(self, hash_bytes: usize) -> Option<Argon2<'static>> {
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(hash_bytes)).ok()?;
        Some(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
    }
}

fn parse_bcrypt(text: &str) -> Result<PasswordHash, HashFault> {
    let (cost, rest) = text.split_once('$').ok_or(HashFault::Bcrypt)?;
    let is_number = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
    let cost: u32 = cost.parse().ok().filter(|_| is_number).ok_or(HashFault::Bcrypt)?;
    if !(4..=BCRYPT_COST_MAX).contains(&cost) {
        return Err(HashFault::BcryptCost(cost));
    }
    let (salt, hash) = rest.split_at_checked(22).ok_or(HashFault::Bcrypt)?;
    let decode = |text: &str| BCRYPT_BASE64.decode(text).map_err(|_| HashFault::Bcrypt);
    let salt = decode(salt)?.try_into().map_err(|_| HashFault::Bcrypt)?;
    let hash = decode(hash)?.try_into().map_err(|_| HashFault::Bcrypt)?;
    Ok(PasswordHash::Bcrypt { cost, salt, hash })
}

fn parse_argon2(text: &str) -> Result<PasswordHash, HashFault> {
    let parts: Vec<&str> = text.split('$').collect();
    let ["v=19", params, salt, hash] = *parts else { return Err(HashFault::Argon2) };
    let number = |text: &str, name: &str| -> Option<u32> {
        let digits = text.strip_prefix(name)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(u32::MAX)).filter(|_| !digits.is_empty())
    };
    let parts: Vec<&str> = params.split(',').collect();
    let [memory, passes, lanes] = *parts else { return Err(HashFault::Argon2) };
    let params = (number(memory, "m="), number(passes, "t="), number(lanes, "p="));
    let (Some(memory_kib), Some(passes), Some(lanes)) = params else { return Err(HashFault::Argon2) };
    let is_cheap = memory_kib <= ARGON2_KIB_MAX
        && u64::from(memory_kib) * u64::from(passes) <= ARGON2_KIB_PASSES_MAX
        && lanes <= ARGON2_LANES_MAX;
    if !is_cheap {
        return Err(HashFault::Argon2Cost);
    }
    let decode = |text: &str| STANDARD_NO_PAD.decode(text).map_err(|_| HashFault::Argon2);
    let (salt, hash) = (decode(salt)?, decode(hash)?);
    let params = Argon2Params { memory_kib, passes, lanes };
    let is_sound = ARGON2_SALT_BYTES.contains(&salt.len())
        && ARGON2_HASH_BYTES.contains(&hash.len())
        && params.argon2(hash.len()).is_some();
    if !is_sound {
        return Err(HashFault::Argon2);
    }
    Ok(PasswordHash::Argon2id { params, salt: salt.into(), hash: hash.into() })
}

fn other_kind(text: &str) -> HashFault {
    let weak = [
        ("$apr1$", "a hash of MD5 (apr1)"),
        ("$1$", "a hash of MD5"),
        ("{SHA}", "a hash of SHA-1"),
        ("{SSHA}", "a hash of SHA-1"),
        ("{PLAIN}", "a plain password"),
        ("$5$", "a hash of SHA-crypt"),
        ("$6$", "a hash of SHA-crypt"),
        ("$argon2i$", "a hash of argon2i"),
        ("$argon2d$", "a hash of argon2d"),
        ("$2x$", "a hash of a faulty bcrypt"),
    ];
    match weak.iter().find(|(start, _)| text.starts_with(start)) {
        Some((_, name)) => HashFault::Weak(name),
        None if text.starts_with('$') => HashFault::Unknown,
        None => HashFault::Weak("a plain password, or a hash of crypt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From crypt(3) of libxcrypt.
    const BCRYPT_SECRET: &str = "$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W";
    /// From the tests of the reference implementation.
    const ARGON2_PASSWORD: &str =
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    #[test]
    fn hashes_of_other_programs_are_verified() {
        for (hash, password) in [
            (BCRYPT_SECRET, "secret"),
            (&BCRYPT_SECRET.replace("2b", "2y"), "secret"),
            (&BCRYPT_SECRET.replace("2b", "2a"), "secret"),
            (ARGON2_PASSWORD, "password"),
        ] {
            let parsed = PasswordHash::parse(hash).unwrap();
            assert!(parsed.verify(password.as_bytes()), "{hash}");
            for other in ["", "Secret", "secretx", "passwor", "password1"] {
                assert!(!parsed.verify(other.as_bytes()), "{hash} {other}");
            }
            let decoy = parsed.decoy();
            assert!(decoy.cost() == parsed.cost() && decoy != parsed && !decoy.verify(password.as_bytes()));
        }
    }

    #[test]
    fn bcrypt_uses_72_bytes() {
        let hash =
            PasswordHash::parse("$2b$05$abcdefghijklmnopqrstuuVQd15VhR/oN1H3pzUR5lME0fZO6.qRW").unwrap();
        assert!(hash.verify(b"other") && !hash.verify(&[b'o'; 72]) && !hash.verify(&[b'o'; 5_000]));
    }

    #[test]
    fn other_and_expensive_hashes_are_refused() {
        let argon2 = |params: &str| {
            format!("$argon2id$v=19${params}$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4")
        };
        for (hash, part) in [
            (
                "$apr1$x$y",
                "a hash of MD5 (apr1), which is quickly guessed: make a hash with `htpasswd -B` or `argon2`",
            ),
            ("{SHA}x", "SHA-1"),
            ("$6$x$y", "SHA-crypt"),
            ("secret", "a plain password"),
            ("", "a plain password"),
            ("$argon2i$v=19$m=256,t=2,p=1$a$b", "argon2i,"),
            ("$7$x", "an unknown hash"),
            ("$2y$04$short", "a malformed hash of bcrypt"),
            ("$2y$4$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W", "a malformed hash of bcrypt"),
            ("$2y$15$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W", "the cost 15"),
            ("$2y$03$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W", "the cost 3"),
            (
                "$2y$04$\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
                "a malformed hash of bcrypt",
            ),
            (&argon2("m=262145,t=1,p=1"), "costs too much"),
            (&argon2("m=262144,t=5,p=1"), "costs too much"),
            (&argon2("m=99999999999,t=1,p=1"), "costs too much"),
            (&argon2("m=256,t=1,p=17"), "costs too much"),
            (&argon2("m=256,t=0,p=1"), "a malformed hash of argon2id"),
            (&argon2("m=256,t=1"), "a malformed hash of argon2id"),
            (&argon2("m=,t=1,p=1"), "a malformed hash of argon2id"),
            ("$argon2id$m=256,t=2,p=1$c29tZXNhbHQ$nf65", "a malformed hash of argon2id"),
        ] {
            let fault = PasswordHash::parse(hash).unwrap_err().to_string();
            assert!(fault.contains(part), "{hash}: {fault}");
        }
    }
}
