//! Request heads on their way through `weir proxy`: the path that is routed is the path that is
//! forwarded, fields are set, added and removed exactly, and nobody but trusted peers says who a
//! client is. Not for framing (`smuggling`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::proxy_faults::{HEAD, line_about};
use crate::support::beside_others;
use crate::support::client::Client;
use crate::support::door::Door;
use crate::support::proxies::{Recorder, Reply};
use crate::support::strict::Message;

/// An origin that answers each request with 200.
fn origin() -> Recorder {
    Recorder::start(|_| Reply::Stay(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()]))
}

/// A proxy before it; the texts go behind the keys of the listener and of its only route.
fn door(origin: &Recorder, listener: &str, route: &str) -> Door {
    Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{listener}\n[[route]]\npool = \"app\"\n{route}\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority()
    ))
}

/// The status of the response, and what the origin got.
fn sent(door: &Door, origin: &Recorder, request: &str) -> (u16, Option<Message>) {
    let mut client = door.client();
    client.send(request.as_bytes());
    let status = client.answer().map_or(0, |answer| answer.status);
    let seen = origin.so_far().pop().map(|seen| seen.request.expect("a request that is whole"));
    (status, seen)
}

fn get(door: &Door, origin: &Recorder, target: &str, fields: &str) -> (u16, Option<Message>) {
    sent(door, origin, &format!("GET {target} HTTP/1.1\r\nHost: client.example\r\n{fields}\r\n"))
}

#[test]
fn a_field_that_a_route_sets_stands_once() {
    let _shared = beside_others();
    let origin = origin();
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
    let door_set =
        door(&origin, "trusted = [\"127.0.0.1\"]\nforwarding = { forwarded = true }", &route);
    let own =
        "X-Forwarded-For: 1.1.1.1\r\nX-Request-Id: mine\r\nForwarded: for=a\r\nVia: 1.0 a\r\n";
    let (status, request) = get(&door_set, &origin, "/set", own);
    let request = request.unwrap();
    for name in names {
        assert_eq!(
            (status, request.all(name)),
            (200, vec!["set.example"]),
            "{name} in {request:?}"
        );
    }
    let removed = names[1..].join("\", \"");
    let route = format!("remove-request-header = [\"{removed}\"]");
    let door_removed = door(&origin, "forwarding = { forwarded = true }", &route);
    let (_, request) = get(&door_removed, &origin, "/removed", own);
    let request = request.unwrap();
    for name in &names[1..] {
        assert!(request.all(name).is_empty(), "{name} in {request:?}");
    }
    let route = "add-request-header = { x-forwarded-for = \"9.9.9.9\", via = \"1.1 b\" }";
    let door_added = door(&origin, "", route);
    let (_, request) = get(&door_added, &origin, "/added", own);
    let request = request.unwrap();
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1", "9.9.9.9"]);
    assert_eq!(request.all("via").last(), Some(&"1.1 b"));
}

#[test]
fn an_answer_of_our_own_has_each_field_once() {
    let _shared = beside_others();
    let origin = origin();
    let config =
        "set-response-header = { date = \"now\", content-type = \"text/x\", allow = \"GET\" }";
    let door = Door::weir(&format!(
        "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = \"/set\"\ndeny = 405\n{config}\n\
         [[route]]\npath = \"/plain\"\ndeny = 405\n[[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority()
    ));
    let set = door.get("/set").head.to_ascii_lowercase();
    for field in ["date: now\r\n", "content-type: text/x\r\n", "allow: get\r\n"] {
        let name = &field[..=field.find(':').unwrap()];
        assert!(set.contains(field) && set.matches(&format!("\n{name}")).count() == 1, "{set}");
    }
    let plain = door.get("/plain").head.to_ascii_lowercase();
    assert!(plain.contains("\r\ndate: ") && plain.contains(" gmt\r\n"), "{plain}");
    assert!(plain.contains("\r\nallow: head, post"), "{plain}");
    let hops = |method: &str, hops: &str| {
        let fields = format!("Host: a\r\nMax-Forwards: {hops}\r\n");
        sent(&door, &origin, &format!("{method} /far HTTP/1.1\r\n{fields}\r\n"))
    };
    assert!(
        matches!(hops("OPTIONS", "0"), (200, None)) && matches!(hops("TRACE", "0"), (405, None))
    );
    let forwarded = |(status, request): (u16, Option<Message>)| {
        (status, request.unwrap().one("max-forwards").map(str::to_owned))
    };
    assert_eq!(forwarded(hops("OPTIONS", "7")), (200, Some("6".into())));
    assert_eq!(forwarded(hops("GET", "0")), (200, Some("0".into())));
}

