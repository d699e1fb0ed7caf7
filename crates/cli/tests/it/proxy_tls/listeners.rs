//! Clients over TLS: certificates by name, bodies, client certificates, and peers that speak no TLS.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::{Command, Stdio};
use std::time::Duration;

use rt::clock::now_ns;
use serde_json::{Value, json};

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect as connect_command};
use super::{HANDSHAKES, json_lines, start_proxy};
use crate::support::faulty_origins::{echoing_server, ok_response, respond_to_each};
use crate::support::hostile_client::connect;
use crate::support::metrics::CONNECTIONS_OPEN;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, run_weir, shared_machine};

/// Runs curl with the authority; returns its exit code and its output.
fn curl(authority: &Authority, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new("curl");
    let timeout = EVENT_TIMEOUT.as_secs().to_string();
    command.args(["-q", "-s", "--max-time", &timeout, "--cacert", &authority.file("ca.pem")]);
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

/// Runs curl for `/` of a name at the proxy.
fn curl_name(authority: &Authority, proxy: &ProxyUnderTest, name: &str, more: &[&str]) -> (i32, String) {
    let port = proxy.port();
    let (resolve, url) = (format!("{name}:{port}:127.0.0.1"), format!("https://{name}:{port}/"));
    curl(authority, &[&["--resolve", &resolve, &url], more].concat())
}

#[test]
fn the_server_name_selects_the_certificate() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test", "127.0.0.1"]);
    authority.issue("rsa.pem", KeyType::Rsa, &["a.test"]);
    std::fs::create_dir(authority.path("more")).unwrap();
    authority.issue("more/wild.pem", KeyType::Ecdsa, &["*.wild.test", "wild.test"]);
    let tls = format!(
        "tls = {{ certificates = [{:?}, {:?}], directory = {:?} }}\nforwarding = {{ forwarded = true }}",
        authority.file("a.pem"),
        authority.file("rsa.pem"),
        authority.file("more")
    );
    let origin = echoing_server("origin");
    let proxy = start_proxy(&tls, &[&origin.authority], "");
    assert!(proxy.stdout().contains("listening on https://127.0.0.1:"), "{}", proxy.stdout());
    for name in ["a.test", "x.wild.test", "wild.test"] {
        let (code, body) = curl_name(&authority, &proxy, name, &[]);
        assert_eq!(code, 0, "{name}: {body}");
        for field in ["X-Forwarded-Proto: https\r\n", ";proto=https;"] {
            assert!(body.contains(field), "{name}: {body}");
        }
    }
    let only_rsa = ["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256"];
    assert_eq!(curl_name(&authority, &proxy, "a.test", &only_rsa).0, 0);
    // The default certificate is for unknown names, which curl does not accept, and for none.
    assert_eq!(curl_name(&authority, &proxy, "unknown.test", &[]).0, 60);
    let (code, _) = curl(&authority, &[&format!("https://{}/", proxy.authority())]);
    assert_eq!(code, 0);
    let lines = json_lines(&proxy, "\"status\":200", 5);
    let names = |line: &Value| (line["tls_version"].clone(), line["tls_cipher"].clone());
    assert_eq!(names(&lines[3]), ("TLSv1.2".into(), "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".into()));
    assert_eq!(lines[0]["tls_version"], "TLSv1.3");
    assert!(lines[0]["tls_cipher"].as_str().unwrap().starts_with("TLS_"), "{}", lines[0]);
    let haproxy = proxy.wait_for_lines("access.haproxy", 5);
    assert!(haproxy[0].contains("] web~ app/"), "{haproxy:?}");
}

#[test]
fn flags_alone_make_a_listener_with_tls() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let flags = ["--listen", "127.0.0.1:0", "--to", &origin.authority, "--tls-self-signed", "-t", "1"];
    let proxy = ProxyUnderTest::weir_with_flags(&flags);
    let url = format!("https://{}/", proxy.authority());
    let output = Command::new("curl").args(["-q", "-s", "-k", &url]).output().unwrap();
    assert!(output.stdout.starts_with(b"origin\n"), "{output:?}");
    let broken = ["proxy", "--to", "127.0.0.1:1", "--tls-cert", "/no/such/file"];
    let output = run_weir(&broken);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("--tls-cert: /no/such/file: No such file"), "{}", output.stderr);
}

