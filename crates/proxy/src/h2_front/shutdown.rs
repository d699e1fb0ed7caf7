//! The end of a client's HTTP/2 connection: announced by GOAWAY, and its timeouts.
//!
//! ```text
//! open -- drain, requests-max, idle --> announced -- round trip --> final -- no streams --> closed
//!          GOAWAY 2^31-1, PING                        GOAWAY n
//! ```
//! Between the two GOAWAY frames streams that were on their way are accepted (RFC 9113 §6.8), so no
//! request is lost.

use std::task::Poll;

use wire::h2::ErrorCode;

use super::ping::PingCheck;
use super::{Front, FrontEnd};
use crate::client_stream::{ClientStream, LINGER_TIMEOUT_NS, TimeoutKind};
use crate::core::{Core, PollContext};
use crate::metrics::H2Count;

/// Payloads of PING frames: behind the announcement of the end, and to a silent client.
const ANNOUNCEMENT_PAYLOAD: u64 = 0;
const PING_PAYLOAD: u64 = u64::from_be_bytes(*b"weirping");

/// Time without streams after which a connection frees what it does not need.
const SHRINK_NS: u64 = 300_000_000;

/// Progress of the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shutdown {
    #[default]
    Open,
    /// The end is announced. Streams that were on their way are accepted.
    Announced,
    /// No further streams are accepted.
    Final,
}

impl Shutdown {
    pub(super) fn is_announced(self) -> bool {
        self != Self::Open
    }
}

/// State of a wait.
enum Wait {
    Pending,
    /// The time is over.
    Over,
    /// The client is dead.
    Lost,
}

impl Front {
    /// Announces the end of the connection if there is a reason for it.
    pub(super) fn announce_shutdown_if_due(&mut self, core: &Core, client: &ClientStream) {
        if self.shutdown.is_announced() {
            return;
        }
        let must_end = core.drain.is_draining.get()
            || client.is_listener_removed()
            || client.is_rejected() && self.lanes.request_count() > 0
            || client.requests_max().is_some_and(|max| self.lanes.request_count() >= max);
        if must_end {
            self.announce_shutdown();
        }
    }

    fn announce_shutdown(&mut self) {
        self.shutdown = Shutdown::Announced;
        self.connection.go_away(ErrorCode::NO_ERROR, false);
        self.connection.ping(ANNOUNCEMENT_PAYLOAD);
    }

    /// Handles the response to a PING.
    pub(super) fn handle_pong(&mut self, payload: u64) {
        if payload == ANNOUNCEMENT_PAYLOAD {
            self.finish_announcement();
        }
    }

    /// Ends the announcement: the client has received it.
    pub(super) fn finish_announcement(&mut self) {
        if self.shutdown == Shutdown::Announced {
            self.shutdown = Shutdown::Final;
            self.connection.go_away(ErrorCode::NO_ERROR, true);
            self.lanes.count(|counters| counters.count_goaway_sent(ErrorCode::NO_ERROR));
        }
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_finished(&self) -> bool {
        self.lanes.in_use() == 0 && (self.shutdown == Shutdown::Final || self.is_half_closed)
    }

    /// Waits for the client or the engine, unless a timeout has expired.
    pub(super) fn wait(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
    ) -> Poll<FrontEnd> {
        let timeouts = *client.timeouts();
        let is_unsent = !self.connection.output().is_empty();
        if self.has_partial_frame || self.connection.is_head_incomplete() {
            let timeout_ns = client.effective_timeout_ns(timeouts.head_ns);
            if client.has_timed_out(ctx, TimeoutKind::Head, timeout_ns) {
                return Poll::Ready(FrontEnd::Linger);
            }
        } else if is_unsent {
            return self.wait_for_client(ctx, client, timeouts.write_ns);
        } else if self.lanes.in_use() > 0 {
            // The engine limits the time of a stream until its response is in the channel.
            match self.poll_wait(ctx, client, TimeoutKind::StreamWrite, timeouts.write_ns) {
                Wait::Pending => {}
                Wait::Lost => return Poll::Ready(FrontEnd::Reset),
                Wait::Over => {
                    self.lanes.reset_stalled(ctx.core, &mut self.connection, timeouts.write_progress_bytes);
                    client.disarm();
                    ctx.cx.waker().wake_by_ref();
                }
            }
        } else {
            return self.wait_idle(ctx, client);
        }
        Poll::Pending
    }

    /// Waits for the end of a time, and checks meanwhile whether the client lives.
    fn poll_wait(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        kind: TimeoutKind,
        time_ns: u64,
    ) -> Wait {
        let now = ctx.core.ticks.now.get();
        if client.timeout_kind() != kind {
            self.wait_end = now.saturating_add(time_ns);
        } else if !client.is_deadline_expired() {
            return Wait::Pending;
        } else if now >= self.wait_end {
            return Wait::Over;
        }
        let next = match self.pings.check(self.lanes.ping_times(), now) {
            PingCheck::WaitUntil(next) => next,
            PingCheck::Send(next) => {
                self.connection.ping(PING_PAYLOAD);
                ctx.cx.waker().wake_by_ref();
                next
            }
            PingCheck::Lost => {
                self.lanes.count(|counters| counters.count(H2Count::PingsLost, 1));
                return Wait::Lost;
            }
        };
        client.arm(ctx, kind, next.min(self.wait_end).since(now));
        Wait::Pending
    }

    /// Waits for a client that does not read.
    fn wait_for_client(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        timeout_ns: u64,
    ) -> Poll<FrontEnd> {
        if !client.has_timed_out(ctx, TimeoutKind::ClientWrite, timeout_ns) {
            return Poll::Pending;
        }
        // A blocked socket becomes writable only when a third of its buffer is free.
        let unsent_bytes = client.stream.unacked_bytes().unwrap_or_default();
        let has_progress = unsent_bytes != std::mem::replace(&mut self.blocked_bytes, unsent_bytes);
        if !has_progress {
            return Poll::Ready(FrontEnd::Reset);
        }
        client.arm(ctx, TimeoutKind::ClientWrite, timeout_ns);
        Poll::Pending
    }

    /// Waits for the next request.
    fn wait_idle(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) -> Poll<FrontEnd> {
        if self.shutdown.is_announced() {
            // A client that does not answer the PING has had the time to.
            if client.has_timed_out(ctx, TimeoutKind::Linger, LINGER_TIMEOUT_NS) {
                self.finish_announcement();
                ctx.cx.waker().wake_by_ref();
                client.arm(ctx, TimeoutKind::Linger, LINGER_TIMEOUT_NS);
            }
            return Poll::Pending;
        }
        let keep_alive_ns = client.effective_timeout_ns(client.timeouts().keep_alive_ns);
        let shrink_ns = SHRINK_NS.min(keep_alive_ns);
        if client.timeout_kind() != TimeoutKind::KeepAlive {
            if !client.has_timed_out(ctx, TimeoutKind::Shrink, shrink_ns) {
                return Poll::Pending;
            }
            self.shrink();
        }
        match self.poll_wait(ctx, client, TimeoutKind::KeepAlive, keep_alive_ns - shrink_ns) {
            Wait::Pending => Poll::Pending,
            Wait::Lost => Poll::Ready(FrontEnd::Reset),
            Wait::Over => {
                self.announce_shutdown();
                ctx.cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}
