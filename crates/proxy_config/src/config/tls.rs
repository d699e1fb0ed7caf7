//! Converts `[listener.NAME.tls]` and `[pool.NAME.tls]` to their parts of the plan, and reads the
//! files that they name.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use record::document::{Located, Problems};
use rt::tls::{
    CertificateFiles, ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, TlsAlgorithms,
    TlsConfigError, TlsVersion, Verification, check_server_name,
};

use crate::plan::{ListenerTls, Mode, NamedServers, PoolTls, ServerHttp, ServerPlan};

use super::errors::ValueError;
use super::validate;
use super::value::Section;
use super::{acme, hsts, revocation};

/// Protocols that clients of HTTP listeners negotiate (RFC 7301).
const HTTP_ALPN: &[u8] = b"http/1.1";
const HTTP2_ALPN: &[u8] = b"h2";
/// Keys that only clients' certificates need.
const CLIENT_KEYS: [&str; 2] = ["client-certificate", "client-certificate-header"];

/// Files that a table names, with the positions of their names.
#[derive(Default)]
pub(super) struct NamedFiles(Vec<(PathBuf, usize)>);

impl NamedFiles {
    /// Reports faults of files at the positions of their names, all others at `offset`.
    fn report(&self, failures: Vec<TlsConfigError>, offset: usize, problems: &mut Problems) {
        for failure in failures {
            problems.add_error(self.offset_of(&failure).unwrap_or(offset), failure.to_string());
        }
    }

    fn offset_of(&self, fault: &TlsConfigError) -> Option<usize> {
        self.0.iter().find(|(path, _)| Some(path) == fault.path.as_ref()).map(|(_, offset)| *offset)
    }

    pub(super) fn add(&mut self, text: Located<Box<str>>) -> PathBuf {
        let path = PathBuf::from(&*text.value);
        self.0.push((path.clone(), text.offset));
        path
    }
}

/// Returns the table of TLS; `None`: it was not given, or is invalid, which has been reported.
fn tls_table(parent: &Section) -> Option<Section> {
    parent.key_offset("tls")?;
    let section = parent.table("tls");
    (section.offset != parent.offset).then_some(section)
}

fn parse_version(section: &Section) -> TlsVersion {
    match section.text("min-version").as_ref().map(|text| &*text.value) {
        Some("1.3") => TlsVersion::Tls13,
        _ => TlsVersion::Tls12,
    }
}

/// Reads the cipher suites and groups of a table.
fn parse_algorithms(section: &Section, problems: &mut Problems) -> TlsAlgorithms {
    fn parse_all<T: FromStr<Err: fmt::Display>>(
        section: &Section,
        key: &str,
        problems: &mut Problems,
    ) -> Vec<T> {
        let names = section.texts(key).into_iter();
        names.filter_map(|text| problems.ok_or_report(text.offset, text.value.parse::<T>())).collect()
    }
    TlsAlgorithms {
        cipher_suites: parse_all(section, "cipher-suites", problems),
        groups: parse_all(section, "groups", problems),
    }
}

pub(super) fn parse_listener_tls(
    listener: &Section,
    mode: Mode,
    has_http2: bool,
    problems: &mut Problems,
) -> Option<ListenerTls> {
    let section = tls_table(listener)?;
    let mut files = NamedFiles::default();
    let mut certificates = parse_certificates(&section, &mut files, problems);
    let directory = parse_directory(&section, &mut certificates, &mut files, problems);
    let acme = acme::parse_acme(&section, mode, problems);
    let is_empty = certificates.is_empty() && !section.flag("self-signed") && acme.is_none();
    let is_any_given =
        ["certificates", "directory", "acme"].iter().any(|key| section.key_offset(key).is_some());
    if is_empty && !is_any_given {
        problems.add_error(
            section.offset,
            "TLS needs a certificate: add certificates, directory, acme or self-signed",
        );
    }
    warn_of_readable_keys(&certificates, &files, problems);
    let client_header = parse_client_header(&section, mode, problems);
    let algorithms = parse_algorithms(&section, problems);
    let hsts = parse_hsts(&section, mode, problems);
    let client_revocation = revocation::CLIENT_KEYS.parse(&section, &mut files, problems);
    let mut options = ServerTlsOptions {
        certificates,
        answers_acme: false,
        self_signed: section.flag("self-signed"),
        client_ca: section.text("client-ca").map(|text| files.add(text)),
        ticket_key_files: parse_ticket_key_files(&section, &mut files, problems),
        key_log: parse_key_log(&section, &mut files, problems),
        client_revocation,
        client_certificate_optional: section
            .text("client-certificate")
            .is_some_and(|text| &*text.value == "optional"),
        version_min: parse_version(&section),
        prefers_own_suites: match section.text("cipher-preference") {
            Some(preference) => &*preference.value == "server",
            None => !algorithms.cipher_suites.is_empty(),
        },
        algorithms,
        alpn: alpn_of(mode, has_http2),
    };
    if is_empty {
        return None;
    }
    let stored_fault = acme.as_ref().and_then(|acme| acme.complete(&mut options));
    if let Some(fault) = &stored_fault {
        let text = format!("{fault}: the stored certificate is not used, and ordered again");
        problems.warn(section.value_offset("acme"), text);
    }
    match ServerTls::new(&options) {
        Ok(server) => {
            for warning in server.warnings() {
                problems.warn(files.offset_of(warning).unwrap_or(section.offset), warning.to_string());
            }
            Some(ListenerTls { options, directory, client_header, hsts, acme, stored_fault, server })
        }
        Err(failures) => {
            files.report(failures, section.offset, problems);
            None
        }
    }
}

