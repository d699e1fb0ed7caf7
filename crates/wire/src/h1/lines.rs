//! Splits the head of a message into its start line and its field lines (RFC 9112 §2.1), in one pass.
//!
//! It accepts exactly the complete heads in which `explain` finds no violation. `explain` tells other bytes apart, unless they
//! end in a name or a value: most parts of heads do. The tests compare the two, and both with httparse.
//! Not for the meaning of the fields: see `fields` and `target`.

use super::explain::{is_field_value, is_target_byte, is_token};
use super::head::{Header, HeaderSlots, Version};
use super::word::{Mask, WORD_BYTES, Word};

/// Start line and size of a request head.
pub(super) struct RequestLines<'b> {
    pub(super) method: &'b str,
    /// Target, of bytes for which [`is_target_byte`](super::explain::is_target_byte) holds.
    pub(super) target: &'b str,
    pub(super) version: Version,
    /// Length with the empty line.
    pub(super) head_len: usize,
}

/// Status line and size of a response head.
pub(super) struct ResponseLines<'b> {
    pub(super) version: Version,
    /// Three digits, from 0 to 999.
    pub(super) status: u16,
    /// Empty if it is not ASCII.
    pub(super) reason: &'b str,
    /// Length with the empty line.
    pub(super) head_len: usize,
}

/// Bytes that are no complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsplit {
    /// They are right, and end in the name or the value of a field.
    InField,
    /// They are incomplete or wrong.
    Elsewhere,
}

/// Splits the head of a request at the start of `window`, and puts its fields, at most `headers_max`, into `slots`.
#[inline]
pub(super) fn split_request<'b>(
    window: &'b [u8],
    headers_max: usize,
    slots: &mut HeaderSlots<'b>,
) -> Result<RequestLines<'b>, Unsplit> {
    let (start, rest) = split_request_line(window).ok_or(Unsplit::Elsewhere)?;
    let mut text = Text::new(window);
    let (method, target) =
        (text.part(0, start.method.len()), text.part(start.method.len() + 1, start.target.len()));
    let head_len = split_fields(&mut text, rest, headers_max, slots)?;
    Ok(RequestLines { method, target, version: start.version, head_len })
}

/// Splits the head of a response, as [`split_request`] does that of a request.
#[inline]
pub(super) fn split_response<'b>(
    window: &'b [u8],
    headers_max: usize,
    slots: &mut HeaderSlots<'b>,
) -> Result<ResponseLines<'b>, Unsplit> {
    let (start, rest) = split_status_line(window).ok_or(Unsplit::Elsewhere)?;
    let head_len = split_fields(&mut Text::new(window), rest, headers_max, slots)?;
    let reason =
        if start.reason.is_ascii() { std::str::from_utf8(start.reason).unwrap_or_default() } else { "" };
    Ok(ResponseLines { version: start.version, status: start.status, reason, head_len })
}

struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    version: Version,
}

#[inline]
fn split_request_line(window: &[u8]) -> Option<(RequestLine<'_>, &[u8])> {
    let (method, rest) = window.split_at_checked(token_len(window))?;
    let rest = rest.strip_prefix(b" ")?;
    let (target, rest) = rest.split_at_checked(target_len(rest))?;
    let (version, rest) = split_version(rest.strip_prefix(b" ")?)?;
    let rest = rest.strip_prefix(b"\r\n")?;
    (!method.is_empty() && !target.is_empty()).then_some((RequestLine { method, target, version }, rest))
}

struct StatusLine<'b> {
    version: Version,
    status: u16,
    reason: &'b [u8],
}

#[inline]
fn split_status_line(window: &[u8]) -> Option<(StatusLine<'_>, &[u8])> {
    let (version, rest) = split_version(window)?;
    let (status, rest) = split_status(rest.strip_prefix(b" ")?)?;
    let (reason, rest) = match rest.strip_prefix(b" ") {
        Some(rest) => rest.split_at_checked(value_len(rest))?,
        None => (&b""[..], rest),
    };
    Some((StatusLine { version, status, reason }, rest.strip_prefix(b"\r\n")?))
}

/// Splits field lines up to the empty line, and returns the length of the head with it.
#[inline]
fn split_fields<'b>(
    text: &mut Text<'b>,
    mut rest: &'b [u8],
    headers_max: usize,
    slots: &mut HeaderSlots<'b>,
) -> Result<usize, Unsplit> {
    slots.clear();
    loop {
        if let Some(body) = rest.strip_prefix(b"\r\n") {
            return Ok(text.window.len() - body.len());
        }
        let name_at = text.window.len() - rest.len();
        let (name, after_name) = rest.split_at_checked(token_len(rest)).ok_or(Unsplit::Elsewhere)?;
        if name.is_empty() || slots.len() >= headers_max {
            return Err(Unsplit::Elsewhere);
        }
        let Some(from_colon) = after_name.strip_prefix(b":") else {
            return Err(unsplit_before(after_name));
        };
        let from_value = without_blanks_before(from_colon);
        let (value, after_value) =
            from_value.split_at_checked(value_len(from_value)).ok_or(Unsplit::Elsewhere)?;
        let Some(next_line) = after_value.strip_prefix(b"\r\n") else {
            return Err(unsplit_before(after_value));
        };
        rest = next_line;
        let header = Header { name: text.part(name_at, name.len()), value: without_blanks_after(value) };
        slots.try_push(header).map_err(|_| Unsplit::Elsewhere)?;
    }
}

