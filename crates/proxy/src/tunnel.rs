//! Bytes in both directions between a client and a server: a TCP connection, CONNECT, or an
//! upgraded protocol.
//!
//! Each direction is a transfer: the bytes of one read into the core's scratch buffer go out in one
//! write. If the write is partial, the rest waits in a pooled buffer, and the transfer reads nothing
//! more until it is sent. So the slower side throttles the faster one through TCP. A transfer whose
//! reads keep filling the scratch buffer moves its bytes through a pipe instead ([`rt::splice`]),
//! until little arrives at a time again. TLS on either side is always copied.
//!
//! ```text
//!              FULL_READS reads of the whole scratch buffer
//!           .------------------------------------->.
//!       copying                                 splicing
//!           '<-------------------------------------'
//!              SMALL_FILLS fills of less than SMALL_FILL_BYTES, or no pipe
//! ```
//!
//! CPU time of a relaying thread in ns per kB moved, two TCP connections over loopback, Linux 6.18,
//! two CPUs that others used too; the quieter of two runs, the other one in brackets. Command:
//! `cargo run --release -p rt --example splice`.
//!
//! | bytes at a time | copy, 64 kB buffer | 256 kB buffer | splice, 256 kB pipe | 1 MB pipe |
//! | --- | --- | --- | --- | --- |
//! | 1 kB | 14,500 (14,900) | 14,500 (15,500) | 17,100 (18,300) | 17,400 (17,100) |
//! | 16 kB | 1,050 (990) | 1,160 (1,000) | 1,090 (1,280) | 1,170 (1,270) |
//! | 32 kB | 510 (630) | 510 (640) | 570 (780) | 540 (800) |
//! | 64 kB | 340 (610) | 370 (580) | 280 (490) | 360 (480) |
//! | 256 kB | 270 (500) | 200 (460) | 140 (180) | 230 (370) |
//! | a stream | 400 (580) | 400 (420) | 340 (400) | 280 (280) |
//!
//! So a splice costs about a fifth more for small amounts and a tenth to a quarter more at 32 kB.
//! From 64 kB on it costs less, down to half. A pipe of 1 MB gains more on a stream, but each
//! stalled reader holds all that its pipe holds.
//!
//! The end of one side's stream is forwarded once all bytes before it are delivered. The tunnel
//! ends with the second one. `timer` is its timeout.

mod limited;
mod timer;

use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

use rt::buffers::{BufferPool, PooledBuffer};
use rt::clock::MonotonicTime;
use rt::splice::{Pipe, PipePool, poll_drain, poll_fill};
use rt::stream::Stream;

