//! Origins that misbehave on purpose, and the tools that scripts of them are made of. Not for
//! clients (`rude`), nor for origins that behave (`peers`).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    sockopt,
};

use super::peers::{Peer, Scripted};
use super::{PATIENCE, Process};

/// A message as it came.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The value of a field; all of them, with a comma between, when there are several.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }

    /// The target of a request.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or("")
    }
}

/// The values of a field of a head, with a comma between.
pub(crate) fn field(head: &str, name: &str) -> Option<String> {
    let values = head.lines().skip(1).filter_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    });
    let values: Vec<&str> = values.collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Reads messages, bodies included, from anything.
#[derive(Debug)]
pub(crate) struct Reader<S> {
    pub(crate) stream: S,
    pub(crate) buffered: Vec<u8>,
}

impl<S: Read> Reader<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffered: Vec::new() }
    }

    /// The next message; `None` at an end before its head.
    pub(crate) fn message(&mut self) -> io::Result<Option<Message>> {
        let Some(head) = self.until(b"\r\n\r\n")? else { return Ok(None) };
        let head = String::from_utf8_lossy(&head).into_owned();
        let coded = field(&head, "transfer-encoding").is_some();
        let body = if coded {
            self.chunks()?
        } else {
            let length = field(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            self.exactly(length)?
        };
        Ok(Some(Message { head, body }))
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n")?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let size = line.trim().split(';').next().unwrap_or("");
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                while self.until(b"\r\n")?.is_some_and(|line| line.len() > 2) {}
                return Ok(body);
            }
            body.extend(self.exactly(size)?);
            self.exactly(2)?;
        }
    }

    /// Everything up to and with `end`; `None` when the stream ends first.
    pub(crate) fn until(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffered.windows(end.len()).position(|part| part == end) {
                return Ok(Some(self.buffered.drain(..at + end.len()).collect()));
            }
            if self.more()? == 0 {
                return Ok(None);
            }
        }
    }

    pub(crate) fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffered.len() < length {
            if self.more()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffered.drain(..length).collect())
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 16 * 1024];
        let length = self.stream.read(&mut bytes)?;
        self.buffered.extend_from_slice(&bytes[..length]);
        Ok(length)
    }
}

/// A server whose script gets whole requests; its answer is sent, `None` ends the connection.
pub(crate) fn answering_each(
    answer: impl Fn(&Message, &Peer) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(move |peer| {
        let mut reader = Reader::new(peer.stream.try_clone()?);
        while let Some(request) = reader.message()? {
            match answer(&request, peer) {
                Some(bytes) => peer.send(&bytes)?,
                None => break,
            }
        }
        Ok(())
    })
}

/// An answer with a length.
pub(crate) fn ok(body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// A server that says its name, a line, and the head that it was sent.
pub(crate) fn telling(name: &'static str) -> Scripted {
    answering_each(move |request, _| Some(ok(format!("{name}\n{}", request.head).as_bytes())))
}

/// The next close of this socket is a reset.
pub(crate) fn close_is_a_reset(stream: impl AsFd) {
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// Waits until the other side has closed, and takes nothing that it sends: what a hanging server
/// does.
pub(crate) fn hang(peer: &Peer) {
    // A reset or a hang-up ends it; unread bytes do not count as one, so that they are no use.
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut one = [PollFd::new(&peer.stream, PollFlags::RDHUP)];
    let most = Timespec { tv_sec: 20, tv_nsec: 0 };
    let _ = poll(&mut one, Some(&most));
}

/// An address of the loopback where a socket is bound that nobody listens on: connections to it are
/// refused, and nobody else can get its port meanwhile.
#[derive(Debug)]
pub(crate) struct Refusing {
    pub(crate) authority: String,
    _socket: OwnedFd,
}

impl Refusing {
    pub(crate) fn new() -> Self {
        let (socket, address) = bound(false);
        Self { authority: address.to_string(), _socket: socket }
    }

    /// As [`Refusing::new`], but a process that asks for it with SO_REUSEADDR, as weir does, can listen
    /// there.
    pub(crate) fn shared() -> Self {
        let (socket, address) = bound(true);
        Self { authority: address.to_string(), _socket: socket }
    }
}

/// A listener whose backlog is full for good: connections to it neither stand nor are refused.
#[derive(Debug)]
pub(crate) struct Full {
    pub(crate) authority: String,
    _sockets: Vec<OwnedFd>,
}

impl Full {
    pub(crate) fn new() -> Self {
        let (socket, address) = bound(false);
        listen(&socket, 0).unwrap();
        let mut sockets = vec![socket];
        // One fits into a backlog of 0; the ones after it find it full.
        for _ in 0..4 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let one = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            let result = connect(&one, &address);
            assert!(matches!(result, Ok(()) | Err(Errno::INPROGRESS)), "{result:?}");
            sockets.push(one);
        }
        let probe = TcpStream::connect_timeout(&address, Duration::from_millis(150));
        assert!(probe.is_err(), "the backlog of 0 has room");
        Self { authority: address.to_string(), _sockets: sockets }
    }
}

fn bound(shared: bool) -> (OwnedFd, SocketAddr) {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, shared).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = match SocketAddr::try_from(getsockname(&socket).unwrap()) {
        Ok(address) => address,
        Err(error) => panic!("an address of the loopback: {error:?}"),
    };
    (socket, address)
}

