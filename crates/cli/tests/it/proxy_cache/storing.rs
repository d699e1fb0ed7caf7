//! Stored and shared responses, and their use for requests.

use super::{NOT_STORED, RESULTS, RecordingServer, cache_status, config, get, response, start, text};
use crate::support::faulty_origins::field;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

const FRESH: &str =
    "Cache-Control: max-age=600\r\nETag: \"a\"\r\nLast-Modified: Sat, 01 Nov 2025 00:00:00 GMT\r\n";

#[test]
fn a_stored_response_answers_all_kinds_of_requests() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|_, _| response(FRESH, "0123456789"));
    let proxy = start(&server.server, "", "");
    let first = get(&proxy, "/a", "If-None-Match: \"a\"\r\n");
    assert_eq!(
        first.status, 304,
        "the complete response is stored, and the condition answered: {}",
        first.head
    );
    assert!(field(&server.head(0), "if-none-match").is_none(), "{}", server.head(0));
    let second = get(&proxy, "/a", "");
    assert_eq!((second.status, text(&second).as_str()), (200, "0123456789"));
    assert!(field(&second.head, "age").is_some(), "{}", second.head);
    assert!(cache_status(&second).starts_with("weir; hit; ttl="), "{}", second.head);
    for (fields, status, content, content_range) in [
        ("If-None-Match: W/\"a\"\r\n", 304, "", None),
        ("If-None-Match: \"b\"\r\n", 200, "0123456789", None),
        ("If-Modified-Since: Sun, 02 Nov 2025 00:00:00 GMT\r\n", 304, "", None),
        ("Range: bytes=2-4\r\n", 206, "234", Some("bytes 2-4/10")),
        ("Range: bytes=-2\r\n", 206, "89", Some("bytes 8-9/10")),
        ("Range: bytes=20-\r\n", 416, "", Some("bytes */10")),
        ("Range: bytes=0-1,4-5\r\n", 200, "0123456789", None),
        ("Range: bytes=2-4\r\nIf-Range: \"a\"\r\n", 206, "234", Some("bytes 2-4/10")),
        ("Range: bytes=2-4\r\nIf-Range: \"b\"\r\n", 200, "0123456789", None),
    ] {
        let response = get(&proxy, "/a", fields);
        assert_eq!(
            (response.status, text(&response).as_str()),
            (status, content),
            "{fields}: {}",
            response.head
        );
        assert_eq!(field(&response.head, "content-range").as_deref(), content_range, "{fields}");
    }
    let mut client = proxy.client();
    client.send(b"HEAD /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.read_to_end()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(field(&head, "content-length").as_deref(), Some("10"));
    assert_eq!(server.requests(), 1);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(RESULTS, &[("cache", "main"), ("route", "main"), ("result", "hit")]), 11.0);
    assert_eq!(metrics.sum_known(RESULTS, &[("result", "miss")]), 1.0);
    let lines = proxy.wait_for_lines("access.json", 12);
    // Each core hands its lines over by itself, so their order is not that of the requests.
    let count =
        |result: &str| lines.iter().filter(|line| line.contains(&format!("\"cache\":\"{result}\""))).count();
    assert_eq!((count("miss"), count("hit")), (1, 11), "{lines:#?}");
    proxy.assert_all_returned();
}