/// Spellings of paths, and what reaches the origin of them; empty: nothing.
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
    let _shared = beside_others();
    let origin = origin();
    let with = |rule: &str| {
        Door::weir(&format!(
            "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{rule}\n[[route]]\n\
             path-prefix = \"/admin\"\ndeny = true\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority()
        ))
    };
    let (normal, strict, raw) = (with(""), with("path = \"strict\""), with("path = \"raw\""));
    for (target, status, forwarded) in PATHS {
        let (got, request) = get(&normal, &origin, target, "");
        let seen = request.as_ref().map_or("", Message::target);
        assert_eq!((got, seen), (*status, *forwarded), "{target}");
        let (got, request) = get(&strict, &origin, target, "");
        let seen = request.as_ref().map_or("", Message::target);
        let may = [(400, ""), (403, ""), (200, *target)];
        assert!(
            may.contains(&(got, seen)) && (got != 200 || seen == *forwarded),
            "{target}: {got} {seen}"
        );
    }
    for (target, wanted) in [("/a/../b%2fc", Some("/a/../b%2fc")), ("/x/../admin", None)] {
        let (_, request) = get(&raw, &origin, target, "");
        assert_eq!(request.as_ref().map(Message::target), wanted, "{target}");
    }
}

const CLAIMS: &str = "X-Forwarded-For: 6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\n\
    X-Client-IP: 6.6.6.6\r\nX-Original-URL: /6.6.6.6\r\nX-Rewrite-URL: /6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
    X-Forwarded-User: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nX-Real_IP: 6.6.6.6\r\n";

/// A request whose trailer section repeats what its head claims.
fn claiming(target: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\n{CLAIMS}Transfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\n{CLAIMS}\r\n"
    )
}

#[test]
fn a_stranger_says_nothing_about_who_it_is() {
    let _shared = beside_others();
    let origin = origin();
    let stranger = door(&origin, "", "");
    let (status, request) = sent(&stranger, &origin, &claiming("/stranger"));
    let request = request.unwrap();
    assert_eq!(status, 200);
    let said = request.fields.iter().chain(&request.trailers);
    let bad: Vec<_> = said.filter(|(_, value)| value.contains("6.6.6.6")).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(request.trailers, [("X-Sum".to_owned(), "1".to_owned())]);

    let trusted = door(
        &origin,
        "trusted = [\"127.0.0.1\"]\nforwarding = { forwarded-for = \"if-none\" }",
        "",
    );
    let request = sent(&trusted, &origin, &claiming("/trusted")).1.unwrap();
    for name in
        ["X-Real-IP", "True-Client-IP", "X_Forwarded_For", "X-Forwarded-User", "X-Forwarded-For"]
    {
        assert_eq!(request.all(name), ["6.6.6.6"], "{name} in {request:?}");
    }
    let reject = door(&origin, "underscores = \"reject\"", "");
    assert!(matches!(get(&reject, &origin, "/", "X_A: 1\r\n"), (400, None)));
    assert_eq!(get(&reject, &origin, "/", "X-A: 1\r\n").0, 200);
    let pass = door(&origin, "underscores = \"pass\"", "");
    assert_eq!(get(&pass, &origin, "/", "X_A: 1\r\n").1.unwrap().all("x_a"), ["1"]);
}

#[test]
fn a_stranger_takes_no_route_by_a_field_that_is_not_believed() {
    let _shared = beside_others();
    let origin = origin();
    let route = "[[route]]\nheader = { x-forwarded-proto = \"https\" }\npool = \"app\"\n[[route]]\ndeny = true\n";
    let with = |trusted: &str| {
        Door::weir(&format!(
            "{HEAD}[listener.web]\nbind = \"127.0.0.1:0\"\n{trusted}\n{route}[pool.app]\nservers = [\"{}\"]\n",
            origin.authority()
        ))
    };
    let field = "X-Forwarded-Proto: https\r\n";
    assert_eq!(get(&with(""), &origin, "/", field).0, 403);
    assert_eq!(get(&with("trusted = [\"127.0.0.1\"]"), &origin, "/", field).0, 200);
}

