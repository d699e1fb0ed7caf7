//! The sockets of some ports at one moment, as `sock_diag` tells them (sock_diag(7)): how many
//! connections wait to be accepted, which end holds bytes that nobody has read, how long a round
//! trip takes.
//!
//! Not for what a figure means. Not for every second on a machine with very many connections: a
//! snapshot costs about a microsecond of processor time for each socket that passes the filter.
//!
//! The kernel chooses by port ([`request`]), so that the sockets of others cost next to nothing.
//! The parser takes bytes ([`row`]) and is tested on captured ones; [`tally`] adds up.
//! Sources: `include/uapi/linux/{sock_diag,inet_diag,tcp}.h`, `net/ipv4/{inet,tcp}_diag.c`.

mod request;
mod row;
mod tally;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use record::observed::{EndQueues, ListenerQueue};

use crate::netlink::{Dumped, Family, Namespace, Socket};
use crate::source::NotObservable;
use request::{Detail, SOCK_DIAG_BY_FAMILY};
use row::{IPV4, IPV6, Row, STATES, State};
use tally::Tally;

pub use request::MAX_PORTS;

/// Sockets that one snapshot looks at. The kernel goes by hash, so that what is left out of a longer
/// table is no kind of its own.
pub const MAX_ROWS: usize = 100_000;

const WHAT: &str = "TCP sockets (sock_diag)";

/// A connection of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The inode of the socket, as the links in `/proc/PID/fd` name it; 0 when no process holds it.
    pub inode: u32,
}

/// The TCP sockets of one network namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: Socket,
    request: Vec<u8>,
    tally: Tally,
    truncated: bool,
}

impl SockDiag {
    /// Opens a socket to the kernel in the network namespace of a process; `None` is our own.
    ///
    /// # Errors
    /// Another namespace takes `CAP_SYS_ADMIN`, and the process must be there. It is entered once;
    /// no privilege is needed later, and the namespace is held open.
    pub fn open(pid_of_namespace: Option<i32>) -> Result<Self, NotObservable> {
        let socket = Namespace::of(pid_of_namespace)
            .and_then(|there| Socket::open(Family::SockDiag, there))
            .map_err(|error| NotObservable::new(WHAT, error.to_string()))?;
        Ok(Self { socket, request: Vec::new(), tally: Tally::default(), truncated: false })
    }

    /// Appends what there is at `ports` now: their listening sockets, one entry a port, and both
    /// ends of their connections, as far as they are in this namespace. A port or an end without a
    /// socket gets no entry. At most [`MAX_PORTS`] ports and [`MAX_ROWS`] sockets are looked at.
    ///
    /// # Errors
    /// The kernel does not have `sock_diag` for TCP, or refuses; nothing was appended.
    pub fn snapshot(
        &mut self,
        ports: &[u16],
        listeners: &mut Vec<ListenerQueue>,
        ends: &mut Vec<EndQueues>,
    ) -> Result<(), NotObservable> {
        if ports.is_empty() {
            return Ok(());
        }
        let ports = &ports[..ports.len().min(MAX_PORTS)];
        let mut tally = std::mem::take(&mut self.tally);
        tally.start(ports);
        let states = STATES.map(|(state, _)| state);
        let walked = self.walk(&states, Detail::Full, ports, |row| tally.add(&row));
        if walked.is_ok() {
            tally.append(listeners, ends);
        }
        self.tally = tally;
        walked
    }

    /// Whether the last look had to stop at [`MAX_ROWS`].
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Appends the established connections whose local port is none of `local_ports_excluded`: with
    /// the ports that a program listens on left out, those are its connections to others.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub fn connections_of(
        &mut self,
        local_ports_excluded: &[u16],
        into: &mut Vec<Connection>,
    ) -> Result<(), NotObservable> {
        self.walk(&[State::Established], Detail::Plain, &[], |row| {
            if !local_ports_excluded.contains(&row.local.port()) {
                let Row { local, remote, inode, .. } = row;
                into.push(Connection { local, remote, inode });
            }
        })
    }

    /// Shows `each` the sockets of both families that pass.
    fn walk(
        &mut self,
        states: &[State],
        detail: Detail,
        ports: &[u16],
        mut each: impl FnMut(Row),
    ) -> Result<(), NotObservable> {
        self.truncated = false;
        let mut left = MAX_ROWS;
        for family in [IPV4, IPV6] {
            request::write(&mut self.request, family, states, detail, ports);
            let seen = self.socket.dump(SOCK_DIAG_BY_FAMILY, &self.request, |_, body| {
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                row::parse(body).into_iter().for_each(&mut each);
                ControlFlow::Continue(())
            });
            match seen {
                Ok(Dumped::Left) => self.truncated = true,
                Ok(Dumped::Whole | Dumped::Interrupted) => {}
                Err(error) => return Err(NotObservable::new(WHAT, explain(&error))),
            }
        }
        Ok(())
    }
}

fn explain(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return "the kernel has no tcp_diag (try `modprobe tcp_diag`)".to_owned();
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
