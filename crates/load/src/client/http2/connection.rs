//! One connection of HTTP/2: its socket, its multiplexer and the bytes between them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::stream::Stream;
use wire::RefusalKind;
use wire::h2::{Connection, ErrorCode, Event, INPUT_BYTES_MIN, OpenError, ResponseHead, Role, StreamKey};

use super::bodies::{OUTPUT_BYTES_MAX, RequestBodies};
use super::exchange::{Exchange, ExchangeTable};
use super::head::{encode_rendered, inspect_head};
use super::settings::h2_config;
use super::silence::Silence;
use crate::client::READS_MAX;
use crate::client::dialer::{Dialer, OpenError as ConnectError};
use crate::client::source::RequestSource;
use crate::core_state::{CoreState, SCRATCH_BYTES};
use crate::failure::{FailureKind, RequestPhase};
use crate::inspection::ResponseSink;
use crate::malformation::Malformation;
use crate::plan::RunPlan;

/// Error codes (RFC 9113 §7).
const NO_ERROR: ErrorCode = ErrorCode(0);
const REFUSED_STREAM: ErrorCode = ErrorCode(7);
const CANCEL: ErrorCode = ErrorCode(8);
const PING_PAYLOAD: u64 = u64::from_be_bytes(*b"weirload");

// The scratch buffer takes the rest of a frame and more bytes.
const _: () = assert!(SCRATCH_BYTES > INPUT_BYTES_MIN);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadProgress {
    /// Nothing is left to read; the task is woken.
    Empty,
    /// There may be more.
    More,
}

#[derive(Debug)]
pub(super) struct Http2Connection {
    stream: Stream,
    h2: Connection,
    /// Received bytes of an incomplete frame.
    partial_frame: Vec<u8>,
    bodies: RequestBodies,
    /// Bytes that the socket has accepted.
    written: u64,
    /// Number of streams that may still be opened (`-r`).
    streams_left: u64,
    /// True once the server's first frame proved that it speaks HTTP/2.
    is_confirmed: bool,
    /// True if no further stream is opened.
    is_closing: bool,
    /// True if the socket accepts no bytes any more.
    is_write_closed: bool,
    silence: Silence,
    /// Limit of streams on the last connection.
    known_streams_max: Option<u32>,
}

/// Maximum number of times that a request is sent again.
const RESENDS_MAX: u8 = 3;

/// Requests that events concern.
struct EventTarget<'a> {
    core: &'a CoreState,
    exchanges: &'a mut ExchangeTable,
    retries: &'a mut VecDeque<Exchange>,
    source: &'a mut RequestSource,
    now_ns: u64,
}

/// Step that follows an event.
enum EventEffect {
    None,
    /// Content is returned to the window of the server.
    Consume(StreamKey, usize),
    /// The stream is reset: no more is expected of it.
    Reset(StreamKey, ErrorCode),
    /// The server's settings are known.
    Settings,
    /// The server did not process the request of the stream.
    Unprocessed(StreamKey),
    /// The server accepts no further streams.
    Closing,
}

impl Http2Connection {
    /// Begins a connection on a connected stream. Nothing is written yet. `known_streams_max` is the limit of the
    /// server on the client's last connection, which holds until the settings of this one arrive.
    pub(super) fn new(stream: Stream, plan: &RunPlan, known_streams_max: Option<u32>) -> Self {
        Self {
            known_streams_max,
            stream,
            h2: Connection::new(Role::Client, &h2_config(plan)),
            partial_frame: Vec::new(),
            bodies: RequestBodies::default(),
            written: 0,
            streams_left: plan.requests_per_connection.unwrap_or(u64::MAX),
            is_confirmed: false,
            is_closing: false,
            is_write_closed: false,
            silence: Silence::new(now_ns()),
        }
    }

    /// Waits for the server's settings, which prove that it speaks HTTP/2 and limit the streams.
    pub(super) async fn wait_for_settings(&mut self, dialer: &Dialer) -> Result<(), ConnectError> {
        let (mut exchanges, mut retries) = (ExchangeTable::default(), VecDeque::new());
        let core: &CoreState = &dialer.core;
        let mut source = RequestSource::before_start();
        let waited = poll_fn(|cx| {
            loop {
                if let Some(kind) = dialer.interruption() {
                    return Poll::Ready(Err((kind, format!("no SETTINGS of HTTP/2: {}", kind.name()))));
                }
                let flushed = self.poll_flush(cx, core);
                let read = flushed
                    .and_then(|()| self.poll_receive(cx, core, &mut exchanges, &mut retries, &mut source));
                match read {
                    Err(kind) => return Poll::Ready(Err((kind, self.describe_failure(kind, core)))),
                    // The acknowledgement is sent with the first request, or here.
                    Ok(_) if self.is_confirmed => {
                        return Poll::Ready(self.poll_flush(cx, core).map_err(describe));
                    }
                    Ok(ReadProgress::More) => {}
                    Ok(ReadProgress::Empty) => return Poll::Pending,
                }
            }
        })
        .await;
        waited.map_err(|error| ConnectError::new(RequestPhase::Connect, error))
    }

