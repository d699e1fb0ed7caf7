//! Responses that are compressed, and their fields, beside nginx.

use std::io;

use super::{Fetched, curl};
use crate::support::faulty_origins::field;
use crate::support::peers::{Nginx, ScriptPeer, ScriptedServer};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{run_weir, shared_machine};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

/// Returns text that becomes smaller, `kib` KiB of it.
fn text(kib: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(kib * 1024);
    let mut number = 1_u64;
    while content.len() < kib * 1024 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        content.extend_from_slice(format!("<p>weir {}</p>\n", number >> 44).as_bytes());
    }
    content.truncate(kib * 1024);
    content
}

/// Responds to each request by its path `/FRAMING/KIB/TYPE…`, where the framing is `length`, `chunked` or `close`.
/// The entity tag is `"v1"`, and a request that has it, as one of a list, gets 304.
fn serve(peer: &mut ScriptPeer) -> io::Result<()> {
    while let Some(head) = peer.request()? {
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut parts = target.trim_start_matches('/').splitn(3, '/');
        let (framing, kib) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let media_type = parts.next().unwrap_or("text/html");
        let tags = field(&head, "if-none-match").unwrap_or_default();
        let fields = format!(
            "Content-Type: {media_type}\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nRepr-Digest: x\r\nX-Tags: {tags}\r\n"
        );
        if tags.split(", ").any(|tag| tag == "\"v1\"") {
            peer.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes())?;
            continue;
        }
        let content = text(kib.parse().unwrap_or(1));
        let is_head = head.starts_with("HEAD ");
        match framing {
            "chunked" => {
                peer.send(
                    format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n").as_bytes(),
                )?;
                if is_head {
                    continue;
                }
                for part in content.chunks(3_000) {
                    peer.send(&[format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat())?;
                }
                peer.send(b"0\r\n\r\n")?;
            }
            "close" => {
                peer.send(format!("HTTP/1.1 200 OK\r\n{fields}Connection: close\r\n\r\n").as_bytes())?;
                peer.send(&content)?;
                return Ok(());
            }
            // Half of the content that the head announces.
            "cut" => {
                peer.send(
                    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", 2 * content.len())
                        .as_bytes(),
                )?;
                return peer.send(&content);
            }
            _ => {
                let length = content.len();
                peer.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n").as_bytes())?;
                if !is_head {
                    peer.send(&content)?;
                }
            }
        }
    }
    Ok(())
}

fn proxy_of(origin: &ScriptedServer, compression: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{compression}\n\
         [[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ))
}

fn has_curl() -> bool {
    is_installed("curl", &["--version"])
}

#[test]
fn content_in_each_coding_decodes_to_that_of_the_server_whatever_its_framing() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::start(serve);
    let proxy = proxy_of(&origin, "compression = true");
    for version in VERSIONS {
        for (coding, accepted) in [("br", "br"), ("zstd", "gzip;q=0.5, zstd"), ("gzip", "gzip")] {
            for path in ["/length/100", "/chunked/100", "/close/100", "/length/3000", "/chunked/1"] {
                let url = format!("http://{}{path}", proxy.authority());
                let accepted = format!("Accept-Encoding: {accepted}");
                let found = curl(&url, &[version, "-H", &accepted]);
                let case = format!("{version} {coding} {path}: {}", found.head);
                assert_eq!((found.code, found.status), (0, 200), "{case}");
                let kib = path.rsplit('/').next().unwrap().parse().unwrap();
                assert!(found.body == text(kib), "{case}");
                let fields =
                    ["content-encoding", "etag", "vary", "accept-ranges", "repr-digest", "content-length"];
                let expected = [Some(coding), Some("W/\"v1\""), Some("Accept-Encoding"), None, None, None];
                assert_eq!(
                    fields.map(|name| found.field(name)),
                    expected.map(|value| value.map(str::to_owned)),
                    "{case}"
                );
            }
        }
    }
    let metrics = proxy
        .metrics_until("30 responses", |metrics| metrics.sum("weir_compressed_responses_total", &[]) == 30.0);
    let (before, after) = (
        metrics.sum("weir_compression_in_bytes_total", &[]),
        metrics.sum("weir_compression_out_bytes_total", &[]),
    );
    assert_eq!(before, f64::from(6 * 1024 * (100 + 100 + 100 + 3000 + 1)));
    assert!(after > 0.0 && after < 0.5 * before, "{after} of {before}");
    proxy.metrics_until("no encoder", |metrics| metrics.sum("weir_encoders_memory_bytes", &[]) == 0.0);
    proxy.assert_all_returned();
}

