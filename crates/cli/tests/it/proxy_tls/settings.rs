//! Settings of a listener with TLS: cipher suites and groups, HSTS, the redirect to https, stapled
//! OCSP responses, ticket keys and the key log.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use super::{CONFIG_HEAD, json_lines, start_proxy};
use crate::support::faulty_origins::{echoing_server, ok_response, respond_to_each};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{run_weir, shared_machine, temp_dir};

/// Runs `openssl s_client` for one handshake; returns what it prints.
fn s_client(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    let address = format!("127.0.0.1:{port}");
    command.args(["s_client", "-connect", &address, "-servername", "a.test"]).args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn only_the_named_suites_and_groups_are_used_in_their_order() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Rsa, &["a.test"]);
    let origin = echoing_server("origin");
    let tls = |more: &str| format!("tls = {{ certificates = [{:?}], {more} }}", authority.file("a.pem"));
    let suites = "cipher-suites = [\"TLS_AES_128_GCM_SHA256\", \"TLS_AES_256_GCM_SHA384\", \
                  \"ECDHE-RSA-AES128-GCM-SHA256\"], groups = \"P-384\"";
    let proxy = start_proxy(&tls(suites), &[&origin.authority], "");
    // The order of the server, although the client prefers another suite.
    let both = ["-ciphersuites", "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256"];
    let text = s_client(proxy.port(), &both);
    assert!(text.contains("Cipher is TLS_AES_128_GCM_SHA256"), "{text}");
    assert!(text.contains("ECDH, secp384r1") || text.contains("secp384r1"), "{text}");
    let old = s_client(proxy.port(), &["-tls1_2"]);
    assert!(old.contains("Cipher is ECDHE-RSA-AES128-GCM-SHA256"), "{old}");
    for others in [["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], ["-groups", "X25519"]] {
        let text = s_client(proxy.port(), &[&others[..], &["-tls1_3"]].concat());
        assert!(text.contains("handshake failure") || text.contains("alert"), "{others:?}: {text}");
    }
    // The order of the client, if the config says so.
    let client_order =
        start_proxy(&tls(&format!("{suites}, cipher-preference = \"client\"")), &[&origin.authority], "");
    let text = s_client(client_order.port(), &both);
    assert!(text.contains("Cipher is TLS_AES_256_GCM_SHA384"), "{text}");
    // Without suites of TLS 1.2 there is no TLS 1.2.
    let only_new = start_proxy(&tls("cipher-suites = \"TLS_AES_128_GCM_SHA256\""), &[&origin.authority], "");
    assert!(s_client(only_new.port(), &["-tls1_2"]).contains("alert protocol version"));
}

#[test]
fn an_unknown_suite_is_an_error_with_its_position_and_the_list() {
    let directory = temp_dir();
    let path = directory.path().join("weir.toml");
    let config = "[listener.web]\nbind = \"127.0.0.1:0\"\n\
                  tls = { self-signed = true, cipher-suites = [\"AES128-SHA\"], groups = [\"x\"] }\n\
                  [[route]]\ndeny = true\n";
    fs::write(&path, config).unwrap();
    let output = run_weir(&["proxy", "--check", "--config", path.to_str().unwrap()]);
    assert_eq!(output.code, 2, "{output:?}");
    for part in [
        "weir.toml:3:46: unknown cipher suite 'AES128-SHA': use TLS_AES_256_GCM_SHA384, ",
        "weir.toml:3:71: unknown group 'x': use X25519, secp256r1, ",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}

#[test]
fn a_plain_listener_redirects_and_a_listener_with_tls_sends_hsts() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = respond_to_each(|_, _| {
        Some(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nStrict-Transport-Security: max-age=1\r\n\r\nx".to_vec(),
        )
    });
    let mut proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         tls = {{ certificates = [{:?}], hsts = \"1y; includeSubDomains; preload\" }}\n\
         [listener.plain]\nbind = \"127.0.0.1:0\"\nredirect-https = true\npool = \"app\"\n\
         [listener.found]\nbind = \"127.0.0.1:0\"\nredirect-https = 302\n\
         [[route]]\nlistener = \"web\"\npath = \"/denied\"\ndeny = true\n\
         [pool.app]\nservers = [\"{}\"]\n",
        authority.file("a.pem"),
        origin.authority
    ));
    let mut plain = crate::support::client::Client::connect(&proxy.wait_for_listener("plain"));
    let mut location = |request: &str| {
        plain.send(request.as_bytes());
        let response = plain.read_response().unwrap();
        (response.status, crate::support::faulty_origins::field(&response.head, "location"))
    };
    let target = |text: &str| Some(text.to_owned());
    for (request, expected) in [
        ("GET /a/b?c=%20d HTTP/1.1\r\nHost: A.test:8080\r\n\r\n", target("https://A.test/a/b?c=%20d")),
        ("POST / HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 0\r\n\r\n", target("https://[::1]/")),
        ("GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", target("https://a.test/x")),
        ("GET //evil.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", target("https://a.test/evil.test/x")),
    ] {
        assert_eq!(location(request), (308, expected), "{request}");
    }
    // A challenge of ACME reaches the application.
    let challenge = "GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(location(challenge), (200, None));
    let mut found = crate::support::client::Client::connect(&proxy.wait_for_listener("found"));
    assert_eq!(found.get("/").status, 302);
    let mut client = TlsClient::start();
    client.run(&connect("c", proxy.port(), &authority.file("ca.pem"), "a.test", json!({})));
    for (target, status) in [("/", 200), ("/denied", 403)] {
        let response = client.get("c", target);
        let field = &response["fields"]["strict-transport-security"];
        assert_eq!(
            (&response["status"], field.as_str()),
            (&json!(status), Some("max-age=31536000; includeSubDomains; preload"))
        );
    }
}