#[test]
fn bodies_of_any_size_cross_in_both_directions_on_one_connection() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = respond_to_each(|request, _| Some(ok_response(&request.body)));
    let tls = format!("tls = {{ certificates = [{:?}] }}", authority.file("a.pem"));
    let proxy = start_proxy(&tls, &[&origin.authority], "");
    let mut client = TlsClient::start();
    for version in ["1.2", "1.3"] {
        let settings = json!({ "version": version });
        let session = client.run(&connect_command(
            version,
            proxy.port(),
            &authority.file("ca.pem"),
            "a.test",
            settings,
        ));
        assert_eq!(session["version"], format!("TLSv{version}"));
        for length in [1_usize, 16_384, 1_000_000, 3_000_001, 100] {
            let head = format!("POST /{length} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n");
            let command = json!({ "op": "request", "id": version, "head": head, "body": length });
            let response = client.run(&command);
            assert_eq!((&response["status"], &response["length"]), (&json!(200), &json!(length)));
            assert_eq!(response["digest"], client.digest_of_body(length));
        }
    }
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(HANDSHAKES, &[("listener", "web"), ("result", "full")]), 2.0);
    drop(client);
    proxy.assert_all_returned();
}

#[test]
fn clients_prove_who_they_are() {
    let _shared = shared_machine();
    let (Some(authority), Some(other)) = (Authority::create(), Authority::create()) else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    authority.issue("client 1", KeyType::Ecdsa, &["client.test"]);
    other.issue("stranger", KeyType::Ecdsa, &["client.test"]);
    let origin = echoing_server("origin");
    for choice in ["required", "optional"] {
        let tls = format!(
            "tls = {{ certificates = [{:?}], client-ca = {:?}, client-certificate = \"{choice}\", \
             client-certificate-header = \"x-client\" }}",
            authority.file("a.pem"),
            authority.file("ca.pem")
        );
        let proxy = start_proxy(&tls, &[&origin.authority], "");
        let mut client = TlsClient::start();
        let mut get = |version: &str, certificate: Option<String>| {
            let settings = json!({ "version": version, "certificate": certificate });
            let connected = client.try_run(&connect_command(
                "c",
                proxy.port(),
                &authority.file("ca.pem"),
                "a.test",
                settings,
            ));
            if !connected["error"].is_null() {
                return connected;
            }
            // A client of TLS 1.3 learns only now that its certificate was not accepted.
            let head = "GET / HTTP/1.1\r\nHost: a.test\r\nX-Client: CN=forged\r\n\r\n";
            client.try_run(&json!({ "op": "request", "id": "c", "head": head }))
        };
        for version in ["1.2", "1.3"] {
            let known = get(version, Some(authority.file("client 1")));
            let text = known["text"].as_str().unwrap_or_default().to_owned();
            assert!(text.contains("x-client: CN=client 1,O=weir\r\n"), "{known}");
            assert!(!text.contains("forged"), "{known}");
            let none = get(version, None);
            match choice {
                "required" => assert!(!none["error"].is_null(), "{none}"),
                _ => assert!(!none["text"].as_str().unwrap().to_lowercase().contains("x-client"), "{none}"),
            }
            let stranger = get(version, Some(other.file("stranger")));
            assert!(!stranger["error"].is_null(), "{stranger}");
        }
        let failed = json_lines(&proxy, "client_tls_failed", if choice == "required" { 4 } else { 2 });
        let text = failed.last().unwrap()["tls_error"].as_str().unwrap();
        assert!(text.contains("certificate not trusted: "), "{text}");
    }
}

/// The start of a ClientHello of 512 bytes.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03half of it";

