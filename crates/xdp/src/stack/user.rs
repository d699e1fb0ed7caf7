//! Calls of the users of connections: accept, connect, read, write, close. As with sockets, but nothing blocks: a call
//! that cannot go on stores the waker of its task.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::task::{Poll, Waker};

use smoltcp::socket::tcp::{RecvError, State};
use smoltcp::wire::IpEndpoint;

use super::connection::{ConnectionId, Phase};
use super::{BUFFER_BYTES, HANDSHAKE_NS_MAX, Link, ORPHAN_NS_MAX, RESTARTS_MAX, Stack};
use crate::packet::{FourTuple, MacAddress};

impl<L: Link> Stack<L> {
    /// Returns the next accepted connection.
    pub fn accept(&mut self) -> Option<ConnectionId> {
        self.accepted.pop_front()
    }

    /// Returns whether [`Stack::accept`] returns one.
    #[must_use]
    pub fn has_accepted(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// Starts a connection from `local` to `remote`, whose next hop has this MAC address.
    ///
    /// # Errors
    /// `AddrNotAvailable`: all ports are used, or there are too many connections.
    pub fn connect(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        next_hop: MacAddress,
        now_ns: u64,
    ) -> io::Result<ConnectionId> {
        let exhausted = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let tuple = self.free_tuple(local, remote).ok_or_else(exhausted)?;
        let expiry_ns = now_ns.saturating_add(HANDSHAKE_NS_MAX);
        let slot = self.insert(tuple, Phase::Connecting, expiry_ns).ok_or_else(exhausted)?;
        let id = ConnectionId { slot, generation: self.slots[slot as usize].generation };
        let context = self.interface.context();
        let Some(connection) = &mut self.slots[slot as usize].connection else { return Err(exhausted()) };
        connection.peer_mac = next_hop;
        let started =
            connection.socket_mut().connect(context, IpEndpoint::from(remote), IpEndpoint::from(tuple.local));
        if started.is_err() {
            self.remove(slot);
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.counters.started += 1;
        self.mark_dirty(slot);
        Ok(id)
    }

    /// Starts a connection again whose SYN the peer took for a segment of an old connection in TIME-WAIT, with the same
    /// addresses and ports (RFC 9293 §3.10.7.4): its sequence number was not above the old ones. The peer forgets the old
    /// one by the reset that answered it, so that a new SYN need not wait for its timer.
    pub(super) fn restart(&mut self, slot: u32) {
        let context = self.interface.context();
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        if connection.restarts >= RESTARTS_MAX {
            return;
        }
        connection.restarts += 1;
        let FourTuple { local, remote } = connection.tuple;
        let socket = connection.socket_mut();
        socket.abort();
        // It is closed, and its addresses and ports were accepted before.
        let _ = socket.connect(context, IpEndpoint::from(remote), IpEndpoint::from(local));
        self.counters.restarted += 1;
        self.mark_dirty(slot);
    }

    /// Returns addresses and ports that no connection has: ports are used in turns.
    fn free_tuple(&mut self, local: IpAddr, remote: SocketAddr) -> Option<FourTuple> {
        let ports = self.config.ports.clone();
        for _ in ports.clone() {
            let port = self.next_port;
            self.next_port = if port >= *ports.end() { *ports.start() } else { port + 1 };
            let tuple = FourTuple { local: SocketAddr::new(local, port), remote };
            if self.arrives_here(&tuple) && !self.by_tuple.contains_key(&tuple) {
                return Some(tuple);
            }
        }
        None
    }

    /// Returns whether the device gives the segments of a connection to the own queue, as far as that is known.
    fn arrives_here(&self, tuple: &FourTuple) -> bool {
        let steering = self.config.steering.as_ref();
        steering.is_none_or(|steering| steering.queue(tuple) == self.config.queue)
    }

    /// Waits for the handshake of [`Stack::connect`].
    ///
    /// # Errors
    /// `ConnectionRefused`: the peer answered with a reset. `TimedOut`: it did not answer.
    pub fn poll_connected(&mut self, id: ConnectionId, waker: &Waker) -> Poll<io::Result<()>> {
        let Some(connection) = self.connection_mut(id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        match connection.socket().state() {
            State::SynSent | State::SynReceived => {
                connection.socket_mut().register_send_waker(waker);
                Poll::Pending
            }
            State::Closed if connection.phase == Phase::Connecting => {
                Poll::Ready(Err(match connection.has_answer {
                    true => io::ErrorKind::ConnectionRefused.into(),
                    false => io::ErrorKind::TimedOut.into(),
                }))
            }
            _ => {
                connection.phase = Phase::Open;
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Reads received bytes: 0 is the end of the stream.
    ///
    /// # Errors
    /// `ConnectionReset`: the connection ended before the stream did.
    #[inline]
    pub fn poll_read(
        &mut self,
        id: ConnectionId,
        waker: &Waker,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(connection) = self.connection_mut(id) else { return Poll::Ready(Err(reset())) };
        if connection.is_read_shut {
            return Poll::Ready(Ok(0));
        }
        let queued = connection.socket().recv_queue();
        match connection.socket_mut().recv_slice(buffer) {
            Ok(0) if !buffer.is_empty() => {
                connection.socket_mut().register_recv_waker(waker);
                Poll::Pending
            }
            Ok(bytes) => {
                connection.read_bytes += bytes as u64;
                // The peer may wait for the space.
                if queued >= BUFFER_BYTES / 2 {
                    self.mark_dirty(id.slot);
                }
                Poll::Ready(Ok(bytes))
            }
            Err(RecvError::Finished) => Poll::Ready(Ok(0)),
            Err(RecvError::InvalidState) => Poll::Ready(Err(reset())),
        }
    }

    /// Checks for bytes without reading them: 0 is the end of the stream, 1 any number.
    ///
    /// # Errors
    /// Those of [`Stack::poll_read`].
    pub fn poll_peek(&mut self, id: ConnectionId, waker: &Waker) -> Poll<io::Result<usize>> {
        let Some(connection) = self.connection_mut(id) else { return Poll::Ready(Err(reset())) };
        if connection.is_read_shut {
            return Poll::Ready(Ok(0));
        }
        match connection.socket_mut().peek(1) {
            Ok([]) => {
                connection.socket_mut().register_recv_waker(waker);
                Poll::Pending
            }
            Ok(_) => Poll::Ready(Ok(1)),
            Err(RecvError::Finished) => Poll::Ready(Ok(0)),
            Err(RecvError::InvalidState) => Poll::Ready(Err(reset())),
        }
    }

    /// Writes as much as fits.
    ///
    /// # Errors
    /// `BrokenPipe`: this end is shut down, or the connection is over.
    #[inline]
    pub fn poll_write(
        &mut self,
        id: ConnectionId,
        waker: &Waker,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(connection) = self.connection_mut(id) else { return Poll::Ready(Err(reset())) };
        let mut written = 0;
        for slice in slices {
            match connection.socket_mut().send_slice(slice) {
                Ok(bytes) => written += bytes,
                Err(_) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
            if connection.socket().send_queue() >= BUFFER_BYTES {
                break;
            }
        }
        if written == 0 && slices.iter().any(|slice| !slice.is_empty()) {
            connection.socket_mut().register_send_waker(waker);
            return Poll::Pending;
        }
        connection.written_bytes += written as u64;
        self.mark_dirty(id.slot);
        Poll::Ready(Ok(written))
    }

    /// Reads as [`Stack::poll_read`] does; `None` if there is nothing. No task is registered.
    pub fn try_read(&mut self, id: ConnectionId, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        if self.is_idle(id) {
            return None;
        }
        match self.poll_read(id, Waker::noop(), buffer) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Writes as [`Stack::poll_write`] does; `None` if nothing fits. No task is registered.
    pub fn try_write(&mut self, id: ConnectionId, bytes: &[u8]) -> Option<io::Result<usize>> {
        if self.connection(id).is_some_and(|connection| connection.socket().send_queue() >= BUFFER_BYTES) {
            return None;
        }
        match self.poll_write(id, Waker::noop(), &[IoSlice::new(bytes)]) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Returns whether received bytes wait.
    #[must_use]
    pub fn has_unread(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| connection.socket().can_recv())
    }

    /// Returns whether there is nothing to read: neither bytes nor an end.
    #[must_use]
    pub fn is_idle(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| {
            let socket = connection.socket();
            !connection.is_read_shut && !socket.can_recv() && socket.may_recv()
        })
    }

    /// Returns the written bytes that the peer has not acknowledged.
    #[must_use]
    pub fn unacked_bytes(&self, id: ConnectionId) -> Option<u64> {
        self.connection(id).map(|connection| connection.socket().send_queue() as u64)
    }

    /// Returns the bytes received, and those acknowledged by the peer.
    #[must_use]
    pub fn byte_counts(&self, id: ConnectionId) -> Option<(u64, u64)> {
        self.connection(id).map(|connection| {
            let socket = connection.socket();
            let acknowledged = connection.written_bytes.saturating_sub(socket.send_queue() as u64);
            (connection.read_bytes + socket.recv_queue() as u64, acknowledged)
        })
    }

    /// Returns the addresses and ports of a connection.
    #[must_use]
    pub fn tuple(&self, id: ConnectionId) -> Option<FourTuple> {
        self.connection(id).map(|connection| connection.tuple)
    }

    /// Ends one or both directions. What was written is still sent.
    ///
    /// # Errors
    /// `NotConnected`: the connection is over.
    pub fn shutdown(&mut self, id: ConnectionId, how: Shutdown) -> io::Result<()> {
        let Some(connection) = self.connection_mut(id) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            connection.is_read_shut = true;
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            connection.socket_mut().close();
        }
        self.mark_dirty(id.slot);
        Ok(())
    }

    /// Makes the close a reset.
    pub fn reset_on_close(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection_mut(id) {
            connection.resets_on_close = true;
        }
    }

    /// Gives a connection up: what was written is sent, and its end. A connection with unread bytes is reset, as by
    /// close(2).
    pub fn close(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.connection_mut(id) else { return };
        let resets = connection.resets_on_close || connection.socket().can_recv();
        match resets {
            true => connection.socket_mut().abort(),
            false => connection.socket_mut().close(),
        }
        connection.phase = Phase::Orphan;
        connection.expiry_ns = now_ns.saturating_add(ORPHAN_NS_MAX);
        self.mark_dirty(id.slot);
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
