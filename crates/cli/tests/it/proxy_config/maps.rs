//! Maps and lists: entries of files in texts and conditions, and files that change while the proxy runs.

use super::{body_text, send_request, start_proxy};
use crate::support::faulty_origins::field;
use crate::support::metrics::Metrics;
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{shared_machine, within};

/// Writes a file as a whole: beside the old one, and renamed.
fn replace(path: &std::path::Path, content: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn entries_are_values_and_conditions() {
    let _shared = shared_machine();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let tenants = file("tenants", "# tenant of a host\na.example  gold plan\n*.b.example silver\n");
    let keys = file("keys", "secret-1\nsecret-2\n");
    let networks = file("networks", "127.0.0.0/8 local\n127.0.0.1/32 own\n");
    let paths = file("paths", "/admin closed\n/admin/open open\n");
    let proxy = start_proxy(&format!(
        "[map.tenant]\nkey = 'host'\nfile = '{tenants}'\nmatch = 'domain'\n\
         [map.keys]\nkey = 'header.x-key'\nfile = '{keys}'\n\
         [map.net]\nkey = 'source'\nfile = '{networks}'\nmatch = 'network'\n\
         [map.area]\nkey = 'path'\nfile = '{paths}'\nmatch = 'path-prefix'\n\
         [map.both]\nkey = '{{method}} {{query.a}}'\nentries = {{ 'GET 1' = 'one' }}\n\
         [[route]]\nwhen = {{ map = {{ area = 'closed' }}, not = {{ map = {{ keys = true }} }} }}\ndeny = 403\n\
         [[route]]\nwhen = {{ map = {{ tenant = {{ regex = '^gold' }}, both = false }} }}\nreturn = {{ body = 'gold' }}\n\
         [map.moved]\nkey = 'path'\nentries = {{ '/old' = 'https://new.example/a?b=\u{fc}', '/here' = '//evil' }}\n\
         [[route]]\nwhen = {{ map = {{ moved = true }} }}\nredirect = {{ location = '{{map.moved}}' }}\n\
         [[route]]\nset-response-header = {{ x-net = '{{map.net}}', x-both = '{{map.both:-none}}', x-area = '{{map.area}}' }}\n\
         return = {{ body-template = '{{map.tenant:-no tenant}}' }}\n"
    ));
    for (line, fields, status, body, headers) in [
        ("GET /", "Host: A.Example.:80\r\n", 200, "gold", [None, None, None]),
        ("GET /", "Host: x.a.example\r\n", 200, "gold", [None, None, None]),
        ("GET /?a=1", "Host: a.example\r\n", 200, "gold plan", [Some("own"), Some("one"), None]),
        ("GET /", "Host: b.example\r\n", 200, "no tenant", [Some("own"), Some("none"), None]),
        ("GET /", "Host: x.b.example\r\n", 200, "silver", [Some("own"), Some("none"), None]),
        ("GET /%61dmin/x", "", 403, "", [None, None, None]),
        ("GET /admin;v=1", "", 403, "", [None, None, None]),
        ("GET /administrator", "", 200, "no tenant", [Some("own"), Some("none"), None]),
        ("GET /admin/open/x", "", 200, "no tenant", [Some("own"), Some("none"), Some("open")]),
        (
            "GET /admin",
            "X-Key: wrong\r\nX-Key: secret-2\r\n",
            200,
            "no tenant",
            [Some("own"), Some("none"), Some("closed")],
        ),
        ("GET /admin", "X-Key: SECRET-2\r\n", 403, "", [None, None, None]),
    ] {
        let response = send_request(proxy.authority(), line, fields);
        assert_eq!(response.status, status, "{line} {fields}");
        if status == 200 {
            assert_eq!(body_text(&response), body, "{line} {fields}");
        }
        let actual = ["x-net", "x-both", "x-area"].map(|name| field(&response.head, name));
        assert_eq!(actual, headers.map(|value| value.map(str::to_owned)), "{line}: {}", response.head);
    }
    for (path, expected) in [("/old", "https://new.example/a?b=%C3%BC"), ("/here", "/evil")] {
        let response = send_request(proxy.authority(), &format!("GET {path}"), "");
        assert_eq!(field(&response.head, "location").as_deref(), Some(expected), "{}", response.head);
    }
}

#[test]
fn a_file_that_changes_is_read_again_without_a_reload() {
    let _shared = shared_machine();
    let directory = tempfile::tempdir().unwrap();
    let (map, list) = (directory.path().join("tenants"), directory.path().join("networks"));
    std::fs::write(&map, "a.example one\n").unwrap();
    std::fs::write(&list, "10.0.0.0/8 # office\n").unwrap();
    let config = format!(
        "threads = 2\nadmin = '127.0.0.1:0'\n[listener.web]\nbind = '127.0.0.1:0'\n\
         [map.tenant]\nkey = 'host'\nfile = '{}'\n\
         [[route]]\nwhen = {{ source-file = '{}' }}\nreturn = {{ body = 'listed' }}\n\
         [[route]]\nreturn = {{ body-template = '{{map.tenant:-none}}' }}\n",
        map.display(),
        list.display()
    );
    let proxy = ProxyUnderTest::weir(&config);
    let body =
        |host: &str| body_text(&send_request(proxy.authority(), "GET /", &format!("Host: {host}\r\n")));
    let loads = |metrics: &Metrics, result: &str, count: f64| {
        metrics.sum("weir_map_loads_total", &[("map", "tenant"), ("result", result)]) == count
    };
    assert_eq!((body("a.example"), body("b.example")), ("one".to_owned(), "none".to_owned()));
    replace(&map, "a.example two\nb.example three\n");
    assert!(within(EVENT_TIMEOUT, || body("b.example") == "three"), "the new content");
    assert_eq!(body("a.example"), "two");
    // A file with faults keeps the content, and says where they are.
    replace(&map, "a.example four\n\x01\na.example five\n");
    let metrics = proxy.metrics_until("the fault", |metrics| loads(metrics, "failed", 1.0));
    assert!(metrics.sum("weir_map_last_load_successful", &[("map", "tenant")]) == 0.0);
    assert_eq!(metrics.sum("weir_map_entries", &[("map", "tenant")]), 2.0);
    assert_eq!(body("a.example"), "two");
    replace(&map, "a.example six\n");
    assert!(within(EVENT_TIMEOUT, || body("a.example") == "six"), "the mended content");
    // A list of networks is read again in the same way.
    replace(&list, "10.0.0.0/8\n127.0.0.0/8 # this machine\n");
    assert!(within(EVENT_TIMEOUT, || body("a.example") == "listed"), "the list");
    let metrics = proxy.metrics_until("all loads", |metrics| loads(metrics, "loaded", 3.0));
    assert_eq!(metrics.sum("weir_reloads_total", &[("result", "applied")]), 0.0);
}
