//! Certificate revocation lists (CRL, RFC 5280 §5) of files, for the verification of certificates. webpki
//! verifies the signature of a list and looks up the serial number; the times of the lists are read here.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::{CertificateError, Error};

use super::TlsConfigError;
use super::der::{CertificateParts, INTEGER, SEQUENCE, expect, parse_time};
use super::distinguished_name::name_text;

/// Maximum length of the lists of one setting together. The signature of a list is verified in each full
/// handshake, which reads the whole list: some 0.5 ms for each MiB.
const BYTES_MAX: u64 = 8 << 20;
/// Maximum number of lists of one setting.
const LISTS_MAX: usize = 256;

/// Certificates that are checked, and certificates that are refused besides those on a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationOptions {
    /// Files with lists in PEM or DER; none: revocation is not checked.
    pub files: Vec<PathBuf>,
    /// True if only the certificate of the peer is checked, not those of its authorities.
    pub only_leaf: bool,
    /// True if certificates whose issuer has no list are accepted.
    pub allows_unknown: bool,
    /// True if lists count after the time of their next update.
    pub allows_expired: bool,
}

impl RevocationOptions {
    /// Returns the flags, for digests and comparisons.
    fn flags(&self) -> u8 {
        [self.only_leaf, self.allows_unknown, self.allows_expired]
            .iter()
            .fold(0, |flags, flag| flags << 1 | u8::from(*flag))
    }
}

/// A list that is in use, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationListInfo {
    pub path: PathBuf,
    /// Name of the authority (RFC 4514).
    pub issuer: String,
    /// Time of the next update in seconds since 1970.
    pub next_update_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RevocationList {
    der: CertificateRevocationListDer<'static>,
    issued_at_s: u64,
    info: RevocationListInfo,
}

/// Lists of the files of a setting, the newest one of each issuer first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RevocationLists {
    lists: Vec<RevocationList>,
    options: RevocationOptions,
}

/// Times and issuer of a list.
struct ListParts<'a> {
    /// Content of the issuer's name.
    issuer: &'a [u8],
    issued_at_s: u64,
    next_update_s: u64,
}

impl RevocationLists {
    /// Reads the lists of all files.
    ///
    /// # Errors
    /// A file cannot be read, has no list, or the lists are too long together. All files at fault are
    /// reported.
    pub(super) fn read(options: &RevocationOptions) -> Result<Self, Vec<TlsConfigError>> {
        let (mut lists, mut failures) = (Vec::new(), Vec::new());
        let mut bytes_left = BYTES_MAX;
        for path in &options.files {
            match read_file(path, &mut bytes_left) {
                Ok(found) => lists.extend(found),
                Err(failure) => failures.push(failure),
            }
        }
        if let (true, Some(path)) = (lists.len() > LISTS_MAX, options.files.first()) {
            failures
                .push(TlsConfigError::in_file(path, format_args!("more than {LISTS_MAX} lists together")));
        }
        // webpki takes the first list of an issuer.
        lists.sort_by_key(|list: &RevocationList| std::cmp::Reverse(list.issued_at_s));
        match failures.is_empty() {
            true => Ok(Self { lists, options: options.clone() }),
            false => Err(failures),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    pub(super) fn options(&self) -> &RevocationOptions {
        &self.options
    }

    pub(super) fn ders(&self) -> Vec<CertificateRevocationListDer<'static>> {
        self.lists.iter().map(|list| list.der.clone()).collect()
    }

    pub(super) fn infos(&self) -> impl Iterator<Item = &RevocationListInfo> {
        self.lists.iter().map(|list| &list.info)
    }

    /// Calls `add` with all that decides on a certificate.
    pub(super) fn digest_into(&self, mut add: impl FnMut(&[u8])) {
        if !self.is_empty() {
            add(&[self.options.flags()]);
            self.lists.iter().for_each(|list| add(list.der.as_ref()));
        }
    }

    /// Returns the time from which sessions are not resumed, as their certificate may have been revoked
    /// meanwhile, in seconds since 1970; `None`: none.
    pub(super) fn sessions_end_s(&self) -> Option<u64> {
        let ends = self.infos().map(|info| info.next_update_s);
        ends.min().filter(|_| !self.options.allows_expired)
    }

    /// Returns the faults that do not keep the lists from being used: those that have expired, and
    /// authorities without a list.
    pub(super) fn warnings<'a>(
        &self,
        authorities: impl Iterator<Item = &'a [u8]>,
        now_s: u64,
    ) -> Vec<TlsConfigError> {
        let mut warnings = Vec::new();
        for info in self.infos().filter(|info| now_s >= info.next_update_s) {
            warnings
                .push(TlsConfigError::in_file(&info.path, expiry_text(info, self.options.allows_expired)));
        }
        let Some(first) = self.options.files.first().filter(|_| !self.options.allows_unknown) else {
            return warnings;
        };
        for parts in authorities.filter_map(CertificateParts::parse) {
            if !self.lists.iter().any(|list| list.issuer() == Some(parts.subject)) {
                let name = name_text(parts.subject).unwrap_or_default();
                let text = format!(
                    "no revocation list of the authority {name}: certificates that it issued are refused (add \
                     its list, or accept certificates without one)"
                );
                warnings.push(TlsConfigError::in_file(first, text));
            }
        }
        warnings
    }

