//! One client's connection: request heads, each of which starts an exchange, and the states around them.
//!
//! ```text
//! accepted -> PROXY header -> TLS handshake -> idle -> exchange --> idle …
//!                                               |         |  '----> tunnel -> closed
//!                                               v         '-------> lingering -> closed
//!                                             closed
//! ```
//! An idle connection consists of this struct and its socket. It holds no buffer and no exchange.

mod active_tunnel;
mod client_hello;
mod http2;
mod lingering;
mod proxy_preface;
mod session_dump;
mod tls_handshake;

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::MonotonicTime;
use rt::stream::Stream;
use rt::tls::client_hello::ClientHelloReader;
use wire::h2::PrefaceMatch;
use wire::{Parsed, head_may_be_complete};

use active_tunnel::ActiveTunnel;
use lingering::LingeringClose;
use tls_handshake::HandshakeSlot;
pub(crate) use tls_handshake::open_stream;

use crate::admission::Rejection;
use crate::client_http2::ClientHttp2;
use crate::client_stream::{ClientStream, Peer, TimeoutKind};
use crate::core::{ListenerSettings, PollContext, Scratch};
use crate::exchange::{ConnAction, ExchangeStart};
use crate::exchange_state::Exchange;
use crate::outcome::EndReason;
use crate::plan::{Mode, OnLimit, PoolId};
use crate::profile::ProfilePhase;

/// A client's connection.
#[derive(Debug)]
struct Conn {
    client: ClientStream,
    state: ConnState,
}

#[derive(Debug)]
enum ConnState {
    ProxyPreface,
    ClientHello(Box<ClientHelloReader>),
    TlsHandshake(#[expect(dead_code, reason = "its drop frees the slot")] HandshakeSlot),
    Idle,
    Exchange(Box<Exchange>),
    Tunnel(Box<ActiveTunnel>),
    /// All streams of an HTTP/2 connection.
    Http2(Box<ClientHttp2>),
    /// A stream of an HTTP/2 connection whose request is rejected.
    RejectedStream,
    Lingering(Box<LingeringClose>),
    Closed,
}

/// The state after a request head, and the number of its bytes that are used.
struct BegunExchange {
    state: ConnState,
    used: usize,
}

/// Location of the bytes of a request head.
#[derive(Clone, Copy, Debug)]
enum HeadSource {
    /// The first bytes of the last read.
    Input(usize),
    /// Bytes in the client stream, kept from earlier reads.
    Buffered,
}

/// Maximum number of reads in one poll, before other tasks run.
const READS_MAX: u32 = 4;
/// Maximum number of state changes in one poll, before other tasks run. A local response
/// takes two.
const TRANSITIONS_MAX: u32 = 32;

/// Maximum number of rejected connections of a core at a time. Further ones are reset.
pub(crate) const REJECTED_MAX: usize = 256;

/// Serves one connection until it closes.
pub(crate) fn serve(
    stream: Stream,
    settings: Rc<ListenerSettings>,
    peer: Option<SocketAddr>,
    rejection: Option<Rejection>,
) -> impl Future<Output = ()> {
    let mut conn = Conn::new(stream, settings, peer, rejection);
    std::future::poll_fn(move |cx| conn.poll(cx))
}

impl Conn {
    fn new(
        stream: Stream,
        settings: Rc<ListenerSettings>,
        peer: Option<SocketAddr>,
        rejection: Option<Rejection>,
    ) -> Self {
        let core = &settings.core;
        core.connection_limit.acquire();
        // Rejected connections do not count toward the limit.
        let counter = if rejection.is_some() { &core.load.rejected } else { &*settings.open_connections };
        counter.set(counter.get() + 1);
        settings.active_generation().inspect(|active| active.generation.metrics.accepted(active.listener));
        let peer = Peer::new(&settings.plan, peer);
        let state = match (settings.plan.proxy_protocol, settings.plan.mode) {
            (true, _) => ConnState::ProxyPreface,
            (false, _) if settings.plan.tls.is_some() => tls_handshake::first_state(&settings),
            (false, Mode::Http) => ConnState::Idle,
            (false, Mode::Tcp(_)) => ConnState::ProxyPreface,
        };
        let mut client = ClientStream::new(stream, settings, peer);
        if matches!(state, ConnState::Closed) {
            // Fails if the socket is gone already, which has the same effect.
            let _ = client.stream.reset_on_close();
        }
        let state = match rejection {
            Some(rejection) => {
                client.set_rejection(rejection);
                state
            }
            None if client.settings.plan.proxy_protocol => state,
            None => Self::admit_source(&mut client, state),
        };
        Self { client, state }
    }

