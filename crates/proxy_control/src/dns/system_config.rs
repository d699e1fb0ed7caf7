//! The system's name configuration: `/etc/resolv.conf` and `/etc/hosts`. Texts in, addresses out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of nameservers, as in resolv.conf(5).
const NAMESERVERS_MAX: usize = 3;
const PORT: u16 = 53;
/// Nameserver for a file without any.
const DEFAULT_NAMESERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

/// Parses the nameservers of a `resolv.conf`.
pub(super) fn parse_nameservers(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        let address = words.next()?;
        Some(SocketAddr::new(address.parse().ok()?, PORT))
    });
    let servers: Vec<_> = servers.take(NAMESERVERS_MAX).collect();
    if servers.is_empty() { vec![DEFAULT_NAMESERVER] } else { servers }
}

/// Returns the addresses of a name in a `hosts` file. `localhost` needs no entry (RFC 6761 §6.3).
pub(super) fn find_host_addresses(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    });
    let mut addresses: Vec<IpAddr> = lines.collect();
    if addresses.is_empty() && (name == "localhost" || name.ends_with(".localhost")) {
        addresses = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameservers_are_found() {
        let text = "# x\nsearch a\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\n nameserver ::1 \n\
                    nameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let show = |text| parse_nameservers(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(show(text), ["10.0.0.1:53", "[::1]:53", "10.0.0.2:53"]);
        assert_eq!(show(""), ["127.0.0.1:53"]);
    }

    #[test]
    fn hosts_are_found() {
        let text = "127.0.0.1 localhost\n10.0.0.1\tApp app.x # b\n::5 app\nx app\n";
        let show = |name| find_host_addresses(text, name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(show("app"), ["10.0.0.1", "::5"]);
        assert_eq!(show("b"), Vec::<String>::new());
        assert_eq!(show("localhost"), ["127.0.0.1"]);
        assert_eq!(show("a.localhost"), ["127.0.0.1", "::1"]);
    }
}
