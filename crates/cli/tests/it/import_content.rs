//! `weir proxy import` of compression and files: nginx with a config, and weir with the import of it, send the same contents.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use flate2::read::GzDecoder;

use crate::import::{REQUESTS, SOURCE_PORT};
use crate::support::client::Client;
use crate::support::proxies::{ComparedProxy, is_installed};
use crate::support::{run_weir, shared_machine, temp_dir};

const GZIP: &str = include_str!("import/gzip.conf");
const FILES: &str = include_str!("import/files.conf");

/// Fields that are compared.
const FIELDS: [&str; 8] =
    ["content-encoding", "vary", "etag", "location", "x-app", "x-alias", "cache-control", "content-type"];

/// Starts an origin whose contents have the type and the length that the path ends with.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    authority
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let (rest, length) = path.rsplit_once('/').unwrap_or_default();
        let length: usize = length.parse().unwrap_or(0);
        let content_type = rest.rsplit('/').next().unwrap_or_default().replace('_', "/");
        let body = "word ".repeat(length / 5);
        let framing = match rest.contains("chunked") {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {}", body.len()),
        };
        let fields = format!("Content-Type: {content_type}\r\nETag: \"tag\"\r\n{framing}");
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes())?;
        match (head.starts_with("HEAD"), rest.contains("chunked")) {
            (true, _) => {}
            (false, true) => {
                stream.write_all(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes())?
            }
            (false, false) => stream.write_all(body.as_bytes())?,
        }
    }
}

/// Returns the status, the fields and the decoded content of a response.
fn outcome(authority: &str, request: &str) -> Vec<String> {
    let mut client = Client::connect(authority);
    client.send(request.as_bytes());
    let bytes = client.read_to_end();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let mut content = bytes[end..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        content = joined_chunks(&content);
    }
    if head.contains("content-encoding: gzip") && !request.starts_with("HEAD") {
        let mut decoded = Vec::new();
        GzDecoder::new(content.as_slice()).read_to_end(&mut decoded).unwrap();
        content = decoded;
    }
    let status = head.split(' ').nth(1).unwrap().to_owned();
    let is_error = !status.starts_with('2');
    let port = authority.rsplit(':').next().unwrap();
    let mut lines = vec![status];
    for line in head.lines().skip(1) {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| FIELDS.contains(name)) else {
            continue;
        };
        let value = value.trim().replace(&format!("http://127.0.0.1:{port}/"), "/");
        let value = value.replace(&format!("http://a:{port}/"), "/");
        lines.push(format!("{name}: {value}"));
    }
    lines.sort();
    // Texts of errors are those of the programs.
    if !is_error || content.starts_with(b"<p>") {
        lines.push(String::from_utf8_lossy(&content).into_owned());
    }
    lines
}

fn joined_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        joined.extend_from_slice(&rest[at + 2..at + 2 + length]);
        rest = &rest[at + 4 + length..];
        if length == 0 {
            break;
        }
    }
    joined
}

/// Starts nginx with a config, and weir with the import of it, whose directory is `@D`.
fn start(config: &str, directory: &Path) -> [ComparedProxy; 2] {
    let config = config.replace("@A", &origin()).replace("@D", directory.to_str().unwrap());
    let source = directory.join("source");
    fs::write(&source, config.replace("{port}", SOURCE_PORT).replace("{directory}", "/nowhere")).unwrap();
    let import = run_weir(&["proxy", "import", "--from", "nginx", source.to_str().unwrap()]);
    assert_eq!(import.code, 0, "nothing is left: {}", import.stderr);
    let translated = import.stdout.replace(&format!("127.0.0.1:{SOURCE_PORT}"), "127.0.0.1:0");
    [ComparedProxy::nginx(&config), ComparedProxy::weir(&translated)]
}

