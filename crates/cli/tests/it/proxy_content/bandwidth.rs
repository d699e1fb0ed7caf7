//! Limits of bytes per second: minimum times, what they must not delay, and the sum of several responses. A maximum time is
//! never asserted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rt::clock::MonotonicTime;

use super::curl;
use crate::support::faulty_origins::{LaxReader, ok_response, respond_to_each};
use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, shared_machine, temp_dir};

/// Longer than anything in flight between two programs, so that who reads late does not get it at once.
const CONTENT_BYTES: usize = 300_000;

fn content() -> Vec<u8> {
    (0..CONTENT_BYTES).map(|index| b"weir proxy\n"[index * 31 / 7 % 11]).collect()
}

/// A server whose responses have the content, and whose response to a content has its length.
fn content_server() -> ScriptedServer {
    respond_to_each(|request, _| {
        Some(match request.body.len() {
            0 => ok_response(&content()),
            length => ok_response(length.to_string().as_bytes()),
        })
    })
}

fn proxy_of(listener: &str, route: &str, rest: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\nname = \"all\"\n{route}\n{rest}\n"
    ))
}

fn pool_of(server: &ScriptedServer, keys: &str) -> String {
    format!("[pool.app]\nservers = [\"{}\"]\n{keys}", server.authority)
}

fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let start = MonotonicTime::now();
    let result = action();
    (result, Duration::from_nanos(MonotonicTime::now().since(start)))
}

fn waits(proxy: &ProxyUnderTest) -> f64 {
    proxy.metrics().sum("weir_limit_rate_waits_total", &[])
}

#[test]
fn a_response_takes_its_time_as_with_nginx_over_either_version_and_from_a_file() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let server = content_server();
    let directory = temp_dir();
    std::fs::write(directory.path().join("content"), content()).unwrap();
    let files = format!("files = {{ root = \"{}\" }}\nlimit-rate = 100000", directory.path().display());
    // These timeouts are shorter than the waits for bytes.
    let pool = pool_of(&server, "timeouts = { idle = '300ms', first-byte = '20s' }");
    let forwarding = proxy_of("timeouts = { write = '1s' }", "pool = 'app'\nlimit-rate = 100000", &pool);
    let file_proxy = proxy_of("timeouts = { write = '1s' }", &files, "");
    let mut urls = Vec::new();
    for proxy in [&forwarding, &file_proxy] {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            urls.push((format!("http://{}/content", proxy.authority()), version));
        }
    }
    let nginx = is_installed("nginx", &["-v"]).then(|| {
        let directives =
            format!("location /content {{ root {}; limit_rate 100000; }}", directory.path().display());
        Nginx::start_with("", &directives)
    });
    urls.extend(nginx.iter().map(|nginx| (nginx.url("/content"), "--http1.1")));
    for (url, version) in urls {
        let (fetched, elapsed) = timed(|| curl(&url, &[version]));
        assert_eq!((fetched.code, fetched.status), (0, 200), "{url} {version}");
        assert!(fetched.body == content(), "{url} {version}");
        assert!(elapsed >= Duration::from_millis(1_900), "{url} {version}: {elapsed:?}");
    }
    assert!(waits(&forwarding) > 0.0 && waits(&file_proxy) > 0.0);
    // Files count for their route and listener, as the responses of servers do.
    for proxy in [&forwarding, &file_proxy] {
        proxy.metrics_until("both are counted", |metrics| {
            let requests = metrics.sum("weir_request_seconds_count", &[("route", "all"), ("class", "2xx")]);
            requests == 2.0
                && metrics.sum("weir_bytes_out_total", &[("listener", "web")]) >= 2.0 * CONTENT_BYTES as f64
        });
    }
    forwarding.assert_all_returned();
    file_proxy.assert_all_returned();
}

#[test]
fn all_responses_of_a_route_share_a_limit_on_all_cores_and_others_have_none() {
    let _shared = shared_machine();
    let server = content_server();
    let unlimited = "[[route]]\nname = \"free\"\npool = 'app'\n";
    let proxy = proxy_of(
        "",
        "path = '/slow'\npool = 'app'\nlimit-rate-total = '500k/s'",
        &format!("{unlimited}{}", pool_of(&server, "")),
    );
    let (_, elapsed) = timed(|| {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..6).map(|_| scope.spawn(|| proxy.get("/slow").body)).collect();
            // Meanwhile the other route is free, on both cores.
            for _ in 0..20 {
                assert_eq!(proxy.get("/").body.len(), CONTENT_BYTES);
            }
            for client in clients {
                assert!(client.join().unwrap() == content());
            }
        });
    });
    // 1,800,000 bytes, half a second of which may be ahead, and what came with each head.
    assert!(elapsed >= Duration::from_millis(2_200), "{elapsed:?}");
    proxy.assert_all_returned();
}

#[test]
fn the_first_bytes_and_short_responses_are_not_delayed() {
    let _shared = shared_machine();
    let server = content_server();
    let route = "pool = 'app'\nlimit-rate = '1k/s'\nlimit-rate-after = '1m'";
    let proxy = proxy_of("", route, &pool_of(&server, ""));
    assert!(proxy.get("/").body == content());
    assert_eq!(waits(&proxy), 0.0);
}

