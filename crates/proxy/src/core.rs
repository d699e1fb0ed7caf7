//! The state of one core, which all its connections share: the plan in force, pools, time, buffers,
//! and the sinks of outcomes.
//!
//! Nothing here leaves its thread, so there is no lock; and nothing here is held across an await.

mod generations;
mod listener_settings;
mod logs;
mod services;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use content::memory_budget::MemoryBudget;
use rt::buffers::BufferPool;
use rt::byte_channel::ChannelBuffers;
use rt::clock::{MILLISECOND_NS, MonotonicTime};
use rt::conn_balancer::ConnectionBalancer;
use rt::conn_limit::ConnectionLimit;
use rt::cores::CoreId;
use rt::deadlines::Deadlines;
use rt::limits::descriptor_limit;
use rt::splice::PipePool;
use rt::timers::Timers;

use crate::admission::ListenerLimits;
use crate::auth_core::AuthCore;
pub(crate) use crate::config_generation::ConfigGeneration;
use crate::exchange_state::Exchange;
use crate::log::{self, CapturedValue, CoreLog, LoadCounts};
use crate::maintenance::MaintenancePage;
use crate::metrics::{Metrics, ServerSlots, Snapshot};
use crate::mirror::MirrorLoad;
use crate::outcome::{NeededFields, Outcome, RejectReason};
use crate::plan::{ListenerPlan, Plan};
use crate::pool::{CrossCoreState, Pool};
use crate::profile::{Profile, ProfilePhase};
use crate::request_view::RequestView;
use crate::route::RouteScratch;
use crate::session::SessionDump;
use crate::trace_context::TraceContext;
use crate::tracing::{CoreTraces, TraceSender};
use crate::tunnel::PIPE_BYTES;
use generations::Generations;
pub(crate) use listener_settings::{ListenerGeneration, ListenerSettings};
use logs::CoreLogs;

/// Interval at which a core checks its deadlines, its idle connections and its log. All timeouts
/// but the queue's have this resolution.
pub(crate) const TICK_NS: u64 = 100 * MILLISECOND_NS;
/// Interval at which a core checks for expired queue waits, while requests are queued.
pub(crate) const QUEUE_TICK_NS: u64 = 2 * MILLISECOND_NS;
/// Maximum size of one read, and so of the longest head that a config may allow.
const INPUT_BYTES: usize = 64 * 1024;
/// Initial capacity for heads and small bodies on their way to a client.
const OUT_BYTES: usize = 16 * 1024;
/// Initial size of a pooled buffer.
const BUFFER_BYTES: usize = 2 * 1024;
/// Maximum number of pooled buffers that a core lends at a time. Each holds part of a head or of a
/// pipelined request that waits for the rest.
const BUFFERS_MAX: usize = 32 * 1024;
/// Maximum number of pipes of a core; a busy tunnel without one copies. If descriptors are scarce,
/// pipes take a sixteenth of them ([`pipes_max`]).
const PIPES_MAX: usize = 256;
/// Maximum number of exchanges kept for reuse, so that a thousand requests in flight allocate nothing.
const SPARE_EXCHANGES_MAX: usize = 1024;
/// Maximum number of those that keep larger buffers than [`SMALL_SPARE_BYTES_MAX`].
const LARGE_SPARE_EXCHANGES_MAX: usize = 256;
/// Maximum capacity of the buffers of an exchange that is kept beside [`LARGE_SPARE_EXCHANGES_MAX`] others.
const SMALL_SPARE_BYTES_MAX: usize = 2 * 1024;

/// State of one core, shared by its connections.
#[derive(Debug)]
pub(crate) struct Core {
    pub id: CoreId,
    generations: Generations,
    /// Settings of the plan in force first, then of earlier plans that connections still use.
    listener_settings: RefCell<Vec<Rc<ListenerSettings>>>,
    logs: CoreLogs,
    traces: CoreTraces,
    /// True if a log or a trace needs more of a request than its first line.
    needed_fields: Cell<NeededFields>,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) ticks: Ticks,
    pub drain: DrainState,
    pub(crate) load: CoreLoad,
    pub balancer: ConnectionBalancer,
    pub(crate) connection_limit: ConnectionLimit,
    /// True while a task waits for the rate to allow new connections.
    is_rate_timer_running: Cell<bool>,
    /// True while a task checks the queues.
    pub(crate) is_queue_task_running: Cell<bool>,
    pub(crate) memory: CoreMemory,
    /// CPU time profile, if enabled.
    pub(crate) profile: Profile,
    /// Results of authentications.
    pub(crate) auth: AuthCore,
    /// Current query to all connections.
    pub(crate) session_dump: SessionDump,
    /// Page of an operator for pools in maintenance.
    maintenance_page: RefCell<Option<Arc<MaintenancePage>>>,
}

