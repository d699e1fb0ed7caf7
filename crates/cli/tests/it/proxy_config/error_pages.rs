//! Error pages: the proxy's own and servers' errors, by the form that a client accepts, and during maintenance.

use std::fs;

use super::{body_text, send_request};
use crate::support::faulty_origins::{field, respond_to_each};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, run_weir, shared_machine, temp_dir, within};

/// Starts an origin that responds with the status of the last part of the path.
fn status_server() -> ScriptedServer {
    respond_to_each(|message, _| {
        let path = message.target().split('?').next().unwrap_or_default();
        let status = path.rsplit('/').next().unwrap_or_default().to_owned();
        let fields = "WWW-Authenticate: Basic realm=\"x\"\r\nX-Secret: trace\r\nSet-Cookie: a=1\r\n";
        let framing = match status.as_str() {
            "502" => "Transfer-Encoding: chunked\r\n\r\n7\r\nof-its-\r\n3\r\nown\r\n0\r\n\r\n".to_owned(),
            "204" => "\r\n".to_owned(),
            _ => "Content-Length: 10\r\n\r\nof-its-own".to_owned(),
        };
        Some(format!("HTTP/1.1 {status} X\r\n{fields}{framing}").into_bytes())
    })
}

#[test]
fn errors_have_the_page_for_their_status_in_the_form_that_the_client_accepts() {
    let _shared = shared_machine();
    let (origin, pages) = (status_server(), temp_dir());
    let page = |name: &str, content: &str| {
        let path = pages.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (html, json) = (page("any.html", "<p>sorry {x}"), page("any.json", "{\"error\":\"sorry\"}"));
    let own = page("own.html", "<p>{status} {reason} at {path} <i>{header.x-in:-no}</i> by {server}");
    let text = page("own.txt", "{status} {query.q}");
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n\
         [[error-page]]\nstatus = \"4xx,503\"\nhtml = \"{html}\"\njson = \"{json}\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath-prefix = \"/own\"\npool = \"app\"\n\
         [[route.error-page]]\nstatus = \"401,404,5xx\"\nreplace = \"all\"\nvalues = true\nhtml = \"{own}\"\ntext = \"{text}\"\n\
         [[route]]\npath-prefix = \"/plain\"\npool = \"app\"\n\
         [[route]]\npath-prefix = \"/denied\"\ndeny = 403\n\
         [[route]]\npath-prefix = \"/down\"\npool = \"down\"\n\
         [pool.app]\nservers = [{{ address = \"{}\", name = \"one\" }}]\n\
         [pool.down]\nservers = [\"127.0.0.1:1\"]\n",
        origin.authority
    ));
    let send = |path: &str, fields: &str| {
        let response = send_request(proxy.authority(), &format!("GET {path}"), fields);
        let content_type = field(&response.head, "content-type").unwrap_or_default();
        (response.status, content_type, body_text(&response), response.head)
    };
    // The proxy's own: without a route, by a route, and for a server that is not there.
    for (path, status) in [("/none", 404), ("/denied", 403), ("/down", 503)] {
        let (found, content_type, body, _) = send(path, "Accept: text/html, */*;q=0.8\r\n");
        assert_eq!(
            (found, &*content_type, &*body),
            (status, "text/html; charset=utf-8", "<p>sorry {x}"),
            "{path}"
        );
        let (found, content_type, body, _) = send(path, "Accept: application/json\r\n");
        let expected = (status, "application/json", "{\"error\":\"sorry\"}");
        assert_eq!((found, &*content_type, &*body), expected, "{path}");
    }
    // A server's content stays without `replace`, and where no page has its status.
    for path in ["/plain/404", "/own/403", "/own/200"] {
        assert_eq!(send(path, "").2, "of-its-own", "{path}");
    }
    for status in [401, 404, 500, 502] {
        let (found, _, body, head) = send(&format!("/own/{status}"), "X-In: <b>\r\n");
        assert_eq!(found, status);
        let reason = head.split(' ').nth(2).unwrap().split("\r\n").next().unwrap();
        assert!(body.starts_with(&format!("<p>{status} {reason}")), "{body}");
        assert!(body.ends_with(&format!("at /own/{status} <i>&lt;b&gt;</i> by one")), "{body}");
        let kept = ["www-authenticate", "set-cookie", "x-secret"].map(|name| field(&head, name).is_some());
        assert_eq!(kept, [true, true, false], "{head}");
    }
    assert_eq!(send("/own/500?q=1", "Accept: text/plain\r\n").2, "500 1");
    let mut client = proxy.client();
    client.send(b"HEAD /own/500 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.read_to_end()).unwrap();
    assert!(head.starts_with("HTTP/1.1 500 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(field(&head, "content-length").is_some_and(|length| length != "0"), "{head}");
    proxy.assert_all_returned();
}

#[test]
fn a_connection_survives_replaced_contents_on_both_sides() {
    let _shared = shared_machine();
    let (origin, pages) = (status_server(), temp_dir());
    let path = pages.path().join("page.txt");
    fs::write(&path, "page").unwrap();
    let config = format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n\
         [[error-page]]\nstatus = \"5xx\"\nreplace = \"all\"\ntext = \"{}\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        path.display(),
        origin.authority
    );
    let proxy = ProxyUnderTest::weir(&config);
    let mut client = proxy.client();
    for target in ["/500", "/200", "/502", "/501", "/500"] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes());
        let response = client.read_response().expect(target);
        let expected = if target == "/200" { "of-its-own" } else { "page" };
        assert_eq!(body_text(&response), expected, "{target}");
        assert_eq!(response.status, target[1..].parse::<u16>().unwrap());
    }
    // Only the chunked content is not known to be whole when its head arrives.
    assert_eq!(origin.connections(), 2);
    // A reload reads the files again.
    fs::write(&path, "new").unwrap();
    proxy.reload(&config);
    assert!(within(EVENT_TIMEOUT, || body_text(&proxy.get("/500")) == "new"));
}

