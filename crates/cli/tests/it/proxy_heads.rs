//! Request heads on their way through `weir proxy`: the routed path is the forwarded path, fields
//! are set, added and removed exactly, and only trusted peers can set the client address.
//! `smuggling` tests framing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::proxy_faults::{CONFIG_HEAD, haproxy_line_for};
use crate::support::client::Client;
use crate::support::proxies::{OriginReply, RecordingOrigin};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;
use crate::support::strict_parser::StrictMessage;

/// Starts an origin that responds to each request with 200.
fn start_origin() -> RecordingOrigin {
    RecordingOrigin::start(|_| {
        OriginReply::KeepOpen(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()])
    })
}

/// Starts a proxy in front of it; the texts follow the keys of the listener and of its only route.
fn start_proxy(origin: &RecordingOrigin, listener: &str, route: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{listener}\n[[route]]\npool = \"app\"\n{route}\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority()
    ))
}

/// Returns the status of the response, and the request at the origin.
fn forward(proxy: &ProxyUnderTest, origin: &RecordingOrigin, request: &str) -> (u16, Option<StrictMessage>) {
    let mut client = proxy.client();
    client.send(request.as_bytes());
    let status = client.read_response().map_or(0, |response| response.status);
    let forwarded = origin.take_requests().pop().map(|seen| seen.request.expect("a complete request"));
    (status, forwarded)
}

fn forward_get(
    proxy: &ProxyUnderTest,
    origin: &RecordingOrigin,
    target: &str,
    fields: &str,
) -> (u16, Option<StrictMessage>) {
    forward(proxy, origin, &format!("GET {target} HTTP/1.1\r\nHost: client.example\r\n{fields}\r\n"))
}

#[test]
fn a_field_that_a_route_sets_stands_once() {
    let _shared = shared_machine();
    let origin = start_origin();
    let names = [
        "host",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
        "via",
        "x-request-id",
    ];
    let pairs: Vec<String> = names.iter().map(|name| format!("{name} = \"set.example\"")).collect();
    let route = format!("set-request-header = {{ {} }}", pairs.join(", "));
    let proxy_set =
        start_proxy(&origin, "trusted = [\"127.0.0.1\"]\nforwarding = { forwarded = true }", &route);
    let own = "X-Forwarded-For: 1.1.1.1\r\nX-Request-Id: mine\r\nForwarded: for=a\r\nVia: 1.0 a\r\n";
    let (status, request) = forward_get(&proxy_set, &origin, "/set", own);
    let request = request.unwrap();
    for name in names {
        assert_eq!((status, request.values(name)), (200, vec!["set.example"]), "{name} in {request:?}");
    }
    let removed = names[1..].join("\", \"");
    let route = format!("remove-request-header = [\"{removed}\"]");
    let proxy_removed = start_proxy(&origin, "forwarding = { forwarded = true }", &route);
    let (_, request) = forward_get(&proxy_removed, &origin, "/removed", own);
    let request = request.unwrap();
    for name in &names[1..] {
        assert!(request.values(name).is_empty(), "{name} in {request:?}");
    }
    let route = "add-request-header = { x-forwarded-for = \"9.9.9.9\", via = \"1.1 b\" }";
    let proxy_added = start_proxy(&origin, "", route);
    let (_, request) = forward_get(&proxy_added, &origin, "/added", own);
    let request = request.unwrap();
    assert_eq!(request.values("x-forwarded-for"), ["127.0.0.1", "9.9.9.9"]);
    assert_eq!(request.values("via").last(), Some(&"1.1 b"));
}

#[test]
fn a_generated_response_has_each_field_once() {
    let _shared = shared_machine();
    let origin = start_origin();
    let config = "set-response-header = { date = \"now\", content-type = \"text/x\", allow = \"GET\" }";
    let proxy = ProxyUnderTest::weir(&format!(
        "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = \"/set\"\ndeny = 405\n{config}\n\
         [[route]]\npath = \"/plain\"\ndeny = 405\n[[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority()
    ));
    let set = proxy.get("/set").head.to_ascii_lowercase();
    for field in ["date: now\r\n", "content-type: text/x\r\n", "allow: get\r\n"] {
        let name = &field[..=field.find(':').unwrap()];
        assert!(set.contains(field) && set.matches(&format!("\n{name}")).count() == 1, "{set}");
    }
    let plain = proxy.get("/plain").head.to_ascii_lowercase();
    assert!(plain.contains("\r\ndate: ") && plain.contains(" gmt\r\n"), "{plain}");
    assert!(plain.contains("\r\nallow: head, post"), "{plain}");
    let hops = |method: &str, hops: &str| {
        let fields = format!("Host: a\r\nMax-Forwards: {hops}\r\n");
        forward(&proxy, &origin, &format!("{method} /far HTTP/1.1\r\n{fields}\r\n"))
    };
    assert!(matches!(hops("OPTIONS", "0"), (200, None)) && matches!(hops("TRACE", "0"), (405, None)));
    let forwarded = |(status, request): (u16, Option<StrictMessage>)| {
        (status, request.unwrap().single_value("max-forwards").map(str::to_owned))
    };
    assert_eq!(forwarded(hops("OPTIONS", "7")), (200, Some("6".into())));
    assert_eq!(forwarded(hops("GET", "0")), (200, Some("0".into())));
}

