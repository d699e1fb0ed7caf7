//! Settings of routes instead of those of their listener and pool, logs with a format of their own, and configs of
//! several files with variables.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rt::clock::now_ns;

use super::{body_text, send_request, start_proxy};
use crate::support::client::Client;
use crate::support::faulty_origins::{echoing_server, field, ok_response, respond_to_each, wait_for_close};
use crate::support::metrics::RETRIES;
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{EVENT_TIMEOUT, shared_machine, within};
use crate::timers::elapsed_since;

/// Starts a server that responds with this status, and the number of its requests.
fn counting_server(status: &'static str) -> (ScriptedServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let requests = Arc::clone(&count);
    let server = respond_to_each(move |_, _| {
        requests.fetch_add(1, Ordering::SeqCst);
        Some(format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nfrom").into_bytes())
    });
    (server, count)
}

#[test]
fn a_response_of_retry_on_is_replaced_by_that_of_another_server() {
    let _shared = shared_machine();
    let (broken, broken_count) = counting_server("503 Service Unavailable");
    let (good, _) = counting_server("200 OK");
    let proxy = start_proxy(&format!(
        "[[route]]\npath = \"/retried\"\nretry-on = \"502-503\"\nretries = 1\npool = \"app\"\n\
         [[route]]\npath = \"/plain\"\npool = \"app\"\n\
         [[route]]\npath = \"/never\"\nretry-on = \"503\"\nretries = 0\npool = \"app\"\n\
         [[route]]\npath = \"/hopeless\"\nretry-on = \"503\"\nretries = 3\npool = \"bad\"\n\
         [pool.app]\nservers = [\"{}\", \"{}\"]\nbalance = \"round-robin\"\nretry-budget = {{ ratio = 1 }}\n\
         [pool.bad]\nservers = [\"{}\"]\nretry-budget = {{ ratio = 1 }}\n",
        broken.authority, good.authority, broken.authority
    ));
    let statuses = |line: &str, fields: &str| -> Vec<u16> {
        let mut all: Vec<u16> =
            (0..4).map(|_| send_request(proxy.authority(), line, fields).status).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(statuses("GET /retried", ""), [200; 4]);
    // Requests that are not idempotent, and routes without the setting, get what the server sends.
    assert_eq!(statuses("POST /retried", "Content-Length: 0\r\n"), [200, 200, 503, 503]);
    assert_eq!(statuses("GET /plain", ""), [200, 200, 503, 503]);
    assert_eq!(statuses("GET /never", ""), [200, 200, 503, 503]);
    // The last response is that of the server.
    let before = broken_count.load(Ordering::SeqCst);
    let response = proxy.get("/hopeless");
    assert_eq!((response.status, body_text(&response)), (503, "from".to_owned()));
    assert_eq!(broken_count.load(Ordering::SeqCst) - before, 4);
    proxy.metrics_until("retries are counted", |metrics| metrics.sum(RETRIES, &[]) >= 5.0);
    proxy.assert_all_returned();
}

#[test]
fn a_try_without_a_response_in_time_goes_to_another_server() {
    let _shared = shared_machine();
    let hanging = ScriptedServer::start(|peer| {
        wait_for_close(peer);
        Ok(())
    });
    let (good, _) = counting_server("200 OK");
    let proxy = start_proxy(&format!(
        "[[route]]\npath = \"/retried\"\nretry-on = \"timeout\"\ntimeouts = {{ per-try = \"300ms\" }}\npool = \"app\"\n\
         [[route]]\npath = \"/total\"\ntimeouts = {{ total = \"400ms\" }}\npool = \"hanging\"\n\
         [[route]]\npath = \"/first-byte\"\ntimeouts = {{ first-byte = \"300ms\" }}\npool = \"hanging\"\n\
         [pool.app]\nservers = [\"{}\", \"{}\"]\nbalance = \"round-robin\"\nretry-budget = {{ ratio = 1 }}\n\
         [pool.hanging]\nservers = [\"{}\"]\n",
        hanging.authority, good.authority, hanging.authority
    ));
    for _ in 0..4 {
        assert_eq!(proxy.get("/retried").status, 200);
    }
    for target in ["/total", "/first-byte"] {
        let start_ns = now_ns();
        assert_eq!(proxy.get(target).status, 504, "{target}");
        // The pool's own limit is a minute.
        assert!(
            elapsed_since(start_ns) >= Duration::from_millis(290) && elapsed_since(start_ns) < EVENT_TIMEOUT,
            "{target}"
        );
    }
    proxy.assert_all_returned();
}

#[test]
fn a_total_limits_a_response_that_flows() {
    let _shared = shared_machine();
    let endless = ScriptedServer::start(|peer| {
        peer.request()?;
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
        for _ in 0..600 {
            peer.send(b"0123456789")?;
            crate::support::pause_ms(50);
        }
        Ok(())
    });
    let proxy = start_proxy(&format!(
        "[[route]]\ntimeouts = {{ total = \"600ms\" }}\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        endless.authority
    ));
    let start_ns = now_ns();
    let mut client = proxy.client();
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    let received = client.read_to_end();
    assert!(received.starts_with(b"HTTP/1.1 200") && received.len() < 10_000, "{}", received.len());
    assert!(elapsed_since(start_ns) >= Duration::from_millis(590) && elapsed_since(start_ns) < EVENT_TIMEOUT);
    proxy.assert_all_returned();
}

#[test]
fn a_route_has_its_own_limit_of_bodies() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = start_proxy(&format!(
        "body-max = 100\n[[route]]\npath = \"/large\"\nbody-max = 1000\npool = \"app\"\n\
         [[route]]\npath = \"/small\"\nbody-max = 10\npool = \"app\"\n\
         [[route]]\npath = \"/own\"\nbody-max = 10\nreturn = {{}}\n\
         [[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let post = |target: &str, bytes: usize, is_chunked: bool| {
        let mut client = Client::connect(proxy.authority());
        let body = "x".repeat(bytes);
        let message = match is_chunked {
            true => format!("Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"),
            false => format!("Content-Length: {bytes}\r\n\r\n{body}"),
        };
        client.send(format!("POST {target} HTTP/1.1\r\nHost: t\r\n{message}").as_bytes());
        client.read_response().map_or(0, |response| response.status)
    };
    for is_chunked in [false, true] {
        for (target, fits, exceeds) in [("/large", 1000, 1001), ("/small", 10, 11), ("/other", 100, 101)] {
            assert_eq!(post(target, fits, is_chunked), 200, "{target}");
            assert_eq!(post(target, exceeds, is_chunked), 413, "{target}");
        }
    }
    assert_eq!((post("/own", 10, false), post("/own", 11, false)), (200, 413));
}

#[test]
fn a_route_has_its_own_fields_of_forwarding() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = start_proxy(&format!(
        "[[route]]\npath = \"/bare\"\nforwarding = {{ x-forwarded = false, via = false, request-id = false }}\npool = \"app\"\n\
         [[route]]\npath = \"/more\"\nforwarding = {{ forwarded = true, request-id = \"x-trace\" }}\npool = \"app\"\n\
         [[route]]\npool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    let has = |target: &str, name: &str| {
        // A client's own fields never replace those of the proxy.
        let body = body_text(&send_request(proxy.authority(), &format!("GET {target}"), "X-Trace: mine\r\n"));
        field(&body, name).filter(|value| value != "mine").is_some()
    };
    let names = ["x-forwarded-for", "via", "x-request-id", "forwarded", "x-trace"];
    let sent = |target: &str| names.map(|name| has(target, name));
    assert_eq!(sent("/bare"), [false; 5]);
    assert_eq!(sent("/more"), [true, true, false, true, true]);
    assert_eq!(sent("/"), [true, true, true, false, false]);
}

#[test]
fn a_log_has_a_format_of_its_own() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [[log]]\nto = \"file:HOME/own.log\"\n\
         format = '{{status}} {{method}} {{target}} \"{{header.x-a}}\" {{cookie.user}} {{query.q:-none}} {{server}} {{duration.total.ms}} {{bytes.content}}'\n\
         [[log]]\nto = \"file:HOME/json.log\"\nescape = \"json\"\nformat = '{{{{\"agent\":\"{{header.user-agent}}\",\"id\":\"{{request-id}}\"}}}}'\n\
         [pool.app]\nservers = [{{ address = \"{}\", name = \"one\" }}]\n",
        origin.authority
    ));
    let fields = "X-A: a\"\\\u{e4}b\r\nCookie: a=b; user=ada\r\nUser-Agent: \"x\"\\\r\n";
    let body = body_text(&send_request(proxy.authority(), "GET /p?q=1%0a2", fields));
    let line = proxy.wait_for_lines("own.log", 1).remove(0);
    let mut words: Vec<&str> = line.split(' ').collect();
    let (bytes, ms) = (words.pop().unwrap(), words.pop().unwrap());
    assert_eq!(words.join(" "), "200 GET /p?q=1%0a2 \"a\\x22\\x5C\\xC3\\xA4b\" ada 1\\x0A2 one", "{line}");
    assert!(bytes.parse::<usize>().unwrap() > body.len() - 5 && ms.parse::<u64>().is_ok(), "{line}");
    let line = proxy.wait_for_lines("json.log", 1).remove(0);
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((json["agent"].as_str(), json["id"].as_str().map(str::len)), (Some("\"x\"\\"), Some(32)));
    // Without a head, the values of a request are missing.
    let mut client = proxy.client();
    client.send(b"nonsense\r\n\r\n");
    let _ = client.read_to_end();
    let line = proxy.wait_for_lines("own.log", 2).remove(1);
    assert!(line.starts_with("400 "), "{line}");
}

