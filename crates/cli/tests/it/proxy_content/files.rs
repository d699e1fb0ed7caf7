//! Files of a route (`files`): beside nginx with the same tree, hostile paths, error pages, and slow clients.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::curl;
use crate::support::client::Client;
use crate::support::faulty_origins::field;
use crate::support::peers::Nginx;
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{shared_machine, temp_dir};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];
/// Sizes around those at which the way of the content changes: memory and slices.
const SIZES: [usize; 7] = [0, 1, 32_768, 32_769, 65_537, 600_000, 3_000_000];

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| b"weir proxy\n"[index * 31 / 7 % 11]).collect()
}

/// Makes `root` with files of all sizes, and a secret beside it.
fn make_tree(directory: &Path) -> String {
    let root = directory.join("root");
    fs::create_dir_all(root.join("t/sub")).unwrap();
    fs::create_dir_all(root.join("t/empty")).unwrap();
    fs::write(directory.join("secret"), "the secret").unwrap();
    fs::write(root.join(".hidden"), "hidden").unwrap();
    fs::write(root.join("index.html"), "<p>root").unwrap();
    fs::write(root.join("t/sub/index.html"), "<p>sub").unwrap();
    for size in SIZES {
        fs::write(root.join(format!("t/{size}.txt")), content(size)).unwrap();
    }
    fs::write(root.join("t/coded.js"), "plain").unwrap();
    fs::write(root.join("t/coded.js.br"), "brotli").unwrap();
    std::os::unix::fs::symlink("../secret", root.join("outside")).unwrap();
    root.to_str().unwrap().to_owned()
}

fn proxy_of(files: &str, rest: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n{rest}\n[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\nfiles = {{ {files} }}\n"
    ))
}

#[test]
fn files_conditions_and_ranges_are_the_same_as_of_nginx() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let proxy = proxy_of(&format!("root = \"{root}\""), "");
    let nginx = Nginx::start_with(
        "",
        &format!(
            "if_modified_since before; location /t/ {{ root {root}; }} location /robots {{ root {root}; }}"
        ),
    );
    let of = |base: &str, path: &str, args: &[&str]| {
        let found = curl(&format!("http://{base}{path}"), args);
        let fields = ["content-range", "content-length"].map(|name| found.field(name));
        let fields = if found.status < 400 { fields } else { Default::default() };
        let has_content = found.status < 300 && !args.contains(&"-I");
        let body = if has_content { found.body } else { Vec::new() };
        (found.code, found.status, fields, body)
    };
    for version in VERSIONS {
        for size in SIZES {
            let path = format!("/t/{size}.txt");
            let found = of(proxy.authority(), &path, &[version]);
            assert!(found == of(&nginx.authority, &path, &[]), "{version} {path}: {:?}", found.1);
            assert!(found.3 == content(size), "{version} {path}");
        }
        for (path, args) in [
            ("/t/600000.txt", &["-H", "Range: bytes=100-199"][..]),
            ("/t/600000.txt", &["-H", "Range: bytes=-10"]),
            ("/t/600000.txt", &["-H", "Range: bytes=0-0,-1"]),
            ("/t/600000.txt", &["-H", "Range: bytes=600000-"]),
            ("/t/600000.txt", &["-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]),
            ("/t/600000.txt", &["-H", "If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT"]),
            ("/t/600000.txt", &["-I"]),
            ("/t/missing", &[]),
            ("/t/sub/", &[]),
            ("/t/sub", &[]),
            ("/t/1.txt", &["-X", "DELETE"]),
        ] {
            let found = of(proxy.authority(), path, &[&[version], args].concat());
            let nginx_response = of(&nginx.authority, path, args);
            // The boundary of several ranges is random.
            let is_same = match args {
                [_, range] if range.contains(',') => {
                    (found.0, found.1) == (nginx_response.0, nginx_response.1)
                }
                // nginx forbids the list of a directory, and answers a redirect with another content.
                _ => {
                    (found.0, found.1) == (nginx_response.0, nginx_response.1)
                        && found.3 == nginx_response.3
                        && (found.1 != 206 || found.2 == nginx_response.2)
                }
            };
            assert!(
                is_same,
                "{version} {path} {args:?}: {:?}, nginx: {:?}",
                (found.1, found.2),
                (nginx_response.1, nginx_response.2)
            );
        }
    }
    proxy.assert_all_returned();
}

#[test]
fn no_path_leaves_the_root() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let proxy = proxy_of(&format!("root = \"{root}\", list = true"), "");
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/t/..%2f..%2fsecret",
        "/..%5csecret",
        "/outside",
        "/.hidden",
        "//../secret",
        "/t/%00",
        "/t/.%2e/../secret",
        "/t/..;/../secret",
        "/%252e%252e/secret",
    ] {
        let mut client = proxy.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
        let response = String::from_utf8_lossy(&client.read_to_end()).into_owned();
        let status = response.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(["400", "403", "404"].contains(&&*status), "{path}: {response}");
        assert!(!response.contains("the secret") && !response.contains("hidden\r"), "{path}");
    }
    let list = proxy.get("/t/");
    assert!(list.status == 200 && String::from_utf8_lossy(&list.body).contains("coded.js"), "{}", list.head);
}

