//! The state of one core, which all its connections share: the plan in force, pools, time, buffers,
//! and the sinks of outcomes.
//!
//! Nothing here leaves its thread, so there is no lock; and nothing here is held across an await.

mod gauges;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rt::buffers::BufferPool;
use rt::byte_channel::ChannelBuffers;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::conn_balancer::ConnectionBalancer;
use rt::conn_limit::ConnectionLimit;
use rt::deadlines::Deadlines;
use rt::limits::descriptor_limit;
use rt::splice::PipePool;
use rt::timers::Timers;

use crate::admission::ListenerLimits;
pub(crate) use crate::config_generation::ConfigGeneration;
use crate::conn::ListenerSettings;
use crate::exchange::Exchange;
use crate::log::{self, CoreLog, LineCounters, LoadCounts, WallClock};
use crate::metrics::Snapshot;
use crate::outcome::{Outcome, RejectReason};
use crate::plan::{ListenerPlan, Plan};
use crate::pool::{CrossCoreState, Pool};
use crate::profile::{Profile, ProfilePhase};
use crate::route::RouteScratch;
use crate::session::SessionDump;
use crate::tunnel::PIPE_BYTES;

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
/// Maximum number of exchanges kept for reuse.
const SPARE_EXCHANGES_MAX: usize = 256;

/// State of one core, shared by its connections.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: usize,
    core_count: usize,
    current_generation: RefCell<Rc<ConfigGeneration>>,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) buffers: BufferPool,
    /// Buffers of the channels to the streams of HTTP/2.
    pub(crate) channel_buffers: ChannelBuffers,
    /// Streams of HTTP/2 that are in progress.
    pub(crate) h2_streams: Cell<usize>,
    /// Clients' connections of HTTP/2, and those with at least one stream.
    pub(crate) h2_connections: Cell<usize>,
    pub(crate) h2_busy: Cell<usize>,
    pub(crate) balancer: ConnectionBalancer,
    pub(crate) scratch: RefCell<ScratchBuffers>,
    pub(crate) connection_limit: ConnectionLimit,
    /// Time of the last tick.
    pub(crate) now_ns: Cell<u64>,
    /// Changes with each tick and when the drain starts. While it is the same, no deadline has
    /// passed.
    pub(crate) tick: Cell<u32>,
    pub(crate) draining: Cell<bool>,
    /// Connections that are rejected and only get an error response.
    pub(crate) rejected: Cell<usize>,
    /// True while a task waits for the rate to allow new connections.
    is_rate_timer_running: Cell<bool>,
    /// True if idle connections are closed. A drain sets it, but not at its start.
    pub(crate) closes_idle: Cell<bool>,
    /// True if another process has taken over, so that the drain is not urgent.
    pub(crate) is_replaced: Cell<bool>,
    #[allow(clippy::vec_box, reason = "keeps the allocations; moving one moves a box")]
    spare_exchanges: RefCell<Vec<Box<Exchange>>>,
    /// Number of exchanges and tunnels.
    pub(crate) in_flight: Cell<usize>,
    /// Number of requests whose clients have gone and that servers with a limit are still
    /// processing.
    pub(crate) abandoned: Cell<usize>,
    /// Settings of the plan in force first, then of earlier plans that connections still use.
    listener_settings: RefCell<Vec<Rc<ListenerSettings>>>,
    /// Earlier plans under which requests may still be in flight.
    retired_generations: RefCell<Vec<Rc<ConfigGeneration>>>,
    /// Counters of earlier plans.
    past_counters: RefCell<Snapshot>,
    pub(crate) log: RefCell<CoreLog>,
    /// Counters of earlier logs.
    past_log_counters: RefCell<Vec<LineCounters>>,
    wall_clock: Cell<WallClock>,
    /// True while a task checks the queues.
    pub(crate) is_queue_task_running: Cell<bool>,
    pub(crate) pipes: PipePool,
    /// True if tunnels are closed in the drain: their time is over.
    pub(crate) closes_tunnels: Cell<bool>,
    /// CPU time profile, if enabled.
    pub(crate) profile: Profile,
    /// Current query to all connections.
    pub(crate) session_dump: SessionDump,
}

/// Scratch buffers for one poll of a connection. They are unused between two polls.
#[derive(Debug)]
pub(crate) struct ScratchBuffers {
    /// Bytes of the last read.
    pub(crate) input: Box<[u8]>,
    /// Heads and framing on their way to a client.
    pub(crate) out: Vec<u8>,
    /// Request targets while a route rewrites them.
    pub(crate) target: Vec<u8>,
    pub(crate) route_scratch: RouteScratch,
    pub(crate) rng: fastrand::Rng,
}

