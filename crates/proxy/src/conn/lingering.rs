//! The end of a connection whose client may still send. If a socket is closed with unread bytes, or
//! bytes arrive for a closed socket, the kernel sends a reset, which destroys the response in
//! transit. So the proxy shuts down its sending side first. It closes the socket once the client
//! has closed its side, or after a bounded time.

use std::net::Shutdown;
use std::task::Poll;

use rt::clock::MonotonicTime;

use super::{Conn, ConnState};
use crate::client_stream::{ClientStream, LINGER_TIMEOUT_NS, TimeoutKind};
use crate::core::PollContext;

/// A connection that is closing.
#[derive(Debug)]
pub(super) struct LingeringClose {
    reads: u32,
    /// Unacknowledged bytes at the last check.
    unacked_bytes: u64,
    /// Time at which the connection is closed in any case.
    deadline: MonotonicTime,
}

/// Maximum total time of a lingering close.
const LINGER_MAX_NS: u64 = 30_000_000_000;
/// Maximum number of reads whose data is discarded, each of up to 64 KiB. After that the connection
/// is closed.
const LINGER_READS_MAX: u32 = 64;
/// Maximum number of reads in one poll, before other tasks run.
const READS_MAX: u32 = 8;

impl ClientStream {
    /// Shuts down the sending side and begins to wait for the client's close.
    pub(super) fn linger(&mut self) -> ConnState {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.buffered.release();
        self.timeout_kind = TimeoutKind::None;
        ConnState::Lingering(Box::new(LingeringClose {
            reads: 0,
            unacked_bytes: u64::MAX,
            deadline: MonotonicTime::now().saturating_add(LINGER_MAX_NS),
        }))
    }

    /// Closes a connection between two requests: at once, unless part of the last response is
    /// unacknowledged.
    pub(super) fn close_idle(&mut self) -> ConnState {
        match self.stream.unacked_bytes() {
            Some(bytes) if bytes > 0 => self.linger(),
            _ => ConnState::Closed,
        }
    }
}

impl Conn {
    /// Reads and discards until the client has closed its side, or the time is over.
    pub(super) fn poll_lingering(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        input: &mut [u8],
    ) -> Poll<ConnState> {
        let ConnState::Lingering(lingering) = &mut self.state else {
            return Poll::Ready(ConnState::Closed);
        };
        let stop_at = LINGER_READS_MAX.min(lingering.reads + READS_MAX);
        while lingering.reads < stop_at {
            lingering.reads += 1;
            match self.client.stream.poll_read(ctx.cx, input) {
                Poll::Ready(Ok(read)) if read > 0 => {}
                Poll::Ready(_) => return Poll::Ready(ConnState::Closed),
                Poll::Pending => {
                    lingering.reads -= 1;
                    if self.client.has_timed_out(ctx, TimeoutKind::Linger, LINGER_TIMEOUT_NS) {
                        if !lingering.has_progress(&self.client) {
                            return Poll::Ready(ConnState::Closed);
                        }
                        self.client.arm(ctx, TimeoutKind::Linger, LINGER_TIMEOUT_NS);
                    }
                    return Poll::Pending;
                }
            }
        }
        if lingering.reads == LINGER_READS_MAX {
            return Poll::Ready(ConnState::Closed);
        }
        rt::cores::yield_turn(ctx.cx);
        Poll::Pending
    }
}

impl LingeringClose {
    /// Returns whether the client has acknowledged part of the response since the last check.
    fn has_progress(&mut self, client: &ClientStream) -> bool {
        let unacked_bytes = client.stream.unacked_bytes().unwrap_or_default();
        // The proxy's FIN counts as a byte.
        let has_acked = unacked_bytes > 1 && unacked_bytes < self.unacked_bytes;
        self.unacked_bytes = unacked_bytes;
        has_acked && MonotonicTime::now() < self.deadline
    }
}
