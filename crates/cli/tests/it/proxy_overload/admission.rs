//! Admission at a listener: rates, the limit per network, and the rejection; and a route that drops
//! silently.

use std::io::{Read, Write};

use super::{CONFIG_HEAD, ask_once, client_from, end_of, open_connection, retry_after};
use crate::support::hostile_client::exchange_raw;
use crate::support::metrics::REFUSED;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

/// Starts a proxy that responds itself.
fn start_proxy(listener: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 2\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\npath = \"/dropped\"\nsilent-drop = true\n\
         [[route]]\nreturn = {{ status = 200, body = \"here\" }}\n"
    ))
}

fn rejected_count(proxy: &ProxyUnderTest, reason: &str) -> f64 {
    proxy.metrics().sum_known(REFUSED, &[("reason", reason)])
}

/// Returns whether the client got nothing but the end of the connection.
fn is_reset(proxy: &ProxyUnderTest) -> bool {
    let mut stream = client_from(1, proxy.authority());
    let mut bytes = Vec::new();
    // Either the write or the read fails.
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let read = stream.read_to_end(&mut bytes);
    bytes.is_empty() && (sent.is_err() || read.is_err())
}

#[test]
fn over_the_rate_a_connection_gets_a_response() {
    let _shared = shared_machine();
    let proxy = start_proxy("connections-rate = 0.001\nconnections-burst = 2");
    let mut clients = [open_connection(&proxy), open_connection(&proxy)];
    let response = ask_once(client_from(1, proxy.authority()), "/over");
    assert_eq!(response.status, Some(503), "{}", response.head);
    assert_eq!(retry_after(&response), 30);
    assert_eq!(response.field("connection").as_deref(), Some("close"));
    assert_eq!(end_of(&proxy, "/over"), "connection_limited");
    assert_eq!(rejected_count(&proxy, "connection_rate"), 1.0);
    // Accepted connections continue.
    assert!(clients.iter_mut().all(|client| client.get("/").status == 200));
}

#[test]
fn over_the_rate_a_connection_is_reset_where_that_is_asked_for() {
    let _shared = shared_machine();
    let proxy = start_proxy("connections-rate = 0.001\nconnections-burst = 1\non-limit = \"reset\"");
    let _client = open_connection(&proxy);
    assert!(is_reset(&proxy));
    assert_eq!(rejected_count(&proxy, "connection_rate"), 1.0);
}

#[test]
fn over_the_rate_a_connection_waits_where_that_is_asked_for() {
    let _shared = shared_machine();
    let proxy = start_proxy("connections-rate = 2\nconnections-burst = 1\non-limit = \"wait\"");
    let clients: Vec<_> = (0..6).map(|_| client_from(1, proxy.authority())).collect();
    for client in clients {
        assert_eq!(ask_once(client, "/").status, Some(200));
    }
    assert!(rejected_count(&proxy, "connection_rate") >= 1.0);
}

#[test]
fn over_the_connection_limit_a_client_gets_a_response_if_configured() {
    let _shared = shared_machine();
    let proxy = start_proxy("connections-max = 2\non-limit = \"reject\"");
    // One for each thread, whichever thread accepts them.
    let mut clients = vec![open_connection(&proxy), open_connection(&proxy)];
    let response = ask_once(client_from(1, proxy.authority()), "/over");
    assert_eq!(response.status, Some(503), "{}", response.head);
    retry_after(&response);
    assert_eq!(end_of(&proxy, "/over"), "connection_limited");
    clients.clear();
    proxy.metrics_until("they are gone", |metrics| {
        metrics.sum_known(crate::support::metrics::CONNECTIONS_OPEN, &[]) == 0.0
    });
    assert_eq!(ask_once(client_from(1, proxy.authority()), "/").status, Some(200));
}

#[test]
fn a_source_has_so_many_connections() {
    let _shared = shared_machine();
    let proxy = start_proxy("per-source = { connections = 2 }");
    let mut clients = vec![open_connection(&proxy), open_connection(&proxy)];
    let response = ask_once(client_from(1, proxy.authority()), "/over");
    assert_eq!(response.status, Some(429), "{}", response.head);
    retry_after(&response);
    assert_eq!(end_of(&proxy, "/over"), "source_limited");
    assert_eq!(rejected_count(&proxy, "source_connections"), 1.0);
    // It does not delay other sources.
    assert_eq!(ask_once(client_from(2, proxy.authority()), "/").status, Some(200));
    clients.pop();
    proxy.metrics_until("it is gone", |metrics| {
        metrics.sum_known(crate::support::metrics::CONNECTIONS_OPEN, &[]) == 1.0
    });
    assert_eq!(ask_once(client_from(1, proxy.authority()), "/").status, Some(200));
}

