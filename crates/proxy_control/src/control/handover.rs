//! Replacement of a process without a refused connection: the old process passes its listening
//! sockets to the new one, which takes over those in its own config. This module is the protocol.
//! The transport of descriptors is in [`rt::fd_stream`], the handling of the sockets in `listeners`.
//!
//! ```text
//! new                                     old
//! upgrade                  ->
//!                          <-             ok
//!                          <-             {"kind":"listener","socket_index":0,…} and a socket, for each
//!                          <-             end
//! (binds new addresses, starts its cores)
//! ready {"taken":[…],…}    ->
//!                          <-             ok: from here on there is no way back
//!                          <-             left: it accepts no more
//! (accepts)                               (drains)
//! ```
//! All sockets of a listener address go together. The kernel resets connections in the accept queue of a socket
//! without owner, even if others share its port, unless `net.ipv4.tcp_migrate_req` is set. If the
//! new process leaves before it is ready, the old one has lost nothing: both have the same sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rt::address::Address;
use rt::fd_stream::FdStream;
use rt::tls::TicketKeyExport;
use rt::unix_socket::{effective_uid, peer_credentials};
use serde::{Deserialize, Serialize};

use crate::plan::{ListenerPlan, Plan};

/// Name of the command on the control socket.
pub const COMMAND: &str = "upgrade";
/// Timeout of each step, except for getting ready.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of the new process from the receipt of the sockets until it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const SOCKETS_MAX: usize = rt::fd_stream::PENDING_FDS_MAX;
/// Maximum length of a control group's name in bytes.
const CGROUP_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SocketKind {
    Listener,
    Admin,
    Control,
}

/// Description of a passed socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketLabel {
    pub(crate) kind: SocketKind,
    pub(crate) socket_index: usize,
    /// Address from the config.
    pub(crate) configured: String,
    pub(crate) address: String,
    pub(crate) namespace: Option<PathBuf>,
    /// Session tickets of its listener; older versions of weir send and read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tickets: Option<ListenerTickets>,
}

/// Keys of session tickets of a listener. The socket that they go through is only its owner's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListenerTickets {
    listener: Box<str>,
    binding: Vec<u8>,
    rotates_at_s: u64,
    keys: Vec<(Vec<u8>, Vec<u8>, u64)>,
}

impl ListenerTickets {
    /// Copies the keys of a listener; `None`: it has no TLS, or its keys come from files.
    pub(crate) fn of(listener: &ListenerPlan) -> Option<Self> {
        let export = listener.tls.as_ref()?.server.export_tickets()?;
        let TicketKeyExport { binding, rotates_at_s, keys } = export;
        Some(Self { listener: listener.name.clone(), binding, rotates_at_s, keys })
    }
}

impl std::fmt::Debug for ListenerTickets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ListenerTickets({}, {} keys)", self.listener, self.keys.len())
    }
}

/// A socket that can be passed on.
#[derive(Debug)]
pub struct OfferedSocket {
    pub(crate) label: SocketLabel,
    pub(crate) socket: OwnedFd,
}

/// The sockets that the new process has taken over, and its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handoff {
    pub(crate) sockets: Vec<(SocketKind, usize)>,
    /// Process id; `None`: the kernel does not report it.
    pub process: Option<u32>,
    /// True if it is in the same control group as this process, so that a service manager treats
    /// both as the same service.
    pub same_service: bool,
}

impl Handoff {
    pub(crate) fn includes(&self, kind: SocketKind, socket_index: usize) -> bool {
        self.sockets.contains(&(kind, socket_index))
    }
}

/// Message of the new process when it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct ReadyMessage {
    taken: Vec<(SocketKind, usize)>,
    group: String,
}

/// Request of the control socket to the owner of the process.
#[derive(Debug)]
pub enum UpgradeCommand {
    /// Send copies of the listening sockets; send nothing if there are none.
    OfferSockets(mpsc::SyncSender<Vec<OfferedSocket>>),
    /// Another process has these sockets now: stop accepting, confirm, drain, exit.
    HandOff(Handoff, mpsc::SyncSender<()>),
    /// The other process has left without taking anything over; nothing changes.
    Abort,
}

