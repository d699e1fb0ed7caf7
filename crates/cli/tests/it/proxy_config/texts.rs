//! Texts with values of the request, and combined conditions, against an origin that returns what it got.

use super::{body_text, send_request, start_proxy};
use crate::support::faulty_origins::{echoing_server, field};
use crate::support::metrics::Metrics;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;

#[test]
fn fields_and_bodies_have_values_of_the_request() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = start_proxy(&format!(
        "[[route]]\nname = \"users\"\npath-regex = \"^/u/(?P<user>[^/]+)/(.*)$\"\nrewrite-path = \"/x\"\n\
         set-request-header = {{ x-user = \"{{user}}\", x-rest = \"{{2}}\", x-from = \"{{source}}:{{scheme}}\", \
         x-copy = \"{{header.x-in:-none}}\", x-gone = \"{{cookie.missing}}\", host = \"{{user}}.example.org\", \
         x-q = \"{{query.q}}\", x-id = \"{{request-id}}\", x-braces = \"{{{{a}}}}\" }}\n\
         add-response-header = {{ x-served-by = \"{{pool}}/{{server}} {{status}} {{path}}{{query}}\", x-id = \"{{request-id}}\" }}\n\
         pool = \"app\"\n\
         [[route]]\npath-prefix = \"/page\"\nset-response-header = {{ x-status = \"{{status}} {{route}}\" }}\n\
         return = {{ status = 404, content-type = \"text/html\", body-template = \"<p>{{path}} {{header.x-in}}\" }}\n\
         [[route]]\npath-prefix = \"/literal\"\nreturn = {{ body = \"{{path}}\" }}\n\
         [pool.app]\nservers = [{{ address = \"{}\", name = \"one\" }}]\n",
        origin.authority
    ));
    let line = "GET /u/bob/a/b?q=x%0d%0aX-Evil:%201";
    let response = send_request(proxy.authority(), line, "X-In: seen\r\nCookie: a=b\r\n");
    let body = body_text(&response);
    let request = body.strip_prefix("origin\n").expect("what the origin was sent");
    for (name, value) in [
        ("x-user", Some("bob")),
        ("x-rest", Some("a/b")),
        ("x-from", Some("127.0.0.1:http")),
        ("x-copy", Some("seen")),
        ("x-gone", None),
        ("host", Some("bob.example.org")),
        ("x-q", Some("xX-Evil: 1")),
        ("x-evil", None),
        ("x-braces", Some("{a}")),
    ] {
        assert_eq!(field(request, name).as_deref(), value, "{name}: {request}");
    }
    let id = field(request, "x-request-id").expect("a request id");
    assert_eq!(field(request, "x-id").as_deref(), Some(&*id), "{request}");
    assert_eq!(field(&response.head, "x-id").as_deref(), Some(&*id), "{}", response.head);
    assert_eq!(
        field(&response.head, "x-served-by").as_deref(),
        Some("app/one 200 /u/bob/a/b?q=x%0d%0aX-Evil:%201"),
        "{}",
        response.head
    );
    let page = send_request(proxy.authority(), "GET /page/'1'", "X-In: <b>&\r\n");
    assert_eq!((page.status, body_text(&page)), (404, "<p>/page/&#39;1&#39; &lt;b&gt;&amp;".to_owned()));
    assert_eq!(field(&page.head, "x-status").as_deref(), Some("404 route-2"), "{}", page.head);
    // A fixed content stays literal.
    assert_eq!(body_text(&proxy.get("/literal")), "{path}");
}

#[test]
fn each_request_has_an_id_of_its_own_whatever_the_texts_of_its_route_have() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let settings = [
        "add-response-header = { x-a = \"{status}\" }",
        "set-request-header = { x-a = \"{path}\" }",
        "rate-limit = { rate = 1000, burst = 1000, key = \"{query.k:-all}\" }",
        "when = { percent = 100, key = \"path\" }",
        "set-request-header = { x-a = \"{request-id}\" }",
        "set-request-header = { x-a = \"literal\" }",
    ];
    let routes: String = settings
        .iter()
        .enumerate()
        .map(|(at, setting)| format!("[[route]]\npath = \"/{at}\"\n{setting}\npool = \"app\"\n"))
        .collect();
    let servers = format!("[pool.app]\nservers = [\"{}\"]\n", origin.authority);
    let proxy = start_proxy(&format!("{routes}{servers}"));
    let mut ids = std::collections::BTreeSet::new();
    for (at, setting) in settings.iter().enumerate() {
        for _ in 0..3 {
            let response = send_request(proxy.authority(), &format!("GET /{at}"), "");
            let body = body_text(&response);
            let id = field(&body, "x-request-id").expect("a request id");
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{setting}: {id:?}");
            assert!(ids.insert(id), "{setting}: the id of another request");
        }
    }
}

