//! Pool of byte buffers of one core. A connection takes a buffer only while bytes are in flight and
//! returns it empty, so that an idle connection holds none. The pool is limited: beyond the limit
//! it refuses and counts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Buffers of one core; not `Send`.
#[derive(Debug)]
pub struct BufferPool {
    pool: Rc<PoolInner>,
}

#[derive(Debug)]
struct PoolInner {
    free: RefCell<Vec<Vec<u8>>>,
    #[allow(clippy::vec_box, reason = "the allocation is what is kept")]
    free_storage: RefCell<Vec<Box<BufferStorage>>>,
    buffer_bytes: usize,
    in_use: Cell<usize>,
    max_in_use: usize,
    exhausted: Cell<u64>,
}

/// Bytes in a buffer of a [`BufferPool`], consumed from the front. The buffer returns to the pool with
/// the last byte, or when this is dropped. The default holds no bytes and no buffer.
#[derive(Debug, Default)]
pub struct PooledBuffer {
    storage: Option<Box<BufferStorage>>,
}

#[derive(Debug, Default)]
struct BufferStorage {
    bytes: Vec<u8>,
    start: usize,
    /// `None` while the body is spare.
    pool: Option<Rc<PoolInner>>,
}

/// Maximum number of unused buffers in a pool; the rest are freed.
const FREE_MAX: usize = 64;
/// Maximum growth: a buffer that grew past this many times its first size is freed.
const GROWTH_MAX: usize = 4;

impl BufferPool {
    /// Creates a pool of buffers of `buffer_bytes`, at most `max_in_use` of them in use at a time.
    #[must_use]
    pub fn new(buffer_bytes: usize, max_in_use: usize) -> Self {
        let pool = PoolInner {
            free: RefCell::new(Vec::new()),
            free_storage: RefCell::new(Vec::new()),
            buffer_bytes,
            in_use: Cell::new(0),
            max_in_use,
            exhausted: Cell::new(0),
        };
        Self { pool: Rc::new(pool) }
    }

    /// Returns an empty buffer, or `None` (counted) at the limit.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.pool.acquire()?;
        let reused = self.pool.free.borrow_mut().pop();
        Some(reused.unwrap_or_else(|| Vec::with_capacity(self.pool.buffer_bytes)))
    }

    /// Returns a buffer from [`BufferPool::take`] to the pool.
    pub fn put_back(&self, mut buffer: Vec<u8>) {
        self.pool.release();
        let mut free = self.pool.free.borrow_mut();
        if free.len() < FREE_MAX && self.pool.is_reusable(&buffer) {
            buffer.clear();
            free.push(buffer);
        }
    }

    /// Returns a buffer with these bytes, or `None` (counted) at the limit. No bytes need no
    /// buffer.
    pub fn take_filled(&self, parts: &[&[u8]]) -> Option<PooledBuffer> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total == 0 {
            return Some(PooledBuffer::default());
        }
        self.pool.acquire()?;
        let free_storage = self.pool.free_storage.borrow_mut().pop();
        let mut storage = free_storage.unwrap_or_else(|| {
            let bytes = Vec::with_capacity(self.pool.buffer_bytes);
            Box::new(BufferStorage { bytes, ..BufferStorage::default() })
        });
        storage.pool = Some(Rc::clone(&self.pool));
        for part in parts {
            storage.bytes.extend_from_slice(part);
        }
        Some(PooledBuffer { storage: Some(storage) })
    }

    pub fn free_unused(&self) {
        self.pool.free.take();
        self.pool.free_storage.take();
    }

    pub fn in_use(&self) -> usize {
        self.pool.in_use.get()
    }

    pub fn exhausted_count(&self) -> u64 {
        self.pool.exhausted.get()
    }
}

impl PoolInner {
    fn acquire(&self) -> Option<()> {
        if self.in_use.get() >= self.max_in_use {
            self.exhausted.set(self.exhausted.get() + 1);
            return None;
        }
        self.in_use.set(self.in_use.get() + 1);
        Some(())
    }

