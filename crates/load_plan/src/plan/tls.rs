//! Settings of TLS for the connections of a load, from their flags. Files are read by
//! [`TlsPlan::load`], before a run and by each run: a plan itself opens nothing.

use std::path::{Path, PathBuf};

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::parse_fraction;
use rt::tls::{
    CertificateFiles, CipherSuite, ClientTls, ClientTlsOptions, KeyExchangeGroup, RevocationOptions,
    TlsAlgorithms, TlsConfigError, TlsVersion, UnknownAlgorithm, Verification,
};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

#[derive(Clone, Debug, Default)]
pub struct TlsFlags {
    pub cacert: Option<String>,
    pub insecure: bool,
    pub cert: Option<String>,
    pub key: Option<String>,
    pub tls_min: Option<String>,
    pub tls_max: Option<String>,
    pub tls_resume: Option<String>,
    pub tls_new: Option<String>,
    pub tls_ciphers: Option<String>,
    pub tls_groups: Option<String>,
    pub tls_key_log: Option<String>,
}

impl TlsFlags {
    /// Returns a problem for each flag that was given: without TLS they would have no effect. `--insecure` is none:
    /// it is harmless, as `-k` of curl with http:// and of ab, which keeps connections alive.
    pub(super) fn problems_without_tls(&self) -> impl Iterator<Item = InputProblem> {
        let given = [
            ("--cacert", self.cacert.is_some()),
            ("--cert", self.cert.is_some()),
            ("--key", self.key.is_some()),
            ("--tls-min", self.tls_min.is_some()),
            ("--tls-max", self.tls_max.is_some()),
            ("--tls-resume", self.tls_resume.is_some()),
            ("--tls-new", self.tls_new.is_some()),
            ("--tls-ciphers", self.tls_ciphers.is_some()),
            ("--tls-groups", self.tls_groups.is_some()),
            ("--tls-key-log", self.tls_key_log.is_some()),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(flag, _)| InputProblem::new(flag, "no effect, because no connection uses TLS (https://)"))
    }

