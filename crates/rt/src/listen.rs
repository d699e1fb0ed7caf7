//! Listening sockets: one per core where the kernel can spread connections itself
//! (`SO_REUSEPORT`, socket(7)), else one shared by hand-over; and the loop that accepts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, SockAddr, SockFilter, SockRef, Socket, Type};

use crate::address::Address;
use crate::board::{Board, Handover};
use crate::clock::{MILLISECOND_NS, now_ns};
use crate::local::{self, SocketAccess, SocketFile};
use crate::namespace::Namespace;
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
    /// Each with its core.
    sockets: Vec<(usize, OwnedFd)>,
    /// Bound, and not listening before [`Bound::take_over`].
    late: Vec<(usize, OwnedFd)>,
    backlog: i32,
    family: Family,
    /// The file of a unix socket.
    file: Option<SocketFile>,
}

/// How an address is bound, where that is not always the same.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The network namespace of the sockets; `None`: our own. A unix socket is a file and is the
    /// same in all of them.
    pub namespace: Option<&'a Namespace>,
    /// How many connections the kernel keeps that nobody has accepted: 4,096. It caps this at
    /// `net.core.somaxconn` (listen(2)).
    pub backlog: u32,
    /// The access rights of a unix socket's file.
    pub access: SocketAccess,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { namespace: None, backlog: 4096, access: SocketAccess::default() }
    }
}

impl Bound {
    /// Binds `address` for `cores` cores and listens.
    ///
    /// # Errors
    /// As bind(2) and listen(2), with the address in the message.
    pub fn new(address: &Address, cores: usize) -> io::Result<Self> {
        Self::with(address, cores, Options::default())
    }

    /// As [`Bound::new`], with its sockets in `namespace`.
    ///
    /// # Errors
    /// As [`Bound::new`] and [`Namespace::run`].
    pub fn new_in(
        address: &Address,
        cores: usize,
        namespace: Option<&Namespace>,
    ) -> io::Result<Self> {
        Self::with(address, cores, Options { namespace, ..Options::default() })
    }