/// Time of a core, at the resolution of its ticks.
#[derive(Debug)]
pub(crate) struct Ticks {
    pub(crate) now: Cell<MonotonicTime>,
    /// Changes with each tick and when the drain starts. While it is the same, no deadline has
    /// passed.
    pub(crate) count: Cell<u32>,
}

/// Stage of a core's drain.
#[derive(Debug, Default)]
pub(crate) struct DrainState {
    /// True if each further response is the last of its connection.
    pub(crate) is_draining: Cell<bool>,
    /// True if idle connections are closed. A drain sets it, but not at its start.
    pub(crate) closes_idle: Cell<bool>,
    /// True if tunnels are closed: their time is over.
    pub(crate) closes_tunnels: Cell<bool>,
    /// True if another process has taken over, so that the drain is not urgent.
    pub(crate) is_replaced: Cell<bool>,
}

/// Numbers of what a core serves at the moment.
#[derive(Debug, Default)]
pub(crate) struct CoreLoad {
    /// Exchanges and tunnels.
    pub in_flight: Cell<usize>,
    /// Requests whose clients have gone and that servers with a limit are still processing.
    pub(crate) abandoned: Cell<usize>,
    /// Requests of the proxy's own.
    pub(crate) subrequests: Cell<usize>,
    /// Copies of requests for other pools.
    pub(crate) mirrors: Rc<MirrorLoad>,
    /// Validations of stored responses in the background.
    pub(crate) cache_refreshes: Cell<usize>,
    /// Connections that are rejected and only get an error response.
    pub(crate) rejected: Cell<usize>,
    /// Streams of HTTP/2 that are in progress.
    pub(crate) h2_streams: Cell<usize>,
    /// Clients' connections of HTTP/2, and those with at least one stream.
    pub(crate) h2_connections: Cell<usize>,
    pub(crate) h2_busy: Cell<usize>,
}

/// Memory and pipes that a core lends to its connections.
#[derive(Debug)]
pub(crate) struct CoreMemory {
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) buffers: BufferPool,
    /// Buffers of the channels to the streams of HTTP/2.
    pub(crate) channel_buffers: ChannelBuffers,
    pub(crate) pipes: PipePool,
    /// Memory of the encoders of responses. Its limit is that of the route.
    pub(crate) encoders: Rc<MemoryBudget>,
    #[allow(clippy::vec_box, reason = "keeps the allocations; moving one moves a box")]
    spare_exchanges: RefCell<Vec<Box<Exchange>>>,
}

/// Scratch memory for one poll of a connection. It is unused between two polls.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Bytes of the last read.
    pub(crate) input: Box<[u8]>,
    pub(crate) work: WorkBuffers,
}

/// Scratch buffers that are used while the input is read, and random numbers.
#[derive(Debug)]
pub(crate) struct WorkBuffers {
    /// Heads and framing on their way to a client.
    pub(crate) out: Vec<u8>,
    /// Request targets while a route rewrites them.
    pub(crate) target: Vec<u8>,
    pub(crate) route_scratch: RouteScratch,
    pub(crate) rng: fastrand::Rng,
}

/// Returns the maximum number of pipes of a process with this limit of descriptors.
pub fn pipes_max(descriptors: u64) -> usize {
    PIPES_MAX.min((descriptors / 32) as usize)
}

impl Ticks {
    /// Returns the time in ticks, the unit of the deadlines.
    #[inline]
    pub(crate) fn current(&self) -> u32 {
        (self.now.get().as_ns() / TICK_NS) as u32
    }

    fn advance(&self) {
        self.count.set(self.count.get().wrapping_add(1));
    }
}

