//! Starts the cores, accepts connections, drains, and sums up.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rt::address::Address;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::conn_balancer::{AcceptedConnection, ConnectionBalancer, Inbox};
use rt::core_senders::CoreSenders;
use rt::cores::{CoreConfig, CoreError, FdTable};
use rt::drain::{Drain, DrainStage, DrainWatch};
use rt::limits::raise_descriptor_limit;
use rt::listen::{AcceptMode, BoundAddress, Listener};
use rt::memory::{MemoryReturn, return_freed_memory};
use rt::stream::Stream;
use rt::tokio::sync::mpsc;
use rt::tokio::task::spawn_local;
use rt::user_tcp::{UserTcp, UserTcpPort};
use rt::xdp::attachment::XdpMode;
use rt::xdp::stack::CONNECTIONS_MAX;
use server_shell::accept::{AcceptingCore, Acceptor, Admission};
use server_shell::log::{self, LogSender, LogWriter};

use crate::conn_task;
use crate::core::{OriginCore, OriginCoreParts, StatsQuery, TICK_NS};
use crate::log::CoreAccessLog;
use crate::plan::OriginPlan;
use crate::stats::{CloseReason, CoreStats, OriginStats, add};

#[derive(Debug)]
pub struct RunningOrigin {
    cores: rt::cores::RunningCores<CoreStats>,
    bound_addresses: Vec<BoundAddress>,
    /// Our own copies of the listening sockets. Tools such as `ss -ltnp` show only the sockets in
    /// the process's first descriptor table. Empty if the cores share that table.
    listener_copies: Vec<Listener>,
    log_writer: Option<LogWriter>,
    stats: StatsReader,
    user_tcp: Option<UserTcpListeners>,
}

/// Addresses of TCP in user space.
#[derive(Clone, Debug)]
pub struct UserTcpListeners {
    pub addresses: Vec<Address>,
    pub interface: String,
    /// Way of the packets.
    pub mode: XdpMode,
}

impl UserTcpListeners {
    fn new(plan: &OriginPlan, port: &UserTcpPort) -> Self {
        let interface = port.facts().name.clone();
        Self { addresses: plan.listen.clone(), interface, mode: port.mode() }
    }
}

/// Counters of a running origin, for other threads than those of its cores.
#[derive(Clone, Debug)]
pub struct StatsReader {
    queries: CoreSenders<StatsQuery>,
    drain: DrainWatch,
    started_ns: u64,
}

impl StatsReader {
    /// Returns the current counters of all cores. Waits for each core, so a core's own thread must
    /// not call it.
    pub fn read(&self) -> OriginStats {
        // Without a deadline it cannot time out.
        let cores = self.queries.ask_blocking(None, |reply| reply).unwrap_or_default();
        OriginStats::from_cores(cores, now_ns() - self.started_ns, self.drain.stage() != DrainStage::Running)
    }
}

/// Data that one core takes to its thread.
#[derive(Debug)]
struct OriginCoreInit {
    inbox: Inbox,
    queries: mpsc::Receiver<StatsQuery>,
    log: Option<LogSender>,
    user_tcp: Option<UserTcpPort>,
}

/// Interval at which [`Running::join`] polls for the stop, unless it is woken.
const JOIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time in which peers take the rest of closed connections of TCP in user space.
const USER_TCP_CLOSE_NS_MAX: u64 = 500 * MILLISECOND_NS;

/// Maximum time for which a closing listening socket still accepts the connections in its accept queue.
const ACCEPT_QUEUE_DRAIN_NS_MAX: u64 = 250 * MILLISECOND_NS;

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
    // The one socket of TCP in user space is opened before its core, in the table of the process.
    let own_fd_tables = plan.user_tcp.is_none();
    start_with_tables(plan, drain, own_fd_tables)
}

