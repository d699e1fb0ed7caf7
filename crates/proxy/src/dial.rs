//! Opens connections to servers: the socket, the PROXY header before a TLS session, and its
//! handshake. The source addresses of a pool are used in turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::address::Address;
use rt::dial::SourceError;
use rt::namespace::Namespace;
use rt::stream::Stream;
use rt::tls::ClientTls;

use crate::outcome::EndReason;

/// Reason that there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The server could not be reached.
    Socket(io::Error),
    /// The TLS handshake failed.
    Handshake(io::Error),
    /// The server did not begin HTTP/2.
    NoHttp2,
    /// The server ended an HTTP/2 connection before it accepted a request.
    Ended,
    /// The server took too long.
    Timeout,
}

impl ConnectError {
    /// Returns the end code of a request that gets no connection.
    pub(crate) fn end(&self) -> EndReason {
        match self {
            Self::Socket(error) if rt::dial::is_exhausted(error) => EndReason::NoDescriptor,
            Self::Socket(error) if SourceError::from_error(error).is_some() => EndReason::NoSourceAddress,
            Self::Socket(_) => EndReason::ConnectFailed,
            Self::Handshake(_) => EndReason::TlsHandshakeFailed,
            Self::NoHttp2 => EndReason::NoHttp2,
            Self::Ended => EndReason::ServerClosed,
            Self::Timeout => EndReason::ConnectTimeout,
        }
    }

    /// Returns the same error for another request that waited for the connection.
    pub(crate) fn duplicate(&self) -> Self {
        let copy = |error: &io::Error| match (error.raw_os_error(), SourceError::from_error(error)) {
            (Some(code), _) => io::Error::from_raw_os_error(code),
            (None, Some(fault)) => fault.clone().into(),
            (None, None) => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            Self::Socket(error) => Self::Socket(copy(error)),
            Self::Handshake(error) => Self::Handshake(copy(error)),
            Self::NoHttp2 => Self::NoHttp2,
            Self::Ended => Self::Ended,
            Self::Timeout => Self::Timeout,
        }
    }
}

/// Maximum number of source addresses that one connection tries. The search for a free port of an
/// exhausted one takes the kernel up to milliseconds.
const SOURCES_TRIED_MAX: usize = 4;

/// Source addresses of the connections to a pool's servers. All cores and the health checks use them
/// in turn. Without any, the kernel chooses.
#[derive(Debug, Default)]
pub struct SourceAddresses {
    ipv4: AddressTurn,
    ipv6: AddressTurn,
}

/// Addresses of one family, and the number of connections that they had.
#[derive(Debug, Default)]
struct AddressTurn {
    addresses: Box<[IpAddr]>,
    connections: AtomicUsize,
}

impl SourceAddresses {
    pub fn new(addresses: &[IpAddr]) -> Self {
        let turn = |is_ipv4: bool| AddressTurn {
            addresses: addresses.iter().copied().filter(|address| address.is_ipv4() == is_ipv4).collect(),
            connections: AtomicUsize::new(0),
        };
        Self { ipv4: turn(true), ipv6: turn(false) }
    }

    /// Returns the source addresses for one connection in the order in which they are tried. `None`:
    /// the kernel chooses.
    fn next(&self, target: &SocketAddr) -> impl Iterator<Item = Option<IpAddr>> {
        let turn = if target.is_ipv4() { &self.ipv4 } else { &self.ipv6 };
        let is_unset = self.ipv4.addresses.is_empty() && self.ipv6.addresses.is_empty();
        let first = match turn.addresses.len() {
            // Without a choice, no counter that all cores write.
            0 | 1 => 0,
            count => turn.connections.fetch_add(1, Ordering::Relaxed) % count,
        };
        let (before, after) = turn.addresses.split_at(first);
        let sources = after.iter().chain(before).take(SOURCES_TRIED_MAX).map(|source| Some(*source));
        is_unset.then_some(None).into_iter().chain(sources)
    }