/// Spellings of paths with the status, and the path at the origin; empty: nothing.
const PATHS: &[(&str, u16, &str)] = &[
    ("/pub/x", 200, "/pub/x"),
    ("/admin/x", 403, ""),
    ("/admin/../x?a/../b", 200, "/x?a/../b"),
    ("/admin//../x", 403, ""),
    ("//admin", 403, ""),
    ("/./admin", 403, ""),
    ("/%61dmin", 403, ""),
    ("/%2e/admin", 403, ""),
    ("/x/..//admin/a", 403, ""),
    ("/admin;a=b/c", 403, ""),
    ("/pub//x", 200, "/pub//x"),
    ("/a%2cb", 200, "/a%2Cb"),
    ("/pub/..;/admin", 400, ""),
    ("/pub/..%2Fadmin", 400, ""),
    ("/api/projects/group%2fproj?a=%2f", 200, "/api/projects/group%2Fproj?a=%2f"),
    ("/@scope%2Fpkg", 200, "/@scope%2Fpkg"),
    ("/api/queues/%2F/q", 200, "/api/queues/%2F/q"),
    ("/admin/a%2Fb", 403, ""),
    ("/admin%2Fa", 400, ""),
    ("/%2Fadmin", 400, ""),
    ("//%2fadmin%2Fx", 400, ""),
    ("/pub%252Fadmin", 400, ""),
    ("http://client.example/a%2Fb", 200, "/a%2Fb"),
    ("/;/admin", 400, ""),
    ("/pub\\..\\admin", 400, ""),
    ("/pub/..%5cadmin", 400, ""),
    ("/pub/%252e%252e/admin", 400, ""),
    ("/pub/..%3b/admin", 400, ""),
    ("/admin%00", 400, ""),
    ("http://client.example/admin/../x", 200, "/x"),
    ("http://client.example/pub/../admin", 403, ""),
];

#[test]
fn the_path_that_is_routed_is_the_path_that_is_forwarded() {
    let _shared = shared_machine();
    let origin = start_origin();
    let with = |rule: &str| {
        ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{rule}\n[[route]]\n\
             path-prefix = \"/admin\"\ndeny = true\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority()
        ))
    };
    let (normal, strict, raw) = (with(""), with("path = \"strict\""), with("path = \"raw\""));
    for (target, status, forwarded) in PATHS {
        let (got, request) = forward_get(&normal, &origin, target, "");
        let target_seen = request.as_ref().map_or("", StrictMessage::target);
        assert_eq!((got, target_seen), (*status, *forwarded), "{target}");
        let (got, request) = forward_get(&strict, &origin, target, "");
        let target_seen = request.as_ref().map_or("", StrictMessage::target);
        let may = [(400, ""), (403, ""), (200, *target)];
        assert!(
            may.contains(&(got, target_seen)) && (got != 200 || target_seen == *forwarded),
            "{target}: {got} {target_seen}"
        );
    }
    for (target, expected) in [("/a/../b%2fc", Some("/a/../b%2fc")), ("/x/../admin", None)] {
        let (_, request) = forward_get(&raw, &origin, target, "");
        assert_eq!(request.as_ref().map(StrictMessage::target), expected, "{target}");
    }
}

