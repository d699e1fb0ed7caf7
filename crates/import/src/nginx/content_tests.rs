//! Tests of compression and files.

use super::tests::config;

/// Returns a server with files at `/`, and with further directives and locations.
fn server(location: &str, others: &str) -> String {
    format!("server {{ {others} location / {{ root /usr/share; {location} }} }}")
}

fn left(report: &[String]) -> Vec<&String> {
    report.iter().filter(|line| line.contains("not supported") || line.contains("needs")).collect()
}

#[test]
fn the_same_compression_everywhere_is_that_of_the_listener() {
    let gzip = "gzip on; gzip_types text/css text/html Text/CSS; gzip_min_length 1k; gzip_comp_level 5;";
    let (text, report) = config(&format!("{gzip} server {{ location / {{ proxy_pass http://10.0.0.1; }} }}"));
    let (listener, routes) = text.split_once("[[route]]").unwrap();
    let key = "compression = { codings = \"gzip\", min-size = 1024, level = { gzip = 5 }, \
               types = [\"text/html\", \"text/css\"], with-credentials = true }";
    assert!(listener.contains(key) && !routes.contains("compression"), "{text}");
    assert!(left(&report).is_empty(), "{report:?}");
    let differs = report.iter().filter(|line| line.contains("differs"));
    assert!(
        differs.clone().count() == 1 && report[0].contains("Vary") && report[0].contains("Via"),
        "{report:?}"
    );
    // Settings that weir has in the same way are not reported, nor is compression that is off.
    let (_, report) =
        config("gzip on; gzip_vary on; gzip_proxied any; location / { proxy_pass http://10.0.0.1; }");
    assert!(!report[0].contains("Vary") && !report[0].contains("Via"), "{report:?}");
    let (text, report) = config("gzip off; gzip_types text/css; location / { proxy_pass http://10.0.0.1; }");
    assert!(!text.contains("compression") && report.is_empty(), "{text}\n{report:?}");
}

#[test]
fn other_compressions_are_those_of_routes() {
    let (text, _) = config(
        "gzip_types text/css; server { location /a/ { gzip on; proxy_pass http://10.0.0.1; }\n\
         location /b/ { proxy_pass http://10.0.0.1; }\n\
         location /c/ { gzip on; gzip_types *; proxy_pass http://10.0.0.1; } }",
    );
    assert_eq!(text.matches("compression = ").count(), 2, "{text}");
    assert!(text.contains("types = [\"text/html\", \"text/css\"]"), "{text}");
    assert!(text.contains("types = [\"text/*\", \"application/*\","), "{text}");
    // Decoys: types that are none, and too many.
    let types: String = (0..70).map(|number| format!(" a/t{number}")).collect();
    let (text, report) =
        config(&format!("gzip on; gzip_types{types}; location / {{ proxy_pass http://10.0.0.1; }}"));
    assert!(text.contains("types = \"text/html\"") && left(&report).len() == 1, "{text}\n{report:?}");
    let (text, _) = config("gzip on; gzip_types x */* text/*; location / { proxy_pass http://10.0.0.1; }");
    assert!(text.contains("types = \"text/html\""), "{text}");
}

#[test]
fn directories_are_files() {
    for (location, others, part) in [
        ("", "", "files = { root = \"/usr/share\", hidden = true, precompressed = false }"),
        ("index a.html b.htm;", "", "index = [\"a.html\", \"b.htm\"]"),
        ("", "index a.html;", "index = \"a.html\""),
        ("autoindex on;", "", "list = true"),
        ("try_files $uri $uri/ =404;", "", "files = { root = \"/usr/share\", hidden"),
        ("try_files $uri =404;", "", "path-regex = \"/$\"\ndeny = 404"),
        ("try_files $uri /index.html;", "", "spa = true"),
        (
            "gzip on; gzip_types text/css;",
            "",
            "compression = { codings = \"gzip\", min-size = 20, level = { gzip = 1 } }",
        ),
        ("gzip_static on;", "", "files = { root = \"/usr/share\", hidden = true }"),
        ("expires 1h;", "", "cache-control = \"max-age=3600\""),
        ("limit_except GET { deny all; }", "", "not = { method = [\"GET\", \"HEAD\"] }"),
        ("", "location ~ \\.(css|js)$ { deny all; }", "files = { root"),
        ("log_not_found off;", "types { text/html html; }", "files = { root"),
        (
            "try_files $uri $uri/ /index.html;",
            "location = /index.html { root /usr/share; expires 1h; }",
            "spa = true",
        ),
    ] {
        let (text, report) = config(&server(location, others));
        assert!(text.contains(part) && left(&report).is_empty(), "{location} {others}\n{text}\n{report:?}");
        assert!(!text.contains("list = true, hidden"), "a list would have the hidden names");
    }
    let (text, report) = config("location /x/ { alias /usr/share/; }");
    assert!(text.contains("rewrite-prefix = \"/\"\nfiles = { root") && left(&report).is_empty(), "{text}");
    // The directory of the fallback is the root.
    let (text, _) = config("location /usr/share/ { root /; try_files $uri /usr/share/index.html; }");
    assert!(text.contains("root = \"/usr/share\", spa = true") && text.contains("rewrite-prefix"), "{text}");
}

