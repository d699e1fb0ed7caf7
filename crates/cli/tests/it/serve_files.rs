//! Tests of `weir serve DIR` with clients that are not weir, and against nginx with the same files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rt::clock::now_ns;
use rustix::process::Signal;

use crate::support::hostile_client::{ReceivedResponse, exchange_raw};
use crate::support::peers::Nginx;
use crate::support::proxies::is_installed;
use crate::support::timing::assert_timing;
use crate::support::{EVENT_TIMEOUT, OriginProcess, Process, command, shared_machine, temp_dir, within};

/// Sizes around those at which the way of the content changes: memory, slices, the kernel.
const SIZES: [usize; 8] = [0, 1, 10_000, 32_768, 32_769, 65_537, 600_000, 1_500_000];

/// Makes `root/t` with files of all sizes, and a secret beside the root.
fn make_tree(directory: &Path) -> PathBuf {
    let root = directory.join("root");
    fs::create_dir_all(root.join("t/sub dir")).unwrap();
    fs::write(directory.join("secret"), "the secret").unwrap();
    for size in SIZES {
        let content: Vec<u8> = (0..size).map(|index| (index * 31 / 7) as u8).collect();
        fs::write(root.join(format!("t/{size}.txt")), &content).unwrap();
        fs::write(root.join(format!("t/sub dir/{size}.html")), content).unwrap();
    }
    root
}

/// Returns the files below a directory with their content, by their paths.
fn files_below(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let content = fs::read(&path).unwrap();
                files.push((path.strip_prefix(directory).unwrap().to_owned(), content));
            }
        }
    }
    files.sort();
    files
}

fn run_quietly(program: &str, directory: &Path, arguments: &[&str]) {
    let mut command = command(program, directory);
    command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    assert_eq!(Process::spawn(&mut command).wait(EVENT_TIMEOUT), 0, "{program} {arguments:?}");
}

#[test]
fn mirrors_of_a_tree_are_the_tree() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let files = files_below(&root);
    let root_text = root.to_str().unwrap();
    let clear = OriginProcess::start(&[root_text, "-t", "1", "--list", "--file-cache-valid", "150ms"]);
    let tls = OriginProcess::start(&[root_text, "-t", "1", "--tls-self-signed"]);
    for (url, version) in [
        (clear.url("/"), "--http1.1"),
        (clear.url("/"), "--http2-prior-knowledge"),
        (tls.https_url("/"), "--http1.1"),
        (tls.https_url("/"), "--http2"),
    ] {
        let copy = temp_dir();
        // With prior knowledge, curl 7.88 cannot use a connection twice.
        let files_of_a_run = if version == "--http2-prior-knowledge" { 1 } else { files.len() };
        for files in files.chunks(files_of_a_run) {
            let mut arguments: Vec<String> = vec!["-skf".into(), version.into()];
            for (path, _) in files {
                let path = path.to_str().unwrap();
                fs::create_dir_all(copy.path().join(path).parent().unwrap()).unwrap();
                arguments.push(format!("{url}{}", path.replace(' ', "%20")));
                arguments.extend(["-o".into(), path.into()]);
            }
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            run_quietly("curl", copy.path(), &arguments);
        }
        assert!(files_below(copy.path()) == files, "{url} {version}");
    }
    if is_installed("wget", &["--version"]) {
        let copy = temp_dir();
        // The lists of the directories are not part of the tree.
        let url = clear.url("/");
        run_quietly(
            "wget",
            copy.path(),
            &["-q", "-r", "-np", "-nH", "-R", "index.html*", "-e", "robots=off", &url],
        );
        assert!(files_below(copy.path()) == files, "wget");
    }
    assert_changes_are_seen(&root, &clear);
}

