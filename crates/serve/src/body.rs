//! Bodies: where their bytes come from and how they are cut. They are never built as a whole; what
//! a socket takes is sent from one static block, and chunks are framed a few kilobytes at a time.

use std::io::IoSlice;

use wire::encode;

/// The line that bodies are made of, as httpterm has it: 50 bytes with their line end.
const LINE: &[u8; 50] = b".123456789.123456789.123456789.123456789.12345678\n";

/// Bytes of a block: a multiple of the line, so that a body goes on at its start; small enough to
/// stay in a core's cache.
pub(crate) const BLOCK_BYTES: usize = 1300 * LINE.len();

/// The bytes that bodies of a core consist of.
#[derive(Debug)]
pub(crate) struct Blocks {
    pattern: Box<[u8]>,
    random: Box<[u8]>,
}

impl Blocks {
    pub(crate) fn new(rng: &mut fastrand::Rng) -> Self {
        let mut random = vec![0; BLOCK_BYTES];
        rng.fill(&mut random);
        Self { pattern: LINE.repeat(BLOCK_BYTES / LINE.len()).into(), random: random.into() }
    }

    #[inline]
    fn of(&self, fill: &Fill) -> &[u8] {
        if fill.random { &self.random } else { &self.pattern }
    }
}

/// Content that is still to be sent from a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Bytes left.
    pub(crate) left: u64,
    /// Where in the block the next one is.
    at: u32,
    random: bool,
}

/// How many pieces one writev(2) is given at most; the block repeats in them.
pub(crate) const PIECES_MAX: usize = 16;

impl Fill {
    /// `left` bytes of the pattern, from the start of a line.
    #[inline]
    pub(crate) fn pattern(left: u64) -> Self {
        Self { left, at: 0, random: false }
    }

    /// `left` bytes from the random block, from anywhere in it.
    pub(crate) fn random(left: u64, rng: &mut fastrand::Rng) -> Self {
        Self { left, at: rng.u32(0..BLOCK_BYTES as u32), random: true }
    }

    /// Fills `pieces` from the second on with what is next, at most `bytes_max` bytes; returns how
    /// many pieces there are now, the first included.
    #[inline]
    pub(crate) fn pieces<'b>(
        &self,
        blocks: &'b Blocks,
        bytes_max: u64,
        pieces: &mut [IoSlice<'b>; PIECES_MAX],
    ) -> usize {
        let block = blocks.of(self);
        let (mut left, mut at, mut count) = (self.left.min(bytes_max), self.at as usize, 1);
        while left > 0 && count < PIECES_MAX {
            let length = left.min((block.len() - at) as u64) as usize;
            pieces[count] = IoSlice::new(&block[at..at + length]);
            left -= length as u64;
            count += 1;
            at = 0;
        }
        count
    }

    /// Notes that `sent` of its bytes are gone.
    #[inline]
    pub(crate) fn advance(&mut self, sent: u64) {
        self.left -= sent;
        self.at = ((u64::from(self.at) + sent) % BLOCK_BYTES as u64) as u32;
    }

    /// Moves `bytes` of it into `out`.
    pub(crate) fn copy(&mut self, blocks: &Blocks, mut bytes: u64, out: &mut Vec<u8>) {
        while bytes > 0 {
            let rest = &blocks.of(self)[self.at as usize..];
            let length = bytes.min(rest.len() as u64);
            out.extend_from_slice(&rest[..length as usize]);
            self.advance(length);
            bytes -= length;
        }
    }
}

/// A chunked body in the making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    fill: Fill,
    /// Data bytes of each chunk but the last.
    chunk: u64,
    /// Data bytes of the chunk that was begun and not ended.
    open: u64,
    ended: bool,
}

impl Chunks {
    pub(crate) fn new(fill: Fill, chunk: u64) -> Self {
        Self { fill, chunk, open: 0, ended: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ended
    }

    /// Adds to `out` until it has some `wanted` bytes, or the body its end.
    pub(crate) fn write(&mut self, blocks: &Blocks, wanted: usize, out: &mut Vec<u8>) {
        while out.len() < wanted && !self.ended {
            if self.open == 0 {
                if self.fill.left == 0 {
                    encode::last_chunk(out);
                    self.ended = true;
                    return;
                }
                self.open = self.chunk.min(self.fill.left);
                encode::chunk_head(out, self.open);
            }
            let room = wanted.saturating_sub(out.len()).max(1) as u64;
            let bytes = self.open.min(room);
            self.fill.copy(blocks, bytes, out);
            self.open -= bytes;
            if self.open == 0 {
                encode::chunk_end(out);
            }
        }
    }

    /// Bytes of a whole chunked body on the wire, capped at `max`.
    pub(crate) fn wire_bytes(size: u64, chunk: u64, max: u64) -> u64 {
        let digits = |bytes: u64| u64::from((64 - bytes.leading_zeros()).div_ceil(4));
        let (whole, rest) = (size / chunk, size % chunk);
        let last = if rest > 0 { rest + digits(rest) + 4 } else { 0 };
        let each = chunk.saturating_add(digits(chunk) + 4);
        whole.saturating_mul(each).saturating_add(last + 5).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Blocks {
        Blocks::new(&mut fastrand::Rng::with_seed(1))
    }

    fn expected(size: usize) -> Vec<u8> {
        LINE.iter().copied().cycle().take(size).collect()
    }

    #[test]
    fn a_body_of_pieces_is_the_pattern_however_it_is_taken() {
        let blocks = blocks();
        let size = 3 * BLOCK_BYTES + 77;
        let mut fill = Fill::pattern(size as u64);
        let mut body = Vec::new();
        let mut step = 1;
        while fill.left > 0 {
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let count = fill.pieces(&blocks, u64::MAX, &mut pieces);
            let all: Vec<u8> = pieces[1..count].iter().flat_map(|piece| piece.to_vec()).collect();
            let taken = all.len().min(step);
            body.extend_from_slice(&all[..taken]);
            fill.advance(taken as u64);
            step = step * 3 + 1;
        }
        assert_eq!(body, expected(size));
    }

    #[test]
    fn chunks_are_the_same_however_small_the_buffer() {
        for (size, chunk) in [(0, 1), (1, 1), (120, 1), (1000, 64), (100_000, 30_000), (50, 9999)] {
            let whole = |wanted: usize| {
                let mut chunks = Chunks::new(Fill::pattern(size), chunk);
                let (blocks, mut body) = (blocks(), Vec::new());
                while !chunks.is_done() {
                    let mut part = Vec::new();
                    chunks.write(&blocks, wanted, &mut part);
                    body.extend_from_slice(&part);
                }
                body
            };
            assert_eq!(whole(1), whole(usize::MAX), "{size} {chunk}");
            let bytes = Chunks::wire_bytes(size, chunk, u64::MAX);
            assert_eq!(whole(4096).len() as u64, bytes, "{size} {chunk}");
            let data: Vec<u8> = dechunk(&whole(100));
            assert_eq!(data, expected(size as usize));
        }
    }

    fn dechunk(mut body: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let line = body.iter().position(|&byte| byte == b'\r').unwrap();
            let text = std::str::from_utf8(&body[..line]).unwrap();
            let size = usize::from_str_radix(text, 16).unwrap();
            data.extend_from_slice(&body[line + 2..line + 2 + size]);
            body = &body[line + 2 + size..];
            assert_eq!(&body[..2], b"\r\n");
            body = &body[2..];
            if size == 0 {
                assert!(body.is_empty());
                return data;
            }
        }
    }
}
