//! Revocation lists: revoked certificates are rejected also in sessions that are resumed, a faulty list
//! changes nothing, and nginx and HAProxy decide the same way.

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use super::{HANDSHAKES, config, json_lines, start_proxy};
use crate::support::faulty_origins::echoing_server;
use crate::support::metrics::RELOADS;
use crate::support::proxies::{ComparedProxy, ProxyKind};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

/// Times of the next update of revocation lists; labels `listener`, `file` and `issuer`.
const LIST_EXPIRY: &str = "weir_tls_crl_expiry_timestamp_seconds";
const PAST: [&str; 2] = ["20200101000000Z", "20200201000000Z"];

/// An authority with the certificate `a.pem` of a server, and those of two clients.
fn authority() -> Option<Authority> {
    let authority = Authority::create()?;
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    for client in ["good", "bad"] {
        authority.issue(client, KeyType::Ecdsa, &["client.test"]);
    }
    Some(authority)
}

/// Returns the lines of a listener that accepts clients of this authority, but for a list.
fn tls(authority: &Authority, list: &str, more: &str) -> String {
    let [server, ca, list] = ["a.pem", "ca.pem", list].map(|name| authority.file(name));
    format!("tls = {{ certificates = [{server:?}], client-ca = {ca:?}, client-crl = [{list:?}]{more} }}")
}

/// Connects with a certificate and sends a request. Returns the status; 0: the connection failed.
fn status_of(client: &mut TlsClient, port: u16, authority: &Authority, name: &str, version: &str) -> u64 {
    let settings = json!({ "version": version, "certificate": authority.file(name) });
    let id = format!("{name} {version}");
    let connected = client.try_run(&connect(&id, port, &authority.file("ca.pem"), "a.test", settings));
    if !connected["error"].is_null() {
        return 0;
    }
    // A client of TLS 1.3 learns only now that its certificate was rejected.
    let head = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.try_run(&json!({ "op": "request", "id": id, "head": head }))["status"].as_u64().unwrap_or_default()
}

fn reloads(proxy: &ProxyUnderTest, result: &str) -> f64 {
    proxy.metrics().sum_known(RELOADS, &[("result", result)])
}

