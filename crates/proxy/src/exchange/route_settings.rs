//! Settings of a request: those of its listener and its pool, unless its route has some of its own.

use std::rc::Rc;

use rt::clock::MonotonicTime;
use wire::{Framing, ResponseHead};

use super::StepResult;
use super::cache_response::ServerHead;
use super::response::HeadResult;
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::config_generation::ConfigGeneration;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ServerSlot};
use crate::outcome::{EndPhase, EndReason};
use crate::plan::{ClientTimeouts, MarkedIdempotent, ServerTimeouts};
use crate::pool::Pool;
use crate::recoding::CodingRequest;
use crate::request_view::RequestView;
use crate::route::RouteRequest;

impl Exchange {
    /// Performs the action of a request's route under a plan where routes have settings.
    #[cold]
    pub(super) fn follow_route_with_settings(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) {
        let share = self.choose_share(ctx, client, generation, request);
        let position = share * generation.plan.listeners.len() + self.listener;
        let own = self.outcome.route.and_then(|route| generation.route_settings(route, position));
        self.own_settings = own.map(Rc::clone);
        if own.is_some_and(|own| own.compression.is_some()) {
            self.facts.codings = CodingRequest::of(request.view);
        }
        let bytes_max = match own {
            Some(own) => own.body_bytes_max,
            None => generation.plan.listeners[self.listener].body_bytes_max,
        };
        if let (Framing::Length(bytes), Some(max)) = (request.view.head.framing, bytes_max)
            && bytes > max
        {
            return self.reject(ctx, client, EndReason::BodyTooLarge);
        }
        self.terms.deadline = self.total_due();
        if let Some(own) = own {
            self.facts.is_idempotent |= match &own.idempotent {
                MarkedIdempotent::None => false,
                MarkedIdempotent::All => true,
                MarkedIdempotent::Field(name) => request.view.value(name).is_some(),
            };
        }
        match own {
            None => self.follow_route(ctx, client, generation, request, now),
            Some(own) => {
                let view = RequestView { forwarding: &own.forwarding, ..*request.view };
                let request = RouteRequest { view: &view, ..*request };
                if let Some(access) = &own.access {
                    let rules = (&**own, &**access);
                    return self.follow_route_with_access(ctx, client, generation, &request, rules, now);
                }
                match own.compression {
                    None => self.follow_route(ctx, client, generation, &request, now),
                    Some(_) => self.follow_route_with_codings(ctx, client, generation, &request, now),
                }
            }
        }
    }