impl CoreMemory {
    fn new() -> Self {
        Self {
            scratch: RefCell::new(Scratch {
                input: vec![0; INPUT_BYTES].into(),
                work: WorkBuffers {
                    out: Vec::with_capacity(OUT_BYTES),
                    target: Vec::new(),
                    route_scratch: RouteScratch::default(),
                    rng: fastrand::Rng::new(),
                },
            }),
            buffers: BufferPool::new(BUFFER_BYTES, BUFFERS_MAX),
            channel_buffers: ChannelBuffers::new(),
            pipes: PipePool::new(PIPE_BYTES, pipes_max(descriptor_limit())),
            encoders: Rc::new(MemoryBudget::new(u64::MAX)),
            spare_exchanges: RefCell::default(),
        }
    }
}

impl Core {
    /// Creates a core's state. Must be called inside the core's runtime.
    pub(crate) fn new(
        id: CoreId,
        generation: ConfigGeneration,
        balancer: ConnectionBalancer,
        connections_max: usize,
        log: CoreLog,
        traces: CoreTraces,
    ) -> std::io::Result<Rc<Self>> {
        let log_needs_fields = log.wants_fields();
        let core = Rc::new(Self {
            id,
            generations: Generations::new(generation),
            listener_settings: RefCell::default(),
            logs: CoreLogs::new(log),
            needed_fields: Cell::new(NeededFields::new(log_needs_fields, traces.is_on())),
            traces,
            timers: Timers::start()?,
            deadlines: Deadlines::default(),
            ticks: Ticks { now: Cell::new(MonotonicTime::now()), count: Cell::new(0) },
            drain: DrainState::default(),
            load: CoreLoad::default(),
            balancer,
            connection_limit: ConnectionLimit::new(connections_max),
            is_rate_timer_running: Cell::new(false),
            is_queue_task_running: Cell::new(false),
            memory: CoreMemory::new(),
            profile: Profile::default(),
            auth: AuthCore::default(),
            session_dump: SessionDump::default(),
            maintenance_page: RefCell::default(),
        });
        let settings = core.create_settings(&core.current_generation());
        *core.listener_settings.borrow_mut() = settings;
        Ok(core)
    }

    /// Returns the plan that new requests follow.
    #[inline]
    pub(crate) fn current_generation(&self) -> Rc<ConfigGeneration> {
        Rc::clone(&self.generations.current())
    }

    /// Puts `generation` into force for new requests. Connections keep their listener's settings
    /// from their accept.
    pub(crate) fn activate(self: &Rc<Self>, generation: ConfigGeneration) {
        let index_of =
            |name: &str| generation.plan.listeners.iter().position(|listener| &*listener.name == name);
        for settings in self.listener_settings.borrow().iter() {
            settings.apply_generation(&self.current_generation(), index_of(&settings.plan.name));
        }
        let new_settings = self.create_settings(&generation);
        for settings in &new_settings {
            for _ in 0..settings.open_connections.get() {
                settings.index.get().inspect(|&index| generation.metrics.connection_adopted(index));
            }
        }
        let mut settings = self.listener_settings.borrow_mut();
        // Drops settings that no connection uses any more.
        settings.retain(|old| Rc::strong_count(old) > 1);
        settings.splice(0..0, new_settings);
        self.generations.replace(generation);
    }

    /// Puts `plan` into force for new requests. It differs from the previous plan in servers only.
    pub(crate) fn swap_servers(&self, plan: Arc<Plan>, shared: &CrossCoreState) {
        let generation = self.current_generation().with_servers_of(plan, shared, self.id);
        self.generations.replace(generation);
        self.apply_server_changes();
    }

    /// Returns the settings of a plan's listeners, with the counters of earlier listeners of the
    /// same name.
    fn create_settings(self: &Rc<Self>, generation: &ConfigGeneration) -> Vec<Rc<ListenerSettings>> {
        let existing = self.listener_settings.borrow();
        let listeners_and_limits = generation.plan.listeners.iter().zip(&generation.listener_limits);
        let settings = |(index, (listener, limits)): (usize, (&ListenerPlan, &Arc<ListenerLimits>))| {
            let old = existing.iter().find(|old| old.plan.name == listener.name);
            let counters = old.map(|old| old.counters()).unwrap_or_default();
            let limits = Arc::clone(limits);
            Rc::new(ListenerSettings::new(Rc::clone(self), listener.clone(), index, counters, limits))
        };
        listeners_and_limits.enumerate().map(settings).collect()
    }

