//! Faults of TLS sessions, by what a user can do about them.

use std::io;

use rustls::{AlertDescription, Error, InvalidMessage};

use super::alerts::describe_alert;
use super::certificate_faults::describe_certificate_fault;
use super::fault_text::{SessionError, describe};

/// Fault that ended a session or its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The peer's certificate is not trusted, with the reason.
    UntrustedCertificate(String),
    /// The peer sent something else than TLS.
    NotTls,
    /// The peer supports none of the protocols of ALPN (RFC 7301).
    NoApplicationProtocol,
    /// The peer sent an alert (RFC 8446 §6.2): its name and its usual cause.
    Alert(String),
    Protocol(String),
}

impl TlsFault {
    /// Returns the fault that an error of [`Stream`](crate::stream::Stream) reports; `None` if the
    /// error is one of the socket.
    #[must_use]
    pub fn from_error(error: &io::Error) -> Option<Self> {
        let SessionError { fault } = error.get_ref()?.downcast_ref::<SessionError>()?;
        Some(match fault {
            Error::InvalidCertificate(reason) => {
                Self::UntrustedCertificate(describe_certificate_fault(reason))
            }
            Error::NoCertificatesPresented => Self::UntrustedCertificate("the peer sent none".to_owned()),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => Self::NoApplicationProtocol,
            Error::AlertReceived(alert) => Self::Alert(describe_alert(*alert)),
            other => Self::Protocol(describe(other)),
        })
    }
}
