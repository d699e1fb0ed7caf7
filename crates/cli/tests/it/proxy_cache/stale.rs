//! Validation of stale responses, and their use while it happens or fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{RESULTS, RecordingServer, cache_status, config, get, response, start, text};
use crate::support::faulty_origins::{RefusingPort, field};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

/// Fields of a response that was stale when it was sent.
const STALE: &str = "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"v\"\r\n";

/// Starts a server whose first response has these fields, and which validates it with the others.
fn validating_server(first: &'static str, validated: &'static str) -> RecordingServer {
    RecordingServer::start(move |request, number| match request.field("if-none-match") {
        Some(tag) if tag.contains("\"v\"") => {
            format!("HTTP/1.1 304 Not Modified\r\n{validated}ETag: \"v\"\r\nX-Number: {number}\r\n\r\n")
                .into_bytes()
        }
        _ => response(first, &format!("response {number}")),
    })
}

#[test]
fn a_304_renews_a_stored_response() {
    let _shared = shared_machine();
    let server = validating_server(STALE, "Cache-Control: max-age=600\r\n");
    let proxy = start(&server.server, "", "");
    assert_eq!(text(&get(&proxy, "/", "")), "response 1");
    let validated = get(&proxy, "/", "Range: bytes=0-7\r\n");
    assert_eq!((validated.status, text(&validated).as_str()), (206, "response"));
    assert!(
        cache_status(&validated).starts_with("weir; fwd=stale; fwd-status=304; stored; ttl="),
        "{}",
        validated.head
    );
    assert_eq!(field(&validated.head, "x-number").as_deref(), Some("2"), "{}", validated.head);
    let head = server.head(1);
    assert_eq!(field(&head, "if-none-match").as_deref(), Some("\"v\""), "{head}");
    assert!(field(&head, "range").is_none(), "{head}");
    assert_eq!(text(&get(&proxy, "/", "")), "response 1");
    // A client's own validator is answered, and not sent.
    assert_eq!(get(&proxy, "/", "If-None-Match: \"v\"\r\n").status, 304);
    assert_eq!(server.requests(), 2);
    assert_eq!(proxy.metrics().sum_known(RESULTS, &[("result", "revalidated")]), 1.0);
    proxy.assert_all_returned();
}

#[test]
fn a_changed_response_replaces_the_stored_one() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|_, number| match number {
        1 => response(STALE, "old"),
        _ => response("Cache-Control: max-age=600\r\nETag: \"w\"\r\n", "new"),
    });
    let proxy = start(&server.server, "", "");
    assert_eq!(text(&get(&proxy, "/", "")), "old");
    assert_eq!(text(&get(&proxy, "/", "")), "new");
    assert_eq!(text(&get(&proxy, "/", "")), "new");
    assert_eq!(server.requests(), 2);
}

#[test]
fn a_validation_that_forbids_to_store_ends_the_use() {
    let _shared = shared_machine();
    let server = validating_server(STALE, "Cache-Control: private\r\n");
    let proxy = start(&server.server, "", "");
    assert_eq!(text(&get(&proxy, "/", "")), "response 1");
    assert_eq!(text(&get(&proxy, "/", "")), "response 1", "it answers the request that validated it");
    assert_eq!(text(&get(&proxy, "/", "")), "response 3");
}

#[test]
fn a_stale_response_is_used_while_it_is_validated() {
    let _shared = shared_machine();
    let is_open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&is_open);
    let server = RecordingServer::start(move |request, number| match number {
        1 => response(
            "Cache-Control: max-age=10, stale-while-revalidate=600\r\nAge: 20\r\nETag: \"v\"\r\n",
            "1",
        ),
        _ => {
            assert!(crate::support::within(crate::support::EVENT_TIMEOUT, || gate.load(Ordering::Relaxed)));
            assert_eq!(request.field("if-none-match").as_deref(), Some("\"v\""));
            b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\nCache-Control: max-age=600\r\n\r\n".to_vec()
        }
    });
    let proxy = start(&server.server, "", "");
    assert_eq!(text(&get(&proxy, "/", "")), "1");
    for _ in 0..3 {
        let stale = get(&proxy, "/", "");
        assert_eq!(text(&stale), "1");
        assert!(cache_status(&stale).starts_with("weir; hit; ttl=-"), "{}", stale.head);
    }
    proxy.metrics_until("one validation", |metrics| {
        metrics.sum("weir_cache_refreshes_total", &[("result", "started")]) == 1.0
    });
    is_open.store(true, Ordering::Relaxed);
    proxy.metrics_until("the validation ends", |metrics| {
        metrics.sum("weir_subrequests_total", &[("pool", "app"), ("end", "done")]) == 1.0
    });
    let fresh = get(&proxy, "/", "");
    assert!(
        cache_status(&fresh).starts_with("weir; hit; ttl=") && !cache_status(&fresh).contains('-'),
        "{}",
        fresh.head
    );
    assert_eq!(server.requests(), 2);
    assert_eq!(proxy.metrics().sum_known(RESULTS, &[("result", "stale")]), 3.0);
    proxy.assert_all_returned();
}

