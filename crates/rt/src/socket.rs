//! Connected socket (TCP or unix) of a core, read and written without its own future.
//! [`Stream`](crate::stream::Stream) adds TLS and channels in memory.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::receive_timestamps;

/// Connected socket, registered with the core's runtime.
#[derive(Debug)]
pub enum Socket {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    Unix(UnixStream),
    /// TCP, with the time at which the kernel received what is read.
    Timestamped(TcpStream),
}

/// Socket family of a bare descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFamily {
    Tcp,
    Unix,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Socket {
    /// Registers a connected, non-blocking descriptor with this core's runtime.
    ///
    /// # Errors
    /// epoll rejected it (no memory, or too many watches).
    pub(crate) fn from_fd(fd: OwnedFd, family: SocketFamily) -> io::Result<Self> {
        match family {
            SocketFamily::Tcp => TcpStream::from_std(fd.into()).map(Self::Tcp),
            SocketFamily::Unix => UnixStream::from_std(fd.into()).map(Self::Unix),
        }
    }

    pub(crate) fn family(&self) -> SocketFamily {
        match self {
            Self::Tcp(_) | Self::Timestamped(_) => SocketFamily::Tcp,
            Self::Unix(_) => SocketFamily::Unix,
        }
    }

    /// Reads available bytes into `buffer`: returns the number of bytes, 0 at the end of the stream.
    #[inline]
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Self::Timestamped(_) = self {
            return self.poll_read_timestamped(cx, buffer);
        }
        loop {
            if let Some(result) = self.try_read(buffer) {
                return Poll::Ready(result);
            }
            ready!(self.poll_read_ready(cx))?;
        }
    }

    /// Does the same for a task whose last read of this socket was pending: without an event since then it waits already.
    pub(crate) fn poll_read_again(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Self::Timestamped(_) = self {
            return self.poll_read_timestamped(cx, buffer);
        }
        let mut is_event = false;
        let result = self.attempt(Interest::READABLE, buffer.len(), |fd| {
            is_event = true;
            rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()).map(|(bytes, _)| bytes)
        });
        match result {
            Some(result) => Poll::Ready(result),
            None if is_event => self.poll_read(cx, buffer),
            None => Poll::Pending,
        }
    }

    /// Reads bytes that are known to be available; `None` if there are none. No task is registered.
    #[inline]
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        self.attempt(Interest::READABLE, buffer.len(), |fd| {
            rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()).map(|(bytes, _)| bytes)
        })
    }

    /// Reads as [`Socket::poll_read`], and stores the lag; apart, so that reads without timestamps stay short.
    #[inline(never)]
    fn poll_read_timestamped(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let length = buffer.len();
            let receive = |fd: BorrowedFd<'_>| receive_timestamps::receive(fd, &mut *buffer);
            if let Some(result) = self.attempt(Interest::READABLE, length, receive) {
                return Poll::Ready(result);
            }
            ready!(self.poll_read_ready(cx))?;
        }
    }

    /// Writes as much of `bytes` as the socket accepts.
    #[inline]
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(result) = self.try_write(bytes) {
                return Poll::Ready(result);
            }
            ready!(self.poll_write_ready(cx))?;
        }
    }

    /// Writes as much as the socket accepts now; `None` if that is nothing. No task is registered.
    #[inline]
    pub(crate) fn try_write(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
        self.attempt(Interest::WRITABLE, bytes.len(), send)
    }

    /// Writes several slices in one system call, as much as the socket accepts.
    #[inline]
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total_len = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.poll_write_ready(cx))?;
            let write = |fd: BorrowedFd<'_>| rustix::io::writev(fd, slices);
            if let Some(result) = self.attempt(Interest::WRITABLE, total_len, write) {
                return Poll::Ready(result);
            }
        }
    }

    /// Moves bytes from or to the socket by a `call` that may stop before the socket's end, so that
    /// only `EAGAIN` proves anything.
    #[inline]
    pub(crate) fn poll_move(
        &self,
        cx: &mut Context<'_>,
        interest: Interest,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if interest.is_readable() {
                ready!(self.poll_read_ready(cx))?;
            } else {
                ready!(self.poll_write_ready(cx))?;
            }
            if let Some(result) = self.attempt(interest, 0, &mut call) {
                return Poll::Ready(result);
            }
        }
    }

    /// Makes one system call on a socket that is expected to be ready; `None` if it was not. A call
    /// that moved less than `expected` has exhausted the socket for now. The readiness is then cleared
    /// in the runtime, so that the next poll waits instead of asking the kernel. The call is made
    /// directly: the C library's wrappers are thread cancellation points, which costs time.
    #[inline]
    pub(crate) fn attempt(
        &self,
        interest: Interest,
        expected: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut outcome = None;
        let fd = self.as_fd();
        let mut call_once = || match call(fd) {
            Ok(moved) => {
                outcome = Some(Ok(moved));
                let is_exhausted = moved != 0 && moved < expected;
                if is_exhausted { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            }
            Err(Errno::AGAIN) => Err(io::ErrorKind::WouldBlock.into()),
            Err(Errno::INTR) => Ok(()),
            Err(error) => {
                outcome = Some(Err(error));
                Ok(())
            }
        };
        let result = match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.try_io(interest, &mut call_once),
            Self::Unix(socket) => socket.try_io(interest, &mut call_once),
        };
        // It can only be `WouldBlock`, which owns nothing: several times per request, the call that drops it would
        // only look at its tag.
        std::mem::forget(result);
        outcome.map(|outcome| outcome.map_err(io::Error::from))
    }

    /// Checks for readable bytes without consuming them: 0 bytes are the end of the stream, 1
    /// stands for any number.
    ///
    /// # Errors
    /// The connection was reset, or is gone.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            if let Some(result) = self.try_peek() {
                return Poll::Ready(result);
            }
        }
    }

    /// Does the same for bytes that are known to be available; `None` if there are none. No task is
    /// registered. If the runtime is not sure, the kernel is asked.
    pub(crate) fn try_peek(&self) -> Option<io::Result<usize>> {
        let mut byte = [0];
        self.attempt(Interest::READABLE, 1, |fd| {
            rustix::net::recv(fd, &mut byte, RecvFlags::PEEK).map(|(bytes, _)| bytes)
        })
    }

    /// Polls for readable bytes, an end or an error, without reading.
    #[inline]
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.poll_read_ready(cx),
            Self::Unix(socket) => socket.poll_read_ready(cx),
        }
    }

    #[inline]
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.poll_write_ready(cx),
            Self::Unix(socket) => socket.poll_write_ready(cx),
        }
    }

    /// Returns true if the kernel has unread bytes.
    pub(crate) fn has_unread(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(self.as_fd(), &mut [0], flags).is_ok_and(|(bytes, _)| bytes > 0)
    }

    /// Returns the own address; `None` on a unix socket.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Asks the kernel for the time at which it receives bytes, if this is TCP and the kernel has such times.
    pub(crate) fn with_receive_timestamps(self) -> Self {
        match self {
            Self::Tcp(socket) if receive_timestamps::enable(&socket) => Self::Timestamped(socket),
            other => other,
        }
    }

    /// Returns the time between the arrival of the bytes of the latest read and that read; `None` if it is not known.
    #[inline]
    pub(crate) fn receive_lag_ns(&self) -> Option<u64> {
        match self {
            Self::Timestamped(_) => receive_timestamps::latest_lag_ns(),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Returns the address of the peer; `None` on a unix socket, and if the connection is gone.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    pub(crate) fn is_tcp(&self) -> bool {
        !matches!(self, Self::Unix(_))
    }

    /// Sends small writes at once (`TCP_NODELAY`); does nothing without TCP.
    ///
    /// # Errors
    /// The kernel rejected it, which means that the connection is gone.
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) | Self::Timestamped(socket) => socket.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// The connection was already gone.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        socket2::SockRef::from(self).shutdown(how)
    }

    /// Returns the written bytes that the peer has not acknowledged (`SIOCOUTQ`, tcp(7); on a unix
    /// socket the memory of its unread data). `None` if the kernel does not report it.
    #[allow(unsafe_code)]
    pub(crate) fn unacked_bytes(&self) -> Option<u64> {
        let fd = self.as_fd();
        let mut bytes: libc::c_int = 0;
        // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes one int.
        let result =
            unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { u64::try_from(bytes).ok() } else { None }
    }

    /// Returns the bytes received, and those acknowledged by the peer, since the connection was
    /// established (`TCP_INFO`, tcp(7)). `None` without TCP, and if the kernel does not report them.
    pub(crate) fn tcp_byte_counts(&self) -> Option<(u64, u64)> {
        match self {
            Self::Tcp(_) | Self::Timestamped(_) => read_tcp_byte_counts(self.as_fd()),
            Self::Unix(_) => None,
        }
    }
}

