//! One connection with HTTP/2 (RFC 9113): all its streams in one task, without a task per request.
//!
//! ```text
//!  read -> events -> responses, bodies (round-robin) -> one write -> read …
//!            |           ^
//!            '- delay, body of the request: wait in the table of streams
//! ```
//! The protocol itself is in [`wire::h2`]: this module decides the responses, the order of the
//! bodies, and the timeouts. Requests that need no wait leave nothing behind; all others have an
//! [`exchange::Exchange`]. The output of a poll is in the scratch buffer of the core.

mod deadlines;
mod events;
mod exchange;
mod file_content;
mod output;
mod request;
mod respond;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::{MonotonicTime, now_ns};
use rt::cores::yield_turn;
use rt::timers::Sleep;
use server_shell::h2_timers::H2Timers;
use wire::h2::{Connection, Counters, ErrorCode, Role, StreamKey};

use crate::conn::Conn;
use crate::core::{OriginCore, ScratchBuffers};
use crate::slow_path::lingering_close;
use crate::stats::{CloseReason, OriginStats, add};
use crate::target_cache::EncodedHeads;

use exchange::ExchangeTable;
use output::OutputQueue;

/// A connection with HTTP/2.
struct Http2Conn<'c> {
    conn: &'c mut Conn,
    wire: Connection,
    exchanges: ExchangeTable,
    encoded_heads: EncodedHeads,
    output: OutputQueue,
    /// Ends of delays, the earliest first.
    delays: BinaryHeap<Reverse<(u64, DelayTarget)>>,
    delay_timer: Option<(u64, Sleep)>,
    stats_query: Option<(StreamKey, StatsFuture)>,
    /// Streams that wait for the next one.
    stats_streams: VecDeque<StreamKey>,
    shutdown: ShutdownState,
    timers: H2Timers,
    /// Time to wait for the next stream.
    idle_timeout_ns: u64,
    /// Deadline that is set.
    armed: MonotonicTime,
    /// True while buffers for messages may be allocated.
    holds_memory: bool,
    /// Frames that are in the counters of the core.
    counted: Counters,
}

type StatsFuture = Pin<Box<dyn Future<Output = OriginStats>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DelayTarget {
    Response(u32, u32),
    Close,
}

/// Progress of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownState {
    Open,
    /// The client was asked to open no further streams. Those on their way are accepted until this
    /// time, or until it has acknowledged a PING (RFC 9113 §6.8).
    Announced {
        until: MonotonicTime,
    },
    /// No further streams are accepted; the connection ends with the last one.
    Final(CloseReason),
    /// The connection ends as soon as the output is sent.
    Failed(CloseReason),
}

/// Maximum number of reads per poll, so that others get their turn.
const READS_MAX: u32 = 4;
/// Maximum time between the announcement of the end and its last stream.
const ANNOUNCEMENT_NS: u64 = rt::clock::SECOND_NS;
/// Payload of the PING that follows the announcement.
const SHUTDOWN_PING: u64 = u64::from_be_bytes(*b"shutdown");

/// Serves a connection to its end, with the bytes in `conn.unparsed` as the first input.
pub(crate) async fn run(conn: &mut Conn) -> CloseReason {
    add(&conn.core.counters.h2_connections, 1);
    conn.disarm();
    conn.recheck_input = !conn.unparsed.is_empty();
    let (reason, lingers) = {
        let mut http2 = Http2Conn::new(conn);
        let reason = poll_fn(|cx| http2.poll(cx)).await;
        http2.abandon_all();
        (reason, matches!(http2.shutdown, ShutdownState::Final(_) | ShutdownState::Failed(_)))
    };
    if lingers {
        // Frames that the client sent meanwhile would turn the close into a reset, which may destroy
        // the GOAWAY frame and the responses before it.
        lingering_close(conn).await;
    }
    reason
}