/// Classifies bytes that end before `rest`, which does not go on as a field line.
#[inline]
fn unsplit_before(rest: &[u8]) -> Unsplit {
    if rest.is_empty() { Unsplit::InField } else { Unsplit::Elsewhere }
}

#[inline]
fn without_blanks_before(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    bytes
}

#[inline]
fn without_blanks_after(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

#[inline]
fn split_version(bytes: &[u8]) -> Option<(Version, &[u8])> {
    let (found, rest) = bytes.split_first_chunk::<8>()?;
    match found {
        b"HTTP/1.1" => Some((Version::Http11, rest)),
        b"HTTP/1.0" => Some((Version::Http10, rest)),
        _ => None,
    }
}

#[inline]
fn split_status(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (found, rest) = bytes.split_first_chunk::<3>()?;
    let digits = found.map(|byte| u16::from(byte.wrapping_sub(b'0')));
    let is_number = digits.iter().all(|digit| *digit <= 9);
    is_number.then(|| (digits[0] * 100 + digits[1] * 10 + digits[2], rest))
}

/// Returns the number of bytes of the token at the start.
#[inline]
fn token_len(bytes: &[u8]) -> usize {
    let is_other = |byte: &u8| !IS_TOKEN[usize::from(*byte)];
    let mut rest = bytes;
    // A table takes least for the short names that most are; the length of a word lets the compiler unroll the loop.
    while let Some((word, after)) = rest.split_first_chunk::<WORD_BYTES>() {
        if let Some(index) = word.iter().position(is_other) {
            return bytes.len() - rest.len() + index;
        }
        rest = after;
    }
    bytes.len() - rest.len() + rest.iter().position(is_other).unwrap_or(rest.len())
}

/// Returns the number of bytes of the request target at the start.
#[inline]
fn target_len(bytes: &[u8]) -> usize {
    unmarked_len(bytes, Word::invalid_in_targets, is_target_byte)
}

/// Returns the number of bytes of the field value at the start, up to the end of its line.
#[inline(always)]
fn value_len(bytes: &[u8]) -> usize {
    let len = unmarked_len(bytes, Word::controls, is_field_value);
    if bytes.get(len) == Some(&b'\t') { value_with_tabs_len(bytes) } else { len }
}

#[cold]
fn value_with_tabs_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !is_field_value(*byte)).unwrap_or(bytes.len())
}

/// Returns the number of bytes before the first that is marked. For less than a word at the end of the window, it asks for
/// each byte alone.
#[inline(always)]
fn unmarked_len(bytes: &[u8], mask: impl Fn(Word) -> Mask, is_unmarked: impl Fn(u8) -> bool) -> usize {
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk::<WORD_BYTES>() {
        if let Some(index) = mask(Word::new(*word)).first() {
            return bytes.len() - rest.len() + index;
        }
        rest = after;
    }
    bytes.len() - rest.len() + rest.iter().position(|byte| !is_unmarked(*byte)).unwrap_or(rest.len())
}

/// Bytes of a token.
const IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = is_token(byte as u8);
        byte += 1;
    }
    table
};

/// Bytes of which parts that are ASCII are texts. Parts are asked for in their order.
struct Text<'b> {
    window: &'b [u8],
    /// Bytes from `checked_at` on as text, as far as they are UTF-8.
    checked: &'b str,
    checked_at: usize,
}

/// Number of bytes that are checked at once: about those of the head of a plain response, because a body may follow.
const CHECKED_BYTES: usize = 256;

impl<'b> Text<'b> {
    #[inline]
    fn new(window: &'b [u8]) -> Self {
        Self { window, checked: checked_start(window), checked_at: 0 }
    }

    /// Returns a part as text. Bytes are checked many at once, which takes less than each part alone.
    #[inline(always)]
    fn part(&mut self, at: usize, len: usize) -> &'b str {
        let start = at - self.checked_at;
        match self.checked.get(start..start + len) {
            Some(part) => part,
            None => self.check_from(at, len),
        }
    }

    #[inline(never)]
    fn check_from(&mut self, at: usize, len: usize) -> &'b str {
        let rest = self.window.get(at..).unwrap_or_default();
        (self.checked, self.checked_at) = (checked_start(rest), at);
        self.checked.get(..len).unwrap_or_else(|| valid_start(rest, len))
    }
}

#[inline]
fn checked_start(bytes: &[u8]) -> &str {
    let start = &bytes[..bytes.len().min(CHECKED_BYTES)];
    std::str::from_utf8(start).unwrap_or_else(|error| valid_start(start, error.valid_up_to()))
}

#[cold]
fn valid_start(bytes: &[u8], len: usize) -> &str {
    bytes.get(..len).and_then(|start| std::str::from_utf8(start).ok()).unwrap_or_default()
}