/// Returns the maximum number of pipes for a core with this number of descriptors.
pub(crate) fn pipes_max(descriptors: u64) -> usize {
    PIPES_MAX.min((descriptors / 32) as usize)
}

/// Returns the maximum number of connections of one of `cores` cores out of `max`; at least one.
pub(crate) fn limit_of_core(max: usize, core: usize, cores: usize) -> usize {
    (max / cores + usize::from(core < max % cores)).max(1)
}

impl Core {
    /// Creates a core's state. Must be called inside the core's runtime.
    pub(crate) fn new(
        (index, core_count): (usize, usize),
        generation: ConfigGeneration,
        balancer: ConnectionBalancer,
        connections_max: usize,
        log: CoreLog,
    ) -> std::io::Result<Rc<Self>> {
        let core = Rc::new(Self {
            index,
            core_count,
            current_generation: RefCell::new(Rc::new(generation)),
            timers: Timers::start()?,
            deadlines: Deadlines::default(),
            buffers: BufferPool::new(BUFFER_BYTES, BUFFERS_MAX),
            channel_buffers: ChannelBuffers::new(),
            h2_streams: Cell::new(0),
            h2_connections: Cell::new(0),
            h2_busy: Cell::new(0),
            balancer,
            scratch: RefCell::new(ScratchBuffers {
                input: vec![0; INPUT_BYTES].into(),
                out: Vec::with_capacity(OUT_BYTES),
                target: Vec::new(),
                route_scratch: RouteScratch::default(),
                rng: fastrand::Rng::new(),
            }),
            connection_limit: ConnectionLimit::new(connections_max),
            now_ns: Cell::new(now_ns()),
            tick: Cell::new(0),
            draining: Cell::new(false),
            rejected: Cell::new(0),
            is_rate_timer_running: Cell::new(false),
            closes_idle: Cell::new(false),
            is_replaced: Cell::new(false),
            spare_exchanges: RefCell::default(),
            in_flight: Cell::new(0),
            abandoned: Cell::new(0),
            listener_settings: RefCell::default(),
            retired_generations: RefCell::default(),
            past_counters: RefCell::default(),
            log: RefCell::new(log),
            past_log_counters: RefCell::default(),
            wall_clock: Cell::new(WallClock::read()),
            is_queue_task_running: Cell::new(false),
            pipes: PipePool::new(PIPE_BYTES, pipes_max(descriptor_limit())),
            closes_tunnels: Cell::new(false),
            profile: Profile::default(),
            session_dump: SessionDump::default(),
        });
        let settings = core.create_settings(&core.current_generation());
        *core.listener_settings.borrow_mut() = settings;
        Ok(core)
    }

    /// Returns the plan that new requests follow.
    #[inline]
    pub(crate) fn current_generation(&self) -> Rc<ConfigGeneration> {
        Rc::clone(&self.current_generation.borrow())
    }

    /// Puts `generation` into force for new requests. Connections keep their listener's settings
    /// from their accept.
    pub(crate) fn activate(self: &Rc<Self>, generation: ConfigGeneration) {
        let index_of = |name: &str| generation.plan.listeners.iter().position(|one| &*one.name == name);
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
        let previous = self.current_generation.replace(Rc::new(generation));
        self.retired_generations.borrow_mut().push(previous);
    }

