//! Tests of TLS between `weir load`, `weir serve` and foreign peers: curl, Python, nginx.

use std::io::Write;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxies::is_installed;
use crate::support::tls_peers::{Certificates, PythonTlsServer, curl, python, tls_stats_of};
use crate::support::{
    EVENT_TIMEOUT, OriginProcess, RunOutput, run_load, run_weir, shared_machine, temp_dir, within,
};

fn self_signed_origin() -> OriginProcess {
    OriginProcess::start(&["-t", "2", "--tls-self-signed"])
}

/// Returns a count of an origin with TLS.
fn stat(stats: &Value, path: &str) -> u64 {
    stats.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path}: {stats:#}"))
}

/// Waits for a count of an origin with TLS, which a client may expect before the origin has it.
fn wait_for_stat(origin: &OriginProcess, path: &str, expected: u64) {
    let mut last = 0;
    let reached = within(EVENT_TIMEOUT, || {
        last = stat(&tls_stats_of(&origin.authority), path);
        last == expected
    });
    assert!(reached, "{path} is {last} and not {expected}");
}

/// Asserts that a load had no error and that its sessions are those of its connections.
fn assert_all_good(output: &RunOutput) {
    assert!(!output.record.is_null(), "{output:?}");
    assert_eq!(output.errors(), 0, "{output:?}");
    assert_eq!(output.total("good"), output.total("requests"), "{output:?}");
    let sessions = output.count("tls.full") + output.count("tls.resumed");
    assert_eq!(sessions, output.total("connections.opened"), "{output:?}");
    assert_eq!(output.count("tls.failed"), 0);
}

/// Returns a URL of a server that speaks TLS, although its own URL is plain.
fn https(url: &str) -> String {
    url.replacen("http://", "https://", 1)
}

#[test]
fn curl_reads_any_body_of_an_origin_with_tls() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    for flags in [&[][..], &["--tls-max", "1.2"]] {
        for target in ["/?s=0", "/?s=100", "/?s=5m", "/?s=100k&t=5", "/?s=100k&k=1", "/?s=1m&R=1"] {
            let url = origin.https_url(target);
            let format = ["-w", "%{http_version} %{http_code} %{size_download}", "-o", "/dev/null", "-k"];
            let (code, stdout) = curl(&[&format[..], flags, &[&url]].concat());
            let plain = String::from_utf8(stdout).unwrap();
            let size = match target {
                "/?s=0" => 0,
                "/?s=100" => 100,
                "/?s=5m" => 5 << 20,
                "/?s=1m&R=1" => 1 << 20,
                _ => 100 << 10,
            };
            assert_eq!((code, plain.as_str()), (0, format!("2 200 {size}").as_str()), "{target} {flags:?}");
        }
    }
    // 60: the certificate is not trusted.
    assert_eq!(curl(&[&origin.https_url("/")]).0, 60);
}

const PYTHON_CLIENT: &str = r#"
import socket, ssl, sys
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    context.minimum_version = context.maximum_version = version
    session = None
    for attempt in range(2):
        raw = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        tls = context.wrap_socket(raw, server_hostname="localhost", session=session, suppress_ragged_eofs=False)
        tls.sendall(b"GET /?s=100000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        data = b""
        while chunk := tls.recv(65536):
            data += chunk
        session = tls.session
        body = data.split(b"\r\n\r\n", 1)[1]
        print(tls.version(), tls.selected_alpn_protocol(), tls.session_reused, len(body))
        tls.close()
"#;

#[test]
fn a_python_client_resumes_its_sessions_and_gets_close_notify() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    let port = origin.authority.rsplit(':').next().unwrap();
    let lines = python(PYTHON_CLIENT, &[port]);
    let expected = ["TLSv1.2", "TLSv1.3"].map(|version| {
        ["False", "True"].map(|resumed| format!("{version} http/1.1 {resumed} 100000\n")).concat()
    });
    assert_eq!(lines, expected.concat());
    let stats = tls_stats_of(&origin.authority);
    // The last handshake is that of the request for the counters.
    assert_eq!((stat(&stats, "/tls_handshakes"), stat(&stats, "/tls_resumed")), (5, 2), "{stats:#}");
    assert_eq!(stat(&stats, "/tls_failed"), 0);
}

