//! Which route a request takes: every kind of condition, their order, and paths that try to look
//! like others. Routes answer with their own names here; what else they do is in `actions`.

use super::{ask, door, text};
use crate::support::beside_others;
use crate::support::client::Client;

/// A route that answers with its name.
fn route(name: &str, conditions: &str) -> String {
    format!(
        "[[route]]\nname = \"{name}\"\n{conditions}\nanswer = {{ status = 200, body = \"{name}\" }}\n"
    )
}

/// Routes as (name, conditions), then requests as (line, fields, name of the route).
fn check(routes: &[(&str, &str)], requests: &[(&str, &str, &str)]) {
    let routes: String = routes.iter().map(|(name, conditions)| route(name, conditions)).collect();
    let door = door(&routes);
    let mut wrong = Vec::new();
    for (line, fields, wanted) in requests {
        let answer = ask(door.authority(), line, fields);
        let taken = if answer.status == 404 { "none".to_owned() } else { text(&answer) };
        if taken != *wanted {
            wrong.push(format!("{line} {fields:?}: {wanted} wanted, {taken} taken"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn hosts_are_compared_without_case_and_port_and_by_wildcard() {
    let _shared = beside_others();
    check(
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
    let _shared = beside_others();
    check(
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
    let _shared = beside_others();
    check(
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
            // And what is not it stays what it is.
            ("GET /admin/../other", "", "rest"),
            ("GET /a/admin", "", "rest"),
            ("GET /?/admin", "", "rest"),
            ("GET /%2561dmin", "", "rest"),
        ],
    );
}

#[test]
fn methods_headers_queries_and_sources_all_have_to_hold() {
    let _shared = beside_others();
    let header =
        "header = { x-a = \"value\", x-b = true, x-c = false, x-d = { regex = \"^v[0-9]$\" } }";
    let right = "X-A: value\r\nX-B: \r\nX-D: v1\r\n";
    check(
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
    let _shared = beside_others();
    check(
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
    let _shared = beside_others();
    let routes = [
        route("one", "listener = \"one\""),
        route("two", "listener = [\"two\"]"),
        route("both", "path = \"/never\""),
    ];
    let door = crate::support::door::Door::weir(&format!(
        "[listener.one]\nbind = [\"127.0.0.1:0\", \"[::1]:0\"]\n\
         [listener.two]\nbind = \"127.0.0.1:0\"\n\
         [listener.three]\nbind = \"127.0.0.1:0\"\n{}",
        routes.concat()
    ));
    let one = door.addresses("one");
    assert_eq!(one.len(), 2, "one line for each address: {}", door.stdout());
    for address in &one {
        assert_eq!(text(&Client::connect(address).ask("/")), "one");
    }
    assert_eq!(text(&Client::connect(&door.addresses("two")[0]).ask("/")), "two");
    let three = &door.addresses("three")[0];
    assert_eq!(Client::connect(three).ask("/").status, 404);
    assert_eq!(text(&Client::connect(three).ask("/never")), "both");
}