#[test]
fn responses_have_the_same_content_and_fields_as_behind_nginx() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::start(serve);
    let proxy =
        proxy_of(&origin, "compression = { codings = \"gzip\", types = [\"text/html\", \"text/css\"] }");
    let directives = format!(
        "gzip on; gzip_types text/css; gzip_proxied any; gzip_vary on; gzip_min_length 1024;\n\
         location / {{ proxy_pass http://{}; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}",
        origin.authority
    );
    // Its own location for `/` is an exact one.
    let nginx = Nginx::start_with("", &directives);
    for (path, args) in [
        ("/length/100", &["-H", "Accept-Encoding: gzip"][..]),
        ("/chunked/100", &["-H", "Accept-Encoding: gzip"]),
        ("/length/100/text/css", &["-H", "Accept-Encoding: br, gzip"]),
        ("/length/100/image/png", &["-H", "Accept-Encoding: gzip"]),
        ("/length/0", &["-H", "Accept-Encoding: gzip"]),
        ("/length/100", &["-H", "Accept-Encoding: gzip;q=0"]),
        ("/length/100", &["-H", "Accept-Encoding: br"]),
        ("/length/100", &[]),
        ("/length/100", &["-I", "-H", "Accept-Encoding: gzip"]),
        ("/length/100", &["-H", "Accept-Encoding: gzip", "-H", "If-None-Match: \"v1\""]),
    ] {
        let of = |base: &str| {
            let found = curl(&format!("http://{base}{path}"), args);
            let fields =
                ["content-encoding", "etag", "accept-ranges", "content-type"].map(|name| found.field(name));
            // With -I, the head is the content.
            let body = if args.contains(&"-I") { Vec::new() } else { found.body };
            (found.code, found.status, fields, body)
        };
        let (weir, peer) = (of(proxy.authority()), of(&nginx.authority));
        assert!(weir == peer, "{path} {args:?}: {:?}, nginx: {:?}", weir.2, peer.2);
    }
}

#[test]
fn responses_to_requests_with_credentials_are_compressed_only_where_they_repeat_nothing() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::start(serve);
    let config = format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\ncompression = true\n\
         [[route]]\nhost = \"own.example\"\ncompression = {{ with-credentials = true }}\npool = \"app\"\n\
         [[route]]\nhost = \"plain.example\"\ncompression = false\npool = \"app\"\n\
         [[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    );
    let proxy = ProxyUnderTest::weir(&config);
    let coding = |path: &str, fields: &[&str]| {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["-H", field]).collect();
        let args = [&["-H", "Accept-Encoding: gzip"], &*fields].concat();
        let found = curl(&format!("http://{}{path}", proxy.authority()), &args);
        assert!(found.code == 0 && found.body.len() > 1_000, "{path} {fields:?}: {}", found.head);
        (found.field("content-encoding").unwrap_or_default(), found.field("vary").unwrap_or_default())
    };
    let is = |coding: &str, vary: &str| (coding.to_owned(), vary.to_owned());
    for credentials in ["Cookie: id=1", "Authorization: Bearer x"] {
        for (path, expected) in [
            ("/length/9", is("", "Accept-Encoding")),
            ("/length/9/application/json", is("", "Accept-Encoding")),
            ("/length/9/text/css", is("gzip", "Accept-Encoding")),
            ("/length/9/image/svg+xml", is("gzip", "Accept-Encoding")),
            ("/length/9/image/png", is("", "")),
        ] {
            assert_eq!(coding(path, &[credentials]), expected, "{credentials} {path}");
        }
        let own = coding("/length/9", &[credentials, "Host: own.example"]);
        assert_eq!(own, is("gzip", "Accept-Encoding"), "{credentials}");
    }
    assert_eq!(coding("/length/9", &["Host: plain.example"]), is("", ""));
    assert_eq!(coding("/length/9", &["Cache-Control: no-transform"]), is("", "Accept-Encoding"));
}

