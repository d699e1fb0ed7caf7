//! Timeouts of a connection and of its streams: one deadline of the core's table for all of them.

use std::task::Context;

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
        let is_head_incomplete = !self.conn.unparsed.is_empty() || self.wire.is_receiving_block();
        if !is_head_incomplete {
            self.head_since_ns = 0;
        } else if self.head_since_ns == 0 {
            self.head_since_ns = core.now_ns.get();
        }
        let deadline_ns = self.next_deadline_ns(core);
        if deadline_ns != self.armed_ns {
            self.armed_ns = deadline_ns;
            // The core's time is up to a tick old, and a deadline must never pass early.
            self.conn.set_deadline(cx, deadline_ns.saturating_add(TICK_NS));
        }
    }

    fn next_deadline_ns(&self, core: &OriginCore) -> u64 {
        let plan = &core.plan;
        let mut deadline_ns = self.exchanges.deadline_ns;
        let mut set_max = |since_ns: u64, timeout_ns: u64| {
            deadline_ns = deadline_ns.min(since_ns.saturating_add(timeout_ns));
        };
        if !self.output.is_empty() {
            set_max(self.output.progress_ns, plan.write_timeout_ns);
        }
        if self.head_since_ns != 0 {
            set_max(self.head_since_ns, plan.head_timeout_ns);
        } else if self.is_idle() {
            // Memory is released after a while only, so that a busy connection keeps it.
            let timeout_ns = if self.holds_memory { MEMORY_TIMEOUT_NS } else { u64::MAX };
            set_max(self.idle_since_ns, self.idle_timeout_ns.min(timeout_ns));
        }
        if let ShutdownState::Announced { until_ns } = self.shutdown {
            set_max(until_ns, 0);
        }
        deadline_ns
    }

    fn is_idle(&self) -> bool {
        self.exchanges.streams.is_empty() && self.output.is_empty() && self.wire.open_streams() == 0
    }

    /// Handles the timeouts that have passed. Returns the reason if the connection must end at once.
    pub(super) fn handle_deadline(&mut self, core: &OriginCore) -> Option<CloseReason> {
        if self.armed_ns == u64::MAX || !self.conn.deadline_expired() {
            return None;
        }
        self.armed_ns = u64::MAX;
        let (plan, now_ns) = (&core.plan, core.now_ns.get());
        let has_passed = |since_ns: u64, timeout_ns: u64| since_ns.saturating_add(timeout_ns) <= now_ns;
        if !self.output.is_empty() && has_passed(self.output.progress_ns, plan.write_timeout_ns) {
            return Some(CloseReason::WriteStall);
        }
        if self.head_since_ns != 0 && has_passed(self.head_since_ns, plan.head_timeout_ns) {
            self.end_with_goaway(CloseReason::HeadTimeout);
        } else if self.is_idle() && has_passed(self.idle_since_ns, self.idle_timeout_ns) {
            self.end_with_goaway(CloseReason::IdleTimeout);
        } else if self.is_idle() && has_passed(self.idle_since_ns, MEMORY_TIMEOUT_NS) {
            self.release_memory();
        }
        if let ShutdownState::Announced { until_ns } = self.shutdown
            && has_passed(until_ns, 0)
        {
            self.close_when_done(CloseReason::Drained);
        }
        if self.exchanges.deadline_ns <= now_ns {
            self.reset_stalled(core, now_ns);
        }
        None
    }

    /// Resets the streams that made no progress for too long.
    fn reset_stalled(&mut self, core: &OriginCore, now_ns: u64) {
        let mut next_ns = u64::MAX;
        let mut stalled: Vec<StreamKey> = Vec::new();
        for exchange in self.exchanges.streams.iter_mut() {
            if exchange.deadline_ns <= now_ns {
                stalled.push(exchange.stream);
            } else {
                next_ns = next_ns.min(exchange.deadline_ns);
            }
        }
        self.exchanges.deadline_ns = next_ns;
        for stream in stalled {
            let is_answered = self
                .exchanges
                .streams
                .get_mut(stream)
                .is_some_and(|one| one.phase == ExchangePhase::Discarding);
            // The client has the response and needs no error.
            let code = if is_answered { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
            add(&core.counters.h2_streams_timed_out, 1);
            add(&core.counters.h2_resets_sent, 1);
            self.abandon(core, stream);
            self.wire.reset(stream, code);
        }
    }
}