#[test]
fn clients_without_a_complete_handshake_are_closed_and_counted() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1", "--tls-self-signed", "--idle-timeout", "500ms"]);
    let silent = || Client::connect(&origin.authority);
    assert!(silent().read_to_end().is_empty());
    let mut half_hello = silent();
    half_hello.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert!(half_hello.read_to_end().is_empty());
    wait_for_stat(&origin, "/closed_by_reason/idle_timeout", 2);
    for _ in 0..2 {
        let mut garbage = silent();
        garbage.send(&(0..4000).map(|number| (number * 7 % 251) as u8).collect::<Vec<_>>());
        // A fatal alert (RFC 8446 §6): content type 21, level 2.
        let alert = garbage.read_to_end();
        assert_eq!((alert.first(), alert.get(5)), (Some(&21), Some(&2)), "{alert:?}");
    }
    wait_for_stat(&origin, "/closed_by_reason/tls_error", 2);
    drop(silent());
    wait_for_stat(&origin, "/tls_failed", 5);
    wait_for_stat(&origin, "/connections_open", 1);
    wait_for_stat(&origin, "/buffers_in_use", 0);
}

#[test]
fn plain_http_on_a_port_for_tls_gets_the_address_to_use() {
    let _shared = shared_machine();
    let flags = ["-t", "1", "--tls-self-signed", "--head-timeout", "500ms"];
    let origin = OriginProcess::start(&flags);
    let behind_header = OriginProcess::start(&[&flags[..], &["--proxy-protocol"]].concat());
    let exchange = |origin: &OriginProcess, pieces: &[&[u8]]| {
        let mut client = Client::connect(&origin.authority);
        for piece in pieces {
            client.send(piece);
            crate::support::pause_ms(20);
        }
        String::from_utf8_lossy(&client.read_to_end()).into_owned()
    };
    let head = b"GET /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\n\r\n";
    let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n";
    let post = b"POST /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nContent-Length: 100000\r\n\r\nx";
    let long = [b"GET /a?b=c HTTP/1.1\r\nHost: a.test:8443\r\nX: ", &[b'x'; 5_000][..], b"\r\n\r\n"].concat();
    let cases: [(&OriginProcess, &[&[u8]]); 6] = [
        (&origin, &[head]),
        (&origin, &[&head[..1], &head[1..9], &head[9..]]),
        (&origin, &[post]),
        (&origin, &[&long]),
        (&behind_header, &[&[&header[..], head].concat()]),
        (&behind_header, &[header, head]),
    ];
    for (origin, pieces) in cases {
        let text = exchange(origin, pieces);
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("\r\nConnection: close\r\n"), "{text}");
        assert!(text.contains("use https://a.test:8443/a?b=c\n"), "{text}");
    }
    let too_long = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", &[b'x'; 100_000][..]].concat();
    for (bytes, status) in [
        (&b"GET / HTTP/1.0\r\n\r\n"[..], " 400 "),
        (b"HELO there\r\n\r\n", " 400 "),
        (&too_long, " 400 "),
        (b"GET / HTTP/1.1\r\nHost: a", " 408 "),
    ] {
        let text = exchange(&origin, &[bytes]);
        assert!(text.starts_with("HTTP/1.1") && text[8..].starts_with(status), "{text}");
        assert!(status == " 408 " || text.contains("use https\n"), "{text}");
    }
    // No record of TLS, and no text.
    assert!(exchange(&origin, &[&[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0]]).starts_with('\x15'));
    wait_for_stat(&origin, "/tls_failed", 9);
    wait_for_stat(&origin, "/buffers_in_use", 0);
    let (code, output) = curl(&["-k", "-s", &origin.https_url("/?s=3")]);
    assert_eq!((code, output.len()), (0, 3));
}