#[test]
fn maintenance_stops_all_pools_and_not_the_routes_that_respond_themselves() {
    let _shared = shared_machine();
    let (origin, pages) = (status_server(), temp_dir());
    let path = pages.path().join("page.html");
    fs::write(&path, "back soon").unwrap();
    let config = format!(
        "threads = 2\ncontrol = \"HOME/weir.sock\"\n\
         [[error-page]]\nstatus = \"503\"\nhtml = \"{}\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/health\"\nreturn = {{ body-file = \"{}\" }}\n\
         [[route]]\npath-prefix = \"/b\"\npool = \"b\"\n[[route]]\npool = \"a\"\n\
         [pool.a]\nservers = [\"{}\"]\n[pool.b]\nservers = [{{ address = \"{}\", name = \"one\" }}]\n",
        path.display(),
        path.display(),
        origin.authority,
        origin.authority
    );
    let proxy = ProxyUnderTest::weir(&config);
    let socket = proxy.file("weir.sock");
    let ctl = |words: &str| {
        let arguments = ["ctl", "--socket", socket.to_str().unwrap()].into_iter().chain(words.split(' '));
        let output = run_weir(&arguments.collect::<Vec<_>>());
        assert_eq!(output.code, 0, "{words}: {}", output.stderr);
        output.stdout
    };
    let statuses = || ["/health", "/200", "/b/200"].map(|path| proxy.get(path).status);
    assert_eq!(statuses(), [200; 3]);
    assert_eq!(body_text(&proxy.get("/health")), "back soon");
    assert!(ctl("maintenance on").contains("2 pools: maint"));
    assert_eq!(statuses(), [200, 503, 503]);
    assert_eq!(body_text(&proxy.get("/200")), "back soon");
    // It outlives a reload, and a server's own state is another thing.
    proxy.reload(&config.replace("threads = 2", "threads = 2\ndrain-timeout = \"9s\""));
    ctl("reload");
    assert_eq!(statuses(), [200, 503, 503]);
    ctl("server b/one ready");
    assert_eq!(statuses(), [200, 503, 503]);
    ctl("pool b ready");
    assert_eq!(statuses(), [200, 503, 200]);
    ctl("server b/one maint");
    assert!(ctl("maintenance off").contains("ready"));
    assert_eq!(statuses(), [200, 200, 503]);
    let pools: serde_json::Value = serde_json::from_str(&ctl("show pools --json")).unwrap();
    assert!(pools["pools"].as_array().unwrap().iter().all(|pool| pool["state"] == "ready"), "{pools}");
}
