//! Connected byte stream (TCP or unix, optionally with TLS, or a channel in memory), read and written
//! without its own future: an engine's task polls it and keeps its buffers elsewhere.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::byte_channel::ChannelEnd;
use crate::tls::session::TlsStream;

/// Connected stream, registered with the core's runtime.
#[derive(Debug)]
pub enum Stream {
    /// TCP over IPv4 or IPv6.
    Tcp(TcpStream),
    /// A unix stream socket.
    Unix(UnixStream),
    /// A TLS session on one of them.
    Tls(Box<TlsStream>),
    /// One end of a channel to another task of the same core; it has no descriptor.
    Channel(ChannelEnd),
}

/// Socket family of a bare descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketFamily {
    /// TCP.
    Tcp,
    /// Unix.
    Unix,
}

impl Stream {
    /// Registers a connected, non-blocking descriptor with this core's runtime.
    ///
    /// # Errors
    /// epoll rejected it (no memory, or too many watches).
    pub fn from_fd(fd: OwnedFd, family: SocketFamily) -> io::Result<Self> {
        match family {
            SocketFamily::Tcp => TcpStream::from_std(fd.into()).map(Self::Tcp),
            SocketFamily::Unix => UnixStream::from_std(fd.into()).map(Self::Unix),
        }
    }

    /// Waits for bytes and reads them: returns the number of bytes, 0 at the end of the stream.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of the socket; a part may have been written.
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

