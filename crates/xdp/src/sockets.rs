//! TCP sockets of the kernel (sock_diag(7)), whose ports a client leaves to it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::request_from;

/// Request for the sockets of a family (`SOCK_DIAG_BY_FAMILY`).
const GET_SOCKETS: u16 = 20;
/// Number of TCP in the headers of IP (`IPPROTO_TCP`).
const PROTOCOL_TCP: u8 = 6;
const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];
/// Sockets that listen or are bound, as bits of their states: `TCP_CLOSE`, `TCP_LISTEN`, `TCP_BOUND_INACTIVE` (Linux 6.8).
const BOUND: u32 = 1 << 7 | 1 << 10 | 1 << 13;
/// All other states but `TCP_TIME_WAIT`.
const CONNECTED: u32 = 0x1ffe & !(1 << 6) & !BOUND;
/// Bytes of `struct inet_diag_sockid`, and of them those behind the ports.
const REST_OF_ID_BYTES: usize = 44;

/// A TCP socket of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSocket {
    /// Own address, which may be unspecified.
    pub local: SocketAddr,
    /// Address of the peer; `None`: the socket listens or is bound.
    pub remote: Option<SocketAddr>,
}

impl KernelSocket {
    /// Returns the port if packets from one of the `targets` to one of the `own` addresses may be those of this socket.
    #[must_use]
    pub fn port_in_use(&self, own: &[IpAddr], targets: &[SocketAddr]) -> Option<u16> {
        let is_own = self.local.ip().is_unspecified() || own.contains(&self.local.ip());
        let is_of_target = self.remote.is_none_or(|remote| targets.contains(&remote));
        (is_own && is_of_target).then_some(self.local.port())
    }
}

/// Reads the sockets in the network namespace of the thread: those that listen or are bound, and those connected to one of
/// the `remote_ports`. Those in TIME-WAIT are left out.
///
/// # Errors
/// The kernel has no `inet_diag`, or too many sockets.
pub fn read(remote_ports: &[u16]) -> io::Result<Vec<KernelSocket>> {
    let mut sockets = Vec::new();
    for family in FAMILIES {
        let requests = std::iter::once((BOUND, 0)).chain(remote_ports.iter().map(|port| (CONNECTED, *port)));
        for (states, remote_port) in requests {
            let mut body = vec![family, PROTOCOL_TCP, 0, 0];
            body.extend(states.to_ne_bytes());
            body.extend([0, 0]);
            body.extend(remote_port.to_be_bytes());
            body.resize(body.len() + REST_OF_ID_BYTES, 0);
            let answers = request_from(Some(SOCK_DIAG), GET_SOCKETS, true, &body)?;
            sockets.extend(answers.iter().filter_map(|answer| parse(answer)));
        }
    }
    Ok(sockets)
}

/// Parses `struct inet_diag_msg`. Addresses of IPv4 in IPv6 are those of IPv4.
fn parse(answer: &[u8]) -> Option<KernelSocket> {
    let is_ipv6 = *answer.first()? == libc::AF_INET6 as u8;
    let port = |at: usize| answer.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let address = |at: usize| {
        let octets = answer.get(at..)?.first_chunk::<16>()?;
        let [a, b, c, d, ..] = *octets;
        Some(match is_ipv6 {
            true => IpAddr::from(Ipv6Addr::from(*octets)).to_canonical(),
            false => Ipv4Addr::new(a, b, c, d).into(),
        })
    };
    let (local, remote) = ((address(8)?, port(4)?).into(), (address(24)?, port(6)?));
    Some(KernelSocket { local, remote: (remote.1 != 0).then(|| remote.into()) })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_that_listen_or_are_connected_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let stream = TcpStream::connect(server).unwrap();
        let client = stream.local_addr().unwrap();
        let sockets = match read(&[server.port()]) {
            Ok(sockets) => sockets,
            // A kernel without `inet_diag`.
            Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::ENOENT)),
        };
        assert!(sockets.contains(&KernelSocket { local: server, remote: None }), "{sockets:?}");
        assert!(sockets.contains(&KernelSocket { local: client, remote: Some(server) }), "{sockets:?}");
        let reversed = KernelSocket { local: server, remote: Some(client) };
        assert!(!sockets.contains(&reversed), "{sockets:?}");
    }

    #[test]
    fn a_port_is_in_use_where_packets_of_a_target_may_be_those_of_the_socket() {
        let socket = |local: &str, remote: &str| KernelSocket {
            local: local.parse().unwrap(),
            remote: (!remote.is_empty()).then(|| remote.parse().unwrap()),
        };
        let own = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let targets = ["10.0.0.1:80".parse().unwrap()];
        for (local, remote, expected) in [
            ("10.0.0.2:9", "", Some(9)),
            ("[fd00::2]:9", "", Some(9)),
            ("0.0.0.0:9", "", Some(9)),
            ("[::]:9", "", Some(9)),
            ("127.0.0.1:9", "", None),
            ("10.0.0.2:9", "10.0.0.1:80", Some(9)),
            ("10.0.0.2:9", "10.0.0.1:81", None),
            ("10.0.0.3:9", "10.0.0.1:80", None),
        ] {
            let found = socket(local, remote).port_in_use(&own, &targets);
            assert_eq!(found, expected, "{local} {remote}");
        }
    }

    #[test]
    fn short_answers_are_left_out_and_mapped_addresses_are_those_of_ipv4() {
        let mut answer = vec![libc::AF_INET6 as u8, 1, 0, 0];
        answer.extend([0, 80, 0x30, 0x39]);
        for last in [1, 2] {
            answer.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]);
        }
        let remote = "10.0.0.2:12345".parse().unwrap();
        let expected = KernelSocket { local: "10.0.0.1:80".parse().unwrap(), remote: Some(remote) };
        assert_eq!(parse(&answer), Some(expected));
        for end in 0..answer.len() {
            assert_eq!(parse(&answer[..end]), None, "{end}");
        }
    }
}
