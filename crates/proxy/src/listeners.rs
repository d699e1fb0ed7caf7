//! The bound addresses, as seen from outside the cores: which listening address belongs to which listener, and
//! which addresses are newly bound, taken over from another process, passed on, or closed. Cores
//! have their own copies of the sockets and accept on them (`run`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rt::address::Address;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::conn_balancer::ConnectionBalancer;
use rt::listen::{BindOptions, BoundAddress, Listener};
use rt::namespace::Namespace;
use rt::unix_socket::set_access;

use crate::handover::{Handoff, InheritedSockets, OfferedSocket, SocketKind, SocketLabel};
use crate::plan::{ListenerPlan, Mode, Plan};
use crate::run::CLOSING_NS;

/// All listening addresses; their numbers are never reused.
#[derive(Debug, Default)]
pub(crate) struct BoundSockets {
    sockets: Vec<BoundSocket>,
    closing: Vec<ClosingSocket>,
}

/// A bound address.
#[derive(Debug)]
struct BoundSocket {
    /// Address from the config. If its port is 0, each bind gets another port.
    configured: Address,
    namespace: Option<PathBuf>,
    /// `None`: the listening address is closed, and its number is not reused.
    bound: Option<BoundAddress>,
    /// This thread's copies of the sockets. The cores' copies are in other descriptor tables, and
    /// system tools (`ss -ltnp`) only show the sockets of the process's first thread.
    local_copies: Vec<Listener>,
    listener: usize,
}

/// A listening address whose accept queue the cores still empty. Its port is not free yet, so a new plan with
/// the same address gets the same sockets.
#[derive(Debug)]
struct ClosingSocket {
    socket_index: usize,
    configured: Address,
    namespace: Option<PathBuf>,
    actual: Address,
    sockets: Vec<Listener>,
    close_at_ns: u64,
}

/// Delay between the cores' close of a listening address and the close of its last copies.
const CLOSE_DELAY_NS: u64 = 20 * MILLISECOND_NS;

impl BoundSockets {
    /// Binds the plan's addresses that are not bound yet.
    pub(crate) fn open(
        &mut self,
        plan: &Plan,
        cores: usize,
        mut inherited: Option<&mut InheritedSockets>,
    ) -> io::Result<()> {
        let mut used_sockets = Vec::new();
        for (index, listener) in plan.listeners.iter().enumerate() {
            for address in &listener.bind {
                let namespace = &listener.namespace;
                let existing = self.sockets.iter().enumerate().position(|(socket_index, socket)| {
                    socket.matches(address, namespace.as_ref()) && !used_sockets.contains(&socket_index)
                });
                if let Some(socket_index) = existing {
                    used_sockets.push(socket_index);
                    continue;
                }
                let opened_namespace = namespace.as_deref().map(Namespace::open).transpose()?;
                let backlog = listener.admission.backlog;
                let access = listener.unix_access;
                let options = BindOptions { namespace: opened_namespace.as_ref(), backlog, access };
                let inherited_sockets = inherited.as_mut().and_then(|inherited| {
                    inherited.take(SocketKind::Listener, address, namespace.as_deref())
                });
                let inherited_sockets = inherited_sockets
                    .map_or_else(|| self.reclaim_closing(address, namespace), |sockets| Ok(Some(sockets)));
                let bound = match inherited_sockets? {
                    Some((actual, sockets)) => {
                        let mut bound = BoundAddress::adopt(actual, sockets, cores, options)?;
                        // Without another process, ownership is final now; with one, it is settled
                        // later.
                        if inherited.is_none() {
                            bound.complete_takeover();
                        }
                        bound
                    }
                    None => BoundAddress::with_options(address, cores, options)?,
                };
                used_sockets.push(self.sockets.len());
                let (configured, namespace) = (address.clone(), namespace.clone());
                let (bound, local_copies) = (Some(bound), Vec::new());
                self.sockets.push(BoundSocket {
                    configured,
                    namespace,
                    bound,
                    local_copies,
                    listener: index,
                });
            }
        }
        Ok(())
    }

    /// Returns the sockets of a closing listening address with this address.
    fn reclaim_closing(
        &self,
        configured: &Address,
        namespace: &Option<PathBuf>,
    ) -> io::Result<Option<(Address, Vec<OwnedFd>)>> {
        let matches = |closing: &&ClosingSocket| {
            closing.configured == *configured && closing.namespace == *namespace && !closing.is_ephemeral()
        };
        let Some(closing) = self.closing.iter().find(matches) else { return Ok(None) };
        let sockets = closing.sockets.iter().map(clone_fd).collect::<io::Result<_>>()?;
        Ok(Some((closing.actual.clone(), sockets)))
    }