    /// Chooses the next state once the source address is known.
    fn admit_source(client: &mut ClientStream, state: ConnState) -> ConnState {
        if !client.settings.limits.has_source_limits() {
            return state;
        }
        let Err(rejection) = client.acquire_source_slot(MonotonicTime::now()) else { return state };
        let core = Rc::clone(&client.settings.core);
        core.count_rejection(rejection.reason);
        if rejection.action == OnLimit::Reject && core.load.rejected.get() < REJECTED_MAX {
            client.count_as_rejected();
            client.set_rejection(rejection);
            return state;
        }
        let _ = client.stream.reset_on_close();
        ConnState::Closed
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let core = Rc::clone(&self.client.settings.core);
        let _section = core.profile.enter(ProfilePhase::Connection);
        let Scratch { input, work } = &mut *core.memory.scratch.borrow_mut();
        self.client.register(&core, cx.waker());
        if core.session_dump.has_query()
            && let Some(state) = self.report_session(&core, &mut work.rng)
        {
            self.state = state;
        }
        self.poll_states(&mut PollContext { cx, core: &core, work }, input)
    }

    #[inline]
    fn poll_states(&mut self, ctx: &mut PollContext<'_, '_>, input: &mut [u8]) -> Poll<()> {
        let mut transitions = 0;
        loop {
            let next = match &mut self.state {
                ConnState::Idle => self.poll_idle(ctx, input),
                ConnState::Exchange(exchange) => match exchange.poll(ctx, &mut self.client, input) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(action) => Poll::Ready(self.finish_exchange(ctx, action)),
                },
                ConnState::Tunnel(_) => self.poll_tunnel(ctx, input),
                ConnState::ProxyPreface => self.poll_proxy_preface(ctx, input),
                ConnState::ClientHello(_) => self.poll_client_hello(ctx, input),
                ConnState::TlsHandshake(_) => self.poll_tls_handshake(ctx),
                ConnState::Http2(_) => self.poll_http2(ctx, input),
                ConnState::RejectedStream => Poll::Ready(self.reject_stream(ctx)),
                ConnState::Lingering(_) => self.poll_lingering(ctx, input),
                ConnState::Closed => return Poll::Ready(()),
            };
            match next {
                Poll::Ready(state) => self.state = state,
                Poll::Pending => return Poll::Pending,
            }
            transitions += 1;
            if transitions == TRANSITIONS_MAX {
                rt::cores::yield_turn(ctx.cx);
                return Poll::Pending;
            }
        }
    }

    /// Chooses the state after an exchange.
    fn finish_exchange(&mut self, ctx: &mut PollContext<'_, '_>, action: ConnAction) -> ConnState {
        let core = ctx.core;
        let ConnState::Exchange(exchange) = std::mem::replace(&mut self.state, ConnState::Closed) else {
            return ConnState::Closed;
        };
        match action {
            ConnAction::Tunnel(tunnelled) => {
                return self.begin_tunnel(ctx, exchange, *tunnelled);
            }
            ConnAction::KeepAlive => {
                core.recycle_exchange(exchange);
                self.client.end_request();
                return ConnState::Idle;
            }
            ConnAction::Reset => {
                // Fails if the socket is gone already, which has the same effect.
                let _ = self.client.stream.reset_on_close();
            }
            ConnAction::ResetSilently => {
                let _ = self.client.stream.reset_silently_on_close();
            }
            ConnAction::Linger => {
                core.recycle_exchange(exchange);
                return self.client.linger();
            }
            ConnAction::Close => {}
        }
        core.recycle_exchange(exchange);
        ConnState::Closed
    }

    /// Waits for a request head and begins an exchange with it.
    fn poll_idle(&mut self, ctx: &mut PollContext<'_, '_>, input: &mut [u8]) -> Poll<ConnState> {
        let _section = ctx.core.profile.enter(ProfilePhase::ReadHead);
        let mut reads = 0;
        loop {
            let (from, is_worth_parsing) = if self.client.parses_buffered_first {
                self.client.parses_buffered_first = false;
                (HeadSource::Buffered, true)
            } else {
                if reads == READS_MAX {
                    rt::cores::yield_turn(ctx.cx);
                    return Poll::Pending;
                }
                let buffered = self.client.buffered.len();
                let capacity = input.len() - buffered;
                let read = match self.client.poll_read_head(ctx.cx, &mut input[..capacity]) {
                    Poll::Pending => return self.wait_for_data(ctx, reads > 0),
                    Poll::Ready(Ok(0) | Err(_)) => {
                        return Poll::Ready(self.handle_client_eof(ctx));
                    }
                    Poll::Ready(Ok(read)) => read,
                };
                reads += 1;
                let input = &input[..read];
                if buffered > 0 && !self.client.buffer_bytes(ctx.core, input) {
                    return Poll::Ready(self.reject(ctx, Err(EndReason::NoBuffer), buffered));
                }
                let is_long = buffered + read >= self.client.settings.plan.limits.head_bytes_max;
                let from = if buffered > 0 { HeadSource::Buffered } else { HeadSource::Input(read) };
                // What comes first is parsed in any case: if it is wrong, more would not make it right.
                (from, buffered == 0 || is_long || head_may_be_complete(input))
            };
            let is_worth_parsing = match self.detect_http2(input, from) {
                PrefaceMatch::No => is_worth_parsing,
                PrefaceMatch::Partial => false,
                PrefaceMatch::Full => return Poll::Ready(self.begin_http2_with(ctx.core, input, from)),
            };
            if is_worth_parsing && let Some(next) = self.begin_exchange(ctx, input, from) {
                return Poll::Ready(next);
            }
            self.client.note_head_start(MonotonicTime::now());
            if let HeadSource::Input(read) = from
                && !self.client.buffer_bytes(ctx.core, &input[..read])
            {
                return Poll::Ready(self.reject(ctx, Err(EndReason::NoBuffer), read));
            }
        }
    }

