//! Servers that end connections before a request, and servers that do not say if they end them.

use super::{H2Server, ends_of, start_proxy};
use crate::support::proxy_under_test::ProxyUnderTest;

/// Sends so many requests at a time, and returns the statuses of their responses.
fn statuses(proxy: &ProxyUnderTest, target: &str, count: usize) -> Vec<u16> {
    let mut clients: Vec<_> = (0..count).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
    }
    clients.iter_mut().map(|client| client.read_response().unwrap().status).collect()
}

#[test]
fn a_connection_that_ends_before_a_request_is_a_failed_one() {
    let shapes: [&[&str]; 4] = [
        &["early=100000"],
        &["early=100000", "early-close=1"],
        &["early=100000", "streams=0", "early-after=0.2"],
        &["early=100000", "streams=0", "early-after=0.2", "early-close=1"],
    ];
    for shape in shapes {
        let Some(mut server) = H2Server::start(shape) else { return };
        let proxy = start_proxy(&[&server.authority], "");
        // The first one is replaced; then each attempt has one: the request and its retry.
        assert_eq!((proxy.get("/first").status, server.count("connections")), (502, 3), "{shape:?}");
        assert_eq!((proxy.get("/second").status, server.count("connections")), (502, 5), "{shape:?}");
        assert_eq!(ends_of(&proxy, &["/first", "/second"]), ["server_closed", "server_closed"]);
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum_known("weir_server_http2_goaways_total", &[]), 5.0);
        assert_eq!(metrics.sum_known("weir_retries_total", &[]), 2.0);
        proxy.assert_all_returned();
    }
}

#[test]
fn a_server_that_accepts_no_stream_is_not_connected() {
    let Some(mut server) = H2Server::start(&["streams=0"]) else { return };
    let proxy = start_proxy(&[&server.authority], "retries = 0\ntimeouts = { connect = \"1s\" }");
    assert_eq!(proxy.get("/none").status, 503);
    assert_eq!(ends_of(&proxy, &["/none"]), ["connect_timeout"]);
    server.wait_for_count("closed", 1);
    proxy.assert_all_returned();
}

#[test]
fn one_connection_that_ends_early_costs_no_request() {
    for pool in ["retries = 0", "retries = 0\nhttp2 = { concurrent-streams = 4 }"] {
        let Some(mut server) = H2Server::start(&["early=1"]) else { return };
        let proxy = start_proxy(&[&server.authority], pool);
        assert_eq!(statuses(&proxy, "/delay", 30), [200; 30], "{pool}");
        assert!(server.count("connections") <= 9, "{}", server.stats());
        proxy.assert_all_returned();
    }
    // A connection of its own has a retry of its own.
    let Some(mut server) = H2Server::start(&["early=1"]) else { return };
    let proxy = start_proxy(&[&server.authority], "reuse = \"never\"");
    assert_eq!((proxy.get("/ok").status, server.count("connections")), (200, 2));
    proxy.assert_all_returned();
}

#[test]
fn requests_of_a_server_that_ends_connections_go_to_the_others() {
    let Some(mut ending) = H2Server::start(&["early=100000"]) else { return };
    let Some(second) = H2Server::start(&[]) else { return };
    let Some(third) = H2Server::start(&[]) else { return };
    let servers = [&*ending.authority, &second.authority, &third.authority];
    let proxy = start_proxy(&servers, "retry-budget = { ratio = 1 }");
    for _ in 0..20 {
        assert_eq!(proxy.get("/ok").status, 200);
    }
    assert_eq!(statuses(&proxy, "/delay", 30), [200; 30]);
    // As many attempts as requests at most, and the one that was replaced.
    let connections = ending.count("connections");
    assert!((2..=51).contains(&connections), "{connections}");
    proxy.assert_all_returned();
}

#[test]
fn a_limit_that_the_server_does_not_confirm_ends_while_requests_wait() {
    // Requests wait for `timeouts.connect`, and for the answer at most half as long.
    let ping_timeout_pool = "http2 = { connections-max = 2, ping-timeout = \"1s\" }";
    let connect_timeout_pool = "http2 = { connections-max = 2 }\ntimeouts = { connect = \"4s\" }";
    for (answers, pool) in
        [("mute=1", ping_timeout_pool), ("mute=1", connect_timeout_pool), ("mute=", ping_timeout_pool)]
    {
        let Some(mut server) = H2Server::start(&[answers]) else { return };
        let proxy = start_proxy(&[&server.authority], &format!("retries = 0\n{pool}"));
        assert_eq!(proxy.get("/ok").status, 200);
        // GOAWAY behind the first request teaches a limit of 1.
        assert_eq!(proxy.get("/goaway-unprocessed").status, 200);
        let mut clients: Vec<_> = (0..9).map(|_| proxy.client()).collect();
        for client in &mut clients {
            client.send(b"GET /hang HTTP/1.1\r\nHost: h\r\n\r\n");
        }
        server.wait_for_count("requests", 3 + 9);
        // Nothing was closed, and further requests wait for nothing.
        assert_eq!(proxy.get("/ok").status, 200);
        assert_eq!(server.count("connections"), 3, "{answers} {pool}");
        drop(clients);
        proxy.assert_all_returned();
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum("weir_requests_total", &[("end", "connect_timeout")]), 0.0);
        assert_eq!(metrics.sum_known("weir_server_http2_pings_lost_total", &[]), 0.0);
    }
}
