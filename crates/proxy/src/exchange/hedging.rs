//! Second attempts (hedging): an idempotent request whose response head is late is sent to another server, too. The first
//! good head wins, and the other attempt is cancelled.
//!
//! ```text
//!  first attempt ----------------------------> head: forwarded, the second attempt is cancelled
//!      | `after`                           `-> failed: the second attempt takes its place
//!      v
//!  second attempt: slot, connection, request -> head: takes the place of the first attempt, which is cancelled
//!                                           `-> failed: only counted
//! ```
//! An attempt that takes the place of the other one brings its slot and its connection, so that its response is forwarded
//! like any other, whatever its size. Until then it holds at most one head. The request is still held for retries
//! (see `retries`), and the second attempt spends from the same budget. The first attempt never waits for the second.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::MonotonicTime;
use wire::{Limits, Parsed, RequestKind};

use super::StepResult;
use super::abandoned::leave_to_server;
use crate::client_stream::ClientStream;
use crate::core::PollContext;
use crate::exchange_state::{
    Connecting, Exchange, ExchangeStage, Hedge, HedgeAttempt, HedgeLink, HedgeState, ResponseProgress,
    ServerSlot,
};
use crate::latency_window::LatencyWindow;
use crate::outcome::{EndReason, HedgeEvent};
use crate::plan::{HedgeDelay, Reuse, Statuses};
use crate::server_conn::ServerConn;
use crate::server_conn::http2::Granted;

/// Maximum number of steps of a second attempt in one poll.
const ATTEMPT_STEPS_MAX: u32 = 8;

/// Result of a step of a second attempt.
enum AttemptStep {
    Progressed,
    Blocked,
    /// Its response can be forwarded.
    Won,
    Failed(EndReason),
    /// Its response has this status, which is not good.
    BadStatus(u16),
}