    /// Reads the files. Returns every one at fault, with its flag.
    pub fn file_problems(&self) -> Vec<InputProblem> {
        let Self { cacert, cert, tls_key_log, .. } = self;
        if cacert.is_none() && cert.is_none() && tls_key_log.is_none() {
            return Vec::new();
        }
        TlsPlan::parse(self).0.load().err().unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TlsPlan {
    /// PEM file of the trusted certificate authorities; `None`: those that this host trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    /// True if any certificate is accepted.
    pub insecure: bool,
    /// PEM file of the client's own certificate chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Oldest protocol version.
    #[serde(serialize_with = "serialize_version")]
    pub version_min: TlsVersion,
    /// Newest protocol version.
    #[serde(serialize_with = "serialize_version")]
    pub version_max: TlsVersion,
    /// Cipher suites and groups; empty lists: the default ones.
    #[serde(serialize_with = "serialize_algorithms")]
    pub algorithms: TlsAlgorithms,
    /// File for the secrets of all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_log: Option<PathBuf>,
    /// Fraction of the connections that resume a session of an earlier one.
    pub resume_fraction: f64,
}

fn serialize_version<S: Serializer>(version: &TlsVersion, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(version_name(*version))
}

fn serialize_algorithms<S: Serializer>(algorithms: &TlsAlgorithms, serializer: S) -> Result<S::Ok, S::Error> {
    let suites: Vec<_> = algorithms.cipher_suites.iter().map(|suite| suite.name()).collect();
    let groups: Vec<_> = algorithms.groups.iter().map(|group| group.name()).collect();
    let mut lists = serializer.serialize_struct("TlsAlgorithms", 2)?;
    lists.serialize_field("cipher_suites", &suites)?;
    lists.serialize_field("groups", &groups)?;
    lists.end()
}

pub fn version_name(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::Tls12 => "1.2",
        TlsVersion::Tls13 => "1.3",
    }
}

impl TlsPlan {
    pub(super) fn parse(text: &TlsFlags) -> (Self, Vec<InputProblem>) {
        let mut problems = Vec::new();
        let mut read_version = |flag: &str, text: &Option<String>, default| match text.as_deref() {
            None => default,
            Some("1.2") => TlsVersion::Tls12,
            Some("1.3") => TlsVersion::Tls13,
            Some(other) => {
                problems.push(InputProblem::new(flag, format!("'{other}' is neither 1.2 nor 1.3")));
                default
            }
        };
        let version_min = read_version("--tls-min", &text.tls_min, TlsVersion::Tls12);
        let version_max = read_version("--tls-max", &text.tls_max, TlsVersion::Tls13);
        if version_min > version_max {
            problems.push(InputProblem::new("--tls-min", "newer than --tls-max: no version is left"));
        }
        if text.insecure && text.cacert.is_some() {
            let why = "--insecure accepts any certificate: remove one of them";
            problems.push(InputProblem::new("--cacert", why));
        }
        if text.key.is_some() && text.cert.is_none() {
            problems.push(InputProblem::new("--key", "the key of no certificate: add --cert FILE"));
        }
        let mut report = |flag: &str, why: UnknownAlgorithm| problems.push(InputProblem::new(flag, why));
        let suites = text.tls_ciphers.as_deref().map(CipherSuite::parse_list).transpose();
        let groups = text.tls_groups.as_deref().map(KeyExchangeGroup::parse_list).transpose();
        let algorithms = TlsAlgorithms {
            cipher_suites: suites
                .map_err(|why| report("--tls-ciphers", why))
                .ok()
                .flatten()
                .unwrap_or_default(),
            groups: groups.map_err(|why| report("--tls-groups", why)).ok().flatten().unwrap_or_default(),
        };
        let plan = Self {
            cacert: text.cacert.as_ref().map(PathBuf::from),
            insecure: text.insecure,
            cert: text.cert.as_ref().map(PathBuf::from),
            key: text.key.as_ref().or(text.cert.as_ref()).map(PathBuf::from),
            version_min,
            version_max,
            algorithms,
            key_log: text.tls_key_log.as_ref().map(PathBuf::from),
            resume_fraction: resume_fraction(text).unwrap_or_else(|problem| {
                problems.push(problem);
                1.0
            }),
        };
        (plan, problems)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Every file at fault, with its flag.
    pub fn load(&self) -> Result<ClientTls, Vec<InputProblem>> {
        let options = ClientTlsOptions {
            verification: match (&self.cacert, self.insecure) {
                (_, true) => Verification::Off,
                (Some(path), false) => Verification::CaFile(path.clone()),
                (None, false) => Verification::HostRoots,
            },
            revocation: RevocationOptions::default(),
            certificate: self.certificate(),
            resumes: self.resume_fraction > 0.0,
            version_min: self.version_min,
            version_max: self.version_max,
            algorithms: self.algorithms.clone(),
            key_log: self.key_log.clone(),
            alpn: vec![b"http/1.1".to_vec()],
        };
        let error = match ClientTls::new(&options) {
            Ok(tls) => return Ok(tls),
            Err(error) => error,
        };
        // The first file at fault hides the others: each is tried alone.
        let without_certificate = ClientTlsOptions { certificate: None, ..options.clone() };
        let without_authorities = ClientTlsOptions { verification: Verification::Off, ..options };
        let alone = [without_certificate, without_authorities].map(|options| ClientTls::new(&options).err());
        let mut problems: Vec<_> =
            alone.into_iter().flatten().map(|error| self.problem_from(&error)).collect();
        problems.dedup();
        Err(if problems.is_empty() { vec![self.problem_from(&error)] } else { problems })
    }

    fn certificate(&self) -> Option<CertificateFiles> {
        let (certificate, key) = self.cert.clone().zip(self.key.clone())?;
        Some(CertificateFiles { certificate, key, ocsp: None })
    }

    /// Names the flag of a file at fault.
    fn problem_from(&self, error: &TlsConfigError) -> InputProblem {
        let is_of = |file: &Option<PathBuf>| error.path.as_deref().is_some_and(|path| is_same(file, path));
        let flag = match () {
            () if is_of(&self.cert) => "--cert",
            () if is_of(&self.key) => "--key",
            () if is_of(&self.key_log) => "--tls-key-log",
            () => "--cacert",
        };
        InputProblem::new(flag, error)
    }
}

fn is_same(file: &Option<PathBuf>, path: &Path) -> bool {
    file.as_deref() == Some(path)
}

fn resume_fraction(text: &TlsFlags) -> Result<f64, InputProblem> {
    let Some(new) = &text.tls_new else {
        return parse_resume(text.tls_resume.as_deref())
            .map_err(|why| InputProblem::new("--tls-resume", why));
    };
    if text.tls_resume.is_some() {
        return Err(InputProblem::new("--tls-new", "--tls-resume sets the rest of it: remove one of them"));
    }
    parse_fraction(new).map(|new| 1.0 - new).map_err(|why| InputProblem::new("--tls-new", why))
}

fn parse_resume(text: Option<&str>) -> Result<f64, InvalidValue> {
    match text {
        None | Some("on") => Ok(1.0),
        Some("off") => Ok(0.0),
        Some(text) => parse_fraction(text)
            .map_err(|_| invalid_value!("'{text}' is not on, off or a fraction such as 90%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations(problems: &[InputProblem]) -> Vec<&str> {
        problems.iter().map(|problem| problem.location.as_str()).collect()
    }

    #[test]
    fn the_defaults_verify_and_resume() {
        let (plan, problems) = TlsPlan::parse(&TlsFlags::default());
        assert!(problems.is_empty() && !plan.insecure && plan.cacert.is_none());
        assert_eq!((plan.version_min, plan.version_max), (TlsVersion::Tls12, TlsVersion::Tls13));
        assert!((plan.resume_fraction - 1.0).abs() < f64::EPSILON);
        let json = serde_json::to_value(&plan).unwrap();
        assert_eq!((json["version_min"].as_str(), json["version_max"].as_str()), (Some("1.2"), Some("1.3")));
    }

    #[test]
    fn every_contradiction_is_a_problem() {
        let flags = TlsFlags {
            cacert: Some("ca.pem".into()),
            insecure: true,
            key: Some("key.pem".into()),
            tls_min: Some("1.3".into()),
            tls_max: Some("1.2".into()),
            tls_resume: Some("sometimes".into()),
            ..TlsFlags::default()
        };
        let (_, problems) = TlsPlan::parse(&flags);
        assert_eq!(locations(&problems), ["--tls-min", "--cacert", "--key", "--tls-resume"]);
        let old = TlsFlags { tls_max: Some("1.1".into()), ..TlsFlags::default() };
        assert_eq!(locations(&TlsPlan::parse(&old).1), ["--tls-max"]);
        assert_eq!(flags.problems_without_tls().count(), 5, "all but --insecure");
    }

    #[test]
    fn every_file_at_fault_is_named_with_its_flag() {
        let flags = TlsFlags {
            cacert: Some("/no/such/ca.pem".into()),
            cert: Some("/no/such/cert.pem".into()),
            ..TlsFlags::default()
        };
        let problems = flags.file_problems();
        assert_eq!(locations(&problems), ["--cacert", "--cert"], "{problems:?}");
        assert!(problems[1].to_string().contains("/no/such/cert.pem"), "{problems:?}");
        let insecure = TlsFlags { insecure: true, ..TlsFlags::default() };
        assert!(insecure.file_problems().is_empty() && TlsPlan::parse(&insecure).0.load().is_ok());
    }

    #[test]
    fn a_fraction_of_the_connections_may_resume() {
        let fraction = |text: &str| {
            let flags = TlsFlags { tls_resume: Some(text.into()), ..TlsFlags::default() };
            let (plan, problems) = TlsPlan::parse(&flags);
            assert!(problems.is_empty(), "{problems:?}");
            (plan.resume_fraction * 100.0).round()
        };
        assert_eq!(["on", "off", "90%", "0.5"].map(fraction), [100.0, 0.0, 90.0, 50.0]);
        let new = TlsFlags { tls_new: Some("20%".into()), ..TlsFlags::default() };
        let (plan, problems) = TlsPlan::parse(&new);
        assert!(problems.is_empty() && (plan.resume_fraction - 0.8).abs() < 1e-9);
        let both = TlsFlags { tls_resume: Some("on".into()), ..new };
        assert_eq!(locations(&TlsPlan::parse(&both).1), ["--tls-new"]);
    }
}
