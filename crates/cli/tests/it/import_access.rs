//! `weir proxy import` and access: what the source's program refuses, weir with the import refuses, too. What it does not
//! translate is 501, reported, and exit code 3.

use std::fs;

use crate::import::origin;
use crate::support::client::Client;
use crate::support::proxies::ComparedProxy;
use crate::support::{run_weir, shared_machine, temp_dir};

/// Address of the listener in the source; nothing listens there.
const ADDRESS: &str = "127.0.0.1:18998";

/// One config, its exit code, and its requests (method, path and fields) with their outcomes: the origin, or a status.
struct Case {
    program: &'static str,
    source: &'static str,
    code: i32,
    requests: &'static [(&'static str, &'static str)],
}

/// Imports a source. Returns its exit code, its config and its report.
fn import(program: &str, source: &str) -> (i32, String, String) {
    let directory = temp_dir();
    let file = directory.path().join("source");
    fs::write(&file, source).unwrap();
    let import = run_weir(&["proxy", "import", "--from", program, file.to_str().unwrap()]);
    (
        import.code,
        import.stdout.replace(ADDRESS, "127.0.0.1:0").replace("\":18998\"", "\"127.0.0.1:0\""),
        import.stderr,
    )
}

fn outcome(authority: &str, request: &str) -> String {
    let (line, fields) = request.split_once(' ').map_or((request, ""), |(line, fields)| (line, fields));
    let (method, path) = line.split_once(':').unwrap_or(("GET", line));
    let host = if fields.to_ascii_lowercase().contains("host:") { "" } else { "Host: a.example\r\n" };
    let fields: String =
        fields.split('|').filter(|field| !field.is_empty()).map(|field| format!("{field}\r\n")).collect();
    let mut client = Client::connect(authority);
    client.send(format!("{method} {path} HTTP/1.1\r\n{host}{fields}Content-Length: 0\r\n\r\n").as_bytes());
    let Some(response) = client.read_response() else { return "closed".to_owned() };
    let served = response.head.lines().find_map(|line| line.strip_prefix("X-Origin: ").map(str::to_owned));
    served.unwrap_or_else(|| response.status.to_string())
}

fn check(cases: &[Case]) {
    let _shared = shared_machine();
    let origins = [origin("a"), origin("b")];
    for Case { program, source, code, requests } in cases {
        let source = source.replace("@A", &origins[0]).replace("@B", &origins[1]).replace("@L", ADDRESS);
        let (found, config, report) = import(program, &source);
        assert_eq!(found, *code, "{source}\n{report}");
        let weir = ComparedProxy::weir(&config);
        for (request, expected) in *requests {
            assert_eq!(outcome(&weir.authority, request), *expected, "{request}\n{source}\n{config}");
        }
    }
}

const HAPROXY: &[Case] = &[
    // Terms behind a negated one.
    Case {
        program: "haproxy",
        source: "frontend f\n mode http\n bind @L\n acl a hdr(x-a) 1\n acl p path_beg /p\n http-request deny if !a p\n \
                 use_backend b if !a { path_beg /b }\n default_backend a\nbackend a\n mode http\n server s @A\n\
                 backend b\n mode http\n server s @B\n",
        code: 0,
        requests: &[("/p/x", "403"), ("/p/x X-A: 1", "a"), ("/b", "b"), ("/b X-A: 1", "a"), ("/", "a")],
    },
    // Tests of fields and paths that an earlier rule changed.
    Case {
        program: "haproxy",
        source: "listen f\n mode http\n bind @L\n http-request set-header X-A 1 unless { path /x }\n \
                 http-request del-header X-B if { path /y }\n http-request set-path /admin if { path /z }\n \
                 http-request replace-path ^/api/(.*) /\\1\n http-request deny deny_status 404 if { hdr(x-a) 2 }\n \
                 http-request deny unless { hdr(x-b) -m found } || { path /x }\n \
                 http-request deny deny_status 429 if { path_beg /admin }\n server s @A\n",
        code: 0,
        requests: &[
            ("/x X-A: 2", "404"),
            ("/w X-A: 2|X-B: 1", "a"),
            ("/y X-B: 1", "403"),
            ("/z X-B: 1", "429"),
            ("/api/admin X-B: 1", "429"),
            ("/api/x X-B: 1", "a"),
            ("/api/w", "403"),
        ],
    },
    // Many denials, and an ACL whose name has further lines behind the rule.
    Case {
        program: "haproxy",
        source: "listen f\n mode http\n bind @L\n http-request deny if { path /1 } || { path /2 } || { hdr(x-a) 3 } || \
                 { hdr(x-b) 4 } || { path_end 5 } || { method PUT } || { src 10.0.0.0/8 } || late\n acl late path /6\n \
                 acl late hdr(x-c) 7\n server s @A\n",
        code: 0,
        requests: &[
            ("/1", "403"),
            ("/x X-A: 3", "403"),
            ("/x X-B: 4", "403"),
            ("/x5", "403"),
            ("PUT:/x", "403"),
            ("/6", "403"),
            ("/x X-C: 7", "403"),
            ("/x", "a"),
        ],
    },
    // Conditions and actions that weir does not have.
    Case {
        program: "haproxy",
        source: "listen f\n mode http\n bind @L\n http-request deny if { path_beg /a } { url_param(x) 1 }\n \
                 http-request auth if { path_beg /b }\n http-request lua.check if { path_beg /c }\n \
                 http-request deny if { path_beg /d } !{ hdr(host) -f /no/list }\n \
                 http-request return status 200 lf-file /x if { path_beg /e }\n server s @A\n",
        code: 3,
        requests: &[("/a", "501"), ("/b", "501"), ("/c", "501"), ("/d", "501"), ("/e", "501"), ("/f", "a")],
    },
    Case {
        program: "haproxy",
        source: "frontend f\n mode http\n bind @L\n some-new-filter on\n default_backend a\nbackend a\n mode http\n server s @A\n",
        code: 3,
        requests: &[("/", "501")],
    },
];