/// Makes the next close of this socket a reset.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket2::SockRef::from(&fd).set_linger(Some(std::time::Duration::ZERO))
}

/// Reads `tcpi_bytes_received` and `tcpi_bytes_acked`, which the C library's `tcp_info` lacks:
/// their offsets are fixed (include/uapi/linux/tcp.h).
#[allow(unsafe_code)]
fn read_tcp_byte_counts(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    const ACKED_OFFSET: usize = 120;
    const RECEIVED_OFFSET: usize = 128;
    const BYTES: usize = RECEIVED_OFFSET + 8;
    let mut info = [0u8; BYTES];
    let mut length = BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has as many, and returns
    // how many it wrote.
    let result = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&fd),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 || (length as usize) < BYTES {
        return None;
    }
    let number = |offset: usize| {
        let bytes: [u8; 8] = info[offset..offset + 8].try_into().ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    Some((number(RECEIVED_OFFSET)?, number(ACKED_OFFSET)?))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use super::*;
    use crate::cores::block_on;

    #[test]
    fn a_read_that_is_repeated_is_still_woken() {
        block_on(async {
            let (own, mut peer) = std::os::unix::net::UnixStream::pair().unwrap();
            own.set_nonblocking(true).unwrap();
            let socket = Socket::from_fd(own.into(), SocketFamily::Unix).unwrap();
            let mut buffer = [0; 8];
            poll_fn(|cx| {
                assert!(socket.poll_read(cx, &mut buffer).is_pending());
                Poll::Ready(())
            })
            .await;
            peer.write_all(b"abc").unwrap();
            let read = poll_fn(|cx| socket.poll_read_again(cx, &mut buffer)).await.unwrap();
            assert_eq!(&buffer[..read], b"abc");
            // An event whose bytes are gone has used up the registration.
            peer.write_all(b"d").unwrap();
            poll_fn(|cx| socket.poll_read_ready(cx)).await.unwrap();
            rustix::net::recv(socket.as_fd(), &mut [0; 8], RecvFlags::empty()).unwrap();
            let mut is_first = true;
            let read = poll_fn(|cx| {
                let polled = socket.poll_read_again(cx, &mut buffer);
                if std::mem::take(&mut is_first) {
                    assert!(polled.is_pending());
                    peer.write_all(b"ef").unwrap();
                }
                polled
            });
            let read = read.await.unwrap();
            assert_eq!(&buffer[..read], b"ef");
        });
    }
}
