//! One core's view of a pool: its servers, their idle connections, and the requests of this core
//! that wait for room. What all cores share of it is in [`shared`].
//!
//! ```text
//!              room                          connection
//! request -> acquire ----------------> server -> idle one, or a new one -> request in flight -> release
//!              | none                    ^                                                        |
//!              v                         | granted                                                |
//!            queue (bounded in length and age, see there for the order) <-----------------------'
//! ```

mod adaptive;
mod codel;
mod gate;
mod line;
mod observed;
mod queue;
mod retry_budget;
mod shared;
mod standing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rt::namespace::Namespace;
use rt::stream::Stream;

pub(crate) use line::{Ask, NoPlace, Ticket, TicketState};
pub(crate) use observed::Observed;
pub(crate) use queue::NEVER;
pub(crate) use shared::{Bells, Shared, SharedPool};
pub(crate) use standing::{Checked, LastCheck, Standing, Wanted};

use adaptive::Limit;
use gate::Entry;
use queue::{Queue, Rules};

use crate::balance::sticky::Tokens;
use crate::balance::{Candidate, How, Latency, Turns, choose, digest};
use crate::outcome::Outcome;
use crate::outlier::{Sign, sign_of_status};
use crate::plan::{Balance, Plan, PoolPlan, QueuePlan, Reuse};

/// One core's view of one pool.
#[derive(Debug)]
pub(crate) struct Pool {
    plan: Arc<Plan>,
    index: usize,
    core: usize,
    shared: Arc<SharedPool>,
    servers: Vec<Rc<Server>>,
    turns: RefCell<Turns>,
    /// The digests of the servers' names, for the choice by a key.
    names: Box<[u64]>,
    /// What names the servers to clients that stick to them.
    tokens: Option<Tokens>,
    has_backups: bool,
    /// Requests that did not go where their key belongs, since they were asked for.
    elsewhere: Cell<u64>,
    /// The time of what was done last here.
    now_ns: Cell<u64>,
    queue: RefCell<Queue<Rc<Ticket>>>,
    /// From a request's dispatch to its answer's first byte, of late.
    service_ns: Cell<u64>,
    /// On the first core, where servers' bounds follow what they do.
    limits: RefCell<Vec<Limit>>,
    /// Idle connections that this core may keep to each server.
    idle_max: usize,
    /// Whether failures of servers are looked at.
    observes: bool,
    /// When the windows of their rates are over; looked at by the first core.
    window_end_ns: Cell<u64>,
}

/// One core's view of one server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    in_flight: Cell<usize>,
    /// Only kept where the choice goes by it.
    latency: Cell<Latency>,
    /// Of those, how many the server's bound counts. While it has a bound all that come, and while it
    /// has none nobody; which of them leaves first is the same to everybody.
    counted: Cell<usize>,
    /// The one used last is at the end, and is used first.
    idle: RefCell<Vec<ServerConn>>,
    seen: observed::Seen,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct ServerConn {
    pub(crate) stream: Stream,
    /// Requests that it has carried to their end.
    pub(crate) served: u32,
    idle_since_ns: u64,
}

/// What a request wants of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Want {
    /// The digest of what it is chosen by, where that is a key.
    pub(crate) key: Option<u64>,
    /// The server that its client sticks to: no other will do while that is up.
    pub(crate) pinned: Option<usize>,
    /// A server that has just failed it.
    pub(crate) avoid: Option<usize>,
}