    /// Returns the reason of a failure before the server's first settings, for the user.
    fn describe_failure(&self, kind: FailureKind, core: &CoreState) -> String {
        match kind {
            FailureKind::Parse => format!("HTTP/2: {}", core.recorder.borrow().malformation().text()),
            FailureKind::NoHttp2 => "the server responded with HTTP/1.1 (use --http 1.1)".to_owned(),
            FailureKind::Closed | FailureKind::Reset => {
                "the server closed the connection at the first bytes of HTTP/2 (use --http 1.1, or https)"
                    .to_owned()
            }
            _ => format!("HTTP/2: {}", kind.name()),
        }
    }

    /// Reads what has arrived and handles it.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        exchanges: &mut ExchangeTable,
        retries: &mut VecDeque<Exchange>,
        source: &mut RequestSource,
    ) -> Result<ReadProgress, FailureKind> {
        let mut scratch = core.scratch.borrow_mut();
        for _ in 0..READS_MAX {
            if self.h2.is_output_full() {
                // A server that does not read gets no more responses handled.
                return Ok(ReadProgress::Empty);
            }
            let kept = self.partial_frame.len();
            scratch[..kept].copy_from_slice(&self.partial_frame);
            let bytes = match self.stream.poll_read(cx, &mut scratch[kept..]) {
                Poll::Pending => return Ok(ReadProgress::Empty),
                Poll::Ready(Err(error)) => return Err(FailureKind::from_io_error(&error)),
                Poll::Ready(Ok(0)) => return Err(FailureKind::Closed),
                Poll::Ready(Ok(bytes)) => bytes,
            };
            core.recorder.borrow_mut().record_received(bytes, self.stream.receive_lag_ns());
            let now_ns = now_ns();
            self.silence.note_received(now_ns);
            let target = EventTarget { core, exchanges, retries, source, now_ns };
            let input = &scratch[..kept + bytes];
            let used = self.handle_input(input, target)?;
            self.partial_frame.clear();
            self.partial_frame.extend_from_slice(&input[used..]);
        }
        Ok(ReadProgress::More)
    }

    /// Handles all complete frames of `input`. Returns the number of bytes used.
    fn handle_input(&mut self, input: &[u8], mut target: EventTarget<'_>) -> Result<usize, FailureKind> {
        let mut used = 0;
        loop {
            let (bytes, event) = self.h2.next_event(&input[used..]).map_err(|fault| {
                target.core.recorder.borrow_mut().note_malformation(Malformation::Http2(fault));
                // An HTTP/1.1 server responds to the preface of HTTP/2 with an error (RFC 9113 §3.4).
                let is_http1 = !self.is_confirmed && input.starts_with(b"HTTP/1.");
                if is_http1 { FailureKind::NoHttp2 } else { FailureKind::Parse }
            })?;
            used += bytes;
            let Some(event) = event else { return Ok(used) };
            match target.handle(event) {
                EventEffect::None => {}
                EventEffect::Consume(stream, bytes) => self.h2.consume(stream, bytes),
                EventEffect::Reset(stream, code) => self.h2.reset(stream, code),
                EventEffect::Settings => self.note_settings(target.core),
                EventEffect::Unprocessed(stream) => {
                    target.handle_unprocessed(stream, self.h2.is_peer_going_away());
                }
                EventEffect::Closing => self.is_closing = true,
            }
        }
    }

    /// Records the server's limit of streams.
    fn note_settings(&mut self, core: &CoreState) {
        self.is_confirmed = true;
        if let Some(limit) = self.h2.peer_streams_max() {
            core.recorder.borrow_mut().counters.http2.note_streams_allowed(u64::from(limit));
        }
    }

    /// Returns the limit of streams of the server, as far as it is known.
    pub(super) fn streams_max(&self) -> Option<u32> {
        if self.is_confirmed { self.h2.peer_streams_max() } else { self.known_streams_max }
    }

    /// Returns the number of requests that may be started now, if there may be `streams` at a time.
    pub(super) fn startable(&mut self, streams: usize, exchanges: &ExchangeTable) -> usize {
        if self.is_closing || self.streams_left == 0 || self.h2.output().len() >= OUTPUT_BYTES_MAX {
            return 0;
        }
        let left = usize::try_from(self.streams_left).unwrap_or(usize::MAX);
        let known =
            self.known_streams_max.filter(|_| !self.is_confirmed).map_or(usize::MAX, |max| max as usize);
        let streams = streams.min(known);
        streams.saturating_sub(exchanges.streams.len()).min(self.h2.free_streams()).min(left)
    }

    /// Sends the head of a request and as much of its body as possible. Gives it back if there is no
    /// stream for it.
    pub(super) fn start(
        &mut self,
        core: &CoreState,
        mut exchange: Exchange,
        exchanges: &mut ExchangeTable,
    ) -> Option<Exchange> {
        let request = &core.shared.plan.requests[exchange.request];
        let stream = match self.h2.open_stream() {
            Ok(stream) => stream,
            Err(error) => {
                self.is_closing |= error == OpenError::Closed;
                return Some(exchange);
            }
        };
        self.streams_left -= 1;
        let has_body = !exchange.request_body(request).is_empty();
        let rendered = exchange.context.as_deref().zip(request.template.as_deref());
        self.h2.send_headers(stream, !has_body, |encoder| {
            if let Some((context, template)) = rendered {
                return encode_rendered(encoder, request, template, &context.buffer);
            }
            let scheme = request.url.authority.scheme.name();
            encoder.request(
                &request.method,
                Some(scheme),
                Some(&request.authority),
                Some(&request.url.target),
            );
            for (name, value) in &request.fields {
                if !name.eq_ignore_ascii_case("host") {
                    encoder.field(name, value.as_bytes());
                }
            }
            if let Some(length) = request.content_length() {
                let mut digits = itoa::Buffer::new();
                encoder.field("content-length", digits.format(length).as_bytes());
            }
        });
        exchange.stream = stream;
        if has_body {
            self.bodies.add(stream, &self.h2, core);
        } else {
            exchange.output_end = self.output_position();
        }
        exchanges.streams.insert(exchange);
        None
    }

    pub(super) fn send_bodies(&mut self, core: &CoreState, exchanges: &mut ExchangeTable) {
        self.bodies.send(&mut self.h2, core, exchanges, self.written);
    }

    /// Returns whether a body may have more to send now.
    pub(super) fn can_send_bodies(&mut self) -> bool {
        self.bodies.can_send(&mut self.h2)
    }

    /// Writes what waits for the socket.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Result<(), FailureKind> {
        let output = self.h2.output();
        while !output.is_empty() {
            if self.is_write_closed {
                output.clear();
                break;
            }
            match self.stream.poll_write(cx, output) {
                Poll::Pending => break,
                Poll::Ready(Ok(bytes)) => {
                    output.drain(..bytes);
                    self.written += bytes as u64;
                    core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
                }
                // A server may respond and close before it has read everything. If there are
                // responses, they still have to be read.
                Poll::Ready(Err(error)) if is_peer_gone(&error) => {
                    (self.is_write_closed, self.is_closing) = (true, true);
                }
                Poll::Ready(Err(error)) => return Err(FailureKind::from_io_error(&error)),
            }
        }
        Ok(())
    }

    pub(super) fn reset(&mut self, stream: StreamKey, code: ErrorCode) {
        self.h2.reset(stream, code);
    }

    /// Notes the timeout of a request, and checks the connection if it has been silent.
    pub(super) fn suspect(&mut self, now_ns: u64) {
        if self.silence.suspect(now_ns) {
            self.h2.ping(PING_PAYLOAD);
        }
    }

    /// Returns the time at which the connection is lost because it did not respond to a PING; `u64::MAX`:
    /// none is on its way.
    pub(super) fn lost_at_ns(&self) -> u64 {
        self.silence.lost_at_ns()
    }

    /// Announces the close, as far as the socket accepts it now.
    pub(super) fn say_goodbye(&mut self, cx: &mut Context<'_>, core: &CoreState) {
        self.h2.go_away(NO_ERROR, true);
        // The connection is closed in any case.
        let _ = self.poll_flush(cx, core);
    }

    pub(super) fn is_going_away(&self) -> bool {
        self.h2.is_peer_going_away()
    }

    /// Returns whether the connection opens no further streams and has nothing to write.
    pub(super) fn is_drained(&mut self) -> bool {
        (self.is_closing || self.streams_left == 0) && self.h2.output().is_empty()
    }

    /// Returns whether the socket has accepted all of a request.
    pub(super) fn is_written(&self, exchange: &Exchange) -> bool {
        exchange.output_end <= self.written
    }

    fn output_position(&mut self) -> u64 {
        self.written + self.h2.output().len() as u64
    }
}

