//! The connections of one core: those that its listening sockets accept, and those that other cores
//! accepted for it. Accepting pauses at a limit; connections over it that were already accepted wait.
//!
//! The server decides which connections it serves, and when ([`Admission`]). It also chooses when the
//! sockets close.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use rt::accept::{AcceptEvent, accept_forever};
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::conn_balancer::{AcceptedConnection, AsyncInbox, ConnectionBalancer, CoreMessage, Inbox};
use rt::conn_limit::ConnectionLimit;
use rt::drain::{Drain, DrainStage};
use rt::listen::Listener;
use rt::timers::Timers;
use rt::tokio::task::{JoinHandle, spawn_local};

/// Interval at which a core checks whether its accept queues are empty.
const QUEUE_POLL_NS: u64 = 5 * MILLISECOND_NS;

/// Facilities of a core that accepting needs.
#[derive(Clone, Copy, Debug)]
pub struct AcceptingCore<'a> {
    pub index: usize,
    pub balancer: &'a ConnectionBalancer,
    pub limit: &'a ConnectionLimit,
    pub timers: &'a Timers,
}

/// Decisions of a server about the connections of one core.
pub trait Admission: 'static {
    /// Limit at which a listening socket pauses.
    type Limit;

    fn core(&self) -> AcceptingCore<'_>;

    /// Returns the limit that pauses accepting at this listening socket, if any.
    fn pausing_limit(&self, socket_index: usize) -> Option<Self::Limit>;

    fn count_pause(&self, limit: Self::Limit);

    /// Counts a connection that could not be accepted, or not received from another core.
    fn count_accept_failure(&self);

    /// Serves, defers or rejects a new connection. Limits are checked again here: one accept call takes
    /// several connections, and other cores send some too.
    fn admit(&self, connection: AcceptedConnection);

    /// Returns whether a deferred connection may be served now.
    fn may_serve(&self, connection: &AcceptedConnection) -> bool;

    fn serve(&self, connection: AcceptedConnection);

    /// Returns a value that lives as long as connections are being accepted.
    fn accept_section(&self) -> impl Sized {}
}

/// Accepting of one core.
#[derive(Debug)]
pub struct Acceptor<A> {
    admission: A,
    drain: Drain,
    tasks: RefCell<Vec<AcceptTask>>,
}

/// A listening socket of a core with its accept task.
#[derive(Debug)]
struct AcceptTask {
    socket_index: usize,
    /// A copy of the same socket, to check its queue.
    socket: Option<Listener>,
    task: JoinHandle<io::Result<()>>,
}

/// Tasks that receive connections and listening sockets from other cores, and serve deferred
/// connections. They end when this is dropped.
#[derive(Debug)]
pub struct AcceptHelpers([JoinHandle<()>; 2]);

impl Drop for AcceptHelpers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl<A: Admission> Acceptor<A> {
    /// Starts to receive from `inbox`. If a listening socket fails, `drain` is advanced: without its
    /// listener a core cannot work, and a partial server is worse than none.
    ///
    /// # Errors
    /// The inbox cannot be registered with the core's runtime.
    pub fn start(admission: A, inbox: Inbox, drain: Drain) -> io::Result<(Rc<Self>, AcceptHelpers)> {
        let inbox = inbox.register()?;
        let acceptor = Rc::new(Self { admission, drain, tasks: RefCell::default() });
        let helpers = [
            spawn_local(receive_from_cores(Rc::clone(&acceptor), inbox)),
            spawn_local(serve_deferred(Rc::clone(&acceptor))),
        ];
        Ok((acceptor, AcceptHelpers(helpers)))
    }

    pub fn admission(&self) -> &A {
        &self.admission
    }

    /// Returns whether it accepts at no socket.
    pub fn has_no_sockets(&self) -> bool {
        self.tasks.borrow().is_empty()
    }

    /// Stops accepting at the sockets that `is_over` selects by their index.
    pub fn abort(&self, is_over: impl Fn(usize) -> bool) {
        self.tasks.borrow_mut().retain(|task| {
            let is_over_now = is_over(task.socket_index);
            if is_over_now {
                task.task.abort();
            }
            !is_over_now
        });
    }

