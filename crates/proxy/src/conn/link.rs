//! A client's connection as far as an exchange has to do with it: its stream, what was received and
//! not used, its deadline, and who it is. What it is in at the moment is the business of
//! [`super`].

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rt::buffers::Lent;
use rt::deadlines::Place;
use rt::stream::Stream;

use super::census::ticks;
use crate::admission::{Gatekeeper, Seat, Turned};
use crate::core::{Core, Live, TICK_NS};
use crate::metrics::Reason;
use crate::outcome::End;
use crate::plan::{ClientTimeouts, ListenerPlan, ProxyVersion};
use crate::pool::{Pool, Server, ServerConn};
use crate::proxy_protocol;

/// What a listener was like when a connection came in; it stays so for that connection.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Here and not in each connection, because connections are many.
    pub(crate) core: Rc<Core>,
    pub(crate) plan: ListenerPlan,
    /// Its place in the plan in force; `None`: it is not there any more.
    pub(crate) index: Cell<Option<usize>>,
    /// When it is not there any more: the last plan that had it, which its connections follow to their
    /// next answer, and its place there.
    gone: RefCell<Option<(Rc<Live>, usize)>>,
    /// Connections of this core.
    pub(crate) open: Rc<Cell<usize>>,
    /// What all cores share of what the listener takes on.
    pub(crate) keeper: Arc<Gatekeeper>,
}

/// Who a client is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// `None`: a unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    /// Whether what it says about others is believed.
    pub(crate) trusted: bool,
}

/// A client's connection, as far as an exchange has to do with it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Stream,
    pub(super) settings: Rc<Settings>,
    pub(crate) peer: Peer,
    /// Received, and not used yet.
    pub(crate) held: Lent,
    /// Registered at the first poll.
    deadline: Option<Place>,
    /// Requests that it has begun.
    pub(crate) requests: u32,
    /// When the first byte of the head was there that is being received, in microseconds that start
    /// again every 71 minutes; 0: nothing is.
    head_us: u32,
    /// The tick in which the keep-alive deadline was set last.
    pub(super) tick: u16,
    /// Whether `held` may have a whole head, so that it is looked at before more is read.
    pub(super) look_again: bool,
    pub(super) armed: Armed,
    /// What watching found, since the request began.
    watched: Watched,
    /// Why its first request is refused, and after how many seconds it may come again.
    pub(super) turned: Option<(End, u8)>,
    /// What it has of its source's.
    seat: Seat,
    /// What few connections have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
struct Rare {
    /// A connection to a server that is only this client's.
    own: Option<Own>,
    /// Where the client connected to, as its PROXY header says.
    destination: Option<SocketAddr>,
}

#[derive(Debug)]
struct Own {
    /// The server, not its index: a reload may put another one at the same index.
    server: Rc<Server>,
    conn: ServerConn,
}

/// What a deadline is set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    Nothing,
    Greeting,
    KeepAlive,
    Head,
    RequestBody,
    ServerWrite,
    Connect,
    FirstByte,
    ResponseBody,
    ClientWrite,
    Tarpit,
    Tunnel,
    Linger,
}

/// What is known of a client that nothing is read from just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It waits, or has sent more than was asked for.
    Quiet,
    /// It ended its sending side, or is gone: that looks the same.
    Ended,
    /// It is gone.
    Gone,
}

/// Bytes that are read of a client's next requests while one is in flight.
const READ_AHEAD_BYTES_MAX: usize = 16 * 1024;
/// What a client is told to wait at most.
const RETRY_AFTER_MAX_S: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Nothing,
    Bytes,
    End,
}

impl Settings {
    /// Of a listener at this place in the plan in force.
    pub(crate) fn new(
        core: Rc<Core>,
        plan: ListenerPlan,
        index: usize,
        (open, keeper): (Rc<Cell<usize>>, Arc<Gatekeeper>),
    ) -> Self {
        Self { core, plan, index: Cell::new(Some(index)), gone: RefCell::default(), open, keeper }
    }

    /// Another plan comes into force after `before`, with the listener at this place, if it has it.
    pub(crate) fn follow(&self, before: &Rc<Live>, place: Option<usize>) {
        let was = self.index.replace(place);
        match (was, place) {
            (_, Some(_)) => drop(self.gone.take()),
            (Some(was), None) => drop(self.gone.replace(Some((Rc::clone(before), was)))),
            (None, None) => {}
        }
    }

    /// The plan that its requests follow, and its place there.
    pub(crate) fn place(&self) -> Option<(Rc<Live>, usize)> {
        match self.index.get() {
            Some(index) => Some((self.core.live(), index)),
            None => self.gone.borrow().clone(),
        }
    }

    pub(super) fn peer(&self, peer: Option<SocketAddr>) -> Peer {
        let address = peer.map(|peer| peer.ip().to_canonical());
        let trusted = match address {
            Some(address) => self.plan.trusted.iter().any(|network| network.contains(address)),
            None => self.plan.trusts_unix,
        };
        Peer { address, port: peer.map_or(0, |peer| peer.port()), trusted }
    }
}

