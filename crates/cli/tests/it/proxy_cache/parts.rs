//! Parts of responses (`Range`): the whole is fetched once, and parts are answered from it.

use super::{RecordingServer, cache_status, config, get, response};
use crate::support::faulty_origins::{LaxMessage, field};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

const CONTENT_BYTES: usize = 3 << 20;
const RESPONSES: &str = super::RESPONSES;
const REFRESHES: &str = "weir_cache_refreshes_total";

fn start(server: &RecordingServer, route: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(&server.server.authority, "object-max = \"8m\"", "", route))
}

fn content() -> Vec<u8> {
    (0..CONTENT_BYTES as u32).map(|at| (at % 251) as u8).collect()
}

/// Responds with the whole, or with the ten bytes of a range.
fn respond(request: &LaxMessage, fields: &str) -> Vec<u8> {
    let content = content();
    let Some(range) = field(&request.head, "range") else {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {CONTENT_BYTES}\r\n\r\n");
        return [head.as_bytes(), &content].concat();
    };
    let start: usize = range.trim_start_matches("bytes=").split('-').next().unwrap().parse().unwrap();
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\n{fields}Content-Range: bytes {start}-{}/{CONTENT_BYTES}\r\n\
         Content-Length: 10\r\n\r\n",
        start + 9
    );
    [head.as_bytes(), &content[start..start + 10]].concat()
}

fn get_part(proxy: &ProxyUnderTest, start: usize) -> String {
    let response = get(proxy, "/part", &format!("Range: bytes={start}-{}\r\n", start + 9));
    assert_eq!(response.status, 206, "{}", response.head);
    assert_eq!(response.body, content()[start..start + 10]);
    cache_status(&response)
}

fn wait_for_stored(proxy: &ProxyUnderTest) {
    proxy.metrics_until("the whole is stored", |metrics| metrics.sum(RESPONSES, &[]) == 1.0);
}

#[test]
fn a_part_near_the_start_waits_for_the_whole() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|request, _| respond(request, "Cache-Control: max-age=600\r\n"));
    let proxy = start(&server, "set-request-header = { X-Trace = \"{request-id}\" }");
    for (number, start) in [1_000, 0, 1 << 20, 2 << 20].into_iter().enumerate() {
        let status = get_part(&proxy, start);
        let expected = if number == 0 { "weir; fwd=uri-miss; stored; ttl=600" } else { "weir; hit; ttl=" };
        assert!(status.starts_with(expected), "{status}");
        wait_for_stored(&proxy);
    }
    assert_eq!(server.requests(), 1);
    assert!(field(&server.head(0), "range").is_none(), "{}", server.head(0));
    assert_eq!(get(&proxy, "/part", "").body, content());
    assert_eq!(server.requests(), 1);
    proxy.assert_all_returned();
}

#[test]
fn a_part_of_another_unit_is_only_forwarded() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|_, _| {
        b"HTTP/1.1 206 Partial Content\r\nCache-Control: max-age=600\r\nContent-Range: pages 1-2/9\r\n\
          Content-Length: 3\r\n\r\ntwo"
            .to_vec()
    });
    let proxy = start(&server, "");
    for unit in ["pages", "bytesize", "byte"] {
        let response = get(&proxy, "/part", &format!("Range: {unit}=1-2\r\n"));
        assert_eq!((response.status, response.body.as_slice()), (206, &b"two"[..]), "{}", response.head);
    }
    proxy.metrics_until("no fetch beside", |metrics| metrics.sum(REFRESHES, &[]) == 0.0);
    assert_eq!(server.requests(), 3);
    proxy.assert_all_returned();
}

#[test]
fn a_part_far_from_the_start_is_forwarded_and_the_whole_is_fetched_beside_it() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|request, _| respond(request, "Cache-Control: max-age=600\r\n"));
    let proxy = start(&server, "set-request-header = { X-Trace = \"{request-id}\" }");
    let status = get_part(&proxy, 2 << 20);
    assert!(status.contains("fwd=uri-miss"), "{status}");
    wait_for_stored(&proxy);
    assert!(get_part(&proxy, 2 << 20).contains("hit"));
    assert_eq!(server.requests(), 2);
    let heads = [server.head(0), server.head(1)];
    assert_eq!(heads.iter().filter(|head| field(head, "range").is_some()).count(), 1, "{heads:?}");
    // Both have the values of the route's texts.
    assert!(heads.iter().all(|head| field(head, "x-trace").is_some_and(|id| !id.is_empty())), "{heads:?}");
    proxy.assert_all_returned();
}

#[test]
fn the_whole_of_what_is_not_stored_is_asked_for_once() {
    let _shared = shared_machine();
    for (fields, in_use) in [
        ("Cache-Control: private\r\n", ""),
        ("", ""),
        ("Cache-Control: max-age=600\r\n", "object-max = \"1m\""),
    ] {
        let server = RecordingServer::start(move |request, _| respond(request, fields));
        let proxy = ProxyUnderTest::weir(&config(&server.server.authority, in_use, "", ""));
        for start in [5, 2 << 20, 0] {
            get_part(&proxy, start);
        }
        assert_eq!(server.requests(), 4, "{fields}{in_use}");
        let metrics = proxy.metrics();
        assert_eq!(metrics.sum_known(REFRESHES, &[("result", "started")]), 1.0, "{fields}{in_use}");
        assert_eq!(metrics.sum(RESPONSES, &[]), 0.0);
        proxy.assert_all_returned();
    }
}

#[test]
fn a_part_does_not_wait_for_a_whole_that_fails_or_has_no_length() {
    let _shared = shared_machine();
    let chunked =
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n300000\r\n";
    for whole in ["HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "", chunked] {
        let server = RecordingServer::start(move |request, _| match field(&request.head, "range") {
            Some(_) => respond(request, ""),
            // The length is known only once all of it is there.
            None if whole == chunked => [whole.as_bytes(), &content(), b"\r\n0\r\n\r\n"].concat(),
            None => whole.as_bytes().to_vec(),
        });
        let proxy = start(&server, "");
        get_part(&proxy, 7);
        assert!(server.requests() == 2 || whole == chunked && server.requests() == 1, "{whole}");
        proxy.assert_all_returned();
    }
}

#[test]
fn a_request_for_parts_that_only_a_stored_response_may_answer_goes_to_no_server() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|_, _| response("Cache-Control: max-age=600\r\n", "whole"));
    let proxy = start(&server, "");
    let answer = get(&proxy, "/part", "Range: bytes=0-1\r\nCache-Control: only-if-cached\r\n");
    assert_eq!((answer.status, server.requests()), (504, 0));
    // With no-store, nothing is fetched for the cache.
    let answer = get(&proxy, "/part", "Range: bytes=0-1\r\nCache-Control: no-store\r\n");
    assert_eq!((answer.status, server.requests()), (200, 1));
    proxy.assert_all_returned();
}
