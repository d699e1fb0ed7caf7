//! A bounded byte stream in both directions between two tasks of one core, with the interface of a
//! socket: [`Stream::Channel`](crate::stream::Stream::Channel). An engine that serves a connection
//! serves one stream of a multiplexed connection through it.
//!
//! ```text
//! engine: Stream::Channel(end) -- poll_write --> buffer -- received, consume --> the end of HTTP/2
//!                              <-- poll_read --- buffer <------ write_with -----
//! ```
//! The engine's end works like a non-blocking socket. HTTP/2 uses its end directly, without
//! copying: it borrows received bytes, and writes into the buffer that the engine reads from. A connection
//! with many ends registers them at one [`ReadyQueue`], which is woken once and lists the ends with
//! news.
//!
//! A buffer is taken from the core's [`ChannelBuffers`] with the first byte, and returned with the
//! last one. So an idle channel holds no buffer, and a busy one allocates nothing. A channel is
//! closed when one of its ends is dropped. Unlike TCP, unread bytes of the other direction do not
//! turn this into a reset: everything that was written can be read.

mod buffers;
mod ready_queue;

use std::cell::{Ref, RefCell};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub use buffers::ChannelBuffers;
pub use ready_queue::ReadyQueue;

/// Default number of unread bytes in each direction of a channel at which writes wait.
pub const CHANNEL_BYTES: usize = 64 * 1024;

/// Addresses that an end reports, as a socket does; `None`: unknown, as on a unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelAddresses {
    /// Own address of the first end, and the peer address of the second one.
    pub local: Option<SocketAddr>,
    /// Peer address of the first end, and the own address of the second one.
    pub peer: Option<SocketAddr>,
}

/// One end of a channel. Dropping it closes the channel: the other end reads the remaining bytes,
/// and then the end of the stream, or an error after [`ChannelEnd::reset_on_close`].
#[derive(Debug)]
pub struct ChannelEnd {
    channel: Rc<Channel>,
    side: usize,
}

#[derive(Debug)]
struct Channel {
    /// Direction `i` carries the bytes that end `i` receives.
    directions: [RefCell<Direction>; 2],
    observers: [RefCell<Observer>; 2],
    /// Addresses of end 0.
    addresses: ChannelAddresses,
    bytes_max: usize,
    buffers: ChannelBuffers,
}

/// Bytes from one end to the other.
#[derive(Debug, Default)]
struct Direction {
    bytes: Vec<u8>,
    /// Number of consumed bytes at the start of `bytes`.
    start: usize,
    /// True if the writer sends nothing more.
    is_ended: bool,
    /// True if the writer was reset: the reader gets an error behind the remaining bytes.
    is_reset: bool,
    /// True if the reader is gone, or accepts nothing more.
    is_refused: bool,
    /// True if the end of this direction becomes a reset when the writer is dropped.
    resets_on_close: bool,
    /// Code for the reader of an end too early; 0: none.
    reset_code: u32,
}

/// Notification of an end about bytes, space, and the end of the channel.
#[derive(Debug, Default)]
struct Observer {
    target: NotifyTarget,
    wants_bytes: bool,
    wants_space: bool,
}

#[derive(Debug, Default)]
enum NotifyTarget {
    #[default]
    None,
    /// The task that polled the end last.
    Task(Waker),
    Queue(Rc<ReadyQueue>, u32),
}

/// State of the receiving direction of an end, behind the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveState {
    /// More bytes may follow.
    Open,
    /// The stream ends behind the received bytes.
    Ended,
    /// The other end was reset: what was received is incomplete.
    Reset,
}

impl ChannelBuffers {
    /// Opens a channel whose writes wait while there are `bytes_max` unread bytes in their direction, see
    /// [`CHANNEL_BYTES`]: one write may exceed it. The first end reports `addresses`; the second one the same, exchanged.
    pub fn open(&self, bytes_max: usize, addresses: ChannelAddresses) -> (ChannelEnd, ChannelEnd) {
        let channel = Rc::new(Channel {
            directions: Default::default(),
            observers: Default::default(),
            addresses,
            bytes_max: bytes_max.max(1),
            buffers: self.clone(),
        });
        (ChannelEnd { channel: Rc::clone(&channel), side: 0 }, ChannelEnd { channel, side: 1 })
    }
}