pub(crate) use limited::TunnelLimits;
use timer::{Direction, TunnelTimer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelEnd {
    /// The side that ended its stream, or failed, first.
    pub(crate) first_to_end: Side,
    pub(crate) result: TunnelResult,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelResult {
    /// Both streams ended, and both were delivered completely.
    Finished,
    /// A connection failed: reset, gone, or closed while bytes were left for it.
    Failed(Side, io::ErrorKind),
    /// Bytes had to wait and no buffer was left for them.
    NoBuffer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteCounts {
    /// Bytes that the tunnel read from one side, without those read before it began.
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// Resources that a tunnel borrows from its core for one poll.
#[derive(Debug)]
pub(crate) struct TunnelResources<'a> {
    /// Unused between two polls.
    pub(crate) scratch: &'a mut [u8],
    pub(crate) pipes: &'a PipePool,
    pub(crate) buffers: &'a BufferPool,
}

/// Both directions between a client and a server.
#[derive(Debug)]
pub(crate) struct Tunnel {
    up: Transfer,
    down: Transfer,
    first_to_end: Option<Side>,
    has_progress: bool,
    timer: TunnelTimer,
}

/// Number of consecutive reads of the whole scratch buffer that switch a transfer to splicing.
const FULL_READS: u8 = 2;
/// Number of consecutive fills below [`SMALL_FILL_BYTES`] that switch it back to copying.
const SMALL_FILLS: u8 = 4;
/// Below this size a copy costs less than a splice; see the figures above.
const SMALL_FILL_BYTES: usize = 32 * 1024;
/// Maximum size of one fill, if the pipe is as large.
const FILL_BYTES_MAX: usize = 1024 * 1024;
/// Size of the pipes ([`PipePool::new`]).
pub(crate) const PIPE_BYTES: usize = 256 * 1024;
/// Maximum number of reads from each side in one poll, before other tasks run.
const ROUNDS_MAX: u32 = 4;

impl Tunnel {
    /// Creates a tunnel that first delivers the bytes already read from each side.
    pub(crate) fn new(from_client: PooledBuffer, from_server: PooledBuffer) -> Self {
        Self {
            up: Transfer::new(from_client),
            down: Transfer::new(from_server),
            first_to_end: None,
            has_progress: false,
            timer: TunnelTimer::default(),
        }
    }

    /// Moves available bytes. After `Ready` the tunnel is over, and must not be polled again.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        server: &mut Stream,
        resources: &mut TunnelResources<'_>,
    ) -> Poll<TunnelEnd> {
        let previous = (self.up.byte_counts, self.down.byte_counts);
        // Both in any case: if one side is gone, the other still gets its last bytes.
        let up = self.up.poll(cx, client, server, resources);
        let down = self.down.poll(cx, server, client, resources);
        self.has_progress |= previous != (self.up.byte_counts, self.down.byte_counts);
        let end = self.evaluate(up, down);
        if end.is_ready() {
            self.release();
        }
        end
    }

    fn evaluate(&mut self, up: TransferPoll, down: TransferPoll) -> Poll<TunnelEnd> {
        let failed = |poll: TransferPoll, from, to| match poll {
            Poll::Ready(Err(TransferError::ReadFailed(kind))) => Some(TunnelResult::Failed(from, kind)),
            Poll::Ready(Err(TransferError::WriteFailed(kind))) => Some(TunnelResult::Failed(to, kind)),
            Poll::Ready(Err(TransferError::NoBuffer)) => Some(TunnelResult::NoBuffer),
            Poll::Ready(Ok(())) | Poll::Pending => None,
        };
        let failure =
            failed(up, Side::Client, Side::Server).or_else(|| failed(down, Side::Server, Side::Client));
        if self.first_to_end.is_none() {
            self.first_to_end = match (self.up.eof_received, self.down.eof_received, failure) {
                (true, _, _) => Some(Side::Client),
                (false, true, _) => Some(Side::Server),
                (false, false, Some(TunnelResult::Failed(side, _))) => Some(side),
                (false, false, _) => None,
            };
        }
        // Without a buffer neither side ended it; the client is an arbitrary choice then.
        let first_to_end = self.first_to_end.unwrap_or(Side::Client);
        match (failure, up, down) {
            (Some(result), _, _) => Poll::Ready(TunnelEnd { first_to_end, result }),
            (None, Poll::Ready(_), Poll::Ready(_)) => {
                Poll::Ready(TunnelEnd { first_to_end, result: TunnelResult::Finished })
            }
            _ => Poll::Pending,
        }
    }

    /// Returns the time at which the tunnel has been idle for `timeout_ns`, if nothing moves until then.
    pub(crate) fn due(&mut self, timeout_ns: u64, now: MonotonicTime) -> MonotonicTime {
        let directions = [&self.up, &self.down].map(|transfer| Direction {
            received_bytes: transfer.byte_counts.received,
            sent_bytes: transfer.byte_counts.sent,
            has_backlog: transfer.has_backlog(),
        });
        self.timer.due(directions, timeout_ns, now)
    }

    /// Notes bytes that moved since the last call.
    pub(crate) fn note_progress(&mut self, timeout_ns: u64, now: MonotonicTime) {
        if std::mem::take(&mut self.has_progress) {
            self.due(timeout_ns, now);
        }
    }

    pub(crate) fn up(&self) -> ByteCounts {
        self.up.byte_counts
    }

    pub(crate) fn down(&self) -> ByteCounts {
        self.down.byte_counts
    }

    #[cfg(test)]
    pub(crate) fn first_to_end(&self) -> Option<Side> {
        self.first_to_end
    }

    /// Releases buffers and pipes, with their remaining contents.
    pub(crate) fn release(&mut self) {
        for transfer in [&mut self.up, &mut self.down] {
            transfer.pending.release();
            transfer.pipe = None;
        }
    }
}

#[derive(Debug)]
struct Transfer {
    /// Bytes that were read and not written yet.
    pending: PooledBuffer,
    /// The pipe while it has bytes; an empty one is returned to the pool.
    pipe: Option<Pipe>,
    splicing: bool,
    /// Number of consecutive reads or fills that favour the other mode.
    streak: u8,
    /// True if the source's stream has ended.
    eof_received: bool,
    /// True if that end was forwarded, as far as the receiver's socket accepts it.
    eof_forwarded: bool,
    byte_counts: ByteCounts,
}

/// Reason why a transfer cannot continue.
#[derive(Clone, Copy, Debug)]
enum TransferError {
    ReadFailed(io::ErrorKind),
    WriteFailed(io::ErrorKind),
    NoBuffer,
}

/// Ready with `Ok`: the stream ended, and the end was forwarded.
type TransferPoll = Poll<Result<(), TransferError>>;

impl Transfer {
    fn new(pending: PooledBuffer) -> Self {
        Self {
            pending,
            pipe: None,
            splicing: false,
            streak: 0,
            eof_received: false,
            eof_forwarded: false,
            byte_counts: ByteCounts::default(),
        }
    }

    /// Returns whether bytes wait for the receiver.
    fn has_backlog(&self) -> bool {
        !self.pending.is_empty() || self.pipe.as_ref().is_some_and(|pipe| pipe.buffered_bytes() > 0)
    }

    #[inline]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        resources: &mut TunnelResources<'_>,
    ) -> TransferPoll {
        if self.eof_forwarded {
            return Self::poll_end(cx, to);
        }
        for round in 0.. {
            ready!(self.poll_pending(cx, to))?;
            if self.eof_received {
                return self.forward_end(cx, from, to);
            }
            if round == ROUNDS_MAX {
                rt::cores::yield_turn(cx);
                break;
            }
            if self.splicing {
                ready!(self.poll_splice(cx, from, resources.pipes))?;
            } else {
                ready!(self.poll_copy(cx, from, to, resources))?;
            }
        }
        Poll::Pending
    }

    fn forward_end(&mut self, cx: &mut Context<'_>, from: &Stream, to: &mut Stream) -> TransferPoll {
        // Whoever reads the end must not take truncated bytes for complete ones.
        if from.is_truncated() {
            to.omit_close_notify();
        }
        // The receiver may be gone already; its own transfer reports that.
        let _ = to.shutdown(Shutdown::Write);
        self.eof_forwarded = true;
        Self::poll_end(cx, to)
    }

    /// Waits until the socket has accepted the end of a TLS session, its close_notify.
    fn poll_end(cx: &mut Context<'_>, to: &mut Stream) -> TransferPoll {
        // The receiver may be gone already; its own transfer reports that.
        let _ = ready!(to.poll_flush(cx));
        Poll::Ready(Ok(()))
    }

    /// Writes the bytes of earlier reads.
    #[inline]
    fn poll_pending(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> TransferPoll {
        while !self.pending.is_empty() {
            let written = ready!(to.poll_write(cx, self.pending.bytes()));
            let written = written.map_err(|error| TransferError::WriteFailed(error.kind()))?;
            self.pending.consume(written);
            self.byte_counts.sent += written as u64;
        }
        while let Some(pipe) = &mut self.pipe
            && pipe.buffered_bytes() > 0
        {
            let moved =
                ready!(poll_drain(cx, to, pipe)).map_err(|error| TransferError::WriteFailed(error.kind()))?;
            self.byte_counts.sent += moved as u64;
        }
        self.pipe = None;
        Poll::Ready(Ok(()))
    }

    /// Does one read to the scratch buffer and one write from it. Pending: nothing could be read.
    #[inline]
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        resources: &mut TunnelResources<'_>,
    ) -> TransferPoll {
        let read = ready!(from.poll_read(cx, resources.scratch));
        let read = read.map_err(|error| TransferError::ReadFailed(error.kind()))?;
        if read == 0 {
            self.eof_received = true;
            return Poll::Ready(Ok(()));
        }
        self.byte_counts.received += read as u64;
        self.count_streak(read == resources.scratch.len());
        if self.streak == FULL_READS && from.is_plain_socket() && to.is_plain_socket() {
            self.set_splicing(true);
        }
        let written = match to.poll_write(cx, &resources.scratch[..read]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(TransferError::WriteFailed(error.kind())));
            }
            Poll::Pending => 0,
        };
        self.byte_counts.sent += written as u64;
        if written < read {
            self.pending = resources
                .buffers
                .take_filled(&[&resources.scratch[written..read]])
                .ok_or(TransferError::NoBuffer)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Fills a pipe. Pending: nothing was available.
    fn poll_splice(&mut self, cx: &mut Context<'_>, from: &mut Stream, pipes: &PipePool) -> TransferPoll {
        let Some(mut pipe) = pipes.take() else {
            self.set_splicing(false);
            return Poll::Ready(Ok(()));
        };
        // An empty pipe is dropped here, and so returned to the pool.
        let filled = ready!(poll_fill(cx, from, &mut pipe, FILL_BYTES_MAX));
        let filled = filled.map_err(|error| TransferError::ReadFailed(error.kind()))?;
        if filled == 0 {
            // Most likely the end of the stream; a read distinguishes it from data that a pipe
            // cannot take.
            self.set_splicing(false);
            return Poll::Ready(Ok(()));
        }
        self.byte_counts.received += filled as u64;
        self.pipe = Some(pipe);
        self.count_streak(filled < SMALL_FILL_BYTES);
        if self.streak == SMALL_FILLS {
            self.set_splicing(false);
        }
        Poll::Ready(Ok(()))
    }

    /// Counts transfers of the same kind in a row. Streams that cannot be spliced may have any number of them.
    fn count_streak(&mut self, is_same: bool) {
        self.streak = if is_same { self.streak.saturating_add(1) } else { 0 };
    }

    fn set_splicing(&mut self, splicing: bool) {
        self.splicing = splicing;
        self.streak = 0;
    }
}

#[cfg(test)]
#[path = "tunnel/tests.rs"]
mod tests;
