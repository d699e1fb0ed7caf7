//! One client's connection: heads, one after the other, each of which becomes an exchange; and what
//! is before, between and after them.
//!
//! ```text
//! accepted -> greeting (PROXY header) -> idle -> exchange --> idle …
//!                                         |         |  '----> tunnel -> closed
//!                                         v         '-------> lingering -> closed
//!                                       closed
//! ```
//! What waits is this struct and its socket: an idle connection holds no buffer and no exchange.

mod census;
mod greeting;
mod lingering;
mod link;
mod tunnelling;

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::stream::Stream;
use wire::{Parsed, head_may_be_complete};

pub(crate) use lingering::LINGER_NS;
use lingering::Lingering;
pub(crate) use link::{Armed, Link, Settings, Watch};
use tunnelling::Tunnelling;

use crate::admission::Turned;
use crate::core::{Bench, Core};
use crate::exchange::{After, Begun, Exchange};
use crate::outcome::End;
use crate::plan::{Mode, OnLimit};
use crate::profile::Phase;

/// A client's connection.
#[derive(Debug)]
struct Conn {
    link: Link,
    state: State,
}

#[derive(Debug)]
enum State {
    Greeting,
    Idle,
    Exchange(Box<Exchange>),
    Tunnel(Box<Tunnelling>),
    Lingering(Box<Lingering>),
    Closed,
}

/// Where the bytes of a head are.
#[derive(Clone, Copy, Debug)]
enum From {
    /// The first bytes of what was just received.
    Input(usize),
    /// In the link, kept from earlier.
    Held,
}

/// How often one poll reads before others get their turn.
const READS_MAX: u32 = 4;
/// How often one poll changes its state before others get their turn: each request that the proxy
/// answers itself takes two.
const STEPS_MAX: u32 = 32;

/// How many connections that are turned away a core has at a time; beyond, they are reset.
pub(crate) const TURNED_MAX: usize = 256;

/// Memory of an idle connection in user space: its task with this state, its place among the
/// runtime's sockets and among the deadlines. Measured, see the bench.
pub(crate) const IDLE_BYTES: usize = 600;

/// Serves one connection to its end.
pub(crate) fn serve(
    stream: Stream,
    settings: Rc<Settings>,
    peer: Option<SocketAddr>,
    turned: Option<Turned>,
) -> impl Future<Output = ()> {
    let mut conn = Conn::new(stream, settings, peer, turned);
    std::future::poll_fn(move |cx| conn.poll(cx))
}

impl Conn {
    fn new(
        stream: Stream,
        settings: Rc<Settings>,
        peer: Option<SocketAddr>,
        turned: Option<Turned>,
    ) -> Self {
        let core = &settings.core;
        core.room.enter();
        // One that is turned away takes no other's place.
        let counted = if turned.is_some() { &core.turned } else { &*settings.open };
        counted.set(counted.get() + 1);
        settings.place().inspect(|(live, index)| live.metrics.accepted(*index));
        let peer = settings.peer(peer);
        let state = match (settings.plan.proxy_protocol, settings.plan.mode) {
            (true, _) => State::Greeting,
            (false, Mode::Http) => State::Idle,
            (false, Mode::Tcp(_)) => State::Greeting,
        };
        let mut link = Link::new(stream, settings, peer);
        let state = match turned {
            Some(turned) => {
                link.turn(turned);
                state
            }
            None if link.settings.plan.proxy_protocol => state,
            None => Self::seated(&mut link, state),
        };
        Self { link, state }
    }