#[test]
fn what_is_no_tls_is_closed_and_counted() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = start_proxy("tls = { self-signed = true }", &[&origin.authority], "");
    let read_all = |bytes: &[u8], ends: bool| {
        let mut stream = connect(proxy.authority());
        stream.write_all(bytes).unwrap();
        if ends {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut received = Vec::new();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut received);
        received
    };
    let binary = read_all(&[0x80; 100], false);
    assert!(binary.starts_with(b"\x15\x03"), "an alert: {binary:?}");
    read_all(&[0xff; 100], false);
    read_all(HALF_HELLO, true);
    let lines = json_lines(&proxy, "client_tls_failed", 3);
    for line in &lines {
        assert_eq!((&line["status"], &line["tls_version"]), (&json!(0), &Value::Null), "{line}");
        assert!(line["tls_error"].is_string(), "{line}");
    }
    let text = lines[2]["tls_error"].as_str().unwrap();
    assert!(text.contains("closed the connection during the TLS handshake"), "{text}");
    // A check of the port is not a failure.
    drop(connect(proxy.authority()));
    assert_eq!(read_all(b"", true), b"");
    let output =
        Command::new("curl").args(["-q", "-s", "-k", &format!("https://{}/", proxy.authority())]).output();
    assert!(output.unwrap().stdout.starts_with(b"origin\n"));
    proxy.metrics_until("three handshakes failed", |metrics| {
        metrics.sum_known(HANDSHAKES, &[("result", "failed")]) == 3.0
            && metrics.sum_known(HANDSHAKES, &[("result", "full")]) == 1.0
            && metrics.sum_known("weir_connections_open", &[]) == 0.0
    });
    assert_eq!(json_lines(&proxy, "\"listener\":\"web\"", 4).len(), 4);
    proxy.assert_all_returned();
}

#[test]
fn plain_http_on_a_port_for_tls_gets_the_address_to_use() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let tls = "trusted = [\"127.0.0.1\"]\ntls = { self-signed = true, hsts = \"1d\" }";
    let plain = start_proxy(tls, &[&origin.authority], "");
    let behind_header = start_proxy(&format!("proxy-protocol = true\n{tls}"), &[&origin.authority], "");
    let exchange = |proxy: &ProxyUnderTest, pieces: &[&[u8]]| {
        let mut stream = connect(proxy.authority());
        for piece in pieces {
            // The proxy may have responded and closed already.
            let _ = stream.write_all(piece);
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        String::from_utf8_lossy(&received).into_owned()
    };
    let head = b"GET /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\n\r\n";
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n";
    let with_header = [&header[..], head].concat();
    let post = b"POST /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nContent-Length: 100000\r\n\r\nx";
    let cases: [(&ProxyUnderTest, &[&[u8]]); 6] = [
        (&plain, &[head]),
        (&plain, &[&head[..1], &head[1..9], &head[9..]]),
        (&plain, &[post, b"xx"]),
        (&plain, &[head, head]),
        (&behind_header, &[&with_header]),
        (&behind_header, &[header, head]),
    ];
    for (proxy, pieces) in cases {
        let text = exchange(proxy, pieces);
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("\r\nConnection: close\r\n"), "{text}");
        assert!(text.contains("use https://a.test:8443/a?b=c\n"), "{text}");
        assert!(!text.to_lowercase().contains("strict-transport-security"), "{text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    }
    let without_host = exchange(&plain, &[b"GET / HTTP/1.0\r\n\r\n"]);
    assert!(without_host.contains("use https\n"), "{without_host}");
    let invalid = exchange(&plain, &[b"HELO there\r\n\r\n"]);
    assert!(invalid.starts_with("HTTP/1.1 400 "), "{invalid}");
    let lines = json_lines(&plain, "plain_http", 5);
    assert_eq!((&lines[0]["method"], &lines[0]["target"]), (&json!("GET"), &json!("/a?b=c")), "{}", lines[0]);
    plain.assert_all_returned();
    behind_header.assert_all_returned();
    // A tunnel has no HTTP to respond with.
    let tcp = ProxyUnderTest::weir(&format!(
        "admin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         tls = {{ self-signed = true }}\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    assert!(exchange(&tcp, &[head]).starts_with('\x15'));
}

#[test]
fn a_handshake_has_the_time_of_a_head() {
    let _shared = shared_machine();
    let timeouts = "tls = { self-signed = true }\ntimeouts = { head = \"400ms\" }";
    let origin = echoing_server("origin");
    let proxy = start_proxy(timeouts, &[&origin.authority], "");
    for bytes in [HALF_HELLO, b""] {
        let start_ns = now_ns();
        let mut stream = connect(proxy.authority());
        stream.write_all(bytes).unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        assert_eq!(received, b"");
        assert!(now_ns() - start_ns >= Duration::from_millis(400).as_nanos() as u64);
    }
    let lines = json_lines(&proxy, "client_tls_failed", 1);
    assert_eq!(lines[0]["tls_error"], "the TLS handshake took too long", "{}", lines[0]);
    assert!(lines[0]["total_us"].as_u64().unwrap() >= 400_000, "{}", lines[0]);
}

#[test]
fn a_slow_reader_is_served_and_one_that_stops_is_closed() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let length = 20_000_000;
    let origin = respond_to_each(move |_, _| Some(ok_response(&vec![b'x'; length])));
    let tls = format!(
        "tls = {{ certificates = [{:?}] }}\ntimeouts = {{ write = \"800ms\", write-progress-bytes = \"64k\" }}",
        authority.file("a.pem")
    );
    let proxy = start_proxy(&tls, &[&origin.authority], "");
    let mut client = TlsClient::start();
    let small = json!({ "buffer": 65_536 });
    client.run(&connect_command("slow", proxy.port(), &authority.file("ca.pem"), "a.test", small.clone()));
    // It takes less in a `write` interval than one TLS write has, and more than it has to.
    let head = "GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let slowly = json!({
        "op": "read_slowly", "id": "slow", "head": head, "length": 1_500_000, "bytes": 16_384, "seconds": 0.04
    });
    assert!(client.run(&slowly)["received"].as_u64().unwrap() >= 1_500_000);
    client.run(&connect_command("stopped", proxy.port(), &authority.file("ca.pem"), "a.test", small));
    let head = "GET /stopped HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let stopping = json!({
        "op": "read_slowly", "id": "stopped", "head": head, "length": 1, "bytes": 1, "seconds": 0
    });
    client.run(&stopping);
    assert_eq!(json_lines(&proxy, "/stopped", 1)[0]["end"], "write_timeout");
}

