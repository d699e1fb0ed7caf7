//! Clients and servers that others wrote, through the proxy with HTTP/2 and TLS: Go's net/http, gRPC,
//! httpx, Node and Chromium. Tests of other clients, such as curl and h2load, are in `proxy_h2`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::http2_serve::{python_with_httpx, run_successfully};
use crate::proxy_status::browser;
use crate::support::faulty_origins::RefusingPort;
use crate::support::metrics::CONNECTIONS_OPEN;
use crate::support::peers::ScriptedServer;
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{OriginProcess, Process, shared_machine, start};

/// Lines of a listener with TLS.
const TLS: &str = "tls = { self-signed = true }";
/// Lines of both kinds of listeners, and the scheme of each.
const LISTENERS: [(&str, &str); 2] = [("", "http"), (TLS, "https")];
/// Lines of the three kinds of pools: HTTP/1.1, HTTP/2, and HTTP/2 over TLS.
const POOLS: [&str; 3] = ["", "http = \"2\"", "http = \"2\"\ntls = { verify = false }"];

fn start_proxy(listener: &str, server: &str, pool: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[[log]]\nto = \"file:HOME/access.json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = [\"{server}\"]\n{pool}\n"
    ))
}

/// Waits until the clients have left, and checks that nothing is left of their requests.
fn assert_idle(proxy: &ProxyUnderTest) {
    proxy.metrics_until("all have left", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
    });
    proxy.assert_all_returned();
}

/// Returns the path of the program in `proxy_interop/go`, which the first call builds; `None`, with a
/// message, without a Go that is new enough, or without its modules.
pub(crate) fn go_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| {
        if !is_installed("go", &["version"]) {
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/proxy_interop/go");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("weir-interop");
        let mut build = Command::new("go");
        build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").current_dir(source);
        let output = build.stdin(Stdio::null()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Some(program);
        }
        // An error in our source is no reason to skip.
        assert!(!errors.contains("# weir-interop"), "{errors}");
        test_needs::skip("go-modules", format!("the Go program cannot be built here: {errors}"));
        None
    });
    built.as_deref()
}

/// A server of the Go program, which ends with its stdin.
pub(crate) struct GoServer {
    _process: Process,
    ports: Vec<String>,
}

impl GoServer {
    pub(crate) fn start(program: &Path, command: &str) -> Self {
        let mut server = Command::new(program);
        server.arg(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut server);
        let ports = process.first_line().split_whitespace().map(str::to_owned).collect();
        Self { _process: process, ports }
    }

    pub(crate) fn authority(&self, at: usize) -> String {
        format!("127.0.0.1:{}", self.ports[at])
    }
}

pub(crate) fn run_go(program: &Path, arguments: &[&str]) -> String {
    run_successfully(program.to_str().unwrap(), arguments)
}

#[test]
fn go_clients_and_servers_understand_the_proxy() {
    let _shared = shared_machine();
    let Some(program) = go_program() else { return };
    for pool in POOLS {
        for (listener, scheme) in LISTENERS {
            let server = GoServer::start(program, "http-server");
            let address = server.authority(usize::from(pool.contains("tls")));
            let proxy = start_proxy(listener, &address, pool);
            let text = run_go(program, &["http-client", &format!("{scheme}://{}", proxy.authority())]);
            let version = if pool.is_empty() { "HTTP/1.1" } else { "HTTP/2.0" };
            let expected = format!("parallel {version}\ntrailers 2000000 7\nhints 204\ncancelled\n");
            assert_eq!(text, expected, "{scheme} {pool}");
            assert_idle(&proxy);
        }
    }
}

#[test]
fn grpc_calls_of_all_kinds_pass_the_proxy() {
    let _shared = shared_machine();
    let Some(program) = go_program() else { return };
    for (listener, security) in [("", "plain"), (TLS, "tls")] {
        let server = GoServer::start(program, "grpc-server");
        let proxy = start_proxy(listener, &server.authority(0), "http = \"2\"");
        let text = run_go(program, &["grpc-client", proxy.authority(), security]);
        assert_eq!(text, "unary\nstatus\ndownload 100\nupload 2000000\nchat\ncancelled\n", "{security}");
        assert_idle(&proxy);
    }
}

