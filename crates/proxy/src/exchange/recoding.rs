//! Compression of a response on its way: the content passes an encoder, or a decoder, between the server and the client. What a
//! pause of the server leaves in the encoder is flushed, so that nothing waits for what comes later.

use std::task::Poll;

use content::compress::Encoder;
use content::decompress::{Decoder, decoder_bytes};
use content::memory_budget::encoder_bytes;
use rt::clock::MonotonicTime;
use wire::{Framing, RequestKind, ResponseHead};

use super::StepResult;
use super::response::HeadResult;
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage, ResponseProgress};
use crate::forward::client_framing;
use crate::metrics::Metrics;
use crate::outcome::{EndPhase, EndReason};
use crate::plan::CompressionPlan;
use crate::profile::ProfilePhase;
use crate::recoding::{
    CodingDecision, Recoding, decide, describes_bytes, is_event_stream, response_fields, response_tag,
    with_values,
};
use crate::request_view::RequestView;
use crate::route::RouteRequest;

/// Maximum number of bytes that are encoded at a time, which takes about a millisecond.
const ENCODED_READ_BYTES: usize = 32 * 1024;

impl Exchange {
    /// Performs the action of a request's route whose responses may get a coding.
    pub(super) fn follow_route_with_codings(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        now: MonotonicTime,
    ) {
        let head = request.view.head;
        let Some(lists) = self.facts.codings.forwarded_tags(head.headers) else {
            return self.follow_route(ctx, client, generation, request, now);
        };
        let head = wire::RequestHead { headers: &with_values(head.headers, &lists), ..*head };
        let view = RequestView { head: &head, ..*request.view };
        self.follow_route(ctx, client, generation, &RouteRequest { view: &view, ..*request }, now);
    }

    /// Writes the head of a response of a route with compression. `None`: the response is forwarded as it is.
    #[cold]
    pub(super) fn write_recoded_head(
        &mut self,
        core: &Core,
        client: &ClientStream,
        head: &ResponseHead<'_, '_>,
        used: usize,
    ) -> Option<HeadResult> {
        let Some(recoding) = self.begin_recoding(core, client, head)? else {
            return Some(HeadResult::Final(used));
        };
        self.stage = ExchangeStage::Recoding(Box::new(recoding));
        Some(HeadResult::Recoded(used))
    }

    /// Decides on the coding of a response, and writes its head. Returns the codec of its content, if it needs one;
    /// `None`: nothing was written, and the response has the coding of its server.
    pub(super) fn begin_recoding(
        &mut self,
        core: &Core,
        client: &ClientStream,
        head: &ResponseHead<'_, '_>,
    ) -> Option<Option<Recoding>> {
        let plan = self.own_settings.as_ref()?.compression.clone()?;
        if self.facts.is_grpc || head.is_switching_protocols() {
            return None;
        }
        let request = self.facts.codings;
        let mut decision = decide(head, (self.facts.kind, self.facts.version), request, &plan);
        let has_content = self.facts.kind != RequestKind::Head;
        if decision == CodingDecision::Unchanged {
            return None;
        }
        let recoding = if has_content { start_codec(core, head, decision, &plan) } else { None };
        if has_content && recoding.is_none() && decision != CodingDecision::Varies {
            core.update_metrics(Metrics::count_uncompressed);
            decision = CodingDecision::Varies;
        }
        let tag = response_tag(head, decision, request);
        let fields = response_fields(head, decision, tag.as_deref());
        let head_for_client = ResponseHead { headers: &fields, ..*head };
        if recoding.is_none() {
            self.write_head(core, client, &head_for_client, false);
            return Some(None);
        }
        let coded_head = ResponseHead { framing: Framing::Chunked, ..head_for_client };
        self.write_head(core, client, &coded_head, false);
        let framing = client_framing(coded_head.framing, self.facts.version);
        self.response_relay.begin(head.framing, framing, &self.response_limits());
        Some(recoding)
    }

    /// Moves both directions of an exchange whose response gets a coding.
    pub(super) fn poll_recoding(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let has_request_progress = match self.poll_request(ctx, client, input) {
            StepResult::Finished(action) => return StepResult::Finished(action),
            StepResult::Progressed => true,
            StepResult::Blocked => false,
        };
        if !matches!(self.stage, ExchangeStage::Recoding(_)) {
            return StepResult::Progressed;
        }
        let has_response_progress = match self.poll_recoded_response(ctx, client, input) {
            StepResult::Finished(action) => return StepResult::Finished(action),
            StepResult::Progressed => true,
            StepResult::Blocked => false,
        };
        if self.is_complete(client) {
            return StepResult::Finished(self.finish(ctx, client));
        }
        let is_recoding = matches!(self.stage, ExchangeStage::Recoding(_));
        if !is_recoding {
            return StepResult::Progressed;
        }
        if has_response_progress {
            self.note_progress(ctx.core, client);
            // An encoder takes long, and other connections have their turn between two slices.
            rt::cores::yield_turn(ctx.cx);
            return StepResult::Blocked;
        }
        if has_request_progress {
            self.note_progress(ctx.core, client);
            return StepResult::Progressed;
        }
        self.poll_timeout(ctx, client, input)
    }