impl Pool {
    /// Takes over what `before` was of the same pool: idle connections and counts of the servers
    /// that stay.
    pub(crate) fn new(
        plan: Arc<Plan>,
        index: usize,
        core: (usize, usize),
        shared: Arc<SharedPool>,
        before: Option<&Self>,
    ) -> Self {
        let own = &plan.pools[index];
        let (core, cores) = core;
        let server = |server: &crate::plan::ServerPlan| {
            let kept = before.and_then(|before| {
                let old = before
                    .plan()
                    .servers
                    .iter()
                    .position(|old| old.name == server.name && old.address == server.address)?;
                // Connections were made in another namespace, or told another client's address.
                (before.plan().namespace == own.namespace
                    && before.plan().send_proxy_protocol == own.send_proxy_protocol)
                    .then(|| Rc::clone(&before.servers[old]))
            });
            kept.unwrap_or_default()
        };
        let servers: Vec<_> = own.servers.iter().map(server).collect();
        let turns = RefCell::new(Turns::new(servers.len()));
        let idle_max = own.idle_max.div_ceil(cores);
        let names = own.servers.iter().map(|server| digest(server.name.as_bytes())).collect();
        let server_names = own.servers.iter().map(|server| &*server.name);
        let tokens =
            own.sticky.as_ref().map(|sticky| Tokens::new(&sticky.key, &own.name, server_names));
        let has_backups = own.servers.iter().any(|server| server.backup);
        let QueuePlan { timeout_ns, order, stands_after_ns, .. } = own.queue;
        let queue = RefCell::new(Queue::new(Rules { order, timeout_ns, stands_after_ns }));
        let service_ns = before.map_or(0, |before| before.service_ns.get());
        let limits = RefCell::new(line::limits(own, before));
        let observes = own.outlier.is_on();
        Self {
            plan,
            index,
            core,
            shared,
            servers,
            turns,
            names,
            tokens,
            has_backups,
            elsewhere: Cell::new(0),
            now_ns: Cell::new(0),
            queue,
            service_ns: Cell::new(service_ns),
            limits,
            idle_max,
            observes,
            window_end_ns: Cell::new(0),
        }
    }

    pub(crate) fn plan(&self) -> &PoolPlan {
        &self.plan.pools[self.index]
    }

    /// The network namespace of its servers, if it is not our own.
    pub(crate) fn namespace(&self) -> Option<Namespace> {
        self.shared.namespace()
    }

