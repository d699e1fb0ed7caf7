//! Reference program for comparisons, not a product: the minimum cost of any proxy. It copies bytes
//! and knows no HTTP.
//!
//! `floor LISTEN TO` opens one connection to `TO` for each accepted one and copies both ways, on
//! raw epoll in a single thread: a read(2) and a write(2) for each message of each side. The
//! additional cost of a real proxy is the price of its function.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrAny, SocketFlags, SocketType, sockopt};

const READ_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 512;
const BACKLOG: i32 = 4096;
/// Event data of the listening socket; pairs have twice their index, plus their side.
const LISTENING: u64 = u64::MAX;

/// An accepted connection, the one that was opened for it, and the bytes between them.
struct ConnectionPair {
    sockets: [OwnedFd; 2],
    /// Flows by the side that is read from.
    flows: [Flow; 2],
}

/// One direction.
#[derive(Default)]
struct Flow {
    /// Bytes read, and not yet written to the other side.
    pending: Vec<u8>,
    /// True if the reading side may have more; events are edge-triggered, so there is no second
    /// one.
    readable: bool,
    /// True if the end of the reading side was announced; unread bytes may remain before it.
    is_closing: bool,
    /// True if the reading side has ended.
    eof: bool,
    /// True if the end was passed on to the other side.
    shut_down: bool,
}

struct EpollRelay {
    epoll: OwnedFd,
    upstream: SocketAddr,
    pairs: Vec<Option<ConnectionPair>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: floor LISTEN TO";
    let address: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let upstream: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let listener = socket(address)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    rustix::net::bind(&listener, &SocketAddrAny::from(address))?;
    rustix::net::listen(&listener, BACKLOG)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?;
    println!("listening on {bound}");
    std::io::stdout().flush()?;
    let floor = EpollRelay {
        epoll: epoll::create(CreateFlags::CLOEXEC)?,
        upstream,
        pairs: Vec::new(),
        free: Vec::new(),
        buffer: vec![0; READ_BYTES],
    };
    floor.run(&listener)?;
    Ok(())
}

/// Creates a non-blocking socket without delay; accepted ones inherit both options (tcp(7)).
fn socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

impl EpollRelay {
    fn run(mut self, listener: &OwnedFd) -> Result<(), Errno> {
        epoll::add(&self.epoll, listener, EventData::new_u64(LISTENING), EventFlags::IN)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    LISTENING => self.accept_all(listener)?,
                    pair => self.handle_event(pair as usize / 2, pair as usize % 2, flags),
                }
            }
        }
    }

    fn accept_all(&mut self, listener: &OwnedFd) -> Result<(), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match rustix::net::accept_with(listener, flags) {
                Ok(client) => self.open(client)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn open(&mut self, client: OwnedFd) -> Result<(), Errno> {
        let server = socket(self.upstream)?;
        match rustix::net::connect(&server, &SocketAddrAny::from(self.upstream)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            // If there is no listener, the client's connection ends.
            Err(_) => return Ok(()),
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = |side: usize| EventData::new_u64((2 * index + side) as u64);
        epoll::add(&self.epoll, &client, data(0), interest)?;
        epoll::add(&self.epoll, &server, data(1), interest)?;
        self.pairs[index] =
            Some(ConnectionPair { sockets: [client, server], flows: [Flow::default(), Flow::default()] });
        Ok(())
    }

    fn handle_event(&mut self, index: usize, side: usize, flags: EventFlags) {
        let Some(pair) = &mut self.pairs[index] else {
            return;
        };
        let closing = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | closing) {
            pair.flows[side].readable = true;
            pair.flows[side].is_closing |= flags.intersects(closing);
        }
        // Write readiness matters only to the flow towards this side, and only while it waits for
        // it.
        let result = pair.copy(side, &mut self.buffer).and_then(|()| {
            if pair.flows[1 - side].pending.is_empty() {
                return Ok(());
            }
            pair.copy(1 - side, &mut self.buffer)
        });
        if result.is_err() || pair.flows.iter().all(|flow| flow.shut_down) {
            self.pairs[index] = None;
            self.free.push(index);
        }
    }
}

impl ConnectionPair {
    /// Copies from `side` to the other until one of them would block.
    fn copy(&mut self, side: usize, buffer: &mut [u8]) -> Result<(), Errno> {
        let (from, to) = (&self.sockets[side], &self.sockets[1 - side]);
        let flow = &mut self.flows[side];
        loop {
            if !flow.pending.is_empty() {
                let written = write_some(to, &flow.pending)?;
                flow.pending.drain(..written);
                if !flow.pending.is_empty() {
                    return Ok(());
                }
            }
            if flow.eof && !flow.shut_down {
                flow.shut_down = true;
                rustix::net::shutdown(to, Shutdown::Write)?;
            }
            if !flow.readable || flow.eof {
                return Ok(());
            }
            match rustix::io::read(from, &mut *buffer) {
                Ok(0) => flow.eof = true,
                Ok(read) => {
                    // A short read proves the socket empty, unless its end was announced.
                    flow.readable = read == buffer.len() || flow.is_closing;
                    let written = write_some(to, &buffer[..read])?;
                    flow.pending.extend_from_slice(&buffer[written..read]);
                }
                Err(Errno::AGAIN) => flow.readable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes as many bytes as the socket accepts now.
fn write_some(to: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    match rustix::io::write(to, bytes) {
        Ok(written) => Ok(written),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error),
    }
}
