//! What a route does with a request: answers, redirects, refusals, tarpits, changes, rate limits.

use rt::clock::now_ns;

use super::{ask, door, text};
use crate::support::beside_others;
use crate::support::door::Door;
use crate::support::faulty::{field, telling};
use crate::support::rude::ask_raw;
use crate::support::times::demand;

#[test]
fn a_redirect_fills_in_what_was_asked() {
    let _shared = beside_others();
    let door = door(
        "[[route]]\npath-prefix = \"/old\"\n\
         redirect = { status = 308, location = \"https://{host}{path}{query}\" }\n\
         [[route]]\npath = \"/fixed\"\nredirect = { status = 302, location = \"/new\" }\n",
    );
    for (target, status, location) in [
        ("/old/x?a=b&c", 308, "https://example.org/old/x?a=b&c"),
        ("/old/x", 308, "https://example.org/old/x"),
        ("/fixed?a=b", 302, "/new"),
    ] {
        let answer = ask(door.authority(), &format!("GET {target}"), "Host: example.org\r\n");
        assert_eq!(answer.status, status);
        assert_eq!(field(&answer.head, "location").as_deref(), Some(location), "{target}");
    }
}

#[test]
fn answers_denials_and_tarpits_are_as_the_config_says() {
    let _shared = beside_others();
    let door = door(
        "[[route]]\npath = \"/answer\"\n\
         answer = { status = 418, content-type = \"application/json\", body = \"{}\" }\n\
         [[route]]\npath = \"/deny\"\ndeny = true\n\
         [[route]]\npath = \"/deny/451\"\ndeny = 451\n\
         [[route]]\npath = \"/tarpit\"\ntarpit = { delay = \"300ms\", status = 500 }\n",
    );
    let answer = door.get("/answer");
    assert_eq!((answer.status, answer.body.as_slice()), (418, &b"{}"[..]));
    assert_eq!(field(&answer.head, "content-type").as_deref(), Some("application/json"));
    // The answer to HEAD is the head of the same, without the body.
    let request = b"HEAD /deny HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    let head = ask_raw(door.authority(), request);
    assert!(head.status == Some(403) && head.body.is_empty(), "{head:?}");
    assert!(head.field("content-length").is_some_and(|length| length != "0"), "{head:?}");
    assert_eq!(door.get("/deny").status, 403);
    assert_eq!(door.get("/deny/451").status, 451);
    let start_ns = now_ns();
    let answer = door.get("/tarpit");
    let took_ms = (now_ns() - start_ns) / 1_000_000;
    assert!(answer.status == 500 && took_ms >= 295, "{answer:?} {took_ms} ms");
    demand(took_ms < 3000, "a tarpit of 300 ms, in ms", took_ms);
}

