//! `weir proxy import`: HAProxy or nginx with a config, and weir with the import of it, get the same requests, and treat
//! them the same way.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use import::{IncludeError, Surroundings};

use crate::support::client::Client;
use crate::support::proxies::{ComparedProxy, is_installed};
use crate::support::{run_weir, shared_machine, temp_dir};

#[expect(unreachable_pub, reason = "the library makes it public")]
#[path = "../../../import/src/fuzzing/no_surroundings.rs"]
mod no_surroundings;

const HAPROXY_CONTENT: &str = include_str!("import/content.cfg");
const HAPROXY_DENIALS: &str = include_str!("import/denials.cfg");
const HAPROXY_REDIRECTS: &str = include_str!("import/redirects.cfg");
const NGINX_NAMES: &str = include_str!("import/names.conf");
const NGINX_LOCATIONS: &str = include_str!("import/locations.conf");
const NGINX_CONDITIONS: &str = include_str!("import/conditions.conf");
const NGINX_MAPS: &str = include_str!("import/maps.conf");
const NGINX_PAGES: &str = include_str!("import/pages.conf");
const HAPROXY_ACCESS: &str = include_str!("import/access.cfg");
const NGINX_ACCESS: &str = include_str!("import/access.conf");

/// Port of the listener in the source of an import; nothing listens there.
pub(crate) const SOURCE_PORT: &str = "18999";
/// Requests to each config.
pub(crate) const REQUESTS: usize = 200;

const METHODS: [&str; 8] = ["GET", "GET", "GET", "GET", "POST", "PUT", "DELETE", "OPTIONS"];
const HOSTS: [&str; 11] = [
    "one.example",
    "www.one.example",
    "ONE.example",
    "two.example",
    "a.two.example",
    "a.b.two.example",
    "secure.example",
    "w7.example",
    "www.q.net",
    "three.example",
    "unknown",
];
const PATHS: [&str; 22] = [
    "/",
    "/api",
    "/api/",
    "/api/v1/users",
    "/apix",
    "/static/a.css",
    "/static/app.js",
    "/old",
    "/new",
    "/img/x.PNG",
    "/a.php",
    "/admin",
    "/admin/x",
    "/health",
    "/x/api/y",
    "/v1/",
    "/v2/a",
    "/deep/api/1",
    "/strip/me",
    "/strip",
    "/strip/",
    "/v22",
];
const FIELDS: [&str; 8] = [
    "",
    "X-Debug: 1\r\n",
    "X-Debug: 0\r\nX-Tag: a\r\n",
    "X-Tag: b\r\nUser-Agent: Robot\r\n",
    "Cookie: beta=1\r\n",
    "Cookie: x=1; beta=0\r\n",
    "User-Agent: robot\r\nX-Tag: c\r\n",
    "X-Debug: yes\r\n",
];
const QUERIES: [&str; 4] = ["", "", "?a=1", "?debug=1&x=%20"];

/// Starts an origin that describes each request, with the length of its content, in its response.
pub(crate) fn origin(name: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || describe_requests(name, stream));
        }
    });
    authority
}

fn describe_requests(name: &str, stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        let mut content = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut content)?;
        let body = format!("{name} got {} bytes of {head}", content.len());
        let fields =
            format!("Content-Length: {}\r\nX-Origin: {name}\r\nContent-Type: text/plain", body.len());
        let status = if head.contains(" /missing/") { "404 Not Found" } else { "200 OK" };
        stream.write_all(format!("HTTP/1.1 {status}\r\n{fields}\r\n\r\n{body}").as_bytes())?;
    }
}

/// Returns what matters of a response: its status, its fields, and of the forwarded request the server, the line and
/// the fields that the proxies change.
pub(crate) fn outcome(authority: &str, request: &str) -> Vec<String> {
    let mut client = Client::connect(authority);
    client.send(request.as_bytes());
    let Some(response) = client.read_response() else { return vec!["closed".to_owned()] };
    let port = authority.rsplit(':').next().unwrap();
    let mut lines = vec![response.status.to_string()];
    let changed = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let is_added = ["x-forwarded-proto", "x-forwarded-host"].contains(&name.as_str());
        let is_compared =
            ["location", "host", "cookie"].contains(&name.as_str()) || line.contains("max-age=");
        (name.starts_with("x-") && !is_added) || is_compared
    };
    let lower = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        let value = value.trim();
        // nginx makes its own redirects absolute.
        let value = match value.split_once(&format!(":{port}/")) {
            Some((start, path)) if start.starts_with("http://") => format!("/{path}"),
            _ => value.to_owned(),
        };
        format!("{}: {value}", name.to_ascii_lowercase())
    };
    lines.extend(response.head.lines().skip(1).filter(changed).map(lower));
    let body = String::from_utf8_lossy(&response.body).into_owned();
    let forwarded: Vec<&str> = body.split("\r\n").collect();
    match forwarded[..] {
        [first, ..] if first.contains(" HTTP/1.") => {
            lines.push(first.replace("HTTP/1.0", "HTTP/1.1"));
            lines.extend(forwarded[1..].iter().copied().filter(changed).map(lower));
        }
        // Pages of the config; those of the programs have texts of their own.
        _ if response.status == 200 || body.starts_with("<p>") => lines.push(body),
        _ => {}
    }
    lines.sort();
    lines
}

