//! Servers and clients that give up: resets, GOAWAY, ends of connections, timeouts.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use super::{H2Server, config, ends_of, start_proxy};
use crate::support::client::Client;
use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;

const RESETS: &str = "weir_server_http2_resets_total";

fn post(client: &mut Client, target: &str) -> u16 {
    client.send(format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi").as_bytes());
    client.read_response().unwrap().status
}

#[test]
fn requests_that_were_not_processed_are_sent_again() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    assert_eq!(client.get("/ok").status, 200);
    // Also those that are not idempotent.
    assert_eq!(post(&mut client, "/refused-once"), 200);
    assert_eq!(post(&mut client, "/goaway-unprocessed"), 200);
    // Each attempt is refused; the connection goes on.
    assert_eq!(post(&mut client, "/refused"), 502);
    assert_eq!(client.get("/ok").status, 200);
    // The server ended a connection after three requests: at that number of requests, the next one may open another.
    let connections = server.count("connections");
    assert!((2..=5).contains(&connections), "{connections}");
    assert_eq!(
        ends_of(&proxy, &["/refused-once", "/goaway-unprocessed", "/refused"]),
        ["done", "done", "server_closed"]
    );
    let metrics = proxy.metrics();
    // 1 of each of the first two, and 17 of the last: 16 are sent again.
    assert_eq!(metrics.sum_known("weir_server_http2_unprocessed_total", &[]), 19.0);
    assert_eq!(metrics.sum_known("weir_server_http2_goaways_total", &[]), 1.0);
    assert_eq!(metrics.sum_known(RESETS, &[("from", "server"), ("code", "refused_stream")]), 19.0);
    proxy.assert_all_returned();
}

#[test]
fn servers_that_end_connections_after_some_requests_lose_none() {
    // More requests in progress than nginx takes on a connection; `retries` does not count these.
    for (requests, clients, count) in [(10, 20, 40), (3, 12, 40), (100, 20, 40), (1, 80, 5), (10, 200, 5)] {
        let directives =
            format!("location = /counted {{ keepalive_requests {requests}; return 200 \"ok\"; }}");
        let nginx = Nginx::start_with("http2", &directives);
        let proxy = start_proxy(&[&nginx.authority], "retries = 0\nretry-budget = { ratio = 0, min = 0 }");
        std::thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| {
                    let mut client = proxy.client();
                    for number in 0..count {
                        assert_eq!(client.get("/counted").status, 200, "{requests}: {number}");
                    }
                });
            }
        });
        assert_eq!(nginx.wait_for_log_lines(clients * count), clients * count);
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum("weir_requests_total", &[("end", "done")]), (clients * count) as f64);
        proxy.assert_all_returned();
    }
}

/// Requests that are too long to be sent again get no place on a connection beyond its limit.
#[test]
fn long_requests_are_not_sent_beyond_the_limit_of_a_connection() {
    let directives = "keepalive_requests 10; location = /counted { return 200 \"ok\"; }";
    let nginx = Nginx::start_with("http2", directives);
    let proxy = start_proxy(&[&nginx.authority], "retries = 0\nretry-budget = { ratio = 0, min = 0 }");
    let run = |request: &[u8]| {
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let mut client = proxy.client();
                    for number in 0..10 {
                        client.send(request);
                        assert_eq!(client.read_response().unwrap().status, 200, "{number}");
                    }
                });
            }
        });
    };
    // Short ones teach the limit.
    run(b"GET /counted HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = "POST /counted HTTP/1.1\r\nHost: h\r\nContent-Length: 35000\r\n\r\n";
    run(&[head.as_bytes(), &[b'x'; 35_000]].concat());
    assert_eq!(nginx.wait_for_log_lines(800), 800);
    proxy.assert_all_returned();
}

/// A reset destroys what the proxy sends, but not what it has received.
#[test]
fn a_response_in_front_of_a_reset_is_passed_on() {
    const SETTINGS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff";
    const WINDOW_UPDATE: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\x7f\0\0\0";
    const RESPONSE: &[u8] = b"\0\0\x05\x01\x05\0\0\0\x01\x08\x03413";
    let server = ScriptedServer::start(|peer| {
        peer.send(&[SETTINGS, WINDOW_UPDATE].concat())?;
        // The proxy sends until neither socket accepts more.
        let mut unread = 0;
        while unread == 0 || unread != rustix::io::ioctl_fionread(&peer.stream)? {
            unread = rustix::io::ioctl_fionread(&peer.stream)?;
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        peer.send(RESPONSE)
    });
    let proxy = start_proxy(&[&server.authority], "retries = 0");
    let mut client = TcpStream::connect(proxy.authority()).unwrap();
    let mut sender = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let head = b"POST /reset HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n";
        sender.write_all(head).unwrap();
        let part = vec![b'x'; 100_000];
        while sender.write_all(&part).is_ok() {}
    });
    let mut head = [0; 12];
    client.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    drop(client);
    proxy.assert_all_returned();
    sending.join().unwrap();
}

