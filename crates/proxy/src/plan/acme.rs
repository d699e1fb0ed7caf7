//! Automatic certificates of a listener (ACME, RFC 8555).

use std::path::PathBuf;

use rt::tls::{CertificateFiles, ServerTlsOptions};

/// `[listener.NAME.tls.acme]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmePlan {
    pub directory: Box<str>,
    /// PEM file of the authorities of the ACME server; `None`: those that this host trusts.
    pub ca: Option<PathBuf>,
    /// URLs of the account's contacts, such as `mailto:a@example.org`.
    pub contact: Vec<Box<str>>,
    /// Names in the certificate, the first of which names the file.
    pub domains: Vec<Box<str>>,
    /// Directory of the account and the certificates.
    pub storage: PathBuf,
    pub challenge: AcmeChallenge,
}

/// Proof of the control of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A file at port 80 (RFC 8555 §8.3).
    Http01,
    /// A certificate at port 443 (RFC 8737).
    TlsAlpn01,
}

impl AcmePlan {
    /// Returns the file with the certificate, its chain and its key.
    pub(crate) fn certificate_path(&self) -> PathBuf {
        let name = self.domains.first().map_or("", |name| &**name).replace('*', "_");
        self.storage.join(format!("{name}.pem"))
    }

    /// Completes the options of a listener: the certificate if it has been issued, and otherwise a
    /// self-signed one.
    pub(crate) fn complete(&self, options: &mut ServerTlsOptions) {
        let path = self.certificate_path();
        options.certificates.retain(|files| files.certificate != path);
        options.answers_acme = self.challenge == AcmeChallenge::TlsAlpn01;
        if path.exists() {
            let files = CertificateFiles { certificate: path.clone(), key: path, ocsp: None };
            options.certificates.push(files);
        }
        options.self_signed = options.certificates.is_empty();
    }
}