/// Returns the anonymous memory of a process, in MiB.
fn anonymous_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn blocked_clients_leave_no_memory_behind() {
    let _shared = shared_machine();
    if !is_installed("python3", &["--version"]) {
        return;
    }
    let directory = temp_dir();
    std::fs::File::create(directory.path().join("big")).unwrap().set_len(30_000_000).unwrap();
    let root = directory.path().to_str().unwrap();
    let origin = OriginProcess::start(&[root, "-t", "1", "--tls-self-signed"]);
    let pid = origin.process.id();
    let before = anonymous_mib(pid);
    let (_, port) = origin.authority.rsplit_once(':').unwrap();
    assert_eq!(python(BLOCKED_CLIENTS, &[port, "300"]), "blocked\n");
    let returned = within(EVENT_TIMEOUT, || anonymous_mib(pid) <= before + 16);
    assert!(returned, "{before} MiB before, {} MiB after", anonymous_mib(pid));
}

/// Opens connections that request a file and read nothing, and closes them after a second.
const BLOCKED_CLIENTS: &str = r#"
import socket, ssl, sys, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
clients = []
for _ in range(int(sys.argv[2])):
    client = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    client.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
    clients.append(client)
time.sleep(1)
for client in clients:
    client.close()
print("blocked")
"#;

#[test]
fn an_origin_with_tls_and_a_load_count_the_same() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    let (mut requests, mut handshakes, mut resumed) = (0, 0, 0);
    for flags in [
        &["-c", "4", "-n", "400"][..],
        &["-c", "4", "-n", "200", "-r", "1"],
        &["-c", "3", "-n", "200", "-r", "7", "-t", "2"],
        &["-c", "4", "-R", "300", "-n", "200", "-r", "3"],
        &["-c", "2", "-n", "100", "-r", "1", "--tls-max", "1.2"],
    ] {
        let output = run_load(&[flags, &["-k", &origin.https_url("/?s=1k")]].concat());
        assert_all_good(&output);
        let version = if flags.contains(&"1.2") { "TLSv1.2" } else { "TLSv1.3" };
        assert_eq!(output.record["tls"]["version"], version);
        let suite = output.record["tls"]["cipher_suite"].as_str().unwrap();
        assert!(suite.starts_with("TLS_") && output.record["tls"]["mixed"].is_null(), "{suite}");
        let line = format!("\ntls          {version}, {suite}, {} full and", output.count("tls.full"));
        assert!(output.stdout.contains(&line), "{}", output.stdout);
        assert!(output.count("latency.tls_handshake.service.count") > 0);
        assert_eq!(flags.contains(&"-r"), output.count("tls.resumed") > 0, "{output:?}");
        requests += output.total("sent");
        handshakes += output.total("connections.opened");
        resumed += output.count("tls.resumed");
    }
    let stats = tls_stats_of(&origin.authority);
    let counted =
        ["/requests", "/tls_handshakes", "/tls_resumed", "/tls_failed"].map(|path| stat(&stats, path));
    assert_eq!(counted, [requests, handshakes + 1, resumed, 0], "{stats:#}");
}

#[test]
fn a_load_resumes_all_or_none_or_a_fraction_of_its_sessions() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    let resumed = |resume: &str| {
        let flags = ["-c", "1", "-t", "1", "-n", "100", "-r", "1", "-k", "--tls-resume", resume];
        let output = run_load(&[&flags[..], &[&origin.https_url("/")]].concat());
        assert_all_good(&output);
        assert_eq!(output.total("connections.opened"), 100);
        output.count("tls.resumed")
    };
    assert_eq!(resumed("off"), 0);
    // The first session of a store cannot resume one.
    assert_eq!(["50%", "90%", "on"].map(resumed), [49, 89, 99]);
}

#[test]
fn large_bodies_cross_tls_in_both_directions() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    let download = origin.https_url("/?s=3m");
    let output = run_load(&["-k", "-c", "3", "-n", "30", "--expect-bytes", "3m", &download]);
    assert_all_good(&output);
    assert!(output.total("bytes_in") > 30 * (3 << 20));
    let directory = temp_dir();
    let path = directory.path().join("body");
    std::fs::write(&path, vec![b'x'; 5 << 20]).unwrap();
    let upload = ["-k", "-c", "3", "-n", "30", "--data-file", path.to_str().unwrap()];
    let output = run_load(&[&upload[..], &[&origin.https_url("/?s=1k")]].concat());
    assert_all_good(&output);
    assert!(output.total("bytes_out") > 30 * (5 << 20));
    let stats = tls_stats_of(&origin.authority);
    assert!(stat(&stats, "/bytes_in") > 30 * (5 << 20), "{stats:#}");
}

