//! Opens connections to servers: the socket, the PROXY header before a TLS session, and its
//! handshake.

use std::io;

use rt::address::Address;
use rt::namespace::Namespace;
use rt::stream::Stream;
use rt::tls::ClientTls;

use crate::outcome::EndReason;

/// Reason that there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The server could not be reached.
    Socket(io::Error),
    /// The TLS handshake failed.
    Handshake(io::Error),
    /// The server did not begin HTTP/2.
    NoHttp2,
    /// The server took too long.
    Timeout,
}

impl ConnectError {
    /// Returns the end code of a request that gets no connection.
    pub(crate) fn end(&self) -> EndReason {
        match self {
            Self::Socket(error) if rt::dial::is_exhausted(error) => EndReason::NoDescriptor,
            Self::Socket(_) => EndReason::ConnectFailed,
            Self::Handshake(_) => EndReason::TlsHandshakeFailed,
            Self::NoHttp2 => EndReason::NoHttp2,
            Self::Timeout => EndReason::ConnectTimeout,
        }
    }

    /// Returns the same error for another request that waited for the connection.
    pub(crate) fn duplicate(&self) -> Self {
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Self::Socket(error) => Self::Socket(copy(error)),
            Self::Handshake(error) => Self::Handshake(copy(error)),
            Self::NoHttp2 => Self::NoHttp2,
            Self::Timeout => Self::Timeout,
        }
    }
}

/// TLS session to begin on a new connection.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) tls: ClientTls,
    pub(crate) server_name: String,
}

/// Destination of a new connection.
#[derive(Clone, Debug)]
pub(crate) struct DialTarget {
    pub(crate) address: Address,
    /// `None`: the own namespace.
    pub(crate) namespace: Option<Namespace>,
    /// PROXY header, which is sent first; may be empty.
    pub(crate) header: Vec<u8>,
    pub(crate) session: Option<NewSession>,
}

impl DialTarget {
    /// Opens a connection.
    pub(crate) async fn open(self) -> Result<Stream, ConnectError> {
        let connected = rt::dial::connect_in(&self.address, None, self.namespace.as_ref()).await;
        let mut stream = connected.map_err(ConnectError::Socket)?;
        if !self.header.is_empty() {
            stream.send(&self.header).await.map_err(ConnectError::Socket)?;
        }
        let Some(session) = &self.session else { return Ok(stream) };
        let begun = stream.connect_tls(&session.tls, &session.server_name);
        let mut stream = begun.map_err(ConnectError::Handshake)?;
        let handshake = std::future::poll_fn(|cx| stream.poll_handshake(cx)).await;
        handshake.map_err(ConnectError::Handshake)?;
        Ok(stream)
    }
}