impl Direction {
    #[inline]
    fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Prepares for the append of `additional` bytes: takes a buffer, and moves unread bytes to its
    /// start instead of growing it.
    #[inline]
    fn reserve(&mut self, buffers: &ChannelBuffers, additional: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes = buffers.take();
        }
        if self.start > 0 && self.bytes.capacity() - self.bytes.len() < additional {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Removes bytes from the front, and returns the buffer if none are left.
    #[inline]
    fn consume(&mut self, buffers: &ChannelBuffers, count: usize) {
        self.start += count.min(self.len());
        if self.start == self.bytes.len() {
            self.release(buffers);
        }
    }

    fn release(&mut self, buffers: &ChannelBuffers) {
        self.start = 0;
        if self.bytes.capacity() > 0 {
            buffers.put_back(std::mem::take(&mut self.bytes));
        }
    }
}

impl Observer {
    #[inline]
    fn notify(&self) {
        match &self.target {
            NotifyTarget::None => {}
            NotifyTarget::Task(waker) => waker.wake_by_ref(),
            NotifyTarget::Queue(queue, number) => queue.push(*number),
        }
    }

    #[inline]
    fn wait(&mut self, waker: &Waker) {
        match &mut self.target {
            NotifyTarget::Task(known) => known.clone_from(waker),
            target => *target = NotifyTarget::Task(waker.clone()),
        }
    }
}

impl Channel {
    /// Notifies an end of new bytes, or of the end of the stream.
    #[inline]
    fn notify_bytes(&self, side: usize) {
        let mut observer = self.observers[side].borrow_mut();
        if std::mem::replace(&mut observer.wants_bytes, false) {
            observer.notify();
        } else if let NotifyTarget::Queue(..) = observer.target {
            observer.notify();
        }
    }

    /// Notifies an end that waits for space. A task is woken when most of the space is free: it
    /// then writes much at once.
    #[inline]
    fn notify_space(&self, side: usize, unread_bytes: usize) {
        let mut observer = self.observers[side].borrow_mut();
        let is_task = matches!(observer.target, NotifyTarget::Task(_));
        if observer.wants_space && (!is_task || unread_bytes <= self.bytes_max / 4) {
            observer.wants_space = false;
            observer.notify();
        }
    }

    fn notify_end(&self, side: usize) {
        let mut observer = self.observers[side].borrow_mut();
        observer.wants_bytes = false;
        observer.wants_space = false;
        observer.notify();
    }
}

impl ChannelEnd {
    fn other_side(&self) -> usize {
        1 - self.side
    }

    fn incoming(&self) -> &RefCell<Direction> {
        &self.channel.directions[self.side]
    }

    fn outgoing(&self) -> &RefCell<Direction> {
        &self.channel.directions[self.other_side()]
    }

    /// Lists this end as `number` in `queue` from now on: with each received byte, when the other
    /// end is closed, and after [`ChannelEnd::notify_on_space`].
    pub fn register(&self, queue: &Rc<ReadyQueue>, number: u32) {
        let mut observer = self.channel.observers[self.side].borrow_mut();
        observer.target = NotifyTarget::Queue(Rc::clone(queue), number);
    }

    /// Lists this end once when the other one has taken bytes.
    pub fn notify_on_space(&self) {
        self.channel.observers[self.side].borrow_mut().wants_space = true;
    }

    /// Returns the received bytes. The channel must not be written by the other end meanwhile.
    #[inline]
    pub fn received(&self) -> Ref<'_, [u8]> {
        Ref::map(self.incoming().borrow(), Direction::unread)
    }

    /// Removes the first `count` received bytes.
    #[inline]
    pub fn consume(&self, count: usize) {
        let unread_bytes = {
            let mut incoming = self.incoming().borrow_mut();
            incoming.consume(&self.channel.buffers, count);
            incoming.len()
        };
        self.channel.notify_space(self.other_side(), unread_bytes);
    }

    /// Returns the state behind the received bytes.
    #[inline]
    pub fn receive_state(&self) -> ReceiveState {
        let incoming = self.incoming().borrow();
        match (incoming.is_reset, incoming.is_ended) {
            (true, _) => ReceiveState::Reset,
            (_, true) => ReceiveState::Ended,
            _ => ReceiveState::Open,
        }
    }

    /// Returns the number of bytes that may be written now: 0 also if nobody will read them.
    #[inline]
    pub fn free_bytes(&self) -> usize {
        let outgoing = self.outgoing().borrow();
        if outgoing.is_refused { 0 } else { self.channel.bytes_max.saturating_sub(outgoing.len()) }
    }

    /// Returns the number of written bytes that the other end has not read.
    #[inline]
    pub fn unread_bytes(&self) -> usize {
        self.outgoing().borrow().len()
    }

    /// Returns true if nobody will read what this end writes.
    pub fn is_refused(&self) -> bool {
        self.outgoing().borrow().is_refused
    }