    fn release(&self) {
        self.in_use.set(self.in_use.get().saturating_sub(1));
    }

    fn is_reusable(&self, buffer: &Vec<u8>) -> bool {
        buffer.capacity() <= GROWTH_MAX * self.buffer_bytes
    }
}

impl PooledBuffer {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.storage.as_deref().map_or(&[], |body| &body.bytes[body.start..])
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.storage.as_deref().map_or(0, |body| body.bytes.len() - body.start)
    }

    /// Returns true if there are no bytes, and so no buffer.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.storage.is_none()
    }

    /// Consumes the first `count` bytes, without moving the others.
    pub fn consume(&mut self, count: usize) {
        if let Some(storage) = &mut self.storage {
            storage.start = storage.bytes.len().min(storage.start + count);
            if storage.start == storage.bytes.len() {
                self.release();
            }
        }
    }

    /// Appends bytes, taking a buffer from `buffers` if there is none yet. Returns false, with
    /// nothing appended, if there was no buffer.
    #[must_use]
    pub fn append(&mut self, buffers: &BufferPool, bytes: &[u8]) -> bool {
        let Some(storage) = &mut self.storage else {
            let filled = buffers.take_filled(&[bytes]);
            let is_filled = filled.is_some();
            *self = filled.unwrap_or_default();
            return is_filled;
        };
        if storage.start > 0 {
            storage.bytes.drain(..storage.start);
            storage.start = 0;
        }
        storage.bytes.extend_from_slice(bytes);
        true
    }

    pub fn release(&mut self) {
        let Some(mut storage) = self.storage.take() else { return };
        let Some(pool) = storage.pool.take() else { return };
        pool.release();
        let mut free_storage = pool.free_storage.borrow_mut();
        if free_storage.len() < FREE_MAX && pool.is_reusable(&storage.bytes) {
            storage.bytes.clear();
            storage.start = 0;
            free_storage.push(storage);
        }
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_is_counted() {
        let pool = BufferPool::new(16, 2);
        let (first, _second) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        assert_eq!((pool.in_use(), pool.exhausted_count()), (2, 1));
        pool.put_back(first);
        assert!(pool.take().unwrap().is_empty());
    }

    #[test]
    fn a_buffer_that_grew_is_not_reused() {
        let pool = BufferPool::new(16, 2);
        let mut grown = pool.take().unwrap();
        grown.resize(1000, 0);
        pool.put_back(grown);
        assert!(pool.take().unwrap().capacity() < 1000);
    }

    #[test]
    fn a_pooled_buffer_returns_with_its_last_byte_or_its_owner() {
        let pool = BufferPool::new(16, 1);
        let mut buffer = pool.take_filled(&[b"ab", b"c"]).unwrap();
        assert!(pool.take_filled(&[b"x"]).is_none() && pool.take_filled(&[b""]).unwrap().is_empty());
        assert_eq!((buffer.bytes(), pool.in_use(), pool.exhausted_count()), (&b"abc"[..], 1, 1));
        buffer.consume(2);
        assert!(buffer.append(&pool, b"d"));
        assert_eq!((buffer.bytes(), buffer.len()), (&b"cd"[..], 2));
        buffer.consume(2);
        assert!(buffer.is_empty() && pool.in_use() == 0);
        drop(pool.take_filled(&[b"more"]));
        assert_eq!(pool.in_use(), 0);
        let first = pool.take_filled(&[b"1"]).unwrap();
        assert!(!buffer.append(&pool, b"2") && buffer.bytes().is_empty());
        drop(first);
        assert!(buffer.append(&pool, b"2") && buffer.bytes() == b"2");
    }

    #[test]
    fn a_pooled_buffer_is_as_small_as_a_pointer() {
        assert_eq!(size_of::<PooledBuffer>(), size_of::<usize>());
    }
}
