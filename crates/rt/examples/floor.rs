//! A comparison and not a product: the floor of any proxy, which copies bytes and knows no HTTP.
//!
//! `floor LISTEN TO` opens one connection to `TO` for each one that it accepts and copies both
//! ways, on raw epoll in a single thread: a read(2) and a write(2) for each message of each side.
//! What a real proxy costs above it is the price of being one.

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
/// The event data of the listening socket; pairs have twice their index, plus their side.
const LISTENING: u64 = u64::MAX;

/// An accepted connection, the one that was opened for it, and the bytes between them.
struct Pair {
    sockets: [OwnedFd; 2],
    /// By the side that is read from.
    flows: [Flow; 2],
}

/// One direction.
#[derive(Default)]
struct Flow {
    /// Read, and not taken by the other side yet.
    waiting: Vec<u8>,
    /// The reading side may have more; edge-triggered, so it will not be told again.
    readable: bool,
    /// The reading side's end is on its way, behind what can still be read.
    ending: bool,
    /// The reading side has ended.
    ended: bool,
    /// The other side was told of the end.
    done: bool,
}

struct Floor {
    epoll: OwnedFd,
    to: SocketAddr,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: floor LISTEN TO";
    let address: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let to: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let listener = socket(address)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    rustix::net::bind(&listener, &SocketAddrAny::from(address))?;
    rustix::net::listen(&listener, BACKLOG)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?;
    println!("listening on {bound}");
    std::io::stdout().flush()?;
    let floor = Floor {
        epoll: epoll::create(CreateFlags::CLOEXEC)?,
        to,
        pairs: Vec::new(),
        free: Vec::new(),
        buffer: vec![0; READ_BYTES],
    };
    floor.run(&listener)?;
    Ok(())
}

/// A non-blocking socket without delay; accepted ones inherit both that matter (tcp(7)).
fn socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

impl Floor {
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
        let server = socket(self.to)?;
        match rustix::net::connect(&server, &SocketAddrAny::from(self.to)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            // Nobody listens there: the client sees its connection end.
            Err(_) => return Ok(()),
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        let watched = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = |side: usize| EventData::new_u64((2 * index + side) as u64);
        epoll::add(&self.epoll, &client, data(0), watched)?;
        epoll::add(&self.epoll, &server, data(1), watched)?;
        self.pairs[index] =
            Some(Pair { sockets: [client, server], flows: [Flow::default(), Flow::default()] });
        Ok(())
    }

    fn handle_event(&mut self, index: usize, side: usize, flags: EventFlags) {
        let Some(pair) = &mut self.pairs[index] else {
            return;
        };
        let closing = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | closing) {
            pair.flows[side].readable = true;
            pair.flows[side].ending |= flags.intersects(closing);
        }
        // Readiness to write matters to the flow towards this side, and only when it waits for it.
        let alive = pair.copy(side, &mut self.buffer).and_then(|()| {
            if pair.flows[1 - side].waiting.is_empty() {
                return Ok(());
            }
            pair.copy(1 - side, &mut self.buffer)
        });
        if alive.is_err() || pair.flows.iter().all(|flow| flow.done) {
            self.pairs[index] = None;
            self.free.push(index);
        }
    }
}

impl Pair {
    /// Copies from `side` to the other until one of them has to be waited for.
    fn copy(&mut self, side: usize, buffer: &mut [u8]) -> Result<(), Errno> {
        let (from, to) = (&self.sockets[side], &self.sockets[1 - side]);
        let flow = &mut self.flows[side];
        loop {
            if !flow.waiting.is_empty() {
                let taken = write_some(to, &flow.waiting)?;
                flow.waiting.drain(..taken);
                if !flow.waiting.is_empty() {
                    return Ok(());
                }
            }
            if flow.ended && !flow.done {
                flow.done = true;
                rustix::net::shutdown(to, Shutdown::Write)?;
            }
            if !flow.readable || flow.ended {
                return Ok(());
            }
            match rustix::io::read(from, &mut *buffer) {
                Ok(0) => flow.ended = true,
                Ok(read) => {
                    // A short read proves the socket empty, unless its end was announced.
                    flow.readable = read == buffer.len() || flow.ending;
                    let taken = write_some(to, &buffer[..read])?;
                    flow.waiting.extend_from_slice(&buffer[taken..read]);
                }
                Err(Errno::AGAIN) => flow.readable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// As many bytes as the socket takes now.
fn write_some(to: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    match rustix::io::write(to, bytes) {
        Ok(taken) => Ok(taken),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error),
    }
}
