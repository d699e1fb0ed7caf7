//! Host names under which these pages may be requested. A foreign page whose name resolves to this
//! machine (DNS rebinding) sends that name, and is rejected. The bound address decides who may
//! connect.

use std::net::IpAddr;

/// Returns whether a `Host` field is `localhost`, one of `names`, or an address that `accepts`. Its
/// port is ignored, because a forwarded port differs.
pub fn is_own_host(host: &str, names: &[Box<str>], accepts: impl Fn(IpAddr) -> bool) -> bool {
    let name = without_port(host).trim_end_matches('.');
    let unbracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let is_named = |own: &str| name.eq_ignore_ascii_case(own);
    match unbracketed.parse() {
        Ok(ip) => accepts(ip),
        Err(_) => is_named("localhost") || names.iter().any(|own| is_named(own)),
    }
}

/// Returns whether a host is one of this machine, for a listener that is bound to `bound`. If all
/// addresses of the machine are bound, any address is accepted: only names can be redirected.
pub(super) fn is_local_host(host: &str, bound: IpAddr) -> bool {
    is_own_host(host, &[], |ip| ip.is_loopback() || ip == bound || bound.is_unspecified())
}

fn without_port(host: &str) -> &str {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        // Within brackets the last colon is part of the address.
        Some((name, port)) if is_port(port) && !name.is_empty() && !host.ends_with(']') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(bound: &str, host: &str) -> bool {
        is_local_host(host, bound.parse::<std::net::SocketAddr>().unwrap().ip())
    }

    #[test]
    fn other_names_are_those_of_the_list() {
        let names = ["proxy.example".into()];
        for host in ["10.1.2.3", "[::1]:8404", "LOCALHOST:1", "proxy.example:8404", "Proxy.Example."] {
            assert!(is_own_host(host, &names, |_| true), "{host}");
        }
        for host in ["localhost.evil.example", "127.0.0.1.evil.example:80", "", "a b"] {
            assert!(!is_own_host(host, &names, |_| true), "{host}");
        }
    }

    #[test]
    fn only_the_machines_own_names_are_taken() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1:9", "127.0.0.1", "[::1]", "[::1]:8"] {
            assert!(allows("127.0.0.1:1", host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:1", "10.0.0.1", "[::2]", ":80"] {
            assert!(!allows("127.0.0.1:1", host), "{host}");
        }
        assert!(allows("10.0.0.1:1", "10.0.0.1:1") && !allows("10.0.0.1:1", "10.0.0.2"));
        assert!(allows("0.0.0.0:1", "10.0.0.2:7") && !allows("0.0.0.0:1", "evil.example"));
        assert!(allows("[::]:1", "[fe80::1]:7") && !allows("[::]:1", "a"));
    }
}
