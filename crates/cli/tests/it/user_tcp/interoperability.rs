//! Other programs at the other end of TCP in user space, or between two ends: HAProxy and nginx as proxies and as servers, and
//! the HTTP of Go. Counts and bytes are those of both ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::{Pair, XDP_SERVER};
use crate::support::proxies::is_installed;
use crate::support::{EVENT_TIMEOUT, Process, RunOutput, command, temp_dir, within};
use tempfile::TempDir;

/// Requests of a load.
const REQUESTS: u64 = 2_000;

/// Returns the path of `peer.go`, which the first call builds; `None` without Go.
fn go_peer() -> Option<&'static str> {
    static PEER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = PEER.get_or_init(|| {
        if !is_installed("go", &["version"]) {
            return None;
        }
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let program = directory.join("weir-user-tcp-peer");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/user_tcp/peer.go");
        let mut build = Command::new("go");
        build.arg("build").arg("-o").arg(&program).arg(source).current_dir(&directory);
        // Only the standard library is used: nothing is downloaded.
        let output =
            build.env("GOFLAGS", "").env("GOPROXY", "off").env("GO111MODULE", "off").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    });
    built.as_ref().map(|path| path.to_str().unwrap())
}

/// A peer in a namespace, with its files.
struct Peer {
    _process: Process,
    directory: TempDir,
}

impl Peer {
    /// Starts a program, whose stdout goes to a file.
    fn start(pair: &Pair, end: usize, program: &str, arguments: &[&str], directory: TempDir) -> Self {
        let mut exec = command("ip", directory.path());
        exec.args(["netns", "exec", &pair.0[end], program]).args(arguments);
        let stdout = fs::File::create(directory.path().join("stdout")).unwrap();
        let process = Process::spawn(exec.stdout(stdout).stderr(Stdio::null()));
        Self { _process: process, directory }
    }

    fn haproxy(pair: &Pair, end: usize, frontend: &str) -> Option<Self> {
        if !is_installed("haproxy", &["-v"]) {
            return None;
        }
        let directory = temp_dir();
        let config = directory.path().join("haproxy.cfg");
        let text = format!(
            "global\n nbthread 1\n log stdout format raw local0\ndefaults\n mode http\n log global\n log-format \"%HU %B\"\n \
             timeout client 10s\n timeout server 10s\n timeout connect 5s\nfrontend web\n {frontend}\n"
        );
        fs::write(&config, text).unwrap();
        let arguments = ["-db", "-f", config.to_str().unwrap()];
        Some(Self::start(pair, end, "haproxy", &arguments, directory))
    }

    /// Starts nginx without a master, so that a kill leaves no worker behind.
    fn nginx(pair: &Pair, end: usize, http: &str) -> Option<Self> {
        if !is_installed("nginx", &["-v"]) {
            return None;
        }
        let directory = temp_dir();
        let config = directory.path().join("nginx.conf");
        let path = directory.path().display();
        let text = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log; worker_processes 1; events {{}}\n\
             http {{ log_format counts '$request_uri $bytes_sent'; access_log {path}/stdout counts;\n\
             client_body_temp_path {path}; proxy_temp_path {path}; fastcgi_temp_path {path}; uwsgi_temp_path {path};\n\
             scgi_temp_path {path}; keepalive_requests 1000000; {http} }}"
        );
        fs::write(&config, text).unwrap();
        let arguments = ["-c", config.to_str().unwrap()];
        Some(Self::start(pair, end, "nginx", &arguments, directory))
    }

    /// Returns the number of logged requests of the load, and their bytes.
    fn logged(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.directory.path().join("stdout")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix("/load"));
        let bytes = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
    }

    /// Checks that the log has the requests of a load, and its bytes if the program counts those on the wire.
    fn assert_logged(&self, run: &RunOutput, has_bytes: bool) {
        let expected = (run.count("totals.responses"), run.count("totals.bytes_in"));
        let is_expected = || {
            let logged = self.logged();
            logged.0 == expected.0 && (logged.1 == expected.1 || !has_bytes)
        };
        assert!(within(EVENT_TIMEOUT, is_expected), "{:?}, not {expected:?}", self.logged());
    }
}

/// Runs a load of [`REQUESTS`] and checks that all succeed.
fn load(pair: &Pair, flags: &[&str], url: &str) -> RunOutput {
    let requests = REQUESTS.to_string();
    let fixed = ["load", "--no-baseline", "--json", "RECORD", "-n", &requests, "-c", "20"];
    let run = pair.weir(1, &[&fixed[..], flags, &[url]].concat());
    run.assert_sums();
    let found = (run.count("totals.responses"), run.errors());
    assert_eq!(found, (REQUESTS, 0), "{flags:?} {url}: {} {}", run.stdout, run.stderr);
    run
}

const HAPROXY_PROXY: &str = "bind 10.79.0.2:8080\n default_backend origin\nbackend origin\n http-reuse always\n server s 10.79.0.1:80";
const NGINX_PROXY: &str = "upstream origin { server 10.79.0.1:80; keepalive 16; }\n\
     server { listen 10.79.0.2:8080; location / { proxy_pass http://origin; proxy_http_version 1.1;\n\
     proxy_set_header Connection ''; proxy_buffering off; } }";

