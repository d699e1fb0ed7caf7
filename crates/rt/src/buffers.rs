//! A core's pool of byte buffers. A connection takes one only while bytes are in flight and gives
//! it back empty, so that an idle connection holds none. Bounded: past the limit there is none, and
//! that is counted.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The buffers of one core; not `Send`.
#[derive(Debug)]
pub struct Buffers {
    pool: Rc<Pool>,
}

#[derive(Debug)]
struct Pool {
    free: RefCell<Vec<Vec<u8>>>,
    #[allow(clippy::vec_box, reason = "the allocation is what is kept")]
    spare: RefCell<Vec<Box<Body>>>,
    buffer_bytes: usize,
    lent: Cell<usize>,
    lent_max: usize,
    refused: Cell<u64>,
}

/// Bytes in a buffer of a [`Buffers`], consumed from the front. Its buffer goes back to the pool with
/// the last byte, or when this is dropped. The default holds no bytes and no buffer.
#[derive(Debug, Default)]
pub struct Lent {
    body: Option<Box<Body>>,
}

#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    /// Bytes before this are consumed.
    start: usize,
    /// `None` while it is spare.
    pool: Option<Rc<Pool>>,
}

/// How many unused buffers a pool keeps; more than that goes back to the allocator.
const FREE_MAX: usize = 64;
/// A buffer that grew past this many times its first size is not kept.
const GROWTH_MAX: usize = 4;

impl Buffers {
    /// A pool of buffers of `buffer_bytes`, of which `lent_max` may be out at a time.
    #[must_use]
    pub fn new(buffer_bytes: usize, lent_max: usize) -> Self {
        let pool = Pool {
            free: RefCell::new(Vec::new()),
            spare: RefCell::new(Vec::new()),
            buffer_bytes,
            lent: Cell::new(0),
            lent_max,
            refused: Cell::new(0),
        };
        Self { pool: Rc::new(pool) }
    }

    /// An empty buffer, or `None` (counted) at the limit.
    #[must_use]
    pub fn take(&self) -> Option<Vec<u8>> {
        self.pool.enter()?;
        let kept = self.pool.free.borrow_mut().pop();
        Some(kept.unwrap_or_else(|| Vec::with_capacity(self.pool.buffer_bytes)))
    }

    /// Gives a buffer back that [`Buffers::take`] lent.
    pub fn give(&self, mut buffer: Vec<u8>) {
        self.pool.leave();
        let mut free = self.pool.free.borrow_mut();
        if free.len() < FREE_MAX && self.pool.keeps(&buffer) {
            buffer.clear();
            free.push(buffer);
        }
    }

    /// A buffer with these bytes, or `None` (counted) at the limit. No bytes need no buffer.
    #[must_use]
    pub fn lend(&self, parts: &[&[u8]]) -> Option<Lent> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total == 0 {
            return Some(Lent::default());
        }
        self.pool.enter()?;
        let spare = self.pool.spare.borrow_mut().pop();
        let mut body = spare.unwrap_or_else(|| {
            let bytes = Vec::with_capacity(self.pool.buffer_bytes);
            Box::new(Body { bytes, ..Body::default() })
        });
        body.pool = Some(Rc::clone(&self.pool));
        for part in parts {
            body.bytes.extend_from_slice(part);
        }
        Some(Lent { body: Some(body) })
    }

    /// How many buffers are out.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.pool.lent.get()
    }

    /// How often the limit was met.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.pool.refused.get()
    }
}

impl Pool {
    fn enter(&self) -> Option<()> {
        if self.lent.get() >= self.lent_max {
            self.refused.set(self.refused.get() + 1);
            return None;
        }
        self.lent.set(self.lent.get() + 1);
        Some(())
    }

    fn leave(&self) {
        self.lent.set(self.lent.get().saturating_sub(1));
    }

    fn keeps(&self, buffer: &Vec<u8>) -> bool {
        buffer.capacity() <= GROWTH_MAX * self.buffer_bytes
    }
}

impl Lent {
    /// The bytes that are not consumed.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.body.as_deref().map_or(&[], |body| &body.bytes[body.start..])
    }

    /// How many they are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.as_deref().map_or(0, |body| body.bytes.len() - body.start)
    }

    /// Whether there are none, and so no buffer.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_none()
    }

    /// Consumes the first `count` bytes, without moving the others.
    pub fn consume(&mut self, count: usize) {
        if let Some(body) = &mut self.body {
            body.start = body.bytes.len().min(body.start + count);
            if body.start == body.bytes.len() {
                self.release();
            }
        }
    }

    /// Adds bytes at the end, taking a buffer from `buffers` if there is none yet. `false`: there was
    /// no buffer, and nothing was added.
    #[must_use]
    pub fn append(&mut self, buffers: &Buffers, bytes: &[u8]) -> bool {
        let Some(body) = &mut self.body else {
            let lent = buffers.lend(&[bytes]);
            let is_lent = lent.is_some();
            *self = lent.unwrap_or_default();
            return is_lent;
        };
        if body.start > 0 {
            body.bytes.drain(..body.start);
            body.start = 0;
        }
        body.bytes.extend_from_slice(bytes);
        true
    }

    /// Gives the buffer back, with what is in it.
    pub fn release(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        let Some(pool) = body.pool.take() else { return };
        pool.leave();
        let mut spare = pool.spare.borrow_mut();
        if spare.len() < FREE_MAX && pool.keeps(&body.bytes) {
            body.bytes.clear();
            body.start = 0;
            spare.push(body);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_is_counted() {
        let pool = Buffers::new(16, 2);
        let (first, _second) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        assert_eq!((pool.lent(), pool.refused()), (2, 1));
        pool.give(first);
        assert!(pool.take().unwrap().is_empty());
    }

    #[test]
    fn a_buffer_that_grew_is_not_kept() {
        let pool = Buffers::new(16, 2);
        let mut grown = pool.take().unwrap();
        grown.resize(1000, 0);
        pool.give(grown);
        assert!(pool.take().unwrap().capacity() < 1000);
    }

    #[test]
    fn what_is_lent_goes_back_with_its_last_byte_or_its_owner() {
        let pool = Buffers::new(16, 1);
        let mut lent = pool.lend(&[b"ab", b"c"]).unwrap();
        assert!(pool.lend(&[b"x"]).is_none() && pool.lend(&[b""]).unwrap().is_empty());
        assert_eq!((lent.bytes(), pool.lent(), pool.refused()), (&b"abc"[..], 1, 1));
        lent.consume(2);
        assert!(lent.append(&pool, b"d"));
        assert_eq!((lent.bytes(), lent.len()), (&b"cd"[..], 2));
        lent.consume(2);
        assert!(lent.is_empty() && pool.lent() == 0);
        drop(pool.lend(&[b"more"]));
        assert_eq!(pool.lent(), 0);
        let first = pool.lend(&[b"1"]).unwrap();
        assert!(!lent.append(&pool, b"2") && lent.bytes().is_empty());
        drop(first);
        assert!(lent.append(&pool, b"2") && lent.bytes() == b"2");
    }

    #[test]
    fn a_place_for_lent_bytes_is_small() {
        assert_eq!(size_of::<Lent>(), size_of::<usize>());
    }
}
