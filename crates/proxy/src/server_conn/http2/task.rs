//! The task of one HTTP/2 connection to a server: it owns the socket and the state of HTTP/2, and
//! moves bytes between them and the stream connections.
//!
//! ```text
//! engine -> channel -> ServerHttp2Stream::serve ----> Connection::output -> socket
//! engine <- channel <- ServerHttp2Stream::receive <-- Connection::next_event <- socket
//! ```
//! One poll serves all stream connections with news, writes once, and handles all events of a read.

use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use rt::cores::yield_turn;
use rt::deadlines::Deadline;
use rt::stream::Stream;
use rt::tls::TlsFault;
use wire::h2::{Config, Connection, ErrorCode, Event, FaultKind, INPUT_BYTES_MIN, Role, StreamKey};

use super::conn::{ServerHttp2Conn, StreamTable};
use super::events::After;
use super::request_limit::LimitEvidence;
use super::stream::{Next, ServerHttp2Stream, StreamEnd};
use super::timers::{ServerHttp2Timers, TimerResult};
use super::{ServerConnections, ServerHttp2Settings};
use crate::dial::ConnectError;
use crate::metrics::server_http2_counters::{ServerHttp2Counters, code_index, count};
use crate::server_conn::CoreServices;

/// Maximum number of reads in one poll before other tasks get their turn: the engine takes what was read
/// while it is in the cache.
const READS_MAX: u32 = 2;

/// Maximum number of reads of what is left in a connection that accepts no bytes: more than a receive buffer holds.
const REST_READS_MAX: u32 = 256;

/// Size of the heads of responses in one read at which the engines get their turn before more are
/// handled: a head may be a thousand times as large as its frame.
const HEAD_BYTES_MAX: usize = 256 * 1024;

/// The task of one connection.
#[derive(Debug)]
pub(super) struct ConnectionTask<C> {
    core: Rc<C>,
    server: Weak<ServerConnections>,
    settings: Rc<ServerHttp2Settings>,
    shared: Rc<ServerHttp2Conn>,
    socket: Stream,
    wire: Connection,
    /// Start of a frame whose rest has not arrived.
    incomplete: Vec<u8>,
    /// True if `incomplete` has complete frames, which are handled before anything is read.
    has_unhandled: bool,
    /// Stream connection of each slot of a stream.
    numbers: Vec<u32>,
    /// Stream connections whose requests wait until the server accepts another stream.
    waiting_for_stream: VecDeque<u32>,
    /// Stream connections whose requests wait until output is written.
    waiting_for_output: Vec<u32>,
    has_settings: bool,
    timers: ServerHttp2Timers,
    deadline: Option<Deadline>,
}

/// Result of reading from the socket.
enum Received {
    /// Something; there may be more.
    Bytes,
    /// Nothing now.
    Blocked,
    /// The connection is over.
    Ended(ConnectionEnd),
}

#[derive(Debug)]
pub(super) enum ConnectionEnd {
    Closed,
    /// The socket or the TLS session failed.
    Lost(io::Error),
    /// The server broke the rules of HTTP/2.
    Fault,
    /// The server accepts no streams any more (GOAWAY).
    GoneAway,
}

impl ConnectionEnd {
    /// Returns the error of a connection that ended before it accepted a stream. `has_begun`: it ended after the
    /// server's settings.
    fn into_connect_error(self, has_begun: bool) -> ConnectError {
        match self {
            // A server may reject the proxy's certificate only after the handshake (RFC 8446 §4.4.2.4).
            Self::Lost(error) if TlsFault::from_error(&error).is_some() => ConnectError::Handshake(error),
            Self::GoneAway => ConnectError::Ended,
            Self::Closed | Self::Lost(_) if has_begun => ConnectError::Ended,
            Self::Closed | Self::Lost(_) | Self::Fault => ConnectError::NoHttp2,
        }
    }
}

