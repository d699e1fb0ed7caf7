//! Client of HTTP/2: one connection with as many requests at a time as it has streams. One task
//! drives all of them, so requests that are due together leave in one write, and responses that
//! arrive together take one read.
//!
//! ```text
//!   wanted request? ──► connect ──failed──► back off
//!                          │ stands
//!          ┌───────────────▼─────────────────────────────────┐
//!          │ read ─► events ─► record ─► start what is due   │
//!          │                                 └─► one write ──┤
//!          └─────────────────────────────────────────────────┘
//! ```
//!
//! A timeout resets its stream (CANCEL) and leaves the connection open, unless [`silence`] shows that it
//! is dead. A lost connection fails all
//! its requests, each once. After a GOAWAY no stream is opened. Requests that the server did not
//! process are sent again on the next connection, once, with their first due and send times.

mod bodies;
mod connection;
mod exchange;
mod head;
mod settings;
mod silence;
mod tunnel;

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::cores::yield_turn;
use wire::h2::ErrorCode;

use self::connection::{Http2Connection, ReadProgress};
use self::exchange::{Exchange, ExchangeTable};
pub(super) use self::tunnel::Http2Tunnel;
use super::dialer::Dialer;
use super::multiplexed::MultiplexedClient;
use super::source::{RequestSource, WantedRequest};
use super::{ConnectionEnd, READS_MAX};
use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase};

/// Error code of a stream that timed out (RFC 9113 §7).
const CANCEL: ErrorCode = ErrorCode(8);

/// One client: at most one connection, and a request on each of its streams.
pub(super) struct Http2Client {
    dialer: Dialer,
    connection: Option<Box<Http2Connection>>,
    exchanges: ExchangeTable,
    /// Requests that the server did not process, for the next connection.
    retries: VecDeque<Exchange>,
    source: RequestSource,
    /// Maximum number of concurrent streams.
    streams: usize,
    /// Limit of the server on the last connection.
    streams_max: Option<u32>,
    /// Number of requests so far, to take the URLs in turn.
    request_index: usize,
    /// Earliest deadline of a request, or an earlier time.
    next_deadline_ns: u64,
}

impl MultiplexedClient for Http2Client {
    fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    fn parts(&mut self) -> (&mut RequestSource, &mut Dialer) {
        (&mut self.source, &mut self.dialer)
    }

    fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let core = Rc::clone(&self.dialer.core);
        let (plan, known) = (&core.shared.plan, self.streams_max);
        let opening = async |_: &Dialer, stream| Ok(Http2Connection::new(stream, plan, known));
        self.connection = Some(Box::new(self.dialer.connect(due_ns, opening).await?));
        self.find_next_deadline();
        Ok(())
    }

    async fn connect_before_start(&mut self) {
        let core = Rc::clone(&self.dialer.core);
        let plan = &core.shared.plan;
        let opened = self.dialer.connect(now_ns(), async |dialer, stream| {
            let mut connection = Http2Connection::new(stream, plan, None);
            connection.wait_for_settings(dialer).await?;
            Ok(connection)
        });
        // The run connects again.
        self.connection = opened.await.ok().map(Box::new);
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let core = Rc::clone(&self.dialer.core);
        if core.giving_up.get() {
            self.lose(FailureKind::Unfinished);
            return Poll::Ready(ConnectionEnd::LoadEnded);
        }
        if self.dialer.deadline.is_expired() {
            self.expire();
        }
        let mut turns = 0;
        loop {
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(ConnectionEnd::Closed);
            };
            let freed = &mut self.source;
            let read = connection.poll_receive(cx, &core, &mut self.exchanges, &mut self.retries, freed);
            let read = match read {
                Ok(read) => read,
                Err(kind) => return self.end_lost(cx, kind),
            };
            self.start_requests(cx);
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(ConnectionEnd::Closed);
            };
            connection.send_bodies(&core, &mut self.exchanges);
            if let Err(kind) = connection.poll_flush(cx, &core) {
                return self.end_lost(cx, kind);
            }
            turns += 1;
            let has_more = read == ReadProgress::More || connection.can_send_bodies();
            match has_more {
                true if turns < READS_MAX => {}
                true => {
                    yield_turn(cx);
                    break;
                }
                false => break,
            }
        }
        self.poll_end(cx)
    }

    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        if let Some(retry) = self.retries.front() {
            return Poll::Ready(Some(retry.due_ns));
        }
        self.source.poll_wanted(cx, &self.dialer)
    }

    fn fail_waiting(&mut self, failure: Failure) {
        let core = Rc::clone(&self.dialer.core);
        let now_ns = now_ns();
        self.source.fail_wanted(&core, failure, now_ns);
        for retry in std::mem::take(&mut self.retries) {
            retry.record_failure(&core, failure.kind, now_ns, false);
            self.source.release(now_ns);
        }
    }
}

