//! Starts the cores, accepts connections, applies new plans, drains. This module is the interface
//! between the process and its cores; `core` and `conn` do the cores' work. `command` has the commands
//! to the cores.

mod command;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::clock::{MILLISECOND_NS, MonotonicTime};
use rt::conn_balancer::{AcceptedConnection, ConnectionBalancer, Inbox};
use rt::cores::CoreId;
use rt::drain::{Drain, DrainStage, DrainWatch};
use rt::memory::{MemoryReturn, return_freed_memory};
use rt::tokio::sync::mpsc;
use rt::tokio::task::spawn_local;
use server_shell::accept::{AcceptingCore, Acceptor, Admission};

use crate::admission::{ListenerLimits, Rejection};
use crate::conn::{self, REJECTED_MAX};
use crate::core::{ConfigGeneration, Core, ListenerSettings, TICK_NS};
use crate::log::CoreLog;
use crate::metrics::Snapshot;
use crate::outcome::RejectReason;
use crate::plan::OnLimit;
use crate::pool::{CoreIndex, CoreWakeups};
use crate::profile::ProfilePhase;
use crate::tracing::CoreTraces;

pub use command::{ApplyPlan, Command, CoreSenders};

/// Start values of one core, moved to its thread.
#[derive(Debug)]
pub struct CoreInit {
    pub initial: ApplyPlan,
    pub inbox: Inbox,
    pub commands: mpsc::Receiver<Command>,
}

/// Start values that all cores share.
#[derive(Clone, Debug)]
pub struct CommonInit {
    pub balancer: ConnectionBalancer,
    pub wakeups: CoreWakeups,
    pub drain: Drain,
    pub connections_max: usize,
    /// Number of cores that may still accept connections, also for each other.
    pub accepting_cores: Arc<AtomicUsize>,
}

pub const CORE_THREAD: &str = "proxy";
/// Time before the end of a drain at which idle tunnels are closed.
const TUNNEL_CLOSE_LEAD_NS: u64 = 500 * MILLISECOND_NS;
/// Time for which a closing listening socket still accepts. Closing a listening socket resets the
/// connections in its accept queue, so the queue is emptied first, while the kernel drops SYNs. In a
/// drain it takes at most a quarter of the drain timeout.
pub const ACCEPT_QUEUE_DRAIN_NS: u64 = 250 * MILLISECOND_NS;
/// Maximum extra time if connections are still in the accept queue then.
const ACCEPT_QUEUE_DRAIN_EXTRA_NS: u64 = 2 * ACCEPT_QUEUE_DRAIN_NS;
/// Interval at which a draining core checks whether it is done.
const DRAIN_POLL_NS: u64 = 5 * MILLISECOND_NS;

/// The listener of each listening socket of one core.
#[derive(Debug, Default)]
struct CoreListeners {
    listener_of_socket: RefCell<Vec<Option<usize>>>,
    /// Listening sockets that a reload closes, with the settings for their remaining connections.
    closing: RefCell<Vec<(usize, Rc<ListenerSettings>)>>,
}

/// Runs one core to its end. Returns its counters.
pub async fn run_core(core_id: CoreId, init: CoreInit, common_init: CommonInit) -> io::Result<Snapshot> {
    let CoreInit { initial, inbox, commands } = init;
    let ApplyPlan { plan, shared, log, traces, listener_of_socket } = initial;
    let traces = CoreTraces::new(traces, plan.threads);
    let generation = ConfigGeneration::new(plan, &shared, core_id, None);
    let connections_max = core_id.part_of(common_init.connections_max);
    let log = CoreLog::new(log, core_id.index);
    let core = Core::new(core_id, generation, common_init.balancer.clone(), connections_max, log, traces)?;
    let listener_of_socket = RefCell::new(listener_of_socket);
    let listeners = CoreListeners { listener_of_socket, ..CoreListeners::default() };
    let admission = ProxyAdmission { core: Rc::clone(&core), listeners };
    spawn_local(run_ticks(Rc::clone(&core)));
    spawn_local(serve_wakeups(Rc::clone(&core), common_init.wakeups.clone()));
    let (acceptor, helpers) = Acceptor::start(admission, inbox, common_init.drain.clone())?;
    spawn_local(handle_commands(Rc::clone(&core), Rc::clone(&acceptor), commands));
    let mut watch = common_init.drain.watch();
    watch.wait_for(DrainStage::Draining).await;
    let drain_ns = core.current_generation().plan.drain_timeout_ns;
    let end = MonotonicTime::now() + drain_ns;
    core.start_draining();
    let failure = close_listeners(&acceptor, ACCEPT_QUEUE_DRAIN_NS.min(drain_ns / 4)).await;
    common_init.accepting_cores.fetch_sub(1, Ordering::SeqCst);
    finish_drain(&core, &common_init, (drain_ns, end), watch).await;
    drop(helpers);
    let snapshot = core.snapshot();
    core.drop_settings();
    failure.map(|()| snapshot)
}

