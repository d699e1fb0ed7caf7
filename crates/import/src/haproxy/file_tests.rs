//! Lists, maps and pages in files: what becomes of a config with them.

use std::collections::HashMap;

use crate::fuzzing::NoSurroundings;
use crate::{Import, IncludeError, Program, Surroundings, convert};

/// Machine with files.
struct Files(HashMap<&'static str, &'static str>);

impl Surroundings for Files {
    fn include(&mut self, pattern: &str) -> Result<Vec<(String, String)>, IncludeError> {
        match self.0.get(pattern) {
            Some(text) => Ok(vec![(pattern.to_owned(), (*text).to_owned())]),
            None => Err(IncludeError::Outside(pattern.to_owned())),
        }
    }

    fn exists(&mut self, path: &str) -> bool {
        self.0.contains_key(path) || path == "/outside"
    }

    fn is_page(&mut self, path: &str) -> bool {
        NoSurroundings.is_page(path)
    }

    fn has_user(&mut self, name: &str) -> bool {
        NoSurroundings.has_user(name)
    }

    fn has_group(&mut self, name: &str) -> bool {
        NoSurroundings.has_group(name)
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        NoSurroundings.variable(name)
    }

    fn secret(&mut self) -> String {
        NoSurroundings.secret()
    }
}

const FILES: [(&str, &str); 12] = [
    ("/hosts", "a.example b\nb.example c\nnew.example none\n"),
    ("/upper", "A.example b\n"),
    ("/list", "# hosts\na.example\nb.example\n"),
    ("/spaces", "a b\n"),
    ("/ends", ".x 1\na.x 2\n"),
    ("/ends-in-order", "a.x 2\n.x 1\n"),
    ("/twice", "a 1\na 2\n"),
    ("/nets", "10.0.0.0/8 in\n::1 in\n"),
    ("/bits", "10.0.0.1/8 in\n"),
    ("/targets", "/old https://new.example/a\n"),
    ("/403.http", "HTTP/1.0 403 No\r\nContent-Type: text/html\r\nX-Page: 1\r\n\r\n<p>no</p>"),
    ("/page.html", "<p>down</p>"),
];

fn import(lines: &str) -> Import {
    let text = format!(
        "frontend f\n  mode http\n  bind :80\n  {}\n  default_backend a\nbackend a\n  mode http\n  server s 10.0.0.1:80\n\
         backend b\n  mode http\n  server s 10.0.0.2:80\nbackend c\n  mode http\n  server s 10.0.0.3:80\n",
        lines.replace('|', "\n  ")
    );
    convert(Program::Haproxy, "t.cfg", &text, &mut Files(FILES.into())).unwrap()
}

/// Asserts that lines become a config with these parts, and that something is left or not.
fn assert_becomes(lines: &str, parts: &[&str], left: Option<&str>) {
    let import = import(lines);
    for part in parts {
        assert!(import.config.contains(part), "{lines}: no '{part}' in\n{}", import.config);
    }
    let open: Vec<String> =
        import.report.iter().filter(|left| left.kind.is_left()).map(ToString::to_string).collect();
    match left {
        None => assert!(open.is_empty(), "{lines}: {open:?}"),
        Some(reason) => assert!(open.iter().any(|line| line.contains(reason)), "{lines}: {open:?}"),
    }
}

