//! A client's HTTP/2 connection: reads and writes its socket, and passes each stream to the engine of
//! HTTP/1.1.
//!
//! ```text
//!            frames                      channels
//!  socket <--------> wire::Connection <-----------> one Conn per stream -> exchange
//!                         ClientHttp2          StreamChannels
//! ```
//! `stream_channel` is one stream with its channel, `stream_channels` the table of them. `shutdown` announces the end of the
//! connection, `timeouts` has its timeouts.
//!
//! One poll has a few rounds. Each reads at most [`READS_MAX`] times, then passes on responses: at most
//! one frame of each stream in turn, until [`OUTPUT_BYTES_MAX`] wait to be written, and then writes them
//! all at once.

mod output;
mod ping;
mod response;
mod response_head;
mod shutdown;
mod stream_channel;
mod stream_channels;
mod timeouts;
mod websocket_key;

use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::MonotonicTime;
use server_shell::h2_timers::{H2Load, H2Timers, control_bytes};
use wire::h2::{Connection, Event, FaultKind, Role};

use crate::client_stream::{ClientStream, RejectedRequest};
use crate::core::{Core, PollContext};
use crate::metrics::H2Count;
use crate::profile::ProfilePhase;
use crate::session::SessionState;
use output::Output;
use ping::PingState;
use shutdown::Shutdown;
use stream_channels::StreamChannels;
pub(crate) use stream_channels::StreamSpawner;

const READS_MAX: u32 = 2;
/// Maximum number of times that a poll fills and writes the output, before other tasks run.
const ROUNDS_MAX: u32 = 4;
/// Bytes of output at which no more are added until they are written.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Size of the heads of requests in one poll at which their engines get their turn before more are read: a
/// head may be a thousand times as large as its frame.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Maximum capacity of the output that an idle connection keeps.
const OUTPUT_BYTES_KEPT: usize = 1024;

/// State of a client's HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct ClientHttp2 {
    connection: Connection,
    channels: StreamChannels,
    output: Output,
    shutdown: Shutdown,
    /// True if received bytes may be processed without reading more.
    has_unprocessed: bool,
    /// Size of the heads that were passed on in this poll.
    head_bytes: usize,
    /// True while the connection counts as busy.
    is_busy: bool,
    /// True if the client has ended its side, and still gets its responses.
    is_half_closed: bool,
    timers: H2Timers,
    pings: PingState,
    /// Deadline that is set.
    armed: MonotonicTime,
    /// Bytes of the output that are no responses.
    control_bytes: u64,
    /// True if memory may have been allocated since the connection freed it.
    holds_memory: bool,
}

/// Fate of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientHttp2Outcome {
    /// It is closed after the client had time to read the last frames.
    Linger,
    Close,
    Reset,
}

/// Work that an event leaves for after the borrow of the connection.
enum FollowUp {
    None,
    /// The head or trailer section of a request was passed on.
    CountHead,
    /// Content of a stream that nobody reads.
    Discard(wire::h2::StreamKey, usize),
    /// The client has responded to a PING with this payload.
    Pong(u64),
}

impl ClientHttp2 {
    /// Begins HTTP/2; `None` if the listener does not support it. Received bytes are in the client's
    /// buffer. `spawn_stream` starts the engine of a stream.
    pub(crate) fn new(client: &mut ClientStream, spawn_stream: StreamSpawner) -> Option<Self> {
        let shared = Rc::new(client.begin_h2());
        let plan = shared.settings.plan.http2.as_ref()?;
        let connection = Connection::new(Role::Server, &plan.config);
        let now = shared.settings.core.ticks.now.get();
        shared.count(|counters| counters.count(H2Count::Connections, 1));
        let connections = &shared.settings.core.load.h2_connections;
        connections.set(connections.get() + 1);
        Some(Self {
            connection,
            channels: StreamChannels::new(shared, spawn_stream),
            output: Output::default(),
            shutdown: Shutdown::default(),
            has_unprocessed: !client.buffered.is_empty(),
            head_bytes: 0,
            is_busy: false,
            is_half_closed: false,
            timers: H2Timers::new(now),
            pings: PingState::new(now),
            armed: MonotonicTime::MAX,
            control_bytes: 0,
            holds_memory: true,
        })
    }