/// Requests with these fields, to a server whose responses have those, of two users. True: the second one may get the
/// response to the first.
const SHARED: &[(&str, &str, bool)] = &[
    ("", "Cache-Control: max-age=600\r\n", true),
    ("", "Cache-Control: private, max-age=600\r\n", false),
    ("", "Cache-Control: PRIVATE, max-age=600\r\n", false),
    ("", "Cache-Control: max-age=600\r\nCache-Control: private\r\n", false),
    ("", "Cache-Control: no-store\r\n", false),
    ("", "Cache-Control: max-age=600, no-store\r\n", false),
    ("", "Cache-Control: no-cache, max-age=600\r\n", false),
    ("", "Cache-Control: max-age=600\r\nSet-Cookie: id=USER\r\n", false),
    ("", "Cache-Control: public, max-age=600\r\nSet-Cookie: id=USER\r\n", false),
    ("", "Cache-Control: max-age=600\r\nVary: *\r\n", false),
    ("", "Cache-Control: max-age=600\r\nVary: Cookie\r\n", false),
    ("", "Cache-Control: max-age=600\r\nVary: Accept-Encoding, Cookie\r\n", false),
    ("", "Cache-Control: max-age=600\r\nVary: X-Forwarded-For\r\n", false),
    ("", "Cache-Control: max-age=600\r\nVary: X-Request-Id\r\n", false),
    ("Authorization: Basic USER\r\n", "Cache-Control: max-age=600\r\n", false),
    ("Authorization: Basic USER\r\n", "Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n", false),
    ("Authorization: Basic USER\r\n", "Cache-Control: public, max-age=600\r\n", true),
    ("Authorization: Basic USER\r\n", "Cache-Control: s-maxage=600\r\n", true),
    ("Authorization: Basic USER\r\n", "Cache-Control: max-age=600, must-revalidate\r\n", true),
    ("Cache-Control: no-store\r\n", "Cache-Control: max-age=600\r\n", false),
    ("", "", false),
    ("", "Expires: 0\r\n", false),
    ("", "Pragma: no-cache\r\nCache-Control: max-age=600\r\n", true),
    ("Connection: cookie\r\n", "Cache-Control: max-age=600\r\nVary: Cookie\r\n", true),
    ("", "CDN-Cache-Control: private, max-age=600\r\nCache-Control: max-age=600\r\n", false),
    ("", "CDN-Cache-Control: max-age=600\r\nCache-Control: no-store\r\n", true),
];

#[test]
fn private_data_is_never_shared() {
    let _shared = shared_machine();
    for (request_fields, response_fields, is_shared) in SHARED {
        let server = RecordingServer::start(move |request, _| {
            let cookie = request.field("cookie").unwrap_or_default();
            let user = format!("{cookie}{}", request.field("authorization").unwrap_or_default());
            response(&response_fields.replace("USER", &user), &format!("data of {user}"))
        });
        let proxy = start(&server.server, "", "");
        let ask = |user: &str| {
            let fields = format!("Cookie: id={user}\r\n{}", request_fields.replace("USER", user));
            text(&get(&proxy, "/account", &fields))
        };
        let (first, second) = (ask("alice"), ask("bob"));
        assert_eq!(first == second, *is_shared, "{request_fields} {response_fields}: {first} {second}");
        assert_eq!(server.requests(), if *is_shared { 1 } else { 2 }, "{request_fields} {response_fields}");
        // What is apart stays apart.
        assert_eq!(ask("alice"), first, "{request_fields} {response_fields}");
    }
}

#[test]
fn a_route_with_authentication_shares_only_what_is_public() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|request, number| {
        let control = if request.target() == "/public" { "public, " } else { "" };
        response(&format!("Cache-Control: {control}max-age=600\r\n"), &format!("response {number}"))
    });
    let directory = crate::support::temp_dir();
    let users = directory.path().join("users");
    // bcrypt of "secret".
    std::fs::write(&users, "ada:$2y$04$UcUWuAB8P7eRIy1rmPHrNu5r4hMmeDM5fvKmvWiXrU1vK5Qpb0vbu\n").unwrap();
    let auth = format!("auth = {{ basic = {{ users-file = \"{}\" }} }}", users.display());
    let proxy = start(&server.server, "", &auth);
    for target in ["/public", "/own"] {
        assert_eq!(get(&proxy, target, "").status, 401);
    }
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum(RESULTS, &[]), 0.0, "nobody gets behind the authentication: {metrics}");
    assert_eq!(server.requests(), 0);
}

