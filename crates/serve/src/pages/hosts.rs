//! By which names these pages may be asked for. A page of somebody else's whose name is made to lead to
//! this machine (DNS rebinding) asks by that name, and so it is refused. Not for who may connect: that is
//! the address that is bound.

use std::net::{IpAddr, SocketAddr};

/// The names of the machine, as far as these pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    bound: IpAddr,
}

impl Hosts {
    /// For what listens at this address.
    pub(super) fn of(bound: SocketAddr) -> Self {
        Self { bound: bound.ip() }
    }

    /// Whether a `Host` field is one of them, with any port: what is forwarded has another one. Where all
    /// addresses of the machine are bound, any address is taken: only names can be made to lead elsewhere.
    pub(super) fn has(self, host: &str) -> bool {
        let name = without_port(host);
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.bound || self.bound.is_unspecified(),
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

    fn has(bound: &str, host: &str) -> bool {
        Hosts::of(bound.parse().unwrap()).has(host)
    }

    #[test]
    fn only_the_machines_own_names_are_taken() {
        for host in ["localhost", "LocalHost:80", "127.0.0.1:9", "127.0.0.1", "[::1]", "[::1]:8"] {
            assert!(has("127.0.0.1:1", host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example:1", "10.0.0.1", "[::2]", ":80"] {
            assert!(!has("127.0.0.1:1", host), "{host}");
        }
        assert!(has("10.0.0.1:1", "10.0.0.1:1") && !has("10.0.0.1:1", "10.0.0.2"));
        assert!(has("0.0.0.0:1", "10.0.0.2:7") && !has("0.0.0.0:1", "evil.example"));
        assert!(has("[::]:1", "[fe80::1]:7") && !has("[::]:1", "a"));
    }
}
