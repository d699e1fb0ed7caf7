//! Where a body ends: content by length, by chunks, by the end of the connection, or none (RFC 9112
//! §6 and §7).
//!
//! The decoder says which of the caller's bytes are content; it neither copies nor keeps them. Only
//! trailer lines are copied, since there is no other way to look at a line that arrived in pieces.
//!
//! ```text
//! SizeStart --hex--> Size(n) --CR--> SizeLf(n) --LF, n > 0--> Data(n) --n bytes--> DataCr
//!     ^                                                                              | CR
//!     `------------------------------------ LF ----------------------------------- DataLf
//!
//! Size(n) ----hex----> Size(16 n + hex)
//! Size(n) ----';'----> Extension(n, ..) --CR--> SizeLf(n)  see `Place` for what stays there
//! Size(n) --SP, HTAB-> SizeSpace(n) --';'-> Extension(n)  more SP and HTAB stay there
//!
//! SizeLf(0) --LF--> TrailerStart --CR--> EndLf --LF--> Done
//!                     ^   | other
//!                  LF |   v
//!                   TrailerLine                           other bytes stay there
//! ```
//! `Length(n)` leads to `Done` after n bytes, `UntilClose` at the end of the connection. Anything not
//! drawn leads to `Failed`, which stays.

use std::ops::Range;

use memchr::memchr;

use super::explain::{explain_field_line, is_field_value};
use super::extension::Place;
use super::head::Framing;
use super::limits::Limits;
use super::refusal::{Refusal, RefusalKind};

/// One step of [`BodyDecoder::decode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that belong to this body; drop them before the next call. 0: all was
    /// looked at already.
    pub consumed: usize,
    /// Where in the input the content is; may be empty.
    pub data: Range<usize>,
    /// Whether the body is over: the rest of the input is the next message.
    pub end: bool,
}

/// What [`BodyDecoder::skip`] passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// Bytes of the input that belong to this body: all of it, unless the body ended before.
    pub consumed: usize,
    /// Bytes of content among them.
    pub data_bytes: u64,
    /// Whether the body is over: the rest of the input is the next message.
    pub end: bool,
}

