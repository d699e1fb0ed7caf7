//! Bytes from one socket to another without a copy through our memory (splice(2)): the kernel moves
//! pages from the socket to a pipe, and from the pipe to the other socket.
//!
//! A pipe is filled only when it is empty. `EAGAIN` of a fill then speaks of the socket: a full pipe
//! says the same, and which of the two it was could not be told from a number of bytes, because a
//! pipe is full when its slots are, and a packet of one byte takes a slot.
//!
//! It decides nothing: when splicing pays is for the caller, see `proxy::tunnel`.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;

use crate::stream::Stream;

/// The pipes of one core. Cheap to clone; not `Send`.
#[derive(Clone, Debug)]
pub struct Pipes {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    free: RefCell<Vec<Ends>>,
    pipe_bytes: usize,
    lent: Cell<usize>,
    lent_max: usize,
    refused: Cell<u64>,
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// How many unused pipes a pool keeps; each has two descriptors, and no memory to speak of.
const FREE_MAX: usize = 32;

/// A pipe, lent by [`Pipes::take`]. When it is dropped it goes back to its pool if it is empty, and
/// else is closed.
#[derive(Debug)]
pub struct Pipe {
    /// `None` only within its drop.
    ends: Option<Ends>,
    fill: usize,
    home: Rc<Inner>,
}

impl Pipes {
    /// A pool of pipes that hold `pipe_bytes` as far as the kernel lets us (`F_SETPIPE_SZ`,
    /// fcntl(2)), of which `lent_max` may be out at a time.
    #[must_use]
    pub fn new(pipe_bytes: usize, lent_max: usize) -> Self {
        let inner = Inner {
            free: RefCell::new(Vec::new()),
            pipe_bytes,
            lent: Cell::new(0),
            lent_max,
            refused: Cell::new(0),
        };
        Self { inner: Rc::new(inner) }
    }

    /// An empty pipe, or `None` (counted) at the limit or when no descriptor was left.
    #[must_use]
    pub fn take(&self) -> Option<Pipe> {
        let inner = &self.inner;
        let kept = if inner.lent.get() < inner.lent_max {
            inner.free.borrow_mut().pop().or_else(|| open(inner.pipe_bytes).ok())
        } else {
            None
        };
        let Some(ends) = kept else {
            inner.refused.set(inner.refused.get() + 1);
            return None;
        };
        inner.lent.set(inner.lent.get() + 1);
        Some(Pipe { ends: Some(ends), fill: 0, home: Rc::clone(inner) })
    }

    /// How many pipes are out.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.inner.lent.get()
    }

    /// How many unused pipes are kept.
    #[must_use]
    pub fn free(&self) -> usize {
        self.inner.free.borrow().len()
    }

    /// How often there was no pipe.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.inner.refused.get()
    }
}

fn open(bytes: usize) -> io::Result<Ends> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Without it the pipe is only smaller: a user may have so many pages in pipes, and no more.
    let _ = fcntl_setpipe_size(&write, bytes);
    Ok(Ends { read, write })
}

impl Pipe {
    /// How many bytes are in it.
    #[must_use]
    pub fn fill(&self) -> usize {
        self.fill
    }

    fn ends(&self) -> io::Result<&Ends> {
        self.ends.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.home.lent.set(self.home.lent.get() - 1);
        let mut free = self.home.free.borrow_mut();
        if self.fill == 0 && free.len() < FREE_MAX {
            free.extend(self.ends.take());
        }
    }
}

