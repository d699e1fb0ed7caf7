//! Listening sockets: one per core where the kernel can spread connections itself
//! (`SO_REUSEPORT`, socket(7)), else one shared by hand-over; and the loop that accepts.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::address::Address;
use crate::board::{Board, Handover};
use crate::clock::{MILLISECOND_NS, now_ns};
use crate::stream::Family;
use crate::timers::Timers;
use crate::watched;

/// How connections get from the kernel to the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptMode {
    /// A listening socket per core; the board evens out what the kernel's hash left uneven.
    ReusePort,
    /// One listening socket on the first core, which hands connections to the others.
    HandOver,
}

impl AcceptMode {
    /// As it is shown to people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::ReusePort => "SO_REUSEPORT per core, evened out by hand-over",
            Self::HandOver => "one socket, handed over to the core with the fewest connections",
        }
    }
}

/// A bound address with its sockets, before the cores take them.
#[derive(Debug)]
pub struct Bound {
    address: Address,
    mode: AcceptMode,
    sockets: Vec<Option<OwnedFd>>,
    family: Family,
    unlink: Option<PathBuf>,
}

/// The kernel caps it at `net.core.somaxconn` (listen(2)).
const BACKLOG: i32 = 4096;

impl Bound {
    /// Binds `address` for `cores` cores and listens.
    ///
    /// # Errors
    /// As bind(2) and listen(2), with the address in the message.
    pub fn new(address: &Address, cores: usize) -> io::Result<Self> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{address}: {}", why(&error)));
        match address {
            Address::Tcp(wanted) => Self::tcp((*wanted).into(), cores).map_err(named),
            Address::Unix(path) => Self::unix(path, cores).map_err(named),
        }
    }

    fn tcp(wanted: SockAddr, cores: usize) -> io::Result<Self> {
        // The first socket is bound alone once, so that another program's SO_REUSEPORT group on
        // the same port is an error and not a silent partner.
        if cores == 1 || wanted.as_socket().is_some_and(|address| address.port() != 0) {
            drop(tcp_socket(&wanted, false)?);
        }
        let first = tcp_socket(&wanted, cores > 1)?;
        let bound = first.local_addr()?;
        first.listen(BACKLOG)?;
        let mut sockets = vec![Some(OwnedFd::from(first))];
        let mut mode = AcceptMode::ReusePort;
        for _ in 1..cores {
            match tcp_socket(&bound, true)
                .and_then(|socket| socket.listen(BACKLOG).map(|()| socket))
            {
                Ok(socket) if mode == AcceptMode::ReusePort => sockets.push(Some(socket.into())),
                _ => {
                    mode = AcceptMode::HandOver;
                    sockets.truncate(1);
                }
            }
        }
        sockets.resize_with(cores, || None);
        let address = bound.as_socket().map(Address::Tcp).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { address, mode, sockets, family: Family::Tcp, unlink: None })
    }

    fn unix(path: &Path, cores: usize) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        if let Err(error) = socket.bind(&address) {
            // A socket file that nobody listens on is left over from a process that was killed.
            let left_over = error.kind() == io::ErrorKind::AddrInUse
                && Socket::new(Domain::UNIX, Type::STREAM, None)?.connect(&address).is_err();
            if !left_over {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        socket.listen(BACKLOG)?;
        let mut sockets = vec![Some(socket.into())];
        sockets.resize_with(cores, || None);
        Ok(Self {
            address: Address::Unix(path.to_owned()),
            mode: AcceptMode::HandOver,
            sockets,
            family: Family::Unix,
            unlink: Some(path.to_owned()),
        })
    }

    /// Where it listens, with the port that the kernel chose.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How its connections get to the cores.
    #[must_use]
    pub fn mode(&self) -> AcceptMode {
        self.mode
    }

    /// Takes the socket of core `core`, if it has one, to be known as listener `index`.
    pub fn take(&mut self, core: usize, index: usize) -> Option<Listener> {
        let fd = self.sockets.get_mut(core)?.take()?;
        Some(Listener { fd, family: self.family, index })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(path) = &self.unlink {
            // Somebody else may have removed it; then there is nothing left to tidy.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn tcp_socket(address: &SockAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    // Accepted sockets inherit it (tcp(7)), which saves a system call per connection.
    socket.set_tcp_nodelay(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "something listens there already".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "not permitted (ports below net.ipv4.ip_unprivileged_port_start need root)".to_owned()
        }
        _ => error.to_string(),
    }
}

/// One core's listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    family: Family,
    index: usize,
}

/// What the accept loop tells its engine.
#[derive(Debug)]
pub enum Accepted {
    /// A connection for this core.
    Connection(Handover),
    /// No descriptor or memory was left; it waits and tries again. The kernel keeps the rest in
    /// its backlog meanwhile.
    Short(io::Error),
}

/// How many connections one look at the socket takes, before others get their turn.
const ACCEPT_BATCH: usize = 64;
/// How long the loop waits when descriptors or memory ran out.
const SHORT_WAIT_NS: u64 = 20 * MILLISECOND_NS;

impl Listener {
    /// Accepts for ever, placing connections by the board; `handle` gets those of this core.
    ///
    /// # Errors
    /// The listening socket itself failed.
    pub async fn accept(
        self,
        board: &Board,
        core: usize,
        timers: &Timers,
        mut handle: impl FnMut(Accepted),
    ) -> io::Result<()> {
        let socket = watched::readable(self.fd)?;
        loop {
            let mut guard = socket.readable().await?;
            for taken in 0.. {
                if taken == ACCEPT_BATCH {
                    tokio::task::yield_now().await;
                    break;
                }
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                match accept_with(socket.as_fd(), flags) {
                    Ok(fd) => {
                        let accepted = Handover { fd, family: self.family, listener: self.index };
                        if let Some(own) = board.place(core, accepted) {
                            handle(Accepted::Connection(own));
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => {
                        guard.clear_ready();
                        break;
                    }
                    // The peer left before it was accepted (accept(2), Linux passes its error on).
                    Err(
                        rustix::io::Errno::CONNABORTED
                        | rustix::io::Errno::INTR
                        | rustix::io::Errno::PROTO,
                    ) => {}
                    Err(error) => {
                        handle(Accepted::Short(error.into()));
                        timers.sleep_until(now_ns() + SHORT_WAIT_NS).await;
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_gets_a_socket_on_the_port_that_the_kernel_chose() {
        let mut bound = Bound::new(&"127.0.0.1:0".parse().unwrap(), 3).unwrap();
        assert_eq!(bound.mode(), AcceptMode::ReusePort);
        assert!(matches!(bound.address(), Address::Tcp(address) if address.port() != 0));
        assert!((0..3).all(|core| bound.take(core, 0).is_some()));
        assert!(bound.take(0, 0).is_none());
    }

    #[test]
    fn a_port_in_use_is_an_error_even_when_it_is_shared_by_reuseport() {
        let first = Bound::new(&"127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let error = Bound::new(first.address(), 2).unwrap_err();
        assert!(error.to_string().contains("something listens there already"), "{error}");
    }

    #[test]
    fn a_left_over_unix_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("weir-rt-{}.sock", std::process::id()));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = Address::Unix(path.clone());
        let live = Bound::new(&address, 2).unwrap();
        assert_eq!(live.mode(), AcceptMode::HandOver);
        assert!(Bound::new(&address, 2).is_err());
        drop(live);
        assert!(!path.exists());
    }
}
