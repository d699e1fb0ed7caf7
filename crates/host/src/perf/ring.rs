//! The memory that the kernel writes records into, and that we read them from
//! (perf_event_open(2), "MMAP layout").
//!
//! Not for what a record means.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of records of one ring, a power of two. With the page before them it is what a user without
/// privileges may have locked for each processor (`kernel.perf_event_mlock_kb`).
const PAGES: usize = 128;
/// `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// The least size of a record: its header.
const HEADER_BYTES: usize = 8;

/// A ring. It ends with this value; the event that it was mapped from may have gone before.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    page_bytes: usize,
    record: Vec<u8>,
}

#[allow(unsafe_code)]
// SAFETY: the mapping belongs to this value alone, and nothing about it belongs to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event.
    #[allow(unsafe_code)]
    pub(super) fn new(event: &OwnedFd) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let (length, access) = ((1 + PAGES) * page_bytes, libc::PROT_READ | libc::PROT_WRITE);
        let fd = event.as_raw_fd();
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that we have.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, page_bytes, record: Vec::new() })
    }

    /// Calls `each` with every record that has come since the last time, and makes room for others.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        // What the kernel wrote before it moved the head is seen after this load.
        let head = self.counter(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.counter(TAIL_AT).load(Ordering::Relaxed);
        while head.wrapping_sub(tail) >= HEADER_BYTES as u64 {
            self.copy(tail, HEADER_BYTES);
            let size = usize::from(u16::from_ne_bytes([self.record[6], self.record[7]]));
            if size < HEADER_BYTES || size as u64 > head.wrapping_sub(tail) {
                // The kernel writes no such thing; if it did, nothing behind it could be told apart.
                tail = head;
                break;
            }
            self.copy(tail, size);
            each(&self.record);
            tail = tail.wrapping_add(size as u64);
        }
        self.counter(TAIL_AT).store(tail, Ordering::Release);
    }

    #[allow(unsafe_code)]
    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped for as long as `self` lives, the place is aligned, and
        // both sides touch it by atomic operations only.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Copies `length` bytes from `at`, which may go round the end, into `record`.
    #[allow(unsafe_code)]
    fn copy(&mut self, at: u64, length: usize) {
        let size = PAGES * self.page_bytes;
        let from = (at % size as u64) as usize;
        let first = length.min(size - from);
        self.record.clear();
        // SAFETY: both parts are within the mapped pages behind the first; the kernel does not write
        // there until the tail says that they were read.
        unsafe {
            let data = self.base.as_ptr().add(self.page_bytes);
            let part = std::slice::from_raw_parts(data.add(from), first);
            self.record.extend_from_slice(part);
            let rest = std::slice::from_raw_parts(data, length - first);
            self.record.extend_from_slice(rest);
        }
    }
}

impl Drop for Ring {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it is left.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), (1 + PAGES) * self.page_bytes) };
    }
}