/// A process that answers with half a body and then nothing, so that it can be killed there.
#[derive(Debug)]
pub(crate) struct HalfWay {
    pub(crate) process: Process,
    pub(crate) authority: String,
}

const HALF_WAY: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
kept = []
while True:
    one, _ = server.accept()
    one.recv(65536)
    one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500)
    kept.append(one)
"#;

impl HalfWay {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", HALF_WAY]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let port = process.first_line();
        Self { process, authority: format!("127.0.0.1:{}", port.trim()) }
    }
}

/// The pipes of a process that was started with some: what it reads, and what it says.
pub(crate) fn pipes(process: &mut Process) -> (ChildStdin, ChildStdout) {
    let child = &mut process.0;
    (child.stdin.take().expect("a piped stdin"), child.stdout.take().expect("a piped stdout"))
}

/// A server with a gate: each request is noted as it comes, and waits until it is let through.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) server: Scripted,
    /// The targets of requests in the order in which they came.
    pub(crate) arrived: std::sync::mpsc::Receiver<String>,
    allowed: Arc<AtomicUsize>,
}

impl Gated {
    pub(crate) fn start() -> Self {
        let (sender, arrived) = std::sync::mpsc::channel();
        let allowed = Arc::new(AtomicUsize::new(0));
        let turn = Arc::new(AtomicUsize::new(0));
        let server = answering_each({
            let allowed = Arc::clone(&allowed);
            move |request, _| {
                let mine = turn.fetch_add(1, Ordering::SeqCst);
                let _ = sender.send(request.target().to_owned());
                let open = || allowed.load(Ordering::SeqCst) > mine;
                super::within(PATIENCE, open).then(|| ok(b"through"))
            }
        });
        Self { server, arrived, allowed }
    }

    /// Lets one more request through.
    pub(crate) fn let_one_through(&self) {
        self.allowed.fetch_add(1, Ordering::SeqCst);
    }

    /// The target of the next request that came.
    pub(crate) fn next(&self) -> String {
        self.arrived.recv_timeout(PATIENCE).expect("a request")
    }
}

/// The kinds of faults of an origin, as scripts of one connection.
pub(crate) mod scripts {
    use super::{Peer, close_is_a_reset, hang};
    use std::io::{self, Read};

    /// Closes as soon as it has accepted.
    pub(crate) fn close_at_once(_: &mut Peer) -> io::Result<()> {
        Ok(())
    }

    /// Reads the request, sends these bytes, and closes.
    pub(crate) fn close_after(sent: &'static [u8]) -> impl Fn(&mut Peer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(sent)
        }
    }

    /// Reads the request, sends these bytes, and resets once they have been taken.
    pub(crate) fn reset_after(sent: &'static [u8]) -> impl Fn(&mut Peer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(sent)?;
            if !sent.is_empty() {
                // A reset takes what is still unread with it; what was sent is to arrive.
                super::super::pause_ms(300);
            }
            close_is_a_reset(&peer.stream);
            Ok(())
        }
    }

    /// Resets as soon as it has accepted.
    pub(crate) fn reset_at_once(peer: &mut Peer) -> io::Result<()> {
        close_is_a_reset(&peer.stream);
        Ok(())
    }

    /// Reads the request, sends these bytes, and then nothing any more.
    pub(crate) fn hang_after(sent: &'static [u8]) -> impl Fn(&mut Peer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(sent)?;
            hang(peer);
            Ok(())
        }
    }

    /// As [`hang_after`], with a part that comes when the first has been passed on.
    pub(crate) fn hang_after_both(
        first: &'static [u8],
        then: &'static [u8],
    ) -> impl Fn(&mut Peer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(first)?;
            super::super::pause_ms(300);
            peer.send(then)?;
            hang(peer);
            Ok(())
        }
    }

    /// Reads not one byte.
    pub(crate) fn read_nothing(peer: &mut Peer) -> io::Result<()> {
        hang(peer);
        Ok(())
    }

    /// Sends the start, and then the same again and again until nobody takes it.
    pub(crate) fn endless(
        start: &'static [u8],
        again: &'static [u8],
    ) -> impl Fn(&mut Peer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(start)?;
            let many = again.repeat(1 + 4096 / again.len());
            // Bounded, should somebody take all of it.
            for _ in 0..2_000 {
                peer.send(&many)?;
            }
            let _ = peer.stream.read(&mut [0])?;
            Ok(())
        }
    }
}

/// Writes and does not mind that nobody takes it any more.
pub(crate) fn send_what_goes(stream: &mut impl Write, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}
