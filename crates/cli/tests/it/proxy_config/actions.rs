//! Actions of a route on a request: responses, redirects, denials, tarpits, changes, rate limits.

use rt::clock::now_ns;

use super::{body_text, send_request, start_proxy};
use crate::support::faulty_origins::{echoing_server, field};
use crate::support::hostile_client::exchange_raw;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;
use crate::support::timing::assert_timing;

#[test]
fn a_redirect_fills_in_what_was_asked() {
    let _shared = shared_machine();
    let proxy = start_proxy(
        "[[route]]\npath-prefix = \"/old\"\n\
         redirect = { status = 308, location = \"https://{host}{path}{query}\" }\n\
         [[route]]\npath = \"/fixed\"\nredirect = { status = 302, location = \"/new\" }\n",
    );
    for (target, status, location) in [
        ("/old/x?a=b&c", 308, "https://example.org/old/x?a=b&c"),
        ("/old/x", 308, "https://example.org/old/x"),
        ("/fixed?a=b", 302, "/new"),
    ] {
        let response = send_request(proxy.authority(), &format!("GET {target}"), "Host: example.org\r\n");
        assert_eq!(response.status, status);
        assert_eq!(field(&response.head, "location").as_deref(), Some(location), "{target}");
    }
}

#[test]
fn responses_denials_and_tarpits_follow_the_config() {
    let _shared = shared_machine();
    let proxy = start_proxy(
        "[[route]]\npath = \"/answer\"\n\
         return = { status = 418, content-type = \"application/json\", body = \"{}\" }\n\
         [[route]]\npath = \"/deny\"\ndeny = true\n\
         [[route]]\npath = \"/deny/451\"\ndeny = 451\n\
         [[route]]\npath = \"/tarpit\"\ntarpit = { delay = \"300ms\", status = 500 }\n",
    );
    let response = proxy.get("/answer");
    assert_eq!((response.status, response.body.as_slice()), (418, &b"{}"[..]));
    assert_eq!(field(&response.head, "content-type").as_deref(), Some("application/json"));
    // The response to HEAD has the same head, without the body.
    let request = b"HEAD /deny HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let head = exchange_raw(proxy.authority(), request);
    assert!(head.status == Some(403) && head.body.is_empty(), "{head:?}");
    assert!(head.field("content-length").is_some_and(|length| length != "0"), "{head:?}");
    assert_eq!(proxy.get("/deny").status, 403);
    assert_eq!(proxy.get("/deny/451").status, 451);
    let start_ns = now_ns();
    let response = proxy.get("/tarpit");
    let took_ms = (now_ns() - start_ns) / 1_000_000;
    assert!(response.status == 500 && took_ms >= 295, "{response:?} {took_ms} ms");
    assert_timing(took_ms < 3000, "a tarpit of 300 ms, in ms", took_ms);
}

#[test]
fn requests_and_responses_are_rewritten() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = start_proxy(&format!(
        "[[route]]\npath-prefix = \"/api\"\nrewrite-prefix = \"/v1\"\n\
         set-request-header = {{ x-set = \"new\" }}\nadd-request-header = {{ x-add = \"added\" }}\n\
         remove-request-header = [\"cookie\"]\n\
         set-response-header = {{ x-frame = \"deny\" }}\n\
         remove-response-header = [\"server\"]\npool = \"app\"\n\
         [[route]]\npath-prefix = \"/whole\"\nrewrite-path = \"/x\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let fields = "X-Set: old\r\nx-set: older\r\nX-Add: own\r\nCookie: a=b\r\nCOOKIE: c=d\r\n";
    for (target, part) in [("/api/users?x=1", "/v1/users?x=1"), ("/api", "/v1"), ("/whole/y?x=1", "/x?x=1")] {
        let response = send_request(proxy.authority(), &format!("GET {target}"), fields);
        let body = body_text(&response);
        let request = body.strip_prefix("origin\n").expect("what the origin was sent");
        assert_eq!(request.split(' ').nth(1), Some(part), "{target}");
        if target.starts_with("/api") {
            assert_eq!(field(request, "x-set").as_deref(), Some("new"), "{request}");
            assert_eq!(field(request, "x-add").as_deref(), Some("own, added"), "{request}");
            assert_eq!(field(request, "cookie"), None, "{request}");
            assert_eq!(field(&response.head, "x-frame").as_deref(), Some("deny"));
            assert_eq!(field(&response.head, "server"), None, "{}", response.head);
        } else {
            assert_eq!(field(request, "x-set").as_deref(), Some("old, older"), "{request}");
        }
    }
}

#[test]
fn servers_get_the_client_address_only_from_trusted_peers() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let with = |listener: &str| {
        start_proxy(&format!(
            "pool = \"app\"\n{listener}\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority
        ))
    };
    let claims = "Host: example.org\r\nX-Forwarded-For: 192.0.2.1\r\nX-Request-Id: mine\r\n";
    let stranger = with("");
    let body = body_text(&send_request(stranger.authority(), "GET /", claims));
    assert_eq!(field(&body, "x-forwarded-for").as_deref(), Some("127.0.0.1"), "{body}");
    assert_eq!(field(&body, "x-forwarded-proto").as_deref(), Some("http"), "{body}");
    assert_eq!(field(&body, "host").as_deref(), Some("example.org"), "{body}");
    assert!(field(&body, "via").is_some_and(|via| via.contains("weir")), "{body}");
    assert!(field(&body, "x-request-id").is_some_and(|id| id != "mine"), "{body}");

    let friend = with("trusted = [\"127.0.0.1\"]");
    let body = body_text(&send_request(friend.authority(), "GET /", claims));
    assert_eq!(field(&body, "x-forwarded-for").as_deref(), Some("192.0.2.1, 127.0.0.1"), "{body}");
    assert_eq!(field(&body, "x-request-id").as_deref(), Some("mine"), "{body}");

    let silent = "forwarding = { x-forwarded = false, forwarded = true, via = false, \
                  request-id = false }";
    let body = body_text(&send_request(with(silent).authority(), "GET /", "Host: example.org\r\n"));
    assert_eq!(field(&body, "via"), None, "{body}");
    assert_eq!(field(&body, "x-request-id"), None, "{body}");
    assert_eq!(field(&body, "x-forwarded-for"), None, "{body}");
    assert!(field(&body, "forwarded").is_some_and(|text| text.contains("for=127.0.0.1")), "{body}");
}

