//! Bodies: complete in memory, or still arriving, and the readers of both.

#![expect(
    clippy::disallowed_types,
    reason = "cores share a body that arrives; a lock is held to append or take a piece"
)]

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rt::file_memory::FileMemory;

use crate::chunk::{CHUNK_OVERHEAD_BYTES, Chunk};
use crate::file_body::{BodyError, FileBody, ReadState};
use crate::memory::{Charge, MemoryBudget};

/// Length up to which small pieces of an arriving body are joined.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Length from which a body, or a piece of one that arrives, is kept in memory that the kernel can send from. A shorter
/// one is copied faster.
pub(crate) const FILE_BYTES_MIN: usize = 64 * 1024;

/// Length up to which the pieces of such a body are joined.
const FILE_CHUNK_BYTES: usize = 256 * 1024;

/// Number of waiting readers up to which each piece wakes them at once.
pub(crate) const EAGER_READERS_MAX: usize = 16;

#[derive(Debug)]
pub struct Body {
    kind: BodyKind,
}

#[derive(Debug)]
enum BodyKind {
    Memory { chunks: Box<[Chunk]>, length: u64 },
    Growing { growth: Mutex<Growth>, declared_bytes: Option<u64> },
    File(Arc<dyn FileBody>),
}

/// A body that arrives.
#[derive(Debug, Default)]
struct Growth {
    /// Complete pieces, with their offsets.
    chunks: VecDeque<(u64, Chunk)>,
    /// Offset of the first byte that is still there.
    base: u64,
    /// End of the last complete piece.
    sealed: u64,
    /// Bytes behind it.
    tail: Vec<u8>,
    tail_charge: Charge,
    /// Memory from which the kernel can send complete pieces.
    file: Option<(Arc<FileMemory>, Arc<MemoryBudget>)>,
    end: Option<Result<(), BodyError>>,
    /// Pieces before the last ones are dropped: the body will not be stored. Number of bytes that stay.
    window_bytes: Option<u64>,
    wakers: HashMap<u64, Waker>,
    readers: u64,
    /// Length when the waiting readers were last woken.
    woken: u64,
}

impl Growth {
    fn length(&self) -> u64 {
        self.sealed + self.tail.len() as u64
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            let chunk = self.take_tail();
            let start = self.sealed;
            self.sealed += chunk.len() as u64;
            self.chunks.push_back((start, chunk));
        }
        if let Some(window_bytes) = self.window_bytes {
            while let Some((start, chunk)) = self.chunks.front()
                && start + chunk.len() as u64 + window_bytes < self.sealed
            {
                self.base = start + chunk.len() as u64;
                self.chunks.pop_front();
            }
        }
    }

    /// Returns the bytes behind the last complete piece as one, so that many readers share its pages.
    fn take_tail(&mut self) -> Chunk {
        let (tail, charge) = (std::mem::take(&mut self.tail), self.tail_charge.take());
        let file = self.file.as_ref().filter(|_| tail.len() >= FILE_BYTES_MIN);
        let in_file = file.and_then(|(memory, budget)| {
            let extent = memory.store(std::iter::once(&*tail))?;
            Some(Chunk::in_file(extent, budget))
        });
        in_file.unwrap_or_else(|| Chunk::charged(tail, charge))
    }

    /// Returns the piece at an offset, up to the end of its chunk.
    fn piece(&mut self, position: u64) -> Poll<Option<Result<Chunk, BodyError>>> {
        if position < self.base {
            return Poll::Ready(Some(Err(BodyError::Overtaken)));
        }
        if position == self.sealed {
            self.seal();
        }
        if position < self.sealed {
            let index = self.chunks.partition_point(|(start, _)| *start <= position) - 1;
            let (start, chunk) = &self.chunks[index];
            // Within a chunk, whose length is a usize.
            return Poll::Ready(Some(Ok(chunk.slice((position - start) as usize, chunk.len()))));
        }
        match self.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Pending,
        }
    }
}

impl Body {
    pub(crate) fn memory(chunks: Vec<Chunk>) -> Self {
        let length = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { kind: BodyKind::Memory { chunks: chunks.into_boxed_slice(), length } }
    }

    pub(crate) fn growing(
        declared_bytes: Option<u64>,
        budget: &Arc<MemoryBudget>,
        file: Option<&Arc<FileMemory>>,
    ) -> Self {
        let file = file.map(|memory| (Arc::clone(memory), Arc::clone(budget)));
        let growth = Growth { tail_charge: Charge::new(budget, 0), file, ..Growth::default() };
        Self { kind: BodyKind::Growing { growth: Mutex::new(growth), declared_bytes } }
    }

