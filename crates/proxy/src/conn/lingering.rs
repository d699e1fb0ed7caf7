//! The end of a connection whose client may still send: closing a socket with unread bytes, or getting
//! bytes for one that is closed, makes the kernel send a reset, which destroys the response that is on
//! its way. So our sending side ends first, and the socket is closed when the client has ended its own,
//! or after a bounded time.

use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;

use super::{Armed, Conn, Link, State};
use crate::core::{Bench, Core};

/// A connection that ends.
#[derive(Debug)]
pub(super) struct Lingering {
    reads: u32,
    /// Bytes that the client had not confirmed at the last check.
    unconfirmed: u64,
    /// When it is closed in any case.
    until_ns: u64,
}

/// How long a client may take to end its connection after the response was confirmed, and to confirm
/// any more of it.
pub(crate) const LINGER_NS: u64 = 2_000_000_000;
/// How long all of that may take.
const LINGER_MAX_NS: u64 = 30_000_000_000;
/// Reads, of 64 KiB at most each, that are discarded meanwhile; after more it is closed anyway.
const LINGER_READS_MAX: u32 = 64;
/// How often one poll reads before others get their turn.
const READS_MAX: u32 = 8;

impl Link {
    /// Ends our sending side, and begins to wait for the client's end.
    pub(super) fn linger(&mut self) -> State {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.held.release();
        self.armed = Armed::Nothing;
        State::Lingering(Box::new(Lingering {
            reads: 0,
            unconfirmed: u64::MAX,
            until_ns: now_ns().saturating_add(LINGER_MAX_NS),
        }))
    }

    /// Closes a connection between two requests: at once, unless the last response is on its way.
    pub(super) fn close_idle(&mut self) -> State {
        match self.stream.unacknowledged() {
            Some(bytes) if bytes > 0 => self.linger(),
            _ => State::Closed,
        }
    }
}

impl Conn {
    /// Reads and discards until the client has ended its connection, or the time is over.
    pub(super) fn poll_lingering(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
    ) -> Poll<State> {
        let State::Lingering(lingering) = &mut self.state else {
            return Poll::Ready(State::Closed);
        };
        let stop_at = LINGER_READS_MAX.min(lingering.reads + READS_MAX);
        while lingering.reads < stop_at {
            lingering.reads += 1;
            match self.link.stream.poll_read(cx, &mut bench.input) {
                Poll::Ready(Ok(read)) if read > 0 => {}
                Poll::Ready(_) => return Poll::Ready(State::Closed),
                Poll::Pending => {
                    lingering.reads -= 1;
                    if self.link.is_late(cx, core, Armed::Linger, LINGER_NS) {
                        if !lingering.goes_on(&self.link) {
                            return Poll::Ready(State::Closed);
                        }
                        self.link.arm(core, cx.waker(), Armed::Linger, LINGER_NS);
                    }
                    return Poll::Pending;
                }
            }
        }
        if lingering.reads == LINGER_READS_MAX {
            return Poll::Ready(State::Closed);
        }
        rt::stream::yield_turn(cx);
        Poll::Pending
    }
}

impl Lingering {
    /// Whether the client has confirmed some of the response since the last check.
    fn goes_on(&mut self, link: &Link) -> bool {
        let unconfirmed = link.stream.unacknowledged().unwrap_or_default();
        // Our FIN counts as a byte.
        let moves = unconfirmed > 1 && unconfirmed < self.unconfirmed;
        self.unconfirmed = unconfirmed;
        moves && now_ns() < self.until_ns
    }
}
