//! Origins that misbehave deliberately, and the tools for their scripts. `hostile_client` has the
//! clients, `peers` the correct origins.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with, sockopt,
};

use super::peers::{ScriptPeer, ScriptedServer};
use super::{EVENT_TIMEOUT, Process};

/// A message as received.
#[derive(Clone, Debug)]
pub(crate) struct LaxMessage {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl LaxMessage {
    /// Returns the value of a field; several values are joined with commas.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        field(&self.head, name)
    }

    /// Returns the target of a request.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or("")
    }

    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or("")
    }
}

/// Returns the values of a field of a head, joined with commas.
pub(crate) fn field(head: &str, name: &str) -> Option<String> {
    let values = head.lines().skip(1).filter_map(|line| {
        let (field_name, value) = line.split_once(':')?;
        field_name.eq_ignore_ascii_case(name).then(|| value.trim())
    });
    let values: Vec<&str> = values.collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Reader of messages, including bodies, from any stream.
#[derive(Debug)]
pub(crate) struct LaxReader<S> {
    pub(crate) stream: S,
    pub(crate) buffered: Vec<u8>,
}

impl<S: Read> LaxReader<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffered: Vec::new() }
    }

    /// Returns the next message; `None` at an end before its head.
    pub(crate) fn read_message(&mut self) -> io::Result<Option<LaxMessage>> {
        let Some(head) = self.read_until(b"\r\n\r\n")? else { return Ok(None) };
        let head = String::from_utf8_lossy(&head).into_owned();
        let transfer_coding = field(&head, "transfer-encoding").is_some();
        let body = if transfer_coding {
            self.read_chunks()?
        } else {
            let length = field(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            self.read_exactly(length)?
        };
        Ok(Some(LaxMessage { head, body }))
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_until(b"\r\n")?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let size = line.trim().split(';').next().unwrap_or("");
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                while self.read_until(b"\r\n")?.is_some_and(|line| line.len() > 2) {}
                return Ok(body);
            }
            body.extend(self.read_exactly(size)?);
            self.read_exactly(2)?;
        }
    }

    /// Returns all bytes up to and including `end`; `None` if the stream ends first.
    pub(crate) fn read_until(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffered.windows(end.len()).position(|part| part == end) {
                return Ok(Some(self.buffered.drain(..at + end.len()).collect()));
            }
            if self.fill_buffer()? == 0 {
                return Ok(None);
            }
        }
    }

    pub(crate) fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffered.len() < length {
            if self.fill_buffer()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffered.drain(..length).collect())
    }

    fn fill_buffer(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 16 * 1024];
        let length = self.stream.read(&mut bytes)?;
        self.buffered.extend_from_slice(&bytes[..length]);
        Ok(length)
    }
}

/// Starts a server whose script gets complete requests. It sends the script's response; `None` ends
/// the connection.
pub(crate) fn respond_to_each(
    respond: impl Fn(&LaxMessage, &ScriptPeer) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> ScriptedServer {
    ScriptedServer::start(move |peer| {
        let mut reader = LaxReader::new(peer.stream.try_clone()?);
        while let Some(request) = reader.read_message()? {
            match respond(&request, peer) {
                Some(bytes) => peer.send(&bytes)?,
                None => break,
            }
        }
        Ok(())
    })
}

/// Formats a response with a length.
pub(crate) fn ok_response(body: &[u8]) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    response.extend_from_slice(body);
    response
}

/// Starts a server that responds with its name, a line break, and the head of the request.
pub(crate) fn echoing_server(name: &'static str) -> ScriptedServer {
    respond_to_each(move |request, _| Some(ok_response(format!("{name}\n{}", request.head).as_bytes())))
}