#[test]
fn a_body_that_ends_with_the_connection_is_complete() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    for target in ["/?s=10k&b=0", "/?s=300k&b=0", "/?s=10k&k=100", "/?s=10k&p=1k", "/?s=10&C=1&P=20"] {
        let output = run_load(&["-k", "-c", "3", "-n", "60", &origin.https_url(target)]);
        assert_all_good(&output);
    }
}

#[test]
fn an_untrusted_certificate_fails_every_connection() {
    let _shared = shared_machine();
    let origin = self_signed_origin();
    for flags in [&["-c", "4"][..], &["-c", "4", "-s", "1s", "-d", "2s"]] {
        let output = run_load(&[flags, &[&origin.https_url("/")]].concat());
        assert_eq!(output.code, 1, "{output:?}");
        // A host without certificate authorities has another reason, and the same remedy.
        assert!(output.stderr.contains("--cacert"), "{}", output.stderr);
        assert!(output.record.is_null() && output.stdout.is_empty());
    }
    let Some(certificates) = Certificates::create() else { return };
    let ca = certificates.file("ca.pem");
    let output = run_load(&["-c", "2", "--cacert", &ca, &origin.https_url("/")]);
    assert_eq!(output.code, 1, "{output:?}");
    for part in ["TLS: certificate not trusted", "(use --cacert FILE or --insecure)"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    wait_for_stat(&origin, "/requests", 0);
}

#[test]
fn a_server_without_tls_is_reported_at_once() {
    let _shared = shared_machine();
    let origin = OriginProcess::start(&["-t", "1"]);
    let output = run_load(&["-k", "-c", "4", &origin.https_url("/")]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("the server does not speak TLS (use http://)"), "{}", output.stderr);
}

#[test]
fn a_server_that_leaves_or_stays_silent_in_the_handshake_is_reported() {
    let _shared = shared_machine();
    let closing = ScriptedServer::start(|peer| {
        let mut hello = [0; 32];
        std::io::Read::read_exact(&mut peer.stream, &mut hello)?;
        // The start of a record, whose rest does not arrive.
        peer.send(b"\x16\x03\x03\x00\x7a\x02\x00")?;
        peer.stream.shutdown(std::net::Shutdown::Write)?;
        std::io::copy(&mut peer.stream, &mut std::io::sink()).map(|_| ())
    });
    let output = run_load(&["-k", "-c", "2", &https(&closing.url())]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("TLS handshake"), "{}", output.stderr);
    let silent =
        ScriptedServer::start(|peer| std::io::copy(&mut peer.stream, &mut std::io::sink()).map(|_| ()));
    let output = run_load(&["-k", "-c", "2", "-w", "300ms", &https(&silent.url())]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("TLS handshake: timeout"), "{}", output.stderr);
}

#[test]
fn failed_handshakes_of_a_running_load_are_errors_of_their_own_kind() {
    let _shared = shared_machine();
    let (secure, plain) = (self_signed_origin(), OriginProcess::start(&["-t", "1"]));
    let urls = [secure.https_url("/"), plain.https_url("/")];
    let output = run_load(&["-k", "-c", "2", "-t", "1", "-d", "1s", &urls[0], &urls[1]]);
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.total("good") > 0 && output.total("errors.tls") > 0, "{output:?}");
    assert_eq!(output.errors(), output.total("errors.tls"));
    assert_eq!(output.count("tls.failed"), output.total("connections.failed"));
    let silent =
        ScriptedServer::start(|peer| std::io::copy(&mut peer.stream, &mut std::io::sink()).map(|_| ()));
    let urls = [secure.https_url("/"), https(&silent.url())];
    let output = run_load(&["-k", "-c", "2", "-t", "1", "-d", "1s", "-w", "200ms", &urls[0], &urls[1]]);
    assert!(output.total("timeouts_by_phase.tls_handshake") > 0, "{output:?}");
}

