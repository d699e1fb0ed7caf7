//! TCP in user space of one core: a task drives the stack of [`xdp`], and its connections are
//! `Stream::User`.
//!
//! ```text
//! AF_XDP socket readable -> driver: flush, receive a batch, wake the tasks of its connections
//!                              ^                                     |
//!                              '-- once, after the tasks have run <--'  reads and writes of streams
//! ```
//! So the responses to a batch of packets leave in one batch. Nothing is allocated for a packet.

mod open;

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use xdp::attachment::{Attachment, XdpMode};
use xdp::interface::{InterfaceFacts, Route};
use xdp::port::{PortCounters, PortStatistics};
use xdp::stack::{CONNECTION_BYTES, ConnectionId, HandedFrame, Stack, StackConfig, StackCounters};

use crate::async_fd;
use crate::clock::{MILLISECOND_NS, now_ns};
use crate::timers::{Sleep, Timers};

pub use self::open::{UserTcpPlan, UserTcpRoutes, UserTcpSurvey};

/// Maximum number of frames that are received before the tasks of their connections run. So many connections stay in the
/// cache of a core until their responses are sent: 256 cost a third more with 1,000 connections.
const BATCH_FRAMES_MAX: usize = 64;
/// Maximum number of frames that wait on their way to another queue. Further ones are lost, as on a full ring.
const HANDED_FRAMES_MAX: usize = 1_024;

/// A program and its socket, ready to be moved to the core that drives it.
#[derive(Debug)]
pub struct UserTcpPort {
    attachment: Attachment,
    config: StackConfig,
    facts: InterfaceFacts,
    /// Way of frames from and to the other queues; `None`: there is one queue.
    neighbours: Option<QueueNeighbours>,
}

/// Ends of the channels between the queues of an interface, which form a circle.
#[derive(Debug)]
struct QueueNeighbours {
    next: mpsc::Sender<HandedFrame>,
    inbox: mpsc::Receiver<HandedFrame>,
}

/// Connects the queues of an interface, if there are several.
fn connect_queues(ports: &mut [UserTcpPort]) {
    if ports.len() < 2 {
        return;
    }
    let (senders, inboxes): (Vec<_>, Vec<_>) = ports.iter().map(|_| mpsc::channel(HANDED_FRAMES_MAX)).unzip();
    for (at, (port, inbox)) in ports.iter_mut().zip(inboxes).enumerate() {
        let next = senders[(at + 1) % senders.len()].clone();
        port.neighbours = Some(QueueNeighbours { next, inbox });
    }
}

impl UserTcpPort {
    /// Combines an attachment with the settings of its stack; the random number is added here.
    #[must_use]
    pub fn new(attachment: Attachment, facts: InterfaceFacts, config: StackConfig) -> Self {
        let mut seed = [0; 8];
        // Without random numbers of the system the time is one that strangers hardly know.
        if aws_lc_rs::rand::fill(&mut seed).is_err() {
            seed = now_ns().to_ne_bytes();
        }
        Self {
            attachment,
            config: StackConfig { seed: u64::from_ne_bytes(seed), ..config },
            facts,
            neighbours: None,
        }
    }

    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.attachment.mode()
    }

    #[must_use]
    pub fn facts(&self) -> &InterfaceFacts {
        &self.facts
    }
}

/// Counts of the stack of one core and of its socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserTcpCounts {
    /// Those of the stack.
    pub stack: StackCounters,
    /// Those of the rings, as we count them.
    pub port: PortCounters,
    /// Those of the rings, as the kernel counts them.
    pub kernel: PortStatistics,
    /// Maximum number of connections at a time.
    pub connections_peak: u64,
}

impl UserTcpCounts {
    /// Returns the bound of the memory that the connections had at their peak.
    #[must_use]
    pub fn connections_memory_bytes_max(&self) -> u64 {
        self.connections_peak * CONNECTION_BYTES as u64
    }

    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 29] {
        let (stack, port, kernel) = (&self.stack, &self.port, &self.kernel);
        [
            ("frames_received", port.received),
            ("frames_invalid", port.invalid),
            ("frames_malformed", stack.malformed),
            ("segments_sent", stack.sent),
            ("segments_retransmitted", stack.retransmitted),
            ("segments_unknown", stack.unknown),
            ("segments_zero_window", stack.zero_windows),
            ("window_min_bytes", stack.windows.min_bytes),
            ("window_max_bytes", stack.windows.max_bytes),
            ("handshakes_measured", stack.handshakes.count),
            ("handshake_min_ns", stack.handshakes.min_ns),
            ("round_trips_measured", stack.round_trips.count),
            ("round_trip_min_ns", stack.round_trips.min_ns),
            ("round_trip_mean_ns", stack.round_trips.mean_ns()),
            ("connections_accepted", stack.accepted),
            ("connections_refused", stack.refused),
            ("connections_restarted", stack.restarted),
            ("connections_peak", self.connections_peak),
            ("connections_memory_bytes_max", self.connections_memory_bytes_max()),
            ("handshakes_evicted", stack.evicted),
            ("handshakes_and_closes_expired", stack.expired),
            ("frames_handed_over", stack.handed_over),
            ("lost_handover_full", stack.handover_full),
            ("lost_receive_ring_full", kernel.ring_full),
            ("lost_fill_ring_empty", kernel.fill_empty),
            ("lost_other", kernel.dropped),
            ("lost_transmit_ring_full", port.unsent),
            ("send_descriptors_invalid", kernel.invalid),
            ("send_calls", port.send_calls),
        ]
    }
}