#[test]
fn a_refresh_in_the_background_stores_a_new_response() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|_, number| match number {
        1 => response("Cache-Control: max-age=10\r\nAge: 20\r\n", "old"),
        _ => response("Cache-Control: max-age=600\r\n", "new"),
    });
    let proxy = start(&server.server, ", stale-while-revalidate = \"10m\"", "");
    assert_eq!(text(&get(&proxy, "/", "")), "old");
    assert_eq!(text(&get(&proxy, "/", "")), "old");
    proxy.metrics_until("it is stored", |metrics| metrics.sum("weir_cache_stored_total", &[]) == 2.0);
    assert_eq!(text(&get(&proxy, "/", "")), "new");
    assert_eq!(server.requests(), 2);
}

#[test]
fn a_stale_response_replaces_errors() {
    let _shared = shared_machine();
    for status in ["500 X", "502 X", "503 X", "504 X", "404 X", ""] {
        let server = crate::support::faulty_origins::respond_to_each({
            let count = std::sync::atomic::AtomicUsize::new(0);
            move |_, _| match (count.fetch_add(1, Ordering::Relaxed), status) {
                (0, _) => Some(response(
                    "Cache-Control: max-age=10, stale-if-error=600\r\nAge: 20\r\nETag: \"v\"\r\n",
                    "old",
                )),
                // The connection ends without a response.
                (_, "") => None,
                (_, status) => {
                    Some(format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nbad").into_bytes())
                }
            }
        });
        let proxy = start(&server, "", "");
        assert_eq!(text(&get(&proxy, "/", "")), "old");
        let second = get(&proxy, "/", "");
        if status == "404 X" {
            assert_eq!(second.status, 404, "no error of the server");
            continue;
        }
        assert_eq!((second.status, text(&second).as_str()), (200, "old"), "{status}");
        assert!(cache_status(&second).starts_with("weir; fwd=stale"), "{}", second.head);
        assert_eq!(proxy.metrics().sum_known(RESULTS, &[("result", "stale_if_error")]), 1.0);
        proxy.assert_all_returned();
    }
}

#[test]
fn no_server_is_an_error_as_well_but_not_for_all_responses() {
    let _shared = shared_machine();
    for (control, is_used) in [("", true), (", must-revalidate", false), (", stale-if-error=5", false)] {
        let server = RecordingServer::start(move |_, _| {
            response(&format!("Cache-Control: max-age=10{control}\r\nAge: 20\r\nETag: \"v\"\r\n"), "old")
        });
        let proxy = start(&server.server, ", stale-if-error = \"10m\"", "");
        assert_eq!(text(&get(&proxy, "/", "")), "old");
        let refusing = RefusingPort::new();
        proxy.reload(&config(&refusing.authority, "", ", stale-if-error = \"10m\"", ""));
        proxy.metrics_until("the reload", |metrics| metrics.sum("weir_reloads_total", &[]) == 1.0);
        let second = get(&proxy, "/", "");
        assert_eq!(second.status == 200, is_used, "{control}: {}", second.head);
    }
}

#[test]
fn a_stored_response_without_a_validator_is_fetched_again() {
    let _shared = shared_machine();
    let server = RecordingServer::with_fields("Cache-Control: max-age=10\r\nAge: 20\r\n");
    let proxy = ProxyUnderTest::weir(&config(&server.server.authority, "", "", ""));
    assert_eq!(text(&get(&proxy, "/", "")), "response 1");
    assert_eq!(text(&get(&proxy, "/", "")), "response 2");
    assert!(field(&server.head(1), "if-none-match").is_none());
}