    /// Connects to `target` from the address whose turn it is. One that has no free port for this
    /// target, or that this host lost, is skipped. A unix socket has no source address.
    ///
    /// # Errors
    /// Those of [`rt::dial::connect_in`].
    pub async fn connect(&self, target: &Address, namespace: Option<&Namespace>) -> io::Result<Stream> {
        let Address::Tcp(address) = target else {
            return rt::dial::connect_in(target, None, namespace).await;
        };
        let mut failure = SourceError::Family(*address).into();
        for source in self.next(address) {
            match rt::dial::connect_in(target, source, namespace).await {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => failure = error,
                other => return other,
            }
        }
        Err(failure)
    }
}

/// TLS session to begin on a new connection.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) tls: ClientTls,
    pub(crate) server_name: String,
}

/// Destination of a new connection.
#[derive(Clone, Debug)]
pub(crate) struct DialTarget {
    pub(crate) address: Address,
    /// `None`: the own namespace.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) sources: Arc<SourceAddresses>,
    /// PROXY header, which is sent first; may be empty.
    pub(crate) header: Vec<u8>,
    pub(crate) session: Option<NewSession>,
}

impl DialTarget {
    pub(crate) async fn open(self) -> Result<Stream, ConnectError> {
        let connected = self.sources.connect(&self.address, self.namespace.as_ref()).await;
        let mut stream = connected.map_err(ConnectError::Socket)?;
        if !self.header.is_empty() {
            stream.send(&self.header).await.map_err(ConnectError::Socket)?;
        }
        let Some(session) = &self.session else { return Ok(stream) };
        let begun = stream.connect_tls(&session.tls, &session.server_name);
        let mut stream = begun.map_err(ConnectError::Handshake)?;
        let handshake = std::future::poll_fn(|cx| stream.poll_handshake(cx)).await;
        handshake.map_err(ConnectError::Handshake)?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn sources(texts: &[&str]) -> SourceAddresses {
        let addresses: Vec<IpAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
        SourceAddresses::new(&addresses)
    }

    fn next(sources: &SourceAddresses, target: &str) -> Vec<String> {
        let show =
            |source: Option<IpAddr>| source.map_or_else(|| "kernel".to_owned(), |source| source.to_string());
        sources.next(&target.parse().unwrap()).map(show).collect()
    }

    #[test]
    fn addresses_of_the_family_of_the_server_are_used_in_turn() {
        let mixed = sources(&["10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(next(&mixed, "10.1.0.1:80"), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(next(&mixed, "[::2]:80"), ["::1"]);
        assert_eq!(next(&mixed, "10.1.0.1:80"), ["10.0.0.2", "10.0.0.3", "10.0.0.1"]);
        assert_eq!(next(&mixed, "10.1.0.2:80"), ["10.0.0.3", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(next(&mixed, "10.1.0.1:80"), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(next(&sources(&[]), "[::2]:80"), ["kernel"]);
        assert!(next(&sources(&["10.0.0.1"]), "[::2]:80").is_empty());
        let many: Vec<String> = (1..=9).map(|last| format!("10.0.0.{last}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(next(&sources(&many), "10.1.0.1:80").len(), SOURCES_TRIED_MAX);
    }

    #[test]
    fn an_address_that_this_host_lost_is_skipped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Address::Tcp(listener.local_addr().unwrap());
        rt::cores::block_on(async {
            let both = sources(&["192.0.2.1", "127.0.0.3"]);
            for _ in 0..3 {
                let _stream = both.connect(&target, None).await.unwrap();
                assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.3");
            }
            for (texts, text) in [
                (&["192.0.2.1"][..], "no interface has the source address 192.0.2.1"),
                (&["::1"], "no source address has the address family of 127.0.0.1:"),
            ] {
                let error = sources(texts).connect(&target, None).await.unwrap_err();
                let error = ConnectError::Socket(error).duplicate();
                assert!(error.end() == EndReason::NoSourceAddress, "{error:?}");
                assert!(matches!(&error, ConnectError::Socket(error) if error.to_string().starts_with(text)));
            }
        });
    }
}