impl Link {
    pub(super) fn new(stream: Stream, settings: Rc<Settings>, peer: Peer) -> Self {
        Self {
            stream,
            settings,
            peer,
            held: Lent::default(),
            deadline: None,
            requests: 0,
            head_us: 0,
            tick: 0,
            look_again: false,
            armed: Armed::Nothing,
            watched: Watched::Nothing,
            turned: None,
            seat: Seat::none(),
            rare: None,
        }
    }

    /// Counts it as one of its source's.
    ///
    /// # Errors
    /// Its source has as many as it may.
    pub(super) fn take_seat(&mut self, now_ns: u64) -> Result<(), Turned> {
        let keeper = &self.settings.keeper;
        self.seat = keeper.seat(self.peer.address, now_ns)?;
        if keeper.is_unseated(self.peer.address, self.seat) {
            self.settings.core.refused(Reason::SourceTable);
        }
        Ok(())
    }

    /// Its first request is refused so.
    pub(super) fn turn(&mut self, turned: Turned) {
        let seconds = turned.wait_ns.div_ceil(1_000_000_000).clamp(1, RETRY_AFTER_MAX_S);
        // At most 30.
        self.turned = Some((turned.end, seconds as u8));
    }

    /// Why a request is refused that its route may take, and after how many seconds it may come
    /// again.
    #[inline]
    pub(crate) fn refuses(&self, now_ns: u64) -> Option<(End, u64)> {
        if let Some((end, seconds)) = self.turned {
            return Some((end, seconds.into()));
        }
        let wait_ns = self.settings.keeper.admit_request(self.seat, now_ns).err()?;
        let seconds = wait_ns.div_ceil(1_000_000_000).clamp(1, RETRY_AFTER_MAX_S);
        Some((End::SourceLimited, seconds))
    }

    /// How long is waited for something: not long for who is not served.
    pub(super) fn patience_ns(&self, planned_ns: u64) -> u64 {
        if self.is_turned() { planned_ns.min(super::LINGER_NS) } else { planned_ns }
    }

    /// Whether this is a connection that only hears why it is not served.
    pub(crate) fn is_turned(&self) -> bool {
        self.turned.is_some()
    }

    /// The first byte of a head is there.
    pub(super) fn begin_head(&mut self, now_ns: u64) {
        if self.head_us == 0 {
            self.head_us = ((now_ns / 1_000) as u32).max(1);
        }
    }

    /// When that was: `now_ns` itself, when the whole head came at once.
    pub(super) fn head_began_ns(&self, now_ns: u64) -> u64 {
        match self.head_us {
            0 => now_ns,
            // A head never takes as long as it takes the microseconds to start again.
            head_us => now_ns - 1_000 * u64::from(((now_ns / 1_000) as u32).wrapping_sub(head_us)),
        }
    }

    /// Between two requests.
    pub(super) fn end_request(&mut self) {
        self.look_again = !self.held.is_empty();
        self.head_us = 0;
    }

    /// From its first poll on it is among those that can be asked and told to end.
    #[inline]
    pub(super) fn register(&mut self, core: &Core, waker: &Waker) {
        if self.deadline.is_none() {
            self.deadline = Some(core.deadlines.take_place_since(waker, ticks(core)));
        }
    }

    /// Its number on its core, and when it registered, in the core's ticks.
    pub(super) fn registered(&self, core: &Core) -> (u64, u32) {
        let place = self.deadline.as_ref();
        place.map_or((0, 0), |place| (place.number(), core.deadlines.since(place)))
    }

    /// Whether all connections were asked something, and this one has not answered yet.
    pub(super) fn take_asked(&self, core: &Core) -> bool {
        self.deadline.as_ref().is_some_and(|place| core.deadlines.take_asked(place))
    }

    /// Its connection is over.
    pub(super) fn leave(&mut self) {
        let core = Rc::clone(&self.settings.core);
        self.held.release();
        self.settings.keeper.leave(self.seat);
        if let Some(place) = self.deadline.take() {
            core.deadlines.leave(place);
        }
    }

    /// The core that it is served by.
    pub(crate) fn core(&self) -> Rc<Core> {
        Rc::clone(&self.settings.core)
    }

    pub(crate) fn timeouts(&self) -> &ClientTimeouts {
        &self.settings.plan.timeouts
    }

    pub(crate) fn half_close(&self) -> bool {
        self.settings.plan.half_close
    }

    /// The plan that its requests follow, and its listener's place there.
    pub(crate) fn place(&self) -> Option<(Rc<Live>, usize)> {
        self.settings.place()
    }

    pub(crate) fn buffer_request_bytes(&self) -> u64 {
        self.settings.plan.buffer_request_bytes
    }

    pub(crate) fn body_bytes_max(&self) -> Option<u64> {
        self.settings.plan.body_bytes_max
    }

    /// Whether another request may follow on this connection.
    pub(crate) fn may_go_on(&self, core: &Core) -> bool {
        !core.draining.get()
            && self.settings.index.get().is_some()
            && (self.watched != Watched::End || !self.held.is_empty())
            && self.settings.plan.requests_max.is_none_or(|max| self.requests < max)
    }

