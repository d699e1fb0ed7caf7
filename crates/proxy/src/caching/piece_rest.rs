//! The unsent pieces of a stored body: several of them go to the client in one write, without a copy.

use std::ops::Deref;
use std::os::fd::BorrowedFd;

use cache::{BodyReader, Chunk};

use crate::relay::PIECES_MAX;

/// Number of unsent bytes from which no further piece is read.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;

/// Unsent pieces of a body.
#[derive(Debug, Default)]
pub(crate) struct PieceRest {
    pieces: [Option<Chunk>; PIECES_MAX],
    count: usize,
    /// Bytes of the first piece that were taken already.
    start: usize,
    bytes: usize,
}

/// A part of a piece of a body.
pub(crate) struct PiecePart {
    piece: Option<Chunk>,
    start: usize,
    end: usize,
}

impl PieceRest {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a piece, if there is room for one.
    pub(crate) fn push(&mut self, piece: Chunk) {
        if let Some(slot) = self.pieces.get_mut(self.count)
            && !piece.is_empty()
        {
            self.bytes += piece.len();
            *slot = Some(piece);
            self.count += 1;
        }
    }

    /// Adds pieces that can be read without waiting.
    pub(crate) fn read_more(&mut self, reader: &mut BodyReader) {
        while self.count < PIECES_MAX
            && self.bytes < READ_BYTES_MAX
            && let Some(piece) = reader.next_present()
        {
            self.push(piece);
        }
    }

    /// Takes the next bytes of one piece, at most `bytes_max`.
    pub(crate) fn take(&mut self, bytes_max: usize) -> PiecePart {
        let piece = self.pieces[0].clone();
        let start = self.start;
        let end = piece.as_ref().map_or(0, |piece| piece.len()).min(start.saturating_add(bytes_max));
        self.advance(end.saturating_sub(start));
        PiecePart { piece, start, end }
    }

    /// Returns the next bytes, at most `bytes_max`, piece by piece.
    pub(crate) fn parts(&self, bytes_max: usize) -> impl Iterator<Item = &[u8]> {
        let (mut start, mut left) = (self.start, bytes_max);
        self.pieces[..self.count].iter().flatten().map_while(move |piece| {
            let part = &piece[std::mem::take(&mut start)..];
            let part = &part[..part.len().min(left)];
            left -= part.len();
            (!part.is_empty()).then_some(part)
        })
    }

    /// Returns the file that has the next bytes, the offset of the first one, and their number. `None`: they are in memory
    /// alone.
    pub(crate) fn file_range(&self) -> Option<(BorrowedFd<'_>, u64, usize)> {
        let piece = self.pieces[0].as_ref()?;
        let (file, offset) = piece.file_offset()?;
        Some((file, offset + self.start as u64, piece.len() - self.start))
    }

    /// Drops bytes from the front.
    pub(crate) fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.start += bytes;
        let is_taken =
            |piece: &Option<Chunk>, start| piece.as_ref().is_some_and(|piece| piece.len() <= start);
        while is_taken(&self.pieces[0], self.start) {
            self.start -= self.pieces[0].take().map_or(0, |piece| piece.len());
            self.pieces[..self.count].rotate_left(1);
            self.count -= 1;
        }
    }
}

impl Deref for PiecePart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.piece.as_ref().map_or(&[], |piece| &piece[self.start..self.end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_taken_in_parts() {
        let mut rest = PieceRest::default();
        assert!(rest.is_empty() && rest.take(10).is_empty());
        rest.push(Chunk::from(&b"abcde"[..]));
        assert_eq!((&*rest.take(2), &*rest.take(2)), (&b"ab"[..], &b"cd"[..]));
        assert!(!rest.is_empty());
        assert_eq!(&*rest.take(usize::MAX), b"e");
        assert!(rest.is_empty());
    }

    #[test]
    fn parts_of_several_pieces_are_sent_at_once() {
        let mut rest = PieceRest::default();
        for text in ["abc", "", "def", "gh"] {
            rest.push(Chunk::from(text.as_bytes()));
        }
        assert_eq!(rest.bytes(), 8);
        let parts = |rest: &PieceRest, max| rest.parts(max).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(parts(&rest, usize::MAX), [&b"abc"[..], b"def", b"gh"]);
        assert_eq!(parts(&rest, 4), [&b"abc"[..], b"d"]);
        assert_eq!(parts(&rest, 3), [b"abc"]);
        rest.advance(4);
        assert_eq!(parts(&rest, usize::MAX), [&b"ef"[..], b"gh"]);
        assert_eq!(&*rest.take(usize::MAX), b"ef");
        rest.advance(1);
        assert_eq!((parts(&rest, usize::MAX), rest.bytes()), (vec![b"h".to_vec()], 1));
        rest.advance(10);
        assert!(rest.is_empty() && parts(&rest, 9).is_empty());
        // There is room for as many pieces as one write has, and no more are read.
        for _ in 0..=PIECES_MAX {
            rest.push(Chunk::from(&b"x"[..]));
        }
        assert_eq!(rest.bytes(), PIECES_MAX);
        (0..PIECES_MAX).for_each(|_| rest.advance(1));
        assert!(rest.is_empty());
    }
}
