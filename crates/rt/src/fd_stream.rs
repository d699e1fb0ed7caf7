//! Lines and descriptors over a unix stream, from one process to another (`SCM_RIGHTS`, unix(7)). A
//! new binary uses this to get the listening sockets of the one that it replaces. Callers define
//! the lines; between threads there is [`crate::fd_channel`].

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::clock::now_ns;
use crate::unix_socket::{PeerCredentials, peer_credentials};

/// Maximum length of a line in bytes, including its end.
pub const LINE_BYTES_MAX: usize = 4096;
/// Maximum number of received descriptors that were not taken yet.
pub const PENDING_FDS_MAX: usize = 4096;

/// One end of a conversation. Blocking, with limits of time, bytes and descriptors.
#[derive(Debug)]
pub struct FdStream {
    stream: UnixStream,
    receive_buffer: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    deadline_ns: u64,
}

impl FdStream {
    /// Creates a stream with a timeout, which [`FdStream::set_timeout`] can extend.
    ///
    /// # Errors
    /// The stream cannot be made blocking.
    pub fn new(stream: UnixStream, timeout: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        let mut fd_stream = Self { stream, receive_buffer: Vec::new(), fds: VecDeque::new(), deadline_ns: 0 };
        fd_stream.set_timeout(timeout);
        Ok(fd_stream)
    }

    /// Sets a new time limit, from now.
    pub fn set_timeout(&mut self, timeout: Duration) {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_ns = now_ns().saturating_add(timeout_ns);
    }

    /// Sends a line, which must not contain a line end.
    ///
    /// # Errors
    /// The peer has left, or takes too long.
    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        let bytes = terminate_line(line)?;
        self.stream.set_write_timeout(Some(self.remaining_time()?))?;
        self.stream.write_all(&bytes)
    }

    /// Sends a line with a copy of a descriptor.
    ///
    /// # Errors
    /// Those of [`FdStream::send_line`].
    pub fn send_line_with_fd(&mut self, line: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = terminate_line(line)?;
        self.stream.set_write_timeout(Some(self.remaining_time()?))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        // The space was made for one descriptor.
        let fits = control.push(SendAncillaryMessage::ScmRights(&fds));
        debug_assert!(fits, "space for one descriptor");
        let slices = [IoSlice::new(&bytes)];
        let sent = sendmsg(&self.stream, &slices, &mut control, SendFlags::NOSIGNAL)?;
        // The descriptor was sent with the first byte.
        self.stream.write_all(&bytes[sent..])
    }

    /// Receives the next line, without its end; `None` if the peer has left between two lines.
    ///
    /// # Errors
    /// The line takes too long, is too long, is not UTF-8, or is incomplete, or there is no
    /// descriptor left for the one sent with it.
    pub fn receive_line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.receive_buffer.iter().position(|&byte| byte == b'\n') {
                let rest = self.receive_buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.receive_buffer, rest);
                line.truncate(end);
                return String::from_utf8(line)
                    .map(Some)
                    .map_err(|_| invalid_data("a line has invalid UTF-8"));
            }
            if self.receive_buffer.len() >= LINE_BYTES_MAX {
                return Err(invalid_data("a line is too long"));
            }
            if !self.receive_bytes()? {
                return match self.receive_buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Takes the oldest received descriptor. The descriptor of a line arrives with the line or
    /// before it, so the first one belongs to the first line that has one, and so on.
    pub fn take_fd(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front()
    }

    /// Receives bytes; returns false if the peer has left.
    fn receive_bytes(&mut self) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(self.remaining_time()?))?;
        let mut bytes = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let received = match recvmsg(&self.stream, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("no free descriptor for a passed file"));
        }
        if self.fds.len() > PENDING_FDS_MAX {
            return Err(invalid_data("too many descriptors were passed"));
        }
        self.receive_buffer.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// Returns the credentials of the peer, as the kernel knows them.
    ///
    /// # Errors
    /// The kernel does not report them.
    pub fn peer_credentials(&self) -> io::Result<PeerCredentials> {
        peer_credentials(&self.stream)
    }

    fn remaining_time(&self) -> io::Result<Duration> {
        match self.deadline_ns.saturating_sub(now_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            // A timeout of less than a microsecond would mean no timeout.
            remaining_ns => Ok(Duration::from_nanos(remaining_ns.max(1_000))),
        }
    }
}