#[test]
fn lists_in_files_become_lists() {
    let list = "[map.list]\nkey = \"header.host\"\nfile = \"/list\"\nignore-case = true\n";
    assert_becomes("http-request deny if { hdr(host) -i -f /list }", &[list, "map = { list = true }"], None);
    assert_becomes("acl l req.hdr(Host),lower -f /list|http-request deny if l", &[list], None);
    for (test, parts) in [
        ("path_beg -f /list", "key = \"path\"\nfile = \"/list\"\nmatch = \"prefix\"\n"),
        (
            "path_end -i -f /list",
            "key = \"path\"\nfile = \"/list\"\nmatch = \"suffix\"\nignore-case = true\n",
        ),
        ("req.cook(A) -f /list", "key = \"cookie.A\"\nfile = \"/list\"\n\n"),
        ("req.fhdr(x-a) -f /list", "key = \"header.x-a\"\nfile = \"/list\"\n\n"),
        ("hdr(host),field(1,:) -i -f /list", "key = \"host\"\nfile = \"/list\"\n\n"),
        ("ssl_fc_sni -f /list", "key = \"tls.sni\"\nfile = \"/list\"\n\n"),
        ("base -f /list", "key = \"{header.host}{path}\"\nfile = \"/list\"\n\n"),
    ] {
        assert_becomes(&format!("http-request deny if {{ {test} }}"), &[parts], None);
    }
    // Where weir has no such list, the patterns are in the routes.
    for test in ["hdr_dom(host) -f /list", "hdr_sub(host) -i -f /list", "path -m dir -f /list"] {
        let import = import(&format!("http-request deny if {{ {test} }}"));
        assert!(
            !import.config.contains("[map.") && import.config.contains("b\\.example"),
            "{}",
            import.config
        );
        assert!(import.report.iter().any(|left| left.to_string().contains("needs a new import")));
    }
    assert_becomes("http-request deny if { hdr(x-a) -f /spaces }", &["a b"], None);
    // Each of several values in one line of a field is compared.
    assert_becomes("http-request deny if { hdr(x-a) -f /list }", &["(?:^|,)"], None);
    for (test, reason) in [
        ("hdr(host) -f /missing", "the file /missing is missing here"),
        ("hdr(host) -f /outside", "not in the directory of the config"),
        ("hdr(host) -f list", "no complete path"),
        ("url_param(a) -f /list", "url_param"),
        ("hdr(host) -M -f /list", "'-M'"),
        ("hdr(host),field(2,.) -f /list", "the converter 'field(2,.)'"),
    ] {
        assert_becomes(&format!("http-request deny if {{ {test} }}"), &["deny = 501"], Some(reason));
    }
    // HAProxy never finds a letter in upper case behind `lower`: the pattern in a route is refused, too.
    assert_becomes("http-request deny if { hdr(host),lower -f /upper }", &["deny = 501"], Some("lower"));
}

#[test]
fn backends_by_a_map_are_routes_by_its_values() {
    let line = "use_backend %[req.hdr(host),lower,map(/hosts,c)]";
    let import = import(line);
    let routes: Vec<&str> = import.config.split("[[route]]").skip(1).collect();
    let expected = [
        ("map = { hosts = \"b\" }", "pool = \"b\""),
        ("map = { hosts = \"c\" }", "pool = \"c\""),
        ("map = { hosts = \"none\" }", "pool = \"a\""),
        ("map = { hosts = false }", "pool = \"c\""),
        ("", "pool = \"a\""),
    ];
    assert_eq!(routes.len(), expected.len(), "{}", import.config);
    for (route, (condition, pool)) in routes.iter().zip(expected) {
        assert!(route.contains(condition) && route.contains(pool), "{route}");
    }
    // Without a port, and with a condition.
    let parts = ["key = \"host\"", "deny = 501", "regex = '\\.(?::[0-9]*)?$'"];
    assert_becomes("use_backend %[hdr(host),lower,word(1,:),map(/hosts)] if METH_GET", &parts, None);
    assert_becomes("use_backend be_%[hdr(host),map(/hosts)]", &["pool = \"a\""], None);
    let names = "entries = { a = \"a\", b = \"b\", c = \"c\" }";
    assert_becomes("use_backend %[req.hdr(host),lower]", &[names, "map = { backends = \"c\" }"], None);
    for (line, reason) in [
        ("use_backend %[hdr(host),map(/missing)]", "is missing here"),
        ("use_backend %[hdr(host),lower,map(/upper)]", "upper case"),
        ("use_backend %[hdr(x),map(/hosts)]", "of several values"),
        ("use_backend %[hdr(host),map(/hosts),lower]", "the converter 'map(/hosts)'"),
        ("use_backend %[hdr(host),map_regm(/hosts)]", "map_regm"),
        ("use_backend %[rand(2),map(/hosts)]", "'rand(2)'"),
        ("use_backend %[hdr(host),field(1,:),map(/hosts)]", "for some requests"),
    ] {
        assert_becomes(line, &["deny = 501"], Some(reason));
    }
}