#[test]
fn a_rate_limit_lets_a_burst_through_and_says_when_to_come_back() {
    let _shared = shared_machine();
    let route = |path: &str, key: &str| {
        format!(
            "[[route]]\npath-prefix = \"{path}\"\n\
             rate-limit = {{ rate = 0.01, burst = 3, key = \"{key}\" }}\n\
             return = {{ status = 200, body = \"here\" }}\n"
        )
    };
    let routes = [route("/route", "route"), route("/source", "source"), route("/key", "header:x-key")];
    let proxy = start_proxy(&routes.concat());
    let ask = |target: &str, fields: &str| send_request(proxy.authority(), &format!("GET {target}"), fields);
    for target in ["/route", "/source"] {
        let statuses: Vec<u16> = (0..5).map(|_| ask(target, "").status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429], "{target}");
        let after = field(&ask(target, "").head, "retry-after").expect("Retry-After");
        let after: u64 = after.parse().unwrap();
        // A hundredth of a request per second.
        assert!((1..=100).contains(&after), "{after}");
    }
    // Each value of the field has its own bucket.
    for key in ["a", "b"] {
        let field = format!("X-Key: {key}\r\n");
        let statuses: Vec<u16> = (0..4).map(|_| ask("/key", &field).status).collect();
        assert_eq!(statuses, [200, 200, 200, 429], "{key}");
    }
}

#[test]
fn several_rate_limits_hold_at_a_time() {
    let _shared = shared_machine();
    let proxy = start_proxy(
        "[[route]]\nrate-limit = [{ rate = \"1/h\", burst = 2, key = \"{cookie.user}\" }, \
         { rate = \"6/m\", burst = 3, key = \"route\", status = 503 }]\nreturn = { body = \"here\" }\n",
    );
    let response = |user: &str| send_request(proxy.authority(), "GET /", &format!("Cookie: user={user}\r\n"));
    assert_eq!(["a", "a", "a", "b"].map(|user| response(user).status), [200, 200, 429, 200]);
    let rejected = response("b");
    assert_eq!(rejected.status, 503, "{rejected:?}");
    let after: u64 = field(&rejected.head, "retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&after), "six a minute: {after}");
    let after: u64 = field(&response("a").head, "retry-after").unwrap().parse().unwrap();
    assert!((60..=3600).contains(&after), "one an hour: {after}");
}

#[test]
fn a_rate_limit_of_a_hundred_a_second_is_a_hundred_a_second() {
    let _shared = shared_machine();
    let proxy = start_proxy(
        "[[route]]\nrate-limit = { rate = 100, burst = 1, key = \"route\", status = 503 }\n\
         return = { status = 200, body = \"here\" }\n",
    );
    let mut client = proxy.client();
    let (start_ns, mut passed) = (now_ns(), 0_u64);
    while now_ns() - start_ns < 1_000_000_000 {
        let status = client.get("/").status;
        assert!([200, 503].contains(&status), "{status}");
        passed += u64::from(status == 200);
    }
    let elapsed_s = (now_ns() - start_ns) as f64 / 1e9;
    let max_passed = 100.0 * elapsed_s + 2.0;
    assert!(passed as f64 <= max_passed && passed > 0, "{passed} in {elapsed_s} s");
    assert_timing(passed > 50, "most of a hundred requests in a second", passed);
}

/// The threads share one bucket: a burst is the same on one connection as on many.
#[test]
fn a_rate_limit_is_one_limit_for_all_threads() {
    let _shared = shared_machine();
    for key in ["route", "source", "header:x-key"] {
        for connections in [1, 16] {
            let proxy = ProxyUnderTest::weir(&format!(
                "threads = 4\n[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\n\
                 rate-limit = {{ rate = 0.01, burst = 96, key = \"{key}\" }}\n\
                 return = {{ status = 200, body = \"here\" }}\n"
            ));
            let mut clients: Vec<_> = (0..connections).map(|_| proxy.client()).collect();
            let mut ask = |at: usize| clients[at % connections].get("/").status;
            let admitted = (0..128).filter(|&at| ask(at) == 200).count();
            assert_eq!(admitted, 96, "{key}, {connections} connections");
        }
    }
}
