//! Receives the start of a request's body, or all of a short body, before the request takes a slot
//! of a server with a limit. A slow client thus holds no slot while it sends.

use std::rc::Rc;
use std::task::Poll;

use rt::clock::MonotonicTime;

use super::StepResult;
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage};
use crate::outcome::{EndPhase, EndReason};
use crate::pool::Pool;
use crate::profile::ProfilePhase;

/// Maximum time for a body of unknown length: its client may wait for the response before it sends
/// more.
const CHUNKED_WAIT_NS: u64 = 1_000_000_000;
const READ_BYTES: usize = 8 * 1024;

impl Exchange {
    /// Receives the start of the body first if the pool has limits; otherwise acquires a server at
    /// once.
    // The request behind a cache must not keep the path of each other one from being one function.
    #[inline(always)]
    pub(super) fn buffer_or_acquire(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        pool: Rc<Pool>,
        now: MonotonicTime,
    ) {
        if self.should_buffer(&pool, client) {
            self.stage = ExchangeStage::Buffering(pool);
            return;
        }
        self.acquire_or_enqueue(ctx, client, pool, now);
    }

    fn should_buffer(&self, pool: &Pool, client: &ClientStream) -> bool {
        // A client that waits for `100 Continue` sends nothing before a server has sent that.
        !self.request_relay.is_received()
            && !self.facts.expects_continue
            && !self.facts.is_streaming
            && pool.has_limits()
            && self.buffer_request_bytes(client) > 0
    }

    pub(super) fn poll_buffering(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardRequest);
        if self.request_relay.is_received()
            || self.request_relay.content_bytes >= self.buffer_request_bytes(client)
            || self.is_wait_over(ctx.core)
        {
            let ExchangeStage::Buffering(pool) = std::mem::replace(&mut self.stage, ExchangeStage::Unused)
            else {
                return StepResult::Blocked;
            };
            client.disarm();
            // For its time in a queue, the request is complete only now.
            let now = MonotonicTime::now();
            self.outcome.times.head = now;
            self.acquire_or_enqueue(ctx, client, pool, now);
            return StepResult::Progressed;
        }
        if !client.buffered.is_empty() {
            let mut buffered = std::mem::take(&mut client.buffered);
            let used = self.buffer_body(ctx, client, buffered.bytes());
            buffered.consume(*used.as_ref().unwrap_or(&0));
            client.buffered = buffered;
            return used.map_or_else(|result| result, |_| StepResult::Progressed);
        }
        match client.stream.poll_read(ctx.cx, &mut input[..READ_BYTES]) {
            Poll::Pending => self.wait_for_body(ctx, client),
            Poll::Ready(Ok(0) | Err(_)) => self.fail(ctx, client, EndReason::ClientGone, EndPhase::Request),
            Poll::Ready(Ok(read)) => match self.buffer_body(ctx, client, &input[..read]) {
                Ok(used) if !client.buffer_bytes(ctx.core, &input[used..read]) => {
                    self.fail(ctx, client, EndReason::NoBuffer, EndPhase::Request)
                }
                Ok(_) => {
                    self.note_progress(ctx.core, client);
                    StepResult::Progressed
                }
                Err(result) => result,
            },
        }
    }

    /// Buffers the part of the body in `input`, up to the limit. Returns the number of bytes used.
    fn buffer_body(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &[u8],
    ) -> Result<usize, StepResult> {
        let mut at = 0;
        while at < input.len()
            && !self.request_relay.is_received()
            && self.request_relay.content_bytes < self.buffer_request_bytes(client)
        {
            let end = input.len().min(at + READ_BYTES);
            let batch = self.decode_body(ctx, client, &input[at..end])?;
            self.request_relay.buffer_batch(&input[at..end], &batch);
            at += batch.consumed;
        }
        Ok(at)
    }

    /// Returns whether a body of unknown length has had enough time.
    fn is_wait_over(&self, core: &Core) -> bool {
        self.request_relay.length_left().is_none() && self.chunked_wait_end() <= core.ticks.now.get()
    }

    fn chunked_wait_end(&self) -> MonotonicTime {
        self.outcome.times.head.saturating_add(CHUNKED_WAIT_NS)
    }

    fn wait_for_body(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> StepResult {
        if client.timeout_kind() == TimeoutKind::RequestBody && !client.is_deadline_expired() {
            return StepResult::Blocked;
        }
        let now = ctx.core.ticks.now.get();
        let mut due = self.body_due(client, now).min(self.total_due());
        if due <= now {
            return self.fail(ctx, client, EndReason::BodyTimeout, EndPhase::Request);
        }
        if self.request_relay.length_left().is_none() {
            // Polls again when the wait is over.
            due = due.min(self.chunked_wait_end());
        }
        client.arm(ctx, TimeoutKind::RequestBody, due.since(now));
        StepResult::Blocked
    }
}
