//! Copies of requests for another pool.

use super::{
    COMPARISONS, CONFIG_HEAD, DROPPED, MIRRORED, MIRRORS_IN_FLIGHT, ObedientServer, get, hello,
    http2_adapter, log_line, send,
};
use crate::support::faulty_origins::{RefusingPort, echoing_server, ok_response, respond_to_each};
use crate::support::hostile_client::read_response;
use crate::support::metrics::{CONFIG_GENERATIONS, REQUESTS};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{run_weir, shared_machine};

/// Returns a config with a route that copies its requests to this server.
fn config(app: &str, shadow: &str, mirror: &str) -> String {
    format!(
        "{CONFIG_HEAD}[[route]]\nname = \"main\"\npool = \"app\"\nmirror = {{ pool = \"shadow\"{mirror} }}\n\
         set-request-header = {{ x-env = \"prod\" }}\n\
         [pool.app]\nservers = [\"{app}\"]\n[pool.shadow]\nservers = [\"{shadow}\"]\n"
    )
}

fn start(app: &ScriptedServer, shadow: &str, mirror: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&config(&app.authority, shadow, mirror))
}

/// Returns a server that responds with the content of each request.
fn content_server() -> ScriptedServer {
    respond_to_each(|request, _| Some(ok_response(&request.body)))
}

fn wait_for(proxy: &ProxyUnderTest, name: &str, labels: &[(&str, &str)], count: u32) {
    proxy.metrics_until(&format!("{name} {labels:?} {count}"), |metrics| {
        metrics.sum(name, labels) == f64::from(count)
    });
}

#[test]
fn a_copy_has_the_edits_and_a_mark_and_is_compared() {
    let _shared = shared_machine();
    let (app, shadow) = (echoing_server("app"), ObedientServer::start());
    let proxy = start(&app, shadow.authority(), "");
    let request = "GET /a?b HTTP/1.1\r\nHost: h\r\nX-Mirror: forged\r\nConnection: close\r\n\r\n";
    let response = read_response(&mut send(proxy.authority(), request));
    assert_eq!(response.status, Some(200));
    let original = response.text();
    assert!(original.contains("X-Mirror: forged") && !original.contains("x-mirror: 1"), "{original}");
    let copy = shadow.next_request();
    assert_eq!((copy.method(), copy.target()), ("GET", "/a?b"));
    for (name, value) in [("host", "h"), ("x-mirror", "1"), ("x-env", "prod"), ("x-forwarded-host", "h")] {
        assert_eq!(copy.field(name).as_deref(), Some(value), "{}", copy.head);
    }
    let request_id =
        |head: &str| head.lines().find(|line| line.starts_with("X-Request-Id")).map(str::to_owned);
    assert_eq!(request_id(&original), request_id(&copy.head));
    shadow.reply(hello());
    wait_for(&proxy, MIRRORED, &[("original", "2xx"), ("mirrored", "2xx")], 1);
    for (status, result) in [(201, "different"), (404, "different"), (200, "equal")] {
        assert_eq!(read_response(&mut get(proxy.authority(), "/c")).status, Some(200));
        shadow.next_request();
        shadow.reply_status(status);
        let count = if status == 404 { 2 } else { 1 + u32::from(status == 200) };
        wait_for(&proxy, COMPARISONS, &[("mirror", "shadow"), ("result", result)], count);
    }
    wait_for(&proxy, MIRRORED, &[("original", "2xx"), ("mirrored", "4xx")], 1);
    wait_for(&proxy, MIRRORS_IN_FLIGHT, &[], 0);
    let metrics = proxy.metrics();
    // Copies are no requests of clients.
    assert_eq!(metrics.sum_known(REQUESTS, &[]), 4.0);
    assert_eq!(metrics.sum_known("weir_subrequests_total", &[("pool", "shadow"), ("end", "done")]), 4.0);
    assert_eq!(metrics.sum_known("weir_mirror_seconds_count", &[("from", "mirror")]), 4.0);
    assert_eq!(metrics.sum_known("weir_mirror_seconds_count", &[("from", "original")]), 4.0);
    log_line(&proxy, "/a?b");
    assert_eq!(proxy.wait_for_lines("access.json", 4).len(), 4);
    proxy.assert_all_returned();
}

#[test]
fn a_dead_mirror_or_one_that_hangs_has_no_effect() {
    let _shared = shared_machine();
    let (app, refusing, hanging) = (echoing_server("app"), RefusingPort::new(), ObedientServer::start());
    let proxy = start(&app, &refusing.authority, ", host = \"other:1\", mark = false");
    assert_eq!(read_response(&mut get(proxy.authority(), "/")).status, Some(200));
    wait_for(&proxy, MIRRORED, &[("original", "2xx"), ("mirrored", "none")], 1);
    wait_for(&proxy, COMPARISONS, &[("result", "unanswered")], 1);
    drop(proxy);
    let proxy = start(&app, hanging.authority(), ", host = \"other:1\", mark = false, timeout = \"300ms\"");
    assert_eq!(read_response(&mut get(proxy.authority(), "/")).status, Some(200));
    let copy = hanging.next_request();
    assert_eq!((copy.field("host").as_deref(), copy.field("x-mirror")), (Some("other:1"), None));
    hanging.wait_for_end();
    wait_for(&proxy, COMPARISONS, &[("result", "unanswered")], 1);
    wait_for(&proxy, "weir_subrequests_in_flight", &[], 0);
    wait_for(&proxy, MIRRORS_IN_FLIGHT, &[], 0);
    proxy.assert_all_returned();
}