#[test]
fn vary_keeps_variants_apart() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|request, number| {
        let language = request.field("accept-language").unwrap_or_default();
        response("Cache-Control: max-age=600\r\nVary: Accept-Language\r\n", &format!("{language} {number}"))
    });
    let proxy = start(&server.server, "", "");
    let ask = |language: &str| text(&get(&proxy, "/", &format!("Accept-Language: {language}\r\n")));
    assert_eq!((ask("de"), ask("fr")), ("de 1".into(), "fr 2".into()));
    assert_eq!((ask("de"), ask("fr")), ("de 1".into(), "fr 2".into()));
    assert_eq!(text(&get(&proxy, "/", "")), " 3");
    assert_eq!(server.requests(), 3);
}

#[test]
fn keys_have_the_scheme_the_host_and_the_target() {
    let _shared = shared_machine();
    let server = RecordingServer::with_fields("Cache-Control: max-age=600\r\n");
    let proxy = start(&server.server, "", "");
    let ask = |host: &str, target: &str| {
        text(&proxy.client().get_with_fields(target, &format!("Host: {host}\r\n")))
    };
    assert_eq!(ask("a", "/x?b=1"), "response 1");
    assert_eq!(ask("A", "/x?b=1"), "response 1");
    assert_eq!(ask("b", "/x?b=1"), "response 2");
    assert_eq!(ask("a", "/x?b=2"), "response 3");
    assert_eq!(ask("a", "http://a/x?b=1"), "response 1");
    assert_eq!(ask("a", "/x"), "response 4");
    let trusting = ProxyUnderTest::weir(
        &config(&server.server.authority, "", "", "")
            .replace("bind = \"127.0.0.1:0\"\n", "bind = \"127.0.0.1:0\"\ntrusted = \"127.0.0.0/8\"\n"),
    );
    let ask_with = |proto: &str| text(&get(&trusting, "/s", &format!("X-Forwarded-Proto: {proto}\r\n")));
    assert_eq!((ask_with("http"), ask_with("https")), ("response 5".into(), "response 6".into()));
    assert_eq!((ask_with("http"), ask_with("https")), ("response 5".into(), "response 6".into()));
    let own_key = ProxyUnderTest::weir(&config(&server.server.authority, "", ", key = \"{path}\"", ""));
    let ask = |host: &str, target: &str| {
        text(&own_key.client().get_with_fields(target, &format!("Host: {host}\r\n")))
    };
    assert_eq!((ask("a", "/x?b=1"), ask("b", "/x?b=2")), ("response 7".into(), "response 7".into()));
}

#[test]
fn conditions_and_directives_of_requests_count() {
    let _shared = shared_machine();
    let server = RecordingServer::with_fields("Cache-Control: max-age=600\r\n");
    let route = ", bypass = { header = { x-bypass = true } }, no-store = { header = { x-private = true } }";
    let proxy = start(&server.server, route, "");
    let unsatisfied = get(&proxy, "/a", "Cache-Control: only-if-cached\r\n");
    assert_eq!((unsatisfied.status, server.requests()), (504, 0));
    assert_eq!(text(&get(&proxy, "/a", "X-Private: 1\r\n")), "response 1");
    assert_eq!(text(&get(&proxy, "/a", "")), "response 2");
    assert_eq!(text(&get(&proxy, "/a", "X-Private: 1\r\n")), "response 2", "it may use what is stored");
    assert_eq!(text(&get(&proxy, "/a", "Cache-Control: only-if-cached\r\n")), "response 2");
    assert_eq!(text(&get(&proxy, "/a", "X-Bypass: 1\r\n")), "response 3");
    assert_eq!(text(&get(&proxy, "/a", "")), "response 3", "that of a bypass is stored");
    assert_eq!(text(&get(&proxy, "/a", "Cache-Control: no-cache\r\n")), "response 4");
    assert_eq!(text(&get(&proxy, "/a", "Pragma: no-cache\r\n")), "response 5");
    assert_eq!(text(&get(&proxy, "/a", "Cache-Control: max-age=0\r\n")), "response 6");
    assert_eq!(text(&get(&proxy, "/a", "If-Match: \"a\"\r\n")), "response 7");
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known(RESULTS, &[("result", "unsatisfied")]), 1.0);
    assert_eq!(metrics.sum_known(RESULTS, &[("result", "bypass")]), 2.0);
    assert_eq!(metrics.sum_known(NOT_STORED, &[("reason", "rule")]), 1.0);
    let ignoring = start(&server.server, ", ignore-request-directives = true, status-field = false", "");
    let first = text(&get(&ignoring, "/a", ""));
    let second = get(&ignoring, "/a", "Cache-Control: no-cache\r\n");
    assert_eq!((text(&second), cache_status(&second)), (first, String::new()));
}

