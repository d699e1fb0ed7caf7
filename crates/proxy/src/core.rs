//! One core's state, which all its connections share: the plan in force, pools, time, buffers, and
//! where outcomes go.
//!
//! Nothing here leaves its thread, so there is no lock; and nothing here is held across an await.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rt::board::Board;
use rt::buffers::Buffers;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::deadlines::Deadlines;
use rt::limits::descriptor_limit;
use rt::room::Room;
use rt::splice::Pipes;
use rt::timers::Timers;

use crate::admission::Gatekeeper;
use crate::conn::{self, Settings};
use crate::exchange::Exchange;
pub(crate) use crate::live::Live;
use crate::log::{self, CoreLog, Load, Tally, Wall};
use crate::metrics::{Reason, Snapshot};
use crate::outcome::Outcome;
use crate::plan::ListenerPlan;
use crate::pool::Pool;
use crate::profile::{Phase, Profile};
use crate::route::Scratch;
use crate::session::Census;
use crate::tunnel::PIPE_BYTES;

/// How often a core looks at its deadlines, its idle connections and its log. No time-out but the
/// queue's is more exact.
pub(crate) const TICK_NS: u64 = 100 * MILLISECOND_NS;
/// How often a core looks at who has waited too long in a queue, while anybody waits.
pub(crate) const QUEUE_TICK_NS: u64 = 2 * MILLISECOND_NS;
/// Bytes that one read takes at most, and so those of the longest head that a config may allow.
const INPUT_BYTES: usize = 64 * 1024;
/// What heads and small bodies on their way to a client take at first.
const OUT_BYTES: usize = 16 * 1024;
/// The first size of a pooled buffer.
const BUFFER_BYTES: usize = 2 * 1024;
/// How many pooled buffers a core lends at a time; each holds a part of a head or of a pipelined
/// request that waits for the rest.
const BUFFERS_MAX: usize = 32 * 1024;
/// How many pipes a core has at most; a busy tunnel without one copies. Where descriptors are few,
/// pipes take a sixteenth of them ([`pipes_max`]).
const PIPES_MAX: usize = 256;
/// How many exchanges are kept for the next requests.
const SPARE_MAX: usize = 256;

/// What one core's connections share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: usize,
    cores: usize,
    live: RefCell<Rc<Live>>,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) buffers: Buffers,
    pub(crate) board: Board,
    pub(crate) bench: RefCell<Bench>,
    pub(crate) room: Room,
    /// The time of the last tick.
    pub(crate) now_ns: Cell<u64>,
    /// Changes with each tick and when the drain starts: as long as it is the same, no deadline
    /// has passed.
    pub(crate) tick: Cell<u32>,
    pub(crate) draining: Cell<bool>,
    /// Connections that only hear why they are not served.
    pub(crate) turned: Cell<usize>,
    /// Whether somebody looks after connections that wait for a rate.
    room_watched: Cell<bool>,
    /// Whether idle connections end: in a drain, but not from its first moment.
    pub(crate) idle_ends: Cell<bool>,
    /// Whether another process is at work, so that the drain may take its time.
    pub(crate) is_replaced: Cell<bool>,
    #[allow(
        clippy::vec_box,
        reason = "what is kept is the allocation, and moving one is moving a box"
    )]
    spare: RefCell<Vec<Box<Exchange>>>,
    /// Exchanges and tunnels.
    pub(crate) in_flight: Cell<usize>,
    /// Requests whose clients have gone and that bounded servers still have.
    pub(crate) abandoned: Cell<usize>,
    /// Of the plan in force first, then of plans that connections are still from.
    settings: RefCell<Vec<Rc<Settings>>>,
    /// Plans that are over, under which something may still be in flight.
    retired: RefCell<Vec<Rc<Live>>>,
    /// What was counted under plans that are over.
    past: RefCell<Snapshot>,
    pub(crate) log: RefCell<CoreLog>,
    /// Of logs that are over.
    past_logs: RefCell<Vec<Tally>>,
    wall: Cell<Wall>,
    /// Whether somebody looks after the queues just now.
    pub(crate) queues_watched: Cell<bool>,
    pub(crate) pipes: Pipes,
    /// Whether tunnels end with the drain: they have had their time.
    pub(crate) tunnels_end: Cell<bool>,
    /// Where its time goes, when somebody wants to know.
    pub(crate) profile: Profile,
    /// What its connections are asked.
    pub(crate) census: Census,
}

