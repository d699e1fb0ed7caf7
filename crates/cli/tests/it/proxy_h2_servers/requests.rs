//! Requests and responses: heads, bodies in both directions, trailers, interim responses, gRPC.

use super::{H2Server, ends_of, start_proxy};
use crate::support::client::Client;

/// Reads until `end` was received.
fn read_until(client: &mut Client, end: &str) -> String {
    use std::io::Read as _;
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&received).contains(end) {
        let length = client.stream.read(&mut bytes).unwrap();
        assert!(length > 0, "the end before {end:?}: {}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&bytes[..length]);
    }
    String::from_utf8(received).unwrap()
}

#[test]
fn requests_share_a_connection_and_keep_their_fields() {
    let Some(mut server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    for _ in 0..10 {
        let response =
            proxy.client().get_with_fields("/ok?a=b", "Host: h:1\r\nX-Test: One, Two\r\nTE: trailers\r\n");
        assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]), "{}", response.head);
        for field in
            ["x-method: GET", "x-scheme: http", "x-authority: h:1", "x-path: /ok?a=b", "x-te: trailers"]
        {
            assert!(response.head.contains(field), "{field}: {}", response.head);
        }
        assert!(response.head.contains("x-x-test: One, Two"), "{}", response.head);
        assert!(!response.head.contains("x-connection: 2"), "{}", response.head);
    }
    let mut client = proxy.client();
    client.send(b"HEAD /ok HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(read_until(&mut client, "\r\n\r\n").contains("content-length: 5\r\n"));
    for (target, status) in [("/no-content", 204), ("/not-modified", 304), ("/ok", 200)] {
        assert_eq!(client.get(target).status, status, "{target}");
    }
    client.send(b"GET /early HTTP/1.1\r\nHost: h\r\n\r\n");
    let early = read_until(&mut client, "content-length: 0\r\n\r\n");
    assert!(
        early.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </style>; rel=preload\r\n\r\nHTTP/1.1 200"),
        "{early}"
    );
    assert_eq!(server.count("connections"), 1);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known("weir_server_http2_connections_total", &[]), 1.0);
    assert_eq!(metrics.sum_known("weir_server_http2_connections_open", &[]), 1.0);
    assert_eq!(metrics.sum_known("weir_server_http2_streams_open", &[]), 0.0);
    assert_eq!(metrics.sum_known("weir_pool_idle_connections", &[]), 1.0);
    assert_eq!(metrics.sum_known("weir_server_http2_resets_total", &[]), 0.0);
    proxy.assert_all_returned();
}

#[test]
fn bodies_and_trailers_pass_in_both_directions() {
    let Some(server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    let body = vec![b'u'; 300_000];
    client.send(format!("POST /ok HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
    client.send(&body);
    let response = client.read_response().unwrap();
    assert_eq!((response.status, response.body.len()), (200, body.len()));
    client.send(
        b"POST /ok HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: x-digest\r\n\r\n\
          3\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Digest: 77\r\n\r\n",
    );
    let response = client.read_response().unwrap();
    assert!(response.head.contains("x-digest: 77\r\n") && response.body == b"abcdefg", "{}", response.head);
    client.send(b"GET /big?1000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    let received = read_until(&mut client, "\r\n0\r\n\r\n");
    let (_, chunks) = received.split_once("\r\n\r\n").unwrap();
    let body = decode_chunks(chunks);
    assert!(body.len() == 1_000_000 && body.bytes().all(|byte| byte == b'b'), "{} bytes", body.len());
    client.send(b"GET /big-length?1000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.read_response().unwrap().body.len(), 1_000_000);
    assert_eq!(client.get("/ok").status, 200);
    proxy.assert_all_returned();
}

/// Returns the content of chunks without extensions and trailers (RFC 9112 §7.1).
fn decode_chunks(mut chunks: &str) -> String {
    let mut content = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.push_str(&rest[..size]);
        chunks = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

#[test]
fn messages_of_a_stream_pass_one_by_one() {
    let Some(server) = H2Server::start(&[]) else { return };
    // The pool has a limit, so that other bodies would be buffered first.
    let proxy = start_proxy(&[&server.authority], "maxconn = 10");
    for content_type in ["application/grpc+proto", "application/octet-stream"] {
        let mut client = proxy.client();
        let head = format!(
            "POST /stream HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nContent-Type: {content_type}\r\n\
             Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
        );
        client.send(head.as_bytes());
        let first = read_until(&mut client, "one\r\n");
        assert!(first.contains(&format!("content-type: {content_type}\r\n")), "{first}");
        client.send(b"3\r\ntwo\r\n");
        read_until(&mut client, "two\r\n");
        client.send(b"0\r\nx-digest: 5\r\n\r\n");
        let end = read_until(&mut client, "\r\n\r\n");
        assert_eq!(end, "0\r\ngrpc-status: 0\r\nx-sum: 6 5\r\n\r\n");
    }
    proxy.assert_all_returned();
}

#[test]
fn a_length_in_the_trailers_of_a_response_is_dropped() {
    let Some(server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    let head =
        "POST /stream-length HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}3\r\none\r\n0\r\nx-digest: 5\r\nContent-Length: 3\r\n\r\n").as_bytes());
    let response = read_until(&mut client, "0\r\ngrpc-status: 0\r\nx-sum: 3 5\r\n\r\n");
    assert!(response.contains("\r\n3\r\none\r\n"), "{response}");
    assert_eq!(ends_of(&proxy, &["/stream-length"]), ["done"]);
    proxy.assert_all_returned();
}

#[test]
fn a_client_waits_for_100_continue_and_a_server_may_need_no_body() {
    let Some(server) = H2Server::start(&[]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    client.send(b"POST /continue HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(read_until(&mut client, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"abc");
    let response = client.read_response().unwrap();
    assert!(response.head.contains("x-expect: 100-continue") && response.body == b"abc", "{}", response.head);
    // The rest of the body is discarded, and the connection goes on.
    client.send(b"POST /early-response HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n");
    client.send(&[b'y'; 1_000]);
    assert_eq!(client.read_response().unwrap().status, 413);
    client.send(&vec![b'y'; 299_000]);
    assert_eq!(client.get("/ok").status, 200);
    assert_eq!(ends_of(&proxy, &["/continue", "/early-response", "/ok"]), ["done"; 3]);
    proxy.assert_all_returned();
}

#[test]
fn windows_of_both_ends_limit_the_sender() {
    let Some(mut server) = H2Server::start(&["window=0"]) else { return };
    let proxy = start_proxy(&[&server.authority], "");
    let mut client = proxy.client();
    client.send(b"POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    server.wait_for_count("requests", 1);
    // Without a window nothing of the body is sent.
    assert_eq!(server.count("data"), 0);
    drop(client);
    server.wait_for_count("reset_8", 1);
    // A client that reads nothing holds at most the windows, and some buffers of sockets.
    let mut client = proxy.client();
    client.send(b"GET /big?200000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    server.wait_for_count("requests", 2);
    // Meanwhile others get much more on the same connection.
    let mut other = proxy.client();
    for _ in 0..10 {
        assert_eq!(other.get("/big-length?3000000").body.len(), 3_000_000);
    }
    let sent = server.count("sent") - 30_000_000;
    assert!(sent < 15_000_000, "{sent}");
    assert_eq!(server.count("connections"), 1);
    drop(client);
    server.wait_for_count("reset_8", 2);
    proxy.assert_all_returned();
}
