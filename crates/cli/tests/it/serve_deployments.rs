//! Tests of `weir serve DIR` with trees that change: roots that are replaced, files that are cut while they are
//! sent, replicas, and many clients that do not read.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::hostile_client::{connect, exchange_raw};
use crate::support::tls_peers::curl;
use crate::support::{EVENT_TIMEOUT, OriginProcess, Process, command, shared_machine, temp_dir, within};

fn get(origin: &OriginProcess, target: &str) -> (Option<u16>, String) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let response = exchange_raw(&origin.authority, request.as_bytes());
    (response.status, response.text())
}

fn make(path: &Path, version: &str) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("version.txt"), version).unwrap();
}

/// Waits until a target has this status and text.
fn wait_for(origin: &OriginProcess, target: &str, status: u16, text: &str) {
    let mut last = (None, String::new());
    let reached = within(EVENT_TIMEOUT, || {
        last = get(origin, target);
        last.0 == Some(status) && last.1.contains(text)
    });
    assert!(reached, "{target}: {last:?} and not {status} {text}");
}

#[test]
fn a_root_is_followed_by_its_path() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name);
    make(&path("r1"), "one");
    make(&path("r2"), "two");
    symlink("r1", path("current")).unwrap();
    let flags: [&[&str]; 2] = [&[], &["--file-cache", "0"]];
    for flags in flags {
        let current = path("current");
        let file = path("current/version.txt");
        let origin = OriginProcess::start(&[&[current.to_str().unwrap(), "-t", "2"], flags].concat());
        let single = OriginProcess::start(&[&[file.to_str().unwrap(), "-t", "1"], flags].concat());
        for (target, text) in [("r2", "two"), ("r1", "one")] {
            symlink(target, path("next")).unwrap();
            fs::rename(path("next"), path("current")).unwrap();
            wait_for(&origin, "/version.txt", 200, text);
            wait_for(&single, "/", 200, text);
            wait_for(&single, "/version.txt", 200, text);
        }
        fs::remove_dir_all(path("r1")).unwrap();
        wait_for(&origin, "/version.txt", 404, "");
        make(&path("r1"), "again");
        wait_for(&origin, "/version.txt", 200, "again");
        wait_for(&single, "/", 200, "again");
        make(&path("r1"), "one");
    }
}

/// Makes a file so large that a socket never takes all of it.
fn large_file(path: &Path) {
    let file = fs::File::create(path).unwrap();
    file.set_len(300 << 20).unwrap();
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_ends_its_response() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let (root, log) = (directory.path().join("root"), directory.path().join("log"));
    fs::create_dir(&root).unwrap();
    let file = root.join("large.bin");
    let flags = [
        "-t",
        "1",
        "--write-timeout",
        "1000s",
        "--stats-listen",
        "127.0.0.1:0",
        "--access-log-format",
        "json",
    ];
    let files = [root.to_str().unwrap(), "--access-log", log.to_str().unwrap()];
    for (tls, curl_flags) in [
        (&[][..], &["--http1.1"][..]),
        (&[], &["--http2-prior-knowledge"]),
        (&["--tls-self-signed"], &["--http1.1", "-k"]),
        (&["--tls-self-signed"], &["--http2", "-k"]),
    ] {
        large_file(&file);
        let _ = fs::remove_file(&log);
        let origin = OriginProcess::start(&[&files[..], &flags, tls].concat());
        let url = if tls.is_empty() { origin.url("/large.bin") } else { origin.https_url("/large.bin") };
        let mut client = command("curl", directory.path());
        client.args(curl_flags).args(["-sN", &url]).stdin(Stdio::null()).stdout(Stdio::piped());
        client.stderr(Stdio::null());
        let mut client = client.spawn().unwrap();
        let mut output = client.stdout.take().unwrap();
        let mut part = vec![0; 1 << 20];
        output.read_exact(&mut part).unwrap();
        // Cut behind what was sent, so that the kernel reaches the end of the file in the middle of a call.
        fs::File::options().write(true).open(&file).unwrap().set_len((20 << 20) + 5).unwrap();
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).unwrap();
        let code = client.wait().unwrap().code();
        assert!(
            matches!(code, Some(18 | 56 | 92)),
            "{curl_flags:?}: a response that is cut, and not {code:?}"
        );
        let stats = stats_of(&origin);
        assert_eq!(stats["files_failed"], 1, "{curl_flags:?}");
        let lines = || fs::read_to_string(&log).unwrap_or_default();
        assert!(within(EVENT_TIMEOUT, || lines().lines().count() == 1), "{}", lines());
        let line: Value = serde_json::from_str(lines().lines().next().unwrap()).unwrap();
        assert_eq!(line["status"], 500, "{line}");
        assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{line}");
        origin.process.signal(Signal::TERM);
        let ends = within(EVENT_TIMEOUT, || origin.stderr().contains("1 response cut off because its file"));
        assert!(ends, "{}", origin.stderr());
    }
}