/// Returns the protocols that a listener offers, the preferred one first: bytes that are forwarded
/// unparsed may be any.
fn alpn_of(mode: Mode, has_http2: bool) -> Vec<Vec<u8>> {
    match mode {
        Mode::Http if has_http2 => vec![HTTP2_ALPN.to_vec(), HTTP_ALPN.to_vec()],
        Mode::Http => vec![HTTP_ALPN.to_vec()],
        Mode::Tcp(_) => Vec::new(),
    }
}

fn parse_certificates(
    section: &Section,
    files: &mut NamedFiles,
    problems: &mut Problems,
) -> Vec<CertificateFiles> {
    let sections = section.tables("certificates");
    if let (true, Some(offset)) = (sections.is_empty(), section.key_offset("certificates"))
        && section.value_offset("certificates") != section.offset
    {
        problems.add_error(offset, "'certificates' is empty: add a file, or remove the key");
    }
    let mut parse_entry = |entry: &Section| {
        let certificate = files.add(entry.text("certificate")?);
        let key = entry.text("key").map_or_else(|| certificate.clone(), |text| files.add(text));
        let ocsp = entry.text("ocsp").map(|text| files.add(text));
        Some(CertificateFiles { certificate, key, ocsp })
    };
    sections.iter().filter_map(&mut parse_entry).collect()
}

/// Reads the directory of certificates, and adds its files.
fn parse_directory(
    section: &Section,
    certificates: &mut Vec<CertificateFiles>,
    files: &mut NamedFiles,
    problems: &mut Problems,
) -> Option<PathBuf> {
    let text = section.text("directory")?;
    let found = problems.ok_or_report(text.offset, pem_files(Path::new(&*text.value)))?;
    files.0.extend(found.iter().map(|path| (path.clone(), text.offset)));
    let both = |path: PathBuf| CertificateFiles { certificate: path.clone(), key: path, ocsp: None };
    certificates.extend(found.into_iter().map(both));
    Some(PathBuf::from(&*text.value))
}

/// Returns the PEM files of a directory, sorted by name: the first one is the default.
fn pem_files(directory: &Path) -> Result<Vec<PathBuf>, ValueError> {
    let failed = |error| ValueError::File { path: directory.into(), error };
    let entries = fs::read_dir(directory).map_err(failed)?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pem"));
    paths.sort_unstable();
    match paths.is_empty() {
        true => Err(ValueError::NoPemFile(directory.into())),
        false => Ok(paths),
    }
}

fn warn_of_readable_keys(certificates: &[CertificateFiles], files: &NamedFiles, problems: &mut Problems) {
    for certificate in certificates {
        let named = files.0.iter().find(|(path, _)| *path == certificate.key);
        if let Some((path, offset)) = named {
            validate::warn_of_world_readable(path, *offset, problems);
        }
    }
}

fn parse_client_header(section: &Section, mode: Mode, problems: &mut Problems) -> Option<Box<str>> {
    if section.key_offset("client-ca").is_none() {
        for key in CLIENT_KEYS.into_iter().chain(revocation::CLIENT_KEYS.all()) {
            if let Some(offset) = section.key_offset(key) {
                problems.warn(offset, format!("'{key}' has no effect without `client-ca`"));
            }
        }
    }
    let text = section.text("client-certificate-header")?;
    if mode != Mode::Http {
        problems.warn(text.offset, "'client-certificate-header' has no effect in mode tcp: remove it");
    }
    let check = validate::check_changed_field(&text.value, false);
    problems.ok_or_report(text.offset, check.map(|()| text.value))
}

fn parse_ticket_key_files(
    section: &Section,
    files: &mut NamedFiles,
    problems: &mut Problems,
) -> Vec<PathBuf> {
    let mut add = |text: Located<Box<str>>| {
        let offset = text.offset;
        let path = files.add(text);
        validate::warn_of_world_readable(&path, offset, problems);
        path
    };
    section.texts("ticket-key-file").into_iter().map(&mut add).collect()
}

