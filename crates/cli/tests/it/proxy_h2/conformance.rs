//! h2spec, the conformance tests of HTTP/2, against the proxy in front of an origin of HTTP/1.1 and of
//! HTTP/2.

use super::*;
use crate::support::{OriginProcess, shared_machine};

/// Cases that cannot pass on a plain connection: its first bytes decide on the protocol, and those of this
/// case ("INVALID CONNECTION PREFACE") are an invalid request of HTTP/1.1, which is answered with 400. A
/// preface that begins as the one of HTTP/2 ends as HTTP/2 says, see `abuse`.
const PLAIN_EXCEPTIONS: &[&str] = &["Sends invalid connection preface"];

#[test]
fn h2spec_passes_with_and_without_tls() {
    let _shared = shared_machine();
    if !is_installed("h2spec", &["--version"]) {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let tls = "tls = { self-signed = true }";
    for (listener, pool, flags, exceptions) in [
        ("", "", &[][..], PLAIN_EXCEPTIONS),
        (tls, "", &["-t", "-k"], &[]),
        ("", "http = \"2\"", &[], PLAIN_EXCEPTIONS),
        (tls, "http = \"2\"", &["-t", "-k"], &[]),
    ] {
        let proxy = start_proxy(listener, &origin.authority, pool);
        let port = proxy.port().to_string();
        let target = ["-h", "127.0.0.1", "-p", &port, "-P", "/?s=1000", "-o", "5", "-S"];
        let output = Command::new("h2spec").args(target).args(flags).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failures = text.split_once("Failures:").map_or("", |(_, failures)| failures);
        let failed: Vec<&str> = failures.lines().filter(|line| line.contains('×')).collect();
        let unexpected: Vec<&&str> =
            failed.iter().filter(|line| !exceptions.iter().any(|one| line.contains(one))).collect();
        assert!(unexpected.is_empty() && text.contains(" 0 skipped"), "{unexpected:#?}\n{text}");
        // The program has run all of its cases.
        assert!(text.contains("tests, ") && !text.contains("\n0 tests"), "{text}");
        proxy.assert_all_returned();
    }
}