#[test]
fn requests_beyond_the_bound_are_not_copied() {
    let _shared = shared_machine();
    let (app, shadow) = (echoing_server("app"), ObedientServer::start());
    let proxy = start(&app, shadow.authority(), ", in-flight = 1");
    assert_eq!(read_response(&mut get(proxy.authority(), "/1")).status, Some(200));
    assert_eq!(shadow.next_request().target(), "/1");
    for _ in 0..2 {
        assert_eq!(read_response(&mut get(proxy.authority(), "/2")).status, Some(200));
    }
    assert_eq!(proxy.metrics().sum_known(DROPPED, &[("reason", "in_flight")]), 2.0);
    shadow.reply(hello());
    wait_for(&proxy, MIRRORS_IN_FLIGHT, &[], 0);
    assert_eq!(read_response(&mut get(proxy.authority(), "/3")).status, Some(200));
    assert_eq!(shadow.next_request().target(), "/3");
}

#[test]
fn bodies_are_copied_up_to_their_maximum() {
    let _shared = shared_machine();
    let (app, shadow) = (content_server(), ObedientServer::start());
    let proxy = start(&app, shadow.authority(), ", body-max = 8");
    let post = |fields: &str, body: &str| {
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n\r\n{body}");
        read_response(&mut send(proxy.authority(), &request))
    };
    let chunked = "Transfer-Encoding: chunked";
    for (fields, body) in [
        ("Content-Length: 8", "12345678"),
        ("Content-Length: 8\r\nExpect: 100-continue", "12345678"),
        (chunked, "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n"),
    ] {
        let response = post(fields, body);
        assert_eq!((response.status, response.text().as_str()), (Some(200), "12345678"), "{fields}");
        let copy = shadow.next_request();
        assert_eq!((&*copy.body, copy.field("expect")), (&b"12345678"[..], None), "{}", copy.head);
        shadow.reply(hello());
    }
    for (fields, body, count) in
        [("Content-Length: 9", "123456789", 1), (chunked, "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n", 2)]
    {
        assert_eq!(post(fields, body).text(), "123456789");
        wait_for(&proxy, DROPPED, &[("reason", "body_too_large")], count);
    }
    // A client that leaves in the middle of its body.
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n1234";
    drop(send(proxy.authority(), head));
    wait_for(&proxy, DROPPED, &[("reason", "incomplete")], 1);
    wait_for(&proxy, MIRRORS_IN_FLIGHT, &[], 0);
    assert!(shadow.has_no_request());
    assert_eq!(proxy.metrics().sum_known("weir_mirrors_memory_bytes", &[]), 0.0);
}

#[test]
fn requests_of_http2_are_copied_over_http2() {
    let _shared = shared_machine();
    let (app, shadow) = (content_server(), ObedientServer::start());
    let adapter = http2_adapter(&format!("servers = [\"{}\"]", shadow.authority()));
    let text = config(&app.authority, adapter.authority(), "")
        .replace("[pool.shadow]\n", "[pool.shadow]\nhttp = \"2\"\n");
    let proxy = ProxyUnderTest::weir(&text);
    let client = http2_adapter(&format!("servers = [\"{}\"]\nhttp = \"2\"", proxy.authority()));
    let request = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                   3\r\nabc\r\n0\r\n\r\n";
    let response = read_response(&mut send(client.authority(), request));
    assert_eq!(response.status, Some(200));
    let copy = shadow.next_request();
    assert_eq!((&*copy.body, copy.field("x-mirror").as_deref()), (&b"abc"[..], Some("1")), "{}", copy.head);
    shadow.reply(hello());
    wait_for(&proxy, MIRRORED, &[("original", "2xx"), ("mirrored", "2xx")], 1);
    assert_eq!(log_line(&proxy, "/")["version"], "HTTP/2.0");
    let streams = proxy.metrics().sum_known("weir_server_http2_streams_open", &[("pool", "shadow")]);
    assert_eq!(streams, 0.0);
}

