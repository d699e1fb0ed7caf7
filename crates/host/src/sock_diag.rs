//! Sockets at some ports at one moment, from `sock_diag` (sock_diag(7)): connections that wait to
//! be accepted, unread bytes at each end, round-trip times.
//!
//! Figures are not interpreted here.
//!
//! A snapshot costs CPU time: 0.2 ms for a walk through the machine's hash table of connections
//! (262,144 buckets), and about 0.9 µs for each socket that passes the filter. Most of the latter
//! is for the socket's memory, which is not in the cache (Linux 6.18, a virtual machine). 1,000
//! connections with both ends here took 2.1 ms. So periodic callers must bound the cost, as
//! [`crate::observe`] does.
//!
//! The kernel filters by port (`request`), so that unrelated sockets cost next to nothing. The
//! parser takes bytes (`tcp_socket`) and is tested on captured ones; `totals` computes the sums.
//! Sources: `include/uapi/linux/{sock_diag,inet_diag,tcp}.h`, `net/ipv4/{inet,tcp}_diag.c`.

mod request;
mod tcp_socket;
mod totals;
mod traffic;
pub(crate) mod unix;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use record::observed::{EndQueues, ListenerQueue};

use crate::kernel_file::NotObservable;
use crate::namespace::Namespace;
use crate::netlink::{DumpOutcome, NetlinkFamily, NetlinkSocket};
use request::{Detail, TCPDIAG_GETSOCK};
use tcp_socket::{TCP_STATES, TcpSocket, TcpState};
use totals::{CarryOver, SocketTotals};

pub use request::MAX_PORTS;

/// Maximum number of sockets per snapshot. The kernel iterates by hash, so the omitted part of a
/// longer table is not biased.
pub const MAX_SOCKETS: usize = 100_000;

const FIGURE: &str = "TCP sockets (sock_diag)";

/// Number of sockets in TIME_WAIT above which some of the following snapshots leave them out.
const TIME_WAIT_LARGE: u64 = 1_000;
/// Number of snapshots that then leave TIME_WAIT out.
const TIME_WAIT_SKIPS: u32 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Inode of the socket, as in the links of `/proc/PID/fd`; 0 if no process holds it.
    pub inode: u32,
}

/// Kind of a socket outside the watched ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherSocketKind {
    Established,
    /// SYN-SENT or SYN-RECEIVED.
    HalfOpen,
    /// A listening socket, with the connections that it dropped since it was opened.
    Listening {
        drops: u32,
    },
}

/// The TCP sockets of one network namespace.
#[derive(Debug)]
pub struct SockDiag {
    socket: NetlinkSocket,
    request: Vec<u8>,
    totals: SocketTotals,
    time_wait: TimeWaitSampling,
    is_truncated: bool,
}

/// Decision to request sockets in TIME_WAIT. A load with a connection per request leaves tens of
/// thousands of them, and only their number is used.
#[derive(Debug, Default)]
struct TimeWaitSampling {
    /// Ports of the request that counted them last.
    ports: Vec<u16>,
    is_large: bool,
    skipped: u32,
}

impl TimeWaitSampling {
    fn is_due(&self, ports: &[u16]) -> bool {
        !self.is_large || self.skipped >= TIME_WAIT_SKIPS || self.ports != ports
    }

    fn record_request(&mut self, requested: bool, ports: &[u16], count: u64) {
        if requested {
            self.ports.clear();
            self.ports.extend_from_slice(ports);
            self.is_large = count > TIME_WAIT_LARGE;
            self.skipped = 0;
        } else {
            self.skipped += 1;
        }
    }
}

impl SockDiag {
    /// Opens a socket to the kernel in the network namespace of a process; `None` is the own
    /// namespace.
    ///
    /// # Errors
    /// Another namespace requires `CAP_SYS_ADMIN`, and the process must exist. The namespace is
    /// entered once; no privilege is needed later, and the namespace is held open.
    pub fn open(pid_of_namespace: Option<i32>) -> Result<Self, NotObservable> {
        let socket = Namespace::open_pid(pid_of_namespace)
            .and_then(|namespace| NetlinkSocket::open(NetlinkFamily::SockDiag, namespace))
            .map_err(|error| NotObservable::new(FIGURE, error.to_string()))?;
        Ok(Self {
            socket,
            request: Vec::new(),
            totals: SocketTotals::default(),
            time_wait: TimeWaitSampling::default(),
            is_truncated: false,
        })
    }