    pub(crate) fn session_state(&self) -> SessionState {
        match (self.shutdown.is_announced(), self.is_busy) {
            (true, _) => SessionState::Closing,
            (false, true) => SessionState::Http2,
            (false, false) => SessionState::Idle,
        }
    }

    /// Returns the number of streams that the client has opened.
    pub(crate) fn request_count(&self) -> u32 {
        self.channels.request_count()
    }

    /// Notes that an operator closes the connection.
    pub(crate) fn note_killed(&self) {
        self.channels.note_killed();
    }

    /// Moves everything that can move. Ready: the connection is over.
    pub(crate) fn poll(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> Poll<ClientHttp2Outcome> {
        let core = ctx.core;
        self.channels.register_waker(ctx.cx.waker());
        self.head_bytes = 0;
        self.announce_shutdown_if_due(core, client);
        for _ in 0..ROUNDS_MAX {
            let reading = self.read(ctx, client, input);
            // Then nothing wakes this task for what is left of the input, except for the write.
            let waits_for_write = self.connection.is_output_full();
            self.serve_channels(core);
            let writing = self.flush(ctx.cx, client);
            self.count_busy(core);
            if let Some(end) = self.end_of(&reading, &writing) {
                return Poll::Ready(end);
            }
            let is_blocked = writing.is_pending();
            if reading.is_pending() && (is_blocked || !waits_for_write && !self.channels.has_ready()) {
                return self.wait(ctx, client);
            }
            self.announce_shutdown_if_due(core, client);
        }
        // A client that never stops to send must not stop the timers.
        if let Poll::Ready(end) = self.wait(ctx, client) {
            return Poll::Ready(end);
        }
        rt::cores::yield_turn(ctx.cx);
        Poll::Pending
    }

    /// Chooses the end of the connection after reading and writing, if there is one.
    fn end_of(
        &mut self,
        reading: &Poll<Result<(), ReadEnd>>,
        writing: &Poll<std::io::Result<()>>,
    ) -> Option<ClientHttp2Outcome> {
        match (reading, writing) {
            (_, Poll::Ready(Err(_))) | (Poll::Ready(Err(ReadEnd::Gone | ReadEnd::Eof)), _) => {
                Some(ClientHttp2Outcome::Close)
            }
            // The last frame is GOAWAY. A client that does not read it is not waited for.
            (Poll::Ready(Err(ReadEnd::Fault(fault))), _) => {
                self.channels.count(|counters| {
                    counters.count_fault(*fault);
                    counters.count_goaway_sent(fault.error_code());
                });
                Some(ClientHttp2Outcome::Linger)
            }
            (_, Poll::Ready(Ok(()))) if self.is_finished() => Some(ClientHttp2Outcome::Linger),
            _ => None,
        }
    }

    /// Reads and processes frames. Pending: there are no more for now.
    fn read(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> Poll<Result<(), ReadEnd>> {
        let core = ctx.core;
        let _section = core.profile.enter(ProfilePhase::ReadHead);
        for _ in 0..READS_MAX {
            // Floods of frames that have to be answered stop their sender.
            if self.connection.is_output_full() || self.is_half_closed {
                return Poll::Pending;
            }
            if self.head_bytes > HEAD_BYTES_MAX {
                break;
            }
            let kept = client.buffered.len();
            input[..kept].copy_from_slice(client.buffered.bytes());
            let mut end = kept;
            if !std::mem::take(&mut self.has_unprocessed) {
                match client.stream.poll_read(ctx.cx, &mut input[kept..]) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0)) if client.allows_half_close() => {
                        self.is_half_closed = true;
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(ReadEnd::Eof)),
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(ReadEnd::Gone)),
                    Poll::Ready(Ok(read)) => end += read,
                }
                self.pings.note_received(core.ticks.now.get());
            }
            client.buffered.release();
            let output_before = self.connection.output().len();
            let used = match self.process(ctx, &input[..end]) {
                Ok(used) => used,
                Err(fault) => return Poll::Ready(Err(ReadEnd::Fault(fault))),
            };
            self.holds_memory = true;
            self.control_bytes += control_bytes(output_before, self.connection.output().len());
            let has_rest = used < end && !self.has_unprocessed;
            let open_head = self.connection.incomplete_head();
            self.timers.note_input(used, has_rest, open_head, core.ticks.now.get());
            if !client.buffer_bytes(core, &input[used..end]) {
                return Poll::Ready(Err(ReadEnd::Gone));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Handles the events of received bytes. Returns the number of bytes used.
    fn process(&mut self, ctx: &mut PollContext<'_, '_>, input: &[u8]) -> Result<usize, FaultKind> {
        let mut used = 0;
        loop {
            if self.connection.is_output_full() || self.head_bytes > HEAD_BYTES_MAX {
                self.has_unprocessed = true;
                return Ok(used);
            }
            let (bytes, event) = self.connection.next_event(&input[used..])?;
            used += bytes;
            let Some(event) = event else { return Ok(used) };
            let follow_up = handle_event(&mut self.channels, ctx, event);
            match follow_up {
                FollowUp::None => {}
                FollowUp::CountHead => self.head_bytes += self.connection.last_head_bytes(),
                FollowUp::Discard(stream, bytes) => self.connection.consume(stream, bytes),
                FollowUp::Pong(payload) => self.handle_pong(payload),
            }
        }
    }

    /// Passes on responses, one frame of each stream in turn.
    fn serve_channels(&mut self, core: &Core) {
        let _section = core.profile.enter(ProfilePhase::ForwardResponse);
        let Self { connection, channels, output, .. } = self;
        while output.unwritten_bytes(connection) < OUTPUT_BYTES_MAX
            && channels.serve_next(core, connection, output)
        {}
    }

    /// Writes the output. Pending: the socket does not accept all of it.
    fn flush(&mut self, cx: &mut Context<'_>, client: &mut ClientStream) -> Poll<std::io::Result<()>> {
        let Self { connection, channels, output, .. } = self;
        output.poll_write(cx, &mut client.stream, connection, channels)
    }

    /// Counts the connection as busy while it has streams.
    fn count_busy(&mut self, core: &Core) {
        let is_busy = self.channels.in_use() > 0;
        if is_busy != std::mem::replace(&mut self.is_busy, is_busy) {
            let busy = core.load.h2_busy.get();
            core.load.h2_busy.set(if is_busy { busy + 1 } else { busy - 1 });
        }
    }

    /// Returns what the timers depend on.
    fn load(&mut self) -> H2Load {
        H2Load { has_streams: self.channels.in_use() > 0, has_unsent: !self.connection.output().is_empty() }
    }

    /// Closes what an idle connection does not need.
    fn shrink(&mut self) {
        self.holds_memory = false;
        self.channels.close_idle();
        let output = self.connection.output();
        if output.is_empty() && output.capacity() > OUTPUT_BYTES_KEPT {
            *output = Vec::new();
        }
        self.connection.release_memory();
    }
}

/// Reason that nothing more is read.
#[derive(Clone, Copy, Debug)]
enum ReadEnd {
    Eof,
    /// The connection failed.
    Gone,
    /// The client violates the protocol.
    Fault(FaultKind),
}

fn handle_event(channels: &mut StreamChannels, ctx: &mut PollContext<'_, '_>, event: Event<'_>) -> FollowUp {
    let core = ctx.core;
    match event {
        Event::Request { stream, head, is_end } => {
            channels.begin_request(ctx, stream, &head, is_end);
            return FollowUp::CountHead;
        }
        Event::RejectedRequest { stream, refusal, request_line } => {
            channels.reject_request(
                core,
                stream,
                RejectedRequest { refusal, request_line: request_line.into() },
            );
        }
        Event::Data { stream, bytes, is_end } => {
            if !channels.write_body(stream, bytes, is_end) {
                return FollowUp::Discard(stream, bytes.len());
            }
        }
        Event::Trailers { stream, fields } => {
            channels.write_trailers(stream, &fields);
            return FollowUp::CountHead;
        }
        Event::Reset { stream, code, fault, .. } => channels.handle_reset(core, stream, code, fault),
        Event::StreamWritable(stream) => channels.resume(stream),
        Event::ConnectionWritable => channels.resume_all(),
        Event::Pong(payload) => return FollowUp::Pong(payload),
        Event::GoAway { code, .. } => channels.count(|counters| counters.count_goaway_received(code)),
        // A server neither gets responses nor opens streams.
        Event::Response { .. } | Event::SettingsChanged => {}
    }
    FollowUp::None
}

impl Drop for ClientHttp2 {
    fn drop(&mut self) {
        let core = Rc::clone(self.channels.core());
        self.channels.reset_all(&core);
        self.count_busy(&core);
        core.load.h2_connections.set(core.load.h2_connections.get() - 1);
    }
}
