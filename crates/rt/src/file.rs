//! Regular files on a core: sending them by the kernel, and reads that do not wait for the disk.

use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};

use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::net::SendFlags;
use tokio::io::Interest;

use crate::stream::Stream;

impl Stream {
    /// Writes as much of `bytes` as the socket accepts, and lets the kernel wait for more before it sends
    /// the last of them (`MSG_MORE`, send(2)). Only for a [`Stream::is_plain_socket`].
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_write_more(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.plain_socket()?;
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
            let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, flags);
            if let Some(result) = socket.attempt(Interest::WRITABLE, bytes.len(), send) {
                return Poll::Ready(result);
            }
            ready!(socket.poll_write_ready(cx))?;
        }
    }

    /// Sends `bytes` bytes of a file from `offset`, as many as the socket accepts (sendfile(2)); 0: the
    /// file ends before them. Only for a [`Stream::is_plain_socket`].
    ///
    /// # Errors
    /// Those of the socket and of the file.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> Poll<io::Result<usize>> {
        let socket = self.plain_socket()?;
        loop {
            let send = |fd: BorrowedFd<'_>| {
                let mut position = offset;
                rustix::fs::sendfile(fd, file, Some(&mut position), bytes)
            };
            if let Some(result) = socket.attempt(Interest::WRITABLE, bytes, send) {
                return Poll::Ready(result);
            }
            ready!(socket.poll_write_ready(cx))?;
        }
    }
}

/// Returns whether a file has bytes from `offset` on. A file whose size is unknown has some.
pub fn has_bytes(file: BorrowedFd<'_>, offset: u64) -> bool {
    rustix::fs::fstat(file).map_or(true, |stat| u64::try_from(stat.st_size).unwrap_or(0) > offset)
}

/// Returns whether the byte at `offset` can be read without waiting for the disk (`RWF_NOWAIT`,
/// preadv2(2)). A file system without this check counts as cached.
pub fn is_cached(file: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
    !matches!(read, Err(rustix::io::Errno::AGAIN))
}

/// Asks the kernel to read `bytes` bytes from `offset` into the page cache (`POSIX_FADV_WILLNEED`), without
/// waiting for them.
pub fn read_ahead(file: BorrowedFd<'_>, offset: u64, bytes: u64) {
    // It is only advice: without it, later reads wait.
    let _ = fadvise(file, offset, NonZeroU64::new(bytes), Advice::WillNeed);
}
