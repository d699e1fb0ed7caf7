//! A netlink socket in some network namespace, and one dump over it (netlink(7)).
//!
//! Not for what the messages mean: [`crate::sock_diag`] and [`crate::links`] know that. Not for
//! changing anything: only dumps are asked for.
//!
//! Own code and not the `netlink-packet-*` crates: those build a vector of values for each message,
//! with the 280 bytes of `tcp_info` and the whole of `IFLA_AF_SPEC` among them. Here a row is looked
//! at where the kernel wrote it, in one buffer that every dump uses again, and nothing is allocated.

pub(crate) mod message;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};

use crate::namespace::Namespace;
use message::{DUMP_INTERRUPTED, Message, Messages};

/// Which part of the kernel is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Links and what is on them (rtnetlink(7)).
    Route,
    /// Sockets (sock_diag(7)).
    SockDiag,
}

impl Family {
    /// `NETLINK_ROUTE` is 0, which is the default.
    fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Route => None,
            Self::SockDiag => Some(rustix::net::netlink::SOCK_DIAG),
        }
    }
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dumped {
    /// Everything was seen.
    Whole,
    /// Something changed meanwhile: a row may be missing or be there twice (`NLM_F_DUMP_INTR`).
    Interrupted,
    /// Whoever looked had enough.
    Left,
}

/// A netlink socket that belongs to a namespace for ever, whichever thread uses it.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    family: Family,
    namespace: Namespace,
    sequence: u32,
    /// Rows of a dump that was not read to its end may still come: a new socket is simpler.
    unfinished: bool,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket of `family` in `namespace`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the kernel has no such family.
    pub(crate) fn open(family: Family, namespace: Namespace) -> io::Result<Self> {
        let fd = namespace.run(|| connect(family))??;
        Ok(Self {
            fd,
            family,
            namespace,
            sequence: 0,
            unfinished: false,
            request: Vec::with_capacity(FIRST_REQUEST_BYTES),
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Asks for a dump with a message of `kind` and `body`, and shows `each` what kind of message
    /// comes and its body, until there is no more or `each` breaks off.
    ///
    /// # Errors
    /// The system's answer, also the one that comes in a message (`NLMSG_ERROR`).
    pub(crate) fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        each: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> io::Result<Dumped> {
        if self.unfinished {
            self.fd = self.namespace.run(|| connect(self.family))??;
        }
        self.unfinished = true;
        let ended = self.ask_and_read(kind, body, each)?;
        self.unfinished = ended == Dumped::Left;
        Ok(ended)
    }

    fn ask_and_read(
        &mut self,
        kind: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]) -> ControlFlow<()>,
    ) -> io::Result<Dumped> {
        self.sequence = self.sequence.wrapping_add(1);
        message::write_dump(&mut self.request, kind, self.sequence, body);
        send(&self.fd, &self.request, SendFlags::empty())?;
        let mut ended = Dumped::Whole;
        loop {
            let (_, length) = match recv(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let Some(bytes) = self.buffer.get(..length) else {
                return Err(io::Error::other(format!("a message of {length} bytes")));
            };
            for message in Messages::new(bytes).filter(|one| one.sequence == self.sequence) {
                if message.flags & DUMP_INTERRUPTED != 0 {
                    ended = Dumped::Interrupted;
                }
                match message.said() {
                    Said::Done => return Ok(ended),
                    Said::Failed(error) => return Err(error),
                    Said::Row if each(message.kind, message.body).is_break() => {
                        return Ok(Dumped::Left);
                    }
                    Said::Row => {}
                }
            }
        }
    }
}

/// What a message is to a dump.
enum Said {
    Row,
    Done,
    Failed(io::Error),
}

impl Message<'_> {
    fn said(&self) -> Said {
        match (self.kind, self.errno()) {
            (message::DONE | message::ERROR, Some(errno)) => {
                Said::Failed(io::Error::from_raw_os_error(errno))
            }
            (message::DONE | message::ERROR, None) => Said::Done,
            _ => Said::Row,
        }
    }
}

/// Opens a socket in the calling thread's namespace.
fn connect(family: Family) -> io::Result<OwnedFd> {
    let kind = SocketType::RAW;
    let fd = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, family.protocol())?;
    bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    set_socket_timeout(&fd, Timeout::Recv, Some(ANSWER_WITHIN))?;
    Ok(fd)
}

/// A dump is made in the call that asks for more of it, so that nothing is waited for; this is for
/// a kernel that does otherwise.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The kernel fills at most 32 KiB at once (`netlink_dump`), or one message if that is longer.
const BUFFER_BYTES: usize = 64 * 1024;
const FIRST_REQUEST_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// `RTM_GETLINK`, for any family: every namespace has at least `lo`.
    const GET_LINK: u16 = 18;

    #[test]
    fn a_dump_ends_and_one_that_was_left_does_not_spoil_the_next() {
        let own = Namespace::of(None).unwrap();
        let mut socket = Socket::open(Family::Route, own).unwrap();
        let mut rows = 0;
        let ended = socket.dump(GET_LINK, &[0; 16], |_, _| {
            rows += 1;
            ControlFlow::Break(())
        });
        assert_eq!((ended.unwrap(), rows), (Dumped::Left, 1));
        rows = 0;
        let ended = socket.dump(GET_LINK, &[0; 16], |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        });
        assert_ne!(ended.unwrap(), Dumped::Left);
        assert!(rows >= 1);
    }

    #[test]
    fn what_the_kernel_refuses_is_its_error() {
        let own = Namespace::of(None).unwrap();
        let mut socket = Socket::open(Family::SockDiag, own).unwrap();
        // No family of sockets has this number.
        let error = socket.dump(20, &[255; 56], |_, _| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
    }
}