/// What one poll of a connection works on; it belongs to nobody between two polls.
#[derive(Debug)]
pub(crate) struct Bench {
    /// What was just received.
    pub(crate) input: Box<[u8]>,
    /// Heads and framing on their way to a client.
    pub(crate) out: Vec<u8>,
    /// Targets on their way through a route's changes.
    pub(crate) target: Vec<u8>,
    pub(crate) scratch: Scratch,
    pub(crate) rng: fastrand::Rng,
}

/// How many pipes a core with so many descriptors has at most.
pub(crate) fn pipes_max(descriptors: u64) -> usize {
    PIPES_MAX.min((descriptors / 32) as usize)
}

/// How many of `max` connections one of `cores` cores may have; each may have one.
pub(crate) fn share(max: usize, core: usize, cores: usize) -> usize {
    (max / cores + usize::from(core < max % cores)).max(1)
}

impl Core {
    /// Must be called inside the core's runtime.
    pub(crate) fn new(
        (index, cores): (usize, usize),
        live: Live,
        board: Board,
        connections_max: usize,
        log: CoreLog,
    ) -> std::io::Result<Rc<Self>> {
        let core = Rc::new(Self {
            index,
            cores,
            live: RefCell::new(Rc::new(live)),
            timers: Timers::start()?,
            deadlines: Deadlines::default(),
            buffers: Buffers::new(BUFFER_BYTES, BUFFERS_MAX),
            board,
            bench: RefCell::new(Bench {
                input: vec![0; INPUT_BYTES].into(),
                out: Vec::with_capacity(OUT_BYTES),
                target: Vec::new(),
                scratch: Scratch::default(),
                rng: fastrand::Rng::new(),
            }),
            room: Room::new(connections_max),
            now_ns: Cell::new(now_ns()),
            tick: Cell::new(0),
            draining: Cell::new(false),
            turned: Cell::new(0),
            room_watched: Cell::new(false),
            idle_ends: Cell::new(false),
            is_replaced: Cell::new(false),
            spare: RefCell::default(),
            in_flight: Cell::new(0),
            abandoned: Cell::new(0),
            settings: RefCell::default(),
            retired: RefCell::default(),
            past: RefCell::default(),
            log: RefCell::new(log),
            past_logs: RefCell::default(),
            wall: Cell::new(Wall::read()),
            queues_watched: Cell::new(false),
            pipes: Pipes::new(PIPE_BYTES, pipes_max(descriptor_limit())),
            tunnels_end: Cell::new(false),
            profile: Profile::default(),
            census: Census::default(),
        });
        let settings = core.settings_of(&core.live());
        *core.settings.borrow_mut() = settings;
        Ok(core)
    }

    /// The plan that new requests follow.
    #[inline]
    pub(crate) fn live(&self) -> Rc<Live> {
        Rc::clone(&self.live.borrow())
    }

    /// From now on new requests follow `live`; connections keep what their listener was like when
    /// they came in.
    pub(crate) fn put_in_force(self: &Rc<Self>, live: Live) {
        let place = |name: &str| live.plan.listeners.iter().position(|one| &*one.name == name);
        for settings in self.settings.borrow().iter() {
            settings.follow(&self.live(), place(&settings.plan.name));
        }
        let fresh = self.settings_of(&live);
        for settings in &fresh {
            for _ in 0..settings.open.get() {
                settings.index.get().inspect(|&index| live.metrics.adopted(index));
            }
        }
        let mut settings = self.settings.borrow_mut();
        // Those that no connection has any more.
        settings.retain(|old| Rc::strong_count(old) > 1);
        settings.splice(0..0, fresh);
        let before = self.live.replace(Rc::new(live));
        self.retired.borrow_mut().push(before);
    }

    /// The settings of a plan's listeners, with the counts of those of the same name.
    fn settings_of(self: &Rc<Self>, live: &Live) -> Vec<Rc<Settings>> {
        let known = self.settings.borrow();
        let both = live.plan.listeners.iter().zip(&live.keepers);
        let settings = |(index, (listener, keeper)): (usize, (&ListenerPlan, &Arc<Gatekeeper>))| {
            let old = known.iter().find(|old| old.plan.name == listener.name);
            let open = old.map(|old| Rc::clone(&old.open)).unwrap_or_default();
            let shared = (open, Arc::clone(keeper));
            Rc::new(Settings::new(Rc::clone(self), listener.clone(), index, shared))
        };
        both.enumerate().map(settings).collect()
    }

