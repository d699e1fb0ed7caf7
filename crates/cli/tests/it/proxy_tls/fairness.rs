//! Handshakes beside everything else: a burst of RSA handshakes does not hold up the requests of other
//! connections of the same core, and the handshakes in progress are limited.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::authority::{Authority, KeyType};
use super::{HANDSHAKES, start_proxy};
use crate::support::client::Client;
use crate::support::hostile_client::connect;
use crate::support::metrics::REFUSED;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::tls_peers::python;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

/// Number of clients whose ClientHellos arrive together.
const BURST: usize = 200;

/// Prints a ClientHello of Python's ssl module.
const HELLO: &str = r#"
import ssl, sys
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
tls = context.wrap_bio(incoming, outgoing, server_hostname="a.test")
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    pass
print(outgoing.read().hex())
"#;

fn client_hello() -> Vec<u8> {
    let hex = python(HELLO, &[]);
    let digits = hex.trim().as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn requests_go_on_during_a_burst_of_rsa_handshakes() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Rsa, &["a.test"]);
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         tls = {{ certificates = [{:?}] }}\n[listener.plain]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nreturn = {{ status = 200, body = \"x\" }}\n",
        authority.file("a.pem")
    ));
    let hello = client_hello();
    let mut clients: Vec<_> = (0..BURST).map(|_| connect(proxy.authority())).collect();
    let plain = proxy.addresses("plain")[0].clone();
    let (is_over, responses) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let other = {
        let (is_over, responses) = (Arc::clone(&is_over), Arc::clone(&responses));
        std::thread::spawn(move || {
            let mut client = Client::connect(&plain);
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(client.get("/").status, 200);
                responses.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    assert!(within(EVENT_TIMEOUT, || responses.load(Ordering::SeqCst) > 0));
    // One process writes all of them while the proxy is busy with the first ones.
    for client in &mut clients {
        client.write_all(&hello).unwrap();
    }
    let before = responses.load(Ordering::SeqCst);
    for client in &mut clients {
        // Its ServerHello.
        client.read_exact(&mut [0; 64]).unwrap();
    }
    let during = responses.load(Ordering::SeqCst) - before;
    is_over.store(true, Ordering::SeqCst);
    other.join().unwrap();
    // Each turn of the loop computes one signature, and answers the waiting request. Without a
    // bound, a turn would compute 61 of them.
    assert!(during >= BURST / 10, "{during} responses during {BURST} handshakes");
    drop(clients);
    proxy.assert_all_returned();
}

#[test]
fn handshakes_in_progress_are_limited_and_the_others_reset() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let tls = format!("tls = {{ certificates = [{:?}] }}\nhandshakes-max = 3", authority.file("a.pem"));
    let proxy = start_proxy(&tls, &["127.0.0.1:1"], "");
    let refused = || proxy.metrics().sum_known(REFUSED, &[("reason", "handshakes_full")]);
    let silent: Vec<_> = (0..3).map(|_| connect(proxy.authority())).collect();
    assert!(within(EVENT_TIMEOUT, || proxy.metrics().sum_known("weir_connections_open", &[]) == 3.0));
    for number in 1..=2 {
        let mut further = connect(proxy.authority());
        let error = further.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(within(EVENT_TIMEOUT, || refused() == f64::from(number)));
    }
    // A slot is free once a handshake ends, in any way.
    drop(silent);
    assert!(within(EVENT_TIMEOUT, || proxy.metrics().sum_known("weir_connections_open", &[]) == 0.0));
    let mut client = super::client::TlsClient::start();
    for number in 0..5 {
        let id = number.to_string();
        let command = super::client::connect(
            &id,
            proxy.port(),
            &authority.file("ca.pem"),
            "a.test",
            serde_json::json!({}),
        );
        client.run(&command);
    }
    assert_eq!(proxy.metrics().sum_known(HANDSHAKES, &[("result", "full")]), 5.0);
    assert_eq!(refused(), 2.0);
}
