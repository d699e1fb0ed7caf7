//! Matching of requests to routes: every kind of condition, their order, and disguised paths. Here,
//! routes respond with their own names; `actions` tests their other actions.

use super::{body_text, send_request, start_proxy};
use crate::support::client::Client;
use crate::support::shared_machine;

/// Formats a route that responds with its name.
fn route_config(name: &str, conditions: &str) -> String {
    format!("[[route]]\nname = \"{name}\"\n{conditions}\nreturn = {{ status = 200, body = \"{name}\" }}\n")
}

/// Checks requests, given as (line, fields, name of the route), against routes, given as (name,
/// conditions).
fn assert_routes(routes: &[(&str, &str)], requests: &[(&str, &str, &str)]) {
    let routes: String = routes.iter().map(|(name, conditions)| route_config(name, conditions)).collect();
    let proxy = start_proxy(&routes);
    let mut wrong = Vec::new();
    for (line, fields, expected) in requests {
        let response = send_request(proxy.authority(), line, fields);
        let taken = if response.status == 404 { "none".to_owned() } else { body_text(&response) };
        if taken != *expected {
            wrong.push(format!("{line} {fields:?}: {expected} wanted, {taken} taken"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn hosts_are_compared_without_case_and_port_and_by_wildcard() {
    let _shared = shared_machine();
    assert_routes(
        &[
            ("exact", "host = \"example.org\""),
            ("below", "host = [\"*.example.org\"]"),
            ("two", "host = [\"a.test\", \"b.test\"]"),
        ],
        &[
            ("GET /", "Host: example.org\r\n", "exact"),
            ("GET /", "Host: EXAMPLE.org:8080\r\n", "exact"),
            ("GET /", "Host: a.example.org\r\n", "below"),
            ("GET /", "Host: a.b.example.org\r\n", "below"),
            ("GET /", "Host: badexample.org\r\n", "none"),
            ("GET /", "Host: example.org.evil.test\r\n", "none"),
            ("GET /", "Host: b.test\r\n", "two"),
            ("GET http://b.test/", "Host: b.test\r\n", "two"),
            ("GET /", "Host: c.test\r\n", "none"),
        ],
    );
}

#[test]
fn paths_are_compared_exactly_by_prefix_and_by_regex() {
    let _shared = shared_machine();
    assert_routes(
        &[
            ("exact", "path = \"/exact\""),
            ("prefix", "path-prefix = \"/api\""),
            ("slash", "path-prefix = \"/static/\""),
            ("regex", "path-regex = \"^/v[0-9]+/\""),
            ("many", "path = [\"/one\", \"/two\"]\npath-prefix = \"/three\""),
        ],
        &[
            ("GET /exact", "", "exact"),
            ("GET /exact?query", "", "exact"),
            ("GET /exact/more", "", "none"),
            ("GET /Exact", "", "none"),
            ("GET /api", "", "prefix"),
            ("GET /api/", "", "prefix"),
            ("GET /api/users?x=/static/", "", "prefix"),
            ("GET /apis", "", "none"),
            ("GET /static/a", "", "slash"),
            ("GET /v12/x", "", "regex"),
            ("GET /x/v12/x", "", "none"),
            ("GET /two", "", "many"),
            ("GET /three/x", "", "many"),
        ],
    );
}

#[test]
fn a_path_is_what_it_means_and_not_what_it_looks_like() {
    let _shared = shared_machine();
    assert_routes(
        &[("admin", "path-prefix = \"/admin\""), ("rest", "")],
        &[
            ("GET /admin", "", "admin"),
            ("GET /a/../admin", "", "admin"),
            ("GET /a/b/../../admin/x", "", "admin"),
            ("GET //admin", "", "admin"),
            ("GET ///admin//x", "", "admin"),
            ("GET /./admin", "", "admin"),
            ("GET /%61dmin", "", "admin"),
            ("GET /%61%64%6D%69%6e", "", "admin"),
            ("GET /a/%2e%2e/admin", "", "admin"),
            ("GET /a/%2E./admin", "", "admin"),
            ("GET /../admin", "", "admin"),
            ("GET http://test/a/../admin", "", "admin"),
            // Paths that are not it stay unchanged.
            ("GET /admin/../other", "", "rest"),
            ("GET /a/admin", "", "rest"),
            ("GET /?/admin", "", "rest"),
            ("GET /%2561dmin", "", "rest"),
        ],
    );
}

#[test]
fn reserved_characters_are_not_their_triplets() {
    let _shared = shared_machine();
    assert_routes(
        &[("plain", "path = \"/a!b\""), ("triplet", "path = \"/a%21b\""), ("rest", "")],
        &[
            ("GET /a!b", "", "plain"),
            ("GET /%61!b", "", "plain"),
            ("GET /a%21b", "", "triplet"),
            ("GET /%61%21%62", "", "triplet"),
            ("GET /a%2521b", "", "rest"),
        ],
    );
    // The digits of a triplet are in upper case.
    assert_routes(
        &[("comma", "path = \"/a%2Cb\""), ("colon", "path-prefix = \"/x%3A\""), ("rest", "")],
        &[
            ("GET /a%2Cb", "", "comma"),
            ("GET /a%2cb", "", "comma"),
            ("GET /a,b", "", "rest"),
            ("GET /x%3a/y", "", "colon"),
            ("GET /x:/y", "", "rest"),
        ],
    );
}

#[test]
fn methods_headers_queries_and_sources_all_have_to_hold() {
    let _shared = shared_machine();
    let header = "header = { x-a = \"value\", x-b = true, x-c = false, x-d = { regex = \"^v[0-9]$\" } }";
    let right = "X-A: value\r\nX-B: \r\nX-D: v1\r\n";
    assert_routes(
        &[
            ("method", "path = \"/method\"\nmethod = [\"GET\", \"PURGE\"]"),
            ("header", &format!("path = \"/header\"\n{header}")),
            ("query", "path = \"/query\"\nquery = { debug = \"1\", x = { regex = \"^a\" } }"),
            ("flag", "path = \"/query\"\nquery = { flag = true }"),
            ("here", "path = \"/source\"\nsource = [\"10.0.0.0/8\", \"127.0.0.0/8\"]"),
            ("there", "path = \"/elsewhere\"\nsource = [\"10.0.0.0/8\"]"),
        ],
        &[
            ("GET /method", "", "method"),
            ("PURGE /method", "", "method"),
            ("DELETE /method", "", "none"),
            ("get /method", "", "none"),
            ("GET /header", right, "header"),
            ("GET /header", &right.replace("value", "VALUE"), "none"),
            ("GET /header", &right.replace("X-B: \r\n", ""), "none"),
            ("GET /header", &format!("{right}x-c: 1\r\n"), "none"),
            ("GET /header", &right.replace("v1", "v10"), "none"),
            ("GET /query?debug=1&x=abc", "", "query"),
            ("GET /query?x=abc&y=2&debug=1", "", "query"),
            ("GET /query?debug=2&x=abc", "", "none"),
            ("GET /query?debug=1&x=b", "", "none"),
            ("GET /query?flag", "", "flag"),
            ("GET /query?flag=x", "", "flag"),
            ("GET /query?flags=x", "", "none"),
            ("GET /source", "", "here"),
            ("GET /elsewhere", "", "none"),
        ],
    );
}

#[test]
fn the_first_route_that_matches_decides() {
    let _shared = shared_machine();
    assert_routes(
        &[
            ("general", "path-prefix = \"/a\""),
            ("special", "path-prefix = \"/a/b\""),
            ("late", "path = \"/c\"\nmethod = \"POST\""),
            ("later", "path = \"/c\""),
            ("latest", "path = \"/c\""),
        ],
        &[
            ("GET /a/b", "", "general"),
            ("GET /c", "", "later"),
            ("POST /c", "Content-Length: 0\r\n", "late"),
            ("GET /d", "", "none"),
        ],
    );
}

#[test]
fn routes_belong_to_the_listeners_that_they_name() {
    let _shared = shared_machine();
    let routes = [
        route_config("one", "listener = \"one\""),
        route_config("two", "listener = [\"two\"]"),
        route_config("both", "path = \"/never\""),
    ];
    let proxy = crate::support::proxy_under_test::ProxyUnderTest::weir(&format!(
        "[listener.one]\nbind = [\"127.0.0.1:0\", \"[::1]:0\"]\n\
         [listener.two]\nbind = \"127.0.0.1:0\"\n\
         [listener.three]\nbind = \"127.0.0.1:0\"\n{}",
        routes.concat()
    ));
    let addresses = proxy.addresses("one");
    assert_eq!(addresses.len(), 2, "one line for each address: {}", proxy.stdout());
    for address in &addresses {
        assert_eq!(body_text(&Client::connect(address).get("/")), "one");
    }
    assert_eq!(body_text(&Client::connect(&proxy.addresses("two")[0]).get("/")), "two");
    let three = &proxy.addresses("three")[0];
    assert_eq!(Client::connect(three).get("/").status, 404);
    assert_eq!(body_text(&Client::connect(three).get("/never")), "both");
}