#[test]
fn a_config_has_several_files_variables_and_secrets() {
    let _shared = shared_machine();
    let start =
        StartOptions { environment: &[("WEIR_TEST_BODY", "from outside")], ..StartOptions::default() };
    let config = "threads = 1\nadmin = \"127.0.0.1:0\"\nadmin-token-file = \"HOME/token\"\ninclude = \"more-*.toml\"\n\
                  [listener.web]\nbind = \"127.0.0.1:0\"\n\
                  [[route]]\npath = \"/own\"\nreturn = { body = \"${WEIR_TEST_BODY} ${WEIR_TEST_NONE:-by default} $${x}\" }\n";
    let directory = crate::support::temp_dir();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("token", "a-token-of-sixteen-bytes\n");
    let config = config.replace("HOME", directory.path().to_str().unwrap());
    let config = config.replace("more-", &format!("{}/more-", directory.path().display()));
    write("more-1.toml", "[[route]]\npath = \"/more\"\nreturn = { body = \"1\" }\n");
    let proxy = ProxyUnderTest::weir_with_options(&config, &start);
    assert_eq!(body_text(&proxy.get("/own")), "from outside by default ${x}");
    assert_eq!((body_text(&proxy.get("/more")), proxy.get("/2").status), ("1".to_owned(), 404));
    let admin = |fields: &str| {
        send_request(proxy.admin(), "GET /status.json", &format!("Host: localhost\r\n{fields}")).status
    };
    assert_eq!((admin(""), admin("Authorization: Bearer a-token-of-sixteen-bytes\r\n")), (401, 200));
    write("more-1.toml", "[[route]]\npath = \"/more\"\nreturn = { body = \"changed\" }\n");
    write("more-2.toml", "[[route]]\npath = \"/2\"\nreturn = { body = \"new\" }\n");
    proxy.reload(&config);
    let is_new = within(EVENT_TIMEOUT, || {
        body_text(&proxy.get("/more")) == "changed" && body_text(&proxy.get("/2")) == "new"
    });
    assert!(is_new, "{}", proxy.stderr());
    // A fault in an included file keeps the old config.
    write("more-2.toml", "[[route]]\npth = \"/2\"\ndeny = true\n");
    proxy.reload(&config);
    let is_reported = within(EVENT_TIMEOUT, || proxy.stderr().contains("more-2.toml:2:1: unknown key 'pth'"));
    assert!(is_reported, "{}", proxy.stderr());
    assert_eq!(body_text(&proxy.get("/2")), "new");
}

#[test]
fn a_flowing_upload_has_the_time_of_its_route() {
    let _shared = shared_machine();
    let origin = respond_to_each(|_, _| Some(ok_response(b"done")));
    let proxy = start_proxy(&format!(
        "[[route]]\npath = \"/short\"\ntimeouts = {{ body = \"500ms\" }}\npool = \"app\"\n\
         [[route]]\npath = \"/idle\"\ntimeouts = {{ body-idle = \"500ms\" }}\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    for target in ["/short", "/idle"] {
        let mut client = proxy.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\nx").as_bytes());
        let start_ns = now_ns();
        assert_eq!(client.read_response().map(|response| response.status), Some(408), "{target}");
        assert!(elapsed_since(start_ns) < Duration::from_secs(20), "{target}");
    }
}