#[test]
fn requests_and_answers_are_changed_on_the_way() {
    let _shared = beside_others();
    let origin = telling("origin");
    let door = door(&format!(
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
    for (target, wanted) in
        [("/api/users?x=1", "/v1/users?x=1"), ("/api", "/v1"), ("/whole/y?x=1", "/x?x=1")]
    {
        let answer = ask(door.authority(), &format!("GET {target}"), fields);
        let told = text(&answer);
        let request = told.strip_prefix("origin\n").expect("what the origin was sent");
        assert_eq!(request.split(' ').nth(1), Some(wanted), "{target}");
        if target.starts_with("/api") {
            assert_eq!(field(request, "x-set").as_deref(), Some("new"), "{request}");
            assert_eq!(field(request, "x-add").as_deref(), Some("own, added"), "{request}");
            assert_eq!(field(request, "cookie"), None, "{request}");
            assert_eq!(field(&answer.head, "x-frame").as_deref(), Some("deny"));
            assert_eq!(field(&answer.head, "server"), None, "{}", answer.head);
        } else {
            assert_eq!(field(request, "x-set").as_deref(), Some("old, older"), "{request}");
        }
    }
}

#[test]
fn servers_are_told_who_asked_and_believe_nobody_else() {
    let _shared = beside_others();
    let origin = telling("origin");
    let with = |listener: &str| {
        door(&format!(
            "pool = \"app\"\n{listener}\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority
        ))
    };
    let claims = "Host: example.org\r\nX-Forwarded-For: 192.0.2.1\r\nX-Request-Id: mine\r\n";
    let stranger = with("");
    let told = text(&ask(stranger.authority(), "GET /", claims));
    assert_eq!(field(&told, "x-forwarded-for").as_deref(), Some("127.0.0.1"), "{told}");
    assert_eq!(field(&told, "x-forwarded-proto").as_deref(), Some("http"), "{told}");
    assert_eq!(field(&told, "host").as_deref(), Some("example.org"), "{told}");
    assert!(field(&told, "via").is_some_and(|via| via.contains("weir")), "{told}");
    assert!(field(&told, "x-request-id").is_some_and(|id| id != "mine"), "{told}");

    let friend = with("trusted = [\"127.0.0.1\"]");
    let told = text(&ask(friend.authority(), "GET /", claims));
    assert_eq!(field(&told, "x-forwarded-for").as_deref(), Some("192.0.2.1, 127.0.0.1"), "{told}");
    assert_eq!(field(&told, "x-request-id").as_deref(), Some("mine"), "{told}");

    let silent = "forwarding = { x-forwarded = false, forwarded = true, via = false, \
                  request-id = false }";
    let told = text(&ask(with(silent).authority(), "GET /", "Host: example.org\r\n"));
    assert_eq!(field(&told, "via"), None, "{told}");
    assert_eq!(field(&told, "x-request-id"), None, "{told}");
    assert_eq!(field(&told, "x-forwarded-for"), None, "{told}");
    assert!(field(&told, "forwarded").is_some_and(|text| text.contains("for=127.0.0.1")), "{told}");
}

#[test]
fn a_rate_limit_lets_a_burst_through_and_says_when_to_come_back() {
    let _shared = beside_others();
    let route = |path: &str, key: &str| {
        format!(
            "[[route]]\npath-prefix = \"{path}\"\n\
             rate-limit = {{ rate = 0.01, burst = 3, key = \"{key}\" }}\n\
             answer = {{ status = 200, body = \"here\" }}\n"
        )
    };
    let routes =
        [route("/route", "route"), route("/source", "source"), route("/key", "header:x-key")];
    let door = door(&routes.concat());
    let ask = |target: &str, fields: &str| ask(door.authority(), &format!("GET {target}"), fields);
    for target in ["/route", "/source"] {
        let statuses: Vec<u16> = (0..5).map(|_| ask(target, "").status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429], "{target}");
        let after = field(&ask(target, "").head, "retry-after").expect("Retry-After");
        let after: u64 = after.parse().unwrap();
        // A hundredth of a request a second.
        assert!((1..=100).contains(&after), "{after}");
    }
    // Each value of the field has a bucket of its own.
    for key in ["a", "b"] {
        let field = format!("X-Key: {key}\r\n");
        let statuses: Vec<u16> = (0..4).map(|_| ask("/key", &field).status).collect();
        assert_eq!(statuses, [200, 200, 200, 429], "{key}");
    }
}

#[test]
fn a_rate_limit_of_a_hundred_a_second_is_a_hundred_a_second() {
    let _shared = beside_others();
    let door = door(
        "[[route]]\nrate-limit = { rate = 100, burst = 1, key = \"route\", status = 503 }\n\
         answer = { status = 200, body = \"here\" }\n",
    );
    let mut client = door.client();
    let (start_ns, mut passed) = (now_ns(), 0_u64);
    while now_ns() - start_ns < 1_000_000_000 {
        let status = client.ask("/").status;
        assert!([200, 503].contains(&status), "{status}");
        passed += u64::from(status == 200);
    }
    let elapsed_s = (now_ns() - start_ns) as f64 / 1e9;
    let most = 100.0 * elapsed_s + 2.0;
    assert!(passed as f64 <= most && passed > 0, "{passed} in {elapsed_s} s");
    demand(passed > 50, "most of a hundred requests in a second", passed);
}

/// The threads share one bucket: a burst is the same on one connection as on many.
#[test]
fn a_rate_limit_is_one_limit_for_all_threads() {
    let _shared = beside_others();
    for key in ["route", "source", "header:x-key"] {
        for connections in [1, 16] {
            let door = Door::weir(&format!(
                "threads = 4\n[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\n\
                 rate-limit = {{ rate = 0.01, burst = 96, key = \"{key}\" }}\n\
                 answer = {{ status = 200, body = \"here\" }}\n"
            ));
            let mut clients: Vec<_> = (0..connections).map(|_| door.client()).collect();
            let mut ask = |at: usize| clients[at % connections].ask("/").status;
            let admitted = (0..128).filter(|&at| ask(at) == 200).count();
            assert_eq!(admitted, 96, "{key}, {connections} connections");
        }
    }
}
