//! Listening sockets with a given backlog; the standard library always requests 128 or more
//! (listen(2)).

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt};

/// Listens on `address` with a queue of `backlog` connections that wait to be accepted (the kernel
/// allows one more, and never more than `net.core.somaxconn`).
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2), with the address in the message.
pub fn listen_with_backlog(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let open = || -> io::Result<TcpListener> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let protocol = Some(ipproto::TCP);
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        listen(&socket, backlog)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|error| io::Error::new(error.kind(), format!("listen on {address}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_and_errors_name_the_address() {
        let listener = listen_with_backlog("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(std::net::TcpStream::connect(address).is_ok());
        let error = listen_with_backlog(address, 1).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
