//! Clients of HTTP/2 and of HTTP/1.1 with servers of both, and gRPC from end to end.

use std::process::{Command, Stdio};

use super::{H2Server, config_with_listener, start_proxy};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::tls_peers::{curl, python};
use crate::support::{Process, temp_dir};

const GRPC_PEER: &str = include_str!("grpc_peer.py");

#[test]
fn clients_and_servers_of_both_versions_understand_each_other() {
    let Some(h2_server) = H2Server::start(&[]) else { return };
    let h2_proxy = start_proxy(&[&h2_server.authority], "");
    // A server of HTTP/1.1: the proxy before the other one.
    let config = config_with_listener("", &[h2_proxy.authority()], "");
    let h1_proxy = ProxyUnderTest::weir(&config);
    let directory = temp_dir();
    let body = directory.path().join("body");
    std::fs::write(&body, vec![b'c'; 200_000]).unwrap();
    let body = format!("@{}", body.display());
    for proxy in [&h2_proxy, &h1_proxy] {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let url = |target: &str| format!("http://{}{target}", proxy.authority());
            let (code, received) = curl(&[version, "--data-binary", &body, &url("/ok")]);
            assert!(code == 0 && received == vec![b'c'; 200_000], "{version}: {code} {}", received.len());
            let (code, received) = curl(&[version, &url("/big?1000000")]);
            assert_eq!((code, received.len()), (0, 1_000_000), "{version}");
            let (code, received) =
                curl(&[version, "-H", "transfer-encoding: chunked", "-d", "abc", &url("/stream")]);
            assert!(code == 0 && received == b"abc", "{version}: {code}");
            let (code, received) = curl(&[version, "-i", &url("/early")]);
            let text = String::from_utf8(received).unwrap();
            assert!(code == 0 && text.contains("103") && text.contains("200"), "{version}: {text}");
            // A reset of the server reaches the client as one.
            let (code, _) = curl(&[version, &url("/reset-body")]);
            assert_ne!(code, 0, "{version}");
            let (_, received) = curl(&[version, "-o", "/dev/null", "-w", "%{http_code}", &url("/reset")]);
            assert_eq!(received, b"502", "{version}");
        }
    }
    h2_proxy.assert_all_returned();
    h1_proxy.assert_all_returned();
}

#[test]
fn grpc_works_in_every_kind_of_call() {
    if !is_installed("python3", &["-c", "import grpc"]) {
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-c", GRPC_PEER, "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Process::spawn(&mut command);
    let port = server.first_line();
    let address = format!("127.0.0.1:{}", port.trim());
    // With a limit, bodies of other requests are buffered.
    let proxy = start_proxy(&[&address], "maxconn = 20");
    let printed = python(GRPC_PEER, &["call", proxy.authority()]);
    let expected = "unary re:x 1\nlarge 2000003\ndown 500\nup 500000\nboth echo 0\nboth echo 1\nboth echo 2\n\
                    end []\nfail NOT_FOUND\nnever DEADLINE_EXCEEDED\n";
    assert_eq!(printed, expected);
    let metrics = proxy.metrics();
    assert_eq!(metrics.sum_known("weir_server_http2_connections_total", &[]), 1.0);
    proxy.assert_all_returned();
}
