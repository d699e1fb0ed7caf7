//! Requests in plain HTTP on a port for TLS.

/// Returns the reason of the 400 response: the address to use, as far as the request has a `host` and a
/// `target`.
pub fn tls_expected_reason(host: Option<&str>, target: &str) -> String {
    let start = "this port expects TLS, and the request came without it: use https";
    match host.filter(|host| !host.is_empty() && target.starts_with('/')) {
        Some(host) => format!("{start}://{host}{target}"),
        None => start.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_has_the_address_that_the_request_has() {
        let address =
            |host, target| tls_expected_reason(host, target).split_once("use ").unwrap().1.to_owned();
        assert_eq!(address(Some("a:1"), "/b?c"), "https://a:1/b?c");
        for (host, target) in [(None, "/b"), (Some(""), "/b"), (Some("a"), "*"), (Some("a"), "http://a/")] {
            assert_eq!(address(host, target), "https");
        }
    }
}
