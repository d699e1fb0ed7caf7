//! Input: reads, and handles the events of the protocol.

use std::task::{Context, Poll, ready};

use server_shell::h2_timers::control_bytes;
use wire::h2::{ErrorCode, Event, FaultKind, StreamKey};

use crate::core::{OriginCore, ScratchBuffers};
use crate::stats::{CloseReason, add};

use super::exchange::{Exchange, ExchangePhase};
use super::request::Http2Request;
use super::{DelayTarget, Http2Conn, SHUTDOWN_PING, ShutdownState};

/// An event without its borrowed bytes.
#[allow(clippy::large_enum_variant)] // It lives on the stack of one call; a box would cost more.
enum InputEvent {
    Request { stream: StreamKey, request: Http2Request, is_end: bool },
    Rejected { stream: StreamKey, refusal: wire::Refusal },
    Data { stream: StreamKey, bytes: usize, is_end: bool },
    Reset { stream: StreamKey, fault: Option<FaultKind> },
    StreamWritable(StreamKey),
    ConnectionWritable,
    GoAway,
    Pong(u64),
    Nothing,
}

impl Http2Conn<'_> {
    /// Reads, and handles the events of the received bytes as far as the output has room for the
    /// responses.
    pub(super) fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        scratch: &mut ScratchBuffers,
    ) -> Poll<Result<(), CloseReason>> {
        let unparsed_len = self.conn.unparsed.len();
        let end = if std::mem::take(&mut self.conn.recheck_input) {
            unparsed_len
        } else {
            match ready!(self.conn.stream.poll_read(cx, &mut scratch.input[unparsed_len..])) {
                Ok(0) => return Poll::Ready(Err(self.peer_close_reason())),
                Ok(read) => {
                    add(&core.counters.bytes_in, read as u64);
                    unparsed_len + read
                }
                Err(error) => return Poll::Ready(Err(CloseReason::from_io_error(&error))),
            }
        };
        scratch.input[..unparsed_len].copy_from_slice(&self.conn.unparsed);
        let used = self.handle_input(core, scratch, end);
        let has_rest = used < end && !self.conn.recheck_input;
        self.timers.note_input(used, has_rest, self.wire.incomplete_head(), core.now());
        if !self.conn.keep_unparsed(&scratch.input[used..end], used == 0 && unparsed_len > 0) {
            return Poll::Ready(Err(CloseReason::NoBuffer));
        }
        Poll::Ready(Ok(()))
    }

    /// Handles the events of the first `end` bytes of the input; returns the number of used bytes.
    fn handle_input(&mut self, core: &OriginCore, scratch: &mut ScratchBuffers, end: usize) -> usize {
        let ScratchBuffers { input, rng, targets, .. } = scratch;
        self.holds_memory = true;
        let is_logged = self.conn.peer.is_some();
        let mut used = 0;
        loop {
            if self.output.is_full_with(self.wire.output().len()) {
                self.conn.recheck_input = used < end;
                return used;
            }
            let output_before = self.wire.output().len();
            let event = match self.wire.next_event(&input[used..end]) {
                Ok((bytes, event)) => {
                    used += bytes;
                    match event {
                        None => {
                            self.note_control(output_before);
                            return used;
                        }
                        Some(Event::Request { stream, head, is_end }) => {
                            let cached = head.path.and_then(|path| targets.find(path.as_bytes()));
                            if let Some(target) = cached.and_then(|index| targets.simple(index))
                                && is_end
                                && !is_logged
                            {
                                let is_head = head.method == "HEAD";
                                self.note_control(output_before);
                                self.respond_from_cache(core, target, stream, is_head, bytes);
                                continue;
                            }
                            let request =
                                Http2Request::decide(core, rng, targets, cached, &head, bytes, is_logged);
                            InputEvent::Request { stream, request, is_end }
                        }
                        Some(event) => detach(event),
                    }
                }
                Err(fault) => {
                    self.fail(core, fault);
                    return end;
                }
            };
            self.note_control(output_before);
            self.handle_event(core, rng, event);
        }
    }

    /// Notes the output since `output_before`, which answers frames of the client and is no response.
    #[inline]
    fn note_control(&mut self, output_before: usize) {
        self.output.control_bytes += control_bytes(output_before, self.wire.output().len());
    }

    fn handle_event(&mut self, core: &OriginCore, rng: &mut fastrand::Rng, event: InputEvent) {
        match event {
            InputEvent::Request { stream, request, is_end } => {
                add(&core.counters.h2_streams, 1);
                if is_end && request.is_immediate() {
                    self.respond_at_once(core, rng, stream, request);
                } else {
                    self.begin_exchange(core, rng, stream, request, is_end);
                }
            }
            InputEvent::Rejected { stream, refusal } => {
                add(&core.counters.h2_streams, 1);
                core.counters.count_rejection(refusal.kind());
                self.respond_with_error(core, stream, refusal);
                self.timers.note_request(core.now());
            }
            InputEvent::Data { stream, bytes, is_end } => {
                self.handle_data(core, rng, stream, bytes, is_end);
            }
            InputEvent::Reset { stream, fault } => {
                if let Some(fault) = fault {
                    core.counters.count_fault(fault);
                    add(&core.counters.h2_resets_sent, 1);
                }
                self.abandon(core, stream);
            }
            InputEvent::StreamWritable(stream) => self.exchanges.push_ready(stream),
            InputEvent::ConnectionWritable => self.exchanges.push_all_ready(),
            InputEvent::GoAway => add(&core.counters.h2_goaways_received, 1),
            InputEvent::Pong(payload) => {
                let is_announced = matches!(self.shutdown, ShutdownState::Announced { .. });
                if is_announced && payload == SHUTDOWN_PING {
                    self.close_when_done(CloseReason::Drained);
                }
            }
            InputEvent::Nothing => {}
        }
    }

    /// Keeps a request that cannot be answered at once.
    fn begin_exchange(
        &mut self,
        core: &OriginCore,
        rng: &mut fastrand::Rng,
        stream: StreamKey,
        request: Http2Request,
        is_end: bool,
    ) {
        let unread_bytes = request.spec.read_max.unwrap_or(u64::MAX);
        if !is_end && request.expects_continue && unread_bytes > 0 {
            self.wire.send_headers(stream, false, |fields| fields.status(100));
        }
        let exchange = Exchange {
            unread_bytes,
            is_received: is_end,
            ..Exchange::new(stream, request, ExchangePhase::Receiving)
        };
        add(&core.counters.in_flight, u64::from(exchange.is_in_flight()));
        self.exchanges.streams.insert(exchange);
        if is_end || unread_bytes == 0 {
            self.handle_received(core, rng, stream);
        } else {
            self.exchanges.begin_body(stream, core.plan.body, core.now());
        }
    }

    /// Handles a part of a request's body, which is only counted.
    fn handle_data(
        &mut self,
        core: &OriginCore,
        rng: &mut fastrand::Rng,
        stream: StreamKey,
        bytes: usize,
        is_end: bool,
    ) {
        let Some(exchange) = self.exchanges.streams.get_mut(stream) else {
            self.wire.consume(stream, bytes);
            return;
        };
        exchange.is_received |= is_end;
        match exchange.phase {
            ExchangePhase::Receiving => {
                exchange.unread_bytes = exchange.unread_bytes.saturating_sub(bytes as u64);
                let is_enough = is_end || exchange.unread_bytes == 0;
                exchange.note_body(bytes, core.plan.body, core.now());
                self.wire.consume(stream, bytes);
                if is_enough {
                    self.handle_received(core, rng, stream);
                }
            }
            // The rest is read after the response.
            ExchangePhase::Delayed | ExchangePhase::Stats | ExchangePhase::Sending => {
                exchange.unconsumed_bytes += bytes;
                exchange.rest_left = exchange.rest_left.saturating_sub(bytes as u64);
            }
            ExchangePhase::Discarding => {
                exchange.note_body(bytes, core.plan.body, core.now());
                self.wire.consume(stream, bytes);
                exchange.rest_left = exchange.rest_left.saturating_sub(bytes as u64);
                let is_over = exchange.rest_left == 0;
                if is_end || is_over {
                    self.exchanges.streams.remove(stream);
                    self.timers.note_request(core.now());
                }
                if is_over && !is_end {
                    self.reset_received(core, stream);
                }
            }
        }
    }

    /// Continues a request of which as much is received as its response needs.
    fn handle_received(&mut self, core: &OriginCore, rng: &mut fastrand::Rng, stream: StreamKey) {
        let Some(exchange) = self.exchanges.streams.get_mut(stream) else { return };
        exchange.end_body();
        if !exchange.is_received {
            // A client stops to send at another final status.
            let is_success = exchange.request.spec.status < 300;
            let rest = self.wire.open_windows_for_rest(stream);
            exchange.ends_with_response = rest.is_none() && is_success;
            exchange.rest_left = rest.filter(|_| is_success).unwrap_or(u64::MAX);
        }
        if exchange.request.is_immediate() {
            self.respond_stored(core, rng, stream);
        } else if exchange.request.spec.delay_ns > 0 {
            exchange.phase = ExchangePhase::Delayed;
            let deadline_ns = rt::clock::now_ns() + exchange.request.spec.delay_ns;
            self.push_delay(deadline_ns, DelayTarget::Response(stream.slot, stream.id));
        } else {
            exchange.phase = ExchangePhase::Stats;
            self.stats_streams.push_back(stream);
        }
    }

    /// Removes a request whose stream is over before its end, and counts it.
    pub(super) fn abandon(&mut self, core: &OriginCore, stream: StreamKey) {
        self.abandon_with(core, stream, None);
    }

    /// Does the same with the status of a response whose file failed, for the log.
    pub(super) fn abandon_with(&mut self, core: &OriginCore, stream: StreamKey, failed_status: Option<u16>) {
        let Some(mut exchange) = self.exchanges.streams.remove(stream) else { return };
        self.log_file(core, &mut exchange.request, &exchange.content, failed_status);
        self.consume(&mut exchange);
        self.timers.note_request(core.now());
        count_abandoned(core, &exchange);
    }

    /// Removes all requests at the end of the connection.
    pub(super) fn abandon_all(&mut self) {
        self.abandon_all_exchanges();
        if !self.output.is_empty() {
            add(&self.conn.core.counters.responses_lost, self.output.responses);
        }
    }

    /// Ends the connection because of a fault of the client, after the GOAWAY frame in the output.
    fn fail(&mut self, core: &OriginCore, fault: FaultKind) {
        core.counters.count_fault(fault);
        if matches!(self.shutdown, ShutdownState::Open) {
            add(&core.counters.h2_goaways_sent, 1);
        }
        self.abandon_all_exchanges();
        self.shutdown = ShutdownState::Failed(CloseReason::Http2Fault);
    }

    /// Ends the connection because the client was too slow.
    pub(super) fn end_with_goaway(&mut self, reason: CloseReason) {
        self.go_away();
        self.abandon_all_exchanges();
        self.shutdown = ShutdownState::Failed(reason);
    }

    /// Adds the last frame of the connection.
    pub(super) fn go_away(&mut self) {
        if matches!(self.shutdown, ShutdownState::Open) {
            add(&self.conn.core.counters.h2_goaways_sent, 1);
        }
        self.wire.go_away(ErrorCode::NO_ERROR, true);
    }

    fn abandon_all_exchanges(&mut self) {
        for mut exchange in self.exchanges.drain() {
            let core = &self.conn.core;
            self.log_file(core, &mut exchange.request, &exchange.content, None);
            count_abandoned(core, &exchange);
        }
    }

    fn peer_close_reason(&self) -> CloseReason {
        let is_between = self.conn.unparsed.is_empty() && self.exchanges.streams.is_empty();
        match self.shutdown {
            ShutdownState::Final(reason) if is_between => reason,
            _ if is_between => CloseReason::Peer,
            _ => CloseReason::PeerMidRequest,
        }
    }
}

