//! Requirements for a good response, from the texts of the flags: status, header fields, length, hash
//! and pattern of the body.

use std::fmt;

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::parse_size;
use serde::{Serialize, Serializer};

use super::{StatusSet, StreamPattern};

/// Checks of a response, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    Status,
    Header,
    /// Length of the body (`--expect-length`).
    Length,
    /// Hash of the body (`--expect-hash`).
    Hash,
    /// Pattern in the body (`--expect-body`).
    Body,
}

/// Names of the checks in records, in the order of the enum.
pub const CHECK_NAMES: [&str; 5] = ["status", "header", "length", "hash", "body"];

impl CheckKind {
    #[inline]
    pub fn name(self) -> &'static str {
        CHECK_NAMES[self as usize]
    }
}

/// Requirements for a good response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Expect {
    /// Statuses of good responses; others are errors of kind `check`. `None`: those below 400.
    pub status: Option<StatusSet>,
    /// Expected body size; `None`: any.
    pub body_bytes: Option<u64>,
    /// Expected hash of the body; `None`: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<ExpectedHash>,
    /// Pattern that the body contains; `None`: any body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<StreamPattern>,
    /// Fields of the response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ExpectedHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedHash {
    /// SHA-256, as of sha256sum(1).
    Sha256([u8; 32]),
    /// CRC-32 (ISO 3309), as of gzip(1) and crc32(1).
    Crc32(u32),
    /// The hash of the first response to the same request.
    Same,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedHeader {
    pub name: String,
    pub value: ExpectedValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedValue {
    Any,
    Equal(String),
    Pattern(StreamPattern),
}

/// Maximum number of expected header fields: one bit each.
const EXPECTED_HEADERS_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct ExpectFlags {
    pub status: Option<String>,
    pub bytes: Option<String>,
    pub hash: Option<String>,
    pub body: Option<String>,
    pub headers: Vec<String>,
}

impl Expect {
    pub(super) fn parse(text: &ExpectFlags) -> (Self, Vec<InputProblem>) {
        let mut problems = Vec::new();
        let mut add = |flag: &str, why: InvalidValue| problems.push(InputProblem::new(flag, why));
        let mut expect = Self::default();
        if let Some(list) = &text.status {
            expect.status = StatusSet::parse(list).map_err(|why| add("--expect-status", why)).ok();
        }
        if let Some(size) = &text.bytes {
            expect.body_bytes = parse_size(size).map_err(|why| add("--expect-bytes", why)).ok();
        }
        if let Some(hash) = &text.hash {
            expect.hash = ExpectedHash::parse(hash).map_err(|why| add("--expect-hash", why)).ok();
        }
        if let Some(pattern) = &text.body {
            expect.body = StreamPattern::parse(pattern).map_err(|why| add("--expect-body", why)).ok();
        }
        for header in &text.headers {
            match ExpectedHeader::parse(header) {
                Ok(header) => expect.headers.push(header),
                Err(why) => add("--expect-header", why),
            }
        }
        if expect.headers.len() > EXPECTED_HEADERS_MAX {
            add("--expect-header", invalid_value!("more than {EXPECTED_HEADERS_MAX} fields"));
        }
        (expect, problems)
    }

    /// Returns whether a response with `status` may be a good one.
    #[inline]
    pub fn is_good_status(&self, status: u16) -> bool {
        self.status.as_ref().map_or(status < 400, |set| set.contains(status))
    }

    /// Returns whether the fields or the content of responses have to be inspected.
    #[inline]
    pub fn needs_inspection(&self) -> bool {
        self.hash.is_some() || self.body.is_some() || !self.headers.is_empty()
    }
}

impl ExpectedHash {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = || invalid_value!("'{text}' is not a hash (write sha256:HEX, crc32:HEX or same)");
        match text.split_once(':') {
            None if text == "same" => Ok(Self::Same),
            Some(("sha256", digits)) => hex_bytes(digits).map(Self::Sha256).ok_or_else(wrong),
            Some(("crc32", digits)) => {
                hex_bytes(digits).map(|bytes| Self::Crc32(u32::from_be_bytes(bytes))).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

fn hex_bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl ExpectedHeader {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let (name, value) = match text.split_once(':') {
            None => (text.trim(), ExpectedValue::Any),
            Some((name, value)) => match value.trim().strip_prefix('~') {
                Some(pattern) => (name.trim(), ExpectedValue::Pattern(StreamPattern::parse(pattern.trim())?)),
                None => (name.trim(), ExpectedValue::Equal(value.trim().to_owned())),
            },
        };
        wire::encode::check_field_name(name).map_err(|error| invalid_value!("'{text}': {error}"))?;
        Ok(Self { name: name.to_ascii_lowercase(), value })
    }

    #[inline]
    pub fn matches(&self, name: &str, value: &[u8]) -> bool {
        name.eq_ignore_ascii_case(&self.name)
            && match &self.value {
                ExpectedValue::Any => true,
                ExpectedValue::Equal(expected) => value == expected.as_bytes(),
                ExpectedValue::Pattern(pattern) => pattern.is_in(value),
            }
    }
}

impl fmt::Display for ExpectedHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            ExpectedValue::Any => f.write_str(&self.name),
            ExpectedValue::Equal(value) => write!(f, "{}: {value}", self.name),
            ExpectedValue::Pattern(pattern) => write!(f, "{}: ~{pattern}", self.name),
        }
    }
}

impl Serialize for ExpectedHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for ExpectedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(hash) => {
                f.write_str("sha256:")?;
                hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::Crc32(hash) => write!(f, "crc32:{hash:08x}"),
            Self::Same => f.write_str("same"),
        }
    }
}

impl Serialize for ExpectedHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_headers_are_shown_as_they_are_written() {
        let sha256 = format!("sha256:{}", "0a".repeat(32));
        for text in [sha256.as_str(), "crc32:0000beef", "same"] {
            assert_eq!(ExpectedHash::parse(text).unwrap().to_string(), text);
        }
        for text in ["x-a", "x-a: 1", "x-a: ~^text/"] {
            assert_eq!(ExpectedHeader::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "md5:00", "crc32:123", "crc32:0000beeg", "sha256:00", "first"] {
            assert!(ExpectedHash::parse(wrong).is_err(), "{wrong}");
        }
        assert!(ExpectedHeader::parse("a b: c").is_err() && ExpectedHeader::parse("a: ~(").is_err());
    }
}
