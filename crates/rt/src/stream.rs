//! Connected byte stream (a socket, optionally with TLS, a channel in memory, or TCP in user space), read and written
//! without its own future: an engine's task polls it and keeps its buffers elsewhere.

mod tls;

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;

use crate::byte_channel::ChannelEnd;
use crate::socket::{Socket, SocketFamily, reset_on_close};
use crate::tls::TlsStream;
use crate::user_tcp::UserStream;

/// Connected stream, registered with the core's runtime.
#[derive(Debug)]
pub enum Stream {
    /// A socket without TLS.
    Plain(Socket),
    /// A TLS session on a socket, or on a TCP connection in user space.
    Tls(Box<TlsStream>),
    /// One end of a channel to another task of the same core; it has no descriptor.
    Channel(ChannelEnd),
    /// A TCP connection in user space; it has no descriptor.
    User(UserStream),
}

impl Stream {
    /// Registers a connected, non-blocking descriptor with this core's runtime.
    ///
    /// # Errors
    /// epoll rejected it (no memory, or too many watches).
    pub fn from_fd(fd: OwnedFd, family: SocketFamily) -> io::Result<Self> {
        Socket::from_fd(fd, family).map(Self::Plain)
    }

    /// Asks the kernel for the time at which it receives bytes, for [`Stream::receive_lag_ns`]. Has no effect without TCP,
    /// and on a TLS session that has begun.
    #[must_use]
    pub fn with_receive_timestamps(self) -> Self {
        match self {
            Self::Plain(socket) => Self::Plain(socket.with_receive_timestamps()),
            other => other,
        }
    }

    /// Returns the time between the arrival in the kernel of what the latest read returned, of its last bytes, and that
    /// read. `None` without timestamps.
    #[inline]
    #[must_use]
    pub fn receive_lag_ns(&self) -> Option<u64> {
        match self {
            Self::Plain(socket) => socket.receive_lag_ns(),
            Self::Tls(stream) => stream.transport().socket().and_then(Socket::receive_lag_ns),
            Self::Channel(_) | Self::User(_) => None,
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
            Self::Plain(socket) => socket.poll_read(cx, buffer),
            Self::Tls(stream) => stream.poll_read(cx, buffer),
            Self::Channel(end) => end.poll_read(cx, buffer),
            Self::User(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Reads like [`Stream::poll_read`] where nothing is expected yet: a socket whose readiness is not known is not tried
    /// first.
    pub fn poll_read_later(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Self::Plain(socket) = self {
            ready!(socket.poll_read_ready(cx))?;
        }
        self.poll_read(cx, buffer)
    }

    /// Reads like [`Stream::poll_read`] for a task whose last read of this stream was pending: without an event since then
    /// it is registered already.
    pub fn poll_read_again(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read_again(cx, buffer),
            Self::Tls(_) | Self::Channel(_) | Self::User(_) => self.poll_read(cx, buffer),
        }
    }

    /// Sends encrypted bytes of a TLS session that wait, such as its close_notify. Returns at once
    /// without TLS.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => stream.poll_flush(cx),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => Poll::Ready(Ok(())),
        }
    }

