//! Numbers of connections and streams: limits of both ends, queues, idle connections, reloads.

use super::{H2Server, config, config_with_listener, start_proxy};
use crate::support::proxy_under_test::ProxyUnderTest;

const CONNECTIONS: &str = "weir_server_http2_connections_open";

/// Sends so many requests at a time; returns the connections that carried them.
fn connections_of(proxy: &ProxyUnderTest, target: &str, count: usize) -> Vec<String> {
    let mut clients: Vec<_> = (0..count).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    }
    let connection_of = |client: &mut crate::support::client::Client| {
        let response = client.read_response().unwrap();
        assert_eq!(response.status, 200, "{}", response.head);
        let line = response.head.lines().find(|line| line.starts_with("x-connection")).unwrap_or_default();
        line.to_owned()
    };
    let mut connections: Vec<_> = clients.iter_mut().map(connection_of).collect();
    connections.sort();
    connections.dedup();
    connections
}

#[test]
fn a_connection_carries_as_many_streams_as_both_ends_allow() {
    for (server_streams_max, pool, expected) in
        [("4", "", 5), ("100", "http2 = { concurrent-streams = 5 }", 4)]
    {
        let Some(mut server) = H2Server::start(&[&format!("streams={server_streams_max}")]) else { return };
        let proxy = start_proxy(&[&server.authority], pool);
        // The burst waits for the first connection, whose settings tell how many more are needed.
        let connections = connections_of(&proxy, "/delay", 20);
        assert_eq!(connections.len(), expected);
        assert_eq!(server.count("connections"), expected as u64);
        assert!(server.count("max_streams") <= 5);
        assert_eq!(connections_of(&proxy, "/delay", 20).len(), expected);
        assert_eq!(server.count("connections"), expected as u64);
        proxy.assert_all_returned();
    }
}

#[test]
fn requests_wait_for_a_stream_at_the_maximum_number_of_connections() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let pool = "http2 = { concurrent-streams = 2, connections-max = 1 }";
    let proxy = start_proxy(&[&server.authority], pool);
    assert_eq!(connections_of(&proxy, "/delay", 7), ["x-connection: 1"]);
    assert_eq!((server.count("connections"), server.count("max_streams")), (1, 2));
    proxy.assert_all_returned();
    // Requests and not connections count toward `maxconn`, and wait in the queue.
    let pool = "maxconn = 2\nqueue = { timeout = \"10s\" }";
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], pool);
    assert_eq!(connections_of(&proxy, "/delay", 6), ["x-connection: 1"]);
    assert_eq!(server.count("max_streams"), 2);
    proxy.assert_all_returned();
}

#[test]
fn a_server_may_reduce_its_streams() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    assert_eq!(connections_of(&proxy, "/delay", 5), ["x-connection: 1"]);
    assert_eq!(proxy.get("/shrink").status, 200);
    let connections = connections_of(&proxy, "/delay", 3);
    assert!(connections.len() >= 2 && connections[0] == "x-connection: 1", "{connections:?}");
    assert_eq!(server.count("reset_7"), 0);
    proxy.assert_all_returned();
}

#[test]
fn idle_connections_end_and_reloads_keep_those_in_use() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let Some(other) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "idle-timeout = \"500ms\"");
    assert_eq!(proxy.get("/ok").status, 200);
    server.wait_for_count("closed", 1);
    assert_eq!(server.count("goaways"), 1);
    proxy.metrics_until("no connection", |metrics| metrics.sum(CONNECTIONS, &[]) == 0.0);
    // A reload that keeps the server keeps its connection.
    proxy.reload(&config(&[&server.authority], "idle-timeout = \"60s\""));
    proxy.metrics_until("a reload", |metrics| metrics.sum("weir_reloads_total", &[]) == 1.0);
    assert!(proxy.get("/ok").head.contains("x-connection: 2\r\n"));
    proxy.reload(&config(
        &[&server.authority, &other.authority],
        "idle-timeout = \"60s\"\nbalance = \"first\"",
    ));
    proxy.metrics_until("a reload", |metrics| metrics.sum("weir_reloads_total", &[]) == 2.0);
    assert!(proxy.get("/ok").head.contains("x-connection: 2\r\n"));
    // One that removes the server ends it after the request in progress.
    let mut late = proxy.client();
    late.send(b"GET /late-head?1 HTTP/1.1\r\nHost: h\r\n\r\n");
    server.wait_for_count("requests", 4);
    proxy.reload(&config(&[&other.authority], "idle-timeout = \"60s\""));
    proxy.metrics_until("a reload", |metrics| metrics.sum("weir_reloads_total", &[]) == 3.0);
    assert!(proxy.get("/ok").head.contains("x-connection: 1\r\n"));
    assert_eq!(server.count("closed"), 1);
    assert_eq!(late.read_response().unwrap().status, 200);
    server.wait_for_count("closed", 2);
    proxy.assert_all_returned();
}

#[test]
fn a_proxy_header_needs_a_connection_for_each_client() {
    let Some(mut server) = H2Server::start(&["header=1"]) else { return };
    let proxy = ProxyUnderTest::weir(&config_with_listener(
        "",
        &[&server.authority],
        "http = \"2\"\nsend-proxy-protocol = \"v1\"",
    ));
    let mut first = proxy.client();
    for _ in 0..2 {
        let response = first.get("/ok");
        let port = first.stream.local_addr().unwrap().port();
        let header = format!("x-header: PROXY TCP4 127.0.0.1 127.0.0.1 {port} ");
        assert!(
            response.head.contains(&header) && response.head.contains("x-connection: 1\r\n"),
            "{}",
            response.head
        );
    }
    assert!(proxy.get("/ok").head.contains("x-connection: 2\r\n"));
    drop(first);
    // A connection ends with its client.
    server.wait_for_count("closed", 2);
    proxy.assert_all_returned();
}
