//! Requests that wait for a stored response: for its head on disk, or for the response to an equal request.

use std::sync::Arc;
use std::task::Poll;

use cache::{FillResult, Freshness, Object};
use rt::clock::MonotonicTime;

use super::StepResult;
use super::cache_lookup::{CachedRequest, Step, begin_fill_at_once, may_fill};
use super::suspended::Resumed;
use crate::caching::{CacheRole, CacheStage, CacheWait, Forwarded, StatusField, WaitSource, unix_now};
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::{ConfigGeneration, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::outcome::{CacheResult, EndReason};
use crate::plan::{Action, PoolId};
use crate::route::RouteRequest;
use crate::suspended_request::SuspendedRequest;

enum WaitResult {
    Disk(Option<Arc<Object>>),
    Fill(FillResult),
    /// The time is over.
    Late,
}

impl Exchange {
    /// Waits for a stored response, or for the response to an equal request.
    pub(super) fn poll_cache_wait(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let stage = std::mem::replace(&mut self.stage, ExchangeStage::Unused);
        let ExchangeStage::Cached(mut stage) = stage else { return StepResult::Progressed };
        let CacheStage::Waiting(wait) = &mut *stage else { return StepResult::Progressed };
        let answer = match self.poll_wait_source(ctx, client, wait) {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                self.stage = ExchangeStage::Cached(stage);
                return self.check_waiting_client(ctx, client, input);
            }
        };
        // The client may have left just when the response came.
        match self.check_waiting_client(ctx, client, input) {
            StepResult::Blocked => {}
            result => return result,
        }
        client.disarm();
        let CacheStage::Waiting(wait) = *stage else { return StepResult::Progressed };
        let (suspended, pool, due, is_own) = (wait.request, wait.pool, wait.due, wait.is_own);
        let is_resumed = self.resume_request(ctx, client, &suspended, |exchange, ctx, client, resumed| {
            exchange.go_on_with_cache(ctx, client, &resumed, (pool, due, is_own), answer);
        });
        if !is_resumed {
            self.reject(ctx, client, EndReason::NoServer);
        }
        StepResult::Progressed
    }

    /// Returns the result of a wait; an error: the time is over.
    fn poll_wait_source(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        wait: &mut CacheWait,
    ) -> Poll<WaitResult> {
        match &mut wait.source {
            WaitSource::Disk(open) => open.poll_object(ctx.cx).map(WaitResult::Disk),
            WaitSource::Fill(waiter) => {
                let mut slots = wire::header_slots();
                let fields = wait.request.headers(&mut slots);
                if let Poll::Ready(result) = waiter.poll_result(fields, ctx.cx) {
                    return Poll::Ready(WaitResult::Fill(result));
                }
                let due = wait.due.min(self.total_due());
                let wait_ns = due.since(ctx.core.ticks.now.get()).max(1);
                match client.has_timed_out(ctx, TimeoutKind::Coalesced, wait_ns) {
                    true => Poll::Ready(WaitResult::Late),
                    false => Poll::Pending,
                }
            }
        }
    }

    /// Goes on with a request after its wait.
    fn go_on_with_cache(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        resumed: &Resumed<'_>,
        (pool, due, is_own): (PoolId, MonotonicTime, bool),
        answer: WaitResult,
    ) {
        let (generation, request) = (resumed.generation, resumed.request);
        let (Some(route), Some(plan)) = (self.outcome.route, resumed.own.cache.as_ref()) else {
            return self.reject(ctx, client, EndReason::NoServer);
        };
        let now = MonotonicTime::now();
        let prepared = plan.cache.store.get().and_then(|store| {
            self.prepare_cached(client, generation, (route, pool), request, (plan, store), due)
        });
        let is_taken = match prepared {
            None => false,
            Some((cached, _)) => {
                let step = self.step_after_wait(ctx, client, &cached, answer, is_own);
                self.take_step(ctx, client, &cached, step)
            }
        };
        if !is_taken {
            self.forward_behind_cache(ctx, client, generation, (route, pool), request, now);
        }
    }

    /// Goes on with a request whose stored response cannot be read, before any of it was sent.
    pub(super) fn forward_unread(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        request: &SuspendedRequest,
    ) -> StepResult {
        self.response_relay.reset();
        self.response = ResponseProgress::Head;
        self.outcome.status = 0;
        self.outcome.until_close = false;
        let is_resumed = self.resume_request(ctx, client, request, |exchange, ctx, client, resumed| {
            let action = exchange.outcome.route.map(|route| &resumed.generation.plan.routes[route].action);
            let pool = match action {
                Some(Action::Forward(pool)) => *pool,
                Some(Action::Split(split)) => exchange.split_pool(split),
                _ => return exchange.reject(ctx, client, EndReason::NoServer),
            };
            if let Some(route) = exchange.outcome.route {
                exchange.keep_values_again(ctx, client, (resumed.generation, route), resumed.request);
            }
            let due = MonotonicTime::now();
            exchange.go_on_with_cache(ctx, client, &resumed, (pool, due, false), WaitResult::Disk(None));
        });
        if !is_resumed {
            self.reject(ctx, client, EndReason::NoServer);
        }
        StepResult::Progressed
    }

    /// Keeps the values of a route's texts for another head, since one that was written has used them.
    pub(super) fn keep_values_again(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        (generation, route): (&ConfigGeneration, usize),
        request: &RouteRequest<'_>,
    ) {
        if let Some(texts) = generation.plan.routes[route].texts.as_deref() {
            self.keep_values((generation, route), texts, client, request, &mut ctx.work.rng);
        }
    }

    fn step_after_wait(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        answer: WaitResult,
        is_own: bool,
    ) -> Step {
        match answer {
            WaitResult::Disk(Some(object)) => self.use_object(ctx, client, cached, object),
            WaitResult::Disk(None) => self.miss(ctx, client, cached, true),
            WaitResult::Fill(FillResult::Object(object)) => {
                self.use_coalesced(ctx, client, cached, &object, is_own)
            }
            // Its response is known to be one that is not stored, so the requests for it do not wait for each other.
            WaitResult::Fill(FillResult::NotStored(reason)) if reason.is_lasting() => {
                begin_fill_at_once(cached, Forwarded::Miss)
            }
            // A part does not try again to fetch the whole.
            WaitResult::Fill(FillResult::NotStored(_)) if !may_fill(cached) => {
                Step::Forward(CacheRole::Forward, Forwarded::Miss)
            }
            WaitResult::Fill(_) => self.look_up(ctx, client, cached),
            WaitResult::Late => Step::Forward(CacheRole::Forward, Forwarded::Miss),
        }
    }

    /// Answers a request with the response to an equal one.
    fn use_coalesced(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        cached: &CachedRequest<'_>,
        object: &Arc<Object>,
        is_own: bool,
    ) -> Step {
        let now = unix_now();
        match object.storable().freshness(now, &cached.policy) {
            Freshness::MustValidate { may_answer_errors: false } => {
                begin_fill_at_once(cached, Forwarded::Miss)
            }
            // Its parts are not known.
            _ if cached.policy.has_range && object.body().length().is_none() => {
                Step::Forward(CacheRole::Forward, Forwarded::Miss)
            }
            // Its server has just failed, or has just sent it.
            _ => {
                let (result, status) = match is_own {
                    true => {
                        let status = StatusField::forwarded(Forwarded::UriMiss, None, Ok(object), now);
                        (CacheResult::Miss, status)
                    }
                    false => (CacheResult::Coalesced, StatusField::collapsed(object, now)),
                };
                self.outcome.cache = Some(result);
                self.serve(ctx, client, cached.request, (object, status), None);
                Step::Taken
            }
        }
    }
}
