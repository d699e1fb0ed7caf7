//! Bytes both ways between a client and a server: a TCP connection, CONNECT, an upgraded protocol.
//!
//! Each way is a lane: what the core's bench took in one read goes out in one write. Where that is
//! not all, the rest waits in a pooled buffer, and nothing more is read until it is gone, so that
//! the slower side holds the faster one back through TCP. A lane whose reads keep filling the bench
//! moves its bytes through a pipe instead ([`rt::splice`]), until little comes at a time again:
//!
//! ```text
//!              FULL_READS reads of the whole bench
//!           .------------------------------------->.
//!       copying                                 splicing
//!           '<-------------------------------------'
//!              SMALL_FILLS fills of less than SMALL_FILL_BYTES, or no pipe
//! ```
//!
//! Processor time of a relaying thread in ns per kB moved, two TCP connections over loopback, Linux
//! 6.18, two processors that others used too; the quieter of two runs, the other one in brackets
//! (`cargo run --release -p rt --example splice`):
//!
//! | what comes at a time | copy, 64 kB bench | copy, 256 kB bench | splice, 256 kB pipe | splice, 1 MB pipe |
//! | --- | --- | --- | --- | --- |
//! | 1 kB | 14,500 (14,900) | 14,500 (15,500) | 17,100 (18,300) | 17,400 (17,100) |
//! | 16 kB | 1,050 (990) | 1,160 (1,000) | 1,090 (1,280) | 1,170 (1,270) |
//! | 32 kB | 510 (630) | 510 (640) | 570 (780) | 540 (800) |
//! | 64 kB | 340 (610) | 370 (580) | 280 (490) | 360 (480) |
//! | 256 kB | 270 (500) | 200 (460) | 140 (180) | 230 (370) |
//! | a stream | 400 (580) | 400 (420) | 340 (400) | 280 (280) |
//!
//! So a splice costs about a fifth more for little, a tenth to a quarter more at 32 kB, and from
//! 64 kB on less, down to the half. A pipe of 1 MB gains more on a stream, but what it holds is held by
//! each reader that stands still.
//!
//! The end of one side's stream is passed on when all before it was delivered, and the tunnel ends
//! with the second one. It knows no time: see [`Tunnel::take_progress`].

use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

use rt::buffers::{Buffers, Lent};
use rt::splice::{Pipe, Pipes, poll_drain, poll_fill};
use rt::stream::Stream;

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelEnd {
    /// The side that ended its stream, or failed, before the other did.
    pub(crate) first: Side,
    pub(crate) how: How,
}

/// Whether a tunnel ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Both streams ended, and all of both was delivered.
    Finished,
    /// A connection failed: reset, gone, or not there any more when bytes were left for it.
    Failed(Side, io::ErrorKind),
    /// Bytes had to wait and no buffer was left for them.
    NoBuffer,
}

/// What one way has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Read from the one side by the tunnel: what had been read before is not in it.
    pub(crate) received: u64,
    /// Written to the other side.
    pub(crate) sent: u64,
}

/// What a tunnel borrows from its core for one poll.
#[derive(Debug)]
pub(crate) struct Tools<'a> {
    /// Belongs to nobody between two polls.
    pub(crate) bench: &'a mut [u8],
    pub(crate) pipes: &'a Pipes,
    pub(crate) buffers: &'a Buffers,
}

/// Both ways between a client and a server.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// From the client to the server.
    up: Lane,
    /// From the server to the client.
    down: Lane,
    first: Option<Side>,
    progress: bool,
}

/// So many reads of the whole bench in a row make a lane splice.
const FULL_READS: u8 = 2;
/// So many fills below [`SMALL_FILL_BYTES`] in a row make it copy again.
const SMALL_FILLS: u8 = 4;
/// Below this, a copy costs less than a splice; see the figures above.
const SMALL_FILL_BYTES: usize = 32 * 1024;
/// What one fill takes at most, if the pipe is as large.
const FILL_BYTES_MAX: usize = 1024 * 1024;
/// How large pipes are to be ([`Pipes::new`]).
pub(crate) const PIPE_BYTES: usize = 256 * 1024;
/// How often one poll reads from each side before others get their turn.
const ROUNDS_MAX: u32 = 4;