#[test]
fn a_network_is_one_source_where_that_is_asked_for() {
    let _shared = shared_machine();
    let proxy = start_proxy("per-source = { connections = 1, prefix4 = 24 }");
    let _client = open_connection(&proxy);
    assert_eq!(ask_once(client_from(2, proxy.authority()), "/").status, Some(429));
}

#[test]
fn a_source_has_rates_of_its_own() {
    let _shared = shared_machine();
    let connections = start_proxy("per-source = { connections-rate = 0.001, connections-burst = 2 }");
    let ask = |last: u8| ask_once(client_from(last, connections.authority()), "/").status;
    assert_eq!([ask(1), ask(1), ask(1), ask(2)], [Some(200), Some(200), Some(429), Some(200)]);
    assert_eq!(rejected_count(&connections, "source_rate"), 1.0);
    let requests = start_proxy("per-source = { requests-rate = 0.001, requests-burst = 3 }");
    let mut client = requests.client();
    let statuses: Vec<u16> = (0..4).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // Only the request is rejected; the connection stays.
    let response = client.get("/again");
    assert_eq!(response.status, 429);
    assert!(response.head.to_ascii_lowercase().contains("\r\nretry-after: 30\r\n"), "{}", response.head);
    assert_eq!(end_of(&requests, "/again"), "source_limited");
    assert_eq!(ask_once(client_from(2, requests.authority()), "/").status, Some(200));
}

#[test]
fn a_source_is_who_the_proxy_header_says() {
    let _shared = shared_machine();
    let proxy = start_proxy(
        "proxy-protocol = true\ntrusted = [\"127.0.0.0/8\"]\nper-source = { connections = 1 }\n\
         connections-rate = 0.001\nconnections-burst = 4",
    );
    let from = |last: u8| {
        let mut stream = client_from(1, proxy.authority());
        let head = format!("PROXY TCP4 10.0.0.{last} 10.0.0.9 1000 80\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let mut first = from(1);
    first.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    assert!(first.read(&mut [0; 1]).unwrap() > 0);
    let statuses = [1, 2, 3].map(|last| ask_once(from(last), "/").status);
    assert_eq!(statuses, [Some(429), Some(200), Some(200)]);
    // A connection over the rate also identifies its source before it is rejected.
    assert_eq!(ask_once(from(4), "/").status, Some(503));
}

#[test]
fn a_source_that_is_over_is_reset_in_mode_tcp() {
    let _shared = shared_machine();
    let origin = crate::support::faulty_origins::respond_to_each(|_, _| {
        Some(crate::support::faulty_origins::ok_response(b"through"))
    });
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\n{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         per-source = {{ connections = 1 }}\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let _client = open_connection(&proxy);
    assert!(is_reset(&proxy));
}

#[test]
fn a_silent_drop_says_nothing() {
    let _shared = shared_machine();
    let proxy = start_proxy("");
    let response = exchange_raw(proxy.authority(), b"GET /dropped HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!((response.status, response.body.len()), (None, 0));
    assert_eq!(end_of(&proxy, "/dropped"), "silently_dropped");
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn a_check_warns_about_missing_overload_recovery() {
    let _shared = shared_machine();
    let directory = crate::support::temp_dir();
    let path = directory.path().join("weir.toml");
    let config = "[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
                  [pool.app]\nservers = [\"127.0.0.1:9\"]\nqueue = { timeout = \"5s\" }\n";
    std::fs::write(&path, config).unwrap();
    let flags = ["proxy", "--check", "--config", path.to_str().unwrap()];
    let output = crate::support::start(crate::support::WEIR, &flags).finish();
    assert_eq!(output.code, 0, "{output:?}");
    let config_path = path.display();
    for expected in [
        format!("warning: {config_path}:5:11: pool 'app': "),
        format!("warning: {config_path}:6:21: pool 'app': "),
    ] {
        assert!(output.stderr.contains(&expected), "{expected}: {}", output.stderr);
    }
}
