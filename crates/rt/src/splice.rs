//! Moves bytes from one socket to another without a copy through user memory (splice(2)): the
//! kernel moves pages from the socket to a pipe, and from the pipe to the other socket.
//!
//! A pipe is filled only when it is empty. Then `EAGAIN` of a fill is about the socket: a full pipe
//! returns the same. A number of bytes could not distinguish the two, because a pipe is full when
//! its slots are, and a packet of one byte takes a slot.
//!
//! The caller decides when splicing pays off, see `proxy::tunnel`.

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

/// Pipes of one core. Cheap to clone; not `Send`.
#[derive(Clone, Debug)]
pub struct PipePool {
    inner: Rc<PipePoolInner>,
}

#[derive(Debug)]
struct PipePoolInner {
    free: RefCell<Vec<PipeEnds>>,
    pipe_bytes: usize,
    in_use: Cell<usize>,
    max_in_use: usize,
    exhausted: Cell<u64>,
}

#[derive(Debug)]
struct PipeEnds {
    read: OwnedFd,
    write: OwnedFd,
}

/// Maximum number of unused pipes in a pool; each has two descriptors, and hardly any memory.
const FREE_MAX: usize = 32;

/// Pipe from [`PipePool::take`]. When it is dropped it returns to its pool if it is empty, and is
/// closed otherwise.
#[derive(Debug)]
pub struct Pipe {
    /// `None` only within `drop`.
    ends: Option<PipeEnds>,
    buffered_bytes: usize,
    pool: Rc<PipePoolInner>,
}