    /// As [`Bound::new`], in the way that `options` say.
    ///
    /// # Errors
    /// As [`Bound::new`] and [`Namespace::run`].
    pub fn with(address: &Address, cores: usize, options: Options<'_>) -> io::Result<Self> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{address}: {}", why(&error)));
        let backlog = backlog(options);
        match (address, options.namespace) {
            (Address::Tcp(wanted), Some(namespace)) => namespace
                .run(|| Self::tcp((*wanted).into(), cores, backlog))
                .and_then(|bound| bound.map_err(named)),
            (Address::Tcp(wanted), None) => {
                Self::tcp((*wanted).into(), cores, backlog).map_err(named)
            }
            (Address::Unix(path), _) => Self::unix(path, backlog, options.access)
                .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}"))),
        }
    }

    fn tcp(wanted: SockAddr, cores: usize, backlog: i32) -> io::Result<Self> {
        // The first socket is bound alone once, so that another program's SO_REUSEPORT group on
        // the same port is an error and not a silent partner.
        if cores == 1 || wanted.as_socket().is_some_and(|address| address.port() != 0) {
            drop(tcp_socket(&wanted, false)?);
        }
        let first = tcp_socket(&wanted, cores > 1)?;
        let bound = first.local_addr()?;
        first.listen(backlog)?;
        let mut sockets = vec![(0, OwnedFd::from(first))];
        let mut mode = AcceptMode::ReusePort;
        for core in 1..cores {
            match tcp_socket(&bound, true)
                .and_then(|socket| socket.listen(backlog).map(|()| socket))
            {
                Ok(socket) if mode == AcceptMode::ReusePort => sockets.push((core, socket.into())),
                _ => {
                    mode = AcceptMode::HandOver;
                    sockets.truncate(1);
                }
            }
        }
        let address = bound.as_socket().map(Address::Tcp).ok_or(io::ErrorKind::InvalidInput)?;
        let (late, family) = (Vec::new(), Family::Tcp);
        Ok(Self { address, mode, sockets, late, backlog, family, file: None })
    }

    fn unix(path: &Path, backlog: i32, access: SocketAccess) -> io::Result<Self> {
        let (socket, file) = local::bind(path, access)?;
        socket.set_nonblocking(true)?;
        socket.listen(backlog)?;
        Ok(Self {
            address: Address::Unix(path.to_owned()),
            mode: AcceptMode::HandOver,
            sockets: vec![(0, socket.into())],
            late: Vec::new(),
            backlog,
            family: Family::Unix,
            file: Some(file),
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

    /// Takes the socket of core `core`, or the next of several, to be known as listener `index`.
    pub fn take(&mut self, core: usize, index: usize) -> Option<Listener> {
        let at = self.sockets.iter().position(|(of, _)| *of == core)?;
        let (_, fd) = self.sockets.remove(at);
        Some(Listener { fd, family: self.family, index })
    }

    /// Takes over sockets that another process listens on at `address`, all of them: what is in the
    /// queue of one that is closed by all who have it is reset. Cores that are left without one get a
    /// socket of their own, if the others share their port. As long as the other process may still go
    /// on, nothing of it changes: see [`Bound::take_over`].
    ///
    /// # Errors
    /// One of them is no listening socket of that kind, with the address in the message.
    pub fn adopt(
        address: Address,
        sockets: Vec<OwnedFd>,
        cores: usize,
        options: Options<'_>,
    ) -> io::Result<Self> {
        let (family, domain) = match &address {
            Address::Tcp(wanted) => (Family::Tcp, Domain::for_address(*wanted)),
            Address::Unix(_) => (Family::Unix, Domain::UNIX),
        };
        let mut shares_port = !sockets.is_empty() && family == Family::Tcp;
        for socket in &sockets {
            let socket = SockRef::from(socket);
            if !socket.is_listener()? || socket.domain()? != domain {
                let text = format!("{address}: what was passed on is no listening socket for it");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            socket.set_nonblocking(true)?;
            // Who had it may have been about to close it ([`Listener::ignore_new`]).
            let _ = socket.detach_filter();
            shares_port = shares_port && socket.reuse_port()?;
        }
        let count = sockets.len();
        let mut late = Vec::new();
        if let (Address::Tcp(wanted), true) = (&address, shares_port) {
            let wanted = SockAddr::from(*wanted);
            let make = || (count..cores).map(|_| tcp_socket(&wanted, true)).collect();
            let made: io::Result<Vec<Socket>> = match options.namespace {
                Some(namespace) => namespace.run(make)?,
                None => make(),
            };
            // Without them it goes by hand-over.
            late = (count..cores).zip(made.into_iter().flatten().map(OwnedFd::from)).collect();
        }
        let every_core = count + late.len() >= cores && family == Family::Tcp;
        let mode = if every_core { AcceptMode::ReusePort } else { AcceptMode::HandOver };
        let sockets = sockets.into_iter().enumerate().map(|(at, fd)| (at % cores, fd)).collect();
        Ok(Self { address, mode, sockets, late, backlog: backlog(options), family, file: None })
    }

    /// The other process has left: from now on the sockets listen that [`Bound::adopt`] added, but for
    /// one that cannot, with our backlog each, and the file of a unix socket is ours.
    pub fn take_over(&mut self) {
        if let Address::Unix(path) = &self.address {
            self.file.get_or_insert_with(|| SocketFile::foreign(path)).claim();
        }
        for (_, fd) in &self.sockets {
            let socket = SockRef::from(fd);
            // The other process may have been told to stop since we got them.
            let _ = socket.detach_filter();
            // The queue may be of another length now; without that, it is as it was.
            let _ = socket.listen(self.backlog);
        }
        for (core, fd) in std::mem::take(&mut self.late) {
            match SockRef::from(&fd).listen(self.backlog) {
                Ok(()) => self.sockets.push((core, fd)),
                Err(_) => self.mode = AcceptMode::HandOver,
            }
        }
    }

    /// Another process has the unix socket now: its file stays when this is dropped.
    pub fn leave_file(&mut self) {
        self.file.iter_mut().for_each(SocketFile::leave);
    }
}

fn backlog(options: Options<'_>) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
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

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
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
    /// A listening socket that came from elsewhere.
    pub(crate) fn new(fd: OwnedFd, family: Family, index: usize) -> Self {
        Self { fd, family, index }
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Has the kernel ignore new clients of this socket, in every process that has it, while those
    /// whose handshake is under way or done can still be accepted. Closing it resets what is in its
    /// queue; with this, its owner can empty the queue first. A new client tries again after a second,
    /// and is refused then. For a unix socket it does nothing: there its file is removed.
    ///
    /// # Errors
    /// The kernel takes no filter.
    pub fn ignore_new(&self) -> io::Result<()> {
        /// Where the flags are in a TCP header, and which of them a first segment has.
        const FLAGS_AT: u32 = 13;
        const SYN: u32 = 0x02;
        const SYN_OR_ACK: u32 = 0x12;
        if self.family == Family::Unix {
            return Ok(());
        }
        let step = SockFilter::new;
        SockRef::from(&self.fd).attach_filter(&[
            // BPF_LD | BPF_B | BPF_ABS; BPF_ALU | BPF_AND; BPF_JMP | BPF_JEQ; BPF_RET.
            step(0x30, 0, 0, FLAGS_AT),
            step(0x54, 0, 0, SYN_OR_ACK),
            step(0x15, 0, 1, SYN),
            step(0x06, 0, 0, 0),
            step(0x06, 0, 0, u32::MAX),
        ])
    }

    /// The same socket once more.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, ..*self })
    }

    /// Whether anybody waits to be accepted.
    #[must_use]
    pub fn is_waited_at(&self) -> bool {
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Which of the engine's listeners it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

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
                match acceptfrom_with(socket.as_fd(), flags) {
                    Ok((fd, peer)) => {
                        let accepted = Handover {
                            fd,
                            family: self.family,
                            listener: self.index,
                            peer: peer.and_then(|peer| peer.try_into().ok()),
                        };
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
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::namespace::testing::end;

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
    fn a_socket_made_in_a_namespace_is_reached_from_there_only() {
        let Some((_made, namespace)) = crate::namespace::testing::make() else { return };
        // Kept, so that no other test listens on the same port out here.
        let (_kept, target) = crate::dial::testing::closed_port();
        let mut bound = Bound::new_in(&target, 2, Some(&namespace)).unwrap();
        let listener = bound.take(0, 7).unwrap();
        end(bound.take(1, 7).unwrap());
        crate::cores::block_on(async {
            let outside = crate::dial::connect(&target, None).await.unwrap_err();
            assert_eq!(outside.kind(), io::ErrorKind::ConnectionRefused);
            let stream = crate::dial::connect_in(&target, None, Some(&namespace)).await.unwrap();
            let accepted = accept_one(listener).await;
            let local = match &stream {
                crate::stream::Stream::Tcp(tcp) => tcp.local_addr().unwrap(),
                crate::stream::Stream::Unix(_) => unreachable!("it was TCP"),
            };
            assert_eq!((accepted.peer, accepted.listener), (Some(local), 7));
        });
    }

    /// On this machine: with IPv6 where it has that.
    fn any_port() -> Address {
        let missing = [Some(libc::EADDRNOTAVAIL), Some(libc::EAFNOSUPPORT)];
        match std::net::TcpListener::bind("[::1]:0") {
            Err(error) if missing.contains(&error.raw_os_error()) => {
                println!("skipped: IPv6: {error}");
                "127.0.0.1:0".parse().unwrap()
            }
            _ => "[::1]:0".parse().unwrap(),
        }
    }

    #[test]
    fn the_peer_is_known_without_asking_and_a_unix_peer_has_no_address() {
        crate::cores::block_on(async {
            let mut bound = Bound::new(&any_port(), 1).unwrap();
            let Address::Tcp(target) = *bound.address() else { unreachable!("it is TCP") };
            let client = std::net::TcpStream::connect(target).unwrap();
            let accepted = accept_one(bound.take(0, 0).unwrap()).await;
            assert_eq!(accepted.peer, Some(client.local_addr().unwrap()));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let mut bound = Bound::new(&Address::Unix(path.clone()), 1).unwrap();
            let _client = UnixStream::connect(&path).unwrap();
            assert_eq!(accept_one(bound.take(0, 0).unwrap()).await.peer, None);
        });
    }

    #[test]
    fn the_backlog_is_what_was_asked_for() {
        let options = Options { backlog: 1, ..Options::default() };
        let bound = Bound::with(&"127.0.0.1:0".parse().unwrap(), 1, options).unwrap();
        let Address::Tcp(target) = *bound.address() else { unreachable!("it is TCP") };
        // The kernel takes one more than it was told; the next connection's SYN goes unanswered.
        let wait = std::time::Duration::from_millis(500);
        let connect = |_| std::net::TcpStream::connect_timeout(&target, wait);
        let connected: Vec<_> = (0..4).map(connect).collect();
        assert_eq!(connected.iter().filter(|stream| stream.is_ok()).count(), 2);
    }

    /// The other process's copies, and what it was told of them.
    fn copies(bound: &mut Bound, cores: usize) -> Vec<OwnedFd> {
        let listeners: Vec<_> = (0..cores).filter_map(|core| bound.take(core, 0)).collect();
        listeners.iter().map(|one| one.as_fd().try_clone_to_owned().unwrap()).collect()
    }

    #[test]
    fn sockets_are_adopted_with_the_connections_in_their_queues() {
        for (before, cores) in [(1, 1), (1, 3), (2, 3), (3, 2), (3, 1)] {
            let mut old = Bound::new(&"127.0.0.1:0".parse().unwrap(), before).unwrap();
            let address = old.address().clone();
            let Address::Tcp(target) = address else { unreachable!("it is TCP") };
            let clients: Vec<_> =
                (0..20).map(|_| std::net::TcpStream::connect(target).unwrap()).collect();
            let passed = copies(&mut old, before);
            assert_eq!(passed.len(), before);
            drop(old);
            let mut new = Bound::adopt(address, passed, cores, Options::default()).unwrap();
            let of = |bound: &mut Bound| {
                (0..cores)
                    .map(|core| std::iter::from_fn(|| bound.take(core, 0)).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            };
            let mut sockets = of(&mut new);
            assert_eq!(sockets.iter().map(Vec::len).sum::<usize>(), before);
            new.take_over();
            for (own, more) in sockets.iter_mut().zip(of(&mut new)) {
                own.extend(more);
            }
            // One socket alone does not share its port.
            let shares = before > 1 || cores == 1;
            let mode = if shares { AcceptMode::ReusePort } else { AcceptMode::HandOver };
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
    fn what_is_no_listening_socket_of_that_kind_is_not_adopted() {
        let pair = UnixStream::pair().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = Address::Unix("/tmp/x".into());
        assert!(Bound::adopt(unix.clone(), vec![pair.0.into()], 1, Options::default()).is_err());
        assert!(Bound::adopt(unix, vec![tcp.into()], 1, Options::default()).is_err());
    }

    #[test]
    fn a_socket_that_ignores_new_clients_still_has_those_of_its_queue() {
        let mut bound = Bound::new(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let Address::Tcp(target) = *bound.address() else { unreachable!("it is TCP") };
        let listener = bound.take(0, 0).unwrap();
        assert!(!listener.is_waited_at());
        let mut client = std::net::TcpStream::connect(target).unwrap();
        listener.ignore_new().unwrap();
        assert!(listener.is_waited_at());
        let wait = std::time::Duration::from_millis(200);
        assert!(std::net::TcpStream::connect_timeout(&target, wait).is_err());
        let (accepted, _) = acceptfrom_with(&listener, SocketFlags::CLOEXEC).unwrap();
        drop(listener);
        // What it sends and gets afterwards passes.
        let mut accepted = std::net::TcpStream::from(accepted);
        for _ in 0..2 {
            io::Write::write_all(&mut client, b"x").unwrap();
            io::Read::read_exact(&mut accepted, &mut [0]).unwrap();
        }
    }

    #[test]
    fn the_file_of_a_unix_socket_goes_with_its_last_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut old = Bound::new(&Address::Unix(path.clone()), 1).unwrap();
        let passed = copies(&mut old, 1);
        let again = passed[0].try_clone().unwrap();
        let new = Bound::adopt(old.address().clone(), passed, 2, Options::default()).unwrap();
        // One that fails before the other has left takes nothing with it.
        drop(new);
        assert!(path.exists());
        let passed = vec![again];
        let mut new = Bound::adopt(old.address().clone(), passed, 2, Options::default()).unwrap();
        old.leave_file();
        drop(old);
        assert!(path.exists());
        new.take_over();
        drop(new);
        assert!(!path.exists());
    }

    async fn accept_one(listener: Listener) -> Handover {
        let (board, _inboxes) = Board::new(1).unwrap();
        let timers = Timers::start().unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let accepting = listener.accept(&board, 0, &timers, |accepted| {
            let _ = sender.send(accepted);
        });
        tokio::select! {
            _ = accepting => unreachable!("it accepts for ever"),
            accepted = receiver.recv() => match accepted {
                Some(Accepted::Connection(handover)) => handover,
                other => panic!("{other:?}"),
            },
        }
    }

    #[test]
    fn a_left_over_unix_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        end(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = Address::Unix(path.clone());
        let live = Bound::new(&address, 2).unwrap();
        assert_eq!(live.mode(), AcceptMode::HandOver);
        assert!(Bound::new(&address, 2).is_err());
        drop(live);
        assert!(!path.exists());
    }
}