#[test]
fn a_route_has_its_own_rule_for_paths() {
    let _shared = shared_machine();
    let origin = start_origin();
    let with = |listener: &str| {
        ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
             [[route]]\npath-prefix = \"/raw\"\npath-rule = \"raw\"\npool = \"app\"\n\
             [[route]]\npath-prefix = \"/strict\"\npath-rule = \"strict\"\npool = \"app\"\n\
             [[route]]\npath-prefix = \"/normal\"\npath-rule = \"normalise\"\npool = \"app\"\n\
             [[route]]\npath-prefix = \"/admin\"\ndeny = true\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority()
        ))
    };
    let everywhere = [
        ("/raw/..%2Fadmin%2f", 200, "/raw/..%2Fadmin%2f"),
        ("/raw/a\\b", 200, "/raw/a\\b"),
        ("/strict/a%2Fb", 400, ""),
        ("/strict/%61", 400, ""),
        ("/strict/a", 200, "/strict/a"),
        ("/normal/a%2fb/../c", 200, "/normal/c"),
        ("/normal/..;/x", 400, ""),
        ("/normal%2Fx", 400, ""),
    ];
    // The listener's own rule holds for the other routes.
    let other_paths = [("", ("/x/..;/y", 400, "")), ("path = \"raw\"", ("/x/..;/y", 200, "/x/..;/y"))];
    for (listener, other) in other_paths {
        let proxy = with(listener);
        for (target, status, forwarded) in everywhere.into_iter().chain([other]) {
            // With `raw` of the listener, the encoded slash of `/normal%2Fx` is not decoded.
            let is_raw = !listener.is_empty() && target == "/normal%2Fx";
            let (status, forwarded) = if is_raw { (200, target) } else { (status, forwarded) };
            let (got, request) = forward_get(&proxy, &origin, target, "");
            let target_seen = request.as_ref().map_or("", StrictMessage::target);
            assert_eq!((got, target_seen), (status, forwarded), "{target} {listener}");
        }
    }
    let proxy = with("");
    for (target, reason) in
        [("/admin%2Fx", "another route if that is decoded"), ("/x/..;/", "different ways")]
    {
        let response = proxy.client().get(target);
        let text = String::from_utf8(response.body).unwrap();
        let has_both = text.contains(reason) && text.contains("path-rule of the route");
        assert!(response.status == 400 && has_both, "{target}: {text}");
    }
}

const CLAIMS: &str = "X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\n\
    X-Client-IP: 6.6.6.6\r\nX-Original-URL: /6.6.6.6\r\nX-Rewrite-URL: /6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
    X-Forwarded-User: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nX-Real_IP: 6.6.6.6\r\n";

/// Formats a request whose trailer section repeats the claims of its head.
fn request_with_claims(target: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\n{CLAIMS}Transfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\n{CLAIMS}\r\n"
    )
}

#[test]
fn a_stranger_says_nothing_about_who_it_is() {
    let _shared = shared_machine();
    let origin = start_origin();
    let stranger = start_proxy(&origin, "", "");
    let (status, request) = forward(&stranger, &origin, &request_with_claims("/stranger"));
    let request = request.unwrap();
    assert_eq!(status, 200);
    let all_fields = request.fields.iter().chain(&request.trailers);
    let bad: Vec<_> = all_fields.filter(|(_, value)| value.contains("6.6.6.6")).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(request.trailers, [("X-Sum".to_owned(), "1".to_owned())]);

    let trusted =
        start_proxy(&origin, "trusted = [\"127.0.0.1\"]\nforwarding = { forwarded-for = \"if-none\" }", "");
    let request = forward(&trusted, &origin, &request_with_claims("/trusted")).1.unwrap();
    for name in ["X-Real-IP", "True-Client-IP", "X_Forwarded_For", "X-Forwarded-User", "X-Forwarded-For"] {
        assert_eq!(request.values(name), ["6.6.6.6"], "{name} in {request:?}");
    }
    let reject = start_proxy(&origin, "underscores = \"reject\"", "");
    assert!(matches!(forward_get(&reject, &origin, "/", "X_A: 1\r\n"), (400, None)));
    assert_eq!(forward_get(&reject, &origin, "/", "X-A: 1\r\n").0, 200);
    let pass = start_proxy(&origin, "underscores = \"pass\"", "");
    assert_eq!(forward_get(&pass, &origin, "/", "X_A: 1\r\n").1.unwrap().values("x_a"), ["1"]);
}

#[test]
fn a_stranger_takes_no_route_by_a_field_that_is_not_believed() {
    let _shared = shared_machine();
    let origin = start_origin();
    let route =
        "[[route]]\nheader = { x-forwarded-proto = \"https\" }\npool = \"app\"\n[[route]]\ndeny = true\n";
    let with = |trusted: &str| {
        ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{trusted}\n{route}[pool.app]\nservers = [\"{}\"]\n",
            origin.authority()
        ))
    };
    let field = "X-Forwarded-Proto: https\r\n";
    assert_eq!(forward_get(&with(""), &origin, "/", field).0, 403);
    assert_eq!(forward_get(&with("trusted = [\"127.0.0.1\"]"), &origin, "/", field).0, 200);
}