    /// Checks for readable bytes without consuming them: 0 bytes are the end of the stream, 1
    /// stands for any number.
    ///
    /// # Errors
    /// The connection was reset, or is gone.
    pub fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_peek(cx),
            Self::Tls(stream) => stream.poll_peek(cx),
            Self::Channel(end) => end.poll_peek(cx),
            Self::User(stream) => stream.poll_peek(cx),
        }
    }

    /// Returns true if nothing is known to be readable: neither bytes nor an end. No task is woken
    /// when that changes. If the runtime is not sure, the kernel is asked.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        match self {
            Self::Plain(socket) => socket.try_peek().is_none(),
            Self::Tls(stream) => stream.is_idle(),
            Self::Channel(end) => end.is_idle(),
            Self::User(stream) => stream.is_idle(),
        }
    }

    /// Returns true if the kernel has unread bytes. Unlike [`Stream::is_idle`] it also finds bytes
    /// that the runtime does not know of yet, at the cost of a system call.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.has_unread(),
            Self::Tls(stream) => stream.has_content() || stream.transport().has_unread(),
            Self::Channel(end) => end.has_unread(),
            Self::User(stream) => stream.has_unread(),
        }
    }

    /// Returns the address that the peer connected to, or that we connect from; `None` on a unix
    /// socket.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.local_address(),
            Self::Tls(stream) => stream.transport().local_address(),
            Self::Channel(end) => end.local_address(),
            Self::User(stream) => stream.local_address(),
        }
    }

    /// Returns the address of the peer; `None` on a unix socket, and if the connection is gone.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.peer_address(),
            Self::Tls(stream) => stream.transport().peer_address(),
            Self::Channel(end) => end.peer_address(),
            Self::User(stream) => stream.peer_address(),
        }
    }

    /// Returns the bytes received, and those acknowledged by the peer, since the connection was
    /// established (`TCP_INFO`, tcp(7)): the kernel counts them anyway. `None` without TCP, and if
    /// the kernel does not report them.
    #[must_use]
    pub fn tcp_byte_counts(&self) -> Option<(u64, u64)> {
        match self.user() {
            Some(stream) => stream.byte_counts(),
            None => self.socket().and_then(Socket::tcp_byte_counts),
        }
    }

    /// Returns the written bytes that the peer has not acknowledged (`SIOCOUTQ`, tcp(7); on a unix
    /// socket the memory of its unread data; in a channel the unread bytes). `None` if the kernel
    /// does not report it. While nothing is written, the peer has received as much as this
    /// decreases.
    #[must_use]
    pub fn unacked_bytes(&self) -> Option<u64> {
        match self {
            Self::Plain(socket) => socket.unacked_bytes(),
            Self::Tls(stream) => stream.transport().unacked_bytes(),
            Self::Channel(end) => Some(end.unread_bytes() as u64),
            Self::User(stream) => stream.unacked_bytes(),
        }
    }

    /// Returns the bytes that the peer has acknowledged of the `written_bytes` so far, from any start; with
    /// TLS those of the records, also of a write that is not complete. Without a report of the kernel all
    /// sent bytes count.
    #[must_use]
    pub fn confirmed_bytes(&self, written_bytes: u64) -> u64 {
        let sent_bytes = self.tls_byte_counts().map_or(written_bytes, |counts| counts.sent);
        sent_bytes.wrapping_sub(self.unacked_bytes().unwrap_or(0))
    }

    /// Returns true if this is a TCP connection, of the kernel or in user space.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.user().is_some() || self.socket().is_some_and(Socket::is_tcp)
    }

    /// Returns true if the bytes of this stream are those of a socket, so that they can be moved
    /// with [`crate::splice`].
    #[must_use]
    pub fn is_plain_socket(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Returns true if this is a channel in memory.
    #[must_use]
    pub fn is_channel(&self) -> bool {
        matches!(self, Self::Channel(_))
    }

    /// Returns the descriptor of the socket; `None`: a channel and a connection in user space have none.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket().map(Socket::as_fd)
    }

    /// Returns the socket, below the session of TLS if there is one; `None`: there is none.
    #[inline]
    fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(stream) => stream.transport().socket(),
            Self::Channel(_) | Self::User(_) => None,
        }
    }

    /// Returns the connection in user space, below the session of TLS if there is one; `None`: there is none.
    fn user(&self) -> Option<&UserStream> {
        match self {
            Self::User(stream) => Some(stream),
            Self::Tls(stream) => stream.transport().user(),
            Self::Plain(_) | Self::Channel(_) => None,
        }
    }

    /// Returns the socket of a [`Stream::is_plain_socket`].
    ///
    /// # Errors
    /// `Unsupported`: the bytes of this stream are not those of a socket.
    pub(crate) fn plain_socket(&self) -> io::Result<&Socket> {
        match self {
            Self::Plain(socket) => Ok(socket),
            Self::Tls(_) | Self::Channel(_) | Self::User(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Writes as much of `bytes` as the socket accepts. As with [`Stream::poll_read`], a caller
    /// that writes in a loop must limit it.
    #[inline]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(cx, bytes),
            Self::Tls(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
            Self::Channel(end) => end.poll_write(cx, &[IoSlice::new(bytes)]),
            Self::User(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
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
            Self::Plain(socket) => socket.poll_write_vectored(cx, slices),
            Self::Tls(stream) => stream.poll_write(cx, slices),
            Self::Channel(end) => end.poll_write(cx, slices),
            Self::User(stream) => stream.poll_write(cx, slices),
        }
    }

    /// Moves bytes from or to a socket by a `call` that may stop before the socket's end, so that
    /// only `EAGAIN` proves anything. Only for a [`Stream::is_plain_socket`]; an error otherwise.
    #[inline]
    pub(crate) fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        interest: Interest,
        call: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.plain_socket()?.poll_move(cx, interest, call)
    }

    /// Sends small writes at once (`TCP_NODELAY`); does nothing without TCP.
    ///
    /// # Errors
    /// The kernel rejected it, which means that the connection is gone.
    pub fn set_nodelay(&self) -> io::Result<()> {
        self.socket().map_or(Ok(()), Socket::set_nodelay)
    }

    /// Ends one or both directions. A TLS session sends close_notify before; if the socket accepts
    /// nothing now, later reads send it and end the direction.
    ///
    /// # Errors
    /// The connection was already gone.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown(how),
            Self::Tls(stream) if how == Shutdown::Read => stream.transport().shutdown(how),
            Self::Tls(stream) => stream.shut_down(how),
            Self::Channel(end) => {
                end.shutdown(how);
                Ok(())
            }
            Self::User(stream) => stream.shutdown(how),
        }
    }

    /// Makes the close send a reset, and leaves no `TIME_WAIT` behind (`SO_LINGER` 0).
    ///
    /// # Errors
    /// The kernel rejected it.
    pub fn reset_on_close(&mut self) -> io::Result<()> {
        self.omit_close_notify();
        match (&*self, self.user()) {
            (Self::Channel(end), _) => end.reset_on_close(),
            (_, Some(stream)) => stream.reset_on_close(),
            (_, None) => {}
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