    /// Appends bytes in place. The caller observes [`ChannelEnd::free_bytes`] for bodies; heads and
    /// framing may exceed it. `reserved` is the expected number of bytes. The bytes are discarded if
    /// nobody will read them.
    #[inline]
    pub fn write_with<R>(&self, reserved: usize, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let result = {
            let mut outgoing = self.outgoing().borrow_mut();
            outgoing.reserve(&self.channel.buffers, reserved);
            let result = write(&mut outgoing.bytes);
            if outgoing.is_refused || outgoing.len() == 0 {
                outgoing.release(&self.channel.buffers);
                return result;
            }
            result
        };
        self.channel.notify_bytes(self.other_side());
        result
    }

    pub fn reset(self) {
        self.reset_on_close();
    }

    pub fn reset_on_close(&self) {
        self.outgoing().borrow_mut().resets_on_close = true;
    }

    /// Sets the code that the other end gets from [`ChannelEnd::reset_code`]. It means what both ends agree
    /// on.
    pub fn set_reset_code(&self, code: u32) {
        self.outgoing().borrow_mut().reset_code = code;
    }

    /// Returns the code that the other end has set for what ends too early; `None`: it has not.
    pub fn reset_code(&self) -> Option<u32> {
        Some(self.incoming().borrow().reset_code).filter(|code| *code != 0)
    }

    /// Ends one or both directions: the other end reads the end of the stream, or writes in vain.
    pub fn shutdown(&self, how: Shutdown) {
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.outgoing().borrow_mut().is_ended = true;
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            let mut incoming = self.incoming().borrow_mut();
            incoming.is_refused = true;
            incoming.is_ended = true;
            incoming.release(&self.channel.buffers);
        }
        self.channel.notify_end(self.other_side());
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        let addresses = &self.channel.addresses;
        if self.side == 0 { addresses.local } else { addresses.peer }
    }

    pub fn peer_address(&self) -> Option<SocketAddr> {
        let addresses = &self.channel.addresses;
        if self.side == 0 { addresses.peer } else { addresses.local }
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.incoming().borrow().len() > 0
    }

    /// Returns true if there is nothing to read: neither bytes nor an end.
    pub(crate) fn is_idle(&self) -> bool {
        let incoming = self.incoming().borrow();
        incoming.len() == 0 && !incoming.is_ended && !incoming.is_reset
    }

    /// Polls for bytes or an end; `Ok(false)` is an end.
    fn poll_receive(&self, cx: &Context<'_>) -> Poll<io::Result<bool>> {
        {
            let incoming = self.incoming().borrow();
            if incoming.len() > 0 {
                return Poll::Ready(Ok(true));
            }
            if incoming.is_reset {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if incoming.is_ended {
                return Poll::Ready(Ok(false));
            }
        }
        let mut observer = self.channel.observers[self.side].borrow_mut();
        observer.wait(cx.waker());
        observer.wants_bytes = true;
        Poll::Pending
    }

    /// Same as [`crate::stream::Stream::poll_read`].
    #[inline]
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.poll_receive(cx) {
            Poll::Ready(Ok(true)) => {}
            Poll::Ready(Ok(false)) => return Poll::Ready(Ok(0)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        let count = {
            let received = self.received();
            let count = received.len().min(buffer.len());
            buffer[..count].copy_from_slice(&received[..count]);
            count
        };
        self.consume(count);
        Poll::Ready(Ok(count))
    }

    /// Same as [`crate::stream::Stream::poll_peek`].
    pub(crate) fn poll_peek(&self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        self.poll_receive(cx).map_ok(usize::from)
    }

    /// Writes all bytes if there is any space: a write is not split, so that its rest need not be kept.
    /// Otherwise the same as [`crate::stream::Stream::poll_write_vectored`].
    #[inline]
    pub(crate) fn poll_write(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let total_bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.is_refused() || self.outgoing().borrow().is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.free_bytes() == 0 && total_bytes > 0 {
            let mut observer = self.channel.observers[self.side].borrow_mut();
            observer.wait(cx.waker());
            observer.wants_space = true;
            return Poll::Pending;
        }
        self.write_with(total_bytes, |out| {
            for slice in slices {
                out.extend_from_slice(slice);
            }
        });
        Poll::Ready(Ok(total_bytes))
    }
}

impl Drop for ChannelEnd {
    fn drop(&mut self) {
        {
            let mut outgoing = self.outgoing().borrow_mut();
            outgoing.is_ended = true;
            outgoing.is_reset = outgoing.resets_on_close;
        }
        {
            let mut incoming = self.incoming().borrow_mut();
            incoming.is_refused = true;
            incoming.release(&self.channel.buffers);
        }
        // A stored waker keeps the memory of its task.
        *self.channel.observers[self.side].borrow_mut() = Observer::default();
        self.channel.notify_end(self.other_side());
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        for direction in &self.directions {
            direction.borrow_mut().release(&self.buffers);
        }
    }
}

#[cfg(test)]
mod tests;
