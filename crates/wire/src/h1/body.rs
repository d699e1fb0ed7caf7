//! Body framing: content by length, by chunks, by the end of the connection, or none (RFC 9112 §6
//! and §7).
//!
//! The decoder returns the position of the content in the caller's bytes; it neither copies nor
//! keeps them. Only trailer lines are copied, since a line that arrived in pieces cannot be checked
//! otherwise.
//!
//! ```text
//! SizeStart --hex--> Size(n) --CR--> SizeLf(n) --LF, n > 0--> Data(n) --n bytes--> DataCr
//!     ^                                                                              | CR
//!     `------------------------------------ LF ----------------------------------- DataLf
//!
//! Size(n) ----hex----> Size(16 n + hex)
//! Size(n) ----';'----> Extension(n, ..) --CR--> SizeLf(n)  see `BodyState`
//! Size(n) --SP, HTAB-> SizeSpace(n) --';'-> Extension(n)  more SP and HTAB stay there
//!
//! SizeLf(0) --LF--> TrailerStart --CR--> EndLf --LF--> Done
//!                     ^   | other
//!                  LF |   v
//!                   TrailerLine                           other bytes stay there
//! ```
//! `Length(n)` leads to `Done` after n bytes, `UntilClose` at the end of the connection. Any other
//! byte leads to `Failed`, which is final.

use std::ops::Range;

use memchr::memchr;

use super::explain::{explain_field_line, is_field_value};
use super::extension::ExtensionState;
use super::head::Framing;
use super::limits::Limits;
use super::refusal::{Refusal, RefusalKind};

/// Result of one [`BodyDecoder::decode`] call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Number of input bytes that belong to this body; drop them before the next call. 0: all bytes
    /// were processed already.
    pub consumed: usize,
    /// Range of the content in the input; may be empty.
    pub data: Range<usize>,
    /// True if the body is over: the rest of the input is the next message.
    pub end: bool,
}

/// Result of [`BodyDecoder::skip`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// Number of input bytes that belong to this body: all of them, unless the body ended before.
    pub consumed: usize,
    pub data_bytes: u64,
    /// True if the body is over: the rest of the input is the next message.
    pub end: bool,
}

/// Finds the content of one body in bytes that arrive in pieces of any size.
///
/// An error is final: each further call returns it again.
#[derive(Debug)]
pub struct BodyDecoder {
    state: BodyState,
    /// Bytes of the chunk-size line so far.
    line_bytes: u32,
    /// Remaining limit of chunk extensions in this body, in bytes.
    extension_bytes_remaining: u32,
    line_bytes_max: u32,
    trailer_bytes_max: u32,
    trailer_lines_remaining: u32,
    /// Complete trailer lines, and a partial one while the state is `TrailerLine`. Without
    /// trailers, as in nearly all bodies, it allocates nothing.
    trailers: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// Number of remaining bytes; never 0.
    Length(u64),
    UntilClose,
    SizeStart,
    Size(u64),
    SizeSpace(u64),
    Extension(u64, ExtensionState),
    SizeLf(u64),
    /// Number of remaining bytes of this chunk; never 0.
    Data(u64),
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine,
    EndLf,
    Done,
    Failed(RefusalKind),
}