fn start_with_tables(plan: OriginPlan, drain: Drain, own_fd_tables: bool) -> io::Result<RunningOrigin> {
    let started_ns = now_ns();
    let descriptors = raise_descriptor_limit().current;
    let cores = plan.threads;
    let user_tcp = open_user_tcp(&plan)?;
    let user_listeners = user_tcp.first().map(|port| UserTcpListeners::new(&plan, port));
    let mut bound_addresses = match user_listeners {
        Some(_) => Vec::new(),
        None => bind_all(&plan.listen, cores)?,
    };
    let log = plan.access_log.clone().map(|target| log::start(&[target.into()], cores)).transpose()?;
    let (sender, log_writer) = log.unzip();
    let (balancer, inboxes) = ConnectionBalancer::new(cores)?;
    let (queries, query_receivers) = CoreSenders::channels(cores);
    let fd_table = match own_fd_tables {
        true => {
            let inboxes = inboxes.iter().map(Inbox::raw_fd);
            FdTable::Unshared(balancer.raw_fds().into_iter().chain(inboxes).collect())
        }
        false => FdTable::Shared,
    };
    let mut user_tcp = user_tcp.into_iter();
    let build_init =
        |(inbox, queries)| OriginCoreInit { inbox, queries, log: sender.clone(), user_tcp: user_tcp.next() };
    let inits = inboxes.into_iter().zip(query_receivers).map(build_init).collect();
    drop(sender);
    let connections_max = connections_max(&plan, cores, descriptors);
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
            connections_max: core_id.part_of(connections_max),
            queries: senders.clone(),
            started_ns,
        };
        run_core(parts, init, drain.clone())
    });
    let running = running
        .and_then(|running| Ok((running, send_listeners(&mut bound_addresses, &balancer)?)))
        .map(|(running, listener_copies)| (running, if own_fd_tables { listener_copies } else { Vec::new() }))
        // If one core cannot start, the others must not stay.
        .inspect_err(|_| stop.advance(DrainStage::Abort));
    let (cores, listener_copies) = running?;
    Ok(RunningOrigin {
        cores,
        bound_addresses,
        listener_copies,
        log_writer,
        stats: StatsReader { queries, drain: watch, started_ns },
        user_tcp: user_listeners,
    })
}

/// Returns the maximum number of connections: by default as many as there are descriptors. Those in user space have none.
fn connections_max(plan: &OriginPlan, cores: usize, descriptors: u64) -> usize {
    plan.connections_max.unwrap_or_else(|| match plan.has_user_tcp() {
        true => CONNECTIONS_MAX * cores,
        false => descriptors.saturating_sub(plan.descriptors_reserved()).max(cores as u64) as usize,
    })
}

fn bind_all(addresses: &[Address], cores: usize) -> io::Result<Vec<BoundAddress>> {
    addresses.iter().map(|address| BoundAddress::new(address, cores)).collect()
}

/// Opens TCP in user space, if the plan has it: returns a port for each core.
fn open_user_tcp(plan: &OriginPlan) -> io::Result<Vec<UserTcpPort>> {
    let Some(survey) = plan.survey_user_tcp().map_err(io::Error::other)? else { return Ok(Vec::new()) };
    match survey.open(plan.connections_max.unwrap_or(usize::MAX)) {
        Ok((ports, _)) => Ok(ports),
        Err(problems) => {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(io::Error::other(texts.join("; ")))
        }
    }
}

/// Sends the listening sockets to the cores. Returns our own copies.
fn send_listeners(
    bound_addresses: &mut [BoundAddress],
    balancer: &ConnectionBalancer,
) -> io::Result<Vec<Listener>> {
    let mut listener_copies = Vec::new();
    for (index, bound_address) in bound_addresses.iter_mut().enumerate() {
        listener_copies.extend(balancer.send_listeners(bound_address, index)?);
    }
    Ok(listener_copies)
}