/// Counts a request that ends without its complete response.
fn count_abandoned(core: &OriginCore, exchange: &Exchange) {
    let counters = &core.counters;
    if exchange.is_in_flight() {
        counters.in_flight.set(counters.in_flight.get() - 1);
        let is_responding = exchange.phase == ExchangePhase::Sending;
        add(&counters.responses_lost, u64::from(is_responding));
        add(&counters.requests_abandoned, u64::from(!is_responding));
    }
}

/// Converts an event, except a request.
fn detach(event: Event<'_>) -> InputEvent {
    match event {
        Event::RejectedRequest { stream, refusal, .. } => InputEvent::Rejected { stream, refusal },
        Event::Data { stream, bytes, is_end } => InputEvent::Data { stream, bytes: bytes.len(), is_end },
        Event::Trailers { stream, .. } => InputEvent::Data { stream, bytes: 0, is_end: true },
        Event::Reset { stream, fault, .. } => InputEvent::Reset { stream, fault },
        Event::StreamWritable(stream) => InputEvent::StreamWritable(stream),
        Event::ConnectionWritable => InputEvent::ConnectionWritable,
        Event::GoAway { .. } => InputEvent::GoAway,
        Event::Pong(payload) => InputEvent::Pong(payload),
        // Requests were handled before, a server receives no response, and settings need no action.
        Event::Request { .. } | Event::Response { .. } | Event::SettingsChanged => InputEvent::Nothing,
    }
}
