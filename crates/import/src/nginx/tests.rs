//! Tests of variables and pages.

use crate::fuzzing::NoSurroundings;
use crate::{IncludeError, Program, Surroundings, convert};

/// Converts a config, and returns it with its report.
pub(super) fn config(text: &str) -> (String, Vec<String>) {
    convert_with(text, &mut NoSurroundings)
}

fn convert_with(text: &str, surroundings: &mut dyn Surroundings) -> (String, Vec<String>) {
    let import = convert(Program::Nginx, "t.conf", text, surroundings).unwrap();
    (import.config, import.report.iter().map(ToString::to_string).collect())
}

/// Machine with one page, `/srv/50x.html`.
struct Pages;

impl Surroundings for Pages {
    fn include(&mut self, pattern: &str) -> Result<Vec<(String, String)>, IncludeError> {
        NoSurroundings.include(pattern)
    }

    fn exists(&mut self, path: &str) -> bool {
        path == "/srv/50x.html"
    }

    fn is_page(&mut self, path: &str) -> bool {
        path == "/srv/50x.html"
    }

    fn has_user(&mut self, _: &str) -> bool {
        false
    }

    fn has_group(&mut self, _: &str) -> bool {
        false
    }

    fn variable(&mut self, _: &str) -> Option<String> {
        None
    }

    fn secret(&mut self) -> String {
        NoSurroundings.secret()
    }
}

fn left(report: &[String]) -> Vec<&String> {
    report.iter().filter(|line| line.contains("not supported") || line.contains("needs")).collect()
}

#[test]
fn the_map_of_upgrades_leaves_nothing() {
    let (text, report) = config(
        "map $http_upgrade $connection_upgrade { default upgrade; '' close; }\n\
         location / { proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;\n\
         proxy_pass http://10.0.0.1; }",
    );
    assert!(!text.contains("[map.") && left(&report).is_empty(), "{text}\n{report:?}");
}

#[test]
fn maps_have_the_kind_of_their_keys() {
    let of = |map: &str| config(&format!("{map} location / {{ return 200 $m; }}"));
    for (map, expected) in [
        (
            "map $http_x_a $m { a 1; B 2; a 3; }",
            "key = \"header.x-a\"\nignore-case = true\ndefault = \"\"\nentries = { a = \"1\", b = \"2\" }",
        ),
        (
            "map $http_x_a $m { default d; '' e; a 1; }",
            "match = \"regex\"\ndefault = \"d\"\nentries = { \"^$\" = \"e\", \"(?i)^a$\" = \"1\" }",
        ),
        // Strings come before expressions, and wildcards in between, the longest ones first.
        (
            "map $host $m { hostnames; ~^w 4; *.b.a 2; *.a 3; mail.* 5; x.a 1; }",
            "entries = { '(?i)^x\\.a$' = \"1\", '(?i)^.+\\.b\\.a$' = \"2\", '(?i)^.+\\.a$' = \"3\", '(?i)^mail\\..+$' = \"5\", \"^w\" = \"4\" }",
        ),
        (
            "map $host $m { hostnames; .a.b 1; *.c 2; }",
            "match = \"domain\"\ndefault = \"\"\nentries = { \"a.b\" = \"1\", \"*.c\" = \"2\" }",
        ),
        ("map $host $m { *.c 2; }", "entries = { \"*.c\" = \"2\" }"),
        ("map $request_method $m { \\default 1; POST 2; }", "entries = { default = \"1\", post = \"2\" }"),
        ("map \"$scheme:$http_x_a\" $m { https:a 1; }", "key = \"{scheme}:{header.x-a}\""),
        (
            "geo $m { default 0; 10.0.0.0/8 1; 10.0.0.0/8 2; 192.168.1.1 3; }",
            "entries = { \"10.0.0.0/8\" = \"2\", \"192.168.1.1/32\" = \"3\" }",
        ),
    ] {
        let (text, report) = of(map);
        assert!(text.contains(expected) && left(&report).is_empty(), "{map}\n{text}\n{report:?}");
    }
}

#[test]
fn maps_that_weir_cannot_have_are_left_with_the_reason() {
    for (map, reason) in [
        ("map $upstream_http_x $m { a 1; }", "no such text of a request"),
        ("map $http_x $m { ~(?<=a)b 1; }", "does not compare with the expression '(?<=a)b'"),
        ("map $uri $m { ~^/a.*20$ 1; }", "does not compare with"),
        ("map $uri $m { '/a;b' 1; }", "several spellings"),
        ("geo $m { ranges; 10.0.0.0-10.0.0.9 1; }", "'ranges' in it"),
        ("geo $m { proxy 10.0.0.1; default 1; }", "'proxy 10.0.0.1' in it"),
        ("split_clients $request_id $m { 10% a; * b; }", "no such text of a request"),
        ("map $http_x $m { ~^/(.*)$ /$1; }", "depends on the request"),
    ] {
        let (text, report) = config(&format!("{map} location / {{ return 200 $m; }}"));
        assert!(text.contains("deny = 501"), "{map}\n{text}");
        assert!(report.iter().any(|line| line.contains(reason)), "{map}\n{report:?}");
    }
    // What nobody uses is left without a word.
    let (text, report) = config("map $http_x $m { ~(?<=a)b 1; } location / { return 200 x; }");
    assert!(!text.contains("map") && left(&report).is_empty(), "{report:?}");
}

