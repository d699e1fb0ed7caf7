//! Starts the cores, accepts connections, drains, and sums up.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::address::Address;
use rt::clock::now_ns;
use rt::conn_balancer::{AcceptedConnection, AsyncInbox, ConnectionBalancer, CoreMessage, Inbox};
use rt::cores::{CoreConfig, CoreError, CoreId, FdTable};
use rt::drain::{Drain, DrainStage, DrainWatch};
use rt::limits::raise_descriptor_limit;
use rt::listen::{AcceptEvent, AcceptMode, BoundAddress, Listener};
use rt::stream::Stream;
use rt::tokio::sync::{mpsc, oneshot};
use rt::tokio::task::{JoinHandle, spawn_local};

use crate::conn;
use crate::core::{OriginCore, OriginCoreParts, StatsQuery, TICK_NS};
use crate::log::{self, AccessLogSender, AccessLogWriter, CoreAccessLog};
use crate::plan::OriginPlan;
use crate::stats::{CloseReason, CoreStats, OriginStats, add};

/// A running origin.
#[derive(Debug)]
pub struct RunningOrigin {
    cores: rt::cores::RunningCores<CoreStats>,
    bound_addresses: Vec<BoundAddress>,
    /// Our own copies of the listening sockets. Tools such as `ss -ltnp` show only the sockets in
    /// the process's first descriptor table. Empty if the cores share that table.
    listener_copies: Vec<Listener>,
    queries: Vec<mpsc::Sender<StatsQuery>>,
    log_writer: Option<AccessLogWriter>,
    drain: DrainWatch,
    started_ns: u64,
}

/// Data that one core takes to its thread.
#[derive(Debug)]
struct OriginCoreInit {
    inbox: Inbox,
    queries: mpsc::Receiver<StatsQuery>,
    log: Option<AccessLogSender>,
}

/// Maximum number of concurrent counter requests to one core.
const QUERIES_MAX: usize = 64;

/// Interval at which [`Running::join`] polls for the stop, unless it is woken.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Accepting tasks of one core.
type AcceptTasks = Rc<RefCell<Vec<JoinHandle<io::Result<()>>>>>;

/// Binds all addresses and starts the cores; `drain` stops them.
///
/// # Errors
/// An address, the access log or a thread was unavailable. Nothing is left behind then. If it was a
/// thread, `drain` has been advanced to [`DrainStage::Abort`].
pub fn start(plan: OriginPlan, drain: Drain) -> io::Result<RunningOrigin> {
    start_with_tables(plan, drain, false)
}

/// Does the same in a process that does nothing else from then on: cores get their own descriptor
/// tables, which makes their system calls cheaper ([`FdTable::Unshared`]).
///
/// # Errors
/// As [`start`].
pub fn start_exclusive(plan: OriginPlan, drain: Drain) -> io::Result<RunningOrigin> {
    start_with_tables(plan, drain, true)
}

fn start_with_tables(plan: OriginPlan, drain: Drain, own_fd_tables: bool) -> io::Result<RunningOrigin> {
    let started_ns = now_ns();
    let descriptors = raise_descriptor_limit().current;
    let cores = plan.threads;
    let mut bound_addresses = plan
        .listen
        .iter()
        .map(|address| BoundAddress::new(address, cores))
        .collect::<io::Result<Vec<_>>>()?;
    let (sender, log_writer) = match &plan.access_log {
        Some(target) => log::start(target, cores).map(|(sender, log)| (Some(sender), Some(log)))?,
        None => (None, None),
    };
    let (balancer, inboxes) = ConnectionBalancer::new(cores)?;
    let (queries, query_receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| mpsc::channel(QUERIES_MAX)).unzip();
    let fd_table = match own_fd_tables {
        true => {
            let inboxes = inboxes.iter().map(Inbox::raw_fd);
            FdTable::Unshared(balancer.raw_fds().into_iter().chain(inboxes).collect())
        }
        false => FdTable::Shared,
    };
    let build_init = |(inbox, queries)| OriginCoreInit { inbox, queries, log: sender.clone() };
    let inits = inboxes.into_iter().zip(query_receivers).map(build_init).collect();
    drop(sender);
    let descriptor_max = descriptors.saturating_sub(plan.descriptors_reserved()).max(cores as u64);
    let connections_max = plan.connections_max.unwrap_or(descriptor_max as usize);
    let core_config =
        CoreConfig { count: cores, name: "serve", pin: plan.pin.clone(), spin: plan.spin, fd_table };
    let (senders, core_balancer) = (queries.clone(), balancer.clone());
    let watch = drain.watch();
    let stop = drain.clone();
    let running = rt::cores::start_with_init(&core_config, inits, move |core_id, init| {
        let parts = OriginCoreParts {
            index: core_id.index,
            plan: plan.clone(),
            balancer: core_balancer.clone(),
            log: None,
            connections_max: connection_quota(connections_max, core_id),
            queries: senders.clone(),
            started_ns,
        };
        run_core(parts, init, drain.clone())
    });
    let running = running
        .and_then(|running| Ok((running, send_listeners(&mut bound_addresses, &balancer, cores)?)))
        .map(|(running, listener_copies)| (running, if own_fd_tables { listener_copies } else { Vec::new() }))
        // If one core cannot start, the others must not stay.
        .inspect_err(|_| stop.advance(DrainStage::Abort));
    let (cores, listener_copies) = running?;
    Ok(RunningOrigin {
        cores,
        bound_addresses,
        listener_copies,
        queries,
        log_writer,
        drain: watch,
        started_ns,
    })
}

