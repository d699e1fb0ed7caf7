//! Destinations and origins of connections: `--connect-to`, source addresses, the PROXY protocol.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use rt::address::Address;
use serde::{Serialize, Serializer};
use wire::proxy_protocol;

use super::Authority;
use super::parse::{FlagReader, LoadFlags};

/// Replacement of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTo {
    /// Host and port of the URL; empty or `None`: any.
    from: (String, Option<u16>),
    /// Host and port to connect to; empty or `None`: unchanged.
    to: (String, Option<u16>),
}

impl ConnectTo {
    /// Parses `HOST1:PORT1:HOST2:PORT2` as curl does, or `HOST2:PORT2` for every URL.
    ///
    /// # Errors
    /// The text is neither.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong =
            || invalid_value!("'{text}' is not a destination (write HOST:PORT or HOST1:PORT1:HOST2:PORT2)");
        let parts = split_outside_brackets(text);
        let port = |text: &str| match text {
            "" => Ok(None),
            digits => digits.parse().ok().filter(|port| *port != 0).map(Some).ok_or_else(wrong),
        };
        let host = |text: &str| text.trim_matches(['[', ']']).to_owned();
        let parsed = match parts.as_slice() {
            [to, to_port] => Self { from: (String::new(), None), to: (host(to), port(to_port)?) },
            [from, from_port, to, to_port] => {
                Self { from: (host(from), port(from_port)?), to: (host(to), port(to_port)?) }
            }
            _ => return Err(wrong()),
        };
        if parsed.to == (String::new(), None) { Err(wrong()) } else { Ok(parsed) }
    }

    /// Returns the host and port to connect to, if it concerns this authority.
    #[inline]
    pub fn apply(&self, authority: &Authority) -> Option<(String, u16)> {
        let (host, port) = &self.from;
        let matches = (host.is_empty() || host.eq_ignore_ascii_case(&authority.host))
            && port.is_none_or(|port| port == authority.port);
        let (to, to_port) = &self.to;
        let to = if to.is_empty() { &authority.host } else { to };
        matches.then(|| (to.clone(), to_port.unwrap_or(authority.port)))
    }
}

impl Serialize for ConnectTo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let port = |port: Option<u16>| port.map(|port| port.to_string()).unwrap_or_default();
        let ((from, from_port), (to, to_port)) = (&self.from, &self.to);
        serializer.collect_str(&format_args!("{from}:{}:{to}:{}", port(*from_port), port(*to_port)))
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ':' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

pub(super) fn parse_address_lists(texts: &[String], flag: &str) -> (Vec<IpAddr>, Vec<InputProblem>) {
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for part in texts.iter().flat_map(|list| list.split(',')) {
        match parse_addresses(part.trim()) {
            Ok(addresses) => all.extend(addresses),
            Err(error) => problems.push(InputProblem::new(flag, error)),
        }
    }
    (all, problems)
}