#[test]
fn a_long_text_is_rejected_and_counted() {
    let _shared = shared_machine();
    let repeated = "{header.x-in}".repeat(10);
    let proxy = start_proxy(&format!(
        "limits = {{ head = \"32k\" }}\n[[route]]\npath = \"/body\"\nreturn = {{ body-template = \"{repeated}\" }}\n\
         [[route]]\nset-response-header = {{ x-long = \"{repeated}\", x-short = \"{{header.x-in:-none}}\" }}\n\
         return = {{ body = \"here\" }}\n"
    ));
    let long = format!("X-In: {}\r\n", "v".repeat(10_000));
    let rejected = send_request(proxy.authority(), "GET /body", &long);
    assert_eq!(rejected.status, 431, "{rejected:?}");
    assert_eq!(send_request(proxy.authority(), "GET /body", "X-In: v\r\n").body, b"vvvvvvvvvv");
    let response = send_request(proxy.authority(), "GET /", &long);
    assert_eq!((response.status, field(&response.head, "x-long")), (200, None), "{}", response.head);
    assert!(field(&response.head, "x-short").is_some_and(|value| value.len() == 10_000));
    proxy.metrics_until("two long texts", |metrics| metrics.sum("weir_long_texts_total", &[]) == 2.0);
}

#[test]
fn locations_have_groups_and_stay_on_their_host() {
    let _shared = shared_machine();
    let proxy = start_proxy(
        "[[route]]\npath-regex = \"^/old(.*)$\"\nredirect = { status = 301, location = \"{1}{query}\" }\n\
         [[route]]\npath-regex = \"^/to/([a-z]+)/(.*)$\"\n\
         redirect = { location = \"https://{1}.example.org/{2}?back={header.referer}\" }\n",
    );
    for (target, location) in [
        ("/old/x?y=1", "/x?y=1"),
        ("/old//evil.example", "/evil.example"),
        ("/oldhttps://evil.example", "/https:/evil.example"),
        ("/to/app/a/b", "https://app.example.org/a/b?back=https%3A%2F%2Fa%2F%3Fb"),
    ] {
        let response = send_request(
            proxy.authority(),
            &format!("GET {target}"),
            "Host: good\r\nReferer: https://a/?b\r\n",
        );
        assert_eq!(field(&response.head, "location").as_deref(), Some(location), "{target}");
    }
}

#[test]
fn keys_of_limits_and_of_hashing_have_values() {
    let _shared = shared_machine();
    let (first, second) = (echoing_server("one"), echoing_server("two"));
    let proxy = start_proxy(&format!(
        "[[route]]\npath = \"/limited\"\nrate-limit = {{ rate = 0.001, burst = 1, key = \"{{cookie.user}}/{{method}}\" }}\n\
         return = {{ body = \"here\" }}\n[[route]]\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\", \"{}\"]\nbalance = \"consistent-hash\"\n\
         hash = {{ key = \"{{query.user}}-{{header.x-shard:-0}}\", load-factor = 100 }}\n",
        first.authority, second.authority
    ));
    let status = |line: &str, user: &str| {
        send_request(proxy.authority(), line, &format!("Cookie: user={user}\r\n")).status
    };
    assert_eq!([status("GET /limited", "a"), status("GET /limited", "a")], [200, 429]);
    assert_eq!([status("GET /limited", "b"), status("PUT /limited", "a")], [200, 200]);
    let server = |user: usize| {
        let response = send_request(proxy.authority(), &format!("GET /?user={user}"), "");
        body_text(&response).split('\n').next().unwrap_or_default().to_owned()
    };
    let servers: Vec<String> = (0..20).map(server).collect();
    assert!(servers.contains(&"one".to_owned()) && servers.contains(&"two".to_owned()), "{servers:?}");
    assert_eq!((0..20).map(server).collect::<Vec<_>>(), servers, "the same server for the same key");
}