impl Tunnel {
    /// A tunnel in which what was read already from each side comes first.
    pub(crate) fn new(from_client: Lent, from_server: Lent) -> Self {
        Self {
            up: Lane::new(from_client),
            down: Lane::new(from_server),
            first: None,
            progress: false,
        }
    }

    /// Moves what can be moved. After `Ready` it is over, and is not to be polled again.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        server: &mut Stream,
        tools: &mut Tools<'_>,
    ) -> Poll<TunnelEnd> {
        let before = (self.up.carried, self.down.carried);
        // Both in any case: when one side is gone, what it sent before still gets to the other.
        let up = self.up.poll(cx, client, server, tools);
        let down = self.down.poll(cx, server, client, tools);
        self.progress |= before != (self.up.carried, self.down.carried);
        let end = self.judge(up, down);
        if end.is_ready() {
            self.release();
        }
        end
    }

    fn judge(&mut self, up: LanePoll, down: LanePoll) -> Poll<TunnelEnd> {
        let failed = |poll: LanePoll, from, to| match poll {
            Poll::Ready(Err(Stuck::From(kind))) => Some(How::Failed(from, kind)),
            Poll::Ready(Err(Stuck::To(kind))) => Some(How::Failed(to, kind)),
            Poll::Ready(Err(Stuck::NoBuffer)) => Some(How::NoBuffer),
            Poll::Ready(Ok(())) | Poll::Pending => None,
        };
        let failure = failed(up, Side::Client, Side::Server)
            .or_else(|| failed(down, Side::Server, Side::Client));
        if self.first.is_none() {
            self.first = match (self.up.ended, self.down.ended, failure) {
                (true, _, _) => Some(Side::Client),
                (false, true, _) => Some(Side::Server),
                (false, false, Some(How::Failed(side, _))) => Some(side),
                (false, false, _) => None,
            };
        }
        // Without a buffer nobody ended it but we; then the client is as good a name as any.
        let first = self.first.unwrap_or(Side::Client);
        match (failure, up, down) {
            (Some(how), _, _) => Poll::Ready(TunnelEnd { first, how }),
            (None, Poll::Ready(_), Poll::Ready(_)) => {
                Poll::Ready(TunnelEnd { first, how: How::Finished })
            }
            _ => Poll::Pending,
        }
    }

    /// Whether a byte was read or written since this was asked last: time to set the idle deadline
    /// anew.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }

    /// What came from the client.
    pub(crate) fn up(&self) -> Carried {
        self.up.carried
    }

    /// What came from the server.
    pub(crate) fn down(&self) -> Carried {
        self.down.carried
    }

    /// The side whose stream ended first, if one has.
    #[cfg(test)]
    pub(crate) fn ended_first(&self) -> Option<Side> {
        self.first
    }

    /// Gives buffers and pipes back, with what is still in them.
    pub(crate) fn release(&mut self) {
        for lane in [&mut self.up, &mut self.down] {
            lane.held.release();
            lane.pipe = None;
        }
    }
}

/// One way.
#[derive(Debug)]
struct Lane {
    /// Read and not yet written.
    held: Lent,
    /// There while it has bytes; an empty one is somebody else's.
    pipe: Option<Pipe>,
    splicing: bool,
    /// How often in a row a read or a fill spoke for the other mode.
    doubts: u8,
    /// The stream it reads from has ended.
    ended: bool,
    /// And that was passed on.
    over: bool,
    carried: Carried,
}

/// Why a lane cannot go on.
#[derive(Clone, Copy, Debug)]
enum Stuck {
    /// Reading failed.
    From(io::ErrorKind),
    /// Writing failed.
    To(io::ErrorKind),
    NoBuffer,
}

