//! The server's end: certificates by server name (RFC 6066 §3), resumption, client certificates.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::certificates::{read_certified_key, read_roots};
use super::{TlsAlgorithms, TlsConfigError, TlsVersion, crypto_provider, protocol_versions};

/// Number of sessions of TLS 1.2 that can be resumed by their id. Clients with tickets need none.
const STORED_SESSIONS_MAX: usize = 4_096;

/// PEM files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, its leaf first.
    pub certificate: PathBuf,
    /// The private key; the same file may have both.
    pub key: PathBuf,
}

/// Options of a server's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// The first one is the default for clients that name no known server. Several may have the
    /// same name with keys of different types (ECDSA and RSA); the client's abilities decide.
    pub certificates: Vec<CertificateFiles>,
    /// Adds a self-signed certificate for `localhost` and the loopback addresses.
    pub self_signed: bool,
    /// Authorities that clients' certificates are verified with; `None`: clients need none.
    pub client_ca: Option<PathBuf>,
    /// True if clients without a certificate are accepted in spite of `client_ca`.
    pub client_certificate_optional: bool,
    /// Oldest protocol version.
    pub version_min: TlsVersion,
    /// Cipher suites and groups.
    pub algorithms: TlsAlgorithms,
    /// True if the order of `algorithms` decides on the cipher suite, not that of the client.
    pub prefers_own_suites: bool,
    /// Protocols of ALPN (RFC 7301), the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

/// Settings of a server's end, shared by all cores: sessions of one core are resumed on another.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    client_verification: ClientVerification,
}

/// Rules for clients' certificates. A resumed session is not verified again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClientVerification {
    roots: Vec<TrustAnchor<'static>>,
    is_optional: bool,
}

impl ServerTls {
    /// Reads the files and builds the settings.
    ///
    /// # Errors
    /// A file is missing or has no certificate or key, or a key belongs to another certificate.
    /// All files at fault are reported.
    pub fn new(options: &ServerTlsOptions) -> Result<Self, Vec<TlsConfigError>> {
        let mut failures = Vec::new();
        let mut keys = Vec::new();
        for files in &options.certificates {
            match read_certified_key(&files.certificate, &files.key) {
                Ok(key) => keys.push(Arc::new(key)),
                Err(failure) => failures.push(failure),
            }
        }
        if options.self_signed {
            match self_signed_key() {
                Ok(key) => keys.push(Arc::new(key)),
                Err(failure) => failures.push(failure),
            }
        }
        let roots = options.client_ca.as_deref().map(read_roots).transpose();
        let roots = roots.unwrap_or_else(|failure| {
            failures.push(failure);
            None
        });
        let client_verification = ClientVerification {
            roots: roots.as_ref().map(|roots| roots.roots.clone()).unwrap_or_default(),
            is_optional: options.client_certificate_optional,
        };
        let verifier = client_verifier(options, roots).map_err(|failure| failures.push(failure)).ok();
        if keys.is_empty() && failures.is_empty() {
            failures.push(TlsConfigError::without_file("TLS needs a certificate"));
        }
        let (Some(verifier), true) = (verifier, failures.is_empty()) else { return Err(failures) };
        match build(options, keys, verifier) {
            Ok(config) => Ok(Self { config: Arc::new(config), client_verification }),
            Err(failure) => Err(vec![failure]),
        }
    }

    /// Returns the same settings with the session tickets of `previous`, so that its clients resume
    /// their sessions. A resumed session is not verified again: if other clients are accepted now,
    /// the sessions are new ones.
    #[must_use]
    pub fn with_sessions_of(&self, previous: &Self) -> Self {
        if self.client_verification != previous.client_verification {
            return self.clone();
        }
        let mut config = ServerConfig::clone(&self.config);
        config.ticketer = Arc::clone(&previous.config.ticketer);
        config.session_storage = Arc::clone(&previous.config.session_storage);
        Self { config: Arc::new(config), client_verification: self.client_verification.clone() }
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

type Verifier = Arc<dyn rustls::server::danger::ClientCertVerifier>;

fn client_verifier(
    options: &ServerTlsOptions,
    roots: Option<RootCertStore>,
) -> Result<Verifier, TlsConfigError> {
    let (Some(path), Some(roots)) = (&options.client_ca, roots) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider());
    let builder = if options.client_certificate_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| TlsConfigError::in_file(path, error))
}

fn build(
    options: &ServerTlsOptions,
    keys: Vec<Arc<CertifiedKey>>,
    verifier: Verifier,
) -> Result<ServerConfig, TlsConfigError> {
    let mut config = ServerConfig::builder_with_provider(options.algorithms.provider())
        .with_protocol_versions(&protocol_versions(options.version_min, TlsVersion::Tls13))
        .map_err(TlsConfigError::without_file)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(CertificatesByName::new(keys)));
    config.alpn_protocols.clone_from(&options.alpn);
    config.ignore_client_order = options.prefers_own_suites;
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(TlsConfigError::without_file)?;
    config.session_storage = ServerSessionMemoryCache::new(STORED_SESSIONS_MAX);
    Ok(config)
}

/// Makes a certificate for tests on this host, with a new key at each call.
fn self_signed_key() -> Result<CertifiedKey, TlsConfigError> {
    let names = ["localhost", "127.0.0.1", "::1"].map(String::from).to_vec();
    let made = rcgen::generate_simple_self_signed(names).map_err(TlsConfigError::without_file)?;
    let key =
        PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(TlsConfigError::without_file)?;
    let chain: Vec<CertificateDer<'static>> = vec![made.cert.der().clone()];
    CertifiedKey::from_der(chain, key, &crypto_provider()).map_err(TlsConfigError::without_file)
}

/// Certificates by the names in them, exact or with a wildcard as the first label (RFC 6125 §6.4.3).
#[derive(Debug)]
struct CertificatesByName {
    all: Vec<Arc<CertifiedKey>>,
    /// Indexes into `all` by lower-case name.
    indexes: HashMap<String, Vec<usize>>,
}

impl CertificatesByName {
    fn new(all: Vec<Arc<CertifiedKey>>) -> Self {
        let mut indexes: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, key) in all.iter().enumerate() {
            for name in names_in(key) {
                indexes.entry(name.to_ascii_lowercase()).or_default().push(index);
            }
        }
        Self { all, indexes }
    }

    /// Returns the candidates for a name, or the default ones for none and for an unknown name.
    fn candidates(&self, name: Option<&str>) -> &[usize] {
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        self.indexes.get(&name).or_else(|| self.indexes.get(&wildcard()?)).map_or(&[], Vec::as_slice)
    }
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = self.candidates(hello.server_name());
        let in_order = named.iter().copied().chain(0..self.all.len());
        let suits = |key: &Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        in_order.map(|index| &self.all[index]).find(|key| suits(key)).cloned()
    }
}

/// Returns the DNS names of a certificate (subjectAltName, RFC 5280 §4.2.1.6).
fn names_in(key: &CertifiedKey) -> Vec<String> {
    let Ok(certificate) = key.end_entity_cert() else { return Vec::new() };
    let parsed = webpki::EndEntityCert::try_from(certificate);
    parsed.map(|certificate| certificate.valid_dns_names().map(String::from).collect()).unwrap_or_default()
}
