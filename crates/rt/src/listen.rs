//! Listening sockets. TCP has one socket per core (`SO_REUSEPORT`, socket(7)). A unix socket, or an
//! address at which that fails, has a single one. [`crate::accept`] accepts their connections.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockAddr, SockFilter, SockRef, Socket, Type};

use crate::address::Address;
use crate::namespace::Namespace;
use crate::socket::SocketFamily;
use crate::unix_socket::{self, SocketAccess, SocketFile};

/// Distribution of connections from the kernel to the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptMode {
    /// One listening socket per core, with `SO_REUSEPORT` if there are several cores. The balancer
    /// corrects the imbalance of the kernel's hash.
    ReusePort,
    /// Fewer listening sockets than cores, usually one on the first core. The balancer sends
    /// connections to the other cores.
    SingleSocket,
}

impl AcceptMode {
    pub fn describe(self) -> &'static str {
        match self {
            Self::ReusePort => "one socket per core, with connection balancing",
            Self::SingleSocket => "one socket; connections go to the core with the fewest",
        }
    }
}

/// Bound address with its sockets, before the cores take them.
#[derive(Debug)]
pub struct BoundAddress {
    address: Address,
    mode: AcceptMode,
    sockets: Vec<(usize, OwnedFd)>,
    /// Bound sockets that do not listen before [`BoundAddress::complete_takeover`].
    not_listening: Vec<(usize, OwnedFd)>,
    backlog: i32,
    family: SocketFamily,
    socket_file: Option<SocketFile>,
}

#[derive(Clone, Copy, Debug)]
pub struct BindOptions<'a> {
    /// Network namespace of the sockets; `None`: that of this process. It does not apply to unix
    /// sockets, which are files.
    pub namespace: Option<&'a Namespace>,
    /// Maximum length of the accept queue; the default is 4,096. The kernel caps it at
    /// `net.core.somaxconn` (listen(2)).
    pub backlog: u32,
    /// Access rights of a unix socket's file.
    pub access: SocketAccess,
}

impl Default for BindOptions<'_> {
    fn default() -> Self {
        Self { namespace: None, backlog: 4096, access: SocketAccess::default() }
    }
}

impl BoundAddress {
    /// Binds `address` for `cores` cores and listens.
    ///
    /// # Errors
    /// Those of bind(2) and listen(2), with the address in the message.
    pub fn new(address: &Address, cores: usize) -> io::Result<Self> {
        Self::with_options(address, cores, BindOptions::default())
    }

    /// Binds like [`BoundAddress::new`], with sockets in `namespace`.
    ///
    /// # Errors
    /// Those of [`BoundAddress::new`] and [`Namespace::run`].
    pub fn new_in(address: &Address, cores: usize, namespace: Option<&Namespace>) -> io::Result<Self> {
        Self::with_options(address, cores, BindOptions { namespace, ..BindOptions::default() })
    }

