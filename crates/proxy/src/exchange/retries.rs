//! Retries, and the conditions for sending a request again after its connection ended: everything that was
//! sent is still held, and the server has not received it, or may receive it twice (RFC 9110 §9.2.2).

use std::rc::Rc;

use rt::clock::MonotonicTime;
use rt::stream::Stream;

use super::{Failure, StepResult};
use crate::client_stream::ClientStream;
use crate::core::PollContext;
use crate::exchange_state::{Exchange, ServerSlot};
use crate::outcome::{EarlierAttempt, EndReason};
use crate::plan::ServerId;
use crate::pool::{Pool, ServerRequirements};
use crate::server_conn::http2::StreamEnd;

/// Maximum number of times that a request is sent again because its server has not processed it (RFC 9113
/// §8.7). A server that ends a connection after ten requests needs one for every ten requests in progress.
const UNRECEIVED_RESENDS_MAX: u8 = 16;

impl Exchange {
    /// Handles a connection that failed, or that ended before it carried anything. Tries another
    /// server if there is one, and the same server again if not.
    pub(super) fn retry_connect(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        Failure { end, phase }: Failure,
    ) -> StepResult {
        if self.hedge.is_some() && self.promote_hedge(ctx, client, end) {
            return StepResult::Progressed;
        }
        let Some(ServerSlot { pool, server }) = &self.slot else {
            return self.fail(ctx, client, end, phase);
        };
        let (pool, server) = (Rc::clone(pool), *server);
        let has_no_retry_left =
            self.counted_retries() >= self.retries_max(&pool) || self.is_total_over(ctx.core);
        if has_no_retry_left || !self.take_retry(&pool) {
            return self.fail(ctx, client, end, phase);
        }
        pool.record_failure_sample(server);
        self.try_another_server(ctx, client, (pool, server), end)
    }

    /// Releases the slot of a failed try, unless it was abandoned to its server, and takes one of another server,
    /// if there is one.
    pub(super) fn try_another_server(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        (pool, server): (Rc<Pool>, ServerId),
        end: EndReason,
    ) -> StepResult {
        self.outcome.retries += 1;
        self.note_attempt(end);
        client.disarm();
        let now = MonotonicTime::now();
        // A server with an error of its own is reachable.
        if !matches!(end, EndReason::NoDescriptor | EndReason::NoSourceAddress | EndReason::BadResponse) {
            pool.note_unreachable(server, now);
        }
        self.record_failure_latency(&pool, server, end, now);
        if self.slot.take().is_some() {
            pool.release(server, &mut ctx.work.rng);
        }
        let requirements = ServerRequirements { avoid: Some(server), ..self.terms.requirements };
        match pool.acquire(requirements, now, &mut ctx.work.rng) {
            Some(server) => self.dispatch(ctx.core, client, ServerSlot { pool, server }, now),
            None => self.enqueue(ctx, client, pool),
        }
        StepResult::Progressed
    }

    /// Notes an attempt that is followed by another, for the spans of the request.
    pub(super) fn note_attempt(&mut self, reason: EndReason) {
        let (server, start) = (self.outcome.server, self.outcome.times.dispatched);
        if let Some(trace) = self.outcome.trace_mut() {
            trace.note_attempt(EarlierAttempt { server, start, end: MonotonicTime::now(), reason });
        }
    }

    /// Returns whether the retry budget of the pool allows another try. Counts a denied one.
    pub(super) fn take_retry(&self, pool: &Pool) -> bool {
        let is_allowed = pool.take_retry(MonotonicTime::now());
        if !is_allowed {
            self.generation.as_ref().inspect(|generation| generation.metrics.retry_denied(pool.id()));
        }
        is_allowed
    }

    /// Prepares the request for a retry on a new connection.
    pub(super) fn rewind_request(&mut self) {
        self.server = None;
        self.attempt.needs_new_connection = true;
        self.request_relay.rewind();
        self.attempt.is_request_broken = false;
    }

