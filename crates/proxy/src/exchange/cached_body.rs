//! Sending of a stored response, whose body may still arrive: piece by piece, without a copy of the pieces in memory
//! and, if its route compresses, in a coding of its own.

use std::io;
use std::task::{Poll, ready};

use cache::BodyError;
use content::body::SLICE_BYTES;

use super::{StepResult, Wait};
use crate::caching::{CacheStage, CachedBody};
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::PollContext;
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::outcome::{EndPhase, EndReason};
use crate::profile::ProfilePhase;
use crate::relay::COPIED_BYTES_MAX;

/// Maximum number of bytes that are encoded at a time, which takes about a millisecond.
const ENCODED_SLICE_BYTES: usize = 32 * 1024;

/// Number of bytes from which the kernel sends them from a file: a copy of fewer takes less time.
const FILE_BYTES_MIN: usize = 16 * 1024;
/// Maximum number of bytes that the kernel sends at a time.
const FILE_BYTES_MAX: usize = 256 * 1024;

impl Exchange {
    /// Waits for a stored response, or sends it, at most so many bytes of its content at a time.
    #[cold]
    pub(super) fn poll_cached(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        bytes_max: usize,
    ) -> StepResult {
        let ExchangeStage::Cached(stage) = &self.stage else { return StepResult::Progressed };
        let (is_waiting, has_begun) = match &**stage {
            CacheStage::Waiting(_) => (true, false),
            CacheStage::Sending(body) => (false, body.has_begun),
        };
        if is_waiting {
            return self.poll_cache_wait(ctx, client, input);
        }
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardResponse);
        // The head goes out with the first piece.
        if (has_begun || self.response == ResponseProgress::Done)
            && let Some(result) = self.flush_cached(ctx, client)
        {
            return result;
        }
        if self.response == ResponseProgress::Done {
            return StepResult::Finished(self.finish(ctx, client));
        }
        // Taken out, so that the rest of the exchange can be used beside it.
        let stage = std::mem::replace(&mut self.stage, ExchangeStage::Unused);
        let ExchangeStage::Cached(mut stage) = stage else { return StepResult::Progressed };
        let CacheStage::Sending(body) = &mut *stage else { return StepResult::Progressed };
        let result = self.send_cached(ctx, client, input, body, bytes_max);
        if matches!(self.stage, ExchangeStage::Unused) && !matches!(result, StepResult::Finished(_)) {
            self.stage = ExchangeStage::Cached(stage);
        }
        result
    }

    /// Sends what was processed before. `None`: all of it is sent.
    fn flush_cached(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> Option<StepResult> {
        let bytes_before = self.outcome.bytes_out;
        let wait = Wait { kind: TimeoutKind::ClientWrite, timeout_ns: client.timeouts().write_ns };
        match self.response_relay.poll_flush(ctx.cx, &mut client.stream, &mut self.outcome.bytes_out) {
            Poll::Ready(Ok(())) => {
                if self.outcome.bytes_out > bytes_before {
                    self.progress.client_write.stop();
                }
                None
            }
            Poll::Ready(Err(_)) => Some(self.fail_client_gone(ctx, client)),
            Poll::Pending if self.outcome.bytes_out > bytes_before => Some(StepResult::Progressed),
            Poll::Pending if self.expired_timeout(ctx, client, wait).is_some() => {
                Some(self.fail(ctx, client, EndReason::WriteTimeout, EndPhase::Data))
            }
            Poll::Pending => Some(StepResult::Blocked),
        }
    }

    /// Sends the next piece.
    fn send_cached(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        body: &mut CachedBody,
        bytes_max: usize,
    ) -> StepResult {
        if body.codec.as_ref().is_some_and(|codec| codec.has_output()) {
            return self.push_coded(ctx, client, body);
        }
        if body.rest.is_empty()
            && let Some(result) = self.read_piece(ctx, client, input, body)
        {
            return result;
        }
        body.has_begun = true;
        if body.codec.is_none()
            && let Some(result) = self.send_pieces(ctx, client, body, bytes_max)
        {
            return result;
        }
        if body.codec.is_some() {
            return self.encode_piece(ctx, client, body, bytes_max);
        }
        let piece = body.rest.take(SLICE_BYTES.min(bytes_max));
        let Ok(batch) = self.response_relay.decode_batch(&piece) else {
            return self.fail(ctx, client, EndReason::BadResponse, EndPhase::Data);
        };
        if batch.is_last {
            self.response = ResponseProgress::Done;
        }
        let out = &mut self.outcome.bytes_out;
        let sent = self.response_relay.poll_send(ctx.cx, &mut client.stream, &piece, &batch, out);
        body.note_sent(piece.len() as u64);
        match sent {
            Poll::Ready(Err(_)) => self.fail_client_gone(ctx, client),
            Poll::Ready(Ok(())) | Poll::Pending => StepResult::Progressed,
        }
    }

    /// Sends as many pieces as the client's socket accepts in one write, without a copy of the rest. `None`: the body is
    /// short, or has another framing than its content, or goes through a session or a stream, which keep bytes of their own.
    fn send_pieces(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        body: &mut CachedBody,
        bytes_max: usize,
    ) -> Option<StepResult> {
        if !client.stream.is_plain_socket() || self.response_relay.length_left().is_none() {
            return None;
        }
        body.rest.read_more(&mut body.reader);
        if body.rest.bytes() <= COPIED_BYTES_MAX {
            return None;
        }
        Some(match self.poll_send_rest(ctx, client, body, bytes_max) {
            Poll::Ready(Ok(sent)) => {
                body.rest.advance(sent);
                body.note_sent(sent as u64);
                self.progress.client_write.stop();
                if self.response_relay.is_received() {
                    self.response = ResponseProgress::Done;
                }
                StepResult::Progressed
            }
            Poll::Ready(Err(_)) => self.fail_client_gone(ctx, client),
            Poll::Pending => {
                let wait = Wait { kind: TimeoutKind::ClientWrite, timeout_ns: client.timeouts().write_ns };
                match self.expired_timeout(ctx, client, wait) {
                    Some(_) => self.fail(ctx, client, EndReason::WriteTimeout, EndPhase::Data),
                    None => StepResult::Blocked,
                }
            }
        })
    }

    /// Sends the next bytes: by the kernel if they are in a file, and else from several pieces at once. Returns the number
    /// of content bytes.
    fn poll_send_rest(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        body: &CachedBody,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let (relay, stream) = (&mut self.response_relay, &mut client.stream);
        let out = &mut self.outcome.bytes_out;
        let range = body.rest.file_range().filter(|(_, _, bytes)| (*bytes).min(bytes_max) >= FILE_BYTES_MIN);
        let Some((file, offset, bytes)) = range else {
            return relay.poll_send_pieces(ctx.cx, stream, body.rest.parts(bytes_max), out);
        };
        ready!(relay.poll_flush_before_content(ctx.cx, stream, out))?;
        let bytes = bytes.min(bytes_max).min(FILE_BYTES_MAX);
        let sent = ready!(stream.poll_send_file(ctx.cx, file, offset, bytes))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        *out += sent as u64;
        relay.count_spliced(sent as u64);
        Poll::Ready(Ok(sent))
    }

    /// Reads the next piece. `None`: it is there.
    fn read_piece(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
        body: &mut CachedBody,
    ) -> Option<StepResult> {
        Some(match body.reader.poll_next(ctx.cx) {
            Poll::Ready(Some(Ok(piece))) => {
                body.rest.push(piece);
                return None;
            }
            Poll::Ready(Some(Err(error))) => match body.request.take().filter(|_| !body.has_begun) {
                Some(request) if error == BodyError::Disk => self.forward_unread(ctx, client, &request),
                _ => self.fail_cached(ctx, client, error),
            },
            Poll::Ready(None) => self.end_cached(ctx, client, body),
            Poll::Pending if !body.has_begun => {
                body.has_begun = true;
                StepResult::Progressed
            }
            // What the codec holds must not wait for the server.
            Poll::Pending => {
                match body.codec.as_mut().is_some_and(|codec| codec.flush().is_ok_and(|has| has)) {
                    true => self.push_coded(ctx, client, body),
                    false => self.check_waiting_client(ctx, client, input),
                }
            }
        })
    }

    /// Encodes the next bytes of a piece.
    fn encode_piece(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        body: &mut CachedBody,
        bytes_max: usize,
    ) -> StepResult {
        let piece = body.rest.take(ENCODED_SLICE_BYTES.min(bytes_max));
        if body.codec.as_mut().is_some_and(|codec| codec.write(&piece).is_err()) {
            return self.fail(ctx, client, EndReason::BadResponse, EndPhase::Data);
        }
        body.note_sent(piece.len() as u64);
        // An encoder takes long, and other connections have their turn between two slices.
        match self.push_coded(ctx, client, body) {
            StepResult::Progressed => {
                rt::cores::yield_turn(ctx.cx);
                StepResult::Blocked
            }
            result => result,
        }
    }

    /// Ends a response whose body was read.
    fn end_cached(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        body: &mut CachedBody,
    ) -> StepResult {
        if let Some(codec) = &mut body.codec {
            codec.end_input();
            return self.push_coded(ctx, client, body);
        }
        // A body of known length ends with its last byte.
        if self.response_relay.take_eof().is_err() {
            return self.fail(ctx, client, EndReason::ServerClosed, EndPhase::Data);
        }
        self.response = ResponseProgress::Done;
        self.response_relay.end();
        StepResult::Progressed
    }

    /// Moves output of the codec to the client.
    fn push_coded(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        body: &mut CachedBody,
    ) -> StepResult {
        let Some(codec) = &mut body.codec else { return StepResult::Progressed };
        let mut content = Vec::new();
        let Ok(is_last) = codec.take_output(&mut content) else {
            return self.fail(ctx, client, EndReason::BadResponse, EndPhase::Data);
        };
        if is_last {
            self.response = ResponseProgress::Done;
        }
        self.response_relay.push_recoded(&content, is_last);
        StepResult::Progressed
    }

    /// Ends a response whose body cannot be read to its end: the client must notice that bytes are missing.
    #[cold]
    fn fail_cached(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        error: BodyError,
    ) -> StepResult {
        let end = match error {
            BodyError::Incomplete => EndReason::ServerClosed,
            BodyError::Overtaken => EndReason::WriteTimeout,
            BodyError::Disk => EndReason::FileFailed,
        };
        self.fail(ctx, client, end, EndPhase::Data)
    }
}