    pub(super) fn poll_recoded_response(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ReadResponse);
        if !self.response_relay.is_flushed()
            && let Some(result) = self.poll_flush_response(ctx, client)
        {
            return result;
        }
        if self.response == ResponseProgress::Done {
            return StepResult::Blocked;
        }
        if let ExchangeStage::Recoding(recoding) = &self.stage
            && recoding.has_output()
        {
            return self.push_output(ctx, client);
        }
        let Some(server) = &mut self.server else { return StepResult::Blocked };
        let end = input.len().min(self.response_relay.read_bytes(ENCODED_READ_BYTES));
        match server.stream.poll_read(ctx.cx, &mut input[..end]) {
            Poll::Pending => self.flush_encoder(ctx, client),
            Poll::Ready(Ok(0)) => self.handle_recoded_eof(ctx, client, true),
            Poll::Ready(Ok(read)) => self.send_recoded(ctx, client, &input[..read]),
            Poll::Ready(Err(error)) => {
                self.note_session_fault(&error);
                self.handle_recoded_eof(ctx, client, false)
            }
        }
    }

    /// Encodes or decodes received bytes of the body, and sends what results.
    pub(super) fn send_recoded(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        mut input: &[u8],
    ) -> StepResult {
        let _section = ctx.core.profile.enter(ProfilePhase::ForwardResponse);
        let ExchangeStage::Recoding(recoding) = &mut self.stage else { return StepResult::Progressed };
        let bytes_before = self.response_relay.content_bytes;
        loop {
            let batch = match self.response_relay.decode_batch(input) {
                Ok(batch) => batch,
                Err(refusal) => {
                    self.outcome.refusal = Some(refusal.kind());
                    let phase = self.forget_unsent_head(client);
                    return self.fail(ctx, client, EndReason::BadResponse, phase);
                }
            };
            if batch.pieces(input).try_for_each(|piece| recoding.write(piece)).is_err() {
                return self.fail_codec(ctx, client);
            }
            input = &input[batch.consumed..];
            if batch.is_last {
                recoding.end_input();
                // Bytes that follow were not requested.
                self.attempt.keeps_server &= input.is_empty();
                break;
            }
            if input.is_empty() {
                break;
            }
        }
        if recoding.is_encoding() {
            let in_bytes = self.response_relay.content_bytes - bytes_before;
            ctx.core.update_metrics(|metrics| metrics.count_compressed_bytes(in_bytes, 0));
        }
        self.push_output(ctx, client)
    }

    /// Moves output of the codec to the client, and ends it with the response.
    fn push_output(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> StepResult {
        let ExchangeStage::Recoding(recoding) = &mut self.stage else { return StepResult::Progressed };
        let (mut content, is_encoding) = (Vec::new(), recoding.is_encoding());
        let Ok(is_last) = recoding.take_output(&mut content) else {
            return self.fail_codec(ctx, client);
        };
        if is_encoding {
            ctx.core.update_metrics(|metrics| metrics.count_compressed_bytes(0, content.len() as u64));
        }
        if is_last {
            self.response = ResponseProgress::Done;
            self.response_relay.retain_trailers(|name| !describes_bytes(name));
        }
        self.response_relay.push_recoded(&content, is_last);
        if is_last && self.request_relay.is_done() {
            self.release_server(ctx, client);
        }
        self.flush_response(ctx, client)
    }

    /// Sends what the encoder holds back while the server pauses.
    fn flush_encoder(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> StepResult {
        let ExchangeStage::Recoding(recoding) = &mut self.stage else { return StepResult::Blocked };
        match recoding.flush() {
            Ok(false) => StepResult::Blocked,
            Ok(true) => self.push_output(ctx, client),
            Err(_) => self.fail_codec(ctx, client),
        }
    }

    fn handle_recoded_eof(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        is_orderly: bool,
    ) -> StepResult {
        self.attempt.keeps_server = false;
        if is_orderly && !self.is_response_truncated() && self.response_relay.take_eof().is_ok() {
            if let ExchangeStage::Recoding(recoding) = &mut self.stage {
                recoding.end_input();
            }
            return self.push_output(ctx, client);
        }
        let end = self.early_end();
        self.fail(ctx, client, end, EndPhase::Data)
    }

    /// Ends an exchange whose server's content is malformed, or whose encoder has no memory.
    #[cold]
    fn fail_codec(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> StepResult {
        let phase = self.forget_unsent_head(client);
        self.fail(ctx, client, EndReason::BadResponse, phase)
    }
}

/// Starts the encoder or the decoder of a response; `None`: they have used up their memory, or there is none.
fn start_codec(
    core: &Core,
    head: &ResponseHead<'_, '_>,
    decision: CodingDecision,
    plan: &CompressionPlan,
) -> Option<Recoding> {
    let acquire = |bytes| core.memory.encoders.acquire_within(bytes, plan.encoder_bytes_max);
    match decision {
        CodingDecision::Unchanged | CodingDecision::Varies => None,
        CodingDecision::Coded(coding) => {
            let level = plan.level(coding);
            let permit = acquire(encoder_bytes(coding, level))?;
            let size = match head.framing {
                Framing::Length(bytes) => Some(bytes),
                _ => None,
            };
            let encoder = Encoder::new(coding, level, size).ok()?;
            core.update_metrics(|metrics| metrics.count_compressed(coding));
            Some(Recoding::encode(encoder, permit, is_event_stream(head)))
        }
        CodingDecision::Decoded(coding) => {
            let permit = acquire(decoder_bytes(coding))?;
            let decoder = Decoder::new(coding).ok()?;
            core.update_metrics(|metrics| metrics.count_decompressed(coding));
            Some(Recoding::decode(decoder, permit))
        }
    }
}