    /// Returns the timeouts of the client and of the server.
    #[inline]
    pub(super) fn timeouts<'a>(
        &'a self,
        client: &'a ClientStream,
        slot: &'a ServerSlot,
    ) -> (&'a ClientTimeouts, &'a ServerTimeouts) {
        match &self.own_settings {
            None => (client.timeouts(), &slot.pool.plan().timeouts),
            Some(own) => (&own.client, &own.server),
        }
    }

    #[inline]
    pub(super) fn client_timeouts<'a>(&'a self, client: &'a ClientStream) -> &'a ClientTimeouts {
        self.own_settings.as_ref().map_or_else(|| client.timeouts(), |own| &own.client)
    }

    #[inline]
    pub(super) fn body_bytes_max(&self, client: &ClientStream) -> Option<u64> {
        match &self.own_settings {
            None => client.body_bytes_max(),
            Some(own) => own.body_bytes_max,
        }
    }

    /// Notes that content of a request was received, which limits of its route may count.
    #[inline]
    pub(super) fn note_content(&mut self) {
        if self.own_settings.is_some() {
            self.begin_limits();
        }
    }

    #[inline]
    pub(super) fn buffer_request_bytes(&self, client: &ClientStream) -> u64 {
        match &self.own_settings {
            None => client.buffer_request_bytes(),
            Some(own) => own.buffer_request_bytes,
        }
    }

    pub(super) fn retries_max(&self, pool: &Pool) -> u8 {
        self.own_settings.as_ref().map_or_else(|| pool.plan().retries_max, |own| own.retries_max)
    }

    /// Returns the time at which the response must be complete.
    #[inline]
    pub(super) fn total_due(&self) -> MonotonicTime {
        let total_ns = self.own_settings.as_ref().and_then(|own| own.total_ns);
        total_ns.map_or(MonotonicTime::MAX, |total_ns| self.outcome.times.start.saturating_add(total_ns))
    }

    pub(super) fn is_total_over(&self, core: &Core) -> bool {
        self.total_due() <= core.ticks.now.get()
    }

    /// Returns the time at which a wait of this kind ends by the settings of the route.
    #[cold]
    pub(super) fn own_due(&self, kind: TimeoutKind) -> MonotonicTime {
        match kind {
            TimeoutKind::FirstByte => self.total_due().min(self.try_due()),
            _ => self.total_due(),
        }
    }

    /// Returns the time at which the head of the response to this try is due.
    fn try_due(&self) -> MonotonicTime {
        let per_try_ns = self.own_settings.as_ref().and_then(|own| own.per_try_ns);
        let start = self.outcome.times.dispatched;
        per_try_ns.map_or(MonotonicTime::MAX, |per_try_ns| start.saturating_add(per_try_ns))
    }

    pub(super) fn connect_timeout_ns(&self, core: &Core) -> u64 {
        match (&self.own_settings, &self.slot) {
            (_, None) => 0,
            (None, Some(slot)) => slot.pool.plan().timeouts.connect_ns,
            (Some(own), Some(_)) => {
                let due = self.total_due().min(self.try_due());
                // At least 1 ns, or the wait would not count as begun.
                own.server.connect_ns.min(due.since(core.ticks.now.get()).max(1))
            }
        }
    }

    /// Applies the settings of a route to the head of a response, of `used` bytes at the start of `input`. `None`: the response is
    /// forwarded as it is.
    #[cold]
    pub(super) fn apply_own_settings(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        head: &ResponseHead<'_, '_>,
        (input, used): (&[u8], usize),
    ) -> Option<HeadResult> {
        self.settle_hedge(client, &mut ctx.work.rng);
        if self.caching.is_some()
            && let Some(result) = self.take_response_to_cache(ctx, client, ServerHead { head, input, used })
        {
            return Some(result);
        }
        if let Some(result) = self.replace_content(ctx, client, head, &input[used..]) {
            return Some(HeadResult::Failed(result));
        }
        self.begin_own_content(ctx.core, client, head, used)
    }

    /// Returns whether a response with this status is replaced by that of another server.
    #[cold]
    pub(super) fn may_retry_status(&self, status: u16) -> bool {
        let statuses = self.own_settings.as_ref().and_then(|own| own.retry_on.statuses.as_ref());
        let is_retried =
            statuses.is_some_and(|statuses| statuses.contains(status)) && self.may_retry_result();
        if let Some(slot) = self.slot.as_ref().filter(|_| is_retried) {
            slot.pool.note_retried_status(slot.server, status, MonotonicTime::now());
        }
        is_retried
    }

    /// Returns whether a request without a response in time is sent to another server.
    #[cold]
    pub(super) fn may_retry_timeout(&self, core: &Core) -> bool {
        let may_retry = self.own_settings.as_ref().is_some_and(|own| own.retry_on.timeout);
        may_retry && !self.is_total_over(core) && self.may_retry_result()
    }

    /// Returns whether a request whose connection ended before the response is sent to another server.
    #[cold]
    pub(super) fn may_retry_reset(&self, core: &Core) -> bool {
        let may_retry = self.own_settings.as_ref().is_some_and(|own| own.retry_on.reset);
        may_retry && !self.is_total_over(core) && self.may_retry_result()
    }

    /// Returns whether the request can be sent again although a server has processed it. Takes a retry of the
    /// budget if so.
    fn may_retry_result(&self) -> bool {
        let Some(slot) = &self.slot else { return false };
        self.facts.is_idempotent
            && !self.facts.requests_upgrade
            && self.is_replayable()
            && self.counted_retries() < self.retries_max(&slot.pool)
            && self.take_retry(&slot.pool)
    }

    /// Sends the request to another server after a result that the route retries.
    #[cold]
    pub(super) fn retry_result(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
    ) -> StepResult {
        let Some(ServerSlot { pool, server }) = &self.slot else {
            return self.fail(ctx, client, end, EndPhase::Head);
        };
        let (pool, server) = (Rc::clone(pool), *server);
        pool.record_failure_sample(server);
        self.abandon_to_server(client, end);
        self.rewind_request();
        self.try_another_server(ctx, client, (pool, server), end)
    }
}