impl RunningOrigin {
    /// Returns the listening addresses, with the ports that the kernel chose, and the distribution
    /// of connections to cores.
    pub fn addresses(&self) -> Vec<(Address, AcceptMode)> {
        self.bound_addresses.iter().map(|bound| (bound.address().clone(), bound.mode())).collect()
    }

    /// Returns the addresses of TCP in user space, if they are not the kernel's.
    #[must_use]
    pub fn user_tcp(&self) -> Option<&UserTcpListeners> {
        self.user_tcp.as_ref()
    }

    /// Returns the kernel's ids of the cores' threads.
    pub fn thread_ids(&self) -> &[i32] {
        self.cores.thread_ids()
    }

    /// Returns whether the origin drains, or its cores have ended.
    pub fn is_stopping(&self) -> bool {
        self.stats.drain.stage() != DrainStage::Running || self.is_finished()
    }

    pub fn is_finished(&self) -> bool {
        self.cores.is_finished()
    }

    /// Returns the current counters of all cores. Waits for each core, so a core's own thread must
    /// not call it.
    pub fn stats(&self) -> OriginStats {
        self.stats.read()
    }

    pub fn stats_reader(&self) -> StatsReader {
        self.stats.clone()
    }

    /// Opens the access log again, after its file was renamed.
    ///
    /// # Errors
    /// It cannot be opened, and stays as it is; or the log thread did not respond within 5 s.
    pub fn reopen_log(&self) -> io::Result<()> {
        self.log_writer.as_ref().map_or(Ok(()), LogWriter::reopen)
    }

    /// Waits until the drain is over, and returns the counters.
    ///
    /// # Errors
    /// A core failed. The others have been stopped then.
    pub fn join(mut self) -> Result<OriginStats, CoreError> {
        while !self.is_stopping() {
            // The stopping thread may unpark this thread, so that no client connects to a stopped
            // origin.
            std::thread::park_timeout(JOIN_POLL_INTERVAL);
        }
        self.listener_copies.clear();
        let cores = self.cores.join().into_iter().collect::<Result<Vec<_>, _>>();
        let uptime_ns = now_ns() - self.stats.started_ns;
        // Its senders were dropped with the cores, so it writes the rest and ends.
        if let Some(log) = self.log_writer {
            log.finish(log::FINISH_TIMEOUT);
        }
        Ok(OriginStats::from_cores(cores?, uptime_ns, true))
    }
}

async fn run_core(mut parts: OriginCoreParts, init: OriginCoreInit, drain: Drain) -> io::Result<CoreStats> {
    let OriginCoreInit { inbox, queries, log, user_tcp } = init;
    let (format, head_bytes_max) = (parts.plan.access_log_format, parts.plan.head_bytes_max);
    parts.log = log.map(|sender| CoreAccessLog::new(&sender, format, head_bytes_max));
    let core = Rc::new(OriginCore::new(parts)?);
    spawn_local(run_ticks(Rc::clone(&core)));
    spawn_local(answer_queries(Rc::clone(&core), queries));
    spawn_local(tag_files(Rc::clone(&core)));
    let user_tcp = user_tcp.map(|port| UserTcp::start(port, &core.timers)).transpose()?;
    let user_acceptor = user_tcp.clone().map(|tcp| {
        // The cell is empty: it is set once, here.
        let _ = core.user_tcp.set(tcp.clone());
        spawn_local(accept_user_tcp(Rc::clone(&core), tcp))
    });
    let mut watch = drain.watch();
    let (acceptor, helpers) = Acceptor::start(OriginAdmission(Rc::clone(&core)), inbox, drain)?;
    watch.wait_for(DrainStage::Draining).await;
    // Closing a listening socket resets the connections in its accept queue.
    acceptor.drain_accept_queues(0, ACCEPT_QUEUE_DRAIN_NS_MAX, |_| true).await;
    drop(helpers);
    if let Some(acceptor) = user_acceptor {
        acceptor.abort();
    }
    let failure = acceptor.stop().await;
    drain_core(&core, watch).await;
    if let Some(tcp) = user_tcp {
        // This TCP ends with the process, so that what was written has to arrive before.
        tcp.wait_until_closed(&core.timers, now_ns() + USER_TCP_CLOSE_NS_MAX).await;
    }
    failure.map(|()| core.read_stats())
}