/// Passes the sockets on to the process that has sent [`COMMAND`]. Returns whether a new process
/// has taken over; if not, nothing has changed. Meanwhile no offered listening socket may be
/// closed: the other process shares it, and would get no new connections on it either.
///
/// # Errors
/// The other side took too long, left, or sent an invalid message.
pub fn hand_off_sockets(
    stream: UnixStream,
    send_command: &mut dyn FnMut(UpgradeCommand),
) -> io::Result<bool> {
    let own_cgroup = own_cgroup();
    let mut fd_stream = FdStream::new(stream, STEP_TIMEOUT)?;
    let (reply, offered) = mpsc::sync_channel(1);
    send_command(UpgradeCommand::OfferSockets(reply));
    let Ok(offered) = offered.recv_timeout(STEP_TIMEOUT) else {
        fd_stream.send_line("error: this process has already been replaced, or is stopping")?;
        return Ok(false);
    };
    fd_stream.send_line("ok")?;
    for socket in &offered {
        fd_stream.send_line_with_fd(&serde_json::to_string(&socket.label)?, socket.socket.as_fd())?;
    }
    fd_stream.send_line("end")?;
    // The kernel holds the copies in transit.
    drop(offered);
    fd_stream.set_timeout(READY_TIMEOUT);
    let line = fd_stream.receive_line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let Some(json) = line.strip_prefix("ready ") else {
        fd_stream.send_line("error: invalid message")?;
        return Err(protocol_error(&line));
    };
    let ReadyMessage { taken, group } = serde_json::from_str(json).map_err(|_| protocol_error(&line))?;
    let process = fd_stream.peer_credentials().ok().and_then(|peer| u32::try_from(peer.pid).ok());
    // The new process accepts only after this message. If it has left, sending fails.
    fd_stream.set_timeout(STEP_TIMEOUT);
    fd_stream.send_line("ok")?;
    let same_service = !group.is_empty() && group == own_cgroup;
    let (reply, handed_off) = mpsc::sync_channel(1);
    send_command(UpgradeCommand::HandOff(Handoff { sockets: taken, process, same_service }, reply));
    if handed_off.recv_timeout(STEP_TIMEOUT).is_ok() {
        // Without this message the new process still accepts, only later.
        let _ = fd_stream.send_line("left");
    }
    Ok(true)
}

/// The sockets that a new process got from the old one, and the connection to it.
#[derive(Debug)]
pub struct InheritedSockets {
    fd_stream: FdStream,
    socket_sets: Vec<SocketSet>,
}

/// All sockets of one listener address.
#[derive(Debug)]
struct SocketSet {
    label: SocketLabel,
    sockets: Vec<OwnedFd>,
    is_taken: bool,
}

impl InheritedSockets {
    /// Requests the listening sockets of the process with this control socket. `None`: no process
    /// listens there, so there is nothing to take over. `user` is the user that this process changes to.
    ///
    /// # Errors
    /// The process cannot be reached, refused, or is of another user. The message has the path.
    pub fn request(control: &Path, user: Option<u32>) -> io::Result<Option<Self>> {
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", control.display()));
        let no_listener = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        match UnixStream::connect(control) {
            Ok(stream) => {
                let owner = peer_credentials(&stream).map_err(with_path)?.uid;
                check_owner(owner, effective_uid(), user).map_err(with_path)?;
                Self::receive(stream).map(Some).map_err(with_path)
            }
            Err(error) if no_listener.contains(&error.kind()) => Ok(None),
            Err(error) => Err(with_path(error)),
        }
    }

    fn receive(stream: UnixStream) -> io::Result<Self> {
        let mut fd_stream = FdStream::new(stream, 2 * STEP_TIMEOUT)?;
        fd_stream.send_line(COMMAND)?;
        expect_ok(&mut fd_stream)?;
        let mut sets: Vec<SocketSet> = Vec::new();
        for _ in 0..=SOCKETS_MAX {
            let line = fd_stream.receive_line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line == "end" {
                return Ok(Self { fd_stream, socket_sets: sets });
            }
            let label: SocketLabel = serde_json::from_str(&line).map_err(|_| protocol_error(&line))?;
            let socket = fd_stream.take_fd().ok_or_else(|| protocol_error(&line))?;
            match sets.iter_mut().find(|set| set.label == label) {
                Some(set) => set.sockets.push(socket),
                None => sets.push(SocketSet { label, sockets: vec![socket], is_taken: false }),
            }
        }
        Err(io::Error::other("too many sockets to take over"))
    }

    /// Takes the sockets that are bound to a configured address. Also returns their actual address.
    pub(crate) fn take(
        &mut self,
        kind: SocketKind,
        configured: &Address,
        namespace: Option<&Path>,
    ) -> Option<(Address, Vec<OwnedFd>)> {
        let text = configured.to_string();
        let matches = |set: &&mut SocketSet| {
            let label = &set.label;
            let is_same_address = label.configured == text || label.address == text;
            !set.is_taken && label.kind == kind && is_same_address && label.namespace.as_deref() == namespace
        };
        let set = self.socket_sets.iter_mut().find(matches)?;
        let address: Address = set.label.address.parse().ok()?;
        // Only the kernel chooses another address than the configured one, and only the port of one. The file of a unix
        // socket is removed at the end, so that it must be the configured one.
        if matches!(address, Address::Unix(_)) && address != *configured {
            return None;
        }
        set.is_taken = true;
        Some((address, std::mem::take(&mut set.sockets)))
    }

