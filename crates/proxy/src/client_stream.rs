//! The part of a client's connection that an exchange uses: its stream, unused received bytes, its
//! deadline, and the peer. The connection's current state belongs to `conn`.

mod h2_client;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rt::buffers::PooledBuffer;
use rt::clock::MonotonicTime;
use rt::deadlines::DeadlineRegistration;
use rt::hang_up::{HangUp, HangUpWatch};
use rt::stream::Stream;

pub(crate) use h2_client::{H2Client, STALLED_CODE};

use crate::admission::{Rejection, SourceSlot};
use crate::core::{Core, ListenerGeneration, ListenerSettings, PollContext, TICK_NS};
use crate::outcome::{EndReason, RejectReason};
use crate::plan::{ClientTimeouts, ListenerPlan, ServerId};
use crate::pool::{CoreServer, Pool};
use crate::server_conn::ServerConn;
use wire::proxy_protocol;

/// Address of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// `None`: a unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    /// True if the proxy believes the client's statements about other addresses.
    pub(crate) is_trusted: bool,
}

/// The part of a client's connection that an exchange uses.
#[derive(Debug)]
pub(crate) struct ClientStream {
    pub(crate) stream: Stream,
    pub(crate) settings: Rc<ListenerSettings>,
    pub(crate) peer: Peer,
    /// Bytes that were received and not used yet.
    pub(crate) buffered: PooledBuffer,
    /// Registered at the first poll.
    deadline: Option<DeadlineRegistration>,
    pub(crate) request_count: u32,
    /// Arrival time of the first byte of the head that is being received, in microseconds that wrap
    /// every 71 minutes; 0: no head is being received.
    head_start_us: u32,
    /// Tick in which the keep-alive deadline was set last.
    pub(crate) keep_alive_tick: u16,
    /// True if `buffered` may contain a complete head, so that it is parsed before the next read.
    pub(crate) parses_buffered_first: bool,
    pub(crate) timeout_kind: TimeoutKind,
    /// True if the last read was pending, so that the task is registered for the next bytes.
    pub(crate) is_read_pending: bool,
    /// Result of watching the client since the request began.
    watch_state: WatchState,
    /// Rejection of the first request.
    pub(crate) rejection: Option<RequestRejection>,
    pub(crate) source_slot: SourceSlot,
    /// State that few connections need.
    pub(crate) rare_state: Option<Box<RareState>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRejection {
    pub(crate) end: EndReason,
    /// Seconds until the client may retry.
    pub(crate) retry_after_s: u8,
}

#[derive(Debug, Default)]
pub(crate) struct RareState {
    /// A connection to a server that only this client uses.
    pub(crate) private_conn: Option<PrivateConn>,
    /// Destination address from the client's PROXY header.
    pub(crate) destination: Option<SocketAddr>,
    /// Subject of the client's TLS certificate.
    pub(crate) certificate_subject: Option<Rc<str>>,
    /// Server name in a ClientHello that was forwarded.
    pub(crate) server_name: Option<Box<str>>,
    /// Fault of the client's TLS handshake.
    pub(crate) tls_error: Option<Box<str>>,
    /// The HTTP/2 connection that this stream belongs to.
    pub(crate) h2_client: Option<Rc<H2Client>>,
    /// Watch for the end of a client behind bytes that are not read yet.
    pub(crate) hang_up_watch: Option<HangUpWatch>,
    /// The only request of this stream, which is rejected.
    pub(crate) rejected: Option<RejectedRequest>,
}

/// Request of an HTTP/2 stream that has no valid head.
#[derive(Debug)]
pub(crate) struct RejectedRequest {
    pub(crate) refusal: wire::Refusal,
    /// Method and target as far as they were decoded, for [`wire::salvage_request_line`].
    pub(crate) request_line: Box<[u8]>,
}

#[derive(Debug)]
pub(crate) struct PrivateConn {
    /// The server and not its index: a reload may put another one at the same index.
    server: Rc<CoreServer>,
    conn: ServerConn,
}

/// A connection's place among those of its core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registration {
    /// Number on the core.
    pub(crate) slot_key: u64,
    pub(crate) since_tick: u32,
}

