//! OCSP responses from files (RFC 6960), which a server staples to its certificate (RFC 6066 §8).
//! The client verifies the signature. The server checks only that the file is a response for its
//! certificate, so that a mistake is reported at the start and not by clients.

use std::path::Path;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::TlsConfigError;
use super::der::{CONTEXT_0, CertificateParts, ENUMERATED, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING};
use super::der::{SEQUENCE, element, expect, parse_time};

/// Maximum length of a response: clients reject longer ones.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;
/// `id-pkix-ocsp-basic`.
const BASIC_RESPONSE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const SHA1_IDENTIFIER: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const SHA256_IDENTIFIER: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
const STATUS_GOOD: u8 = 0x80;
const STATUS_REVOKED: u8 = 0xa1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OcspResponse {
    pub(super) der: Vec<u8>,
    /// Time at which newer information is available, in seconds since 1970; `None`: always.
    pub(super) next_update_s: Option<u64>,
}

/// Entry of a response for one certificate.
struct SingleResponse<'a> {
    hash_identifier: &'a [u8],
    issuer_name_hash: &'a [u8],
    serial: &'a [u8],
    status: u8,
    next_update_s: Option<u64>,
}

/// Reads the response of a file for a certificate in DER.
///
/// # Errors
/// The file cannot be read, is no successful response, or is one for other certificates; the
/// certificate is revoked.
pub(super) fn read_ocsp_response(path: &Path, certificate: &[u8]) -> Result<OcspResponse, TlsConfigError> {
    let metadata = std::fs::metadata(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    if !metadata.is_file() || metadata.len() > RESPONSE_BYTES_MAX {
        return Err(TlsConfigError::in_file(path, "it is no OCSP response in DER"));
    }
    let der = std::fs::read(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    check_response(&der, certificate)
        .map(|next_update_s| OcspResponse { der: der.clone(), next_update_s })
        .map_err(|reason| TlsConfigError::in_file(path, reason))
}

#[cfg(any(test, fuzzing))]
pub(crate) fn is_ocsp_response_for(der: &[u8], certificate: &[u8]) -> bool {
    check_response(der, certificate).is_ok()
}

/// Returns the time of the next update of a response for a certificate.
fn check_response(der: &[u8], certificate: &[u8]) -> Result<Option<u64>, &'static str> {
    let (status, basic) = split_response(der).ok_or("it is no OCSP response in DER")?;
    if status != [0] {
        return Err("the responder reported an error instead of a status: request it again");
    }
    let basic = basic.ok_or("it is no basic OCSP response")?;
    let entries = single_responses(basic).ok_or("it is no basic OCSP response")?;
    let certificate = CertificateParts::parse(certificate).ok_or("its certificate cannot be parsed")?;
    let is_of_certificate = |entry: &&SingleResponse<'_>| {
        let algorithm = match entry.hash_identifier {
            SHA1_IDENTIFIER => &SHA1_FOR_LEGACY_USE_ONLY,
            SHA256_IDENTIFIER => &SHA256,
            // The serial number decides.
            _ => return entry.serial == certificate.serial,
        };
        let is_issuer = digest(algorithm, certificate.issuer).as_ref() == entry.issuer_name_hash;
        is_issuer && entry.serial == certificate.serial
    };
    let entry = entries.iter().find(is_of_certificate);
    match entry.ok_or("this OCSP response is for another certificate")? {
        SingleResponse { status: STATUS_GOOD, next_update_s, .. } => Ok(*next_update_s),
        SingleResponse { status: STATUS_REVOKED, .. } => Err("the certificate is revoked"),
        _ => Err("the responder does not know the certificate"),
    }
}

/// Returns the status of a response, and the content of a basic one.
fn split_response(der: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (response, trailing) = expect(SEQUENCE, der)?;
    let (status, rest) = expect(ENUMERATED, response)?;
    if !trailing.is_empty() {
        return None;
    }
    Some((status, basic_response(rest)))
}

fn basic_response(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, _) = expect(CONTEXT_0, bytes)?;
    let (bytes, _) = expect(SEQUENCE, bytes)?;
    let (kind, bytes) = expect(OBJECT_IDENTIFIER, bytes)?;
    let (response, _) = expect(OCTET_STRING, bytes)?;
    (kind == BASIC_RESPONSE).then_some(response)
}

fn single_responses(basic: &[u8]) -> Option<Vec<SingleResponse<'_>>> {
    let (basic, _) = expect(SEQUENCE, basic)?;
    let (mut data, _) = expect(SEQUENCE, basic)?;
    if let Some((_, after_version)) = expect(CONTEXT_0, data) {
        data = after_version;
    }
    // The responder's id, by name or by key.
    let (_, _, data) = element(data)?;
    let (_, data) = parse_time(data)?;
    let (mut entries, _) = expect(SEQUENCE, data)?;
    let mut found = Vec::new();
    while !entries.is_empty() {
        let (entry, rest) = expect(SEQUENCE, entries)?;
        found.push(single_response(entry)?);
        entries = rest;
    }
    Some(found)
}

fn single_response(entry: &[u8]) -> Option<SingleResponse<'_>> {
    let (id, rest) = expect(SEQUENCE, entry)?;
    let (algorithm, id) = expect(SEQUENCE, id)?;
    let (hash_identifier, _) = expect(OBJECT_IDENTIFIER, algorithm)?;
    let (issuer_name_hash, id) = expect(OCTET_STRING, id)?;
    let (_, id) = expect(OCTET_STRING, id)?;
    let (serial, _) = expect(INTEGER, id)?;
    let (status, _, rest) = element(rest)?;
    let (_, rest) = parse_time(rest)?;
    let next_update_s = match expect(CONTEXT_0, rest) {
        Some((time, _)) => Some(parse_time(time)?.0),
        None => None,
    };
    Some(SingleResponse { hash_identifier, issuer_name_hash, serial, status, next_update_s })
}
