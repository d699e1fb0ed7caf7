//! The control socket as the process has it: bound, taken over from another one, heard at, passed on
//! and left. What comes over it is not known here.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rt::address::Address;
use rt::local::PrivateSocket;

use super::Desk;
use super::socket::{self, Hearing};
use crate::handover::{Inheritance, Kind, Label, Offer, Taken};
use crate::plan::Plan;

/// The control socket.
#[derive(Debug)]
pub(crate) struct ControlDoor {
    /// Removed from the file system with this.
    socket: PrivateSocket,
    /// The same socket once more, to be passed on; `None`: another process has it.
    copy: Option<OwnedFd>,
    /// Who accepts there, once somebody does.
    hearing: Option<Hearing>,
}

impl ControlDoor {
    /// Binds it, while we may, for the user that we become; or takes it over. `None`: there is to be
    /// none.
    pub(crate) fn open(
        plan: &Plan,
        inherited: Option<&mut Inheritance>,
    ) -> io::Result<Option<Self>> {
        let Some(path) = &plan.control else { return Ok(None) };
        let wanted = Address::Unix(std::path::absolute(path)?);
        let passed = inherited.and_then(|inherited| inherited.take(Kind::Control, &wanted, None));
        let passed = passed.and_then(|(_, sockets)| sockets.into_iter().next());
        let owner = plan.privileges.user.map(|user| (user, plan.privileges.group));
        let mut socket = match passed {
            Some(passed) => PrivateSocket::adopt(path, passed)?,
            None => PrivateSocket::bind(path, owner)?,
        };
        let listener = socket.take().ok_or(io::ErrorKind::NotFound)?;
        Ok(Some(Self { socket, copy: Some(listener.into()), hearing: None }))
    }

    pub(crate) fn path(&self) -> &Path {
        self.socket.path()
    }

    /// The process that we took over from has left.
    pub(crate) fn take_over(&mut self) {
        self.socket.take_over();
    }

    /// Obeys what comes over it.
    pub(crate) fn hear(&mut self, desk: Desk) -> io::Result<()> {
        let Some(copy) = &self.copy else { return Ok(()) };
        let listener = UnixListener::from(copy.try_clone()?);
        self.hearing = Some(socket::start(listener, desk)?);
        Ok(())
    }

    /// A copy for another process.
    pub(crate) fn offer(&self) -> io::Result<Option<Offer>> {
        let Some(copy) = &self.copy else { return Ok(None) };
        let address = Address::Unix(std::path::absolute(self.path())?).to_string();
        let (wanted, namespace) = (address.clone(), None);
        let label = Label { kind: Kind::Control, door: 0, wanted, address, namespace };
        Ok(Some(Offer { label, socket: copy.try_clone()? }))
    }

    /// Another process hears there now, if it has taken it: what was begun is still answered, and
    /// nobody new is.
    pub(crate) fn leave(&mut self, taken: &Taken) {
        if taken.has(Kind::Control, 0) {
            self.socket.leave_file();
            self.copy = None;
            drop(self.hearing.take());
        }
    }
}
