//! Descriptor channel between threads with separate descriptor tables
//! ([`crate::cores::FdTable::Unshared`]). A number means nothing in another table, so the kernel transfers
//! the open file (`SCM_RIGHTS`, unix(7)). Each descriptor comes with a short message that describes
//! it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio::io::unix::AsyncFd;

use crate::async_fd;

pub const FD_MESSAGE_BYTES: usize = 32;

/// Sending end. Any thread may send if its table has the descriptor.
#[derive(Debug)]
pub struct FdSender {
    socket: OwnedFd,
}

/// Receiving end, before its core takes it.
#[derive(Debug)]
pub struct FdReceiver {
    socket: OwnedFd,
}

/// Receiving end, registered in its core.
#[derive(Debug)]
pub struct AsyncFdReceiver {
    socket: AsyncFd<OwnedFd>,
}

/// Creates a channel for descriptors.
///
/// # Errors
/// There is no descriptor left.
pub fn channel() -> io::Result<(FdSender, FdReceiver)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (sender, receiver) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((FdSender { socket: sender }, FdReceiver { socket: receiver }))
}

impl FdSender {
    /// Sends a copy of `fd`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the channel is full: the kernel's buffer limits it.
    pub fn send(&self, fd: BorrowedFd<'_>, message: &[u8; FD_MESSAGE_BYTES]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        // The space was made for one descriptor.
        let fits = control.push(SendAncillaryMessage::ScmRights(&fds));
        debug_assert!(fits, "space for one descriptor");
        sendmsg(&self.socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Returns its descriptor number, for threads with their own table to keep.
    pub fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl FdReceiver {
    /// Returns its descriptor number, for threads with their own table to keep.
    pub fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Registers the receiver. Must be called inside a core's runtime.
    ///
    /// # Errors
    /// epoll rejected it.
    pub fn register(self) -> io::Result<AsyncFdReceiver> {
        Ok(AsyncFdReceiver { socket: async_fd::register_readable(self.socket)? })
    }
}

impl AsyncFdReceiver {
    /// Receives the next descriptor with its message; `None` if all senders are gone.
    ///
    /// # Errors
    /// The socket failed. A message whose descriptor found no free slot is also an error
    /// ([`io::ErrorKind::NotFound`]); the next one may succeed.
    pub async fn receive(&mut self) -> io::Result<Option<(OwnedFd, [u8; FD_MESSAGE_BYTES])>> {
        loop {
            let mut guard = self.socket.readable().await?;
            match receive_message(guard.get_inner().as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                result => return result,
            }
        }
    }
}

fn receive_message(socket: BorrowedFd<'_>) -> io::Result<Option<(OwnedFd, [u8; FD_MESSAGE_BYTES])>> {
    let mut message = [0; FD_MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(&mut message)];
    let received = recvmsg(socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fd.map(|fd| Some((fd, message))).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::cores::block_on;

    #[test]
    fn a_descriptor_arrives_open_with_its_message() {
        let (sender, receiver) = channel().unwrap();
        let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        sender.send(far.as_fd(), &[7; FD_MESSAGE_BYTES]).unwrap();
        drop((far, sender));
        let (got, end) = block_on(async {
            let mut receiver = receiver.register().unwrap();
            (receiver.receive().await.unwrap(), receiver.receive().await.unwrap())
        });
        let (fd, message) = got.unwrap();
        assert_eq!(message, [7; FD_MESSAGE_BYTES]);
        assert!(end.is_none());
        near.write_all(b"x").unwrap();
        let mut byte = [0];
        std::fs::File::from(fd).read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn a_full_channel_rejects_messages() {
        let (sender, _receiver) = channel().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let full = (0..100_000).find_map(|_| sender.send(file.as_fd(), &[0; FD_MESSAGE_BYTES]).err());
        // The kernel limits the bytes, and the descriptors in transit (ETOOMANYREFS).
        assert!(full.is_some());
    }
}
