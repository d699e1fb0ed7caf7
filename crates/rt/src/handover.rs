//! Lines and descriptors over a unix stream, from one process to another (`SCM_RIGHTS`, unix(7)):
//! how a new binary gets the listening sockets of the one that it replaces. What the lines say is the
//! callers' business; between threads there is [`crate::mail`].

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
use crate::local::{LocalPeer, peer_of};

/// Bytes of a line, its end included.
pub const LINE_BYTES_MAX: usize = 4096;
/// Descriptors that were received and not taken yet.
pub const WAITING_MAX: usize = 4096;

/// One end of a conversation. Blocking, and bounded in time, in bytes and in descriptors.
#[derive(Debug)]
pub struct Talk {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    until_ns: u64,
}

impl Talk {
    /// A conversation that ends after `most`, unless [`Talk::allow`] gives it more.
    ///
    /// # Errors
    /// The stream cannot be made blocking.
    pub fn new(stream: UnixStream, most: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        let mut talk =
            Self { stream, received: Vec::new(), descriptors: VecDeque::new(), until_ns: 0 };
        talk.allow(most);
        Ok(talk)
    }

    /// It may go on for so long, from now.
    pub fn allow(&mut self, most: Duration) {
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        self.until_ns = now_ns().saturating_add(most_ns);
    }

    /// Sends a line, which must have no end of line in it.
    ///
    /// # Errors
    /// The other side has left, or takes too long.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let bytes = whole(line)?;
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write_all(&bytes)
    }

    /// Sends a line with a copy of a descriptor.
    ///
    /// # Errors
    /// As [`Talk::say`].
    pub fn give(&mut self, line: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let bytes = whole(line)?;
        self.stream.set_write_timeout(Some(self.left()?))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        // The space was made for one descriptor.
        let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(fits, "room for one descriptor");
        let slices = [IoSlice::new(&bytes)];
        let sent = sendmsg(&self.stream, &slices, &mut control, SendFlags::NOSIGNAL)?;
        // The descriptor went with the first byte.
        self.stream.write_all(&bytes[sent..])
    }

    /// The next line, without its end; `None` when the other side has left between two lines.
    ///
    /// # Errors
    /// It takes too long, is too long, is not UTF-8, ends within a line, or there is no descriptor
    /// left for what comes with it.
    pub fn hear(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let rest = self.received.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                line.truncate(end);
                return String::from_utf8(line).map(Some).map_err(|_| wrong("a line is no text"));
            }
            if self.received.len() >= LINE_BYTES_MAX {
                return Err(wrong("a line is too long"));
            }
            if !self.receive()? {
                return match self.received.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// The oldest descriptor that came and was not taken yet. That of a line is there when the line
    /// is, and maybe before; so the first is that of the first line that has one, and so on.
    pub fn take(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// `false`: the other side has left.
    fn receive(&mut self) -> io::Result<bool> {
        self.stream.set_read_timeout(Some(self.left()?))?;
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
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("no descriptor was left for what was passed on"));
        }
        if self.descriptors.len() > WAITING_MAX {
            return Err(wrong("too many descriptors came"));
        }
        self.received.extend_from_slice(&bytes[..received.bytes]);
        Ok(received.bytes > 0)
    }

    /// Who is at the other end, as the kernel knows it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn peer(&self) -> io::Result<LocalPeer> {
        peer_of(&self.stream)
    }

    fn left(&self) -> io::Result<Duration> {
        match self.until_ns.saturating_sub(now_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            // A time-out of less than a microsecond would be none at all.
            left_ns => Ok(Duration::from_nanos(left_ns.max(1_000))),
        }
    }
}

fn whole(line: &str) -> io::Result<Vec<u8>> {
    if line.contains('\n') || line.len() >= LINE_BYTES_MAX {
        return Err(wrong("no line: it is too long, or has an end of line in it"));
    }
    Ok([line.as_bytes(), b"\n"].concat())
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    const MOST: Duration = Duration::from_secs(20);

    fn pair() -> (Talk, Talk) {
        let (near, far) = UnixStream::pair().unwrap();
        (Talk::new(near, MOST).unwrap(), Talk::new(far, MOST).unwrap())
    }

    #[test]
    fn descriptors_come_with_their_lines_and_in_their_order() {
        let (mut near, mut far) = pair();
        let streams: Vec<_> = (0..50).map(|_| UnixStream::pair().unwrap()).collect();
        near.say("first").unwrap();
        for (number, (mine, _)) in streams.iter().enumerate() {
            near.give(&format!("number {number} {}", "x".repeat(number)), mine.as_fd()).unwrap();
        }
        near.say("last").unwrap();
        drop(near);
        assert_eq!(far.hear().unwrap().unwrap(), "first");
        for (number, (mine, theirs)) in streams.into_iter().enumerate() {
            let line = far.hear().unwrap().unwrap();
            assert!(line.starts_with(&format!("number {number} ")), "{line}");
            let passed = UnixStream::from(far.take().expect("a descriptor"));
            drop(mine);
            (&passed).write_all(&[number as u8]).unwrap();
            drop(passed);
            let mut got = Vec::new();
            (&theirs).read_to_end(&mut got).unwrap();
            assert_eq!(got, [number as u8]);
        }
        assert_eq!(far.hear().unwrap().unwrap(), "last");
        assert!(far.take().is_none() && far.hear().unwrap().is_none());
    }

    #[test]
    fn what_never_comes_is_not_waited_for_and_neither_is_who_never_reads() {
        let (_near, mut far) = pair();
        far.allow(Duration::from_millis(20));
        assert_eq!(far.hear().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(far.hear().unwrap_err().kind(), io::ErrorKind::TimedOut);
        far.allow(Duration::from_millis(50));
        let line = "x".repeat(LINE_BYTES_MAX - 1);
        assert!((0..10_000).any(|_| far.say(&line).is_err()));
    }

    #[test]
    fn lines_are_bounded_and_whole() {
        let (mut near, mut far) = pair();
        assert!(near.say("a\nb").is_err());
        assert!(near.say(&"x".repeat(LINE_BYTES_MAX)).is_err());
        near.say(&"x".repeat(LINE_BYTES_MAX - 1)).unwrap();
        assert_eq!(far.hear().unwrap().unwrap().len(), LINE_BYTES_MAX - 1);
        near.stream.write_all(&[b'x'; 2 * LINE_BYTES_MAX]).unwrap();
        assert!(far.hear().unwrap_err().to_string().contains("too long"));
        for (bytes, kind) in
            [(&b"\xff\n"[..], io::ErrorKind::InvalidData), (b"half", io::ErrorKind::UnexpectedEof)]
        {
            let (mut near, mut far) = pair();
            near.stream.write_all(bytes).unwrap();
            drop(near);
            assert_eq!(far.hear().unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn who_connected_is_known() {
        let (near, _far) = pair();
        assert_eq!(near.peer().unwrap().process, std::process::id() as i32);
    }

    #[test]
    fn what_nobody_takes_is_closed() {
        let (mut near, mut far) = pair();
        let (mine, theirs) = UnixStream::pair().unwrap();
        near.give("one", mine.as_fd()).unwrap();
        drop(mine);
        far.hear().unwrap();
        drop(far);
        assert_eq!((&theirs).read(&mut [0]).unwrap(), 0);
    }
}
