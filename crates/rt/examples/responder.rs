//! Reference program for comparisons, not a product: a minimal HTTP responder on raw epoll.
//!
//! `responder ADDR [BODY_BYTES]` responds to each read that ends like a request head with one fixed
//! response. It parses nothing, has no timeouts and no counters, and runs in a single thread:
//! accept4(2), epoll_wait(2), one read(2) and one write(2) per request. The additional cost of a
//! real origin is the price of its function.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

/// Connections by descriptor number.
type Connections = Vec<Option<OwnedFd>>;

const READ_BYTES: usize = 16 * 1024;
const EVENTS_MAX: usize = 512;
const BACKLOG: i32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: responder ADDR [BODY_BYTES]";
    let address: SocketAddr = arguments.next().ok_or(usage)?.parse()?;
    let body_bytes: usize = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let listener = listen(address)?;
    let bound = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?;
    println!("listening on {bound}");
    std::io::stdout().flush()?;
    serve(&listener, &response(body_bytes))?;
    Ok(())
}

fn listen(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_tcp_nodelay(&listener, true)?;
    rustix::net::bind(&listener, &SocketAddrAny::from(address))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Returns a response as long as that of an origin with the same body.
fn response(body_bytes: usize) -> Vec<u8> {
    let date = "Thu, 01 Jan 1970 00:00:00 GMT";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\nDate: {date}\r\n\r\n");
    let mut response = head.into_bytes();
    response.resize(response.len() + body_bytes, b'x');
    response
}

fn serve(listener: &OwnedFd, response: &[u8]) -> Result<(), Errno> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let listening = listener.as_raw_fd() as u64;
    epoll::add(&epoll, listener, EventData::new_u64(listening), EventFlags::IN)?;
    let mut connections = Connections::new();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        events.clear();
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        for event in &events {
            let data = event.data;
            if data.u64() == listening {
                accept_all(listener, &epoll, &mut connections)?;
            } else {
                handle_readable(&mut connections[data.u64() as usize], &mut buffer, response);
            }
        }
    }
}

fn accept_all(listener: &OwnedFd, epoll: &OwnedFd, connections: &mut Connections) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        let connection = match rustix::net::accept_with(listener, flags) {
            Ok(connection) => connection,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        let index = connection.as_raw_fd() as usize;
        let interest = EventFlags::IN | EventFlags::ET;
        epoll::add(epoll, &connection, EventData::new_u64(index as u64), interest)?;
        if connections.len() <= index {
            connections.resize_with(index + 1, || None);
        }
        connections[index] = Some(connection);
    }
}

/// Reads once and writes once. A short write ends the connection: a comparison keeps no state.
fn handle_readable(slot: &mut Option<OwnedFd>, buffer: &mut [u8], response: &[u8]) {
    let Some(connection) = slot else { return };
    let keep = match rustix::io::read(&*connection, &mut *buffer) {
        Ok(0) => false,
        Ok(read) if buffer[..read].ends_with(b"\r\n\r\n") => {
            rustix::io::write(&*connection, response) == Ok(response.len())
        }
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    };
    if !keep {
        *slot = None;
    }
}