#[test]
fn an_ocsp_response_is_stapled_until_it_expires() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    authority.ocsp_response("a.pem", "a.ocsp");
    // Times of the years from 2020 become those from 2000; weir leaves the signature to clients.
    let mut bytes = fs::read(authority.path("a.ocsp")).unwrap();
    for at in 0..bytes.len() - 5 {
        if bytes[at..].starts_with(b"\x18\x0f202") {
            bytes[at + 4] = b'0';
        }
    }
    fs::write(authority.path("old.ocsp"), bytes).unwrap();
    authority.issue("b.pem", KeyType::Ecdsa, &["b.test"]);
    let origin = echoing_server("origin");
    let tls = |certificate: &str, ocsp: &str| {
        format!(
            "tls = {{ certificates = [{{ certificate = {:?}, ocsp = {:?} }}] }}",
            authority.file(certificate),
            authority.file(ocsp)
        )
    };
    let proxy = start_proxy(&tls("a.pem", "a.ocsp"), &[&origin.authority], "");
    let ca = authority.file("ca.pem");
    for version in ["-tls1_2", "-tls1_3"] {
        let text = s_client(proxy.port(), &[version, "-status", "-CAfile", &ca]);
        assert!(
            text.contains("OCSP Response Status: successful") && text.contains("Cert Status: good"),
            "{text}"
        );
    }
    let expired = start_proxy(&tls("a.pem", "old.ocsp"), &[&origin.authority], "");
    assert!(s_client(expired.port(), &["-status"]).contains("OCSP response: no response sent"));
    assert!(expired.stderr().contains("old.ocsp: the OCSP response has expired"), "{}", expired.stderr());
    let directory = temp_dir();
    let path = directory.path().join("weir.toml");
    for (certificate, ocsp, part) in [
        ("b.pem", "a.ocsp", "a.ocsp: this OCSP response is for another certificate"),
        ("a.pem", "ca.pem", "ca.pem: it is no OCSP response in DER"),
    ] {
        let config = super::config(&tls(certificate, ocsp), &[&origin.authority], "");
        fs::write(&path, config.replace("HOME", &directory.path().display().to_string())).unwrap();
        let output = run_weir(&["proxy", "--check", "--config", path.to_str().unwrap()]);
        assert!(output.code == 2 && output.stderr.contains(part), "{part}: {}", output.stderr);
    }
}

#[test]
fn hosts_with_the_same_ticket_keys_resume_each_others_sessions() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = respond_to_each(|_, _| Some(ok_response(b"x")));
    let key = authority.path("ticket.key");
    fs::write(&key, (0..80).collect::<Vec<u8>>()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let start = |more: &str| {
        let tls = format!("tls = {{ certificates = [{:?}]{more} }}", authority.file("a.pem"));
        start_proxy(&tls, &[&origin.authority], "")
    };
    let with_key = format!(", ticket-key-file = {:?}", authority.file("ticket.key"));
    let (first, second, other) = (start(&with_key), start(&with_key), start(""));
    let (mut client, ca) = (TlsClient::start(), authority.file("ca.pem"));
    for version in ["1.2", "1.3"] {
        let mut session = |id: &str, proxy: &ProxyUnderTest, resumes: &str| {
            let settings = json!({ "version": version, "resumes": resumes });
            let resumed = client.run(&connect(id, proxy.port(), &ca, "a.test", settings))["resumed"].clone();
            assert_eq!(client.get(id, "/")["status"], 200);
            resumed
        };
        assert_eq!(session("first", &first, ""), false);
        assert_eq!(session("second", &second, "first"), true, "{version}");
        assert_eq!(session("other", &other, "first"), false, "{version}");
    }
}

#[test]
fn secrets_are_written_only_to_a_key_log_of_its_owner() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = echoing_server("origin");
    let log = authority.path("keys.log");
    let tls = |more: &str| format!("tls = {{ certificates = [{:?}]{more} }}", authority.file("a.pem"));
    let proxy = start_proxy(&tls(&format!(", key-log = {log:?}")), &[&origin.authority], "");
    assert!(proxy.stderr().contains("the secrets of all sessions are written to"), "{}", proxy.stderr());
    assert!(!log.exists(), "no session yet");
    let mut client = TlsClient::start();
    client.run(&connect("c", proxy.port(), &authority.file("ca.pem"), "a.test", json!({})));
    assert_eq!(client.get("c", "/")["status"], 200);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("CLIENT_TRAFFIC_SECRET_0 ") && text.ends_with('\n'), "{text}");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    json_lines(&proxy, "\"sni\":\"a.test\"", 1);
    // Others must not be able to read it.
    fs::set_permissions(&log, fs::Permissions::from_mode(0o644)).unwrap();
    let directory = temp_dir();
    let path = directory.path().join("weir.toml");
    let config = super::config(&tls(&format!(", key-log = {log:?}")), &[&origin.authority], "");
    fs::write(&path, config.replace("HOME", &directory.path().display().to_string())).unwrap();
    let output = run_weir(&["proxy", "--check", "--config", path.to_str().unwrap()]);
    assert!(output.code == 2 && output.stderr.contains("run chmod 600"), "{}", output.stderr);
}
