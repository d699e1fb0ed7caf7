//! Timeouts of a client's HTTP/2 connection: one deadline of the core's table for all of them. The
//! decisions are in [`server_shell::h2_timers`], and in `ping`.

use std::task::Poll;

use rt::clock::MonotonicTime;
use server_shell::h2_timers::{H2Timeout, H2Timeouts, OutputProgress, WriteCheck};
use server_shell::progress::ProgressRule;

use super::ping::PingCheck;
use super::{ClientHttp2, ClientHttp2Outcome};
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::PollContext;
use crate::metrics::H2Count;

/// Payload of PING frames to a silent client.
const PING_PAYLOAD: u64 = u64::from_be_bytes(*b"weirping");
/// Time without streams after which a connection frees what it does not need.
const SHRINK_NS: u64 = 300_000_000;

impl ClientHttp2 {
    /// Waits for the client or the engine, unless a timeout has expired.
    pub(super) fn wait(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> Poll<ClientHttp2Outcome> {
        let is_settled = self.timers.is_settled() && self.channels.in_use() > 0;
        if is_settled && !self.shutdown.is_announced() && !client.is_deadline_expired() {
            return Poll::Pending;
        }
        let now = ctx.core.ticks.now.get();
        let timeouts = self.timeouts(client);
        if self.armed != MonotonicTime::MAX && client.is_deadline_expired() {
            self.armed = MonotonicTime::MAX;
            if let Some(end) = self.handle_timeouts(ctx, client, &timeouts, now) {
                return Poll::Ready(end);
            }
        }
        let due = self.next_due(&timeouts, now);
        // An earlier deadline stays: when it expires, the next one is set.
        if due < self.armed {
            self.armed = due;
            client.arm(ctx, TimeoutKind::Http2, due.since(now));
        }
        Poll::Pending
    }

    fn timeouts(&self, client: &ClientStream) -> H2Timeouts {
        let timeouts = client.timeouts();
        H2Timeouts {
            head_ns: client.effective_timeout_ns(timeouts.head_ns),
            idle_ns: match self.shutdown.is_announced() {
                true => u64::MAX,
                false => client.effective_timeout_ns(timeouts.keep_alive_ns),
            },
            write: ProgressRule::new(timeouts.write_ns, timeouts.write_progress_bytes),
        }
    }

    fn next_due(&mut self, timeouts: &H2Timeouts, now: MonotonicTime) -> MonotonicTime {
        let load = self.load();
        let due = self.timers.update(timeouts, load, now);
        due.min(self.shrink_due())
            .min(self.shutdown.announced_until())
            .min(self.pings.due(self.channels.ping_times()))
    }

    fn shrink_due(&self) -> MonotonicTime {
        match self.timers.idle_since() {
            Some(since) if self.holds_memory => since.saturating_add(SHRINK_NS),
            _ => MonotonicTime::MAX,
        }
    }

    /// Handles the timeouts that have passed. Returns the end of the connection, if there is one.
    fn handle_timeouts(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        timeouts: &H2Timeouts,
        now: MonotonicTime,
    ) -> Option<ClientHttp2Outcome> {
        let output_before = self.connection.output().len();
        match self.timers.expired(timeouts, now) {
            Some(H2Timeout::Head) => return Some(self.end_now(ctx, client, ClientHttp2Outcome::Linger)),
            Some(H2Timeout::Idle) => self.announce_shutdown(ctx.core),
            None if self.shrink_due() <= now => self.shrink(),
            None => {}
        }
        if self.shutdown.announced_until() <= now {
            self.finish_announcement();
        }
        if self.timers.is_check_due(now) && self.is_stalled(ctx, client, timeouts, now) {
            self.channels.note_stalled();
            return Some(self.end_now(ctx, client, ClientHttp2Outcome::Reset));
        }
        match self.pings.check(self.channels.ping_times(), now) {
            PingCheck::WaitUntil(_) => {}
            PingCheck::Send(_) => self.connection.ping(PING_PAYLOAD),
            PingCheck::Lost => {
                self.channels.count(|counters| counters.count(H2Count::PingsLost, 1));
                return Some(self.end_now(ctx, client, ClientHttp2Outcome::Reset));
            }
        }
        if self.connection.output().len() > output_before || self.is_finished() {
            ctx.cx.waker().wake_by_ref();
        }
        None
    }

    /// Resets the streams whose windows the client keeps closed. Returns whether it takes too little of
    /// all others.
    fn is_stalled(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        timeouts: &H2Timeouts,
        now: MonotonicTime,
    ) -> bool {
        let written_bytes = self.output.total_written();
        let output = OutputProgress {
            queued_bytes: self.output.total_queued(&mut self.connection),
            written_bytes,
            confirmed_bytes: client.stream.confirmed_bytes(written_bytes),
            control_bytes: self.control_bytes,
            unacked_bytes: client.stream.unacked_bytes().unwrap_or(0),
        };
        // Without the frames that reset streams below.
        let has_unsent = self.load().has_unsent;
        let mut check = WriteCheck::new(timeouts, output, now);
        self.channels.reset_stalled(ctx.core, &mut self.connection, &mut check);
        self.timers.is_connection_stalled(&check, has_unsent)
    }
}