#[test]
fn a_prefix_can_be_left_out_and_redirects_name_the_path_of_the_request() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath-prefix = \"/assets\"\nrewrite-prefix = \"/t\"\nset-response-header = {{ x-own = \"1\" }}\n\
         files = {{ root = \"{root}\", cache-control = \"max-age=9\" }}\n\
         [[route]]\nfiles = {{ root = \"{root}\", spa = true }}\n"
    ));
    let get = |path: &str, fields: &str| {
        let response =
            Client::connect(proxy.authority()).get_with_fields(path, &format!("Host: a\r\n{fields}"));
        let named = |name: &str| field(&response.head, name).unwrap_or_default();
        (response.status, named("location"), named("x-own") + &named("cache-control"), response.body)
    };
    assert_eq!(get("/assets/1.txt", ""), (200, String::new(), "1max-age=9".to_owned(), b"w".to_vec()));
    let (status, location, own, _) = get("/assets/sub?a=b", "");
    assert_eq!((status, &*location, &*own), (301, "/assets/sub/?a=b", "1"));
    // Two slashes would name a host.
    assert_eq!(get("//assets/sub", "").1, "/assets/sub/");
    assert_eq!(get("/assets/missing", "").0, 404);
    assert_eq!(get("/assets/coded.js", "Accept-Encoding: br\r\n").3, b"brotli");
    assert_eq!(get("/assets/coded.js", "").3, b"plain");
    // The second route has an application.
    assert_eq!(get("/login", "").3, b"<p>root");
    assert_eq!(get("/missing.png", "").0, 404);
    assert_eq!(get("/missing.png", "Accept: text/html\r\n").3, b"<p>root");
}

#[test]
fn errors_have_the_pages_of_the_route_and_connections_stay_open() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let page = directory.path().join("sorry.html");
    fs::write(&page, "<p>sorry").unwrap();
    let pages = format!("[[error-page]]\nstatus = \"404,416\"\nhtml = \"{}\"\n", page.display());
    let proxy = proxy_of(&format!("root = \"{root}\""), &pages);
    let mut client = proxy.client();
    let host = "Host: a\r\n";
    let missing = client.get_with_fields("/missing", host);
    assert_eq!((missing.status, &*missing.body), (404, &b"<p>sorry"[..]));
    let range = client.get_with_fields("/t/1.txt", "Host: a\r\nRange: bytes=5-\r\n");
    assert_eq!((range.status, field(&range.head, "content-range").as_deref()), (416, Some("bytes */1")));
    client.send(b"PUT /t/1.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let put = client.read_response().unwrap();
    assert_eq!(
        (put.status, field(&put.head, "allow").as_deref()),
        (405, Some("GET, HEAD, OPTIONS")),
        "{}",
        put.head
    );
    let large = client.get_with_fields("/t/3000000.txt", host);
    assert!(large.body == content(3_000_000));
    assert_eq!(client.get_with_fields("/t/0.txt", host).body, b"");
    proxy.metrics_until("five responses", |metrics| metrics.sum("weir_responses_total", &[]) == 5.0);
}

#[test]
fn files_are_compressed_within_the_memory_of_the_encoders() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let proxy = proxy_of(&format!("root = \"{root}\", compression = {{ codings = [\"gzip\", \"br\"] }}"), "");
    for version in VERSIONS {
        for (size, coding) in [(1, None), (32_768, Some("gzip")), (3_000_000, Some("gzip"))] {
            let url = format!("http://{}/t/{size}.txt", proxy.authority());
            let found = curl(&url, &[version, "-H", "Accept-Encoding: gzip, br;q=0.5", "-H", "Cookie: a=b"]);
            assert_eq!(
                (found.code, found.field("content-encoding").as_deref()),
                (0, coding),
                "{}",
                found.head
            );
            assert!(found.body == content(size), "{version} {size}");
        }
    }
    // A client of HTTP/1.0 gets the end of the content with that of its connection.
    let mut client = proxy.client();
    client.send(b"GET /t/3000000.txt HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let response = client.read_to_end();
    let head_end = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&response[..head_end]).into_owned();
    assert!(
        field(&head, "transfer-encoding").is_none() && field(&head, "content-length").is_none(),
        "{head}"
    );
    let mut decoded = Vec::new();
    flate2::read::GzDecoder::new(&response[head_end..]).read_to_end(&mut decoded).unwrap();
    assert!(decoded == content(3_000_000));
    proxy.assert_all_returned();
}

#[test]
fn a_slow_client_holds_a_slice_and_a_shorter_file_ends_its_connection() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let path = directory.path().join("root/large.bin");
    let file = fs::File::create(&path).unwrap();
    file.set_len(200 << 20).unwrap();
    let proxy = proxy_of(&format!("root = \"{root}\""), "");
    let before = proxy.resident_bytes();
    let mut client = proxy.client();
    client.send(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200 OK"));
    // Other clients are served meanwhile.
    assert_eq!(proxy.get("/t/1.txt").body, b"w");
    assert!(proxy.resident_bytes().saturating_sub(before) < 4 << 20);
    file.set_len(1 << 20).unwrap();
    let mut rest = Vec::new();
    // The end, or a reset.
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 100 << 20, "{}", rest.len());
    proxy.metrics_until("one that failed", |metrics| {
        metrics.sum("weir_requests_total", &[("end", "file_failed")]) == 1.0
    });
    proxy.assert_all_returned();
}