#[test]
fn urls_with_and_without_tls_share_a_load() {
    let _shared = shared_machine();
    let (secure, plain) = (self_signed_origin(), OriginProcess::start(&["-t", "1"]));
    let urls = [secure.https_url("/"), plain.url("/")];
    let output = run_load(&["-k", "-c", "4", "-n", "400", "-r", "10", &urls[0], &urls[1]]);
    assert_eq!((output.errors(), output.total("good")), (0, 400), "{output:?}");
    let origin_requests =
        [&tls_stats_of(&secure.authority), &plain.stats()].map(|stats| stat(stats, "/requests"));
    assert_eq!(origin_requests.iter().sum::<u64>(), 400);
    let sessions = output.count("tls.full") + output.count("tls.resumed");
    let opened = output.total("connections.opened");
    assert!(
        origin_requests[0] > 0 && origin_requests[1] > 0 && sessions < opened,
        "{origin_requests:?} {sessions} {opened}"
    );
    assert_eq!(output.count("latency.tls_handshake.service.count"), sessions);
    assert_eq!(output.count("latency.connect.service.count"), opened);
    // Without TLS a record has nothing about it.
    let output = run_load(&["-c", "4", "-n", "100", &urls[1]]);
    assert!(output.record["tls"].is_null() && output.record["latency"]["tls_handshake"].is_null());
    assert!(output.record["plan"]["tls"].is_null() && !output.stdout.contains("\ntls "));
}

#[test]
fn a_server_is_verified_with_the_authorities_of_a_file_by_the_host_of_the_url() {
    let _shared = shared_machine();
    let Some(certificates) = Certificates::create() else { return };
    let (both, leaf, key) = ["both.pem", "leaf.pem", "leaf.key"].map(|name| certificates.file(name)).into();
    let ca = certificates.file("ca.pem");
    for flags in [&["--tls-cert", &both][..], &["--tls-cert", &leaf, "--tls-key", &key]] {
        let origin = OriginProcess::start(&[&["-t", "1"], flags].concat());
        let port = origin.authority.rsplit(':').next().unwrap();
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("https://{host}:{port}/");
            // The name may resolve to an address of IPv6 first.
            if host == "localhost" && curl(&["--cacert", &ca, &url]).0 != 0 {
                continue;
            }
            assert_all_good(&run_load(&["-c", "2", "-n", "50", "--cacert", &ca, &url]));
        }
    }
    let directory = temp_dir();
    let socket = directory.path().join("origin.sock").display().to_string();
    let listen = format!("unix:{socket}");
    let _origin = OriginProcess::start_at(&["-t", "1", "--listen", &listen, "--tls-cert", &both]);
    let load = |url: &str| run_load(&["-c", "2", "-n", "50", "--cacert", &ca, "--unix", &socket, url]);
    assert_all_good(&load("https://localhost/"));
    let output = load("https://other.example/");
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("certificate not trusted"), "{}", output.stderr);
}

