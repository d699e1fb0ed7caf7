//! Threads and connections of the faulty server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::FaultConfig;
use super::faults::{RequestOutcome, ServerState};

/// Maximum length of a request head, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Maximum time that a worker polls its connections before it checks for new ones, in nanoseconds.
const POLL_TIMEOUT_NS: i64 = 1_000_000;
/// Pause after a failed accept: without free descriptors it would fail again at once.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);

/// A server that runs until its process ends.
#[derive(Debug)]
pub struct FaultyServer {
    pub address: SocketAddr,
    acceptor: std::thread::JoinHandle<()>,
}

impl FaultyServer {
    /// Returns whether the acceptor has panicked, so that no more connections are accepted.
    pub fn has_ended(&self) -> bool {
        self.acceptor.is_finished()
    }
}

/// Starts the server. `clock` is monotonic, in nanoseconds.
///
/// # Errors
/// The server cannot listen, or its log cannot be opened.
pub fn start(config: FaultConfig, clock: fn() -> u64) -> io::Result<FaultyServer> {
    let listener = host::sandbox::listen::listen_with_backlog(config.listen, config.backlog)?;
    let address = listener.local_addr()?;
    let threads = config.threads;
    let shared = Arc::new(ServerState::new(config, clock)?);
    let mut workers = Vec::new();
    for number in 0..threads.unwrap_or(0) {
        let (sender, receiver) = channel();
        let shared = Arc::clone(&shared);
        let name = format!("worker-{number}");
        std::thread::Builder::new().name(name).spawn(move || run_worker(&shared, &receiver))?;
        workers.push(sender);
    }
    let accept = move || accept_loop(&listener, &shared, &workers);
    let acceptor = std::thread::Builder::new().name("acceptor".to_owned()).spawn(accept)?;
    Ok(FaultyServer { address, acceptor })
}

fn accept_loop(listener: &TcpListener, shared: &Arc<ServerState>, workers: &[Sender<TcpStream>]) {
    let mut next = 0;
    loop {
        if shared.config.accept_delay_ns > 0 {
            std::thread::sleep(Duration::from_nanos(shared.config.accept_delay_ns));
        }
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(ACCEPT_RETRY_DELAY);
            continue;
        };
        // Nagle's algorithm stays on if it is the injected fault.
        let _ = stream.set_nodelay(!shared.config.split_write);
        match workers.is_empty() {
            false => {
                // A worker never ends. Connections of a panicked worker are not served, as
                // intended.
                let _ = workers[next % workers.len()].send(stream);
                next += 1;
            }
            true => {
                let shared = Arc::clone(shared);
                // If a thread cannot be started, its connection is closed.
                let _ = std::thread::Builder::new()
                    .name("connection".to_owned())
                    .spawn(move || serve_connection(&shared, stream));
            }
        }
    }
}

fn serve_connection(shared: &ServerState, stream: TcpStream) {
    let mut connection = Connection { stream, unread: Vec::new() };
    while connection.read().is_ok_and(|open| open) {
        if !connection.respond_to_all(shared).is_ok_and(|open| open) {
            return;
        }
    }
}

/// Runs a thread of many connections.
fn run_worker(shared: &ServerState, new_connections: &Receiver<TcpStream>) {
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        if connections.is_empty() {
            // Without any connection the worker waits for the first one; the acceptor never ends.
            let Ok(stream) = new_connections.recv() else { return };
            connections.push(Connection { stream, unread: Vec::new() });
        }
        connections
            .extend(new_connections.try_iter().map(|stream| Connection { stream, unread: Vec::new() }));
        let ready: Vec<bool> = {
            let poll_fd = |connection| PollFd::new(connection, PollFlags::IN);
            let mut polled: Vec<PollFd<'_>> =
                connections.iter().map(|connection| poll_fd(&connection.stream)).collect();
            let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_TIMEOUT_NS };
            // If poll fails, nothing is ready, and the loop tries again.
            let _ = poll(&mut polled, Some(&timeout));
            polled.iter().map(|polled| !polled.revents().is_empty()).collect()
        };
        let mut ready = ready.into_iter();
        connections.retain_mut(|connection| {
            !ready.next().unwrap_or(false)
                || (connection.read().is_ok_and(|open| open)
                    && connection.respond_to_all(shared).is_ok_and(|open| open))
        });
    }
}

struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    /// Reads the available bytes. Returns whether the connection is still open.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let bytes = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..bytes]);
        Ok(bytes > 0 && self.unread.len() <= HEAD_BYTES_MAX)
    }

    /// Responds to every complete head. Returns whether the connection stays open.
    fn respond_to_all(&mut self, shared: &ServerState) -> io::Result<bool> {
        while let Some(at) = find(&self.unread, HEAD_END) {
            let head: Vec<u8> = self.unread.drain(..at + HEAD_END.len()).collect();
            let client_closes = asks_to_close(&head) && !shared.config.ignore_close;
            let close = shared.config.close_after_response || client_closes;
            let outcome = shared.inject_faults()?;
            if outcome == RequestOutcome::Dropped {
                return Ok(false);
            }
            self.respond(&shared.config, outcome, close)?;
            if close {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn respond(&mut self, config: &FaultConfig, outcome: RequestOutcome, close: bool) -> io::Result<()> {
        let status = match outcome {
            RequestOutcome::Success => "200 OK",
            _ => "500 Internal Server Error",
        };
        let close = if close { "Connection: close\r\n" } else { "" };
        let bytes = config.body_bytes;
        let head =
            format!("HTTP/1.1 {status}\r\nServer: weir-faulty\r\nContent-Length: {bytes}\r\n{close}\r\n");
        let mut response = head.into_bytes();
        if config.split_write {
            self.stream.write_all(&response)?;
            return self.stream.write_all(&vec![b'x'; bytes]);
        }
        response.resize(response.len() + bytes, b'x');
        self.stream.write_all(&response)
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn asks_to_close(head: &[u8]) -> bool {
    find(&head.to_ascii_lowercase(), b"connection: close").is_some()
}