/// Purpose of the deadline that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutKind {
    None,
    ProxyPreface,
    TlsHandshake,
    KeepAlive,
    Head,
    RequestBody,
    ServerWrite,
    Connect,
    FirstByte,
    ResponseBody,
    ClientWrite,
    Tarpit,
    /// The response to an equal request is late.
    Coalesced,
    /// Bytes of a limited direction are due.
    Bandwidth,
    Tunnel,
    Linger,
    /// The first of the timers of an HTTP/2 connection.
    Http2,
}

/// Connection state of a client that nothing is read from at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientStatus {
    /// The client waits, or has sent more than expected.
    Present,
    /// The client shut down its sending side or is gone; the two are indistinguishable.
    Eof,
    Gone,
}

/// Maximum time between acknowledgements of response bytes, and from the last one to the client's
/// close.
pub(crate) const LINGER_TIMEOUT_NS: u64 = 2_000_000_000;
/// Maximum number of bytes read of a client's next requests while one is in flight.
const READ_AHEAD_BYTES_MAX: usize = 16 * 1024;
const RETRY_AFTER_MAX_S: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    None,
    UnreadBytes,
    Eof,
}

impl RequestRejection {
    fn new(end: EndReason, wait_ns: u64) -> Self {
        let seconds = wait_ns.div_ceil(1_000_000_000).clamp(1, RETRY_AFTER_MAX_S);
        // At most 30.
        Self { end, retry_after_s: seconds as u8 }
    }
}

impl Peer {
    pub(crate) fn new(listener: &ListenerPlan, address: Option<SocketAddr>) -> Self {
        let port = address.map_or(0, |address| address.port());
        let address = address.map(|address| address.ip().to_canonical());
        let is_trusted = match address {
            Some(address) => listener.trusted.iter().any(|network| network.contains(address)),
            None => listener.is_unix_trusted,
        };
        Self { address, port, is_trusted }
    }
}

impl ClientStream {
    pub(crate) fn new(stream: Stream, settings: Rc<ListenerSettings>, peer: Peer) -> Self {
        Self {
            stream,
            settings,
            peer,
            buffered: PooledBuffer::default(),
            deadline: None,
            request_count: 0,
            head_start_us: 0,
            keep_alive_tick: 0,
            parses_buffered_first: false,
            timeout_kind: TimeoutKind::None,
            is_read_pending: false,
            watch_state: WatchState::None,
            rejection: None,
            source_slot: SourceSlot::untracked(),
            rare_state: None,
        }
    }

    /// Counts the connection against the limits of its source.
    ///
    /// # Errors
    /// The source exceeds a limit.
    pub(crate) fn acquire_source_slot(&mut self, now: MonotonicTime) -> Result<(), Rejection> {
        let limits = &self.settings.limits;
        self.source_slot = limits.acquire_source_slot(self.peer.address, now)?;
        if limits.is_untracked(self.peer.address, self.source_slot) {
            self.settings.core.count_rejection(RejectReason::SourceTable);
        }
        Ok(())
    }

    /// Counts an open connection as a rejected one from here on.
    pub(crate) fn count_as_rejected(&self) {
        let (open, rejected) = (&self.settings.open_connections, &self.settings.core.load.rejected);
        open.set(open.get() - 1);
        rejected.set(rejected.get() + 1);
    }

    /// Sets the rejection of the connection's first request.
    pub(crate) fn set_rejection(&mut self, rejection: Rejection) {
        self.rejection = Some(RequestRejection::new(rejection.end, rejection.wait_ns));
    }

