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

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}
