//! HTTP/2 connections of one core to one server, and the requests that wait for a stream on them.
//!
//! ```text
//! request -> attach --free slot--> stream connection
//!               | none
//!               v
//!            ticket --slot freed, or connection begun--> stream connection
//!                   --the server chose HTTP/1.1--------> connection of its own
//!                   --connection failed----------------> error
//! ```

mod conn;
mod connect;
mod events;
mod request;
mod request_limit;
mod response;
mod stream;
mod task;
mod timers;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{CoreServices, ServerConn};
use crate::dial::{ConnectError, DialTarget};
use crate::metrics::Http2Load;
use crate::metrics::server_http2_counters::{ServerHttp2Counters, count};
use crate::plan::{PoolPlan, ServerHttp, ServerHttp2Plan};
use conn::ServerHttp2Conn;
use connect::{NewConnection, establish};
use request_limit::{LearnedLimit, LimitEvidence};
pub(crate) use stream::{StreamConn, StreamEnd};

/// HTTP/2 connections of one core to one server.
#[derive(Debug, Default)]
pub(crate) struct ServerConnections {
    conns: RefCell<Vec<Rc<ServerHttp2Conn>>>,
    /// Number of connections that are being established for any request.
    pending: Cell<usize>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    /// True if the server chose HTTP/1.1 in the last handshake.
    prefers_http11: Cell<bool>,
    /// True if the last connection ended before it accepted a request.
    has_ended_early: Cell<bool>,
    request_limit: LearnedLimit,
    counters: RefCell<ServerHttp2Counters>,
    /// Settings for further connections; `None`: no request has needed one yet.
    settings: RefCell<Option<Rc<ServerHttp2Settings>>>,
}

#[derive(Debug)]
pub(crate) struct ServerHttp2Settings {
    pub(super) limits: ServerHttp2Plan,
    pub(super) http: ServerHttp,
    pub(super) head_bytes_max: usize,
    pub(super) headers_max: usize,
    pub(super) connect_ns: u64,
    pub(super) idle_timeout_ns: u64,
    /// True if a connection carries one request at a time, and only of one client.
    pub(super) is_exclusive: bool,
    pub(super) dial: DialTarget,
}

#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) conn: ServerConn,
    /// True if an earlier request was sent on it.
    pub(crate) is_reused: bool,
}

/// A request that waits for a connection.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    result: RefCell<Option<Result<Granted, ConnectError>>>,
    waker: RefCell<Option<Waker>>,
}

/// Future of a request that waits for a connection.
#[derive(Debug)]
pub(crate) struct WaitForStream(Rc<Ticket>);

