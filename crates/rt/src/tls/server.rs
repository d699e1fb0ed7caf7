//! The server's end: certificates by server name (RFC 6066 §3), resumption, client certificates.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::certificates::{names_in, read_certified_key};
use super::challenges::{ACME_PROTOCOL, challenge_of};
use super::key_log::KeyLogFile;
use super::ocsp::read_ocsp_response;
use super::peer_trust::{ClientVerifier, TrustedCertificates};
use super::revocation::{RevocationListInfo, RevocationLists, RevocationOptions};
use super::tickets::{TicketKeyExport, TicketKeys};
use super::{TlsAlgorithms, TlsConfigError, TlsVersion, crypto_provider, protocol_versions};

/// Number of sessions of TLS 1.2 that can be resumed by their id. Clients with tickets need none.
const STORED_SESSIONS_MAX: usize = 4_096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, its leaf first.
    pub certificate: PathBuf,
    /// The private key; the same file may have both.
    pub key: PathBuf,
    /// OCSP response in DER for the certificate, which a server staples.
    pub ocsp: Option<PathBuf>,
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
    /// Lists of revoked certificates of clients.
    pub client_revocation: RevocationOptions,
    /// Oldest protocol version.
    pub version_min: TlsVersion,
    pub algorithms: TlsAlgorithms,
    /// True if the order of `algorithms` decides on the cipher suite, not that of the client.
    pub prefers_own_suites: bool,
    /// Files with keys of session tickets that hosts share, the encrypting one first; none: random
    /// keys that rotate.
    pub ticket_key_files: Vec<PathBuf>,
    /// True if validations of an ACME server are answered (TLS-ALPN-01, RFC 8737).
    pub answers_acme: bool,
    /// File that the secrets of all sessions are written to.
    pub key_log: Option<PathBuf>,
    /// Protocols of ALPN (RFC 7301), the preferred one first.
    pub alpn: Vec<Vec<u8>>,
}

/// Settings of a server's end, shared by all cores: sessions of one core are resumed on another.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    client_verification: ClientVerification,
    tickets: Arc<TicketKeys>,
    warnings: Vec<TlsConfigError>,
}

