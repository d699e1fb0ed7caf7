//! Second parser of heads: slow, strict, byte by byte, independent of `lines`.
//!
//! The fast path only detects *that* a head is wrong; this determines *why*, for the counter and
//! the status. It decides at the first wrong byte and never looks ahead, so that a refusal does not
//! depend on how the bytes were cut. Tests and fuzz targets also compare it with the fast path: it
//! must find nothing wrong in an accepted head. It handles only lines and bytes; `fields`
//! interprets the fields.

use super::refusal::RefusalKind;

/// Returns the error in the lines of a request head; `None` if the present part is correct.
pub(crate) fn explain_request(window: &[u8], headers_max: usize) -> Option<RefusalKind> {
    let mut cursor = Cursor { rest: window };
    violation(cursor.request_line().and_then(|()| cursor.field_lines(headers_max)))
}

/// Returns the error in the lines of a response head; `None` if the present part is correct.
pub(crate) fn explain_response(window: &[u8], headers_max: usize) -> Option<RefusalKind> {
    let mut cursor = Cursor { rest: window };
    violation(cursor.status_line().and_then(|()| cursor.field_lines(headers_max)))
}

/// Returns the reason why one complete line of a trailer section, with its line end, is not a field
/// line.
pub(super) fn explain_field_line(line: &[u8]) -> Option<RefusalKind> {
    let mut cursor = Cursor { rest: line };
    violation(cursor.field_line().map(|_| ()))
}

/// Returns true if the present part of the target is longer than allowed.
pub(super) fn is_target_too_long(window: &[u8], target_bytes_max: usize) -> bool {
    if window.len() <= target_bytes_max {
        return false;
    }
    let method = window.iter().take_while(|&&byte| is_token(byte)).count();
    let Some((b' ', target)) = window[method..].split_first() else {
        return false;
    };
    let target_len = target.iter().take_while(|byte| is_target_byte(**byte)).count();
    // An empty method is wrong from its first byte, and refused for that alone.
    method > 0 && target_len > target_bytes_max
}

/// Returns true if a token may contain the byte: a method, a field name (RFC 9110 §5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Returns true if a request target may contain the byte: visible ASCII, except `#`, which starts a fragment that no
/// client sends (RFC 9112 §3.2).
pub(super) fn is_target_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'#'
}

/// Returns true if a field value may contain the byte: not a control, except HTAB (RFC 9110 §5.5).
pub(crate) fn is_field_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Reason why parsing stopped before the end of the head.
enum ParseStop {
    /// The bytes ended without an error.
    Incomplete,
    Violation(RefusalKind),
}

type ParseStep<T> = Result<T, ParseStop>;

fn violation(step: ParseStep<()>) -> Option<RefusalKind> {
    match step {
        Ok(()) | Err(ParseStop::Incomplete) => None,
        Err(ParseStop::Violation(kind)) => Some(kind),
    }
}

struct Cursor<'b> {
    rest: &'b [u8],
}