const NGINX: &[Case] = &[
    // The end of one kind of authentication is not that of the other.
    Case {
        program: "nginx",
        source: "server { listen @L; auth_request /auth; location / { auth_basic off; proxy_pass http://@A; } \
                 location /open { auth_request off; proxy_pass http://@A; } }",
        code: 3,
        requests: &[("/", "501"), ("/open", "a")],
    },
    // Nested expressions, and what a location inherits.
    Case {
        program: "nginx",
        source: "server { listen @L; location ~ \\.css$ { proxy_pass http://@B; } location /a/ { deny all; \
                 location ~ \\.css$ { proxy_pass http://@A; } location ~ \\.js$ { allow all; proxy_pass http://@A; } \
                 proxy_pass http://@A; } location / { proxy_pass http://@A; } }",
        code: 0,
        requests: &[("/a/x.css", "403"), ("/x.css", "b"), ("/a/x.js", "a"), ("/a/x", "403"), ("/x.js", "a")],
    },
    // Rules of a named location, and of the one in front of it.
    Case {
        program: "nginx",
        source: "server { listen @L; location / { try_files /x @app; } location /in { deny all; try_files /x @open; } \
                 location @app { deny all; proxy_pass http://@A; } location @open { proxy_pass http://@A; } \
                 location /up { try_files /x @open; } }",
        code: 3,
        requests: &[("/", "403"), ("/in", "403"), ("/up", "a")],
    },
    Case {
        program: "nginx",
        source: "server { listen @L; location /x { internal; return 200 secret; } location / { proxy_pass http://@A; } }",
        code: 0,
        requests: &[("/x", "404"), ("/", "a")],
    },
    Case {
        program: "nginx",
        source: "server { listen @L; location / { satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; proxy_pass http://@A; } \
                 location /l { satisfy any; allow 127.0.0.1; deny all; auth_basic x; proxy_pass http://@A; } \
                 location /d { deny 10.0.0.0/8; allow 127.0.0.1; deny all; proxy_pass http://@A; } \
                 location /e { allow 10.0.0.0/8; deny 127.0.0.1; allow all; proxy_pass http://@A; } }",
        code: 3,
        requests: &[("/", "501"), ("/l", "a"), ("/d", "a"), ("/e", "403")],
    },
    // The client's address is one of a field; a directive that is not known; an unreadable file of rules.
    Case {
        program: "nginx",
        source: "server { listen @L; location / { set_real_ip_from 127.0.0.1; allow 127.0.0.1; deny all; proxy_pass http://@A; } \
                 location /m { modsecurity on; proxy_pass http://@A; } location /i { include no-such.conf; proxy_pass http://@A; } \
                 location /if { if ($request_uri ~ x) { return 403; } proxy_pass http://@A; } \
                 location /r { rewrite ^/r/a /admin last; proxy_pass http://@A; } }",
        code: 3,
        requests: &[
            ("/", "501"),
            ("/m", "501"),
            ("/i", "501"),
            ("/if", "501"),
            ("/r/a", "501"),
            ("/r/b", "a"),
        ],
    },
    // Parameters and triplets that weir compares in another way.
    Case {
        program: "nginx",
        source: "server { listen @L; location = /pub { proxy_pass http://@A; } location ~ \\.php$ { deny all; } \
                 location / { deny all; } }",
        code: 0,
        requests: &[("/pub", "a"), ("/%70ub", "a"), ("/pub;x=1", "501"), ("/x.php%0A", "501"), ("/x", "403")],
    },
];

