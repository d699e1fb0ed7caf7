//! Certificates in files, for the tests of configs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::OnceLock;

use base64::Engine as _;
use tempfile::TempDir;

/// A self-signed certificate, and its key.
pub(super) struct TestCertificates;

impl TestCertificates {
    /// Returns the path of a file with a certificate and its key, and that of a directory with such
    /// files. They exist for as long as the process.
    pub(super) fn shared() -> (&'static str, &'static str) {
        static FILES: OnceLock<(TempDir, String, String)> = OnceLock::new();
        let (_, site, directory) = FILES.get_or_init(|| {
            let home = tempfile::tempdir().unwrap();
            let directory = home.path().join("certs");
            std::fs::create_dir(&directory).unwrap();
            let (certificate, key) = Self::generate("localhost");
            let site = home.path().join("site.pem");
            for path in [&site, &directory.join("a.pem"), &directory.join("b.pem")] {
                Self::write(path, &format!("{certificate}{key}"));
            }
            let shown = |path: &Path| path.display().to_string();
            (home, shown(&site), shown(&directory))
        });
        (site, directory)
    }

    /// Returns the paths of a ticket key, and of an OCSP response for the certificate of [`Self::shared`].
    pub(super) fn shared_extras() -> (&'static str, &'static str) {
        static FILES: OnceLock<(String, String)> = OnceLock::new();
        let (ticket_key, ocsp) = FILES.get_or_init(|| {
            let site = Path::new(Self::shared().0);
            let shown = |name: &str, bytes: &[u8]| {
                let path = site.with_file_name(name);
                std::fs::write(&path, bytes).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
                path.display().to_string()
            };
            let text = std::fs::read_to_string(site).unwrap();
            let base64: String = text.lines().skip(1).take_while(|line| !line.starts_with('-')).collect();
            let certificate = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
            (
                shown("ticket.key", &[7; 48]),
                shown("site.ocsp", &ocsp_response(&certificate, "20991231000000Z")),
            )
        });
        (ticket_key, ocsp)
    }

    /// Returns the path of a revocation list.
    pub(super) fn shared_revocation_list() -> &'static str {
        static FILE: OnceLock<String> = OnceLock::new();
        FILE.get_or_init(|| {
            let path = Path::new(Self::shared().0).with_file_name("clients.crl");
            std::fs::write(&path, authority_and_list().1).unwrap();
            path.display().to_string()
        })
    }

    /// Writes the files of `docs/features.md`: the authority `clients.pem` with its list `clients.crl`, the
    /// certificate `site.pem`, and the key `tsig.key` of updates.
    pub(super) fn write_authority(directory: &Path) {
        let (authority, list) = authority_and_list();
        std::fs::write(directory.join("clients.pem"), authority).unwrap();
        std::fs::write(directory.join("clients.crl"), list).unwrap();
        for (file, name) in [(Self::shared().0, "site.pem"), (Self::shared_tsig_files().0, "tsig.key")] {
            std::fs::copy(file, directory.join(name)).unwrap();
        }
    }

    /// Returns the paths of a key of dynamic updates, and of a secret.
    pub(super) fn shared_tsig_files() -> (&'static str, &'static str) {
        static FILES: OnceLock<(String, String)> = OnceLock::new();
        let (key, secret) = FILES.get_or_init(|| {
            let site = Path::new(Self::shared().0);
            let write = |name: &str, text: &str| {
                let path = site.with_file_name(name);
                Self::write(&path, text);
                path.display().to_string()
            };
            let secret = "AQIDBAUGBwgJCgsMDQ4PEA==";
            let key = format!("key weir {{ algorithm hmac-sha256; secret \"{secret}\"; }};");
            (write("tsig.key", &key), write("tsig.secret", secret))
        });
        (key, secret)
    }

    /// Returns a certificate and its key in PEM format.
    pub(super) fn generate(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = made.signing_key.serialize_der();
        (pem("CERTIFICATE", made.cert.der()), pem("PRIVATE KEY", &key))
    }

    /// Writes a file that only its owner can read.
    pub(super) fn write(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Returns an authority in PEM, and its revocation list in DER.
fn authority_and_list() -> (String, Vec<u8>) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = pem("CERTIFICATE", params.self_signed(&key).unwrap().der());
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(2099, 1, 1),
        crl_number: rcgen::SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&rcgen::Issuer::new(params, key)).unwrap();
    (authority, list.der().to_vec())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Returns an OCSP response without a valid signature for a certificate of rcgen.
pub(super) fn ocsp_response(certificate: &[u8], next_update: &str) -> Vec<u8> {
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }
    // Behind two sequences and the version.
    let serial = &certificate[13..15 + usize::from(certificate[14])];
    assert_eq!(serial[0], 2);
    let unknown_hash = element(0x30, &element(0x06, &[0x2a, 3]));
    let id = element(0x30, &[&unknown_hash, &element(4, b"x"), &element(4, b"x"), serial].concat());
    let time = |text: &str| element(0x18, text.as_bytes());
    let (good, now) = ([0x80, 0], time("20200101000000Z"));
    let entry = element(0x30, &[&id, &good[..], &now, &element(0xa0, &time(next_update))].concat());
    let responder = element(0xa2, &element(4, b"key"));
    let data = element(0x30, &[responder, now, element(0x30, &entry)].concat());
    let basic = element(0x30, &data);
    let kind = element(0x06, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]);
    let bytes = element(0x30, &[kind, element(4, &basic)].concat());
    element(0x30, &[&[0x0a, 1, 0][..], &element(0xa0, &bytes)].concat())
}
