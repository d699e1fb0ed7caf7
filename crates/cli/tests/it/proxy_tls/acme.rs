//! Automatic certificates, against pebble: both challenges, the change to the new certificate without
//! a lost connection, the stored files, and failures. Skipped, with a message, without pebble
//! (`go install github.com/letsencrypt/pebble/v2/cmd/pebble@latest`).

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use crate::support::peers::{ScriptPeer, ScriptedServer, free_port};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::tls_peers::curl;
use crate::support::{EVENT_TIMEOUT, Process, run_weir, shared_machine, within};

/// Orders of certificates; labels `domain` and `result`.
const ORDERS: &str = "weir_acme_orders_total";
/// End of the validity of a certificate; label `domain`.
const EXPIRY: &str = "weir_acme_certificate_expiry_timestamp_seconds";

/// An ACME server whose validations go to two ports of this host.
pub(super) struct Pebble {
    _process: Process,
    /// It asks only over TCP.
    _name_server: ScriptedServer,
    pub(super) authority: Authority,
    pub(super) directory: String,
    management: String,
}

/// Returns the path of pebble; `None`, with a message, if it is not installed.
fn pebble_program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let in_home = home.join("go/bin/pebble");
    let program = if in_home.exists() { in_home } else { PathBuf::from("pebble") };
    is_installed(program.to_str()?, &["-version"]).then_some(program)
}

/// Returns the response to a DNS query: 127.0.0.1 for each question about an address, nothing for others.
pub(super) fn dns_response(query: &[u8]) -> Option<Vec<u8>> {
    let name_bytes = query.get(12..)?.iter().position(|&byte| byte == 0)?;
    let question_end = 12 + name_bytes + 5;
    let is_address = query.get(question_end - 4..question_end - 2)? == [0, 1];
    let mut response = query[..question_end].to_vec();
    response[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    if is_address {
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(response)
}

/// Answers the queries of a TCP connection, each behind its length (RFC 1035 §4.2.2).
fn serve_dns_over_tcp(peer: &mut ScriptPeer) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        peer.stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        peer.stream.read_exact(&mut query)?;
        let response = dns_response(&query).ok_or(io::ErrorKind::InvalidData)?;
        let length = u16::try_from(response.len()).map_err(io::Error::other)?.to_be_bytes();
        peer.send(&[&length[..], &response].concat())?;
    }
}

impl Pebble {
    pub(super) fn start(http_port: u16, tls_port: u16) -> Option<Self> {
        Self::start_with_dns(http_port, tls_port, None)
    }

    /// Starts one that asks this name server.
    pub(super) fn start_with_dns(http_port: u16, tls_port: u16, dns: Option<&str>) -> Option<Self> {
        let program = pebble_program()?;
        let authority = Authority::create()?;
        authority.issue("server.pem", KeyType::Ecdsa, &["127.0.0.1"]);
        let (port, management_port) = (free_port(), free_port());
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management_port}"),
            "certificate": authority.file("server.pem"),
            "privateKey": authority.file("server.pem"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
        }});
        fs::write(authority.path("pebble.json"), config.to_string()).unwrap();
        let mut command = Command::new(program);
        let name_server = ScriptedServer::start(serve_dns_over_tcp);
        let dns = dns.unwrap_or(&name_server.authority);
        command.args(["-config", &authority.file("pebble.json"), "-dnsserver", dns]);
        command.envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_AUTHZREUSE", "0")]);
        let log = fs::File::create(authority.path("pebble.log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = Process::spawn(&mut command);
        let directory = format!("https://127.0.0.1:{port}/dir");
        let ca = authority.file("ca.pem");
        let is_ready = within(EVENT_TIMEOUT, || curl(&["--cacert", &ca, &directory]).0 == 0);
        assert!(is_ready, "{}", fs::read_to_string(authority.path("pebble.log")).unwrap());
        let management = format!("https://127.0.0.1:{management_port}");
        Some(Self { _process: process, _name_server: name_server, authority, directory, management })
    }

    /// Writes the authority of the certificates that pebble issues; returns the path of the file.
    pub(super) fn issuing_authority(&self) -> String {
        let url = format!("{}/roots/0", self.management);
        let (code, text) = curl(&["--cacert", &self.authority.file("ca.pem"), &url]);
        assert_eq!(code, 0);
        fs::write(self.authority.path("issuer.pem"), text).unwrap();
        self.authority.file("issuer.pem")
    }

    /// Returns the number of accepted orders so far: pebble refuses one nonce of twenty, and the request comes again.
    pub(super) fn orders(&self) -> usize {
        self.log().matches("Added order ").count()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.authority.path("pebble.log")).unwrap()
    }

    fn config(&self, challenge: &str, domains: &[&str], (http_port, tls_port): (u16, u16)) -> String {
        let storage = self.authority.path("storage");
        fs::create_dir_all(&storage).unwrap();
        format!(
            "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
             [listener.web]\nbind = \"127.0.0.1:{tls_port}\"\n\
             [listener.web.tls.acme]\ndirectory = {:?}\nca = {:?}\ncontact = \"mailto:a@example.org\"\n\
             domains = {domains:?}\nstorage = {:?}\nchallenge = {challenge:?}\nagree-to-terms = true\n\
             [listener.plain]\nbind = \"127.0.0.1:{http_port}\"\nredirect-https = true\n\
             [[route]]\nreturn = {{ status = 200, body = \"x\" }}\n",
            self.directory,
            self.authority.file("ca.pem"),
            storage.display().to_string(),
        )
    }
}

