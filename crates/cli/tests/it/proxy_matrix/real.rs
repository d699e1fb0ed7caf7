//! Foreign peers on both sides of a proxy: curl, Python, Go and nginx. The hash or the bytes of the
//! content verify each exchange. A missing program is skipped and named.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::proxy_matrix::{against_subject, content};
use crate::support::peers::Nginx;
use crate::support::proxies::{ComparedProxy, ProxyKind, ProxySetup, is_installed, kill_on_drop, succeeds};
use crate::support::strict_parser::digest;
use crate::support::{Process, temp_dir};

against_subject!(
    curl_sends_and_gets_every_byte,
    python_asks_python,
    python_and_go_ask_go,
    nginx_as_the_origin_answers_ranges_and_conditions,
    nginx_stands_before_and_behind,
);

const PYTHON_PEER: &str = include_str!("real/peer.py");
const GO_PEER: &str = include_str!("real/peer.go");

/// A test program in another language: `serve` and `ask HOST PORT`.
struct ForeignPeer {
    program: PathBuf,
    arguments: Vec<String>,
    _directory: tempfile::TempDir,
}

impl ForeignPeer {
    fn python() -> Option<Self> {
        if !is_installed("python3", &["-c", "pass"]) {
            return None;
        }
        let directory = temp_dir();
        let path = directory.path().join("peer.py");
        fs::write(&path, PYTHON_PEER).unwrap();
        let arguments = vec![path.to_str().unwrap().to_owned()];
        Some(Self { program: "python3".into(), arguments, _directory: directory })
    }

    /// Builds the Go program first, so that no timeout includes the compiler.
    fn go() -> Option<Self> {
        let known = ["go", "/usr/local/go/bin/go"];
        let Some(go) = known.into_iter().find(|go| succeeds(go, &["version"])) else {
            test_needs::skip("go", "no Go here");
            return None;
        };
        let directory = temp_dir();
        let (source, program) = (directory.path().join("peer.go"), directory.path().join("peer"));
        fs::write(&source, GO_PEER).unwrap();
        let mut command = Command::new(go);
        command.args(["build", "-o"]).arg(&program).arg(&source).current_dir(directory.path());
        command.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
        let built = command.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Self { program, arguments: Vec::new(), _directory: directory })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    /// Starts the server; returns its process and its authority. The server ends with the process.
    fn serve(&self) -> (Process, String) {
        let mut command = self.command();
        command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (kill_on_drop(child), format!("127.0.0.1:{}", line.trim()))
    }

    fn exchange(&self, proxy: &ComparedProxy) {
        let (host, port) = proxy.authority.split_once(':').unwrap();
        let output = self.command().args(["ask", host, port]).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stdout.starts_with("checked"), "{stdout} {complained}");
    }
}

/// Returns the standard output of curl.
fn run_curl(arguments: &[&str], input: Option<&Path>) -> Vec<u8> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--noproxy", "*"]).args(arguments);
    command.stdin(input.map_or_else(Stdio::null, |path| fs::File::open(path).unwrap().into()));
    let output = command.output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {complained}");
    output.stdout
}

