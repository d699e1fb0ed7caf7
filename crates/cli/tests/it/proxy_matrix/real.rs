//! Peers that others wrote, on both sides of a proxy: curl, Python, Go and nginx. Each exchange is
//! checked by the content's hash or its bytes. A program that is not here is skipped, and named.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::proxy_matrix::{against_both, content};
use crate::support::peers::Nginx;
use crate::support::proxies::{Proxy, Setup, Subject, is_here, of_child, runs};
use crate::support::strict::digest;
use crate::support::{Process, folder};

against_both!(
    curl_sends_and_gets_every_byte,
    python_asks_python,
    python_and_go_ask_go,
    nginx_as_the_origin_answers_ranges_and_conditions,
    nginx_stands_before_and_behind,
);

const PYTHON: &str = include_str!("real/peer.py");
const GO: &str = include_str!("real/peer.go");

/// A program of ours in another language: `serve` and `ask HOST PORT`.
struct Echo {
    program: PathBuf,
    arguments: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Echo {
    fn python() -> Option<Self> {
        if !is_here("python3", &["-c", "pass"]) {
            return None;
        }
        let folder = folder();
        let path = folder.path().join("peer.py");
        fs::write(&path, PYTHON).unwrap();
        let arguments = vec![path.to_str().unwrap().to_owned()];
        Some(Self { program: "python3".into(), arguments, _folder: folder })
    }

    /// Built first, so that no time-out has to wait for a compiler.
    fn go() -> Option<Self> {
        let known = ["go", "/usr/local/go/bin/go"];
        let Some(go) = known.into_iter().find(|go| runs(go, &["version"])) else {
            eprintln!("skipped: no Go here");
            return None;
        };
        let folder = folder();
        let (source, program) = (folder.path().join("peer.go"), folder.path().join("peer"));
        fs::write(&source, GO).unwrap();
        let mut command = Command::new(go);
        command.args(["build", "-o"]).arg(&program).arg(&source).current_dir(folder.path());
        command.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
        let built = command.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Self { program, arguments: Vec::new(), _folder: folder })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    /// Its authority; it ends with the process.
    fn serve(&self) -> (Process, String) {
        let mut command = self.command();
        command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (of_child(child), format!("127.0.0.1:{}", line.trim()))
    }

    fn ask(&self, proxy: &Proxy) {
        let (host, port) = proxy.authority.split_once(':').unwrap();
        let output = self.command().args(["ask", host, port]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.starts_with("checked"), "{said} {complained}");
    }
}

/// What curl writes to its standard output.
fn curl(arguments: &[&str], input: Option<&Path>) -> Vec<u8> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60", "--noproxy", "*"]).args(arguments);
    command.stdin(input.map_or_else(Stdio::null, |path| fs::File::open(path).unwrap().into()));
    let output = command.output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {complained}");
    output.stdout
}

fn curl_sends_and_gets_every_byte(subject: Subject) {
    let (Some(python), true) = (Echo::python(), is_here("curl", &["-V"])) else { return };
    let (_server, authority) = python.serve();
    let proxy = subject.start(&authority, Setup::default());
    let body = content(700_000);
    let folder = folder();
    let file = folder.path().join("body");
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
        let got = curl(row, row.contains(&"-").then_some(&file));
        assert!(got == body, "curl {row:?}: want {}, got {}", digest(&body), digest(&got));
    }
    assert_eq!(curl(&[&plain], None), b"");
    let head = curl(&["-I", &plain], None);
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    // Many at a time, each to a file of its own.
    let mut all = vec!["-Z", "--parallel-max", "10", "--data-binary", &data];
    let outputs: Vec<String> =
        (0..30).map(|number| format!("{}/{number}", folder.path().display())).collect();
    for output in &outputs {
        all.extend(["-o", output, &chunks]);
    }
    let _ = curl(&all, None);
    for output in &outputs {
        assert!(fs::read(output).unwrap() == body, "{output}");
    }
}

fn python_asks_python(subject: Subject) {
    let Some(python) = Echo::python() else { return };
    let (_server, authority) = python.serve();
    python.ask(&subject.start(&authority, Setup::default()));
}

fn python_and_go_ask_go(subject: Subject) {
    let (Some(python), Some(go)) = (Echo::python(), Echo::go()) else { return };
    let (_server, authority) = go.serve();
    let proxy = subject.start(&authority, Setup::default());
    python.ask(&proxy);
    // Go's client has a method of its own, which Python's server would refuse.
    go.ask(&proxy);
}

fn nginx_as_the_origin_answers_ranges_and_conditions(subject: Subject) {
    if !is_here("nginx", &["-v"]) || !is_here("curl", &["-V"]) {
        return;
    }
    let nginx = Nginx::start();
    let proxy = subject.start(&nginx.authority, Setup::default());
    let url = proxy.url("/file");
    assert_eq!(curl(&[&url], None), [b'x'; 10_000]);
    assert_eq!(curl(&["-r", "100-199", &url], None).len(), 100);
    assert_eq!(curl(&["-r", "-5", &url], None).len(), 5);
    let head = String::from_utf8(curl(&["-I", &url], None)).unwrap();
    assert!(head.contains("Content-Length: 10000") || head.contains("content-length: 10000"));
    let etag = head.lines().find(|line| line.to_lowercase().starts_with("etag:")).unwrap();
    let condition = format!("If-None-Match: {}", etag[5..].trim());
    let status = ["-w", "%{http_code}", "-o", "/dev/null"];
    let asked = [&status[..], &["-H", &condition, &url]].concat();
    assert_eq!(curl(&asked, None), b"304");
    assert_eq!(curl(&[&status[..], &["-r", "20000-", &url]].concat(), None), b"416");
    assert_eq!(curl(&[&status[..], &[&proxy.url("/missing")]].concat(), None), b"404");
    let several = curl(&["-r", "0-1,5-9", &url], None);
    let part = b"bytes 5-9/10000";
    assert!(several.windows(part.len()).any(|some| some == part), "{several:?}");
}

fn nginx_stands_before_and_behind(subject: Subject) {
    let (Some(python), true) = (Echo::python(), is_here("nginx", &["-v"])) else { return };
    let (_server, authority) = python.serve();
    let behind = Subject::Nginx.start(&authority, Setup::default());
    let middle = subject.start(&behind.authority, Setup::default());
    let before = Subject::Nginx.start(&middle.authority, Setup::default());
    python.ask(&before);
}
