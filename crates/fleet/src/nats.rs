//! Client of a NATS server: the core protocol with headers, TLS and nkeys. [`crate::transport`] is the only user.
//!
//! ```text
//! NatsClient ── commands ──► thread `nats`: driver ── connection ──► server
//!            ◄─ messages ──
//! ```
//!
//! The driver connects again without an end, to any server of the cluster, and repeats the subscriptions. Commands wait
//! in their queue meanwhile.

mod client;
mod connection;
mod credentials;
mod driver;
pub(crate) mod protocol;
mod server_url;

use std::path::PathBuf;

use rt::tls::TlsConfigError;

pub(crate) use client::{NatsClient, random_token};
#[cfg(any(test, fuzzing))]
pub(crate) use connection::parse_info;
pub(crate) use credentials::{Credentials, CredentialsError, SigningKey, parse_credentials};
pub(crate) use server_url::ServerUrl;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub subject: String,
    pub payload: Vec<u8>,
    /// Status of a message from the server itself, such as 503 for a request that nobody receives.
    pub(crate) status: Option<u16>,
}

/// Change of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The server is connected, for the first time or again.
    Connected,
    Disconnected,
    /// The server rejected a message or a subscription.
    Rejected(String),
}

#[derive(Debug)]
pub(crate) struct ClientOptions {
    /// First server.
    pub(crate) server: ServerUrl,
    /// Name of the connection in the server's monitoring.
    pub(crate) name: String,
    pub(crate) credentials: Credentials,
    /// File with the trusted certificate authorities; the host's without it.
    pub(crate) ca: Option<PathBuf>,
    /// Files with the client's certificate and its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The name of the server is unknown.
    #[error("cannot resolve {0}: {1}")]
    Resolve(String, std::io::Error),
    /// The server does not respond.
    #[error("no response within {} s", connection::CONNECT_TIMEOUT.as_secs())]
    TimedOut,
    /// A socket or a thread failed, or TLS.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A file of TLS cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsConfigError),
    #[error("authorization violation: the server rejects the credentials")]
    Rejected,
    /// The server reported another error, and may accept a later attempt.
    #[error("the server reports: {0}")]
    Server(String),
    /// The server does not speak the protocol.
    #[error("{0}")]
    Protocol(#[from] protocol::ProtocolError),
}

impl ConnectError {
    /// Returns true if another attempt may succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Resolve(..) | Self::TimedOut | Self::Server(_) | Self::Protocol(_) => true,
            // A certificate that is not trusted, an alert of the server, or another protocol.
            Self::Io(error) => error.kind() != std::io::ErrorKind::InvalidData,
            Self::Tls(_) | Self::Rejected => false,
        }
    }
}

/// Reason why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the connection is closed")]
    Closed,
    /// Nobody receives the subject.
    #[error("no responders")]
    NoResponders,
    /// The server accepts no message of this size.
    #[error("a message of {0} bytes; the server accepts up to {1} (max_payload)")]
    TooLarge(usize, usize),
}