/// A changed file is served no longer than a second beyond the time for which a path is valid.
fn assert_changes_are_seen(root: &Path, origin: &OriginProcess) {
    let read = || {
        let output = command("curl", root).args(["-s", &origin.url("/changing.txt")]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let replace = |text: &str| {
        let new = root.join("new.tmp");
        fs::write(&new, text).unwrap();
        fs::rename(new, root.join("changing.txt")).unwrap();
    };
    replace("old");
    assert!(within(EVENT_TIMEOUT, || read() == "old"));
    replace("new");
    let replaced_ns = now_ns();
    assert!(within(EVENT_TIMEOUT, || read() == "new"));
    let stale_ms = (now_ns() - replaced_ns) / 1_000_000;
    assert_timing(stale_ms < 1400, "a changed file is served for at most 1150 ms, in ms", stale_ms);
}

/// Requests whose responses are those of nginx: targets below `/t/`, and fields.
const COMPARED: &[(&str, &str)] = &[
    ("10000.txt", ""),
    ("0.txt", ""),
    ("missing", ""),
    ("sub%20dir", ""),
    ("10000.txt", "Range: bytes=0-0"),
    ("10000.txt", "Range: bytes=9990-20000"),
    ("10000.txt", "Range: bytes=-7"),
    ("600000.txt", "Range: bytes=599000-"),
    ("600000.txt", "Range: bytes=100-400000"),
    ("10000.txt", "Range: bytes=10000-"),
    ("10000.txt", "Range: bytes=0-1,5-6,-3"),
    ("600000.txt", "Range: bytes=0-100,300000-500000"),
    ("10000.txt", "Range: items=0-1"),
    ("10000.txt", "Range: bytes=0-,0-"),
    ("10000.txt", "If-None-Match: *"),
    ("10000.txt", "If-None-Match: \"other\""),
    ("10000.txt", "If-Match: \"other\""),
    ("10000.txt", "If-Match: *"),
    ("10000.txt", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"),
    ("10000.txt", "If-Modified-Since: Sat, 06 Nov 2094 08:49:37 GMT"),
    ("10000.txt", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"),
    ("10000.txt", "If-Unmodified-Since: Sat, 06 Nov 2094 08:49:37 GMT"),
    ("10000.txt", "If-Range: \"other\"\r\nRange: bytes=0-0"),
    ("10000.txt", "If-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\nRange: bytes=0-0"),
];

/// Returns the body with the boundary of its parts replaced.
fn without_boundary(response: &ReceivedResponse) -> String {
    let text = response.body.escape_ascii().to_string();
    let content_type = response.field("content-type").unwrap_or_default();
    match content_type.split_once("boundary=") {
        Some((_, boundary)) => text.replace(boundary, "BOUNDARY").replace("; charset=utf-8", ""),
        None => text,
    }
}

#[test]
fn ranges_and_preconditions_are_those_of_nginx() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    let root_text = root.to_str().unwrap();
    let location =
        format!("location /t/ {{ root {root_text}; if_modified_since before; types {{ text/plain txt; }} }}");
    let nginx = Nginx::start_with("", &location);
    let weir = OriginProcess::start(&[root_text, "-t", "1"]);
    for method in ["GET", "HEAD"] {
        for (target, fields) in COMPARED {
            let line_end = if fields.is_empty() { "" } else { "\r\n" };
            let request = format!(
                "{method} /t/{target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}{line_end}\r\n"
            );
            let [ours, theirs] = [&weir.authority, &nginx.authority]
                .map(|authority| exchange_raw(authority, request.as_bytes()));
            // nginx gives ranges of HEAD, for which RFC 9110 §14.2 defines none.
            if method == "HEAD" && fields.contains("Range: bytes") {
                assert!(ours.status == Some(200) && ours.body.is_empty(), "{request}");
                continue;
            }
            assert_eq!(ours.status, theirs.status, "{request}");
            assert_eq!(ours.field("content-range"), theirs.field("content-range"), "{request}");
            if matches!(ours.status, Some(200 | 206)) {
                let (ours, theirs) = (without_boundary(&ours), without_boundary(&theirs));
                assert!(ours == theirs, "{request}: {} and {} bytes", ours.len(), theirs.len());
            }
        }
    }
}

#[test]
fn no_path_leaves_the_root_and_the_log_has_the_client_of_the_proxy() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = make_tree(directory.path());
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join("absolute")).unwrap();
    let log = directory.path().join("log");
    let weir = OriginProcess::start(&[
        root.to_str().unwrap(),
        "--proxy-protocol",
        "--access-log",
        log.to_str().unwrap(),
        "--access-log-format",
        "json",
    ]);
    let targets = [
        "/../secret",
        "/t/../../secret",
        "/%2e%2e/secret",
        "/t/%2e%2e/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/%252e%252e/secret",
        "/%c0%ae%c0%ae/secret",
        "/..%c0%afsecret",
        "/..\\secret",
        "/..%5csecret",
        "/%00/../secret",
        "//secret",
        "/link",
        "/absolute/passwd",
        "http://h/../secret",
        "http://h//../secret",
        "/./../secret",
    ];
    for target in targets {
        let header = "PROXY TCP4 192.0.2.7 198.51.100.2 4660 443\r\n";
        let request = format!("{header}GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let response = exchange_raw(&weir.authority, request.as_bytes());
        assert!(matches!(response.status, Some(400 | 404)), "{target}: {}", response.head);
        assert!(!response.text().contains("the secret"), "{target}");
    }
    let response = exchange_raw(&weir.authority, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(response.status, None, "a connection without a header ends: {}", response.head);
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    let expected = targets.len();
    assert!(within(EVENT_TIMEOUT, || lines().lines().count() == expected), "{}", lines());
    for line in lines().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["client"], "192.0.2.7", "{line}");
    }
}

#[test]
fn a_log_that_is_moved_away_is_opened_again() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let log = directory.path().join("log");
    let weir = OriginProcess::start(&["-t", "1", "--access-log", log.to_str().unwrap()]);
    let lines =
        |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default().lines().count();
    let request = || exchange_raw(&weir.authority, b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(request().status, Some(200));
    assert!(within(EVENT_TIMEOUT, || lines("log") == 1));
    fs::rename(&log, directory.path().join("old")).unwrap();
    weir.process.signal(Signal::USR1);
    assert!(within(EVENT_TIMEOUT, || log.exists()), "SIGUSR1 did not have the log opened again");
    assert_eq!(request().status, Some(200));
    assert!(within(EVENT_TIMEOUT, || lines("log") == 1));
    assert_eq!(lines("old"), 1);
}
