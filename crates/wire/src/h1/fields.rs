//! Semantics of the fields of a head, found in one pass: framing, connection, expectation, host.
//!
//! Names are compared by length first, so that irrelevant fields (most of them) cost almost
//! nothing. This module does not parse lines and bytes: `lines` made the fields.

use super::head::{Framing, Header, Version};
use super::refusal::RefusalKind;
use super::rules::list_members;

/// Maximum size of the `Connection` fields of a head, together: an intermediary compares each field with each
/// of their options.
const CONNECTION_BYTES_MAX: usize = 1_024;

/// Decisions from the fields. Small and flat, because one is made for each head.
#[derive(Debug, Default)]
pub(super) struct FieldSemantics<'b> {
    pub(super) host: Option<&'b [u8]>,
    pub(super) expect_continue: bool,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    pub(super) has_connection_options: bool,
    connection_bytes: usize,
    upgrade: Option<&'b [u8]>,
    content_length: Option<u64>,
    chunked: bool,
}

impl<'b> FieldSemantics<'b> {
    /// Processes the fields of a request, in order; the first wrong one decides.
    #[inline]
    pub(super) fn from_request(headers: &[Header<'b>], version: Version) -> Result<Self, RefusalKind> {
        let mut fields = Self::default();
        for header in headers {
            match header.name.len() {
                4 if name_is(header.name, b"host") => fields.handle_host(header.value)?,
                6 if name_is(header.name, b"expect") => fields.handle_expect(header.value)?,
                // Some servers parse a number that starts with 0 as octal.
                14 if matches!(header.value, [b'0', _, ..]) && name_is(header.name, b"content-length") => {
                    return Err(RefusalKind::ContentLengthInvalid);
                }
                length if is_common_length(length) => fields.handle_common(header)?,
                _ => {}
            }
        }
        fields.check_framing(version)?;
        Ok(fields)
    }

    /// Processes the fields of a response, in order; the first wrong one decides.
    #[inline]
    pub(super) fn from_response(headers: &[Header<'b>], version: Version) -> Result<Self, RefusalKind> {
        let mut fields = Self::default();
        for header in headers.iter().filter(|header| is_common_length(header.name.len())) {
            fields.handle_common(header)?;
        }
        fields.check_framing(version)?;
        Ok(fields)
    }

    /// Returns the framing specified by the fields, or `default` if there is none.
    #[inline]
    pub(super) fn framing(&self, default: Framing) -> Framing {
        match (self.chunked, self.content_length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => default,
        }
    }

    /// Returns true if the connection persists (RFC 9112 §9.3): `close` takes precedence.
    #[inline]
    pub(super) fn is_persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// Returns the protocol to upgrade to, if both required fields request it (RFC 9110 §7.8).
    #[inline]
    pub(super) fn upgrade_to(&self, version: Version) -> Option<&'b str> {
        if !self.upgrade_option || version == Version::Http10 {
            return None;
        }
        self.upgrade.and_then(|value| std::str::from_utf8(value).ok())
    }

    #[inline]
    fn handle_common(&mut self, header: &Header<'b>) -> Result<(), RefusalKind> {
        match header.name.len() {
            7 if name_is(header.name, b"upgrade") => {
                self.upgrade = self.upgrade.or(Some(header.value));
            }
            10 if name_is(header.name, b"connection") => self.handle_connection(header.value)?,
            14 if name_is(header.name, b"content-length") => {
                let length = parse_content_length(header.value)?;
                if self.content_length.replace(length).is_some() {
                    return Err(RefusalKind::ContentLengthRepeated);
                }
            }
            17 if name_is(header.name, b"transfer-encoding") => {
                check_transfer_encoding(header.value)?;
                if std::mem::replace(&mut self.chunked, true) {
                    return Err(RefusalKind::TransferEncodingRepeated);
                }
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn handle_host(&mut self, value: &'b [u8]) -> Result<(), RefusalKind> {
        match self.host.replace(value) {
            None => Ok(()),
            Some(_) => Err(RefusalKind::HostRepeated),
        }
    }

    fn handle_expect(&mut self, value: &[u8]) -> Result<(), RefusalKind> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(RefusalKind::ExpectationFailed);
        }
        self.expect_continue = true;
        Ok(())
    }

    fn handle_connection(&mut self, value: &[u8]) -> Result<(), RefusalKind> {
        // The usual values, without splitting a list.
        match value {
            b"keep-alive" => {
                self.keep_alive = true;
                return Ok(());
            }
            b"close" => {
                self.close = true;
                return Ok(());
            }
            _ => {}
        }
        self.connection_bytes += value.len();
        if self.connection_bytes > CONNECTION_BYTES_MAX {
            return Err(RefusalKind::TooManyFields);
        }
        for option in list_members(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ => {
                    self.has_connection_options = true;
                    self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
                }
            }
        }
        Ok(())
    }

    /// Checks combinations of fields. Request smuggling uses them: each of two recipients trusts
    /// another one of the two fields.
    #[inline]
    fn check_framing(&self, version: Version) -> Result<(), RefusalKind> {
        if self.chunked && version == Version::Http10 {
            return Err(RefusalKind::TransferEncodingOnHttp10);
        }
        if self.chunked && self.content_length.is_some() {
            return Err(RefusalKind::FramingConflict);
        }
        Ok(())
    }
}

/// Returns true if a field of requests and responses that this module interprets has a name of this length.
#[inline]
fn is_common_length(length: usize) -> bool {
    matches!(length, 7 | 10 | 14 | 17)
}

/// Returns true if a field name equals `lower`, which is in lower case, ignoring case.
///
/// Setting one bit makes a letter lower case, and makes no other byte of a token a letter or a
/// hyphen. A known length lets the compiler compare words instead of bytes.
#[inline]
pub fn name_is<const N: usize>(name: &str, lower: &[u8; N]) -> bool {
    let Ok(name) = <&[u8; N]>::try_from(name.as_bytes()) else {
        return false;
    };
    name.iter().zip(lower).fold(0, |differences, (&byte, &expected)| differences | ((byte | 0x20) ^ expected))
        == 0
}

/// Parses decimal digits and nothing else: no sign, no list, no space, at least one digit, within a
/// `u64`.
#[inline]
pub(crate) fn parse_content_length(value: &[u8]) -> Result<u64, RefusalKind> {
    if value.is_empty() {
        return Err(RefusalKind::ContentLengthInvalid);
    }
    let mut length = 0u64;
    for &byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(classify_invalid_length(value));
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit)))
            .ok_or(RefusalKind::ContentLengthInvalid)?;
    }
    Ok(length)
}

/// Classifies the value: `5, 5` is the result of a proxy joining two fields, and counts as that.
#[cold]
fn classify_invalid_length(value: &[u8]) -> RefusalKind {
    let is_number = |member: &[u8]| !member.is_empty() && member.iter().all(u8::is_ascii_digit);
    if value.split(|&byte| byte == b',').all(|member| is_number(member.trim_ascii())) {
        RefusalKind::ContentLengthRepeated
    } else {
        RefusalKind::ContentLengthInvalid
    }
}

/// Checks the transfer coding: only `chunked` alone is supported. Unknown codings that end in one
/// `chunked` are 501; anything else has no reliable end and is 400.
#[inline]
fn check_transfer_encoding(value: &[u8]) -> Result<(), RefusalKind> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    Err(explain_transfer_encoding(value))
}

#[cold]
fn explain_transfer_encoding(value: &[u8]) -> RefusalKind {
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let last = list_members(value).last();
    if list_members(value).filter(is_chunked).count() == 1
        && last.as_ref().is_some_and(is_chunked)
        && list_members(value).count() > 1
    {
        RefusalKind::TransferEncodingUnsupported
    } else {
        RefusalKind::TransferEncodingInvalid
    }
}
