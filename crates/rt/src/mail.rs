//! Descriptors from thread to thread when each has a table of its own
//! ([`crate::cores::Table::Own`]): a number means nothing in another table, so the kernel carries
//! the open file over (`SCM_RIGHTS`, unix(7)). Each goes with a short letter that says what it is.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::unix::AsyncFd;

use crate::watched;

/// Bytes of a letter.
pub const LETTER_BYTES: usize = 32;

/// The end that sends. Any thread may, whose table has it.
#[derive(Debug)]
pub struct Post {
    socket: OwnedFd,
}

/// The end that receives, before its core takes it.
#[derive(Debug)]
pub struct Mailbox {
    socket: OwnedFd,
}

/// The end that receives, in its core.
#[derive(Debug)]
pub struct OpenMailbox {
    socket: AsyncFd<OwnedFd>,
}

/// A way for descriptors.
///
/// # Errors
/// No descriptor left.
pub fn pair() -> io::Result<(Post, Mailbox)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (post, mailbox) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Post { socket: post }, Mailbox { socket: mailbox }))
}

impl Post {
    /// Sends a copy of `fd`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the mailbox is full: the kernel's buffer bounds it.
    pub fn send(&self, fd: BorrowedFd<'_>, letter: &[u8; LETTER_BYTES]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        // The space was made for one descriptor.
        let fits = control.push(SendAncillaryMessage::ScmRights(&fds));
        debug_assert!(fits, "room for one descriptor");
        sendmsg(&self.socket, &[IoSlice::new(letter)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Its number, to be kept by who has a table of its own.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Mailbox {
    /// Its number, to be kept by who has a table of its own.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Makes it ready to receive. Must be called inside a core's runtime.
    ///
    /// # Errors
    /// epoll refused it.
    pub fn open(self) -> io::Result<OpenMailbox> {
        Ok(OpenMailbox { socket: watched::readable(self.socket)? })
    }
}

impl OpenMailbox {
    /// The next descriptor with its letter; `None` when nobody can send any more.
    ///
    /// # Errors
    /// The socket failed. A letter whose descriptor there was no place for is one as well
    /// ([`io::ErrorKind::NotFound`]); the next may be all right.
    pub async fn receive(&mut self) -> io::Result<Option<(OwnedFd, [u8; LETTER_BYTES])>> {
        loop {
            let mut guard = self.socket.readable().await?;
            match receive(guard.get_inner().as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                done => return done,
            }
        }
    }
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, [u8; LETTER_BYTES])>> {
    let mut letter = [0; LETTER_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(&mut letter)];
    let received = recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.map(|fd| Some((fd, letter))).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::cores::block_on;

    #[test]
    fn a_descriptor_arrives_open_with_its_letter() {
        let (post, mailbox) = pair().unwrap();
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        post.send(far.as_fd(), &[7; LETTER_BYTES]).unwrap();
        drop((far, post));
        let (got, end) = block_on(async {
            let mut mailbox = mailbox.open().unwrap();
            (mailbox.receive().await.unwrap(), mailbox.receive().await.unwrap())
        });
        let (fd, letter) = got.unwrap();
        assert_eq!(letter, [7; LETTER_BYTES]);
        assert!(end.is_none());
        near.write_all(b"x").unwrap();
        let mut byte = [0];
        std::fs::File::from(fd).read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn a_full_mailbox_refuses() {
        let (post, _mailbox) = pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let full = (0..100_000).find_map(|_| post.send(file.as_fd(), &[0; LETTER_BYTES]).err());
        // The kernel bounds the bytes, and the descriptors that are on their way (ETOOMANYREFS).
        assert!(full.is_some());
    }
}
