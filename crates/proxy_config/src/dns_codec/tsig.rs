//! Signatures of DNS messages by a shared key (TSIG, RFC 8945), and the files of such keys. No I/O, no clock.

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Sha256, Sha384, Sha512};

use super::message::MessageReader;
use super::update::{TooLong, push_name, push_u16s};
use crate::plan::TsigAlgorithm;

const TYPE_TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;
/// Maximum difference between the clocks of both ends, in seconds.
const FUDGE_S: u16 = 300;
/// Maximum length of a secret: a longer one is hashed by HMAC anyway.
const SECRET_BYTES_MAX: usize = 512;
/// Minimum length of a secret: half the length of the digest (RFC 2104 §3).
const SECRET_BYTES_MIN: usize = 16;
/// Maximum length of a key file.
pub const KEY_FILE_BYTES_MAX: usize = 64 * 1024;

/// Key that both ends share.
#[derive(Clone, PartialEq, Eq)]
pub struct TsigKey {
    /// In lower case, without the final dot.
    pub name: Box<str>,
    pub algorithm: TsigAlgorithm,
    secret: Vec<u8>,
}

impl std::fmt::Debug for TsigKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TsigKey({}, {})", self.name, self.algorithm.name())
    }
}

/// Fault of a key or of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error(
        "no key in the form `key \"name\" {{ algorithm hmac-sha256; secret \"…\"; }};` (tsig-keygen writes it)"
    )]
    NoKey,
    #[error("the file has several keys: write one for each file")]
    SeveralKeys,
    #[error("the key has no {0}")]
    Missing(&'static str),
    #[error(
        "the algorithm '{0}' is not supported: use hmac-sha256, hmac-sha384 or hmac-sha512 (tsig-keygen -a)"
    )]
    Algorithm(Box<str>),
    #[error("the secret is not valid base64")]
    Base64,
    #[error("the secret has {0} bytes: use 16 to 512 (tsig-keygen makes a key)")]
    SecretLength(usize),
}

/// Reason why a response is not from the owner of the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TsigError {
    #[error("the response is not signed")]
    Unsigned,
    #[error("the response is malformed")]
    Malformed,
    #[error("the response is signed with another key")]
    OtherKey,
    #[error("the signature of the response is wrong: the server has another secret")]
    WrongSignature,
    #[error("the server does not accept the signature (BADSIG): its key {0} has another secret")]
    BadSignature(Box<str>),
    #[error("the server does not know the key {0} with {1} (BADKEY)")]
    BadKey(Box<str>, &'static str),
    #[error("the clocks of this host and of the server differ by more than {FUDGE_S} s (BADTIME): set them")]
    BadTime,
    #[error("the server does not accept the signature (TSIG error {0})")]
    Other(u16),
}

