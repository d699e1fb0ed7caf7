//! Connections to an address, optionally from a source address, without blocking the core.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;
use std::{fmt, io};

use tokio::net::{TcpSocket, UnixStream};

use crate::address::Address;
use crate::clock::now_ns;
use crate::namespace::Namespace;
use crate::socket::Socket;
use crate::stream::Stream;

/// Fault of a source address, as the cause of an error of [`connect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// This host, or the network namespace, does not have the address.
    Missing(IpAddr),
    Family(SocketAddr),
}

impl SourceError {
    /// Returns the fault that an error of [`connect`] reports; `None`: the error has another cause.
    #[must_use]
    pub fn from_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(address) => write!(f, "no interface has the source address {address}"),
            Self::Family(target) => write!(f, "no source address has the address family of {target}"),
        }
    }
}

impl std::error::Error for SourceError {}

impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> Self {
        let kind = match error {
            SourceError::Missing(_) => io::ErrorKind::AddrNotAvailable,
            SourceError::Family(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Connects to `target`, from `source` if one is given.
///
/// The source's port is chosen at the connect and not at the bind (`IP_BIND_ADDRESS_NO_PORT`,
/// ip(7)), so that one source address serves a whole port range *per target*.
///
/// # Errors
/// Those of connect(2): refused, unreachable, no port left, no descriptor left. Or a
/// [`SourceError`].
pub async fn connect(target: &Address, source: Option<IpAddr>) -> io::Result<Stream> {
    connect_in(target, source, None).await
}

/// Connects like [`connect`], with a socket of `namespace`; `None`: the own namespace. A unix
/// socket is a file and is the same in all of them.
///
/// # Errors
/// Those of [`connect`] and [`Namespace::run`].
pub async fn connect_in(
    target: &Address,
    source: Option<IpAddr>,
    namespace: Option<&Namespace>,
) -> io::Result<Stream> {
    let connected = match target {
        Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
        Address::Tcp(address) => {
            if source.is_some_and(|source| source.is_ipv4() != address.is_ipv4()) {
                return Err(SourceError::Family(*address).into());
            }
            let socket = match namespace {
                Some(namespace) => namespace.run(|| open_socket(address.ip()))??,
                None => open_socket(address.ip())?,
            };
            socket.set_nodelay(true)?;
            if let Some(source) = source {
                bind_source(&socket, source)?;
            }
            socket.connect(*address).await.map(Socket::Tcp)
        }
    };
    connected.map(Stream::Plain)
}

/// Interval between attempts to connect to the addresses of one name (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of addresses that are tried.
const ATTEMPTS_MAX: usize = 16;

/// Returns the first of some addresses that accepts a connection, which is closed at once. An attempt begins when
/// the one before has failed, or has taken 250 ms. Blocks; no core may call it.
///
/// # Errors
/// The error of each address that was tried within `timeout`.
pub fn first_reachable(
    addresses: &[SocketAddr],
    timeout: Duration,
) -> Result<SocketAddr, Vec<(SocketAddr, io::Error)>> {
    let end_ns = now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    let (sender, results) = mpsc::channel();
    let mut waiting = addresses.iter().copied().take(ATTEMPTS_MAX);
    let (mut pending, mut errors, mut is_exhausted) = (Vec::new(), Vec::new(), false);
    loop {
        match waiting.next() {
            Some(address) => {
                let sender = sender.clone();
                pending.push(address);
                // The thread ends with its attempt.
                std::thread::spawn(move || {
                    let connected = TcpStream::connect_timeout(&address, timeout);
                    let _ = sender.send((address, connected.map(drop)));
                });
            }
            None => is_exhausted = true,
        }
        let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
        if pending.is_empty() || left.is_zero() {
            let late = pending.into_iter().map(|address| (address, io::ErrorKind::TimedOut.into()));
            errors.extend(late);
            return Err(errors);
        }
        match results.recv_timeout(if is_exhausted { left } else { ATTEMPT_DELAY.min(left) }) {
            Ok((address, Ok(()))) => return Ok(address),
            Ok((address, Err(error))) => {
                pending.retain(|other| *other != address);
                errors.push((address, error));
            }
            Err(_) => {}
        }
    }
}

/// Checks that connections may have this source address.
///
/// # Errors
/// [`SourceError::Missing`], or an error of socket(2) or bind(2).
pub fn check_source(source: IpAddr) -> io::Result<()> {
    bind_source(&open_socket(source)?, source)
}

/// Returns a socket of the family of `address`.
fn open_socket(address: IpAddr) -> io::Result<TcpSocket> {
    match address {
        IpAddr::V4(_) => TcpSocket::new_v4(),
        IpAddr::V6(_) => TcpSocket::new_v6(),
    }
}

fn bind_source(socket: &TcpSocket, source: IpAddr) -> io::Result<()> {
    bind_address_no_port(socket)?;
    socket.bind(SocketAddr::new(source, 0)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => SourceError::Missing(source).into(),
        _ => error,
    })
}

/// Returns true if an error of [`connect`] is about this process or host (no descriptor, port or
/// memory left) and not about the target.
pub fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let local_errnos = [Errno::ADDRNOTAVAIL, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| local_errnos.iter().any(|errno| errno.raw_os_error() == code))
}

#[allow(unsafe_code)]
fn bind_address_no_port(socket: &TcpSocket) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as `socket` lives. The option's value is an int
    // that the kernel only reads, passed with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
pub(crate) mod testing {
    use socket2::{Domain, Socket, Type};

    use super::*;

    /// Returns an address without a listener for as long as the socket lives.
    pub(crate) fn closed_port() -> (Socket, Address) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        (socket, Address::Tcp(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::block_on;

    #[test]
    fn a_source_address_is_used_and_a_closed_port_is_refused() {
        block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let target = Address::Tcp(listener.local_addr().unwrap());
            let source = "127.0.0.7".parse().unwrap();
            let _stream = connect(&target, Some(source)).await.unwrap();
            let (_, peer) = listener.accept().unwrap();
            assert_eq!(peer.ip(), source);
            let (_bound_socket, closed) = testing::closed_port();
            let error = connect(&closed, None).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn a_source_address_that_cannot_be_used_is_named() {
        let (missing, other_family) = ("192.0.2.1".parse().unwrap(), "::1".parse().unwrap());
        block_on(async {
            let (_bound_socket, target) = testing::closed_port();
            let error = connect(&target, Some(missing)).await.unwrap_err();
            assert_eq!(SourceError::from_error(&error), Some(&SourceError::Missing(missing)));
            assert_eq!(error.to_string(), "no interface has the source address 192.0.2.1");
            assert!(!is_exhausted(&error));
            let error = connect(&target, Some(other_family)).await.unwrap_err();
            assert!(matches!(SourceError::from_error(&error), Some(SourceError::Family(_))), "{error}");
            let error = connect(&target, Some("127.0.0.2".parse().unwrap())).await.unwrap_err();
            assert_eq!(
                (error.kind(), SourceError::from_error(&error)),
                (io::ErrorKind::ConnectionRefused, None)
            );
        });
        check_source(other_family).unwrap();
        assert_eq!(check_source(missing).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn each_source_address_has_a_port_range_of_its_own() {
        let Some((temp_namespace, namespace)) = crate::namespace::testing::create_namespace() else {
            return;
        };
        // Two ports for each source address and target.
        let range = "net.ipv4.ip_local_port_range=20000 20001";
        let set = ["netns", "exec", &temp_namespace.0, "sysctl", "-q", range];
        // Without the detection of duplicates, in which the kernel refuses an address for a moment.
        let add = |address| ["-n", &temp_namespace.0, "address", "add", address, "dev", "lo", "nodad"];
        for arguments in [&set[..], &add("fd00::2/128"), &add("fd00::3/128")] {
            assert!(std::process::Command::new("ip").args(arguments).status().unwrap().success());
        }
        for [listen, first, second] in
            [["127.0.0.1", "127.0.0.2", "127.0.0.3"], ["::1", "fd00::2", "fd00::3"]]
        {
            let bind = || std::net::TcpListener::bind((listen, 30_000));
            let listener = namespace.run(bind).unwrap().unwrap();
            let target = Address::Tcp(listener.local_addr().unwrap());
            let mut open = Vec::new();
            block_on(async {
                for source in [first, first, second, second] {
                    let source = source.parse().unwrap();
                    let stream = connect_in(&target, Some(source), Some(&namespace)).await.unwrap();
                    assert_eq!(listener.accept().unwrap().1.ip(), source);
                    open.push(stream);
                }
                let third = connect_in(&target, Some(first.parse().unwrap()), Some(&namespace)).await;
                assert!(is_exhausted(&third.unwrap_err()));
            });
        }
    }
}
