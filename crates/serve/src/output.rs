//! What a connection sends, as far as its socket takes it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use crate::body::{Fill, PIECES_MAX};
use crate::conn::Conn;
use crate::core::Core;
use crate::stats::add;

/// How many bytes one poll writes before others get their turn.
const POLL_BYTES_MAX: u64 = 1 << 20;

/// What is to be sent, and how much of it is.
#[derive(Debug)]
pub(crate) struct Outgoing<'b> {
    pub(crate) bytes: &'b [u8],
    /// Of `bytes`.
    pub(crate) sent: usize,
    /// What follows them.
    pub(crate) fill: Fill,
    /// At most so many bytes a write.
    pub(crate) piece: u64,
    /// Whether they count as bytes sent.
    pub(crate) counted: bool,
}

impl<'b> Outgoing<'b> {
    pub(crate) fn new(bytes: &'b [u8], fill: Fill) -> Self {
        Self { bytes, sent: 0, fill, piece: u64::MAX, counted: true }
    }
}

impl Conn {
    /// Writes as far as the socket takes it.
    #[inline]
    pub(crate) fn poll_out(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        outgoing: &mut Outgoing<'_>,
    ) -> Poll<io::Result<()>> {
        let mut budget = POLL_BYTES_MAX;
        loop {
            let rest = &outgoing.bytes[outgoing.sent..];
            if rest.is_empty() && outgoing.fill.left == 0 {
                return Poll::Ready(Ok(()));
            }
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let piece = outgoing.piece.min(POLL_BYTES_MAX) as usize;
            let rest = &rest[..rest.len().min(piece)];
            let written = if outgoing.fill.left == 0 {
                ready!(self.stream.poll_write(cx, rest))?
            } else {
                let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
                pieces[0] = IoSlice::new(rest);
                let room = (piece - rest.len()) as u64;
                let count = outgoing.fill.pieces(&core.blocks, room, &mut pieces);
                let from = usize::from(rest.is_empty());
                ready!(self.stream.poll_write_vectored(cx, &pieces[from..count]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if outgoing.counted {
                add(&core.counters.bytes_out, written as u64);
            }
            let of_bytes = written.min(rest.len());
            outgoing.sent += of_bytes;
            outgoing.fill.advance((written - of_bytes) as u64);
            budget = budget.saturating_sub(written as u64);
        }
    }
}