/// Rules for clients' certificates. A resumed session is not verified again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClientVerification {
    trusted: Option<TrustedCertificates>,
    lists: RevocationLists,
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
        let read = options.certificates.iter().map(ServerCertificate::read);
        let self_signed = options.self_signed.then(|| self_signed_key().map(ServerCertificate::new));
        let mut certificates = Vec::new();
        for certificate in read.chain(self_signed) {
            certificate
                .map_or_else(|failure| failures.push(failure), |certificate| certificates.push(certificate));
        }
        let trusted = options.client_ca.as_deref().map(TrustedCertificates::read).transpose();
        let (trusted, roots) = trusted
            .unwrap_or_else(|failure| {
                failures.push(failure);
                None
            })
            .unzip();
        let lists = RevocationLists::read(&options.client_revocation).unwrap_or_else(|faults| {
            failures.extend(faults);
            RevocationLists::default()
        });
        let client_verification =
            ClientVerification { trusted, lists, is_optional: options.client_certificate_optional };
        let verifier = client_verifier(options, &client_verification, roots);
        let verifier = verifier.map_err(|failure| failures.push(failure)).ok();
        if certificates.is_empty() && failures.is_empty() {
            failures.push(TlsConfigError::without_file("TLS needs a certificate"));
        }
        let tickets = ticket_keys(&options.ticket_key_files, &client_verification);
        let tickets = tickets.map_err(|failure| failures.push(failure)).ok();
        let key_log = options.key_log.as_deref().map(KeyLogFile::new).transpose();
        let key_log = key_log.unwrap_or_else(|failure| {
            failures.push(failure);
            None
        });
        let (Some(verifier), Some(tickets), true) = (verifier, tickets, failures.is_empty()) else {
            return Err(failures);
        };
        let warnings = certificates.iter().filter_map(ServerCertificate::warning);
        let warnings = warnings.chain(client_verification.warnings()).collect();
        match build(options, certificates, verifier) {
            Ok(mut config) => {
                config.ticketer = Arc::<TicketKeys>::clone(&tickets);
                if !client_verification.lists.is_empty() {
                    // Tickets end with the lists, sessions of this store do not.
                    config.session_storage = Arc::new(NoServerSessionStorage {});
                }
                if let Some(key_log) = key_log {
                    config.key_log = Arc::new(key_log);
                }
                Ok(Self { config: Arc::new(config), client_verification, tickets, warnings })
            }
            Err(failure) => Err(vec![failure]),
        }
    }

    /// Returns faults of files that do not keep the settings from working: OCSP responses that have
    /// expired, and are not stapled.
    pub fn warnings(&self) -> &[TlsConfigError] {
        &self.warnings
    }

    /// Returns the lists of revoked certificates of clients.
    pub fn revocation_lists(&self) -> impl Iterator<Item = &RevocationListInfo> {
        self.client_verification.lists.infos()
    }

    /// Returns the keys of session tickets for a process that takes over; `None`: they come from
    /// files.
    pub fn export_tickets(&self) -> Option<TicketKeyExport> {
        self.tickets.export()
    }

    /// Continues with the keys of session tickets of another process, so that its clients resume
    /// their sessions. Returns whether the keys were taken: not if they come from files, and not if
    /// the other process accepted other clients' certificates.
    pub fn import_tickets(&self, export: &TicketKeyExport) -> bool {
        self.tickets.import(export)
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
        let keeps_random_keys = !self.tickets.is_from_files() && !previous.tickets.is_from_files();
        let tickets = if keeps_random_keys { &previous.tickets } else { &self.tickets };
        config.ticketer = Arc::<TicketKeys>::clone(tickets);
        config.session_storage = Arc::clone(&previous.config.session_storage);
        Self { config: Arc::new(config), tickets: Arc::clone(tickets), ..self.clone() }
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl ClientVerification {
    /// Returns the faults of the revocation lists.
    fn warnings(&self) -> Vec<TlsConfigError> {
        let authorities = self.trusted.iter().flat_map(TrustedCertificates::iter);
        match self.lists.is_empty() {
            true => Vec::new(),
            false => self.lists.warnings(authorities, UnixTime::now().as_secs()),
        }
    }

    /// Returns a digest that differs from those of other rules.
    fn digest(&self) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_be_bytes());
            context.update(bytes);
        };
        add(&[u8::from(self.is_optional)]);
        for certificate in self.trusted.iter().flat_map(TrustedCertificates::iter) {
            add(certificate);
        }
        self.lists.digest_into(&mut add);
        let mut bytes = [0; 32];
        // SHA-256 has 32 bytes.
        bytes.copy_from_slice(context.finish().as_ref());
        bytes
    }
}

fn ticket_keys(
    files: &[PathBuf],
    verification: &ClientVerification,
) -> Result<Arc<TicketKeys>, TlsConfigError> {
    let binding = verification.digest();
    let keys = match files.is_empty() {
        true => TicketKeys::random(binding),
        false => TicketKeys::from_files(files, binding),
    };
    keys.map(|keys| Arc::new(keys.until(verification.lists.sessions_end_s())))
}

type Verifier = Arc<dyn rustls::server::danger::ClientCertVerifier>;

fn client_verifier(
    options: &ServerTlsOptions,
    verification: &ClientVerification,
    roots: Option<RootCertStore>,
) -> Result<Verifier, TlsConfigError> {
    let (Some(path), Some(trusted), Some(roots)) = (&options.client_ca, &verification.trusted, roots) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let verifier =
        ClientVerifier::new(trusted.clone(), roots, verification.lists.clone(), verification.is_optional);
    Ok(Arc::new(verifier.map_err(|error| TlsConfigError::in_file(path, error))?))
}

