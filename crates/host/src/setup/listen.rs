//! Listening sockets whose queue has a given length; the standard library always asks for 128 or
//! more (listen(2)).

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};

/// Listens on `address` with a queue of `backlog` connections that wait to be accepted (the kernel
/// takes one more, and never more than `net.core.somaxconn`).
///
/// # Errors
/// Those of socket(2), bind(2) and listen(2), with the address in the message.
pub fn listen_with(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let make = || -> io::Result<TcpListener> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let protocol = Some(ipproto::TCP);
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
        listen(&socket, backlog)?;
        Ok(TcpListener::from(socket))
    };
    make().map_err(|error| io::Error::new(error.kind(), format!("listen on {address}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_and_says_where_it_cannot() {
        let listener = listen_with("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(std::net::TcpStream::connect(address).is_ok());
        let error = listen_with(address, 1).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
