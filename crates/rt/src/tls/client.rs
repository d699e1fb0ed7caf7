//! The client's end: verification of servers, server names, resumption, client certificates.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;

use super::certificates::{read_certified_key, read_host_roots};
use super::client_sessions::ClientSessions;
use super::key_log::KeyLogFile;
use super::peer_trust::{AnyServer, ServerVerifier, server_verifier};
use super::revocation::{RevocationLists, RevocationOptions};
use super::server::CertificateFiles;
use super::{TlsAlgorithms, TlsConfigError, TlsVersion, protocol_versions};

/// Maximum number of sessions of all servers that are kept for resumption, some 1 kB each.
const SESSIONS_MAX: usize = 4_096;
/// Maximum number of sessions that are kept for one server of a proxy: of each thread.
const SESSIONS_OF_ONE_SERVER: usize = 64;

/// Verification of a server's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// Against the certificate authorities that this host trusts.
    #[default]
    HostRoots,
    /// Against those of a PEM file. A certificate that is itself in the file is trusted without an issuer.
    CaFile(PathBuf),
    /// None: any certificate is accepted, also that of a server in the middle.
    Off,
}

/// Options of a client's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTlsOptions {
    pub verification: Verification,
    pub certificate: Option<CertificateFiles>,
    /// Lists of revoked certificates of servers. With lists, sessions are not resumed: a resumed one is not
    /// verified again.
    pub revocation: RevocationOptions,
    /// True if connections resume sessions of earlier ones.
    pub resumes: bool,
    /// Oldest protocol version.
    pub version_min: TlsVersion,
    /// Newest protocol version.
    pub version_max: TlsVersion,
    pub algorithms: TlsAlgorithms,
    /// File that the secrets of all sessions are written to.
    pub key_log: Option<PathBuf>,
    /// Protocols of ALPN (RFC 7301), the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for ClientTlsOptions {
    fn default() -> Self {
        Self {
            verification: Verification::default(),
            certificate: None,
            revocation: RevocationOptions::default(),
            resumes: true,
            version_min: TlsVersion::Tls12,
            version_max: TlsVersion::Tls13,
            algorithms: TlsAlgorithms::default(),
            key_log: None,
            alpn: Vec::new(),
        }
    }
}

/// Settings of a client's end.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// False if sessions are never resumed.
    resumes: bool,
}

impl ClientTls {
    /// Reads the files and builds the settings.
    ///
    /// # Errors
    /// A file is missing or has no certificate or key, this host has no certificate authorities, or
    /// no protocol version is left.
    pub fn new(options: &ClientTlsOptions) -> Result<Self, TlsConfigError> {
        // At least one fault is reported.
        Self::build(options).map_err(|mut failures| failures.remove(0))
    }

    /// Builds the settings like [`Self::new`].
    ///
    /// # Errors
    /// All files at fault.
    pub fn build(options: &ClientTlsOptions) -> Result<Self, Vec<TlsConfigError>> {
        let verifier = verifier(options)?;
        Self::with_verifier(options, verifier).map_err(|failure| vec![failure])
    }

    fn with_verifier(
        options: &ClientTlsOptions,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<Self, TlsConfigError> {
        if options.version_min > options.version_max {
            return Err(TlsConfigError::without_file("the oldest TLS version is newer than the newest one"));
        }
        let builder = ClientConfig::builder_with_provider(options.algorithms.provider())
            .with_protocol_versions(&protocol_versions(options.version_min, options.version_max))
            .map_err(|error| TlsConfigError::without_file_tls(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let key = Arc::new(read_certified_key(&files.certificate, &files.key)?);
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
            }
        };
        config.alpn_protocols.clone_from(&options.alpn);
        if let Some(path) = &options.key_log {
            config.key_log = Arc::new(KeyLogFile::new(path)?);
        }
        let resumes = options.resumes && options.revocation.files.is_empty();
        config.resumption = Resumption::disabled();
        let settings = Self { config: Arc::new(config), resumes };
        Ok(if resumes { settings.with_own_sessions() } else { settings })
    }

    /// Returns the same settings with a store of so many sessions, if they resume any.
    fn with_sessions(&self, sessions_max: usize) -> Self {
        if !self.resumes {
            return self.clone();
        }
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::store(Arc::new(ClientSessions::new(sessions_max)));
        Self { config: Arc::new(config), resumes: true }
    }

    /// Returns the same settings with a store of sessions of their own.
    #[must_use]
    pub fn with_own_sessions(&self) -> Self {
        self.with_sessions(SESSIONS_MAX)
    }

    /// Returns the same settings with a store for the sessions of a single server. A store is by
    /// name, and servers with the same name do not accept each other's sessions.
    #[must_use]
    pub fn for_one_server(&self) -> Self {
        self.with_sessions(SESSIONS_OF_ONE_SERVER)
    }

    /// Returns the same settings without resumption.
    #[must_use]
    pub fn without_resumption(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), resumes: false }
    }

    /// Returns the same settings with other protocols of ALPN (RFC 7301), the preferred one first.
    /// They share the store of sessions.
    #[must_use]
    pub fn with_alpn(&self, protocols: &[impl AsRef<[u8]>]) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_ref().to_vec()).collect();
        Self { config: Arc::new(config), resumes: self.resumes }
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

/// Checks that a server can prove this name: a DNS name or an IP address.
///
/// # Errors
/// It is neither.
pub fn check_server_name(name: &str) -> Result<(), TlsConfigError> {
    parse_server_name(name).map(|_| ())
}

/// Parses the name of a server: a DNS name, or an IP address, which is not sent (RFC 6066 §3).
///
/// # Errors
/// It is neither.
pub(crate) fn parse_server_name(name: &str) -> Result<ServerName<'static>, TlsConfigError> {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        TlsConfigError::without_file(format_args!("'{name}' is neither a DNS name nor an IP address"))
    })
}

fn verifier(options: &ClientTlsOptions) -> Result<Arc<dyn ServerCertVerifier>, Vec<TlsConfigError>> {
    let to_failures = |failure| vec![failure];
    match &options.verification {
        Verification::Off => Ok(Arc::new(AnyServer)),
        Verification::CaFile(path) => Ok(Arc::new(ServerVerifier::read(path, &options.revocation)?)),
        Verification::HostRoots => {
            let lists = RevocationLists::read(&options.revocation)?;
            let verifier = server_verifier(read_host_roots().map_err(to_failures)?, &lists);
            Ok(verifier.map_err(|error| to_failures(TlsConfigError::without_file(error)))?)
        }
    }
}
