//! Trust in the peer's certificate: by an authority, by the certificate itself, or any certificate.
//!
//! A certificate that is itself in the file of authorities, byte for byte, needs no issuer, and may have
//! CA:TRUE or version 1: whoever put it there trusts its key. Its validity, its purpose and its names still
//! count, as with curl: the common name only if it has no names (subjectAltName).

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ExtendedKeyPurpose, OtherError,
    PeerMisbehaved, RootCertStore, SignatureScheme,
};

use super::certificates::read_certificates;
use super::der::{
    BIT_STRING, CertificateParts, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, SUBJECT_ALT_NAME, expect,
};
use super::distinguished_name::common_name;
use super::revocation::{RevocationLists, RevocationOptions};
use super::{TlsConfigError, crypto_provider};

const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
const ANY_PURPOSE: &[u8] = &[0x55, 0x1d, 37, 0];
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
/// Object identifier of RSA keys.
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// Lengths of the RSA keys with which signatures can be verified.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// Certificates of a file of authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrustedCertificates(Vec<CertificateDer<'static>>);

impl TrustedCertificates {
    pub(super) fn read(path: &Path) -> Result<(Self, RootCertStore), TlsConfigError> {
        let certificates = read_certificates(path)?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| TlsConfigError::in_file_tls(path, &error))?;
        }
        Ok((Self(certificates), roots))
    }

    /// Iterates over the certificates in DER.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(AsRef::as_ref)
    }

    fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.0.iter().any(|trusted| trusted == certificate)
    }
}

/// Verifies the signatures of a handshake, for a verifier with authorities.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.by_authorities.supported_verify_schemes()
        }
    };
}

/// Verifies servers' certificates by the authorities of a file.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    trusted: TrustedCertificates,
    lists: RevocationLists,
    by_authorities: Arc<WebPkiServerVerifier>,
}

impl ServerVerifier {
    pub(super) fn read(path: &Path, revocation: &RevocationOptions) -> Result<Self, Vec<TlsConfigError>> {
        let (trusted, roots) = TrustedCertificates::read(path).map_err(|failure| vec![failure])?;
        let lists = RevocationLists::read(revocation)?;
        let by_authorities = server_verifier(Arc::new(roots), &lists)
            .map_err(|error| vec![TlsConfigError::in_file(path, error)])?;
        Ok(Self { trusted, lists, by_authorities })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.trusted.contains(end_entity) {
            let webpki = &self.by_authorities;
            return webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        }
        check_trusted(end_entity, now, SERVER_AUTH, ExtendedKeyPurpose::ServerAuth)?;
        self.lists.check_trusted(end_entity, now)?;
        check_name(end_entity, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

/// Creates the verifier of servers by authorities and revocation lists.
pub(super) fn server_verifier(
    roots: Arc<RootCertStore>,
    lists: &RevocationLists,
) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
    let mut builder = WebPkiServerVerifier::builder_with_provider(roots, crypto_provider());
    if !lists.is_empty() {
        builder = builder.with_crls(lists.ders());
        let options = lists.options();
        builder = if options.only_leaf { builder.only_check_end_entity_revocation() } else { builder };
        builder = if options.allows_unknown { builder.allow_unknown_revocation_status() } else { builder };
        builder = if options.allows_expired { builder } else { builder.enforce_revocation_expiration() };
    }
    builder.build()
}

/// Verifies clients' certificates by the authorities of a file.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    trusted: TrustedCertificates,
    lists: RevocationLists,
    by_authorities: Arc<dyn ClientCertVerifier>,
}

impl ClientVerifier {
    pub(super) fn new(
        trusted: TrustedCertificates,
        roots: RootCertStore,
        lists: RevocationLists,
        is_optional: bool,
    ) -> Result<Self, VerifierBuilderError> {
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider());
        builder = if is_optional { builder.allow_unauthenticated() } else { builder };
        if !lists.is_empty() {
            builder = builder.with_crls(lists.ders());
            let options = lists.options();
            builder = if options.only_leaf { builder.only_check_end_entity_revocation() } else { builder };
            builder =
                if options.allows_unknown { builder.allow_unknown_revocation_status() } else { builder };
            builder = if options.allows_expired { builder } else { builder.enforce_revocation_expiration() };
        }
        Ok(Self { trusted, lists, by_authorities: builder.build()? })
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.by_authorities.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.by_authorities.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.by_authorities.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !self.trusted.contains(end_entity) {
            return self.by_authorities.verify_client_cert(end_entity, intermediates, now);
        }
        check_trusted(end_entity, now, CLIENT_AUTH, ExtendedKeyPurpose::ClientAuth)?;
        self.lists.check_trusted(end_entity, now)?;
        Ok(ClientCertVerified::assertion())
    }

    verify_signatures!();
}

/// Accepts any certificate. Signatures of the handshake are verified nevertheless if the key allows it, so
/// that the cost is that of a verified handshake but for the chain, and a server with a wrong key is found.
#[derive(Debug)]
pub(super) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unless_unverifiable(verify_tls12_signature(message, certificate, signature), certificate)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unless_unverifiable(verify_tls13_signature(message, certificate, signature), certificate)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Checks a certificate that is itself trusted: its validity and its purpose.
fn check_trusted(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
    purpose: &[u8],
    required: ExtendedKeyPurpose,
) -> Result<(), Error> {
    let parts = CertificateParts::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let (start_s, end_s) = parts.validity_s.ok_or(CertificateError::BadEncoding)?;
    let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    if now < at(start_s) {
        return Err(CertificateError::NotValidYetContext { time: now, not_before: at(start_s) }.into());
    }
    if now > at(end_s) {
        return Err(CertificateError::ExpiredContext { time: now, not_after: at(end_s) }.into());
    }
    let usages = parts.extension(EXTENDED_KEY_USAGE).map_err(|_| CertificateError::BadEncoding)?;
    let Some(usages) = usages else { return Ok(()) };
    let (mut usages, _) = expect(SEQUENCE, usages).ok_or(CertificateError::BadEncoding)?;
    while let Some((usage, after)) = expect(OBJECT_IDENTIFIER, usages) {
        if usage == purpose || usage == ANY_PURPOSE {
            return Ok(());
        }
        usages = after;
    }
    Err(CertificateError::InvalidPurposeContext { required, presented: Vec::new() }.into())
}