impl Http2Client {
    pub(super) fn new(dialer: Dialer) -> Self {
        let plan = &dialer.core.shared.plan;
        // The plan has it for each client with HTTP/2.
        let streams = plan.http2.as_ref().map_or(1, |http2| http2.streams);
        let streams = usize::try_from(streams).unwrap_or(usize::MAX);
        Self {
            connection: None,
            streams_max: None,
            exchanges: ExchangeTable::new(plan, dialer.client_number() as u64),
            retries: VecDeque::new(),
            source: RequestSource::new(plan, streams, dialer.client_number() as u64),
            streams,
            request_index: dialer.first_turn(),
            next_deadline_ns: u64::MAX,
            dialer,
        }
    }

    /// Ends the connection if no request is left on it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        if !self.exchanges.streams.is_empty() {
            return Poll::Pending;
        }
        let is_over = self.source.is_ended() && self.retries.is_empty();
        let is_closing = self.connection.as_mut().is_some_and(|connection| connection.is_drained());
        if !is_over && !is_closing {
            return Poll::Pending;
        }
        self.close(cx, |_| ());
        Poll::Ready(if is_over { ConnectionEnd::LoadEnded } else { ConnectionEnd::Closed })
    }

    /// Ends a connection that was lost: by its peer, an error or a violation of the protocol.
    fn end_lost(&mut self, cx: &mut Context<'_>, kind: FailureKind) -> Poll<ConnectionEnd> {
        if self.exchanges.streams.is_empty() {
            // After a GOAWAY either end may close first.
            let is_announced = self.connection.as_ref().is_some_and(|connection| connection.is_going_away());
            self.close(cx, |counters| counters.closed_idle += u64::from(!is_announced));
        } else {
            if let Some(connection) = &mut self.connection {
                // The reason, if the peer violated the protocol.
                let _ = connection.poll_flush(cx, &self.dialer.core);
            }
            self.lose(kind);
        }
        Poll::Ready(ConnectionEnd::Closed)
    }

    /// Records the loss of the connection: all its requests fail.
    fn lose(&mut self, kind: FailureKind) {
        let core = Rc::clone(&self.dialer.core);
        let now_ns = now_ns();
        let Some(connection) = self.connection.take() else { return };
        self.streams_max = connection.streams_max().or(self.streams_max);
        let is_lost = !self.exchanges.streams.is_empty();
        for exchange in self.exchanges.streams.drain().chain(self.retries.drain(..)) {
            let is_written = connection.is_written(&exchange);
            exchange.record_failure(&core, kind, now_ns, is_written);
            self.source.release(now_ns);
        }
        if kind == FailureKind::Unfinished {
            self.source.fail_wanted(&core, Failure { kind, phase: RequestPhase::Queue }, now_ns);
        }
        let mut recorder = core.recorder.borrow_mut();
        core.roll(&mut recorder, now_ns);
        recorder.open_connections -= 1;
        recorder.counters.lost += u64::from(is_lost);
        core.dispatcher.borrow_mut().withdraw(self.dialer.index);
    }

    /// Closes a connection without requests.
    fn close(&mut self, cx: &mut Context<'_>, count: impl FnOnce(&mut crate::recorder::Counters)) {
        let core = Rc::clone(&self.dialer.core);
        let Some(mut connection) = self.connection.take() else { return };
        self.streams_max = connection.streams_max().or(self.streams_max);
        connection.say_goodbye(cx, &core);
        let mut recorder = core.recorder.borrow_mut();
        recorder.open_connections -= 1;
        count(&mut recorder.counters);
        core.dispatcher.borrow_mut().withdraw(self.dialer.index);
    }

    /// Resets the streams of the requests that are older than their timeout.
    fn expire(&mut self) {
        let core = Rc::clone(&self.dialer.core);
        let now_ns = now_ns();
        let expired = self.exchanges.take_expired(now_ns).into_iter().map(|exchange| (exchange, true));
        let waiting = self.retries.iter().filter(|retry| retry.deadline_ns <= now_ns).cloned();
        let all: Vec<_> = expired.chain(waiting.map(|retry| (retry, false))).collect();
        self.retries.retain(|retry| retry.deadline_ns > now_ns);
        for (exchange, has_stream) in all {
            let mut is_written = true;
            if let (Some(connection), true) = (&mut self.connection, has_stream) {
                is_written = connection.is_written(&exchange);
                connection.reset(exchange.stream, CANCEL);
                connection.suspect(now_ns);
                core.recorder.borrow_mut().counters.http2.cancelled += 1;
            }
            let estimator = &mut core.dispatcher.borrow_mut().latency_estimator;
            estimator.record_given_up(now_ns.saturating_sub(exchange.begun_ns));
            exchange.record_failure(&core, FailureKind::Timeout, now_ns, is_written);
            self.source.release(now_ns);
        }
        if self.connection.as_ref().is_some_and(|connection| connection.lost_at_ns() <= now_ns) {
            core.recorder.borrow_mut().counters.http2.pings_lost += 1;
            self.lose(FailureKind::Timeout);
        }
        self.find_next_deadline();
    }

    fn find_next_deadline(&mut self) {
        let all = self.exchanges.streams.iter().chain(&self.retries);
        let earliest_ns = all.map(|exchange| exchange.deadline_ns).min().unwrap_or(u64::MAX);
        let lost_at_ns = self.connection.as_ref().map_or(u64::MAX, |connection| connection.lost_at_ns());
        self.next_deadline_ns = earliest_ns.min(lost_at_ns);
        self.dialer.deadline.set(self.next_deadline_ns);
    }

    /// Opens a stream for each request that is due, as far as the connection allows.
    fn start_requests(&mut self, cx: &mut Context<'_>) {
        let now_ns = now_ns();
        loop {
            let Some(connection) = &mut self.connection else { return };
            let free = connection.startable(self.streams, &self.exchanges);
            if free == 0 {
                self.source.block(&self.dialer);
                return;
            }
            let exchange = match self.retries.pop_front() {
                Some(retry) => retry,
                None => {
                    let Some(wanted) = self.source.take(cx, &self.dialer, free, now_ns) else { return };
                    self.begin(wanted, now_ns)
                }
            };
            self.start(exchange);
        }
    }

    fn begin(&mut self, wanted: WantedRequest, now_ns: u64) -> Exchange {
        let WantedRequest { due_ns, begun_ns, queued } = wanted;
        let core: &CoreState = &self.dialer.core;
        let shared = &core.shared;
        let request = self.dialer.next_request(&mut self.request_index, due_ns);
        let context = self.exchanges.take_context(core, request);
        core.recorder.borrow_mut().record_sent(due_ns, now_ns);
        let deadline_ns = shared.plan.deadline_ns(due_ns, now_ns);
        let mut exchange = Exchange::new(request, (due_ns, begun_ns, now_ns), deadline_ns);
        exchange.context = context;
        exchange.queued = queued;
        exchange
    }

    fn start(&mut self, exchange: Exchange) {
        if exchange.deadline_ns < self.next_deadline_ns {
            self.next_deadline_ns = exchange.deadline_ns;
            self.dialer.deadline.set(exchange.deadline_ns);
        }
        let Some(connection) = &mut self.connection else {
            self.retries.push_back(exchange);
            return;
        };
        if let Some(exchange) = connection.start(&self.dialer.core, exchange, &mut self.exchanges) {
            self.retries.push_front(exchange);
        }
    }
}