/// Returns the request of a number, the same in each run.
pub(crate) fn request(number: usize) -> String {
    // Numbers without a common factor with the lengths reach all combinations.
    let pick =
        |list: &[&'static str], factor: usize| list[(number * factor + number / list.len()) % list.len()];
    let (method, query) = (pick(&METHODS, 3), pick(&QUERIES, 1));
    let body = if ["POST", "PUT"].contains(&method) { "content" } else { "" };
    format!(
        "{method} {}{query} HTTP/1.1\r\nHost: {}\r\n{}Content-Length: {}\r\n\r\n{body}",
        pick(&PATHS, 5),
        pick(&HOSTS, 7),
        pick(&FIELDS, 5),
        body.len()
    )
}

/// Compares a program with weir and the import of the program's config.
fn compare(program: &str, config: &str, start: fn(&str) -> ComparedProxy) {
    let _shared = shared_machine();
    if !is_installed(program, &["-v"]) {
        return;
    }
    let origins = [origin("a"), origin("b"), origin("c")];
    let directory = temp_dir();
    for (name, text) in [("404.html", "<p>not here</p>\n"), ("50x.html", "<p>broken</p>\n")] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let config = config.replace("@A", &origins[0]).replace("@B", &origins[1]).replace("@C", &origins[2]);
    let config = config.replace("@D", directory.path().to_str().unwrap());
    let source = directory.path().join("source");
    fs::write(&source, config.replace("{port}", SOURCE_PORT).replace("{directory}", "/nowhere")).unwrap();
    let import = run_weir(&["proxy", "import", "--from", program, source.to_str().unwrap()]);
    assert_eq!(import.code, 0, "nothing is left: {}", import.stderr);
    let translated = import.stdout.replace(&format!("127.0.0.1:{SOURCE_PORT}"), "127.0.0.1:0");
    let original = start(&config);
    let weir = ComparedProxy::weir(&translated);
    let mut statuses = std::collections::BTreeMap::new();
    for number in 0..REQUESTS {
        let request = request(number);
        let expected = outcome(&original.authority, &request);
        assert_eq!(outcome(&weir.authority, &request), expected, "{program}: {request}\n{translated}");
        *statuses.entry(expected.first().cloned()).or_insert(0) += 1;
    }
    assert!(statuses.len() > 1, "the config has several outcomes: {statuses:?}");
}

/// Sends the same requests to a program and to weir with the import of its config. No request that the program refuses
/// reaches an origin through weir. weir forwards the others to the same place, or answers with 501, because the import
/// could not translate a part of the config.
fn compare_access(program: &str, config: &str, start: fn(&str) -> ComparedProxy, limits: [usize; 3]) {
    let _shared = shared_machine();
    if !is_installed(program, &["-v"]) {
        return;
    }
    let origins = [origin("a"), origin("b"), origin("c")];
    let config = config.replace("@A", &origins[0]).replace("@B", &origins[1]).replace("@C", &origins[2]);
    let directory = temp_dir();
    let source = directory.path().join("source");
    fs::write(&source, config.replace("{port}", SOURCE_PORT).replace("{directory}", "/nowhere")).unwrap();
    let import = run_weir(&["proxy", "import", "--from", program, source.to_str().unwrap()]);
    assert_eq!(import.code, 3, "{}", import.stderr);
    let translated = import.stdout.replace(&format!("127.0.0.1:{SOURCE_PORT}"), "127.0.0.1:0");
    let original = start(&config);
    let weir = ComparedProxy::weir(&translated);
    let is_served = |lines: &[String]| lines.iter().any(|line| line.starts_with("x-origin: "));
    let (mut served, mut denied, mut refused) = (0, 0, 0);
    for number in 0..2 * REQUESTS {
        let request = request(number);
        let expected = outcome(&original.authority, &request);
        let found = outcome(&weir.authority, &request);
        let is_refused = found.iter().any(|line| line == "501");
        match is_served(&expected) {
            true if is_refused => refused += 1,
            true => {
                assert_eq!(found, expected, "{program}: {request}\n{translated}");
                served += 1;
            }
            false => {
                assert!(
                    !is_served(&found),
                    "{program} refused {request}\n{expected:?}\n{found:?}\n{translated}"
                );
                denied += 1;
            }
        }
    }
    let [served_min, denied_min, refused_max] = limits;
    assert!(
        served >= served_min && denied >= denied_min && refused <= refused_max,
        "{served} {denied} {refused}"
    );
}

#[test]
fn access_of_haproxy_is_never_opened() {
    compare_access("haproxy", HAPROXY_ACCESS, ComparedProxy::haproxy, [60, 60, 60]);
}

#[test]
fn access_of_nginx_is_never_opened() {
    compare_access("nginx", NGINX_ACCESS, ComparedProxy::nginx, [60, 60, 60]);
}

#[test]
fn content_switching_of_haproxy_is_the_same() {
    compare("haproxy", HAPROXY_CONTENT, ComparedProxy::haproxy);
}

#[test]
fn denials_and_negations_of_haproxy_are_the_same() {
    compare("haproxy", HAPROXY_DENIALS, ComparedProxy::haproxy);
}

#[test]
fn redirects_of_haproxy_are_the_same() {
    compare("haproxy", HAPROXY_REDIRECTS, ComparedProxy::haproxy);
}

#[test]
fn server_names_of_nginx_are_the_same() {
    compare("nginx", NGINX_NAMES, ComparedProxy::nginx);
}

#[test]
fn locations_of_nginx_are_the_same() {
    compare("nginx", NGINX_LOCATIONS, ComparedProxy::nginx);
}

#[test]
fn conditions_of_nginx_are_the_same() {
    compare("nginx", NGINX_CONDITIONS, ComparedProxy::nginx);
}

#[test]
fn variables_of_nginx_are_the_same() {
    compare("nginx", NGINX_MAPS, ComparedProxy::nginx);
}

#[test]
fn error_pages_of_nginx_are_the_same() {
    compare("nginx", NGINX_PAGES, ComparedProxy::nginx);
}

/// All examples of the tables become configs that are valid.
#[test]
fn every_example_of_the_tables_is_valid() {
    let _shared = shared_machine();
    let mut problems = Vec::new();
    for (program, row, text) in import::examples() {
        let import =
            import::convert(program, "example", &text, &mut no_surroundings::NoSurroundings).unwrap();
        if let Err(errors) = proxy_config::config::parse("config", &import.config) {
            problems.push(format!("{}: {errors:?}\n{}", row.directive, import.config));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_is_left_is_listed_and_the_config_is_valid() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let (source, output) = (directory.path().join("nginx.conf"), directory.path().join("weir.toml"));
    let (source, output) = (source.to_str().unwrap(), output.to_str().unwrap());
    fs::create_dir(directory.path().join("conf.d")).unwrap();
    fs::write(directory.path().join("conf.d/a.conf"), "location /files/ { root /no/such; }\n").unwrap();
    fs::write(source, "server {\n  listen 127.0.0.1:18999;\n  proxy_store on;\n  include conf.d/*.conf;\n  location / { proxy_pass http://127.0.0.1:9; }\n}\n").unwrap();
    let import = run_weir(&["proxy", "import", "--output", output, source]);
    assert_eq!(import.code, 3, "{}", import.stderr);
    assert!(import.stderr.contains("nginx.conf:3: not supported: "), "{}", import.stderr);
    assert!(import.stderr.contains("conf.d/a.conf:1: needs: "), "{}", import.stderr);
    assert_eq!(run_weir(&["proxy", "--config", output, "--check"]).code, 0);
    let config = fs::read_to_string(output).unwrap();
    assert!(config.contains("# nginx.conf:2: listen 127.0.0.1:18999;\nbind"), "{config}");
    // Neither a config nor a program.
    for text in ["server {", "a {\n}\n}\n", ""] {
        fs::write(source, text).unwrap();
        let failed = run_weir(&["proxy", "import", "--from", "nginx", "--output", output, source]);
        assert_eq!(failed.code, 2, "{text}: {}", failed.stderr);
    }
    assert_eq!(fs::read_to_string(output).unwrap(), config, "a failure writes nothing");
    assert_eq!(run_weir(&["proxy", "import", "--from", "apache", source]).code, 2);
    assert_eq!(run_weir(&["proxy", "import", "/no/such/file"]).code, 2);
}