    pub(crate) fn in_file(body: Arc<dyn FileBody>) -> Self {
        Self { kind: BodyKind::File(body) }
    }

    /// Returns whether the body stays on disk.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.kind, BodyKind::File(_))
    }

    /// Returns the length. `None`: it is still arriving, and its length is unknown.
    pub fn length(&self) -> Option<u64> {
        match &self.kind {
            BodyKind::Memory { length, .. } => Some(*length),
            BodyKind::File(body) => Some(body.length()),
            BodyKind::Growing { growth, declared_bytes } => declared_bytes.or_else(|| {
                let growth = lock(growth);
                let is_complete = growth.end == Some(Ok(()));
                is_complete.then(|| growth.length())
            }),
        }
    }

    /// Returns the length that the server announced for an arriving body.
    pub(crate) fn declared(&self) -> Option<u64> {
        match &self.kind {
            BodyKind::Memory { length, .. } => Some(*length),
            BodyKind::File(body) => Some(body.length()),
            BodyKind::Growing { declared_bytes, .. } => *declared_bytes,
        }
    }

    /// Returns the number of bytes that have arrived.
    pub(crate) fn received(&self) -> u64 {
        match &self.kind {
            BodyKind::Memory { length, .. } => *length,
            BodyKind::File(body) => body.length(),
            BodyKind::Growing { growth, .. } => lock(growth).length(),
        }
    }

    /// Returns the pieces of a complete body in memory.
    pub fn chunks(&self) -> Option<&[Chunk]> {
        match &self.kind {
            BodyKind::Memory { chunks, .. } => Some(chunks),
            BodyKind::Growing { .. } | BodyKind::File(_) => None,
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.kind {
            BodyKind::File(_) => 0,
            BodyKind::Memory { chunks, length } => length + chunks.len() as u64 * CHUNK_OVERHEAD_BYTES,
            BodyKind::Growing { growth, .. } => {
                let growth = lock(growth);
                growth.sealed - growth.base
                    + growth.tail.len() as u64
                    + growth.chunks.len() as u64 * CHUNK_OVERHEAD_BYTES
            }
        }
    }

    /// Appends bytes to an arriving body. Returns its length. Nobody is woken.
    pub(crate) fn push(&self, bytes: &[u8]) -> u64 {
        let BodyKind::Growing { growth, .. } = &self.kind else { return 0 };
        let mut growth = lock(growth);
        growth.tail.extend_from_slice(bytes);
        growth.tail_charge.add(bytes.len() as u64);
        let chunk_bytes = if growth.file.is_some() { FILE_CHUNK_BYTES } else { CHUNK_BYTES };
        if growth.tail.len() >= chunk_bytes {
            growth.seal();
        }
        growth.length()
    }

    /// Wakes the readers that wait for more of an arriving body: a few at once, and many only if `bytes_min` bytes have
    /// arrived since the last time, or these are the first ones. False: bytes are there of which they do not know.
    pub(crate) fn wake_readers(&self, bytes_min: u64) -> bool {
        let BodyKind::Growing { growth, .. } = &self.kind else { return true };
        let wakers = {
            let mut growth = lock(growth);
            let new_bytes = growth.length() - growth.woken;
            let is_few = growth.wakers.len() <= EAGER_READERS_MAX;
            if new_bytes == 0 || growth.wakers.is_empty() {
                return true;
            }
            if !is_few && growth.woken > 0 && new_bytes < bytes_min {
                return false;
            }
            growth.woken = growth.length();
            std::mem::take(&mut growth.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
        true
    }

    /// Drops all but the last bytes of an arriving body from now on.
    pub(crate) fn keep_only(&self, window_bytes: u64) {
        if let BodyKind::Growing { growth, .. } = &self.kind {
            let mut growth = lock(growth);
            growth.window_bytes = Some(window_bytes);
            growth.seal();
        }
    }

    /// Ends an arriving body, and returns its pieces if it is complete.
    pub(crate) fn end(&self, result: Result<(), BodyError>) -> Option<Vec<Chunk>> {
        let BodyKind::Growing { growth, .. } = &self.kind else { return None };
        let (chunks, wakers) = {
            let mut growth = lock(growth);
            growth.seal();
            if growth.end.is_none() {
                growth.end = Some(result);
            }
            let is_kept = growth.end == Some(Ok(())) && growth.base == 0;
            let chunks = is_kept.then(|| growth.chunks.iter().map(|(_, chunk)| chunk.clone()).collect());
            (chunks, std::mem::take(&mut growth.wakers))
        };
        wakers.into_values().for_each(Waker::wake);
        chunks
    }
}

/// Reads a body, or a range of it, in pieces, also while it arrives.
#[derive(Debug)]
pub struct BodyReader {
    body: Arc<Body>,
    position: u64,
    end: u64,
    /// Index of the next chunk in memory, and its offset.
    next_chunk: (usize, u64),
    /// Number among the readers of an arriving body.
    number: Option<u64>,
    /// Read of a file that runs, and the offset of its first byte.
    reading: Option<(Arc<ReadState>, u64)>,
}

impl BodyReader {
    /// Reads `range`, or everything.
    #[must_use]
    pub fn new(body: &Arc<Body>, range: Option<Range<u64>>) -> Self {
        let range = range.unwrap_or(0..u64::MAX);
        Self {
            body: Arc::clone(body),
            position: range.start,
            end: range.end,
            next_chunk: (0, 0),
            number: None,
            reading: None,
        }
    }

    /// Returns the next piece; `None` at the end. Wakes the task when there is more.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        if self.position >= self.end {
            return Poll::Ready(None);
        }
        let body = Arc::clone(&self.body);
        let piece = match &body.kind {
            BodyKind::Memory { chunks, .. } => Poll::Ready(self.next_in_memory(chunks).map(Ok)),
            BodyKind::File(body) => self.poll_file(body, context),
            BodyKind::Growing { growth, .. } => {
                let mut growth = lock(growth);
                let piece = growth.piece(self.position);
                if piece.is_pending() {
                    let number = *self.number.get_or_insert_with(|| {
                        growth.readers += 1;
                        growth.readers
                    });
                    growth.wakers.insert(number, context.waker().clone());
                }
                piece
            }
        };
        piece.map(|piece| piece.map(|piece| piece.map(|chunk| self.take(chunk))))
    }

    /// Returns the next piece of a body in memory, if it is there. Nobody is woken otherwise.
    pub fn next_present(&mut self) -> Option<Chunk> {
        let body = Arc::clone(&self.body);
        let piece = match &body.kind {
            _ if self.position >= self.end => None,
            BodyKind::Memory { chunks, .. } => self.next_in_memory(chunks),
            BodyKind::File(_) => None,
            BodyKind::Growing { growth, .. } => match lock(growth).piece(self.position) {
                Poll::Ready(Some(Ok(piece))) => Some(piece),
                // The next poll returns the end or the error.
                Poll::Ready(_) | Poll::Pending => None,
            },
        };
        piece.map(|piece| self.take(piece))
    }

    /// Moves behind a piece, and returns its part in the range.
    fn take(&mut self, piece: Chunk) -> Chunk {
        let rest = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let piece = if piece.len() > rest { piece.slice(0, rest) } else { piece };
        self.position += piece.len() as u64;
        piece
    }

    fn poll_file(
        &mut self,
        body: &Arc<dyn FileBody>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk, BodyError>>> {
        if self.position >= body.length() {
            return Poll::Ready(None);
        }
        let (state, start) = self.reading.get_or_insert_with(|| Arc::clone(body).start_read(self.position));
        // The piece begins with the block of the position.
        let skipped = (self.position - *start) as usize;
        let piece =
            state.poll(context).map(|piece| Some(piece.map(|chunk| chunk.slice(skipped, chunk.len()))));
        if piece.is_ready() {
            self.reading = None;
        }
        piece
    }

    fn next_in_memory(&mut self, chunks: &[Chunk]) -> Option<Chunk> {
        loop {
            let (index, start) = self.next_chunk;
            let chunk = chunks.get(index)?;
            let end = start + chunk.len() as u64;
            self.next_chunk = (index + 1, end);
            if self.position < end {
                // Within the chunk, whose length is a usize.
                return Some(chunk.slice((self.position - start) as usize, chunk.len()));
            }
        }
    }
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        if let (Some(number), BodyKind::Growing { growth, .. }) = (self.number, &self.body.kind) {
            lock(growth).wakers.remove(&number);
        }
    }
}

/// Locks a body; each statement under the lock leaves it valid.
fn lock(growth: &Mutex<Growth>) -> MutexGuard<'_, Growth> {
    growth.lock().unwrap_or_else(PoisonError::into_inner)
}