/// Returns the value of a list for a request; factors without a common one reach all combinations.
fn pick(list: &[&'static str], number: usize, factor: usize) -> &'static str {
    list[(number * factor + number / list.len()) % list.len()]
}

#[test]
fn compression_of_nginx_is_the_same() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let directory = temp_dir();
    let [nginx, weir] = start(GZIP, directory.path());
    let accepted = ["gzip", "", "br, gzip;q=0.5", "identity", "gzip;q=0", "*"];
    let types = ["text_html", "text_css", "text_plain", "application_json", "image_png"];
    let places = ["", "/off", "/all", "/html", "/chunked", "/all/chunked"];
    let fields = ["", "Cookie: a=b\r\n", "Authorization: Basic eDp5\r\n", "Via: 1.1 a\r\n"];
    let mut codings = BTreeMap::new();
    for number in 0..REQUESTS {
        let (place, length) = (pick(&places, number, 1), pick(&["20", "95", "100", "5000", "0"], number, 3));
        // nginx compresses also for HEAD, whose fields are then those of GET in both.
        let request = format!(
            "GET {place}/{}/{length} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {}\r\n{}Connection: close\r\n\r\n",
            pick(&types, number, 7),
            pick(&accepted, number, 5),
            pick(&fields, number, 3),
        );
        let compressed = |lines: &[String]| lines.iter().any(|line| line == "content-encoding: gzip");
        let (expected, found) = (outcome(&nginx.authority, &request), outcome(&weir.authority, &request));
        // nginx takes `*` for no coding, and compresses an empty content of unknown length.
        let is_other = request.contains("Encoding: *") || length == "0";
        if !is_other {
            assert_eq!(found, expected, "{request}");
            *codings.entry(compressed(&expected)).or_insert(0) += 1;
        }
    }
    assert!(codings.values().all(|count| *count > 20) && codings.len() == 2, "{codings:?}");
}

#[test]
fn files_of_nginx_are_the_same() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let directory = temp_dir();
    let path = directory.path();
    for name in ["app/sub", "app/private", "plain/deep", "plain/empty", "coded"] {
        fs::create_dir_all(path.join(name)).unwrap();
    }
    let long = "text of a file ".repeat(200);
    for (name, text) in [
        ("404.html", "<p>not here</p>\n"),
        ("outside.html", "outside"),
        ("app/index.html", "the page"),
        ("app/style.css", long.as_str()),
        ("app/sub/index.html", "the page of sub"),
        ("app/sub/a b.txt", "a space"),
        ("app/.hidden", "hidden"),
        ("app/private/a.html", "private"),
        ("app/private/a.css", "css"),
        ("plain/start.html", "start"),
        ("plain/long.txt", long.as_str()),
        ("plain/one.bin", "one file"),
        ("plain/deep/start.html", "deep"),
        ("coded/a.txt", "plain text"),
    ] {
        fs::write(path.join(name), text).unwrap();
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"coded text").unwrap();
    fs::write(path.join("coded/a.txt.gz"), encoder.finish().unwrap()).unwrap();
    let [nginx, weir] = start(FILES, path);
    let paths = [
        "/",
        "/index.html",
        "/style.css",
        "/sub",
        "/sub/",
        "/sub/a%20b.txt",
        "/.hidden",
        "/app/route",
        "/404.html",
        "/private/a.html",
        "/private/",
        "/priv%61te/a.html",
        "/private/a.css",
        "/plain/",
        "/plain/start.html",
        "/plain/deep",
        "/plain/deep/",
        "/plain/none",
        "/plain/long.txt",
        "/alias/",
        "/alias/start.html",
        "/alias/deep",
        "/alias/deep/",
        "/alias/none",
        "/bare",
        "/bare/",
        "/bare/deep",
        "/bare/start.html",
        "/checked/",
        "/checked/start.html",
        "/checked/none.html",
        "/one.txt",
        "/coded/a.txt",
        "/missing.css",
        "/a/../style.css",
        "/alias/../outside.html",
        "/plain/%2e%2e/outside.html",
        "/api/text_plain/20",
        "/alias",
        "/sub/index.html?x=1",
        "/sub?x=1",
    ];
    let methods = ["GET", "GET", "HEAD", "GET", "DELETE"];
    let mut statuses = BTreeMap::new();
    for number in 0..2 * REQUESTS {
        let request = format!(
            "{} {} HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n{}Connection: close\r\n\r\n",
            pick(&methods, number, 3),
            pick(&paths, number, 7),
            pick(&["", "Accept-Encoding: gzip\r\n", "Range: bytes=2-4\r\n"], number, 1),
        );
        let own = |mut lines: Vec<String>| {
            // Types, tags, and the field Vary of what is not compressed are those of the programs, and a page has the
            // fields of the location of its error.
            let is_page = lines[0] == "404";
            let is_own = !lines[0].starts_with('2');
            lines.retain(|line| {
                let is_known = ["content-type", "etag", "vary"]
                    .iter()
                    .any(|name| line.starts_with(&format!("{name}: ")));
                let is_of_page = is_page && line.starts_with("x-");
                let is_coding = is_own && line.starts_with("content-encoding");
                !(is_known || is_of_page || is_coding)
            });
            lines
        };
        // nginx looks for the file before it refuses the method, and has ranges of HEAD.
        if request.starts_with("DELETE /checked/none.html")
            || (request.starts_with("HEAD") && request.contains("Range"))
        {
            continue;
        }
        let expected = own(outcome(&nginx.authority, &request));
        let found = own(outcome(&weir.authority, &request));
        assert_eq!(found, expected, "{request}");
        *statuses.entry(expected[0].clone()).or_insert(0) += 1;
    }
    // An ambiguous path is none.
    for path in ["/plain/%2e%2e%2foutside.html", "/alias/..%2foutside.html"] {
        let found =
            outcome(&weir.authority, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        assert_eq!(found[0], "400", "{path}");
    }
    for path in [
        "//private/a.html",
        "/private//a.html",
        "/sub/..//private/a.html",
        "/PRIVATE/a.html",
        "/private/a.html/",
    ] {
        let found =
            outcome(&weir.authority, &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        assert!(["403", "404"].contains(&&*found[0]), "{path}: {found:?}");
    }
    assert!(
        ["200", "206", "301", "403", "404", "405"].iter().all(|status| statuses.contains_key(*status)),
        "{statuses:?}"
    );
}