    /// Which connections a request may go over. One that told the server who the client is can only
    /// carry that client's requests.
    pub(crate) fn reuse(&self) -> Reuse {
        match self.plan().send_proxy_protocol {
            Some(_) => Reuse::Never,
            None => self.plan().reuse,
        }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The state of a server, which stays the same object across reloads as long as connections to the
    /// server may be kept.
    pub(crate) fn server(&self, index: usize) -> &Rc<Server> {
        &self.servers[index]
    }

    /// What names its servers to clients that stick to them.
    pub(crate) fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    /// Whether requests of clients that stick to a server still go there.
    pub(crate) fn is_up(&self, server: usize, now_ns: u64) -> bool {
        self.shared.standing(server).is_open(now_ns)
    }

    /// Whether the choice goes by response times.
    pub(crate) fn wants_latency(&self) -> bool {
        self.plan().balance == Balance::Latency
    }

    /// Remembers how long a server took.
    pub(crate) fn learn(&self, server: usize, sample_ns: u64, now_ns: u64) {
        let latency = &self.servers[server].latency;
        latency.set(latency.get().with(sample_ns, now_ns));
    }

    /// How many requests did not go where their key belongs, since this was asked last.
    pub(crate) fn take_elsewhere(&self) -> u64 {
        self.elsewhere.take()
    }

    /// Takes room at a server, unless none has any or others wait for the same already.
    pub(crate) fn acquire(
        &self,
        want: Want,
        now_ns: u64,
        rng: &mut fastrand::Rng,
    ) -> Option<usize> {
        self.now_ns.set(now_ns);
        let pinned = self.pinned(want);
        let waits_for_same = {
            let queue = self.queue.borrow();
            // Who sticks to a server that is full keeps nobody from the others.
            let same = |other: &Rc<Ticket>| self.pinned(other.want()) == pinned;
            !queue.is_empty() && (self.tokens.is_none() || queue.any(same))
        };
        if waits_for_same {
            return None;
        }
        self.try_acquire(want, rng)
    }

    /// The only server that will do, if there is one.
    fn pinned(&self, want: Want) -> Option<usize> {
        let now_ns = self.now_ns.get();
        want.pinned.filter(|server| want.avoid != Some(*server) && self.is_up(*server, now_ns))
    }

    fn try_acquire(&self, want: Want, rng: &mut fastrand::Rng) -> Option<usize> {
        if !self.shared.whole_has_room() {
            return None;
        }
        if let Some(server) = self.pinned(want) {
            return self.enter(server).then_some(server);
        }
        if self.servers.len() == 1 {
            let usable = self.shared.standing(0).share() > 0 && self.enter(0);
            return usable.then_some(0);
        }
        let plan = self.plan();
        let how = How {
            balance: plan.balance,
            key: want.key,
            names: &self.names,
            load_factor: plan.hash.load_factor,
            now_ns: self.now_ns.get(),
        };
        let turns = &mut *self.turns.borrow_mut();
        let backups = self.has_backups && !self.has_usable(false);
        // Another core may take the last place between the look and the step, so look again.
        for _ in 0..=self.servers.len() {
            let choose = |avoid: Option<usize>, turns: &mut Turns, rng: &mut fastrand::Rng| {
                let candidate = |index: usize| self.candidate(index, avoid, backups);
                choose(how, self.servers.len(), candidate, turns, rng)
            };
            let chosen = match choose(want.avoid, turns, rng) {
                // The one that has failed is better than none.
                None if want.avoid.is_some() => choose(None, turns, rng)?,
                chosen => chosen?,
            };
            if self.enter(chosen.server) {
                let elsewhere = u64::from(chosen.is_elsewhere);
                self.elsewhere.set(self.elsewhere.get() + elsewhere);
                return Some(chosen.server);
            }
        }
        None
    }

    fn candidate(&self, index: usize, avoid: Option<usize>, backups: bool) -> Candidate {
        let server = &self.plan().servers[index];
        let share = self.shared.standing(index).share();
        let is_first = self.plan().balance == Balance::First;
        Candidate {
            weight: if server.backup == backups { share } else { 0 },
            in_flight: self.servers[index].in_flight.get(),
            open: avoid != Some(index) && self.shared.has_room(index),
            eased: !is_first || self.shared.has_eased_room(index, server.weight),
            latency: self.servers[index].latency.get(),
        }
    }

    /// Whether any server gets requests by its standing, of the backups or of the others.
    fn has_usable(&self, backups: bool) -> bool {
        let servers = self.plan().servers.iter().enumerate();
        let mut of_kind = servers.filter(|(_, server)| server.backup == backups);
        of_kind.any(|(index, _)| self.shared.standing(index).share() > 0)
    }

    /// Takes room at a server, if it has any.
    fn enter(&self, index: usize) -> bool {
        let server = &self.servers[index];
        match self.shared.try_enter(self.core, index) {
            Entry::Full => return false,
            Entry::Uncounted => {}
            Entry::Counted => server.counted.set(server.counted.get() + 1),
        }
        server.in_flight.set(server.in_flight.get() + 1);
        true
    }

    /// Counts the requests of servers that have a bound by now, and had none when they came.
    pub(crate) fn recount(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            let late = server.in_flight.get().saturating_sub(server.counted.get());
            if late > 0 && self.shared.counts(index) {
                self.shared.count_late(index, late);
                server.counted.set(server.in_flight.get());
            }
        }
    }

    /// Whether any server may get such a request, now or once it has room.
    pub(crate) fn has_server(&self, want: Want) -> bool {
        self.pinned(want).is_some() || self.has_usable(false) || self.has_usable(true)
    }

    /// Notes what a request that has ended shows of its server.
    #[inline]
    pub(crate) fn observe(&self, outcome: &Outcome<'_>) {
        if let Some(server) = outcome.server.filter(|_| self.observes) {
            let seen = &self.servers[server].seen;
            self.shared.observe(&self.plan().outlier, server, seen, outcome);
        }
    }

    /// A request could not connect to a server, and goes to another one.
    pub(crate) fn note_unreachable(&self, server: usize, now_ns: u64) {
        if self.observes {
            self.shared.note(&self.plan().outlier, server, Sign::Failure, now_ns);
        }
    }

    /// A server answers: if that was to be found out, it is. `status` is 0 where there is none.
    #[inline]
    pub(crate) fn note_answer(&self, server: usize, status: u16, now_ns: u64) {
        let standing = self.shared.standing(server);
        let errors = self.plan().outlier.errors;
        if standing.has_trial()
            && (errors.is_none() || sign_of_status(status, &self.plan().outlier) == Sign::Fine)
        {
            standing.pass_trial(now_ns);
        }
    }