    pub(crate) fn settings(&self, listener: usize) -> Option<Rc<ListenerSettings>> {
        let settings = self.listener_settings.borrow();
        // The newest are first.
        settings.iter().find(|listener_settings| listener_settings.index.get() == Some(listener)).cloned()
    }

    /// Does the periodic work: once every [`TICK_NS`].
    pub(crate) fn handle_tick(&self, now: MonotonicTime) {
        let _section = self.profile.enter(ProfilePhase::Upkeep);
        self.ticks.now.set(now);
        self.ticks.advance();
        self.deadlines.sweep(now.as_ns());
        self.logs.read_clock();
        self.generations.for_each_pool(|pool| pool.sweep_idle(now));
        // An agent may have set a limit for a server that had none.
        self.generations.for_each_pool(Pool::count_unlimited_requests);
        for pool in &self.generations.current().pools {
            pool.evaluate_outliers(now);
            // All cores share this state, so the first core updates it.
            if self.id.index == 0 {
                pool.recompute(now);
            }
        }
        // Settings of a removed listener are dropped with its last connection.
        self.listener_settings
            .borrow_mut()
            .retain(|settings| settings.index.get().is_some() || Rc::strong_count(settings) > 1);
        if self.is_queue_task_running.get() {
            // A server that was down may have come up.
            self.serve_queues();
        }
        let logging = self.profile.enter(ProfilePhase::Log);
        self.logs.hand_over();
        self.traces.hand_over();
        drop(logging);
        self.generations.absorb_retired();
    }

    /// Ends requests that have waited too long in a queue. Returns whether any are still queued.
    pub(crate) fn expire_queues(&self, now: MonotonicTime) -> bool {
        let mut has_queued = false;
        self.generations.for_each_pool(|pool| has_queued |= pool.expire_queue(now));
        has_queued
    }

    /// Grants slots that became free on other cores.
    pub(crate) fn serve_queues(&self) {
        let rng = &mut self.memory.scratch.borrow_mut().work.rng;
        self.generations.for_each_pool(|pool| pool.serve_queue(rng));
    }

    /// Follows changed limits and states of servers: counts servers that newly need it, and grants
    /// newly free slots to queued requests.
    pub(crate) fn apply_server_changes(&self) {
        self.generations.for_each_pool(Pool::count_unlimited_requests);
        self.serve_queues();
    }

    /// Marks each further response as the last of its connection.
    pub(crate) fn start_draining(&self) {
        self.drain.is_draining.set(true);
    }

    pub(crate) fn close_idle(&self) {
        self.drain.closes_idle.set(true);
        self.ticks.advance();
        self.deadlines.wake_all();
    }

    #[inline]
    pub(crate) fn needed_fields(&self) -> NeededFields {
        self.needed_fields.get()
    }

    /// Returns the values that a log captures from a request's head.
    pub(crate) fn captured_log_values(&self) -> Rc<[CapturedValue]> {
        self.logs.captured()
    }

    /// Records a request's outcome in log and metrics.
    pub(crate) fn record(&self, generation: &ConfigGeneration, outcome: &Outcome<'_>) {
        generation.metrics.record(outcome);
        self.profile.record_times(&outcome.times);
        if let Some(pool) = outcome.pool {
            generation.pools[pool].record_outcome(outcome);
        }
        let _section = self.profile.enter(ProfilePhase::Log);
        self.logs.record(outcome, &generation.log_names, || self.load_counts(generation, outcome));
        if let Some(trace) = self.traces.recorded(outcome) {
            let clock = self.logs.wall_clock();
            if self.traces.record(trace, outcome, &generation.log_names, clock) {
                generation.metrics.record_exemplar(outcome, clock.to_unix_ns(outcome.times.end.as_ns()));
            }
        }
    }

    /// Returns the trace context of a request; `None` if traces are off. `has_context`: the head has fields of one.
    #[inline]
    pub(crate) fn begin_trace(&self, view: &RequestView<'_>, has_context: bool) -> Option<TraceContext> {
        self.traces.begin(view, has_context)
    }

    /// Records the outcome of a subrequest, which only its pool counts.
    pub(crate) fn record_subrequest(&self, generation: &ConfigGeneration, outcome: &Outcome<'_>) {
        generation.metrics.record_subrequest(outcome);
        if let Some(pool) = outcome.pool {
            generation.pools[pool].record_outcome(outcome);
        }
    }