#[test]
fn files_that_weir_would_serve_in_another_way_stay_refused() {
    for (location, others) in [
        // What changes contents or types.
        ("ssi on;", ""),
        ("sub_filter a b;", ""),
        ("", "sub_filter a b;"),
        ("types { }", ""),
        ("", "types { application/octet-stream html; }"),
        ("flv;", ""),
        ("disable_symlinks on;", ""),
        ("auth_basic x;", ""),
        ("gzip_static always;", ""),
        ("error_page 404 = @app;", "location @app { proxy_pass http://10.0.0.1; }"),
        // Fallbacks to other places.
        ("try_files $uri.html =404;", ""),
        ("try_files $uri /index.php?$args;", ""),
        ("try_files $uri =403;", ""),
        ("try_files $uri /other.html;", ""),
        ("try_files $uri /index.html;", "location = /index.html { deny all; root /usr/share; }"),
        ("try_files $uri /index.html;", "location = /index.html { return 403; }"),
        ("try_files $uri /index.html;", "location = /index.html { root /usr/lib; }"),
        ("try_files $uri /index.html;", "location /ind { deny all; }"),
        ("try_files $uri /index.html;", "location ~ html { deny all; }"),
        ("try_files $uri /index.html;", "location ~* \\.(HTML|css)$ { deny all; }"),
        ("try_files $uri /index.html;", "location /a { location ~ html { deny all; } }"),
        // Directories that nobody knows.
        ("root /no/such;", ""),
        ("root share;", ""),
        ("root /usr/$host;", ""),
        ("root /usr/lib/../share;", ""),
    ] {
        let (text, report) = config(&server(location, others));
        assert!(!text.contains("files = {"), "{location} {others}\n{text}");
        assert!(
            text.contains("deny = 501") && !left(&report).is_empty(),
            "{location} {others}\n{text}\n{report:?}"
        );
    }
    for location in
        ["/x/ { alias /usr/share; }", "~ ^/x/(.*)$ { alias /usr/share/$1; }", "= /x/ { alias /usr/share/; }"]
    {
        let (text, _) = config(&format!("location {location}"));
        assert!(!text.contains("files = {") && text.contains("deny = 501"), "{text}");
    }
}

#[test]
fn an_index_in_another_location_refuses_directories() {
    for (location, others, is_closed) in [
        ("", "location ~ \\.html$ { deny all; }", true),
        ("", "location ~ \\.(css|js)$ { deny all; }", false),
        ("index index.php index.html;", "location ~ \\.php$ { fastcgi_pass 10.0.0.1:9000; }", true),
        ("", "location = /sub/index.html { deny all; }", true),
        ("", "location /sub/in { deny all; }", true),
        ("", "location /sub/ { deny all; }", false),
    ] {
        let (text, _) = config(&server(location, others));
        let has_rule = text.contains("path-regex = \"/$\"");
        assert!(has_rule == is_closed && text.contains("files = {"), "{location} {others}\n{text}");
    }
    let preferred = "server { location ^~ /a/ { root /usr/share; } location ~ html { deny all; } }";
    let (text, _) = config(preferred);
    assert!(text.contains("files = {") && !text.contains("\"/$\""), "{text}");
}

#[test]
fn prefixes_without_a_slash_refuse_longer_names() {
    let (text, _) = config("location /x { alias /usr/share; }");
    assert!(text.contains("location = \"/x/{query}\"") && text.contains("path-prefix = \"/x\""), "{text}");
    assert!(text.contains("deny = 404") || text.contains("deny = 501"), "{text}");
}