    /// Begins an exchange if the request head is complete.
    fn begin_exchange(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        input: &[u8],
        from: HeadSource,
    ) -> Option<ConnState> {
        // Parsed in place: pipelined small requests are not moved for each of them.
        let mut buffered = std::mem::take(&mut self.client.buffered);
        let next = self.begin_exchange_from(ctx, input, from, buffered.bytes());
        if let HeadSource::Buffered = from {
            buffered.consume(next.as_ref().map_or(0, |next| next.used));
            self.client.buffered = buffered;
        }
        next.map(|next| next.state)
    }

    /// Same as [`Conn::begin_exchange`], with the held bytes.
    fn begin_exchange_from(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        input: &[u8],
        from: HeadSource,
        buffered: &[u8],
    ) -> Option<BegunExchange> {
        let mut slots = wire::header_slots();
        let limits = &self.client.settings.plan.limits;
        let received = match from {
            HeadSource::Input(end) => &input[..end],
            HeadSource::Buffered => buffered,
        };
        let (head, used) = match wire::parse_request(received, limits, &mut slots) {
            Ok(Parsed::Complete { head, bytes }) => (head, bytes),
            Ok(Parsed::Incomplete) => return None,
            Err(refusal) => {
                let state = self.reject_head(ctx, Ok(refusal), received);
                return Some(BegunExchange { state, used: 0 });
            }
        };
        let now = MonotonicTime::now();
        let head_start = self.client.head_start(now);
        if let HeadSource::Input(end) = from
            && !self.client.buffer_bytes(ctx.core, &received[used..end])
        {
            let state = self.reject_head(ctx, Err(EndReason::NoBuffer), &received[..end]);
            return Some(BegunExchange { state, used: 0 });
        }
        self.client.begin_request();
        let Some(active) = self.client.settings.active_generation() else {
            return Some(BegunExchange { state: ConnState::Closed, used: 0 });
        };
        let mut exchange = ctx.core.take_exchange();
        let start = ExchangeStart { active, head_bytes: used, head_start, now };
        exchange.begin(ctx, &mut self.client, &head, start);
        Some(BegunExchange { state: ConnState::Exchange(exchange), used })
    }

    /// Responds to an invalid request, or to one that cannot be received.
    fn reject(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        reason: Result<wire::Refusal, EndReason>,
        bytes: usize,
    ) -> ConnState {
        self.begin_rejected(ctx, reason, &[], bytes)
    }

    /// Responds to the `received` bytes of a head that is invalid or incomplete.
    #[cold]
    fn reject_head(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        reason: Result<wire::Refusal, EndReason>,
        received: &[u8],
    ) -> ConnState {
        self.begin_rejected(ctx, reason, received, received.len())
    }

    /// Does the same for the bytes that are buffered.
    #[cold]
    fn reject_buffered(&mut self, ctx: &mut PollContext<'_, '_>, end: EndReason) -> ConnState {
        let buffered = std::mem::take(&mut self.client.buffered);
        let state = self.reject_head(ctx, Err(end), buffered.bytes());
        self.client.buffered = buffered;
        state
    }

    fn begin_rejected(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        reason: Result<wire::Refusal, EndReason>,
        head: &[u8],
        bytes: usize,
    ) -> ConnState {
        self.client.begin_request();
        let Some(active) = self.client.settings.active_generation() else {
            return ConnState::Closed;
        };
        let mut exchange = ctx.core.take_exchange();
        let now = MonotonicTime::now();
        let head_start = self.client.head_start(now);
        let start = ExchangeStart { active, head_bytes: bytes, head_start, now };
        exchange.begin_rejected(ctx, &mut self.client, (reason, head), start);
        ConnState::Exchange(exchange)
    }

