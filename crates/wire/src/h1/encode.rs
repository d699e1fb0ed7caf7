//! Encodes heads and chunks.
//!
//! Every function appends to a buffer of the caller and cannot fail. Possible errors (such as a CR
//! in a value) are checked once, when a plan is made, by the `check_*` functions below, and not
//! again when it is sent.

use std::fmt;

use super::explain::{is_field_value, is_token};
use super::head::Version;

/// Writes a complete HTTP/1.1 request head with its empty line.
///
/// `headers` are written in their order, `Host` and framing included: nothing is added.
pub fn request_head<N: AsRef<str>, V: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    method: &str,
    target: &str,
    headers: impl IntoIterator<Item = (N, V)>,
) {
    request_line(out, method, target);
    for (name, value) in headers {
        field(out, name.as_ref(), value.as_ref());
    }
    end_of_head(out);
}

/// Writes `method target HTTP/1.1` and a line end.
pub fn request_line(out: &mut Vec<u8>, method: &str, target: &str) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes a status line with its [`reason`].
///
/// `status` is 100 to 999; anything else is a bug of the caller, and panics in debug builds.
#[inline]
pub fn status_line(out: &mut Vec<u8>, version: Version, status: u16) {
    debug_assert!((100..=999).contains(&status), "status {status}");
    if version == Version::Http11 && status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(match version {
        Version::Http10 => b"HTTP/1.0 ",
        Version::Http11 => b"HTTP/1.1 ",
    });
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes one field line whose value is a decimal number.
#[inline]
pub fn field_u64(out: &mut Vec<u8>, name: &str, value: u64) {
    field(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Writes the empty line.
#[inline]
pub fn end_of_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Writes a complete interim response without fields: `100 Continue` (RFC 9110 §15.2).
pub fn interim(out: &mut Vec<u8>, status: u16) {
    debug_assert!((100..=199).contains(&status), "status {status}");
    status_line(out, Version::Http11, status);
    end_of_head(out);
}

/// Writes the size line of a chunk of `len` bytes; the data and a CRLF must follow (RFC 9112 §7.1).
///
/// A chunk of 0 bytes would end the body, so that `len` 0 is a bug of the caller and panics in
/// debug builds: see [`last_chunk`].
#[inline]
pub fn chunk_head(out: &mut Vec<u8>, len: u64) {
    debug_assert!(len > 0, "an empty chunk ends the body");
    let digits = (64 - len.max(1).leading_zeros()).div_ceil(4);
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(len >> (4 * at) & 0xf) as usize]);
    }
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub fn chunk_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Writes the end of a chunked body, without trailers.
#[inline]
pub fn last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Part of a message that cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessagePart {
    Method,
    Target,
    FieldName,
    FieldValue,
}

/// Reason why a text cannot be written into a head: an error of the plan, not of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EncodeError {
    /// The text is empty and must not be.
    Empty { part: MessagePart },
    /// The text has a byte that is not allowed.
    Byte {
        part: MessagePart,
        /// Position of the byte, in bytes from 0.
        at: usize,
        byte: u8,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |part: MessagePart| match part {
            MessagePart::Method => "method",
            MessagePart::Target => "request target",
            MessagePart::FieldName => "field name",
            MessagePart::FieldValue => "field value",
        };
        match *self {
            Self::Empty { part } => write!(f, "the {} is empty", name(part)),
            Self::Byte { part, at, byte } => {
                write!(
                    f,
                    "the {} has {:?} at byte {at}, which is not allowed there",
                    name(part),
                    char::from(byte)
                )
            }
        }
    }
}

impl std::error::Error for EncodeError {}

/// Checks that a method can be written: a token (RFC 9110 §9.1).
///
/// # Errors
/// The defect, and its position.
pub fn check_method(method: &str) -> Result<(), EncodeError> {
    check(MessagePart::Method, method.as_bytes(), is_token)
}

/// Checks that a request target can be written: visible ASCII without `#` (RFC 9112 §3.2). The form
/// that the method requires is not checked.
///
/// # Errors
/// The defect, and its position.
pub fn check_target(target: &str) -> Result<(), EncodeError> {
    check(MessagePart::Target, target.as_bytes(), |byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Checks that a field name can be written: a token (RFC 9110 §5.1).
///
/// # Errors
/// The defect, and its position.
pub fn check_field_name(name: &str) -> Result<(), EncodeError> {
    check(MessagePart::FieldName, name.as_bytes(), is_token)
}

/// Checks that a field value can be written: no control but HTAB, hence neither CR, LF nor NUL (RFC
/// 9110 §5.5). It may be empty.
///
/// # Errors
/// The defect, and its position.
pub fn check_field_value(value: &[u8]) -> Result<(), EncodeError> {
    if value.is_empty() {
        return Ok(());
    }
    check(MessagePart::FieldValue, value, is_field_value)
}

fn check(part: MessagePart, text: &[u8], is_allowed: impl Fn(u8) -> bool) -> Result<(), EncodeError> {
    if text.is_empty() {
        return Err(EncodeError::Empty { part });
    }
    match text.iter().position(|&byte| !is_allowed(byte)) {
        None => Ok(()),
        Some(at) => Err(EncodeError::Byte { part, at, byte: text[at] }),
    }
}

/// Returns the reason phrase of a status (RFC 9110 §15 and the IANA registry); empty if there is
/// none.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}
