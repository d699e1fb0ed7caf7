//! TLS 1.2 and 1.3 (rustls with aws-lc-rs): settings of both ends, and the session of one
//! connection. [`Stream`](crate::stream::Stream) reads and writes through it, so that an engine
//! handles encrypted and plain connections in the same way.

mod alerts;
mod algorithms;
mod certificate_faults;
mod certificates;
mod challenges;
mod client;
pub mod client_hello;
mod client_sessions;
mod close;
mod der;
mod distinguished_name;
mod fault;
mod fault_text;
mod handshake_turn;
mod identity;
mod info;
mod key_log;
mod ocsp;
mod peer_trust;
mod receive;
mod records;
mod revocation;
mod server;
mod session;
mod staging;
mod tickets;
mod transport;

pub use algorithms::{CipherSuite, KeyExchangeGroup, TlsAlgorithms, UnknownAlgorithm};
pub use certificates::{certificate_names, certificate_validity};
pub use challenges::TlsAlpnChallenge;
pub(crate) use client::parse_server_name;
pub use client::{ClientTls, ClientTlsOptions, Verification, check_server_name};
pub use distinguished_name::{certificate_issuer, certificate_subject};
pub use fault::TlsFault;
pub use fault_text::describe_tls_error;
pub use identity::{
    certificate_alternative_names, certificate_common_name, certificate_serial, certificate_times,
};
pub use info::{HandshakeKind, TlsByteCounts, TlsInfo};
#[cfg(any(test, fuzzing))]
pub(crate) use ocsp::is_ocsp_response_for;
pub use revocation::{RevocationListInfo, RevocationOptions};
pub use server::{CertificateFiles, ServerTls, ServerTlsOptions};
pub use session::TlsStream;
pub use tickets::{TICKET_LIFETIME_S, TicketKeyExport};
pub(crate) use transport::Transport;

/// Directories of the certificate authorities that hosts trust, besides `/etc`, which links to them.
pub const HOST_ROOT_PATHS: &[&str] = &["/usr/share/ca-certificates", "/usr/local/share/ca-certificates"];

/// Failure to load the certificates or keys of a TLS configuration.
#[derive(Clone, Debug)]
pub struct TlsConfigError {
    /// The file at fault, if it is one.
    pub path: Option<std::path::PathBuf>,
    /// The fault, and what to do about it.
    pub reason: String,
}

impl TlsConfigError {
    fn in_file(path: &std::path::Path, reason: impl std::fmt::Display) -> Self {
        Self { path: Some(path.to_owned()), reason: reason.to_string() }
    }

    /// Creates the error for a fault of TLS in a file, with its sentence.
    fn in_file_tls(path: &std::path::Path, error: &rustls::Error) -> Self {
        Self::in_file(path, fault_text::describe(error))
    }

    fn without_file_tls(error: &rustls::Error) -> Self {
        Self::without_file(fault_text::describe(error))
    }

    fn without_file(reason: impl std::fmt::Display) -> Self {
        Self { path: None, reason: reason.to_string() }
    }
}

impl std::fmt::Display for TlsConfigError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "{}: {}", path.display(), self.reason),
            None => formatter.write_str(&self.reason),
        }
    }
}

impl std::error::Error for TlsConfigError {}

/// Oldest protocol version that a connection may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

fn protocol_versions(min: TlsVersion, max: TlsVersion) -> Vec<&'static rustls::SupportedProtocolVersion> {
    let both = [(TlsVersion::Tls12, &rustls::version::TLS12), (TlsVersion::Tls13, &rustls::version::TLS13)];
    both.into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, version)| version)
        .collect()
}

fn crypto_provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<std::sync::Arc<rustls::crypto::CryptoProvider>> =
        std::sync::OnceLock::new();
    std::sync::Arc::clone(
        PROVIDER.get_or_init(|| std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider())),
    )
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_trust;