    /// Continues the session tickets of the other process: those of each listener by its name.
    pub(crate) fn import_tickets(&self, plan: &Plan) {
        for listener in plan.listeners.iter() {
            let mut offered = self.socket_sets.iter().filter_map(|set| set.label.tickets.as_ref());
            let tickets = offered.find(|tickets| tickets.listener == listener.name);
            if let (Some(tickets), Some(tls)) = (tickets, &listener.tls) {
                let ListenerTickets { binding, rotates_at_s, keys, .. } = tickets.clone();
                // Clients that cannot resume make a full handshake.
                let _ = tls.server.import_tickets(&TicketKeyExport { binding, rotates_at_s, keys });
            }
        }
    }

    /// Closes the sockets that were not taken; the other process still has them.
    pub(crate) fn close_untaken(&mut self) {
        self.socket_sets.iter_mut().for_each(|set| set.sockets.clear());
    }

    /// Reports that this process is ready, and waits until the other process stops accepting.
    ///
    /// # Errors
    /// The other process refuses, because it has been replaced or is stopping; or it has ended.
    /// If it has ended, it does not accept either, but the cause may concern this process too.
    pub(crate) fn report_ready(mut self) -> io::Result<()> {
        let taken = self.socket_sets.iter().filter(|set| set.is_taken);
        let taken = taken.map(|set| (set.label.kind, set.label.socket_index)).collect();
        let ready = serde_json::to_string(&ReadyMessage { taken, group: own_cgroup() })?;
        self.fd_stream.set_timeout(STEP_TIMEOUT);
        self.fd_stream.send_line(&format!("ready {ready}"))?;
        expect_ok(&mut self.fd_stream)?;
        // Until the old process has left, both would accept. If it does not confirm, it has ended.
        let _ = self.fd_stream.receive_line();
        Ok(())
    }
}