#[test]
fn maps_are_values_and_conditions() {
    assert_becomes(
        "http-request set-header X-T %[hdr(host),map(/hosts,none)]",
        &["set-request-header = { x-t = \"{map.hosts:-none}\" }"],
        None,
    );
    assert_becomes(
        "http-request redirect location %[path,map(/targets)] code 301 if { path,map(/targets) -m found }",
        &["location = \"{map.targets}\"", "map = { targets = true }", "path = \"strict\""],
        None,
    );
    assert_becomes(
        "http-request deny if { src,map_ip(/nets) -m str in }",
        &["match = \"network\"", "nets = \"in\""],
        None,
    );
    assert_becomes(
        "http-request deny if { src,map_ip(/nets,in) in }",
        &["any = [{ map = { nets = \"in\" } }, { map = { nets = false } }]"],
        None,
    );
    assert_becomes(
        "http-request deny if { path,map_beg(/hosts) -m beg b }",
        &["match = \"prefix\"", "regex = \"^b\""],
        None,
    );
    assert_becomes("http-request deny if { path,map_end(/ends-in-order) 1 }", &["match = \"suffix\""], None);
    // The order of the file counts, so the entries are in the route.
    let import = import("http-request deny if { path,map_end(/ends) 2 }");
    assert!(import.config.contains("not = { path-regex = '\\.x$' }"), "{}", import.config);
    let import = import_of_dom();
    assert!(import.config.contains("a\\.example") && !import.config.contains("[map."), "{}", import.config);
    for (test, reason) in [
        ("hdr(host),map(/twice) -m found", "in the routes"),
        ("hdr(host),map(/missing) -m found", "is missing here"),
        ("src,map_ip(/bits) -m found", "without bits"),
        ("hdr(host),map_ip(/nets) -m found", "'map_ip' of another text"),
        ("hdr(host),map_int(/hosts) -m found", "map_int"),
        ("hdr(host),map(/hosts) -m len 3", "'len'"),
        ("hdr(host),map(/hosts,b) -m beg b", "by an expression"),
    ] {
        let import = self::import(&format!("http-request deny if {{ {test} }}"));
        let report: Vec<String> = import.report.iter().map(ToString::to_string).collect();
        assert!(report.iter().any(|line| line.contains(reason)), "{test}: {report:?}");
    }
    // A field that was changed before has another value than weir looks up.
    assert_becomes(
        "http-request set-header Host x|http-request deny if { hdr(host),map(/hosts) -m found }",
        &["deny = 501"],
        None,
    );
}

fn import_of_dom() -> Import {
    import("use_backend %[hdr(host),map_dom(/hosts,c)]")
}

#[test]
fn refusals_have_the_pages_of_their_section() {
    let page = "return = { status = 403, content-type = \"text/html\", body = \"<p>no</p>\" }";
    assert_becomes(
        "errorfile 403 /403.http|http-request deny if { path /x }",
        &[
            page,
            "set-response-header = { x-page = \"1\" }",
            "error-page = [{ status = \"403\", html = \"/403.http\", skip-head = true }]",
        ],
        None,
    );
    assert_becomes("http-request deny errorfile /403.http if { path /x }", &[page], None);
    assert_becomes(
        "http-request deny deny_status 429 content-type text/plain string slow if { path /x }",
        &["return = { status = 429, content-type = \"text/plain\", body = \"slow\" }"],
        None,
    );
    assert_becomes(
        "http-request return content-type text/html file /page.html if { path /x }",
        &["body = \"<p>down</p>\""],
        None,
    );
    // Weir's own refusals stay.
    assert_becomes("errorloc 501 http://x/|http-request deny if { nbsrv 1 }", &["deny = 501"], Some("nbsrv"));
    let error = "http-error status 503 content-type text/html file /page.html";
    assert_becomes(error, &["error-page = [{ status = \"503\", html = \"/page.html\" }]"], None);
    for (line, reason) in [
        ("errorfile 503 /missing", "behind the head of /missing"),
        ("errorfile 503 /403.http", "the page has the status 403"),
        ("errorfile 503 /page.html", "the page has no complete head"),
        ("errorloc 503 http://a.example/", "has a page, no redirect"),
        ("http-error status 503 lf-file /page.html", "'lf-file' of a page"),
        ("http-error status 503 content-type text/css file /page.html", "not text/css"),
        ("errorfiles none", "no section http-errors"),
    ] {
        assert_becomes(line, &["pool = \"a\""], Some(reason));
    }
    let text = "defaults\n  mode http\n  http-error status 503 content-type text/html file /page.html\nlisten l\n  bind :80\n  server s 10.0.0.1:80\n";
    let import = convert(Program::Haproxy, "t.cfg", text, &mut Files(FILES.into())).unwrap();
    assert!(
        import.config.contains("[[error-page]]\nstatus = \"503\"\nhtml = \"/page.html\"\n"),
        "{}",
        import.config
    );
}

