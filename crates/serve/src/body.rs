//! Bodies: the source of their bytes, and their chunks and pieces. They are never built completely:
//! a socket is fed from one static block, and chunks are framed a few kilobytes at a time.

use std::io::IoSlice;

use wire::encode;

/// Line that bodies consist of, the same as in httpterm: 50 bytes with the line end.
const LINE: &[u8; 50] = b".123456789.123456789.123456789.123456789.12345678\n";

/// Size of a block: a multiple of the line, so that a body continues at its start, and small enough
/// to stay in a core's cache.
pub(crate) const BLOCK_BYTES: usize = 1300 * LINE.len();

#[derive(Debug)]
pub(crate) struct BodyBlocks {
    pattern: Box<[u8]>,
    random: Box<[u8]>,
}

impl BodyBlocks {
    pub(crate) fn new(rng: &mut fastrand::Rng) -> Self {
        let mut random = vec![0; BLOCK_BYTES];
        rng.fill(&mut random);
        Self { pattern: LINE.repeat(BLOCK_BYTES / LINE.len()).into(), random: random.into() }
    }

    #[inline]
    fn block_for(&self, fill: &RemainingBody) -> &[u8] {
        if fill.random { &self.random } else { &self.pattern }
    }
}

/// Content that is still to be sent from a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemainingBody {
    pub(crate) remaining: u64,
    /// Position of the next byte in the block.
    offset: u32,
    random: bool,
}

/// Maximum number of pieces per writev(2); the block repeats in them.
pub(crate) const SLICES_MAX: usize = 16;

impl RemainingBody {
    /// Returns `left` bytes of the pattern, from the start of a line.
    #[inline]
    pub(crate) fn pattern(remaining: u64) -> Self {
        Self { remaining, offset: 0, random: false }
    }

    /// Returns `left` bytes of the random block, from any position in it.
    pub(crate) fn random(remaining: u64, rng: &mut fastrand::Rng) -> Self {
        Self { remaining, offset: rng.u32(0..BLOCK_BYTES as u32), random: true }
    }

    /// Fills `slices` from the second on with the next bytes, at most `bytes_max`. Returns the
    /// number of slices, including the first.
    #[inline]
    pub(crate) fn fill_slices<'b>(
        &self,
        blocks: &'b BodyBlocks,
        bytes_max: u64,
        slices: &mut [IoSlice<'b>; SLICES_MAX],
    ) -> usize {
        let block = blocks.block_for(self);
        let (mut remaining, mut offset, mut slice_count) =
            (self.remaining.min(bytes_max), self.offset as usize, 1);
        while remaining > 0 && slice_count < SLICES_MAX {
            let length = remaining.min((block.len() - offset) as u64) as usize;
            slices[slice_count] = IoSlice::new(&block[offset..offset + length]);
            remaining -= length as u64;
            slice_count += 1;
            offset = 0;
        }
        slice_count
    }

    /// Removes the first `bytes` and returns them.
    #[inline]
    pub(crate) fn split(&mut self, bytes: u64) -> Self {
        let first = Self { remaining: bytes, ..*self };
        self.advance(bytes);
        first
    }

    pub(crate) fn pieces(self, blocks: &BodyBlocks) -> impl Iterator<Item = &[u8]> {
        let block = blocks.block_for(&self);
        let mut body = self;
        std::iter::from_fn(move || {
            let rest = &block[body.offset as usize..];
            let length = body.remaining.min(rest.len() as u64);
            body.advance(length);
            (length > 0).then(|| &rest[..length as usize])
        })
    }

    #[inline]
    pub(crate) fn advance(&mut self, sent: u64) {
        self.remaining -= sent;
        self.offset = ((u64::from(self.offset) + sent) % BLOCK_BYTES as u64) as u32;
    }

    /// Moves `bytes` of it into `out`.
    pub(crate) fn copy_to(&mut self, blocks: &BodyBlocks, mut bytes: u64, out: &mut Vec<u8>) {
        while bytes > 0 {
            let rest = &blocks.block_for(self)[self.offset as usize..];
            let length = bytes.min(rest.len() as u64);
            out.extend_from_slice(&rest[..length as usize]);
            self.advance(length);
            bytes -= length;
        }
    }
}

