//! Responses: their heads, the content in turn of all streams, the counters and the log.

use std::borrow::Cow;
use std::io::Write;

use rt::clock::{MILLISECOND_NS, now_ns};
use wire::Version;
use wire::h2::{ErrorCode, FieldEncoder, StreamKey};

use crate::body::RemainingBody;
use crate::burn;
use crate::core::{OriginCore, ScratchBuffers};
use crate::help::help_page;
use crate::log::line_without_request;
use crate::respond::{BodyKind, FAILED_FILE_STATUS, error_text};
use crate::response_spec::{RequestProperties, ResponseSpec};
use crate::stats::{CloseReason, OriginStats, add};
use crate::target_cache::CachedTarget;

use super::exchange::{Content, Exchange, ExchangePhase};
use super::file_content::SentContent;
use super::request::Http2Request;
use super::{DelayTarget, Http2Conn};

/// Minimum size of a frame whose content is not copied to the output.
const INSERT_BYTES_MIN: usize = 4096;
/// Maximum size of a body that is sent at once, without its turn.
const IMMEDIATE_BYTES_MAX: u64 = 16 * 1024;

impl Http2Conn<'_> {
    /// Responds to a complete request that needs no wait. Only a response that is not sent at once
    /// needs the table.
    pub(super) fn respond_at_once(
        &mut self,
        core: &OriginCore,
        rng: &mut fastrand::Rng,
        stream: StreamKey,
        mut request: Http2Request,
    ) {
        let mut content = self.send_head(core, rng, stream, &mut request);
        if let Content::File(body) = &content
            && body.in_memory().is_none()
        {
            // A file is read in its turn; its line in the log follows its last byte.
            return self.queue_content(core, stream, request, content);
        }
        let frame_bytes_max = request.frame_bytes_max();
        if (1..=IMMEDIATE_BYTES_MAX).contains(&content.remaining()) {
            while let SentContent::Frame = self.send_frame(core, stream, &mut content, frame_bytes_max) {}
        }
        if content.remaining() == 0 {
            self.log_file(core, &mut request, &content, None);
            return self.end_response(core, &request.spec);
        }
        self.queue_content(core, stream, request, content);
    }

    /// Responds to a complete request with a cached target, which needs no decision.
    #[inline]
    pub(super) fn respond_from_cache(
        &mut self,
        core: &OriginCore,
        cached: &CachedTarget,
        stream: StreamKey,
        is_head: bool,
        head_bytes: usize,
    ) {
        let counters = &core.counters;
        add(&counters.h2_streams, 1);
        add(&counters.requests, 1);
        if cached.has_unknown {
            add(&counters.unknown_option, 1);
        }
        counters.count_response(cached.spec.status);
        self.output.responses += 1;
        self.idle_timeout_ns = core.plan.idle_timeout_ns;
        self.timers.note_request(core.now());
        let size = if is_head { 0 } else { cached.spec.size };
        self.send_cached_head(core, cached, stream, is_head, size == 0);
        if size == 0 {
            return;
        }
        let mut body = RemainingBody::pattern(size);
        if size <= IMMEDIATE_BYTES_MAX {
            let sent = self.wire.begin_data_frame(stream, size as usize, true);
            body.copy_to(&core.body_blocks, sent as u64, self.wire.output());
            if body.remaining == 0 {
                return;
            }
        }
        let request = Http2Request::from_cache(cached, is_head, head_bytes);
        self.queue_content(core, stream, request, Content::Block(body));
    }

    /// Sends the head of a cached target: the encoded one of this second, if there is one.
    #[inline]
    fn send_cached_head(
        &mut self,
        core: &OriginCore,
        cached: &CachedTarget,
        stream: StreamKey,
        is_head: bool,
        is_end: bool,
    ) {
        let second = core.dates.second();
        if let Some(head) = self.encoded_heads.find(cached.id, second)
            && self.wire.repeat_headers(stream, is_end, head)
        {
            return;
        }
        let properties = RequestProperties { version: Version::Http11, is_head, keep_alive: true };
        let head = self.wire.send_repeatable_headers(stream, is_end, |fields| {
            cached.spec.write_fields(fields, properties, &core.dates.http(), true);
        });
        self.encoded_heads.store(cached.id, second, head);
    }

    /// Adds a response whose content was not sent at once to the table.
    fn queue_content(
        &mut self,
        core: &OriginCore,
        stream: StreamKey,
        request: Http2Request,
        content: Content,
    ) {
        add(&core.counters.in_flight, 1);
        let sent_until = self.output.total_queued(self.wire.output().len());
        let exchange = Exchange::new(stream, request, ExchangePhase::Sending);
        self.exchanges.streams.insert(Exchange { content, sent_until, ..exchange });
        self.exchanges.push_ready(stream);
    }

    /// Responds to a request whose delay has passed.
    pub(super) fn respond_delayed(
        &mut self,
        core: &OriginCore,
        scratch: &mut ScratchBuffers,
        stream: StreamKey,
    ) {
        if self.exchanges.is_delayed(stream) {
            self.respond_stored(core, &mut scratch.rng, stream);
        }
    }

    pub(super) fn respond_stored(&mut self, core: &OriginCore, rng: &mut fastrand::Rng, stream: StreamKey) {
        let Some(mut exchange) = self.exchanges.streams.remove(stream) else { return };
        exchange.phase = ExchangePhase::Sending;
        exchange.content = self.send_head(core, rng, stream, &mut exchange.request);
        let is_sent = exchange.content.remaining() == 0;
        self.exchanges.streams.insert(exchange);
        if is_sent {
            self.finish_exchange(core, stream);
        } else {
            self.exchanges.push_ready(stream);
        }
    }

    fn send_head(
        &mut self,
        core: &OriginCore,
        rng: &mut fastrand::Rng,
        stream: StreamKey,
        request: &mut Http2Request,
    ) -> Content {
        let spec = &request.spec;
        burn::burn(spec.cpu_ns);
        burn::allocate(spec.allocations);
        if let Some(status) = request.interim_status {
            self.wire.send_headers(stream, false, |fields| fields.status(status));
        }
        if let Some(file) = request.file.take() {
            return self.send_file_head(core, stream, request, *file);
        }
        let content_bytes = spec.content_bytes(request.properties);
        self.wire.send_headers(stream, content_bytes == 0, |fields| {
            spec.write_fields(fields, request.properties, &core.dates.http(), request.is_fixed);
            if request.body_kind == BodyKind::Help {
                fields.field("content-type", b"text/plain; charset=utf-8");
            } else if spec.timing_fields {
                write_timing_fields(fields, request);
            }
        });
        self.count_response(core, request, spec.status, content_bytes);
        if spec.write_bytes_max > 0 {
            self.output.limit_writes(spec.write_bytes_max);
        }
        match request.body_kind {
            _ if content_bytes == 0 => Content::EMPTY,
            BodyKind::Help => Content::Text(Cow::Borrowed(help_page().as_bytes()), 0),
            _ if spec.random_body => Content::Block(RemainingBody::random(content_bytes, rng)),
            _ => Content::Block(RemainingBody::pattern(content_bytes)),
        }
    }

    fn count_response(&mut self, core: &OriginCore, request: &Http2Request, status: u16, content_bytes: u64) {
        self.output.responses += 1;
        if request.body_kind != BodyKind::Stats {
            core.counters.count_response(status);
        }
        if let Some(logged_request) = &request.logged_request {
            let mut line = Vec::new();
            logged_request.write_line_end(status, content_bytes, &mut line);
            core.log_line(self.conn.peer.as_deref(), &line);
        }
    }

    /// Fills the output with content: one frame of each stream in turn.
    pub(super) fn fill_output(&mut self, core: &OriginCore) {
        while !self.output.is_full_with(self.wire.output().len()) {
            let Some(stream) = self.exchanges.pop_ready() else { return };
            let Some(exchange) = self.exchanges.streams.get_mut(stream) else { continue };
            let mut content = std::mem::replace(&mut exchange.content, Content::EMPTY);
            let is_stats = exchange.request.body_kind == BodyKind::Stats;
            let frame_bytes_max = exchange.request.frame_bytes_max();
            let before = self.wire.output().len();
            let sent = self.send_frame(core, stream, &mut content, frame_bytes_max);
            if is_stats {
                self.output.uncounted_bytes += (self.wire.output().len() - before) as u64;
            }
            let sent_until = self.output.total_queued(self.wire.output().len());
            if let Some(exchange) = self.exchanges.streams.get_mut(stream) {
                exchange.content = content;
                if !matches!(sent, SentContent::Blocked) {
                    exchange.sent_until = sent_until;
                }
            }
            match sent {
                SentContent::All => self.finish_exchange(core, stream),
                SentContent::Failed => {
                    add(&core.counters.files_failed, 1);
                    add(&core.counters.h2_resets_sent, 1);
                    self.abandon_with(core, stream, Some(FAILED_FILE_STATUS));
                    self.wire.reset(stream, ErrorCode::INTERNAL_ERROR);
                }
                SentContent::Frame => self.exchanges.push_ready(stream),
                SentContent::Encoding => {
                    self.exchanges.push_ready(stream);
                    return;
                }
                // An event reports when the client's windows allow more.
                SentContent::Blocked => {}
            }
        }
    }

    fn send_frame(
        &mut self,
        core: &OriginCore,
        stream: StreamKey,
        content: &mut Content,
        frame_bytes_max: u64,
    ) -> SentContent {
        if let Content::File(body) = content {
            return match body.is_reading_next() {
                true => self.send_file_slice(core, stream, body),
                false => self.send_file_frame(stream, body),
            };
        }
        let remaining = content.remaining();
        let bytes = usize::try_from(remaining.min(frame_bytes_max)).unwrap_or(usize::MAX);
        let sent = self.wire.begin_data_frame(stream, bytes, bytes as u64 == remaining);
        if sent == 0 {
            return SentContent::Blocked;
        }
        match content {
            Content::Block(body) if sent >= INSERT_BYTES_MIN => {
                self.output.insert(self.wire.output().len(), body.split(sent as u64));
            }
            _ => content.copy_to(&core.body_blocks, sent, self.wire.output()),
        }
        if content.remaining() == 0 { SentContent::All } else { SentContent::Frame }
    }

    /// Ends a request in the table whose response is sent.
    fn finish_exchange(&mut self, core: &OriginCore, stream: StreamKey) {
        let Some(mut exchange) = self.exchanges.streams.remove(stream) else { return };
        self.log_file(core, &mut exchange.request, &exchange.content, None);
        if exchange.is_in_flight() {
            core.counters.in_flight.set(core.counters.in_flight.get() - 1);
        }
        self.consume(&mut exchange);
        let spec = exchange.request.spec;
        let is_rest_over = exchange.ends_with_response || exchange.rest_left == 0;
        if !exchange.is_received && (is_rest_over || spec.closes_http2()) {
            self.reset_received(core, stream);
        } else if !exchange.is_received {
            // The rest of the body is read after the response.
            exchange.phase = ExchangePhase::Discarding;
            self.exchanges.streams.insert(exchange);
            self.exchanges.begin_body(stream, core.plan.body, core.now());
        }
        self.end_response(core, &spec);
    }

    /// Handles the options of a target that take effect after the response.
    fn end_response(&mut self, core: &OriginCore, spec: &ResponseSpec) {
        self.idle_timeout_ns = spec.idle_timeout_ns.unwrap_or(core.plan.idle_timeout_ns);
        self.timers.note_request(core.now());
        if !spec.closes_http2() {
            return;
        }
        if spec.pause_ns > 0 {
            self.push_delay(now_ns() + spec.pause_ns, DelayTarget::Close);
        } else {
            self.close_when_done(CloseReason::Requested);
        }
    }

    /// Returns received bytes of a body to the client's window.
    pub(super) fn consume(&mut self, exchange: &mut Exchange) {
        let bytes = std::mem::take(&mut exchange.unconsumed_bytes);
        if bytes > 0 {
            self.wire.consume(exchange.stream, bytes);
        }
    }

    /// Ends a stream whose response is complete and whose request is not (RFC 9113 §8.1).
    pub(super) fn reset_received(&mut self, core: &OriginCore, stream: StreamKey) {
        self.wire.reset(stream, ErrorCode::NO_ERROR);
        add(&core.counters.h2_resets_sent, 1);
    }

    /// Resets the streams whose response is sent and whose request is not complete: nothing more is
    /// expected of them when the connection ends.
    pub(super) fn reset_answered_requests(&mut self) {
        let answered: Vec<StreamKey> = self
            .exchanges
            .streams
            .iter()
            .filter(|exchange| exchange.phase == ExchangePhase::Discarding)
            .map(|exchange| exchange.stream)
            .collect();
        let core = std::rc::Rc::clone(&self.conn.core);
        for stream in answered {
            self.exchanges.streams.remove(stream);
            self.reset_received(&core, stream);
        }
    }

    /// Sends a response with the reason to a rejected request.
    pub(super) fn respond_with_error(
        &mut self,
        core: &OriginCore,
        stream: StreamKey,
        refusal: wire::Refusal,
    ) {
        let status = refusal.status();
        let text = error_text(status, &refusal.to_string());
        let length = text.len().to_string();
        self.wire.send_headers(stream, false, |fields| {
            fields.status(status);
            fields.field("date", &core.dates.http());
            fields.field("content-type", b"text/plain; charset=utf-8");
            fields.field("content-length", length.as_bytes());
        });
        // Without a window for the text, the reset below ends the response early.
        let sent = self.wire.send_data(stream, text.as_bytes(), true);
        self.output.responses += 1;
        core.counters.count_response(status);
        let line = line_without_request(core.plan.access_log_format, status, sent as u64);
        core.log_line(self.conn.peer.as_deref(), &line);
        // The rest of the request is not wanted; nothing is sent if it is complete.
        self.wire.reset(stream, ErrorCode::NO_ERROR);
    }

    /// Sends the counters, which do not count this request.
    pub(super) fn respond_with_stats(&mut self, core: &OriginCore, stream: StreamKey, stats: &OriginStats) {
        let Some(mut exchange) = self.exchanges.streams.remove(stream) else { return };
        let text = stats.to_json().into_bytes();
        let before = self.wire.output().len();
        let length = text.len().to_string();
        let is_head = exchange.request.properties.is_head;
        self.wire.send_headers(stream, is_head, |fields| {
            fields.status(200);
            fields.field("date", &core.dates.http());
            fields.field_without_index("content-length", length.as_bytes());
            fields.field("content-type", b"application/json");
            fields.field("cache-control", b"no-store");
        });
        self.output.uncounted_bytes += (self.wire.output().len() - before) as u64;
        let content_bytes = if is_head { 0 } else { text.len() as u64 };
        self.count_response(core, &exchange.request, 200, content_bytes);
        exchange.phase = ExchangePhase::Sending;
        exchange.content = if is_head { Content::EMPTY } else { Content::Text(Cow::Owned(text), 0) };
        self.exchanges.streams.insert(exchange);
        if is_head {
            self.finish_exchange(core, stream);
        } else {
            self.exchanges.push_ready(stream);
        }
    }
}

/// Writes `x-req` and `x-rsp`, the same as in HTTP/1.1.
fn write_timing_fields(fields: &mut FieldEncoder<'_>, request: &Http2Request) {
    let spec = &request.spec;
    let elapsed_ms = (now_ns() - request.received_ns) / MILLISECOND_NS;
    let mut text = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = write!(text, "size={}, time={elapsed_ms} ms", request.head_bytes);
    fields.field_without_index("x-req", &text);
    text.clear();
    let _ = write!(
        text,
        "id=dummy, code={}, cache={}, size={}, time={} ms ({elapsed_ms} real)",
        spec.status,
        u8::from(!spec.no_cache),
        spec.size,
        spec.delay_ns / MILLISECOND_NS,
    );
    fields.field_without_index("x-rsp", &text);
}