#[test]
fn a_copy_outlives_a_reload_without_its_mirror() {
    let _shared = shared_machine();
    let (app, shadow) = (echoing_server("app"), ObedientServer::start());
    let proxy = start(&app, shadow.authority(), "");
    assert_eq!(read_response(&mut get(proxy.authority(), "/")).status, Some(200));
    shadow.next_request();
    let without = format!(
        "{CONFIG_HEAD}[[route]]\nname = \"main\"\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        app.authority
    );
    proxy.reload(&without);
    wait_for(&proxy, "weir_reloads_total", &[("result", "applied")], 1);
    shadow.reply(hello());
    wait_for(&proxy, MIRRORED, &[("original", "2xx"), ("mirrored", "2xx")], 1);
    wait_for(&proxy, CONFIG_GENERATIONS, &[], 1);
    wait_for(&proxy, MIRRORS_IN_FLIGHT, &[], 0);
}

#[test]
fn a_percentage_with_a_name_is_changed_while_it_runs() {
    let _shared = shared_machine();
    let (app, shadow) = (echoing_server("app"), ObedientServer::start());
    let proxy = start(&app, shadow.authority(), ", percent = 0, name = \"shadowed\"");
    let socket = proxy.file("weir.sock");
    let ctl = |words: &[&str]| {
        let arguments = [&["ctl", "--socket", socket.to_str().unwrap()], words].concat();
        let output = run_weir(&arguments);
        assert_eq!(output.code, 0, "{words:?}: {}", output.stderr);
        output.stdout
    };
    assert_eq!(read_response(&mut get(proxy.authority(), "/not")).status, Some(200));
    assert!(ctl(&["percent"]).contains("each request"), "{}", ctl(&["percent"]));
    ctl(&["percent", "shadowed", "100"]);
    assert_eq!(read_response(&mut get(proxy.authority(), "/copied")).status, Some(200));
    assert_eq!(shadow.next_request().target(), "/copied");
}

#[test]
fn the_response_does_not_wait_for_the_mirror_at_a_drain() {
    let _shared = shared_machine();
    let (app, shadow) = (echoing_server("app"), ObedientServer::start());
    let mut proxy = start(&app, shadow.authority(), "");
    assert_eq!(read_response(&mut get(proxy.authority(), "/")).status, Some(200));
    shadow.next_request();
    proxy.process.signal(rustix::process::Signal::TERM);
    assert_eq!(proxy.process.wait(super::EVENT_TIMEOUT), 0, "{}", proxy.stderr());
    shadow.wait_for_end();
}

#[test]
fn several_mirrors_get_the_same_content() {
    let _shared = shared_machine();
    let (app, first_mirror, second_mirror) =
        (content_server(), ObedientServer::start(), ObedientServer::start());
    let text = config(&app.authority, first_mirror.authority(), "")
        .replace("{ pool = \"shadow\" }", "[{ pool = \"shadow\" }, { pool = \"other\", body-max = 2 }]");
    let proxy =
        ProxyUnderTest::weir(&format!("{text}[pool.other]\nservers = [\"{}\"]\n", second_mirror.authority()));
    let mut client = send(
        proxy.authority(),
        "POST /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
    );
    assert_eq!(read_response(&mut client).text(), "ab");
    assert_eq!(
        (first_mirror.next_request().body, second_mirror.next_request().body),
        (b"ab".to_vec(), b"ab".to_vec())
    );
    let chunked = "POST /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = send(proxy.authority(), &format!("{chunked}3\r\nabc\r\n0\r\n\r\n"));
    assert_eq!(read_response(&mut client).status, Some(200));
    first_mirror.reply(hello());
    assert_eq!(first_mirror.next_request().body, b"abc");
    wait_for(&proxy, DROPPED, &[("mirror", "other"), ("reason", "body_too_large")], 1);
    assert!(second_mirror.has_no_request());
}

#[test]
fn a_copy_is_compared_whatever_the_coding_of_the_response_to_the_client() {
    let _shared = shared_machine();
    let content = "compressible ".repeat(1_000);
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    );
    let (app, shadow) = (ObedientServer::start(), ObedientServer::start());
    let text = config(app.authority(), shadow.authority(), "")
        .replace("set-request-header", "compression = { codings = \"gzip\" }\nset-request-header");
    let proxy = ProxyUnderTest::weir(&text);
    for (accepted, coding, count) in [("gzip", Some("gzip"), 1), ("identity", None, 2)] {
        let request =
            format!("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {accepted}\r\nConnection: close\r\n\r\n");
        let mut client = send(proxy.authority(), &request);
        // Both get the same fields.
        let fields = [app.next_request(), shadow.next_request()].map(|copy| copy.field("accept-encoding"));
        assert_eq!(fields[0], fields[1]);
        app.reply(response.clone().into_bytes());
        shadow.reply(response.clone().into_bytes());
        let received = read_response(&mut client);
        assert_eq!(received.field("content-encoding").as_deref(), coding, "{}", received.head);
        assert!(received.is_complete && (coding.is_some() || received.text() == content));
        wait_for(&proxy, COMPARISONS, &[("mirror", "shadow"), ("result", "equal")], count);
    }
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known("weir_compressed_responses_total", &[("coding", "gzip")]), 1.0);
    wait_for(&proxy, MIRRORS_IN_FLIGHT, &[], 0);
    proxy.assert_all_returned();
}
