//! Starts the cores, accepts connections, applies new plans, drains. This module is the interface
//! between the process and its cores; `core` and `conn` do the cores' work. `command` has the commands
//! to the cores.

mod command;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use rt::clock::{MILLISECOND_NS, now_ns};
use rt::conn_balancer::{AcceptedConnection, AsyncInbox, ConnectionBalancer, CoreMessage, Inbox};
use rt::cores::CoreId;
use rt::drain::{Drain, DrainStage, DrainWatch};
use rt::listen::{AcceptEvent, Listener};
use rt::tokio::sync::mpsc;
use rt::tokio::task::{JoinHandle, spawn_local};

use crate::admission::{ListenerLimits, Rejection};
use crate::conn::{self, REJECTED_MAX};
use crate::core::{ConfigGeneration, Core, ListenerSettings, TICK_NS, limit_of_core};
use crate::log::CoreLog;
use crate::metrics::Snapshot;
use crate::outcome::RejectReason;
use crate::plan::OnLimit;
use crate::pool::{CoreIndex, CoreWakeups};
use crate::profile::ProfilePhase;

pub(crate) use command::{ApplyPlan, Command, CoreSenders};

/// Start values of one core, moved to its thread.
#[derive(Debug)]
pub(crate) struct CoreInit {
    pub(crate) initial: ApplyPlan,
    pub(crate) inbox: Inbox,
    pub(crate) commands: mpsc::Receiver<Command>,
}

/// Start values that all cores share.
#[derive(Clone, Debug)]
pub(crate) struct CommonInit {
    pub(crate) balancer: ConnectionBalancer,
    pub(crate) wakeups: CoreWakeups,
    pub(crate) drain: Drain,
    pub(crate) connections_max: usize,
    /// Number of cores that may still accept connections, also for each other.
    pub(crate) accepting_cores: Arc<AtomicUsize>,
}

/// Name of the cores' threads.
pub(crate) const CORE_THREAD: &str = "proxy";
/// Time before the end of a drain at which idle tunnels are closed.
const TUNNEL_CLOSE_LEAD_NS: u64 = 500 * MILLISECOND_NS;
/// Time for which a closing listening socket still accepts. Closing a listening socket resets the
/// connections in its accept queue, so the queue is emptied first, while the kernel drops SYNs. In a
/// drain it takes at most a quarter of the drain timeout.
pub(crate) const ACCEPT_QUEUE_DRAIN_NS: u64 = 250 * MILLISECOND_NS;
/// Maximum extra time if connections are still in the accept queue then.
const ACCEPT_QUEUE_DRAIN_EXTRA_NS: u64 = 2 * ACCEPT_QUEUE_DRAIN_NS;
/// Interval at which a draining core checks whether it is done.
const DRAIN_POLL_NS: u64 = 5 * MILLISECOND_NS;

/// The listening sockets of one core, and the listener of each.
#[derive(Debug, Default)]
struct CoreListeners {
    listener_of_socket: RefCell<Vec<Option<usize>>>,
    /// Listening sockets that a reload closes, with the settings for their remaining connections.
    closing: RefCell<Vec<(usize, Rc<ListenerSettings>)>>,
    accept_tasks: RefCell<Vec<AcceptTask>>,
}

/// A listening socket of a core with its accept task.
#[derive(Debug)]
struct AcceptTask {
    socket_index: usize,
    /// A copy of the same socket, to check its queue.
    socket: Option<Listener>,
    task: JoinHandle<io::Result<()>>,
}

