//! The choice of the protocol: prior knowledge, ALPN, servers that speak something else, and health
//! checks. nginx and nghttpd are the servers, too.

use std::process::{Command, Stdio};

use super::{H2Server, config_with_listener, ends_of, start_proxy};
use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxies::{free_port, is_installed};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::tls_peers::Certificates;
use crate::support::{EVENT_TIMEOUT, Process, listens_on, temp_dir, within};

fn start_tls_proxy(servers: &[&str], http: &str, certificates: &Certificates) -> ProxyUnderTest {
    let tls = format!("tls = {{ ca = {:?}, server-name = \"localhost\" }}", certificates.file("ca.pem"));
    ProxyUnderTest::weir(&config_with_listener("", servers, &format!("http = \"{http}\"\n{tls}")))
}

#[test]
fn a_server_chooses_the_protocol_in_the_handshake() {
    let Some(certificates) = Certificates::create() else { return };
    let tls = format!("tls={}", certificates.file("both.pem"));
    let Some(server) = H2Server::start(&[&tls]) else { return };
    for http in ["2", "auto"] {
        let proxy = start_tls_proxy(&[&server.authority], http, &certificates);
        for _ in 0..3 {
            let response = proxy.get("/ok");
            assert!(
                response.status == 200 && response.head.contains("x-scheme: https\r\n"),
                "{}",
                response.head
            );
        }
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum_known("weir_server_tls_handshakes_total", &[("result", "full")]), 1.0);
        assert_eq!(metrics.sum_known("weir_server_http2_connections_open", &[]), 1.0);
        proxy.assert_all_returned();
    }
    // nginx without HTTP/2 chooses HTTP/1.1 of the two, and none of HTTP/2 alone.
    let directives = format!("ssl_certificate {0}; ssl_certificate_key {0};", certificates.file("both.pem"));
    let nginx = Nginx::start_with("ssl", &directives);
    let proxy = start_tls_proxy(&[&nginx.authority], "auto", &certificates);
    for _ in 0..3 {
        assert_eq!(proxy.get("/file").body.len(), 10_000);
    }
    assert_eq!(proxy.metrics().sum_known("weir_server_http2_connections_total", &[]), 0.0);
    let proxy = start_tls_proxy(&[&nginx.authority], "2", &certificates);
    assert!([502, 503].contains(&proxy.get("/file").status));
    let nginx = Nginx::start_with("ssl http2", &directives);
    let proxy = start_tls_proxy(&[&nginx.authority], "auto", &certificates);
    for _ in 0..3 {
        assert_eq!(proxy.get("/file").body.len(), 10_000);
    }
    assert_eq!(proxy.metrics().sum_known("weir_server_http2_connections_total", &[]), 1.0);
}

#[test]
fn a_server_of_http11_does_not_begin_http2() {
    let bad_request = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let server = ScriptedServer::start(|peer| {
        let mut preface = [0; 24];
        std::io::Read::read_exact(&mut peer.stream, &mut preface)?;
        peer.send(bad_request)
    });
    let proxy = start_proxy(&[&server.authority], "retries = 0");
    assert_eq!(proxy.get("/").status, 502);
    assert_eq!(ends_of(&proxy, &["/"]), ["no_http2"]);
    // One that is silent runs into the timeout.
    let silent = ScriptedServer::start(|peer| {
        let mut byte = [0];
        while std::io::Read::read(&mut peer.stream, &mut byte)? > 0 {}
        Ok(())
    });
    let proxy = start_proxy(&[&silent.authority], "retries = 0\ntimeouts = { connect = \"500ms\" }");
    assert_eq!(proxy.get("/").status, 503);
    assert_eq!(ends_of(&proxy, &["/"]), ["connect_timeout"]);
    proxy.assert_all_returned();
}

#[test]
fn checks_use_http2_too() {
    let Some(server) = H2Server::start(&[]) else { return };
    let is_state = |proxy: &ProxyUnderTest, result: &str| {
        let labels = [("result", result)];
        proxy.metrics_until(result, |metrics| metrics.sum("weir_server_last_check", &labels) == 1.0);
    };
    for (check, result) in [
        ("type = \"http\", path = \"/ok\", status = \"200\"", "passed"),
        ("type = \"http\", path = \"/ok\", body = \"hello\"", "passed"),
        ("type = \"http\", path = \"/ok\", body = \"other\"", "body"),
        ("type = \"http\", path = \"/no-content\", status = \"200\"", "status"),
        ("type = \"http\", path = \"/reset\"", "closed"),
        ("type = \"http\", path = \"/hang\", timeout = \"300ms\"", "timeout"),
        ("type = \"http\", http = \"1.1\", timeout = \"5s\"", "malformed"),
        ("type = \"tcp\"", "passed"),
    ] {
        let proxy =
            start_proxy(&[&server.authority], &format!("check = {{ {check}, interval = \"200ms\" }}"));
        is_state(&proxy, result);
    }
}

#[test]
fn other_servers_of_http2_are_understood() {
    let nginx = Nginx::start_with("http2", "");
    let proxy = start_proxy(&[&nginx.authority], "");
    let mut client = proxy.client();
    for _ in 0..20 {
        assert_eq!(client.get("/file").body.len(), 10_000);
    }
    // It closes its connection after ten requests, with GOAWAY.
    for _ in 0..25 {
        assert_eq!(client.get("/few").status, 200);
    }
    proxy.assert_all_returned();
    if !is_installed("nghttpd", &["--version"]) {
        return;
    }
    let directory = temp_dir();
    std::fs::write(directory.path().join("file"), vec![b'n'; 3_000_000]).unwrap();
    let port = free_port();
    let mut command = Command::new("nghttpd");
    command.args(["--no-tls", "-a", "127.0.0.1", "-d"]).arg(directory.path()).arg(port.to_string());
    let nghttpd = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()));
    assert!(within(EVENT_TIMEOUT, || listens_on(nghttpd.id(), port)));
    let proxy = start_proxy(&[&format!("127.0.0.1:{port}")], "");
    for _ in 0..3 {
        assert_eq!(proxy.get("/file").body.len(), 3_000_000);
    }
    proxy.assert_all_returned();
}