/// Makes the next close of this socket a reset.
pub(crate) fn reset_on_close(stream: impl AsFd) {
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// Waits until the other side has closed, and reads nothing, like a hanging server.
pub(crate) fn wait_for_close(peer: &ScriptPeer) {
    // Only a reset or a hang-up ends it; unread bytes do not count.
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut poll_fds = [PollFd::new(&peer.stream, PollFlags::RDHUP)];
    let poll_timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
    let _ = poll(&mut poll_fds, Some(&poll_timeout));
}

/// Waits until the other side, a process on this machine, has read all bytes sent to it.
pub(crate) fn wait_until_read(stream: &TcpStream) -> io::Result<()> {
    let own = format!("0100007F:{:04X}", stream.local_addr()?.port());
    let other = format!("0100007F:{:04X}", stream.peer_addr()?.port());
    let _ = super::within(EVENT_TIMEOUT, || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
        // Everything has arrived, and was read.
        is_queue_empty(&table, [&own, &other], 0) && is_queue_empty(&table, [&other, &own], 1)
    });
    Ok(())
}

/// Returns whether a queue (0: send, 1: receive) of the socket with this local and remote address is
/// empty, by the contents of /proc/net/tcp.
fn is_queue_empty(table: &str, [local, remote]: [&str; 2], queue: usize) -> bool {
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let queues = words.get(4).filter(|_| words[1] == local && words[2] == remote);
        queues.and_then(|queues| queues.split(':').nth(queue)) == Some("00000000")
    })
}

/// Address of the loopback with a bound socket that does not listen: connections to it are refused,
/// and no other process can get its port meanwhile.
#[derive(Debug)]
pub(crate) struct RefusingPort {
    pub(crate) authority: String,
    _socket: OwnedFd,
}

impl RefusingPort {
    pub(crate) fn new() -> Self {
        let (socket, address) = bound_socket(false);
        Self { authority: address.to_string(), _socket: socket }
    }

    /// Does the same as [`Refusing::new`], but a process that uses SO_REUSEADDR, as weir does, can
    /// listen there.
    pub(crate) fn with_reuse_addr() -> Self {
        let (socket, address) = bound_socket(true);
        Self { authority: address.to_string(), _socket: socket }
    }
}

/// A listener whose backlog is full permanently: connections to it are neither established nor
/// refused.
#[derive(Debug)]
pub(crate) struct FullBacklog {
    pub(crate) authority: String,
    _sockets: Vec<OwnedFd>,
}

impl FullBacklog {
    pub(crate) fn new() -> Self {
        let (socket, address) = bound_socket(false);
        listen(&socket, 0).unwrap();
        let mut sockets = vec![socket];
        // One connection fits into a backlog of 0; the later ones find it full.
        for _ in 0..4 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let client = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
            let result = connect(&client, &address);
            assert!(matches!(result, Ok(()) | Err(Errno::INPROGRESS)), "{result:?}");
            sockets.push(client);
        }
        let probe = TcpStream::connect_timeout(&address, Duration::from_millis(150));
        assert!(probe.is_err(), "the backlog of 0 has room");
        Self { authority: address.to_string(), _sockets: sockets }
    }
}

fn bound_socket(shared: bool) -> (OwnedFd, SocketAddr) {
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

/// A process that sends half a body and then nothing, so that it can be killed there.
#[derive(Debug)]
pub(crate) struct HalfBodyServer {
    pub(crate) process: Process,
    pub(crate) authority: String,
}

const HALF_BODY_SERVER: &str = r#"
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

impl HalfBodyServer {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", HALF_BODY_SERVER]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let port = process.first_line();
        Self { process, authority: format!("127.0.0.1:{}", port.trim()) }
    }
}

/// Returns the pipes of a process that was started with piped stdin and stdout.
pub(crate) fn take_pipes(process: &mut Process) -> (ChildStdin, ChildStdout) {
    let child = &mut process.0;
    (child.stdin.take().expect("a piped stdin"), child.stdout.take().expect("a piped stdout"))
}