    /// Stops accepting.
    ///
    /// # Errors
    /// A listening socket had failed.
    pub async fn stop(&self) -> io::Result<()> {
        let tasks = self.tasks.take();
        let mut failure = Ok(());
        for AcceptTask { task, .. } in tasks {
            task.abort();
            // An aborted task has no result.
            if let Ok(Err(error)) = task.await {
                failure = Err(error);
            }
        }
        failure
    }

    /// Lets closing listening sockets accept until their accept queues are empty. After the minimum
    /// time `closing_ns` it waits, up to `extra_ns`, for a core that was not scheduled meanwhile, and
    /// still has connections in its queues.
    pub async fn drain_accept_queues(&self, closing_ns: u64, extra_ns: u64, is_over: impl Fn(usize) -> bool) {
        let timers = self.admission.core().timers;
        let earliest_ns = now_ns() + closing_ns;
        timers.sleep_until(earliest_ns).await;
        let has_queued = |task: &AcceptTask| {
            is_over(task.socket_index) && task.socket.as_ref().is_some_and(Listener::has_pending_connection)
        };
        while now_ns() < earliest_ns + extra_ns && self.tasks.borrow().iter().any(has_queued) {
            timers.sleep_until(now_ns() + QUEUE_POLL_NS).await;
        }
    }

    fn start_accept_task(self: &Rc<Self>, listener: Listener) {
        let socket_index = listener.index();
        // Without a descriptor for the copy, the end does not wait for the queue.
        let socket = listener.try_clone().ok();
        let task = spawn_local(accept_connections(Rc::clone(self), listener));
        self.tasks.borrow_mut().push(AcceptTask { socket_index, socket, task });
    }
}

/// Receives the connections that other cores accepted for this one, and its listening sockets.
async fn receive_from_cores<A: Admission>(acceptor: Rc<Acceptor<A>>, mut inbox: AsyncInbox) {
    let admission = &acceptor.admission;
    loop {
        match inbox.receive().await {
            Ok(Some(CoreMessage::Connection(connection))) => {
                let _section = admission.accept_section();
                admission.admit(connection);
            }
            Ok(Some(CoreMessage::Listener(listener))) => acceptor.start_accept_task(listener),
            Ok(None) => return,
            // There was no descriptor for it: it is lost, and the sender has counted it.
            Err(_) => {
                let AcceptingCore { balancer, index, .. } = admission.core();
                admission.count_accept_failure();
                balancer.release(index);
            }
        }
    }
}

/// Serves deferred connections as others end.
async fn serve_deferred<A: Admission>(acceptor: Rc<Acceptor<A>>) {
    let admission = &acceptor.admission;
    poll_fn(|cx| {
        let limit = admission.core().limit;
        while let Some(connection) = limit.take_deferred_where(|deferred| admission.may_serve(deferred)) {
            admission.serve(connection);
        }
        limit.register_waker(cx.waker());
        Poll::Pending
    })
    .await
}

/// Accepts connections, except while a limit is reached.
async fn accept_connections<A: Admission>(acceptor: Rc<Acceptor<A>>, listener: Listener) -> io::Result<()> {
    let admission = &acceptor.admission;
    let AcceptingCore { index, balancer, limit, timers } = admission.core();
    let socket_index = listener.index();
    let handle = |accepted| match accepted {
        AcceptEvent::Connection(connection) => admission.admit(connection),
        AcceptEvent::AcceptFailed(_) => admission.count_accept_failure(),
    };
    let mut accepting = pin!(accept_forever(listener, balancer, index, timers, handle));
    let mut paused = false;
    let result = poll_fn(|cx| {
        let Some(reached) = admission.pausing_limit(socket_index) else {
            paused = false;
            let _section = admission.accept_section();
            return accepting.as_mut().poll(cx);
        };
        if !paused {
            paused = true;
            admission.count_pause(reached);
        }
        limit.register_waker(cx.waker());
        Poll::Pending
    })
    .await;
    if result.is_err() {
        acceptor.drain.advance(DrainStage::Draining);
    }
    result
}
