//! Connections to an address, optionally from a source address, without blocking the core.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpSocket, UnixStream};

use crate::address::Address;
use crate::namespace::Namespace;
use crate::socket::Socket;
use crate::stream::Stream;

/// Connects to `target`, from `source` if one is given.
///
/// The source's port is chosen at the connect and not at the bind (`IP_BIND_ADDRESS_NO_PORT`,
/// ip(7)), so that one source address serves a whole port range *per target*.
///
/// # Errors
/// Those of connect(2) and bind(2): refused, unreachable, no port left, no descriptor left.
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
            let open_socket = || match address {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            };
            let socket = match namespace {
                Some(namespace) => namespace.run(open_socket)??,
                None => open_socket()?,
            };
            socket.set_nodelay(true)?;
            if let Some(source) = source {
                bind_address_no_port(&socket)?;
                socket.bind(SocketAddr::new(source, 0))?;
            }
            socket.connect(*address).await.map(Socket::Tcp)
        }
    };
    connected.map(Stream::Plain)
}

/// Returns true if an error of [`connect`] is about this process or host (no descriptor, port or
/// memory left) and not about the target.
#[must_use]
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
}
