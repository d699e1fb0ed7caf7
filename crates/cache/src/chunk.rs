//! Pieces of bodies, which carry their charge.

use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rt::file_memory::FileExtent;

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
    bytes: Bytes,
    _charge: Charge,
}

#[derive(Debug)]
enum Bytes {
    Heap(Box<[u8]>),
    /// In memory that the kernel can send from.
    File(FileExtent),
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
            bytes: Arc::new(ChunkBytes { bytes: Bytes::Heap(bytes.into_boxed_slice()), _charge: charge }),
            start: 0,
            end,
        }
    }

    pub(crate) fn in_file(extent: FileExtent, budget: &Arc<MemoryBudget>) -> Self {
        let charge = Charge::new(budget, extent.memory_bytes() as u64 + CHUNK_OVERHEAD_BYTES);
        let end = extent.len();
        Self { bytes: Arc::new(ChunkBytes { bytes: Bytes::File(extent), _charge: charge }), start: 0, end }
    }

    /// Returns the file that has the bytes, and the offset of the first one. `None`: they are in memory alone.
    pub fn file_offset(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.bytes.bytes {
            Bytes::Heap(_) => None,
            Bytes::File(extent) => {
                let (file, offset) = extent.file_offset();
                Some((file, offset + self.start as u64))
            }
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
        match &self.bytes.bytes {
            Bytes::Heap(bytes) => &bytes[self.start..self.end],
            Bytes::File(extent) => &extent[self.start..self.end],
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