/// Moves what is there, `max` bytes at most, from `stream` to `pipe`, which has to be empty.
///
/// 0 says that nothing more can be spliced: it is the end of the stream, or the place of TCP's
/// urgent data. A read tells, and goes past it.
pub fn poll_fill(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    pipe: &mut Pipe,
    max: usize,
) -> Poll<io::Result<usize>> {
    if pipe.fill > 0 {
        return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
    }
    let ends = pipe.ends()?;
    let once = |fd: BorrowedFd<'_>| {
        splice(fd, None, &ends.write, None, max, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
    };
    let moved = stream.poll_move(cx, Interest::READABLE, |fd| match once(fd) {
        Err(Errno::AGAIN) => {
            // Before urgent data the kernel says the same as for an empty socket, for ever; nobody
            // would be woken for what is behind it.
            let (ahead, _) = recv(fd, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            match once(fd) {
                // Not something that came in between.
                Err(Errno::AGAIN) if ahead > 0 => Ok(0),
                again => again,
            }
        }
        moved => moved,
    });
    if let Poll::Ready(Ok(moved)) = moved {
        pipe.fill = moved;
    }
    moved
}

/// Moves what `stream` takes from `pipe` to it; 0 when the pipe is empty.
///
/// A peer that is gone is an error here as it is with a write. (There is no `MSG_NOSIGNAL` for
/// splice(2): the process has to ignore SIGPIPE, as Rust's start-up code does.)
pub fn poll_drain(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    pipe: &mut Pipe,
) -> Poll<io::Result<usize>> {
    let fill = pipe.fill;
    if fill == 0 {
        return Poll::Ready(Ok(0));
    }
    let ends = pipe.ends()?;
    let moved = stream.poll_move(cx, Interest::WRITABLE, |fd| {
        splice(&ends.read, None, fd, None, fill, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
    });
    match moved {
        Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        Poll::Ready(Ok(moved)) => {
            pipe.fill = fill.saturating_sub(moved);
            Poll::Ready(Ok(moved))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::cores::block_on;
    use crate::namespace::testing::end;
    use crate::stream::Family;

    fn tcp_pair() -> (TcpStream, OwnedFd, Family) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        (far, near.into(), Family::Tcp)
    }

    fn unix_pair() -> (UnixStream, OwnedFd, Family) {
        let (far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (far, near.into(), Family::Unix)
    }

    /// The byte at `index` of a stream whose order can be checked.
    fn byte(index: usize) -> u8 {
        (index % 251) as u8
    }

    /// `source` writes `total` bytes, which go through a pipe to `sink`.
    fn relay(
        source: (impl Write + Send + 'static, OwnedFd, Family),
        sink: (impl Read + Send + 'static, OwnedFd, Family),
        total: usize,
    ) {
        let (mut far_source, mut far_sink) = (source.0, sink.0);
        let writer = std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..total).map(byte).collect();
            far_source.write_all(&bytes).unwrap();
        });
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            far_sink.read_to_end(&mut got).unwrap();
            got
        });
        block_on(async {
            let mut from = Stream::from_fd(source.1, source.2).unwrap();
            let mut to = Stream::from_fd(sink.1, sink.2).unwrap();
            let pipes = Pipes::new(256 * 1024, 1);
            let mut pipe = pipes.take().unwrap();
            loop {
                let filled = poll_fn(|cx| poll_fill(cx, &mut from, &mut pipe, 1 << 20)).await;
                if filled.unwrap() == 0 {
                    break;
                }
                while pipe.fill() > 0 {
                    poll_fn(|cx| poll_drain(cx, &mut to, &mut pipe)).await.unwrap();
                }
            }
        });
        writer.join().unwrap();
        let got = reader.join().unwrap();
        assert_eq!(got.len(), total);
        assert!(got.iter().enumerate().all(|(index, &got)| got == byte(index)));
    }

    #[test]
    fn all_bytes_arrive_in_order_between_all_kinds_of_sockets() {
        relay(tcp_pair(), tcp_pair(), 5_000_000);
        relay(unix_pair(), unix_pair(), 5_000_000);
        relay(tcp_pair(), unix_pair(), 3_000_000);
        relay(unix_pair(), tcp_pair(), 3_000_000);
    }

    #[test]
    fn an_empty_socket_waits_and_its_next_byte_wakes() {
        block_on(async {
            let (mut far, near, family) = tcp_pair();
            let mut stream = Stream::from_fd(near, family).unwrap();
            let pipes = Pipes::new(65536, 1);
            let mut pipe = pipes.take().unwrap();
            let empty = poll_fn(|cx| Poll::Ready(poll_fill(cx, &mut stream, &mut pipe, 100))).await;
            assert!(empty.is_pending());
            let late = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                far.write_all(b"late").unwrap();
                far
            });
            let moved = poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 3)).await.unwrap();
            assert_eq!((moved, pipe.fill()), (3, 3));
            let again = poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 3)).await;
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(poll_fn(|cx| poll_drain(cx, &mut stream, &mut pipe)).await.unwrap(), 3);
            // What was left in the socket is still known to be there.
            let moved = poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 100)).await.unwrap();
            assert_eq!(moved, 1);
            drop(late.join().unwrap());
        });
    }

    #[test]
    fn a_full_socket_waits_until_its_peer_reads() {
        block_on(async {
            let (mut far, near, family) = tcp_pair();
            let mut to = Stream::from_fd(near, family).unwrap();
            let (mut source, near, family) = unix_pair();
            let mut from = Stream::from_fd(near, family).unwrap();
            let pipes = Pipes::new(65536, 1);
            let mut pipe = pipes.take().unwrap();
            let mut written = 0;
            let stuck = loop {
                if pipe.fill() == 0 {
                    source.write_all(&[7; 4096]).unwrap();
                    written += 4096;
                    poll_fn(|cx| poll_fill(cx, &mut from, &mut pipe, 65536)).await.unwrap();
                }
                let drained = poll_fn(|cx| Poll::Ready(poll_drain(cx, &mut to, &mut pipe))).await;
                if drained.is_pending() {
                    break pipe.fill();
                }
            };
            assert!(stuck > 0);
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; written];
                far.read_exact(&mut got).unwrap();
                assert!(got.iter().all(|&byte| byte == 7));
            });
            while pipe.fill() > 0 {
                poll_fn(|cx| poll_drain(cx, &mut to, &mut pipe)).await.unwrap();
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn urgent_data_looks_like_the_end_and_a_read_goes_past_it() {
        block_on(async {
            let (mut far, near, family) = tcp_pair();
            far.write_all(b"ab").unwrap();
            socket2::SockRef::from(&far).send_out_of_band(b"!").unwrap();
            far.write_all(b"cd").unwrap();
            let mut stream = Stream::from_fd(near, family).unwrap();
            let pipes = Pipes::new(65536, 1);
            let (mut got, mut ends) = (Vec::new(), 0);
            while got.len() < 4 {
                let mut pipe = pipes.take().unwrap();
                if poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 100)).await.unwrap() > 0 {
                    let mut bytes = vec![0; pipe.fill()];
                    rustix::io::read(&pipe.ends().unwrap().read, &mut bytes).unwrap();
                    got.extend(bytes);
                    continue;
                }
                ends += 1;
                let mut bytes = [0; 100];
                let read = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await.unwrap();
                assert!(read > 0, "a read tells that it was no end");
                got.extend(&bytes[..read]);
            }
            assert_eq!(got, b"abcd");
            assert_eq!(ends, 1);
        });
    }

    #[test]
    fn pipes_are_bounded_and_only_empty_ones_are_kept() {
        block_on(async {
            let pipes = Pipes::new(65536, 2);
            let (first, mut second) = (pipes.take().unwrap(), pipes.take().unwrap());
            assert!(pipes.take().is_none());
            assert_eq!((pipes.lent(), pipes.refused()), (2, 1));
            let (mut far, near, family) = unix_pair();
            let mut stream = Stream::from_fd(near, family).unwrap();
            far.write_all(b"stuck").unwrap();
            poll_fn(|cx| poll_fill(cx, &mut stream, &mut second, 100)).await.unwrap();
            drop((first, second));
            assert_eq!((pipes.lent(), pipes.free()), (0, 1));
            assert_eq!(pipes.take().unwrap().fill(), 0);
        });
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error() {
        block_on(async {
            let (mut source, near, family) = unix_pair();
            let mut from = Stream::from_fd(near, family).unwrap();
            let (far, near, family) = unix_pair();
            let mut to = Stream::from_fd(near, family).unwrap();
            end(far);
            source.write_all(b"lost").unwrap();
            let pipes = Pipes::new(65536, 1);
            let mut pipe = pipes.take().unwrap();
            poll_fn(|cx| poll_fill(cx, &mut from, &mut pipe, 100)).await.unwrap();
            let error = poll_fn(|cx| poll_drain(cx, &mut to, &mut pipe)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