#[test]
fn connections_beyond_a_limit_get_their_response_over_tls() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = echoing_server("origin");
    let tls = format!(
        "tls = {{ certificates = [{:?}], min-version = \"1.3\" }}\nconnections-max = 1\non-limit = \"reject\"",
        authority.file("a.pem")
    );
    let mut proxy = start_proxy(&tls, &[&origin.authority], "");
    let (mut client, ca) = (TlsClient::start(), authority.file("ca.pem"));
    let old =
        client.try_run(&connect_command("old", proxy.port(), &ca, "a.test", json!({ "version": "1.2" })));
    assert!(old["error"].as_str().unwrap().contains("PROTOCOL_VERSION"), "{old}");
    proxy.metrics_until("the first one is gone", |metrics| metrics.sum_known(CONNECTIONS_OPEN, &[]) == 0.0);
    client.run(&connect_command("first", proxy.port(), &ca, "a.test", json!({})));
    assert_eq!(client.get("first", "/")["status"], 200);
    client.run(&connect_command("second", proxy.port(), &ca, "a.test", json!({})));
    assert_eq!(client.get("second", "/")["status"], 503);
    // A drain ends idle sessions with close_notify, and does not wait for a handshake.
    let unfinished = connect(proxy.authority());
    (&unfinished).write_all(HALF_HELLO).unwrap();
    proxy.process.signal(rustix::process::Signal::TERM);
    assert_eq!(client.run(&json!({ "op": "read_end", "id": "first" }))["end"], "clean");
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
}

#[test]
fn a_proxy_header_precedes_the_session() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = echoing_server("origin");
    let tls = format!(
        "tls = {{ certificates = [{:?}] }}\nproxy-protocol = true\ntrusted = \"127.0.0.1\"",
        authority.file("a.pem")
    );
    let proxy = start_proxy(&tls, &[&origin.authority], "");
    let mut client = TlsClient::start();
    let before = json!({ "before": "PROXY TCP4 192.0.2.7 192.0.2.8 4000 443\r\n" });
    client.run(&connect_command("c", proxy.port(), &authority.file("ca.pem"), "a.test", before));
    for _ in 0..2 {
        let response = client.get("c", "/");
        assert!(response["text"].as_str().unwrap().starts_with("origin\n"), "{response}");
    }
    let lines = json_lines(&proxy, "192.0.2.7", 2);
    assert_eq!((&lines[0]["client_port"], &lines[0]["tls_version"]), (&json!(4000), &json!("TLSv1.3")));
    let without =
        client.try_run(&connect_command("d", proxy.port(), &authority.file("ca.pem"), "a.test", json!({})));
    assert!(!without["error"].is_null(), "{without}");
}
