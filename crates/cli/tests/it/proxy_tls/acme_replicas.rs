//! Several replicas with one storage of automatic certificates, against pebble: one order for all, answers to
//! challenges at any of them, takeover from a killed one, and files that others have spoiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::acme::{Pebble, orders};
use super::authority::KeyType;
use super::client::{TlsClient, connect};
use crate::support::peers::free_port;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, within};

/// Settings of a test: the ACME server, and the storage.
struct Site {
    pebble: Pebble,
    storage: PathBuf,
    /// Ports of the validations.
    ports: (u16, u16),
}

impl Site {
    fn start() -> Option<Self> {
        let ports = (free_port(), free_port());
        let pebble = Pebble::start(ports.0, ports.1)?;
        let storage = pebble.authority.path("storage");
        fs::create_dir(&storage).unwrap();
        Some(Self { pebble, storage, ports })
    }

    /// Returns the config of a replica with its ports.
    fn config(&self, domain: &str, challenge: &str, (http, tls): (u16, u16), times: &str) -> String {
        format!(
            "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:{tls}\"\n\
             [listener.web.tls.acme]\ndirectory = {:?}\nca = {:?}\ndomains = {domain:?}\nstorage = {:?}\n\
             challenge = {challenge:?}\nagree-to-terms = true\nshared-storage = true\n{times}\n\
             [listener.plain]\nbind = \"127.0.0.1:{http}\"\n[[route]]\nreturn = {{ status = 200, body = \"x\" }}\n",
            self.pebble.directory,
            self.pebble.authority.file("ca.pem"),
            self.storage,
        )
    }

    fn has_file(&self, prefix: &str) -> bool {
        let mut names = fs::read_dir(&self.storage).unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_str().unwrap().starts_with(prefix))
    }
}

/// Returns the serial number that a replica serves for a name; null: its certificate is another one.
fn serial(client: &mut TlsClient, proxy: &ProxyUnderTest, issuer: &str, name: &str) -> Value {
    client.try_run(&connect("c", proxy.port(), issuer, name, json!({})))["serial"].clone()
}

/// Waits until all replicas serve one certificate other than `previous`; returns its serial number.
fn common_serial(proxies: &[ProxyUnderTest], issuer: &str, previous: &Value) -> Value {
    let mut client = TlsClient::start();
    let mut found = Vec::new();
    let is_common = within(EVENT_TIMEOUT, || {
        found = proxies.iter().map(|proxy| serial(&mut client, proxy, issuer, "a.test")).collect();
        found.iter().all(|serial| !serial.is_null() && *serial == found[0] && *serial != *previous)
    });
    assert!(is_common, "{found:?}: {}", proxies.iter().map(ProxyUnderTest::stderr).collect::<String>());
    found.swap_remove(0)
}

fn issued(proxies: &[ProxyUnderTest]) -> f64 {
    proxies.iter().map(|proxy| orders(proxy, "issued")).sum()
}

fn failed(proxies: &[ProxyUnderTest]) -> f64 {
    proxies.iter().map(|proxy| orders(proxy, "failed")).sum()
}

const FAST: &str = "poll-interval = \"200ms\"";

