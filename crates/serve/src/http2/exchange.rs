//! Requests of a connection that could not be answered at once, by the slots of their streams. No
//! I/O.

use std::borrow::Cow;
use std::collections::VecDeque;

use wire::h2::{OnStream, StreamKey, StreamTable};

use crate::body::{BodyBlocks, RemainingBody};
use crate::files::FileBody;
use crate::respond::BodyKind;

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
    /// Time without progress at which the stream is reset; `u64::MAX`: none.
    pub(super) deadline_ns: u64,
    /// True if the request is complete, with its body.
    pub(super) is_received: bool,
    /// True if it is in the queue of streams that can send.
    pub(super) is_ready: bool,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangePhase {
    /// The body of the request is being read.
    Receiving,
    /// The response is delayed.
    Delayed,
    /// The counters are being collected.
    Stats,
    /// The head of the response is sent, its content is not.
    Sending,
    /// The response is sent; the rest of the request's body is discarded.
    Discarding,
}

/// Content of a response.
#[derive(Debug)]
pub(super) enum Content {
    /// Bytes of a block of the core.
    Block(RemainingBody),
    /// A text, and the number of its sent bytes.
    Text(Cow<'static, [u8]>, usize),
    /// Content from files.
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
            deadline_ns: u64::MAX,
            is_received: true,
            is_ready: false,
        }
    }

    /// Adds its stream to the queue of those that can send, if it has content.
    fn queue(&mut self, ready: &mut VecDeque<StreamKey>) {
        if self.phase == ExchangePhase::Sending && !self.is_ready {
            self.is_ready = true;
            self.deadline_ns = u64::MAX;
            ready.push_back(self.stream);
        }
    }

    /// Returns whether it counts as in flight.
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
    pub(super) deadline_ns: u64,
}

impl Default for ExchangeTable {
    fn default() -> Self {
        Self { streams: StreamTable::default(), ready: VecDeque::new(), deadline_ns: u64::MAX }
    }
}

impl ExchangeTable {
    /// Sets the time without progress after which a stream is reset.
    pub(super) fn set_deadline(&mut self, stream: StreamKey, deadline_ns: u64) {
        if let Some(exchange) = self.streams.get_mut(stream) {
            exchange.deadline_ns = deadline_ns;
            self.deadline_ns = self.deadline_ns.min(deadline_ns);
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
