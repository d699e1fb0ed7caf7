//! The streams of one client's connection with their channels to the engine. A channel is used by one
//! stream after the other.

use std::cell::Ref;
use std::rc::Rc;
use std::task::Waker;

use rt::byte_channel::{CHANNEL_BYTES, ChannelEnd, ReadyQueue};
use server_shell::h2_timers::{StreamWait, WriteCheck};
use wire::h2::{Connection, ErrorCode, FaultKind, Fields, RequestHead, StreamKey};

use super::output::Output;
use super::ping::PingTimes;
use super::response_head::LastHead;
use super::stream_channel::{StreamChannel, Turn};
use crate::client_stream::{H2Client, RejectedRequest};
use crate::core::{Core, PollContext};
use crate::metrics::{H2Count, H2Counters};

/// Starts the engine that serves the streams of a client at the other end of a channel, one after the
/// other. A rejected request is the only one.
pub(crate) type StreamSpawner = fn(ChannelEnd, &Rc<H2Client>, Option<RejectedRequest>);

#[derive(Debug)]
pub(super) struct StreamChannels {
    client: Rc<H2Client>,
    spawn_stream: StreamSpawner,
    /// Channels with news from the engine, and those whose next frame may be sent.
    ready: Rc<ReadyQueue>,
    channels: Vec<StreamChannel>,
    /// Channels whose engine waits for a request.
    idle: Vec<u32>,
    /// Entries without a channel.
    closed: Vec<u32>,
    channel_of_slot: Vec<u32>,
    in_use: usize,
    last_head: LastHead,
}

/// Mark of a slot without a channel.
const NO_CHANNEL: u32 = u32::MAX;

impl StreamChannels {
    pub(super) fn new(client: Rc<H2Client>, spawn_stream: StreamSpawner) -> Self {
        Self {
            client,
            spawn_stream,
            ready: ReadyQueue::new(),
            channels: Vec::new(),
            idle: Vec::new(),
            closed: Vec::new(),
            channel_of_slot: Vec::new(),
            in_use: 0,
            last_head: LastHead::default(),
        }
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        &self.client.settings.core
    }