impl Exchange {
    /// Moves the second attempt of a request, and begins it when its time has come. `None`: nothing changed for the
    /// first attempt.
    #[cold]
    pub(super) fn poll_hedge(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> Option<StepResult> {
        let delay = self.own_settings.as_ref()?.hedge?;
        if self.response != ResponseProgress::Head {
            return None;
        }
        if self.hedge.is_none() {
            self.prepare_hedge(ctx, delay)?;
        }
        if let HedgeState::Waiting(sleep) = &mut self.hedge.as_mut()?.state {
            if Pin::new(sleep).poll(ctx.cx).is_pending() {
                return None;
            }
            self.send_hedge(ctx, client);
        }
        for _ in 0..ATTEMPT_STEPS_MAX {
            let step = self.step_attempt(ctx.cx, input)?;
            match step {
                AttemptStep::Progressed => {}
                AttemptStep::Blocked => return None,
                AttemptStep::Won => return Some(self.win_hedge(ctx, client)),
                AttemptStep::Failed(EndReason::ServerClosed) if self.reopen_attempt(client) => {}
                AttemptStep::Failed(end) => {
                    self.fail_hedge(ctx, end, 0);
                    return None;
                }
                AttemptStep::BadStatus(status) => {
                    self.fail_hedge(ctx, EndReason::BadResponse, status);
                    return None;
                }
            }
        }
        rt::cores::yield_turn(ctx.cx);
        None
    }

    /// Starts the wait for the second attempt. `None`: this request gets none, or not yet.
    fn prepare_hedge(&mut self, ctx: &PollContext<'_, '_>, delay: HedgeDelay) -> Option<()> {
        let pool = &self.slot.as_ref()?.pool;
        let may_hedge = self.facts.is_idempotent
            && !self.facts.requests_upgrade
            && self.request_relay.is_received()
            && self.is_replayable();
        if !may_hedge {
            return None;
        }
        let now = MonotonicTime::now();
        // Pools without retries count no requests for their budget otherwise.
        pool.count_hedgeable(now);
        let first_dispatched = self.outcome.times.dispatched;
        let delay_ns = match delay {
            HedgeDelay::Fixed { delay_ns } => Some(delay_ns),
            HedgeDelay::Percentile { percentile, samples_min, delay_min_ns } => {
                let window = self.latency_window();
                let time_ns =
                    window.and_then(|window| window.borrow_mut().percentile_ns(percentile, samples_min, now));
                time_ns.map(|time_ns| time_ns.max(delay_min_ns))
            }
        };
        let state = match delay_ns {
            Some(delay_ns) => {
                let due = first_dispatched.saturating_add(delay_ns);
                HedgeState::Waiting(ctx.core.timers.sleep_until(due.as_ns()))
            }
            None => HedgeState::Over,
        };
        self.hedge = Some(Box::new(Hedge { state, first_dispatched }));
        Some(())
    }

    fn latency_window(&self) -> Option<&RefCell<LatencyWindow>> {
        self.generation.as_ref()?.latency_window(self.outcome.route?)
    }

    fn count_hedge(&self, event: HedgeEvent) {
        let route = self.outcome.route;
        self.generation.as_ref().inspect(|generation| generation.metrics.count_hedge(route, event));
    }

    fn end_hedge(&mut self, event: HedgeEvent) {
        self.count_hedge(event);
        self.outcome.hedge = Some(event);
    }

    /// Takes a slot at another server, and a connection to it.
    fn send_hedge(&mut self, ctx: &mut PollContext<'_, '_>, client: &ClientStream) {
        let state = match self.start_attempt(ctx, client) {
            Ok(attempt) => {
                self.count_hedge(HedgeEvent::Sent);
                HedgeState::Trying(Box::new(attempt))
            }
            Err(event) => {
                self.count_hedge(event);
                HedgeState::Over
            }
        };
        if let Some(hedge) = &mut self.hedge {
            hedge.state = state;
        }
    }

    fn start_attempt(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
    ) -> Result<HedgeAttempt, HedgeEvent> {
        let Some(ServerSlot { pool, server: first }) = &self.slot else { return Err(HedgeEvent::NoServer) };
        let (pool, first, now) = (Rc::clone(pool), *first, MonotonicTime::now());
        let rng = &mut ctx.work.rng;
        let server =
            pool.acquire_other(first, self.terms.requirements, now, rng).ok_or(HedgeEvent::NoServer)?;
        if !pool.take_retry(now) {
            pool.release(server, rng);
            return Err(HedgeEvent::NoBudget);
        }
        let idle_conn = if pool.reuse() == Reuse::Never { None } else { pool.take_idle(server) };
        let link = match idle_conn {
            Some(conn) => Ok(Granted { conn, is_reused: true }),
            None => self.open_connection(client, &pool, server),
        };
        Ok(HedgeAttempt::new(ServerSlot { pool, server }, link, now))
    }

    /// Opens a new connection for a second attempt whose idle one the server has closed. Returns false if this is not
    /// what happened.
    fn reopen_attempt(&mut self, client: &ClientStream) -> bool {
        let Some(attempt) = self.take_attempt() else { return false };
        let is_stale = attempt.is_reused && attempt.received.is_empty() && attempt.interim_count == 0;
        let attempt = match is_stale {
            false => attempt,
            true => {
                let HedgeAttempt { slot, dispatched, .. } = *attempt;
                let pool = Rc::clone(&slot.pool);
                let link = self.open_connection(client, &pool, slot.server);
                // A second idle connection is not tried again.
                Box::new(HedgeAttempt { is_reused: false, ..HedgeAttempt::new(slot, link, dispatched) })
            }
        };
        if let Some(hedge) = &mut self.hedge {
            hedge.state = HedgeState::Trying(attempt);
        }
        is_stale
    }

    /// Moves the second attempt by one step. `None`: there is none in progress.
    fn step_attempt(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Option<AttemptStep> {
        let limits = self.response_limits();
        let HedgeState::Trying(attempt) = &mut self.hedge.as_mut()?.state else { return None };
        let conn = match &mut attempt.link {
            HedgeLink::Open(conn) => conn,
            HedgeLink::Connecting(connecting) => {
                return Some(match connecting.poll(cx) {
                    Poll::Pending => AttemptStep::Blocked,
                    Poll::Ready(Ok(granted)) => {
                        attempt.connected = MonotonicTime::now();
                        attempt.open(granted);
                        AttemptStep::Progressed
                    }
                    Poll::Ready(Err(error)) => AttemptStep::Failed(error.end()),
                });
            }
        };
        if attempt.has_head {
            return Some(AttemptStep::Won);
        }
        let unsent = &self.request_relay.held_bytes()[attempt.sent..];
        if !unsent.is_empty()
            && let Poll::Ready(written) = conn.stream.poll_write(cx, unsent)
        {
            // The server may have responded before it closed, so its response is read.
            attempt.sent += written.unwrap_or(unsent.len());
            return Some(AttemptStep::Progressed);
        }
        let read_max = input.len() - attempt.received.len();
        match conn.stream.poll_read(cx, &mut input[..read_max]) {
            Poll::Pending => return Some(AttemptStep::Blocked),
            Poll::Ready(Ok(0) | Err(_)) => return Some(AttemptStep::Failed(EndReason::ServerClosed)),
            Poll::Ready(Ok(read)) => attempt.received.extend_from_slice(&input[..read]),
        }
        let retried = self.own_settings.as_ref().and_then(|own| own.retry_on.statuses.as_ref());
        Some(attempt.parse_head(&limits, self.facts.kind, retried))
    }

    /// Ends a second attempt that failed. The first one goes on.
    fn fail_hedge(&mut self, ctx: &mut PollContext<'_, '_>, end: EndReason, status: u16) {
        let Some(attempt) = self.take_attempt() else { return };
        let ServerSlot { pool, server } = &attempt.slot;
        let now = MonotonicTime::now();
        pool.record_failure_sample(*server);
        match end {
            EndReason::BadResponse if status > 0 => pool.note_retried_status(*server, status, now),
            EndReason::NoDescriptor | EndReason::NoSourceAddress => {}
            _ => pool.note_unreachable(*server, now),
        }
        pool.release(*server, &mut ctx.work.rng);
        self.end_hedge(HedgeEvent::Failed);
    }

    /// Takes the second attempt, which is over then.
    fn take_attempt(&mut self) -> Option<Box<HedgeAttempt>> {
        let hedge = self.hedge.as_mut()?;
        match std::mem::replace(&mut hedge.state, HedgeState::Over) {
            HedgeState::Trying(attempt) => Some(attempt),
            state => {
                hedge.state = state;
                None
            }
        }
    }

    /// Forwards the response to the second attempt, and cancels the first one.
    fn win_hedge(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> StepResult {
        let Some(attempt) = self.take_attempt() else { return StepResult::Progressed };
        self.leave_first_server(ctx, client, EndReason::ServerTimeout);
        self.end_hedge(HedgeEvent::Won);
        self.unprocessed = self.adopt(client, *attempt);
        self.attempt.holds_head = true;
        StepResult::Progressed
    }

    /// Lets the second attempt take the place of the first one, which has failed with `end`. Returns false if there is
    /// none in progress.
    #[cold]
    pub(super) fn promote_hedge(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
    ) -> bool {
        if self.is_total_over(ctx.core) {
            return false;
        }
        let Some(attempt) = self.take_attempt() else { return false };
        if let Some(ServerSlot { pool, server }) = &self.slot {
            pool.record_failure_sample(*server);
            if !matches!(end, EndReason::NoDescriptor | EndReason::NoSourceAddress | EndReason::BadResponse) {
                pool.note_unreachable(*server, MonotonicTime::now());
            }
        }
        self.leave_first_server(ctx, client, end);
        self.outcome.refusal = None;
        if let Some(hedge) = &mut self.hedge {
            hedge.state = HedgeState::Promoted;
        }
        let holds_head = attempt.has_head;
        self.unprocessed = self.adopt(client, *attempt);
        self.attempt.holds_head = holds_head;
        true
    }

    /// Returns whether a second attempt takes the place of one that ends like this.
    #[cold]
    pub(super) fn replaces_failed_attempt(&self, end: EndReason) -> bool {
        let is_server_fault = matches!(
            end,
            EndReason::ServerTimeout
                | EndReason::ServerClosed
                | EndReason::BadResponse
                | EndReason::ConnectFailed
                | EndReason::ConnectTimeout
                | EndReason::TlsHandshakeFailed
                | EndReason::NoHttp2
                | EndReason::NoDescriptor
                | EndReason::NoSourceAddress
        );
        is_server_fault && self.response == ResponseProgress::Head
    }

    /// Cancels the first attempt, and releases its slot.
    fn leave_first_server(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
    ) {
        if let Some(ServerSlot { pool, server }) = &self.slot {
            self.record_failure_latency(pool, *server, end, MonotonicTime::now());
        }
        self.abandon_to_server(client, EndReason::ServerTimeout);
        self.server = None;
        if let Some(ServerSlot { pool, server }) = self.slot.take() {
            pool.release(server, &mut ctx.work.rng);
        }
        client.disarm();
    }

    /// Puts the second attempt in the place of the first one. Returns its received bytes.
    fn adopt(&mut self, client: &mut ClientStream, attempt: HedgeAttempt) -> Vec<u8> {
        let HedgeAttempt { slot, link, received, .. } = attempt;
        self.outcome.server = Some(slot.server);
        self.outcome.times.dispatched = attempt.dispatched;
        self.slot = Some(slot);
        self.unprocessed = Vec::new();
        self.attempt.is_request_broken = false;
        self.progress.server_write.stop();
        client.disarm();
        match link {
            HedgeLink::Open(conn) => {
                self.set_connected(conn, attempt.is_reused, attempt.connected);
                self.attempt.tls_sent_before = attempt.tls_sent_before;
                self.request_relay.set_sent(attempt.sent);
            }
            HedgeLink::Connecting(connecting) => {
                self.stage = ExchangeStage::Connecting(connecting);
                self.request_relay.rewind();
            }
        }
        received
    }

    /// Returns the result if a response with this status is not forwarded: a second attempt takes the place of this one,
    /// or a retry.
    #[cold]
    pub(super) fn replace_attempt(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        status: u16,
    ) -> Option<StepResult> {
        if self.hedge.is_some() {
            let own = self.own_settings.as_ref();
            let retried = own.and_then(|own| own.retry_on.statuses.as_ref());
            let server = self.slot.as_ref().map(|slot| (Rc::clone(&slot.pool), slot.server));
            if retried.is_some_and(|statuses| statuses.contains(status))
                && self.promote_hedge(ctx, client, EndReason::BadResponse)
            {
                server.inspect(|(pool, server)| {
                    pool.note_retried_status(*server, status, MonotonicTime::now());
                });
                return Some(StepResult::Progressed);
            }
        }
        self.may_retry_status(status).then(|| self.retry_result(ctx, client, EndReason::BadResponse))
    }

    /// Notes the head of the response that is forwarded, and cancels the other attempt.
    #[cold]
    pub(super) fn settle_hedge(&mut self, client: &ClientStream, rng: &mut fastrand::Rng) {
        let Some(HedgeDelay::Percentile { .. }) = self.own_settings.as_ref().and_then(|own| own.hedge) else {
            return self.cancel_hedge(client, rng);
        };
        let times = &self.outcome.times;
        let (dispatched, now) = (times.dispatched, times.first_byte);
        // The time of a first attempt that lost is at least this, and longer than the percentile in any case.
        let since = self.hedge.as_ref().map_or(dispatched, |hedge| hedge.first_dispatched);
        if let Some(window) = self.latency_window() {
            window.borrow_mut().record(now.since(since), now);
        }
        self.cancel_hedge(client, rng);
    }

    /// Ends the wait for a second attempt, or cancels it.
    #[cold]
    pub(super) fn cancel_hedge(&mut self, client: &ClientStream, rng: &mut fastrand::Rng) {
        let Some(hedge) = self.hedge.take() else { return };
        match hedge.state {
            HedgeState::Waiting(_) | HedgeState::Over => {}
            HedgeState::Promoted => self.end_hedge(match self.outcome.status {
                0 => HedgeEvent::Failed,
                _ => HedgeEvent::Won,
            }),
            HedgeState::Trying(attempt) => {
                self.end_hedge(HedgeEvent::Lost);
                let HedgeAttempt { slot, link, sent, received, interim_count, .. } = *attempt;
                match (link, &self.generation) {
                    (HedgeLink::Open(conn), Some(generation)) if is_abandoned(&slot, &conn, sent) => {
                        let generation = Rc::clone(generation);
                        leave_to_server(
                            client,
                            generation,
                            (slot, conn),
                            self.facts.kind,
                            (received, interim_count),
                        );
                    }
                    _ => slot.pool.release(slot.server, rng),
                }
            }
        }
    }
}

/// Returns whether a cancelled attempt keeps its slot until the server has ended it, see `abandoned`.
fn is_abandoned(slot: &ServerSlot, conn: &ServerConn, sent: usize) -> bool {
    sent > 0 && conn.http2.is_none() && slot.pool.has_limit(slot.server)
}

impl HedgeAttempt {
    fn new(slot: ServerSlot, link: Result<Granted, Connecting>, dispatched: MonotonicTime) -> Self {
        let (link, is_reused) = match link {
            Ok(Granted { conn, is_reused }) => (HedgeLink::Open(conn), is_reused),
            Err(connecting) => (HedgeLink::Connecting(connecting), false),
        };
        let mut attempt = Self {
            slot,
            dispatched,
            connected: dispatched,
            link,
            is_reused,
            sent: 0,
            tls_sent_before: 0,
            received: Vec::new(),
            interim_count: 0,
            has_head: false,
        };
        attempt.note_tls_bytes();
        attempt
    }

    fn open(&mut self, Granted { conn, is_reused }: Granted) {
        self.is_reused = is_reused;
        self.link = HedgeLink::Open(conn);
        self.note_tls_bytes();
    }

    /// Parses the received bytes, and drops interim responses.
    fn parse_head(&mut self, limits: &Limits, kind: RequestKind, retried: Option<&Statuses>) -> AttemptStep {
        loop {
            let mut slots = wire::header_slots();
            let (head, used) = match wire::parse_response(&self.received, limits, kind, &mut slots) {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Incomplete) => return AttemptStep::Progressed,
                Err(_) => return AttemptStep::Failed(EndReason::BadResponse),
            };
            if head.is_switching_protocols() {
                return AttemptStep::Failed(EndReason::BadResponse);
            }
            if !head.is_informational() {
                let status = head.status;
                if status >= 500 || retried.is_some_and(|statuses| statuses.contains(status)) {
                    return AttemptStep::BadStatus(status);
                }
                self.has_head = true;
                return AttemptStep::Progressed;
            }
            self.interim_count += 1;
            if limits.check_interim(self.interim_count).is_err() {
                return AttemptStep::Failed(EndReason::BadResponse);
            }
            drop(slots);
            self.received.drain(..used);
        }
    }

    fn note_tls_bytes(&mut self) {
        if let HedgeLink::Open(conn) = &self.link {
            self.tls_sent_before = conn.stream.tls_byte_counts().map_or(0, |counts| counts.sent);
        }
    }
}