/// Sends the listening sockets to the cores through their inboxes, because the cores may have
/// their own descriptor tables. Returns our own copies.
fn send_listeners(
    bound_addresses: &mut [BoundAddress],
    balancer: &ConnectionBalancer,
    cores: usize,
) -> io::Result<Vec<Listener>> {
    let mut listener_copies = Vec::new();
    for (index, bound_address) in bound_addresses.iter_mut().enumerate() {
        for core in 0..cores {
            if let Some(listener) = bound_address.take_listener(core, index) {
                balancer.send_listener(core, &listener)?;
                listener_copies.push(listener);
            }
        }
    }
    Ok(listener_copies)
}

/// Returns one core's quota of the connections, so that no core has to ask another before it
/// accepts.
fn connection_quota(connections_max: usize, core_id: CoreId) -> usize {
    connections_max / core_id.count + usize::from(core_id.index < connections_max % core_id.count)
}

impl RunningOrigin {
    /// Returns the listening addresses, with the ports that the kernel chose, and the distribution
    /// of connections to cores.
    #[must_use]
    pub fn addresses(&self) -> Vec<(Address, AcceptMode)> {
        self.bound_addresses.iter().map(|bound| (bound.address().clone(), bound.mode())).collect()
    }

    /// Returns the kernel's ids of the cores' threads.
    #[must_use]
    pub fn thread_ids(&self) -> &[i32] {
        self.cores.thread_ids()
    }

    /// Returns whether all cores have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.cores.is_finished()
    }

    /// Returns the current counters of all cores. Waits for each core, so a core's own thread must
    /// not call it.
    #[must_use]
    pub fn stats(&self) -> OriginStats {
        let query_core = |query: &mpsc::Sender<StatsQuery>| {
            let (reply_sender, reply_receiver) = oneshot::channel();
            query.blocking_send(reply_sender).ok()?;
            reply_receiver.blocking_recv().ok()
        };
        let cores = self.queries.iter().filter_map(query_core).collect();
        OriginStats::from_cores(cores, now_ns() - self.started_ns, self.drain.stage() != DrainStage::Running)
    }

    /// Waits until the drain is over, and returns the counters.
    ///
    /// # Errors
    /// A core failed. The others have been stopped then.
    pub fn join(mut self) -> Result<OriginStats, CoreError> {
        while self.drain.stage() == DrainStage::Running && !self.cores.is_finished() {
            // The stopping thread may unpark this thread, so that no client connects to a stopped
            // origin.
            std::thread::park_timeout(JOIN_POLL_INTERVAL);
        }
        self.listener_copies.clear();
        let cores = self.cores.join().into_iter().collect::<Result<Vec<_>, _>>();
        let uptime_ns = now_ns() - self.started_ns;
        // Its senders were dropped with the cores, so it writes the rest and ends.
        if let Some(log) = self.log_writer {
            log.join();
        }
        Ok(OriginStats::from_cores(cores?, uptime_ns, true))
    }
}

async fn run_core(mut parts: OriginCoreParts, init: OriginCoreInit, drain: Drain) -> io::Result<CoreStats> {
    let OriginCoreInit { inbox, queries, log } = init;
    let format = parts.plan.access_log_format;
    parts.log = log.map(|sender| CoreAccessLog::new(sender, format));
    let core = Rc::new(OriginCore::new(parts)?);
    spawn_local(run_ticks(Rc::clone(&core)));
    spawn_local(answer_queries(Rc::clone(&core), queries));
    let accept_tasks = AcceptTasks::default();
    let helpers = [
        spawn_local(receive_messages(
            Rc::clone(&core),
            Rc::clone(&accept_tasks),
            inbox.register()?,
            drain.clone(),
        )),
        spawn_local(serve_deferred(Rc::clone(&core))),
    ];
    let mut watch = drain.watch();
    watch.wait_for(DrainStage::Draining).await;
    for helper in helpers {
        helper.abort();
    }
    drain_core(&core, accept_tasks.take(), watch).await?;
    Ok(core.read_stats())
}

