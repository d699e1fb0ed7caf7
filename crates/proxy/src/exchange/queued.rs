//! Waiting for a slot at a pool: taking one at once, or a position in the queue, and handling the
//! result.

use std::rc::Rc;

use rt::clock::MonotonicTime;

use super::StepResult;
use crate::client_stream::{ClientStatus, ClientStream};
use crate::core::{ConfigGeneration, Core, PollContext, QUEUE_TICK_NS};
use crate::deadline::client_timeout_ns;
use crate::exchange_state::{Exchange, ExchangeStage, ServerSlot};
use crate::outcome::{EndPhase, EndReason};
use crate::pool::{EnqueueError, EnqueueRequest, Pool, TicketState};
use crate::profile::ProfilePhase;
use crate::request_view::RequestView;

impl Exchange {
    /// Stores the request's priority, and the time until which its client waits. The latter is only
    /// accepted from trusted peers, because anyone else may write anything.
    // The request behind a cache must not keep the path of each other one from being one function.
    #[inline(always)]
    pub(super) fn note_priority(
        &mut self,
        view: &RequestView<'_>,
        generation: &ConfigGeneration,
        route: usize,
    ) {
        self.terms.priority = generation.plan.routes[route].priority;
        if view.is_trusted {
            let fields = &generation.plan.listeners[self.listener].admission.deadline_headers;
            let timeout_ns = client_timeout_ns(|name| view.value(name), fields).unwrap_or(u64::MAX);
            // A route may have set a deadline of its own.
            let deadline = self.outcome.times.head.saturating_add(timeout_ns);
            self.terms.deadline = self.terms.deadline.min(deadline);
        }
    }

    /// Takes a slot at a server, or a position in the queue.
    pub(super) fn acquire_or_enqueue(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        pool: Rc<Pool>,
        now: MonotonicTime,
    ) {
        let _section = ctx.core.profile.enter(ProfilePhase::Queue);
        self.outcome.pool = Some(pool.id());
        pool.count_request(now);
        if self.terms.deadline <= now {
            let _ = self.fail(ctx, client, EndReason::DeadlineExceeded, EndPhase::Queue);
        } else if let Some(server) = pool.acquire(self.terms.requirements, now, &mut ctx.work.rng) {
            self.dispatch(ctx.core, client, ServerSlot { pool, server }, now);
        } else if !pool.has_usable_server(self.terms.requirements) {
            let _ = self.fail(ctx, client, EndReason::NoServer, EndPhase::Connect);
        } else {
            self.enqueue(ctx, client, pool);
        }
    }

    pub(super) fn enqueue(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        pool: Rc<Pool>,
    ) {
        let (requirements, priority, deadline) =
            (self.terms.requirements, self.terms.priority, self.terms.deadline);
        let waker = ctx.cx.waker();
        let request = EnqueueRequest { requirements, waker, priority, now: MonotonicTime::now(), deadline };
        let end = match pool.enqueue(&request, &mut ctx.work.rng) {
            Ok(ticket) => {
                self.stage = ExchangeStage::Queued(pool, ticket);
                start_queue_task(ctx.core);
                return;
            }
            Err(EnqueueError::Full) => EndReason::QueueFull,
            Err(EnqueueError::Deadline) => EndReason::DeadlineExceeded,
        };
        self.outcome.retry_after_s = pool.retry_after_s();
        let _ = self.fail(ctx, client, end, EndPhase::Queue);
    }

    pub(super) fn poll_queued(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::Queue);
        let ExchangeStage::Queued(pool, ticket) = &self.stage else {
            return StepResult::Blocked;
        };
        match ticket.state() {
            TicketState::Granted(server) => {
                let now = MonotonicTime::now();
                let slot = ServerSlot { pool: Rc::clone(pool), server };
                if pool.misses_deadline(ticket, now) {
                    return self.reject_queued(ctx, client, EndReason::DeadlineExceeded);
                }
                // The client may have left just when its turn came.
                match self.check_waiting_client(ctx, client, input) {
                    StepResult::Blocked => self.dispatch(ctx.core, client, slot, now),
                    result => return result,
                }
                StepResult::Progressed
            }
            TicketState::Expired => self.reject_queued(ctx, client, EndReason::QueueTimeout),
            TicketState::DeadlineExceeded => self.reject_queued(ctx, client, EndReason::DeadlineExceeded),
            TicketState::Shed => self.reject_queued(ctx, client, EndReason::QueueShed),
            TicketState::Waiting => self.check_waiting_client(ctx, client, input),
        }
    }

    fn reject_queued(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
    ) -> StepResult {
        if let ExchangeStage::Queued(pool, _) = &self.stage {
            self.outcome.retry_after_s = pool.retry_after_s();
        }
        self.fail(ctx, client, end, EndPhase::Queue)
    }

    /// Ends the exchange if the client leaves before its request was sent anywhere.
    pub(super) fn check_waiting_client(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        if !self.request_relay.is_received() {
            // The client still sends, so unread bytes do not prove that it is still connected.
            return StepResult::Blocked;
        }
        match client.check_client(ctx, input) {
            ClientStatus::Present => StepResult::Blocked,
            ClientStatus::Eof if self.may_half_close(client) => StepResult::Blocked,
            ClientStatus::Eof | ClientStatus::Gone => {
                let phase = self.phase();
                self.fail(ctx, client, EndReason::ClientGone, phase)
            }
        }
    }
}

/// Polls the queues of a core as long as requests wait in them.
fn start_queue_task(core: &Rc<Core>) {
    if core.is_queue_task_running.replace(true) {
        return;
    }
    let core = Rc::clone(core);
    rt::tokio::task::spawn_local(async move {
        loop {
            let now = MonotonicTime::now();
            let has_queued = core.expire_queues(now);
            // Also serves slots that became free without a wakeup.
            core.serve_queues();
            if !has_queued {
                core.is_queue_task_running.set(false);
                return;
            }
            core.timers.sleep_until((now + QUEUE_TICK_NS).as_ns()).await;
        }
    });
}
