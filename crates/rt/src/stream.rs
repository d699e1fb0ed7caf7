//! A connected byte stream, TCP or unix, read and written without a future of its own: an engine's
//! task polls it and keeps its buffers elsewhere.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connected stream, registered with the core's runtime.
#[derive(Debug)]
pub enum Stream {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// A unix stream socket.
    Unix(UnixStream),
}

/// Which kind of socket a bare descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// TCP.
    Tcp,
    /// Unix.
    Unix,
}

impl Stream {
    /// Registers a connected, non-blocking descriptor with this core's runtime.
    ///
    /// # Errors
    /// epoll refused it (no memory, or too many watches).
    pub fn from_fd(fd: OwnedFd, family: Family) -> io::Result<Self> {
        match family {
            Family::Tcp => TcpStream::from_std(fd.into()).map(Self::Tcp),
            Family::Unix => UnixStream::from_std(fd.into()).map(Self::Unix),
        }
    }

    /// Waits for bytes and reads them: the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// As of the socket.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As of the socket; a part may have been written.
    pub async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            while !bytes.is_empty() {
                let sent = ready!(self.poll_write(cx, bytes))?;
                bytes = &bytes[sent..];
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Reads what the other side still sends and throws it away: to its end, or `bytes_max` of it.
    pub async fn drain(&mut self, bytes_max: usize) {
        let mut buffer = [0; 4_096];
        let mut total = 0;
        while total < bytes_max {
            match self.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => total += bytes,
            }
        }
    }

    /// Reads what is there into `buffer`: the number of bytes, 0 at the end of the stream.
    ///
    /// A read that does not fill `buffer` proves the socket empty, so it costs one system call and
    /// not a second one to hear `EAGAIN` (epoll(7), edge-triggered). What can be read is read without
    /// asking the runtime's budget first: a caller that reads in a loop bounds it.
    #[inline]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let whole = buffer.len();
        loop {
            let outcome = self.attempt(Interest::READABLE, whole, |fd| recv(fd, &mut *buffer));
            if let Some(outcome) = outcome {
                return Poll::Ready(outcome);
            }
            ready!(self.poll_read_ready(cx))?;
        }
    }

    /// Looks whether anything can be read, and leaves it there: 0 bytes are the end of the stream, 1
    /// stands for any number.
    ///
    /// # Errors
    /// The connection was reset, or is gone.
    pub fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut byte = [0];
            let peek = |fd: BorrowedFd<'_>| {
                rustix::net::recv(fd, &mut byte, RecvFlags::PEEK).map(|(bytes, _)| bytes)
            };
            if let Some(outcome) = self.attempt(Interest::READABLE, 1, peek) {
                return Poll::Ready(outcome);
            }
        }
    }

    /// Whether nothing is known to be there to be read: neither bytes nor an end. Nobody is woken
    /// when that changes. Where the runtime is not sure, the kernel is asked.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let peek = |fd: BorrowedFd<'_>| {
            rustix::net::recv(fd, &mut byte, RecvFlags::PEEK).map(|(bytes, _)| bytes)
        };
        self.attempt(Interest::READABLE, 1, peek).is_none()
    }

    /// The address that the peer connected to, or that we connect from; `None` on a unix socket.
    #[must_use]
    pub fn local_address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Bytes that were received, and those that the peer has confirmed, since the connection stood
    /// (`TCP_INFO`, tcp(7)): the kernel counts them anyway. `None` on a unix socket, and where the
    /// kernel does not tell.
    #[must_use]
    pub fn carried(&self) -> Option<(u64, u64)> {
        match self {
            Self::Tcp(stream) => tcp_carried(stream.as_fd()),
            Self::Unix(_) => None,
        }
    }

    /// Bytes that were written and that the peer has not confirmed (`SIOCOUTQ`, tcp(7); on a unix socket
    /// memory of what it has not read). `None`: the kernel does not tell. While nothing is written, the
    /// peer takes as much as this falls.
    #[must_use]
    pub fn unacknowledged(&self) -> Option<u64> {
        unacknowledged(self.as_fd())
    }

    /// Whether this is TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Writes `bytes` as far as the socket takes them; as with [`Stream::poll_read`], a caller that
    /// writes in a loop bounds it.
    #[inline]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
            if let Some(outcome) = self.attempt(Interest::WRITABLE, bytes.len(), send) {
                return Poll::Ready(outcome);
            }
            ready!(self.poll_write_ready(cx))?;
        }
    }

    /// Writes several pieces in one system call, as far as the socket takes them.
    #[inline]
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let whole = pieces.iter().map(|piece| piece.len()).sum();
        loop {
            ready!(self.poll_write_ready(cx))?;
            let write = |fd: BorrowedFd<'_>| rustix::io::writev(fd, pieces);
            if let Some(outcome) = self.attempt(Interest::WRITABLE, whole, write) {
                return Poll::Ready(outcome);
            }
        }
    }

    /// Moves bytes from or to a socket by a `call` that may stop before the socket's end, so that
    /// only `EAGAIN` proves anything.
    #[inline]
    pub(crate) fn poll_move(
        &mut self,
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
            if let Some(outcome) = self.attempt(interest, 0, &mut call) {
                return Poll::Ready(outcome);
            }
        }
    }

    /// One system call on a socket that is thought to be ready; `None` when it was not. A call that
    /// moved less than the `whole` found the socket's end for now, which the runtime is told, so
    /// that the next poll waits instead of asking the kernel. The call is made directly: the C
    /// library's wrappers are points where a thread can be cancelled, and pay for it.
    #[inline]
    fn attempt(
        &self,
        interest: Interest,
        whole: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut part = None;
        let fd = self.as_fd();
        let mut once = || match call(fd)? {
            moved if moved == 0 || moved >= whole => Ok(moved),
            moved => {
                part = Some(moved);
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        let outcome = match self {
            Self::Tcp(stream) => stream.try_io(interest, &mut once),
            Self::Unix(stream) => stream.try_io(interest, &mut once),
        };
        match (part, outcome) {
            (Some(moved), _) => Some(Ok(moved)),
            (None, Err(error)) if is_again(&error) => None,
            (None, outcome) => Some(outcome),
        }
    }

    #[inline]
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Whether bytes, the end or an error can be read, without reading them.
    #[inline]
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Sends small writes at once (`TCP_NODELAY`); nothing to do on a unix socket.
    ///
    /// # Errors
    /// The kernel refused, which means that the connection is gone.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// The connection was gone already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        socket2::SockRef::from(&self.as_fd()).shutdown(how)
    }

    /// Makes the close send a reset, and leaves no `TIME_WAIT` behind (`SO_LINGER` 0).
    ///
    /// # Errors
    /// The kernel refused.
    pub fn reset_on_close(&self) -> io::Result<()> {
        reset_on_close(self.as_fd())
    }

    /// As [`Stream::reset_on_close`], and the reset does not leave this host and the networks that it
    /// is in: whoever is beyond the first router hears nothing and waits. What a process without
    /// privileges can do of a silent end; one with `CAP_NET_ADMIN` could use `TCP_REPAIR` (tcp(7)).
    ///
    /// # Errors
    /// As [`Stream::reset_on_close`].
    pub fn vanish_on_close(&self) -> io::Result<()> {
        let fd = self.as_fd();
        // Of the two, only the one of its family is there; a unix socket has neither.
        let _ = rustix::net::sockopt::set_ip_ttl(fd, 1);
        let _ = rustix::net::sockopt::set_ipv6_unicast_hops(fd, Some(1));
        reset_on_close(fd)
    }
}