fn curl_sends_and_gets_every_byte(subject: ProxyKind) {
    let (Some(python), true) = (ForeignPeer::python(), is_installed("curl", &["-V"])) else {
        return;
    };
    let (_server, authority) = python.serve();
    let proxy = subject.start(&authority, ProxySetup::default());
    let body = content(700_000);
    let directory = temp_dir();
    let file = directory.path().join("body");
    fs::write(&file, &body).unwrap();
    let path = file.to_str().unwrap();
    let (plain, chunks) = (proxy.url("/plain"), proxy.url("/chunked"));
    let data = format!("@{path}");
    let rows: &[&[&str]] = &[
        &["--data-binary", &data, &plain],
        &["--data-binary", &data, &chunks],
        &["-X", "PATCH", "--data-binary", &data, &chunks],
        &["-T", path, &plain],
        &["-T", "-", &plain],
        &["-T", "-", &chunks],
        &["-H", "Expect: 100-continue", "-T", path, &plain],
        &["-H", "Expect: 100-continue", "-T", "-", &chunks],
        &["-H", "Expect:", "-T", path, &plain],
        &["--http1.0", "--data-binary", &data, &plain],
        &["-H", "Connection: close", "-T", path, &chunks],
    ];
    for row in rows {
        let got = run_curl(row, row.contains(&"-").then_some(&file));
        assert!(got == body, "curl {row:?}: want {}, got {}", digest(&body), digest(&got));
    }
    assert_eq!(run_curl(&[&plain], None), b"");
    let head = run_curl(&["-I", &plain], None);
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    // Many at a time, each to its own file.
    let mut all = vec!["-Z", "--parallel-max", "10", "--data-binary", &data];
    let outputs: Vec<String> =
        (0..30).map(|number| format!("{}/{number}", directory.path().display())).collect();
    for output in &outputs {
        all.extend(["-o", output, &chunks]);
    }
    let _ = run_curl(&all, None);
    for output in &outputs {
        assert!(fs::read(output).unwrap() == body, "{output}");
    }
}

fn python_asks_python(subject: ProxyKind) {
    let Some(python) = ForeignPeer::python() else { return };
    let (_server, authority) = python.serve();
    python.exchange(&subject.start(&authority, ProxySetup::default()));
}

fn python_and_go_ask_go(subject: ProxyKind) {
    let (Some(python), Some(go)) = (ForeignPeer::python(), ForeignPeer::go()) else { return };
    let (_server, authority) = go.serve();
    let proxy = subject.start(&authority, ProxySetup::default());
    python.exchange(&proxy);
    // Go's client uses its own method, which Python's server would reject.
    go.exchange(&proxy);
}

fn nginx_as_the_origin_answers_ranges_and_conditions(subject: ProxyKind) {
    if !is_installed("nginx", &["-v"]) || !is_installed("curl", &["-V"]) {
        return;
    }
    let nginx = Nginx::start();
    let proxy = subject.start(&nginx.authority, ProxySetup::default());
    let url = proxy.url("/file");
    assert_eq!(run_curl(&[&url], None), [b'x'; 10_000]);
    assert_eq!(run_curl(&["-r", "100-199", &url], None).len(), 100);
    assert_eq!(run_curl(&["-r", "-5", &url], None).len(), 5);
    let head = String::from_utf8(run_curl(&["-I", &url], None)).unwrap();
    assert!(head.contains("Content-Length: 10000") || head.contains("content-length: 10000"));
    let etag = head.lines().find(|line| line.to_lowercase().starts_with("etag:")).unwrap();
    let condition = format!("If-None-Match: {}", etag[5..].trim());
    let status = ["-w", "%{http_code}", "-o", "/dev/null"];
    let curl_arguments = [&status[..], &["-H", &condition, &url]].concat();
    assert_eq!(run_curl(&curl_arguments, None), b"304");
    assert_eq!(run_curl(&[&status[..], &["-r", "20000-", &url]].concat(), None), b"416");
    assert_eq!(run_curl(&[&status[..], &[&proxy.url("/missing")]].concat(), None), b"404");
    let several = run_curl(&["-r", "0-1,5-9", &url], None);
    let part = b"bytes 5-9/10000";
    assert!(several.windows(part.len()).any(|window| window == part), "{several:?}");
}

fn nginx_stands_before_and_behind(subject: ProxyKind) {
    let (Some(python), true) = (ForeignPeer::python(), is_installed("nginx", &["-v"])) else {
        return;
    };
    let (_server, authority) = python.serve();
    let behind = ProxyKind::Nginx.start(&authority, ProxySetup::default());
    let middle = subject.start(&behind.authority, ProxySetup::default());
    let before = ProxyKind::Nginx.start(&middle.authority, ProxySetup::default());
    python.exchange(&before);
}
