//! The process's listening sockets: maps each bound address to its configured listener, and binds,
//! inherits, hands off and closes the sockets at a reload or an upgrade. Cores have their own copies of
//! the sockets and accept on them (`run`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use record::units::format_plural;
use rt::address::Address;
use rt::clock::{MILLISECOND_NS, MonotonicTime};
use rt::conn_balancer::ConnectionBalancer;
use rt::listen::{BindOptions, BoundAddress, Listener};
use rt::namespace::Namespace;
use rt::unix_socket::set_access;

use super::handover::{Handoff, InheritedSockets, ListenerTickets, OfferedSocket, SocketKind, SocketLabel};
use crate::plan::{ListenerPlan, Mode, Plan};
use crate::run::ACCEPT_QUEUE_DRAIN_NS;

/// All listening addresses. The index of an address is the `socket_index` of its sockets, and is never
/// reused.
#[derive(Debug, Default)]
pub(crate) struct ListenAddresses {
    addresses: Vec<ListenAddress>,
    closing: Vec<ClosingAddress>,
}

#[derive(Debug)]
struct ListenAddress {
    /// Address from the config. If its port is 0, each bind gets another port.
    configured: Address,
    namespace: Option<PathBuf>,
    /// `None`: the address is closing or closed.
    bound: Option<BoundAddress>,
    /// This thread's copies of the sockets, for a handoff and a reopened address. They also make the
    /// sockets visible to `ss -ltnp`: the cores' copies are in descriptor tables of their own, and `ss`
    /// reads only that of the process's first thread.
    local_copies: Vec<Listener>,
    listener: usize,
}

/// A closing address: the cores still empty its accept queues. Its port is not free yet, so a new plan
/// with the same address gets the same sockets.
#[derive(Debug)]
struct ClosingAddress {
    socket_index: usize,
    configured: Address,
    namespace: Option<PathBuf>,
    actual: Address,
    sockets: Vec<Listener>,
    close_at: MonotonicTime,
}

/// Delay between the close of the sockets in the cores and the close of this thread's copies.
const CLOSE_DELAY_NS: u64 = 20 * MILLISECOND_NS;