    /// Returns the rejection of a request that is rejected on any route.
    #[inline]
    pub(crate) fn request_rejection(&self, now: MonotonicTime) -> Option<RequestRejection> {
        if self.rejection.is_some() {
            return self.rejection;
        }
        let wait_ns = self.settings.limits.admit_request(self.source_slot, now).err()?;
        Some(RequestRejection::new(EndReason::SourceLimited, wait_ns))
    }

    /// Returns the timeout for a wait. Rejected connections get a shorter one.
    pub(crate) fn effective_timeout_ns(&self, configured_ns: u64) -> u64 {
        if self.is_rejected() { configured_ns.min(LINGER_TIMEOUT_NS) } else { configured_ns }
    }

    /// Returns whether the connection is rejected and only gets an error response.
    pub(crate) fn is_rejected(&self) -> bool {
        self.rejection.is_some()
    }

    /// Notes the arrival of a head's first byte.
    pub(crate) fn note_head_start(&mut self, now: MonotonicTime) {
        if self.head_start_us == 0 {
            self.head_start_us = ((now.as_ns() / 1_000) as u32).max(1);
        }
    }

    /// Returns the arrival time of the head's first byte: `now` itself if the complete head came
    /// at once.
    pub(crate) fn head_start(&self, now: MonotonicTime) -> MonotonicTime {
        match self.head_start_us {
            0 => now,
            // A head never takes as long as the microseconds take to wrap.
            head_us => {
                let elapsed_us = ((now.as_ns() / 1_000) as u32).wrapping_sub(head_us);
                now - 1_000 * u64::from(elapsed_us)
            }
        }
    }

    pub(crate) fn end_request(&mut self) {
        self.parses_buffered_first = !self.buffered.is_empty();
        self.head_start_us = 0;
    }

    /// Registers the connection at its first poll. From then on it can be listed and killed.
    #[inline]
    pub(crate) fn register(&mut self, core: &Core, waker: &Waker) {
        if self.deadline.is_none() {
            self.deadline = Some(core.deadlines.register_detached_at(waker, core.ticks.current()));
        }
    }

    /// Returns the connection's place among those of its core.
    pub(crate) fn registration(&self, core: &Core) -> Registration {
        self.deadline.as_ref().map_or_else(Registration::default, |place| Registration {
            slot_key: place.id(),
            since_tick: core.deadlines.registered_at(place),
        })
    }

    /// Returns whether there is a query to all connections that this one has not responded to yet.
    pub(crate) fn take_notified(&self, core: &Core) -> bool {
        self.deadline.as_ref().is_some_and(|registration| core.deadlines.take_notified(registration))
    }

    /// Releases everything the connection has taken, at its end.
    pub(crate) fn release(&mut self) {
        let core = Rc::clone(&self.settings.core);
        self.buffered.release();
        // A stream has the slot of its connection.
        if !self.is_h2_stream() {
            self.settings.limits.release(self.source_slot);
        }
        if let Some(registration) = self.deadline.take() {
            core.deadlines.deregister(registration);
        }
    }

    pub(crate) fn core(&self) -> Rc<Core> {
        Rc::clone(&self.settings.core)
    }

    pub(crate) fn timeouts(&self) -> &ClientTimeouts {
        &self.settings.plan.timeouts
    }

    pub(crate) fn allows_half_close(&self) -> bool {
        self.settings.plan.half_close
    }

    /// Returns the plan that the connection's requests follow.
    pub(crate) fn active_generation(&self) -> Option<ListenerGeneration> {
        self.settings.active_generation()
    }

    pub(crate) fn buffer_request_bytes(&self) -> u64 {
        self.settings.plan.buffer_request_bytes
    }

    pub(crate) fn body_bytes_max(&self) -> Option<u64> {
        self.settings.plan.body_bytes_max
    }

    /// Returns whether another request may follow on this connection.
    pub(crate) fn may_keep_alive(&self, core: &Core) -> bool {
        !core.drain.is_draining.get()
            && self.settings.index.get().is_some()
            && (self.watch_state != WatchState::Eof || !self.buffered.is_empty())
            // The streams of HTTP/2 end with their connection.
            && (self.is_h2_stream() || self.settings.plan.requests_max.is_none_or(|max| self.request_count < max))
    }