impl BodyDecoder {
    /// Creates a decoder for the body after a head with this framing. [`Framing::None`] and a
    /// length of 0 are done at once.
    #[must_use]
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => BodyState::Done,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::SizeStart,
            Framing::UntilClose => BodyState::UntilClose,
        };
        Self {
            state,
            line_bytes: 0,
            extension_bytes_remaining: saturate_u32(limits.chunk_extension_bytes_max),
            line_bytes_max: saturate_u32(limits.chunk_line_bytes_max),
            trailer_bytes_max: saturate_u32(limits.trailer_bytes_max),
            trailer_lines_remaining: saturate_u32(limits.headers_max),
            trailers: Vec::new(),
        }
    }

    /// Processes the input up to the end of the first piece of content, with the framing on both
    /// sides of it.
    ///
    /// Call again with the rest until `end`, or until the input is used up.
    ///
    /// # Errors
    /// A [`Refusal`] if the chunks are malformed or over a limit; earlier content of this input is
    /// lost.
    #[inline]
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Refusal> {
        match self.state {
            BodyState::Length(remaining) => {
                let consumed = min_usize(remaining, input.len());
                self.state = match remaining - consumed as u64 {
                    0 => BodyState::Done,
                    remaining => BodyState::Length(remaining),
                };
                Ok(Decoded { consumed, data: 0..consumed, end: self.is_done() })
            }
            BodyState::UntilClose => Ok(Decoded { consumed: input.len(), data: 0..input.len(), end: false }),
            BodyState::Done => Ok(Decoded { consumed: 0, data: 0..0, end: true }),
            _ => self.decode_chunked(input),
        }
    }

    /// Skips the complete input, for callers that only count. By length it takes constant time; by
    /// chunks the time of a few bytes per chunk.
    ///
    /// # Errors
    /// Those of [`BodyDecoder::decode`].
    #[inline]
    pub fn skip(&mut self, input: &[u8]) -> Result<Skipped, Refusal> {
        let mut skipped = Skipped { consumed: 0, data_bytes: 0, end: false };
        loop {
            let step = self.decode(&input[skipped.consumed..])?;
            skipped.consumed += step.consumed;
            skipped.data_bytes += step.data.len() as u64;
            skipped.end = step.end;
            if step.end || skipped.consumed == input.len() {
                return Ok(skipped);
            }
        }
    }

    /// Returns the number of remaining bytes of a body of known length; `None` if the length is
    /// unknown, or the body is over.
    #[inline]
    pub fn remaining_length(&self) -> Option<u64> {
        match self.state {
            BodyState::Length(remaining) => Some(remaining),
            _ => None,
        }
    }

    /// Returns true if the next byte is content, and not framing or the next message.
    #[inline]
    pub fn expects_content(&self) -> bool {
        matches!(self.state, BodyState::Length(_) | BodyState::UntilClose | BodyState::Data(_))
    }

    /// Records that `bytes` of a body of known length did not go through [`BodyDecoder::decode`].
    /// Returns true if the body is over with them. More than [`BodyDecoder::remaining_length`], or a
    /// body without length, is a bug of the caller, and panics in debug builds.
    #[inline]
    pub fn record_bypassed(&mut self, bytes: u64) -> bool {
        debug_assert!(self.remaining_length().is_some_and(|left| bytes <= left), "{bytes}");
        if let BodyState::Length(remaining) = self.state {
            let remaining = remaining.saturating_sub(bytes);
            self.state = if remaining == 0 { BodyState::Done } else { BodyState::Length(remaining) };
        }
        self.is_done()
    }

    #[inline]
    pub fn is_done(&self) -> bool {
        self.state == BodyState::Done
    }

    /// Handles the end of the connection: correct for [`Framing::UntilClose`] and after the end, an
    /// error anywhere else.
    ///
    /// # Errors
    /// [`RefusalKind::Truncated`]: the content is incomplete (RFC 9112 §8). An earlier refusal is
    /// returned again.
    pub fn handle_eof(&mut self) -> Result<(), Refusal> {
        match self.state {
            BodyState::Done | BodyState::UntilClose => {
                self.state = BodyState::Done;
                Ok(())
            }
            BodyState::Failed(kind) => Err(Refusal::from_client(kind)),
            _ => Err(self.fail(RefusalKind::Truncated)),
        }
    }

    /// Returns the trailer section after the end: its field lines as they were sent, each with its
    /// CRLF, without the last empty line. Empty if there were none, and before the end.
    ///
    /// The lines are well formed and name neither framing nor `Host`, but they are untrusted: never
    /// merge them into the fields of the head (RFC 9110 §6.5.1).
    pub fn trailers(&self) -> &[u8] {
        if self.is_done() { &self.trailers } else { &[] }
    }

    /// Keeps only the trailer lines whose field name `is_kept` accepts. Does nothing before the
    /// end.
    pub fn retain_trailers(&mut self, is_kept: impl Fn(&str) -> bool) {
        if !self.is_done() || self.trailers.is_empty() {
            return;
        }
        let mut retained = Vec::with_capacity(self.trailers.len());
        for line in self.trailers.split_inclusive(|&byte| byte == b'\n') {
            // The lines were checked: a name is a token, which is ASCII.
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            if std::str::from_utf8(name).is_ok_and(&is_kept) {
                retained.extend_from_slice(line);
            }
        }
        self.trailers = retained;
    }

    fn decode_chunked(&mut self, input: &[u8]) -> Result<Decoded, Refusal> {
        let mut offset = 0;
        let mut data = 0..0;
        while offset < input.len() {
            match self.state {
                BodyState::Done => break,
                BodyState::Data(_) if !data.is_empty() => break,
                BodyState::Data(remaining) => {
                    let consumed = min_usize(remaining, input.len() - offset);
                    data = offset..offset + consumed;
                    offset += consumed;
                    self.state = match remaining - consumed as u64 {
                        0 => BodyState::DataCr,
                        remaining => BodyState::Data(remaining),
                    };
                }
                // The same transitions as in `next`, for a complete line at once: this is the main
                // cost of a chunk.
                BodyState::SizeStart
                    if let Some((next, consumed)) = self.parse_size_line(&input[offset..]) =>
                {
                    self.state = next;
                    offset += consumed;
                }
                BodyState::DataCr if input[offset..].starts_with(b"\r\n") => {
                    self.state = BodyState::SizeStart;
                    offset += 2;
                }
                BodyState::TrailerStart if input[offset..].starts_with(b"\r\n") => {
                    self.state = BodyState::Done;
                    offset += 2;
                }
                BodyState::TrailerLine => {
                    offset += self.handle_trailer(&input[offset..]).map_err(|kind| self.fail(kind))?;
                }
                state => {
                    self.state = self.next(state, input[offset]).map_err(|kind| self.fail(kind))?;
                    // The first byte of a trailer line belongs to the line, which processes it
                    // again.
                    offset += usize::from(self.state != BodyState::TrailerLine);
                }
            }
        }
        if let BodyState::Failed(kind) = self.state {
            return Err(Refusal::from_client(kind));
        }
        Ok(Decoded { consumed: offset, data, end: self.is_done() })
    }

    /// Parses a complete size line without extensions and of at most eight digits; any other is
    /// parsed byte by byte.
    #[inline]
    fn parse_size_line(&self, input: &[u8]) -> Option<(BodyState, usize)> {
        let mut size = 0;
        for (at, &byte) in input.iter().enumerate().take(9) {
            if let Some(digit) = hex_digit(byte) {
                size = size << 4 | digit;
                continue;
            }
            let consumed = at + 2;
            let is_size_line = at > 0 && input[at..].starts_with(b"\r\n");
            return (is_size_line && consumed <= self.line_bytes_max as usize)
                .then_some((state_after_size(size), consumed));
        }
        None
    }

    /// Performs the transitions of the diagram that take one byte.
    #[inline]
    fn next(&mut self, state: BodyState, byte: u8) -> Result<BodyState, RefusalKind> {
        use RefusalKind::{BareCr, ChunkDataUnterminated};
        match state {
            BodyState::SizeStart => {
                self.line_bytes = 0;
                self.next_in_size_line(state, byte)
            }
            BodyState::Size(_)
            | BodyState::SizeSpace(_)
            | BodyState::Extension(..)
            | BodyState::SizeLf(_) => self.next_in_size_line(state, byte),
            BodyState::DataCr => expect_byte(byte, b'\r', BodyState::DataLf, ChunkDataUnterminated),
            BodyState::DataLf => expect_byte(byte, b'\n', BodyState::SizeStart, ChunkDataUnterminated),
            BodyState::TrailerStart if byte == b'\r' => Ok(BodyState::EndLf),
            BodyState::TrailerStart => Ok(BodyState::TrailerLine),
            BodyState::EndLf => expect_byte(byte, b'\n', BodyState::Done, BareCr),
            BodyState::Failed(kind) => Err(kind),
            // The callers have handled these states, which take many bytes at a time.
            BodyState::Length(_) | BodyState::UntilClose | BodyState::Data(_) | BodyState::TrailerLine => {
                Ok(state)
            }
            BodyState::Done => Ok(state),
        }
    }

    /// Performs the transitions of `next` that start within a chunk-size line.
    fn next_in_size_line(&mut self, state: BodyState, byte: u8) -> Result<BodyState, RefusalKind> {
        self.count_line_byte()?;
        match (state, byte) {
            (BodyState::Size(size), _) => state_after_digit(size, byte),
            (BodyState::SizeSpace(_), b' ' | b'\t') => Ok(state),
            (BodyState::SizeSpace(size), b';') => Ok(BodyState::Extension(size, ExtensionState::Start)),
            (BodyState::SizeSpace(_), _) => Err(RefusalKind::ChunkSizeInvalid),
            (BodyState::Extension(size, extension), _) => self.next_in_extension(size, extension, byte),
            (BodyState::SizeLf(size), _) => {
                expect_byte(byte, b'\n', state_after_size(size), RefusalKind::BareCr)
            }
            // The first byte of the line.
            _ => hex_digit(byte).map(BodyState::Size).ok_or(RefusalKind::ChunkSizeInvalid),
        }
    }

    fn next_in_extension(
        &mut self,
        size: u64,
        extension: ExtensionState,
        byte: u8,
    ) -> Result<BodyState, RefusalKind> {
        self.extension_bytes_remaining =
            self.extension_bytes_remaining.checked_sub(1).ok_or(RefusalKind::ChunkExtensionsTooLarge)?;
        match byte {
            b'\r' if extension.may_end() => Ok(BodyState::SizeLf(size)),
            b'\n' => Err(RefusalKind::BareLf),
            _ => (extension.next(byte).filter(|_| is_field_value(byte)))
                .map(|extension| BodyState::Extension(size, extension))
                .ok_or(RefusalKind::ChunkExtensionInvalid),
        }
    }

    #[inline]
    fn count_line_byte(&mut self) -> Result<(), RefusalKind> {
        self.line_bytes += 1;
        if self.line_bytes > self.line_bytes_max {
            return Err(RefusalKind::ChunkLineTooLong);
        }
        Ok(())
    }

    /// Takes the available part of a trailer line, and checks the line at its end.
    fn handle_trailer(&mut self, input: &[u8]) -> Result<usize, RefusalKind> {
        let line_end = memchr(b'\n', input);
        let consumed = line_end.map_or(input.len(), |at| at + 1);
        let space = self.trailer_bytes_max as usize - self.trailers.len();
        if consumed > space {
            return Err(RefusalKind::TrailersTooLarge);
        }
        self.trailers.extend_from_slice(&input[..consumed]);
        if line_end.is_some() {
            let lines = &self.trailers[..self.trailers.len() - 1];
            let start = lines.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            let is_kept = check_trailer(&self.trailers[start..])?;
            if !is_kept {
                self.trailers.truncate(start);
            }
            self.trailer_lines_remaining =
                self.trailer_lines_remaining.checked_sub(1).ok_or(RefusalKind::TrailersTooLarge)?;
            self.state = BodyState::TrailerStart;
        }
        Ok(consumed)
    }

    #[cold]
    fn fail(&mut self, kind: RefusalKind) -> Refusal {
        self.state = BodyState::Failed(kind);
        self.trailers = Vec::new();
        Refusal::from_client(kind)
    }
}