    /// Puts `plan` into force for new requests. It differs from the previous plan in servers only.
    pub(crate) fn swap_servers(&self, plan: Arc<Plan>, shared: &CrossCoreState, core_id: (usize, usize)) {
        let generation = self.current_generation().with_servers_of(plan, shared, core_id);
        let previous = self.current_generation.replace(Rc::new(generation));
        self.retired_generations.borrow_mut().push(previous);
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
            let shared = (counters, Arc::clone(limits));
            Rc::new(ListenerSettings::new(Rc::clone(self), listener.clone(), index, shared))
        };
        listeners_and_limits.enumerate().map(settings).collect()
    }

    /// Returns the settings of a listener, for a new connection.
    pub(crate) fn settings(&self, listener: usize) -> Option<Rc<ListenerSettings>> {
        let settings = self.listener_settings.borrow();
        // The newest are first.
        settings.iter().find(|one| one.index.get() == Some(listener)).cloned()
    }

    /// Does the periodic work: once every [`TICK_NS`].
    pub(crate) fn handle_tick(&self, now_ns: u64) {
        let _section = self.profile.enter(ProfilePhase::Upkeep);
        self.now_ns.set(now_ns);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.deadlines.sweep(now_ns);
        self.wall_clock.set(WallClock::read());
        self.for_each_pool(|pool| pool.sweep_idle(now_ns));
        // An agent may have set a limit for a server that had none.
        self.for_each_pool(Pool::count_unlimited_requests);
        for pool in &self.current_generation.borrow().pools {
            pool.evaluate_outliers(now_ns);
            // All cores share this state, so the first core updates it.
            if self.index == 0 {
                pool.recompute(now_ns);
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
        // If the log thread is behind, the batch waits for the next tick.
        self.log.borrow().hand_over();
        drop(logging);
        self.absorb_retired();
    }

    /// Ends requests that have waited too long in a queue. Returns whether any are still queued.
    pub(crate) fn expire_queues(&self, now_ns: u64) -> bool {
        let mut has_queued = false;
        self.for_each_pool(|pool| has_queued |= pool.expire_queue(now_ns));
        has_queued
    }

    /// Grants slots that became free on other cores.
    pub(crate) fn serve_queues(&self) {
        let rng = &mut self.scratch.borrow_mut().rng;
        self.for_each_pool(|pool| pool.serve_queue(rng));
    }

    /// Follows changed limits and states of servers: counts servers that newly need it, and grants
    /// newly free slots to queued requests.
    pub(crate) fn apply_server_changes(&self) {
        self.for_each_pool(Pool::count_unlimited_requests);
        self.serve_queues();
    }

    /// Visits all pools. Those of earlier plans come first, because requests may still wait in
    /// their queues.
    fn for_each_pool(&self, mut visit: impl FnMut(&Pool)) {
        let generation = self.current_generation();
        for retired in &*self.retired_generations.borrow() {
            let indexed_pools = retired.pools.iter().zip(0..);
            let retired_only = indexed_pools
                .filter(|(pool, at)| !generation.pools.get(*at).is_some_and(|now| Rc::ptr_eq(now, pool)));
            retired_only.for_each(|(pool, _)| visit(pool));
        }
        generation.pools.iter().for_each(|pool| visit(pool));
    }

    /// Marks each further response as the last of its connection.
    pub(crate) fn start_draining(&self) {
        self.draining.set(true);
    }

    /// Closes idle connections.
    pub(crate) fn close_idle(&self) {
        self.closes_idle.set(true);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.deadlines.wake_all();
    }

    /// Returns whether a log needs more of a request than its first line.
    pub(crate) fn needs_header_fields(&self) -> bool {
        self.log.borrow().wants_fields()
    }

    /// Records a request's outcome in log and metrics.
    pub(crate) fn record(&self, generation: &ConfigGeneration, outcome: &Outcome<'_>) {
        generation.metrics.record(outcome);
        self.profile.record_times(&outcome.times);
        if let Some(pool) = outcome.pool {
            generation.pools[pool].record_outcome(outcome);
        }
        let _section = self.profile.enter(ProfilePhase::Log);
        let load = self.load(generation, outcome);
        self.log.borrow().record(outcome, &generation.log_names, self.wall_clock.get(), &load);
    }

    /// Returns the load figures of HAProxy's log format: those of this core, this request included.
    fn load(&self, generation: &ConfigGeneration, outcome: &Outcome<'_>) -> LoadCounts {
        let is_of_listener = |settings: &ListenerSettings| settings.index.get() == Some(outcome.listener);
        let listener = self
            .listener_settings
            .borrow()
            .iter()
            .find(|one| is_of_listener(one))
            .map_or(0, |one| one.open_connections.get());
        let pool = outcome.pool.map(|index| &generation.pools[index]);
        LoadCounts {
            actconn: self.connection_limit.active_count() as u32,
            feconn: listener as u32,
            beconn: pool.map_or(0, |pool| pool.in_flight()) as u32,
            srv_conn: pool.zip(outcome.server).map_or(0, |(pool, at)| pool.load(at).1) as u32,
            srv_queue: 0,
            backend_queue: 0,
        }
    }

    /// Counts a connection that was not served, or a pause in accepting.
    pub(crate) fn count_rejection(&self, reason: RejectReason) {
        self.current_generation.borrow().metrics.refused(reason);
    }

    /// Returns whether a listener has the maximum number of connections of this core.
    pub(crate) fn is_listener_full(&self, listener: usize) -> bool {
        self.settings(listener).is_some_and(|settings| {
            let max = settings.plan.connections_max;
            max.is_some_and(|max| settings.open_connections.get() >= self.own_limit(max))
        })
    }

    /// Returns this core's part of a maximum for all cores.
    pub(crate) fn own_limit(&self, max: usize) -> usize {
        limit_of_core(max, self.index, self.core_count)
    }

    /// Wakes the tasks that wait for a free slot, in `wait_ns` nanoseconds.
    pub(crate) fn wake_limit_waiters_in(self: &Rc<Self>, wait_ns: u64) {
        if self.is_rate_timer_running.replace(true) {
            return;
        }
        let core = Rc::clone(self);
        rt::tokio::task::spawn_local(async move {
            core.timers.sleep_until(now_ns().saturating_add(wait_ns)).await;
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
        self.closes_tunnels.set(true);
        self.deadlines.wake_all();
    }

    /// Returns the counters of this core, under this plan and earlier ones.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.update_gauges();
        self.absorb_retired();
        let mut counted = Vec::new();
        let mut is_first_use = |counter| {
            let is_new = !counted.contains(&counter);
            counted.extend(is_new.then_some(counter));
            is_new
        };
        let mut snapshot = self.current_generation.borrow().metrics.snapshot_of(&mut is_first_use);
        for generation in self.retired_generations.borrow().iter() {
            snapshot.carry_over(&generation.metrics.snapshot_of(&mut is_first_use));
        }
        snapshot.carry_over(&self.past_counters.borrow());
        snapshot.add_generations(self.count_generations());
        // All cores share the logs, so the first core reports them.
        if self.index == 0 {
            for tally in self.past_log_counters.borrow().iter().chain([self.log.borrow().line_counters()]) {
                snapshot.add_logs(&tally.counts());
            }
        }
        snapshot
    }

    /// Returns the number of configurations that requests follow: the one in force, and earlier
    /// ones with requests in flight.
    fn count_generations(&self) -> u64 {
        let (generation, retired) = (self.current_generation.borrow(), self.retired_generations.borrow());
        let all: Vec<&Rc<ConfigGeneration>> = retired.iter().chain([&*generation]).collect();
        let is_first =
            |at: usize| !all[..at].iter().any(|other| other.metrics.has_same_listeners(&all[at].metrics));
        (0..all.len()).filter(|at| is_first(*at)).count() as u64
    }

    /// Redirects log lines to `log`, if it is another one.
    pub(crate) fn change_log(&self, log: log::LogSender) {
        let mut core_log = self.log.borrow_mut();
        core_log.hand_over();
        if core_log.line_counters().has_same_logs(&log.line_counters()) {
            return;
        }
        let previous = std::mem::replace(&mut *core_log, CoreLog::new(log, self.index));
        self.past_log_counters.borrow_mut().push(previous.line_counters().clone());
    }

    /// Keeps the counters of earlier plans that have no requests in flight any more.
    fn absorb_retired(&self) {
        let current = self.current_generation();
        let mut retired = self.retired_generations.borrow_mut();
        retired.retain(|generation| {
            generation.collect_counters();
            let done = Rc::strong_count(generation) == 1;
            if done {
                // Connections to removed servers are closed, as nothing else checks them any more.
                let unused_pools = generation
                    .pools
                    .iter()
                    .filter(|pool| !current.pools.iter().any(|now| Rc::ptr_eq(now, pool)));
                unused_pools.for_each(|pool| pool.close_idle_of_removed());
                let mut counters = generation.metrics.snapshot_of_unshared();
                counters.carry_over(&self.past_counters.borrow());
                *self.past_counters.borrow_mut() = counters;
            }
            !done
        });
    }

    /// Returns the state for a request: a reused one, or a new one.
    pub(crate) fn take_exchange(&self) -> Box<Exchange> {
        self.in_flight.set(self.in_flight.get() + 1);
        self.spare_exchanges.borrow_mut().pop().unwrap_or_else(|| Box::new(Exchange::new()))
    }

    /// Keeps an exchange for reuse.
    pub(crate) fn recycle_exchange(&self, mut exchange: Box<Exchange>) {
        self.in_flight.set(self.in_flight.get() - 1);
        let mut spare = self.spare_exchanges.borrow_mut();
        if spare.len() < SPARE_EXCHANGES_MAX {
            exchange.reset();
            spare.push(exchange);
        }
    }
}
