//! Threads and connections of the sick server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Illness;
use super::work::{Ending, Shared};

/// The longest request head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The end of a head.
const END: &[u8] = b"\r\n\r\n";
/// How long a worker waits for its connections before it looks for new ones.
const LOOK_NS: i64 = 1_000_000;
/// A pause after an accept that failed: with no descriptor left it would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// A server that runs for as long as its process does.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    acceptor: std::thread::JoinHandle<()>,
}

impl Running {
    /// Whether it has panicked and accepts no more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.acceptor.is_finished()
    }
}

/// Starts the server. `clock` is monotonic, in nanoseconds.
///
/// # Errors
/// It cannot listen, or its log cannot be opened.
pub fn start(illness: Illness, clock: fn() -> u64) -> io::Result<Running> {
    let listener = host::setup::listen::listen_with(illness.listen, illness.backlog)?;
    let address = listener.local_addr()?;
    let threads = illness.threads;
    let shared = Arc::new(Shared::new(illness, clock)?);
    let mut workers = Vec::new();
    for number in 0..threads.unwrap_or(0) {
        let (sender, receiver) = channel();
        let shared = Arc::clone(&shared);
        let name = format!("worker-{number}");
        std::thread::Builder::new().name(name).spawn(move || work(&shared, &receiver))?;
        workers.push(sender);
    }
    let accept = move || accept(&listener, &shared, &workers);
    let acceptor = std::thread::Builder::new().name("acceptor".to_owned()).spawn(accept)?;
    Ok(Running { address, acceptor })
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, workers: &[Sender<TcpStream>]) {
    let mut next = 0;
    loop {
        if shared.illness.accept_delay_ns > 0 {
            std::thread::sleep(Duration::from_nanos(shared.illness.accept_delay_ns));
        }
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(AFTER_FAILURE);
            continue;
        };
        // Nagle's algorithm stays on where it is the illness.
        let _ = stream.set_nodelay(!shared.illness.split_write);
        match workers.is_empty() {
            false => {
                // A worker never ends; one that panicked serves nobody, as it should.
                let _ = workers[next % workers.len()].send(stream);
                next += 1;
            }
            true => {
                let shared = Arc::clone(shared);
                // A thread that cannot be started is a connection that is closed.
                let _ = std::thread::Builder::new()
                    .name("connection".to_owned())
                    .spawn(move || alone(&shared, stream));
            }
        }
    }
}

/// A thread of one connection.
fn alone(shared: &Shared, stream: TcpStream) {
    let mut connection = Connection { stream, unread: Vec::new() };
    while connection.read().is_ok_and(|open| open) {
        if !connection.answer_all(shared).is_ok_and(|open| open) {
            return;
        }
    }
}

/// A thread of many connections.
fn work(shared: &Shared, new: &Receiver<TcpStream>) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        if connections.is_empty() {
            // Without anything to look at it waits for the first; the acceptor never ends.
            let Ok(stream) = new.recv() else { return };
            connections.push(Connection { stream, unread: Vec::new() });
        }
        connections.extend(new.try_iter().map(|stream| Connection { stream, unread: Vec::new() }));
        let ready: Vec<bool> = {
            let poll_fd = |connection| PollFd::new(connection, PollFlags::IN);
            let mut polled: Vec<PollFd<'_>> =
                connections.iter().map(|connection| poll_fd(&connection.stream)).collect();
            let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
            // When it fails nothing is ready, and it is tried again.
            let _ = poll(&mut polled, Some(&timeout));
            polled.iter().map(|polled| !polled.revents().is_empty()).collect()
        };
        let mut ready = ready.into_iter();
        connections.retain_mut(|connection| {
            !ready.next().unwrap_or(false)
                || (connection.read().is_ok_and(|open| open)
                    && connection.answer_all(shared).is_ok_and(|open| open))
        });
    }
}

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    /// Takes what there is; whether the client has not closed.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let bytes = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..bytes]);
        Ok(bytes > 0 && self.unread.len() <= HEAD_BYTES_MAX)
    }

    /// Answers every whole head; whether the connection stays open.
    fn answer_all(&mut self, shared: &Shared) -> io::Result<bool> {
        while let Some(at) = find(&self.unread, END) {
            let head: Vec<u8> = self.unread.drain(..at + END.len()).collect();
            let asked = asks_to_close(&head) && !shared.illness.ignore_close;
            let close = shared.illness.close_each || asked;
            let ending = shared.work()?;
            if ending == Ending::Nothing {
                return Ok(false);
            }
            self.answer(&shared.illness, ending, close)?;
            if close {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn answer(&mut self, illness: &Illness, ending: Ending, close: bool) -> io::Result<()> {
        let status = match ending {
            Ending::Answer => "200 OK",
            _ => "500 Internal Server Error",
        };
        let close = if close { "Connection: close\r\n" } else { "" };
        let bytes = illness.body_bytes;
        let head =
            format!("HTTP/1.1 {status}\r\nServer: sick\r\nContent-Length: {bytes}\r\n{close}\r\n");
        let mut answer = head.into_bytes();
        if illness.split_write {
            self.stream.write_all(&answer)?;
            return self.stream.write_all(&vec![b'x'; bytes]);
        }
        answer.resize(answer.len() + bytes, b'x');
        self.stream.write_all(&answer)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn asks_to_close(head: &[u8]) -> bool {
    find(&head.to_ascii_lowercase(), b"connection: close").is_some()
}
