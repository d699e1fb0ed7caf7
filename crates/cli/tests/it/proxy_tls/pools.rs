//! Servers over TLS: verification, resumption, health checks, long and truncated responses.

use serde_json::{Value, json};

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use super::origin;
use super::{SERVER_HANDSHAKES, json_lines, start_proxy};
use crate::support::hostile_client::exchange_raw;
use crate::support::metrics::{CHECKS, SERVER_STATE};
use crate::support::peers::ScriptedServer;
use crate::support::proxies::{ComparedProxy, ProxyKind};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

/// Starts nginx with TLS. `/big` is a file of this content.
fn nginx(authority: &Authority, certificate: &str, big: &[u8]) -> ComparedProxy {
    std::fs::write(authority.path("big"), big).unwrap();
    let root = authority.path("").display().to_string();
    ComparedProxy::nginx(&format!(
        "user root;\nworker_processes 1;\npid {{directory}}/pid;\nerror_log {{directory}}/error.log;\n\
         events {{ worker_connections 256; }}\nhttp {{ access_log off;\n\
         client_body_temp_path {{directory}}/a; proxy_temp_path {{directory}}/b;\n\
         fastcgi_temp_path {{directory}}/c; uwsgi_temp_path {{directory}}/d; scgi_temp_path {{directory}}/e;\n\
         server {{ listen 127.0.0.1:{{port}} ssl; root {root};\n\
         ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {certificate}; ssl_certificate_key {certificate};\n\
         location = / {{ return 200 \"hello\"; }} location = /health {{ return 204; }} }} }}\n"
    ))
}

fn get(proxy: &ProxyUnderTest, target: &str) -> (u16, Vec<u8>) {
    let response = proxy.get(target);
    (response.status, response.body)
}

#[test]
fn servers_are_verified() {
    let _shared = shared_machine();
    if !ProxyKind::Nginx.is_installed() {
        return;
    }
    let (Some(authority), Some(other)) = (Authority::create(), Authority::create()) else { return };
    authority.issue("server.pem", KeyType::Ecdsa, &["app.test", "127.0.0.1"]);
    let nginx = nginx(&authority, &authority.file("server.pem"), b"");
    let check =
        "check = { type = \"http\", path = \"/health\", status = \"204\", interval = \"100ms\", fall = 1 }";
    let tls = |ca: &Authority, more: &str| format!("{check}\ntls = {{ ca = {:?}{more} }}", ca.file("ca.pem"));
    for more in ["", ", server-name = \"app.test\"", ", min-version = \"1.3\""] {
        let proxy = start_proxy("", &[&nginx.authority], &tls(&authority, more));
        assert_eq!(get(&proxy, "/"), (200, b"hello".to_vec()), "{more}");
        proxy.metrics_until("a check passed", |metrics| {
            metrics.sum_known(CHECKS, &[("result", "passed")]) >= 1.0
        });
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum_known(SERVER_HANDSHAKES, &[("result", "full")]), 1.0);
    }
    let unverified = start_proxy("", &[&nginx.authority], "tls = { verify = false }");
    assert_eq!(get(&unverified, "/").0, 200);
    for (ca, more, part) in [
        (&other, "", "certificate not trusted: "),
        (&authority, ", server-name = \"other.test\"", "not for other.test"),
    ] {
        let without_check = tls(ca, more).replace(check, "");
        let proxy = start_proxy("", &[&nginx.authority], &without_check);
        assert_eq!(get(&proxy, "/x").0, 503);
        let line = &json_lines(&proxy, "/x", 1)[0];
        assert_eq!((&line["end"], &line["termination"]), (&json!("tls_handshake_failed"), &json!("SC")));
        assert!(line["tls_error"].as_str().unwrap().contains(part), "{line}");
        // With the retry.
        assert_eq!(proxy.metrics().sum_known(SERVER_HANDSHAKES, &[("result", "failed")]), 2.0);
        let checked = start_proxy("", &[&nginx.authority], &tls(ca, more));
        checked.metrics_until("the server is down", |metrics| {
            metrics.sum_known(CHECKS, &[("result", "tls")]) >= 1.0
                && metrics.sum_known(SERVER_STATE, &[("state", "down")]) == 1.0
        });
        assert!(checked.stderr().contains("TLS handshake failed: "), "{}", checked.stderr());
    }
}

#[test]
fn a_plain_server_is_no_tls_server() {
    let _shared = shared_machine();
    let origin = ScriptedServer::start(|peer| {
        let read = std::io::Read::read(&mut peer.stream, &mut [0; 4096])?;
        assert!(read > 0);
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    });
    let proxy = start_proxy("", &[&origin.authority], "tls = { verify = false }");
    assert_eq!(get(&proxy, "/x").0, 503);
    assert_eq!(json_lines(&proxy, "/x", 1)[0]["end"], "tls_handshake_failed");
}