impl Future for WaitForStream {
    type Output = Result<Granted, ConnectError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.0.result.borrow_mut().take() {
            return Poll::Ready(result);
        }
        let mut waker = self.0.waker.borrow_mut();
        match &mut *waker {
            Some(known) => known.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Ticket {
    fn resolve(&self, result: Result<Granted, ConnectError>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn is_abandoned(self: &Rc<Self>) -> bool {
        Rc::strong_count(self) == 1
    }
}

impl ServerHttp2Settings {
    pub(crate) fn new(plan: &PoolPlan, dial: DialTarget) -> Self {
        Self {
            limits: plan.http2,
            http: plan.http,
            head_bytes_max: plan.limits.head_bytes_max,
            headers_max: plan.limits.headers_max,
            connect_ns: plan.timeouts.connect_ns,
            idle_timeout_ns: plan.idle_timeout_ns,
            is_exclusive: false,
            dial,
        }
    }
}

impl ServerConnections {
    /// Returns a stream connection if one of the connections accepts another stream.
    pub(crate) fn attach(&self, core: &impl CoreServices) -> Option<Granted> {
        // Requests that wait are first.
        if !self.waiting.borrow().is_empty() {
            return None;
        }
        self.attach_any(core)
    }

    fn attach_any(&self, core: &impl CoreServices) -> Option<Granted> {
        // The first ones are filled, so that the last ones become idle.
        self.conns.borrow().iter().find_map(|conn| {
            let is_reused = conn.has_carried_request();
            conn.attach(core.channel_buffers()).map(|conn| Granted { conn, is_reused })
        })
    }

    /// Waits for a stream connection. Establishes further connections if those that there are, and
    /// that are being established, are too few.
    pub(crate) fn wait(
        self: &Rc<Self>,
        core: &Rc<impl CoreServices>,
        settings: ServerHttp2Settings,
    ) -> WaitForStream {
        *self.settings.borrow_mut() = Some(Rc::new(settings));
        let ticket = Rc::new(Ticket::default());
        self.waiting.borrow_mut().push_back(Rc::clone(&ticket));
        self.establish_missing(core);
        WaitForStream(ticket)
    }

    /// Establishes a connection that carries one request at a time, and only of its client.
    pub(crate) fn connect_exclusively(
        self: &Rc<Self>,
        core: &Rc<impl CoreServices>,
        mut settings: ServerHttp2Settings,
    ) -> WaitForStream {
        settings.limits.streams_max = 1;
        settings.is_exclusive = true;
        let ticket = Rc::new(Ticket::default());
        self.establish(core, Rc::new(settings), Some(Rc::clone(&ticket)));
        WaitForStream(ticket)
    }

    fn establish_missing(self: &Rc<Self>, core: &Rc<impl CoreServices>) {
        self.forget_abandoned();
        let Some(settings) = self.settings.borrow().clone() else { return };
        let streams = if self.prefers_http11.get() {
            1
        } else {
            settings.limits.streams_max.min(self.request_limit.get()) as usize
        };
        let is_missing = || self.pending.get().saturating_mul(streams) < self.waiting.borrow().len();
        // HTTP/1.1 connections have no limit of their own.
        let may_open = || {
            // Those that end have requests in progress, which limit their number.
            let usable = self.conns.borrow().iter().filter(|conn| !conn.is_draining()).count();
            let open = usable + self.pending.get();
            self.prefers_http11.get() || open < settings.limits.connections_max
        };
        while is_missing() && may_open() {
            self.pending.set(self.pending.get() + 1);
            self.establish(core, Rc::clone(&settings), None);
        }
    }

    fn establish(
        self: &Rc<Self>,
        core: &Rc<impl CoreServices>,
        settings: Rc<ServerHttp2Settings>,
        owner: Option<Rc<Ticket>>,
    ) {
        let establishing = establish(Rc::clone(core), Rc::downgrade(self), settings, owner);
        rt::tokio::task::spawn_local(establishing);
    }

    /// Handles the end of an attempt to connect.
    fn handle_established(
        self: &Rc<Self>,
        core: &Rc<impl CoreServices>,
        result: Result<NewConnection, ConnectError>,
        owner: Option<Rc<Ticket>>,
    ) {
        let is_shared = owner.is_none();
        if is_shared {
            self.pending.set(self.pending.get() - 1);
        }
        match (result, owner) {
            (Ok(NewConnection::Http2(conn)), None) => {
                self.prefers_http11.set(false);
                self.has_ended_early.set(false);
                self.update_counters(|counters| count(&counters.opened));
                conn.set_request_limit(self.request_limit.get());
                self.conns.borrow_mut().push(conn);
                self.serve_waiting(core);
            }
            (Ok(NewConnection::Http2(conn)), Some(owner)) => {
                self.update_counters(|counters| count(&counters.opened));
                let granted = conn.attach(core.channel_buffers());
                self.conns.borrow_mut().push(conn);
                // A connection that is established accepts a stream.
                let granted = granted.map(|conn| Granted { conn, is_reused: false });
                owner.resolve(granted.ok_or(ConnectError::Ended));
            }
            (Ok(NewConnection::Http11(stream)), owner) => {
                self.prefers_http11.set(true);
                if let Some(ticket) = owner.or_else(|| self.next_waiting()) {
                    let conn = ServerConn::new(stream);
                    ticket.resolve(Ok(Granted { conn, is_reused: false }));
                }
                self.establish_missing(core);
            }
            (Err(error), Some(owner)) => owner.resolve(Err(error)),
            // A server that restarts may end one connection, for which many requests wait, and serve the next.
            (Err(ConnectError::Ended), None) if !self.has_ended_early.replace(true) => {
                self.establish_missing(core);
            }
            (Err(error), None) => self.fail_waiting(&error),
        }
    }

    /// Rejects the requests that only waited for connections that could not be established.
    fn fail_waiting(&self, error: &ConnectError) {
        self.forget_abandoned();
        let others =
            self.pending.get() + self.conns.borrow().iter().filter(|conn| !conn.is_draining()).count();
        if others > 0 && !self.prefers_http11.get() {
            return;
        }
        let failed = match self.prefers_http11.get() {
            // Each of them has an attempt of its own.
            true => self.next_waiting().into_iter().collect(),
            false => std::mem::take(&mut *self.waiting.borrow_mut()),
        };
        for ticket in failed {
            ticket.resolve(Err(error.duplicate()));
        }
    }

    /// Gives free streams to the requests that wait for one, and establishes further connections if
    /// they are too few.
    pub(super) fn serve_waiting(self: &Rc<Self>, core: &Rc<impl CoreServices>) {
        self.forget_abandoned();
        while !self.waiting.borrow().is_empty() {
            let Some(granted) = self.attach_any(&**core) else { return self.establish_missing(core) };
            if let Some(ticket) = self.next_waiting() {
                ticket.resolve(Ok(granted));
            }
        }
    }

    /// Learns from a GOAWAY frame after how many requests the server ends its connections.
    pub(super) fn learn_request_limit(&self, last_stream: u32, begun: u32) {
        if self.request_limit.learn(last_stream, begun) {
            let conns = self.conns.borrow();
            let others = conns.iter().filter(|conn| !conn.is_draining());
            others.for_each(|conn| conn.set_request_limit(self.request_limit.get()));
        }
    }

    /// Raises the limit of the requests of a connection, because the server has not ended it there.
    fn raise_request_limit(&self, conn: &ServerHttp2Conn, evidence: LimitEvidence) {
        conn.raise_request_limit(&self.request_limit, evidence);
    }

    /// Offers an idle connection to the requests that wait for one. Returns it if there is none.
    pub(crate) fn offer(&self, mut conn: ServerConn) -> Option<ServerConn> {
        if self.waiting.borrow().is_empty() {
            return Some(conn);
        }
        if !conn.accepts_request() {
            return None;
        }
        self.forget_abandoned();
        match self.next_waiting() {
            Some(ticket) => ticket.resolve(Ok(Granted { conn, is_reused: true })),
            None => return Some(conn),
        }
        None
    }

    fn next_waiting(&self) -> Option<Rc<Ticket>> {
        self.waiting.borrow_mut().pop_front()
    }

    fn forget_abandoned(&self) {
        self.waiting.borrow_mut().retain(|ticket| !ticket.is_abandoned());
    }

    /// Removes a connection that accepts no further streams.
    pub(super) fn remove(&self, conn: &Rc<ServerHttp2Conn>) {
        self.conns.borrow_mut().retain(|other| !Rc::ptr_eq(other, conn));
    }

    /// Ends all connections after the streams in progress.
    pub(crate) fn drain(&self) {
        let conns = self.conns.borrow();
        conns.iter().filter(|conn| !conn.is_draining()).for_each(|conn| conn.drain());
    }

    /// Returns the number of connections without a stream.
    pub(crate) fn idle(&self) -> usize {
        self.conns.borrow().iter().filter(|conn| conn.active() == 0).count()
    }

    /// Returns what is in use at the moment.
    pub(crate) fn load(&self) -> Http2Load {
        let conns = self.conns.borrow();
        Http2Load { connections: conns.len(), streams: conns.iter().map(|conn| conn.active()).sum() }
    }

    /// Returns the counters since the last call.
    pub(crate) fn take_counters(&self) -> ServerHttp2Counters {
        self.counters.take()
    }

    fn update_counters(&self, update: impl FnOnce(&ServerHttp2Counters)) {
        update(&self.counters.borrow());
    }
}

impl Drop for ServerConnections {
    fn drop(&mut self) {
        self.drain();
    }
}