    /// Sets the access rights of unix socket files to those of a plan, if they differ from those of
    /// `previous`.
    pub(crate) fn set_access(plan: &Plan, previous: &Plan) -> io::Result<()> {
        for listener in plan.listeners.iter() {
            for address in &listener.bind {
                let Address::Unix(path) = address else { continue };
                let old = previous.listeners.iter().find(|old| old.bind.contains(address));
                if old.is_some_and(|old| old.unix_access != listener.unix_access) {
                    set_access(path, listener.unix_access).map_err(|error| {
                        let text = format!("{address}: cannot change mode or owner: {error}");
                        io::Error::new(error.kind(), text)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of listening addresses, for [`Self::truncate`].
    pub(crate) fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Closes the addresses beyond the first `count`, because their plan was rejected.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.sockets.truncate(count);
        // One of them may be an address that was closing, and continues to close.
        self.closing.iter().for_each(|closing| ignore_new_connections(&closing.sockets));
    }

    /// Returns, for each listening address, the listener that it belongs to.
    pub(crate) fn listener_of_socket(&self) -> Vec<Option<usize>> {
        self.sockets.iter().map(|socket| socket.bound.is_some().then_some(socket.listener)).collect()
    }

    /// Takes ownership of the sockets, once the previous process has left.
    pub(crate) fn take_over(&mut self) {
        self.sockets
            .iter_mut()
            .filter_map(|socket| socket.bound.as_mut())
            .for_each(BoundAddress::complete_takeover);
    }

    /// Sends the cores the listening sockets that they have not got yet. Cores have their own
    /// descriptor tables, so sockets that were bound here must be sent.
    pub(crate) fn send_to_cores(&mut self, balancer: &ConnectionBalancer, cores: usize) -> io::Result<()> {
        for (index, socket) in self.sockets.iter_mut().enumerate() {
            for core in 0..cores {
                while let Some(listener) =
                    socket.bound.as_mut().and_then(|bound| bound.take_listener(core, index))
                {
                    balancer.send_listener(core, &listener)?;
                    socket.local_copies.push(listener);
                }
            }
        }
        Ok(())
    }

    /// Assigns the listening addresses of a plan to their listeners, and closes the others: the cores empty their
    /// queues, while the kernel ignores new connections. Returns whether any listening address closes.
    pub(crate) fn assign(&mut self, plan: &Plan) -> bool {
        let mut is_used = vec![false; self.sockets.len()];
        for (index, listener) in plan.listeners.iter().enumerate() {
            for address in &listener.bind {
                let matches = |(socket_index, socket): (usize, &BoundSocket)| {
                    !is_used[socket_index] && socket.matches(address, listener.namespace.as_ref())
                };
                if let Some(socket_index) = self.sockets.iter().enumerate().position(matches) {
                    is_used[socket_index] = true;
                    self.sockets[socket_index].listener = index;
                }
            }
        }
        // Addresses that the plan uses again are bound by now.
        let bound_again: Vec<Address> =
            self.sockets.iter().filter_map(|socket| Some(socket.bound.as_ref()?.address().clone())).collect();
        self.closing.retain(|closing| !bound_again.contains(&closing.actual));
        let count_before = self.closing.len();
        for (number, (socket, is_used)) in self.sockets.iter_mut().zip(is_used).enumerate() {
            if !is_used && let Some(bound) = socket.bound.take() {
                ignore_new_connections(&socket.local_copies);
                self.closing.push(ClosingSocket {
                    socket_index: number,
                    configured: socket.configured.clone(),
                    namespace: socket.namespace.clone(),
                    actual: bound.address().clone(),
                    sockets: std::mem::take(&mut socket.local_copies),
                    close_at_ns: now_ns() + CLOSING_NS + CLOSE_DELAY_NS,
                });
            }
        }
        self.closing.len() > count_before
    }

    /// Closes the last copies of listening addresses that the cores have closed.
    pub(crate) fn close_expired(&mut self, now_ns: u64) {
        self.closing.retain(|closing| now_ns < closing.close_at_ns);
    }

    /// Closes this thread's copies for the drain. The cores empty the accept queues before they
    /// close theirs, while the kernel ignores new connections.
    pub(crate) fn stop_listening(&mut self) {
        for socket in &mut self.sockets {
            ignore_new_connections(&socket.local_copies);
            socket.local_copies.clear();
        }
        self.closing.clear();
    }

    /// Copies all sockets for another process. That includes closing ones, because the process may
    /// need their ports.
    pub(crate) fn offered_sockets(&self) -> io::Result<Vec<OfferedSocket>> {
        let mut offered = Vec::new();
        let mut add =
            |socket_index, configured: &Address, actual: &Address, namespace: &Option<PathBuf>, sockets| {
                for socket in sockets {
                    let label = SocketLabel {
                        kind: SocketKind::Listener,
                        socket_index,
                        configured: configured.to_string(),
                        address: actual.to_string(),
                        namespace: namespace.clone(),
                    };
                    offered.push(OfferedSocket { label, socket: clone_fd(socket)? });
                }
                Ok::<_, io::Error>(())
            };
        for (index, socket) in self.sockets.iter().enumerate() {
            if let Some(bound) = &socket.bound {
                add(index, &socket.configured, bound.address(), &socket.namespace, &socket.local_copies)?;
            }
        }
        for closing in self.closing.iter().filter(|closing| !closing.is_ephemeral()) {
            let ClosingSocket { socket_index, configured, namespace, actual, sockets, .. } = closing;
            add(*socket_index, configured, actual, namespace, sockets)?;
        }
        Ok(offered)
    }

    /// Leaves the sockets that another process has taken. Returns, for each listening address, whether it was
    /// taken.
    pub(crate) fn hand_off(&mut self, handoff: &Handoff) -> Vec<bool> {
        self.closing.clear();
        let hand_off = |(index, socket): (usize, &mut BoundSocket)| {
            let is_taken = handoff.includes(SocketKind::Listener, index);
            if let (true, Some(bound)) = (is_taken, &mut socket.bound) {
                bound.keep_file();
                socket.local_copies.clear();
            }
            is_taken
        };
        self.sockets.iter_mut().enumerate().map(hand_off).collect()
    }

    /// Returns the listening addresses, for display.
    pub(crate) fn listen_addresses(&self, plan: &Plan) -> Vec<ListenAddress> {
        let listen_address = |socket: &BoundSocket| {
            let bound = socket.bound.as_ref()?;
            let listener = &plan.listeners[socket.listener];
            Some(ListenAddress {
                listener: listener.name.clone(),
                address: bound.address().clone(),
                scheme: scheme_of(listener),
                accept_mode: bound.mode().describe(),
            })
        };
        self.sockets.iter().filter_map(listen_address).collect()
    }
}

impl BoundSocket {
    fn matches(&self, address: &Address, namespace: Option<&PathBuf>) -> bool {
        let is_same_address = self.configured == *address && self.namespace.as_ref() == namespace;
        is_same_address && self.bound.is_some()
    }
}

impl ClosingSocket {
    /// Returns whether the configured port was 0, or the address is a unix socket. Such sockets
    /// cannot be reused: the port was arbitrary, the socket's file is gone.
    fn is_ephemeral(&self) -> bool {
        match &self.configured {
            Address::Tcp(configured) => configured.port() == 0,
            Address::Unix(_) => true,
        }
    }
}

fn scheme_of(listener: &ListenerPlan) -> &'static str {
    match (listener.mode, listener.tls.is_some()) {
        (Mode::Http, false) => "http",
        (Mode::Http, true) => "https",
        (Mode::Tcp(_), false) => "tcp",
        (Mode::Tcp(_), true) => "tls",
    }
}

/// A listening address, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// The listener's name.
    pub listener: Box<str>,
    /// Listening address, with the port that the kernel chose.
    pub address: Address,
    /// Scheme of its URLs; `tcp` and `tls` in mode tcp.
    pub scheme: &'static str,
    /// Description of how connections reach the cores.
    pub accept_mode: &'static str,
}

/// The admin pages' address, which has one socket.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    configured: Address,
    bound: BoundAddress,
    /// This thread's copy; `None`: another process has it.
    local_copy: Option<Listener>,
}

impl AdminSocket {
    /// Binds the address, or takes it over. Also returns the listener to use.
    pub(crate) fn open(
        configured: &Address,
        inherited: Option<&mut InheritedSockets>,
    ) -> io::Result<(Self, Listener)> {
        let inherited_sockets =
            inherited.and_then(|inherited| inherited.take(SocketKind::Admin, configured, None));
        let mut bound = match inherited_sockets {
            Some((address, sockets)) => BoundAddress::adopt(address, sockets, 1, BindOptions::default())?,
            None => BoundAddress::new(configured, 1)?,
        };
        let listener = bound.take_listener(0, 0).ok_or(io::ErrorKind::NotFound)?;
        let socket = Some(listener.try_clone()?);
        Ok((Self { configured: configured.clone(), bound, local_copy: socket }, listener))
    }

    pub(crate) fn address(&self) -> &Address {
        self.bound.address()
    }

    /// Takes ownership of the socket, once the previous process has left.
    pub(crate) fn take_over(&mut self) {
        self.bound.complete_takeover();
    }

    /// Returns a copy for another process.
    pub(crate) fn offered_socket(&self) -> io::Result<Option<OfferedSocket>> {
        let Some(socket) = &self.local_copy else { return Ok(None) };
        let label = SocketLabel {
            kind: SocketKind::Admin,
            socket_index: 0,
            configured: self.configured.to_string(),
            address: self.bound.address().to_string(),
            namespace: None,
        };
        Ok(Some(OfferedSocket { label, socket: clone_fd(socket)? }))
    }

    /// Leaves the socket to another process, if it has taken it. Returns whether it has.
    pub(crate) fn hand_off(&mut self, handoff: &Handoff) -> bool {
        let is_taken = handoff.includes(SocketKind::Admin, 0);
        if is_taken {
            self.bound.keep_file();
            self.local_copy = None;
        }
        is_taken
    }
}

fn clone_fd(listener: &Listener) -> io::Result<OwnedFd> {
    listener.as_fd().try_clone_to_owned()
}

fn ignore_new_connections(listeners: &[Listener]) {
    for listener in listeners {
        // If this fails, the last connections are reset instead of refused.
        let _ = listener.ignore_new_connections();
    }
}