    /// Handles the client's end of the connection, between two requests or within a head.
    fn handle_client_eof(&mut self, ctx: &mut PollContext<'_, '_>) -> ConnState {
        match self.client.buffered.len() {
            0 => ConnState::Closed,
            _ => self.reject_buffered(ctx, EndReason::ClientGone),
        }
    }

    /// Waits for data, unless the timeout has expired or the proxy drains.
    fn wait_for_data(&mut self, ctx: &mut PollContext<'_, '_>, has_read: bool) -> Poll<ConnState> {
        let client = &mut self.client;
        if client.timeout_kind == TimeoutKind::KeepAlive
            && client.keep_alive_tick == ctx.core.ticks.count.get() as u16
            && client.buffered.is_empty()
        {
            return Poll::Pending;
        }
        if !client.buffered.is_empty() {
            let head_timeout_ns = client.effective_timeout_ns(client.settings.plan.timeouts.head_ns);
            if client.has_timed_out(ctx, TimeoutKind::Head, head_timeout_ns) {
                return Poll::Ready(self.reject_buffered(ctx, EndReason::HeadTimeout));
            }
            return Poll::Pending;
        }
        if has_read {
            client.timeout_kind = TimeoutKind::None;
        }
        let keep_alive_timeout_ns = client.effective_timeout_ns(client.settings.plan.timeouts.keep_alive_ns);
        let must_close = ctx.core.drain.closes_idle.get()
            || client.has_timed_out(ctx, TimeoutKind::KeepAlive, keep_alive_timeout_ns);
        if must_close {
            // On a busy core a request may have arrived that the runtime has not seen: it will wake
            // the task.
            return match client.stream.has_unread() {
                true => Poll::Pending,
                false => Poll::Ready(client.close_idle()),
            };
        }
        client.keep_alive_tick = ctx.core.ticks.count.get() as u16;
        Poll::Pending
    }

    /// Begins the listener's protocol.
    fn begin_protocol(&mut self, ctx: &mut PollContext<'_, '_>) -> ConnState {
        match self.client.settings.plan.mode {
            Mode::Http if self.has_negotiated_http2() => self.begin_http2(),
            Mode::Http => ConnState::Idle,
            Mode::Tcp(_) if self.client.settings.plan.sni.is_some() => {
                self.client.parses_buffered_first = !self.client.buffered.is_empty();
                ConnState::ClientHello(Box::default())
            }
            Mode::Tcp(_) => self.begin_tcp(ctx, None),
        }
    }

    /// Begins a TCP exchange with a pool; `None`: that of the listener.
    fn begin_tcp(&mut self, ctx: &mut PollContext<'_, '_>, pool: Option<PoolId>) -> ConnState {
        let Some(active) = self.client.settings.active_generation() else {
            return ConnState::Closed;
        };
        let pool = match (pool, active.generation.plan.listeners[active.listener].mode) {
            (Some(pool), _) | (None, Mode::Tcp(pool)) => pool,
            (None, Mode::Http) => return ConnState::Closed,
        };
        self.client.begin_request();
        let mut exchange = ctx.core.take_exchange();
        let now = MonotonicTime::now();
        let start = ExchangeStart { active, head_bytes: 0, head_start: now, now };
        exchange.begin_tcp(ctx, &mut self.client, pool, start);
        ConnState::Exchange(exchange)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        let core = &Rc::clone(&self.client.settings.core);
        self.client.release();
        match &mut self.state {
            ConnState::Exchange(exchange) => exchange.abort_on_drain(core, &self.client),
            ConnState::Tunnel(tunnelling) => tunnelling.exchange.abort_on_drain(core, &self.client),
            _ => {}
        }
        if self.client.is_h2_stream() {
            return;
        }
        let settings = &self.client.settings;
        let counter =
            if self.client.is_rejected() { &core.load.rejected } else { &*settings.open_connections };
        counter.set(counter.get() - 1);
        settings.active_generation().inspect(|active| active.generation.metrics.closed(active.listener));
        core.balancer.release(core.id.index);
        core.connection_limit.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task's header takes about a hundred bytes; both together must fit into 256.
    const TASK_BYTES_MAX: usize = 144;

    fn future_bytes<F: Future>(
        _: fn(Stream, Rc<ListenerSettings>, Option<SocketAddr>, Option<Rejection>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let bytes = future_bytes(serve);
        println!("task {bytes}, link {}, stream {}", size_of::<ClientStream>(), size_of::<Stream>());
        assert!(bytes <= TASK_BYTES_MAX, "{bytes}");
    }
}