fn terminate_line(line: &str) -> io::Result<Vec<u8>> {
    if line.contains('\n') || line.len() >= LINE_BYTES_MAX {
        return Err(invalid_data("a line is too long, or contains a line feed"));
    }
    Ok([line.as_bytes(), b"\n"].concat())
}

fn invalid_data(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn pair() -> (FdStream, FdStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (FdStream::new(near, TIMEOUT).unwrap(), FdStream::new(far, TIMEOUT).unwrap())
    }

    #[test]
    fn descriptors_come_with_their_lines_and_in_their_order() {
        let (mut near, mut far) = pair();
        let streams: Vec<_> = (0..50).map(|_| UnixStream::pair().unwrap()).collect();
        near.send_line("first").unwrap();
        for (number, (mine, _)) in streams.iter().enumerate() {
            near.send_line_with_fd(&format!("number {number} {}", "x".repeat(number)), mine.as_fd()).unwrap();
        }
        near.send_line("last").unwrap();
        drop(near);
        assert_eq!(far.receive_line().unwrap().unwrap(), "first");
        for (number, (mine, theirs)) in streams.into_iter().enumerate() {
            let line = far.receive_line().unwrap().unwrap();
            assert!(line.starts_with(&format!("number {number} ")), "{line}");
            let received = UnixStream::from(far.take_fd().expect("a descriptor"));
            drop(mine);
            (&received).write_all(&[number as u8]).unwrap();
            drop(received);
            let mut got = Vec::new();
            (&theirs).read_to_end(&mut got).unwrap();
            assert_eq!(got, [number as u8]);
        }
        assert_eq!(far.receive_line().unwrap().unwrap(), "last");
        assert!(far.take_fd().is_none() && far.receive_line().unwrap().is_none());
    }

    #[test]
    fn a_missing_line_and_a_peer_that_never_reads_time_out() {
        let (_near, mut far) = pair();
        far.set_timeout(Duration::from_millis(20));
        assert_eq!(far.receive_line().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(far.receive_line().unwrap_err().kind(), io::ErrorKind::TimedOut);
        far.set_timeout(Duration::from_millis(50));
        let line = "x".repeat(LINE_BYTES_MAX - 1);
        assert!((0..10_000).any(|_| far.send_line(&line).is_err()));
    }

    #[test]
    fn lines_are_bounded_and_complete() {
        let (mut near, mut far) = pair();
        assert!(near.send_line("a\nb").is_err());
        assert!(near.send_line(&"x".repeat(LINE_BYTES_MAX)).is_err());
        near.send_line(&"x".repeat(LINE_BYTES_MAX - 1)).unwrap();
        assert_eq!(far.receive_line().unwrap().unwrap().len(), LINE_BYTES_MAX - 1);
        near.stream.write_all(&[b'x'; 2 * LINE_BYTES_MAX]).unwrap();
        assert!(far.receive_line().unwrap_err().to_string().contains("too long"));
        for (bytes, kind) in
            [(&b"\xff\n"[..], io::ErrorKind::InvalidData), (b"half", io::ErrorKind::UnexpectedEof)]
        {
            let (mut near, mut far) = pair();
            near.stream.write_all(bytes).unwrap();
            drop(near);
            assert_eq!(far.receive_line().unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn the_peer_credentials_are_known() {
        let (near, _far) = pair();
        assert_eq!(near.peer_credentials().unwrap().pid, std::process::id() as i32);
    }

    #[test]
    fn descriptors_that_are_not_taken_are_closed() {
        let (mut near, mut far) = pair();
        let (mine, theirs) = UnixStream::pair().unwrap();
        near.send_line_with_fd("one", mine.as_fd()).unwrap();
        drop(mine);
        far.receive_line().unwrap();
        drop(far);
        assert_eq!((&theirs).read(&mut [0]).unwrap(), 0);
    }
}