    pub(super) fn begin_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
        self.watched = Watched::Nothing;
        self.armed = Armed::Nothing;
    }

    /// Looks at a client whose request is received in full. What it sends beyond is read, up to
    /// [`READ_AHEAD_BYTES_MAX`], so that the end of its stream is seen behind it; `input` is scratch.
    pub(crate) fn watch_client(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        input: &mut [u8],
    ) -> Watch {
        if self.watched == Watched::End {
            return Watch::Ended;
        }
        loop {
            let room = READ_AHEAD_BYTES_MAX.saturating_sub(self.held.len()).min(input.len());
            if room == 0 {
                return Watch::Quiet;
            }
            match self.stream.poll_read(cx, &mut input[..room]) {
                Poll::Pending => return Watch::Quiet,
                Poll::Ready(Ok(0)) => {
                    self.watched = Watched::End;
                    return Watch::Ended;
                }
                Poll::Ready(Ok(read)) if self.hold(core, &input[..read]) => {}
                // Without a buffer its next request is lost, and so is its connection.
                Poll::Ready(Ok(_) | Err(_)) => return Watch::Gone,
            }
        }
    }

    /// Looks at a client whose request is not received in full, and of which nobody wants more.
    pub(crate) fn watch_unread(&mut self, cx: &mut Context<'_>) -> Watch {
        match self.watched {
            // What it has sent hides what comes after.
            Watched::Bytes => return Watch::Quiet,
            Watched::End => return Watch::Ended,
            Watched::Nothing => {}
        }
        match self.stream.poll_peek(cx) {
            Poll::Pending => Watch::Quiet,
            Poll::Ready(Ok(0)) => {
                self.watched = Watched::End;
                Watch::Ended
            }
            Poll::Ready(Ok(_)) => {
                self.watched = Watched::Bytes;
                Watch::Quiet
            }
            Poll::Ready(Err(_)) => Watch::Gone,
        }
    }

    /// Keeps what was not used, behind what is kept already. `false`: there was no buffer.
    #[inline]
    pub(crate) fn hold(&mut self, core: &Core, rest: &[u8]) -> bool {
        rest.is_empty() || self.held.append(&core.buffers, rest)
    }

    /// Something moved: what is waited for begins anew, unless it has to come in a time in all.
    pub(crate) fn note_progress(&mut self) {
        if self.armed != Armed::FirstByte {
            self.armed = Armed::Nothing;
        }
    }

    /// Whether it has been waited for `armed` for longer than `timeout_ns`; begins to wait if it
    /// has not yet.
    #[inline]
    pub(crate) fn is_late(
        &mut self,
        cx: &Context<'_>,
        core: &Core,
        armed: Armed,
        timeout_ns: u64,
    ) -> bool {
        if self.armed == armed {
            return self.passed();
        }
        self.arm(core, cx.waker(), armed, timeout_ns);
        false
    }

    pub(crate) fn arm(&mut self, core: &Core, waker: &Waker, armed: Armed, timeout_ns: u64) {
        // The core's time is up to a tick old, and a deadline is never to pass early.
        let due_ns = core.now_ns.get().saturating_add(timeout_ns).saturating_add(TICK_NS);
        self.register(core, waker);
        if let Some(place) = &self.deadline {
            core.deadlines.set(place, due_ns);
        }
        self.armed = armed;
    }

    pub(crate) fn armed(&self) -> Armed {
        self.armed
    }

    pub(crate) fn passed(&self) -> bool {
        let deadlines = &self.settings.core.deadlines;
        self.deadline.as_ref().is_some_and(|place| deadlines.passed(place))
    }

    /// No deadline holds.
    pub(crate) fn disarm(&mut self) {
        self.armed = Armed::Nothing;
    }

    /// The connection to this server that only this client uses.
    pub(crate) fn take_own(&mut self, pool: &Pool, server: usize) -> Option<ServerConn> {
        let own = self.rare.as_mut()?.own.take()?;
        let fits = Rc::ptr_eq(&own.server, pool.server(server));
        (fits && own.conn.is_alive()).then_some(own.conn)
    }

    pub(crate) fn keep_own(&mut self, pool: &Pool, server: usize, conn: ServerConn) {
        let own = Own { server: Rc::clone(pool.server(server)), conn };
        self.rare.get_or_insert_default().own = Some(own);
    }

    /// Notes where the client connected to, as its PROXY header says.
    pub(super) fn note_destination(&mut self, destination: SocketAddr) {
        self.rare.get_or_insert_default().destination = Some(destination);
    }

    /// Writes who the client is, for the start of a connection to a server.
    pub(crate) fn write_proxy_header(&self, version: ProxyVersion, out: &mut Vec<u8>) {
        let source = self.peer.address.map(|address| SocketAddr::new(address, self.peer.port));
        let said = self.rare.as_ref().and_then(|rare| rare.destination);
        let destination = said.or_else(|| self.stream.local_address());
        proxy_protocol::write(version, source, destination, out);
    }
}
