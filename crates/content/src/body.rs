//! Content of a response from files: pieces in memory, ranges of files, texts between them, and the
//! coded form of a file. Read a slice at a time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;

use crate::compress::Encoder;
use crate::memory_budget::MemoryPermit;
use crate::open_file::OpenFile;
use crate::ranges::ByteRange;

/// Maximum number of bytes that are read from a file at a time. If they are not in the page cache, the core
/// waits for no more than this.
pub const SLICE_BYTES: usize = 64 * 1024;
/// Maximum number of bytes that are encoded at a time.
const ENCODED_SLICE_BYTES: usize = 32 * 1024;

/// Content that is still to be sent.
#[derive(Debug, Default)]
pub struct FileBody {
    pieces: VecDeque<Piece>,
    /// Bytes that were read or encoded, and the number of those that were sent.
    buffer: Vec<u8>,
    buffer_sent: usize,
    encoder: Option<Box<PermittedEncoder>>,
    /// Part of a budget that the pieces hold.
    _permit: Option<MemoryPermit>,
    /// Number of unsent bytes, if the content is not encoded.
    remaining: u64,
    sent: u64,
}

/// An encoder with its part of the core's budget.
#[derive(Debug)]
struct PermittedEncoder {
    encoder: Encoder,
    /// Returned to the budget together with the memory of the encoder.
    _permit: MemoryPermit,
}

#[derive(Debug)]
enum Piece {
    Memory { content: Arc<[u8]>, start: usize, end: usize },
    Text { text: Vec<u8>, sent: usize },
    File { file: Rc<OpenFile>, range: ByteRange },
}

/// State of the content after [`FileBody::prepare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// [`FileBody::ready`] has bytes.
    Ready,
    /// The encoder has taken a slice and returned nothing yet.
    Again,
    /// Everything was sent.
    End,
}

impl FileBody {
    pub fn from_memory(content: Arc<[u8]>) -> Self {
        let mut body = Self::default();
        let end = content.len();
        body.push(Piece::Memory { content, start: 0, end }, end as u64);
        body
    }

    pub fn from_text(text: Vec<u8>) -> Self {
        let mut body = Self::default();
        body.push_text(text);
        body
    }

    /// A text that holds a part of a budget.
    pub(crate) fn from_permitted_text(text: Vec<u8>, permit: MemoryPermit) -> Self {
        Self { _permit: Some(permit), ..Self::from_text(text) }
    }

    pub(crate) fn encoded(file: &Rc<OpenFile>, encoder: Encoder, permit: MemoryPermit) -> Self {
        let mut body = Self::default();
        body.push_range(file, ByteRange { start: 0, end: file.size() });
        body.encoder = Some(Box::new(PermittedEncoder { encoder, _permit: permit }));
        body
    }

    pub(crate) fn push_range(&mut self, file: &Rc<OpenFile>, range: ByteRange) {
        let piece = match file.memory() {
            // The range is within the content.
            Some(content) => Piece::Memory {
                content: Arc::clone(content),
                start: range.start as usize,
                end: range.end as usize,
            },
            None => Piece::File { file: Rc::clone(file), range },
        };
        self.push(piece, range.len());
    }

    pub(crate) fn push_text(&mut self, text: Vec<u8>) {
        let length = text.len() as u64;
        self.push(Piece::Text { text, sent: 0 }, length);
    }

    fn push(&mut self, piece: Piece, length: u64) {
        if length > 0 {
            self.remaining += length;
            self.pieces.push_back(piece);
        }
    }

