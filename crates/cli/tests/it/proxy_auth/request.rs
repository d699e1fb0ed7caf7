//! Requests to a service that decides.

use std::io;

use super::{check, count, get, request, start, text};
use crate::support::faulty_origins::field;
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;
use crate::support::tls_peers::Certificates;

/// Decides by `Authorization` of the request, which is in the field `X-Asked` of its response.
fn decide(peer: &mut ScriptPeer) -> io::Result<()> {
    while let Some(head) = peer.request()? {
        let length = field(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        peer.skip_content(length)?;
        let asked: Vec<String> =
            head.lines().skip(1).map(|line| line.to_ascii_lowercase().replace(": ", "=")).collect();
        let asked = format!("{};{}", head.lines().next().unwrap_or_default(), asked.join(";"));
        let response = match &*field(&head, "authorization").unwrap_or_default() {
            "allow" => format!("200 OK\r\nX-User: ann\r\nX-Groups: a, b\r\nSet-Cookie: s=1\r\nX-Other: 1\r\nX-Asked: {asked}\r\nContent-Length: 2\r\n\r\nok"),
            "no-content" => "204 No Content\r\n\r\n".to_owned(),
            "login" => "302 Found\r\nLocation: https://login.example/\r\nSet-Cookie: state=x\r\nX-Other: 1\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "forbid" => "403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<b>no</b>".to_owned(),
            "large" => format!("403 Forbidden\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000)),
            "broken" => "500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "missing" => "404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "malformed" => return peer.send(b"nonsense\r\n\r\n"),
            "close" => return Ok(()),
            "stuck" => continue,
            _ => "401 Unauthorized\r\nWWW-Authenticate: Custom x=\"y\"\r\nContent-Length: 5\r\n\r\nlogin".to_owned(),
        };
        peer.send(format!("HTTP/1.1 {response}").as_bytes())?;
    }
    Ok(())
}

fn routes(auth: &ScriptedServer, more: &str) -> String {
    format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\n\
         auth = {{ request = {{ pool = 'auth', path = '/verify?x=1', timeout = '500ms', server-headers = ['x-user', 'x-groups', 'x-asked'], client-headers = 'set-cookie', user-header = 'x-user'{more} }} }}\n\
         [[route]]\npath-prefix = '/open'\nauth = false\npool = 'app'\n\
         [[route]]\npath-prefix = '/own'\nreturn = {{ body-template = '{{auth.user}}' }}\n\
         [[route]]\npool = 'app'\nset-response-header = {{ x-for = '{{auth.user:-nobody}}' }}\n\
         [pool.auth]\nservers = ['{}']\nretries = 0\n",
        auth.authority
    )
}

fn auth(value: &str) -> String {
    format!("Authorization: {value}\r\n")
}

#[test]
fn a_service_allows_requests_and_adds_fields() {
    let _shared = shared_machine();
    let service = ScriptedServer::start(decide);
    let (proxy, _origin) = start(&routes(&service, ""), &[]);
    let spoofed = "X-User: root\r\nx-USER: root\r\nX-Groups: root\r\nX-Asked: root\r\nX-Forwarded-Method: DELETE\r\nX-Forwarded-Uri: /admin\r\nCookie: c=d\r\nX-Private: p\r\n";
    let response =
        request(&proxy, "POST /a/b?q=1", &format!("{}{spoofed}Content-Length: 0\r\n", auth("allow")));
    assert_eq!(response.status, 200, "{}", response.head);
    let head = text(&response);
    assert!(
        head.contains("\r\nx-user: ann\r\n")
            && head.contains("\r\nx-groups: a, b\r\n")
            && !head.contains("root"),
        "{head}"
    );
    assert!(!head.contains("x-other") && head.contains("authorization: allow"), "{head}");
    let asked = field(&head, "x-asked").unwrap_or_default();
    for part in [
        "get /verify?x=1 http/1.1;",
        ";host=test;",
        ";x-forwarded-method=post;",
        ";x-forwarded-uri=/a/b?q=1;",
        ";x-forwarded-host=test;",
        ";x-forwarded-proto=http;",
        ";x-forwarded-for=127.0.0.1;",
        ";authorization=allow",
        ";cookie=c=d",
    ] {
        assert!(format!("{asked};").contains(part), "{part}: {asked}");
    }
    assert!(!asked.contains("private") && !asked.contains("delete") && !asked.contains("/admin"), "{asked}");
    assert_eq!(field(&response.head, "set-cookie").as_deref(), Some("s=1"));
    assert_eq!(field(&response.head, "x-for").as_deref(), Some("ann"));
    assert_eq!((get(&proxy, "/a", &auth("no-content")).status, get(&proxy, "/open", "").status), (200, 200));
    assert_eq!(text(&get(&proxy, "/own", &auth("allow"))), "ann");
    let metrics = proxy.metrics();
    assert_eq!((count(&metrics, "request", "allowed"), count(&metrics, "request", "denied")), (3.0, 0.0));
}

#[test]
fn denials_reach_the_client_and_failures_are_closed() {
    let _shared = shared_machine();
    let service = ScriptedServer::start(decide);
    let (proxy, _origin) = start(&routes(&service, ""), &[]);
    let denied = get(&proxy, "/a", "");
    assert_eq!((denied.status, text(&denied)), (401, "login".to_owned()));
    assert_eq!(field(&denied.head, "www-authenticate").as_deref(), Some("Custom x=\"y\""));
    let login = get(&proxy, "/a", &auth("login"));
    assert_eq!(
        (login.status, field(&login.head, "location").as_deref()),
        (302, Some("https://login.example/"))
    );
    assert!(
        field(&login.head, "set-cookie").as_deref() == Some("state=x")
            && field(&login.head, "x-other").is_none()
    );
    let forbidden = get(&proxy, "/own", &auth("forbid"));
    assert_eq!(
        (forbidden.status, text(&forbidden), field(&forbidden.head, "content-type").as_deref()),
        (403, "<b>no</b>".to_owned(), Some("text/html"))
    );
    let large = get(&proxy, "/a", &auth("large"));
    assert_eq!((large.status, large.body.len()), (403, 0));
    for fault in ["broken", "missing", "malformed", "close", "stuck"] {
        let response = get(&proxy, "/a", &auth(fault));
        assert_eq!(
            (response.status, field(&response.head, "retry-after").as_deref()),
            (503, Some("1")),
            "{fault}"
        );
    }
    let metrics = proxy.metrics();
    assert_eq!((count(&metrics, "request", "denied"), count(&metrics, "request", "unavailable")), (4.0, 5.0));
    let ends = |end| metrics.sum_known("weir_requests_total", &[("end", end)]);
    assert_eq!((ends("unauthorized"), ends("auth_unavailable")), (4.0, 5.0));
    // The service is gone: no request passes.
    drop(service);
    assert_eq!((get(&proxy, "/a", &auth("allow")).status, get(&proxy, "/open", "").status), (503, 200));
}

#[test]
fn answers_are_used_again_by_their_key() {
    let _shared = shared_machine();
    let service = ScriptedServer::start(decide);
    let config = routes(&service, ", cache-key = '{header.authorization} {path}'");
    let (proxy, _origin) = start(&config, &[]);
    for _ in 0..5 {
        let response = get(&proxy, "/a", &auth("allow"));
        assert!(response.status == 200 && text(&response).contains("\r\nx-user: ann\r\n"));
    }
    assert_eq!(
        (
            get(&proxy, "/b", &auth("allow")).status,
            get(&proxy, "/a", "").status,
            get(&proxy, "/a", "").status
        ),
        (200, 401, 401)
    );
    let metrics = proxy.metrics();
    assert_eq!(
        (
            count(&metrics, "request", "allowed"),
            count(&metrics, "request", "cached"),
            count(&metrics, "request", "denied")
        ),
        (2.0, 4.0, 2.0)
    );
    let fault = routes(&service, ", cache-key = 'always'") + "[pool.app]\nservers = ['127.0.0.1:1']\n";
    let (code, output) = check(&fault, &[], &["--check"]);
    assert!(code == Some(2) && output.contains("'always' is not the name of a value"), "{output}");
}

#[test]
fn the_service_is_asked_over_tls_and_only_if_its_certificate_is_right() {
    let _shared = shared_machine();
    let (Some(certificates), Some(other)) = (Certificates::create(), Certificates::create()) else { return };
    let service = ScriptedServer::start(decide);
    // Ends TLS in front of the service.
    let front = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         tls = {{ certificates = ['{}'] }}\n[pool.app]\nservers = [\"{}\"]\n",
        certificates.file("both.pem"),
        service.authority
    ));
    let config = |ca: &Certificates| {
        let plain = format!("servers = ['{}']\nretries = 0\n", service.authority);
        let tls = format!(
            "servers = ['{}']\nretries = 0\ntls = {{ ca = '{}' }}\n",
            front.authority(),
            ca.file("ca.pem")
        );
        routes(&service, "").replace(&plain, &tls)
    };
    let (proxy, _origin) = start(&config(&certificates), &[]);
    for _ in 0..3 {
        let response = get(&proxy, "/a", &auth("allow"));
        assert!(
            response.status == 200 && text(&response).contains("\r\nx-user: ann\r\n"),
            "{}",
            response.head
        );
    }
    let denied = get(&proxy, "/a", "");
    assert_eq!((denied.status, text(&denied)), (401, "login".to_owned()));
    let metrics = proxy.metrics();
    assert_eq!((count(&metrics, "request", "allowed"), count(&metrics, "request", "denied")), (3.0, 1.0));
    // The connection is kept for the next request.
    assert_eq!(metrics.sum("weir_server_tls_handshakes_total", &[("pool", "auth")]), 1.0);
    let asked = || front.metrics().sum("weir_requests_total", &[("end", "done")]);
    assert_eq!(asked(), 4.0);
    proxy.assert_all_returned();
    let (proxy, _origin) = start(&config(&other), &[]);
    assert_eq!(get(&proxy, "/a", &auth("allow")).status, 503);
    assert_eq!(count(&proxy.metrics(), "request", "unavailable"), 1.0);
    assert_eq!(asked(), 4.0);
}
