//! Reloads of certificates: new connections get the new ones, sessions are resumed, and a fault in a
//! file changes nothing.

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use super::{HANDSHAKES, config};
use crate::support::faulty_origins::echoing_server;
use crate::support::metrics::RELOADS;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

fn reload(proxy: &ProxyUnderTest, config: &str, result: &str) {
    let count = |proxy: &ProxyUnderTest| proxy.metrics().sum_known(RELOADS, &[("result", result)]);
    let before = count(proxy);
    proxy.reload(config);
    assert!(within(EVENT_TIMEOUT, || count(proxy) > before), "{}", proxy.stderr());
}

#[test]
fn a_reload_changes_certificates_and_keeps_sessions() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = echoing_server("origin");
    let tls = format!("tls = {{ certificates = [{:?}] }}", authority.file("a.pem"));
    let config = config(&tls, &[&origin.authority], "");
    let proxy = ProxyUnderTest::weir(&config);
    let (mut client, ca, port) = (TlsClient::start(), authority.file("ca.pem"), proxy.port());
    for version in ["1.2", "1.3"] {
        let id = |name: &str| format!("{name} {version}");
        let settings = |resumes: &str| json!({ "version": version, "resumes": resumes });
        let first = client.run(&connect(&id("first"), port, &ca, "a.test", settings("")));
        assert_eq!(first["resumed"], false);
        client.get(&id("first"), "/1");
        authority.issue("a.pem", KeyType::Ecdsa, &["a.test", "b.test"]);
        reload(&proxy, &config, "applied");
        // An open connection continues, and its session is resumed.
        assert_eq!(client.get(&id("first"), "/2")["status"], 200);
        let resumed = client.run(&connect(&id("resumed"), port, &ca, "a.test", settings(&id("first"))));
        assert_eq!((&resumed["resumed"], &resumed["serial"]), (&json!(true), &first["serial"]));
        assert_eq!(client.get(&id("resumed"), "/3")["status"], 200);
        let new = client.run(&connect(&id("new"), port, &ca, "b.test", settings("")));
        assert_ne!(new["serial"], first["serial"]);
        assert_eq!(client.get(&id("new"), "/4")["status"], 200);
    }
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(HANDSHAKES, &[("result", "resumed")]), 2.0);
    assert_eq!(metrics.sum_known(HANDSHAKES, &[("result", "full")]), 4.0);
}

#[test]
fn a_fault_in_a_file_rejects_the_reload() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let origin = echoing_server("origin");
    let tls = format!("tls = {{ certificates = [{:?}] }}", authority.file("a.pem"));
    let config = config(&tls, &[&origin.authority], "");
    let proxy = ProxyUnderTest::weir(&config);
    let (mut client, ca) = (TlsClient::start(), authority.file("ca.pem"));
    let mut serial = |name: &str| {
        let session = client.run(&connect("c", proxy.port(), &ca, name, json!({})));
        assert_eq!(client.get("c", "/")["status"], 200);
        session["serial"].clone()
    };
    let first = serial("a.test");
    for text in ["no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        authority.replace("a.pem", text);
        reload(&proxy, &config, "refused");
        assert_eq!(serial("a.test"), first);
    }
    std::fs::remove_file(authority.path("a.pem")).unwrap();
    reload(&proxy, &config, "refused");
    assert_eq!(serial("a.test"), first);
    let stderr = proxy.stderr();
    let file = authority.file("a.pem");
    for part in [format!("{file}: no certificate in PEM format"), format!("{file}: No such file")] {
        assert!(stderr.contains(&part), "{part}: {stderr}");
    }
    assert!(stderr.contains("weir.toml:"), "{stderr}");
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    reload(&proxy, &config, "applied");
    assert_ne!(serial("a.test"), first);
}
