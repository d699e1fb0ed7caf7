//! Locations of redirects. A value cannot end the field, and it cannot lead to another host than the text
//! names: everything but visible ASCII is percent-encoded, a path starts with one slash, and other values
//! keep their letters, digits and `-._~` only.

use super::{Fact, Part, TEXT_BYTES_MAX, Template, Text, TextTooLong, Values, Variable};
use crate::uri::without_port;

impl Text {
    /// Returns the location with its values.
    ///
    /// # Errors
    /// The location is too long.
    pub fn location(&self, values: &dyn Values) -> Result<Vec<u8>, TextTooLong> {
        match self {
            Self::Literal(text) => Ok(text.as_bytes().to_vec()),
            Self::Template(template) => template.location(values),
        }
    }
}

impl Template {
    fn location(&self, values: &dyn Values) -> Result<Vec<u8>, TextTooLong> {
        let (mut out, mut value) = (Vec::with_capacity(self.source.len()), Vec::new());
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::Value(variable, default) => {
                    value.clear();
                    values.append(variable, &mut value);
                    if value.is_empty() && !default.is_empty() {
                        out.extend_from_slice(default.as_bytes());
                    } else {
                        let is_before_literal = matches!(parts.peek(), Some(Part::Literal(_)));
                        append_value(variable, &value, is_before_literal, &mut out);
                    }
                }
            }
            if out.len() > TEXT_BYTES_MAX {
                values.note_overflow();
                return Err(TextTooLong);
            }
        }
        // Two slashes would begin a host, also those around a group without a byte.
        let slashes = out.iter().take_while(|&&byte| byte == b'/').count();
        if slashes > 1 && !self.source.starts_with("//") {
            out.drain(1..slashes);
        }
        Ok(out)
    }
}

fn append_value(variable: &Variable, value: &[u8], is_before_literal: bool, out: &mut Vec<u8>) {
    match variable {
        Variable::Fact(Fact::Host) => {
            let host = std::str::from_utf8(value).unwrap_or_default();
            append_encoded(without_port(host).as_bytes(), b"/\\?#@", out);
        }
        Variable::Fact(Fact::Path) => {
            out.push(b'/');
            if value.first() == Some(&b'/') {
                append_path(value, out);
            }
        }
        // The values of a map are the operator's, as the text is.
        Variable::Fact(Fact::Query) | Variable::Map(_) => append_encoded(value, b"", out),
        Variable::Capture(_) => match authority(out) {
            // A group between literals is a part of the host.
            Some(b"") => append_component(value, out),
            Some(_) if is_before_literal => append_component(value, out),
            Some(_) => {
                out.push(b'/');
                append_path(value, out);
            }
            None if out.is_empty() => {
                out.push(b'/');
                append_path(value, out);
            }
            None if **out == *b"/" => append_path(value, out),
            None => append_encoded(value, b"\\", out),
        },
        _ => append_component(value, out),
    }
}

/// Appends a path without its leading slashes.
fn append_path(path: &[u8], out: &mut Vec<u8>) {
    let start = path.iter().position(|byte| !b"/\\".contains(byte)).unwrap_or(path.len());
    append_encoded(&path[start..], b"\\", out);
}

/// Returns the authority that a location ends with, if its path has not begun.
fn authority(location: &[u8]) -> Option<&[u8]> {
    let start = location.windows(3).position(|bytes| bytes == b"://").map(|at| at + 3);
    let start = start.or_else(|| location.starts_with(b"//").then_some(2))?;
    let authority = &location[start..];
    (!authority.iter().any(|byte| b"/?#".contains(byte))).then_some(authority)
}

/// Appends a value with everything but unreserved characters (RFC 3986 §2.3) percent-encoded.
fn append_component(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(byte),
            false => append_triplet(byte, out),
        }
    }
}

/// Appends a text with `unsafe_bytes` and everything but visible ASCII percent-encoded.
pub fn append_encoded(text: &[u8], unsafe_bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte.is_ascii_graphic() && !unsafe_bytes.contains(&byte) {
            true => out.push(byte),
            false => append_triplet(byte, out),
        }
    }
}

fn append_triplet(byte: u8, out: &mut Vec<u8>) {
    let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}