#[test]
fn files_at_fault_are_all_reported_before_anything_starts() {
    let _shared = shared_machine();
    let output =
        run_weir(&["serve", "--tls-cert", "/no/such/a.pem", "--tls-cert", "/no/such/b.pem", "-t", "0"]);
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["--tls-cert: /no/such/a.pem", "--tls-cert: /no/such/b.pem", "--threads"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    let flags = ["load", "--cacert", "/no/such/ca.pem", "--cert", "/no/such/me.pem", "-c", "0"];
    let output = run_weir(&[&flags[..], &["https://127.0.0.1:1/"]].concat());
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["--cacert: /no/such/ca.pem", "--cert: /no/such/me.pem", "--connections"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    let output = run_weir(&["load", "--tls-min", "1.3", "-k", "http://127.0.0.1:1/"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.stderr.contains("--tls-min: no effect"), "{}", output.stderr);
    // As curl and ab take it.
    assert!(!output.stderr.contains("--insecure"), "{}", output.stderr);
}

#[test]
fn nginx_with_tls_logs_what_a_load_counted() {
    let _shared = shared_machine();
    let Some(certificates) = Certificates::create() else { return };
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let [leaf, key, ca] = ["leaf.pem", "leaf.key", "ca.pem"].map(|name| certificates.file(name));
    let directives = format!(
        "ssl_certificate {leaf};\nssl_certificate_key {key};\nssl_protocols TLSv1.2 TLSv1.3;\n\
         ssl_session_cache shared:tls:1m;\n\
         ssl_client_certificate {ca};\nssl_verify_client optional;\n\
         location = /name {{ if ($ssl_client_verify != SUCCESS) {{ return 403; }} return 200; }}\n"
    );
    let nginx = Nginx::start_with("ssl", &directives);
    let (url, mut logged) = (https(&nginx.url("/")), 0);
    for flags in [
        &["-n", "500"][..],
        &["-n", "200", "-r", "1"],
        &["-n", "200", "-r", "1", "--tls-resume", "off"],
        &["-n", "200", "-r", "1", "--tls-max", "1.2"],
        &["-n", "100", "-r", "7", "--tls-min", "1.3"],
    ] {
        let output = run_load(&[&["-c", "4", "--cacert", &ca], flags, &[&url]].concat());
        assert_all_good(&output);
        let resumes = flags.contains(&"-r") && !flags.contains(&"off");
        assert_eq!(output.count("tls.resumed") > 0, resumes, "{flags:?}: {output:?}");
        logged += output.total("sent");
        assert_eq!(nginx.wait_for_log_lines(logged), logged, "{flags:?}");
    }
    let both = certificates.file("both.pem");
    let with_certificate = ["-c", "2", "-n", "20", "--cacert", &ca, "--cert"];
    for files in [&[both.as_str()][..], &[&leaf, "--key", &key]] {
        let output = run_load(&[&with_certificate[..], files, &[&https(&nginx.url("/name"))]].concat());
        assert_all_good(&output);
    }
    let output = run_load(&["-c", "2", "-n", "20", "--cacert", &ca, &https(&nginx.url("/name"))]);
    assert_eq!(output.total("status.403"), 20, "{output:?}");
}

#[test]
fn a_body_that_only_the_end_delimits_needs_close_notify() {
    let _shared = shared_machine();
    let Some(certificates) = Certificates::create() else { return };
    let server = PythonTlsServer::start(&certificates.file("both.pem"));
    let clean = run_load(&["-k", "-c", "2", "-n", "20", "--expect-bytes", "5", &server.url("/clean")]);
    assert_all_good(&clean);
    let truncated = run_load(&["-k", "-c", "2", "-n", "20", &server.url("/truncated")]);
    assert_eq!((truncated.total("responses"), truncated.total("errors.closed")), (0, 20), "{truncated:?}");
}

#[test]
fn a_calibration_with_tls_drives_an_origin_with_tls() {
    let _shared = shared_machine();
    let flags = ["calibrate", "--tls", "--tls-max", "1.2", "-c", "2", "--trials", "1", "--trial-time", "1s"];
    let output = run_weir(&[&flags[..], &["--json", "RECORD"]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.record["profile"]["tls"]["version_max"], "1.2", "{output:?}");
    assert!(output.stdout.contains("closed loop, TLS 1.2 ("), "{}", output.stdout);
    let output = run_weir(&["calibrate", "--tls-max", "1.2"]);
    assert_eq!(output.code, 2, "{output:?}");
}

#[test]
fn the_origin_reports_its_handshakes_at_its_end() {
    let _shared = shared_machine();
    let mut origin = self_signed_origin();
    assert_all_good(&run_load(&["-k", "-c", "1", "-t", "1", "-n", "10", "-r", "1", &origin.https_url("/")]));
    let mut idle = std::net::TcpStream::connect(&origin.authority).unwrap();
    idle.write_all(b"\x16\x03\x01").unwrap();
    wait_for_stat(&origin, "/connections_open", 2);
    let curl_handshakes = stat(&tls_stats_of(&origin.authority), "/tls_handshakes") - 10;
    origin.process.close_stdin();
    assert_eq!(origin.process.wait(EVENT_TIMEOUT), 0);
    let expected = format!("{} TLS handshakes (9 resumed, 1 failed)", 10 + curl_handshakes);
    assert!(origin.stderr().contains(&expected), "{expected}: {}", origin.stderr());
}