#[test]
fn a_server_in_user_space_is_asked_by_haproxy_and_nginx_as_proxies() {
    let Some(pair) = Pair::create() else { return };
    for (start, text) in
        [(Peer::haproxy as fn(&Pair, usize, &str) -> _, HAPROXY_PROXY), (Peer::nginx, NGINX_PROXY)]
    {
        let server = pair.serve(&XDP_SERVER);
        let Some(proxy) = start(&pair, 1, text) else { return };
        let get = |target: &str| pair.curl(&[&format!("http://10.79.0.2:8080{target}")]).stdout;
        assert!(within(EVENT_TIMEOUT, || get("/ready?s=5").len() == 5), "{text}");
        assert_eq!(get("/?s=300000").len(), 300_000);
        let body = "x".repeat(100_000);
        let post = pair.curl(&["-d", &body, "-w", "%{http_code}", "http://10.79.0.2:8080/?s=0"]);
        assert_eq!(String::from_utf8_lossy(&post.stdout), "200", "{text}");
        let before = pair.stats()["requests"].as_u64().unwrap();
        for flags in [&[][..], &["-r", "1"]] {
            load(&pair, flags, "http://10.79.0.2:8080/load?s=1000");
        }
        // The counts are those of the proxy, too: it has asked for nothing else.
        assert!(within(EVENT_TIMEOUT, || proxy.logged().0 == 2 * REQUESTS), "{:?}", proxy.logged());
        let stats = pair.stats();
        assert_eq!(stats["requests"].as_u64(), Some(before + 2 * REQUESTS), "{stats:#}");
        assert_eq!(stats["in_flight"], 0);
        drop((proxy, server));
        assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
    }
}

#[test]
fn a_load_in_user_space_counts_what_haproxy_and_nginx_count() {
    let Some(pair) = Pair::create() else { return };
    let content = "x".repeat(1_000);
    let haproxy = format!(
        "bind 10.79.0.1:80\n http-request return status 200 content-type text/plain string {content}"
    );
    let nginx = format!("server {{ listen 10.79.0.1:80; location / {{ return 200 '{content}'; }} }}");
    for (start, text) in [(Peer::haproxy as fn(&Pair, usize, &str) -> _, &haproxy), (Peer::nginx, &nginx)] {
        for flags in [&["--xdp", "x1"][..], &["--xdp", "x1", "-r", "1"]] {
            let Some(server) = start(&pair, 0, text) else { return };
            let get = || pair.curl(&["http://10.79.0.1/ready"]).stdout;
            assert!(within(EVENT_TIMEOUT, || get().len() == content.len()), "{text}");
            let run = load(&pair, &[flags, &["--expect-body", &content]].concat(), "http://10.79.0.1/load");
            // HAProxy counts the bytes of its own form of a response.
            server.assert_logged(&run, text.starts_with("server"));
        }
    }
}

#[test]
fn go_asks_a_server_in_user_space() {
    let (Some(pair), Some(peer)) = (Pair::create(), go_peer()) else { return };
    for (flags, scheme) in [(&[][..], "http"), (&["--tls-self-signed"], "https")] {
        for (version, proto) in [("1", "HTTP/1.1"), ("2", "HTTP/2.0")] {
            let server = pair.serve(&[&XDP_SERVER, flags].concat());
            let output = pair.run(1, peer, &["client", &format!("{scheme}://10.79.0.1:80"), "200", version]);
            // 40 requests of each size.
            let expected = format!("200 {} {proto}\n", 40 * (1 + 100 + 1_460 + 20_000));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{scheme} {proto}: {output:?}");
            let stats = pair.curl(&["-k", &format!("{scheme}://10.79.0.1:80/stats")]).stdout;
            let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
            assert_eq!(stats["requests"], 200, "{stats:#}");
            assert_eq!(stats["user_tcp"]["segments_retransmitted"], 0, "{stats:#}");
            drop(server);
            assert!(within(EVENT_TIMEOUT, || !pair.has_program(0, "x0")));
        }
    }
}

#[test]
fn a_load_in_user_space_drives_a_server_of_go() {
    let (Some(pair), Some(peer)) = (Pair::create(), go_peer()) else { return };
    let server = Peer::start(&pair, 0, peer, &["server", "10.79.0.1:80"], temp_dir());
    let stats = || String::from_utf8(pair.curl(&["http://10.79.0.1/stats"]).stdout).unwrap();
    assert!(within(EVENT_TIMEOUT, || stats() == "0 0"));
    let body = "b".repeat(3_000);
    let variants = [&[][..], &["-r", "1"], &["--http", "2", "--streams", "4"], &["--body", &body]];
    for (flags, number) in variants.into_iter().zip(1..) {
        let run = load(&pair, &[&["--xdp", "x1"], flags].concat(), "http://10.79.0.1/?s=5000");
        assert!(run.count("totals.bytes_in") > REQUESTS * 5_000);
        let received = if flags.contains(&"--body") { REQUESTS * 3_000 } else { 0 };
        assert_eq!(stats(), format!("{} {received}", number * REQUESTS), "{flags:?}");
    }
    drop(server);
}