#[test]
fn values_with_variables_become_routes() {
    let (text, report) = config(
        "map $http_x_a $to { default $host; '' $scheme; x y; }\n\
         location / { proxy_set_header X-B $to; proxy_pass http://10.0.0.1; }",
    );
    assert_eq!(text.matches("[[route]]").count(), 3, "{text}");
    for part in ["map = { to = \"$scheme\" }", "x-b = \"http\"", "x-b = \"y\"", "x-b = \"{host}\""] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(left(&report).is_empty(), "{report:?}");
    // Too many combinations: the field is removed, and clients cannot set it.
    let sets: String = (0..6).map(|number| format!("proxy_set_header X-{number} $to;")).collect();
    let (text, report) = config(&format!(
        "map $http_x_a $to {{ default $host; '' $scheme; x y; }}\n\
         location / {{ {sets} proxy_pass http://10.0.0.1; }}",
    ));
    assert!(text.contains("remove-request-header") && !left(&report).is_empty(), "{text}");
}

#[test]
fn conditions_are_those_of_the_values() {
    let (text, report) = config(
        "map $http_x_a $bad { default 0; a 1; b 1; c ''; } map $http_x_b $ok { default 1; a 0; }\n\
         location / { if ($bad) { return 403; } if ($ok = 0) { return 404; } if ($ok != 1) { return 405; }\n\
         if ($bad ~ ^1$) { return 406; } proxy_pass http://10.0.0.1; }",
    );
    for part in
        ["map = { bad = \"1\" }", "map = { ok = \"0\" }", "map = { bad = { regex = \"^1$\" } }", "deny = 405"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(left(&report).is_empty(), "{report:?}");
    // A parameter is decoded by weir only: what it restricts is 501.
    let (text, _) = config(
        "map $arg_a $bad { default 0; a 1; } location / { if ($bad) { return 403; } proxy_pass http://10.0.0.1; }",
    );
    assert!(text.contains("deny = 501"), "{text}");
}

#[test]
fn destinations_of_variables_are_pools() {
    let (text, report) = config(
        "upstream a { server 10.0.0.1; } upstream b { server 10.0.0.2; }\n\
         map $cookie_v $pool { default a; 2 b; }\n\
         server { set $port 81; location / { proxy_pass http://$pool; }\n\
         location /s/ { set $up 10.0.0.3; proxy_pass http://$up:$port$request_uri; }\n\
         location /u/ { proxy_pass http://$pool/x; } }",
    );
    for part in ["map = { pool = \"b\" }", "pool = \"b\"", "pool = \"a\"", "servers = [\"10.0.0.3:81\"]"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(left(&report).iter().all(|line| line.contains("replaces the whole path")), "{report:?}");
}

#[test]
fn shares_keep_their_sums() {
    let (text, report) = config(
        "split_clients \"$remote_addr$http_user_agent\" $v { 10% a; 0.5% b; * c; }\n\
         location / { proxy_set_header X-V $v; if ($v = b) { return 403; } proxy_pass http://10.0.0.1; }",
    );
    assert!(text.contains("percent = 10, key = \"{source}{header.user-agent}\""), "{text}");
    assert!(text.contains("percent = 10.50"), "{text}");
    assert!(
        left(&report).is_empty() && report.iter().any(|line| line.contains("other clients")),
        "{report:?}"
    );
}

#[test]
fn pages_are_files_that_are_there() {
    let server = |root: &str| {
        format!(
            "server {{ error_page 500 502 503 504 /50x.html; location = /50x.html {{ root {root}; }}\n\
             location /a/ {{ error_page 404 /50x.html; proxy_intercept_errors on; proxy_pass http://10.0.0.1; }}\n\
             location /b/ {{ error_page 404 =200 /50x.html; proxy_pass http://10.0.0.1; }}\n\
             location / {{ return 503; }} }}"
        )
    };
    let (text, report) = convert_with(&server("/srv"), &mut Pages);
    let page = "[[route.error-page]]\nstatus = \"500,502,503,504\"\nhtml = \"/srv/50x.html\"";
    let comment = "# t.conf:1: error_page 500 502 503 504 /50x.html;\n";
    assert!(text.contains(&format!("{comment}{page}")), "{text}");
    assert!(text.contains("status = \"404\"\nreplace = \"all\"\nhtml = \"/srv/50x.html\""), "{text}");
    assert!(text.contains("body-file = \"/srv/50x.html\"") && text.contains("deny = 405"), "{text}");
    assert_eq!(left(&report).len(), 1, "{report:?}");
    assert!(left(&report)[0].contains("keeps the status"), "{report:?}");
    // Decoys: a page that is missing, and one that an expression may serve.
    let (text, report) = convert_with(&server("/other"), &mut Pages);
    assert!(!text.contains("route.error-page") && text.matches("deny = 501").count() == 1, "{text}");
    assert!(report.iter().any(|line| line.contains("the page /other/50x.html, missing here")), "{report:?}");
    let (text, _) = convert_with(
        "server { root /srv; error_page 404 /50x.html; location ~ html { proxy_pass http://10.0.0.1; } }",
        &mut Pages,
    );
    assert!(!text.contains("route.error-page"), "{text}");
}

#[test]
fn a_status_may_be_a_jump() {
    let (text, report) = config(
        "server { location / { error_page 418 = @b; if ($http_x_a) { return 418; } return 200 a; }\n\
         location @b { return 200 b; } }",
    );
    assert!(text.contains("body = \"b\"") && !text.contains("418,"), "{text}");
    assert!(left(&report).is_empty(), "{report:?}");
}

#[test]
fn texts_in_texts_are_bounded() {
    let mut sets = String::from("set $v0 xxxxxxxxxxxxxxxx;");
    for number in 1..8 {
        sets.push_str(&format!("set $v{number} {};", format!("$v{}", number - 1).repeat(200)));
    }
    let text = format!("location / {{ {sets} return 200 $v7; }}");
    let result = convert(Program::Nginx, "t.conf", &text, &mut NoSurroundings);
    assert!(result.is_err() || result.is_ok_and(|import| import.config.len() < 1 << 20));
}
