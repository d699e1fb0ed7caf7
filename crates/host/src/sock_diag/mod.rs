//! The sockets of some ports at one moment, as `sock_diag` tells them (sock_diag(7)): how many
//! connections wait to be accepted, which end holds bytes that nobody has read, how long a round
//! trip takes.
//!
//! Not for what a figure means.
//!
//! A snapshot costs processor time: 0.2 ms for a walk through the machine's hash table of connections
//! (262,144 buckets), and about 0.9 us for each socket that passes the filter, most of it for the
//! memory of the socket, which is cold (Linux 6.18, a virtual machine). 1,000 connections with both
//! ends here took 2.1 ms. So who looks again and again has to bound what that takes, as
//! [`crate::observe`] does.
//!
//! The kernel chooses by port (`request`), so that the sockets of others cost next to nothing.
//! The parser takes bytes (`row`) and is tested on captured ones; `tally` adds up.
//! Sources: `include/uapi/linux/{sock_diag,inet_diag,tcp}.h`, `net/ipv4/{inet,tcp}_diag.c`.

mod movement;
mod request;
mod row;
mod tally;
pub(crate) mod unix;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use record::observed::{EndQueues, ListenerQueue};

use crate::namespace::Namespace;
use crate::netlink::{Dumped, Family, Socket};
use crate::source::NotObservable;
use request::{Detail, GET_TCP};
use row::{Row, STATES, State};
use tally::{Keep, Tally};

pub use request::MAX_PORTS;

/// Sockets that one snapshot looks at. The kernel goes by hash, so that what is left out of a longer
/// table is no kind of its own.
pub const MAX_ROWS: usize = 100_000;

const WHAT: &str = "TCP sockets (sock_diag)";

/// Of more sockets in TIME_WAIT than this one look tells for some more.
const TIME_WAIT_MANY: u64 = 1_000;
/// Looks that leave TIME_WAIT out, then.
const TIME_WAIT_LEFT_OUT: u32 = 9;

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

/// What a socket that is of no watched port does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Established,
    /// SYN-SENT or SYN-RECEIVED.
    HalfOpen,
    /// With the connections that it dropped since it was opened.
    Listening {
        drops: u32,
    },
}

/// The TCP sockets of one network namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: Socket,
    request: Vec<u8>,
    tally: Tally,
    time_wait: TimeWait,
    truncated: bool,
}

/// Whether to ask for the sockets in TIME_WAIT. After a load that opens a connection for each request
/// there are tens of thousands of them, of which nothing is told but their number.
#[derive(Debug, Default)]
struct TimeWait {
    /// What was asked for when they were counted last.
    ports: Vec<u16>,
    many: bool,
    left_out: u32,
}

impl TimeWait {
    fn is_wanted(&self, ports: &[u16]) -> bool {
        !self.many || self.left_out >= TIME_WAIT_LEFT_OUT || self.ports != ports
    }

    fn asked(&mut self, wanted: bool, ports: &[u16], count: u64) {
        if wanted {
            self.ports.clear();
            self.ports.extend_from_slice(ports);
            self.many = count > TIME_WAIT_MANY;
            self.left_out = 0;
        } else {
            self.left_out += 1;
        }
    }
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
        Ok(Self {
            socket,
            request: Vec::new(),
            tally: Tally::default(),
            time_wait: TimeWait::default(),
            truncated: false,
        })
    }

    /// Appends what there is at `ports` now: their listening sockets, one entry a port, and both
    /// ends of their connections, as far as they are in this namespace. A port or an end without a
    /// socket gets no entry. At most [`MAX_PORTS`] ports and [`MAX_ROWS`] sockets are looked at.
    /// Where very many are in TIME_WAIT, their number is of up to nine snapshots ago.
    /// `now_s` is the time of the snapshot, of any clock that does not go back.
    ///
    /// # Errors
    /// The kernel does not have `sock_diag` for TCP, or refuses; nothing was appended.
    pub fn snapshot(
        &mut self,
        now_s: f64,
        ports: &[u16],
        listeners: &mut Vec<ListenerQueue>,
        ends: &mut Vec<EndQueues>,
    ) -> Result<(), NotObservable> {
        if ports.is_empty() {
            return Ok(());
        }
        let ports = &ports[..ports.len().min(MAX_PORTS)];
        let time_wait = self.time_wait.is_wanted(ports);
        let states = STATES.map(|(state, _)| state);
        let states = states.into_iter().filter(|state| time_wait || *state != State::TimeWait);
        let mut tally = std::mem::take(&mut self.tally);
        let keep = if time_wait { Keep::Nothing } else { Keep::TimeWait };
        tally.start(ports, keep, now_s);
        let walked = self.walk(states, Detail::Full, ports, |row| tally.add(&row));
        if walked.is_err() {
            tally.forget();
        }
        self.tally = tally;
        walked?;
        self.time_wait.asked(time_wait, ports, self.tally.time_wait());
        self.tally.append(listeners, ends);
        Ok(())
    }

    /// Whether the last look had to stop at [`MAX_ROWS`].
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Appends the sockets whose local port is none of `local_ports_excluded`, and that are established,
    /// half open or listening. With the ports that a program listens on left out, the established ones
    /// are its connections to others.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub(crate) fn others(
        &mut self,
        local_ports_excluded: &[u16],
        into: &mut Vec<(Kind, Connection)>,
    ) -> Result<(), NotObservable> {
        let mut push = |kind, row: &Row| {
            if !local_ports_excluded.contains(&row.local.port()) {
                let Row { local, remote, inode, .. } = *row;
                into.push((kind, Connection { local, remote, inode }));
            }
        };
        // The listening ones are in a table of their own, and only of them the drops are wanted.
        self.walk([State::Listen], Detail::Full, &[], |row| {
            push(Kind::Listening { drops: row.memory.map_or(0, |memory| memory.drops) }, &row);
        })?;
        let connections = [State::Established, State::SynSent, State::SynReceived];
        self.walk(connections, Detail::Plain, &[], |row| {
            let established = row.state == State::Established;
            push(if established { Kind::Established } else { Kind::HalfOpen }, &row);
        })
    }

    /// Shows `each` the sockets that pass.
    fn walk(
        &mut self,
        states: impl IntoIterator<Item = State>,
        detail: Detail,
        ports: &[u16],
        mut each: impl FnMut(Row),
    ) -> Result<(), NotObservable> {
        request::write(&mut self.request, states, detail, ports);
        let mut left = MAX_ROWS;
        let seen = self.socket.dump(GET_TCP, &self.request, |_, body| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            row::parse(body).into_iter().for_each(&mut each);
            ControlFlow::Continue(())
        });
        self.truncated = matches!(seen, Ok(Dumped::Left));
        seen.map(|_| ()).map_err(|error| NotObservable::new(WHAT, explain(&error)))
    }
}

fn explain(error: &io::Error) -> String {
    // The first without the module for TCP, the second without that for any socket.
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) {
        return "the kernel has no tcp_diag (try `modprobe tcp_diag`)".to_owned();
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