#[test]
fn clients_are_kept_by_texts_of_requests() {
    let backend = |lines: &str| {
        let text = format!(
            "listen l\n  mode http\n  bind :80\n  {}\n  server s 10.0.0.1:80\n",
            lines.replace('|', "\n  ")
        );
        let import = convert(Program::Haproxy, "t.cfg", &text, &mut NoSurroundings).unwrap();
        let left = import.report.iter().filter(|left| left.kind.is_left()).map(ToString::to_string);
        (import.config, left.collect::<Vec<_>>().join("\n"))
    };
    for (lines, sticky) in [
        (
            "stick-table type ip size 1m expire 30m|stick on src",
            "on = \"source\", entries-max = 1048576, expire = \"30m\"",
        ),
        (
            "stick-table type string len 64 size 10k expire 1h|stick on req.cook(sid)",
            "on = \"cookie.sid\", entries-max = 10240",
        ),
        (
            "stick-table type string size 9|stick on hdr(X-Id) table l",
            "on = \"header.x-id\", entries-max = 9, expire = \"24h\"",
        ),
        (
            "stick-table type string size 9 expire 2d|stick match url_param(a)|stick store-request url_param(a)",
            "on = \"query.a\", entries-max = 9, expire = \"24h\"",
        ),
    ] {
        let (config, left) = backend(lines);
        assert!(config.contains(sticky) && left.is_empty(), "{lines}: {left}\n{config}");
    }
    for (lines, reason) in [
        ("stick-table type string size 9|stick store-response res.cook(sid)", "from responses"),
        ("stick-table type string size 9|stick match path", "from responses"),
        ("stick-table type string size 9|stick on src|stick on path", "no second text"),
        ("stick-table type string size 9|stick on src if METH_GET", "a condition of"),
        ("stick on src table other", "another section"),
        ("stick on src", "no stick-table here"),
        ("stick-table type ip size 9|stick on hdr(x)", "of the type 'ip'"),
        ("stick-table type string size 9|stick on hdr(x),lower", "the converter 'lower'"),
        ("stick-table type string size 9|stick on ssl_fc_session_id", "'ssl_fc_session_id'"),
        ("balance source|stick-table type ip size 9|stick on src", "by a hash"),
        ("stick-table type ip size 9 store http_req_rate(10s)", "counters of clients"),
    ] {
        let (config, left) = backend(lines);
        assert!(!config.contains("sticky") && left.contains(reason), "{lines}: {left}\n{config}");
    }
    let (config, left) = backend("stick-table type ip size 9 expire 1m peers p|stick on src");
    assert!(config.contains("sticky") && left.contains("not shared"), "{left}");
}

#[test]
fn backends_without_servers_respond_themselves() {
    let text = "frontend f\n  mode http\n  bind :80\n  http-response set-header X-A 1\n  use_backend up if { path /up }\n  \
                use_backend sorry if { path /sorry }\n  default_backend none\nbackend up\n  mode http\n  \
                http-request return status 200 content-type text/plain string ok if METH_GET\nbackend sorry\n  mode http\n  \
                http-error status 503 content-type text/plain string sorry\nbackend none\n  mode http\n  http-request deny deny_status 404\n";
    let import = convert(Program::Haproxy, "t.cfg", text, &mut Files(FILES.into())).unwrap();
    for part in ["body = \"ok\"", "deny = 503", "body = \"sorry\"", "deny = 404"] {
        assert!(import.config.contains(part), "{part}: {}", import.config);
    }
    // Fields of responses of servers are not those of HAProxy's own.
    assert!(!import.config.contains("x-a") && !import.config.contains("[pool."), "{}", import.config);
    assert!(!import.report.iter().any(|left| left.to_string().contains("no backend")), "{:?}", import.report);
}