/// A chunked body that is being built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkedBody {
    body: RemainingBody,
    /// Number of data bytes of each chunk but the last.
    chunk_bytes: u64,
    /// Number of data bytes left in the open chunk.
    chunk_remaining: u64,
    done: bool,
}

impl ChunkedBody {
    pub(crate) fn new(body: RemainingBody, chunk_bytes: u64) -> Self {
        Self { body, chunk_bytes, chunk_remaining: 0, done: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Adds to `out` until it has at least `target_len` bytes, or the body ends.
    pub(crate) fn write(&mut self, blocks: &BodyBlocks, target_len: usize, out: &mut Vec<u8>) {
        while out.len() < target_len && !self.done {
            if self.chunk_remaining == 0 {
                if self.body.remaining == 0 {
                    encode::last_chunk(out);
                    self.done = true;
                    return;
                }
                self.chunk_remaining = self.chunk_bytes.min(self.body.remaining);
                encode::chunk_head(out, self.chunk_remaining);
            }
            let space = target_len.saturating_sub(out.len()).max(1) as u64;
            let bytes = self.chunk_remaining.min(space);
            self.body.copy_to(blocks, bytes, out);
            self.chunk_remaining -= bytes;
            if self.chunk_remaining == 0 {
                encode::chunk_end(out);
            }
        }
    }

    /// Returns the size of a complete chunked body on the wire, capped at `max`.
    pub(crate) fn wire_bytes(size: u64, chunk_bytes: u64, max: u64) -> u64 {
        let digits = |bytes: u64| u64::from((64 - bytes.leading_zeros()).div_ceil(4));
        let (full_chunks, rest) = (size / chunk_bytes, size % chunk_bytes);
        let last_chunk_wire_bytes = if rest > 0 { rest + digits(rest) + 4 } else { 0 };
        let chunk_wire_bytes = chunk_bytes.saturating_add(digits(chunk_bytes) + 4);
        full_chunks.saturating_mul(chunk_wire_bytes).saturating_add(last_chunk_wire_bytes + 5).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> BodyBlocks {
        BodyBlocks::new(&mut fastrand::Rng::with_seed(1))
    }

    fn expected(size: usize) -> Vec<u8> {
        LINE.iter().copied().cycle().take(size).collect()
    }

    #[test]
    fn a_body_of_pieces_is_the_pattern_however_it_is_taken() {
        let blocks = blocks();
        let size = 3 * BLOCK_BYTES + 77;
        let mut body_left = RemainingBody::pattern(size as u64);
        let mut body = Vec::new();
        let mut step = 1;
        while body_left.remaining > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = body_left.fill_slices(&blocks, u64::MAX, &mut slices);
            let all: Vec<u8> = slices[1..count].iter().flat_map(|piece| piece.to_vec()).collect();
            let consumed = all.len().min(step);
            body.extend_from_slice(&all[..consumed]);
            body_left.advance(consumed as u64);
            step = step * 3 + 1;
        }
        assert_eq!(body, expected(size));
    }

    #[test]
    fn the_pieces_of_a_split_body_are_the_pattern() {
        let blocks = blocks();
        let mut rest = RemainingBody::pattern(BLOCK_BYTES as u64 + 100);
        let parts = [rest.split(77), rest.split(BLOCK_BYTES as u64), rest];
        let all: Vec<u8> = parts.iter().flat_map(|part| part.pieces(&blocks).flatten().copied()).collect();
        assert_eq!(all, expected(BLOCK_BYTES + 100));
    }

    #[test]
    fn chunks_are_the_same_however_small_the_buffer() {
        for (size, chunk) in [(0, 1), (1, 1), (120, 1), (1000, 64), (100_000, 30_000), (50, 9999)] {
            let encode_all = |buffer_len: usize| {
                let mut chunks = ChunkedBody::new(RemainingBody::pattern(size), chunk);
                let (blocks, mut body) = (blocks(), Vec::new());
                while !chunks.is_done() {
                    let mut part = Vec::new();
                    chunks.write(&blocks, buffer_len, &mut part);
                    body.extend_from_slice(&part);
                }
                body
            };
            assert_eq!(encode_all(1), encode_all(usize::MAX), "{size} {chunk}");
            let bytes = ChunkedBody::wire_bytes(size, chunk, u64::MAX);
            assert_eq!(encode_all(4096).len() as u64, bytes, "{size} {chunk}");
            let data: Vec<u8> = dechunk(&encode_all(100));
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