/// Finds the content of one body in bytes that arrive in pieces of any size.
///
/// An error is final: each further call returns it again.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of the chunk-size line so far.
    line_bytes: u32,
    /// Bytes of chunk extensions that this body may still have.
    extension_bytes_left: u32,
    line_bytes_max: u32,
    trailer_bytes_max: u32,
    trailer_lines_left: u32,
    /// Whole trailer lines, and one in the making while the state is `TrailerLine`. Empty bodies of
    /// trailers, which is nearly all of them, allocate nothing.
    trailers: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes are still to come; never 0.
    Length(u64),
    UntilClose,
    SizeStart,
    Size(u64),
    SizeSpace(u64),
    Extension(u64, Place),
    SizeLf(u64),
    /// So many bytes of this chunk are still to come; never 0.
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
    /// A decoder for the body after a head with this framing. [`Framing::None`] and a length of 0
    /// are done at once.
    #[must_use]
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::SizeStart,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            line_bytes: 0,
            extension_bytes_left: saturated(limits.chunk_extension_bytes_max),
            line_bytes_max: saturated(limits.chunk_line_bytes_max),
            trailer_bytes_max: saturated(limits.trailer_bytes_max),
            trailer_lines_left: saturated(limits.headers_max),
            trailers: Vec::new(),
        }
    }

    /// Looks at the input up to the end of the first piece of content in it, and at the framing on
    /// both sides of that.
    ///
    /// Call again with the rest until `end`, or until nothing is left of the input.
    ///
    /// # Errors
    /// A [`Refusal`] when the chunks are malformed or over a limit; content of this input that came
    /// before is lost.
    #[inline]
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Refusal> {
        match self.state {
            State::Length(left) => {
                let taken = min(left, input.len());
                self.state = match left - taken as u64 {
                    0 => State::Done,
                    left => State::Length(left),
                };
                Ok(Decoded { consumed: taken, data: 0..taken, end: self.is_done() })
            }
            State::UntilClose => {
                Ok(Decoded { consumed: input.len(), data: 0..input.len(), end: false })
            }
            State::Done => Ok(Decoded { consumed: 0, data: 0..0, end: true }),
            _ => self.decode_chunked(input),
        }
    }

    /// Passes over the whole input, for who only counts. By length it takes constant time, by
    /// chunks that of a few bytes a chunk.
    ///
    /// # Errors
    /// As [`BodyDecoder::decode`].
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

    /// How many bytes of a body of known length are still to come; `None` when no length is known,
    /// or the body is over.
    #[inline]
    #[must_use]
    pub fn length_left(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Notes that `bytes` of a body of known length went another way than through
    /// [`BodyDecoder::decode`]; whether the body is over with them. More than
    /// [`BodyDecoder::length_left`], or of another body, is a bug of the caller, and panics in debug
    /// builds.
    #[inline]
    pub fn pass(&mut self, bytes: u64) -> bool {
        debug_assert!(self.length_left().is_some_and(|left| bytes <= left), "{bytes}");
        if let State::Length(left) = self.state {
            let left = left.saturating_sub(bytes);
            self.state = if left == 0 { State::Done } else { State::Length(left) };
        }
        self.is_done()
    }

    /// Whether the body is over.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The connection ended: right for [`Framing::UntilClose`] and after the end, wrong anywhere
    /// else.
    ///
    /// # Errors
    /// [`RefusalKind::Truncated`]: the content is not whole (RFC 9112 §8). An earlier refusal is
    /// returned again.
    pub fn handle_eof(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Done | State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(kind) => Err(Refusal::of_client(kind)),
            _ => Err(self.fail(RefusalKind::Truncated)),
        }
    }

    /// The trailer section after the end: its field lines as they were sent, each with its CRLF,
    /// without the last empty line. Empty when there were none, and before the end.
    ///
    /// They are well formed and name neither framing nor `Host`, but they are still a stranger's:
    /// never merge them into the fields of the head (RFC 9110 §6.5.1).
    #[must_use]
    pub fn trailers(&self) -> &[u8] {
        if self.is_done() { &self.trailers } else { &[] }
    }

    /// Keeps only the trailer lines whose field name `keeps` accepts. Nothing before the end.
    pub fn retain_trailers(&mut self, keeps: impl Fn(&str) -> bool) {
        if !self.is_done() || self.trailers.is_empty() {
            return;
        }
        let mut kept = Vec::with_capacity(self.trailers.len());
        for line in self.trailers.split_inclusive(|&byte| byte == b'\n') {
            // The lines were checked: a name is a token, which is ASCII.
            let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
            if std::str::from_utf8(name).is_ok_and(&keeps) {
                kept.extend_from_slice(line);
            }
        }
        self.trailers = kept;
    }

    fn decode_chunked(&mut self, input: &[u8]) -> Result<Decoded, Refusal> {
        let mut at = 0;
        let mut data = 0..0;
        while at < input.len() {
            match self.state {
                State::Done => break,
                State::Data(_) if !data.is_empty() => break,
                State::Data(left) => {
                    let taken = min(left, input.len() - at);
                    data = at..at + taken;
                    at += taken;
                    self.state = match left - taken as u64 {
                        0 => State::DataCr,
                        left => State::Data(left),
                    };
                }
                // The same arrows as in `next`, all of a line at once: this is what a chunk costs.
                State::SizeStart if let Some((next, taken)) = self.size_line(&input[at..]) => {
                    self.state = next;
                    at += taken;
                }
                State::DataCr if input[at..].starts_with(b"\r\n") => {
                    self.state = State::SizeStart;
                    at += 2;
                }
                State::TrailerStart if input[at..].starts_with(b"\r\n") => {
                    self.state = State::Done;
                    at += 2;
                }
                State::TrailerLine => {
                    at += self.handle_trailer(&input[at..]).map_err(|kind| self.fail(kind))?;
                }
                state => {
                    self.state = self.next(state, input[at]).map_err(|kind| self.fail(kind))?;
                    // The first byte of a trailer line belongs to the line: it is looked at again
                    // there.
                    at += usize::from(self.state != State::TrailerLine);
                }
            }
        }
        if let State::Failed(kind) = self.state {
            return Err(Refusal::of_client(kind));
        }
        Ok(Decoded { consumed: at, data, end: self.is_done() })
    }

    /// A whole size line without extensions and of at most eight digits; any other goes byte by
    /// byte.
    #[inline]
    fn size_line(&self, input: &[u8]) -> Option<(State, usize)> {
        let mut size = 0;
        for (at, &byte) in input.iter().enumerate().take(9) {
            if let Some(digit) = hex(byte) {
                size = size << 4 | digit;
                continue;
            }
            let taken = at + 2;
            let whole = at > 0 && input[at..].starts_with(b"\r\n");
            return (whole && taken <= self.line_bytes_max as usize)
                .then_some((after_size(size), taken));
        }
        None
    }

    /// The arrows of the diagram that take one byte.
    #[inline]
    fn next(&mut self, state: State, byte: u8) -> Result<State, RefusalKind> {
        use RefusalKind::{BareCr, ChunkDataUnterminated};
        match state {
            State::SizeStart => {
                self.line_bytes = 0;
                self.next_in_size_line(state, byte)
            }
            State::Size(_) | State::SizeSpace(_) | State::Extension(..) | State::SizeLf(_) => {
                self.next_in_size_line(state, byte)
            }
            State::DataCr => expect(byte, b'\r', State::DataLf, ChunkDataUnterminated),
            State::DataLf => expect(byte, b'\n', State::SizeStart, ChunkDataUnterminated),
            State::TrailerStart if byte == b'\r' => Ok(State::EndLf),
            State::TrailerStart => Ok(State::TrailerLine),
            State::EndLf => expect(byte, b'\n', State::Done, BareCr),
            State::Failed(kind) => Err(kind),
            // Those that take many bytes at a time, which the callers have handled.
            State::Length(_) | State::UntilClose | State::Data(_) | State::TrailerLine => Ok(state),
            State::Done => Ok(state),
        }
    }

    /// The arrows of `next` that start within the line of a chunk size.
    fn next_in_size_line(&mut self, state: State, byte: u8) -> Result<State, RefusalKind> {
        self.count_line_byte()?;
        match (state, byte) {
            (State::Size(size), _) => after_digit(size, byte),
            (State::SizeSpace(_), b' ' | b'\t') => Ok(state),
            (State::SizeSpace(size), b';') => Ok(State::Extension(size, Place::Start)),
            (State::SizeSpace(_), _) => Err(RefusalKind::ChunkSizeInvalid),
            (State::Extension(size, place), _) => self.next_in_extension(size, place, byte),
            (State::SizeLf(size), _) => expect(byte, b'\n', after_size(size), RefusalKind::BareCr),
            // The first byte of the line.
            _ => hex(byte).map(State::Size).ok_or(RefusalKind::ChunkSizeInvalid),
        }
    }

    fn next_in_extension(
        &mut self,
        size: u64,
        place: Place,
        byte: u8,
    ) -> Result<State, RefusalKind> {
        self.extension_bytes_left =
            self.extension_bytes_left.checked_sub(1).ok_or(RefusalKind::ChunkExtensionsTooLarge)?;
        match byte {
            b'\r' if place.may_end() => Ok(State::SizeLf(size)),
            b'\n' => Err(RefusalKind::BareLf),
            _ => (place.next(byte).filter(|_| is_field_value(byte)))
                .map(|place| State::Extension(size, place))
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

    /// Takes as much of a trailer line as there is, and checks the line at its end.
    fn handle_trailer(&mut self, input: &[u8]) -> Result<usize, RefusalKind> {
        let found = memchr(b'\n', input);
        let taken = found.map_or(input.len(), |at| at + 1);
        let room = self.trailer_bytes_max as usize - self.trailers.len();
        if taken > room {
            return Err(RefusalKind::TrailersTooLarge);
        }
        self.trailers.extend_from_slice(&input[..taken]);
        if found.is_some() {
            let whole = &self.trailers[..self.trailers.len() - 1];
            let start = whole.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            check_trailer(&self.trailers[start..])?;
            self.trailer_lines_left =
                self.trailer_lines_left.checked_sub(1).ok_or(RefusalKind::TrailersTooLarge)?;
            self.state = State::TrailerStart;
        }
        Ok(taken)
    }

    #[cold]
    fn fail(&mut self, kind: RefusalKind) -> Refusal {
        self.state = State::Failed(kind);
        self.trailers = Vec::new();
        Refusal::of_client(kind)
    }
}

/// One whole line, with its line end.
fn check_trailer(line: &[u8]) -> Result<(), RefusalKind> {
    match explain_field_line(line) {
        None => {}
        Some(kind @ (RefusalKind::BareLf | RefusalKind::BareCr)) => return Err(kind),
        Some(_) => return Err(RefusalKind::TrailerInvalid),
    }
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
    let forbidden: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
    if forbidden.iter().any(|other| name.eq_ignore_ascii_case(other)) {
        return Err(RefusalKind::TrailerForbidden);
    }
    Ok(())
}

/// Where a byte after at least one digit of a size leads.
#[inline]
fn after_digit(size: u64, byte: u8) -> Result<State, RefusalKind> {
    match (hex(byte), byte) {
        (Some(_), _) if size > u64::MAX >> 4 => Err(RefusalKind::ChunkSizeOverflow),
        (Some(digit), _) => Ok(State::Size(size << 4 | digit)),
        (None, b'\r') => Ok(State::SizeLf(size)),
        (None, b';') => Ok(State::Extension(size, Place::Start)),
        (None, b' ' | b'\t') => Ok(State::SizeSpace(size)),
        (None, b'\n') => Err(RefusalKind::BareLf),
        _ => Err(RefusalKind::ChunkSizeInvalid),
    }
}

/// Where a size line leads: size 0 ends the chunks.
#[inline]
fn after_size(size: u64) -> State {
    if size == 0 { State::TrailerStart } else { State::Data(size) }
}

#[inline]
fn hex(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'f' => Some(u64::from(byte - b'a') + 10),
        b'A'..=b'F' => Some(u64::from(byte - b'A') + 10),
        _ => None,
    }
}

#[inline]
fn expect(byte: u8, wanted: u8, next: State, otherwise: RefusalKind) -> Result<State, RefusalKind> {
    if byte == wanted { Ok(next) } else { Err(otherwise) }
}

/// The smaller of a length on the wire and one in memory, which fits the latter.
#[inline]
fn min(wire: u64, memory: usize) -> usize {
    usize::try_from(wire).map_or(memory, |wire| wire.min(memory))
}

/// A limit as 32 bits, so that a decoder stays small.
fn saturated(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}