#[test]
fn an_upload_takes_its_time_and_no_timeout_passes() {
    let _shared = shared_machine();
    let server = content_server();
    let listener = "timeouts = { body-idle = '300ms', body-progress = '400ms' }";
    let proxy = proxy_of(listener, "pool = 'app'\nlimit-rate-upload = 100000", &pool_of(&server, ""));
    let mut client = proxy.client();
    let (response, elapsed) = timed(|| {
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {CONTENT_BYTES}\r\n\r\n");
        client.send(&[head.as_bytes(), &content()].concat());
        client.read_response().unwrap()
    });
    assert_eq!((response.status, &response.body[..]), (200, CONTENT_BYTES.to_string().as_bytes()));
    assert!(elapsed >= Duration::from_millis(1_500), "{elapsed:?}");
    // The response, and the next request, are not limited.
    assert!(client.get("/").body == content());
    assert!(waits(&proxy) > 0.0);
}

#[test]
fn a_client_that_leaves_is_noticed_while_its_bytes_are_not_due() {
    let _shared = shared_machine();
    let server = content_server();
    let proxy = proxy_of("", "pool = 'app'\nlimit-rate = '1k/s'", &pool_of(&server, ""));
    let mut stream = TcpStream::connect(proxy.authority()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    proxy.metrics_until("it waits", |metrics| metrics.sum("weir_limit_rate_waits_total", &[]) > 0.0);
    drop(stream);
    proxy.metrics_until("it has left", |metrics| {
        metrics.sum("weir_requests_total", &[("end", "client_gone")]) == 1.0
    });
    proxy.assert_all_returned();
}

#[test]
fn compressed_content_counts_as_it_is_sent() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let server = respond_to_each(|_, _| {
        let body = content();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", body.len());
        Some([head.as_bytes(), &body].concat())
    });
    let route = "pool = 'app'\nlimit-rate = 100000\ncompression = { codings = 'gzip' }";
    let proxy = proxy_of("", route, &pool_of(&server, ""));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let arguments = [version, "-H", "Accept-Encoding: gzip"];
        let fetched = curl(&format!("http://{}/", proxy.authority()), &arguments);
        assert!(fetched.body == content() && fetched.field("content-encoding").is_some(), "{version}");
    }
    proxy.assert_all_returned();
}

#[test]
fn bytes_of_a_tcp_listener_are_limited_in_both_directions() {
    let _shared = shared_machine();
    // Returns the bytes once all have come.
    let server = ScriptedServer::start(|peer| {
        let bytes = LaxReader::new(peer.stream.try_clone()?).read_exactly(CONTENT_BYTES)?;
        peer.send(&bytes)
    });
    for (limit, count) in [("limit-rate", 1), ("limit-rate-upload", 1)] {
        let proxy = ProxyUnderTest::weir(&format!(
            "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
             {limit} = 100000\n{}",
            pool_of(&server, "timeouts = { tunnel = '300ms' }")
        ));
        let ((), elapsed) = timed(|| {
            let mut stream = TcpStream::connect(proxy.authority()).unwrap();
            stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
            stream.write_all(&content()).unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert!(bytes == content(), "{limit}");
        });
        assert!(elapsed >= Duration::from_millis(1_900), "{limit}: {elapsed:?}");
        proxy.metrics_until("it has ended", |metrics| {
            metrics.sum("weir_requests_total", &[("end", "done")]) == f64::from(count)
        });
        proxy.assert_all_returned();
    }
}

#[test]
fn files_for_users_take_their_time_and_strangers_get_none() {
    let _shared = shared_machine();
    if !is_installed("curl", &["--version"]) {
        return;
    }
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::create_dir(path("root")).unwrap();
    std::fs::write(path("root/content"), content()).unwrap();
    // The password is `secret`.
    std::fs::write(path("users"), "ann:$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n")
        .unwrap();
    let route = format!(
        "files = {{ root = \"{}\" }}\nauth = {{ basic = {{ users-file = \"{}\" }} }}\nlimit-rate = 100000",
        path("root"),
        path("users")
    );
    let proxy = proxy_of("", &route, "");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let url = format!("http://{}/content", proxy.authority());
        for stranger in [&[version][..], &[version, "-u", "ann:wrong"]] {
            let fetched = curl(&url, stranger);
            assert_eq!((fetched.code, fetched.status), (0, 401), "{stranger:?}");
            assert!(fetched.body.len() < 100, "{stranger:?}");
        }
        let (fetched, elapsed) = timed(|| curl(&url, &[version, "-u", "ann:secret"]));
        assert_eq!((fetched.code, fetched.status), (0, 200), "{version}");
        assert!(
            fetched.body == content() && elapsed >= Duration::from_millis(1_900),
            "{version} {elapsed:?}"
        );
        // A range has the same limit, and its conditions the same access.
        let (fetched, elapsed) =
            timed(|| curl(&url, &[version, "-u", "ann:secret", "-H", "Range: bytes=0-249999"]));
        assert_eq!((fetched.status, fetched.body.len()), (206, 250_000), "{version}");
        assert!(elapsed >= Duration::from_millis(1_400), "{version} {elapsed:?}");
        let fetched = curl(&url, &[version, "-H", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]);
        assert_eq!(fetched.status, 401, "{version}");
    }
    assert!(waits(&proxy) > 0.0);
    proxy.assert_all_returned();
}
