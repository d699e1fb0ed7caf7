//! A netlink socket in some network namespace, and one dump over it (netlink(7)).
//!
//! [`crate::sock_diag`] and [`crate::links`] interpret the messages. Nothing here changes kernel
//! state: it only requests dumps.
//!
//! This is own code and not the `netlink-packet-*` crates. Those build a vector of values for each
//! message, with the 280 bytes of `tcp_info` and all of `IFLA_AF_SPEC` among them. Here a row is
//! read where the kernel wrote it, in one buffer that every dump reuses, and nothing is allocated.

pub(crate) mod message;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::namespace::Namespace;
use message::{NLM_F_DUMP_INTR, NetlinkMessage, NetlinkMessages};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetlinkFamily {
    /// Links and their queueing disciplines (rtnetlink(7)).
    Route,
    /// Sockets (sock_diag(7)).
    SockDiag,
}

impl NetlinkFamily {
    /// `NETLINK_ROUTE` is 0, which is the default.
    fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Route => None,
            Self::SockDiag => Some(rustix::net::netlink::SOCK_DIAG),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpOutcome {
    /// Every row was read.
    Complete,
    /// Something changed meanwhile: a row may be missing or duplicated (`NLM_F_DUMP_INTR`).
    Interrupted,
    Stopped,
}

/// A netlink socket that stays in its namespace, whichever thread uses it.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    fd: OwnedFd,
    family: NetlinkFamily,
    namespace: Namespace,
    sequence: u32,
    /// True if the last dump was not read to its end, so its rows may still come: a new socket is
    /// simpler.
    is_unfinished: bool,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// Opens a socket of `family` in `namespace`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the kernel has no such family.
    pub(crate) fn open(family: NetlinkFamily, namespace: Namespace) -> io::Result<Self> {
        let fd = namespace.run(|| open_socket(family))??;
        Ok(Self {
            fd,
            family,
            namespace,
            sequence: 0,
            is_unfinished: false,
            request: Vec::with_capacity(INITIAL_REQUEST_BYTES),
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Requests a dump with a message of `kind` and `body`. Calls `each` with kind and body of
    /// every message, until the dump ends or `each` breaks.
    ///
    /// # Errors
    /// The system's error, including one that comes in a message (`NLMSG_ERROR`).
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        each: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> io::Result<DumpOutcome> {
        if self.is_unfinished {
            self.fd = self.namespace.run(|| open_socket(self.family))??;
        }
        self.is_unfinished = true;
        let outcome = self.request_and_read(kind, body, each)?;
        self.is_unfinished = outcome == DumpOutcome::Stopped;
        Ok(outcome)
    }

    fn request_and_read(
        &mut self,
        kind: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> io::Result<DumpOutcome> {
        self.sequence = self.sequence.wrapping_add(1);
        message::write_dump(&mut self.request, kind, self.sequence, body);
        send(&self.fd, &self.request, SendFlags::empty())?;
        let mut outcome = DumpOutcome::Complete;
        loop {
            let (_, length) = match recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let Some(bytes) = self.buffer.get(..length) else {
                return Err(io::Error::other(format!("invalid message of {length} bytes")));
            };
            for message in NetlinkMessages::new(bytes).filter(|message| message.sequence == self.sequence) {
                if message.flags & NLM_F_DUMP_INTR != 0 {
                    outcome = DumpOutcome::Interrupted;
                }
                match message.classify() {
                    DumpMessage::Done => return Ok(outcome),
                    DumpMessage::Failed(error) => return Err(error),
                    DumpMessage::Row if each(message.kind, message.body).is_break() => {
                        return Ok(DumpOutcome::Stopped);
                    }
                    DumpMessage::Row => {}
                }
            }
        }
    }
}

/// Classification of a message within a dump.
enum DumpMessage {
    Row,
    Done,
    Failed(io::Error),
}

impl NetlinkMessage<'_> {
    fn classify(&self) -> DumpMessage {
        match (self.kind, self.errno()) {
            (message::NLMSG_DONE | message::NLMSG_ERROR, Some(errno)) => {
                DumpMessage::Failed(io::Error::from_raw_os_error(errno))
            }
            (message::NLMSG_DONE | message::NLMSG_ERROR, None) => DumpMessage::Done,
            _ => DumpMessage::Row,
        }
    }
}

/// Opens a socket in the calling thread's namespace.
fn open_socket(family: NetlinkFamily) -> io::Result<OwnedFd> {
    let kind = SocketType::RAW;
    let fd = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, family.protocol())?;
    bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    set_socket_timeout(&fd, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
    Ok(fd)
}

/// Receive timeout. The kernel makes a dump within the call that requests more of it, so nothing
/// waits; the timeout covers a kernel that behaves otherwise.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The kernel fills at most 32 KiB at once (`netlink_dump`), or one message if that is longer.
const BUFFER_BYTES: usize = 64 * 1024;
const INITIAL_REQUEST_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// `RTM_GETLINK`, for any family: every namespace has at least `lo`.
    const GET_LINK: u16 = 18;

    #[test]
    fn a_stopped_dump_does_not_affect_the_next() {
        let own = Namespace::open_pid(None).unwrap();
        let mut socket = NetlinkSocket::open(NetlinkFamily::Route, own).unwrap();
        let mut rows = 0;
        let outcome = socket.dump(GET_LINK, &[0; 16], |_, _| {
            rows += 1;
            ControlFlow::Break(())
        });
        assert_eq!((outcome.unwrap(), rows), (DumpOutcome::Stopped, 1));
        rows = 0;
        let outcome = socket.dump(GET_LINK, &[0; 16], |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        });
        assert_ne!(outcome.unwrap(), DumpOutcome::Stopped);
        assert!(rows >= 1);
    }

    #[test]
    fn what_the_kernel_refuses_is_its_error() {
        let own = Namespace::open_pid(None).unwrap();
        let mut socket = NetlinkSocket::open(NetlinkFamily::SockDiag, own).unwrap();
        // No socket family has this number.
        let error = socket.dump(20, &[255; 56], |_, _| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
    }
}
