//! Clients of HTTP/2 and of HTTP/1.1 with servers of both.

use super::{H2Server, config_with_listener, start_proxy};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::temp_dir;
use crate::support::tls_peers::curl;

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
    // Clients of HTTP/2 get the code of a reset, those of gRPC also before the response.
    let grpc = ["-H", "content-type: application/grpc"];
    for (target, fields, expected) in [
        ("/cancel", &[][..], Some("502")),
        ("/cancel", &grpc, None),
        ("/cancel-late", &[], None),
        ("/reset", &grpc, Some("200")),
    ] {
        let url = format!("http://{}{target}", h2_proxy.authority());
        let flags =
            ["--http2-prior-knowledge", "-sv", "--stderr", "-", "-X", "POST", "-w", "%{http_code}", &url];
        let (code, received) = curl(&[&flags[..], fields].concat());
        let text = String::from_utf8_lossy(&received);
        match expected {
            Some(status) => assert!(code == 0 && text.ends_with(status), "{target} {code}: {text}"),
            // Curl reports the code of the reset.
            None => assert!(code == 92 && text.contains("CANCEL"), "{target} {code}: {text}"),
        }
    }
    h2_proxy.assert_all_returned();
    h1_proxy.assert_all_returned();
}