/// TCP in user space of this core. Cheap to clone; not `Send`. The interface is given back with the last clone and
/// stream.
#[derive(Clone, Debug)]
pub struct UserTcp {
    core: Rc<UserTcpCore>,
}

#[derive(Debug)]
struct UserTcpCore {
    stack: RefCell<Stack<Attachment>>,
    driver: RefCell<Option<Waker>>,
    /// True if the driver was woken and has not run yet.
    is_driver_woken: Cell<bool>,
    acceptor: RefCell<Option<Waker>>,
}

impl UserTcp {
    /// Starts the driver. Must be called inside a core's runtime.
    ///
    /// # Errors
    /// No descriptor left, or epoll rejected the socket.
    pub fn start(port: UserTcpPort, timers: &Timers) -> io::Result<Self> {
        let fd = port.attachment.port().as_fd().try_clone_to_owned()?;
        let socket = async_fd::register_readable(fd)?;
        let core = Rc::new(UserTcpCore {
            stack: RefCell::new(Stack::new(port.attachment, port.config, now_ns())),
            driver: RefCell::default(),
            is_driver_woken: Cell::new(false),
            acceptor: RefCell::default(),
        });
        let mut driver = Driver {
            core: Rc::downgrade(&core),
            socket,
            neighbours: port.neighbours,
            timers: timers.clone(),
            sleep: None,
        };
        tokio::task::spawn_local(poll_fn(move |cx| driver.poll(cx)));
        Ok(Self { core })
    }

