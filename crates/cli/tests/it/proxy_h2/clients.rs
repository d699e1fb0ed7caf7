//! Foreign clients: curl, nghttp, h2load, Python, with and without TLS.

use super::*;
use crate::support::tls_peers::curl;
use crate::support::{OriginProcess, shared_machine};

const SELF_SIGNED: &str = "tls = { self-signed = true }";

/// Lines of both kinds of listeners, and the scheme of each.
const LISTENERS: [(&str, &str); 2] = [("", "http"), (SELF_SIGNED, "https")];

#[test]
fn curl_gets_and_posts_with_and_without_tls() {
    let _shared = shared_machine();
    let (origin, echo) = (OriginProcess::start(&["-t", "1"]), scripted_server());
    let upload = "x".repeat(300_000);
    let directory = crate::support::temp_dir();
    let file = directory.path().join("upload");
    std::fs::write(&file, &upload).unwrap();
    for (listener, scheme) in LISTENERS {
        let (proxy, echoing) =
            (start_proxy(listener, &origin.authority, ""), start_proxy(listener, &echo.authority, ""));
        let version = if scheme == "http" { "--http2-prior-knowledge" } else { "--http2" };
        for (target, size) in [("/?s=0", 0), ("/?s=100", 100), ("/?s=3m", 3 << 20), ("/?s=70k&k=1", 70 << 10)]
        {
            let url = format!("{scheme}://{}{target}", proxy.authority());
            let format =
                ["-k", version, "-w", "%{http_version} %{http_code} %{size_download}", "-o", "/dev/null"];
            let (code, stdout) = curl(&[&format[..], &[&url]].concat());
            assert_eq!((code, String::from_utf8(stdout).unwrap()), (0, format!("2 200 {size}")), "{url}");
        }
        let url = format!("{scheme}://{}/echo", echoing.authority());
        let data = format!("@{}", file.display());
        let (code, stdout) = curl(&["-k", version, "--data-binary", &data, &url]);
        assert_eq!((code, stdout.len(), stdout == upload.as_bytes()), (0, upload.len(), true), "{url}");
        let line = &json_lines(&echoing, "/echo", 1)[0];
        assert_eq!((&line["version"], &line["end"]), (&"HTTP/2.0".into(), &"done".into()), "{line}");
        assert_eq!(line["tls_version"].is_string(), scheme == "https", "{line}");
    }
}