    /// Returns the number of retries that count toward `retries`: those after which the server may have
    /// received the request.
    pub(super) fn counted_retries(&self) -> u8 {
        self.outcome.retries - self.attempt.unreceived_count
    }

    /// Returns whether the request is a stream of an HTTP/2 connection.
    fn is_on_stream(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.http2.is_some())
    }

    /// Returns whether the request may be sent again to its server. Either the server must have received
    /// none of it: then the retry counts neither toward `retries` nor toward the budget. Or it must be
    /// idempotent (RFC 9110 §9.2.2), and sent on a connection that had been idle.
    pub(super) fn may_resend(&self, is_orderly: bool) -> bool {
        let Some(slot) = &self.slot else { return false };
        let retries_max = self.retries_max(&slot.pool);
        if !self.is_replayable() {
            return false;
        }
        if self.is_unreceived(is_orderly) {
            // Causes no extra work for the server. Connections of HTTP/2 end with GOAWAY after a number of
            // requests, also new ones.
            let is_free = self.is_on_stream() || self.outcome.reused && self.outcome.retries < retries_max;
            return is_free && self.attempt.unreceived_count < UNRECEIVED_RESENDS_MAX;
        }
        self.outcome.reused
            && self.facts.is_idempotent
            && !self.is_stream_reset()
            && self.counted_retries() < retries_max
            && self.take_retry(&slot.pool)
    }

    /// Returns whether all sent bytes of the request are still held, and no byte came back.
    pub(super) fn is_replayable(&self) -> bool {
        self.unprocessed.is_empty() && self.interim_count == 0 && self.request_relay.can_rewind()
    }

    /// Returns whether the server ended its stream before it received any byte of the request. Its
    /// FIN confirms what it had received until then: later bytes met a closed socket, or one that
    /// can send no response. A reset is no proof, because it also ends a connection whose server
    /// has read the request.
    pub(super) fn is_unreceived(&self, is_orderly: bool) -> bool {
        let stream = self.server.as_ref().map(|server| &server.stream);
        if stream.is_some_and(Stream::is_channel) {
            // Of a stream that was not processed, the engine sees only the end (RFC 9113 §8.7).
            return !self.has_sent_request() || is_orderly;
        }
        let unacked_bytes = stream.filter(|stream| stream.is_tcp()).and_then(Stream::unacked_bytes);
        !self.has_sent_request() || is_orderly && unacked_bytes == Some(self.sent_request_bytes())
    }

    /// Returns whether the server has reset the request's stream, and so has processed the request.
    fn is_stream_reset(&self) -> bool {
        let stream = self.server.as_ref().and_then(|server| server.http2.as_ref());
        stream.is_some_and(|stream| matches!(stream.end(), Some(StreamEnd::Reset(_) | StreamEnd::Invalid(_))))
    }

    /// Returns the end code for a server whose connection or stream ended too early.
    pub(super) fn early_end(&self) -> EndReason {
        let stream = self.server.as_ref().and_then(|server| server.http2.as_ref());
        match stream.and_then(|stream| stream.end()) {
            Some(StreamEnd::Invalid(_)) => EndReason::BadResponse,
            _ => EndReason::ServerClosed,
        }
    }

    /// Returns whether any byte of the request was sent, or may have been.
    pub(super) fn has_sent_request(&self) -> bool {
        self.request_relay.has_sent() || self.sent_request_bytes() > 0
    }

    /// Returns the number of bytes that went to the server's socket since the request began: with
    /// TLS, those of its records, of which a part may be sent.
    fn sent_request_bytes(&self) -> u64 {
        let counts = self.server.as_ref().and_then(|server| server.stream.tls_byte_counts());
        counts.map_or_else(
            || self.request_relay.sent_bytes(),
            |counts| counts.sent - self.attempt.tls_sent_before,
        )
    }
}