/// Runs one core to its end. Returns its counters.
pub(crate) async fn run_core(
    core_id: CoreId,
    init: CoreInit,
    common_init: CommonInit,
) -> io::Result<Snapshot> {
    let CoreInit { initial, inbox, commands } = init;
    let ApplyPlan { plan, shared, log, listener_of_socket } = initial;
    let generation = ConfigGeneration::new(plan, &shared, core_id, None);
    let connections_max = limit_of_core(common_init.connections_max, core_id);
    let log = CoreLog::new(log, core_id.index);
    let core = Core::new(core_id, generation, common_init.balancer.clone(), connections_max, log)?;
    let listeners = Rc::new(CoreListeners {
        listener_of_socket: RefCell::new(listener_of_socket),
        ..CoreListeners::default()
    });
    spawn_local(run_ticks(Rc::clone(&core)));
    spawn_local(serve_wakeups(Rc::clone(&core), common_init.wakeups.clone()));
    let helpers = [
        spawn_local(receive_from_cores(
            Rc::clone(&core),
            Rc::clone(&listeners),
            inbox.register()?,
            common_init.drain.clone(),
        )),
        spawn_local(admit_deferred(Rc::clone(&core), Rc::clone(&listeners))),
    ];
    spawn_local(handle_commands(Rc::clone(&core), Rc::clone(&listeners), commands));
    let mut watch = common_init.drain.watch();
    watch.wait_for(DrainStage::Draining).await;
    let drain_ns = core.current_generation().plan.drain_timeout_ns;
    let end_ns = now_ns() + drain_ns;
    core.start_draining();
    let failure = close_listeners(&core, &listeners, ACCEPT_QUEUE_DRAIN_NS.min(drain_ns / 4)).await;
    common_init.accepting_cores.fetch_sub(1, Ordering::SeqCst);
    finish_drain(&core, &common_init, (drain_ns, end_ns), watch).await;
    for helper in helpers {
        helper.abort();
    }
    let snapshot = core.snapshot();
    core.drop_settings();
    failure.map(|()| snapshot)
}

fn start_accept_task(core: &Rc<Core>, listeners: &Rc<CoreListeners>, listener: Listener, drain: &Drain) {
    let socket_index = listener.index();
    // Without a descriptor for the copy, the end does not wait for the queue.
    let socket = listener.try_clone().ok();
    let task = accept_connections(Rc::clone(core), Rc::clone(listeners), listener, drain.clone());
    listeners.accept_tasks.borrow_mut().push(AcceptTask { socket_index, socket, task: spawn_local(task) });
}

