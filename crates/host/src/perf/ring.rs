//! Ring buffer that the kernel writes records into, and that weir reads (perf_event_open(2), "MMAP
//! layout").
//!
//! [`super::records`] parses the records.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of records in one ring, a power of two. With the page before them this is the memory that
/// an unprivileged user may have locked per CPU (`kernel.perf_event_mlock_kb`).
const PAGES: usize = 128;
/// `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// Minimum size of a record: its header.
const HEADER_BYTES: usize = 8;

/// A ring buffer. Dropping it unmaps the buffer; the event that it was mapped from may be closed
/// before.
#[derive(Debug)]
pub(super) struct RingBuffer {
    base: NonNull<u8>,
    page_bytes: usize,
    record: Vec<u8>,
}

#[allow(unsafe_code)]
// SAFETY: the mapping belongs to this value alone, and nothing about it belongs to a thread.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    #[allow(unsafe_code)]
    pub(super) fn new(event: &OwnedFd) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        let (length, access) = ((1 + PAGES) * page_bytes, libc::PROT_READ | libc::PROT_WRITE);
        let fd = event.as_raw_fd();
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, page_bytes, record: Vec::new() })
    }

    /// Calls `each` with every record since the last call, and frees its space.
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        // This load makes everything visible that the kernel wrote before it moved the head.
        let head = self.counter(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.counter(TAIL_AT).load(Ordering::Relaxed);
        while head.wrapping_sub(tail) >= HEADER_BYTES as u64 {
            self.copy(tail, HEADER_BYTES);
            let size = usize::from(u16::from_ne_bytes([self.record[6], self.record[7]]));
            if size < HEADER_BYTES || size as u64 > head.wrapping_sub(tail) {
                // The kernel writes no such record; if it did, the records behind it could not be
                // separated.
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
        // SAFETY: the first page is mapped for as long as `self` lives, the address is aligned, and
        // both sides access it by atomic operations only.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Copies `length` bytes from `position`, which may wrap around the end, into `record`.
    #[allow(unsafe_code)]
    fn copy(&mut self, position: u64, length: usize) {
        let size = PAGES * self.page_bytes;
        let from = (position % size as u64) as usize;
        let first = length.min(size - from);
        self.record.clear();
        // SAFETY: both parts are within the mapped pages behind the first; the kernel does not
        // write there until the tail marks them as read.
        unsafe {
            let data = self.base.as_ptr().add(self.page_bytes);
            let part = std::slice::from_raw_parts(data.add(from), first);
            self.record.extend_from_slice(part);
            let rest = std::slice::from_raw_parts(data, length - first);
            self.record.extend_from_slice(rest);
        }
    }
}

impl Drop for RingBuffer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no reference into it is left.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), (1 + PAGES) * self.page_bytes) };
    }
}