fn parse_key_log(section: &Section, files: &mut NamedFiles, problems: &mut Problems) -> Option<PathBuf> {
    let text = section.text("key-log")?;
    let warning =
        format!("the secrets of all sessions are written to {}: remove key-log after the search", text.value);
    problems.warn(text.offset, warning);
    Some(files.add(text))
}

/// Reads the value of `Strict-Transport-Security`.
fn parse_hsts(section: &Section, mode: Mode, problems: &mut Problems) -> Option<Box<str>> {
    let text = section.text("hsts")?;
    if mode != Mode::Http {
        problems.warn(text.offset, "'hsts' has no effect in mode tcp: remove it");
    }
    let hsts = problems.ok_or_report(text.offset, hsts::parse(&text.value))?;
    if let Some(reason) = hsts.preload_fault() {
        problems.warn(text.offset, reason);
    }
    Some(hsts.to_string().into())
}

pub(super) fn listener_tls_of_flags(
    certificates: Vec<CertificateFiles>,
    self_signed: bool,
    mode: Mode,
) -> Result<ListenerTls, Vec<TlsConfigError>> {
    let options = ServerTlsOptions {
        certificates,
        self_signed,
        alpn: alpn_of(mode, true),
        ..ServerTlsOptions::default()
    };
    let server = ServerTls::new(&options)?;
    Ok(ListenerTls {
        options,
        directory: None,
        client_header: None,
        hsts: None,
        acme: None,
        stored_fault: None,
        server,
    })
}

pub(super) fn parse_pool_tls(
    pool: &Section,
    (servers, names): (&[ServerPlan], &[NamedServers]),
    http: ServerHttp,
    problems: &mut Problems,
) -> Option<PoolTls> {
    let section = tls_table(pool)?;
    let mut files = NamedFiles::default();
    let is_verified = section.flag("verify");
    if let (false, Some(offset)) = (is_verified, section.key_offset("ca")) {
        problems.warn(offset, "'ca' has no effect with verify = false");
    }
    if let (false, Some(offset)) = (is_verified, section.key_offset("crl")) {
        problems.warn(offset, "'crl' has no effect with verify = false");
    }
    let server_name = section.text("server-name").and_then(|text| {
        let check = check_server_name(&text.value);
        problems.ok_or_report(text.offset, check.map(|()| text.value))
    });
    if is_verified && section.key_offset("server-name").is_none() {
        check_names(&section, servers, names, problems);
    }
    let ca = section.text("ca").map(|text| files.add(text));
    let options = ClientTlsOptions {
        verification: match (is_verified, ca) {
            (false, _) => Verification::Off,
            (true, Some(path)) => Verification::CaFile(path),
            (true, None) => Verification::HostRoots,
        },
        certificate: parse_own_certificate(&section, &mut files, problems),
        revocation: revocation::SERVER_KEYS.parse(&section, &mut files, problems),
        version_min: parse_version(&section),
        alpn: http.alpn(),
        algorithms: parse_algorithms(&section, problems),
        ..ClientTlsOptions::default()
    };
    match ClientTls::build(&options) {
        Ok(client) => {
            let files_digest = digest_of(files.0.iter().map(|(path, _)| &**path));
            Some(PoolTls { options, server_name, client, files_digest })
        }
        Err(failures) => {
            files.report(failures, section.offset, problems);
            None
        }
    }
}

/// Reports servers whose names are not known, so that no certificate could be theirs.
fn check_names(section: &Section, servers: &[ServerPlan], names: &[NamedServers], problems: &mut Problems) {
    let on_unix = servers.iter().find(|server| !matches!(server.address, rt::address::Address::Tcp(_)));
    let by_service = names.iter().find(|names| names.template.host.is_none());
    let nameless =
        on_unix.map(|server| &server.name).or_else(|| by_service.map(|names| &names.template.name));
    if let Some(name) = nameless {
        let text = format!("server {name} has no host name to verify: add server-name, or verify = false");
        problems.add_error(section.offset, text);
    }
}

fn parse_own_certificate(
    section: &Section,
    files: &mut NamedFiles,
    problems: &mut Problems,
) -> Option<CertificateFiles> {
    let certificate = section.text("certificate");
    let Some(certificate) = certificate else {
        if let Some(offset) = section.key_offset("key") {
            problems.add_error(offset, "'key' needs `certificate`: add it, or remove the key");
        }
        return None;
    };
    let certificate = files.add(certificate);
    let key = section.text("key").map_or_else(|| certificate.clone(), |text| files.add(text));
    let found = CertificateFiles { certificate, key, ocsp: None };
    warn_of_readable_keys(std::slice::from_ref(&found), files, problems);
    Some(found)
}