#[test]
fn clients_of_grpc_get_a_status_of_grpc() {
    let _shared = shared_machine();
    let Some(program) = go_program() else { return };
    let grpc_server = GoServer::start(program, "grpc-server");
    let server = grpc_server.authority(0);
    let closed = RefusingPort::new();
    let timeouts = "timeouts = { first-byte = \"200ms\" }";
    let limit = "rate-limit = { rate = 0.001, burst = 1 }";
    // A unary call without a response, and a stream whose first message is sent back.
    for (server, pool, route, expected) in [
        (&closed.authority, "", "", ["Unavailable the server could not be reached"; 2]),
        (&server, timeouts, "", ["DeadlineExceeded the server did not respond, or continue, in time", "OK "]),
        (
            &server,
            timeouts,
            limit,
            [
                "DeadlineExceeded the server did not respond, or continue, in time",
                "ResourceExhausted a route's rate limit was reached",
            ],
        ),
        (&server, "", "deny = 403", ["PermissionDenied a route denied the request"; 2]),
    ] {
        let pool = format!("http = \"2\"\n{pool}\n[[route]]\n{route}");
        let action = if route.starts_with("deny") { "" } else { "\npool = \"app\"" };
        let proxy = start_proxy("", server, &(pool + action));
        let text = run_go(program, &["grpc-failure", proxy.authority()]);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{route}");
        assert_idle(&proxy);
    }
}

#[test]
fn httpx_and_node_send_parallel_requests() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    for (listener, scheme) in LISTENERS {
        for pool in &POOLS[..2] {
            let proxy = start_proxy(listener, &origin.authority, pool);
            let base = format!("{scheme}://{}", proxy.authority());
            if let Some(python) = python_with_httpx() {
                let script = include_str!("http2_serve/client.py");
                assert_eq!(run_successfully(python, &["-c", script, &base]).trim(), "5 200 404 77");
            }
            if is_installed("node", &["--version"]) {
                let script = include_str!("http2_serve/client.js");
                assert_eq!(run_successfully("node", &["-e", script, "--", &base]).trim(), "5 8 503");
            }
            assert_idle(&proxy);
        }
    }
}

/// Number of scripts of the page.
const ASSETS: usize = 200;

/// Returns a page with scripts that count themselves, and the result.
fn page() -> String {
    let assets: String = (0..ASSETS).map(|n| format!("<script src=\"/asset/{n}\"></script>\n")).collect();
    format!(
        "<!doctype html><title>x</title><link rel=icon href=data:,><p id=result></p>\
         <script>let count = 0</script>\n{assets}<script>\n\
         const entries = performance.getEntriesByType('resource');\n\
         const h2 = entries.filter((entry) => entry.nextHopProtocol === 'h2').length;\n\
         document.getElementById('result').textContent = `${{count}} scripts, ${{h2}} over h2`;\n\
         </script>"
    )
}

#[test]
fn a_browser_loads_a_page_with_many_assets() {
    let _shared = shared_machine();
    let Some(browser) = browser() else {
        return test_needs::skip("chromium", "no browser here (apt-get install chromium)");
    };
    let server = ScriptedServer::start(|peer| {
        while let Some(head) = peer.request()? {
            let is_asset = head.starts_with("GET /asset/");
            let (kind, body) = match is_asset {
                // Comments of many lengths.
                true => ("javascript", format!("count += 1; //{}", "x".repeat(head.len() % 7 * 3_000))),
                false => ("html", page()),
            };
            let fields = format!("Content-Type: text/{kind}\r\nContent-Length: {}", body.len());
            peer.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}").as_bytes())?;
        }
        Ok(())
    });
    let proxy = start_proxy(TLS, &server.authority, "");
    let url = format!("https://{}/", proxy.authority());
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
    let more = ["--ignore-certificate-errors", "--virtual-time-budget=30000", "--dump-dom", &url];
    let output = start(browser, &[&flags[..], &more].concat()).finish();
    let expected = format!("{ASSETS} scripts, {ASSETS} over h2");
    assert!(output.code == 0 && output.stdout.contains(&expected), "{output:?}");
    let lines = proxy.wait_for_lines_with("access.json", "/asset/", ASSETS);
    let is_complete = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["version"] == "HTTP/2.0" && line["end"] == "done"
    };
    assert!(lines.len() == ASSETS && lines.iter().all(is_complete), "{lines:#?}");
    // It may have checked the certificate on a connection of its own.
    let connections = proxy.metrics().sum_known("weir_http2_connections_total", &[("listener", "web")]);
    assert!(connections <= 2.0, "{connections}");
}