/// Uploads of unknown length whose response is complete, and empty, before they are.
#[test]
fn curl_ends_after_an_early_response_to_an_upload_of_unknown_length() {
    let _shared = shared_machine();
    let server = scripted_server();
    let directory = crate::support::temp_dir();
    let upload = |bytes: usize| {
        let path = directory.path().join(bytes.to_string());
        std::fs::write(&path, vec![b'x'; bytes]).unwrap();
        path
    };
    let uploads = [upload(5), upload(200_000), upload(3_000_000)];
    for (listener, scheme) in LISTENERS {
        let returning = format!(
            "{listener}\n[[route]]\npath = \"/return\"\nreturn = {{ status = 404 }}\n[[route]]\npool = \"app\""
        );
        let proxy = start_proxy(&returning, &server.authority, "");
        let version = if scheme == "http" { "--http2-prior-knowledge" } else { "--http2" };
        for (target, status) in [("/return", "404"), ("/early-204", "204")] {
            let url = format!("{scheme}://{}{target}", proxy.authority());
            for input in uploads.iter().cycle().take(9) {
                let mut command = Command::new("curl");
                command.args(["-q", "-s", "-k", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}"]);
                command.args([version, "-T", "-", &url]).stdin(std::fs::File::open(input).unwrap());
                let output = command.output().unwrap();
                let result = (output.status.code(), String::from_utf8(output.stdout).unwrap());
                assert_eq!(result, (Some(0), status.into()), "{url} {}", input.display());
            }
        }
        proxy.assert_all_returned();
    }
}

#[test]
fn a_client_chooses_the_protocol_and_a_listener_may_have_only_one() {
    let _shared = shared_machine();
    let server = scripted_server();
    for (listener, scheme) in LISTENERS {
        let proxy = start_proxy(listener, &server.authority, "");
        let url = format!("{scheme}://{}/head", proxy.authority());
        let version = |flags: &[&str]| {
            let (code, stdout) =
                curl(&[&["-k", "-w", "%{http_version}", "-o", "/dev/null"], flags, &[&url]].concat());
            (code, String::from_utf8(stdout).unwrap())
        };
        assert_eq!(version(&["--http1.1"]), (0, "1.1".into()));
        // The upgrade of a plain connection is ignored (RFC 9113 §3.1).
        let expected = if scheme == "http" { "1.1" } else { "2" };
        assert_eq!(version(&["--http2"]), (0, expected.into()));
        if scheme == "http" {
            let (_, head) = curl(&["--http2", &url]);
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{head}");
        }
        let only = start_proxy(&format!("{listener}\nhttp2 = false"), &server.authority, "");
        let url = format!("{scheme}://{}/head", only.authority());
        let (code, stdout) = curl(&["-k", "--http2", "-w", "%{http_version}", "-o", "/dev/null", &url]);
        assert_eq!((code, String::from_utf8(stdout).unwrap()), (0, "1.1".into()));
        if scheme == "http" {
            // Without HTTP/2 its preface is an invalid request.
            assert_ne!(curl(&["--http2-prior-knowledge", &url]).0, 0);
        }
    }
}

#[test]
fn nghttp_and_h2load_get_complete_responses() {
    let _shared = shared_machine();
    if !is_installed("h2load", &["--version"]) || !is_installed("nghttp", &["--version"]) {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    for (listener, scheme) in LISTENERS {
        let proxy = start_proxy(listener, &origin.authority, "");
        let url = |target: &str| format!("{scheme}://{}{target}", proxy.authority());
        let run = |program: &str, flags: &[&str]| {
            let output = Command::new(program).args(flags).stdin(Stdio::null()).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let text = run("nghttp", &["-ns", "-m", "20", &url("/?s=50k")]);
        assert_eq!(text.matches(" 200 ").count(), 20, "{text}");
        for (target, flags) in
            [("/?s=100", ["-n2000", "-c4", "-m10"]), ("/?s=200k", ["-n100", "-c2", "-m25"])]
        {
            let text = run("h2load", &[&flags[..], &[&url(target)]].concat());
            let requests = &flags[0][2..];
            assert!(text.contains(&format!("{requests} succeeded, 0 failed, 0 errored")), "{text}");
        }
        let metrics = proxy.metrics_until("all have left", |metrics| {
            metrics.sum_known(crate::support::metrics::CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
        });
        assert_eq!(metrics.sum_known(STREAMS, &[("listener", "web")]), 2120.0);
        // Each connection counts once, whatever the number of its streams.
        assert_eq!(metrics.sum_known("weir_connections_accepted_total", &[("listener", "web")]), 7.0);
        assert_eq!(metrics.sum_known("weir_http2_connections_total", &[("listener", "web")]), 7.0);
        proxy.assert_all_returned();
    }
}

#[test]
fn python_gets_and_posts_bodies_of_all_forms() {
    let _shared = shared_machine();
    if !has_python_h2() {
        return;
    }
    let (origin, echo) = (OriginProcess::start(&["-t", "1"]), scripted_server());
    for (listener, transport) in [("", "plain"), (SELF_SIGNED, "tls")] {
        let proxy = start_proxy(listener, &origin.authority, "");
        let expected = "GET /?s=100 200 100 end 100\nGET /?s=0 200 0 end 0\nHEAD /?s=100 200 0 end 100\n\
                        GET /?s=100k 200 102400 end 102400\nGET /?s=5000&k=1 200 5000 end None\n\
                        GET /?R=404 200 0 end 0\n";
        assert_eq!(run_client(&proxy, "downloads", &[transport]), expected);
        let text = run_client(&proxy, "concurrent", &[transport, "8"]);
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["fair", "True", "complete"]);
        let proxy = start_proxy(listener, &echo.authority, "");
        let text = run_client(&proxy, "uploads", &[transport]);
        assert_eq!(text.lines().filter(|line| line.ends_with("end True")).count(), 6, "{text}");
        proxy.assert_all_returned();
    }
}

#[test]
fn streams_share_the_certificate_and_the_proxy_header_of_their_connection() {
    let _shared = shared_machine();
    let Some(certificates) = crate::support::tls_peers::Certificates::create() else { return };
    let server = scripted_server();
    let (both, ca) = (certificates.file("both.pem"), certificates.file("ca.pem"));
    let listener = format!(
        "proxy-protocol = true\ntrusted = ['127.0.0.0/8']\n[listener.web.tls]\ncertificates = ['{both}']\n\
         client-ca = '{ca}'\nclient-certificate-header = 'x-subject'"
    );
    let proxy = start_proxy(&listener, &server.authority, "");
    let url = format!("https://{}/head", proxy.authority());
    let flags = ["-k", "--http2", "--haproxy-protocol", "--cert", &both, "-H", "x-subject: CN=forged"];
    // Two requests on one connection.
    let (code, stdout) = curl(&[&flags[..], &["-w", "%{http_version}\n", &url, &url]].concat());
    let text = String::from_utf8(stdout).unwrap();
    assert_eq!((code, text.matches("x-subject: CN=localhost\r\n").count()), (0, 2), "{text}");
    assert!(text.contains("\r\n2\n") && !text.contains("forged"), "{text}");
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known("weir_http2_connections_total", &[("listener", "web")]), 1.0);
    assert_eq!(metrics.sum_known(STREAMS, &[("listener", "web")]), 2.0);
    let plain = start_proxy("proxy-protocol = true\ntrusted = ['127.0.0.0/8']", &server.authority, "");
    let url = format!("http://{}/head", plain.authority());
    let (code, stdout) = curl(&["--http2-prior-knowledge", "--haproxy-protocol", &url]);
    let text = String::from_utf8(stdout).unwrap();
    assert!(code == 0 && text.contains("Via: 2.0 weir"), "{code} {text}");
}
