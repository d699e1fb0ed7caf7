//! One exchange on a connection of HTTP/2 of its own, as two streams of bytes: a connection of WebSocket
//! (RFC 8441), or a response that lasts.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};

use rt::cores::yield_turn;
use rt::stream::Stream;
use wire::RefusalKind;
use wire::h2::{Connection, ErrorCode, Event, FieldEncoder, Role, StreamKey};

use super::bodies::OUTPUT_BYTES_MAX;
use super::settings::h2_config;
use crate::client::READS_MAX;
use crate::client::dialer::{Dialer, OpenError};
use crate::core_state::CoreState;
use crate::failure::{FailureKind, RequestPhase};
use crate::malformation::Malformation;

/// Error codes (RFC 9113 §7).
const NO_ERROR: ErrorCode = ErrorCode(0);
const CANCEL: ErrorCode = ErrorCode(8);
/// Maximum received content that waits while the peer accepts none. Beyond it nothing is read.
const CONTENT_BYTES_MAX: usize = 1 << 20;

pub(in crate::client) struct Http2Tunnel {
    stream: Stream,
    h2: Connection,
    /// Received bytes of an incomplete frame.
    partial_frame: Vec<u8>,
    key: Option<StreamKey>,
    received: TunnelReceived,
}

#[derive(Debug)]
pub(in crate::client) struct TunnelHead {
    pub(in crate::client) status: u16,
    pub(in crate::client) fields: Vec<(String, Vec<u8>)>,
}

/// Parts of the response that have arrived.
#[derive(Default)]
struct TunnelReceived {
    /// True once the settings of the server are known.
    has_settings: bool,
    interim_count: u32,
    head: Option<TunnelHead>,
    /// Content that was not taken.
    content: Vec<u8>,
    /// End of the stream, or its failure.
    end: Option<Result<(), FailureKind>>,
}

impl Http2Tunnel {
    /// Begins a connection on a connected stream. Nothing is written yet.
    pub(in crate::client) fn new(stream: Stream, core: &CoreState) -> Self {
        Self {
            stream,
            h2: Connection::new(Role::Client, &h2_config(&core.shared.plan)),
            partial_frame: Vec::new(),
            key: None,
            received: TunnelReceived::default(),
        }
    }

    /// Waits for the settings of the server. Returns whether it supports WebSocket (RFC 8441 §3).
    pub(in crate::client) async fn supports_websocket(&mut self, dialer: &Dialer) -> Result<bool, OpenError> {
        let core: &CoreState = &dialer.core;
        let waited = poll_fn(|cx| {
            while !self.received.has_settings {
                if let Some(kind) = dialer.interruption() {
                    return Poll::Ready(Err(kind));
                }
                ready!(self.poll_receive(cx, core, &mut core.scratch.borrow_mut()))?;
            }
            Poll::Ready(Ok(()))
        });
        waited.await.map_err(|kind| {
            let text = match kind {
                FailureKind::NoHttp2 => "the server responded with HTTP/1.1 (use --http 1.1)".to_owned(),
                _ => format!("no SETTINGS of HTTP/2: {}", kind.name()),
            };
            OpenError::new(RequestPhase::Connect, (kind, text))
        })?;
        Ok(self.h2.peer_enables_connect_protocol())
    }

    /// Sends the head of the request; `is_end` is true if it has no body.
    pub(in crate::client) fn begin(&mut self, is_end: bool, encode: impl FnOnce(&mut FieldEncoder<'_>)) {
        match self.h2.open_stream() {
            Ok(key) => {
                self.h2.send_headers(key, is_end, encode);
                self.key = Some(key);
            }
            Err(_) => self.received.end = Some(Err(FailureKind::RefusedStream)),
        }
    }

    /// Takes the head of the response, once it has arrived.
    pub(in crate::client) fn take_head(&mut self) -> Option<TunnelHead> {
        self.received.head.take()
    }

    pub(in crate::client) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
    ) -> Poll<Result<TunnelHead, FailureKind>> {
        loop {
            if let Some(head) = self.take_head() {
                return Poll::Ready(Ok(head));
            }
            if let Some(end) = self.received.end {
                return Poll::Ready(Err(end.err().unwrap_or(FailureKind::Closed)));
            }
            ready!(self.poll_receive(cx, core, &mut core.scratch.borrow_mut()))?;
        }
    }

