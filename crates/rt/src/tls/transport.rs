//! Byte stream below a TLS session: a socket of the kernel, or a TCP connection in user space.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::socket::Socket;
use crate::user_tcp::UserStream;

/// Byte stream below a TLS session.
#[derive(Debug)]
pub(crate) enum Transport {
    Socket(Socket),
    User(UserStream),
}

impl Transport {
    /// Returns the socket; `None`: a connection in user space has none.
    #[inline]
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Socket(socket) => Some(socket),
            Self::User(_) => None,
        }
    }

    /// Returns the connection in user space.
    pub(crate) fn user(&self) -> Option<&UserStream> {
        match self {
            Self::Socket(_) => None,
            Self::User(stream) => Some(stream),
        }
    }

    /// Moves a connection in user space out; what is left is closed.
    pub(crate) fn take_user(&mut self) -> Option<UserStream> {
        match self {
            Self::Socket(_) => None,
            Self::User(stream) => Some(stream.take()),
        }
    }

    #[inline]
    pub(super) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_read(cx, buffer),
            Self::User(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Reads bytes that are known to be available; `None` if there are none. No task is registered.
    #[inline]
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.try_read(buffer),
            Self::User(stream) => stream.try_read(buffer),
        }
    }

    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.poll_write(cx, bytes),
            Self::User(stream) => stream.poll_write(cx, &[io::IoSlice::new(bytes)]),
        }
    }

    /// Writes as much as is accepted now; `None` if that is nothing. No task is registered.
    #[inline]
    pub(super) fn try_write(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        match self {
            Self::Socket(socket) => socket.try_write(bytes),
            Self::User(stream) => stream.try_write(bytes),
        }
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// The connection was already gone.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.shutdown(how),
            Self::User(stream) => stream.shutdown(how),
        }
    }

    /// Discards received bytes once; `None`: none are there. 0 is the end, as is a failure.
    pub(super) fn discard(&self, buffer: &mut [u8]) -> Option<usize> {
        match self {
            // The kernel is asked: the runtime may not know of the last bytes yet.
            Self::Socket(socket) => match rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => None,
                Ok((bytes, _)) => Some(bytes),
                Err(_) => Some(0),
            },
            Self::User(stream) => stream.try_read(buffer).map(|read| read.unwrap_or(0)),
        }
    }

    pub(crate) fn has_unread(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.has_unread(),
            Self::User(stream) => stream.has_unread(),
        }
    }

    pub(crate) fn unacked_bytes(&self) -> Option<u64> {
        match self {
            Self::Socket(socket) => socket.unacked_bytes(),
            Self::User(stream) => stream.unacked_bytes(),
        }
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(socket) => socket.local_address(),
            Self::User(stream) => stream.local_address(),
        }
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(socket) => socket.peer_address(),
            Self::User(stream) => stream.peer_address(),
        }
    }
}