impl<'c> Http2Conn<'c> {
    fn new(conn: &'c mut Conn) -> Self {
        let plan = &conn.core.plan;
        Self {
            wire: Connection::new(Role::Server, &plan.http2),
            exchanges: ExchangeTable::default(),
            encoded_heads: EncodedHeads::default(),
            output: OutputQueue::default(),
            delays: BinaryHeap::new(),
            delay_timer: None,
            stats_query: None,
            stats_streams: VecDeque::new(),
            shutdown: ShutdownState::Open,
            timers: H2Timers::new(conn.core.now()),
            idle_timeout_ns: plan.idle_timeout_ns,
            armed: MonotonicTime::MAX,
            holds_memory: true,
            counted: Counters::default(),
            conn,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        let core = Rc::clone(&self.conn.core);
        let scratch = &mut *core.scratch.borrow_mut();
        self.begin_output(scratch);
        let result = self.poll_connection(cx, &core, scratch);
        if self.wire.counters() != self.counted {
            self.count_frames(&core);
        }
        if !self.end_output(scratch) {
            return Poll::Ready(CloseReason::NoBuffer);
        }
        if result.is_pending() {
            self.wait(cx, &core);
        }
        result
    }

    fn poll_connection(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<OriginCore>,
        scratch: &mut ScratchBuffers,
    ) -> Poll<CloseReason> {
        if let Some(reason) = self.handle_deadline(core) {
            // The last frame is GOAWAY, if the socket accepts it at once.
            let _ = self.poll_flush(cx, core);
            return Poll::Ready(reason);
        }
        self.handle_drain(core);
        self.handle_delays(core, scratch);
        let mut reads = 0;
        loop {
            self.poll_stats(cx, core);
            self.fill_output(core);
            let is_blocked = match self.poll_flush(cx, core) {
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(reason)) => return Poll::Ready(reason),
                Poll::Pending => true,
            };
            if let Some(reason) = self.end_reason(is_blocked) {
                return Poll::Ready(reason);
            }
            if reads == READS_MAX || self.output.is_poll_budget_used() {
                yield_turn(cx);
                return Poll::Pending;
            }
            if !is_blocked && self.exchanges.has_ready() {
                continue;
            }
            if is_blocked && !self.may_read() {
                return Poll::Pending;
            }
            reads += 1;
            match self.poll_input(cx, core, scratch) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(reason)) => return Poll::Ready(reason),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Adds the frames without a use to the counters of the core.
    #[cold]
    fn count_frames(&mut self, core: &OriginCore) {
        let now = self.wire.counters();
        let before = std::mem::replace(&mut self.counted, now);
        let counters = &core.counters;
        for (cell, now, before) in [
            (&counters.h2_resets_received, now.resets_received, before.resets_received),
            (&counters.h2_rapid_resets, now.rapid_resets, before.rapid_resets),
            (&counters.h2_refused_streams, now.refused_streams, before.refused_streams),
            (&counters.h2_pings, now.pings, before.pings),
            (&counters.h2_settings, now.settings, before.settings),
            (&counters.h2_priorities, now.priorities, before.priorities),
            (&counters.h2_empty_frames, now.empty_frames, before.empty_frames),
            (&counters.h2_tiny_window_updates, now.tiny_window_updates, before.tiny_window_updates),
            (&counters.h2_late_frames, now.late_frames, before.late_frames),
        ] {
            add(cell, now - before);
        }
    }

    /// Returns whether input is useful while the output is blocked.
    fn may_read(&mut self) -> bool {
        let is_failed = matches!(self.shutdown, ShutdownState::Failed(_));
        !is_failed && !self.wire.is_output_full() && !self.output.is_full_with(self.wire.output().len())
    }

    /// Returns the reason for the end of the connection, if it has nothing left to do.
    fn end_reason(&self, is_blocked: bool) -> Option<CloseReason> {
        match self.shutdown {
            ShutdownState::Failed(reason) => (!is_blocked).then_some(reason),
            ShutdownState::Final(reason) => {
                let is_done = self.exchanges.streams.is_empty() && self.wire.open_streams() == 0;
                (is_done && !is_blocked).then_some(reason)
            }
            ShutdownState::Open | ShutdownState::Announced { .. } => None,
        }
    }

    /// Accepts no further streams: the connection ends with the last one.
    fn close_when_done(&mut self, reason: CloseReason) {
        if matches!(self.shutdown, ShutdownState::Final(_) | ShutdownState::Failed(_)) {
            return;
        }
        if self.shutdown == ShutdownState::Open {
            add(&self.conn.core.counters.h2_goaways_sent, 1);
        }
        self.wire.go_away(ErrorCode::NO_ERROR, true);
        self.shutdown = ShutdownState::Final(reason);
        self.reset_answered_requests();
    }

    /// Begins the end of the connection when the origin drains: the client learns of it before its
    /// streams are refused.
    fn handle_drain(&mut self, core: &OriginCore) {
        if !core.draining.get() || self.shutdown != ShutdownState::Open {
            return;
        }
        self.wire.go_away(ErrorCode::NO_ERROR, false);
        self.wire.ping(SHUTDOWN_PING);
        add(&core.counters.h2_goaways_sent, 1);
        self.shutdown = ShutdownState::Announced { until: core.now() + ANNOUNCEMENT_NS };
    }

    /// Responds to the requests whose delay has passed.
    fn handle_delays(&mut self, core: &OriginCore, scratch: &mut ScratchBuffers) {
        if self.delays.is_empty() {
            return;
        }
        let now_ns = now_ns();
        while let Some(&Reverse((deadline_ns, target))) = self.delays.peek() {
            if deadline_ns > now_ns {
                break;
            }
            self.delays.pop();
            match target {
                DelayTarget::Response(slot, id) => {
                    self.respond_delayed(core, scratch, StreamKey { slot, id });
                }
                DelayTarget::Close => self.close_when_done(CloseReason::Requested),
            }
        }
    }

    /// Registers the task for the end of the next delay.
    fn poll_delay_timer(&mut self, cx: &mut Context<'_>, core: &OriginCore) {
        let Some(&Reverse((deadline_ns, _))) = self.delays.peek() else {
            self.delay_timer = None;
            return;
        };
        if self.delay_timer.as_ref().is_none_or(|(armed_ns, _)| *armed_ns != deadline_ns) {
            self.delay_timer = Some((deadline_ns, core.timers.sleep_until(deadline_ns)));
        }
        let Some((_, sleep)) = &mut self.delay_timer else { return };
        if Pin::new(sleep).poll(cx).is_ready() {
            // It has passed since the last read of the clock.
            cx.waker().wake_by_ref();
        }
    }

    /// Adds a delay. Delays of streams that were reset are removed once they are the majority, so
    /// that a client cannot grow the heap.
    fn push_delay(&mut self, deadline_ns: u64, target: DelayTarget) {
        if self.delays.len() > 64 && self.delays.len() > 2 * self.exchanges.streams.len() {
            let exchanges = &self.exchanges;
            self.delays.retain(|Reverse((_, target))| match *target {
                DelayTarget::Response(slot, id) => exchanges.is_delayed(StreamKey { slot, id }),
                DelayTarget::Close => true,
            });
        }
        self.delays.push(Reverse((deadline_ns, target)));
    }

    fn poll_stats(&mut self, cx: &mut Context<'_>, core: &Rc<OriginCore>) {
        loop {
            if self.stats_query.is_none() {
                let Some(stream) = self.stats_streams.pop_front() else { return };
                let core = Rc::clone(core);
                self.stats_query = Some((stream, Box::pin(async move { core.collect_stats().await })));
            }
            let Some((stream, query)) = &mut self.stats_query else { return };
            let stream = *stream;
            let Poll::Ready(stats) = query.as_mut().poll(cx) else { return };
            self.stats_query = None;
            self.respond_with_stats(core, stream, &stats);
        }
    }

    /// Registers everything that the connection waits for.
    fn wait(&mut self, cx: &mut Context<'_>, core: &OriginCore) {
        if !self.delays.is_empty() {
            self.poll_delay_timer(cx, core);
        }
        self.arm(cx, core);
    }

    /// Releases the memory that an idle connection does not need.
    fn release_memory(&mut self) {
        self.holds_memory = false;
        self.exchanges.release_memory();
        self.output.release_memory();
        self.wire.release_memory();
        if self.delays.is_empty() {
            self.delays = BinaryHeap::new();
        }
        self.stats_streams = VecDeque::new();
    }
}

impl Drop for Http2Conn<'_> {
    fn drop(&mut self) {
        self.release_output();
    }
}