/// Parses one address, or all of an IPv4 range `a-b` or of an IPv4 network `a/n`, at most 65,536.
fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, InvalidValue> {
    let wrong = || {
        invalid_value!("'{text}' is not an address (write 127.0.0.2, 127.0.0.2-127.0.0.9 or 127.0.1.0/28)")
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(vec![address]);
    }
    let v4 = |text: &str| text.parse::<Ipv4Addr>().map(u32::from).map_err(|_| wrong());
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (v4(first)?, v4(last)?)
    } else if let Some((network, bits)) = text.split_once('/') {
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(wrong)?;
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let network = v4(network)? & mask;
        (network, network | !mask)
    } else {
        return Err(wrong());
    };
    if first > last || last - first >= 65_536 {
        return Err(invalid_value!("'{text}' is not a range of at most 65536 addresses"));
    }
    Ok((first..=last).map(|address| IpAddr::V4(Ipv4Addr::from(address))).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyVersion {
    V1,
    /// The binary form.
    V2,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProxyHeaderPlan {
    pub version: ProxyVersion,
    /// Client addresses, used in turn; empty: the local address of the connection.
    pub sources: Vec<IpAddr>,
}

impl ProxyHeaderPlan {
    /// Parses the flags. Returns the settings, `None` without the flag, and every problem.
    pub(super) fn parse(version: Option<&str>, sources: &[String]) -> (Option<Self>, Vec<InputProblem>) {
        let (sources, mut problems) = parse_address_lists(sources, "--proxy-source");
        let version = match version {
            None => {
                if !sources.is_empty() {
                    let why = "only a PROXY header has it: add --proxy-protocol v2";
                    problems.push(InputProblem::new("--proxy-source", why));
                }
                return (None, problems);
            }
            Some("v1") => ProxyVersion::V1,
            Some("v2") => ProxyVersion::V2,
            Some(other) => {
                problems
                    .push(InputProblem::new("--proxy-protocol", format!("'{other}' is neither v1 nor v2")));
                ProxyVersion::V2
            }
        };
        (Some(Self { version, sources }), problems)
    }

    #[inline]
    pub fn encode(&self, number: u64, local: Option<SocketAddr>, target: &Address) -> Vec<u8> {
        let target = match target {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        let index = usize::try_from(number).unwrap_or(0);
        // Ports from 1024 on, so that addresses with many connections have different ones.
        let port = 1024 + (number / self.sources.len().max(1) as u64 % 64_512) as u16;
        let source = match self.sources.is_empty() {
            true => local,
            false => Some(SocketAddr::new(self.sources[index % self.sources.len()], port)),
        };
        let version = match self.version {
            ProxyVersion::V1 => proxy_protocol::ProxyVersion::V1,
            ProxyVersion::V2 => proxy_protocol::ProxyVersion::V2,
        };
        // A unix socket has no address: that of a local listener takes its place.
        let target = target.or_else(|| source.map(|source| SocketAddr::new(source.ip(), 0)));
        let mut header = Vec::new();
        proxy_protocol::write_header(version, source, target, &mut header);
        header
    }
}

/// Returns the replaced destinations of `--connect-to`.
pub(super) fn parse_connect_to(text: &LoadFlags, reader: &mut FlagReader) -> Vec<ConnectTo> {
    let mut all = Vec::new();
    for destination in &text.connect_to {
        match ConnectTo::parse(destination) {
            Ok(parsed) => all.push(parsed),
            Err(why) => reader.add_problem("--connect-to", why),
        }
    }
    if !all.is_empty() && text.unix.is_some() {
        reader
            .add_problem("--connect-to", "--unix replaces the destination of every URL: remove one of them");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_replaced_as_in_curl() {
        let url = |text: &str| super::super::Url::parse(text).unwrap().authority;
        let apply = |text: &str| ConnectTo::parse(text).unwrap().apply(&url("http://a.example:81/"));
        assert_eq!(apply("127.0.0.1:9000"), Some(("127.0.0.1".to_owned(), 9000)));
        assert_eq!(apply("a.example:81:[::1]:9000"), Some(("::1".to_owned(), 9000)));
        assert_eq!(apply("::b:"), Some(("b".to_owned(), 81)));
        assert_eq!((apply("b:81:c:1"), apply("a.example:82:c:1")), (None, None));
        for wrong in ["", "a", ":", "a:b", "a:1:2", "a:1:::x", "a:0", "a:1::"] {
            assert!(ConnectTo::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_proxy_header_has_the_addresses_in_turn() {
        let sources = ["192.0.2.1-192.0.2.2".to_owned()];
        let plan = |version| ProxyHeaderPlan::parse(Some(version), &sources).0.unwrap();
        let target = Address::Tcp("127.0.0.1:80".parse().unwrap());
        let text = |number| String::from_utf8(plan("v1").encode(number, None, &target)).unwrap();
        assert_eq!(text(0), "PROXY TCP4 192.0.2.1 127.0.0.1 1024 80\r\n");
        assert_eq!(text(3), "PROXY TCP4 192.0.2.2 127.0.0.1 1025 80\r\n");
        let v2 = plan("v2").encode(1, None, &target);
        assert_eq!(&v2[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 2, 127, 0, 0, 1, 4, 0, 0, 80]);
        let none = ProxyHeaderPlan { version: ProxyVersion::V2, sources: Vec::new() };
        assert_eq!(&none.encode(0, None, &target)[12..], [0x20, 0, 0, 0]);
    }
}