/// Stops accepting, once the queues are empty. Returns the error of a listening socket.
async fn close_listeners(acceptor: &Acceptor<ProxyAdmission>, closing_ns: u64) -> io::Result<()> {
    // A core that has just started receives its sockets meanwhile; after `HandOff` there are none.
    if !acceptor.admission().core.drain.is_replaced.get() || !acceptor.has_no_sockets() {
        acceptor.drain_accept_queues(closing_ns, ACCEPT_QUEUE_DRAIN_EXTRA_NS, |_| true).await;
    }
    acceptor.stop().await
}

/// Closes idle connections, and waits for the others up to the drain timeout. Deferred connections
/// are admitted as others end; other cores may still have some for this one.
async fn finish_drain(
    core: &Rc<Core>,
    common_init: &CommonInit,
    (drain_ns, end): (u64, MonotonicTime),
    mut watch: DrainWatch,
) {
    if !core.drain.is_replaced.get() {
        core.close_idle();
    }
    let tunnels_end = end.saturating_sub(TUNNEL_CLOSE_LEAD_NS.min(drain_ns / 2));
    let mut is_closing_tunnels = false;
    loop {
        let no_core_accepts = common_init.accepting_cores.load(Ordering::SeqCst) == 0;
        let now = MonotonicTime::now();
        if no_core_accepts && core.balancer.open_connections_on(core.id.index) == 0 || now >= end {
            break;
        }
        if now >= tunnels_end && !is_closing_tunnels {
            is_closing_tunnels = true;
            core.close_idle();
            core.close_tunnels();
        }
        rt::tokio::select! {
            () = core.timers.sleep_until((now + DRAIN_POLL_NS).as_ns()) => {}
            _ = watch.wait_for(DrainStage::Abort) => break,
        }
    }
    for _ in 0..core.connection_limit.clear_deferred() {
        core.balancer.release(core.id.index);
        core.count_rejection(RejectReason::Draining);
    }
    core.hand_over_outputs();
}

async fn run_ticks(core: Rc<Core>) {
    let mut memory_return = MemoryReturn::default();
    loop {
        core.timers.sleep_until((core.ticks.now.get() + TICK_NS).as_ns()).await;
        core.handle_tick(MonotonicTime::now());
        if let Some(part) =
            memory_return.due(core.connection_limit.ended_count(), core.ticks.now.get().as_ns())
        {
            core.free_unused_memory();
            return_freed_memory(part);
        }
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
    acceptor: Rc<Acceptor<ProxyAdmission>>,
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
            Command::SetMaintenancePage(page, done) => {
                core.set_maintenance_page(page);
                let _ = done.send(());
            }
            Command::Sessions(query, reply) => {
                drop(reply.send(core.session_dump.run(&core.deadlines, query).await));
            }
            Command::Profile(switch, reply) => {
                drop(reply.send(core.profile.apply(switch)));
            }
            Command::Apply(apply, done) => {
                apply_plan(&acceptor, *apply);
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
                acceptor.abort(|socket_index| handed_off.get(socket_index) == Some(&true));
                let _ = done.send(());
            }
        }
    }
}

fn apply_plan(acceptor: &Rc<Acceptor<ProxyAdmission>>, apply: ApplyPlan) {
    let ProxyAdmission { core, listeners } = acceptor.admission();
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
    core.change_outputs(apply.log, apply.traces);
    *listeners.listener_of_socket.borrow_mut() = apply.listener_of_socket;
    if !closing.is_empty() {
        listeners.closing.borrow_mut().extend(closing.iter().cloned());
        spawn_local(close_when_empty(Rc::clone(acceptor), closing));
    }
    core.apply_server_changes();
    // There may be room now, and parked connections whose listener was removed.
    core.connection_limit.wake_waiters();
}

/// Closes listening sockets once their queues are empty.
async fn close_when_empty(
    acceptor: Rc<Acceptor<ProxyAdmission>>,
    closing: Vec<(usize, Rc<ListenerSettings>)>,
) {
    let is_leaving = |socket_index: usize| closing.iter().any(|(leaving, _)| *leaving == socket_index);
    acceptor.drain_accept_queues(ACCEPT_QUEUE_DRAIN_NS, ACCEPT_QUEUE_DRAIN_EXTRA_NS, is_leaving).await;
    acceptor.abort(is_leaving);
    let ProxyAdmission { core, listeners } = acceptor.admission();
    // Another core may have accepted for this one at the last moment.
    core.timers.sleep_until((MonotonicTime::now() + ACCEPT_QUEUE_DRAIN_NS).as_ns()).await;
    listeners.closing.borrow_mut().retain(|(socket_index, _)| !is_leaving(*socket_index));
}