/// Checks the user of the process that passes its sockets: who passes them could read all requests.
fn check_owner(owner: u32, own_user: u32, configured: Option<u32>) -> io::Result<()> {
    if owner == 0 || owner == own_user || Some(owner) == configured {
        return Ok(());
    }
    let text = format!(
        "the socket is of user {owner}: sockets are taken over only from root, from user {own_user} and from `user` of \
         [privileges]"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn expect_ok(fd_stream: &mut FdStream) -> io::Result<()> {
    match fd_stream.receive_line()?.as_deref() {
        Some("ok") => Ok(()),
        Some(line) => Err(io::Error::other(line.trim_start_matches("error: ").to_owned())),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the old process closed the connection")),
    }
}

fn protocol_error(line: &str) -> io::Error {
    let start: String = line.chars().take(80).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid message: '{start}'"))
}

/// Returns the control group of this process, by which a service manager identifies its service;
/// empty if it cannot be read.
fn own_cgroup() -> String {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let unified = text.lines().find(|line| line.starts_with("0::"));
    unified.filter(|line| line.len() <= CGROUP_BYTES_MAX).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_are_taken_over_from_trusted_users_only() {
        for (owner, own, configured) in
            [(0, 1000, None), (1000, 1000, None), (33, 0, Some(33)), (0, 0, Some(33))]
        {
            assert!(check_owner(owner, own, configured).is_ok(), "{owner}");
        }
        for (owner, own, configured) in [(1000, 0, None), (33, 1000, None), (34, 0, Some(33))] {
            let error = check_owner(owner, own, configured).unwrap_err().to_string();
            assert!(error.contains(&format!("of user {owner}:")), "{error}");
        }
    }

    fn offered_socket(socket_index: usize, configured: &str, listener: &TcpListener) -> OfferedSocket {
        let label = SocketLabel {
            kind: SocketKind::Listener,
            socket_index,
            configured: configured.to_owned(),
            address: listener.local_addr().unwrap().to_string(),
            namespace: None,
            tickets: None,
        };
        OfferedSocket { label, socket: listener.as_fd().try_clone_to_owned().unwrap() }
    }

    /// Runs the old side in a thread. Returns the handoff, if any.
    fn run_old_side(
        stream: UnixStream,
        offered: Vec<OfferedSocket>,
    ) -> std::thread::JoinHandle<(io::Result<bool>, Option<Handoff>)> {
        std::thread::spawn(move || {
            let (mut offered, mut handoff) = (Some(offered), None);
            let mut send_command = |demand| match demand {
                UpgradeCommand::OfferSockets(reply) => drop(offered.take().map(|offers| reply.send(offers))),
                UpgradeCommand::HandOff(taken, reply) => {
                    handoff = Some(taken);
                    reply.send(()).unwrap();
                }
                UpgradeCommand::Abort => {}
            };
            let mut fd_stream = FdStream::new(stream.try_clone().unwrap(), STEP_TIMEOUT).unwrap();
            assert_eq!(fd_stream.receive_line().unwrap().as_deref(), Some(COMMAND));
            let result = hand_off_sockets(stream, &mut send_command);
            (result, handoff)
        })
    }

    #[test]
    fn configured_sockets_are_taken_and_the_rest_closed() {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let offered = vec![
            offered_socket(0, "127.0.0.1:0", &listeners[0]),
            offered_socket(0, "127.0.0.1:0", &listeners[0]),
            offered_socket(4, "127.0.0.1:0", &listeners[1]),
            offered_socket(7, "[::1]:80", &listeners[2]),
        ];
        let (old_end, new_end) = UnixStream::pair().unwrap();
        let old = run_old_side(old_end, offered);
        let mut inherited = InheritedSockets::receive(new_end).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mut take = |configured| inherited.take(SocketKind::Listener, configured, None);
        let (address, sockets) = take(&any).unwrap();
        assert_eq!(address.to_string(), listeners[0].local_addr().unwrap().to_string());
        assert_eq!(sockets.len(), 2);
        // Also by the address that the kernel chose; and no set twice.
        let exact = listeners[1].local_addr().unwrap().to_string().parse().unwrap();
        assert_eq!(take(&exact).unwrap().1.len(), 1);
        assert!(take(&any).is_none() && take(&exact).is_none());
        let other = "[::1]:80".parse().unwrap();
        assert!(inherited.take(SocketKind::Admin, &other, None).is_none());
        assert!(inherited.take(SocketKind::Listener, &other, Some(Path::new("other"))).is_none());
        inherited.close_untaken();
        inherited.report_ready().unwrap();
        let (result, handoff) = old.join().unwrap();
        assert!(result.unwrap());
        let handoff = handoff.unwrap();
        assert_eq!(handoff.sockets, [(SocketKind::Listener, 0), (SocketKind::Listener, 4)]);
        assert!(!handoff.includes(SocketKind::Listener, 7));
        assert_eq!(handoff.process, Some(std::process::id()));
        // It is the same socket.
        let _client = TcpStream::connect(listeners[0].local_addr().unwrap()).unwrap();
        TcpListener::from(sockets.into_iter().next().unwrap()).accept().unwrap();
    }

    #[test]
    fn a_new_process_that_leaves_before_it_is_ready_changes_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (old_end, new_end) = UnixStream::pair().unwrap();
        let old = run_old_side(old_end, vec![offered_socket(0, "127.0.0.1:0", &listener)]);
        drop(InheritedSockets::receive(new_end).unwrap());
        let (result, handoff) = old.join().unwrap();
        assert!(result.is_err() && handoff.is_none());
    }

    #[test]
    fn invalid_messages_are_refused_on_both_sides() {
        let (old_end, new_end) = UnixStream::pair().unwrap();
        let old = run_old_side(old_end, Vec::new());
        let mut fd_stream = FdStream::new(new_end, STEP_TIMEOUT).unwrap();
        fd_stream.send_line(COMMAND).unwrap();
        assert_eq!(fd_stream.receive_line().unwrap().as_deref(), Some("ok"));
        assert_eq!(fd_stream.receive_line().unwrap().as_deref(), Some("end"));
        fd_stream.send_line("steady").unwrap();
        assert!(fd_stream.receive_line().unwrap().unwrap().starts_with("error: "));
        assert!(old.join().unwrap().0.is_err());
        for lines in [
            &["error: no"][..],
            &["ok", "{}"],
            &["ok", "{\"kind\":\"admin\",\"socket_index\":0,\"configured\":\"\",\"address\":\"\"}"],
            &["ok"],
            &[],
        ] {
            let (old_end, new_end) = UnixStream::pair().unwrap();
            let mut fd_stream = FdStream::new(old_end, STEP_TIMEOUT).unwrap();
            for line in lines {
                fd_stream.send_line(line).unwrap();
            }
            drop(fd_stream);
            assert!(InheritedSockets::receive(new_end).is_err(), "{lines:?}");
        }
        assert!(InheritedSockets::request(Path::new("/no/such/weir.sock"), None).unwrap().is_none());
    }
}
