//! TLS of an origin: its certificates, from the flags.

use record::units::format_plural;
use std::path::{Path, PathBuf};

use record::problem::InputProblem;
use rt::tls::{
    CertificateFiles, CipherSuite, KeyExchangeGroup, ServerTls, ServerTlsOptions, TlsAlgorithms,
    TlsConfigError,
};

/// Flags of TLS as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTlsText {
    /// PEM files of certificate chains.
    pub certificates: Vec<String>,
    /// PEM files of their keys, in the same order; none: each is in the file of its certificate.
    pub keys: Vec<String>,
    /// True if a certificate is generated.
    pub self_signed: bool,
    /// Cipher suites; `None`: all.
    pub ciphers: Option<String>,
    /// Groups of the key exchange; `None`: the default ones.
    pub groups: Option<String>,
    /// File for the secrets of all sessions.
    pub key_log: Option<String>,
}

/// TLS of all listeners, with certificates that were read and checked.
#[derive(Clone, Debug)]
pub(crate) struct OriginTls {
    options: ServerTlsOptions,
    settings: ServerTls,
}

impl PartialEq for OriginTls {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
    }
}

impl Eq for OriginTls {}

impl OriginTls {
    /// Reads the certificates. Returns `None` without any of the flags. `alpn` are the protocols in the
    /// order of preference (RFC 7301).
    ///
    /// # Errors
    /// Everything that is wrong with the flags and their files.
    pub(crate) fn parse(text: &OriginTlsText, alpn: &[&[u8]]) -> Result<Option<Self>, Vec<InputProblem>> {
        if *text == OriginTlsText::default() {
            return Ok(None);
        }
        let OriginTlsText { certificates, keys, self_signed, ciphers, groups, key_log } = text;
        let algorithms = parse_algorithms(ciphers.as_deref(), groups.as_deref())?;
        if certificates.is_empty() && keys.is_empty() && !self_signed {
            let why = "no effect without TLS: add --tls-cert FILE or --tls-self-signed";
            let flag = match (ciphers, groups) {
                (Some(_), _) => "--tls-ciphers",
                (None, Some(_)) => "--tls-groups",
                (None, None) => "--tls-key-log",
            };
            return Err(vec![InputProblem::new(flag, why)]);
        }
        if !keys.is_empty() && keys.len() != certificates.len() {
            let keys = format_plural(keys.len() as u64, "key");
            let certificates = format_plural(certificates.len() as u64, "certificate");
            let why = format!("{keys} for {certificates} (--tls-cert): give one for each");
            return Err(vec![InputProblem::new("--tls-key", why)]);
        }
        let key_paths = if keys.is_empty() { certificates } else { keys };
        let files = certificates.iter().zip(key_paths).map(|(certificate, key)| CertificateFiles {
            certificate: PathBuf::from(certificate),
            key: PathBuf::from(key),
            ocsp: None,
        });
        let options = ServerTlsOptions {
            certificates: files.collect(),
            self_signed: *self_signed,
            prefers_own_suites: !algorithms.cipher_suites.is_empty(),
            algorithms,
            key_log: key_log.as_ref().map(PathBuf::from),
            alpn: alpn.iter().map(|protocol| protocol.to_vec()).collect(),
            ..ServerTlsOptions::default()
        };
        match ServerTls::new(&options) {
            Ok(settings) => Ok(Some(Self { options, settings })),
            Err(errors) => {
                let problem = |error| problem_from(error, certificates, options.key_log.as_deref());
                Err(errors.iter().map(problem).collect())
            }
        }
    }

    pub(crate) fn key_log(&self) -> Option<&Path> {
        self.options.key_log.as_deref()
    }

    pub(crate) fn settings(&self) -> &ServerTls {
        &self.settings
    }
}

fn parse_algorithms(ciphers: Option<&str>, groups: Option<&str>) -> Result<TlsAlgorithms, Vec<InputProblem>> {
    let cipher_suites = ciphers.map(CipherSuite::parse_list).transpose();
    let groups = groups.map(KeyExchangeGroup::parse_list).transpose();
    match (cipher_suites, groups) {
        (Ok(cipher_suites), Ok(groups)) => Ok(TlsAlgorithms {
            cipher_suites: cipher_suites.unwrap_or_default(),
            groups: groups.unwrap_or_default(),
        }),
        (cipher_suites, groups) => {
            let faults = [("--tls-ciphers", cipher_suites.err()), ("--tls-groups", groups.err())];
            Err(faults.into_iter().filter_map(|(flag, why)| Some(InputProblem::new(flag, why?))).collect())
        }
    }
}

/// Names the flag of a file at fault.
fn problem_from(error: &TlsConfigError, certificates: &[String], key_log: Option<&Path>) -> InputProblem {
    let is_certificate =
        |path: &PathBuf| certificates.iter().any(|certificate| Path::new(certificate) == path);
    let flag = match &error.path {
        Some(path) if is_certificate(path) => "--tls-cert",
        Some(path) if key_log == Some(path) => "--tls-key-log",
        Some(_) => "--tls-key",
        None => "--tls-self-signed",
    };
    InputProblem::new(flag, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(certificates: &[&str], keys: &[&str]) -> Vec<(String, String)> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let text = OriginTlsText {
            certificates: owned(certificates),
            keys: owned(keys),
            ..OriginTlsText::default()
        };
        let problems = OriginTls::parse(&text, &[b"h2"]).unwrap_err();
        problems.into_iter().map(|problem| (problem.location, problem.text)).collect()
    }

    #[test]
    fn every_file_at_fault_is_named_with_its_flag() {
        let found = problems(&["/no/such/a.pem", "/no/such/b.pem"], &[]);
        assert_eq!(found.len(), 2, "{found:?}");
        for ((flag, text), file) in found.iter().zip(["/no/such/a.pem", "/no/such/b.pem"]) {
            assert!(flag == "--tls-cert" && text.starts_with(file), "{flag}: {text}");
        }
        assert_eq!(problems(&[], &["/no/such/key.pem"])[0].0, "--tls-key");
        assert_eq!(problems(&["a", "b"], &["c"])[0].0, "--tls-key");
    }

    #[test]
    fn a_key_at_fault_is_named_with_its_flag() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("empty.pem"), "").unwrap();
        let found = problems(&[&path("empty.pem")], &[&path("missing.pem")]);
        // The certificate is read first.
        assert_eq!(found[0].0, "--tls-cert", "{found:?}");
    }

    #[test]
    fn a_self_signed_certificate_needs_no_file() {
        assert_eq!(OriginTls::parse(&OriginTlsText::default(), &[b"h2"]), Ok(None));
        let text = OriginTlsText { self_signed: true, ..OriginTlsText::default() };
        assert!(OriginTls::parse(&text, &[b"h2"]).unwrap().is_some());
    }
}