    /// Binds like [`BoundAddress::new`], with `options`.
    ///
    /// # Errors
    /// Those of [`BoundAddress::new`] and [`Namespace::run`].
    pub fn with_options(address: &Address, cores: usize, options: BindOptions<'_>) -> io::Result<Self> {
        let with_address = |error: io::Error| {
            io::Error::new(error.kind(), format!("{address}: {}", describe_bind_error(&error)))
        };
        let backlog = backlog(options);
        match (address, options.namespace) {
            (Address::Tcp(requested), Some(namespace)) => namespace
                .run(|| Self::tcp((*requested).into(), cores, backlog))
                .and_then(|bound| bound.map_err(with_address)),
            (Address::Tcp(requested), None) => {
                Self::tcp((*requested).into(), cores, backlog).map_err(with_address)
            }
            (Address::Unix(path), _) => Self::unix(path, backlog, options.access)
                .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}"))),
        }
    }

    fn tcp(requested: SockAddr, cores: usize, backlog: i32) -> io::Result<Self> {
        // Probe bind without SO_REUSEPORT: it fails if another process has an SO_REUSEPORT group on
        // this port. The kernel would send a part of the connections to that process.
        if cores == 1 || requested.as_socket().is_some_and(|address| address.port() != 0) {
            drop(tcp_socket(&requested, false)?);
        }
        let first = tcp_socket(&requested, cores > 1)?;
        let bound_address = first.local_addr()?;
        first.listen(backlog)?;
        let mut sockets = vec![(0, OwnedFd::from(first))];
        let mut mode = AcceptMode::ReusePort;
        for core in 1..cores {
            match tcp_socket(&bound_address, true).and_then(|socket| socket.listen(backlog).map(|()| socket))
            {
                Ok(socket) if mode == AcceptMode::ReusePort => sockets.push((core, socket.into())),
                _ => {
                    mode = AcceptMode::SingleSocket;
                    sockets.truncate(1);
                }
            }
        }
        let address = bound_address.as_socket().map(Address::Tcp).ok_or(io::ErrorKind::InvalidInput)?;
        let (not_listening, family) = (Vec::new(), SocketFamily::Tcp);
        Ok(Self { address, mode, sockets, not_listening, backlog, family, socket_file: None })
    }

    fn unix(path: &Path, backlog: i32, access: SocketAccess) -> io::Result<Self> {
        let (socket, file) = unix_socket::bind(path, access)?;
        socket.set_nonblocking(true)?;
        socket.listen(backlog)?;
        Ok(Self {
            address: Address::Unix(path.to_owned()),
            mode: AcceptMode::SingleSocket,
            sockets: vec![(0, socket.into())],
            not_listening: Vec::new(),
            backlog,
            family: SocketFamily::Unix,
            socket_file: Some(file),
        })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub fn mode(&self) -> AcceptMode {
        self.mode
    }

    /// Removes the next socket of core `core`, and returns it as listener `index`. `None`: the core
    /// has no further socket.
    pub fn take_listener(&mut self, core: usize, index: usize) -> Option<Listener> {
        let position = self.sockets.iter().position(|(core_of_socket, _)| *core_of_socket == core)?;
        let (_, fd) = self.sockets.remove(position);
        Some(Listener { fd, family: self.family, index })
    }

    /// Adopts all sockets inherited for `address`. None may be left out: when the last copy closes,
    /// the kernel resets the connections in its queue. Cores without an inherited socket get a new
    /// one if the inherited ones have `SO_REUSEPORT`. The new ones do not listen before
    /// [`BoundAddress::complete_takeover`], so the other process gets all connections until then.
    ///
    /// # Errors
    /// A descriptor is not a listening socket of this address family; the message has the address.
    /// Also those of [`Namespace::run`].
    pub fn adopt(
        address: Address,
        sockets: Vec<OwnedFd>,
        cores: usize,
        options: BindOptions<'_>,
    ) -> io::Result<Self> {
        let (family, domain) = match &address {
            Address::Tcp(requested) => (SocketFamily::Tcp, Domain::for_address(*requested)),
            Address::Unix(_) => (SocketFamily::Unix, Domain::UNIX),
        };
        let mut shares_port = !sockets.is_empty() && family == SocketFamily::Tcp;
        for socket in &sockets {
            let socket = SockRef::from(socket);
            if !socket.is_listener()? || socket.domain()? != domain {
                let text =
                    format!("{address}: the passed descriptor is not a listening socket for this address");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            socket.set_nonblocking(true)?;
            // The other process may have been about to close it ([`Listener::ignore_new_connections`]).
            let _ = socket.detach_filter();
            shares_port = shares_port && socket.reuse_port()?;
        }
        let count = sockets.len();
        let mut not_listening = Vec::new();
        if let (Address::Tcp(requested), true) = (&address, shares_port) {
            let socket_address = SockAddr::from(*requested);
            let open_sockets = || (count..cores).map(|_| tcp_socket(&socket_address, true)).collect();
            let opened: io::Result<Vec<Socket>> = match options.namespace {
                Some(namespace) => namespace.run(open_sockets)?,
                None => open_sockets(),
            };
            // Without additional sockets, the balancer distributes connections.
            not_listening = (count..cores).zip(opened.into_iter().flatten().map(OwnedFd::from)).collect();
        }
        let has_all_cores = count + not_listening.len() >= cores && family == SocketFamily::Tcp;
        let mode = if has_all_cores { AcceptMode::ReusePort } else { AcceptMode::SingleSocket };
        let sockets = sockets.into_iter().enumerate().map(|(number, fd)| (number % cores, fd)).collect();
        Ok(Self {
            address,
            mode,
            sockets,
            not_listening,
            backlog: backlog(options),
            family,
            socket_file: None,
        })
    }

    /// Completes the takeover after the other process has handed off. Sets the backlog of the adopted
    /// sockets, and listens on those that [`BoundAddress::adopt`] added; one that cannot listen is
    /// closed. From now on the file of a unix socket is removed on drop.
    pub fn complete_takeover(&mut self) {
        if let Address::Unix(path) = &self.address {
            self.socket_file.get_or_insert_with(|| SocketFile::unowned(path)).claim();
        }
        for (_, fd) in &self.sockets {
            let socket = SockRef::from(fd);
            // The other process may have started to drain since the sockets were received.
            let _ = socket.detach_filter();
            // Sets the new backlog; if that fails, the queue keeps its length.
            let _ = socket.listen(self.backlog);
        }
        for (core, fd) in std::mem::take(&mut self.not_listening) {
            match SockRef::from(&fd).listen(self.backlog) {
                Ok(()) => self.sockets.push((core, fd)),
                Err(_) => self.mode = AcceptMode::SingleSocket,
            }
        }
    }

    /// Keeps the file of a unix socket on drop, because another process has taken over the socket.
    pub fn keep_file(&mut self) {
        self.socket_file.iter_mut().for_each(SocketFile::disown);
    }
}

fn backlog(options: BindOptions<'_>) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
}

fn tcp_socket(address: &SockAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    // Accepted sockets inherit the option (tcp(7)), which saves a system call per connection.
    socket.set_tcp_nodelay(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn describe_bind_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use by another process".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has this address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "not permitted (ports below net.ipv4.ip_unprivileged_port_start need root)".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Listening socket of one core.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    family: SocketFamily,
    index: usize,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.fd
    }
}

impl Listener {
    /// Wraps a listening socket from another source.
    pub(crate) fn new(fd: OwnedFd, family: SocketFamily, index: usize) -> Self {
        Self { fd, family, index }
    }

    pub(crate) fn family(&self) -> SocketFamily {
        self.family
    }

    /// Attaches a classic BPF filter that drops SYNs (`SO_ATTACH_FILTER`, socket(7)). It applies in
    /// every process that has the socket. Handshakes in progress still complete. Closing a socket
    /// resets the connections in its accept queue; with the filter, the queue can be emptied first. A
    /// new client sends its SYN again after a second, and is then refused. For a unix socket it does
    /// nothing: there the file is removed.
    ///
    /// # Errors
    /// The kernel rejected the filter.
    pub fn ignore_new_connections(&self) -> io::Result<()> {
        /// Offset of the flags in a TCP header. A new connection has SYN without ACK.
        const FLAGS_OFFSET: u32 = 13;
        const SYN: u32 = 0x02;
        const SYN_ACK_MASK: u32 = 0x12;
        if self.family == SocketFamily::Unix {
            return Ok(());
        }
        let instruction = SockFilter::new;
        SockRef::from(&self.fd).attach_filter(&[
            // BPF_LD | BPF_B | BPF_ABS; BPF_ALU | BPF_AND; BPF_JMP | BPF_JEQ; BPF_RET.
            instruction(0x30, 0, 0, FLAGS_OFFSET),
            instruction(0x54, 0, 0, SYN_ACK_MASK),
            instruction(0x15, 0, 1, SYN),
            instruction(0x06, 0, 0, 0),
            instruction(0x06, 0, 0, u32::MAX),
        ])
    }

    /// Duplicates the socket.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, ..*self })
    }

    /// Returns true if a connection waits to be accepted.
    pub fn has_pending_connection(&self) -> bool {
        let mut poll_fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut poll_fds, Some(&no_wait)).is_ok_and(|ready| ready > 0)
    }

    /// Returns the index among the engine's listeners.
    pub fn index(&self) -> usize {
        self.index
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::{SocketFlags, acceptfrom_with};

    use super::*;
    use crate::namespace::testing::shut_down_socket;

    #[test]
    fn every_core_gets_a_socket_on_the_port_that_the_kernel_chose() {
        let mut bound = BoundAddress::new(&"127.0.0.1:0".parse().unwrap(), 3).unwrap();
        assert_eq!(bound.mode(), AcceptMode::ReusePort);
        assert!(matches!(bound.address(), Address::Tcp(address) if address.port() != 0));
        assert!((0..3).all(|core| bound.take_listener(core, 0).is_some()));
        assert!(bound.take_listener(0, 0).is_none());
    }

    #[test]
    fn a_port_in_use_is_an_error_even_when_it_is_shared_by_reuseport() {
        let first = BoundAddress::new(&"127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let error = BoundAddress::new(first.address(), 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().starts_with(&format!("{}: ", first.address())), "{error}");
    }

    #[test]
    fn a_socket_made_in_a_namespace_is_reached_from_there_only() {
        let Some((_temp_namespace, namespace)) = crate::namespace::testing::create_namespace() else {
            return;
        };
        // Kept open, so that no other test listens on the same port outside the namespace.
        let (_bound_socket, target) = crate::dial::testing::closed_port();
        let mut bound = BoundAddress::new_in(&target, 2, Some(&namespace)).unwrap();
        let listener = bound.take_listener(0, 7).unwrap();
        shut_down_socket(bound.take_listener(1, 7).unwrap());
        crate::cores::block_on(async {
            let outside = crate::dial::connect(&target, None).await.unwrap_err();
            assert_eq!(outside.kind(), io::ErrorKind::ConnectionRefused);
            let stream = crate::dial::connect_in(&target, None, Some(&namespace)).await.unwrap();
            let accepted = crate::accept::testing::accept_one(listener).await;
            let local = stream.local_address();
            assert!(local.is_some());
            assert_eq!((accepted.peer, accepted.listener_index), (local, 7));
        });
    }

    #[test]
    fn the_backlog_is_what_was_asked_for() {
        let options = BindOptions { backlog: 1, ..BindOptions::default() };
        let bound = BoundAddress::with_options(&"127.0.0.1:0".parse().unwrap(), 1, options).unwrap();
        let Address::Tcp(target) = *bound.address() else { unreachable!("it is TCP") };
        // The kernel accepts one more than the backlog; the next connection's SYN gets no reply.
        let wait = std::time::Duration::from_millis(500);
        let connect = |_| std::net::TcpStream::connect_timeout(&target, wait);
        let connected: Vec<_> = (0..4).map(connect).collect();
        assert_eq!(connected.iter().filter(|stream| stream.is_ok()).count(), 2);
    }

    /// Returns copies of the descriptors for the other process.
    fn copies(bound: &mut BoundAddress, cores: usize) -> Vec<OwnedFd> {
        let listeners: Vec<_> = (0..cores).filter_map(|core| bound.take_listener(core, 0)).collect();
        listeners.iter().map(|listener| listener.as_fd().try_clone_to_owned().unwrap()).collect()
    }

    #[test]
    fn sockets_are_adopted_with_the_connections_in_their_queues() {
        for (before, cores) in [(1, 1), (1, 3), (2, 3), (3, 2), (3, 1)] {
            let mut old = BoundAddress::new(&"127.0.0.1:0".parse().unwrap(), before).unwrap();
            let address = old.address().clone();
            let Address::Tcp(target) = address else { unreachable!("it is TCP") };
            let clients: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(target).unwrap()).collect();
            let fds = copies(&mut old, before);
            assert_eq!(fds.len(), before);
            drop(old);
            let mut new = BoundAddress::adopt(address, fds, cores, BindOptions::default()).unwrap();
            let take_all_listeners = |bound: &mut BoundAddress| {
                (0..cores)
                    .map(|core| std::iter::from_fn(|| bound.take_listener(core, 0)).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            };
            let mut sockets = take_all_listeners(&mut new);
            assert_eq!(sockets.iter().map(Vec::len).sum::<usize>(), before);
            new.complete_takeover();
            for (own, more) in sockets.iter_mut().zip(take_all_listeners(&mut new)) {
                own.extend(more);
            }
            // One socket alone does not share its port.
            let shares = before > 1 || cores == 1;
            let mode = if shares { AcceptMode::ReusePort } else { AcceptMode::SingleSocket };
            assert_eq!(new.mode(), mode, "{before} to {cores}");
            assert!(sockets.iter().all(|own| !own.is_empty()) || !shares);
            let mut accepted = 0;
            for socket in sockets.iter().flatten() {
                while acceptfrom_with(socket, SocketFlags::CLOEXEC).is_ok() {
                    accepted += 1;
                }
            }
            assert_eq!(accepted, clients.len(), "{before} to {cores}");
        }
    }

    #[test]
    fn only_listening_sockets_of_that_kind_are_adopted() {
        let pair = UnixStream::pair().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = Address::Unix("/tmp/x".into());
        assert!(BoundAddress::adopt(unix.clone(), vec![pair.0.into()], 1, BindOptions::default()).is_err());
        assert!(BoundAddress::adopt(unix, vec![tcp.into()], 1, BindOptions::default()).is_err());
    }

    #[test]
    fn a_socket_that_ignores_new_clients_still_has_those_of_its_queue() {
        let mut bound = BoundAddress::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let Address::Tcp(target) = *bound.address() else { unreachable!("it is TCP") };
        let listener = bound.take_listener(0, 0).unwrap();
        assert!(!listener.has_pending_connection());
        let mut client = std::net::TcpStream::connect(target).unwrap();
        listener.ignore_new_connections().unwrap();
        assert!(listener.has_pending_connection());
        let wait = std::time::Duration::from_millis(200);
        assert!(std::net::TcpStream::connect_timeout(&target, wait).is_err());
        let (accepted, _) = acceptfrom_with(&listener, SocketFlags::CLOEXEC).unwrap();
        drop(listener);
        // Its later segments pass.
        let mut accepted = std::net::TcpStream::from(accepted);
        for _ in 0..2 {
            io::Write::write_all(&mut client, b"x").unwrap();
            io::Read::read_exact(&mut accepted, &mut [0]).unwrap();
        }
    }

    #[test]
    fn the_file_of_a_unix_socket_goes_with_its_last_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut old = BoundAddress::new(&Address::Unix(path.clone()), 1).unwrap();
        let fds = copies(&mut old, 1);
        let again = fds[0].try_clone().unwrap();
        let new = BoundAddress::adopt(old.address().clone(), fds, 2, BindOptions::default()).unwrap();
        // A process that fails before the other has left removes nothing.
        drop(new);
        assert!(path.exists());
        let fds = vec![again];
        let mut new = BoundAddress::adopt(old.address().clone(), fds, 2, BindOptions::default()).unwrap();
        old.keep_file();
        drop(old);
        assert!(path.exists());
        new.complete_takeover();
        drop(new);
        assert!(!path.exists());
    }

    #[test]
    fn a_left_over_unix_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        shut_down_socket(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = Address::Unix(path.clone());
        let live = BoundAddress::new(&address, 2).unwrap();
        assert_eq!(live.mode(), AcceptMode::SingleSocket);
        assert!(BoundAddress::new(&address, 2).is_err());
        drop(live);
        assert!(!path.exists());
    }
}