impl PipePool {
    /// Creates a pool of pipes of `pipe_bytes`, as far as the kernel allows (`F_SETPIPE_SZ`,
    /// fcntl(2)), at most `max_in_use` of them in use at a time.
    #[must_use]
    pub fn new(pipe_bytes: usize, max_in_use: usize) -> Self {
        let inner = PipePoolInner {
            free: RefCell::new(Vec::new()),
            pipe_bytes,
            in_use: Cell::new(0),
            max_in_use,
            exhausted: Cell::new(0),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Returns an empty pipe, or `None` (counted) at the limit or if no descriptor was left.
    pub fn take(&self) -> Option<Pipe> {
        let inner = &self.inner;
        let pipe_ends = if inner.in_use.get() < inner.max_in_use {
            inner.free.borrow_mut().pop().or_else(|| open_pipe(inner.pipe_bytes).ok())
        } else {
            None
        };
        let Some(ends) = pipe_ends else {
            inner.exhausted.set(inner.exhausted.get() + 1);
            return None;
        };
        inner.in_use.set(inner.in_use.get() + 1);
        Some(Pipe { ends: Some(ends), buffered_bytes: 0, pool: Rc::clone(inner) })
    }

    pub fn in_use(&self) -> usize {
        self.inner.in_use.get()
    }

    pub fn free_count(&self) -> usize {
        self.inner.free.borrow().len()
    }

    pub fn exhausted_count(&self) -> u64 {
        self.inner.exhausted.get()
    }
}

fn open_pipe(bytes: usize) -> io::Result<PipeEnds> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // If it fails, the pipe is only smaller: the number of pages in pipes per user is limited.
    let _ = fcntl_setpipe_size(&write, bytes);
    Ok(PipeEnds { read, write })
}

impl Pipe {
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    fn ends(&self) -> io::Result<&PipeEnds> {
        self.ends.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.pool.in_use.set(self.pool.in_use.get() - 1);
        let mut free = self.pool.free.borrow_mut();
        if self.buffered_bytes == 0 && free.len() < FREE_MAX {
            free.extend(self.ends.take());
        }
    }
}

/// Moves the available bytes, at most `max`, from `stream` to `pipe`, which must be empty.
///
/// 0 means that nothing more can be spliced: at the end of the stream, or at TCP's urgent data. A
/// read distinguishes the two, and continues behind the urgent data.
pub fn poll_fill(
    cx: &mut Context<'_>,
    stream: &mut Stream,
    pipe: &mut Pipe,
    max: usize,
) -> Poll<io::Result<usize>> {
    if pipe.buffered_bytes > 0 {
        return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
    }
    let ends = pipe.ends()?;
    let splice_once = |fd: BorrowedFd<'_>| {
        splice(fd, None, &ends.write, None, max, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
    };
    let result = stream.poll_move(cx, Interest::READABLE, |fd| match splice_once(fd) {
        Err(Errno::AGAIN) => {
            // Before urgent data the kernel returns the same as for an empty socket, forever; no
            // event would announce the data behind it.
            let (peeked_bytes, _) = recv(fd, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
            match splice_once(fd) {
                // The second `EAGAIN` shows that the peeked byte did not arrive in between.
                Err(Errno::AGAIN) if peeked_bytes > 0 => Ok(0),
                again => again,
            }
        }
        moved => moved,
    });
    if let Poll::Ready(Ok(moved)) = result {
        pipe.buffered_bytes = moved;
    }
    result
}

/// Moves bytes from `pipe` to `stream`, as many as it accepts; 0 if the pipe is empty.
///
/// A closed peer is an error here as with a write. (There is no `MSG_NOSIGNAL` for splice(2): the
/// process must ignore SIGPIPE, as Rust's start-up code does.)
pub fn poll_drain(cx: &mut Context<'_>, stream: &mut Stream, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
    let buffered_bytes = pipe.buffered_bytes;
    if buffered_bytes == 0 {
        return Poll::Ready(Ok(0));
    }
    let ends = pipe.ends()?;
    let result = stream.poll_move(cx, Interest::WRITABLE, |fd| {
        splice(&ends.read, None, fd, None, buffered_bytes, SpliceFlags::NONBLOCK | SpliceFlags::MOVE)
    });
    match result {
        Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        Poll::Ready(Ok(moved)) => {
            pipe.buffered_bytes = buffered_bytes.saturating_sub(moved);
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
    use crate::namespace::testing::shut_down_socket;
    use crate::socket::SocketFamily;

    fn tcp_pair() -> (TcpStream, OwnedFd, SocketFamily) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        (far, near.into(), SocketFamily::Tcp)
    }

    fn unix_pair() -> (UnixStream, OwnedFd, SocketFamily) {
        let (far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (far, near.into(), SocketFamily::Unix)
    }

    /// Returns the byte at `index` of a stream whose order can be checked.
    fn byte(index: usize) -> u8 {
        (index % 251) as u8
    }

    /// Writes `total` bytes from `source` through a pipe to `sink`.
    fn relay(
        source: (impl Write + Send + 'static, OwnedFd, SocketFamily),
        sink: (impl Read + Send + 'static, OwnedFd, SocketFamily),
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
            let pipes = PipePool::new(256 * 1024, 1);
            let mut pipe = pipes.take().unwrap();
            loop {
                let filled = poll_fn(|cx| poll_fill(cx, &mut from, &mut pipe, 1 << 20)).await;
                if filled.unwrap() == 0 {
                    break;
                }
                while pipe.buffered_bytes() > 0 {
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
            let pipes = PipePool::new(65536, 1);
            let mut pipe = pipes.take().unwrap();
            let empty = poll_fn(|cx| Poll::Ready(poll_fill(cx, &mut stream, &mut pipe, 100))).await;
            assert!(empty.is_pending());
            let late = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                far.write_all(b"late").unwrap();
                far
            });
            let moved = poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 3)).await.unwrap();
            assert_eq!((moved, pipe.buffered_bytes()), (3, 3));
            let again = poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 3)).await;
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(poll_fn(|cx| poll_drain(cx, &mut stream, &mut pipe)).await.unwrap(), 3);
            // The remaining bytes in the socket are still known to be there.
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
            let pipes = PipePool::new(65536, 1);
            let mut pipe = pipes.take().unwrap();
            let mut written = 0;
            let stuck = loop {
                if pipe.buffered_bytes() == 0 {
                    source.write_all(&[7; 4096]).unwrap();
                    written += 4096;
                    poll_fn(|cx| poll_fill(cx, &mut from, &mut pipe, 65536)).await.unwrap();
                }
                let drained = poll_fn(|cx| Poll::Ready(poll_drain(cx, &mut to, &mut pipe))).await;
                if drained.is_pending() {
                    break pipe.buffered_bytes();
                }
            };
            assert!(stuck > 0);
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; written];
                far.read_exact(&mut got).unwrap();
                assert!(got.iter().all(|&byte| byte == 7));
            });
            while pipe.buffered_bytes() > 0 {
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
            let pipes = PipePool::new(65536, 1);
            let (mut got, mut eof_count) = (Vec::new(), 0);
            while got.len() < 4 {
                let mut pipe = pipes.take().unwrap();
                if poll_fn(|cx| poll_fill(cx, &mut stream, &mut pipe, 100)).await.unwrap() > 0 {
                    let mut bytes = vec![0; pipe.buffered_bytes()];
                    rustix::io::read(&pipe.ends().unwrap().read, &mut bytes).unwrap();
                    got.extend(bytes);
                    continue;
                }
                eof_count += 1;
                let mut bytes = [0; 100];
                let read = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await.unwrap();
                assert!(read > 0, "a read tells that it was no end");
                got.extend(&bytes[..read]);
            }
            assert_eq!(got, b"abcd");
            assert_eq!(eof_count, 1);
        });
    }

    #[test]
    fn pipes_are_bounded_and_only_empty_ones_are_reused() {
        block_on(async {
            let pipes = PipePool::new(65536, 2);
            let (first, mut second) = (pipes.take().unwrap(), pipes.take().unwrap());
            assert!(pipes.take().is_none());
            assert_eq!((pipes.in_use(), pipes.exhausted_count()), (2, 1));
            let (mut far, near, family) = unix_pair();
            let mut stream = Stream::from_fd(near, family).unwrap();
            far.write_all(b"stuck").unwrap();
            poll_fn(|cx| poll_fill(cx, &mut stream, &mut second, 100)).await.unwrap();
            drop((first, second));
            assert_eq!((pipes.in_use(), pipes.free_count()), (0, 1));
            assert_eq!(pipes.take().unwrap().buffered_bytes(), 0);
        });
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error() {
        block_on(async {
            let (mut source, near, family) = unix_pair();
            let mut from = Stream::from_fd(near, family).unwrap();
            let (far, near, family) = unix_pair();
            let mut to = Stream::from_fd(near, family).unwrap();
            shut_down_socket(far);
            source.write_all(b"lost").unwrap();
            let pipes = PipePool::new(65536, 1);
            let mut pipe = pipes.take().unwrap();
            poll_fn(|cx| poll_fill(cx, &mut from, &mut pipe, 100)).await.unwrap();
            let error = poll_fn(|cx| poll_drain(cx, &mut to, &mut pipe)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
