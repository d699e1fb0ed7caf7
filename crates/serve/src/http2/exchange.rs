//! Requests of a connection that could not be answered at once, by the slots of their streams. No
//! I/O.

use std::borrow::Cow;
use std::collections::VecDeque;

use rt::clock::MonotonicTime;
use server_shell::h2_timers::{StreamBacklog, StreamWait, WriteCheck};
use server_shell::progress::{ProgressRule, ProgressTimer};
use wire::h2::{OnStream, StreamKey, StreamTable};

use crate::body::{BodyBlocks, RemainingBody};
use crate::respond::BodyKind;
use content::body::FileBody;

use super::request::Http2Request;

/// A request in progress.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) stream: StreamKey,
    pub(super) request: Http2Request,
    pub(super) phase: ExchangePhase,
    /// Content that is still to be sent.
    pub(super) content: Content,
    /// Bytes of the request's body that are to be read before the response.
    pub(super) unread_bytes: u64,
    /// Received bytes that were not returned to the client's window.
    pub(super) unconsumed_bytes: usize,
    /// Progress of the request's body, and of the response.
    pub(super) timer: ProgressTimer,
    pub(super) body_bytes: u64,
    /// Position in the connection's output behind the sent content.
    pub(super) sent_until: u64,
    /// Time at which the stream is reset without more of the request's body;
    /// [`MonotonicTime::MAX`]: none.
    pub(super) deadline: MonotonicTime,
    /// True if the request is complete, with its body.
    pub(super) is_received: bool,
    /// True if the stream ends with its response: the client would wait for a window that is not opened.
    pub(super) ends_with_response: bool,
    /// Content that may follow the begin of the response; then the stream ends with it.
    pub(super) rest_left: u64,
    /// True if it is in the queue of streams that can send.
    pub(super) is_ready: bool,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangePhase {
    /// The body of the request is being read.
    Receiving,
    Delayed,
    Stats,
    /// The head of the response is sent, its content is not.
    Sending,
    /// The response is sent; the rest of the request's body is discarded.
    Discarding,
}

#[derive(Debug)]
pub(super) enum Content {
    Block(RemainingBody),
    Text(Cow<'static, [u8]>, usize),
    File(FileBody),
}

impl Content {
    pub(super) const EMPTY: Self = Self::Text(Cow::Borrowed(b""), 0);

    /// Returns the number of unsent bytes; of content that is encoded on the fly, the highest number.
    pub(super) fn remaining(&self) -> u64 {
        match self {
            Self::File(body) => body.remaining().unwrap_or(u64::MAX),
            Self::Block(body) => body.remaining,
            Self::Text(text, sent) => (text.len() - sent) as u64,
        }
    }

    fn sent(&self) -> u64 {
        match self {
            Self::File(body) => body.sent_bytes(),
            Self::Block(body) => 0_u64.wrapping_sub(body.remaining),
            Self::Text(_, sent) => *sent as u64,
        }
    }

    /// Moves the next bytes to `out`.
    pub(super) fn copy_to(&mut self, blocks: &BodyBlocks, bytes: usize, out: &mut Vec<u8>) {
        match self {
            Self::Block(body) => body.copy_to(blocks, bytes as u64, out),
            Self::Text(text, sent) => {
                out.extend_from_slice(&text[*sent..*sent + bytes]);
                *sent += bytes;
            }
            Self::File(body) => {
                out.extend_from_slice(&body.ready()[..bytes]);
                body.advance(bytes);
            }
        }
    }
}

impl Exchange {
    pub(super) fn new(stream: StreamKey, request: Http2Request, phase: ExchangePhase) -> Self {
        Self {
            stream,
            request,
            phase,
            content: Content::EMPTY,
            unread_bytes: 0,
            unconsumed_bytes: 0,
            timer: ProgressTimer::default(),
            body_bytes: 0,
            sent_until: 0,
            deadline: MonotonicTime::MAX,
            is_received: true,
            ends_with_response: false,
            rest_left: u64::MAX,
            is_ready: false,
        }
    }