#[test]
fn connections_to_a_server_resume_its_sessions() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("server.pem", KeyType::Ecdsa, &["app.test"]);
    let origins = [(); 2].map(|()| origin::start(&authority.file("server.pem")));
    let servers = [origins[0].authority.as_str(), origins[1].authority.as_str()];
    let tls = format!(
        "balance = \"round-robin\"\ntls = {{ ca = {:?}, server-name = \"app.test\" }}",
        authority.file("ca.pem")
    );
    let proxy = start_proxy("", &servers, &tls);
    for _ in 0..8 {
        let response = proxy.get("/close");
        assert_eq!((response.status, &*response.body), (200, &b"hello"[..]));
        assert!(response.head.contains("x-name: app.test\r\n"), "{}", response.head);
    }
    for server in servers {
        let count = |result| {
            let labels = [("server", server), ("result", result)];
            proxy.metrics().sum_known(SERVER_HANDSHAKES, &labels)
        };
        assert_eq!((count("full"), count("resumed"), count("failed")), (1.0, 3.0, 0.0), "{server}");
    }
}

#[test]
fn a_proxy_header_and_a_certificate_precede_requests() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("server.pem", KeyType::Ecdsa, &["127.0.0.1"]);
    authority.issue("own.pem", KeyType::Rsa, &["proxy.test"]);
    let origin = origin::start_with(&[&authority.file("server.pem"), "proxy", &authority.file("ca.pem")]);
    let tls = |more: &str| {
        format!("send-proxy-protocol = \"v1\"\ntls = {{ ca = {:?}{more} }}", authority.file("ca.pem"))
    };
    let own = format!(", certificate = {:?}", authority.file("own.pem"));
    let proxy = start_proxy("", &[&origin.authority], &tls(&own));
    let response = proxy.get("/");
    assert!(response.head.contains("x-header: PROXY TCP4 127.0.0.1 127.0.0.1 "), "{}", response.head);
    // A server of TLS 1.3 rejects the missing certificate after the handshake.
    let without = start_proxy("", &[&origin.authority], &tls(""));
    assert_eq!(get(&without, "/x").0, 502);
    let line = &json_lines(&without, "/x", 1)[0];
    assert!(line["tls_error"].as_str().unwrap().contains("certificate_required"), "{line}");
}

#[test]
fn long_bodies_cross_any_combination_of_both_sides() {
    let _shared = shared_machine();
    if !ProxyKind::Nginx.is_installed() {
        return;
    }
    let Some(authority) = Authority::create() else { return };
    authority.issue("server.pem", KeyType::Ecdsa, &["a.test", "127.0.0.1"]);
    let mut client = TlsClient::start();
    let length = 5_000_000;
    let big: Vec<u8> = (0..length).map(|index| (index % 251 * 7 % 251) as u8).collect();
    let expected = client.digest_of_body(length);
    let nginx = nginx(&authority, &authority.file("server.pem"), &big);
    let plain_origin = crate::support::faulty_origins::respond_to_each({
        let big = big.clone();
        move |_, _| Some(crate::support::faulty_origins::ok_response(&big))
    });
    let server_tls = format!("tls = {{ ca = {:?} }}", authority.file("ca.pem"));
    let client_tls = format!("tls = {{ certificates = [{:?}] }}", authority.file("server.pem"));
    for (server, pool) in [(&*plain_origin.authority, ""), (&*nginx.authority, &*server_tls)] {
        let over_tls = start_proxy(&client_tls, &[server], pool);
        client.run(&connect("c", over_tls.port(), &authority.file("ca.pem"), "a.test", json!({})));
        for _ in 0..2 {
            let response = client.get("c", "/big");
            assert_eq!((&response["length"], &response["digest"]), (&json!(length), &expected));
        }
        let plain = start_proxy("", &[server], pool);
        assert_eq!(get(&plain, "/big"), (200, big.clone()));
    }
}

#[test]
fn a_response_without_its_end_is_truncated() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("server.pem", KeyType::Ecdsa, &["127.0.0.1"]);
    let origin = origin::start(&authority.file("server.pem"));
    let tls = format!("tls = {{ ca = {:?} }}", authority.file("ca.pem"));
    let proxy = start_proxy("", &[&origin.authority], &tls);
    for version in ["1.0", "1.1"] {
        for (target, end) in [("/clean", "done"), ("/truncated", "server_closed")] {
            let request = format!("GET {target} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
            let response = exchange_raw(proxy.authority(), request.as_bytes());
            assert_eq!(response.status, Some(200));
            if version == "1.1" {
                assert_eq!(response.is_complete, target == "/clean", "{response:?}");
            }
            let lines = json_lines(&proxy, target, if version == "1.0" { 1 } else { 2 });
            let ends: Vec<&Value> = lines.iter().map(|line| &line["end"]).collect();
            assert!(ends.iter().all(|logged_end| **logged_end == end), "{target} {version}: {ends:?}");
        }
    }
    // To a client over TLS, the end of the stream is as the server's.
    let client_tls = "tls = { self-signed = true }";
    let proxy = start_proxy(client_tls, &[&origin.authority], &tls);
    let script = "import socket, ssl, sys\n\
        context = ssl._create_unverified_context()\n\
        raw = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=30)\n\
        tls = context.wrap_socket(raw, suppress_ragged_eofs=False)\n\
        tls.sendall(('GET %s HTTP/1.0\\r\\nHost: a\\r\\n\\r\\n' % sys.argv[2]).encode())\n\
        end = 'clean'\n\
        try:\n\
        \x20   while tls.recv(65536): pass\n\
        except OSError as error: end = 'truncated'\n\
        print(end)\n";
    for target in ["clean", "truncated"] {
        let port = proxy.port().to_string();
        let output = std::process::Command::new("python3")
            .args(["-c", script, &port, &format!("/{target}")])
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout.trim(), target, "{output:?}");
    }
}
