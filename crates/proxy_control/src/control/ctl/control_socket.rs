//! Lifecycle of the control socket: bind, take over from another process, listen, pass on, leave.
//! The commands are handled elsewhere.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rt::address::Address;
use rt::unix_socket::PrivateSocket;

use super::CommandContext;
use super::socket::{self, AcceptThread};
use crate::control::handover::{Handoff, InheritedSockets, OfferedSocket, SocketKind, SocketLabel};
use crate::plan::Plan;

#[derive(Debug)]
pub(crate) struct ControlSocket {
    /// Removed from the file system on drop.
    socket: PrivateSocket,
    /// A copy of the same socket, to pass on; `None`: another process has it.
    shared_fd: Option<OwnedFd>,
    /// The thread that accepts there, once it runs.
    accept_thread: Option<AcceptThread>,
}

impl ControlSocket {
    /// Binds the socket with the initial privileges, owned by the user that the process switches
    /// to; or takes it over. `None`: no control socket is configured.
    pub(crate) fn open(plan: &Plan, inherited: Option<&mut InheritedSockets>) -> io::Result<Option<Self>> {
        let Some(path) = &plan.control else { return Ok(None) };
        let configured = Address::Unix(std::path::absolute(path)?);
        let inherited_socket =
            inherited.and_then(|inherited| inherited.take(SocketKind::Control, &configured, None));
        let inherited_socket = inherited_socket.and_then(|(_, sockets)| sockets.into_iter().next());
        let owner = plan.privileges.user.map(|user| (user, plan.privileges.group));
        let mut socket = match inherited_socket {
            Some(inherited_socket) => PrivateSocket::adopt(path, inherited_socket)?,
            None => PrivateSocket::bind(path, owner)?,
        };
        let listener = socket.take_listener().ok_or(io::ErrorKind::NotFound)?;
        Ok(Some(Self { socket, shared_fd: Some(listener.into()), accept_thread: None }))
    }

    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Takes ownership of the socket file, once the previous process has left.
    pub(crate) fn take_over(&mut self) {
        self.socket.complete_takeover();
    }

    pub(crate) fn listen(&mut self, context: CommandContext) -> io::Result<()> {
        let Some(shared_fd) = &self.shared_fd else { return Ok(()) };
        let listener = UnixListener::from(shared_fd.try_clone()?);
        self.accept_thread = Some(socket::start(listener, context)?);
        Ok(())
    }

    /// Returns a copy for another process.
    pub(crate) fn offered_socket(&self) -> io::Result<Option<OfferedSocket>> {
        let Some(shared_fd) = &self.shared_fd else { return Ok(None) };
        let address = Address::Unix(std::path::absolute(self.path())?).to_string();
        let (configured, namespace) = (address.clone(), None);
        let label = SocketLabel {
            kind: SocketKind::Control,
            socket_index: 0,
            configured,
            address,
            namespace,
            tickets: None,
        };
        Ok(Some(OfferedSocket { label, socket: shared_fd.try_clone()? }))
    }

    /// Leaves the socket to another process, if it has taken it. Commands that were begun still get
    /// their responses; new ones are not accepted.
    pub(crate) fn hand_off(&mut self, handoff: &Handoff) {
        if handoff.includes(SocketKind::Control, 0) {
            self.socket.keep_file();
            self.shared_fd = None;
            drop(self.accept_thread.take());
        }
    }
}
