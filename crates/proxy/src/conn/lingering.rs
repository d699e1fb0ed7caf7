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
    /// Bytes that are still discarded.
    left_bytes: usize,
    /// Unacknowledged bytes at the last check.
    unacked_bytes: u64,
    deadline: MonotonicTime,
}

/// Maximum total time of a lingering close.
const LINGER_MAX_NS: u64 = 30_000_000_000;
/// Maximum number of bytes that are discarded. After that the connection is closed.
const LINGER_BYTES_MAX: usize = 4 << 20;
/// Bytes that a read counts as at least.
const READ_BYTES_MIN: usize = 1024;
/// Maximum number of reads in one poll, before other tasks run.
const READS_MAX: u32 = 8;

impl ClientStream {
    /// Shuts down the sending side and begins to wait for the client's close.
    pub(super) fn linger(&mut self) -> ConnState {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.buffered.release();
        self.timeout_kind = TimeoutKind::None;
        ConnState::Lingering(Box::new(LingeringClose {
            left_bytes: LINGER_BYTES_MAX,
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
        for _ in 0..READS_MAX {
            match self.client.stream.poll_read(ctx.cx, input) {
                Poll::Ready(Ok(read)) if read > 0 => {
                    lingering.left_bytes = lingering.left_bytes.saturating_sub(read.max(READ_BYTES_MIN));
                    if lingering.left_bytes == 0 {
                        return Poll::Ready(ConnState::Closed);
                    }
                }
                Poll::Ready(_) => return Poll::Ready(ConnState::Closed),
                Poll::Pending => {
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