    /// Waits for the next accepted connection.
    pub async fn accept(&self) -> UserStream {
        poll_fn(|cx| match self.core.stack.borrow_mut().accept() {
            Some(id) => Poll::Ready(UserStream { core: Rc::clone(&self.core), id }),
            None => {
                *self.core.acceptor.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Connects to a target over a route.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`; `AddrNotAvailable`: no port is left.
    pub async fn connect(&self, target: SocketAddr, route: Route) -> io::Result<UserStream> {
        let started = self.core.stack.borrow_mut().connect(route.source, target, route.next_hop, now_ns());
        // Given up when it is dropped before the handshake is over.
        let stream = UserStream { core: Rc::clone(&self.core), id: started? };
        self.core.wake_driver();
        poll_fn(|cx| self.core.stack.borrow_mut().poll_connected(stream.id, cx.waker())).await?;
        Ok(stream)
    }

    /// Returns the current counts.
    #[must_use]
    pub fn counts(&self) -> UserTcpCounts {
        let stack = self.core.stack.borrow();
        let port = stack.link().port();
        UserTcpCounts {
            stack: stack.counters(),
            port: port.counters(),
            kernel: port.statistics(),
            connections_peak: stack.connections_peak() as u64,
        }
    }

    /// Waits until the peers have taken everything and closed, or until `deadline_ns`: unlike the kernel, this stack ends
    /// with the process.
    pub async fn wait_until_closed(&self, timers: &Timers, deadline_ns: u64) {
        while self.core.stack.borrow().connections() > 0 && now_ns() < deadline_ns {
            timers.sleep_until((now_ns() + MILLISECOND_NS).min(deadline_ns)).await;
        }
    }
}

impl UserTcpCore {
    #[inline]
    fn wake_driver(&self) {
        if !self.is_driver_woken.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }
}

/// Task that moves packets between the socket and the stack.
struct Driver {
    core: Weak<UserTcpCore>,
    socket: AsyncFd<OwnedFd>,
    neighbours: Option<QueueNeighbours>,
    timers: Timers,
    sleep: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Driver {
    /// Takes one turn: sends, receives a batch, and comes back after the tasks that it woke.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(core) = self.core.upgrade() else { return Poll::Ready(()) };
        {
            let mut driver = core.driver.borrow_mut();
            match &mut *driver {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        core.is_driver_woken.set(false);
        loop {
            match self.socket.poll_read_ready(cx) {
                // Frames that arrive from now on are a new edge.
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        let mut time_ns = now_ns();
        let mut stack = core.stack.borrow_mut();
        stack.handle_timers(time_ns);
        if stack.has_work() {
            stack.flush(time_ns);
            // A veth pair answers within the call that sends: with the time before it, a round trip would take none.
            time_ns = now_ns();
        }
        let mut frames = stack.receive(time_ns, BATCH_FRAMES_MAX);
        if let Some(neighbours) = &mut self.neighbours {
            frames += neighbours.exchange(cx, &mut stack, time_ns);
        }
        let accepts = stack.has_accepted();
        let has_work = frames > 0 || stack.has_work();
        let next_ns = stack.next_timer_ns();
        drop(stack);
        if accepts && let Some(acceptor) = core.acceptor.borrow_mut().take() {
            acceptor.wake();
        }
        if has_work {
            core.is_driver_woken.set(true);
            cx.waker().wake_by_ref();
        }
        self.poll_timer(cx, &core, next_ns);
        Poll::Pending
    }

    /// Sleeps until the next timer, in whole milliseconds. An earlier sleep is left to end by itself.
    fn poll_timer(&mut self, cx: &mut Context<'_>, core: &UserTcpCore, next_ns: Option<u64>) {
        let Some(next_ns) = next_ns else { return };
        let due_ns = next_ns.div_ceil(MILLISECOND_NS) * MILLISECOND_NS;
        if self.sleep.as_ref().is_none_or(|(sleep_ns, _)| due_ns < *sleep_ns) {
            self.sleep = Some((due_ns, Box::pin(self.timers.sleep_until(due_ns))));
        }
        if let Some((_, sleep)) = &mut self.sleep
            && sleep.as_mut().poll(cx).is_ready()
        {
            self.sleep = None;
            core.is_driver_woken.set(true);
            cx.waker().wake_by_ref();
        }
    }
}

impl QueueNeighbours {
    /// Moves frames between the stack and the other queues; returns the number of those received.
    fn exchange(&mut self, cx: &mut Context<'_>, stack: &mut Stack<Attachment>, now_ns: u64) -> usize {
        let mut received = 0;
        while received < BATCH_FRAMES_MAX
            && let Poll::Ready(Some(frame)) = self.inbox.poll_recv(cx)
        {
            received += 1;
            stack.process_handed(frame, now_ns);
        }
        while let Some(frame) = stack.take_handed() {
            // A full or closed neighbour loses it, as a full ring does; the peer sends it again.
            if self.next.try_send(frame).is_err() {
                stack.count_lost_handover();
            }
        }
        received
    }
}

/// Connection of a [`UserTcp`], with the interface of a socket.
#[derive(Debug)]
pub struct UserStream {
    core: Rc<UserTcpCore>,
    id: ConnectionId,
}

impl UserStream {
    // Apart, so that the streams of the kernel stay short.
    #[inline(never)]
    pub(crate) fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut stack = self.core.stack.borrow_mut();
        let result = stack.poll_read(self.id, cx.waker(), buffer);
        self.wake_for_work(&stack);
        result
    }

    /// Reads bytes that are available; `None` if there are none. No task is registered.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let mut stack = self.core.stack.borrow_mut();
        let result = stack.try_read(self.id, buffer);
        self.wake_for_work(&stack);
        result
    }

    /// Writes as much as fits now; `None` if that is nothing. No task is registered.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let mut stack = self.core.stack.borrow_mut();
        let result = stack.try_write(self.id, bytes);
        self.wake_for_work(&stack);
        result
    }

    /// Moves the connection out; what is left is closed.
    pub(crate) fn take(&mut self) -> Self {
        Self { core: Rc::clone(&self.core), id: std::mem::replace(&mut self.id, ConnectionId::NONE) }
    }

    pub(crate) fn poll_peek(&self, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        self.core.stack.borrow_mut().poll_peek(self.id, cx.waker())
    }

    // Apart, so that the streams of the kernel stay short.
    #[inline(never)]
    pub(crate) fn poll_write(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut stack = self.core.stack.borrow_mut();
        let result = stack.poll_write(self.id, cx.waker(), slices);
        self.wake_for_work(&stack);
        result
    }

    #[inline]
    fn wake_for_work(&self, stack: &Stack<Attachment>) {
        if stack.has_work() {
            self.core.wake_driver();
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.core.stack.borrow().is_idle(self.id)
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.core.stack.borrow().has_unread(self.id)
    }

    pub(crate) fn unacked_bytes(&self) -> Option<u64> {
        self.core.stack.borrow().unacked_bytes(self.id)
    }

    pub(crate) fn byte_counts(&self) -> Option<(u64, u64)> {
        self.core.stack.borrow().byte_counts(self.id)
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.core.stack.borrow().tuple(self.id).map(|tuple| tuple.local)
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.core.stack.borrow().tuple(self.id).map(|tuple| tuple.remote)
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let result = self.core.stack.borrow_mut().shutdown(self.id, how);
        self.core.wake_driver();
        result
    }

    pub(crate) fn reset_on_close(&self) {
        self.core.stack.borrow_mut().reset_on_close(self.id);
    }
}

impl Drop for UserStream {
    fn drop(&mut self) {
        self.core.stack.borrow_mut().close(self.id, now_ns());
        self.core.wake_driver();
    }
}