#[test]
fn conditions_are_combined() {
    let _shared = shared_machine();
    let route = |name: &str, when: &str| {
        format!("[[route]]\nname = \"{name}\"\nwhen = {when}\nreturn = {{ body = \"{name}\" }}\n")
    };
    let proxy = start_proxy(&[
        route("admin", "{ any = [{ path-prefix = \"/admin\" }, { host = \"admin.test\" }], not = { header = { x-key = \"s\" } } }"),
        route("php", "{ path-glob = \"**.php\", method = [\"GET\", \"HEAD\"] }"),
        route("beta", "{ cookie = { beta = { regex = \"^[12]$\" } }, all = [{ query = { on = true } }, { tls = false }] }"),
        route("never", "{ time = \"00:00-24:00\", not = { weekday = [\"mon\", \"tue\", \"wed\", \"thu\", \"fri\", \"sat\", \"sun\"] } }"),
        route("half", "{ percent = 50, key = \"cookie.user\", path = \"/split\" }"),
        route("rest", "{ source = \"127.0.0.0/8\" }"),
    ].concat());
    let taken = |line: &str, fields: &str| body_text(&send_request(proxy.authority(), line, fields));
    for (line, fields, expected) in [
        ("GET /admin/x", "", "admin"),
        ("GET /", "Host: ADMIN.test:80\r\n", "admin"),
        ("GET /admin", "X-Key: s\r\n", "rest"),
        ("GET /adminx", "", "rest"),
        ("GET /a/b.php", "", "php"),
        ("GET /%61//b.php", "", "php"),
        ("POST /a/b.php", "", "rest"),
        ("GET /a/b.phps", "", "rest"),
        ("GET /?on", "Cookie: x=y; beta=2\r\n", "beta"),
        ("GET /?on", "Cookie: beta=3\r\n", "rest"),
        ("GET /?off", "Cookie: beta=2\r\n", "rest"),
        ("GET /split", "", "rest"),
    ] {
        assert_eq!(taken(line, fields), expected, "{line} {fields}");
    }
    let side = |user: usize| taken("GET /split", &format!("Cookie: user={user}\r\n"));
    let sides: Vec<String> = (0..100).map(side).collect();
    let half = sides.iter().filter(|side| *side == "half").count();
    assert!((30..=70).contains(&half), "{half} of 100");
    assert_eq!((0..20).map(side).collect::<Vec<_>>(), sides[..20], "a key keeps its side");
}

#[test]
fn rules_for_responses_hold_by_status_and_request() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let rules = "[[route.response]]\nstatus = \"4xx,5xx\"\nset-header = { cache-control = \"no-store\", x-error = \"{status}\" }\n\
         [[route.response]]\nwhen = { path-glob = \"**.js\" }\nset-header = { Cache-Control = \"max-age=60\" }\n\
         [[route.response]]\nstatus = \"200-299\"\nwhen = { not = { cookie = { a = true } } }\n\
         remove-header = \"x-route\"\nadd-header = { x-first = \"{method} {path}\" }\n";
    let proxy = start_proxy(&format!(
        "[[route]]\npath-prefix = \"/denied\"\nset-response-header = {{ cache-control = \"private\" }}\ndeny = 451\n{rules}\
         [[route]]\nset-response-header = {{ cache-control = \"private\", x-route = \"1\" }}\npool = \"app\"\n{rules}\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    for (target, fields, expected) in [
        ("/", "Cookie: a=b\r\n", [Some("private"), None, Some("1"), None]),
        ("/", "", [Some("private"), None, None, Some("GET /")]),
        ("/x.js", "Cookie: a=b\r\n", [Some("max-age=60"), None, Some("1"), None]),
        ("/denied", "", [Some("no-store"), Some("451"), None, None]),
        ("/denied/x.js", "", [Some("max-age=60"), Some("451"), None, None]),
        ("/denied.js", "", [Some("max-age=60"), None, None, Some("GET /denied.js")]),
    ] {
        let response = send_request(proxy.authority(), &format!("GET {target}"), fields);
        let names = ["cache-control", "x-error", "x-route", "x-first"];
        let actual = names.map(|name| field(&response.head, name));
        assert_eq!(
            actual,
            expected.map(|value| value.map(str::to_owned)),
            "{target} {fields}: {}",
            response.head
        );
    }
}

#[test]
fn networks_of_a_file_are_read_again_at_a_reload() {
    let _shared = shared_machine();
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("networks");
    std::fs::write(&list, "# office\n10.0.0.0/8\n\n127.0.0.0/8 # here\n::1\n").unwrap();
    let config = format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\nwhen = {{ source-file = \"{0}\" }}\nreturn = {{ body = \"listed\" }}\n\
         [[route]]\nreturn = {{ body = \"other\" }}\n",
        list.display()
    );
    let proxy = ProxyUnderTest::weir(&config);
    assert_eq!(body_text(&proxy.get("/")), "listed");
    std::fs::write(&list, "10.0.0.0/8\n").unwrap();
    proxy.reload(&config);
    let is_applied = |metrics: &Metrics| metrics.sum("weir_reloads_total", &[("result", "applied")]) == 1.0;
    proxy.metrics_until("the reload", is_applied);
    assert_eq!(body_text(&proxy.get("/")), "other");
}
