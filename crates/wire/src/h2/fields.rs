//! Kinds of fields by their names, and the validation of one field (RFC 9113 §8.2).
//!
//! The result is kept with an entry of the dynamic table, so that a reference to it costs nothing.
//! Rules about several fields are in [`super::head`].

use crate::h1::{is_field_value, is_token, split_host_port};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Other,
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
    UnknownPseudo,
    Host,
    ContentLength,
    Te,
    Expect,
    /// Only for a connection of HTTP/1.1 (RFC 9113 §8.2.2).
    Connection,
    /// Not a lower-case token.
    Invalid,
}

/// Kind of a field: that of its name, and the result of the check of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldKind {
    pub(super) name: NameKind,
    pub(super) is_value_valid: bool,
}

impl FieldKind {
    pub(super) const OTHER: Self = Self { name: NameKind::Other, is_value_valid: true };

    /// Returns whether the field has no meaning here, and is valid.
    #[inline]
    pub(super) fn is_regular(self) -> bool {
        (self.name as u8, self.is_value_valid) == (NameKind::Other as u8, true)
    }

    pub(super) const fn from_static_index(index: usize) -> Self {
        let name = match index {
            1 => NameKind::Authority,
            2 | 3 => NameKind::Method,
            4 | 5 => NameKind::Path,
            6 | 7 => NameKind::Scheme,
            8..=14 => NameKind::Status,
            28 => NameKind::ContentLength,
            35 => NameKind::Expect,
            38 => NameKind::Host,
            57 => NameKind::Connection,
            _ => NameKind::Other,
        };
        // Their values are empty in the table, and must not be.
        let is_value_valid = !matches!(name, NameKind::Authority | NameKind::Host | NameKind::Expect);
        Self { name, is_value_valid }
    }
}

/// Returns the kind of a field, whose name may be known.
#[inline]
pub(super) fn classify(known_name: Option<NameKind>, name: &[u8], value: &[u8]) -> FieldKind {
    let name = known_name.unwrap_or_else(|| name_kind(name));
    FieldKind { name, is_value_valid: is_valid_value(name, value) }
}

#[inline]
fn name_kind(name: &[u8]) -> NameKind {
    if !name.iter().all(|&byte| IS_LOWER_TOKEN[usize::from(byte)]) {
        return special_name(name);
    }
    match name {
        b"" => NameKind::Invalid,
        b"te" => NameKind::Te,
        b"host" => NameKind::Host,
        b"expect" => NameKind::Expect,
        b"content-length" => NameKind::ContentLength,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            NameKind::Connection
        }
        _ => NameKind::Other,
    }
}

fn special_name(name: &[u8]) -> NameKind {
    match name {
        b":method" => NameKind::Method,
        b":scheme" => NameKind::Scheme,
        b":authority" => NameKind::Authority,
        b":path" => NameKind::Path,
        b":protocol" => NameKind::Protocol,
        b":status" => NameKind::Status,
        [b':', ..] => NameKind::UnknownPseudo,
        _ => NameKind::Invalid,
    }
}

#[inline]
fn is_valid_value(name: NameKind, value: &[u8]) -> bool {
    match name {
        NameKind::Other => is_valid_text(value),
        NameKind::Path => is_valid_path(value),
        NameKind::Authority | NameKind::Host => split_host_port(value).is_some(),
        NameKind::Method | NameKind::Protocol => {
            !value.is_empty() && value.iter().all(|&byte| is_token(byte))
        }
        NameKind::Scheme => is_valid_scheme(value),
        NameKind::Status => matches!(value, [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9']),
        NameKind::Te => value.eq_ignore_ascii_case(b"trailers"),
        NameKind::Expect => value.eq_ignore_ascii_case(b"100-continue"),
        // Parsed where its number is needed.
        NameKind::ContentLength => true,
        NameKind::UnknownPseudo | NameKind::Connection | NameKind::Invalid => false,
    }
}

/// Returns whether a value has no control character but HTAB, and no whitespace around it.
///
/// It has no early exit, so that the compiler checks sixteen bytes at once.
#[inline]
pub(super) fn is_valid_text(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && value.iter().fold(true, |is_valid, &byte| is_valid & is_field_value(byte))
}

/// Returns whether a path begins with a slash or is an asterisk, and is visible ASCII without `#`.
#[inline]
fn is_valid_path(path: &[u8]) -> bool {
    let is_allowed = |byte: u8| byte.wrapping_sub(b'!') < 94 && byte != b'#';
    matches!(path, [b'/', ..] | b"*") && path.iter().fold(true, |is_valid, &byte| is_valid & is_allowed(byte))
}

/// Returns whether a text is a scheme (RFC 3986 §3.1).
fn is_valid_scheme(scheme: &[u8]) -> bool {
    matches!(scheme, [b'a'..=b'z' | b'A'..=b'Z', ..])
        && scheme.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

const IS_LOWER_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        table[at] = byte.is_ascii_lowercase() || byte.is_ascii_digit();
        at += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};