#[test]
fn revoked_clients_are_rejected_as_soon_as_their_list_changes() {
    let _shared = shared_machine();
    let Some(authority) = authority() else { return };
    authority.revocation_list("list.pem", &[], None);
    let origin = echoing_server("origin");
    let proxy = start_proxy(&tls(&authority, "list.pem", ""), &[&origin.authority], "");
    let (mut client, ca, port) = (TlsClient::start(), authority.file("ca.pem"), proxy.port());
    for version in ["1.2", "1.3"] {
        for name in ["good", "bad"] {
            assert_eq!(status_of(&mut client, port, &authority, name, version), 200, "{name} {version}");
        }
    }
    // Both clients resume their sessions while nothing changes.
    let resume = |client: &mut TlsClient, name: &str, version: &str| {
        let settings = json!({ "version": version, "certificate": authority.file(name),
            "resumes": format!("{name} {version}") });
        client.try_run(&connect("resumed", port, &ca, "a.test", settings))
    };
    for version in ["1.2", "1.3"] {
        assert_eq!(resume(&mut client, "bad", version)["resumed"], true, "{version}");
    }
    assert!(proxy.metrics().sum_known(LIST_EXPIRY, &[("listener", "web")]) > 1.7e9);
    let before = reloads(&proxy, "applied");
    authority.revocation_list("list.pem", &["bad"], None);
    assert!(within(EVENT_TIMEOUT, || reloads(&proxy, "applied") > before), "{}", proxy.stderr());
    for version in ["1.2", "1.3"] {
        // Open connections continue.
        assert_eq!(client.get(&format!("bad {version}"), "/open")["status"], 200);
        let resumed = resume(&mut client, "bad", version);
        let head = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let command = json!({ "op": "request", "id": "resumed", "head": head });
        let is_rejected = !resumed["error"].is_null() || !client.try_run(&command)["error"].is_null();
        assert!(is_rejected, "{version}: {resumed}");
        assert_eq!(status_of(&mut client, port, &authority, "good", version), 200);
        assert_eq!(status_of(&mut client, port, &authority, "bad", version), 0);
    }
    let line = &json_lines(&proxy, "client_tls_failed", 4)[0];
    assert!(line["tls_error"].as_str().unwrap().contains("it was revoked"), "{line}");
    // A fault in the file changes nothing.
    let refused = reloads(&proxy, "refused");
    authority.replace("list.pem", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
    assert!(within(EVENT_TIMEOUT, || reloads(&proxy, "refused") > refused), "{}", proxy.stderr());
    assert!(proxy.stderr().contains("the revocation list cannot be parsed"), "{}", proxy.stderr());
    assert_eq!(status_of(&mut client, port, &authority, "good", "1.3"), 200);
    assert_eq!(status_of(&mut client, port, &authority, "bad", "1.3"), 0);
    assert!(proxy.metrics().sum_known(HANDSHAKES, &[("result", "failed")]) >= 5.0);
}

#[test]
fn expired_lists_and_lists_of_others_reject_all_clients_unless_they_are_accepted() {
    let _shared = shared_machine();
    let (Some(authority), Some(other)) = (authority(), Authority::create()) else { return };
    authority.revocation_list("expired.pem", &["bad"], Some(PAST));
    other.revocation_list("foreign.pem", &[], None);
    std::fs::copy(other.path("foreign.pem"), authority.path("foreign.pem")).unwrap();
    authority.revocation_list_in_der("foreign.pem", "foreign.der");
    let origin = echoing_server("origin");
    for (list, more, good, bad, warning) in [
        ("expired.pem", "", 0, 0, "has expired, and all certificates of this authority are refused"),
        ("expired.pem", ", client-crl-expired = \"accept\"", 200, 0, "has expired, and it is still used"),
        ("foreign.der", "", 0, 0, "no revocation list of the authority CN="),
        ("foreign.pem", ", client-crl-unknown = \"accept\"", 200, 200, ""),
    ] {
        let proxy = start_proxy(&tls(&authority, list, more), &[&origin.authority], "");
        let mut client = TlsClient::start();
        for version in ["1.2", "1.3"] {
            let found =
                ["good", "bad"].map(|name| status_of(&mut client, proxy.port(), &authority, name, version));
            assert_eq!(found, [good, bad], "{list}{more} {version}");
        }
        assert!(proxy.stderr().contains(warning), "{list}{more}: {}", proxy.stderr());
    }
}

#[test]
fn a_revoked_server_is_rejected() {
    let _shared = shared_machine();
    if !ProxyKind::Nginx.is_installed() {
        return;
    }
    let Some(authority) = authority() else { return };
    authority.revocation_list("none.pem", &[], None);
    authority.revocation_list("some.pem", &["a.pem"], None);
    let certificate = authority.file("a.pem");
    let nginx = nginx(&format!("ssl_certificate {certificate}; ssl_certificate_key {certificate};"));
    let pool = |list: &str| {
        format!(
            "tls = {{ ca = {:?}, server-name = \"a.test\", crl = {:?} }}",
            authority.file("ca.pem"),
            authority.file(list)
        )
    };
    let proxy = start_proxy("", &[&nginx.authority], &pool("none.pem"));
    assert_eq!(proxy.get("/").status, 200);
    // The same connection would be used again.
    proxy.reload(&config("", &[&nginx.authority], &pool("some.pem")));
    assert!(within(EVENT_TIMEOUT, || proxy.get("/").status == 503), "{}", proxy.stderr());
    let line = &json_lines(&proxy, "tls_handshake_failed", 1)[0];
    assert!(line["tls_error"].as_str().unwrap().contains("it was revoked"), "{line}");
}

/// Starts nginx with further lines in its server.
fn nginx(lines: &str) -> ComparedProxy {
    ComparedProxy::nginx(&format!(
        "user root;\nworker_processes 1;\npid {{directory}}/pid;\nerror_log {{directory}}/error.log;\n\
         events {{ worker_connections 256; }}\nhttp {{ access_log off;\n\
         client_body_temp_path {{directory}}/a; proxy_temp_path {{directory}}/b;\n\
         fastcgi_temp_path {{directory}}/c; uwsgi_temp_path {{directory}}/d; scgi_temp_path {{directory}}/e;\n\
         server {{ listen 127.0.0.1:{{port}} ssl; ssl_protocols TLSv1.2 TLSv1.3;\n{lines}\n\
         location / {{ return 200 \"hello\"; }} }} }}\n"
    ))
}

/// nginx with `ssl_crl`, HAProxy with `crl-file` and weir with `client-crl` get the same files and clients.
/// nginx answers a rejected client with 400, the others end its handshake.
#[test]
fn nginx_and_haproxy_reject_the_same_clients() {
    let _shared = shared_machine();
    let (Some(authority), Some(other)) = (authority(), Authority::create()) else { return };
    authority.revocation_list("current.pem", &["bad"], None);
    authority.revocation_list("expired.pem", &[], Some(PAST));
    other.revocation_list("foreign.pem", &[], None);
    std::fs::copy(other.path("foreign.pem"), authority.path("foreign.pem")).unwrap();
    let origin = echoing_server("origin");
    let [server, ca] = ["a.pem", "ca.pem"].map(|name| authority.file(name));
    for (list, accepted) in
        [("current.pem", [true, false]), ("expired.pem", [false, false]), ("foreign.pem", [false, false])]
    {
        let file = authority.file(list);
        let accepts = |port: u16| {
            let mut client = TlsClient::start();
            ["good", "bad"].map(|name| status_of(&mut client, port, &authority, name, "1.2") == 200)
        };
        let proxy = start_proxy(&tls(&authority, list, ""), &[&origin.authority], "");
        assert_eq!(accepts(proxy.port()), accepted, "weir: {list}");
        if ProxyKind::Nginx.is_installed() {
            let nginx = nginx(&format!(
                "ssl_certificate {server}; ssl_certificate_key {server}; ssl_verify_client on;\n\
                 ssl_client_certificate {ca}; ssl_crl {file};"
            ));
            assert_eq!(accepts(port_of(&nginx.authority)), accepted, "nginx: {list}");
        }
        if ProxyKind::Haproxy.is_installed() {
            let haproxy = ComparedProxy::haproxy(&format!(
                "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
                 frontend f\n bind 127.0.0.1:{{port}} ssl crt {server} ca-file {ca} verify required crl-file {file}\n \
                 http-request return status 200 content-type text/plain string hello\n"
            ));
            assert_eq!(accepts(port_of(&haproxy.authority)), accepted, "haproxy: {list}");
        }
    }
}

fn port_of(authority: &str) -> u16 {
    authority.rsplit_once(':').unwrap().1.parse().unwrap()
}

#[test]
fn parts_of_a_certificate_are_values_and_conditions() {
    let _shared = shared_machine();
    let Some(authority) = authority() else { return };
    let subject_alt_name = ["URI:spiffe://a.test/web", "email:ops@a.test", "DNS:client.test"].join(",");
    authority.issue_with("workload", &format!("subjectAltName = {subject_alt_name}"));
    let origin = echoing_server("origin");
    let [server, ca] = ["a.pem", "ca.pem"].map(|name| authority.file(name));
    let text = format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         tls = {{ certificates = [{server:?}], client-ca = {ca:?}, client-certificate = \"optional\" }}\n\
         [[route]]\npath-prefix = \"/workload\"\nwhen = {{ tls-client = {{ uri = \"spiffe://a.test/web\", \
         dns = \"client.test\", email = \"ops@a.test\", common-name = \"workload\", issuer = true }} }}\npool = \"app\"\n\
         set-request-header = {{ x-uri = \"{{tls.client.uri}}\", x-name = \"{{tls.client.common-name}}\", \
         x-end = \"{{tls.client.not-after}}\", x-issuer = \"{{tls.client.issuer}}\" }}\n\
         [[route]]\npath-prefix = \"/any\"\npool = \"app\"\nset-request-header = {{ x-uri = \"{{tls.client.uri}}\" }}\n\
         [[route]]\ndeny = 403\n[pool.app]\nservers = [{:?}]\n",
        origin.authority
    );
    let proxy = ProxyUnderTest::weir(&text);
    let mut client = TlsClient::start();
    let mut get = |name: Option<&str>, target: &str| {
        let settings = json!({ "certificate": name.map(|name| authority.file(name)) });
        client.run(&connect("c", proxy.port(), &ca, "a.test", settings));
        let head = format!(
            "GET {target} HTTP/1.1\r\nHost: a.test\r\nX-Uri: spiffe://forged\r\nX-Issuer: forged\r\n\r\n"
        );
        client.run(&json!({ "op": "request", "id": "c", "head": head }))
    };
    let known = get(Some("workload"), "/workload");
    let text = known["text"].as_str().unwrap();
    assert!(
        text.contains("x-uri: spiffe://a.test/web\r\n")
            && text.contains("x-name: workload\r\n")
            && !text.contains("forged"),
        "{known}"
    );
    assert_eq!(get(Some("good"), "/workload")["status"], 403);
    assert_eq!(get(None, "/workload")["status"], 403);
    for name in [Some("good"), None] {
        let response = get(name, "/any");
        let text = response["text"].as_str().unwrap();
        assert!(text.starts_with("origin") && !text.contains("spiffe://forged"), "{name:?}: {response}");
    }
}
