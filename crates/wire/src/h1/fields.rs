//! What the fields of a head decide, found in one pass: framing, connection, expectation, host.
//!
//! It compares names by length first, so that the fields that decide nothing (most of them) cost
//! almost nothing. It knows nothing about lines and bytes: httparse made the fields.

use super::head::{Framing, Header, Version};
use super::refusal::RefusalKind;
use super::rules::list;

/// What the fields said. Kept small and flat: one of it is made for each head.
#[derive(Debug, Default)]
pub(super) struct Fields<'b> {
    pub(super) host: Option<&'b [u8]>,
    pub(super) expect_continue: bool,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    upgrade: Option<&'b [u8]>,
    content_length: Option<u64>,
    chunked: bool,
}

impl<'b> Fields<'b> {
    /// The fields of a request, in order; the first that is wrong decides.
    #[inline]
    pub(super) fn of_request(
        headers: &[Header<'b>],
        version: Version,
    ) -> Result<Self, RefusalKind> {
        let mut fields = Self::default();
        for header in headers {
            match header.name.len() {
                4 if is(header.name, b"host") => fields.handle_host(header.value)?,
                6 if is(header.name, b"expect") => fields.handle_expect(header.value)?,
                // Some servers read a number that starts with 0 as octal.
                14 if matches!(header.value, [b'0', _, ..])
                    && is(header.name, b"content-length") =>
                {
                    return Err(RefusalKind::ContentLengthInvalid);
                }
                _ => fields.handle_common(header)?,
            }
        }
        fields.check_framing(version)?;
        Ok(fields)
    }

    /// The fields of a response, in order; the first that is wrong decides.
    #[inline]
    pub(super) fn of_response(
        headers: &[Header<'b>],
        version: Version,
    ) -> Result<Self, RefusalKind> {
        let mut fields = Self::default();
        for header in headers {
            fields.handle_common(header)?;
        }
        fields.check_framing(version)?;
        Ok(fields)
    }

    /// The framing that the fields ask for, and `otherwise` when they are silent.
    #[inline]
    pub(super) fn framing(&self, otherwise: Framing) -> Framing {
        match (self.chunked, self.content_length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => otherwise,
        }
    }

    /// Whether the connection is to stay (RFC 9112 §9.3): `close` wins over anything.
    #[inline]
    pub(super) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// The protocol to change to, if it was asked for in both of the places that it takes (RFC 9110
    /// §7.8).
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
            7 if is(header.name, b"upgrade") => {
                self.upgrade = self.upgrade.or(Some(header.value));
            }
            10 if is(header.name, b"connection") => self.handle_connection(header.value),
            14 if is(header.name, b"content-length") => {
                let length = content_length(header.value)?;
                if self.content_length.replace(length).is_some() {
                    return Err(RefusalKind::ContentLengthRepeated);
                }
            }
            17 if is(header.name, b"transfer-encoding") => {
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

    fn handle_connection(&mut self, value: &[u8]) {
        // Nearly all there is, without taking a list apart.
        match value {
            b"keep-alive" => return self.keep_alive = true,
            b"close" => return self.close = true,
            _ => {}
        }
        for option in list(value) {
            match option.len() {
                5 => self.close |= option.eq_ignore_ascii_case(b"close"),
                7 => self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade"),
                10 => self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive"),
                _ => {}
            }
        }
    }

    /// What no single field shows. An attacker's favourite: each end believes the other of the two
    /// fields.
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

/// Whether a field name is this one, written in lower case.
///
/// Setting one bit makes a letter lower case, and makes no other byte of a token into a letter or a
/// hyphen. A known length lets the compiler compare words instead of bytes.
#[inline]
fn is<const N: usize>(name: &str, lower: &[u8; N]) -> bool {
    let Ok(name) = <&[u8; N]>::try_from(name.as_bytes()) else {
        return false;
    };
    name.iter()
        .zip(lower)
        .fold(0, |differences, (&byte, &wanted)| differences | ((byte | 0x20) ^ wanted))
        == 0
}

/// Decimal digits and nothing else: no sign, no list, no space, at least one, and no more than a
/// `u64` holds.
#[inline]
fn content_length(value: &[u8]) -> Result<u64, RefusalKind> {
    if value.is_empty() {
        return Err(RefusalKind::ContentLengthInvalid);
    }
    let mut length = 0u64;
    for &byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(list_or_invalid(value));
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(digit)))
            .ok_or(RefusalKind::ContentLengthInvalid)?;
    }
    Ok(length)
}

/// `5, 5` is what some proxy made of two fields; it is counted as that.
#[cold]
fn list_or_invalid(value: &[u8]) -> RefusalKind {
    let numbers = |member: &[u8]| !member.is_empty() && member.iter().all(u8::is_ascii_digit);
    if value.split(|&byte| byte == b',').all(|member| numbers(member.trim_ascii())) {
        RefusalKind::ContentLengthRepeated
    } else {
        RefusalKind::ContentLengthInvalid
    }
}

/// `chunked` alone is the one transfer coding that is understood. What ends in one `chunked` after
/// codings that are not understood is 501; anything else has no reliable end and is 400.
#[inline]
fn check_transfer_encoding(value: &[u8]) -> Result<(), RefusalKind> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    Err(explain_transfer_encoding(value))
}

#[cold]
fn explain_transfer_encoding(value: &[u8]) -> RefusalKind {
    let chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let last = list(value).last();
    if list(value).filter(chunked).count() == 1
        && last.as_ref().is_some_and(chunked)
        && list(value).count() > 1
    {
        RefusalKind::TransferEncodingUnsupported
    } else {
        RefusalKind::TransferEncodingInvalid
    }
}