    /// The settings of a listener, for a new connection.
    pub(crate) fn settings(&self, listener: usize) -> Option<Rc<Settings>> {
        let settings = self.settings.borrow();
        // The newest are first.
        settings.iter().find(|one| one.index.get() == Some(listener)).cloned()
    }

    /// Looks after what is due: once every [`TICK_NS`].
    pub(crate) fn handle_tick(&self, now_ns: u64) {
        let _section = self.profile.enter(Phase::Upkeep);
        self.now_ns.set(now_ns);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.deadlines.sweep(now_ns);
        self.wall.set(Wall::read());
        self.visit_pools(|pool| pool.sweep_idle(now_ns));
        // An agent may have given a server a bound that had none.
        self.visit_pools(Pool::recount);
        for pool in &self.live.borrow().pools {
            pool.judge(now_ns);
            // It is one for all cores, so the first of them does it.
            if self.index == 0 {
                pool.settle(now_ns);
            }
        }
        // A listener that is gone goes with its last connection.
        self.settings
            .borrow_mut()
            .retain(|settings| settings.index.get().is_some() || Rc::strong_count(settings) > 1);
        if self.queues_watched.get() {
            // A server that was down may have come up.
            self.serve_queues();
        }
        let logging = self.profile.enter(Phase::Log);
        // When it is behind, the batch waits for the next tick.
        self.log.borrow().hand_over();
        drop(logging);
        self.absorb_retired();
    }

    /// Tells those that have waited too long in a queue; whether anybody still waits.
    pub(crate) fn expire_queues(&self, now_ns: u64) -> bool {
        let mut waits = false;
        self.visit_pools(|pool| waits |= pool.expire_queue(now_ns));
        waits
    }

    /// Grants what room came up elsewhere.
    pub(crate) fn serve_queues(&self) {
        let rng = &mut self.bench.borrow_mut().rng;
        self.visit_pools(|pool| pool.serve_queue(rng));
    }

    /// Bounds and states of servers have changed: counts what has to be counted now, and lets those
    /// go who wait for what there is now.
    pub(crate) fn follow_servers(&self) {
        self.visit_pools(Pool::recount);
        self.serve_queues();
    }

    /// Those of plans that are over as well, and first: somebody may still wait in their queues.
    fn visit_pools(&self, mut visit: impl FnMut(&Pool)) {
        let live = self.live();
        for live in self.retired.borrow().iter().chain([&live]) {
            live.pools.iter().for_each(|pool| visit(pool));
        }
    }

    /// From now on answers are the last of their connections.
    pub(crate) fn start_draining(&self) {
        self.draining.set(true);
    }

    /// Idle connections end.
    pub(crate) fn end_idle(&self) {
        self.idle_ends.set(true);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.deadlines.wake_all();
    }

    /// Whether logs want more of a request than its first line.
    pub(crate) fn wants_fields(&self) -> bool {
        self.log.borrow().wants_fields()
    }

    /// Tells log and metrics what a request did.
    pub(crate) fn record(&self, live: &Live, outcome: &Outcome<'_>) {
        live.metrics.record(outcome);
        self.profile.note_times(&outcome.times);
        if let Some(pool) = outcome.pool {
            live.pools[pool].observe(outcome);
        }
        let _section = self.profile.enter(Phase::Log);
        let load = self.load(live, outcome);
        self.log.borrow().record(outcome, &live.names, self.wall.get(), &load);
    }

    /// How busy the proxy is, as HAProxy's log format has it: of this core, this request included.
    fn load(&self, live: &Live, outcome: &Outcome<'_>) -> Load {
        let open = |settings: &Settings| settings.index.get() == Some(outcome.listener);
        let listener =
            self.settings.borrow().iter().find(|one| open(one)).map_or(0, |one| one.open.get());
        let pool = outcome.pool.map(|index| &live.pools[index]);
        Load {
            process: self.room.served() as u32,
            listener: listener as u32,
            pool: pool.map_or(0, |pool| pool.in_flight()) as u32,
            server: pool.zip(outcome.server).map_or(0, |(pool, at)| pool.load(at).1) as u32,
            server_queue: 0,
            pool_queue: 0,
        }
    }

    /// Counts a connection that was not served, or a time of not accepting any.
    pub(crate) fn refused(&self, reason: Reason) {
        self.live.borrow().metrics.refused(reason);
    }