#[test]
fn peers_on_a_unix_socket_are_believed_where_the_config_says_so() {
    let _shared = shared_machine();
    let origin = start_origin();
    for (trusted, expected) in [("", "unknown"), ("trusted = [\"unix\"]", "1.1.1.1, unknown")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _proxy = ProxyUnderTest::weir(&format!(
            "{CONFIG_HEAD}[listener.web]\nbind = \"unix:{}\"\npool = \"app\"\n{trusted}\n[pool.app]\nservers = [\"{}\"]\n",
            path.display(),
            origin.authority()
        ));
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n").unwrap();
        let mut buffer = [0; 512];
        assert!(stream.read(&mut buffer).unwrap() > 0);
        let request = origin.valid_request();
        assert_eq!(request.values("x-forwarded-for"), [expected]);
    }
}

#[test]
fn a_body_that_comes_with_its_head_is_counted() {
    let _shared = shared_machine();
    let origin = start_origin();
    let proxy = start_proxy(&origin, "", "");
    let request =
        format!("POST /complete HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(1000));
    let second = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = proxy.client();
    client.send(format!("{request}{second}").as_bytes());
    assert_eq!((client.read_response().unwrap().status, client.read_response().unwrap().status), (200, 200));
    for (part, bytes) in [("/complete", request.len()), ("/second", second.len())] {
        let line = proxy.wait_for_lines_with("access.json", part, 1).remove(0);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["bytes_in"], bytes, "{line}");
    }
}

#[test]
fn a_head_that_starts_wrong_is_refused_before_it_is_complete() {
    let _shared = shared_machine();
    let origin = start_origin();
    let proxy = start_proxy(&origin, "", "");
    let starts: [(&[u8], u16); 5] = [
        (b"G@T / HTTP/1.1\r\n", 400),
        (b"GET /a#b", 400),
        (b"GET / HTTP/2.0\r\n", 505),
        (b"GET / HTTP/1.1\r\nHost : a", 400),
        // A handshake of TLS.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ];
    for (start, expected) in starts {
        let mut client = proxy.client();
        client.send(start);
        assert_eq!(client.read_response().unwrap().status, expected, "{}", start.escape_ascii());
        assert!(client.read_to_end().is_empty());
    }
    assert!(origin.take_requests().is_empty());
}

#[test]
fn empty_lines_before_a_request_are_ignored_and_nothing_follows_a_connect() {
    let _shared = shared_machine();
    let origin = start_origin();
    let proxy = start_proxy(&origin, "", "");
    let mut client = proxy.client();
    client
        .send(b"\r\n\r\nGET /first HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.read_response().unwrap().status, client.read_response().unwrap().status), (200, 200));
    origin.take_requests();
    let mut client = proxy.client();
    client.send(b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\nGET /inner HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.read_response().unwrap();
    assert!(response.status == 405 && response.head.contains("Connection: close"), "{response:?}");
    assert!(client.read_to_end().is_empty() && origin.take_requests().is_empty());
    assert_eq!(haproxy_line_for(&proxy, "b:443").status, Some(405));
}

#[test]
fn a_relay_keeps_where_the_client_connected_to() {
    let _shared = shared_machine();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = ProxyUnderTest::weir(&format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\nproxy-protocol = true\n\
         trusted = [\"127.0.0.1\"]\n[pool.app]\nservers = [\"{}\"]\nsend-proxy-protocol = \"v1\"\n",
        server.local_addr().unwrap()
    ));
    let mut client = Client::connect(proxy.authority());
    let header = b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 8443\r\n";
    client.send(header);
    let (mut stream, _) = server.accept().unwrap();
    let mut got = vec![0; header.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, header);
}

#[test]
fn an_upgrade_may_have_a_body() {
    let _shared = shared_machine();
    let origin = start_origin();
    let proxy = start_proxy(&origin, "", "");
    let fields = "Connection: upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n";
    let request = format!("POST /exec HTTP/1.1\r\nHost: a\r\n{fields}\r\n{{}}");
    let (status, request) = forward(&proxy, &origin, &request);
    let request = request.unwrap();
    assert_eq!((status, request.values("upgrade"), &request.body[..]), (200, vec!["tcp"], &b"{}"[..]));
}

#[test]
fn requests_are_counted_from_the_start() {
    let _shared = shared_machine();
    let origin = start_origin();
    let proxy = ProxyUnderTest::weir(&format!(
        "admin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n[pool.app]\n\
         servers = [\"{}\"]\n",
        origin.authority()
    ));
    let metrics = proxy.metrics();
    let samples: Vec<_> = metrics.samples_with("weir_requests_total", &[("listener", "web")]).collect();
    let none = samples.iter().all(|sample| sample.value == 0.0);
    assert!(none && !samples.is_empty(), "{samples:?}");
}