impl ListenAddresses {
    /// Binds the plan's addresses that are not bound yet, or takes their sockets from `inherited` or from
    /// a closing address.
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
                let existing = self.addresses.iter().enumerate().position(|(socket_index, entry)| {
                    entry.matches(address, namespace.as_ref()) && !used_sockets.contains(&socket_index)
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
                        // With another process, the takeover completes later: in `take_over`.
                        if inherited.is_none() {
                            bound.complete_takeover();
                        }
                        bound
                    }
                    None => BoundAddress::with_options(address, cores, options)?,
                };
                used_sockets.push(self.addresses.len());
                let (configured, namespace) = (address.clone(), namespace.clone());
                let (bound, local_copies) = (Some(bound), Vec::new());
                self.addresses.push(ListenAddress {
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

    /// Returns copies of the sockets of the closing address with this config, if there is one.
    fn reclaim_closing(
        &self,
        configured: &Address,
        namespace: &Option<PathBuf>,
    ) -> io::Result<Option<(Address, Vec<OwnedFd>)>> {
        let matches = |closing: &&ClosingAddress| {
            closing.configured == *configured && closing.namespace == *namespace && !closing.is_ephemeral()
        };
        let Some(closing) = self.closing.iter().find(matches) else { return Ok(None) };
        let sockets = closing.sockets.iter().map(clone_fd).collect::<io::Result<_>>()?;
        Ok(Some((closing.actual.clone(), sockets)))
    }

    /// Changes mode and owner of the unix socket files whose settings differ between `previous` and
    /// `plan`.
    pub(crate) fn set_socket_file_access(plan: &Plan, previous: &Plan) -> io::Result<()> {
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

    /// Returns the current state, for [`Self::roll_back_to`].
    pub(crate) fn checkpoint(&self) -> usize {
        self.addresses.len()
    }

    /// Closes the addresses that were opened since `checkpoint`, because their plan was rejected.
    pub(crate) fn roll_back_to(&mut self, checkpoint: usize) {
        self.addresses.truncate(checkpoint);
        // The rejected plan may have reclaimed a closing address, which removed its filter.
        self.closing.iter().for_each(|closing| ignore_new_connections(&closing.sockets));
    }

    /// Returns the listener of each listening address, by its index; `None` for a closed address.
    pub(crate) fn listener_of_socket(&self) -> Vec<Option<usize>> {
        self.addresses.iter().map(|entry| entry.bound.is_some().then_some(entry.listener)).collect()
    }

    /// Completes the takeover of inherited sockets, after the previous process has handed off.
    pub(crate) fn take_over(&mut self) {
        self.addresses
            .iter_mut()
            .filter_map(|entry| entry.bound.as_mut())
            .for_each(BoundAddress::complete_takeover);
    }

    /// Sends each core its new listening sockets. Cores have their own descriptor tables, so sockets that
    /// were bound here must be sent.
    pub(crate) fn send_to_cores(&mut self, balancer: &ConnectionBalancer) -> io::Result<()> {
        for (index, entry) in self.addresses.iter_mut().enumerate() {
            if let Some(bound) = &mut entry.bound {
                entry.local_copies.extend(balancer.send_listeners(bound, index)?);
            }
        }
        Ok(())
    }

    /// Maps the plan's addresses to its listeners, and starts to close the others: the kernel drops their
    /// SYNs while the cores empty the accept queues. Returns whether any address closes.
    pub(crate) fn apply_plan(&mut self, plan: &Plan) -> bool {
        let mut is_used = vec![false; self.addresses.len()];
        for (index, listener) in plan.listeners.iter().enumerate() {
            for address in &listener.bind {
                let matches = |(socket_index, entry): (usize, &ListenAddress)| {
                    !is_used[socket_index] && entry.matches(address, listener.namespace.as_ref())
                };
                if let Some(socket_index) = self.addresses.iter().enumerate().position(matches) {
                    is_used[socket_index] = true;
                    self.addresses[socket_index].listener = index;
                }
            }
        }
        // Addresses that the plan uses again are bound by now.
        let bound_again: Vec<Address> =
            self.addresses.iter().filter_map(|entry| Some(entry.bound.as_ref()?.address().clone())).collect();
        self.closing.retain(|closing| !bound_again.contains(&closing.actual));
        let count_before = self.closing.len();
        for (socket_index, (entry, is_used)) in self.addresses.iter_mut().zip(is_used).enumerate() {
            if !is_used && let Some(bound) = entry.bound.take() {
                ignore_new_connections(&entry.local_copies);
                self.closing.push(ClosingAddress {
                    socket_index,
                    configured: entry.configured.clone(),
                    namespace: entry.namespace.clone(),
                    actual: bound.address().clone(),
                    sockets: std::mem::take(&mut entry.local_copies),
                    close_at: MonotonicTime::now() + ACCEPT_QUEUE_DRAIN_NS + CLOSE_DELAY_NS,
                });
            }
        }
        self.closing.len() > count_before
    }

    /// Closes this thread's copies of the sockets that the cores have closed.
    pub(crate) fn close_expired(&mut self, now: MonotonicTime) {
        self.closing.retain(|closing| now < closing.close_at);
    }

    /// Closes this thread's copies for the drain. The kernel drops SYNs while the cores empty the accept
    /// queues; then the cores close their copies.
    pub(crate) fn stop_listening(&mut self) {
        for entry in &mut self.addresses {
            ignore_new_connections(&entry.local_copies);
            entry.local_copies.clear();
        }
        self.closing.clear();
    }

    /// Copies all sockets for another process. That includes those of closing addresses, because the
    /// process may need their ports.
    pub(crate) fn offered_sockets(&self, plan: &Plan) -> io::Result<Vec<OfferedSocket>> {
        let mut offered = Vec::new();
        let mut add = |label: SocketLabel, sockets: &[Listener]| {
            for socket in sockets {
                offered.push(OfferedSocket { label: label.clone(), socket: clone_fd(socket)? });
            }
            Ok::<_, io::Error>(())
        };
        let label =
            |socket_index, configured: &Address, actual: &Address, namespace: &Option<PathBuf>| SocketLabel {
                kind: SocketKind::Listener,
                socket_index,
                configured: configured.to_string(),
                address: actual.to_string(),
                namespace: namespace.clone(),
                tickets: None,
            };
        for (index, entry) in self.addresses.iter().enumerate() {
            if let Some(bound) = &entry.bound {
                let tickets = plan.listeners.get(entry.listener).and_then(ListenerTickets::of);
                let label = label(index, &entry.configured, bound.address(), &entry.namespace);
                add(SocketLabel { tickets, ..label }, &entry.local_copies)?;
            }
        }
        for closing in self.closing.iter().filter(|closing| !closing.is_ephemeral()) {
            let ClosingAddress { socket_index, configured, namespace, actual, sockets, .. } = closing;
            add(label(*socket_index, configured, actual, namespace), sockets)?;
        }
        Ok(offered)
    }

    /// Hands off the sockets that another process has taken: closes this thread's copies, and keeps the
    /// files of unix sockets. Returns, by the index of the address, whether it was taken.
    pub(crate) fn hand_off(&mut self, handoff: &Handoff) -> Vec<bool> {
        self.closing.clear();
        let hand_off = |(index, entry): (usize, &mut ListenAddress)| {
            let is_taken = handoff.includes(SocketKind::Listener, index);
            if let (true, Some(bound)) = (is_taken, &mut entry.bound) {
                bound.keep_file();
                entry.local_copies.clear();
            }
            is_taken
        };
        self.addresses.iter_mut().enumerate().map(hand_off).collect()
    }

    /// Returns the open listening addresses, for display.
    pub(crate) fn listen_addresses(&self, plan: &Plan) -> Vec<ListenAddressInfo> {
        let listen_address = |entry: &ListenAddress| {
            let bound = entry.bound.as_ref()?;
            let listener = &plan.listeners[entry.listener];
            Some(ListenAddressInfo {
                listener: listener.name.clone(),
                address: bound.address().clone(),
                scheme: scheme_of(listener),
                accept_mode: bound.mode().describe(),
            })
        };
        self.addresses.iter().filter_map(listen_address).collect()
    }
}

impl ListenAddress {
    fn matches(&self, address: &Address, namespace: Option<&PathBuf>) -> bool {
        let is_same_address = self.configured == *address && self.namespace.as_ref() == namespace;
        is_same_address && self.bound.is_some()
    }
}

impl ClosingAddress {
    /// Returns whether the configured port is 0, or the address is a unix socket. Such sockets are not
    /// reused: the kernel chose the port, or the socket's file is removed.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddressInfo {
    pub listener: Box<str>,
    /// Listening address, with the port that the kernel chose.
    pub address: Address,
    /// Scheme of its URLs; `tcp` and `tls` in mode tcp.
    pub scheme: &'static str,
    /// Description of how connections reach the cores.
    pub accept_mode: &'static str,
}

impl ListenAddressInfo {
    /// Returns the line by which a proxy with so many threads reports that it listens there.
    pub fn announcement(&self, threads: usize) -> String {
        let shown = match &self.address {
            Address::Tcp(address) => format!("{}://{address}/", self.scheme),
            unix @ Address::Unix(_) => unix.to_string(),
        };
        format!(
            "listening on {shown} (listener {}; {}; {})\n",
            self.listener,
            format_plural(threads as u64, "thread"),
            self.accept_mode
        )
    }
}

/// The admin pages' address, which has one socket.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    configured: Address,
    bound: BoundAddress,
    /// This thread's copy; `None`: another process has taken the socket.
    local_copy: Option<Listener>,
}

impl AdminSocket {
    /// Binds the address, or adopts its inherited socket. Also returns the listener for the accept loop.
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

    /// Completes the takeover of an inherited socket, after the previous process has handed off.
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
            tickets: None,
        };
        Ok(Some(OfferedSocket { label, socket: clone_fd(socket)? }))
    }

    /// Hands off the socket if another process has taken it. Returns whether it has.
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
        // Without the filter, connections that arrive just before the close are reset instead of refused.
        let _ = listener.ignore_new_connections();
    }
}
