//! Floods of frames and other abuse: bounded, counted, and without an effect on other clients.

use super::*;
use crate::support::metrics::CONNECTIONS_OPEN;
use crate::support::shared_machine;

#[test]
fn floods_end_their_connection_and_are_counted() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "");
    for kind in ["reset", "ping", "settings", "data", "continuation", "empty-continuation"] {
        assert_eq!(run_client(&proxy, "flood", &[kind]), "ended True\n", "{kind}");
        let (status, body) = (proxy.get("/echo").status, kind);
        assert_eq!(status, 200, "{body}");
    }
    let metrics = proxy.metrics_until("all have left", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
    });
    let faults = |fault| metrics.sum_known(FAULTS, &[("fault", fault)]);
    assert_eq!((faults("enhance_your_calm"), faults("continuation_flood")), (4.0, 2.0), "{metrics}");
    let calm = [("from", "proxy"), ("code", "enhance_your_calm")];
    assert_eq!(metrics.sum_known(GOAWAYS, &calm), 6.0);
    proxy.assert_all_returned();
}

#[test]
fn small_heads_that_become_large_ones_are_refused_without_memory() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "");
    assert_eq!(proxy.get("/echo").status, 200);
    let before = crate::support::anonymous_bytes(proxy.process.id());
    // Each of 90 heads would have 32 kB, which is less than twice the limit.
    assert_eq!(run_client(&proxy, "hpack_bomb", &["91", "8"]), "sent\n");
    let metrics = proxy.metrics_until("all have left", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
    });
    let rejected = [("from", "client"), ("reason", "head_too_large")];
    assert_eq!(metrics.sum_known("weir_messages_rejected_total", &rejected), 90.0, "{metrics}");
    // The first of heads that would have 48 MB ends the connection.
    assert_eq!(run_client(&proxy, "hpack_bomb", &["91", "12000"]), "sent\n");
    proxy.metrics_until("the fault is counted", |metrics| {
        metrics.sum_known(FAULTS, &[("fault", "block_too_large")]) == 1.0
    });
    let grown = crate::support::anonymous_bytes(proxy.process.id()).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} B more");
    assert_eq!(proxy.get("/echo").status, 200);
    proxy.assert_all_returned();
}

#[test]
fn streams_without_a_window_are_reset_in_time_and_hold_little() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let origin = crate::support::OriginProcess::start(&["-t", "1"]);
    let proxy = start_proxy("timeouts = { write = '1s' }", &origin.authority, "");
    assert_eq!(proxy.get("/?s=1").status, 200);
    let before = crate::support::anonymous_bytes(proxy.process.id());
    assert_eq!(run_client(&proxy, "slow_readers", &["100"]), "{'CANCEL'}\n");
    let grown = crate::support::anonymous_bytes(proxy.process.id()).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} B more");
    assert_eq!(proxy.get("/?s=1").status, 200);
    proxy.assert_all_returned();
}

#[test]
fn a_broken_preface_ends_as_http2_says() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("", &server.authority, "");
    for preface in ["PRI * HTTP/2.0\\r\\n\\r\\nSX\\r\\n\\r\\n", "PRI * HTTP/2.0\\r\\nHost: x\\r\\n\\r\\n"] {
        let frames = run_client(&proxy, "broken_preface", &[preface]);
        assert!(frames.ends_with("(7, 'PROTOCOL_ERROR')]\n"), "{preface}: {frames}");
    }
    assert_eq!(proxy.metrics().sum_known(FAULTS, &[("fault", "preface_invalid")]), 2.0);
    proxy.assert_all_returned();
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let gated = crate::support::faulty_origins::GatedServer::start();
    let proxy = start_proxy("http2 = { concurrent-streams = 3 }", &gated.server.authority, "");
    // The fourth stream.
    assert_eq!(run_client(&proxy, "refused", &["5"]), "(7, 'REFUSED_STREAM')\n");
    proxy.assert_all_returned();
}

#[test]
fn an_incomplete_head_has_a_timeout() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let server = scripted_server();
    let proxy = start_proxy("timeouts = { head = '300ms' }", &server.authority, "");
    assert_eq!(run_client(&proxy, "partial", &[]), "closed\n");
    proxy.assert_all_returned();
}
