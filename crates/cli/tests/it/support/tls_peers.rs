//! Peers of weir over TLS that are not weir: certificates from openssl, curl, Python's ssl module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::proxies::is_installed;
use super::python_server::PythonSocketServer;
use super::{EVENT_TIMEOUT, temp_dir};

/// A certificate authority, and a certificate for `localhost` and 127.0.0.1 that it signed.
#[derive(Debug)]
pub(crate) struct Certificates {
    directory: TempDir,
}

const OPENSSL_CONFIG: &str = "\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[leaf]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
";

impl Certificates {
    /// Creates them; `None`, with a message, where openssl is missing.
    pub(crate) fn create() -> Option<Self> {
        if !is_installed("openssl", &["version"]) {
            return None;
        }
        let all = Self { directory: temp_dir() };
        fs::write(all.path("openssl.cnf"), OPENSSL_CONFIG).unwrap();
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let authority =
            ["-x509", "-days", "2", "-subj", "/CN=weir test authority", "-extensions", "authority"];
        all.openssl(&[&["req"], &key[..], &authority, &["-keyout", "ca.key", "-out", "ca.pem"]].concat());
        let request = ["-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr"];
        all.openssl(&[&["req"], &key[..], &request].concat());
        let sign = ["x509", "-req", "-days", "2", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key"];
        let to = ["-CAcreateserial", "-extfile", "openssl.cnf", "-extensions", "leaf", "-out", "leaf.pem"];
        all.openssl(&[&sign[..], &to].concat());
        let both = fs::read_to_string(all.path("leaf.pem")).unwrap()
            + &fs::read_to_string(all.path("leaf.key")).unwrap();
        fs::write(all.path("both.pem"), both).unwrap();
        Some(all)
    }

    fn openssl(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(self.directory.path());
        // `x509` has no config, and rejects the flag.
        if arguments[0] == "req" {
            command.args(["-config", "openssl.cnf"]);
        }
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {arguments:?}: {stderr}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path of a file: `ca.pem`, `leaf.pem`, `leaf.key`, or `both.pem` with the
    /// certificate and its key.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// Runs curl without its config; returns its exit code and its output.
pub(crate) fn curl(arguments: &[&str]) -> (i32, Vec<u8>) {
    let mut command = Command::new("curl");
    let timeout = EVENT_TIMEOUT.as_secs().to_string();
    command.args(["-q", "-s", "--max-time", &timeout]).args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    (output.status.code().unwrap_or(-1), output.stdout)
}

/// Returns the counters of a `weir serve` with TLS. The connection for it counts as a handshake.
pub(crate) fn tls_stats_of(authority: &str) -> Value {
    let (code, body) = curl(&["-k", &format!("https://{authority}/stats")]);
    assert_eq!(code, 0);
    serde_json::from_slice(&body).unwrap()
}

/// Runs a Python script; returns what it prints.
pub(crate) fn python(script: &str, arguments: &[&str]) -> String {
    let output = Command::new("python3").args(["-c", script]).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Python's TLS server: the end of the stream delimits its responses. After `/clean` it sends
/// close_notify, after other targets it closes the socket without it.
#[derive(Debug)]
pub(crate) struct PythonTlsServer(PythonSocketServer);

const PYTHON_TLS_SERVER: &str = r#"
import ssl, sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])

def serve(raw):
    try:
        connection = context.wrap_socket(raw, server_side=True)
        head = connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")
        if head.startswith(b"GET /clean "):
            connection.unwrap()
        connection.close()
    except OSError:
        raw.close()
"#;

impl PythonTlsServer {
    /// Starts one with a file of a certificate and its key.
    pub(crate) fn start(certificate: &str) -> Self {
        Self(PythonSocketServer::start(PYTHON_TLS_SERVER, &[certificate]))
    }

    pub(crate) fn url(&self, target: &str) -> String {
        assert!(Path::new(&format!("/proc/{}", self.0.process_id())).exists());
        format!("https://{}{target}", self.0.authority)
    }
}