fn build(
    options: &ServerTlsOptions,
    certificates: Vec<ServerCertificate>,
    verifier: Verifier,
) -> Result<ServerConfig, TlsConfigError> {
    let mut config = ServerConfig::builder_with_provider(options.algorithms.provider())
        .with_protocol_versions(&protocol_versions(options.version_min, TlsVersion::Tls13))
        .map_err(|error| TlsConfigError::without_file_tls(&error))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(CertificatesByName::new(certificates, options.answers_acme)));
    config.alpn_protocols.clone_from(&options.alpn);
    if options.answers_acme {
        config.alpn_protocols.push(ACME_PROTOCOL.to_vec());
    }
    config.ignore_client_order = options.prefers_own_suites;
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
    let key = CertifiedKey::from_der(chain, key, &crypto_provider());
    key.map_err(|error| TlsConfigError::without_file_tls(&error))
}

/// A certificate with its key, and the OCSP response for it.
#[derive(Debug)]
struct ServerCertificate {
    key: Arc<CertifiedKey>,
    /// The same with a response, and the time at which that expires in seconds since 1970.
    stapled: Option<(Arc<CertifiedKey>, Option<u64>)>,
    ocsp_path: Option<PathBuf>,
}

impl ServerCertificate {
    fn new(key: CertifiedKey) -> Self {
        Self { key: Arc::new(key), stapled: None, ocsp_path: None }
    }

    fn read(files: &CertificateFiles) -> Result<Self, TlsConfigError> {
        let key = read_certified_key(&files.certificate, &files.key)?;
        let Some(path) = &files.ocsp else { return Ok(Self::new(key)) };
        let leaf = key.cert.first().map(AsRef::as_ref).unwrap_or_default();
        let response = read_ocsp_response(path, leaf)?;
        let stapled = CertifiedKey { ocsp: Some(response.der), ..key.clone() };
        let stapled = Some((Arc::new(stapled), response.next_update_s));
        Ok(Self { key: Arc::new(key), stapled, ocsp_path: Some(path.clone()) })
    }

    /// Returns the certificate as it is sent now: without a response that has expired, which clients
    /// would reject.
    fn current(&self, now_s: u64) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((stapled, end_s)) if end_s.is_none_or(|end_s| now_s < end_s) => stapled,
            _ => &self.key,
        }
    }

    fn warning(&self) -> Option<TlsConfigError> {
        let now_s = UnixTime::now().as_secs();
        let is_expired = Arc::ptr_eq(self.current(now_s), &self.key);
        let path = self.ocsp_path.as_deref().filter(|_| is_expired)?;
        Some(TlsConfigError::in_file(path, "the OCSP response has expired, and is not sent: renew it"))
    }
}

/// Certificates by the names in them, exact or with a wildcard as the first label (RFC 6125 §6.4.3).
#[derive(Debug)]
struct CertificatesByName {
    all: Vec<ServerCertificate>,
    /// Indexes into `all` by lower-case name.
    indexes: HashMap<String, Vec<usize>>,
    answers_acme: bool,
}

impl CertificatesByName {
    fn new(all: Vec<ServerCertificate>, answers_acme: bool) -> Self {
        let mut indexes: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, certificate) in all.iter().enumerate() {
            let leaf = certificate.key.cert.first();
            for name in leaf.map(names_in).unwrap_or_default() {
                indexes.entry(name.to_ascii_lowercase()).or_default().push(index);
            }
        }
        Self { all, indexes, answers_acme }
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
        let is_validation =
            || hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == ACME_PROTOCOL));
        if self.answers_acme && is_validation() {
            return challenge_of(hello.server_name().unwrap_or_default());
        }
        let named = self.candidates(hello.server_name());
        let in_order = named.iter().copied().chain(0..self.all.len());
        let suits = |certificate: &&ServerCertificate| {
            certificate.key.key.choose_scheme(hello.signature_schemes()).is_some()
        };
        // Without a common algorithm the handshake fails, with the alert for that.
        let certificate = in_order.map(|index| &self.all[index]).find(suits).or_else(|| self.all.first())?;
        Some(Arc::clone(certificate.current(UnixTime::now().as_secs())))
    }
}
