//! `weir proxy import` of configs of HAProxy with files: lists, maps and pages of errors; and tables of sessions.

use std::collections::BTreeMap;
use std::fs;

use tempfile::TempDir;

use crate::import::{REQUESTS, SOURCE_PORT, origin, outcome, request};
use crate::support::client::Client;
use crate::support::proxies::{ComparedProxy, free_port, is_installed};
use crate::support::{RunOutput, run_weir, shared_machine, temp_dir};

const MAPS: &str = include_str!("import/maps.cfg");
const NAMES: &str = include_str!("import/names.cfg");

const FILES: [(&str, &str); 14] = [
    ("hosts.lst", "# hosts\n\n  one.example\ntwo.example\r\n"),
    ("begins.lst", "/static\n/ap\n/v1/\n"),
    ("ends.lst", ".png\n.gif\n"),
    ("domains.lst", "b.two\nsecure\n"),
    ("robots.lst", "ROBOT\nspider one\n"),
    ("betas.lst", "1\nyes\n"),
    ("tenants.map", "one.example gold\nwww.one.example   gold \nthree.example silver\n"),
    ("redirects.map", "/old https://new.example/a?b=1\n/admin /login\n"),
    ("moved.map", "/img https://images.example\n/img/x https://x.example\n"),
    ("kinds.map", "/ short\n/api api\n/api/v1 version\n/strip/m me\n"),
    ("types.map", "app.js app\n.js script\n.css style\n"),
    ("networks.map", "127.0.0.0/8 loopback\n127.0.0.1 here\n10.0.0.0/8 inner\n"),
    ("bases.map", "secure.example/ b\nw7.example/a be_one\nw7.example/api a\n"),
    ("zones.map", "b.two be_one\ntwo be_two\nq missing\n"),
];
const BACKENDS: (&str, &str) = ("backends.map", "one.example one\nwww.q.net none\nunknown two\n");

/// Imports a config in a directory of its own with the files beside it. Returns the directory, too.
fn import(config: &str, files: &[(&str, &str)]) -> (TempDir, RunOutput) {
    let directory = temp_dir();
    let path = directory.path().to_str().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let source = directory.path().join("haproxy.cfg");
    let text = config.replace("{port}", SOURCE_PORT).replace("{directory}", path);
    fs::write(&source, text).unwrap();
    let output = run_weir(&["proxy", "import", "--from", "haproxy", source.to_str().unwrap()]);
    (directory, output)
}

/// Starts weir with an imported config.
fn start_weir(config: &str) -> ComparedProxy {
    ComparedProxy::weir(&config.replace(&format!("127.0.0.1:{SOURCE_PORT}"), "127.0.0.1:0"))
}

fn compare(config: &str, files: &[(&str, &str)]) {
    let _shared = shared_machine();
    if !is_installed("haproxy", &["-v"]) {
        return;
    }
    let origins = [origin("a"), origin("b"), origin("c")];
    let config = config.replace("@A", &origins[0]).replace("@B", &origins[1]).replace("@C", &origins[2]);
    let (_directory, imported) = import(&config, files);
    assert_eq!(imported.code, 0, "nothing is left: {}", imported.stderr);
    let original = ComparedProxy::start_with_files("HAProxy", &config, files);
    let weir = start_weir(&imported.stdout);
    let mut outcomes = BTreeMap::new();
    for number in 0..REQUESTS {
        let request = request(number);
        let expected = outcome(&original.authority, &request);
        assert_eq!(outcome(&weir.authority, &request), expected, "{request}\n{}", imported.stdout);
        let served = expected.iter().find(|line| line.starts_with("x-origin: "));
        *outcomes.entry(served.or_else(|| expected.first()).cloned()).or_insert(0) += 1;
    }
    assert!(outcomes.len() > 2, "the config has several outcomes: {outcomes:?}");
}

#[test]
fn lists_and_maps_are_the_same() {
    let files: Vec<(&str, &str)> = FILES.into_iter().chain([BACKENDS]).collect();
    compare(MAPS, &files);
}

#[test]
fn backends_by_their_names_are_the_same() {
    compare(NAMES, &[]);
}

/// Hosts with ports, and with letters in upper case, where HAProxy compares them.
#[test]
fn hosts_of_maps_have_the_ports_and_the_case_of_haproxy() {
    let _shared = shared_machine();
    if !is_installed("haproxy", &["-v"]) {
        return;
    }
    let config = "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nfrontend f\n  bind 127.0.0.1:{port}\n  \
         http-request set-header X-Bare %[hdr(host),lower,field(1,:),map({directory}/m.map,none)]\n  \
         http-request set-header X-Full %[hdr(host),map({directory}/m.map,none)]\n  \
         http-request set-header X-Base %[base,map_beg({directory}/m.map,none)]\n  default_backend a\nbackend a\n  server s @A\n";
    let files = [("m.map", "a.example bare\na.example:81 full\nb.example:81/x base\n")];
    let config = config.replace("@A", &origin("a"));
    let (_directory, imported) = import(&config, &files);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let original = ComparedProxy::start_with_files("HAProxy", &config, &files);
    let weir = start_weir(&imported.stdout);
    for host in
        ["a.example", "a.example:81", "A.Example", "A.example:81", "a.example:82", "b.example:81", "c"]
    {
        for path in ["/", "/x", "/xy?a"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let expected = outcome(&original.authority, &request);
            assert_eq!(outcome(&weir.authority, &request), expected, "{request}\n{}", imported.stdout);
        }
    }
    // weir compares a host without a dot at its end: it refuses what it cannot compare as HAProxy does.
    let dotted = outcome(&weir.authority, "GET / HTTP/1.1\r\nHost: a.example.\r\n\r\n");
    assert!(dotted.contains(&"501".to_owned()), "{dotted:?}");
}

