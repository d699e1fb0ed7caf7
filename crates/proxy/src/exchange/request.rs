//! Forwarding of an open exchange's request, from the client to the server.

use std::task::{Context, Poll};

use super::StepResult;
use crate::client_stream::ClientStream;
use crate::core::PollContext;
use crate::exchange_state::Exchange;
use crate::field_names::is_same_field;
use crate::forward::is_trailer_forwarded;
use crate::outcome::{EndPhase, EndReason};
use crate::profile::ProfilePhase;
use crate::relay::Batch;

impl Exchange {
    pub(super) fn poll_request(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        if self.attempt.is_request_broken || self.request_relay.is_done() {
            return StepResult::Blocked;
        }
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardRequest);
        // Bytes that arrived together with the head are sent together with it.
        let is_sent_with_head = !client.buffered.is_empty() && !self.request_relay.is_received();
        if !is_sent_with_head && !self.request_relay.is_flushed() {
            return self.flush_request(ctx.cx);
        }
        if self.request_relay.is_received() {
            return StepResult::Blocked;
        }
        if is_sent_with_head {
            let mut buffered = std::mem::take(&mut client.buffered);
            let used = self.send_body(ctx, client, buffered.bytes());
            let result = match used {
                Ok(used) => {
                    buffered.consume(used);
                    StepResult::Progressed
                }
                Err(result) => result,
            };
            client.buffered = buffered;
            return result;
        }
        let read_max = self.request_relay.read_bytes(input.len());
        match client.stream.poll_read(ctx.cx, &mut input[..read_max]) {
            Poll::Pending => StepResult::Blocked,
            Poll::Ready(Ok(0) | Err(_)) => self.fail(ctx, client, EndReason::ClientGone, EndPhase::Request),
            Poll::Ready(Ok(read)) => match self.send_body(ctx, client, &input[..read]) {
                Ok(used) if !client.buffer_bytes(ctx.core, &input[used..read]) => {
                    self.fail(ctx, client, EndReason::NoBuffer, EndPhase::Request)
                }
                Ok(_) => StepResult::Progressed,
                Err(moved) => moved,
            },
        }
    }

    /// Decodes the part of the body in `input`.
    pub(super) fn decode_body(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &[u8],
    ) -> Result<Batch, StepResult> {
        let batch = match self.request_relay.decode_batch(input) {
            Ok(batch) => batch,
            Err(refusal) => {
                self.outcome.bytes_in += input.len() as u64;
                self.outcome.refusal = Some(refusal.kind());
                self.outcome.refusal_status = refusal.status();
                return Err(self.fail(ctx, client, EndReason::BadRequest, EndPhase::Request));
            }
        };
        // Bytes after the end belong to the next request.
        self.outcome.bytes_in += batch.consumed as u64;
        if self.body_bytes_max(client).is_some_and(|max| self.request_relay.content_bytes > max) {
            return Err(self.fail(ctx, client, EndReason::BodyTooLarge, EndPhase::Request));
        }
        if batch.is_last {
            self.filter_trailers(client);
        } else {
            self.note_content();
        }
        if self.mirrored.is_some() {
            self.mirror_content(client, input, &batch);
        }
        Ok(batch)
    }

    /// Forwards the part of the body in `input`. Returns the number of bytes used.
    fn send_body(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &[u8],
    ) -> Result<usize, StepResult> {
        let mut at = 0;
        let mut is_blocked = false;
        while at < input.len() && !is_blocked && !self.attempt.is_request_broken {
            let input = &input[at..];
            let batch = self.decode_body(ctx, client, input)?;
            let Some(server) = &mut self.server else {
                return Err(StepResult::Blocked);
            };
            let mut sent_bytes = 0;
            match self.request_relay.poll_send(ctx.cx, &mut server.stream, input, &batch, &mut sent_bytes) {
                Poll::Ready(Ok(())) => {}
                // The server may have responded before it closed, so its response is read first.
                Poll::Ready(Err(_)) => self.attempt.is_request_broken = true,
                Poll::Pending => is_blocked = true,
            }
            self.attempt.request_written_bytes += sent_bytes;
            at += batch.consumed;
            if batch.is_last {
                break;
            }
        }
        Ok(at)
    }

    /// Removes from the trailer section the fields that the head may not have either.
    fn filter_trailers(&mut self, client: &ClientStream) {
        let Some(generation) = &self.generation else { return };
        let listener = &generation.plan.listeners[self.listener];
        let own = self.own_settings.as_ref();
        let forwarding = own.map_or(&listener.forwarding, |own| &own.forwarding);
        let changes = self.outcome.route.map_or(&[][..], |route| &generation.plan.routes[route].changes);
        let trusted = client.peer.is_trusted;
        let certificate_field = listener.tls.as_ref().and_then(|tls| tls.client_header.as_deref());
        self.request_relay.retain_trailers(|name| {
            is_trailer_forwarded(name, trusted, forwarding, changes)
                && certificate_field.is_none_or(|field| !is_same_field(name, field))
        });
    }

    fn flush_request(&mut self, cx: &mut Context<'_>) -> StepResult {
        let Some(server) = &mut self.server else {
            return StepResult::Blocked;
        };
        let mut sent_bytes = 0;
        let flushed = self.request_relay.poll_flush(cx, &mut server.stream, &mut sent_bytes);
        self.attempt.request_written_bytes += sent_bytes;
        match flushed {
            Poll::Ready(Ok(())) => StepResult::Progressed,
            Poll::Ready(Err(_)) => {
                self.attempt.is_request_broken = true;
                StepResult::Progressed
            }
            Poll::Pending if sent_bytes > 0 => StepResult::Progressed,
            Poll::Pending => StepResult::Blocked,
        }
    }
}
