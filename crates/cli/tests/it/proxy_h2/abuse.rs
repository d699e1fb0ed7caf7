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
