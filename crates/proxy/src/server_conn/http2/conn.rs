//! One HTTP/2 connection to a server, as its stream connections see it. The socket and the state of
//! HTTP/2 belong to its task (`task`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rt::byte_channel::{ChannelAddresses, ChannelBuffers, ReadyQueue};
use rt::stream::Stream;

use super::request_limit::{LearnedLimit, LimitEvidence, RequestCount};
use super::stream::{CHANNEL_BYTES_MAX, ServerHttp2Stream, StreamConn};
use crate::server_conn::ServerConn;

/// One HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct ServerHttp2Conn {
    /// Stream connections with news for the task, by number.
    pub(super) queue: Rc<ReadyQueue>,
    pub(super) streams: RefCell<StreamTable>,
    /// Maximum number of stream connections: as many as the server accepts streams.
    streams_max: Cell<usize>,
    active: Cell<usize>,
    phase: Cell<Phase>,
    /// True if the server accepts extended CONNECT (RFC 8441).
    supports_connect: Cell<bool>,
    pub(super) requests: RequestCount,
    /// True if the server was asked whether it ends the connection at the limit of its requests.
    is_asking: Cell<bool>,
    /// Content that is delivered and not returned to the window of the connection.
    unreturned: Cell<usize>,
    /// Amount of that content from which the window is scarce.
    scarce_from: usize,
    /// True if a stream connection was removed since the task checked.
    pub(super) has_freed: Cell<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No further streams; those in progress go on.
    Draining,
}

/// Stream connections by number.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    entries: Vec<Option<ServerHttp2Stream>>,
    free: Vec<u32>,
}

impl StreamTable {
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut ServerHttp2Stream> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Removes a stream connection, which closes its end of the channel.
    pub(super) fn remove(&mut self, number: u32) -> Option<ServerHttp2Stream> {
        let removed = self.entries.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(removed)
    }

    /// Returns all stream connections with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut ServerHttp2Stream)> {
        let numbered = self.entries.iter_mut().zip(0..);
        numbered.filter_map(|(entry, number)| Some((number, entry.as_mut()?)))
    }

    /// Removes and returns all stream connections.
    pub(super) fn take_all(&mut self) -> Vec<ServerHttp2Stream> {
        self.free.clear();
        std::mem::take(&mut self.entries).into_iter().flatten().collect()
    }

    /// Adds a stream connection, which `create` makes for its number.
    fn insert(&mut self, create: impl FnOnce(u32) -> ServerHttp2Stream) {
        // A connection has fewer than 2^31 streams.
        let number = self.free.pop().unwrap_or(self.entries.len() as u32);
        let entry = create(number);
        match self.entries.get_mut(number as usize) {
            Some(free) => *free = Some(entry),
            None => self.entries.push(Some(entry)),
        }
    }
}

impl ServerHttp2Conn {
    /// Creates the state of a connection with a receive window of `window_bytes`. It accepts no streams
    /// before [`ServerHttp2Conn::set_limits`].
    pub(super) fn new(window_bytes: u32) -> Rc<Self> {
        Rc::new(Self {
            queue: ReadyQueue::new(),
            streams: RefCell::default(),
            streams_max: Cell::new(0),
            active: Cell::new(0),
            phase: Cell::new(Phase::Open),
            supports_connect: Cell::new(false),
            requests: RequestCount::new(),
            is_asking: Cell::new(false),
            unreturned: Cell::new(0),
            scarce_from: window_bytes as usize / 4,
            has_freed: Cell::new(false),
        })
    }

    /// Opens a stream connection, if the connection accepts another one.
    pub(super) fn attach(self: &Rc<Self>, channels: &ChannelBuffers) -> Option<ServerConn> {
        if self.free_slots() == 0 {
            return None;
        }
        let (own, engine) = channels.open(CHANNEL_BYTES_MAX, ChannelAddresses::default());
        let shared = Rc::new(StreamConn::new(Rc::clone(self)));
        shared.reserve();
        let engine_shared = Rc::clone(&shared);
        self.streams.borrow_mut().insert(|number| {
            own.register(&self.queue, number);
            ServerHttp2Stream::new(own, shared)
        });
        Some(ServerConn::new_virtual(Stream::Channel(engine), engine_shared))
    }

    /// Returns the number of stream connections that may be opened now.
    pub(super) fn free_slots(&self) -> usize {
        match self.phase.get() {
            Phase::Open => {
                let slots = self.streams_max.get().saturating_sub(self.streams.borrow().len());
                slots.min(self.requests.room())
            }
            Phase::Draining => 0,
        }
    }

    /// Accepts no further streams. The task ends the connection after those in progress.
    pub(super) fn drain(&self) {
        self.phase.set(Phase::Draining);
        // Any number wakes the task.
        self.queue.push(0);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.phase.get() == Phase::Draining
    }

    pub(super) fn set_limits(&self, streams_max: usize, supports_connect: bool) {
        self.streams_max.set(streams_max);
        self.supports_connect.set(supports_connect);
    }

    /// Returns whether the server accepts extended CONNECT (RFC 8441).
    pub(super) fn supports_connect(&self) -> bool {
        self.supports_connect.get()
    }

    /// Returns whether a request was sent on the connection.
    pub(super) fn has_carried_request(&self) -> bool {
        self.requests.begun() > 0
    }

    pub(super) fn active(&self) -> usize {
        self.active.get()
    }

    /// Sets the number of requests after which the server ends its connections. The task asks the server at that
    /// number.
    pub(super) fn set_request_limit(&self, limit: u32) {
        self.requests.set_limit(limit);
        self.is_asking.set(false);
        // Any number wakes the task.
        self.queue.push(0);
    }

    /// Returns whether to ask the server if it ends the connection at this number of requests.
    pub(super) fn begins_asking(&self) -> bool {
        self.requests.is_exhausted() && !self.is_draining() && !self.is_asking.replace(true)
    }

    pub(super) fn raise_request_limit(&self, learned: &LearnedLimit, evidence: LimitEvidence) {
        if self.is_asking.take() && !self.is_draining() {
            self.requests.raise(learned, evidence);
            self.has_freed.set(true);
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.is_asking.get()
    }

    /// Notes the begin of a request for which a place was kept.
    pub(super) fn note_begun(&self) {
        self.requests.begin();
        self.active.set(self.active.get() + 1);
    }

    pub(super) fn note_ended(&self) {
        self.active.set(self.active.get() - 1);
    }

    pub(super) fn note_delivered(&self, bytes: usize) {
        self.unreturned.set(self.unreturned.get() + bytes);
    }

    pub(super) fn note_returned(&self, bytes: usize) {
        self.unreturned.set(self.unreturned.get() - bytes);
    }

    /// Returns whether much of the connection's window is delivered and not returned.
    pub(super) fn is_window_scarce(&self) -> bool {
        self.unreturned.get() >= self.scarce_from
    }
}
