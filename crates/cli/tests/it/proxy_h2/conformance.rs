//! h2spec, the conformance tests of HTTP/2, against the proxy in front of an origin of HTTP/1.1 and of
//! HTTP/2.

use super::*;
use crate::support::{OriginProcess, shared_machine};

#[test]
fn h2spec_passes_with_and_without_tls() {
    let _shared = shared_machine();
    if !is_installed("h2spec", &["--version"]) {
        return;
    }
    let origin = OriginProcess::start(&["-t", "1"]);
    let tls = "tls = { self-signed = true }";
    for (listener, pool, flags) in [
        ("", "", &[][..]),
        (tls, "", &["-t", "-k"]),
        ("", "http = \"2\"", &[]),
        (tls, "http = \"2\"", &["-t", "-k"]),
    ] {
        let proxy = start_proxy(listener, &origin.authority, pool);
        let port = proxy.port().to_string();
        let target = ["-h", "127.0.0.1", "-p", &port, "-P", "/?s=1000", "-o", "5", "-S"];
        let output = Command::new("h2spec").args(target).args(flags).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let counts: Vec<u32> = text
            .lines()
            .rfind(|line| line.contains(" tests, "))
            .into_iter()
            .flat_map(|line| line.split(|byte: char| !byte.is_ascii_digit()))
            .filter_map(|digits| digits.parse().ok())
            .collect();
        // Tests, passed, skipped, failed. Versions of the program differ by a few tests.
        assert!(
            matches!(counts[..], [tests, passed, 0, 0] if tests >= 145 && passed == tests),
            "{flags:?} {counts:?}\n{text}"
        );
        proxy.assert_all_returned();
    }
}