    /// Adds its stream to the queue of those that can send, if it has content.
    fn queue(&mut self, ready: &mut VecDeque<StreamKey>) {
        if self.phase == ExchangePhase::Sending && !self.is_ready {
            self.is_ready = true;
            ready.push_back(self.stream);
        }
    }

    pub(super) fn note_body(&mut self, bytes: usize, rule: ProgressRule, now: MonotonicTime) {
        self.body_bytes += bytes as u64;
        self.timer.note(rule, self.body_bytes, now);
        self.deadline = self.timer.due(rule);
    }

    /// Ends the wait for the request's body.
    pub(super) fn end_body(&mut self) {
        self.timer.stop();
        self.deadline = MonotonicTime::MAX;
    }

    /// Checks whether the client takes the response.
    pub(super) fn check_progress(&mut self, check: &mut WriteCheck, window_bytes: u64) -> StreamWait {
        if self.phase != ExchangePhase::Sending {
            return StreamWait::Nothing;
        }
        let (sent_bytes, unsent_bytes) = (self.content.sent(), self.content.remaining());
        let is_delivered = check.is_delivered(self.sent_until);
        let backlog = StreamBacklog { sent_bytes, unsent_bytes, window_bytes, is_delivered };
        check.check_stream(&mut self.timer, backlog)
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.phase != ExchangePhase::Discarding && self.request.body_kind != BodyKind::Stats
    }
}

impl OnStream for Exchange {
    fn stream(&self) -> StreamKey {
        self.stream
    }
}

/// Requests in progress.
#[derive(Debug)]
pub(super) struct ExchangeTable {
    pub(super) streams: StreamTable<Exchange>,
    /// Streams that can send, in their order.
    ready: VecDeque<StreamKey>,
    /// A time before which no deadline of a stream passes.
    pub(super) deadline: MonotonicTime,
}

impl Default for ExchangeTable {
    fn default() -> Self {
        Self { streams: StreamTable::default(), ready: VecDeque::new(), deadline: MonotonicTime::MAX }
    }
}

impl ExchangeTable {
    /// Begins to wait for the body of a request, or for the rest of it.
    pub(super) fn begin_body(&mut self, stream: StreamKey, rule: ProgressRule, now: MonotonicTime) {
        if let Some(exchange) = self.streams.get_mut(stream) {
            exchange.timer.stop();
            exchange.note_body(0, rule, now);
            self.deadline = self.deadline.min(exchange.deadline);
        }
    }

    /// Removes all requests.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Exchange> + use<> {
        self.ready.clear();
        self.streams.drain()
    }

    pub(super) fn is_delayed(&self, stream: StreamKey) -> bool {
        self.streams.get(stream).is_some_and(|exchange| exchange.phase == ExchangePhase::Delayed)
    }

    /// Returns whether a stream can send.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a stream to the end of the queue of those that can send.
    pub(super) fn push_ready(&mut self, stream: StreamKey) {
        if let Some(exchange) = self.streams.get_mut(stream) {
            exchange.queue(&mut self.ready);
        }
    }

    /// Adds all streams with content to the queue.
    pub(super) fn push_all_ready(&mut self) {
        self.streams.iter_mut().for_each(|exchange| exchange.queue(&mut self.ready));
    }

    /// Removes the first stream from the queue; `None` if it is empty.
    pub(super) fn pop_ready(&mut self) -> Option<StreamKey> {
        while let Some(stream) = self.ready.pop_front() {
            // A stream that was reset is still in the queue.
            if let Some(exchange) = self.streams.get_mut(stream) {
                exchange.is_ready = false;
                return Some(stream);
            }
        }
        None
    }

    /// Releases memory that an idle connection does not need.
    pub(super) fn release_memory(&mut self) {
        if self.streams.is_empty() {
            *self = Self::default();
        }
    }
}
