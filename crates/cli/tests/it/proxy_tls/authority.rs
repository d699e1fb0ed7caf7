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
                      basicConstraints = critical, CA:TRUE\nkeyUsage = critical, keyCertSign, cRLSign\n";

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
        self.output(arguments);
    }

    /// Runs openssl; returns what it prints.
    fn output(&self, arguments: &[&str]) -> String {
        let output = Command::new("openssl").args(arguments).current_dir(self.directory.path()).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
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
        self.issue_certificate(file, key, &format!("subjectAltName = {}", names.join(",")));
    }

    /// Signs a new certificate with this line of extensions, like [`Self::issue`].
    pub(super) fn issue_with(&self, file: &str, extensions: &str) {
        self.issue_certificate(file, KeyType::Ecdsa, extensions);
    }

    fn issue_certificate(&self, file: &str, key: KeyType, extensions: &str) {
        fs::write(self.path("leaf.cnf"), format!("[leaf]\n{extensions}\n")).unwrap();
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
        let serial = self.output(&["x509", "-noout", "-serial", "-in", certificate]);
        let serial = serial.trim().trim_start_matches("serial=");
        fs::write(self.path("index.txt"), format!("V\t491231000000Z\t\t{serial}\tunknown\t/CN=x\n")).unwrap();
        self.openssl(&["ocsp", "-issuer", "ca.pem", "-cert", certificate, "-reqout", "request.der"]);
        let respond =
            ["ocsp", "-index", "index.txt", "-rsigner", "ca.pem", "-rkey", "ca.key", "-CA", "ca.pem"];
        let files = ["-reqin", "request.der", "-respout", file, "-ndays", "1"];
        self.openssl(&[&respond[..], &files].concat());
    }

    /// Writes a revocation list in PEM of this authority, with these certificates, for a day or with these
    /// times of its update and its next update.
    pub(super) fn revocation_list(&self, file: &str, revoked: &[&str], times: Option<[&str; 2]>) {
        let entry = |certificate: &&str| {
            let serial = self.output(&["x509", "-noout", "-serial", "-in", certificate]);
            let serial = serial.trim().trim_start_matches("serial=");
            format!("R\t491231000000Z\t200101000000Z\t{serial}\tunknown\t/CN=x\n")
        };
        self.replace("revoked.txt", &revoked.iter().map(entry).collect::<String>());
        let config = "[ca]\ndefault_ca = own\n[own]\ndatabase = revoked.txt\ndefault_md = sha256\ncrlnumber = number\n\
                      crl_extensions = list\n[list]\n";
        self.replace("revocation.cnf", config);
        self.replace("number", "01\n");
        let files =
            ["-config", "revocation.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", "-out", "list.tmp"];
        let times = match &times {
            Some([from, to]) => vec!["-crl_lastupdate", from, "-crl_nextupdate", to],
            None => vec!["-crldays", "1"],
        };
        self.openssl(&[&["ca", "-gencrl"], &files[..], &times].concat());
        fs::rename(self.path("list.tmp"), self.path(file)).unwrap();
    }

    /// Writes a revocation list in DER, from one in PEM.
    pub(super) fn revocation_list_in_der(&self, from: &str, to: &str) {
        self.openssl(&["crl", "-in", from, "-outform", "DER", "-out", to]);
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
