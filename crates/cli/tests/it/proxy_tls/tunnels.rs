//! Tunnels over TLS: upgraded protocols and mode tcp. Bytes are copied in both directions.

use std::io::{Read, Write};
use std::net::Shutdown;

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use super::origin;
use super::{CONFIG_HEAD, json_lines, start_proxy};
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn an_upgraded_protocol_crosses_tls_on_both_sides() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test", "127.0.0.1"]);
    let origin = origin::start(&authority.file("a.pem"));
    let listener = format!("tls = {{ certificates = [{:?}] }}", authority.file("a.pem"));
    let pool = format!("tls = {{ ca = {:?} }}", authority.file("ca.pem"));
    let proxy = start_proxy(&listener, &[&origin.authority], &pool);
    let mut client = TlsClient::start();
    for version in ["1.2", "1.3"] {
        let settings = json!({ "version": version });
        client.run(&connect(version, proxy.port(), &authority.file("ca.pem"), "a.test", settings));
        let response = client.run(&json!({ "op": "request", "id": version, "head": UPGRADE }));
        assert_eq!(response["status"], 101, "{response}");
        for length in [5, 100_000, 3_000_000, 40_000_000] {
            let echoed = client.run(&json!({ "op": "echo", "id": version, "length": length }));
            assert_eq!(echoed["equal"], true, "{version} {length}: {echoed}");
        }
        // The ends of both streams are forwarded, with their close_notify.
        client.run(&json!({ "op": "end", "id": version }));
    }
    let lines = json_lines(&proxy, "/ws", 2);
    for line in &lines {
        assert_eq!(line["end"], "done", "{line}");
        assert!(line["bytes_in"].as_u64().unwrap() > 3_100_000, "{line}");
    }
    drop(client);
    proxy.assert_all_returned();
}

/// Starts a server that echoes bytes, and ends its stream after that of the client.
fn echo_server() -> ScriptedServer {
    ScriptedServer::start(|peer: &mut ScriptPeer| {
        let mut bytes = vec![0; 1 << 16];
        loop {
            match peer.stream.read(&mut bytes)? {
                0 => return peer.stream.shutdown(Shutdown::Write),
                length => peer.stream.write_all(&bytes[..length])?,
            }
        }
    })
}

#[test]
fn mode_tcp_terminates_and_originates_tls() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test", "127.0.0.1"]);
    let server = echo_server();
    let inner = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         tls = {{ certificates = [{:?}] }}\n[pool.app]\nservers = [\"{}\"]\n",
        authority.file("a.pem"),
        server.authority
    ));
    assert!(inner.stdout().contains("listening on tls://127.0.0.1:"), "{}", inner.stdout());
    let mut client = TlsClient::start();
    client.run(&connect("c", inner.port(), &authority.file("ca.pem"), "a.test", json!({})));
    for length in [1, 3_000_000] {
        assert_eq!(client.run(&json!({ "op": "echo", "id": "c", "length": length }))["equal"], true);
    }
    client.run(&json!({ "op": "end", "id": "c" }));
    assert_eq!(json_lines(&inner, "\"listener\":\"web\"", 1)[0]["end"], "done");
    // A plain client reaches the same server through two proxies, with TLS between them.
    let outer = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\ntls = {{ ca = {:?} }}\n",
        inner.authority(),
        authority.file("ca.pem")
    ));
    let mut stream = crate::support::hostile_client::connect(outer.authority());
    let sent: Vec<u8> = (0..2_000_000).map(|index| (index % 253) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let expected = sent.clone();
    let sender = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == expected, "{} bytes", received.len());
}
