//! Automatic certificates of a listener (ACME, RFC 8555).

use std::path::{Path, PathBuf};

use rt::tls::{CertificateFiles, ServerTlsOptions, TlsConfigError};

use crate::stored_certificate::{check_certificate, note_loaded};

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
    /// Other replicas with the same storage; `None`: it belongs to processes of this host.
    pub sharing: Option<SharingPlan>,
    pub challenge: AcmeChallenge,
    /// Settings of DNS-01; `None`: another challenge.
    pub dns: Option<DnsChallengePlan>,
}

/// Proof of the control of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A file at port 80 (RFC 8555 §8.3).
    Http01,
    /// A certificate at port 443 (RFC 8737).
    TlsAlpn01,
    /// A TXT record (RFC 8555 §8.4).
    Dns01,
}

/// Times of replicas that share a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharingPlan {
    /// Time after which the lock of a replica that does not renew it is free.
    pub lease_ns: u64,
    /// Interval at which a replica looks for files of the others.
    pub poll_interval_ns: u64,
}

/// `[listener.NAME.tls.acme.dns]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsChallengePlan {
    pub provider: DnsProvider,
    pub check: PropagationCheck,
    pub propagation_timeout_ns: u64,
    pub propagation_interval_ns: u64,
}

/// Way to change the records of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsProvider {
    /// Dynamic updates (RFC 2136).
    Update(UpdatePlan),
    /// A program.
    Hook(HookPlan),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdatePlan {
    /// Primary name server of the zone, with its port.
    pub server: Box<str>,
    pub key: TsigKeySource,
    /// `None`: the server knows it.
    pub zone: Option<Box<str>>,
    pub ttl_s: u32,
}

/// Place of the key of updates, which is read for each order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TsigKeySource {
    /// File in the format of BIND.
    File(PathBuf),
    /// File with the secret in base64.
    Secret { name: Box<str>, algorithm: TsigAlgorithm, file: PathBuf },
}

impl TsigKeySource {
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Secret { file: path, .. } => path,
        }
    }
}

/// Algorithms of signatures. Those with MD5 and SHA-1 are not offered: they must not be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigAlgorithm {
    HmacSha256,
    HmacSha384,
    HmacSha512,
}

impl TsigAlgorithm {
    pub const ALL: [Self; 3] = [Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];

    /// Returns the name in messages and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha384 => "hmac-sha384",
            Self::HmacSha512 => "hmac-sha512",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim_end_matches('.');
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookPlan {
    /// The program and its first arguments.
    pub command: Vec<Box<str>>,
    pub timeout_ns: u64,
}

/// Name servers that must have a record before it is validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropagationCheck {
    /// None: the hook returns once the record is visible.
    None,
    /// These, with their ports.
    Servers(Vec<Box<str>>),
    /// All name servers of the zone.
    Authoritative,
}

impl AcmePlan {
    /// Returns the file with the certificate, its chain and its key.
    pub fn certificate_path(&self) -> PathBuf {
        self.storage.join(format!("{}.pem", self.file_name()))
    }

    /// Returns the file name of the certificate without its extension.
    pub fn file_name(&self) -> String {
        self.domains.first().map_or("", |name| &**name).replace('*', "_")
    }

    /// Returns the key of dynamic updates.
    pub fn key_source(&self) -> Option<&TsigKeySource> {
        match &self.dns.as_ref()?.provider {
            DnsProvider::Update(update) => Some(&update.key),
            DnsProvider::Hook(_) => None,
        }
    }

    /// Returns the hook that changes the records.
    pub fn hook(&self) -> Option<&HookPlan> {
        match &self.dns.as_ref()?.provider {
            DnsProvider::Update(_) => None,
            DnsProvider::Hook(hook) => Some(hook),
        }
    }

    /// Completes the options of a listener: the certificate if it has been issued, and otherwise a
    /// self-signed one. Returns the fault of a stored file that cannot be used, and is not.
    pub fn complete(&self, options: &mut ServerTlsOptions) -> Option<TlsConfigError> {
        let path = self.certificate_path();
        options.certificates.retain(|files| files.certificate != path);
        options.answers_acme = self.challenge == AcmeChallenge::TlsAlpn01;
        note_loaded(&path);
        let fault = match path.exists() {
            true => check_certificate(&path).err(),
            false => None,
        };
        if path.exists() && fault.is_none() {
            let files = CertificateFiles { certificate: path.clone(), key: path, ocsp: None };
            options.certificates.push(files);
        }
        options.self_signed = options.certificates.is_empty();
        fault
    }
}