#[test]
fn a_client_that_knows_a_compressed_response_gets_304_from_a_server_that_compares_bytes() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::start(serve);
    let proxy = proxy_of(&origin, "compression = true");
    let plain = proxy_of(&origin, "");
    for version in VERSIONS {
        let send = |proxy: &ProxyUnderTest, tag: &str| {
            let tag = format!("If-None-Match: {tag}");
            let args = [version, "-H", "Accept-Encoding: gzip", "-H", &tag];
            curl(&format!("http://{}/length/100", proxy.authority()), &args)
        };
        let found = send(&proxy, "W/\"v1\"");
        assert_eq!((found.status, found.field("etag").as_deref()), (304, Some("W/\"v1\"")), "{}", found.head);
        assert_eq!(found.field("vary").as_deref(), Some("Accept-Encoding"));
        let found = send(&proxy, "\"v1\"");
        assert_eq!((found.status, found.field("etag").as_deref()), (304, Some("\"v1\"")), "{}", found.head);
        let found = send(&proxy, "W/\"v0\", \"v2\"");
        assert_eq!((found.status, found.field("x-tags").as_deref()), (200, Some("W/\"v0\", \"v0\", \"v2\"")));
        // Decoy: without compression the server gets what the client sent.
        let found = send(&plain, "W/\"v1\"");
        assert_eq!((found.status, found.field("x-tags").as_deref()), (200, Some("W/\"v1\"")));
    }
}

#[test]
fn content_is_decoded_for_clients_that_do_not_accept_its_coding() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::start(serve);
    // A server that sends the coding that it is asked for.
    let coder = proxy_of(&origin, "compression = true");
    let routes: String = ["br", "zstd", "gzip"]
        .map(|coding| {
            format!(
                "[[route]]\nhost = \"{coding}.example\"\nset-request-header = {{ accept-encoding = \"{coding}\" }}\npool = \"app\"\n"
            )
        })
        .concat();
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\ncompression = {{ decode = true }}\n\
         {routes}[pool.app]\nservers = [\"{}\"]\n",
        coder.authority()
    ));
    for version in VERSIONS {
        for coding in ["br", "zstd", "gzip"] {
            let host = format!("Host: {coding}.example");
            for path in ["/length/100", "/chunked/3000", "/close/100", "/chunked/1"] {
                let url = format!("http://{}{path}", proxy.authority());
                let found = curl(&url, &[version, "-H", &host, "-H", "Accept-Encoding: deflate"]);
                let case = format!("{version} {coding} {path}: {} {}", found.code, found.head);
                let kib = path.rsplit('/').next().unwrap().parse().unwrap();
                assert!(found.code == 0 && found.body == text(kib), "{case}");
                let fields = ["content-encoding", "etag", "vary"].map(|name| found.field(name));
                let expected = [None, Some("W/\"v1\""), Some("Accept-Encoding")];
                assert_eq!(fields, expected.map(|value| value.map(str::to_owned)), "{case}");
                let accepted = format!("Accept-Encoding: {coding}");
                let kept = curl(&url, &[version, "-H", &host, "-H", &accepted]);
                assert_eq!(kept.field("content-encoding").as_deref(), Some(coding), "{case}");
                assert!(kept.body == text(kib), "{case}");
            }
        }
    }
    proxy
        .metrics_until("24 decoded", |metrics| metrics.sum("weir_decompressed_responses_total", &[]) == 24.0);
    proxy.metrics_until("no decoder", |metrics| metrics.sum("weir_encoders_memory_bytes", &[]) == 0.0);
    proxy.assert_all_returned();
}

#[test]
fn malformed_coded_content_is_an_error_and_not_content() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::responding(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\ngarbage",
    );
    let proxy = proxy_of(&origin, "compression = { decode = true }");
    for version in VERSIONS {
        let found = curl(&format!("http://{}/", proxy.authority()), &[version]);
        assert_eq!((found.code, found.status), (0, 502), "{version}: {}", found.head);
    }
    proxy.assert_all_returned();
}

#[test]
fn a_truncated_response_of_a_server_is_no_complete_one_for_its_client() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let origin = ScriptedServer::start(serve);
    let proxy = proxy_of(&origin, "compression = true");
    for version in VERSIONS {
        for coding in ["gzip", "br", "zstd"] {
            let accepted = format!("Accept-Encoding: {coding}");
            let found = curl(&format!("http://{}/cut/100", proxy.authority()), &[version, "-H", &accepted]);
            // A head that is not sent yet becomes an error.
            assert!(found.code != 0 || found.status == 502, "{version} {coding}: {}", found.head);
        }
    }
    proxy.assert_all_returned();
}