    /// Reads and discards further bytes of the peer: to the end, or at most `bytes_max`.
    pub async fn discard(&mut self, bytes_max: usize) {
        let mut buffer = [0; 4_096];
        let mut total = 0;
        while total < bytes_max {
            match self.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => total += bytes,
            }
        }
    }

    /// Reads available bytes into `buffer`: returns the number of bytes, 0 at the end of the
    /// stream.
    ///
    /// A read that does not fill `buffer` proves the socket empty, so it costs one system call and
    /// not a second one to get `EAGAIN` (epoll(7), edge-triggered). Available bytes are read
    /// without checking the runtime's budget first: a caller that reads in a loop must limit it.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(stream) => return stream.poll_read(cx, buffer),
            Self::Channel(end) => return end.poll_read(cx, buffer),
            Self::Tcp(_) | Self::Unix(_) => {}
        }
        let buffer_len = buffer.len();
        loop {
            let result = self.attempt(Interest::READABLE, buffer_len, |fd| recv(fd, &mut *buffer));
            if let Some(outcome) = result {
                return Poll::Ready(outcome);
            }
            ready!(self.poll_read_ready(cx))?;
        }
    }

    /// Reads bytes that are known to be available; `None` if there are none. No task is registered.
    /// Not for TLS.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        self.attempt(Interest::READABLE, buffer.len(), |fd| recv(fd, &mut *buffer))
    }

    /// Writes as much as the socket accepts now; `None` if that is nothing. No task is registered.
    /// Not for TLS.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
        self.attempt(Interest::WRITABLE, bytes.len(), send)
    }

    /// Sends encrypted bytes of a TLS session that wait, such as its close_notify. Returns at once
    /// without TLS.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => stream.poll_flush(cx),
            Self::Tcp(_) | Self::Unix(_) | Self::Channel(_) => Poll::Ready(Ok(())),
        }
    }

    /// Checks for readable bytes without consuming them: 0 bytes are the end of the stream, 1
    /// stands for any number.
    ///
    /// # Errors
    /// The connection was reset, or is gone.
    pub fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(stream) => return stream.poll_peek(cx),
            Self::Channel(end) => return end.poll_peek(cx),
            Self::Tcp(_) | Self::Unix(_) => {}
        }
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut byte = [0];
            let peek = |fd: BorrowedFd<'_>| {
                rustix::net::recv(fd, &mut byte, RecvFlags::PEEK).map(|(bytes, _)| bytes)
            };
            if let Some(result) = self.attempt(Interest::READABLE, 1, peek) {
                return Poll::Ready(result);
            }
        }
    }

    /// Returns true if nothing is known to be readable: neither bytes nor an end. No task is woken
    /// when that changes. If the runtime is not sure, the kernel is asked.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        match self {
            Self::Tls(stream) => return stream.is_idle(),
            Self::Channel(end) => return end.is_idle(),
            Self::Tcp(_) | Self::Unix(_) => {}
        }
        let mut byte = [0];
        let peek =
            |fd: BorrowedFd<'_>| rustix::net::recv(fd, &mut byte, RecvFlags::PEEK).map(|(bytes, _)| bytes);
        self.attempt(Interest::READABLE, 1, peek).is_none()
    }

    /// Returns true if the kernel has unread bytes. Unlike [`Stream::is_idle`] it also finds bytes
    /// that the runtime does not know of yet, at the cost of a system call.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        match self {
            Self::Tls(stream) if stream.has_content() => return true,
            Self::Channel(end) => return end.has_unread(),
            _ => {}
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peek = |fd| rustix::net::recv(fd, &mut [0], flags).is_ok_and(|(bytes, _)| bytes > 0);
        self.fd().is_some_and(peek)
    }

    /// Returns the address that the peer connected to, or that we connect from; `None` on a unix
    /// socket.
    #[must_use]
    pub fn local_address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
            Self::Tls(stream) => stream.socket().local_address(),
            Self::Channel(end) => end.local_address(),
        }
    }

    /// Returns the address of the peer; `None` on a unix socket, and if the connection is gone.
    #[must_use]
    pub fn peer_address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
            Self::Tls(stream) => stream.socket().peer_address(),
            Self::Channel(end) => end.peer_address(),
        }
    }

    /// Returns the bytes received, and those acknowledged by the peer, since the connection was
    /// established (`TCP_INFO`, tcp(7)): the kernel counts them anyway. `None` without TCP, and if
    /// the kernel does not report them.
    #[must_use]
    pub fn tcp_byte_counts(&self) -> Option<(u64, u64)> {
        match self {
            Self::Tcp(stream) => read_tcp_byte_counts(stream.as_fd()),
            Self::Unix(_) | Self::Channel(_) => None,
            Self::Tls(stream) => stream.socket().tcp_byte_counts(),
        }
    }

    /// Returns the written bytes that the peer has not acknowledged (`SIOCOUTQ`, tcp(7); on a unix
    /// socket the memory of its unread data; in a channel the unread bytes). `None` if the kernel
    /// does not report it. While nothing is written, the peer has received as much as this
    /// decreases.
    #[must_use]
    pub fn unacked_bytes(&self) -> Option<u64> {
        match self {
            Self::Channel(end) => Some(end.unread_bytes() as u64),
            _ => self.fd().and_then(unacked_bytes),
        }
    }

    /// Returns true if the socket is a TCP socket.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Unix(_) | Self::Channel(_) => false,
            Self::Tls(stream) => stream.socket().is_tcp(),
        }
    }

    /// Returns true if the bytes of this stream are those of a socket, so that they can be moved
    /// with [`crate::splice`].
    #[must_use]
    pub fn is_plain_socket(&self) -> bool {
        matches!(self, Self::Tcp(_) | Self::Unix(_))
    }

    /// Returns true if this is a channel in memory.
    #[must_use]
    pub fn is_channel(&self) -> bool {
        matches!(self, Self::Channel(_))
    }

    /// Returns the descriptor of the socket; `None`: a channel has none.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Unix(stream) => Some(stream.as_fd()),
            Self::Tls(stream) => stream.socket().fd(),
            Self::Channel(_) => None,
        }
    }

    /// Writes as much of `bytes` as the socket accepts. As with [`Stream::poll_read`], a caller
    /// that writes in a loop must limit it.
    #[inline]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(stream) => return stream.poll_write(cx, &[IoSlice::new(bytes)]),
            Self::Channel(end) => return end.poll_write(cx, &[IoSlice::new(bytes)]),
            Self::Tcp(_) | Self::Unix(_) => {}
        }
        loop {
            let send = |fd: BorrowedFd<'_>| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL);
            if let Some(result) = self.attempt(Interest::WRITABLE, bytes.len(), send) {
                return Poll::Ready(result);
            }
            ready!(self.poll_write_ready(cx))?;
        }
    }

    /// Writes several slices in one system call, as much as the socket accepts.
    #[inline]
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(stream) => return stream.poll_write(cx, slices),
            Self::Channel(end) => return end.poll_write(cx, slices),
            Self::Tcp(_) | Self::Unix(_) => {}
        }
        let total_len = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.poll_write_ready(cx))?;
            let write = |fd: BorrowedFd<'_>| rustix::io::writev(fd, slices);
            if let Some(result) = self.attempt(Interest::WRITABLE, total_len, write) {
                return Poll::Ready(result);
            }
        }
    }

    /// Moves bytes from or to a socket by a `call` that may stop before the socket's end, so that
    /// only `EAGAIN` proves anything. Only for a [`Stream::is_plain_socket`]; an error otherwise.
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
        let mut partial = None;
        let Some(fd) = self.fd() else { return Some(Err(io::ErrorKind::Unsupported.into())) };
        let mut call_once = || match call(fd)? {
            moved if moved == 0 || moved >= expected => Ok(moved),
            moved => {
                partial = Some(moved);
                Err(io::ErrorKind::WouldBlock.into())
            }
        };
        let result = match self {
            Self::Tcp(stream) => stream.try_io(interest, &mut call_once),
            Self::Unix(stream) => stream.try_io(interest, &mut call_once),
            Self::Tls(_) | Self::Channel(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match (partial, result) {
            (Some(moved), _) => Some(Ok(moved)),
            (None, Err(error)) if is_retryable(&error) => None,
            (None, outcome) => Some(outcome),
        }
    }

    #[inline]
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
            Self::Tls(stream) => stream.socket().poll_write_ready(cx),
            // A channel polls itself.
            Self::Channel(_) => Poll::Ready(Ok(())),
        }
    }

    /// Polls for readable bytes, an end or an error, without reading.
    #[inline]
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
            Self::Tls(stream) => stream.socket().poll_read_ready(cx),
            // A channel polls itself.
            Self::Channel(_) => Poll::Ready(Ok(())),
        }
    }

    /// Sends small writes at once (`TCP_NODELAY`); does nothing without TCP.
    ///
    /// # Errors
    /// The kernel rejected it, which means that the connection is gone.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Unix(_) | Self::Channel(_) => Ok(()),
            Self::Tls(stream) => stream.socket().set_nodelay(),
        }
    }

    /// Ends one or both directions. A TLS session sends close_notify before; if the socket accepts
    /// nothing now, later reads send it and end the direction.
    ///
    /// # Errors
    /// The connection was already gone.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tls(stream) if how != Shutdown::Read => return stream.shut_down(how),
            Self::Channel(end) => end.shutdown(how),
            _ => {}
        }
        self.fd().map_or(Ok(()), |fd| socket2::SockRef::from(&fd).shutdown(how))
    }

    /// Makes the close send a reset, and leaves no `TIME_WAIT` behind (`SO_LINGER` 0).
    ///
    /// # Errors
    /// The kernel rejected it.
    pub fn reset_on_close(&mut self) -> io::Result<()> {
        self.omit_close_notify();
        if let Self::Channel(end) = self {
            end.reset_on_close();
        }
        self.fd().map_or(Ok(()), reset_on_close)
    }

    /// Does the same as [`Stream::reset_on_close`], but the reset does not leave this host and its
    /// networks: a peer beyond the first router receives nothing and waits. This is the silent end
    /// possible without privileges; a process with `CAP_NET_ADMIN` could use `TCP_REPAIR` (tcp(7)).
    ///
    /// # Errors
    /// Those of [`Stream::reset_on_close`].
    pub fn reset_silently_on_close(&mut self) -> io::Result<()> {
        let Some(fd) = self.fd() else { return self.reset_on_close() };
        // Only the option of the socket's family exists; a unix socket has neither.
        let _ = rustix::net::sockopt::set_ip_ttl(fd, 1);
        let _ = rustix::net::sockopt::set_ipv6_unicast_hops(fd, Some(1));
        self.reset_on_close()
    }
}

/// Polls the task of `cx` again after all other ready tasks, and after the sockets were checked for
/// events: for a poll that has worked enough in one turn. A plain wake would put it before the next
/// check.
pub fn yield_turn(cx: &mut Context<'_>) {
    let yielding = std::pin::pin!(tokio::task::yield_now());
    // Pending at the first poll, which schedules the wake.
    let _ = yielding.poll(cx);
}

/// Makes the next close of this socket a reset.
pub(crate) fn reset_on_close(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket2::SockRef::from(&fd).set_linger(Some(std::time::Duration::ZERO))
}

fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    rustix::net::recv(fd, buffer, RecvFlags::empty()).map(|(bytes, _)| bytes)
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[allow(unsafe_code)]
fn unacked_bytes(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel writes one int.
    let result = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
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