/// Ready with `Ok`: the stream ended and that was passed on.
type LanePoll = Poll<Result<(), Stuck>>;

impl Lane {
    fn new(held: Lent) -> Self {
        Self {
            held,
            pipe: None,
            splicing: false,
            doubts: 0,
            ended: false,
            over: false,
            carried: Carried::default(),
        }
    }

    #[inline]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        tools: &mut Tools<'_>,
    ) -> LanePoll {
        if self.over {
            return Poll::Ready(Ok(()));
        }
        for round in 0.. {
            ready!(self.poll_deliver(cx, to))?;
            if self.ended {
                // It may be gone already; its own lane tells.
                let _ = to.shutdown(Shutdown::Write);
                self.over = true;
                return Poll::Ready(Ok(()));
            }
            if round == ROUNDS_MAX {
                rt::stream::yield_turn(cx);
                break;
            }
            if self.splicing {
                ready!(self.poll_splice(cx, from, tools.pipes))?;
            } else {
                ready!(self.poll_copy(cx, from, to, tools))?;
            }
        }
        Poll::Pending
    }

    /// Writes what was read before.
    #[inline]
    fn poll_deliver(&mut self, cx: &mut Context<'_>, to: &mut Stream) -> LanePoll {
        while !self.held.is_empty() {
            let written = ready!(to.poll_write(cx, self.held.bytes()));
            let written = written.map_err(|error| Stuck::To(error.kind()))?;
            self.held.consume(written);
            self.carried.sent += written as u64;
        }
        while let Some(pipe) = &mut self.pipe
            && pipe.fill() > 0
        {
            let moved =
                ready!(poll_drain(cx, to, pipe)).map_err(|error| Stuck::To(error.kind()))?;
            self.carried.sent += moved as u64;
        }
        self.pipe = None;
        Poll::Ready(Ok(()))
    }

    /// One read to the bench and one write from it. Pending: nothing could be read.
    #[inline]
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
        tools: &mut Tools<'_>,
    ) -> LanePoll {
        let read = ready!(from.poll_read(cx, tools.bench));
        let read = read.map_err(|error| Stuck::From(error.kind()))?;
        if read == 0 {
            self.ended = true;
            return Poll::Ready(Ok(()));
        }
        self.carried.received += read as u64;
        self.doubts = if read == tools.bench.len() { self.doubts + 1 } else { 0 };
        if self.doubts == FULL_READS {
            self.change(true);
        }
        let written = match to.poll_write(cx, &tools.bench[..read]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Stuck::To(error.kind()))),
            Poll::Pending => 0,
        };
        self.carried.sent += written as u64;
        if written < read {
            self.held =
                tools.buffers.lend(&[&tools.bench[written..read]]).ok_or(Stuck::NoBuffer)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Fills a pipe. Pending: nothing was there to fill it with.
    fn poll_splice(&mut self, cx: &mut Context<'_>, from: &mut Stream, pipes: &Pipes) -> LanePoll {
        let Some(mut pipe) = pipes.take() else {
            self.change(false);
            return Poll::Ready(Ok(()));
        };
        // An empty pipe is dropped here, and so is lent to the next.
        let filled = ready!(poll_fill(cx, from, &mut pipe, FILL_BYTES_MAX));
        let filled = filled.map_err(|error| Stuck::From(error.kind()))?;
        if filled == 0 {
            // The end, most likely; a read tells it from what a pipe cannot take.
            self.change(false);
            return Poll::Ready(Ok(()));
        }
        self.carried.received += filled as u64;
        self.pipe = Some(pipe);
        self.doubts = if filled < SMALL_FILL_BYTES { self.doubts + 1 } else { 0 };
        if self.doubts == SMALL_FILLS {
            self.change(false);
        }
        Poll::Ready(Ok(()))
    }

    fn change(&mut self, splicing: bool) {
        self.splicing = splicing;
        self.doubts = 0;
    }
}

#[cfg(test)]
#[path = "tunnel/tests.rs"]
mod tests;