/// Reads the counters at their own address.
fn stats_of(origin: &OriginProcess) -> Value {
    let find = || {
        let text = origin.stderr();
        let start = text.find("http://")? + "http://".len();
        Some(text[start..].split('/').next()?.to_owned())
    };
    assert!(within(EVENT_TIMEOUT, || find().is_some()), "{}", origin.stderr());
    let response = exchange_raw(&find().unwrap(), b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
    serde_json::from_slice(&response.body).unwrap_or_else(|_| panic!("{}", response.head))
}

#[test]
fn counters_have_an_address_that_no_file_collides_with() {
    let _shared = shared_machine();
    let directory = temp_dir();
    fs::write(directory.path().join("stats"), "a file").unwrap();
    let root = directory.path().to_str().unwrap();
    let origin = OriginProcess::start(&[root, "-t", "2", "--stats-listen", "127.0.0.1:0"]);
    assert_eq!(get(&origin, "/stats"), (Some(200), "a file".to_owned()));
    let stats = stats_of(&origin);
    assert_eq!((&stats["requests"], &stats["schema"]), (&1.into(), &"weir.stats/1".into()));
    assert_eq!(stats["cores"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_rejected_request_gets_a_reason() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let files = OriginProcess::start(&[directory.path().to_str().unwrap(), "-t", "1"]);
    let generated = OriginProcess::start(&["-t", "1"]);
    for origin in [&files, &generated] {
        for (request, status, part) in [
            ("GET /é HTTP/1.1\r\nHost: h\r\n\r\n", 400, "the request target "),
            ("GET / HTTP/1.1\r\n\r\n", 400, "Host"),
            ("GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400, "400 Bad Request: "),
            ("GET / HTTP/9.9\r\nHost: h\r\n\r\n", 505, "505 "),
        ] {
            let response = exchange_raw(&origin.authority, request.as_bytes());
            assert_eq!(response.status, Some(status), "{request}");
            assert!(response.text().contains(part) && response.is_complete, "{request}: {}", response.text());
            assert_eq!(response.field("content-type").as_deref(), Some("text/plain; charset=utf-8"));
        }
    }
}

/// Clients that ask for a file and read nothing hold no encoder each: beyond the budget they get the file as it
/// is, and what they held is given back when they leave.
#[test]
fn clients_that_do_not_read_hold_a_bounded_number_of_encoders() {
    const CLIENTS: usize = 120;
    let _shared = shared_machine();
    let directory = temp_dir();
    let line = b"a line of text that compresses, with a number of words in it\n";
    fs::write(directory.path().join("large.txt"), line.repeat(500_000)).unwrap();
    let origin = OriginProcess::start(&[
        directory.path().to_str().unwrap(),
        "-t",
        "1",
        "--compress",
        "br:0",
        "--compress-memory",
        "3m",
        "--stats-listen",
        "127.0.0.1:0",
        "--write-timeout",
        "1000s",
    ]);
    let clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(&origin.authority);
            rustix::net::sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
            client.write_all(b"GET /large.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n").unwrap();
            client
        })
        .collect();
    let count = |name: &str| stats_of(&origin)[name].as_u64().unwrap();
    assert!(within(EVENT_TIMEOUT, || count("requests") == CLIENTS as u64));
    let encoders = count("files_compressing");
    assert!((1..=9).contains(&encoders), "{encoders}");
    assert!(count("files_uncompressed") >= CLIENTS as u64 - 9 - encoders);
    drop(clients);
    assert!(within(EVENT_TIMEOUT, || count("files_compressing") == 0), "encoders of clients that left");
    let (code, content) = curl(&["-s", "--compressed", &origin.url("/large.txt")]);
    assert!(code == 0 && content.len() == 500_000 * line.len());
}

/// A certificate of version 1, by the usual recipe, and an RSA key that is too short for others.
#[test]
fn certificates_of_any_kind_serve_clients_that_verify_nothing() {
    let _shared = shared_machine();
    if !crate::support::proxies::is_installed("openssl", &["version"]) {
        return;
    }
    let directory = temp_dir();
    let openssl = |arguments: &[&str]| {
        let mut openssl = command("openssl", directory.path());
        openssl.args(arguments).current_dir(directory.path());
        openssl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert_eq!(Process::spawn(&mut openssl).wait(EVENT_TIMEOUT), 0, "{arguments:?}");
    };
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for bits in ["2048", "1024"] {
        let request = ["req", "-nodes", "-newkey", &format!("rsa:{bits}"), "-keyout", &format!("{bits}.key")];
        openssl(&[&request[..], &["-out", "csr", "-subj", "/CN=localhost"]].concat());
        let sign = ["x509", "-req", "-in", "csr", "-days", "30", "-signkey", &format!("{bits}.key")];
        openssl(&[&sign[..], &["-out", &format!("{bits}.pem")]].concat());
    }
    let own =
        OriginProcess::start(&["-t", "1", "--tls-cert", &path("2048.pem"), "--tls-key", &path("2048.key")]);
    let load = |url: &str, flags: &[&str]| {
        crate::support::run_load(&[&["-n", "2", "-c", "1", url][..], flags].concat())
    };
    let url = own.https_url("/").replace("127.0.0.1", "localhost");
    for flags in [&["--insecure"][..], &["--cacert", &path("2048.pem")]] {
        let output = load(&url, flags);
        assert_eq!((output.total("good"), output.errors()), (2, 0), "{flags:?}: {output:?}");
    }
    assert_eq!(curl(&["-s", "-o", "/dev/null", "--cacert", &path("2048.pem"), &url]).0, 0);
    let refused =
        crate::support::run_weir(&["load", "-n", "1", "-c", "1", "--cacert", &path("1024.pem"), &url]);
    assert!(refused.code != 0 && refused.stderr.contains("X.509 version 1"), "{refused:?}");
    assert!(!refused.stderr.contains("Other("), "{refused:?}");
    let weak =
        crate::support::run_weir(&["serve", "--tls-cert", &path("1024.pem"), "--tls-key", &path("1024.key")]);
    assert!(weak.code == 2 && weak.stderr.contains("RSA of 2,048"), "{weak:?}");
}
