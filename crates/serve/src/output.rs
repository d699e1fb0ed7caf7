//! Output of a connection, as far as its socket accepts it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rt::stream::Stream;

use crate::body::{RemainingBody, SLICES_MAX};
use crate::core::OriginCore;
use crate::stats::add;

/// Maximum number of bytes per poll, so that others get their turn.
const POLL_BYTES_MAX: u64 = 1 << 20;

/// Bytes to send, and the number of sent ones.
#[derive(Debug)]
pub(crate) struct Outgoing<'b> {
    pub(crate) bytes: &'b [u8],
    /// Number of sent bytes of `bytes`.
    pub(crate) sent: usize,
    /// Content that follows `bytes`.
    pub(crate) body: RemainingBody,
    /// Maximum number of bytes per write.
    pub(crate) write_bytes_max: u64,
    pub(crate) counts_as_sent: bool,
}

impl<'b> Outgoing<'b> {
    pub(crate) fn new(bytes: &'b [u8], body: RemainingBody) -> Self {
        Self { bytes, sent: 0, body, write_bytes_max: u64::MAX, counts_as_sent: true }
    }

    /// Writes as much as the socket accepts.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
        stream: &mut Stream,
    ) -> Poll<io::Result<()>> {
        let mut budget = POLL_BYTES_MAX;
        loop {
            let rest = &self.bytes[self.sent..];
            if rest.is_empty() && self.body.remaining == 0 {
                return Poll::Ready(Ok(()));
            }
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let write_bytes_max = self.write_bytes_max.min(POLL_BYTES_MAX) as usize;
            let rest = &rest[..rest.len().min(write_bytes_max)];
            let written = if self.body.remaining == 0 {
                ready!(stream.poll_write(cx, rest))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                slices[0] = IoSlice::new(rest);
                let space = (write_bytes_max - rest.len()) as u64;
                let count = self.body.fill_slices(&core.body_blocks, space, &mut slices);
                let first_slice = usize::from(rest.is_empty());
                ready!(stream.poll_write_vectored(cx, &slices[first_slice..count]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if self.counts_as_sent {
                add(&core.counters.bytes_out, written as u64);
            }
            let bytes_sent = written.min(rest.len());
            self.sent += bytes_sent;
            self.body.advance((written - bytes_sent) as u64);
            budget = budget.saturating_sub(written as u64);
        }
    }
}