    /// Returns the times of PING frames of the listener.
    pub(super) fn ping_times(&self) -> PingTimes {
        let plan = self.client.settings.plan.http2.as_ref();
        plan.map_or(PingTimes { interval_ns: u64::MAX, timeout_ns: u64::MAX }, |plan| PingTimes {
            interval_ns: plan.ping_interval_ns,
            timeout_ns: plan.ping_timeout_ns,
        })
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(super) fn request_count(&self) -> u32 {
        self.client.request_count.get()
    }

    pub(super) fn note_killed(&self) {
        self.client.note_killed();
    }

    pub(super) fn register_waker(&self, waker: &Waker) {
        self.ready.register_waker(waker);
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Counts something in the metrics of the listener.
    pub(super) fn count(&self, count: impl FnOnce(&H2Counters)) {
        self.client.count(count);
    }

    pub(super) fn begin_request(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        stream: StreamKey,
        head: &RequestHead<'_>,
        is_end: bool,
    ) {
        self.count_begin(ctx.core);
        let number = self.take_idle().unwrap_or_else(|| self.open_channel(ctx.core, None));
        self.assign(stream, number);
        self.channels[number as usize].begin(stream, head, is_end, &mut ctx.work.rng);
    }

    /// Begins a stream whose request the engine rejects.
    pub(super) fn reject_request(&mut self, core: &Core, stream: StreamKey, rejected: RejectedRequest) {
        self.count_begin(core);
        let number = self.open_channel(core, Some(rejected));
        self.assign(stream, number);
        self.channels[number as usize].begin_rejected(stream);
    }

    fn count_begin(&mut self, core: &Core) {
        self.in_use += 1;
        core.load.h2_streams.set(core.load.h2_streams.get() + 1);
        self.client.request_count.set(self.client.request_count.get().saturating_add(1));
        self.count(|counters| counters.count(H2Count::Streams, 1));
    }

    fn count_end(&mut self, core: &Core) {
        self.in_use -= 1;
        core.load.h2_streams.set(core.load.h2_streams.get() - 1);
    }

    /// Takes a channel whose engine waits for a request.
    fn take_idle(&mut self) -> Option<u32> {
        while let Some(number) = self.idle.pop() {
            let channel = &mut self.channels[number as usize];
            if channel.is_usable() {
                return Some(number);
            }
            channel.finish(false);
            self.closed.push(number);
        }
        None
    }

    /// Opens a channel, and starts the engine at its other end.
    fn open_channel(&mut self, core: &Core, rejected: Option<RejectedRequest>) -> u32 {
        let (engine, end) = core.memory.channel_buffers.open(CHANNEL_BYTES, self.client.addresses);
        let number = match self.closed.pop() {
            Some(number) => number,
            None => self.channels.len() as u32,
        };
        end.register(&self.ready, number);
        let channel = StreamChannel::new(number, end);
        match self.channels.get_mut(number as usize) {
            Some(slot) => *slot = channel,
            None => self.channels.push(channel),
        }
        (self.spawn_stream)(engine, &self.client, rejected);
        number
    }

    fn assign(&mut self, stream: StreamKey, number: u32) {
        let slot = stream.slot as usize;
        if self.channel_of_slot.len() <= slot {
            self.channel_of_slot.resize(slot + 1, NO_CHANNEL);
        }
        self.channel_of_slot[slot] = number;
    }

    fn find(&self, stream: StreamKey) -> Option<u32> {
        let number = *self.channel_of_slot.get(stream.slot as usize)?;
        let channel = self.channels.get(number as usize)?;
        (channel.stream() == Some(stream)).then_some(number)
    }

    /// Passes on content of a request. Returns false if nobody reads it.
    pub(super) fn write_body(&mut self, stream: StreamKey, bytes: &[u8], is_end: bool) -> bool {
        match self.find(stream) {
            Some(number) => {
                let is_read = self.channels[number as usize].write_body(bytes, is_end);
                self.serve_if_over(number);
                is_read
            }
            None => false,
        }
    }

    /// Serves a stream that waits only for the end of its request, once that has come.
    fn serve_if_over(&self, number: u32) {
        if self.channels[number as usize].is_over() {
            self.ready.push(number);
        }
    }

    /// Passes on the trailer section of a request.
    pub(super) fn write_trailers(&mut self, stream: StreamKey, fields: &Fields<'_>) {
        if let Some(number) = self.find(stream) {
            self.channels[number as usize].write_trailers(fields);
            self.serve_if_over(number);
        }
    }

    /// Handles the early end of a stream.
    pub(super) fn handle_reset(
        &mut self,
        core: &Core,
        stream: StreamKey,
        code: ErrorCode,
        fault: Option<FaultKind>,
    ) {
        self.count(|counters| match fault {
            Some(fault) => {
                counters.count_fault(fault);
                counters.count_reset_sent(code);
            }
            None => counters.count_reset_received(code),
        });
        if let Some(number) = self.find(stream) {
            self.channels[number as usize].reset();
            self.closed.push(number);
            self.count_end(core);
        }
    }

    /// Lets a stream send again.
    pub(super) fn resume(&mut self, stream: StreamKey) {
        if let Some(number) = self.find(stream) {
            self.ready.push(number);
        }
    }

    /// Lets all streams send again.
    pub(super) fn resume_all(&mut self) {
        for (number, channel) in (0..).zip(&self.channels) {
            if channel.stream().is_some() {
                self.ready.push(number);
            }
        }
    }

    /// Gives the next ready stream its turn. Returns false if there is none.
    pub(super) fn serve_next(
        &mut self,
        core: &Core,
        connection: &mut Connection,
        output: &mut Output,
    ) -> bool {
        let Some(number) = self.ready.pop() else { return false };
        let Some(channel) = self.channels.get_mut(number as usize) else { return true };
        if channel.stream().is_none() {
            // The engine may have closed an unused connection.
            if let Some(at) = self.idle.iter().position(|idle| *idle == number)
                && !channel.is_usable()
            {
                channel.finish(false);
                self.idle.swap_remove(at);
                self.closed.push(number);
            }
            return true;
        }
        let sent_before = channel.sent_bytes;
        let turn =
            channel.serve(connection, output, (&self.client.settings.plan.limits, &mut self.last_head));
        if channel.sent_bytes != sent_before {
            channel.sent_until = output.total_queued(connection);
        }
        match turn {
            Turn::Waiting => {}
            Turn::More => self.ready.push(number),
            Turn::Over { keeps_engine, reset } => {
                channel.finish(keeps_engine);
                if keeps_engine { &mut self.idle } else { &mut self.closed }.push(number);
                self.count_end(core);
                if let Some(code) = reset {
                    self.count(|counters| counters.count_reset_sent(code));
                }
            }
        }
        true
    }

    pub(super) fn received(&self, number: u32) -> Option<Ref<'_, [u8]>> {
        self.channels.get(number as usize)?.received()
    }

    /// Consumes bytes of a channel that were written.
    pub(super) fn consume_deferred(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(number as usize) {
            channel.consume_deferred();
        }
    }

    /// Checks all streams, and resets those whose windows the client keeps closed.
    pub(super) fn reset_stalled(&mut self, core: &Core, connection: &mut Connection, check: &mut WriteCheck) {
        for number in 0..self.channels.len() {
            let channel = &mut self.channels[number];
            let Some(stream) = channel.stream() else { continue };
            if channel.check_progress(check, connection.stream_send_window(stream)) == StreamWait::Stalled {
                channel.note_stalled();
                channel.reset();
                connection.reset(stream, ErrorCode::CANCEL);
                // Channels have numbers of 32 bits.
                self.closed.push(number as u32);
                self.count_end(core);
                self.count(|counters| counters.count_reset_sent(ErrorCode::CANCEL));
            }
        }
    }

    /// Lets the engines report the end of their requests as a timeout of the client.
    pub(super) fn note_stalled(&self) {
        self.channels.iter().for_each(StreamChannel::note_stalled);
    }

    /// Closes the unused channels.
    pub(super) fn close_idle(&mut self) {
        self.last_head.clear();
        for number in std::mem::take(&mut self.idle) {
            self.channels[number as usize].finish(false);
            self.closed.push(number);
        }
        if self.in_use == 0 {
            self.channels = Vec::new();
            self.closed = Vec::new();
            self.channel_of_slot = Vec::new();
            while self.ready.pop().is_some() {}
            self.ready.shrink();
        }
    }

    /// Aborts all requests.
    pub(super) fn reset_all(&mut self, core: &Core) {
        for channel in &mut self.channels {
            channel.reset();
        }
        core.load.h2_streams.set(core.load.h2_streams.get() - std::mem::take(&mut self.in_use));
    }
}