    /// Checks a certificate that is trusted itself, without an issuer. Only a list of the name of its issuer
    /// counts, whose signature nothing can verify: the file is trusted as the certificate is.
    pub(super) fn check_trusted(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let parts = CertificateParts::parse(certificate).ok_or(CertificateError::BadEncoding)?;
        let (issuer, _) = expect(SEQUENCE, parts.issuer).ok_or(CertificateError::BadEncoding)?;
        for list in self.lists.iter().filter(|list| list.issuer() == Some(issuer)) {
            if !self.options.allows_expired && now.as_secs() >= list.info.next_update_s {
                return Err(CertificateError::ExpiredRevocationList.into());
            }
            let parsed = webpki::BorrowedCertRevocationList::from_der(list.der.as_ref());
            let parsed = parsed.map_err(|_| CertificateError::UnknownRevocationStatus)?;
            let found = webpki::CertRevocationList::from(parsed)
                .find_serial(parts.serial)
                .map(|revoked| revoked.is_some());
            match found {
                Ok(false) => {}
                Ok(true) => return Err(CertificateError::Revoked.into()),
                Err(_) => return Err(CertificateError::UnknownRevocationStatus.into()),
            }
        }
        Ok(())
    }
}

impl RevocationList {
    fn issuer(&self) -> Option<&[u8]> {
        ListParts::parse(self.der.as_ref()).map(|parts| parts.issuer)
    }
}

fn expiry_text(info: &RevocationListInfo, allows_expired: bool) -> String {
    let effect = match allows_expired {
        true => "it is still used",
        false => "all certificates of this authority are refused",
    };
    format!("the revocation list of {} has expired, and {effect}: renew it", info.issuer)
}

fn read_file(path: &Path, bytes_left: &mut u64) -> Result<Vec<RevocationList>, TlsConfigError> {
    let metadata = std::fs::metadata(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    if !metadata.is_file() {
        return Err(TlsConfigError::in_file(path, "it is no file"));
    }
    if metadata.len() > *bytes_left {
        let text = format_args!("the revocation lists are longer than {} MiB together", BYTES_MAX >> 20);
        return Err(TlsConfigError::in_file(path, text));
    }
    *bytes_left -= metadata.len();
    let bytes = std::fs::read(path).map_err(|error| TlsConfigError::in_file(path, error))?;
    parse_lists(&bytes, path)
}

/// Parses the lists of a file in PEM, or the one in DER.
fn parse_lists(bytes: &[u8], path: &Path) -> Result<Vec<RevocationList>, TlsConfigError> {
    let ders: Vec<CertificateRevocationListDer<'static>> = match bytes.first() {
        Some(&SEQUENCE) => vec![bytes.to_vec().into()],
        _ => {
            let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
            found.map_err(|_| TlsConfigError::in_file(path, "it is cut off, or not in PEM format"))?
        }
    };
    if ders.is_empty() {
        return Err(TlsConfigError::in_file(path, "no revocation list (X509 CRL) in PEM or DER format"));
    }
    ders.into_iter().map(|der| parse_list(der, path)).collect()
}

fn parse_list(
    der: CertificateRevocationListDer<'static>,
    path: &Path,
) -> Result<RevocationList, TlsConfigError> {
    let fault = |text: &str| TlsConfigError::in_file(path, text);
    if is_version_1(der.as_ref()) {
        return Err(fault("it is a list of version 1: create one of version 2 (with openssl ca: crlnumber)"));
    }
    let parsed = webpki::BorrowedCertRevocationList::from_der(der.as_ref());
    parsed.map_err(|error| {
        fault(match error {
            webpki::Error::UnsupportedDeltaCrl => {
                "it is a delta list (RFC 5280 §5.2.4): use the complete list"
            }
            webpki::Error::UnsupportedIndirectCrl => "it is an indirect list: use the list of the authority",
            _ => "the revocation list cannot be parsed: create it again",
        })
    })?;
    let parts = ListParts::parse(der.as_ref())
        .ok_or_else(|| fault("the revocation list has no time of its next update: create it with one"))?;
    let info = RevocationListInfo {
        path: path.to_owned(),
        issuer: name_text(parts.issuer).unwrap_or_default(),
        next_update_s: parts.next_update_s,
    };
    let issued_at_s = parts.issued_at_s;
    Ok(RevocationList { der, issued_at_s, info })
}

/// Returns whether a list in DER has no version, as in version 1, which has no number either.
fn is_version_1(der: &[u8]) -> bool {
    let content = expect(SEQUENCE, der).and_then(|(list, _)| expect(SEQUENCE, list));
    content.is_some_and(|(content, _)| content.first() == Some(&SEQUENCE))
}

impl<'a> ListParts<'a> {
    fn parse(der: &'a [u8]) -> Option<Self> {
        let (list, _) = expect(SEQUENCE, der)?;
        let (mut rest, _) = expect(SEQUENCE, list)?;
        if let Some((_, after)) = expect(INTEGER, rest) {
            rest = after;
        }
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (issuer, rest) = expect(SEQUENCE, rest)?;
        let (issued_at_s, rest) = parse_time(rest)?;
        let (next_update_s, _) = parse_time(rest)?;
        Some(Self { issuer, issued_at_s, next_update_s })
    }
}

#[cfg(test)]
mod tests;