/// Serves the connections of TCP in user space. Its own limit of connections refuses further ones.
async fn accept_user_tcp(core: Rc<OriginCore>, tcp: UserTcp) {
    loop {
        let stream = Stream::User(tcp.accept().await);
        if core.conn_limit.is_full() {
            add(&core.counters.accept_paused, 1);
            continue;
        }
        core.balancer.count_accepted(core.index);
        serve_accepted(&core, Ok(stream));
    }
}

/// Serves an accepted connection, with the TLS of the plan.
fn serve_accepted(core: &Rc<OriginCore>, stream: io::Result<Stream>) {
    let stream = stream.and_then(|stream| match &core.plan.tls {
        Some(tls) if core.plan.proxy_protocol => stream.accept_tls_behind_header(tls.settings()),
        Some(tls) => stream.accept_tls(tls.settings()),
        None => Ok(stream),
    });
    let stream = stream.map(|mut stream| {
        stream.detect_text();
        stream
    });
    match stream {
        Ok(stream) if core.plan.proxy_protocol => {
            spawn_local(conn_task::serve_behind_header(Rc::clone(core), stream));
        }
        Ok(stream) => {
            spawn_local(conn_task::serve(Rc::clone(core), stream));
        }
        Err(_) => {
            add(&core.counters.accept_failed, 1);
            core.balancer.release(core.index);
        }
    }
}

/// Ends idle connections, and waits for the others up to the drain timeout.
async fn drain_core(core: &Rc<OriginCore>, mut watch: DrainWatch) {
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
        log.hand_over();
    }
}

async fn run_ticks(core: Rc<OriginCore>) {
    let mut memory_return = MemoryReturn::default();
    loop {
        core.timers.sleep_until(core.now_ns.get() + TICK_NS).await;
        core.handle_tick(now_ns());
        if let Some(part) = memory_return.due(core.conn_limit.ended_count(), core.now_ns.get()) {
            core.buffers.free_unused();
            return_freed_memory(part);
        }
    }
}

async fn answer_queries(core: Rc<OriginCore>, mut queries: mpsc::Receiver<StatsQuery>) {
    while let Some(reply_sender) = queries.recv().await {
        // The requester may have left.
        let _ = reply_sender.send(core.read_stats());
    }
}

/// Reads files whose entity tags are made from their content.
async fn tag_files(core: Rc<OriginCore>) {
    if let Some(site) = &core.files {
        site.untagged.run().await;
    }
}

/// Serves every connection, up to the maximum number of the core.
struct OriginAdmission(Rc<OriginCore>);

impl Admission for OriginAdmission {
    type Limit = ();

    fn core(&self) -> AcceptingCore<'_> {
        let OriginCore { index, balancer, conn_limit, timers, .. } = &*self.0;
        AcceptingCore { index: *index, balancer, limit: conn_limit, timers }
    }

    fn pausing_limit(&self, _socket_index: usize) -> Option<()> {
        self.0.conn_limit.is_full().then_some(())
    }

    fn count_pause(&self, (): ()) {
        add(&self.0.counters.accept_paused, 1);
    }

    fn count_accept_failure(&self) {
        add(&self.0.counters.accept_failed, 1);
    }

    fn admit(&self, connection: AcceptedConnection) {
        if self.0.conn_limit.is_full() {
            self.0.conn_limit.defer(connection);
        } else {
            self.serve(connection);
        }
    }

    fn may_serve(&self, _connection: &AcceptedConnection) -> bool {
        true
    }

    fn serve(&self, connection: AcceptedConnection) {
        serve_accepted(&self.0, Stream::from_fd(connection.fd, connection.family));
    }
}