const CADDY: &[Case] = &[
    Case {
        program: "caddy",
        source: "http://:18998 {\n @x not {\n path /a*\n method GET\n }\n respond @x 403\n reverse_proxy @A\n}\n",
        code: 0,
        requests: &[("/a", "a"), ("POST:/a", "403"), ("/b", "403")],
    },
    // The order of directives, and that of a route.
    Case {
        program: "caddy",
        source: "http://:18998 {\n handle /h/* {\n reverse_proxy @B\n }\n reverse_proxy @A\n basic_auth /h/* {\n u \
                 $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n }\n route /r/* {\n reverse_proxy /r/open @A\n \
                 respond 403\n reverse_proxy @A\n }\n route /s/* {\n uri strip_prefix /s\n respond /admin 403\n }\n}\n",
        code: 3,
        requests: &[
            ("/h/x", "501"),
            ("/r/open", "a"),
            ("/r/x", "403"),
            ("/s/admin", "403"),
            ("/s/x", "a"),
            ("/", "a"),
        ],
    },
    // Only the first handle that matches is applied.
    Case {
        program: "caddy",
        source: "http://:18998 {\n handle /a* {\n request_header X-B 1\n }\n handle /ab* {\n respond 404\n }\n handle {\n \
                 reverse_proxy @B\n }\n respond 403\n reverse_proxy @A\n}\n",
        code: 0,
        requests: &[("/ax", "403"), ("/abx", "404"), ("/x", "b")],
    },
    Case {
        program: "caddy",
        source: "{\n order respond before redir\n}\nhttp://:18998 {\n @e expression true\n redir /a /b\n respond /a 403\n \
                 reverse_proxy @e @A\n}\n",
        code: 3,
        requests: &[("/a", "403"), ("/b", "501")],
    },
];

#[test]
fn haproxy_rules_are_right_or_refuse() {
    check(HAPROXY);
}

#[test]
fn nginx_locations_are_right_or_refuse() {
    check(NGINX);
}

#[test]
fn caddy_directives_are_right_or_refuse() {
    check(CADDY);
}

/// Certificates of clients are asked for, or the requests are refused; without its authorities weir does not start.
#[test]
fn certificates_of_clients_are_never_dropped() {
    let _shared = shared_machine();
    let server = |name: &str, tls: &str| {
        format!(
            "server {{ listen {ADDRESS} ssl; server_name {name}; {tls} location / {{ proxy_pass http://127.0.0.1:9; }} }}\n"
        )
    };
    let mutual = "ssl_client_certificate /no/ca.pem; ssl_verify_client on;";
    let (code, config, report) = import("nginx", &(server("a", mutual) + &server("b", mutual)));
    assert!(code == 3 && config.contains("client-ca = \"/no/ca.pem\""), "{config}");
    assert!(report.contains("/no/ca.pem"), "{report}");
    // Only one of two servers, which is not the default one, wants them.
    let (code, config, _) = import("nginx", &(server("a", "") + &server("b", mutual)));
    assert!(code == 3 && !config.contains("client-ca"), "{config}");
    assert!(config.contains("host = \"b\"\ndeny = 501"), "{config}");
    let bind = |parameters: &str| {
        format!("listen f\n mode http\n bind {ADDRESS} ssl {parameters}\n server s 127.0.0.1:9\n")
    };
    let (code, config, _) = import("haproxy", &bind("verify required ca-file /no/ca.pem"));
    assert!(code == 3 && config.contains("client-ca = \"/no/ca.pem\""), "{config}");
    for parameters in [
        "verify required",
        "crt-list /no/list",
        "verify required ca-file /no/ca.pem crl-file /no/crl",
        "interface lo",
    ] {
        let (code, config, _) = import("haproxy", &bind(parameters));
        assert!(code == 3 && config.contains("deny = 501"), "{parameters}: {config}");
        assert!(!config.contains("\npool = "), "{parameters}: {config}");
    }
    let (code, config, _) = import(
        "caddy",
        "a.example {\n tls {\n client_auth {\n mode require\n }\n }\n reverse_proxy 127.0.0.1:9\n}\n",
    );
    assert!(code == 3 && config.contains("deny = 501") && !config.contains("\npool = "), "{config}");
}