impl<C: CoreServices> ConnectionTask<C> {
    /// Creates the task for a connected socket.
    pub(super) fn new(
        core: Rc<C>,
        server: Weak<ServerConnections>,
        settings: Rc<ServerHttp2Settings>,
        socket: Stream,
    ) -> Self {
        let config = wire_config(&settings);
        let now = core.now();
        Self {
            server,
            shared: ServerHttp2Conn::new(config.connection_window_bytes),
            socket,
            wire: Connection::new(Role::Client, &config),
            incomplete: Vec::new(),
            has_unhandled: false,
            numbers: Vec::new(),
            waiting_for_stream: VecDeque::new(),
            waiting_for_output: Vec::new(),
            has_settings: false,
            timers: ServerHttp2Timers::new(&settings, now),
            deadline: None,
            core,
            settings,
        }
    }

    pub(super) fn shared(&self) -> &Rc<ServerHttp2Conn> {
        &self.shared
    }

    /// Begins HTTP/2: ready once the server accepts a stream, or has ended the connection. So a connection that
    /// no request can use is one that could not be established.
    pub(super) fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        let end = match self.poll_first_slot(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(end)) => end,
        };
        Poll::Ready(Err(end.into_connect_error(self.has_settings)))
    }

    fn poll_first_slot(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionEnd>> {
        for _ in 0..READS_MAX {
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                return Poll::Ready(Err(ConnectionEnd::Lost(error)));
            }
            match self.receive(cx) {
                Received::Ended(end) => return Poll::Ready(Err(end)),
                _ if self.shared.is_draining() => return Poll::Ready(Err(ConnectionEnd::GoneAway)),
                _ if self.shared.free_slots() > 0 => return Poll::Ready(Ok(())),
                Received::Bytes => {}
                Received::Blocked => return Poll::Pending,
            }
        }
        // A server that sends other frames instead must not stop the timeout.
        yield_turn(cx);
        Poll::Pending
    }

    /// Serves the connection to its end.
    pub(super) async fn run(mut self: Box<Self>) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        self.end();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.queue.register_waker(cx.waker());
        for _ in 0..READS_MAX {
            self.serve_streams();
            if matches!(self.poll_flush(cx), Poll::Ready(Err(_))) {
                self.receive_rest(cx);
                return Poll::Ready(());
            }
            match self.receive(cx) {
                Received::Ended(_) => return Poll::Ready(()),
                Received::Bytes => {}
                Received::Blocked if self.shared.queue.is_empty() => {
                    return self.poll_idle(cx);
                }
                Received::Blocked => {}
            }
        }
        yield_turn(cx);
        // A server that never stops to send must not stop the timers.
        match self.deadline.as_ref().is_some_and(Deadline::is_expired) {
            true => self.poll_idle(cx),
            false => Poll::Pending,
        }
    }

    /// Serves the stream connections with news, and those that can have a stream now.
    fn serve_streams(&mut self) {
        let shared = Rc::clone(&self.shared);
        if !self.waiting_for_stream.is_empty() {
            let count = self.wire.free_streams().min(self.waiting_for_stream.len());
            for number in self.waiting_for_stream.drain(..count) {
                shared.queue.push(number);
            }
        }
        let is_draining = shared.is_draining();
        {
            let mut streams = shared.streams.borrow_mut();
            // A round takes those that are listed now; further ones come with the next round.
            for _ in 0..shared.queue.len() {
                let Some(number) = shared.queue.pop() else { break };
                self.serve(&mut streams, number);
            }
            if is_draining {
                self.remove_idle(&mut streams, 0);
            } else if shared.begins_asking() {
                let due = self.timers.ask(&mut self.wire, self.core.now());
                // Also a server that never stops to send has no more time.
                self.deadline.iter().for_each(|deadline| deadline.set(due.as_ns()));
                self.remove_idle(&mut streams, 0);
            }
        }
        if shared.has_freed.take()
            && let Some(server) = self.server.upgrade()
        {
            server.serve_waiting(&self.core);
        }
    }

    fn serve(&mut self, streams: &mut StreamTable, number: u32) {
        let Some(stream) = streams.get_mut(number) else { return };
        let scheme = if self.socket.is_tls() { "https" } else { "http" };
        let next = stream.serve(&mut self.wire, scheme);
        if let Some(open) = &stream.open {
            let slot = open.key.slot as usize;
            if self.numbers.len() <= slot {
                self.numbers.resize(slot + 1, u32::MAX);
            }
            self.numbers[slot] = number;
        }
        match next {
            Next::Wait => {}
            Next::WaitForStream => self.waiting_for_stream.push_back(number),
            Next::WaitForOutput => self.waiting_for_output.push(number),
            Next::Remove => self.remove(streams, number),
            Next::ConnectionClosed => {
                self.shared.drain();
                self.remove(streams, number);
            }
        }
    }

    /// Removes a stream connection. A stream in progress is cancelled.
    fn remove(&mut self, streams: &mut StreamTable, number: u32) {
        let Some(mut stream) = streams.remove(number) else { return };
        self.shared.has_freed.set(true);
        stream.cancel_reservation();
        if stream.cancel(&mut self.wire) {
            self.with_counters(|counters| {
                count(&counters.resets_sent[code_index(ErrorCode::CANCEL)]);
            });
            // A request that its server left unanswered may be the first sign of a dead connection.
            self.timers.suspect(&mut self.wire, self.core.now());
        }
    }

    /// Removes idle stream connections until at most `max` are left.
    fn remove_idle(&mut self, streams: &mut StreamTable, max: usize) {
        let surplus = streams.len().saturating_sub(max);
        let is_idle =
            |(number, stream): (u32, &mut ServerHttp2Stream)| stream.open.is_none().then_some(number);
        let idle: Vec<u32> = streams.iter_mut().filter_map(is_idle).take(surplus).collect();
        for number in idle {
            self.remove(streams, number);
        }
    }

    /// Continues with a connection whose server does not end it at the limit of its requests.
    fn raise_request_limit(&self, evidence: LimitEvidence) {
        if let Some(server) = self.server.upgrade() {
            server.raise_request_limit(&self.shared, evidence);
        }
    }

    fn with_counters(&self, update: impl FnOnce(&ServerHttp2Counters)) {
        if let Some(server) = self.server.upgrade() {
            server.update_counters(update);
        }
    }

    /// Writes the output. Pending: the socket accepts no more now.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.wire.output().is_empty() {
            match self.socket.poll_write(cx, self.wire.output()) {
                Poll::Ready(Ok(written)) => drop(self.wire.output().drain(..written)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        for number in self.waiting_for_output.drain(..) {
            self.shared.queue.push(number);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what the server sent before it reset the connection: responses, and GOAWAY, which proves that requests
    /// were not processed.
    #[cold]
    fn receive_rest(&mut self, cx: &mut Context<'_>) {
        for _ in 0..REST_READS_MAX {
            self.wire.output().clear();
            if !matches!(self.receive(cx), Received::Bytes) {
                return;
            }
        }
    }

    /// Reads once, and handles the events.
    fn receive(&mut self, cx: &mut Context<'_>) -> Received {
        if self.wire.is_output_full() {
            return Received::Blocked;
        }
        let core = Rc::clone(&self.core);
        let input = &mut *core.read_buffer();
        let kept = self.incomplete.len();
        input[..kept].copy_from_slice(&self.incomplete);
        let end = if std::mem::take(&mut self.has_unhandled) {
            kept
        } else {
            match self.socket.poll_read(cx, &mut input[kept..]) {
                Poll::Pending => return Received::Blocked,
                Poll::Ready(Ok(0)) => return Received::Ended(ConnectionEnd::Closed),
                Poll::Ready(Ok(read)) => kept + read,
                Poll::Ready(Err(error)) => return Received::Ended(ConnectionEnd::Lost(error)),
            }
        };
        self.timers.note_received(core.now());
        match self.handle_events(&input[..end]) {
            Ok(used) => {
                self.incomplete.clear();
                self.incomplete.extend_from_slice(&input[used..end]);
                if !self.has_unhandled && self.incomplete.capacity() > 2 * INPUT_BYTES_MIN {
                    self.incomplete.shrink_to(INPUT_BYTES_MIN);
                }
                Received::Bytes
            }
            Err(fault) => {
                self.with_counters(|counters| count(&counters.faults[fault as usize]));
                Received::Ended(ConnectionEnd::Fault)
            }
        }
    }

    /// Handles all complete frames of `input`. Returns the number of bytes used.
    fn handle_events(&mut self, input: &[u8]) -> Result<usize, FaultKind> {
        let shared = Rc::clone(&self.shared);
        let mut streams = shared.streams.borrow_mut();
        let (mut at, mut head_bytes) = (0, 0);
        loop {
            if head_bytes > HEAD_BYTES_MAX {
                self.has_unhandled = true;
                return Ok(at);
            }
            let (used, event) = self.wire.next_event(&input[at..])?;
            at += used;
            let has_head = matches!(event, Some(Event::Response { .. } | Event::Trailers { .. }));
            let after = match event {
                None => return Ok(at),
                Some(Event::Response { stream: key, head, is_end }) => find(&self.numbers, &mut streams, key)
                    .map_or(After::Nothing, |(number, stream)| {
                        After::served(number, stream.receive_head(&head, is_end))
                    }),
                Some(Event::Data { stream: key, bytes, is_end }) => {
                    match find(&self.numbers, &mut streams, key) {
                        Some((number, stream)) => {
                            After::Content { number, needs_service: stream.receive_content(bytes, is_end) }
                        }
                        None => After::Unwanted(key, bytes.len()),
                    }
                }
                Some(Event::Trailers { stream: key, fields }) => find(&self.numbers, &mut streams, key)
                    .map_or(After::Nothing, |(number, stream)| {
                        After::served(number, stream.receive_trailers(fields))
                    }),
                Some(other) => After::of(other),
            };
            if has_head {
                head_bytes += self.wire.last_head_bytes();
            }
            self.follow_up(&mut streams, after);
        }
    }

    /// Does what an event requires of the connection.
    fn follow_up(&mut self, streams: &mut StreamTable, after: After) {
        match after {
            After::Nothing => {}
            After::Serve(number) => self.shared.queue.push(number),
            After::Content { number, needs_service } => {
                if let Some(stream) = streams.get_mut(number) {
                    stream.return_windows(&mut self.wire);
                }
                if needs_service {
                    self.shared.queue.push(number);
                }
            }
            After::Unwanted(key, bytes) => self.wire.consume(key, bytes),
            After::Reset { key, end, is_unprocessed } => {
                self.handle_reset(streams, key, end, is_unprocessed);
            }
            After::Writable(key) => {
                if let Some((number, _)) = find(&self.numbers, streams, key) {
                    self.shared.queue.push(number);
                }
            }
            After::AllWritable => {
                let open = streams.iter_mut().filter(|(_, stream)| stream.open.is_some());
                open.for_each(|(number, _)| self.shared.queue.push(number));
            }
            After::GoAway { last_stream } => {
                self.with_counters(|counters| count(&counters.goaways));
                self.shared.drain();
                self.shared.has_freed.set(true);
                if let Some(server) = self.server.upgrade() {
                    server.learn_request_limit(last_stream, self.shared.requests.begun());
                }
            }
            After::Settings => self.apply_settings(streams),
            After::Pong(payload) => {
                if self.timers.note_pong(payload) {
                    self.raise_request_limit(LimitEvidence::Answer);
                }
            }
        }
    }

    fn handle_reset(
        &mut self,
        streams: &mut StreamTable,
        key: StreamKey,
        end: StreamEnd,
        is_unprocessed: bool,
    ) {
        self.with_counters(|counters| {
            match end {
                StreamEnd::Reset(code) => count(&counters.resets_received[code_index(code)]),
                StreamEnd::Invalid(fault) => {
                    count(&counters.resets_sent[code_index(fault.error_code())]);
                    count(&counters.faults[fault as usize]);
                }
                StreamEnd::ConnectionLost => {}
            }
            if is_unprocessed {
                count(&counters.unprocessed);
            }
        });
        if let Some((number, stream)) = find(&self.numbers, streams, key) {
            match stream.receive_reset(end, is_unprocessed) {
                true => self.remove(streams, number),
                false => self.shared.queue.push(number),
            }
        }
    }

    /// Follows changed settings of the server.
    fn apply_settings(&mut self, streams: &mut StreamTable) {
        self.has_settings = true;
        let allowed = self.wire.free_streams() + self.wire.open_streams();
        let streams_max = allowed.min(self.settings.limits.streams_max as usize);
        self.shared.set_limits(streams_max, self.wire.peer_enables_connect_protocol());
        // Requests find other connections sooner than a stream here.
        self.remove_idle(streams, streams_max);
        self.shared.has_freed.set(true);
    }

    /// Checks the times of a connection that waits.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let active = self.shared.active();
        let is_unused = active == 0 && self.shared.streams.borrow().len() == 0;
        let is_over = is_unused && (self.settings.is_exclusive || self.core.is_draining());
        if is_over || active == 0 && self.shared.is_draining() {
            return Poll::Ready(());
        }
        if active == 0 && self.shared.is_asking() {
            // All requests got their responses: the server may never answer PING.
            self.raise_request_limit(LimitEvidence::Answer);
            self.shared.queue.push(0);
        }
        let now = self.core.now();
        if self.timers.takes_too_long(now) {
            self.raise_request_limit(LimitEvidence::NoAnswer);
            self.shared.queue.push(0);
        }
        match self.timers.check(&mut self.wire, active, now) {
            TimerResult::Idle => return Poll::Ready(()),
            TimerResult::PingLost => {
                self.with_counters(|counters| count(&counters.pings_lost));
                return Poll::Ready(());
            }
            TimerResult::CheckAt(due) => {
                let deadline =
                    self.deadline.get_or_insert_with(|| self.core.deadlines().register(cx.waker()));
                deadline.set(due.as_ns());
            }
        }
        if matches!(self.poll_flush(cx), Poll::Ready(Err(_))) {
            self.receive_rest(cx);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Ends the connection and all that is left on it.
    fn end(mut self: Box<Self>) {
        self.shared.drain();
        let server = self.server.upgrade();
        if let Some(server) = &server {
            server.remove(&self.shared);
        }
        let lost = self.shared.streams.borrow_mut().take_all();
        for mut stream in lost {
            stream.lose();
        }
        self.wire.go_away(ErrorCode::NO_ERROR, true);
        // Nothing depends on whether the server gets it.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let _ = self.poll_flush(&mut cx);
        if let Some(server) = server {
            server.serve_waiting(&self.core);
        }
    }
}

/// Returns the stream connection whose current stream is `key`.
fn find<'t>(
    numbers: &[u32],
    streams: &'t mut StreamTable,
    key: StreamKey,
) -> Option<(u32, &'t mut ServerHttp2Stream)> {
    let number = *numbers.get(key.slot as usize)?;
    let stream = streams.get_mut(number)?;
    let is_current = stream.open.as_ref().is_some_and(|open| open.key == key);
    is_current.then_some((number, stream))
}

/// Returns the settings of the proxy's end.
fn wire_config(settings: &ServerHttp2Settings) -> Config {
    let defaults = Config::default();
    let limits = &settings.limits;
    Config {
        stream_window_bytes_max: limits.stream_window_max,
        connection_window_bytes: defaults.connection_window_bytes.min(limits.connection_window_max),
        connection_window_bytes_max: limits.connection_window_max,
        head_bytes_max: settings.head_bytes_max + 32 * settings.headers_max,
        headers_max: settings.headers_max,
        ..defaults
    }
}