/// Has the task of `cx` polled again after all others that are ready, and after the sockets were
/// checked for events: what a poll does that has worked enough for one turn. A plain wake would put it
/// before the next check.
pub fn yield_turn(cx: &mut Context<'_>) {
    let yielding = std::pin::pin!(tokio::task::yield_now());
    // Pending at the first poll, which is what has the task woken.
    let _ = yielding.poll(cx);
}

/// The next close of this socket is a reset.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket2::SockRef::from(&fd).set_linger(Some(std::time::Duration::ZERO))
}

fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    rustix::net::recv(fd, buffer, RecvFlags::empty()).map(|(bytes, _)| bytes)
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

#[allow(unsafe_code)]
fn unacknowledged(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes one int.
    let result = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::TIOCOUTQ, &raw mut bytes)
    };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}

/// `tcpi_bytes_received` and `tcpi_bytes_acked`, which the C library's `tcp_info` does not have: where
/// they stand is fixed (include/uapi/linux/tcp.h).
#[allow(unsafe_code)]
fn tcp_carried(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    const ACKED_AT: usize = 120;
    const RECEIVED_AT: usize = 128;
    const BYTES: usize = RECEIVED_AT + 8;
    let mut info = [0u8; BYTES];
    let mut length = BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has as many, and says how
    // many it wrote.
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
    let number = |at: usize| {
        let bytes: [u8; 8] = info[at..at + 8].try_into().ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    Some((number(RECEIVED_AT)?, number(ACKED_AT)?))
}