/// Ends idle connections, and waits for the others up to the drain timeout.
async fn drain_core(
    core: &Rc<OriginCore>,
    accept_tasks: Vec<JoinHandle<io::Result<()>>>,
    mut watch: DrainWatch,
) -> io::Result<()> {
    for task in &accept_tasks {
        task.abort();
    }
    let mut failure = Ok(());
    for task in accept_tasks {
        // A task that was stopped has no result.
        if let Ok(Err(error)) = task.await {
            failure = Err(error);
        }
    }
    for _ in 0..core.conn_limit.clear_deferred() {
        core.balancer.release(core.index);
        core.counters.count_close(CloseReason::Drained);
    }
    core.start_draining();
    let mut all_closed = pin!(poll_fn(|cx| {
        if core.conn_limit.active_count() == 0 {
            return Poll::Ready(());
        }
        core.conn_limit.register_waker(cx.waker());
        Poll::Pending
    }));
    let mut drain_timeout = pin!(core.timers.sleep_until(now_ns() + core.plan.drain_timeout_ns));
    rt::tokio::select! {
        () = &mut all_closed => {}
        () = &mut drain_timeout => {}
        _ = watch.wait_for(DrainStage::Abort) => {}
    }
    for _ in 0..core.conn_limit.active_count() {
        core.counters.count_close(CloseReason::Dropped);
    }
    if let Some(log) = &core.log {
        log.submit_batch();
    }
    failure
}

async fn run_ticks(core: Rc<OriginCore>) {
    loop {
        core.timers.sleep_until(core.now_ns.get() + TICK_NS).await;
        core.handle_tick(now_ns());
    }
}

async fn answer_queries(core: Rc<OriginCore>, mut queries: mpsc::Receiver<StatsQuery>) {
    while let Some(reply_sender) = queries.recv().await {
        // The requester may have left.
        let _ = reply_sender.send(core.read_stats());
    }
}

/// Receives the connections that other cores accepted for this one, and its listening sockets.
async fn receive_messages(
    core: Rc<OriginCore>,
    accept_tasks: AcceptTasks,
    mut inbox: AsyncInbox,
    drain: Drain,
) {
    loop {
        match inbox.receive().await {
            Ok(Some(CoreMessage::Connection(connection))) => serve_or_defer(&core, connection),
            Ok(Some(CoreMessage::Listener(listener))) => {
                let accepting = accept_all(Rc::clone(&core), listener, drain.clone());
                accept_tasks.borrow_mut().push(spawn_local(accepting));
            }
            Ok(None) => return,
            // There was no descriptor for it: it is lost, and the sender has counted it.
            Err(_) => {
                core.balancer.release(core.index);
                add(&core.counters.accept_failed, 1);
            }
        }
    }
}

/// Serves the connections that had to wait, as others end.
async fn serve_deferred(core: Rc<OriginCore>) {
    poll_fn(|cx| {
        while let Some(connection) = core.conn_limit.take_deferred() {
            serve(&core, connection);
        }
        core.conn_limit.register_waker(cx.waker());
        Poll::Pending
    })
    .await
}

/// Accepts, except while the maximum number of connections is open.
async fn accept_all(core: Rc<OriginCore>, listener: Listener, drain: Drain) -> io::Result<()> {
    let handle = |accepted| match accepted {
        AcceptEvent::Connection(connection) => serve_or_defer(&core, connection),
        AcceptEvent::AcceptFailed(_) => add(&core.counters.accept_failed, 1),
    };
    let mut accepting = pin!(listener.accept(&core.balancer, core.index, &core.timers, handle));
    let mut paused = false;
    let result = poll_fn(|cx| {
        if !core.conn_limit.is_full() {
            paused = false;
            return accepting.as_mut().poll(cx);
        }
        if !paused {
            paused = true;
            add(&core.counters.accept_paused, 1);
        }
        core.conn_limit.register_waker(cx.waker());
        Poll::Pending
    })
    .await;
    if result.is_err() {
        // A core without its listener is useless, and half an origin is worse than none.
        drain.advance(DrainStage::Draining);
    }
    result
}

fn serve_or_defer(core: &Rc<OriginCore>, connection: AcceptedConnection) {
    if core.conn_limit.is_full() {
        core.conn_limit.defer(connection);
    } else {
        serve(core, connection);
    }
}

fn serve(core: &Rc<OriginCore>, connection: AcceptedConnection) {
    let stream = Stream::from_fd(connection.fd, connection.family);
    let stream = stream.and_then(|stream| match &core.plan.tls {
        Some(tls) if core.plan.proxy_protocol => stream.accept_tls_behind_header(tls.settings()),
        Some(tls) => stream.accept_tls(tls.settings()),
        None => Ok(stream),
    });
    match stream {
        Ok(stream) if core.plan.proxy_protocol => {
            spawn_local(conn::proxy_preface::serve(Rc::clone(core), stream));
        }
        Ok(stream) => {
            spawn_local(conn::serve(Rc::clone(core), stream));
        }
        Err(_) => {
            add(&core.counters.accept_failed, 1);
            core.balancer.release(core.index);
        }
    }
}