/// A server with a gate: each request is recorded on arrival, and waits until it is let through.
#[derive(Debug)]
pub(crate) struct GatedServer {
    pub(crate) server: ScriptedServer,
    /// Targets of requests in the order of their arrival.
    pub(crate) arrivals: std::sync::mpsc::Receiver<String>,
    admitted: Arc<AtomicUsize>,
}

impl GatedServer {
    pub(crate) fn start() -> Self {
        let (sender, arrivals) = std::sync::mpsc::channel();
        let admitted = Arc::new(AtomicUsize::new(0));
        let turn = Arc::new(AtomicUsize::new(0));
        let server = respond_to_each({
            let admitted = Arc::clone(&admitted);
            move |request, _| {
                let own_turn = turn.fetch_add(1, Ordering::SeqCst);
                let _ = sender.send(request.target().to_owned());
                let is_admitted = || admitted.load(Ordering::SeqCst) > own_turn;
                super::within(EVENT_TIMEOUT, is_admitted).then(|| ok_response(b"through"))
            }
        });
        Self { server, arrivals, admitted }
    }

    /// Lets one more request through.
    pub(crate) fn admit_one(&self) {
        self.admitted.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the target of the next request that arrived.
    pub(crate) fn next_target(&self) -> String {
        self.arrivals.recv_timeout(EVENT_TIMEOUT).expect("a request")
    }
}

/// Kinds of faults of an origin, as scripts for one connection.
pub(crate) mod scripts {
    use super::{ScriptPeer, reset_on_close, wait_for_close, wait_until_read};
    use std::io::{self, Read};

    /// Closes as soon as it has accepted.
    pub(crate) fn close_at_once(_: &mut ScriptPeer) -> io::Result<()> {
        Ok(())
    }

    /// Reads the request, sends these bytes, and closes.
    pub(crate) fn close_after(sent: &'static [u8]) -> impl Fn(&mut ScriptPeer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(sent)
        }
    }

    /// Reads the request, sends these bytes, and resets once they have been read.
    pub(crate) fn reset_after(sent: &'static [u8]) -> impl Fn(&mut ScriptPeer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(sent)?;
            if !sent.is_empty() {
                // A reset discards unread bytes; the sent ones must arrive.
                wait_until_read(&peer.stream)?;
            }
            reset_on_close(&peer.stream);
            Ok(())
        }
    }

    /// Resets as soon as it has accepted.
    pub(crate) fn reset_at_once(peer: &mut ScriptPeer) -> io::Result<()> {
        reset_on_close(&peer.stream);
        Ok(())
    }

    /// Reads the request, sends these bytes, and then nothing more.
    pub(crate) fn hang_after(sent: &'static [u8]) -> impl Fn(&mut ScriptPeer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(sent)?;
            wait_for_close(peer);
            Ok(())
        }
    }

    /// Does the same as [`hang_after`], with a second part once the first has been read.
    pub(crate) fn hang_after_both(
        first: &'static [u8],
        then: &'static [u8],
    ) -> impl Fn(&mut ScriptPeer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(first)?;
            wait_until_read(&peer.stream)?;
            peer.send(then)?;
            wait_for_close(peer);
            Ok(())
        }
    }

    /// Reads no byte.
    pub(crate) fn read_nothing(peer: &mut ScriptPeer) -> io::Result<()> {
        wait_for_close(peer);
        Ok(())
    }

    /// Sends the start, and then the same bytes repeatedly until the peer stops reading.
    pub(crate) fn endless(
        start: &'static [u8],
        again: &'static [u8],
    ) -> impl Fn(&mut ScriptPeer) -> io::Result<()> {
        move |peer| {
            peer.request()?;
            peer.send(start)?;
            let many = again.repeat(1 + 4096 / again.len());
            // Limited, in case the peer reads all of it.
            for _ in 0..2_000 {
                peer.send(&many)?;
            }
            let _ = peer.stream.read(&mut [0])?;
            Ok(())
        }
    }
}

/// Writes bytes and ignores a failure.
pub(crate) fn send_ignoring_errors(stream: &mut impl Write, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}