    pub(crate) fn begin_request(&mut self) {
        self.request_count = match self.h2_client() {
            None => self.request_count.saturating_add(1),
            Some(client) => client.request_count.get(),
        };
        self.watch_state = WatchState::None;
        self.is_read_pending = false;
        if let Some(rare) = &mut self.rare_state {
            rare.hang_up_watch = None;
        }
        self.timeout_kind = TimeoutKind::None;
    }

    /// Checks a client whose request is received in full. Reads up to [`READ_AHEAD_BYTES_MAX`] of
    /// further bytes, to detect the end of the stream behind them; `input` is scratch.
    pub(crate) fn check_client(&mut self, ctx: &mut PollContext<'_, '_>, input: &mut [u8]) -> ClientStatus {
        if self.watch_state == WatchState::Eof {
            return ClientStatus::Eof;
        }
        loop {
            let capacity = READ_AHEAD_BYTES_MAX.saturating_sub(self.buffered.len()).min(input.len());
            if capacity == 0 {
                return self.check_hang_up(ctx.cx);
            }
            self.is_read_pending = false;
            match self.stream.poll_read_later(ctx.cx, &mut input[..capacity]) {
                Poll::Pending => {
                    // Without a budget the task was woken instead.
                    self.is_read_pending = rt::tokio::task::coop::has_budget_remaining();
                    return ClientStatus::Present;
                }
                Poll::Ready(Ok(0)) => {
                    self.watch_state = WatchState::Eof;
                    return ClientStatus::Eof;
                }
                Poll::Ready(Ok(read)) if self.buffer_bytes(ctx.core, &input[..read]) => {}
                // Without a buffer the next request is lost, and with it the connection.
                Poll::Ready(Ok(_) | Err(_)) => return ClientStatus::Gone,
            }
        }
    }

    /// Checks a client whose request is not received in full and whose remaining bytes are not
    /// needed.
    pub(crate) fn check_unread_client(&mut self, cx: &mut Context<'_>) -> ClientStatus {
        match self.watch_state {
            WatchState::UnreadBytes => return self.check_hang_up(cx),
            WatchState::Eof => return ClientStatus::Eof,
            WatchState::None => {}
        }
        match self.stream.poll_peek(cx) {
            Poll::Pending => ClientStatus::Present,
            Poll::Ready(Ok(0)) => {
                self.watch_state = WatchState::Eof;
                ClientStatus::Eof
            }
            Poll::Ready(Ok(_)) => {
                self.watch_state = WatchState::UnreadBytes;
                self.check_hang_up(cx)
            }
            Poll::Ready(Err(_)) => ClientStatus::Gone,
        }
    }

    /// Checks a client whose unread bytes hide whatever comes after them. A stream of HTTP/2 ends without them. If no
    /// descriptor is free, the end is found only by a write.
    #[cold]
    fn check_hang_up(&mut self, cx: &mut Context<'_>) -> ClientStatus {
        let Some(socket) = self.stream.fd() else {
            return ClientStatus::Present;
        };
        let rare = self.rare_state.get_or_insert_default();
        if rare.hang_up_watch.is_none() {
            rare.hang_up_watch = HangUpWatch::new(socket).ok();
        }
        match rare.hang_up_watch.as_ref().map(|watch| watch.poll(cx)) {
            None | Some(Poll::Pending) => ClientStatus::Present,
            Some(Poll::Ready(HangUp::Closed)) => ClientStatus::Eof,
            Some(Poll::Ready(HangUp::Reset)) => ClientStatus::Gone,
        }
    }

