//! Certificates and keys in PEM files (RFC 7468).

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::der::{CertificateParts, SUBJECT_ALT_NAME};
use super::distinguished_name::common_name;
use super::{TlsConfigError, crypto_provider};

/// Maximum size of a PEM file: a bundle of all public authorities has 250 kB.
const PEM_BYTES_MAX: u64 = 4 << 20;

const USABLE_KEYS: &str = "the private key cannot be used: use RSA of 2,048 to 8,192 bits, ECDSA with P-256, \
                           P-384 or P-521, or Ed25519";

/// Reads a chain, its leaf first, and the key that belongs to it. One file may have both. The leaf may have
/// any version of X.509: its clients decide.
pub(super) fn read_certified_key(chain_path: &Path, key_path: &Path) -> Result<CertifiedKey, TlsConfigError> {
    let chain = read_certificates(chain_path)?;
    let key = read_key(key_path)?;
    let key = crypto_provider()
        .key_provider
        .load_private_key(key)
        .map_err(|_| TlsConfigError::in_file(key_path, USABLE_KEYS))?;
    // The list of certificates is not empty.
    let leaf = chain.first().and_then(|leaf| CertificateParts::parse(leaf));
    let leaf = leaf.ok_or_else(|| {
        TlsConfigError::in_file(
            chain_path,
            "the first certificate is not one in DER (X.690): create it again",
        )
    })?;
    let belongs = key.public_key().is_none_or(|public_key| public_key.as_ref() == leaf.public_key);
    if !belongs {
        let chain_path = chain_path.display();
        let reason = format_args!("this key does not belong to the certificate in {chain_path}");
        return Err(TlsConfigError::in_file(key_path, reason));
    }
    Ok(CertifiedKey::new(chain, key))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    let text = read_file(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound if text.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) => {
            let command = format_args!(
                "the private key is encrypted with a passphrase: decrypt it (openssl pkey -in {} -out NEW)",
                path.display()
            );
            TlsConfigError::in_file(path, command)
        }
        PemError::NoItemsFound => {
            TlsConfigError::in_file(path, "no private key in PEM format (PKCS#8, PKCS#1 or SEC1)")
        }
        error => TlsConfigError::in_file(path, describe_pem_fault(&error)),
    })
}

/// Label of private keys that need a passphrase (RFC 5958).
const ENCRYPTED: &[u8] = b"BEGIN ENCRYPTED PRIVATE KEY";

fn describe_pem_fault(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(end_marker);
            format!("it is cut off: the line -----END {}----- is missing", label.escape_debug())
        }
        PemError::IllegalSectionStart { line } => {
            let line = String::from_utf8_lossy(line);
            format!("the line '{}' is no start of a section in PEM format", line.trim_end().escape_debug())
        }
        PemError::Base64Decode(_) => "a section in PEM format is not valid base64".to_owned(),
        PemError::Io(error) => error.to_string(),
        _ => "it is not in PEM format".to_owned(),
    }
}

pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let text = read_file(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsConfigError::in_file(path, "no certificate in PEM format"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(TlsConfigError::in_file(path, describe_pem_fault(&error))),
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
        .and_then(|parts| parts.validity_s)
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

/// Returns the DNS names of a certificate (subjectAltName, RFC 5280 §4.2.1.6), or its common name if it has
/// no names at all, as with version 1.
pub(super) fn names_in(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Some(parts) = CertificateParts::parse(certificate) else { return Vec::new() };
    if parts.extension(SUBJECT_ALT_NAME) == Ok(None) {
        return common_name(parts.subject)
            .filter(|name| is_dns_name(name))
            .map(String::from)
            .into_iter()
            .collect();
    }
    let parsed = webpki::EndEntityCert::try_from(certificate);
    parsed.map(|certificate| certificate.valid_dns_names().map(String::from).collect()).unwrap_or_default()
}

/// Returns whether a common name is like a DNS name, with a wildcard or not, and no title or address.
fn is_dns_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_*".contains(&byte))
        && name.bytes().any(|byte| byte.is_ascii_alphabetic())
}

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