    /// Returns the number of unsent bytes; `None` if only the encoder will know it.
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        self.encoder.is_none().then_some(self.remaining)
    }

    /// Returns the complete content if it is one piece in memory, or nothing.
    #[inline]
    pub fn in_memory(&self) -> Option<&[u8]> {
        if self.encoder.is_some() || self.pieces.len() > 1 {
            return None;
        }
        match self.pieces.front() {
            None => Some(b""),
            Some(Piece::Memory { content, start, end }) => Some(&content[*start..*end]),
            Some(Piece::Text { text, sent }) => Some(&text[*sent..]),
            Some(Piece::File { .. }) => None,
        }
    }

    #[inline]
    pub fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Returns whether everything was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.encoder.is_none() && self.pieces.is_empty() && self.buffer_sent == self.buffer.len()
    }

    /// Returns the bytes that can be sent now.
    #[inline]
    pub fn ready(&self) -> &[u8] {
        if self.buffer_sent < self.buffer.len() {
            return &self.buffer[self.buffer_sent..];
        }
        match self.pieces.front() {
            _ if self.encoder.is_some() => b"",
            Some(Piece::Memory { content, start, end }) => &content[*start..*end],
            Some(Piece::Text { text, sent }) => &text[*sent..],
            Some(Piece::File { .. }) | None => b"",
        }
    }

    /// Returns whether nothing follows [`FileBody::ready`].
    #[inline]
    pub fn is_last(&self) -> bool {
        let has_buffered = self.buffer_sent < self.buffer.len();
        self.encoder.is_none() && self.pieces.len() <= usize::from(!has_buffered)
    }

    /// Returns whether [`FileBody::prepare`] will encode a slice, which takes about a millisecond.
    #[inline]
    pub fn is_encoding_next(&self) -> bool {
        self.encoder.is_some() && self.ready().is_empty()
    }

    /// Reads or encodes the next slice if nothing is ready.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn prepare(&mut self) -> io::Result<Prepared> {
        if !self.ready().is_empty() {
            return Ok(Prepared::Ready);
        }
        self.buffer.clear();
        self.buffer_sent = 0;
        if self.encoder.is_some() {
            self.encode_slice()?;
            return Ok(match (self.buffer.is_empty(), &self.encoder) {
                (false, _) => Prepared::Ready,
                (true, Some(_)) => Prepared::Again,
                (true, None) => Prepared::End,
            });
        }
        let Some(Piece::File { file, range }) = self.pieces.front_mut() else { return Ok(Prepared::End) };
        let length = range.len().min(SLICE_BYTES as u64) as usize;
        file.append_to(range.start, length, &mut self.buffer)?;
        range.start += length as u64;
        if range.is_empty() {
            self.pieces.pop_front();
        }
        Ok(Prepared::Ready)
    }

    /// Encodes the next slice into the buffer.
    fn encode_slice(&mut self) -> io::Result<()> {
        let Some(permitted) = &mut self.encoder else { return Ok(()) };
        let encoder = &mut permitted.encoder;
        let is_done = match self.pieces.front_mut() {
            None => true,
            Some(Piece::Memory { content, start, end }) => {
                let length = (*end - *start).min(ENCODED_SLICE_BYTES);
                encoder.write(&content[*start..*start + length])?;
                *start += length;
                start == end
            }
            Some(Piece::Text { text, sent }) => {
                encoder.write(&text[*sent..])?;
                *sent = text.len();
                true
            }
            Some(Piece::File { file, range }) => {
                let length = range.len().min(ENCODED_SLICE_BYTES as u64) as usize;
                file.append_to(range.start, length, &mut self.buffer)?;
                encoder.write(&self.buffer)?;
                self.buffer.clear();
                range.start += length as u64;
                range.is_empty()
            }
        };
        encoder.take_output(&mut self.buffer);
        if is_done {
            self.pieces.pop_front();
        }
        if self.pieces.is_empty()
            && let Some(permitted) = self.encoder.take()
        {
            permitted.encoder.finish(&mut self.buffer)?;
            self.remaining = self.buffer.len() as u64;
        }
        Ok(())
    }

    /// Removes sent bytes from the front of [`FileBody::ready`].
    #[inline]
    pub fn advance(&mut self, sent: usize) {
        if sent == 0 {
            return;
        }
        self.remaining = self.remaining.saturating_sub(sent as u64);
        self.sent += sent as u64;
        if self.buffer_sent < self.buffer.len() {
            self.buffer_sent += sent;
            return;
        }
        let is_done = match self.pieces.front_mut() {
            Some(Piece::Memory { start, end, .. }) => {
                *start += sent;
                start == end
            }
            Some(Piece::Text { text, sent: total }) => {
                *total += sent;
                *total == text.len()
            }
            Some(Piece::File { .. }) | None => false,
        };
        if is_done {
            self.pieces.pop_front();
        }
    }

    /// Returns the next range of a file that the kernel can send itself, if that is next.
    #[inline]
    pub fn file_range(&self) -> Option<(BorrowedFd<'_>, ByteRange)> {
        if self.encoder.is_some() || self.buffer_sent < self.buffer.len() {
            return None;
        }
        match self.pieces.front() {
            Some(Piece::File { file, range }) => Some((file.descriptor()?, *range)),
            _ => None,
        }
    }

    /// Returns whether the next bytes are in a file that must be read.
    #[inline]
    pub fn is_reading_next(&self) -> bool {
        self.file_range().is_some()
    }

    /// Reads the next bytes of a file, at most `bytes_max`, as the content of `slice`, and counts them as sent.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn read_range(&mut self, bytes_max: usize, slice: &mut Vec<u8>) -> io::Result<()> {
        slice.clear();
        let Some(Piece::File { file, range }) = self.pieces.front() else { return Ok(()) };
        let length = range.len().min(bytes_max as u64);
        file.append_to(range.start, length as usize, slice)?;
        self.advance_range(length);
        Ok(())
    }

    /// Releases the memory of bytes that were sent, for a stream that waits.
    pub fn release_memory(&mut self) {
        if self.buffer_sent == self.buffer.len() && self.buffer.capacity() > 0 {
            self.buffer = Vec::new();
            self.buffer_sent = 0;
        }
    }

    /// Removes bytes from the front of [`FileBody::file_range`], which the kernel has sent.
    #[inline]
    pub fn advance_range(&mut self, sent: u64) {
        let Some(Piece::File { range, .. }) = self.pieces.front_mut() else { return };
        range.start += sent;
        self.remaining = self.remaining.saturating_sub(sent);
        self.sent += sent;
        if range.is_empty() {
            self.pieces.pop_front();
        }
    }
}