    /// Brings what this core saw of its servers to the others, and judges by it where it is the
    /// first one.
    pub(crate) fn judge(&self, now_ns: u64) {
        if !self.observes {
            return;
        }
        for (index, server) in self.servers.iter().enumerate() {
            server.seen.hand_over(self.shared.observed(index));
        }
        let end_ns = self.window_end_ns.get();
        if self.core == 0 && now_ns >= end_ns {
            let plan = &self.plan().outlier;
            self.window_end_ns.set(now_ns + plan.window_ns);
            // What was counted before the first window is of no known length.
            if end_ns > 0 {
                self.shared.judge_windows(plan, now_ns);
            }
        }
    }

    /// Works out anew what share of the load each server gets.
    pub(crate) fn settle(&self, now_ns: u64) {
        self.adapt();
        self.shared.settle(self.plan(), now_ns);
    }

    /// Gives room back, to who waits for it.
    pub(crate) fn release(&self, server: usize, rng: &mut fastrand::Rng) {
        let Server { in_flight, counted, .. } = &*self.servers[server];
        in_flight.set(in_flight.get().saturating_sub(1));
        let was_counted = counted.get() > in_flight.get();
        if was_counted {
            counted.set(counted.get() - 1);
        }
        if self.shared.leave(server, was_counted) && self.shared.is_waited_for() {
            let own = !self.queue.borrow().is_empty();
            if !self.shared.ring_other(self.core, own) {
                self.serve_queue(rng);
            }
        }
    }

    /// An idle connection that is alive, the one used last; dead ones are closed.
    pub(crate) fn take_idle(&self, server: usize) -> Option<ServerConn> {
        let idle = &self.servers[server].idle;
        loop {
            let conn = idle.borrow_mut().pop()?;
            if conn.is_alive() {
                return Some(conn);
            }
        }
    }

    /// Keeps a connection for the next request, unless there are enough.
    pub(crate) fn keep_idle(&self, server: usize, mut conn: ServerConn, now_ns: u64) {
        let mut idle = self.servers[server].idle.borrow_mut();
        conn.idle_since_ns = now_ns;
        if idle.len() < self.idle_max {
            idle.push(conn);
        }
    }

    /// Closes idle connections that are dead or too old.
    pub(crate) fn sweep_idle(&self, now_ns: u64) {
        let timeout_ns = self.plan().idle_timeout_ns;
        for (index, server) in self.servers.iter().enumerate() {
            let mut idle = server.idle.borrow_mut();
            // Nothing of ours is to be left at a server that is worked on.
            let away = self.shared.standing(index).in_force() == Wanted::Maintenance;
            idle.retain(|conn| {
                let young = now_ns.saturating_sub(conn.idle_since_ns) < timeout_ns;
                young && !away && conn.is_alive()
            });
        }
    }

    /// Closes the idle connections of servers that no other pool has.
    pub(crate) fn close_idle_of_gone(&self) {
        for server in self.servers.iter().filter(|server| Rc::strong_count(server) == 1) {
            server.idle.borrow_mut().clear();
        }
    }

    /// Requests of this core that all servers have.
    pub(crate) fn in_flight(&self) -> usize {
        self.servers.iter().map(|server| server.in_flight.get()).sum()
    }

    /// Idle connections and requests in flight of one server, and requests that wait for the pool.
    pub(crate) fn load(&self, server: usize) -> (usize, usize, usize) {
        let server = &self.servers[server];
        (server.idle.borrow().len(), server.in_flight.get(), self.queued())
    }
}

impl ServerConn {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, served: 0, idle_since_ns: 0 }
    }

    /// Whether an idle connection can still be used: one that can be read from has ended, or says
    /// what nobody asked for. Mostly the runtime knows from its last look, so that it costs no system
    /// call; where the last response ended just where a read did, the kernel is asked once.
    pub(crate) fn is_alive(&self) -> bool {
        self.stream.is_quiet()
    }
}

#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod tests;