    /// Reads bytes of a request head.
    #[inline]
    pub(crate) fn poll_read_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match std::mem::take(&mut self.is_read_pending) {
            true => self.stream.poll_read_again(cx, buffer),
            false => self.stream.poll_read(cx, buffer),
        }
    }

    /// Keeps unused bytes behind those already held. Returns `false` if there was no buffer.
    #[inline]
    pub(crate) fn buffer_bytes(&mut self, core: &Core, bytes: &[u8]) -> bool {
        bytes.is_empty() || self.buffered.append(&core.memory.buffers, bytes)
    }

    /// Returns whether the wait for `kind` has exceeded `timeout_ns`. Starts the wait if it has
    /// not started yet.
    #[inline]
    pub(crate) fn has_timed_out(
        &mut self,
        ctx: &PollContext<'_, '_>,
        kind: TimeoutKind,
        timeout_ns: u64,
    ) -> bool {
        if self.timeout_kind == kind {
            return self.is_deadline_expired();
        }
        self.arm(ctx, kind, timeout_ns);
        false
    }

    pub(crate) fn arm(&mut self, ctx: &PollContext<'_, '_>, kind: TimeoutKind, timeout_ns: u64) {
        let core = ctx.core;
        // The core's time is up to a tick old, and a deadline must never pass early.
        let due = core.ticks.now.get().saturating_add(timeout_ns).saturating_add(TICK_NS);
        self.register(core, ctx.cx.waker());
        if let Some(registration) = &self.deadline {
            core.deadlines.set(registration, due.as_ns());
        }
        self.timeout_kind = kind;
    }

    /// Does the same as [`ClientStream::arm`], but may pass up to a tick early.
    #[cold]
    pub(crate) fn arm_early(&mut self, ctx: &PollContext<'_, '_>, kind: TimeoutKind, timeout_ns: u64) {
        let core = ctx.core;
        let due = core.ticks.now.get().saturating_add(timeout_ns);
        self.register(core, ctx.cx.waker());
        if let Some(registration) = &self.deadline {
            core.deadlines.set(registration, due.as_ns());
        }
        self.timeout_kind = kind;
    }

    pub(crate) fn timeout_kind(&self) -> TimeoutKind {
        self.timeout_kind
    }

    pub(crate) fn is_deadline_expired(&self) -> bool {
        let deadlines = &self.settings.core.deadlines;
        self.deadline.as_ref().is_some_and(|registration| deadlines.is_expired(registration))
    }

    pub(crate) fn disarm(&mut self) {
        self.timeout_kind = TimeoutKind::None;
    }

    /// Takes the client's own connection to this server.
    pub(crate) fn take_private_conn(&mut self, pool: &Pool, server: ServerId) -> Option<ServerConn> {
        let mut private = self.rare_state.as_mut()?.private_conn.take()?;
        let is_same_server = Rc::ptr_eq(&private.server, pool.server(server));
        (is_same_server && private.conn.accepts_request()).then_some(private.conn)
    }

    pub(crate) fn keep_private_conn(&mut self, pool: &Pool, server: ServerId, conn: ServerConn) {
        let private = PrivateConn { server: Rc::clone(pool.server(server)), conn };
        self.rare_state.get_or_insert_default().private_conn = Some(private);
    }

    /// Stores the destination address from the client's PROXY header.
    pub(crate) fn note_destination(&mut self, destination: SocketAddr) {
        self.rare_state.get_or_insert_default().destination = Some(destination);
    }

    /// Writes a PROXY header with the client's address, for the start of a server connection.
    pub(crate) fn write_proxy_header(&self, version: proxy_protocol::ProxyVersion, out: &mut Vec<u8>) {
        let source = self.peer.address.map(|address| SocketAddr::new(address, self.peer.port));
        proxy_protocol::write_header(version, source, self.proxied_destination(), out);
    }

    /// Returns the address to which the client connected.
    pub(crate) fn proxied_destination(&self) -> Option<SocketAddr> {
        let reported = self.rare_state.as_ref().and_then(|rare| rare.destination);
        reported.or_else(|| self.stream.local_address())
    }
}
