//! A second reader of heads: slow, strict, byte by byte, independent of httparse.
//!
//! The fast path only learns *that* a head is wrong; this says *why*, for the counter and the
//! status. It decides at the first byte that is wrong and never looks ahead, so that a refusal is
//! the same however the bytes were cut. Tests and fuzz targets also hold it against the fast path:
//! what was accepted must have nothing to explain. It knows lines and bytes only; what fields mean
//! is in `fields`.

use super::refusal::RefusalKind;

/// Why the lines of a request head are wrong; `None` when they are right as far as they go.
pub(crate) fn explain_request(window: &[u8], headers_max: usize) -> Option<RefusalKind> {
    let mut cursor = Cursor { rest: window };
    first_offence(cursor.request_line().and_then(|()| cursor.field_lines(headers_max)))
}

/// Why the lines of a response head are wrong; `None` when they are right as far as they go.
pub(crate) fn explain_response(window: &[u8], headers_max: usize) -> Option<RefusalKind> {
    let mut cursor = Cursor { rest: window };
    first_offence(cursor.status_line().and_then(|()| cursor.field_lines(headers_max)))
}

/// Why one whole line of a trailer section, with its line end, is not a field line.
pub(super) fn explain_field_line(line: &[u8]) -> Option<RefusalKind> {
    let mut cursor = Cursor { rest: line };
    first_offence(cursor.field_line().map(|_| ()))
}

/// Whether the target is longer than allowed, as far as it is there.
pub(super) fn overlong_target(window: &[u8], target_bytes_max: usize) -> bool {
    if window.len() <= target_bytes_max {
        return false;
    }
    let method = window.iter().take_while(|&&byte| is_token(byte)).count();
    let Some((b' ', target)) = window[method..].split_first() else {
        return false;
    };
    let visible = target.iter().take_while(|byte| byte.is_ascii_graphic()).count();
    // Without a method it is wrong from its first byte, and refused for that alone.
    method > 0 && visible > target_bytes_max
}

/// Whether a byte may stand in a token: a method, a field name (RFC 9110 §5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a byte may stand in a field value: not a control, except HTAB (RFC 9110 §5.5).
pub(super) fn is_field_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Why reading stopped before the end of the head.
enum Stop {
    /// The bytes ended; nothing was wrong.
    End,
    Offence(RefusalKind),
}

type Step<T> = Result<T, Stop>;

fn first_offence(step: Step<()>) -> Option<RefusalKind> {
    match step {
        Ok(()) | Err(Stop::End) => None,
        Err(Stop::Offence(kind)) => Some(kind),
    }
}

struct Cursor<'b> {
    rest: &'b [u8],
}

impl Cursor<'_> {
    fn next(&mut self) -> Step<u8> {
        let (&byte, rest) = self.rest.split_first().ok_or(Stop::End)?;
        self.rest = rest;
        Ok(byte)
    }

    fn expect(&mut self, wanted: impl Fn(u8) -> bool, otherwise: RefusalKind) -> Step<u8> {
        let byte = self.next()?;
        if wanted(byte) { Ok(byte) } else { Err(Stop::Offence(otherwise)) }
    }

    /// Bytes of one kind, at least one, and the byte after them.
    fn run(&mut self, wanted: impl Fn(u8) -> bool, otherwise: RefusalKind) -> Step<u8> {
        self.expect(&wanted, otherwise)?;
        loop {
            let byte = self.next()?;
            if !wanted(byte) {
                return Ok(byte);
            }
        }
    }

    fn request_line(&mut self) -> Step<()> {
        use RefusalKind::{InvalidMethod, InvalidRequestLine, InvalidTarget};
        match self.run(is_token, InvalidMethod)? {
            b' ' => {}
            b'\r' | b'\n' => return Err(Stop::Offence(InvalidRequestLine)),
            _ => return Err(Stop::Offence(InvalidMethod)),
        }
        match self.run(|byte| byte.is_ascii_graphic(), InvalidTarget)? {
            b' ' => {}
            b'\r' | b'\n' => return Err(Stop::Offence(InvalidRequestLine)),
            _ => return Err(Stop::Offence(InvalidTarget)),
        }
        self.version()?;
        let byte = self.next()?;
        self.line_end(byte, InvalidRequestLine)
    }

    fn status_line(&mut self) -> Step<()> {
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

    /// `HTTP/1.0` or `HTTP/1.1`; another number in a right place is another version, anything else
    /// is none. A 0 is no start of a number: it is wrong before `HTTP/01.01` shows that it is.
    fn version(&mut self) -> Step<()> {
        for (at, &wanted) in b"HTTP/1.".iter().enumerate() {
            let byte = self.next()?;
            if byte != wanted {
                let other = at == 5 && matches!(byte, b'2'..=b'9');
                return Err(Stop::Offence(not_ours(other)));
            }
        }
        match self.next()? {
            b'0' | b'1' => Ok(()),
            byte => Err(Stop::Offence(not_ours(byte.is_ascii_digit()))),
        }
    }

    /// Field lines up to the empty one.
    fn field_lines(&mut self, headers_max: usize) -> Step<()> {
        let mut seen = 0;
        while self.field_line()? {
            seen += 1;
            if seen > headers_max {
                return Err(Stop::Offence(RefusalKind::TooManyFields));
            }
        }
        Ok(())
    }

    /// One field line, or the empty line, which is `false`.
    fn field_line(&mut self) -> Step<bool> {
        use RefusalKind::{
            EmptyFieldName, InvalidFieldName, InvalidFieldValue, ObsFold, SpaceInFieldName,
        };
        let mut byte = self.next()?;
        match byte {
            b'\r' | b'\n' => return self.line_end(byte, RefusalKind::BareCr).map(|()| false),
            b' ' | b'\t' => return Err(Stop::Offence(ObsFold)),
            b':' => return Err(Stop::Offence(EmptyFieldName)),
            _ => {}
        }
        while is_token(byte) {
            byte = self.next()?;
        }
        match byte {
            b':' => {}
            b' ' | b'\t' => return Err(Stop::Offence(SpaceInFieldName)),
            _ => return Err(Stop::Offence(InvalidFieldName)),
        }
        byte = self.next()?;
        while is_field_value(byte) {
            byte = self.next()?;
        }
        self.line_end(byte, InvalidFieldValue).map(|()| true)
    }

    /// The end of a line, of which `byte` was read already.
    fn line_end(&mut self, byte: u8, otherwise: RefusalKind) -> Step<()> {
        match byte {
            b'\r' => self.expect(|byte| byte == b'\n', RefusalKind::BareCr).map(|_| ()),
            b'\n' => Err(Stop::Offence(RefusalKind::BareLf)),
            _ => Err(Stop::Offence(otherwise)),
        }
    }
}

fn not_ours(another: bool) -> RefusalKind {
    if another { RefusalKind::UnsupportedVersion } else { RefusalKind::InvalidVersion }
}
