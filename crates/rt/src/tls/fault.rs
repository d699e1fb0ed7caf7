//! Faults of TLS sessions, by what a user can do about them.

use std::io;

use rustls::{Error, InvalidMessage};

/// Fault that ended a session or its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The peer's certificate is not trusted, with the reason.
    UntrustedCertificate(String),
    /// The peer sent something else than TLS.
    NotTls,
    /// The peer sent this alert (RFC 8446 §6.2).
    Alert(String),
    /// Any other violation of the protocol.
    Protocol(String),
}

impl TlsFault {
    /// Returns the fault that an error of [`Stream`](crate::stream::Stream) reports; `None` if the
    /// error is one of the socket.
    #[must_use]
    pub fn from_error(error: &io::Error) -> Option<Self> {
        let fault = error.get_ref()?.downcast_ref::<Error>()?;
        Some(match fault {
            Error::InvalidCertificate(reason) => Self::UntrustedCertificate(reason.to_string()),
            Error::NoCertificatesPresented => Self::UntrustedCertificate("none was sent".to_owned()),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            Error::AlertReceived(alert) => Self::Alert(format!("{alert:?}")),
            other => Self::Protocol(other.to_string()),
        })
    }
}