#[test]
fn values_of_responses_and_exceptions_are_those_of_routes() {
    assert_becomes(
        "http-response set-header X-S %[srv_name]|http-after-response set-header X-A 1",
        &["set-response-header = { x-s = \"{server}\", x-a = \"1\" }"],
        None,
    );
    assert_becomes("http-response set-header X-S %[res.hdr(x)]", &["pool = \"a\""], Some("the value"));
    for (lines, part) in [
        ("http-response set-header X-S %[res.hdr(x)]", "deny = 501"),
        // Servers get only the line of weir.
        ("option forwardfor|http-request del-header X-Forwarded-For", "remove-request-header"),
    ] {
        let config = import(lines).config;
        assert!(!config.contains(part), "{config}");
    }
    assert_becomes(
        "option forwardfor except 10.0.0.0/8",
        &["source = \"10.0.0.0/8\"\npool = \"a\"", "forwarding = { x-forwarded = false }"],
        None,
    );
    assert_becomes(
        "http-request set-header X-Forwarded-Proto https|http-request del-header X-Forwarded-Proto",
        &["remove-request-header = [\"X-Forwarded-Proto\"]"],
        None,
    );
    assert_becomes("option forwardfor header X-Real", &["x-forwarded = true"], Some("another name"));
    assert_becomes(
        "option forwardfor header X-Forwarded-For if-none",
        &["forwarded-for = \"if-none\""],
        None,
    );
    assert_becomes(
        "http-request set-path %[path,regsub(^/api/,/)]",
        &["path-prefix = \"/api/\"", "rewrite-prefix = \"/\""],
        None,
    );
    for path in ["^/api,", "^/a.c/,/", "/api/,/", "^/api/,/x"] {
        assert_becomes(
            &format!("http-request set-path %[path,regsub({path})]"),
            &["deny = 501"],
            Some("prefix"),
        );
    }
    let status = "http-response return status 404 errorfile /403.http if { status 404 }";
    assert_becomes(status, &["pool = \"a\""], Some("replace = \"all\""));
    assert_becomes("http-response return status 404 string x", &["deny = 501"], Some("'return'"));
    assert_becomes("use_backend b if { path /x } OR { path /y }", &["path = [\"/x\", \"/y\"]"], None);
    assert_becomes("use_backend %[str(missing),map(/hosts)]", &["pool = \"a\""], None);
    assert_becomes("use_backend %[str(a.example),map(/hosts)]", &["pool = \"b\""], None);
    let variable =
        "http-request set-var(txn.h) req.hdr(host),lower,field(1,:)|use_backend %[var(txn.h),map(/hosts)]";
    assert_becomes(variable, &["key = \"host\"", "map = { hosts = \"b\" }"], None);
    assert_becomes(
        "use_backend b if { hdr(host),lower,field(1,:) a.example }",
        &["regex = '(?i)^a\\.example(?:[:]|$)'"],
        None,
    );
}

#[test]
fn parts_of_hosts_are_conditions() {
    for (expression, regex) in [
        ("lower,field(1,.)", "^a(?:[.]|$)"),
        ("lower,field(1,:),field(1,.)", "^a(?:[:.]|$)"),
        ("lower,regsub(\\.example\\.com$,,)", "^a(?:\\.example\\.com)?$"),
        ("lower,regsub(^www\\.,)", "^(?:www\\.)?a$"),
    ] {
        let parts = [format!("(?i){regex}")];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_becomes(&format!("use_backend %[req.hdr(host),{expression}]"), &parts, None);
    }
    let map = "use_backend %[req.hdr(host),lower,regsub(^x\\.,,),map(/hosts,c)]";
    assert_becomes(map, &["regex = '(?i)^(?:x\\.)?a\\.example$'", "pool = \"b\""], None);
    for converters in [
        "regsub(^w.,,)",
        "regsub(a,b,)",
        "regsub(^a$,,)",
        "field(2,.)",
        "regsub(^a,,),field(1,:)",
        "regsub(^a,,i)",
    ] {
        assert_becomes(
            &format!("use_backend %[req.hdr(host),{converters}]"),
            &["deny = 501"],
            Some("converter"),
        );
    }
}

#[test]
fn paths_of_the_status_page_and_of_monitors_are_not_forwarded() {
    assert_becomes(
        "stats enable|stats uri /stats",
        &["path-regex = \"^/stats\"\ndeny = 501", "pool = \"a\""],
        Some("its path gets 501"),
    );
    assert_becomes(
        "monitor-uri /up|monitor fail if { nbsrv(a) lt 1 }",
        &["Service ready"],
        Some("always responds"),
    );
    assert_becomes(
        "option forwardfor|http-request add-header X-Forwarded-Proto https if { path /x }",
        &["set-request-header = { x-forwarded-proto = \"https\" }"],
        None,
    );
}