#[test]
fn both_connections_stay_open_behind_a_compressed_response() {
    let _shared = shared_machine();
    let origin = ScriptedServer::start(serve);
    let proxy = proxy_of(&origin, "compression = true");
    if !has_curl() {
        return;
    }
    let url = format!("http://{}", proxy.authority());
    let (first, second) = (format!("{url}/chunked/64"), format!("{url}/length/64"));
    let found = curl(&second, &["-H", "Accept-Encoding: br", "-o", "/dev/null", &first]);
    assert_eq!(found.code, 0);
    assert_eq!(found.head.matches("HTTP/1.1 200").count(), 2, "{}", found.head);
    proxy.metrics_until("one connection", |metrics| {
        metrics.sum("weir_connections_accepted_total", &[]) == 1.0
            && metrics.sum("weir_responses_total", &[]) == 2.0
    });
    assert_eq!(origin.connections(), 1);
}

#[test]
fn the_settings_of_a_request_are_explained() {
    let config = "[listener.web]\nbind = \"127.0.0.1:8080\"\ncompression = { codings = \"gzip\", level = { gzip = 1 } }\n\
                  [[route]]\nname = \"api\"\npath-prefix = \"/api\"\ncompression = { min-size = \"2k\" }\npool = \"app\"\n\
                  [[route]]\npath-prefix = \"/plain\"\ncompression = false\npool = \"app\"\n\
                  [[route]]\npool = \"app\"\n[pool.app]\nservers = [\"127.0.0.1:9001\"]\n";
    let directory = crate::support::temp_dir();
    let path = directory.path().join("weir.toml");
    std::fs::write(&path, config).unwrap();
    let explain = |target: &str| {
        let output = run_weir(&["proxy", "--config", path.to_str().unwrap(), "--explain", target]);
        assert_eq!(output.code, 0, "{output:?}");
        output.stdout
    };
    let api = explain("http://a/api/x");
    assert!(api.contains("compression") && api.contains("gzip level 1, from 2048 B"), "{api}");
    let others = explain("http://a/");
    assert!(others.contains("gzip level 1, from 1024 B"), "{others}");
}

#[test]
fn responses_of_the_proxy_itself_are_compressed_too() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let page = "<p>back at noon</p>\n".repeat(100);
    let directory = crate::support::temp_dir();
    let file = directory.path().join("page.html");
    std::fs::write(&file, &page).unwrap();
    let file = file.display();
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\n[[error-page]]\nstatus = \"403\"\nhtml = \"{file}\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\ncompression = true\n\
         [[route]]\npath = \"/page\"\nreturn = {{ content-type = \"text/html\", body-file = \"{file}\" }}\n\
         [[route]]\npath = \"/short\"\nreturn = {{ body = \"short\" }}\n\
         [[route]]\npath = \"/plain\"\ncompression = false\nreturn = {{ content-type = \"text/html\", body-file = \"{file}\" }}\n\
         [[route]]\ndeny = true\n"
    ));
    let of = |path: &str, args: &[&str]| curl(&format!("http://{}{path}", proxy.authority()), args);
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for (path, status) in [("/page", 200), ("/denied", 403)] {
            for coding in ["gzip", "br", "zstd"] {
                let field = format!("Accept-Encoding: {coding}");
                let arguments = [version, "-H", &field, "-H", "Accept: text/html"];
                let fetched = of(path, &arguments);
                assert_eq!((fetched.code, fetched.status), (0, status), "{path} {coding}");
                assert_eq!(fetched.field("content-encoding").as_deref(), Some(coding), "{path}");
                assert_eq!(fetched.field("vary").as_deref(), Some("Accept-Encoding"));
                assert!(fetched.body == page.as_bytes(), "{path} {coding}");
                let head = of(path, &[&arguments[..], &["-I"]].concat());
                let length = |fetched: &Fetched| fetched.field("content-length");
                assert_eq!(length(&head), length(&fetched), "{path} {coding}");
            }
            let plain = of(path, &[version, "-H", "Accept: text/html"]);
            assert!(plain.body == page.as_bytes() && plain.field("content-encoding").is_none());
            assert_eq!(plain.field("vary").as_deref(), Some("Accept-Encoding"));
        }
        for path in ["/short", "/plain"] {
            let fetched = of(path, &[version, "-H", "Accept-Encoding: gzip"]);
            assert!(fetched.field("content-encoding").is_none() && fetched.field("vary").is_none(), "{path}");
        }
    }
}