/// Checks one complete line, with its line end. Returns whether the field is kept: a `Content-Length` is too late
/// to have a meaning, and some clients send it (RFC 9110 §6.5.1).
fn check_trailer(line: &[u8]) -> Result<bool, RefusalKind> {
    match explain_field_line(line) {
        None => {}
        Some(kind @ (RefusalKind::BareLf | RefusalKind::BareCr)) => return Err(kind),
        Some(_) => return Err(RefusalKind::TrailerInvalid),
    }
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let forbidden: [&[u8]; 2] = [b"transfer-encoding", b"host"];
    if forbidden.iter().any(|other| name.eq_ignore_ascii_case(other)) {
        return Err(RefusalKind::TrailerForbidden);
    }
    Ok(!name.eq_ignore_ascii_case(b"content-length"))
}

/// Returns the state after at least one digit of a size and `byte`.
#[inline]
fn state_after_digit(size: u64, byte: u8) -> Result<BodyState, RefusalKind> {
    match (hex_digit(byte), byte) {
        (Some(_), _) if size > u64::MAX >> 4 => Err(RefusalKind::ChunkSizeOverflow),
        (Some(digit), _) => Ok(BodyState::Size(size << 4 | digit)),
        (None, b'\r') => Ok(BodyState::SizeLf(size)),
        (None, b';') => Ok(BodyState::Extension(size, ExtensionState::Start)),
        (None, b' ' | b'\t') => Ok(BodyState::SizeSpace(size)),
        (None, b'\n') => Err(RefusalKind::BareLf),
        _ => Err(RefusalKind::ChunkSizeInvalid),
    }
}

/// Returns the state after a size line: size 0 ends the chunks.
#[inline]
fn state_after_size(size: u64) -> BodyState {
    if size == 0 { BodyState::TrailerStart } else { BodyState::Data(size) }
}

#[inline]
fn hex_digit(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'f' => Some(u64::from(byte - b'a') + 10),
        b'A'..=b'F' => Some(u64::from(byte - b'A') + 10),
        _ => None,
    }
}

#[inline]
fn expect_byte(
    byte: u8,
    expected: u8,
    next: BodyState,
    error: RefusalKind,
) -> Result<BodyState, RefusalKind> {
    if byte == expected { Ok(next) } else { Err(error) }
}

/// Returns the smaller of a length on the wire and one in memory, which fits the latter.
#[inline]
fn min_usize(wire: u64, memory: usize) -> usize {
    usize::try_from(wire).map_or(memory, |wire| wire.min(memory))
}

/// Converts a limit to 32 bits, so that a decoder stays small.
fn saturate_u32(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}