impl TsigKey {
    /// Creates a key from its parts; the secret is in base64.
    ///
    /// # Errors
    /// The secret is no base64, or has another length.
    pub fn new(name: &str, algorithm: TsigAlgorithm, secret: &str) -> Result<Self, KeyFault> {
        let text: String = secret.chars().filter(|char| !char.is_ascii_whitespace()).collect();
        let secret = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| KeyFault::Base64)?;
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(KeyFault::SecretLength(secret.len()));
        }
        Ok(Self { name: name.trim_end_matches('.').to_ascii_lowercase().into(), algorithm, secret })
    }

    /// Parses a file with one key in the format of BIND.
    ///
    /// # Errors
    /// It has no key, or more than one, or the key is not usable.
    pub fn parse_file(text: &str) -> Result<Self, KeyFault> {
        let words = config_words(text);
        let is_key = |word: &String| word.eq_ignore_ascii_case("key");
        let start = words.iter().position(is_key).ok_or(KeyFault::NoKey)?;
        let (name, rest) = match &words[start + 1..] {
            [name, open, rest @ ..] if open == "{" => (name, rest),
            _ => return Err(KeyFault::NoKey),
        };
        let end = rest.iter().position(|word| word == "}").ok_or(KeyFault::NoKey)?;
        if rest[end..].iter().any(is_key) {
            return Err(KeyFault::SeveralKeys);
        }
        let value_of = |key: &'static str| {
            let at = rest[..end].iter().position(|word| word.eq_ignore_ascii_case(key));
            at.and_then(|at| rest[..end].get(at + 1)).ok_or(KeyFault::Missing(key))
        };
        let algorithm = value_of("algorithm")?;
        let known = TsigAlgorithm::from_name(algorithm);
        let algorithm = known.ok_or_else(|| KeyFault::Algorithm(algorithm.chars().take(64).collect()))?;
        Self::new(name, algorithm, value_of("secret")?)
    }

    /// Signs a request: appends the record, and returns the signature, which the response refers to.
    ///
    /// # Errors
    /// The name of the key is too long.
    pub fn sign(&self, message: &mut Vec<u8>, now_s: u64) -> Result<Vec<u8>, TooLong> {
        let fields = TsigFields { time_s: now_s, fudge_s: FUDGE_S, error: 0, other: &[] };
        let signature = self.authentication_code(&[], message, &fields)?.finish();
        let id = [message[0], message[1]];
        push_name(message, &self.name)?;
        push_u16s(message, &[TYPE_TSIG, CLASS_ANY, 0, 0]);
        let mut content = Vec::new();
        push_name(&mut content, self.algorithm.name())?;
        content.extend_from_slice(&time_bytes(now_s));
        push_u16s(&mut content, &[FUDGE_S, signature.len() as u16]);
        content.extend_from_slice(&signature);
        content.extend_from_slice(&id);
        push_u16s(&mut content, &[0, 0]);
        push_u16s(message, &[content.len() as u16]);
        message.extend_from_slice(&content);
        // The number of additional records.
        let count = u16::from_be_bytes([message[10], message[11]]).saturating_add(1);
        message[10..12].copy_from_slice(&count.to_be_bytes());
        Ok(signature)
    }

    /// Checks the signature of the response to a request with this signature.
    ///
    /// # Errors
    /// The response is not from the owner of the key, or not of this time.
    pub fn verify(&self, response: &[u8], request_signature: &[u8], now_s: u64) -> Result<(), TsigError> {
        let record = TsigRecord::find(response)?;
        if record.name != self.name || TsigAlgorithm::from_name(&record.algorithm) != Some(self.algorithm) {
            return Err(TsigError::OtherKey);
        }
        // These two are unsigned (RFC 8945 §5.3.2).
        match record.fields.error {
            16 => return Err(TsigError::BadSignature(self.name.clone())),
            17 => return Err(TsigError::BadKey(self.name.clone(), self.algorithm.name())),
            _ => {}
        }
        let mut unsigned = response[..record.start].to_vec();
        unsigned[..2].copy_from_slice(&record.original_id);
        let count = u16::from_be_bytes([unsigned[10], unsigned[11]]).saturating_sub(1);
        unsigned[10..12].copy_from_slice(&count.to_be_bytes());
        let code = self.authentication_code(request_signature, &unsigned, &record.fields);
        let code = code.map_err(|_| TsigError::Malformed)?;
        if !code.is(record.signature) {
            return Err(TsigError::WrongSignature);
        }
        match record.fields.error {
            0 => {}
            18 => return Err(TsigError::BadTime),
            other => return Err(TsigError::Other(other)),
        }
        match record.fields.time_s.abs_diff(now_s) <= u64::from(FUDGE_S) {
            true => Ok(()),
            false => Err(TsigError::BadTime),
        }
    }

    /// Computes the code of a message (RFC 8945 §4.3).
    fn authentication_code(
        &self,
        request_signature: &[u8],
        message: &[u8],
        fields: &TsigFields<'_>,
    ) -> Result<AuthenticationCode, TooLong> {
        let mut code = AuthenticationCode::new(self.algorithm, &self.secret);
        if !request_signature.is_empty() {
            code.update(&(request_signature.len() as u16).to_be_bytes());
            code.update(request_signature);
        }
        code.update(message);
        let mut variables = Vec::new();
        push_name(&mut variables, &self.name)?;
        push_u16s(&mut variables, &[CLASS_ANY, 0, 0]);
        push_name(&mut variables, self.algorithm.name())?;
        variables.extend_from_slice(&time_bytes(fields.time_s));
        push_u16s(&mut variables, &[fields.fudge_s, fields.error, fields.other.len() as u16]);
        variables.extend_from_slice(fields.other);
        code.update(&variables);
        Ok(code)
    }
}

/// Fields of a signature that it protects.
struct TsigFields<'a> {
    time_s: u64,
    fudge_s: u16,
    error: u16,
    other: &'a [u8],
}

struct TsigRecord<'a> {
    /// Position of the record.
    start: usize,
    name: Box<str>,
    algorithm: Box<str>,
    fields: TsigFields<'a>,
    signature: &'a [u8],
    original_id: [u8; 2],
}

impl<'a> TsigRecord<'a> {
    /// Finds the record at the end of a message.
    fn find(message: &'a [u8]) -> Result<Self, TsigError> {
        let mut reader = MessageReader::new(message);
        let [_, _, questions, answers, authorities, additional] =
            reader.read_u16s().ok_or(TsigError::Malformed)?;
        if additional == 0 {
            return Err(TsigError::Unsigned);
        }
        let mut skip = || {
            for _ in 0..questions {
                reader.skip_name()?;
                reader.take(4)?;
            }
            let others = usize::from(answers) + usize::from(authorities) + usize::from(additional) - 1;
            for _ in 0..others {
                reader.skip_name()?;
                let [.., length] = reader.read_u16s::<5>()?;
                reader.take(usize::from(length))?;
            }
            Some(())
        };
        skip().ok_or(TsigError::Malformed)?;
        Self::read(message, reader)
    }

