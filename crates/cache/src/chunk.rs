//! Pieces of bodies, which carry their charge.

use std::ops::Deref;
use std::sync::Arc;

use crate::memory::{Charge, MemoryBudget};

/// Memory of a piece besides its bytes.
pub(crate) const CHUNK_OVERHEAD_BYTES: u64 = 64;

/// A piece of a body.
#[derive(Clone, Debug)]
pub struct Chunk {
    bytes: Arc<ChunkBytes>,
    start: usize,
    end: usize,
}

#[derive(Debug)]
struct ChunkBytes {
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl Chunk {
    pub(crate) fn new(bytes: Vec<u8>, budget: &Arc<MemoryBudget>) -> Self {
        let charge = Charge::new(budget, bytes.len() as u64);
        Self::charged(bytes, charge)
    }

    /// Takes bytes whose length is charged already.
    pub(crate) fn charged(bytes: Vec<u8>, mut charge: Charge) -> Self {
        charge.add(CHUNK_OVERHEAD_BYTES);
        let end = bytes.len();
        Self {
            bytes: Arc::new(ChunkBytes { bytes: bytes.into_boxed_slice(), _charge: charge }),
            start: 0,
            end,
        }
    }

    /// Returns a part of the piece.
    #[must_use]
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        Self { bytes: Arc::clone(&self.bytes), start: self.start + start, end: self.start + end }
    }
}

impl From<&[u8]> for Chunk {
    fn from(bytes: &[u8]) -> Self {
        Self::charged(bytes.to_vec(), Charge::default())
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes.bytes[self.start..self.end]
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
