//! Routes in mode tcp by the client's ClientHello: names, protocols, fragments, and clients that
//! speak something else.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use super::origin;
use super::{CONFIG_HEAD, json_lines};
use crate::support::hostile_client::connect as connect_tcp;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

/// ClientHellos; labels `listener` and `result`.
const HELLOS: &str = "weir_client_hellos_total";
/// Alert of RFC 6066 §3 for an unknown name.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Starts a proxy with a listener in mode tcp, and a pool for each server; further lines of the
/// listener come before its routes.
fn start(listener: &str, routes: &[(&str, &str)], pools: &[(&str, &str)]) -> ProxyUnderTest {
    let mut config =
        format!("{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\n{listener}\n");
    for (conditions, pool) in routes {
        config += &format!("[[listener.web.sni]]\n{conditions}\npool = \"{pool}\"\n");
    }
    for (name, server) in pools {
        config += &format!("[pool.{name}]\nservers = [\"{server}\"]\n");
    }
    ProxyUnderTest::weir(&config)
}

fn hellos(proxy: &ProxyUnderTest, result: &str) -> f64 {
    proxy.metrics().sum_known(HELLOS, &[("result", result)])
}

#[test]
fn the_server_name_selects_the_pool_and_the_server_terminates() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    authority.issue("b.pem", KeyType::Ecdsa, &["*.b.test"]);
    authority.issue("other.pem", KeyType::Ecdsa, &["other.test"]);
    let origins = ["a.pem", "b.pem", "other.pem"].map(|file| origin::start(&authority.file(file)));
    let proxy = start(
        "pool = \"other\"",
        &[("server-name = \"a.test\"", "a"), ("server-name = [\"*.b.test\"]", "b")],
        &[("a", &origins[0].authority), ("b", &origins[1].authority), ("other", &origins[2].authority)],
    );
    let (mut client, ca) = (TlsClient::start(), authority.file("ca.pem"));
    // Each server proves its own name: nothing was terminated on the way.
    for name in ["a.test", "x.b.test", "other.test"] {
        for version in ["1.2", "1.3"] {
            let settings = json!({ "version": version });
            client.run(&connect(name, proxy.port(), &ca, name, settings));
            assert_eq!(client.get(name, "/")["status"], 200, "{name} {version}");
            client.run(&json!({ "op": "close", "id": name }));
        }
        let line = &json_lines(&proxy, &format!("\"sni\":\"{name}\""), 2)[0];
        let pool = name.split('.').rev().nth(1).unwrap();
        assert_eq!((&line["pool"], &line["tls_version"]), (&json!(pool), &json!(null)), "{line}");
    }
    assert_eq!((hellos(&proxy, "matched"), hellos(&proxy, "default")), (4.0, 2.0));
    drop(client);
    proxy.assert_all_returned();
}

#[test]
fn an_unknown_name_gets_an_alert_and_reaches_no_server() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = origin::start(&authority.file("a.pem"));
    let proxy = start("", &[("server-name = \"a.test\"", "a")], &[("a", &origin.authority)]);
    let (mut client, ca) = (TlsClient::start(), authority.file("ca.pem"));
    let refused = client.try_run(&connect("c", proxy.port(), &ca, "b.test", json!({})));
    assert!(
        refused["error"].as_str().unwrap_or_default().to_lowercase().contains("unrecognized"),
        "{refused}"
    );
    let line = &json_lines(&proxy, "\"sni\":\"b.test\"", 1)[0];
    assert_eq!((&line["end"], &line["pool"]), (&json!("unknown_server_name"), &json!(null)), "{line}");
    // A client without a name is no exception.
    let mut nameless = connect_tcp(proxy.authority());
    nameless.write_all(&hello(None, &[])).unwrap();
    assert_eq!(read_all(&mut nameless), UNRECOGNIZED_NAME);
    assert!(within(EVENT_TIMEOUT, || hellos(&proxy, "unknown") == 2.0));
    client.run(&connect("d", proxy.port(), &ca, "a.test", json!({})));
    assert_eq!(client.get("d", "/")["status"], 200);
}