/// Returns the status, the type and the content of a response, and its field `X-Page`.
fn page(authority: &str, path: &str) -> Vec<String> {
    let mut client = Client::connect(authority);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    let response = client.read_response().unwrap();
    let field = |name: &str| {
        let lines = response.head.lines();
        let value =
            lines.filter_map(|line| line.split_once(':')).find(|(own, _)| own.eq_ignore_ascii_case(name));
        value
            .map(|(_, value)| value.split(';').next().unwrap_or_default().trim().to_owned())
            .unwrap_or_default()
    };
    let (status, body) = (response.status.to_string(), String::from_utf8_lossy(&response.body).into_owned());
    vec![status, field("content-type"), field("x-page"), field("location"), body]
}

#[test]
fn pages_of_errors_are_the_same() {
    let _shared = shared_machine();
    if !is_installed("haproxy", &["-v"]) {
        return;
    }
    let config = "defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n  retries 0\nhttp-errors shared\n  \
         errorfile 404 {directory}/404.http\nfrontend f\n  bind 127.0.0.1:{port}\n  errorfile 403 {directory}/403.http\n  errorfiles shared\n  errorloc 410 http://gone.example/\n  \
         http-error status 503 content-type text/html file {directory}/503.html\n  \
         http-request deny if { path /403 }\n  http-request deny deny_status 404 if { path /404 }\n  \
         http-request deny deny_status 410 if { path /410 }\n  http-request deny deny_status 503 if { path /503 }\n  \
         http-request return status 200 content-type text/html file {directory}/503.html if { path /file }\n  \
         http-request return errorfile {directory}/404.http if { path /errorfile }\n  \
         http-request deny deny_status 429 content-type application/json string {} if { path /429 }\n  default_backend a\nbackend a\n  server s 127.0.0.1:@P\n";
    let files = [
        (
            "403.http",
            "HTTP/1.0 403 No\r\nContent-Length: 10\r\nContent-Type: text/html\r\nX-Page: 403\r\n\r\n<p>no</p>\n",
        ),
        ("404.http", "HTTP/1.0 404 None\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nnone\n"),
        ("503.html", "<p>down</p>\n"),
    ];
    let config = config.replace("@P", &free_port().to_string());
    let (_directory, imported) = import(&config, &files);
    // weir's own 403, 404 and 410 have no page of HAProxy's form.
    assert_eq!(imported.code, 3, "{}", imported.stderr);
    let original = ComparedProxy::start_with_files("HAProxy", &config, &files);
    let weir = start_weir(&imported.stdout);
    for path in ["/403", "/404", "/410", "/503", "/file", "/errorfile", "/429", "/unreachable"] {
        let expected = page(&original.authority, path);
        assert_eq!(page(&weir.authority, path), expected, "{path}\n{}", imported.stdout);
    }
}

#[test]
fn sessions_stay_at_their_servers_in_both() {
    let _shared = shared_machine();
    if !is_installed("haproxy", &["-v"]) {
        return;
    }
    let config = "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend a\nbackend a\n  \
         stick-table type string len 64 size 10k expire 10m\n  stick on req.cook(sid)\n  server a @A\n  server b @B\n  server c @C\n";
    let origins = [origin("a"), origin("b"), origin("c")];
    let config = config.replace("@A", &origins[0]).replace("@B", &origins[1]).replace("@C", &origins[2]);
    let (_directory, imported) = import(&config, &[]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let original = ComparedProxy::haproxy(&config);
    let weir = start_weir(&imported.stdout);
    for authority in [&original.authority, &weir.authority] {
        let mut servers: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for number in 0..REQUESTS {
            // Sessions of an even number have a cookie; the others have none.
            let session = number % 20;
            let cookie =
                if session % 2 == 0 { format!("Cookie: x=1; sid=s{session}\r\n") } else { String::new() };
            let lines = outcome(authority, &format!("GET / HTTP/1.1\r\nHost: a\r\n{cookie}\r\n"));
            let server = lines.into_iter().find(|line| line.starts_with("x-origin: ")).unwrap();
            let known = servers.entry(session).or_default();
            if !known.contains(&server) {
                known.push(server);
            }
        }
        let kept = servers.iter().filter(|(session, _)| *session % 2 == 0);
        assert!(kept.clone().all(|(_, servers)| servers.len() == 1), "{servers:?}\n{}", imported.stdout);
        let used: std::collections::BTreeSet<&String> = kept.flat_map(|(_, servers)| servers).collect();
        assert!(used.len() > 1, "{servers:?}");
        assert!(
            servers.iter().any(|(session, servers)| session % 2 == 1 && servers.len() > 1),
            "{servers:?}"
        );
    }
}