impl EventTarget<'_> {
    fn handle(&mut self, event: Event<'_>) -> EventEffect {
        let is_grpc = self.core.shared.plan.http2.as_ref().is_some_and(|http2| http2.grpc);
        match event {
            Event::Response { stream, head, is_end } => self.handle_response(stream, &head, is_end, is_grpc),
            Event::Data { stream, bytes, is_end } => {
                if let Some(exchange) = self.exchanges.streams.get_mut(stream) {
                    exchange.handle_data(bytes, is_grpc);
                }
                if let Some(mut inspection) = self.exchanges.inspection(&self.core.shared.plan, stream) {
                    inspection.data(bytes);
                }
                if is_end {
                    self.complete(stream);
                }
                EventEffect::Consume(stream, bytes.len())
            }
            Event::Trailers { stream, fields } => {
                if is_grpc && let Some(exchange) = self.exchanges.streams.get_mut(stream) {
                    exchange.handle_grpc_fields(fields);
                }
                self.complete(stream)
            }
            Event::Reset { stream, is_unprocessed: true, .. } => EventEffect::Unprocessed(stream),
            Event::Reset { stream, fault: Some(fault), .. } => {
                self.core.recorder.borrow_mut().note_malformation(Malformation::Http2(fault));
                self.fail(stream, FailureKind::Parse);
                EventEffect::None
            }
            Event::Reset { stream, code, .. } => {
                self.core.recorder.borrow_mut().counters.http2.count_reset(code.0);
                self.fail(stream, FailureKind::StreamReset);
                EventEffect::None
            }
            Event::GoAway { code, .. } => {
                self.core.recorder.borrow_mut().counters.http2.count_goaway(code.0);
                EventEffect::Closing
            }
            Event::SettingsChanged => EventEffect::Settings,
            // A client gets no requests, any byte is a response to its PING, and bodies are tried in every
            // turn.
            _ => EventEffect::None,
        }
    }

    fn handle_response(
        &mut self,
        stream: StreamKey,
        head: &ResponseHead<'_>,
        is_end: bool,
        is_grpc: bool,
    ) -> EventEffect {
        let Some(exchange) = self.exchanges.streams.get_mut(stream) else { return EventEffect::None };
        if exchange.handle_head(head.status, self.now_ns, self.core).is_err() {
            let reason = Malformation::Http1(RefusalKind::TooManyInterim);
            self.core.recorder.borrow_mut().note_malformation(reason);
            self.fail(stream, FailureKind::Parse);
            return EventEffect::Reset(stream, CANCEL);
        }
        if head.status >= 200
            && let Some(mut inspection) = self.exchanges.inspection(&self.core.shared.plan, stream)
        {
            inspect_head(&mut inspection, head);
        }
        if !is_end {
            if is_grpc && let Some(exchange) = self.exchanges.streams.get_mut(stream) {
                exchange.handle_grpc_head(head.fields);
            }
            return EventEffect::None;
        }
        let Some(exchange) = self.exchanges.streams.get_mut(stream) else { return EventEffect::None };
        if is_grpc {
            exchange.handle_grpc_fields(head.fields);
        }
        self.complete(stream)
    }

    fn complete(&mut self, stream: StreamKey) -> EventEffect {
        let plan = &self.core.shared.plan;
        if let Some(inspection) = self.exchanges.inspection(plan, stream) {
            inspection.inspector.capture(plan, inspection.session);
        }
        let Some(mut exchange) = self.exchanges.streams.remove(stream) else { return EventEffect::None };
        exchange.record_response(self.core, self.now_ns);
        self.exchanges.give_back(exchange.context.take());
        self.source.release(self.now_ns);
        // The rest of the request is not needed (RFC 9113 §8.1).
        if exchange.output_end == u64::MAX { EventEffect::Reset(stream, NO_ERROR) } else { EventEffect::None }
    }

    /// Handles a request that the server did not process, because it goes away or refused the stream: the
    /// request is sent again (RFC 9113 §8.7), [`RESENDS_MAX`] times at most.
    fn handle_unprocessed(&mut self, stream: StreamKey, is_going_away: bool) {
        let resent = self.exchanges.streams.get_mut(stream).map_or(RESENDS_MAX, |exchange| exchange.resent);
        if !is_going_away {
            self.core.recorder.borrow_mut().counters.http2.count_reset(REFUSED_STREAM.0);
        }
        if resent < RESENDS_MAX {
            self.core.recorder.borrow_mut().counters.http2.retried += 1;
            self.retries.extend(self.exchanges.streams.remove(stream).map(Exchange::into_retry));
            return;
        }
        self.fail(stream, FailureKind::RefusedStream);
    }

    fn fail(&mut self, stream: StreamKey, kind: FailureKind) {
        let Some(exchange) = self.exchanges.streams.remove(stream) else { return };
        let is_written = exchange.output_end != u64::MAX;
        exchange.record_failure(self.core, kind, self.now_ns, is_written);
        self.source.release(self.now_ns);
    }
}

fn describe(kind: FailureKind) -> (FailureKind, String) {
    (kind, format!("HTTP/2: {}", kind.name()))
}

fn is_peer_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
