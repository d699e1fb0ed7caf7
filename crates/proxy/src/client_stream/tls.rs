//! Names, certificates and faults of a client's TLS session.

use std::rc::Rc;

use super::{ClientStream, RareState};
use crate::request_view::ClientFacts;

impl ClientStream {
    /// Stores the subject of the client's TLS certificate.
    pub(crate) fn note_certificate_subject(&mut self, subject: Option<String>) {
        if let Some(subject) = subject {
            self.rare_state.get_or_insert_default().certificate_subject = Some(subject.into());
        }
    }

    /// Stores the server name of a ClientHello that is forwarded.
    pub(crate) fn note_server_name(&mut self, name: Option<Box<str>>) {
        if name.is_some() {
            self.rare_state.get_or_insert_default().server_name = name;
        }
    }

    /// Stores the fault of the client's TLS handshake.
    pub(crate) fn note_tls_error(&mut self, error: &str) {
        self.rare_state.get_or_insert_default().tls_error = Some(error.into());
    }

    pub(crate) fn tls_error(&self) -> Option<&str> {
        self.rare_state.as_ref()?.tls_error.as_deref()
    }

    /// Returns the subject of the client's verified certificate. It is known only if the listener had a field
    /// for it when the connection began.
    pub(crate) fn certificate_subject(&self) -> Option<Rc<str>> {
        let rare = self.rare_state.as_deref()?;
        match rare.h2_client.as_deref() {
            Some(connection) => connection.certificate_subject.clone(),
            None => rare.certificate_subject.clone(),
        }
    }

    /// Returns the value of `Strict-Transport-Security` for responses to this client. Plain responses have none
    /// (RFC 6797 §7.2).
    pub(crate) fn hsts(&self) -> Option<&str> {
        self.settings.plan.tls.as_ref()?.hsts.as_deref().filter(|_| self.is_tls())
    }

    /// Returns the server name that the client asked for (SNI).
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self.rare_state.as_deref() {
            Some(RareState { server_name: Some(name), .. }) => Some(name),
            Some(RareState { h2_client: Some(connection), .. }) => connection.server_name.as_deref(),
            _ => self.stream.tls_server_name(),
        }
    }
}

impl ClientFacts for ClientStream {
    fn port(&self) -> u16 {
        self.peer.port
    }

    fn is_tls(&self) -> bool {
        self.is_tls()
    }

    fn tls_names(&self) -> Option<(&'static str, &'static str)> {
        self.tls_names()
    }

    fn server_name(&self) -> Option<&str> {
        self.server_name()
    }

    fn certificate(&self) -> Option<&[u8]> {
        match self.h2_client() {
            Some(connection) => connection.certificate.as_deref(),
            None => self.stream.peer_certificate(),
        }
    }

    fn unix_ns(&self) -> u64 {
        rt::clock::unix_ns()
    }
}