    fn read(message: &'a [u8], mut reader: MessageReader<'a>) -> Result<Self, TsigError> {
        let start = reader.position();
        let mut read_head = || {
            let name = reader.skip_name()?;
            let [kind, class, _, _, length] = reader.read_u16s()?;
            Some((name, kind, class, length))
        };
        let (name, kind, class, length) = read_head().ok_or(TsigError::Malformed)?;
        if (kind, class) != (TYPE_TSIG, CLASS_ANY) {
            return Err(TsigError::Unsigned);
        }
        let end = reader.position() + usize::from(length);
        let mut read_content = || {
            let algorithm = reader.skip_name()?;
            let time: [u8; 6] = reader.take(6)?.try_into().ok()?;
            let [fudge_s, signature_bytes] = reader.read_u16s()?;
            let at = reader.position();
            reader.take(usize::from(signature_bytes))?;
            let signature = message.get(at..reader.position())?;
            let original_id: [u8; 2] = reader.take(2)?.try_into().ok()?;
            let [error, other_bytes] = reader.read_u16s()?;
            let at = reader.position();
            reader.take(usize::from(other_bytes))?;
            let other = message.get(at..reader.position())?;
            let time_s = time.iter().fold(0, |time_s, &byte| time_s << 8 | u64::from(byte));
            // Nothing may be behind the signature.
            (reader.position() == end && end == message.len()).then_some(())?;
            let fields = TsigFields { time_s, fudge_s, error, other };
            Some((algorithm, fields, signature, original_id))
        };
        let (algorithm, fields, signature, original_id) = read_content().ok_or(TsigError::Malformed)?;
        let (name, algorithm) = (reader.text_of(name), reader.text_of(algorithm));
        Ok(Self { start, name, algorithm, fields, signature, original_id })
    }
}

/// Code in progress.
enum AuthenticationCode {
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

impl AuthenticationCode {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    fn new(algorithm: TsigAlgorithm, secret: &[u8]) -> Self {
        const ANY: &str = "a key of any length";
        match algorithm {
            TsigAlgorithm::HmacSha256 => Self::Sha256(Hmac::new_from_slice(secret).expect(ANY)),
            TsigAlgorithm::HmacSha384 => Self::Sha384(Hmac::new_from_slice(secret).expect(ANY)),
            TsigAlgorithm::HmacSha512 => Self::Sha512(Hmac::new_from_slice(secret).expect(ANY)),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(code) => code.update(bytes),
            Self::Sha384(code) => code.update(bytes),
            Self::Sha512(code) => code.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(code) => code.finalize().into_bytes().to_vec(),
            Self::Sha384(code) => code.finalize().into_bytes().to_vec(),
            Self::Sha512(code) => code.finalize().into_bytes().to_vec(),
        }
    }

    /// Compares in constant time. A truncated code is not accepted.
    fn is(self, signature: &[u8]) -> bool {
        match self {
            Self::Sha256(code) => code.verify_slice(signature).is_ok(),
            Self::Sha384(code) => code.verify_slice(signature).is_ok(),
            Self::Sha512(code) => code.verify_slice(signature).is_ok(),
        }
    }
}

fn time_bytes(time_s: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = time_s.to_be_bytes();
    bytes
}

/// Splits a config of BIND into words, without comments and semicolons. Quotes are removed.
fn config_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text;
    let push = |word: &mut String, words: &mut Vec<String>| {
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    while let Some(char) = rest.chars().next() {
        let comment_end = match rest {
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            _ if rest.starts_with("//") || char == '#' => rest.find('\n').unwrap_or(rest.len()),
            _ => 0,
        };
        if comment_end > 0 {
            push(&mut word, &mut words);
            rest = &rest[comment_end..];
            continue;
        }
        rest = &rest[char.len_utf8()..];
        match char {
            '"' => {
                let end = rest.find('"').unwrap_or(rest.len());
                words.push(rest[..end].to_owned());
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            '{' | '}' => {
                push(&mut word, &mut words);
                words.push(char.to_string());
            }
            ';' => push(&mut word, &mut words),
            _ if char.is_whitespace() => push(&mut word, &mut words),
            _ => word.push(char),
        }
    }
    push(&mut word, &mut words);
    words
}

#[cfg(test)]
mod tests;
