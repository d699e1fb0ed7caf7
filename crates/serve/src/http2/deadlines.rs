//! Timeouts of a connection and of its streams: one deadline of the core's table for all of them. The
//! decisions are in [`server_shell::h2_timers`].

use std::task::Context;

use rt::clock::MonotonicTime;
use server_shell::h2_timers::{H2Load, H2Timeout, H2Timeouts, OutputProgress, StreamWait, WriteCheck};
use wire::h2::{ErrorCode, StreamKey};

use crate::core::{OriginCore, TICK_NS};
use crate::stats::{CloseReason, add};

use super::exchange::ExchangePhase;
use super::{Http2Conn, ShutdownState};

/// Time after which an idle connection releases its memory.
const MEMORY_TIMEOUT_NS: u64 = TICK_NS;

impl Http2Conn<'_> {
    /// Sets the deadline for the first of the timeouts.
    pub(super) fn arm(&mut self, cx: &Context<'_>, core: &OriginCore) {
        let (timeouts, load) = (self.timeouts(core), self.load());
        let due = self.timers.update(&timeouts, load, core.now());
        let due = due.min(self.exchanges.deadline).min(self.memory_due()).min(self.announced_until());
        // An earlier deadline stays: when it expires, the next one is set.
        if due < self.armed {
            self.armed = due;
            // The core's time is up to a tick old, and a deadline must never pass early.
            self.conn.set_deadline(cx, due.saturating_add(TICK_NS).as_ns());
        }
    }

    fn timeouts(&self, core: &OriginCore) -> H2Timeouts {
        let plan = &core.plan;
        H2Timeouts { head_ns: plan.head_timeout_ns, idle_ns: self.idle_timeout_ns, write: plan.write }
    }

    fn load(&self) -> H2Load {
        let has_streams = !self.exchanges.streams.is_empty() || self.wire.open_streams() > 0;
        H2Load { has_streams, has_unsent: !self.output.is_empty() }
    }

    /// Returns the time at which an idle connection releases its memory: only after a while, so that a
    /// busy connection keeps it.
    fn memory_due(&self) -> MonotonicTime {
        match self.timers.idle_since() {
            Some(since) if self.holds_memory && self.output.is_empty() => {
                since.saturating_add(MEMORY_TIMEOUT_NS)
            }
            _ => MonotonicTime::MAX,
        }
    }

    fn announced_until(&self) -> MonotonicTime {
        match self.shutdown {
            ShutdownState::Announced { until } => until,
            _ => MonotonicTime::MAX,
        }
    }

    /// Handles the timeouts that have passed. Returns the reason if the connection must end at once.
    pub(super) fn handle_deadline(&mut self, core: &OriginCore) -> Option<CloseReason> {
        if self.armed == MonotonicTime::MAX || !self.conn.deadline_expired() {
            return None;
        }
        self.armed = MonotonicTime::MAX;
        let (timeouts, now) = (self.timeouts(core), core.now());
        if self.timers.is_check_due(now) && self.is_stalled(core, &timeouts, now) {
            self.go_away();
            return Some(CloseReason::WriteStall);
        }
        if let ShutdownState::Failed(reason) = self.shutdown {
            // The time for the last frames is over.
            return self.timers.expired(&timeouts, now).map(|_| reason);
        }
        match self.timers.expired(&timeouts, now) {
            Some(H2Timeout::Head) => self.end_with_goaway(CloseReason::HeadTimeout),
            Some(H2Timeout::Idle) => self.end_with_goaway(CloseReason::IdleTimeout),
            None if self.memory_due() <= now => self.release_memory(),
            None => {}
        }
        if self.announced_until() <= now {
            self.close_when_done(CloseReason::Drained);
        }
        if self.exchanges.deadline <= now {
            self.reset_slow_requests(core, now);
        }
        None
    }

    /// Resets the streams whose windows the client keeps closed. Returns whether it takes too little of
    /// all others.
    fn is_stalled(&mut self, core: &OriginCore, timeouts: &H2Timeouts, now: MonotonicTime) -> bool {
        let written_bytes = self.output.written_bytes;
        let output = OutputProgress {
            queued_bytes: self.output.total_queued(self.wire.output().len()),
            written_bytes,
            confirmed_bytes: self.conn.stream.confirmed_bytes(written_bytes),
            control_bytes: self.output.control_bytes,
            unacked_bytes: self.conn.stream.unacked_bytes().unwrap_or(0),
        };
        let mut check = WriteCheck::new(timeouts, output, now);
        let mut stalled = Vec::new();
        for exchange in self.exchanges.streams.iter_mut() {
            let window_bytes = self.wire.stream_send_window(exchange.stream);
            if exchange.check_progress(&mut check, window_bytes) == StreamWait::Stalled {
                stalled.push(exchange.stream);
            }
        }
        for stream in stalled {
            self.reset_late(core, stream, ErrorCode::CANCEL);
        }
        self.timers.is_connection_stalled(&check, !self.output.is_empty())
    }

    /// Resets the streams whose requests arrive too slowly.
    fn reset_slow_requests(&mut self, core: &OriginCore, now: MonotonicTime) {
        let mut next = MonotonicTime::MAX;
        let mut late: Vec<(StreamKey, ErrorCode)> = Vec::new();
        for exchange in self.exchanges.streams.iter_mut() {
            if exchange.deadline <= now {
                // A client that has the response needs no error.
                let is_answered = exchange.phase == ExchangePhase::Discarding;
                let code = if is_answered { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
                late.push((exchange.stream, code));
            } else {
                next = next.min(exchange.deadline);
            }
        }
        self.exchanges.deadline = next;
        for (stream, code) in late {
            self.reset_late(core, stream, code);
        }
    }

    fn reset_late(&mut self, core: &OriginCore, stream: StreamKey, code: ErrorCode) {
        add(&core.counters.h2_streams_timed_out, 1);
        add(&core.counters.h2_resets_sent, 1);
        self.abandon(core, stream);
        self.wire.reset(stream, code);
    }
}
