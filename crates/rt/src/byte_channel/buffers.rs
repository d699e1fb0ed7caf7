//! Buffers of the channels of one core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Minimum capacity of a buffer.
const BUFFER_BYTES_MIN: usize = 1024;
/// Maximum capacity of all unused buffers of a core; the rest are freed.
const FREE_BYTES_MAX: usize = 1024 * 1024;

/// Unused buffers of one core's channels. Cheap to clone; not `Send`.
#[derive(Clone, Debug, Default)]
pub struct ChannelBuffers {
    inner: Rc<FreeBuffers>,
}

#[derive(Debug, Default)]
struct FreeBuffers {
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Sum of their capacities.
    free_bytes: Cell<usize>,
    in_use: Cell<usize>,
}

impl ChannelBuffers {
    /// Creates an empty pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn in_use(&self) -> usize {
        self.inner.in_use.get()
    }

    pub fn free_count(&self) -> usize {
        self.inner.buffers.borrow().len()
    }

    pub fn free_unused(&self) {
        self.inner.buffers.take();
        self.inner.free_bytes.set(0);
    }

    pub(super) fn take(&self) -> Vec<u8> {
        let inner = &self.inner;
        inner.in_use.set(inner.in_use.get() + 1);
        let Some(buffer) = inner.buffers.borrow_mut().pop() else {
            return Vec::with_capacity(BUFFER_BYTES_MIN);
        };
        inner.free_bytes.set(inner.free_bytes.get() - buffer.capacity());
        buffer
    }

    pub(super) fn put_back(&self, mut buffer: Vec<u8>) {
        let inner = &self.inner;
        inner.in_use.set(inner.in_use.get() - 1);
        let free_bytes = inner.free_bytes.get() + buffer.capacity();
        if free_bytes <= FREE_BYTES_MAX {
            buffer.clear();
            inner.free_bytes.set(free_bytes);
            inner.buffers.borrow_mut().push(buffer);
        }
    }
}