/// Checks that a certificate that is itself trusted has the name of the server.
fn check_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let parts = CertificateParts::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let names = parts.extension(SUBJECT_ALT_NAME).map_err(|_| CertificateError::BadEncoding)?;
    if names.is_none() {
        let own = common_name(parts.subject);
        if own.is_some_and(|own| is_common_name_of(own, &name.to_str())) {
            return Ok(());
        }
        let presented = own.map(|own| format!("DnsName(\"{own}\")")).into_iter().collect();
        let expected = name.to_owned();
        return Err(CertificateError::NotValidForNameContext { expected, presented }.into());
    }
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(webpki_fault)?;
    parsed.verify_is_valid_for_subject_name(name).map_err(|fault| match fault {
        webpki::Error::CertNotValidForName(names) => {
            let webpki::InvalidNameContext { expected, presented } = names;
            CertificateError::NotValidForNameContext { expected, presented }.into()
        }
        fault => webpki_fault(fault),
    })
}

/// Returns whether a common name is this name: the same text, or with `*` as its first label.
fn is_common_name_of(common_name: &str, name: &str) -> bool {
    let matches_wildcard = || {
        let parent = common_name.strip_prefix("*.")?;
        let (label, rest) = name.split_once('.')?;
        Some(!label.is_empty() && parent.contains('.') && rest.eq_ignore_ascii_case(parent))
    };
    let is_ip = name.parse::<std::net::IpAddr>().is_ok();
    common_name.eq_ignore_ascii_case(name) || (!is_ip && matches_wildcard().unwrap_or(false))
}

/// Verifies a signature of a TLS 1.2 handshake with the key of a certificate of any version.
fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = public_key(certificate)?;
    let key = webpki::RawPublicKeyEntity::try_from(&key).map_err(webpki_fault)?;
    let algorithms = crypto_provider().signature_verification_algorithms;
    let Some((_, candidates)) = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme)
    else {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    };
    let mut result = Err(CertificateError::BadSignature.into());
    // A scheme of TLS 1.2 leaves the curve open, so that several algorithms are candidates.
    for algorithm in *candidates {
        match key.verify_signature(*algorithm, message, signature.signature()) {
            Ok(()) => return Ok(HandshakeSignatureValid::assertion()),
            Err(webpki::Error::InvalidSignatureForPublicKey) => {
                return Err(CertificateError::BadSignature.into());
            }
            Err(fault) => result = Err(webpki_fault(fault)),
        }
    }
    result
}

/// Verifies a signature of a TLS 1.3 handshake with the key of a certificate of any version.
fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let algorithms = crypto_provider().signature_verification_algorithms;
    rustls::crypto::verify_tls13_signature_with_raw_key(
        message,
        &public_key(certificate)?,
        signature,
        &algorithms,
    )
}

fn webpki_fault(fault: webpki::Error) -> Error {
    CertificateError::Other(OtherError(Arc::new(fault))).into()
}

fn public_key<'c>(certificate: &'c CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'c>, Error> {
    let parts = CertificateParts::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    Ok(SubjectPublicKeyInfoDer::from(parts.public_key))
}

/// Turns a failure into success if the key is one with which nothing can be verified.
fn unless_unverifiable(
    result: Result<HandshakeSignatureValid, Error>,
    certificate: &CertificateDer<'_>,
) -> Result<HandshakeSignatureValid, Error> {
    match result {
        Err(Error::InvalidCertificate(CertificateError::BadSignature)) if can_verify(certificate) => {
            Err(CertificateError::BadSignature.into())
        }
        Err(Error::InvalidCertificate(_)) => Ok(HandshakeSignatureValid::assertion()),
        result => result,
    }
}

/// Returns whether signatures can be verified with the key of a certificate: not with an RSA key that is
/// too short or too long.
fn can_verify(certificate: &CertificateDer<'_>) -> bool {
    let Some(parts) = CertificateParts::parse(certificate) else { return false };
    rsa_bits(parts.public_key).is_none_or(|bits| RSA_BITS.contains(&bits))
}

/// Returns the length of an RSA key; `None`: the key is another one.
fn rsa_bits(public_key: &[u8]) -> Option<usize> {
    let (content, _) = expect(SEQUENCE, public_key)?;
    let (algorithm, key) = expect(SEQUENCE, content)?;
    let (identifier, _) = expect(OBJECT_IDENTIFIER, algorithm)?;
    if identifier != RSA_ENCRYPTION {
        return None;
    }
    let (bits, _) = expect(BIT_STRING, key)?;
    // The first byte is the number of unused bits.
    let (key, _) = expect(SEQUENCE, bits.get(1..)?)?;
    let (modulus, _) = expect(INTEGER, key)?;
    let start = modulus.iter().position(|&byte| byte != 0)?;
    let leading = modulus[start].leading_zeros() as usize;
    Some((modulus.len() - start) * 8 - leading)
}
