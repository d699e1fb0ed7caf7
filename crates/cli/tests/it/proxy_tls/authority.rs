//! A certificate authority of openssl, and certificates that it signs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::support::proxies::is_installed;
use crate::support::temp_dir;

/// A certificate authority with its files.
#[derive(Debug)]
pub(super) struct Authority {
    directory: TempDir,
}

/// Type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyType {
    Ecdsa,
    Rsa,
}

const CONFIG: &str = "[req]\ndistinguished_name = name\n[name]\n[authority]\n\
                      basicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign\n";

impl Authority {
    /// Creates one; `None`, with a message, where openssl is missing.
    pub(super) fn create() -> Option<Self> {
        if !is_installed("openssl", &["version"]) {
            return None;
        }
        let authority = Self { directory: temp_dir() };
        fs::write(authority.path("openssl.cnf"), CONFIG).unwrap();
        // Two authorities have two names.
        let name = format!("/CN={}", authority.directory.path().file_name().unwrap().display());
        let subject = ["-x509", "-days", "2", "-subj", &name, "-extensions", "authority"];
        let files = ["-config", "openssl.cnf", "-keyout", "ca.key", "-out", "ca.pem"];
        authority.openssl(&[&["req", "-nodes"], key_flags(KeyType::Ecdsa), &subject, &files].concat());
        Some(authority)
    }

    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl").args(arguments).current_dir(self.directory.path()).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {stderr}");
    }

    /// Returns the path of a file of this authority.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path of a file of this authority, for a config.
    pub(super) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Signs a new certificate for these names: `FILE` with the certificate and its key. Replaces
    /// the file at once, as a program that renews certificates does.
    pub(super) fn issue(&self, file: &str, key: KeyType, names: &[&str]) {
        let names: Vec<String> = names
            .iter()
            .map(|name| match name.parse::<std::net::IpAddr>() {
                Ok(_) => format!("IP:{name}"),
                Err(_) => format!("DNS:{name}"),
            })
            .collect();
        let extensions = format!("[leaf]\nsubjectAltName = {}\n", names.join(","));
        fs::write(self.path("leaf.cnf"), extensions).unwrap();
        let subject = format!("/O=weir/CN={}", file.replace('/', "-"));
        let request =
            ["-subj", &subject, "-config", "openssl.cnf", "-keyout", "leaf.key", "-out", "leaf.csr"];
        self.openssl(&[&["req", "-nodes"], key_flags(key), &request].concat());
        let sign = ["x509", "-req", "-days", "2", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key"];
        let to = ["-CAcreateserial", "-extfile", "leaf.cnf", "-extensions", "leaf", "-out", "leaf.crt"];
        self.openssl(&[&sign[..], &to].concat());
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap();
        self.replace(file, &(read("leaf.crt") + &read("leaf.key")));
    }

    /// Writes an OCSP response for a certificate of this authority, valid for a day.
    pub(super) fn ocsp_response(&self, certificate: &str, file: &str) {
        let serial = Command::new("openssl")
            .args(["x509", "-noout", "-serial", "-in", certificate])
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        let serial = String::from_utf8(serial.stdout).unwrap();
        let serial = serial.trim().trim_start_matches("serial=");
        fs::write(self.path("index.txt"), format!("V\t491231000000Z\t\t{serial}\tunknown\t/CN=x\n")).unwrap();
        self.openssl(&["ocsp", "-issuer", "ca.pem", "-cert", certificate, "-reqout", "request.der"]);
        let respond =
            ["ocsp", "-index", "index.txt", "-rsigner", "ca.pem", "-rkey", "ca.key", "-CA", "ca.pem"];
        let files = ["-reqin", "request.der", "-respout", file, "-ndays", "1"];
        self.openssl(&[&respond[..], &files].concat());
    }

    /// Replaces a file of this authority.
    pub(super) fn replace(&self, file: &str, text: &str) {
        let new = self.path("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path(file)).unwrap();
    }
}

fn key_flags(key: KeyType) -> &'static [&'static str] {
    match key {
        KeyType::Ecdsa => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        KeyType::Rsa => &["-newkey", "rsa:2048"],
    }
}