#[test]
fn streams_in_progress_outlast_the_announced_end_of_their_connection() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut late = proxy.client();
    late.send(b"GET /goaway-late HTTP/1.1\r\nHost: h\r\n\r\n");
    proxy.metrics_until("a GOAWAY", |metrics| metrics.sum("weir_server_http2_goaways_total", &[]) == 1.0);
    let other = proxy.get("/ok");
    assert!(other.head.contains("x-connection: 2\r\n"), "{}", other.head);
    let response = late.read_response().unwrap();
    assert!(response.body == b"late" && response.head.contains("x-connection: 1\r\n"), "{}", response.head);
    // The proxy closes the old connection, and announces that.
    server.wait_for_count("closed", 1);
    assert_eq!(server.count("goaways"), 1);
    proxy.assert_all_returned();
}

#[test]
fn a_reset_ends_one_request_and_no_other() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut waiting = proxy.client();
    waiting.send(b"GET /late-head?1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let response = proxy.get("/reset");
    assert_eq!(response.status, 502);
    for target in ["/reset-body", "/reset-chunked"] {
        let mut client = proxy.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let received = String::from_utf8(client.read_to_end()).unwrap();
        let is_truncated = !received.ends_with("0\r\n\r\n") && received.len() < 2_000;
        assert!(received.starts_with("HTTP/1.1 200 OK\r\n") && is_truncated, "{received}");
    }
    assert_eq!(proxy.get("/bad-field").status, 502);
    assert_eq!(waiting.read_response().unwrap().status, 200);
    let ends = ends_of(&proxy, &["/reset", "/reset-body", "/reset-chunked", "/bad-field", "/late-head?1"]);
    assert_eq!(ends, ["server_closed", "server_closed", "server_closed", "bad_response", "done"]);
    // A server that resets a stream has processed it, so nothing was sent again.
    assert_eq!((server.count("connections"), server.count("requests")), (1, 5));
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(RESETS, &[("from", "server"), ("code", "internal_error")]), 3.0);
    assert_eq!(metrics.sum_known(RESETS, &[("from", "proxy"), ("code", "protocol_error")]), 1.0);
    proxy.assert_all_returned();
}

#[test]
fn timeouts_and_clients_that_leave_cancel_only_their_stream() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "maxconn = 5\ntimeouts = { first-byte = \"1s\" }");
    assert_eq!(proxy.get("/hang").status, 504);
    server.wait_for_count("reset_8", 1);
    let mut client = proxy.client();
    client.send(b"GET /hang HTTP/1.1\r\nHost: h\r\n\r\n");
    server.wait_for_count("requests", 2);
    drop(client);
    server.wait_for_count("reset_8", 2);
    // The slots are free at once, although the server has a limit.
    proxy.assert_all_returned();
    assert_eq!(proxy.get("/ok").status, 200);
    assert_eq!(server.count("connections"), 1);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(RESETS, &[("from", "proxy"), ("code", "cancel")]), 2.0);
    assert_eq!(metrics.sum_known("weir_abandoned_requests_total", &[]), 0.0);
}

#[test]
fn the_end_of_a_connection_ends_all_its_streams() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "retries = 0");
    let mut clients: Vec<_> = (0..5).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send(b"GET /hang HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    server.wait_for_count("requests", 5);
    assert_eq!(proxy.get("/close").status, 502);
    for client in &mut clients {
        assert_eq!(client.read_response().unwrap().status, 502);
    }
    assert_eq!(server.count("connections"), 1);
    assert!(proxy.get("/ok").head.contains("x-connection: 2\r\n"));
    // The server is gone, and comes back.
    let port = server.authority.rsplit(':').next().unwrap().to_owned();
    drop(server);
    proxy.metrics_until("no connection", |metrics| {
        metrics.sum("weir_server_http2_connections_open", &[]) == 0.0
    });
    assert_eq!(proxy.get("/ok").status, 503);
    let Some(_server) = H2Server::start(&[&format!("port={port}")]) else { return };
    assert_eq!(proxy.get("/ok").status, 200);
    proxy.assert_all_returned();
}

#[test]
fn a_dead_connection_is_found_by_pings() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let pool =
        "timeouts = { connect = \"1s\" }\nhttp2 = { ping-interval = \"500ms\", ping-timeout = \"500ms\" }";
    let proxy = ProxyUnderTest::weir(&config(&[&server.authority], pool));
    assert_eq!(proxy.get("/ok").status, 200);
    assert!(crate::support::within(crate::support::EVENT_TIMEOUT, || server.count("pings") >= 2));
    // A stopped process acknowledges no PING, but its kernel every byte.
    server.process.signal(Signal::STOP);
    let lost = "weir_server_http2_pings_lost_total";
    proxy.metrics_until("a lost PING", |metrics| metrics.sum(lost, &[]) == 1.0);
    assert_eq!(proxy.get("/stopped").status, 503);
    server.process.signal(Signal::CONT);
    assert_eq!(proxy.get("/ok").status, 200);
    assert_eq!(ends_of(&proxy, &["/stopped"]), ["connect_timeout"]);
    proxy.assert_all_returned();
}