    /// Where it goes on, now that it is known whose it is.
    fn seated(link: &mut Link, state: State) -> State {
        if !link.settings.keeper.has_sources() {
            return state;
        }
        let Err(turned) = link.take_seat(now_ns()) else { return state };
        let core = Rc::clone(&link.settings.core);
        core.refused(turned.reason);
        if turned.how == OnLimit::Reject && core.turned.get() < TURNED_MAX {
            // From here on it counts as one that is turned away.
            link.settings.open.set(link.settings.open.get() - 1);
            core.turned.set(core.turned.get() + 1);
            link.turn(turned);
            return state;
        }
        let _ = link.stream.reset_on_close();
        State::Closed
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let core = Rc::clone(&self.link.settings.core);
        let _section = core.profile.enter(Phase::Connection);
        let bench = &mut *core.bench.borrow_mut();
        let mut steps = 0;
        self.link.register(&core, cx.waker());
        if core.census.is_asking()
            && let Some(state) = self.answer_census(&core, bench)
        {
            self.state = state;
        }
        loop {
            let next = match &mut self.state {
                State::Idle => self.poll_idle(cx, &core, bench),
                State::Exchange(exchange) => {
                    match exchange.poll(cx, &core, &mut self.link, bench) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(after) => Poll::Ready(self.follow(&core, bench, after)),
                    }
                }
                State::Tunnel(_) => self.poll_tunnel(cx, &core, bench),
                State::Greeting => self.poll_greeting(cx, &core, bench),
                State::Lingering(_) => self.poll_lingering(cx, &core, bench),
                State::Closed => return Poll::Ready(()),
            };
            match next {
                Poll::Ready(state) => self.state = state,
                Poll::Pending => return Poll::Pending,
            }
            steps += 1;
            if steps == STEPS_MAX {
                rt::stream::yield_turn(cx);
                return Poll::Pending;
            }
        }
    }

    /// What comes after an exchange.
    fn follow(&mut self, core: &Rc<Core>, bench: &mut Bench, after: After) -> State {
        let State::Exchange(exchange) = std::mem::replace(&mut self.state, State::Closed) else {
            return State::Closed;
        };
        match after {
            After::Tunnel(tunnelled) => {
                return self.begin_tunnel(core, bench, exchange, *tunnelled);
            }
            After::Next => {
                core.give_exchange(exchange);
                self.link.end_request();
                return State::Idle;
            }
            After::Reset => {
                // Refused when it is gone already, which is as well.
                let _ = self.link.stream.reset_on_close();
            }
            After::Vanish => {
                let _ = self.link.stream.vanish_on_close();
            }
            After::Linger => {
                core.give_exchange(exchange);
                return self.link.linger();
            }
            After::Close => {}
        }
        core.give_exchange(exchange);
        State::Closed
    }

    /// Waits for a head, and begins with it.
    fn poll_idle(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
    ) -> Poll<State> {
        let _section = core.profile.enter(Phase::ReadHead);
        let mut reads = 0;
        loop {
            let (from, worth_it) = if self.link.look_again {
                self.link.look_again = false;
                (From::Held, true)
            } else {
                if reads == READS_MAX {
                    rt::stream::yield_turn(cx);
                    return Poll::Pending;
                }
                let held = self.link.held.len();
                let room = bench.input.len() - held;
                let read = match self.link.stream.poll_read(cx, &mut bench.input[..room]) {
                    Poll::Pending => return self.poll_waiting(cx, core, bench, reads > 0),
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(self.left(cx, core, bench)),
                    Poll::Ready(Ok(read)) => read,
                };
                reads += 1;
                let input = &bench.input[..read];
                if held > 0 && !self.link.hold(core, input) {
                    return Poll::Ready(self.refuse(cx, core, bench, Err(End::NoBuffer), held));
                }
                let is_long = held + read >= self.link.settings.plan.limits.head_bytes_max;
                let from = if held > 0 { From::Held } else { From::Input(read) };
                (from, is_long || head_may_be_complete(input))
            };
            if worth_it && let Some(next) = self.begin(cx, core, bench, from) {
                return Poll::Ready(next);
            }
            self.link.begin_head(now_ns());
            if let From::Input(read) = from
                && !self.link.hold(core, &bench.input[..read])
            {
                return Poll::Ready(self.refuse(cx, core, bench, Err(End::NoBuffer), read));
            }
        }
    }

    /// Begins an exchange with a head, if it is there in full.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
        from: From,
    ) -> Option<State> {
        // Parsed where they are: many small requests in one piece are not moved for each of them.
        let mut held = std::mem::take(&mut self.link.held);
        let begun = self.begin_from(cx, core, bench, (from, held.bytes()));
        if let From::Held = from {
            held.consume(begun.as_ref().map_or(0, |(_, used)| *used));
            self.link.held = held;
        }
        begun.map(|(state, _)| state)
    }

    /// As [`Conn::begin`], with the bytes that are held; how many bytes were used.
    fn begin_from(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
        (from, held): (From, &[u8]),
    ) -> Option<(State, usize)> {
        let mut slots = wire::header_slots();
        let limits = &self.link.settings.plan.limits;
        let received = match from {
            From::Input(end) => &bench.input[..end],
            From::Held => held,
        };
        let (head, used) = match wire::parse_request(received, limits, &mut slots) {
            Ok(Parsed::Complete { head, bytes }) => (head, bytes),
            Ok(Parsed::Incomplete) => return None,
            Err(refusal) => {
                let bytes = received.len();
                return Some((self.refuse(cx, core, bench, Ok(refusal), bytes), 0));
            }
        };
        let now_ns = now_ns();
        let start_ns = self.link.head_began_ns(now_ns);
        if let From::Input(end) = from
            && !self.link.hold(core, &received[used..end])
        {
            return Some((self.refuse(cx, core, bench, Err(End::NoBuffer), end), 0));
        }
        self.link.begin_request();
        let Some((live, listener)) = self.link.settings.place() else {
            return Some((State::Closed, 0));
        };
        let mut exchange = core.take_exchange();
        let Bench { target, scratch, rng, .. } = bench;
        let begun = Begun {
            live,
            listener,
            head_bytes: used,
            start_ns,
            now_ns,
            waker: cx.waker(),
            target,
            scratch,
            rng,
        };
        exchange.begin(core, &mut self.link, &head, begun);
        Some((State::Exchange(exchange), used))
    }

    /// Answers to what is no request, or to one that cannot be received.
    fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
        why: Result<wire::Refusal, End>,
        bytes: usize,
    ) -> State {
        self.link.begin_request();
        let Some((live, listener)) = self.link.settings.place() else {
            return State::Closed;
        };
        let mut exchange = core.take_exchange();
        let now_ns = now_ns();
        let start_ns = self.link.head_began_ns(now_ns);
        let Bench { target, scratch, rng, .. } = bench;
        let begun = Begun {
            live,
            listener,
            head_bytes: bytes,
            start_ns,
            now_ns,
            waker: cx.waker(),
            target,
            scratch,
            rng,
        };
        exchange.begin_refused(core, &mut self.link, why, begun);
        State::Exchange(exchange)
    }

    /// The client ended its connection between two requests, or within a head.
    fn left(&mut self, cx: &mut Context<'_>, core: &Rc<Core>, bench: &mut Bench) -> State {
        match self.link.held.len() {
            0 => State::Closed,
            bytes => self.refuse(cx, core, bench, Err(End::ClientGone), bytes),
        }
    }

    /// Nothing can be read: waits, unless it has waited too long or the proxy drains.
    fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
        worked: bool,
    ) -> Poll<State> {
        let link = &mut self.link;
        if link.armed == Armed::KeepAlive
            && link.tick == core.tick.get() as u16
            && link.held.is_empty()
        {
            return Poll::Pending;
        }
        if !link.held.is_empty() {
            let head_ns = link.patience_ns(link.settings.plan.timeouts.head_ns);
            if link.is_late(cx, core, Armed::Head, head_ns) {
                let bytes = link.held.len();
                return Poll::Ready(self.refuse(cx, core, bench, Err(End::HeadTimeout), bytes));
            }
            return Poll::Pending;
        }
        if core.idle_ends.get() {
            return Poll::Ready(link.close_idle());
        }
        if worked {
            link.armed = Armed::Nothing;
        }
        let keep_alive_ns = link.patience_ns(link.settings.plan.timeouts.keep_alive_ns);
        if link.is_late(cx, core, Armed::KeepAlive, keep_alive_ns) {
            return Poll::Ready(link.close_idle());
        }
        link.tick = core.tick.get() as u16;
        Poll::Pending
    }

    /// Begins to carry bytes to a pool.
    fn begin_tcp(&mut self, cx: &mut Context<'_>, core: &Rc<Core>, bench: &mut Bench) -> State {
        let Some((live, listener)) = self.link.settings.place() else {
            return State::Closed;
        };
        let Mode::Tcp(pool) = live.plan.listeners[listener].mode else {
            return State::Closed;
        };
        self.link.begin_request();
        let mut exchange = core.take_exchange();
        let now_ns = now_ns();
        let Bench { target, scratch, rng, .. } = bench;
        let begun = Begun {
            live,
            listener,
            head_bytes: 0,
            start_ns: now_ns,
            now_ns,
            waker: cx.waker(),
            target,
            scratch,
            rng,
        };
        exchange.begin_tcp(core, &mut self.link, pool, begun);
        State::Exchange(exchange)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        let core = &Rc::clone(&self.link.settings.core);
        self.link.leave();
        let settings = &self.link.settings;
        let counted = if self.link.is_turned() { &core.turned } else { &*settings.open };
        counted.set(counted.get() - 1);
        settings.place().inspect(|(live, index)| live.metrics.closed(*index));
        match &mut self.state {
            State::Exchange(exchange) => exchange.abandon(core, &self.link),
            State::Tunnel(tunnelling) => tunnelling.exchange.abandon(core, &self.link),
            _ => {}
        }
        core.board.closed(core.index);
        core.room.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the header of its task, which is about a hundred bytes, it is to fit 256.
    const TASK_BYTES_MAX: usize = 144;

    fn future_bytes<F: Future>(
        _: fn(Stream, Rc<Settings>, Option<SocketAddr>, Option<Turned>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = future_bytes(serve);
        println!("task {bytes}, link {}, stream {}", size_of::<Link>(), size_of::<Stream>());
        assert!(bytes <= TASK_BYTES_MAX, "{bytes}");
    }
}