impl Cursor<'_> {
    fn next(&mut self) -> ParseStep<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or(ParseStop::Incomplete)?;
        self.rest = rest;
        Ok(byte)
    }

    fn expect(&mut self, is_expected: impl Fn(u8) -> bool, error: RefusalKind) -> ParseStep<u8> {
        let byte = self.next()?;
        if is_expected(byte) { Ok(byte) } else { Err(ParseStop::Violation(error)) }
    }

    /// Parses bytes of one kind, at least one, and the byte after them.
    fn skip_run(&mut self, is_expected: impl Fn(u8) -> bool, error: RefusalKind) -> ParseStep<u8> {
        self.expect(&is_expected, error)?;
        loop {
            let byte = self.next()?;
            if !is_expected(byte) {
                return Ok(byte);
            }
        }
    }

    fn request_line(&mut self) -> ParseStep<()> {
        use RefusalKind::{InvalidMethod, InvalidRequestLine, InvalidTarget};
        match self.skip_run(is_token, InvalidMethod)? {
            b' ' => {}
            b'\r' | b'\n' => return Err(ParseStop::Violation(InvalidRequestLine)),
            _ => return Err(ParseStop::Violation(InvalidMethod)),
        }
        match self.skip_run(is_target_byte, InvalidTarget)? {
            b' ' => {}
            b'\r' | b'\n' => return Err(ParseStop::Violation(InvalidRequestLine)),
            _ => return Err(ParseStop::Violation(InvalidTarget)),
        }
        self.version()?;
        let byte = self.next()?;
        self.line_end(byte, InvalidRequestLine)
    }

    fn status_line(&mut self) -> ParseStep<()> {
        use RefusalKind::InvalidStatusLine;
        self.version()?;
        self.expect(|byte| byte == b' ', InvalidStatusLine)?;
        for _ in 0..3 {
            self.expect(|byte| byte.is_ascii_digit(), InvalidStatusLine)?;
        }
        let mut byte = self.next()?;
        if byte == b' ' {
            byte = self.next()?;
            while is_field_value(byte) {
                byte = self.next()?;
            }
        }
        self.line_end(byte, InvalidStatusLine)
    }

    /// Parses `HTTP/1.0` or `HTTP/1.1`. Another number in the right position is another version;
    /// anything else is no version. A leading 0 is wrong at once, before `HTTP/01.01` is complete.
    fn version(&mut self) -> ParseStep<()> {
        for (at, &expected) in b"HTTP/1.".iter().enumerate() {
            let byte = self.next()?;
            if byte != expected {
                let is_other_version = at == 5 && matches!(byte, b'2'..=b'9');
                return Err(ParseStop::Violation(version_error(is_other_version)));
            }
        }
        match self.next()? {
            b'0' | b'1' => Ok(()),
            byte => Err(ParseStop::Violation(version_error(byte.is_ascii_digit()))),
        }
    }

    /// Parses field lines up to the empty one.
    fn field_lines(&mut self, headers_max: usize) -> ParseStep<()> {
        let mut count = 0;
        while self.field_line()? {
            count += 1;
            if count > headers_max {
                return Err(ParseStop::Violation(RefusalKind::TooManyFields));
            }
        }
        Ok(())
    }

    /// Parses one field line; returns false for the empty line.
    fn field_line(&mut self) -> ParseStep<bool> {
        use RefusalKind::{EmptyFieldName, InvalidFieldName, InvalidFieldValue, ObsFold, SpaceInFieldName};
        let mut byte = self.next()?;
        match byte {
            b'\r' | b'\n' => return self.line_end(byte, RefusalKind::BareCr).map(|()| false),
            b' ' | b'\t' => return Err(ParseStop::Violation(ObsFold)),
            b':' => return Err(ParseStop::Violation(EmptyFieldName)),
            _ => {}
        }
        while is_token(byte) {
            byte = self.next()?;
        }
        match byte {
            b':' => {}
            b' ' | b'\t' => return Err(ParseStop::Violation(SpaceInFieldName)),
            _ => return Err(ParseStop::Violation(InvalidFieldName)),
        }
        byte = self.next()?;
        while is_field_value(byte) {
            byte = self.next()?;
        }
        self.line_end(byte, InvalidFieldValue).map(|()| true)
    }

    /// Parses the end of a line, of which `byte` was already read.
    fn line_end(&mut self, byte: u8, error: RefusalKind) -> ParseStep<()> {
        match byte {
            b'\r' => self.expect(|byte| byte == b'\n', RefusalKind::BareCr).map(|_| ()),
            b'\n' => Err(ParseStop::Violation(RefusalKind::BareLf)),
            _ => Err(ParseStop::Violation(error)),
        }
    }
}

fn version_error(is_other_version: bool) -> RefusalKind {
    if is_other_version { RefusalKind::UnsupportedVersion } else { RefusalKind::InvalidVersion }
}