#[test]
fn fragmented_hellos_are_forwarded_unchanged() {
    let _shared = shared_machine();
    let server = crate::support::peers::ScriptedServer::start(|peer| {
        // Echoes everything, so that the client can compare.
        let mut bytes = vec![0; 1 << 16];
        loop {
            match peer.stream.read(&mut bytes)? {
                0 => return Ok(()),
                length => peer.stream.write_all(&bytes[..length])?,
            }
        }
    });
    let proxy = start("", &[("alpn = [\"h2\", \"x\"]", "a")], &[("a", &server.authority)]);
    let message = hello(Some("a.test"), &["http/1.1", "h2"]);
    // Records of a few bytes, in writes that split them.
    let fragments: Vec<u8> =
        message[5..].chunks(7).flat_map(|part| [&[22, 3, 1, 0, part.len() as u8], part].concat()).collect();
    for bytes in [message, fragments] {
        let mut client = connect_tcp(proxy.authority());
        client.set_nodelay(true).unwrap();
        for part in bytes.chunks(11) {
            client.write_all(part).unwrap();
        }
        client.write_all(b"and more").unwrap();
        let mut echoed = vec![0; bytes.len() + 8];
        client.read_exact(&mut echoed).unwrap();
        assert_eq!(echoed, [&bytes[..], b"and more"].concat());
    }
    // Another protocol alone matches nothing.
    let mut other = connect_tcp(proxy.authority());
    other.write_all(&hello(Some("a.test"), &["http/1.1"])).unwrap();
    assert_eq!(read_all(&mut other), UNRECOGNIZED_NAME);
    assert_eq!(hellos(&proxy, "matched"), 2.0);
}

#[test]
fn what_is_no_hello_is_closed_and_counted() {
    let _shared = shared_machine();
    let proxy = start(
        "pool = \"a\"\ntimeouts = { head = \"500ms\" }",
        &[("server-name = \"a.test\"", "a")],
        &[("a", "127.0.0.1:1")],
    );
    let message = hello(Some("a.test"), &[]);
    let long = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0x80, 0], &vec![0; 0x4000 - 4]].concat();
    let cases: [&[u8]; 4] =
        [b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", b"SSH-2.0-x\r\n", &long, &message[..40]];
    for bytes in cases {
        let mut client = connect_tcp(proxy.authority());
        client.write_all(bytes).unwrap();
        assert!(read_all(&mut client).is_empty(), "{bytes:?}");
    }
    assert!(within(EVENT_TIMEOUT, || hellos(&proxy, "invalid") == 4.0));
    let lines = json_lines(&proxy, "bad_client_hello", 4);
    assert!(lines.iter().all(|line| line["pool"].is_null() && !line["tls_error"].is_null()), "{lines:#?}");
    // A check of the port is no failure, and a silent client is closed.
    drop(connect_tcp(proxy.authority()));
    assert!(read_all(&mut connect_tcp(proxy.authority())).is_empty());
    assert_eq!(hellos(&proxy, "invalid"), 4.0);
    proxy.assert_all_returned();
}

#[test]
fn a_proxy_header_precedes_the_hello() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = origin::start(&authority.file("a.pem"));
    let listener = "proxy-protocol = true\ntrusted = \"127.0.0.1\"";
    let proxy = start(listener, &[("server-name = \"a.test\"", "a")], &[("a", &origin.authority)]);
    let mut client = TlsClient::start();
    let before = json!({ "before": "PROXY TCP4 192.0.2.7 192.0.2.8 4000 443\r\n" });
    client.run(&connect("c", proxy.port(), &authority.file("ca.pem"), "a.test", before));
    assert_eq!(client.get("c", "/")["status"], 200);
    client.run(&json!({ "op": "close", "id": "c" }));
    assert_eq!(json_lines(&proxy, "192.0.2.7", 1)[0]["sni"], "a.test");
}

/// Returns a ClientHello in one record, of which no server could answer the key exchange.
fn hello(server_name: Option<&str>, alpn: &[&str]) -> Vec<u8> {
    let vector = |length_bytes: usize, content: &[u8]| {
        [&content.len().to_be_bytes()[8 - length_bytes..], content].concat()
    };
    let mut extensions = Vec::new();
    if let Some(name) = server_name {
        let list = vector(2, &[&[0][..], &vector(2, name.as_bytes())].concat());
        extensions.extend([&[0, 0][..], &vector(2, &list)].concat());
    }
    if !alpn.is_empty() {
        let list: Vec<u8> = alpn.iter().flat_map(|protocol| vector(1, protocol.as_bytes())).collect();
        extensions.extend([&[0, 16][..], &vector(2, &vector(2, &list))].concat());
    }
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &vector(2, &extensions)].concat();
    let message = [&[1][..], &vector(3, &body)].concat();
    [&[22, 3, 1][..], &vector(2, &message)].concat()
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends the stream, too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}