    /// Appends the current sockets at `ports`: their listening sockets, one entry per port, and
    /// both ends of their connections, as far as they are in this namespace. A port or an end
    /// without a socket gets no entry. The maximum is [`MAX_PORTS`] ports and `MAX_SOCKETS` sockets.
    /// If very many are in TIME_WAIT, their number may be up to nine snapshots old. `now_s` is the
    /// time of the snapshot, of any clock that does not go back.
    ///
    /// # Errors
    /// The kernel has no `sock_diag` for TCP, or rejects the request; nothing was appended.
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
        let with_time_wait = self.time_wait.is_due(ports);
        let states = TCP_STATES.map(|(state, _)| state);
        let states = states.into_iter().filter(|state| with_time_wait || *state != TcpState::TimeWait);
        let mut totals = std::mem::take(&mut self.totals);
        let carry_over = if with_time_wait { CarryOver::Nothing } else { CarryOver::TimeWait };
        totals.start(ports, carry_over, now_s);
        let result = self.dump(states, Detail::Full, ports, |socket| totals.add(&socket));
        if result.is_err() {
            totals.discard_previous();
        }
        self.totals = totals;
        result?;
        self.time_wait.record_request(with_time_wait, ports, self.totals.time_wait());
        self.totals.append(listeners, ends);
        Ok(())
    }

    /// Returns true if the last snapshot had to stop at `MAX_SOCKETS`.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Appends the sockets that are established, half open or listening and whose local port is not
    /// in `local_ports_excluded`. Without a process's listening ports, the established ones are its
    /// outgoing connections.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub(crate) fn other_sockets(
        &mut self,
        local_ports_excluded: &[u16],
        into: &mut Vec<(OtherSocketKind, Connection)>,
    ) -> Result<(), NotObservable> {
        let mut push = |kind, socket: &TcpSocket| {
            if !local_ports_excluded.contains(&socket.local.port()) {
                let TcpSocket { local, remote, inode, .. } = *socket;
                into.push((kind, Connection { local, remote, inode }));
            }
        };
        // Listening sockets are in a separate table, and only their drops are needed.
        self.dump([TcpState::Listen], Detail::Full, &[], |socket| {
            push(
                OtherSocketKind::Listening { drops: socket.memory.map_or(0, |memory| memory.drops) },
                &socket,
            );
        })?;
        let connections = [TcpState::Established, TcpState::SynSent, TcpState::SynReceived];
        self.dump(connections, Detail::Plain, &[], |socket| {
            let established = socket.state == TcpState::Established;
            push(if established { OtherSocketKind::Established } else { OtherSocketKind::HalfOpen }, &socket);
        })
    }

    /// Calls `each` with the sockets that pass the filter.
    fn dump(
        &mut self,
        states: impl IntoIterator<Item = TcpState>,
        detail: Detail,
        ports: &[u16],
        mut each: impl FnMut(TcpSocket),
    ) -> Result<(), NotObservable> {
        request::write_request(&mut self.request, states, detail, ports);
        let mut left = MAX_SOCKETS;
        let outcome = self.socket.dump(TCPDIAG_GETSOCK, &self.request, |_, body| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            tcp_socket::parse(body).into_iter().for_each(&mut each);
            ControlFlow::Continue(())
        });
        self.is_truncated = matches!(outcome, Ok(DumpOutcome::Stopped));
        outcome.map(|_| ()).map_err(|error| NotObservable::new(FIGURE, explain(&error)))
    }
}

fn explain(error: &io::Error) -> String {
    // The first error means that the TCP module is missing, the second that the general one is.
    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) {
        return "the kernel has no tcp_diag (try `modprobe tcp_diag`)".to_owned();
    }
    error.to_string()
}

#[cfg(test)]
mod tests;