/// Returns a digest of the contents of files, by which a reload notices a change.
fn digest_of<'a>(paths: impl Iterator<Item = &'a Path>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        // The file was read just before; if it is gone now, that is a change too.
        fs::read(path).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::super::test_certificates::TestCertificates;
    use super::*;
    use crate::plan::{Plan, PoolId, ServerId};

    const POOL: &str = "[pool.app]\nservers = ['127.0.0.1:9001']\n";

    fn config(tls: &str) -> String {
        format!("[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\ntls = {tls}\n{POOL}")
    }

    fn plan(text: &str) -> Plan {
        parse("t", text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}")).plan
    }

    /// Returns the problems, or the warnings if there are no problems.
    fn messages(text: &str) -> Vec<String> {
        let messages = parse("t", text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        messages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn certificates_come_from_files_and_a_directory() {
        let (site, directory) = TestCertificates::shared();
        let tls = format!("{{ certificates = ['{site}'], directory = '{directory}', min-version = '1.3' }}");
        let plan = plan(&config(&tls));
        let tls = plan.listeners[0].tls.as_ref().unwrap();
        let files: Vec<_> = tls.options.certificates.iter().map(|files| &*files.certificate).collect();
        let expected =
            [PathBuf::from(site), Path::new(directory).join("a.pem"), Path::new(directory).join("b.pem")];
        assert_eq!(files, expected);
        assert_eq!((tls.options.version_min, tls.options.alpn.len()), (TlsVersion::Tls13, 2));
        assert_eq!((tls.files().count(), tls.directory.as_deref()), (6, Some(Path::new(directory))));
    }

    #[test]
    fn every_file_at_fault_is_reported_at_its_name() {
        let (site, _) = TestCertificates::shared();
        let home = tempfile::tempdir().unwrap();
        let other_key = home.path().join("other.key");
        TestCertificates::write(&other_key, &TestCertificates::generate("localhost").1);
        let tls = format!(
            "{{ certificates = ['/no/a', {{ certificate = '{site}', key = '{}' }}], client-ca = '/no/b' }}",
            other_key.display()
        );
        let messages = messages(&config(&tls));
        assert_eq!(messages.len(), 3, "{messages:#?}");
        assert!(messages[0].starts_with("t:4:25: /no/a: No such file"), "{messages:#?}");
        assert!(messages[1].contains("this key does not belong to the certificate"), "{messages:#?}");
        assert!(messages[2].contains("/no/b: No such file"), "{messages:#?}");
    }

    #[test]
    fn settings_without_a_certificate_or_effect_are_reported() {
        for (tls, part) in [
            ("{}", "t:4:7: TLS needs a certificate: add certificates, directory, acme or self-signed"),
            ("true", "'tls' is true: write a table"),
            ("{ certificates = [] }", "'certificates' is empty"),
            ("{ directory = '/' }", "/ has no file *.pem"),
            ("{ self-signed = true, client-certificate = 'optional' }", "has no effect without `client-ca`"),
        ] {
            let messages = messages(&config(tls));
            assert!(messages.len() == 1 && messages[0].contains(part), "{tls}: {messages:#?}");
        }
    }

    #[test]
    fn servers_have_names_to_verify() {
        let (site, _) = TestCertificates::shared();
        let pool = |servers: &str, tls: &str| {
            format!(
                "[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\nservers = {servers}\n\
                 tls = {{ ca = '{site}'{tls} }}\n"
            )
        };
        let named = plan(&pool("['127.0.0.1:1', 'App.internal:2']", ""));
        let (pool_plan, tls) = (&named.pools[PoolId(0)], named.pools[PoolId(0)].tls.as_ref().unwrap());
        assert_eq!(tls.name_of(&pool_plan.servers[ServerId(0)]), "127.0.0.1");
        assert_eq!(tls.name_of(&pool_plan.named_servers[0].template), "app.internal");
        let common = plan(&pool("['127.0.0.1:1']", ", server-name = 'a.b'"));
        assert_eq!(
            common.pools[PoolId(0)]
                .tls
                .as_ref()
                .unwrap()
                .name_of(&common.pools[PoolId(0)].servers[ServerId(0)]),
            "a.b"
        );
        assert_eq!(named.pools[PoolId(0)].tls, plan(&pool("['127.0.0.1:3']", "")).pools[PoolId(0)].tls);
        assert_ne!(named.pools[PoolId(0)].tls, common.pools[PoolId(0)].tls);
        for servers in ["['unix:/a']", "[{ srv = '_a._tcp.b' }]"] {
            let messages = messages(&pool(servers, ""));
            assert!(messages.len() == 1 && messages[0].contains("no host name to verify"), "{messages:#?}");
            assert_eq!(plan(&pool(servers, ", server-name = 'a.b'")).pools.len(), 1);
            assert_eq!(plan(&pool(servers, ", verify = false")).pools.len(), 1);
        }
    }
}