    /// Whether a listener has as many connections as this core may have for it.
    pub(crate) fn is_listener_full(&self, listener: usize) -> bool {
        self.settings(listener).is_some_and(|settings| {
            let max = settings.plan.connections_max;
            max.is_some_and(|max| settings.open.get() >= share(max, self.index, self.cores))
        })
    }

    /// Has those look again that wait for room, in so many nanoseconds.
    pub(crate) fn wake_room_in(self: &Rc<Self>, wait_ns: u64) {
        if self.room_watched.replace(true) {
            return;
        }
        let core = Rc::clone(self);
        rt::tokio::task::spawn_local(async move {
            core.timers.sleep_until(now_ns().saturating_add(wait_ns)).await;
            core.room_watched.set(false);
            core.room.wake();
        });
    }

    /// Nothing comes any more. Settings and their core hold each other, which ends here.
    pub(crate) fn forget_settings(&self) {
        self.settings.borrow_mut().clear();
    }

    /// Tunnels have had their time.
    pub(crate) fn end_tunnels(&self) {
        self.tunnels_end.set(true);
        self.deadlines.wake_all();
    }

    /// What this core has counted, under this plan and those before.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.read_gauges();
        self.absorb_retired();
        let mut snapshot = self.live.borrow().metrics.snapshot();
        for live in self.retired.borrow().iter() {
            snapshot.carry_over(&live.metrics.snapshot());
        }
        snapshot.carry_over(&self.past.borrow());
        // Logs are one for all cores, so the first of them tells.
        if self.index == 0 {
            for tally in self.past_logs.borrow().iter().chain([self.log.borrow().tally()]) {
                snapshot.add_logs(&tally.counts());
            }
        }
        snapshot
    }

    /// From now on lines go to `log`, if that is another one.
    pub(crate) fn change_log(&self, log: log::Sender) {
        let mut own = self.log.borrow_mut();
        own.hand_over();
        if own.tally().is_same(&log.tally()) {
            return;
        }
        let before = std::mem::replace(&mut *own, CoreLog::new(log, self.index));
        self.past_logs.borrow_mut().push(before.tally().clone());
    }

    fn read_gauges(&self) {
        let live = self.live.borrow();
        let metrics = &live.metrics;
        for (index, pool) in live.pools.iter().enumerate() {
            let servers = pool.plan().servers.len();
            for server in 0..servers {
                let (idle, in_flight, _) = pool.load(server);
                metrics.set_idle(index, server, idle as u64);
                metrics.set_in_flight(index, server, in_flight as u64);
                // It is one for all cores, so the first of them tells.
                let bound = pool.bound(server).filter(|_| self.index == 0);
                let slots = if self.index == 0 { pool.slots(server) } else { 0 };
                let bound = bound.unwrap_or_default() as u64;
                metrics.set_bound(index, server, (bound, slots as u64));
            }
            metrics.set_queued(index, pool.queued() as u64);
        }
        live.count_elsewhere();
        metrics.set_buffers(self.buffers.lent() as u64, self.buffers.refused());
        metrics.set_requests(self.in_flight.get() as u64, self.abandoned.get() as u64);
        let idle = self.room.served().saturating_sub(self.in_flight.get());
        metrics.set_idle_clients(idle as u64, (idle * conn::IDLE_BYTES) as u64);
    }

    /// Keeps the counts of plans under which nothing is in flight any more.
    fn absorb_retired(&self) {
        let mut retired = self.retired.borrow_mut();
        retired.retain(|live| {
            live.count_elsewhere();
            let done = Rc::strong_count(live) == 1;
            if done {
                // Their servers' connections are nobody's to look after, where the servers are gone.
                live.pools.iter().for_each(|pool| pool.close_idle_of_gone());
                let mut whole = live.metrics.snapshot();
                whole.carry_over(&self.past.borrow());
                *self.past.borrow_mut() = whole;
            }
            !done
        });
    }

    /// A place for a request's state: one that was used before, or a new one.
    pub(crate) fn take_exchange(&self) -> Box<Exchange> {
        self.in_flight.set(self.in_flight.get() + 1);
        self.spare.borrow_mut().pop().unwrap_or_else(|| Box::new(Exchange::new()))
    }

    /// Keeps it for the next request.
    pub(crate) fn give_exchange(&self, mut exchange: Box<Exchange>) {
        self.in_flight.set(self.in_flight.get() - 1);
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            exchange.reset();
            spare.push(exchange);
        }
    }
}