    /// Returns the load figures of HAProxy's log format: those of this core, this request included.
    fn load_counts(&self, generation: &ConfigGeneration, outcome: &Outcome<'_>) -> LoadCounts {
        let is_of_listener = |settings: &ListenerSettings| settings.index.get() == Some(outcome.listener);
        let listener = self
            .listener_settings
            .borrow()
            .iter()
            .find(|settings| is_of_listener(settings))
            .map_or(0, |settings| settings.open_connections.get());
        let pool = outcome.pool.map(|index| &generation.pools[index]);
        LoadCounts {
            actconn: self.connection_limit.active_count() as u32,
            feconn: listener as u32,
            beconn: pool.map_or(0, |pool| pool.in_flight()) as u32,
            srv_conn: pool.zip(outcome.server).map_or(0, |(pool, at)| pool.in_flight_at(at)) as u32,
            srv_queue: 0,
            backend_queue: 0,
        }
    }

    /// Counts a connection that was not served, or a pause in accepting.
    pub(crate) fn count_rejection(&self, reason: RejectReason) {
        self.generations.current().metrics.refused(reason);
    }

    /// Updates the metrics under the plan in force.
    pub(crate) fn update_metrics(&self, update: impl FnOnce(&Metrics)) {
        update(&self.generations.current().metrics);
    }

    pub(crate) fn count_long_text(&self) {
        self.generations.current().metrics.count_long_text();
    }

    pub(crate) fn set_maintenance_page(&self, page: Option<Arc<MaintenancePage>>) {
        *self.maintenance_page.borrow_mut() = page;
    }

    /// Returns the page of an operator for pools in maintenance.
    pub(crate) fn maintenance_page(&self) -> Option<Arc<MaintenancePage>> {
        self.maintenance_page.borrow().clone()
    }

    /// Returns whether a listener has the maximum number of connections of this core.
    pub(crate) fn is_listener_full(&self, listener: usize) -> bool {
        self.settings(listener).is_some_and(|settings| {
            let max = settings.plan.connections_max;
            max.is_some_and(|max| settings.open_connections.get() >= self.own_limit(max))
        })
    }

    pub(crate) fn own_limit(&self, max: usize) -> usize {
        self.id.part_of(max)
    }

    /// Wakes the tasks that wait for a free slot, in `wait_ns` nanoseconds.
    pub(crate) fn wake_limit_waiters_in(self: &Rc<Self>, wait_ns: u64) {
        if self.is_rate_timer_running.replace(true) {
            return;
        }
        let core = Rc::clone(self);
        rt::tokio::task::spawn_local(async move {
            core.timers.sleep_until(MonotonicTime::now().saturating_add(wait_ns).as_ns()).await;
            core.is_rate_timer_running.set(false);
            core.connection_limit.wake_waiters();
        });
    }

    /// Drops the settings once no connection can come. This breaks the reference cycle between
    /// settings and core.
    pub(crate) fn drop_settings(&self) {
        self.listener_settings.borrow_mut().clear();
    }

    /// Closes the tunnels: their time is over.
    pub(crate) fn close_tunnels(&self) {
        self.drain.closes_tunnels.set(true);
        self.deadlines.wake_all();
    }

