//! TLS of a [`Stream`]: the begin of its session, its handshake and its properties.

use std::io;
use std::os::fd::AsFd as _;
use std::task::{Context, Poll};

use super::Stream;
use crate::tls::{ClientTls, ServerTls, TlsByteCounts, TlsInfo, TlsStream, Transport, parse_server_name};

impl Stream {
    fn into_transport(self) -> io::Result<Transport> {
        match self {
            Self::Plain(socket) => Ok(Transport::Socket(socket)),
            Self::User(stream) => Ok(Transport::User(stream)),
            Self::Tls(_) | Self::Channel(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Begins the server's end of a TLS session on this stream.
    ///
    /// # Errors
    /// The settings do not suit the protocol. `Unsupported`: the stream is a channel, or has TLS.
    pub fn accept_tls(self, tls: &ServerTls) -> io::Result<Self> {
        TlsStream::accept(self.into_transport()?, tls.config()).map(|stream| Self::Tls(Box::new(stream)))
    }

    /// Does the same as [`Stream::accept_tls`] for a session that follows a header in clear, which
    /// is read like any stream. [`Stream::begin_tls`] begins the session.
    ///
    /// # Errors
    /// Those of [`Stream::accept_tls`].
    pub fn accept_tls_behind_header(self, tls: &ServerTls) -> io::Result<Self> {
        let mut stream = TlsStream::accept(self.into_transport()?, tls.config())?;
        stream.start_plain();
        Ok(Self::Tls(Box::new(stream)))
    }

    /// Begins the session of [`Stream::accept_tls_behind_header`]. `received` are the bytes that were
    /// read behind the header.
    pub fn begin_tls(&mut self, received: &[u8]) {
        if let Self::Tls(stream) = self {
            stream.begin(received);
        }
    }

    /// Lets the handshake of a server's end fail without an alert if its peer sends text instead of TLS, so that
    /// [`Stream::take_text`] can return it.
    pub fn detect_text(&mut self) {
        if let Self::Tls(stream) = self {
            stream.detect_text();
        }
    }

    /// Makes this a stream without TLS if the peer has sent text instead, and returns the text received so far. `None`:
    /// the peer has not, or there is no descriptor for it.
    pub fn take_text(&mut self) -> Option<Vec<u8>> {
        let Self::Tls(stream) = self else { return None };
        if !stream.has_text() {
            return None;
        }
        // The session owns its socket until it is dropped.
        let plain = match stream.transport().socket() {
            Some(socket) => Self::from_fd(socket.as_fd().try_clone_to_owned().ok()?, socket.family()).ok()?,
            None => Self::User(stream.take_user()?),
        };
        let text = stream.take_text();
        *self = plain;
        Some(text)
    }

    /// Begins the client's end of a TLS session on this stream. `server_name` is the DNS name or the
    /// IP address that the server has to prove.
    ///
    /// # Errors
    /// `InvalidInput`: `server_name` is neither; those of [`Stream::accept_tls`].
    pub fn connect_tls(self, tls: &ClientTls, server_name: &str) -> io::Result<Self> {
        let name = parse_server_name(server_name)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        TlsStream::connect(self.into_transport()?, tls.config(), name)
            .map(|stream| Self::Tls(Box::new(stream)))
    }

    /// Completes the handshake of TLS. Reads and writes do so, too. Returns at once without TLS.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData`: the handshake failed.
    pub fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => stream.poll_handshake(cx),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns the properties of the TLS session; `None` during its handshake, and without TLS.
    #[must_use]
    pub fn tls_info(&self) -> Option<TlsInfo> {
        match self {
            Self::Tls(stream) => stream.info(),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => None,
        }
    }

    /// Returns the names of the TLS version and the cipher suite as [`Stream::tls_info`] does, for
    /// each request: nothing is allocated.
    #[must_use]
    pub fn tls_names(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Tls(stream) => stream.names(),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => None,
        }
    }

    /// Returns the server name that the client of a TLS session sent.
    #[must_use]
    pub fn tls_server_name(&self) -> Option<&str> {
        match self {
            Self::Tls(stream) => stream.server_name(),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => None,
        }
    }

    /// Returns the certificate of the peer in DER, if it has sent one and proven that it is its own.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Tls(stream) => stream.peer_certificate(),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => None,
        }
    }

    /// Returns the encrypted bytes of a TLS session that went through its socket.
    #[must_use]
    pub fn tls_byte_counts(&self) -> Option<TlsByteCounts> {
        match self {
            Self::Tls(stream) => Some(stream.byte_counts()),
            Self::Plain(_) | Self::Channel(_) | Self::User(_) => None,
        }
    }

    /// Returns true if a TLS session has begun a write that is not complete: part of its bytes may
    /// have been sent, and no others can follow until it is repeated.
    #[must_use]
    pub fn has_unfinished_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.has_unfinished_write())
    }

    /// Makes the end of a TLS session look truncated: the peer receives no close_notify.
    pub fn omit_close_notify(&mut self) {
        if let Self::Tls(stream) = self {
            stream.abort();
        }
    }

    /// Returns true if this is a TLS session.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Returns true if a TLS session ended without close_notify: a body that only the end of the
    /// stream delimits may be truncated then (RFC 9112 §9.8).
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.is_truncated())
    }
}
