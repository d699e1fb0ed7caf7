//! Names, certificates and faults of a client's TLS session.

use std::rc::Rc;

use super::ClientStream;

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

    /// Returns the fault of the client's TLS handshake.
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
        let read = self.rare_state.as_ref().and_then(|rare| rare.server_name.as_deref());
        read.or_else(|| self.stream.tls_server_name())
    }
}