    /// Returns the counters of this core, under this plan and earlier ones.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.update_gauges();
        let mut snapshot = self.generations.snapshot();
        // All cores share the logs, so the first core reports them.
        if self.id.index == 0 {
            self.logs.add_metrics(&mut snapshot);
            snapshot.add_traces(&self.traces.counts());
        }
        snapshot
    }

    /// Redirects log lines and spans, if it is to others.
    pub(crate) fn change_outputs(&self, log: log::LogSender, traces: TraceSender) {
        self.logs.change(log, self.id.index);
        self.traces.change(traces);
        self.needed_fields.set(NeededFields::new(self.logs.needs_header_fields(), self.traces.is_on()));
    }

    /// Hands log lines and spans over to their threads.
    pub(crate) fn hand_over_outputs(&self) {
        self.logs.hand_over();
        self.traces.hand_over();
    }

    /// Returns the state for a request: a reused one, or a new one.
    pub(crate) fn take_exchange(&self) -> Box<Exchange> {
        self.load.in_flight.set(self.load.in_flight.get() + 1);
        self.take_unused_exchange()
    }

    /// Returns the state for a request that is no client's.
    #[inline]
    pub(crate) fn take_unused_exchange(&self) -> Box<Exchange> {
        self.memory.spare_exchanges.borrow_mut().pop().unwrap_or_else(|| Box::new(Exchange::new()))
    }

    /// Frees what is kept for reuse. An exchange keeps the capacity of the largest head that it had.
    pub(crate) fn free_unused_memory(&self) {
        self.memory.buffers.free_unused();
        self.memory.channel_buffers.free_unused();
        self.memory.spare_exchanges.take();
    }

    pub(crate) fn recycle_exchange(&self, exchange: Box<Exchange>) {
        self.load.in_flight.set(self.load.in_flight.get() - 1);
        self.keep_exchange(exchange);
    }

    /// Keeps the state of an ended request for reuse.
    #[inline]
    pub(crate) fn keep_exchange(&self, mut exchange: Box<Exchange>) {
        let mut spare = self.memory.spare_exchanges.borrow_mut();
        let is_kept = match spare.len() {
            0..LARGE_SPARE_EXCHANGES_MAX => true,
            LARGE_SPARE_EXCHANGES_MAX..SPARE_EXCHANGES_MAX => exchange.kept_bytes() <= SMALL_SPARE_BYTES_MAX,
            _ => false,
        };
        if is_kept {
            exchange.reset();
            spare.push(exchange);
        }
    }
}

/// Memory of an idle connection in user space: its task with this state, and its slots among the
/// runtime's sockets and the deadlines. Measured by `bench/`.
const IDLE_CONN_BYTES: usize = 600;
/// Memory of an idle connection of HTTP/2, in addition: its tables of HPACK and of streams.
const IDLE_H2_BYTES: usize = 4_300;

impl Core {
    pub(super) fn update_gauges(&self) {
        let generation = self.generations.current();
        let metrics = &generation.metrics;
        for (id, pool) in generation.pools.enumerate() {
            for server in pool.plan().servers.ids() {
                let in_flight = pool.in_flight_at(server);
                metrics.set_idle(id, server, pool.idle_connections(server) as u64);
                metrics.set_http2_load(id, server, pool.http2_load(server));
                metrics.set_in_flight(id, server, in_flight as u64);
                // All cores share this value, so the first core reports it.
                let slots = || ServerSlots {
                    max: pool.requests_max(server).unwrap_or_default() as u64,
                    in_use: pool.slots_in_use(server) as u64,
                };
                let is_reported_here = self.id.index == 0;
                metrics.set_slots(id, server, is_reported_here.then(slots).unwrap_or_default());
            }
            metrics.set_queued(id, pool.queued() as u64);
        }
        generation.collect_counters();
        metrics.set_buffers(self.memory.buffers.in_use() as u64, self.memory.buffers.exhausted_count());
        metrics.set_encoder_bytes(self.memory.encoders.used_bytes());
        metrics.set_requests(self.load.in_flight.get() as u64, self.load.abandoned.get() as u64);
        metrics.set_subrequests(self.load.subrequests.get() as u64);
        metrics.set_mirrors(self.load.mirrors.copies.get() as u64, self.load.mirrors.bytes.get() as u64);
        // The streams of one connection count once.
        let busy =
            self.load.in_flight.get().saturating_sub(self.load.h2_streams.get()) + self.load.h2_busy.get();
        let idle = self.connection_limit.active_count().saturating_sub(busy);
        metrics.set_h2_streams(self.load.h2_streams.get() as u64);
        let idle_h2 = idle.min(self.load.h2_connections.get() - self.load.h2_busy.get());
        let idle_bytes = idle * IDLE_CONN_BYTES + idle_h2 * IDLE_H2_BYTES;
        metrics.set_idle_clients(idle as u64, idle_bytes as u64);
    }
}

/// Context of one poll of a connection. The memory for a read is not in it, because its bytes are borrowed
/// while the context is used.
#[derive(Debug)]
pub(crate) struct PollContext<'p, 'w> {
    pub(crate) cx: &'p mut Context<'w>,
    pub(crate) core: &'p Rc<Core>,
    pub(crate) work: &'p mut WorkBuffers,
}
