//! The end of a peer whose unread bytes stay in the kernel. A read finds the end only behind these bytes, and the
//! runtime reports bytes and end as one readiness. So the socket is registered a second time, by another descriptor.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::unix::AsyncFd;

use crate::async_fd::register_readable;

/// Watch for the end of a peer. It has a descriptor of its own, and is dropped before the socket is read again.
#[derive(Debug)]
pub struct HangUpWatch(AsyncFd<OwnedFd>);

/// End of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// The peer closed its sending side, or its socket.
    Closed,
    /// The connection was reset, or is gone.
    Reset,
}

impl HangUpWatch {
    /// Registers another descriptor of a socket with the runtime of this core.
    ///
    /// # Errors
    /// No descriptor is free, or epoll rejected it.
    pub fn new(socket: BorrowedFd<'_>) -> io::Result<Self> {
        register_readable(socket.try_clone_to_owned()?).map(Self)
    }

    /// Polls for the end of the peer.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<HangUp> {
        loop {
            let Ok(mut guard) = ready!(self.0.poll_read_ready(cx)) else {
                return Poll::Ready(HangUp::Reset);
            };
            let mut polled = [PollFd::new(self.0.get_ref(), PollFlags::RDHUP)];
            // A call that fails reports nothing, as one without an event.
            let _ = rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            let events = polled[0].revents();
            if events.intersects(PollFlags::ERR | PollFlags::HUP) {
                return Poll::Ready(HangUp::Reset);
            }
            if events.contains(PollFlags::RDHUP) {
                return Poll::Ready(HangUp::Closed);
            }
            guard.clear_ready();
        }
    }
}