pub(super) fn orders(proxy: &ProxyUnderTest, result: &str) -> f64 {
    proxy.metrics().sum(ORDERS, &[("result", result)])
}

fn check_issued(challenge: &str) {
    let _shared = shared_machine();
    let ports = (free_port(), free_port());
    let Some(pebble) = Pebble::start(ports.0, ports.1) else { return };
    let config = pebble.config(challenge, &["a.test", "b.test"], ports);
    let proxy = ProxyUnderTest::weir(&config);
    assert!(
        within(EVENT_TIMEOUT, || proxy.stderr().contains("certificate of a.test issued")),
        "{}",
        proxy.stderr()
    );
    let (mut client, issuer) = (TlsClient::start(), pebble.issuing_authority());
    let mut serial = |id: &str, name: &str| {
        let session = client.try_run(&connect(id, proxy.port(), &issuer, name, json!({})));
        session["serial"].as_str().map(str::to_owned)
    };
    assert!(within(EVENT_TIMEOUT, || serial("a", "a.test").is_some()), "{}", proxy.stderr());
    let first = serial("b", "b.test").unwrap();
    assert_eq!(client.get("b", "/")["status"], 200);
    assert_eq!((orders(&proxy, "issued"), orders(&proxy, "failed")), (1.0, 0.0));
    assert!(proxy.metrics().sum_known(EXPIRY, &[("domain", "a.test")]) > 1.7e9);
    let socket = proxy.home.path().join("weir.sock").display().to_string();
    let shown = run_weir(&["ctl", "--socket", &socket, "show", "certificates"]);
    assert!(shown.stdout.contains("a.test"), "{shown:?}");
    let storage = pebble.authority.path("storage");
    for file in ["account.json", "a.test.pem"] {
        let mode = fs::metadata(storage.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    // A new start uses the stored certificate and orders none.
    drop(proxy);
    let again = ProxyUnderTest::weir(&config);
    let session = client.run(&connect("again", again.port(), &issuer, "a.test", json!({})));
    assert_eq!(session["serial"].as_str(), Some(&*first));
    assert_eq!(orders(&again, "issued"), 0.0);
    // Another name needs another certificate, with the same account. Open connections continue.
    assert_eq!(client.get("again", "/")["status"], 200);
    again.reload(&pebble.config(challenge, &["a.test", "c.test"], ports));
    assert!(
        within(EVENT_TIMEOUT, || again.stderr().contains("certificate of a.test issued")),
        "{}",
        again.stderr()
    );
    let is_new = within(EVENT_TIMEOUT, || {
        let session = client.try_run(&connect("new", again.port(), &issuer, "c.test", json!({})));
        session["serial"].as_str().is_some_and(|serial| serial != first)
    });
    assert!(is_new, "{}", again.stderr());
    assert_eq!(client.get("again", "/")["status"], 200);
}

#[test]
fn a_certificate_is_issued_by_a_challenge_over_http() {
    check_issued("http-01");
}

#[test]
fn a_certificate_is_issued_by_a_challenge_over_tls() {
    check_issued("tls-alpn-01");
}

#[test]
fn a_refused_order_is_counted_and_retried_later_while_the_proxy_serves() {
    let _shared = shared_machine();
    let ports = (free_port(), free_port());
    // Validations go to a port where nothing answers.
    let Some(pebble) = Pebble::start(free_port(), free_port()) else { return };
    let proxy = ProxyUnderTest::weir(&pebble.config("http-01", &["a.test"], ports));
    assert!(within(EVENT_TIMEOUT, || orders(&proxy, "failed") == 1.0), "{}", proxy.stderr());
    let stderr = proxy.stderr();
    assert!(
        stderr.contains("certificate of a.test not issued: ") && stderr.contains("; next attempt in "),
        "{stderr}"
    );
    let url = format!("https://{}/", proxy.authority());
    let (code, body) = curl(&["-k", &url]);
    assert_eq!((code, &*body), (0, &b"x"[..]), "with the self-signed certificate");
    assert_eq!(orders(&proxy, "issued"), 0.0);
}