/// Limits of a core and its listeners, and their handling of the connections over them.
#[derive(Debug)]
struct ProxyAdmission {
    core: Rc<Core>,
    listeners: CoreListeners,
}

impl Admission for ProxyAdmission {
    type Limit = RejectReason;

    fn core(&self) -> AcceptingCore<'_> {
        let Core { id, balancer, connection_limit, timers, .. } = &*self.core;
        AcceptingCore { index: id.index, balancer, limit: connection_limit, timers }
    }

    /// Returns the limit that pauses accepting. Connections that are to be rejected at a limit must be
    /// accepted first.
    fn pausing_limit(&self, socket_index: usize) -> Option<RejectReason> {
        let limits = self.limits_of(socket_index);
        match self.reached_limit(socket_index) {
            Some(RejectReason::ListenerFull) if limits.as_ref()?.action_when_full() != OnLimit::Wait => {
                return None;
            }
            None => {}
            limit => return limit,
        }
        let wait_ns = limits?.accept_delay_ns(MonotonicTime::now)?;
        self.core.wake_limit_waiters_in(wait_ns);
        Some(RejectReason::ConnectionRate)
    }

    fn count_pause(&self, limit: RejectReason) {
        self.core.count_rejection(limit);
    }

    fn count_accept_failure(&self) {
        self.core.count_rejection(RejectReason::NoDescriptor);
    }

    fn admit(&self, connection: AcceptedConnection) {
        let core = &self.core;
        let limits = self.limits_of(connection.listener_index);
        let rejected = match (self.reached_limit(connection.listener_index), &limits) {
            (None, None) => None,
            (None, Some(limits)) => limits.admit_connection(MonotonicTime::now).err(),
            (Some(RejectReason::ListenerFull), Some(limits)) => Some(limits.reject_when_full()),
            (Some(limit), _) => {
                core.count_rejection(limit);
                core.connection_limit.defer(connection);
                return;
            }
        };
        let Some(rejected) = rejected else {
            self.spawn_connection(connection, None);
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
                self.spawn_connection(connection, Some(rejected));
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

    fn may_serve(&self, deferred: &AcceptedConnection) -> bool {
        !self.is_listener_full(deferred.listener_index) && self.is_within_rate(deferred.listener_index)
    }

    fn serve(&self, connection: AcceptedConnection) {
        self.spawn_connection(connection, None);
    }

    fn accept_section(&self) -> impl Sized {
        self.core.profile.enter(ProfilePhase::Accept)
    }
}

impl ProxyAdmission {
    /// Returns the limit that a further connection of this listening socket would exceed, if any.
    fn reached_limit(&self, socket_index: usize) -> Option<RejectReason> {
        match self.core.connection_limit.is_full() {
            true => Some(RejectReason::ProcessFull),
            false => self.is_listener_full(socket_index).then_some(RejectReason::ListenerFull),
        }
    }

    /// Takes a token of the rate for a parked connection. If there is none, schedules another attempt.
    fn is_within_rate(&self, socket_index: usize) -> bool {
        let limits = self.limits_of(socket_index);
        let admitted = limits.map_or(Ok(()), |keeper| keeper.admit_connection(MonotonicTime::now));
        admitted.inspect_err(|rejected| self.core.wake_limit_waiters_in(rejected.wait_ns)).is_ok()
    }

    /// Returns the listener of a listening socket, unless the socket is closed.
    fn listener_of(&self, socket_index: usize) -> Option<usize> {
        self.listeners.listener_of_socket.borrow().get(socket_index).copied().flatten()
    }

    fn limits_of(&self, socket_index: usize) -> Option<Arc<ListenerLimits>> {
        self.core.settings(self.listener_of(socket_index)?).map(|settings| Arc::clone(&settings.limits))
    }

    /// Returns whether a listener has its maximum number of connections on this core.
    fn is_listener_full(&self, socket_index: usize) -> bool {
        self.listener_of(socket_index).is_some_and(|listener| self.core.is_listener_full(listener))
    }

    fn spawn_connection(&self, connection: AcceptedConnection, rejected: Option<Rejection>) {
        let core = &self.core;
        let socket_index = connection.listener_index;
        let settings = self.listener_of(socket_index).and_then(|listener| core.settings(listener));
        let settings = settings.or_else(|| {
            let closing = self.listeners.closing.borrow();
            let matching = closing.iter().find(|(closing_index, _)| *closing_index == socket_index);
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
}
