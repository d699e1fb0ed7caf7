//! Memory in a file without a name (memfd_create(2)): others read it as memory, and the kernel sends it to sockets
//! without a copy (sendfile(2)).
//!
//! A page that was given to a socket stays in its queue until the peer has it. So an extent is written once, before
//! anybody reads it, and is freed by a hole in the file (`FALLOC_FL_PUNCH_HOLE`): the file gets new pages for the next
//! extent there, and those of the queue keep their bytes. Huge pages are excluded, because a hole in one overwrites it.

#![expect(
    clippy::disallowed_types,
    reason = "threads share the free ranges; a lock is held to take or return one"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A file in memory, and its mapping.
#[derive(Debug)]
pub struct FileMemory {
    file: OwnedFd,
    mapping: Mapping,
    page_bytes: usize,
    free: Mutex<FreeRanges>,
}

/// A shared mapping of a file.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, and has no state of a thread. Its bytes are written only by the owner of a
// range that nobody else has.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

/// Bytes in a file in memory. They never change; their pages are free again with the end of the extent.
#[derive(Debug)]
pub struct FileExtent {
    memory: Arc<FileMemory>,
    start: usize,
    length: usize,
}

impl FileMemory {
    /// Creates a file of at most so many bytes, which needs memory only for its extents. A thread that uses it, or drops
    /// an extent, must have its descriptor ([`FileMemory::raw_fd`]) in its table ([`crate::cores::FdTable`]).
    ///
    /// # Errors
    /// The kernel has no such files, or does not let this process use them; or a limit of the process is too low.
    pub fn create(name: &str, bytes: usize) -> io::Result<Arc<Self>> {
        let page_bytes = rustix::param::page_size();
        // A file beyond the limit would end the process by a signal.
        if getrlimit(Resource::Fsize).current.is_some_and(|max| max < bytes as u64) {
            return Err(io::Error::other("the limit of the size of files (RLIMIT_FSIZE) is too low"));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            // Unknown before Linux 6.3.
            Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
            result => result?,
        };
        rustix::fs::ftruncate(&file, bytes as u64)?;
        // A shorter file would make reads of its mapping fail.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Mapping::create(file.as_fd(), bytes)?;
        let free = Mutex::new(FreeRanges::new(bytes / page_bytes * page_bytes));
        let memory = Arc::new(Self { file, mapping, page_bytes, free });
        memory.prepare(0, page_bytes)?;
        memory.punch(0, page_bytes)?;
        Ok(memory)
    }

    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Copies bytes to an extent. `None`: there is no room, or no memory.
    pub fn store<'p>(self: &Arc<Self>, parts: impl Iterator<Item = &'p [u8]> + Clone) -> Option<FileExtent> {
        let length: usize = parts.clone().map(<[u8]>::len).sum();
        let bytes = length.checked_next_multiple_of(self.page_bytes).filter(|bytes| *bytes > 0)?;
        let start = self.free.lock().unwrap_or_else(PoisonError::into_inner).take(bytes)?;
        let extent = FileExtent { memory: Arc::clone(self), start, length };
        self.prepare(start, bytes).ok()?;
        let mut position = start;
        for part in parts {
            self.mapping.write(position, part);
            position += part.len();
        }
        Some(extent)
    }

    /// Returns the memory of an extent of this length: that of its pages.
    pub fn bytes_of(&self, length: usize) -> usize {
        length.next_multiple_of(self.page_bytes)
    }

    /// Gives a range its pages. Without this, a write would end the process by a signal if there is no memory.
    fn prepare(&self, start: usize, bytes: usize) -> io::Result<()> {
        self.mapping.advise(start, bytes, libc::MADV_POPULATE_WRITE)
    }

    /// Takes the pages of a range out of the file.
    fn punch(&self, start: usize, bytes: usize) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, start as u64, bytes as u64)
    }
}

impl FileExtent {
    /// Returns the file, and the offset of the first byte in it.
    pub fn file_offset(&self) -> (BorrowedFd<'_>, u64) {
        (self.memory.file.as_fd(), self.start as u64)
    }

    /// Returns the memory that it occupies.
    pub fn memory_bytes(&self) -> usize {
        self.memory.bytes_of(self.length)
    }
}

impl Deref for FileExtent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.mapping.bytes(self.start, self.length)
    }
}

impl Drop for FileExtent {
    fn drop(&mut self) {
        let bytes = self.memory_bytes();
        // A range whose pages stay is never used again: they may be in the queue of a socket.
        if self.memory.punch(self.start, bytes).is_ok() {
            self.memory.free.lock().unwrap_or_else(PoisonError::into_inner).put(self.start, bytes);
        }
    }
}

#[allow(unsafe_code)]
impl Mapping {
    fn create(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: the kernel chooses the address, so that no other memory is replaced.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { start, bytes };
        match mapping.advise(0, bytes, libc::MADV_NOHUGEPAGE) {
            // A kernel without huge pages does not know the advice.
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
            _ => {}
        }
        mapping.advise(0, bytes, libc::MADV_DONTDUMP)?;
        mapping.advise(0, bytes, libc::MADV_DONTFORK)?;
        Ok(mapping)
    }

    fn advise(&self, start: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        let address = self.address(start, bytes).cast::<c_void>();
        // SAFETY: the range is one of this mapping, and none of the advices above changes its bytes.
        match unsafe { libc::madvise(address, bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Copies bytes to a range that has pages, and that only the caller has.
    fn write(&self, start: usize, bytes: &[u8]) {
        // SAFETY: the range is one of this mapping, and no reference to it exists: it was taken out of the free ranges,
        // and its extent is not returned yet.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address(start, bytes.len()), bytes.len())
        }
    }

    /// Returns the bytes of an extent.
    fn bytes(&self, start: usize, length: usize) -> &[u8] {
        // SAFETY: the range is one of this mapping. Nothing writes to it while its extent exists, which the caller has;
        // and the file cannot become shorter.
        unsafe { std::slice::from_raw_parts(self.address(start, length), length) }
    }

    fn address(&self, start: usize, bytes: usize) -> *mut u8 {
        assert!(start.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a range of another mapping");
        // SAFETY: the offset is within the mapping.
        unsafe { self.start.as_ptr().add(start) }
    }
}

#[allow(unsafe_code)]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no reference to it exists, because extents keep it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Ranges that no extent has. Of those that are long enough, the shortest one is taken: so the mapping needs page
/// tables for little more than what is in use.
#[derive(Debug, Default)]
struct FreeRanges {
    lengths: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
}

impl FreeRanges {
    fn new(bytes: usize) -> Self {
        let mut ranges = Self::default();
        ranges.insert(0, bytes);
        ranges
    }

    fn take(&mut self, bytes: usize) -> Option<usize> {
        let &(length, start) = self.by_length.range((bytes, 0)..).next()?;
        self.remove(start, length);
        if length > bytes {
            self.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Returns a range, and joins it with its neighbours.
    fn put(&mut self, mut start: usize, mut bytes: usize) {
        if let Some((&before, &length)) = self.lengths.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            (start, bytes) = (before, bytes + length);
        }
        if let Some(&length) = self.lengths.get(&(start + bytes)) {
            self.remove(start + bytes, length);
            bytes += length;
        }
        self.insert(start, bytes);
    }

    fn insert(&mut self, start: usize, bytes: usize) {
        self.lengths.insert(start, bytes);
        self.by_length.insert((bytes, start));
    }

    fn remove(&mut self, start: usize, bytes: usize) {
        self.lengths.remove(&start);
        self.by_length.remove(&(bytes, start));
    }
}

#[cfg(test)]
mod tests;
