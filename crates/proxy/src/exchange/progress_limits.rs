//! Limits for slow peers: the total time until a response's head, and the minimum progress of
//! bodies.
//!
//! A blocked socket becomes writable only when a third of its send buffer is free, for which a slow
//! peer may need minutes. So the progress of a blocked receiver is what it has confirmed
//! (`SIOCOUTQ`).

use rt::clock::MonotonicTime;

use crate::client_stream::{ClientStream, TimeoutKind};
use crate::core::{Core, PollContext, TICK_NS};
use crate::exchange_state::{ByteMark, Exchange};

/// Number of progress checks within the time that a stall may last.
const STALL_CHECKS: u64 = 8;
/// Bytes that a server must confirm in each `idle` of its pool while it blocks the proxy.
const SERVER_PROGRESS_BYTES: u64 = 4096;

impl Exchange {
    /// Returns whether the request's body arrives fast enough. Checked when bytes have arrived, so
    /// that a client that sends a trickle is found. A client that sends nothing at all runs into
    /// another timeout.
    pub(super) fn is_body_in_time(&mut self, core: &Core, client: &ClientStream) -> bool {
        let ByteMark { bytes, at } = self.progress.body;
        let now = core.ticks.now.get();
        if now.since(self.outcome.times.start) >= client.timeouts().body_ns {
            return false;
        }
        if at == MonotonicTime::ZERO {
            self.mark_body(now);
        } else if now.since(at) >= client.timeouts().body_progress_ns {
            self.mark_body(now);
            return self.request_relay.content_bytes - bytes >= client.timeouts().body_progress_bytes;
        }
        true
    }

    fn mark_body(&mut self, now: MonotonicTime) {
        self.progress.body = ByteMark { bytes: self.request_relay.content_bytes, at: now };
    }

    /// Returns the time left until the response's head is due. Bytes of the head do not restart it.
    pub(super) fn first_byte_left_ns(&mut self, core: &Core, timeout_ns: u64) -> u64 {
        let now = core.ticks.now.get();
        if self.attempt.first_byte_wait_start == MonotonicTime::ZERO {
            self.attempt.first_byte_wait_start = now;
        }
        timeout_ns.saturating_sub(now - self.attempt.first_byte_wait_start)
    }

    /// Returns whether a blocked peer has confirmed too little for `timeout_ns`. Called while
    /// nothing can be written to it. The first check comes soon, so that a short wait costs no
    /// system call.
    pub(super) fn is_peer_stalled(
        &mut self,
        ctx: &PollContext<'_, '_>,
        client: &mut ClientStream,
        kind: TimeoutKind,
        timeout_ns: u64,
    ) -> bool {
        let now = ctx.core.ticks.now.get();
        if client.timeout_kind() != kind {
            self.progress.stalled = None;
            client.arm(ctx, kind, TICK_NS.min(timeout_ns));
            return false;
        }
        if !client.is_deadline_expired() {
            return false;
        }
        // The time limit of the request's body is suspended while its server is the slow peer.
        self.mark_body(now);
        let (stream, min_bytes) = match (kind, &self.server) {
            (TimeoutKind::ServerWrite, Some(server)) => (&server.stream, SERVER_PROGRESS_BYTES),
            _ => (&client.stream, client.timeouts().write_progress_bytes.max(1)),
        };
        // A blocked TLS session still sends records, whose write is not complete.
        let sent_bytes = stream.tls_byte_counts().map_or(0, |counts| counts.sent);
        let confirmed_bytes =
            stream.unacked_bytes().map(|unacked_bytes| sent_bytes.wrapping_sub(unacked_bytes));
        let waited_ns = match (self.progress.stalled, confirmed_bytes) {
            (Some(ByteMark { bytes, at }), Some(confirmed_bytes))
                if (confirmed_bytes.wrapping_sub(bytes) as i64).max(0) < min_bytes as i64 =>
            {
                now.since(at)
            }
            (Some(ByteMark { at, .. }), None) => now.since(at),
            _ => {
                let bytes = confirmed_bytes.unwrap_or(0);
                self.progress.stalled = Some(ByteMark { bytes, at: now });
                0
            }
        };
        if waited_ns >= timeout_ns {
            return true;
        }
        let next_ns = (timeout_ns / STALL_CHECKS).max(TICK_NS);
        client.arm(ctx, kind, next_ns.min(timeout_ns - waited_ns));
        false
    }
}