/// A listener of mode tcp chooses by complete names or their ends; connections of other rules are rejected.
#[test]
fn server_names_are_matched_exactly_or_not_at_all() {
    let _shared = shared_machine();
    let source = |condition: &str| {
        format!(
            "frontend f\n mode tcp\n bind {ADDRESS}\n acl x {condition}\n use_backend b if x\n use_backend c if {{ req_ssl_sni c }}\n \
             default_backend d\nbackend b\n mode tcp\n server s 127.0.0.1:9\nbackend c\n mode tcp\n server s 127.0.0.1:9\n\
             backend d\n mode tcp\n server s 127.0.0.1:9\n"
        )
    };
    for (condition, name) in
        [("req_ssl_sni -i A.example", "a.example"), ("req.ssl_sni -m end .a.example", "*.a.example")]
    {
        let (code, config, report) = import("haproxy", &source(condition));
        assert_eq!(code, 0, "{report}");
        assert!(config.contains(&format!("server-name = \"{name}\", pool = \"b\"")), "{config}");
        assert!(config.contains("server-name = \"c\"") && config.contains("\npool = \"d\""), "{config}");
    }
    for manner in ["dom a", "sub a", "dir a", "beg a", "end a.example", "reg ^a", "found"] {
        let (code, config, _) = import("haproxy", &source(&format!("req_ssl_sni -m {manner}")));
        assert_eq!(code, 3, "{manner}");
        assert!(!config.contains("sni = ") && !config.contains("mode = \"tcp\""), "{manner}: {config}");
    }
}

/// A name or a text of the source cannot add a key to the config.
#[test]
fn no_text_of_the_source_becomes_a_key() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = directory.path().join("a\n[[route]]\npool = 'x'\n#");
    let text = "server { listen 127.0.0.1:1; server_name \"a\n[listener.x]\"; location / { return 200 \"x\\n[[route]]\ny = 1\"; } }";
    fs::write(&file, text).unwrap();
    let import = run_weir(&["proxy", "import", "--from", "nginx", file.to_str().unwrap()]);
    assert_eq!(import.code, 3, "{}", import.stderr);
    let heads = import.stdout.lines().filter(|line| line.starts_with('['));
    assert!(
        heads.clone().all(|line| ["[listener.port-1]", "[[route]]"].contains(&line)),
        "{}",
        import.stdout
    );
    assert!(
        !import.stdout.contains("\npool = 'x'") && !import.stdout.contains("\ny = 1"),
        "{}",
        import.stdout
    );
    assert!(proxy_config::config::parse("t", &import.stdout).is_ok(), "{}", import.stdout);
}

/// The length of an import, and its work, are bounded by that of the source; the limit says what and where.
#[test]
fn work_is_bounded_by_the_source() {
    let _shared = shared_machine();
    let mut snippets = String::from("(s0) {\n respond /x 403\n}\n");
    for level in 1..12 {
        let inner = level - 1;
        snippets += &format!("(s{level}) {{\n{}}}\n", format!(" import s{inner}\n").repeat(8));
    }
    snippets += "http://:18998 {\n import s11\n}\n";
    let mut acls = String::from("listen f\n mode http\n bind 127.0.0.1:1\n");
    (0..2_000).for_each(|n| acls += &format!(" acl a path /{n}\n"));
    (0..2_000).for_each(|n| acls += &format!(" http-request deny if !a {{ hdr(x) {n} }}\n"));
    acls += " server s 127.0.0.1:9\n";
    for (program, source) in [("caddy", snippets), ("haproxy", acls)] {
        let started_ns = rt::clock::now_ns();
        let (code, _, report) = import(program, &source);
        assert_eq!(code, 2, "{report}");
        assert!(report.contains("source:") && report.contains("too long"), "{report}");
        let seconds = (rt::clock::now_ns() - started_ns) as f64 / 1e9;
        crate::support::timing::assert_timing(
            seconds < 20.0,
            "import of a hostile config below 20 s",
            seconds,
        );
    }
}