    /// Reads content, through `buffer`. Returns 0 at the end of the stream.
    pub(in crate::client) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, FailureKind>> {
        for _ in 0..READS_MAX {
            let content = &mut self.received.content;
            if !content.is_empty() {
                let bytes = content.len().min(buffer.len());
                buffer[..bytes].copy_from_slice(&content[..bytes]);
                content.drain(..bytes);
                if let Some(key) = self.key {
                    self.h2.consume(key, bytes);
                }
                self.poll_flush(cx, core)?;
                return Poll::Ready(Ok(bytes));
            }
            if let Some(end) = self.received.end {
                return Poll::Ready(end.map(|()| 0));
            }
            ready!(self.poll_receive(cx, core, buffer))?;
            if self.received.head.is_some() {
                // The caller checks it before it waits for content.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        yield_turn(cx);
        Poll::Pending
    }

    /// Sends content, as far as the windows of the server and the socket accept it.
    pub(in crate::client) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        bytes: &[u8],
    ) -> Poll<Result<usize, FailureKind>> {
        for _ in 0..READS_MAX {
            if let Some(end) = self.received.end {
                return Poll::Ready(Err(end.err().unwrap_or(FailureKind::Closed)));
            }
            self.poll_flush(cx, core)?;
            if self.h2.output().len() >= OUTPUT_BYTES_MAX {
                return Poll::Pending;
            }
            let sent = self.key.map_or(0, |key| self.h2.send_data(key, bytes, false));
            if sent > 0 {
                self.poll_flush(cx, core)?;
                return Poll::Ready(Ok(sent));
            }
            if self.received.content.len() >= CONTENT_BYTES_MAX {
                return Poll::Pending;
            }
            // A frame that opens a window is behind the content, which the caller reads in its next turn.
            let before = self.received.content.len();
            ready!(self.poll_receive(cx, core, &mut core.scratch.borrow_mut()))?;
            if self.received.content.len() > before || self.received.end.is_some() {
                cx.waker().wake_by_ref();
            }
        }
        yield_turn(cx);
        Poll::Pending
    }

    /// Ends the body of the request.
    pub(in crate::client) fn finish(&mut self) {
        if let Some(key) = self.key {
            self.h2.send_data(key, &[], true);
        }
    }

    /// Ends the stream and the connection, as far as the socket accepts it now. `is_clean` ends the stream instead of
    /// resetting it.
    pub(in crate::client) fn close(&mut self, core: &CoreState, is_clean: bool) {
        if let (Some(key), false) = (self.key, self.received.end == Some(Ok(()))) {
            match is_clean {
                true => self.finish(),
                false => self.h2.reset(key, CANCEL),
            }
        }
        self.h2.go_away(NO_ERROR, true);
        // The connection is closed in any case.
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()), core);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, core: &CoreState) -> Result<(), FailureKind> {
        let output = self.h2.output();
        while !output.is_empty() {
            match self.stream.poll_write(cx, output) {
                Poll::Pending => break,
                Poll::Ready(Ok(bytes)) => {
                    output.drain(..bytes);
                    core.recorder.borrow_mut().counters.bytes_out += bytes as u64;
                }
                Poll::Ready(Err(error)) => return Err(FailureKind::from_io_error(&error)),
            }
        }
        Ok(())
    }

    /// Reads once and handles all complete frames.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        core: &CoreState,
        scratch: &mut [u8],
    ) -> Poll<Result<(), FailureKind>> {
        self.poll_flush(cx, core)?;
        if self.h2.is_output_full() {
            return Poll::Pending;
        }
        let kept = self.partial_frame.len();
        scratch[..kept].copy_from_slice(&self.partial_frame);
        let bytes = match ready!(self.stream.poll_read(cx, &mut scratch[kept..])) {
            Ok(0) => return Poll::Ready(Err(FailureKind::Closed)),
            Ok(bytes) => bytes,
            Err(error) => return Poll::Ready(Err(FailureKind::from_io_error(&error))),
        };
        core.recorder.borrow_mut().counters.bytes_in += bytes as u64;
        let input = &scratch[..kept + bytes];
        let mut used = 0;
        loop {
            let is_first = !self.received.has_settings;
            let (bytes, event) = self.h2.next_event(&input[used..]).map_err(|fault| {
                core.recorder.borrow_mut().note_malformation(Malformation::Http2(fault));
                // An HTTP/1.1 server responds to the preface of HTTP/2 with an error (RFC 9113 §3.4).
                let is_http1 = is_first && input.starts_with(b"HTTP/1.");
                if is_http1 { FailureKind::NoHttp2 } else { FailureKind::Parse }
            })?;
            used += bytes;
            let Some(event) = event else { break };
            if let Event::SettingsChanged = event {
                self.received.has_settings = true;
                let limit = self.h2.peer_streams_max().map(u64::from);
                if let Some(limit) = limit {
                    core.recorder.borrow_mut().counters.http2.note_streams_allowed(limit);
                }
                continue;
            }
            self.received.handle(event, core);
        }
        self.partial_frame.clear();
        self.partial_frame.extend_from_slice(&input[used..]);
        self.poll_flush(cx, core)?;
        Poll::Ready(Ok(()))
    }
}

impl TunnelReceived {
    /// Handles an event, which belongs to the only stream.
    fn handle(&mut self, event: Event<'_>, core: &CoreState) {
        let count = |count: &dyn Fn(&mut crate::recorder::Http2Counters)| {
            count(&mut core.recorder.borrow_mut().counters.http2);
        };
        match event {
            Event::Response { head, is_end, .. } => {
                if head.status < 200 {
                    self.interim_count += 1;
                    if core.limits.check_interim(self.interim_count).is_err() {
                        let reason = Malformation::Http1(RefusalKind::TooManyInterim);
                        core.recorder.borrow_mut().note_malformation(reason);
                        self.finish(Err(FailureKind::Parse));
                    }
                } else {
                    let fields = head.fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
                    self.head = Some(TunnelHead { status: head.status, fields: fields.collect() });
                }
                if is_end {
                    self.finish(Ok(()));
                }
            }
            Event::Data { bytes, is_end, .. } => {
                self.content.extend_from_slice(bytes);
                if is_end {
                    self.finish(Ok(()));
                }
            }
            Event::Trailers { .. } => self.finish(Ok(())),
            Event::Reset { is_unprocessed: true, .. } => self.finish(Err(FailureKind::RefusedStream)),
            Event::Reset { fault: Some(fault), .. } => {
                core.recorder.borrow_mut().note_malformation(Malformation::Http2(fault));
                self.finish(Err(FailureKind::Parse));
            }
            Event::Reset { code, .. } => {
                count(&|http2| http2.count_reset(code.0));
                self.finish(Err(FailureKind::StreamReset));
            }
            Event::GoAway { code, .. } => count(&|http2| http2.count_goaway(code.0)),
            // A client gets no requests, and windows are tried with each write.
            _ => {}
        }
    }

    /// Notes the end of the stream; the first one counts.
    fn finish(&mut self, end: Result<(), FailureKind>) {
        self.end.get_or_insert(end);
    }
}
