//! Host names under which these pages may be requested. A foreign page whose name resolves to this
//! machine (DNS rebinding) sends that name, and is rejected. The bound address decides who may
//! connect.

use std::net::{IpAddr, SocketAddr};

/// Names of the machine for these pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllowedHosts {
    bound_ip: IpAddr,
}

impl AllowedHosts {
    /// Creates the names for a listener at this address.
    pub(super) fn for_listener(bound: SocketAddr) -> Self {
        Self { bound_ip: bound.ip() }
    }

    /// Returns whether a `Host` field is one of them, with any port, because a forwarded port
    /// differs. If all addresses of the machine are bound, any address is accepted: only names can
    /// be redirected.
    pub(super) fn allows(self, host: &str) -> bool {
        let name = without_port(host);
        let unbracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        match unbracketed.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.bound_ip || self.bound_ip.is_unspecified(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        }
    }
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
        AllowedHosts::for_listener(bound.parse().unwrap()).allows(host)
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