#[test]
fn peers_on_a_unix_socket_are_believed_where_the_config_says_so() {
    let _shared = beside_others();
    let origin = origin();
    for (trusted, wanted) in [("", "unknown"), ("trusted = [\"unix\"]", "1.1.1.1, unknown")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _door = Door::weir(&format!(
            "{HEAD}[listener.web]\nbind = \"unix:{}\"\npool = \"app\"\n{trusted}\n[pool.app]\nservers = [\"{}\"]\n",
            path.display(),
            origin.authority()
        ));
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n").unwrap();
        let mut some = [0; 512];
        assert!(stream.read(&mut some).unwrap() > 0);
        let request = origin.request();
        assert_eq!(request.all("x-forwarded-for"), [wanted]);
    }
}

#[test]
fn a_body_that_comes_with_its_head_is_counted() {
    let _shared = beside_others();
    let origin = origin();
    let door = door(&origin, "", "");
    let request = format!(
        "POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{}",
        "x".repeat(1000)
    );
    let second = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = door.client();
    client.send(format!("{request}{second}").as_bytes());
    assert_eq!((client.answer().unwrap().status, client.answer().unwrap().status), (200, 200));
    for (part, bytes) in [("/whole", request.len()), ("/second", second.len())] {
        let line = door.wait_for_lines_with("access.json", part, 1).remove(0);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["bytes_in"], bytes, "{line}");
    }
}

#[test]
fn empty_lines_before_a_request_are_ignored_and_nothing_follows_a_connect() {
    let _shared = beside_others();
    let origin = origin();
    let door = door(&origin, "", "");
    let mut client = door.client();
    client.send(b"\r\n\r\nGET /first HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.answer().unwrap().status, client.answer().unwrap().status), (200, 200));
    origin.so_far();
    let mut client = door.client();
    client.send(
        b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\nGET /inner HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let answer = client.answer().unwrap();
    assert!(answer.status == 405 && answer.head.contains("Connection: close"), "{answer:?}");
    assert!(client.rest().is_empty() && origin.so_far().is_empty());
    assert_eq!(line_about(&door, "b:443").status, Some(405));
}

#[test]
fn a_relay_keeps_where_the_client_connected_to() {
    let _shared = beside_others();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let door = Door::weir(&format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\nproxy-protocol = true\n\
         trusted = [\"127.0.0.1\"]\n[pool.app]\nservers = [\"{}\"]\nsend-proxy-protocol = \"v1\"\n",
        server.local_addr().unwrap()
    ));
    let mut client = Client::connect(door.authority());
    let header = b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 8443\r\n";
    client.send(header);
    let (mut stream, _) = server.accept().unwrap();
    let mut got = vec![0; header.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, header);
}

#[test]
fn an_upgrade_may_have_a_body() {
    let _shared = beside_others();
    let origin = origin();
    let door = door(&origin, "", "");
    let fields = "Connection: upgrade\r\nUpgrade: tcp\r\nContent-Length: 2\r\n";
    let request = format!("POST /exec HTTP/1.1\r\nHost: a\r\n{fields}\r\n{{}}");
    let (status, request) = sent(&door, &origin, &request);
    let request = request.unwrap();
    assert_eq!((status, request.all("upgrade"), &request.body[..]), (200, vec!["tcp"], &b"{}"[..]));
}

#[test]
fn requests_are_counted_from_the_start() {
    let _shared = beside_others();
    let origin = origin();
    let door = Door::weir(&format!(
        "admin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n[pool.app]\n\
         servers = [\"{}\"]\n",
        origin.authority()
    ));
    let metrics = door.metrics();
    let samples: Vec<_> = metrics.of("weir_requests_total", &[("listener", "web")]).collect();
    let none = samples.iter().all(|sample| sample.value == 0.0);
    assert!(none && !samples.is_empty(), "{samples:?}");
}
