//! Certificates and keys in PEM files (RFC 7468).

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::der::CertificateParts;
use super::{TlsConfigError, crypto_provider};

/// Maximum size of a PEM file: a bundle of all public authorities has 250 kB.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// Reads a chain, its leaf first, and the key that belongs to it. One file may have both.
pub(super) fn read_certified_key(chain_path: &Path, key_path: &Path) -> Result<CertifiedKey, TlsConfigError> {
    let chain = read_certificates(chain_path)?;
    let key = PrivateKeyDer::from_pem_slice(&read_file(key_path)?).map_err(|error| match error {
        PemError::NoItemsFound => {
            TlsConfigError::in_file(key_path, "no private key in PEM format (PKCS#8, PKCS#1 or SEC1)")
        }
        error => TlsConfigError::in_file(key_path, error),
    })?;
    let key = CertifiedKey::from_der(chain, key, &crypto_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsConfigError::in_file(
            key_path,
            format_args!("this key does not belong to the certificate in {}", chain_path.display()),
        ),
        error => TlsConfigError::in_file(chain_path, error),
    })?;
    Ok(key)
}

/// Reads all certificates of a file.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let text = read_file(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsConfigError::in_file(path, "no certificate in PEM format"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(TlsConfigError::in_file(path, error)),
    }
}

/// Returns the start and the end of the validity of a file's first certificate, in seconds since
/// 1970.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn certificate_validity(path: &Path) -> Result<(u64, u64), TlsConfigError> {
    let certificates = read_certificates(path)?;
    let parts = certificates.first().and_then(|leaf| CertificateParts::parse(leaf));
    parts
        .map(|parts| parts.validity_s)
        .ok_or_else(|| TlsConfigError::in_file(path, "the certificate cannot be parsed"))
}

/// Returns the DNS names of a file's first certificate.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn certificate_names(path: &Path) -> Result<Vec<String>, TlsConfigError> {
    let certificates = read_certificates(path)?;
    Ok(certificates.first().map(names_in).unwrap_or_default())
}

/// Returns the DNS names of a certificate (subjectAltName, RFC 5280 §4.2.1.6).
pub(super) fn names_in(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    parsed.map(|certificate| certificate.valid_dns_names().map(String::from).collect()).unwrap_or_default()
}

/// Reads the certificate authorities of a file.
pub(super) fn read_roots(path: &Path) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate).map_err(|error| TlsConfigError::in_file(path, error))?;
    }
    Ok(roots)
}

/// Reads the certificate authorities that this host trusts.
pub(super) fn read_host_roots() -> Result<Arc<RootCertStore>, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(TlsConfigError::without_file(
            "this host has no certificate authorities (package ca-certificates): name a file of them",
        ));
    }
    Ok(Arc::new(roots))
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsConfigError> {
    let metadata = std::fs::metadata(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    if metadata.is_dir() {
        return Err(TlsConfigError::in_file(path, "it is a directory, not a PEM file"));
    }
    if metadata.len() > PEM_BYTES_MAX {
        return Err(TlsConfigError::in_file(path, format_args!("longer than {PEM_BYTES_MAX} bytes")));
    }
    std::fs::read(path).map_err(|error| TlsConfigError::in_file(path, error))
}