/// Stops accepting, once the queues are empty. Returns the error of a listening socket.
async fn close_listeners(core: &Core, listeners: &CoreListeners, closing_ns: u64) -> io::Result<()> {
    // A core that has just started receives its sockets meanwhile; after `HandOff` there are none.
    if !core.drain.is_replaced.get() || !listeners.accept_tasks.borrow().is_empty() {
        drain_accept_queues(core, listeners, closing_ns, |_| true).await;
    }
    let tasks = std::mem::take(&mut *listeners.accept_tasks.borrow_mut());
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

/// Lets closing listening sockets accept until their accept queues are empty. After the minimum time it
/// waits for a core that was not scheduled meanwhile, and still has connections in its queues.
async fn drain_accept_queues(
    core: &Core,
    listeners: &CoreListeners,
    closing_ns: u64,
    is_over: impl Fn(usize) -> bool,
) {
    let earliest_ns = now_ns() + closing_ns;
    let latest_ns = earliest_ns + ACCEPT_QUEUE_DRAIN_EXTRA_NS;
    core.timers.sleep_until(earliest_ns).await;
    let has_queued = |task: &AcceptTask| {
        is_over(task.socket_index) && task.socket.as_ref().is_some_and(Listener::has_pending_connection)
    };
    while now_ns() < latest_ns && listeners.accept_tasks.borrow().iter().any(has_queued) {
        core.timers.sleep_until(now_ns() + DRAIN_POLL_NS).await;
    }
}

/// Closes idle connections, and waits for the others up to the drain timeout. Deferred connections
/// are admitted as others end; other cores may still have some for this one.
async fn finish_drain(
    core: &Rc<Core>,
    common_init: &CommonInit,
    (drain_ns, end_ns): (u64, u64),
    mut watch: DrainWatch,
) {
    if !core.drain.is_replaced.get() {
        core.close_idle();
    }
    let tunnels_ns = end_ns.saturating_sub(TUNNEL_CLOSE_LEAD_NS.min(drain_ns / 2));
    let mut is_closing_tunnels = false;
    loop {
        let no_core_accepts = common_init.accepting_cores.load(Ordering::SeqCst) == 0;
        let now_ns = now_ns();
        if no_core_accepts && core.balancer.open_connections_on(core.id.index) == 0 || now_ns >= end_ns {
            break;
        }
        if now_ns >= tunnels_ns && !is_closing_tunnels {
            is_closing_tunnels = true;
            core.close_idle();
            core.close_tunnels();
        }
        rt::tokio::select! {
            () = core.timers.sleep_until(now_ns + DRAIN_POLL_NS) => {}
            _ = watch.wait_for(DrainStage::Abort) => break,
        }
    }
    for _ in 0..core.connection_limit.clear_deferred() {
        core.balancer.release(core.id.index);
        core.count_rejection(RejectReason::Draining);
    }
    core.hand_over_log();
}

async fn run_ticks(core: Rc<Core>) {
    loop {
        core.timers.sleep_until(core.ticks.now_ns.get() + TICK_NS).await;
        core.handle_tick(now_ns());
    }
}

/// Serves this core's queues when room became free on another core.
async fn serve_wakeups(core: Rc<Core>, wakeups: CoreWakeups) {
    loop {
        wakeups.wait(CoreIndex(core.id.index)).await;
        core.serve_queues();
    }
}

async fn handle_commands(
    core: Rc<Core>,
    listeners: Rc<CoreListeners>,
    mut commands: mpsc::Receiver<Command>,
) {
    while let Some(command) = commands.recv().await {
        match command {
            // The caller may have stopped waiting.
            Command::Snapshot(reply) => drop(reply.send(core.snapshot())),
            Command::RefreshServers(done) => {
                core.apply_server_changes();
                let _ = done.send(());
            }
            Command::Sessions(query, reply) => {
                drop(reply.send(core.session_dump.run(&core.deadlines, query).await));
            }
            Command::Profile(switch, reply) => {
                drop(reply.send(core.profile.apply(switch)));
            }
            Command::Apply(apply, done) => {
                apply_plan(&core, &listeners, *apply);
                let _ = done.send(());
            }
            Command::SwapServers(plan, shared, done) => {
                core.swap_servers(plan, &shared);
                let _ = done.send(());
            }
            Command::Ping(done) => drop(done.send(())),
            Command::HandOff(handed_off, done) => {
                core.drain.is_replaced.set(true);
                // Another process has these sockets, so no queued connection is lost.
                abort_accept_tasks(&listeners, |socket_index| handed_off.get(socket_index) == Some(&true));
                let _ = done.send(());
            }
        }
    }
}

fn apply_plan(core: &Rc<Core>, listeners: &Rc<CoreListeners>, apply: ApplyPlan) {
    let previous = core.current_generation();
    let is_kept =
        |socket_index: usize| apply.listener_of_socket.get(socket_index).copied().flatten().is_some();
    let listener_of_socket = listeners.listener_of_socket.borrow().clone();
    let closing =
        listener_of_socket.into_iter().enumerate().filter(|(socket_index, _)| !is_kept(*socket_index));
    let settings =
        |(socket_index, listener): (usize, Option<usize>)| Some((socket_index, core.settings(listener?)?));
    let closing: Vec<_> = closing.filter_map(settings).collect();
    core.activate(ConfigGeneration::new(apply.plan, &apply.shared, core.id, Some(&previous)));
    core.change_log(apply.log);
    *listeners.listener_of_socket.borrow_mut() = apply.listener_of_socket;
    if !closing.is_empty() {
        listeners.closing.borrow_mut().extend(closing.iter().cloned());
        spawn_local(close_when_empty(Rc::clone(core), Rc::clone(listeners), closing));
    }
    core.apply_server_changes();
    // There may be room now, and parked connections whose listener was removed.
    core.connection_limit.wake_waiters();
}

/// Closes listening sockets once their queues are empty.
async fn close_when_empty(
    core: Rc<Core>,
    listeners: Rc<CoreListeners>,
    closing: Vec<(usize, Rc<ListenerSettings>)>,
) {
    let is_leaving = |socket_index: usize| closing.iter().any(|(leaving, _)| *leaving == socket_index);
    drain_accept_queues(&core, &listeners, ACCEPT_QUEUE_DRAIN_NS, is_leaving).await;
    abort_accept_tasks(&listeners, is_leaving);
    // Another core may have accepted for this one at the last moment.
    core.timers.sleep_until(now_ns() + ACCEPT_QUEUE_DRAIN_NS).await;
    listeners.closing.borrow_mut().retain(|(socket_index, _)| !is_leaving(*socket_index));
}

fn abort_accept_tasks(listeners: &CoreListeners, is_over: impl Fn(usize) -> bool) {
    listeners.accept_tasks.borrow_mut().retain(|task| {
        let is_over_now = is_over(task.socket_index);
        if is_over_now {
            task.task.abort();
        }
        !is_over_now
    });
}

/// Receives the connections that other cores accepted for this one, and its listening sockets.
async fn receive_from_cores(
    core: Rc<Core>,
    listeners: Rc<CoreListeners>,
    mut inbox: AsyncInbox,
    drain: Drain,
) {
    loop {
        match inbox.receive().await {
            Ok(Some(CoreMessage::Connection(connection))) => {
                let _section = core.profile.enter(ProfilePhase::Accept);
                admit(&core, &listeners, connection);
            }
            Ok(Some(CoreMessage::Listener(listener))) => {
                start_accept_task(&core, &listeners, listener, &drain)
            }
            Ok(None) => return,
            // There was no descriptor for it: the connection is lost.
            Err(_) => {
                core.count_rejection(RejectReason::NoDescriptor);
                core.balancer.release(core.id.index);
            }
        }
    }
}

/// Serves parked connections as others end.
async fn admit_deferred(core: Rc<Core>, listeners: Rc<CoreListeners>) {
    poll_fn(|cx| {
        let is_admissible = |deferred: &AcceptedConnection| {
            !is_listener_full(&core, &listeners, deferred.listener_index)
                && is_within_rate(&core, &listeners, deferred.listener_index)
        };
        while let Some(connection) = core.connection_limit.take_deferred_where(is_admissible) {
            spawn_connection(&core, &listeners, connection, None);
        }
        core.connection_limit.register_waker(cx.waker());
        Poll::Pending
    })
    .await
}

/// Accepts connections, except while the maximum number is open.
async fn accept_connections(
    core: Rc<Core>,
    listeners: Rc<CoreListeners>,
    listener: Listener,
    drain: Drain,
) -> io::Result<()> {
    let socket_index = listener.index();
    let handle = |accepted| match accepted {
        AcceptEvent::Connection(connection) => admit(&core, &listeners, connection),
        AcceptEvent::AcceptFailed(_) => core.count_rejection(RejectReason::NoDescriptor),
    };
    let mut accepting = pin!(listener.accept(&core.balancer, core.id.index, &core.timers, handle));
    let mut paused = false;
    let result = poll_fn(|cx| {
        let Some(limit) = pausing_limit(&core, &listeners, socket_index) else {
            paused = false;
            let _section = core.profile.enter(ProfilePhase::Accept);
            return accepting.as_mut().poll(cx);
        };
        if !paused {
            paused = true;
            core.count_rejection(limit);
        }
        core.connection_limit.register_waker(cx.waker());
        Poll::Pending
    })
    .await;
    if result.is_err() {
        // Without its listener a core cannot work, and a partial proxy is worse than none.
        drain.advance(DrainStage::Draining);
    }
    result
}

/// Returns the limit that a further connection of this listening socket would exceed, if any.
fn reached_limit(core: &Core, listeners: &CoreListeners, socket_index: usize) -> Option<RejectReason> {
    match core.connection_limit.is_full() {
        true => Some(RejectReason::ProcessFull),
        false => is_listener_full(core, listeners, socket_index).then_some(RejectReason::ListenerFull),
    }
}

/// Returns the limit that pauses accepting at this listening socket; `None`: none. Connections that are to be
/// rejected at a limit must be accepted first.
fn pausing_limit(core: &Rc<Core>, listeners: &CoreListeners, socket_index: usize) -> Option<RejectReason> {
    let limits = limits_of(core, listeners, socket_index);
    match reached_limit(core, listeners, socket_index) {
        Some(RejectReason::ListenerFull) if limits.as_ref()?.action_when_full() != OnLimit::Wait => {
            return None;
        }
        None => {}
        limit => return limit,
    }
    let wait_ns = limits?.accept_delay_ns(now_ns)?;
    core.wake_limit_waiters_in(wait_ns);
    Some(RejectReason::ConnectionRate)
}

/// Takes a token of the rate for a parked connection. If there is none, schedules another attempt.
fn is_within_rate(core: &Rc<Core>, listeners: &CoreListeners, socket_index: usize) -> bool {
    let limits = limits_of(core, listeners, socket_index);
    let admitted = limits.map_or(Ok(()), |keeper| keeper.admit_connection(now_ns));
    admitted.inspect_err(|rejected| core.wake_limit_waiters_in(rejected.wait_ns)).is_ok()
}

fn limits_of(core: &Core, listeners: &CoreListeners, socket_index: usize) -> Option<Arc<ListenerLimits>> {
    let listener = listeners.listener_of_socket.borrow().get(socket_index).copied().flatten()?;
    core.settings(listener).map(|settings| Arc::clone(&settings.limits))
}

/// Returns whether a listener has its maximum number of connections on this core.
fn is_listener_full(core: &Core, listeners: &CoreListeners, socket_index: usize) -> bool {
    let listener = listeners.listener_of_socket.borrow().get(socket_index).copied().flatten();
    listener.is_some_and(|listener| core.is_listener_full(listener))
}

fn admit(core: &Rc<Core>, listeners: &Rc<CoreListeners>, connection: AcceptedConnection) {
    let limits = limits_of(core, listeners, connection.listener_index);
    // Checked again here: one accept call takes several connections, and other cores send some too.
    let rejected = match (reached_limit(core, listeners, connection.listener_index), &limits) {
        (None, None) => None,
        (None, Some(limits)) => limits.admit_connection(now_ns).err(),
        (Some(RejectReason::ListenerFull), Some(limits)) => Some(limits.reject_when_full()),
        (Some(limit), _) => {
            core.count_rejection(limit);
            core.connection_limit.defer(connection);
            return;
        }
    };
    let Some(rejected) = rejected else {
        spawn_connection(core, listeners, connection, None);
        return;
    };
    core.count_rejection(rejected.reason);
    match rejected.action {
        OnLimit::Wait => {
            if rejected.wait_ns > 0 {
                core.wake_limit_waiters_in(rejected.wait_ns);
            }
            core.connection_limit.defer(connection);
        }
        OnLimit::Reject if core.load.rejected.get() < REJECTED_MAX => {
            spawn_connection(core, listeners, connection, Some(rejected));
        }
        on_limit => {
            if on_limit == OnLimit::Reject {
                core.count_rejection(RejectReason::RejectsFull);
            }
            connection.reset();
            core.balancer.release(core.id.index);
        }
    }
}

fn spawn_connection(
    core: &Rc<Core>,
    listeners: &Rc<CoreListeners>,
    connection: AcceptedConnection,
    rejected: Option<Rejection>,
) {
    let listener = listeners.listener_of_socket.borrow().get(connection.listener_index).copied().flatten();
    let settings = listener.and_then(|listener| core.settings(listener)).or_else(|| {
        let closing = listeners.closing.borrow();
        let matching = closing.iter().find(|(socket_index, _)| *socket_index == connection.listener_index);
        matching.map(|(_, settings)| Rc::clone(settings))
    });
    let Some(settings) = settings else {
        // Its listener was removed long before it could be served.
        core.balancer.release(core.id.index);
        core.count_rejection(RejectReason::Draining);
        return;
    };
    match conn::open_stream(connection.fd, connection.family, &settings) {
        Ok(stream) => {
            let serving = conn::serve(stream, settings, connection.peer, rejected);
            spawn_local(serving);
        }
        Err(_) => {
            core.count_rejection(RejectReason::NoDescriptor);
            core.balancer.release(core.id.index);
        }
    }
}