#[test]
fn the_changes_of_a_route_and_its_coding_come_behind_the_cache() {
    let _shared = shared_machine();
    let content: &'static str = Box::leak("hello ".repeat(1_000).into_boxed_str());
    let server = RecordingServer::start(move |_, _| {
        response("Cache-Control: max-age=600\r\nContent-Type: text/plain\r\nX-Server: 1\r\n", content)
    });
    let route = "compression = { codings = \"gzip\" }\nremove-response-header = \"x-server\"\n\
                 set-response-header = { x-path = \"{path}\" }";
    let proxy = start(&server.server, "", route);
    for fields in ["", "Accept-Encoding: gzip\r\n", ""] {
        let mut client = proxy.client();
        client.send(format!("GET /p HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n").as_bytes());
        let bytes = client.read_to_end();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        assert_eq!(field(&head, "x-path").as_deref(), Some("/p"), "{head}");
        assert!(field(&head, "x-server").is_none(), "{head}");
        assert_eq!(field(&head, "content-encoding").is_some(), !fields.is_empty(), "{head}");
        match fields {
            "" => assert_eq!(&bytes[end..], content.as_bytes()),
            _ => assert!(bytes.len() < 1_000, "{}", bytes.len()),
        }
    }
    assert_eq!(server.requests(), 1);
}

#[test]
fn default_lifetimes_and_cookies_are_those_of_the_route() {
    let _shared = shared_machine();
    let server = RecordingServer::start(|request, number| match request.target() {
        "/missing" => format!("HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n{number}").into_bytes(),
        _ => response("Set-Cookie: a=b\r\n", &number.to_string()),
    });
    let route = ", valid = [{ status = \"200,4xx\", for = \"10m\" }], remove-set-cookie = true";
    let proxy = start(&server.server, route, "");
    for target in ["/", "/missing"] {
        let (first, second) = (get(&proxy, target, ""), get(&proxy, target, ""));
        assert_eq!((first.status, first.body), (second.status, second.body));
        assert!(field(&first.head, "set-cookie").is_none() && field(&second.head, "set-cookie").is_none());
    }
    assert_eq!(server.requests(), 2);
}

#[test]
fn clients_of_http2_share_it() {
    let _shared = shared_machine();
    let content: &'static str = Box::leak("0123456789abcdef".repeat(20_000).into_boxed_str());
    let server = RecordingServer::start(move |_, _| response("Cache-Control: max-age=600\r\n", content));
    let proxy = start(&server.server, "", "");
    let adapter = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         forwarding = {{ x-forwarded = false, via = false, request-id = false }}\n\
         [pool.app]\nservers = [\"{}\"]\nhttp = \"2\"\n",
        proxy.authority()
    ));
    for via in [&adapter, &proxy, &adapter] {
        assert_eq!(text(&get(via, "/big", "")), content);
    }
    assert_eq!(get(&adapter, "/big", "Range: bytes=1-3\r\n").body, b"123");
    assert_eq!(server.requests(), 1);
    let lines = proxy.wait_for_lines("access.json", 4);
    assert_eq!(lines.iter().filter(|line| line.contains("HTTP/2.0")).count(), 3, "{lines:#?}");
}