#[test]
fn replicas_that_start_at_once_make_one_order() {
    let _shared = shared_machine();
    let Some(site) = Site::start() else { return };
    let others = || (free_port(), free_port());
    let ports = [site.ports, others(), others()];
    let proxies: Vec<ProxyUnderTest> = std::thread::scope(|scope| {
        let start = |ports| site.config("a.test", "http-01", ports, FAST);
        let configs: Vec<String> = ports.into_iter().map(start).collect();
        let threads: Vec<_> =
            configs.into_iter().map(|config| scope.spawn(move || ProxyUnderTest::weir(&config))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let issuer = site.pebble.issuing_authority();
    let first = common_serial(&proxies, &issuer, &Value::Null);
    assert_eq!((issued(&proxies), failed(&proxies), site.pebble.orders()), (1.0, 0.0, 1));
    // A certificate that is due for all of them is renewed by one.
    fs::remove_file(site.storage.join("a.test.pem")).unwrap();
    let second = common_serial(&proxies, &issuer, &first);
    assert_eq!((issued(&proxies), failed(&proxies), site.pebble.orders()), (2.0, 0.0, 2));
    assert!(!site.has_file("order.lease") && !site.has_file("challenge-"));
    // A file that another program has spoiled is replaced, and the certificate in use stays until then.
    let mut client = TlsClient::start();
    fs::write(site.storage.join("a.test.pem"), "-----BEGIN CERTIFICATE-----\nAAAA").unwrap();
    let mut seen = Vec::new();
    let is_replaced = within(EVENT_TIMEOUT, || {
        seen = proxies.iter().map(|proxy| serial(&mut client, proxy, &issuer, "a.test")).collect();
        assert!(seen.iter().all(|serial| !serial.is_null()), "{seen:?}");
        seen.iter().all(|serial| *serial != second && *serial == seen[0])
    });
    assert!(is_replaced, "{seen:?}: {}", proxies[0].stderr());
    assert_eq!(site.pebble.orders(), 3);
}

#[test]
fn any_replica_answers_a_challenge() {
    let _shared = shared_machine();
    for challenge in ["http-01", "tls-alpn-01"] {
        let Some(site) = Site::start() else { return };
        // This replica gets the validations, and has a certificate that is not due.
        site.pebble.authority.issue("own.test.pem", KeyType::Ecdsa, &["own.test"]);
        fs::copy(site.pebble.authority.path("own.test.pem"), site.storage.join("own.test.pem")).unwrap();
        let front = ProxyUnderTest::weir(&site.config("own.test", challenge, site.ports, FAST));
        let back = site.config("a.test", challenge, (free_port(), free_port()), FAST);
        let back = [ProxyUnderTest::weir(&back)];
        common_serial(&back, &site.pebble.issuing_authority(), &Value::Null);
        assert_eq!((issued(&back), orders(&front, "issued")), (1.0, 0.0));
    }
}

#[test]
fn a_replica_takes_over_from_one_that_was_killed() {
    let _shared = shared_machine();
    let Some(site) = Site::start() else { return };
    // The order waits for the poll interval before it is validated, and is killed meanwhile.
    let slow = "lease = \"6s\"\npoll-interval = \"20s\"";
    let killed = ProxyUnderTest::weir(&site.config("a.test", "http-01", (free_port(), free_port()), slow));
    assert!(within(EVENT_TIMEOUT, || site.has_file("challenge-")), "{}", killed.stderr());
    assert!(site.has_file("order.lease"));
    drop(killed);
    let fast = "lease = \"6s\"\npoll-interval = \"200ms\"";
    let successor = [ProxyUnderTest::weir(&site.config("a.test", "http-01", site.ports, fast))];
    common_serial(&successor, &site.pebble.issuing_authority(), &Value::Null);
    assert_eq!((issued(&successor), failed(&successor), site.pebble.orders()), (1.0, 0.0, 2));
}

fn set_age(path: &Path, age: Duration) {
    let modified = UNIX_EPOCH + Duration::from_nanos(rt::clock::unix_ns()) - age;
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn a_lock_that_others_have_spoiled_expires() {
    let _shared = shared_machine();
    let Some(site) = Site::start() else { return };
    let lease = site.storage.join("order.lease");
    fs::write(&lease, "not a lease").unwrap();
    set_age(&lease, Duration::from_secs(3_600));
    fs::write(site.storage.join("challenge-0.json"), "{").unwrap();
    fs::write(site.storage.join("account.json.new"), "{").unwrap();
    fs::write(site.storage.join("a.test.retry"), "{").unwrap();
    let times = "lease = \"2s\"\npoll-interval = \"200ms\"";
    let proxies = [ProxyUnderTest::weir(&site.config("a.test", "http-01", site.ports, times))];
    common_serial(&proxies, &site.pebble.issuing_authority(), &Value::Null);
    assert_eq!((issued(&proxies), failed(&proxies)), (1.0, 0.0));
}

#[test]
fn a_failure_is_that_of_all_replicas() {
    let _shared = shared_machine();
    let Some(mut site) = Site::start() else { return };
    // Nothing answers validations.
    site.ports = (free_port(), free_port());
    let start = || ProxyUnderTest::weir(&site.config("a.test", "http-01", (free_port(), free_port()), FAST));
    let first = start();
    assert!(within(EVENT_TIMEOUT, || first.stderr().contains("not issued: ")), "{}", first.stderr());
    let second = start();
    let state =
        |proxy: &ProxyUnderTest| proxy.metrics().sum("weir_acme_orders_total", &[("result", "failed")]);
    assert!(within(EVENT_TIMEOUT, || site.has_file("a.test.retry")));
    // The second one has seen the failure: it has a status, and made no order.
    let has_status =
        || second.metrics().sum_known("weir_acme_certificate_expiry_timestamp_seconds", &[]) == 0.0;
    assert!(within(EVENT_TIMEOUT, has_status), "{}", second.stderr());
    assert_eq!((state(&first), state(&second), site.pebble.orders()), (1.0, 0.0, 1));
}
